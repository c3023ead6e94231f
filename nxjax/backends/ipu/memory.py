"""What a program takes of each tile's memory, at every step, and the error where that is more than there is.

A model of what Poplar's compiler reports: code, vertices, what lives throughout, what lives for a while, and fields
that the exchange puts together. Sizes of code and stacks are estimates; tensors are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.backends.ipu.cycles import step_name
from nxjax.backends.ipu.exchange import Exchange, Footprint
from nxjax.backends.ipu.layout import shares
from nxjax.backends.ipu.liveness import Liveness, Visit
from nxjax.config.forks import cached_property
from nxjax.display import page
from nxjax.errors import Source, TileMemoryError
from nxjax.kernels.ipu.spec import Codelet
from nxjax.lower.ipu.program import Copy, Execute, IpuProgram, NDArray, Step, Variable

# Estimates of this model: the stacks of six workers and the supervisor; a supervisor's instructions to start a compute
# set on a tile; to enter an exchange; to send or receive one message.
STACK_BYTES: Final = 2048
EXECUTE_BYTES: Final = 24
PHASE_BYTES: Final = 16
MESSAGE_BYTES: Final = 8
# A message names so many tensors.
_NAMED: Final = 6
KINDS: Final[tuple[str, ...]] = ("code", "vertices", "stacks", "always", "temporary", "exchange")


@final
@dataclass(frozen=True, eq=False)
class Moment:
    """One step of the program, as a path meets it.

    Attributes:
        step: which.
        name, source: of it.
        live: bytes of temporaries that are alive, over all tiles.
        buffers: bytes of exchange buffers, over all tiles.
        tile: the fullest tile.
        bytes: in use on it, everything counted.
        bits: the live variables.
    """

    step: Step
    name: str
    source: Source | None
    live: int
    buffers: int
    tile: int
    bytes: int
    bits: int


@final
@dataclass(frozen=True)
class Held:
    """A tensor that is in memory at a moment.

    Attributes:
        name, shape, dtype, source: the tensor's.
        role: why it is alive.
        bytes: on the tile in question.
        total: bytes over all tiles.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    source: Source | None
    bytes: int
    total: int

    def __str__(self) -> str:
        at = f" at {self.source}" + (f": {self.source.text}" if self.source.text else "") if self.source else ""
        size = f"{self.bytes:,} of its {self.total:,} bytes"
        return f"{self.name} {self.dtype}{list(self.shape)} ({self.role}): {size}{at}"


