"""The native runtime of this process, compiled or loaded once, and its face for Python.

One for the whole process, whatever instruction set kernels are made for: memory and threads are shared. Follows the
settings ``num_threads`` and ``cpu_pool_bytes`` when they change, and forks: a child has its own threads. Must not
import what writes the code; that is `emitted`, for a process that finds none.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native import installed
from nxjax.backends.cpu.native.abi import STATISTICS, Addresses
from nxjax.config import config, watch
from nxjax.errors import MemoryLimitError

_SYMBOLS: Final[tuple[str, ...]] = (
    "nx_run", "nx_acquire", "nx_release", "nx_parallel_for", "nx_copy",
    "nx_trim", "nx_pool_statistics", "nx_pool_limit", "nx_pool_lock", "nx_pool_unlock",
    "nx_threads_set", "nx_threads_reset", "nx_threads_statistics", "nx_main", "nx_forked",
)  # fmt: skip
# Turns that a helper waits awake for the next region, where it has a processor of its own: some 40 to 100 us; then it
# waits for some more, in which others may have the processor (`threads`).
_SPINS: Final = 1500

_I64, _PTR = ctypes.c_int64, ctypes.c_void_p


def _addresses() -> Sequence[int]:
    """Where the functions are: in code that the installation or an earlier process has left, or that is made now."""
    found = installed.addresses(_SYMBOLS, "runtime") or earlier.module(_SYMBOLS, "runtime")
    if found:
        return found
    from nxjax.backends.cpu.native import emitted

    return emitted.addresses(_SYMBOLS)


@final
class Runtime:
    """The loaded code.

    Attributes:
        addresses: for other machine code, see `abi`.
        acquire: memory of at least so many bytes: its address, or None.
        release: give it back; 0, or negative for an address that is none in use.
        trim: give free memory back to the system until at most so many bytes are kept; how many blocks went.
        run: status of a tape's run for (tape, addresses of arguments, of results); raises what the run raised.
    """

    def __init__(self) -> None:
        found: dict[str, int] = dict(zip(_SYMBOLS, _addresses(), strict=True))
        self._at = found
        self.addresses = Addresses(*(found[s] for s in _SYMBOLS[:5]))
        self.run: Callable[[int, Any, Any], int] = ctypes.PYFUNCTYPE(_I64, _PTR, _PTR, _PTR)(found["nx_run"])
        # PYFUNCTYPE keeps the interpreter's lock: these take less time than to give it back.
        self.acquire: Callable[[int], int | None] = ctypes.PYFUNCTYPE(_PTR, _I64)(found["nx_acquire"])
        self.release: Callable[[int], int] = ctypes.PYFUNCTYPE(_I64, _PTR)(found["nx_release"])
        self.trim: Callable[[int], None] = ctypes.PYFUNCTYPE(None, _I64)(found["nx_trim"])
        self._set_limit = self._procedure("nx_pool_limit", _I64)
        self._set_threads = self._procedure("nx_threads_set", _I64, _I64)
        self._main = self._procedure("nx_main", _I64)
        self._procedure("nx_threads_reset")()
        self._main(threading.main_thread().ident or 0)
        self.set_threads(config.num_threads)
        self.set_limit(config.cpu_pool_bytes)
        watch("num_threads", self.set_threads)
        watch("cpu_pool_bytes", self.set_limit)
        if hasattr(os, "register_at_fork"):
            self._register_forks()

    def _procedure(self, name: str, *types: Any) -> Callable[..., None]:
        return ctypes.PYFUNCTYPE(None, *types)(self._at[name])

    def _register_forks(self) -> None:
        """The pool is locked around a fork, so that a child finds no list half mended, and a child starts anew.

        Not by hooks of Python's: between them another thread may run, and wait for the pool with the interpreter's
        lock in its hands.
        """
        libc = ctypes.CDLL(None)
        handlers = [self._at[s] for s in ("nx_pool_lock", "nx_pool_unlock", "nx_forked")]
        if hasattr(libc, "__register_atfork"):  # glibc, whose pthread_atfork is no symbol
            getattr(libc, "__register_atfork")(*map(_PTR, handlers), None)
        else:
            libc.pthread_atfork(*map(_PTR, handlers))
        os.register_at_fork(after_in_child=lambda: self._main(threading.get_ident()))

    # --- settings ---

    def set_threads(self, count: int) -> None:
        """Use ``count`` threads from the next parallel region on; 0: as many as the process has processors."""
        here = processors()
        # More helpers than processors would only keep each other from working while they wait awake.
        self._set_threads(count or here, _SPINS if (count or here) <= here else 0)

    def set_limit(self, nbytes: int) -> None:
        """Keep at most ``nbytes`` of free memory."""
        self._set_limit(nbytes)

    # --- questions ---

    def statistics(self) -> dict[str, int]:
        """Counts of the pool (`STATISTICS`)."""
        words = (ctypes.c_int64 * len(STATISTICS))()
        self._procedure("nx_pool_statistics", _PTR)(ctypes.addressof(words))
        return dict(zip(STATISTICS, words, strict=True))

    def thread_statistics(self) -> dict[str, int]:
        """``threads`` that are wanted, ``helpers`` that exist, ``regions`` that they have worked on."""
        words = (ctypes.c_int64 * 3)()
        self._procedure("nx_threads_statistics", _PTR)(ctypes.addressof(words))
        return dict(zip(("threads", "helpers", "regions"), words, strict=True))


def processors() -> int:
    """How many processors this process may run on; a container's share of time is rounded up."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(here, *map(_share, _SHARES)), 1)


# Where Linux says how much time a container gets: microseconds, and of how many (control groups 2 and 1).
_SHARES: Final[tuple[tuple[str, ...], ...]] = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


def _share(files: tuple[str, ...]) -> int:
    """Processors' worth of time by what the files say; a large number where they say nothing."""
    try:
        numbers: list[int] = []
        for name in files:
            with open(name, encoding="utf-8") as file:
                numbers += map(int, file.read().split())
    except (OSError, ValueError):  # no such files; "max"
        return 2**20
    return -(-numbers[0] // numbers[1]) if len(numbers) == 2 and min(numbers) > 0 else 2**20


def out_of_memory(nbytes: int) -> MemoryLimitError:
    """The error for memory that the system does not give."""
    in_use = runtime().statistics()["in_use"]
    return MemoryLimitError(
        "cpu: out of memory",
        got=f"{nbytes:,} bytes were requested, {in_use:,} are in use",
        fix="use smaller arrays, drop those that are not needed any more, or donate arguments to jit (donate_argnums)",
    )


_runtime: list[Runtime] = []


def runtime() -> Runtime:
    """The runtime of this process."""
    if not _runtime:
        with COMPILING:
            if not _runtime:
                _runtime.append(Runtime())
    return _runtime[0]


def loaded() -> Runtime | None:
    """The runtime if anything has needed it yet."""
    return _runtime[0] if _runtime else None
