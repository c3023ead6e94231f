"""What quantization does to a function's results on calibration data: measured, to choose by it and to warn.

Knows no observer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax.errors import ParameterError, Source, is_internal
from nxjax.ops.argreduce import argmax, argmin
from nxjax.ops.arithmetic import div, mul, sub
from nxjax.ops.arithmetic import max as _max
from nxjax.ops.arithmetic import min as _min
from nxjax.ops.base import constant, like
from nxjax.ops.bitwise import and_, not_, or_
from nxjax.ops.compare import eq, ge, lt, ne
from nxjax.ops.convert import cast
from nxjax.ops.rounding import is_finite
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.ops.sort import top_k
from nxjax.quant.masks import SMALL
from nxjax.quant.observe import Ranges, StatisticsTrace, below
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, Quantizer, Range, Walker
from nxjax.trace import dtypes, tree
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Var
from nxjax.transforms.jit import jit

# Below so many dB a result is hardly that of the function.
POOR: Final = 10.0
# Values beyond are looked at apart from small ones beside them.
FAR: Final = 100.0
# So much signal to one wrong index: one in four is 10 dB.
FLIPS: Final = 2.5
# Of Booleans at least so large a part counts as the rarer value.
RARE: Final = 0.05
# A value so small has no grid in float32: the products of its steps with others' are 0.
NOTHING: Final = 1e-20
# How many layers a warning names.
NAMED: Final = 3
# A layer of so many dB is as good as exact.
EXACT: Final = 60.0
# What is joined to a result is a result of its own where it is so much smaller than the largest: no more than so many.
SMALLER: Final = 4.0
PARTS: Final = 8
NDArray = np.ndarray[Any, Any]


def sqnr(signal: float, noise: float) -> float:
    """Signal to noise in dB; noise that is not a number, as of a pole within a step of a grid, is infinite.

    >>> round(sqnr(100.0, 1.0), 6), sqnr(1.0, 0.0), sqnr(1.0, np.nan)
    (20.0, inf, -inf)
    """
    if not np.isfinite(noise):
        return float("-inf")
    return float("inf") if noise <= 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))


class Layer(NamedTuple):
    """A layer's noise.

    Attributes:
        before, after: dB of the worst of its operands, and of its result.
        moves: whether it only moves values.
    """

    name: str
    source: Source | None
    before: float
    after: float
    moves: bool


class Quality(NamedTuple):
    """How good a quantized function is.

    Attributes:
        results: dB of each float result, and of what decides each other one.
        places: what each of these is called.
        layers: where noise comes in, in program order; nothing of inner programs.
    """

    results: list[float]
    places: list[str]
    layers: list[Layer]

    @property
    def worst(self) -> float:
        """dB of the worst result."""
        return min(self.results, default=np.inf)

    @property
    def mean(self) -> float:
        """Half of it the mean dB of the results, which a few elements decide; half that of the layers, as steady."""
        halves = self.results, [layer.after for layer in self.layers if not layer.moves]
        means = [np.clip(each, -EXACT, EXACT).mean() for each in halves if each]
        return float(np.mean(means)) if means else np.inf


def measured(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    batches: Sequence[tuple[Any, ...]],
    layers: bool = True,
) -> Quality:
    """Noise over ``batches``, of the results and of ``layers`` too."""
    plans: list[QuantPlan] = []
    owners: list[str] = []

    def both(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", bool(ranges))
        plans[:] = [plan]
        walk = Quantizer(plan, ranges, call.stored(plan), corrections=corrections)
        plain = StatisticsTrace(plan, Ranges())
        owners[:], pairs = ends(plan, plain, walk, call.values)
        values = group_values(plan) if layers else []
        return powers(pairs, apart=True), powers((plain.env[v], walk.env[v]) for v in values)

    run = jit(both)
    found = [run(*args) for args in batches]
    last, values = zip(*found, strict=True)
    made = group_values(plans[0]) if layers else []
    noise = dict(zip(made, (sqnr(*pair) for pair in summed(values)), strict=True))
    return quality(owners, last, list(noisy_layers(plans[0], noise)) if layers else [])


def quality(owners: Sequence[str], found: Sequence[Sequence[tuple[Any, Any, Any]]], layers: list[Layer]) -> Quality:
    """That of results of which `powers` gave ``found`` for each batch: each is as good as its worst part."""
    worst = [min(sqnr(*pair) for pair in each) for each in large_and_small(owners, found)]
    return Quality(worst, list(dict.fromkeys(owners)), layers)


def noisy_layers(plan: QuantPlan, noise: Mapping[Var, float]) -> Iterator[Layer]:
    for group in plan.groups():
        if group.output in noise:
            operands = [noise.get(a, np.inf) for a in group.activations if isinstance(a, Var)]
            source, before = group.equations[0].source, min(operands, default=np.inf)
            yield Layer(plan.layer(group), source, before, noise[group.output], group.moves)


def group_values(plan: QuantPlan) -> list[Var]:
    """The float results of groups; of masks, only where they lie says something."""
    made = [g.output for g in plan.groups() if g.output not in plan.masking]
    return [v for v in made if v.type.dtype == dtypes.float32]


def powers(pairs: Iterable[tuple[Array, Array]], apart: bool = False) -> list[tuple[Array, Array, Array]]:
    """Of each float value and of the noise in it; the first is the unit of both, squared: squares may overflow.

    Args:
        apart: whether far values (masks) and those beside them are measured each, as the worse of both.
    """
    found: list[tuple[Array, Array, Array]] = []
    for x, q in pairs:
        if x.dtype == dtypes.bool_:
            found.append(_decisions(x, q))
        elif x.dtype == dtypes.float32 and not x.size:
            nothing = constant(0, dtypes.float32)
            found.append((nothing, nothing, nothing))
        elif x.dtype == dtypes.float32:
            found.append(_near_and_far(x, q) if apart else _real_power(x, q))
    return found


def _decisions(x: Array, q: Array) -> tuple[Array, Array, Array]:
    """Of Booleans: what differs is noise beside four times the rarer value. One in 50 of a balanced result is 20 dB."""
    ones = cast(x, dtypes.float32).sum()
    rare = _max(_min(ones, like(ones, x.size) - ones), like(ones, x.size * RARE))
    return like(ones, 1), mul(rare, like(rare, 4)), cast(ne(x, q), dtypes.float32).sum()


def _near_and_far(x: Array, q: Array) -> tuple[Array, Array, Array]:
    """That of far values or of the others, what is worse, where none lie between. A mask of -1e9 is no signal.

    What is far in one of both only is a decision, and off by half the size of the others.
    """
    zero, every = like(x, 0), lambda scalar: broadcast_in_dim(scalar, shape=x.shape, broadcast_dimensions=())
    size, finite = abs(x), is_finite(x)
    peak = every(select_n(finite, zero, size).max())
    quarter = mul(peak, like(peak, 0.25))
    small = lt(size, mul(peak, like(peak, SMALL[dtypes.int8])))
    two = and_(or_(or_(small, lt(quarter, size)), not_(finite)).all(), lt(like(peak, FAR), peak).all())
    edge = select_n(every(two), like(x, np.inf), quarter)
    far, away = ge(size, edge), ge(abs(q), edge)
    most = every(select_n(far, size, zero).max())
    # Where nothing is far, a result that is has no excuse.
    both, one = and_(far, away), and_(ne(far, away), every(far.any()))
    kept = select_n(far, x, zero)
    near = _power(kept, select_n(both, select_n(one, q, kept + mul(most, like(most, 0.5))), zero))
    distant = _real_power(*(select_n(both, zero, v) for v in (x, q)))
    worse = and_(two, lt(mul(near[2], distant[1]), mul(distant[2], near[1])))
    peak, signal, noise = (select_n(worse, a, b) for a, b in zip(near, distant, strict=True))
    return peak, signal, noise


def _real_power(x: Array, q: Array) -> tuple[Array, Array, Array]:
    """Infinities that are results say nothing about steps."""
    real = is_finite(x)
    return _power(*(select_n(real, like(v, 0), v) for v in (x, q)))


def _power(x: Array, q: Array) -> tuple[Array, Array, Array]:
    peak = abs(x).max()
    peak = select_n(eq(peak, like(peak, 0)), peak, like(peak, 1))
    unit = broadcast_in_dim(peak, shape=x.shape, broadcast_dimensions=())
    x, error = div(x, unit), div(sub(q, x), unit)
    return peak, (x * x).sum(), (error * error).sum()


def summed(found: Sequence[Sequence[tuple[Any, Any, Any]]]) -> NDArray:
    """Signal and noise of each value over batches, float64 [values, 2], of what `powers` gave for each batch."""
    rows = _rows(found)
    return (rows[..., 1:] * rows[..., :1] ** 2).sum(0)


def _rows(found: Sequence[Sequence[tuple[Any, Any, Any]]]) -> NDArray:
    rows = np.asarray([[tuple(map(float, each)) for each in batch] for batch in found], np.float64)
    return rows.reshape(len(found), -1, 3)


def ends(
    plan: QuantPlan, exact: Walker, walk: Walker, values: Sequence[Array]
) -> tuple[list[str], list[tuple[Array, Array]]]:
    """What is measured of the results that two walks have for ``values``, in pairs, and what each pair belongs to.

    Of float results their parts. Of others what decides them: Booleans and integers as they are made of floats. Of the
    indices of an argmax both how many differ, which says little where there are few, and the values they are found in,
    whose noise says little where rows differ in size.
    """
    owners, *made = parts(plan, exact.run(values), walk.run(values))
    pairs = list(zip(*made, strict=True))
    for name, deciding in _deciding(plan).items():
        for v in deciding:
            x, q = exact.env[v], walk.env[v]
            row = plan.masked.get(v)
            if row is not None:
                far = below(x, row)
                x, q = select_n(far, x, like(x, 0)), select_n(far, q, like(q, 0))
            elif v in _places(plan):
                off = cast(ne(x, q), dtypes.float32)
                x = like(off, FLIPS**0.5)
                q = sub(x, off)
            elif v.type.dtype != dtypes.bool_:
                x, q = cast(x, dtypes.float32), cast(q, dtypes.float32)
            owners.append(name)
            pairs.append((x, q))
    return owners, pairs


def _places(plan: QuantPlan) -> set[Var]:
    """Indices of the greatest or least elements."""
    return {v for e in plan.program.equations if e.op in _FINDING for v in e.outputs}


def _deciding(plan: QuantPlan) -> dict[str, list[Var]]:
    """What is compared of results that are no floats, by result: the first integers and Booleans that are made of
    floats on the way there, and the floats in which an extreme one is looked for."""
    makers = {v: e for e in plan.program.equations for v in e.outputs}
    is_float = lambda v: v.type.dtype == dtypes.float32
    found: dict[str, list[Var]] = {}
    for i, a in enumerate(plan.program.outputs):
        rest = [a] if isinstance(a, Var) and not is_float(a) else []
        seen = set(rest)
        for v in rest:
            e = makers.get(v)
            before = [b for b in e.inputs if isinstance(b, Var)] if e is not None and not e.op.nested else []
            floats = [b for b in before if is_float(b)]
            if e is not None and floats:
                # Those next to one another in a list of the greatest change places.
                own = [] if e.op in _ORDERING else [v]
                values = floats if e.op in _FINDING or e.op in _ORDERING else []
                found.setdefault(f"what decides result {i}", []).extend([*own, *values])
            rest += [b for b in before if b not in seen and not is_float(b)]
            seen.update(before)
    return {name: list(dict.fromkeys(each)) for name, each in found.items()}


def parts(plan: QuantPlan, *results: Sequence[Array]) -> tuple[list[str], *tuple[list[Array], ...]]:
    """Float results in the parts that a concatenation joins, and the result that each is a part of.

    Boxes and scores, or the two states of an LSTM, are measured each: on one grid the smaller may be lost, and is
    nothing beside the larger.
    """
    makers = {v: e for e in plan.program.equations for v in e.outputs}
    owners: list[str] = []
    found: list[list[Array]] = [[] for _ in results]
    for i, (a, *xs) in enumerate(zip(plan.program.outputs, *results, strict=True)):
        if xs[0].dtype != dtypes.float32:
            continue
        for each, x in zip(found, xs, strict=True):
            cut = _parts(makers, a, x)
            each += cut if len(cut) <= PARTS else [x]
        owners += [f"result {i}"] * (len(found[0]) - len(owners))
    return owners, *found


def _parts(makers: Mapping[Var, Equation], a: Atom, x: Array) -> list[Array]:
    """``x``, the value of ``a``, in the parts that are joined there."""
    e = makers.get(a) if isinstance(a, Var) else None
    if e is None or not (e.op in _BACK or e.op is concatenate):
        return [x]
    if e.op in _BACK:
        return _parts(makers, e.inputs[0], _BACK[e.op](x, e))
    axis, found = e.params["dimension"], list[Array]()
    ends = np.cumsum([0, *(b.type.shape[axis] for b in e.inputs)]).tolist()
    for b, start, stop in zip(e.inputs, ends, ends[1:], strict=False):
        found += _parts(makers, b, slice_axis(x, axis, start, stop))
    return found


_FINDING: Final[frozenset[Op]] = frozenset((argmax, argmin))
_ORDERING: Final[frozenset[Op]] = frozenset((top_k,))
# What arranges elements anew, undone.
_BACK: Final[dict[Op, Callable[[Array, Equation], Array]]] = {
    reshape: lambda x, e: reshape(x, shape=e.inputs[0].type.shape),
    transpose: lambda x, e: transpose(x, permutation=tuple(np.argsort(e.params["permutation"]).tolist())),
}


def large_and_small(owners: Sequence[str], found: Sequence[Sequence[tuple[Any, Any, Any]]]) -> list[NDArray]:
    """Signal and noise, float64 [n, 2], of each result: of its large parts together, and of each that is far smaller.

    Args:
        owners: from `ends`.
        found: what `powers` gave of the parts, for each batch.
    """
    rows = _rows(found)
    pairs, peaks = (rows[..., 1:] * rows[..., :1] ** 2).sum(0), rows[..., 0].max(0)
    made: list[NDArray] = []
    for i in dict.fromkeys(owners):
        own = np.asarray(owners) == i
        # A part of nothing but zeros has no size.
        small = own & (peaks * SMALLER < peaks[own & (pairs[:, 0] > 0)].max(initial=0.0)) & (pairs[:, 0] > 0)
        made.append(np.stack([pairs[own & ~small].sum(0), *pairs[small]]))
    return made


def warn_if_poor(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    corrections: Corrections,
    batches: Sequence[tuple[Any, ...]],
    worst: float | None = None,
) -> None:
    """A warning with the layers that lose most, if a result is poor; ``worst`` is its dB, if that is known."""
    if worst is not None and worst >= POOR:
        return
    results = measured(fun, policy, params, ranges, corrections, batches, layers=False)
    found = results.results
    if not found or min(found) >= POOR:
        return
    layers = measured(fun, policy, params, ranges, corrections, batches[:1]).layers
    losing = sorted(layers, key=lambda layer: layer.after - min(layer.before, 40.0))[:NAMED]
    told = ", ".join(f"{n.name} ({n.after:.0f} dB{f', {n.source}' if n.source else ''})" for n in losing)
    place = results.places[int(np.argmin(found))] if len(found) > 1 else "the result"
    warn(
        f"quantize: {place} has a signal-to-noise ratio of {min(found):.1f} dB on the calibration data; most is lost "
        f'in {told or "inner programs"}. Try quantize(f, "auto", ...), "int16x8", another observer, or a policy that '
        "leaves these layers in float; nx.quant.compare shows all layers",
    )


def warn(message: str) -> None:
    """A warning at the user's line, however deep in nxjax it is known."""
    level, frame = 2, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def not_finite(args: Any) -> str:
    """Which leaves of a batch are not finite, as a part of a sentence."""
    pairs = zip(tree.path_names(args, "args"), tree.leaves(args), strict=True)
    floats = [(name, np.asarray(x)) for name, x in pairs if getattr(x, "dtype", None) in dtypes.INEXACT]
    bad = [name for name, x in floats if not np.isfinite(x).all()]
    return f", in which {', '.join(bad)} {'are' if len(bad) > 1 else 'is'} not" if bad else ""


def operand_error(name: str, layer: str, number: int, args: Any, source: Source | None) -> ParameterError:
    """The operand or the weights of ``layer`` are not finite in batch ``number``, whose arguments are ``args``.

    Args:
        name: of the function that was called.
    """
    return ParameterError(
        f"{name}: the operand of {layer} is not finite",
        got=f"batch {number}{not_finite(args)}",
        expected="finite values in calibration",
        fix="look for infinities or NaN in the data and the weights",
        source=source,
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
    warn(
        f"quantize: {what} in calibration: {told}{more}. The grids of these values hold nothing else. Calibrate with "
        "real samples, scale the data, or leave these ops in float",
    )
