"""Shapes, slices, joining, padding and look-up."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import UnsupportedOpsError
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_grid import asymmetric
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

X = normal(2, 3, 4)


@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        (["reshape"], lambda x: x.reshape(6, 4)),
        (["transpose"], lambda x: x.transpose(2, 0, 1)),
        ([], lambda x: x.transpose(2, 0, 1).transpose(1, 2, 0)),
        (["reshape"], lambda x: x[:, :, None]),
        (["slice"], lambda x: x[:, 1:, :3]),
        (["strided_slice"], lambda x: x[:, ::2]),
        (["slice", "reshape"], lambda x: x[0]),
        (["reverse"], lambda x: x[:, ::-1]),
        (["pad"], lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 1)))),
        (["pad"], lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=3.0)),
        (["slice", "pad"], lambda x: lax.pad(x, 0.0, ((0, 0, 0), (-1, 2, 0), (1, -2, 0)))),
        (["concatenation"], lambda x: jnp.concatenate([x, x, x], 1)),
        (["reshape", "broadcast_to"], lambda x: jnp.broadcast_to(x[:, None], (2, 5, 3, 4))),
        (["split", "mul"], lambda x: lax.split(x, (1, 3), 2)[1] * 2),
        (["slice"], lambda x: lax.dynamic_slice(x, (0, 1, 9), (2, 2, 3))),
        (["slice", "slice", "concatenation"], lambda x: lax.dynamic_update_slice(x, jnp.ones((2, 1, 4)), (0, 1, 0))),
        ([], lambda x: lax.dynamic_update_slice(x, jnp.ones((2, 3, 4)), (0, 0, 0))),
        (["cumsum"], lambda x: jnp.cumsum(x, 1)),
        (["cumsum"], lambda x: lax.cumsum(x, 2, reverse=True)),
    ],
)
def test_movement(nodes, function):
    assert ops(same(function, X)) == nodes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.pad(x, 1.5, ((0, 0, 1), (1, 0, 2), (0, 0, 0))),
        lambda x: jnp.roll(x, 1, 1),
        lambda x: jnp.tile(x, (1, 2, 3)),
        lambda x: jnp.repeat(x, 3, 1),
        lambda x: jnp.stack([x, x * 2], 1),
        lambda x: jnp.flip(x),
        lambda x: jnp.pad(x, ((0, 0), (2, 1), (0, 0)), mode="edge"),
        lambda x: jnp.pad(x, ((0, 0), (2, 1), (0, 0)), mode="reflect"),
        lambda x: lax.dynamic_update_slice(x, x[:, :1, :2], (0, 1, 1)),
        lambda x: jnp.tril(x),
        lambda x: jnp.diff(x, axis=1),
        lambda x: jnp.broadcast_to(x[:1, :, :1], (2, 3, 4)).reshape(6, 4),
        lambda x: jnp.broadcast_to(x[:1, :, :1], (2, 3, 4))[:, None, 1:] + 1,
        lambda x: jnp.swapaxes(jnp.broadcast_to(x[:, :, :1], (2, 3, 4)), 0, 2),
        lambda x: jnp.cumprod(x, 1),
        lambda x: lax.cummax(x, 2),
        lambda x: jnp.einsum("ijk->kji", x)[..., 0],
        lambda x: jnp.moveaxis(x, 0, -1),
    ],
)
def test_movement_in_pieces(function):
    same(function, X)


TABLE = normal(7, 3, 4)
IDS = np.array([[1, 6], [0, 3], [5, -1]], np.int32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: jnp.take(x, jnp.maximum(i, 0), axis=0),
        lambda x, i: jnp.take(x[:3], jnp.clip(i, 0, 2), axis=1),
        lambda x, i: x[..., jnp.clip(i[:, 0], 0, 3)],
        lambda x, i: x[jnp.clip(i, 0, 6), jnp.clip(i, 0, 2)],
        lambda x, i: x[2, jnp.clip(i, 0, 2)],
        lambda x, i: x[i[0, 0]],
        lambda x, i: lax.dynamic_slice_in_dim(x, i[0, 1], 3, 0),
        lambda x, i: lax.dynamic_index_in_dim(x, i[2, 0], 0, keepdims=False),
        lambda x, i: x[jnp.array([6, 4, 2, 0] * 4)],
        lambda x, i: jnp.take_along_axis(x, jnp.argmax(x, 2, keepdims=True), 2),
    ],
)
def test_look_up(function):
    g = same(function, TABLE, IDS, exact=True)
    assert "gather" in count(g)


@pytest.mark.parametrize(
    ("slices", "function"),
    [
        (4, lambda x: x[jnp.array([3, 1, 1])][:, jnp.array([[2], [0]])]),
        (2, lambda x: x[:, jnp.array([0, 2]), jnp.array([1, 3])]),
        (1, lambda x: x[jnp.array([0, 2, 4, 6])]),
        (2, lambda x: x[jnp.array([1, 4])] * 2),
        (2, lambda x: x[jnp.array([0, 1, 2, 5, 6])]),
        (5, lambda x: x[jnp.array([4, 3, 0, 1, 2, 6, 5])]),
        (4, lambda x: jnp.pad(x, ((2, 2), (0, 0), (0, 0)), mode="reflect")),
        (2, lambda x: jnp.pad(x, ((1, 1), (0, 0), (0, 0)), mode="symmetric")),
        (0, lambda x: x[jnp.array([0, 1, 2, 3, 4, 5, 6])]),
    ],
)
def test_look_up_at_known_places_is_slices(slices, function):
    found = count(same(function, TABLE, exact=True))
    assert "gather" not in found and found.get("slice", 0) + found.get("strided_slice", 0) == slices


@pytest.mark.parametrize("at", [-9, -1, 0, 2, 6, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_slice_at_a_computed_place(at, axis):
    row = normal(*(1 if i == axis else n for i, n in enumerate(TABLE.shape)))
    g = same(lambda x, r, i: lax.dynamic_update_slice_in_dim(x, r, i, axis), TABLE, row, np.int32(at), exact=True)
    assert count(g)["select"] <= 2 and "gather" not in count(g)
    jitted = lambda x, i: lax.dynamic_update_slice(x, jnp.zeros((7, 1, 4)), (0, i, 0))
    same(jitted, TABLE, np.int32(at), exact=True)


def test_a_quantized_cache_is_written_on_its_grid():
    def step(cache, row, i):
        cache, row = (quantize_dequantize(v, grid=asymmetric(-3.0, 3.5)) for v in (cache, row))
        return lax.dynamic_update_slice(cache, row, (0, i, 0))

    g = same(step, TABLE, normal(7, 1, 4), np.int32(2), exact=True)
    (chosen,) = (n for n in g.nodes if n.op == "select" and n.output.size > 1)
    assert chosen.output.grid is not None


def test_embedding_is_one_gather_of_constant_rows():
    g = same(lambda i: jnp.asarray(TABLE)[i], IDS)
    (n,) = (n for n in g.nodes if n.op == "gather")
    assert n.inputs[0].constant
    assert n.attrs == {"axis": 0}


def test_one_hot():
    g = same(lambda i: nn.one_hot(i, 4), np.array([[0, 3], [5, -1]], np.int32))
    assert ops(g) == ["one_hot"]
    same(lambda i: nn.one_hot(i, 4, axis=0), np.array([[0, 3], [2, 1]], np.int32))


def test_argmax():
    assert ops(same(lambda x: jnp.argmax(x, 1), X)) == ["argmax"]
    assert ops(same(lambda x: jnp.argmin(x, 2), X)) == ["argmin"]
    same(lambda x: jnp.argmax(x), X)


def test_constants_move_when_lowered():
    w = jnp.asarray(normal(3, 4))
    g = same(lambda x: x + jnp.concatenate([w.T[::-1], w.T], 1)[None], normal(2, 4, 6))
    assert ops(g) == ["add"]


@pytest.mark.parametrize(
    ("word", "function"),
    [
        ("one_hot", lambda x: nx.vmap(lambda row, i: row[i])(x, jnp.argmax(x[:, 0], 1))),
        ("computed place", lambda x: lax.dynamic_update_slice(x, x[:, :2], (0, jnp.argmax(x), 0))),
        ("computed place", lambda x: lax.dynamic_update_slice(x, x[:1, :1], (jnp.argmin(x), jnp.argmax(x), 0))),
        ("one-hot matrix", lambda x: x.at[jnp.argmax(x[0, 0])].add(1.0)),
        ("draw them outside", lambda x: x + nx.random.normal(nx.random.key(jnp.argmax(x)), x.shape)),
        ("padding value", lambda x: lax.pad(x, x.sum(), ((0, 0, 0), (1, 0, 0), (0, 0, 0)))),
        ("without elements", lambda x: x[:, :0] + 1),
    ],
)
def test_what_has_no_instruction_says_what_to_write(word, function):
    with pytest.raises(UnsupportedOpsError, match=word):
        graph_of(function, X)


def test_constant_random_numbers_are_constants():
    g = same(lambda x: x + nx.random.normal(nx.random.key(0), x.shape), X)
    assert ops(g) == ["add"]
