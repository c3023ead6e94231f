"""Special functions beyond the elementary ones: values as SciPy's, derivatives as differences, edges and errors."""

import inspect

import mpmath
import numpy as np
import pytest
import scipy.special as sp

import nxjax as nx
from nxjax.scipy import special as ours

BOTH = (("float64", 4e-14), ("float32", 6e-6))


def real(low, high, both=True):
    x = np.geomspace(low, high, 2000)  # some between any two bounds of methods
    return np.concatenate([x, -x]) if both else x


def near(got, want, tol):
    got = np.asarray(got)
    np.testing.assert_allclose(got, np.asarray(want).astype(got.dtype), rtol=tol, atol=tol * 1e-2)


@pytest.mark.parametrize(("kind", "tol"), BOTH)
def test_integrals_and_error_functions(kind, tol):
    # expi is compared away from its zero, where SciPy's has no digits.
    cases = {
        "erfcx": np.concatenate([real(1e-6, 1e5, False), -real(1e-6, 4, False)]),
        "dawsn": real(1e-6, 1e5),
        "expi": np.concatenate([-real(1e-6, 60, False), real(1e-6, 0.3, False), real(0.45, 60, False)]),
        "exp1": real(1e-6, 60, False),
        "spence": real(1e-6, 1e6, False),
    }
    for name, x in cases.items():
        x = x.astype(kind)
        got = getattr(ours, name)(nx.asarray(x, kind))
        assert got.dtype == kind
        near(got, getattr(sp, name)(x.astype(float)), tol)
    for name in ("sici", "fresnel"):
        x = (real(1e-4, 60, False) if name == "sici" else real(1e-2, 60)).astype(kind)
        for got, want in zip(getattr(ours, name)(nx.asarray(x, kind)), getattr(sp, name)(x.astype(float)), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, atol=tol, rtol=tol)
    # The zero of Ei lies between these two floats.
    x = np.array([0.3725074, 0.37250742], kind)
    near(ours.expi(nx.asarray(x, kind)), np.expm1(0) + 3.89621573390716 * (x.astype(float) - 0.3725074107813666), 1e-4)


@pytest.mark.parametrize(("kind", "tol"), BOTH)
def test_functions_of_two_operands(kind, tol):
    n, x = (v.ravel() for v in np.meshgrid([0, 1, 2, 5, 40, 6000], [1e-6, 0.3, 1, 1.2, 7, 60]))
    near(ours.expn(n.astype(kind), nx.asarray(x, kind)), sp.expn(n, x.astype(kind).astype(float)), tol)
    h, a = (v.ravel().astype(kind) for v in np.meshgrid([-3, 0, 0.2, 1, 5], [-7, -1, 0, 1e-3, 0.6, 1, 30]))
    got = ours.owens_t(nx.asarray(h, kind), nx.asarray(a, kind))
    near(got, sp.owens_t(h.astype(float), a.astype(float)), tol)
    z = np.array([0, 0.1, -0.5, 1, 3, 20], kind)
    got = ours.bessel_jn(nx.asarray(z, kind), v=4)
    np.testing.assert_allclose(np.asarray(got), [sp.jv(k, z.astype(float)) for k in range(5)], atol=tol)


@pytest.mark.parametrize(("kind", "tol"), [("complex128", 1e-13), ("complex64", 6e-6)])
def test_functions_of_complex_numbers(kind, tol):
    x, y = (
        v.ravel() for v in np.meshgrid([-7.3, -0.5, 0, 0.2, 2, 4.6, 5.4, 6.4, 6.6, 30], [0, 1e-3, 0.4, 3, 4.7, 6.3, 20])
    )
    z = (x + 1j * y).astype(kind)
    for name, points in (("wofz", z), ("gamma", z[x > -7]), ("loggamma", z)):
        points = points[np.abs(points) > 0]
        got, want = (
            np.asarray(getattr(ours, name)(nx.asarray(points, kind))),
            getattr(sp, name)(points.astype("complex128")),
        )
        assert got.dtype == kind
        finite = np.isfinite(want) & (np.abs(want) < 1e30)
        assert np.max((np.abs(got - want) / np.maximum(np.abs(want), name == "loggamma"))[finite]) < 20 * tol, name
    lower = np.array([0.3 - 0.2j, 1 - 1j]).astype(kind)
    np.testing.assert_allclose(np.asarray(ours.wofz(nx.asarray(lower, kind))), sp.wofz(lower), rtol=tol)
    assert np.isnan(np.asarray(ours.gamma(np.array([-2 + 0j])))).all()


