"""Tables and functions with arithmetic of their own against float64."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.errors import ParameterError
from nxjax.ops.fixed import functions
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric

I8, I16 = np.dtype("int8"), np.dtype("int16")
ALL8 = np.arange(-128, 128).astype(I8)
ALL16 = np.arange(-32768, 32768).astype(I16)

REAL = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "gelu": lambda x: np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x]),
    "exp": np.exp,
    "square": np.square,
    "sin": np.sin,
    "cos": np.cos,
    "erf": lambda x: np.array([math.erf(v) for v in x]),
    "abs": np.abs,
    "neg": np.negative,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.1 * x),
}
PARAMETERS = {"leaky_relu": {"alpha": 0.1}}


@pytest.mark.parametrize("name", sorted(REAL))
def test_every_function_of_8_bits_is_real_within_a_step(name: str):
    x_grid = asymmetric(-3.5, 4.25)
    real = REAL[name](x_grid.dequantize(ALL8).astype(np.float64))
    out = Grid(I8, 1 / 256, -128) if name == "logistic" else asymmetric(real.min(), real.max())
    got = out.dequantize(functions.unary(name, ALL8, x_grid, out, **PARAMETERS.get(name, {})))
    # A table is rounded once, the others twice.
    assert np.abs(got - np.clip(real, *out.bounds)).max() <= out.scale * (
        0.76 if name in ("hard_swish", "leaky_relu") else 0.51
    )


@pytest.mark.parametrize("name", sorted(set(REAL) - {"floor", "ceil", "round", "sign", "abs", "neg"}))
def test_every_function_of_16_bits_is_real_to_many_bits(name: str):
    x_grid = symmetric(4.0)
    real = REAL[name](x_grid.dequantize(ALL16).astype(np.float64))
    out = Grid(I16, 1 / 32768) if name in ("logistic", "tanh") else symmetric(np.abs(real).max())
    got = out.dequantize(functions.unary(name, ALL16, x_grid, out, **PARAMETERS.get(name, {})))
    assert np.abs(got - np.clip(real, *out.bounds)).max() <= 12 * out.scale


@pytest.mark.parametrize("name", ["sqrt", "log", "rsqrt"])
def test_functions_of_positive_numbers(name: str):
    x_grid, values = Grid(I8, 0.05, -128), ALL8[1:]
    real = {"sqrt": np.sqrt, "log": np.log, "rsqrt": lambda x: 1 / np.sqrt(x)}[name](
        x_grid.dequantize(values).astype(np.float64)
    )
    out = asymmetric(real.min(), real.max())
    got = out.dequantize(functions.unary(name, values, x_grid, out))
    # The root is cut down, not rounded.
    assert np.abs(got - real).max() <= out.scale * (1.01 if name == "sqrt" else 0.52)


@pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16"])
def test_outside_their_domain_functions_saturate(dtype: np.dtype):
    x_grid = Grid(dtype, 0.01, 0)
    out = symmetric(3.0, dtype)
    x = np.array([-128, -120, -1] if dtype == I8 else [-9999, -500, -129], dtype)
    low, high = out.limits
    assert functions.unary("log", x, x_grid, out).tolist() == [low] * 3
    assert functions.unary("sqrt", x, x_grid, out).tolist() == [0] * 3
    assert functions.unary("rsqrt", x, x_grid, out).tolist() == [high] * 3


def test_tables_saturate_instead_of_overflowing():
    got = functions.unary("exp", ALL8, Grid(I8, 1.0, -128), Grid(I8, 1e-9, 0))
    assert got[-1] == 127 and got[0] == 127


def test_approximate_gelu_is_not_gelu():
    x_grid, out = asymmetric(-4, 4), asymmetric(-0.2, 4)
    one, other = (functions.unary("gelu", ALL8, x_grid, out, approximate=a) for a in (False, True))
    assert np.abs(one.astype(int) - other).max() <= 1


@given(st.floats(-2, 2, width=32))
def test_leaky_relu_of_any_slope(alpha: float):
    x_grid = asymmetric(-2, 2)
    real = x_grid.dequantize(ALL8).astype(np.float64)
    out = asymmetric(-5, 5)
    got = out.dequantize(functions.leaky_relu(ALL8, x_grid, out, alpha))
    assert np.abs(got - np.where(real > 0, real, np.float64(np.float32(alpha)) * real)).max() <= 0.76 * out.scale


def test_prelu_is_leaky_relu_per_channel():
    x_grid, slopes = asymmetric(-2, 2), Grid(I8, 1 / 128, 0)
    out = asymmetric(-2, 2)
    x = np.stack([ALL8, ALL8], 1)
    got = functions.prelu(x, x_grid, np.int8([32, 64]), slopes, out)
    for channel, slope in enumerate((0.25, 0.5)):
        one = functions.leaky_relu(ALL8, x_grid, out, slope)
        assert np.abs(got[:, channel].astype(int) - one).max() <= 1
        assert np.array_equal(got[128:, channel], one[128:])


def test_errors_name_what_is_wrong():
    g = Grid(I8, 0.5, 0)
    with pytest.raises(ParameterError, match="no integer meaning"):
        functions.unary("digamma", ALL8, g, g)
    with pytest.raises(ParameterError, match="hard_swish"):
        functions.unary("hard_swish", ALL8, g, Grid(I8, 1e-3, 0))
    with pytest.raises(ParameterError, match="1/32768"):
        functions.unary("tanh", ALL16, symmetric(4.0), symmetric(1.0))


@pytest.mark.parametrize("scale", [5.0, 6.1, 1e3, 1e9, 1e30, 3e33])
@pytest.mark.parametrize("function", ["tanh", "logistic"])
def test_16_bit_functions_have_their_limits_on_coarse_grids(function: str, scale: float):
    grid, out = Grid(np.dtype("int16"), scale), Grid(np.dtype("int16"), 1 / 32768)
    y = functions.unary(function, np.int16([-32768, -30000, -100, -20, 0, 20, 100, 30000, 32767]), grid, out)
    low, middle = (-32768, 0) if function == "tanh" else (0, 16384)
    np.testing.assert_allclose(y.astype(int), [low] * 4 + [middle] + [32767] * 4, atol=1)
