"""How deep programs may lie in programs, and the room on the stacks that this takes. Knows neither programs nor traces.

Whoever works on a program inside a program does so by recursion: some tens of Python's frames per level, and a few
kilobytes of C's stack. Python's own bound of 1,000 frames would end that at some sixty levels.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

from nxjax.config.forks import fork_lock
from nxjax.errors import NestingError

# Frames of Python's and bytes of C's stack that one level takes at most, while it is traced, transformed and lowered.
_FRAMES: Final = 40
_BYTES: Final = 7 * 512
# Of C's stack, for what runs at the deepest level.
_RESERVE: Final = 256 * 1024
_STEP: Final = 16
_DEEPEST: Final = 2000
_lock: Final = fork_lock()
_before: int | None = None


def raise_recursion_limit(level: int, what: str) -> None:
    """Called where ``level`` begins, counted from 1: raises Python's bound of recursion where the levels need it.

    The bound stays raised: later passes recurse as deeply.

    Raises:
        NestingError: deeper than the stack of this thread allows for.
    """
    if level % _STEP == 0:
        _raise_bound(level + _STEP, what)


def _raise_bound(level: int, what: str) -> None:
    global _before
    deepest = _deepest()
    if level > deepest:
        raise NestingError(
            f"{what}: nested too deep",
            got=f"{level - _STEP} levels of functions in functions, all of them traced",
            expected=f"at most {deepest} on the stack of this thread",
            fix="if a jitted function calls itself, give it an end that does not hang on traced values; "
            "for repetition use nx.lax.scan or nx.lax.fori_loop",
        )
    with _lock:
        if _before is None:
            _before = sys.getrecursionlimit()
        needed = _before + _FRAMES * level
        if sys.getrecursionlimit() < needed:
            sys.setrecursionlimit(needed)


def _deepest() -> int:
    size = _stack()
    return min(_DEEPEST, max(0, size - _RESERVE) // _BYTES) if size else _DEEPEST


def _stack() -> int:
    """Bytes of this thread's stack; 0: as many as it needs."""
    if threading.current_thread() is not threading.main_thread():
        return _stack_of_thread()
    try:
        import resource
    except ImportError:  # not a system of the Unix kind
        return 2**20
    size = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return 0 if size == resource.RLIM_INFINITY else size


def _stack_of_thread() -> int:
    # Python tells what new threads get only, and only by setting it anew.
    import ctypes

    attributes, size = ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    try:
        c = ctypes.CDLL(None)
        if c.pthread_getattr_np(ctypes.c_ulong(threading.get_ident()), attributes):
            return 2**20
        c.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        c.pthread_attr_destroy(attributes)
    except (AttributeError, OSError, TypeError):  # another C library
        return 2**20
    return size.value
