"""Vector functions: errors in units of the last place, special values, narrow dtypes, on every instruction set.

The bounds are the largest errors found, rounded up: of float32 functions over all 2^32 floats, by the first instruction
set that has fused multiply-add (`benchmarks/cpu_math.py`). The floats tried here are a part of those.
"""

import warnings

import numpy as np
import pytest
import scipy.special as sp

from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa, ops
from nxjax.kernels.cpu.math_base import INVALID
from nxjax.ops import arithmetic, elementary, power, special
from nxjax.trace import core, dtypes
from tests.kernels.cpu.elementwise import OpKernel, grid, specials
from tests.kernels.cpu.running import ISAS, run

assert arithmetic.add and elementary.exp and power.power and special.erf  # their ops are known by name
F32, F64 = np.dtype("f4"), np.dtype("f8")
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
NUMPY["atanh"] = "arctanh"
# Largest error of float32 and float64: with fused multiply-add, and without.
BOUNDS = {
    "exp": (1.03, 1.01, 1.03, 1.01),
    "exp2": (0.9, 0.95, 0.9, 0.95),
    "expm1": (1.02, 1.3, 1.02, 1.3),
    "log": (0.8, 0.85, 0.8, 0.85),
    "log1p": (0.85, 0.85, 0.85, 0.85),
    "sin": (0.8, 0.8, 0.8, 0.8),
    "cos": (0.8, 0.8, 0.8, 0.8),
    "tan": (0.51, 2.2, 0.51, 2.3),
    "asin": (0.51, 1.05, 0.51, 1.05),
    "acos": (0.51, 0.8, 0.51, 0.8),
    "atan": (0.51, 1.6, 0.51, 1.6),
    "sinh": (0.51, 2.3, 0.51, 2.3),
    "cosh": (0.51, 1.5, 0.51, 1.5),
    "tanh": (0.9, 2.5, 1.0, 2.5),
    "asinh": (0.51, 1.8, 0.51, 1.8),
    "acosh": (0.51, 1.9, 0.51, 1.9),
    "atanh": (0.51, 2.0, 0.51, 2.0),
    "logistic": (1.03, 1.0, 1.4, 1.5),
    "cbrt": (0.51, 0.51, 0.51, 0.51),
    "erf": (1.0, 3.5, 1.3, 3.5),
}
# Against functions of scipy that are themselves this exact in float64 only.
AGAINST = {"erfc": sp.erfc, "bessel_i0e": sp.i0e, "bessel_i1e": sp.i1e, "lgamma": sp.gammaln, "digamma": sp.digamma}


def compute(name, dtype, *xs, isa_name, lanes=None, **params):
    kernel = OpKernel(name, (dtype,) * len(xs), dtype, len(xs[0]), lanes or isa.named(isa_name).lanes(4), **params)
    kernel.meaning = lambda *xs: [np.empty(xs[0].shape, dtype)]
    return run(kernel, *xs, name=isa_name)[0]


def reference(name, x):
    """The value in more digits than ``x`` has."""
    x = x.astype(np.longdouble if x.dtype == F64 else np.float64)
    if name == "logistic":
        return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))
    if name == "erf":
        return sp.erf(x.astype(np.float64))
    return getattr(np, NUMPY.get(name, name))(x)


def error(y, want, dtype):
    """The largest error in units of the last place; NaN and infinities must be where they should."""
    info = np.finfo(dtype)
    rounded = want.astype(dtype)
    assert (np.isnan(y) == np.isnan(rounded)).all()
    plain = np.isfinite(y) & np.isfinite(rounded) & np.isfinite(want)
    assert (y == rounded)[~plain & ~np.isnan(y)].all()
    y, want = y[plain].astype(want.dtype), want[plain]
    exponent = np.maximum(np.frexp(np.abs(want))[1] - 1 - info.nmant, info.minexp - info.nmant)
    return float(np.max(np.abs(y - want) / np.ldexp(want.dtype.type(1), exponent)))


def floats(step=19997):
    with np.errstate(all="ignore"):
        words = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
        near = np.arange(-40, 40)[:, None] + np.array([0.5, 1, 2, np.pi, 4, 0.65, 88.0], np.float32).view(np.int32)
        return np.concatenate([words.view(np.float32), near.reshape(-1).astype(np.int32).view(np.float32)])