def test_hypergeometric_functions_in_all_their_regions():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-4, 6, 40), rng.uniform(0.2, 7, 40)
    x = rng.normal(size=40) * np.exp(rng.uniform(-2, 4, 40))
    double = lambda *vs: [nx.asarray(v, "float64") for v in vs]
    near(ours.hyp1f1(*double(a, b, x)), sp.hyp1f1(a, b, x), 1e-10)
    c = rng.uniform(0.5, 7, 40)
    c[:10] = a[:10] + b[:10] + np.arange(10) % 4 + 0.0
    z = np.concatenate([np.linspace(0.91, 0.999, 15), np.linspace(-8, 0.9, 25)])
    fine = c > 0.1
    got = np.asarray(ours.hyp2f1(*double(a, b, c, z)))
    np.testing.assert_allclose(got[fine], sp.hyp2f1(a, b, c, z)[fine], rtol=1e-8)
    edges = [(1, 2, 3, 1), (0, 2, 3, 0.5), (1, 1, 0, 0.5), (-2, 2, 3, 4.0), (1, 1, 2.5, 2.0)]
    for case in edges:
        near(ours.hyp2f1(*double(*case)), sp.hyp2f1(*case), 1e-12)


def test_derivatives_are_differences():
    h = 1e-6
    double = lambda vs: [nx.asarray(float(v), "float64") for v in vs]
    cases = [ ("owens_t", (0.8, 1.4)), ("zeta", (2.3, 1.7)),
        ("gammainc", (2.5, 1.7)),  ("betainc", (2.0, 1.3, 0.7)), ("betaln", (3.0, 40.0)),
        ("poch", (2.2, 1.4)), ("erfcx", (0.8,)), ("dawsn", (0.8,)), ("expi", (0.8,)), ("exp1", (0.8,)),
        ("spence", (1.0,)),
    ]  # fmt: skip
    for name, args in cases:
        f = getattr(ours, name)
        got = nx.grad(f, tuple(range(len(args))))(*double(args))
        for i, slope in enumerate(got):
            low, high = ([v + s * h * (i == j) for j, v in enumerate(args)] for s in (-1, 1))
            want = (float(f(*double(high))) - float(f(*double(low)))) / (2 * h)
            np.testing.assert_allclose(float(slope), want, rtol=1e-6, err_msg=f"{name} {i}")
    a, b, c, x = double((1.3, 0.4, 2.1, 0.3))
    _, t = nx.jvp(lambda v: ours.hyp2f1(a, b, v, x), (c,), double((1.0,)))
    want = (sp.hyp2f1(1.3, 0.4, 2.1 + h, 0.3) - sp.hyp2f1(1.3, 0.4, 2.1 - h, 0.3)) / (2 * h)
    np.testing.assert_allclose(float(t), want, rtol=1e-6)
    # Of second order, in reverse mode twice, where the slopes come from loops.
    twice = nx.grad(nx.grad(ours.gammainc, 0), 0)(*double((2.5, 1.7)))
    slope = lambda v: float(nx.grad(ours.gammainc, 0)(*double((v, 1.7))))
    np.testing.assert_allclose(float(twice), (slope(2.5 + h) - slope(2.5 - h)) / (2 * h), rtol=1e-5)
    # An operand that is not differentiated has no part in the slope, however steep the function is in it.
    assert float(nx.jvp(lambda a: ours.gammainc(a, 0.0), (0.5,), (1.0,))[1]) == 0


def test_sequences_and_harmonics():
    np.testing.assert_allclose(np.asarray(ours.bernoulli(20)), sp.bernoulli(20), rtol=1e-6)
    assert [len(ours.bernoulli(k)) for k in range(4)] == [1, 2, 3, 4]
    n, m = np.array([0, 1, 1, 2, 5, 9]), np.array([0, 0, -1, 2, -3, 9])
    theta, phi = np.linspace(0, 3.1, 6), np.linspace(0, 6, 6)
    got = ours.sph_harm_y(n, m, nx.asarray(theta, "float64"), nx.asarray(phi, "float64"))
    np.testing.assert_allclose(np.asarray(got), sp.sph_harm_y(n, m, theta, phi), atol=1e-14)
    traced = nx.jit(lambda k: ours.sph_harm_y(k, m, theta, phi, n_max=9))(n)
    np.testing.assert_allclose(np.asarray(traced), sp.sph_harm_y(n, m, theta, phi), atol=1e-5)
    with pytest.raises(nx.errors.ConcretizationTypeError, match="n_max"):
        nx.jit(lambda k: ours.sph_harm_y(k, m, theta, phi))(n)


