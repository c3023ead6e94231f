"""`jacfwd`, `jacrev` and `hessian` against JAX: trees, argnums, aux, complex, errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import GradientError, ParameterError
from tests.faces import close

X = np.array([0.3, 0.9, 1.2], np.float32)
M = np.array([[0.5, -1.0], [2.0, 0.1]], np.float32)
PAIRS = ((nx.jacfwd, jax.jacfwd), (nx.jacrev, jax.jacrev))


def f(m: Any) -> Any:
    return lambda x, p: {"a": m.sin(x)[:, None] * p["w"].sum(), "b": (x * x).sum(), "c": p["w"] * x[0]}


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1,), -1])
def test_trees_in_and_out(argnums: Any) -> None:
    for mine, theirs in PAIRS:
        expected = theirs(f(jnp), argnums)(X, {"w": M})
        close(mine(f(nx.numpy), argnums)(X, {"w": M}), expected)
        close(nx.jit(mine(f(nx.numpy), argnums))(X, {"w": M}), expected)


def test_aux_scalars_and_results_that_do_not_vary() -> None:
    for mine, theirs in PAIRS:
        got, aux = mine(lambda x: (nx.sin(x), {"n": 3}), has_aux=True)(X)
        close(got, theirs(lambda x: jnp.sin(x))(X))
        assert aux == {"n": 3}
        assert float(mine(lambda x: x * x)(2.0)) == 4.0
        assert mine(lambda x: nx.ones(2))(X).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_hessian() -> None:
    close(
        nx.hessian(lambda x, y: (nx.sin(x) * y**3).sum(), (0, 1))(X, X + 1),
        jax.hessian(lambda x, y: (jnp.sin(x) * y**3).sum(), (0, 1))(X, X + 1),
        1e-4,
    )
    close(nx.vmap(nx.hessian(lambda x: nx.sin(x) ** 2))(X), jax.vmap(jax.hessian(lambda x: jnp.sin(x) ** 2))(X))


def test_real_results_of_complex_inputs() -> None:
    z = np.array([3.0 + 4.0j, 1.0j], np.complex64)
    got = np.asarray(nx.jacrev(lambda z: nx.numpy.abs(z) ** 2)(z))
    np.testing.assert_allclose(got, np.diag(2 * z.conj()), rtol=1e-6)


def test_holomorphic() -> None:
    z = np.array([1.0 + 2.0j, -0.5 + 0.1j], np.complex64)
    for mine, theirs in PAIRS:
        got = mine(lambda z: nx.sin(z) * z, holomorphic=True)(z)
        close(got, theirs(lambda z: jnp.sin(z) * z, holomorphic=True)(z))


def test_errors() -> None:
    for mine, _ in PAIRS:
        with pytest.raises(GradientError, match="must be real and float"):
            mine(lambda x: x * 2)(np.array([1, 2]))
        with pytest.raises(GradientError, match="must be complex"):
            mine(lambda x: x * 2, holomorphic=True)(X)
        with pytest.raises(ParameterError, match="argnums names no positional argument"):
            mine(lambda x: x, 2)(X)
    with pytest.raises(GradientError, match="result must be real and float"):
        nx.jacrev(lambda x: x.astype(int))(X)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), [1, 0, 1]])
@pytest.mark.parametrize("transform", [nx.grad, nx.value_and_grad, nx.jacfwd, nx.jacrev, nx.hessian])
def test_an_argument_is_named_once(transform: Any, argnums: Any) -> None:
    with pytest.raises(ParameterError, match="twice"):
        transform(lambda x, y: x * y, argnums)(2.0, 3.0)
