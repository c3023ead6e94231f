"""`lax`'s functions that make, move, index and sort data: signatures, values and refusals, against JAX."""

import inspect

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import AxisError, ParameterError, ShapeError

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
ROW = np.array([3, 1, 2, 1, 0], np.int32)

CALLS = {
    "broadcast": lambda L: L.broadcast(X, (5, 1)),
    "broadcast_in_dim": lambda L: L.broadcast_in_dim(X, (7, 2, 3, 4), (1, 2, 3)),
    "broadcast_like": lambda L: L.broadcast_like(X[0, 0], X),
    "broadcast_to_rank": lambda L: L.broadcast_to_rank(X, 5),
    "broadcasted_iota": lambda L: L.broadcasted_iota(np.float32, (2, 3), 1),
    "collapse": lambda L: L.collapse(X, 1),
    "collapse negative": lambda L: L.collapse(X, 0, -1),
    "concatenate": lambda L: L.concatenate([X, X[:, :1]], 1),
    "empty": lambda L: L.empty((2, 0), np.int8),
    "expand_dims": lambda L: L.expand_dims(X, (0, -1)),
    "full": lambda L: L.full((2, 3), 7, np.uint8),
    "full of the value's type": lambda L: L.full((2,), np.int16(7)),
    "full_like": lambda L: L.full_like(X, 2),
    "full_like of other shape": lambda L: L.full_like(X, 2, shape=(3,), dtype=np.int32),
    "iota": lambda L: L.iota(np.int32, 5),
    "pad": lambda L: L.pad(X, 0.0, [(1, 1, 0), (-1, 0, 0), (0, -1, 2)]),
    "reshape": lambda L: L.reshape(X, (4, 6), (2, 0, 1)),
    "rev": lambda L: L.rev(X, (0, 2)),
    "split": lambda L: L.split(X, (1, 3), 2),
    "squeeze": lambda L: L.squeeze(X[:, :1], (-2,)),
    "stack": lambda L: L.stack([X, X], -1),
    "tile": lambda L: L.tile(X, (2, 1, 3)),
    "transpose": lambda L: L.transpose(X, (2, 0, 1)),
    "unstack": lambda L: L.unstack(X, 1),
    "slice": lambda L: L.slice(X, (0, 1, 0), (2, 3, 4), (1, 1, 3)),
    "slice_in_dim": lambda L: L.slice_in_dim(X, -2, None, 1, axis=-1),
    "index_in_dim": lambda L: L.index_in_dim(X, -1, 1, keepdims=False),
    "index_take": lambda L: L.index_take(X, [ROW[:2] % 2, ROW[:2]], (0, 2)),
    "dynamic_slice": lambda L: L.dynamic_slice(X, (1, -2, 9), (1, 2, 3)),
    "dynamic_slice of an array": lambda L: L.dynamic_slice(X, np.array([0, 1, -1]), (1, 2, 3)),
    "dynamic_slice_in_dim": lambda L: L.dynamic_slice_in_dim(X, np.int32(-3), 2, 2),
    "dynamic_index_in_dim": lambda L: L.dynamic_index_in_dim(X, 2, 1, keepdims=False),
    "dynamic_update_slice": lambda L: L.dynamic_update_slice(X, X[:1, :2, :2] * 0, (1, 5, 1)),
    "dynamic_update_slice_in_dim": lambda L: L.dynamic_update_slice_in_dim(X, X[:, :1] * 0, -1, 1),
    "dynamic_update_index_in_dim": lambda L: L.dynamic_update_index_in_dim(X, X[:, 0] * 0, 2, 1),
    "sort": lambda L: L.sort(X, 1),
    "sort several": lambda L: L.sort([ROW, ROW[::-1]], num_keys=2),
    "sort_key_val": lambda L: L.sort_key_val(ROW, np.arange(5)),
    "top_k": lambda L: L.top_k(X, 2),
    "top_k of an axis": lambda L: L.top_k(X, 2, axis=0),
    "approx_max_k": lambda L: L.approx_max_k(X, 2),
    "approx_min_k": lambda L: L.approx_min_k(X, 2),
    "stop_gradient": lambda L: L.stop_gradient({"a": X})["a"],
    "optimization_barrier": lambda L: L.optimization_barrier((X, ROW)),
}


def leaves(y):
    return list(y) if isinstance(y, (tuple, list)) else [y]


@pytest.mark.parametrize("name", CALLS)
def test_as_in_jax(name):
    for y, peer in zip(leaves(CALLS[name](lax)), leaves(CALLS[name](jax.lax)), strict=True):
        assert y.dtype == peer.dtype
        np.testing.assert_array_equal(y, peer)


