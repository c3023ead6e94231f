"""The thermal optimizer: what it does about heat, what came of it, and how chips come back."""

import pytest

from nxjax.backends.sensors import Reading
from nxjax.errors import ExecutionError, ParameterError
from nxjax.vendors.amd import power
from nxjax.vendors.amd.thermal import ThermalAwareOptimizer, ThermalMonitor


class Chip:
    def __init__(self, celsius):
        self.celsius = celsius

    def __call__(self):
        return Reading(celsius=self.celsius, source="test") if self.celsius else Reading(why="no sensor")


@pytest.fixture
def modes(monkeypatch):
    """The mode of an NPU that may be set."""
    told = ["turbo"]
    monkeypatch.setattr(power, "get", lambda device="": told[-1])
    monkeypatch.setattr(power, "lower", lambda device="": told.append("performance") or "performance")
    monkeypatch.setattr(power, "set", lambda mode, device="": told.append(mode))
    return told


def test_heat_lowers_the_mode_moves_work_and_is_undone(modes):
    npu, gpu, cpu = Chip(60.0), Chip(50.0), Chip(55.0)
    optimizer = ThermalAwareOptimizer(read={"npu": npu, "gpu": gpu, "cpu": cpu})
    assert optimizer.monitor_and_adjust() == [] and optimizer.usable() == ["npu", "gpu", "cpu"]
    npu.celsius = 82.0
    assert [a.strategy for a in optimizer.monitor_and_adjust()] == ["lower-power", "prefer-others"]
    assert modes == ["turbo", "performance"] and optimizer.usable() == ["gpu", "cpu", "npu"]
    assert [said for _, said in optimizer.log] == ["power mode performance", "done"]
    npu.celsius = 88.0
    assert [a.strategy for a in optimizer.monitor_and_adjust()] == ["take-out"]
    assert optimizer.usable() == ["gpu", "cpu"] and optimizer.states["npu"] == "out"
    npu.celsius = 70.0
    assert [a.strategy for a in optimizer.monitor_and_adjust()] == ["readmit", "restore-power"]
    assert modes[-1] == "turbo" and optimizer.usable()[0] == "npu"
    cpu.celsius = 85.0
    optimizer.monitor_and_adjust()
    assert ("the system has this chip's clocks") in [said for _, said in optimizer.log]


def test_a_mode_that_cannot_be_set_does_not_end_the_watch(monkeypatch):
    def refuse(device=""):
        raise ExecutionError("power: unavailable", got="no NPU")

    monkeypatch.setattr(power, "get", refuse)
    optimizer = ThermalAwareOptimizer({"warning": 50}, {"npu": Chip(60.0), "cpu": Chip(None)})
    seen = []
    optimizer.cooling_strategies["prefer-others"] = lambda action: seen.append(action.unit)
    optimizer.monitor_and_adjust()
    assert optimizer.log[0][1] == "not done: power: unavailable (no NPU)" and seen == ["npu"]
    assert optimizer.readings["cpu"].why == "no sensor"


def test_thresholds_are_the_documents_and_can_be_set():
    optimizer = ThermalAwareOptimizer(read={})
    limits = optimizer.thermal_thresholds
    assert (limits["npu_max"], limits["cpu_max"], limits["warning"]) == (85.0, 90.0, 80.0)
    for wrong in ({"tpu_max": 3}, {"npu_max": 10}):
        with pytest.raises(ParameterError, match="thermal policy"):
            ThermalAwareOptimizer(wrong)
    here = ThermalMonitor().get_state()
    assert all(r.celsius is not None or r.why for r in here.values())
