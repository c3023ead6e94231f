"""Rules of boxes that are chosen, of random numbers, and of rows found by keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.interop.tflite.graph import TFLiteNode
from nxjax.interop.tflite.shapes import ints, number
from nxjax.interop.tflite.walk import TFLiteScope, rule


def _overlaps(boxes: Any) -> Any:
    """Intersection over union of every pair of boxes, given by two opposite corners."""
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    areas = jnp.prod(high - low, 1)
    inner = jnp.prod(jnp.maximum(jnp.minimum(high[:, None], high[None]) - jnp.maximum(low[:, None], low[None]), 0), 2)
    union = areas[:, None] + areas[None] - inner
    empty = (areas[:, None] <= 0) | (areas[None] <= 0)
    return jnp.where(empty, 0, inner / jnp.where(empty, 1, union))


def _chosen(boxes: Any, scores: Any, most: int, limit: Any, floor: Any, sigma: Any) -> tuple[Any, Any, Any]:
    """Boxes from the best score on, without those that overlap one that was taken; rows that are left over are 0."""
    overlaps = _overlaps(boxes)
    decay = None if sigma is None else jnp.where(sigma > 0, -0.5 / jnp.where(sigma > 0, sigma, 1), 0)

    def step(left: Any, _: Any) -> Any:
        at = jnp.argmax(left)
        best = left[at]
        good = best > floor
        row = overlaps[at]
        weight = jnp.where(row <= limit, 1.0 if decay is None else jnp.exp(decay * row * row), 0).astype(left.dtype)
        after = jnp.where(weight > 0, left * weight, -jnp.inf).at[at].set(-jnp.inf)
        return jnp.where(good, after, left), (at, best, good)

    _, (places, values, good) = lax.scan(step, jnp.where(scores > floor, scores, -jnp.inf), None, length=most)
    count = jnp.sum(good).astype(jnp.int32)
    return jnp.where(good, places, 0).astype(jnp.int32), jnp.where(good, values, 0), count


@rule("NON_MAX_SUPPRESSION_V4", known=("most",))
def _suppression(boxes: Any, scores: Any, most: Any, limit: Any, floor: Any) -> Any:
    places, _, count = _chosen(boxes, scores, number(most), limit.reshape(()), floor.reshape(()), None)
    return places, count


@rule("NON_MAX_SUPPRESSION_V5", known=("most",))
def _soft_suppression(boxes: Any, scores: Any, most: Any, limit: Any, floor: Any, sigma: Any) -> Any:
    numbers = (v.reshape(()) for v in (limit, floor, sigma))
    return _chosen(boxes, scores, number(most), *numbers)


@rule("HASHTABLE_LOOKUP")
def _rows_by_key(wanted: Any, keys: Any, rows: Any) -> Any:
    at = jnp.clip(jnp.searchsorted(keys, wanted), 0, keys.shape[0] - 1)
    hit = keys[at] == wanted
    found = jnp.take(rows, at, axis=0)
    return jnp.where(hit.reshape(hit.shape + (1,) * (found.ndim - 1)), found, 0), hit.astype(jnp.uint8)


def _key(scope: TFLiteScope, seed: int, more: int) -> Any:
    """Another key for each operator of a walk, the same in every walk."""
    walker = scope.walker
    walker.draws += 1
    return random.fold_in(random.key((seed ^ more) & 0xFFFFFFFF or walker.seed), walker.draws)


@rule("RANDOM_STANDARD_NORMAL", known=("shape",))
def _normal(shape: Any, *, seed: int, seed2: int, scope: TFLiteScope) -> Any:
    return random.normal(_key(scope, seed, seed2), ints(shape), np.float32)


@rule("RANDOM_UNIFORM", known=("shape",))
def _uniform(shape: Any, *, seed: int, seed2: int, scope: TFLiteScope) -> Any:
    return random.uniform(_key(scope, seed, seed2), ints(shape), np.float32)


@rule("MULTINOMIAL", known=("count",))
def _multinomial(logits: Any, count: Any, *, seed: int, seed2: int, scope: TFLiteScope, node: TFLiteNode) -> Any:
    key, n = _key(scope, seed, seed2), number(count)
    drawn = random.categorical(key, logits[:, None, :], -1, shape=(logits.shape[0], n))
    return drawn.astype(node.out.dtype)
