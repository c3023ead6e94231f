"""Linux gives a process the registers of x86's matrix unit (AMX) only if it asks for them.

They are 8 KiB that every thread's state has from then on, once it uses them. A process that does not ask, or is
refused, is killed at the first instruction that touches one (SIGILL). Must not import the compiler or llvmlite.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final

# From <asm/unistd_64.h>, <asm/prctl.h>, and the kernel's documentation of extended states.
_ARCH_PRCTL: Final = 158
_GET_PERMISSION: Final = 0x1022
_ASK_PERMISSION: Final = 0x1023
_TILES: Final = 18


def _asks() -> Callable[..., int] | None:
    """The system call, where there is one."""
    uname = getattr(os, "uname", None)
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32 or uname is None or uname().machine != "x86_64":
        return None
    return ctypes.CDLL(None).syscall


@lru_cache(1)
def has_tiles() -> bool:
    """Whether this process may use tile registers. Asks once; threads and forks have what their process has.

    A refusal is no error: an old kernel, a sandbox, a thread whose stack for signals is too small.
    """
    call = _asks()
    if call is None or call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ASK_PERMISSION), ctypes.c_long(_TILES)):
        return False
    word = ctypes.c_uint64()
    failed = call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_GET_PERMISSION), ctypes.byref(word))
    return not failed and bool(word.value >> _TILES & 1)
