"""minimize finds the minima of known functions, also where jax.scipy.optimize in float32 stops before them."""

import jax.scipy.optimize
import numpy as np
import pytest

import nxjax as nx
from nxjax.scipy.optimize import minimize


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


@pytest.mark.parametrize(
    ("f", "x0", "want"),
    [(rosenbrock, [-1.0, 2.0], [1, 1]), (rosenbrock, [0.5] * 4, [1] * 4), (himmelblau, [1.0, 1.0], [3, 2])],
)
def test_minima(f, x0, want):
    start = np.array(x0, np.float32)
    got = minimize(f, start, method="BFGS", tol=1e-3)
    np.testing.assert_allclose(np.asarray(got.x), want, atol=1e-2)
    assert bool(got.success)
    assert int(got.status) == 0
    assert float(abs(got.jac).max()) < 1e-3
    compiled = nx.jit(lambda x: minimize(f, x, method="BFGS", tol=1e-3).x)(start)
    np.testing.assert_allclose(np.asarray(compiled), want, atol=1e-2)


def test_agrees_with_jax():
    start = np.ones(2, np.float32)
    got, want = (
        minimize(himmelblau, start, method="BFGS"),
        jax.scipy.optimize.minimize(himmelblau, start, method="BFGS"),
    )
    np.testing.assert_allclose(np.asarray(got.x), np.asarray(want.x), atol=1e-3)
    assert got._fields == want._fields[: len(got._fields)]


def test_arguments_and_limits():
    r = minimize(lambda x, a: ((x - a) ** 2).sum(), np.zeros(3, np.float32), (2.0,), method="BFGS")
    np.testing.assert_allclose(np.asarray(r.x), 2.0, atol=1e-4)
    short = minimize(rosenbrock, np.array([-1.0, 2.0], np.float32), method="BFGS", options={"maxiter": 2})
    assert (int(short.nit), int(short.status), bool(short.success)) == (2, 1, False)
    with pytest.raises(nx.errors.ParameterError, match="method"):
        minimize(rosenbrock, np.zeros(2), method="Newton")
    with pytest.raises(nx.errors.ParameterError, match="options"):
        minimize(rosenbrock, np.zeros(2), method="BFGS", options={"speed": 1})
    with pytest.raises(nx.errors.ShapeError, match="vector"):
        minimize(rosenbrock, np.zeros((2, 2)), method="BFGS")
