"""Views in other shapes, constants, places: what a rule asks the builder for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.lower.ipu.builder import Builder, UnsupportedEquation, collapsed, regrouped
from nxjax.lower.ipu.mapping import single
from nxjax.lower.ipu.program import Boxes, Copy, VariableView
from tests.lower.ipu.cases import TINY


def places(view):
    return Boxes(np.asarray([view.offset]), view.shape, view.strides).elements()[0]


@given(st.data())
def test_strides_of_another_shape(data):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(tuple))
    order = data.draw(st.permutations(range(len(shape))))
    x = np.arange(int(np.prod(shape))).reshape(shape).transpose(order)
    strides = tuple(s // x.itemsize for s in x.strides)
    to = tuple(data.draw(st.permutations([n for n in shape if n > 1])))
    found = regrouped(x.shape, strides, to)
    if found is not None:
        view = Boxes(np.zeros(1, np.int64), to, found).elements()[0]
        np.testing.assert_array_equal(view, x.reshape(to))
    else:
        # NumPy cannot do without a copy either.
        assert not np.shares_memory(x, x.reshape(to))


def test_neighbours_that_are_one_run_are_joined():
    dims = collapsed((2, 1, 3, 4), [(12, 9, 4, 1), (0, 0, 0, 1), (12, 5, 4, 1)])
    assert dims.shape == (6, 4)
    assert dims.strides == ((4, 1), (0, 1), (4, 1))


def test_constants_keep_once_what_repeats_and_are_shared():
    b = Builder(TINY)
    x = b.constant(np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3)))
    y = b.constant(np.arange(3, dtype=np.float32)[None])
    assert x.variable is y.variable
    assert x.variable.size == 3
    np.testing.assert_array_equal(b.known(x), np.tile(np.arange(3), (4, 1)))
    assert b.uniform(b.constant(np.full((5, 2), 7, np.int32))) == 7
    assert b.uniform(x) is None
    # Zeros of both signs and NaN are bits.
    assert b.constant(np.float32(0.0)).variable is not b.constant(np.float32(-0.0)).variable


def test_materialize_makes_one_copy_or_none():
    b = Builder(TINY)
    x = b.variable((4, 3), np.float32).view()
    assert b.materialize(x) is x
    turned = VariableView(x.variable, 0, (3, 4), (1, 3))
    y = b.materialize(turned)
    assert y.whole
    assert [type(s) for s in b.steps] == [Copy]


def test_only_what_no_step_has_touched_is_placed():
    b = Builder(TINY)
    v = b.variable((8,), np.float32, role="input")
    assert b.place(v, single((8,), 3))
    assert set(v.tiles().tolist()) == {3}
    b.materialize(v.view(), single((8,), 1))
    assert not b.place(v, single((8,), 2))


def test_tiles_have_no_64_bit_variables():
    with pytest.raises(UnsupportedEquation, match="int64"):
        Builder(TINY).variable((2,), np.int64)


def test_blocks_nest():
    b = Builder(TINY)
    x = b.variable((4,), np.float32).view()
    with b.block() as inner:
        b.materialize(x, single((4,), 2))
    assert len(inner) == 1
    assert not b.steps


@given(st.lists(st.integers(0, 3), min_size=0, max_size=3).map(tuple))
def test_views_name_their_elements(shape):
    b = Builder(TINY)
    view = b.variable(shape, np.float32).view()
    assert places(view).ravel().tolist() == list(range(int(np.prod(shape))))
