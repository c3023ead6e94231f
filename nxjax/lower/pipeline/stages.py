"""Cuts a program into consecutive stages of about equal cost, each of which fits its device.

Knows equations, their costs and bytes; no device and no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.lower.macs import macs
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.trip_count import trip_counts_within
from nxjax.trace import dtypes
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.types import ArrayType
from nxjax.transforms.inline import inlined

# What one byte that is read or written weighs against a multiply-accumulate, where nobody says better: a tile moves 4
# bytes a cycle and multiplies 16 to 64 times.
_PER_BYTE: Final = 8


@final
@dataclass(frozen=True)
class ValueSource:
    """Where a value comes from: input ``index`` of the whole program, or output ``index`` of stage ``stage``."""

    kind: Literal["input", "stage"]
    index: int
    stage: int = -1


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """A part of a program.

    Attributes:
        program: of its own; consts are in it.
        sources: where each of its inputs comes from.
    """

    program: Program
    sources: tuple[ValueSource, ...]


@final
@dataclass(frozen=True, eq=False)
class Stages:
    """A whole program in stages.

    Attributes:
        stages: in order; a stage reads earlier ones only.
        outputs: where each result comes from.
    """

    stages: tuple[Stage, ...]
    outputs: tuple[ValueSource, ...]

    def __call__(self, *xs: object) -> list[object]:
        """All stages, one after the other: the same values as the program that was cut."""
        made: list[list[object]] = []
        find = lambda s: xs[s.index] if s.kind == "input" else made[s.stage][s.index]
        for stage in self.stages:
            made.append(list(stage.program(*map(find, stage.sources))))  # pyright: ignore[reportArgumentType]
        return [find(s) for s in self.outputs]


def nbytes(t: ArrayType) -> int:
    """Bytes of a value of type ``t``.

    >>> nbytes(ArrayType((3, 2), np.dtype(np.float16)))
    12
    """
    return t.size * max(dtypes.bit_width(t.dtype) // 8, 1)


def cost(e: Equation) -> float:
    """A device-independent estimate of the work of an equation, in multiply-accumulates."""
    inner = trip_counts_within(e, cost)
    if inner is not None:
        return inner
    moved = sum(nbytes(a.type) for a in e.inputs) + sum(nbytes(v.type) for v in e.outputs)
    return macs(e) + moved / _PER_BYTE


def cut(
    program: Program,
    count: int,
    cost: Callable[[Equation], float] = cost,
    limit: float | None = None,
    at: Sequence[int] | None = None,
) -> Stages:
    """``program`` in ``count`` stages of consecutive equations whose largest cost is smallest.

    Args:
        program: calls in it are inlined.
        count: of stages; at most one per equation.
        cost: of one equation.
        limit: bytes of parameters (inputs of the program, and consts) that a stage may hold. A cut that keeps to it is
            preferred over any that does not.
        at: instead of searching, begin stages 1, 2, ... at these equations (of the inlined program).

    Raises:
        ParameterError: more stages than equations, or places that do not increase.

    >>> p = nx.make_jaxpr(lambda x: nx.sin(nx.cos(nx.tan(x))))(np.ones(4, np.float32))
    >>> [[e.op.name for e in s.program.equations] for s in cut(p, 3).stages]
    [['tan'], ['cos'], ['sin']]
    """
    program = dead_code_eliminated(inlined(program))
    n = len(program.equations)
    if not 1 <= count <= max(n, 1):
        raise ParameterError(
            "pipeline: cannot be cut into so many stages", got=count, expected=f"1 to {max(n, 1)}, one per operation"
        )
    starts = _searched(program, count, cost, limit) if at is None else [0, *at]
    if len(starts) != count or sorted(set(starts)) != starts or starts[-1] >= max(n, 1):
        raise ParameterError("pipeline: places to cut", got=list(at or ()), expected=f"{count - 1} increasing places")
    return _divided(program, starts)


def _searched(program: Program, count: int, cost: Callable[[Equation], float], limit: float | None) -> list[int]:
    """First equations of the stages, by dynamic programming over (stages, equations)."""
    n = len(program.equations)
    work = np.concatenate([[0.0], np.cumsum([cost(e) for e in program.equations])])
    # The smallest possible (stages over their limit, largest cost, sum of squared costs) of the first i equations.
    best = np.full((3, n + 1), np.inf)
    best[:, 0] = 0.0
    over = _too_much(program, limit) if limit is not None else np.zeros((n + 1, n + 1))
    choice = np.zeros((count, n + 1), np.int64)
    for k in range(count):
        row = np.full((3, n + 1), np.inf)
        for end in range(k + 1, n - (count - 1 - k) + 1):
            part = work[end] - work[k:end]
            found = np.stack(
                [best[0, k:end] + over[k:end, end], np.maximum(best[1, k:end], part), best[2, k:end] + part * part]
            )
            at = np.lexsort(found[::-1])[0]
            row[:, end], choice[k, end] = found[:, at], k + at
        best = row
    starts: list[int] = []
    end = n
    for chosen in choice[::-1]:
        end = int(chosen[end])
        starts.append(end)
    return starts[::-1]


def _too_much(program: Program, limit: float) -> np.ndarray[Any, Any]:
    """1 where equations ``start`` to ``end`` read more than ``limit`` bytes of the program's own inputs and consts."""
    own = {*program.inputs, *program.constvars}
    reads = [{a for a in e.inputs if isinstance(a, Var) and a in own} for e in program.equations]
    n = len(reads)
    found = np.zeros((n + 1, n + 1))
    for end in range(1, n + 1):
        seen: set[Var] = set()
        held = 0
        for start in range(end - 1, -1, -1):
            new = reads[start] - seen
            seen |= new
            held += sum(nbytes(v.type) for v in new)
            found[start, end] = held > limit
    return found


