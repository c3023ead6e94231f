"""Where the nodes of a directed graph without cycles go: layer by layer from the top, with few crossings.

A node's layer is the longest path to it; long edges get a bend in every layer they pass. Within a layer, nodes are
sorted by the mean place of their neighbours (barycenter), downwards and upwards in turn; then each is moved as near to
the middle of its neighbours as those beside it allow. Plain geometry: sizes in, places out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

_SWEEPS: Final = 6
_RELAXATIONS: Final = 8
_GAP: Final = 18.0  # between neighbours of a layer


@final
@dataclass(slots=True)
class GraphLayout:
    """A node's left upper corner and an edge's points, per node and edge; and the size of all."""

    corners: list[tuple[float, float]]
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


def place(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int, int]],
    *,
    between: float = 34.0,
    first: Sequence[int] = (),
    last: Sequence[int] = (),
) -> GraphLayout:
    """Lay nodes of these (width, height) out; an edge (i, j, k), from i's k-th result, has i < j and leads downwards.

    Args:
        between: height between layers.
        first, last: nodes that belong to the uppermost and the lowest layer, whoever reads them.

    >>> place([(10, 10), (10, 10)], [(0, 1, 0)], between=20).corners
    [(0.0, 0.0), (0.0, 30.0)]
    """
    count = len(sizes)
    level = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for i, j, _ in edges:
        level[j] = max(level[j], level[i] + 1)
        users[i].append(j)
    # What reads nothing stands just above its first reader, not at the very top.
    fed = {j for _, j, _ in edges}
    for i in range(count):
        if i not in fed and users[i]:
            level[i] = max(0, min(level[j] for j in users[i]) - 1)
    for i in first:
        level[i] = 0
    if last:
        lowest = max([level[i] for i in last] + [level[i] + 1 for i in range(count) if i not in set(last)])
        for i in last:
            level[i] = lowest
    levels, above, below, chains = _bent(level, edges)
    widths = [*(w for w, _ in sizes), *(4.0 for _ in range(len(above) - count))]
    _sort(levels, above, below)
    x = _columns(levels, widths, above, below)
    heights = [max((sizes[v][1] for v in row if v < count), default=0.0) for row in levels]
    top, tops = 0.0, list[float]()
    for h in heights:
        tops.append(top)
        top += h + between
    at = {v: k for k, row in enumerate(levels) for v in row}
    corners = [(x[v] - widths[v] / 2, tops[at[v]] + (heights[at[v]] - sizes[v][1]) / 2) for v in range(count)]
    routes: list[list[tuple[float, float]]] = []
    for chain in chains:
        points: list[tuple[float, float]] = []
        for v in chain:
            k = at[v]
            points += [(x[v], tops[k]), (x[v], tops[k] + heights[k])]
        routes.append(points)
    width = max((corners[v][0] + sizes[v][0] for v in range(count)), default=0.0)
    return GraphLayout(corners, routes, max(width, max((p[0] for r in routes for p in r), default=0.0)), top - between)


def _bent(
    level: Sequence[int], edges: Sequence[tuple[int, int, int]]
) -> tuple[list[list[int]], list[list[int]], list[list[int]], list[list[int]]]:
    """Layers of nodes and bends, who is above and below each, and the bends of every edge.

    Edges from one result share bends.
    """
    count = len(level)
    levels: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for v, k in enumerate(level):
        levels[k].append(v)
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    trunk: dict[tuple[int, int, int], int] = {}
    chains: list[list[int]] = []
    for i, j, result in edges:
        chain: list[int] = []
        last = i
        for k in range(level[i] + 1, level[j]):
            bend = trunk.get((i, result, k))
            if bend is None:
                bend = trunk[i, result, k] = len(above)
                above.append([last])
                below.append([])
                below[last].append(bend)
                levels[k].append(bend)
            chain.append(bend)
            last = bend
        above[j].append(last)
        below[last].append(j)
        chains.append(chain)
    return levels, above, below, chains


def _sort(levels: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order every layer by the mean place of its neighbours."""
    place = {v: float(i) for row in levels for i, v in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in levels if down else reversed(levels):
            key = {v: sum(place[u] for u in near[v]) / len(near[v]) if near[v] else place[v] for v in row}
            row.sort(key=key.__getitem__)
            place.update((v, float(i)) for i, v in enumerate(row))


def _columns(
    levels: list[list[int]], widths: list[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    """The middle of every node."""
    x = [0.0] * len(widths)
    for row in levels:
        left = 0.0
        for v in row:
            x[v] = left + widths[v] / 2
            left += widths[v] + _GAP
    for step in range(_RELAXATIONS):
        down = step % 2 == 0
        near = above if down else below
        for row in levels if down else reversed(levels):
            wished = [sum(x[u] for u in near[v]) / len(near[v]) if near[v] else x[v] for v in row]
            for v, middle in zip(row, _apart(wished, [widths[v] for v in row]), strict=True):
                x[v] = middle
    left = min((x[v] - widths[v] / 2 for row in levels for v in row), default=0.0)
    return [value - left for value in x]


def _apart(wished: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Middles in the given order, as near to what is wished as widths allow: neighbours that would touch are moved
    together (isotonic regression by pooling)."""
    blocks: list[list[float]] = []  # sum of what is wished for its first, and how many it joins
    offsets: list[float] = []
    offset = 0.0
    for i, w in enumerate(widths):
        if i:
            offset += (widths[i - 1] + w) / 2 + _GAP
        offsets.append(offset)
    for wish, o in zip(wished, offsets, strict=True):
        blocks.append([wish - o, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, number = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += number
    places: list[float] = []
    for total, number in blocks:
        places += [total / number] * int(number)
    return [p + o for p, o in zip(places, offsets, strict=True)]
