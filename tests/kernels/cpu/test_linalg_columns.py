"""Which kernel solves which triangular systems; what both compute is tested in `test_linalg`."""

import numpy as np

from nxjax.kernels.cpu.linalg import Solve
from nxjax.kernels.cpu.linalg_columns import SolveColumns, kernel

F32 = np.dtype("f4")


def test_which_way_systems_are_solved():
    flags = {"transposed": False, "upper": False, "unit": False, "turned": False}
    assert isinstance(kernel(F32, 1000, 8, 3, **flags), Solve)
    assert isinstance(kernel(F32, 1, 8, 32, **flags), SolveColumns)
    assert isinstance(kernel(F32, 1000, 300, 3, **flags), SolveColumns)
    # What idle lanes cost decides: 16 lanes, of which systems or columns use some.
    for count, k, kind in ((16, 31, Solve), (16, 32, SolveColumns), (31, 16, SolveColumns), (31, 17, Solve)):
        assert isinstance(kernel(F32, count, 4, k, **flags), kind), (count, k)
