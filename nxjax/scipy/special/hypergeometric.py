"""Hypergeometric functions 1F1 and 2F1 of real operands (DLMF chapters 13 and 15).

Series are summed until all elements have converged. Methods as in Pearson, Olver & Porter, "Numerical methods for the
computation of the confluent and Gauss hypergeometric functions", Numerical Algorithms 74 (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown
from nxjax.ops.elementary import exp, log, log1p
from nxjax.ops.special import digamma, lgamma
from nxjax.scipy.special.gammas import gammasgn
from nxjax.scipy.special.operands import at_least_float32, described, differentiable, eps, reals, slope_of
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop

_TERMS = 4000


def _sum(ratio: Callable[[Array], Array], like: Array) -> Array:
    """1 + r(0) + r(0) r(1) + ...; the slopes of the terms, which end after the terms, are summed too."""
    least = 0.01 * eps(like)

    def unfinished(state: Any) -> Array:
        return (state[0] < _TERMS) & jnp.any(state[-1] < 3)

    def step(state: Any) -> Any:
        k, term, total, small = state
        term = term * ratio(k)
        total = total + term
        tiny = (abs(term) <= least * abs(total)) | jnp.isnan(term) | jnp.isinf(total)
        return k + 1, term, total, jnp.where(tiny, small + 1, 0)

    one = jnp.ones_like(like)
    state = (jnp.zeros((), like.dtype), one, one, jnp.zeros(like.shape, np.int32))
    return while_loop(unfinished, step, state)[2]


def _pole(x: Array) -> Array:
    """Where the gamma function has a pole."""
    return (x <= 0) & (x == jnp.floor(x))


def _log_gamma(x: Array) -> tuple[Array, Array]:
    """log |gamma(x)| and the sign, for x that is no pole."""
    return lgamma(x), gammasgn(x)


def _confluent(a: Array, b: Array, x: Array) -> Array:
    safe_b = jnp.where(_pole(b) & ~(_pole(a) & (a > b)), 1, b)
    finite = jnp.isfinite(x)
    x = jnp.where(finite, x, 1)
    # Kummer's transformation (DLMF 13.2.39) where the series' terms would cancel; polynomials stay as they are.
    turn = (x < 0) & ~_pole(a)
    p, z = jnp.where(turn, safe_b - a, a), jnp.where(turn, -x, x)
    # Far out, the asymptotic series 13.7.1, which ends at its smallest term.
    far = (z > 50) & (z > 2 * (abs(p) + 2) * (abs(safe_b - p) + 2)) & ~_pole(p) & ~_pole(safe_b)
    near = _sum(lambda k: (p + k) / (safe_b + k) * (jnp.where(far, 0, z) / (k + 1)), z)
    big = jnp.where(far, z, 100.0)
    u, v = jnp.where(far, safe_b - p, 0.5), jnp.where(far, 1 - p, 0.5)
    total, term = jnp.ones_like(z), jnp.ones_like(z)
    for k in range(25):
        term = term * ((u + k) * (v + k) / ((k + 1) * big))
        total = total + term
    some_p, some_b = jnp.where(far, p, 1), jnp.where(far, safe_b, 1)
    (log_b, sign_b), (log_p, sign_p) = _log_gamma(some_b), _log_gamma(some_p)
    scale = log_b - log_p + (some_p - some_b) * log(big) + jnp.where(turn, 0, big)
    by_far = sign_b * sign_p * exp(scale) * total
    by_near = jnp.where(turn, exp(jnp.where(turn, x, 0)), 1) * near
    return jnp.where(finite, jnp.where(far, by_far, by_near), np.nan)


def _hyp1f1_value(a: Array, b: Array, x: Array) -> Array:
    value = _confluent(a, b, x)
    value = jnp.where(_pole(b) & ~(_pole(a) & (a > b)), np.inf, value)
    value = jnp.where(a == b, exp(x), value)
    return jnp.where((a == 0) | (x == 0), 1 + 0 * x, value)


def _hyp1f1_by_x(a: Array, b: Array, x: Array) -> Array:
    return a / b * _hyp1f1(a + 1, b + 1, x)  # DLMF 13.3.15


_hyp1f1 = differentiable(_hyp1f1_value, {0: slope_of(_confluent, 0), 1: slope_of(_confluent, 1), 2: _hyp1f1_by_x})


@described("1.0, 2.0, 1.0", "1.71828", gives=", with derivatives in all operands; inf for b = 0, -1, ..", digits=5)
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Kummer's function M(a, b, x), the sum of (a)_k x^k / ((b)_k k!) (DLMF 13.2.2).

    Raises:
        ParameterError: complex input.
    """
    a, b, x = reals("hyp1f1", a, b, x)
    return at_least_float32(_hyp1f1, a, b, x)


