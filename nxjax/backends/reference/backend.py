"""The reference executor: programs run op by op through NumPy `eval`. Needs no extra; the oracle for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.quiet import quiet
from nxjax.errors import MemoryLimitError, NxError
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.array import DeviceArray
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program


@final
class ReferenceExecutable(Executable):
    """Interprets a program on NumPy arrays."""

    def __init__(self, program: Program) -> None:
        self.program = dead_code_eliminated(program)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        try:
            with quiet():
                ys = evaluate(self.program, [x.numpy() for x in args])
        except MemoryError as error:
            if isinstance(error, NxError):
                raise
            raise MemoryLimitError("reference: out of memory", got=error, fix="use smaller arrays") from None
        return [DeviceArray(y, t) for y, t in zip(ys, self.program.out_types, strict=True)]

    @property
    def text(self) -> str:
        return str(self.program)


@final
class ReferenceBackend(Backend):
    name = "reference"
    platform = "cpu"
    label = "hardware"
    priority = 0

    def available(self) -> tuple[bool, str]:
        return True, f"NumPy {np.__version__}"

    def devices(self) -> list[Device]:
        return [Device("cpu", 0, self)]

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        return ReferenceExecutable(program)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return str(dead_code_eliminated(program))
