"""Reductions over segments: `jax.ops`' functions, reached as ``nx.ops.segment_sum`` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.lax._operands import index
from nxjax.lax.shapes import concatenate
from nxjax.lax.sharding import with_sharding_constraint
from nxjax.numpy.documented import named
from nxjax.numpy.promotion import widen_index
from nxjax.ops import reduce as reduces
from nxjax.ops import scatter as scatters
from nxjax.ops.base import constant
from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.scatter import Scatter
from nxjax.ops.shape import reshape
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.trace.dtypes import highest, lowest


def _segmented(
    name: str, op: Scatter, start: Any, total: Any, data: Any, segment_ids: Any, num_segments: Any, sorted_: bool,
    unique: bool, bucket_size: int | None, mode: Any, out_sharding: Any,
) -> Array:  # fmt: skip
    """Rows scattered into their segments; of each bucket of ``bucket_size`` rows apart first, if that is given."""
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
    if count < 0:
        raise ShapeError(f"{name}: num_segments is negative", got=count)
    how = GatherScatterMode.FILL_OR_DROP if mode is None else GatherScatterMode.from_any(mode)
    rows = reshape(x, shape=(ids.size, *x.shape[ids.ndim :]))
    sizes: tuple[int, ...] = (count,)
    if bucket_size is not None:
        if bucket_size < 1:
            raise ParameterError(f"{name}: bucket_size", got=bucket_size, expected="1 or more")
        sizes = (-(-ids.size // bucket_size), count)
        ids = widen_index(ids)  # which holds the number of buckets, too
    places = reshape(ids, shape=(ids.size, 1))
    if bucket_size is not None:
        buckets = constant(np.arange(ids.size) // bucket_size, ids.dtype)
        places = concatenate([reshape(buckets, shape=(ids.size, 1)), places], 1)
    inner, outer = tuple(range(1, rows.ndim)), tuple(range(len(sizes)))
    y = op(
        constant(start(x.dtype), x.dtype, (*sizes, *rows.shape[1:])),
        places,
        rows,
        dimension_numbers=ScatterDimensionNumbers(inner, outer, outer),
        indices_are_sorted=sorted_ and bucket_size is None,
        unique_indices=unique,
        mode=how,
    )
    if bucket_size is not None:
        return total(y, axes=(0,))
    return y if out_sharding is None else with_sharding_constraint(y, out_sharding)


def _segments(name: str, op: Scatter, start: Any, total: Any, line: str, call: str, shown: str) -> Callable[..., Array]:
    """The function ``name``: ``op`` from ``start`` on, and ``total`` of what is reduced apart."""

    @named(name, _TEXT.format(line=line, name=name, call=call, shown=shown))
    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: Any = None,
    ) -> Array:
        promises = indices_are_sorted, unique_indices
        return _segmented(
            name, op, start, total, data, segment_ids, num_segments, *promises, bucket_size, mode, out_sharding
        )

    return function


_TEXT = """{line}

Args:
    data: array; its leading dimensions are those of ``segment_ids``.
    segment_ids: integers.
    num_segments: size of the result; by default the highest id + 1, which needs concrete ids.
    indices_are_sorted, unique_indices: promises about the ids.
    bucket_size: first reduce this many rows at a time, for smaller rounding errors.
    mode: for ids out of range, as in `.at`; by default "drop".
    out_sharding: the layout of the result on devices.

Raises:
    ShapeError: the ids do not fit the data, or are traced without ``num_segments``.

>>> nx.ops.{name}({call}).tolist()
{shown}
"""

segment_sum = _segments(
    "segment_sum", scatters.scatter_add, lambda dtype: 0, reduces.reduce_sum,
    "Sum of the rows of ``data`` with equal ids; ids out of range are dropped.",
    "nx.arange(4.0), nx.array([0, 1, 0, 1]), 2", "[2.0, 4.0]",
)  # fmt: skip
segment_prod = _segments(
    "segment_prod", scatters.scatter_mul, lambda dtype: 1, reduces.reduce_prod,
    "Product of the rows of ``data`` with equal ids; 1 for a segment without rows.",
    "nx.array([2, 3, 4]), nx.array([0, 0, 2]), 3", "[6, 1, 4]",
)  # fmt: skip
segment_max = _segments(
    "segment_max", scatters.scatter_max, lowest, reduces.reduce_max,
    "Largest of the rows of ``data`` with equal ids; the lowest value of the dtype for a segment without rows.",
    "nx.array([2.0, 3.0]), nx.array([0, 0]), 2", "[3.0, -inf]",
)  # fmt: skip
segment_min = _segments(
    "segment_min", scatters.scatter_min, highest, reduces.reduce_min,
    "Smallest of the rows of ``data`` with equal ids; the highest value of the dtype for a segment without rows.",
    "nx.array([2.0, 3.0]), nx.array([0, 0]), 2", "[2.0, inf]",
)  # fmt: skip


__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
