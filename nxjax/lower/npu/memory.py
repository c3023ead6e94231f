"""The arena of activations: how long each lives, where each lies, how much all need at once, and an order needing less.

Constants are not in the arena (they lie in flash or come with the executable). Knows graphs, no chip and no format:
a format that carries offsets, a memory limit or a report read them from here.

Offsets are found greedily by size (Pisarchyk & Lee 2020, "Efficient Memory Management for Deep Neural Net Inference",
arXiv:2001.03288, section 5), other orders being tried where that misses the lower bound.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, final

from nxjax.errors import MemoryLimitError, ParameterError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.memory_picture import svg, text
from nxjax.lower.npu.ops import op_of

# Up to so many blocks every order of placing them is tried where no greedy order meets the lower bound.
_EXACT: Final = 7
# At most so many further orders are tried, and fewer of many blocks: so many pairs of blocks are looked at in all.
_ORDERS: Final = 300
_PAIRS: Final = 2_000_000
# So many sets of nodes already run are looked at before `reorder` settles for a greedy order.
_STATES: Final = 20_000


@final
@dataclass(frozen=True, eq=False)
class ArenaBlock:
    """Bytes of the arena, and the tensors that lie there: one after another (in place) or the same bytes (views).

    Attributes:
        tensors: in the order in which they are made.
        size: bytes, rounded up to the alignment.
        first: the step in which the first is written.
        last: the step in which the last is read.
        offset: bytes from the arena's start.
    """

    tensors: tuple[Tensor, ...]
    size: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.size

    def meets(self, other: ArenaBlock) -> bool:
        """Whether both live at some step, so that they must not share a byte."""
        return self.first <= other.last and other.first <= self.last


@final
@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Where every activation of a graph lies.

    Step i is the run of node i; the step after the last node is when the caller reads the results.

    Attributes:
        graph: the graph, whose order of nodes the plan follows.
        align: every offset is a multiple of it.
        blocks: with offsets, in order of their first step.
        lifetimes: the first and the last step of each tensor.
        peak: bytes of the arena.
        bound: the most bytes alive in one step: no plan of this order is smaller.
    """

    graph: NpuGraph
    align: int
    blocks: list[ArenaBlock]
    lifetimes: dict[Tensor, tuple[int, int]]
    peak: int
    bound: int

    @property
    def offsets(self) -> dict[Tensor, int]:
        """The offset of each tensor."""
        return {t: b.offset for b in self.blocks for t in b.tensors}

    def live(self, step: int) -> list[ArenaBlock]:
        """The blocks in use in a step."""
        return [b for b in self.blocks if b.first <= step <= b.last]

    @property
    def peak_step(self) -> int:
        """The step in which most bytes are alive."""
        alive = _alive(self.blocks, _steps(self.graph))
        return alive.index(max(alive))

    def largest(self, count: int = 5) -> list[ArenaBlock]:
        """The largest blocks of the step in which most is alive."""
        return sorted(self.live(self.peak_step), key=lambda b: -b.size)[:count]

    def picture(self, width: int = 72, height: int = 16) -> str:
        """Time from left to right, addresses from the bottom up, one letter per block; the largest are named below."""
        return text(self, width, height)

    def svg(self) -> str:
        """The same as an SVG drawing; hovering over a block names it."""
        return svg(self)

    def _repr_html_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.picture()


