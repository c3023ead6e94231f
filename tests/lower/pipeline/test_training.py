"""Gradients of stages add up to those of the whole loss."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.lower.pipeline.stages import cut
from nxjax.lower.pipeline.training import Micro, halves


def loss(ws, x, t):
    skip = x
    for i, w in enumerate(ws):
        x = nx.tanh(x @ w)
        if i == 2:
            x = x + skip  # crosses several stages
    x = x @ ws[0]  # a weight that two stages share
    return ((x - t) ** 2).mean()


RNG = np.random.default_rng(0)
WS = [RNG.standard_normal((6, 6)).astype(np.float32) * 0.5 for _ in range(5)]
X, T = RNG.standard_normal((2, 4, 6)).astype(np.float32)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_gradients_of_stages(count: int, recompute: bool):
    stages = cut(nx.make_jaxpr(loss)(WS, X, T), count)
    parts = halves(stages, [True] * 5 + [False] * 2, recompute)
    micro = Micro(stages, parts, [nx.asarray(v) for v in (*WS, X, T)])
    run = lambda program, xs: program(*xs)
    for k in range(count):
        micro.forward(k, run)
    for k in reversed(range(count)):
        micro.backward(k, run, nx.float32(1.0))
    value, want = nx.value_and_grad(loss)(WS, X, T)
    np.testing.assert_allclose(micro.results()[0], value, rtol=1e-6)
    assert sorted(micro.gradients) == list(range(5))
    for i, g in enumerate(want):
        np.testing.assert_allclose(micro.gradients[i], g, rtol=1e-5, atol=1e-7)


def test_recomputation_keeps_nothing_in_flight():
    stages = cut(nx.make_jaxpr(loss)(WS, X, T), 3)
    mask = [True] * 5 + [False] * 2
    kept, again = halves(stages, mask), halves(stages, mask, recompute=True)
    assert all(h.stash == 0 for h in again) and sum(h.stash for h in kept) > 0
    assert len(again[1].backward.equations) > len(kept[1].backward.equations)


def test_a_loss_is_a_scalar():
    stages = cut(nx.make_jaxpr(lambda x: nx.tanh(x))(X), 1)
    with pytest.raises(ParameterError, match="loss"):
        halves(stages, [True])
