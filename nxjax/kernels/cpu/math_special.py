"""Error functions, gamma functions and Bessel functions of real numbers.

Polynomials are minimax fits by Remez' exchange; the error stated at each is that of the polynomial alone.
"""

from __future__ import annotations

import math
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value, element, lanes_of, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import (
    copysign,
    fabs,
    horner,
    is_single,
    nearest,
    polynomial,
    product_error,
    where_rare,
)
from nxjax.kernels.cpu.math_exp import exp, exp_moderate, exp_times
from nxjax.kernels.cpu.math_log import log, log1p
from nxjax.kernels.cpu.math_trig import sin, tan
from nxjax.kernels.cpu.ops import formula
from nxjax.ops.special import GILES_CENTRE, GILES_TAIL

# erf(x) = x + x E(x^2) for |x| <= 1: in float, of which 2^-30.0,
_ERF_SINGLE: Final = (
    0.128379166, -0.376126289, 0.112836316, -0.0268564988,
    0.00519582629, -0.000811843958, 8.63243913e-05, -2.20734387e-06,
)  # fmt: skip
# and in double, of which 2^-62.7.
_ERF: Final = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.026866170645072907, 0.0052239776247809695,
    -0.0008548326978747529, 0.00012055331037075408, -1.4925593510738337e-05, 1.6460972873659244e-06,
    -1.6350025777404728e-07, 1.4657883312754841e-08, -1.1365678514519963e-09, 5.945281726286306e-11,
)  # fmt: skip
# log erfc(x) for 0.92 <= x <= 4; of erf 2^-36.6
_LOG_ERFC: Final = (
    9.30641909e-05, -1.12902141, -0.634647191, -0.106322616, 0.0232654717,
    -0.00302639487, -2.58912678e-05, 9.510776e-05, -1.6693577e-05, 1.03919376e-06,
)  # fmt: skip
# (1 + 2 x) e^(x^2) erfc(x) as a function of t = (x - 3.5) / (x + 3.5), up to x = 28 (the substitution is that of
# Shepherd and Laframboise, "Chebyshev approximation of (1 + 2 x) exp(x^2) erfc x", 1981); 2^-62.5
_ERFCX: Final = (
    1.2423492448711544, -0.1400091801376194, -0.010555596332218097, 0.09751909515325444, -0.11508959816020636,
    0.08798315382505009, -0.04882332582747386, 0.019099330938664363, -0.004215019914391814, -0.00030226783555700883,
    0.0005643844775680328, -0.00012151270787866841, -4.278257066166235e-05, 2.4262201096459132e-05,
    2.329548588979322e-06, -3.818103443301084e-06, -4.718334660625109e-08, 6.07320625910643e-07,
    -3.4154057152540015e-09, -1.0172874247339352e-07, -3.7156550538436006e-09, 1.6451105362610973e-08,
    2.2827278743877414e-09, -1.8309626565381988e-09, -5.150869755138072e-10,
)  # fmt: skip


# (x + 2) e^(x^2) erfc(x) as a function of t = (x - 2) / (x + 2) = 1 - 4 / (x + 2), for 0.4 <= x <= 10.5; 2^-27.7
_ERFCX_SINGLE: Final = (
    1.02158271, -0.687160652, 0.279471614, -0.0364432455, -0.0215019496,
    0.00648799245, 0.00303521879, -0.000868190048, -0.000517261904, 8.23056195e-05,
)  # fmt: skip


