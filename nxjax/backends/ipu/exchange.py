"""What moves between tiles before a compute set or in a copy: bytes per tile, exactly, and the cycles of that.

Elements that a box wants and that lie on another tile than its vertex are received; an element that many tiles want is
sent once. Knows runs of elements, no op and no codelet's inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.backends.ipu.layout import Runs, covered, cut, distinct, ordered, runs_of, view_ranges
from nxjax.kernels.ipu.chip import System
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
        fragments: ranges of elements that each tile receives or sends.
        links: (IPU, IPU) -> bytes that go from the one to the other.
    """

    received: NDArray
    sent: NDArray
    bus: NDArray
    copied: NDArray
    buffers: NDArray
    fragments: NDArray
    links: dict[tuple[int, int], int]

    @property
    def total(self) -> int:
        """Bytes received, over all tiles."""
        return int(self.received.sum())


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

    def __init__(self, system: System) -> None:
        self.system = system
        self.per_ipu = system.chip.tiles
        self.tiles = self.per_ipu * system.ipus
        # Neighbours are paired within an IPU.
        self.pairs_per_ipu = -(-self.per_ipu // 2)
        self._runs: dict[int, tuple[Variable, Runs]] = {}

    def runs(self, v: Variable) -> Runs:
        found = self._runs.get(id(v))
        if found is None:
            found = self._runs[id(v)] = (v, runs_of(v))
        return found[1]

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
                if io[name] != "out" and e.boxes.count and len(g.tiles):
                    variables[id(e.variable)] = e.variable
                    wanted.setdefault(id(e.variable), []).append((g.tiles, e.boxes))
        for key, edges in wanted.items():
            self._variable(found, variables[key], edges)
        return found

    def _variable(self, found: Traffic, v: Variable, edges: Sequence[tuple[NDArray, Boxes]]) -> None:
        runs = self.runs(v)
        itemsize = v.dtype.itemsize
        before = found.received.copy()
        parts: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []
        gathered = np.zeros(self.tiles, np.int64)
        kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[NDArray, NDArray]]] = {}
        for tiles, boxes in edges:
            kinds.setdefault((boxes.sizes, boxes.strides), []).append((tiles, boxes.offsets))
        for (sizes, strides), places in kinds.items():
            count = Boxes(np.zeros(1, np.int64), sizes, strides).count
            # Vertices of a tile that read the same box share it.
            keys = np.concatenate([t.astype(np.int64) * (v.size + 1) + o for t, o in places])
            if len(keys) > 1 and not np.all(keys[1:] > keys[:-1]):
                keys = np.unique(keys)
            tiles, offsets = np.divmod(keys, v.size + 1)
            relative, lengths = distinct(sizes, strides)
            begins = (offsets[:, None] + relative).ravel()
            c = cut(runs, begins, begins + np.tile(lengths, len(offsets)))
            box = c.range // len(relative)
            destination, owner = tiles[box], runs.tiles[c.run]
            remote = owner != destination
            parts.append((destination[remote], owner[remote], c.starts[remote], c.stops[remote]))
            whole = self._in_one_piece(runs, offsets, sizes, strides, box, c.starts, c.lengths, c.run, remote)
            # A field put together begins at a multiple of 8 bytes.
            size = -(-count * itemsize // 8) * 8
            np.add.at(found.buffers, tiles[~whole], size)
            np.add.at(gathered, tiles[~whole], count * itemsize)
        destination, owner, starts, stops = (np.concatenate(x) for x in zip(*parts, strict=True))
        self._moved(found, v, destination, owner, starts, stops)
        # What does not come from another tile is copied.
        found.copied += np.maximum(gathered - (found.received - before), 0)

    def _in_one_piece(
        self,
        runs: Runs,
        offsets: NDArray,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        box: NDArray,
        starts: NDArray,
        lengths: NDArray,
        run: NDArray,
        remote: NDArray,
    ) -> NDArray:
        """Which boxes lie on their vertex's tile, each element behind the one before it."""
        whole = np.ones(len(offsets), np.bool_)
        whole[box[remote]] = False
        relative, length = ordered(sizes, strides)
        unique, _ = distinct(sizes, strides)
        if len(relative) != len(unique) or not np.array_equal(relative, unique):
            # Not in ascending order, or some elements twice: cut again, in the box's own order.
            left = np.flatnonzero(whole)
            if not len(left):
                return whole
            begins = (offsets[left][:, None] + relative).ravel()
            c = cut(runs, begins, begins + length)
            box, starts, lengths, run = left[c.range // len(relative)], c.starts, c.lengths, c.run
        address = runs.addresses[run] + starts - runs.starts[run]
        broken = (box[1:] == box[:-1]) & (address[1:] != address[:-1] + lengths[:-1])
        whole[box[1:][broken]] = False
        return whole

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
            self._moved(
                found,
                source.variable,
                destination[remote],
                owner[remote],
                begin[remote],
                begin[remote] + length[remote],
                repeated=True,
            )
        return found

    def _in_order(self, v: Variable, begins: NDArray, ends: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """A view's parts in its own order: place in the view, length, first element, tile."""
        runs = self.runs(v)
        c = cut(runs, begins, ends)
        lengths = c.lengths
        return np.cumsum(lengths) - lengths, lengths, c.starts, runs.tiles[c.run]

    # --- counting ---

    def _moved(
        self,
        found: Traffic,
        v: Variable,
        destination: NDArray,
        owner: NDArray,
        starts: NDArray,
        stops: NDArray,
        repeated: bool = False,
    ) -> None:
        """Count ranges that go from ``owner`` to ``destination``.

        ``repeated`` if a tile takes an element as often as it is asked for, instead of once.
        """
        if not len(starts):
            return
        itemsize = v.dtype.itemsize
        if repeated:
            received = np.zeros(self.tiles, np.int64)
            np.add.at(received, destination, stops - starts)
        else:
            received = covered(destination, starts, stops, v.size, self.tiles)
        pairs = len(found.bus)
        bus = covered(self.pair(destination), starts, stops, v.size, pairs)
        if repeated:
            np.maximum.at(bus, self.pair(np.arange(self.tiles)), received)
        found.received += received * itemsize
        found.bus += bus * itemsize
        found.sent += covered(owner, starts, stops, v.size, self.tiles) * itemsize
        # What goes to many is one range of the sender's.
        _, first = np.unique(starts, return_index=True)
        found.fragments += np.bincount(destination, minlength=self.tiles)
        found.fragments += np.bincount(owner[first], minlength=self.tiles)
        if self.system.ipus > 1:
            self._crossing(found, v, destination, owner, starts, stops)

    def _crossing(
        self, found: Traffic, v: Variable, destination: NDArray, owner: NDArray, starts: NDArray, stops: NDArray
    ) -> None:
        there, here = destination // self.per_ipu, owner // self.per_ipu
        far = there != here
        if not far.any():
            return
        n = self.system.ipus
        # An element goes to each IPU that wants it once.
        moved = covered((here * n + there)[far], starts[far], stops[far], v.size, n * n) * v.dtype.itemsize
        for k in np.flatnonzero(moved).tolist():
            route = divmod(k, n)
            found.links[route] = found.links.get(route, 0) + int(moved[k])

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
