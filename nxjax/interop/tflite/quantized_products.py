"""Rules of convolutions and matrix products of values on grids, and of floats with stored weights.

Where weights and biases are parameters, which are real numbers on the file's grids, the operator is nxjax's qconv, qdot
or qmatmul. Weights with a zero point, or at the end of their range that is one too long, are multiplied as the integers
that they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, straight_through
from nxjax.interop.tflite.elementwise import activated
from nxjax.interop.tflite.graph import TFLiteNode
from nxjax.interop.tflite.held import GridValue, constant, grid_of
from nxjax.interop.tflite.products import convolution, rows_of, transposed
from nxjax.interop.tflite.quantized import DOUBLE, clamp, on_stored, value_of
from nxjax.interop.tflite.shapes import ints
from nxjax.interop.tflite.walk import quantized
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import conv_dimension_numbers
from nxjax.ops.fixed.functions import scale_of
from nxjax.ops.fixed.product import Kind, factor
from nxjax.ops.quant_base import ResultGrid
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_products import qconv, qdot, qmatmul, sums_to_grid
from nxjax.trace import dtypes


def _scales(w: GridValue, axis: int) -> Any:
    """The scales of weights, of their rank: one for all, or one per slice of ``axis``."""
    q = w.quantization
    if not q.per_tensor and q.axis != axis:
        raise Refused("from_tflite: weights whose scales do not lie along their channels", got=q.axis)
    return q.scales.reshape([-1 if i == axis else 1 for i in range(w.ndim)])


def _bias(b: Any, x: Grid, scales: Any, channels: int) -> tuple[Any, Any]:
    """A bias as real numbers, or None where it is no parameter; and its integers."""
    if b is None:
        return jnp.zeros(channels, jnp.float32), jnp.zeros(channels, jnp.int64)
    if not isinstance(b, GridValue) or not b.is_real:
        return None, b.stored if isinstance(b, GridValue) else b
    own = b.quantization.scales.astype(np.float64)
    implied = np.float64(scale_of(x)) * np.broadcast_to(np.float64(scales).reshape(-1), (channels,))
    if np.abs(own / implied - 1).max(initial=0) <= 2**-24:
        return b.real, b.stored
    # Real numbers that lead to the same integers on the grid that the operator implies.
    row = constant(implied.astype(np.float32))
    exact = lambda v: GridValue(b.quantization, real=v).stored.astype(jnp.float32) * row
    return straight_through(exact, lambda v: v, b.real), b.stored


class _Product:
    """A product with weights: how it is said as a quantized op, in integers, and in floats."""

    def __init__(self, node: TFLiteNode, kind: Kind, axis: int, channels: int, activation: int) -> None:
        self.kind: Kind = kind
        self.node, self.axis, self.channels, self.activation = node, axis, channels, activation

    def done(
        self, x: Any, w: Any, b: Any, op: Callable[..., Any], product: Callable[..., Any], turned: Callable[[Any], Any]
    ) -> Any:
        """Args:
        op: the quantized op of (x, w, w_scale, b) and its grids.
        product: the plain product of two arrays, with a dtype for its sums.
        turned: weights as the product takes them.
        """
        if not isinstance(x, GridValue):
            return self._hybrid(x, value_of(w, self.node), b, product, turned)
        w, out, x_grid = value_of(w, self.node), grid_of(self.node.out), x.grid
        scales = _scales(w, self.axis)
        real, stored = _bias(b, x.grid, scales, self.channels)
        lo, hi = clamp(out.grid, self.activation)
        wide = x.grid.dtype == dtypes.int16
        narrow_sums = wide and stored.dtype == jnp.int32 and b is not None
        if real is not None and not narrow_sums and w.is_real and w.tensor is not None and w.tensor.symmetric:
            grids = {"x_grid": x.grid, "y_grid": out.grid, "lo": lo, "hi": hi, "rounding": DOUBLE}
            return op(x.real, turned(w.real), turned(constant(scales)), real, w_dtype=w.quantization.dtype, **grids)
        factors = np.broadcast_to(
            factor(float(scale_of(x.grid)), scales.reshape(-1), out.grid, self.kind),
            (self.channels,),
        )
        work = jnp.int64 if wide else jnp.int32
        # A bias that is trained is an operand: what a derivative closes over would be of this trace alone.
        trained = [b] if real is not None and isinstance(b, GridValue) else []

        def exact(x: GridValue, w: GridValue, *b: GridValue) -> Any:
            bias = b[0].stored if b else stored
            acc = product(x.centred(work), turned(w.centred(work)), work).astype(jnp.int64) + bias.astype(jnp.int64)
            over = lambda v: jnp.broadcast_to(v, acc.shape)
            # With a bias of 32 bits, sums of 16-bit values have 32 bits, too, and the whole multiplier.
            to = Grid(np.dtype(np.int32), out.grid.scale) if narrow_sums and self.kind == "conv" else out.grid
            return sums_to_grid(acc, constant(factors), over, ResultGrid(to, lo, hi, DOUBLE), self.kind)

        def smooth(x: Any, w: Any, *b: Any) -> Any:
            row = constant((np.float64(scale_of(x_grid)) * scales.reshape(-1)).astype(np.float32))
            return product(x, turned(w), jnp.float32) + (b[0] if b else stored.astype(jnp.float32) * row)

        return on_stored(out, exact, smooth, x, w, *trained)

    def _hybrid(self, x: Any, w: GridValue, b: Any, product: Callable[..., Any], turned: Callable[[Any], Any]) -> Any:
        scales = np.broadcast_to(_scales(w, self.axis).reshape(-1), (self.channels,))
        asymmetric = self.kind == "conv" and not w.quantization.per_tensor
        asymmetric = asymmetric or bool(self.node.options.get("asymmetric_quantize_inputs"))
        y = with_bytes(x, w, scales, asymmetric, product, turned)
        return activated(y if b is None else y + b, self.activation)


def with_bytes(
    x: Any, w: GridValue, scales: Any, asymmetric: bool, product: Callable[..., Any],
    turned: Callable[[Any], Any] = lambda w: w, lead: tuple[int, ...] | None = None,
) -> Any:  # fmt: skip
    """Floats with stored weights: the floats are brought to 8 bits, row by row, as LiteRT does.

    Args:
        lead: how the rows lie in the result, where they are not its first axis.
    """
    kept = None if w.is_real else w.centred()

    def exact(x: Any, real: Any) -> Any:
        q, scale, zero = to_bytes(x, asymmetric)
        stored = GridValue(w.quantization, real=real).centred() if kept is None else kept
        acc = product(q - zero, turned(stored), jnp.int32)
        rows = (*lead, 1) if lead is not None else scale.shape[:1] + (1,) * (acc.ndim - 1)
        return acc.astype(jnp.float32) * constant(scales) * scale.reshape(rows)

    return straight_through(exact, lambda x, w: product(x, turned(w), jnp.float32), x, w.real)


def dense_with_bytes(x: Any, w: GridValue, asymmetric: bool) -> Any:
    """``x @ w.T`` of float rows and stored weights."""
    scales = np.broadcast_to(_scales(w, 0).reshape(-1), w.shape[:1])
    return with_bytes(x, w, scales, asymmetric, _rows_product)


_ROWS: Final = (((1,), (1,)), ((), ()))


def _rows_product(x: Any, w: Any, dtype: Any) -> Any:
    return lax.dot_general(x, w, _ROWS, preferred_element_type=dtype)


def to_bytes(x: Any, asymmetric: bool) -> tuple[Any, Any, Any]:
    """Rows of floats as signed bytes, with the scale and the zero point of each (TFLite, ``BatchQuantizeFloats``)."""
    f = np.float32
    axes = tuple(range(1, x.ndim))
    if not asymmetric:
        reach = jnp.max(jnp.abs(x), axes, keepdims=True)
        empty = reach == 0
        safe = jnp.where(empty, f(1), reach)
        steps = _away(x * (f(127) / safe))
        scale = jnp.where(empty, f(1), safe / f(127))
        return (
            jnp.clip(jnp.where(empty, f(0), steps), -127, 127).astype(jnp.int32),
            scale,
            jnp.zeros_like(scale, jnp.int32),
        )
    low = jnp.minimum(jnp.min(x, axes, keepdims=True), f(0)).astype(jnp.float64)
    high = jnp.maximum(jnp.max(x, axes, keepdims=True), f(0)).astype(jnp.float64)
    empty = low == high
    scale = jnp.where(empty, 1.0, (high - low) / 255.0)
    from_low, from_high = -128.0 - low / scale, 127.0 - high / scale
    errors = 128.0 + jnp.abs(low / scale), 127.0 + jnp.abs(high / scale)
    zero = jnp.where(errors[0] < errors[1], from_low, from_high)
    nudged = jnp.where(zero <= -128, -128, jnp.where(zero >= 127, 127, _away(zero))).astype(jnp.int32)
    nudged = jnp.where(empty, 0, nudged)
    small = scale.astype(jnp.float32)
    steps = _away(nudged.astype(jnp.float32) + x * (f(1) / small))
    return jnp.clip(jnp.where(empty, f(0), steps), -128, 127).astype(jnp.int32), small, nudged


def _away(x: Any) -> Any:
    """The nearest whole number, halves away from zero."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _convolved(
    x: Any, w: Any, b: Any, node: TFLiteNode, params: dict[str, Any], axis: int, activation: int, turned: Any
) -> Any:
    shape = turned(jnp.zeros(w.shape, jnp.int8)).shape if isinstance(w, GridValue) else w.shape
    numbers = conv_dimension_numbers((1,) * 4, (1,) * 4, params["dimension_numbers"])
    channels = shape[numbers.rhs_spec[0]]
    every = {
        "lhs_dilation": (1, 1),
        **params,
        "padding": tuple(map(tuple, params["padding"])),
        "dimension_numbers": numbers,
    }

    def product(x: Any, w: Any, dtype: Any) -> Any:
        return conv_general_dilated(x, w, batch_group_count=1, preferred_element_type=np.dtype(dtype), **every)

    return _Product(node, "conv", axis, channels, activation).done(
        x, w, b, lambda *xs, **more: qconv(*xs, **every, **more), product, turned
    )


