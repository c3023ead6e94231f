"""Drop equations whose results nothing uses and that have no effect."""

from __future__ import annotations

from nxjax.lower.passes.invariants import passed
from nxjax.trace.program import Equation, Program, Var


def dead_code_eliminated(program: Program) -> Program:
    """The program without dead equations; inputs stay. Kept with ``program``."""
    return program.derive("dce", lambda: passed(program, _dce(program)))


def _dce(program: Program) -> Program:
    live: set[Var] = {v for v in program.outputs if isinstance(v, Var)}
    kept: list[Equation] = []
    for e in reversed(program.equations):
        if e.effect or not live.isdisjoint(e.outputs):
            kept.append(e)
            live.update(a for a in e.inputs if isinstance(a, Var))
    if len(kept) == len(program.equations):
        return program
    return Program(program.inputs, kept[::-1], program.outputs, program.constvars, program.values, program.name)
