"""Sensitivity of a function to each of its layers, and mixed precision: the worst layers stay wide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax.display import page
from nxjax.display.columns import columns
from nxjax.errors import ParameterError
from nxjax.quant import calibration
from nxjax.quant.function import Quantized
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import QuantMatmul, Weighted, macs
from nxjax.quant.scheme import Layered, Policy, Scheme, as_policy, in_float
from nxjax.trace import tree
from nxjax.trace.boundary import entry
from nxjax.transforms.jit import jit


@final
@dataclass(frozen=True)
class Sensitivity:
    """The gain from keeping one layer wide.

    Attributes:
        name: of the layer, as in policies.
        sqnr: of the function's results when only this layer computes on integers, in dB. The lower, the worse.
        share: of all multiply-accumulates.
    """

    name: str
    sqnr: float
    share: float


@final
class Ranking(tuple[Sensitivity, ...]):
    """Layers, the most sensitive first. Prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [("layer", "SQNR dB", "share of MACs"), *((s.name, f"{s.sqnr:.1f}", f"{s.share:.1%}") for s in self)]
        return "\n".join(columns(rows))

    def _repr_html_(self) -> str:
        rows = [(s.name, f"{s.sqnr:.1f}", f"{s.share:.1%}") for s in self]
        return page.page(page.table(("layer", "SQNR dB", "share of MACs"), rows))


@entry
def sensitivity(
    fun: Callable[..., Any],
    data: Iterable[Any],
    policy: Any = "int8",
    *,
    observer: Any = "by-data",
    params: Sequence[int] | int | None = None,
    progress: bool | None = None,
) -> Ranking:
    """Which products lose most by quantization: each is quantized alone, and the results are compared with float.

    Args:
        fun, policy, observer, params: as for `quantize`.
        data: an iterable of argument tuples; calibrates and measures.
        progress: show a progress bar.

    Returns:
        The products. Those in branches and loops that no batch enters are not among them.

    Raises:
        ParameterError: no data, or data that do not fit.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> f = lambda p, x: nx.nn.relu(x @ p["a"]) @ p["b"]
    >>> batch = ({"a": np.eye(2) * 3, "b": np.eye(2)}, np.array([[0.4, -1.0]]))
    >>> sorted(s.name for s in sensitivity(f, [batch]))
    ['dot_general_0', 'dot_general_1']
    """
    batches = list(calibration.given(fun, data, "sensitivity"))
    # Branches that no batch takes stay in float.
    base = calibration.run(fun, as_policy(policy), batches, observer, params, False, tells=False).policy
    layers = _products(fun, batches[0], base, params)
    total = max(sum(n for _, _, n, _ in layers), 1)
    found: list[Sensitivity] = []
    for name, scheme, n, _ in calibration.shown(layers, "sensitivity", progress):
        alone = Layered(in_float, {name: scheme})
        seen = calibration.run(fun, alone, batches, observer, params, False, tells=False)
        quantized = Quantized(fun, seen.policy, seen.ranges, params, seen.origins)
        found.append(Sensitivity(name, _sqnr(fun, quantized, batches), n / total))
    return Ranking(sorted(found, key=lambda s: s.sqnr))


def _products(
    fun: Callable[..., Any], args: tuple[Any, ...], policy: Policy, params: Sequence[int] | int | None
) -> list[tuple[str, Scheme, int, list[str]]]:
    """Name, scheme, multiply-accumulates, and names of what is fused, of every product, in inner programs too."""
    plan = PlannedCall(fun, args, {}, params).plan(policy, "sensitivity")
    found: list[tuple[str, Scheme, int, list[str]]] = []

    def visit(plan: QuantPlan, times: int) -> None:
        for step in plan.steps:
            if isinstance(step, (Weighted, QuantMatmul)):
                fused = [plan.names[e.outputs[0]] for e in step.equations[1:]]
                found.append((plan.layer(step), step.scheme, times * macs(step), fused))
            elif isinstance(step, Inner):
                for inner in step.plans:
                    visit(inner, times * step.equation.params.get("length", 1))

    visit(plan, 1)
    return found


def _sqnr(fun: Callable[..., Any], quantized: Quantized, batches: Sequence[tuple[Any, ...]]) -> float:
    """Of all float results over all batches, in dB."""
    plain, grid = jit(fun), jit(quantized)
    signal = noise = 0.0
    for args in batches:
        for x, q in zip(tree.leaves(plain(*args)), tree.leaves(grid(*args)), strict=True):
            x, q = np.asarray(x, np.float64), np.asarray(q, np.float64)
            signal += float(np.sum(x**2))
            noise += float(np.sum((q - x) ** 2))
    return float("inf") if noise == 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))


@entry
def mixed_precision(
    fun: Callable[..., Any],
    data: Iterable[Any],
    budget: float = 0.1,
    *,
    policy: Any = "int8",
    wide: Scheme | str | None = "int16x8",
    observer: Any = "by-data",
    params: Sequence[int] | int | None = None,
    progress: bool | None = None,
) -> Quantized:
    """``fun`` quantized, its most sensitive products wide, up to ``budget`` of all multiply-accumulates.

    Args:
        fun, policy, observer, params, progress: as for `quantize`.
        data: an iterable of argument tuples; calibrates and ranks.
        budget: the share of multiply-accumulates that may be wide, 0 to 1.
        wide: how they compute: a scheme or its name, or None for float.

    Returns:
        The quantized function; ``.policy.exceptions`` names the wide layers, float ones with their bias and relu.

    Raises:
        ParameterError: ``budget`` is not a share.

    >>> f = lambda p, x: nx.nn.relu(x @ p["a"]) @ p["b"]
    >>> p = {"a": jnp.array([[1.0, 0.01], [3.0, 2.0]]), "b": jnp.ones((2, 2))}
    >>> qf = mixed_precision(f, [(p, jnp.array([[1.0, 2.0]]))], budget=0.5, progress=False)
    >>> len(qf.policy.exceptions)
    1
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("mixed_precision: budget", got=budget, expected="a share of all products, 0 to 1")
    batches = list(calibration.given(fun, data, "mixed_precision"))
    base = as_policy(policy)
    left = budget
    ranking = sensitivity(fun, batches, policy, observer=observer, params=params, progress=progress)
    fused = {name: after for name, _, _, after in _products(fun, batches[0], base, params)}
    chosen: dict[str, Scheme | str | None] = {}
    for s in ranking:
        if s.share <= left + 1e-12:
            chosen[s.name] = wide
            if wide is None:
                # What was a part of the integer product is no integer op of its own now.
                chosen.update(dict.fromkeys(fused[s.name]))
            left -= s.share
    mixed = Layered(base, chosen)
    seen = calibration.run(fun, mixed, batches, observer, params, progress, True)
    return Quantized(fun, seen.policy, seen.ranges, params, seen.origins, corrections=seen.corrections)
