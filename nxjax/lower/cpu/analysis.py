"""What a lowered program takes, counted from its steps: memory, operations, bytes. Nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.lower.cpu.tape import (
    ALIGN,
    BranchStep,
    CallStep,
    CopyStep,
    CpuProgram,
    HostStep,
    RepeatStep,
    TapeStep,
    WhileStep,
    walk,
)


@final
@dataclass(frozen=True, slots=True)
class MemoryAnalysis:
    """Bytes that one run of a program holds.

    Attributes:
        argument_size_in_bytes, output_size_in_bytes: of all arguments and results.
        alias_size_in_bytes: of results that are arguments, constants or other results, and of those in the memory of
            donated arguments: they take none of their own.
        temp_size_in_bytes: of the arena, in which all temporaries lie.
        constant_size_in_bytes: of arrays that the program brings along.
        peak_memory_in_bytes: all of it at once.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    constant_size_in_bytes: int

    @property
    def peak_memory_in_bytes(self) -> int:
        taken = self.output_size_in_bytes - self.alias_size_in_bytes
        return self.argument_size_in_bytes + taken + self.temp_size_in_bytes + self.constant_size_in_bytes


def memory_of(program: CpuProgram) -> MemoryAnalysis:
    """Bytes of arguments, results and temporaries."""
    own = {b: b.nbytes for b in program.outputs if b.kind == "output"}
    outputs = sum(b.nbytes for b in program.outputs)
    return MemoryAnalysis(
        sum(b.nbytes for b in program.inputs),
        outputs,
        outputs - sum(own.values()),
        program.arena,
        sum(-(-c.nbytes // ALIGN) * ALIGN for c in program.consts),
    )


def cost_of(program: CpuProgram) -> dict[str, float]:
    """``flops`` (integer operations count too), ``bytes accessed``, and the numbers of kernel calls and host steps.

    Loops whose number of turns is not known before they run count as one turn, of a choice the dearest branch.
    """
    flops, moved, calls = _cost(program.steps)
    return {
        "flops": flops,
        "bytes accessed": moved,
        "kernel calls": calls,
        "host steps": float(sum(isinstance(s, HostStep) for s in walk(program.steps))),
    }


def _cost(steps: Sequence[TapeStep]) -> tuple[float, float, float]:
    flops = moved = calls = 0.0
    for step in steps:
        match step:
            case CallStep():
                cost = step.kernel.cost()
                found = (cost.flops, cost.read + cost.written, 1.0)
            case CopyStep():
                found = (0.0, 2.0 * step.nbytes, 0.0)
            case HostStep():
                sizes = [t.size * t.dtype.itemsize for t in (*step.in_types, *step.out_types)]
                found = (float(sum(t.size for t in step.out_types)), float(sum(sizes)), 0.0)
            case RepeatStep():
                a, b, c = _cost(step.body)
                n = step.counter.count
                found = (n * a, n * b, n * c)
            case WhileStep():
                test, body = _cost(step.condition), _cost(step.body)
                turns = step.turns
                n = 1 if turns is None else turns
                a, b, c = ((n + 1) * t + n * x for t, x in zip(test, body, strict=True))
                found = (a, b, c)
            case BranchStep():
                found = max(map(_cost, step.branches), default=(0.0, 0.0, 0.0))
            case _:
                continue
        flops, moved, calls = flops + found[0], moved + found[1], calls + found[2]
    return flops, moved, calls
