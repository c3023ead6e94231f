"""Composites, choices by platform, tokens."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax


def test_composites():
    scaled = lax.composite(lambda x, *, k: {"y": jnp.sin(x) * k}, "my.scaled", 2)
    (eqn,) = nx.make_jaxpr(lambda x: scaled(x, k=2.0))(1.0).eqns
    assert eqn.params["name"] == "my.scaled" and eqn.params["version"] == 2 and eqn.params["jaxpr"].eqns
    np.testing.assert_allclose(
        nx.jit(nx.vmap(lambda x: scaled(x, k=3.0)["y"]))(jnp.ones(2)), 3 * np.sin(np.ones(2)), rtol=1e-6
    )
    with pytest.raises(ValueError, match="derivative"):
        nx.grad(lambda x: scaled(x, k=2.0)["y"])(1.0)
    with pytest.raises(nx.errors.UnexpectedTracerError):
        nx.jit(lambda k: scaled(1.0, k=k))(2.0)

    @nx.custom_jvp
    def f(x):
        return scaled(x, k=1.0)["y"]

    f.defjvps(lambda t, y, x: 5.0 * t)
    assert float(nx.grad(f)(1.0)) == 5


def test_platforms():
    assert float(lax.platform_dependent(1.0, cpu=lambda x: x + 1, tpu=lambda x: x)) == 2
    assert float(nx.jit(lambda x: lax.platform_dependent(x, tpu=lambda v: v, default=lambda v: 3 * v))(1.0)) == 3
    for error, named in ((TypeError, {"cpu": 1}), (ValueError, {"gpu": abs}), (NotImplementedError, {"tpu": abs})):
        with pytest.raises(error):
            lax.platform_dependent(1.0, **named)


def test_tokens_and_sinks():
    assert repr(lax.after_all(lax.create_token(), lax.create_token())) == "Token()"
    with pytest.raises(TypeError):
        lax.after_all(1.0)
    p = nx.make_jaxpr(lambda x: (lax.dce_sink(lax.sin(x)), x)[1])(1.0)
    assert (
        "sin" in str(p) and len(p.effects) == 1 and float(nx.jit(lambda x: (lax.dce_sink(lax.sin(x)), x)[1])(1.0)) == 1
    )
    assert len(nx.make_jaxpr(lambda: lax.stage(2.0))().eqns) == 1 and float(lax.stage(2.0)) == 2
    assert lax.dtype(1j) == "complex64" and lax.dtype(np.zeros(1)) == "float32" and lax.dtype("int8") == "int8"
    for bad, error in ((None, ValueError), ([1], TypeError)):
        with pytest.raises(error):
            lax.dtype(bad)
