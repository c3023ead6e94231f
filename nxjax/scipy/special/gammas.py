"""The gamma function and its relatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError
from nxjax.numpy.promotion import inexact_operands, promote_inexact, static_int, value
from nxjax.ops import special as ops
from nxjax.ops.elementary import exp, log
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def _real(name: str, *xs: Any) -> list[Array]:
    """Float operands, broadcast; complex ones are refused."""
    found = inexact_operands(name, *xs)
    if found[0].dtype in dtypes.COMPLEX:
        raise DtypeError(f"{name}: does not take complex input", got=found[0].type, expected="float")
    return found


def gammaln(x: Any, /) -> Array:
    """log |gamma(x)|"""
    (v,) = _real("gammaln", x)
    return ops.lgamma(v)


def loggamma(x: Any, /) -> Array:
    """log gamma(x) for x > 0; NaN for negative x."""
    (v,) = _real("loggamma", x)
    return jnp.where(v > 0, ops.lgamma(v), np.nan)


def gammasgn(x: Any) -> Array:
    """The sign of gamma(x); NaN at negative integers."""
    (v,) = _real("gammasgn", x)
    down = jnp.floor(v)
    sign = jnp.where(jnp.mod(down, 2) == 0, 1.0, -1.0)
    negative = jnp.where(v == down, np.nan, sign)
    at_zero = jnp.where(jnp.signbit(v), -1.0, 1.0)
    return jnp.where((v > 0) | jnp.isnan(v), 1.0, jnp.where(v == 0, at_zero, negative)).astype(v.dtype) * jnp.where(
        jnp.isnan(v), np.nan, 1.0
    ).astype(v.dtype)


def gamma(x: Any) -> Array:
    """The gamma function, (x - 1)! at positive integers.

    >>> round(float(gamma(5.0)), 3)
    24.0
    """
    (v,) = _real("gamma", x)
    return gammasgn(v) * exp(ops.lgamma(v))


def digamma(x: Any, /) -> Array:
    """The derivative of `gammaln`."""
    (v,) = _real("digamma", x)
    return ops.digamma(v)


def polygamma(n: Any, x: Any) -> Array:
    """The ``n``-th derivative of `digamma`; ``n`` is an integer array."""
    if value(n, "polygamma").dtype not in dtypes.INTEGER:
        raise DtypeError("polygamma: n is an integer", got=value(n, "polygamma").type)
    return ops.polygamma(*_real("polygamma", n, x))


def zeta(x: Any, q: Any = None) -> Array:
    """Hurwitz zeta function, the sum of 1 / (k + q)^x over k >= 0."""
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q != None to compute the Hurwitz Zeta function."
        )
    return ops.zeta(*_real("zeta", x, q))


def betaln(a: Any, b: Any) -> Array:
    """log |gamma(a) gamma(b) / gamma(a + b)|"""
    a, b = _real("betaln", a, b)
    return ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)


def beta(a: Any, b: Any) -> Array:
    """gamma(a) gamma(b) / gamma(a + b)"""
    a, b = _real("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * exp(betaln(a, b))


def factorial(n: Any, exact: bool = False) -> Array:
    """n!, as a float; 0 for negative n."""
    if exact:
        raise NotImplementedError("factorial with exact=True")
    (v,) = _real("factorial", n)
    return jnp.where(v < 0, 0, exp(ops.lgamma(v + 1)))


def poch(z: Any, m: Any) -> Array:
    """Pochhammer symbol, gamma(z + m) / gamma(z)."""
    z, m = _real("poch", z, m)
    plain = gammasgn(z + m) * gammasgn(z) * exp(ops.lgamma(z + m) - ops.lgamma(z))
    return jnp.where(m == 0, 1, plain)


def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """The number of ways to choose ``k`` of ``N`` things."""
    n, k = _real("comb", N, k)
    if repetition:
        n = n + k - 1
    valid = (k <= n) & (n >= 0) & (k >= 0)
    ways = exp(ops.lgamma(n + 1) - ops.lgamma(k + 1) - ops.lgamma(n - k + 1))
    return jnp.where(valid, ways, 0.0)


def multigammaln(a: Any, d: Any) -> Array:
    """The logarithm of the gamma function in ``d`` dimensions."""
    (v,) = promote_inexact("multigammaln", a)
    n = static_int("multigammaln", d)
    if n < 1:
        raise ParameterError("multigammaln: d is positive", got=n)
    total = ops.lgamma(v)
    for j in range(1, n):
        total = total + ops.lgamma(v - j / 2)
    return total + n * (n - 1) / 4 * math.log(math.pi)


def boxcox(x: Any, lmbda: Any) -> Array:
    """(x^lmbda - 1) / lmbda, log x for lmbda = 0."""
    x, power = _real("boxcox", x, lmbda)
    zero = power == 0
    safe = jnp.where(zero, 1, power)
    return jnp.where(zero, log(x), jnp.expm1(safe * log(x)) / safe)


def boxcox1p(x: Any, lmbda: Any) -> Array:
    """`boxcox` of 1 + x."""
    x, power = _real("boxcox1p", x, lmbda)
    zero = power == 0
    safe = jnp.where(zero, 1, power)
    return jnp.where(zero, jnp.log1p(x), jnp.expm1(safe * jnp.log1p(x)) / safe)
