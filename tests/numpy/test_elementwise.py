"""Elementwise functions against JAX: values, dtypes, weakness, under jit and grad."""

import functools
import itertools
import math

import jax
import mpmath
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.numpy import eager
from nxjax.trace import dtypes

F = jnp.array(np.linspace(-2, 2, 9, dtype=np.float32) + np.float32(0.01))
P = jnp.array(np.linspace(0.1, 0.9, 9, dtype=np.float32))
I = jnp.array([-3, -1, 0, 1, 2, 5, 7])
U = jnp.array([0, 1, 5, 200], "uint8")
B = jnp.array([True, False, True])
C = jnp.array([1 + 2j, -1 - 0.5j, 3j], "complex64")
H = jnp.array([0.5, -1.5], "bfloat16")

SMOOTH = [
    "sin",
    "cos",
    "tan",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "exp",
    "exp2",
    "expm1",
    "negative",
    "square",
    "absolute",
    "fabs",
    "sinc",
    "deg2rad",
    "rad2deg",
    "nan_to_num",
    "positive",
    "real",
]
STEPS = [
    "sign",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "isfinite",
    "isnan",
    "isinf",
    "isposinf",
    "isneginf",
    "signbit",
    "imag",
    "conj",
    "angle",
    "logical_not",
    "round",
]
UNIT = ["log", "log1p", "log2", "log10", "sqrt", "cbrt", "arcsin", "arccos", "arctanh", "reciprocal", "i0"]
COMPLEX = [
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "exp",
    "negative",
    "square",
    "sign",
    "absolute",
    "isfinite",
    "isnan",
    "real",
    "imag",
    "conj",
    "angle",
    "sqrt",
    "log",
]
SMOOTH2 = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "arctan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "power",
    "float_power",
]
STEPS2 = [
    "floor_divide",
    "remainder",
    "fmod",
    "fmax",
    "fmin",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "copysign",
    "heaviside",
    "nextafter",
    "isclose",
]


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(check, name):
    check.all(lambda m, x: getattr(m, name)(x), F)


@pytest.mark.parametrize("name", SMOOTH + STEPS)
@pytest.mark.parametrize("x", [F, I, U, H], ids=["f32", "i32", "u8", "bf16"])
def test_unary(check, name, x):
    check.values(lambda m, x: getattr(m, name)(x), x, weak=True, rtol=2e-2 if x is H else 2e-5)


@pytest.mark.parametrize("name", SMOOTH + STEPS + ["spacing"])
def test_unary_of_a_python_scalar(check, name):
    check.values(lambda m: getattr(m, name)(1.5), weak=name not in ("spacing", "angle"))


@pytest.mark.parametrize("name", UNIT)
def test_on_the_unit_interval(check, name):
    check.all(lambda m, x: getattr(m, name)(x), P)


def test_arccosh(check):
    check.all(lambda m, x: m.arccosh(x), P + 1)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex(check, name):
    check.values(lambda m, x: getattr(m, name)(x), C)


@pytest.mark.parametrize("name", SMOOTH2)
def test_smooth_binary(check, name):
    check.values(lambda m, x, y: getattr(m, name)(x, y), P, P[::-1] + 1, weak=True)
    check.grad(lambda m, x, y: getattr(m, name)(x, y), P, P[::-1] + 1, argnums=(0, 1))


@pytest.mark.parametrize("name", SMOOTH2 + STEPS2)
def test_binary(check, name):
    f = lambda m, x, y: getattr(m, name)(x, y)
    g = lambda m, x: getattr(m, name)(x, 2.5)
    check.values(g, P, weak=True)
    check.values(g, H, weak=True, rtol=2e-2)
    check.values(lambda m, x: getattr(m, name)(x, 3), U, weak=True)
    check.values(lambda m, x: getattr(m, name)(x, 3), F[5:], weak=True)
    check.values(f, I, jnp.array([2, 3, 1, 4, 1, 2, 3]), weak=True)
    check.values(f, jnp.ones((3, 1)), jnp.ones(4))
    if name != "power":
        check.values(lambda m, x: getattr(m, name)(x, 0.5), I)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bits(check, name):
    check.values(lambda m, x: getattr(m, name)(x, 5), I)
    check.values(lambda m, x: getattr(m, name)(x, 2), U)
    if "bitwise" in name:
        check.values(lambda m, x: getattr(m, name)(x, True), B)


