import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CallStep, HostStep, walk
from nxjax.ops.fake_quantize import quantize_dequantize, requantize
from nxjax.ops.quant_elementwise import qadd, qmul, qsub
from nxjax.ops.quant_products import qconv
from nxjax.ops.quant_reduce import qavgpool
from nxjax.ops.window import reduce_window_max, reduce_window_min
from tests.lower.cpu.rules.windows import NAMES, clamp, compiled, geometry, grid, layouts, on_grid, placed

ROUNDINGS = ("double", "single")


def same(op, *xs, name, **params):
    y = compiled(op, *xs, name=name, **params)
    if y is not None:
        with np.errstate(all="ignore"):
            wanted = op.eval(*xs, **params)
        assert y.dtype == wanted.dtype
        np.testing.assert_array_equal(y, wanted, err_msg=str(params))


def test_values_that_only_move_stay_integers():
    """Sliced, transposed and reshaped between two quantized ops, they are not made floats and quantized again."""
    rng = np.random.default_rng(0)
    a, b = grid(rng), grid(rng, -4, 4)
    limits = clamp(rng, b)

    def f(x, y):
        z = qadd(x, y, x_grid=a, y_grid=a, out_grid=b, rounding="double", **limits)
        z = nx.transpose(z.reshape(6, 4, 8)[1:4], (1, 2, 0)).reshape(12, 8)
        return quantize_dequantize(z, grid=b)

    xs = [np.asarray(on_grid(rng, [24, 8], a), np.float32) for _ in range(2)]
    program = lower(nx.jit(f).trace(*xs).program)
    keys = [s.kernel.key for s in walk(program.steps) if isinstance(s, CallStep)]
    assert sum(k.count("stored_quantize") for k in keys) == len(xs), keys
    y = TapeInterpreter(program, engine(isa.current()))(xs)[0]
    np.testing.assert_array_equal(y, np.asarray(f(*map(nx.numpy.asarray, xs))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", [reduce_window_max, reduce_window_min])
def test_greatest_of_windows_of_integers(name, op):
    """They stay integers, unless a window may have nothing but padding, of which there is no integer."""
    rng = np.random.default_rng(NAMES.index(name))
    a, b = grid(rng), grid(rng, -4, 4)
    for pad, whole in (((1, 0), True), ((3, 1), False)):
        params = {
            "window_dimensions": (1, 3, 2, 1), "window_strides": (1, 2, 1, 1),
            "padding": ((0, 0), pad, (0, 1), (0, 0)), "base_dilation": (1,) * 4, "window_dilation": (1,) * 4,
        }  # fmt: skip

        def f(x, params=params):
            z = requantize(x, x_grid=a, y_grid=b, rounding="double", lo=b.limits[0], hi=b.limits[1])
            return op(z, **params)

        x = on_grid(rng, [2, 9, 6, 21], a)
        with nx.config.using(cpu_isa=name):
            program = lower(nx.jit(f).trace(x).program)
            (y,) = TapeInterpreter(program, engine(isa.current()))([x])
        keys = [s.kernel.key for s in walk(program.steps) if isinstance(s, CallStep)]
        assert any(k[:4] == "pool" and "(int16" in k for k in keys) == whole, keys
        np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_convolutions(name, rounding):
    rng = np.random.default_rng([NAMES.index(name), ROUNDINGS.index(rounding)])
    for i in range(14):
        dims, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4]))
        inputs, outputs = int(rng.choice([1, 2, 3, 8, 17])), int(rng.choice([1, 3, 16, 20])) * groups
        if i % 3 == 0:
            inputs, groups = 1, int(rng.choice([3, 8, 16, 33]))
            outputs = groups
        numbers = layouts(rng, dims)
        x = placed([int(rng.integers(1, 3)), inputs * groups, *rng.integers(1, 9, dims)], numbers.lhs_spec)
        w = placed([outputs, inputs, *rng.integers(1, 4, dims)], numbers.rhs_spec)
        scale = placed([outputs if rng.random() < 0.7 else 1, *(1,) * (dims + 1)], numbers.rhs_spec)
        x_grid, y_grid = grid(rng), grid(rng, -4, 4)
        params = {
            **geometry(rng, dims), **clamp(rng, y_grid), "x_grid": x_grid, "y_grid": y_grid, "rounding": rounding,
            "w_dtype": np.dtype("int8"), "feature_group_count": groups, "dimension_numbers": numbers,
        }  # fmt: skip
        same(
            qconv, on_grid(rng, x, x_grid), rng.normal(size=w).astype(np.float32),
            (np.abs(rng.normal(size=scale)) / 60 + 1e-3).astype(np.float32),
            (rng.normal(size=outputs) * 3).astype(np.float32), name=name, **params,
        )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_convolutions_of_one_tap(name, rounding):
    """Blocks of pixels and of channels that are full, and those that are not."""
    rng = np.random.default_rng([NAMES.index(name), ROUNDINGS.index(rounding)])
    numbers = nx.lax.ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
    for pixels, inputs, outputs in ((1, 2, 16), (6, 7, 32), (13, 1, 48), (29, 33, 24), (31, 16, 40), (50, 4, 33)):
        x_grid, y_grid = grid(rng), grid(rng, -4, 4)
        params = {
            **clamp(rng, y_grid), "x_grid": x_grid, "y_grid": y_grid, "rounding": rounding, "w_dtype": np.dtype("int8"),
            "window_strides": (1,), "padding": ((0, 0),), "lhs_dilation": (1,), "rhs_dilation": (1,),
            "feature_group_count": 1, "dimension_numbers": numbers,
        }  # fmt: skip
        same(
            qconv, on_grid(rng, (1, pixels, inputs), x_grid), rng.normal(size=(1, inputs, outputs)).astype(np.float32),
            (np.abs(rng.normal(size=(1, 1, outputs))) / 60 + 1e-3).astype(np.float32),
            (rng.normal(size=outputs) * 3).astype(np.float32), name=name, **params,
        )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_factors_of_every_size(name):
    """Shifts to the left, far to the right, and factors that vanish."""
    rng = np.random.default_rng(0)
    x_grid = grid(rng)
    last = (0, 3, 1, 2)
    x, w = on_grid(rng, (1, 4, 4, 8), x_grid), rng.normal(size=(1, 1, 8, 40)).astype(np.float32)
    scale = np.float32(2.0) ** np.linspace(-100, 20, 40).astype(np.float32).reshape(1, 1, 1, 40)
    for rounding in ROUNDINGS:
        y_grid = grid(rng, -4, 4)
        params = {
            "x_grid": x_grid, "y_grid": y_grid, "rounding": rounding, **clamp(rng, y_grid), "w_dtype": np.dtype("int8"),
            "window_strides": (1, 1), "padding": ((0, 0), (0, 0)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
            "feature_group_count": 1,
            "dimension_numbers": nx.lax.ConvDimensionNumbers(last, (3, 2, 0, 1), last),
        }  # fmt: skip
        same(qconv, x, w * scale, scale, np.zeros(40, np.float32), name=name, **params)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", [qadd, qsub, qmul], ids=lambda op: op.name)
def test_sums_and_products(name, op):
    rng = np.random.default_rng(NAMES.index(name))
    for rounding in ROUNDINGS:
        for shape in ((), (1,), (5, 7, 33), (4, 0)):
            x_grid, y_grid, out = grid(rng), grid(rng), grid(rng, -6, 1)
            given = {"x_grid": x_grid, "y_grid": y_grid, "out_grid": out, "rounding": rounding, **clamp(rng, out)}
            same(op, on_grid(rng, shape, x_grid), on_grid(rng, shape, y_grid), name=name, **given)


@pytest.mark.parametrize("name", NAMES)
def test_onto_grids_and_between_them(name):
    rng = np.random.default_rng(NAMES.index(name))
    for rounding in ROUNDINGS:
        for _ in range(4):
            g, out = grid(rng), grid(rng)
            x = (rng.normal(size=300) * g.scale * 100).astype(np.float32)
            x[:8] = np.nan, np.inf, -np.inf, -0.0, g.scale / 2, -g.scale / 2, 1e-45, 3e38
            same(quantize_dequantize, x, name=name, grid=g)
            same(requantize, x, name=name, x_grid=g, y_grid=out, rounding=rounding, **clamp(rng, out))


@pytest.mark.parametrize("name", NAMES)
def test_average_pools(name):
    rng = np.random.default_rng(NAMES.index(name))
    for _ in range(8):
        g, window = grid(rng), (1, *map(int, rng.integers(1, 4, 2)), 1)
        steps = (1, *map(int, rng.integers(1, 3, 2)), 1)
        padding = tuple((int(rng.integers(0, k)), int(rng.integers(0, k))) for k in window)
        x = on_grid(rng, tuple(map(int, rng.integers(1, 12, 4))), g)
        same(qavgpool, x, name=name, grid=g, window_dimensions=window, window_strides=steps, padding=padding)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_stays_in_integers(name):
    """Two convolutions, a depthwise one and a sum, quantized: exact, and no float in between."""
    rng = np.random.default_rng(0)
    draw = lambda *s: (rng.normal(size=s) / 4).astype(np.float32)
    params = [draw(3, 3, 3, 16), draw(3, 3, 1, 16), draw(1, 1, 16, 16)]
    layout = ("NHWC", "HWIO", "NHWC")

    def f(params, x):
        a = nx.nn.relu6(nx.lax.conv_general_dilated(x, params[0], (2, 2), "SAME", dimension_numbers=layout))
        y = nx.lax.conv_general_dilated(a, params[1], (1, 1), "SAME", dimension_numbers=layout, feature_group_count=16)
        return a + nx.lax.conv_general_dilated(nx.nn.relu6(y), params[2], (1, 1), "SAME", dimension_numbers=layout)

    x = draw(1, 15, 13, 3)
    q = nx.quantize(f, "int8", calibrate=[(params, x)], progress=False)
    with nx.config.using(cpu_isa=name):
        program = lower(nx.make_jaxpr(lambda *v: q(list(v[:3]), v[3]))(*params, x))
        assert not [s for s in walk(program.steps) if isinstance(s, HostStep)], str(program)
        keys = [s.kernel.key for s in walk(program.steps) if isinstance(s, CallStep)]
        assert sum("stored_quantize" in k for k in keys) == 1, keys
        (y,) = TapeInterpreter(program, engine(isa.current()))([*params, x])
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(q(params, x)))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_repeated_are_quantized_once(name):
    """A row added to a matrix goes to its grid as a row; held back by nothing, the sum is one kernel more."""
    rng = np.random.default_rng(0)
    x_grid, y_grid, out = grid(rng), grid(rng), grid(rng, -6, 1)
    given = {"x_grid": x_grid, "y_grid": y_grid, "out_grid": out, "rounding": "double", **clamp(rng, out)}
    x, row = on_grid(rng, (40, 33), x_grid), on_grid(rng, (33,), y_grid)
    for shape in ((33,), (1, 33)):
        f = lambda x, row: qadd(x, nx.numpy.broadcast_to(row, x.shape), **given)
        program = lower(nx.make_jaxpr(f)(x, row.reshape(shape)))
        quantized = [
            s.kernel for s in walk(program.steps) if isinstance(s, CallStep) and s.kernel.title == "stored_quantize"
        ]
        assert [k.sizes for k in quantized] == [(33,)]
        (y,) = TapeInterpreter(program, engine(isa.named(name)))([x, row.reshape(shape)])
        np.testing.assert_array_equal(y, qadd.eval(x, np.broadcast_to(row, x.shape), **given))
