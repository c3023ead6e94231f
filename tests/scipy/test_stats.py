"""Distributions: values and derivatives as jax.scipy.stats."""

import importlib

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.scipy import stats

X = np.array([-3.0, -0.7, 0.0, 0.2, 0.8, 1.0, 2.0, 3.0, 11.5], np.float32)
K = np.array([-1, 0, 1, 2, 3, 5, 7], np.float32)
UNIT = np.array([0.01, 0.2, 0.5, 0.9, 0.99], np.float32)
PARAMETERS = {
    "norm": (0.3, 1.7),
    "expon": (0.3, 1.7),
    "laplace": (0.3, 1.7),
    "logistic": (0.3, 1.7),
    "uniform": (0.3, 1.7),
    "cauchy": (0.3, 1.7),
    "gumbel_l": (0.3, 1.7),
    "gumbel_r": (0.3, 1.7),
    "gamma": (2.3, 0.1, 1.7),
    "chi2": (3.0, 0.1, 1.7),
    "beta": (2.3, 1.4, -0.1, 4.0),
    "t": (3.0, 0.1, 1.7),
    "pareto": (1.5, 0.1, 0.5),
    "gennorm": (1.5,),
    "vonmises": (1.5,),
    "wrapcauchy": (0.4,),
    "truncnorm": (-1.0, 1.5, 0.3, 1.7),
    "bernoulli": (0.3,),
    "binom": (5.0, 0.3),
    "geom": (0.3,),
    "nbinom": (5.0, 0.3),
    "betabinom": (5.0, 1.2, 2.3),
    "poisson": (2.3,),
}
FUNCTIONS = ("logpdf", "pdf", "logpmf", "pmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")


def modules(name):
    return importlib.import_module(f"nxjax.scipy.stats.{name}"), importlib.import_module(f"jax.scipy.stats.{name}")


def present(name):
    ours, theirs = modules(name)
    return [f for f in FUNCTIONS if hasattr(theirs, f) and (f != "ppf" or name != "poisson")], ours, theirs


@pytest.mark.parametrize("name", PARAMETERS)
def test_values(name):
    functions, ours, theirs = present(name)
    assert functions
    points = {
        f: UNIT if f in ("ppf", "isf") else K if "pmf" in f or name in ("bernoulli", "poisson") else X
        for f in functions
    }
    # All of JAX's are compiled as one.
    wanted = jax.jit(lambda at: {f: getattr(theirs, f)(x, *PARAMETERS[name]) for f, x in at.items()})(points)
    for f, x in points.items():
        got = np.asarray(getattr(ours, f)(x, *PARAMETERS[name]))
        want = np.asarray(wanted[f])
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6, err_msg=f)
        assert got.dtype == want.dtype


# JAX's own derivative of the Gumbel densities raises.
@pytest.mark.parametrize("name", [n for n in PARAMETERS if not n.startswith("gumbel")])
def test_derivatives_of_the_logarithm_of_the_density(name):
    _, ours, theirs = present(name)
    f = "logpdf" if hasattr(theirs, "logpdf") else "logpmf"
    x = np.array([0.45, 0.8, 1.3], np.float32) if f == "logpdf" else np.array([1, 0, 1], np.float32)
    if name == "geom":
        x = x + 1
    every = tuple(range(len(PARAMETERS[name]) + (f == "logpdf")))
    start = 0 if f == "logpdf" else 1
    args = (x, *PARAMETERS[name])
    chosen = tuple(i + start for i in every)
    got = nx.grad(lambda *a: getattr(ours, f)(*a).sum(), chosen)(*args)
    want = jax.jit(jax.grad(lambda *a: getattr(theirs, f)(*a).sum(), chosen))(*args)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=2e-3, atol=1e-4)


