"""Threads: every item once, whoever takes it; many callers, many helpers, forks and exits."""

import ctypes
import itertools
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.cpu.engine import KernelCache, engine
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.cpu.native import sync
from nxjax.backends.cpu.native import threads as threads_of_the_machine
from nxjax.backends.cpu.native.emitted import text
from nxjax.backends.cpu.native.runtime import processors, runtime
from nxjax.backends.cpu.native.tables import F_WEIGHT, FRAME_HEADER
from nxjax.config import config
from nxjax.errors import ParameterError
from nxjax.kernels.cpu import isa
from tests.backends.cpu.native.kernels import Affine, Busy

needs_threads = pytest.mark.skipif(not sync.SYSTEM.threads, reason="there are no POSIX threads here")


def parallel_for(kernel, words, chunk):
    """By the native function, with the interpreter's lock given back."""
    (code,) = engine(isa.current()).addresses([kernel])
    table = np.array(words, np.uint64)
    scratch = PoolBlock(kernel.scratch or 64)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 2)
    return call(runtime().addresses.parallel_for)(
        code, table.ctypes.data, kernel.items, chunk, kernel.scratch, scratch.address, None
    )


def busy(n, turns, chunk, scratch=4096):
    y = np.zeros(n, np.int64)
    kernel = Busy(n, turns, scratch=scratch)
    assert parallel_for(kernel, [y.ctypes.data, turns], chunk) == 0
    return y


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 500), st.integers(1, 200))
def test_every_item_once(threads, items, chunk):
    with config.using(num_threads=threads):
        counts = np.zeros(items, np.int64)
        # In place: an item that were done twice would show.
        assert parallel_for(Affine(items, 1, 1), [counts.ctypes.data] * 2, chunk) == 0
    assert (counts == 1).all()


@needs_threads
def test_there_are_no_more_helpers_than_places_for_them():
    try:
        with config.using(num_threads=100_000):
            assert runtime().thread_statistics()["threads"] == threads_of_the_machine.MOST + 1
            counts = np.zeros(20, np.int64)
            assert parallel_for(Affine(20, 1, 1), [counts.ctypes.data] * 2, 3) == 0
        assert (counts == 1).all()
    finally:
        runtime().set_threads(config.num_threads)


def test_the_same_bits_for_any_number_of_threads():
    wanted = Busy(300, 50).meaning()[0]
    for threads in (1, 2, 3, 5, 32):
        with config.using(num_threads=threads):
            np.testing.assert_array_equal(busy(300, 50, 7), wanted)


@needs_threads
def test_what_is_unlocked_was_locked():
    """Read in the code: a lock that is missing shows in a race alone."""
    functions = [f for f in text().split("\ndefine ") if "pthread_mutex" in f]
    assert len(functions) > 2
    for f in functions:
        assert f.count("@pthread_mutex_lock(") == f.count("@pthread_mutex_unlock("), f[:60]


@needs_threads
def test_helpers_take_part():
    with config.using(num_threads=4):
        before = runtime().thread_statistics()["regions"]
        busy(64, 20_000, 1)
        after = runtime().thread_statistics()
    assert after["regions"] == before + 1 and after["helpers"] >= 3


