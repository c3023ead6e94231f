"""Runs an IPU program on this machine: memory for its variables, prepared launches for its steps, loops in Python.

What it computes is what the codelets mean; what it counts is how often each body ran, which `cycles` turns into time.
Knows steps, no op.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.backends.ipu.arena import allocate
from nxjax.errors import ExecutionError
from nxjax.kernels.ipu.host import CodeletRunner, Launch, Strided, VertexBoxes, runner
from nxjax.lower.ipu.program import (
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


@final
class IpuEngine:
    """A program ready to run, again and again; state stays from run to run.

    May be called from several threads: runs happen one after the other.

    Args:
        program: what to run.
        how: what runs codelets; by default they are compiled, or run by their meanings where there is no compiler.
    """

    def __init__(self, program: IpuProgram, how: CodeletRunner | None = None) -> None:
        self.program = program
        self.how = how or runner(program.codelets())
        self._lock = threading.Lock()
        self.memory = allocate(program)
        self._state = [self.memory[id(v)] for v in program.variables() if v.role == "state"]
        self._counts: dict[int, int] = {}
        self._blocks: dict[int, Launch] = {}
        self._main = self._block(program.steps)
        #: How often each body ran in the last run, by the identity of its tuple of steps.
        self.counts: dict[int, int] = {}

    def __call__(self, inputs: Sequence[Any]) -> list[NDArray]:
        return self.run(inputs)

    def run(self, inputs: Sequence[Any]) -> list[NDArray]:
        """One run.

        Args:
            inputs: an array per input, of its shape and dtype; None where a state keeps the value that it has.

        Returns:
            An array per output.

        Raises:
            ExecutionError: arrays that do not fit, or a codelet that failed.
        """
        given = self._checked(inputs)
        with self._lock:
            kept = [x.copy() for x in self._state]
            self._counts = dict.fromkeys(self._counts, 0)
            try:
                for v, x in given:
                    self.memory[id(v)][:] = x.reshape(-1)
                with np.errstate(all="ignore"):
                    self._main()
                self.counts = dict(self._counts)
                return [self.memory[id(v)].reshape(v.shape).copy() for v in self.program.outputs]
            except BaseException:
                # An interrupted run leaves the state as it was before.
                for x, old in zip(self._state, kept, strict=True):
                    x[:] = old
                raise

    def _checked(self, inputs: Sequence[Any]) -> list[tuple[Variable, NDArray]]:
        variables = self.program.inputs
        if len(inputs) != len(variables):
            raise ExecutionError("ipu: wrong number of inputs", got=len(inputs), expected=len(variables))
        found: list[tuple[Variable, NDArray]] = []
        for v, x in zip(variables, inputs, strict=True):
            if x is None:
                if v.role != "state":
                    raise ExecutionError(f"ipu: {v.name} needs a value", expected=f"{v.dtype}{list(v.shape)}")
                continue
            data = np.asarray(x)
            if data.shape != v.shape or data.dtype != v.dtype:
                raise ExecutionError(
                    f"ipu: {v.name} has another type",
                    got=f"{data.dtype}{list(data.shape)}",
                    expected=f"{v.dtype}{list(v.shape)}",
                )
            found.append((v, data))
        return found

    # --- steps ---

    def _block(self, steps: tuple[Step, ...]) -> Launch:
        """What runs a body, once per program however often it is called."""
        known = self._blocks.get(id(steps))
        if known is not None:
            return known
        launches: list[Launch] = []
        for step in steps:
            launches += self._launches(step)
        key = id(steps)
        self._counts[key] = 0

        def block() -> None:
            self._counts[key] += 1
            for launch in launches:
                launch()

        self._blocks[key] = block
        return block

    def _launches(self, step: Step) -> list[Launch]:
        match step:
            case Execute():
                return [self._group(g) for g in step.groups if len(g.tiles)]
            case Copy():
                return [self.how.copies([(self._strided(s), self._strided(t)) for s, t in step.pairs])]
            case Repeat(count=count, body=body):
                repeated = self._block(body)

                def repeat() -> None:
                    for _ in range(count):
                        repeated()

                return [repeat]
            case While(condition=condition, predicate=predicate, body=body):
                test, loop, holds = self._block(condition), self._block(body), self.memory[id(predicate)]

                def loops() -> None:
                    test()
                    while holds[0]:
                        loop()
                        test()

                return [loops]
            case Switch(index=index, branches=branches):
                choices, chosen = [self._block(b) for b in branches], self.memory[id(index)]
                return [lambda: choices[int(chosen[0])]()]
            case Call(function=name):
                return [self._block(self.program.functions[name])]

    def _group(self, g: Group) -> Launch:
        places = {
            name: VertexBoxes(self.memory[id(e.variable)], e.boxes.offsets, e.boxes.sizes, e.boxes.strides)
            for name, e in g.edges.items()
        }
        return self.how.prepare(g.codelet, len(g.tiles), places, g.attributes)

    def _strided(self, view: VariableView) -> Strided:
        return Strided(self.memory[id(view.variable)], view.offset, view.shape, view.strides)
