"""AMD's NPU driver asked directly: what its DRM device ``/dev/accel/accelN`` answers, and the power mode it is told.

Numbers and layouts are those of the driver's user interface (include/uapi/drm/amdxdna_accel.h of github.com/amd/
xdna-driver, also in Linux since 6.14). Reading needs no privilege; telling needs CAP_SYS_ADMIN.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, final

from nxjax.backends.sensors.reading import Reading, Roots, text

DRIVER: Final = "amdxdna"
# Parameters of GET_INFO.
AIE_METADATA, CLOCKS, SENSORS, CONTEXTS, FIRMWARE, POWER_MODE, RESOURCES = 1, 3, 4, 5, 8, 9, 12
# The parameter of SET_STATE that is the power mode.
SET_POWER_MODE: Final = 0
# The driver's power modes by their numbers, as xrt-smi calls them.
MODES: Final = ("default", "powersaver", "balanced", "performance", "turbo")
POWER, UTILIZATION, TEMPERATURE = 0, 1, 2
# What the firmware leaves in a field that it does not fill.
_UNKNOWN: Final = (0xFFFF, 0xFFFFFFFF)
# More sensors than any of these chips has: a power, a temperature, one for each of eight columns.
_MOST: Final = 32
_MOST_CONTEXTS: Final = 64


class GetInfo(ctypes.Structure):
    """What is asked: a parameter, a buffer and its size, which comes back as the size that was filled."""

    _fields_ = (("param", ctypes.c_uint32), ("buffer_size", ctypes.c_uint32), ("buffer", ctypes.c_uint64))


class Sensor(ctypes.Structure):
    """One sensor; its value is ``input * 10**unitm`` in ``units``."""

    _fields_ = (
        ("label", ctypes.c_char * 64),
        ("input", ctypes.c_uint32),
        ("max", ctypes.c_uint32),
        ("average", ctypes.c_uint32),
        ("highest", ctypes.c_uint32),
        ("status", ctypes.c_char * 64),
        ("units", ctypes.c_char * 16),
        ("unitm", ctypes.c_int8),
        ("type", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 6),
    )


class Clock(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 16), ("freq_mhz", ctypes.c_uint32), ("pad", ctypes.c_uint32))


class Clocks(ctypes.Structure):
    """The clocks of the NPU's controller and of its array."""

    _fields_ = (("mp_npu_clock", Clock), ("h_clock", Clock))


class Mode(ctypes.Structure):
    """A power mode, both asked and told."""

    _fields_ = (("power_mode", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 7))


class Resources(ctypes.Structure):
    """What the NPU has and what of it is in use; a task is a hardware context."""

    _fields_ = (
        ("npu_clk_max", ctypes.c_uint64),
        ("npu_tops_max", ctypes.c_uint64),
        ("npu_task_max", ctypes.c_uint64),
        ("npu_tops_curr", ctypes.c_uint64),
        ("npu_task_curr", ctypes.c_uint64),
    )


class DriverContext(ctypes.Structure):
    """One hardware context and whose it is."""

    _fields_ = (
        ("context_id", ctypes.c_uint32),
        ("start_col", ctypes.c_uint32),
        ("num_col", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("pid", ctypes.c_int64),
        ("command_submissions", ctypes.c_uint64),
        ("command_completions", ctypes.c_uint64),
        ("migrations", ctypes.c_uint64),
        ("preemptions", ctypes.c_uint64),
        ("errors", ctypes.c_uint64),
    )


class Version(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("major", "minor", "patch", "build"))


class Tiles(ctypes.Structure):
    """One kind of tiles of the array."""

    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("row_count", "row_start", "dma_channel_count", "lock_count")),
        ("event_reg_count", ctypes.c_uint16),
        ("pad", ctypes.c_uint16 * 3),
    )


class Metadata(ctypes.Structure):
    """The array: its columns and rows, and its tiles by kind."""

    _fields_ = (
        ("col_size", ctypes.c_uint32),
        ("cols", ctypes.c_uint16),
        ("rows", ctypes.c_uint16),
        ("version_major", ctypes.c_uint32),
        ("version_minor", ctypes.c_uint32),
        ("core", Tiles),
        ("mem", Tiles),
        ("shim", Tiles),
    )


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def request(number: int) -> int:
    """The ioctl number of the driver's own command ``number``: read and write, a structure of 16 bytes, DRM's letter.

    >>> hex(request(7)), hex(request(8))
    ('0xc0106447', '0xc0106448')
    """
    return (3 << 30) | (ctypes.sizeof(GetInfo) << 16) | (ord("d") << 8) | (0x40 + number)


GET_INFO: Final = request(7)
SET_STATE: Final = request(8)


@final
@dataclass(frozen=True)
class AmdxdnaDevice:
    """An NPU that the driver shows: its device file, its PCI address, what it calls itself, its firmware."""

    node: Path
    bdf: str
    name: str
    firmware: str
    folder: Path


def devices(roots: Roots) -> list[AmdxdnaDevice]:
    """The NPUs of AMD that Linux lists, in its order."""
    found: list[AmdxdnaDevice] = []
    for entry in sorted((roots.sys / "class/accel").glob("accel*")):
        folder = (entry / "device").resolve()
        if (folder / "driver").resolve().name != DRIVER:
            continue
        name = text(folder / "vbnv") or "AMD NPU"
        found.append(
            AmdxdnaDevice(
                roots.dev / "accel" / entry.name, folder.name, name, text(folder / "fw_version") or "", folder
            )
        )
    return found