@pytest.mark.parametrize("x", [I, U, B], ids=["i32", "u8", "bool"])
def test_bitwise_not(check, x):
    check.values(lambda m, x: ~x, x)


@pytest.mark.parametrize("k", [2, 3, -1, 0, 2.0, 0.5, -2.0])
def test_power_of_a_constant(check, k):
    check.all(lambda m, x: x**k, P)


def test_power_of_integers(check):
    check.values(lambda m, x: x**x, jnp.array([1, 2, 3]))
    check.values(lambda m, x: x**2, B, weak=True)
    check.values(lambda m, x: 2**x, jnp.array([0, 1, 5]), weak=True)
    check.all(lambda m, x: 2.0**x, F)
    check.raises_alike(lambda m, x: x**-1, I)


def test_parts_of_numbers(check):
    check.values(lambda m, x: divmod(x, 0.7), F)
    check.values(lambda m, x: divmod(x, 3), I)
    check.values(lambda m, x: m.modf(x), F)
    check.values(lambda m, x: m.frexp(x), jnp.array([0.0, 1.0, -3.5, 1e-30, np.inf]))
    check.values(lambda m, x: m.ldexp(x, 3), F)


def test_division_by_zero_of_integers(check):
    check.values(lambda m, x: x // 0, I)
    check.values(lambda m, x: x % -3, I)


def test_rounding_to_places(check):
    check.values(lambda m, x: m.round(x * 1.234, 2), F)
    assert jnp.round(I * 1234, -2).tolist() == [-3700, -1200, 0, 1200, 2500, 6200, 8600]
    check.values(lambda m, x: x.round(1), H)


def test_clip(check):
    check.all(lambda m, x: m.clip(x, -1, 1.0), F)
    check.values(lambda m, x: x.clip(0), I)
    check.values(lambda m, x: x.clip(max=3), I)
    check.raises_alike(lambda m, x: m.clip(x, 0, 1), C)


def test_weak_scalars_do_not_widen(check):
    check.values(lambda m, x: x * 1.5, H, weak=True)
    check.values(lambda m, x: x * 1.5, I, weak=True)
    check.values(lambda m, x: x + 300, U, weak=True)
    check.values(lambda m, x, h: (x * 1.5)[:2] + h, I, H, weak=True)
    check.values(lambda m, x, y: x * y, H, jnp.ones(2), weak=True)


def test_lists_are_refused(check):
    check.raises_alike(lambda m: m.sin([1.0]))
    check.raises_alike(lambda m, x: m.add(x, [1.0]), F)


def test_shapes_that_do_not_fit(check):
    check.raises_alike(lambda m: m.ones((2, 3)) + m.ones(4))


def test_booleans_have_no_difference(check):
    check.raises_alike(lambda m, x: x - x, B)
    check.raises_alike(lambda m, x: -x, B)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "divmod", "left_shift", "right_shift"])
def test_booleans_become_int32_with_64_bits_too(name):
    x = np.array([True, False])
    with nx.config.using(enable_x64=True), jax.enable_x64(True):
        mine, theirs = getattr(jnp, name)(jnp.array(x), True), getattr(jax.numpy, name)(jax.numpy.array(x), True)
    assert [y.dtype for y in nx.tree.leaves(mine)] == [y.dtype for y in jax.tree.leaves(theirs)]
    assert nx.tree.leaves(mine)[0].dtype == jnp.int32


def test_ufuncs_take_the_dtype_of_their_function():
    x = jnp.array([4, 0, 2], "int8")
    assert jnp.logical_and.accumulate(x).tolist() == [True, False, False]
    assert jnp.add.nargs == 2
    pieces = nx.jit(lambda x, i: jnp.add.reduceat(x, i))(jnp.arange(6, dtype="int8"), jnp.array([0, 4, 1]))
    assert pieces.tolist() == [6, 4, 15] and pieces.dtype == jnp.int8


