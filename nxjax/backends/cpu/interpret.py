"""A `CpuProgram` step by step from Python: for profiles and for finding the step that is wrong. Same machine code."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.guard import GuardedMemory
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.config import config
from nxjax.kernels.cpu.base import Kernel
from nxjax.lower.cpu.sharing import shared
from nxjax.lower.cpu.tape import (
    BranchStep,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    HostStep,
    Ref,
    RepeatStep,
    TapeStep,
    WhileStep,
)
from nxjax.lower.cpu.times import chunk_of
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_PARALLEL = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
# A step, when it began (`time.perf_counter`), and the seconds it took.
Watch = Callable[[TapeStep, float, float], None]


def empty(nbytes: int) -> NDArray:
    """Bytes that begin at a multiple of 64; in guard mode, guarded ones."""
    if config.guard:
        piece = GuardedMemory(nbytes, "memory of the interpreter", 64)
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(piece.address)
        memory.piece = piece  # lives as long as the array
        return np.frombuffer(memory, np.uint8) if nbytes else np.empty(0, np.uint8)
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _copied(x: NDArray) -> NDArray:
    """A copy that lies as results of calls do."""
    y = empty(x.nbytes).view(x.dtype).reshape(x.shape) if x.nbytes else np.empty_like(x)
    y[...] = x
    return y


def run_kernel(address: int, kernel: Kernel, words: Sequence[int], lo: int = 0, hi: int | None = None) -> None:
    """Machine code at ``address`` on items ``lo`` to ``hi`` (by default all)."""
    array = np.array([w & 0xFFFFFFFFFFFFFFFF for w in words] or [0], np.uint64)
    scratch = empty(kernel.scratch)
    _TYPE(address)(array.ctypes.data, lo, kernel.items if hi is None else hi, scratch.ctypes.data)


@final
class TapeInterpreter:
    """Runs one program; ``watch`` is told of each step."""

    def __init__(self, program: CpuProgram, engine: KernelCache, watch: Watch | None = None) -> None:
        self.program = program
        self.engine = engine
        self.watch = watch
        self._arena = empty(program.arena)  # the same for all runs: the system gives pages to the first one
        calls = list(program.calls())
        found = engine.addresses([c.kernel for c in calls])
        self._shared = shared(program.steps)
        self._parallel = _PARALLEL(runtime().addresses.parallel_for)
        self._addresses = {c.kernel.symbol: a for c, a in zip(calls, found, strict=True)}

    def __call__(self, xs: Sequence[NDArray]) -> list[NDArray]:
        program = self.program
        self._inputs = [np.ascontiguousarray(x) for x in xs]
        self._outputs = [empty(b.nbytes) for b in program.outputs]
        self._turns: dict[Counter, int] = {}
        self._run(program.steps)
        # A result may be an argument's, a constant's or another result's memory.
        return [_copied(self._array(Ref(b), t)) for b, t in zip(program.outputs, program.out_types, strict=True)]

    def _kernel(self, address: int, step: CallStep, words: list[int]) -> None:
        """On as many threads as the tape machine would take."""
        kernel = step.kernel
        chunk = chunk_of(kernel)
        if step not in self._shared:
            run_kernel(address, kernel, words)
            return
        array = np.array([w & 0xFFFFFFFFFFFFFFFF for w in words], np.uint64)
        scratch = empty(kernel.scratch)
        self._parallel(address, array.ctypes.data, kernel.items, chunk, kernel.scratch, scratch.ctypes.data, None)

    def _address(self, ref: Ref) -> int:
        b = ref.buffer
        if b.kind == "temp":
            base = self._arena.ctypes.data + b.offset
        else:
            base = {"input": self._inputs, "output": self._outputs, "const": self.program.consts}[b.kind][
                b.index
            ].ctypes.data
        return base + ref.offset + sum(self._turns[c] * stride for c, stride in ref.moves)

    def _array(self, ref: Ref, type: ArrayType) -> NDArray:
        nbytes = type.size * type.dtype.itemsize
        if not nbytes:  # no elements, or elements without bytes (float0)
            return np.zeros(type.shape, type.dtype)
        raw = (ctypes.c_uint8 * nbytes).from_address(self._address(ref))
        return np.ctypeslib.as_array(raw).view(type.dtype).reshape(type.shape)

    def _run(self, steps: Sequence[TapeStep]) -> None:
        for step in steps:
            start = time.perf_counter()
            self._step(step)
            if self.watch is not None:
                self.watch(step, start, time.perf_counter() - start)

    def _step(self, step: TapeStep) -> None:
        match step:
            case CallStep():
                words = [*map(self._address, (*step.ins, *step.outs)), *step.kernel.integers]
                self._kernel(self._addresses[step.kernel.symbol], step, words)
            case CopyStep():
                ctypes.memmove(self._address(step.target), self._address(step.source_ref), step.nbytes)
            case HostStep():
                step.run(
                    [self._array(r, t) for r, t in zip(step.ins, step.in_types, strict=True)],
                    [self._array(r, t) for r, t in zip(step.outs, step.out_types, strict=True)],
                )
            case RepeatStep():
                for turn in range(step.counter.count):
                    self._turns[step.counter] = turn
                    self._run(step.body)
            case WhileStep():
                self._run(step.condition)
                while ctypes.c_uint8.from_address(self._address(step.flag)).value:
                    self._run(step.body)
                    self._run(step.condition)
            case BranchStep():
                index = ctypes.c_int32.from_address(self._address(step.index)).value
                self._run(step.branches[index if 0 <= index < len(step.branches) else -1])
            case _:
                raise AssertionError(step)
