"""Arithmetic: every law, over dtypes, against JAX."""

import jax
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops import arithmetic as ops
from nxjax.testing import bad, check_op, sample

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (2, 3)).astype(np.float32)
Y = RNG.uniform(0.7, 3, (2, 3)).astype(np.float32)
EMPTY = np.zeros((0, 2), np.float32)
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32]
INTS = [np.int8, np.int32, np.uint8, np.uint32]


def of(name):
    return getattr(ops, name), getattr(jax.lax, name)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "max", "min"])
def test_binary(name):
    op, peer = of(name)
    check_op(
        op,
        [sample(X.astype(d), Y.astype(d), differentiable=d is np.float32) for d in FLOATS]
        + [sample((X * 9).astype(d), (Y * 2).astype(d)) for d in INTS]
        + [
            sample(np.float32(1.5), np.float32(0.7)),
            sample(EMPTY, EMPTY),
        ],
        [
            bad(X, Y[0], error=ShapeError, says="equal shapes"),
            bad(X, Y.astype(np.float16), error=DtypeError, says="equal dtypes"),
        ],
        reference=peer,
    )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_complex_binary(name):
    op, peer = of(name)
    z = (X + 1j * Y).astype(np.complex64)
    check_op(op, [sample(z, (Y - 0.3j * X).astype(np.complex64))], reference=peer, rtol=1e-4)


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_float_binary(name):
    op, peer = of(name)
    check_op(op, [sample(Y, X)], [bad(np.int32(1), np.int32(1), error=DtypeError, says="i32")], reference=peer)


def test_atan2_of_complex_numbers():
    z = (X + 1j * Y).astype(np.complex64)
    check_op(ops.atan2, [sample(z, (Y - 0.3j * X).astype(np.complex64))], reference=jax.lax.atan2, rtol=1e-4)


def test_division_of_four_bits():
    x, y = (np.array(v).astype(ml_dtypes.uint4) for v in ([15, 7, 3, 9], [2, 0, 5, 3]))
    check_op(ops.div, [sample(x, y)], reference=lambda x, y: np.array([7, 15, 0, 3]).astype(ml_dtypes.uint4))


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "square"])
def test_unary(name):
    op, peer = of(name)
    samples = [sample(X.astype(d), differentiable=d is np.float32) for d in FLOATS]
    samples += [sample((X * 9).astype(d)) for d in (np.int8, np.int32)]
    samples += [sample((X + 1j * Y).astype(np.complex64))]
    check_op(op, samples, reference=peer)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_sign_of_a_zero_is_that_zero(dtype):
    x = np.array([-0.0, 0.0, -2.0, 3.0] * 5).astype(dtype)
    want = np.array([-0.0, 0.0, -1.0, 1.0] * 5)

    def exactly(x):
        return want.astype(dtype)

    check_op(ops.sign, [sample(x, differentiable=False)], reference=exactly)
    for executor in ("cpu", "xla"):
        y = np.asarray(nx.jit(ops.sign, device=executor)(x)).astype(float)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(want))
    np.testing.assert_array_equal(np.signbit(ops.sign.eval(x).astype(float)), np.signbit(want))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_by_a_negative_zero(dtype):
    x = np.array([1 + 1j, 0, -2 + 0j, complex(np.inf, 1), complex(np.nan, 1)], dtype)
    with nx.config.using(enable_x64=True), jax.enable_x64(True), np.errstate(all="ignore"):
        for zero in (complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0)):
            y = np.full_like(x, zero)
            want = np.asarray(jax.numpy.asarray(x) / jax.numpy.asarray(y))
            for found in (ops.div.eval(x, y), nx.jit(ops.div)(x, y), [ops.div.eval(a, b) for a, b in zip(x, y)]):
                found = np.asarray(found)
                np.testing.assert_array_equal(found.real, want.real)
                np.testing.assert_array_equal(found.imag, want.imag)


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "cbrt"])
def test_roots(name):
    op, peer = of(name)
    check_op(op, [sample(Y), sample(Y.astype(np.float16), differentiable=False)], reference=peer)


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 5])
def test_integer_pow(power):
    check_op(ops.integer_pow, [sample(X, y=power)], reference=lambda x, y: jax.lax.integer_pow(x, y))
    if power >= 0:
        check_op(ops.integer_pow, [sample((X * 3).astype(np.int32), y=power)])
    else:
        check_op(ops.integer_pow, [], [bad(X.astype(np.int32), error=DtypeError, says="negative powers", y=power)])


