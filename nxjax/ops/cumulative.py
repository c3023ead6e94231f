"""Running reductions along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp.

The lowering is Hillis and Steele's scan: log2(n) rounds, each combining every element with the one 2^k places before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from nxjax.ops.base import LinearOp, NDArray, check_axis, constant, like, of_dtype
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Linear, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


class Cumulative(Op):
    """Result i combines elements 0 to i along ``axis``; from the other end with ``reverse``."""

    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER

    def infer(self, x: ArrayType, /, *, axis: int, reverse: bool = False) -> ArrayType:
        of_dtype(self, self.allowed, x)
        check_axis(self, axis, x.ndim)
        return x

    @abstractmethod
    def combine(self, x: Array, y: Array) -> Array:
        """The reduction, as ops."""

    @abstractmethod
    def identity(self, dtype: DType) -> Any: ...

    @abstractmethod
    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        """The reduction along ``axis``, in NumPy."""

    def eval(self, x: NDArray, /, *, axis: int, reverse: bool = False) -> NDArray:
        wide = x.astype(np.float32) if x.dtype in dtypes.FLOAT and x.dtype.itemsize < 4 else x
        if reverse:
            wide = np.flip(wide, axis)
        y = self.accumulate(wide, axis)
        return np.asarray(np.flip(y, axis) if reverse else y).astype(x.dtype)

    def expand(self, x: Array, /, *, axis: int, reverse: bool = False) -> Array:
        from nxjax.ops.slicing import pad, slice

        n = x.shape[axis]
        step = 1
        while step < n:
            config = [(0, 0, 0)] * x.ndim
            config[axis] = (0, step, 0) if reverse else (step, 0, 0)
            starts, limits = [0] * x.ndim, list(x.shape)
            if reverse:
                starts[axis] = step
            else:
                limits[axis] = n - step
            shifted = slice(x, start_indices=tuple(starts), limit_indices=tuple(limits))
            shifted = pad(shifted, constant(self.identity(x.dtype), x.dtype), padding_config=tuple(config))
            x = self.combine(shifted, x)
            step *= 2
        return x

    def batch(
        self, size: int, args: Sequence[Array], dims: Sequence[int | None], *, axis: int, reverse: bool = False
    ) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], axis=axis + (axis >= d), reverse=reverse), d

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, **params: Any) -> Any:
        return b.inline(self.expand, (x,), params)


@final
class Cumsum(LinearOp, Cumulative):
    """Running sum"""

    name = "cumsum"

    def combine(self, x: Array, y: Array) -> Array:
        from nxjax.ops.arithmetic import add

        return add(x, y)

    def identity(self, dtype: DType) -> Any:
        return 0

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.add.accumulate(x, axis, dtype=x.dtype)

    def transpose(self, ct: Array, x: Linear, /, *, axis: int, reverse: bool = False) -> Sequence[Array | None]:
        return (self(ct, axis=axis, reverse=not reverse),)


@final
class Cumprod(Cumulative):
    """Running product"""

    name = "cumprod"

    def combine(self, x: Array, y: Array) -> Array:
        from nxjax.ops.arithmetic import mul

        return mul(x, y)

    def identity(self, dtype: DType) -> Any:
        return 1

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.multiply.accumulate(x, axis, dtype=x.dtype)


class _Extremum(Cumulative):
    allowed = dtypes.NUMERIC - dtypes.COMPLEX


@final
class Cummax(_Extremum):
    """Running maximum"""

    name = "cummax"

    def combine(self, x: Array, y: Array) -> Array:
        from nxjax.ops.arithmetic import max

        return max(x, y)

    def identity(self, dtype: DType) -> Any:
        from nxjax.ops.reduce import lowest

        return lowest(dtype)

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.maximum.accumulate(x, axis)


@final
class Cummin(_Extremum):
    """Running minimum"""

    name = "cummin"

    def combine(self, x: Array, y: Array) -> Array:
        from nxjax.ops.arithmetic import min

        return min(x, y)

    def identity(self, dtype: DType) -> Any:
        from nxjax.ops.reduce import highest

        return highest(dtype)

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.minimum.accumulate(x, axis)


@final
class Cumlogsumexp(Cumulative):
    """Running log of the sum of exponentials, without overflow"""

    name = "cumlogsumexp"
    allowed = dtypes.FLOAT

    def combine(self, x: Array, y: Array) -> Array:
        from nxjax.ops.arithmetic import add, max, sub
        from nxjax.ops.compare import eq
        from nxjax.ops.elementary import exp, log
        from nxjax.ops.select import select_n

        top = max(x, y)
        # Two times -inf (or inf) has no finite reference point: any will do.
        shift = select_n(eq(sub(top, top), 0), like(top, 0), top)
        return add(log(add(exp(sub(x, shift)), exp(sub(y, shift)))), shift)

    def identity(self, dtype: DType) -> Any:
        from nxjax.ops.reduce import lowest

        return lowest(dtype)

    def accumulate(self, x: NDArray, axis: int) -> NDArray:
        return np.logaddexp.accumulate(x, axis)


cumsum = Cumsum()
cumprod = Cumprod()
cummax = Cummax()
cummin = Cummin()
cumlogsumexp = Cumlogsumexp()
