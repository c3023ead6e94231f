"""Rules of operators that work element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import ml_dtypes
import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import NeedsValue, Refused, as_numpy, bounded, concrete
from nxjax.interop.onnx.graph import dtype_of
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes

_UNARY: Final[dict[str, Any]] = {
    "Abs": jnp.abs,
    "Acos": jnp.arccos,
    "Acosh": jnp.arccosh,
    "Asin": jnp.arcsin,
    "Asinh": jnp.arcsinh,
    "Atan": jnp.arctan,
    "Atanh": jnp.arctanh,
    "BitwiseNot": jnp.bitwise_not,
    "Ceil": jnp.ceil,
    "Cos": jnp.cos,
    "Cosh": jnp.cosh,
    "Erf": lax.erf,
    "Exp": jnp.exp,
    "Floor": jnp.floor,
    "Identity": lambda x: x,
    "IsNaN": jnp.isnan,
    "Log": jnp.log,
    "Mish": nn.mish,
    "Neg": jnp.negative,
    "Not": jnp.logical_not,
    "Reciprocal": lambda x: 1 / x,
    "Relu": nn.relu,
    "Round": jnp.round,
    "Sigmoid": nn.sigmoid,
    "Sign": jnp.sign,
    "Sin": jnp.sin,
    "Sinh": jnp.sinh,
    "Softplus": nn.softplus,
    "Softsign": nn.soft_sign,
    "Sqrt": jnp.sqrt,
    "Tan": jnp.tan,
    "Tanh": jnp.tanh,
    "HardSwish": nn.hard_swish,
}


def _unary(function: Any) -> Any:
    def run(x: Any) -> Any:
        return function(x)

    return run


for _name, _function in _UNARY.items():
    rule(_name)(_unary(_function))


def aligned(x: Any, y: Any, broadcast: int, axis: int | None) -> tuple[Any, Any]:
    """Operands of versions before 7, which align ``y`` with ``x`` from ``axis`` on."""
    if broadcast and axis is not None and y.ndim:
        axis %= x.ndim
        y = y.reshape(y.shape + (1,) * (x.ndim - axis - y.ndim))
    return x, y


def _div(x: Any, y: Any) -> Any:
    return x / y if x.dtype in dtypes.INEXACT else lax.div(*jnp.broadcast_arrays(x, y))


_BINARY: Final[dict[str, Any]] = {
    "Add": jnp.add,
    "Sub": jnp.subtract,
    "Mul": jnp.multiply,
    "Div": _div,
    "And": jnp.logical_and,
    "Or": jnp.logical_or,
    "Xor": jnp.logical_xor,
    "Equal": jnp.equal,
    "Greater": jnp.greater,
    "Less": jnp.less,
    "GreaterOrEqual": jnp.greater_equal,
    "LessOrEqual": jnp.less_equal,
    "BitwiseAnd": jnp.bitwise_and,
    "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor,
}


def _binary(function: Any) -> Any:
    def run(x: Any, y: Any, *, broadcast: int = 0, axis: int | None = None) -> Any:
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            return jnp.asarray(np.asarray(as_numpy(x) == as_numpy(y), bool))  # strings have only Equal
        return function(*aligned(x, y, broadcast, axis))

    return run


for _name, _function in _BINARY.items():
    rule(_name)(_binary(_function))


@rule("Pow")
def _pow(x: Any, y: Any, *, broadcast: int = 0, axis: int | None = None) -> Any:
    x, y = aligned(x, y, broadcast, axis)
    if x.dtype in dtypes.INTEGER and y.dtype in dtypes.FLOAT:
        return jnp.power(x.astype(jnp.float64), y).astype(x.dtype)
    return jnp.power(x, y.astype(x.dtype)).astype(x.dtype)


@rule("Mod")
def _mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    return jnp.fmod(x, y) if fmod else jnp.mod(x, y)


@rule("BitShift")
def _bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    bits = 8 * x.dtype.itemsize
    if direction != "LEFT":
        # A shift by all bits or more leaves copies of the sign.
        return jnp.where(y < bits, jnp.right_shift(x, jnp.minimum(y, bits - 1)), jnp.where(x < 0, -1, 0)).astype(
            x.dtype
        )
    return jnp.where(y < bits, jnp.left_shift(x, y), 0).astype(x.dtype)


def _fold(function: Any) -> Any:
    def run(*xs: Any) -> Any:
        return reduce(function, xs)

    return run


rule("Max")(_fold(jnp.maximum))
rule("Min")(_fold(jnp.minimum))
rule("Sum")(_fold(jnp.add))


@rule("Mean")
def _mean(*xs: Any) -> Any:
    return reduce(jnp.add, xs) / len(xs)


@rule("PRelu")
def _prelu(x: Any, slope: Any, *, opset: int) -> Any:
    if opset < 7 and slope.ndim == 1:  # one for each channel
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return jnp.where(x < 0, x * slope, x)


@rule("LeakyRelu")
def _leaky(x: Any, *, alpha: float = 0.01) -> Any:
    return jnp.where(x < 0, alpha * x, x)


@rule("Elu")
def _elu(x: Any, *, alpha: float = 1.0) -> Any:
    return nn.elu(x, alpha)


@rule("Celu")
def _celu(x: Any, *, alpha: float = 1.0) -> Any:
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x) / alpha))


@rule("Selu")
def _selu(x: Any, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return gamma * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x)))


@rule("HardSigmoid")
def _hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return bounded(alpha * x + beta, 0, 1)


@rule("ThresholdedRelu")
def _thresholded(x: Any, *, alpha: float = 1.0) -> Any:
    return jnp.where(x > alpha, x, 0)


@rule("Shrink")
def _shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    low, high = (x + bias).astype(x.dtype), (x - bias).astype(x.dtype)
    return jnp.where(x < -lambd, low, jnp.where(x > lambd, high, 0)).astype(x.dtype)


@rule("Gelu", "com.microsoft::Gelu")
def _gelu(x: Any, *, approximate: str = "none") -> Any:
    return nn.gelu(x, approximate=approximate == "tanh")


@rule("Swish")
def _swish(x: Any, *, alpha: float = 1.0) -> Any:
    return x * nn.sigmoid(alpha * x)


@rule("Clip")
def _clip(x: Any, least: Any = None, greatest: Any = None, *, min: Any = None, max: Any = None) -> Any:
    least, greatest = least if min is None else min, greatest if max is None else max
    if (
        least is not None
        and greatest is not None
        and x.dtype in dtypes.FLOAT
        and np.size(least) == np.size(greatest) == 1
    ):
        # What ReLU6 is written as: one operator, whose derivative on a bound is 0.
        low, high = (jnp.asarray(v).astype(x.dtype).reshape(()) for v in (least, greatest))
        return lax.clamp(low, x, high)
    if least is not None:
        x = jnp.maximum(x, least).astype(x.dtype)
    return x if greatest is None else jnp.minimum(x, greatest).astype(x.dtype)


@rule("IsInf")
def _is_inf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    return jnp.isinf(x) & (((x > 0) & bool(detect_positive)) | ((x < 0) & bool(detect_negative)))


@rule("Where")
def _where(condition: Any, x: Any, y: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.where(as_numpy(condition), x, y)
    return jnp.where(condition, x, y)


# --- casts ---

_SATURATING: Final = frozenset(d for d in dtypes.FLOAT if d.itemsize == 1)


def _words(x: Any) -> Any:
    """Numbers in strings, as ONNX Runtime writes them."""
    if x.dtype.kind in "iub" or x.dtype in dtypes.INTEGER:
        texts = [str(int(v)) for v in x.reshape(-1).tolist()]
    else:
        texts = [f"{float(v):.8g}" for v in x.reshape(-1)]
    return np.array([t.replace("nan", "NaN").replace("inf", "INF") for t in texts], object).reshape(x.shape)


def cast(x: Any, dtype: Any, saturate: bool = True) -> Any:
    """``x`` in another dtype; 8-bit floats take their greatest value for what is beyond it."""
    if isinstance(x, np.ndarray):
        if np.dtype(dtype).kind == "O":
            return x
        whole = lambda t: int(t) if t.strip().lstrip("+-").isdecimal() else int(float(t))
        number = whole if np.dtype(dtype).kind in "iu" else float
        held = np.array([number(t) for t in x.reshape(-1)]).reshape(x.shape)
        return jnp.asarray(held.astype(dtype))
    if np.dtype(dtype).kind == "O":
        if not concrete(x):
            raise NeedsValue("from_onnx: texts of traced numbers", got=x.type, fix="call the function outside jit")
        return _words(as_numpy(x))
    if dtype not in dtypes.NUMERIC:
        raise Refused("from_onnx: arrays cannot have this element type", got=dtype)
    if dtype in _SATURATING and x.dtype in dtypes.FLOAT and saturate:
        bound = float(ml_dtypes.finfo(dtype).max)
        # A comparison keeps NaN; infinities saturate, too.
        x = jnp.where(x > bound, bound, jnp.where(x < -bound, -bound, x)) if bound <= _greatest(x.dtype) else x
    if dtype in (dtypes.int4, dtypes.uint4) and x.dtype in dtypes.FLOAT:
        x = x.astype(jnp.int32)
    return x.astype(dtype)


def _greatest(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).max)


@rule("Cast")
def _cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(x, dtype_of(to), bool(saturate))


@rule("CastLike")
def _cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(x, like.dtype, bool(saturate))


@rule("BitCast")
def _bit_cast(x: Any, *, to: int) -> Any:
    dtype = dtype_of(to)
    if dtype == dtypes.bool_ or x.dtype == dtypes.bool_:
        x = x.astype(jnp.uint8) if x.dtype == dtypes.bool_ else lax.bitcast_convert_type(x, jnp.uint8) != 0
        return x if dtype == dtypes.bool_ else lax.bitcast_convert_type(x, dtype)
    return lax.bitcast_convert_type(x, dtype)
