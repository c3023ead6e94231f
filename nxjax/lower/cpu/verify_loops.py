"""Loops and choices of a tape that is followed: which turns, what they leave in memory, what the turns between read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NoReturn, final

from nxjax.config import config
from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box
from nxjax.lower.cpu.contents import MemoryContents, Missing, Owner, Repeats, merged, read, repeat, varied
from nxjax.lower.cpu.tape import BranchStep, Buffer, Counter, Ref, RepeatStep, TapeStep, WhileStep

# How deep loops lie in one another, at most, of which more than the first turn is followed in every turn of those
# around them; and under `config.check`. In the first turns of those around them that is so for loops of any depth.
_DEPTH: Final = 3
_ALL: Final = 4
_MIDDLE: Final = 2  # those whose second turn is followed, too, in the first turns of those around them
_TURNS: Final = 16  # of one loop, at most
# The same of a loop that reads a donated argument row by row and may write elsewhere in it; and under `config.check`.
_CROSSING: Final = 64
_CROSSING_ALL: Final = 4096

Key = Buffer | None  # a memory: a buffer's own, or the arena
Spaces = dict[Key, MemoryContents]


@final
@dataclass(slots=True)
class _Written:
    """The memories that a step and those in it write, those that they write at places that stay, and the buffers."""

    keys: set[Key] = field(default_factory=set[Key])
    fixed: set[Key] = field(default_factory=set[Key])
    buffers: set[Buffer] = field(default_factory=set[Buffer])


class LoopEffects(ABC):
    """What is in memory, and how steps with bodies change it; a subclass follows the others."""

    def __init__(self, turns: Mapping[TapeStep, Sequence[int]] | None) -> None:
        self.spaces: Spaces = {}
        # Memories that nobody else holds, which may be changed.
        self.own: set[Key] = set()
        self.turn: dict[Counter, int] = {}
        self.effects = self.ends = 0
        self.era = 0
        self.step: TapeStep | None = None
        self.depth = 0
        self.later = 0  # how many loops are around this step that are not in their first turn
        # How many turns of each loop are followed, where another tape says it; and how many were.
        self.given = {loop: iter(counts) for loop, counts in (turns or {}).items()}
        self.followed: dict[TapeStep, list[int]] = {}
        # What loops write at places that move: per counter and buffer and stride the extents in the first turn.
        self.moving: dict[Counter, dict[tuple[Buffer, int], list[tuple[int, int]]]] = {}
        # What loops read at places that move: the bytes of all turns of a counter, and of those inside; and the buffers
        # that they write.
        self.ranges: dict[Counter, tuple[set[tuple[Buffer, int, int, Repeats]], set[Buffer]]] = {}
        self.written: dict[TapeStep, _Written] = {}
        # Arguments that results may be written to, and the results.
        self.donated: set[Buffer] = set()
        self.results: set[Buffer] = set()

    @abstractmethod
    def steps(self, steps: Sequence[TapeStep]) -> None: ...

    @abstractmethod
    def read(self, ref: Ref, box: Box) -> int: ...

    @abstractmethod
    def space(self, b: Buffer, change: bool = False) -> MemoryContents: ...

    @abstractmethod
    def missing(self, ref: Ref, e: Missing) -> NoReturn: ...

    # --- loops ---

    def repeat(self, step: RepeatStep) -> None:
        counter, count = step.counter, step.counter.count
        if not count:
            return
        first, later = not any(self.turn.values()), self.later
        self.depth += 1
        self.era += 1
        start, era, effects, ends = self.kept(step), self.era, self.effects, self.ends
        moving = self.moving[counter] = {}
        self.ranges[counter] = set(), self.writes(step).buffers
        last = count > 1 and self._more()
        most = count - 1 if last else 1
        turn = 0
        usual = 2 if first and self.depth <= _MIDDLE else 1
        if self.depth <= _MIDDLE and self._crosses(step):
            usual = _CROSSING_ALL if config.check and self.depth == 1 else _CROSSING
        for turn in self._turns(step, start, most, min(most, usual)):
            self.turn[counter], self.later = turn, later + (turn > 0)
            self.steps(step.body)
        # The turns between are like the one before.
        rest = count - 1 - turn - last
        if rest > 0:
            for (b, stride), extents in moving.items():
                for lo, hi in extents:
                    move = turn * stride
                    repeat(self.space(b, True), owner_of(b), lo + move, hi + move, stride, rest)
        if last:
            before = self.kept(step)
            self.era += 1
            self.turn[counter], self.later = count - 1, later + 1
            now = self.era
            self.steps(step.body)
            # What no turn leaves as it was, so many turns make.
            why = hash(("turns", count))
            for key in self.writes(step).keys:
                space, was = self.spaces.get(key), before.get(key)
                if space is not None and was is not None and space is not was:
                    self.spaces[key] = varied(space, was, era, now, why)
                    self.own.add(key)
            if effects != self.effects:
                self.effects = hash((why, self.effects))
            self.ends = ends + hash((why, self.ends - ends)) if ends != self.ends else ends
        self.depth, self.later = self.depth - 1, later
        del self.turn[counter], self.moving[counter]
        self.step = step
        for b, lo, hi, repeats in self.ranges.pop(counter)[0]:
            try:
                read(self.space(b), owner_of(b), lo, lo, hi, repeats)
            except Missing as e:
                self.missing(Ref(b), e)

    def whiles(self, step: WhileStep) -> None:
        self.depth, later = self.depth + 1, self.later
        self.steps(step.condition)
        self.step = step
        flags = [self.read(step.flag, Box(1))]
        ends = self.ends
        states = [(self.kept(step), self.effects)]
        most, usual = (_TURNS, 2) if self._more() else (1, 1)
        for turn in self._turns(step, states[0][0], most, usual):
            self.later = later + (turn > 0)
            self.steps(step.body)
            self.steps(step.condition)
            self.step = step
            flags.append(self.read(step.flag, Box(1)))
            states.append((self.kept(step), self.effects))
        self.depth, self.later = self.depth - 1, later
        why = hash(("while", *flags))
        for spaces, effects in states[-2::-1]:
            self._joined(step, spaces, effects, why)
        self.ends = ends + hash((why, self.ends - ends))

    def _crosses(self, step: RepeatStep) -> bool:
        """Whether a donated argument is read row by row, and results are written by another stride or at one place.

        Where such a result lies in that argument, a row may be lost in a turn in the middle, and in no other one.
        """
        counter = step.counter
        reads = {s for b, s in _strides(step, counter, reading=True) if b in self.donated and s}
        if not reads:
            return False
        writes = {s for b, s in _strides(step, counter) if b in self.results or b in self.donated}
        return bool(writes) and len(reads | writes) > 1

    def _more(self) -> bool:
        """Whether more than the first turn of this loop is followed."""
        return not self.later or self.depth <= (_ALL if config.check else _DEPTH)

    def _turns(self, step: RepeatStep | WhileStep, start: Spaces, most: int, usual: int) -> Iterator[int]:
        """The turns of a loop to follow: ``usual``, or more, if it carries equal values."""
        given = next(self.given.get(step, iter(())), None)
        fixed = self.writes(step).fixed
        equal = given is None and most > usual and not any(self.turn.values()) and _repeated(fixed, start)
        old = {r.name for key in fixed if key in start for r in start[key].runs} if equal else set[int]()
        kinds: Any = None
        turn = 0
        while True:
            yield turn
            turn += 1
            if given is not None:
                if turn >= given:
                    break
            elif turn >= min(most, max(_TURNS, usual)) or (not equal and turn >= usual):
                break
            elif equal:
                before, kinds = kinds, self._kinds(fixed, old)
                if turn >= usual and before == kinds:
                    break
        if given is None:
            self.followed.setdefault(step, []).append(turn)

    def _kinds(self, keys: Iterable[Key], old: set[int]) -> list[tuple[int, int, int, bool]]:
        """Which bytes of these memories are equal, and which were there before the loop, whatever they are called."""
        numbers: dict[tuple[int, int], int] = {}
        return [
            (r.start, r.end, numbers.setdefault((r.name, r.base), len(numbers)), r.name in old)
            for key in keys
            if key in self.spaces
            for r in self.spaces[key].runs
        ]

    # --- choices ---

    def branch(self, step: BranchStep) -> None:
        index = self.read(step.index, Box(4))
        start, effects, ends = self.kept(step), self.effects, self.ends
        found: list[tuple[Spaces, int]] = []
        turns: list[int] = []
        for branch in step.branches:
            self._back(step, start)
            self.effects, self.ends = effects, ends
            self.steps(branch)
            found.append((self.kept(step), self.effects))
            turns.append(self.ends - ends)
        self.ends = ends + hash((index, *turns)) if any(turns) else ends
        self.step = step
        (first, self.effects), *rest = found or [(start, effects)]
        self._back(step, first)
        for i, (spaces, acted) in enumerate(rest):
            self._joined(step, spaces, acted, hash(("branch", index, i)))

    # --- what bodies write ---

    def writes(self, step: TapeStep) -> _Written:
        """What ``step`` and the steps in it write."""
        found = self.written.get(step)
        if found is None:
            found = self.written[step] = _Written()
            for body in step.bodies():
                for s in body:
                    inner = self.writes(s) if s.bodies() else None
                    if inner is not None:
                        found.keys |= inner.keys
                        found.fixed |= inner.fixed
                        found.buffers |= inner.buffers
                        continue
                    for ref in s.writes():
                        key = None if owner_of(ref.buffer) else ref.buffer
                        found.keys.add(key)
                        found.buffers.add(ref.buffer)
                        if not ref.moves:
                            found.fixed.add(key)
        return found

    def kept(self, step: TapeStep) -> Spaces:
        """All that is known now of what ``step`` writes, to go back to."""
        keys = self.writes(step).keys
        self.own -= keys
        return {key: space for key in keys if (space := self.spaces.get(key)) is not None}

    def _back(self, step: TapeStep, spaces: Spaces) -> None:
        """What ``step`` writes is again as it was."""
        keys = self.writes(step).keys
        self.own -= keys
        for key in keys:
            self.spaces.pop(key, None)
        self.spaces.update(spaces)

    def _joined(self, step: TapeStep, spaces: Spaces, effects: int, why: int) -> None:
        """Only what is sure here and in ``spaces``, which differ by what ``step`` writes."""
        for key in self.writes(step).keys:
            space, other = self.spaces.get(key), spaces.get(key)
            if space is None or other is None:
                self.spaces.pop(key, None)
            elif other is not space:
                self.spaces[key] = merged(space, other, why)
        if effects != self.effects:
            self.effects = hash((why, self.effects, effects))

    # --- places that move: called where a loop that they move with is in its first turn ---

    def rows_written(self, ref: Ref, lo: int, hi: int) -> None:
        """A moving place is written: remember its extent in the first turn of each loop, and all turns inside."""
        strides: dict[Counter, int] = {}
        for counter, stride in ref.moves:
            strides[counter] = strides.get(counter, 0) + stride
        for counter in reversed(self.turn):
            stride = strides.get(counter, 0)
            if stride:
                lo, hi = lo - self.turn[counter] * stride, hi - self.turn[counter] * stride
                extents = self.moving[counter].setdefault((ref.buffer, stride), [])
                first, last = lo, hi
                for other in [e for e in extents if e[0] <= hi and lo <= e[1]]:
                    extents.remove(other)
                    first, last = min(first, other[0]), max(last, other[1])
                extents.append((first, last))
                far = stride * (counter.count - 1)
                lo, hi = min(lo, lo + far), max(hi, hi + far)

    def rows_read(self, ref: Ref, lo: int, hi: int, repeats: Repeats) -> None:
        """A moving place is read: remember the bytes of all turns of the outermost loop that it moves with.

        But for what that loop writes itself: turns are alike.
        """
        if ref.buffer.kind in ("input", "const"):
            return  # nobody else's memory
        found: set[tuple[Buffer, int, int, Repeats]] | None = None
        for counter, turn in self.turn.items():
            stride = sum([s for c, s in ref.moves if c is counter])
            if stride:
                if found is None:
                    found, own = self.ranges[counter]
                    if ref.buffer in own:
                        return
                far = stride * (counter.count - 1)
                least = min(0, far) - stride * turn
                lo, hi = lo + least, hi + least
                if not repeats and abs(stride) <= hi - lo:
                    hi += abs(far)
                else:
                    repeats = (*repeats, (counter.count, abs(stride)))
        if found is not None:
            found.add((ref.buffer, lo, hi, repeats))


def _strides(step: TapeStep, counter: Counter, *, reading: bool = False) -> Iterator[tuple[Buffer, int]]:
    """The buffers that the steps in ``step`` read or write, and by how much each place moves with ``counter``."""
    for body in step.bodies():
        for inner in body:
            for ref in inner.reads() if reading else inner.writes():
                yield ref.buffer, sum(stride for c, stride in ref.moves if c is counter)
            yield from _strides(inner, counter, reading=reading)


def owner_of(b: Buffer) -> Owner:
    """Whose memory what is written to ``b`` is, where others may lie, too: in the arena."""
    return b if b.offset >= 0 else None


def _repeated(keys: Iterable[Key], spaces: Spaces) -> bool:
    """Whether one value lies in two of these memories."""
    seen: set[tuple[int, int]] = set()
    for key in keys:
        space = spaces.get(key)
        mine = {(r.name, r.base) for r in space.runs} if space is not None else set[tuple[int, int]]()
        if not seen.isdisjoint(mine):
            return True
        seen |= mine
    return False
