"""The TPU backend object: compile-only for a slice, an Edge TPU's integers on the host, and what is refused."""

import json

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.tpu import compiler
from nxjax.errors import ExecutionError, ParameterError
from nxjax.hardware.tpu import TPUBackend, is_tpu_available, tpu_unavailable_reason

needs_compiler = pytest.mark.skipif(not compiler.available()[0], reason=compiler.available()[1])
X = nx.random.normal(nx.random.key(0), (8, 64))
W = nx.random.normal(nx.random.key(1), (64, 32))


def layer(x, w):
    return nx.nn.relu(x @ w)


@pytest.fixture
def slice_():
    with TPUBackend(compile_only=True, topology="v5e:2x2") as tpu:
        yield tpu


def test_availability_comes_with_a_reason():
    assert is_tpu_available() == (tpu_unavailable_reason() == "")
    assert is_tpu_available("edge") == (tpu_unavailable_reason("edge") == "")
    with pytest.raises(ParameterError, match="'cloud', 'edge'"):
        is_tpu_available("desk")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "desk"}, "kind"),
        ({"topology": "v9"}, "no such generation"),
        ({"topology": "v4:3"}, "no such topology"),
    ],
)
def test_settings_that_are_none(settings, says):
    with pytest.raises(ParameterError, match=says):
        TPUBackend(compile_only=True, **settings)
    with pytest.raises(ParameterError, match="from 0 to 3"):
        TPUBackend(device=4, compile_only=True, topology="v5e:2x2")


@needs_compiler
def test_a_slice_that_is_not_here_is_compiled_for(slice_):
    assert (slice_.label, slice_.target, slice_.get_device_count()) == ("vendor-compiled", "tpu-v5e:2x2", 4)
    info = slice_.get_device_info(3)
    assert info["name"] == "Google TPU v5e" and info["peak_flops"] == 197e12 and info["source"]
    assert slice_.memory_stats()["accounting"] == "nothing has been compiled"
    artifact = slice_.compile(layer, X, W)
    assert artifact.label == "vendor-compiled" and artifact.target == "tpu-v5e:2x2"
    stats = slice_.memory_stats()
    assert stats["arguments"] == artifact.memory.arguments >= X.nbytes + W.nbytes
    assert stats["accounting"] == "the compiler, for one program"
    for runs in (lambda: slice_.run(layer, X, W), lambda: slice_.matmul(X, W), lambda: slice_.to_device(X)):
        with pytest.raises(ExecutionError, match="compiles only"):
            runs()


@needs_compiler
def test_a_slices_profile_is_the_compilers_estimate(slice_, tmp_path):
    path = slice_.profile(layer, X, W, path=tmp_path / "profile.json")
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"label": "vendor-compiled", "target": "tpu-v5e:2x2"}
    events = trace["traceEvents"]
    assert events and all(e["ph"] == "X" and e["args"]["basis"] == "the compiler's static estimate" for e in events)
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    assert any("test_tpu.py:" in e["args"]["at"] for e in events)


def test_an_edge_tpu_computes_integers_and_says_where():
    tpu = TPUBackend(kind="edge")
    with pytest.raises(ExecutionError, match="initialize"):
        tpu.run(layer, X, W)
    if not tpu.initialize():
        pytest.skip(tpu.error)
    quantized = nx.quantize(lambda x: layer(x, W), "int8", calibrate=[(X,)])
    y = tpu.run(quantized, X)
    assert y.shape == (8, 32) and float(abs(y - layer(X, W)).max()) < 0.1 * float(abs(layer(X, W)).max())
    assert tpu.last_run.label == ("hardware" if is_tpu_available("edge") else "host")
    assert tpu.last_artifact.target == "edgetpu" and tpu.memory_stats()["accounting"]
    tpu.finalize()
    with pytest.raises(ExecutionError, match="initialize"):
        tpu.to_host(y)


def test_an_edge_tpus_profile_is_measured(tmp_path):
    with TPUBackend(kind="edge") as tpu:
        quantized = nx.quantize(lambda x: layer(x, W), "int8", calibrate=[(X,)])
        trace = json.loads(tpu.profile(quantized, X, path=tmp_path / "edge.json").read_text())
        assert [e["name"].split()[0] for e in trace["traceEvents"]] == ["compile", "run", "to"]
        assert all(e["dur"] > 0 and e["args"]["basis"] == "measured" for e in trace["traceEvents"])
        assert tpu.memory_stats()["to host"] == 8 * 32 * 4


def test_transfers_are_counted():
    with TPUBackend(kind="edge") as tpu:
        moved = tpu.to_device({"x": np.ones((2, 3), np.float32)})
        assert tpu.to_host(moved)["x"].tolist() == [[1, 1, 1], [1, 1, 1]]
        assert (tpu.memory_stats()["to device"], tpu.memory_stats()["to host"]) == (24, 24)
