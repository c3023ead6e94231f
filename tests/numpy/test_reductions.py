"""Reductions, running reductions, moments and order statistics, against JAX."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.trace import dtypes

X = jnp.array(np.random.RandomState(0).randn(3, 4, 5).astype(np.float32))
I = jnp.array(np.random.RandomState(1).randint(-5, 6, (3, 4)).astype(np.int32))
N = X.at[0, 1, 2].set(np.nan).at[2].set(np.nan)
B = I > 0
C = jnp.array((np.random.RandomState(2).randn(3, 4) + 1j * np.random.RandomState(3).randn(3, 4)).astype(np.complex64))
H = X.astype("bfloat16")
MASK = np.random.RandomState(4).rand(3, 4, 5) > 0.3

PLAIN = [
    "sum",
    "prod",
    "max",
    "min",
    "mean",
    "var",
    "std",
    "any",
    "all",
    "count_nonzero",
    "ptp",
    "median",
    "amax",
    "amin",
]
NANS = ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian", "nanargmax"]
SMOOTH = ["sum", "prod", "max", "min", "mean", "var", "std", "ptp", "median"]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("axis", [None, 1, (0, -1), ()])
def test_over_axes(check, name, axis):
    if axis == () and name in ("ptp", "median", "var", "std"):
        return
    check.values(lambda m, x: getattr(m, name)(x, axis=axis), X, weak=True)
    check.values(lambda m, x: getattr(m, name)(x, axis=axis, keepdims=True), X)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("x", [I, B, H, I.astype("uint8"), jnp.asarray(1.5)], ids=["i32", "bool", "bf16", "u8", "weak"])
def test_dtypes(check, name, x):
    if x is B and name in ("ptp", "median"):
        return
    check.values(lambda m, x: getattr(m, name)(x), x, rtol=3e-2 if x is H else 2e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all", "max", "min"])
def test_complex(check, name):
    check.values(lambda m, x: getattr(m, name)(x, axis=0), C)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient(check, name):
    check.grad(lambda m, x: getattr(m, name)(x, axis=1), X)
    check.vmap(lambda m, x: getattr(m, name)(x, axis=1), X)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all"])
def test_where(check, name):
    check.values(lambda m, x: getattr(m, name)(x, axis=1, where=MASK), X)


def test_where_and_initial(check):
    check.values(lambda m, x: m.max(x, axis=1, where=MASK, initial=-9.0), X)
    check.values(lambda m, x: m.min(x, axis=1, initial=-1.0), X)
    check.values(lambda m, x: m.sum(x, axis=1, initial=10.0), X)
    check.values(lambda m, x: m.prod(x, initial=2.0), X)
    check.raises_alike(lambda m, x: m.max(x, where=MASK), X)
    check.raises_alike(lambda m: m.max(m.zeros((0,))))
    check.raises_alike(lambda m, x: m.sum(x, axis=7), X)
    check.raises_alike(lambda m, x: m.sum(x, axis=(0, 0)), X)
    check.raises_alike(lambda m: m.sum([1, 2]))
    check.raises_alike(lambda m, x: m.sum(x, out=x), X)


def test_given_dtype(check):
    check.values(lambda m, x: [m.sum(x, dtype="float32"), m.mean(x, dtype="float32"), m.cumsum(x, dtype="int16")], I)
    check.values(lambda m, x: m.sum(x, promote_integers=False), I.astype("int8"))


def test_moments(check):
    check.values(lambda m, x: [m.var(x, ddof=1), m.std(x, 0, correction=1), m.average(x, 1)], X)
    w = np.arange(1.0, 5.0, dtype=np.float32)
    check.values(lambda m, x: m.average(x, 1, weights=w, returned=True), X)


@pytest.mark.parametrize("name", NANS)
@pytest.mark.parametrize("axis", [None, 1, 0])
def test_without_nans(check, name, axis):
    check.values(lambda m, x: getattr(m, name)(x, axis=axis), N)
    check.values(lambda m, x: getattr(m, name)(x, axis=0 if axis == 1 else axis), I)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extrema(check, name):
    for axis in (None, 0, -1):
        check.values(lambda m, x, axis=axis: getattr(m, name)(x, axis=axis), X)
        check.values(lambda m, x, axis=axis: getattr(m, name)(x, axis=axis, keepdims=True), N)
    check.values(lambda m, x: getattr(m, name)(x, 1), B)
    check.vmap(lambda m, x: getattr(m, name)(x, 1), X)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_running(check, name):
    for axis in (None, 1, -1):
        check.values(lambda m, x, axis=axis: getattr(m, name)(x, axis=axis), N)
    check.grad(lambda m, x: getattr(m, name)(x, axis=1), X)
    check.values(lambda m, x: getattr(m, name)(x), B)
    check.values(lambda m, x: getattr(m, name)(x, 0), I)


def test_cumulative(check):
    check.values(lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True), I)
    check.values(lambda m, x: m.cumulative_prod(x, axis=0), X)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile(check, method):
    q = np.array([0.0, 0.3, 0.5, 1.0], np.float32)
    check.values(lambda m, x: m.quantile(x, q, axis=1, method=method), X)
    check.values(lambda m, x: m.nanquantile(x, 0.4, axis=0, method=method), N)
    check.values(lambda m, x: m.percentile(x, 30, axis=(0, 2), method=method, keepdims=True), X)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_places_in_a_long_row_of_a_short_dtype(dtype):
    """Places are counted in a wider type: float16 has no whole numbers between 2048 and 4096 that are odd."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=5001), dtype)
    ordered = np.sort(np.asarray(x.astype(np.float32)))
    for q in (0.013, 0.37, 0.6, 0.99):
        place = round(q * 5000)
        for f in (jnp.quantile, jnp.nanquantile):
            assert f(x, np.float32(place / 5000), method="nearest") == ordered[place]


