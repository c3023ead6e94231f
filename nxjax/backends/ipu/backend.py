"""The IPU model as a device: `nx.jit(f, device="ipu")` runs on modelled tiles. Its label is ``own-model``.

It is listed among `nx.devices()` only where the user asked for it: by ``nx.devices("ipu")``, or by naming a system in
``NXJAX_IPU_MODEL`` or ``nx.config.update("ipu_model", ...)``. Imports nothing heavy before something is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, final

from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.ipu import emit
from nxjax.backends.ipu.detect import hardware, without_hardware
from nxjax.backends.ipu.executable import IpuExecutable
from nxjax.config import config
from nxjax.errors import UnsupportedOpsError
from nxjax.kernels.ipu.chip import IpuSystem, system
from nxjax.lower.ipu.lower import lower
from nxjax.trace.core import Op
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

DEFAULT: Final = "bow"


def chosen() -> IpuSystem:
    """The system that the user named, or one Bow IPU."""
    return system(config.ipu_model or DEFAULT)


@final
class IpuBackend(Backend):
    name = "ipu"
    platform = "ipu"
    label = "own-model"
    priority = 0

    def available(self) -> tuple[bool, str]:
        return True, f"model of {chosen().title}; {without_hardware(hardware())}"

    @property
    def listed(self) -> bool:
        return bool(config.ipu_model)

    def devices(self) -> list[Device]:
        return [Device("ipu", i, self) for i in range(chosen().ipus)]

    def supports(self, op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[bool, str]:
        def one(*xs: Any) -> Sequence[Any]:
            y = op(*xs, **params)
            return y if op.multi else [y]

        try:
            lower(stage(one, list(types), op.name), self._one())
        except UnsupportedOpsError as error:
            return False, str(error.got)
        return True, ""

    def _one(self) -> IpuSystem:
        """A device is one IPU of the system."""
        s = chosen()
        return s if s.ipus == 1 else replace(s, ipus=1, title=f"one of the IPUs of {s.title}")

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        return IpuExecutable(lower(program, self._one(), donate=donate), program.out_types)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return emit.text(lower(program, self._one(), donate=donate))
