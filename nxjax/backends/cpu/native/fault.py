"""Guard mode in machine code: how kernels are called there, and what handles memory faults.

A guarded kernel gets scratch memory between forbidden pages for each call, and leaves a note of what its thread runs.
The handler says which step touched which memory, from those notes and the table of pieces that `backends.cpu.guard`
keeps, then lets the process die as it would have: the handler that was there before is in its place again and the
instruction runs once more, so a core dump or Python's `faulthandler` shows the place itself. It calls nothing but
functions that a signal handler may call. Knows no program.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native.sync import SYSTEM, System, fetch, forever, load, null, put, store, swap_if, word
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value

# Of a piece of memory: where its pages and the forbidden ones beside them begin and end, where it is itself, its bytes,
# its name (a C string), its state.
PIECE: Final = 6
LIVE, READ_ONLY, FREED = 1, 2, 3
PIECES: Final = 1 << 16
# Of a thread: its number, the step that it runs (a C string, or null), its scratch memory and the bytes of that. The
# first row is no thread's: its second word is a step that wrote beside its scratch memory.
RUNNING: Final = 4
THREADS: Final = 1024
_THREAD, _STEP, _SCRATCH, _BYTES = range(0, 32, 8)
# The words that are before those of a guarded kernel: whether scratch memory begins at a forbidden page (else it ends
# at one), its bytes, the step, the kernel.
_BEGINS, _SIZE, _TEXT, _KERNEL = range(-32, 0, 8)
# What nobody has written: NaN in every float type (signalling in float64), far out of range as an integer, no bool.
PATTERN: Final = b"\xf7\x7f"

_STATE: Final = "@nx_fault_state"
_PIECES_AT, _RUNNING_AT, _TOLD, _OLD = 0, 8, 16, 32
_ACTION: Final = 256  # bytes that a `struct sigaction` has at most


class _Signals(NamedTuple):
    """Where a system's structures have what, in bytes: the address in `siginfo_t`; flags in `struct sigaction`."""

    address: int
    flags_at: int
    flags: int  # SA_SIGINFO, and SA_ONSTACK: where there is another stack, this one may be what has no room


SIGNALS: Final = {"linux": _Signals(16, 136, 0x0800_0004), "darwin": _Signals(24, 12, 0x41)}


def text(system: System = SYSTEM) -> str:
    """The handler in LLVM's language."""
    module = LlvmModule()
    module.globals[_STATE] = f"{_STATE} = internal global [{_OLD + 2 * _ACTION} x i8] zeroinitializer, align 16"
    layout = SIGNALS[system.name]
    _number(module)
    _row(module)
    _run(module)
    _guarded(module, system)
    _handler(module, layout)
    _install(module, layout)
    return module.text


def _function(module: LlvmModule, name: str, parameters: list[str], result: str = "void") -> Function:
    f = Function(name, parameters, result)
    module.add(f)
    return f


def _say(f: Function, module: LlvmModule, what: str | Value) -> None:
    """Write a text, or a C string, to standard error."""
    if isinstance(what, str):
        name = f"@nx_fault_text_{len(module.globals)}"
        data = "".join(f"\\{byte:02X}" for byte in what.encode())
        module.globals[name] = f'{name} = internal constant [{len(what.encode()) + 1} x i8] c"{data}\\00"'
        what = Value(f, "ptr", name)
    f.call("write", "i64", f.constant("i32", 2), what, f.call("strlen", "i64", what))


def _number(module: LlvmModule) -> None:
    """``void nx_fault_number(i64 n, i64 base)``: write a number without sign."""
    f = _function(module, "nx_fault_number", ["i64", "i64"])
    n, base = f.arguments
    digits, left, at = f.alloca("i8", 64), f.alloca("i64", align=8), f.alloca("i64", align=8)
    f.store(n, left, 8)
    f.store(f.constant("i64", 64), at, 8)
    f.label("turn")
    now = f.load("i64", left, 8)
    digit, place = now.urem(base), f.load("i64", at, 8) - 1
    shown = digit + f.select(digit.uge(10), f.constant("i64", ord("a") - 10), ord("0"))
    f.store(f.cast("trunc", shown, "i8"), f.at(digits, place), 1)
    f.store(place, at, 8)
    rest = now.udiv(base)
    f.store(rest, left, 8)
    f.branch_if(rest.eq(0), "done", "turn")
    f.label("done")
    f.call("write", "i64", f.constant("i32", 2), f.at(digits, place), f.constant("i64", 64) - place)
    f.ret()


