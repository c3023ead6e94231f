"""Kernels of plans: which loop has the vectors, what is cut, what is transposed first, what goes past the caches."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.kernels.cpu import knobs
from nxjax.kernels.cpu.move import Move
from nxjax.kernels.cpu.nest import Nest
from nxjax.lower.cpu.lower import lower
from nxjax.trace import dtypes


def kernels(f, *shapes, dtype=jnp.float32):
    xs = [nx.ShapeDtypeStruct(s, dtype) for s in shapes]
    program, _ = nx.make_jaxpr(f)(*xs).hoist_consts()
    return [c.kernel for c in lower(program).calls()]


def test_rows_and_columns():
    (rows,) = kernels(lambda x: x.sum(1), (50, 100))
    (columns,) = kernels(lambda x: x.sum(0), (50, 100))
    assert rows.rows
    assert not columns.rows
    assert columns.sizes == (100, 50)


def test_neighbours_are_joined():
    (nest,) = kernels(lambda x: x + 1, (5, 6, 7))
    assert nest.sizes == (210,)
    (nest,) = kernels(lambda x, y: x + y, (5, 6, 7), (7,))
    assert nest.sizes == (30, 7)
    (nest,) = kernels(lambda x: x.sum((0, 1)), (5, 6, 70))
    assert nest.sizes == (70, 30)


def test_short_rows_are_summed_across():
    (nest,) = kernels(lambda x: x.sum(1), (1000, 3))
    assert not nest.rows


def test_pixels_become_planes_in_one_kernel():
    (nest,) = kernels(lambda x: (x * 2 + 1).transpose(0, 3, 1, 2), (2, 40, 50, 3))
    assert nest.sizes == (2, 3, 2000)
    x = np.arange(2 * 40 * 50 * 3, dtype=np.int32).reshape(2, 40, 50, 3)
    y = nx.jit(lambda x: (x * 2 + 1).transpose(0, 3, 1, 2))(x)
    np.testing.assert_array_equal(y, (x * 2 + 1).transpose(0, 3, 1, 2))


def test_rows_whose_sums_are_dear_are_summed_across():
    move, nest = kernels(lambda x: nx.nn.logsumexp(x, -1), (1000, 16))
    assert isinstance(move, Move)
    assert not nest.rows
    (nest,) = kernels(lambda x: nx.nn.softmax(x), (1000, 16))
    assert nest.rows
    x = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    found = nx.jit(lambda x: nx.nn.logsumexp(x, -1))(x)
    np.testing.assert_allclose(found, np.log(np.exp(x).sum(-1)), rtol=1e-5)


def test_dear_functions_of_the_shortest_sums_are_made_in_vectors_of_few_columns():
    assert not kernels(lambda x: jnp.power((x * x).sum(-1), 1.5), (10, 3))[0].rows
    assert kernels(lambda x: (x * x).sum(-1), (10, 3))[0].rows
    assert kernels(lambda x: jnp.power((x * x).sum(-1), 1.5), (4, 3))[0].rows


def test_vectors_go_on_behind_short_rows():
    move, nest = kernels(lambda x, y: x * y[:, None], (1000, 3), (1000,))
    assert isinstance(move, Move)
    assert nest.sizes == (3000,)
    move, nest = kernels(lambda x, y: x - y, (1000, 3), (3,))
    assert move.nbytes < 4 * 1000
    assert nest.sizes[-1] > 64
    (nest,) = kernels(lambda x, y: x - y, (50, 3), (3,))  # not worth a copy
    assert nest.sizes == (50, 3)


@pytest.mark.parametrize("shape", [(4, 30, 40, 3), (1009, 2), (600, 2, 2), (64, 5, 7, 1)])
def test_short_rows_are_right(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    for i in range(len(shape)):
        y = rng.normal(size=[n if d == i else 1 for d, n in enumerate(shape)]).astype(np.float32)
        np.testing.assert_array_equal(nx.jit(lambda x, y: x * y + 1)(x, y), x * y + 1)
        flipped = np.flip(x, i)
        np.testing.assert_array_equal(nx.jit(lambda x, y, i=i: jnp.flip(x, i) - y)(x, y), flipped - y)


def test_large_reductions_are_cut():
    first, second = kernels(lambda x: x.sum(), (1000, 1000))
    assert first.items > 8
    assert first.total == 1_000_000
    assert second.sizes[-1] == first.items
    first, second = kernels(lambda x: jnp.sqrt((x * x).mean(0)), (1000, 1000))
    assert first.whole
    assert "sqrt" in second.key
    assert "sqrt" not in first.key


def test_reductions_of_dear_functions_are_cut_with_fewer_elements():
    assert len(kernels(lambda x: x.sum(), (30_000,))) == 1
    first, second = kernels(lambda x: nx.lax.lgamma(x).sum(), (30_000,))
    assert first.items > 4
    assert second.sizes[-1] == first.items
    assert len(kernels(lambda x: nx.lax.lgamma(x).sum(), (3_000,))) == 1


@pytest.mark.parametrize("shape", [(100_000,), (99_999, 3), (3, 99_999), (1000, 301), (257, 2, 1001)], ids=str)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_cut_reductions_are_right(shape, axis):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with nx.config.using(executor="cpu"):
        total, top, mean = nx.jit(lambda x: (x.sum(axis), x.max(axis), x.mean(axis) * 2 + 1))(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(total, wide.sum(axis), rtol=1e-5, atol=2e-3)
    np.testing.assert_array_equal(top, x.max(axis))
    np.testing.assert_allclose(mean, wide.mean(axis) * 2 + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "float64"])
@pytest.mark.parametrize("shape", [(700,), (699, 3), (3, 699), (10, 301), (7, 2, 31)], ids=str)
def test_cut_reductions_of_other_dtypes(dtype, shape):
    """In many little blocks; of narrow floats the parts are sums in float32."""
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(getattr(dtypes, dtype))
    wide = x.astype(np.float32 if "float" in dtype else np.int64)

    def f(x):
        return [(x.sum(k, dtype=x.dtype), x.max(k), x.sum(k, dtype=x.dtype) + 1) for k in (None, 0, -1)]

    with nx.enable_x64(True):
        got = nx.jit(f, device=CpuBackend({"nest.cut": 16}).device)(x)
    for k, (total, top, more) in zip((None, 0, -1), got, strict=True):
        assert total.dtype == x.dtype
        np.testing.assert_array_equal(total, wide.sum(k).astype(x.dtype))
        np.testing.assert_array_equal(top, wide.max(k).astype(x.dtype))
        np.testing.assert_array_equal(more, (wide.sum(k) + 1).astype(x.dtype))


def test_reductions_of_what_is_counted():
    """An element's own number would begin again in each block."""
    n = 4 * knobs.NEST_CUT.default + 5
    x = np.random.default_rng(0).integers(0, 2, n).astype(np.int32)

    def f(x):
        counted = nx.lax.iota(jnp.int32, n)
        return (x * counted).max(), (x * (counted % 7)).sum(dtype=jnp.int32)

    with nx.config.using(executor="cpu"):
        top, total = nx.jit(f)(x)
    assert top == np.flatnonzero(x)[-1]
    assert total == (x * (np.arange(n) % 7)).sum()


