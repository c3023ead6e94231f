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

# Elements that are differentiated by.
LARGEST: Final = 30
# The product of their sizes, of derivatives of derivatives.
NESTED: Final = 300
# Weights of the function at so many steps: of fourth order around a point, and of second order on one side of it.
_CENTRAL: Final = ((1 / 12, -2), (-8 / 12, -1), (8 / 12, 1), (-1 / 12, 2))
_FORWARD: Final = ((-3 / 2, 0), (2.0, 1), (-1 / 2, 2))


class TooLarge(Exception):
    """Differences by each element would take long."""


class Numeric:
    """`nxjax`, whose derivatives are differences of values.

    Args:
        step: how far apart.
        forward: on one side only, which shows kinks.

    >>> float(Numeric(1e-3).grad(lambda x: x * x)(np.asarray(3.0))).__round__(6)
    6.0
    """

    def __init__(self, step: float, forward: bool = False) -> None:
        self._step, self._weights = step, _FORWARD if forward else _CENTRAL
        self._each_of = 1  # elements of arguments, multiplied over the derivatives that are being taken

    def __getattr__(self, name: str) -> Any:
        return getattr(nxjax, name)

    def _along(self, f: Callable[..., Any], xs: Any, ts: Any) -> Any:
        total: Any = None
        for weight, steps in self._weights:
            y = f(*(_float64(x) + steps * self._step * _float64(t) for x, t in zip(xs, ts, strict=True)))
            part = nxjax.tree.map(lambda v, w=weight: v * w, y)
            total = part if total is None else nxjax.tree.map(lambda a, b: a + b, total, part)
        return nxjax.tree.map(lambda v: v / self._step, total)

    def jvp(self, f: Callable[..., Any], xs: Any, ts: Any) -> Any:
        """`nxjax.jvp`."""
        return f(*xs), self._along(f, xs, ts)

    def linearize(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`nxjax.linearize`."""
        return f(*xs), lambda *ts: self._along(f, xs, ts)

    def _each(self, f: Callable[..., Any], xs: Any, i: int) -> Any:
        """The derivatives by each element of argument ``i``."""
        x = xs[i]
        if x.size > LARGEST:
            raise TooLarge
        for k in range(x.size):
            unit = np.zeros(x.size)
            unit[k] = 1
            ts = [np.zeros(v.shape) for v in xs]
            ts[i] = unit.reshape(x.shape)
            outer = self._each_of
            self._each_of *= x.size
            try:
                if self._each_of > NESTED:
                    raise TooLarge
                y = self._along(f, xs, ts)
            finally:
                self._each_of = outer
            yield y

    def vjp(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`nxjax.vjp`."""

        def back(ct: Any) -> Any:
            found = []
            for i, x in enumerate(xs):
                parts = [(ct * d).sum() for d in self._each(f, xs, i)]
                found.append(_stacked(parts, x.shape))
            return tuple(found)

        return f(*xs), back

    def value_and_grad(self, f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        """`nxjax.value_and_grad`."""

        def both(*xs: Any) -> Any:
            numbers = argnums if isinstance(argnums, tuple) else (argnums,)
            found = tuple(_stacked(list(self._each(f, xs, i)), xs[i].shape) for i in numbers)
            return f(*xs), found if isinstance(argnums, tuple) else found[0]

        return both

    def grad(self, f: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        """`nxjax.grad`."""
        return lambda *xs: self.value_and_grad(f, argnums)(*xs)[1]


def _float64(x: Any) -> Any:
    return jnp.asarray(x, dtype=np.float64) if getattr(x, "dtype", None) not in dtypes.FLOAT else x.astype(np.float64)


def _stacked(parts: list[Any], shape: tuple[int, ...]) -> Any:
    return jnp.stack(parts).reshape(shape) if parts else jnp.zeros(shape, np.float64)
