"""One chip's sensors through whichever way leads there; nothing is made up where none does."""

import errno
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.sensors import SensorSampler, read, xrt_smi
from nxjax.backends.sensors.reading import joined
from nxjax.errors import InvalidFileError, ParameterError
from tests.backends.sensors.trees import ANSWERS, Clock, Driver, linked, roots, ryzen, written

REPORT = {
    "schema_version": {"schema": "JSON"},
    "devices": [
        {
            "device_id": "0000:c5:00.1",
            "platforms": [
                {
                    "static_region": {"name": "NPU Phoenix", "total_columns": "5"},
                    "status": {"power_mode": "Turbo"},
                    "electrical": {"power_consumption_watts": "1.234"},
                    "thermal": {"temp_C": "62"},
                }
            ],
        }
    ],
}


class Tool:
    """xrt-smi: writes a report, or fails; remembers what it was called with."""

    def __init__(self, content="", status=0, output="", knows_format=True):
        self.content, self.status, self.output, self.knows_format = content, status, output, knows_format
        self.calls = []

    def __call__(self, command, seconds):
        self.calls.append(list(command))
        refused = "-f" in command and not self.knows_format
        if self.content and not refused and "-o" in command:
            with open(command[command.index("-o") + 1], "x") as file:
                file.write(self.content)
        return (1, "ERROR: unrecognised option '-f'") if refused else (self.status, self.output)


def installed(tool):
    return {"which": lambda name: "/usr/bin/xrt-smi" if name == "xrt-smi" else None, "run": tool}


def test_an_empty_machine_has_no_figures_and_says_why(tmp_path):
    for kind in ("npu", "cpu", "gpu"):
        reading = read(kind, roots=roots(tmp_path), over=1.0)
        assert not reading.available and reading.why and str(reading).startswith("unavailable: ")
        assert set(reading.shown().values()) == {"unavailable"}
    assert "amdxdna" in read("npu", "amd", roots(tmp_path)).why and "intel_vpu" in read("npu", "intel").why
    for wrong in (("tpu", None), ("cpu", "amd"), ("npu", "nvidia")):
        with pytest.raises(ParameterError, match="sensors"):
            read(*wrong)


def test_amd_hwmon_comes_before_the_driver_and_the_driver_before_the_tool(tmp_path):
    ryzen(tmp_path)
    tool = Tool(json.dumps(REPORT))
    driver = Driver(ANSWERS)
    here = roots(tmp_path, ioctl=driver, **installed(tool))
    reading = read("npu", roots=here)
    assert (reading.celsius, reading.source) == (57.0, "amdxdna ioctl") and not tool.calls
    monitor = "sys/class/hwmon/hwmon3"
    linked(tmp_path, f"{monitor}/device", "sys/devices/pci0000:00/0000:c5:00.1")
    files = {"name": "amdxdna", "temp1_input": 61000, "temp1_label": "NPU_temperature"}
    files |= {"power1_input": 2500000, "power1_label": "NPU_power"}
    written(tmp_path, {f"{monitor}/{name}": value for name, value in files.items()})
    reading = read("npu", roots=here)
    assert (reading.celsius, reading.watts, reading.busy, reading.megahertz) == (61.0, 2.5, 0.4, 1600.0)
    assert reading.source == "hwmon amdxdna, amdxdna ioctl" and reading.why == "" and not tool.calls


def test_the_tool_is_asked_where_the_driver_is_silent(tmp_path):
    ryzen(tmp_path)
    silent = Driver({3: errno.EACCES, 4: errno.EACCES})
    for knows in (True, False):
        tool = Tool(json.dumps(REPORT), knows_format=knows)
        reading = read("npu", roots=roots(tmp_path, ioctl=silent, **installed(tool)))
        assert (reading.celsius, reading.watts, reading.source) == (62.0, 1.234, "xrt-smi examine")
        assert reading.busy is None and "permission denied" in reading.why
        command = tool.calls[0]
        assert command[1:6] == ["examine", "-d", "0000:c5:00.1", "-r", "platform"]
        assert command[6:9] == ["-f", "JSON", "-o"] and len(tool.calls) == 2 - knows
    # A program is not run at every look.
    clock, tool = Clock(), Tool(json.dumps(REPORT))
    watch = SensorSampler("npu", "amd", roots(tmp_path, ioctl=silent, clock=clock, **installed(tool)))
    assert watch() == watch() and len(tool.calls) == 1
    clock.now += 6
    assert watch().celsius == 62.0 and len(tool.calls) == 2
    failing = Tool(status=1, output="noise\nERROR: No such device with BDF\n")
    reading = read("npu", roots=roots(tmp_path, ioctl=silent, **installed(failing)))
    assert not reading.available and "No such device with BDF" in reading.why and "hwmon" in reading.why


