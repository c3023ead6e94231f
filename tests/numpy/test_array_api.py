"""The Array API standard: what the namespace says of itself, special values, and the libraries that dispatch on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, ParameterError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("xp", [jnp, nx], ids=["nxjax.numpy", "nxjax"])
def test_a_namespace_says_what_it_can(xp):
    info = xp.__array_namespace_info__()
    assert xp.__array_api_version__ == "2024.12"
    assert info.capabilities()["boolean indexing"] and info.capabilities()["data-dependent shapes"]
    assert info.default_device() in info.devices() and set(nx.devices()) < set(info.devices())
    assert info.default_dtypes()["real floating"] == jnp.ones(1).dtype
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert len(info.dtypes()) == 13 and len(info.dtypes(kind="numeric")) == 12
    for dtype in info.dtypes().values():
        for device in info.devices():
            assert xp.empty(1, dtype=dtype, device=device).dtype == dtype
    with pytest.raises(ParameterError, match="unknown kind"):
        info.dtypes(kind="quaternion")
    assert jnp.ones(1).__array_namespace__(api_version="2024.12") is jnp


def test_zeros_of_floor_division_have_signs():
    a = np.array([0.0, -0.0, -0.0, -1.0, 1.0, 4.0, -4.0], "float32")
    b = np.array([-1.0, 1.0, -1.0, -np.inf, np.inf, -2.0, 2.0], "float32")
    for name in ("floor_divide", "remainder", "divmod"):
        for function in (getattr(jnp, name), nx.jit(getattr(jnp, name))):
            ours, theirs = function(jnp.array(a), jnp.array(b)), getattr(np, name)(a, b)
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs), err_msg=name)
    for name, expected in (("floor_divide", 0.0), ("remainder", 1.0)):
        got = nx.grad(lambda x, f=name: getattr(jnp, f)(x, jnp.array(b)).sum())(jnp.array(a))
        np.testing.assert_array_equal(got, np.full(7, expected))
    inf = jnp.array([np.inf, 1.0])
    np.testing.assert_array_equal(nx.grad(lambda x: (x // 0.0).sum())(inf), [0, 0])


def test_expm1_of_complex_numbers_that_are_not_finite():
    inf, nan = np.inf, np.nan
    z = [complex(-0.0, 0), complex(inf, 0), complex(-inf, inf), complex(inf, inf), complex(-inf, nan), complex(nan, 0)]
    expected = np.array([0, complex(inf, 0), -1, complex(inf, nan), -1, complex(nan, 0)])
    for function in (jnp.expm1, nx.jit(jnp.expm1)):
        got = np.asarray(function(jnp.array(z)))
        np.testing.assert_array_equal(got.real, expected.real)
        np.testing.assert_array_equal(got.imag, expected.imag)
        assert not np.signbit(got.real[0])


def test_numbers_in_the_dtype_that_was_asked_for():
    assert float(jnp.linspace(1e-5, 0.0, 1, dtype="float64")[0]) == 1e-5
    assert jnp.result_type(True, jnp.int8) == "int8"
    with pytest.raises(ValueError, match="0-d"):
        jnp.nonzero(jnp.array(1.0))
    assert np.from_dlpack(jnp.arange(3)).tolist() == [0, 1, 2]
    jnp.arange(3).__dlpack__(max_version=(0, 8), copy=False)


def test_formats_that_no_array_holds_have_names():
    assert jnp.finfo(jnp.float8_e3m4).max == ml_dtypes.finfo(ml_dtypes.float8_e3m4).max
    assert jnp.iinfo(jnp.int2).min == -2 and jnp.float4_e2m1fn == np.dtype(ml_dtypes.float4_e2m1fn)
    for name in ("int1", "uint1", "uint2", "float8_e4m3", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"):
        with pytest.raises(DtypeError, match="cannot hold"):
            jnp.zeros(2, getattr(jnp, name))
    assert issubclass(jnp.ComplexWarning, Warning)


_LIBRARIES = """
import numpy as np, sklearn
import nxjax as nx, nxjax.numpy as jnp
from scipy import fft, integrate, ndimage, signal, special, stats
from sklearn.decomposition import PCA
from sklearn.externals import array_api_compat as compat
from sklearn.metrics import accuracy_score, mean_squared_error

a = np.random.default_rng(0).normal(size=(20, 4))
x = jnp.asarray(a, dtype="float64")
assert compat.array_namespace(x) is jnp and compat.is_array_api_obj(x)
assert compat.size(x) == 80 and compat.to_device(x, compat.device(x)).device == compat.device(x)

def same(function):
    y = function(x)
    assert isinstance(y, (nx.Array, float)), function
    np.testing.assert_allclose(np.abs(np.asarray(y)), np.abs(np.asarray(function(a))), rtol=1e-6, atol=1e-6)

for function in (
    lambda v: special.softmax(v, axis=1), special.ndtr, lambda v: stats.skew(v), lambda v: stats.kurtosis(v, axis=1),
    lambda v: stats.ttest_1samp(v, 0.0).pvalue, lambda v: stats.rankdata(v, axis=0), fft.rfft, fft.dct,
    lambda v: signal.fftconvolve(v, v), lambda v: ndimage.gaussian_filter(v, 1.0), integrate.cumulative_trapezoid,
):
    same(function)
with sklearn.config_context(array_api_dispatch=True):
    for function in (
        lambda v: PCA(2, svd_solver="full").fit_transform(v), lambda v: mean_squared_error(v, v * v),
        lambda v: accuracy_score(v[:, 0] > 0, v[:, 1] > 0),
    ):
        same(function)
print("done")
"""


def test_array_api_dispatch_of_scipy_and_scikit_learn():
    pytest.importorskip("sklearn")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", _LIBRARIES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr[-3000:]
