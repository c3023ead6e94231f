"""Tables and the steps of rows: machine code against NumPy."""

import numpy as np
import pytest

from nxjax.kernels.cpu import ops_quant_rows as steps
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_softmax import tables8
from tests.kernels.cpu.elementwise import same_step
from tests.kernels.cpu.running import ISAS


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("narrow", "out"), [(True, "int16"), (False, "int32")])
def test_tables(name, narrow, out):
    """Every index of a table, and some beyond, which stand for some entry."""
    table = np.random.default_rng(0).integers(-(2**15), 2**15, 256).astype(np.int32)
    given = {"table": table.tobytes(), "least": -100, "narrow": narrow}
    q = np.arange(-400, 400)
    same_step(name, steps.looked_up, out, q.astype(np.int16), **given)
    same_step(name, steps.looked_up, out, q.astype(np.int32) * 5000003, **given)
    assert steps.looked_up.eval(q[300:556].astype(np.int16), **given).tolist() == table.tolist()


@pytest.mark.parametrize("name", ISAS)
def test_softmax(name):
    """Sums of every size, and exponentials from none to one."""
    rng = np.random.default_rng(0)
    exps = np.concatenate([tables8(Grid(np.dtype("int8"), s, 3), "double")[0] for s in (0.02, 0.1, 1e-6)])
    total = np.concatenate([(1 << np.arange(19, 31)) + k for k in (-1, 0, 1, 12345, 400001)])
    total = np.concatenate([total[total >= 1 << 19], rng.integers(1 << 19, 1 << 31, 300)]).astype(np.int32)
    same_step(name, steps.inverse, "int32", total)
    x = rng.choice(exps, total.size).astype(np.int32)
    x[:3] = 0, 2**31 - 1, 1
    same_step(name, steps.share, "int32", x)
    same_step(name, steps.softmax, "int16", x, steps.inverse.eval(total), total)
    whole = np.array([1 << 19], np.int32)  # of one element, which then has all
    assert steps.softmax.eval(np.array([2**31 - 1]), steps.inverse.eval(whole), whole).tolist() == [255]


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_means(name, rounding):
    total = np.random.default_rng(0).integers(-(2**20), 2**20, 300).astype(np.int32)
    total[:4] = 2**31 - 1, -(2**31), 2**30, -(2**30)
    for grid in (Grid(np.dtype("int8"), 0.05, 3), Grid(np.dtype("uint8"), 0.3, 200)):
        for exponent in (-31, -9, -1, 0, 3, 30):
            given = {"multiplier": 1518500250, "exponent": exponent, "out": grid, "rounding": rounding}
            same_step(name, steps.mean, "int16", total, **given)
