"""Calibration: running a function over data and recording the range of every value that will be on a grid."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, final

import numpy as np

from nxjax.display.progress import bars
from nxjax.errors import NxError, ParameterError, Shown, Source, described
from nxjax.quant import masks, results, weight_rounding
from nxjax.quant.effects import GridChoice, GridEffects
from nxjax.quant.observe import Gaps, Histograms, Ranges, Statistics
from nxjax.quant.observers import MSE, NDArray, Observer, Range, as_observer
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Policy, Scheme, as_policy, without
from nxjax.trace import dtypes, tree
from nxjax.trace.wrapping import wraps
from nxjax.transforms.jit import jit

# Data of so many bytes are kept for a second pass, where an observer can do with a part of them.
KEPT: Final = 1 << 28
# Results are measured on so many batches.
MEASURED: Final = 8
# Other ranges and corrections of biases have to make the layers better by more than so many dB.
CLEARLY: Final = 0.2
# Results of so many dB are good enough: nothing further is tried.
ENOUGH: Final = 30.0


def calibrate(
    fun: Callable[..., Any],
    policy: str | Scheme | Policy | Sequence[Any] | Mapping[str, Any] = "int8",
    *,
    params: Sequence[int] | int | None = None,
) -> Callable[..., tuple[Any, dict[str, tuple[Any, Any]]]]:
    """``fun`` with a second result: the ranges of the values that ``policy`` quantizes. Pure: you can jit and scan it.

    Args:
        fun: pure function of pytrees.
        policy: as in `quantize`.
        params: positions of the arguments with weights; by default those that are trees.

    Returns:
        A function that returns ``(result, {site: (smallest, largest)})``, scalars float32.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> f = lambda w, x: x @ w["w"]
    >>> y, ranges = calibrate(f)({"w": np.ones((2, 2))}, np.array([[1.0, -3.0]]))
    >>> {k: (float(a), float(b)) for k, (a, b) in ranges.items()}
    {'in_1': (-3.0, 1.0), 'dot_general_0': (-2.0, -2.0)}
    """
    answered = as_policy(policy)

    @wraps(fun)
    def observed(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        call = PlannedCall(fun, args, kwargs, params)
        return call.observed(call.plan(answered, "calibrate"), Ranges())

    return observed


@final
class Calibrated(Shown):
    """Ranges by site, corrections by layer, the number of batches, what each site's value is computed from
    (`QuantPlan.origins`), the arguments of some batches to measure results with, the policy, which leaves in float what
    no batch computes, ranges of all that was seen, and the dB of the worst result, if it was measured."""

    def __init__(
        self,
        ranges: dict[str, Range],
        corrections: dict[str, NDArray],
        batches: int,
        origins: dict[str, int],
        measured: list[tuple[Any, ...]],
        policy: Policy,
        whole: dict[str, Range],
        worst: float | None = None,
    ) -> None:
        self.policy = policy
        self.ranges = ranges
        self.corrections = corrections
        self.batches = batches
        self.origins = origins
        self.measured = measured
        self.whole = whole
        self.worst = worst


def run(
    fun: Callable[..., Any],
    policy: Policy,
    data: Iterable[Any],
    observer: Any,
    params: Sequence[int] | int | None,
    progress: bool | None,
    correct: bool = False,
    feedback: bool = False,
    tells: bool = True,
    before: Mapping[str, list[Range]] | None = None,
) -> Calibrated:
    """The ranges that ``observer`` finds over ``data``: one compiled pass, and another for histograms.

    With ``feedback``, corrections of weights of 4 bits too. With ``correct``, those of biases, and with the observer
    "by-data" the ranges with which the layers are best; each more pass is made only while the worst result has less
    than `ENOUGH` dB. Without ``tells`` nothing is said of values and branches that the data leave out: it was, before.
    """
    chosen = as_observer(observer)
    batches: dict[str, list[Range]] = {}
    kept: list[Any] = []
    n = 0
    sources: dict[str, Source | None] = {}
    origins: dict[str, int] = {}
    elements: dict[str, int] = {}
    coarse: set[str] = set()
    constant: set[str] = set()
    recorded = _compiled(fun, policy, params, Ranges(), sources, origins, elements, coarse, constant)
    room = KEPT
    pending: list[tuple[Any, Any]] = []
    # Some batches with values so far off that they may be masks.
    striking: list[tuple[Any, ...]] = []
    for batch in shown(iterable(data), "calibrating", progress):
        n += 1
        wanted = (chosen.histogram and (room > 0 or not chosen.fewest)) or (feedback and coarse and room > 0)
        if len(kept) < MEASURED or wanted:
            kept.append(batch)
            room -= sum(getattr(x, "nbytes", 0) for x in tree.leaves(batch))
        args = _fitting(fun, batch)
        pending.append((_first_use(recorded, args, batch) if n == 1 else recorded(*args), args))
        if len(pending) > 1:
            # One behind, so that reading a result does not wait for it.
            _collect(*pending[0], batches, n - 1, sources, striking)
            pending.pop(0)
    for stats, args in pending:
        _collect(stats, args, batches, n, sources, striking)
    if not n:
        raise ParameterError(
            "quantize: calibrate gave no batches", expected="an iterable of argument tuples with at least one"
        )
    policy, batches = _taken(policy, batches, sources, tells)
    batches = {site: [*(before or {}).get(site, ()), *seen] for site, seen in batches.items()}
    whole = {site: _joined(site, seen, chosen) for site, seen in batches.items()}
    far = {site for site, span in whole.items() if _is_far(span)}
    masking = _masking(fun, policy, [*striking, *map(arguments, kept)], params, far, whole) if far else ()
    if masking:
        again, before = data, dict[str, list[Range]]()
        if isinstance(data, Iterator):
            # What is gone is known by its ranges.
            again, before = kept, {site: seen for site, seen in batches.items() if site not in far}
        return run(fun, without(policy, masking), again, observer, params, progress, correct, feedback, tells, before)
    # What no data reach, such as a bias of zeros, is exact on its grid.
    if tells:
        results.check_ranges({site: span for site, span in whole.items() if site not in constant or any(span)}, sources)
    cut = {site for site in whole if elements[site] * len(kept) >= chosen.fewest} if chosen.histogram else set[str]()

    def candidates() -> Iterator[dict[str, Range]]:
        # What nobody named may be whole: nothing is cut that does not have to be, for other data are cut as well.
        if chosen.fewest or not cut:
            yield whole
        if cut:
            counts = _histograms(fun, policy, kept, params, progress, whole, cut)
            for each in (chosen, MSE()) if chosen.fewest else (chosen,):
                yield _cut(whole, counts, cut, each)

    # From all of the data alike, which may be in some order.
    measured = [_fitting(fun, batch) for batch in kept[:: -(-len(kept) // MEASURED)]]
    known = dict[str, NDArray]()
    if feedback and coarse:
        known = weight_rounding.found(fun, policy, params, [_fitting(fun, batch) for batch in kept])
    if whole and (correct or (chosen.fewest and cut)):
        fed = [_fitting(fun, batch) for batch in kept] if feedback else []
        spans, corrections, worst = _best(fun, policy, params, candidates(), measured, correct, known, fed)
    else:
        spans, corrections, worst = next(candidates()), known, None
    return Calibrated(spans, corrections, n, origins, measured, policy, whole, worst)


def _best(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    candidates: Iterable[dict[str, Range]],
    measured: Sequence[tuple[Any, ...]],
    correct: bool,
    known: dict[str, NDArray],
    fed: Sequence[tuple[Any, ...]],
) -> tuple[dict[str, Range], dict[str, NDArray], float | None]:
    """The ranges and corrections, beside those ``known``, with which the layers are best, of those that are as good the
    first, and the dB of the worst result with them."""
    rest = iter(candidates)
    first = next(rest)
    worst = lambda ranges, shifts: results.measured(fun, policy, params, ranges, shifts, measured, layers=False).worst
    reached = worst(first, known)
    if reached >= ENOUGH:
        return first, known, reached
    if fed:
        rounded = known | weight_rounding.found(fun, policy, params, fed, dtypes.int8)
        # What helps each layer on half of the data helps the results less where there are few data.
        if worst(first, rounded) > reached + CLEARLY:
            known = rounded
    effects = GridEffects(fun, policy, params, first, measured, known)

    def trials() -> Iterator[tuple[GridChoice, dict[str, Range], dict[str, NDArray]]]:
        tried: list[dict[str, Range]] = []
        for ranges in chain((first,), rest):
            if ranges in tried:
                continue
            tried.append(ranges)
            choice = effects.choice(ranges)
            yield choice, ranges, known
            shifts = effects.corrections(choice) if correct else {}
            if shifts:
                yield choice, ranges, known | shifts

    best, most = (first, known), -np.inf
    for choice, ranges, shifts in trials():
        found = effects.quality(choice, shifts)
        if found.mean > most + CLEARLY:
            best, most = (ranges, shifts), found.mean
            if found.worst >= ENOUGH:
                break
    return *best, worst(*best)


def check_origins(plan: QuantPlan, known: Mapping[str, int]) -> None:
    """Raise `ParameterError` where a value of the same name was computed from others in calibration."""
    found = plan.origins()
    wrong = next((site for site, bits in found.items() if known.get(site, bits) != bits), None)
    if wrong is None:
        return
    raise ParameterError(
        "quantize: the function is another program than it was in calibration",
        got=f"{wrong} is computed from {_named(found[wrong])}",
        expected=f"from {_named(known[wrong])}, as its range was found",
        fix="calibrate with arguments of these sizes and with these settings; einsum orders the products of three and "
        "more operands by their sizes, unless optimize= says how",
    )


def _named(bits: int) -> str:
    found = [str(i) for i in range(bits.bit_length()) if bits >> i & 1]
    return f"inputs {', '.join(found)}" if found else "no input"


def arguments(batch: Any) -> tuple[Any, ...]:
    """A batch as positional arguments: a tuple is all of them, anything else the only one."""
    return batch if isinstance(batch, tuple) else (batch,)


def _compiled(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    recorder: Statistics,
    sources: dict[str, Source | None],
    origins: dict[str, int],
    elements: dict[str, int],
    coarse: set[str],
    constant: set[str],
) -> Callable[..., Any]:
    """What records; tracing it also puts the lines that make the values into ``sources``, what these are computed from
    into ``origins``, their numbers of elements into ``elements``, products with weights of 4 bits into ``coarse``, and
    the values that are computed from weights and constants alone into ``constant``.
    """

    def stats(*args: Any) -> Any:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize")
        sources.update(plan.sources())
        check_origins(plan, origins)
        read = plan.origins()
        origins.update(read)
        elements.update(plan.elements())
        coarse.update(weight_rounding.products(plan))
        data = sum(1 << i for i, weight in enumerate(call.weights) if not weight)
        constant.update(site for site in plan.sites.values() if not read[site] & data)
        return call.observed(plan, recorder)[1]

    return jit(stats)


def _first_use(recorded: Callable[..., Any], args: tuple[Any, ...], batch: Any) -> Any:
    """The first call; where a list is what the function does not take, the error says that it was one argument."""
    try:
        return recorded(*args)
    except (TypeError, AttributeError) as error:
        if isinstance(error, NxError) or not isinstance(batch, list):
            raise
        raise ParameterError(
            "quantize: the function does not take a batch of calibrate",
            got=f"a list as its only argument: {error}",
            expected="an iterable of argument tuples; a batch that is no tuple is the only argument",
            fix="calibrate=[(x,)], a list of tuples; tuple(batch) if a loader gives lists",
        ) from error


def given(fun: Callable[..., Any], data: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """The argument tuples of ``data`` for ``fun``, one by one; refused where it has none, or others.

    Args:
        name: of the function that ``data`` was given to.
    """
    if not callable(fun):
        raise ParameterError(f"{name}: needs a function", got=described(fun))
    empty = True
    for batch in iterable(data, name, "data"):
        empty = False
        yield _fitting(fun, batch, name, "data")
    if empty:
        raise ParameterError(f"{name}: no data", expected="an iterable of argument tuples with at least one")


def iterable(data: Any, name: str = "quantize", argument: str = "calibrate") -> Iterable[Any]:
    """``data``, refused if it cannot be iterated, or is a tree or a text instead of a list of such."""
    if not isinstance(data, Iterable) or isinstance(data, (Mapping, str, bytes)):
        raise ParameterError(
            f"{name}: {argument}",
            got=type(data).__name__,
            expected="an iterable of argument tuples",
            fix=f"{argument}=[(params, x)]",
        )
    return data  # pyright: ignore[reportUnknownVariableType]


def _fitting(
    fun: Callable[..., Any], batch: Any, name: str = "quantize", argument: str = "calibrate"
) -> tuple[Any, ...]:
    """`arguments`, refused where the function does not take them."""
    args = arguments(batch)
    try:
        inspect.signature(fun).bind(*args)
    except TypeError as error:
        raise ParameterError(
            f"{name}: a batch of {argument} does not fit {getattr(fun, '__name__', 'the function')}",
            got=f"a {type(batch).__name__}: {error}",
            expected="an iterable of argument tuples; a batch that is no tuple is the only argument",
            fix=f"{argument}=[(params, x)], a list of tuples; tuple(batch) if a loader gives lists",
        ) from None
    except ValueError:
        # Without a signature: the call will tell.
        pass
    return args


def _collect(
    stats: Any,
    args: Any,
    batches: dict[str, list[Range]],
    number: int,
    sources: Mapping[str, Source | None],
    striking: list[tuple[Any, ...]],
) -> None:
    # In program order, so that an error is about the first value.
    for site in dict.fromkeys((*(s for s in sources if s in stats), *stats)):
        low, high = stats[site]
        seen = batches.setdefault(site, [])
        span = float(np.asarray(low)), float(np.asarray(high))
        if span == (np.inf, -np.inf):
            # No value at all: a branch not taken, an empty batch.
            continue
        if not np.isfinite(span).all():
            raise ParameterError(
                f"quantize: the range of {site} is not finite",
                got=f"{span} in batch {number}{results.not_finite(args)}",
                expected="finite values in calibration",
                fix="look for infinities or NaN in the data and the weights, or for a mask of -inf (use a large one)",
                source=sources.get(site),
            )
        if len(striking) < MEASURED and _is_far(span) and not any(map(_is_far, seen)):
            striking.append(args)
        seen.append(span)


def _taken(
    policy: Policy, batches: dict[str, list[Range]], sources: Mapping[str, Source | None], tells: bool
) -> tuple[Policy, dict[str, list[Range]]]:
    """The policy without the branches and loop bodies that no batch enters, and what is known of the other sites."""
    unseen = [site for site, seen in batches.items() if not seen]
    if len(unseen) == len(batches):
        return policy, batches
    left: dict[str, Source | None] = {}
    for site in unseen:
        parts = site.split("/")
        for n in range(1, len(parts)):
            part = "/".join(parts[:n])
            if not any(batches[other] for other in batches if other.startswith(f"{part}/")):
                left.setdefault(part, sources.get(site))
                break
    if not left:
        return policy, batches
    if tells:
        told = ", ".join(f"{part} ({source})" if source else part for part, source in left.items())
        results.warn(
            f"quantize: no batch of calibration takes {told}: such a branch or body of a loop stays in float. Add "
            "batches that do, to have it in integers",
        )
    inside = lambda name: any(name.startswith(f"{part}/") for part in left)
    return without(policy, left), {site: seen for site, seen in batches.items() if not inside(site)}


def _masking(
    fun: Callable[..., Any],
    policy: Policy,
    data: Sequence[Any],
    params: Sequence[int] | int | None,
    far: Collection[str],
    spans: dict[str, Range],
) -> set[str]:
    """The layers that compute with masks as values: far numbers, and others too small for a grid that holds both."""
    call = PlannedCall(fun, data[0], {}, params)
    plan = call.plan(policy, "quantize", True)
    gaps = _compiled(fun, policy, params, Gaps(spans, masks.shares(plan, far)), {}, {}, {}, set(), set())
    seen = [gaps(*args) for args in data]
    beside, alone = set[str](), set[str]()
    for site in far:
        zero, small, between, low, high = np.asarray([batch[site] for batch in seen]).max(0) > 0
        # Masks lie on one side of all others.
        if not between and low != high:
            (beside if small else alone if zero else set[str]()).add(site)
    found = masks.layers_without_room(plan, beside, alone)
    # Where nothing else is quantized, the user's policy has it so.
    return found if found and call.plan(without(policy, found), "quantize", True).holds_integers() else set()


def _is_far(span: Range) -> bool:
    """Whether a range can hold masks: one end so far off that the other is nothing beside it."""
    near, most = sorted((max(-span[0], 0.0), max(span[1], 0.0)))
    return most >= -masks.LOW and near <= max(masks.SMALL.values()) * most


def _joined(site: str, seen: list[Range], observer: Observer) -> Range:
    if not seen:
        raise ParameterError(
            f"quantize: calibration never computed {site}",
            got="a branch or a loop body that no batch enters, or batches without elements",
            expected="data that take every branch",
            fix="add batches that do, or let the policy answer None for its scope",
        )
    return _checked(site, observer, observer.joined(seen))


def _checked(site: str, observer: Observer, span: Range) -> Range:
    """A range that an observer gave, which may be the user's own."""
    low, high = map(float, span)
    if not (np.isfinite((low, high)).all() and low <= high):
        raise ParameterError(
            f"quantize: {type(observer).__name__} gave no range for {site}",
            got=(low, high),
            expected="two finite numbers, the least first",
        )
    return low, high


