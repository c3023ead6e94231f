"""The backend ``cpu``: nxjax's own compiler."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import final

from nxjax.backends import registry
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import Interpreter
from nxjax.backends.reference.quiet import quiet
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CpuProgram
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Program


@final
class CpuExecutable(Executable):
    """A program compiled by nxjax for the host CPU."""

    def __init__(self, program: CpuProgram) -> None:
        self.program = program
        self._run = Interpreter(program, engine(isa.current()))

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        with quiet():
            ys = self._run([x.numpy() for x in args])
        return [DeviceArray(y, t) for y, t in zip(ys, self.program.out_types, strict=True)]

    @property
    def text(self) -> str:
        return str(self.program)


@final
class CpuBackend(Backend):
    name = "cpu"
    platform = "cpu"
    label = "hardware"
    priority = 5

    def __init__(self) -> None:
        self._device = Device("cpu", 0, self)

    def available(self) -> tuple[bool, str]:
        if importlib.util.find_spec("llvmlite") is None:
            return False, "llvmlite is not installed"
        return True, "LLVM"

    def devices(self) -> list[Device]:
        """One; where more were asked for or other processes were joined, those of the executor that has several."""
        several = registry.get("xla")
        if several.available()[0]:
            found = several.devices()
            if len(found) > 1:
                return found
        return [self._device]

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        return CpuExecutable(lower(program, donate))

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return str(lower(program, donate))
