"""Loops and choices with less to do: what does not change leaves the body, what nobody reads is not computed.

`lifted`, `with_constant_results`, `hoisted` and `trimmed` take an equation that holds programs and give one that holds
smaller ones.
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
from nxjax.transforms.control.loop_params import LoopParams, Operands
from nxjax.transforms.subprograms import Mask, fixed_point, hoist_all_consts, mask_or, select_by_mask, split_by_mask

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
        branches, consts = hoist_all_consts(params["branches"])
        made = [(Var(x.type), x) for x in consts]
        operands = (e.inputs[0], *(v for v, _ in made), *e.inputs[1:])
        shared = {"shared": (True,) * len(made) + params["shared"]} if params.get("shared") else {}
        return e.replaced(operands, e.outputs, {"branches": branches} | shared), made
    loop: LoopParams = params["loop"]
    held = [p for p in (loop.cond, loop.body) if p is not None]
    made = [(Var(v.type), x) for p in held for v, x in zip(p.constvars, p.values, strict=True)]
    given = [v for v, _ in made]
    n = len(given) - len(loop.body.constvars)
    return _reading(
        e, loop, loop.cond and loop.cond.hoist_consts()[0], given[:n], loop.body.hoist_consts()[0], given[n:]
    ), made


def _reading(
    e: Equation, loop: LoopParams, cond: Program | None, first: Sequence[Var], body: Program, second: Sequence[Var]
) -> Equation:
    """The loop ``e`` with programs that take more consts, before those that they had."""
    x: Operands[Atom] = loop.split(e.inputs)
    x = x._replace(cond_consts=(*first, *x.cond_consts), consts=(*second, *x.consts))
    n, m = len(x.cond_consts), len(x.consts)
    loop = loop._replace(body=body, num_consts=m, cond=cond, num_cond_consts=n)
    return e.replaced(x.flat, e.outputs, {"loop": loop})


# --- carries that never change become consts ---


def with_constant_results(e: Equation) -> tuple[Equation, dict[Var, Atom]]:
    """``e`` without carries that each step hands on as they are; and what the results for them are."""
    loop: LoopParams = e.params["loop"]
    fixed = loop.loop_invariant()
    if not any(fixed):
        return e, {}
    carry, ys = loop.results(e.outputs)
    gone, kept = split_by_mask(carry, fixed)
    known: dict[Var, Atom] = dict(zip(gone, select_by_mask(loop.split(e.inputs).carry, fixed), strict=True))
    loop, operands = loop.hoist_invariants(fixed, e.inputs)
    return e.replaced(operands.flat, (*kept, *ys), {"loop": loop}), known


# --- what consts alone decide is computed before the loop ---


def hoisted(e: Equation) -> tuple[list[Equation], Equation]:
    """Equations to run before the loop ``e``, and the loop that is left.

    The body of a loop that may take no step may hold what would never end: that stays where it is.
    """
    loop: LoopParams = e.params["loop"]
    x = loop.split(e.inputs)
    early, cond, first = [], None, []
    if loop.cond is not None:
        early, cond, first = _hoisted(loop.cond, loop.num_cond_consts, x.cond_consts, True)
    before, body, second = _hoisted(loop.body, loop.num_consts, x.consts, bool(loop.length))
    if not early and not before:
        return [], e
    return [*early, *before], _reading(e, loop, cond, first, body, second)


def _is_cheap(e: Equation) -> bool:
    """Whether it is made where it is read, each step: moves, and bytes as floats, which are read faster as bytes."""
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
    return _trimmed_cond(e, read) if e.op.name == "cond" else _trimmed_loop(e, read)


def _reached(p: Program, outputs: Sequence[Atom]) -> set[Atom]:
    """What ``outputs`` of ``p``, and its effects, are computed from."""
    live: set[Atom] = set(outputs)
    for e in reversed(p.equations):
        if e.effect or not live.isdisjoint(e.outputs):
            live.update(e.inputs)
    return live


def _trimmed_loop(e: Equation, read: Collection[Var]) -> Equation:
    loop: LoopParams = e.params["loop"]
    body, cond = loop.body, loop.cond
    inner = loop.inside(body.inputs)
    carry, ys = loop.results([v in read for v in e.outputs])
    asked, wanted = [], tuple(carry)
    if cond is not None:
        live = _reached(cond, cond.outputs)
        asked = [v in live for v in cond.inputs]
        wanted = mask_or(carry, asked[loop.num_cond_consts :])

    def step(carry: Mask) -> tuple[set[Atom], Mask]:
        """What the carries and ys that are wanted are computed from, and the carries among that."""
        live = _reached(body, select_by_mask(body.outputs, (*carry, *ys)))
        return live, mask_or(carry, [v in live for v in inner.carry])

    live, wanted = fixed_point(wanted, step)
    consts, xs = [v in live for v in inner.consts], [v in live for v in inner.xs]
    taken, kept = Operands(asked[: loop.num_cond_consts], consts, wanted, xs), (*wanted, *ys)
    if all((*taken.flat, *kept)):
        return e
    loop = loop.dce(taken, kept)
    loop = loop._replace(body=dead_code_eliminated(loop.body))
    inputs, outputs = select_by_mask(e.inputs, taken.flat), select_by_mask(e.outputs, kept)
    return e.replaced(tuple(inputs), tuple(outputs), {"loop": loop})


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
    shared = e.params.get("shared", ())
    masks = {"shared": tuple(shared[i] for i in taken if i < len(shared))} if shared else {}
    return e.replaced(operands, tuple([e.outputs[i] for i in kept]), e.params | {"branches": tuple(smaller)} | masks)
