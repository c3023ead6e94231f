"""`nx.scipy.interpolate`: interpolation on rectangular grids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax import tree_util
from nxjax.errors import DtypeError, ShapeError, Shown
from nxjax.numpy.promotion import as_operand, check_choice, promote_inexact
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array

__all__ = ["RegularGridInterpolator"]


class RegularGridInterpolator(Shown):
    """Interpolates values given on a grid; a pytree of the grid, the values and the fill value.

    Args:
        points: one ascending vector of coordinates per dimension of the grid.
        values: ``[n1, n2, ..., *rest]``; integers become float.
        method: ``"linear"`` or ``"nearest"``.
        bounds_error: False.
        fill_value: for points outside the grid; None extrapolates.

    >>> f = RegularGridInterpolator((jnp.array([0.0, 2.0]),), jnp.array([0.0, 6.0]))
    >>> f(jnp.array([[1.0], [3.0]])).tolist()
    [3.0, nan]
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike = np.nan,
    ) -> None:
        check_choice("RegularGridInterpolator: method", method, "linear", "nearest")
        if bounds_error:
            raise NotImplementedError("RegularGridInterpolator: bounds_error=True depends on values")
        (self.values,) = promote_inexact("RegularGridInterpolator", values)
        if len(points) > self.values.ndim:
            raise ShapeError(
                "RegularGridInterpolator: more point arrays than dimensions", got=f"{len(points)}, {self.values.type}"
            )
        if fill_value is not None:
            fill_value = as_operand(fill_value, "RegularGridInterpolator")
            if not np.can_cast(fill_value.dtype, self.values.dtype, "same_kind"):
                raise DtypeError(
                    "RegularGridInterpolator: fill_value does not fit", got=fill_value.type, expected=self.values.type
                )
        self.method = method
        self.bounds_error = bounds_error
        self.fill_value = fill_value
        self.grid = tuple(as_operand(p, "RegularGridInterpolator") for p in points)

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at ``xi``.

        Args:
            xi: ``[..., d]``, or a tuple of d arrays, for d dimensions of the grid.
            method: instead of that of the interpolator.
        """
        method = self.method if method is None else method
        check_choice("RegularGridInterpolator: method", method, "linear", "nearest")
        count = len(self.grid)
        x = _coordinates(xi, count)
        if x.shape[-1] != count:
            raise ShapeError(
                "RegularGridInterpolator: points of another dimension", got=x.type, expected=f"[..., {count}]"
            )
        flat = x.reshape(-1, count)
        lower, share, outside = self._find(flat.T)
        if method == "nearest":
            y = self.values[tuple(jnp.where(s <= 0.5, i, i + 1) for i, s in zip(lower, share, strict=True))]
        else:
            y = self._linear(lower, share)
        if self.fill_value is not None:
            y = jnp.where(outside.reshape(outside.shape + (1,) * (y.ndim - 1)), self.fill_value, y)
        return y.reshape(x.shape[:-1] + self.values.shape[count:])

    def _find(self, xs: Array) -> tuple[list[Array], list[Array], Array]:
        """Lower neighbours, where between the neighbours, and whether outside."""
        lower: list[Array] = []
        share: list[Array] = []
        outside = jnp.zeros(xs.shape[1:], bool)
        for x, g in zip(xs, self.grid, strict=True):
            i = jnp.clip(jnp.searchsorted(g, x) - 1, 0, max(g.size - 2, 0))
            lower.append(i)
            share.append((x - g[i]) / (g[i + 1] - g[i]))
            outside = outside | (x < g[0]) | (x > g[-1])
        return lower, share, outside

    def _linear(self, lower: list[Array], share: list[Array]) -> Array:
        total: Any = 0.0
        for corner in itertools.product((False, True), repeat=len(lower)):
            weight: Any = 1.0
            for high, s in zip(corner, share, strict=True):
                weight = weight * (s if high else 1 - s)
            index = tuple(i + 1 if high else i for high, i in zip(corner, lower, strict=True))
            found = self.values[index]
            total = total + found * weight.reshape(weight.shape + (1,) * (found.ndim - weight.ndim))
        return total


def _coordinates(xi: Any, count: int) -> Array:
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        parts = jnp.broadcast_arrays(*(jnp.asarray(x) for x in xi))
        return jnp.stack([x.astype(float) for x in parts], -1)
    x = as_operand(xi, "RegularGridInterpolator")
    return x.reshape(-1, count) if x.ndim == 1 else x


def _flatten(f: RegularGridInterpolator) -> tuple[Any, Any]:
    return (f.grid, f.values, f.fill_value), (f.method, f.bounds_error)


def _unflatten(fixed: Any, children: Any) -> RegularGridInterpolator:
    f = object.__new__(RegularGridInterpolator)
    f.grid, f.values, f.fill_value = children
    f.method, f.bounds_error = fixed
    return f


tree_util.register_pytree_node(RegularGridInterpolator, _flatten, _unflatten)