@needs_threads
def test_every_helper_that_sleeps_is_woken():
    """Each keeps scratch of the size that it needed last, which tells who took part."""
    code = """
import time
from nxjax.config import config
config.update("num_threads", 7)
from tests.backends.cpu.native.test_threads import busy, runtime
def part(scratch, kept):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        busy(140, 300_000, 1, scratch)
        if runtime().statistics()["in_use"] >= 6 * kept:
            return True
assert part(4096, 4096), "all begin awake"
time.sleep(0.5)
assert part(100_000, 100_000)
print("well")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.stdout == "well\n", done.stderr


@needs_threads
def test_helpers_that_sleep_are_woken_for_enough_work():
    """A region of a program says what it takes; one without a program is worth it."""
    apart = KernelCache(isa.current())
    (address,) = apart.module(text(), ["nx_worth"])
    worth = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    frame = np.zeros(FRAME_HEADER // 8, np.int64)

    def asked(nanoseconds):
        frame[F_WEIGHT // 8] = nanoseconds
        return worth(frame.ctypes.data)

    assert worth(None) == 1
    if sync.SYSTEM.clock < 0:
        pytest.skip("there is no clock here")
    assert asked(10**9) == 1
    assert asked(1) == 0
    assert asked(10**9) == 1  # now nothing is owed
    tries = itertools.count()
    # Short regions are worth it together, if they follow each other at once: some do, however busy the machine is.
    while not asked(threads_of_the_machine._WORTH_NS // 3):
        assert next(tries) < 100_000


@needs_threads
@pytest.mark.parametrize("threads", range(1, 9))
def test_ranges_of_chunks_are_done_once(threads):
    """More threads than ranges, fewer chunks than ranges, and ranges of unequal size."""
    with config.using(num_threads=threads):
        for items, chunk in ((2, 1), (7, 2), (9, 1), (1000, 1), (1001, 7)):
            for _ in range(3):
                counts = np.zeros(items, np.int64)
                assert parallel_for(Affine(items, 1, 1), [counts.ctypes.data] * 2, chunk) == 0
                assert (counts == 1).all()


def test_one_thread_starts_no_helper():
    with config.using(num_threads=1):
        before = runtime().thread_statistics()
        busy(64, 100, 1)
        after = runtime().thread_statistics()
    assert after["regions"] == before["regions"] and after["helpers"] == before["helpers"]


def test_the_number_of_threads_follows_the_setting():
    with config.using(num_threads=7):
        assert runtime().thread_statistics()["threads"] == 7
    assert runtime().thread_statistics()["threads"] == (config.num_threads or processors())
    for wrong in (-3, "4", 1.5, None):
        with pytest.raises(ParameterError, match="num_threads"):
            config.update("num_threads", wrong)
    assert config.num_threads >= 0


def test_scratch_grows_and_is_nobody_elses():
    with config.using(num_threads=5):
        for scratch in (64, 100_000, 5_000_000, 64):
            np.testing.assert_array_equal(busy(80, 10, 1, scratch), Busy(80, 10).meaning()[0])


def test_many_callers_at_once():
    wanted = Busy(200, 30).meaning()[0]
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(busy(200, 30, 3), wanted):
                wrong.append(1)

    with config.using(num_threads=3):
        callers = [threading.Thread(target=work) for _ in range(8)]
        for t in callers:
            t.start()
        for t in callers:
            t.join()
    assert not wrong


def test_many_threads_on_few_processors_do_not_collapse():
    def seconds(threads):
        best = 1e9
        with config.using(num_threads=threads):
            busy(64, 100, 1)
            for _ in range(7):
                start = time.process_time()
                for _ in range(20):
                    busy(256, 2000, 4)
                best = min(best, time.process_time() - start)
        return best

    one, many = seconds(1), seconds(32)
    # Threads that waited for each other in turns of the scheduler would take a hundred times as long.
    # The time of processors, which other work beside this test doesn't lengthen.
    assert many < 40 * one + 0.5, (one, many)


def in_child(code, timeout=600):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


_PRELUDE = """
import os, sys, threading, time
import numpy as np
from nxjax.config import config
config.update("num_threads", 3)
from tests.backends.cpu.native.test_threads import busy
from tests.backends.cpu.native.kernels import Busy
from nxjax.backends.cpu.native.runtime import runtime
wanted = Busy(100, 40).meaning()[0]
def right():
    return np.array_equal(busy(100, 40, 1), wanted)
