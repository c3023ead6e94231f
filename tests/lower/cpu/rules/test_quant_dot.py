import itertools

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CallStep, HostStep, walk
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_products import qdot, qmatmul
from nxjax.trace import dtypes

ISAS = isa.possible()
GRIDS = {
    "int8": Grid(np.dtype("int8"), 0.05, 3),
    "uint8": Grid(np.dtype("uint8"), 0.02, 131),
    "int4": Grid(dtypes.int4, 0.4, -2),
}
OUT = Grid(np.dtype("int8"), 0.7, -4)


def run(function, *xs, name=None):
    with config.using(cpu_isa=name or ""):
        types = [nx.ShapeDtypeStruct(x.shape, x.dtype) for x in xs]
        program = lower(nx.make_jaxpr(function)(*types))
        assert not [s for s in walk(program.steps) if isinstance(s, HostStep)], str(program)
        return TapeInterpreter(program, engine(isa.current()))(list(xs))[0], program


def activations(rng, shape, grid):
    low, high = grid.limits
    return grid.dequantize(rng.integers(low, high, shape, endpoint=True).astype(grid.dtype))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("known", [False, True])
def test_dense_layers(name, rounding, known):
    rng = np.random.default_rng(0)
    for (kind, grid), (m, k, n) in zip(GRIDS.items(), ((5, 64, 50), (33, 7, 20), (1, 300, 9)), strict=True):
        x = activations(rng, (m, k), grid)
        scale = rng.uniform(0.01, 0.03, (1, n)).astype(np.float32)
        w = (scale * rng.integers(-127, 127, (k, n))).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        params = {"x_grid": grid, "y_grid": OUT, "lo": -128, "hi": 90, "w_dtype": np.dtype("int8")}
        params |= {"rounding": rounding, "dimension_numbers": (((1,), (0,)), ((), ()))}
        if known:
            constants = [jnp.asarray(v) for v in (w, scale, bias)]
            found, program = run(lambda x, c=constants, p=params: qdot(x, *c, **p), x, name=name)
            assert "pack" not in [s.kernel.key.split("(")[0] for s in walk(program.steps) if isinstance(s, CallStep)]
        else:
            found, _ = run(lambda *xs, p=params: qdot(*xs, **p), x, w, scale, bias, name=name)
        wanted = qdot.eval(x, w, scale, bias, **params)
        assert found.tobytes() == wanted.tobytes(), kind


def test_layers_follow_each_other_in_integers():
    rng = np.random.default_rng(1)
    x = activations(rng, (40, 30), GRIDS["int8"])
    params = {"lo": -128, "hi": 127, "w_dtype": np.dtype("int8"), "rounding": "double"}
    params["dimension_numbers"] = (((1,), (0,)), ((), ()))
    scale = np.full((1, 30), 0.02, np.float32)
    ws = [(0.02 * rng.integers(-127, 127, (30, 30))).astype(np.float32) for _ in range(2)]
    bias = np.zeros(30, np.float32)
    grids = [{"x_grid": GRIDS["int8"], "y_grid": OUT}, {"x_grid": OUT, "y_grid": GRIDS["int8"]}]

    def network(x):
        for w, g in zip(ws, grids, strict=True):
            x = qdot(x, jnp.asarray(w), jnp.asarray(scale), jnp.asarray(bias), **g, **params)
        return x

    found, _ = run(network, x)
    wanted = x
    for w, g in zip(ws, grids, strict=True):
        wanted = qdot.eval(wanted, w, scale, bias, **g, **params)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_products_of_activations(name, rounding):
    rng = np.random.default_rng(2)
    for a, c in itertools.product(GRIDS.values(), repeat=2):
        x, y = activations(rng, (2, 19, 40), a), activations(rng, (2, 33, 40), c)
        params = {"x_grid": a, "y_grid": c, "out_grid": OUT, "lo": -128, "hi": 127, "rounding": rounding}
        params["dimension_numbers"] = (((2,), (2,)), ((0,), (0,)))
        found, _ = run(lambda x, y, p=params: qmatmul(x, y, **p), x, y, name=name)
        assert found.tobytes() == qmatmul.eval(x, y, **params).tobytes()


@pytest.mark.parametrize("name", ISAS)
def test_extremes_do_not_saturate(name):
    grid = GRIDS["uint8"]
    x = np.full((4, 3000), grid.bounds[0], np.float32)
    w, scale = np.full((3000, 20), -127, np.float32), np.ones((1, 20), np.float32)
    params = {"x_grid": grid, "y_grid": Grid(np.dtype("int8"), 9e3, 0), "lo": -128, "hi": 127}
    params |= {"w_dtype": np.dtype("int8"), "rounding": "double", "dimension_numbers": (((1,), (0,)), ((), ()))}
    bias = np.zeros(20, np.float32)
    found, _ = run(lambda *xs: qdot(*xs, **params), x, w, scale, bias, name=name)
    assert found.tobytes() == qdot.eval(x, w, scale, bias, **params).tobytes()
    assert 0 < found[0, 0] < 127 * 9e3
