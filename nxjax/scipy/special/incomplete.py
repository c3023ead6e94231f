"""Incomplete gamma and beta functions, with derivatives in every argument they have one in.

Series and continued fractions as in Press et al., "Numerical Recipes", chapter 6.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.lax._incomplete import STEPS, gamma_terms, like_scalar
from nxjax.numpy.documented import shown
from nxjax.ops.base import like
from nxjax.ops.elementary import exp, log, log1p
from nxjax.ops.incomplete import igamma, igamma_grad_a, igammac, regularized_incomplete_beta
from nxjax.ops.incomplete_large import near
from nxjax.ops.special import digamma, lgamma
from nxjax.scipy.special.entropies import xlog1py, xlogy
from nxjax.scipy.special.gammas import betaln
from nxjax.scipy.special.operands import described, differentiable, reals, slope_of
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop


def _lower_slope(a: Array, x: Array) -> Array:
    """The derivative of the regularized lower function in a."""
    inside = (x > 0) & (a > 0) & jnp.isfinite(x) & jnp.isfinite(a)
    large = near(a, x)
    slow = inside & ~large.large.value
    below = jnp.where(slow, x < a + 1, True)
    sa, sx, s, ds, fa, fx, f, df = gamma_terms(below, jnp.where(slow, a, 1), jnp.where(slow, x, 0.5))
    by_series = exp(sa * log(sx) - sx - lgamma(sa + 1)) * (s * (log(sx) - digamma(sa + 1)) + ds)
    by_fraction = exp(fa * log(fx) - fx - lgamma(fa)) * (f * (log(fx) - digamma(fa)) + df)
    bad = (x < 0) | (a < 0) | (x != x) | (a != a) | ((a == 0) & (x == 0))
    value = large.or_else(large.front * large.slope(), jnp.where(below, by_series, -by_fraction))
    return jnp.where(inside, value, jnp.where(bad, np.nan, 0.0))


def _density(a: Array, x: Array) -> Array:
    end = x == np.inf
    x = jnp.where(end, 1, x)
    large = near(a, x)
    other = jnp.where(end, 0, exp(xlogy(a - 1, x) - x - lgamma(a)))
    return large.or_else(large.front * large.density(), other)


# The values and first slopes are the ops'; higher ones in the parameter are carried through the recurrences.
_slope_a = differentiable(
    igamma_grad_a,
    {
        0: slope_of(_lower_slope, 0),
        1: differentiable(lambda a, x: _density(a, x) * (log(x) - digamma(a))),
    },
)
_lower = differentiable(igamma, {0: _slope_a, 1: differentiable(_density)})
_upper = differentiable(igammac, {0: lambda a, x: -_slope_a(a, x), 1: lambda a, x: -_lower_density(a, x)})
_lower_density = differentiable(_density)


_incomplete = partial(
    described,
    takes="nonnegative real",
    gives="; NaN for negative operands. Derivatives of all orders in both",
    digits=5,
)


@_incomplete("2.0, 1.0", "0.26424")
def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized lower incomplete gamma function P(a, x): a gamma(a) number's chance to be below x (DLMF 8.2.4).

    Raises:
        ParameterError: complex input.
    """
    a, x = reals("gammainc", a, x)
    return _lower(a, x)


@_incomplete("2.0, 1.0", "0.73576")
def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), without cancellation (DLMF 8.2.4).

    Raises:
        ParameterError: complex input.
    """
    a, x = reals("gammaincc", a, x)
    return _upper(a, x)


# --- beta ---


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """Lentz's continued fraction for the incomplete beta function."""
    info = dtypes.float_info(x.dtype)
    eps, tiny = float(info.eps), float(info.tiny) * 1e4

    def away(v: Array) -> Array:
        return jnp.where(abs(v) < tiny, tiny, v)

    def unfinished(state: Any) -> Array:
        n, _, _, _, moved = state
        return (n < STEPS) & jnp.any(moved > eps)

    def step(state: Any) -> Any:
        m, c, d, f, moved = state
        m = m + 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / away(1 + even * d)
        c = away(1 + even / c)
        f = f * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / away(1 + odd * d)
        c = away(1 + odd / c)
        # The derivatives of the fraction settle some steps after it.
        return m, c, d, f * d * c, jnp.maximum(abs(d * c - 1), 0.05 * moved)

    d = 1 / away(1 - (a + b) * x / (a + 1))
    return while_loop(unfinished, step, (like_scalar(x), like(x, 1), d, d, like(x, 1)))[3]


def _beta_value(a: Array, b: Array, x: Array) -> Array:
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    a_, b_, x_ = jnp.where(inside, a, 1), jnp.where(inside, b, 1), jnp.where(inside, x, 0.5)
    # The fraction converges fast below the mean; above it, the symmetric function is.
    straight = x_ < (a_ + 1) / (a_ + b_ + 2)
    p, q = jnp.where(straight, a_, b_), jnp.where(straight, b_, a_)
    y = jnp.where(straight, x_, 1 - x_)
    log_front = p * log(y) + q * log1p(-y) - betaln(p, q)
    value = exp(log_front) * _beta_fraction(p, q, y) / p
    value = jnp.where(straight, value, 1 - value)
    bad = (x < 0) | (x > 1) | (a <= 0) | (b <= 0) | (x != x) | (a != a) | (b != b)
    return jnp.where(inside, value, jnp.where(bad, np.nan, jnp.where(x == 0, 0.0, 1.0)))


def _density_by_x(a: Array, b: Array, x: Array) -> Array:
    return exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))


# The value is the op's; slopes in the parameters are carried through the recurrence.
_betainc = differentiable(
    regularized_incomplete_beta,
    {0: slope_of(_beta_value, 0), 1: slope_of(_beta_value, 1), 2: differentiable(_density_by_x)},
)


@shown("print(round(float(betainc(2.0, 3.0, 0.5)), 5))", "0.6875", raises="ParameterError: complex input.")
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Regularized incomplete beta function I_x(a, b): a beta(a, b) number's chance to be below x (DLMF 8.17.2).

    Args:
        a, b: positive real arrays. x: real array in [0, 1]. They broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype; NaN outside the domain. Derivatives of all orders in all operands.
    """
    a, b, x = reals("betainc", a, b, x)
    return _betainc(a, b, x)
