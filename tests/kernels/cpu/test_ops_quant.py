import numpy as np
import pytest

from nxjax.kernels.cpu import ops_quant as steps
from nxjax.ops.quant_grid import Grid
from tests.kernels.cpu.elementwise import same_step
from tests.kernels.cpu.running import ISAS

GRIDS = (Grid(np.dtype("int8"), 0.05, 3), Grid(np.dtype("uint8"), 0.3, 200), Grid(np.dtype("int8"), 1e-3, -128))
EDGES = np.array([0, 1, -1, 2, -2, 3, 2**30, -(2**30), 2**31 - 1, -(2**31), 2**31 - 2, 12345678, -12345678], np.int64)


@pytest.mark.parametrize("name", ISAS)
def test_rescaling_at_the_edges(name):
    """Every pair of extreme sums and factors, halves included, in both roundings."""
    rng = np.random.default_rng(0)
    acc = np.concatenate([EDGES, rng.integers(-(2**31), 2**31, 200), rng.integers(-3000, 3000, 400)]).astype(np.int32)
    mantissas = np.array([1 << 30, (1 << 31) - 1, 0, 1518500250, 1610612736], np.int32)
    for e in range(-31, 32):
        m = mantissas[np.arange(acc.size) % mantissas.size]
        zero, lo, hi = (np.int32(v) for v in (-7, -128, 127))
        exponents = np.int32(e)
        if e <= 30:
            same_step(name, steps.rescaled, "int16", acc, np.int32(5), m, exponents, zero, lo, hi, rounding="single")
        left, right = (s.eval(exponents).astype(np.int32) for s in (steps.left, steps.right))
        shifts = (left, right, steps.cut.eval(right))
        same_step(name, steps.rescaled, "int16", acc, np.int32(5), m, *shifts, zero, lo, hi, rounding="double")


@pytest.mark.parametrize("name", ISAS)
def test_factors(name):
    rng = np.random.default_rng(0)
    scale = np.concatenate([np.float32(2.0) ** rng.uniform(-60, 20, 300), [1.0, 0.5, 3e-39]]).astype(np.float32)
    x, y = np.float32(0.05), np.float32(0.3)
    for rounding in ("double", "single"):
        for step in (steps.mantissa, steps.exponent):
            same_step(name, step, "int32", scale, x, y, rounding=rounding)
    # Products about powers of two: what is rounded up to one has its exponent.
    near = np.arange(0x3F800000 - 300, 0x3F800000 + 300).astype(np.uint32).view(np.float32)
    for k in range(10, 24):
        other, one = np.float32(1 + 2.0**-k), np.float32(1)
        for rounding in ("double", "single"):
            for step in (steps.mantissa, steps.exponent):
                same_step(name, step, "int32", near, other, one, rounding=rounding)
                same_step(name, step, "int32", np.float32(2) - other * near[:1] + near - near[0], other, one,
                          rounding=rounding)  # fmt: skip
    b = (rng.normal(size=scale.size) * 10).astype(np.float32)
    same_step(name, steps.bias, "int32", b, scale, x)
    for step in (steps.left, steps.right):
        same_step(name, step, "int32", np.arange(-31, 32, dtype=np.int32))
    same_step(name, steps.cut, "int32", np.arange(32, dtype=np.int32))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_to_and_from_grids(name, grid):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=500) * grid.scale * 150).astype(np.float32)
    x[:9] = np.nan, np.inf, -np.inf, -0.0, grid.scale / 2, -grid.scale / 2, grid.scale * 1.5, 1e-45, -3e38
    same_step(name, steps.quantized, "int16", x, grid=grid)
    same_step(name, steps.real, "float32", np.arange(-255, 256, dtype=np.int16), grid=grid)
    w, scale = rng.normal(size=(2, 99)).astype(np.float32), np.float32(0.02)
    same_step(name, steps.single, "int32", w[0], scale, last=127)
    same_step(name, steps.pair, "int32", *w, scale, last=7)
    total, count = rng.integers(-4000, 4000, 99).astype(np.int32), rng.integers(1, 30, 99).astype(np.int32)
    same_step(name, steps.averaged, "int16", total, count, grid=grid)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_sums_products_and_moves(name, rounding):
    p, q = (v.ravel().astype(np.int16) for v in np.meshgrid(np.arange(-255, 256, 3), np.arange(-255, 256, 7)))
    a, b, out = GRIDS
    given = {"lo": -100, "hi": 120, "rounding": rounding}
    for sign in (1, -1):
        same_step(name, steps.summed, "int16", p, q, sign=sign, x_grid=a, y_grid=b, out=out, **given)
        same_step(name, steps.summed, "int16", p, q, sign=sign, x_grid=out, y_grid=a, out=a, **given)
    same_step(name, steps.multiplied, "int16", p, q, x_grid=a, y_grid=b, out=a, **given)
    for factor in (0.37, 1.0, 5.5, 1e-9):
        same_step(name, steps.moved, "int16", p, factor=factor, out=a, **given)
