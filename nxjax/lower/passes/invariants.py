"""What no pass may change: the types of arguments and results, the order of effects. Asked under `config.check`.

Equations themselves are checked by `trace.program.check`. Must not know what any pass does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from nxjax.config import config
from nxjax.errors import ProgramError
from nxjax.trace.program import Equation, Literal, Program

if TYPE_CHECKING:
    from nxjax.transforms.control.loop_params import LoopParams


def passed(before: Program, after: Program, *, used: bool = False) -> Program:
    """``after``, which a pass has made of ``before``.

    Args:
        used: the pass promises to leave no const that nothing reads.

    Raises:
        ProgramError: it is not well formed, or is another function.
    """
    if not config.check or after is before:
        return after
    after.check()
    for what, old, new in (
        ("arguments", before.in_types, after.in_types),
        ("results", before.out_types, after.out_types),
    ):
        if len(old) != len(new) or not all(a.typematch(b) for a, b in zip(old, new, strict=True)):
            raise ProgramError(f"program: a pass changed the {what}", got=new, expected=old)
    read = {a for e in after.equations for a in e.inputs}.union(after.outputs)
    if used and not read.issuperset(after.constvars):
        raise ProgramError("program: a pass left consts that nothing reads", got=after.constvars)
    if before.effect or after.effect:
        old, new = list(effects(before)), list(effects(after))
        if _has_shard_map(before):  # one device takes the turns of all: what is inside becomes a loop's
            old, new = list(_names(old)), list(_names(new))
        if not _follows(new, old):
            raise ProgramError("program: a pass changed the order of effects", got=new, expected=old)
    return after


def effects(program: Program) -> Iterator[Any]:
    """Effects in program order, as names and rows of names; calls, and what runs once, are written out."""
    for e in program.equations:
        if e.op.effect:
            yield e.op.name
        elif e.effect:
            yield from _inside(e)


def _follows(new: Sequence[Any], old: Sequence[Any]) -> bool:
    """Whether ``new`` are the effects ``old``, where a pass may have found which branch runs, or that all are equal."""
    if not old:
        return not new
    first, rest = old[0], old[1:]
    if new and _alike(new[0], first) and _follows(new[1:], rest):
        return True
    return first[0] == "cond" and any(_follows(new, [*row, *rest]) for row in first[1])


def _alike(new: Any, old: Any) -> bool:
    if isinstance(new, str) or isinstance(old, str):
        return new == old
    return new[0] == old[0] and len(new[1]) == len(old[1]) and all(map(_follows, new[1], old[1]))


def _inside(e: Equation) -> Iterator[Any]:
    row = _ROWS.get(e.op.name)
    yield from effects(_called(e)) if row is None else row(e)


def _of_held(e: Equation) -> Iterable[Any]:
    return [(e.op.name, [list(effects(p)) for p in e.programs()])]


def _of_choice(e: Equation) -> Iterable[Any]:
    index = e.inputs[0]
    if not isinstance(index, Literal):
        return _of_held(e)
    branches: Sequence[Program] = e.params["branches"]
    at = int(index.value.numpy())  # pyright: ignore[reportAttributeAccessIssue]
    return effects(branches[min(max(at, 0), len(branches) - 1)])


def _of_scan(e: Equation) -> Iterable[Any]:
    loop: LoopParams = e.params["loop"]
    steps = len(loop.step_indices())
    return list(effects(loop.body)) * steps if steps < 2 else _of_held(e)


_ROWS: Final[dict[str, Callable[[Equation], Iterable[Any]]]] = {
    "cond": _of_choice,
    "scan": _of_scan,
    "while": _of_held,
}
# Of several programs the one that computes the results.
_COMPUTING: Final[dict[str, Callable[[dict[str, Any]], Program]]] = {
    "custom_linear_solve": lambda params: params["programs"][2],
    "custom_root": lambda params: params["solve"],
}


def _called(e: Equation) -> Program:
    """The program that computes a call's results."""
    find = _COMPUTING.get(e.op.name)
    return next(e.programs()) if find is None else find(e.params)


def _has_shard_map(program: Program) -> bool:
    return any(e.op.name == "shard_map" or any(map(_has_shard_map, e.programs())) for e in program.equations)


def _names(rows: Sequence[Any]) -> Iterator[str]:
    for row in rows:
        yield from (n for held in row[1] for n in _names(held)) if isinstance(row, tuple) else (row,)
