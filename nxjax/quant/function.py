"""`quantize`: a function computed on integer grids, as a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.fake_quantize import weight_integers
from nxjax.quant import automatic, calibration, results, steps
from nxjax.quant.automatic import Chosen
from nxjax.quant.calibration import Calibrated
from nxjax.quant.observers import Range
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall, is_tree
from nxjax.quant.qarray import QArray, leaves_of
from nxjax.quant.scheme import Policy, Scheme, as_policy
from nxjax.quant.storage import Known, storages, weight_storage
from nxjax.quant.walk import STEPS, Corrections
from nxjax.quant.widths import WidthTrials
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import entry
from nxjax.trace.program import Var


@final
class Quantized:
    """A quantized function: call it, or pass it to `jit`, `grad`, `vmap`, `compile`.

    Attributes:
        fun: the float function.
        policy: decides how each equation computes.
        ranges: (least, greatest) of each value on a grid, by site.
        params: positions of the arguments with weights; None for all arguments that are trees.
        state: position of the argument that is a state, or None.
        corrections: what calibration found for each product: by layer, what is added to the bias, per channel; by
            "layer:shares" the shares of the scales that weights of 4 bits have, and by "layer:steps" how many steps
            each is moved from the nearest, as int8. Both are in the product's layout.
        trials: what was measured where layers may leave 8 bits; int8 itself first.

    >>> qf = quantize(lambda p, x: x @ p["w"], "int8-weights")
    >>> p, x = {"w": jnp.array([[1.0, -1.0], [0.5, 2.0]])}, jnp.array([[1.0, 2.0]])
    >>> print(qf(p, x).round(1))
    [[2. 3.]]
    >>> qf.quantize_params(p, x)
    {'w': QArray(i8[2,2], 1x2 scales)}
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        policy: Any,
        ranges: Mapping[str, Range],
        params: Sequence[int] | int | None,
        origins: Mapping[str, int] | None = None,
        state: int | None = None,
        corrections: Corrections | None = None,
        trials: WidthTrials | None = None,
    ) -> None:
        self.fun = fun
        self.policy = as_policy(policy)
        self.ranges = {site: _span(site, span) for site, span in ranges.items()}
        self.params = (params,) if isinstance(params, int) else None if params is None else tuple(params)
        self.state = state
        self.corrections = {
            name: np.asarray(x, np.int8 if name.endswith(STEPS) else np.float32)
            for name, x in (corrections or {}).items()
        }
        self.trials = trials or WidthTrials()
        functools.update_wrapper(self, fun, updated=())
        # What the values of calibration were computed from; nothing is known of ranges that a user gives.
        self._origins = dict(origins or {})
        # Modules have no name of their own.
        self.__name__ = getattr(fun, "__name__", type(fun).__name__.lower())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.traced(*args, **kwargs)
        return call.quantized(self.plan(call), self.ranges, self.corrections)

    def traced(self, *args: Any, **kwargs: Any) -> PlannedCall:
        """One call of the float function, traced."""
        return PlannedCall(self.fun, args, kwargs, self.params)

    def plan(self, call: PlannedCall) -> QuantPlan:
        """The plan of ``call``; an error if it needs ranges that calibration did not see."""
        # Where something was quantized in calibration, nothing may be left in a loop of no steps.
        plan = call.plan(self.policy, "quantize", bool(self.ranges))
        missing = [s for s in plan.all_sites() if s not in self.ranges]
        if missing and not self.ranges:
            raise ParameterError(
                "quantize: the policy computes on integers, and no ranges are known",
                got="no calibration data",
                expected="calibrate=, an iterable of argument tuples",
                fix='quantize(f, policy, calibrate=batches); "dynamic-int8" and "int8-weights" need no ranges',
            )
        if missing:
            raise ParameterError(
                "quantize: the function is another program than it was in calibration",
                got=f"values without a range: {', '.join(missing[:5])}",
                expected=f"the {len(self.ranges)} values of calibration",
                fix="calibrate with arguments of these shapes and dtypes too, that take the same path through the "
                "function: of other sizes, as in a Python loop over rows, it can be another program. Ranges of another "
                "quantized function go with its policy: quantize(f, q.policy, ranges=q.ranges)",
            )
        calibration.check_origins(plan, self._origins)
        return plan

    def quantize_params(self, *args: Any, **kwargs: Any) -> Any:
        """The arguments with every weight as a `QArray`; biases and weights with other uses stay float.

        Args:
            *args: example arguments, as in a call.

        Returns:
            The argument with weights, as in ``qparams = qf.quantize_params(params, x)``; a tuple if there are several.

        Raises:
            ParameterError: no argument has a weight that is stored as integers.
        """
        call = self.traced(*args, **kwargs)
        plan = self.plan(call)
        given = dict(zip(plan.program.inputs, call.values, strict=True))
        beside = call.beside(plan, self.ranges, self.corrections)
        known = Known(plan, given.__getitem__, beside, self.corrections)
        leaves = [_stored(known, v, x) if w else x for v, x, w in _parameters(call, plan)]
        new, _ = tree.unflatten(call.in_tree, leaves)
        holding = [a for a in new if any(isinstance(x, QArray) for x in leaves_of((a,), {})[0])]
        if not holding:
            raise _none_stored(known, call, plan)
        return holding[0] if len(holding) == 1 else tuple(holding)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        wide = getattr(self.policy, "exceptions", {}) if self.trials else {}
        more = f", {len(wide)} ops beyond 8 bits: see .trials" if wide else ""
        return f"quantized({self.__name__}, {len(self.ranges)} ranges{more})"