def test_reports_without_measurements_have_no_figures():
    bare = {"devices": [{"platforms": [{"status": {"power_mode": "not supported"}, "electrical": {"msg": "none"}}]}]}
    absent = {"devices": [{"platforms": [{"electrical": {"power_consumption_watts": "N/A"}}]}]}
    for report in ({}, {"devices": ""}, {"devices": [{"platforms": ""}]}, bare, absent):
        reading = xrt_smi.reading(report)
        assert not reading.available and "temperature" in reading.why and reading.source == ""
        assert xrt_smi.power_mode(report) is None
    assert xrt_smi.power_mode(REPORT) == "turbo"
    for damaged in ("{", "[]"):
        with pytest.raises(InvalidFileError, match="xrt-smi"):
            xrt_smi.parsed(damaged)


@pytest.mark.parametrize("fresh", [True, False])
def test_intel_npus_are_busy_over_a_second(tmp_path, fresh):
    folder = "sys/devices/pci0000:00/0000:00:0b.0"
    linked(tmp_path, f"{folder}/driver", "sys/bus/pci/drivers/intel_vpu")
    linked(tmp_path, "sys/class/accel/accel0/device", folder)
    written(tmp_path, {f"{folder}/npu_busy_time_us": 1_000_000})
    clock = Clock()
    watch = SensorSampler("npu", "intel", roots(tmp_path, clock=clock))
    first = watch()
    assert not first.available and "busy: takes two readings" in first.why and "6.15" in first.why
    clock.now += 0.5
    written(tmp_path, {f"{folder}/npu_busy_time_us": 1_400_000})
    assert watch().busy is None
    clock.now += 1.5
    written(tmp_path, {f"{folder}/npu_busy_time_us": 2_500_000})
    written(tmp_path, {f"{folder}/{'freq/current_freq' if fresh else 'npu_current_frequency_mhz'}": 1400})
    reading = watch()
    assert reading.busy == pytest.approx(0.75) and reading.megahertz == 1400
    clock.now += 0.1
    written(tmp_path, {f"{folder}/npu_busy_time_us": 2_500_001})
    assert watch().busy == pytest.approx(0.75), "not asked again within a second"
    written(tmp_path, {f"{folder}/{'freq/current_freq' if fresh else 'npu_current_frequency_mhz'}": 0})
    assert watch().megahertz is None and "sleeps" in watch().why


def test_the_processor_by_monitors_and_counters(tmp_path):
    zone = "sys/class/powercap/intel-rapl:0"
    monitor = "sys/class/hwmon/hwmon1"
    written(
        tmp_path,
        {
            f"{monitor}/name": "coretemp",
            f"{monitor}/temp1_input": 71000,
            f"{monitor}/temp1_label": "Package id 0",
            f"{monitor}/temp2_input": 74000,
            f"{monitor}/temp2_label": "Core 0",
            f"{zone}/name": "package-0",
            f"{zone}/energy_uj": 900,
            f"{zone}/max_energy_range_uj": 1000,
            "sys/class/powercap/intel-rapl:0:0/name": "core",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": 3_000_000,
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": 1_000_000,
            "proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0",
        },
    )
    clock = Clock()
    watch = SensorSampler("cpu", roots=roots(tmp_path, clock=clock))
    first = watch()
    assert (first.celsius, first.megahertz, first.watts, first.busy) == (71.0, 2000.0, None, None)
    assert "power: takes two readings" in first.why and ("Core 0", 74.0, "°C") in first.parts
    clock.now += 2.0
    # The energy counter starts again from nothing after 1000.
    written(tmp_path, {f"{zone}/energy_uj": 300, "proc/stat": "cpu  150 0 150 750 150 0 0 0 0 0"})
    second = watch()
    assert second.watts == pytest.approx(200e-6) and second.busy == pytest.approx(0.5) and second.why == ""
    (tmp_path / f"{zone}/energy_uj").unlink()
    assert "power: intel-rapl:0/energy_uj has no value" in watch().why


def test_several_packages_are_as_hot_as_the_hottest_and_faults_are_no_figures(tmp_path):
    for package, core in ((0, 64000), (1, 69000)):
        monitor = f"sys/class/hwmon/hwmon{package}"
        files = {"name": "coretemp", "temp1_input": core - 4000, "temp1_label": f"Package id {package}"}
        files |= {"temp2_input": core, "temp2_label": "Core 0"}
        written(tmp_path, {f"{monitor}/{name}": value for name, value in files.items()})
    assert read("cpu", roots=roots(tmp_path)).celsius == 65.0
    written(tmp_path, {"sys/class/hwmon/hwmon1/temp1_fault": 1})
    assert read("cpu", roots=roots(tmp_path)).celsius == 60.0
    for nothing in ("", "nan", "N/A", "-inf"):
        written(tmp_path, {f"sys/class/hwmon/hwmon0/temp{i}_input": nothing for i in (1, 2)})
        assert read("cpu", roots=roots(tmp_path)).celsius == 69.0


