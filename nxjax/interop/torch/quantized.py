"""Rules of modules that were prepared for integers: grids that training looks at, and conversions to them and back."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes
from nxjax.transforms.custom_jvp import custom_jvp


def _along(x: Any, v: Any, axis: int) -> Any:
    """Numbers of the slices of one axis, so that they broadcast against ``x``."""
    return v.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _steps(x: Any, scale: Any, zero: Any) -> Any:
    return jnp.round(x * (1 / jnp.asarray(scale, x.dtype)) + zero)


def _fake(x: Any, scale: Any, zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """The nearest real numbers of a grid, and which were inside of it: those have the derivative of ``x``."""

    @custom_jvp
    def rounded(x: Any, scale: Any, zero: Any) -> Any:
        return ((jnp.clip(_steps(x, scale, zero), low, high) - zero) * scale).astype(x.dtype)

    def inside(x: Any, scale: Any, zero: Any) -> Any:
        steps = _steps(x, scale, zero)
        return (steps >= low) & (steps <= high)

    rounded.defjvp(lambda xs, ts: (rounded(*xs), jnp.where(inside(*xs), ts[0], 0)))
    scale, zero = jnp.asarray(scale, x.dtype), jnp.asarray(zero, x.dtype)
    return rounded(x, scale, zero), inside(x, scale, zero)


@rule("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_tensor_affine.tensor_qparams_cachemask")
def _fake_tensor_mask(self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    return _fake(self, scale, zero_point, quant_min, quant_max)


@rule("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine.tensor_qparams")
def _fake_tensor(self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    return _fake(self, scale, zero_point, quant_min, quant_max)[0]


@rule("fake_quantize_per_channel_affine_cachemask")
def _fake_channel_mask(self: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    return _fake(self, _along(self, scale, axis), _along(self, zero_point, axis), quant_min, quant_max)


@rule("fake_quantize_per_channel_affine")
def _fake_channel(self: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    return _fake_channel_mask(self, scale, zero_point, axis, quant_min, quant_max)[0]


def _stored(x: Any, scale: Any, zero: Any, low: int, high: int, dtype: Any) -> Any:
    x = x.astype(dtypes.float32)
    steps = jnp.round(x * (1 / jnp.asarray(scale, dtypes.float32))) + zero
    return jnp.clip(steps, low, high).astype(dtype)


def _real(q: Any, scale: Any, zero: Any, out_dtype: Any) -> Any:
    shifted = q.astype(dtypes.float32) - (0 if zero is None else zero)
    return (shifted * scale).astype(out_dtype or dtypes.float32)


_SPACE = "quantized_decomposed"


@rule(*(f"{_SPACE}.quantize_per_tensor{o}" for o in ("", ".tensor", ".tensor2")))
def _quantize(input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any) -> Any:
    return _stored(input, scale, zero_point, quant_min, quant_max, dtype)


@rule(*(f"{_SPACE}.dequantize_per_tensor{o}" for o in ("", ".tensor", ".tensor2")))
def _dequantize(
    input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any, *, out_dtype: Any = None
) -> Any:
    return _real(input, scale, zero_point, out_dtype)


@rule(f"{_SPACE}.quantize_per_channel")
def _quantize_channels(
    input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    grid = _along(input, scales, axis), _along(input, zero_points, axis)
    return _stored(input, *grid, quant_min, quant_max, dtype)


@rule(f"{_SPACE}.dequantize_per_channel")
def _dequantize_channels(
    input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any, *,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    zeros = None if zero_points is None else _along(input, zero_points, axis)
    return _real(input, _along(input, scales, axis), zeros, out_dtype)