def _divided(program: Program, starts: Sequence[int]) -> Stages:
    n = len(program.equations)
    values = dict(zip(program.constvars, program.values, strict=True))
    position = {v: ValueSource("input", i) for i, v in enumerate(program.inputs)}
    ends = [*starts[1:], n]
    ranges = [program.equations[a:b] for a, b in zip(starts, ends, strict=True)]
    # What later stages, or the results, read of each stage.
    results = {a for a in program.outputs if isinstance(a, Var)}
    read = [{a for e in part for a in e.inputs if isinstance(a, Var)} for part in ranges]
    stages: list[Stage] = []
    for k, part in enumerate(ranges):
        later = results.union(*read[k + 1 :])
        made = [v for e in part for v in e.outputs]
        own = set(made)
        inputs = [v for v in dict.fromkeys(a for e in part for a in e.inputs if isinstance(a, Var)) if v not in own]
        free = [v for v in inputs if v not in values]
        consts = [v for v in inputs if v in values]
        outputs = [v for v in made if v in later]
        body = Program(free, part, outputs, consts, [values[v] for v in consts], f"{program.name}.{k}")
        stages.append(Stage(body, tuple(position[v] for v in free)))
        position.update((v, ValueSource("stage", i, k)) for i, v in enumerate(outputs))
    # Results that no equation makes (an input, a constant) come from a last stage that passes them on.
    passed = [a for a in program.outputs if not isinstance(a, Var) or a not in position or position[a].kind == "input"]
    if passed:
        last = stages[-1].program
        known = {**dict(zip(last.constvars, last.values, strict=True))}
        more = [a for a in passed if isinstance(a, Var) and a in position and a not in last.inputs]
        known.update((a, values[a]) for a in passed if isinstance(a, Var) and a in values)
        outputs = [*last.outputs, *passed]
        body = Program([*last.inputs, *more], last.equations, outputs, list(known), list(known.values()), last.name)
        stages[-1] = Stage(body, (*stages[-1].sources, *(position[a] for a in more)))
    made_last = len(stages) - 1
    first_passed = len(stages[-1].program.outputs) - len(passed)
    found: list[ValueSource] = []
    waiting = iter(range(first_passed, first_passed + len(passed)))
    for a in program.outputs:
        here = position.get(a) if isinstance(a, Var) else None
        found.append(here if here and here.kind == "stage" else ValueSource("stage", next(waiting), made_last))
    return Stages(tuple(stages), tuple(found))
