"""Where LLVM works: on another thread, as far as the main thread asks.

llvmlite has one lock, and its class is Python's: if a signal's handler raises (Ctrl-C) while the lock is taken or given
back, it stays taken, and every other thread waits for ever. Python runs handlers on the main thread only, so that
thread asks another one. Knows nothing of what the work is.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import sys
import threading
from _queue import Empty, SimpleQueue
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, final

from nxjax.config.forks import fork_lock
from nxjax.trace.lazy import load

_T = TypeVar("_T")

# Seconds that the thread stays for more to do: a busy system lets one that waits run sooner than a new one.
_STAYS: Final = 1.0
# Held by who works, so that a fork waits for it: who asked for the work may have gone on.
_working: Final[Any] = fork_lock()
# Bytes of stack that LLVM may need, and more; a program may have asked for threads with less.
_STACK: Final = 1 << 20


@final
class _Helper:
    """The thread, while there is one. Its queue and locks are C's: those of `threading` wait as llvmlite's does."""

    def __init__(self) -> None:
        self._works: deque[Callable[[], object]] = deque()
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._here = False

    def do(self, work: Callable[[], object]) -> None:
        """Have ``work()`` done some time. It tells of its failures itself."""
        self._works.append(work)
        self._ask()

    def _ask(self) -> None:
        self._asked.put(None)
        # A thread says that it goes before it looks a last time. Two at once do no harm.
        if not self._here:
            try:
                if 0 < threading.stack_size() < _STACK:
                    raise RuntimeError("too small")
                _thread.start_new_thread(self._serve, ())
            except RuntimeError:  # there is none to be had: the system's limit, or the interpreter ends
                self._work()

    def _serve(self) -> None:
        self._here = True
        with suppress(Empty):
            while True:
                self._asked.get(timeout=_STAYS)
                self._work()
        self._here = False
        self._work()

    def _work(self) -> None:
        while self._works:
            with _working, suppress(Exception):
                self._works.popleft()()

    def forked(self) -> None:
        """A child has no thread, and may wait for what its parent's had not begun."""
        self._here = False
        if self._works:
            self._ask()


_helper = _Helper()


def apart(work: Callable[[], _T]) -> _T:
    """``work()``, where no handler runs.

    What a handler raises ends the wait. The work goes on then, and nobody gets what it makes.
    """
    if not _is_main():
        with _working:
            return work()
    made: list[_T] = []
    failed: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:
            # What its frames hold is LLVM's: it ends here.
            failed.append(error.with_traceback(None))
        finally:
            done.release()

    _helper.do(run)
    done.acquire()
    if failed:
        raise failed[0]
    return made[0]


def fetch() -> None:
    """Have LLVM's library put in memory while this thread goes on: Python's own call keeps all threads waiting.

    Where that fails, llvmlite does it, or says why not.
    """
    if hasattr(os, "RTLD_NOW"):
        name = "libllvmlite.dylib" if sys.platform == "darwin" else "libllvmlite.so"
        path = os.path.join(os.path.dirname(load("llvmlite").__file__), "binding", name)
        _helper.do(lambda: ctypes.CDLL(None).dlopen(os.fsencode(path), os.RTLD_NOW))


# What is to be closed. Garbage of a cycle is ended all at once, also what another thread is closing just then: what is
# held from here is no garbage before it is closed.
_HELD: Final[dict[int, Any]] = {}


@final
class LlvmHandle:
    """Something of LLVM's; this object's end closes it, where no handler runs."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = _HELD[id(held)] = held

    def __del__(self) -> None:
        # Nobody waits: this thread may be anywhere, also between llvmlite's taking its lock and giving it back.
        _helper.do(partial(_close, id(self.held)))


def _close(key: int) -> None:
    _HELD.pop(key).close()


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helper.forked)


@atexit.register
def _end() -> None:
    """Work that nobody waits for ends before the process takes LLVM apart."""
    with _working:
        pass
