"""Accuracy-aware quantization: the layers that cost the results most leave 8 bits, until the results are good enough.

Knows no function's own form: what a policy makes of it, its caller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax.errors import ParameterError
from nxjax.quant import bias, calibration, results
from nxjax.quant.calibration import arguments
from nxjax.quant.effects import LayerSwitches, switched_steps
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observers import Range
from nxjax.quant.plan import Inner, QuantPlan, Step
from nxjax.quant.planned import PlannedCall
from nxjax.quant.pointwise import SIXTEEN, TableFunction
from nxjax.quant.products import macs
from nxjax.quant.scheme import Layered, Policy, Scheme, preset
from nxjax.quant.walk import Corrections
from nxjax.trace import dtypes

# Without a metric, the results have so many dB; with one, it falls by so much.
ENOUGH: Final = 20.0
POINTS: Final = 0.005
# The share of multiply-accumulates that may leave 8 bits, and what is tried: the share of layers that do.
WIDE: Final = 0.2
SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
# The effect of each layer alone is measured on so many batches, and every so manieth batch is kept from calibration.
RANKED: Final = 2
HELD: Final = 4

Metric = Callable[[Callable[..., Any]], float]


class Chosen(NamedTuple):
    """A policy, and what calibration found for it."""

    policy: Policy
    ranges: Mapping[str, Range]
    corrections: Corrections


class WideCandidate(NamedTuple):
    """A layer that can leave 8 bits.

    Attributes:
        place: among `switched_steps`.
        lost: what its integers alone add to the noise of the results, as a share of the signal.
        parts: what leaves 8 bits with it where it becomes float.
        sixteen: whether 16 bits make it better.
    """

    name: str
    place: int
    lost: float
    macs: int
    parts: tuple[str, ...]
    sixteen: bool


def policy_for(
    fun: Callable[..., Any],
    data: Sequence[Any],
    make: Callable[[Chosen], Callable[..., Any]],
    *,
    metric: Metric | None,
    budget: float | None,
    observer: Any,
    params: Sequence[int] | int | None,
    progress: bool | None,
    correct: bool,
) -> Chosen:
    """The fewest layers in 16 bits or float with which the results are good enough, or else the best that was found.

    Every fourth batch is kept from calibration if there are four: the results are measured on these. If int8 is good
    enough, that is the answer. Otherwise:

    1. Each layer computes on integers alone, all others in float: what it adds to the noise of the results is its rank.
       Elementwise layers and loops are layers as products are. Layers are switched within one compiled program.
    2. The worst layers leave 8 bits, products as long as 80 % of the multiply-accumulates stay. Their number is the
       least for which the switched program is good enough; with ``metric``, growing shares of all layers.
    3. They are given 16 bits, the ranges that these need are added, and the function itself is measured. If it is not
       good enough, more layers follow, and then the same with float instead of 16 bits.

    Nothing in it is random. What is returned measured best; int8 itself is among what is measured.

    Args:
        make: the quantized function of a choice.
        metric: of a function; the greater, the better.
        budget: how much of the metric may be lost, or the dB of the results to reach.
        correct: whether biases are corrected.
    """
    if not data:
        raise ParameterError('quantize: "auto" needs data', expected="calibrate=, an iterable of argument tuples")
    held = [arguments(batch) for batch in data[1::HELD]] if len(data) >= HELD else []
    used = [batch for i, batch in enumerate(data) if not held or i % HELD != 1]
    base = Layered(preset("int8"), {})
    calibrated = calibration.run(fun, base, used, observer, params, progress, correct)
    assert isinstance(calibrated.policy, Layered)
    base = calibrated.policy
    held = (held or calibrated.measured)[: calibration.MEASURED]
    wanted = ENOUGH if budget is None else budget
    if metric is not None:
        wanted = metric(fun) - (POINTS if budget is None else budget)

    def reached(choice: Chosen) -> float:
        if metric is not None:
            return metric(make(choice))
        found = results.of_results(fun, choice.policy, params, choice.ranges, choice.corrections, held)
        return min(found, default=np.inf)

    best = start = Chosen(base, calibrated.ranges, calibrated.corrections)
    most = reached(best)
    if most >= wanted:
        return best
    switches = LayerSwitches(fun, base, params, *start[1:], held)
    plan = PlannedCall(fun, arguments(data[0]), {}, params).plan(base, "quantize")
    ranked = _ranked(plan, switches, progress)
    for wide in ("int16x8", None):
        candidates = [c for c in ranked if c.sixteen or wide is None]
        counts = _shares(len(candidates)) if metric else _counts(candidates, len(ranked), switches, wanted)
        for count in counts:
            chosen = _answers(_taken(candidates, count), wide)
            choice = _completed(
                fun, Layered(base.base, {**base.exceptions, **chosen}), used, start, params, calibrated.measured
            )
            found = reached(choice)
            if found > most:
                best, most = choice, found
            if found >= wanted:
                return choice
    return best


def _ranked(plan: QuantPlan, switches: LayerSwitches, progress: bool | None) -> list[WideCandidate]:
    """Layers by what each alone does to the results, the worst first."""
    steps = switched_steps(plan)
    found: list[WideCandidate] = []
    for place, step in enumerate(calibration.shown(steps, "layers", progress)):
        alone = [i != place for i in range(len(steps))]
        lost = sum(switches.noise(alone, RANKED))
        found.append(WideCandidate(_name(plan, step), place, lost, _macs(step), _parts(plan, step), _sixteen(step)))
    return sorted(found, key=lambda c: -c.lost)


def _name(plan: QuantPlan, step: Step) -> str:
    return plan.layer(step) if isinstance(step, FusedGroup) else plan.names[_first(step)].removesuffix(".0")


def _first(step: Step) -> Any:
    assert isinstance(step, Inner)
    return step.equation.outputs[0]


def _parts(plan: QuantPlan, step: Step) -> tuple[str, ...]:
    return tuple(plan.names[e.outputs[0]] for e in step.equations[1:]) if isinstance(step, FusedGroup) else ()


def _sixteen(step: Step) -> bool:
    if isinstance(step, TableFunction):
        # Pieces of others would be no better: they are rounded once.
        return step.function in SIXTEEN and step.dtype == dtypes.int8
    return not isinstance(step, FusedGroup) or step.dtype == dtypes.int8


def _macs(step: Step) -> int:
    if not isinstance(step, Inner):
        return macs(step)
    turns = step.equation.params.get("length", 1)
    return turns * sum(_macs(s) for plan in step.plans for s in plan.steps if isinstance(s, (FusedGroup, Inner)))


def _taken(ranked: Sequence[WideCandidate], count: int) -> list[WideCandidate]:
    """The first ``count``, without products beyond the share that may leave 8 bits."""
    room = WIDE * sum(c.macs for c in ranked)
    taken: list[WideCandidate] = []
    for c in ranked[:count]:
        if c.macs <= room:
            room -= c.macs
            taken.append(c)
    return taken


def _answers(taken: Sequence[WideCandidate], wide: str | None) -> dict[str, Scheme | str | None]:
    chosen: dict[str, Scheme | str | None] = {c.name: wide for c in taken}
    if wide is None:
        chosen.update((part, None) for c in taken for part in c.parts)
    return chosen


def _shares(n: int) -> list[int]:
    return list(dict.fromkeys(max(1, round(share * n)) for share in SHARES)) if n else []


def _counts(candidates: Sequence[WideCandidate], total: int, switches: LayerSwitches, wanted: float) -> Iterator[int]:
    """How many layers to take: the least number that is good enough in float, then half as many more each time."""

    def enough(count: int) -> bool:
        taken = {c.place for c in _taken(candidates, count)}
        noise = max(switches.noise([i in taken for i in range(total)]), default=0.0)
        return results.sqnr(1.0, noise) >= wanted

    low, high = 1, len(candidates)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    while 0 < low < len(candidates):
        yield low
        low += max(1, low // 2)
    if candidates:
        yield len(candidates)


def _completed(
    fun: Callable[..., Any],
    policy: Policy,
    data: Sequence[Any],
    start: Chosen,
    params: Sequence[int] | int | None,
    measured: Sequence[tuple[Any, ...]],
) -> Chosen:
    """``policy`` with the ranges that it needs beyond those of ``start``, whole ones for 16 bits, and corrections."""
    more = calibration.run(fun, policy, data, "minmax", params, False).ranges
    plan = PlannedCall(fun, arguments(data[0]), {}, params).plan(policy, "quantize")
    wide = {plan.sites.get(g.output) for g in plan.groups() if g.scheme.integer and g.dtype == dtypes.int16}
    ranges = {site: more[site] if site in wide else start.ranges.get(site, more[site]) for site in more}
    corrections = bias.corrections(fun, policy, params, ranges, measured) if start.corrections else {}
    return Chosen(policy, ranges, corrections)
