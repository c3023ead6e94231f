"""A function that is quantized, compiled and kept within a memory limit.

Everything here is `nx.quantize` and `nx.compile` with preset choices: an observer, an order of nodes that needs little
memory, a batch. The result has the choices and its cost.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.backends.evidence import Label
from nxjax.backends.target import NpuTarget
from nxjax.deploy.compile import built
from nxjax.deploy.compile import compile as compiled
from nxjax.deploy.deviation import measured
from nxjax.deploy.report import Report
from nxjax.deploy.simulate import ANY
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import MemoryLimitError, NxError, ParameterError, Shown, UnsupportedOpsError
from nxjax.lower.npu.chips import ChipLimits
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.lower import UNROLL
from nxjax.lower.npu.memory import MemoryPlan, check_limit, plan, reorder
from nxjax.ops.base import NDArray
from nxjax.quant.function import quantize
from nxjax.trace import tree
from nxjax.trace.array import type_of
from nxjax.transforms.jit import jit

Limit = Callable[[], int | None]
# Batches on which signal to noise is measured.
KEPT: Final = 16
# Batches that are tried, and what a sample of twice as many may cost, in times as much, to be worth it.
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
WORTH: Final = 0.95


@final
class BatchSize(int):
    """A number of samples to run at once, with the reason for it."""

    reason: str

    def __new__(cls, value: int, reason: str) -> BatchSize:
        made = super().__new__(cls, value)
        made.reason = reason
        return made


@final
class ActivationPlanner(Shown):
    """Plans what a function's activations take for the shapes of a call, and holds that against the limit of now.

    Args:
        function: the model, quantized or not.
        saving: put nodes in a cheaper order and results over operands.
        limit: gives the bytes that activations may take, or None.
    """

    def __init__(self, function: Callable[..., Any], saving: bool, limit: Limit) -> None:
        self.function = function
        self.saving = saving
        self.limit = limit
        self._plans: dict[Any, MemoryPlan] = {}

    def graph(self, *args: Any) -> NpuGraph:
        """What a call with arguments of these shapes is lowered to."""
        types = tree.map(lambda x: type_of(x, "optimize_model"), args)
        zeros = tree.map(lambda t: np.zeros(t.shape, t.dtype), types)
        return BoundFunction(self.function, zeros, {}, None).graph("integer", UNROLL)

    def laid_out(self, graph: NpuGraph) -> MemoryPlan:
        """The arena of a graph, within the limit."""
        return self._within(plan(reorder(graph) if self.saving else graph, in_place=self.saving))

    def check(self, args: tuple[Any, ...]) -> None:
        """Refuse a call whose activations are over the limit, before it runs."""
        if self.limit() is None:
            return
        key = tuple(str(type_of(x, "optimize_model")) for x in tree.leaves(args))
        if key not in self._plans:
            try:
                self._plans[key] = self.laid_out(self.graph(*args))
            except UnsupportedOpsError:
                return  # nothing of it is an NPU's
        self._within(self._plans[key])

    def _within(self, found: MemoryPlan) -> MemoryPlan:
        limit = self.limit()
        return found if limit is None else check_limit(found, limit)


@final
@dataclass(eq=False)
class OptimizedModel:
    """A model on an NPU: call it like the model.

    Attributes:
        function: the pure function that it computes, with integers inside if it is quantized.
        precision: the requested precision.
        label: how its results were made.
        report: where each op runs.
        memory: the arena of its activations.
        arena: what bounds each call's activations.
        artifact: from `nx.compile` for the chip or the simulated target, or None.
        snr: signal to noise in decibels against the float model on the first calibration batches; infinite for float.
        notes: the choices, and facts about them.
    """

    function: Callable[..., Any]
    precision: str
    label: Label
    report: Report
    memory: MemoryPlan
    arena: ActivationPlanner
    artifact: Any = None
    snr: float = math.inf
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._compiled = jit(self.function)

    @property
    def graph(self) -> NpuGraph:
        """What it was lowered to."""
        return self.memory.graph

    def __call__(self, *args: Any) -> Any:
        """The model's result for inputs of any batch; on a chip, of the batch it was compiled for.

        Raises:
            MemoryLimitError: this batch does not fit the backend's memory limit.
        """
        self.arena.check(args)
        return self.artifact.run(*args) if self.label == "hardware" else self._compiled(*args)

    def _batch(self, sample: Sequence[int], n: int) -> NpuGraph:
        return self.arena.graph(np.zeros((n, *sample), np.float32))

    def fitting(self, sample: Sequence[int], cap: int) -> tuple[int, int]:
        """How many samples of a shape fit the memory limit at once, at most ``cap``, and the bytes they take."""

        def crowded(n: int) -> bool:
            try:
                self.arena.laid_out(self._batch(sample, n))
            except MemoryLimitError:
                return True
            return False

        most = bisect_right(range(1, cap + 1), False, key=crowded) if self.arena.limit() is not None else cap
        return most, self.arena.laid_out(self._batch(sample, most)).peak

    def batch_size(self, sample: Sequence[int], on: ChipLimits) -> BatchSize | None:
        """The batch size with nearly the least time per sample on a chip, and why.

        None if the cost model does not know.
        """
        most, _ = self.fitting(sample, BATCHES[-1])
        each = lambda n: estimate(self._batch(sample, n), on)["latency"].value / n
        said = "more were not tried" if most == BATCHES[-1] else f"{most + 1} do not fit {self.arena.limit():,} bytes"
        try:
            best, least = 1, each(1)
            for n in sorted({most, *(b for b in BATCHES if 1 < b < most)} - {1}):
                if (found := each(n)) > WORTH * least:
                    said = f"{n} take {n * found / (best * least):.2f} times as long"
                    break
                best, least = n, found
        except NxError:
            return None
        return BatchSize(best, f"{on.title}: {best} at once, {1e6 * least:.3g} us a sample; {said}")

    def save(self, path: Any) -> Any:
        """Write the artifact and return its path.

        Raises:
            ParameterError: there is none, because no chip or simulated target was named.
        """
        if self.artifact is None:
            raise ParameterError(
                "optimize_model: nothing to save",
                got="a simulator of no particular chip",
                fix='name a target: npu.optimize_model(..., target="ethos-u55")',
            )
        return self.artifact.save(path)

    def __repr__(self) -> str:
        lines = [
            f"OptimizedModel({self.precision}, {self.label})",
            f"  {self.report.summary()}",
            f"  memory: {self.memory.peak:,} bytes of activations at once",
        ]
        if math.isfinite(self.snr):
            lines.append(f"  signal to noise: {self.snr:.1f} dB")
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])


def optimized(
    function: Callable[..., Any],
    batches: Iterable[tuple[Any, ...]],
    target: NpuTarget,
    policy: str | None,
    *,
    precision: str = "float32",
    observers: Sequence[str] = ("minmax",),
    notes: Sequence[str] = (),
    strict: bool = False,
    chip: bool = False,
    limit: Limit = lambda: None,
    saving: bool = False,
) -> OptimizedModel:
    """The function for a target, within ``limit()`` bytes of activations.

    Args:
        batches: of arguments, to calibrate on; the first says what shapes are compiled for.
        policy: of `nx.quantize`; None keeps float.
        precision: what the policy is called.
        observers: ways to find ranges, of which the best is kept.
        notes: what was chosen before.
        chip: whether the target's chip runs it.
        saving: take an order of nodes that needs less memory, and let results overwrite operands.
    """
    rest = iter(batches)
    head = list(itertools.islice(rest, KEPT))
    if not head:
        raise ParameterError("optimize_model: calibration_data", got="no batches", expected="at least one")
    told, snr = list(notes), math.inf
    if policy is not None:
        if limit() is not None:
            # Refused before a long calibration: shapes and dtypes do not depend on the ranges.
            early = quantize(function, policy, calibrate=head[:1], params=(), progress=False)
            ActivationPlanner(early, saving, limit).check(head[0])
        function, snr = _quantized(function, policy, head, itertools.chain(head, rest), observers, told)
    if target is ANY:
        bound = BoundFunction(function, head[0], {}, None)
        made = built(ANY, bound, bound.subject(ANY, "integer", UNROLL), {}, strict, True, lambda _: None)
    else:
        made = compiled(function, target=target.name, strict=strict)(*head[0])
    assert made.graph is not None
    # Ranges of each call's own values are found in float: what an NPU takes of that is nothing that counts. Nor are the
    # integers here those of a chip whose vendor does not specify them.
    whole = target.simulated and policy not in (None, "dynamic-int8") and made.report.on_npu > 0
    label: Label = made.label if chip else "own-model" if whole else "host"
    if not chip and not target.simulated:
        told.append(f"{target.name}: nothing simulates it bit for bit; called here, the reference computes")
    arena = ActivationPlanner(function, saving, limit)
    memory, artifact = arena.laid_out(made.graph), None if target is ANY else made
    told += made.notes
    return OptimizedModel(function, precision, label, made.report, memory, arena, artifact, snr, told)


def _quantized(
    function: Callable[..., Any],
    policy: str,
    shown: Sequence[tuple[Any, ...]],
    data: Iterable[tuple[Any, ...]],
    observers: Sequence[str],
    notes: list[str],
) -> tuple[Callable[..., Any], float]:
    """The quantized function and its signal to noise on the batches ``shown``; of several observers with the best."""

    def results(f: Callable[..., Any]) -> list[NDArray]:
        run = jit(f)
        return [np.asarray(y, np.float64) for batch in shown for y in tree.leaves(run(*batch))]

    data = list(data) if len(observers) > 1 else data
    want = results(function)
    plain = [Tensor("", y.shape, y.dtype) for y in want]
    tried: list[tuple[float, str, Callable[..., Any]]] = []
    for observer in observers:
        made = quantize(function, policy, calibrate=data, observer=observer, params=(), progress=False)
        snr = measured("", plain, results(made), want).sqnr
        tried.append((math.inf if snr is None else snr, observer, made))
    best, observer, made = max(tried, key=lambda row: row[0])
    if len(observers) > 1:
        each = ", ".join(f"{name} {value:.1f} dB" for value, name, _ in tried)
        notes.append(f"ranges observed by {observer!r}, the best of {each}")
    return made, best
