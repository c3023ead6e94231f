"""`fit_in`: the policy of `checkpoint` that keeps what a number of bytes allows, and recomputes what takes least time.

The backward pass of a checkpointed function holds values that were kept, and values that it computes again from those.
So the program is cut into segments, and what later segments read is kept at each cut: nothing is computed from farther
back (Chen et al., "Training deep nets with sublinear memory cost", 2016). Short segments keep more and hold less at one
time, so many lengths are tried. What is then left of the budget keeps values that take long to compute. Of all plans
that fit, the one that takes the least time wins. Knows no compiler.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.display.sizes import parse_size, shown
from nxjax.errors import MemoryLimitError, NxError
from nxjax.trace.core import Op
from nxjax.trace.program import Program, Var
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType
from nxjax.transforms.jit import jit
from nxjax.transforms.partial_eval import ProgramPolicy

Cost = Callable[..., float]
Plan = frozenset[Var]
# Lengths of segments that are tried, each so much shorter than the one before.
_STEP: Final = 1.3
# An op that cannot be run by itself takes so many seconds a byte: those of memory.
_PER_BYTE: Final = 1e-10
_RUNS: Final = 3


@final
@param_class
@dataclass(frozen=True)
class FitIn(ProgramPolicy):
    """See `fit_in`."""

    nbytes: int
    cost: Cost | None = None

    def kept(self, program: Program, wanted: set[Var]) -> set[Var]:
        plans = _Plans(program, wanted, self.cost or measured)
        found = [(plans.backward(plan), plan) for plan in plans.candidates()]
        least = min(backward.peak for backward, _ in found)
        if least > self.nbytes:
            raise MemoryLimitError(
                f"checkpoint: the backward pass of {program.name or 'the function'} does not fit",
                got=shown(self.nbytes),
                expected=f"at least {shown(least)}, beside the arguments",
                fix="give fit_in more bytes",
            )
        fitting = [plans.filled(plan, self.nbytes) for backward, plan in found if backward.peak <= self.nbytes]
        return {*program.inputs, *min(fitting, key=lambda plan: plans.backward(plan).seconds)}


def fit_in(nbytes: int | str, *, cost: Cost | None = None) -> FitIn:
    """A policy for `checkpoint`: what is kept, and what is computed again, takes ``nbytes`` at most at one time.

    Args:
        nbytes: bytes of the values that the backward pass reads, beside the arguments of the function and the
            cotangents: a number, or a text such as ``"200MB"``.
        cost: seconds of an op, as ``cost(op, *operand types, **parameters)``. By default each kind of op is run once on
            this machine for each of its shapes.

    Returns:
        The policy. It looks into jitted functions; a loop counts as one op.

    Raises:
        ParameterError: ``nbytes`` is no size.
        MemoryLimitError: the function is differentiated and cannot fit; the error says what it needs.

    >>> f = nx.checkpoint(lambda x: nx.sin(nx.sin(nx.sin(x))).sum(), policy=nx.fit_in("1KB"))
    >>> nx.grad(f)(nx.zeros(4)).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return FitIn(parse_size(nbytes, "fit_in: nbytes"), cost)


@functools.lru_cache(4096)
def measured(op: Op, *types: ArrayType, **params: Any) -> float:
    """The best of some runs of ``op`` on this machine, in seconds."""
    if op.effect or op.host_only:
        return 0.0
    try:
        bound: Callable[..., Any] = functools.partial(op, **params)
        run = jit(bound).lower(*types).compile()
        args = [np.zeros(t.shape, t.dtype) for t in types]
        return min(_seconds(run, args) for _ in range(_RUNS))
    except NxError:  # part of a mesh, for one
        return _PER_BYTE * sum(t.size * t.dtype.itemsize for t in types)


def _seconds(run: Callable[..., Any], args: Sequence[Any]) -> float:
    start = time.perf_counter()
    run(*args)
    return time.perf_counter() - start


class _Backward(NamedTuple):
    """What a plan costs: bytes that are there at one time, and seconds to compute values again."""

    peak: int
    seconds: float


