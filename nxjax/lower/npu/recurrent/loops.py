"""Which loops are recurrent layers. Knows programs, no graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np

from nxjax.lower.npu.recurrent.algebra import Algebra, NoForm, StepValue
from nxjax.lower.npu.recurrent.cells import Cell, cells_of
from nxjax.lower.npu.recurrent.step import Known, computed
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.fold import FoldedValue
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.inline import inlined


@final
@dataclass(frozen=True)
class LoopLayers:
    """A loop as layers.

    Attributes:
        cells: each reads what a step reads, and results of those before it.
        kept: the places of carries that no step changes.
        rest: what is left of a step: a program of what `sources` names that gives the loop's further results; None
            where these are the results of cells.
        sources: what the inputs of ``rest`` are, in order: ("const" or "kept" or "row", place) or ("cell", number).
        results: for each further result of the loop, the cell whose result it is, or None: one of ``rest``.
    """

    cells: list[Cell]
    kept: frozenset[int]
    rest: Program | None
    sources: list[tuple[str, int]]
    results: list[int | None]


def layers_of(loop: LoopParams, types: Sequence[Any], consts: Sequence[NDArray | None]) -> LoopLayers | None:
    """The layers that a loop is, or None.

    Args:
        loop: of a scan.
        types: of its operands.
        consts: what is known of the consts of its body.
    """
    if not loop.length or not loop.num_carry:
        return None
    body = dead_code_eliminated(inlined(loop.body, 0))
    given = loop.inside([v.type for v in body.inputs])
    invariant = loop.loop_invariant()
    states = [i for i in range(loop.num_carry) if not invariant[i]]
    shapes = {i: given.carry[i].shape for i in states}
    if not states or any(given.carry[i].dtype != dtypes.float32 or not shapes[i] for i in states):
        return None
    algebra = Algebra(math.prod(shapes[states[0]][:-1]))
    state = {i: v for i in states if (v := _given(algebra, "state", i, given.carry[i])) is not None}
    if len(state) < len(states):
        return None
    inputs: list[Known] = [None if x is None else FoldedValue(x, x.shape) for x in consts]
    inputs += [state.get(i) for i in range(loop.num_carry)]
    inputs += [_given(algebra, "row", i, t) for i, t in enumerate(given.xs)]
    values = computed(algebra, body, inputs)
    made = [values[a] if isinstance(a, Var) else None for a in loop.results(body.outputs)[0]]
    cells = cells_of(algebra, state, made)
    if cells is None:
        return None
    # Whatever has the value of a cell's result is that result.
    numbers = {_identity(made[c.states[0]]): n for n, c in enumerate(cells)}
    results = {v: numbers[i] for v, x in values.items() if (i := _identity(x)) in numbers}
    return _with_rest(loop, body, cells, results, frozenset(range(loop.num_carry)) - set(states))


def _given(algebra: Algebra, kind: str, place: int, t: Any) -> StepValue | None:
    try:
        return algebra.given(kind, place, t.shape) if t.dtype == dtypes.float32 else None
    except NoForm:
        return None


def _identity(x: Known) -> Any:
    return (x.shape, x.batch, tuple(map(id, x.segments))) if isinstance(x, StepValue) else None


def _with_rest(
    loop: LoopParams, body: Program, cells: list[Cell], results: dict[Var, int], kept: frozenset[int]
) -> LoopLayers | None:
    """Cells, and the program that makes the loop's further results of theirs; None if it reads former states.

    ``results`` are the variables that are results of cells.
    """
    ys = loop.results(body.outputs)[1]
    places = [results.get(y) if isinstance(y, Var) else None for y in ys]
    wanted = [y for y, n in zip(ys, places, strict=True) if n is None]
    if not wanted:
        return LoopLayers(cells, kept, None, [], places)
    given = loop.inside(body.inputs)
    sources = {v: ("const", i) for i, v in enumerate(given.consts)}
    sources |= {given.carry[i]: ("kept", i) for i in kept}
    sources |= {v: ("row", i) for i, v in enumerate(given.xs)}
    sources |= {v: ("cell", n) for v, n in results.items()}
    equations: list[Equation] = []
    needed = {a for a in wanted if isinstance(a, Var)}
    for e in reversed(body.equations):
        if not needed.isdisjoint(e.outputs) and results.keys().isdisjoint(e.outputs):
            equations.append(e)
            needed.difference_update(e.outputs)
            needed.update(a for a in e.inputs if isinstance(a, Var))
    if not needed <= {*sources, *body.constvars}:
        return None
    rest = Program(list(sources), equations[::-1], wanted, body.constvars, body.values)
    return LoopLayers(cells, kept, rest, list(sources.values()), places)


@cache
def kept(ops: frozenset[str]) -> Callable[[Equation, dict[Var, Any]], bool]:
    """Whether a scan is made of layers with these ops only, as far as its constants are known."""

    def keep(e: Equation, known: dict[Var, Any]) -> bool:
        if not ops:
            return False
        loop: LoopParams = e.params["loop"]
        consts = [_stand_in(a, known) for a in loop.split(e.inputs).consts]
        found = layers_of(loop, [a.type for a in e.inputs], consts)
        return found is not None and all(c.op in ops for c in found.cells)

    return keep


def _stand_in(a: Atom, known: dict[Var, Any]) -> NDArray | None:
    """A constant, or numbers in the place of one that is computed before the loop."""
    if isinstance(a, Var) and a not in known:
        rng = np.random.RandomState(0)
        return rng.uniform(1, 2, a.type.shape).astype(np.float32) if a.type.dtype == dtypes.float32 else None
    return (known[a] if isinstance(a, Var) else a.value).numpy()  # pyright: ignore[reportAttributeAccessIssue]
