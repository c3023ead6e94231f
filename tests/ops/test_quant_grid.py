"""Grids: rounding, limits, what they refuse, and that they survive a program's text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from nxjax.trace import dtypes
from tests.ops.quant_cases import I8, I16, same

scales = st.floats(1e-6, 1e6).map(lambda v: float(np.float32(v)))


@given(scales, st.integers(-128, 127), st.integers(0, 2**32 - 1))
def test_stored_integers_come_back(scale: float, zero: int, seed: int):
    g = Grid(I8, scale, zero)
    q = np.arange(-128, 128).astype(np.int8)
    same(g.quantize(g.dequantize(q)), q)
    x = (np.random.default_rng(seed).uniform(-200, 200, 50) * scale).astype(np.float32)
    near = g.dequantize(g.quantize(x))
    low, high = g.bounds
    inside = (x >= low) & (x <= high)
    assert np.abs(near - x)[inside].max(initial=0) <= scale / 2 * (1 + 1e-5)
    assert (near[~inside] == np.clip(near, np.float32(low), np.float32(high))[~inside]).all()


def test_halves_go_away_from_zero_and_odd_values_have_a_place():
    g = Grid(I8, 1.0, 2)
    assert g.quantize(np.float32([0.5, -0.5, 1.5, -1.5, np.nextafter(np.float32(0.5), np.float32(0))])).tolist() == [
        3, 1, 4, 0, 2,
    ]  # fmt: skip
    assert g.quantize(np.float32([np.nan, np.inf, -np.inf])).tolist() == [2, 127, -128]
    assert g.quantize(np.float32(1.0)).shape == () and isinstance(g.dequantize(np.int8(3)[()]), np.ndarray)


def test_a_scale_per_slice():
    g = Grid(I8, (0.5, 2.0), 0, 1)
    x = np.float32([[1, 1], [2, 4]])
    assert g.quantize(x).tolist() == [[2, 1], [4, 2]]
    assert g.scales(3).shape == (1, 2, 1)
    same(g.dequantize(np.int8([[2, 1], [4, 2]])), np.float32([[1, 2], [2, 4]]))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((I8, 0.0), "not positive and finite"),
        ((I8, -1.0), "not positive and finite"),
        ((I8, float("inf")), "not positive and finite"),
        ((I8, float("nan")), "not positive and finite"),
        ((I8, (0.5, float("nan")), 0, 0), "not positive and finite"),
        ((I8, 1.0, 200), "zero point"),
        ((I8, (1.0, 2.0)), "goes with an axis"),
        ((I8, 1.0, 0, 1), "goes with an axis"),
        ((I8, (1.0, 2.0), 3, 0), "zero point"),
    ],
)
def test_refused(args: tuple, says: str):
    with pytest.raises(ParameterError, match=says):
        Grid(*args)


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30), st.sampled_from([I8, I16]))
def test_ranges_are_covered_and_hold_zero(a: float, b: float, dtype: np.dtype):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    for g in (asymmetric(a, b, dtype) if a <= b else asymmetric(b, a, dtype), symmetric(max(abs(a), abs(b)), dtype)):
        assert float(g.dequantize(np.array([g.zero_point], dtype))[0]) == 0.0
        if high - low > 1e-30:
            least, most = g.bounds
            # The zero point is nudged by at most half a step.
            assert least <= low + g.scale * 0.51 and most >= high - g.scale * 0.51
    assert symmetric(a, dtype).zero_point == 0


def test_ranges_without_width():
    assert asymmetric(0.0, 0.0).scale > 0 and symmetric(0.0).scale > 0
    for span in (1e-45, 1e-38, 1e-37):
        # Compilers take numbers below the least normal one for 0.
        assert min(asymmetric(0.0, span).scale, symmetric(span).scale) >= np.finfo(np.float32).tiny
    assert asymmetric(2.0, 3.0).bounds[0] == 0.0


@given(scales, st.integers(-128, 127))
def test_texts_of_programs_hold_grids(scale: float, zero: int):
    from nxjax.ops.fake_quantize import quantize_dequantize

    g = Grid(I8, scale, zero)
    program = nx.make_jaxpr(lambda x: quantize_dequantize(x, grid=g))(np.zeros(3, np.float32))
    again = nx.parse_program(str(program), program.values)
    assert again.equations[0].params["grid"] == g
    assert again.equations[0].params["grid"].dtype == dtypes.int8
