"""The target "tflite": what its report says is what LiteRT says, and LiteRT computes what the graph means."""

import numpy as np
import pytest

from nxjax.errors import ExecutionError, LoweringError, ParameterError, user_source
from nxjax.lower.npu.formats import tflite, tflite_file, tflite_ops
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.vendors.litert import target as litert

pytest.importorskip("ai_edge_litert")

F32, I8 = np.dtype("float32"), np.dtype("int8")


def f32(name: str, *shape: int, data=None) -> Tensor:
    return Tensor(name, shape, F32, None, None if data is None else np.asarray(data, np.float32))


def dense() -> NpuGraph:
    """x @ w.T + b, cumsum (a kernel that no delegate has), tanh."""
    rng = np.random.default_rng(1)
    x, w, b = f32("x", 2, 3), f32("w", 4, 3, data=rng.normal(size=(4, 3))), f32("b", 4, data=rng.normal(size=4))
    y, z, out = f32("y", 2, 4), f32("z", 2, 4), f32("out", 2, 4)
    nodes = [
        Node("fully_connected", (x, w, b), (y,), {"activation": "relu"}, user_source(), name="dense"),
        Node("cumsum", (y,), (z,), {"axis": 1, "exclusive": False, "reverse": False}, user_source()),
        Node("tanh", (z,), (out,), {}, user_source()),
    ]
    return NpuGraph("dense", [x], [out], nodes).check()


def meant(graph: NpuGraph, x):
    _, w, b = graph.nodes[0].inputs
    return np.tanh(np.cumsum(np.maximum(x @ w.data.T + b.data, 0), axis=1))


@pytest.mark.parametrize("kernels", ["reference", "default"])
def test_it_runs_the_graph_and_says_where(kernels):
    graph = dense()
    build = litert.LiteRt().build(graph, {"kernels": kernels, "measure": True})
    x = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(build.run([x])[0], meant(graph, x), rtol=2e-6, atol=1e-6)
    assert build.label == "host" and kernels in build.runs_on and build.runs_on.endswith("on the host")
    assert build.files == {"dense.tflite": tflite.write(graph)}
    assert [p.op for p in build.placements] == ["fully_connected", "cumsum", "tanh"]
    assert {p.device for p in build.placements} == {"host"} and {p.decided_by for p in build.placements} == {"vendor"}
    assert [p.macs for p in build.placements] == [24, 0, 0]
    assert build.placements[0].name == "dense" and "test_target" in str(build.placements[0].source)
    kernel = [p.reason.split("LiteRT's ")[1] for p in build.placements]
    if kernels == "reference":
        assert kernel == ["reference kernel"] * 3
    else:
        assert kernel == ["XNNPACK kernel", "default kernel", "XNNPACK kernel"]
    for name in ("file", "arena", "latency"):
        assert build.cost[name].basis == "measured" and build.cost[name].value > 0
    assert build.cost["file"].value == len(build.files["dense.tflite"])


def test_the_arena_is_what_the_tensors_span():
    x = f32("x", 1, 1000)
    steps = [f32(f"t{i}", 1, 1000) for i in range(6)]
    nodes = [Node("sin", (a,), (b,), {}) for a, b in zip([x, *steps], steps, strict=False)]
    build = litert.LiteRt().build(NpuGraph("chain", [x], [steps[-1]], nodes), {})
    # The input stays; the steps take turns on two places.
    assert 2 * 4000 <= build.cost["arena"].value <= 4 * 4064


def test_a_kernel_that_the_reference_set_has_not_is_said():
    x, y = f32("x", 2), f32("y", 2)
    build = litert.LiteRt().build(NpuGraph("up", [x], [y], [Node("ceil", (x,), (y,))]), {})
    assert build.run([np.float32([0.2, -0.2])])[0].tolist() == [1.0, 0.0]
    assert "CEIL version 1" in build.notes[0] and "optimized" in build.runs_on


def test_every_operation_without_a_kernel_is_listed_with_its_line():
    x, y, z = (Tensor(n, (2,), "int32") for n in "xyz")
    nodes = [Node("tanh", (x,), (y,), {}, user_source()), Node("erf", (y,), (z,), {}, user_source())]
    with pytest.raises(LoweringError) as caught:
        litert.LiteRt().build(NpuGraph("two", [x], [z], nodes), {})
    text = str(caught.value)
    assert "2 of 2 operations" in text
    assert "LiteRT has no tanh of int32" in text and "LiteRT has no erf of int32" in text
    assert text.count("test_target.py") >= 2


def test_options_are_checked():
    for options in ({"kernel": "reference"}, {"kernels": "fast"}, {"threads": 0}):
        with pytest.raises(ParameterError):
            litert.LiteRt().build(dense(), options)


def test_what_litert_refuses_names_the_line():
    x = Tensor("x", (1, 2), I8, asymmetric(-1, 1))
    y = Tensor("y", (1, 2), I8, Grid(I8, 0.5, 3))  # TFLite's softmax has one output grid
    graph = NpuGraph("bad", [x], [y], [Node("softmax", (x,), (y,), {}, user_source())])
    with pytest.raises(LoweringError, match="failed to prepare") as caught:
        litert.LiteRt().build(graph, {})
    assert "test_target.py" in str(caught.value)


def test_a_file_that_reads_otherwise_is_not_trusted():
    graph = dense()
    operations = tflite_ops.operations(graph)
    with pytest.raises(ExecutionError, match="other operators"):
        litert.LiteRTSession(tflite.encode(graph, operations), operations[:2])


