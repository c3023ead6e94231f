"""`jvp`, `vjp`, `grad` and `linearize` by differences of values: a second opinion that shares no rule of derivatives.

A program's text runs with these in 64 bits instead of nxjax's. Knows nothing of programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import nxjax
from nxjax import numpy as jnp
from nxjax.trace import dtypes
from nxjax.trace.core import Tracer

# Elements that are differentiated by.
LARGEST: Final = 30
# The product of their sizes, of derivatives of derivatives.
NESTED: Final = 300
# Directions that a program is differentiated along, in all: each may be a function that is traced anew.
MOST: Final = 200
# Weights of the function at so many steps: of fourth order around a point, and of second order on one side of it.
_CENTRAL: Final = ((1 / 12, -2), (-8 / 12, -1), (8 / 12, 1), (-1 / 12, 2))
_FORWARD: Final = ((-3 / 2, 0), (2.0, 1), (-1 / 2, 2))


# Derivatives that have no differences here.
_OTHERS: Final = frozenset(("jacfwd", "jacrev", "jacobian", "hessian", "linear_transpose"))


class TooLarge(Exception):
    """Differences by each element would take long, or have two parts, or are of another kind."""


class Numeric:
    """`nxjax`, whose derivatives are differences of values.

    Args:
        step: how far apart.
        forward: on one side only, which shows kinks.
        blur: which digits of derivatives are others, at random: shows what hangs on these.
        cut: these digits are none.

    >>> float(Numeric(1e-3).grad(lambda x: x * x)(np.asarray(3.0))).__round__(6)
    6.0
    """

    def __init__(self, step: float, forward: bool = False, blur: float = 0.0, cut: bool = False) -> None:
        self._blur, self._cut, self._rng = blur, cut, np.random.default_rng(0)
        self._step, self._weights = step, _FORWARD if forward else _CENTRAL
        self.taken = 0  # since somebody set it to 0
        self.lost = False  # whether a derivative was NaN, of which conditions make something else
        self._each_of = 1  # elements of arguments, multiplied over the derivatives that are being taken

    def __getattr__(self, name: str) -> Any:
        if name in _OTHERS:  # which would take the derivatives of these differences, of rules that hold some too
            raise TooLarge
        return getattr(nxjax, name)

    def _along(self, f: Callable[..., Any], xs: Any, ts: Any) -> Any:
        total: Any = None
        self.taken += 1
        if self.taken > MOST:
            raise TooLarge
        for weight, steps in self._weights:
            y = f(*nxjax.tree.map(lambda x, t, k=steps: _moved(x, t, k * self._step), tuple(xs), tuple(ts)))
            part = nxjax.tree.map(lambda v, w=weight: v * w, y)
            total = part if total is None else nxjax.tree.map(lambda a, b: a + b, total, part)
        slopes = nxjax.tree.map(lambda v: self._blurred(v / self._step), total)
        known = [v for v in nxjax.tree.leaves(slopes) if not isinstance(v, Tracer)]
        self.lost |= any(bool(np.isnan(np.asarray(v)).any()) for v in known)
        return slopes

    def _blurred(self, d: Any) -> Any:
        """``d``, whose last digits are others, or none."""
        if self._cut:
            return jnp.round(d / self._blur) * self._blur
        return d + jnp.asarray(self._rng.uniform(-self._blur, self._blur, d.shape), dtype=np.float64)

    def jvp(self, f: Callable[..., Any], xs: Any, ts: Any) -> Any:
        """`nxjax.jvp`."""
        y = f(*xs)
        return y, _like(self._along(f, xs, ts), y)

    def linearize(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`nxjax.linearize`."""
        y = f(*xs)
        return y, lambda *ts: _like(self._along(f, xs, ts), y)

    def _gradient(self, f: Callable[..., Any], xs: Any, i: int, weighed: Callable[[Any], Any]) -> Any:
        """The derivatives of what ``weighed`` makes of the result, by each element of argument ``i``, as its tree."""
        zeros = [nxjax.tree.map(lambda v: np.zeros(np.shape(v)), x) for x in xs]
        leaves, tree = nxjax.tree.flatten(xs[i])
        found: list[Any] = []
        size = sum(int(np.size(leaf)) for leaf in leaves)
        for at, leaf in enumerate(leaves):
            parts: list[Any] = []
            for k in range(np.size(leaf)):
                if size > LARGEST:
                    raise TooLarge
                units = [np.zeros(np.shape(v)) for v in leaves]
                units[at].reshape(-1)[k] = 1
                outer = self._each_of
                self._each_of *= size
                try:
                    if self._each_of > NESTED:
                        raise TooLarge
                    ts = [*zeros[:i], nxjax.tree.unflatten(tree, units), *zeros[i + 1 :]]
                    parts.append(weighed(self._along(f, xs, ts)))
                finally:
                    self._each_of = outer
            slope = jnp.stack(parts).reshape(np.shape(leaf)) if parts else jnp.zeros(np.shape(leaf), np.float64)
            found.append(_like(slope, leaf))
        return nxjax.tree.unflatten(tree, found)

    def vjp(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`nxjax.vjp`."""

        def back(ct: Any) -> Any:
            pair = lambda d: sum((a * b).sum() for a, b in zip(*map(nxjax.tree.leaves, (ct, d)), strict=True))
            return tuple(self._gradient(f, xs, i, pair) for i in range(len(xs)))

        return f(*xs), back

    def value_and_grad(self, f: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
        """`nxjax.value_and_grad`."""
        value = (lambda *xs: f(*xs)[0]) if has_aux else f

        def both(*xs: Any) -> Any:
            numbers = argnums if isinstance(argnums, tuple) else (argnums,)
            found = tuple(self._gradient(value, xs, i, lambda d: d) for i in numbers)
            return f(*xs), found if isinstance(argnums, tuple) else found[0]

        return both

    def grad(self, f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        """`nxjax.grad`."""
        return lambda *xs: self.value_and_grad(f, argnums)(*xs)[1]


def _like(d: Any, x: Any) -> Any:
    """Derivatives in the dtypes of what they are derivatives of, or by: integers may have made floats of 32 bits."""

    def one(d: Any, x: Any) -> Any:
        dtype = getattr(x, "dtype", None)
        return d.astype(dtype) if dtype in dtypes.FLOAT else d

    return nxjax.tree.map(one, d, x)


def _moved(x: Any, t: Any, step: float) -> Any:
    """``x``, ``step`` times further along ``t``; an integer stays where it is."""
    if getattr(x, "dtype", None) in dtypes.BITS:
        return x
    return _float64(x) + step * _float64(t)


def _float64(x: Any) -> Any:
    if getattr(x, "dtype", None) in dtypes.COMPLEX:
        raise TooLarge
    # By name: without it, arrays of NumPy have 32 bits as soon as one of nxjax stands beside them.
    return jnp.asarray(x, dtype=np.float64)
