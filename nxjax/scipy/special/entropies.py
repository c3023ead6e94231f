"""Logistic functions, entropies, and products with a logarithm that are 0 where the factor is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import convert, inexact_operands
from nxjax.ops.elementary import log, log1p
from nxjax.scipy.special.operands import described, promote_alike, reals
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp

_refuses = functools.partial(reals, error=DtypeError)


@custom_jvp
def _logit(x: Array) -> Array:
    return log(x / (1 - x))


_logit.defjvps(lambda t, y, x: t / (x * (1 - x)))


@shown("print(round(float(logit(0.75)), 4))", "1.0986")
def logit(x: Any) -> Array:
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
def xlogy(x: Any, y: Any) -> Array:
    """x log(y), 0 where x is 0 and y is no NaN."""
    return _xlogy(*promote_alike("xlogy", x, y))


@custom_jvp
def _xlog1py(x: Array, y: Array) -> Array:
    present = (x != 0) | jnp.isnan(y)
    return jnp.where(present, x * log1p(jnp.where(present, y, 0)), 0)


_xlog1py.defjvps(lambda t, _, x, y: t * log1p(y), lambda t, _, x, y: t * x / (1 + y))


@described("2.0, 3.0", "2.7726")
def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), 0 where x is 0 and y is no NaN."""
    return _xlog1py(*promote_alike("xlog1py", x, y))


@custom_jvp
def _xlogx(x: Array) -> Array:
    return _xlogy(x, x)


_xlogx.defjvps(lambda t, _, x: t * (log(x) + 1))


@described("0.5", "0.3466")
def entr(x: Any) -> Array:
    """The entropy -x log(x); 0 at 0, -inf for negative x."""
    (v,) = _refuses("entr", x)
    return jnp.where(v < 0, -np.inf, -_xlogx(v))


@described("0.5, 0.2", "0.4581")
def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q) for positive p and q; 0 for p = 0 <= q, nan of nan, infinite elsewhere."""
    scalar = not np.ndim(p)
    p, q = _refuses("rel_entr", p, q)
    both = (p > 0) & (q > 0)
    none = (p == 0) & (q >= 0)
    ps, qs = jnp.where(both, p, 1), jnp.where(both, q, 1)
    elsewhere = jnp.where((p != p) | (q != q), np.nan, np.inf)
    y = jnp.where(both, _xlogx(ps) - _xlogy(ps, qs), jnp.where(none, 0, elsewhere))
    # Strong, unless p is a weak number.
    return convert(y, y.dtype, y.weak_type and scalar)


@described("0.5, 0.2", "0.1581")
def kl_div(p: Any, q: Any) -> Array:
    """`rel_entr` - p + q, the elementwise Kullback-Leibler divergence."""
    x, y = _refuses("kl_div", p, q)
    return rel_entr(p, q) - x + y
