"""Accuracy-aware quantization: the layers that cost the results most leave 8 bits, until the results are good enough.

Knows no function's own form: what a policy makes of it, its caller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import ParameterError, described
from nxjax.quant import calibration, results
from nxjax.quant.calibration import Calibrated, arguments
from nxjax.quant.effects import GridChoice, GridEffects, layer_name, switched_steps
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observers import Range
from nxjax.quant.plan import Inner, QuantPlan, Step
from nxjax.quant.planned import PlannedCall
from nxjax.quant.pointwise import SIXTEEN, TableFunction
from nxjax.quant.products import macs
from nxjax.quant.scheme import Layered, Scheme, preset
from nxjax.quant.subprograms import LOOPS
from nxjax.quant.walk import Corrections
from nxjax.quant.widths import WidthTrial, WidthTrials
from nxjax.trace import dtypes
from nxjax.trace.program import Equation, Var

# Without a metric, the results have so many dB; with one, it falls by so much.
ENOUGH: Final = 20.0
POINTS: Final = 0.005
# The share of multiply-accumulates that may leave 8 bits, and what is tried: the share of layers that do.
WIDE: Final = 0.2
SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
# So many layers are measured together at first, and each apart unless all make so small a share of the noise.
TOGETHER: Final = 8
QUIET: Final = 0.01
# The effect of each layer alone is measured on so many batches, and every so manieth batch is kept from calibration.
RANKED: Final = 2
# So many dB below what all layers together reach are as good.
NEARLY: Final = 0.5
HELD: Final = 4

Metric = Callable[[Callable[..., Any]], float]


class Chosen(NamedTuple):
    """A policy, what calibration found for it, and what was measured on the way to it."""

    policy: Layered
    ranges: Mapping[str, Range]
    corrections: Corrections
    trials: WidthTrials = WidthTrials()


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
       least for which the switched program is good enough.
    3. They are given 16 bits, or float where 16 bits are no better; the ranges that these need are added, and the
       function itself is measured. If it is not good enough, more layers follow, and then the same in float.

    A ``metric`` then judges what the decibels chose. If it loses too much, growing shares of all layers follow, and the
    metric alone decides.

    Nothing in it is random. What is returned measured best; int8 itself is among what is measured.

    Args:
        make: the quantized function of a choice.
        metric: of a function; the greater, the better.
        budget: how much of the metric may be lost, or the dB of the results to reach.
        correct: whether biases are corrected.
    """
    if not data:
        raise ParameterError('quantize: "auto" needs data', expected="calibrate=, an iterable of argument tuples")
    if metric is not None and not callable(metric):
        raise ParameterError(
            "quantize: metric", got=described(metric), expected="a function of a function: f -> number"
        )
    lost = 0.0 if budget is None else None if isinstance(budget, bool) else _number(budget)
    if lost is None or not np.isfinite(lost):
        expected = "a finite number: how much of the metric may be lost, or without one the decibels to reach"
        raise ParameterError("quantize: budget", got=budget, expected=expected)
    held = [arguments(batch) for batch in data[1::HELD]] if len(data) >= HELD else []
    used = [batch for i, batch in enumerate(data) if not held or i % HELD != 1]
    base = Layered(preset("int8"), {})
    calibrated = calibration.run(fun, base, used, observer, params, progress, correct)
    assert isinstance(calibrated.policy, Layered)
    base = calibrated.policy
    held = (held or calibrated.measured)[: calibration.MEASURED]
    search = _Search(fun, base, calibrated, used, held, params, progress)
    if metric is None:
        choice = search.told(ENOUGH if budget is None else budget)
        if budget is not None and choice.trials.best < budget:
            _missed(f"reaches {budget:.4g} dB", choice)
        return choice

    def asked(f: Callable[..., Any]) -> float:
        answer = metric(f)
        found = _number(answer)
        if found is None or np.isnan(found):
            got = "NaN" if found is not None else described(answer)
            raise ParameterError("quantize: the metric of a function", got=got, expected="a number, larger is better")
        # No -0: it is printed.
        return found + 0.0

    plain, allowed = asked(fun), POINTS if budget is None else budget
    reached = lambda choice: asked(make(choice))
    # A metric of few samples is kept by chance, too: what the decibels choose comes first.
    choice = search.best(ENOUGH)
    if (found := reached(choice)) >= plain - allowed:
        return choice._replace(trials=choice.trials.judged(found))
    search.trials.clear()
    choice = search.best(plain - allowed, reached)
    if choice.trials.best < plain - allowed:
        _missed(f"keeps the metric, {plain:.4g} in float, within a budget of {allowed:.4g}", choice)
    return choice


