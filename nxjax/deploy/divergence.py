"""The first op at which a target's results leave the reference, found by bisection.

The program is cut behind an op, the part is built for the target and run by what runs the target here, and every value
that leaves the part is compared with the exact reference. Knows no target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.backends.evidence import plain
from nxjax.backends.target import Target
from nxjax.deploy.deviation import Deviation, measured
from nxjax.errors import NxError
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret, interpret_all
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var
from nxjax.transforms.inline import inlined

NDArray = np.ndarray[Any, Any]
# What is still rounding: steps of a grid, and the part of the largest value of a float result.
STEPS: Final = 1
PART: Final = 2e-3
# No part is built any more after so many seconds.
PATIENCE: Final = 60.0


@final
@dataclass(frozen=True)
class Divergence:
    """Where results leave the reference.

    Attributes:
        op, name, at: the op, its name, and the line that it came from.
        index, count: which op of how many, in program order.
        so_far: how far off the values behind it are; or what the tool said.
        alone: how far off the op is by itself, on the reference's operands; empty where that could not be built.
        since: the first op that differs at all, where the op itself is equal alone; else empty.
        builds: how many parts were built and run.
        exact: whether the op before it was seen to agree; else time ran out, and it is the first seen to leave.
    """

    op: str
    name: str
    at: str
    index: int
    count: int
    so_far: str
    alone: str
    since: str
    builds: int
    exact: bool

    def __str__(self) -> str:
        alone = f"; alone, on the reference's operands: {self.alone}" if self.alone else ""
        alone += f"; differs since {self.since}" if self.since else ""
        sure = "" if self.exact else " (at or before it: time ran out)"
        where = f"{self.op} {self.name}".strip()
        return f"{where}, op {self.index + 1} of {self.count}{sure}: {self.so_far}{alone}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def leaves(found: Deviation) -> bool:
    """Whether a deviation is more than rounding."""
    if found.unrelated or found.unequal or (found.max_lsb or 0) > STEPS:
        return True
    return bool(found.floats) and found.max_lsb is None and found.max_error > PART * max(found.scale, 1e-30)


def _differs(found: Deviation) -> bool:
    return not found.exact


@final
@dataclass
class Bisection:
    """One search: ``first`` gives its answer."""

    target: Target[Any]
    form: NpuGraph | Program
    stored: Sequence[NDArray]
    options: dict[str, object]
    patience: float = PATIENCE
    builds: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.form, Program):
            self.form = inlined(self.form)
            self._steps: Sequence[Any] = self.form.equations
        else:
            self._steps = self.form.nodes
        self._until = time.monotonic() + self.patience

    def first(self) -> Divergence | None:
        """The first op; None where all parts agree, or none could be run."""
        count = len(self._steps)
        said = self._judged(count, leaves)
        if said is None:
            return None
        at, said, exact = self._search(count - 1, said, leaves)
        alone = self._alone(at)
        since = ""
        if alone == "equal" and at:
            # Its operands differ by what is still rounding: where that begins is the cause.
            found = self._judged(at, _differs)
            if found is not None:
                start, off, _ = self._search(at - 1, found, _differs)
                since = f"{self._named(start)} ({off})"
        step = self._steps[at]
        source = str(step.source) if step.source else ""
        return Divergence(*self._words(at), source, at, count, said, alone, since, self.builds, exact)

    def _search(self, high: int, said: str, bad: Callable[[Deviation], bool]) -> tuple[int, str, bool]:
        """The first step behind which something is ``bad``, as it is behind ``high``; and whether that is sure."""
        low = -1
        while high - low > 1 and time.monotonic() < self._until:
            middle = (low + high) // 2
            found = self._judged(middle + 1, bad)
            low, high, said = (low, middle, found) if found is not None else (middle, high, said)
        return high, said, high - low == 1

    def _words(self, k: int) -> tuple[str, str]:
        step = self._steps[k]
        return step.op if isinstance(step.op, str) else step.op.name, getattr(step, "name", "") or step.scope

    def _named(self, k: int) -> str:
        return " ".join(filter(None, self._words(k)))

    def _judged(self, count: int, bad: Callable[[Deviation], bool]) -> str | None:
        """What is wrong with the values that the first ``count`` steps give; None: nothing, or nothing runs them."""
        part, given, outputs, wanted = self._part(range(count))
        if not outputs:
            return None
        found = self._run(part, given, outputs, wanted)
        return found if isinstance(found, str) else found.short if found is not None and bad(found) else None

    def _alone(self, k: int) -> str:
        if time.monotonic() > self._until:
            return ""
        found = self._run(*self._part(range(k, k + 1)))
        if found is None:
            return ""
        return found if isinstance(found, str) else "equal" if found.exact else found.short

    def _run(
        self, part: NpuGraph | Program, given: Sequence[NDArray], outputs: Sequence[Tensor], wanted: Sequence[NDArray]
    ) -> Deviation | str | None:
        """The deviation; what a tool said that failed; None where nothing here runs the part."""
        self.builds += 1
        try:
            build = self.target.made(part, self.options)
            if build.runner is None:
                return None
            copies = [np.array(x) for x in given]
            got = build.execute(copies, [t.shape for t in outputs], [t.dtype for t in outputs])
            return measured(build.runs_on, outputs, got, wanted)
        except NxError as error:
            return plain(f"{error.what}: {error.got}" if error.got else error.what, 300)
        except Exception as error:  # vendors' tools have no class of errors in common
            return plain(f"{type(error).__name__}: {error}", 300)

    def _part(self, steps: range) -> tuple[NpuGraph | Program, list[NDArray], list[Tensor], list[NDArray]]:
        """These steps as a program of their own, its inputs, and what its results have to be."""
        form = self.form
        chosen, later = self._steps[steps.start : steps.stop], self._steps[steps.stop :]
        if isinstance(form, Program):
            return self._part_of_program(form, chosen, later, steps.start)
        values = interpret_all(form, self.stored)
        made = {t for n in chosen for t in n.outputs}
        read = dict.fromkeys(t for n in chosen for t in n.operands if t not in made and not t.constant)
        used = {t for n in later for t in n.operands} | set(form.outputs)
        outputs = [t for t in dict.fromkeys(t for n in chosen for t in n.outputs) if t in used]
        inputs = [t for t in form.inputs if t in read] + [t for t in read if t not in form.inputs]
        part = NpuGraph(form.name, inputs, outputs, list(chosen), form.rounding)
        given = [values[t] for t in inputs]
        return part, given, outputs, interpret(part, given) if outputs else []

    def _part_of_program(
        self, form: Program, chosen: Sequence[Any], later: Sequence[Any], start: int
    ) -> tuple[Program, list[NDArray], list[Tensor], list[NDArray]]:
        made = {v for e in chosen for v in e.outputs}
        read = dict.fromkeys(a for e in chosen for a in e.inputs if isinstance(a, Var) and a not in made)
        held = dict(zip(form.constvars, form.values, strict=True))
        used = {a for e in later for a in e.inputs if isinstance(a, Var)} | {
            a for a in form.outputs if isinstance(a, Var)
        }
        ends = [v for e in chosen for v in e.outputs if v in used]
        inputs = [v for v in read if v not in held]
        consts = [v for v in read if v in held]
        values = [held[v] for v in consts]
        before = Program(form.inputs, self._steps[:start], inputs, form.constvars, form.values, form.name)
        given = evaluate(before, self.stored) if inputs else []
        part = Program(inputs, chosen, ends, consts, values, form.name)
        outputs = [Tensor(f"output_{i}", v.type.shape, v.type.dtype) for i, v in enumerate(ends)]
        return part, given, outputs, evaluate(part, given) if ends else []


def first_divergence(
    target: Target[Any],
    form: NpuGraph | Program,
    stored: Sequence[NDArray],
    options: dict[str, object],
    patience: float = PATIENCE,
) -> Divergence | None:
    """The first op at which ``target`` leaves the reference on stored inputs; see `Bisection`."""
    return Bisection(target, form, stored, options, patience).first()
