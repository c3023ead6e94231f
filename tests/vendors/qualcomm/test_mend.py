"""What is mended for Qualcomm's compiler means the same, and is computed rightly where the original is not."""

import numpy as np
import pytest

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.vendors.qualcomm.mend import TABLES, mended
from nxjax.vendors.qualcomm.target import QualcommHtpDefault
from tests.vendors.graphs import F32, I8, cnn, weights

pytest.importorskip("onnxruntime_qnn")


def tall(strides=(2, 2), kernel=(10, 4)):
    """The first layer of a keyword spotter."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, *kernel, 1)).astype(F32)
    x, y = Tensor("x", (1, 49, 10, 1), F32), Tensor("y", (1, 25, 5, 8), F32)
    attrs = {
        "strides": strides,
        "dilations": (1, 1),
        "padding": ((4, 5), (1, 1)),
        "groups": 1,
        "activation": "relu",
    }
    node = Node("conv_2d", (x, Tensor("w", w.shape, F32, None, w), None), (y,), attrs, name="conv")
    return NpuGraph("tall", [x], [y], [node]).check(), [rng.standard_normal(x.shape).astype(F32)]


def inner_gather():
    rng = np.random.default_rng(1)
    x, i = Tensor("x", (2, 3, 4), F32), Tensor("i", (2, 5), np.dtype("int32"))
    y = Tensor("y", (2, 2, 5, 4), F32)
    graph = NpuGraph("gather", [x, i], [y], [Node("gather", (x, i), (y,), {"axis": 1}, name="gather")]).check()
    return graph, [rng.standard_normal(x.shape).astype(F32), rng.integers(0, 3, i.shape).astype(np.int32)]


def compressed(node=True):
    """Weights on a grid under float activations, decompressed by a node or by the layer."""
    rng = np.random.default_rng(2)
    x, y, w = Tensor("x", (4, 8), F32), Tensor("y", (4, 6), F32), weights(rng, "w", (6, 8))
    r = Tensor("r", w.shape, F32)
    dense = Node("fully_connected", (x, r if node else w, None), (y,), {"activation": None}, name="dense")
    nodes = [Node("dequantize", (w,), (r,), name="weights"), dense] if node else [dense]
    return NpuGraph("compressed", [x], [y], nodes).check(), [rng.standard_normal(x.shape).astype(F32)]


def bordered(window=(3, 3), strides=(1, 1), padding=((1, 1), (1, 1))):
    """Means of an image's windows in which its border counts for nothing."""
    x, shape = Tensor("x", (1, 16, 16, 12), F32), [1, 0, 0, 12]
    for i in range(2):
        shape[i + 1] = (16 + sum(padding[i]) - window[i]) // strides[i] + 1
    y = Tensor("y", tuple(shape), F32)
    attrs = {"window": window, "strides": strides, "padding": padding, "activation": "relu6"}
    graph = NpuGraph("bordered", [x], [y], [Node("average_pool_2d", (x,), (y,), attrs, name="pool")]).check()
    return graph, [5 * np.random.default_rng(3).standard_normal(x.shape).astype(F32)]


def uneven():
    return bordered((4, 5), (2, 3), ((0, 2), (1, 3)))


@pytest.mark.parametrize("made", [tall, inner_gather, bordered, uneven, compressed, lambda: compressed(False)])
def test_mended_graphs_mean_the_same_and_are_computed_rightly(made):
    graph, feeds = made()
    other, origin, _ = mended(graph, 73)
    other.check()
    assert set(origin) == set(other.nodes) and set(origin.values()) <= set(graph.nodes)
    (want,) = interpret(graph, feeds)
    np.testing.assert_allclose(interpret(other, feeds)[0], want, rtol=1e-5, atol=1e-5)
    build = QualcommHtpDefault().build(graph, {})
    assert [p.device for p in build.placements] == ["npu"] * len(graph.nodes)
    np.testing.assert_allclose(build.run(feeds)[0], want, atol=0.005 * np.abs(want).max())


