"""Means over borders that no padding word says: in parts, with the bits of the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends import target_registry as registry
from nxjax.lower.npu.formats.tflite_border import runs
from nxjax.lower.npu.formats.tflite_ops import operations
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid

I8 = np.dtype("int8")


def pool(size, window, strides, padding, dtype=I8, activation=None):
    out = tuple((n + sum(p) - k) // s + 1 for n, k, s, p in zip(size, window, strides, padding, strict=True))
    grid = Grid(I8, 0.1, 5) if dtype == I8 else None
    x, y = Tensor("x", (2, *size, 3), dtype, grid), Tensor("y", (2, *out, 3), dtype, grid)
    attrs = {"window": window, "strides": strides, "padding": padding, "activation": activation}
    return NpuGraph("g", [x], [y], [Node("average_pool_2d", (x,), (y,), attrs, name="pool")]).check()


sizes, windows = st.tuples(*[st.integers(5, 12)] * 2), st.tuples(*[st.integers(2, 5)] * 2)
strides = st.tuples(*[st.integers(1, 3)] * 2)
pads = st.tuples(*[st.tuples(st.integers(0, 1), st.integers(0, 1))] * 2)


@settings(max_examples=25)
@given(size=sizes, window=windows, stride=strides, padding=pads, seed=st.integers(0, 99))
def test_the_same_bits(size, window, stride, padding, seed):
    graph = pool(size, window, stride, padding)
    x = np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].shape).astype(I8)
    build = registry.get("tflite").build(graph, {})
    assert (build.run([x])[0] == interpret(graph, [x])[0]).all()


def test_floats_and_activations():
    graph = pool((7, 8), (3, 3), (2, 2), ((1, 1), (1, 1)), np.dtype("float32"), "relu6")
    x = 9 * np.random.default_rng(0).normal(size=graph.inputs[0].shape).astype(np.float32)
    got = registry.get("tflite").build(graph, {}).run([x])[0]
    np.testing.assert_allclose(got, interpret(graph, [x])[0], rtol=1e-6)


def test_only_where_no_word_says_it():
    names = lambda *args: [o.name for o in operations(pool(*args))]
    assert names((8, 8), (3, 3), (1, 1), ((1, 1), (1, 1))) == ["AVERAGE_POOL_2D"]
    assert names((8, 8), (2, 2), (2, 2), ((0, 0), (0, 0))) == ["AVERAGE_POOL_2D"]
    # What PyTorch's AvgPool2d(3, 2, 1, count_include_pad=False) does to an even size.
    parts = names((8, 8), (3, 3), (2, 2), ((1, 1), (1, 1)))
    assert parts.count("AVERAGE_POOL_2D") == 4 and parts.count("CONCATENATION") == 3
    assert [p.device for p in registry.get("edgetpu").placed(pool((8, 8), (3, 3), (2, 2), ((1, 1), (1, 1))))] == [
        "host"
    ]


def test_windows_of_border_alone_are_refused():
    assert runs(4, 2, 1, 2, 5) is None
    graph = pool((8, 8), (2, 2), (1, 1), ((2, 0), (0, 0)))
    with pytest.raises(Exception, match="not counted"):
        operations(graph)
