"""one_hot: the rows of the identity matrix picked by integers, as one equation."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.ops.base import CompositeOp, NDArray, Nondifferentiable, check_counted_axis, check_dtype, require
from nxjax.ops.compare import eq
from nxjax.ops.convert import cast, convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape


@final
class OneHot(Nondifferentiable, CompositeOp):
    """1 where the index along the new ``axis`` is the operand's value, else 0; values out of range give zeros."""

    name = "one_hot"

    def infer(self, x: ArrayType, /, *, num_classes: int, dtype: DType, axis: int) -> ArrayType:
        check_dtype(self, dtypes.NUMBER - dtypes.COMPLEX, x)
        require(self, num_classes >= 0, "num_classes is negative", num_classes)
        check_counted_axis(self, axis, x.ndim + 1)
        return ArrayType(self._shape(x.shape, num_classes, axis), dtype)

    def _shape(self, shape: Shape, num_classes: int, axis: int) -> Shape:
        return (*shape[:axis], num_classes, *shape[axis:])

    def eval(self, x: NDArray, /, *, num_classes: int, dtype: DType, axis: int) -> NDArray:
        row = np.arange(num_classes).reshape((num_classes, *(1,) * (x.ndim - axis)))
        wide = x if x.dtype.isbuiltin == 1 else x.astype(np.float64)
        return np.asarray(np.expand_dims(wide, axis) == row).astype(dtype)

    def expand(self, x: Array, /, *, num_classes: int, dtype: DType, axis: int) -> Array:
        shape = self._shape(x.shape, num_classes, axis)
        # Few index dtypes hold every class number; int32 does.
        index = dtypes.int32 if dtypes.bit_width(x.dtype) < 32 and x.dtype in dtypes.INTEGER else x.dtype
        wide = cast(x, index)
        kept = tuple(i for i in range(len(shape)) if i != axis)
        mine = broadcast_in_dim(wide, shape=shape, broadcast_dimensions=kept)
        return convert_element_type(eq(mine, iota(dtype=index, shape=shape, dimension=axis)), dtype=dtype)

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, num_classes: int, dtype: DType, axis: int
    ) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        # The batch stays left of the new axis when they meet.
        after = axis + (d <= axis)
        return self(args[0], num_classes=num_classes, dtype=dtype, axis=after), d + (after <= d)


one_hot = OneHot()
