"""Lazy values: who needs them, and index changes that cost nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nxjax.lower.cpu.lazy import (
    FIXED,
    LazyIndex,
    LazyLeaf,
    Map,
    Shaped,
    groups,
    indexed,
    moved,
    permutation,
    reshaped_strides,
    shaped,
)
from nxjax.lower.cpu.tape import Buffer, Ref
from nxjax.lower.cpu.view import View, dense_strides
from nxjax.ops.arithmetic import add

F32 = np.dtype(np.float32)


def leaf(*shape):
    return LazyLeaf(View(Ref(Buffer(4 * int(np.prod(shape)), "temp")), shape, dense_strides(shape, F32), F32))


def plus(x, y):
    return Map(add, (), (x, y), x.shape, F32)


def test_references():
    x = leaf(3)
    y = plus(x, x)
    z = plus(y, x)
    assert (x.refs, y.refs) == (3, 1)
    y.refs += 1
    y.dropped()
    assert (x.refs, y.refs) == (3, 1)
    z.refs += 1
    z.dropped()  # nobody wants z, so nobody wants y
    assert (x.refs, y.refs) == (0, 0)


def test_what_is_memory_needs_nothing():
    x = leaf(3)
    y = plus(x, x)
    y.settled(leaf(3).view)
    assert x.refs == 0
    assert not y.args
    assert y.height == 0


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), st.randoms())
def test_groups_have_equal_sizes(shape, rng):
    n, other = int(np.prod(shape)), []
    while n > 1:
        k = rng.choice([k for k in range(2, n + 1) if n % k == 0])
        other.append(k)
        n //= k
    found = groups(tuple(shape), tuple(other))
    for left, right in found:
        assert np.prod([shape[d] for d in left]) == np.prod([other[d] for d in right])
    assert [d for left, _ in found for d in left] == [d for d, k in enumerate(shape) if k != 1]


@given(st.permutations(range(3)), st.sampled_from([(24,), (4, 6), (2, 12), (8, 3), (2, 3, 4), (1, 24, 1)]))
def test_reshapes_of_views_are_numpys(order, shape):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(order)
    view = View(Ref(Buffer(96, "temp")), x.shape, x.strides, F32)
    strides = reshaped_strides(view, shape)
    if strides is None:
        assert not np.shares_memory(x.reshape(shape), x)
    else:
        y = np.lib.stride_tricks.as_strided(x, shape, strides)
        np.testing.assert_array_equal(y, x.reshape(shape))


def test_memory_is_looked_at_otherwise():
    x = leaf(4, 5)
    y = indexed(x, (5, 2), ((3, ((1, -2),)), (0, ((0, 1),))))
    assert isinstance(y, LazyLeaf)
    assert y.view.strides == (4, -40)
    assert y.view.ref.offset == 60
    assert shaped(x, (20,)).view.strides == (4,)
    assert moved(x.view, (0, 5), (FIXED, (0, ((1, 1),)))).ref.offset == 0
    assert isinstance(indexed(plus(x, x), (5, 4), ((0, ((1, 1),)), (0, ((0, 1),)))), LazyIndex)
    assert isinstance(shaped(plus(x, x), (20,)), Shaped)


def test_permutations():
    x = plus(leaf(4, 5), leaf(4, 5))
    turned = LazyIndex(x, (5, 4), ((0, ((1, 1),)), (0, ((0, 1),))))
    assert permutation(turned) == (1, 0)
    assert permutation(LazyIndex(x, (5, 4), ((0, ((1, 1),)), (4, ((0, -1),))))) is None
    assert permutation(LazyIndex(x, (5,), (FIXED, (0, ((0, 1),))))) is None


def test_layouts_are_inherited():
    last = View(Ref(Buffer(4 * 120, "temp")), (2, 3, 4, 5), (240, 4, 60, 12), F32)
    x = LazyLeaf(last)
    assert x.order == (0, 2, 3, 1)
    assert plus(x, leaf(2, 3, 4, 5)).order == (0, 2, 3, 1)
    assert leaf(2, 3, 4).order is None
