"""`checkpoint`: the same values and derivatives, with fewer of them kept; policies keep what they say."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.ad_checkpoint import checkpoint_name
from nxjax.errors import ParameterError
from nxjax.transforms.checkpoint import print_saved_residuals, saved_residuals
from tests.faces import close

X = np.array([0.3, 0.9, 1.2], np.float32)
W = np.linspace(-1, 1, 9).reshape(3, 3).astype(np.float32)
policies = nx.checkpoint_policies


def deep(x: Any) -> Any:
    return nx.sin(nx.sin(nx.exp(nx.sin(x))))


def peer_deep(x: Any) -> Any:
    return jnp.sin(jnp.sin(jnp.exp(jnp.sin(x))))


def network(w: Any, x: Any) -> Any:
    h = checkpoint_name(nx.sin(nx.dot(w, x)), "hidden")
    return nx.sin(nx.dot(w, nx.cos(h))).sum()


def kept(f: Any, *args: Any) -> int:
    return len(saved_residuals(f, *args))


def test_only_the_arguments_are_kept() -> None:
    assert kept(deep, X) == 4
    assert kept(nx.checkpoint(deep), X) == 1
    assert kept(nx.jit(nx.checkpoint(deep)), X) == 1
    assert kept(nx.checkpoint(nx.jit(deep)), X) == 1
    assert kept(lambda x: nx.checkpoint(deep)(nx.checkpoint(deep)(x)), X) == 2


@pytest.mark.parametrize("f", [network, nx.jit(network)])
def test_policies_keep_what_they_say(f: Any) -> None:
    inputs = kept(nx.checkpoint(f), W, X)

    def more(policy: Any) -> int:
        return kept(nx.checkpoint(f, policy=policy), W, X) - inputs

    assert inputs == 2
    assert more(policies.nothing_saveable) == 0
    assert more(policies.save_only_these_names("hidden")) == 1
    assert more(policies.save_only_these_names("other")) == 0
    assert more(policies.save_any_names_but_these("other")) == 1
    assert more(policies.save_any_names_but_these("hidden")) == 0
    assert more(policies.dots_saveable) == 2
    assert more(policies.dots_with_no_batch_dims_saveable) == 2
    both = policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("hidden"))
    assert more(both) >= 2
    assert more(policies.everything_saveable) >= 3
    assert more(policies.save_anything_except_these_names("hidden")) >= 2


def test_dots_with_batch_dimensions_are_told_apart() -> None:
    def f(a: Any, b: Any) -> Any:
        return nx.sin(nx.matmul(nx.sin(a), nx.sin(b))).sum()

    a = np.ones((2, 3, 3), np.float32)
    with_batch = kept(nx.checkpoint(f, policy=policies.dots_saveable), a, a)
    assert kept(nx.checkpoint(f, policy=policies.dots_with_no_batch_dims_saveable), a, a) == with_batch - 1


@pytest.mark.parametrize(
    "options", [{}, {"prevent_cse": False}, {"policy": nx.checkpoint_policies.everything_saveable}]
)
def test_values_and_derivatives_do_not_change(options: Any, executor: str) -> None:
    f = nx.checkpoint(deep, **options)
    x = X[0]
    with nx.config.using(executor=executor):
        close(f(x), peer_deep(x))
        close(nx.grad(f)(x), jax.grad(peer_deep)(x))
        close(nx.jit(nx.grad(f))(x), jax.grad(peer_deep)(x))
        close(nx.grad(nx.jit(f))(x), jax.grad(peer_deep)(x))
        close(nx.grad(nx.grad(f))(x), jax.grad(jax.grad(peer_deep))(x), 1e-4)
        close(nx.grad(nx.checkpoint(nx.grad(f)))(x), jax.grad(jax.grad(peer_deep))(x), 1e-4)
        close(nx.jvp(f, (x,), (x,)), jax.jvp(peer_deep, (x,), (x,)))
        close(nx.vmap(nx.grad(f))(X), jax.vmap(jax.grad(peer_deep))(X))
        close(nx.grad(lambda x: nx.vmap(f)(x).sum())(X), jax.vmap(jax.grad(peer_deep))(X))


def test_a_scan_over_checkpoints_stacks_the_carry_alone() -> None:
    def f(x: Any) -> Any:
        return nx.scan(lambda c, _: (nx.checkpoint(deep)(c), None), x, None, length=5)[0]

    assert [t.shape for t in saved_residuals(f, X)] == [(5, 3)]
    close(nx.grad(lambda x: f(x).sum())(X), jax.grad(lambda x: _repeat(x).sum())(X), 1e-4)


def _repeat(x: Any) -> Any:
    for _ in range(5):
        x = peer_deep(x)
    return x


def test_a_barrier_keeps_the_second_computation() -> None:
    text = nx.jit(nx.grad(nx.checkpoint(deep)), device="xla").lower(X[0]).as_text()
    assert "optimization_barrier" in text
    plain = nx.jit(nx.grad(nx.checkpoint(deep, prevent_cse=False)), device="xla").lower(X[0]).as_text()
    assert "optimization_barrier" not in plain


def test_static_arguments_decorator_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    @nx.checkpoint(static_argnums=(1,))
    def f(x: Any, flag: bool) -> Any:
        return nx.sin(x) if flag else x

    assert float(nx.grad(lambda x: f(x, True))(0.0)) == 1.0
    print_saved_residuals(nx.checkpoint(deep), X)
    assert capsys.readouterr().out == "f32[3]\n"
    with pytest.raises(ParameterError, match="needs a function"):
        nx.checkpoint(3)


def test_effects_happen_once() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        nx.debug.callback(lambda v: seen.append(float(v)), x)
        return nx.sin(nx.sin(x))

    nx.grad(nx.checkpoint(f))(1.0)
    assert seen == [1.0]


def test_eager_calls_get_arrays():
    """As JAX's: a division of Python numbers by zero is an error, one of arrays is not."""
    assert np.isinf(nx.checkpoint(lambda x: 1 / x)(0.0))
    assert nx.checkpoint(lambda x: x**20)(10).dtype == np.int32
    assert nx.checkpoint(lambda t: t["a"].astype("int8"))({"a": np.ones(3)}).dtype == np.int8


def test_a_policy_leaves_equations_their_lines_and_scopes():
    @nx.jit
    def inner(x: Any) -> Any:
        with nx.named_scope("inside"):
            return nx.sin(x)

    f = lambda x: inner(nx.cos(x))
    policy = nx.checkpoint_policies.everything_saveable
    for g in (f, nx.checkpoint(f), nx.checkpoint(f, policy=policy)):
        found = {(e.op.name, e.scope, e.source.function) for p in _programs(nx.make_jaxpr(nx.grad(g))(1.0)) for e in p}
        assert any(name == "mul" and scope == "inside" and line.endswith("inner") for name, scope, line in found)
        assert not any(name in ("cos", "mul") and line.endswith("scopes") for name, _, line in found)


def _programs(program: Any) -> Any:
    yield program.equations
    for e in program.equations:
        for inner in e.programs():
            yield from _programs(inner)
