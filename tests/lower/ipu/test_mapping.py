"""Mappings put every element on exactly one tile."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nxjax.lower.ipu.mapping import grid, linear, parts, single
from nxjax.lower.ipu.program import Variable


@given(st.integers(0, 5000), st.integers(1, 200), st.integers(1, 64))
def test_parts_cover_once(size: int, count: int, grain: int):
    seen = []
    for start, length, many in parts(size, count, grain):
        for i in range(many):
            seen += range(start + i * length, start + (i + 1) * length)
    assert seen == list(range(size))
    assert sum(many for *_, many in parts(size, count, grain)) <= count


@given(st.integers(1, 5000), st.sampled_from([1, 2, 4]), st.integers(1, 300))
def test_linear_mappings_are_ordered_and_keep_the_grain(size: int, itemsize: int, tiles: int):
    v = Variable("v", (size,), np.dtype(f"int{8 * itemsize}"), linear(size, itemsize, tiles))
    found = v.tiles()
    assert (np.diff(found) >= 0).all() and found.min() == 0 and found.max() < tiles
    counts = np.bincount(found)
    assert (counts[:-1] * itemsize >= 128).all()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=0, max_size=3))
def test_grids_cover_once(dims: list[tuple[int, int]]):
    shape = tuple(n for n, _ in dims)
    covered = np.zeros(shape, int)
    places = []
    for starts, sizes, at in grid(shape, [parts(n, k) for n, k in dims]):
        for s, p in zip(starts, at, strict=True):
            covered[tuple(slice(a, a + z) for a, z in zip(s, sizes, strict=True))] += 1
            places.append(p)
    assert (covered == 1).all()
    assert sorted(places) == list(range(len(places)))


def test_single():
    assert (Variable("v", (3, 2), np.dtype("float32"), single((3, 2), 7)).tiles() == 7).all()
