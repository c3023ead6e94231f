"""Folders that look like Linux's sysfs, drivers that answer like AMD's, and a clock that tests move."""

import ctypes
import errno
import struct
from dataclasses import dataclass, field
from pathlib import Path

from nxjax.backends.sensors import Roots

# The user interface of the driver, once more and by hand: what its structures look like in memory.
SENSOR = "<64sIIII64s16sbB6x"
CLOCK = "<16sI4x"
CONTEXT = "<IIIIqQQQQQ"


def written(root: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def linked(root: Path, name: str, to: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (root / to).mkdir(parents=True, exist_ok=True)
    path.symlink_to(root / to)


def sensor(label: str, value: int, unit: str, unitm: int, kind: int) -> bytes:
    return struct.pack(SENSOR, label.encode(), value, 0, 0, 0, b"", unit.encode(), unitm, kind)


@dataclass
class Driver:
    """AMD's driver: what it answers by parameter, in bytes or as an error; what it was told."""

    answers: dict[int, bytes | int]
    mode: int = 0
    refuses: int = 0
    turbo: bool = True
    told: list[int] = field(default_factory=list)

    def __call__(self, handle: int, request: int, argument: ctypes.Structure) -> int:
        param, size, address = struct.unpack("<IIQ", bytes(argument))
        if request == 0xC0106448:
            if self.refuses:
                raise OSError(self.refuses, "refused")
            (mode,) = struct.unpack("<B7x", ctypes.string_at(address, size))
            if param != 0 or mode > 4 or (mode == 4 and not self.turbo):
                raise OSError(errno.EINVAL, "Invalid argument")
            self.mode = mode
            self.told.append(mode)
            return 0
        assert request == 0xC0106447
        answer = struct.pack("<B7x", self.mode) if param == 9 else self.answers.get(param, errno.EOPNOTSUPP)
        if isinstance(answer, int):
            raise OSError(answer, "refused")
        filled = answer[:size]
        ctypes.memmove(address, filled, len(filled))
        argument.buffer_size = len(filled)
        return 0


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def roots(root: Path, **given: object) -> Roots:
    """A machine below ``root``, without any program installed, whose time is a `Clock`."""
    clock = given.pop("clock", Clock())
    options = {"which": lambda name: None, "clock": clock, "sleep": clock.sleep, **given}
    return Roots(root / "sys", root / "dev", root / "proc", **options)


def ryzen(root: Path, name: str = "NPU Phoenix") -> None:
    """A laptop with AMD's NPU: /dev/accel/accel0 and what sysfs says of it."""
    folder = "sys/devices/pci0000:00/0000:c5:00.1"
    linked(root, f"{folder}/driver", "sys/bus/pci/drivers/amdxdna")
    linked(root, "sys/class/accel/accel0/device", folder)
    written(root, {f"{folder}/vbnv": name, f"{folder}/fw_version": "1.5.5.391", "dev/accel/accel0": ""})


ANSWERS: dict[int, bytes | int] = {
    3: struct.pack(CLOCK, b"MP-NPU Clock", 847) + struct.pack(CLOCK, b"H Clock", 1600),
    4: b"".join(
        [
            sensor("Total Power", 6250, "W", -3, 0),
            sensor("Temperature", 57, "C", 0, 2),
            *(sensor(f"Column {i} Utilization", 20 * i, "%", 0, 1) for i in range(5)),
        ]
    ),
    5: struct.pack(CONTEXT, 1, 0, 4, 0, 4321, 7, 7, 0, 0, 0),
    12: struct.pack("<5Q", 1600, 16, 6, 0, 1),
}
