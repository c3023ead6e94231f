"""Incomplete gamma functions of a large ``a`` and an ``x`` near it, where recurrences take about sqrt(a) steps.

Temme's uniform expansion (DLMF 8.12). With x = a (1 + m) and eta^2 / 2 = m - log(1 + m), of the sign of m,

    Q(a, x) = erfc(eta sqrt(a / 2)) / 2 + exp(-a eta^2 / 2) / sqrt(2 pi a) (c_0(eta) + c_1(eta) / a + ...)

Written in terms, as recurrences are. Knows no op that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, Final

from nxjax.ops import arithmetic, special
from nxjax.ops.recurrence import Term, exp, function_of, where
from nxjax.trace.core import Array

LEAST: Final = 200  # of ``a``: fewer orders than `ORDERS` lose digits of a float64 below it
WIDTH: Final = 0.25  # of ``m``: farther away recurrences settle quickly
ORDERS: Final = 5
TERMS: Final = 15  # of the first order: eta^2 is below 0.08, and each term about 0.08 of the one before
sqrt, erfc = function_of(arithmetic.sqrt), function_of(special.erfc)


def is_large(a: Any, x: Any) -> Any:
    return (a > LEAST) & (a < math.inf) & (abs(x - a) < a * WIDTH)


@cache
def _coefficients() -> tuple[list[list[float]], list[float]]:
    """Of each c_k in powers of eta (DLMF 8.12.12), and of Gamma(a) / (sqrt(2 pi / a) (a / e)^a) in powers of 1 / a."""
    count = TERMS + 2 * ORDERS
    m = [Fraction(0), Fraction(1)]  # in powers of eta, of which m m' = eta (1 + m)
    for n in range(2, count + 2):
        m.append(m[n - 1] / (n + 1) - sum((m[i] * m[n + 1 - i] for i in range(2, n)), Fraction(0)) / 2)
    inverse = [Fraction(1)]  # eta / m
    for n in range(1, count + 1):
        inverse.append(-sum((m[1 + i] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    first = c = inverse[1:]
    orders, scaled = [c], [1.0]
    for k in range(1, ORDERS):
        # c_k is c_{k-1}' / eta and a multiple of 1 / m, which cancels its pole.
        pole = c[1]
        c = [(n + 2) * c[n + 2] - pole * first[n] for n in range(len(c) - 2)]
        orders.append(c)
        scaled.append(float((-1) ** (k + 1) * pole))
    return [[float(v) for v in c[: TERMS - 2 * k]] for k, c in enumerate(orders)], scaled


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    y = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        y = y * x + c
    return y


class Large:
    """What the functions are made of, at operands that are large where ``large`` is true."""

    def __init__(self, large: Any, a: Any, x: Any) -> None:
        self.large = large
        self.a, self.x = a, x = where(large, a, 2 * LEAST), where(large, x, 2 * LEAST)
        m = (x - a) / a
        # log(1 + m) = 2 s + 2 s^3 / 3 + ..., where 2 s = m - m s.
        half = 1 / (m + 2)
        s = m * half
        squared = s * s
        tail = _polynomial(squared, [1 / n for n in range(3, 23, 2)])
        slope = sqrt((half - s * half * half * tail * 2) * 2)  # eta / m
        self.log = s * (squared * tail + 1) * 2
        self.eta, self.log_by_eta, self.m_by_eta = m * slope, half * (squared * tail + 1) * 2 / slope, 1 / slope
        self.z = self.eta * sqrt(a * 0.5)
        self.front = exp(-(self.z * self.z)) / sqrt(a * (2 * math.pi))

    def series(self) -> Any:
        """The sum of the c_k, divided by powers of ``a``."""
        return _by_orders(self.a, [_polynomial(self.eta, c) for c in _coefficients()[0]])

    def lower(self) -> Any:
        return erfc(-self.z) * 0.5 - self.front * self.series()

    def upper(self) -> Any:
        return erfc(self.z) * 0.5 + self.front * self.series()

    def slope(self) -> Any:
        """The derivative of the lower function in ``a``, divided by ``front``."""
        a, orders = self.a, _coefficients()[0]
        by_eta = _by_orders(a, [_polynomial(self.eta, [n * v for n, v in enumerate(c)][1:]) for c in orders])
        by_a = _by_orders(a, [_polynomial(self.eta, c) * k for k, c in enumerate(orders)]) / a
        return (by_eta * self.m_by_eta + self.series() * 0.5) / a + by_a - self.log_by_eta - self.series() * self.log

    def density(self) -> Any:
        """The derivative of the lower function in ``x``, divided by ``front``."""
        return self.a / (self.x * _polynomial(1 / self.a, _coefficients()[1]))

    def sample_slope(self) -> Any:
        """How ``x`` moves with ``a`` where the lower function stays."""
        return -self.slope() / self.density()

    def or_else(self, value: Any, other: Array) -> Array:
        """``value`` where operands are large; of arrays."""
        return where(self.large, value, Term(other)).value


def near(a: Array, x: Array) -> Large:
    """Of arrays."""
    terms = Term(a), Term(x)
    return Large(is_large(*terms), *terms)


def _by_orders(a: Any, values: Sequence[Any]) -> Any:
    y = values[-1]
    for v in values[-2::-1]:
        y = y / a + v
    return y