@pytest.mark.parametrize("starts", [[], [-1], [1, -2], [5, 2], [-6, 3], [6], [-7], [0, 9, 2], [-9, -1]])
def test_pieces_that_begin_anywhere(starts):
    x, outside = np.arange(6) + 1, -(2**31)
    places = [n % 6 if -6 <= n < 6 else 6 for n in [*starts, 6]]
    pieces = [x[i : max(end, i + 1)].sum() for i, end in itertools.pairwise(places)]
    expected = [y if i < 6 else outside for i, y in zip(places[:-1], pieces, strict=True)]
    for f in (jnp.add.reduceat, nx.jit(lambda x, i: jnp.add.reduceat(x, i))):
        assert f(jnp.asarray(x), jnp.array(starts, "int32")).tolist() == expected


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("indices", [[], [0], [-3], [7]])
def test_nothing_is_changed_where_nothing_is(shape, indices):
    x, i = jnp.zeros(shape, "int8"), jnp.array(indices, "int32")
    for f in (lambda x: jnp.add.at(x, i, 1, inplace=False), lambda x: jnp.negative.at(x, i, inplace=False)):
        for y in (f(x), nx.jit(f)(x)):
            assert (y.shape, y.dtype) == (shape, jnp.int8)


def test_negative_is_a_ufunc_of_one_array():
    assert jnp.negative.at(jnp.array([1, 2, 3]), jnp.array([0, 2]), inplace=False).tolist() == [-1, 2, -3]
    assert (jnp.negative.nin, jnp.negative.nargs) == (1, 1)
    with pytest.raises(ValueError, match="two arguments"):
        jnp.negative.reduce(jnp.arange(3))


def test_tangents_of_integers_can_be_compared():
    g = nx.grad(lambda x: 1.0, allow_int=True)(jnp.arange(3))
    zeros = np.zeros(3, nx.dtypes.float0)
    assert (g == g).tolist() == (g == zeros).tolist() == (zeros == g).tolist() == [True] * 3
    assert (g != g).tolist() == [False] * 3
    assert bool(jnp.array_equal(g, g))
    for wrong in (lambda: g < g, lambda: g + 1, lambda: g == jnp.ones(3)):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_masks_times_floats_are_choices(dtype):
    """True times x is x and False times x is 0, even of infinity and NaN, as XLA has it."""
    x = np.array([np.inf, np.inf, -np.inf, np.nan, -1.0, 2.0]).astype(dtype)
    mask = np.array([False, True, False, False, False, True])
    forms = {
        "left": lambda m, b, v: b * v,
        "right": lambda m, b, v: m.multiply(v, b),
        "scalar": lambda m, b, v: b * float("-inf"),
        "equal": lambda m, b, v: (b == 0) * m.asarray(np.float32(np.nan)),
        "broadcast": lambda m, b, v: b[:, None] * v[:2],
        "bare": lambda m, b, v: b[0] * v,
    }
    for name, f in forms.items():
        want = f(jax.numpy, jax.numpy.asarray(mask), jax.numpy.asarray(x))
        for g in (f, lambda m, b, v, f=f: nx.jit(lambda b, v: f(m, b, v))(b, v)):
            got = g(jnp, jnp.asarray(mask), jnp.asarray(x))
            assert got.dtype == want.dtype and got.weak_type == want.weak_type, name
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want), name)
    if dtype != "complex64":
        for f in (lambda v: jnp.asarray(mask) * v, nx.jit(lambda v: jnp.asarray(mask) * v)):
            assert np.asarray(nx.vjp(f, jnp.asarray(x))[1](jnp.asarray(x))[0]).tolist()[2:] == [0, 0, 0, 2]


def test_masks_times_bfloat16_are_choices():
    y = jnp.array([False, True]) * jnp.array([-jnp.inf, -jnp.inf], "bfloat16")
    assert y.dtype == jnp.bfloat16 and y.tolist() == [0, -np.inf]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_nothing_is_left_of_a_division_by_zero(dtype):
    x = np.array([77, 0, 100, -50 if dtype[0] == "i" else 207]).astype(dtype)
    for name in ("fmod", "remainder", "floor_divide"):
        want = getattr(jax.numpy, name)(x, np.zeros_like(x))
        for f in (getattr(jnp, name), nx.jit(getattr(jnp, name))):
            np.testing.assert_array_equal(np.asarray(f(jnp.asarray(x), jnp.zeros_like(x))), np.asarray(want), name)


