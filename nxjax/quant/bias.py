"""Bias correction: what quantization adds to the mean of a product's result, measured on calibration data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import neg
from nxjax.quant.groups import FusedGroup, Rounding, Values
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Weighted
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, NDArray, Quantizer, Range, Walker, rounding_of
from nxjax.trace.core import Array
from nxjax.transforms.jit import jit


def corrections(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    ranges: Mapping[str, Range],
    batches: Sequence[tuple[Any, ...]],
    known: Corrections | None = None,
) -> dict[str, NDArray]:
    """What to add to the bias of each integer product with weights, per channel; not in loops and branches.

    Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction" (arXiv:1906.04721),
    section 4.2 and appendix D: the mean error of the product, on operands as the corrected layers before it make
    them. One pass measures all layers, for each batch apart. A mean that differs from batch to batch is no bias: it
    shrinks by the share of its square that its standard error explains. ``known`` says how weights are rounded.
    """

    def measured(*args: Any) -> dict[str, tuple[Array, Array]]:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", bool(ranges))
        exact = StatisticsTrace(plan, Ranges())
        exact.run(call.values)
        walk = _Correcting(exact, Quantizer(plan, ranges, call.stored(plan), corrections=known))
        walk.run(call.values)
        return walk.found

    return _over(jit(measured), batches)


def of_weights(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    batches: Sequence[tuple[Any, ...]],
    known: Corrections,
) -> dict[str, NDArray]:
    """`corrections` for the rounding of weights alone: every product with weights has the operands of the float one."""

    def measured(*args: Any) -> dict[str, tuple[Array, Array]]:
        call = PlannedCall(fun, args, {}, params)
        walk = _Rounding(call.plan(policy, "weights"), known)
        walk.run(call.values)
        return walk.found

    return _over(jit(measured), batches)


def _over(run: Callable[..., Any], batches: Sequence[tuple[Any, ...]]) -> dict[str, NDArray]:
    """What takes the mean errors away that ``run`` measures."""
    found: dict[str, list[tuple[NDArray, NDArray]]] = {}
    for args in batches:
        for name, (mean, spread) in run(*args).items():
            found.setdefault(name, []).append((np.asarray(mean, np.float64), np.asarray(spread, np.float64)))
    made = {name: -_certain(*map(np.stack, zip(*seen, strict=True))) for name, seen in found.items()}
    return {name: b.astype(np.float32) for name, b in made.items() if np.isfinite(b).all() and b.any()}


def _certain(means: NDArray, spreads: NDArray) -> NDArray:
    """The mean of ``means`` [batches, ...], as far as it is certain; ``spreads`` are their own squared errors."""
    n, mean = len(means), means.mean(0)
    error = spreads.mean(0) / n
    if n > 1:
        error = np.maximum(error, means.var(0, ddof=1) / n)
    return mean * np.maximum(0.0, 1.0 - error / np.maximum(mean**2, 1e-300))


@final
class _Correcting(Quantizer):
    """Measures the error of each product before it is computed, and corrects it.

    Attributes:
        found: by layer, the mean error and the square of its standard error.
    """

    def __init__(self, exact: Values, walk: Quantizer) -> None:
        super().__init__(
            walk.plan, walk.ranges, walk.stored, walk.grids, beside=walk.beside, corrections=walk.corrections
        )
        self.exact = exact
        self.found: dict[str, tuple[Array, Array]] = {}

    def group(self, group: FusedGroup) -> None:
        if isinstance(group, Weighted) and group.scheme.integer:
            x, _ = self.on_grid(group.activations[0], group.dtype)
            self.found[self.plan.layer(group)] = group.mean_error(self, x, self.exact)
        super().group(group)

    def correction(self, group: FusedGroup) -> Array | None:
        found = self.found.get(self.plan.layer(group))
        return None if found is None else neg(found[0])


@final
class _Rounding(Walker):
    """The function in float; what rounding each product's weights adds is measured.

    Attributes:
        found: as `_Correcting` has it.
    """

    def __init__(self, plan: QuantPlan, known: Corrections) -> None:
        super().__init__(plan)
        self.known = known
        self.found: dict[str, tuple[Array, Array]] = {}

    def rounding(self, group: FusedGroup) -> Rounding | None:
        return rounding_of(self.known, self.plan.layer(group))

    def group(self, group: FusedGroup) -> None:
        if isinstance(group, Weighted) and group.scheme.weights is not None:
            self.found[self.plan.layer(group)] = group.mean_error(self, self.value(group.activations[0]), self)
        for e in group.equations:
            self.plain(e)

    def inner(self, step: Inner) -> None:
        self.plain(step.equation)
