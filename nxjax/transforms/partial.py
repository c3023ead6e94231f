"""Cut a program in two: what known inputs determine, and the rest. Names no op; nested calls are cut recursively.

Only needed where a user's own derivative rule calls a jitted function with known and unknown arguments mixed: the
built-in rules never mix them, because linearization splits every op as it goes.
"""

from __future__ import annotations

from nxjax.trace.program import Atom, Equation, Program, Var


def split_program(program: Program, unknown: tuple[bool, ...]) -> tuple[Program, Program, tuple[bool, ...], int]:
    """Known half, unknown half, which results come from the known half, and the number of residuals.

    The known half maps known inputs to (residuals..., known results...); the unknown half maps (residuals..., unknown
    inputs...) to the unknown results. Kept with ``program``.
    """
    return program.derive(("split", unknown), lambda: _split(program, unknown))


def _split(program: Program, unknown: tuple[bool, ...]) -> tuple[Program, Program, tuple[bool, ...], int]:
    dark = {v for v, u in zip(program.inputs, unknown, strict=True) if u}
    known_equations: list[Equation] = []
    unknown_equations: list[Equation] = []
    for e in program.equations:
        mask = tuple(isinstance(a, Var) and a in dark for a in e.inputs)
        if True not in mask:
            known_equations.append(e)
        elif e.op.has("split"):
            known, rest = _split_equation(e, mask)
            if known is not None:
                known_equations.append(known)
            unknown_equations.append(rest)
            dark.update(rest.outputs)
        else:
            unknown_equations.append(e)
            dark.update(e.outputs)

    def is_known(a: Atom) -> bool:
        return not (isinstance(a, Var) and a in dark)

    from_known = tuple(is_known(a) for a in program.outputs)
    unknown_outputs = [a for a, k in zip(program.outputs, from_known, strict=True) if not k]
    consts = set(program.constvars)
    read = [a for e in unknown_equations for a in e.inputs]
    residuals = list(dict.fromkeys(a for a in read if isinstance(a, Var) and a not in dark and a not in consts))
    known_half = Program(
        [v for v, u in zip(program.inputs, unknown, strict=True) if not u],
        known_equations,
        [*residuals, *(a for a, k in zip(program.outputs, from_known, strict=True) if k)],
        program.constvars,
        program.values,
        program.name,
    )
    unknown_half = Program(
        [*residuals, *(v for v, u in zip(program.inputs, unknown, strict=True) if u)],
        unknown_equations,
        unknown_outputs,
        program.constvars,
        program.values,
        program.name,
    )
    return known_half, unknown_half, from_known, len(residuals)


def _split_equation(e: Equation, mask: tuple[bool, ...]) -> tuple[Equation | None, Equation]:
    inner: Program = e.params["program"]
    known_half, unknown_half, from_known, n = split_program(inner, mask)
    residuals = tuple(Var(v.type) for v in known_half.outputs[:n])
    known_outs = tuple(v for v, k in zip(e.outputs, from_known, strict=True) if k)
    known_ins = tuple(a for a, m in zip(e.inputs, mask, strict=True) if not m)
    unknown_ins = tuple(a for a, m in zip(e.inputs, mask, strict=True) if m)
    unknown_outs = tuple(v for v, k in zip(e.outputs, from_known, strict=True) if not k)
    known = e.replaced(known_ins, (*residuals, *known_outs), {**e.params, "program": known_half})
    rest = e.replaced((*residuals, *unknown_ins), unknown_outs, {**e.params, "program": unknown_half})
    return (known if known.outputs else None), rest
