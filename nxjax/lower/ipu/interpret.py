"""The meaning of an IpuProgram, slowly and simply, in NumPy: the oracle for whoever runs one. Counts no cycles.

What nothing has written yet is filled with a pattern that no test mistakes for a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import ExecutionError
from nxjax.lower.ipu.program import (
    Boxes,
    Call,
    Copy,
    Execute,
    Group,
    IpuProgram,
    NDArray,
    Repeat,
    Step,
    Switch,
    Variable,
    VariableView,
    While,
)

GARBAGE = 0xA5


def interpret(program: IpuProgram, inputs: Sequence[Any]) -> list[NDArray]:
    """The outputs of one run.

    Args:
        program: what to run.
        inputs: one array per input, of its shape and dtype.

    Returns:
        One array per output.
    """
    return IpuInterpreter(program).run(inputs)


@final
class IpuInterpreter:
    """Tile memory and what runs in it. Variables of role "state" keep their values from run to run."""

    def __init__(self, program: IpuProgram) -> None:
        self.program = program
        self.memory: dict[int, NDArray] = {}
        for v in program.variables():
            if v.value is not None:
                self.memory[id(v)] = np.ascontiguousarray(v.value, v.dtype).reshape(-1).copy()
            else:
                filled = (
                    np.full(v.nbytes, GARBAGE, np.uint8).view(v.dtype) if v.dtype != bool else np.ones(v.size, bool)
                )
                self.memory[id(v)] = filled

    def run(self, inputs: Sequence[Any]) -> list[NDArray]:
        program = self.program
        if len(inputs) != len(program.inputs):
            raise ExecutionError("ipu: wrong number of inputs", got=len(inputs), expected=len(program.inputs))
        for v, x in zip(program.inputs, inputs, strict=True):
            data = np.asarray(x)
            if data.shape != v.shape or data.dtype != v.dtype:
                raise ExecutionError(
                    f"ipu: {v.name} has another type",
                    got=f"{data.dtype}{list(data.shape)}",
                    expected=f"{v.dtype}{list(v.shape)}",
                )
            self.memory[id(v)][:] = data.reshape(-1)
        with np.errstate(all="ignore"):
            self.steps(program.steps)
        return [self.memory[id(v)].reshape(v.shape).copy() for v in program.outputs]

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Execute():
                    self._execute(step)
                case Copy():
                    found = [self._read(source) for source, _ in step.pairs]
                    for (_, target), data in zip(step.pairs, found, strict=True):
                        self.memory[id(target.variable)][_elements(target)] = data
                case Repeat():
                    for _ in range(step.count):
                        self.steps(step.body)
                case While():
                    self.steps(step.condition)
                    while bool(self._scalar(step.predicate)):
                        self.steps(step.body)
                        self.steps(step.condition)
                case Switch():
                    self.steps(step.branches[int(self._scalar(step.index))])
                case Call():
                    self.steps(self.program.functions[step.function])

    def _scalar(self, v: Variable) -> Any:
        return self.memory[id(v)][0]

    def _read(self, view: VariableView) -> NDArray:
        return self.memory[id(view.variable)][_elements(view)]

    def _execute(self, step: Execute) -> None:
        # All vertices read before any writes: they run at once.
        results = [(g, self._results(g)) for g in step.groups]
        for g, found in results:
            for name, values in found.items():
                edge = g.edges[name]
                places = edge.boxes.elements()
                self.memory[id(edge.variable)][places] = np.asarray(values).reshape(places.shape)

    def _results(self, g: Group) -> dict[str, NDArray]:
        arrays: dict[str, NDArray] = {}
        for f in g.codelet.fields:
            edge = g.edges[f.name]
            if f.io == "out":
                arrays[f.name] = np.empty((len(g.tiles), *edge.boxes.sizes), edge.variable.dtype)
            else:
                arrays[f.name] = self.memory[id(edge.variable)][edge.boxes.elements()]
        return g.codelet.meaning(arrays, g.attributes)


def _elements(view: VariableView) -> NDArray:
    return Boxes(np.asarray([view.offset], np.int64), view.shape, view.strides).elements()[0]
