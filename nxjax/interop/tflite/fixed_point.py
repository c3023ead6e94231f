"""The rules of LOG_SOFTMAX and L2_NORMALIZATION of bytes, in fixed point: as `nxjax.ops.fixed`, of traced values.

Of a LOG_SOFTMAX, everything per difference to the greatest value is in tables; the logarithm of the sum is computed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.graph import TFLiteNode
from nxjax.interop.tflite.held import GridValue, grid_of
from nxjax.interop.tflite.quantized import on_stored, value_of
from nxjax.interop.tflite.walk import quantized
from nxjax.ops.fixed.elementwise import scale_of
from nxjax.ops.fixed.point import INT32_MAX, INT32_MIN, divide_by_power, quantize_multiplier
from nxjax.ops.fixed.series import raw
from nxjax.ops.fixed.softmax import SUM_BITS, check_softmax, exps_of, log_softmax_grid
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import rescale_by, take_row, wrap_int32
from nxjax.trace import dtypes

_BITS = 5


def _high(a: Any, b: Any) -> Any:
    """``a * b / 2**31`` to the nearest."""
    return jnp.minimum((a * b + (1 << 30)) >> 31, INT32_MAX)


def _halved(a: Any) -> Any:
    """``a / 2``, halves away from zero."""
    return jnp.sign(a) * ((jnp.abs(a) + 1) >> 1)


def _power(x: Any, exponent: Any) -> Any:
    """``x * 2**exponent``, saturating to the left and rounded to the right, halves away from zero."""
    left, right = jnp.maximum(exponent, 0), jnp.maximum(-exponent, 0)
    grown = jnp.clip(x << jnp.minimum(left, 31), INT32_MIN, INT32_MAX)
    half = (jnp.ones_like(right) << right) >> 1
    return jnp.where(exponent > 0, grown, jnp.sign(x) * ((jnp.abs(x) + half) >> right))


def _saturated(x: Any, bits: int) -> Any:
    return jnp.clip(x << bits, INT32_MIN, INT32_MAX)


def _zeros(x: Any) -> Any:
    """Zero bits above the highest set one of 32."""
    return lax.clz(x.astype(jnp.int32)).astype(jnp.int64)


def _inverse(a: Any) -> Any:
    """1 / (1 + a) for a in [0, 1)."""
    half = _halved(a + INT32_MAX)
    x = raw(48 / 17, 2) + _high(half, -raw(32 / 17, 2))
    for _ in range(3):
        x = x + _saturated(_high(x, (1 << 29) - _high(half, x)), 2)
    return _saturated(x, 1)


def _log(x: Any) -> Any:
    """The logarithm of sums >= 1 (`nxjax.ops.fixed.series.log_from_one`)."""
    places = _BITS + 1
    root = 2.0**0.25
    half, centre = raw(math.sqrt(0.5)), raw(1 / root)
    quarter = int(divide_by_power(raw(0.25), places))
    zeros = _zeros(x)
    near_a = _power(_high(_power(x, zeros - 1), half), jnp.ones_like(x))
    power_a = jnp.minimum(_power(SUM_BITS - zeros, jnp.full_like(x, 31 - places)) + quarter, INT32_MAX)
    room = _zeros(_high(x, half)) - 1
    near_b = _power(x, room)
    power_b = jnp.maximum(_power(SUM_BITS - room, jnp.full_like(x, 31 - places)) - quarter, INT32_MIN)
    r, power = jnp.minimum(near_a, near_b), jnp.maximum(power_a, power_b)
    p, q = _halved(r + centre), (r - centre) * 2
    square = _high(q, q)
    numerator = _high(q, r) + _high(_high(q, square), raw(11 / 240 * root))
    inner = raw(2 / root - root) + q + _high(raw(root / 20), square)
    denominator = _high(p, inner) + _high(raw(root / 4), q)
    tail = _high(_power(numerator, jnp.full_like(x, -places)), _inverse(denominator))
    return _saturated(_high(power, raw(math.log(2))) + tail, 1)


@quantized("LOG_SOFTMAX")
def _log_softmax(x: Any, *, node: TFLiteNode) -> Any:
    p, out = value_of(x, node), grid_of(node.out)
    if dtypes.bit_width(p.grid.dtype) != 8:
        raise Refused("from_tflite: a LOG_SOFTMAX of 16 bits", got=node)
    check_softmax("log_softmax", out.grid, log_softmax_grid(out.grid.dtype))
    pairs = np.stack(np.broadcast_arrays(np.array([0]), -np.arange(256)), -1).astype(np.int64)
    small, exps, counts = (v[:, 1] for v in exps_of(pairs, p.grid, 1.0, "double"))
    shares = np.where(counts, divide_by_power(exps, SUM_BITS), 0)
    multiplier, shift, least = _scale(p.grid)
    back = quantize_multiplier(2.0 ** (31 - shift) / float(multiplier))

    def exact(v: GridValue) -> Any:
        q = v.stored.astype(jnp.int32)
        far = jnp.max(q, -1, keepdims=True, initial=-128) - q
        log = _log(wrap_int32(jnp.sum(take_row(shares, far), -1, keepdims=True)))
        end = rescale_by(wrap_int32(log + INT32_MIN), int(back[0]), int(back[1]), "double")
        kept = _power(wrap_int32(take_row(small, far) - log), jnp.full_like(log, -(31 - _BITS - 4)))
        low, high = out.grid.limits
        inside = -far.astype(jnp.int64) > jnp.maximum(end, least - 1)
        return jnp.where(inside, jnp.clip(kept + out.grid.zero_point, low, high), low)

    return on_stored(out, exact, lambda v: nn.log_softmax(v, -1), p)


def _scale(grid: Grid) -> tuple[int, int, int]:
    """Multiplier and shift of differences, and the least difference that counts."""
    real = min(float(scale_of(grid)) * 2 ** (31 - _BITS), 2.0**31 - 1)
    multiplier, shift = (int(v) for v in quantize_multiplier(real))
    return multiplier, shift, -math.floor((2**_BITS - 1) * 2.0 ** (31 - _BITS) / 2.0**shift)


def _inverse_root(x: Any) -> tuple[Any, Any]:
    """``(multiplier, shift)`` of 1 / sqrt of whole numbers >= 0 (`nxjax.ops.fixed.series.inverse_root`)."""
    one = x <= 1
    value = jnp.where(one, 4, x)
    large = value >= 1 << 29
    value, shift = jnp.where(large, value >> 2, value), jnp.where(large, 12, 11)
    pairs = ((_zeros(value) - 1) >> 1) - 1
    shift, number = shift - pairs, (value << (2 * pairs)) >> 1
    halved = _halved(number)
    y = jnp.full_like(x, 1 << 28)
    for _ in range(5):
        cube = _saturated(_high(_high(y, y), y), 6)
        y = _saturated(_high(y, (1 << 28) + (1 << 27)) - _high(halved, cube), 3)
    root = _high(y, raw(math.sqrt(2) / 2)) << jnp.maximum(-shift, 0)
    return jnp.where(one, INT32_MAX, root), jnp.where(one, 0, -jnp.maximum(shift, 0))


@quantized("L2_NORMALIZATION")
def _l2_normalization(x: Any, *, fused_activation_function: int, node: TFLiteNode) -> Any:
    p, out = value_of(x, node), grid_of(node.out)
    low, high = out.grid.limits
    if dtypes.bit_width(p.grid.dtype) != 8 or out.grid.scale != 1 / 128 or out.grid.zero_point != low + 128:
        raise Refused("from_tflite: L2_NORMALIZATION to another grid than that of 1 / 128", got=node)

    def exact(v: GridValue) -> Any:
        q = v.stored.astype(jnp.int64) - p.grid.zero_point
        root, shift = _inverse_root(jnp.sum(q * q, -1, keepdims=True))
        if low:
            left = jnp.maximum(shift + 7, 0)
            y = _power(_high(q << left, root), jnp.minimum(shift + 7, 0) + jnp.zeros_like(q))
        else:
            y = _power(_high(q << 7, root), shift + jnp.zeros_like(q))
        return jnp.clip(y + out.grid.zero_point, low, high)

    def smooth(v: Any) -> Any:
        total = jnp.sum(v * v, -1, keepdims=True)
        return v / jnp.sqrt(jnp.where(total == 0, 1, total))

    return on_stored(out, exact, smooth, p)