def plan(graph: NpuGraph, align: int = 16, in_place: bool = True) -> MemoryPlan:
    """Lay the activations of ``graph`` out in one arena.

    Args:
        graph: its nodes run in their order; inputs are there before the first, results are kept until after the last.
        align: a power of two that every offset is a multiple of.
        in_place: let element-by-element nodes overwrite an operand that dies with them.

    Returns:
        a plan in which no two tensors that are alive together share a byte, but those one of which is the other's
        in-place result or view.

    >>> x, y = (Tensor(n, (4, 8), "int8") for n in "xy")
    >>> g = NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))])
    >>> plan(g).peak, plan(g, in_place=False).peak
    (32, 64)
    """
    if align < 1 or align & (align - 1):
        raise ParameterError("memory plan: the alignment is not a power of two", got=align)
    lifetimes = _lifetimes(graph)
    blocks = [
        ArenaBlock(
            tuple(group),
            max(_padded(t, align) for t in group),
            min(lifetimes[t][0] for t in group),
            max(lifetimes[t][1] for t in group),
        )
        for group in _groups(graph, lifetimes, in_place)
    ]
    bound = max(_alive(blocks, _steps(graph)))
    orders: list[Callable[[ArenaBlock], tuple[int, int]]] = [
        lambda b: (-b.size, b.first),
        lambda b: (-b.size * (b.last - b.first + 1), b.first),
        lambda b: (b.first, -b.size),
    ]
    best: list[ArenaBlock] | None = None
    for order in orders:
        placed = _place(sorted(blocks, key=order))
        if best is None or _top(placed) < _top(best):
            best = placed
        if _top(best) == bound:
            break
    assert best is not None
    if _top(best) > bound:
        best = _every_order(blocks, best, bound) if len(blocks) <= _EXACT else _climbed(best, bound)
    best = sorted(best, key=lambda b: (b.first, b.offset))
    return MemoryPlan(graph, align, best, lifetimes, _top(best), bound)


def check_limit(plan: MemoryPlan, limit: int) -> MemoryPlan:
    """Raise `MemoryLimitError`, naming the largest tensors and their lines, if the arena is over ``limit`` bytes.

    >>> x, y = Tensor("x", (4, 8), "int8"), Tensor("y", (4, 8), "int8")
    >>> p = plan(NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))]))
    >>> check_limit(p, 32) is p
    True
    """
    if plan.peak <= limit:
        return plan
    makers = plan.graph.producers()
    step = plan.peak_step
    at = plan.graph.nodes[step] if step < len(plan.graph.nodes) else None
    rows: list[str] = []
    for b in plan.largest():
        t = max(b.tensors, key=lambda t: t.nbytes)
        node = makers.get(t)
        what = f"{t.dtype}{list(t.shape)} of {node.op}" if node else f"{t.dtype}{list(t.shape)}, an input"
        where = f" at {node.source}" if node and node.source else ""
        rows.append(f"{t.name}: {b.size} bytes, {what}{where}")
    raise MemoryLimitError(
        f"memory: {plan.graph.name!r} does not fit its memory limit",
        got=f"{plan.peak} bytes at once, most while {at.op if at else 'the results are read'} runs:"
        + "".join(f"\n{'':<12}{row}" for row in rows),
        expected=f"at most {limit} bytes",
        fix="a smaller batch or image, narrower layers at the places above, int8 in place of int16 or float32, "
        "or a higher limit",
        source=at.source if at else None,
    )


def reorder(graph: NpuGraph, align: int = 16) -> NpuGraph:
    """The same graph with its nodes in an order whose arena is smaller, or ``graph`` itself if none was found.

    A search over the sets of nodes that have run, cheapest peak first, finds the least peak where such sets are few
    (chains with some branches, however long); else the order is greedy: next the node that frees most.

    >>> x, y = Tensor("x", (4, 8), "int8"), Tensor("y", (4, 8), "int8")
    >>> g = NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))])
    >>> reorder(g) is g
    True
    """
    search = _Search(graph, align)
    order = search.best() or search.greedy()
    other = replace(graph, nodes=[graph.nodes[i] for i in order])
    return other if plan(other, align).peak < plan(graph, align).peak else graph


def _steps(graph: NpuGraph) -> int:
    return len(graph.nodes) + 1


def _alive(blocks: Sequence[ArenaBlock], steps: int) -> list[int]:
    """Bytes alive in each step."""
    change = [0] * (steps + 1)
    for b in blocks:
        change[b.first] += b.size
        change[b.last + 1] -= b.size
    return list(accumulate(change))[:steps]


