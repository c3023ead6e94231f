"""Ctrl-C, signals and the interpreter's lock, in processes of their own."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX does")

_PRELUDE = """
import ctypes, gc, os, signal, sys, threading, time
import numpy as np
from nxjax.config import config
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
config.update("num_threads", 2)
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, Counter, Ref, RepeatStep, WhileStep
from tests.backends.cpu.native.kernels import Affine, Busy, Less
from tests.backends.cpu.native.test_tape import machine, program, temp
r = runtime()
x, y, t = Buffer(8, "input", 0), Buffer(8, "output", 0), temp(20_000)
first = [CopyStep(Ref(x), Ref(y), 8)]
def wait(turns):
    flag = temp(1)
    condition, body = CallStep(Less(turns), (Ref(y),), (Ref(flag),)), CallStep(Affine(1, 1, 1), (Ref(y),), (Ref(y),))
    return WhileStep([condition], Ref(flag), [body])
def endless_while():
    # Ends at once where the argument is 10**18.
    return program([*first, CopyStep(Ref(y), Ref(t), 8), wait(10**18)], [x], [y])
def endless_repeat():
    c = Counter(10**12)
    return program([*first, RepeatStep(c, [CallStep(Affine(1, 1, 0), (Ref(y),), (Ref(y),))])], [x], [y])
def long_kernel():
    # Half a minute in one kernel of many items.
    z = Buffer(8 * 10**5, "output", 1)
    return program([*first, CallStep(Busy(10**5, 10**5), (), (Ref(z),))], [x], [y, z])
def settle():
    # The helper has its scratch, which it keeps; on a busy machine it may come too late for many regions.
    from tests.backends.cpu.native.test_threads import busy
    while not counts()[1]:
        busy(64, 10_000, 1)
def counts():
    gc.collect()
    s = r.statistics()
    return s["in_use"], s["blocks"]
"""


def child(code, *, wait=None, send=signal.SIGINT, timeout=600):
    """The output of a process that runs ``code``; once it has said ``wait`` and worked a while, it gets a signal."""
    command = [sys.executable, "-c", _PRELUDE + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            if wait is not None:
                assert process.stdout.readline() == wait + "\n", process.communicate()[1]
                time.sleep(0.3)
                process.send_signal(send)
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0, (process.returncode, out, err)
    return out


@pytest.mark.parametrize("kind", ["endless_while", "endless_repeat", "long_kernel"])
def test_ctrl_c(kind):
    out = child(
        f"""
from tests.backends.cpu.native.test_threads import busy
settle()
run = machine({kind}())
before = counts()
print("runs", flush=True)
start = time.monotonic()
try:
    run(np.array([1]))
except KeyboardInterrupt:
    took = time.monotonic() - start - 0.3
    assert took < 30, took  # soon, on a machine that is busy with other things too
    print("interrupted")
# Nothing is left behind, once the traceback is gone: it holds what lay in the frames where the signal came.
assert counts() == before, (counts(), before)
if {kind!r} == "endless_while":  # the executable is as good as before
    assert run(np.array([10**18]))[0] == [10**18]
    assert counts()[1] == before[1] + 1  # its frame
assert np.array_equal(busy(64, 100, 1), Busy(64, 100).meaning()[0])
assert r.thread_statistics()["helpers"] == 1
""",
        wait="runs",
    )
    assert out == "interrupted\n"


def test_a_handler_that_raises_nothing_lets_the_run_go_on():
    """It may even compute with nxjax."""
    out = child(
        """
from tests.backends.cpu.native.test_threads import busy
seen = []
def handler(*_):
    seen.append(np.array_equal(busy(64, 100, 1), Busy(64, 100).meaning()[0]))
    # Once more, when this one is done: on a busy machine handlers would pile up in one another.
    if len(seen) < 2: signal.setitimer(signal.ITIMER_REAL, 0.02)
signal.signal(signal.SIGALRM, handler)
z = Buffer(8 * 400, "output", 1)
turns = 3_000_000
run = machine(program([*first, CallStep(Busy(400, turns), (), (Ref(z),))], [x], [y, z]))
signal.setitimer(signal.ITIMER_REAL, 0.02)
got = run(np.array([5]))
one = Busy(3, turns)
assert got[0] == [5] and len(seen) >= 2 and all(seen), seen
print("well")
"""
    )
    assert out == "well\n"


def test_other_threads_run_meanwhile_and_get_no_signal():
    out = child(
        """
import threading
run = machine(endless_while())
state = {}
def work():
    try:
        state["result"] = machine(program([*first, wait(60_000_000)], [x], [y]))(np.array([0]))[0][0]
    except BaseException as error:
        state["error"] = error
worker = threading.Thread(target=work)
worker.start()
ticks = 0
end = time.monotonic() + 0.4
print("runs", flush=True)
try:
    while True:  # Python goes on while the worker computes
        ticks += 1
        time.sleep(0.001)
except KeyboardInterrupt:
    pass
assert ticks > 3, ticks
worker.join()
assert state == {"result": 60_000_000}, state
print("well")
""",
        wait="runs",
    )
    assert out == "well\n"


def test_a_killed_process_is_gone():
    code = _PRELUDE + "run = machine(endless_while())\nprint('runs', flush=True)\nrun(np.array([1]))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        time.sleep(0.1)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM


def test_the_process_ends_while_a_daemon_thread_runs_a_program():
    out = child(
        """
for make in (endless_while, long_kernel):
    run = machine(make())
    threading.Thread(target=run, args=(np.array([1]),), daemon=True).start()
time.sleep(0.3)
print("ends")
"""
    )
    assert out == "ends\n"


def test_ctrl_c_in_jitted_functions():
    """By the first way into the executable and by the short one; afterwards it answers as before."""
    out = child(
        """
import nxjax as nx
config.update("executor", "cpu")
f = nx.jit(lambda x, n: nx.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.5 + 1), (0, x)))
x = nx.ones(3)
def timer(seconds):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
for turn in range(3):
    timer(0.3)
    start = time.monotonic()
    try:
        f(x, 2**31 - 1)
        print("not interrupted")
    except KeyboardInterrupt:
        assert time.monotonic() - start < 20
    signal.setitimer(signal.ITIMER_REAL, 0)
    n, y = f(x, 20)
    assert int(n) == 20 and abs(y - 2).max() < 1e-5
    n, y = f(x, 20)
print("well")
"""
    )
    assert out == "well\n"