def doubles(n=20000):
    rng = np.random.default_rng(0)
    pieces = [rng.standard_normal(n) * s for s in (1e-3, 0.3, 1, 3, 10, 100, 700)]
    return np.concatenate([*pieces, rng.uniform(-1, 1, n), rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)])


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("name", BOUNDS)
def test_error(name, isa_name):
    bounds = BOUNDS[name][:2] if isa.named(isa_name).fma else BOUNDS[name][2:]
    with np.errstate(all="ignore"):
        for dtype, x, bound in ((F32, floats(), bounds[0]), (F64, doubles(), bounds[1])):
            assert error(compute(name, dtype, x, isa_name=isa_name), reference(name, x), dtype) <= bound


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize(("name", "scale"), [("exp", 1.0), ("exp2", 1.4426950408889634)])
def test_powers_below_the_normal_numbers(name, scale, isa_name):
    """Vectors in which all, some or none of the results are, beside zeros and NaN."""
    rng = np.random.default_rng(0)
    for dtype, low in ((F32, 87.0), (F64, 708.0)):
        near = np.linspace(-1.05 * low - 12, 2 - low, 5000)
        x = np.concatenate([near, -np.exp(rng.uniform(-2, 9, 5000)), [-np.inf, -1e30, 0, np.nan, -np.inf]])
        x = (x * scale).astype(dtype)
        y = compute(name, dtype, x, isa_name=isa_name)
        assert error(y[:-2], reference(name, x[:-2]), dtype) <= BOUNDS[name][dtype == F64]
        np.testing.assert_array_equal(y[-5:], np.array([0, 0, 1, np.nan, 0], dtype))


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("name", AGAINST)
def test_special_functions(name, isa_name):
    x = np.concatenate([np.linspace(0.6, 30, 4001), np.linspace(1e-6, 0.6, 500)])
    if name != "lgamma":
        x = np.concatenate([x, -x + 0.0003]) if name != "digamma" else x
    want = AGAINST[name](x)
    np.testing.assert_allclose(compute(name, F64, x, isa_name=isa_name), want, rtol=3e-13, atol=3e-15)
    single = x.astype(np.float32)
    want = AGAINST[name](single.astype(np.float64)).astype(np.float32)
    got = compute(name, F32, single, isa_name=isa_name)
    near = np.abs(want) > 1e-6
    units = 1 if name != "erfc" else 3 if isa.named(isa_name).fma else 4
    assert (np.abs(got - want)[near] <= units * np.spacing(np.abs(want[near]))).all()


@pytest.mark.parametrize(("name", "most"), [("lgamma", 100), ("bessel_i0e", 40), ("bessel_i1e", 40)])
def test_special_functions_of_floats_are_short(name, most):
    """They need no call and no power series: a float has fewer digits than a double."""
    text = engine(isa.current()).texts([OpKernel(name, (F32,), F32, 8, 8)])
    vectors = [line for line in text.splitlines() if "<8 x double>" in line]
    assert f"@{name}" not in text
    assert sum("fma" in line or "fmuladd" in line for line in vectors) <= most


@pytest.mark.parametrize("isa_name", ISAS)
def test_special_functions_of_odd_floats(isa_name):
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 2.0, -3.0, 1e-30, -1e-30, 3e38, -0.5, -2.7, -1e5], np.float32
    )
    want = {"bessel_i0e": sp.i0e, "bessel_i1e": sp.i1e, "lgamma": sp.gammaln}
    for name, function in want.items():
        with np.errstate(over="ignore"):
            y = function(x.astype(np.float64)).astype(np.float32)
        y = np.where(np.isneginf(x), np.inf, y) if name == "lgamma" else y
        np.testing.assert_allclose(compute(name, F32, x, isa_name=isa_name), y, rtol=2e-7)
    x = np.concatenate([np.linspace(-20, -0.01, 1501), [1 + 2**-20, 2 - 2**-20, 1e20]]).astype(np.float32)
    x = x[x != np.round(x)]
    want = sp.gammaln(x.astype(np.float64))
    near = np.maximum(np.abs(want), 1e-3)  # of zeros between poles, as far as a double's sine tells them
    assert (np.abs(compute("lgamma", F32, x, isa_name=isa_name) - want) <= 1.2e-7 * near).all()


@pytest.mark.parametrize("isa_name", ISAS)
def test_erf_inv(isa_name):
    x = np.linspace(-1, 1, 20001)
    x = np.concatenate([x, 1 - np.logspace(-12, -1, 100), np.array([-0.0, 1.5, -2, np.nan])])
    with np.errstate(all="ignore"):
        for dtype, rtol in ((F32, 3e-6), (F64, 2e-15)):
            want = special.erf_inv.eval(x.astype(dtype))
            np.testing.assert_allclose(compute("erf_inv", dtype, x.astype(dtype), isa_name=isa_name), want, rtol=rtol)
    inner = np.concatenate([x[np.abs(x) < 1], 1 - np.logspace(-15.9, -12, 50)])
    np.testing.assert_allclose(compute("erf_inv", F64, inner, isa_name=isa_name), sp.erfinv(inner), rtol=2e-15)