assert right()
"""


@needs_threads
def test_a_child_makes_each_lock_anew_that_all_threads_share():
    """A lock that somebody held when the process was forked is never given back in the child."""
    asked: dict[str, set[tuple[str, str]]] = {}  # what is called -> the function, and where an argument points
    for function in text().split("\ndefine ")[1:]:
        name = function[function.index("@") : function.index("(")]
        places = dict(re.findall(r"(%\w+) = getelementptr i8, ptr (@nx_threads, i64 \d+)", function))
        for call, arguments in re.findall(r"@pthread_(\w+)\(([^)]*)\)", function):
            for argument in re.findall(r"ptr ([%@]\w+)", arguments):
                asked.setdefault(call, set()).add((name, places.get(argument, argument)))
    shared = {call: {place for _, place in found if place.startswith("@")} for call, found in asked.items()}
    made = {c: {p for n, p in asked[c] if n == "@nx_threads_reset"} for c in ("mutex_init", "cond_init")}
    assert len(shared["mutex_lock"]) == 1 and len(shared["cond_wait"]) == 2  # the condition, and its lock
    assert made == {"mutex_init": shared["mutex_lock"], "cond_init": shared["cond_wait"] - shared["mutex_lock"]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own():
    code = (
        _PRELUDE
        + """
# Forked while other threads are in regions, and while they take and give memory.
stop = False
def load():
    while not stop:
        busy(50, 2000, 1)
        time.sleep(0.0005)  # the children need processors too
def memory():
    r = runtime()
    while not stop:
        for _ in range(1000): r.release(r.acquire(1000))
        time.sleep(0.0005)
threads = [threading.Thread(target=t) for t in (load, load, memory)]
for t in threads: t.start()
for round in range(5):
    pid = os.fork()
    if not pid:
        good = runtime().thread_statistics()["helpers"] == 0 and all(right() for _ in range(5))
        os._exit(0 if good and runtime().thread_statistics()["helpers"] == 2 else 7)
    deadline = time.monotonic() + 20
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: break
        if time.monotonic() > deadline:
            os.kill(pid, 9); print("a child hangs"); os._exit(3)
        time.sleep(0.002)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert right()
stop = True
for t in threads: t.join()
print("well")
"""
    )
    assert in_child(code, 120) == "well\n"


def test_the_process_ends_while_a_thread_works():
    code = (
        _PRELUDE
        + """
def load():
    while True:
        busy(50, 20000, 1)
for _ in range(3): threading.Thread(target=load, daemon=True).start()
time.sleep(0.1)
print("ends")
"""
    )
    assert in_child(code) == "ends\n"


def test_helpers_leave_signals_to_python():
    code = (
        _PRELUDE.removesuffix("assert right()\n")
        + """
import signal
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(threading.current_thread() is threading.main_thread()))
def threads_that_block(number):
    tasks = [open(f"/proc/self/task/{t}/status").read() for t in os.listdir("/proc/self/task")]
    return sum(bool(int(t.split("SigBlk:")[1].split()[0], 16) & 1 << (number - 1)) for t in tasks)
before = [threads_that_block(n) for n in (signal.SIGUSR1, signal.SIGSEGV)]  # without helpers
assert right()
for _ in range(20):
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.001)
assert got and all(got)
assert threads_that_block(signal.SIGUSR1) == before[0] + 2
assert threads_that_block(signal.SIGSEGV) == before[1]
print("well")
"""
    )
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("needs Linux")
    assert in_child(code) == "well\n"


def test_threads_that_the_system_does_not_give_are_done_without():
    code = (
        _PRELUDE
        + """
import mmap, resource, sys
config.update("num_threads", 9)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 2**20, -1))  # less than one stack
try:
    mmap.mmap(-1, 2**24)
    print("no limit")
    sys.exit()
except OSError:
    pass
assert right() and right()
# Those of before, and perhaps one on the stack of LLVM's thread, which ends when it has had nothing to do for a while.
assert runtime().thread_statistics()["helpers"] in (2, 3)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert right()
assert runtime().thread_statistics()["helpers"] == 8
print("well")
"""
    )
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs Linux")
    said = in_child(code)
    if said == "no limit\n":
        pytest.skip("this system does not keep RLIMIT_AS")
    assert said == "well\n"


def test_without_threads_the_caller_does_it():
    """A system without POSIX threads gets a runtime that has none, and that LLVM takes."""
    for system in (sync.WINDOWS, sync.DARWIN, sync.POSIX, sync.LINUX):
        code = text(system)
        assert ("pthread_create" in code) == system.threads
        engine(isa.current())._translated(code, str)
    assert "sched_yield" not in text(sync.WINDOWS)
