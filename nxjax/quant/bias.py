"""Bias correction: what quantization adds to the mean of a product's result, measured on calibration data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.quant.groups import FusedGroup, Rounding
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Weighted
from nxjax.quant.results import not_finite, operand_error
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, NDArray, Walker, rounding_of
from nxjax.trace.core import Array
from nxjax.transforms.jit import jit


def of_weights(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    batches: Sequence[tuple[Any, ...]],
    known: Corrections,
) -> dict[str, NDArray]:
    """Corrections for the rounding of weights alone: every product with weights has the operands of the float one."""

    def measured(*args: Any) -> dict[str, tuple[Array, Array]]:
        call = PlannedCall(fun, args, {}, params)
        walk = _Rounding(call.plan(policy, "weights"), known)
        walk.run(call.values)
        return walk.found

    run = jit(measured)
    found = [run(*args) for args in batches]
    for n, (args, each) in enumerate(zip(batches, found, strict=True), 1):
        wrong = [name for name, (mean, _) in each.items() if not np.isfinite(mean).all()]
        if wrong and not_finite(args):
            raise operand_error("correct_bias", wrong[0], n, args, None)
    return certain(found)


def certain(found: Sequence[Mapping[str, tuple[Any, Any]]]) -> dict[str, NDArray]:
    """What takes mean errors away: by layer, from the errors of each batch and the squares of their own errors."""
    made: dict[str, NDArray] = {}
    for name in found[0]:
        means, spreads = (np.stack([np.asarray(each[name][i], np.float64) for each in found]) for i in (0, 1))
        b = -_certain(means, spreads)
        if np.isfinite(b).all() and b.any():
            made[name] = b.astype(np.float32)
    return made


def _certain(means: NDArray, spreads: NDArray) -> NDArray:
    """The mean of ``means`` [batches, ...], as far as it is certain; ``spreads`` are their own squared errors."""
    n, mean = len(means), means.mean(0)
    error = spreads.mean(0) / n
    if n > 1:
        error = np.maximum(error, means.var(0, ddof=1) / n)
    return mean * np.maximum(0.0, 1.0 - error / np.maximum(mean**2, 1e-300))


@final
class _Rounding(Walker):
    """The function in float; what rounding each product's weights adds is measured.

    Attributes:
        found: by product, the mean error and the square of its standard error.
    """

    def __init__(self, plan: QuantPlan, known: Corrections) -> None:
        super().__init__(plan)
        self.known = known
        self.found: dict[str, tuple[Array, Array]] = {}

    def rounding(self, group: FusedGroup) -> Rounding | None:
        return rounding_of(self.known, self.plan.layer(group))

    def group(self, group: FusedGroup) -> None:
        if isinstance(group, Weighted) and group.scheme.weights is not None:
            w, x = group.folded_weights(self), self.value(group.activations[0])
            self.found[self.plan.layer(group)] = group.mean_error(x, group.stored_values(self, w), self, w)
        for e in group.equations:
            self.plain(e)

    def inner(self, step: Inner) -> None:
        self.plain(step.equation)
