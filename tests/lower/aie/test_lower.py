"""Nodes become dispatches with the bits of their meaning, in both roundings, or are refused with a reason."""

import numpy as np
import pytest

from nxjax.kernels.aie.chip import NPU1, NPU2
from nxjax.lower.aie.lower import AieOptions, dispatch, verdict
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.amd.aie.model import run

INT8 = np.dtype("int8")


def grid(rng, low, high):
    return Grid(INT8, float(np.float32(10 ** rng.uniform(low, high))), int(rng.integers(-128, 128)))


def answers(node, array, rounding, values):
    """The result by the model of the array, and the meaning."""
    made = dispatch(node, array, rounding, AieOptions())
    buffers = made.buffers(values)
    run(made.design, buffers)
    inputs = [t for t in node.operands if not t.constant]
    given = [v for v, t in zip(values, node.operands, strict=True) if not t.constant]
    return made.result(buffers), interpret(NpuGraph("", inputs, [node.output], [node], rounding), given)[0]


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("seed", range(4))
def test_dense_layers_of_any_scales_are_exact(seed, rounding):
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(1, 300)), int(rng.integers(1, 80))
    scales = tuple(float(v) for v in (10 ** rng.uniform(-4, -1, n)).astype(np.float32))
    x = Tensor("x", (2, 3, k), INT8, grid(rng, -3, 0))
    w = Tensor("w", (n, k), INT8, Grid(INT8, scales, 0, 0), rng.integers(-127, 128, (n, k)).astype(np.int8))
    bias = rng.integers(-(2**14), 2**14, n).astype(np.int32)
    b = Tensor("b", (n,), np.int32, Grid(np.dtype("int32"), tuple(x.grid.scale * s for s in scales), 0, 0), bias)
    y = Tensor("y", (2, 3, n), INT8, grid(rng, -2, 0))
    node = Node("fully_connected", (x, w, b), (y,), {"activation": [None, "relu", "relu6"][seed % 3]})
    values = [rng.integers(-128, 128, x.shape).astype(np.int8), w.data, b.data]
    got, wanted = answers(node, [NPU1, NPU2][seed % 2], rounding, values)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize(("op", "attrs"), [("add", {"activation": "relu"}), ("sub", {}), ("mul", {}), ("tanh", {})])
def test_elementwise_nodes_are_exact(op, attrs, rounding):
    rng = np.random.default_rng(7)
    given = [Tensor(f"x{i}", (5, 40), INT8, grid(rng, -2, 0)) for i in range(1 if op == "tanh" else 2)]
    out = Tensor("y", (5, 40), INT8, Grid(INT8, 1 / 128, 0) if op == "tanh" else grid(rng, -1.5, 0))
    node = Node(op, tuple(given), (out,), {"activation": None, **attrs} if op != "tanh" else {})
    values = [rng.integers(-128, 128, (5, 40)).astype(np.int8) for _ in given]
    got, wanted = answers(node, NPU1, rounding, values)
    np.testing.assert_array_equal(got, wanted)


def refused(op, shapes, out, **more):
    g = Grid(INT8, 0.1, 0)
    dtype, on = more.pop("dtype", INT8), more.pop("grid", g)
    given = tuple(Tensor(f"x{i}", s, dtype, on) for i, s in enumerate(shapes))
    return verdict(Node(op, given, (Tensor("y", out, dtype, on),), more), NPU1)


def test_what_has_no_kernel_is_refused_with_a_reason():
    i16 = Grid(np.dtype("int16"), 0.1, 0)
    assert "no kernel" in refused("softmax", [(4, 8)], (4, 8)).reason
    assert "int8" in refused("tanh", [(4, 8)], (4, 8), dtype=np.dtype("int16"), grid=i16).reason
    assert "different shapes" in refused("add", [(4, 8), (8,)], (4, 8), activation=None).reason
    assert "not constant" in refused("fully_connected", [(4, 8), (6, 8)], (4, 6)).reason
    assert "two activations" in refused("batch_matmul", [(4, 8), (8, 6)], (4, 6)).reason
    floats = {"dtype": np.dtype("float32"), "grid": None}
    assert "several matrices" in refused("batch_matmul", [(3, 4, 8), (3, 8, 6)], (3, 4, 6), **floats).reason
    assert "add the negative" in refused("sub", [(4, 8), (4, 8)], (4, 8), activation=None, **floats).suggestion
    assert refused("batch_matmul", [(4, 8), (8, 6)], (4, 6), **floats).ok
