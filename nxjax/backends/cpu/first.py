"""The first run of a small program of exact ops: by their NumPy meaning, before anything is compiled.

Many functions are called once. NumPy answers such a call in microseconds where making machine code takes milliseconds,
and for ops whose result is rounded once, or not at all, the answer is the same to the bit. Machine code is made for the
second run, or as soon as somebody asks about it. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.cpu.executable import CpuExecutable
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.reference.quiet import quiet
from nxjax.config import config
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program
from nxjax.transforms.jit_stages import Repeated

# Ops that NumPy rounds as machine code does: once.
EXACT: Final = frozenset((
    "abs", "add", "and", "broadcast_in_dim", "clamp", "concatenate", "div", "eq", "ge", "gt", "iota", "le", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "reshape", "rev", "select_n", "slice", "sqrt", "square", "sub",
    "transpose", "xor",
))  # fmt: skip
_TYPES: Final = frozenset((dtypes.bool_, dtypes.float32, dtypes.float64, *dtypes.INTEGER)) - {
    dtypes.int4,
    dtypes.uint4,
}
# Bytes that all values of a program take: NumPy needs less time for so many than a compiler for one kernel.
_SMALL: Final = 1 << 20


def is_simple(program: Program) -> bool:
    """Whether NumPy gives what machine code would, and in less time than that takes to make."""
    if config.compile_first:
        return False
    total = 0
    for e in program.equations:
        if e.op.name not in EXACT:
            return False
        for v in e.outputs:
            if v.type.dtype not in _TYPES:
                return False
            total += v.type.size * v.type.dtype.itemsize
    return total <= _SMALL and len(program.equations) <= 64 and all(v.type.dtype in _TYPES for v in program.inputs)


@final
class FirstByMeaning(Executable):
    """A program that `is_simple`: run by its meaning, then compiled by ``make``."""

    def __init__(self, program: Program, make: Callable[[], CpuExecutable]) -> None:
        self._program = program
        self._make = make
        self._made: CpuExecutable | None = None
        self._has_run = False

    @property
    def compiled(self) -> CpuExecutable:
        """Its machine code, made now if it was not."""
        if self._made is None:
            with COMPILING:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def prepare(self) -> None:
        self.compiled.prepare()

    @property
    def is_native(self) -> bool:
        return self.compiled.is_native

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        if self._made is None and not self._has_run:
            self._has_run = True
            with quiet():
                ys = evaluate(dead_code_eliminated(self._program), [x.numpy() for x in args])
            # Dense, and no view of a larger argument.
            ys = [np.array(y, order="C") for y in ys]
            return [DeviceArray(y, t) for y, t in zip(ys, self._program.out_types, strict=True)]
        return self.compiled(args)

    def holding(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        return self.compiled.holding(held)

    def shortcut(self, jitted: Any, call: Repeated) -> None:
        self.compiled.shortcut(jitted, call)

    @property
    def text(self) -> str:
        return self.compiled.text

    def cost_analysis(self) -> dict[str, float]:
        return self.compiled.cost_analysis()

    def memory_analysis(self) -> Any:
        return self.compiled.memory_analysis()
