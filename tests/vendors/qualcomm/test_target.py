"""Qualcomm's compiler and simulator: what is placed, what is computed, and what is refused."""

import os
import signal

import numpy as np
import onnx
import pytest

from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.qualcomm import worker as qnn_worker
from nxjax.vendors.qualcomm.table import floating, verdict
from nxjax.vendors.qualcomm.target import SOCS, TARGETS, QualcommHtpDefault, confirmed, htp_arch, soc_model
from tests.lower.npu.formats.onnx_cases import I16, WEIGHTED, cases, float_graph, int8_graph, mixed
from tests.vendors.graphs import F32, I8, cnn, hybrid, images

pytest.importorskip("onnxruntime_qnn")
CASES = cases()


@pytest.fixture(scope="module")
def built():
    return QualcommHtpDefault().build(cnn(), {})


def test_cnn_is_wholly_on_the_npu_by_the_vendors_word(built):
    assert built.label == "vendor-compiled"
    built.proved(built.execute([images()], [t.shape for t in cnn().outputs]))
    assert built.label in ("vendor-simulator", "hardware")
    assert [(p.op, p.device, p.decided_by) for p in built.placements] == [(n.op, "npu", "vendor") for n in cnn().nodes]
    assert sum(p.macs for p in built.placements) > 0


def test_cnn_computes_the_integer_reference(built):
    for seed in range(3):
        (want,) = interpret(cnn(), [images(seed)])
        (got,) = built.run([images(seed)])
        assert got.dtype == F32
        assert np.abs(got - want).max() <= 3 / 256


def test_files_are_the_model_and_its_compiled_context(built):
    assert list(built.files) == ["cnn.onnx", "cnn_ctx.onnx"]
    context = onnx.load_from_string(built.files["cnn_ctx.onnx"])
    assert [n.op_type for n in context.graph.node] == ["EPContext"]
    assert {"file", "context binary"} == set(built.cost.figures)
    assert all(f.basis == "measured" and f.unit == "bytes" for f in built.cost.figures.values())


def test_figures_of_time_are_our_models_and_only_where_it_knows_the_chip(built):
    assert "latency" not in built.cost
    cost = QualcommHtpDefault().build(cnn(), {"soc_model": "SC8380XP"}).cost
    # What a run costs besides is not published.
    assert cost["chip time"].basis == "model" and "latency" not in cost
    assert cost["context binary"].basis == "measured"


def test_every_generation_compiles_for_itself():
    contexts = set()
    for target in TARGETS[1:]:
        build = target().build(cnn(), {})
        assert f"v{target.arch}," in build.runs_on
        assert all(p.device == "npu" for p in build.placements)
        contexts.add(build.files["cnn_ctx.onnx"])
    assert len(contexts) == len(SOCS)
    assert [t.name for t in TARGETS] == ["qualcomm-htp", *(f"qualcomm-htp-v{a}" for a in (68, 69, 73, 75, 79, 81))]


def test_hybrid_graphs_say_what_stays_on_the_host_and_why():
    build = QualcommHtpDefault().build(hybrid(), {})
    rows = {p.name: p for p in build.placements}
    assert [p.device for p in build.placements] == ["npu", "host", "npu", "npu"]
    assert "Erf" in rows["erf"].reason and "gelu" in rows["erf"].suggestion
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(F32)
    np.testing.assert_allclose(build.run([x])[0], interpret(hybrid(), [x])[0], atol=5e-3)


def test_a_graph_with_nothing_for_the_npu_is_labelled_host():
    graph = float_graph(next(c for c in CASES if c.op == "erf"))
    build = QualcommHtpDefault().build(graph, {})
    assert build.label == "host"
    assert list(build.files) == ["float.onnx"]


@pytest.mark.parametrize("options", [{"htp_arch": 85}, {"htp_arch": "v99"}, {"soc_model": "SM8650"}, {"soc": 43}])
def test_unknown_chips_and_options_are_refused(options):
    with pytest.raises(ParameterError, match="qualcomm-htp"):
        QualcommHtpDefault().build(cnn(), options)


def test_a_file_for_another_chip_is_an_error():
    assert confirmed([{"device_id": 0, "htp_arch": "V73", "soc_model": 43}], 73, 43) == []
    assert "did not say" in confirmed([], 73, 43)[0]
    with pytest.raises(ExecutionError, match="another chip"):
        confirmed([{"device_id": 0, "htp_arch": "", "soc_model": 43}], 73, 43)


