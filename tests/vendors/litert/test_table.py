"""How a table decides: all operators of a node, the first limit that does not hold, and what to write instead."""

import numpy as np

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_ops import operations
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.litert.table import Limit, Table

INT8 = np.dtype("int8")


def t(name, *shape, data=None):
    return Tensor(name, shape, INT8, Grid(INT8, 0.1, 0), data)


def parts(node):
    inputs = [x for x in node.operands if not x.constant]
    return operations(NpuGraph("g", inputs, list(node.outputs), [node]))


def relu(*shape):
    return Node("relu", (t("x", *shape),), (t("y", *shape),))


TABLE = Table(
    "the chip",
    {
        "RELU": (
            Limit(lambda o: len(o.first.shape) < 3, "small rank", "reshape"),
            Limit(lambda o: o.first.size < 9, "few"),
        )
    },
    {"TANH": "logistic"},
)


def test_the_first_limit_that_does_not_hold_is_the_reason():
    assert TABLE.verdict(relu(2, 2)).ok
    verdict = TABLE.verdict(relu(3, 3, 3))
    assert (verdict.reason, verdict.suggestion) == ("RELU: small rank", "reshape")
    assert TABLE.verdict(relu(3, 3)).reason == "RELU: few"


def test_an_operator_that_the_chip_has_not():
    tanh = Node("tanh", (t("x", 4),), (t("y", 4),))
    assert (TABLE.verdict(tanh).reason, TABLE.verdict(tanh).suggestion) == ("the chip has no TANH", "logistic")
    assert TABLE.verdict(Node("abs", (t("x", 4),), (t("y", 4),))).suggestion


def test_a_node_without_an_operator_says_why():
    x, y = (Tensor(name, (4,), np.dtype("float32")) for name in "xy")
    verdict = TABLE.verdict(Node("erf", (x,), (y,)))
    assert not verdict.ok and "erf" in verdict.reason and verdict.suggestion


def test_all_operators_of_a_node_must_be_taken():
    pads = ((1, 0), (0, 1))
    w = t("w", 4, 2, 2, 4, data=np.ones((4, 2, 2, 4), np.int8))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": pads, "groups": 1, "activation": None}
    node = Node("conv_2d", (t("x", 1, 4, 4, 4), w, None), (t("y", 1, 4, 4, 4),), attrs)
    assert [p.name for p in parts(node)] == ["PAD", "CONV_2D"]
    only = Table("the chip", {"CONV_2D": ()}, {})
    assert only.verdict(node).reason == "conv_2d is PAD, CONV_2D in TFLite; the chip has no PAD"
    assert only.verdict(node, lambda ops: list(ops)[1:]).ok


def test_a_function_by_look_up_says_which_function():
    table = Node("table", (t("x", 4),), (t("y", 4),), {"function": "softplus", "values": tuple(range(-128, 128))})
    verdict = TABLE.verdict(table)
    assert not verdict.ok and "softplus" in verdict.reason and "activation" in verdict.suggestion


def test_words_about_operators():
    x, y, z = t("x", 1, 4, 4, 4), t("y", 1, 2, 4, 4), t("z", 1, 2, 4, 4)
    [split] = parts(Node("split", (x,), (y, z), {"axis": 1, "sizes": (2, 2)}))
    assert split.maps == [x] and split.every_map == [x, y, z]
    [mean] = parts(Node("mean", (x,), (t("m", 1, 4),), {"axes": (-2, 1), "keepdims": False}))
    assert mean.axes == (1, 2)
    pool = {"window": (2, 3), "strides": (1, 1), "padding": ((0, 0), (0, 0)), "activation": None}
    [pooled] = parts(Node("max_pool_2d", (x,), (t("p", 1, 3, 2, 4),), pool))
    assert pooled.kernel == (2, 3)
    assert isinstance(pooled, TFLiteOperator)
