"""The reference executor: programs run op by op through NumPy `eval`. Needs no extra; the oracle for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.reference.quiet import quiet
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Literal, Program, Var


@final
class ReferenceExecutable(Executable):
    """Interprets a program on NumPy arrays."""

    def __init__(self, program: Program) -> None:
        self.program = dead_code_eliminated(program)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        ys = evaluate(self.program, [x.numpy() for x in args])
        return [DeviceArray(y, t) for y, t in zip(ys, self.program.out_types, strict=True)]

    @property
    def text(self) -> str:
        return str(self.program)


def evaluate(program: Program, args: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results of a program in NumPy."""
    env: dict[Var, np.ndarray[Any, Any]] = dict(zip(program.inputs, args, strict=True))
    env.update((v, x.numpy()) for v, x in zip(program.consts, program.values, strict=True))

    def value(a: Var | Literal) -> np.ndarray[Any, Any]:
        return env[a] if isinstance(a, Var) else a.value.numpy()

    with quiet():
        for e, dead in zip(program.equations, program.last_use, strict=True):
            y = e.op.eval(*[value(a) for a in e.inputs], **e.params)
            if e.op.multi:
                env.update(zip(e.outputs, y, strict=True))
            else:
                env[e.outputs[0]] = y
            for v in dead:
                env.pop(v, None)
    return [value(a) for a in program.outputs]


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
