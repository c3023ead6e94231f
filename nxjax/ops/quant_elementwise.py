"""Quantized arithmetic of two operands, and functions of one by table: qadd, qsub, qmul, qunary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from nxjax.ops.arithmetic import add, mul, neg, sub
from nxjax.ops.base import Elementwise, NDArray, SameType, equal_shapes, like, require
from nxjax.ops.bitwise import shift_left
from nxjax.ops.convert import cast
from nxjax.ops.fixed import elementwise as fixed
from nxjax.ops.fixed.elementwise import scale_of
from nxjax.ops.fixed.functions import FUNCTIONS, table, unary
from nxjax.ops.quant_base import QuantizedOp, sum_tangents
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import all_grid_integers, look_up, rescale_static, to_output_grid, wrap_int32
from nxjax.ops.rounding import is_finite
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents, find_op, get_op
from nxjax.trace.types import ArrayType


class _Binary(QuantizedOp, Elementwise):
    """Two operands of one shape, each on its grid."""

    operands = ("x_grid", "y_grid")
    result = "out_grid"
    kernel: ClassVar[Callable[..., NDArray]]

    def infer(self, x: ArrayType, y: ArrayType, /, **params: Any) -> ArrayType:
        self.check(x, y, **params)
        equal_shapes(self, x, y)
        return x.strong()

    def exact(self, p: NDArray, q: NDArray, /, *, x_grid: Grid, y_grid: Grid, **params: Any) -> NDArray:
        return type(self).kernel(p, x_grid, q, y_grid, *self.output(params)[0])

    def traced(
        self, p: Array, q: Array, /, *, x_grid: Grid, y_grid: Grid, out_grid: Grid, lo: int, hi: int, rounding: Rounding
    ) -> Array:
        left, right = (cast(sub(v, like(v, g.zero_point)), dtypes.int64) for v, g in ((p, x_grid), (q, y_grid)))
        return to_output_grid(self.combined(left, right, x_grid, y_grid, out_grid, rounding), out_grid, lo, hi)

    @abstractmethod
    def combined(self, p: Array, q: Array, x: Grid, y: Grid, out: Grid, rounding: Rounding) -> Array:
        """The rescaled int64 result of centred int64 operands."""


def _summed(p: Array, q: Array, x: Grid, y: Grid, out: Grid, rounding: Rounding, sign: int) -> Array:
    """`fixed.elementwise.add` without its clamp: both operands on half of the coarser scale, with extra bits."""
    left = 15 if out.dtype == dtypes.int16 else 20
    twice = np.float64(np.float32(2) * np.maximum(scale_of(x), scale_of(y)))
    parts = [
        rescale_static(wrap_int32(shift_left(v, like(v, left))), np.float64(scale_of(g)) / twice, rounding)
        for v, g in ((p, x), (q, y))
    ]
    real = twice / np.float64(np.float32(2**left) * scale_of(out))
    return rescale_static(wrap_int32((add if sign > 0 else sub)(*parts)), real, rounding)


@final
class QAdd(_Binary):
    """Quantized ``x + y``."""

    name = "qadd"
    kernel = staticmethod(fixed.add)

    def combined(self, p: Array, q: Array, x: Grid, y: Grid, out: Grid, rounding: Rounding) -> Array:
        return _summed(p, q, x, y, out, rounding, 1)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        return sum_tangents(tangents)


@final
class QSub(_Binary):
    """Quantized ``x - y``."""

    name = "qsub"
    kernel = staticmethod(fixed.sub)

    def combined(self, p: Array, q: Array, x: Grid, y: Grid, out: Grid, rounding: Rounding) -> Array:
        return _summed(p, q, x, y, out, rounding, -1)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        t, s = tangents
        return sum_tangents([t, None if s is None else neg(s)])


@final
class QMul(_Binary):
    """Quantized ``x * y``."""

    name = "qmul"
    kernel = staticmethod(fixed.mul)

    def combined(self, p: Array, q: Array, x: Grid, y: Grid, out: Grid, rounding: Rounding) -> Array:
        with np.errstate(under="ignore"):
            real = scale_of(x) * scale_of(y) / scale_of(out)
        return rescale_static(wrap_int32(mul(p, q)), real, rounding)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        (a, b), (ta, tb) = primals, tangents
        return sum_tangents([None if ta is None else mul(ta, b), None if tb is None else mul(a, tb)])


@lru_cache(512)
def _table(
    function: str, x_grid: Grid, y_grid: Grid, rounding: Rounding, parameters: tuple[tuple[str, Any], ...] = ()
) -> NDArray:
    """The stored result for every stored argument."""
    stored = all_grid_integers(x_grid)
    if function in FUNCTIONS:
        return unary(function, stored, x_grid, y_grid, rounding, **dict(parameters))
    op = get_op(function)
    real = lambda x: np.asarray(op.eval(x, **dict(parameters)), np.float32)
    if x_grid.dtype == dtypes.int16:
        return y_grid.quantize(real(x_grid.dequantize(stored)))
    return table(real, x_grid, y_grid)


def finite_slope(function: str, x: Array, parameters: Any = ()) -> Array | None:
    """The derivative of an elementwise function at the values of a grid; 0 where it has none, as at the end of a grid.

    A grid has a 0 where values are not: log and powers have a pole there. None for functions that are flat all over.
    """
    slope = get_op(function).jvp((x,), (like(x, 1),), **dict(parameters))[1]
    return None if slope is None else select_n(is_finite(slope), like(slope, 0), slope)


def forget_tables() -> None:
    """Drop the tables of functions by name: an op is being defined anew."""
    _table.cache_clear()


def has_table(function: str) -> bool:
    """Whether there is a function of one operand by this name, so that a table of it can be made."""
    op = find_op(function)
    one = isinstance(op, SameType) and op.arguments == "x"
    return one or (op is not None and op.quantized == "table")


@final
class QUnary(QuantizedOp, Elementwise):
    """Quantized function of one operand, by its name; the integer meaning is `fixed.functions.unary`.

    ``parameters`` are pairs of name and value (``alpha`` of leaky_relu, ``approximate`` of gelu).
    """

    name = "qunary"

    def infer(
        self,
        x: ArrayType,
        /,
        *,
        function: str,
        x_grid: Grid,
        y_grid: Grid,
        rounding: Rounding,
        parameters: tuple[tuple[str, Any], ...] = (),
    ) -> ArrayType:
        self.check(x, x_grid=x_grid, y_grid=y_grid, rounding=rounding)
        known = function in FUNCTIONS or has_table(function)
        require(self, known, "function", function, ", ".join(sorted(FUNCTIONS)) + " or an elementwise op")
        return x.strong()

    def exact(self, q: NDArray, /, *, x_grid: Grid, **params: Any) -> NDArray:
        return _table(x_grid=x_grid, **params)[q.astype(np.int32) - x_grid.limits[0]]

    def traced(self, q: Array, /, *, x_grid: Grid, **params: Any) -> Array:
        return look_up(q, _table(x_grid=x_grid, **params).astype(np.int32), x_grid)

    def tangent(
        self, y: Array, primals: Arrays, tangents: Tangents, *, function: str, parameters: Any = (), **params: Any
    ) -> Any:
        (x,), (t,) = primals, tangents
        assert t is not None
        slope = finite_slope(function, x, parameters)
        return None if slope is None else mul(slope, t)


qadd = QAdd()
qsub = QSub()
qmul = QMul()
qunary = QUnary()
