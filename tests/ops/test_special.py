"""Special functions: every law, against SciPy in float32 and float64."""

import mpmath
import numpy as np
import pytest
import scipy.special as peer

import nxjax as nx
from nxjax.errors import DtypeError, GradientError
from nxjax.ops import special as ops
from nxjax.testing import bad, check_op, executors, sample

LINE = np.linspace(-4.7, 4.7, 12) + 0.013
POSITIVE = np.linspace(0.3, 20, 12)
UNARY = {
    "erf": (LINE, peer.erf),
    "erfc": (LINE, peer.erfc),
    "erf_inv": (np.linspace(-0.999, 0.999, 12), peer.erfinv),
    "lgamma": (LINE, peer.gammaln),
    "digamma": (LINE, peer.digamma),
    "bessel_i0e": (np.linspace(-50, 50, 12), peer.i0e),
    "bessel_i1e": (np.linspace(-50, 50, 12), peer.i1e),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unary(name, dtype):
    x, reference = UNARY[name]
    check_op(
        getattr(ops, name),
        [sample(x.astype(dtype))],
        [bad(np.int32(1), error=DtypeError, says="i32")],
        reference=lambda v: reference(v.astype(np.float64)).astype(dtype),
        rtol=3e-5 if dtype is np.float32 else 1e-10,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_and_polygamma(dtype):
    rtol = 3e-5 if dtype is np.float32 else 1e-10
    s = np.full_like(POSITIVE, 2.5).astype(dtype)
    zeta = lambda s, q: peer.zeta(s.astype(float), q.astype(float)).astype(dtype)
    check_op(ops.zeta, [sample(s, POSITIVE.astype(dtype), differentiable=False)], reference=zeta, rtol=rtol)
    for order in (0, 1, 3):
        m = np.full_like(POSITIVE, order).astype(dtype)
        reference = lambda m, x: peer.polygamma(m.astype(int), x.astype(float)).astype(dtype)
        check_op(
            ops.polygamma, [sample(m, POSITIVE.astype(dtype), differentiable=False)], reference=reference, rtol=rtol
        )


def test_edges():
    x = nx.array([-1.0, 1.0, 2.0])
    np.testing.assert_array_equal(ops.erf_inv(x), [-np.inf, np.inf, np.nan])
    assert np.isposinf(ops.lgamma(nx.array(0.0)))
    assert np.isposinf(ops.lgamma(nx.array(-2.0)))
    assert np.isnan(ops.digamma(nx.array(-2.0)))
    assert np.isposinf(ops.zeta(nx.array(1.0), nx.array(2.0)))


def test_second_operands_have_derivatives():
    q = nx.array(2.5, nx.float64)
    one = nx.array(1.0, nx.float64)
    np.testing.assert_allclose(nx.grad(lambda v: ops.polygamma(one, v))(q), peer.polygamma(2, 2.5), rtol=1e-10)
    slope = nx.grad(lambda v: ops.zeta(nx.array(3.0, nx.float64), v))(q)
    np.testing.assert_allclose(slope, -3 * peer.zeta(4, 2.5), rtol=1e-10)


def test_zeta_at_and_beyond_its_poles():
    s = np.array([2, 3, 2.5, 2.5, 2, 1, 0.5, 4], np.float32)
    q = np.array([-1, -1, -1, -0.5, -0.5, 2, 2, 0], np.float32)
    expected = np.array([np.inf, np.nan, np.nan, np.nan, 8.934802, np.inf, np.nan, np.inf], np.float32)
    check_op(ops.zeta, [sample(s, q, differentiable=False)], reference=lambda s, q: expected)


NEGATIVE = np.array([-0.25, -3.3125, -7.984375, -11.5, -12.5, -13.46875, -20.3125, -50.6875, -1000.25])


def _polygamma(m, x):
    """By mpmath: the terms below 0 one by one, and the others."""
    with mpmath.workdps(50):
        x = mpmath.mpf(x)
        count = max(0, -int(mpmath.floor(x)))
        total = mpmath.zeta(m + 1, x + count) + mpmath.fsum((x + k) ** -(m + 1) for k in range(count))
        return float((-1) ** (m + 1) * mpmath.factorial(m) * total)


@pytest.mark.parametrize("executor", ["eager", *executors()])
def test_derivatives_of_digamma_at_negative_numbers(executor):
    settings = {} if executor == "eager" else {"executor": executor}
    turned = (lambda f: f) if executor == "eager" else nx.jit
    x = nx.array(NEGATIVE, nx.float64)
    slope = ops.digamma
    with nx.config.using(**settings):
        for order in (1, 2, 3, 8, 15):
            wanted = [_polygamma(order, v) for v in NEGATIVE]
            got = turned(ops.polygamma)(nx.numpy.full_like(x, order), x)
            np.testing.assert_allclose(got, wanted, rtol=1e-11)
            if order <= 3:
                slope = nx.grad(slope)
                np.testing.assert_allclose(turned(nx.vmap(slope))(x), wanted, rtol=1e-11)


def test_derivatives_of_bessel_i1e_next_to_zero():
    x = np.array([1e-45, 4e-45, -1e-38, 1e-20, -1e-10, 1e-5, 0.1, 0.99, 1.01, 3], np.float32)
    scaled = lambda v: mpmath.exp(-abs(v)) * mpmath.besseli(1, v)
    first = [float(mpmath.diff(scaled, v)) if abs(v) > 1e-6 else 0.5 for v in map(mpmath.mpf, map(float, x))]
    second = [
        float(mpmath.diff(scaled, v, 2)) if abs(v) > 1e-6 else -float(mpmath.sign(v))
        for v in map(mpmath.mpf, map(float, x))
    ]
    slope = nx.vmap(nx.grad(ops.bessel_i1e))
    curve = nx.vmap(nx.grad(nx.grad(ops.bessel_i1e)))
    for turned in (lambda f: f), nx.jit:
        np.testing.assert_allclose(turned(slope)(x), first, rtol=3e-6)
        np.testing.assert_allclose(turned(curve)(x), second, rtol=3e-5)


def test_a_missing_derivative_is_an_error_and_not_zero():
    half = nx.array(1.5)
    for op in (ops.zeta, ops.polygamma):
        with pytest.raises(GradientError, match="has no derivative"):
            nx.grad(lambda v, op=op: op(v, half))(half)
