"""What every op of the vocabulary means: floats against NumPy, grids against the floats they stand for."""

import numpy as np
import pytest

from nxjax.errors import DtypeError, ProgramError, ShapeError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret, interpret_all
from nxjax.lower.npu.ops import OPS
from nxjax.ops.quant_grid import Grid, asymmetric
from tests.lower.npu.cases import CASES, Case, f32

I8, I16 = np.dtype("int8"), np.dtype("int16")
GRID = Grid(I8, 0.1, 3)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_floats(case: Case):
    graph, inputs = case.graph()
    for got, want, t in zip(interpret(graph, inputs), case.wanted, graph.outputs, strict=True):
        assert got.dtype == t.dtype and got.shape == t.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_every_op_of_the_vocabulary_has_a_case():
    # These two need a grid; they have tests of their own below.
    assert OPS.keys() - {c.op for c in CASES} == {"quantize", "dequantize"}


def one(op: str, operands: list[Tensor | None], *outs: Tensor, **attrs) -> NpuGraph:
    inputs = [t for t in operands if t is not None and not t.constant]
    return NpuGraph(op, inputs, list(outs), [Node(op, tuple(operands), outs, attrs)]).check()


# What an integer kernel may be off by, in steps of the result's grid.
STEPS = {"sqrt": 1.01, "reduce_prod": 3.0, "resize_bilinear": 1.01}
FIXED_GRIDS = {"softmax", "log_softmax", "logistic"}
PLAIN = {"logical_and", "logical_or", "logical_not", "one_hot", "cast", "table", "argmax", "argmin", "if", "while"} | {
    *("quantize_rows", "lstm", "gru", "rnn")
}
COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
SAME = {
    "maximum", "minimum", "select", "max_pool_2d", "average_pool_2d", "reduce_max", "reduce_min", "reshape",
    "transpose", "concatenation", "split", "slice", "strided_slice", "pad", "broadcast_to", "tile", "reverse", "gather",
    "resize_nearest", "resize_bilinear", "top_k",
}  # fmt: skip
QUANTIZED = [c for c in CASES if c.op not in PLAIN and c.op not in FIXED_GRIDS]


def around(x: np.ndarray) -> Grid:
    return asymmetric(float(x.min()), float(x.max()))


@pytest.mark.parametrize("case", QUANTIZED, ids=map(str, QUANTIZED))
def test_grids_mean_what_their_floats_mean(case: Case):
    """The same node on grids: within a step or so of the float node on the real values of its stored operands."""
    weights = {"conv_2d", "conv_3d", "depthwise_conv_2d", "transpose_conv", "transpose_conv_3d", "fully_connected"}
    real, stored = case.graph()
    floats = [t for t in real.nodes[0].operands if t.dtype == np.float32]
    data = dict(zip(real.inputs, stored, strict=True)) | {t: t.data for t in floats if t.constant}
    shared = around(np.concatenate([data[t].ravel() for t in floats]))
    grids = {}
    for i, t in enumerate(real.nodes[0].inputs):
        if t in floats:
            grids[t] = Grid(I8, shared.scale, 0) if case.op in weights and i == 1 else around(data[t])
            if case.op in SAME | COMPARISONS:
                grids[t] = shared
    x = real.nodes[0].inputs[0]
    if case.op in weights and real.nodes[0].inputs[2] is not None:
        b = real.nodes[0].inputs[2]
        grids[b] = Grid(np.dtype("int32"), float(np.float32(grids[x].scale * shared.scale)), 0)
    quantized = {t: g.quantize(data[t]) for t, g in grids.items()}
    snapped = {t: g.dequantize(quantized[t]) for t, g in grids.items()}

    def rebuilt(on_grids: bool) -> tuple[NpuGraph, list[np.ndarray]]:
        values = {**data, **(quantized if on_grids else snapped)}
        new = {}
        for t in real.nodes[0].operands:
            grid = grids.get(t) if on_grids else None
            v = values.get(t)
            new[t] = Tensor(t.name, t.shape, grid.dtype if grid else t.dtype, grid, v if t.constant else None)
        outs = []
        for y, want in zip(real.outputs, wanted, strict=True):
            grid = (shared if case.op in SAME else around(want)) if on_grids and y.dtype == np.float32 else None
            outs.append(Tensor(y.name, y.shape, grid.dtype if grid else y.dtype, grid))
        node = Node(
            case.op, tuple(None if t is None else new[t] for t in real.nodes[0].inputs), tuple(outs), case.attrs
        )
        return NpuGraph("g", [new[t] for t in real.inputs], outs, [node]).check(), [values[t] for t in real.inputs]

    wanted = case.wanted
    wanted = interpret(*rebuilt(False))
    graph, inputs = rebuilt(True)
    for t, got, want in zip(graph.outputs, interpret(graph, inputs), wanted, strict=True):
        assert got.dtype == t.dtype and got.shape == t.shape
        if t.grid is None:
            assert np.array_equal(got, want)
            continue
        error = np.abs(t.grid.dequantize(got) - np.clip(want, *t.grid.bounds)) / t.grid.scale
        assert error.max() <= STEPS.get(case.op, 0.8)


def test_quantize_and_dequantize():
    x, y = Tensor("x", (3,), np.float32), Tensor("y", (3,), I8, GRID)
    graph = one("quantize", [x], y)
    assert interpret(graph, [np.float32([0, 1, -99])])[0].tolist() == [3, 13, -128]
    real = Tensor("z", (3,), np.float32)
    assert interpret(one("dequantize", [y], real), [np.int8([3, 13, -128])])[0].tolist() == pytest.approx([0, 1, -13.1])
    other = Tensor("o", (3,), I16, Grid(I16, 0.05, 0))
    assert interpret(one("quantize", [y], other), [np.int8([3, 13, -128])])[0].tolist() == [0, 20, -262]


