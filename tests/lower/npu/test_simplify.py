"""The small clean-ups, integer ends, and names."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.simplify import merged, named, tidied, with_integer_ends
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.trace import dtypes
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

X = normal(2, 3, 4)


@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        ([], lambda x: x.reshape(6, 4).reshape(2, 3, 4)),
        (["reshape"], lambda x: x.reshape(6, 4).reshape(24)),
        (["reshape"], lambda x: x[None].transpose(1, 0, 2, 3)),
        ([], lambda x: x[:, :3]),
        (["tanh"], lambda x: jnp.tanh(x.swapaxes(0, 1)).swapaxes(0, 1)),
        (["sin", "add"], lambda x: jnp.sin(x) + jnp.sin(x)),
        (["sin"], lambda x: (jnp.sin(x), jnp.cos(x))[0]),
    ],
)
def test_nodes_that_do_nothing_or_the_same(nodes, function):
    assert ops(same(function, X)) == nodes


def test_equal_nodes_are_merged_only_if_attributes_agree():
    f = lambda x: (jnp.sum(x, 1), jnp.sum(x, 1), jnp.sum(x, 2), jnp.cumsum(x, 1), lax.cumsum(x, 1, reverse=True))
    assert count(same(f, X)) == {"sum": 2, "cumsum": 2}


def test_a_grid_put_on_again_is_not_put_on():
    g = Grid(dtypes.int8, 0.5, 0)
    x, y, z = Tensor("x", (3,), dtypes.int8, g), Tensor("y", (3,), dtypes.float32), Tensor("z", (3,), dtypes.int8, g)
    graph = NpuGraph("f", [x], [z], [Node("dequantize", (x,), (y,)), Node("quantize", (y,), (z,))])
    assert tidied(graph).outputs == [x]
    other = Tensor("z", (3,), dtypes.int8, Grid(dtypes.int8, 0.25, 0))
    graph = NpuGraph("f", [x], [other], [Node("dequantize", (x,), (y,)), Node("quantize", (y,), (other,))])
    assert len(tidied(graph).nodes) == 2


def test_integer_ends():
    g = asymmetric(-1.0, 1.0)
    f = lambda x, y: (quantize_dequantize(x, grid=g)[:1], y * 2, quantize_dequantize(x, grid=g))
    graph = graph_of(f, X, X, io="integer")
    assert [t.grid for t in graph.inputs] == [g, None]
    assert [t.grid for t in graph.outputs] == [g, None, g]
    assert "quantize" not in count(graph)
    assert graph.outputs[2] is graph.inputs[0]
    floats = graph_of(f, X, X)
    assert [t.grid for t in (*floats.inputs, *floats.outputs)] == [None] * 5
    assert ops(with_integer_ends(floats)) == ops(graph)


def test_names_are_readable_and_unique():
    w = normal(4, 4)

    def f(x, y):
        return nn.softmax(x @ w + normal(4)) @ (w + 1), jnp.where(y > 0, y, 2.0), lax.split(x, (1, 2), 1)[1]

    g = graph_of(f, normal(2, 3, 4), X)
    assert [t.name for t in g.inputs] == ["input_0", "input_1"]
    names = [t.name for t in g.tensors()]
    assert len(set(names)) == len(names)
    assert {"fully_connected_0/weights", "fully_connected_0/bias", "fully_connected_1/weights", "split_0:1"} <= set(
        names
    )
    assert [n.name for n in g.nodes if n.op == "fully_connected"] == ["fully_connected_0", "fully_connected_1"]
    again = graph_of(f, normal(2, 3, 4), X)
    assert [n.name for n in again.nodes] == [n.name for n in g.nodes]


def test_merging_needs_equal_operands():
    g = graph_of(lambda x, y: (jnp.sin(x), jnp.sin(y)), X, X)
    assert len(merged(g).nodes) == 2
    assert named(g) is g


def test_a_large_network_takes_little_time():
    import time

    w = normal(8, 8)

    def f(x):
        for _ in range(150):
            x = nn.relu(x @ w + 1.0) + x
        return x

    program = nx.make_jaxpr(f)(normal(2, 8))
    from nxjax.lower.npu.lower import lower

    start = time.process_time()
    g = lower(program)
    assert time.process_time() - start < 10
    assert count(g) == {"fully_connected": 150, "add": 150}


def test_values_of_an_enlarged_picture():
    x = normal(1, 2, 3, 2)
    g = same(lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2) * 2, x)
    assert np.prod(g.outputs[0].shape) == 4 * x.size


def test_pictures_of_bytes():
    picture = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3) * 5
    g = same(lambda x: x.astype(jnp.float32) / 255, picture)
    assert ops(g) == ["dequantize", "mul"]
    assert g.inputs[0].grid == Grid(dtypes.uint8, 1.0)
    on = Grid(dtypes.int8, 1.0, -128)
    f = lambda x: quantize_dequantize(x.astype(jnp.float32), grid=on).max((1, 2))
    g = same(f, picture, exact=True)
    assert ops(g) == ["quantize", "reduce_max", "dequantize"]
    other = lambda x: (x.astype(jnp.float32), x + np.uint8(1))
    assert "cast" in count(same(other, picture, exact=True))
