"""Intel's NPU as Linux's driver intel_vpu shows it in sysfs: how busy it is and its clock.

Files as in Documentation/ABI/testing/sysfs-driver-ivpu: the time that was spent in jobs (Linux 6.11), the clock (6.15,
in a folder of its own from 7.2 on, 0 while the NPU sleeps). There is no temperature and no power among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from nxjax.backends.sensors.reading import Rates, Reading, Roots, number

DRIVER: Final = "intel_vpu"
# The kernel asks not to read the busy time more often: reading it takes part in submitting jobs.
LEAST_SECONDS: Final = 1.0
_NONE: Final = "temperature: intel_vpu has no file for it; power: intel_vpu has no file for it"


@final
@dataclass(frozen=True)
class IvpuDevice:
    """An NPU that the driver shows."""

    name: str
    folder: Path


def devices(roots: Roots) -> list[IvpuDevice]:
    """The NPUs of Intel that Linux lists."""
    found: list[IvpuDevice] = []
    for entry in sorted((roots.sys / "class/accel").glob("accel*")):
        folder = entry / "device"
        if (folder / "driver").resolve().name == DRIVER:
            found.append(IvpuDevice("Intel NPU", folder))
    return found


def reading(device: IvpuDevice, rates: Rates) -> Reading:
    """What sysfs says; how busy it is takes two looks, a second or more apart."""
    reasons = [_NONE]
    busy = None
    counted = number(device.folder / "npu_busy_time_us")
    if counted is None:
        reasons.append("busy: no npu_busy_time_us (Linux 6.11)")
    else:
        rate = rates.per_second(f"{device.folder}/busy", counted * 1e-6, least=LEAST_SECONDS)
        if rate is None:
            reasons.append("busy: takes two readings, a second or more apart")
        else:
            busy = min(rate, 1.0)
    clock = number(device.folder / "freq/current_freq")
    if clock is None:
        clock = number(device.folder / "npu_current_frequency_mhz")
    if clock is None:
        reasons.append("clock: no current_freq (Linux 6.15)")
    elif clock == 0:
        reasons.append("clock: the NPU sleeps")
    parts: list[tuple[str, float, str]] = []
    for name, label, unit, scale in (
        ("freq/hw_max_freq", "highest clock", "MHz", 1.0),
        ("npu_max_frequency_mhz", "highest clock", "MHz", 1.0),
        ("npu_memory_utilization", "memory in use", "MiB", 2.0**-20),
    ):
        value = number(device.folder / name)
        if value is not None and all(label != known for known, _, _ in parts):
            parts.append((label, value * scale, unit))
    told = busy is not None or bool(clock)
    return Reading(
        busy=busy,
        megahertz=clock or None,
        source="intel_vpu sysfs" if told else "",
        why="; ".join(reasons),
        parts=tuple(parts),
    )
