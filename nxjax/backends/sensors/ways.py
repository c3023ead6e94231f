"""`read`: one chip's sensors, whichever of the ways there are leads to them; `SensorSampler`: again and again.

Nothing is estimated: a figure is what a sensor said, or None with the reason.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Final, Literal, final

from nxjax.backends.sensors import amdxdna, host, hwmon, ivpu, xrt_smi
from nxjax.backends.sensors.reading import Rates, Reading, Roots, complete, joined
from nxjax.errors import InvalidFileError, ParameterError

Kind = Literal["npu", "cpu", "gpu"]
KINDS: Final[tuple[Kind, ...]] = ("npu", "cpu", "gpu")
VENDORS: Final[dict[str, tuple[str, ...]]] = {
    "npu": ("amd", "intel"),
    "cpu": (),
    "gpu": ("amd", "intel", "nvidia"),
}
_HERE: Final = Roots()
# Seconds between two calls of a program.
_TOOL_SECONDS: Final = 5.0


def checked(kind: str, vendor: str | None) -> None:
    """`ParameterError` for a chip that no sensor is known of."""
    if kind not in KINDS:
        raise ParameterError("sensors: no such kind of chip", got=repr(kind), expected=", ".join(KINDS))
    if vendor is not None and vendor not in VENDORS[kind]:
        known = ", ".join(VENDORS[kind]) or "none: a machine's CPU is one chip"
        raise ParameterError(f"sensors: vendor of a {kind}", got=repr(vendor), expected=known)


def read(
    kind: str, vendor: str | None = None, roots: Roots = _HERE, *, over: float = 0.0, rates: Rates | None = None
) -> Reading:
    """The sensors of this machine's NPU, CPU or GPU, now.

    An NPU of AMD: its hwmon device, then the driver's own answers, then ``xrt-smi`` where neither spoke. An NPU of
    Intel: the driver's files in sysfs. A CPU: hwmon, powercap, cpufreq, /proc/stat. A GPU: hwmon and the driver's
    files, ``nvidia-smi`` for NVIDIA's.

    Args:
        kind: "npu", "cpu" or "gpu".
        vendor: whose chip, where a machine has several; the first one there is otherwise.
        over: seconds to watch counters for: load, and power where energy is counted, are rates. Without it they are
            missing, and the reading says so.
        rates: what counters said before, kept from reading to reading, instead of ``over``.

    Returns:
        A `Reading`. What is not there is None; ``why`` says the reason.

    Raises:
        ParameterError: another kind or vendor.

    >>> reading = read("npu")
    >>> reading.available or len(reading.why) > 0
    True
    """
    checked(kind, vendor)
    known = rates if rates is not None else Rates(roots.clock)
    if over > 0:
        _once(kind, vendor, roots, known)
        roots.sleep(over)
    return complete(_once(kind, vendor, roots, known))


def _once(kind: str, vendor: str | None, roots: Roots, rates: Rates) -> Reading:
    if kind == "cpu":
        return host.cpu(roots, rates)
    if kind == "gpu":
        return host.gpu(roots, rates, vendor)
    return _npu(vendor, roots, rates)


def _npu(vendor: str | None, roots: Roots, rates: Rates) -> Reading:
    if vendor in (None, "amd"):
        found = amdxdna.devices(roots)
        if found:
            return _xdna(roots, rates, found[0])
    if vendor in (None, "intel"):
        others = ivpu.devices(roots)
        if others:
            return ivpu.reading(others[0], rates)
    # On other systems than Linux the tool is the only way.
    if vendor in (None, "amd") and xrt_smi.program(roots) is not None:
        return _tool(roots, rates, "")
    whose = {"amd": "AMD's amdxdna", "intel": "Intel's intel_vpu"}
    drivers = whose[vendor] if vendor else " or ".join(whose.values())
    return Reading(why=f"no NPU with {drivers} driver on this machine ({platform.system()} {platform.machine()})")


def _xdna(roots: Roots, rates: Rates, device: amdxdna.AmdxdnaDevice) -> Reading:
    parts = [hwmon.reading(roots, (amdxdna.DRIVER,), rates, device.folder)]
    answer, answered = amdxdna.reading(roots, device)
    parts.append(answer)
    if not answered and parts[0].celsius is None:
        # Where the driver answers, the tool can say no more: it asks the same way.
        parts.append(_tool(roots, rates, device.bdf))
    return joined(parts)


def _tool(roots: Roots, rates: Rates, bdf: str) -> Reading:
    def asked() -> Reading:
        try:
            return xrt_smi.reading(xrt_smi.examine(roots, bdf))
        except (OSError, InvalidFileError) as error:
            return Reading(why=str(error).split("\n")[0])

    return rates.held(f"xrt-smi {bdf}", _TOOL_SECONDS, asked)


@final
@dataclass
class SensorSampler:
    """One chip's sensors, read again and again: load and counted power are those since the reading before.

    It is what a watch over a chip's health calls: `SensorSampler("npu")()`.

    >>> watch = SensorSampler("cpu")
    >>> first, second = watch(), watch()
    >>> bool(second.missing) == bool(second.why)
    True
    """

    kind: str
    vendor: str | None = None
    roots: Roots = _HERE
    rates: Rates = field(init=False)

    def __post_init__(self) -> None:
        checked(self.kind, self.vendor)
        self.rates = Rates(self.roots.clock)

    def __call__(self) -> Reading:
        return read(self.kind, self.vendor, self.roots, rates=self.rates)
