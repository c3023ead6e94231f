"""Known powers, and powers of integers: the laws of ops."""

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError
from nxjax.ops.power import pow_integers, power
from nxjax.testing import bad, check_op, sample

X = np.random.default_rng(0).uniform(0.2, 3, (3, 4)).astype(np.float32)


def test_laws():
    check_op(power, [sample(X, y=y) for y in (1 / 3, 2.5, -1.0, 0.0)])
    assert np.isnan(power.eval(np.float32([-1]), y=0.5)).all()


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ml_dtypes.int4, ml_dtypes.uint4]


def exact(x, y, info):
    """x to the power y modulo 2^bits, in Python's integers; 1 / x, cut, for negative y."""
    if y < 0:
        return 0 if abs(x) != 1 else x if y % 2 else 1
    z = pow(x, y, 1 << info.bits)
    return z - (1 << info.bits) if z > info.max else z


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integer_powers_wrap_around(dtype):
    """Every bit of the exponent counts: 3^16 is 65 modulo 2^8, and 3^64 is not 1 in any type."""
    info = ml_dtypes.iinfo(dtype)
    random = np.random.default_rng(3)
    drawn = lambda: [int(v) for v in random.integers(0, 1 << min(info.bits, 62), 40)]
    xs = [v + int(info.min) for v in drawn()] + [3, 3, 2, 0, 0, 1, info.max] + [-1, -1, -2, 0] * (info.min < 0)
    ys = [v + int(info.min) * (i % 2) for i, v in enumerate(drawn())]
    ys = [min(y, int(info.max)) for y in ys] + [min(e, int(info.max)) for e in (16, 64, 7, 0, 5, 6, 2)]
    ys += [-3, -2, -1, -1] * (info.min < 0)
    x, y = (np.array(v, "u8" if info.min == 0 else "i8").astype(dtype) for v in (xs, ys))
    expected = [exact(int(a), int(b), info) for a, b in zip(x, y, strict=True)]
    for function in (pow_integers, nx.jit(pow_integers)):
        assert [int(v) for v in np.asarray(function(nx.trace.array.wrap(x), nx.trace.array.wrap(y)))] == expected


def test_laws_of_integer_powers():
    x, y = np.array([[3, -2, 1], [-1, 0, 7]], np.int8), np.array([[16, 3, -5], [-3, 0, 100]], np.int8)
    wide = [sample(x.astype(d), abs(y).astype(d)) for d in ("uint8", "int32")]
    errors = [bad(np.float32(1), np.float32(1), error=DtypeError, says="f32")]
    check_op(pow_integers, [sample(x, y), *wide], errors, reference=lambda x, y: exact_array(x, y))
    assert jnp.power(jnp.int8(3), jnp.int8(16)) == 65


def exact_array(x, y):
    info = np.iinfo(x.dtype)
    flat = [exact(int(a), int(b), info) for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    return np.array(flat, x.dtype).reshape(x.shape)
