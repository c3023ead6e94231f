"""The laws of every composite op: value, derivative, batching, expansion, compiled code."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import AxisError, DtypeError, ShapeError
from nxjax.ops import (
    composite_activation,
    composite_attention,
    composite_norm,
    composite_one_hot,
    composite_search,
    composite_softmax,
)
from nxjax.testing import check_op, sample

rng = np.random.default_rng(0)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


X, S, B = f32(2, 3, 4), f32(4), f32(4)
Q, K, V = f32(2, 3, 4, 2), f32(2, 5, 2, 2), f32(2, 5, 2, 2)
ATTENTION = {"scale": 0.7, "is_causal": False, "local_window_size": None, "has_bias": False, "has_mask": False}
CASES = [
    (composite_softmax.softmax, [sample(X, axis=a) for a in range(3)]),
    (composite_softmax.log_softmax, [sample(X, axis=a) for a in range(3)]),
    (composite_softmax.logsumexp, [sample(X, axes=a) for a in ((0,), (0, 2), ())]),
    (composite_activation.relu, [sample(X), sample(np.arange(-2, 3))]),
    (composite_activation.relu6, [sample(X * 4)]),
    (composite_activation.silu, [sample(X)]),
    (composite_activation.gelu, [sample(X, approximate=a) for a in (False, True)]),
    (composite_activation.hard_swish, [sample(X * 3)]),
    (composite_activation.leaky_relu, [sample(X, alpha=0.1)]),
    (composite_activation.elu, [sample(X * 2)]),
    (composite_activation.softplus, [sample(X * 4)]),
    (composite_norm.layer_norm, [sample(X, S, B, axis=(2,), epsilon=1e-5)]),
    (composite_norm.rms_norm, [sample(X, S, axis=(2,), epsilon=1e-5)]),
    (composite_norm.batch_norm_inference, [sample(X, S, B, B, abs(S) + 1, axis=2, epsilon=1e-5)]),
    (
        composite_one_hot.one_hot,
        [sample(np.array([[0, 2, 5]], np.int32), num_classes=4, dtype=np.dtype(np.float32), axis=a) for a in range(3)],
    ),
    (
        composite_search.searchsorted,
        [
            sample(np.array([-1, 2, 2, 5]), np.array([[2, -3, 7], [5, 2, 0]]), side="right"),
            sample(np.sort(X), f32(2, 3, 5), side="left"),
            sample(np.sort(X), np.full((2, 3), np.nan, np.float32), side="left"),
        ],
    ),
    (
        composite_attention.dot_product_attention,
        [
            sample(Q, K, V, **ATTENTION),
            sample(Q, K, V, f32(1, 4, 3, 5), **{**ATTENTION, "has_bias": True, "is_causal": True}),
        ],
    ),
    (
        composite_attention.cached_attention,
        [
            sample(Q, K, V, np.array([0, 2], np.int32)[: len(Q)], scale=0.7, window=0, cap=None),
            sample(Q, K, V, np.array([1, 9], np.int32)[: len(Q)], scale=0.7, window=2, cap=3.0),
        ],
    ),
]


@pytest.mark.parametrize(("op", "samples"), CASES, ids=lambda v: getattr(v, "name", ""))
def test_laws(op, samples):
    check_op(op, samples)


@pytest.mark.parametrize("op", [composite_norm.layer_norm, composite_norm.rms_norm], ids=lambda op: op.name)
def test_parameters_have_the_shape_of_the_normalized_axes(op):
    given = [S, B] if op is composite_norm.layer_norm else [S]
    for wrong, error in ((f32(3), ShapeError), (f32(1, 4), ShapeError), (S.astype(np.float16), DtypeError)):
        with pytest.raises(error, match=op.name):
            op(*map(nx.asarray, (X, wrong, *given[1:])), axis=(2,), epsilon=1e-5)
    with pytest.raises(AxisError):
        op(*map(nx.asarray, (X, *given)), axis=(3,), epsilon=1e-5)
