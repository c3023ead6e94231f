"""LU of matrices one at a time: bit for bit as `eval`."""

import numpy as np
import pytest

from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.linalg import Lu
from nxjax.kernels.cpu.linalg_lu import LuBlocks
from nxjax.kernels.cpu.linalg_rows import LuRows, kernel
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lu_is_that_of_eval(dtype, isa_name):
    rng = np.random.default_rng(0)
    for count, m, n in ((1, 1, 1), (3, 4, 4), (2, 21, 3), (2, 3, 37), (4, 20, 20), (1, 67, 65), (1, 40, 90)):
        x = rng.standard_normal((count, m, n)).astype(dtype)
        if count > 1:
            x[0, :, 0] = 0
            x[-1, :, 0] = np.round(x[-1, :, 0])  # equal pivots
            x[1, -1, 0] = np.nan
        k = LuRows(np.dtype(dtype), count, m, n)
        with np.errstate(all="ignore"):
            want = k.meaning(x)
        for y, z in zip(run(k, x, name=isa_name, cuts=[count // 2]), want, strict=True):
            np.testing.assert_array_equal(y, z)


def test_which_way():
    assert isinstance(kernel(np.dtype("f4"), 100, 8, 8), Lu)
    assert isinstance(kernel(np.dtype("f4"), 1, 8, 8), LuRows)
    assert isinstance(kernel(np.dtype("f4"), 100, 200, 200, exact=True), LuRows)
    assert isinstance(kernel(np.dtype("f4"), 100, 200, 200), LuBlocks)
    assert isinstance(kernel(np.dtype("f4"), 1, 200, 31), LuRows)
    assert isinstance(kernel(np.dtype("f8"), 1, 16, 200), LuBlocks)


@pytest.mark.skipif("avx2" not in ISAS, reason="the processor has no AVX2")
def test_what_stays_of_a_vector_is_no_masked_store():
    """LLVM makes one of a choice between new and old elements; on AMD's processors it takes longer than the rest."""
    text = engine(isa.named("avx2")).assembly([LuRows(np.dtype("f4"), 1, 40, 40)])
    assert "vdivss" in text
    assert "vmaskmov" not in text
