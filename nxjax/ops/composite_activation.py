"""Activations that devices have as one instruction: relu, gelu, silu, hard_swish, elu, ... Each is one equation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.ops.arithmetic import abs, add, div, integer_pow, max, min, mul, neg, square, sub
from nxjax.ops.base import Composed, NDArray, RoundedDerivative, Tangent, Unary, like
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import ge, gt, lt
from nxjax.ops.elementary import exp, expm1, log1p, logistic
from nxjax.ops.select import select_n
from nxjax.ops.special import erfc
from nxjax.trace import dtypes
from nxjax.trace.core import Array

REAL = dtypes.INTEGER | dtypes.FLOAT


class Activation(RoundedDerivative, Unary):
    """An elementwise function known by its expansion."""

    allowed = dtypes.FLOAT


class _Composed(Activation, Composed):
    allowed = dtypes.FLOAT


@final
class Relu(Activation):
    """max(x, 0); the derivative at 0 is 0 (Bertoin et al., "Numerical influence of ReLU'(0)", NeurIPS 2021)."""

    name = "relu"
    allowed = REAL

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(np.maximum(x, np.zeros((), x.dtype)), x.dtype)

    def expand(self, x: Array, /) -> Array:
        return max(x, like(x, 0))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: select_n(gt(x, like(x, 0)), like(t, 0), t),)


@final
class Relu6(Activation):
    """min(max(x, 0), 6); the derivative at 0 and at 6 is 0."""

    name = "relu6"
    allowed = REAL

    def expand(self, x: Array, /) -> Array:
        return min(max(x, like(x, 0)), like(x, 6))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        inside = and_(gt(x, like(x, 0)), lt(x, like(x, 6)))
        return (lambda t: select_n(inside, like(t, 0), t),)


@final
class Silu(_Composed):
    """x / (1 + exp(-x))"""

    name = "silu"

    def composed(self, x: Array, /) -> Array:
        return mul(x, logistic(x))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        s = logistic(x)
        derivative = add(s, mul(y, sub(like(s, 1), s)))
        return (lambda t: mul(t, derivative),)


@final
class HardSwish(_Composed):
    """x relu6(x + 3) / 6 (Howard et al., "Searching for MobileNetV3", 2019)."""

    name = "hard_swish"

    def composed(self, x: Array, /) -> Array:
        return mul(x, div(relu6(add(x, like(x, 3))), like(x, 6)))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        # x times a ramp of slope 1/6 between -3 and 3
        ramp = div(relu6(add(x, like(x, 3))), like(x, 6))
        inside = and_(gt(x, like(x, -3)), lt(x, like(x, 3)))
        derivative = add(ramp, select_n(inside, like(x, 0), div(x, like(x, 6))))
        return (lambda t: mul(t, derivative),)


@final
class LeakyRelu(Activation):
    """x where x >= 0, else ``alpha`` x."""

    name = "leaky_relu"

    def expand(self, x: Array, /, *, alpha: float) -> Array:
        return select_n(ge(x, like(x, 0)), mul(like(x, alpha), x), x)

    def tangents(self, y: Array, x: Array, *, alpha: float) -> Sequence[Tangent | None]:
        derivative = select_n(ge(x, like(x, 0)), like(x, alpha), like(x, 1))
        return (lambda t: mul(t, derivative),)


@final
class Softplus(_Composed):
    """log(1 + exp(x))"""

    name = "softplus"

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(np.logaddexp(x, np.zeros((), x.dtype)), x.dtype)

    def composed(self, x: Array, /) -> Array:
        return add(max(x, like(x, 0)), log1p(exp(neg(abs(x)))))

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, logistic(x)),)


@final
class Elu(_Composed):
    """x where x > 0, else exp(x) - 1 (Clevert et al., "Fast and accurate deep network learning", 2015)."""

    name = "elu"

    def composed(self, x: Array, /) -> Array:
        above = gt(x, like(x, 0))
        # The exponential sees no large x, whose infinite derivative would be multiplied by 0.
        return select_n(above, expm1(select_n(above, x, like(x, 0))), x)

    def tangents(self, y: Array, x: Array) -> Sequence[Tangent | None]:
        above = gt(x, like(x, 0))
        derivative = select_n(above, exp(select_n(above, x, like(x, 0))), like(x, 1))
        return (lambda t: mul(t, derivative),)


def _rounded(value: float, x: Array) -> float:
    """``value`` as the dtype of ``x`` has it."""
    return float(np.asarray(value).astype(x.dtype))


@final
class Gelu(_Composed):
    """x times the normal distribution function of x; ``approximate`` by a hyperbolic tangent.

    Hendrycks and Gimpel, "Gaussian error linear units" (2016).
    """

    name = "gelu"

    def composed(self, x: Array, /, *, approximate: bool) -> Array:
        if approximate:
            # (1 + tanh u) / 2, where tanh u is nearly -1, too
            return mul(x, logistic(mul(self._inner(x), 2.0)))

        return mul(mul(x, 0.5), erfc(mul(neg(x), _rounded(math.sqrt(0.5), x))))

    def _inner(self, x: Array) -> Array:
        return mul(add(x, mul(integer_pow(x, y=3), 0.044715)), _rounded(math.sqrt(2 / math.pi), x))

    def tangents(self, y: Array, x: Array, *, approximate: bool) -> Sequence[Tangent | None]:
        if approximate:
            s = logistic(mul(self._inner(x), 2.0))
            # d inner / dx = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
            inner = mul(add(mul(square(x), 3 * 0.044715), 1.0), math.sqrt(2 / math.pi))
            by_gate = mul(mul(mul(x, 2.0), mul(s, sub(like(s, 1), s))), inner)
            derivative = add(s, by_gate)
        else:
            density = mul(exp(mul(square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
            derivative = add(mul(erfc(mul(x, -math.sqrt(0.5))), 0.5), mul(x, density))
        return (lambda t: mul(t, derivative),)


relu = Relu()
relu6 = Relu6()
silu = Silu()
hard_swish = HardSwish()
leaky_relu = LeakyRelu()
softplus = Softplus()
elu = Elu()
gelu = Gelu()
