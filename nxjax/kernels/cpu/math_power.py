"""Powers of two operands.

x^y = e^(y log x). The exponent is as large as 745, so that log x needs ten more bits than the result: floats take it in
double; doubles take it in two parts, of which the second is what rounding the first has lost (Dekker; the series is
that of `math_log`, its leading terms in two parts).
"""

from __future__ import annotations

from typing import Final

from nxjax.kernels.cpu.ir import Function, Value, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import INVALID, copysign, fabs, fast_two_sum, polynomial, product_error
from nxjax.kernels.cpu.math_exp import DOUBLE, exp, exp_times
from nxjax.kernels.cpu.math_log import cut, log
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.kernels.cpu.ops_arithmetic import rounded
from nxjax.trace import dtypes

# log((1 + s) / (1 - s)) = 2 s + s z (2/3 + z Q(z)) with z = s^2; of the logarithm 2^-73.5
_Q: Final = (
    0.3999999999999998, 0.2857142857144515, 0.22222222217527254, 0.1818181887144913,
    0.15384556793314375, 0.13336320418278394, 0.11674757417278198, 0.11989523609962772,
)  # fmt: skip
_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
_LARGE: Final = 2.0**100
_FAR: Final = 800.0  # e to the power of this is infinite or 0 in double


def _log_parts(f: Function, isa: Isa, x: Value) -> tuple[Value, Value]:
    """log x of positive doubles in two parts, to about 2^-68; -inf, inf and NaN where they belong."""
    k, part = cut(f, x)
    # s = part / (2 + part)
    bottom, lost = fast_two_sum(f.constant(x.type, 2.0), part)
    inverse = 1.0 / bottom
    s = part * inverse
    product = s * bottom
    s_low = ((part - product) - product_error(f, isa, s, bottom, product) - s * lost) * inverse
    # z = s^2
    z = s * s
    z_low = f.fma(s + s, s_low, product_error(f, isa, s, s, z))
    # g = 2/3 + z Q(z)
    g, g_low = fast_two_sum(f.constant(x.type, _THIRDS[0]), z * polynomial(f, _Q, z))
    g_low = g_low + _THIRDS[1]
    # w = z g, v = s w
    w = z * g
    w_low = f.fma(z, g_low, f.fma(z_low, g, product_error(f, isa, z, g, w)))
    v = s * w
    v_low = f.fma(s, w_low, f.fma(s_low, w, product_error(f, isa, s, w, v)))
    high, low = fast_two_sum(s + s, v)
    low = low + (v_low + (s_low + s_low))
    # k ln 2, of which the first part is exact
    high, more = fast_two_sum(k * DOUBLE.ln2_high, high)
    high, low = fast_two_sum(high, more + f.fma(k, DOUBLE.ln2_low, low))
    inside = x.gt(0.0) & x.lt(float("inf"))
    end = f.select(x.eq(0.0), float("-inf"), x)
    return f.select(inside, high, end), f.select(inside, low, 0.0)


def double_power(f: Function, isa: Isa, x: Value, y: Value) -> Value:
    """x^y of doubles, x >= 0."""
    # Beyond this, whatever x is other than 1, the result is infinite or 0; a split product would overflow.
    y = f.select(y.gt(_LARGE), _LARGE, y)
    y = f.select(y.lt(-_LARGE), -_LARGE, y)
    high, low = _log_parts(f, isa, x)
    product = y * high
    tail = f.fma(y, low, product_error(f, isa, y, high, product))
    tail = f.select(fabs(f, product).lt(_FAR), tail, 0.0)
    return exp_times(f, isa, product, tail, f.constant(x.type, 1.0))


def _signed(f: Function, isa: Isa, x: Value, y: Value, size: Value) -> Value:
    """x^y from |x|^y, with C's special values."""
    whole = rounded(f, isa, "floor", y).eq(y)
    half = y * 0.5
    odd = whole & rounded(f, isa, "floor", half).ne(half)
    y_infinite = fabs(f, y).eq(float("inf"))
    result = f.select(odd, copysign(f, size, x), size)
    result = f.select(x.lt(0.0) & x.gt(float("-inf")) & ~whole, INVALID, result)
    result = f.select(x.eq(-1.0) & y_infinite, 1.0, result)
    return f.select(x.eq(1.0) | y.eq(0.0), 1.0, result)


@op("pow", dtypes.FLOAT)
def pow_(s: EmitContext) -> Value:
    f, isa = s.f, s.isa
    x, y = s.xs
    double = with_element(x.type, "double")
    a, b = x.convert(double), y.convert(double)
    size = fabs(f, a)
    if s.dtype == dtypes.float64:
        size = double_power(f, isa, size, b)
    else:
        size = exp(f, isa, b * log(f, isa, size))
    return _signed(f, isa, a, b, size).convert(x.type)
