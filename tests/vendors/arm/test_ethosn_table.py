"""Ethos-N's published limits, each with a node just inside and one just outside."""

import numpy as np
import pytest

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.arm.ethosn_table import TABLE
from tests.vendors.single import INT8, INT16, OPS, single


def t(name, *shape, scale=0.05, data=None, dtype=INT8):
    return Tensor(name, shape, dtype, Grid(dtype, scale, 0), data)


def same(n, k, s):
    total = max((-(-n // s) - 1) * s + k - n, 0)
    return total // 2, total - total // 2


def conv(size=(3, 3), stride=(1, 1), scale=0.05, op="conv_2d", channels=8, dilation=1):
    x = t("x", 1, 32, 32, 4)
    shape = (channels, *size, 4) if op == "conv_2d" else (1, *size, channels)
    w = t("w", *shape, scale=0.5, data=np.ones(shape, np.int8))
    pads = tuple(same(32, (k - 1) * dilation + 1, s) for k, s in zip(size, stride))
    y = t("y", 1, *(-(-32 // s) for s in stride), channels, scale=scale)
    attrs = {"strides": stride, "dilations": (dilation,) * 2, "padding": pads, "activation": None}
    return Node(op, (x, w, None), (y,), attrs)


def pool(size, stride, n, padded, op="max_pool_2d"):
    pads = (same(n, size, stride),) * 2 if padded else ((0, 0),) * 2
    out = -(-n // stride) if padded else (n - size) // stride + 1
    attrs = {"window": (size, size), "strides": (stride, stride), "padding": pads, "activation": None}
    return Node(op, (t("x", 1, n, n, 4),), (t("y", 1, out, out, 4),), attrs)


def one(op, shape, out, *, scale=0.05, dtype=INT8, **attrs):
    return Node(op, (t("x", *shape, dtype=dtype),), (t("y", *out, scale=scale, dtype=dtype),), attrs)


def concat(*channels, scale=0.05):
    parts = tuple(t(f"x{i}", 1, 4, 4, c) for i, c in enumerate(channels))
    return Node("concatenation", parts, (t("y", 1, 4, 4, sum(channels), scale=scale),), {"axis": 3})


def add(*shape):
    return Node("add", (t("x", 1, 4, 4, 8), t("b", *shape, data=np.ones(shape, np.int8))), (t("y", 1, 4, 4, 8),), {})


def resize(h, w):
    attrs = {"size": (h, w), "align_corners": False, "half_pixel_centers": False}
    return one("resize_nearest", (1, 8, 8, 4), (1, h, w, 4), **attrs)


def mean(n):
    return one("mean", (1, n, n, 4), (1, 4), axes=(1, 2), keepdims=False)


ROWS = {
    "8 bits": (one("relu", (1, 8), (1, 8)), one("relu", (1, 8), (1, 8), dtype=INT16), "8 bits"),
    "4 dimensions": (one("relu", (1, 2, 3, 4), (1, 2, 3, 4)), one("relu", (1,) * 5, (1,) * 5), "4 dimensions"),
    "batch": (one("relu", (1, 2, 3, 4), (1, 2, 3, 4)), one("relu", (2, 2, 3, 4), (2, 2, 3, 4)), "batch"),
    "kernel": (conv((1, 5)), conv((4, 4)), "kernels"),
    "stride": (conv(stride=(2, 2)), conv(stride=(3, 3)), "strides"),
    "equal strides": (conv(stride=(1, 1)), conv(stride=(2, 1)), "strides"),
    "stride of 9x9": (conv((9, 9)), conv((9, 9), (2, 2)), "strides"),
    "dilation": (conv(), conv(dilation=2), "dilation"),
    "factor": (conv(), conv(scale=0.02), "scale"),
    "multiplier": (
        conv(op="depthwise_conv_2d", channels=4), conv(op="depthwise_conv_2d", channels=8), "one result per channel"
    ),
    "max pool": (pool(2, 2, 8, False), pool(2, 1, 8, False), "maximum pooling"),
    "max pool padded": (pool(3, 2, 9, True), pool(3, 2, 8, True), "maximum pooling"),
    "max pool width": (pool(3, 2, 416, False), pool(3, 2, 418, False), "maximum pooling"),
    "average pool": (
        pool(3, 1, 8, True, "average_pool_2d"), pool(3, 1, 8, False, "average_pool_2d"), "average pooling"
    ),
    "average of all": (pool(7, 1, 7, False, "average_pool_2d"), pool(7, 1, 9, False, "average_pool_2d"), "average"),
    "average size": (
        pool(3, 1, 247, True, "average_pool_2d"), pool(3, 1, 248, True, "average_pool_2d"), "average"
    ),
    "mean": (mean(7), mean(9), "7x7 or 8x8"),
    "mean axes": (mean(8), one("mean", (1, 8, 8, 4), (1, 8, 8), axes=(3,), keepdims=False), "7x7 or 8x8"),
    "concatenation": (concat(16, 32), concat(16, 8), "multiples of 16"),
    "concatenation scale": (concat(16, 16), concat(16, 16, scale=0.0001), "1/128"),
    "add": (add(8), add(1, 4, 1, 8), "one shape"),
    "resize": (resize(16, 16), resize(16, 15), "resizing"),
    "resize odd": (resize(15, 15), resize(24, 24), "resizing"),
    "leaky relu": (
        one("leaky_relu", (1, 8), (1, 8), alpha=0.1), one("leaky_relu", (1, 8), (1, 8), alpha=1.5), "slope"
    ),
    "transpose": (
        one("transpose", (1, 2, 3, 4), (1, 3, 2, 4), permutation=(0, 2, 1, 3)),
        one("transpose", (1, 2, 1, 4), (1, 1, 2, 4), permutation=(2, 0, 1, 3)),
        "batch stays",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_inside_and_outside(row):
    inside, outside, word = ROWS[row]
    assert TABLE.verdict(inside).ok, TABLE.verdict(inside).reason
    verdict = TABLE.verdict(outside)
    assert not verdict.ok and word in verdict.reason


def test_multiplication_is_with_one_constant_per_channel():
    y = t("y", 1, 4, 4, 8)
    factor = t("f", 8, data=np.ones(8, np.int8))
    assert TABLE.verdict(Node("mul", (t("x", 1, 4, 4, 8), factor), (y,), {})).ok
    assert not TABLE.verdict(Node("mul", (t("x", 1, 4, 4, 8), t("z", 1, 4, 4, 8)), (y,), {})).ok


def test_every_node_gets_a_verdict():
    for op in OPS:
        for seed in range(6):
            verdict = TABLE.verdict(single(op, seed).nodes[0])
            assert verdict.ok or verdict.reason
