"""Calibration: the program in float, with statistics of the sites' values as extra results.

A recorder decides what to keep of a value: its range, or a histogram within a known range. Control flow gives the
statistics of all its steps together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import abs, add, div, max, min, mul, sub
from nxjax.ops.base import constant, like
from nxjax.ops.bitwise import and_, not_, or_
from nxjax.ops.compare import eq, lt
from nxjax.ops.convert import cast, convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.identity import stop_gradient
from nxjax.ops.quant_traced import clipped
from nxjax.ops.reduce import reduce_max, reduce_min, reduce_or, reduce_sum
from nxjax.ops.rounding import is_finite
from nxjax.ops.scatter import scatter_add
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.quant.groups import FusedGroup
from nxjax.quant.plan import Inner, MaskedRow, QuantPlan
from nxjax.quant.pointwise import LARGEST_FACTOR
from nxjax.quant.walk import Range, Walker
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, map_programs
from nxjax.trace.stage import stage
from nxjax.transforms.control.loop_params import LoopParams

Stat = tuple[Array, ...]
BINS: Final = 2048
# A value so far below the greatest of its row is no logit, but a mask; and so is a whole row so far below the others.
MASKED: Final = 500.0
MASKED_ROW: Final = LARGEST_FACTOR / 2
# Room for masks is so large a part of a range at least: some steps, of which rounding takes half a one.
ROOM: Final = 1 / 32


class Statistics(ABC):
    """What is kept of the values at one site, and how two of it become one."""

    size: int

    @abstractmethod
    def record(
        self, site: str, x: Array, masked: MaskedRow | None = None, always: bool = False, kept: Array | None = None
    ) -> Stat:
        """Statistics of one value; if it may be ``masked``, values far below the others are no part of the range.

        ``always`` leaves room for masks where there are none now; of the elements, those in ``kept`` count.
        """

    @abstractmethod
    def neutral(self) -> Stat:
        """The statistics of no value at all."""

    @abstractmethod
    def joined(self, a: Stat, b: Stat) -> Stat: ...

    @abstractmethod
    def over_steps(self, stacked: Stat) -> Stat:
        """Statistics with a leading axis of steps, as one."""


@final
class Ranges(Statistics):
    """The least and the greatest value."""

    size = 2

    def record(
        self, site: str, x: Array, masked: MaskedRow | None = None, always: bool = False, kept: Array | None = None
    ) -> Stat:
        x = stop_gradient(x)
        axes = tuple(range(x.ndim))
        if kept is not None:
            # Next to those that count, others lie within reach of a step of x: they have room, but no more than these.
            (low, high), (least, most) = _ends(x, kept), _ends(x, is_finite(x))
            room = sub(high, low)
            return max(least, sub(low, room)), min(most, add(high, room))
        low, high = reduce_min(x, axes=axes), reduce_max(x, axes=axes)
        if masked is not None:
            top = broadcast_in_dim(high, shape=x.shape, broadcast_dimensions=())
            least = reduce_min(select_n(below(x, masked), x, top), axes=axes)
            margin = max(like(least, masked.margin), mul(sub(high, least), like(least, ROOM)))
            room = sub(least, margin)
            low = room if always else select_n(lt(low, least), low, room)
        return low, high

    def neutral(self) -> Stat:
        return constant(np.inf, dtypes.float32), constant(-np.inf, dtypes.float32)

    def joined(self, a: Stat, b: Stat) -> Stat:
        return min(a[0], b[0]), max(a[1], b[1])

    def over_steps(self, stacked: Stat) -> Stat:
        return reduce_min(stacked[0], axes=(0,)), reduce_max(stacked[1], axes=(0,))


def below(x: Array, masked: MaskedRow) -> Array:
    """Which elements of ``x`` are masks: lower than any value, or far below the greatest of all, or of their row."""
    if masked.highest is not None:
        return lt(x, like(x, masked.highest))
    axes = tuple(range(x.ndim))
    top = broadcast_in_dim(reduce_max(x, axes=axes), shape=x.shape, broadcast_dimensions=())
    far = lt(x, sub(top, like(x, MASKED_ROW)))
    if masked.axis is None:
        return far
    others = tuple(a for a in axes if a != masked.axis)
    row = broadcast_in_dim(reduce_max(x, axes=(masked.axis,)), shape=x.shape, broadcast_dimensions=others)
    return or_(far, lt(x, sub(row, like(x, MASKED))))


def _ends(x: Array, kept: Array) -> tuple[Array, Array]:
    axes = tuple(range(x.ndim))
    low, high = select_n(kept, like(x, np.inf), x), select_n(kept, like(x, -np.inf), x)
    return reduce_min(low, axes=axes), reduce_max(high, axes=axes)


@final
class Histograms(Statistics):
    """How many values lie in each of `BINS` equal bins of |x|, from 0 to the largest magnitude of the range.

    Of ``wanted`` sites only; the others have empty bins.
    """

    size = 1

    def __init__(self, ranges: Mapping[str, Range], wanted: Container[str]) -> None:
        self.ranges = ranges
        self.wanted = wanted

    def record(
        self, site: str, x: Array, masked: MaskedRow | None = None, always: bool = False, kept: Array | None = None
    ) -> Stat:
        if site not in self.wanted:
            return self.neutral()
        if always:
            # The whole range is kept, whatever lies in it now.
            return (wrap(np.eye(1, BINS, BINS - 1, np.float32)[0]),)
        low, high = self.ranges[site]
        top = np.float32(np.maximum(np.abs(low), np.abs(high))) or np.float32(1)
        flat = reshape(stop_gradient(x), shape=(x.size,))
        each = like(flat, 1)
        if kept is not None:
            taken = reshape(kept, shape=(x.size,))
            flat, each = select_n(taken, like(flat, 0), flat), convert_element_type(taken, dtype=dtypes.float32)
        flat = abs(flat if masked is None else max(flat, like(flat, low)))
        # Divided first: bins over a subnormal number would be infinitely many.
        index = clipped(mul(div(flat, like(flat, top)), like(flat, BINS)), 0, BINS - 1)
        counts = scatter_add(
            constant(0, dtypes.float32, (BINS,)),
            reshape(cast(index, dtypes.int32), shape=(x.size, 1)),
            each,
            dimension_numbers=ScatterDimensionNumbers((), (0,), (0,)),
            mode=GatherScatterMode.CLIP,
        )
        return (counts,)

    def neutral(self) -> Stat:
        return (constant(0, dtypes.float32, (BINS,)),)

    def joined(self, a: Stat, b: Stat) -> Stat:
        return (add(a[0], b[0]),)

    def over_steps(self, stacked: Stat) -> Stat:
        return (reduce_sum(stacked[0], axes=(0,)),)


@final
class Gaps(Statistics):
    """What there is at a site, each 0 or 1: zeros, small values, those between, far ones below 0, far ones above 0.

    Far is beyond a quarter of the largest magnitude, small is within a share of it.

    Args:
        ranges: of the sites.
        shares: which part of the largest magnitude is small, by site. Others have nothing.
    """

    size = 5

    def __init__(self, ranges: Mapping[str, Range], shares: Mapping[str, float]) -> None:
        self.ranges = ranges
        self.shares = shares

    def record(
        self, site: str, x: Array, masked: MaskedRow | None = None, always: bool = False, kept: Array | None = None
    ) -> Stat:
        if site not in self.shares or masked is not None:
            return self.neutral()
        top = np.abs(self.ranges[site]).max()
        size = abs(stop_gradient(x))
        zero = eq(size, like(size, 0))
        small, far = lt(size, like(size, top * self.shares[site])), lt(like(size, top / 4), size)
        low = lt(x, like(x, 0))
        found = (zero, and_(small, not_(zero)), eq(small, far), and_(far, low), and_(far, not_(low)))
        return tuple(_any(each if kept is None else and_(kept, each)) for each in found)

    def neutral(self) -> Stat:
        return (constant(0, dtypes.float32),) * self.size

    def joined(self, a: Stat, b: Stat) -> Stat:
        return tuple(max(*pair) for pair in zip(a, b, strict=True))

    def over_steps(self, stacked: Stat) -> Stat:
        return tuple(reduce_max(x, axes=(0,)) for x in stacked)


def _any(x: Array) -> Array:
    return convert_element_type(reduce_or(x, axes=tuple(range(x.ndim))), dtype=dtypes.float32)


@final
class StatisticsTrace(Walker):
    """Computes in float and keeps statistics by site name.

    Args:
        beyond: whether elements that are done are computed too, for nothing: infinite and NaN are no values then.
    """

    def __init__(self, plan: QuantPlan, recorder: Statistics, beyond: bool = False) -> None:
        super().__init__(plan)
        self.recorder = recorder
        self.beyond = beyond
        self.stats: dict[str, Stat] = {}

    def run(self, args: Sequence[Array]) -> list[Array]:
        y = super().run(args)
        taken: dict[Any, Array] = {}
        for v, readers in self.plan.partly.items():
            x, site = self.env[v], self.plan.sites.get(v)
            taken[v] = self._taken(x, readers, taken)
            if site is not None:
                # Where nobody takes any, those that are finite.
                some = reduce_or(taken[v], axes=tuple(range(x.ndim)))
                self.stats[site] = self.recorder.record(site, x, kept=select_n(some, is_finite(x), taken[v]))
        return y

    def _taken(self, x: Array, readers: Sequence[tuple[Equation, int | None]], taken: dict[Any, Array]) -> Array:
        """Which elements of ``x`` any reader takes, and then the readers of its result, as far as they choose too."""
        found: Array = constant(False, dtypes.bool_, x.shape)
        for e, case in readers:
            this = taken.get(e.outputs[0])
            if case is not None:
                which = self.value(e.inputs[0])
                chosen = eq(which, like(which, case))
                if chosen.shape != x.shape:
                    chosen = broadcast_in_dim(chosen, shape=x.shape, broadcast_dimensions=())
                this = chosen if this is None else and_(this, chosen)
            assert this is not None
            found = or_(found, this)
        return found

    def define(self, v: Any, x: Array) -> None:
        self.env[v] = x
        site = self.plan.sites.get(v)
        if site is not None:
            plan, recorder = self.plan, self.recorder
            if v in plan.partly:
                return
            if self.beyond:
                x = select_n(is_finite(x), like(x, 0), x)
            if v in plan.bounds:
                low, high = plan.bounds[v]
                x = max(x, like(x, low)) if np.isfinite(low) else x
                x = min(x, like(x, high)) if np.isfinite(high) else x
            self.stats[site] = recorder.record(site, x, plan.masked.get(v), v in plan.masking or v in plan.least)
            if v in plan.least:
                ends = wrap(np.asarray(plan.least[v], np.float32))
                self.stats[site] = recorder.joined(self.stats[site], recorder.record(site, ends))

    def group(self, group: FusedGroup) -> None:
        for v, x in group.prepare(self).items():
            self.define(v, x)
        for e in group.equations:
            self.plain(e)

    def inner(self, step: Inner) -> None:
        getattr(self, f"_{step.equation.op.name}")(step)

    def _scan(self, step: Inner) -> None:
        e, (plan,) = step.equation, step.plans
        body = self._with_stats(plan, plan.all_sites())
        y = e.op(*map(self.value, e.inputs), loop=e.params["loop"]._replace(body=body))
        n = len(e.outputs)
        self.results(e, y[:n])
        for site, stat in self._grouped(plan.all_sites(), y[n:]).items():
            self.stats[site] = self.recorder.over_steps(stat)

    def _cond(self, step: Inner) -> None:
        e = step.equation
        if e.inputs[0].type.ndim:
            self._chosen_by_element(step)
            return
        sites = [s for plan in step.plans for s in plan.all_sites()]
        branches = iter([self._with_stats(plan, sites) for plan in step.plans])
        params = map_programs(e.params, lambda _: next(branches))
        y = e.op(*map(self.value, e.inputs), **params)
        n = len(e.outputs)
        self.results(e, y[:n])
        self.stats.update(self._grouped(sites, y[n:]))

    def _chosen_by_element(self, step: Inner) -> None:
        """Under `vmap`: each branch has the elements that take it only, the first of them in place of the others."""
        self.plain(step.equation)
        which, *xs = [stop_gradient(self.value(a)) for a in step.equation.inputs]
        shape, last = which.shape, len(step.plans) - 1
        shared = step.equation.params.get("shared", ())
        whole = [(i < len(shared) and shared[i]) or x.shape[: len(shape)] != shape for i, x in enumerate(xs)]
        which = reshape(which, shape=(which.size,))
        for k, plan in enumerate(step.plans):
            # An index out of range takes the last branch.
            taken = (which < 0) | (which >= last) if k == last else which == k
            first = broadcast_in_dim(taken.argmax(), shape=which.shape, broadcast_dimensions=())
            rows = select_n(taken, first, iota(dtype=first.dtype, shape=which.shape, dimension=0))
            each = lambda x, rows=rows: x.reshape(which.size, *x.shape[len(shape) :])[rows].reshape(x.shape)
            walk = StatisticsTrace(plan, self.recorder, self.beyond)
            walk.run([x if alike else each(x) for x, alike in zip(xs, whole, strict=True)])
            for site, stat in walk.stats.items():
                pairs = zip(self.recorder.neutral(), stat, strict=True)
                self.stats[site] = tuple(select_n(taken.any(), *pair) for pair in pairs)

    def _while(self, step: Inner) -> None:
        # The condition computes in float.
        e, (_, body) = step.equation, step.plans
        sites = body.all_sites()
        size = self.recorder.size * len(sites)
        start = [part for _ in sites for part in self.recorder.neutral()]

        def carried(*xs: Array) -> Sequence[Array]:
            given, before = xs[: len(xs) - size], self._grouped(sites, xs[len(xs) - size :])
            walk = StatisticsTrace(body, self.recorder, beyond)
            y = walk.run(given)
            joined = [self.recorder.joined(before[s], walk.stats[s]) for s in sites]
            return [*y, *(part for stat in joined for part in stat)]

        types = [x.type for x in start]
        loop: LoopParams = e.params["loop"]
        old = loop.condition
        # As long as any element goes on, of a loop under `vmap`.
        beyond = self.beyond or any(e.op is reduce_or for e in old.equations[-1:])
        kept = len(old.inputs)
        new_cond = stage(lambda *xs: old(*xs[:kept]), [*old.in_types, *types], old.name)
        new_body = stage(carried, [*loop.body.in_types, *types], body.program.name)
        loop = loop._replace(cond=new_cond, body=new_body, num_carry=loop.num_carry + size)
        y = e.op(*map(self.value, e.inputs), *start, loop=loop)
        self.results(e, y[: len(e.outputs)])
        self.stats.update(self._grouped(sites, y[len(e.outputs) :]))

    def _with_stats(self, plan: QuantPlan, sites: Sequence[str]) -> Program:
        """The plan's program with the statistics of ``sites`` as last results."""

        def flat(*xs: Array) -> Sequence[Array]:
            walk = StatisticsTrace(plan, self.recorder, self.beyond)
            y = walk.run(xs)
            return [*y, *(part for s in sites for part in walk.stats.get(s, self.recorder.neutral()))]

        return stage(flat, plan.program.in_types, plan.program.name)

    def _grouped(self, sites: Sequence[str], parts: Sequence[Array]) -> dict[str, Stat]:
        n = self.recorder.size
        return {s: tuple(parts[i * n : (i + 1) * n]) for i, s in enumerate(sites)}
