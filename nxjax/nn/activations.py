"""Activation functions. Those that devices have as one instruction are one op, the others compositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import as_axis, as_operand, convert, promote_inexact
from nxjax.ops import composite_activation as ops
from nxjax.ops.elementary import logistic
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import copied
from nxjax.trace.core import Array, Tracer
from nxjax.transforms.custom_jvp import custom_jvp

F = TypeVar("F", bound=Callable[..., Array])


def _described(args: str, shown: str, *others: str, rounded: bool = False) -> Callable[[F], F]:
    """Decorator for functions of floats: what they take and an example come behind the first line of their docstrings.

    Args:
        args: what stands between the parentheses of the example's call.
        shown: what it prints, as an array or ``rounded`` to four digits.
        others: the parameters beside ``x``.
    """

    def complete(function: F) -> F:
        call = f"{function.__name__}({args})"
        takes = "\n    ".join(("x: array of any shape; integers become float.", *others))
        example = f">>> print({call}.round(4))" if rounded else f">>> {call}"
        function.__doc__ = f"{function.__doc__}\n\nArgs:\n    {takes}\n\n{example}\n{shown}\n"
        return function

    return complete


def _is_number(x: Any) -> bool:
    """A Python number: known while tracing, so that it may be a parameter of an op."""
    return isinstance(x, (int, float))


@example("jnp.array([1, 2])", "Array([1, 2], dtype=int32)")
def identity(x: ArrayLike) -> Array:
    """``x`` as an array.

    Args:
        x: array or number of any dtype, which is kept.
    """
    return copied(as_operand(x, "identity"))


@example("jnp.array([-1.0, 0.0, 2.0])", "[0.0, 0.0, 2.0]", then=".tolist()")
def relu(x: ArrayLike) -> Array:
    """max(x, 0); the derivative at 0 is 0.

    Args:
        x: array of any shape and dtype, which is kept; booleans become integers. Complex numbers are compared by their
            real parts first.
    """
    v = as_operand(x, "relu")
    return ops.relu(v) if v.dtype in ops.REAL else jnp.maximum(v, 0)


@example("jnp.array([-1.0, 3.0, 8.0])", "Array([0., 3., 6.], dtype=float32)")
def relu6(x: ArrayLike) -> Array:
    """min(max(x, 0), 6); the derivative at 0 and 6 is 0. Integers become float.

    Args:
        x: array of any shape.
    """
    v = as_operand(x, "relu6")
    return ops.relu6(v) if v.dtype in dtypes.FLOAT else jnp.minimum(jnp.maximum(v, 0), 6.0)


@_described("jnp.array([-jnp.inf, 0.0, jnp.inf])", "Array([0. , 0.5, 1. ], dtype=float32)")
def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))"""
    return logistic(*promote_inexact("sigmoid", x))


@_described("jnp.array([-1.0, 0.0, 1.0])", "[-0.2689  0.      0.7311]", rounded=True)
def silu(x: ArrayLike) -> Array:
    """x * sigmoid(x), also called swish (Ramachandran et al., 2017)."""
    (v,) = promote_inexact("silu", x)
    return ops.silu(v) if v.dtype in dtypes.FLOAT else v * logistic(v)


swish = silu


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    Args:
        x: array.
        approximate: by a hyperbolic tangent; else with the error function.

    >>> print(gelu(jnp.array([-1.0, 0.0, 1.0])).round(4))
    [-0.1588  0.      0.8412]
    >>> print(gelu(jnp.array([-1.0, 0.0, 1.0]), approximate=False).round(4))
    [-0.1587  0.      0.8413]
    """
    (v,) = promote_inexact("gelu", x)
    if v.dtype in dtypes.COMPLEX and approximate:
        return v * (0.5 * (1.0 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v**3))))
    return ops.gelu(convert(v, v.dtype), approximate=bool(approximate))


@_described("jnp.array([-jnp.inf, 0.0, jnp.inf])", "Array([-1.,  0.,  1.], dtype=float32)")
def tanh(x: ArrayLike, /) -> Array:
    """Hyperbolic tangent."""
    return jnp.tanh(x)


@_described("jnp.array([-1.0, 0.0, 1000.0])", "[3.133e-01 6.931e-01 1.000e+03]", rounded=True)
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)), without overflow."""
    return jnp.logaddexp(x, 0)


