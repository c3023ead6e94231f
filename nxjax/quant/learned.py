"""Training with learned ranges: every grid's step is a parameter, and ends up as the range of a quantized function.

Trains in float on values that lie on the grids; the integers are those of `quantize`, with what was learned.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError, described
from nxjax.ops.arithmetic import add, max, min, mul, sub
from nxjax.ops.base import like
from nxjax.ops.compare import eq
from nxjax.ops.fake_quantize import blocks
from nxjax.ops.identity import stop_gradient
from nxjax.ops.quant_elementwise import finite_slope
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_traced import broadcast_blocks, symmetric_limit
from nxjax.ops.rounding import TO_NEAREST_EVEN, round
from nxjax.ops.select import select_n
from nxjax.quant import calibration
from nxjax.quant.error_feedback import searched
from nxjax.quant.function import Quantized
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.pointwise import TableFunction
from nxjax.quant.products import Weighted
from nxjax.quant.scheme import Policy, as_policy
from nxjax.quant.walk import SHARES, NDArray, Range, Walker, covering
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array, get_op
from nxjax.trace.program import Var

# Steps by site of an activation and by layer, of its weights.
Steps = Mapping[str, Mapping[str, Any]]
# What weights with steps are stored as.
INTEGERS: Final = (dtypes.int4, dtypes.int8)
# Steps stay this large at least: a value over the square of one is finite.
TINY: Final = 2.0**-40


@final
class Learned:
    """A function whose values lie on grids with steps that are parameters; see `lsq`.

    Attributes:
        fun: the float function.
        policy: decides how each equation computes.
        ranges: (least, greatest) of each value on a grid, as calibration found them.
        initial: the steps of these ranges, to train from: ``{"activations": {site: step}, "weights": {layer: steps}}``,
            float32.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        policy: Policy,
        params: Sequence[int] | int | None,
        ranges: Mapping[str, Range],
        first: tuple[Any, ...],
    ) -> None:
        self.fun, self.policy, self.params = fun, policy, params
        self.ranges = dict(ranges)
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = getattr(fun, "__name__", type(fun).__name__.lower())
        call = PlannedCall(fun, first, {}, params)
        plan = call.plan(policy, "lsq")
        self.grids = _grids(plan, self.ranges)
        activations = {site: np.asarray(grid.scale, np.float32) for site, grid in self.grids.items()}
        weights = {name: _first(group, w) for name, (group, w) in _weights(call, plan).items()}
        self.initial = {"activations": activations, "weights": weights}

    def __call__(self, steps: Steps, *args: Any, **kwargs: Any) -> Any:
        """The results in float, of values on grids: to differentiate by ``steps`` and the arguments."""
        self._check(steps)
        call = PlannedCall(self.fun, args, kwargs, self.params)
        walk = _Learning(call.plan(self.policy, "lsq", True), self.grids, steps)
        return tree.unflatten(call.out_tree, walk.run(call.values))

    def quantized(self, steps: Steps, *args: Any) -> Quantized:
        """The function on integers, with the ranges that ``steps`` say.

        Args:
            *args: example arguments with the trained weights.

        Returns:
            As `quantize` returns it: its bits are those of what `compile` writes.
        """
        self._check(steps)
        call = PlannedCall(self.fun, args, {}, self.params)
        ranges = dict(self.ranges)
        for site, grid in self.grids.items():
            low, high = grid.limits
            step = float(np.maximum(np.asarray(steps["activations"][site], np.float32), TINY))
            ranges[site] = (low - grid.zero_point) * step, (high - grid.zero_point) * step
            if grid.dtype == dtypes.int16:
                # Whose grid is symmetric.
                ranges[site] = -high * step, high * step
        corrections: dict[str, NDArray] = {}
        for name, (group, w) in _weights(call, call.plan(self.policy, "lsq", True)).items():
            step = np.maximum(np.asarray(steps["weights"][name], np.float32), TINY)
            corrections[name + SHARES] = step / group.plain_scale(w)
        return Quantized(self.fun, self.policy, ranges, self.params, corrections=corrections)

    def _check(self, steps: Any) -> None:
        """Refuse what is not like `initial`."""
        for part, wanted in self.initial.items():
            given = steps.get(part) if isinstance(steps, Mapping) else None
            shapes = {name: np.shape(step) for name, step in given.items()} if isinstance(given, Mapping) else None
            if shapes != (expected := {name: step.shape for name, step in wanted.items()}):
                raise ParameterError(
                    f"lsq: the steps of {part}",
                    got=described(steps) if shapes is None else shapes,
                    expected=expected,
                    fix="learned(steps, *args) and learned.quantized(steps, *args): steps are trained from "
                    "learned.initial, and are like it",
                )

    def __repr__(self) -> str:
        return f"learned({self.__name__}, {len(self.grids)} ranges, {len(self.initial['weights'])} weights)"


