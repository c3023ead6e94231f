"""The Apple Neural Engine target: a package anywhere, a run on macOS only, and nothing pretended in between."""

import sys
import types

import numpy as np
import pytest

from nxjax.errors import ExecutionError, LoweringError, ParameterError, ShapeError
from nxjax.lower.npu.formats import coreml_writer
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.vendors.apple import target as apple
from nxjax.vendors.apple.table import remarks, supports
from nxjax.vendors.apple.target import AppleNeuralEngine

F32, I8, I32 = np.dtype("float32"), np.dtype("int8"), np.dtype("int32")
MAC = sys.platform == "darwin"


def net():
    x, h, y = Tensor("x", (1, 8, 8, 3), F32), Tensor("h", (1, 8, 8, 4), F32), Tensor("y", (1, 8, 8), I32)
    w = Tensor("w", (4, 3, 3, 3), F32, None, np.ones((4, 3, 3, 3), np.float32))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    nodes = [
        Node("conv_2d", (x, w, None), (h,), attrs, name="conv"),
        Node("argmax", (h,), (y,), {"axis": 3}, name="top"),
    ]
    return NpuGraph("net", [x], [y], nodes).check()


@pytest.mark.skipif(MAC, reason="Core ML is here")
def test_elsewhere_the_package_is_emitted_and_nothing_runs():
    made = AppleNeuralEngine().build(net(), {})
    assert made.label == "emitted" and made.run is None and made.runs_on == ""
    assert [(p.name, p.device, p.decided_by) for p in made.placements] == [
        ("conv", "npu", "table"),
        ("top", "host", "table"),
    ]
    assert made.placements[1].reason and made.placements[1].suggestion and made.placements[0].macs > 0
    assert any("expectation" in n for n in made.notes)
    assert "net.mlpackage/Manifest.json" in made.files and next(iter(made.files)).endswith(".mlmodel")
    assert made.cost["weights"].value == 4 * 27 * 2
    assert AppleNeuralEngine().available()[0] == "emitted"


@pytest.mark.skipif(not MAC, reason="Core ML is part of macOS")
def test_on_a_mac_it_runs():
    made = AppleNeuralEngine().build(net(), {})
    (got,) = made.run([np.ones((1, 8, 8, 3), np.float32)])
    assert got.shape == (1, 8, 8) and got.dtype == I32
    assert made.label in ("hardware", "host")


def framework(preferred):
    """The part of coremltools that needs macOS, as its own source declares it: a model, and a plan per operation."""
    engine = type("MLNeuralEngineComputeDevice", (), {})
    named = types.SimpleNamespace

    class Model:
        def __init__(self, path, compute_units):
            assert path.endswith("model.mlpackage") and compute_units == "CPU_AND_NE"

        def get_compiled_model_path(self):
            return "compiled"

        def predict(self, fed):
            assert {k: v.dtype for k, v in fed.items()} == {"x": F32}
            return {"y": np.full((1, 8, 8), 2, np.int32)}

    class Plan:
        operations = [named(outputs=[named(name=n)]) for n in ("conv", "top", "unknown")]
        model_structure = named(program=named(functions={"main": named(block=named(operations=operations))}))

        @staticmethod
        def load_from_path(path, compute_units):
            assert path == "compiled" and compute_units == "CPU_AND_NE"
            return Plan()

        def get_compute_device_usage_for_mlprogram_operation(self, operation):
            name = operation.outputs[0].name
            if name not in preferred:
                return None
            return named(preferred_compute_device=engine() if preferred[name] else object())

    return named(
        ComputeUnit=named(CPU_AND_NE="CPU_AND_NE"),
        models=named(
            MLModel=Model,
            compute_plan=named(MLComputePlan=Plan),
            compute_device=named(MLNeuralEngineComputeDevice=engine),
        ),
    )


