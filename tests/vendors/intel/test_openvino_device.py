"""OpenVINO's GPU as a device of jit: true reasons where it is not here, and its path run on OpenVINO's CPU plugin."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import registry
from nxjax.errors import ExecutionError, UnsupportedOpsError
from nxjax.vendors.intel import openvino_device as module
from nxjax.vendors.intel.openvino_device import OpenVinoGpuBackend

X = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
K = np.random.default_rng(1).standard_normal((3, 3, 3, 4), np.float32)


@pytest.fixture
def device():
    pytest.importorskip("openvino")
    return OpenVinoGpuBackend("CPU").devices()[0]


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    backend = OpenVinoGpuBackend()
    monkeypatch.setattr(module, "installed", lambda name: False)
    assert backend.available() == (False, "OpenVINO is not installed; pip install 'nxjax[openvino]'")
    monkeypatch.setattr(module, "installed", lambda name: True)
    monkeypatch.setattr(module.intel_compiler, "gpu_present", lambda: False)
    assert backend.available()[1].startswith("no Intel GPU on this machine")
    with pytest.raises(ExecutionError, match="no Intel GPU"):
        nx.devices("openvino-gpu")
    monkeypatch.setattr(module.intel_compiler, "gpu_present", lambda: True)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert "intel-opencl-icd" in backend.available()[1]
    (tmp_path / "intel.icd").write_text("libigdrcl.so")
    monkeypatch.setattr(module, "_version", lambda: "2026.4")
    assert backend.available() == (True, "OpenVINO 2026.4")
    assert backend.label == "hardware"
    assert str(backend.devices()[0]) == "openvino-gpu:0"


def test_the_best_gpu_is_taken(monkeypatch):
    order = [registry.get(n) for n in ("gpu", "vulkan", "openvino-gpu")]
    assert [b.priority for b in order] == sorted((b.priority for b in order), reverse=True)
    for b, here in zip(order, (False, True, True), strict=True):
        monkeypatch.setattr(type(b), "available", lambda self, here=here: (here, ""))
        monkeypatch.setattr(type(b), "listed", property(lambda self: True))
    registry._best.cache_clear()
    assert registry.for_device("gpu").name == "vulkan"
    monkeypatch.setattr(type(order[1]), "listed", property(lambda self: False))  # a rasteriser
    registry._best.cache_clear()
    assert registry.for_device("gpu").name == "openvino-gpu"
    registry._best.cache_clear()


def test_its_path_computes_what_jit_does(device):
    weights = jnp.asarray(K)

    def f(x):
        y = nx.lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return nx.nn.relu(y).mean((1, 2)), jnp.argmax(x.reshape(2, -1), 1)

    run = nx.jit(f, device=device)
    for _ in range(2):
        given, wanted = run(X), nx.jit(f)(X)
        np.testing.assert_allclose(given[0], wanted[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(given[1], wanted[1])
        assert given[1].dtype == wanted[1].dtype
    assert device.backend.label == "host"


def test_weights_may_be_arguments(device):
    w, x = X[0, 0], X[0, 1]
    np.testing.assert_allclose(nx.jit(lambda w, x: x @ w.T, device=device)(w, x), x @ w.T, rtol=1e-4, atol=1e-5)


def test_what_it_has_no_form_for_is_refused_with_its_line(device):
    with pytest.raises(UnsupportedOpsError, match=r"no NPU sorts by several keys\n      at test_openvino_device.py"):
        nx.jit(lambda x: nx.lax.sort((x, x), num_keys=2)[0] + 1, device=device)(X)
    assert device.backend.supports(nx.lax.sin_p, [nx.typeof(jnp.ones(3))], {})[0]
    assert not device.backend.supports(nx.lax.sort_p, [nx.typeof(jnp.ones(3))] * 2, {"dimension": 0, "num_keys": 2})[0]
