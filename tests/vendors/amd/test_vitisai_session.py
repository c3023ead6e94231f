"""Hybrid sessions: the real ONNX Runtime without AMD's provider, and a stand-in that has it."""

import gc
import json
import types
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from nxjax.errors import ExecutionError, ParameterError, PlacementError
from nxjax.vendors.amd.vitisai import PROVIDER, REPORT
from nxjax.vendors.amd.vitisai_session import CPU, DML, OPTIONS, hybrid_session


def model() -> bytes:
    """y = erf(relu(x)), the first node named."""
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="r"), helper.make_node("Erf", ["h"], ["y"])]
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [3])] for n in "xy"]
    made = helper.make_model(
        helper.make_graph(nodes, "g", *ports), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return made.SerializeToString()


class Session:
    """ONNX Runtime with AMD's provider, which takes the nodes of ``takes``: what it was made with is kept."""

    takes = ("Relu",)
    starts = True
    made: list = []

    def __init__(self, data, so, providers, provider_options):
        Session.made.append((providers, provider_options, so.entries))
        self.providers = providers if Session.starts else [CPU]
        self.real = onnxruntime.InferenceSession(data, providers=[CPU])
        self.kinds = {n.name: n.op_type for n in onnx.load_from_string(self.real_bytes(data)).graph.node}
        self.folder = Path(provider_options[0].get("cache_dir", "."), provider_options[0].get("cache_key", ""))

    @staticmethod
    def real_bytes(data):
        return data if isinstance(data, bytes) else Path(data).read_bytes()

    def get_providers(self):
        return self.providers

    def get_inputs(self):
        return self.real.get_inputs()

    def run(self, names, feeds):
        return self.real.run(names, feeds)

    def get_provider_graph_assignment_info(self):
        def part(name, kinds):
            nodes = [types.SimpleNamespace(name=n, op_type=k) for n, k in kinds]
            return types.SimpleNamespace(ep_name=name, get_nodes=lambda: nodes)

        npu = [(n, k) for n, k in self.kinds.items() if k in Session.takes]
        return [part(PROVIDER, npu), part(CPU, [kind for kind in self.kinds.items() if kind not in npu])]


class Older(Session):
    """One that keeps no record of where nodes run: AMD's provider writes its report instead."""

    get_provider_graph_assignment_info = property()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.folder.mkdir(parents=True)
        rows = [{"output": out, "device": "NPU" if out == "h" else "CPU"} for out in "hy"]
        (self.folder / REPORT).write_text(json.dumps({"nodeStat": rows}))


class SessionOptions:
    def __init__(self):
        self.entries = {}

    def add_session_config_entry(self, key, value):
        self.entries[key] = value


def amds(session=Session, providers=(PROVIDER, CPU), **settings):
    for name, value in {"takes": ("Relu",), "starts": True, "made": [], **settings}.items():
        setattr(Session, name, value)
    return types.SimpleNamespace(
        __version__="1.23.3",
        SessionOptions=SessionOptions,
        InferenceSession=session,
        get_available_providers=lambda: list(providers),
    )


X = np.array([-1.0, 0.5, 2.0], np.float32)


def test_the_real_runtime_without_the_provider_is_no_session():
    with pytest.raises(ExecutionError, match=rf"{PROVIDER} is not in this ONNX Runtime\n.*{onnxruntime.__version__}"):
        hybrid_session(model())
    with pytest.raises(ExecutionError, match="onnxruntime-directml"):
        hybrid_session(model(), [DML, CPU])
    # What it would do by itself is warn, and run on the CPU.
    with pytest.warns(UserWarning, match="not in available provider names"):
        assert onnxruntime.InferenceSession(model(), providers=[PROVIDER]).get_providers() == [CPU]


def test_the_real_runtime_says_where_nodes_run(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    for given in (model(), path, str(path)):
        session = hybrid_session(given, [CPU])
        assert session.label == "host" and session.counts == {CPU: 2}
        assert session.placement["r"] == (CPU, "Relu")
    (y,) = session(X)
    assert y[0] == 0 and y[2] == pytest.approx(0.9953, abs=1e-4)
    assert "2 nodes on CPUExecutionProvider (host)" in str(session) and "Erf" in session._repr_html_()
    with pytest.raises(ParameterError, match="inputs"):
        session(X, X)
    with pytest.raises(ExecutionError, match="makes no session"):
        hybrid_session(b"no model", [CPU])


def test_placement_is_asserted_after_the_session_is_made():
    session = hybrid_session(model(), [(PROVIDER, {"target": "X2"}), CPU], module=amds())
    assert session.label == "vendor-compiled" and session.counts == {PROVIDER: 1, CPU: 1}
    # What ran is not compared with anything.
    assert session(X)[0].shape == (3,) and session.label == "vendor-compiled"
    names, ((given), cpu), entries = Session.made[0]
    assert names == [PROVIDER, CPU] and cpu == {} and given["target"] == "X2"
    assert "session.disable_cpu_ep_fallback" not in entries
    folder = Path(given["cache_dir"])
    assert folder.is_dir()
    del session
    gc.collect()
    assert not folder.exists(), "the cache of a session that named none goes with it"
    hybrid_session(model(), [PROVIDER], module=amds(takes=("Relu", "Erf")))
    assert Session.made[0][2]["session.disable_cpu_ep_fallback"] == "1"
    with pytest.raises(PlacementError, match=rf"{PROVIDER} runs no node\n.*2 on CPU") as caught:
        hybrid_session(model(), module=amds(takes=()))
    assert len(caught.value.rows) == 2
    # DirectML has the iGPU where ONNX Runtime has it; it has to have work where it was asked for.
    hybrid_session(model(), module=amds(providers=(PROVIDER, DML, CPU)))
    assert Session.made[0][0] == [PROVIDER, DML, CPU]
    with pytest.raises(PlacementError, match=f"{DML} runs no node"):
        hybrid_session(model(), [PROVIDER, DML, CPU], module=amds(providers=(PROVIDER, DML, CPU)))
    with pytest.raises(ExecutionError, match="did not start"):
        hybrid_session(model(), module=amds(starts=False))


def test_an_older_runtime_is_known_by_the_providers_report(tmp_path):
    options = {"cache_dir": str(tmp_path / "cache"), "cache_key": "k"}
    session = hybrid_session(model(), [(PROVIDER, options), CPU], module=amds(Older))
    # A node without a name has that of its result.
    assert session.placement == {"r": (PROVIDER, "Relu"), "y": (CPU, "Erf")}
    assert (tmp_path / "cache/k" / REPORT).exists()


@pytest.mark.parametrize("report", [b"\xff\xfe", b"{", b"[1]", b'{"nodeStat": 3}'])
def test_a_report_that_cannot_be_read_says_nothing(report, tmp_path):
    class Broken(Older):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            (self.folder / REPORT).write_bytes(report)

    options = {"cache_dir": str(tmp_path), "cache_key": "k"}
    with pytest.raises(PlacementError, match="runs no node") as caught:
        hybrid_session(model(), [(PROVIDER, options), CPU], module=amds(Broken))
    assert caught.value.got == "nobody says where the nodes run"


def test_a_report_that_lay_in_the_cache_before_is_not_believed(tmp_path):
    class Silent(Session):
        get_provider_graph_assignment_info = property()

    options = {"cache_dir": str(tmp_path), "cache_key": "own"}
    hybrid_session(model(), [(PROVIDER, options), CPU], module=amds(Older))
    with pytest.raises(PlacementError, match="nobody says"):
        hybrid_session(model(), [(PROVIDER, options), CPU], module=amds(Silent))


INVENTED = {
    "hybrid_mode": "order of providers",
    "cpu_fallback": CPU,
    "enable_igpu": "Hybrid",
    "vulkan_compute": "vulkan",
    "oga_integration": "GenAI",
    "npu_config": "config_file",
    "hybrid_scheduling": "Hybrid",
    "device_id": "one NPU",
    "cacheDir": "cache_dir",
}


@pytest.mark.parametrize("name", INVENTED)
def test_options_that_nobody_has_name_the_real_way(name):
    with pytest.raises(ParameterError, match=rf"no option '{name}'[^$]*{INVENTED[name]}"):
        hybrid_session(model(), [(PROVIDER, {name: True}), CPU], module=amds())
    assert not Session.made


def test_other_wrong_settings_are_refused(tmp_path):
    config = tmp_path / "vaip_config.json"
    config.write_text("{}")
    good = hybrid_session(model(), [(PROVIDER, {"config_file": str(config), "log_level": 1}), CPU], module=amds())
    assert good.label == "vendor-compiled" and Session.made[0][1][0]["log_level"] == "1"
    for options, said in (
        ({"speed": 1}, OPTIONS[0]),
        ({"target": "X3"}, "X2 or X1"),
        ({"target": "X1"}, "xclbin"),
        ({"config_file": "nowhere.json"}, "a file"),
        ({"log_level": [1]}, "text or a number"),
    ):
        with pytest.raises(ParameterError, match=said):
            hybrid_session(model(), [(PROVIDER, options), CPU], module=amds())
    for providers in ([], ["RyzenAIExecutionProvider", CPU], [(CPU, {"enable_igpu": True})]):
        with pytest.raises(ParameterError, match="hybrid session"):
            hybrid_session(model(), providers, module=amds())
    for entry in ("hybrid_execution", "dynamic_load_balancing"):
        with pytest.raises(ParameterError, match="has no entry"):
            hybrid_session(model(), entries={entry: "true"}, module=amds())