def _missed(wanted: str, choice: Chosen) -> None:
    """A warning that a caller's figure is not reached."""
    results.warn(
        f"quantize: nothing that was measured {wanted}; the best: {choice.trials.best:.4g}. See .trials. Set another "
        'budget, try "int16x8" or another observer, or train through the integers (nx.quant.lsq)',
    )


def _number(x: Any) -> float | None:
    """``x`` as a number, True as 1; None for what is no number, as the text of one."""
    try:
        return None if isinstance(x, (str, bytes, bytearray)) else float(x)
    except (TypeError, ValueError):
        return None


def widened(
    fun: Callable[..., Any],
    calibrated: Calibrated,
    params: Sequence[int] | int | None,
    progress: bool | None,
) -> Chosen:
    """`policy_for` of a function that is calibrated for int8 already, measured on the batches of its calibration."""
    policy, held, worst = calibrated.policy, calibrated.measured, calibrated.worst
    base = policy if isinstance(policy, Layered) else Layered(policy, {})
    if worst is not None and worst >= ENOUGH:
        return Chosen(base, calibrated.ranges, calibrated.corrections)
    return _Search(fun, base, calibrated, held, held, params, progress).told(ENOUGH)


class Switches(NamedTuple):
    """Layers of a function on grids that can be switched to float."""

    effects: GridEffects
    choice: GridChoice
    corrections: Corrections

    def noise(self, floats: Sequence[bool], batches: int | None = None) -> list[float]:
        """As `GridEffects.noise`."""
        return self.effects.noise(self.choice, self.corrections, floats, batches)