@pytest.mark.parametrize(
    ("preferred", "label"), [({"conv": True, "top": False}, "hardware"), ({"conv": False}, "host")]
)
def test_what_core_ml_plans_becomes_the_placement(preferred, label, monkeypatch):
    # The framework's answers are put in by hand; what is tested is what is made of them.
    monkeypatch.setattr(apple, "has_core_ml", lambda: True)
    monkeypatch.setattr(apple, "need", lambda *_: framework(preferred))
    made = AppleNeuralEngine().build(net(), {})
    assert made.label == ("vendor-compiled" if label == "hardware" else label)
    rows = {p.name: (p.device, p.decided_by) for p in made.placements}
    assert rows["conv"] == ("npu" if preferred["conv"] else "host", "vendor")
    assert rows["top"] == ("host", "vendor" if "top" in preferred else "table")
    assert all(p.reason for p in made.placements if p.device == "host")
    (got,) = made.execute([np.ones((1, 8, 8, 3), np.float32)], [t.shape for t in net().outputs])
    made.proved([got])
    assert got.dtype == I32 and (got == 2).all() and made.label == label
    with pytest.raises(ShapeError):
        made.run([np.ones((1, 8, 8, 4), np.float32)])
    assert AppleNeuralEngine().available() == ("hardware", "")


def test_a_package_that_core_ml_refuses(monkeypatch):
    broken = framework({})
    broken.models.MLModel.__init__ = lambda *_, **__: 1 / 0
    monkeypatch.setattr(apple, "has_core_ml", lambda: True)
    monkeypatch.setattr(apple, "need", lambda *_: broken)
    with pytest.raises(ExecutionError, match="does not load"):
        AppleNeuralEngine().build(net(), {})


def test_a_plan_that_cannot_be_read_places_nothing(monkeypatch):
    broken = framework({})
    broken.models.MLModel.get_compiled_model_path = lambda self: 1 / 0
    monkeypatch.setattr(apple, "has_core_ml", lambda: True)
    monkeypatch.setattr(apple, "need", lambda *_: broken)
    made = AppleNeuralEngine().build(net(), {})
    assert made.label == "emitted" and any("plan cannot be read" in n for n in made.notes)
    assert {(p.device, p.decided_by) for p in made.placements} == {("unknown", "nobody")}


def test_what_was_written_is_held_against_the_graph(monkeypatch):
    other = net()
    other.nodes[0].name = "elsewhere"
    files = coreml_writer.author(other).files
    contents = coreml_writer.read(files)
    with pytest.raises(ExecutionError, match="missing"):
        apple.checked(net(), contents)
    other.inputs[0].name = "z"
    with pytest.raises(ExecutionError, match="other inputs"):
        apple.checked(other, contents)


def test_float32_and_options():
    half, full = (AppleNeuralEngine().build(net(), o) for o in ({}, {"precision": "float32"}))
    assert full.cost["weights"].value == 2 * half.cost["weights"].value
    for bad in ({"precision": "int8"}, {"speed": 1}):
        with pytest.raises(ParameterError):
            AppleNeuralEngine().build(net(), bad)


def test_errors_name_the_op():
    x, y = Tensor("x", (1,) * 6, F32), Tensor("y", (1,) * 6, F32)
    with pytest.raises(LoweringError, match="dimensions"):
        AppleNeuralEngine().build(NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))]), {})


def test_the_table():
    def one(op, dtype=F32, shape=(2, 3), grid=None, **attrs):
        x, y = Tensor("x", shape, dtype, grid), Tensor("y", shape, dtype, grid)
        return Node(op, (x, x), (y,), attrs)

    assert supports(one("add")).ok and supports(one("add", I8, grid=Grid(I8, 0.1))).ok
    needed = {"gather": {"axis": 0}, "reduce_prod": {"axes": (0,)}, "argmax": {"axis": 0}, "cumsum": {"axis": 0}}
    needed["table"] = {"values": range(256)}
    for refused in (*(one(op, **attrs) for op, attrs in needed.items()), one("add", I32)):
        verdict = supports(refused)
        assert not verdict.ok and verdict.reason and verdict.suggestion
    assert not supports(one("add", shape=(1,) * 6)).ok
    x = Tensor("x", (1, 20000), F32)
    assert not supports(one("add", shape=x.shape)).ok
    assert supports(Node("reshape", (x,), (x,), {"shape": x.shape})).ok
    w = Tensor("w", (4, 15, 15, 3), F32, None, np.zeros((4, 15, 15, 3), np.float32))
    x, y = Tensor("x", (1, 20, 20, 3), F32), Tensor("y", (1, 6, 6, 4), F32)
    assert "15x15" in supports(Node("conv_2d", (x, w, None), (y,))).reason
    assert "A15" in remarks(one("sin")) and "A17" in remarks(one("add", I8, grid=Grid(I8, 0.1)))
    assert not remarks(one("add")) and not remarks(one("add", dtypes.float16))
