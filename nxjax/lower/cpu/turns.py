"""Which loops of a program are one function (`kernels.cpu.turns`): those of few short kernels, on one thread.

Memory is planned already: temporaries have their places. Those that a loop only touches where they lie, turn after
turn, are in registers while it runs, if they are small: carries, above all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.turns import CalledKernel, CopiedBytes, CountedLoop, EndingLoop, TurnPlace, Turns
from nxjax.lower.cpu.tape import (
    ALIGN,
    Buffer,
    CallStep,
    CopyStep,
    Counter,
    CpuProgram,
    Ref,
    RepeatStep,
    TapeStep,
    WhileStep,
    walk,
)
from nxjax.lower.cpu.times import BYTES_PER_NS, STEP_NS, is_parallel, time_of

# A turn that takes longer gains little.
_SHORT_NS: Final = 600.0
# Nobody asks for signals while a loop runs, or so many turns of one that ends by a condition.
_LONGEST_NS: Final = 5e7
_TURNS: Final = 10_000
_STEPS: Final = 12  # their code is compiled once more
_ROOM: Final = 256  # bytes of temporaries that lie together


@final
@dataclass(frozen=True)
class Turned:
    """A loop as one function.

    Attributes:
        words: the places whose addresses it is given.
        nanoseconds: an estimate of its time; of one that ends by a condition, of a turn's.
    """

    code: Turns
    words: tuple[Ref, ...]
    nanoseconds: float


def loops(program: CpuProgram) -> dict[TapeStep, Turned]:
    """The outermost loops that are short enough."""
    return dict(_found(program.steps))


def _found(steps: Sequence[TapeStep]) -> Iterator[tuple[TapeStep, Turned]]:
    for step in steps:
        turned = _turned(step) if isinstance(step, (RepeatStep, WhileStep)) else None
        if turned is not None:
            yield step, turned
        else:
            for body in step.bodies():
                yield from _found(body)


def _turned(loop: RepeatStep | WhileStep) -> Turned | None:
    steps = [step for body in loop.bodies() for step in body]
    inside = list(walk(steps))
    if not inside or len(inside) > _STEPS or not all(map(_is_plain, inside)):
        return None
    once, turn = _time(steps)
    total = turn * (loop.counter.count if isinstance(loop, RepeatStep) else 1)
    if once > _SHORT_NS or total > _LONGEST_NS:
        return None
    maker = _Maker(loop)
    made = maker.repeated(loop, ()) if isinstance(loop, RepeatStep) else maker.until(loop, turn)
    return Turned(Turns(made, len(maker.words), maker.rooms()), tuple(maker.words), total)


def _is_plain(step: TapeStep) -> bool:
    """Whether it can be part of one function: nothing of Python, for one thread, and nothing before its places."""
    match step:
        case CallStep():
            ins, outs, _ = step.kernel.touched.spans
            return not is_parallel(step.kernel) and all(box[0] >= 0 for boxes in (*ins, *outs) for box in boxes)
        case CopyStep():
            return True
        case RepeatStep():
            return step.counter.count > 0
        case _:
            return False


def _time(steps: Sequence[TapeStep]) -> tuple[float, float]:
    """Nanoseconds: of the steps, each loop's as if it had one turn; and of them all."""
    once = total = 0.0
    for step in steps:
        match step:
            case CallStep():
                took = 0.0 if not step.kernel.items else time_of(step.kernel) + STEP_NS
                once, total = once + took, total + took
            case CopyStep():
                took = 2 * step.nbytes / BYTES_PER_NS + STEP_NS
                once, total = once + took, total + took
            case RepeatStep():
                inner, every = _time(step.body)
                once, total = once + inner, total + every * step.counter.count
            case _:
                raise AssertionError(step)
    return once, total


@final
@dataclass(frozen=True, slots=True)
class _Region:
    """Bytes of the arena, or of a result."""

    kind: str
    index: int
    first: int
    behind: int

    @property
    def nbytes(self) -> int:
        return self.behind - self.first


