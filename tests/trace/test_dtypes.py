"""Promotion is JAX's for every pair of dtypes, weak or not; 64 bits come when asked for."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import DtypeError
from nxjax.trace import dtypes

NAMES = [
    "bool", "int4", "uint4", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float8_e4m3fn", "float8_e5m2",
    "bfloat16", "float16", "float32", "complex64",
]  # fmt: skip
PYTHON = [int, float, complex]


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(NAMES, 2)))
def test_pairs_promote_as_in_jax(a, b):
    try:
        expected = jnp.promote_types(dtype(a), dtype(b))
    except jax.dtypes.TypePromotionError:
        with pytest.raises(DtypeError, match="no common dtype"):
            dtypes.promote_types(dtype(a), dtype(b))
    else:
        assert dtypes.promote_types(dtype(a), dtype(b)) == expected
        assert dtypes.promote_types(dtype(b), dtype(a)) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", PYTHON)
def test_python_scalars_yield(name, kind):
    pair = (dtype(name), False), (dtypes.as_dtype(kind), True)
    try:
        expected = jnp.result_type(jnp.zeros((), dtype(name)), kind(1))
    except jax.dtypes.TypePromotionError:
        with pytest.raises(DtypeError, match="no common dtype"):
            dtypes.promote(*pair)
    else:
        assert dtypes.promote(*pair)[0] == expected


def test_sixty_four_bits_when_asked_for():
    assert nx.asarray(np.zeros(2)).dtype == np.float32
    assert nx.zeros(2, dtype="float64").dtype == np.float64
    assert (nx.zeros(2, dtype="float64") + 1.0).dtype == np.float64
    assert dtypes.promote_types("int32", "uint32") == np.int32
    with config.using(enable_x64=True):
        assert nx.asarray(np.zeros(2)).dtype == np.float64
        assert dtypes.as_dtype(float) == np.float64
        assert dtypes.promote_types("int32", "uint32") == np.int64


def test_names():
    for d in (dtypes.bfloat16, dtypes.uint4, dtypes.key, dtypes.float8_e4m3fn, dtypes.bool_):
        assert dtypes.from_short_name(dtypes.short_name(d)) == d
    assert dtypes.as_dtype("bfloat16") == dtypes.bfloat16
    with pytest.raises(DtypeError, match="cannot hold"):
        dtypes.as_dtype("U5")
    with pytest.raises(DtypeError, match="not understood"):
        dtypes.as_dtype("floot")
