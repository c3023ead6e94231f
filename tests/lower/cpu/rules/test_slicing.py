import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.ops.slicing import dynamic_slice, dynamic_update_slice
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, numbers, same, tape

DTYPES = [np.bool_, ml_dtypes.int4, np.int16, ml_dtypes.bfloat16, np.float32, dtypes.key, np.complex128]
INDICES = [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64]


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_blocks(name, data):
    shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 17, 40]), max_size=3))
    sizes = tuple(data.draw(st.integers(0, n)) for n in shape)
    dtype = data.draw(st.sampled_from(DTYPES))
    index = data.draw(st.sampled_from(INDICES))
    at = [np.asarray(data.draw(st.sampled_from([0, 1, 3, 39, 120, -1, -7])), np.int64).astype(index) for _ in shape]
    x = numbers(shape, dtype)
    same(dynamic_slice, x, *at, name=name, slice_sizes=sizes)
    same(dynamic_update_slice, x, numbers(sizes, dtype, 1), *at, name=name)


@pytest.mark.parametrize("at", [2**63, 2**64 - 1, 5])
def test_largest_unsigned_index(at):
    x = numbers((9,), np.float32)
    same(dynamic_slice, x, np.uint64(at), slice_sizes=(4,))


def test_indices_of_whole_dimensions_are_not_read():
    x, i = numbers((9, 30), np.float32), np.int32(3)
    same(dynamic_slice, x, i, i, slice_sizes=(9, 4))
    assert "<=0" not in str(tape(dynamic_slice, x, i, i, slice_sizes=(9, 4)))


def test_an_update_of_everything_is_the_update():
    x, u, i = numbers((9,), np.float32), numbers((9,), np.float32, 1), np.int32(3)
    same(dynamic_update_slice, x, u, i)
    assert "move" not in str(tape(dynamic_update_slice, x, u, i))
