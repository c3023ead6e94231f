"""Small quantized networks for the tests of targets."""

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid

I8, I32, F32 = np.dtype("int8"), np.dtype("int32"), np.dtype("float32")


def on(name, shape, scale, zero=0):
    return Tensor(name, shape, I8, Grid(I8, float(np.float32(scale)), zero))


def weights(rng, name, shape, axis=0):
    size = 127 * np.sqrt(np.prod(shape) / shape[axis])
    scales = tuple(float(np.float32(s)) for s in rng.uniform(1, 3, shape[axis]) / size)
    return Tensor(name, shape, I8, Grid(I8, scales, 0, axis), rng.integers(-127, 128, shape).astype(I8))


def bias(rng, name, n):
    return Tensor(name, (n,), I32, None, rng.integers(-2000, 2000, n).astype(I32))


def cnn(name="cnn"):
    """Float in, float out; convolutions, a residual sum, pools, a dense layer, softmax: all integers inside."""
    rng = np.random.default_rng(0)
    one = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}
    two = {"strides": (2, 2), "dilations": (1, 1), "padding": ((0, 1), (0, 1))}
    x, y = Tensor("x", (1, 16, 16, 3), F32), Tensor("y", (1, 10), F32)
    q = on("q", x.shape, 0.02, 5)
    c1, c2, c3 = (
        on("c1", (1, 16, 16, 8), 0.05, -128),
        on("c2", (1, 8, 8, 8), 0.06, -20),
        on("c3", (1, 8, 8, 8), 0.07, 3),
    )
    s, p = on("s", c3.shape, 0.08, 3), on("p", (1, 4, 4, 8), 0.08, 3)
    m, d, e = on("m", (1, 8), 0.03), on("d", (1, 10), 0.05), on("e", (1, 10), 1 / 256, -128)
    nodes = [
        Node("quantize", (x,), (q,)),
        Node(
            "conv_2d", (q, weights(rng, "w1", (8, 3, 3, 3)), bias(rng, "b1", 8)), (c1,), {**one, "activation": "relu"}
        ),
        Node(
            "depthwise_conv_2d",
            (c1, weights(rng, "w2", (1, 3, 3, 8), 3), bias(rng, "b2", 8)),
            (c2,),
            {**two, "activation": "relu6"},
        ),
        Node("conv_2d", (c2, weights(rng, "w3", (8, 3, 3, 8)), bias(rng, "b3", 8)), (c3,), {**one, "activation": None}),
        Node("add", (c3, c2), (s,), {"activation": None}),
        Node("max_pool_2d", (s,), (p,), {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}),
        Node("mean", (p,), (m,), {"axes": (1, 2), "keepdims": False}),
        Node("fully_connected", (m, weights(rng, "w4", (10, 8)), bias(rng, "b4", 10)), (d,), {"activation": None}),
        Node("softmax", (d,), (e,), {"beta": 1.0}),
        Node("dequantize", (e,), (y,)),
    ]
    for i, n in enumerate(nodes):
        n.name = f"{n.op}_{i}"
    return NpuGraph(name, [x], [y], nodes).check()


def images(seed=1):
    return np.random.default_rng(seed).normal(size=(1, 16, 16, 3)).astype(F32)


def hybrid():
    """Float: matmul, relu, erf, softmax; erf is what few NPUs have."""
    x, w = Tensor("x", (4, 8), F32), np.random.default_rng(2).standard_normal((6, 8)).astype(F32)
    a, b, c, y = (Tensor(n, (4, 6), F32) for n in "abcy")
    w = Tensor("w", w.shape, F32, None, w)
    nodes = [
        Node("fully_connected", (x, w, None), (a,), {"activation": "relu"}, name="dense"),
        Node("erf", (a,), (b,), name="erf"),
        Node("mul", (b, a), (c,), {"activation": None}, name="gate"),
        Node("softmax", (c,), (y,), {"beta": 1.0}, name="softmax"),
    ]
    return NpuGraph("hybrid", [x], [y], nodes).check()
