"""gather: many slices of one operand at once, at positions that are data.

The index vector is the last dimension of the indices, as in `jax.lax.gather`. Semantics: StableHLO specification,
section gather, plus the mode for indices out of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import DataMovement, LinearOp, NDArray, constant, move_batch, require, zeros
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import ge, le
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.reduce import reduce_and
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType, Shape


def check_indices(op: Op, indices: ArrayType, width: int) -> None:
    """Integer indices whose last dimension is the index vector of ``width`` components."""
    if indices.dtype not in dtypes.INTEGER:
        raise DtypeError(f"{op}: indices are integers", got=indices)
    if not indices.shape or indices.shape[-1] != width:
        raise ShapeError(
            f"{op}: the last dimension of the indices is the index vector", got=indices, expected=f"size {width}"
        )


def check_dims(op: Op, name: str, dims: Sequence[int], ndim: int, ordered: bool = True) -> None:
    """Distinct dimensions of a rank, in ascending order if ``ordered``."""
    fits = all(0 <= d < ndim for d in dims) and len(set(dims)) == len(dims)
    require(op, fits, f"{name} must be distinct dimensions", tuple(dims), f"from 0 to {ndim - 1}")
    require(op, not ordered or sorted(dims) == list(dims), f"{name} must be in ascending order", tuple(dims))


def check_batching(op: Op, x: ArrayType, indices: ArrayType, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Batching dimensions of operand (``ours``) and indices in pairs of one size."""
    require(op, len(ours) == len(theirs), "batching dimensions come in pairs", (tuple(ours), tuple(theirs)))
    check_dims(op, "operand_batching_dims", ours, x.ndim)
    check_dims(op, "batching dimensions of the indices", theirs, indices.ndim - 1, ordered=False)
    if any(x.shape[a] != indices.shape[b] for a, b in zip(ours, theirs, strict=True)):
        raise ShapeError(f"{op}: batching dimensions differ in size", got=f"{x} and {indices}")


def window_starts(
    shape: Shape,
    indices: NDArray,
    sizes: Sequence[int],
    numbers: GatherDimensionNumbers,
    clip: bool,
) -> tuple[dict[int, NDArray], NDArray]:
    """Where every window begins, per operand dimension that does not always begin at 0; and which windows are inside.

    Windows outside are moved inside, so that they can be read; the second result tells them. All are of the indices'
    batch shape.
    """
    batch = indices.shape[:-1]
    inside = np.ones(batch, np.bool_)
    starts: dict[int, NDArray] = {}
    for d, along in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        row = np.arange(shape[d]).reshape([-1 if i == along else 1 for i in range(len(batch))])
        starts[d] = np.broadcast_to(row, batch)
    for k, d in enumerate(numbers.start_index_map):
        column = indices[..., k]
        if indices.dtype == dtypes.uint64:
            column = np.minimum(column, np.uint64(2**62))
        wanted = column.astype(np.int64)
        starts[d] = np.clip(wanted, 0, shape[d] - sizes[d])
        if not clip:
            inside = inside & (starts[d] == wanted)
    return starts, inside


def along(values: NDArray, axis: int, ndim: int) -> NDArray:
    """A row in dimension ``axis`` of ``ndim``."""
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


# The order of dimension numbers in StableHLO.
_WRITTEN: Final = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
)  # fmt: skip


