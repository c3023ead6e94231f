"""Copies that need not be: values are made where they are wanted, and updated where they are.

A rule copies whenever it wants a value somewhere: a result into the memory of the result, a carry into the memory of
the carry, an array into memory of its own before a part of it is overwritten. Here the value's own memory becomes that
of its copy, if nothing that is still needed lies there:

    forward    all that is made in ``s``, before ``t = copy s``, is made in ``t``
    backward   after ``t = copy s``, when ``s`` is not read again, ``t`` is ``s``
    in place   ``t = kernel s`` where the kernel reads each element before it writes it: ``s`` is made in ``t``
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

from nxjax.kernels.cpu.base import Box
from nxjax.lower.cpu.memory_uses import BufferUse, Path, Uses
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, CpuProgram, Ref, TapeStep


def without_copies(steps: list[TapeStep]) -> None:
    """Change ``steps`` so that as few copies as possible are left."""
    uses = Uses(steps)
    for path, step in uses.steps:
        if isinstance(step, CopyStep) and not _goes_forward(uses, path, step, step.source_ref, step.target):
            _goes_backward(uses, path, step)
    for path, step in uses.steps:
        if isinstance(step, CallStep):
            for k, j in step.kernel.inplace:
                # As many bytes are made at the target as the source has: nothing else that lies there is lost.
                if sum(box.nbytes for box in step.kernel.touched.outs[k].boxes) == step.ins[j].buffer.nbytes:
                    _goes_forward(uses, path, step, step.ins[j], step.outs[k])
    _drop_empty(steps)


def staying(steps: Sequence[TapeStep]) -> list[CopyStep]:
    """The copies in ``steps``, a body of a loop, whose values cannot be made where they take them."""
    uses = Uses(steps)
    return [
        step
        for path, step in uses.steps
        if isinstance(step, CopyStep) and not _may_go_forward(uses, path, step, step.source_ref, step.target)
    ]


def _is_whole(ref: Ref) -> bool:
    return not ref.offset and not ref.moves


def _span(uses: Sequence[BufferUse], within: Path) -> tuple[int, int] | None:
    """The least and greatest index of uses in the list of steps ``within``; None if there are uses outside of it."""
    n = len(within)
    first, last = uses[0].path, uses[-1].path  # those between them are in that list, too
    return (first[n], last[n]) if first[:n] == within == last[:n] else None


def _between(uses: Sequence[BufferUse], within: Path, first: int, last: int) -> Sequence[BufferUse]:
    """The uses from step ``first`` to step ``last`` of the list ``within``, and in their bodies."""
    path: Callable[[BufferUse], Path] = lambda u: u.path
    start = bisect.bisect_left(uses, (*within, first), key=path)
    return uses[start : bisect.bisect_left(uses, (*within, last + 1), start, key=path)]


def _goes_forward(uses: Uses, path: Path, step: CopyStep | CallStep, source: Ref, target: Ref) -> bool:
    """Make what is at ``source`` at ``target``, to which ``step`` takes it."""
    if not _may_go_forward(uses, path, step, source, target):
        return False
    uses.move(source.buffer, target)
    return True


def _may_go_forward(uses: Uses, path: Path, step: CopyStep | CallStep, source: Ref, target: Ref) -> bool:
    s, t = source.buffer, target.buffer
    if s.kind != "temp" or s is t or not _is_whole(source):
        return False
    if isinstance(step, CopyStep) and step.nbytes != s.nbytes:
        return False
    within, here = path[:-1], path[-1]
    mine = uses.of[s]
    span = _span(mine, within)
    if span is None:
        return False
    first, last = span
    if any(u.writes and u.path > path for u in _between(mine, within, here, last)):
        return False
    # Another output may be in that place already, and nobody reads it.
    if isinstance(step, CallStep) and (last > here or any(r.buffer is s for r in step.outs)):
        return False
    n = len(within)
    for u in _between(uses.of[t], within, first, last):
        if u.step is step:
            continue
        level = u.path[n]
        if level > here and not u.writes:
            continue  # reads the new value, which is there
        if level == first and not u.writes and _may_overwrite(u, mine, s, target):
            continue
        if level <= here and not u.writes and len(u.path) == n + 1 and _reads_the_rest(u, mine, s, target):
            continue
        return False
    # The step itself may read the target for another operand.
    if isinstance(step, CallStep) and sum(r.buffer is t for r in step.ins):
        return False
    return not (isinstance(step, CallStep) and sum(r.buffer is s for r in step.ins) > 1)


def _may_overwrite(reader: BufferUse, mine: Sequence[BufferUse], s: Buffer, target: Ref) -> bool:
    """Whether the step that reads ``target`` and begins to write ``s`` may do so when they are one place."""
    step = reader.step
    if not any(u.step is step and u.writes for u in mine) or any(u.path < reader.path for u in mine):
        return False
    if isinstance(step, CopyStep):
        return step.source_ref == target and step.nbytes == s.nbytes and _is_whole(step.target)
    if not isinstance(step, CallStep):
        return False
    reading = [j for j, r in enumerate(step.ins) if r.buffer is target.buffer]
    writing = [k for k, r in enumerate(step.outs) if r.buffer is s]
    if len(reading) != 1 or len(writing) != 1:
        return False
    (j,), (k,) = reading, writing
    return (k, j) in step.kernel.inplace and step.ins[j] == target and _is_whole(step.outs[k])


def _reads_the_rest(reader: BufferUse, mine: Sequence[BufferUse], s: Buffer, target: Ref) -> bool:
    """Whether what ``reader`` reads of ``target`` is not yet overwritten by a part of ``s``, but by itself in place."""
    step = reader.step
    if not isinstance(step, CallStep):
        return False
    reading = [(j, r) for j, r in enumerate(step.ins) if r.buffer is target.buffer]
    for other in {id(u.step): u.step for u in mine if u.writes and u.path <= reader.path}.values():
        if not isinstance(other, CallStep) or any(r.moves != target.moves for _, r in reading):
            return False
        for k, out in enumerate(other.outs):
            if out.buffer is not s:
                continue
            at = target.offset + out.offset
            for j, r in reading:
                if other is step and at == r.offset and (k, j) in step.kernel.inplace:
                    continue
                boxes = itertools.product(other.kernel.touched.outs[k].boxes, step.kernel.touched.ins[j])
                if out.moves or not all(_is_beside(x, at, y, r.offset) for x, y in boxes):
                    return False
    return True


def _is_beside(x: Box, at: int, y: Box, there: int) -> bool:
    """Whether one box lies behind the other, or in other columns of the same rows."""
    (a, length, repeats), (b, other, again) = x.runs, y.runs
    if at + a >= there + y.end or there + b >= at + x.end:
        return True
    strides = {s for _, s in (*repeats, *again)}
    for row in strides:
        if not any(s % row for s in strides if s > row):
            mine = length + sum((n - 1) * s for n, s in repeats if s < row)
            theirs = other + sum((n - 1) * s for n, s in again if s < row)
            between = (there + b - at - a) % row
            if mine <= between and between + theirs <= row:
                return True
    return False


def _goes_backward(uses: Uses, path: Path, step: CopyStep) -> bool:
    """Leave the target of ``step`` where its source is, which nobody reads afterwards."""
    s, t = step.source_ref.buffer, step.target.buffer
    if t.kind != "temp" or s.kind != "temp" or s is t or not _is_whole(step.target) or step.nbytes != t.nbytes:
        return False
    within = path[:-1]
    theirs, mine = _span(uses.of[s], within), _span(uses.of[t], within)
    if theirs is None or mine is None or theirs[1] > path[-1] or mine[0] < path[-1]:
        return False
    uses.move(t, step.source_ref)
    return True


def onto_donated(program: CpuProgram) -> None:
    """Put results into the memory of donated arguments of the same size that are not read after they are begun."""
    free = [program.inputs[j] for j in program.donated if program.inputs[j] not in program.outputs]
    if not free:
        return
    uses = Uses(program.steps)
    for i, out in enumerate(program.outputs):
        if out.kind != "output" or not out.nbytes or out not in uses.of or program.outputs.index(out) != i:
            continue
        # An argument that nobody writes is given back as it came, in its own shape and dtype.
        found = next(
            (x for x in free if x.nbytes == out.nbytes and _is_dead(uses, x, out) and _is_changed(uses, x, out)), None
        )
        if found is None:
            continue
        free.remove(found)
        uses.move(out, Ref(found))
        program.outputs = [found if o is out else o for o in program.outputs]
    _drop_empty(program.steps)


def _is_dead(uses: Uses, x: Buffer, out: Buffer) -> bool:
    """Whether ``out`` may lie where ``x`` does, which nobody writes."""
    readers, mine = uses.of.get(x, []), uses.of[out]
    if not readers:
        return True
    last, first = readers[-1].path[0], mine[0].path[0]
    if last != first:
        return last < first
    return len(readers[-1].path) == 1 and _may_overwrite(readers[-1], mine, out, Ref(x))


def _is_changed(uses: Uses, x: Buffer, out: Buffer) -> bool:
    """Whether ``out`` gets anything but the bytes of ``x`` at their own places."""

    def is_same(step: TapeStep) -> bool:
        return isinstance(step, CopyStep) and step.source_ref == Ref(x, step.target.offset, step.target.moves)

    return any(u.writes and not is_same(u.step) for u in uses.of[out])


def _drop_empty(steps: list[TapeStep]) -> None:
    """Take out copies of nothing, and of a place to itself."""
    steps[:] = [s for s in steps if not (isinstance(s, CopyStep) and (s.source_ref == s.target or not s.nbytes))]
    for step in steps:
        for body in step.bodies():
            if isinstance(body, list):
                _drop_empty(body)
