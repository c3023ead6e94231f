"""Views: which memory is dense, and row-major strides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.lower.cpu.tape import Buffer, Ref
from nxjax.lower.cpu.view import View, dense_strides, dense_view
from nxjax.trace.types import ArrayType

F32 = np.dtype(np.float32)


@given(st.lists(st.integers(1, 5), max_size=4))
def test_dense_strides_are_numpys(shape):
    assert dense_strides(tuple(shape), F32) == np.empty(shape, F32).strides


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((), (), True),
        ((3, 4), (16, 4), True),
        ((3, 4), (4, 12), False),
        ((3, 4), (0, 4), False),
        ((3, 4), (-16, 4), False),
        ((1, 4), (0, 4), True),  # one element apart from nothing
        ((0, 4), (77, 5), True),
        ((3, 4), (32, 4), False),
    ],
)
def test_what_is_dense(shape, strides, dense):
    assert View(Ref(Buffer(64, "temp")), shape, strides, F32).is_dense is dense


def test_a_buffer_is_a_dense_view():
    b = Buffer(24, "input", 0)
    v = dense_view(b, ArrayType((2, 3), F32))
    assert v.is_dense
    assert v.size == 6
    assert v.ref == Ref(b)
