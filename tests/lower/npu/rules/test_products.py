"""Matrix products: fully connected where one side is constant, batched elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, ops, same


@pytest.mark.parametrize(
    ("spec", "x", "w"),
    [
        ("bi,io->bo", (2, 3), (3, 4)), ("bi,oi->bo", (2, 3), (4, 3)), ("bti,io->bto", (2, 5, 3), (3, 4)),
        ("btd,dhk->bthk", (2, 5, 6), (6, 2, 3)), ("bthk,hkd->btd", (2, 5, 2, 3), (2, 3, 6)),
        ("ib,io->bo", (3, 2), (3, 4)), ("i,io->o", (3,), (3, 4)), ("bij,ij->b", (2, 3, 4), (3, 4)),
        ("bij,ji->b", (2, 3, 4), (4, 3)), ("bxi,xo->bio", (2, 3, 4), (3, 5)),
    ],
)  # fmt: skip
def test_constant_weights(spec, x, w):
    weights = normal(*w)
    g = same(lambda v: jnp.einsum(spec, v, weights), normal(*x))
    assert count(g)["fully_connected"] == 1
    assert "batch_matmul" not in count(g)
    # The constant on the left.
    left, right = spec.split("->")[0].split(",")
    g = same(lambda v: jnp.einsum(f"{right},{left}->{spec.split('->')[1]}", weights, v), normal(*x))
    assert count(g)["fully_connected"] == 1


@pytest.mark.parametrize(
    ("spec", "x", "y"),
    [
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij,kj->ik", (2, 3), (4, 3)), ("ji,jk->ik", (3, 2), (3, 4)),
        ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)), ("bthd,bshd->bhts", (2, 4, 3, 5), (2, 6, 3, 5)),
        ("bhts,bshd->bthd", (2, 3, 4, 6), (2, 6, 3, 5)), ("bij,bij->b", (2, 3, 4), (2, 3, 4)), ("i,i->", (3,), (3,)),
        ("i,j->ij", (3,), (4,)), ("bijk,bkl->bijl", (2, 3, 4, 5), (2, 5, 6)),
    ],
)  # fmt: skip
def test_two_activations(spec, x, y):
    g = same(lambda a, b: jnp.einsum(spec, a, b), normal(*x), normal(*y))
    assert count(g)["batch_matmul"] == 1


def test_transposed_operands_are_flags():
    g = same(lambda a, b: jnp.matmul(a, b.swapaxes(1, 2)), normal(5, 2, 3), normal(5, 4, 3))
    assert ops(g) == ["batch_matmul"]
    assert g.nodes[0].attrs["adj_y"]
    g = same(lambda a, b: jnp.matmul(a.T, b), normal(3, 2), normal(3, 4))
    assert ops(g) == ["batch_matmul"]
    assert g.nodes[0].attrs["adj_x"]


def test_constant_batches():
    w = normal(5, 3, 4)
    g = same(lambda a: jnp.einsum("bij,bjk->bik", a, w), normal(5, 2, 3))
    assert count(g)["batch_matmul"] == 1


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_dimension_numbers(data):
    sizes = {c: data.draw(st.integers(1, 3)) for c in "abcdefg"}
    batch, contract = data.draw(st.sampled_from(["", "a", "ab"])), data.draw(st.sampled_from(["c", "cd", ""]))
    x_free, y_free = data.draw(st.sampled_from(["", "e", "ef"])), data.draw(st.sampled_from(["", "g"]))
    left = "".join(data.draw(st.permutations(batch + contract + x_free)))
    right = "".join(data.draw(st.permutations(batch + contract + y_free)))
    numbers = (
        (tuple(left.index(c) for c in contract), tuple(right.index(c) for c in contract)),
        (tuple(left.index(c) for c in batch), tuple(right.index(c) for c in batch)),
    )
    x, y = normal(*(sizes[c] for c in left)), normal(*(sizes[c] for c in right))
    same(lambda a, b: lax.dot_general(a, b, numbers), x, y)
    same(lambda a: lax.dot_general(a, jnp.asarray(y), numbers), x)
    same(lambda b: lax.dot_general(jnp.asarray(x), b, numbers), y)


def test_plain_integers_are_refused():
    i = np.ones((2, 2), np.int32)
    with pytest.raises(UnsupportedOpsError, match=r"nx\.quantize"):
        graph_of(lambda x: x @ x, i)
