"""`debug_nans` and `debug_infs` name the op and the user's line; off, they change nothing."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import NonFiniteError


def blamed(f, *args) -> NonFiniteError:
    with pytest.raises(FloatingPointError) as caught, nx.debug_nans(True):
        f(*args)
    error = caught.value
    assert isinstance(error, NonFiniteError)
    return error


def log_of(x):
    y = jnp.log(x)
    return (y * 2).sum()


def below_zero(x):
    def body(c, v):
        c = c - v
        return c, jnp.log(c)

    return nx.lax.scan(body, x, jnp.arange(5.0))


@nx.custom_vjp
def own(x):
    return x * 2


def own_bwd(x, ct):
    return (ct / (x - x),)


own.defvjp(lambda x: (own(x), x), own_bwd)

X = np.array([1.0, 0.0, -1.0], np.float32)


def test_the_op_and_the_line_are_named_in_every_transform():
    for f in (log_of, nx.jit(log_of), nx.jit(nx.jit(log_of))):
        error = blamed(f, X)
        assert error.op == "log" and error.index == (2,)
        assert "y = jnp.log(x)" in str(error) and "operand 0" in str(error)
    error = blamed(nx.jit(below_zero), 4.5)
    assert error.op == "log" and "scan, step 3 of 5" in str(error) and "jnp.log(c)" in str(error)
    error = blamed(below_zero, 4.5)
    assert "scan, step 3 of 5" in str(error)
    loop = nx.jit(lambda x: nx.lax.while_loop(lambda c: c[1] < 5, lambda c: (jnp.sqrt(c[0] - 1), c[1] + 1), (x, 0)))
    assert "while, step 2" in str(blamed(loop, 3.0))
    choice = nx.jit(lambda x: nx.lax.cond(x > 0, lambda x: x, lambda x: jnp.log(x), x))
    assert "cond, branch 0 of 2" in str(blamed(choice, -3.0))


def test_gradients_name_the_backward_op_and_the_forward_line():
    def loss(x):
        y = jnp.sqrt(x)
        return jnp.where(x > 0, y * x, 0.0).sum()

    for f in (nx.grad(loss), nx.jit(nx.grad(loss)), nx.grad(nx.jit(loss))):
        error = blamed(f, jnp.array([1.0, 0.0]))
        assert "in the backward pass of sqrt" in str(error) and "y = jnp.sqrt(x)" in str(error)
        assert error.index == (1,)
    assert "return (ct / (x - x),)" in str(blamed(nx.grad(lambda x: own(x) * 0), 1.0))
    assert "return (ct / (x - x),)" in str(blamed(nx.jit(nx.grad(lambda x: own(x) * 0)), 1.0))


def test_vmap_says_which_element():
    x = jnp.array([[1.0, 2.0], [3.0, -1.0], [2.0, 2.0]])
    for f in (nx.vmap(log_of), nx.jit(nx.vmap(log_of))):
        assert "element 1 of axis 0" in str(blamed(f, x))
    rows = nx.vmap(lambda r, w: r @ w, (0, None))
    assert "element 1 of axis 0" in str(blamed(rows, jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.array([np.inf, 1.0])))
    both = nx.jit(nx.vmap(nx.vmap(jnp.log), axis_name="rows"))
    text = str(blamed(both, x))
    assert "vmap 'rows'" in text and text.count("element 1 of axis") == 2


def test_what_came_in_or_is_thrown_away_is_not_blamed():
    error = blamed(nx.jit(lambda p, b: p["w"] + b), {"w": jnp.array([1.0, np.nan])}, 1.0)
    assert error.op == "" and "was an input" in str(error) and "p['w']" in str(error)
    with nx.debug_nans(True):
        assert nx.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))(X).shape == (3,)
        seen = []
        nx.jit(lambda x: nx.debug.callback(seen.append, x))(1.0)
        assert len(seen) == 1


def test_functions_that_choose_nan_somewhere_are_not_blamed_for_numbers():
    x, s = jnp.array([0.5, 0.25, 0.75]), nx.scipy.special
    calls = [
        lambda: jnp.median(x), lambda: jnp.quantile(x, 0.3), lambda: jnp.nanmedian(x), lambda: jnp.nanmean(x),
        lambda: s.gamma(x), lambda: s.gammasgn(-x), lambda: s.beta(x, x), lambda: s.ndtri(x), lambda: s.spence(x),
        lambda: s.hyp1f1(x, 0.5, x), lambda: s.poch(x, x), lambda: s.kl_div(x, x), lambda: s.loggamma(x),
        lambda: nx.scipy.stats.poisson.entropy(x), lambda: nx.scipy.stats.pareto.logcdf(x, 1.5),
    ]  # fmt: skip
    with nx.debug_nans(True):
        for call in calls:
            call()
        with pytest.raises(FloatingPointError, match="select_n"):
            s.ndtri(x + 1)
        with pytest.raises(FloatingPointError, match="NaN"):
            jnp.median(jnp.array([1.0, np.nan]))
    with nx.debug_infs(True), pytest.raises(FloatingPointError, match="infinity"):
        s.ndtri(jnp.array([0.0, 0.5]))


def test_infinities_and_switching():
    f = nx.jit(lambda x: 1 / x)
    assert np.isinf(f(0.0)) and f.trace_count == 1
    with pytest.raises(FloatingPointError, match="div made the first infinity"), nx.debug_infs(True):
        f(0.0)
    assert np.isinf(f(0.0)) and f.trace_count == 2
    assert np.isnan(jnp.log(X)).sum() == 1
    with pytest.raises(FloatingPointError), nx.debug_nans(True):
        nx.jit(lambda x: jnp.log(x), donate_argnums=0)(jnp.array([-1.0]))
    nx.config.update("jax_debug_nans", True)
    try:
        assert nx.config.jax_debug_nans
        with pytest.raises(FloatingPointError):
            jnp.array([0.0]) / 0.0
    finally:
        nx.config.update("jax_debug_nans", False)
    with pytest.raises(RuntimeError, match="no_execution"), nx.no_execution(True):
        jnp.ones(2) + 1