def _padded(t: Tensor, align: int) -> int:
    return -(-t.nbytes // align) * align


def _lifetimes(graph: NpuGraph) -> dict[Tensor, tuple[int, int]]:
    end = len(graph.nodes)
    found: dict[Tensor, tuple[int, int]] = dict.fromkeys(graph.inputs, (0, 0))
    for i, n in enumerate(graph.nodes):
        found.update((t, (found[t][0], i)) for t in n.operands if not t.constant)
        found.update((t, (i, i)) for t in n.outputs)
    found.update((t, (found[t][0], end)) for t in graph.outputs if not t.constant)
    return found


def _bits(t: Tensor) -> float:
    return 8 * t.nbytes / max(t.size, 1)


def _overwritable(node: Node) -> list[Tensor]:
    """The operands whose bytes the result may take, when nobody else reads them."""
    op = op_of(node)
    if op.view:
        return [t for t in node.operands[:1] if not t.constant]
    if not op.elementwise:
        return []
    out = node.output
    return [
        t for t in dict.fromkeys(node.operands) if not t.constant and t.shape == out.shape and _bits(t) == _bits(out)
    ]


def _groups(graph: NpuGraph, lifetimes: dict[Tensor, tuple[int, int]], in_place: bool) -> list[list[Tensor]]:
    """Tensors that lie in the same bytes."""
    groups: dict[Tensor, list[Tensor]] = {t: [t] for t in graph.inputs}
    for i, n in enumerate(graph.nodes):
        for t in n.outputs:
            groups[t] = [t]
        if not in_place:
            continue
        for x in _overwritable(n):
            group = groups[x]
            if not op_of(n).view:
                dies = all(lifetimes[t][1] <= i for t in group)
                # A view of x with another shape would be read at positions that are overwritten already.
                crossed = any(t in group and t.shape != x.shape for t in n.operands)
                if not dies or crossed:
                    continue
            group.append(n.output)
            groups[n.output] = group
            break
    return list({id(g): g for g in groups.values()}.values())


def _top(blocks: Sequence[ArenaBlock]) -> int:
    return max((b.end for b in blocks), default=0)


def _fit(block: ArenaBlock, placed: Sequence[ArenaBlock], snug: bool) -> ArenaBlock:
    """``block`` in a gap between the placed ones that it meets: the lowest, or the one that it fills best."""
    best, best_gap, floor = -1, -1, 0
    for other in sorted((p for p in placed if p.meets(block)), key=lambda p: p.offset):
        gap = other.offset - floor
        if gap >= block.size and (best < 0 or (snug and gap < best_gap)):
            best, best_gap = floor, gap
        floor = max(floor, other.end)
    return replace(block, offset=best if best >= 0 else floor)


def _place(order: Sequence[ArenaBlock]) -> list[ArenaBlock]:
    placed: list[ArenaBlock] = []
    for block in order:
        placed.append(_fit(block, placed, snug=True))
    return placed


def _every_order(blocks: list[ArenaBlock], best: list[ArenaBlock], bound: int) -> list[ArenaBlock]:
    """The least arena. Placing blocks lowest-first in the order of an optimal plan's offsets gives that plan's peak."""

    def place(rest: list[ArenaBlock], placed: list[ArenaBlock]) -> None:
        nonlocal best
        if not rest:
            best = list(placed)
        for i, block in enumerate(rest):
            done = _fit(block, placed, snug=False)
            if _top(best) > bound and done.end < _top(best):
                place(rest[:i] + rest[i + 1 :], [*placed, done])

    place(blocks, [])
    return best


def _climbed(best: list[ArenaBlock], bound: int) -> list[ArenaBlock]:
    """Other orders of placing, each the best one so far with a block of the top moved ahead; kept if not worse."""
    # The same plan every time, wherever it is made.
    rng = random.Random(len(best))
    for _ in range(min(_ORDERS, _PAIRS // len(best) ** 2)):
        if _top(best) == bound:
            break
        highest = [i for i, b in enumerate(best) if b.end == _top(best)]
        moved = rng.choice(highest)
        order = [*best[:moved], *best[moved + 1 :]]
        order.insert(rng.randrange(moved + 1), best[moved])
        placed = _place(order)
        if _top(placed) <= _top(best):
            best = placed
    return best


@final
class _Search:
    """Orders of a graph's nodes, by the bytes alive while each runs. Sets of nodes are bits of an integer."""

    def __init__(self, graph: NpuGraph, align: int) -> None:
        self.count = len(graph.nodes)
        kept = set(graph.outputs)
        makers = {t: i for i, n in enumerate(graph.nodes) for t in n.outputs}
        readers = dict.fromkeys([*graph.inputs, *makers], 0)
        for i, n in enumerate(graph.nodes):
            for t in n.operands:
                if not t.constant:
                    readers[t] |= 1 << i
        self.needs = [sum({1 << makers[t] for t in n.operands if t in makers}) for n in graph.nodes]
        # Per node: bytes made, bytes of those that nobody reads, operands as (readers, bytes, may be overwritten).
        self.made = [sum(_padded(t, align) for t in n.outputs) for n in graph.nodes]
        self.wasted = [
            sum(_padded(t, align) for t in n.outputs if not readers[t] and t not in kept) for n in graph.nodes
        ]
        self.reads = [
            [
                (readers[t], _padded(t, align), t in _overwritable(n))
                for t in dict.fromkeys(n.operands)
                if not t.constant and t not in kept
            ]
            for n in graph.nodes
        ]
        self.start = sum(_padded(t, align) for t in graph.inputs if readers[t] or t in kept)

    def step(self, done: int, live: int, node: int) -> tuple[int, int]:
        """Bytes alive while ``node`` runs, and after it."""
        now = done | 1 << node
        dying = [(size, may) for readers, size, may in self.reads[node] if not readers & ~now]
        shared = max((size for size, may in dying if may), default=0)
        during = live + self.made[node] - min(shared, self.made[node])
        return during, live + self.made[node] - self.wasted[node] - sum(size for size, _ in dying)

    def ready(self, done: int) -> list[int]:
        return [i for i in range(self.count) if not done >> i & 1 and not self.needs[i] & ~done]

    def best(self) -> list[int] | None:
        """The order of least peak, or None if there are too many sets to look at."""
        # The peak of a path is its greatest step, so that Dijkstra's search with max in place of + finds the least.
        heap: list[tuple[int, int, int, int]] = [(self.start, 0, 0, self.start)]
        came: dict[int, tuple[int, int]] = {0: (-1, -1)}
        least = {0: self.start}
        while heap:
            peak, left, done, live = heapq.heappop(heap)
            if -left == self.count:
                return self._path(came, done)
            if peak > least[done]:
                continue
            for i in self.ready(done):
                during, after = self.step(done, live, i)
                now, high = done | 1 << i, max(peak, during)
                if now not in least or high < least[now]:
                    least[now], came[now] = high, (done, i)
                    heapq.heappush(heap, (high, left - 1, now, after))
            if len(least) > _STATES:
                return None
        return None

    def _path(self, came: dict[int, tuple[int, int]], done: int) -> list[int]:
        order: list[int] = []
        while done:
            done, node = came[done]
            order.append(node)
        return order[::-1]

    def greedy(self) -> list[int]:
        """Next always the node after which least is alive; of several, the one that needs least, then the earlier."""
        order: list[int] = []
        done, live = 0, self.start
        while len(order) < self.count:
            _, _, node, live = min(
                (after, during, i, after) for i in self.ready(done) for during, after in [self.step(done, live, i)]
            )
            order.append(node)
            done |= 1 << node
        return order