def test_nextafter():
    x = np.array([0.0, 0.0, 1.0, -1.0, np.inf, 1.0, np.nan], np.float32)
    y = np.array([1.0, -1.0, 2.0, 2.0, 0.0, 1.0, 1.0], np.float32)
    for d in (np.float32, np.float64):
        check_op(ops.nextafter, [sample(x.astype(d), y.astype(d), differentiable=False)], reference=np.nextafter)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_the_extremum_of_two_zeros_is_the_second_on_every_processor(dtype, name, executor):
    """But not on XLA, which goes by their signs."""
    x = np.tile(np.array([0.0, -0.0], dtype), 33)
    for f in (getattr(nx.lax, name), nx.jit(getattr(nx.lax, name), device=executor)):
        np.testing.assert_array_equal(np.signbit(np.asarray(f(x, -x))), np.signbit(-x))


def test_a_numpy_that_goes_by_signs_of_zeros_is_told_not_to():
    by_signs = lambda x, y: np.where((x == 0) & (y == 0), np.abs(y), np.maximum(x, y))
    x, y = np.float32([0, -0.0, 1, 3]), np.float32([-0.0, 0, 2, -3])
    np.testing.assert_array_equal(np.signbit(by_signs(x, y)), [False] * 4)
    got = ops._second_of_equals(by_signs)(x, y)
    np.testing.assert_array_equal(got, [0, 0, 2, 3])
    np.testing.assert_array_equal(np.signbit(got), [True, False, False, False])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nextafter_of_equal_zeros_is_the_second(dtype, executor):
    x = np.array([0.0, -0.0, 0.0, -0.0], dtype)
    for f in (nx.lax.nextafter, nx.jit(nx.lax.nextafter, device=executor)):
        assert np.signbit(np.asarray(f(x, x[[1, 0, 0, 1]]), "float64")).tolist() == [True, False, False, True]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_nextafter_where_no_zero_has_a_sign(dtype, executor):
    """The word of -0 is NaN there."""
    dtype = nx.numpy.dtype(dtype)
    x, y = (v.ravel() for v in np.meshgrid(*(np.arange(0, 256, 3).astype(np.uint8).view(dtype),) * 2))
    with np.errstate(all="ignore"):
        got, want = np.asarray(nx.jit(nx.lax.nextafter, device=executor)(x, y)), ops.nextafter.eval(x, y)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_integer_division_rounds_toward_zero_and_survives_zero():
    x = np.array([7, -7, 7, -7, 5, -128], np.int8)
    y = np.array([2, 2, -2, -2, 0, -1], np.int8)
    check_op(ops.div, [sample(x[:5], y[:5])], reference=lambda x, y: np.array([3, -3, -3, 3, -1], np.int8))
    check_op(ops.rem, [sample(x[:5], y[:5])], reference=lambda x, y: np.array([1, -1, 1, -1, 5], np.int8))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_division_by_a_constant_zero_compiles(dtype):
    x = nx.array([7, 9], dtype)
    for op, by_zero in ((ops.div, np.array([-1, -1]).astype(dtype)), (ops.rem, x)):
        # A compiler sees the zero at once, or after it has simplified.
        for function in (lambda v, op=op: op(v, 0), lambda v, op=op: op(v, ops.sub(v, v))):
            np.testing.assert_array_equal(nx.jit(function)(x), by_zero)


def test_extrema_share_the_gradient_of_ties_and_spread_nan():
    x = np.array([1.0, 2.0, np.nan], np.float32)
    y = np.array([1.0, 3.0, 0.0], np.float32)
    check_op(ops.max, [sample(x, y, differentiable=False)], reference=jax.lax.max)
    gradient = nx.grad(lambda a, b: nx.sum(ops.max(a, b)), argnums=(0, 1))(nx.asarray(x[:2]), nx.asarray(y[:2]))
    np.testing.assert_array_equal(gradient[0], [0.5, 0])
    np.testing.assert_array_equal(gradient[1], [0.5, 1])