# --- 2F1 ---


def _gauss(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _sum(lambda k: (a + k) / (c + k) * ((b + k) / (k + 1)) * x, x)


def _quotient(above: tuple[Array, ...], below: tuple[Array, ...]) -> Array:
    """Gammas of ``above`` over those of ``below``; 0 where one below has a pole."""
    zero: Any = False
    logs, sign = jnp.zeros_like(above[0]), jnp.ones_like(above[0])
    for v in above:
        v = jnp.where(_pole(v), 1, v)
        logs, sign = logs + lgamma(v), sign * gammasgn(v)
    for v in below:
        zero = zero | _pole(v)
        v = jnp.where(_pole(v), 1, v)
        logs, sign = logs - lgamma(v), sign * gammasgn(v)
    return jnp.where(zero, 0, sign * exp(logs))


def _regular(a: Array, b: Array, c: Array, x: Array) -> Array:
    """For x < 1 and c no pole, by formulas that are smooth in the parameters."""
    # Pfaff's transformation (DLMF 15.8.1) brings negative x into (0, 1).
    ends = _pole(a) | _pole(b)
    turn = (x < -0.5) & ~ends
    z = jnp.where(turn, x / (x - 1), x)
    q = jnp.where(turn, c - b, b)
    front = jnp.where(turn, exp(-a * log1p(-jnp.where(turn, x, 0))), 1)
    ends = ends | _pole(q)
    d = c - a - q
    distance = abs(d - jnp.round(d))
    close = (z > 0.9) & ~ends & (distance > 1e-3)
    near = _gauss(jnp.where(close, 0, a), q, c, z)
    # DLMF 15.8.4, in which the argument is 1 - z; it needs c - a - b to be no integer.
    y = jnp.where(close, 1 - z, 0.05)
    e = jnp.where(close, d, 0.5)
    p, r, s = jnp.where(close, a, 0.25), jnp.where(close, q, 0.25), jnp.where(close, c, 1.0)
    first = _quotient((s, e), (s - p, s - r)) * _gauss(p, r, 1 - e, y)
    second = exp(e * log(y)) * _quotient((s, -e), (p, r)) * _gauss(s - p, s - r, 1 + e, y)
    return front * jnp.where(close, first + second, near)


def _logarithmic(a: Array, b: Array, m: Array, y: Array) -> Array:
    """F(a, b; a + b + m; 1 - y) for whole m >= 0 and small y (DLMF 15.8.10)."""
    count = jnp.max(m, initial=0)

    def more(state: Any) -> Array:
        return state[0] < count

    def step(state: Any) -> Any:
        k, term, total = state
        total = total + jnp.where(k < m, term, 0)
        left = jnp.where(m - k - 1 == 0, 1, m - k - 1)
        return k + 1, term * (a + k) * (b + k) / ((k + 1) * left) * -y, total

    zero = jnp.zeros((), y.dtype)
    front = _quotient((jnp.maximum(m, 1), a + b + m), (a + m, b + m))
    finite = front * while_loop(more, step, (zero, jnp.ones_like(y), jnp.zeros_like(y)))[2]
    # The series with the logarithm.
    least = 0.01 * eps(y)

    def unfinished(state: Any) -> Array:
        k, _, total, change = state
        return (k < _TERMS) & jnp.any(abs(change) > least * abs(total))

    def add(state: Any) -> Any:
        k, term, total, _ = state
        bracket = log(y) - digamma(k + 1) - digamma(k + m + 1) + digamma(a + k + m) + digamma(b + k + m)
        change = term * bracket
        ratio = (a + m + k) * (b + m + k) / ((k + 1) * (k + 1 + m)) * y
        return k + 1, term * ratio, total + change, change

    start = exp(-lgamma(m + 1))
    series = while_loop(unfinished, add, (zero, start, jnp.zeros_like(y), jnp.ones_like(y)))[2]
    sign = jnp.where(jnp.mod(m, 2) == 0, 1, -1)
    return finite - sign * exp(m * log(y)) * _quotient((a + b + m,), (a, b)) * series


def _hyp2f1_value(a: Array, b: Array, c: Array, x: Array) -> Array:
    ends = (_pole(a) & ((a >= c) | ~_pole(c))) | (_pole(b) & ((b >= c) | ~_pole(c)))
    pole = _pole(c) & ~ends
    inside = (x < 1) & (x > -np.inf) & ~pole
    use = inside | (ends & jnp.isfinite(x))
    p, q, r, z = (jnp.where(use, v, o) for v, o in ((a, 0.5), (b, 0.5), (c, 1.5), (x, 0.1)))
    value = _regular(p, q, r, z)
    # c - a - b whole and x near 1, where the terms of the regular formula have poles that cancel.
    d = r - p - q
    whole = (z > 0.9) & (z < 1) & (d == jnp.round(d)) & ~ends & ~_pole(r - p) & ~_pole(r - q)
    # Euler's transformation (DLMF 15.8.1) makes c - a - b positive.
    flip = whole & (d < 0)
    s, t = jnp.where(flip, r - p, p), jnp.where(flip, r - q, q)
    s, t, m, y = (jnp.where(whole, v, o) for v, o in ((s, 0.5), (t, 0.5), (abs(d), 1.0), (1 - z, 0.1)))
    by_log = _logarithmic(s, t, m, y) * jnp.where(flip, exp(jnp.where(flip, d, 0) * log(y)), 1)
    value = jnp.where(whole, by_log, value)
    # Polynomials times a power, where c - a or c - b is a pole.
    finite = (_pole(r - p) | _pole(r - q)) & (z > 0.9) & (z < 1) & ~ends
    power = exp(jnp.where(finite, d, 0) * log1p(-jnp.where(finite, z, 0.1)))
    value = jnp.where(finite, power * _gauss(*(jnp.where(finite, v, 0) for v in (r - p, r - q)), r, z), value)
    gap = c - a - b
    at_one = jnp.where(
        gap > 0, _quotient((jnp.where(gap > 0, c, 1), jnp.where(gap > 0, gap, 1)), (c - a, c - b)), np.inf
    )
    value = jnp.where((x == 1) & ~ends, at_one, value)
    value = jnp.where(pole | ((x > 1) & ~ends), np.inf, value)
    value = jnp.where((x == 0) | (a == 0) | (b == 0), 1, value)
    bad = jnp.isnan(a) | jnp.isnan(b) | jnp.isnan(c) | jnp.isnan(x)
    return jnp.where(bad, np.nan, value)


def _hyp2f1_by_x(a: Array, b: Array, c: Array, x: Array) -> Array:
    return a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x)  # DLMF 15.5.1


_hyp2f1 = differentiable(
    _hyp2f1_value, {0: slope_of(_regular, 0), 1: slope_of(_regular, 1), 2: slope_of(_regular, 2), 3: _hyp2f1_by_x}
)


@shown("print(round(float(hyp2f1(1.0, 1.0, 2.0, 0.5)), 5))", "1.38629", raises="ParameterError: complex input.")
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss's hypergeometric function F(a, b; c; x), the sum of (a)_k (b)_k x^k / ((c)_k k!) (DLMF 15.2.1).

    Args:
        a, b, c, x: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype, with derivatives in all operands; inf for x > 1 and where ``c`` is
        0, -1, ..., unless the series ends before.
    """
    a, b, c, x = reals("hyp2f1", a, b, c, x)
    return at_least_float32(_hyp2f1, a, b, c, x)