@final
@dataclass(eq=False)
class MemoryUse:
    """Bytes of tile memory.

    Attributes:
        program: whose.
        available: bytes of one tile.
        kinds: "code", "vertices", "stacks", "always", "temporary", "exchange" -> bytes per tile, int64 [tiles]; the
            last two at the moment when the tile is fullest.
        moments: every step in order, those of a function once per call.
        always: bytes of variables that live throughout, over all tiles.
    """

    program: IpuProgram
    available: int
    kinds: dict[str, NDArray]
    moments: list[Moment]
    always: int
    _held: Callable[[Moment, int], list[Held]] = field(repr=False)

    @cached_property
    def per_tile(self) -> NDArray:
        """Bytes in use on each tile when it is fullest, int64 [tiles]."""
        return np.sum([self.kinds[k] for k in KINDS], axis=0)

    @property
    def worst_tile(self) -> int:
        return int(self.per_tile.argmax())

    @property
    def peak(self) -> int:
        """Bytes on the fullest tile."""
        return int(self.per_tile.max())

    @property
    def total(self) -> int:
        """Bytes over all tiles, each at its fullest."""
        return int(self.per_tile.sum())

    @property
    def fits(self) -> bool:
        return self.peak <= self.available

    @property
    def fullest(self) -> Moment | None:
        """The moment at which some tile holds most."""
        return max(self.moments, key=lambda m: m.bytes, default=None)

    def held(self, moment: Moment | None = None, tile: int | None = None) -> list[Held]:
        """What is in memory at a moment (by default the fullest), the largest on its tile first."""
        moment = moment or self.fullest
        if moment is None:
            return []
        return self._held(moment, moment.tile if tile is None else tile)

    def check(self) -> MemoryUse:
        """Raise `TileMemoryError` unless the program fits; gives itself back."""
        if not self.fits:
            raise self.error()
        return self

    def error(self) -> TileMemoryError:
        """What `check` raises: the fullest tile, and what lies on it."""
        moment = self.fullest
        tile = moment.tile if moment is not None else self.worst_tile
        needed = moment.bytes if moment is not None else self.peak
        over = int(np.count_nonzero(self.per_tile > self.available))
        parts = ", ".join(f"{k} {int(v[tile]):,}" for k, v in self.kinds.items() if v[tile])
        held = self.held(moment, tile)
        rows = "".join(f"\n            {h}" for h in held[:_NAMED])
        where = f" at {moment.name!r}" if moment is not None else ""
        more = f"; {over:,} of {len(self.per_tile):,} tiles are too full" if over > 1 else ""
        ipus = self.program.system.ipus
        chips = -(-self.total // (self.available * self.program.system.chip.tiles))
        helps = ["a smaller batch", f"more IPUs (num_ipus={max(2 * ipus, chips)})", 'precision="float16"']
        if 2 * self.kinds["always"][tile] > self.available and _replaceable(self.program):
            # What lives throughout takes most of it, and some of that is there twice.
            helps.insert(0, "donate=(...) so that results take the place of inputs")
        helps.append("a lower available_memory_proportion, or nx.checkpoint")
        error = TileMemoryError(
            f"ipu: tile {tile} needs more memory than it has{where}{more}",
            got=f"{needed:,} bytes ({parts}); the largest tensors on it:{rows}",
            expected=f"at most {self.available:,} bytes per tile of {self.program.system.title}",
            fix=", ".join(helps),
            source=next((h.source for h in held if h.source is not None), moment.source if moment else None),
        )
        error.tile, error.needed, error.available, error.rows = tile, needed, self.available, tuple(held)
        return error

    def lines(self) -> list[str]:
        """What a report says of it."""
        worst = self.worst_tile
        share = self.peak / self.available
        found = [
            f"tile memory: {self.peak:,} of {self.available:,} bytes on the fullest tile ({share:.1%}, tile {worst}); "
            f"mean {self.per_tile.mean():,.0f}"
        ]
        found += [
            f"  {kind:<10} {int(v[worst]):>12,} on tile {worst} {int(v.sum()):>16,} in all"
            for kind, v in self.kinds.items()
        ]
        live = max((m.live for m in self.moments), default=0)
        found.append(f"  alive throughout {self.always:,} bytes; at most {live:,} bytes of temporaries at once")
        moment = self.fullest
        if moment is not None:
            at = f" at {moment.source}" if moment.source else ""
            found.append(f"  fullest at {moment.name!r}{at}, where tile {moment.tile} holds most of:")
            found += [f"    {h}" for h in self.held(moment)[:_NAMED]]
        return found

    def liveness(self) -> str:
        """Bytes alive at each step, over all tiles: text, one line a step."""
        most = max((m.live + m.buffers for m in self.moments), default=0) or 1
        rows = [f"{'step':<28} {'temporaries':>14} {'exchange':>12} {'fullest tile':>14}"]
        for m in self.moments:
            bar = "#" * round(24 * (m.live + m.buffers) / most)
            rows.append(f"{m.name[:28]:<28} {m.live:>14,} {m.buffers:>12,} {m.bytes:>14,} {bar}")
        return "\n".join([*rows, f"alive throughout: {self.always:,} bytes"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "available": self.available,
            "peak": self.peak,
            "worst_tile": self.worst_tile,
            "total": self.total,
            "always": self.always,
            "kinds": {k: {"worst": int(v[self.worst_tile]), "total": int(v.sum())} for k, v in self.kinds.items()},
            "moments": [
                {"name": m.name, "at": str(m.source) if m.source else None, "live": m.live, "buffers": m.buffers,
                 "tile": m.tile, "bytes": m.bytes}
                for m in self.moments
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        from nxjax.backends.ipu.pictures import liveness, tile_map

        return page.page(page.text(str(self)), page.scroll(tile_map(self)), page.scroll(liveness(self)))


def _replaceable(program: IpuProgram) -> bool:
    """Whether an output could lie in the place of an input that is not donated."""
    free = {(v.shape, v.dtype) for v in program.inputs if v.role == "input"}
    return any(v.role == "output" and (v.shape, v.dtype) in free for v in program.outputs)


def measure(program: IpuProgram, exchange: Exchange, footprint: Callable[[Step], Footprint]) -> MemoryUse:
    """The memory that a program takes.

    Args:
        program: which.
        exchange: of its system.
        footprint: of each of its `Execute` and `Copy` steps.
    """
    tiles = exchange.tiles
    chip = program.system.chip
    zeros = lambda: np.zeros(tiles, np.int64)
    code, vertices = zeros(), zeros()
    users: dict[Codelet, NDArray] = {}
    for step in program.walk():
        if isinstance(step, Execute):
            starts = np.zeros(tiles, np.bool_)
            for g in step.groups:
                vertices += np.bincount(g.tiles, minlength=tiles) * g.codelet.state_bytes()
                users.setdefault(g.codelet, np.zeros(tiles, np.bool_))[g.tiles] = True
                starts[g.tiles] = True
            code[starts] += EXECUTE_BYTES
        if isinstance(step, (Execute, Copy)):
            moved = footprint(step)
            code[moved.tiles] += moved.messages * MESSAGE_BYTES
            code[moved.tiles[moved.messages > 0]] += PHASE_BYTES
    for codelet, used in users.items():
        code[used] += -(-codelet.code_bytes(chip) // 8) * 8
    stacks = np.full(tiles, STACK_BYTES, np.int64)

    alive = Liveness(program)
    sparse: dict[bytes, tuple[NDArray, NDArray]] = {}

    def share(v: Variable) -> tuple[NDArray, NDArray]:
        key = exchange.likeness.layout(v)
        found = sparse.get(key)
        if found is None:
            dense = shares(v, exchange.runs(v), tiles)
            at = np.flatnonzero(dense)
            found = sparse[key] = (at.astype(np.int32), dense[at])
        return found

    always = zeros()
    for v in alive.names(alive.always):
        at, size = share(v)
        always[at] += size
    fixed = code + vertices + stacks + always
    now, held = zeros(), 0
    peak, temporary, buffers = fixed.copy(), zeros(), zeros()
    moments: list[Moment] = []
    for visit in alive.visits:
        bits = visit.live & ~alive.always
        for v in alive.names(held & ~bits):
            at, size = share(v)
            now[at] -= size
        for v in alive.names(bits & ~held):
            at, size = share(v)
            now[at] += size
        held = bits
        used = fixed + now
        extra = footprint(visit.step) if isinstance(visit.step, (Execute, Copy)) else None
        if extra is not None:
            used[extra.tiles] += extra.buffers
        higher = used > peak
        peak[higher] = used[higher]
        temporary[higher] = now[higher]
        buffers[higher] = used[higher] - fixed[higher] - now[higher]
        tile = int(used.argmax())
        total = 0 if extra is None else int(extra.buffers.sum())
        moments.append(_moment(visit, int(now.sum()), total, tile, int(used[tile])))

    def named(moment: Moment, tile: int) -> list[Held]:
        rows: list[Held] = []
        for v in alive.names(moment.bits):
            at, size = share(v)
            place = int(np.searchsorted(at, tile))
            if place < len(at) and at[place] == tile:
                rows.append(Held(v.name, v.shape, v.dtype.name, v.role, v.source, int(size[place]), int(size.sum())))
        if isinstance(moment.step, (Execute, Copy)):
            extra = footprint(moment.step)
            here = int(extra.buffers[extra.tiles == tile].sum())
            if here:
                name, total = f"exchange buffers of {moment.name!r}", int(extra.buffers.sum())
                rows.append(Held(name, (here,), "bytes", "exchange", moment.source, here, total))
        return sorted(rows, key=lambda h: -h.bytes)

    kinds: dict[str, NDArray] = dict(zip(KINDS, (code, vertices, stacks, always, temporary, buffers), strict=True))
    return MemoryUse(program, chip.memory, kinds, moments, int(always.sum()), named)


def _moment(visit: Visit, live: int, buffers: int, tile: int, used: int) -> Moment:
    step = visit.step
    source: Source | None = getattr(step, "source", None)
    return Moment(step, step_name(step), source, live, buffers, tile, used, visit.live)
