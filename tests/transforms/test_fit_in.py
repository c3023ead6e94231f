"""`fit_in`: the backward pass fits, its numbers are those without it, and dear values are kept first."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.transforms.checkpoint import saved_residuals

LAYERS = 12
WS = [np.random.default_rng(i).normal(size=(16, 16)).astype(np.float32) / 4 for i in range(LAYERS)]
X = np.random.default_rng(99).normal(size=(1024, 16)).astype(np.float32)
BYTES = X.nbytes  # of one value


def net(ws: Any, x: Any) -> Any:
    for w in ws:
        x = jnp.tanh(x @ w) * jnp.sin(x)
    return (x**2).sum()


def cost(op: Any, *types: Any, **params: Any) -> float:
    """Products are dear."""
    return {"dot_general": 10.0, "tanh": 2.0, "sin": 2.0}.get(op.name, 1.0)


def temporary(f: Any) -> int:
    with nx.config.using(executor="cpu"):
        return nx.jit(nx.grad(f)).lower(WS, X).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("values", [60, 40, 20, 16])
def test_it_fits_and_gives_the_same_numbers(values: int):
    f = nx.checkpoint(net, policy=nx.fit_in(values * BYTES, cost=cost))
    # Two cotangents are beside what is kept.
    assert temporary(f) <= (values + 3) * BYTES
    for a, b in zip(nx.jit(nx.grad(f))(WS, X), nx.jit(nx.grad(net))(WS, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def backward(values: int) -> list[str]:
    """Ops of the backward pass."""
    program = nx.make_jaxpr(nx.grad(nx.checkpoint(net, policy=nx.fit_in(values * BYTES, cost=cost))))(WS, X)
    held = [p.params["program"] for p in program.equations if p.op.name == "checkpoint"]
    return [e.op.name for p in held for e in p.equations]


def test_less_memory_takes_more_time():
    again = [len(backward(n)) for n in (100, 40, 25, 16)]
    assert again == sorted(again) and again[0] < again[-1]


def test_dear_values_are_kept_first():
    # Each layer has two products of cotangents, the first one has one.
    products = [backward(n).count("dot_general") - 2 * LAYERS + 1 for n in (45, 16)]
    assert products[0] == 0 and products[1] > LAYERS / 2
    assert "cos" in backward(45) and "tanh" not in backward(40)


def test_measured_inside_a_trace():
    f = nx.checkpoint(net, policy=nx.fit_in("4MB"))
    np.testing.assert_allclose(nx.jit(nx.value_and_grad(f))(WS, X)[0], net(WS, X), rtol=1e-5)


def test_loops_and_random_numbers_count_as_one():
    def f(key: Any, x: Any) -> Any:
        c, ys = nx.lax.scan(lambda c, r: (jnp.sin(c * r), jnp.cos(c)), x[0], x)
        return (c * ys).sum() + (nx.random.normal(key, x.shape) * jnp.exp(x)).sum()

    key, x = nx.random.key(0), jnp.ones((5, 7))
    kept = nx.checkpoint(f, policy=nx.fit_in("1MB", cost=cost))
    np.testing.assert_allclose(nx.grad(kept, 1)(key, x), nx.grad(f, 1)(key, x), rtol=1e-5)
    np.testing.assert_allclose(
        nx.vmap(nx.grad(kept, 1), (None, 0))(key, x[None]), nx.grad(f, 1)(key, x)[None], rtol=1e-5
    )


def test_what_cannot_fit_says_what_is_needed():
    with pytest.raises(nx.errors.MemoryLimitError, match=r"(?s)checkpoint: the backward.*at least \d"):
        nx.grad(nx.checkpoint(net, policy=nx.fit_in("1KB", cost=cost)))(WS, X)
    with pytest.raises(nx.errors.ParameterError, match="fit_in"):
        nx.fit_in("many")
    with pytest.raises(nx.errors.ParameterError, match="fit_in"):
        nx.checkpoint_policies.save_from_both_policies(nx.fit_in(1), nx.checkpoint_policies.dots_saveable)


def test_named_values_bound_what_is_there_at_one_time():
    """Values are computed again where the backward pass needs them, not all before it."""
    named = nx.ad_checkpoint.checkpoint_name

    def cut(ws: Any, x: Any) -> Any:
        for i, w in enumerate(ws):
            x = jnp.tanh(x @ w) * jnp.sin(x)
            x = named(x, "cut") if i % 4 == 3 else x
        return (x**2).sum()

    policy = nx.checkpoint_policies.save_only_these_names("cut")
    assert temporary(nx.checkpoint(cut, policy=policy)) < 0.6 * temporary(nx.checkpoint(net))
    assert len(saved_residuals(nx.checkpoint(cut, policy=policy), WS, X)) < LAYERS + 6
