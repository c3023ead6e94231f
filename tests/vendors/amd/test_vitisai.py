"""AMD XDNA: the file, the options beside it, the table, and what is made of the provider's report."""

import gc
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from nxjax.errors import ParameterError
from nxjax.lower.npu.formats.onnx_ops import EMIT
from nxjax.lower.npu.formats.onnx_pow2 import power_of_two
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.amd import vitisai
from nxjax.vendors.amd.table import MODES, TABLE, mode, verdict
from nxjax.vendors.amd.vitisai import PROVIDER, AmdXdna
from tests.lower.npu.formats.onnx_cases import I16, cases, int8_graph
from tests.vendors.graphs import F32, I8, cnn, hybrid, images


def scales(data):
    model = onnx.load_from_string(data)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return [s for n in model.graph.node if "Linear" in n.op_type for s in constants[n.input[1]].ravel()]


def test_file_has_powers_of_two_and_says_what_changed():
    build = AmdXdna().build(cnn(), {})
    assert build.label == "emitted"
    assert all(power_of_two(float(s)) for s in scales(build.files["cnn.onnx"]))
    assert any("power-of-two" in n for n in build.notes)
    assert onnx.load_from_string(build.files["cnn.onnx"]).opset_import[0].version == 17
    assert all(p.device == "npu" and p.decided_by == "table" for p in build.placements)


def test_figures_of_time_are_our_models():
    for graph in (cnn(), hybrid()):
        cost = AmdXdna().build(graph, {}).cost
        assert next(f for name, f in cost.figures.items() if "latency" in name).basis == "model"
        assert cost["file"].basis == "measured"


def test_own_grids_are_kept_exactly_when_asked():
    build = AmdXdna().build(cnn(), {"power_of_two": False})
    assert not any("power-of-two" in n for n in build.notes)
    for seed in range(3):
        (want,), (got,) = interpret(cnn(), [images(seed)]), build.run([images(seed)])
        assert np.abs(want - got).max() <= 3 / 256


def test_wide_and_float_graphs_keep_their_grids():
    wide, feeds, _ = int8_graph(next(c for c in cases() if c.op == "conv_2d"), I16)
    build = AmdXdna().build(wide, {})
    (want,), (got,) = interpret(wide, feeds), build.run(feeds)
    assert np.abs(want.astype(int) - got.astype(int)).max() <= 1
    assert any("does not compute in int16" in n for n in build.notes) and "latency" not in build.cost
    for graph in (wide, hybrid()):
        assert not any("power-of-two" in n for n in AmdXdna().build(graph, {}).notes)
    assert any("power-of-two" in n for n in AmdXdna().build(wide, {"power_of_two": True}).notes)


def test_options_lie_beside_the_file():
    options = {"xclbin": "AMD_AIE2P_4x4_Overlay.xclbin", "cache_dir": "c"}
    config = json.loads(AmdXdna().build(cnn(), {"overlay": "X1", **options}).files["cnn.vitisai.json"])
    assert config["providers"] == [PROVIDER]
    (given,) = config["provider_options"]
    # What nxjax calls an overlay is the provider's target, which is already a word of nx.compile.
    assert given.items() >= (options | {"target": "X1"}).items()
    assert given["cache_key"].startswith("nxjax_")


