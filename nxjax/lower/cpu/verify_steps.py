"""A tape followed step by step, with names of values in place of bytes: what `verify` compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NoReturn, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import VerificationError
from nxjax.kernels.cpu.base import Box
from nxjax.lower.cpu.contents import (
    UNKNOWN,
    ByteRun,
    MemoryContents,
    Missing,
    Owner,
    Repeats,
    cells,
    change,
    complete,
    given,
    old,
    read,
    seen,
    write,
)
from nxjax.lower.cpu.tape import (
    ALIGN,
    BranchStep,
    Buffer,
    CallStep,
    CopyStep,
    CpuProgram,
    HostStep,
    Ref,
    RepeatStep,
    TapeStep,
    WhileStep,
)
from nxjax.lower.cpu.verify_loops import Key, LoopEffects
from nxjax.lower.cpu.verify_operands import collide, flaw

_TOP: Final = 1 << 62  # beyond all places
# Of an operand at this turn: its memory, whose bytes it reads there, where it is, and whether a loop that it moves with
# is in its first turn.
Place = tuple[Key, Owner, int, bool]
REPORT: Final = "this is a defect of nxjax: please report it; NXJAX_VERIFY=0 runs the program unverified"


@final
@dataclass(slots=True)
class TapeMeaning:
    """What a tape computes: names of its results, of what it did to the world, and of what each step read."""

    results: tuple[int, ...] = ()
    effects: int = 0
    ends: int = 0  # how often each `WhileStep` runs, and that it ends, in no order: a sum of names
    vague: bool = False  # something is not followed, so effects are not compared
    reads: list[tuple[TapeStep, int]] = field(default_factory=list[tuple[TapeStep, int]])  # before memory is planned
    turns: dict[TapeStep, list[int]] = field(
        default_factory=dict[TapeStep, list[int]]
    )  # of each loop, as often as it begins: how many are followed
    contents: list[list[ByteRun]] = field(default_factory=list[list[ByteRun]])  # of each result


@final
class Follower(LoopEffects):
    """Follows one tape, once.

    Args:
        arguments: what they hold.
        planned: memory is; before, no operands can overlap, and it is written down what steps read.
        before: the trace that says what each step has to read.
        turns: how many turns of each loop are followed; None: found here.
    """

    def __init__(
        self,
        program: CpuProgram,
        arguments: Iterable[Sequence[ByteRun]],
        planned: bool = True,
        before: TapeMeaning | None = None,
        turns: Mapping[TapeStep, Sequence[int]] | None = None,
    ) -> None:
        super().__init__(turns)
        self.program = program
        self.planned = planned
        self.trace = TapeMeaning(turns=self.followed)
        self.expected: dict[TapeStep, set[int]] = {}
        for step, name in before.reads if before is not None else ():
            self.expected.setdefault(step, set()).add(name)
        self.names = not planned or bool(self.expected)  # of what steps read are asked for
        self.donated = {program.inputs[i] for i in program.donated}
        self.results = set(program.outputs)
        self.sound: set[int] = set()
        # Of calls whose operands do not move.
        self.places: dict[CallStep, list[Place]] = {}
        for b, held in zip(program.inputs, arguments, strict=True):
            self.spaces[b] = MemoryContents(map(given, held))
            self.own.add(b)

    def run(self, whole: bool = True) -> TapeMeaning:
        """Follow all steps; ``whole``: every byte of the results has to be written."""
        self.steps(self.program.steps)
        self.step = None
        trace, found = self.trace, list[int]()
        for b in self.program.outputs:
            found.append(self.read(Ref(b), Box(b.nbytes)) if b.nbytes and whole else 1)
            trace.contents.append(self.space(b).within(0, b.nbytes))
        trace.results, trace.effects, trace.ends = tuple(found), self.effects, self.ends
        return trace

    def steps(self, steps: Sequence[TapeStep]) -> None:
        for step in steps:
            self.step = step
            match step:
                case CallStep():
                    self._call(step)
                case CopyStep():
                    self._copy(step)
                case HostStep():
                    self._host(step)
                case RepeatStep():
                    self.repeat(step)
                case WhileStep():
                    self.whiles(step)
                case BranchStep():
                    self.branch(step)
                case _:
                    raise AssertionError(step)

    def _seen(self, step: TapeStep, name: int) -> None:
        """Step ``step`` reads what is called ``name``."""
        if not self.planned:
            self.trace.reads.append((step, name))
        elif name not in self.expected.get(step, (name,)):
            self.fail("changed", "a step reads other values than before memory was planned")

    # --- steps ---

    def _call(self, step: CallStep) -> None:
        kernel = step.kernel
        spans_in, spans_out, keeps = kernel.touched.spans
        places = self.places.get(step) or self._found(step)
        known, i, name = True, 0, [id(kernel)]
        for spans in spans_in:
            key, owner, at, first = places[i]
            space = self.spaces.get(key) or self.space(step.ins[i].buffer)
            for low, high, repeats, end, idle in spans:
                if idle:
                    continue
                if first:
                    self.rows_read(step.ins[i], at + low, at + high, repeats)
                try:
                    found = read(space, owner, at, at + low, at + high, repeats, at + end)
                except Missing as e:
                    self.missing(step.ins[i], e)
                name.append(found)
                known = known and found != UNKNOWN
            i += 1
        for k in keeps:
            at = places[i + k][2]
            found = old(self.space(step.outs[k].buffer), at, [(at + x[0], at + x[1], x[2]) for x in spans_out[k]])
            name.append(found)
            known = known and found != UNKNOWN
        made = hash(tuple(name))
        if self.names:
            self._seen(step, made)
        if not known:
            self.trace.vague = True
        for k, ref in enumerate(step.outs):
            _, owner, at, first = places[i]
            i += 1
            mine = hash((made, k)) if known else UNKNOWN
            space = self.space(ref.buffer, True)
            for low, high, repeats, end, _ in spans_out[k]:
                if first:
                    self.rows_written(ref, at + low, at + end)
                if k in keeps:
                    change(space, owner, mine, at, at + low, at + high, repeats, self.era)
                elif repeats:
                    write(space, owner, mine, at, at + low, at + high, repeats, self.era)
                else:
                    space.lay(ByteRun(at + low, at + high, mine, at, owner, None, self.era))

    def _found(self, step: CallStep) -> list[Place]:
        """Where the operands of ``step`` are at this turn; raises where they may not be."""
        touched, refs = step.kernel.touched, (*step.ins, *step.outs)
        if len(touched.ins) != len(step.ins) or len(touched.outs) != len(step.outs):
            self.fail("size", f"{step.kernel.key} has other operands than {step!r}")
        places, stays = list[Place](), True
        for ref in refs:
            if ref.moves:
                stays = False
                places.append(self.place(ref))
            else:
                b = ref.buffer
                at = b.offset
                places.append((None, b, at + ref.offset, False) if at >= 0 else (b, None, ref.offset, False))
        if self.planned:
            self._checks(step, refs, places)
        if stays and self.depth:
            self.places[step] = places
        return places

    def _copy(self, step: CopyStep) -> None:
        n, ref, target = step.nbytes, step.source_ref, step.target
        if not n or ref == target:
            return
        source, owner, at, first = self.place(ref)
        key, to, there, begins = self.place(target)
        if self.planned:
            self._inside(ref, owner, at, at + n)
            self._inside(target, to, there, there + n)
            self._owned(target)
            if source is key and at != there and abs(at - there) < n:
                self.fail("overlap", "a copy's target overlaps its source", target)
        if first:
            self.rows_read(ref, at, at + n, ())
        if begins:
            self.rows_written(target, there, there + n)
        space = self.spaces.get(source) or self.space(ref.buffer)
        run, move = space.whole(owner, at, at + n), there - at
        if run is not None:
            if self.names:
                self._seen(step, seen(run, at))
            copy = ByteRun(there, there + n, run.name, run.base + move, to, None, self.era)
            self.space(target.buffer, True).lay(copy)
        else:
            # Many values: who reads them says which they have to be.
            runs = self._moved(ref, space, owner, at, at + n, move, to)
            self.space(target.buffer, True).put(runs, there, there + n)

    def _moved(
        self, ref: Ref, space: MemoryContents, owner: Owner, lo: int, hi: int, move: int, to: Owner
    ) -> list[ByteRun]:
        """What lies from ``lo`` to ``hi``, as it lies ``move`` bytes further, in memory of ``to``."""
        runs, era = space.within(lo, hi), self.era
        if any(r.pattern is not None for r in runs):
            self.named(ref, space, owner, lo, hi, lo)
            made = cells(space, lo, hi, [])
            if made is not None:
                made.base += move
                made.table = [
                    None if r is None else r._replace(base=r.base + move, owner=to, era=era) for r in made.table
                ]
            return [ByteRun(lo + move, hi + move, UNKNOWN, lo + move, to, made, era)]
        try:
            complete(runs, owner, lo, hi)
        except Missing as e:
            self.missing(ref, e)
        if not move and to is owner and all(r.era == era for r in runs):
            return runs
        return [ByteRun(r.start + move, r.end + move, r.name, r.base + move, to, None, era) for r in runs]

    def _host(self, step: HostStep) -> None:
        assert step.equation is not None
        name: list[Any] = [id(step.equation), repr(step.in_types)]
        for ref, type in zip(step.ins, step.in_types, strict=True):
            name.append(self.read(ref, Box(type.size * type.dtype.itemsize)))
        known = UNKNOWN not in name[2:]
        if not known:
            self.trace.vague = True
        if self.names:
            self._seen(step, hash(tuple(name)))
        if step.equation.op.effect:
            self.effects = hash((self.effects, *name))
            name.append(self.effects)
        for k, (ref, type) in enumerate(zip(step.outs, step.out_types, strict=True)):
            n = type.size * type.dtype.itemsize
            if n:
                _, owner, at, first = self.place(ref)
                self._inside(ref, owner, at, at + n)
                self._owned(ref)
                if first:
                    self.rows_written(ref, at, at + n)
                mine = hash((*name, k)) if known else UNKNOWN
                self.space(ref.buffer, True).lay(ByteRun(at, at + n, mine, at, owner, None, self.era))

    def _checks(self, step: CallStep, refs: Sequence[Ref], places: Sequence[Place]) -> None:
        """Raise where the kernel is wrong in itself, or its operands may not lie at ``places``."""
        kernel, n = step.kernel, len(step.ins)
        if id(kernel) not in self.sound:
            self.sound.add(id(kernel))
            wrong = flaw(kernel)
            if wrong:
                self.fail("kernel", f"{kernel.key}: {wrong}")
        # Of each operand the extent in the memory that it lies in.
        extents: list[tuple[Key, int, int]] = []
        spans_in, spans_out, _ = kernel.touched.spans
        for ref, (key, owner, at, _), spans in zip(refs, places, (*spans_in, *spans_out), strict=True):
            if not spans:
                extents.append((key, _TOP, -_TOP))
                continue
            low, _, _, end, _ = spans[0]
            for more in spans[1:]:
                low, end = min(low, more[0]), max(end, more[3])
            self._inside(ref, owner, at + low, at + end)
            extents.append((key, at + low, at + end))
        for k in range(n, len(refs)):
            key, low, high = extents[k]
            for j in range(k):
                other, start, end = extents[j]
                overlap = start < high and low < end and other is key
                if overlap and collide(kernel, k - n, places[k][2], j, places[j][2]):
                    whose = f"operand {j}" if j < n else f"output {j - n}"
                    self.fail("overlap", f"output {k - n} of {kernel.title} lies where its {whose} does", refs[k])
            if spans_out[k - n]:
                self._owned(refs[k])

    # --- memory ---

    def space(self, b: Buffer, change: bool = False) -> MemoryContents:
        """The memory that ``b`` lies in; ``change``: it may be written."""
        key = None if b.offset >= 0 else b
        space = self.spaces.get(key)
        if space is None:
            space = self.spaces[key] = MemoryContents()
            self.own.add(key)
            if b.kind == "const":
                space.lay(ByteRun(0, b.nbytes, hash(("const", id(self.program.consts[b.index]))), 0, None))
        elif change and key not in self.own:
            space = self.spaces[key] = space.copied()
            self.own.add(key)
        return space

    def place(self, ref: Ref) -> Place:
        b, first = ref.buffer, False
        key, owner, at = (None, b, b.offset + ref.offset) if b.offset >= 0 else (b, None, ref.offset)
        for counter, stride in ref.moves:
            turn = self.turn.get(counter)
            if turn is None:
                self.fail("outside", "a place moves with the turns of a loop that its step is not in", ref)
            at += turn * stride
            first = first or not turn
        return key, owner, at, first

    def read(self, ref: Ref, box: Box) -> int:
        """The name of what ``box`` holds."""
        low, high, repeats, end, _ = box.span
        if high == low:
            return 1
        _, owner, at, first = self.place(ref)
        self._inside(ref, owner, at + low, at + end)
        if first:
            self.rows_read(ref, at + low, at + high, repeats)
        return self.named(ref, self.space(ref.buffer), owner, at + low, at + high, at, repeats)

    def named(
        self, ref: Ref, space: MemoryContents, owner: Owner, lo: int, hi: int, at: int, repeats: Repeats = ()
    ) -> int:
        """What `read` finds for ``ref``."""
        try:
            return read(space, owner, at, lo, hi, repeats)
        except Missing as e:
            self.missing(ref, e)

    def _inside(self, ref: Ref, owner: Owner, lo: int, hi: int) -> None:
        """Raise where ``lo`` to ``hi`` is not all in the buffer of ``ref``."""
        start = 0 if owner is None else owner.offset
        if lo < start or hi > start + ref.buffer.nbytes:
            what = f"bytes {lo - start} to {hi - start} of {ref.buffer.nbytes} are asked for"
            self.fail("outside", what, ref)

    def _owned(self, ref: Ref) -> None:
        """Raise where ``ref`` is not the program's to write."""
        b = ref.buffer
        if b.kind == "const" or (b.kind == "input" and b not in self.donated):
            self.fail("constant", "memory that is not the program's is written", ref)
        placed = b.offset >= 0 and not b.offset % ALIGN and b.offset + b.nbytes <= self.program.arena
        if self.planned and b.kind == "temp" and not placed:
            self.fail("overlap", f"{b.nbytes} bytes are not at a place of the arena's {self.program.arena}", ref)

    # --- errors ---

    def missing(self, ref: Ref, e: Missing) -> NoReturn:
        start = max(ref.buffer.offset, 0)
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
            fix=REPORT,
        )