def test_quantile_gradient(check):
    check.grad(lambda m, x: m.quantile(x, 0.3, axis=1), X)
    check.values(lambda m, x: m.quantile(x, 0.5), N)


def test_correlation(check):
    check.values(lambda m, x: [m.cov(x[0]), m.cov(x[0], bias=True), m.corrcoef(x[0]), m.cov(x[0, 0])], X)
    check.values(lambda m, x: m.cov(x[0], x[1], rowvar=False), X)
    check.values(lambda m, x: m.cov(x[0], fweights=np.array([1, 2, 1, 3, 1]), aweights=np.arange(1.0, 6)), X)


def test_extrema_of_complex_numbers_under_masks():
    x, mask = jnp.array([[1 + 2j, -3], [2, -4]]), jnp.array([True, False])
    np.testing.assert_array_equal(jnp.min(x, axis=1, where=mask, initial=1.5), [1 + 2j, 1.5])
    np.testing.assert_array_equal(jnp.max(x, axis=1, where=mask, initial=1.5), [1.5, 2])
    assert jnp.max(jnp.zeros((0, 2), "complex64"), axis=0, initial=1).tolist() == [1, 1]
    assert np.isnan(jnp.min(x.at[0, 1].set(jnp.nan)))
    assert jnp.nanmin(x.at[0, 1].set(jnp.nan)) == -4


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "ptp", "nansum"])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_has_no_axis(name, axis):
    """NumPy takes axis 0 of one."""
    f = lambda x: getattr(jnp, name)(x, axis=axis)
    for g in (f, nx.jit(f)):
        with pytest.raises(ValueError, match="axis"):
            g(jnp.float32(1.0))


def test_spreads_of_too_few_elements_are_nan_without_a_slope():
    x, mask = jnp.array([[1.0, 2.0], [3.0, 5.0]]), jnp.array([[True], [False]])
    for f in (jnp.var, jnp.nanvar):
        assert np.isnan(f(x, axis=0, ddof=1, where=mask)).all()
        assert np.isnan(f(x, axis=0, ddof=2)).all()
        assert not nx.jvp(lambda x, f=f: f(x, axis=0, ddof=2), (x,), (x,))[1].any()
    whole = jnp.var(x, dtype="int32")
    assert whole == 2 and whole.dtype == jnp.float32
    with pytest.raises(TypeError):
        jnp.std(x, dtype="int32")
    assert np.isnan(jnp.cov(jnp.zeros((2, 0)))).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_without_nan_is_averaged_in_single(dtype):
    x = np.random.RandomState(5).randn(70000) + 40  # more than float16 counts, and a sum that it does not hold
    x[::7] = np.nan
    half = jnp.asarray(x, dtype=dtype)
    wide = np.asarray(half).astype(np.float64)
    for name in "nanmean", "nanvar", "nanstd":
        right = getattr(np, name)(wide)
        for f in getattr(jnp, name), nx.jit(getattr(jnp, name)):
            y = f(half)
            assert y.dtype == half.dtype
            np.testing.assert_allclose(float(y), right, rtol=5e-3, err_msg=name)


@pytest.mark.parametrize("dtype", sorted(map(str, dtypes.FLOAT)))
def test_extrema_begin_with_a_number_of_the_dtype(dtype):
    """Some floats of 8 bits have no infinity: what is left out is their lowest or highest number, and no NaN."""
    x = jnp.asarray(np.array([[1, 2, 3], [4, -5, 2]], np.float32)).astype(dtype)
    kept = np.array([[True, False, True], [False, True, False]])
    with_nan = jnp.where(kept, jnp.nan, x)
    wide = lambda y: np.asarray(y).astype(np.float32).tolist()
    signed = wide(x)[1][1] == -5
    assert wide(jnp.max(x, axis=1, initial=0, where=kept)) == ([3, 0] if signed else [3, wide(x)[1][1]])
    assert wide(jnp.max(x[:, :0], axis=1, initial=0)) == [0, 0]
    assert wide(jnp.min(x, axis=1, initial=4, where=kept))[0] == 1
    assert wide(jnp.nanmax(with_nan, axis=1)) == [2, 4] and wide(jnp.nanmin(with_nan, axis=1)) == [2, 2]
    assert np.asarray(jnp.nanargmax(with_nan, axis=1)).tolist() == [1, 0]
    shares = wide(nx.nn.softmax(x, where=kept, axis=1))
    assert shares[1] == [0, 1, 0] and shares[0][1] == 0 and sum(shares[0]) == pytest.approx(1, abs=0.2)
    total = wide(nx.nn.logsumexp(x, where=kept, axis=1))
    assert total[0] == pytest.approx(3.13, abs=0.2) and np.isfinite(total).all()
    slopes = nx.grad(lambda y: jnp.max(y, where=kept, initial=0).astype(np.float32))(x)
    assert wide(slopes) == [[0, 0, 1], [0, 0, 0]]
