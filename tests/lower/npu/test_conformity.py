"""Our meaning of products (convolutions, dense layers, matrix products) is LiteRT's, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.lower.npu.formats.tflite_build import bias_grid, same_padding
from nxjax.lower.npu.graph import Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace.dtypes import int4
from tests.lower.npu.litert import I8, I16, I32, I64, Random, conforms, randoms

pytest.importorskip("ai_edge_litert.interpreter")

ACTIVATIONS = (None, None, "relu", "relu6", "relu_n1_to_1")
both = pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16x8"])


def weights(r: Random, shape: tuple[int, ...], axis: int) -> Tensor:
    """Stored weights in [-127, 127], with one scale, or one per slice of ``axis``."""
    if shape[axis] > 1 and r.choice(True, True, False):
        grid = Grid(I8, tuple(r.scale(1e-3, 0.1) for _ in range(shape[axis])), 0, axis)
    else:
        grid = Grid(I8, r.scale(1e-3, 0.1))
    return r.tensor(shape, grid, np.maximum(r.stored(shape), -127).astype(I8))


def bias(r: Random, x: Grid, w: Tensor, channels: int, often: bool = True) -> Tensor | None:
    if not often and r.choice(True, False):
        return None
    wide = I64 if x.dtype == I16 else I32
    size = 10 ** r.size(1, 6)
    data = r.rng.integers(-size, size, channels).astype(wide)
    assert w.grid is not None
    grid = bias_grid(x, w.grid, wide)
    return Tensor("bias", (channels,), wide, grid, data)


def result_grid(r: Random, x: Grid, w: Tensor, depth: int) -> Grid:
    """From so fine that everything saturates to so coarse that hardly anything moves."""
    assert w.grid is not None
    typical = float(x.scale) * float(np.max(w.grid.scale)) * depth**0.5  # pyright: ignore[reportArgumentType]
    scale = float(np.float32(typical * r.scale(0.05, 200)))
    return Grid(x.dtype, scale, 0 if x.dtype == I16 else r.choice(-128, 0, 127, r.size(-128, 127)))


def window(r: Random, sizes: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], dilations=(1, 1)):
    """Padding that SAME says, VALID says, or neither; and the sizes of the result, or None if nothing is left."""
    kind = r.choice("same", "valid", "free")
    if kind == "same":
        pads = tuple(same_padding(*row) for row in zip(sizes, kernel, strides, dilations, strict=True))
    elif kind == "valid":
        pads = ((0, 0), (0, 0))
    else:
        pads = tuple((r.size(0, 3), r.size(0, 3)) for _ in sizes)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = tuple((n + sum(p) - k) // s + 1 for n, p, k, s in zip(sizes, pads, spans, strides, strict=True))
    return (pads, out) if min(out) > 0 else None


@both
@given(r=randoms)
def test_conv(r: Random, dtype: np.dtype):
    sizes, kernel = (r.size(1, 9), r.size(1, 9)), (r.size(1, 4), r.size(1, 4))
    strides, dilations = (r.size(1, 3), r.size(1, 3)), (r.size(1, 2), r.size(1, 2))
    found = window(r, sizes, kernel, strides, dilations)
    if found is None:
        return
    pads, out = found
    groups, depth, channels = r.choice(1, 1, 1, 2, 3), r.size(1, 9), r.size(1, 5)
    x = r.tensor((r.size(1, 2), *sizes, depth * groups), r.grid(dtype))
    assert x.grid is not None
    w = weights(r, (channels * groups, *kernel, depth), 0)
    y = r.tensor((x.shape[0], *out, w.shape[0]), result_grid(r, x.grid, w, depth * kernel[0] * kernel[1]))
    b = bias(r, x.grid, w, w.shape[0], often=groups == 1)
    attrs = {"strides": strides, "dilations": dilations, "padding": pads, "groups": groups}
    graph = r.node("conv_2d", [x, w, b], y, activation=r.choice(*ACTIVATIONS), **attrs)
    conforms(graph, [r.stored(x.shape, dtype)])


@both
@given(r=randoms)
def test_depthwise_conv(r: Random, dtype: np.dtype):
    sizes, kernel = (r.size(1, 9), r.size(1, 9)), (r.size(1, 4), r.size(1, 4))
    strides, dilations = (r.size(1, 3),) * 2, (r.size(1, 2), r.size(1, 2))
    found = window(r, sizes, kernel, strides, dilations)
    if found is None:
        return
    pads, out = found
    channels, multiplier = r.size(1, 5), r.size(1, 3)
    x = r.tensor((r.size(1, 2), *sizes, channels), r.grid(dtype))
    assert x.grid is not None
    w = weights(r, (1, *kernel, channels * multiplier), 3)
    y = r.tensor((x.shape[0], *out, w.shape[3]), result_grid(r, x.grid, w, kernel[0] * kernel[1]))
    attrs = {"strides": strides, "dilations": dilations, "padding": pads, "activation": r.choice(*ACTIVATIONS)}
    conforms(
        r.node("depthwise_conv_2d", [x, w, bias(r, x.grid, w, w.shape[3])], y, **attrs), [r.stored(x.shape, dtype)]
    )


@both
@given(r=randoms)
def test_transpose_conv(r: Random, dtype: np.dtype):
    sizes, kernel, strides = (r.size(1, 5), r.size(1, 5)), (r.size(1, 4), r.size(1, 4)), (r.size(1, 3), r.size(1, 3))
    full = tuple((n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True))
    if r.choice(True, False):
        cuts = ((0, 0), (0, 0))
    else:
        cuts = tuple((r.size(0, (n - 1) // 2), r.size(0, (n - 1) // 2)) for n in full)
    out = tuple(n - sum(cut) for n, cut in zip(full, cuts, strict=True))
    depth, channels = r.size(1, 6), r.size(1, 4)
    x = r.tensor((r.size(1, 2), *sizes, depth), r.grid(dtype))
    assert x.grid is not None
    w = weights(r, (channels, *kernel, depth), 0)
    y = r.tensor((x.shape[0], *out, channels), result_grid(r, x.grid, w, depth * 4))
    attrs = {"strides": strides, "padding": cuts, "activation": r.choice(*ACTIVATIONS)}
    conforms(r.node("transpose_conv", [x, w, bias(r, x.grid, w, channels)], y, **attrs), [r.stored(x.shape, dtype)])


@both
@given(r=randoms)
def test_fully_connected(r: Random, dtype: np.dtype):
    lead = r.choice((), (1,), (5,), (2, 3))
    depth, channels = r.size(1, 200), r.size(1, 9)
    x = r.tensor((*(lead or (1,)), depth), r.grid(dtype))
    assert x.grid is not None
    w = weights(r, (channels, depth), 0)
    y = r.tensor((*x.shape[:-1], channels), result_grid(r, x.grid, w, depth))
    b = bias(r, x.grid, w, channels, often=False)
    conforms(r.node("fully_connected", [x, w, b], y, activation=r.choice(*ACTIVATIONS)), [r.stored(x.shape, dtype)])


@both
@pytest.mark.parametrize("op", ["fully_connected", "conv_2d"])
@given(r=randoms)
def test_weights_of_four_bits(r: Random, op: str, dtype: np.dtype):
    depth, channels = r.size(1, 40), r.size(2, 6)
    x = r.tensor((2, depth) if op == "fully_connected" else (2, 1, 1, depth), r.grid(dtype))
    assert x.grid is not None
    shape = (channels, depth) if op == "fully_connected" else (channels, 1, 1, depth)
    grid = Grid(int4, tuple(r.scale(1e-3, 0.1) for _ in range(channels)), 0, 0)
    w = r.tensor(shape, grid, r.rng.integers(-7, 8, shape).astype(int4))
    y = r.tensor((*x.shape[:-1], channels), result_grid(r, x.grid, w, depth))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1}
    attrs = {} if op == "fully_connected" else attrs
    graph = r.node(op, [x, w, bias(r, x.grid, w, channels)], y, activation=None, **attrs)
    conforms(graph, [r.stored(x.shape, dtype)])


@both
@given(r=randoms, adj_x=st.booleans(), adj_y=st.booleans())
def test_batch_matmul(r: Random, dtype: np.dtype, adj_x: bool, adj_y: bool):
    m, k, n = r.size(1, 6), r.size(1, 40), r.size(1, 6)
    batch = r.choice((), (3,), (2, 2))
    a, b = r.grid(dtype), r.grid(dtype)
    scale = float(np.float32(float(a.scale) * float(b.scale) * r.scale(1, 500)))  # pyright: ignore[reportArgumentType]
    out = Grid(dtype, scale, 0 if dtype == I16 else r.size(-128, 127))
    shapes = [(*batch, k, m) if adj_x else (*batch, m, k), (*batch, n, k) if adj_y else (*batch, k, n)]
    r.agree("batch_matmul", [a, b], shapes, r.tensor((*batch, m, n), out), adj_x=adj_x, adj_y=adj_y)
