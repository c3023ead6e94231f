"""`scan` against JAX and against a Python loop; its errors; what it keeps for the backward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import CarryTypeError, ParameterError, ShapeError, TreeError
from nxjax.transforms.checkpoint import saved_residuals
from tests.faces import close, ours, peer

X = np.linspace(0.1, 0.9, 5).astype(np.float32)
W = np.array([[0.3, 0.1], [0.2, 0.5]], np.float32)


def recurrent(m: Any, w: Any, xs: Any, h: Any, **options: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, n = carry
        h = m.np.tanh(m.np.dot(w, h) + x)
        return (h, n + 1), {"h": h * x, "n": n}

    return m.lax.scan(step, (h, 0), xs, **options)


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 2}, {"unroll": True}, {"unroll": 7}])
def test_values_and_gradients_are_jaxs(options: Any, executor: str) -> None:
    h = np.array([0.1, -0.2], np.float32)
    them = peer()
    with config.using(executor=executor):
        close(recurrent(ours, W, X, h, **options), recurrent(them, W, X, h, **options))

        def loss(m: Any) -> Any:
            def f(w: Any, xs: Any, h: Any) -> Any:
                (last, _), ys = recurrent(m, w, xs, h, **options)
                return (last * last).sum() + (ys["h"] ** 2).sum()

            return f

        close(nx.grad(loss(ours), (0, 1, 2))(W, X, h), jax.grad(loss(them), (0, 1, 2))(W, X, h))
        tangents = (W, X, h)
        close(nx.jvp(loss(ours), (W, X, h), tangents), jax.jvp(loss(them), (W, X, h), tangents), rtol=1e-4)


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (None, None, 0), (0, 1, 0)])
def test_vmap_of_any_operand(axes: Any) -> None:
    given = [np.stack([W, 2 * W]), np.stack([X, -X]), np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)]
    given[1] = given[1] if axes[1] != 1 else given[1].T
    args = [g if a is not None else (g[0] if i != 1 else X) for i, (g, a) in enumerate(zip(given, axes, strict=True))]

    def f(m: Any) -> Any:
        return lambda w, xs, h: recurrent(m, w, xs, h)[1]["h"]

    close(nx.vmap(f(ours), axes)(*args), jax.vmap(f(peer()), axes)(*args))
    close(nx.jit(nx.vmap(f(ours), axes))(*args), jax.vmap(f(peer()), axes)(*args))


def test_no_steps_gives_the_carry_and_empty_ys(executor: str) -> None:
    with config.using(executor=executor):
        c, ys = nx.scan(lambda c, x: (c + x, x * 2), np.float32(3), np.zeros((0, 2), np.float32)[:, 0])
    assert float(c) == 3.0
    assert ys.shape == (0,)


def test_trees_and_none_in_carry_and_xs() -> None:
    c, ys = nx.scan(lambda c, x: ({"a": c["a"] + x[0], "b": None}, None), {"a": 0.0, "b": None}, (X, None))
    assert ys is None
    np.testing.assert_allclose(c["a"], X.sum(), rtol=1e-6)


def test_a_weak_carry_takes_the_type_of_the_step() -> None:
    for start in (0, 0.0):
        got = nx.scan(lambda c, x: (c + x, c), start, X)
        close(got, jax.lax.scan(lambda c, x: (c + x, c), start, X))
    got = nx.scan(lambda c, x: (c + x, None), 0, nx.ones(3, "bfloat16"))[0]
    assert got.dtype == nx.bfloat16


HALF = np.float16(1.5)
WEAK: dict[str, Any] = {
    "strong after a step": lambda m: m.lax.while_loop(lambda c: c < 3.0, lambda c: c + np.float32(1), 0.0),
    "weak after a step": lambda m: m.lax.while_loop(lambda c: c < 3.0, lambda c: c + 1, 0.0),
    "beside half precision": lambda m: m.lax.fori_loop(
        0, 2, lambda i, c: (c[0] * 0.5 + np.float32(1), c[0] + c[1]), (0.2, m.numpy.asarray(HALF))
    ),
    "of another dtype after a step": lambda m: m.lax.fori_loop(0, 2, lambda i, c: c * 0.5, 1),
    "narrower after a step": lambda m: m.lax.fori_loop(0, 2, lambda i, c: c + m.numpy.asarray(HALF), 1.0),
    "beside rows": lambda m: m.lax.scan(lambda c, x: (c + x, c * HALF), 0.0, m.numpy.ones(3)),
    "used later": lambda m: m.lax.fori_loop(0, 2, lambda i, c: c + np.float32(1), 0.0) + m.numpy.asarray(HALF),
    "differentiated": lambda m: m.grad(lambda a: m.lax.fori_loop(0, 3, lambda i, c: c * a + np.float32(1), 1.0))(2.0),
}


@pytest.mark.parametrize("name", WEAK)
@pytest.mark.parametrize("jit", [False, True])
def test_weak_carries_are_as_in_jax(name: str, jit: bool) -> None:
    def results(m: Any) -> Any:
        f = lambda: WEAK[name](m)
        return [(str(y.dtype), y.weak_type, np.asarray(y).tolist()) for y in m.tree.leaves((m.jit(f) if jit else f)())]

    assert results(nx) == results(jax)


def test_captured_arrays_and_keys_ride_along() -> None:
    key = nx.random.key(0)

    def step(k: Any, _: Any) -> Any:
        k, sub = nx.random.split(k)
        return k, nx.random.uniform(sub)

    def peer_step(k: Any, _: Any) -> Any:
        k, sub = jax.random.split(k)
        return k, jax.random.uniform(sub)

    close(nx.scan(step, key, None, length=4)[1], jax.lax.scan(peer_step, jax.random.key(0), None, length=4)[1])


def test_the_carry_must_keep_its_type() -> None:
    with pytest.raises(CarryTypeError, match=r"carry\['a'\] is f32\[2\] after a step"):
        nx.scan(lambda c, x: ({"a": nx.stack([c["a"], x])}, None), {"a": np.float32(0)}, X)
    with pytest.raises(CarryTypeError, match=r"carry is f32\[\] after a step(.|\n)*i32\[\]"):
        nx.scan(lambda c, x: (c + x, None), np.int32(0), X)
    with pytest.raises(CarryTypeError, match="structure of the carry"):
        nx.scan(lambda c, x: ((c, c), None), 0.0, X)
    with pytest.raises(TypeError):  # what JAX programs catch
        nx.scan(lambda c, x: (c + x, None), np.int32(0), X)


def test_bad_arguments_are_refused() -> None:
    def step(c: Any, x: Any) -> Any:
        return c, None

    with pytest.raises(ShapeError, match="differ in leading size"):
        nx.scan(step, 0.0, (X, X[:2]))
    with pytest.raises(ShapeError, match="differ from length"):
        nx.scan(step, 0.0, X, length=3)
    with pytest.raises(ShapeError, match="no axis to walk along"):
        nx.scan(step, 0.0, np.float32(1))
    with pytest.raises(ParameterError, match="number of steps is unknown"):
        nx.scan(step, 0.0, None)
    with pytest.raises(TreeError, match="must give a pair"):
        nx.scan(lambda c, x: c, 0.0, X)
    with pytest.raises(ParameterError, match="needs a function"):
        nx.scan(3, 0.0, X)


def test_residuals_that_do_not_change_are_kept_once() -> None:
    def f(w: Any) -> Any:
        return nx.scan(lambda c, x: (c + nx.sin(w) * c * x, None), 1.0, X)[0]

    shapes = [t.shape for t in saved_residuals(f, np.float32(0.5))]
    # The carry is stacked; sin w, cos w and the like are scalars, and xs are not copied under another name.
    assert sum(s == (5,) for s in shapes) <= 3
    assert () in shapes


def test_linear_transpose_with_a_counter_in_the_carry() -> None:
    def f(t: Any) -> Any:
        return nx.fori_loop(0, 3, lambda i, c: c * (i + 1.0), t)

    (got,) = nx.linear_transpose(f, np.float32(1))(np.float32(2))
    assert float(got) == 12.0


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_transpose_beside_a_carry_that_is_known(reverse: bool) -> None:
    """What is not linear runs alone first, in the same direction, and not to the same numbers in the other."""

    def f(module: Any, t: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            known, c = carry
            return (known * 1.5 + x, c * known + t), c * x

        (_, c), ys = module.lax.scan(step, (0.5, t * 2), X, reverse=reverse)
        return c + ys.sum()

    (got,) = nx.linear_transpose(lambda t: f(nx, t), np.float32(1))(np.float32(2))
    close(got, 2 * f(jax, np.float32(1)))
    (pulled,) = jax.linear_transpose(lambda t: f(jax, t), np.float32(1))(np.float32(2))
    close(got, pulled)


def test_scan_prints_and_counts_one_equation() -> None:
    program = nx.make_jaxpr(lambda x: nx.scan(lambda c, s: (c + s, c), x, X))(np.float32(0))
    assert [e.op.name for e in program.equations] == ["scan"]
    assert "length=5" in str(program)
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, s: (c + s, c), x, X))(jnp.float32(0))
    assert [e.primitive.name for e in jaxpr.eqns] == ["scan"]


_STEPS: dict[str, Any] = {
    "carries that are written over": lambda m, c, x: ((0 * m.np.ones_like(c[0]), m.np.ones_like(c[1])), c[0]),
    "results that are constants": lambda m, c, x: ((m.np.zeros_like(c[0]), m.np.ones_like(c[1])), m.np.ones_like(x)),
    "carries that change places": lambda m, c, x: ((c[1], c[0]), c[0] * x),
    "a carry of the slices": lambda m, c, x: ((x, c[0]), c[1]),
    "a carry that is left": lambda m, c, x: ((m.np.sin(c[0]) * x, c[1]), x * c[0]),
}


@pytest.mark.parametrize("length", [0, 1, 2])
@pytest.mark.parametrize("name", _STEPS)
def test_derivatives_of_any_number_of_turns(name: str, length: int) -> None:
    """Against a Python loop. Without a turn, what a body would do to a tangent does not happen."""
    m, step = ours, _STEPS[name]
    args = (nx.numpy.float32(0.3), nx.numpy.float32(0.9), nx.numpy.arange(length, dtype=np.float32) + 1)

    def looped(a: Any, b: Any, xs: Any) -> Any:
        (a, b), ys = nx.lax.scan(lambda c, x: step(m, c, x), (a, b), xs)
        return 2 * a + 3 * b + 5 * ys.sum()

    def unrolled(a: Any, b: Any, xs: Any) -> Any:
        total = 0.0
        for i in range(length):
            (a, b), y = step(m, (a, b), xs[i])
            total = total + y
        return 2 * a + 3 * b + 5 * total + 0 * xs.sum()

    ones = tuple(map(nx.numpy.ones_like, args))
    for derivative in (
        lambda f: nx.grad(f, (0, 1, 2))(*args),
        lambda f: nx.jvp(f, args, ones)[1],
        lambda f: nx.linearize(f, *args)[1](*ones),
        lambda f: nx.grad(lambda *xs: nx.grad(f)(*xs) ** 2, (0, 1))(*args),
        lambda f: nx.jit(nx.grad(f, (0, 1)))(*args),
    ):
        for found, wanted in zip(nx.tree.leaves(derivative(looped)), nx.tree.leaves(derivative(unrolled)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_derivative_of_a_loop_whose_results_do_not_depend_on_what_its_body_computes() -> None:
    """The body's known half keeps values that only unused equations of the other half read."""
    x = nx.numpy.arange(6.0).reshape(2, 3)

    def f(a: Any) -> Any:
        def row(r: Any) -> Any:
            nx.numpy.sum(r, 0, where=r > 0)
            return x[0]

        def step(c: Any, _: Any) -> Any:
            return c * 0.5, nx.lax.map(row, c)

        return nx.lax.scan(step, a, None, length=3)[0].sum()

    np.testing.assert_allclose(nx.grad(f)(x), np.full((2, 3), 0.125))
