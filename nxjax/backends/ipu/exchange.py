"""What moves between tiles before a compute set or in a copy: bytes per tile, exactly, and the cycles of that.

Elements that a box wants and that lie on another tile than its vertex are received; an element that many tiles want is
sent once. Knows runs of elements, no op and no codelet's inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.backends.ipu.layout import RunCut, Runs, covered, cut, distinct, ordered, runs_of, view_ranges
from nxjax.backends.ipu.likeness import Likeness
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.lower.ipu.program import Boxes, Copy, Execute, NDArray, Variable

# Bytes a cycle of a copy within a tile: one 64-bit load and store in turn by all workers (poplibs' planner,
# memcpyBytesPerCycle).
MEMCPY_BYTES: Final = 8


@final
@dataclass(eq=False)
class Traffic:
    """One exchange phase.

    Attributes:
        received: bytes that each tile takes from others, int64 [tiles].
        sent: bytes that each tile gives; what goes to many tiles counts once.
        bus: bytes on the bus that two neighbouring tiles share, int64 [pairs]; what both want counts once.
        copied: bytes that each tile moves in its own memory: fields whose parts are not behind each other.
        buffers: bytes that each tile needs for fields that had to be put together.
        messages: how many each tile receives or sends. What a box wants of one owner is one message, and what goes to
            many is sent once.
        links: (IPU, IPU) -> bytes that go from the one to the other.
    """

    received: NDArray
    sent: NDArray
    bus: NDArray
    copied: NDArray
    buffers: NDArray
    messages: NDArray
    links: dict[tuple[int, int], int]

    @property
    def total(self) -> int:
        """Bytes received, over all tiles."""
        return int(self.received.sum())

    def footprint(self) -> Footprint:
        """What of it takes memory."""
        at = np.flatnonzero(self.buffers + self.messages).astype(np.int32)
        return Footprint(at, self.buffers[at], self.messages[at])


@final
@dataclass(frozen=True, eq=False)
class Footprint:
    """What an exchange phase takes of tiles' memory: bytes of buffers and messages, of the tiles that have any."""

    tiles: NDArray
    buffers: NDArray
    messages: NDArray


@final
@dataclass(frozen=True)
class ExchangeCycles:
    """Cycles of one phase: all tiles wait for the slowest.

    Attributes:
        copying: rearrangement within tiles, before.
        sync: of the tiles, if anything moves between them.
        exchange: between tiles of one IPU.
        links: between IPUs.
    """

    copying: int
    sync: int
    exchange: int
    links: int

    @property
    def total(self) -> int:
        return self.copying + self.sync + self.exchange + self.links