@pytest.mark.parametrize("kind", [OSError, MemoryError, IndexError])
def test_a_runtime_that_does_not_start_costs_a_note(monkeypatch, kind):
    def load(*args):
        raise kind("the runtime is broken")

    monkeypatch.setattr(litert.LiteRTSession, "load", load)
    build = litert.LiteRt().build(dense(), {})
    (made,) = build.evidence
    assert (made.act, made.by, build.run, build.label) == ("failed", "host", None, "emitted")
    assert "the runtime is broken" in build.notes[0] and build.files
    assert {p.decided_by for p in build.placements} == {"table"}


def test_single_rounding_is_noted():
    x, y = (Tensor(n, (1, 2), I8, asymmetric(-1, 1)) for n in "xy")
    graph = NpuGraph("r", [x], [y], [Node("relu", (x,), (y,))], rounding="single")
    assert any("single rounding" in note for note in litert.LiteRt().build(graph, {}).notes)


def test_without_the_package_the_file_is_still_written(monkeypatch):
    monkeypatch.setattr(litert, "installed", lambda module: False)
    build = litert.LiteRt().build(dense(), {})
    assert build.label == "emitted" and build.run is None and "nxjax[litert]" in build.notes[0]
    assert litert.LiteRt().available()[0] == "emitted"
    assert {p.decided_by for p in build.placements} == {"table"}


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_quantized_sums_do_not_run_on_the_reference_kernel_that_reads_them_unsigned(dtype):
    grid, wide = Grid(np.dtype(dtype), 0.5), Grid(np.dtype(dtype), 1.0)
    x, y, z = Tensor("x", (1, 4), dtype, grid), Tensor("y", (1,), dtype, wide), Tensor("z", (1,), dtype, wide)
    nodes = [Node("sum", (x,), (y,), {"axes": (1,), "keepdims": False}), Node("relu", (y,), (z,))]
    build = litert.LiteRt().build(NpuGraph("s", [x], [y, z], nodes), {})
    stored = np.array([[-10, -20, 3, 1]], dtype)
    assert [r.tolist() for r in build.run([stored])] == [[-13], [0]]
    assert "SUM" in build.notes[0] and "optimized" in build.runs_on
    # The file itself is as written; only what runs here is not.
    assert [o.name for o in tflite_file.parse(build.files["s.tflite"]).operators] == ["SUM", "RELU"]
    assert len(build.placements) == 2


def test_an_elu_of_int8_is_verified_from_the_saved_bytes():
    rng = np.random.default_rng(0)
    int8 = np.dtype("int8")
    grids = [Grid(int8, 0.05, 3), Grid(int8, 0.04, 1), Grid(int8, 0.03, -90), Grid(int8, 0.05, -40)]
    shapes = [(40, 30), (40, 20), (40, 20), (40,)]
    x, y, z, s = (Tensor(n, shape, int8, g) for n, shape, g in zip("xyzs", shapes, grids, strict=True))
    w = Tensor("w", (20, 30), int8, Grid(int8, 0.007), rng.integers(-127, 128, (20, 30)).astype(int8))
    nodes = [
        Node("fully_connected", (x, w, None), (y,), {"activation": None}, name="y"),
        Node("elu", (y,), (z,), {}, name="z"),
        Node("sum", (z,), (s,), {"axes": (1,), "keepdims": False}, name="s"),
    ]
    graph = NpuGraph("e", [x], [z, s], nodes).check()
    build = litert.LiteRt().build(graph, {})
    stored = rng.integers(-128, 128, (40, 30)).astype(int8)
    for got, want in zip(build.run([stored]), interpret(graph, [stored]), strict=True):
        np.testing.assert_array_equal(got, want)
    assert any("ELU" in n for n in build.notes) and "optimized" in build.runs_on
    # What ran are the bytes that are saved.
    assert build.run.data == build.files[build.ran_file]
    assert [o.name for o in tflite_file.parse(build.files["e.tflite"]).operators] == ["FULLY_CONNECTED", "ELU", "SUM"]
    assert len(build.placements) == 3


@pytest.mark.parametrize(
    ("op", "scales", "attrs"),
    [
        ("add", (1e4, 1e4, 1e-4), {"activation": None}),
        ("sub", (1e4, 1e4, 1e-4), {"activation": None}),
        ("squared_difference", (10.0, 10.0, 1e-6), {}),
        ("hard_swish", (1.0, 1e-3), {}),
        ("softmax", (1e-9, 1 / 256), {"beta": 1.0}),
        ("log_softmax", (2.0**-26, 1 / 16), {}),
    ],
)
def test_what_would_end_the_process_is_refused_before_it_is_loaded(op, scales, attrs):
    """Or what it would compute nonsense from."""
    zero = {"softmax": -128, "log_softmax": 127}.get(op, 0)
    *xs, z = (Tensor(f"t{i}", (4,), I8, Grid(I8, s, zero)) for i, s in enumerate(scales))
    graph = NpuGraph("far", xs, [z], [Node(op, tuple(xs), (z,), attrs, user_source())])
    operations = tflite_ops.operations(graph)
    with pytest.raises(LoweringError, match=r"cannot go from a scale|has no bits for a scale") as caught:
        litert.LiteRTSession(tflite.encode(graph, operations), operations)
    assert "test_target.py" in str(caught.value)
