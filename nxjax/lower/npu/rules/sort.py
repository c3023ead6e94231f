"""Rules of sorting: the elements of rows in order, by one node, whose places companions are gathered by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


def _last(b: GraphBuilder, x: LogicalTensor, axis: int) -> LogicalTensor:
    """``x`` with ``axis`` behind all others."""
    return b.transpose(x, [i for i in range(x.ndim) if i != axis] + [axis])


def _back(b: GraphBuilder, x: LogicalTensor, axis: int) -> LogicalTensor:
    """The inverse of `_last`."""
    return b.transpose(x, [*range(axis), x.ndim - 1, *range(axis, x.ndim - 1)])


def _ordered(b: GraphBuilder, x: LogicalTensor, axis: int, k: int, largest: bool) -> list[LogicalTensor]:
    """The first ``k`` of each row in order, and their places; both with the row last."""
    if x.dtype == dtypes.bool_:
        x = b.cast(x, dtypes.int32)
    rows = _last(b, x, axis)
    shape = (*rows.shape[:-1], k)
    return b.emit_many("top_k", [rows], [shape, shape], [x.kind, dtypes.int32], k=k, largest=largest)


def _top_k(
    b: GraphBuilder, out: tuple[ArrayType, ArrayType], x: LogicalTensor, *, k: int, axis: int
) -> Sequence[LogicalTensor]:
    values, places = _ordered(b, x, axis, k, True)
    plain = values if values.grid is not None else b.cast(values, out[0].dtype)
    return [_back(b, plain, axis), b.cast(_back(b, places, axis), out[1].dtype)]


def _sort(
    b: GraphBuilder,
    out: tuple[ArrayType, ...],
    key: LogicalTensor,
    *others: LogicalTensor,
    dimension: int,
    num_keys: int = 1,
    **_: Any,
) -> Sequence[LogicalTensor]:
    if num_keys > 1:
        raise Unsupported("no NPU sorts by several keys", "sort by one key, which may combine them")
    n = key.shape[dimension]
    values, places = _ordered(b, key, dimension, n, False)
    sorted_key = values if values.grid is not None else b.cast(values, out[0].dtype)
    found = [_back(b, sorted_key, dimension)]
    for x, type in zip(others, out[1:], strict=True):
        counted = np.arange(n).reshape([-1 if i == dimension else 1 for i in range(key.ndim)])
        if x.data is not None and np.array_equal(x.full(), np.broadcast_to(counted, x.shape)):
            found.append(b.cast(_back(b, places, dimension), type.dtype))
        else:
            found.append(_back(b, _taken(b, _last(b, b.full(x), dimension), places), dimension))
    return found


def _taken(b: GraphBuilder, rows: LogicalTensor, places: LogicalTensor) -> LogicalTensor:
    """``rows[..., places[..., i]]``, each row by its own places: counted through all rows."""
    n, count = rows.shape[-1], math.prod(rows.shape[:-1])
    starts = b.constant(np.arange(count, dtype=np.int32).reshape(-1, 1) * n)
    index = b.elementwise("add", [b.reshape(places, (count, n)), starts], dtypes.int32, activation=None)
    flat = b.emit("gather", [b.reshape(rows, (count * n,)), index], (count, n), rows.kind, axis=0)
    return b.reshape(flat, rows.shape)


RULES: Final[dict[str, Rule]] = {"sort": _sort, "top_k": _top_k}
