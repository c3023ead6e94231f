"""Summaries of data, kernel density estimates, and what distributions do with NaN, as SciPy's."""

import numpy as np
import pytest
import scipy.stats as sp

import nxjax as nx
from nxjax.scipy import stats as ours


def test_modes_ranks_and_standard_errors():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (4, 5))
    for axis in (0, 1, -1, None):
        for keepdims in (False, True):
            got, want = ours.mode(x, axis=axis, keepdims=keepdims), sp.mode(x, axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(np.asarray(got.mode), want.mode)
            np.testing.assert_array_equal(np.asarray(got.count), want.count)
        np.testing.assert_allclose(np.asarray(ours.sem(x, axis=axis)), sp.sem(x, axis=axis), rtol=1e-6)
        for method in ("average", "min", "max", "dense", "ordinal"):
            want = sp.rankdata(x, method, axis=axis)
            np.testing.assert_array_equal(np.asarray(ours.rankdata(x, method, axis=axis)), want)
    assert np.isnan(np.asarray(ours.rankdata(np.array([1.0, np.nan])))).all()
    assert ours.mode(np.zeros((0, 3))).mode.shape == (3,)
    holes = np.array([[1, 2, np.nan], [4, 5, 4]], np.float32)
    want = np.array([1.5, 1.5, np.nan])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(np.asarray(ours.sem(holes, nan_policy="omit")), want, rtol=1e-6)
    for f in (ours.mode, ours.rankdata):
        with pytest.raises(NotImplementedError, match="omit"):
            f(x, nan_policy="omit")
        with pytest.raises(ValueError, match="nan_policy"):
            f(x, nan_policy="other")
    with pytest.raises(ValueError, match="unknown method"):
        ours.rankdata(x, "best")


def test_gaussian_kde():
    rng = np.random.default_rng(1)
    for data, method, weights in (
        (rng.normal(size=12), None, None),
        (rng.normal(size=(2, 15)), "silverman", rng.random(15)),
        (rng.normal(size=12), 0.5, None),
    ):
        double = lambda v: None if v is None else nx.asarray(v, "float64")
        got, want = ours.gaussian_kde(double(data), method, double(weights)), sp.gaussian_kde(data, method, weights)
        points = rng.normal(size=(got.d, 5))
        x = double(points)
        np.testing.assert_allclose(np.asarray(got(x)), want(points), rtol=1e-10)
        np.testing.assert_allclose(np.asarray(got.logpdf(x)), want.logpdf(points), rtol=1e-10)
        mean, cov = np.full(got.d, 0.2), 0.7 * np.eye(got.d)
        np.testing.assert_allclose(
            float(got.integrate_gaussian(double(mean), double(cov))), want.integrate_gaussian(mean, cov), rtol=1e-10
        )
        np.testing.assert_allclose(float(got.integrate_kde(got)), want.integrate_kde(want), rtol=1e-10)
        np.testing.assert_allclose(np.asarray(nx.jit(lambda k, v: k.pdf(v))(got, x)), want(points), rtol=1e-10)
        assert got.resample(nx.random.key(0), (3,)).shape == (got.d, 3)
        if got.d == 1:
            area = float(got.integrate_box_1d(-1.0, 0.5))
            np.testing.assert_allclose(area, want.integrate_box_1d(-1.0, 0.5), rtol=1e-6)
    with pytest.raises(ValueError, match="bw_method"):
        ours.gaussian_kde(data, "other")
    with pytest.raises(ValueError, match="multiple elements"):
        ours.gaussian_kde(1.0)
    with pytest.raises(AttributeError, match="field"):
        got.d = 3
    with pytest.raises(NotImplementedError):
        got.set_bandwidth()


def test_nan_stays_nan_and_parameters_outside_their_domain_give_it():
    nan = float("nan")
    values = [
        ours.bernoulli.logpmf(nan, 0.3), ours.binom.logpmf(1.0, 5, nan), ours.beta.logpdf(nan, 2.0, 1.0),
        ours.gamma.logpdf(nan, 2.0), ours.expon.logpdf(nan), ours.geom.logpmf(nan, 0.3), ours.pareto.logpdf(nan, 2.0),
        ours.poisson.cdf(nan, 2.0), ours.nbinom.logpmf(nan, 3.0, 0.2),
        ours.beta.logpdf(0.5, -1.0, 2.0), ours.gumbel_r.cdf(0.1, 0.0, -1.0), ours.gumbel_l.pdf(0.1, 0.0, 0.0),
        ours.betabinom.logpmf(1.0, 5.0, -1.0, 2.0), ours.poisson.entropy(-1.0),
    ]  # fmt: skip
    assert np.isnan([float(v) for v in values]).all()
    # Outside the support the slope is 0.
    assert float(nx.grad(ours.pareto.logcdf)(0.5, 2.0)) == 0
    mu = np.array([0.1, 5.0, 60.0, 99.0, 100.0, 140.0])
    np.testing.assert_allclose(
        np.asarray(ours.poisson.entropy(nx.asarray(mu, "float64"))), sp.poisson.entropy(mu), rtol=2e-6
    )
    large = ours.beta.logpdf(nx.asarray(0.5, "float64"), 1e6, 1e6)
    np.testing.assert_allclose(float(large), sp.beta.logpdf(0.5, 1e6, 1e6), rtol=1e-7)
    # Where scale is no scale, what is left of the formula.
    x, scale = np.array([3.0, 3.0, 3.0], np.float32), np.array([-1.0, np.inf, -np.inf], np.float32)
    found = np.asarray(ours.pareto.cdf(x, 2.0, 0.0, scale))
    np.testing.assert_array_equal(found, np.float32([8 / 9, 0, -np.inf]))
    assert np.isnan(ours.chi2.pdf(1.0, -np.inf))
    assert np.isnan(nx.grad(ours.binom.logpmf, 1)(5.0, 5.0, 1.0))


def test_too_few_elements_have_no_error_and_no_slope():
    one = nx.array([2.0])
    assert np.isnan(ours.sem(one)) and ours.sem(one).dtype == one.dtype and not ours.sem(one).weak_type
    assert np.isnan(np.asarray(nx.grad(ours.sem)(one))).all()


def test_dtype_and_strength_are_those_of_what_is_asked():
    x = nx.asarray([0.25, 0.5], "bfloat16")
    assert ours.uniform.pdf(x, 0.0, 2.0).dtype == ours.norm.cdf(x, 0.0, 2.0).dtype == x.dtype
    for found in (ours.bernoulli.logpmf, ours.geom.pmf, ours.poisson.cdf):
        assert found(1, 0.5).weak_type
        assert not found(nx.array([1, 2]), 0.5).weak_type
    assert not ours.uniform.cdf(0.5).weak_type
    # Half floats are widened before what cancels.
    half = ours.beta.logpdf(nx.asarray([0.75], "bfloat16"), 1.87, 1.87)
    np.testing.assert_allclose(np.asarray(half, np.float32), sp.beta.logpdf(0.75, 1.8672, 1.8672), rtol=5e-3)


def test_error_of_the_mean_of_more_than_float16_counts():
    x = nx.array(np.random.RandomState(0).randn(70000), "float16")
    for f in ours.sem, nx.jit(ours.sem), lambda v: ours.sem(v, nan_policy="omit"):
        assert f(x).dtype == x.dtype
        np.testing.assert_allclose(float(f(x)), float(np.std(np.asarray(x, float)) / 70000**0.5), rtol=2e-3)