@entry
def lsq(
    fun: Callable[..., Any],
    policy: Any = "int8",
    *,
    calibrate: Iterable[Any],
    observer: Any = "by-data",
    params: Sequence[int] | int | None = None,
) -> Learned:
    """Learned step size quantization: quantization-aware training that learns the ranges along with the weights.

    Esser et al. 2020, "Learned step size quantization" (arXiv:1902.08153). A value v with step s becomes
    ``round(clip(v / s, q_n, q_p)) s``. Its derivative by s is ``round(v / s) - v / s``, and q_n or q_p where v is
    clipped (equation 3), times ``1 / sqrt(N q_p)`` for N weights of one step, or features of an activation
    (section 2.2), with -q_n for q_p where that is larger, as it is of values that are hardly ever above 0. By v it is
    1, and 0 where v is clipped. Steps begin as calibration finds the ranges, those of weights where the squared error
    is least. The integers that mean 0 stay. Loops and conditions are trained in float: their ranges stay, and their
    integers are those of `quantize`.

    Args:
        fun: pure function of pytrees, in float.
        policy: as in `quantize`, with weights or activations on integers.
        calibrate: an iterable of argument tuples.
        observer: as in `quantize`.
        params: positions of the arguments with weights; by default those that are trees.

    Returns:
        A function of ``(steps, *args)``. Train ``steps`` from its ``initial`` with the weights, by any optimizer, then
        call ``quantized(steps, *args)``.

    Raises:
        ParameterError: no data, or nothing on integer grids.

    >>> f = lambda p, x: nx.nn.relu(x @ p["w"])
    >>> p, x = {"w": jnp.array([[1.0, -1.0], [0.5, 2.0]])}, jnp.array([[1.0, 2.0]])
    >>> learned = lsq(f, "int8", calibrate=[(p, x)])
    >>> g = nx.grad(lambda steps: learned(steps, p, x).sum())(learned.initial)
    >>> sorted(g["activations"]), list(g["weights"])
    (['in_1', 'relu_0'], ['dot_general_0'])
    >>> bool(abs(learned.quantized(learned.initial, p, x)(p, x) - f(p, x)).max() < 0.05)
    True
    """
    answered = as_policy(policy)
    batches = list(calibration.iterable(calibrate))
    found = calibration.run(fun, answered, batches, observer, params, False)
    learned = Learned(fun, found.policy, params, found.ranges, calibration.arguments(batches[0]))
    if not (learned.initial["activations"] or learned.initial["weights"]):
        raise ParameterError(
            "lsq: nothing lies on an integer grid", got=policy, expected="a policy with int8, int16 or int4"
        )
    return learned


