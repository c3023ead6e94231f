"""Whether a function treats the samples of a batch apart, and whether a loss is their mean: found by running it.

Shapes do not say it: a mean over the batch, a sort or a reversal keeps them. Knows functions of arrays, no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.trace.types import ArrayType

Flat = Callable[[Sequence[NDArray]], Sequence[NDArray]]


def parts_of(f: Flat, types: Sequence[ArrayType], candidates: Iterable[int]) -> int:
    """The first of ``candidates`` into so many parts the samples of ``f``'s inputs may be cut; 0 if there is none.

    Samples lie in the leading dimension of all inputs and results.

    >>> x = [ArrayType((4, 2), np.dtype("float32"))]
    >>> parts_of(lambda xs: [xs[0] * 2], x, (3, 2, 1)), parts_of(lambda xs: [xs[0] - xs[0].mean(0)], x, (3, 2, 1))
    (2, 1)
    """
    sizes = {t.shape[0] if t.shape else 0 for t in types}
    batch = sizes.pop() if len(sizes) == 1 else 0
    wanted = [n for n in candidates if batch and batch % n == 0]
    if not wanted:
        return 0
    draw = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        # Large values too, for what depends on a threshold.
        runs = [(xs, f(xs)) for xs in ([_random(draw, t, size) for t in types] for size in (1, 30))]
        if any(y.shape[:1] != (batch,) for _, ys in runs for y in ys):
            return 0
        return next((n for n in wanted if n == 1 or all(_apart(f, n, xs, ys) for xs, ys in runs)), 0)


def _apart(f: Flat, parts: int, xs: Sequence[NDArray], whole: Sequence[NDArray]) -> bool:
    """Whether ``f`` gives ``whole`` for the parts of ``xs``, too."""
    try:
        cut = [f(p) for p in zip(*(np.split(x, parts) for x in xs), strict=True)]
        return all(_close(y, np.concatenate(ps)) for y, ps in zip(whole, zip(*cut, strict=True), strict=True))
    except Exception:
        # It takes no other number of samples, for whatever reason: a product of two inputs, for one.
        return False


def is_sum(loss: Flat, types: Sequence[ArrayType], fixed: int) -> bool:
    """Whether every sample given twice doubles a loss, so that parts of a batch cannot be averaged.

    Args:
        loss: its first result is a scalar.
        types: of its inputs; those from ``fixed`` on have samples in their leading dimension.
    """
    draw = np.random.default_rng(0)
    given = [_random(draw, t, 1) for t in types]
    twice = [x if i < fixed else np.concatenate([x, x]) for i, x in enumerate(given)]
    with np.errstate(all="ignore"):
        try:
            one, two = (float(loss(xs)[0]) for xs in (given, twice))
        except Exception:
            # It takes no other number of samples, so that it cannot be told.
            return False
    return bool(np.isfinite([one, two]).all()) and abs(one) > 1e-6 and abs(two - 2 * one) < 1e-3 * abs(one)


def _random(draw: np.random.Generator, t: ArrayType, size: int) -> NDArray:
    if t.dtype.kind in "biu":
        # Indices that any table of two rows has.
        return draw.integers(0, 2, t.shape).astype(t.dtype)
    return (draw.standard_normal(t.shape) * size).astype(t.dtype)


def _close(x: NDArray, y: NDArray) -> bool:
    """Equal but for the order of sums."""
    if x.shape != y.shape or x.dtype != y.dtype or x.dtype.kind in "biu":
        return x.dtype == y.dtype and np.array_equal(x, y)
    wide: Any = np.complex128 if x.dtype.kind == "c" else np.float64
    x, y = x.astype(wide), y.astype(wide)
    most = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
    return np.allclose(x, y, rtol=1e-3, atol=1e-4 * (most or 1.0), equal_nan=True)
