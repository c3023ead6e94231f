import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.ops.cumulative import cumlogsumexp, cummax, cummin, cumprod, cumsum
from tests.lower.cpu.rules.equal import ISAS, numbers, results, same

INTS = [np.int8, np.uint16, np.int32, np.uint64, ml_dtypes.int4]
FLOATS = [ml_dtypes.float8_e4m3fn, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SHAPES = [(), (0,), (1,), (15,), (16,), (33,), (200,)]


@st.composite
def shapes(draw):
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 15, 16, 33]), min_size=1, max_size=3)))
    return shape, draw(st.integers(0, len(shape) - 1)), draw(st.booleans())


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(case=shapes(), op=st.sampled_from([cumsum, cumprod, cummax, cummin]), dtype=st.sampled_from(INTS))
def test_integers(name, case, op, dtype):
    shape, axis, reverse = case
    same(op, numbers(shape, dtype), name=name, axis=axis, reverse=reverse)


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(case=shapes(), op=st.sampled_from([cummax, cummin]), dtype=st.sampled_from([np.bool_, *FLOATS]))
def test_extrema(name, case, op, dtype):
    shape, axis, reverse = case
    x = numbers(shape, dtype)
    if x.size > 3 and dtype != np.bool_:
        x.reshape(-1)[[1, -1]] = [np.inf, np.nan] if dtype != ml_dtypes.float8_e4m3fn else 0
    same(op, x, name=name, axis=axis, reverse=reverse)


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(case=shapes(), op=st.sampled_from([cumsum, cumprod]), dtype=st.sampled_from(FLOATS))
def test_floats(name, case, op, dtype):
    """Rounded in another order than NumPy's, and never worse than its bound."""
    shape, axis, reverse = case
    x = numbers(shape, dtype)
    x = (x if op is cumsum else np.where(x > 0, 1.0625, -0.9375)).astype(dtype)
    (y,) = results(op, x, name=name, axis=axis, reverse=reverse)
    assert y.dtype == dtype
    wide = np.longdouble if dtype == np.float64 else np.float64
    flip = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    ufunc = np.add if op is cumsum else np.multiply
    exact = flip(ufunc.accumulate(flip(x.astype(wide)), axis))
    size = flip(ufunc.accumulate(np.abs(flip(x.astype(wide))), axis))
    unit = float(ml_dtypes.finfo(dtype).eps) + (1e-14 if dtype == np.float64 else 1e-6)
    assert (np.abs(y.astype(wide) - exact) <= unit * size).all()


@pytest.mark.parametrize("inner", [1, 3, 600, 1100])
@pytest.mark.parametrize("reverse", [False, True])
def test_columns_are_summed_in_the_order_of_numpy(inner, reverse):
    x = numbers((3, 70, inner), np.float32)
    if inner > 1:
        same(cumsum, x, axis=1, reverse=reverse)
    a, b = (results(cumsum, x, name=name, axis=1, reverse=reverse)[0] for name in (ISAS[0], "portable"))
    assert a.tobytes() == b.tobytes()


def test_special_floats():
    x = np.array([-0.0, -0.0, 0.0, 1, np.inf, 1, -np.inf, 2] * 3, np.float32)
    for n in (2, 5, 24):
        same(cumsum, x[:n], axis=0)
    (y,) = results(cumsum, np.full((20,), -0.0, np.float32), axis=0)
    assert np.signbit(y).all()


def test_complex_sums():
    x = numbers((5, 40), np.complex64)
    for axis in (0, 1):
        same(cumsum, x, axis=axis, reverse=axis == 0)


def test_long_sums_are_closer_than_numpys():
    x = numbers((1_000_003,), np.float32)
    exact = np.cumsum(x.astype(np.float64))
    (y,) = results(cumsum, x, axis=0)
    assert np.abs(y - exact).max() <= np.abs(np.cumsum(x) - exact).max()


def test_cumlogsumexp():
    x = numbers((3, 50), np.float32)
    (y,) = results(cumlogsumexp, x, axis=1)
    np.testing.assert_allclose(y, cumlogsumexp.eval(x, axis=1), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(("shape", "axis"), [((200_003,), 0), ((50_001, 3), 0), ((2, 70_001), 1)])
def test_long_sums_keep_their_last_bits(name, dtype, shape, axis):
    """A sum of as many positive numbers as one likes is rounded once or twice, in any layout and direction."""
    x = (np.random.default_rng(0).random(shape) / 8 + 0.01).astype(dtype)
    kind = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    exact = np.cumsum(x.astype(kind), axis)
    eps = float(ml_dtypes.finfo(x.real.dtype).eps)
    for y in (*results(cumsum, x, name=name, axis=axis), cumsum.eval(x, axis=axis)):
        error = np.abs(y.astype(kind) - exact) / np.abs(exact)
        assert error.max() <= eps * (8 if dtype == np.float64 else 0.6)


def test_a_long_sum_does_not_stand_still():
    x = np.ones((1 << 25) + 3, np.float32)
    (y,) = results(cumsum, x, axis=0)
    assert y[-1] == float(len(x) + 1)  # to nearest even


def test_far_sums_of_exponentials():
    x = (1e7 + np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    exact = np.logaddexp.accumulate(x.astype(np.float64))
    for y in (*results(cumlogsumexp, x, axis=0), cumlogsumexp.eval(x, axis=0)):
        assert np.abs(y - exact).max() <= 0.5
