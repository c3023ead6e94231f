"""What quantization does to a function's results on calibration data: measured, to choose by it and to warn.

Knows no observer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax.errors import Source
from nxjax.ops.arithmetic import div, sub
from nxjax.ops.base import constant, like
from nxjax.ops.compare import eq
from nxjax.ops.rounding import is_finite
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, Quantizer, Range
from nxjax.trace import dtypes, tree
from nxjax.trace.core import Array
from nxjax.trace.program import Var
from nxjax.transforms.jit import jit

# Below so many dB a result is hardly that of the function.
POOR: Final = 10.0
# A value so small has no grid in float32: the products of its steps with others' are 0.
NOTHING: Final = 1e-20
# How many layers a warning names.
NAMED: Final = 3
# A layer of so many dB is as good as exact.
EXACT: Final = 60.0
NDArray = np.ndarray[Any, Any]


def sqnr(signal: float, noise: float) -> float:
    """Signal to noise in dB.

    >>> round(sqnr(100.0, 1.0), 6), sqnr(1.0, 0.0)
    (20.0, inf)
    """
    return float("inf") if noise <= 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))


def of_results(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    batches: Sequence[tuple[Any, ...]],
) -> list[float]:
    """dB of each float result over ``batches``."""

    def both(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", bool(ranges))
        return call.observed(plan, Ranges())[0], call.quantized(plan, ranges, corrections)

    run = jit(both)
    totals: list[list[float]] = []
    for args in batches:
        pairs = [
            (np.asarray(x, np.float64), np.asarray(q, np.float64))
            for x, q in zip(*map(tree.leaves, run(*args)), strict=True)
            if x.dtype == dtypes.float32
        ]
        totals = totals or [[0.0, 0.0] for _ in pairs]
        for total, (x, q) in zip(totals, pairs, strict=True):
            # Infinities that are results say nothing about steps.
            real = np.isfinite(x)
            total[0] += float(np.sum(x[real] ** 2))
            total[1] += float(np.sum((q[real] - x[real]) ** 2))
    return [sqnr(*total) for total in totals]


class Quality(NamedTuple):
    """How good a quantized function is.

    Attributes:
        worst: dB of its worst result.
        layers: the mean over all layers of each one's dB. Steadier than the results, which a few elements decide.
    """

    worst: float
    layers: float


def quality(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    batches: Sequence[tuple[Any, ...]],
) -> Quality:
    """Of results and layers over ``batches``."""

    def powers(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", bool(ranges))
        walk = Quantizer(plan, ranges, call.stored(plan), corrections=corrections)
        plain = StatisticsTrace(plan, Ranges())
        ends = list(zip(plain.run(call.values), walk.run(call.values), strict=True))
        values = [(plain.env[g.output], walk.env[g.output]) for g in plan.groups() if not g.moves]
        # Infinities that are results say nothing about steps.
        real = lambda x, y: (select_n(is_finite(x), like(x, 0), x), select_n(is_finite(x), like(y, 0), y))
        return [[power(*real(x, q)) for x, q in pairs if x.dtype == dtypes.float32] for pairs in (ends, values)]

    run = jit(powers)
    totals: list[list[NDArray]] = [[], []]
    for args in batches:
        for total, found in zip(totals, run(*args), strict=True):
            total.append(np.asarray([[float(s), float(n)] for s, n in found], np.float64).reshape(-1, 2))
    ends, values = ([sqnr(*pair) for pair in np.sum(total, 0)] for total in totals)
    every = [min(db, EXACT) for db in (*ends, *values)]
    return Quality(min(ends, default=np.inf), float(np.mean(every)) if every else np.inf)


class Layer(NamedTuple):
    """A layer's noise.

    Attributes:
        before, after: dB of the worst of its operands, and of its result.
    """

    name: str
    source: Source | None
    before: float
    after: float


def by_layer(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    args: tuple[Any, ...],
) -> list[Layer]:
    """Where noise comes in, of one batch, in program order; nothing of inner programs."""
    plans: list[QuantPlan] = []

    def both(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize")
        plans[:] = [plan]
        walk = Quantizer(plan, ranges, call.stored(plan), corrections=corrections)
        walk.run(call.values)
        plain = StatisticsTrace(plan, Ranges())
        plain.run(call.values)
        return [power(plain.env[v], walk.env[v]) for v in _values(plan)]

    found = jit(both)(*args)
    (plan,) = plans
    noise = {v: sqnr(float(x), float(n)) for v, (x, n) in zip(_values(plan), found, strict=True)}
    layers: list[Layer] = []
    for step in plan.steps:
        if isinstance(step, FusedGroup):
            operands = [noise.get(a, float("inf")) for a in step.activations if isinstance(a, Var)]
            first = step.equations[0]
            after = noise[step.output]
            layers.append(Layer(plan.layer(step), first.source, min(operands, default=float("inf")), after))
    return layers


def power(x: Array, q: Array) -> tuple[Array, Array]:
    """Of a value and of the noise in it, in units of its largest element: squares of large numbers overflow."""
    if not x.size:
        return constant(0, dtypes.float32), constant(0, dtypes.float32)
    peak = abs(x).max()
    unit = broadcast_in_dim(
        select_n(eq(peak, like(peak, 0)), peak, like(peak, 1)), shape=x.shape, broadcast_dimensions=()
    )
    x, error = div(x, unit), div(sub(q, x), unit)
    return (x * x).sum(), (error * error).sum()


def _values(plan: QuantPlan) -> list[Var]:
    """The results of groups."""
    return [step.output for step in plan.steps if isinstance(step, FusedGroup)]


def warn_if_poor(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    batches: Sequence[tuple[Any, ...]],
) -> None:
    """A warning with the layers that lose most, if a result is poor."""
    found = of_results(fun, policy, params, ranges, corrections, batches)
    if not found or min(found) >= POOR:
        return
    layers = by_layer(fun, policy, params, ranges, corrections, batches[0])
    worst = sorted(layers, key=lambda layer: layer.after - min(layer.before, 40.0))[:NAMED]
    told = ", ".join(f"{n.name} ({n.after:.0f} dB{f', {n.source}' if n.source else ''})" for n in worst)
    place = f"result {int(np.argmin(found))} has" if len(found) > 1 else "the result has"
    warnings.warn(
        f"quantize: {place} a signal-to-noise ratio of {min(found):.1f} dB on the calibration data; most is lost in "
        f'{told or "inner programs"}. Try quantize(f, "auto", ...), "int16x8", another observer, or a policy that '
        "leaves these layers in float; nx.quant.compare shows all layers",
        UserWarning,
        stacklevel=4,
    )


def check_ranges(ranges: Mapping[str, Range], sources: Mapping[str, Source | None]) -> None:
    """A warning of values that were nothing but zeros in calibration, or too small for a grid."""
    size = {site: max(abs(low), abs(high)) for site, (low, high) in ranges.items()}
    small = [site for site, most in size.items() if most < NOTHING]
    if not small:
        return
    told = ", ".join(f"{site} ({sources[site]})" if sources.get(site) else site for site in small[:NAMED])
    more = f" and {len(small) - NAMED} more" if len(small) > NAMED else ""
    largest = max(size[site] for site in small)
    what = f"never larger than {largest:.0e}" if largest else "always 0"
    warnings.warn(
        f"quantize: {what} in calibration: {told}{more}. The grids of these values hold nothing else. Calibrate with "
        "real samples, scale the data, or leave these ops in float",
        UserWarning,
        stacklevel=4,
    )
