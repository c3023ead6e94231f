"""Reductions over segments: `jax.ops`' functions, reached as ``nx.ops.segment_sum`` and its kin."""

from __future__ import annotations

from typing import Any

from nxjax.errors import ShapeError
from nxjax.lax._operands import index
from nxjax.ops import scatter as scatters
from nxjax.ops.base import constant
from nxjax.ops.indexing import GatherScatterMode
from nxjax.ops.reduce import highest, lowest
from nxjax.ops.scatter import Scatter, ScatterDimensionNumbers
from nxjax.ops.shape import reshape
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.trace.dtypes import DType


def _segmented(
    name: str, op: Scatter, start: Any, data: Any, segment_ids: Any, num_segments: Any, unique: bool, sorted_: bool
) -> Array:
    x, ids = as_value(data, name), as_value(segment_ids, name)
    if ids.shape != x.shape[: ids.ndim] or not ids.ndim:
        raise ShapeError(f"{name}: one segment id per row of the data", got=f"{ids.type} for {x.type}")
    if num_segments is None:
        if isinstance(ids, Tracer):
            raise ShapeError(
                f"{name}: the number of segments decides the result's shape",
                got="traced segment ids and no num_segments",
                fix="pass num_segments=...",
            )
        num_segments = int(ids.numpy().max(initial=-1)) + 1
    count = index(num_segments, name)
    inner = x.shape[ids.ndim :]
    rows = reshape(x, shape=(ids.size, *inner))
    numbers = ScatterDimensionNumbers(tuple(range(1, len(inner) + 1)), (0,), (0,))
    return op(
        constant(start(x.dtype), x.dtype, (count, *inner)),
        reshape(ids, shape=(ids.size, 1)),
        rows,
        dimension_numbers=numbers,
        indices_are_sorted=sorted_,
        unique_indices=unique,
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    **_: Any,
) -> Array:
    """Sum of the rows of ``data`` with equal ids; ids out of range are dropped.

    >>> import nxjax as nx
    >>> nx.ops.segment_sum(nx.arange(4.0), nx.array([0, 1, 0, 1]), 2).tolist()
    [2.0, 4.0]
    """
    return _segmented(
        "segment_sum",
        scatters.scatter_add,
        _zero,
        data,
        segment_ids,
        num_segments,
        unique_indices,
        indices_are_sorted,
    )


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    **_: Any,
) -> Array:
    """Product of the rows of ``data`` with equal ids; 1 for a segment without rows."""
    return _segmented(
        "segment_prod",
        scatters.scatter_mul,
        _one,
        data,
        segment_ids,
        num_segments,
        unique_indices,
        indices_are_sorted,
    )


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    **_: Any,
) -> Array:
    """Largest of the rows of ``data`` with equal ids; the lowest value of the dtype for a segment without rows."""
    return _segmented(
        "segment_max",
        scatters.scatter_max,
        lowest,
        data,
        segment_ids,
        num_segments,
        unique_indices,
        indices_are_sorted,
    )


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    **_: Any,
) -> Array:
    """Smallest of the rows of ``data`` with equal ids; the highest value of the dtype for a segment without rows."""
    return _segmented(
        "segment_min",
        scatters.scatter_min,
        highest,
        data,
        segment_ids,
        num_segments,
        unique_indices,
        indices_are_sorted,
    )


def _zero(dtype: DType) -> Any:
    return 0


def _one(dtype: DType) -> Any:
    return 1


__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