# log(Gamma(2 + u)) / u: 1 - gamma, then (-1)^k (zeta(k) - 1) / k for k = 2, 3, ...; for |u| <= 1/2 the rest is 2^-57
_LGAMMA: Final = (
    0.42278433509846713, 0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986,
    0.0028905103307415234, -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939,
    9.945751278180853e-05, -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06,
    4.374866789907488e-06, -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07,
    2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08,
    1.0838659214896955e-08, -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09,
    5.731367241678862e-10,
)  # fmt: skip
# The same for floats: 2^-37.2
_LGAMMA_SINGLE: Final = (
    0.4227843351, 0.32246703342, -0.0673523014391, 0.0205808088861, -0.00738553314161,
    0.00289049577344, -0.00119305605308, 0.000509866949631, -0.00022086364188, 9.81654593488e-05,
    -5.27971365955e-05, 2.44917580858e-05,
)  # fmt: skip
# B_2k / (2 k (2 k - 1)) for k = 1, 2, ...
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
# e^-x I0(x) sqrt(1 + x / 2) as a function of t = (x - 8) / (x + 8), for all x >= 0; 2^-35.3
_I0E_SINGLE: Final = (
    0.320723214372, -0.07576511947221, 0.07399981505494, -0.07491984343315, 0.07944372570929,
    -0.0891047636915, 0.104067046714, -0.1174511874805, 0.1097025454323, -0.05797310532367, -0.02874316623786,
    0.08462786477211, -0.04573314804892, -0.04072971104434, 0.05174666245485, 0.01717117601944,
    -0.04053824117643, -0.006673521410524, 0.02481189727667, 0.002427426644618, -0.01123272488665,
    -0.0006550193636639, 0.003240335393514, 9.319967765009e-05, -0.0004405661846327,
)  # fmt: skip
# e^-x I1(x) sqrt(1 + x / 2) (1 + x) / x likewise; 2^-35.1
_I1E_SINGLE: Final = (
    0.3374457003745, -0.1060361214977, 0.09489383896577, -0.07934911276731, 0.05723168943477,
    -0.02524239493182, -0.01895678608051, 0.06946847647271, -0.1026525710005, 0.08310920745049,
    -0.003765153676934, -0.07206923010045, 0.05755600980244, 0.02754698498196, -0.05543685441074,
    -0.007407201669739, 0.04100646480747, 0.0009309463076346, -0.02446003947717, 0.0002054192504949,
    0.01084795764526, -0.0001290456211024, -0.003071939598689, 1.946801676622e-05, 0.0004090791039637,
)  # fmt: skip


def _erf_near(f: Function, x: Value) -> Value:
    return f.fma(x, polynomial(f, _ERF_SINGLE if is_single(x) else _ERF, x * x), x)


def _erfc_positive(f: Function, isa: Isa, x: Value) -> Value:
    """erfc of a double in [0, 28], of a float in [0.4, 10.5]; x^2 stands in the exponent with its rounding error."""
    square = x * x
    lost = product_error(f, isa, x, x, square)
    if is_single(x):
        bottom = x + 2.0
        inverse = 1.0 / bottom
        # What the sum's and the quotient's rounding have cost, in proportion.
        rest = f.fma(-inverse, bottom, 1.0) - inverse * (x - (bottom - 2.0))
        t = f.fma(inverse * rest, -4.0, f.fma(inverse, -4.0, 1.0))
        factor = horner(f, _ERFCX_SINGLE, t) * inverse
        factor = f.fma(factor, rest, factor)
    else:
        factor = polynomial(f, _ERFCX, (x - 3.5) / (x + 3.5)) / f.fma(x, 2.0, 1.0)
    return exp_times(f, isa, -square, -lost, factor)