@final
class Exchange:
    """Counts traffic on a system; keeps the runs of the variables it has seen."""

    def __init__(self, system: IpuSystem) -> None:
        self.system = system
        self.per_ipu = system.chip.tiles
        self.tiles = self.per_ipu * system.ipus
        # Neighbours are paired within an IPU.
        self.pairs_per_ipu = -(-self.per_ipu // 2)
        self.likeness = Likeness()
        self._runs: dict[bytes, Runs] = {}

    def runs(self, v: Variable) -> Runs:
        key = self.likeness.layout(v)
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = runs_of(v)
        return found

    def pair(self, tiles: NDArray) -> NDArray:
        """The pair of neighbours that each tile belongs to."""
        ipu, local = np.divmod(tiles, self.per_ipu)
        return ipu * self.pairs_per_ipu + local // 2

    def nothing(self) -> Traffic:
        zeros = lambda n: np.zeros(n, np.int64)
        pairs = self.pairs_per_ipu * self.system.ipus
        n = self.tiles
        return Traffic(zeros(n), zeros(n), zeros(pairs), zeros(n), zeros(n), zeros(n), {})

    # --- compute sets ---

    def of_execute(self, step: Execute) -> Traffic:
        """What the vertices of a compute set read from other tiles, or must have put together."""
        found = self.nothing()
        wanted: dict[int, list[tuple[NDArray, Boxes]]] = {}
        variables: dict[int, Variable] = {}
        for g in step.groups:
            io = {f.name: f.io for f in g.codelet.fields}
            for name, e in g.edges.items():
                if not e.boxes.count or not len(g.tiles):
                    continue
                if io[name] == "in":
                    variables[id(e.variable)] = e.variable
                    wanted.setdefault(id(e.variable), []).append((g.tiles, e.boxes))
                else:
                    self._written(found, e.variable, g.tiles, e.boxes)
        for key, edges in wanted.items():
            self._read(found, variables[key], edges)
        return found

    def _written(self, found: Traffic, v: Variable, tiles: NDArray, boxes: Boxes) -> None:
        """What is written lies on its vertex's tile; where it is not in one piece there, it is copied once more."""
        if any(p.boxes.offsets is boxes.offsets and p.boxes.strides == boxes.strides for p in v.pieces):
            return
        wanted = _wanted(self.runs(v), [(tiles, boxes)], v.size, self.tiles)
        apart = ~wanted.whole
        size = wanted.bytes(v.dtype.itemsize)
        np.add.at(found.buffers, wanted.tiles[apart], _aligned(size)[apart])
        np.add.at(found.copied, wanted.tiles[apart], size[apart])

    def _read(self, found: Traffic, v: Variable, edges: Sequence[tuple[NDArray, Boxes]]) -> None:
        runs, itemsize = self.runs(v), v.dtype.itemsize
        w = _wanted(runs, edges, v.size, self.tiles)
        apart = ~w.whole
        size = w.bytes(itemsize)
        # A field put together begins at a multiple of 8 bytes.
        np.add.at(found.buffers, w.tiles[apart], _aligned(size)[apart])
        gathered = np.zeros(self.tiles, np.int64)
        np.add.at(gathered, w.tiles[apart], size[apart])
        if not w.remote.any():
            found.copied += gathered
            return
        received = self._united(w, w.tiles, w.remote, self.tiles, v.size)
        # A box that both tiles of a pair want is on their bus once, and all of it: each lacks what the other owns.
        pair = self.pair(w.tiles)
        order = np.lexsort((w.box, pair))
        same = (pair[order][1:] == pair[order][:-1]) & (w.box[order][1:] == w.box[order][:-1])
        needed = w.remote.copy()
        needed[order[1:][same]] = w.sizes[w.box[order[1:][same]]]
        needed[order[:-1][same]] = 0
        alone = np.ones(len(order), np.bool_)
        alone[order[:-1][same]] = False
        bus = self._united(w, pair, needed, len(found.bus), v.size, alone)
        found.received += received * itemsize
        found.bus += bus * itemsize
        # What does not come from another tile is copied.
        found.copied += np.maximum(gathered - received * itemsize, 0)
        found.messages += np.bincount(w.tiles, w.messages, self.tiles).astype(np.int64)
        found.messages += np.bincount(w.senders, minlength=self.tiles)
        away = w.takers[w.parts.range] > w.kept
        self._sent(found, v, w.parts.starts[away], w.parts.stops[away])
        if self.system.ipus > 1:
            self._links_of(found, v, w)

    def _united(
        self, w: _Wanted, groups: NDArray, needed: NDArray, count: int, size: int, chosen: NDArray | None = None
    ) -> NDArray:
        """Elements that each group needs from elsewhere, each once: int64 [count].

        Boxes of a group that do not meet are added up; only where they may are their parts looked at.

        Args:
            w: all requests.
            groups: of each request.
            needed: elements that each request needs.
            count: of groups.
            size: of the variable.
            chosen: requests that stand for several; the others are left out of sums, not of what is looked at.
        """
        use = np.arange(len(groups)) if chosen is None else np.flatnonzero(chosen)
        order = use[np.argsort(groups[use] * (size + 1) + w.low[w.box[use]], kind="stable")]
        g, box = groups[order], w.box[order]
        met = (g[1:] == g[:-1]) & (w.low[box[1:]] < w.high[box[:-1]])
        found = np.bincount(groups[use], needed[use], count).astype(np.int64)
        meeting = np.unique(g[1:][met])
        if len(meeting):
            among = np.zeros(count, np.bool_)
            among[meeting] = True
            requests = np.flatnonzero(among[groups])
            which, part = w.expanded(requests)
            away = w.owner[part] != w.tiles[which]
            which, part = which[away], part[away]
            exact = covered(groups[which], w.parts.starts[part], w.parts.stops[part], size, count)
            found[meeting] = exact[meeting]
        return found

    def _links_of(self, found: Traffic, v: Variable, w: _Wanted) -> None:
        """What goes to other IPUs: each element once to every IPU that wants it."""
        there = w.tiles // self.per_ipu
        here = w.owner // self.per_ipu
        for ipu in np.unique(there).tolist():
            boxes = np.zeros(len(w.sizes), np.bool_)
            boxes[w.box[there == ipu]] = True
            parts = boxes[w.parts.range] & (here != ipu)
            if parts.any():
                starts, stops = w.parts.starts[parts], w.parts.stops[parts]
                moved = covered(here[parts], starts, stops, v.size, self.system.ipus) * v.dtype.itemsize
                for k in np.flatnonzero(moved).tolist():
                    found.links[k, ipu] = found.links.get((k, ipu), 0) + int(moved[k])

    # --- copies ---

    def of_copy(self, step: Copy) -> Traffic:
        """What a copy moves between tiles, and within them."""
        found = self.nothing()
        for source, target in step.pairs:
            if not source.size:
                continue
            at, sizes, begins, owner = self._in_order(source.variable, *view_ranges(source))
            there, _, _, destination = self._in_order(target.variable, *view_ranges(target))
            # Both orders cut at each other's borders.
            places = np.union1d(at, there)
            mine = np.searchsorted(at, places, "right") - 1
            yours = np.searchsorted(there, places, "right") - 1
            stops = np.r_[places[1:], at[-1] + sizes[-1]]
            length = stops - places
            begin = begins[mine] + places - at[mine]
            owner, destination = owner[mine], destination[yours]
            remote = owner != destination
            itemsize = source.dtype.itemsize
            np.add.at(found.copied, destination[~remote], length[~remote] * itemsize)
            self._copied_parts(
                found,
                source.variable,
                destination[remote],
                owner[remote],
                begin[remote],
                begin[remote] + length[remote],
            )
        return found

    def _in_order(self, v: Variable, begins: NDArray, ends: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """A view's parts in its own order: place in the view, length, first element, tile."""
        runs = self.runs(v)
        c = cut(runs, begins, ends)
        lengths = c.lengths
        return np.cumsum(lengths) - lengths, lengths, c.starts, runs.tiles[c.run]

    # --- counting ---

    def _copied_parts(
        self, found: Traffic, v: Variable, destination: NDArray, owner: NDArray, starts: NDArray, stops: NDArray
    ) -> None:
        """Count ranges that a copy takes from ``owner`` to ``destination``, an element as often as it is asked for."""
        if not len(starts):
            return
        itemsize = v.dtype.itemsize
        received = np.bincount(destination, stops - starts, self.tiles).astype(np.int64)
        once = self._sent(found, v, starts, stops)
        pair = self.pair(np.arange(self.tiles))
        pairs = len(found.bus)
        if once:
            bus = np.bincount(pair, received, pairs).astype(np.int64)
        else:
            # Both tiles of a pair may take the same data, and one the same more than once.
            bus = covered(self.pair(destination), starts, stops, v.size, pairs)
            np.maximum.at(bus, pair, received)
        found.received += received * itemsize
        found.bus += bus * itemsize
        pairs_of_tiles = np.unique(owner * self.tiles + destination)
        found.messages += np.bincount(pairs_of_tiles % self.tiles, minlength=self.tiles)
        found.messages += np.bincount(
            pairs_of_tiles // self.tiles if once else self._owners(v, np.unique(starts)), minlength=self.tiles
        )
        there, here = destination // self.per_ipu, owner // self.per_ipu
        far = there != here
        if far.any():
            n = self.system.ipus
            moved = covered((here * n + there)[far], starts[far], stops[far], v.size, n * n) * itemsize
            for k in np.flatnonzero(moved).tolist():
                route = divmod(k, n)
                found.links[route] = found.links.get(route, 0) + int(moved[k])

    def _owners(self, v: Variable, elements: NDArray) -> NDArray:
        runs = self.runs(v)
        return runs.tiles[np.searchsorted(runs.starts, elements, "right") - 1]

    def _sent(self, found: Traffic, v: Variable, starts: NDArray, stops: NDArray) -> bool:
        """Count what owners send, an element once; gives whether no element is wanted twice."""
        if not len(starts):
            return True
        runs = self.runs(v)
        size = v.size + 1
        times = np.cumsum(np.bincount(starts, minlength=size) - np.bincount(stops, minlength=size))[: v.size]
        elements = np.add.reduceat((times > 0).astype(np.int64), runs.starts)
        found.sent += np.bincount(runs.tiles, elements, self.tiles).astype(np.int64) * v.dtype.itemsize
        return bool(times.max(initial=0) <= 1)

    # --- cycles ---

    def cycles(self, t: Traffic) -> ExchangeCycles:
        """Cycles of a phase.

        Within an IPU, the figure of poplibs' planner (popops/ExchangeEstimator.cpp): bytes over bandwidth at the
        busiest place, where two neighbouring tiles share a bus of twice a tile's bandwidth. Both wanting the same
        data, or one wanting none, use all of it: that is the union of what the pair wants over the whole bus. A tile
        sends at its own bandwidth. Between IPUs, messages go the shorter way round a ring of links; the ring is this
        model's assumption. Phases that move nothing between tiles need no sync.
        """
        chip = self.system.chip
        copying = -(-int(t.copied.max(initial=0)) // MEMCPY_BYTES)
        bus, sent = int(t.bus.max(initial=0)), int(t.sent.max(initial=0))
        if not bus:
            return ExchangeCycles(copying, 0, 0, 0)
        exchange = max(-(-bus // (2 * chip.exchange_bytes)), -(-sent // chip.exchange_bytes))
        loads = ring_loads(t.links, self.system.ipus)
        links = int(np.ceil(max(loads.values(), default=0) * chip.clock / chip.link_bandwidth))
        return ExchangeCycles(copying, chip.sync_cycles, exchange, links)


def _aligned(size: NDArray) -> NDArray:
    return -(-size // 8) * 8


@final
@dataclass(frozen=True, eq=False)
class _Wanted:
    """What vertices want of one variable: requests (a tile and a box), and the boxes cut into parts.

    Attributes:
        tiles, box: of each request; no two are equal.
        counts, sizes: elements of each box with repetitions, and without.
        low, high: the range of elements that each box lies in.
        parts: of all boxes, in order; its ranges are boxes.
        first: number of each box's first part, and the number of all parts at the end.
        owner: tile of each part.
        kept: 1 for parts whose owner is among those that want them, else 0.
        takers: requests of each box.
        remote: elements of each request that lie on other tiles.
        messages: tiles that these come from, of each request.
        senders: a tile for each message that is sent.
        whole: requests that lie on their tile, in one piece.
    """

    tiles: NDArray
    box: NDArray
    counts: NDArray
    sizes: NDArray
    low: NDArray
    high: NDArray
    parts: RunCut
    first: NDArray
    owner: NDArray
    kept: NDArray
    takers: NDArray
    remote: NDArray
    messages: NDArray
    senders: NDArray
    whole: NDArray

    def bytes(self, itemsize: int) -> NDArray:
        """Of each request's box, repetitions included."""
        return self.counts[self.box] * itemsize

    def expanded(self, requests: NDArray) -> tuple[NDArray, NDArray]:
        """Every part of the given requests: the request, and the part."""
        many = (self.first[1:] - self.first[:-1])[self.box[requests]]
        which = np.repeat(requests, many)
        ends = np.cumsum(many)
        part = np.arange(len(which)) + np.repeat(self.first[self.box[requests]] - (ends - many), many)
        return which, part


def _wanted(runs: Runs, edges: Sequence[tuple[NDArray, Boxes]], size: int, tiles: int) -> _Wanted:
    """Requests of one variable. Many tiles often want the same box, which is cut once."""
    kinds: dict[tuple[tuple[int, int], ...], list[tuple[NDArray, NDArray]]] = {}
    for at, boxes in edges:
        kind = tuple((n, s) for n, s in zip(boxes.sizes, boxes.strides, strict=True) if n != 1)
        kinds.setdefault(kind, []).append((at, boxes.offsets))
    columns: list[list[NDArray]] = [[] for _ in range(12)]
    base = 0
    for kind, places in kinds.items():
        sizes, strides = tuple(n for n, _ in kind), tuple(s for _, s in kind)
        # Vertices of a tile that read the same box share it.
        keys = np.concatenate([t.astype(np.int64) * (size + 1) + o for t, o in places])
        if len(keys) > 1 and not np.all(keys[1:] > keys[:-1]):
            keys = np.unique(keys)
        where, offsets = np.divmod(keys, size + 1)
        offsets, box = np.unique(offsets, return_inverse=True)
        relative, lengths = distinct(sizes, strides)
        begins = (offsets[:, None] + relative).ravel()
        c = cut(runs, begins, begins + np.tile(lengths, len(offsets)))
        part_box = c.range // len(relative)
        whole, owner = _in_one_piece(runs, offsets, sizes, strides, part_box, c)
        n = len(offsets)
        found = (
            where, box.reshape(-1) + base, np.full(n, math.prod(sizes)), np.full(n, int(lengths.sum())),
            offsets + relative[0], offsets + relative[-1] + lengths[-1], part_box + base, c.starts, c.stops, c.run,
            whole, owner,
        )  # fmt: skip
        for column, values in zip(columns, found, strict=True):
            column.append(values)
        base += n
    where, box, counts, distinct_sizes, low, high, part_box, starts, stops, run, whole, only = (
        np.concatenate(c) if len(c) > 1 else c[0] for c in columns
    )
    owner = runs.tiles[run]
    order = np.argsort(box * tiles + where, kind="stable")
    where, box = where[order], box[order]
    asked = box * tiles + where
    key = part_box * tiles + owner
    at = np.minimum(np.searchsorted(asked, key), len(asked) - 1)
    kept = asked[at] == key
    mine = at[kept]
    parts = np.bincount(part_box, minlength=base)
    # One message per box and owner; an owner that is the only taker sends none.
    pairs = np.sort(key, kind="stable")
    pairs = pairs[np.r_[True, pairs[1:] != pairs[:-1]]]
    to = np.minimum(np.searchsorted(asked, pairs), len(asked) - 1)
    own = asked[to] == pairs
    takers = np.bincount(box, minlength=base)
    local = np.bincount(mine, (stops - starts)[kept], len(asked)).astype(np.int64)
    return _Wanted(
        where,
        box,
        counts,
        distinct_sizes,
        low,
        high,
        RunCut(part_box, starts, stops, run),
        np.r_[0, np.cumsum(parts)],
        owner,
        kept.astype(np.int64),
        takers,
        distinct_sizes[box] - local,
        np.bincount(pairs // tiles, minlength=base)[box] - np.bincount(to[own], minlength=len(asked)),
        (pairs % tiles)[takers[pairs // tiles] > own],
        whole[box] & (only[box] == where),
    )


def _in_one_piece(
    runs: Runs, offsets: NDArray, sizes: tuple[int, ...], strides: tuple[int, ...], box: NDArray, c: RunCut
) -> tuple[NDArray, NDArray]:
    """Which boxes lie on one tile, each element behind the one before it; and the tile of each box's first element."""
    relative, length = ordered(sizes, strides)
    unique, _ = distinct(sizes, strides)
    if len(relative) != len(unique) or not np.array_equal(relative, unique):
        # Not in ascending order, or some elements twice: cut again, in the box's own order.
        begins = (offsets[:, None] + relative).ravel()
        c = cut(runs, begins, begins + length)
        box = c.range // len(relative)
    address = runs.addresses[c.run] + c.starts - runs.starts[c.run]
    owner = runs.tiles[c.run]
    joined = (owner[1:] == owner[:-1]) & (address[1:] == address[:-1] + c.lengths[:-1])
    whole = np.ones(len(offsets), np.bool_)
    whole[box[1:][(box[1:] == box[:-1]) & ~joined]] = False
    return whole, owner[np.searchsorted(box, np.arange(len(offsets)))]


def ring_loads(messages: dict[tuple[int, int], int], ipus: int) -> dict[tuple[int, int], int]:
    """Bytes over each link of a ring, in one direction, as messages go the shorter way.

    >>> ring_loads({(0, 2): 8, (0, 3): 4}, 4)
    {(0, 1): 8, (1, 2): 8, (0, 3): 4}
    """
    found: dict[tuple[int, int], int] = {}
    for (here, there), size in messages.items():
        forward = (there - here) % ipus
        step = 1 if forward <= ipus - forward else -1
        at = here
        while at != there:
            following = (at + step) % ipus
            found[at, following] = found.get((at, following), 0) + size
            at = following
    return found