@final
class _Search:
    """Looks for the fewest layers that have to leave 8 bits.

    Args:
        data: gives the ranges that 8 bits do not need.
        held: measures results.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        base: Layered,
        start: Calibrated,
        data: Sequence[Any],
        held: Sequence[tuple[Any, ...]],
        params: Sequence[int] | int | None,
        progress: bool | None,
    ) -> None:
        self.fun, self.base, self.start, self.params = fun, base, start, params
        self.data, self.held, self.progress = data, held, progress
        # Everything that was seen at each site: the range of 16 bits.
        self.whole = dict(start.whole)
        self.trials: list[WidthTrial] = []
        self.effects: GridEffects | None = None
        self._layers: tuple[QuantPlan, Switches, list[WideCandidate]] | None = None

    def told(self, wanted: float) -> Chosen:
        """`best`, with a warning where a result is poor still."""
        choice = self.best(wanted)
        best = choice.trials.best
        loop = self._losing_loop(choice) if best < wanted else ""
        if loop:
            results.warn(
                f"quantize: a result has a signal-to-noise ratio of {best:.1f} dB on the calibration data; most is "
                f"lost in {loop}, which holds too many of the products to leave 8 bits. What it carries has one grid "
                'for all steps: if these differ in size, write the loop out, or try "int16x8"'
            )
        elif best < results.POOR:
            results.warn_if_poor(self.fun, choice.policy, self.params, *choice[1:3], self.held)
        return choice

    def _losing_loop(self, choice: Chosen) -> str:
        """The loop in which most is lost and that stays in 8 bits, with the user's line; empty if it is none."""
        if self._layers is None or not self._layers[2]:
            return ""
        plan, _, (worst, *_) = self._layers
        step = switched_steps(plan)[worst.place]
        if not isinstance(step, Inner) or step.equation.op.name not in LOOPS or worst.name in choice.policy.exceptions:
            return ""
        return f"{worst.name} ({step.equation.source})" if step.equation.source else worst.name

    def best(self, wanted: float, reached: Callable[[Chosen], float] | None = None) -> Chosen:
        """The first choice that reaches ``wanted``, or nearly all that can be, or else the one that came nearest.

        Args:
            reached: what a choice gives; by default the dB of its worst result.
        """
        best = Chosen(self.base, self.start.ranges, self.start.corrections)
        most = self._measured(best, [], None, 1, reached)
        if most < wanted:
            plan, switches, ranked = self._layers = self._layers or self._rank(best)
            total = max(sum(c.macs for c in ranked), 1)
            goal = wanted if reached else _goal(ranked, switches, wanted)
            # Integers are not quite what float on their grids says.
            enough = goal if reached or goal >= wanted else goal - NEARLY
            tried: list[dict[str, Scheme | str | None]] = [{}]
            for wide in ("int16x8", None):
                counts = _shares(len(ranked)) if reached else _counts(ranked, switches, goal)
                for count in counts:
                    taken = _taken(ranked, count)
                    answers = _answers(plan, taken, wide)
                    if answers in tried:
                        continue
                    tried.append(answers)
                    choice = self._completed(Layered(self.base.base, {**self.base.exceptions, **answers}))
                    if not choice.ranges:
                        # All of it would be float.
                        continue
                    found = self._measured(choice, taken, wide, total, reached)
                    if found > most:
                        best, most = choice, found
                        if found >= enough:
                            return choice._replace(trials=WidthTrials(self.trials))
        return best._replace(trials=WidthTrials(self.trials))

    def _rank(self, best: Chosen) -> tuple[QuantPlan, Switches, list[WideCandidate]]:
        """The layers, on grids that can be switched, and in the order in which they leave 8 bits."""
        plan = PlannedCall(self.fun, self.held[0], {}, self.params).plan(self.base, "quantize")
        self.effects = GridEffects(
            self.fun, self.base, self.params, best.ranges, self.held, best.corrections, switched=True
        )
        switches = Switches(self.effects, self.effects.choice(best.ranges), best.corrections)
        return plan, switches, _ranked(plan, switches, self.progress)

    def _measured(
        self,
        choice: Chosen,
        taken: Sequence[WideCandidate],
        wide: str | None,
        total: int,
        reached: Callable[[Chosen], float] | None,
    ) -> float:
        if reached is not None:
            found = reached(choice)
        else:
            found = results.measured(self.fun, choice.policy, self.params, *choice[1:3], self.held, layers=False).worst
        sixteen = sum(c.sixteen for c in taken) if wide is not None else 0
        share = 1 - sum(c.macs for c in taken) / total
        self.trials.append(WidthTrial(sixteen, len(taken) - sixteen, share, found, "metric" if reached else "dB"))
        return found

    def _completed(self, policy: Layered) -> Chosen:
        """``policy`` with the ranges that it needs beyond those of 8 bits, whole ones for 16 bits, and corrections."""
        plan = PlannedCall(self.fun, self.held[0], {}, self.params).plan(policy, "quantize", True)
        sites = plan.all_sites()
        if not self.whole.keys() >= set(sites):
            again = calibration.run(self.fun, policy, self.data, "minmax", self.params, False, tells=False)
            self.whole |= again.ranges
        narrow = self.start.ranges
        wide = {plan.sites.get(g.output) for g in plan.groups() if g.scheme.integer and g.dtype == dtypes.int16}
        ranges = {site: self.whole[site] if site in wide else narrow.get(site, self.whole[site]) for site in sites}
        if not ranges:
            return Chosen(policy, ranges, {})
        shifts: Corrections = {}
        if self.start.corrections:
            assert self.effects is not None
            shifts = self.effects.corrections(self.effects.choice(ranges, policy), self.start.measured)
        return Chosen(policy, ranges, shifts)


