"""Accuracy-aware quantization: the layers that lose most leave 8 bits, until the results are good enough.

Knows no function's own form: what a policy makes of it, its caller does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nxjax.errors import ParameterError
from nxjax.quant import calibration, results
from nxjax.quant.calibration import arguments
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observers import Range
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.pointwise import SIXTEEN, TableFunction
from nxjax.quant.products import macs
from nxjax.quant.scheme import Layered, Policy, Scheme, preset

# Without a metric, the results have so many dB; with one, it falls by so much.
ENOUGH: Final = 20.0
POINTS: Final = 0.005
# The share of multiply-accumulates that may leave 8 bits, and what is tried: the share of layers that do.
WIDE: Final = 0.2
SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)

Metric = Callable[[Callable[..., Any]], float]


class WideCandidate(NamedTuple):
    """A layer that can leave 8 bits; ``lost`` is the noise that it adds, as a share of its signal."""

    name: str
    lost: float
    macs: int
    # What is a part of it, and leaves 8 bits with it where it becomes float.
    parts: tuple[str, ...]


def policy_for(
    fun: Callable[..., Any],
    data: Sequence[Any],
    make: Callable[[Policy, Mapping[str, Range]], Callable[..., Any]],
    *,
    metric: Metric | None,
    budget: float | None,
    observer: Any,
    params: Sequence[int] | int | None,
    progress: bool | None,
) -> tuple[Policy, Mapping[str, Range]]:
    """The policy and the ranges with the fewest layers in 16 bits or float that are good enough, or the best ones.

    Args:
        make: the quantized function of a policy and ranges.
        metric: of a function; the greater, the better.
        budget: how much of the metric may be lost, or the dB of the results to reach.
    """
    if not data:
        raise ParameterError('quantize: "auto" needs data', expected="calibrate=, an iterable of argument tuples")
    base = Layered(preset("int8"), {})
    calibrated = calibration.run(fun, base, data, observer, params, progress)
    ranges = dict(calibrated.ranges)
    measured = calibrated.measured
    wanted = ENOUGH if budget is None else budget
    if metric is not None:
        wanted = metric(fun) - (POINTS if budget is None else budget)

    def reached(policy: Policy) -> float:
        if metric is not None:
            return metric(make(policy, ranges))
        return min(results.of_results(fun, policy, params, ranges, measured), default=float("inf"))

    best: Policy = base
    most = reached(base)
    if most >= wanted:
        return base, ranges
    plan = PlannedCall(fun, arguments(data[0]), {}, params).plan(base, "quantize")
    ranked = _ranked(fun, base, params, ranges, measured[0], plan)
    room = WIDE * sum(c.macs for c in ranked)
    for wide in ("int16x8", None):
        for share in SHARES:
            policy = Layered(base, _chosen(ranked, share, room, wide))
            _complete(fun, policy, data, observer, params, ranges)
            found = reached(policy)
            if found > most:
                best, most = policy, found
            if found >= wanted:
                return policy, ranges
    return best, ranges


def _chosen(
    ranked: Sequence[WideCandidate], share: float, room: float, wide: str | None
) -> dict[str, Scheme | str | None]:
    """The answers for the worst ``share`` of all layers; products as far as there is ``room`` for them."""
    chosen: dict[str, Scheme | str | None] = {}
    for c in ranked[: max(1, round(share * len(ranked)))]:
        if c.macs > room:
            continue
        room -= c.macs
        chosen[c.name] = wide
        if wide is None:
            chosen.update(dict.fromkeys(c.parts))
    return chosen


def _ranked(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    args: tuple[Any, ...],
    plan: QuantPlan,
) -> list[WideCandidate]:
    """Layers by the noise that each adds to that of its operands, the worst first."""
    power = lambda db: 10 ** (-db / 10)
    lost = {
        layer.name: power(layer.after) - power(layer.before)
        for layer in results.by_layer(fun, policy, params, ranges, args)
    }
    found: list[WideCandidate] = []
    for step in plan.steps:
        if isinstance(step, FusedGroup) and not step.moves:
            name = plan.layer(step)
            parts = tuple(plan.names[e.outputs[0]] for e in step.equations[1:])
            if isinstance(step, TableFunction) and step.function not in SIXTEEN:
                # Its pieces would be no better: it is rounded once.
                continue
            found.append(WideCandidate(name, lost.get(name, 0.0), macs(step), parts))
        elif isinstance(step, Inner):
            for inner in step.plans:
                found += [WideCandidate(inner.layer(g), 0.0, macs(g), ()) for g in inner.groups() if not g.moves]
    return sorted(found, key=lambda c: -c.lost)


def _complete(
    fun: Callable[..., Any],
    policy: Policy,
    data: Sequence[Any],
    observer: Any,
    params: Sequence[int] | int | None,
    ranges: dict[str, Range],
) -> None:
    """Add the ranges that ``policy`` needs beyond those known."""
    plan = PlannedCall(fun, arguments(data[0]), {}, params).plan(policy, "quantize")
    if any(site not in ranges for site in plan.all_sites()):
        more = calibration.run(fun, policy, data, "minmax", params, False).ranges
        ranges.update({site: span for site, span in more.items() if site not in ranges})