def test_rounding_is_the_graph_s():
    """A graph says which of the two roundings its device has."""
    values = np.arange(-128, 128).astype(I8)
    x, y = Tensor("x", (256,), I8, Grid(I8, 0.1, 0)), Tensor("y", (256,), I8, Grid(I8, 0.4, 0))
    graph = one("quantize", [x], y)
    graph.rounding = "double"
    double = interpret(graph, [values])[0]
    graph.rounding = "single"
    single = interpret(graph, [values])[0]
    # Halves go away from zero, or up; a quarter first becomes a half, or not.
    assert [int(double[values == v][0]) for v in (-2, 1, 2)] == [-1, 1, 1]
    assert [int(single[values == v][0]) for v in (-2, 1, 2)] == [0, 0, 1]


@pytest.mark.parametrize("activation", ["relu", "relu6", "relu_n1_to_1"])
def test_fused_activations_clamp_stored_values(activation: str):
    x, y = Tensor("x", (256,), I8, GRID), Tensor("y", (256,), I8, Grid(I8, 0.07, -20))
    values = np.arange(-128, 128).astype(I8)
    zero = Tensor("zero", (1,), I8, GRID, np.int8([3]))
    got = interpret(one("add", [x, zero], y, activation=activation), [values])[0]
    plain = interpret(one("add", [x, zero], y, activation=None), [values])[0]
    low, high = {"relu": (-20, 127), "relu6": (-20, 66), "relu_n1_to_1": (-34, -6)}[activation]
    assert np.array_equal(got, np.clip(plain, low, high)) and (got != plain).any()


def test_ops_without_an_integer_kernel_are_float_ops_between_grids():
    x, y = Tensor("x", (3,), I8, GRID), Tensor("y", (3,), I8, GRID)
    out = Tensor("o", (3,), I8, GRID)
    a, b = np.int8([13, 23, -7]), np.int8([23, 13, 13])
    assert interpret(one("div", [x, y], out, activation=None), [a, b])[0].tolist() == [8, 23, -7]
    total = one("cumsum", [x], out, axis=0, exclusive=False, reverse=False)
    assert interpret(total, [a])[0].tolist() == [13, 33, 23]


def test_one_hot_and_pad_on_grids():
    out = Tensor("o", (2, 3), I8, GRID)
    hot = one("one_hot", [Tensor("i", (2,), np.int32)], out, depth=3, axis=1)
    assert interpret(hot, [np.int32([2, 0])])[0].tolist() == [[3, 3, 13], [13, 3, 3]]
    x = Tensor("x", (1,), I8, GRID)
    wide = Tensor("w", (3,), I8, GRID)
    for value, stored in ((None, 3), (1.0, 13), (-np.inf, -128)):
        assert interpret(one("pad", [x], wide, padding=((1, 1),), value=value), [np.int8([5])])[0].tolist() == [
            stored, 5, stored,
        ]  # fmt: skip


def test_weight_only_products_are_float():
    x = Tensor("x", (2, 3), np.float32)
    w = Tensor("w", (2, 3), I8, Grid(I8, (0.5, 0.25), 0, 0), np.int8([[1, 2, 3], [4, 5, 6]]))
    y = Tensor("y", (2, 2), np.float32)
    values = f32(2, 3)
    got = interpret(one("fully_connected", [x, w, None], y, activation=None), [values])[0]
    np.testing.assert_allclose(got, values @ (np.float32([[0.5], [0.25]]) * w.data).T, rtol=1e-6)


def test_every_tensor_has_a_value():
    x, c = Tensor("x", (2,), np.float32), Tensor("c", (2,), np.float32, None, np.float32([1, 2]))
    y, z = Tensor("y", (2,), np.float32), Tensor("z", (2,), np.float32)
    nodes = [Node("add", (x, c), (y,), {}), Node("relu", (y,), (z,), {})]
    values = interpret_all(NpuGraph("g", [x], [z, y, c], nodes).check(), [np.float32([-5, 5])])
    assert [values[t].tolist() for t in (x, c, y, z)] == [[-5, 5], [1, 2], [-4, 7], [0, 7]]


def test_errors():
    x, y = Tensor("x", (3,), I8, GRID), Tensor("y", (3,), I8, Grid(I8, 0.2, 3))
    graph = one("relu", [x], y)
    with pytest.raises(ShapeError, match="another shape"):
        interpret(graph, [np.zeros(4, I8)])
    with pytest.raises(DtypeError, match="another dtype"):
        interpret(graph, [np.zeros(3, np.float32)])
    with pytest.raises(ShapeError, match="number of inputs"):
        interpret(graph, [])
    zeros = np.zeros(3, I8)
    with pytest.raises(ProgramError, match="not in the vocabulary"):
        interpret(one("frobnicate", [x], y), [zeros])
    with pytest.raises(ProgramError, match="not on one grid"):
        interpret(one("reshape", [x], y, shape=(3,)), [zeros])
    with pytest.raises(ProgramError, match="not on one grid"):
        interpret(one("concatenation", [x, y], Tensor("z", (6,), I8, GRID), axis=0), [zeros, zeros])
    with pytest.raises(ProgramError, match="some operands are on grids"):
        interpret(one("tanh", [x], Tensor("z", (3,), np.float32)), [zeros])
    with pytest.raises(ProgramError, match="makes another shape"):
        interpret(one("relu", [x], Tensor("z", (4,), I8, GRID)), [zeros])
