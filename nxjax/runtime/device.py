"""Devices by type and number, as programs name them before they know what a machine has.

`nx.devices()` lists what can execute now; `DeviceSpec(DeviceType.NPU, 0)` names something that may not be there, and
says why it is not.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import final

from nxjax.backends import base, registry
from nxjax.errors import ExecutionError, ParameterError


@final
class DeviceType(enum.Enum):
    """A kind of processor.

    >>> DeviceType("npu") is DeviceType.NPU
    True
    """

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    NPU = "npu"
    IPU = "ipu"

    @classmethod
    def _missing_(cls, value: object) -> DeviceType | None:
        lower = str(value).lower()
        return next((t for t in cls if t.value == lower), None)


@final
@dataclass(frozen=True)
class DeviceSpec:
    """A device by type and number. It need not be available.

    Use it like any device: ``nx.device_put(x, device)``, ``nx.jit(f, device=device)``.

    Args:
        type: a `DeviceType`, or its name.
        index: which one of this type, from 0.

    >>> cpu = Device(DeviceType.CPU, 0)
    >>> cpu, cpu.is_available()
    (cpu:0, True)
    >>> nx.device_put(nx.ones(2), cpu).device
    cpu:0
    """

    type: DeviceType
    index: int = 0

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "type", DeviceType(self.type))
        except ValueError:
            names = ", ".join(t.name for t in DeviceType)
            raise ParameterError("Device: no such type", got=repr(self.type), expected=names) from None
        if not isinstance(self.index, int) or isinstance(self.index, bool) or self.index < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("Device: index", got=repr(self.index), expected="an int, at least 0")

    @property
    def platform(self) -> str:
        return self.type.value

    def is_available(self) -> bool:
        """Whether programs can run on it now."""
        return self._find() is not None

    @property
    def unavailable_reason(self) -> str:
        """Why it is not available; empty if it is."""
        if self._find() is not None:
            return ""
        count = len(_present(self.platform))
        if count:
            return f"there are {count} {self.platform} devices, counted from 0"
        reasons = [
            f"{b.name}: {b.available()[1]}" for b in map(registry.get, registry.names()) if b.platform == self.platform
        ]
        if self.type is DeviceType.NPU:
            from nxjax.vendors.chips import why_none

            reasons.append(why_none())
        return "; ".join(filter(None, reasons)) or f"no backend of nxjax drives a {self.type.name}"

    @property
    def device(self) -> base.Device:
        """The device of `nx.devices()`.

        Raises:
            ExecutionError: it is not available; the message says why.
        """
        found = self._find()
        if found is None:
            raise ExecutionError(
                f"Device: {self} is not available",
                got=self.unavailable_reason,
                expected=", ".join(map(str, registry.devices())),
                fix="ask is_available() first, or choose one of nx.devices()",
            )
        return found

    def _find(self) -> base.Device | None:
        return next((d for d in _present(self.platform) if d.id == self.index), None)

    def __str__(self) -> str:
        return f"{self.platform}:{self.index}"

    __repr__ = __str__


# Its public name; `nx.devices()` gives the class `Device` of the backends.
Device = DeviceSpec


def _present(platform: str) -> list[base.Device]:
    return [d for d in registry.devices() if d.platform == platform]
