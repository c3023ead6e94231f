"""At scales from 1e-8 to 1e8: what LiteRT is said to take it runs, and computes our integers; the rest is refused.

Left out are results that C++ leaves undefined, where processors differ: sums and roots that leave 32 bits when they are
converted from floats, and factors above 2**14 beside 16-bit activations.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from nxjax.lower.npu.formats import tflite_kernels
from nxjax.lower.npu.formats.tflite_build import bias_grid
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.ops.fixed.softmax import log_softmax_grid, softmax_grid
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.litert import F32, I8, I16, I32, Random, conforms, randoms

pytest.importorskip("ai_edge_litert.interpreter")

BOOL = np.dtype(bool)
FUNCTIONS = ("relu", "relu6", "gelu", "exp", "log", "abs", "leaky_relu")
PRODUCTS = ("conv_2d", "depthwise_conv_2d", "transpose_conv")


def grid(r: Random, dtype: np.dtype) -> Grid:
    value = r.choice(r.scale(1e-8, 1e8), r.scale(1e-3, 10.0), 1e-8, 1e8, 2.0 ** r.size(-20, 20), r.scale(1e-5, 1e5))
    zero = 0 if dtype == I16 else r.choice(-128, 127, 0, r.size(-128, 127))
    return Grid(dtype, float(np.float32(value)), zero)


def one(r: Random, op: str, operands: list[Grid], out: Any, *sizes: tuple[int, ...], **attrs: Any) -> None:
    """One node on random stored values: refused by the table of kernels, or equal to the last bit."""
    *shapes, result = sizes
    tensors = [r.tensor(s, g) for s, g in zip(shapes, operands, strict=True)]
    values = [r.stored(t.shape, t.dtype) for t in tensors]
    agreed(r.node(op, list(tensors), r.tensor(result, out), **attrs), values)


def agreed(graph: NpuGraph, values: list[np.ndarray]) -> None:
    if tflite_kernels.supports(graph.nodes[0]).ok:
        conforms(graph, values)


@pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16"])
@settings(max_examples=60)
@given(r=randoms)
def test_elementwise(r: Random, dtype: np.dtype):
    x, y, z, sh = grid(r, dtype), grid(r, dtype), grid(r, dtype), (3, r.size(1, 40))
    for op in ("add", "sub", "mul"):
        one(r, op, [x, y], z, sh, sh, sh, activation=r.choice(None, "relu"))
    for op in ("maximum", "minimum"):
        one(r, op, [x, x], x, sh, sh, sh)
    one(r, "squared_difference", [x, y], z, sh, sh, sh)
    for op in ("less", "equal", "greater_equal"):
        one(r, op, [x, r.choice(x, y)], BOOL, sh, sh, sh)
    for op in FUNCTIONS:
        attrs = {"leaky_relu": {"alpha": 0.3}, "gelu": {"approximate": False}}.get(op, {})
        one(r, op, [x], z, sh, sh, **attrs)
    one(r, "neg", [x], x, sh, sh)


@pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16"])
@settings(max_examples=40)
@given(r=randoms)
def test_reductions_and_movement(r: Random, dtype: np.dtype):
    x, z, n = grid(r, dtype), grid(r, dtype), r.size(1, 40)
    one(r, "mean", [x], z, (3, n), (3,), axes=(1,), keepdims=False)
    one(r, "reduce_max", [x], x, (3, n), (3,), axes=(1,), keepdims=False)
    pool = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "activation": r.choice(None, "relu")}
    for op in ("average_pool_2d", "max_pool_2d"):
        one(r, op, [x], x, (1, 5, 5, 2), (1, 2, 2, 2), **pool)
    one(r, "softmax", [x], softmax_grid(dtype), (3, n), (3, n), beta=1.0)
    one(r, "log_softmax", [x], log_softmax_grid(I8), (3, n), (3, n))
    one(r, "quantize", [x], grid(r, r.choice(I8, I16)), (3, n), (3, n))
    one(r, "dequantize", [x], F32, (3, n), (3, n))
    one(r, "pad", [x], x, (3, n), (5, n), padding=((1, 1), (0, 0)), value=r.choice(None, 1.5, -1e9))
    size = {"size": (5, 7), "align_corners": False, "half_pixel_centers": True}
    one(r, "resize_bilinear", [x], x, (1, 3, 4, 2), (1, 5, 7, 2), **size)


@settings(max_examples=60)
@given(r=randoms)
def test_products(r: Random):
    """Of 8 bits, by factors from those that vanish to those that shift every bit out."""
    x, z, c, n = grid(r, I8), grid(r, I8), r.size(1, 3), r.size(1, 40)
    kernels = {"conv_2d": (c, 1, 1, n), "depthwise_conv_2d": (1, 2, 2, c), "transpose_conv": (c, 2, 2, n)}
    images = {"conv_2d": (1, 2, 2, n), "depthwise_conv_2d": (1, 4, 4, c), "transpose_conv": (1, 2, 2, n)}
    sides = {"conv_2d": 2, "depthwise_conv_2d": 3, "transpose_conv": 3}
    for op in PRODUCTS:
        shape, axis = kernels[op], 3 if op == "depthwise_conv_2d" else 0
        scales = tuple(float(grid(r, I8).scale) for _ in range(c))  # pyright: ignore[reportArgumentType]
        w_grid = Grid(I8, scales, 0, axis) if c > 1 else Grid(I8, scales[0])
        w = Tensor("w", shape, I8, w_grid, np.maximum(r.stored(shape), -127).astype(I8))
        b = Tensor("b", (c,), I32, bias_grid(x, w_grid, I32), r.rng.integers(-(10**8), 10**8, c).astype(I32))
        attrs: dict[str, Any] = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "activation": r.choice(None, "relu")}
        if op != "transpose_conv":
            attrs["dilations"] = (1, 1)
        if op == "conv_2d":
            attrs["groups"] = 1
        y = r.tensor((1, sides[op], sides[op], c), z)
        agreed(r.node(op, [r.tensor(images[op], x), w, r.choice(b, None)], y, **attrs), [r.stored(images[op])])
    one(r, "batch_matmul", [x, grid(r, I8)], z, (2, n), (n, 3), (2, 3), adj_x=False, adj_y=False)