@contextmanager
def _opened(node: Path) -> Generator[int]:
    handle = os.open(node, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def asked(roots: Roots, node: Path, param: int, buffer: Any) -> int:
    """Fill ``buffer`` with the driver's answer; how many bytes of it there are. OSError where the driver refuses."""
    told = GetInfo(param, ctypes.sizeof(buffer), ctypes.addressof(buffer))
    with _opened(node) as handle:
        roots.ioctl(handle, GET_INFO, told)
    return min(int(told.buffer_size), ctypes.sizeof(buffer))


def one(roots: Roots, node: Path, param: int, kind: type[_Struct]) -> _Struct:
    """An answer that is one structure."""
    found = kind()
    asked(roots, node, param, found)
    return found


def many(roots: Roots, node: Path, param: int, kind: type[_Struct], most: int) -> list[_Struct]:
    """An answer that is any number of structures."""
    found = (kind * most)()
    size = asked(roots, node, param, found)
    return [found[i] for i in range(size // ctypes.sizeof(kind))]


def sensors(roots: Roots, node: Path) -> list[tuple[int, str, float, str]]:
    """(type, label, value, unit) of every sensor that has a value."""
    found: list[tuple[int, str, float, str]] = []
    for s in many(roots, node, SENSORS, Sensor, _MOST):
        if s.input not in _UNKNOWN:
            # A negative power of ten divides, so that 6250 mW are 6.25 W and not 6.250000000000001.
            value = s.input * 10**s.unitm if s.unitm >= 0 else s.input / 10**-s.unitm
            found.append((s.type, s.label.decode(errors="replace"), float(value), s.units.decode(errors="replace")))
    return found


def power_mode(roots: Roots, node: Path) -> str:
    """The power mode that the driver has been told, by xrt-smi's name."""
    mode = int(one(roots, node, POWER_MODE, Mode).power_mode)
    return MODES[mode] if mode < len(MODES) else f"mode {mode}"


def set_power_mode(roots: Roots, node: Path, mode: str) -> None:
    """Tell the driver; OSError with EACCES without privilege, EINVAL where the mode cannot be taken now."""
    state = Mode(power_mode=MODES.index(mode))
    told = GetInfo(SET_POWER_MODE, ctypes.sizeof(state), ctypes.addressof(state))
    with _opened(node) as handle:
        roots.ioctl(handle, SET_STATE, told)


def contexts(roots: Roots, node: Path) -> list[DriverContext]:
    """The hardware contexts of this user's processes, or of all for the superuser."""
    return many(roots, node, CONTEXTS, DriverContext, _MOST_CONTEXTS)


def context_limit(roots: Roots, node: Path) -> int | None:
    """How many hardware contexts the NPU has for everybody together; None where the driver does not say."""
    try:
        return int(one(roots, node, RESOURCES, Resources).npu_task_max) or None
    except OSError:
        return None


def refusal(error: OSError, node: Path) -> str:
    """Why the driver did not answer, for people."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{node}: permission denied; the user has to be in the group that owns it (mostly render)"
    if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
        return f"{node}: this kernel's amdxdna driver has no such answer"
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return f"{node}: no such device"
    return f"{node}: {error.strerror or error}"


def reading(roots: Roots, device: AmdxdnaDevice) -> tuple[Reading, bool]:
    """What the driver says, and whether it answered at all."""
    reasons: list[str] = []
    figures: dict[str, float] = {}
    parts: list[tuple[str, float, str]] = []
    answered = False
    try:
        found = sensors(roots, device.node)
        answered = True
        kinds = {kind: [v for k, _, v, _ in found if k == kind] for kind in (POWER, UTILIZATION, TEMPERATURE)}
        if kinds[TEMPERATURE]:
            figures["celsius"] = max(kinds[TEMPERATURE])
        if kinds[POWER]:
            figures["watts"] = kinds[POWER][0]
        columns = [v for v in kinds[UTILIZATION] if v <= 100]
        if columns:
            figures["busy"] = sum(columns) / len(columns) / 100
        parts += [(label, value, unit) for _, label, value, unit in found]
    except OSError as error:
        reasons.append(refusal(error, device.node))
    try:
        clocks = one(roots, device.node, CLOCKS, Clocks)
        answered = True
        if clocks.h_clock.freq_mhz not in _UNKNOWN:
            figures["megahertz"] = float(clocks.h_clock.freq_mhz)
        parts += [(c.name.decode(errors="replace"), float(c.freq_mhz), "MHz") for c in (clocks.mp_npu_clock,)]
    except OSError as error:
        reasons.append(refusal(error, device.node))
    why = "; ".join(dict.fromkeys(reasons))
    if answered and "celsius" not in figures:
        why = "; ".join(filter(None, (why, "temperature: the driver gives none (AMD's PMF driver has it, Linux 7.2)")))
    return Reading(source="amdxdna ioctl" if figures else "", why=why, parts=tuple(parts), **figures), answered
