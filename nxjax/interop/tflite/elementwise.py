"""Rules of functions of each element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, bounded
from nxjax.interop.tflite.graph import dtype_of
from nxjax.interop.tflite.walk import rule
from nxjax.trace import dtypes


def activated(y: Any, number: int) -> Any:
    """A result with the activation that is fused into its operator."""
    if number == 0:
        return y
    if number == 1:
        return nn.relu(y)
    if number in (2, 3):
        return bounded(y, *((-1, 1) if number == 2 else (0, 6)))
    if number == 4:
        return jnp.tanh(y)
    raise Refused("from_tflite: a fused activation that LiteRT does not have", got=number)


def _quotient(x: Any, y: Any) -> Any:
    """Whole numbers are cut towards zero."""
    return lax.div(*jnp.broadcast_arrays(x, y))


def _floor_div(x: Any, y: Any) -> Any:
    return jnp.floor(x / y) if x.dtype in dtypes.FLOAT else jnp.floor_divide(x, y)


def _shift(x: Any, y: Any) -> Any:
    return jnp.right_shift(x, y)


_ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {
    "ADD": jnp.add, "SUB": jnp.subtract, "MUL": jnp.multiply, "DIV": _quotient,
}  # fmt: skip
_PAIRS: Final[dict[str, Callable[..., Any]]] = {
    "POW": jnp.power, "SQUARED_DIFFERENCE": lambda x, y: jnp.square(x - y), "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": jnp.mod, "ATAN2": jnp.arctan2, "LOGICAL_AND": jnp.logical_and, "LOGICAL_OR": jnp.logical_or,
    "BITWISE_XOR": jnp.bitwise_xor, "RIGHT_SHIFT": _shift, "PRELU": lambda x, a: jnp.where(x >= 0, x, x * a),
    "EQUAL": jnp.equal, "NOT_EQUAL": jnp.not_equal, "LESS": jnp.less, "LESS_EQUAL": jnp.less_equal,
    "GREATER": jnp.greater, "GREATER_EQUAL": jnp.greater_equal,
}  # fmt: skip
_ONE: Final[dict[str, Callable[..., Any]]] = {
    "ABS": jnp.abs, "NEG": jnp.negative, "EXP": jnp.exp, "LOG": jnp.log, "SQRT": jnp.sqrt, "RSQRT": lax.rsqrt,
    "SQUARE": jnp.square, "SIN": jnp.sin, "COS": jnp.cos, "FLOOR": jnp.floor, "CEIL": jnp.ceil, "ROUND": jnp.round,
    "SIGN": jnp.sign, "LOGISTIC": nn.sigmoid, "TANH": jnp.tanh, "RELU": nn.relu,
    "RELU6": lambda x: bounded(x, 0, 6), "RELU_N1_TO_1": lambda x: bounded(x, -1, 1),
    "RELU_0_TO_1": lambda x: bounded(x, 0, 1), "ELU": nn.elu, "HARD_SWISH": nn.hard_swish,
    "LOGICAL_NOT": jnp.logical_not, "REAL": jnp.real, "IMAG": jnp.imag, "COMPLEX_ABS": jnp.abs,
}  # fmt: skip


def _with_activation(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any, *, fused_activation_function: int) -> Any:
        return activated(function(x, y), fused_activation_function)

    return run


def _of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(x, y)


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


for _name, _function in _ARITHMETIC.items():
    rule(_name)(_with_activation(_function))
for _name, _function in _PAIRS.items():
    rule(_name)(_of_two(_function))
for _name, _function in _ONE.items():
    rule(_name)(_of_one(_function))


# LiteRT compares stored integers here, whatever their grids.
rule("MAXIMUM", on_grids="moved")(_of_two(jnp.maximum))
rule("MINIMUM", on_grids="moved")(_of_two(jnp.minimum))


@rule("LEAKY_RELU")
def _leaky_relu(x: Any, *, alpha: float) -> Any:
    return jnp.where(x > 0, x, x * jnp.asarray(alpha, x.dtype))


@rule("GELU")
def _gelu(x: Any, *, approximate: bool) -> Any:
    return nn.gelu(x, approximate=approximate)


@rule("ADD_N")
def _add_n(*xs: Any) -> Any:
    return sum(xs[1:], xs[0])


@rule("ZEROS_LIKE", on_grids="stored")
def _zeros_like(x: Any) -> Any:
    return jnp.zeros_like(x)


@rule("CAST", on_grids="stored")
def _cast(x: Any, *, node: Any) -> Any:
    wanted = node.out.dtype
    if x.dtype == jnp.complex64 and wanted != np.complex64:
        x = jnp.real(x)
    return x != 0 if wanted == np.bool_ else x.astype(wanted)


@rule("BITCAST", on_grids="stored")
def _bitcast(x: Any, *, node: Any) -> Any:
    return lax.bitcast_convert_type(x, node.out.dtype)


@rule("DEQUANTIZE")
def _dequantize(x: Any) -> Any:
    return x.astype(jnp.float32)


@rule("SELECT", on_grids="moved")
def _select(condition: Any, x: Any, y: Any) -> Any:
    # Truth values of whole rows.
    c = condition.reshape(condition.shape + (1,) * (x.ndim - condition.ndim)) if condition.ndim < x.ndim else condition
    return jnp.where(c, x, y)


@rule("SELECT_V2", on_grids="moved")
def _select_v2(condition: Any, x: Any, y: Any) -> Any:
    return jnp.where(condition, x, y)


@rule("FAKE_QUANT")
def _fake_quant(x: Any, *, min: float, max: float, num_bits: int, narrow_range: bool) -> Any:
    least, most = int(narrow_range), (1 << num_bits) - 1
    f = np.float32
    scale = (f(max) - f(min)) / f(most - least)
    from_least = f(least) - f(min) / scale
    zero = f(least) if from_least < least else f(most) if from_least > most else np.floor(from_least + f(0.5))
    low, high = (f(least) - zero) * scale, (f(most) - zero) * scale
    clamped = jnp.clip(x, low, high)
    steps = jnp.floor((clamped - low) * (f(1) / scale) + f(0.5))
    return x + lax.stop_gradient(steps * scale + low - x)


@rule("SOFTMAX")
def _softmax(x: Any, *, beta: float) -> Any:
    return nn.softmax(x if beta == 1 else x * jnp.asarray(beta, x.dtype), -1)


@rule("LOG_SOFTMAX")
def _log_softmax(x: Any) -> Any:
    return nn.log_softmax(x.reshape(x.shape or (1,)), -1).reshape(x.shape)


@rule("L2_NORMALIZATION")
def _l2_normalization(x: Any, *, fused_activation_function: int) -> Any:
    size = jnp.maximum(jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)), jnp.asarray(1e-6, x.dtype))
    return activated(x / size, fused_activation_function)


@rule("LOCAL_RESPONSE_NORMALIZATION")
def _local_response(x: Any, *, radius: int, bias: float, alpha: float, beta: float) -> Any:
    window = (1,) * (x.ndim - 1) + (2 * radius + 1,)
    around = [(0, 0)] * (x.ndim - 1) + [(radius, radius)]
    total = lax.reduce_window(x * x, jnp.asarray(0, x.dtype), lax.add, window, (1,) * x.ndim, around)
    return x * (bias + alpha * total) ** -beta


@rule("RFFT2D", known=("lengths",))
def _rfft2d(x: Any, lengths: Any) -> Any:
    return jnp.fft.rfft2(x, tuple(int(n) for n in lengths)).astype(jnp.complex64)


@rule("BUCKETIZE")
def _bucketize(x: Any, *, boundaries: Any) -> Any:
    edges = np.zeros(0, np.float32) if boundaries is None else np.asarray(boundaries)
    return jnp.sum(x[..., None] >= jnp.asarray(edges), -1).astype(jnp.int32)


def output_dtype(number: int) -> Any:
    """The dtype that an option asks for."""
    return dtype_of(number)
