"""Whole numbers that become integers are whole ones; what decides a result is compared."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

rng = np.random.default_rng(0)
W = {"a": rng.normal(size=(16, 32)).astype(np.float32) * 0.3, "b": rng.normal(size=(32, 10)).astype(np.float32) * 0.4}
X = rng.normal(size=(64, 16)).astype(np.float32)
WHOLE = {
    "sign": lambda y: jnp.sign(y).astype("int32"),
    "count": lambda y: (y > 0).astype("float32").sum(-1).astype("int32"),
    "floor": lambda y: jnp.floor(y).astype("int32"),
    "class": lambda y: jnp.floor(nx.nn.sigmoid(y) * 5).reshape(-1).astype("int32"),
    "equal": lambda y: jnp.sign(y) == 1,
    "even": lambda y: jnp.floor(y * 2) % 2,
}


def net(p: Any, x: Any) -> Any:
    return nx.nn.relu(x @ p["a"]) @ p["b"]


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_exact(name: str):
    f = lambda p, x: WHOLE[name](net(p, x))
    quantized = nx.quantize(f, "int8", calibrate=[(W, X)])
    y, q = np.asarray(f(W, X)), np.asarray(quantized(W, X))
    assert (y == q).mean() > 0.9
    # The products are on integers, and what makes whole numbers is not.
    plan = quantized.plan(quantized.traced(W, X))
    assert sum(g.equations[0].op.name == "dot_general" for g in plan.groups()) == 2
    assert not {"floor", "sign"} & {e.op.name for g in plan.groups() for e in g.equations}


DECIDED = {
    "one large row": lambda y: jnp.exp(4 * y).argmax(-1),
    "a common term": lambda y: (y + 1000.0).argmax(-1),
    "one of each row": lambda y: ((30 * y) ** 2).sum(-1, keepdims=True).__add__(y).argmin(-1),
}


@pytest.mark.parametrize("name", DECIDED)
def test_indices_that_differ_are_told(name: str):
    f = lambda p, x: DECIDED[name](net(p, x))
    with pytest.warns(UserWarning, match="signal-to-noise"):
        quantized = nx.quantize(f, "int8", calibrate=[(W, X)])
    assert (np.asarray(f(W, X)) == np.asarray(quantized(W, X))).mean() < 0.7


def test_good_decisions_are_not_told():
    f = lambda p, x: (net(p, x).argmax(-1), net(p, x) > 0, (nx.nn.sigmoid(net(p, x)) * 255).astype("uint8"))
    quantized = nx.quantize(f, "int8", calibrate=[(W, X)])
    assert all(g.dtype == nx.int8 for g in quantized.plan(quantized.traced(W, X)).groups())