def _span(site: str, span: Any) -> Range:
    """A range as two numbers, checked."""
    try:
        low, high = (float(np.asarray(v)) for v in span)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low <= high):
        raise ParameterError(f"quantize: the range of {site}", got=span, expected="(least, greatest), both finite")
    return low, high


def _parameters(call: PlannedCall, plan: QuantPlan) -> list[tuple[Var, Any, bool]]:
    """Variable, leaf, and whether it holds weights, of each leaf of the arguments."""
    return list(zip(plan.program.inputs, call.leaves, call.weights, strict=True))


def _stored(known: Known, v: Var, leaf: Any) -> Any:
    """A parameter as the products that read it store it; itself if anything else reads it, or they differ."""
    if leaf is None or (not isinstance(leaf, QArray) and as_value(leaf, "quantize").dtype != dtypes.float32):
        return leaf
    w = np.asarray(leaf, np.float32)
    found = weight_storage(known, v, w)
    if found is None or (isinstance(leaf, QArray) and leaf.least is None and leaf.dtype == found.dtype):
        return leaf
    stored = weight_integers(found.weights, found.scale, found.dtype)
    return QArray(as_value(stored, "QArray"), as_value(found.scale, "QArray"))


def _none_stored(known: Known, call: PlannedCall, plan: QuantPlan) -> ParameterError:
    """Why no weight is stored: products read one along different axes, or there is none."""
    args, _ = tree.unflatten(call.in_tree, call.values)
    for name, (v, _, weight) in zip(tree.path_names(args, "args"), _parameters(call, plan), strict=True):
        read = storages(known, v, np.asarray(known.given(v), np.float32)) if weight else ()
        if read:
            scales = " and ".join(dict.fromkeys("x".join(map(str, s.scale.shape)) for s in read))
            return ParameterError(
                "quantize_params: products that share a weight have different scales for it",
                got=f"{name}, {v.type}, with {scales} scales",
                expected="one set of scales for all products that read a weight",
                fix="one scale for a whole weight, nx.quant.Scheme(per_channel=False, dense_per_channel=False), or a "
                "copy of the weight for each product; quantized calls work with float parameters as they are",
            )
    return ParameterError(
        "quantize_params: no weight in the arguments is stored as integers",
        got=f"{sum(call.weights)} weights, and {len(plan.program.constvars)} that the function closes over",
        expected="weights in a parameter tree among the arguments, used by quantized products only",
        fix="pass the parameters as an argument instead of closing over them; see policy= and params=",
    )


