"""Hurwitz's zeta function and derivatives of digamma, in double precision, as `ops.special` defines them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import where_rare
from nxjax.kernels.cpu.math_exp import exp
from nxjax.kernels.cpu.math_log import log
from nxjax.kernels.cpu.math_power import double_power
from nxjax.kernels.cpu.math_special import digamma, lgamma
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.trace import dtypes

_Power = Callable[[Value, Value], Value]
_TERMS: Final = 12
_BERNOULLI: Final = tuple(map(Fraction, ("1/6", "-1/30", "1/42", "-1/30", "5/66", "-691/2730", "7/6", "-3617/510")))


def _hurwitz(f: Function, power: _Power, s: Value, q: Value) -> Value:
    """The sum of (q + k)^-s for q > 0 and s > 1: Euler-Maclaurin (DLMF 25.11.5) after some terms."""
    zero = f.constant(q.type, 0.0)
    with f.loop(0, _TERMS, carry=(zero, zero)) as turn:
        total, k = turn.carried
        turn.next(total + power(q + k, -s), k + 1.0)
    total, k = turn.results
    a = q + k
    last = power(a, -s)
    total = total + (last * a / (s - 1.0) + last * 0.5)
    factor = s / a
    inverse = 1.0 / (a * a)
    for j, bernoulli in enumerate(_BERNOULLI):
        total = total + float(bernoulli / math.factorial(2 * j + 2)) * factor * last
        factor = factor * (s + (2.0 * j + 1)) * (s + (2.0 * j + 2)) * inverse
    return total


def _is_whole(f: Function, x: Value) -> Value:
    return f.intrinsic("floor", x.type, x).eq(x)


def _zeta(f: Function, power: _Power, s: Value, q: Value) -> Value:
    low = q.lt(0.0)
    size = f.select(low, -q, 0.0)
    part = size - f.intrinsic("floor", q.type, size)
    total = _hurwitz(f, power, s, f.select(low, 1.0 - part, q))
    even = _is_whole(f, s * 0.5) & s.lt(float("inf"))

    def below() -> Value:
        side = f.select(even, f.constant(s.type, 1.0), -1.0)
        # In this order nothing is lost half way between poles, where the large sums cancel.
        down = _hurwitz(f, power, s, f.select(low, part, 1.0))
        return total + side * down - side * _hurwitz(f, power, s, f.select(low, 1.0 - q, 1.0))

    total = where_rare(f, low, total, below)
    total = f.select(s.eq(1.0), float("inf"), f.select(s.lt(1.0), float("nan"), total))
    # At the poles of even order both sides go to infinity; powers of negative numbers need a whole exponent.
    nowhere = q.le(0.0)
    pole = f.select(even, f.constant(s.type, float("inf")), float("nan"))
    total = f.select(nowhere & _is_whole(f, q) & s.gt(1.0), pole, total)
    return f.select(nowhere & ~_is_whole(f, s), float("nan"), total)


def _in_double(s: EmitContext, function: Callable[[Function, Isa, _Power, Value, Value], Value]) -> Value:
    """In single and narrower precision powers need no more than their logarithm's digits."""
    f, isa = s.f, s.isa
    wide = with_element(s.xs[0].type, "double")
    x, y = (v if s.dtype == dtypes.float64 else v.convert(wide) for v in s.xs)
    if s.dtype == dtypes.float64:
        return function(f, isa, lambda a, b: double_power(f, isa, a, b), x, y)
    return function(f, isa, lambda a, b: exp(f, isa, b * log(f, isa, a)), x, y).convert(s.xs[0].type)


@op("zeta", dtypes.FLOAT)
def zeta(s: EmitContext) -> Value:
    return _in_double(s, lambda f, _, power, x, y: _zeta(f, power, x, y))


def _polygamma(f: Function, isa: Isa, power: _Power, m: Value, x: Value) -> Value:
    """(-1)^(m+1) m! zeta(m + 1, x)"""
    order = m + 1.0
    size = exp(f, isa, lgamma(f, isa, order)) * _zeta(f, power, order, x)
    y = f.select(_is_whole(f, m * 0.5), -size, size)
    y = where_rare(f, m.eq(0.0), y, lambda: digamma(f, isa, x))
    return f.select(m.lt(0.0) | ~_is_whole(f, m), float("nan"), y)


@op("polygamma", dtypes.FLOAT)
def polygamma(s: EmitContext) -> Value:
    return _in_double(s, _polygamma)