def test_edges_narrow_floats_and_errors():
    inf, nan = np.inf, np.nan
    x = np.array([0.0, -1.0, inf, -inf, nan], np.float32)
    for name in ("erfcx", "dawsn", "expi", "exp1"):
        np.testing.assert_allclose(np.asarray(getattr(ours, name)(x)), getattr(sp, name)(x), rtol=1e-5, err_msg=name)
    n, y = np.array([2, 1, 0, 2, -1, 2], np.float32), np.array([0, 0, 0, inf, 1, nan], np.float32)
    np.testing.assert_array_equal(np.asarray(ours.expn(n, y)), [1, inf, inf, 0, nan, nan])
    for name in ("erfcx", "dawsn", "expi", "exp1"):
        got = getattr(ours, name)(nx.asarray([0.7], "bfloat16"))
        assert got.dtype == "bfloat16"
        np.testing.assert_allclose(np.asarray(got, np.float32), getattr(sp, name)([0.7]), rtol=1e-2)
    for name in ("dawsn", "expi", "exp1", "sici"):
        with pytest.raises(ValueError, match=name):
            getattr(ours, name)(1j)
    with pytest.raises(NotImplementedError, match="fresnel"):
        ours.fresnel(1j)
    with pytest.raises(nx.errors.DtypeError, match="spence"):
        ours.spence(1)
    with pytest.raises(ValueError, match="bernoulli"):
        ours.bernoulli(-1)
    np.testing.assert_allclose(np.asarray(nx.jit(nx.vmap(ours.erfcx))(x)), np.asarray(ours.erfcx(x)), rtol=1e-6)


def test_parameters_have_the_names_of_jax():
    jax = pytest.importorskip("jax.scipy.special")
    names = lambda f: [(p.name, p.kind) for p in inspect.signature(f).parameters.values()]
    assert {n: names(getattr(ours, n)) for n in ours.__all__} == {n: names(getattr(jax, n)) for n in ours.__all__}


