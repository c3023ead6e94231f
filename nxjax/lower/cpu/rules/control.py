"""Loops and choices as steps: `scan` (`RepeatStep`), `while` (`WhileStep`), `cond` (`BranchStep`).

A carry has one place, which each turn overwrites when everything it gives has been computed; or two, which turns take
alternately, if it is large and cannot be updated in place. Slices of xs and rows of ys are places that move from turn
to turn, so that nothing is sliced or stacked; products that can be one for all turns leave the loop first
(`lower.passes.turns`). All of it is written as plain copies; the memory plan takes out those that need not be (see
`lower.cpu.memory_copies`). Held programs have no consts (`lower.passes.loops.lifted`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.builder import Builder, View, rule
from nxjax.lower.cpu.lazy import Lazy
from nxjax.lower.cpu.lower import inline
from nxjax.lower.cpu.memory_copies import staying
from nxjax.lower.cpu.tape import BranchStep, Buffer, CallStep, CopyStep, Counter, Ref, RepeatStep, TapeStep, WhileStep
from nxjax.lower.passes.turns import staged
from nxjax.trace.program import Equation, Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams

# Bytes of a carry, and turns of a loop, from which on copies are worth a second place.
LARGE: Final = 4096
TURNS: Final = 4


@contextmanager
def _body(b: Builder) -> Generator[list[TapeStep]]:
    """A list of steps of its own, to which everything inside is added."""
    outside, b.steps = b.steps, []
    b.inside += 1
    yield b.steps
    b.steps = outside
    b.inside -= 1


def _given(b: Builder, x: Any) -> Any:
    """An operand as bodies may read it: in memory before the loop begins; a single number as it is."""
    return x if isinstance(x, np.ndarray) and not x.shape else b.view(x)


def _write(b: Builder, x: View, target: View) -> None:
    """The elements of ``x`` to the dense place ``target``."""
    if x.is_dense:
        b.steps.append(CopyStep(x.ref, target.ref, x.size * x.dtype.itemsize, equation=b.equation))
    elif x.size:
        b.call(Move(x.shape, x.strides, target.strides, x.dtype.itemsize), [x], [target])


def _carried(b: Builder, inits: Sequence[Any], types: Sequence[ArrayType]) -> list[View]:
    """A place for each carry, with its first value."""
    places = [b.new(t) for t in types]
    for x, place in zip(inits, places, strict=True):
        _write(b, b.view(x), place)
    return places


def _results(b: Builder, program: Program, xs: Sequence[Any]) -> list[View]:
    """The results of a body in memory. Each is claimed until all are there: what two are made of is made once."""
    equation, found = b.equation, inline(b, program, xs)
    b.equation = equation
    for y in found:
        b.claim(y, 1)
    b.together([y for y in found if isinstance(y, Lazy)])
    views = [b.view(y) for y in found]
    for y in found:
        b.drop(y)
    return views


def _carry_on(b: Builder, values: Sequence[View], places: Sequence[View]) -> None:
    """The next value of each carry to its place, when none of the old ones is read any more."""
    mine = {p.ref.buffer for p in places}
    ready: list[View] = []
    for view, place in zip(values, places, strict=True):
        if view.ref.buffer in mine and not (view.ref == place.ref and view.is_dense):
            # It is (a part of) another carry, which may be overwritten first.
            kept = b.new(ArrayType(view.shape, view.dtype))
            _write(b, view, kept)
            view = kept
        ready.append(view)
    for view, place in zip(ready, places, strict=True):
        _write(b, view, place)


@final
@dataclass(frozen=True)
class _Scan:
    """Turns of a scan as steps."""

    b: Builder
    loop: LoopParams
    consts: Sequence[Any]
    sequences: Sequence[View]
    stacked: Sequence[View]

    def turn(self, before: Sequence[View], after: Sequence[View], first: int, counter: Counter, every: int) -> None:
        """Turn ``first + every * turn of counter``, from the carries ``before`` to the places ``after``."""
        b = self.b
        rows = [self._row(s, first, counter, every) for s in self.sequences]
        carried, ys = self.loop.results(_results(b, self.loop.body, [*self.consts, *before, *rows]))
        for y, column in zip(ys, self.stacked, strict=True):
            _write(b, y, self._row(column, first, counter, every))
        _carry_on(b, carried, after)

    def _row(self, x: View, first: int, counter: Counter, every: int) -> View:
        """The slice of ``x`` of each turn."""
        indices, stride = self.loop.step_indices(), x.strides[0]
        step = -stride * every if self.loop.reverse else stride * every
        moves = ((counter, step),) if step else ()
        ref = Ref(x.ref.buffer, x.ref.offset + stride * indices[first], (*x.ref.moves, *moves))
        return View(ref, x.shape[1:], x.strides[1:], x.dtype)


@rule("scan")
def scan(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    """``length`` turns of the body."""
    # What adds up over turns would be summed in another order.
    program = None if isa.current().reproducible else staged(e)
    if program is not None:
        return inline(b, program, xs)
    loop: LoopParams = e.params["loop"]
    x = loop.split(xs)
    consts = [_given(b, c) for c in x.consts]
    sequences = [b.view(s) for s in x.xs]
    types = loop.inside(loop.body.in_types).carry
    carries = _carried(b, x.carry, types)
    stacked = [b.new(v.type) for v in loop.results(e.outputs)[1]]
    length = loop.length or 0
    if not length:
        return [*carries, *stacked]
    made = _Scan(b, loop, consts, sequences, stacked)
    counter = Counter(length)
    with _body(b) as steps:
        made.turn(carries, carries, 0, counter, 1)
    moved = _moved(steps, carries) if length >= TURNS else set[Buffer]()
    if not moved:
        b.steps.append(RepeatStep(counter, steps, equation=e))
        return [*carries, *stacked]
    # Each second turn reads what the one before has made, where it lies.
    others = [b.new(t) if x.ref.buffer in moved else x for t, x in zip(types, carries, strict=True)]
    pairs = Counter(length // 2)
    with _body(b) as steps:
        made.turn(carries, others, 0, pairs, 2)
        made.turn(others, carries, 1, pairs, 2)
    b.steps.append(RepeatStep(pairs, steps, equation=e))
    if length % 2:
        with _body(b) as steps:
            made.turn(carries, carries, length - 1, pairs, 0)
        b.steps += steps
    return [*carries, *stacked]


def _moved(steps: Sequence[TapeStep], carries: Sequence[View]) -> set[Buffer]:
    """The large carries whose next value these steps, a turn, can only make somewhere else."""
    if not all(isinstance(step, (CallStep, CopyStep)) for step in steps):
        return set()
    mine = {x.ref.buffer for x in carries}
    return {s.target.buffer for s in staying(steps) if s.nbytes >= LARGE and s.target.buffer in mine}


@rule("while")
def while_(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    """The body, as long as the condition says."""
    loop: LoopParams = e.params["loop"]
    x = loop.split(xs)
    cond_consts = [_given(b, c) for c in x.cond_consts]
    consts = [_given(b, c) for c in x.consts]
    carries = _carried(b, x.carry, loop.body.out_types)
    flag = View(Ref(Buffer(1, "temp")), (), (), np.dtype(np.bool_))
    with _body(b) as condition:
        (more,) = _results(b, loop.condition, [*cond_consts, *carries])
        _write(b, more, flag)
    with _body(b) as steps:
        _carry_on(b, _results(b, loop.body, [*consts, *carries]), carries)
    b.steps.append(WhileStep(condition, flag.ref, steps, equation=e))
    return carries


@rule("cond")
def cond(b: Builder, e: Equation, which: Any, *xs: Any) -> Sequence[Any]:
    """One of the branches."""
    index = b.dense(which)
    given = [_given(b, x) for x in xs]
    results = [b.new(v.type) for v in e.outputs]
    branches: list[list[TapeStep]] = []
    for branch in e.params["branches"]:
        with _body(b) as steps:
            for y, place in zip(_results(b, branch, given), results, strict=True):
                _write(b, y, place)
        branches.append(steps)
    b.steps.append(BranchStep(index.ref, branches, equation=e))
    return results
