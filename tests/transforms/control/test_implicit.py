"""`custom_linear_solve` and `custom_root`: derivatives come from the equation, under every transform."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError
from tests.faces import close, ours, peer

A = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.0, 0.3, 1.8]], np.float32)
B = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], np.float32)


def solved(m: Any, a: Any, b: Any, symmetric: bool) -> Any:
    def iterate(matvec: Any, b: Any) -> Any:
        # Richardson's iteration, in a loop that has no reverse-mode derivative of its own.
        return m.lax.while_loop(
            lambda c: c[0] < 200, lambda c: (c[0] + 1, c[1] + 0.4 * (b - matvec(c[1]))), (0, b * 0)
        )[1]

    a = (a + a.T) / 2 if symmetric else a
    rest = () if symmetric else (iterate,)
    return m.lax.custom_linear_solve(lambda x: m.np.dot(a, x), b, iterate, *rest, symmetric=symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
def test_linear_solve(symmetric: bool) -> None:
    def f(m: Any) -> Any:
        return lambda a, b: (solved(m, a, b, symmetric) ** 2).sum()

    mine, theirs = f(ours), f(peer())
    close(mine(A, B[0]), theirs(A, B[0]), 1e-4)
    expected = jax.grad(theirs, (0, 1))(A, B[0])
    close(nx.grad(mine, (0, 1))(A, B[0]), expected, 1e-3, 1e-5)
    close(nx.jit(nx.grad(mine, (0, 1)))(A, B[0]), expected, 1e-3, 1e-5)
    close(nx.jvp(mine, (A, B[0]), (A, B[1])), jax.jvp(theirs, (A, B[0]), (A, B[1])), 1e-3, 1e-5)
    rows = nx.vmap(nx.grad(mine, (0, 1)), (None, 0))(A, B)
    close(rows, jax.vmap(jax.grad(theirs, (0, 1)), (None, 0))(A, B), 1e-3, 1e-5)


def test_linear_solve_needs_a_transposed_solver_for_reverse_mode() -> None:
    def f(b: Any) -> Any:
        return nx.lax.custom_linear_solve(lambda x: 2.0 * x, b, lambda mv, b: b / 2.0)

    assert float(nx.jvp(f, (4.0,), (1.0,))[1]) == 0.5
    with pytest.raises(ParameterError, match="transpose_solve"):
        nx.grad(f)(4.0)


def root(m: Any, a: Any) -> Any:
    def newton(f: Any, x: Any) -> Any:
        return m.lax.while_loop(lambda c: c[0] < 30, lambda c: (c[0] + 1, c[1] - f(c[1]) / (3 * c[1] ** 2)), (0, x))[1]

    return m.lax.custom_root(lambda x: x**3 - a, a * 0 + 1, newton, lambda g, y: y / g(1.0))


def test_root() -> None:
    a = np.array([1.0, 3.0, 8.0], np.float32)
    mine, theirs = (lambda a: root(ours, a)), (lambda a: root(peer(), a))
    close(nx.vmap(mine)(a), jax.vmap(theirs)(a), 1e-4)
    expected = jax.vmap(jax.grad(theirs))(a)
    close(nx.vmap(nx.grad(mine))(a), expected, 1e-4)
    close(nx.grad(lambda a: nx.vmap(mine)(a).sum())(a), expected, 1e-4)
    close(nx.grad(lambda a: nx.jit(nx.vmap(mine))(a).sum())(a), expected, 1e-4)
    close(nx.grad(nx.grad(mine))(a[1]), jax.grad(jax.grad(theirs))(a[1]), 1e-3)
