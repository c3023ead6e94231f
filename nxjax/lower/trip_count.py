"""How often a loop goes round, where that can be told before it runs: `while` with a plain counter and a known bound.

For what is estimated; what runs asks its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nxjax.trace.program import Atom, Equation, Literal, Program, Var

if TYPE_CHECKING:
    from nxjax.transforms.control.loop_params import LoopParams

# A number, or a variable plus a number.
Affine = tuple[Var | None, int]
DIRECTIONS: Final = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "ne": "NE"}
SWAPPED: Final = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


def trip_count(e: Equation) -> int | None:
    """How often the body of a ``while`` or ``scan`` runs; None where that is not known.

    >>> f = lambda x: nx.lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] + 3, s[1] * 2), (0, x))
    >>> [trip_count(e) for e in nx.make_jaxpr(f)(1.0).equations if e.op.name == "while"]
    [7]
    """
    if e.op.name == "scan":
        return e.params["loop"].length
    if e.op.name != "while":
        return None
    loop: LoopParams = e.params["loop"]
    cond = loop.condition
    x = loop.split(e.inputs)
    start = [_literal(a) for a in x.carry]
    after = _results(loop.body, x.consts)
    state = loop.inside(loop.body.inputs).carry
    # What no turn changes is a number in all of them.
    fixed = [n if a == (v, 0) else None for n, a, v in zip(start, after, state, strict=True)]
    test = _test(cond, [*map(_literal, x.cond_consts), *fixed])
    if test is None:
        return None
    counter, offset, direction, bound = test
    at = next((k for k, v in enumerate(cond.inputs[loop.num_cond_consts :]) if v is counter), -1)
    if at < 0:
        return None
    first, step = start[at], after[at]
    if first is None or step is None or step[0] is not state[at]:
        return None
    found = count(first + offset, step[1], direction, bound)
    info: Any = np.iinfo(counter.type.dtype)
    # A counter that leaves its dtype's range begins again at the other end.
    return found if found is None or info.min <= first + found * step[1] <= info.max else None


def trip_counts_within(e: Equation, one: Callable[[Equation], float]) -> float | None:
    """What a loop or a choice takes, where ``one`` gives that of one equation; None for all others.

    A loop takes what its equations take in all of its turns (in one, where their number is not known), a choice what
    its dearest branch does.
    """
    whole = _WITHIN.get(e.op.name)
    return None if whole is None else whole(e, [sum(map(one, held.equations)) for held in e.programs()])


def _of_turns(e: Equation, inner: Sequence[float]) -> float:
    often = trip_count(e)
    return sum(inner) * (1 if often is None else often)


_WITHIN: Final[dict[str, Callable[[Equation, Sequence[float]], float]]] = {
    "scan": _of_turns,
    "while": _of_turns,
    "cond": lambda e, inner: max(inner, default=0.0),
}


def count(first: int, step: int, direction: str, bound: int) -> int | None:
    """How many of first, first + step, ... there are before the comparison with ``bound`` fails; None: no end.

    >>> count(0, 1, "LT", 10), count(9, -3, "GE", 0), count(1, 2, "NE", 4), count(5, 1, "LT", 5)
    (10, 4, None, 0)
    """
    if direction == "NE":
        found, rest = divmod(bound - first, step) if step else (0, int(bound != first))
        return found if not rest and found >= 0 else None
    if direction in ("GT", "GE"):
        first, step, bound = -first, -step, -bound
    elif direction not in ("LT", "LE"):
        return None
    room = bound - first + (direction in ("LE", "GE"))
    if room <= 0:
        return 0
    return -(-room // step) if step > 0 else None


def _literal(a: Atom) -> int | None:
    """The number that an integer literal is."""
    if not isinstance(a, Literal) or not np.issubdtype(a.type.dtype, np.integer):
        return None
    return int(np.asarray(a.value))


def _value(env: Mapping[Var, Affine], a: Atom) -> Affine | None:
    if isinstance(a, Var):
        return env.get(a)
    number = _literal(a)
    return None if number is None else (None, number)


def _sum(e: Equation, xs: Sequence[Affine | None]) -> Affine | None:
    x, y = xs
    return _moved(x, y, 1) or _moved(y, x, 1)


def _moved(x: Affine | None, by: Affine | None, sign: int) -> Affine | None:
    """``x`` plus or less a number, if ``by`` is one."""
    return None if x is None or by is None or by[0] is not None else (x[0], x[1] + sign * by[1])


def _converted(e: Equation, xs: Sequence[Affine | None]) -> Affine | None:
    return xs[0] if np.issubdtype(e.outputs[0].type.dtype, np.integer) else None


_ROWS: Final[dict[str, Callable[[Equation, Sequence[Affine | None]], Affine | None]]] = {
    "add": _sum,
    "sub": lambda e, xs: _moved(xs[0], xs[1], -1),
    "convert_element_type": _converted,
}


def _environment(program: Program, known: Sequence[int | None]) -> dict[Var, Affine]:
    """Every value that is a number or an input plus one; ``known`` are numbers of the first inputs."""
    env: dict[Var, Affine] = {v: (v, 0) for v in program.inputs}
    env |= {v: (None, n) for v, n in zip(program.inputs, known, strict=False) if n is not None}
    for e in program.equations:
        row = _ROWS.get(e.op.name)
        found = None if row is None else row(e, [_value(env, x) for x in e.inputs])
        if found is not None:
            env[e.outputs[0]] = found
    return env


def _results(body: Program, consts: Sequence[Atom]) -> list[Affine | None]:
    """A loop's state after one turn, in terms of the body's own inputs."""
    env = _environment(body, [_literal(a) for a in consts])
    return [_value(env, a) for a in body.outputs]


def _test(cond: Program, known: Sequence[int | None]) -> tuple[Var, int, str, int] | None:
    """The comparison that a condition is: an input plus a number, a direction, a number."""
    (out,) = cond.outputs
    e = next((e for e in cond.equations if out in e.outputs), None)
    if e is None or e.op.name not in DIRECTIONS:
        return None
    env = _environment(cond, known)
    left, right = (_value(env, a) for a in e.inputs)
    direction = DIRECTIONS[e.op.name]
    if left is not None and left[0] is None:
        left, right, direction = right, left, SWAPPED[direction]
    if left is None or right is None or left[0] is None or right[0] is not None:
        return None
    return left[0], left[1], direction, right[1]
