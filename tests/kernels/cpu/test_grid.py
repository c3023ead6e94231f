"""Loops over shared points: joined loops visit the same places, and items cover every point."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.grid import ItemGrid, Side, joined, walked
from tests.kernels.cpu.running import run
from tests.kernels.cpu.written import Written


def places(sides):
    """Where each array is at every point, in row-major order."""
    return [
        tuple(sum(i * s.strides[k] for i, s in zip(at, sides, strict=True)) for k in range(2))
        for at in itertools.product(*(range(s.size) for s in sides))
    ]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 4, 8, 16]), st.sampled_from([0, 4, -4, 16])), max_size=4)
)
def test_joined_loops_visit_the_same_places_in_the_same_order(sides):
    sides = [Side(n, (a, b)) for n, a, b in sides]
    found = joined(sides)
    assert places(found) == places(sides)
    assert len(found) <= sum(s.size > 1 for s in sides)


def test_dense_loops_become_one():
    assert joined([Side(2, (48, 48)), Side(3, (16, 16)), Side(4, (4, 4))]) == (Side(24, (4, 4)),)


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (13,), (1,)])
def test_items_cover_every_point(shape, limit):
    strides = np.zeros(shape, np.int32).strides
    sides = joined([Side(n, (s,)) for n, s in zip(shape, strides, strict=True)])
    cut = ItemGrid(sides, 1, limit)
    assert cut.weight <= 2 * limit or cut.items == np.prod(shape)

    def body(f, isa, words, scratch, index):
        begin = cut.begin(f, index, (pointer(f, words, 0),))
        walked(f, cut.inside, begin, lambda at: f.store(f.constant("i32", 7), at[0], 4))

    kernel = Written(body, lambda: [np.full(shape, 7, np.int32)], items=cut.items, about=(shape, limit))
    cuts = [cut.items // 2] if cut.items > 1 else None
    np.testing.assert_array_equal(run(kernel, cuts=cuts)[0], np.full(shape, 7))
