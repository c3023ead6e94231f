"""Endings of quantized products: machine code against NumPy, at the edges of 32 bits and of the grid."""

import numpy as np
import pytest

from nxjax.kernels.cpu import ops_quant_dot as endings
from nxjax.ops.quant_grid import Grid
from tests.kernels.cpu.elementwise import same_step
from tests.kernels.cpu.running import ISAS

EDGES = [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31), 2**31 - 2, 12345678, -12345678]
ACC = np.array([*EDGES, *np.random.default_rng(0).integers(-40000, 40000, 300)], np.int32)


@pytest.mark.parametrize("name", ISAS)
def test_dense(name):
    rng = np.random.default_rng(1)
    bias = np.where(np.arange(ACC.size) % 3, rng.integers(-500, 500, ACC.size), 0).astype(np.int32)
    # Halves of both signs are among the products by 1/2.
    factor = rng.choice([0.5, 0.25, 1e-3, 0.9, 1e-9], ACC.size)
    for zero, lo, hi in ((0, -128, 127), (-128, -128, 127), (200, 0, 255), (5, 5, 90)):
        ends = [np.int32(v) for v in (zero, lo, hi)]
        same_step(name, endings.dense, "int16", ACC, bias, factor, *ends)
    (found,) = (endings.dense.eval(*(np.array([v]) for v in (7, -2, 0.5, 3, -128, 127))),)
    assert found.tolist() == [3]  # 2.5 away from zero is 3; with the zero point 6, without it 3


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("grid", [Grid(np.dtype("int8"), 0.05, 3), Grid(np.dtype("uint8"), 0.3, 200)], ids=str)
def test_matmul(name, rounding, grid):
    lo, hi = (-128, 127) if grid.dtype == np.int8 else (0, 255)
    for factor in (0.5, 0.0037, 1.0, 2.0**-20):
        same_step(name, endings.matmul, "int16", ACC, factor=factor, out=grid, lo=lo, hi=hi, rounding=rounding)
    y = endings.matmul.eval(np.array([10, -10, 10000], np.int32), factor=0.5, out=grid, lo=lo, hi=hi, rounding=rounding)
    assert y.tolist() == [5, -5, hi - grid.zero_point]


@pytest.mark.parametrize("name", ISAS)
def test_factor(name):
    scales = np.array([0.05, 3e-39, 1.0, 7e20], np.float32)
    same_step(name, endings.factor, "float64", scales, np.float32(0.3), scales[::-1])
    assert endings.factor.eval(*(np.array([v], np.float32) for v in (0.5, 3.0, 4.0)))[0] == 0.375