def test_vectors():
    rng = np.random.default_rng(0)
    ours, theirs = modules("multivariate_normal")
    a = rng.normal(size=(3, 3)).astype(np.float32)
    cov, mean, x = (
        a @ a.T + np.eye(3, dtype=np.float32),
        rng.normal(size=3).astype(np.float32),
        rng.normal(size=(4, 3)).astype(np.float32),
    )
    for c in (cov, 2.0):
        np.testing.assert_allclose(
            np.asarray(ours.logpdf(x, mean, c)), np.asarray(theirs.logpdf(x, mean, c)), rtol=1e-4
        )
    for shape in ((3,), (1, 3), (2, 4, 3), (0, 3)):
        many = rng.normal(size=shape).astype(np.float32)
        for c in (cov, np.stack([cov, cov, 2 * cov, cov])[: shape[-2] if len(shape) == 3 else 1]):
            want = np.asarray(theirs.logpdf(many, mean, c))
            np.testing.assert_allclose(np.asarray(ours.logpdf(many, mean, c)), want, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(ours.pdf(X, 0.3, 2.0)), np.asarray(theirs.pdf(X, 0.3, 2.0)), rtol=1e-4)
    with pytest.raises(nx.errors.ShapeError):
        ours.logpdf(x, mean, cov[:2, :2])
    ours, theirs = modules("dirichlet")
    alpha, p = np.array([0.5, 1.0, 2.0], np.float32), np.array([[0.2, 0.1], [0.3, 0.3], [0.5, 0.6]], np.float32)
    np.testing.assert_allclose(np.asarray(ours.logpdf(p, alpha)), np.asarray(theirs.logpdf(p, alpha)), rtol=1e-4)
    np.testing.assert_allclose(
        np.asarray(ours.logpdf(p[:2], alpha)), np.asarray(theirs.logpdf(p[:2], alpha)), rtol=1e-4
    )
    ours, theirs = modules("multinomial")
    counts = np.array([1, 2, 1], np.int32)
    for n in (4, 5):
        np.testing.assert_allclose(
            np.asarray(ours.logpmf(counts, n, p[:, 0])), np.asarray(theirs.logpmf(counts, n, p[:, 0])), rtol=1e-4
        )


def test_integers_become_float():
    ours, theirs = modules("norm")
    assert ours.logpdf(1).dtype == theirs.logpdf(1).dtype
    np.testing.assert_allclose(float(ours.logpdf(1)), float(theirs.logpdf(1)), rtol=1e-6)


def test_slopes_beyond_the_support_and_where_pieces_meet():
    x, s = np.float32([-np.inf, -3, 0.3, np.inf]), stats
    flat = lambda f, *a: np.asarray(nx.grad(lambda v: f(v, *a).sum())(x)).tolist()
    # Beyond the support nothing moves; at a point that two pieces share, the slope is that of the piece it is in.
    assert flat(s.expon.logcdf, 0.5)[:3] == [0, 0, 0]
    assert flat(s.gamma.cdf, 2.3, 0.5) == flat(s.beta.cdf, 2.0, 3.0, 0.5) == [0, 0, 0, 0]
    assert flat(s.gamma.logcdf, 2.3, 0.5)[:2] == flat(s.cauchy.logcdf)[:1] * 2 == [0, 0]
    assert flat(s.gumbel_l.logpdf, 0.3, -1.0)[1:3] == [0, 0]
    np.testing.assert_allclose(flat(s.laplace.cdf, 0.3, 2.0)[2], 0.25)
    np.testing.assert_allclose(flat(s.uniform.cdf, 0.3, 2.0), [0, 0, 0.5, 0])
    # The logarithm of a small probability is not lost to rounding.
    np.testing.assert_allclose(float(s.gumbel_l.logcdf(-40.0, 0.3, 1.7)), -23.7058817, rtol=1e-6)
    np.testing.assert_allclose(float(s.gumbel_r.logsf(40.0, 0.3, 1.7)), -23.3529412, rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in PARAMETERS if hasattr(getattr(stats, n), "logpdf")])
