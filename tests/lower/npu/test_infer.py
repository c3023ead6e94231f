"""Types of a node's results: what follows from its operands, and what is refused because nothing does."""

import numpy as np
import pytest

from nxjax.errors import DtypeError, NxError, ProgramError, ShapeError
from nxjax.lower.npu import infer
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.formats.onnx_cases import cases, float_graph, int8_graph

GRID = Grid(np.dtype("int8"), 0.5, 3)


def f32(name, *shape, data=None):
    return Tensor(name, shape, "float32", None, data)


def int8(name, *shape):
    return Tensor(name, shape, "int8", GRID)


@pytest.mark.parametrize("case", cases(), ids=repr)
def test_graphs_that_mean_something_pass_and_other_results_do_not(case):
    for graph in (float_graph(case), int8_graph(case)[0]):
        for node in graph.nodes:
            infer.check(node)
            outputs = [Tensor(t.name, (*t.shape, 7), t.dtype, t.grid) for t in node.outputs]
            with pytest.raises(NxError, match=r"does not follow|fit|of "):
                infer.check(Node(node.op, node.inputs, tuple(outputs), node.attrs))


def test_nothing_is_computed_on_tensors_without_elements():
    with pytest.raises(ShapeError, match="relu of tensors without elements"):
        infer.check(Node("relu", (f32("x", 0, 2),), (f32("y", 0, 2),)))


@pytest.mark.parametrize("indices", [[0, 3], [-1], [2**31 - 1]])
def test_constant_indices_are_within_what_they_index(indices):
    constant = Tensor("i", (len(indices),), "int32", None, np.array(indices, np.int32))
    node = Node("gather", (f32("x", 3, 2), constant), (f32("y", len(indices), 2),), {"axis": 0})
    with pytest.raises(ShapeError, match="gather: indices from"):
        infer.check(node)


def test_indices_that_come_at_run_time_are_within_what_they_index():
    x, i, y = f32("x", 3), Tensor("i", (1,), "int32"), f32("y", 1)
    graph = NpuGraph("g", [x, i], [y], [Node("gather", (x, i), (y,), {"axis": 0})])
    assert interpret(graph, [np.float32([5, 6, 7]), np.int32([2])])[0].tolist() == [7]
    for index in (3, -1):
        with pytest.raises(ProgramError, match="index out of range"):
            interpret(graph, [np.float32([5, 6, 7]), np.int32([index])])


def test_values_are_all_on_grids_or_none_is():
    w = Tensor("w", (4, 2), "int8", Grid(np.dtype("int8"), 0.1), np.ones((4, 2), np.int8))
    plain8 = Tensor("p", (1, 2), "int8")
    infer.check(Node("fully_connected", (f32("x", 1, 2), w, None), (f32("y", 1, 4),), {}))
    infer.check(Node("fully_connected", (int8("x", 1, 2), w, None), (int8("y", 1, 4),), {}))
    infer.check(Node("quantize", (f32("x", 2),), (int8("y", 2),)))
    infer.check(Node("add", (plain8, plain8), (Tensor("q", (1, 2), "int8"),), {}))
    wrong = [
        Node("fully_connected", (int8("x", 1, 2), w, None), (Tensor("y", (1, 4), "int8"),), {}),
        Node("add", (int8("x", 1, 2), plain8), (int8("y", 1, 2),), {}),
        Node("mean", (int8("x", 1, 2),), (Tensor("y", (1,), "int8"),), {"axes": (1,), "keepdims": False}),
    ]
    for node in wrong:
        with pytest.raises(DtypeError, match=f"{node.op}: some values are on grids and some are not"):
            infer.check(node)


def test_overflow_is_a_result_and_no_warning():
    x, y = f32("x", 1), f32("y", 1)
    graph = NpuGraph("g", [x], [y], [Node("exp", (x,), (y,))])
    assert np.isinf(interpret(graph, [np.float32([1000])])[0]).all()


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("tanh", {}), ("softmax", {"beta": 1.0}), ("exp", {}), ("gelu", {}), ("erf", {}), ("leaky_relu", {"alpha": 1.0})],
)
def test_integers_that_mean_themselves_have_no_real_functions(op, attrs):
    plain = [Tensor(n, (2,), "int8") for n in "xy"]
    with pytest.raises(DtypeError, match="dtypes that do not go together"):
        infer.check(Node(op, (plain[0],), (plain[1],), attrs))


def test_resizing_aligns_corners_or_centers():
    attrs = {"size": (2, 2), "align_corners": True, "half_pixel_centers": True}
    with pytest.raises(ShapeError, match="not both"):
        infer.check(Node("resize_bilinear", (f32("x", 1, 4, 4, 1),), (f32("y", 1, 2, 2, 1),), attrs))


def test_a_graph_has_each_input_once_and_some_result():
    x, y, c = f32("x", 2), f32("y", 2), f32("c", 2, data=np.zeros(2, np.float32))
    node = Node("abs", (x,), (y,))
    for inputs, outputs, says in (([x, x], [y], "given twice"), ([x, c], [y], "constant"), ([x], [], "no results")):
        with pytest.raises(ProgramError, match=says):
            NpuGraph("g", inputs, outputs, [node]).check()


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("softmax", {"beta": b}) for b in (0.0, -1.0, float("inf"), float("nan"))]
    + [("leaky_relu", {"alpha": float("nan")})],
)
def test_numbers_of_an_op_are_numbers(op, attrs):
    with pytest.raises(ShapeError, match=f"{op}: "):
        infer.check(Node(op, (f32("x", 2),), (f32("y", 2),), attrs))
