"""Program -> `CpuProgram`: equations in order through the rules, then the memory plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.lower.cpu.builder import Builder, NoKernel, dense_view, rules
from nxjax.lower.cpu.memory import planned
from nxjax.lower.cpu.tape import Buffer, Copy, CpuProgram
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.program import Literal, Program, Var


def lower(program: Program, donate: tuple[int, ...] = ()) -> CpuProgram:
    """The steps that compute ``program``, which has no consts."""
    program = dead_code_eliminated(program)
    b = Builder()
    inputs = [Buffer(v.type.size * v.type.dtype.itemsize, "input", i) for i, v in enumerate(program.inputs)]
    env: dict[Var, Any] = {v: dense_view(x, v.type) for v, x in zip(program.inputs, inputs, strict=True)}
    lower_equations(b, program, env)
    outputs: list[Buffer] = []
    for i, atom in enumerate(program.outputs):
        x = b.dense(atom.value.numpy() if isinstance(atom, Literal) else env[atom])  # pyright: ignore[reportAttributeAccessIssue]
        out = Buffer(x.size * x.dtype.itemsize, "output", i)
        b.steps.append(Copy(x.ref, dense_view(out, atom.type).ref, out.nbytes))
        outputs.append(out)
    return planned(CpuProgram(program.in_types, program.out_types, inputs, outputs, b.consts, b.steps, donated=donate))


def lower_equations(b: Builder, program: Program, env: dict[Var, Any]) -> None:
    """Add the steps of every equation; ``env`` has the inputs' values and gets all others."""
    known = rules()
    for e, dead in zip(program.equations, program.last_use, strict=True):
        xs = [env[a] if isinstance(a, Var) else a.value.numpy() for a in e.inputs]  # pyright: ignore[reportAttributeAccessIssue]
        b.equation = e
        ys: Sequence[Any]
        try:
            found = known.get(e.op.name)
            if found is None:
                raise NoKernel("no rule")
            ys = found(b, e, *xs)
        except NoKernel as why:
            ys = b.host(e, xs, str(why))
        env.update(zip(e.outputs, ys, strict=True))
        for v in dead:
            env.pop(v, None)