@final
class Gather(DataMovement, LinearOp):
    """Slices of ``slice_sizes`` of x at the index vectors in ``indices``."""

    name = "gather"
    moved = slice(1)

    def infer(
        self,
        x: ArrayType,
        indices: ArrayType,
        /,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        mode: GatherScatterMode,
        fill_value: Any = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> ArrayType:
        n = dimension_numbers
        check_indices(self, indices, len(n.start_index_map))
        require(self, len(slice_sizes) == x.ndim, "one slice size per dimension", slice_sizes, x)
        # Where there are no index vectors, no slice is taken.
        taken = 0 not in indices.shape[:-1]
        if any(not 0 <= k <= (size if taken else max(size, 1)) for k, size in zip(slice_sizes, x.shape, strict=True)):
            raise ShapeError("gather: a slice is larger than the operand", got=f"{slice_sizes} of {x}")
        check_batching(self, x, indices, n.operand_batching_dims, n.start_indices_batching_dims)
        check_dims(self, "collapsed_slice_dims", n.collapsed_slice_dims, x.ndim)
        hidden = (*n.collapsed_slice_dims, *n.operand_batching_dims)
        check_dims(
            self,
            "start_index_map with operand_batching_dims",
            (*n.start_index_map, *n.operand_batching_dims),
            x.ndim,
            False,
        )
        check_dims(self, "collapsed_slice_dims with operand_batching_dims", hidden, x.ndim, False)
        require(self, all(slice_sizes[d] == 1 for d in hidden), "collapsed dimensions have slice size 1", slice_sizes)
        window = [k for d, k in enumerate(slice_sizes) if d not in hidden]
        require(self, len(window) == len(n.offset_dims), "one offset dimension per dimension of a slice", n)
        batch = iter(indices.shape[:-1])
        inner = iter(window)
        rank = len(window) + indices.ndim - 1
        check_dims(self, "offset_dims", n.offset_dims, rank)
        return ArrayType(
            tuple(next(inner) if d in n.offset_dims else next(batch) for d in range(rank)), x.dtype, x.weak
        )

    def eval(
        self,
        x: NDArray,
        indices: NDArray,
        /,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        mode: GatherScatterMode,
        fill_value: Any = None,
        **_: Any,
    ) -> NDArray:
        n = dimension_numbers
        hidden = (*n.collapsed_slice_dims, *n.operand_batching_dims)
        window = [d for d in range(x.ndim) if d not in hidden]
        batch = indices.shape[:-1]
        starts, inside = window_starts(x.shape, indices, slice_sizes, n, mode is not GatherScatterMode.FILL_OR_DROP)
        # Dimensions taken whole come last and are not indexed: NumPy then moves rows, not elements.
        whole = [d for d in window if slice_sizes[d] == x.shape[d]]
        taken = [d for d in range(x.ndim) if d not in whole]
        runs = [d for d in taken if d in window]
        position: list[NDArray] = []
        for d in taken:
            start = starts.get(d, np.zeros(batch, np.int64)).reshape((*batch, *(1 for _ in runs)))
            position.append(start + along(np.arange(slice_sizes[d]), runs.index(d), len(runs)) if d in runs else start)
        full = (*batch, *(slice_sizes[d] for d in (*runs, *whole)))
        if 0 in x.shape:
            y, inside = np.zeros(full, x.dtype), np.zeros(batch, np.bool_)
        else:
            rows = x.transpose((*taken, *whole))
            y = np.broadcast_to(rows[tuple(position)] if position else rows, full)
        if mode is GatherScatterMode.FILL_OR_DROP and not inside.all():
            mask = inside.reshape((*batch, *(1 for _ in window)))
            y = np.where(
                mask, y, np.asarray(default_fill(x.dtype) if fill_value is None else fill_value).astype(x.dtype)
            )
        outer = iter(range(len(batch)))
        inner = iter(len(batch) + (*runs, *whole).index(d) for d in window)
        return y.transpose([next(inner) if d in n.offset_dims else next(outer) for d in range(y.ndim)])

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        y = self(*primals, **params)
        t = tangents[0]
        return y, None if t is None else self(t, primals[1], **{**params, "fill_value": 0})

    def transpose(
        self,
        ct: Array,
        x: UndefinedPrimal,
        indices: Array,
        /,
        *,
        dimension_numbers: GatherDimensionNumbers,
        **params: Any,
    ) -> Tangents:
        kept = {k: params[k] for k in ("indices_are_sorted", "unique_indices", "mode") if k in params}
        numbers = dimension_numbers.as_scatter()
        return ops.scatter_add(zeros(x.type), indices, ct, dimension_numbers=numbers, **kept), None

    def batch(
        self,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        **params: Any,
    ) -> tuple[Any, Any]:
        x, indices = (x if d is None else move_batch(x, d, size) for x, d in zip(args, dims, strict=True))
        operand, positions = (d is not None for d in dims)
        numbers = dimension_numbers.batched(operand, positions)
        sizes = (1 if positions else size, *slice_sizes) if operand else slice_sizes
        return self(x, indices, dimension_numbers=numbers, slice_sizes=sizes, **params), 0

    def stablehlo(
        self,
        b: Any,
        out: ArrayType,
        x: Any,
        indices: Any,
        /,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Shape,
        mode: GatherScatterMode,
        fill_value: Any = None,
        indices_are_sorted: bool = False,
        **_: Any,
    ) -> Any:
        n = dimension_numbers
        if 0 in x.type.shape or 0 in out.shape:
            return b.constant(np.zeros((), x.type.dtype), out)
        numbers = ", ".join(f"{name} = {list(getattr(n, name))}" for name in _WRITTEN)
        attrs = (
            f"dimension_numbers = #stablehlo.gather<{numbers}, index_vector_dim = {indices.type.ndim - 1}>, "
            f"slice_sizes = {b.ints(slice_sizes)}, indices_are_sorted = {str(indices_are_sorted).lower()}"
        )
        y = b.op("stablehlo.gather", (x, indices), out, attrs)
        if mode is not GatherScatterMode.FILL_OR_DROP or not n.start_index_map:
            return y
        bounds = [x.type.shape[d] - slice_sizes[d] for d in n.start_index_map]
        batch = tuple(d for d in range(out.ndim) if d not in n.offset_dims)

        def filled(y: Array, indices: Array) -> Array:
            inside = broadcast_in_dim(in_bounds(indices, bounds), shape=y.shape, broadcast_dimensions=batch)
            fill = default_fill(y.dtype) if fill_value is None else fill_value
            return select_n(inside, constant(fill, y.dtype, y.shape), y)

        return b.inline(filled, (y, indices))


def default_fill(dtype: dtypes.DType) -> Any:
    """What a gather out of bounds gives: NaN, the largest unsigned or smallest signed integer, True; as in JAX."""
    if dtype == dtypes.key:
        return np.zeros((), dtypes.key)
    if dtype in dtypes.INEXACT:
        return float("nan")
    if dtype in dtypes.SIGNED:
        return dtypes.integer_info(dtype).min
    return dtypes.integer_info(dtype).max if dtype in dtypes.UNSIGNED else True


def in_bounds(indices: Array, bounds: Sequence[int]) -> Array:
    """Which index vectors have every component in [0, bound]; the last dimension disappears."""
    inside = and_(ge(indices, 0), le(indices, upper_bounds(indices, bounds)))
    return reduce_and(inside, axes=(indices.ndim - 1,))


def upper_bounds(indices: Array, bounds: Sequence[int]) -> Array:
    """The bounds in the indices' shape and dtype; one that the dtype cannot hold is its largest value."""
    largest = dtypes.integer_info(indices.dtype).max
    row = np.asarray([min(bound, largest) for bound in bounds]).astype(indices.dtype)
    return broadcast_in_dim(wrap(row), shape=indices.shape, broadcast_dimensions=(indices.ndim - 1,))


gather: Final = Gather()