@pytest.mark.parametrize(("dtype", "far"), [("float16", 500.5), ("bfloat16", 1e20), ("float32", 1e20)])
def test_sinc_has_a_slope_far_from_zero(dtype, far):
    slopes = nx.vmap(nx.grad(jnp.sinc))(jnp.array([0.0, far, -far], dtype))
    assert np.isfinite(np.asarray(slopes, np.float32)).all() and slopes[0] == 0
    assert nx.grad(nx.grad(jnp.sinc))(0.0) == pytest.approx(-(np.pi**2) / 3, rel=1e-6)


@functools.cache
def _sinc_series(order):
    """Factors and powers of the n-th derivative; the series converges everywhere."""
    with mpmath.workdps(120):
        powers = [k for k in range(order // 2 * 2, 320, 2) if k >= order]
        factors = [(-1) ** (k // 2) * mpmath.pi**k * mpmath.ff(k, order) / mpmath.factorial(k + 1) for k in powers]
        return [(c, k - order) for c, k in zip(factors, powers, strict=True)]


def _sinc_derivative(order, x):
    """By mpmath."""
    with mpmath.workdps(120):
        x = mpmath.mpf(float(x))
        return float(mpmath.fsum(c * x**k for c, k in _sinc_series(order)))


@pytest.mark.parametrize("turned", [lambda f: f, nx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [
        (np.float64, (4e-16, 1e-15, 1e-14, 1e-13)),
        (np.float32, (2e-7, 1e-6, 4e-6, 3e-5)),
        (np.float16, (5e-4, 5e-4, 1e-3, 2e-3)),
        (dtypes.bfloat16, (4e-3, 4e-3, 8e-3, 1.6e-2)),
    ],
    ids=str,
)
def test_sinc_and_its_derivatives_next_to_zero(dtype, bounds, turned):
    """Relative to pi^n, of which the n-th derivative is a fraction, and next to 0 to the derivative itself."""
    small = [0, 1e-13, 1e-9, 3e-7, 1e-5, 6e-3, 0.1]
    x = np.array([*small, 0.4375, 0.4961, 0.5, 0.5039, 0.8125, 1, 2.375, 7.5]).astype(dtype)
    x = np.concatenate([x, -x])
    slope = jnp.sinc
    for order, bound in enumerate(bounds):
        slope = nx.grad(slope) if order else slope
        wanted = np.array([_sinc_derivative(order, v) for v in x])
        scale = np.where(np.abs(x.astype(float)) <= 0.1, np.abs(wanted), np.pi**order)
        scale = np.maximum(scale, float(dtypes.float_info(x.dtype).smallest_normal))
        error = np.abs(np.asarray(turned(nx.vmap(slope))(nx.array(x, x.dtype))).astype(float) - wanted)
        assert (error <= bound * scale).all(), (order, (error / scale).max(), x[(error / scale).argmax()])


def test_sinc_is_one_op_that_is_a_table_when_quantized():
    assert [e.op.name for e in nx.make_jaxpr(jnp.sinc)(1.0).equations] == ["sinc"]
    x = np.linspace(-3, 3, 256, dtype=np.float32)
    q = nx.quantize(jnp.sinc, "int8", calibrate=[(x,)])
    y = np.asarray(q(x))
    assert np.abs(y - np.sinc(x)).max() < 0.02
    np.testing.assert_array_equal(np.asarray(nx.compile(q, target="tflite")(x)(x)), y)


def test_results_yield_to_others_where_jaxs_do():
    def operands(m):
        small, flag = m.array([3], "int16"), m.array([True])
        return small, flag, 4.0, 2, True, m.asarray(2), m.array([0.5], "bfloat16")

    for name in ("hypot", "heaviside", "logaddexp2", "power"):
        ours, theirs = getattr(jnp, name), getattr(jax.numpy, name)
        for i, j in np.ndindex(7, 7):
            y, want = ours(*(operands(jnp)[k] for k in (i, j))), theirs(*(operands(jax.numpy)[k] for k in (i, j)))
            assert (y.dtype, y.weak_type) == (want.dtype, want.weak_type), (name, i, j)


def test_booleans_to_a_power_are_32_bits_wide():
    with nx.config.using(enable_x64=True):
        for exponent in (0, 2, True, np.int64(2)):
            assert jnp.power(jnp.array([True]), exponent).dtype == jnp.int32
        assert (jnp.array([True]) ** 3).dtype == jnp.int32


def test_a_concrete_integer_exponent_leaves_the_type_of_the_base():
    x = np.float32([1.1, 2.3, 3.7])
    np.testing.assert_array_equal(jnp.power(x, jnp.int32(7)), jnp.power(x, 7))
    for base in U, B, F, C, H:
        for exponent in jnp.int8(2), jnp.uint8(3), jnp.int32(0):
            want = jax.numpy.asarray(base) ** jax.numpy.asarray(np.asarray(exponent))
            y = base**exponent
            assert (y.dtype, y.weak_type) == (want.dtype, want.weak_type)


def test_second_derivatives_of_hypot_do_not_hang_on_which_is_larger():
    """d2/dx2 = y2 / r3, d2/dxdy = -xy / r3; also where both are as large, which JAX's formula has as a kink."""
    for x, y in ((1.0, 1.0), (1.0, -1.0), (3.0, 4.0), (-4.0, 3.0), (3e-20, 4e-20), (2e15, 2e15)):
        r = float(np.hypot(x, y))
        (xx, xy), (yx, yy) = nx.hessian(jnp.hypot, (0, 1))(x, y)
        expected = [y * y / r**3, -x * y / r**3, -x * y / r**3, x * x / r**3]
        np.testing.assert_allclose([xx, xy, yx, yy], expected, rtol=1e-5)
    assert nx.grad(jnp.hypot)(0.0, 0.0) == 0.5
    assert nx.grad(jnp.hypot)(np.inf, 1.0) == 0


def outcome(f):
    try:
        y = f()
    except Exception as error:
        return type(error), str(error)
    return y.dtype, y.weak_type, y.numpy().tobytes()


@pytest.mark.parametrize("number", [0.0, -0.0, 1, -1, 300, 1e300, math.nan])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
def test_numbers_beside_arrays_take_the_short_way_to_the_same_bits(dtype, number):
    x = jnp.asarray(np.array([0.0, -0.0, 1.0, 3.0, 100.0]).astype(dtype))
    calls = [
        lambda: jnp.maximum(number, x),
        lambda: jnp.minimum(number, x),
        lambda: jnp.subtract(number, x),
        lambda: jnp.clip(x, number, 2),
        lambda: jnp.where(x > 1, x, number),
        lambda: jnp.where(x > 1, number, x),
        lambda: number - x,
    ]
    short = [outcome(f) for f in calls]
    eager.close(True)
    try:
        assert short == [outcome(f) for f in calls]
    finally:
        eager.close(False)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_ldexp_at_the_ends(dtype):
    """No power of two is infinite on the way: 0 stays 0, and the least number becomes the greatest."""
    info = np.finfo(dtype)
    x = np.array([0, -0.0, 1, info.smallest_subnormal, info.tiny, info.max, np.inf, -np.inf, np.nan, -1.5], dtype)
    powers = [0, 1, -1, 20, -20, 40, -40, 150, -150, 277, 300, -300, 2097, 5000, -5000, 2**31 - 1, -(2**31)]
    with nx.config.using(enable_x64=True), np.errstate(all="ignore"):
        for ldexp in (jnp.ldexp, nx.jit(jnp.ldexp)):
            y = np.asarray(ldexp(x[:, None], np.array(powers, np.int32)))
            np.testing.assert_array_equal(y, np.ldexp(x[:, None], powers))
            known = ~np.isnan(y)
            np.testing.assert_array_equal(np.signbit(y)[known], np.signbit(np.ldexp(x[:, None], powers))[known])


@pytest.mark.parametrize("name", ["log2", "log10"])
def test_logarithms_of_infinite_complex_numbers_keep_the_angle(name):
    parts = [0, -0.0, 1, -2.5, np.inf, -np.inf]
    z = np.array([complex(a, b) for a in parts for b in parts], np.complex64)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(z)
    for f in (getattr(jnp, name), nx.jit(getattr(jnp, name))):
        y = np.asarray(f(z))
        np.testing.assert_allclose(y.real, wanted.real, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y.imag, wanted.imag, rtol=1e-5, atol=1e-6)
