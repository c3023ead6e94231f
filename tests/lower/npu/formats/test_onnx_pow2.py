"""Regridding to powers of two: every scale is one, ranges are kept, and what it costs is said."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.errors import ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_pow2 import covering, power_of_two, regrid, regular
from nxjax.lower.npu.formats.onnx_writer import emit
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.formats.onnx_cases import I8, cases, int8_graph


@given(bound=st.floats(1e-6, 1e6), name=st.sampled_from(["int8", "uint8", "int16"]))
def test_covering_grid_is_the_least_that_saturates_by_two_steps_at_most(bound, name):
    grid = covering(bound, np.dtype(name))
    assert power_of_two(grid.scale)
    assert grid.bounds[1] >= bound - 2.001 * grid.scale
    assert grid.bounds[1] / 2 < bound


def real(graph, feeds):
    outs = interpret(graph, feeds)
    return [t.grid.dequantize(y) for t, y in zip(graph.outputs, outs)]


# Comparable: their error is a few steps of the coarser grids. Where slopes are steep it is more.
SMOOTH = ["conv_2d", "depthwise_conv_2d", "fully_connected", "add", "mul", "max_pool_2d", "mean", "reshape", "tanh"]


@pytest.mark.parametrize("case", [c for c in cases() if c.op in SMOOTH and c.attrs.get("activation") in (None, "relu")])
def test_regridded_graphs_are_near_the_originals(case):
    graph, feeds, _ = int8_graph(case)
    other, notes = regrid(graph)
    assert all(regular(t.grid) for t in other.tensors())
    assert notes and "differ from the integer reference" in notes[0]
    moved = [b.grid.quantize(a.grid.dequantize(x)) for a, b, x in zip(graph.inputs, other.inputs, feeds, strict=True)]
    for want, got, t in zip(real(graph, feeds), real(other, moved), other.outputs):
        span = np.abs(want).max()
        assert np.abs(want - got).max() <= max(0.1 * span, 3 * t.grid.scale)
    emit(other, OnnxOptions(style="qdq-pow2"))


def test_tables_are_read_at_the_new_values():
    x, y = Tensor("x", (256,), I8, Grid(I8, 0.03, 4)), Tensor("y", (256,), I8, Grid(I8, 1 / 128, 0))
    stored = np.arange(-128, 128).astype(I8)
    values = y.grid.quantize(np.tanh(x.grid.dequantize(stored)))
    graph = NpuGraph("g", [x], [y], [Node("table", (x,), (y,), {"function": "tanh", "values": values})])
    other, _ = regrid(graph)
    (got,) = real(other, [stored])
    np.testing.assert_allclose(got, np.tanh(other.inputs[0].grid.dequantize(stored)), atol=0.03)


def test_a_third_operand_that_is_no_bias_moves_like_the_others():
    c, x = Tensor("c", (4,), np.dtype(bool)), Tensor("x", (4,), I8, Grid(I8, 0.1, 0))
    fill, y = Tensor("fill", (), I8, x.grid, np.array(-50, I8)), Tensor("y", (4,), I8, x.grid)
    other, _ = regrid(NpuGraph("g", [c, x], [y], [Node("select", (c, x, fill), (y,))]))
    moved = other.nodes[0].inputs[2]
    assert moved.grid == other.nodes[0].inputs[1].grid
    np.testing.assert_allclose(moved.grid.dequantize(moved.data), -5, atol=0.07)


@pytest.mark.parametrize(
    ("scale", "zero", "kind"),
    [(0.03, -128, "relu"), (6 / 255, -128, "relu6"), (2 / 255, 0, "relu_n1_to_1"), (0.03, 0, None)],
)
def test_what_saturation_did_becomes_an_activation(scale, zero, kind):
    """A grid from 0 up is a relu: on the symmetric grid that replaces it, it is said."""
    grid = Grid(I8, 0.06, 0)
    x, y = Tensor("x", (256,), I8, grid), Tensor("y", (256,), I8, Grid(I8, float(np.float32(scale)), zero))
    add = NpuGraph("g", [x], [y], [Node("add", (x, x), (y,), {"activation": None})])
    other, _ = regrid(add)
    assert other.nodes[0].attrs["activation"] == kind
    moved = NpuGraph("g", [x], [y], [Node("quantize", (x,), (y,))])
    assert regrid(moved)[0].nodes[0].op == kind or (kind is None and regrid(moved)[0].nodes[0].op == "quantize")
    stored = np.arange(-128, 128).astype(I8)
    values = other.inputs[0].grid.quantize(grid.dequantize(stored))
    (want,), (got,) = real(add, [stored]), real(other, [values])
    if kind is not None:
        np.testing.assert_allclose(np.minimum(got, want.max()), want, atol=0.13)


def test_powers_of_two_are_left_alone():
    grid = Grid(I8, 0.125, 3)
    x, y = Tensor("x", (2,), I8, grid), Tensor("y", (2,), I8, Grid(I8, 0.25, -7))
    other, notes = regrid(NpuGraph("g", [x], [y], [Node("abs", (x,), (y,))]))
    assert [t.grid for t in other.tensors()] == [x.grid, y.grid]
    assert notes == []


def test_per_channel_scales_stay_per_channel_when_asked():
    case = next(c for c in cases() if c.op == "conv_2d")
    graph, _, _ = int8_graph(case)
    weights = regrid(graph, per_channel=True)[0].nodes[0].inputs[1]
    assert weights.grid.axis == 0
    assert all(math.frexp(s)[0] == 0.5 for s in weights.grid.scale)
    assert regrid(graph)[0].nodes[0].inputs[1].grid.axis is None


def test_other_scales_are_refused_not_changed():
    graph, _, _ = int8_graph(next(c for c in cases() if c.op == "add"))
    with pytest.raises(ParameterError, match="not powers of two"):
        emit(graph, OnnxOptions(style="qdq-pow2"))
