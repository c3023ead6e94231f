"""Shapes: every law, keys included."""

import numpy as np
import pytest

from nxjax.errors import AxisError, ParameterError, ShapeError
from nxjax.ops import shape as ops
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

X = np.random.default_rng(0).normal(size=(2, 3, 1)).astype(np.float32)
KEYS = np.arange(12, dtype=np.uint32).view(dtypes.key).reshape(2, 3, 1)


def broadcast(x, shape, broadcast_dimensions):
    order = np.argsort(broadcast_dimensions)
    full = [1] * len(shape)
    for i in order:
        full[broadcast_dimensions[i]] = x.shape[i]
    return np.broadcast_to(x.transpose(order).reshape(full), shape)


@pytest.mark.parametrize("x", [X, KEYS, X > 0, np.zeros((0, 3, 1), np.float32)])
def test_broadcast_in_dim(x):
    n = x.shape[0]
    samples = [
        sample(x, shape=(n, 3, 1), broadcast_dimensions=(0, 1, 2)),
        sample(x, shape=(4, n, 3, 5), broadcast_dimensions=(1, 2, 3)),
        sample(x, shape=(3, n, 2), broadcast_dimensions=(1, 0, 2)),
    ]
    errors = [
        bad(x, error=ShapeError, says="does not fit", shape=(n, 4, 1), broadcast_dimensions=(0, 1, 2)),
        bad(x, error=AxisError, says="out of range", shape=(n, 3, 1), broadcast_dimensions=(0, 1, 3)),
        bad(x, error=AxisError, says="twice", shape=(n, 3, 1), broadcast_dimensions=(0, 1, 1)),
        bad(x, error=ParameterError, says="per operand dimension", shape=(n, 3), broadcast_dimensions=(0, 1)),
    ]
    check_op(ops.broadcast_in_dim, samples, errors, reference=broadcast)


@pytest.mark.parametrize("x", [X, KEYS])
def test_reshape(x):
    errors = [bad(x, error=ShapeError, says="6 elements", shape=(4, 2))]
    check_op(ops.reshape, [sample(x, shape=(3, 2)), sample(x, shape=(6,))], errors, reference=np.reshape)


@pytest.mark.parametrize("x", [X, KEYS])
def test_transpose(x):
    errors = [bad(x, error=ParameterError, says="permutation", permutation=(0, 1, 1))]
    reference = lambda x, permutation: x.transpose(permutation)
    check_op(ops.transpose, [sample(x, permutation=(2, 0, 1))], errors, reference=reference)


@pytest.mark.parametrize("x", [X, KEYS])
def test_rev(x):
    errors = [bad(x, error=AxisError, says="out of range", dimensions=(3,))]
    reference = lambda x, dimensions: np.flip(x, dimensions)
    check_op(ops.rev, [sample(x, dimensions=(0, 1)), sample(x, dimensions=())], errors, reference=reference)
