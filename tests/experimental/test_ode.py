"""`odeint`: values against SciPy, derivatives against JAX, the order of the polynomial, transforms, bad calls."""

import jax
import jax.numpy as jaxnp
import numpy as np
import pytest
import scipy.integrate
from jax.experimental.ode import odeint as jax_odeint

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import errors
from nxjax.experimental.ode import odeint

TIMES = np.linspace(0.0, 4.0, 9)


def pendulum(m):
    def slope(y, t, friction, force):
        return {"angle": y["speed"], "speed": -friction * y["speed"] - force["g"] * m.sin(y["angle"]) + m.cos(t)}

    return slope


START = {"angle": np.float64(2.0), "speed": np.float64(0.0)}
FRICTION, FORCE = np.float64(0.25), {"g": np.float64(2.0)}


def test_values_are_scipys():
    found = odeint(pendulum(jnp), START, TIMES.astype(np.float64), FRICTION, FORCE)
    with nx.enable_x64():
        exact = odeint(pendulum(jnp), START, TIMES, FRICTION, FORCE, rtol=1e-12, atol=1e-12)

    def slope(t, y):
        return list(pendulum(np)({"angle": y[0], "speed": y[1]}, t, FRICTION, FORCE).values())

    given = {"t_eval": TIMES, "rtol": 1e-12, "atol": 1e-12}
    expected = scipy.integrate.solve_ivp(slope, (0, 4), [2.0, 0.0], "DOP853", **given).y
    assert exact["angle"].dtype == np.float64 and found["angle"].dtype == np.float32
    for i, name in enumerate(("angle", "speed")):
        np.testing.assert_allclose(exact[name], expected[i], atol=1e-10)
        np.testing.assert_allclose(found[name], expected[i], atol=2e-5)


def test_derivatives_are_jaxs():
    def loss(solve, m):
        def f(y0, t, friction, force):
            y = solve(pendulum(m), y0, t, friction, force, rtol=1e-9, atol=1e-9)
            return (y["angle"] * m.arange(1.0, 10.0)).sum() + (y["speed"] ** 2).sum()

        return f

    with nx.enable_x64(), jax.enable_x64(True):
        found = nx.jit(nx.grad(loss(odeint, jnp), (0, 1, 2, 3)))(START, TIMES, FRICTION, FORCE)
        expected = jax.jit(jax.grad(loss(jax_odeint, jaxnp), (0, 1, 2, 3)))(START, TIMES, FRICTION, FORCE)
    for a, b in zip(nx.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_a_long_step_is_filled_by_a_polynomial_of_order_four():
    # Two steps of a polynomial of degree four are exact, between the times of the steps, too.
    with nx.enable_x64():
        t = jnp.linspace(0.0, 1.0, 14)
        y = odeint(lambda y, t: 4 * t**3 - t, np.float64(1.0), t, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(y, t**4 - t**2 / 2 + 1, atol=1e-14)


def test_transforms():
    def last(rate, power=1):
        # An integer and a closed-over value take part; neither gets in the way of the derivative.
        return odeint(lambda y, t, n: rate * y**n, 1.0, jnp.array([0.0, 0.5, 1.0]), power)[-1]

    rates = jnp.array([-1.0, 0.5, 1.0])
    exact = np.exp(np.asarray(rates))
    for f in (last, nx.grad(last), nx.grad(nx.grad(last))):
        np.testing.assert_allclose(nx.jit(nx.vmap(f))(rates), exact, rtol=2e-5)
    np.testing.assert_allclose(nx.grad(last)(0.5, 2), 1 / 0.5**2, rtol=2e-5)
    wave = odeint(lambda y, t: 1j * y, jnp.complex64(1), jnp.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(wave, np.exp(1j * np.array([0, 1, 3])), atol=1e-5)


def test_limits_and_the_edges_of_time():
    def decay(y, t):
        return -y

    t = jnp.array([0.0, 0.1, 10.0])
    few = odeint(decay, 1.0, t, mxstep=6)
    assert np.isnan(few).tolist() == [False, False, True]
    np.testing.assert_allclose(odeint(decay, 1.0, t, hmax=0.05), np.exp(-np.asarray(t)), atol=1e-5)
    assert odeint(decay, 1.0, t[:1]).tolist() == [1.0] and odeint(decay, jnp.ones((2, 0)), t).shape == (3, 2, 0)
    # A time twice, one that goes back, a slope that is no number, and a solution that blows up.
    assert odeint(decay, 1.0, jnp.zeros(2)).tolist() == [1.0, 1.0]
    assert np.isnan(odeint(decay, 1.0, -t)).tolist() == [False, True, True]
    assert np.isnan(odeint(lambda y, t: y * jnp.nan, 1.0, t)).tolist() == [False, True, True]
    assert np.isnan(odeint(lambda y, t: y**2, 1.0, jnp.array([0.0, 0.5, 2.0]))).tolist() == [False, False, True]


def test_bad_calls_say_what_is_wrong():
    t = jnp.array([0.0, 1.0])
    with pytest.raises(errors.DtypeError, match="t must be an array of floats"):
        odeint(lambda y, t: y, 1.0, jnp.arange(3))
    with pytest.raises(errors.ShapeError, match="vector of times"):
        odeint(lambda y, t: y, 1.0, 0.5)
    with pytest.raises(errors.ShapeError, match="another shape than y0"):
        odeint(lambda y, t: y[None], 1.0, t)
    with pytest.raises(errors.ParameterError, match="func's result"):
        odeint(lambda y, t: (y, y), 1.0, t)
    with pytest.raises(errors.NxError):
        odeint(lambda y, t, a: y, 1.0, t, "text")
