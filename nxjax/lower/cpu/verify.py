"""Whether a tape may run: found from the tape alone, by other rules than those that it was planned by.

The tape is followed step by step with names of values in place of bytes (`contents`), once from its arguments to its
results: a loop's first two turns and its last one, a `While`'s condition and two turns, every branch. Equal carries
hide faults: where a loop begins with some, it is followed until no more of them become different. Kernels say which
bytes they touch (`Kernel.touches`). It is an error if

    unwritten    a step reads bytes that are not written on every path that leads there, or a result is not complete
    overwritten  what it reads there is another temporary's, which lies in the same place of the arena
    outside      a kernel can form an address outside of the buffer that it is given
    constant     a constant, or an argument that is not donated, is written
    overlap      operands of one call overlap where its kernel does not allow it, or temporaries lie outside the arena
    size         a call has more or fewer operands than its kernel
    kernel       a kernel's plan of its own scratch memory is wrong (`Kernel.flaw`)
    changed      what the tape computes is not what it computed before its memory was planned (`Trace`)

The last compares names: each says what a step makes of which others, so a copy that should have stayed, a step that is
missing, or an argument that is overwritten before its last reader changes those of the results. Knows no kernel, and
nothing of how memory is planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, final

from nxjax.errors import VerificationError
from nxjax.kernels.cpu.base import Box
from nxjax.lower.cpu.contents import (
    UNKNOWN,
    Missing,
    Repeats,
    Run,
    Space,
    boxed,
    cells,
    change,
    merged,
    old,
    plain,
    read,
    repeat,
    varied,
    write,
)
from nxjax.lower.cpu.tape import (
    ALIGN,
    Branch,
    Buffer,
    Call,
    Copy,
    Counter,
    CpuProgram,
    Host,
    Ref,
    Repeat,
    Step,
    While,
    walk,
)

_DEPTH: Final = 4  # loops in one another whose last turn is followed, too
_MIDDLE: Final = 2  # those whose second turn is, too, in the first turns of those around them
_TURNS: Final = 16  # of one loop, at most
_TOP: Final = 1 << 62  # beyond all places

Arguments = Sequence[Sequence[Run]] | None
Spaces = dict[Buffer | None, Space]


@final
@dataclass(slots=True)
class Trace:
    """What a tape computes: names of its results, of what it did to the world, and of what each step read."""

    results: tuple[int, ...] = ()
    effects: int = 0
    ends: int = 0  # how often each `While` runs, and that it ends, in no order: a sum of names
    vague: bool = False  # something is not followed, so effects are not compared
    reads: dict[int, set[int]] = field(default_factory=dict)
    turns: dict[int, list[int]] = field(
        default_factory=dict
    )  # of each loop, as often as it begins: how many are followed
    steps: list[Step] = field(default_factory=list)  # so that nobody else gets their identity
    contents: list[list[Run]] = field(default_factory=list[list[Run]])  # of each result


def trace(program: CpuProgram) -> Trace:
    """Follow ``program`` before its memory is planned; raises `VerificationError`."""
    v = _Verifier(program, None, None, False)
    v.run()
    return v.trace


def argument(i: int, b: Buffer) -> list[Run]:
    """What argument ``i`` holds, where nobody says anything else."""
    return [Run(0, b.nbytes, hash(("input", i)), 0, b)]


def verify(
    program: CpuProgram,
    before: Trace | None = None,
    arguments: Arguments = None,
    *,
    complete: bool = True,
    ends: int = 0,
    turns: Mapping[int, Sequence[int]] | None = None,
    lent: int = 0,
) -> Trace:
    """Follow ``program``, whose memory is planned; raises `VerificationError`.

    Args:
        before: what it has to compute.
        arguments: what the arguments hold; by default each has a name of its own.
        complete: every byte of the results is written; otherwise they are what another tape reads.
        ends: `Trace.ends` of a tape that ran before this one, where both together do what ``before`` did.
        turns: `Trace.turns` of what it has to compute; by default those of ``before``.
        lent: how many arguments, the first ones, the next call gets again: nothing may be written there.
    """
    if turns is None and before is not None:
        turns = before.turns
    v = _Verifier(program, arguments, turns=turns)
    v.donated -= set(program.inputs[:lent])
    v.complete, v.ends = complete, ends
    v.run()
    found = v.trace
    if before is None:
        return found
    pairs = enumerate(zip(before.results, found.results, strict=True))
    wrong = [i for i, (x, y) in pairs if x != y and UNKNOWN not in (x, y)]
    same = (before.effects, before.ends) == (found.effects, found.ends)
    acts = not (same or before.vague or found.vague)
    if wrong or acts:
        _Verifier(program, arguments, before, turns=turns).run()  # raises at the step that reads something else
        what = f"result {wrong[0]}" if wrong else "an effect"
        raise VerificationError(
            f"verify: changed: {what} of a compiled program is not what it was before its memory was planned",
            fix=_REPORT,
        )
    return found


_REPORT: Final = "this is a defect of nxjax: please report it; NXJAX_VERIFY=0 runs the program unverified"


@final
class _Verifier:
    """Follows one tape."""

    def __init__(
        self,
        program: CpuProgram,
        arguments: Arguments,
        before: Trace | None = None,
        strict: bool = True,
        turns: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.program = program
        self.before = before
        self.trace = Trace()
        self.arguments = arguments
        self.spaces: Spaces = {}
        # Memories that nobody else holds, which may be changed.
        self.own: set[Buffer | None] = set()
        self.turn: dict[Counter, int] = {}
        self.effects = self.ends = 0
        self.era = 0
        self.step: Step | None = None
        self.depth = 0
        self.donated = {program.inputs[i] for i in program.donated}
        # What loops write at places that move: per counter and buffer and stride the extents in the first turn.
        self.moving: dict[Counter, dict[tuple[Buffer, int], list[tuple[int, int]]]] = {}
        self.sound: set[int] = set()
        # How many turns of each loop are followed, where another tape says it; and which memories a step writes.
        self.given = {loop: iter(counts) for loop, counts in (turns or {}).items()}
        self.written: dict[int, tuple[set[Buffer | None], set[Buffer | None]]] = {}
        # What loops read at places that move: the bytes of all turns of a counter, and of those inside; and the buffers
        # that they write.
        self.ranges: dict[Counter, tuple[set[tuple[Buffer, int, int, Repeats]], set[Buffer]]] = {}
        # Before memory is planned nothing can lie in one place.
        self.strict = strict
        self.complete = True

    # --- the whole ---

    def run(self) -> None:
        program = self.program
        for i, b in enumerate(program.inputs):
            held = argument(i, b) if self.arguments is None else self.arguments[i]
            self._space(b)[:] = [r._replace(owner=b, era=0) for r in held]
        self.steps(program.steps)
        self.step = None
        found: list[int] = []
        for b in program.outputs:
            found.append(self.read(Ref(b), Box(b.nbytes)) if b.nbytes and self.complete else 1)
            self.trace.contents.append(plain(self._space(b).within(0, b.nbytes)))
        self.trace.results = tuple(found)
        self.trace.effects, self.trace.ends = self.effects, self.ends

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step = step
            match step:
                case Call():
                    self._call(step)
                case Copy():
                    self._copy(step)
                case Host():
                    self._host(step)
                case Repeat():
                    self._repeat(step)
                case While():
                    self._while(step)
                case Branch():
                    self._branch(step)
                case _:
                    raise AssertionError(step)

    def _seen(self, step: Step, name: int) -> None:
        """Step ``step`` reads what is called ``name``."""
        if self.before is None:
            known = self.trace.reads.get(id(step))
            if known is None:
                self.trace.reads[id(step)] = {name}
                self.trace.steps.append(step)
            else:
                known.add(name)
        elif name not in self.before.reads.get(id(step), {name}):
            self.fail("changed", "a step reads other values than before memory was planned")

    # --- steps ---

    def _call(self, step: Call) -> None:
        kernel = step.kernel
        touched = kernel.touched
        if len(touched.ins) != len(step.ins) or len(touched.outs) != len(step.outs):
            self.fail("size", f"{kernel.key} has other operands than {step!r}")
        name: list[Any] = [id(kernel), step.integers]
        known = True
        # Of each operand the extent in the memory that it lies in.
        extents: list[tuple[Buffer | None, int, int]] = []
        for ref, boxes in zip(step.ins, touched.ins, strict=True):
            b, at, start = self._place(ref)
            low, high = _TOP, -_TOP
            for box in boxes:
                lo, hi, repeats = self._inside(ref, box, at, start)
                if hi <= lo:
                    continue
                low, high = min(low, lo), max(high, at + box.end)
                if not box.idle:
                    if ref.moves:
                        self._reaches(ref, lo, hi, repeats)
                    try:
                        found = read(self._space(b), b, at, lo, hi, repeats)
                    except Missing as e:
                        self._missing(ref, e)
                    name.append(found)
                    known = known and found != UNKNOWN
            extents.append((self._key(b), low, high))
        for ref, written in zip(step.outs, touched.outs, strict=True):
            b, at, start = self._place(ref)
            places = [self._inside(ref, box, at, start) for box in written.boxes]
            if written.how == "some":
                name.append(old(self._space(b), at, places))
            low = min([lo for lo, hi, _ in places if hi > lo], default=_TOP)
            extents.append((self._key(b), low, max([at + box.end for box in written.boxes], default=-_TOP)))
        self._seen(step, hash(tuple(name)))
        if self.strict:
            self._sound(step)
            self._apart(step, extents)
        for k, (ref, written) in enumerate(zip(step.outs, touched.outs, strict=True)):
            mine = hash((*name, k)) if known else UNKNOWN
            self.trace.vague |= not known
            for box in written.boxes:
                self.write(ref, box, mine, written.how == "some")

    def _copy(self, step: Copy) -> None:
        box = Box(step.nbytes)
        if not step.nbytes or step.source_ref == step.target:
            return
        self._seen(step, self.read(step.source_ref, box))
        source, at, _ = self._place(step.source_ref)
        to, there, _ = self._place(step.target)
        if self._key(source) is self._key(to) and at != there and abs(at - there) < step.nbytes:
            self.fail("overlap", "a copy's target overlaps its source", step.target)
        runs = self._space(source).within(at, at + step.nbytes)
        move = there - at
        if any(r.pattern is not None for r in runs):
            pattern = cells(self._space(source), at, at + step.nbytes, [])
            if pattern is None:
                self.write(step.target, box, 0)
                return
            pattern.base += move
            pattern.table = [
                None if r is None else r._replace(base=r.base + move, owner=to, era=self.era) for r in pattern.table
            ]
            runs = [Run(at, at + step.nbytes, 0, at, to, pattern)]
        self.write(step.target, box, 1)
        runs = [
            r._replace(start=r.start + move, end=r.end + move, base=r.base + move, owner=to, era=self.era) for r in runs
        ]
        self._space(to, True).put(runs, there, there + step.nbytes)

    def _host(self, step: Host) -> None:
        assert step.equation is not None
        name: list[Any] = [id(step.equation), repr(step.in_types)]
        for ref, type in zip(step.ins, step.in_types, strict=True):
            name.append(self.read(ref, Box(type.size * type.dtype.itemsize)))
        self._seen(step, hash(tuple(name)))
        if step.equation.op.effect:
            self.effects = hash((self.effects, *name))
            name.append(self.effects)
        for k, (ref, type) in enumerate(zip(step.outs, step.out_types, strict=True)):
            self.write(ref, Box(type.size * type.dtype.itemsize), hash((*name, k)))

    # --- loops and choices ---

    def _repeat(self, step: Repeat) -> None:
        count = step.counter.count
        if not count:
            return
        first = not any(self.turn.values())
        self.depth += 1
        self.era += 1
        start, era, effects, ends = self._kept(step), self.era, self.effects, self.ends
        moving = self.moving[step.counter] = {}
        self.ranges[step.counter] = set(), {r.buffer for s in walk(step.body) for r in s.writes()}
        last = count > 1 and self.depth <= _DEPTH
        most = count - 1 if last else 1
        turn = 0
        for turn in self._turns(step, start, most, min(most, 2 if first and self.depth <= _MIDDLE else 1)):
            self.turn[step.counter] = turn
            self.steps(step.body)
        # The turns between are like the one before.
        for (b, stride), extents in moving.items():
            for lo, hi in extents:
                move = turn * stride
                rest = count - 1 - turn - last
                repeat(self._space(b, True), b, lo + move, hi + move, stride, rest)
        if last:
            before = self._kept(step)
            self.era += 1
            now = self.era
            self.turn[step.counter] = count - 1
            self.steps(step.body)
            # What no turn leaves as it was, so many turns make.
            why = hash(("turns", count))
            for key in self._writes(step)[0]:
                space, was = self.spaces.get(key), before.get(key)
                if space is not None and was is not None and space is not was:
                    self.spaces[key] = varied(space, was, era, now, why)
                    self.own.add(key)
            if effects != self.effects:
                self.effects = hash((why, self.effects))
            self.ends = ends + hash((why, self.ends - ends)) if ends != self.ends else ends
        self.depth -= 1
        del self.turn[step.counter], self.moving[step.counter]
        self.step = step
        for b, lo, hi, repeats in self.ranges.pop(step.counter)[0]:
            try:
                read(self._space(b), b, lo, lo, hi, repeats)
            except Missing as e:
                self._missing(Ref(b), e)

    def _while(self, step: While) -> None:
        self.depth += 1
        self.steps(step.condition)
        self.step = step
        flags = [self.read(step.flag, Box(1))]
        ends = self.ends
        states = [(self._kept(step), self.effects)]
        most, usual = (_TURNS, 2) if self.depth <= _DEPTH else (1, 1)
        for _ in self._turns(step, states[0][0], most, usual):
            self.steps(step.body)
            self.steps(step.condition)
            self.step = step
            flags.append(self.read(step.flag, Box(1)))
            states.append((self._kept(step), self.effects))
        self.depth -= 1
        why = hash(("while", *flags))
        for spaces, effects in states[-2::-1]:
            self._joined(step, spaces, effects, why)
        self.ends = ends + hash((why, self.ends - ends))

    def _branch(self, step: Branch) -> None:
        index = self.read(step.index, Box(4))
        start, effects, ends = self._kept(step), self.effects, self.ends
        found: list[tuple[Spaces, int]] = []
        turns: list[int] = []
        for branch in step.branches:
            self._back(step, start)
            self.effects, self.ends = effects, ends
            self.steps(branch)
            found.append((self._kept(step), self.effects))
            turns.append(self.ends - ends)
        self.ends = ends + hash((index, *turns)) if any(turns) else ends
        self.step = step
        (first, self.effects), *rest = found or [(start, effects)]
        self._back(step, first)
        for i, (spaces, acted) in enumerate(rest):
            self._joined(step, spaces, acted, hash(("branch", index, i)))

    def _turns(self, step: Repeat | While, start: Spaces, most: int, usual: int) -> Iterator[int]:
        """The turns of a loop to follow: ``usual``, or more, if it carries equal values."""
        given = next(self.given.get(id(step), iter(())), None)
        fixed = self._writes(step)[1]
        first = not any(self.turn.values())  # of all loops around it
        equal = given is None and first and most > usual and self._repeated(fixed, start)
        old = {r.name for key in fixed for r in start.get(key, ())} if equal else set[int]()
        kinds: Any = None
        turn = 0
        while True:
            yield turn
            turn += 1
            if given is not None:
                if turn >= given:
                    break
            elif turn >= min(most, _TURNS) or (not equal and turn >= usual):
                break
            elif equal:
                before, kinds = kinds, self._kinds(fixed, old)
                if turn >= usual and before == kinds:
                    break
        if given is None:
            self.trace.turns.setdefault(id(step), []).append(turn)
            self.trace.steps.append(step)

    def _repeated(self, keys: set[Buffer | None], spaces: Spaces) -> bool:
        """Whether one value lies in two of these memories."""
        seen: set[tuple[int, int]] = set()
        for key in keys:
            mine = {(r.name, r.base) for r in spaces.get(key, ())}
            if not seen.isdisjoint(mine):
                return True
            seen |= mine
        return False

    def _kinds(self, keys: set[Buffer | None], old: set[int]) -> list[tuple[int, int, int, bool]]:
        """Which bytes of these memories are equal, and which were there before the loop, whatever they are called."""
        numbers: dict[tuple[int, int], int] = {}
        return [
            (r.start, r.end, numbers.setdefault((r.name, r.base), len(numbers)), r.name in old)
            for key in keys
            for r in self.spaces.get(key, ())
        ]

    def _writes(self, step: Step) -> tuple[set[Buffer | None], set[Buffer | None]]:
        """The memories that the steps in ``step`` write, and those that they write at places that do not move."""
        found = self.written.get(id(step))
        if found is None:
            refs = [r for s in walk([step]) for r in s.writes()]
            found = {self._key(r.buffer) for r in refs}, {self._key(r.buffer) for r in refs if not r.moves}
            self.written[id(step)] = found
        return found

    def _kept(self, step: Step) -> Spaces:
        """All that is known now of what ``step`` writes, to go back to."""
        keys = self._writes(step)[0]
        self.own -= keys
        return {key: space for key in keys if (space := self.spaces.get(key)) is not None}

    def _back(self, step: Step, spaces: Spaces) -> None:
        """What ``step`` writes is again as it was."""
        keys = self._writes(step)[0]
        self.own -= keys
        for key in keys:
            self.spaces.pop(key, None)
        self.spaces.update(spaces)

    def _joined(self, step: Step, spaces: Spaces, effects: int, why: int) -> None:
        """Only what is sure here and in ``spaces``, which differ by what ``step`` writes."""
        for key in self._writes(step)[0]:
            space, other = self.spaces.get(key), spaces.get(key)
            if space is None or other is None:
                self.spaces.pop(key, None)
            elif other is not space:
                self.spaces[key] = merged(space, other, why)
        if effects != self.effects:
            self.effects = hash((why, self.effects, effects))

    # --- memory ---

    def _key(self, b: Buffer) -> Buffer | None:
        """Which memory a buffer lies in: its own, or the arena."""
        return None if b.kind == "temp" and b.offset >= 0 else b

    def _space(self, b: Buffer, change: bool = False) -> Space:
        key = self._key(b)
        space = self.spaces.get(key)
        if space is None:
            space = self.spaces[key] = Space()
            self.own.add(key)
            if b.kind == "const":
                space.append(Run(0, b.nbytes, hash(("const", id(self.program.consts[b.index]))), 0, b))
        elif change and key not in self.own:
            space = self.spaces[key] = Space(space)
            self.own.add(key)
        return space

    def _place(self, ref: Ref) -> tuple[Buffer, int, int]:
        """The buffer, where ``ref`` is in its memory at this turn, and where the buffer begins there."""
        b = ref.buffer
        start = b.offset if b.offset > 0 and b.kind == "temp" else 0
        at = start + ref.offset
        for counter, stride in ref.moves:
            turn = self.turn.get(counter)
            if turn is None:
                self.fail("outside", "a place moves with the turns of a loop that its step is not in", ref)
            at += turn * stride
        return b, at, start

    def _inside(self, ref: Ref, box: Box, at: int, start: int) -> tuple[int, int, Repeats]:
        """The first run of ``box`` of an operand at ``at``, and how it is repeated; raises where it is outside."""
        first, length, repeats = box.runs
        if length and (at + first < start or at + box.end > start + ref.buffer.nbytes):
            low, high = at + first - start, at + box.end - start
            self.fail("outside", f"bytes {low} to {high} of {ref.buffer.nbytes} are asked for", ref)
        return at + first, at + first + length, repeats

    def read(self, ref: Ref, box: Box) -> int:
        """The name of what ``box`` holds."""
        b, at, start = self._place(ref)
        lo, hi, repeats = self._inside(ref, box, at, start)
        if hi == lo:
            return 1
        if ref.moves:
            self._reaches(ref, lo, hi, repeats)
        try:
            return read(self._space(b), b, at, lo, hi, repeats)
        except Missing as e:
            self._missing(ref, e)

    def write(self, ref: Ref, box: Box, name: int, some: bool = False) -> None:
        """``box`` becomes a part of value ``name``."""
        b, at, start = self._place(ref)
        lo, hi, repeats = self._inside(ref, box, at, start)
        if hi == lo:
            return
        if b.kind == "const" or (b.kind == "input" and b not in self.donated):
            self.fail("constant", "memory that is not the program's is written", ref)
        if b.kind == "temp" and b.offset >= 0 and (b.offset % ALIGN or b.offset + b.nbytes > self.program.arena):
            self.fail("overlap", f"{b.nbytes} bytes are not at a place of the arena's {self.program.arena}", ref)
        if ref.moves:
            self._moved(ref, lo, at + box.end)
        (change if some else write)(self._space(b, True), b, name, at, lo, hi, repeats, self.era)

    def _moved(self, ref: Ref, lo: int, hi: int) -> None:
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

    def _reaches(self, ref: Ref, lo: int, hi: int, repeats: Repeats) -> None:
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
                least = min(0, stride * (counter.count - 1)) - stride * turn
                lo, hi = lo + least, hi + least
                repeats = (*repeats, (counter.count, abs(stride)))
        if found is not None:
            found.add((ref.buffer, lo, hi, repeats))

    # --- one call ---

    def _apart(self, step: Call, extents: Sequence[tuple[Buffer | None, int, int]]) -> None:
        """Raise where an output lies where another operand does, and may not."""
        n = len(step.ins)
        for k in range(n, len(extents)):
            key, low, high = extents[k]
            for j in range(k):
                other, start, end = extents[j]
                if start < high and low < end and other is key:
                    self._disjoint(step, k - n, j)

    def _disjoint(self, step: Call, k: int, j: int) -> None:
        touched, n = step.kernel.touched, len(step.ins)
        out, other = step.outs[k], step.ins[j] if j < n else step.outs[j - n]
        (_, at, start), (_, there, begin) = self._place(out), self._place(other)
        for x in touched.outs[k].boxes:
            lo, hi, repeats = self._inside(out, x, at, start)
            for y in touched.ins[j] if j < n else touched.outs[j - n].boxes:
                low, high, again = self._inside(other, y, there, begin)
                if lo >= there + y.end or low >= at + x.end or hi == lo or high == low:
                    continue
                if (k, j) in (*step.kernel.inplace, *step.kernel.added) and at == there and _same(x, y):
                    continue
                if not _crosses((lo, hi, repeats, at + x.end), (low, high, again, there + y.end)):
                    continue
                whose = f"operand {j}" if j < n else f"output {j - n}"
                self.fail("overlap", f"output {k} of {step.kernel.title} lies where its {whose} does", out)

    def _sound(self, step: Call) -> None:
        """Raise where the kernel is wrong in itself."""
        kernel, touched = step.kernel, step.kernel.touched
        if id(kernel) in self.sound:
            return
        self.sound.add(id(kernel))
        flaw = kernel.flaw()
        if flaw:
            self.fail("kernel", f"{kernel.key}: {flaw}")
        for k, j in kernel.inplace:
            x, y = touched.outs[k], touched.ins[j]
            if x.how != "all" or len(x.boxes) != len(y) or not all(map(_same, x.boxes, y)):
                self.fail("kernel", f"{kernel.key}: output {k} may be operand {j}, which has other bytes")

    # --- errors ---

    def _missing(self, ref: Ref, e: Missing) -> NoReturn:
        b = ref.buffer
        start = max(b.offset, 0)
        bytes_ = f"bytes {e.start - start} to {e.end - start}"
        if self.step is None:
            self.fail("unwritten", f"{bytes_} of a result are not written on every path", ref)
        if e.run is None:
            self.fail("unwritten", f"{bytes_} are read, and not written before on every path", ref)
        self.fail("overwritten", f"{bytes_} are read, where {e.run.owner!r} has been written since", ref)

    def fail(self, kind: str, what: str, ref: Ref | None = None) -> NoReturn:
        step = self.step
        more = [] if ref is None else [("buffer", f"{ref!r}, {ref.buffer.nbytes} bytes")]
        raise VerificationError(
            f"verify: {kind}: {what}",
            source=None if step is None else step.source,
            more=[*more, ("step", repr(step) if step is not None else "the end of the program")],
            fix=_REPORT,
        )


def _same(x: Box, y: Box) -> bool:
    """Whether two boxes have the same bytes in the same order."""

    def essential(b: Box) -> tuple[tuple[int, int], ...]:
        return tuple([(n, s) for n, s in zip(b.shape, b.strides, strict=True) if n != 1 and s])

    return (x.size, x.offset, essential(x)) == (y.size, y.offset, essential(y))


def _crosses(x: tuple[int, int, Repeats, int], y: tuple[int, int, Repeats, int]) -> bool:
    """Whether two boxes whose extents overlap have a byte in common; yes, where that takes long to say."""
    (lo, hi, repeats, top), (low, high, again, end) = x, y
    if not repeats and not again:
        return True
    if _interleaved(hi - lo, repeats, high - low, again, low - lo):
        return False
    first, last = min(lo, low), max(top, end)
    steps = [hi - lo, high - low, lo - first, low - first, *(s for _, s in (*repeats, *again))]
    made = cells(Space(), first, last, steps)
    if made is None:
        return True
    boxed(made, lo - first, hi - lo, repeats)[...] = 1
    return bool(boxed(made, low - first, high - low, again).any())


def _interleaved(length: int, repeats: Repeats, other: int, again: Repeats, shift: int) -> bool:
    """Whether two boxes, the second ``shift`` bytes after the first, lie in separate parts of one period.

    A period divides all large strides of both; the small ones move within it.
    """
    strides = sorted({s for _, s in (*repeats, *again)})
    for i, least in enumerate(strides):
        period = math.gcd(*strides[i:])
        mine = length + sum((n - 1) * s for n, s in repeats if s < least)
        theirs = other + sum((n - 1) * s for n, s in again if s < least)
        if mine <= shift % period and shift % period + theirs <= period:
            return True
    return False
