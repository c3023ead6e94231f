"""Whether a tape may run: found from the tape alone, by other rules than those that it was planned by.

The tape is followed step by step with names of values in place of bytes (`contents`), once from its arguments to its
results: a loop's first and last turn, a `While`'s condition and two turns, every branch. Kernels say which bytes they
touch (`Kernel.touches`). It is an error if

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
from collections.abc import Sequence
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
)

_DEPTH: Final = 4  # loops in one another whose last turn is followed, too
_TOP: Final = 1 << 62  # beyond all places


Arguments = Sequence[Sequence[Run]] | None


@final
@dataclass(slots=True)
class Trace:
    """What a tape computes: names of its results, of what it did to the world, and of what each step read."""

    results: tuple[int, ...] = ()
    effects: int = 0
    ends: int = 0  # how often each `While` runs, and that it ends, in no order: a sum of names
    vague: bool = False  # something is not followed, so effects are not compared
    reads: dict[int, set[int]] = field(default_factory=dict)
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
) -> Trace:
    """Follow ``program``, whose memory is planned; raises `VerificationError`.

    Args:
        before: what it has to compute.
        arguments: what the arguments hold; by default each has a name of its own.
        complete: every byte of the results is written; otherwise they are what another tape reads.
        ends: `Trace.ends` of a tape that ran before this one, where both together do what ``before`` did.
    """
    v = _Verifier(program, arguments)
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
        _Verifier(program, arguments, before).run()  # raises at the step that reads something else
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
        self, program: CpuProgram, arguments: Arguments, before: Trace | None = None, strict: bool = True
    ) -> None:
        self.program = program
        self.before = before
        self.trace = Trace()
        self.arguments = arguments
        self.spaces: dict[Buffer | None, Space] = {}
        # Memories that nobody else holds, which may be changed.
        self.own: set[Buffer | None] = set()
        self.turn: dict[Counter, int] = {}
        self.effects = self.ends = 0
        self.step: Step | None = None
        self.depth = 0
        self.donated = {program.inputs[i] for i in program.donated}
        # What loops write at places that move: per counter and buffer and stride the extents in the first turn.
        self.moving: dict[Counter, dict[tuple[Buffer, int], list[tuple[int, int]]]] = {}
        self.sound: set[int] = set()
        # Before memory is planned nothing can lie in one place.
        self.strict = strict
        self.complete = True

    # --- the whole ---

    def run(self) -> None:
        program = self.program
        for i, b in enumerate(program.inputs):
            held = argument(i, b) if self.arguments is None else self.arguments[i]
            self._space(b)[:] = [r._replace(owner=b) for r in held]
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
            pattern.table = [None if r is None else r._replace(base=r.base + move, owner=to) for r in pattern.table]
            runs = [Run(at, at + step.nbytes, 0, at, to, pattern)]
        self.write(step.target, box, 1)
        runs = [r._replace(start=r.start + move, end=r.end + move, base=r.base + move, owner=to) for r in runs]
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
        moving = self.moving[step.counter] = {}
        self.depth += 1
        self.turn[step.counter] = 0
        self.steps(step.body)
        # The turns between are like the first one.
        twice = count > 1 and self.depth <= _DEPTH
        rest = count - 2 if twice else count - 1
        for (b, stride), extents in moving.items():
            for lo, hi in extents:
                repeat(self._space(b, True), b, lo, hi, stride, rest)
        if twice:
            self.turn[step.counter] = count - 1
            self.steps(step.body)
        self.depth -= 1
        del self.turn[step.counter], self.moving[step.counter]
        self.step = step

    def _while(self, step: While) -> None:
        self.depth += 1
        self.steps(step.condition)
        self.step = step
        flags = [self.read(step.flag, Box(1))]
        done, effects, ends = self._kept(), self.effects, self.ends
        for _ in range(2 if self.depth <= _DEPTH else 1):
            self.steps(step.body)
            self.steps(step.condition)
            self.step = step
            flags.append(self.read(step.flag, Box(1)))
        self.depth -= 1
        why = hash(("while", *flags))
        self._joined(done, effects, why)
        self.ends = ends + hash((why, self.ends - ends))

    def _branch(self, step: Branch) -> None:
        index = self.read(step.index, Box(4))
        start, effects, ends = self._kept(), self.effects, self.ends
        found: list[tuple[dict[Buffer | None, Space], int]] = []
        turns: list[int] = []
        for branch in step.branches:
            self.spaces, self.effects, self.ends = dict(start), effects, ends
            self.own.clear()
            self.steps(branch)
            found.append((self._kept(), self.effects))
            turns.append(self.ends - ends)
        self.ends = ends + hash((index, *turns)) if any(turns) else ends
        self.step = step
        (self.spaces, self.effects), *rest = found or [(start, effects)]
        self.own.clear()
        for i, (spaces, acted) in enumerate(rest):
            self._joined(spaces, acted, hash(("branch", index, i)))

    def _kept(self) -> dict[Buffer | None, Space]:
        """All that is known now, to go back to."""
        self.own.clear()
        return dict(self.spaces)

    def _joined(self, spaces: dict[Buffer | None, Space], effects: int, why: int) -> None:
        """Only what is sure here and in ``spaces``."""
        mine = self.spaces
        self.spaces = {}
        for key, space in mine.items():
            other = spaces.get(key)
            if other is not None:
                self.spaces[key] = space if other is space else merged(space, other, why)
        self.own.clear()
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
            at += self.turn[counter] * stride
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
        (change if some else write)(self._space(b, True), b, name, at, lo, hi, repeats)

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