def _histograms(
    fun: Callable[..., Any],
    policy: Policy,
    data: Sequence[Any],
    params: Sequence[int] | int | None,
    progress: bool | None,
    spans: dict[str, Range],
    cut: set[str],
) -> dict[str, NDArray]:
    counted = _compiled(fun, policy, params, Histograms(spans, cut), {}, {}, {}, set(), set())
    totals: dict[str, NDArray] = {}
    for batch in shown(data, "histograms", progress):
        for site, (counts,) in counted(*arguments(batch)).items():
            # Summed in float64: a float32 count stops growing at 2^24.
            totals[site] = totals.get(site, 0) + np.asarray(counts, np.float64)
    return totals


def _cut(spans: dict[str, Range], totals: Mapping[str, NDArray], cut: set[str], observer: Observer) -> dict[str, Range]:
    """The ranges that ``observer`` makes of those of ``cut``."""
    return {
        site: _checked(site, observer, observer.clipped(span, totals[site])) if site in cut else span
        for site, span in spans.items()
    }


def shown(data: Iterable[Any], what: str, progress: bool | None) -> Iterable[Any]:
    """``data`` with a progress bar: on request, or by default in a terminal or notebook."""
    make = bars(progress, "quantize")
    return data if make is None else make(data, desc=what, unit="batch")
