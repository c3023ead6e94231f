"""What machine code of several threads is written with: atomics, the processor's pause, a lock, and the system's names.

Functions over `Function`, which itself knows no thread. All atomics are sequentially consistent unless a name says
otherwise: these are operations of a run time, a few per microsecond at most.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value

# A POSIX mutex or condition variable takes no more on any system we know (64 on macOS, 48 with glibc).
PTHREAD_BYTES: Final = 128
_SPINS: Final = 100  # tries for a lock before the processor is given away


@final
@dataclass(frozen=True, slots=True)
class System:
    """What the operating system calls things.

    Attributes:
        name: ``linux``, ``darwin`` or ``win32``; any other POSIX system is treated as ``posix``.
        threads: POSIX threads exist; without them programs run on the calling thread.
        map_flags: of private memory without a file, for ``mmap``; 0: large blocks come from the C library, too.
        huge_advice: what ``madvise`` asks large pages with; 0: nothing does.
        page: alignment of large blocks.
        clock: the number of the clock that never goes back; -1: there is none.
        processor: its family, as the system calls it.
    """

    name: str
    threads: bool
    map_flags: int
    huge_advice: int
    page: int
    clock: int
    processor: str = platform.machine().lower()

    @property
    def symbols(self) -> tuple[str, str, str]:
        """Take aligned memory, give it back, give the processor away."""
        if self.name == "win32":
            return "_aligned_malloc", "_aligned_free", "SwitchToThread"
        return "posix_memalign", "free", "sched_yield"


LINUX: Final = System("linux", True, 0x22, 14, 4096, 1)
DARWIN: Final = System("darwin", True, 0x1002, 0, 16384, 6)
POSIX: Final = System("posix", True, 0, 0, 4096, -1)
WINDOWS: Final = System("win32", False, 0, 0, 4096, -1)
SYSTEM: Final = {"linux": LINUX, "darwin": DARWIN, "win32": WINDOWS}.get(sys.platform, POSIX)


def load(f: Function, p: Value, type: str = "i64") -> Value:
    """An atomic load."""
    return f.emit(type, f"load atomic {type}, ptr {p.name} seq_cst, align 8")


def store(f: Function, x: Value | int, p: Value, order: str = "seq_cst") -> None:
    """An atomic store of an ``i64`` (or a pointer)."""
    x = f.value(x, "i64")
    f.line(f"store atomic {x.type} {x.name}, ptr {p.name} {order}, align 8")


def fetch(f: Function, op: str, p: Value, x: Value | int) -> Value:
    """``*p = op(*p, x)`` of an ``i64``; gives what was there. ``op``: add, sub, and, or, xchg."""
    x = f.value(x, "i64")
    return f.emit(x.type, f"atomicrmw {op} ptr {p.name}, {x.type} {x.name} seq_cst, align 8")


def swap_if(f: Function, p: Value, expected: Value, new: Value) -> Value:
    """Put ``new`` where ``expected`` is; gives whether it was (an ``i1``)."""
    type = new.type
    both = f"cmpxchg ptr {p.name}, {type} {expected.name}, {type} {new.name} seq_cst seq_cst, align 8"
    pair = f.emit(f"{{ {type}, i1 }}", both)
    return f.emit("i1", f"extractvalue {{ {type}, i1 }} {pair.name}, 1")


def pause(f: Function, system: System) -> None:
    """Tell the processor that this is a loop that waits."""
    if system.processor in ("x86_64", "amd64"):
        f.intrinsic("x86.sse2.pause", "void")
    elif system.processor in ("aarch64", "arm64"):
        f.intrinsic("aarch64.hint", "void", f.constant("i32", 1))


def clock(f: Function, system: System) -> Value:
    """Nanoseconds of the clock that never goes back, where the ``system`` has one."""
    time = f.alloca("i64", 2, 8)
    f.call("clock_gettime", "i32", f.constant("i32", system.clock), time)
    return f.load("i64", time, 8) * 1_000_000_000 + f.load("i64", f.at(time, 8), 8)


# How floats are rounded, and whether subnormal ones are taken for 0: the bits that say it, and IEEE's defaults.
_CONTROL: Final = {"x86": (0xFFC0, 0x1F80), "arm": (0x3C8_9F07, 0)}


def _family(system: System) -> str:
    return {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}.get(system.processor, "")


def arithmetic(f: Function, system: System) -> tuple[Value, Value] | None:
    """This thread's float control, and whether it is IEEE's default (an ``i1``); None: nothing is known of it."""
    family = _family(system)
    if family == "x86":
        place = f.alloca("i32", align=4)
        f.intrinsic("x86.sse.stmxcsr", "void", place)
        control = f.load("i32", place, 4)
    elif family == "arm":
        control = f.intrinsic("aarch64.get.fpcr", "i64")
    else:
        return None
    mask, plain = _CONTROL[family]
    return control, (control & mask).eq(plain)


def set_arithmetic(f: Function, system: System, control: Value | None = None) -> None:
    """Set this thread's float control, to IEEE's defaults if nothing is given."""
    family = _family(system)
    if family == "x86":
        place = f.alloca("i32", align=4)
        f.store(f.constant("i32", _CONTROL[family][1]) if control is None else control, place, 4)
        f.intrinsic("x86.sse.ldmxcsr", "void", place)
    elif family == "arm":
        f.intrinsic("aarch64.set.fpcr", "void", f.constant("i64", 0) if control is None else control)


def null(f: Function) -> Value:
    return f.constant("ptr", 0)


def word(f: Function, p: Value, offset: int, type: str = "i64") -> Value:
    """The word ``offset`` bytes after ``p``."""
    return f.load(type, f.at(p, offset), 8)


def put(f: Function, x: Value | int, p: Value, offset: int) -> None:
    """Store the word ``offset`` bytes after ``p``."""
    f.store(f.value(x, "i64"), f.at(p, offset), 8)


@contextmanager
def forever(f: Function) -> Generator[tuple[str, str]]:
    """A loop that is left by ``branch``: gives the labels of its next turn and of what follows it."""
    turn, after = f.fresh("t")[1:], f.fresh("t")[1:]
    f.label(turn)
    yield turn, after
    f.branch(turn)
    f.label(after)


def lock(f: Function, p: Value, system: System) -> None:
    """Take the lock at ``p``: held for tens of nanoseconds by others, so wait awake, then give the processor away."""
    tries = f.alloca("i64", align=8)
    f.store(f.constant("i64", 0), tries, 8)
    with forever(f) as (_, after):
        free, taken = f.fresh("t")[1:], f.fresh("t")[1:]
        f.branch_if(load(f, p).eq(0), free, taken)
        f.label(free)
        f.branch_if(fetch(f, "xchg", p, 1).eq(0), after, taken)
        f.label(taken)
        n = f.load("i64", tries, 8) + 1
        f.store(n, tries, 8)
        pause(f, system)
        with f.if_(n.urem(_SPINS).eq(0)):
            f.call(system.symbols[2], "i32")


def unlock(f: Function, p: Value) -> None:
    store(f, 0, p)
