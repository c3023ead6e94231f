"""The processor and the graphics cards of this machine: temperature, power, load and clock.

Linux's files (hwmon, powercap, cpufreq, /proc/stat, each graphics driver's own), and NVIDIA's tool for its cards, whose
driver registers no monitor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nxjax.backends.sensors import hwmon
from nxjax.backends.sensors.reading import Rates, Reading, Roots, denied, figure, joined, number, text

CPU_MONITORS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
# Graphics driver -> whose it is.
GPU_DRIVERS: Final = {"amdgpu": "amd", "i915": "intel", "xe": "intel"}
_TWICE: Final = "takes two readings"
# Seconds between two calls of a program.
_TOOL_SECONDS: Final = 1.0
_NVIDIA: Final = "temperature.gpu,power.draw,utilization.gpu,clocks.sm,name"


def cpu(roots: Roots, rates: Rates) -> Reading:
    """The processor, all its packages together."""
    clocks = [number(p) for p in sorted((roots.sys / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))]
    told = [c for c in clocks if c is not None]
    busy = _load(roots, rates)
    parts = [
        hwmon.reading(roots, CPU_MONITORS, rates),
        powercap(roots, rates),
        Reading(busy=busy, source="/proc/stat") if busy is not None else Reading(why=f"busy: {_TWICE}"),
        Reading(megahertz=sum(told) / len(told) / 1e3, source="cpufreq") if told else Reading(why="clock: no cpufreq"),
    ]
    return joined(parts)


def powercap(roots: Roots, rates: Rates) -> Reading:
    """The power of the processor's packages by their energy counters (Intel's RAPL, which AMD has too)."""
    zones = [z for z in sorted((roots.sys / "class/powercap").glob("intel-rapl:*")) if z.name.count(":") == 1]
    if not zones:
        return Reading(why="power: no energy counters (powercap)")
    watts: list[float] = []
    for zone in zones:
        if not (text(zone / "name") or "").startswith("package"):
            continue
        energy = number(zone / "energy_uj")
        if energy is None:
            unread = denied(zone / "energy_uj")
            return Reading(why=f"power: {zone.name}/energy_uj {'is for the superuser' if unread else 'has no value'}")
        wraps = number(zone / "max_energy_range_uj") or 0.0
        rate = rates.per_second(f"{zone}/energy", energy, wraps=wraps)
        if rate is None:
            return Reading(why=f"power: {_TWICE}")
        watts.append(rate * 1e-6)
    return Reading(watts=sum(watts), source="powercap") if watts else Reading(why="power: powercap has no package")


def _load(roots: Roots, rates: Rates) -> float | None:
    """The part of all processors' time that was not idle since the last look."""
    line = (text(roots.proc / "stat") or "").split("\n")[0].split()
    if len(line) < 6 or line[0] != "cpu":
        return None
    # user nice system idle iowait irq softirq steal; what follows is part of the first two.
    ticks = [float(t) for t in line[1:9]]
    idle = ticks[3] + ticks[4]
    spent = rates.per_second("cpu/all", sum(ticks))
    still = rates.per_second("cpu/idle", idle)
    return None if not spent or still is None else min(max(1 - still / spent, 0.0), 1.0)


def cards(roots: Roots) -> list[tuple[Path, str]]:
    """Each graphics card's device folder and driver, in Linux's order."""
    found: list[tuple[Path, str]] = []
    for card in sorted((roots.sys / "class/drm").glob("card[0-9]*")):
        driver = (card / "device/driver").resolve().name
        if "-" not in card.name and driver in GPU_DRIVERS:
            found.append((card, driver))
    return found


def gpu(roots: Roots, rates: Rates, vendor: str | None = None) -> Reading:
    """The first graphics card (of ``vendor``: "amd", "intel" or "nvidia")."""
    for card, driver in cards(roots):
        if vendor in (None, GPU_DRIVERS[driver]):
            return _card(roots, rates, card, driver)
    if vendor in (None, "nvidia"):
        return rates.held("nvidia-smi", _TOOL_SECONDS, lambda: nvidia(roots))
    return Reading(why=f"no GPU of {vendor} on this machine")


def _card(roots: Roots, rates: Rates, card: Path, driver: str) -> Reading:
    parts = [hwmon.reading(roots, (driver,), rates, card / "device")]
    busy = number(card / "device/gpu_busy_percent")
    if busy is not None:
        parts.append(Reading(busy=busy / 100, source=f"{driver} sysfs"))
    for name in ("gt_act_freq_mhz", "device/tile0/gt0/freq0/act_freq"):
        clock = number(card / name)
        if clock:
            parts.append(Reading(megahertz=clock, source=f"{driver} sysfs"))
    return joined(parts)


def nvidia(roots: Roots) -> Reading:
    """What nvidia-smi says of the first card of NVIDIA."""
    tool = roots.which("nvidia-smi")
    if tool is None:
        return Reading(why="no GPU with a driver that shows sensors, and nvidia-smi is not installed")
    try:
        status, output = roots.run([tool, f"--query-gpu={_NVIDIA}", "--format=csv,noheader,nounits", "--id=0"], 30.0)
    except OSError as error:
        return Reading(why=f"nvidia-smi: {error}")
    line = output.strip().split("\n")[0]
    cells = [c.strip() for c in line.split(",")]
    if status or len(cells) < 5:
        return Reading(why=f"nvidia-smi ended with status {status}: {line[:200]}")
    celsius, watts, busy, clock = map(figure, cells[:4])
    return Reading(
        celsius=celsius,
        watts=watts,
        busy=None if busy is None else busy / 100,
        megahertz=clock,
        source="nvidia-smi",
    )
