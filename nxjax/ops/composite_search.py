"""searchsorted: where numbers would be inserted into sorted ones, as one equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

import numpy as np

from nxjax.ops.arithmetic import add
from nxjax.ops.base import (
    CompositeOp,
    NDArray,
    Nondifferentiable,
    check_dtype,
    eval_by_expand,
    like,
    move_batch,
    require,
)
from nxjax.ops.bitwise import and_, not_, or_
from nxjax.ops.compare import eq, lt, ne
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import gather
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType

Side = Literal["left", "right"]


def index_dtype(size: int) -> DType:
    """Of places among ``size`` elements."""
    return dtypes.int32 if size < 2**31 else dtypes.int64


def precedes(x: Array, y: Array) -> Array:
    """x < y in sorting order, which has nan after everything; not of complex numbers."""
    if x.dtype not in dtypes.INEXACT:
        return lt(x, y)
    return or_(lt(x, y), and_(ne(y, y), eq(x, x)))


def halved(x: Array, q: Array, side: Side, before: Callable[[Array, Array], Array]) -> Array:
    """The search by halves; ``before`` is the order."""
    low = like(q.type.with_dtype(index_dtype(x.shape[-1])), 0)
    outer, n = x.ndim - 1, x.shape[-1]
    batch = tuple(range(outer))
    numbers = GatherDimensionNumbers((), (outer,), (outer,), batch, batch)
    # Of the `left` places from `low` on, the first half is passed over where its last element comes before.
    left = n + 1
    while left > 1:
        half = left // 2
        start, limit = (*(0 for _ in batch), half - 1), x.shape
        rest = slice(x, start_indices=start, limit_indices=limit, strides=None)
        at = reshape(low, shape=(*low.shape, 1))
        sizes = (1,) * x.ndim
        here = gather(rest, at, dimension_numbers=numbers, slice_sizes=sizes, mode=GatherScatterMode.CLIP)
        after = before(here, q) if side == "left" else not_(before(q, here))
        low = select_n(after, low, add(low, like(low, half)))
        left -= half
    return low


@final
class SearchSorted(Nondifferentiable, CompositeOp):
    """Where elements of the second operand belong in the sorted last dimension of the first.

    Before those that are equal (``side`` "left") or behind them; nan is behind all numbers. Other dimensions of the
    first operand lead those of the second.
    """

    name = "searchsorted"

    def infer(self, x: ArrayType, q: ArrayType, /, *, side: Side) -> ArrayType:
        check_dtype(self, dtypes.NUMBER - dtypes.COMPLEX, x, q)
        require(self, x.dtype == q.dtype, "takes one dtype", f"{x.dtype.name} and {q.dtype.name}")
        require(self, x.ndim > 0, "looks along a dimension", x)
        require(self, q.shape[: x.ndim - 1] == x.shape[:-1], "dimensions of the first lead", q, f"{x.shape[:-1]}...")
        require(self, side in ("left", "right"), "side is left or right", side)
        return ArrayType(q.shape, index_dtype(x.shape[-1]))

    def eval(self, x: NDArray, q: NDArray, /, *, side: Side) -> NDArray:
        if x.dtype.isbuiltin != 1 or x.ndim > 1:
            return eval_by_expand(self, (x, q), {"side": side})
        return np.asarray(np.searchsorted(x, q, side)).astype(index_dtype(x.size))

    def expand(self, x: Array, q: Array, /, *, side: Side) -> Array:
        return halved(x, q, side, precedes)

    def batch(self, size: int, args: Arrays, dims: Dims, *, side: Side) -> tuple[Any, Any]:
        x, q = args
        if dims[0] is None and x.ndim == 1:
            return self(x, q, side=side), dims[1]
        return self(move_batch(x, dims[0], size), move_batch(q, dims[1], size), side=side), 0


searchsorted = SearchSorted()