def test_chips_are_found_by_name_and_number():
    assert htp_arch("V79") == 79
    assert soc_model("sc8380xp", 73) == soc_model(60, 73) == soc_model("60", 73) == 60


def test_int8_operators_are_within_two_steps_of_the_integer_reference():
    """In one graph each would be quicker to compile, but a mistake harder to find."""
    wrong = []
    for case in CASES[::2]:
        graph, feeds, _ = int8_graph(case)
        build = QualcommHtpDefault().build(graph, {})
        (want,), (got,) = interpret(graph, feeds), build.run(feeds)
        table, said = verdict(graph.nodes[0], 73).ok, build.placements[0].device == "npu"
        if np.abs(got.astype(int) - want.astype(int)).max() > 2 or table != said:
            wrong.append(case)
    assert wrong == []


def test_weights_with_one_scale():
    for case in [c for c in CASES if c.op in WEIGHTED]:
        graph, feeds, _ = int8_graph(case, channels=False)
        (want,), (got,) = interpret(graph, feeds), QualcommHtpDefault().build(graph, {}).run(feeds)
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1, case


def test_the_table_says_what_the_provider_says_of_operators_without_grids():
    for graph, feeds, expected in mixed(quantized=True):
        build = QualcommHtpDefault().build(graph, {})
        assert [p.device for p in build.placements] == ["npu"], graph.nodes[0].op
        for got, want in zip(build.run(feeds), expected, strict=True):
            if graph.nodes[0].op == "top_k":
                # Values on a grid come back within a step of it: the provider sorts reals.
                assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
            else:
                np.testing.assert_array_equal(got, want, err_msg=graph.nodes[0].op)


@pytest.mark.parametrize("op", ["logistic", "tanh", "conv_2d", "add"])
def test_int16_activations(op):
    graph, feeds, _ = int8_graph(next(c for c in CASES if c.op == op), I16)
    build = QualcommHtpDefault().build(graph, {})
    (want,), (got,) = interpret(graph, feeds), build.run(feeds)
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 8
    assert all(p.device == "npu" for p in build.placements)


def test_int8_tables_are_exact():
    x, y = Tensor("x", (256,), I8, Grid(I8, 0.025, 0)), Tensor("y", (256,), I8, Grid(I8, 1 / 128, 0))
    values = np.random.default_rng(0).integers(-128, 128, 256).astype(I8)
    graph = NpuGraph("table", [x], [y], [Node("table", (x,), (y,), {"function": "noise", "values": values})])
    build = QualcommHtpDefault().build(graph, {})
    assert build.placements[0].device == "npu"
    np.testing.assert_array_equal(build.run([np.arange(-128, 128).astype(I8)])[0], values)


def test_what_the_simulator_gets_wrong_is_said():
    graph, _, _ = int8_graph(next(c for c in CASES if c.op == "log"), I16)
    assert any("log wrongly" in n for n in QualcommHtpDefault().build(graph, {}).notes)


def test_rules_of_the_table():
    node = hybrid().nodes[0]
    assert floating(node)
    assert not verdict(node, 68).ok
    assert verdict(node, 73).ok
    deep = Tensor("x", (1,) * 6, F32)
    assert "6 dimensions" in verdict(Node("abs", (deep,), (deep,)), 73).reason
    wide = Tensor("x", (2,), np.dtype("float64"))
    assert "f64" in verdict(Node("abs", (wide,), (wide,)), 73).reason


def test_the_child_is_started_again_when_it_dies(built):
    before = qnn_worker.worker()
    os.kill(before._process.pid, signal.SIGKILL)
    before._process.wait()
    np.testing.assert_array_equal(built.run([images()])[0], built.run([images()])[0])
    assert qnn_worker.worker() is not before


def test_a_model_that_is_none_is_an_error_of_ours():
    with pytest.raises(ExecutionError, match="refused"):
        qnn_worker.QnnSession(b"not a model", {"backend_type": "htp"}, [], [])


def test_without_the_wheel_the_file_is_emitted(monkeypatch):
    monkeypatch.setattr("nxjax.vendors.qualcomm.target.installed", lambda name: name != "onnxruntime_qnn")
    build = QualcommHtpDefault().build(cnn(), {})
    assert build.label == "emitted" and "host" in build.runs_on
    np.testing.assert_allclose(build.run([images()])[0], interpret(cnn(), [images()])[0], atol=3 / 256)
    assert any("nxjax[qnn]" in n for n in build.notes)
    assert all(p.decided_by == "table" and p.device == "npu" for p in build.placements)
