"""Blocks whose place is data: moved inside, for indices of any integer type, on both sides."""

import numpy as np
import pytest

from nxjax.kernels.cpu.window import MoveAt, Start
from tests.kernels.cpu.running import ISAS, run

X = np.arange(7 * 9, dtype=np.float32).reshape(7, 9)


def starts(dtype, rows, columns):
    return [Start(np.dtype(dtype), rows, X.strides[0]), Start(np.dtype(dtype), columns, X.strides[1])]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("at", [(0, 0), (2, 3), (4, 7), (100, 100), (-1, -5)])
def test_a_block_is_read_inside(isa, dtype, at):
    shape, dense = (3, 2), (8, 4)
    kernel = MoveAt(shape, X.strides, dense, 4, starts(dtype, 4, 7), "source")
    i, j = (np.asarray(a).astype(dtype) for a in at)
    row, column = (min(max(int(n), 0), bound) for n, bound in ((i, 4), (j, 7)))
    (got,) = run(kernel, X, i, j, name=isa, strided=True)
    np.testing.assert_array_equal(got, X[row : row + 3, column : column + 2])


def test_kernels_for_other_bounds_are_others():
    one = MoveAt((3, 2), X.strides, (8, 4), 4, starts("int32", 4, 7), "source")
    other = MoveAt((3, 2), X.strides, (8, 4), 4, starts("int32", 4, 6), "source")
    assert one != other
    assert one != MoveAt((3, 2), X.strides, (8, 4), 4, starts("int32", 4, 7), "target")
