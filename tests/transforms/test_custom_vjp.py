"""`custom_vjp`, `custom_gradient` and `closure_convert`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import GradientError, ParameterError, ShapeError, TreeError
from tests.faces import close, ours, peer

X = np.array([0.3, 0.9, 1.2], np.float32)


def marked(m: Any) -> Any:
    @m.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return m.np.sin(x) * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * r[0] * r[1], ct * r[0] * r[0]))
    return f


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_every_transform_uses_the_rule(axes: Any) -> None:
    f, g = marked(ours), marked(peer())
    args = [X if a == 0 else X[i] for i, a in enumerate(axes)]
    x, y = X[0], X[1]
    expected = jax.grad(g, (0, 1))(x, y)
    for h in (
        nx.grad(f, (0, 1)),
        nx.grad(nx.jit(f), (0, 1)),
        nx.jit(nx.grad(f, (0, 1))),
        nx.grad(nx.checkpoint(f), (0, 1)),
    ):
        close(h(x, y), expected)
    close(nx.grad(nx.grad(f))(x, y), jax.grad(jax.grad(g))(x, y))
    close(nx.vmap(f, axes)(*args), jax.vmap(g, axes)(*args))
    expected = jax.grad(lambda *a: jax.vmap(g, axes)(*a).sum(), (0, 1))(*args)
    close(nx.grad(lambda *a: nx.vmap(f, axes)(*a).sum(), (0, 1))(*args), expected)
    close(nx.grad(lambda *a: nx.jit(nx.vmap(f, axes))(*a).sum(), (0, 1))(*args), expected)
    close(nx.vmap(nx.grad(f, (0, 1)), axes)(*args), jax.vmap(jax.grad(g, (0, 1)), axes)(*args))


def test_a_loop_uses_the_rule() -> None:
    f, g = marked(ours), marked(peer())
    got = nx.grad(lambda x: nx.scan(lambda c, _: (f(c, X[1]), None), x, None, length=3)[0])(X[0])
    close(got, jax.grad(lambda x: g(g(g(x, X[1]), X[1]), X[1]))(X[0]))


def test_forward_mode_is_refused_with_a_reason() -> None:
    with pytest.raises(GradientError, match="reverse-mode rule only"):
        nx.jvp(marked(ours), (X[0], X[1]), (X[0], X[1]))
    with pytest.raises(GradientError, match="reverse-mode rule only"):
        nx.jit(lambda x: nx.jvp(marked(ours), (x, x), (x, x)))(X[0])


def test_an_argument_that_all_elements_share_collects_all_cotangents() -> None:
    @nx.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (f(x, y), None), lambda _, ct: (1.0, ct))
    gx, _ = nx.grad(lambda x, y: nx.vmap(f, (None, 0))(x, y).sum(), (0, 1))(2.0, X)
    assert float(gx) == 3.0


def test_none_cotangents_trees_integers_and_nondiff_arguments() -> None:
    @nx.custom_vjp
    def f(p: Any, i: Any, x: Any) -> Any:
        return (p["a"] * x).sum() * i

    f.defvjp(lambda p, i, x: (f(p, i, x), x), lambda x, ct: (None, None, 7.0 * ct * x))
    gp, gx = nx.grad(f, (0, 2))({"a": X, "b": X}, 2, X)
    assert gp["a"].tolist() == [0, 0, 0]
    close(gx, 7.0 * X)

    def scaled(n: int, x: Any) -> Any:
        return x * n

    for g in (nx.custom_vjp(scaled, nondiff_argnums=(0,)), nx.custom_vjp(scaled, nondiff_argnames=("n",))):
        g.defvjp(lambda n, x: (x * n, None), lambda n, _, ct: (ct * n * 10,))
        assert float(nx.grad(lambda x: g(3, x))(1.0)) == 30.0  # noqa: B023
        assert float(nx.grad(nx.jit(lambda x: g(n=3, x=x)))(1.0)) == 30.0  # noqa: B023


@pytest.mark.parametrize(
    "way", ["plain", "jit", "scan", "cond", "checkpoint", "vmap", "stopped", "unused", "one of two"]
)
def test_a_rule_is_asked_for_zero_cotangents_where_the_result_is_used(way: str) -> None:
    def slopes(m: Any) -> list[float]:
        f = m.custom_vjp(lambda x, s: x * 1)
        f.defvjp(lambda x, s: (x * 1, s), lambda s, ct: (ct, s + 7))  # a "cotangent" that is no derivative
        g = m.custom_vjp(lambda x: x * 2)
        g.defvjp(lambda x: (x * 2, None), lambda r, ct: (None,))

        def both(x: Any, s: Any) -> Any:
            return g(f(x, s))

        ways = {
            "plain": both,
            "jit": m.jit(both),
            "scan": lambda x, s: m.lax.scan(lambda c, _: (c + x, both(c, s)), x, None, length=2)[1].sum(),
            "cond": lambda x, s: m.lax.cond(x > 0, both, lambda x, s: x, x, s),
            "checkpoint": m.checkpoint(both),
            "vmap": lambda x, s: m.vmap(both)(x[None], s[None])[0],
            "stopped": lambda x, s: m.lax.stop_gradient(f(x, s)) * x,
            "unused": lambda x, s: (f(x, s), x)[1],
            "one of two": lambda x, s: m.jit(lambda x, s: (f(x, s), x))(x, s)[1],
        }
        grad = m.grad(ways[way], (0, 1))
        return [float(v) for h in (grad, m.jit(grad)) for v in h(m.np.float32(1), m.np.float32(1))]

    assert slopes(ours) == slopes(peer())


def test_symbolic_zeros_give_values_with_a_flag() -> None:
    f = nx.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x.value * 2, x.perturbed), lambda perturbed, ct: (5.0 * ct,), symbolic_zeros=True)
    assert float(nx.grad(f)(1.0)) == 5.0


def test_cotangents_of_another_float_are_rounded() -> None:
    f = nx.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda r, ct: (ct.astype("float32") * 3,))
    got = nx.grad(lambda x: f(x * 2).sum())(nx.ones(2, "bfloat16"))
    assert got.dtype == "bfloat16" and got.tolist() == [6.0, 6.0]


def test_wrong_rules_are_refused() -> None:
    def with_rule(fwd: Any, bwd: Any) -> Any:
        f = nx.custom_vjp(lambda x: x * 2)
        f.defvjp(fwd, bwd)
        return nx.grad(f)

    with pytest.raises(TreeError, match="fwd of <lambda> must give a pair"):
        with_rule(lambda x: x, lambda r, ct: (ct,))(1.0)
    with pytest.raises(TreeError, match="one cotangent per argument"):
        with_rule(lambda x: (x, None), lambda r, ct: ct)(1.0)
    with pytest.raises(ShapeError, match="cotangent of another type"):
        with_rule(lambda x: (x, None), lambda r, ct: (nx.zeros(3),))(1.0)
    with pytest.raises(TreeError, match="differ in structure"):
        with_rule(lambda x: (x, None), lambda r, ct: ((ct, ct),))(1.0)
    with pytest.raises(ParameterError, match="has no rule"):
        nx.custom_vjp(lambda x: x)(1.0)
    with pytest.raises(ParameterError, match="two functions"):
        nx.custom_vjp(lambda x: x).defvjp(1, 2)


def test_a_number_as_cotangent_has_the_digits_of_its_argument() -> None:
    f = nx.custom_vjp(lambda x: x)
    number = 1 + 2.0**-11 + 2.0**-40  # rounded to float32 first, it would be half way between two of float16
    f.defvjp(lambda x: (x, None), lambda _, ct: (number,))
    with nx.enable_x64():
        for dtype in (np.float64, np.float32, np.float16):
            assert nx.grad(f)(nx.numpy.asarray(1, dtype)).numpy() == dtype(number)


def test_custom_gradient() -> None:
    @nx.custom_gradient
    def f(x: Any) -> Any:
        return x * x, lambda ct: ct * nx.sin(x)

    expected = np.sin(X)
    close(nx.grad(f)(X[0]), expected[0])
    close(nx.grad(nx.jit(f))(X[0]), expected[0])
    close(nx.vmap(nx.grad(f))(X), expected)
    close(nx.grad(lambda x: nx.vmap(f)(x).sum())(X), expected)


def test_closure_convert_finds_what_is_differentiated() -> None:
    def loss(a: Any, x: Any) -> Any:
        converted, consts = nx.closure_convert(lambda y: a * y, x)
        assert len(consts) == 1

        @nx.custom_vjp
        def call(y: Any, *cs: Any) -> Any:
            return converted(y, *cs)

        call.defvjp(lambda y, *cs: (call(y, *cs), (y, cs)), lambda r, ct: (ct, 10.0 * ct * r[0]))
        return call(x, *consts)

    assert float(nx.grad(loss)(2.0, 3.0)) == 30.0


def test_residuals_that_are_numbers_of_python_stay():
    @nx.custom_vjp
    def f(x, scale):
        return x * scale

    kinds = []

    def bwd(residuals, ct):
        flag, n, half, x = residuals
        kinds.append((type(flag), type(n), type(half)))
        return (ct * half * n if flag else ct), nx.numpy.sum(ct * x)

    f.defvjp(lambda x, scale: (x * scale, (True, 4, 0.5, x)), bwd)
    x = nx.numpy.arange(3.0)
    for g in (nx.grad(lambda x: f(x, 2.0).sum()), nx.jit(nx.grad(lambda x: nx.vmap(f, (0, None))(x, 2.0).sum()))):
        np.testing.assert_array_equal(g(x), [2, 2, 2])
    assert set(kinds) == {(bool, int, float)}


@pytest.mark.parametrize("how", [lambda f: f, nx.jit])
def test_a_gradient_may_vary_where_the_result_does_not(how):
    @nx.custom_vjp
    def f(x, y):
        return x * 1.0

    f.defvjp(lambda x, y: (x * 1.0, y), lambda y, ct: (ct * y, ct * 0))
    y = nx.asarray([1.0, 2.0, 3.0])
    assert how(nx.grad(lambda x: nx.vmap(lambda y: f(x, y) * y)(y).sum()))(2.0) == 14.0