def test_pow_has_finite_gradients_at_zero():
    for base, exponent in ((0.0, 2.0), (0.0, 1.0), (2.0, 0.0)):
        ours = nx.grad(lambda x, y: ops.pow(x, y), argnums=(0, 1))(base, exponent)
        theirs = jax.grad(lambda x, y: jax.lax.pow(x, y), argnums=(0, 1))(base, exponent)
        np.testing.assert_allclose(ours, theirs)
    g = nx.grad(ops.pow)
    for base in (np.nan, 0.0, -0.0, np.inf, 1e-45, -2.0):  # x^0 is 1 everywhere
        assert g(np.float32(base), np.float32(0)) == 0


def test_pow_has_both_mixed_derivatives_at_exponent_zero():
    """d/dx d/dy x^y = x^(y-1) (1 + y log x): a slope that is 0 still moves with the exponent."""
    h = nx.hessian(ops.pow, argnums=(0, 1))
    for base in (0.5, 2.0, 1e-8):
        (xx, xy), (yx, _) = h(np.float32(base), np.float32(0))
        np.testing.assert_allclose([xx, xy, yx], [0, 1 / base, 1 / base], rtol=1e-6)
    for base in (0.0, 1e-30, 1e-45):
        (xx, xy), _ = h(np.float32(base), np.float32(0))
        assert xx == xy == 0


def test_int4_stays_in_four_bits():
    x = np.arange(-8, 8).astype(ml_dtypes.int4)
    np.testing.assert_array_equal(ops.neg.eval(x).astype(int), [-8, *range(7, -8, -1)])
    np.testing.assert_array_equal(ops.abs.eval(x).astype(int), [-8, *range(7, -1, -1), *range(1, 8)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_power_of_one_half_is_no_root(dtype):
    x = nx.numpy.array([-np.inf, -0.0, -1.0, 4.0], dtype)
    for f in (nx.lax.pow, nx.jit(nx.lax.pow)):
        for exponent in (nx.numpy.array(0.5, dtype), nx.numpy.full(4, 0.5, dtype)):
            y = np.asarray(f(x, nx.numpy.broadcast_to(exponent, (4,)))).astype(np.float64)
            np.testing.assert_array_equal(y, [np.inf, 0.0, np.nan, 2.0])
            assert not np.signbit(y[1])


def test_a_finite_complex_number_by_an_infinite_one_is_zero():
    x = np.array([complex(np.nan, np.inf), complex(-np.inf, 1e-30), complex(np.inf, -np.inf), 2], np.complex64)
    for f in (lambda z: ops.div(nx.numpy.ones_like(z), z), lambda z: ops.integer_pow(z, y=-1)):
        for g in (f, nx.jit(f)):
            np.testing.assert_array_equal(g(nx.asarray(x)), [0, 0, 0, 0.5])
    assert complex(ops.rsqrt(nx.asarray(x[:1]))[0]) == 0
    one, two = nx.asarray(np.array([complex(-np.inf, np.inf)], np.complex64)), nx.asarray(np.array([3j], np.complex64))
    for g in (ops.div, nx.jit(ops.div)):
        assert complex(g(one, two)[0]) == complex(np.inf, np.inf)


def test_cbrt_has_its_infinite_slope_at_zero_and_none_at_infinity():
    slopes = nx.vmap(nx.grad(ops.cbrt))(nx.numpy.array([0.0, -0.0, np.inf, 8.0]))
    np.testing.assert_allclose(slopes, [np.inf, np.inf, 0, 1 / 12], rtol=1e-6)


def test_equal_complex_operands_share_the_tangent_of_their_maximum():
    x, y = nx.numpy.array([1j, 2 + 1j]), nx.numpy.array([1j, 1 + 3j])
    slopes = nx.grad(lambda a, b: nx.numpy.real(ops.max(a, b)).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_array_equal(slopes[0], [0.5, 1])
    np.testing.assert_array_equal(slopes[1], [0.5, 0])