def on_steps(v: Array, step: Array, low: float, high: float, count: int) -> Array:
    """``round(clip(v / step, low, high)) step`` with the derivatives of `lsq`.

    Args:
        v: values.
        step: of v's rank, one per block.
        count: N, of `lsq`.
    """
    share = 1 / np.sqrt(builtins.max(count, 1) * builtins.max(-low, high))
    # Its value, and a share of its derivative; one that training has made too small finds its way back.
    still = stop_gradient(max(step, like(step, TINY)))
    moved = mul(sub(step, stop_gradient(step)), like(step, share))
    step = broadcast_blocks(add(still, moved), v.shape)
    # What lies far out has a ratio, and this a derivative, that are finite.
    wide = broadcast_blocks(still, v.shape)
    v = min(max(v, mul(wide, like(wide, low - 1))), mul(wide, like(wide, high + 1)))
    ratio = min(max(v / step, like(v, low)), like(v, high))
    whole = add(ratio, stop_gradient(sub(round(ratio, rounding_method=TO_NEAREST_EVEN), ratio)))
    return mul(whole, step)


@final
class _Learning(Walker):
    """The function in float, with weights and all values that have a range on their grids."""

    def __init__(self, plan: QuantPlan, grids: Mapping[str, Grid], steps: Steps) -> None:
        super().__init__(plan)
        self.grids, self.steps = grids, steps

    def define(self, v: Var, x: Array) -> None:
        site = self.plan.sites.get(v)
        grid = self.grids.get(site) if site is not None else None
        if site is None or grid is None:
            return super().define(v, x)
        low, high = (float(end - grid.zero_point) for end in grid.limits)
        step = as_value(self.steps["activations"][site], "lsq").reshape((1,) * x.ndim)
        features = x.size // x.shape[0] if x.ndim > 1 and x.shape[0] else x.size
        return super().define(v, on_steps(x, step, low, high, features))

    def group(self, group: FusedGroup) -> None:
        dtype = group.scheme.weights
        if isinstance(group, TableFunction):
            return self.define(group.output, self._function(group))
        if not isinstance(group, Weighted) or dtype not in INTEGERS:
            for e in group.equations:
                self.plain(e)
            return
        assert dtype is not None
        w = group.folded_weights(self)
        step = as_value(self.steps["weights"][self.plan.layer(group)], "lsq")
        last = symmetric_limit(dtype)
        stored = on_steps(w, step, -last, last, w.size // step.size)
        self.define(group.output, group.in_float(self, self.value(group.activations[0]), stored))

    def _function(self, group: TableFunction) -> Array:
        """As integers have it: what is no number is 0, and a pole has no slope."""
        x, parameters = self.value(group.activations[0]), dict(group.parameters)
        y = stop_gradient(get_op(group.function)(x, **parameters))
        y = select_n(eq(y, y), like(y, 0), y)
        slope = finite_slope(group.function, stop_gradient(x), group.parameters)
        return y if slope is None else add(y, mul(sub(x, stop_gradient(x)), slope))

    def inner(self, step: Inner) -> None:
        self.plain(step.equation)


def _grids(plan: QuantPlan, ranges: Mapping[str, Range]) -> dict[str, Grid]:
    """The grids of the values at this level that have a range, as their first reader or maker wants them."""
    found: dict[str, Grid] = {}
    for group in plan.groups():
        if not group.scheme.integer:
            continue
        for a in (group.output, *group.activations):
            site = plan.sites.get(a) if isinstance(a, Var) else None
            if site is not None:
                found.setdefault(site, covering(*ranges[site], group.dtype))
    return found


def _weights(call: PlannedCall, plan: QuantPlan) -> dict[str, tuple[Weighted, NDArray]]:
    """Products with weights on integers, and these weights."""
    walk = StatisticsTrace(plan, Ranges())
    walk.run(call.values)
    groups = [g for g in plan.groups() if isinstance(g, Weighted) and g.scheme.weights in INTEGERS]
    return {plan.layer(g): (g, np.asarray(g.folded_weights(walk))) for g in groups}


def _first(group: Weighted, w: NDArray) -> NDArray:
    """The steps of weights to begin with."""
    assert group.scheme.weights is not None
    plain = group.plain_scale(w)
    places = np.asarray(blocks(np.arange(plain.size).reshape(plain.shape), w.shape))
    ones = np.ones((), np.float32)
    return plain * searched(w, plain, places, ones, symmetric_limit(group.scheme.weights))
