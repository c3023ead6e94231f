"""Arithmetic on numbers: negate, add, subtract, multiply, divide, remainder, power, minimum, maximum, ...

Operands have equal shapes and dtypes; promotion and broadcasting belong to `nxjax.numpy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.base import Binary, Differentiable, LinearOp, NDArray, Tangent, Unary
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Linear


@final
class Neg(LinearOp, Unary):
    """-x"""

    name = "neg"
    hlo = "negate"
    ufunc = np.negative

    def transpose(self, ct: Array, x: Linear, /) -> Sequence[Array | None]:
        return (neg(ct),)


@final
class Add(LinearOp, Binary):
    """x + y; logical or for booleans."""

    name = "add"
    allowed = dtypes.NUMERIC
    hlo = "add"
    ufunc = np.add

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array | None]) -> tuple[Array, Array | None]:
        tx, ty = tangents
        return self(*primals), ty if tx is None else tx if ty is None else add(tx, ty)

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Sequence[Array | None]:
        return (ct if isinstance(x, Linear) else None, ct if isinstance(y, Linear) else None)


@final
class Sub(LinearOp, Binary):
    """x - y"""

    name = "sub"
    hlo = "subtract"
    ufunc = np.subtract

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array | None]) -> tuple[Array, Array | None]:
        tx, ty = tangents
        if ty is None:
            return self(*primals), tx
        return self(*primals), neg(ty) if tx is None else sub(tx, ty)

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Sequence[Array | None]:
        return (ct if isinstance(x, Linear) else None, neg(ct) if isinstance(y, Linear) else None)


@final
class Mul(Differentiable, Binary):
    """x * y; logical and for booleans."""

    name = "mul"
    allowed = dtypes.NUMERIC
    hlo = "multiply"
    ufunc = np.multiply

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, y), lambda t: mul(x, t))

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Sequence[Array | None]:
        return (mul(ct, y), None) if isinstance(x, Linear) else (None, mul(x, ct))


@final
class Div(Differentiable, Binary):
    """x / y; for integers, the quotient rounded toward zero (x / 0 is -1, as in XLA)."""

    name = "div"
    hlo = "divide"

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        if x.dtype not in dtypes.INTEGER:
            return np.asarray(np.divide(x, y), x.dtype)
        safe = np.where(y == 0, np.ones_like(y), y)
        quotient = np.floor_divide(x, safe)
        # NumPy rounds down; one is missing where the signs differ and a remainder is left.
        quotient = quotient + ((np.remainder(x, safe) != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
        return np.asarray(
            np.where(y == 0, np.full_like(y, -1 if x.dtype in dtypes.SIGNED else np.iinfo(x.dtype).max), quotient),
            x.dtype,
        )

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        # d(x / y) = (dx - (x / y) dy) / y
        return (lambda t: div(t, y), lambda t: neg(mul(t, div(out, y))))

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Sequence[Array | None]:
        return (div(ct, y), None)


neg = Neg()
add = Add()
sub = Sub()
mul = Mul()
div = Div()
