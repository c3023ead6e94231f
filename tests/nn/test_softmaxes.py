"""softmax, log_softmax, logsumexp, logmeanexp: values and derivatives as jax.nn."""

import jax
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32) * 5
MASK = X > -3


def both(name, *args, **kwargs):
    return np.asarray(getattr(nx.nn, name)(*args, **kwargs)), np.asarray(getattr(jax.nn, name)(*args, **kwargs))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (2, 0), None])
@pytest.mark.parametrize("where", [None, MASK])
def test_values_and_derivatives(name, axis, where):
    got, want = both(name, X, axis, where=where)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    weights = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)

    def loss(nn, np_):
        def f(x):
            y = getattr(nn, name)(x, axis, where=where)
            return (np_.where(MASK, y, 0) * weights).sum()

        return f

    got = nx.grad(loss(nx.nn, nx.numpy))(X)
    want = jax.grad(loss(jax.nn, jax.numpy))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_one_equation_also_under_vmap(name):
    f = getattr(nx.nn, name)
    g = f if name != "logsumexp" else (lambda x: f(x, axis=1))
    assert [e.op.name for e in nx.make_jaxpr(g)(X).equations] == [name]
    for d in range(3):
        mapped = nx.vmap(g, in_axes=d)
        assert [e.op.name for e in nx.make_jaxpr(mapped)(X).equations if e.op.name != "transpose"] == [name]
        want = np.stack([np.asarray(g(row)) for row in np.moveaxis(X, d, 0)])
        np.testing.assert_allclose(np.asarray(mapped(X)), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_dtypes(name, dtype):
    if (name, dtype) == ("log_softmax", "int32"):  # jax.nn.log_softmax of integers casts -inf to one
        assert nx.nn.log_softmax(X.astype(np.int32)).dtype == np.float32
        return
    x = (X * 2).astype(dtype)
    got = getattr(nx.nn, name)(nx.asarray(x, dtype))
    with jax.enable_x64(dtype == "float64"):
        want = getattr(jax.nn, name)(jax.numpy.asarray(x))
        assert got.dtype == want.dtype
        rtol = {"float64": 1e-12, "int32": 1e-5}.get(dtype, 3e-2)
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=rtol, atol=rtol)


def test_large_and_infinite_logits():
    x = np.array([[1e4, 1e4 - 1], [-np.inf, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]], np.float32)
    for name in ("softmax", "log_softmax"):
        np.testing.assert_allclose(*both(name, x), rtol=1e-5)
    np.testing.assert_allclose(*both("logsumexp", x, axis=1), rtol=1e-6)
    np.testing.assert_allclose(*both("logmeanexp", x, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(*both("logmeanexp", x[:0], axis=0))


@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp_and_logmeanexp(axis, keepdims):
    for name in ("logsumexp", "logmeanexp"):
        for where in (None, MASK):
            got, want = both(name, X, axis=axis, keepdims=keepdims, where=where)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5)
    b = np.where(X > 0, 2.0, -0.5).astype(np.float32)
    got, want = both("logsumexp", X, axis=axis, b=b, keepdims=keepdims)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    got = nx.nn.logsumexp(X, axis=axis, b=b, keepdims=keepdims, return_sign=True)
    want = jax.nn.logsumexp(X, axis=axis, b=b, keepdims=keepdims, return_sign=True)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-4)


def test_derivative_of_logsumexp_is_softmax():
    got = nx.grad(lambda x: nx.nn.logsumexp(x))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.nn.softmax(X, axis=None)), rtol=1e-5, atol=1e-9)
    # No slope where the sum is 0 or infinite, as in JAX; what a mask takes out stays out.
    x = np.array([-np.inf, -np.inf], np.float32)
    assert np.isnan(np.asarray(nx.grad(nx.nn.logsumexp)(x))).all()
    got = nx.grad(nx.nn.logsumexp)(np.array([1.0, np.inf], np.float32))
    np.testing.assert_array_equal(np.asarray(got), [0.0, np.nan])
    masked = nx.grad(lambda x: nx.nn.logsumexp(x, where=np.zeros(2, bool)))(np.ones(2, np.float32))
    assert np.asarray(masked).tolist() == [0.0, 0.0]


def test_complex_softmax():
    x = np.array([1.0 + 1j, 2.0 - 1j, 0.5], np.complex64)
    want = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(np.asarray(nx.nn.softmax(x)), want, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(nx.nn.log_softmax(x)), x - np.log(np.exp(x).sum()), rtol=1e-5)
    assert not nx.nn.logsumexp(0.5).weak_type


def test_empty_axis():
    assert nx.nn.softmax(np.zeros((3, 0), np.float32)).shape == (3, 0)
    assert np.asarray(nx.nn.logsumexp(np.zeros((2, 0), np.float32), axis=1)).tolist() == [-np.inf, -np.inf]


def test_axis_out_of_range():
    with pytest.raises(nx.errors.AxisError, match="softmax"):
        nx.nn.softmax(X, 3)


FAR = {"float32": 1e7, "bfloat16": 100.0, "float16": 1000.0}


def softened(x):
    p = np.exp(x - x.max())
    return p / p.sum()


@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize("jitted", [False, True])
def test_weights_do_not_come_from_the_rounded_result(dtype, jitted):
    """Beside a large result its rounding is a factor of what is made from it; the weights sum to 1 all the same."""
    compiled = nx.jit if jitted else lambda f: f
    x = (FAR[dtype] + np.array([0.0, 0.0, -1.0, 2.0, 1.0])).astype(jnp.dtype(dtype))
    wide = x.astype(np.float64)
    p = softened(wide)
    error = 4 * float(jnp.finfo(dtype).eps)
    same = lambda got, want: np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=error)
    x = jnp.asarray(x)
    same(compiled(nx.grad(nx.nn.logsumexp))(x), p)
    same(compiled(nx.grad(lambda v: nx.nn.logmeanexp(v)))(x), p)
    same(compiled(nx.grad(lambda v: -nx.nn.log_softmax(v)[2]))(x), p - np.eye(5)[2])
    same(compiled(lambda v: nx.jvp(nx.nn.logsumexp, (v,), (jnp.ones_like(v),))[1])(x), 1)
    same(compiled(lambda v: nx.linearize(nx.nn.logsumexp, v)[1](jnp.ones_like(v)))(x), 1)
    for last in range(5):
        row = np.zeros(5)
        row[: last + 1] = softened(wide[: last + 1])
        same(compiled(nx.grad(lambda v, i=last: nx.lax.cumlogsumexp(v)[i]))(x), row)
    for f, base in ((jnp.logaddexp, np.e), (jnp.logaddexp2, 2.0)):
        found = compiled(nx.grad(f, (0, 1)))(x[3], x[4])
        power = base ** (wide[3] - wide[4])
        same(found[0], power / (1 + power))
        same(found[1], 1 / (1 + power))