@quantized("CONV_2D")
def _conv(
    x: Any, w: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int, dilation_w_factor: int,
    dilation_h_factor: int, fused_activation_function: int, node: TFLiteNode,
) -> Any:  # fmt: skip
    dilations = (dilation_h_factor, dilation_w_factor)
    params = convolution(x, w, padding=padding, strides=(stride_h, stride_w), dilations=dilations)
    return _convolved(x, w, b, node, params, 0, fused_activation_function, lambda w: w)


@quantized("DEPTHWISE_CONV_2D")
def _depthwise(
    x: Any, w: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int, dilation_w_factor: int,
    dilation_h_factor: int, fused_activation_function: int, node: TFLiteNode,
) -> Any:  # fmt: skip
    dilations = (dilation_h_factor, dilation_w_factor)
    params = convolution(x, w, padding=padding, strides=(stride_h, stride_w), dilations=dilations, depthwise=True)
    return _convolved(x, w, b, node, params, 3, fused_activation_function, lambda w: w)


@quantized("TRANSPOSE_CONV", known=("shape",))
def _transpose_conv(
    shape: Any, w: Any, x: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int,
    fused_activation_function: int, node: TFLiteNode,
) -> Any:  # fmt: skip
    params = transposed(ints(shape), w, x, padding, (stride_h, stride_w))
    return _convolved(x, w, b, node, params, 0, fused_activation_function, lambda w: jnp.flip(w, (1, 2)))


