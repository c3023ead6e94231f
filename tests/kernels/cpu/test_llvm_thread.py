"""LLVM works where no signal's handler runs: what is stopped at any place leaves llvmlite to the other threads."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import llvmlite.binding as llvm
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import KernelCache
from nxjax.kernels.cpu import isa, llvm_thread
from nxjax.kernels.cpu.llvm_thread import LlvmHandle


class _Stop(BaseException):
    """What a signal's handler raises."""


def _elsewhere(work: Any) -> Any:
    """``work()`` on a thread of its own, which must end."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert made, "llvmlite's lock is held"
    return made[0]


def test_compiling_may_be_stopped_anywhere():
    """Python runs handlers where a function begins and where one of C's has returned: each such place, one by one."""
    files = ("ffi.py", "engine.py", "llvm_thread.py")
    left = [0]

    def at(frame: Any, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.endswith(files):
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise _Stop

    KernelCache(isa.current())  # what is made once
    stopped, places = True, 0
    while stopped:
        places += 1
        left[0] = places
        text = f"define i64 @f{places}() {{\n  ret i64 {places}\n}}"
        made = None
        try:
            sys.setprofile(at)
            made = KernelCache(isa.current())
            made._loaded(made.emitted(text), [f"f{places}"])
            stopped = False
        except _Stop:
            pass
        finally:
            sys.setprofile(None)
        assert _elsewhere(llvm.get_host_cpu_name), places
    assert places > 10
    assert nx.jit(lambda x: nx.sin(x) * places)(nx.ones(3)).shape == (3,)


def test_what_was_stopped_goes_on_for_nobody():
    begun, may, stopped, ended = threading.Event(), threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may.wait(60)
        ended.append(1)

    def handler(*_: Any) -> None:
        if not stopped.is_set():
            stopped.set()
            raise _Stop

    def stop() -> None:
        begun.wait(60)
        while not stopped.wait(0.05):  # a signal that comes just before the wait does not end it
            signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    old = signal.signal(signal.SIGINT, handler)
    try:
        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(_Stop):
            llvm_thread.apart(work)
        thread.join(60)
    finally:
        signal.signal(signal.SIGINT, old)
    assert not ended
    may.set()
    assert llvm_thread.apart(lambda: ended) == [1]


def test_failures_come_back_without_what_their_frames_hold():
    thread = []

    def work() -> None:
        thread.append(threading.get_ident())
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as found:
        llvm_thread.apart(work)
    assert thread != [threading.get_ident()]
    assert all(entry.name != "work" for entry in found.traceback)


def test_a_system_without_threads_works_here(monkeypatch):
    def none(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(llvm_thread, "_helper", llvm_thread._Helper())
    monkeypatch.setattr(llvm_thread._thread, "start_new_thread", none)
    assert llvm_thread.apart(threading.get_ident) == threading.get_ident()


def test_a_program_of_threads_with_small_stacks_works_here(monkeypatch):
    monkeypatch.setattr(llvm_thread, "_helper", llvm_thread._Helper())
    old = threading.stack_size(128 * 1024)
    try:
        assert llvm_thread.apart(threading.get_ident) == threading.get_ident()
    finally:
        threading.stack_size(old)


def test_what_llvm_holds_is_closed_elsewhere():
    closed = []

    class Held:
        def close(self) -> None:
            closed.append(threading.get_ident())
            raise OSError

    held = LlvmHandle(Held())
    del held
    assert llvm_thread.apart(lambda: 1) == 1
    assert len(closed) == 1
    assert closed[0] != threading.get_ident()


@pytest.mark.parametrize("main", [True, False])
def test_garbage_of_a_cycle_is_closed_once(main):
    """A collection ends everything in a cycle, so that llvmlite's object closes itself beside who closes it."""
    closed, ended = [], []

    class Held:
        def close(self) -> None:
            closed.append(list(ended))

        def __del__(self) -> None:
            ended.append(1)

    def collected() -> bool:
        cycle: list[Any] = [LlvmHandle(Held())]
        cycle.append(cycle)
        del cycle
        gc.collect()
        return True

    assert collected() if main else _elsewhere(collected)
    assert llvm_thread.apart(lambda: 1) == 1
    gc.collect()
    assert closed == [[]] and ended == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("thread", [False, True])
def test_a_fork_waits_for_who_works(thread):
    begun, may, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may.wait(60)
        ended.append(1)

    if thread:
        threading.Thread(target=llvm_thread.apart, args=[work]).start()
    else:
        llvm_thread._helper.do(work)
    assert begun.wait(60)
    threading.Timer(0.2, may.set).start()
    child = os.fork()
    if not child:
        right = ended == [1] and llvm_thread.apart(lambda: threading.get_ident()) != threading.get_ident()
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

    def is_free() -> bool:
        return llvm_thread._working.acquire(blocking=False) and not llvm_thread._working.release()

    assert _elsewhere(lambda: [is_free()]) == [True]  # for the parent's helper, too


FETCHES = """
import ctypes, os, sys
from importlib import resources
from nxjax.kernels.cpu import llvm_thread
llvm_thread.fetch()
llvm_thread.apart(lambda: None)
assert "llvmlite.binding" not in sys.modules
from llvmlite.utils import get_library_name
with resources.as_file(resources.files("llvmlite") / "binding" / get_library_name()) as path:
    ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)  # fails if it is not there yet
"""


@pytest.mark.skipif(not hasattr(os, "RTLD_NOLOAD"), reason="no system of the Unix kind")
def test_the_library_can_be_fetched_ahead():
    subprocess.run([sys.executable, "-c", FETCHES], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_does_what_its_parent_had_not_begun():
    begun, may, children = threading.Event(), threading.Event(), []

    def handler(*_: Any) -> None:
        may.set()
        children.append(os.fork())

    llvm_thread._helper.do(lambda: begun.set() or may.wait(60))
    assert begun.wait(60)
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        found = llvm_thread.apart(lambda: 3)  # while it waits, the process forks
    finally:
        if children and not children[0]:
            os._exit(found)
        signal.signal(signal.SIGALRM, old)
    end = time.monotonic() + 60
    while not (ended := os.waitpid(children[0], os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert found == 3 and ended[0] and os.waitstatus_to_exitcode(ended[1]) == 3
