"""The vocabulary has no gaps: every op answers everything, every table names ops that exist, and has all of them."""

import inspect

import numpy as np
import pytest

from nxjax.errors import ParameterError, ProgramError, ShapeError
from nxjax.lower.npu import infer
from nxjax.lower.npu.attributes import SCHEMAS, AttributeKind
from nxjax.lower.npu.formats import coreml_ops, onnx_ops, openvino_ops, tflite_kernels, tflite_ops
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret_all
from nxjax.lower.npu.layout import channels_last
from nxjax.lower.npu.memory import plan
from nxjax.lower.npu.ops import OPS, op_of
from nxjax.lower.npu.permutation import back, inverse
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.cases import CASES
from tests.lower.npu.formats.onnx_cases import cases, int8_graph

GRAPHS = [pytest.param(*case.graph(), id=str(case)) for case in CASES]
GRIDS = [pytest.param(*int8_graph(case)[:2], id=repr(case)) for case in cases()]


@pytest.mark.parametrize("name", OPS)
def test_every_op_says_what_it_is(name):
    op = OPS[name]
    assert op.name == name and inspect.getdoc(type(op)) and type(op).__doc__ != type(op).__base__.__doc__
    assert not inspect.isabstract(type(op)) and SCHEMAS[name] is type(op).attributes
    assert all(isinstance(kind, AttributeKind) for kind in op.attributes.values())
    # Whoever is one of these needs what goes with it.
    assert op.movable or not (op.together or op.elementwise)
    assert not op.weighted or (op.roles[1:] == ("weights", "bias") and "activation" in op.attributes)
    assert all(flag in op.attributes for flag in op.swaps)


@pytest.mark.parametrize(
    "rows",
    [tflite_ops.RULES, tflite_kernels.KINDS, onnx_ops.EMIT, openvino_ops.RULES, coreml_ops.RULES],
    ids=["tflite", "tflite kernels", "onnx", "openvino", "coreml"],
)
def test_every_format_has_every_op_and_no_other(rows):
    assert set(rows) == {name for name, op in OPS.items() if not op.passing}


@pytest.mark.parametrize(("graph", "inputs"), GRAPHS + GRIDS)
def test_types_follow_as_values_do(graph, inputs):
    """What `infer` says of shapes and dtypes is what `eval` makes."""
    values = interpret_all(graph, inputs)
    for node in graph.nodes:
        assert op_of(node).shapes(node) == [values[t].shape for t in node.outputs]
        if all(t.grid is not None or t.dtype != np.int8 for t in node.operands):
            infer.check(node)
        assert op_of(node).macs(node) >= 0


@pytest.mark.parametrize(("graph", "inputs"), GRAPHS + GRIDS)
def test_what_stands_behind_a_transpose_means_the_same_before_it(graph, inputs):
    """``under``: each operand stored in another order, with a transpose that brings it back."""
    (node,) = graph.nodes
    if op_of(node).together and len({len(t.shape) for t in node.operands}) > 1:
        return  # operands of programs have the rank of the result, or none
    want = interpret_all(graph, inputs)
    stored: list[np.ndarray] = []
    ins, nodes, operands = [], [], []
    for t in node.inputs:
        if t is None or t.constant or (operands and not op_of(node).together):
            operands.append(t)
            if t is not None and not t.constant:
                ins.append(t)
                stored.append(want[t])
            continue
        perm = tuple(range(1, len(t.shape))) + (0,) * bool(t.shape)
        kept = Tensor(f"{t.name}_kept", back(t.shape, perm), t.dtype, t.grid)
        ins.append(kept)
        stored.append(want[t].transpose(inverse(perm)))
        operands.append(Tensor(t.name, t.shape, t.dtype, t.grid))
        nodes.append(Node("transpose", (kept,), (operands[-1],), {"permutation": perm}))
    nodes.append(Node(node.op, tuple(operands), node.outputs, node.attrs))
    moved = channels_last(NpuGraph("moved", ins, list(node.outputs), nodes).check()).check()
    got = interpret_all(moved, stored)
    for t, u in zip(node.outputs, moved.outputs, strict=True):
        np.testing.assert_allclose(got[u].astype(float), want[t].astype(float), rtol=1e-5, atol=1e-6)