@_described("jnp.array([-1000.0, 0.0])", "[-1.000e+03 -6.931e-01]", rounded=True)
def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)), without underflow."""
    return -softplus(-as_operand(x, "log_sigmoid"))


@_described("jnp.array([-1.0, 0.0, 3.0])", "Array([-0.5 ,  0.  ,  0.75], dtype=float32)")
def soft_sign(x: ArrayLike) -> Array:
    """x / (|x| + 1)"""
    (v,) = promote_inexact("soft_sign", x)
    return _soft_sign(v) if isinstance(v, Tracer) and v.dtype not in dtypes.COMPLEX else v / (jnp.abs(v) + 1)


@custom_jvp
def _soft_sign(x: Array) -> Array:
    return x / (jnp.abs(x) + 1)


@_soft_sign.defjvp
def _soft_sign_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """1 / (|x| + 1)^2: that of the quotient is a difference, of nearly equal numbers where x is large."""
    (x,), (t,) = primals, tangents
    part = 1 / (jnp.abs(x) + 1)
    return _soft_sign(x), t * part * part


@example("jnp.array([-1.5, 0.0, 1.5])", "Array([0.5, 1. , 2. ], dtype=float32)")
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """(x + sqrt(x^2 + b)) / 2 (Barron, 2021).

    Args:
        x: array of any shape; integers become float.
        b: number or array; 0 gives `relu`.
    """
    v = as_operand(x, "squareplus")
    if not (isinstance(v, Tracer) or isinstance(b, Tracer)) or v.dtype in dtypes.COMPLEX:
        return _squareplus_of(v, b)
    return _squareplus(*promote_inexact("squareplus", v, b))


def _squareplus_of(x: Array, b: Any) -> Array:
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


_squareplus = custom_jvp(_squareplus_of)
# With r = sqrt(x^2 + b), the slope is (1 + x / r) / 2: for x < 0 that is a difference. It is b / (2 r (r - x)) there,
# and 1 less that of -x elsewhere. Its own slopes are b / (2 r^3) and, in b, -x / (4 r^3).
_squareplus.defjvps(
    lambda t, y, x, b: t * _squareplus_slope(x, b), lambda t, y, x, b: t / (4 * jnp.sqrt(jnp.square(x) + b))
)


@custom_jvp
def _squareplus_slope(x: Array, b: Array) -> Array:
    r = jnp.sqrt(jnp.square(x) + b)
    low = b / (r + jnp.abs(x)) / r / 2
    return jnp.where(x < 0, low, 1 - low)


@_squareplus_slope.defjvp
def _squareplus_bend(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, b), (t, u) = primals, tangents
    r = jnp.sqrt(jnp.square(x) + b)
    return _squareplus_slope(x, b), t * (b / r / r / r / 2) - u * (x / r / r / r / 4)


@_described("jnp.array([-2.0, 0.0, 2.0])", "Array([0.  , 0.25, 2.  ], dtype=float32)")
def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1, (x + 1)^2 / 4 between."""
    v = as_operand(x, "sparse_plus")
    return jnp.where(v <= -1.0, 0.0, jnp.where(v >= 1.0, v, (v + 1.0) ** 2 / 4))


@_described("jnp.array([-2.0, 0.0, 2.0])", "Array([0. , 0.5, 1. ], dtype=float32)")
def sparse_sigmoid(x: ArrayLike) -> Array:
    """0 below -1, 1 above 1, (x + 1) / 2 between: the derivative of `sparse_plus`."""
    return 0.5 * jnp.clip(as_operand(x, "sparse_sigmoid") + 1.0, 0.0, 2.0)


@_described("jnp.array([-1.0, 0.0, 1.0])", "[-0.3034  0.      0.8651]", rounded=True)
def mish(x: ArrayLike) -> Array:
    """x * tanh(softplus(x)) (Misra, 2019)."""
    v = as_operand(x, "mish")
    return v * jnp.tanh(softplus(v))


