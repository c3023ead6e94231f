"""Reductions and softmaxes."""

import numpy as np
import pytest

import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

X = normal(2, 3, 4)


@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        (["sum"], lambda x: x.sum(1)),
        (["sum"], lambda x: x.sum((0, 2), keepdims=True)),
        (["sum"], jnp.sum),
        (["mean"], lambda x: x.mean((1, 2))),
        (["mean"], lambda x: x.mean(2, keepdims=True)),
        (["reduce_max"], lambda x: x.max(1)),
        (["reduce_min"], lambda x: x.min((0, 1))),
        (["reduce_prod"], lambda x: x.prod(1)),
        (["softmax"], nn.softmax),
        (["transpose", "softmax", "transpose"], lambda x: nn.softmax(x, 1)),
        (["log_softmax"], nn.log_softmax),
        (["reshape"], lambda x: x[:, :, None].sum(2).reshape(6, 4)),
    ],
)
def test_nodes(nodes, function):
    assert ops(same(function, X)) == nodes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.var(x, 1), lambda x: jnp.std(x), nn.standardize, lambda x: nn.logsumexp(x, (0, 2)),
        lambda x: nn.softmax(x, 0), lambda x: jnp.linalg.norm(x, axis=1), lambda x: jnp.any(x > 1, 1),
        lambda x: jnp.all(x > -1), lambda x: jnp.broadcast_to(x[:, :1], (2, 5, 4)).sum((1, 2)),
        lambda x: jnp.cumsum(x, 0)[-1], lambda x: (x > 0).sum(1), lambda x: x.max(1) - x.min(1),
        lambda x: nn.layer_norm(x, axis=(1, 2)), lambda x: nn.rms_norm(x), lambda x: jnp.average(x, 1),
        lambda x: lax.reduce(x, 0.0, lax.add, (1,)),
    ],
)  # fmt: skip
def test_pieces(function):
    same(function, X)


def test_means_write_themselves_in_many_ways():
    for f in (
        lambda x: x.mean(1), lambda x: x.sum(1) / 3, lambda x: x.sum(1) * (1 / 3),
        lambda x: jnp.sum(x, 1, keepdims=True)[:, 0] / 3.0,
    ):  # fmt: skip
        assert "mean" in count(same(f, X))
    assert "mean" not in count(same(lambda x: x.sum(1) / 4, X))


def test_integers_and_bools():
    i = np.arange(12, dtype=np.int32).reshape(3, 4)
    same(lambda i: i.sum(1) + i.max(1), i, exact=True)
    same(lambda i: jnp.argmax(i > 5, 1), i, exact=True)
    with pytest.raises(UnsupportedOpsError, match="ordered"):
        graph_of(lambda x: lax.reduce_max(x, (0,)), i > 3)