@final
class _Plans:
    """Sets of values of ``program`` to keep for a backward pass that reads those ``wanted``, the last one first."""

    def __init__(self, program: Program, wanted: set[Var], cost: Cost) -> None:
        self._equations = program.equations
        self._makers = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
        self._wanted = [v for v in self._makers if v in wanted]
        self._cost = [cost(e.op, *(a.type for a in e.inputs), **e.params) for e in program.equations]
        # What has an effect happens once.
        self._fixed = frozenset(v for e in program.equations if e.effect for v in e.outputs)
        made = np.zeros(len(program.equations) + 1)
        for v in self._wanted:
            made[self._makers[v] + 1] += _nbytes(v)
        # Of the first n equations: bytes of wanted values.
        self._made = np.cumsum(made)
        # The last equation that reads a value to make a wanted one.
        self._read: dict[Var, int] = {}
        for i in sorted(self._chain(self._wanted, frozenset(), set())):
            for a in program.equations[i].inputs:
                if isinstance(a, Var) and a in self._makers:
                    self._read[a] = i
        across = np.zeros(len(program.equations) + 1)
        for v, last in self._read.items():
            across[self._makers[v] + 1] += _nbytes(v)
            across[last + 1] -= _nbytes(v)
        # Bytes of what equations from the n-th on read of those before it.
        self._across = np.cumsum(across)

    def candidates(self) -> list[Plan]:
        """Everything, then one plan for each length of segments."""
        found = [frozenset(self._wanted) | self._fixed]
        size, least = float(self._made[-1]), max(map(_nbytes, self._wanted), default=0)
        while size >= max(least, 1):
            found.append(self._cut(size) | self._fixed)
            size /= _STEP
        return list(dict.fromkeys(found))

    def _cut(self, size: float) -> Plan:
        """What is read across cuts, where a segment makes up to ``size`` bytes of wanted values."""
        kept: set[Var] = set()
        start, count = 0, len(self._equations)
        while self._made[count] - self._made[start] > size:
            # Where the least is read, of the places in the second half of the longest segment.
            first = max(int(np.searchsorted(self._made, self._made[start] + size / 2)), start + 1)
            end = max(int(np.searchsorted(self._made, self._made[start] + size, "right")), first + 1)
            start = first + int(np.argmin(self._across[first:end]))
            kept.update(v for v, last in self._read.items() if self._makers[v] < start <= last)
        return frozenset(kept)

    def _chain(self, wanted: Sequence[Var], kept: Plan, done: set[int]) -> set[int]:
        """The equations that make ``wanted`` of what is ``kept``, but for those ``done``."""
        found: set[int] = set()
        stack: list[Any] = list(wanted)
        while stack:
            v = stack.pop()
            i = None if v in kept else self._makers.get(v)
            if i is not None and i not in done and i not in found:
                found.add(i)
                stack += [a for a in self._equations[i].inputs if isinstance(a, Var)]
        return found

    def backward(self, kept: Plan) -> _Backward:
        """The backward pass with ``kept``: each equation that is needed again runs where it is first needed."""
        done: set[int] = set()
        events: list[tuple[Sequence[Any], Sequence[Var]]] = []
        for w in reversed(self._wanted):
            again = self._chain([w], kept, done)
            done |= again
            events += [(self._equations[i].inputs, self._equations[i].outputs) for i in sorted(again)]
            events.append(([w], ()))
        last = {a: n for n, (read, _) in enumerate(events) for a in read if isinstance(a, Var) and a in self._makers}
        held = peak = sum(_nbytes(v) for v in kept if v in last)
        for n, (read, made) in enumerate(events):
            held += sum(_nbytes(v) for v in made if v in last)
            peak = max(peak, held)
            held -= sum(_nbytes(a) for a in dict.fromkeys(read) if last.get(a) == n)
        return _Backward(peak, sum(self._cost[i] for i in done))

    def filled(self, kept: Plan, nbytes: int) -> Plan:
        """``kept`` and, as far as ``nbytes`` go, wanted values that take longest to compute per byte."""
        left = nbytes - self.backward(kept).peak
        worth = lambda v: self._cost[self._makers[v]] / max(_nbytes(v), 1)
        for v in sorted((v for v in self._wanted if v not in kept), key=worth, reverse=True):
            if _nbytes(v) <= left:
                kept, left = kept | {v}, left - _nbytes(v)
        return kept


def _nbytes(v: Var) -> int:
    return v.type.size * v.type.dtype.itemsize