def test_no_second_pass_over_what_has_left_the_caches():
    assert len(kernels(lambda x: x.std(), (2000, 1000))) >= 4
    assert len(kernels(lambda x: x.std(1), (2000, 1000))) == 1


def test_inputs_in_another_order_are_transposed_first():
    move, nest = kernels(lambda x, y: x + y.T, (300, 200), (200, 300))
    assert isinstance(move, Move)
    assert isinstance(nest, Nest)
    assert all(x.strides == (4,) for x in nest.inputs)


def test_short_rows_have_vectors_along_the_longest_run():
    for f in (lambda x: x.max(-1), lambda x: x.sum(-1), lambda x: x.argmin(-1)):
        (nest,) = kernels(f, (8, 50, 40, 3))
        assert nest.sizes[nest.lane] >= 40
        assert nest.outputs[0].strides[nest.lane] == 4


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.float16, jnp.float32], ids=str)
def test_outputs_in_another_order_are_moved_afterwards(dtype):
    f = lambda x: nx.nn.softmax(x.astype(jnp.float32), axis=-1)
    nest, move = kernels(f, (8, 50, 40, 3), dtype=dtype)
    assert isinstance(move, Move)
    assert nest.outputs[0].strides[nest.lane] == 4
    x = (np.random.default_rng(0).random((8, 50, 40, 3)) * 9).astype(dtype)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(nx.jit(f)(x), e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_large_results_go_past_the_caches():
    (nest,) = kernels(lambda x: x + 1, (10_000_000,))
    assert nest.outputs[0].stream
    (nest,) = kernels(lambda x: x + 1, (1_000_000,))
    assert not nest.outputs[0].stream


@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("width", [15, 16, 17, 32, 40, 48])
def test_results_that_go_past_the_caches_may_begin_anywhere(width, turns):
    """A row of a stacked result begins at a cache line in some turns; rows of one kernel in all or none."""
    f = lambda x: (nx.lax.scan(lambda c, row: (c + row,) * 2, x[0], x)[1], x * 2 + x[:1])
    x = np.random.default_rng(0).integers(-9, 9, (turns, width)).astype(np.float32)
    choices = {"nest.stream": 0}
    with knobs.using(choices):
        nests = [k for k in kernels(f, x.shape) if isinstance(k, Nest)]
    stacked, twice = nx.jit(f, device=CpuBackend(choices).device)(x)
    assert any(out.stream for nest in nests for out in nest.outputs)
    for nest in nests:
        for out in nest.outputs:
            assert out.stream == (not any(s % 64 for s in out.strides[:-1]))
    np.testing.assert_array_equal(stacked, x.cumsum(0) + x[0])
    np.testing.assert_array_equal(twice, x * 2 + x[:1])


@pytest.mark.parametrize("sizes", [(1 << 20, 1), ((1 << 20) - 1, 0), ((1 << 20) + 1, 1)], ids=str)
def test_how_large_such_results_are(sizes):
    size, past = sizes
    with knobs.using({"nest.stream": 1 << 22}):
        (nest,) = kernels(lambda x: x + 1, (size,))
    assert nest.outputs[0].stream == bool(past)


def test_copies_are_moves():
    (move,) = kernels(lambda x: x.T, (300, 200))
    assert isinstance(move, Move)


def test_nothing():
    assert kernels(lambda x: x + 1, (0, 5)) == []
    (fill,) = kernels(lambda x: x.sum(0), (0, 5))
    assert not fill.inputs


def test_scalars():
    (nest,) = kernels(lambda x: x * 2 + 1, ())
    assert nest.items == 1