def _ranked(plan: QuantPlan, switches: Switches, progress: bool | None) -> list[WideCandidate]:
    """Layers by what each alone does to the results, the worst first.

    What many together hardly do is not looked at one by one.
    """
    steps = switched_steps(plan)
    n = len(steps)
    lost = [0.0] * n
    alone = lambda places: sum(switches.noise([i not in places for i in range(n)], RANKED))
    total = alone(range(n))
    rest = [range(i, min(i + TOGETHER, n)) for i in range(0, n, TOGETHER)]
    for places in calibration.shown(_taken_from(rest), "layers", progress):
        noise = alone(places)
        if len(places) == 1 or noise <= QUIET * total:
            for i in places:
                lost[i] = noise / len(places)
        else:
            middle = len(places) // 2
            rest += places[:middle], places[middle:]
    found = [
        WideCandidate(layer_name(plan, s), i, lost[i], _macs(s), _parts(plan, s), _sixteen(s))
        for i, s in enumerate(steps)
    ]
    return sorted(found, key=lambda c: -c.lost)


def _taken_from(rest: list[range]) -> Iterator[range]:
    while rest:
        yield rest.pop()


def _equation(step: Step) -> Equation:
    assert not isinstance(step, FusedGroup)
    return step.equation if isinstance(step, Inner) else step


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


def _answers(plan: QuantPlan, taken: Sequence[WideCandidate], wide: str | None) -> dict[str, Scheme | str | None]:
    """The policy's answers for layers that leave 8 bits, and for what only moves values to or from one of them."""
    chosen: dict[str, Scheme | str | None] = {}
    for c in taken:
        answer = wide if c.sixteen else None
        chosen[c.name] = answer
        if answer is None:
            chosen.update(dict.fromkeys(c.parts))
    readers: dict[Any, set[str]] = {}
    for step in plan.steps:
        own = step.equations if isinstance(step, FusedGroup) else (_equation(step),)
        name = layer_name(plan, step)
        for e in own:
            for a in e.inputs:
                if isinstance(a, Var):
                    readers.setdefault(a, set()).add(name)
    moving = [g for g in plan.groups() if g.moves]
    made = {g.output: plan.layer(g) for g in plan.groups() if g.scheme.integer}
    asked = dict(chosen)
    for g in reversed(moving):
        found = [asked[r] for r in readers.get(g.output, ()) if r in asked]
        if found:
            asked.setdefault(plan.layer(g), found[0])
    for g in moving:
        before = [made[a] for a in g.activations if isinstance(a, Var) and a in made]
        # What is on a grid of 8 bits already stays on it; what is wide stays wide.
        if all(name in chosen for name in before) and (before or plan.layer(g) in asked):
            chosen.setdefault(plan.layer(g), asked[plan.layer(g)] if plan.layer(g) in asked else chosen[before[0]])
    return chosen


def _shares(n: int) -> list[int]:
    return list(dict.fromkeys(max(1, round(share * n)) for share in SHARES)) if n else []


def _decibels(ranked: Sequence[WideCandidate], switches: Switches, count: int) -> float:
    """dB of the worst result with the first ``count`` layers in float, as far as they may be."""
    taken = {c.place for c in _taken(ranked, count)}
    return results.sqnr(1.0, max(switches.noise([i in taken for i in range(len(ranked))]), default=0.0))


def _goal(ranked: Sequence[WideCandidate], switches: Switches, wanted: float) -> float:
    """What can be reached: ``wanted``, or else nearly what all layers together reach."""
    return min(wanted, _decibels(ranked, switches, len(ranked)) - NEARLY)


def _counts(ranked: Sequence[WideCandidate], switches: Switches, goal: float) -> Iterator[int]:
    """How many layers to take: the least number that reaches ``goal`` in float, twice as many, and all."""
    low, high = 1, len(ranked)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _decibels(ranked, switches, middle) >= goal else (middle + 1, high)
    yield from dict.fromkeys(min(n, len(ranked)) for n in (low, 2 * low, len(ranked)) if ranked)
