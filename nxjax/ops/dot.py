"""The general dot product: what matmul, einsum, tensordot and dense layers are made of.

Knows dimension numbers, not layouts or devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, final

import numpy as np

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops.base import (
    Contraction,
    NDArray,
    Tangent,
    all_weak,
    check_counted_axes,
    check_dtype,
    equal_dtypes,
    eval_by_expand,
)
from nxjax.ops.convert import cast
from nxjax.ops.precision import PrecisionPair, flipped, in_passes, passes, precision_text
from nxjax.ops.shape import transpose
from nxjax.trace import dtypes
from nxjax.trace.array import DEEP
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

Axes = tuple[int, ...]
# ((contracting dimensions of x, of y), (batch dimensions of x, of y))
DotDimensionNumbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]


# ((contracted of the first, of the second), (batch of the first, of the second)).
DotNumbersLike: TypeAlias = Sequence[Sequence[Sequence[int]]]


def product_type(op: Any, x: ArrayType, y: ArrayType, preferred: DType | None) -> DType:
    """The result dtype of a sum of products, and the check that ``preferred`` can be one."""
    dtype = equal_dtypes(op, x, y)
    check_dtype(op, dtypes.NUMERIC, x)
    if preferred is None or preferred == dtype:
        return dtype
    if dtype in dtypes.INTEGER:
        # Integers may also accumulate into floats, where the sum fits or precision does not matter.
        fits = preferred in dtypes.NUMBER
    else:
        fits = dtype in dtypes.INEXACT and preferred in (dtypes.COMPLEX if dtype in dtypes.COMPLEX else dtypes.INEXACT)
    if fits:
        return preferred
    raise DtypeError(
        f"{op.name}: preferred_element_type is of another kind than the operands",
        got=f"{dtypes.short_name(preferred)} for {x} and {y}",
        expected=f"a dtype that holds products of {dtypes.short_name(dtype)}",
    )


def accumulation_dtype(dtype: DType, out: DType, depth: int) -> DType:
    """The dtype in which NumPy sums ``depth`` products of ``dtype``, so that sums come out as on a device.

    Short floats accumulate in float32. Only floats have a fast product in NumPy, and they are exact for short integers:
    float32 while the sum stays below 2^24, float64 while it stays below 2^53.
    """
    if dtype in dtypes.INTEGER:
        bits = 2 * (dtypes.bit_width(dtype) - (dtype in dtypes.SIGNED))
        if dtypes.bit_width(dtype) <= 16:
            return dtypes.float32 if depth << bits <= 1 << 24 else dtypes.float64
        return out if out in dtypes.INTEGER else dtypes.float64
    wide = out if dtypes.bit_width(out) > dtypes.bit_width(dtype) else dtype
    return dtypes.float32 if wide in dtypes.FLOAT and dtypes.bit_width(wide) < 32 else wide


def to_result_dtype(z: NDArray, dtype: DType, out: DType) -> NDArray:
    """A sum of products of ``dtype`` in its result dtype; integers wrap around."""
    if dtype in dtypes.INTEGER and out in dtypes.INTEGER and z.dtype in dtypes.FLOAT:
        z = z.astype(np.int64)
    return z.astype(out, copy=False)


def matrix_product(x: NDArray, y: NDArray, out: DType) -> NDArray:
    """``np.matmul`` that accumulates as `accumulation_dtype` says."""
    work = accumulation_dtype(x.dtype, out, x.shape[-1])
    x, y, dtype = x.astype(work, copy=False), y.astype(work, copy=False), x.dtype
    deep = x.shape[-1] // DEEP
    rows, columns = x.shape[-2], y.shape[-1]
    if deep < 2 or work.kind not in "fc" or deep * rows * columns > rows * x.shape[-1]:
        return to_result_dtype(np.matmul(x, y), dtype, out)
    # Long sums in parts of `DEEP` products, or they lose digits.
    whole = deep * DEEP
    parts = np.matmul(
        np.moveaxis(x[..., :whole].reshape(*x.shape[:-1], deep, DEEP), -2, -3),
        y[..., :whole, :].reshape(*y.shape[:-2], deep, DEEP, columns),
    )
    return to_result_dtype(parts.sum(-3) + np.matmul(x[..., whole:], y[..., whole:, :]), dtype, out)


def align_dtypes(x: Array, y: Array) -> tuple[Array, Array]:
    """Both operands in the wider of their dtypes; what a transposed product with its own result dtype needs."""
    if x.dtype == y.dtype:
        return x, y
    # Promotion knows no dtype for a float of 8 bits beside another float.
    narrow = [v.dtype.itemsize == 1 and v.dtype in dtypes.FLOAT for v in (x, y)]
    if any(narrow):
        dtype = dtypes.float32 if all(narrow) else (y if narrow[0] else x).dtype
    else:
        dtype = dtypes.promote((x.dtype, False), (y.dtype, False))[0]
    return cast(x, dtype), cast(y, dtype)


def free(ndim: int, *used: Axes) -> Axes:
    taken = {a for axes in used for a in axes}
    return tuple(i for i in range(ndim) if i not in taken)


@final
class DotGeneral(Contraction):
    """Sum of products over contracting dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, then x's free dimensions, then y's. ``preferred_element_type`` is the dtype of
    the accumulator and of the result.
    """

    name = "dot_general"

    def infer(
        self,
        x: ArrayType,
        y: ArrayType,
        /,
        *,
        dimension_numbers: DotDimensionNumbers,
        precision: PrecisionPair = None,
        preferred_element_type: DType | None = None,
    ) -> ArrayType:
        return _infer(x, y, dimension_numbers, preferred_element_type)

    def eval(
        self,
        x: NDArray,
        y: NDArray,
        /,
        *,
        dimension_numbers: DotDimensionNumbers,
        precision: PrecisionPair = None,
        preferred_element_type: DType | None = None,
    ) -> NDArray:
        if in_passes(precision, x, y):
            kinds = {"precision": precision, "preferred_element_type": preferred_element_type}
            return eval_by_expand(self, (x, y), {"dimension_numbers": dimension_numbers, **kinds}, DOT_PASSES)
        (xc, yc), (xb, yb) = dimension_numbers
        out = preferred_element_type or x.dtype
        if x.ndim == y.ndim == 2 and not xb and len(xc) == 1:
            # Transposed views go to BLAS as they are.
            return matrix_product(x if xc == (1,) else x.T, y if yc == (0,) else y.T, out)
        xf, yf = free(x.ndim, xc, xb), free(y.ndim, yc, yb)
        batch, rows = _sizes(x, xb), _sizes(x, xf)
        columns, depth = _sizes(y, yf), math.prod(_sizes(x, xc))
        left = x.transpose(*xb, *xf, *xc).reshape(*batch, math.prod(rows), depth)
        right = y.transpose(*yb, *yc, *yf).reshape(*batch, depth, math.prod(columns))
        return matrix_product(left, right, out).reshape((*batch, *rows, *columns))

    def tangents(self, out: Array, x: Array, y: Array, **params: Any) -> Sequence[Tangent | None]:
        return (lambda t: self(t, y, **params), lambda t: self(x, t, **params))

    def transpose(
        self,
        ct: Array,
        x: Any,
        y: Any,
        /,
        *,
        dimension_numbers: DotDimensionNumbers,
        precision: PrecisionPair = None,
        **_: Any,
    ) -> Tangents:
        if isinstance(x, UndefinedPrimal):
            return self._cotangent(ct, x, y, dimension_numbers, precision, first=True), None
        (xc, yc), (xb, yb) = dimension_numbers
        return None, self._cotangent(ct, y, x, ((yc, xc), (yb, xb)), flipped(precision), first=False)

    def _cotangent(
        self,
        ct: Array,
        x: UndefinedPrimal,
        y: Array,
        numbers: DotDimensionNumbers,
        precision: PrecisionPair,
        first: bool,
    ) -> Array:
        """Cotangent of ``x``: the product of ``ct`` with ``y`` over y's free dimensions, in x's order of dimensions."""
        (xc, yc), (xb, yb) = numbers
        xf, yf = free(x.ndim, xc, xb), free(y.ndim, yc, yb)
        n = len(xb)
        # In ct: batch, then the free dimensions of the first operand, then those of the second.
        ct_yf = tuple(range(n + len(xf), ct.ndim)) if first else tuple(range(n, n + len(yf)))
        product = ((ct_yf, yf), (tuple(range(n)), yb))
        found = self(*align_dtypes(ct, y), dimension_numbers=product, precision=precision, preferred_element_type=None)
        # found: batch, x's free, then x's contracting dimensions in the order of y's.
        by_y = sorted(range(len(yc)), key=yc.__getitem__)
        made = (*xb, *xf, *(xc[i] for i in by_y))
        order = sorted(range(len(made)), key=made.__getitem__)
        if order != list(range(len(order))):
            found = transpose(found, permutation=tuple(order))
        return cast(found, x.dtype)

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, dimension_numbers: DotDimensionNumbers, **params: Any
    ) -> tuple[Any, Any]:
        (xc, yc), (xb, yb) = dimension_numbers
        dx, dy = dims
        xc, xb = shifted(xc, dx), shifted(xb, dx)
        yc, yb = shifted(yc, dy), shifted(yb, dy)
        if dx is not None and dy is not None:
            xb, yb, found = (dx, *xb), (dy, *yb), 0
        elif dx is not None:
            # The batch is one more free dimension of x; nothing is copied.
            found = len(xb) + free(args[0].ndim, xc, xb).index(dx)
        else:
            assert dy is not None
            rows = args[0].ndim - len(xc)
            found = rows + free(args[1].ndim, yc, yb).index(dy)
        return self(*args, dimension_numbers=((xc, yc), (xb, yb)), **params), found

    def stablehlo(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        y: Any,
        /,
        *,
        dimension_numbers: DotDimensionNumbers,
        precision: PrecisionPair = None,
        **_: Any,
    ) -> Any:
        (xc, yc), (xb, yb) = dimension_numbers
        if x.type.dtype in dtypes.INTEGER and out.dtype in dtypes.INEXACT:
            x, y = b.convert(x, out.dtype), b.convert(y, out.dtype)
        numbers = ", ".join(
            f"{side}_{kind}_dimensions = {list(axes)}"
            for side, kind, axes in (
                ("lhs", "batching", xb),
                ("rhs", "batching", yb),
                ("lhs", "contracting", xc),
                ("rhs", "contracting", yc),
            )
        )
        attrs = f"dot_dimension_numbers = #stablehlo.dot<{numbers}>, {precision_text(precision)}"
        return b.op("stablehlo.dot_general", (x, y), out, attrs)


@lru_cache(4096)
def _infer(x: ArrayType, y: ArrayType, dimension_numbers: DotDimensionNumbers, preferred: DType | None) -> ArrayType:
    (xc, yc), (xb, yb) = dimension_numbers
    for what, a, b in (("contracting", xc, yc), ("batch", xb, yb)):
        if len(a) != len(b):
            raise ParameterError(
                f"dot_general: {what} dimensions differ in number", got=f"{a} and {b}", expected="pairs"
            )
    for axes, t in (((*xc, *xb), x), ((*yc, *yb), y)):
        check_counted_axes(dot_general, axes, t.ndim)
    for what, a, b in (("contracting", xc, yc), ("batch", xb, yb)):
        sizes, wanted = tuple(x.shape[i] for i in a), tuple(y.shape[i] for i in b)
        if sizes != wanted:
            raise ShapeError(
                f"dot_general: {what} dimensions differ in size",
                got=f"{x} and {y}: {sizes} in dimensions {a} of the first, {wanted} in {b} of the second",
                expected="equal sizes",
                fix=_transposing_fix(x, y, xc, yc, xb, yb),
            )
    dtype = product_type(dot_general, x, y, preferred)
    shape = (
        *(x.shape[i] for i in xb),
        *(x.shape[i] for i in free(x.ndim, xc, xb)),
        *(y.shape[i] for i in free(y.ndim, yc, yb)),
    )
    return ArrayType(shape, dtype, all_weak(x, y) and preferred is None)


def _sizes(x: NDArray, axes: Axes) -> Shape:
    return tuple(x.shape[i] for i in axes)


def shifted(axes: Axes, dim: int | None) -> Axes:
    return axes if dim is None else tuple(a + (a >= dim) for a in axes)


def _transposing_fix(x: ArrayType, y: ArrayType, xc: Axes, yc: Axes, xb: Axes, yb: Axes) -> str | None:
    """A hint where one operand transposed would fit."""
    if len(xc) != 1 or len(yc) != 1:
        return None
    size = x.shape[xc[0]]
    fitting = [i for i in free(y.ndim, yb) if y.shape[i] == size]
    if len(fitting) == 1:
        return f"dimension {fitting[0]} of the second operand has size {size}: is it the one to contract?"
    size = y.shape[yc[0]]
    fitting = [i for i in free(x.ndim, xb) if x.shape[i] == size]
    if len(fitting) == 1:
        return f"dimension {fitting[0]} of the first operand has size {size}: is it the one to contract?"
    return None


dot_general = DotGeneral()
# The products that an algorithm asks for.
DOT_PASSES: Final = passes(dot_general)
