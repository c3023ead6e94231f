"""Power modes: told to a driver that answers like AMD's, refused with the reason, and brought back."""

import errno
import gc
import json

import pytest

from nxjax.__main__ import main
from nxjax.errors import ExecutionError, ParameterError
from nxjax.vendors.amd import power
from tests.backends.sensors.test_ways import REPORT, Tool, installed
from tests.backends.sensors.trees import ANSWERS, Driver, roots, ryzen
from tests.vendors.amd.fake_pyxrt import machine
from tests.vendors.amd.test_xrt import A, B, adding, opened

BDF = "0000:c5:00.1"


@pytest.fixture
def driver():
    return Driver(dict(ANSWERS))


@pytest.fixture
def here(tmp_path, driver):
    ryzen(tmp_path)
    return roots(tmp_path, ioctl=driver)


def test_modes_are_told_to_the_driver_and_read_back(here, driver):
    assert power.get(roots=here) == "default"
    for mode in power.MODES:
        power.set(mode, BDF.upper(), roots=here)
        assert power.get(BDF, roots=here) == mode
    assert driver.told == [0, 1, 2, 3, 4]
    with pytest.raises(ParameterError, match="no such mode"):
        power.set("fastest", roots=here)
    with pytest.raises(ParameterError, match="no NPU at this address"):
        power.set("turbo", "0000:00:00.0", roots=here)


def test_the_former_mode_comes_back_whatever_happens(here, driver):
    power.set("balanced", roots=here)
    with power.using("turbo", roots=here) as former:
        assert (former, power.get(roots=here)) == ("balanced", "turbo")
    with pytest.raises(ZeroDivisionError), power.using("powersaver", roots=here):
        raise ZeroDivisionError
    with power.using("balanced", roots=here):
        pass
    assert driver.told == [2, 4, 2, 1, 2]
    with power.using("turbo", roots=here):
        power.set("performance", roots=here)
    assert power.get(roots=here) == "balanced"


def test_turbo_comes_before_the_npu_is_opened(here, driver):
    gc.collect()
    fake = machine()
    with opened(fake) as npu:
        npu.open(adding())(A, B)
        with pytest.raises(ExecutionError, match=r"before the NPU is opened\n.*1 hardware contexts of this process"):
            power.set("turbo", roots=here)
        power.set("performance", roots=here)
        assert driver.told == [3]
    power.set("turbo", roots=here)
    driver.turbo = False
    power.set("default", roots=here)
    # Other processes' contexts are for the driver to know.
    with pytest.raises(ExecutionError, match=r"set before the NPU is opened\n.*processes 4321"):
        power.set("turbo", roots=here)


def test_without_privilege_the_command_is_named(here, driver):
    for code in (errno.EACCES, errno.EPERM):
        driver.refuses = code
        with pytest.raises(ExecutionError, match=rf"needs privilege[^$]*sudo xrt-smi configure -d {BDF} --pmode turbo"):
            power.set("turbo", roots=here)
    driver.refuses = errno.EIO
    with pytest.raises(ExecutionError, match="cannot be set"):
        power.set("balanced", roots=here)
    driver.refuses = 0
    driver.answers = {}
    stuck = Driver({}, mode=1)
    stuck_roots = power.Roots(here.sys, here.dev, here.proc, ioctl=lambda h, r, a: r == 0xC0106448 or stuck(h, r, a))
    with pytest.raises(ExecutionError, match="does not hold"):
        power.set("balanced", roots=stuck_roots)


def test_the_tool_is_the_way_where_the_driver_is_none(tmp_path, here, driver):
    tool = Tool(json.dumps(REPORT))
    elsewhere = roots(tmp_path / "empty", **installed(tool))
    assert power.get(roots=elsewhere) == "turbo"
    power.set("turbo", roots=elsewhere)
    assert tool.calls[1][1:] == ["configure", "--pmode", "turbo"]
    with pytest.raises(ExecutionError, match="does not hold"):
        power.set("balanced", roots=elsewhere)
    refused = Tool(status=1, output="ERROR: DRM_IOCTL_AMDXDNA_SET_STATE IOCTL failed (err=13): Permission denied\n")
    with pytest.raises(ExecutionError, match=r"needs privilege[^$]*Permission denied"):
        power.set("balanced", roots=roots(tmp_path / "empty", **installed(refused)))
    # An older driver that does not know the question.
    driver.refuses = errno.EOPNOTSUPP
    driver.mode = 4
    both = roots(tmp_path, ioctl=driver, **installed(tool))
    power.set("turbo", roots=both)
    assert tool.calls[-1][1:] == ["configure", "-d", BDF, "--pmode", "turbo"]


def test_a_step_down_ends_at_the_lowest(here):
    for mode in ("turbo", "default"):
        power.set(mode, roots=here)
        steps = [power.lower(roots=here) for _ in range(4)]
        assert steps[-1] == "powersaver" and len(steps) - steps.count("powersaver") == (2 if mode == "turbo" else 0)


def test_a_kind_of_work_has_a_mode():
    assert set(map(power.for_workload, power.WORKLOADS)) <= set(power.MODES)
    with pytest.raises(ParameterError, match="no such workload"):
        power.for_workload("games")


def test_nothing_is_pretended_where_there_is_no_npu(tmp_path):
    empty = roots(tmp_path)
    for attempt in (lambda: power.get(roots=empty), lambda: power.set("turbo", roots=empty)):
        with pytest.raises(ExecutionError, match=r"power: unavailable\n.*xrt-smi is not installed"):
            attempt()


def test_the_command_line_says_what_holds_or_why_not(capsys, monkeypatch, here):
    assert main(["sensors", "--over", "0"]) == 0
    assert capsys.readouterr().out.startswith("chip  temperature")
    set_mode = power.set
    monkeypatch.setattr(power, "set", lambda mode, device: set_mode(mode, device, roots=here))
    get_mode = power.get
    monkeypatch.setattr(power, "get", lambda device, **_: get_mode(device, roots=here))
    assert main(["power", "turbo"]) == 0 and capsys.readouterr().out == "turbo\n"
    assert main(["power", "fast"]) == 1 and "no such mode" in capsys.readouterr().err
