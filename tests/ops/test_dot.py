"""Products of arrays, against JAX: values, derivatives, every batching, dtypes, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import AxisError, DtypeError, NxError, ParameterError, ShapeError
from nxjax.ops.dot import dot_general
from nxjax.ops.precision import Precision
from nxjax.testing import bad, check_op, sample
from nxjax.trace.array import as_value

# shapes of x and y, ((contracting), (batch))
CASES = [
    ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    ((4, 3), (5, 4), (((0,), (1,)), ((), ()))),
    ((4,), (4,), (((0,), (0,)), ((), ()))),
    ((3,), (4,), (((), ()), ((), ()))),
    ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    ((4, 2, 3), (5, 4, 2), (((0,), (1,)), ((1,), (2,)))),
    ((2, 3, 4, 5), (4, 6, 3, 2), (((2, 1), (0, 2)), ((0,), (3,)))),
    ((2, 3, 4, 5), (3, 5, 2), (((3, 1), (1, 0)), ((), ()))),
    ((2, 3, 4), (3, 2, 4), (((2,), (2,)), ((0, 1), (1, 0)))),
    ((3, 0), (0, 2), (((1,), (0,)), ((), ()))),
    ((), (2,), (((), ()), ((), ()))),
]


def _operands(xs, ys, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(xs).astype(dtype), rng.standard_normal(ys).astype(dtype)


@pytest.mark.parametrize(("xs", "ys", "numbers"), CASES)
@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients_are_jax(xs, ys, numbers, compiled):
    import jax

    x, y = _operands(xs, ys)
    wrapped = nx.jit if compiled else lambda f: f
    f = lambda a, b: dot_general(a, b, dimension_numbers=numbers)
    g = lambda a, b: jax.lax.dot_general(a, b, numbers)
    expected = np.asarray(g(x, y))
    np.testing.assert_allclose(wrapped(f)(nx.asarray(x), nx.asarray(y)).numpy(), expected, rtol=1e-5, atol=1e-5)
    _, pull = nx.vjp(f, x, y)
    _, pull_jax = jax.vjp(g, x, y)
    ct = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float32)
    for a, b in zip(wrapped(pull)(nx.asarray(ct)), pull_jax(ct), strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("xs", "ys", "numbers"), CASES)
def test_vmap_in_every_position(xs, ys, numbers):
    f = lambda a, b: dot_general(a, b, dimension_numbers=numbers)
    rng = np.random.default_rng(3)
    for dx in (None, *range(len(xs) + 1)):
        for dy in (None, *range(len(ys) + 1)):
            if dx is None and dy is None:
                continue
            x = rng.standard_normal(xs if dx is None else (*xs[:dx], 7, *xs[dx:])).astype(np.float32)
            y = rng.standard_normal(ys if dy is None else (*ys[:dy], 7, *ys[dy:])).astype(np.float32)
            found = nx.vmap(f, in_axes=(dx, dy))(x, y).numpy()
            for i in range(7):
                a = x if dx is None else np.take(x, i, dx)
                b = y if dy is None else np.take(y, i, dy)
                np.testing.assert_allclose(found[i], f(nx.asarray(a), nx.asarray(b)).numpy(), rtol=1e-5, atol=1e-5)


MATMUL = (((1,), (0,)), ((), ()))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_integer_products_are_exact(dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (5, 300), dtype=dtype, endpoint=True)
    y = rng.integers(info.min, info.max, (300, 4), dtype=dtype, endpoint=True)
    exact = x.astype(np.int64) @ y.astype(np.int64)
    for out in (None, np.dtype(np.int32)):
        f = lambda a, b, out=out: dot_general(a, b, dimension_numbers=MATMUL, preferred_element_type=out)
        for g in (f, nx.jit(f)):
            z = g(nx.asarray(x), nx.asarray(y)).numpy()
            assert z.dtype == (out or dtype)
            np.testing.assert_array_equal(z, exact.astype(z.dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("depth", [1023, 1024, 1025, 2047, 4099, 70_001])
def test_integer_products_of_the_largest_numbers_are_exact(dtype, depth):
    """Sums of floats hold them up to a depth: odd ones, and as many as that, would be rounded beyond it."""
    info = np.iinfo(dtype)
    for a, b in ((info.max, info.max), (info.min, info.min), (info.min, info.max)):
        x, y = np.full((1, depth), a, dtype), np.full((depth, 1), b, dtype)
        for out in (np.int32, np.int64):
            z = dot_general.eval(x, y, dimension_numbers=MATMUL, preferred_element_type=np.dtype(out))
            assert z.dtype == out
            assert z[0, 0] == np.array(int(a) * int(b) * depth).astype(out)


def test_short_floats_accumulate_in_float32():
    x = np.full((1, 4096), 1.0, ml_dtypes.bfloat16)
    y = np.full((4096, 1), 1.0, ml_dtypes.bfloat16)
    z = dot_general(nx.asarray(x), nx.asarray(y), dimension_numbers=MATMUL)
    assert z.dtype == ml_dtypes.bfloat16
    assert float(z.numpy()[0, 0]) == 4096.0
    wide = dot_general(
        nx.asarray(x), nx.asarray(y), dimension_numbers=MATMUL, preferred_element_type=np.dtype(np.float32)
    )
    assert wide.dtype == np.float32
    assert float(wide.numpy()[0, 0]) == 4096.0


def test_gradient_has_the_operands_dtype_when_the_result_is_wider():
    x, y = (nx.asarray(a).astype(nx.bfloat16) for a in _operands((3, 4), (4, 5)))
    f = lambda a, b: nx.sum(dot_general(a, b, dimension_numbers=MATMUL, preferred_element_type=np.dtype(np.float32)))
    gx, gy = nx.grad(f, argnums=(0, 1))(x, y)
    assert gx.dtype == gy.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(
        gx.numpy().astype(np.float32), np.broadcast_to(y.numpy().astype(np.float32).sum(1), (3, 4)), rtol=0.02
    )


@pytest.mark.parametrize("narrow", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_gradients_of_floats_of_8_bits_whose_product_is_wider(narrow):
    """Which promote with no other float; of matrices and of windows."""
    x, y = (nx.numpy.asarray(np.arange(n), dtype=narrow).reshape(s) for n, s in ((6, (2, 3)), (3, (3, 1))))
    f = lambda a, b: nx.numpy.einsum("ij,jk->ik", a, b, preferred_element_type="float32").sum()
    found = nx.grad(f, (0, 1))(x, y)
    assert [g.dtype.name for g in found] == [narrow, narrow]
    np.testing.assert_array_equal(np.asarray(found[0], np.float32), [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_array_equal(np.asarray(found[1], np.float32).ravel(), [3, 5, 7])
    g = lambda a, b: nx.lax.conv(a, b, (1,), "VALID", preferred_element_type="float32").sum()
    for slope in nx.grad(g, (0, 1))(x.reshape(1, 2, 3), y.reshape(1, 3, 1)[:, :2]):
        assert slope.dtype.name == narrow


def test_complex_product_does_not_conjugate():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))).astype(np.complex64)
    y = (rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))).astype(np.complex64)
    z = nx.jit(lambda a, b: dot_general(a, b, dimension_numbers=MATMUL))(x, y)
    np.testing.assert_allclose(z.numpy(), x @ y, rtol=1e-5)


def test_weak_only_if_both_operands_are():
    outer = (((), ()), ((), ()))
    strong = nx.asarray(np.ones((), np.float32))
    weak = as_value(2.0)
    assert dot_general(weak, weak, dimension_numbers=outer).weak_type
    assert not dot_general(weak, strong, dimension_numbers=outer).weak_type


def test_precision_reaches_the_lowered_text():
    f = lambda a, b: dot_general(a, b, dimension_numbers=MATMUL, precision=(Precision.HIGHEST, Precision.HIGH))
    program = nx.jit(f).trace(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)).program
    from nxjax.lower.stablehlo.builder import lower

    text = lower(program)[0]
    assert "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGH>]" in text
    assert str(nx.parse_program(str(program))) == str(program)


BAD = [
    ((3, 4), (5, 6), MATMUL, {}, ShapeError, "contracting dimensions differ in size"),
    ((3, 4), (5, 4), MATMUL, {}, ShapeError, "dimension 1 of the second operand has size 4"),
    ((2, 3), (3, 3), (((1,), (0,)), ((0,), (1,))), {}, ShapeError, "batch dimensions differ in size"),
    ((3, 4), (4, 5), (((1, 0), (0,)), ((), ())), {}, ParameterError, "differ in number"),
    ((3, 4), (4, 5), (((2,), (0,)), ((), ())), {}, AxisError, "out of range"),
    ((3, 4), (4, 5), (((-1,), (0,)), ((), ())), {}, AxisError, "out of range"),
    ((3, 3), (3, 3), (((1,), (0,)), ((1,), (1,))), {}, AxisError, "named twice"),
    ((3, 4), (4, 5), MATMUL, {"preferred_element_type": np.dtype(np.int32)}, DtypeError, "another kind"),
]


@pytest.mark.parametrize(("xs", "ys", "numbers", "more", "error", "text"), BAD)
def test_errors_name_the_op_and_the_fault(xs, ys, numbers, more, error, text):
    x, y = _operands(xs, ys)
    with pytest.raises(error, match=text) as caught:
        dot_general(nx.asarray(x), nx.asarray(y), dimension_numbers=numbers, **more)
    assert str(caught.value).startswith("dot_general: ")
    assert isinstance(caught.value, NxError)


def test_operands_of_two_dtypes_are_refused():
    with pytest.raises(DtypeError, match="operands differ in dtype"):
        dot_general(
            nx.asarray(np.ones((2, 2), np.float32)), nx.asarray(np.ones((2, 2), np.int32)), dimension_numbers=MATMUL
        )


def test_laws():
    x, y = _operands((2, 3, 4), (2, 4, 5))
    swapped = (((1,), (2,)), ((0,), (0,)))
    batched = (((2,), (1,)), ((0,), (0,)))
    z = (x + 1j * x[::-1]).astype(np.complex64)
    check_op(
        dot_general,
        [
            sample(x, y, dimension_numbers=batched),
            sample(x.swapaxes(1, 2), y.swapaxes(1, 2), dimension_numbers=swapped),
            sample(z, y.astype(np.complex64), dimension_numbers=batched),
            sample(x[0].astype(np.float16), y[0].astype(np.float16), dimension_numbers=MATMUL),
            sample(np.array([[True, False]]), np.array([[True], [True]]), dimension_numbers=MATMUL),
        ],
        [bad(x[0], x[0], dimension_numbers=MATMUL, error=ShapeError, says="contracting dimensions differ")],
    )
