"""What the lock of compilation is held for, and that a fork waits for it, so that a child finds it free."""

import os
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu import call, first_run, guard
from nxjax.backends.cpu import engine as engines
from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native import runtime
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.probe import StreamCopy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_finds_the_lock_free():
    inside, go_on = threading.Event(), threading.Event()

    def compile():
        with COMPILING:
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=compile)
    thread.start()
    inside.wait(10)
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    if not child:
        os._exit(0 if go_on.is_set() and COMPILING.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join(10)
    assert COMPILING.acquire(blocking=False)
    COMPILING.release()


@pytest.mark.parametrize("what", ["addresses", "module"])
def test_code_is_made_and_loaded_by_one_thread_at_a_time(what, tmp_path, monkeypatch):
    engine, seen = KernelCache(isa.current()), []
    kernel = StreamCopy(1)

    def watched(name):
        plain = getattr(engine, name)
        return lambda *args: (seen.append((name, COMPILING._is_owned())), plain(*args))[1]

    for name in ("emitted", "_loaded"):
        monkeypatch.setattr(engine, name, watched(name))
    with nx.config.using(cache_dir=str(tmp_path)):
        if what == "addresses":
            engine.addresses([kernel])
        else:
            engine.module(engine.texts([kernel]), [kernel.symbol])
    assert seen == [("emitted", True), ("_loaded", True)]


def test_code_is_dropped_only_when_no_thread_makes_any():
    engine = KernelCache(isa.current())
    engine._recent = mock.Mock()
    engine._recent.clear.side_effect = lambda: owned.append(COMPILING._is_owned())
    owned = []
    engine.clear()
    assert owned == [True]


def _compiled(make):
    program = nx.make_jaxpr(lambda x: x + 1)(np.ones(2, np.float32))
    lazy = first_run.FirstByMeaning(program, program, make)
    return lambda: lazy.compiled


ONCE = {
    "runtime": (runtime, "Runtime", lambda make: runtime.runtime),
    "native calls": (call, "_install", lambda make: lambda: call.install(object)),
    "memory of guard mode": (guard, "_Room", lambda make: guard._room),
    "engine": (engines, "KernelCache", lambda make: lambda: engines.engine(isa.current(), 1)),
    "code of a first run": (None, "", _compiled),
}


@pytest.mark.parametrize("what", ONCE)
def test_threads_that_come_together_make_one(what, monkeypatch):
    """Who makes it waits for another to come; the lock lets nobody in."""
    module, name, getter = ONCE[what]
    inside, second = threading.Event(), threading.Event()
    made = []

    def make(*args):
        made.append(args)
        (second if inside.is_set() else inside).set()
        second.wait(0.3)
        return object()

    if module:
        monkeypatch.setattr(module, name, make)
    for where, kept in ((runtime, "_runtime"), (call, "_why"), (guard, "_rooms")):
        monkeypatch.setattr(where, kept, [])
    monkeypatch.setattr(engines, "_engines", {})
    get = getter(make)
    threads = [threading.Thread(target=get) for _ in range(2)]
    for t in threads:
        t.start()
        inside.wait(10)
    for t in threads:
        t.join()
    assert len(made) == 1


def test_caches_are_cleared_while_another_thread_imports_the_runtime():
    code = """
import sys, threading, time
import nxjax as nx
inside = threading.Event()
class Slow:
    @staticmethod
    def find_spec(name, *_):
        if name == "nxjax.backends.cpu.native.abi":
            inside.set()
            time.sleep(0.3)
nx.devices("cpu")
nx.clear_caches()
sys.meta_path.insert(0, Slow)
thread = threading.Thread(target=__import__, args=["nxjax.backends.cpu.native.runtime"])
thread.start()
assert inside.wait(60)
nx.clear_caches()
thread.join()
print("well")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout == "well\n", done.stderr[-2000:]
