"""The power settings of an NPU as an object, by the names of guides."""

import pytest

from nxjax.errors import ExecutionError, ParameterError
from nxjax.hardware import power
from tests.backends.sensors.trees import ANSWERS, Driver, roots, ryzen, sensor


@pytest.fixture
def driver():
    return Driver(dict(ANSWERS))


@pytest.fixture
def here(tmp_path, driver):
    ryzen(tmp_path)
    return roots(tmp_path, ioctl=driver)


def test_the_documents_optimizer_sets_real_modes(here, driver):
    optimizer = power.AdvancedNPUOptimizer(roots=here)
    assert (optimizer.turbo_enabled, optimizer.performance_profile) == (False, "balanced")
    optimizer.enable_turbo_mode()
    assert optimizer.turbo_enabled and optimizer.status()["power mode"] == "turbo"
    for profile, mode in (("power-save", 1), ("balanced", 2), ("performance", 3)):
        optimizer.set_performance_profile(profile)
        assert driver.mode == mode and not optimizer.turbo_enabled and optimizer.performance_profile == profile
    for workload, mode in power.WORKLOADS.items():
        assert optimizer.optimize_for_workload(workload) == mode == power.get(roots=here)
    for wrong in (lambda: optimizer.set_performance_profile("max"), lambda: optimizer.optimize_for_workload("games")):
        with pytest.raises(ParameterError, match="no such"):
            wrong()


def test_no_step_up_on_a_hot_npu(tmp_path):
    ryzen(tmp_path)
    driver = Driver({**ANSWERS, 4: sensor("Temperature", 84, "C", 0, 2)})
    optimizer = power.AdvancedNPUOptimizer(roots=roots(tmp_path, ioctl=driver))
    with pytest.raises(ExecutionError, match=r"too hot for turbo\n.*84\.0"):
        optimizer.enable_turbo_mode()
    assert not optimizer.turbo_enabled and not driver.told
    optimizer.set_performance_profile("power-save")
    optimizer.thermal_monitoring = False
    optimizer.enable_turbo_mode()
    assert driver.told == [1, 4]


def test_what_is_not_here_is_said(tmp_path):
    status = power.AdvancedNPUOptimizer(roots=roots(tmp_path)).status()
    assert status["power mode"].startswith("unavailable: ") and status["sensors"].startswith("unavailable: ")
