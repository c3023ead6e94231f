import ml_dtypes
import numpy as np
import pytest

from nxjax.kernels.cpu.search import Search
from tests.kernels.cpu.running import ISAS, run

TYPES = [np.int8, np.uint32, np.int64, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_numbers_in_any_order_and_items(name, side):
    rng = np.random.default_rng(0)
    sizes = [(1, 0, 9), (2, 1, 8), (1, 2, 7), (1, 7, 50), (3, 8, 40), (1, 100, 2060), (2, 129, 33), (1, 37, 5000)]
    for dtype, (rows, size, count) in zip(TYPES, sizes, strict=True):
        x, q = (rng.integers(0, 40, (rows, n)).astype(dtype) for n in (size, count))
        if np.dtype(dtype).kind not in "iu":
            x[:, size - size // 8 :] = q[:, ::11] = np.nan
        x = np.sort(x.astype(np.float64), 1).astype(dtype)
        for numbers in (q, np.sort(q.astype(np.float64), 1).astype(dtype)):
            kernel = Search(np.dtype(dtype), rows, size, count, side)
            (wanted,) = kernel.meaning(x, numbers)
            for cuts in (None, range(1, kernel.items)):
                (y,) = run(kernel, x, numbers, name=name, cuts=cuts)
                assert y.tobytes() == wanted.tobytes(), (dtype, rows, size, count)
