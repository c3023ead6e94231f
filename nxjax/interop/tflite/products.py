"""Rules of convolutions and matrix products of floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.elementwise import activated
from nxjax.interop.tflite.shapes import ints
from nxjax.interop.tflite.walk import rule
from nxjax.lower.npu.formats.tflite_build import same_padding
from nxjax.lower.npu.formats.tflite_schema import SAME

_IMAGE = ("NHWC", "OHWI", "NHWC")
_VOLUME = ("NDHWC", "DHWIO", "NDHWC")


def edges(
    padding: int, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """What stands before and after each spatial axis."""
    if min(*strides, *dilations, *window) < 1:
        raise ValueError(f"windows {window}, strides {strides}, dilations {dilations}")
    if padding != SAME:
        return [(0, 0)] * len(sizes)
    return [same_padding(*row) for row in zip(sizes, window, strides, dilations, strict=True)]


def convolution(
    x: Any, w: Any, *, padding: int, strides: Sequence[int], dilations: Sequence[int], depthwise: bool = False
) -> dict[str, Any]:
    """The parameters of `lax.conv_general_dilated` for a convolution of images with weights of the file."""
    window = w.shape[1:3]
    groups = x.shape[3] if depthwise else x.shape[3] // max(w.shape[3], 1)
    return {
        "window_strides": tuple(strides),
        "padding": edges(padding, x.shape[1:3], window, strides, dilations),
        "rhs_dilation": tuple(dilations),
        "dimension_numbers": ("NHWC", "IHWO", "NHWC") if depthwise else _IMAGE,
        "feature_group_count": groups,
    }


def finished(y: Any, b: Any, number: int) -> Any:
    return activated(y if b is None else y + b, number)


@rule("CONV_2D")
def _conv(
    x: Any, w: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int, dilation_w_factor: int,
    dilation_h_factor: int, fused_activation_function: int,
) -> Any:  # fmt: skip
    dilations = (dilation_h_factor, dilation_w_factor)
    params = convolution(x, w, padding=padding, strides=(stride_h, stride_w), dilations=dilations)
    return finished(lax.conv_general_dilated(x, w, **params), b, fused_activation_function)


@rule("DEPTHWISE_CONV_2D")
def _depthwise(
    x: Any, w: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int, dilation_w_factor: int,
    dilation_h_factor: int, fused_activation_function: int,
) -> Any:  # fmt: skip
    dilations = (dilation_h_factor, dilation_w_factor)
    params = convolution(x, w, padding=padding, strides=(stride_h, stride_w), dilations=dilations, depthwise=True)
    return finished(lax.conv_general_dilated(x, w, **params), b, fused_activation_function)


def transposed(shape: Sequence[int], w: Any, x: Any, padding: int, strides: Sequence[int]) -> dict[str, Any]:
    """The parameters of the convolution that a TRANSPOSE_CONV is, with turned weights."""
    around: list[tuple[int, int]] = []
    for n, k, s, m in zip(shape[1:3], w.shape[1:3], strides, x.shape[1:3], strict=True):
        low = same_padding(n, k, s)[0] if padding == SAME else 0
        high = (m - 1) * s + k - n - low
        around.append((k - 1 - low, k - 1 - high))
    return {
        "window_strides": (1, 1), "padding": around, "lhs_dilation": tuple(strides), "rhs_dilation": (1, 1),
        "dimension_numbers": _IMAGE, "feature_group_count": 1,
    }  # fmt: skip


@rule("TRANSPOSE_CONV", known=("shape",))
def _transpose_conv(
    shape: Any, w: Any, x: Any, b: Any = None, *, padding: int, stride_w: int, stride_h: int,
    fused_activation_function: int,
) -> Any:  # fmt: skip
    params = transposed(ints(shape), w, x, padding, (stride_h, stride_w))
    return finished(lax.conv_general_dilated(x, jnp.flip(w, (1, 2)), **params), b, fused_activation_function)


@rule("CONV_3D")
def _conv_3d(
    x: Any, w: Any, b: Any = None, *, padding: int, stride_d: int, stride_w: int, stride_h: int,
    dilation_d_factor: int, dilation_w_factor: int, dilation_h_factor: int, fused_activation_function: int,
) -> Any:  # fmt: skip
    strides, dilations = (stride_d, stride_h, stride_w), (dilation_d_factor, dilation_h_factor, dilation_w_factor)
    y = lax.conv_general_dilated(
        x, w, strides, edges(padding, x.shape[1:4], w.shape[:3], strides, dilations), rhs_dilation=dilations,
        dimension_numbers=_VOLUME, feature_group_count=x.shape[4] // max(w.shape[3], 1),
    )  # fmt: skip
    return finished(y, b, fused_activation_function)


@rule("CONV_3D_TRANSPOSE", known=("shape",))
def _conv_3d_transpose(
    shape: Any, w: Any, x: Any, b: Any = None, *, padding: int, stride_d: int, stride_w: int, stride_h: int,
    dilation_d_factor: int, dilation_w_factor: int, dilation_h_factor: int, fused_activation_function: int,
) -> Any:  # fmt: skip
    strides, dilations = (stride_d, stride_h, stride_w), (dilation_d_factor, dilation_h_factor, dilation_w_factor)
    around: list[tuple[int, int]] = []
    for n, k, s, d, m in zip(ints(shape)[1:4], w.shape[:3], strides, dilations, x.shape[1:4], strict=True):
        low = same_padding(n, k, s, d)[0] if padding == SAME else 0
        reach = (k - 1) * d
        around.append((reach - low, n + low - (m - 1) * s - 1))
    y = lax.conv_general_dilated(
        x, jnp.flip(w, (0, 1, 2)), (1, 1, 1), around, lhs_dilation=strides, rhs_dilation=dilations,
        dimension_numbers=("NDHWC", "DHWOI", "NDHWC"),
    )  # fmt: skip
    return finished(y, b, fused_activation_function)


def rows_of(x: Any, w: Any, weights_format: int, keep_num_dims: bool) -> tuple[Any, tuple[int, ...]]:
    """The first operand of a FULLY_CONNECTED as rows, and the shape of its result."""
    if weights_format:
        raise Refused("from_tflite: FULLY_CONNECTED with shuffled weights", got=f"format {weights_format}")
    rows = x.reshape(-1, w.shape[1])
    return rows, (*(x.shape[:-1] if keep_num_dims else rows.shape[:1]), w.shape[0])


@rule("FULLY_CONNECTED")
def _fully_connected(
    x: Any, w: Any, b: Any = None, *, fused_activation_function: int, weights_format: int, keep_num_dims: bool
) -> Any:
    rows, shape = rows_of(x, w, weights_format, keep_num_dims)
    return finished(jnp.matmul(rows, w.T), b, fused_activation_function).reshape(shape)


@rule("BATCH_MATMUL")
def _batch_matmul(x: Any, y: Any, *, adj_x: bool, adj_y: bool) -> Any:
    return jnp.matmul(x.mT if adj_x else x, y.mT if adj_y else y)
