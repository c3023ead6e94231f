"""Whole programs in half precision give the numbers of half precision, and stay finite."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import LoweringError
from nxjax.lower.ipu.precision import in_half

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def run(program, *args):
    return [y.numpy() for y in program(*map(nx.asarray, args))]


def half_types(program) -> bool:
    found = [v.type.dtype for e in program.equations for v in e.outputs]
    inner = all(half_types(p) for e in program.equations for p in e.programs())
    return np.dtype("float32") not in found and inner


def mlp(w, x):
    return nx.nn.softmax(nx.tanh(x @ w) + nx.where(nx.arange(6) < 3, 0.0, -1e9))


def looped(w, x):
    return nx.lax.scan(lambda c, row: (nx.tanh(c @ w + row), c.sum()), nx.zeros(6), x)[0]


def branched(w, x):
    return nx.lax.cond(x.sum() > 0, lambda a: a @ w, lambda a: a * 2.0, x)


def while_loop(w, x):
    return nx.lax.while_loop(lambda c: c.sum() < 100.0, lambda c: nx.abs(c) * 2 + 1, x)


@pytest.mark.parametrize("f", [mlp, looped, branched, while_loop, nx.grad(lambda w, x: mlp(w, x)[:, 0].sum())])
def test_every_value_is_a_half(f):
    w = np.eye(6, dtype=np.float32) * 0.5
    program = in_half(nx.make_jaxpr(f)(w, X))
    assert half_types(program)
    assert {t.dtype for t in program.in_types} == {np.dtype("float16")}
    for got, want in zip(
        run(program, w.astype(np.float16), X.astype(np.float16)), nx.tree.leaves(f(w, X)), strict=True
    ):
        assert got.dtype == np.float16 and np.isfinite(got).all()
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=0.02, atol=0.02)


def test_random_bits_are_those_of_float32():
    f = lambda key: nx.random.uniform(key, (5,))
    key = nx.random.key(3)
    (got,) = in_half(nx.make_jaxpr(f)(key))(key)
    np.testing.assert_allclose(got.numpy(), np.asarray(f(key)), atol=1e-3)


def test_what_keeps_a_division_from_zero_still_does():
    f = lambda x: x / (nx.sqrt(x * x) + 1e-8)
    (got,) = run(in_half(nx.make_jaxpr(f)(X)), np.zeros_like(X, np.float16))
    assert (got == 0).all()


def test_quantized_programs_are_refused():
    q = nx.quantize(lambda x: x @ np.ones((6, 3), np.float32), "int8", calibrate=[(X,)])
    with pytest.raises(LoweringError, match="half precision"):
        in_half(nx.make_jaxpr(q)(X))
