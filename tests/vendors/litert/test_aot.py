"""Phone NPUs through LiteRT's compiler: what is compiled is read back, what is not is said and labelled."""

import sys
import types

import numpy as np
import pytest

from nxjax.backends.extras import installed
from nxjax.backends.tools import NO_MODEL
from nxjax.errors import LoweringError, ParameterError, user_source
from nxjax.lower.npu.formats import tflite, tflite_file
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.vendors.litert import aot as litert_aot
from nxjax.vendors.litert import compiled as tflite_compiled

pytest.importorskip("ai_edge_litert")

I8 = np.dtype("int8")
QUALCOMM = litert_aot.Qualcomm()
needs_qnn = pytest.mark.skipif(not QUALCOMM.libraries(), reason="QNN's libraries are not installed")
OTHERS = [litert_aot.MediaTek, litert_aot.Exynos, litert_aot.GoogleTensor]


def net(middle: str = "") -> NpuGraph:
    """conv, pool, perhaps one more op, relu."""
    rng = np.random.default_rng(0)
    grid, out = asymmetric(-1, 3), asymmetric(-2, 5)
    x = Tensor("x", (1, 9, 9, 4), I8, grid)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.01, 0.02, 8))
    w = Tensor("w", (8, 3, 3, 4), I8, Grid(I8, scales, 0, 0), rng.integers(-127, 128, (8, 3, 3, 4)).astype(I8))
    b = Tensor("b", (8,), "int32", None, rng.integers(-99, 99, 8).astype("int32"))
    y, z, m, r = (Tensor(n, (1, 5, 5, 8), I8, out) for n in "yzmr")
    conv = {"strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    pool = {"strides": (1, 1), "window": (3, 3), "padding": ((1, 1), (1, 1)), "activation": None}
    nodes = [Node("conv_2d", (x, w, b), (y,), conv, user_source(), name="first"), Node("max_pool_2d", (y,), (z,), pool)]
    if middle:
        nodes.append(Node(middle, (z,), (m,), {"axes": (3,), "keepdims": True} if middle == "reduce_prod" else {}))
        if middle == "reduce_prod":
            m.shape = r.shape = (1, 5, 5, 1)
    nodes.append(Node("relu", (m if middle else z,), (r,)))
    return NpuGraph("net", [x], [r], nodes).check()


@needs_qnn
def test_qualcomm_compiles_all_of_it_for_a_snapdragon():
    build = QUALCOMM.build(net(), {"soc_model": "SM8650"})
    assert build.label == "vendor-compiled" and list(build.files) == ["net_sm8650.tflite", "net.tflite"]
    assert [(p.device, p.decided_by) for p in build.placements] == [("npu", "vendor")] * 3
    model = build.files["net_sm8650.tflite"]
    assert tflite_compiled.left_for_host(model, "DISPATCH_OP") == ([], 1)
    assert [o.custom for o in tflite_file.parse(model).operators] == ["DISPATCH_OP"]
    assert any("3 of 3 operators in 1 parts" in n and "SM8650" in n for n in build.notes)
    assert build.cost["compiled file"].value == len(model)
    assert build.cost["dram read"].basis == "vendor-estimate" and build.cost["dram read"].value > 0
    # The chip is not here; the written file runs on the host, and says so.
    assert "host" in build.runs_on
    assert build.run([np.ones((1, 9, 9, 4), I8)])[0].shape == (1, 5, 5, 8)
    assert build.placements[0].name == "first" and build.placements[0].macs > 0


@needs_qnn
def test_what_qualcomm_leaves_to_the_host_is_read_from_its_file():
    build = QUALCOMM.build(net("reduce_prod"), {})
    assert [p.device for p in build.placements] == ["npu", "npu", "host", "npu"]
    row = build.placements[2]
    assert row.decided_by == "vendor" and "REDUCE_PROD" in row.reason and "multiply in steps" in row.suggestion
    assert tflite_compiled.left_for_host(build.files["net_sm8750.tflite"], "DISPATCH_OP")[1] == 2
    assert any("3 of 4 operators in 2 parts" in n for n in build.notes)


@needs_qnn
def test_a_graph_of_which_qualcomm_takes_nothing_is_on_the_host_with_qnns_reason():
    x, y = Tensor("x", (4, 5), I8, asymmetric(-1, 1)), Tensor("y", (4, 5), I8, asymmetric(0, 3))
    build = QUALCOMM.build(NpuGraph("e", [x], [y], [Node("exp", (x,), (y,))]), {})
    assert QUALCOMM.supports(Node("exp", (x,), (y,))).ok  # the plugin's list has it; QNN decides
    (row,) = build.placements
    assert (row.device, row.decided_by) == ("host", "vendor")
    assert "QNN refuses Exp of sfixed_point_8[4,5]" in row.reason
    assert build.label == "host" and list(build.files) == ["e.tflite"]


@pytest.mark.parametrize("target", OTHERS, ids=lambda t: t.name)
def test_without_the_vendors_sdk_the_file_is_written_and_the_sdk_named(target):
    label, why = target().available()
    if label != "emitted":
        pytest.skip("this machine has the vendor's SDK")
    graph = net("reduce_prod")
    build = target().build(graph, {})
    assert build.label == "emitted" and build.files == {"net.tflite": tflite.write(graph)}
    assert target.missing in why and any(target.missing in n and "not compiled" in n for n in build.notes)
    assert [p.device for p in build.placements] == ["npu", "npu", "host", "npu"]
    assert {p.decided_by for p in build.placements} == {"table"}
    assert build.run is not None and "host" in build.runs_on


def test_the_reason_is_the_front_ends_own():
    notes = litert_aot.GoogleTensor().build(net(), {}).notes
    if litert_aot.GoogleTensor().libraries():
        pytest.skip("this machine has the vendor's SDK")
    assert any("liblitert_plugin_compiler.so: cannot open shared object file" in n for n in notes)


def test_options_and_chips_are_checked():
    for options in ({"soc": "SM8750"}, {"soc_model": "SM1"}, {"sdk": "/no/such/folder"}):
        with pytest.raises(ParameterError):
            QUALCOMM.build(net(), options)
    x, y = (Tensor(n, (4,), "float32") for n in "xy")
    graph = NpuGraph("g", [x], [y], [Node("erf", (x,), (y,))])
    with pytest.raises(LoweringError):
        QUALCOMM.build(graph, {})


def test_without_litert_the_file_is_still_written(monkeypatch):
    monkeypatch.setattr(litert_aot, "installed", lambda module: False)
    monkeypatch.setattr(tflite_compiled, "installed", lambda module: False)
    build = QUALCOMM.build(net(), {})
    assert build.label == "emitted" and build.run is None and any("nxjax[litert]" in n for n in build.notes)


def test_an_sdk_package_is_found_and_a_stub_of_one_is_not(monkeypatch, tmp_path):
    module = types.ModuleType("ai_edge_litert_sdk_samsung")
    module.__spec__ = types.SimpleNamespace()
    module.path_to_sdk_libs = lambda: tmp_path
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert litert_aot.Exynos().libraries() == []  # nothing in the folder
    (tmp_path / "lib.so").write_bytes(b"")
    assert litert_aot.Exynos().libraries() == [str(tmp_path)]
    assert litert_aot.Exynos().available()[0] == "vendor-compiled"

    def broken():
        raise FileNotFoundError("no download")

    module.path_to_sdk_libs = broken
    assert litert_aot.Exynos().libraries() == []


STATS = "INFO: Partitioned subgraph<0>, selected {} ops, from a total of {} ops. resulted in {} partitions."


def test_success_is_not_believed():
    good = tflite.write(net())
    assert litert_aot._read(STATS.format(3, 3, 1), 0, b"").model is None
    assert litert_aot._read(STATS.format(3, 3, 1), 0, b"TFL3 or so").model is None
    assert litert_aot._read(STATS.format(3, 3, 1), 1, good).model is None
    none = STATS.format(0, 3, 0)
    skipped = none + "\nINFO: CompilerPlugin::Compile: Skipped for non partitioned model."
    assert litert_aot._read(skipped, 1, b"").refused(3) and litert_aot._read(none, 0, b"").refused(3)
    # Its end with 1 alone is no word of the operators, and a count of others none of this file's.
    assert not litert_aot._read("", 1, b"").refused(3) and not litert_aot._read(skipped, 1, b"").refused(2)
    assert not litert_aot._read(none + "\nERROR: disk full while loading plugin", 1, b"").refused(3)
    assert "ended with 6" in litert_aot._read("", 6, b"").why


def test_a_count_that_its_own_file_does_not_bear_out_is_noted(monkeypatch):
    # The "compiled" file holds what the written one does: nothing is dispatched, whatever the log says.
    graph = net()
    said = litert_aot._read(STATS.format(3, 3, 1), 0, tflite.write(graph) + bytes(4))
    nothing = litert_aot.AotResult(None)
    monkeypatch.setattr(litert_aot, "run_compiler", lambda data, *_: nothing if data == NO_MODEL else said)
    build = QUALCOMM.build(graph, {})
    assert {p.device for p in build.placements} == {"host"} and build.label == "host"
    assert any("says 3 operators in 1 parts, its file holds 0 in 0" in n for n in build.notes)


@pytest.mark.parametrize("status", [-11, -9, 3])
def test_a_front_end_that_crashed_refuses_nothing(status, monkeypatch):
    said = litert_aot._read(STATS.format(0, 3, 0), 1, b"")
    said.status = status
    monkeypatch.setattr(litert_aot, "run_compiler", lambda *args: said)
    build = QUALCOMM.build(net(), {})
    assert build.label == "emitted" and build.evidence[-1].act == "failed"
    assert {p.decided_by for p in build.placements} == {"table"}


def test_refusals_are_read_with_types_and_numbers():
    log = """ERROR: [qnn_manager.cc:480]
QNN op validation failed: 'ElementWiseUnary_0' (type=ElementWiseUnary, operation=Exp)
  Inputs:
    [0] name="t1" dtype=QNN_DATATYPE_SFIXED_POINT_8 dims=[4,5,1] per-tensor-quant
  Outputs:
    [0] name="out0" dtype=QNN_DATATYPE_SFIXED_POINT_8 dims=[4,5,1] per-tensor-quant
  QNN error=3110. See the QNN validator log lines above for the specific reason.
ERROR: [qnn_compiler_plugin.cc:538]
LiteRT Op #4 'Exp' (code=47) is not supported in Qualcomm Compiler.
LiteRT Op #7 'ReduceProd' (code=81) is not supported in Qualcomm Compiler.
"""
    expected = {4: "QNN refuses Exp of sfixed_point_8[4,5,1] (error 3110)", 7: "the plugin does not take it"}
    assert litert_aot._refusals(log) == expected


def test_targets_are_listed():
    names = [t.name for t in litert_aot.TARGETS]
    assert names == ["qualcomm-litert", "mediatek-apu", "samsung-exynos", "google-tensor"]
    assert all(t.available(t())[0] in ("emitted", "vendor-compiled") for t in litert_aot.TARGETS)
    assert installed("ai_edge_litert")
