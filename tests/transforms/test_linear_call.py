"""`linear_call`: the user's transpose is the transpose, and its transpose is the function."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.custom_derivatives import linear_call


def scaled(x, r):
    return x + linear_call(lambda r, x: x / r, lambda r, ct: 2 * ct / r, r, x)


def transpose(f):
    return lambda y: nx.linear_transpose(f, 1.0)(y)[0]


def test_transposes_alternate():
    def f(x):
        return linear_call(lambda _, x: x, lambda _, ct: 7.0, (), x)

    found = []
    for _ in range(4):
        found.append(float(f(1.0)))
        f = transpose(f)
    assert found == [1, 7, 1, 7]


def test_under_transforms():
    f = lambda x: scaled(x, 4.0)
    assert float(f(8.0)) == 10 == float(nx.jit(f)(8.0)) and float(transpose(f)(8.0)) == 12
    assert [float(v) for v in nx.jvp(f, (8.0,), (4.0,))] == [10, 5]
    for wrap in (lambda g: g, nx.jit):
        np.testing.assert_allclose(wrap(nx.grad(wrap(lambda x: jnp.sin(f(x)))))(2.0), 1.5 * np.cos(2.5), rtol=1e-6)
    assert nx.vmap(f)(jnp.array([4.0, 8.0])).tolist() == [5, 10]
    both = nx.vmap(nx.grad(scaled), (None, 0))(8.0, jnp.array([1.0, 2.0]))
    assert (
        both.tolist()
        == [3, 2]
        == nx.grad(lambda x: nx.vmap(scaled, (0, 0))(x, jnp.array([1.0, 2.0])).sum())(jnp.ones(2)).tolist()
    )


def test_trees_and_errors():
    f = lambda x: linear_call(lambda r, x: (x["a"] * r,), lambda r, ct: {"a": 5 * ct[0] * r}, 2.0, x)
    assert nx.linear_transpose(f, {"a": 1.0})((3.0,))[0]["a"].tolist() == 30
    with pytest.raises(TypeError):
        nx.grad(lambda r: scaled(1.0, r))(3.0)
    with pytest.raises(TypeError):
        transpose(lambda x: linear_call(lambda r, x: x, lambda r, ct: (ct, ct), 2.0, x))(3.0)