def test_signatures_are_those_of_jax():
    def parameters(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    files = {"structural", "shapes", "slices", "reductions", "nxjax.ops.dimension_numbers"}
    for name in (name for name, file in lax._HOMES.items() if file in files):
        assert parameters(getattr(lax, name)) == parameters(getattr(jax.lax, name)), name


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"])
@pytest.mark.parametrize("mode", ["clip", "drop", None])
def test_scatter_takes_modes_by_name(name, mode):
    at, updates = np.array([[2], [0], [7]]), np.array([5.0, -1.0, 4.0], np.float32)

    def call(L):
        numbers = L.ScatterDimensionNumbers((), (0,), (0,))
        return getattr(L, name)(X[0, 0], at, updates, numbers, mode=mode)

    np.testing.assert_allclose(call(lax), call(jax.lax), rtol=1e-6)


def test_gather_takes_jaxs_own_dimension_numbers():
    numbers = jax.lax.GatherDimensionNumbers((1,), (0,), (0,))
    y = lax.gather(X[0], np.array([[2], [5]]), numbers, (1, 4), mode="fill", fill_value=-1)
    np.testing.assert_array_equal(y, np.stack([X[0, 2], np.full(4, -1, np.float32)]))


@pytest.mark.parametrize("unique", [True, False])
def test_scatter_apply(unique):
    at = np.array([[1], [3]] if unique else [[1], [1], [0], [9]])

    def call(L):
        return L.scatter_apply(
            L.iota(np.float32, 4),
            np.asarray(at) if L is lax else jax.numpy.asarray(at),
            lambda v: 2 * v + 1,
            L.ScatterDimensionNumbers((), (0,), (0,)),
            update_shape=(len(at),),
            unique_indices=unique,
        )

    np.testing.assert_array_equal(call(lax), call(jax.lax))


@pytest.mark.parametrize("start", [-9, -1, 0, 1, 9])
def test_negative_starts_count_from_the_end_unless_told_otherwise(start):
    f = nx.jit(lambda s, allow: lax.dynamic_slice_in_dim(X, s, 2, 2, allow_negative_indices=allow), static_argnums=1)
    g = jax.jit(
        lambda s, allow: jax.lax.dynamic_slice_in_dim(X, s, 2, 2, allow_negative_indices=allow), static_argnums=1
    )
    for allow in (True, False):
        np.testing.assert_array_equal(f(start, allow), g(start, allow))


def test_the_gradient_of_split_is_one_concatenation():
    def f(x):
        a, _, c = lax.split(x, (1, 2, 1), 2)
        return nx.sum(a * 2) + nx.sum(c * c)

    np.testing.assert_allclose(nx.grad(f)(X), jax.grad(lambda x: f_jax(x))(X), rtol=1e-6)
    assert str(nx.make_jaxpr(nx.grad(f))(X)).count("concatenate") == 1


def f_jax(x):
    a, _, c = jax.lax.split(x, (1, 2, 1), 2)
    return (a * 2).sum() + (c * c).sum()


REFUSALS = {
    "squeeze": (lambda: lax.squeeze(X, (0,)), ShapeError),
    "split": (lambda: lax.split(X, (1, 1), 2), ShapeError),
    "concatenate": (lambda: lax.concatenate([], 0), ParameterError),
    "stack": (lambda: lax.stack([X, X[0]]), ShapeError),
    "tile": (lambda: lax.tile(X, (2,)), ParameterError),
    "expand_dims": (lambda: lax.expand_dims(X, (4,)), AxisError),
    "broadcast_shapes": (lambda: lax.broadcast_shapes((2,), (3,)), ShapeError),
    "dynamic_slice": (lambda: lax.dynamic_slice(X, (0,), (1, 1, 1)), ParameterError),
    "full": (lambda: lax.full((2,), X), ShapeError),
    "sort": (lambda: lax.sort([]), ParameterError),
    "top_k": (lambda: lax.top_k(X, 9), ShapeError),
    "gather": (
        lambda: lax.gather(X, ROW[:, None], lax.GatherDimensionNumbers((9,), (0, 1), (0,)), (1, 1, 4)),
        ParameterError,
    ),
    "scatter_add": (
        lambda: lax.scatter_add(X, ROW[:, None], X[0], lax.ScatterDimensionNumbers((1,), (1, 0), (0,))),
        ParameterError,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_function(name):
    call, error = REFUSALS[name]
    with pytest.raises(error, match=name):
        call()


def test_gather_moves_slices_inside_unless_a_mode_says_otherwise():
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    found = lax.gather(np.arange(5, dtype=np.int8), np.array([[6], [-3], [1]]), numbers, (2,))
    np.testing.assert_array_equal(found, [[3, 4], [0, 1], [1, 2]])


def test_bitwise_reductions_are_not_weak_and_complex_extrema_of_nothing_are_infinite():
    assert not lax.reduce_or(3, ()).weak_type
    np.testing.assert_array_equal(lax.reduce_min(np.zeros((0, 2), np.complex64), (0,)), [np.inf, np.inf])
    np.testing.assert_array_equal(lax.reduce_max(np.zeros((0, 2), np.complex64), (0,)), [-np.inf, -np.inf])