@pytest.mark.parametrize("isa_name", ISAS)
def test_power(isa_name):
    rng = np.random.default_rng(1)
    for dtype in (F32, F64):
        x, y = (v.astype(dtype) for v in (np.exp(rng.uniform(-40, 40, 20000)), rng.uniform(-3, 3, 20000)))
        x[::3] *= -1
        y[::2] = np.round(y[::2] * 7)
        a, b = grid((dtype, dtype), 8000)
        x, y = np.concatenate([x, a]), np.concatenate([y, b])
        with np.errstate(all="ignore"):
            want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
            # Some C libraries' powl takes large even exponents of -inf for odd ones.
            want = np.where(np.isinf(x), np.power(x.astype(np.float64), y.astype(np.float64)), want)
            got = compute("pow", dtype, x, y, isa_name=isa_name)
            assert error(got, want, dtype) <= (0.51 if dtype == F32 else 1.2)
            same = np.signbit(got) == np.signbit(want.astype(dtype))
            assert same[~np.isnan(got)].all()
            for known in (0.5, -1.5, 3.0, 0.0):
                got = compute("power", dtype, x, isa_name=isa_name, y=known)
                assert error(got, np.power(x.astype(np.longdouble), dtype.type(known)), dtype) <= 1.2


@pytest.mark.parametrize("isa_name", ISAS)
def test_atan2(isa_name):
    rng = np.random.default_rng(2)
    for dtype, bound in ((F32, 0.51), (F64, 1.7)):
        y, x = (rng.standard_normal(20000) * np.exp(rng.uniform(-30, 30, 20000)) for _ in range(2))
        a, b = grid((dtype, dtype), 8000)
        # Every pair of sizes from subnormal numbers on: where a quotient is normal, what leads to it may be too small.
        info = np.finfo(dtype)
        powers = np.arange(info.minexp - info.nmant, info.maxexp, 13 if dtype == F64 else 3)
        sizes = np.concatenate([np.ldexp(dtype.type(m), powers) for m in (1.0, 1.3)])
        c, d = (v.reshape(-1) for v in np.meshgrid(sizes, np.concatenate([sizes, -sizes])))
        y, x = np.concatenate([y.astype(dtype), a, c]), np.concatenate([x.astype(dtype), b, d])
        got = compute("atan2", dtype, y, x, isa_name=isa_name)
        want = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
        assert error(got, want, dtype) <= bound
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(got)].all()


SMOOTH = [*BOUNDS, *AGAINST, "erf_inv"]


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("name", SMOOTH)
def test_special_values_and_narrow_dtypes(name, isa_name):
    """Infinities, NaN, signed zeros and poles as `eval` has them; 16- and 8-bit floats within one of theirs."""
    op = core.get_op(name)
    for dtype in (d for d in dtypes._SHORT if d in dtypes.FLOAT):
        assert not ops.supported(name, {}, (dtype,), dtype)
        x = specials(dtype) if dtype != dtypes.bfloat16 else np.arange(0, 65536, 7).astype(np.uint16).view(dtype)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got, want = compute(name, dtype, x, isa_name=isa_name), np.asarray(op.eval(x))
            got, want = got.astype(np.float64), want.astype(np.float64)
            if name == "digamma":  # next to its poles eval itself is noise
                kept = x.astype(np.float64) > -0.9
                got, want = got[kept], want[kept]
        assert (np.isnan(got) == np.isnan(want)).all(), dtype
        tiny = 4 * float(dtypes.float_info(dtype).smallest_normal)
        some = ~np.isnan(got)
        eps = 4 * float(dtypes.float_info(dtype).eps) if dtype != F64 else 1e-9
        plain = some & np.isfinite(want) & np.isfinite(got)
        np.testing.assert_allclose(got[plain], want[plain], rtol=eps, atol=tiny if dtype.itemsize < 8 else 1e-13)
        assert (got == want)[some & ~plain].all(), dtype
        assert (np.signbit(got) == np.signbit(want))[some & (want == 0) & (got == 0)].all(), dtype


@pytest.mark.parametrize("isa_name", ISAS)
def test_outside_of_the_domain(isa_name):
    """All functions give one NaN there: sorting and `top_k` tell NaN's signs apart."""
    far = {"log": -3.0, "log1p": -3.0, "asin": 2.0, "acos": 2.0, "acosh": 0.5, "atanh": 2.0}
    for dtype in (F32, F64):
        for name, x in far.items():
            y = compute(name, dtype, np.array([x] * 5, dtype), isa_name=isa_name)
            assert np.isnan(y).all()
            assert (np.signbit(y) == np.signbit(INVALID)).all(), name


@pytest.mark.parametrize("isa_name", ISAS)
def test_huge_angles(isa_name):
    """Lanes far out take a branch of their own, whatever their neighbours do, at any number of lanes."""
    x = np.array([1.0, 1e22, -3.5e5, 2.0**40, np.inf, 0.5, -1e300, np.nan, 1e15, 3.0])
    with np.errstate(all="ignore"):
        for lanes in (0, 2, 8, 32):
            for name in ("sin", "cos", "tan"):
                got = compute(name, F64, x, isa_name=isa_name, lanes=lanes)
                np.testing.assert_allclose(got, getattr(np, name)(x), rtol=1e-15)
