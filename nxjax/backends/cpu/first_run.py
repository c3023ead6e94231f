"""The first run of a small program of elementwise ops: one op after the other, before the program is compiled.

Many functions are called once. NumPy answers such a call in microseconds where making machine code takes milliseconds,
and for ops whose result is rounded once, or not at all, the answer is the same to the bit; for others it is that of
the code that programs share (`functions`). Machine code of the program itself is made for the second run, as soon as
somebody asks about it, or where a result is NaN. Must not import the compiler: a process whose functions run once and
are rounded once never loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.cpu.compiled_later import CompiledLater
from nxjax.backends.quiet import quiet
from nxjax.config import config
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.evaluate import evaluate
from nxjax.trace.lazy import load
from nxjax.trace.program import Equation, Literal, Program
from nxjax.transforms.jit_stages import Repeated

if TYPE_CHECKING:
    from nxjax.backends.cpu.functions import SharedFunction

NDArray = np.ndarray[Any, Any]
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
SHARED_DTYPES: Final = frozenset({dtypes.float32, dtypes.float64})
# Bytes that all values of a program take: NumPy needs less time for so many than a compiler for one kernel.
_SMALL: Final = 1 << 20
# Functions that may have to be made for a first run: more take as long as the program's own code.
_FEW: Final = 3


def simple_as_it_stands(program: Program) -> bool:
    """Whether ops give what the program's machine code would, before anything is simplified."""
    return not config.compile_first and is_simple(program) and not any(map(_is_folded, program.equations))


def simplified(program: Program) -> Program | None:
    """What is left of ``program`` after simplification, if that `is_simple`."""
    if config.compile_first:
        return None
    ready = load("nxjax.lower.cpu.lower").prepared(program)
    return ready if is_simple(ready) else None


def _is_folded(e: Equation) -> bool:
    """Whether machine code has the value of ``e`` as NumPy gives it, and not as a function's code does: nothing that is
    an argument goes into it."""
    return e.op.name not in EXACT and all(isinstance(a, Literal) for a in e.inputs)


def is_simple(program: Program) -> bool:
    """Whether ops give what the program's machine code would, one by one, and in less time than that takes to make."""
    if len(program.equations) > 64:
        return False
    total = 0
    shared: set[Any] = set()
    for e in program.equations:
        if e.op.name not in EXACT:
            function = _shared(e)
            if function is None:
                return False
            shared.add(function)
        for v in e.outputs:
            if v.type.dtype not in _TYPES:
                return False
            total += v.type.size * v.type.dtype.itemsize
    return total <= _SMALL and len(shared) <= _FEW and all(v.type.dtype in _TYPES for v in program.inputs)


def _shared(e: Equation) -> SharedFunction | None:
    """The function that is the equation, if it has code to share."""
    types = {(a.type.shape, a.type.dtype) for a in (*e.outputs, *e.inputs)}
    dtype = e.outputs[0].type.dtype if len(types) == len(e.outputs) == 1 else None
    if dtype is None or dtype not in SHARED_DTYPES:
        return None
    from nxjax.backends.cpu import functions

    return functions.find(e.op, e.params, len(e.inputs), dtype)


def _by_ops(program: Program, args: Sequence[NDArray]) -> list[NDArray]:
    shared = {e: f for e in program.equations if e.op.name not in EXACT and (f := _shared(e)) is not None}
    if not shared:
        return evaluate(program, args)
    from nxjax.backends.cpu import functions

    wanted = list(dict.fromkeys(shared.values()))
    made = dict(zip(wanted, functions.made(wanted), strict=True))
    return evaluate(program, args, {e: made[f] for e, f in shared.items()})


def _live(program: Program) -> Program:
    """``program`` without what nothing uses."""
    read = {a for e in program.equations for a in e.inputs}.union(program.outputs)
    if all(not read.isdisjoint(e.outputs) for e in program.equations):
        return program
    from nxjax.lower.passes.dce import dead_code_eliminated

    return dead_code_eliminated(program)


def _has_nan(y: NDArray) -> bool:
    """Whether a result has a NaN, whose sign hangs on the order of instructions: only the program's own code has it."""
    return y.dtype in dtypes.FLOAT and bool(np.isnan(y).any())


@final
class FirstByMeaning(CompiledLater):
    """A program with a form that `is_simple`: that is run op by op, then the program compiled by ``make``."""

    def __init__(self, program: Program, form: Program, make: Callable[[], Executable]) -> None:
        super().__init__(make)
        self._form = form
        self._out_types = program.out_types  # simplification may lose what is weak
        self._has_run = False

    def prepare(self) -> None:
        self.compiled.prepare()

    @property
    def is_native(self) -> bool:
        return self.compiled.is_native

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        if self._made is None and not self._has_run and not config.guard:
            self._has_run = True
            with quiet():
                ys = _by_ops(_live(self._form), [x.numpy() for x in args])
            if not any(_has_nan(y) for y in ys):
                # Dense, and no view of a larger argument.
                ys = [np.array(y, order="C") for y in ys]
                return [DeviceArray(y, t) for y, t in zip(ys, self._out_types, strict=True)]
        return self.compiled(args)

    def shortcut(self, jitted: Any, call: Repeated) -> None:
        self.compiled.shortcut(jitted, call)
