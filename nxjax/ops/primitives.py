"""The primitive element-wise ops. Every device has code for them; every other element-wise op is decomposed into them.

A device has a row for another op only if that is faster or more accurate. Otherwise it uses the op's `expand`: ops of
`DECOMPOSED` inside one step of its code, all others as separate equations. Names no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from nxjax.ops.base import expansion
from nxjax.trace.core import get_op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Literal, Program
from nxjax.trace.types import ArrayType

T = TypeVar("T")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of real numbers, for every dtype that a device has and the op takes.
PRIMITIVES: Final = _names("""
    add sub mul div rem neg abs sign max min sqrt floor round
    exp expm1 log log1p sin cos atan2 pow
    and or xor not shift_left shift_right_logical shift_right_arithmetic
    eq ne lt le gt ge select_n convert_element_type bitcast_convert_type
""")
# Each is one step on devices without a row for it: no other equation shares its parts.
DECOMPOSED: Final = _names("""
    bessel_i0e bessel_i1e clamp conj integer_pow is_finite logistic nextafter power rsqrt square
""")


def decomposition(name: str, dtypes: Sequence[DType], params: Mapping[str, Any]) -> Program | None:
    """The op ``name`` of `DECOMPOSED` as a program on scalars of these dtypes; None for others."""
    if name not in DECOMPOSED:
        return None
    return expansion(get_op(name), [ArrayType((), d) for d in dtypes], params)


def replayed(
    program: Program, xs: Sequence[T], apply: Callable[[Equation, list[T]], T], literal: Callable[[Literal], T]
) -> T:
    """The result of a `decomposition` where ``xs`` stand for its operands, in the terms of a device."""
    known: dict[Atom, T] = dict(zip(program.inputs, xs, strict=True))

    def value(a: Atom) -> T:
        return literal(a) if isinstance(a, Literal) else known[a]

    for e in program.equations:
        known[e.outputs[0]] = apply(e, [value(a) for a in e.inputs])
    return value(program.outputs[0])
