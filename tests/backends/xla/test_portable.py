"""StableHLO as others read it."""

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.xla import portable
from nxjax.errors import LoweringError, ParameterError
from nxjax.lower.stablehlo.builder import lower


def text_of(f, *args):
    return lower(nx.make_jaxpr(f)(*args))[0]


def test_chlo_is_written_out():
    text = text_of(nx.scipy.special.erf, jnp.ones(3))
    assert "chlo." in text
    assert "chlo." not in str(portable.legalized(text))


def test_round_trip():
    module = portable.legalized(text_of(lambda x: jnp.sin(x) @ x, jnp.ones((3, 3))))
    data, version = portable.serialized(module)
    assert data.startswith(b"ML\xefR") and version[0].isdigit()
    assert "stablehlo.sine" in portable.deserialized(data)


def test_versions():
    module = portable.legalized(text_of(jnp.tanh, jnp.ones(3)))
    assert portable.serialized(module, "1.0.0")[1] == "1.0.0"
    for wrong in ("99.0.0", "0.0.1", "new"):
        with pytest.raises(ParameterError, match=r"version"):
            portable.serialized(module, wrong)


def test_what_is_no_module_is_refused():
    with pytest.raises(LoweringError, match="verifier"):
        portable.legalized("func.func @main(%x: tensor<2xf32>) -> tensor<3xf32> { return %x : tensor<2xf32> }")
    for data in (b"", b"ML\xefR", portable.serialized(portable.legalized(text_of(jnp.cos, 1.0)))[0][:40]):
        with pytest.raises(LoweringError, match="portable"):
            portable.deserialized(data)
