"""Where the extremum is: argmax and argmin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.base import (
    NDArray,
    Nondifferentiable,
    RemovesAxes,
    check_counted_axes,
    check_dtype,
    define_op,
    like,
    require,
)
from nxjax.ops.bitwise import or_
from nxjax.ops.compare import eq, ne
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.reduce import reduce_max, reduce_min
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


class _ArgExtremum(Nondifferentiable, RemovesAxes):
    """Index of the first extremum along the one axis in ``axes``; a NaN counts as the extremum."""

    largest: ClassVar[bool] = True

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...], index_dtype: DType) -> ArrayType:
        check_dtype(self, dtypes.NUMERIC - dtypes.COMPLEX, x)
        require(self, len(axes) == 1, "takes one axis", axes)
        require(self, index_dtype in dtypes.INTEGER, "index_dtype is an integer dtype", index_dtype)
        (axis,) = check_counted_axes(self, axes, x.ndim)
        if x.shape[axis] == 0:
            raise ShapeError(f"{self}: there is no extremum of nothing", got=f"{x} along axis {axis}")
        require(
            self,
            x.shape[axis] - 1 <= dtypes.integer_info(index_dtype).max,
            "index_dtype does not hold the last index",
            f"{index_dtype.name} for {x} along axis {axis}",
            fix="take a wider index_dtype",
        )
        return ArrayType(x.shape[:axis] + x.shape[axis + 1 :], index_dtype)

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...], index_dtype: DType) -> NDArray:
        function = np.argmax if self.largest else np.argmin
        wide = x if x.dtype.isbuiltin == 1 else x.astype(np.float32)
        return np.asarray(function(wide, axis=axes[0])).astype(index_dtype)

    def expand(self, x: Array, /, *, axes: tuple[int, ...], index_dtype: DType) -> Array:
        axis, n = axes[0], x.shape[axes[0]]
        if x.dtype == dtypes.bool_:
            x = convert_element_type(x, dtype=dtypes.uint8)
        top = (reduce_max if self.largest else reduce_min)(x, axes=axes)
        kept = tuple(i for i in range(x.ndim) if i != axis)
        attained = eq(x, broadcast_in_dim(top, shape=x.shape, broadcast_dimensions=kept))
        if x.dtype in dtypes.FLOAT:
            attained = or_(attained, ne(x, x))
        index = iota(dtype=dtypes.int32 if n < 2**31 else dtypes.int64, shape=x.shape, dimension=axis)
        first = reduce_min(select_n(attained, like(index, n), index), axes=axes)
        return convert_element_type(first, dtype=index_dtype)


argmax = define_op(_ArgExtremum, "argmax", "Index of the first largest element")
argmin = define_op(_ArgExtremum, "argmin", "Index of the first smallest element", largest=False)