class _Maker:
    """Places of a loop as words and what is added to them."""

    def __init__(self, loop: RepeatStep | WhileStep) -> None:
        self.words: list[Ref] = []
        self._at: dict[object, int] = {}
        self._counters = {s.counter for s in walk([loop]) if isinstance(s, RepeatStep)}
        self._ends: dict[int, int] = {}  # of words: behind the last byte that is touched
        self._spans = self._regions(loop)

    def _regions(self, loop: RepeatStep | WhileStep) -> dict[Buffer, _Region]:
        """Temporaries and results, by the memory that they lie in together with others, where that stays in place."""
        refs = [r for s in walk([loop]) for r in (*s.reads(), *s.writes()) if r.buffer.kind in ("temp", "output")]
        regions: list[_Region] = []
        of: dict[Buffer, _Region] = {}
        for b in sorted({r.buffer for r in refs}, key=lambda b: (b.kind, b.index, b.offset)):
            found = _Region(b.kind, b.index, b.offset, b.offset + max(b.nbytes, 1))
            last = regions[-1] if regions else None
            if last is not None and found.kind == last.kind == "temp" and found.first < last.behind:
                regions.pop()
                found = replace(last, behind=max(found.behind, last.behind))
                of.update((other, found) for other, region in of.items() if region == last)
            regions.append(found)
            of[b] = found
        moved = {of[r.buffer] for r in refs if r.moves}
        return {b: x for b, x in of.items() if x not in moved and x.nbytes <= _ROOM}

    def rooms(self) -> dict[int, tuple[int, int]]:
        """The words of what is in registers, with its bytes."""
        sizes = {self._at[region]: region.nbytes for region in self._spans.values() if region in self._at}
        return {i: (n, -(-max(self._ends[i], n) // ALIGN) * ALIGN - n) for i, n in sizes.items()}

    def repeated(self, loop: RepeatStep, around: tuple[Counter, ...]) -> CountedLoop:
        return CountedLoop(loop.counter.count, self._steps(loop.body, (*around, loop.counter)))

    def until(self, loop: WhileStep, turn: float) -> EndingLoop:
        condition, body = (self._steps(steps, ()) for steps in loop.bodies())
        most = max(1, min(_TURNS, int(_LONGEST_NS / turn)))
        return EndingLoop(condition, self._place(loop.flag, 1, ()), body, most)

    def _steps(
        self, steps: Sequence[TapeStep], around: tuple[Counter, ...]
    ) -> tuple[CalledKernel | CopiedBytes | CountedLoop, ...]:
        return tuple([made for s in steps if (made := self._step(s, around)) is not None])

    def _step(self, step: TapeStep, around: tuple[Counter, ...]) -> CalledKernel | CopiedBytes | CountedLoop | None:
        match step:
            case CallStep():
                ins, outs, _ = step.kernel.touched.spans
                ends = [max([box[3] for box in boxes], default=0) for boxes in (*ins, *outs)]
                refs = (*step.ins, *step.outs)
                places = [self._place(r, n, around) for r, n in zip(refs, ends, strict=True)]
                return CalledKernel(step.kernel, tuple(places)) if step.kernel.items else None
            case CopyStep():
                both = [self._place(r, step.nbytes, around) for r in (step.source_ref, step.target)]
                return CopiedBytes(step.nbytes, *both) if step.nbytes else None
            case RepeatStep():
                return self.repeated(step, around)
            case _:
                raise AssertionError(step)

    def _place(self, ref: Ref, nbytes: int, around: tuple[Counter, ...]) -> TurnPlace:
        """``nbytes`` of it are touched."""
        region = self._spans.get(ref.buffer)
        if region is not None:
            offset = ref.buffer.offset - region.first + ref.offset
            word = self._word(region, Ref(ref.buffer, region.first - ref.buffer.offset))
            self._ends[word] = max(self._ends.get(word, 0), offset + nbytes)
            return TurnPlace(word, offset)
        outside = tuple([m for m in ref.moves if m[0] not in self._counters])
        moves = tuple([(around.index(c), stride) for c, stride in ref.moves if c in self._counters])
        return TurnPlace(self._word((ref.buffer, outside), Ref(ref.buffer, 0, outside)), ref.offset, moves)

    def _word(self, what: object, ref: Ref) -> int:
        if what not in self._at:
            self._at[what] = len(self.words)
            self.words.append(ref)
        return self._at[what]
