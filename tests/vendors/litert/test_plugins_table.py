"""The operators of LiteRT's plugins, as tables."""

import numpy as np
import pytest

from nxjax.lower.npu.formats.tflite_schema import BUILTINS
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.vendors.litert import plugins_table as plugins

TABLES = {
    "qualcomm": plugins.QUALCOMM,
    "samsung": plugins.SAMSUNG,
    "mediatek": plugins.MEDIATEK,
    "google": plugins.GOOGLE,
}


def node(op: str, **attrs) -> Node:
    grid = asymmetric(-1, 1)
    x, y = (Tensor(n, (1, 4, 4, 2), "int8", grid) for n in "xy")
    return Node(op, (x,), (y,), attrs)


@pytest.mark.parametrize("name", TABLES)
def test_every_operator_is_one_of_tflites(name):
    assert set(TABLES[name].limits) <= set(BUILTINS)
    assert TABLES[name].verdict(node("tanh")).ok
    verdict = TABLES[name].verdict(node("reduce_prod", axes=(3,), keepdims=True))
    assert not verdict.ok and "REDUCE_PROD" in verdict.reason and "multiply in steps" in verdict.suggestion


def test_the_lists_differ_where_the_plugins_do():
    taken = {name: TABLES[name].verdict(node("elu")).ok for name in TABLES}
    assert taken == {"qualcomm": True, "samsung": False, "mediatek": False, "google": True}
    assert plugins.MEDIATEK.verdict(node("leaky_relu", alpha=0.1)).ok
    assert not plugins.SAMSUNG.verdict(node("log_softmax")).ok


def test_mediateks_table_has_tensor_types():
    def taken(dtype, grid=None, data=None):
        x, y = Tensor("x", (1, 4), dtype, grid, data), Tensor("y", (1, 4), dtype, grid)
        return plugins.MEDIATEK.verdict(Node("reshape", (x,), (y,), {"shape": (1, 4)}))

    for dtype in ("float32", "float16", "int32", "bool"):
        assert taken(dtype).ok, dtype
    assert taken("int8", asymmetric(-1, 1)).ok and taken("int16", Grid(np.dtype("int16"), 0.1)).ok
    for dtype in ("int8", "int16", "int64"):
        verdict = taken(dtype)
        assert not verdict.ok and "type" in verdict.reason and verdict.suggestion, dtype
    scales = Grid(np.dtype("int16"), (0.1, 0.2, 0.3, 0.4), 0, 1)
    assert not taken("int16", scales).ok


def test_padding_in_front_needs_its_own_operator():
    pool = node("max_pool_2d", window=(2, 2), strides=(1, 1), padding=((1, 0), (0, 1)), activation=None)
    pool.outputs = (Tensor("y", (1, 4, 4, 2), np.int8, pool.operands[0].grid),)
    assert plugins.MEDIATEK.verdict(pool).ok
