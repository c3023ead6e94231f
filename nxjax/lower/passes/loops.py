"""Loops and choices with less to do: what does not change leaves the body, what nobody reads is not computed.

`lifted`, `settled`, `hoisted` and `trimmed` take an equation that holds programs and give one that holds smaller ones.
The programs that `lifted` gives have no consts: captured arrays become operands, so that a lowering meets one kind of
input only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Equation, Literal, Program, Var

LOOPS: Final = frozenset(("scan", "while"))
HOLDERS: Final = LOOPS | {"cond"}
# Computing one of these again costs less than keeping what it gives.
_CHEAP: Final = frozenset(("broadcast_in_dim", "reshape", "transpose", "iota", "rev"))
_BYTES: Final = (dtypes.int8, dtypes.uint8)
# These stay where they are written.
_FIXED: Final = frozenset(("optimization_barrier", "pure_callback"))
Made = list[tuple[Var, Array]]


def _program(
    p: Program, inputs: Sequence[Var], outputs: Sequence[Atom], equations: Sequence[Equation] | None = None
) -> Program:
    return Program(inputs, p.equations if equations is None else equations, outputs, p.constvars, p.values, p.name)


# --- consts become operands ---


def lifted(e: Equation) -> tuple[Equation, Made]:
    """``e`` with the consts of its programs as operands: new variables, which are given with their values."""
    params, made = e.params, Made()
    if not any(p.constvars for p in e.programs()):
        return e, made
    if e.op.name == "cond":
        branches: Sequence[Program] = params["branches"]
        made = [(Var(v.type), x) for p in branches for v, x in zip(p.constvars, p.values, strict=True)]
        opened: list[Program] = []
        before = 0
        for p in branches:
            # Every branch takes the consts of all; those of others are not read.
            own = [Var(v.type) for v, _ in made]
            own[before : before + len(p.constvars)] = p.constvars
            before += len(p.constvars)
            opened.append(Program((*own, *p.inputs), p.equations, p.outputs, name=p.name))
        operands = (e.inputs[0], *(v for v, _ in made), *e.inputs[1:])
        return e.replaced(operands, e.outputs, {**params, "branches": tuple(opened)}), made
    body: Program = params["body"]
    mine = [(Var(v.type), x) for v, x in zip(body.constvars, body.values, strict=True)]
    body = body.close_over()[0]
    given = [v for v, _ in mine]
    if e.op.name == "scan":
        new = {**params, "body": body, "num_consts": params["num_consts"] + len(given)}
        return e.replaced((*given, *e.inputs), e.outputs, new), mine
    test: Program = params["cond"]
    others = [(Var(v.type), x) for v, x in zip(test.constvars, test.values, strict=True)]
    n, m = params["cond_nconsts"], params["body_nconsts"]
    new = {
        "cond": test.close_over()[0],
        "cond_nconsts": n + len(others),
        "body": body,
        "body_nconsts": m + len(given),
    }
    operands = (*(v for v, _ in others), *e.inputs[:n], *given, *e.inputs[n:])
    return e.replaced(operands, e.outputs, new), [*others, *mine]


# --- carries that never change become consts ---


def settled(e: Equation) -> tuple[Equation, dict[Var, Atom]]:
    """``e`` without carries that each turn hands on as they are; and what the results for them are."""
    params = e.params
    body: Program = params["body"]
    is_scan = e.op.name == "scan"
    if is_scan:
        first, count = params["num_consts"], params["num_carry"]
        start = first
    else:
        first, count = params["body_nconsts"], len(body.outputs)
        start = params["cond_nconsts"] + first
    fixed = [i for i in range(count) if body.outputs[i] is body.inputs[first + i]]
    if not fixed:
        return e, {}
    free = [i for i in range(count) if i not in set(fixed)]
    known: dict[Var, Atom] = {e.outputs[i]: e.inputs[start + i] for i in fixed}
    outputs = (*(e.outputs[i] for i in free), *e.outputs[count:])
    given = [e.inputs[start + i] for i in fixed]
    kept = [e.inputs[start + i] for i in free]
    inputs = (
        *body.inputs[:first],
        *(body.inputs[first + i] for i in fixed),
        *(body.inputs[first + i] for i in free),
        *body.inputs[first + count :],
    )
    smaller = _program(body, inputs, (*(body.outputs[i] for i in free), *body.outputs[count:]))
    if is_scan:
        operands = (*e.inputs[:start], *given, *kept, *e.inputs[start + count :])
        new = {**params, "body": smaller, "num_consts": first + len(fixed), "num_carry": len(free)}
        return e.replaced(operands, outputs, new), known
    test: Program = params["cond"]
    n = params["cond_nconsts"]
    test_inputs = (*test.inputs[:n], *(test.inputs[n + i] for i in fixed), *(test.inputs[n + i] for i in free))
    new = {
        "cond": _program(test, test_inputs, test.outputs),
        "cond_nconsts": n + len(fixed),
        "body": smaller,
        "body_nconsts": first + len(fixed),
    }
    operands = (*e.inputs[:n], *given, *e.inputs[n:start], *given, *kept)
    return e.replaced(operands, outputs, new), known


# --- what consts alone decide is computed before the loop ---


def hoisted(e: Equation) -> tuple[list[Equation], Equation]:
    """Equations to run before the loop ``e``, and the loop that is left.

    The body of a loop that may take no turn may hold what would never end: that stays where it is.
    """
    if e.op.name == "scan":
        before, body, given = _hoisted(e.params["body"], e.params["num_consts"], e.inputs, e.params["length"] > 0)
        if not before:
            return [], e
        new = {**e.params, "body": body, "num_consts": e.params["num_consts"] + len(given)}
        return before, e.replaced((*given, *e.inputs), e.outputs, new)
    n, m = e.params["cond_nconsts"], e.params["body_nconsts"]
    early, test, first = _hoisted(e.params["cond"], n, e.inputs[:n], True)
    before, body, second = _hoisted(e.params["body"], m, e.inputs[n : n + m], False)
    if not early and not before:
        return [], e
    new = {"cond": test, "cond_nconsts": n + len(first), "body": body, "body_nconsts": m + len(second)}
    return [*early, *before], e.replaced((*first, *e.inputs[:n], *second, *e.inputs[n:]), e.outputs, new)


def _is_cheap(e: Equation) -> bool:
    """Whether it is made where it is read, each turn: moves, and bytes as floats, which are read faster as bytes."""
    if e.op.name in _CHEAP:
        return True
    return e.op.name == "convert_element_type" and e.inputs[0].type.dtype in _BYTES


def _ends(e: Equation) -> bool:
    """Whether it surely comes to an end."""
    return e.op.name != "while" and all(_ends(inner) for p in e.programs() for inner in p.equations)


def _hoisted(
    p: Program, num_consts: int, operands: Sequence[Atom], runs: bool
) -> tuple[list[Equation], Program, list[Var]]:
    """Equations that need only the first ``num_consts`` inputs, on ``operands``; the rest of ``p``; new operands.

    The rest takes what the equations give as leading inputs. ``runs``: ``p`` surely runs, at least once.
    """
    fixed: set[Var] = set(p.inputs[:num_consts])
    candidates: set[Equation] = set()
    for e in p.equations:
        if e.effect or e.op.name in _FIXED or not all(isinstance(a, Literal) or a in fixed for a in e.inputs):
            continue
        if not (runs or _ends(e)):
            continue
        candidates.add(e)
        fixed.update(e.outputs)
    if not candidates:
        return [], p, []
    # From the end: what is left of the body reads values; a cheap one is made where it is read.
    read: set[Atom] = set(p.outputs)
    rest: list[Equation] = []
    moved: list[Equation] = []
    needed_before: set[Atom] = set()
    for e in reversed(p.equations):
        if e not in candidates:
            rest.append(e)
            read.update(e.inputs)
            continue
        if not read.isdisjoint(e.outputs):
            if _is_cheap(e):
                rest.append(e)
                read.update(e.inputs)
            else:
                needed_before.update(e.outputs)
        if not needed_before.isdisjoint(e.outputs):
            moved.append(e)
            needed_before.update(e.inputs)
    if not moved:
        return [], p, []
    env: dict[Var, Atom] = dict(zip(p.inputs[:num_consts], operands, strict=False))
    before: list[Equation] = []
    inner: list[Var] = []
    for e in reversed(moved):
        outputs = tuple([Var(v.type) for v in e.outputs])
        env.update(zip(e.outputs, outputs, strict=True))
        inputs = tuple([env[a] if isinstance(a, Var) else a for a in e.inputs])
        before.append(Equation(e.op, inputs, outputs, e.params, e.source, e.scope))
        if not _is_cheap(e):
            inner += [v for v in e.outputs if v in read]
    outer = [env[v] for v in inner]
    return before, _program(p, (*inner, *p.inputs), p.outputs, rest[::-1]), outer  # pyright: ignore[reportReturnType]


# --- results that nobody reads ---


def trimmed(e: Equation, read: Collection[Var]) -> Equation:
    """``e`` without the results that are not in ``read``, and without operands that only they need."""
    if e.op.name == "scan":
        return _trimmed_scan(e, read)
    if e.op.name == "cond":
        return _trimmed_cond(e, read)
    return _trimmed_while(e, read)


def _reached(p: Program, outputs: Sequence[Atom]) -> set[Atom]:
    """What ``outputs`` of ``p``, and its effects, are computed from."""
    live: set[Atom] = set(outputs)
    for e in reversed(p.equations):
        if e.effect or not live.isdisjoint(e.outputs):
            live.update(e.inputs)
    return live


def _live_carries(body: Program, first: int, count: int, wanted: set[int], others: Sequence[Atom]) -> set[int]:
    """The carries that ``wanted`` ones and ``others`` among the results are computed from, in any number of turns."""
    while True:
        live = _reached(body, [*(body.outputs[i] for i in sorted(wanted)), *others])
        grown = wanted | {i for i in range(count) if body.inputs[first + i] in live}
        if grown == wanted:
            return wanted
        wanted = grown


def _trimmed_scan(e: Equation, read: Collection[Var]) -> Equation:
    params = e.params
    body: Program = params["body"]
    first, count = params["num_consts"], params["num_carry"]
    ys = [i for i in range(count, len(e.outputs)) if e.outputs[i] in read]
    carries = _live_carries(
        body, first, count, {i for i in range(count) if e.outputs[i] in read}, [body.outputs[i] for i in ys]
    )
    kept = [*sorted(carries), *ys]
    live = _reached(body, [body.outputs[i] for i in kept])
    whole = first + count
    taken = [i for i, v in enumerate(body.inputs) if (i - first in carries if first <= i < whole else v in live)]
    if len(kept) == len(e.outputs) and len(taken) == len(body.inputs):
        return e
    smaller = _program(body, [body.inputs[i] for i in taken], [body.outputs[i] for i in kept])
    new = {
        **params,
        "body": dead_code_eliminated(smaller),
        "num_consts": sum(i < first for i in taken),
        "num_carry": len(carries),
    }
    return e.replaced(tuple([e.inputs[i] for i in taken]), tuple([e.outputs[i] for i in kept]), new)


def _trimmed_while(e: Equation, read: Collection[Var]) -> Equation:
    params = e.params
    test: Program = params["cond"]
    body: Program = params["body"]
    n, m = params["cond_nconsts"], params["body_nconsts"]
    count = len(body.outputs)
    asked = _reached(test, test.outputs)
    wanted = {i for i in range(count) if e.outputs[i] in read or test.inputs[n + i] in asked}
    kept = sorted(_live_carries(body, m, count, wanted, ()))
    live = _reached(body, [body.outputs[i] for i in kept])
    first = [i for i in range(n) if test.inputs[i] in asked]
    second = [i for i in range(m) if body.inputs[i] in live]
    if len(kept) == count and len(first) == n and len(second) == m:
        return e
    inputs = [*(body.inputs[i] for i in second), *(body.inputs[m + i] for i in kept)]
    test_inputs = [*(test.inputs[i] for i in first), *(test.inputs[n + i] for i in kept)]
    new = {
        "cond": _program(test, test_inputs, test.outputs),
        "cond_nconsts": len(first),
        "body": dead_code_eliminated(_program(body, inputs, [body.outputs[i] for i in kept])),
        "body_nconsts": len(second),
    }
    operands = (
        *(e.inputs[i] for i in first),
        *(e.inputs[n + i] for i in second),
        *(e.inputs[n + m + i] for i in kept),
    )
    return e.replaced(operands, tuple([e.outputs[i] for i in kept]), new)


def _trimmed_cond(e: Equation, read: Collection[Var]) -> Equation:
    branches: Sequence[Program] = e.params["branches"]
    kept = [i for i, v in enumerate(e.outputs) if v in read]
    lives = [_reached(p, [p.outputs[i] for i in kept]) for p in branches]
    taken = [
        i for i in range(len(e.inputs) - 1) if any(p.inputs[i] in live for p, live in zip(branches, lives, strict=True))
    ]
    if len(kept) == len(e.outputs) and len(taken) == len(e.inputs) - 1:
        return e
    smaller = [
        dead_code_eliminated(_program(p, [p.inputs[i] for i in taken], [p.outputs[i] for i in kept])) for p in branches
    ]
    operands = (e.inputs[0], *(e.inputs[1 + i] for i in taken))
    return e.replaced(operands, tuple([e.outputs[i] for i in kept]), {**e.params, "branches": tuple(smaller)})
