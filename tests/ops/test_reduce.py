"""Reductions, running reductions and positions of extrema: every law, against JAX."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import AxisError, DtypeError, ShapeError
from nxjax.ops import argreduce, cumulative
from nxjax.ops import reduce as ops
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
AXES = [(0,), (1, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", AXES)
def test_numeric(name, axes):
    op = getattr(ops, f"reduce_{name}")
    peer = lambda x, axes: getattr(jnp, name)(x, axes).astype(x.dtype) if axes else x
    x = X.copy()
    if name == "prod":
        x[0, 0, 0] = x[1, 1, 1] = 0  # gradients must survive zeros
    samples = [sample(x, axes=axes), sample((x * 5).astype(np.int32), axes=axes)]
    samples += [sample(x.astype(d), axes=axes, differentiable=False) for d in (np.float16, ml_dtypes.bfloat16)]
    errors = [
        bad(x, error=AxisError, says="out of range", axes=(3,)),
        bad(x, error=AxisError, says="twice", axes=(0, 0)),
    ]
    check_op(op, samples, errors, reference=peer)


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_complex(name):
    z = (X + 1j * X[::-1]).astype(np.complex64)
    check_op(
        getattr(ops, f"reduce_{name}"), [sample(z, axes=(1,))], reference=lambda x, axes: getattr(jnp, name)(x, axes)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_the_sum_of_one_element_is_the_element(executor, dtype):
    """Also where it is -0, as in JAX; NumPy adds it to 0."""
    with nx.config.using(executor=executor, enable_x64=True):
        x = -nx.zeros((2, 1, 3), dtype)
        for f in (lambda x: x.sum(1), lambda x: ops.reduce_sum(x, axes=(1,)), lambda x: x[0, 0, :1].sum()):
            for y in (f(x), nx.jit(f)(x)):
                assert np.signbit(np.real(np.asarray(y).astype(complex))).all()


def test_nothing_reduces_to_the_identity():
    empty = np.zeros((0, 2), np.float32)
    for name, value in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        expected = np.full(2, value, np.float32)
        check_op(
            getattr(ops, f"reduce_{name}"),
            [sample(empty, axes=(0,), differentiable=False)],
            reference=lambda x, axes, y=expected: y,
        )


@pytest.mark.parametrize(("name", "ufunc"), [("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)])
def test_bits(name, ufunc):
    x = np.random.default_rng(0).integers(-99, 99, (3, 4)).astype(np.int16)
    errors = [bad(X, error=DtypeError, says="f32", axes=(0,))]
    reference = lambda x, axes: ufunc.reduce(x, axis=axes)
    check_op(
        getattr(ops, f"reduce_{name}"), [sample(x, axes=(1,)), sample(x > 0, axes=(0, 1))], errors, reference=reference
    )


def test_ties_share_the_gradient():
    import nxjax as nx

    assert nx.grad(lambda x: ops.reduce_max(x, axes=(0,)))(nx.array([1.0, 3.0, 3.0])).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
@pytest.mark.parametrize("reverse", [False, True])
def test_running(name, reverse):
    x = X.copy()
    if name == "cumlogsumexp":
        x[0, 0, 1] = -np.inf
    peer = lambda x, axis, reverse: getattr(jax.lax, name)(x, axis, reverse)
    smooth = name != "cumlogsumexp"
    samples = [sample(x, axis=i, reverse=reverse, differentiable=smooth) for i in range(3)]
    samples.append(sample(X, axis=1, reverse=reverse))
    samples += [sample(np.ones((2, 0, 300), np.float32), axis=i, reverse=reverse) for i in (1, 2)]
    check_op(getattr(cumulative, name), samples, [bad(x, error=AxisError, says="out of range", axis=3)], reference=peer)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name):
    x = np.array([[1, 3, 3, 0], [np.nan, 1, np.nan, 2], [0, -1, -1, 5]], np.float32)
    peer = lambda x, axes, index_dtype: getattr(jax.lax, name)(x, axes[0], index_dtype)
    kinds = (x, np.nan_to_num(x).astype(np.int8), x > 1)
    samples = [sample(v, axes=(i,), index_dtype=dtypes.int32) for v in kinds for i in (0, 1)]
    nothing = np.zeros((2, 0), np.float32)
    errors = [bad(nothing, error=ShapeError, says="extremum of nothing", axes=(1,), index_dtype=dtypes.int32)]
    check_op(getattr(argreduce, name), samples, errors, reference=peer)


@pytest.mark.parametrize("n", [3, 19])  # doubled up and in groups
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_cumlogsumexp_of_ties_has_higher_derivatives(n, reverse, jit):
    t = np.linspace(-1, 2, n).astype(np.float32)
    push = lambda f: lambda v: nx.jvp(f, (v,), (nx.numpy.asarray(t),))[1]
    second = push(push(lambda v: cumulative.cumlogsumexp(v, axis=0, reverse=reverse)))
    third = push(second)
    # Of equal elements the weights are equal: the derivatives along t are the central moments of t so far.
    runs = [t[n - k :] if reverse else t[:k] for k in range(1, n + 1)]
    for f, power in ((second, 2), (third, 3)):
        moments = [np.mean((r.astype(np.float64) - r.mean(dtype=np.float64)) ** power) for r in runs]
        y = (nx.jit(f) if jit else f)(nx.numpy.ones(n))
        np.testing.assert_allclose(np.asarray(y)[:: -1 if reverse else 1], moments, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("name", ["prod", "segment_prod"])
def test_products_whose_parts_leave_the_range_have_derivatives(name, dtype):
    """The product of all is 1, those of some are infinite or 0; derivatives are the product over each element."""
    with nx.config.using(enable_x64=True):
        n = {"float32": 120, "bfloat16": 120, "float64": 1000, "complex64": 60}[dtype]
        x = np.array([2.0] * n + [0.5] * 2 * n + [2.0] * n).astype(dtype)
        f = nx.numpy.prod if name == "prod" else lambda x: nx.ops.segment_prod(x, np.zeros(x.size, int), 1)[0]
        for run in (lambda f: f, nx.jit):
            assert complex(run(f)(x)) == 1
            _, t = run(lambda x: nx.jvp(f, (x,), (nx.numpy.asarray(x),)))(x)
            assert complex(t) == x.size
            back = run(lambda x: nx.vjp(f, x)[1](nx.numpy.ones((), dtype))[0])(x)
            np.testing.assert_array_equal(np.asarray(back).astype(complex), 1 / x.astype(complex))
        if dtype == "float32":
            second = np.asarray(nx.jit(nx.hessian(f))(x))
            np.testing.assert_array_equal(second, (1 / np.outer(x, x)) * (1 - np.eye(x.size)))


@pytest.mark.parametrize("name", ["prod", "at"])
def test_second_derivatives_of_large_and_small_factors(name):
    f = nx.numpy.prod if name == "prod" else lambda u: nx.numpy.ones(2).at[np.zeros(4, int)].multiply(u)[0]
    x = np.array([1, 1, 1e20, 1e-20], np.float32)
    for run in (lambda f: f, nx.jit):
        np.testing.assert_allclose(run(nx.hessian(f))(x)[3], [1e20, 1e20, 1, 0], rtol=1e-5)
        assert not np.asarray(run(nx.grad(f))(np.array([0, 0, 1e30, 1e30], np.float32))).any()


def test_zeros_among_factors_that_leave_the_range():
    x = np.array([1e30, 0, 1e-30, 1e30, 1e-30, 1e-30, 1e30, 3], np.float32)
    back = nx.grad(nx.numpy.prod)(x)
    assert back[1] == pytest.approx(3, rel=1e-5)
    assert not np.delete(np.asarray(back), 1).any()


@pytest.mark.parametrize("shape", [(4096, 3), (3, 4096), (65_537, 2), (40, 50, 3), (3, 700, 5), (1000,)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_of_many_rows_lose_no_digits(shape, order):
    """Eager ones too, along any axes: a chain of 65,537 additions of 0.1 is off by 0.06 %."""
    x = np.full(shape, 0.1, np.float32, order=order)
    given = nx.numpy.asarray(x)
    for axes in [None, *range(x.ndim), tuple(range(x.ndim - 1)), (0, x.ndim - 1) if x.ndim > 1 else (0,)]:
        for keepdims in (False, True):
            expected = x.sum(axes, np.float64, keepdims=keepdims)
            y = nx.numpy.sum(given, axes, keepdims=keepdims)
            assert y.shape == expected.shape
            np.testing.assert_allclose(y, expected, 2e-5)
        general = tuple(range(x.ndim)) if axes is None else axes if type(axes) is tuple else (axes,)
        np.testing.assert_array_equal(nx.numpy.sum(given, axes), ops.reduce_sum(given, axes=general))
