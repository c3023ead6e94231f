"""Bits: every law over all integer widths, shifts beyond the width included."""

import jax
import numpy as np
import pytest

from nxjax.errors import DtypeError
from nxjax.ops import bitwise as ops
from nxjax.testing import bad, check_op, sample

RNG = np.random.default_rng(0)
DTYPES = [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32]


def data(dtype):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, 20, dtype=dtype), RNG.integers(0, 40, 20).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("and_", "bitwise_and"),
        ("or_", "bitwise_or"),
        ("xor", "bitwise_xor"),
        ("shift_left", "shift_left"),
        ("shift_right_logical", "shift_right_logical"),
        ("shift_right_arithmetic", "shift_right_arithmetic"),
    ],
)
def test_two_operands(name, peer, dtype):
    errors = [bad(np.float32(1), np.float32(1), error=DtypeError, says="f32")]
    check_op(getattr(ops, name), [sample(*data(dtype))], errors, reference=getattr(jax.lax, peer))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "peer"), [("not_", "bitwise_not"), ("population_count", "population_count"), ("clz", "clz")]
)
def test_one_operand(name, peer, dtype):
    x, _ = data(dtype)
    check_op(getattr(ops, name), [sample(np.append(x, 0).astype(dtype))], reference=getattr(jax.lax, peer))


def test_booleans_have_logic():
    x, y = np.array([True, True, False]), np.array([True, False, False])
    check_op(ops.and_, [sample(x, y)], reference=np.logical_and)
    check_op(ops.xor, [sample(x, y)], reference=np.logical_xor)
    check_op(ops.not_, [sample(x)], reference=np.logical_not)


@pytest.mark.parametrize("name", ["and_", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "not_"])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_four_bits(name, kind):
    import ml_dtypes

    dtype = getattr(ml_dtypes, kind)
    x = np.arange(-8, 8).astype(np.int8).astype(dtype) if kind == "int4" else np.arange(16).astype(dtype)
    y = (np.arange(16) % 4).astype(dtype)
    check_op(getattr(ops, name), [sample(x) if name == "not_" else sample(x, y)])


def test_counts_of_four_bits():
    import ml_dtypes

    for kind in (ml_dtypes.int4, ml_dtypes.uint4):
        x = np.arange(16).astype(kind)
        ones = np.array([bin(i).count("1") for i in range(16)]).astype(kind)
        zeros = np.array([4 - i.bit_length() for i in range(16)]).astype(kind)
        check_op(ops.population_count, [sample(x)], reference=lambda _, ones=ones: ones)
        check_op(ops.clz, [sample(x)], reference=lambda _, zeros=zeros: zeros)
