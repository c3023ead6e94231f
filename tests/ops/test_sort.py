"""Sorting and top_k: every law, NaN, signed zeros and several keys included."""

import jax
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError, ShapeError
from nxjax.ops.sort import sort, top_k
from nxjax.testing import bad, check_op, sample
from nxjax.trace.array import wrap

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6)).astype(np.float32)
ODD = np.array([[1, np.nan, -0.0, 0.0, -np.inf, -np.nan], [2, 2, 1, np.inf, -1, 2]], np.float32)


def peer(*xs, dimension, num_keys=1, is_stable=True):
    return jax.lax.sort(xs, dimension=dimension, num_keys=num_keys, is_stable=is_stable)


def test_sort():
    check_op(
        sort,
        [sample(X, dimension=0), sample(X, -X, dimension=1), sample(RNG.permutation(20).astype(np.uint8), dimension=0)],
        [
            bad(X, X[0], error=ShapeError, says="equal shapes", dimension=0),
            bad(X, error=ParameterError, says="num_keys", dimension=0, num_keys=2),
        ],
        reference=peer,
    )


def test_special_values_and_several_keys():
    first = np.array([[1, 0, 1, 0, 1, 0], [2, 1, 2, 1, 2, 1]], np.int32)
    check_op(sort, [sample(ODD, differentiable=False, dimension=1)], reference=peer)
    check_op(sort, [sample(first, ODD, X[:2].copy(), differentiable=False, dimension=1, num_keys=2)], reference=peer)
    check_op(sort, [sample((X + 1j * X[::-1]).astype(np.complex64), dimension=1)], reference=peer)


@pytest.mark.parametrize("num_keys", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_tangents_go_with_their_elements(num_keys, axis):
    """Also those of equal elements, which only a later key, or their order, tells apart."""
    xs = [RNG.integers(0, 2, (7, 5)).astype(np.float32) for _ in range(3)]
    ts = [RNG.normal(size=(7, 5)).astype(np.float32) for _ in range(3)]
    order = np.lexsort([np.moveaxis(x, axis, -1) for x in reversed(xs[:num_keys])])
    want = [np.take_along_axis(v, np.moveaxis(order, -1, axis), axis) for v in (*xs, *ts)]
    f = lambda *xs: sort(*xs, dimension=axis, num_keys=num_keys)
    ys, tangents = nx.jvp(f, list(map(wrap, xs)), list(map(wrap, ts)))
    _, pull = nx.vjp(f, *map(wrap, xs))
    back = pull(tuple(map(wrap, want[3:])))
    for got, expected in zip((*ys, *tangents, *back), (*want, *ts), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("k", [0, 1, 4])
def test_top_k(k):
    whole = (X * 2).astype(np.int32)
    samples = [sample(X, k=k, axis=1), sample(whole, k=min(k, 3), axis=0), sample(whole.astype(np.uint8), k=k, axis=1)]
    samples.append(sample(X[:, :0] if k == 0 else X[:0], k=k, axis=1))
    errors = [bad(X, error=ShapeError, says="larger", k=7, axis=1)]
    reference = lambda x, k, axis: jax.lax.top_k(x, k, axis=axis)
    check_op(top_k, samples, errors, reference=reference)


KINDS = [np.bool_, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def odd_values(dtype):
    x = RNG.normal(size=(3, 40)) * 3
    if np.dtype(dtype).kind == "b":
        return x > 0
    y = x.astype(dtype)
    if np.issubdtype(y.dtype, np.floating) or y.dtype == ml_dtypes.bfloat16:
        y[0, :8] = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, -0.0, 0.0]
        y[1], y[1, ::3] = 0.0, -0.0
    return y


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("num_keys", [1, 2])
def test_compiled_sorts_give_the_same_bits(dtype, num_keys):
    """Keys packed into one integer or compared in pairs: the same order, NaNs and signs of zeros kept."""
    x = odd_values(dtype)
    first = RNG.integers(0, 3, x.shape).astype(np.int8)
    for operands in ([x, first], [first, x], [x]):
        params = {"dimension": 1, "num_keys": min(num_keys, len(operands)), "is_stable": True}
        values = [wrap(v) for v in operands]
        for y, expected in zip(
            nx.jit(lambda *v, p=params: sort(*v, **p))(*values), sort(*values, **params), strict=True
        ):
            assert y.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("axis", [0, 1])
def test_compiled_top_k_gives_the_same_bits(dtype, axis):
    x = wrap(odd_values(dtype))
    for y, expected in zip(nx.jit(lambda v: top_k(v, k=3, axis=axis))(x), top_k(x, k=3, axis=axis), strict=True):
        assert y.numpy().tobytes() == expected.numpy().tobytes()
