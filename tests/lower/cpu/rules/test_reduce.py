"""Rules of reductions: every kind, dtype and choice of axes, also of nothing and of one."""

import itertools

import numpy as np
import pytest

from nxjax.ops.argreduce import argmax, argmin
from nxjax.ops.reduce import reduce_and, reduce_max, reduce_min, reduce_or, reduce_prod, reduce_sum, reduce_xor
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, meant, results, same

SHAPE = (4, 5, 70)
AXES = [a for k in range(1, 4) for a in itertools.combinations(range(3), k)]
DTYPES = [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int8, dtypes.uint32, dtypes.int64]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_axes(isa, axes):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    same(reduce_max, x, axes=axes, name=isa)
    same(reduce_min, x, axes=axes, name=isa)
    (got,) = results(reduce_sum, x, axes=axes, name=isa)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(axes), rtol=1e-5, atol=1e-4)
    bits = np.random.default_rng(0).integers(-9, 9, SHAPE).astype(np.int16)
    for op in (reduce_sum, reduce_prod, reduce_and, reduce_or, reduce_xor):
        same(op, bits, axes=axes, name=isa)
    for op in (reduce_and, reduce_or, reduce_xor, reduce_max):
        same(op, bits > 3, axes=axes, name=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(isa, dtype):
    x = np.random.default_rng(0).integers(0, 4, (6, 45)).astype(dtype)
    for axis in (0, 1):
        same(reduce_sum, x, axes=(axis,), name=isa)  # small whole numbers: exact in every dtype
        same(reduce_max, x, axes=(axis,), name=isa)
        same(argmax, x, axes=(axis,), index_dtype=dtypes.int32, name=isa)
        same(argmin, x, axes=(axis,), index_dtype=dtypes.int32, name=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (3, 1), (1, 3), (2, 2)], ids=str)
def test_nothing_and_one(isa, shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 1
    for axes in ((0,), (1,), (0, 1)):
        for op in (reduce_sum, reduce_prod, reduce_max, reduce_min):
            same(op, x, axes=axes, name=isa)


@pytest.mark.parametrize("isa", ISAS)
def test_nan_wins(isa):
    for at in range(0, 100, 7):
        x = np.arange(200, dtype=np.float32).reshape(2, 100)
        x[0, at] = np.nan
        same(reduce_max, x, axes=(1,), name=isa)
        same(reduce_min, x, axes=(0,), name=isa)
        same(argmax, x, axes=(1,), index_dtype=dtypes.int32, name=isa)


def test_sums_are_as_exact_as_numpys():
    x = np.random.default_rng(0).standard_normal((3, 300_000)).astype(np.float32)
    exact = x.astype(np.float64).sum(1)
    (got,) = results(reduce_sum, x, axes=(1,))
    (numpys,) = meant(reduce_sum, x, axes=(1,))
    assert np.abs(got - exact).max() <= 2 * np.abs(numpys - exact).max() + 1e-3
