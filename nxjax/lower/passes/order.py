"""Run effects in program order: a compiler may reorder calls that share no data, so a token is threaded through them.

Every op with an effect gets the token of the one before it as a further operand and gives the next one as a further
result. Ops that hold programs with effects say by `with_token` where the token goes. Programs without effects are left
as they are.
"""

from __future__ import annotations

import numpy as np

from nxjax.lower.passes.invariants import passed
from nxjax.trace.array import wrap
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType

TOKEN = ArrayType((), np.dtype(np.bool_))


def in_order(program: Program) -> Program:
    """``program`` with its effects tied together."""
    if not program.effect:
        return program
    return program.derive("in order", lambda: passed(program, _in_order(program)))


def _in_order(program: Program) -> Program:
    equations, _ = _threaded(program, Literal(wrap(np.asarray(False))))
    return Program(program.inputs, equations, program.outputs, program.constvars, program.values, program.name)


def with_token(program: Program, at_input: int = 0, at_output: int = 0) -> Program:
    """``program`` that takes a token as input ``at_input`` and gives it as result ``at_output``."""

    def make() -> Program:
        token = Var(TOKEN)
        equations, last = _threaded(program, token)
        inputs, outputs = list(program.inputs), list(program.outputs)
        inputs.insert(at_input, token)
        outputs.insert(at_output, last)
        return Program(inputs, equations, outputs, program.constvars, program.values, program.name)

    return program.derive(("token", at_input, at_output), make)


def _threaded(program: Program, token: Atom) -> tuple[list[Equation], Atom]:
    equations: list[Equation] = []
    for e in program.equations:
        if not e.op.has("with_token") or not (e.op.effect or any(p.effect for p in e.programs())):
            equations.append(e)
            continue
        params, at_input, at_output = e.op.with_token(e.params, with_token)
        after = Var(TOKEN)
        inputs, outputs = list(e.inputs), list(e.outputs)
        inputs.insert(at_input, token)
        outputs.insert(at_output, after)
        equations.append(e.replaced(tuple(inputs), tuple(outputs), params))
        token = after
    return equations, token
