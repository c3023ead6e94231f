"""Arrays from nothing: iota. Constants are literals, `full` is a broadcast."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError
from nxjax.ops.base import NDArray, check_counted_axis, check_shape
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape


@final
class Iota(Op):
    """The index along ``dimension``: 0, 1, 2, ... repeated over the other dimensions."""

    name = "iota"

    def infer(self, *, dtype: DType, shape: Shape, dimension: int) -> ArrayType:
        if dtype not in dtypes.NUMBER:
            raise DtypeError(
                "iota: counts in numbers", got=dtypes.short_name(dtype), expected="an integer or float dtype"
            )
        check_counted_axis(self, dimension, len(shape))
        check_shape(self, shape)
        return ArrayType(shape, dtype)

    def eval(self, *, dtype: DType, shape: Shape, dimension: int) -> NDArray:
        row = dtypes.cast(np.arange(shape[dimension]), dtype)
        return np.broadcast_to(row.reshape([-1 if i == dimension else 1 for i in range(len(shape))]), shape)

    def stablehlo(self, b: Any, out: ArrayType, /, *, dtype: DType, shape: Shape, dimension: int) -> Any:
        return b.op("stablehlo.iota", (), out, f"iota_dimension = {dimension} : i64")


iota = Iota()
