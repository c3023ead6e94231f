"""Products of many tiny matrices against NumPy."""

import numpy as np
import pytest

from nxjax.kernels.cpu.tiny import TinyProducts
from tests.kernels.cpu.running import ISAS, run

# batch, m, k, n, strides of both operands along batch, rows and columns
CASES = [
    (7, 3, 3, 3, (9, 3, 1), (9, 3, 1)),
    (7, 3, 3, 3, (9, 3, 1), (9, 1, 3)),
    (9, 2, 2, 2, (4, 2, 1), (4, 2, 1)),
    (3, 2, 2, 2, (4, 1, 2), (4, 2, 1)),
    (5, 4, 4, 4, (16, 4, 1), (16, 4, 1)),
    (5, 4, 4, 1, (16, 4, 1), (4, 1, 1)),
    (6, 3, 1, 3, (3, 1, 1), (3, 1, 1)),
    (6, 2, 3, 2, (0, 3, 1), (6, 2, 1)),
    (1, 1, 2, 2, (2, 2, 1), (4, 2, 1)),
    (4, 2, 2, 3, (11, 4, 1), (30, 5, 2)),
]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_products(name, dtype, case):
    batch, m, k, n, left, right = case
    kernel = TinyProducts(np.dtype(dtype), *case)
    rng = np.random.default_rng(0)

    def operand(sizes, strides):
        ends = [s * (size - 1) for s, size in zip(strides, sizes, strict=True)]
        flat = rng.normal(size=1 + sum(ends)).astype(dtype)
        return np.lib.stride_tricks.as_strided(flat, sizes, [s * flat.itemsize for s in strides])

    x, w = operand((batch, m, k), left), operand((batch, k, n), right)
    for cuts in (None, range(1, kernel.items)):
        (y,) = run(kernel, x, w, name=name, cuts=cuts, strided=True)
        np.testing.assert_allclose(y, x @ w, rtol=1e-5, atol=20 * np.finfo(dtype).eps)


def test_what_does_not_fit_has_no_group():
    f = np.dtype(np.float32)
    assert TinyProducts(f, 9, 5, 5, 3, (25, 5, 1), (15, 3, 1)).group == 0
    assert TinyProducts(f, 9, 2, 2, 2, (4, -2, 1), (4, 2, 1)).group == 0
    assert TinyProducts(f, 9, 2, 2, 2, (4, 2, 1), (4, 2, 1)).group == 4
    assert TinyProducts(f, 9, 2, 2, 2, (16, 2, 1), (4, 2, 1)).group == 1
