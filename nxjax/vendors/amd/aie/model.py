"""A model of the AI Engine array: runs a design that was read from text, object by object, and counts cycles.

Every core, every DMA stream and the host's sequence is a process; they wait for objects of fifos, which have as many
places as the design gives them, and for each other. Buffers hold real values: a DMA moves the elements that its sizes
and strides name, a core calls its kernels' meanings. What cannot go on is a deadlock and is said with what waits for
what; what is left over when the sequence is done is a design that does not balance.

Cycles: a stream moves `STREAM` bytes a cycle, all streams together with the host's memory no more than the array's
bandwidth, a kernel takes what it says. A model's numbers, not measured ones. Values are those of the kernels' meanings:
integers bit for bit; bfloat16 as `nxjax.kernels.aie.matmul` says.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ProgramError, ShapeError
from nxjax.kernels.aie.chip import QUEUE, STREAM, of_device
from nxjax.kernels.aie.spec import NDArray, named
from nxjax.lower.aie.cycles import bursts
from nxjax.lower.aie.design import (
    AcquireOp,
    CallOp,
    CoreOp,
    Design,
    Dimensions,
    DmaMemcpyOp,
    DmaWaitOp,
    ForOp,
    ObjectFifoOp,
    ReleaseOp,
    Statement,
)

# A process gives a number of cycles that pass, or a condition that has to hold before it goes on.
Process = Generator["float | Condition", None, None]
# What is pending longer than this many steps of processes is taken to run for ever.
_STEPS: Final = 50_000_000


@final
@dataclass(frozen=True)
class Condition:
    """Something that a process waits for, and its words."""

    holds: Callable[[], bool]
    words: str


@final
@dataclass
class ObjectPool:
    """Places for objects at one end of a fifo, written and read in order, by one or several parts each."""

    tile: str
    depth: int
    nbytes: int
    writers: list[str]
    readers: list[str]
    places: list[NDArray] = field(default_factory=list[NDArray])
    written: dict[str, int] = field(default_factory=dict[str, int])
    read: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.places = [np.zeros(self.nbytes, np.uint8) for _ in range(self.depth)]
        self.written = dict.fromkeys(self.writers, 0)
        self.read = dict.fromkeys(self.readers, 0)

    def free(self, writer: str) -> bool:
        return self.written[writer] - min(self.read.values(), default=0) < self.depth

    def full(self, reader: str) -> bool:
        return self.read[reader] < min(self.written.values(), default=0)

    def to_write(self, writer: str) -> NDArray:
        return self.places[self.written[writer] % self.depth]

    def to_read(self, reader: str) -> NDArray:
        return self.places[self.read[reader] % self.depth]

    @property
    def empty(self) -> bool:
        return len({*self.written.values(), *self.read.values()}) == 1


@final
@dataclass(frozen=True)
class SimulatedRun:
    """What a run of the model gives.

    Attributes:
        cycles: from the first copy to the last wait.
        busy: cycles in which each core ran kernels.
        moved: bytes through each fifo.
        host_bytes: bytes to and from the host's memory.
    """

    cycles: int
    busy: Mapping[str, int]
    moved: Mapping[str, int]
    host_bytes: int

    @property
    def utilization(self) -> float:
        """Share of the time in which cores ran kernels."""
        return sum(self.busy.values()) / (len(self.busy) * self.cycles) if self.cycles and self.busy else 0.0


def run(design: Design, arguments: Mapping[str, NDArray], *, values: bool = True) -> SimulatedRun:
    """Run ``design`` on host buffers, in place.

    Args:
        design: as `nxjax.lower.aie.parse.parse` gives it.
        arguments: a flat array for every argument of the sequence.
        values: False counts cycles only, and leaves the buffers.

    Raises:
        ProgramError: a deadlock, objects left over, or a BD that is given out while it is in use.
        ShapeError: arguments that are not of the sequence's types.
    """
    return _Machine(design, arguments, values).run()


@final
class _Machine:
    def __init__(self, design: Design, arguments: Mapping[str, NDArray], values: bool) -> None:
        self.design = design
        self.array, _ = of_device(design.device)
        self.values = values
        self.arguments: dict[str, NDArray] = {}
        for name, type_ in design.sequence.arguments:
            x = arguments.get(name)
            if x is None or x.dtype != type_.dtype or x.shape != (type_.size,):
                got = None if x is None else f"{x.dtype}{list(x.shape)}"
                raise ShapeError(f"AIE model: argument {name!r}", got=got, expected=str(type_))
            self.arguments[name] = x
        self.now = 0.0
        self.memory_free = 0.0
        self.rate = self.array.memory / self.array.clock
        self.busy = {c.tile: 0 for c in design.cores}
        self.moved = {f.name: 0 for f in design.fifos}
        self.host_bytes = 0
        self.tiles = {t.name: t for t in design.tiles}
        self.fifos = {f.name: f for f in design.fifos}
        self.links = {s: link for link in design.links for s in link.sources}
        self.produced: dict[str, tuple[ObjectPool, str, int]] = {}
        self.consumed: dict[tuple[str, str], tuple[ObjectPool, str, int]] = {}
        self.copies: dict[str, deque[_Pending]] = {f.name: deque() for f in design.fifos}
        self.in_flight: dict[tuple[str, int], _Pending] = {}
        self.tokens = {f.name: 0 for f in design.fifos}
        # Elements of an object that only a part of has been copied.
        self.partial: dict[str, int] = {}
        self.done = False
        self._pools()

    # --- what there is ---

    def _pools(self) -> None:
        for link in self.design.links:
            ins, outs = [self.fifos[n] for n in link.sources], [self.fifos[n] for n in link.targets]
            whole = max([*ins, *outs], key=lambda f: f.type.nbytes)
            tile = outs[0].producer
            depth = max(f.depth for f in (*ins, *outs))
            pool = ObjectPool(tile, depth, whole.type.nbytes, [f.name for f in ins], [f.name for f in outs])
            for f, o in zip(ins, link.source_offsets or (0,) * len(ins), strict=True):
                self.consumed[f.name, tile] = pool, f.name, o * f.type.dtype.itemsize
            for f, o in zip(outs, link.target_offsets or (0,) * len(outs), strict=True):
                self.produced[f.name] = pool, f.name, o * f.type.dtype.itemsize
        for f in self.design.fifos:
            if f.name not in self.produced and self.tiles[f.producer].kind != "shim":
                self.produced[f.name] = ObjectPool(f.producer, f.depth, f.type.nbytes, ["core"], ["dma"]), "dma", 0
            for c in f.consumers:
                if (f.name, c) not in self.consumed and self.tiles[c].kind != "shim":
                    self.consumed[f.name, c] = ObjectPool(c, f.depth, f.type.nbytes, ["dma"], ["core"]), "dma", 0

    # --- time ---

    def run(self) -> SimulatedRun:
        processes: list[tuple[str, Process]] = [("the sequence", self._sequence())]
        processes += [(f"the DMA of @{f.name}", self._stream(f)) for f in self.design.fifos]
        processes += [(f"the core of %{c.tile}", self._core(c)) for c in self.design.cores]
        ready: list[tuple[float, int, str, Process]] = []
        number = 0
        for name, process in processes:
            heapq.heappush(ready, (0.0, number, name, process))
            number += 1
        waiting: list[tuple[str, Process, Condition]] = []
        finished, steps = 0.0, 0
        while ready:
            self.now, _, name, process = heapq.heappop(ready)
            steps += 1
            if steps > _STEPS:
                raise ProgramError("AIE model: the design does not come to an end", got=f"{steps} steps")
            for what in process:
                if isinstance(what, Condition):
                    if what.holds():
                        continue
                    waiting.append((name, process, what))
                else:
                    heapq.heappush(ready, (self.now + what, number, name, process))
                    number += 1
                break
            if self.done and not finished:
                finished = self.now
            held: list[tuple[str, Process, Condition]] = []
            for name, process, condition in waiting:
                if condition.holds():
                    heapq.heappush(ready, (self.now, number, name, process))
                    number += 1
                else:
                    held.append((name, process, condition))
            waiting = held
        self._ended(waiting)
        return SimulatedRun(int(finished), dict(self.busy), dict(self.moved), self.host_bytes)

    def _ended(self, waiting: Sequence[tuple[str, Process, Condition]]) -> None:
        if not self.done:
            stuck = [f"{name} waits for {c.words}" for name, _, c in waiting]
            raise ProgramError(
                "AIE model: a deadlock: nothing goes on and the sequence is not done",
                got="; ".join(sorted(stuck, key=lambda s: not s.startswith("the sequence"))[:6]),
                fix="every object that is sent has to be taken, and every one that is taken given back",
            )
        for name, pending in self.copies.items():
            if pending:
                raise ProgramError(f"AIE model: a copy of @{name} is never finished", got=pending[0].copy)
        for name, missing in self.partial.items():
            if missing:
                raise ProgramError(f"AIE model: a part of an object of @{name} is left over", got=f"{missing} missing")
        for (name, tile), (pool, _, _) in self.consumed.items():
            if not pool.empty:
                raise ProgramError(
                    f"AIE model: objects of @{name} are left over at %{tile}",
                    got=f"written {pool.written}, read {pool.read}",
                    fix="the sequence sends as many as the cores take",
                )

    def _memory(self, nbytes: int, pending: _Pending) -> float:
        """Cycles until the host's memory has moved so many bytes of a copy after all that were asked for before."""
        self.host_bytes += nbytes
        self.memory_free = max(self.memory_free, self.now) + nbytes * pending.waste / self.rate
        return self.memory_free - self.now

    # --- processes ---

    def _sequence(self) -> Process:
        for step in self.design.sequence.body:
            if isinstance(step, DmaWaitOp):
                name = step.fifo
                yield Condition(lambda name=name: self.tokens[name] > 0, f"a copy of @{name} with a token")
                self.tokens[name] -= 1
                continue
            f = self.fifos[step.fifo]
            shim = f.producer if self.tiles[f.producer].kind == "shim" else f.consumers[0]
            before = self.in_flight.get((shim, step.id))
            if before is not None and not before.finished:
                raise ProgramError(
                    f"AIE model: BD {step.id} of %{shim} is given out while @{before.copy.fifo} uses it", got=step
                )
            if len(self.copies[step.fifo]) >= QUEUE:
                raise ProgramError(f"AIE model: more than {QUEUE} copies of @{step.fifo} wait in its queue", got=step)
            pending = _Pending(step, self._elements(step), f.type.dtype.itemsize)
            self.in_flight[shim, step.id] = pending
            self.copies[step.fifo].append(pending)
        self.done = True

    def _elements(self, c: DmaMemcpyOp) -> NDArray | None:
        """Indices into the host's buffer, in the order of the stream."""
        if not self.values:
            return None
        index = np.full(1, c.start, np.int64)
        for size, stride in zip(c.sizes, c.strides, strict=True):
            index = (index[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
        return index

    def _stream(self, f: ObjectFifoOp) -> Process:
        """One fifo's way from its producer to all of its consumers."""
        if self.tiles[f.producer].kind == "shim":
            return self._from_host(f)
        if self.tiles[f.consumers[0]].kind == "shim":
            return self._to_host(f)
        return self._between(f)

    def _targets(self, f: ObjectFifoOp) -> list[tuple[ObjectPool, str, int]]:
        return [self.consumed[f.name, c] for c in f.consumers]

    def _arrive(self, f: ObjectFifoOp, data: NDArray | None) -> None:
        self.moved[f.name] += f.type.nbytes
        for pool, part, offset in self._targets(f):
            if data is not None:
                pool.to_write(part)[offset : offset + data.size] = data
            pool.written[part] += 1

    def _room(self, f: ObjectFifoOp) -> Condition:
        targets = self._targets(f)
        return Condition(lambda: all(p.free(part) for p, part, _ in targets), f"room for an object of @{f.name}")

    def _from_host(self, f: ObjectFifoOp) -> Process:
        room, count = self._room(f), f.type.size
        copies = self.copies[f.name]
        while True:
            data: list[NDArray] = []
            missing, pending = count, None
            while missing or pending is None:
                yield Condition(lambda: bool(copies), f"a copy into @{f.name}")
                pending = copies[0]
                piece = min(missing, pending.left)
                if self.values:
                    data.append(self.arguments[pending.copy.argument][pending.take(piece)])
                else:
                    pending.left -= piece
                missing -= piece
                if missing or not pending.left:
                    # The stream stays with this object; what it needs more comes with the next copy.
                    yield room
                    if not pending.left:
                        self._finish(f, copies.popleft())
                self.partial[f.name] = missing
            yield room
            yield max(f.type.nbytes / STREAM, self._memory(f.type.nbytes, pending))
            self._arrive(f, np.concatenate(data).view(np.uint8) if self.values else None)

    def _to_host(self, f: ObjectFifoOp) -> Process:
        pool, part, offset = self.produced[f.name]
        order = _order(f.to_stream, f.type.size)
        copies = self.copies[f.name]
        full = Condition(lambda: pool.full(part), f"an object of @{f.name}")
        while True:
            yield Condition(lambda: bool(copies), f"a copy out of @{f.name}")
            yield full
            yield max(f.type.nbytes / STREAM, self._memory(f.type.nbytes, copies[0]))
            data = pool.to_read(part)[offset : offset + f.type.nbytes].view(f.type.dtype)[order]
            pool.read[part] += 1
            self.moved[f.name] += f.type.nbytes
            at = 0
            while at < data.size:
                yield Condition(lambda: bool(copies), f"a copy out of @{f.name}")
                pending = copies[0]
                piece = min(data.size - at, pending.left)
                if self.values:
                    self.arguments[pending.copy.argument][pending.take(piece)] = data[at : at + piece]
                else:
                    pending.left -= piece
                at += piece
                self.partial[f.name] = data.size - at
                if not pending.left:
                    self._finish(f, copies.popleft())

    def _finish(self, f: ObjectFifoOp, pending: _Pending) -> None:
        pending.finished = True
        if pending.copy.token:
            self.tokens[f.name] += 1

    def _between(self, f: ObjectFifoOp) -> Process:
        pool, part, offset = self.produced[f.name]
        order = _order(f.to_stream, f.type.size)
        full = Condition(lambda: pool.full(part), f"an object of @{f.name} at %{f.producer}")
        room = self._room(f)
        while True:
            yield full
            yield room
            yield f.type.nbytes / STREAM
            data = None
            if self.values:
                whole = pool.to_read(part)[offset : offset + f.type.nbytes]
                data = whole if isinstance(order, slice) else whole.view(f.type.dtype)[order].view(np.uint8)
                data = data.copy()
            pool.read[part] += 1
            self._arrive(f, data)

    # --- cores ---

    def _core(self, core: CoreOp) -> Process:
        values: dict[str, NDArray] = {}
        for b in self.design.buffers:
            if b.tile == core.tile:
                data = np.zeros(b.type.size, b.type.dtype)
                if b.values is not None:
                    data[...] = np.frombuffer(b.values, b.type.dtype)
                values[b.name] = data
        return self._body(core, core.body, values)

    def _body(self, core: CoreOp, body: Sequence[Statement], values: dict[str, NDArray]) -> Process:
        for s in body:
            if isinstance(s, ForOp):
                for _ in range(s.count):
                    yield from self._body(core, s.body, values)
            elif isinstance(s, AcquireOp):
                pool, take = self._end(core, s.fifo, s.port)
                consumes = s.port == "Consume"
                holds = (lambda p=pool: p.full("core")) if consumes else (lambda p=pool: p.free("core"))
                yield Condition(holds, f"{'an object of' if consumes else 'room in'} @{s.fifo}")
                values[s.value] = take().view(self.fifos[s.fifo].type.dtype)
            elif isinstance(s, ReleaseOp):
                pool, _ = self._end(core, s.fifo, s.port)
                (pool.read if s.port == "Consume" else pool.written)["core"] += 1
            else:
                yield self._call(core, s, values)

    def _end(self, core: CoreOp, fifo: str, port: str) -> tuple[ObjectPool, Callable[[], NDArray]]:
        if port == "Consume":
            pool = self.consumed[fifo, core.tile][0]
            return pool, lambda: pool.to_read("core")
        pool = self.produced[fifo][0]
        return pool, lambda: pool.to_write("core")

    def _call(self, core: CoreOp, call: CallOp, values: dict[str, NDArray]) -> float:
        kernel = named(call.function)
        if self.values:
            kernel.meaning([values[a] for a in call.arguments])
        cycles = kernel.cycles(self.array)
        self.busy[core.tile] += cycles
        return float(cycles)


@final
class _Pending:
    """A copy that was given to a shim, and how much of it is left."""

    def __init__(self, copy: DmaMemcpyOp, index: NDArray | None, width: int) -> None:
        self.copy = copy
        self.index = index
        self.left = copy.count
        self.finished = False
        piece = copy.sizes[3] * width * (copy.sizes[2] if copy.strides[2] == copy.sizes[3] else 1)
        # Bytes that the host's memory moves for each that is asked for.
        self.waste = bursts(piece) / piece

    def take(self, count: int) -> NDArray:
        assert self.index is not None
        first = self.copy.count - self.left
        self.left -= count
        return self.index[first : first + count]


def _order(dimensions: Dimensions, size: int) -> Any:
    """Indices of an object's elements in the order in which they are sent."""
    if not dimensions:
        return slice(None)
    index = np.zeros(1, np.int64)
    for count, stride in dimensions:
        index = (index[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return index
