import numpy as np
import pytest

from nxjax.lower.cpu.tape import CallStep, walk
from nxjax.ops.fixed.softmax import softmax_grid
from nxjax.ops.quant_elementwise import qunary
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_reduce import qmean, qsum
from nxjax.ops.quant_softmax import qsoftmax
from tests.lower.cpu.rules import equal
from tests.lower.cpu.rules.windows import NAMES, grid, on_grid

ROUNDINGS = ("double", "single")
INT8 = np.dtype("int8")


def kernels(op, *xs, **params):
    return [s for s in walk(equal.tape(op, *xs, **params).steps) if isinstance(s, CallStep)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", ["rsqrt", "gelu", "exp", "abs", "tanh"])
def test_functions(name, function):
    rng = np.random.default_rng(len(function))
    for shape in ((), (1,), (3, 37), (0, 2)):
        x_grid, y_grid = grid(rng), grid(rng, -6, 1)
        params = {"function": function, "x_grid": x_grid, "y_grid": y_grid, "rounding": "double"}
        x = np.asarray(on_grid(rng, shape, x_grid), np.float32)
        equal.same(qunary, x, name=name, **params)
        assert len(kernels(qunary, x, **params)) == (x.size > 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", [qmean, qsum], ids=lambda op: op.name)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_totals(name, op, rounding):
    rng = np.random.default_rng(NAMES.index(name))
    for shape, axes in (((5, 33), (1,)), ((5, 33), (0,)), ((2, 3, 4, 19), (1, 2)), ((3, 1), (1,)), ((2, 40), (0, 1))):
        x_grid, y_grid = grid(rng), grid(rng, -6, 1)
        params = {"axes": axes, "x_grid": x_grid, "y_grid": y_grid, "rounding": rounding}
        equal.same(op, on_grid(rng, shape, x_grid), name=name, **params)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_softmax(name, rounding):
    """Along any axis, of grids so coarse that little counts and so fine that all is equal; long rows go another way."""
    rng = np.random.default_rng(NAMES.index(name))
    shapes = ((7, 33), 1), ((2, 3, 17), 1), ((5, 16), 0), ((3, 1), 1), ((1, 4097), 1)
    for shape, axis in shapes:
        for scale in (0.5, 0.04, 2.0**-25)[: 3 if len(shape) > 2 else 1]:
            x_grid = Grid(INT8, scale, int(rng.integers(-128, 128)))
            params = {"axis": axis % len(shape), "x_grid": x_grid, "y_grid": softmax_grid(INT8), "rounding": rounding}
            equal.same(qsoftmax, on_grid(rng, shape, x_grid), name=name, **params)
    x = on_grid(rng, (65, 65), x_grid)
    assert len(kernels(qsoftmax, x, **{**params, "axis": 1})) == 1