def _row(module: LlvmModule) -> None:
    """``ptr nx_fault_row()``: the row of this thread among those that run something."""
    f = _function(module, "nx_fault_row", [], "ptr")
    table = word(f, Value(f, "ptr", _STATE), _RUNNING_AT, "ptr")
    me = f.call("pthread_self", "i64")
    with f.loop(1, THREADS - 1) as turn:
        row = f.at(table, turn.index, 8 * RUNNING)
        with f.if_(load(f, row).eq(me)):
            f.ret(row)
        with f.if_(load(f, row).eq(0)), f.if_(swap_if(f, row, f.constant("i64", 0), me)):
            f.ret(row)
    last = f.at(table, 8 * RUNNING * (THREADS - 1))
    store(f, me, last)  # the rest of them have one together
    f.ret(last)


def _run(module: LlvmModule) -> None:
    """``ptr nx_fault_run(ptr text)``: note what this thread runs; gives what it ran before."""
    f = _function(module, "nx_fault_run", ["ptr"], "ptr")
    row = f.call("nx_fault_row", "ptr")
    old = word(f, row, _STEP, "ptr")
    put(f, f.arguments[0], row, _STEP)
    f.ret(old)


def _guarded(module: LlvmModule, system: System) -> None:
    """``void nx_guarded(ptr words, i64 lo, i64 hi, ptr)``: a kernel; calls the one that is named before its words."""
    f = _function(module, "nx_guarded", ["ptr", "i64", "i64", "ptr"])
    words, lo, hi, _ = f.arguments
    kernel, size, begins = word(f, words, _KERNEL, "ptr"), word(f, words, _SIZE), word(f, words, _BEGINS)
    row = f.call("nx_fault_row", "ptr")
    old = word(f, row, _STEP, "ptr")
    put(f, word(f, words, _TEXT, "ptr"), row, _STEP)
    f.branch_if(size.eq(0), "none", "some")
    f.label("none")
    f.call_pointer(kernel, "void", words, lo, hi, null(f))
    f.branch("done")

    f.label("some")
    gap, page = 4 * mmap.PAGESIZE, mmap.PAGESIZE
    length = (size + (page - 1)) & -page
    nothing, write, flags, none = (f.constant("i32", n) for n in (0, 3, system.map_flags, -1))
    base = f.call("mmap", "ptr", null(f), length + 2 * gap, nothing, flags, none, f.constant("i64", 0))
    f.branch_if(f.cast("ptrtoint", base, "i64").eq(-1), "failed", "mapped")
    f.label("failed")
    _say(f, module, "\nnxjax guard mode: no memory for scratch memory\n")
    f.call("abort", "void")
    f.branch("mapped")
    f.label("mapped")
    first = f.at(base, gap)
    f.call("mprotect", "i32", first, length, write)
    pattern = f.constant("i64", int.from_bytes(PATTERN * 4, "little"))
    with f.loop(0, length, 8) as turn:
        f.store(pattern, f.at(first, turn.index), 8)
    place = f.select(begins.ne(0), f.constant("i64", 0), (length - size) & -64)
    scratch = f.at(first, place)
    put(f, scratch, row, _SCRATCH)
    put(f, size, row, _BYTES)
    f.call_pointer(kernel, "void", words, lo, hi, scratch)
    wrong = f.alloca("i64", align=8)
    f.store(f.constant("i64", 0), wrong, 8)
    for low, high in ((f.constant("i64", 0), place), (place + size, length)):
        with f.loop(low, high) as turn:
            expected = f.select((turn.index & 1).eq(0), f.constant("i8", PATTERN[0]), f.constant("i8", PATTERN[1]))
            with f.if_(f.load("i8", f.at(first, turn.index), 1).ne(expected)):
                f.store(f.constant("i64", 1), wrong, 8)
    with f.if_(f.load("i64", wrong, 8).ne(0)):
        put(f, word(f, words, _TEXT), word(f, Value(f, "ptr", _STATE), _RUNNING_AT, "ptr"), _STEP)
    put(f, 0, row, _SCRATCH)
    put(f, 0, row, _BYTES)
    f.call("munmap", "i32", base, length + 2 * gap)
    f.label("done")
    put(f, old, row, _STEP)
    f.ret()


