"""Devices by type and number: what is here works wherever a device goes, what is not says why."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.runtime.device import Device, DeviceType


def test_types():
    assert [t.name for t in DeviceType] == ["CPU", "GPU", "TPU", "NPU", "IPU"]
    assert DeviceType("NPU") is DeviceType("npu") is DeviceType.NPU
    assert Device("cpu") == Device(DeviceType.CPU, 0)
    assert len({Device("cpu"), Device(DeviceType.CPU, 0), Device("cpu", 1)}) == 2
    assert nx.Device is Device
    assert nx.DeviceType is DeviceType


def test_the_cpu_is_here_and_goes_where_devices_go():
    cpu = Device(DeviceType.CPU, 0)
    assert cpu.is_available()
    assert cpu.unavailable_reason == ""
    assert cpu.device in nx.devices()
    assert repr(cpu) == "cpu:0"
    assert nx.device_put(np.ones(2), cpu).device == cpu.device
    placed = nx.device_put({"a": np.ones(2), "b": 1.0}, cpu)
    assert placed["b"].device == cpu.device
    assert nx.jit(lambda x: x + 1, device=cpu)(1.0) == 2.0


@pytest.mark.parametrize("kind", ["GPU", "TPU", "IPU"])
def test_what_is_not_here_says_why(kind):
    if any(d.platform == kind.lower() for d in nx.devices()):
        pytest.skip("this machine has one")
    device = Device(kind)
    assert not device.is_available()
    assert device.unavailable_reason
    with pytest.raises(nx.errors.ExecutionError, match=f"{kind.lower()}:0 is not available"):
        nx.device_put(1.0, device)
    with pytest.raises(nx.errors.ExecutionError, match="is not available"):
        nx.jit(lambda x: x, device=device)(1.0)


def test_an_npu_that_is_not_here_says_what_was_looked_for():
    from nxjax.hardware.npu import is_npu_available, npu_unavailable_reason

    if is_npu_available():
        pytest.skip("this machine has one")
    assert npu_unavailable_reason() in Device(DeviceType.NPU, 0).unavailable_reason


def test_numbers_that_are_not_there():
    assert not Device("cpu", 99).is_available()
    assert "counted from 0" in Device("cpu", 99).unavailable_reason


@pytest.mark.parametrize(
    ("args", "says"), [(("fpga",), "no such type"), (("cpu", -1), "index"), (("cpu", True), "index")]
)
def test_refused(args, says):
    with pytest.raises(nx.errors.ParameterError, match=says):
        Device(*args)


def test_tensor_is_array():
    t = nx.Tensor([[1, 2], [3, 4]])
    assert isinstance(t, nx.Array)
    assert t.dtype == np.int32
    assert nx.Tensor(t, dtype="float32").dtype == np.float32
    assert isinstance(nx.ones(2), nx.Tensor)
    assert not isinstance(np.ones(2), nx.Tensor)
    assert issubclass(type(t), nx.Tensor)
    seen = []
    nx.jit(lambda x: seen.append(isinstance(x, nx.Tensor)) or x)(1.0)
    assert seen == [True]
