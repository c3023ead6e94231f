"""Quantized convolutions by the matrix unit, and by instructions for four bytes, have the bits of the reference."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.conv_tiles import TileConv
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.rules import conv_tiles
from nxjax.lower.cpu.tape import CallStep, walk
from nxjax.ops.quant_products import qconv
from tests.kernels.cpu import others, tiles
from tests.lower.cpu.rules.windows import clamp, compiled, geometry, grid, layouts, on_grid, placed


@pytest.fixture(autouse=True, params=[tiles.NAME, "avx512"])
def unit(request, monkeypatch):
    """The instruction set."""
    if request.param == tiles.NAME:
        tiles.install(monkeypatch)
    else:
        others.install(monkeypatch, "AVX512-VNNI", request.param)
    return request.param


def drawn(rng, dims):
    """Operands and parameters of any quantized convolution."""
    groups = int(rng.choice([1, 1, 2, 3]))
    inputs, outputs = int(rng.choice([1, 2, 3, 8, 17, 64, 70])), int(rng.choice([1, 3, 16, 20, 33])) * groups
    numbers = layouts(rng, dims)
    x = placed([int(rng.integers(1, 3)), inputs * groups, *rng.integers(1, 9, dims)], numbers.lhs_spec)
    w = placed([outputs, inputs, *rng.integers(1, 4, dims)], numbers.rhs_spec)
    scale = placed([outputs if rng.random() < 0.7 else 1, *(1,) * (dims + 1)], numbers.rhs_spec)
    x_grid, y_grid = grid(rng), grid(rng, -4, 4)
    params = {
        **geometry(rng, dims), **clamp(rng, y_grid), "x_grid": x_grid, "y_grid": y_grid, "rounding": "double",
        "w_dtype": np.dtype(rng.choice(["int8", "int8", "int4"])), "feature_group_count": groups,
        "dimension_numbers": numbers,
    }  # fmt: skip
    xs = (
        on_grid(rng, x, x_grid), rng.normal(size=w).astype(np.float32),
        (np.abs(rng.normal(size=scale)) / 60 + 1e-3).astype(np.float32),
        (rng.normal(size=outputs) * 3).astype(np.float32),
    )  # fmt: skip
    return xs, params


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_any_convolution(dims, seed, monkeypatch, unit):
    """Strides, dilations of both operands, padding, groups, batches, orders of dimensions, numbers of features."""
    made = []

    def possible(s):
        made.append(conv_tiles.possible(s))
        return made[-1]

    monkeypatch.setattr(conv_tiles, "pays", possible)
    rng = np.random.default_rng([dims, seed])
    for _ in range(16):
        xs, params = drawn(rng, dims)
        y = compiled(qconv, *xs, name=unit, **params)
        if y is not None:
            np.testing.assert_array_equal(y, qconv.eval(*xs, **params), err_msg=str(params))
    assert any(made) or dims == 3  # of which one has to do nothing


LAYOUT = ("NHWC", "HWIO", "NHWC")


def network(x, params):
    y = nx.lax.conv_general_dilated(x, params[0], (2, 2), "SAME", dimension_numbers=LAYOUT)
    y = nx.nn.relu(nx.lax.conv_general_dilated(nx.nn.relu(y), params[1], (1, 1), "SAME", dimension_numbers=LAYOUT))
    return nx.lax.conv_general_dilated(y, params[2], (1, 1), "VALID", dimension_numbers=LAYOUT)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("guard", ["", "end", "begin"])
def test_a_network(threads, guard, unit):
    rng = np.random.default_rng(0)
    draw = lambda *s: (rng.normal(size=s) / 4).astype(np.float32)
    params, x = [draw(7, 7, 3, 32), draw(3, 3, 32, 40), draw(1, 1, 40, 33)], draw(2, 31, 29, 3)
    q = nx.quantize(network, "int8", calibrate=[(x, params)], progress=False)
    with nx.config.using(cpu_isa=unit, num_threads=threads, guard=guard):
        program = lower(nx.make_jaxpr(lambda x, *p: q(x, list(p)))(x, *params))
        kernels = [s.kernel for s in walk(program.steps) if isinstance(s, CallStep)]
        assert sum(isinstance(k, TileConv) for k in kernels) == 3
        (y,) = TapeInterpreter(program, engine(isa.current()))([x, *params])
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(q(x, params)))


def test_only_where_there_are_instructions_for_it(monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr(conv_tiles, "tiles", None)
    xs, params = drawn(rng, 2)
    y = compiled(qconv, *xs, name="portable", **params)
    if y is not None:
        np.testing.assert_array_equal(y, qconv.eval(*xs, **params))
