"""Rules of operators that read or write elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.onnx.shapes import needed, number
from nxjax.interop.onnx.walk import rule


def _wrapped(index: Any, size: int) -> Any:
    return jnp.where(index < 0, index + size, index)


@rule("Gather", moves=True)
def _gather(x: Any, index: Any, *, axis: int = 0) -> Any:
    if isinstance(x, np.ndarray):
        return np.take(x, needed("Gather", index)[0], axis)
    return jnp.take(x, index, axis=axis)


@rule("GatherElements")
def _gather_elements(x: Any, index: Any, *, axis: int = 0) -> Any:
    a = axis % x.ndim
    places = list(jnp.indices(index.shape, sparse=True))
    places[a] = _wrapped(index, x.shape[a])
    return x[tuple(needed("GatherElements", *places) if isinstance(x, np.ndarray) else places)]


@rule("GatherND", "com.microsoft::GatherND")
def _gather_nd(x: Any, index: Any, *, batch_dims: int = 0) -> Any:
    count = index.shape[-1]
    batch = [
        jnp.arange(n).reshape((1,) * i + (n,) + (1,) * (index.ndim - 2 - i)) for i, n in enumerate(x.shape[:batch_dims])
    ]
    places = [*batch, *(_wrapped(index[..., i], x.shape[batch_dims + i]) for i in range(count))]
    return x[tuple(needed("GatherND", *places) if isinstance(x, np.ndarray) else places)]


def _written(x: Any, places: Any, updates: Any, reduction: str) -> Any:
    if isinstance(x, np.ndarray):
        x = x.copy()
        x[tuple(needed("a scatter of texts", *places))] = updates
        return x
    spot = x.at[places]
    if reduction == "none":
        return spot.set(updates)
    return {"add": spot.add, "mul": spot.multiply, "max": spot.max, "min": spot.min}[reduction](updates)


@rule("ScatterElements", "Scatter")
def _scatter_elements(x: Any, index: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    a = axis % x.ndim
    places = [jnp.broadcast_to(p, index.shape) for p in jnp.indices(index.shape, sparse=True)]
    places[a] = _wrapped(index, x.shape[a])
    return _written(x, tuple(places), updates, reduction)


@rule("ScatterND")
def _scatter_nd(x: Any, index: Any, updates: Any, *, reduction: str = "none") -> Any:
    places = tuple(_wrapped(index[..., i], x.shape[i]) for i in range(index.shape[-1]))
    return _written(x, places, updates, reduction)


@rule("TensorScatter")
def _tensor_scatter(past: Any, update: Any, start: Any = None, *, axis: int = -2, mode: str = "linear") -> Any:
    a = axis % past.ndim
    first = jnp.zeros(past.shape[0], jnp.int64) if start is None else start
    places = first[:, None] + jnp.arange(update.shape[a])
    if mode == "circular":
        places = places % past.shape[a]
    moved, new = jnp.moveaxis(past, a, 1), jnp.moveaxis(update, a, 1)
    rows = jnp.arange(past.shape[0])[:, None]
    return jnp.moveaxis(moved.at[rows, places].set(new), 1, a)


@rule("NonZero")
def _non_zero(x: Any) -> Any:
    (x,) = needed("NonZero", x)
    return jnp.asarray(np.array(np.nonzero(x), np.int64).reshape((x.ndim, -1)))


@rule("Compress")
def _compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    (kept,) = needed("Compress", condition)
    flat = x.reshape(-1) if axis is None else x
    places = np.nonzero(kept[: flat.shape[axis or 0]])[0]
    if isinstance(x, np.ndarray):
        return np.take(flat, places, axis or 0)
    return jnp.take(flat, jnp.asarray(places), axis=axis or 0)


@rule("Unique")
def _unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    (x,) = needed("Unique", x)
    y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        y, first, counts = np.take(y, order, axis or 0), first[order], counts[order]
        inverse = rank[inverse]
    whole = [jnp.asarray(v.astype(np.int64)) for v in (first, inverse, counts)]
    return (y if y.dtype == object else jnp.asarray(y)), *whole


@rule("NonMaxSuppression")
def _non_max_suppression(
    boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None, *, center_point_box: int = 0
) -> Any:
    boxes, scores, most, overlap, least = needed("NonMaxSuppression", boxes, scores, most, overlap, least)
    count = 0 if most is None else int(number(most))
    limit = 0.0 if overlap is None else float(number(overlap))
    floor = -np.inf if least is None else float(number(least))
    found: list[tuple[int, int, int]] = []
    for b in range(boxes.shape[0]):
        x = boxes[b].astype(np.float64)
        if center_point_box:
            low, high = x[:, :2] - x[:, 2:] / 2, x[:, :2] + x[:, 2:] / 2
        else:
            low, high = np.minimum(x[:, :2], x[:, 2:]), np.maximum(x[:, :2], x[:, 2:])
        areas = np.prod(high - low, 1)
        for c in range(scores.shape[1]):
            left = [int(i) for i in np.argsort(-scores[b, c], kind="stable") if scores[b, c, i] > floor]
            kept: list[int] = []
            while left and len(kept) < count:
                i = left.pop(0)
                kept.append(i)
                inner = np.prod(np.maximum(np.minimum(high[i], high[left]) - np.maximum(low[i], low[left]), 0), 1)
                union = areas[i] + areas[left] - inner
                shared = np.divide(inner, union, out=np.zeros_like(inner), where=union > 0)
                left = [j for j, s in zip(left, shared, strict=True) if s <= limit]
            found += [(b, c, i) for i in kept]
    return jnp.asarray(np.array(found, np.int64).reshape(-1, 3))