@entry
def quantize(
    fun: Callable[..., Any],
    policy: str | Scheme | Policy | Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    calibrate: Iterable[Any] | None = None,
    observer: str | Callable[..., Any] = "by-data",
    params: Sequence[int] | int | None = None,
    ranges: Mapping[str, Range] | None = None,
    corrections: Mapping[str, Any] | None = None,
    bias_correction: bool = True,
    error_feedback: bool = True,
    metric: Callable[[Callable[..., Any]], float] | None = None,
    budget: float | None = None,
    state: int | None = None,
    progress: bool | None = None,
) -> Quantized:
    """``fun`` computed on integer grids: a pure function of the same arguments, float in and float out.

    Every result of a quantized op is on a grid. The arithmetic is exactly that of TFLite's 8-bit specification.
    Derivatives are straight-through, so ``grad`` of it is quantization-aware training. Its forward pass computes the
    integer graph that `compile` deploys, bit for bit.

    Args:
        fun: pure function of pytrees; float32 inside.
        policy: None, the default: int8, and while a result has less than 20 dB on the calibration data, what costs it
            most in 16 bits or float, see ``trials``; "int8" (static, 8-bit weights and activations), "int16x8",
            "dynamic-int8", "int8-weights", "int4-weights", "fp8"; "auto" (as None, judged by data that is kept from
            calibration, or by ``metric``); a `Scheme`; or ``policy(op, scope, types)`` giving one of these, or None
            for float.
        calibrate: an iterable of argument tuples (any other batch is the only argument). Policies with static ranges
            need it.
        observer: "by-data", "minmax", "moving-average", "percentile", "entropy", "mse", or an `Observer`.
        params: positions of the arguments with weights; by default those that are trees (dicts, lists, modules).
        ranges: ranges by site from an earlier calibration, instead of ``calibrate``.
        corrections: corrections by layer from an earlier calibration, beside ``ranges``.
        bias_correction: measure how far each integer product is off on average, and take it from its bias, where that
            makes the results on the calibration data better.
        error_feedback: with ``calibrate``, store weights of 4 bits so that the products on this data are best, instead
            of rounding them to the nearest; those of 8 bits, where that makes poor results better: see
            docs/quantization.md.
        metric: for "auto": a figure of a function on data of yours, the greater, the better.
        budget: for "auto": how much of ``metric`` may be lost, 0.005 by default; without a metric the signal-to-noise
            ratio of the results on the calibration data to reach in dB, 20 by default.
        state: position of the argument that ``fun`` takes as a state and returns first, as a training step does:
            ``state, loss = fun(state, x, y)``. Every batch but the first is computed with the state that the one before
            it gave; what comes out is on the grid of what goes in; see docs/on_device_training.md.
        progress: show a progress bar; by default in a terminal or notebook.

    Warns:
        UserWarning: a result has less than 10 dB on the calibration data, a value was nothing but zeros in it,
            nothing that was measured keeps to ``budget``, or a loop that stays in 8 bits keeps results below 20 dB.

    Raises:
        ParameterError: nothing to quantize, no ranges, or another program than the calibrated one.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> f = lambda p, x: nx.nn.relu(x @ p["w"] + p["b"])
    >>> p = {"w": np.array([[1.0, -1.0], [0.5, 2.0]]), "b": np.array([0.1, 0.2])}
    >>> x = np.array([[1.0, 2.0]])
    >>> qf = quantize(f, "int8", calibrate=[(p, x)])
    >>> bool(abs(qf(p, x) - f(p, x)).max() < 0.05)
    True
    """
    if not callable(fun):
        raise ParameterError("quantize: needs a function", got=type(fun).__name__)
    if isinstance(fun, Quantized):
        raise ParameterError(
            "quantize: the function is quantized already", got=fun, fix="quantize the float function: f.fun"
        )
    if state is not None:
        if policy == "auto" or metric is not None or budget is not None:
            raise ParameterError(
                'quantize: the policy "auto" does not know steps of a state', got="state=", fix="name a policy"
            )
        return _of_step(
            fun, as_policy(policy or "int8"), calibrate, observer, params, ranges, steps.place_of(state), progress
        )
    if isinstance(policy, str) and policy == "auto":
        data = list(() if calibrate is None else calibration.iterable(calibrate))
        make = lambda found: _chosen(fun, found, params, None)
        choice = automatic.policy_for(
            fun, data, make, metric=metric, budget=budget, observer=observer, params=params, progress=progress,
            correct=bias_correction,
        )  # fmt: skip
        return make(choice)
    if metric is not None or budget is not None:
        raise ParameterError("quantize: metric and budget", got=policy, expected='the policy "auto"')
    answered = as_policy("int8" if policy is None else policy)
    if calibrate is None:
        return Quantized(fun, answered, dict(ranges or {}), params, corrections=corrections)
    found = calibration.run(fun, answered, calibrate, observer, params, progress, bias_correction, error_feedback)
    if found.ranges and policy is None:
        return _chosen(fun, automatic.widened(fun, found, params, progress), params, found)
    if found.ranges:
        results.warn_if_poor(
            fun, found.policy, params, found.ranges, found.corrections, found.measured[:1], found.worst
        )
    return Quantized(fun, found.policy, found.ranges, params, found.origins, corrections=found.corrections)


def _chosen(
    fun: Callable[..., Any], choice: Chosen, params: Sequence[int] | int | None, found: Calibrated | None
) -> Quantized:
    """What a search chose for ``fun``; ``found`` by its calibration, if it is known."""
    policy = choice.policy if choice.policy.exceptions else choice.policy.base
    # What float layers read may differ from what integer ones read: a power in float reads its exponent.
    origins = found and PlannedCall(fun, found.measured[0], {}, params).plan(policy, "quantize").origins()
    return Quantized(fun, policy, choice.ranges, params, origins, corrections=choice.corrections, trials=choice.trials)


def _of_step(
    fun: Callable[..., Any],
    policy: Policy,
    calibrate: Iterable[Any] | None,
    observer: Any,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range] | None,
    place: int,
    progress: bool | None,
) -> Quantized:
    """`quantize` of a step of a state."""
    step = steps.summed_by_products(fun, policy)
    if calibrate is None:
        return Quantized(step, policy, dict(ranges or {}), () if params is None else params, state=place)
    carried = steps.Carried(fun, calibration.iterable(calibrate), place)
    place %= len(carried.first)
    if params is None:
        params = [i for i, a in enumerate(carried.first) if i != place and is_tree(a)]
    found = calibration.run(step, policy, carried, observer, params, progress)
    policy = found.policy
    call = PlannedCall(step, carried.first, {}, params)
    spans = steps.tied(call, policy, found.ranges, carried, place) if found.ranges else found.ranges
    if spans:
        results.warn_if_poor(step, policy, params, spans, {}, found.measured[:1])
    return Quantized(step, policy, spans, params, found.origins, place)
