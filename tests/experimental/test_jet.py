"""`jet`: derivatives along a curve, as JAX's rules and as they are known."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet as peer

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.experimental.jet import jet

X = np.array([0.5, 1.2], np.float32)
SERIES = [np.array(v, np.float32) for v in ([1.0, 2.0], [0.3, -1.0], [0.1, 0.2], [0.0, 1.0])]


def test_terms_are_those_of_jax():
    functions = (
        lambda m, x, y: m.sin(x) * y,
        lambda m, x, y: m.exp(x).sum() / y,
        lambda m, x, y: m.where(x > 1, x, x**3) @ y,
    )
    for f in functions:
        for scaled in (True, False):
            arguments = (X, X + 1), (SERIES, SERIES[::-1])
            ours = jet(lambda x, y, f=f: f(nx.numpy, x, y), *arguments, factorial_scaled=scaled)
            theirs = peer(lambda x, y, f=f: f(jnp, x, y), *arguments, factorial_scaled=scaled)
            for a, b in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_trees_loops_and_transforms():
    def f(x):
        return {"a": nx.lax.fori_loop(0, 3, lambda i, c: c * x, x), "b": 1.0}

    y, terms = nx.jit(lambda x: jet(f, (x,), ((1.0, 0.0, 0.0, 0.0),)))(2.0)
    assert float(y["a"]) == 16 and [float(t) for t in terms["a"]] == [4 * 8, 12 * 4, 24 * 2, 24]
    assert [float(t) for t in terms["b"]] == [0] * 4
    third = nx.vmap(lambda x: jet(nx.exp, (x,), ((1.0, 0.0, 0.0),), factorial_scaled=False)[1][2])(X)
    np.testing.assert_allclose(third, np.exp(X) / math.factorial(3), rtol=1e-5)


def test_what_is_refused():
    for error, primals, series in (
        (ParameterError, (X,), ()),
        (ParameterError, (X, X), (SERIES, SERIES[:1])),
        (ShapeError, (X,), ([1.0],)),
        (DtypeError, (1,), ([1],)),
    ):
        with pytest.raises(error, match="jet: "):
            jet(lambda *xs: xs[0], primals, series)