@_described("jnp.array([-1.0, 0.0, 2.0])", "[-0.6321  0.      2.    ]", "alpha: number or array.", rounded=True)
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """x for x > 0, else alpha * (exp(x) - 1) (Clevert et al., 2015)."""
    v = as_operand(x, "elu")
    if _is_number(alpha) and alpha == 1 and v.dtype in dtypes.FLOAT:
        return ops.elu(v)
    # The exponential sees no large x, whose infinite derivative would be multiplied by 0.
    return jnp.where(v > 0, v, alpha * jnp.expm1(jnp.where(v > 0, 0.0, v)))


@_described("jnp.array([-1.0, 0.0, 2.0])", "[-1.1113  0.      2.1014]", rounded=True)
def selu(x: ArrayLike) -> Array:
    """Self-normalizing `elu` (Klambauer et al., 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@shown("print(celu(jnp.array([-1.0, 0.0, 2.0]), alpha=2.0).round(4))", "[-0.7869  0.      2.    ]")
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1) (Barron, 2017).

    Args:
        x: array of any shape; integers become float.
        alpha: number or array, not 0.
    """
    v = as_operand(x, "celu")
    return jnp.maximum(v, 0.0) + alpha * jnp.expm1(jnp.minimum(v, 0.0) / alpha)


@example("jnp.array([-2.0, 0.0, 2.0]), 0.5", "Array([-1.,  0.,  2.], dtype=float32)")
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """x for x >= 0, else negative_slope * x.

    Args:
        x: array of any shape; integers become float.
        negative_slope: number or array.
    """
    v = as_operand(x, "leaky_relu")
    if _is_number(negative_slope) and v.dtype in dtypes.FLOAT:
        return ops.leaky_relu(v, alpha=float(negative_slope))
    return jnp.where(v >= 0, v, negative_slope * v)


@example("jnp.array([-2.0, 0.5, 2.0])", "Array([-1. ,  0.5,  1. ], dtype=float32)")
def hard_tanh(x: ArrayLike) -> Array:
    """x clipped to [-1, 1].

    Args:
        x: array of any shape; integers stay integers.
    """
    v = as_operand(x, "hard_tanh")
    return jnp.where(v > 1, 1, jnp.where(v < -1, -1, v))


@_described("jnp.array([-4.0, 0.0, 4.0])", "Array([0. , 0.5, 1. ], dtype=float32)")
def hard_sigmoid(x: ArrayLike) -> Array:
    """relu6(x + 3) / 6"""
    return relu6(as_operand(x, "hard_sigmoid") + 3.0) / 6.0


@_described("jnp.array([-4.0, 0.0, 3.0])", "Array([-0.,  0.,  3.], dtype=float32)")
def hard_silu(x: ArrayLike) -> Array:
    """x * hard_sigmoid(x) (Howard et al., MobileNetV3, 2019)."""
    v = as_operand(x, "hard_silu")
    return ops.hard_swish(v) if v.dtype in dtypes.FLOAT else v * hard_sigmoid(v)


hard_swish = hard_silu


@example("jnp.array([2.0, 4.0, 0.0, jnp.inf])", "Array([1., 4.], dtype=float32)")
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along ``axis`` times the sigmoid of the second half.

    Args:
        x: array of any shape; integers become float.
        axis: an axis of even size, which is halved.

    Raises:
        ShapeError: the axis has odd size.
    """
    v = as_operand(x, "glu")
    size = v.shape[as_axis("glu", axis, v.ndim)]
    if size % 2:
        raise ShapeError("glu: axis size must be divisible by 2", got=v.type)
    first, second = jnp.split(v, 2, axis)
    return first * sigmoid(second)


@shown('[f"{y:.4g}" for y in log1mexp(jnp.array([1e-20, 50.0])).tolist()]', "['-46.05', '-1.929e-22']")
def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) for x > 0, accurate at both ends (Maechler, "Accurately computing log(1 - exp(-|a|))", 2012).

    Args:
        x: array of any shape; integers become float.
    """
    (v,) = promote_inexact("log1mexp", x)
    small = v < 0.6931471805599453
    near = jnp.where(small, v, 1.0)
    far = jnp.where(small, 1.0, v)
    return jnp.where(small, jnp.log(-jnp.expm1(-near)), jnp.log1p(-jnp.exp(-far)))
