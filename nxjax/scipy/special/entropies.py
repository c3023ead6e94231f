"""Logistic functions, entropies, and products with a logarithm that are 0 where the factor is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import convert, inexact_operands
from nxjax.ops.elementary import log, log1p
from nxjax.scipy.special.operands import described, promote_alike, reals, widening
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp

_refuses = functools.partial(reals, error=DtypeError)


@custom_jvp
def _logit(x: Array) -> Array:
    return log(x / (1 - x))


_logit.defjvps(lambda t, y, x: t / (x * (1 - x)))


@shown("print(round(float(logit(0.75)), 4))", "1.0986")
def logit(x: ArrayLike) -> Array:
    """log(x / (1 - x)), the inverse of `expit`.

    Args:
        x: array of any shape; integers become float.

    Returns:
        Array of the shape of ``x`` and float dtype, NaN outside [0, 1].
    """
    return _logit(*inexact_operands("logit", x))


@custom_jvp
def _xlogy(x: Array, y: Array) -> Array:
    present = (x != 0) | jnp.isnan(y)
    return jnp.where(present, x * log(jnp.where(present, y, 1)), 0)


_xlogy.defjvps(lambda t, _, x, y: t * log(y), lambda t, _, x, y: t * x / y)


@described("2.0, 3.0", "2.1972")
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(y), 0 where x is 0 and y is not NaN."""
    return _xlogy(*promote_alike("xlogy", x, y))


@custom_jvp
def _xlog1py(x: Array, y: Array) -> Array:
    present = (x != 0) | jnp.isnan(y)
    return jnp.where(present, x * log1p(jnp.where(present, y, 0)), 0)


_xlog1py.defjvps(lambda t, _, x, y: t * log1p(y), lambda t, _, x, y: t * x / (1 + y))


@described("2.0, 3.0", "2.7726")
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(1 + y), 0 where x is 0 and y is not NaN."""
    return _xlog1py(*promote_alike("xlog1py", x, y))


@custom_jvp
def _xlogx(x: Array) -> Array:
    return _xlogy(x, x)


_xlogx.defjvps(lambda t, _, x: t * (log(x) + 1))


@described("0.5", "0.3466")
def entr(x: ArrayLike) -> Array:
    """The entropy -x log(x); 0 at 0, -inf for negative x."""
    (v,) = _refuses("entr", x)
    return jnp.where(v < 0, -np.inf, -_xlogx(v))


def _log_ratio_value(p: Array, q: Array) -> Array:
    r = p / q
    near = (r > 0.5) & (r < 2)
    # p - q is exact here, and the quotient of numbers far apart may leave the floats.
    by_step = log1p(jnp.where(near, p - q, 0) / q)
    inside = (r > dtypes.float_info(r.dtype).tiny) & (r < np.inf)
    return jnp.where(near, by_step, jnp.where(inside, log(jnp.where(inside, r, 1)), log(p) - log(q)))


_log_ratio = widening(_log_ratio_value, lambda t, _, p, q: t / p, lambda t, _, p, q: -t / q)


_rel_entr = widening(
    lambda p, q: p * _log_ratio(p, q), lambda t, _, p, q: t * (_log_ratio(p, q) + 1), lambda t, _, p, q: -t * p / q
)


def _kl_div_value(p: Array, q: Array) -> Array:
    """p log(p / q) - p + q of positive numbers.

    With s = (p - q) / (p + q), log(p / q) = 2 atanh(s) and p = (p + q) (1 + s) / 2, so that it is
    (p - q) s (1 + (1 + s) s r(s^2)), r(z) = 1/3 + z/5 + z^2/7 + ...: nothing cancels where p and q are close.
    """
    total = p + q
    s = (p - q) / total
    near = (abs(s) < 0.25) & (total < np.inf)
    s = jnp.where(near, s, 0)
    z, r = s * s, jnp.zeros_like(s)
    for k in range(15 if p.dtype == dtypes.float64 else 7, 0, -1):
        r = r * z + 1 / (2 * k + 1)
    close = (p - q) * s * (1 + (1 + s) * s * r)
    return jnp.where(near, close, p * _log_ratio(p, q) - p + q)


_kl_div = widening(
    _kl_div_value, lambda t, _, p, q: t * _log_ratio(p, q), lambda t, _, p, q: t * jnp.where(p == q, 0, (q - p) / q)
)


def _relative(name: str, value: Callable[[Array, Array], Array], share: int, p: Any, q: Any) -> Array:
    """``value`` of positive numbers; ``share`` times q where p is 0 <= q; infinity or NaN elsewhere."""
    scalar = not np.ndim(p)
    p, q = _refuses(name, p, q)
    both = (p > 0) & (q > 0)
    y = jnp.where(both, value(jnp.where(both, p, 1), jnp.where(both, q, 1)), np.inf)
    y = jnp.where((p == 0) & (q >= 0), q if share else 0, y)
    y = jnp.where((p != p) | (q != q), np.nan, y)
    # Strong, unless p is a weak number.
    return convert(y, y.dtype, y.weak_type and scalar)


@described("0.5, 0.2", "0.4581")
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """p log(p / q) for positive p and q; 0 for p = 0 <= q, nan of nan, infinite elsewhere."""
    return _relative("rel_entr", _rel_entr, 0, p, q)


@described("0.5, 0.2", "0.1581")
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """`rel_entr` - p + q, the elementwise Kullback-Leibler divergence."""
    return _relative("kl_div", _kl_div, 1, p, q)