@quantized("FULLY_CONNECTED")
def _fully_connected(
    x: Any, w: Any, b: Any = None, *, fused_activation_function: int, weights_format: int, keep_num_dims: bool,
    node: TFLiteNode,
) -> Any:  # fmt: skip
    either = x.either if isinstance(x, GridValue) else x
    rows, shape = rows_of(either, w, weights_format, keep_num_dims)
    if isinstance(x, GridValue):
        rows = GridValue(x.quantization, **{"real" if x.is_real else "stored": rows})
    op = lambda *xs, **more: qdot(*xs, dimension_numbers=_ROWS, **more)
    y = _Product(node, "dense", 0, w.shape[0], fused_activation_function).done(
        rows, w, b, op, _rows_product, lambda w: w
    )
    return _reshaped(y, shape)


def _reshaped(y: Any, shape: Any) -> Any:
    if not isinstance(y, GridValue):
        return y.reshape(shape)
    return GridValue(y.quantization, **{"real" if y.is_real else "stored": y.either.reshape(shape)})


@quantized("BATCH_MATMUL")
def _batch_matmul(x: Any, y: Any, *, adj_x: bool, adj_y: bool, node: TFLiteNode) -> Any:
    if not isinstance(x, GridValue):
        return _hybrid_matmul(x, value_of(y, node), adj_x, adj_y, node)
    p, q, out = x, value_of(y, node), grid_of(node.out).grid
    a = p.real.mT if adj_x else p.real
    b = q.real.mT if adj_y else q.real
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(v, (*lead, *v.shape[-2:])) for v in (a, b))
    batch = tuple(range(len(lead)))
    numbers = (((a.ndim - 1,), (b.ndim - 2,)), (batch, batch))
    low, high = out.limits
    grids = {"x_grid": p.grid, "y_grid": q.grid, "out_grid": out, "lo": low, "hi": high, "rounding": DOUBLE}
    return qmatmul(a, b, dimension_numbers=numbers, **grids)


def _hybrid_matmul(x: Any, y: GridValue, adj_x: bool, adj_y: bool, node: TFLiteNode) -> Any:
    x = x.mT if adj_x else x
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    asymmetric = bool(node.options.get("asymmetric_quantize_inputs"))

    def product(rows: Any, w: Any, dtype: Any) -> Any:
        return jnp.matmul(rows.reshape(x.shape), w.mT if adj_y else w)

    return with_bytes(rows, y, y.quantization.scales[:1], asymmetric, product, lead=x.shape[:-1])
