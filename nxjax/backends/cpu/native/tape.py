"""`CpuProgram` -> the tables that the machine runs; see `machine` for what they mean.

Written once per executable. Every word that a kernel, copy, flag or Python call reads has its place in the frame:
constants' addresses and integers are in the frame's image, the others are named by relocations.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.native import tables as m
from nxjax.backends.cpu.native.abi import COPY_BLOCK
from nxjax.backends.cpu.native.runtime import Runtime
from nxjax.backends.quiet import quiet
from nxjax.errors import ExecutionError, NxError
from nxjax.kernels.cpu.base import Code
from nxjax.lower.cpu.sharing import shared
from nxjax.lower.cpu.tape import (
    ALIGN,
    BranchStep,
    Buffer,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    HostStep,
    Ref,
    RepeatStep,
    TapeStep,
    WhileStep,
    walk,
)
from nxjax.lower.cpu.times import BYTES_PER_NS, CHUNKS, STEP_NS, chunk_of, time_of
from nxjax.trace.types import ArrayType

if TYPE_CHECKING:
    from nxjax.lower.cpu.turns import Turned

NDArray = np.ndarray[Any, Any]

# Times by which the machine decides, in nanoseconds.
_HEAVY_NS: Final = 2_000
_HOST_NS: Final = 20_000
# A program that takes longer gives the interpreter's lock back.
LONG_NS: Final = 20_000
_BLOCKS: Final = 8  # of `COPY_BLOCK`, for a copy
_PARALLEL: Final = m.OPCODES.index("parallel")


@final
class Tape(m.LinkedTape):
    """The tables of one program.

    Attributes:
        nanoseconds: estimated time of a run; infinite where loops run until a condition says.
        writer: what wrote the tables, a `TapeEncoder` or what ``writer`` names.
    """

    def __init__(
        self, program: CpuProgram, engine: KernelCache, runtime: Runtime, writer: type[TapeEncoder] | None = None
    ) -> None:
        constants = [m.aligned(c) for c in program.consts]
        self.writer = written = (writer or TapeEncoder)(program, engine, runtime, constants)  # holds the tables
        written.steps(program.steps)
        written.emit("end")
        self.nanoseconds = written.time
        overwritten = frozenset(b.index for b in _written(program.steps) if b.kind == "input")
        super().__init__(written.parts(), _results(program), overwritten, constants, runtime.release)


def _results(program: CpuProgram) -> tuple[m.ResultLocation, ...]:
    found: list[m.ResultLocation] = []
    seen: dict[Any, int] = {}
    for i, b in enumerate(program.outputs):
        if b.kind == "output":
            found.append(
                m.ResultLocation("result", seen[b], b.nbytes) if b in seen else m.ResultLocation("new", i, b.nbytes)
            )
            seen.setdefault(b, i)
        else:
            found.append(m.ResultLocation(b.kind, b.index, b.nbytes))
    return tuple(found)


def _written(steps: Sequence[TapeStep]) -> Any:
    for step in steps:
        yield from (r.buffer for r in step.writes())
        for body in step.bodies():
            yield from _written(body)


def _turned(program: CpuProgram) -> dict[TapeStep, Turned]:
    """Loops that are one function."""
    if not any(s.bodies() for s in program.steps):
        return {}
    from nxjax.lower.cpu.turns import loops

    return loops(program)


class TapeEncoder:
    """Collects instructions, words and relocations. Guard mode has another (`guarded_tape`), by what is `protected`."""

    inlines = True  # whether loops of short kernels are one function

    def __init__(self, program: CpuProgram, engine: KernelCache, runtime: Runtime, constants: list[NDArray]) -> None:
        self._turned = _turned(program) if self.inlines else {}
        self._shared = shared(program.steps)
        inside = {id(s) for s in walk(list(self._turned))}
        kernels: list[Code] = [s.kernel for s in walk(program.steps) if isinstance(s, CallStep) and id(s) not in inside]
        kernels += [turned.code for turned in self._turned.values()]
        at = engine.addresses(kernels)
        self._kernels = {k.symbol: a for k, a in zip(kernels, at, strict=True)}
        self._runtime = runtime
        self._promised = engine.isa.reproducible
        self._constants = constants
        self._code: list[list[int]] = []
        self._words: list[int] = []
        self._moving: dict[Counter, list[tuple[int, int]]] = {}
        self._relocations: dict[str, list[tuple[int, int, int]]] = {"input": [], "output": [], "temp": []}
        # Instructions' fields that hold the number of an instruction, until addresses are known.
        self._jumps: list[tuple[int, int, int]] = []
        self._cases: list[tuple[int, list[int]]] = []
        self._moves: list[tuple[int, list[int]]] = []
        # What another process has elsewhere: code by instruction and symbol ("": `copy`), constants by word, which
        # one and the bytes into it. Python's functions it has nowhere.
        self.codes: list[tuple[int, str]] = []
        self.places: list[tuple[int, int, int]] = []
        self.is_portable = True
        self._kept: list[Any] = []
        scratch = max((k.scratch for k in kernels), default=0)
        self._scratch = -(-scratch // ALIGN) * ALIGN
        self._arena = program.arena
        self.time = 0.0
        self._light = 0.0  # of what has no weight of its own, in this turn of the innermost loop

    # --- words ---

    def _word(self, value: int) -> int:
        """A new word; its place in bytes from the frame's beginning."""
        self._words.append(value)
        return m.FRAME_HEADER + 8 * (len(self._words) - 1)

    def _ref(self, ref: Ref) -> int:
        kind, at, offset = self._place(ref.buffer)
        if kind == "const":
            self.places.append((len(self._words), ref.buffer.index, offset + ref.offset))
        place = self._word(at + offset + ref.offset if kind == "const" else 0)
        if kind != "const":
            self._relocations[kind].append((place, at, offset + ref.offset))
        for counter, stride in ref.moves:
            self._moving[counter].append((place, stride))
        return place

    def _place(self, b: Buffer) -> tuple[str, int, int]:
        """What addresses a buffer's is among, which of these bytes it has there, and what is added to it.

        Of a constant: the address itself.
        """
        if b.kind == "const":
            return b.kind, self._constants[b.index].ctypes.data, 0
        return (b.kind, 0, self._scratch + b.offset) if b.kind == "temp" else (b.kind, 8 * b.index, 0)

    def _machine_code(self, step: CallStep | CopyStep) -> int:
        return self._kernels[step.kernel.symbol] if isinstance(step, CallStep) else self._runtime.addresses.copy

    def _refs(self, refs: Sequence[Ref], integers: Sequence[int] = ()) -> int:
        places = [*map(self._ref, refs), *map(self._word, integers)]
        return places[0] if places else m.FRAME_HEADER

    # --- instructions ---

    def emit(self, op: str, *, code: int = 0, words: int = 0, count: int = 0, target: int = 0, moves: int = 0,
             extra: int = 0, weight: float = 0) -> int:  # fmt: skip
        """One instruction; its number."""
        self._code.append([m.OPCODES.index(op), code, words, count, target, moves, extra, int(weight)])
        return len(self._code) - 1

    def _goes(self, instruction: int, to: int) -> None:
        self._jumps.append((instruction, m.TARGET // 8, to))

    def steps(self, steps: Sequence[TapeStep]) -> None:
        for step in steps:
            self._step(step)

    def _step(self, step: TapeStep) -> None:
        match step:
            case CallStep():
                self._call(step)
            case CopyStep():
                self._copy(step)
            case HostStep():
                self._python(_host(step), (*step.ins, *step.outs))
            case RepeatStep():
                self._repeat(step)
            case WhileStep():
                self._while(step)
            case BranchStep():
                self._branch(step)
            case _:
                raise AssertionError(step)

    def _python(self, call: Callable[[int], None], refs: Sequence[Ref] = ()) -> None:
        """Call Python with the address of words that name these places."""
        words = self._refs(refs)
        self._kept.append(call)
        self.is_portable = False
        self.emit("host", code=id(call), words=words, weight=_HOST_NS)

    def _call(self, step: CallStep) -> None:
        kernel = step.kernel
        if not kernel.items:
            return
        words = self._refs((*step.ins, *step.outs), step.kernel.integers)
        code, weight = self._machine_code(step), time_of(kernel) + STEP_NS
        self.codes.append((len(self._code), kernel.symbol))
        self.time += weight
        if step in self._shared:
            chunk = chunk_of(kernel)
            self.emit(
                "parallel",
                code=code,
                words=words,
                count=kernel.items,
                target=chunk,
                extra=kernel.scratch,
                weight=weight,
            )
        elif weight > _HEAVY_NS:
            self.emit("heavy", code=code, words=words, count=kernel.items, weight=weight)
        else:
            self._light += weight
            self.emit("call", code=code, words=words, count=kernel.items)

    def _copy(self, step: CopyStep) -> None:
        if not step.nbytes:
            return
        refs = (step.source_ref, step.target)
        weight = 2 * step.nbytes / BYTES_PER_NS + STEP_NS
        self.time += weight
        blocks = -(-step.nbytes // COPY_BLOCK)
        if blocks < _BLOCKS:
            self._light += weight
            op = f"copy{step.nbytes}" if step.nbytes in (4, 8) else "copy"
            self.emit(op, words=self._refs(refs), count=step.nbytes)
            return
        code, words = self._machine_code(step), self._refs(refs, (step.nbytes,))
        self.codes.append((len(self._code), ""))
        self.emit("parallel", code=code, words=words, count=blocks, target=-(-blocks // CHUNKS), weight=weight)

    def _repeat(self, step: RepeatStep) -> None:
        count = step.counter.count
        if count <= 0:
            return
        if step in self._turned:
            self._in_one(self._turned[step])
            return
        self._moving[step.counter] = []
        counter = self._word(0)
        head = self.emit("repeat", words=counter, count=count)
        before, light, self._light = self.time, self._light, 0.0
        self.steps(step.body)
        moves = [n for place, stride in self._moving.pop(step.counter) for n in (place, stride, stride * count)]
        turn = self._light + STEP_NS
        last = self.emit("again", words=counter, count=count, moves=len(moves) // 3, weight=turn)
        self._moves.append((last, moves))
        self._light = light
        self._goes(last, head + 1)
        self._goes(head, last + 1)
        self.time = before + (self.time - before + STEP_NS) * count

    def _in_one(self, turned: Turned) -> None:
        words = self._refs(turned.words)
        self.codes.append((len(self._code), turned.code.symbol))
        self.time += turned.nanoseconds
        self.emit("heavy", code=self._kernels[turned.code.symbol], words=words, count=1, weight=turned.nanoseconds)

    def _while(self, step: WhileStep) -> None:
        start = len(self._code)
        if step in self._turned:
            self._in_one(self._turned[step])
            test = self.emit("test", words=self._ref(step.flag))
            self._goes(self.emit("jump", weight=_HEAVY_NS), start)
            self._goes(test, len(self._code))
            self.time = math.inf
            return
        light, self._light = self._light, 0.0
        self.steps(step.condition)
        test = self.emit("test", words=self._ref(step.flag))
        self.steps(step.body)
        self._goes(self.emit("jump", weight=self._light + STEP_NS), start)
        self._light = light
        self._goes(test, len(self._code))
        self.time = math.inf

    def _branch(self, step: BranchStep) -> None:
        select = self.emit("select", words=self._ref(step.index), count=len(step.branches))
        starts: list[int] = []
        ends: list[int] = []
        times: list[float] = []
        before = self.time
        for branch in step.branches:
            starts.append(len(self._code))
            self.time = 0.0
            self.steps(branch)
            times.append(self.time)
            ends.append(self.emit("jump"))
        for end in ends:
            self._goes(end, len(self._code))
        self._cases.append((select, starts))
        self.time = before + max(times)

    def files(self) -> dict[str, str]:
        """The file of the cache that has the code of each kernel, by symbol."""
        return {symbol: address.code.file for symbol, address in self._kernels.items()}

    def parts(self) -> m.TapeParts:
        """The tape: everything is written."""
        numbers = lambda rows, width: np.array(rows, np.int64).reshape(-1, width)
        each = lambda rows: [(i, np.array(row, np.int64)) for i, row in rows]
        return m.TapeParts(
            code=numbers(self._code, m.INSTRUCTION // 8),
            words=np.array(self._words, np.int64),
            ins=numbers(self._relocations["input"], 3),
            outs=numbers(self._relocations["output"], 3),
            temps=numbers(self._relocations["temp"], 3),
            jumps=numbers(self._jumps, 3),
            cases=each(self._cases),
            moves=each(self._moves),
            block=self._scratch + self._arena,
            long=self.time > LONG_NS,
            # What helpers compute hangs on them, unless the caller's floats are as theirs.
            strict=self._promised or _PARALLEL in [c[0] for c in self._code],
        )


@contextmanager
def callback_errors(step: HostStep) -> Generator[None]:
    """What the user's function raises, as an error of the program that called it."""
    try:
        yield
    except NxError:
        raise
    except Exception as error:
        from nxjax.transforms.callback import Callback

        if not isinstance(step.equation and step.equation.op, Callback):
            raise
        what = "cpu: a callback of the compiled program failed"
        source = None if step.equation is None else step.equation.source
        raise ExecutionError(what, got=f"{type(error).__name__}: {error}", source=source) from error


def _host(step: HostStep) -> Callable[[int], None]:
    """What the machine calls for an equation without kernel: its NumPy meaning, on the memory that the words name."""
    count = len(step.ins) + len(step.outs)

    def run(address: int) -> None:
        places = (ctypes.c_uint64 * count).from_address(address)
        ins, outs = places[: len(step.ins)], places[len(step.ins) :]
        with quiet(), callback_errors(step):
            step.run(
                [_array(p, t) for p, t in zip(ins, step.in_types, strict=True)],
                [_array(p, t) for p, t in zip(outs, step.out_types, strict=True)],
            )

    return run


def _array(address: int, type: ArrayType) -> NDArray:
    """The memory at ``address`` as an array."""
    raw = (ctypes.c_uint8 * (type.size * type.dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(raw).view(type.dtype).reshape(type.shape)
