"""Reductions over axes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from nxjax.ops.base import LinearOp, NDArray, check_axes, of_dtype
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Linear, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


class Reduce(Op):
    """Combines the elements along ``axes``, which disappear from the shape."""

    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER
    hlo: ClassVar[str]

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...]) -> ArrayType:
        of_dtype(self, self.allowed, x)
        check_axes(self, axes, x.ndim)
        return x.with_shape(tuple(n for i, n in enumerate(x.shape) if i not in axes))

    @abstractmethod
    def identity(self, dtype: DType) -> Any:
        """The value that changes nothing, and the result for no elements."""

    def batch(
        self, size: int, args: Sequence[Array], dims: Sequence[int | None], *, axes: tuple[int, ...]
    ) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        moved = tuple(a + (a >= d) for a in axes)
        return self(args[0], axes=moved), d - sum(a < d for a in moved)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, axes: tuple[int, ...]) -> Any:
        return b.reduce(self.hlo, x, b.constant(self.identity(x.type.dtype), ArrayType((), x.type.dtype)), axes, out)


@final
class ReduceSum(LinearOp, Reduce):
    """Sum along ``axes``. float16 and bfloat16 accumulate in float32."""

    name = "reduce_sum"
    hlo = "add"

    def identity(self, dtype: DType) -> Any:
        return 0

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        wide = np.float32 if x.dtype.itemsize < 4 and x.dtype in dtypes.FLOAT else x.dtype
        return np.asarray(np.sum(x, axis=axes, dtype=wide)).astype(x.dtype)

    def transpose(self, ct: Array, x: Linear, /, *, axes: tuple[int, ...]) -> Sequence[Array | None]:
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        return (broadcast_in_dim(ct, shape=x.shape, broadcast_dimensions=kept),)


reduce_sum = ReduceSum()