def test_ops_in_place_and_views_are_planned_so():
    x = Tensor("x", (4, 4), "float32")
    for name, op in OPS.items():
        if op.attributes.keys() <= {"activation"} and (op.elementwise or name in ("log_softmax",)):
            y = Tensor("y", (4, 4), "float32")
            node = Node(name, (x,) * (2 if op.together else 1), (y,))
            assert (plan(NpuGraph("g", [x], [y], [node])).peak == 64) == op.elementwise, name


def nodes(op, attrs, shape=(2, 3)):
    return Node(op, (Tensor("x", shape, "float32"),), (Tensor("y", shape, "float32"),), attrs)


def test_ops_and_attributes_that_there_are_not_are_refused_when_a_node_is_built():
    with pytest.raises(ProgramError, match="not in the vocabulary"):
        nodes("fft", {})
    with pytest.raises(ParameterError, match="softmax: an attribute that it does not have"):
        nodes("softmax", {"gamma": 1.0})
    with pytest.raises(ParameterError, match="reshape: attribute shape"):
        nodes("reshape", {})


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("softmax", {"beta": "1"}), ("cumsum", {"axis": 0.5}), ("cumsum", {"axis": 0, "reverse": "no"}),
        ("reshape", {"shape": 6}), ("reshape", {"shape": (2.0, 3)}), ("pad", {"padding": ((1, 1), 2)}),
        ("pad", {"padding": ((0, 0), (0, 0)), "value": "zero"}), ("max_pool_2d", {"window": (2,)}),
        ("max_pool_2d", {"window": (2, 2), "padding": ((0, 0),)}), ("add", {"activation": "tanh"}),
        ("table", {"values": "abc"}), ("table", {"values": (0,) * 256, "function": 3}), ("mean", {"axes": 1}),
        ("gelu", {"approximate": 2}), ("one_hot", {"depth": 2.5, "axis": 0}),
    ],
)  # fmt: skip
def test_attributes_of_another_kind_are_refused(op, attrs):
    with pytest.raises(ParameterError, match=f"{op}: attribute"):
        nodes(op, attrs)


def test_attributes_have_one_form():
    assert nodes("mean", {"axes": [np.int64(-1)]}).attrs == {"axes": (1,), "keepdims": False}
    assert nodes("pad", {"padding": [[0, 1], [0, 0]], "value": np.float32(0.5)}).attrs == {
        "padding": ((0, 1), (0, 0)),
        "value": 0.5,
    }
    assert nodes("one_hot", {"depth": 3, "axis": -1}).attrs == {"depth": 3, "axis": 2}
    assert nodes("table", {"values": np.zeros((16, 16), np.int8)}).attrs == {"function": "table", "values": (0,) * 256}


def test_axes_beyond_the_operand_are_left_for_infer_to_refuse():
    with pytest.raises(ShapeError, match="axes"):
        infer.check(nodes("cumsum", {"axis": -3}))


def test_results_lie_on_their_operands_grid_where_elements_are_picked():
    grid, other = Grid(np.dtype("int8"), 0.5), Grid(np.dtype("int8"), 0.25)
    x, y, z = (Tensor(n, (2, 3), "int8", g) for n, g in (("x", grid), ("y", grid), ("z", other)))
    lands = lambda op, out, *xs, **attrs: op_of(node := Node(op, xs, (out,), attrs)).lands(node, out)
    assert lands("relu", y, x) and lands("maximum", y, x, x) and lands("tile", y, x, multiples=(1, 1))
    assert not lands("relu", z, x) and not lands("relu6", y, x) and not lands("add", y, x, x)
    assert lands("table", z, x, values=range(256))
