"""Differentiable search: the mixture and its expected cost are the formulas, and the choice goes where it is better."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import nas, nn
from nxjax.errors import ParameterError
from nxjax.example_libraries import stax
from nxjax.example_libraries.optimizers import adam
from nxjax.nas.differentiable import _with_choices


def power(n):
    return stax.elementwise(lambda x: x**n)


@nas.Space
def space(choose):
    width = choose("width", (3, 5))
    with choose.scope("a"):
        kind = choose.layer("kind", (power(1), power(2), power(3)))
    return stax.serial(kind, stax.Dense(width), choose.layer("last", (stax.Identity, stax.Relu)))


def test_the_mixture_is_the_weighted_sum():
    net = nas.Supernet(space, {"width": 1})
    shape, params = net.init(nx.random.key(0), (-1, 2))
    assert shape == (-1, 5) and set(net.sites) == {"a.kind", "last"} and net.sites["last"].shape == (-1, 5)
    logits = {"a.kind": np.array([0.3, -1.0, 0.5], np.float32), "last": np.array([1.0, 0.0], np.float32)}
    params = _with_choices(params, logits)
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    p, q = (np.asarray(nn.softmax(logits[k])) for k in ("a.kind", "last"))
    w, b = params[1]
    hidden = (p[0] * x + p[1] * x**2 + p[2] * x**3) @ np.asarray(w) + np.asarray(b)
    np.testing.assert_allclose(net.apply(params, x), q[0] * hidden + q[1] * np.maximum(hidden, 0), rtol=1e-5)
    table = net.table(lambda layer, shape: float(shape[-1]) * (1 + ["a", "b"].index("a")))
    assert {k: v.tolist() for k, v in table.items()} == {"a.kind": [2, 2, 2], "last": [5, 5]}
    table = {"a.kind": np.array([1.0, 2.0, 4.0]), "last": np.array([0.0, 3.0])}
    assert float(net.expected(params, table)) == pytest.approx(float(p @ [1, 2, 4] + 3 * q[1]))
    assert net.chosen(params) == {"width": 1, "a.kind": 2, "last": 0}
    assert net.candidate(params).choices["width"] == "5"


def batches(power):
    rng = np.random.default_rng(0)

    def of(_):
        for _ in range(12):
            x = rng.uniform(-1.5, 1.5, (2, 32, 2)).astype(np.float32)
            y = x**power @ np.array([[1.0], [-2.0]], np.float32)
            yield (x[0], y[0]), (x[1], y[1])

    return of


@nas.Space
def regression(choose):
    return stax.serial(choose.layer("kind", (power(1), power(2), power(3))), stax.Dense(1))


def loss(apply, params, batch):
    return nx.mean((apply(params, batch[0]) - batch[1]) ** 2)


def test_it_finds_the_layer_that_fits_and_heeds_the_price():
    net = nas.Supernet(regression)
    _, params = net.init(nx.random.key(0), (-1, 2))
    quick = {"epochs": 16, "choices": adam(0.1), "weights": adam(0.03)}
    found = nas.differentiable(net, loss, params, batches(2), **quick)
    assert found.candidate.genes == {"kind": 1} and found.losses[-1] < found.losses[0]
    assert found.shares["kind"][1] == max(found.shares["kind"]) and sum(found.shares["kind"]) == pytest.approx(
        1, abs=1e-5
    )
    # The same, where the layer that fits costs more than is allowed.
    table = {"kind": np.array([1.0, 9.0, 1.0], np.float32)}
    cheap = nas.differentiable(net, loss, params, batches(2), **quick, table=table, limit=2.0, price=20.0)
    assert cheap.candidate.genes != {"kind": 1} and cheap.expected[-1] < cheap.expected[0]


def test_what_cannot_be_mixed():
    with pytest.raises(ParameterError, match="no decision about layers"):
        nas.Supernet(lambda choose: stax.Dense(choose("width", (3, 5))))
    net = nas.Supernet(lambda choose: choose.layer("width", (stax.Dense(3), stax.Dense(5))))
    with pytest.raises(ParameterError, match="different shapes"):
        net.init(nx.random.key(0), (-1, 2))
    with pytest.raises(ParameterError, match="known after init"):
        nas.Supernet(regression).table(lambda layer, shape: 1.0)
