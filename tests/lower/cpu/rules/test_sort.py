import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax.kernels.cpu.sort_network import rounds
from nxjax.ops.sort import sort, top_k
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, numbers, results, same, tape

REAL = [
    np.bool_, ml_dtypes.int4, ml_dtypes.uint4, np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz, np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
]  # fmt: skip
SHAPES = [(0,), (1,), (2,), (37,), (64,), (65,), (300,), (9, 5), (3, 100), (9, 100), (20, 256), (2, 0, 3), (3, 270, 2)]


def column(shape, dtype, seed=0):
    """Few values, so that many are equal; NaNs of both signs, zeros of both signs, infinities."""
    x = numbers(shape, dtype, seed)
    rng = np.random.default_rng(seed)
    if dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64, np.complex128):
        few = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -2.5], dtype)
        x = np.where(rng.integers(0, 2, shape) > 0, few[rng.integers(0, 8, shape)], x)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", REAL, ids=lambda d: np.dtype(d).name)
def test_one_operand(dtype):
    # Every kind of key on every instruction set would be hundreds of kernels.
    name = ISAS[REAL.index(dtype) % len(ISAS)]
    for shape in SHAPES:
        for axis in range(len(shape)):
            same(sort, column(shape, dtype), name=name, dimension=axis)


@pytest.mark.parametrize("dtype", REAL, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("size", [300, 50_000])
def test_plain_numbers(dtype, size):
    same(sort, numbers((size,), dtype), dimension=0)


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_several_operands(name, data):
    shape = data.draw(st.sampled_from(SHAPES))
    axis = data.draw(st.integers(0, len(shape) - 1))
    keys = data.draw(st.lists(st.sampled_from([*REAL, np.complex64, np.complex128]), min_size=1, max_size=3))
    others = data.draw(st.lists(st.sampled_from([np.int32, dtypes.key, np.complex128, np.bool_]), max_size=2))
    xs = [column(shape, d, i) for i, d in enumerate(keys)] + [numbers(shape, d) for d in others]
    same(sort, *xs, name=name, dimension=axis, num_keys=len(keys))


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_top_k(name, data):
    shape = data.draw(st.sampled_from([s for s in SHAPES if 0 not in s]))
    axis = data.draw(st.integers(0, len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    x = column(shape, data.draw(st.sampled_from(REAL)))
    same(top_k, x, name=name, k=k, axis=axis)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32, np.int32])
def test_few_of_long_rows(name, dtype):
    x = column((3, 1500), dtype)
    rising = np.sort(numbers((1, 1500), dtype), axis=1)
    for k in (1, 7, 8, 9, 250):
        same(top_k, x, name=name, k=k, axis=1)
        same(top_k, rising, name=name, k=k, axis=1)
    info = dtypes.integer_info(dtype) if dtype == np.int32 else None
    if info:
        same(top_k, np.full((400,), info.min, dtype), name=name, k=5, axis=0)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64])
def test_long_rows_and_their_indices(dtype):
    x = column((2, 60_000), dtype)
    index = np.broadcast_to(np.arange(60_000, dtype=np.int32), x.shape)
    same(sort, x, index, dimension=1)
    same(top_k, x, k=7, axis=1)


@pytest.mark.parametrize("size", [*range(1, 12), 16])
def test_the_network_sorts(size):
    """By the 0-1 principle, what sorts all rows of zeros and ones sorts everything."""
    x = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    for p, r, d in rounds(size):
        for i in range(size - d):
            if i & p == r:
                x[:, i], x[:, i + d] = np.minimum(x[:, i], x[:, i + d]), np.maximum(x[:, i], x[:, i + d])
    assert (np.diff(x, axis=1) >= 0).all()


@pytest.mark.parametrize("shape", [(7,), (5, 300), (40, 6)])
def test_an_argsort_makes_no_indices(shape):
    x = column(shape, np.float32)
    for axis in range(len(shape)):
        argsort = lambda x, axis=axis: jnp.argsort(x, axis)
        argsort.name = "sort"
        (y,) = results(argsort, x)
        np.testing.assert_array_equal(y, np.argsort(x, axis, kind="stable"))
        assert "fill" not in str(tape(argsort, x))
