"""Which kernel solves which triangular systems; what both compute is tested in `test_linalg`."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg import Solve
from nxjax.kernels.cpu.linalg_columns import SolveColumns, SolveVector, kernel
from tests.kernels.cpu.running import ISAS, run

F32 = np.dtype("f4")


def test_which_way_systems_are_solved():
    flags = {"transposed": False, "upper": False, "unit": False, "turned": False}
    assert isinstance(kernel(F32, 1000, 8, 3, **flags), Solve)
    assert isinstance(kernel(F32, 1, 8, 32, **flags), SolveColumns)
    assert isinstance(kernel(F32, 1000, 300, 3, **flags), SolveColumns)
    # What idle lanes cost decides: 16 lanes, of which systems or columns use some.
    for count, k, kind in ((16, 31, Solve), (16, 32, SolveColumns), (31, 16, SolveColumns), (31, 17, Solve)):
        assert isinstance(kernel(F32, count, 4, k, **flags), kind), (count, k)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_one_right_hand_side(dtype, transposed, upper):
    n, count = 77, 3
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((count, n, n)) / n + 2 * np.eye(n)).astype(dtype)
    other = np.triu if upper == transposed else np.tril
    a[other(np.ones((count, n, n)), 1 if other is np.triu else -1) > 0] = np.nan  # which is not read
    b = rng.standard_normal((count, n, 1)).astype(dtype)
    for unit in (False, True):
        x = kernel(np.dtype(dtype), count, n, 1, transposed=transposed, upper=upper, unit=unit, turned=False)
        assert isinstance(x, SolveVector)
        (found,) = run(x, a, b, name=ISAS[0])
        (wanted,) = x.meaning(a, b)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e3 * np.finfo(dtype).eps)
    # Where all processors are to agree it is no choice.
    assert isinstance(
        kernel(F32, 1, n, 1, exact=True, unit=True, turned=False, transposed=True, upper=True), SolveColumns
    )
