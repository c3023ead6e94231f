"""PReLU (He et al., "Delving deep into rectifiers", 2015), float and quantized: a slope of its own per channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import max, min, mul, sub
from nxjax.ops.base import Differentiable, Elementwise, NDArray, Tangent, check_dtype, equal_dtypes, equal_shapes, like
from nxjax.ops.compare import ge
from nxjax.ops.convert import cast
from nxjax.ops.fixed.elementwise import scale_of
from nxjax.ops.fixed.functions import prelu as fixed_prelu
from nxjax.ops.quant_base import QuantizedOp, sum_tangents
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import rescale_static, to_output_grid, wrap_int32
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType


@final
class Prelu(Differentiable, Elementwise):
    """x where x >= 0, else ``alpha`` x."""

    name = "prelu"

    def infer(self, x: ArrayType, alpha: ArrayType, /) -> ArrayType:
        equal_shapes(self, x, alpha)
        equal_dtypes(self, x, alpha)
        check_dtype(self, dtypes.INTEGER | dtypes.FLOAT, x)
        return x.strong()

    def eval(self, x: NDArray, alpha: NDArray, /) -> NDArray:
        return np.asarray(np.where(x >= 0, x, np.multiply(alpha, x, dtype=x.dtype)), x.dtype)

    def expand(self, x: Array, alpha: Array, /) -> Array:
        return select_n(ge(x, like(x, 0)), mul(alpha, x), x)

    def tangents(self, y: Array, x: Array, alpha: Array) -> Sequence[Tangent | None]:
        slope = select_n(ge(x, like(x, 0)), alpha, like(x, 1))
        below = min(x, like(x, 0))
        return (lambda t: mul(t, slope), lambda t: mul(t, below))


@final
class QPrelu(QuantizedOp, Elementwise):
    """Quantized PReLU; both branches are rescaled on their own (TFLite's PRELU)."""

    name = "qprelu"
    operands = ("x_grid", "y_grid")
    result = "out_grid"

    def infer(self, x: ArrayType, alpha: ArrayType, /, **params: Any) -> ArrayType:
        self.check(x, alpha, **params)
        equal_shapes(self, x, alpha)
        return x.strong()

    def exact(
        self, p: NDArray, q: NDArray, /, *, x_grid: Grid, y_grid: Grid, out_grid: Grid, rounding: Rounding
    ) -> NDArray:
        return fixed_prelu(p, x_grid, q, y_grid, out_grid, rounding)

    def traced(self, p: Array, q: Array, /, *, x_grid: Grid, y_grid: Grid, out_grid: Grid, rounding: Rounding) -> Array:
        x, alpha = (cast(sub(v, like(v, g.zero_point)), dtypes.int64) for v, g in ((p, x_grid), (q, y_grid)))
        with np.errstate(under="ignore"):
            plain = scale_of(x_grid) / scale_of(out_grid)
            sloped = scale_of(x_grid) * scale_of(y_grid) / scale_of(out_grid)
        above = rescale_static(max(x, like(x, 0)), plain, rounding)
        below = rescale_static(wrap_int32(mul(min(x, like(x, 0)), alpha)), sloped, rounding)
        return to_output_grid(select_n(ge(x, like(x, 0)), below, above), out_grid, *out_grid.limits)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        (x, alpha), (t, s) = primals, tangents
        slope = select_n(ge(x, like(x, 0)), alpha, like(x, 1))
        return sum_tangents([None if t is None else mul(t, slope), None if s is None else mul(s, min(x, like(x, 0)))])


prelu = Prelu()
qprelu = QPrelu()
