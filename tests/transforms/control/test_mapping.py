"""`map` and `associative_scan`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import AxisError, ParameterError, ShapeError
from tests.faces import close

X = np.linspace(0.5, 1.5, 13).astype(np.float32)


@pytest.mark.parametrize("batch_size", [None, 1, 4, 13, 20])
def test_map(batch_size):
    close(lax.map(lambda a: {"y": nx.sin(a)}, X, batch_size=batch_size), {"y": jnp.sin(X)})


def test_map_refuses_what_it_cannot_walk():
    with pytest.raises(ParameterError, match="batch_size"):
        lax.map(lambda x: x, X, batch_size=0)
    with pytest.raises(ShapeError):
        lax.map(lambda x: x, (X, X[:2]), batch_size=2)


@pytest.mark.parametrize("n", range(1, 14))
def test_associative_scan_of_any_length(n):
    close(lax.associative_scan(nx.multiply, X[:n]), jax.lax.associative_scan(jnp.multiply, X[:n]))
    close(
        lax.associative_scan(nx.multiply, X[:n], reverse=True),
        jax.lax.associative_scan(jnp.multiply, X[:n], reverse=True),
    )


def test_associative_scan_of_trees_along_an_axis_with_gradient():
    m = np.random.RandomState(0).rand(2, 5, 2, 2).astype(np.float32)
    close(
        lax.associative_scan(lambda a, b: {"m": nx.matmul(b["m"], a["m"])}, {"m": m}, axis=1),
        jax.lax.associative_scan(lambda a, b: {"m": jnp.matmul(b["m"], a["m"])}, {"m": m}, axis=1),
    )
    close(
        nx.grad(lambda m: lax.associative_scan(nx.matmul, m, axis=1).sum())(m),
        jax.grad(lambda m: jax.lax.associative_scan(jnp.matmul, m, axis=1).sum())(m),
        rtol=1e-4,
    )


def test_associative_scan_errors():
    with pytest.raises(AxisError):
        lax.associative_scan(nx.add, np.float32(1))
    with pytest.raises(ShapeError):
        lax.associative_scan(lambda a, b: a, (X, X[:3]))
    with pytest.raises(ParameterError):
        lax.associative_scan(3, X)
