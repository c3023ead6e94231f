"""Special functions: values and derivatives as jax.scipy.special."""

import jax
import jax.scipy.special as theirs
import mpmath
import numpy as np
import pytest

import nxjax as nx
from nxjax.scipy import special as ours

POSITIVE = np.array([0.05, 0.3, 0.9, 1.0, 2.5, 7.0, 30.0], np.float32)
REAL = np.array([-4.3, -1.5, -0.2, 0.1, 0.9, 2.5, 6.0], np.float32)
UNIT = np.array([0.001, 0.1, 0.4, 0.5, 0.77, 0.9, 0.999], np.float32)
CASES = [
    *(
        (name, (REAL,))
        for name in ("erf", "erfc", "expit", "ndtr", "log_ndtr", "i0", "i0e", "i1", "i1e", "gammaln", "gamma")
    ),
    *((name, (POSITIVE,)) for name in ("digamma", "entr", "factorial", "loggamma", "gammasgn")),
    *((name, (UNIT,)) for name in ("logit", "ndtri", "erfinv")),
    *((name, (POSITIVE, UNIT)) for name in ("beta", "betaln", "xlogy", "xlog1py", "rel_entr", "kl_div", "poch")),
    ("gammainc", (POSITIVE, POSITIVE[::-1].copy())),
    ("gammaincc", (POSITIVE, POSITIVE[::-1].copy())),
    ("betainc", (POSITIVE, UNIT * 5, UNIT[::-1].copy())),
    ("zeta", (POSITIVE + 1.2, POSITIVE[::-1].copy())),
    ("boxcox", (POSITIVE, UNIT)),
    ("boxcox1p", (POSITIVE, UNIT)),
    ("comb", (POSITIVE + 10, UNIT * 8)),
]
# No derivative there, in one or both.
NO_GRAD = {"gammasgn", "zeta", "betainc", "poch", "comb", "gammainc", "gammaincc"}


@pytest.mark.parametrize(("name", "args"), CASES)
def test_values(name, args):
    want = np.asarray(getattr(theirs, name)(*args))
    np.testing.assert_allclose(np.asarray(getattr(ours, name)(*args)), want, rtol=4e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(nx.jit(getattr(ours, name))(*args)), want, rtol=4e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "args"), [c for c in CASES if c[0] not in NO_GRAD])
def test_derivatives(name, args):
    every = tuple(range(len(args)))
    got = nx.grad(lambda *a: getattr(ours, name)(*a).sum(), every)(*args)
    want = jax.jit(jax.grad(lambda *a: getattr(theirs, name)(*a).sum(), every))(*args)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=3e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["erf", "gammaln", "expit", "ndtr", "entr", "i0e"])
def test_dtypes(name):
    for x in (np.array([1, 2], np.int32), np.array([0.5], "bfloat16"), 0.5):
        got, want = (
            getattr(ours, name)(x),
            getattr(theirs, name)(x) if name != "ndtr" or not hasattr(x, "dtype") else None,
        )
        if want is not None:
            assert got.dtype == want.dtype
            np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=2e-2, atol=1e-6)


def test_tails_against_scipy_in_double_precision():
    import scipy.special as sp

    x = nx.asarray(np.linspace(-40, 10, 51), "float64")
    np.testing.assert_allclose(np.asarray(ours.log_ndtr(x)), sp.log_ndtr(np.asarray(x)), rtol=1e-9)
    p = np.array([1e-300, 1e-20, 1e-5, 0.02, 0.024, 0.025, 0.4, 0.6, 0.99, 1 - 1e-10])
    np.testing.assert_allclose(np.asarray(ours.ndtri(nx.asarray(p, "float64"))), sp.ndtri(p), rtol=1e-8)
    a, z = (v.ravel() for v in np.meshgrid([0.01, 0.5, 3, 50, 300], [0.0, 0.1, 1, 5, 48, 310]))
    a_, z_ = nx.asarray(a, "float64"), nx.asarray(z, "float64")
    np.testing.assert_allclose(np.asarray(ours.gammainc(a_, z_)), sp.gammainc(a, z), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.asarray(ours.gammaincc(a_, z_)), sp.gammaincc(a, z), rtol=1e-7, atol=1e-14)
    b = np.full(a.shape, 2.5)
    y = z / 400
    got = ours.betainc(a_, nx.asarray(b, "float64"), nx.asarray(y, "float64"))
    np.testing.assert_allclose(np.asarray(got), sp.betainc(a, b, y), rtol=1e-9, atol=1e-300)


