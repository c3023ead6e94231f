"""Rules that ask for it see which tangents and cotangents are zero."""

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.custom_derivatives import CustomVJPPrimal, SymbolicZero, custom_vjp_primal_tree_values, zero_from_primal


def is_zero(t):
    return isinstance(t, SymbolicZero)


def test_forward_rules():
    seen = []

    @nx.custom_jvp
    def f(x, y):
        return x * y

    def rule(primals, tangents):
        seen.append([is_zero(t) for t in tangents])
        assert all(t.shape == () and t.dtype == "float32" for t in tangents)
        x, y = primals
        tx, ty = (0.0 if is_zero(t) else t for t in tangents)
        return f(x, y), tx * y + x * ty

    f.defjvp(rule, symbolic_zeros=True)
    assert float(nx.grad(f, 1)(2.0, 3.0)) == 2 and float(nx.jit(nx.grad(f))(2.0, 3.0)) == 3
    assert seen == [[True, False], [False, True]]
    f.defjvp(lambda xs, ts: (f(*xs), zero_from_primal(xs[0], symbolic_zeros=True)), symbolic_zeros=True)
    assert float(nx.grad(f)(2.0, 3.0)) == 0


def test_reverse_rules():
    seen = []

    @nx.custom_vjp
    def f(x, y):
        return x * y, x + y

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        values = custom_vjp_primal_tree_values((x, y))
        return f(*values), values

    def bwd(values, cts):
        seen.append([is_zero(ct) for ct in cts])
        a, b = (0.0 if is_zero(ct) else ct for ct in cts)
        return a * values[1] + b, zero_from_primal(values[1], symbolic_zeros=True)

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    assert float(nx.grad(lambda x: f(x, 3.0)[0])(2.0)) == 3
    assert seen == [(True, False), [False, True]]
    assert float(nx.jit(nx.grad(lambda y: f(2.0, y)[1]))(3.0)) == 0 and seen[2:] == [(False, True), [True, False]]
    assert nx.vmap(nx.grad(lambda x: f(x, 3.0)[1]))(jnp.ones(2)).tolist() == [1, 1]


def test_values():
    assert zero_from_primal({"a": jnp.ones(2)})["a"].tolist() == [0, 0] and zero_from_primal(1).dtype == nx.float0
    assert custom_vjp_primal_tree_values([CustomVJPPrimal(1.0)]) == [1.0]
    with pytest.raises(TypeError):
        custom_vjp_primal_tree_values([1.0])
