"""Which variables are alive at each step of a program: from their first write to their last read, on any path.

Whole variables, as bits of Python integers: a live one has perhaps been written on the way here and is perhaps read on
the way from here before it is written anew. Knows steps, no tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from nxjax.lower.ipu.program import Call, Copy, Execute, IpuProgram, Repeat, Step, Switch, Variable, While


@final
@dataclass(frozen=True, eq=False)
class Visit:
    """A step as one path meets it: a function's steps occur once per call of it.

    Attributes:
        step: an `Execute`, `Copy`, `While` (its test) or `Switch` (its choice).
        live: variables that must be in memory while it runs, its own included; bit i is variable i.
    """

    step: Step
    live: int


@final
@dataclass(frozen=True, eq=False)
class Effect:
    """What a step reads, writes, and writes as a whole."""

    reads: int
    writes: int
    kills: int


@final
class Liveness:
    """Liveness of a program.

    Attributes:
        variables: the bits' meanings.
        always: variables that live throughout: constants, state, inputs and outputs.
        visits: the steps in order, each with what is alive.
    """

    def __init__(self, program: IpuProgram) -> None:
        self.variables: list[Variable] = program.variables()
        self._bit = {id(v): 1 << i for i, v in enumerate(self.variables)}
        self._functions = program.functions
        self._effects: dict[int, Effect] = {}
        self._written_in: dict[int, tuple[Sequence[Step], int]] = {}
        kept = [v for v in self.variables if v.role != "temporary"] + [*program.inputs, *program.outputs]
        self.always = 0
        for v in kept:
            self.always |= self._bit[id(v)]
        self.visits: list[Visit] = []
        # Bodies that no path enters do not occur.
        self._backward(program.steps, self.always, self.always, True)
        # Found from the last to the first.
        self.visits.reverse()

    def names(self, live: int) -> list[Variable]:
        """The variables of a set of bits."""
        found: list[Variable] = []
        while live:
            low = live & -live
            found.append(self.variables[low.bit_length() - 1])
            live ^= low
        return found

    # --- one step ---

    def _effect(self, step: Step) -> Effect:
        found = self._effects.get(id(step))
        if found is None:
            found = self._effects[id(step)] = self._found(step)
        return found

    def _found(self, step: Step) -> Effect:
        reads = writes = kills = 0
        written: dict[int, int] = {}
        bit = self._bit
        if isinstance(step, Execute):
            for g in step.groups:
                io = {f.name: f.io for f in g.codelet.fields}
                for name, e in g.edges.items():
                    if io[name] != "out":
                        reads |= bit[id(e.variable)]
                    if io[name] == "out":
                        written[id(e.variable)] = written.get(id(e.variable), 0) + e.boxes.count * len(g.tiles)
                    elif io[name] == "inout":
                        writes |= bit[id(e.variable)]
        elif isinstance(step, Copy):
            for source, target in step.pairs:
                reads |= bit[id(source.variable)]
                v = target.variable
                written[id(v)] = written.get(id(v), 0) + target.size
        elif isinstance(step, While):
            reads = bit[id(step.predicate)]
        elif isinstance(step, Switch):
            reads = bit[id(step.index)]
        for i, elements in written.items():
            writes |= bit[i]
            # Vertices of a set write nothing twice, so that counting is enough.
            if elements >= self.variables[bit[i].bit_length() - 1].size:
                kills |= bit[i]
        return Effect(reads, writes, kills & ~reads)

    def _written(self, steps: Sequence[Step]) -> int:
        """All that steps write, those inside of them too."""
        known = self._written_in.get(id(steps))
        if known is not None:
            return known[1]
        found = 0
        for step in steps:
            match step:
                case Repeat(body=body):
                    found |= self._written(body)
                case While(condition=condition, body=body):
                    found |= self._written(condition) | self._written(body)
                case Switch(branches=branches):
                    for branch in branches:
                        found |= self._written(branch)
                case Call(function=name):
                    found |= self._written(self._functions[name])
                case _:
                    found |= self._effect(step).writes
        self._written_in[id(steps)] = (steps, found)
        return found

    # --- sequences ---

    def _backward(self, steps: Sequence[Step], live: int, written: int, keep: bool) -> int:
        """What is read from ``steps`` on, given what is read after them; notes visits if ``keep``.

        Args:
            steps: of one body.
            live: what is read after them.
            written: what may have been written before them.
            keep: false while a loop's first round is only looked at.
        """
        before: list[int] = []
        if keep:
            for step in steps:
                before.append(written)
                written |= self._written((step,))
        else:
            before = [0] * len(steps)
        for step, known in zip(reversed(steps), reversed(before), strict=True):
            live = self._step(step, live, known, keep)
        return live

    def _visit(self, step: Step, live: int) -> None:
        self.visits.append(Visit(step, live))

    def _step(self, step: Step, live: int, written: int, keep: bool) -> int:
        match step:
            case Repeat(count=count, body=body):
                if not count:
                    return live
                if count > 1:
                    # What the body's beginning reads is alive at its end.
                    live |= self._backward(body, live, 0, False)
                    written |= self._written(body)
                return self._backward(body, live, written, keep)
            case While(condition=condition, body=body):
                test = self._effect(step).reads
                written |= self._written(condition) | self._written(body)
                end, again = live | test, 0
                while True:
                    start = self._backward(condition, end | again, 0, False)
                    following = self._backward(body, start, 0, False)
                    if following | again == again:
                        break
                    again |= following
                if keep:
                    self._backward(body, start, written, True)
                    self._visit(step, ((end | again) & written) | self.always)
                return self._backward(condition, end | again, written, keep)
            case Switch(branches=branches):
                read = self._effect(step).reads
                found = read
                for branch in reversed(branches):
                    found |= self._backward(branch, live, written, keep)
                if keep:
                    self._visit(step, (found & written) | self.always)
                return found
            case Call(function=name):
                return self._backward(self._functions[name], live, written, keep)
            case _:
                effect = self._effect(step)
                start = (live & ~effect.kills) | effect.reads
                if keep:
                    # Operands and results are there together.
                    touched = effect.reads | effect.writes
                    self._visit(step, (start & written) | (live & (written | effect.writes)) | touched | self.always)
                return start
