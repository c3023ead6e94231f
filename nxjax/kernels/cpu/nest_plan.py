"""The passes of a nest as data, and whether they are right: what each makes, reads back and saves, and where.

`nest_passes` plans them, `nest_emit` writes them. `flaw` looks at the result, by the graph and the strides alone: it
shares no rule with what made the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.expression import ExpressionNode

if TYPE_CHECKING:
    from nxjax.kernels.cpu.nest import Item, Nest

TILE: Final = 64  # columns at most that go together where there are several passes


@final
@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the reduced loops.

    Attributes:
        values: of the whole space, that it takes, in order.
        back: those of them that it reads back from scratch memory; it makes the others.
    """

    values: list[int]
    back: frozenset[int]


@final
@dataclass(frozen=True, slots=True)
class SavedValue:
    """Where a value is saved for later passes: ``nbytes`` from ``offset`` on, bytes from element to element."""

    value: int
    offset: int
    nbytes: int
    strides: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class NestPlan:
    """The passes in order, and the saved values."""

    passes: tuple[Pass, ...]
    slots: tuple[SavedValue, ...]


def flaw(nest: Nest) -> str:
    """What is wrong with the plan of ``nest``, or nothing."""
    if nest.kept == len(nest.sizes):
        return ""  # nothing is reduced, so nothing waits
    return _order(nest, nest.plan) or ("" if nest.whole else _places(nest, nest.plan.slots))


def uneven(nest: Nest, lanes: int) -> str:
    """What vectors of so many lanes would touch that is not theirs in columns of ``nest``, or nothing.

    A tile is a whole vector. Only the one at the end of the last block has a mask, and what waits in scratch memory
    has room for whole vectors.
    """
    if nest.rows or not nest.kept:
        return ""
    if nest.blocks > 1 and nest.block % lanes:
        return f"a block of {nest.block} columns ends within a vector of {lanes}"
    if nest.whole:
        wide = -(-min(nest.sizes[nest.lane], nest.block) // lanes) * lanes
        if wide * nest.accumulated > nest.scratch:
            return f"accumulators of {wide} columns have {nest.scratch} bytes of scratch memory"
    if nest.plan.slots and lanes > TILE:
        return f"a vector of {lanes} is saved where {TILE} columns have room"
    return ""


def _order(nest: Nest, plan: NestPlan) -> str:
    """Whether all that a pass takes is there by then."""
    first = len(nest.inputs)
    inside, since = _nature(nest)
    saved = {s.value for s in plan.slots}
    made: set[int] = set()
    wanted: dict[int, list[tuple[int, str]]] = {}
    for i, node in enumerate(nest.nodes, first):
        arg = _reduced(node)
        if arg is not None:
            wanted.setdefault(since[arg], []).append((arg, f"reduction {i}"))
    for k, y in enumerate(nest.outputs):
        if nest.inside(y):
            wanted.setdefault(since[y.value], []).append((y.value, f"output {k}"))
    if max([*wanted, 0]) >= len(plan.passes):
        return f"there are {len(plan.passes)} passes, and something is made after them"
    for p, one in enumerate(plan.passes):
        here: set[int] = set()

        def missing(i: int, p: int = p, here: set[int] = here) -> bool:
            return i not in here if inside[i] else since[i] > p

        for i in one.values:
            if i in one.back:
                if i not in made or i not in saved:
                    return f"pass {p} reads value {i} back from scratch memory, which no pass before has saved there"
            elif i >= first:
                node = nest.nodes[i - first]
                for a in node.args if isinstance(node, ExpressionNode) else ():
                    if missing(a):
                        return f"pass {p} makes value {i} of value {a}, which is not there"
            here.add(i)
        for i, what in wanted.get(p, ()):
            if missing(i):
                return f"pass {p} does not have value {i} for {what}"
        made |= here - one.back
    return ""


def _nature(nest: Nest) -> tuple[list[bool], list[int]]:
    """Of each value whether it varies along the reduced dimensions, and how many reductions are below it in a row."""
    reduced = range(nest.kept, len(nest.sizes))
    varies: Callable[[Sequence[int]], bool] = lambda steps: any(steps[d] and nest.sizes[d] != 1 for d in reduced)
    inside, since = [varies(x.strides) for x in nest.inputs], [0] * len(nest.inputs)
    for node in nest.nodes:
        if isinstance(node, ExpressionNode):
            inside.append(any(inside[a] for a in node.args))
            since.append(max((since[a] for a in node.args), default=0))
        else:
            arg = _reduced(node)
            inside.append(varies(getattr(node, "steps", (0,) * len(nest.sizes))))
            since.append(0 if arg is None else since[arg] + 1)
    return inside, since


def _reduced(node: Item) -> int | None:
    """Which value a node reduces, if it does that."""
    return getattr(node, "arg", None)


def _places(nest: Nest, slots: Sequence[SavedValue]) -> str:
    """Whether saved values lie apart from one another, and their elements, too."""
    used = 0
    for s in sorted(slots, key=lambda s: s.offset):
        if s.offset < used or s.offset % 64:
            return f"value {s.value} is saved at {s.offset}, where another is"
        used = s.offset + s.nbytes
        size = nest.dtype_of(s.value).itemsize
        dims = [(n, s.strides[d]) for d, n in enumerate(nest.sizes) if d >= nest.kept and n > 1]
        if not nest.rows:
            dims.append((TILE, s.strides[nest.lane]))
        length = size
        for n, stride in sorted(dims, key=lambda d: d[1]):
            if stride < length:
                return f"elements of value {s.value} are saved in the same place"
            length = stride * (n - 1) + length
        if length > s.nbytes or math.prod(n for n, _ in dims) * size > s.nbytes:
            return f"value {s.value} takes {length} bytes of scratch memory and has {s.nbytes}"
    if used > nest.scratch:
        return f"saved values take {used} bytes of scratch memory, of which there are {nest.scratch}"
    return ""
