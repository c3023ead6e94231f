"""Initializers give jax.nn.initializers' values for the same key."""

import jax
import numpy as np
import pytest

import nxjax as nx

CASES = [
    ("constant", (0.3,), {}),
    ("uniform", (0.2,), {}),
    ("normal", (0.2,), {}),
    ("truncated_normal", (0.2,), {}),
    *(
        (name, (), {})
        for name in ("glorot_uniform", "glorot_normal", "lecun_uniform", "lecun_normal", "he_uniform", "he_normal")
    ),
    ("xavier_uniform", (), {"in_axis": 0, "out_axis": 1}),
    ("kaiming_normal", (), {"batch_axis": 0, "in_axis": 1, "out_axis": 2}),
    *(
        ("variance_scaling", (1.5, mode, d), {})
        for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
        for d in ("normal", "uniform", "truncated_normal")
    ),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_values(name, args, kwargs, dtype):
    ours = getattr(nx.nn.initializers, name)(*args, **kwargs)(nx.random.key(1), (3, 4, 5), dtype)
    theirs = getattr(jax.nn.initializers, name)(*args, **kwargs)(jax.random.key(1), (3, 4, 5), dtype)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(
        np.asarray(ours, np.float32),
        np.asarray(theirs, np.float32),
        rtol=1e-5 if dtype == "float32" else 1e-2,
        atol=1e-7,
    )


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_constants(name):
    got = getattr(nx.nn.initializers, name)(nx.random.key(0), (2, 3), "int32")
    assert got.dtype == np.int32
    assert np.asarray(got).tolist() == np.asarray(getattr(np, name)((2, 3), np.int32)).tolist()


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
def test_complex(distribution):
    ours = nx.nn.initializers.variance_scaling(1.0, "fan_in", distribution)(nx.random.key(1), (30, 4), "complex64")
    theirs = jax.nn.initializers.variance_scaling(1.0, "fan_in", distribution)(jax.random.key(1), (30, 4), "complex64")
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((4, 6), -1), ((6, 4), -1), ((2, 3, 4), 0), ((2, 0), -1)])
def test_orthogonal(shape, axis):
    ours = np.asarray(nx.nn.initializers.orthogonal(2.0, axis)(nx.random.key(1), shape))
    theirs = np.asarray(jax.nn.initializers.orthogonal(2.0, axis)(jax.random.key(1), shape))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 3, 4, 4)])
def test_delta_orthogonal(shape):
    ours = np.asarray(nx.nn.initializers.delta_orthogonal()(nx.random.key(1), shape))
    theirs = np.asarray(jax.nn.initializers.delta_orthogonal()(jax.random.key(1), shape))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_errors():
    init = nx.nn.initializers
    with pytest.raises(ValueError, match="2 dimensions"):
        init.he_normal()(nx.random.key(0), (3,))
    with pytest.raises(ValueError, match="mode"):
        init.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ValueError, match="distribution"):
        init.variance_scaling(1.0, "fan_in", "cauchy")
    with pytest.raises(ValueError, match="2 dimensions"):
        init.orthogonal()(nx.random.key(0), (3,))
    with pytest.raises(ValueError, match="fan_in"):
        init.delta_orthogonal()(nx.random.key(0), (3, 5, 4))
