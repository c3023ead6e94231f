"""What the distributions share: promotion of arguments, and functions derived from other functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.promotion import dtype_of
from nxjax.ops.elementary import exp, log, log1p
from nxjax.scipy.special.operands import described, promote_alike, strip_weak_type
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike

P = ParamSpec("P")


def operands(name: str, *xs: Any) -> list[Array]:
    """Arguments as floats of one dtype and shape."""
    return promote_alike(f"scipy.stats.{name}", *xs)


def standard(name: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike) -> tuple[Array, Array]:
    """z = (x - loc) / scale, and the scale, of `operands`."""
    x, loc, scale = operands(name, x, loc, scale)
    return (x - loc) / scale, scale


def match_weak_type(k: Any, y: Array) -> Array:
    """``y``, which does not yield to other arrays where ``k`` did not, whatever it was promoted with."""
    return y if dtype_of(k, "scipy.stats")[1] else strip_weak_type(y)


def derived(
    outer: Callable[[Array], Array], inner: Callable[P, Array], name: str, doc: str, args: str, shown: str
) -> Callable[P, Array]:
    """``outer`` of ``inner``, with the arguments of ``inner``.

    ``args`` is what stands between the parentheses of the call that its docstring shows, ``shown`` what comes out.
    """

    @functools.wraps(inner)
    def function(*args: P.args, **kwargs: P.kwargs) -> Array:
        return outer(inner(*args, **kwargs))

    function.__name__ = function.__qualname__ = name
    function.__module__ = inner.__module__
    gives = f"Returns:\n    Array of the shape and float dtype that `{inner.__name__}` gives."
    function.__doc__ = f"{doc}\n\n{gives}\n\n>>> print(round(float({name}({args})), 4))\n{shown}\n"
    return function


def density(logpdf: Callable[P, Array], args: str, shown: str) -> Callable[P, Array]:
    """The density from its logarithm."""
    return derived(exp, logpdf, "pdf", "Density; arguments as `logpdf`.", args, shown)


def mass(logpmf: Callable[P, Array], args: str, shown: str) -> Callable[P, Array]:
    """The probability from its logarithm."""
    return derived(exp, logpmf, "pmf", "Probability; arguments as `logpmf`.", args, shown)


def logarithm(
    function: Callable[P, Array], name: str, args: str, shown: str, nothing: Callable[P, Array] | None = None
) -> Callable[P, Array]:
    """log of ``function``; -inf, and no slope, where ``nothing`` says that no part of the support counts."""

    @functools.wraps(function)
    def inner(*xs: P.args, **kwargs: P.kwargs) -> Array:
        y = function(*xs, **kwargs)
        if nothing is None:
            return log(y)
        none = (y == 0) & nothing(*xs, **kwargs)
        return jnp.where(none, -np.inf, log(jnp.where(none, 1, y)))

    doc = f"Logarithm of `{function.__name__}`; arguments as there."
    return derived(lambda y: y, inner, name, doc, args, shown)


def exponential(function: Callable[P, Array], name: str, args: str, shown: str) -> Callable[P, Array]:
    """exp of ``function``."""
    doc = f"Exponential of `{function.__name__}`; arguments as there."
    return derived(exp, function, name, doc, args, shown)


def complement(logp: Array) -> Array:
    """1 - exp(logp), of which neither the value nor the slope loses digits."""
    near = logp > -0.6931472
    return jnp.where(near, -jnp.expm1(jnp.where(near, logp, 0)), 1 - exp(logp))


def log_complement(logp: Array) -> Array:
    """log(1 - exp(logp)), accurate for probabilities near 0 and near 1."""
    near = logp > -0.6931472
    few, much = jnp.where(near, logp, -1), jnp.where(near, -1, logp)
    return jnp.where(near, log(-jnp.expm1(few)), log1p(-exp(much)))


def within_support(condition: Array, value: Array, outside: float = -np.inf) -> Array:
    """``value`` where ``condition``, which is where the distribution lives.

    Conditions are written as the negation of being outside, so that NaN is inside and stays NaN.
    """
    return jnp.where(condition, value, outside)


__all__ = [
    "density", "derived", "described", "exp", "exponential", "log", "log1p", "log_complement", "logarithm", "mass",
    "match_weak_type", "operands", "standard", "within_support",
]  # fmt: skip
