"""Rules of operators that work element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, bounded
from nxjax.interop.torch.promotion import category, floated, in_dtype, result_dtype, together, widened
from nxjax.interop.torch.walk import rule
from nxjax.scipy import special
from nxjax.trace import dtypes

# Functions of floats: whole numbers become the default float; narrow floats are computed in float32.
_FLOATS: Final[dict[str, Any]] = {
    "acos": jnp.arccos, "acosh": jnp.arccosh, "asin": jnp.arcsin, "asinh": jnp.arcsinh, "atan": jnp.arctan,
    "atanh": jnp.arctanh, "cos": jnp.cos, "cosh": jnp.cosh, "digamma": special.digamma, "erf": lax.erf,
    "erfc": lax.erfc, "erfinv": lax.erf_inv, "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1,
    "lgamma": lax.lgamma, "log": jnp.log, "log10": jnp.log10, "log1p": jnp.log1p, "log2": jnp.log2,
    "reciprocal": lambda x: 1 / x, "rsqrt": lax.rsqrt, "sigmoid": nn.sigmoid, "sin": jnp.sin, "sinc": jnp.sinc,
    "sinh": jnp.sinh, "sqrt": jnp.sqrt, "tan": jnp.tan, "tanh": jnp.tanh, "i0": special.i0,
    "special_i1": special.i1, "special_i0e": special.i0e, "special_i1e": special.i1e,
    "special_log_ndtr": special.log_ndtr, "special_ndtri": special.ndtri, "special_entr": special.entr,
    "special_erfcx": special.erfcx if hasattr(special, "erfcx") else None,
    "deg2rad": lambda x: x * (math.pi / 180), "rad2deg": lambda x: x * (180 / math.pi),
}  # fmt: skip
# Functions that keep the dtype, of floats only.
_SAME: Final[dict[str, Any]] = {
    "silu": nn.silu,
    "mish": nn.mish,
    "log_sigmoid": nn.log_sigmoid,
    "hardsigmoid": lambda x: bounded(x / 6 + 0.5, 0, 1),
    "hardswish": nn.hard_swish,
    "selu": nn.selu,
}
# Functions that keep the dtype, whatever it is.
_ANY: Final[dict[str, Any]] = {
    "abs": lambda x: jnp.abs(x) if x.dtype != dtypes.bool_ else x,
    "bitwise_not": lambda x: jnp.logical_not(x) if x.dtype == dtypes.bool_ else jnp.bitwise_not(x),
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "isfinite": jnp.isfinite,
    "logical_not": lambda x: jnp.logical_not(x != 0),
    "neg": jnp.negative,
    "positive": lambda x: x,
    "relu": nn.relu,
    "relu6": lambda x: nn.relu6(x) if category(x.dtype) == 2 else jnp.clip(x, 0, 6),
    "sgn": lambda x: _sign(x),
    "sign": lambda x: _sign(x),
    "signbit": lambda x: jnp.signbit(x) if category(x.dtype) == 2 else x < 0,
    "square": lambda x: x * x if x.dtype != dtypes.bool_ else x.astype(dtypes.int64),
    "ceil": lambda x: jnp.ceil(x) if category(x.dtype) == 2 else x,
    "floor": lambda x: jnp.floor(x) if category(x.dtype) == 2 else x,
    "trunc": lambda x: jnp.trunc(x) if category(x.dtype) == 2 else x,
    "frac": lambda x: x - jnp.trunc(x),
    "real": jnp.real,
    "imag": jnp.imag,
    "conj": jnp.conj,
    "_conj": jnp.conj,
    "conj_physical": jnp.conj,
    "_conj_physical": jnp.conj,
    "angle": lambda x: jnp.angle(floated(x)),
}


def _sign(x: Any) -> Any:
    """Of NaN 0, as torch has it."""
    if x.dtype == dtypes.bool_:
        return x
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x)).astype(x.dtype) if category(x.dtype) == 2 else jnp.sign(x)


def _unary(function: Callable[[Any], Any], ready: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(self: Any) -> Any:
        return function(ready(self))

    return run


for _name, _function in _FLOATS.items():
    if _function is not None:
        rule(_name)(_unary(widened(_function), floated))
for _name, _function in _SAME.items():
    rule(_name)(_unary(widened(_function), lambda x: x))
for _name, _function in _ANY.items():
    rule(_name)(_unary(_function, lambda x: x))


@rule("round", "round.decimals")
def _round(self: Any, *, decimals: int = 0) -> Any:
    if category(self.dtype) < 2:
        return self
    scale = 10.0**decimals
    return jnp.round(self) if not decimals else (jnp.round(self * scale) / scale).astype(self.dtype)


# --- arithmetic ---


def _binary(function: Callable[[Any, Any], Any], floating: bool = False) -> Callable[..., Any]:
    def run(self: Any, other: Any) -> Any:
        return function(*together(self, other, floating=floating))

    return run


def _logical(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda self, other: function(self != 0, other != 0)


def _bits(whole: Any, truth: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: (truth if x.dtype == dtypes.bool_ else whole)(x, y)


def _shift(function: Any) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any) -> Any:
        bits = 8 * x.dtype.itemsize
        inside = (y >= 0) & (y < bits)
        if function is jnp.left_shift:
            return jnp.where(inside, function(x, jnp.where(inside, y, 0)), 0)
        return function(x, jnp.where(inside, y, bits - 1))

    return run


def _remainder(x: Any, y: Any) -> Any:
    return jnp.mod(x, y)


_TENSORS: Final[dict[str, Any]] = {
    "mul": lambda x, y: x & y if x.dtype == dtypes.bool_ else x * y,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "remainder": _remainder,
    "fmod": jnp.fmod,
    "floor_divide": jnp.floor_divide,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "bitwise_and": _bits(jnp.bitwise_and, jnp.logical_and),
    "bitwise_or": _bits(jnp.bitwise_or, jnp.logical_or),
    "bitwise_xor": _bits(jnp.bitwise_xor, jnp.logical_xor),
    "bitwise_left_shift": _shift(jnp.left_shift),
    "bitwise_right_shift": _shift(jnp.right_shift),
    "__lshift__": _shift(jnp.left_shift),
    "__rshift__": _shift(jnp.right_shift),
    "gcd": jnp.gcd,
    "lcm": jnp.lcm,
    "nextafter": jnp.nextafter,
    "copysign": jnp.copysign,
    "hypot": jnp.hypot,
    "heaviside": lambda x, y: jnp.where(x == 0, y, (x > 0).astype(x.dtype)),
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
}
_WITH_SCALARS: Final = frozenset(
    ("mul", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor",
     "__lshift__", "__rshift__", "copysign")
)  # fmt: skip
_SHIFTS: Final = frozenset(("bitwise_left_shift", "bitwise_right_shift"))
_TENSOR_OVERLOAD: Final = _WITH_SCALARS | _SHIFTS
for _name, _function in _TENSORS.items():
    _run = _binary(_function, floating=_name == "copysign")
    rule(f"{_name}.Tensor" if _name in _TENSOR_OVERLOAD else _name)(_run)
    if _name in _WITH_SCALARS:
        rule(f"{_name}.Scalar")(_run)
    if _name in _SHIFTS:
        rule(f"{_name}.Tensor_Scalar")(_run)
rule("atan2")(_binary(jnp.arctan2, floating=True))
rule("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")(_binary(special.xlogy, floating=True))
rule("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")(
    _binary(special.xlog1py, floating=True)
)
for _name, _function in {
    "logical_and": jnp.logical_and, "logical_or": jnp.logical_or, "logical_xor": jnp.logical_xor,
}.items():  # fmt: skip
    rule(_name)(_logical(_function))


def _scaled(x: Any, alpha: Any) -> Any:
    return x if isinstance(alpha, (int, float)) and alpha == 1 else x * jnp.asarray(alpha, x.dtype)


@rule("add.Tensor", "add.Scalar")
def _add(self: Any, other: Any, alpha: Any = 1) -> Any:
    x, y = together(self, other)
    return jnp.logical_or(x, y) if x.dtype == dtypes.bool_ else x + _scaled(y, alpha)


@rule("sub.Tensor", "sub.Scalar")
def _sub(self: Any, other: Any, alpha: Any = 1) -> Any:
    x, y = together(self, other)
    return x - _scaled(y, alpha)


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    x, y = together(self, other)
    return y - _scaled(x, alpha)


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor", "div.Tensor_mode", "div.Scalar_mode")
def _div(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    x, y = together(self, other, floating=rounding_mode is None)
    if rounding_mode is None:
        return x / y
    if category(x.dtype) < 2:
        return jnp.floor_divide(x, y) if rounding_mode == "floor" else lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.floor_divide(x, y) if rounding_mode == "floor" else jnp.trunc(x / y)


@rule("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(self: Any, exponent: Any) -> Any:
    dtype = result_dtype(self, exponent)
    if isinstance(exponent, int) and not isinstance(exponent, bool) and category(dtype) > 0:
        return lax.integer_pow(in_dtype(self, dtype), exponent) if category(dtype) > 1 or exponent >= 0 else (
            jnp.power(in_dtype(self, dtype), exponent)
        )  # fmt: skip
    x = in_dtype(self, dtype)
    if isinstance(exponent, float) and category(dtype) == 2:
        if exponent.is_integer() and abs(exponent) < 1024:
            return lax.integer_pow(x, int(exponent))
        if exponent == 0.5:
            return jnp.sqrt(x)
    return widened(jnp.power)(x, in_dtype(exponent, dtype)) if x.dtype not in dtypes.NARROW else jnp.power(
        x.astype(dtypes.float32), in_dtype(exponent, dtypes.float32)
    ).astype(dtype)  # fmt: skip


def _double(*xs: Any) -> Any:
    return dtypes.complex128 if category(result_dtype(*xs)) == 3 else dtypes.float64


rule("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")(
    lambda self, exponent: jnp.power(*(in_dtype(x, _double(self, exponent)) for x in (self, exponent)))
)


@rule("addcmul")
def _addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    x, a, b = together(self, tensor1, tensor2)
    return x + _scaled(a * b, value)


@rule("addcdiv")
def _addcdiv(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    x, a, b = together(self, tensor1, tensor2)
    return x + _scaled(a / b, value)


@rule("lerp.Tensor", "lerp.Scalar")
def _lerp(self: Any, end: Any, weight: Any) -> Any:
    w = in_dtype(weight, self.dtype)
    near = jnp.abs(w) < 0.5
    return jnp.where(near, self + w * (end - self), end - (end - self) * (1 - w))


@rule("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def _clamp(self: Any, min: Any = None, max: Any = None) -> Any:
    x, low, high = together(self, min, max)
    if low is not None:
        x = jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


@rule("clamp_min", "clamp_min.Tensor")
def _clamp_min(self: Any, min: Any) -> Any:
    return _clamp(self, min)


@rule("clamp_max", "clamp_max.Tensor")
def _clamp_max(self: Any, max: Any) -> Any:
    return _clamp(self, None, max)


@rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(condition: Any, self: Any, other: Any) -> Any:
    x, y = together(self, other)
    return jnp.where(condition != 0 if condition.dtype != dtypes.bool_ else condition, x, y)


@rule("complex")
def _complex(real: Any, imag: Any) -> Any:
    return lax.complex(*jnp.broadcast_arrays(real, imag))


@rule("view_as_complex")
def _view_as_complex(self: Any) -> Any:
    return lax.complex(self[..., 0], self[..., 1])


@rule("view_as_real")
def _view_as_real(self: Any) -> Any:
    return jnp.stack([jnp.real(self), jnp.imag(self)], -1)


@rule("polar")
def _polar(abs: Any, angle: Any) -> Any:
    return lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


@rule("polygamma")
def _polygamma(n: int, self: Any) -> Any:
    x = floated(self)
    return special.polygamma(jnp.asarray(n, dtypes.int32), x)


@rule("mvlgamma")
def _mvlgamma(self: Any, p: int) -> Any:
    return special.multigammaln(floated(self), p)


@rule("special_zeta")
def _zeta(self: Any, other: Any) -> Any:
    return special.zeta(*together(self, other, floating=True))


@rule("igamma", "special_gammainc")
def _igamma(self: Any, other: Any) -> Any:
    return special.gammainc(*together(self, other, floating=True))


@rule("igammac", "special_gammaincc")
def _igammac(self: Any, other: Any) -> Any:
    return special.gammaincc(*together(self, other, floating=True))


@rule("logit")
def _logit(self: Any, eps: float | None = None) -> Any:
    x = floated(self)
    x = x if eps is None else jnp.clip(x, eps, 1 - eps)
    return widened(lambda x: jnp.log(x) - jnp.log1p(-x))(x)


@rule("nan_to_num")
def _nan_to_num(self: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    if category(self.dtype) < 2:
        return self
    return jnp.nan_to_num(self, nan=nan or 0.0, posinf=posinf, neginf=neginf)


# --- activations with numbers ---


@rule("gelu")
def _gelu(self: Any, *, approximate: str = "none") -> Any:
    return widened(nn.gelu)(self, approximate=approximate == "tanh")


@rule("leaky_relu")
def _leaky_relu(self: Any, negative_slope: float = 0.01) -> Any:
    return jnp.where(self > 0, self, self * negative_slope)


@rule("_prelu_kernel")
def _prelu_kernel(self: Any, weight: Any) -> Any:
    return jnp.where(self > 0, self, self * weight)


@rule("prelu")
def _prelu(self: Any, weight: Any) -> Any:
    if weight.size != 1 and self.ndim > 1:
        weight = weight.reshape((1, -1) + (1,) * (self.ndim - 2))
    return jnp.where(self > 0, self, self * (weight if weight.size != 1 else weight.reshape(())))


@rule("elu")
def _elu(self: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if scale == input_scale == 1:
        return nn.elu(self, alpha)
    low = jnp.expm1(jnp.where(self > 0, 0, self * input_scale)) * (alpha * scale)
    return jnp.where(self > 0, self * scale, low)


@rule("celu")
def _celu(self: Any, alpha: float = 1.0) -> Any:
    return jnp.where(self > 0, self, alpha * jnp.expm1(jnp.where(self > 0, 0, self) / alpha))


@rule("hardtanh")
def _hardtanh(self: Any, min_val: float = -1, max_val: float = 1) -> Any:
    return (bounded if category(self.dtype) == 2 else jnp.clip)(self, min_val, max_val)


@rule("softplus")
def _softplus(self: Any, beta: float = 1, threshold: float = 20) -> Any:
    def run(x: Any) -> Any:
        scaled = x * beta
        return jnp.where(scaled > threshold, x, nn.softplus(jnp.minimum(scaled, threshold)) / beta)

    return widened(run)(self)


@rule("log_sigmoid_forward")
def _log_sigmoid_forward(self: Any) -> Any:
    return widened(nn.log_sigmoid)(self), jnp.zeros_like(self)


@rule("threshold")
def _threshold(self: Any, threshold: float, value: float) -> Any:
    return jnp.where(self <= threshold, jnp.asarray(value, self.dtype), self)


@rule("hardshrink")
def _hardshrink(self: Any, lambd: float = 0.5) -> Any:
    return jnp.where((self >= -lambd) & (self <= lambd), 0, self)


@rule("softshrink")
def _softshrink(self: Any, lambd: float = 0.5) -> Any:
    return jnp.where(self > lambd, self - lambd, jnp.where(self < -lambd, self + lambd, self * 0))


@rule("glu")
def _glu(self: Any, dim: int = -1) -> Any:
    return widened(lambda x: nn.glu(x, dim))(self)


# --- casts ---


def cast(x: Any, dtype: Any) -> Any:
    """``x`` in another dtype, as C casts it."""
    if dtype is None or x.dtype == dtype:
        return x
    if category(x.dtype) == 3 and category(dtype) < 3:
        x = jnp.real(x)
    if dtype == dtypes.bool_:
        return x != 0
    if x.dtype in dtypes.FLOAT and dtype in dtypes.INTEGER and np.dtype(dtype).itemsize < 4:
        x = x.astype(jnp.int32)  # wraps around instead of taking the nearest
    return x.astype(dtype)


@rule("_to_copy", "to.dtype_layout")
def _to_copy(self: Any, *, dtype: Any = None, copy: bool = False) -> Any:
    return cast(self, dtype)


@rule("to.dtype", "type_as", "_cast_to", "prims.convert_element_type")
def _to_dtype(self: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return cast(self, getattr(dtype, "dtype", dtype))


@rule("to.device")
def _to_device(
    self: Any, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Any:
    return cast(self, dtype)


@rule("to.other")
def _to_other(self: Any, other: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return cast(self, other.dtype)


@rule("view.dtype")
def _view_dtype(self: Any, dtype: Any) -> Any:
    old, new = self.dtype.itemsize, np.dtype(dtype).itemsize
    if old == new:
        return lax.bitcast_convert_type(self, dtype)
    if old > new:
        y = lax.bitcast_convert_type(self, dtype)
        return y.reshape((*self.shape[:-1], -1))
    return lax.bitcast_convert_type(self.reshape((*self.shape[:-1], -1, new // old)), dtype)


@rule("ldexp.Tensor")
def _ldexp(self: Any, other: Any) -> Any:
    x, y = together(self, other, floating=True)
    return x * jnp.exp2(y)


@rule("frexp.Tensor")
def _frexp(self: Any) -> Any:
    part, power = jnp.frexp(self)
    return part.astype(self.dtype), power.astype(dtypes.int32)


@rule("rrelu_with_noise_functional")
def _rrelu(
    self: Any, noise: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *, generator: Any = None
) -> Any:
    if training:
        raise Refused("from_torch: RReLU that trains draws a slope for each element", fix="module.eval()")
    return jnp.where(self > 0, self, self * ((lower + upper) / 2)), noise