@pytest.mark.parametrize("options", [{"overlay": "X3"}, {"overlay": "X1"}, {"cacheDir": "c"}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ParameterError, match="amd-xdna"):
        AmdXdna().build(cnn(), options)


def test_edges_keep_the_grids_of_the_graph():
    grid, out = Grid(I8, 0.03, 11), Grid(I8, 0.02, -5)
    x, y = Tensor("x", (64,), I8, grid), Tensor("y", (64,), I8, out)
    graph = NpuGraph("edge", [x], [y], [Node("abs", (x,), (y,), name="abs")])
    build = AmdXdna().build(graph, {})
    stored = np.arange(-64, 64, 2).astype(I8)
    (got,) = build.run([stored])
    assert got.dtype == I8
    np.testing.assert_allclose(
        out.dequantize(got), np.minimum(np.abs(grid.dequantize(stored)), out.bounds[1]), atol=0.07
    )


def test_table_covers_the_vocabulary():
    assert set(TABLE) == set(EMIT)
    assert all(TABLE[op] <= set(MODES) for op in TABLE)


def test_verdicts_go_by_arithmetic():
    erf = hybrid().nodes[1]
    assert mode(erf, True) == "BF16"
    assert verdict(erf).ok
    x = Tensor("x", (2,), I8, Grid(I8, 0.1, 0))
    sigmoid = Node("logistic", (x,), (x,))
    assert not verdict(sigmoid, power_of_two=True).ok
    assert "A8W8" in verdict(sigmoid, power_of_two=True).suggestion
    assert verdict(sigmoid, power_of_two=False).ok


class Session:
    """A session of AMD's build, as its documentation describes it: it computes, and leaves a report in its cache."""

    made = onnxruntime.InferenceSession
    report = True

    def __init__(self, data, so, providers, provider_options):
        (options,) = provider_options
        self._session = Session.made(data, so, providers=["CPUExecutionProvider"])
        if not Session.report:
            return
        rows = [
            {"device": "CPU" if n.op_type == "Softmax" else "NPU", "opType": f"::{n.op_type}", "output": list(n.output)}
            for n in onnx.load_from_string(data).graph.node
        ]
        folder = Path(options["cache_dir"], options["cache_key"])
        folder.mkdir(parents=True)
        (folder / "vitisai_ep_report.json").write_text(json.dumps({"nodeStat": rows}))

    def run(self, names, feeds):
        return self._session.run(names, feeds)

    def get_providers(self):
        return [PROVIDER, "CPUExecutionProvider"]


@pytest.mark.parametrize("report", [True, False])
def test_placement_is_what_the_providers_report_says(monkeypatch, tmp_path, report):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(Session, "report", report)
    build = AmdXdna().build(cnn(), {"cache_dir": str(tmp_path)})
    assert PROVIDER in build.runs_on
    if not report:
        assert build.label == "emitted"
        return
    assert build.label == "vendor-compiled"
    build.proved(build.execute([images()], [t.shape for t in cnn().outputs]))
    assert build.label == "hardware"
    assert [p.op for p in build.placements if p.device == "host"] == ["softmax"]
    assert all(p.decided_by == "vendor" for p in build.placements)
    assert build.run([images()])[0].dtype == F32
    # The next one leaves nothing of its own in the same cache.
    monkeypatch.setattr(Session, "report", False)
    stale = AmdXdna().build(cnn(), {"cache_dir": str(tmp_path)})
    assert stale.label == "emitted" and {p.device for p in stale.placements} == {"unknown"}
    assert "may be of another model" in " ".join(stale.notes)


@pytest.mark.parametrize("kind", ["runs", "no session", "gave way"])
def test_a_cache_that_nobody_named_is_removed(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(vitisai.tempfile, "mkdtemp", lambda prefix: str(tmp_path / f"{prefix}1"))
    monkeypatch.setattr(vitisai, "run_on_host", lambda *_: None)
    left = lambda: list(tmp_path.iterdir())
    if kind == "gave way":
        monkeypatch.setattr(Session, "get_providers", lambda self: ["CPUExecutionProvider"])
    if kind == "no session":
        monkeypatch.setattr(Session, "made", lambda *_, **__: 1 / 0)
    build = AmdXdna().build(cnn(), {})
    assert bool(left()) == (kind == "runs") == (build.label == "vendor-compiled")
    if kind == "runs":
        run = build.run
        del build
        gc.collect()
        assert left() and run([images()])[0].dtype == F32
        del run
        gc.collect()
    assert not left()


def test_a_session_without_the_provider_ran_nothing_on_the_npu(monkeypatch, tmp_path):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(vitisai, "run_on_host", lambda *_: None)
    monkeypatch.setattr(Session, "get_providers", lambda self: ["CPUExecutionProvider"])
    build = AmdXdna().build(cnn(), {"cache_dir": str(tmp_path)})
    assert build.label == "emitted" and build.evidence[-1].act == "failed" and build.runner is None
    assert {p.decided_by for p in build.placements} == {"table"}
