"""Means in shapes that Vela takes, and look-ups for functions that it does not: the same bits, on the NPU."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import target_registry as registry
from nxjax.lower.npu.formats.tflite_ops import operations
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.arm import ethosu_table as ethos_u

I8 = np.dtype("int8")
CASES = [
    ((1, 8, 8, 16), (3,)),
    ((2, 8, 8, 16), (1, 2)),
    ((4, 6, 8), (0, 2)),
    ((1, 8, 8, 4, 2), (1, 2, 4)),
    ((3, 8, 8, 4, 2), (4,)),
    ((2, 3, 4, 5), (2,)),
    ((2, 3, 4, 5), (0, 1)),
]


def mean(shape, axes, keepdims=False, dtype=I8):
    x = Tensor("x", shape, dtype, Grid(dtype, 0.05, 3 if dtype == I8 else 0))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)
    y = Tensor("y", out, dtype, Grid(dtype, 0.02, -7 if dtype == I8 else 0))
    return NpuGraph(
        "g", [x], [y], [Node("mean", (x,), (y,), {"axes": axes, "keepdims": keepdims}, name="mean")]
    ).check()


@pytest.mark.parametrize("chip", ["ethos-u55", "ethos-u85"])
@pytest.mark.parametrize(("shape", "axes"), CASES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_refused_means_are_taken_in_another_shape(shape, axes, keepdims, chip):
    graph = mean(shape, axes, keepdims)
    table = ethos_u.table(chip.removeprefix("ethos-"))
    target = registry.get(chip)
    assert target.supports(graph.nodes[0]).ok
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(I8)
    build = target.build(graph, {})
    assert (build.run([x])[0] == interpret(graph, [x])[0]).all()
    if not table.judge(operations(graph)[0]).ok:
        assert b"/rows" in build.files["g.tflite"]


def test_most_of_these_were_refused():
    table = ethos_u.table("u55")
    assert sum(not table.judge(operations(mean(*case))[0]).ok for case in CASES) >= 4


def test_vela_takes_them():
    pytest.importorskip("ethosu.vela")
    for shape, axes in CASES[:4]:
        build = registry.get("ethos-u55").build(mean(shape, axes), {})
        assert [p.device for p in build.placements] == ["npu"] and build.label == "vendor-compiled"


def test_what_no_reshape_helps_stays_as_it_is():
    graph = mean((2, 3, 4, 5, 6), (0, 2, 4))
    assert [o.name for o in operations(graph)] == ["MEAN"]
    target = registry.get("ethos-u55")
    assert not target.supports(graph.nodes[0]).ok and target.supports(graph.nodes[0]).reason
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5, 6)).astype(I8)
    build = target.build(graph, {})
    assert (build.run([x])[0] == interpret(graph, [x])[0]).all()


@pytest.mark.parametrize("op", ["sqrt", "log"])
def test_functions_that_a_u85_lacks_are_looked_up(op):
    pytest.importorskip("ethosu.vela")
    x, y = Tensor("x", (1, 4, 8), I8, Grid(I8, 0.1, -128)), Tensor("y", (1, 4, 8), I8, Grid(I8, 0.03, -100))
    graph = NpuGraph("g", [x], [y], [Node(op, (x,), (y,), name=op)]).check()
    build = registry.get("ethos-u85").build(graph, {})
    assert [p.device for p in build.placements] == ["npu"]
    stored = np.arange(-128, -96).astype(I8).reshape(1, 4, 8)
    assert (build.run([stored])[0] == interpret(graph, [stored])[0]).all()


REFUSED = {
    "argmax of floats": (np.float32, lambda x: x.argmax(-1)),
    "argmax of integers": (np.int32, lambda x: x.argmax(-1)),
    "hard_swish of floats": (np.float32, nx.nn.hard_swish),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_float_makes_vela_refuse_the_whole_file(name: str):
    """The product before it is on the NPU."""
    pytest.importorskip("ethosu.vela")
    dtype, end = REFUSED[name]
    rng = np.random.default_rng(0)
    p, x = {"w": rng.normal(size=(16, 16)).astype(np.float32)}, rng.normal(size=(8, 16)).astype(np.float32)
    only = lambda op, scope, types: "int8" if op == "dot_general" else None
    quantized = nx.quantize(lambda p, x: end((9 * x @ p["w"]).astype(dtype)), only, calibrate=[(p, x)])
    artifact = nx.compile(quantized, target="ethos-u85")(p, x)
    assert [r.device for r in artifact.report.rows if r.op == "fully_connected"] == ["npu"]
    assert artifact.deviation is not None and artifact.deviation.exact
