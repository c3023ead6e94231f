"""The same bits everywhere (`config.reproducible`): what NumPy may compute then, and what is refused.

NumPy's sums, products of matrices and transcendental functions hang on the processor that it finds. What it moves, what
it computes of integers, and what IEEE 754 rounds once is the same on all. Everything else has to be a kernel of the CPU
compiler, or is an error. Knows ops by name, and no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nxjax.errors import LoweringError
from nxjax.ops.base import DataMovement
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation, Program

# Elements become others of the same bits.
BITS: Final = frozenset(("bitcast_convert_type",))
# Rounded once, as IEEE 754 has it. Not ``max`` and ``min``: which of two zeros is larger is the processor's choice.
ROUNDED: Final = frozenset((
    "abs", "add", "convert_element_type", "div", "eq", "ge", "gt", "iota", "is_finite", "le", "lt", "mul", "ne", "neg",
    "sqrt", "square", "sub",
))  # fmt: skip
# The user's own code, which runs in Python wherever the program runs.
CALLS: Final = frozenset(("check", "debug_callback", "io_callback", "pure_callback"))
# Integers from tables of functions, which NumPy makes.
TABLES: Final = frozenset(("qsoftmax", "qunary"))
_EXACT: Final = dtypes.BITS | {dtypes.key}
_PLAIN: Final = _EXACT | {dtypes.float32, dtypes.float64}


def by_numpy(op: Op, types: Sequence[DType]) -> bool:
    """Whether the NumPy meaning of ``op`` has the same bits on every machine.

    ``types`` are those of its operands, then of its results.
    """
    found = set(types)
    if op.name in TABLES:
        return False
    if isinstance(op, DataMovement) or op.name in CALLS or op.name in BITS or found <= _EXACT:
        return not op.nested
    if op.name == "convert_element_type" and types[-1] in dtypes.INTEGER:
        return False  # out of range, processors differ
    return op.name in ROUNDED and found <= _PLAIN and _is_default()


_LEAST, _SUBNORMAL, _BELOW = 2.0**-1022, 2.0**-1074, 2.0**-60


def _is_default() -> bool:
    """Whether this thread rounds to nearest and has subnormal numbers; a library may have set it otherwise."""
    return _LEAST * 0.5 > 0.0 and _SUBNORMAL > 0.0 and _to_nearest()


def _to_nearest() -> bool:
    return 1.0 + _BELOW == 1.0 == 1.0 - _BELOW


def check_rounding() -> None:
    """Raise where this thread rounds otherwise than to nearest: kernels would have other constants, also for others."""
    if not _to_nearest():
        raise LoweringError(
            "cpu: no code is written while floats are not rounded to nearest",
            got="a thread that rounds up, down or towards zero: a library has set it so",
            expected="the processor's default",
            fix="set it back (C's `fesetround(FE_TONEAREST)`), or call the function once before",
        )


def check_program(program: Program) -> None:
    """Raise where a program, or one that it holds, has an op of `TABLES`."""
    for e in program.equations:
        if e.op.name in TABLES:
            raise _unpromised(e, "functions, in tables that NumPy makes")
        for inner in e.programs():
            check_program(inner)


def _unpromised(e: Equation, got: str) -> LoweringError:
    return LoweringError(
        f"{e.op.name}: no promise of the same bits everywhere",
        got=got,
        expected="an op with a kernel of the CPU compiler, while nx.config.reproducible is True",
        fix="compute this outside, under `nx.config.using(reproducible=False)`, and pass the result in",
        source=e.source,
    )


def check_host(e: Equation, why: str) -> None:
    """Raise unless the equation, which has no kernel because of ``why``, may run by its NumPy meaning."""
    if not by_numpy(e.op, [v.type.dtype for v in (*e.inputs, *e.outputs)]):
        types = ", ".join(str(v.type) for v in e.inputs)
        raise _unpromised(e, f"{types}, which NumPy or LAPACK computes ({why})")


def refused(name: str) -> LoweringError:
    """The error for a backend, called ``name``, whose results are others' business."""
    return LoweringError(
        f"{name}: no promise of the same bits everywhere",
        got=f"nx.config.reproducible=True, and the backend {name}",
        expected="the CPU's own executor: executor='cpu', one device",
        fix="run it on the CPU, or under `nx.config.using(reproducible=False)`",
    )