@pytest.mark.parametrize("op", sorted(TABLES))
def test_functions_that_the_chip_lacks_are_exact_tables(op):
    x = Tensor("x", (256,), I8, Grid(I8, 0.03, -100))
    y = Tensor("y", (256,), I8, Grid(I8, 0.02, -20))
    graph = NpuGraph(op, [x], [y], [Node(op, (x,), (y,), name="f")])
    other, _, _ = mended(graph, 73)
    assert [n.op for n in other.nodes] == ["table"]
    build = QualcommHtpDefault().build(graph, {})
    assert build.placements[0].device == "npu"
    stored = np.arange(-128, 128).astype(I8)
    np.testing.assert_array_equal(build.run([stored])[0], interpret(graph, [stored])[0])


def test_what_is_right_is_left_alone():
    graph = cnn()
    other, _, notes = mended(graph, 73)
    assert [n.op for n in other.nodes] == [n.op for n in graph.nodes]
    assert notes == []
    for strides, kernel, arch in (((1, 2), (10, 4), 73), ((2, 2), (7, 7), 73), ((2, 2), (10, 4), 69)):
        graph, _ = tall(strides, kernel)
        assert len(mended(graph, arch)[0].nodes) == 1


def test_changes_are_said():
    graph, _ = tall()
    assert any("strides in one direction" in n for n in QualcommHtpDefault().build(graph, {}).notes)
    graph, _ = compressed()
    assert any("compressed constants" in n for n in QualcommHtpDefault().build(graph, {}).notes)
    assert dtypes.int8 in {t.dtype for t in graph.constants()}


def ending(op, kind, value):
    """A dense layer, something behind its last column, and a product of that."""
    grid = {"int8": Grid(I8, 0.03, 5), "int16": Grid(np.dtype("int16"), 0.0001), "float": None}[kind]
    dtype = grid.dtype if grid else F32
    rng = np.random.default_rng(3)

    def dense(x, k, n, name):
        w = rng.normal(size=(n, k)).astype(F32) / 4
        fixed = Tensor(f"{name}/w", w.shape, F32, None, w)
        if grid:
            fixed = Tensor(f"{name}/w", w.shape, I8, Grid(I8, 0.01), np.clip(w * 100, -127, 127).astype(I8))
        y = Tensor(name, (*x.shape[:-1], n), dtype, grid)
        return Node("fully_connected", (x, fixed, None), (y,), {"activation": None}, name=name)

    x = Tensor("x", (2, 8), dtype, grid)
    first = dense(x, 8, 16, "first")
    wide = Tensor("wide", (2, 32), dtype, grid)
    filled = np.full((2, 16), value, F32)
    constant = Tensor("constant", (2, 16), dtype, grid, grid.quantize(filled) if grid else filled)
    operands, attrs = {
        "concatenation": ((first.output, constant), {"axis": 1}),
        "pad": ((first.output,), {"padding": ((0, 0), (0, 16)), "value": value or None}),
    }[op]
    node = Node(op, operands, (wide,), attrs, name="wide")
    last = dense(wide, 32, 8, "last")
    graph = NpuGraph("ending", [x], [last.output], [first, node, last])
    given = rng.normal(size=(2, 8)).astype(F32)
    return graph, [grid.quantize(given) if grid else given]


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["int8", "int16", "float"])
@pytest.mark.parametrize("op", ["concatenation", "pad"])
def test_values_that_end_in_a_constant(op, kind, value):
    graph, feeds = ending(op, kind, value)
    other, origin, _ = mended(graph.check(), 73)
    assert set(origin.values()) == set(graph.nodes)
    (want,) = interpret(graph, feeds)
    np.testing.assert_allclose(interpret(other.check(), feeds)[0], want, atol=1e-6)
    (got,) = QualcommHtpDefault().build(graph, {}).run(feeds)
    limit = {"int8": 2, "int16": 8, "float": 0.01}[kind]
    assert np.abs(got.astype(np.float64) - want).max() <= limit