def test_derivatives_of_incomplete_functions():
    import scipy.special as sp

    h = 1e-5
    for a, x in ((0.5, 0.3), (2.0, 5.0), (20.0, 18.0)):
        got = nx.grad(ours.gammainc, (0, 1))(nx.asarray(a, "float64"), nx.asarray(x, "float64"))
        want = (
            (sp.gammainc(a + h, x) - sp.gammainc(a - h, x)) / (2 * h),
            (sp.gammainc(a, x + h) - sp.gammainc(a, x - h)) / (2 * h),
        )
        np.testing.assert_allclose([float(g) for g in got], want, rtol=1e-6)
    a, b, x = 2.0, 1.3, 0.7
    got = nx.grad(ours.betainc, (0, 1, 2))(*(nx.asarray(v, "float64") for v in (a, b, x)))
    want = [
        (sp.betainc(a + h, b, x) - sp.betainc(a - h, b, x)) / (2 * h),
        (sp.betainc(a, b + h, x) - sp.betainc(a, b - h, x)) / (2 * h),
        (sp.betainc(a, b, x + h) - sp.betainc(a, b, x - h)) / (2 * h),
    ]
    np.testing.assert_allclose([float(g) for g in got], want, rtol=1e-6)


def test_edges():
    inf, nan = np.inf, np.nan
    x = np.array([0.0, inf, nan, -1.0], np.float32)
    for name in ("entr", "ndtr", "log_ndtr", "erf", "loggamma"):
        np.testing.assert_allclose(np.asarray(getattr(ours, name)(x)), np.asarray(getattr(theirs, name)(x)), rtol=1e-5)
    np.testing.assert_array_equal(
        np.asarray(ours.xlogy(0.0, np.array([0, nan, 1], np.float32))),
        np.asarray(theirs.xlogy(0.0, np.array([0, nan, 1], np.float32))),
    )
    p, q = np.array([0, 0, 1, -1, 0.5], np.float32), np.array([0, 1, 0, 1, 0.5], np.float32)
    for name in ("rel_entr", "kl_div"):
        np.testing.assert_allclose(np.asarray(getattr(ours, name)(p, q)), np.asarray(getattr(theirs, name)(p, q)))
    np.testing.assert_array_equal(ours.rel_entr(x[2:], np.float32([1, nan])), [nan, nan])
    np.testing.assert_array_equal(np.asarray(ours.ndtri(np.array([0, 1, 2, -1], np.float32))), [-inf, inf, nan, nan])


def test_integers_and_errors():
    np.testing.assert_allclose(
        np.asarray(ours.polygamma(1, POSITIVE)), np.asarray(theirs.polygamma(1, POSITIVE)), rtol=1e-4
    )
    np.testing.assert_allclose(
        np.asarray(ours.multigammaln(POSITIVE + 3, 3)), np.asarray(theirs.multigammaln(POSITIVE + 3, 3)), rtol=1e-5
    )
    with pytest.raises(nx.errors.DtypeError, match="integer"):
        ours.polygamma(1.5, POSITIVE)
    with pytest.raises(nx.errors.DtypeError, match="gammaln"):
        ours.gammaln(1j)
    with pytest.raises(NotImplementedError):
        ours.zeta(2.0)
    with pytest.raises(nx.errors.ParameterError):
        ours.log_ndtr(1.0, 40)


def test_factorial_is_flat_below_zero():
    x, f = nx.array([-1.0, -2.0, -1e30, -0.5]), ours.factorial
    for _ in range(3):
        f = lambda v, f=f: nx.grad(lambda u: f(u).sum())(v)
        np.testing.assert_array_equal(f(x), 0)


def test_ndtr_is_one_function():
    """Small probabilities keep their digits, and no other function is computed beside."""
    import scipy.special as sp

    names = [e.op.name for e in nx.make_jaxpr(ours.ndtr)(np.ones(3, np.float32)).equations]
    assert sorted(set(names) - {"broadcast_in_dim"}) == ["erfc", "mul"]
    x = np.linspace(-12, 9, 400).astype(np.float32)
    np.testing.assert_allclose(np.asarray(ours.ndtr(x)), sp.ndtr(x.astype(np.float64)), rtol=3e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 4e-3), ("float16", 5e-4)])
def test_log_ndtr_far_below_zero(dtype, tolerance):
    """Value and slope against 30 digits; the slope is close to -x, the logarithms in between are not."""
    mpmath.mp.dps = 30
    for given in (-250.0, -50.0, -30.0, -10.5, -8.5, -7.75, -3.0, -0.5, 0.0, 2.0):
        x = mpmath.mpf(given)
        h = mpmath.npdf(x) / mpmath.ncdf(x)
        y, slope = nx.value_and_grad(ours.log_ndtr)(nx.asarray(given, dtype))
        assert abs(float(y) - mpmath.log(mpmath.ncdf(x))) <= tolerance * max(abs(float(y)), 1e-3)
        assert abs(float(slope) - h) <= 4 * tolerance * h
        if dtype == "float32":
            second = -h * (x + h)
            assert abs(float(nx.grad(nx.grad(ours.log_ndtr))(np.float32(given))) - second) <= 1e-3 * abs(second)
    assert float(nx.grad(ours.log_ndtr)(np.float32(-1e20))) == np.float32(1e20)