@pytest.mark.parametrize(("kind", "tol"), [*BOTH, ("float16", 2e-3), ("bfloat16", 1e-2)])
def test_entropies_of_numbers_that_are_close_or_far_apart(kind, tol):
    base = np.array([1e-3, 0.02, 0.7, 1, 3, 250] if kind == "float16" else [1e-30, 0.02, 0.7, 1, 3, 1e30])
    ratio = np.array([1, 1 + 2.0**-20, 1 + 2.0**-9, 0.99, 1.2, 0.6, 1.66, 1.7, 2.1, 0.3, 20])
    q = np.asarray(nx.asarray(np.repeat(base, len(ratio)), kind)).astype(float)
    p = np.asarray(nx.asarray(q * np.tile(ratio, len(base)), kind)).astype(float)
    for name in ("rel_entr", "kl_div"):
        f = getattr(ours, name)
        with mpmath.workdps(40):
            pairs = [(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(p, q, strict=True)]
            want = [float(a * mpmath.log(a / b) - (a - b) * (name == "kl_div")) for a, b in pairs]
        for run in f, nx.jit(f):
            got = np.asarray(run(nx.asarray(p, kind), nx.asarray(q, kind))).astype(float)
            tiny = 6e-8 if kind == "float16" else 1e-37
            np.testing.assert_allclose(got, want, rtol=tol, atol=tiny, err_msg=name)
    slopes = nx.grad(lambda p, q: ours.kl_div(p, q).sum(), (0, 1))(nx.asarray(p, kind), nx.asarray(q, kind))
    close = {"rtol": tol, "atol": tol * 1e-3}
    np.testing.assert_allclose(np.asarray(slopes[0]).astype(float), np.log1p((p - q) / q), **close)
    np.testing.assert_allclose(np.asarray(slopes[1]).astype(float), (q - p) / q, **close)
    assert float(ours.kl_div(3e38, 2.9e38)) == pytest.approx(sp.kl_div(3e38, 2.9e38), rel=1e-3)


def test_python_numbers_yield_where_the_function_does():
    yields = {"erf": True, "erfc": True, "erfinv": True, "erfcx": False, "dawsn": False, "exp1": False, "spence": False}
    for name, weak in yields.items():
        assert getattr(ours, name)(0.5).weak_type is weak, name
    assert not ours.owens_t(0.5, 0.5).weak_type
    assert ours.owens_t(nx.asarray([0.5], "float16"), 0.5).dtype == np.float32
    assert not any(y.weak_type for y in ours.sici(0.5))
    half = nx.asarray([1.0, 0.0], "float16")
    assert ours.rel_entr(half, 0.5).dtype == ours.betainc(2.0, 3.0, half).dtype == half.dtype


def test_slopes_and_values_at_edges():
    near = lambda got, want, rtol=2e-6: np.testing.assert_allclose(np.asarray(got), want, rtol=rtol)
    near(ours.i0(-90.0), sp.i0(-90.0), 1e-5)  # exp(90) has no float32
    near(ours.i1(90.0), sp.i1(90.0), 1e-5)
    near(nx.grad(ours.betaln, 1)(0.001, 1000.0), sp.digamma(1000.0) - sp.digamma(1000.001))
    near(ours.betaln(-0.25, 1e30), sp.betaln(-0.25, 1e30))
    assert np.isnan(nx.grad(ours.betaln, 1)(0.0, 2.0))
    near(nx.grad(ours.boxcox, 1)(3.0, 1e-6), 0.5 * np.log(3.0) ** 2, 1e-5)
    near(nx.grad(ours.boxcox1p, 1)(2.0, 2.0), (9 * np.log(3.0) - 4) / 2)
    assert nx.grad(ours.boxcox)(0.0, 0.0) == np.inf
    near(ours.boxcox(nx.array(1 + 2j), 0.5), 2 * (np.sqrt(1 + 2j) - 1))
    assert nx.grad(ours.zeta, 1)(2.0, 0.0) == -np.inf
    assert np.isnan(ours.spence(nx.array(np.inf)))
    none = nx.array(np.zeros((0, 3), np.float32))
    assert ours.hyp2f1(none, none, none, none).shape == (0, 3)
    # Far out the two terms of the slope cancel.
    z = np.array([18.2 - 11j, 14.3 + 7.7j, 0.5 - 3j], np.complex64)
    slope = nx.jvp(ours.wofz, (nx.asarray(z),), (nx.asarray(np.ones_like(z)),))[1]
    near(slope, 2j / np.sqrt(np.pi) - 2 * z.astype(complex) * sp.wofz(z.astype(complex)))
    assert ours.wofz(nx.asarray([0.5], "bfloat16")).dtype == np.complex64
    real = lambda v: ours.sph_harm_y(np.array([0, 1, 2]), np.array([0, 1, 0]), v, v, n_max=2).real.sum()
    at = np.array([0.4, 0.7, 1.1])
    want = np.sqrt(1.5 / np.pi) / 2 * -np.cos(1.4), np.sqrt(5 / np.pi) / 4 * -3 * np.sin(2.2)
    near(nx.grad(real)(nx.asarray(at, "float32")), np.array([0.0, *want]), 1e-5)


_SCALED = {
    "erfcx": (
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        lambda x, y: 2 * x * y - 2 / mpmath.sqrt(mpmath.pi),
        lambda x, y, s: 2 * y + 2 * x * s,
    ),
    "dawsn": (
        lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x),
        lambda x, y: 1 - 2 * x * y,
        lambda x, y, s: -2 * y - 2 * x * s,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", _SCALED)
def test_slopes_of_scaled_integrals_keep_their_digits(name, dtype):
    """By their equations, slopes are differences of nearly equal numbers where x is large."""
    value, slope, bend = _SCALED[name]
    places = 10.0 ** np.linspace(-6, 8, 141)
    places = places[abs(places - 0.924) > 0.1]  # the maximum of Dawson's integral
    with nx.enable_x64(dtype == "float64"), mpmath.workdps(150):
        x = np.asarray(nx.numpy.asarray(np.concatenate([places, -places[places < 1.5]]), dtype))
        info = nx.numpy.finfo(dtype)
        exact = [mpmath.mpf(float(v)) for v in x]
        ys = [value(v) for v in exact]
        first = [slope(v, y) for v, y in zip(exact, ys, strict=True)]
        second = [bend(v, y, s) for v, y, s in zip(exact, ys, first, strict=True)]
        f = getattr(ours, name)
        run = lambda x: nx.jvp(f, (x,), (nx.numpy.ones_like(x),))[1]
        again = lambda x: nx.jvp(run, (x,), (nx.numpy.ones_like(x),))[1]
        back = nx.grad(lambda x: f(x).sum())
        most = 16 if dtype != "float64" else 100
        # Near its bounds the second derivative of a sum of polynomials is as good as the fourth power of their degree.
        for way, want, limit in (
            (run, first, most), (nx.jit(run), first, most), (back, first, most), (again, second, 1e5),
        ):  # fmt: skip
            want = np.array([float(v) for v in want])
            got = np.asarray(way(nx.numpy.asarray(x))).astype(np.float64)
            seen = np.abs(want) > float(info.tiny) * 4
            off = np.abs(got - want)[seen] / np.abs(want)[seen] / float(info.eps)
            assert off.max() < limit, x[seen][off.argmax()]
