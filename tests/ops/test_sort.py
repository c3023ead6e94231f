"""Sorting and top_k: every law, NaN, signed zeros and several keys included."""

import jax
import numpy as np
import pytest

from nxjax.errors import ParameterError, ShapeError
from nxjax.ops.sort import sort, top_k
from nxjax.testing import bad, check_op, sample

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


@pytest.mark.parametrize("k", [0, 1, 4])
def test_top_k(k):
    whole = (X * 2).astype(np.int32)
    samples = [sample(X, k=k, axis=1), sample(whole, k=min(k, 3), axis=0), sample(whole.astype(np.uint8), k=k, axis=1)]
    errors = [bad(X, error=ShapeError, says="larger", k=7, axis=1)]
    reference = lambda x, k, axis: jax.lax.top_k(x, k, axis=axis)
    check_op(top_k, samples, errors, reference=reference)
