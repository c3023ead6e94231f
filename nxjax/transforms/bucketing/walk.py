"""The equations of several programs in step: which equation, and which variable, of one is which of another.

All members do the same things in the same order, with one exception: what changes no shape is left out when a program
is traced, so a member may lack a slice, broadcast, reshape or pad that the others have (a table of 64 rows, cut to the
length, is not cut at length 64). Such an equation is put back. Knows no sizes and no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.types import ArrayType


@final
class MemberWalk:
    """Walks ``programs``; the variables of all of them are numbered alike: consts, inputs, then results in order."""

    def __init__(self, programs: Sequence[Program], wrong: Callable[..., Exception]) -> None:
        self._wrong = wrong
        self._programs = programs
        self._equations = [live_equations(p) for p in programs]
        self._number: list[dict[Var, int]] = []
        # Per member: the variable that an equation put back repeats, by number.
        self._same_as: list[dict[int, int]] = [{} for _ in programs]
        self._variable: list[list[Var]] = []
        for p in programs:
            header = [*p.constvars, *p.inputs]
            self._variable.append(header)
            self._number.append({v: i for i, v in enumerate(header)})
        if len({(len(p.constvars), len(p.inputs), len(p.outputs)) for p in programs}) > 1:
            raise wrong()

    def columns(self) -> Iterator[tuple[Equation, ...]]:
        """The equations that belong together, one per member."""
        at = [0] * len(self._programs)
        while any(i < len(rows) for i, rows in zip(at, self._equations, strict=True)):
            here = [rows[i] if i < len(rows) else None for i, rows in zip(at, self._equations, strict=True)]
            present = [e for e in here if e is not None]
            longest = max(range(len(at)), key=lambda m: len(self._equations[m]) - at[m])
            model = here[longest]
            assert model is not None
            if len(present) < len(here) or any(e.op is not model.op for e in present):
                found = [
                    e if e is not None and e.op is model.op else self._put_back(m, model, longest)
                    for m, e in enumerate(here)
                ]
            else:
                found = present
            if any(len(e.inputs) != len(model.inputs) for e in found):
                raise self._wrong(model.source)
            yield tuple(found)
            for m, (e, old) in enumerate(zip(found, here, strict=True)):
                at[m] += e is old
                for v in e.outputs:
                    self._number[m][v] = len(self._variable[m])
                    self._variable[m].append(v)

    def slot(self, atoms: Sequence[Atom], source: Any = None) -> int:
        """The number of the variable that the members read in one place."""
        numbers = [self._number[m][a] if isinstance(a, Var) else -1 for m, a in enumerate(atoms)]
        # A member without the equation reads what the equation would have repeated.
        wanted = max(numbers)
        if any(n != wanted and self._origin(m, wanted) != n for m, n in enumerate(numbers)):
            raise self._wrong(source)
        return wanted

    def _origin(self, member: int, number: int) -> int:
        seen = self._same_as[member]
        while number in seen:
            number = seen[number]
        return number

    def _put_back(self, member: int, model: Equation, owner: int) -> Equation:
        """The equation that ``member`` lacks because it would have changed nothing there."""
        first, *rest = model.inputs
        if not isinstance(first, Var) or model.op.name not in _UNCHANGED or any(isinstance(a, Var) for a in rest):
            raise self._wrong(model.source)
        source = self._number[owner][first]
        v = self._variable[member][source]
        params = _UNCHANGED[model.op.name](v.type, model.op.with_defaults(model.params))
        if params is None or len(model.outputs) != 1:
            raise self._wrong(model.source)
        out = Var(v.type)
        self._same_as[member][len(self._variable[member])] = source
        return Equation(model.op, (v, *rest), (out,), params, model.source, model.scope)


def _slice(type: ArrayType, params: dict[str, Any]) -> dict[str, Any] | None:
    if any(k != 1 for k in params["strides"] or ()):
        return None
    return {**params, "start_indices": (0,) * type.ndim, "limit_indices": type.shape}


def _broadcast(type: ArrayType, params: dict[str, Any]) -> dict[str, Any] | None:
    same = tuple(range(type.ndim))
    return {**params, "shape": type.shape} if params["broadcast_dimensions"] == same else None


def _reshape(type: ArrayType, params: dict[str, Any]) -> dict[str, Any] | None:
    return {**params, "shape": type.shape}


def _pad(type: ArrayType, params: dict[str, Any]) -> dict[str, Any] | None:
    return {**params, "padding_config": ((0, 0, 0),) * type.ndim}


# op -> the parameters with which it changes nothing of a type
_UNCHANGED: dict[str, Callable[[ArrayType, dict[str, Any]], dict[str, Any] | None]] = {
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "pad": _pad,
}


def live_equations(program: Program) -> list[Equation]:
    """The equations that results or effects need, kept with the program."""

    def make() -> list[Equation]:
        wanted = {a for a in program.outputs if isinstance(a, Var)}
        kept: list[Equation] = []
        for e in reversed(program.equations):
            if e.effect or any(v in wanted for v in e.outputs):
                kept.append(e)
                wanted.update(a for a in e.inputs if isinstance(a, Var))
        return kept[::-1]

    return program.derive("live", make)
