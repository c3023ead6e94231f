"""Which steps read and write which buffers, and where those steps stand: what the memory passes ask."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.lower.cpu.tape import BranchStep, Buffer, CallStep, CopyStep, HostStep, Ref, TapeStep, WhileStep

# Where a step stands: its index in the program, then for each body around it the body's number and the index in it.
# Tuples are ordered as steps run, but for branches, of which one runs.
Path = tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class BufferUse:
    """One step that reads or writes a buffer."""

    path: Path
    step: TapeStep
    writes: bool


@final
class Uses:
    """Uses of each buffer, in the order of paths; follows buffers that are moved into others."""

    def __init__(self, steps: Sequence[TapeStep]) -> None:
        self.of: dict[Buffer, list[BufferUse]] = {}
        self.steps: list[tuple[Path, TapeStep]] = []
        for path, step in placed(steps):
            self.steps.append((path, step))
            for ref in step.reads():
                self._add(ref, BufferUse(path, step, False))
            for ref in step.writes():
                self._add(ref, BufferUse(path, step, True))

    def _add(self, ref: Ref, use: BufferUse) -> None:
        found = self.of.get(ref.buffer)
        if found is None:
            self.of[ref.buffer] = [use]
        else:
            found.append(use)

    def move(self, buffer: Buffer, to: Ref) -> None:
        """Every use of ``buffer`` becomes one of the memory at ``to``, byte by byte."""
        other = to.buffer
        alike = other.kind == buffer.kind == "temp" and other.nbytes == buffer.nbytes and to == Ref(other)
        if alike and len(self.of.get(other, ())) < len(self.of.get(buffer, ())):
            # Of two names of one temporary the one goes that fewer steps know: chains of copies are long.
            buffer, to = other, Ref(buffer)
        uses = self.of.pop(buffer, [])

        def moved(ref: Ref) -> Ref:
            if ref.buffer is not buffer:
                return ref
            return Ref(to.buffer, to.offset + ref.offset, (*to.moves, *ref.moves))

        for step in {id(u.step): u.step for u in uses}.values():
            replace(step, moved)
        theirs = self.of.setdefault(to.buffer, [])
        for u in uses:
            bisect.insort(theirs, u, key=lambda u: u.path)


def placed(steps: Sequence[TapeStep], prefix: Path = ()) -> Iterator[tuple[Path, TapeStep]]:
    """Every step with its path, those inside loops and branches included."""
    for i, step in enumerate(steps):
        path = (*prefix, i)
        yield path, step
        for number, body in enumerate(step.bodies()):
            yield from placed(body, (*path, number))


def replace(step: TapeStep, by: Callable[[Ref], Ref]) -> None:
    """Change the places that a step itself names."""
    match step:
        case CallStep() | HostStep():
            step.ins = tuple(map(by, step.ins))
            step.outs = tuple(map(by, step.outs))
        case CopyStep():
            step.source_ref, step.target = by(step.source_ref), by(step.target)
        case WhileStep():
            step.flag = by(step.flag)
        case BranchStep():
            step.index = by(step.index)
        case _:
            pass
