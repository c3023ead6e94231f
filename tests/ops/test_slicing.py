"""Slices, padding, concatenation, dynamic slices: every law, against JAX."""

import jax
import numpy as np
import pytest

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops import slicing as ops
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
KEYS = np.arange(40, dtype=np.uint32).view(dtypes.key).reshape(4, 5)


@pytest.mark.parametrize("x", [X, KEYS])
def test_slice(x):
    samples = [
        sample(x, start_indices=(1, 0), limit_indices=(3, 5), strides=None),
        sample(x, start_indices=(0, 1), limit_indices=(4, 5), strides=(3, 2)),
        sample(x, start_indices=(2, 2), limit_indices=(2, 5), strides=None),
    ]
    errors = [
        bad(x, error=ShapeError, says="outside", start_indices=(0, 0), limit_indices=(5, 5)),
        bad(x, error=ParameterError, says="positive", start_indices=(0, 0), limit_indices=(4, 5), strides=(0, 1)),
        bad(x, error=ParameterError, says="per dimension", start_indices=(0,), limit_indices=(4,)),
    ]
    reference = lambda x, start_indices, limit_indices, strides: x[
        tuple(slice(a, b, c) for a, b, c in zip(start_indices, limit_indices, strides or (1, 1), strict=True))
    ]
    check_op(ops.slice, samples, errors, reference=reference)


PADDINGS = [
    ((1, 2, 0), (0, 0, 1)),
    ((-1, -1, 0), (0, 1, 0)),
    ((2, -3, 1), (-2, 1, 1)),
    ((0, 0, 0), (-5, 0, 0)),
]


@pytest.mark.parametrize("config", PADDINGS)
def test_pad(config):
    check_op(
        ops.pad,
        [sample(X, np.float32(2), padding_config=config)],
        [
            bad(X, np.zeros(1, np.float32), error=ShapeError, says="scalar", padding_config=config),
            bad(X, np.float16(0), error=DtypeError, says="equal dtypes", padding_config=config),
            bad(X, np.float32(0), error=ShapeError, says="cut off", padding_config=((-3, -3, 0), (0, 0, 0))),
        ],
        reference=lambda x, v, padding_config: jax.lax.pad(x, v, padding_config),
    )


def test_concatenate():
    errors = [
        bad(X, X[:, :2].copy(), error=ShapeError, says="outside the dimension", dimension=0),
        bad(X, X.astype(np.float16), error=DtypeError, says="equal dtypes", dimension=0),
    ]
    check_op(
        ops.concatenate,
        [sample(X, X[:, :2].copy(), X, dimension=1), sample(KEYS, KEYS, dimension=0), sample(X, dimension=0)],
        errors,
        reference=lambda *xs, dimension: np.concatenate(xs, dimension),
    )


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (-3, 4), (9, 9)])
def test_dynamic_slice(start):
    i, j = np.int32(start[0]), np.int32(start[1])
    errors = [
        bad(X, i, j, error=ShapeError, says="larger", slice_sizes=(5, 5)),
        bad(X, i, np.float32(0), error=DtypeError, says="integers", slice_sizes=(1, 1)),
        bad(X, i, error=ParameterError, says="per dimension", slice_sizes=(1, 1)),
    ]
    reference = lambda x, i, j, slice_sizes: jax.lax.dynamic_slice(x, np.clip([i, j], 0, None), slice_sizes)
    check_op(ops.dynamic_slice, [sample(X, i, j, slice_sizes=(2, 3))], errors, reference=reference)
    check_op(ops.dynamic_slice, [sample(KEYS, i, j, slice_sizes=(2, 3))])


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (-3, 4), (9, 9)])
def test_dynamic_update_slice(start):
    i, j = np.int32(start[0]), np.int32(start[1])
    update = X[:2, :3] + 1
    errors = [
        bad(X, np.zeros((5, 1), np.float32), i, j, error=ShapeError, says="larger"),
        bad(X, update.astype(np.float16), i, j, error=DtypeError, says="equal dtypes"),
    ]
    reference = lambda x, u, i, j: jax.lax.dynamic_update_slice(x, u, np.clip([i, j], 0, None))
    check_op(ops.dynamic_update_slice, [sample(X, update, i, j)], errors, reference=reference)


@pytest.mark.parametrize(
    "start", [np.int8(100), np.int8(-100), np.uint8(255), np.uint32(2**32 - 1), np.uint64(2**63 + 5)]
)
def test_start_indices_of_any_width(start):
    x, update = np.arange(300, dtype=np.float32), np.ones(5, np.float32)
    at = min(max(int(start), 0), 295)
    check_op(
        ops.dynamic_slice, [sample(x, start, slice_sizes=(5,))], reference=lambda x, s, slice_sizes: x[at : at + 5]
    )
    expected = np.concatenate([x[:at], update, x[at + 5 :]])
    check_op(ops.dynamic_update_slice, [sample(x, update, start)], reference=lambda *_: expected)


@pytest.mark.parametrize("x", [X, KEYS])
def test_split(x):
    errors = [bad(x, error=ShapeError, says="add up", sizes=(1, 2), axis=0)]
    samples = [sample(x, sizes=(1, 0, 4), axis=1), sample(x, sizes=(4,), axis=0)]
    check_op(ops.split, samples, errors, reference=lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis))