def test_no_slope_beyond_the_support_is_nan(name):
    family = getattr(stats, name)
    for function in FUNCTIONS[:2] + FUNCTIONS[4:8]:
        f = getattr(family, function, None)
        if f is None:
            continue
        for x in (-40.0, -3.0, -0.2, 0.0, 0.2, 3.0, 40.0):
            y, slopes = nx.value_and_grad(f, tuple(range(1 + len(PARAMETERS[name]))))(x, *PARAMETERS[name])
            assert not np.isnan(y) and not np.isnan(slopes).any(), (function, x)
    if name in ("gamma", "chi2", "beta"):
        for slope in nx.grad(family.logcdf, tuple(range(1, 1 + len(PARAMETERS[name]))))(-3.0, *PARAMETERS[name]):
            assert slope == 0
    if name == "gennorm":
        np.testing.assert_allclose(nx.grad(family.cdf)(0.0, 1.5), family.pdf(0.0, 1.5), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in PARAMETERS if hasattr(getattr(stats, n), "pdf")])
def test_slopes_of_probabilities_are_densities(name):
    """In the tails too: where a probability is near 1, its slope has its digits."""
    family, parameters = getattr(stats, name), PARAMETERS[name]
    x = np.linspace(-8.05, 8.05, 71, dtype=np.float32)
    with nx.enable_x64(True):
        density = np.asarray(family.pdf(nx.numpy.asarray(x, np.float64), *parameters))
    seen = density > 1e-20
    for function, sign in (("cdf", 1), ("sf", -1)):
        f = getattr(family, function, None)
        if f is not None:
            slopes = sign * np.asarray(nx.vmap(nx.grad(lambda v, f=f: f(v, *parameters)))(x))
            np.testing.assert_allclose(slopes[seen], density[seen], 1e-3)


def test_tails_of_cauchy():
    q = np.float32([0, 1e-30, 1e-8, 0.2, 0.25, 0.5, 0.8, 1, -0.1, 1.1, np.nan])
    x = np.float32([-np.inf, -1e30, -1e4, -1, 0, 3, 1e4, 1e30, np.inf])
    s = stats.cauchy
    ppf = np.array([-np.inf, -6.366197703e29, -63661976.7, -2.252763840968, -1.5, 0.5, 3.252763840968, np.inf])
    ppf = np.append(ppf, [np.nan] * 3)
    cdf = [0, 3.183098814e-31, 3.183098851e-5, 0.25, 0.5, 0.8975836176504333, 0.9999681690, 1, 1]
    for turned in (lambda f: f), nx.jit:
        np.testing.assert_allclose(turned(lambda v: s.ppf(v, 0.5, 2))(q), ppf, rtol=1e-6)
        np.testing.assert_allclose(turned(lambda v: s.isf(v, -0.5, 2))(q), -ppf, rtol=1e-6)
        np.testing.assert_allclose(turned(s.cdf)(x), cdf, rtol=1e-6)
        np.testing.assert_allclose(turned(s.sf)(-x), cdf, rtol=1e-6)
    np.testing.assert_allclose(nx.vmap(nx.grad(s.ppf))(q[3:7]), np.pi / np.sin(np.pi * q[3:7]) ** 2, rtol=1e-6)


def test_nan_is_not_outside_of_a_support():
    s, numbers = stats, np.float32([np.nan, 1])
    for f in (
        lambda v: s.uniform.pdf(v),
        lambda v: s.uniform.pdf(0.5, v),
        lambda v: s.poisson.pmf(v, 2.5),
        lambda v: s.binom.pmf(v, 5, 0.4),
        lambda v: s.binom.pmf(1, v, 0.4),
        lambda v: s.multinomial.pmf(nx.numpy.stack([v, 2 + 0 * v], -1), 3, np.float32([0.5, 0.5])),
        lambda v: s.dirichlet.pdf(nx.numpy.stack([v * 0.2, 1 - v * 0.2]), np.float32([0.5, 0.5])),
    ):
        for turned in f, nx.jit(f):
            assert np.isnan(turned(numbers)).tolist() == [True, False]