KEYS = ["devices", "platforms", "thermal", "temp_C", "electrical", "power_consumption_watts", "status"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.sampled_from(["N/A", "41", "nan"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(JSON, JSON)
def test_whatever_a_report_holds_a_figure_is_a_number(devices, platform):
    for report in ({"devices": devices}, {"devices": [{"platforms": [platform]}]}):
        reading = xrt_smi.reading(report)
        assert reading.available or reading.why
        assert all(v is None or np.isfinite(v) for v in (reading.celsius, reading.watts))
        xrt_smi.power_mode(report)


def test_amd_processors_control_value_is_not_their_temperature(tmp_path):
    monitor = "sys/class/hwmon/hwmon0"
    written(tmp_path, {f"{monitor}/name": "k10temp", f"{monitor}/temp1_input": 90000, f"{monitor}/temp1_label": "Tctl"})
    assert read("cpu", roots=roots(tmp_path)).celsius == 90.0
    written(tmp_path, {f"{monitor}/temp3_input": 66500, f"{monitor}/temp3_label": "Tccd1"})
    assert read("cpu", roots=roots(tmp_path)).celsius == 66.5
    written(tmp_path, {f"{monitor}/temp2_input": 63000, f"{monitor}/temp2_label": "Tdie"})
    assert read("cpu", roots=roots(tmp_path)).celsius == 63.0


def test_graphics_cards_by_their_drivers(tmp_path):
    card = "sys/devices/pci0000:00/0000:03:00.0"
    linked(tmp_path, f"{card}/driver", "sys/bus/pci/drivers/amdgpu")
    linked(tmp_path, "sys/class/drm/card1/device", card)
    linked(tmp_path, "sys/class/hwmon/hwmon2/device", card)
    monitor = "sys/class/hwmon/hwmon2"
    written(
        tmp_path,
        {
            f"{monitor}/name": "amdgpu",
            f"{monitor}/temp1_input": 55000,
            f"{monitor}/temp1_label": "edge",
            f"{monitor}/power1_average": 30_000_000,
            f"{monitor}/freq1_input": 1_700_000_000,
            f"{card}/gpu_busy_percent": 12,
        },
    )
    reading = read("gpu", roots=roots(tmp_path))
    assert (reading.celsius, reading.watts, reading.busy, reading.megahertz) == (55.0, 30.0, 0.12, 1700.0)
    assert read("gpu", "amd", roots(tmp_path)).celsius == 55.0
    assert not read("gpu", "intel", roots(tmp_path)).available
    card = "sys/devices/pci0000:00/0000:00:02.0"
    linked(tmp_path, f"{card}/driver", "sys/bus/pci/drivers/i915")
    linked(tmp_path, "sys/class/drm/card2/device", card)
    linked(tmp_path, "sys/class/hwmon/hwmon4/device", card)
    written(tmp_path, {"sys/class/hwmon/hwmon4/name": "i915", "sys/class/hwmon/hwmon4/energy1_input": 5_000_000})
    written(tmp_path, {"sys/class/drm/card2/gt_act_freq_mhz": 1300})
    clock = Clock()
    watch = SensorSampler("gpu", "intel", roots(tmp_path, clock=clock))
    assert watch().watts is None
    clock.now += 2.0
    written(tmp_path, {"sys/class/hwmon/hwmon4/energy1_input": 25_000_000})
    reading = watch()
    assert (reading.watts, reading.megahertz, reading.celsius) == (10.0, 1300.0, None)
    assert "temperature, busy: no sensor tells" in reading.why


def test_nvidias_cards_by_their_tool(tmp_path):
    def machine(output, status=0):
        which = {"which": lambda name: "/usr/bin/nvidia-smi" if name == "nvidia-smi" else None}
        return roots(tmp_path, run=lambda command, seconds: (status, output), **which)

    reading = read("gpu", "nvidia", machine("41, 76.25, 3, 1980, NVIDIA H200\n"))
    assert (reading.celsius, reading.watts, reading.busy, reading.megahertz) == (41.0, 76.25, 0.03, 1980.0)
    partial = read("gpu", roots=machine("41, [N/A], [N/A], 1980, NVIDIA H200 MIG\n"))
    assert partial.watts is None and partial.busy is None and "power, busy: no sensor tells" in partial.why
    broken = read("gpu", roots=machine("No devices were found\n", 6))
    assert not broken.available and "No devices were found" in broken.why


def test_joined_takes_each_figure_from_the_first_that_has_it():
    from nxjax.backends.sensors import Reading

    a, b = Reading(celsius=1.0, source="a", why="x"), Reading(celsius=2.0, watts=3.0, source="b", why="y")
    made = joined([a, b, Reading(why="x")])
    assert (made.celsius, made.watts, made.source, made.why) == (1.0, 3.0, "a, b", "x; y")
