"""That a child of a process with threads finds no lock taken, no module half imported and nothing half made."""

import functools
import os
import pkgutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nxjax.config import forks
from nxjax.config.forks import cached_property, fork_lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork"),
]


def _child(right) -> bool:
    """What ``right()`` is in a child, which has a minute for it."""
    child = os.fork()
    if not child:
        os._exit(0 if right() else 1)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if (found := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(found[1]) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.fixture
def locks(monkeypatch):
    """Two locks of this test's; the others stay."""
    monkeypatch.setattr(forks, "_locks", [*forks._locks])
    return fork_lock(), fork_lock()


def _is_free(lock) -> bool:
    return lock.acquire(blocking=False) and not lock.release()


@pytest.mark.parametrize("order", [1, -1])
def test_a_fork_waits_for_locks_taken_in_any_order(locks, order):
    first, second = locks[::order]
    inside, seen = threading.Event(), []

    def work() -> None:
        with first:
            inside.set()
            time.sleep(0.1)
            with second:
                time.sleep(0.1)
                seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(60)
    assert _child(lambda: seen == [1] and all(map(_is_free, locks)))
    thread.join(60)
    assert all(map(_is_free, locks))


def test_who_holds_a_lock_may_fork(locks):
    with locks[1]:
        assert _child(lambda: all(map(_is_free, locks)))


def test_two_threads_fork_at_once(locks):
    right = []
    threads = [
        threading.Thread(target=lambda: right.append(all(_child(lambda: True) for _ in range(10)))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert right == [True] * 3
    assert all(map(_is_free, locks))


@pytest.fixture
def slow_module(tmp_path, monkeypatch):
    """A module that takes a while to import, and what tells that it has begun."""
    begun = tmp_path / "begun"
    (tmp_path / "slow_to_import.py").write_text(
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(0.3)\nvalue = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield begun
    sys.modules.pop("slow_to_import", None)


def _importing(begun: Path) -> threading.Thread:
    thread = threading.Thread(target=__import__, args=["slow_to_import"])
    thread.start()
    while not begun.exists():
        time.sleep(0.001)
    return thread


def _imported() -> bool:
    return __import__("slow_to_import").value == 3


def test_a_fork_waits_for_imports(slow_module, monkeypatch):
    monkeypatch.setattr(forks, "_ROOTS", {"slow_to_import"})
    thread = _importing(slow_module)
    assert _child(lambda: "value" in vars(sys.modules["slow_to_import"]) and _imported())
    thread.join(60)


def test_a_fork_does_not_wait_for_modules_of_others_nor_for_ever(slow_module, monkeypatch):
    thread = _importing(slow_module)
    assert _child(lambda: "value" not in vars(sys.modules["slow_to_import"]))
    monkeypatch.setattr(forks, "_ROOTS", {"slow_to_import"})
    monkeypatch.setattr(forks, "_MOST", 0.0)
    assert _child(lambda: "value" not in vars(sys.modules["slow_to_import"]))
    thread.join(60)


def test_a_fork_in_an_import_and_a_fork_that_fails(slow_module, tmp_path, monkeypatch):
    monkeypatch.setattr(forks, "_ROOTS", {"slow_to_import", "forks_as_it_is_imported"})
    (tmp_path / "forks_as_it_is_imported.py").write_text("import os\nchild = os.fork()\nif not child: os._exit(3)\n")
    module = __import__("forks_as_it_is_imported")
    assert os.waitstatus_to_exitcode(os.waitpid(module.child, 0)[1]) == 3
    del sys.modules["forks_as_it_is_imported"]
    code = (
        "import os, resource, nxjax\nfrom nxjax.config import forks\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)); os.setuid(65534) if not os.getuid() else None\n"
        "try: child = os.fork()\nexcept OSError: child = -1\n"
        "if not child: os._exit(0)\n"
        "assert not any(lock._is_owned() for lock in forks._locks) and not forks._has_all()\nprint('well')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout == "well\n", done.stderr[-2000:]


_HELD = """
import os, signal, threading, time
from nxjax.config import forks
locks = [forks.fork_lock() for _ in range(3)]
inside, go = threading.Event(), threading.Event()
def hold():
    with locks[1]:
        inside.set()
        assert go.wait(60)
thread = threading.Thread(target=hold)
thread.start()
assert inside.wait(60)
def all_free():
    free = []
    def look():
        free.extend(lock.acquire(blocking=False) and not lock.release() for lock in forks._locks)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return all(free)
def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def _is_well(code: str) -> bool:
    done = subprocess.run([sys.executable, "-c", _HELD + code], capture_output=True, text=True, timeout=600)
    return (done.stdout, done.stderr) == ("well\n", "") or pytest.fail(done.stdout + done.stderr[-2000:])


def test_ctrl_c_waits_for_the_end_of_a_fork_and_leaves_no_lock_taken():
    assert _is_well("""
def interrupt():
    for _ in range(5):
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    go.set()
threading.Thread(target=interrupt).start()
parent = os.getpid()
try:
    child = os.fork()
    if not child:
        os._exit(5 if all_free() else 6)
    time.sleep(3600)
except KeyboardInterrupt:
    assert os.getpid() == parent and status(-1) == 5 and all_free()
    print("well")
""")


def test_a_handler_forks_while_a_fork_waits():
    assert _is_well("""
children = []
def handler(*_):
    go.set()
    children.append(os.fork())
    if not children[0]:
        os._exit(5 if all_free() else 6)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
children.append(os.fork())
if not children[-1]:
    os._exit(5 if all_free() else 6)
found = [status(c) for c in children], all_free()
assert found == ([5, 5], True), found
print("well")
""")


def test_what_a_handler_raises_at_any_moment_of_a_fork_leaves_no_lock_taken():
    assert _is_well("""
import sys
class Raised(Exception): pass
def handler(*_): raise Raised
signal.signal(signal.SIGUSR1, handler)
sys.unraisablehook = lambda found: None
go.set()
thread.join()
# In turn, at each line and call that a fork runs in this process.
for n in range(10_000):
    left = n
    def tracing(frame, event, argument):
        global left
        if frame.f_code.co_filename == forks.__file__ and os.getpid() == parent:
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGUSR1)
        return tracing
    parent = os.getpid()
    sys.settrace(tracing)
    try:
        child = os.fork()
    except Raised:
        child = -1
    finally:
        sys.settrace(None)
    if not child:
        os._exit(0)
    assert child == -1 or status(child) == 0
    assert all_free(), n
    if left >= 0:
        break
print("well")
""")


@pytest.mark.parametrize(
    "place", ["nxjax.profiler:_lock", "nxjax.deploy.simulate:_lock", "nxjax.backends.memory.statistics:Counters.lock"]
)
def test_what_children_share_has_a_lock_that_a_fork_waits_for(place):
    assert any(pkgutil.resolve_name(place) is lock for lock in forks._locks)


def test_objects_of_a_class_share_no_lock():
    class Slow:
        def __init__(self, go: threading.Event) -> None:
            self.go = go

        @cached_property
        def value(self) -> object:
            """What it is."""
            assert self.go.wait(60)
            return object()

    wait, go = threading.Event(), threading.Event()
    go.set()
    slow = Slow(wait)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert _child(lambda: Slow(go).value is not None)
    quick = Slow(go)
    assert quick.value is quick.value
    wait.set()
    thread.join(60)
    assert isinstance(Slow.value, functools.cached_property) and Slow.value.__doc__ == "What it is."


def test_children_of_a_process_whose_threads_do_everything(tmp_path):
    """The first calls of functions import, load and compile; a fork at any time must leave none of it half done."""
    code = """
import os, threading, time
import numpy as np
import nxjax as nx
x = nx.asarray(np.arange(64, dtype=np.float32))

def everything(n):
    f = nx.jit(lambda x: (x * n).sum())
    good = all(f(x) == 2016 * n for _ in range(3))
    good &= bool(nx.grad(lambda x: (x * x).sum())(x + n)[1] == 2 + 2 * n)
    good &= nx.lax.fori_loop(0, n, lambda i, s: s + x[1], 0.) == n
    good &= bool((nx.vmap(lambda y: nx.linalg.norm(y))(x.reshape(8, 8) * n) >= 0).all())
    with nx.config.using(enable_x64=bool(n % 2)):
        good &= nx.asarray([1., n]).sum() == 1 + n
    return good

stop = False
def load(n):
    while not stop:
        assert everything(n)
        n += 2
threads = [threading.Thread(target=load, args=[n]) for n in (100, 101)]
for thread in threads: thread.start()
for n in range(30):
    time.sleep(n % 7 / 100)
    child = os.fork()
    if not child: os._exit(0 if everything(n + 1) else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, n
stop = True
for thread in threads: thread.join()
print("well")
"""
    environment = {**os.environ, "NXJAX_EXECUTOR": "cpu", "NXJAX_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=environment)
    assert done.stdout == "well\n", (done.returncode, done.stderr[-2000:])
