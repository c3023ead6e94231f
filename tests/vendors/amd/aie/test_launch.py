"""Compiled designs on the chip: a stand-in for AMD's compiler and runtime, whose chip is nxjax's model of the array."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ExecutionError
from nxjax.hardware import amd, power
from nxjax.vendors.amd import xrt
from nxjax.vendors.amd.aie import aiecc
from tests.backends.sensors.trees import roots, ryzen
from tests.vendors.amd.fake_pyxrt import compiled, machine

RNG = np.random.default_rng(1)
W, X = (RNG.normal(size=s).astype(np.float32) for s in ((16, 24), (8, 16)))
P = {"w": W}


def f(p, x):
    h = nx.nn.relu(x @ p["w"])
    return h + h * h


@pytest.fixture
def vendor(monkeypatch):
    """A machine with aiecc, XRT and one NPU, none of which is real; what is returned is its pyxrt."""

    def compile_design(tools, stem, files, triple, another):
        return {f"{stem}.xclbin": compiled(files[f"{stem}.mlir"].decode()), f"{stem}.insts.bin": bytes(8)}

    def with_npu(name):
        fake = machine((name,))
        monkeypatch.setattr(aiecc, "found", lambda: aiecc.Tools("aiecc", "clang++", None, "include"))
        monkeypatch.setattr(aiecc, "compile_design", compile_design)
        monkeypatch.setattr(xrt, "unavailable", lambda: "")
        monkeypatch.setattr(xrt, "package", lambda: fake)
        monkeypatch.setattr("nxjax.vendors.amd.xrt_runtime.package", lambda: fake)
        return fake

    yield with_npu
    amd.close_shared()


@pytest.fixture(scope="module")
def quantized():
    return nx.quantize(f, "int8", calibrate=[(P, X)])


def test_compiled_designs_run_on_the_chip_with_the_integer_graphs_bits(quantized, vendor):
    fake = vendor("NPU Phoenix")
    artifact = nx.compile(quantized, target="aie-npu1")(P, X)
    assert (artifact.label, artifact.runs_on) == ("hardware", "NPU Phoenix through XRT") and artifact.deviation.exact
    before = len(fake.log)
    np.testing.assert_array_equal(artifact.run(2 * X), artifact.reference(2 * X))
    launches = int(artifact.cost["launches"].value)
    assert [e[0] for e in fake.log[before:]] == ["run"] * launches, "contexts are kept from call to call"
    fake.script = ["ERROR"]
    with pytest.raises(ExecutionError, match="MLIR_AIE on NPU Phoenix failed"):
        artifact.run(X)
    np.testing.assert_array_equal(artifact.run(X), artifact.reference(X))
    with pytest.raises(ExecutionError, match="close_shared"):
        power.set("turbo")
    amd.close_shared()
    np.testing.assert_array_equal(artifact.run(X), artifact.reference(X))


def test_targets_say_what_runs_here(vendor, monkeypatch, tmp_path):
    vendor("NPU Phoenix")
    ryzen(tmp_path, "NPU Phoenix")
    monkeypatch.setattr("nxjax.vendors.amd.aie.launch.Roots", lambda: roots(tmp_path))
    found = {t.name: (t.label, t.reason) for t in nx.targets()}
    assert found["aie-npu1"] == ("hardware", "") and "NPU Phoenix, not npu2" in found["aie-npu2"][1]
    monkeypatch.setattr(xrt, "unavailable", lambda: "no NPU")
    assert {t.name: t.label for t in nx.targets()}["aie-npu1"] == "vendor-compiled"


def test_another_generation_is_not_pretended(quantized, vendor):
    vendor("NPU Strix")
    artifact = nx.compile(quantized, target="aie-npu1")(P, X)
    assert artifact.label == "vendor-compiled" and "array model" in artifact.runs_on
    assert any("the NPU here is NPU Strix, not npu1" in n for n in artifact.notes)


def test_without_a_chip_the_model_runs_and_says_why(quantized, vendor, monkeypatch):
    vendor("NPU Phoenix")
    monkeypatch.setattr(xrt, "unavailable", lambda: "no NPU")
    artifact = nx.compile(quantized, target="aie-npu1")(P, X)
    assert artifact.label == "vendor-compiled" and any(n.endswith("the binaries: no NPU") for n in artifact.notes)
