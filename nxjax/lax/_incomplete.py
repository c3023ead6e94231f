"""The incomplete gamma function's series and continued fraction, with derivatives in the parameter.

As in Press et al., "Numerical Recipes", chapter 6, differentiated term by term. `scipy.special` makes the functions of
them, and `random` the derivatives of gamma samples.
"""

from __future__ import annotations

from typing import Any, Final

from nxjax import numpy as jnp
from nxjax.ops.base import like
from nxjax.ops.elementary import log
from nxjax.ops.incomplete_large import near
from nxjax.ops.special import digamma
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop

STEPS: Final = 2000


def _series(a: Array, x: Array) -> tuple[Array, Array]:
    """S = sum of x^n / ((a + 1) ... (a + n)) and dS/da: the lower function is x^a e^-x / gamma(a + 1) S."""
    eps = float(dtypes.float_info(a.dtype).eps)

    def unfinished(state: Any) -> Array:
        n, term, slope, total, _ = state
        return (n < STEPS) & jnp.any((term > eps * total) | (abs(term * slope) > eps * total))

    def step(state: Any) -> Any:
        n, term, slope, total, derivative = state
        n = n + 1
        below = a + n
        term = term * x / below
        slope = slope - 1 / below  # of log term
        return n, term, slope, total + term, derivative + term * slope

    one, zero = like(a, 1), like(a, 0)
    _, _, _, total, derivative = while_loop(unfinished, step, (like_scalar(a), one, zero, one, zero))
    return total, derivative


def like_scalar(a: Array) -> Array:
    """0 as a scalar of the dtype of ``a``: a step counter."""
    return jnp.zeros((), a.dtype)


def _fraction(a: Array, x: Array) -> tuple[Array, Array]:
    """Lentz's continued fraction F and its derivative in a: the upper function is x^a e^-x / gamma(a) F."""
    info = dtypes.float_info(a.dtype)
    eps, tiny = float(info.eps), float(info.tiny) * 1e4

    def away(v: Array) -> Array:
        return jnp.where(abs(v) < tiny, tiny, v)

    def unfinished(state: Any) -> Array:
        n, moved = state[0], state[-1]
        return (n < STEPS) & jnp.any(moved > eps)

    def step(state: Any) -> Any:
        n, b, c, d, f, dc, dd, df, _ = state
        n = n + 1
        an = -n * (n - a)  # its derivative in a is n, that of b is -1
        b = b + 2
        dd = -(-1 + n * d + an * dd)
        d = 1 / away(an * d + b)
        dd = dd * d * d
        dc = -1 + n / c - an * dc / (c * c)
        c = away(b + an / c)
        factor = c * d
        new = df * factor + f * (dc * d + c * dd)
        # At integer a the fraction ends while its derivative goes on.
        moved = jnp.maximum(abs(factor - 1), abs(new - df) / (abs(new) + abs(f)))
        return n, b, c, d, f * factor, dc, dd, new, moved

    b = x + 1 - a
    d = 1 / away(b)
    start = (like_scalar(a), b, like(a, 1 / tiny), d, d, like(a, 0), d * d, d * d, like(a, 1))
    state = while_loop(unfinished, step, start)
    return state[4], state[7]


def gamma_terms(below: Array, a: Array, x: Array) -> tuple[Array, ...]:
    """Operands, values and derivatives of the series where ``below``, and of the fraction elsewhere.

    Each sees only operands it converges for.
    """
    sa, sx = jnp.where(below, a, 1), jnp.where(below, x, 0.5)
    fa, fx = jnp.where(below, 1, a), jnp.where(below, 3, x)
    return sa, sx, *_series(sa, sx), fa, fx, *_fraction(fa, fx)


def gamma_sample_slope(a: Array, x: Array) -> Array:
    """How a gamma sample ``x`` moves with its parameter at a fixed quantile: -(dP/da) / density."""
    large = near(a, x)
    a, x = (jnp.where(large.large.value, 1, v) for v in (a, x))
    small = x < a + 1
    sa, sx, s, ds, fa, fx, f, df = gamma_terms(small, a, x)
    tiny = float(dtypes.float_info(a.dtype).tiny)
    log_x = log(jnp.maximum(sx, tiny))
    by_series = -(sx / sa) * (s * (log_x - digamma(sa + 1)) + ds)
    by_fraction = fx * (f * (log(fx) - digamma(fa)) + df)
    return large.or_else(large.sample_slope(), jnp.where(small, by_series, by_fraction))