@formula("erf")
def erf(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    if is_single(x):
        clipped = f.select(size.gt(4.0), 4.0, size)
        far = 1.0 - exp_moderate(f, isa, polynomial(f, _LOG_ERFC, clipped))[0]
    else:
        far = 1.0 - _erfc_positive(f, isa, f.select(size.gt(6.0), 6.0, size))
    return f.select(size.ge(1.0), copysign(f, far, x), _erf_near(f, x))


@formula("erfc")
def erfc(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    most = 10.5 if is_single(x) else 28.0
    gone = size.gt(most)  # what is below all numbers comes of nothing that is slow
    far = f.select(gone, 0.0, _erfc_positive(f, isa, f.select(gone, 1.0, size)))
    far = f.select(x.lt(0.0), 2.0 - far, far)
    return f.select(size.lt(0.5), 1.0 - _erf_near(f, x), f.select(x.is_nan(), x, far))


@formula("erf_inv")
def erf_inv(f: Function, isa: Isa, x: Value) -> Value:
    """Giles' polynomials, as the op has them.

    In double two steps of Halley on erf, or near 1 on erfc, which tells values apart there.
    """
    w = -log1p(f, isa, -(x * x))
    centre = polynomial(f, GILES_CENTRE[::-1], w - 2.5)
    outer = f.select(w.lt(5.0), 5.0, w)
    tail = polynomial(f, GILES_TAIL[::-1], f.intrinsic("sqrt", x.type, outer) - 3.0)
    y = f.select(w.lt(5.0), centre, tail) * x
    y = f.select(fabs(f, x).eq(1.0), x * float("inf"), y)
    y = f.select(fabs(f, x).gt(1.0), float("nan"), y)
    if is_single(x):
        return y
    size = fabs(f, x)
    inside = size.lt(1.0)
    # Beyond float32's end of the tail, from erfc's asymptotic form (as the op).
    t = f.select(w.gt(16.0), w, 16.0) + math.log(2)
    inner = t - log(f, isa, t * math.pi) * 0.5
    far = f.intrinsic("sqrt", x.type, t - log(f, isa, inner * math.pi) * 0.5)
    z = f.select(inside, f.select(w.gt(16.0), far, fabs(f, y)), 0.0)
    for _ in range(2):
        error = f.select(size.lt(0.5), _erf_near(f, z) - size, (1.0 - size) - _erfc_positive(f, isa, z))
        step = error * (math.sqrt(math.pi) / 2) * exp(f, isa, z * z)
        z = z - step / (z * step + 1.0)
    return f.select(inside, copysign(f, z, x), y)


def _in_double(x: Value) -> Value:
    """A float as a double: short polynomials in it give a float's last place."""
    return x.convert(with_element(x.type, "double"))


def _by_lanes(f: Function, symbol: str, x: Value) -> Value:
    """A function of C on each lane."""
    if not lanes_of(x.type):
        return f.call(symbol, x.type, x)
    y = f.poison(x.type)
    for i in range(lanes_of(x.type)):
        y = f.insert(y, f.call(symbol, element(x.type), f.extract(x, i)), i)
    return y


@formula("lgamma")
def lgamma(f: Function, isa: Isa, x: Value) -> Value:
    """Infinite at the poles and at both infinities.

    Of doubles C's function. Where bits must be the same everywhere it is the series, and floats are as exact as doubles
    allow, also beside zeros between poles.
    """
    if isa.reproducible:
        return _lgamma(f, isa, _in_double(x), _LGAMMA, _STIRLING).convert(x.type)
    if is_single(x):
        return _lgamma(f, isa, _in_double(x), _LGAMMA_SINGLE, _STIRLING[:4]).convert(x.type)
    return _by_lanes(f, "lgamma", x)


def _lgamma(f: Function, isa: Isa, x: Value, near_two: tuple[float, ...], stirling: tuple[float, ...]) -> Value:
    """log |Gamma| of a double, for y = |x| = n + u with a whole number n and |u| <= 1/2:

    to y = 8, the power series at 2 (DLMF 5.7.3) and a product: Gamma(n + u) = Gamma(2 + u) (2 + u) ... (n - 1 + u);
    beyond, the asymptotic series (5.11.1); of negative numbers, log(pi / |sin pi y|) - log Gamma(1 + y) (5.5.3).
    """
    y = fabs(f, x)
    negative, far = x.lt(-(2.0**-60)), y.ge(8.0)  # nearer to 0, both signs give -log y
    n = nearest(f, isa, f.select(y.lt(8.0), y, 8.0))
    u = y - n
    last = f.select(negative, n + 1.0, n)  # Gamma(1 + y) is wanted there
    product = f.constant(x.type, 1.0)
    for k in range(2, 9):
        product = f.select(last.gt(float(k)), product * (u + float(k)), product)
    product = f.select(last.eq(1.0), f.select(negative, u + 1.0, y), product)
    product = f.select(last.eq(0.0), y * (y + 1.0), product)
    logarithm = log(f, isa, f.select(far, y, product))
    near = u * polynomial(f, near_two, u) + f.select(last.lt(2.0), -logarithm, logarithm)
    r = 1.0 / y
    series = r * polynomial(f, stirling, r * r)
    beyond = f.fma(y - 0.5, logarithm - 1.0, series + (math.log(2 * math.pi) - 1) / 2)
    beyond = f.select(negative, beyond + logarithm, beyond)
    value = f.select(far, beyond, near)

    def reflected() -> Value:
        part = y - f.intrinsic("floor", y.type, y)
        sine = sin(f, isa, math.pi * f.select(part.gt(0.5), 1.0 - part, part))
        return log(f, isa, math.pi / sine) - value

    value = where_rare(f, negative, value, reflected)
    return f.select(y.eq(float("inf")), y, value)


@formula("digamma", wide=True)
def digamma(f: Function, isa: Isa, x: Value) -> Value:
    """As the op: reflection to x >= 1/2 (DLMF 5.5.4), recurrence to x >= 8 (5.5.2), asymptotic series (5.11.2)."""
    low = x.lt(0.5)
    z = f.select(low, 1.0 - x, x)
    # 1 / z + ... + 1 / (z + 7) as one fraction, which does not overflow below 8.
    small = z.lt(8.0)
    near = f.select(small, z, 1.0)
    top, bottom = f.constant(x.type, 1.0), near
    for k in range(1, 8):
        factor = near + float(k)
        top, bottom = f.fma(top, factor, bottom), bottom * factor
    shift = f.select(small, top / bottom, 0.0)
    z = f.select(small, z + 8.0, z)
    r = 1.0 / (z * z)
    series = polynomial(f, (0.0, 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760), r)
    y = log(f, isa, z) - 0.5 / z - series - shift
    # tan has period pi: only the fraction of x counts, which is exact.
    floor = f.intrinsic("floor", x.type, x)
    fraction = x - nearest(f, isa, x)
    fraction = f.select(fabs(f, x).lt(2.0**51), fraction, x - floor)
    y = where_rare(f, low, y, lambda: y - math.pi / tan(f, isa, fraction * math.pi))
    return f.select(x.le(0.0) & x.eq(floor), float("nan"), y)


def _bessel(f: Function, isa: Isa, size: Value, order: int) -> Value:
    """e^-x I_order(x), x >= 0, as the op: the power series up to 20, the asymptotic one beyond."""
    near = f.select(size.gt(20.0), 20.0, size)
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(45)]
    half = near * 0.5
    series = polynomial(f, terms, half * half) * exp(f, isa, -near)
    if order:
        series = series * half
    far = f.select(size.lt(20.0), 20.0, size)
    asymptotic = [1.0]
    for k in range(1, 14):
        asymptotic.append(asymptotic[-1] * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    root = f.intrinsic("sqrt", far.type, far)
    tail = polynomial(f, asymptotic, 1.0 / far) * (1 / math.sqrt(2 * math.pi)) / root
    return f.select(size.lt(20.0), series, tail)


def _bessel_single(f: Function, size: Value, coefficients: tuple[float, ...]) -> Value:
    """The function that ``coefficients`` are of, over sqrt(1 + x / 2), of a float as a double."""
    t = 1.0 - 16.0 / (size + 8.0)
    return polynomial(f, coefficients, t) / f.intrinsic("sqrt", size.type, f.fma(size, 0.5, 1.0))


@formula("bessel_i0e")
def bessel_i0e(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    if is_single(x):
        return _bessel_single(f, _in_double(size), _I0E_SINGLE).convert(x.type)
    return _bessel(f, isa, size, 0)


@formula("bessel_i1e")
def bessel_i1e(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    if is_single(x):
        z = _in_double(size)
        z = f.select(z.gt(1e300), 1e300, z)
        y = (_bessel_single(f, z, _I1E_SINGLE) * (z / (z + 1.0))).convert(x.type)
    else:
        y = _bessel(f, isa, size, 1)
    return copysign(f, y, x)
