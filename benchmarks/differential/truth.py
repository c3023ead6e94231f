"""A case's truth as a library of NumPy: functions of each element in float64, differentiated by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import optree

_OFFSETS = (-3, -2, -1, 1, 2, 3)
_WEIGHTS = (-1 / 60, 3 / 20, -3 / 4, 3 / 4, -3 / 20, 1 / 60)  # the central difference of sixth order


def _slope(function: Callable[..., Any], xs: Sequence[Any], i: int) -> Any:
    """The slope of each element of ``function`` in operand ``i``."""
    x = np.asarray(xs[i], np.float64)
    step = 1e-3 * np.where(x == 0, 1.0, np.abs(x))
    moved = (function(*xs[:i], x + k * step, *xs[i + 1 :]) for k in _OFFSETS)
    return sum(w * y for w, y in zip(_WEIGHTS, moved, strict=True)) / step


def _jvp(function: Callable[..., Any], xs: Sequence[Any], ts: Sequence[Any]) -> Any:
    y = function(*xs)
    return y, np.asarray(sum(t * _slope(function, xs, i) for i, t in enumerate(ts)) + 0 * y)


def _vjp(function: Callable[..., Any], *xs: Any) -> Any:
    y = function(*xs)
    pull = lambda ct: tuple(_summed(ct * _slope(function, xs, i), np.shape(x)) for i, x in enumerate(xs))
    return y, pull


def _summed(x: Any, shape: tuple[int, ...]) -> Any:
    """``x`` summed over what ``shape`` was repeated along."""
    x = np.asarray(x)
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    return x.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 != x.shape[i]), keepdims=True).reshape(shape)


def _vmap(function: Callable[..., Any], in_axes: Sequence[int | None]) -> Callable[..., Any]:
    return lambda *xs: np.stack([function(*(x if a is None else x[i] for x, a in zip(xs, in_axes))) for i in range(2)])


_TREE = SimpleNamespace(flatten=optree.tree_flatten, unflatten=optree.tree_unflatten)
NUMPY: Any = SimpleNamespace(numpy=np, tree=_TREE, jit=lambda function: function, vmap=_vmap, jvp=_jvp, vjp=_vjp)
