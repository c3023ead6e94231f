"""`custom_jvp`: the rule is used under every transform, and wrong rules are refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, GradientError, ParameterError, TreeError
from tests.faces import close, ours, peer

X = np.array([0.3, 0.9, 1.2], np.float32)


def marked(m: Any) -> Any:
    """sin(x) * y with a rule that is not its derivative, so that using the rule shows."""

    @m.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return m.np.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), tx * x * y + ty

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
    close(nx.jvp(f, (x, y), (y, x)), jax.jvp(g, (x, y), (y, x)))
    close(nx.grad(nx.grad(f))(x, y), jax.grad(jax.grad(g))(x, y))
    close(nx.vmap(f, axes)(*args), jax.vmap(g, axes)(*args))
    expected = jax.grad(lambda *a: jax.vmap(g, axes)(*a).sum(), (0, 1))(*args)
    close(nx.grad(lambda *a: nx.vmap(f, axes)(*a).sum(), (0, 1))(*args), expected)
    close(nx.grad(lambda *a: nx.jit(nx.vmap(f, axes))(*a).sum(), (0, 1))(*args), expected)
    close(nx.vmap(nx.grad(f, (0, 1)), axes)(*args), jax.vmap(jax.grad(g, (0, 1)), axes)(*args))


def test_a_loop_uses_the_rule() -> None:
    f = marked(ours)
    got = nx.grad(lambda x: nx.scan(lambda c, _: (f(c, X[1]), None), x, None, length=3)[0])(X[0])
    g = marked(peer())
    close(got, jax.grad(lambda x: g(g(g(x, X[1]), X[1]), X[1]))(X[0]))


def test_trees_nondiff_arguments_keywords_and_defjvps() -> None:
    @nx.custom_jvp
    def f(x: Any, p: Any) -> Any:
        return {"out": x * p["w"], "n": p["i"]}

    f.defjvps(lambda t, out, x, p: {"out": 3.0 * t, "n": None}, None)
    y, t = nx.jvp(lambda x: f(x, p={"w": 2.0, "i": 1}), (1.0,), (1.0,))
    assert (float(y["out"]), float(t["out"])) == (2.0, 3.0)

    def apply(g: Any, x: Any, n: int) -> Any:
        return g(x) * n

    for wrapped in (nx.custom_jvp(apply, nondiff_argnums=(0, 2)), nx.custom_jvp(apply, nondiff_argnames=("g", "n"))):
        wrapped.defjvp(lambda g, n, primals, tangents: (g(primals[0]) * n, 100.0 * tangents[0]))
        assert float(nx.grad(lambda x: wrapped(nx.sin, x, 2))(1.0)) == 100.0  # noqa: B023
        assert float(nx.jit(lambda x: wrapped(nx.sin, x, n=2))(0.0)) == 0.0  # noqa: B023


def test_methods_and_eager_calls() -> None:
    class Model:
        @nx.custom_jvp
        def f(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(ParameterError, match="has no rule"):
        Model().f(1.0)
    calls: list[Any] = []

    @nx.custom_jvp
    def f(x: Any) -> Any:
        calls.append(x)
        return x

    f.defjvp(lambda p, t: (f(*p), t[0]))
    f(nx.float32(1))
    assert isinstance(calls[0], nx.Array)
    assert float(calls[0]) == 1.0  # an eager call is not traced


def test_the_call_prints_as_one_equation() -> None:
    f = marked(ours)
    program = nx.make_jaxpr(f)(X[0], X[1])
    assert [e.op.name for e in program.equations] == ["custom_jvp_call"]
    assert "rule=<jvp of f>" in str(program)


def test_wrong_rules_are_refused() -> None:
    def with_rule(rule: Any) -> Any:
        f = nx.custom_jvp(lambda x: x * 2)
        f.defjvp(rule)
        return nx.grad(f)

    with pytest.raises(TreeError, match="must give a pair"):
        with_rule(lambda p, t: t[0])(1.0)
    with pytest.raises(DtypeError, match="tangent of another type"):
        with_rule(lambda p, t: (p[0], nx.zeros(3)))(1.0)
    with pytest.raises(DtypeError, match="other results than the function"):
        with_rule(lambda p, t: (nx.zeros(3), nx.zeros(3)))(1.0)
    with pytest.raises(TreeError, match="tangents that the rule"):
        with_rule(lambda p, t: (p[0], (t[0], t[0])))(1.0)
    f = nx.custom_jvp(lambda x, *, k: x)
    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(ParameterError, match="keyword-only"):
        f(1.0, k=2)


def test_closing_over_a_differentiated_value_is_refused() -> None:
    def loss(a: Any) -> Any:
        f = nx.custom_jvp(lambda x: a * x)
        f.defjvp(lambda p, t: (f(*p), t[0]))
        return f(2.0)

    with pytest.raises(GradientError, match="closes over a value that is being differentiated"):
        nx.grad(loss)(1.0)


@pytest.mark.parametrize("name", ["sin", "igamma", "igammac", "betainc"])
def test_a_rule_that_is_not_linear_says_so(name: str) -> None:
    """The functions of several recurrences are ops like others."""
    call = {"sin": nx.sin, "betainc": lambda t: nx.lax.betainc(1.0, 2.0, t)}
    g = call.get(name, lambda t: getattr(nx.lax, name)(1.0, t))
    f = nx.custom_jvp(lambda x: x * x)
    f.defjvp(lambda p, t: (p[0] * p[0], nx.jit(lambda x, t: 2 * x * t + 0 * g(t))(p[0], t[0])))
    assert nx.linearize(f, 0.75)[1](0.5) == 0.75
    with pytest.raises(GradientError, match="has no reverse-mode derivative"):
        nx.grad(f)(0.75)


def test_a_linear_call_is_transposed_beside_known_operands() -> None:
    """By what it computes; known operands keep their places."""
    f = nx.custom_jvp(lambda c, x, d: c * x - d)
    f.defjvp(lambda primals, tangents: (f(*primals), 0 * tangents[1]))
    c, d = nx.asarray(X + 1), nx.asarray(X * 0)
    (ct,) = nx.linear_transpose(lambda x: f(c, x, d), nx.asarray(X))(nx.asarray(X))
    close(ct, (X + 1) * X)


def test_an_interpreter_may_bind_a_call_again_or_call_its_function():
    f = nx.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (f(*primals), 3.0 * tangents[0]))
    (call,) = nx.make_jaxpr(f)(2.0).eqns
    given = call.primitive.get_bind_params(call.params)
    assert float(call.primitive.bind(2.0, **given)[0]) == float(given["subfuns"][0].call_wrapped(nx.array(2.0))[0]) == 4
    assert float(nx.grad(lambda x: call.primitive.bind(x, **given)[0])(2.0)) == 3


@pytest.mark.parametrize("how", [lambda f: f, nx.jit])
def test_a_derivative_may_vary_where_the_result_does_not(how):
    @nx.custom_jvp
    def f(x, y):
        return x * 1.0

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * primals[1]))
    y = nx.asarray([1.0, 2.0, 3.0])
    once = lambda x: nx.vmap(lambda y: f(x, y) * y)(y)
    assert how(nx.jacfwd(once))(2.0).tolist() == [1.0, 4.0, 9.0]
    assert how(nx.grad(lambda x: once(x).sum()))(2.0) == 14.0
    assert how(nx.grad(lambda x: nx.vmap(lambda z: once(x) * z)(y).sum()))(2.0) == 84.0
