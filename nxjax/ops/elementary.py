"""Elementary functions of one real or complex variable: exponential, logarithm, trigonometric, hyperbolic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import abs, add, div, mul, neg, ratio, rsqrt, square, sub
from nxjax.ops.base import Composed, Face, NDArray, RoundedDerivative, Tangent, Unary, define_op, like
from nxjax.ops.compare import eq, lt
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType


class Smooth(RoundedDerivative, Unary):
    """A differentiable function of one inexact operand."""

    allowed = dtypes.INEXACT

    @staticmethod
    def push(t: Array, y: Array, x: Array) -> Array:
        """The tangent of the result, if no rule of its own says it."""
        raise NotImplementedError

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        return (lambda t: type(self).push(t, y, x),)

    def eval(self, x: NDArray, /) -> NDArray:
        function: Any = type(self).ufunc
        if x.dtype not in dtypes.NARROW:
            return np.asarray(function(x), x.dtype)
        # Narrow types round better when the function is taken in float32.
        return np.asarray(function(x.astype(np.float32))).astype(x.dtype)


exp = define_op(
    Smooth,
    "exp",
    "e to the power x",
    push=lambda t, y, x: mul(t, y),
    hlo="exponential",
    ufunc=np.exp,
    accuracy=True,
    example=("jnp.array([0.0, -jnp.inf, 1000.0])", "Array([ 1.,  0., inf], dtype=float32)"),
    numpy=Face("exp", "e to the power x."),
)


@final
class Exp2(Composed, Smooth):
    """2 to the power x"""

    name = "exp2"
    ufunc = np.exp2
    accuracy = True
    example = "jnp.array([3.0, -1.0])", "Array([8. , 0.5], dtype=float32)"
    numpy = Face("exp2", "2 to the power x.", ("jnp.array([3, -1])", "Array([8. , 0.5], dtype=float32)"))
    push = staticmethod(lambda t, y, x: mul(t, mul(y, float(np.log(2)))))

    def eval(self, x: NDArray, /) -> NDArray:
        # Complex ones as the expansion, whose answers at infinity are others than NumPy's.
        return np.asarray(np.exp(x * x.dtype.type(np.log(2))), x.dtype) if x.dtype.kind == "c" else super().eval(x)

    def composed(self, x: Array, /) -> Array:
        return exp(mul(x, float(np.log(2))))


def _special_expm1(x: NDArray, y: NDArray) -> NDArray:
    """What the Array API standard asks of complex input that is infinite, NaN or real, where NumPy says NaN."""
    real, imag = x.real, x.imag
    y = y.copy()
    on_axis = imag == 0
    y.real[on_axis] = np.expm1(real[on_axis]) + 0.0  # no negative zero
    y.imag[on_axis] = imag[on_axis]
    nowhere = ~np.isfinite(imag)
    y[nowhere & (real == -np.inf)] = -1
    y.real[nowhere & (real == np.inf)] = np.inf
    return y


@final
class Expm1(Smooth):
    """e^x - 1, exact near zero"""

    name = "expm1"
    hlo = "exponential_minus_one"
    ufunc = np.expm1
    accuracy = True
    example = "jnp.array([0.0, 1e-10])", "Array([0.e+00, 1.e-10], dtype=float32)"
    numpy = Face("expm1", "exp(x) - 1, exact for small x.")
    push = staticmethod(lambda t, y, x: mul(t, add(y, 1)))

    def eval(self, x: NDArray, /) -> NDArray:
        y = super().eval(x)
        return _special_expm1(x, y) if x.dtype.kind == "c" else y


log = define_op(
    Smooth,
    "log",
    "Natural logarithm; NaN below zero.",
    push=lambda t, y, x: div(t, x),
    hlo="log",
    ufunc=np.log,
    accuracy=True,
    example=("jnp.array([1.0, 0.0, -1.0])", "Array([  0., -inf,  nan], dtype=float32)"),
    numpy=Face("log", "Natural logarithm."),
)


@final
class Log1p(Smooth):
    """log(1 + x), exact near zero"""

    name = "log1p"
    hlo = "log_plus_one"
    ufunc = np.log1p
    accuracy = True
    example = "jnp.array([1e-10, -1.0])", "Array([1.e-10,   -inf], dtype=float32)"
    numpy = Face("log1p", "log(1 + x), exact for small x.")
    push = staticmethod(lambda t, y, x: div(t, add(x, 1)))

    def eval(self, x: NDArray, /) -> NDArray:
        # NumPy's adds 1 to a complex number before all else, and a small one is gone.
        return _log1p_of_complex(x) if x.dtype.kind == "c" else super().eval(x)


def _two_products(x: NDArray) -> tuple[NDArray, NDArray]:
    """x^2 rounded, and what rounding took away (Dekker, "A floating-point technique", 1971)."""
    part = x * (2.0**27 + 1)
    high = part - (part - x)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


def _log1p_of_complex(x: NDArray) -> NDArray:
    """log|1 + x| and the angle. Near |1 + x| = 1 the logarithm is that of |1 + x|^2 - 1, whose terms may cancel."""
    a, b = x.real.astype(np.float64), x.imag.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.hypot(1 + a, b)
        # The size of a finite number may have no end.
        far = np.where(np.isinf(size), np.log(np.hypot(a / 4, b / 4)) + np.log(4.0), np.log(size))
        near = (size > 0.5) & (size < 2)
        a_, b_ = np.where(near, a, 0), np.where(near, b, 0)
        (p, p_rest), (q, q_rest) = _two_products(a_), _two_products(b_)
        large, small = np.maximum(p, q), np.minimum(p, q)
        both = large + small
        total = 2 * a_ + both
        part = total - 2 * a_
        rest = (2 * a_ - (total - part)) + (both - part) + (small - (both - large))
        real = np.where(near, np.log1p(total + (rest + p_rest + q_rest)) / 2, far)
        y = np.empty(x.shape, x.dtype)
        y.real, y.imag = real, np.arctan2(b, 1 + a)
    return y


sin = define_op(
    Smooth,
    "sin",
    "sin x, x in radians",
    push=lambda t, y, x: mul(t, cos(x)),
    hlo="sine",
    ufunc=np.sin,
    accuracy=True,
    example=("jnp.array([0.0, jnp.inf])", "Array([ 0., nan], dtype=float32)"),
    numpy=Face("sin", "Sine of x, in radians."),
)
cos = define_op(
    Smooth,
    "cos",
    "cos x, x in radians",
    push=lambda t, y, x: neg(mul(t, sin(x))),
    hlo="cosine",
    ufunc=np.cos,
    accuracy=True,
    example=("jnp.array([0.0, jnp.inf])", "Array([ 1., nan], dtype=float32)"),
    numpy=Face("cos", "Cosine of x, in radians.", ("0", "Array(1., dtype=float32, weak_type=True)")),
)
tan = define_op(
    Smooth,
    "tan",
    "tan x, x in radians",
    push=lambda t, y, x: mul(t, add(square(y), 1)),
    hlo="tan",
    ufunc=np.tan,
    accuracy=True,
    example=("jnp.array([-0.0, jnp.nan])", "Array([-0., nan], dtype=float32)"),
    numpy=Face("tan", "Tangent of x, in radians."),
)
asin = define_op(
    Smooth,
    "asin",
    "The angle in [-pi/2, pi/2] whose sine is x",
    push=lambda t, y, x: mul(t, _circular(x)),
    chlo="asin",
    ufunc=np.arcsin,
    example=("jnp.array([0.0, 2.0])", "Array([ 0., nan], dtype=float32)"),
    numpy=Face("arcsin asin", "Inverse sine."),
)


def _circular(x: Array) -> Array:
    """1 / sqrt(1 - x^2)"""
    return rsqrt(_beside_square(x))


def _beside_square(x: Array) -> Array:
    """1 - x^2. The derivative of the product loses small numbers; next to 1 and -1 the square loses its last digits."""
    size = abs(x)
    product = mul(sub(like(x, 1), x), add(x, 1))
    return select_n(lt(size, like(size, 0.5)), product, sub(like(x, 1), square(x)))


acos = define_op(
    Smooth,
    "acos",
    "The angle in [0, pi] whose cosine is x",
    push=lambda t, y, x: neg(mul(t, _circular(x))),
    chlo="acos",
    ufunc=np.arccos,
    example=("jnp.array([1.0, -2.0])", "Array([ 0., nan], dtype=float32)"),
    numpy=Face("arccos acos", "Inverse cosine."),
)
atan = define_op(
    Smooth,
    "atan",
    "The angle in (-pi/2, pi/2) whose tangent is x",
    push=lambda t, y, x: div(t, add(square(x), 1)),
    chlo="atan",
    ufunc=np.arctan,
    example=("jnp.array([0.0, jnp.inf])", "Array([0.       , 1.5707964], dtype=float32)"),
    numpy=Face("arctan atan", "Inverse tangent."),
)
sinh = define_op(
    Smooth,
    "sinh",
    "(e^x - e^-x) / 2",
    push=lambda t, y, x: mul(t, cosh(x)),
    chlo="sinh",
    ufunc=np.sinh,
    example=("jnp.array([0.0, -jnp.inf])", "Array([  0., -inf], dtype=float32)"),
    numpy=Face("sinh", "Hyperbolic sine."),
)
cosh = define_op(
    Smooth,
    "cosh",
    "(e^x + e^-x) / 2",
    push=lambda t, y, x: mul(t, sinh(x)),
    chlo="cosh",
    ufunc=np.cosh,
    example=("jnp.array([0.0, -jnp.inf])", "Array([ 1., inf], dtype=float32)"),
    numpy=Face("cosh", "Hyperbolic cosine."),
)
tanh = define_op(
    Smooth,
    "tanh",
    "sinh x / cosh x",
    push=lambda t, y, x: mul(t, sub(like(y, 1), square(y))),
    hlo="tanh",
    ufunc=np.tanh,
    accuracy=True,
    example=("jnp.array([0.0, 20.0, -jnp.inf])", "Array([ 0.,  1., -1.], dtype=float32)"),
    numpy=Face("tanh", "Hyperbolic tangent."),
)
asinh = define_op(
    Smooth,
    "asinh",
    "The inverse of sinh",
    push=lambda t, y, x: mul(t, rsqrt(add(square(x), 1))),
    chlo="asinh",
    ufunc=np.arcsinh,
    example=("jnp.array([0.0, -jnp.inf])", "Array([  0., -inf], dtype=float32)"),
    numpy=Face("arcsinh asinh", "Inverse hyperbolic sine."),
)


@final
class Acosh(Smooth):
    """The inverse of cosh, for x >= 1"""

    name = "acosh"
    chlo = "acosh"
    ufunc = np.arccosh
    example = "jnp.array([1.0, 0.5])", "Array([ 0., nan], dtype=float32)"
    numpy = Face("arccosh acosh", "Inverse hyperbolic cosine.")

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        if x.dtype in dtypes.COMPLEX:
            return (lambda t: mul(t, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1)))),)  # each root on its own branch
        return (lambda t: mul(t, rsqrt(mul(sub(x, 1), add(x, 1)))),)


atanh = define_op(
    Smooth,
    "atanh",
    "The inverse of tanh, for -1 < x < 1",
    push=lambda t, y, x: div(t, _beside_square(x)),
    chlo="atanh",
    ufunc=np.arctanh,
    example=("jnp.array([0.0, 1.0, 2.0])", "Array([ 0., inf, nan], dtype=float32)"),
    numpy=Face("arctanh atanh", "Inverse hyperbolic tangent."),
)


@final
class Logistic(Composed, Smooth):
    """1 / (1 + e^-x)"""

    name = "logistic"
    hlo = "logistic"
    accuracy = True
    example = "jnp.array([0.0, -jnp.inf, jnp.inf])", "Array([0.5, 0. , 1. ], dtype=float32)"
    scipy = Face("expit", "The logistic function 1 / (1 + exp(-x)).", ("1.0", "0.7311"))
    push = staticmethod(lambda t, y, x: mul(t, mul(y, sub(like(y, 1), y))))

    def eval(self, x: NDArray, /) -> NDArray:
        wide = x.astype(np.float32) if x.dtype in dtypes.NARROW else x
        if x.dtype.kind == "c":
            total = 1 + np.exp(-wide)
            return np.asarray(ratio(np.ones_like(total), total), x.dtype)
        # e^-|x| does not overflow, so that small results keep their digits; written in place, as new pages cost more.
        power = np.abs(wide, out=np.empty_like(wide))
        np.exp(np.negative(power, out=power), out=power)
        top = np.maximum(power, wide >= 0, out=np.empty_like(wide))  # 1 from 0 on
        np.divide(top, np.add(power, 1, out=power), out=top)
        return np.asarray(top).astype(x.dtype)

    def composed(self, x: Array, /) -> Array:
        if x.dtype in dtypes.COMPLEX:
            return div(like(x, 1), add(exp(neg(x)), 1))
        power = exp(neg(abs(x)))
        return div(select_n(lt(x, like(x, 0)), like(x, 1), power), add(power, 1))


# The coefficients of sinc'(x) / x in x^2, lowest first (DLMF 4.19.1).
_SINC_SLOPE: Final = [(-1) ** k * 2 * k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 15)]


@final
class Sinc(RoundedDerivative, Composed):
    """sin(pi x) / (pi x), and 1 at 0"""

    name = "sinc"
    numpy = Face(
        "sinc",
        "sin(pi x) / (pi x), 1 at 0, with all its derivatives there.",
        ("jnp.array([0.0, 0.5])", "Array([1.        , 0.63661975], dtype=float32)"),
    )

    def infer(self, *types: ArrayType, **params: Any) -> ArrayType:
        y = super().infer(*types, **params)
        return y.strong() if y.ndim else y  # as in JAX

    def composed(self, x: Array, /) -> Array:
        zero = eq(x, like(x, 0))
        angle = mul(select_n(zero, x, like(x, 1)), math.pi)
        return select_n(zero, div(sin(angle), angle), like(x, 1))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent]:
        """(cos(pi x) - y) / x; near 0, where the difference cancels, its series, which has all derivatives."""
        size = abs(x)
        near = lt(size, like(size, 0.5))
        inner, outer = select_n(near, like(x, 0), x), select_n(near, x, like(x, 1))
        squared, total = mul(inner, inner), like(x, _SINC_SLOPE[-1])
        for c in _SINC_SLOPE[-2::-1]:
            total = add(mul(total, squared), c)
        far = div(sub(cos(mul(outer, math.pi)), y), outer)
        slope = select_n(near, far, mul(total, inner))
        return (lambda t: mul(t, slope),)


exp2 = Exp2()
expm1 = Expm1()
log1p = Log1p()
acosh = Acosh()
sinc = Sinc()
logistic = Logistic()