def _handler(module: LlvmModule, layout: _Signals) -> None:
    """``void nx_fault(i32 signal, ptr info, ptr context)``."""
    f = _function(module, "nx_fault", ["i32", "ptr", "ptr"])
    number, info, _ = f.arguments
    state = Value(f, "ptr", _STATE)
    address = word(f, info, layout.address)
    row = f.call("nx_fault_row", "ptr")
    running = word(f, row, _STEP, "ptr")
    cell = f.alloca("ptr", align=8)
    f.store(null(f), cell, 8)
    with f.loop(0, PIECES) as turn:
        piece = f.at(word(f, state, _PIECES_AT, "ptr"), turn.index, 8 * PIECE)
        with f.if_(word(f, piece, 0).ule(address) & address.ult(word(f, piece, 8))):
            f.store(piece, cell, 8)
    piece = f.load("ptr", cell, 8)
    told = f.at(state, _TOLD)
    # Of several threads that fault at once one reports; the others wait for it.
    first = fetch(f, "xchg", told, 1).eq(0)
    with f.if_(~first):
        with forever(f) as (turn, after):
            f.branch_if(load(f, told).eq(2), after, turn + ".more")
            f.label(turn + ".more")
            f.call("sched_yield", "i32")
        f.ret()
    with f.if_(piece.ne(0) | running.ne(0)):
        _say(f, module, "\nnxjax guard mode: memory fault at 0x")
        f.call("nx_fault_number", "void", address, f.constant("i64", 16))
        with f.if_(piece.ne(0)):
            _say_piece(f, module, piece, address)
        scratch, size = word(f, row, _SCRATCH), word(f, row, _BYTES)
        beside = address.uge(scratch - 4 * mmap.PAGESIZE) & address.ult(scratch + size + 4 * mmap.PAGESIZE)
        with f.if_(beside):  # without scratch memory both are 0, and no address is beside
            _say_place(f, module, scratch, size, address)
            _say(f, module, "scratch memory (")
            f.call("nx_fault_number", "void", size, f.constant("i64", 10))
            _say(f, module, " bytes)")
        with f.if_(running.ne(0)):
            _say(f, module, "\n  in the step: ")
            _say(f, module, running)
        _say(f, module, "\n")
    old = f.at(state, f.select(number.eq(int(signal.SIGSEGV)), f.constant("i64", _OLD), _OLD + _ACTION))
    f.call("sigaction", "i32", number, old, null(f))
    store(f, 2, told)
    # A signal that somebody sent does not come again by itself.
    with f.if_(f.load("i32", f.at(info, 8), 4).le(0)):
        f.call("raise", "i32", number)
    f.ret()


def _say_place(f: Function, module: LlvmModule, begin: Value, nbytes: Value, address: Value) -> None:
    end = begin + nbytes
    _say(f, module, ", ")
    with f.if_(address.ult(begin)):
        _say(f, module, "byte ")
        f.call("nx_fault_number", "void", begin - address, f.constant("i64", 10))
        _say(f, module, " before the beginning of ")
    with f.if_(address.uge(end)):
        _say(f, module, "byte ")
        f.call("nx_fault_number", "void", address - end + 1, f.constant("i64", 10))
        _say(f, module, " after the end of ")
    with f.if_(address.uge(begin) & address.ult(end)):
        _say(f, module, "inside ")


def _say_piece(f: Function, module: LlvmModule, piece: Value, address: Value) -> None:
    nbytes, state = word(f, piece, 24), word(f, piece, 40)
    _say_place(f, module, word(f, piece, 16), nbytes, address)
    _say(f, module, word(f, piece, 32, "ptr"))
    _say(f, module, " (")
    f.call("nx_fault_number", "void", nbytes, f.constant("i64", 10))
    _say(f, module, " bytes)")
    with f.if_(state.eq(FREED)):
        _say(f, module, ", which was freed")
    with f.if_(state.eq(READ_ONLY)):
        _say(f, module, ", which may only be read")


def _install(module: LlvmModule, layout: _Signals) -> None:
    """``void nx_fault_install(ptr pieces, ptr running)``."""
    f = _function(module, "nx_fault_install", ["ptr", "ptr"])
    pieces, running = f.arguments
    state, action = Value(f, "ptr", _STATE), f.alloca("i8", _ACTION, 16)
    put(f, pieces, state, _PIECES_AT)
    put(f, running, state, _RUNNING_AT)
    f.call("memset", "ptr", action, f.constant("i32", 0), f.constant("i64", _ACTION))
    put(f, Value(f, "ptr", "@nx_fault"), action, 0)
    f.store(f.constant("i32", layout.flags), f.at(action, layout.flags_at), 4)
    for i, number in enumerate((signal.SIGSEGV, signal.SIGBUS)):
        f.call("sigaction", "i32", f.constant("i32", int(number)), action, f.at(state, _OLD + i * _ACTION))
    f.ret()


class FaultFunctions(NamedTuple):
    """``guarded``: the address of the kernel that calls others; ``run``: note what this thread runs; what it ran."""

    guarded: int
    run: Callable[[int | None], int | None]


def install(pieces: int, running: int) -> FaultFunctions:
    """From now on faults are explained by the tables at these addresses, of `PIECES` and `THREADS` rows."""
    symbols = ["nx_fault_install", "nx_guarded", "nx_fault_run"]
    start, guarded, run = engine(isa.current()).module(text(), symbols)
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(start)(pieces, running)
    return FaultFunctions(guarded, ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(run))
