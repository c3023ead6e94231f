"""Every adapter whose target starts a tool, with a tool that fails, hangs, lies, or answers for another network.

The adapters come from the registry, and what they start is caught where processes are started: an adapter that is
new is tested too, and fails here until `bad_tool` knows what its tool is asked to leave.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import target_registry as registry
from nxjax.backends import tools
from nxjax.backends.extras import installed
from nxjax.vendors.litert import aot
from nxjax.vendors.qualcomm import worker
from tests.deploy.nets import IMAGE, PARAMS, convnet, quantized
from tests.vendors.amd.aie.test_aiecc import INSTS, OBJECT, XCLBIN
from tests.vendors.nets import dispatched

KINDS = ("fails", "garbage", "hangs", "writes nothing", "copies", "another")
# One target of each adapter: those that share a build share all that could claim something.
ADAPTERS = {cls.build: cls.name for cls in reversed(registry.classes())}
NAMES = sorted(ADAPTERS.values())
# What those are that are known to start tools where these are found: no adapter may fall out of the test unseen.
STARTS = {
    "aie-npu1", "edgetpu", "ethos-u55", "graphcore-popart", "intel-npu", "poplar", "qualcomm-htp", "qualcomm-litert",
    "rockchip", "tpu-v2",
}  # fmt: skip
PACKAGES = ("ai_edge_litert", "coremltools", "ethosu", "libtpu", "onnx", "onnxruntime", "onnxruntime_qnn", "openvino")
# What asks a tool once in a process.
ASKED_ONCE = ("_answer", "_tried", "_version", "_imports", "devices_of")


def small(x):
    return nx.nn.relu(x * 2 + 1)


def compiled(target: str):
    """The artifact of a network that the target takes."""
    known = registry.get(target)
    if known.format in ("tpu", "ipu", "poplar"):
        return nx.compile(small, target=target)(np.ones((4, 8), np.float32))
    function = convnet if known.quantizes or "int8" not in known.precision else quantized()
    return nx.compile(function, target=target)(PARAMS, IMAGE)


@pytest.fixture(scope="module")
def written() -> bytes:
    return nx.compile(quantized(), target="tflite", verify=False)(PARAMS, IMAGE).bytes


@pytest.fixture
def machine(request, monkeypatch, tmp_path, written):
    """A machine that seems to have every vendor's tool, each of which is bad; a file says that one was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("edgetpu_compiler", "aiecc", "clang++", "popc", "python", "apply_plugin_main"):
        (folder / name).write_text("#!/bin/sh\nexit 98\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for variable in ("POPART_PYTHON", "RKNN_PYTHON", "OPENVINO_NPU_PYTHON"):
        monkeypatch.setenv(variable, str(folder / "python"))
    monkeypatch.setattr(aot, "_COMPILER", folder / "apply_plugin_main")
    plan = tmp_path / "plan"
    plan.mkdir()
    for name, data in {
        "xclbin": XCLBIN,
        "bin": INSTS,
        "o": OBJECT,
        "rknn": b"RKNN of another",
        "blob": b"\x7fELF",
    }.items():
        (plan / name).write_bytes(data)
    operator = {"ethos-u55": "ethos-u", "edgetpu": "edgetpu-custom-op"}.get(
        request.getfixturevalue("target"), "DISPATCH_OP"
    )
    (plan / "tflite").write_bytes(dispatched(written, operator))

    class Popen(subprocess.Popen):
        def __init__(self, command, *more, **how):
            command = list(map(str, command))
            if Path(command[0]).name in ("c++", "g++") or command[0].startswith("./"):
                super().__init__(command, *more, **how)
                return
            # Its own environment: what a tool is given may keep a Python from its packages.
            how["env"] = dict(os.environ)
            bad = Path(__file__).with_name("bad_tool.py")
            super().__init__([sys.executable, str(bad), str(plan), *command], *more, **how)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    ended = tools._ended
    monkeypatch.setattr(
        tools, "_ended", lambda process, seconds, printed: ended(process, min(seconds, patience()), printed)
    )

    def patience():
        return 2.0 if (plan / "kind").read_text() == "hangs" else 60.0

    def forget():
        for name in [m for m in sys.modules if m.startswith("nxjax.")]:
            for attribute in ASKED_ONCE:
                if hasattr(vars(sys.modules[name]).get(attribute), "cache_clear"):
                    vars(sys.modules[name])[attribute].cache_clear()

    def does(kind):
        (plan / "kind").write_text(kind)
        monkeypatch.setattr(tools, "TIMEOUT", patience())
        monkeypatch.setattr(worker, "_worker", None)
        forget()
        return plan / "work"

    yield does
    if worker._worker is not None:
        worker._worker.close()
    forget()
    assert not (plan / "unknown").exists(), (plan / "unknown").read_text()


@pytest.mark.skipif(not all(map(installed, PACKAGES)), reason="needs what the adapters are written with")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", NAMES)
def test_a_bad_tool_earns_nothing(target, kind, machine):
    worked = machine(kind)
    artifact = compiled(target)
    assert worked.exists() == (target in STARTS), "what starts a tool is in STARTS"
    if not worked.exists():
        return
    own = artifact._build.runner is not None and artifact._build.runner.by == "own-model"
    assert artifact.label == ("own-model" if own else "emitted"), artifact
    assert artifact.report.label == artifact.label
    assert not [r for r in artifact.report.rows if r.decided_by == "vendor"], artifact
    by = artifact._build.runner.by if artifact._build.runner is not None else None
    assert artifact.deviation is None or by in ("host", "own-model"), artifact
    failed = [r for r in artifact.evidence if r.act == "failed"]
    assert failed and artifact.notes and not [r for r in artifact.evidence if r.act == "compiled"], artifact
    if kind == "hangs":
        assert "longer than 2 s" in " ".join([*artifact.notes, *(r.answer for r in failed)])


def test_no_adapter_that_starts_a_tool_is_missing():
    assert set(NAMES) >= STARTS
