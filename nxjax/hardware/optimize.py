"""`NPUBackend.optimize_model`: a model quantized, lowered, laid out in memory and placed, as something to call.

Everything here is `nx.quantize` and `nx.compile` with choices made: folded batch norms, an observer that fits the aim,
an order of nodes that needs little memory. What was chosen and what the result costs stands in the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Label
from nxjax.deploy.report import Report
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import NxError, ParameterError, Shown, UnsupportedOpsError
from nxjax.hardware.npu_ops import on_integers, policy_of
from nxjax.lower.npu.chips import ChipLimits
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.lower import UNROLL
from nxjax.lower.npu.memory import MemoryLimitError, MemoryPlan, check_limit, plan, reorder
from nxjax.lower.npu.placement import place
from nxjax.nn.modules.base import Module
from nxjax.nn.modules.containers import Residual, Sequential
from nxjax.nn.modules.convolution import Conv2d, ConvTranspose2d
from nxjax.nn.modules.dense import Embedding, Linear
from nxjax.nn.modules.normalization import fold_batch_norms
from nxjax.quant.function import quantize as quantized
from nxjax.trace import tree
from nxjax.trace.core import Array
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.jit import jit
from nxjax.transforms.shapes import eval_shape

AIMS: Final = ("performance", "balanced", "accuracy", "memory")
# Observers that "accuracy" chooses among, by the error they lead to.
OBSERVERS: Final = ("minmax", "percentile", "mse")
# Batches on which signal to noise is measured.
KEPT: Final = 16
# Batches of random numbers that stand in for calibration data.
DRAWS: Final = 16
# Image sizes that are tried first where a model does not say which it takes.
COMMON: Final = (32, 224, 28, 64, 96, 128, 160, 192, 256, 299, 320, 384, 416, 512)


# Batches that are tried, and what twice as many may cost, in times as much, to be worth it.
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
WORTH: Final = 1.9


@final
class ActivationPlanner(Shown):
    """Plans what a function's activations take for the shapes of a call, and holds that against the limit of now.

    Args:
        function: the model, quantized or not.
        saving: put nodes in a cheaper order and results over operands.
        limit: gives the bytes that activations may take, or None.
    """

    def __init__(self, function: Callable[..., Any], saving: bool, limit: Callable[[], int | None]) -> None:
        self.function = function
        self.saving = saving
        self.limit = limit
        self._plans: dict[Any, MemoryPlan] = {}

    def laid_out(self, graph: NpuGraph) -> MemoryPlan:
        """The arena of a graph, within the limit."""
        found = plan(reorder(graph) if self.saving else graph, in_place=self.saving)
        limit = self.limit()
        return found if limit is None else check_limit(found, limit)

    def check(self, args: tuple[Any, ...]) -> None:
        """Refuse a call whose activations are over the limit, before it runs."""
        limit = self.limit()
        if limit is None:
            return
        arrays = [x if isinstance(x, (np.ndarray, Array)) else np.asarray(x) for x in tree.leaves(args)]
        key = tuple((tuple(x.shape), str(x.dtype)) for x in arrays)
        found = self._plans.get(key)
        if found is None:
            blanks = iter([np.zeros(x.shape, x.dtype) for x in arrays])
            example = tree.map(lambda _: next(blanks), args)
            try:
                found = self.laid_out(BoundFunction(self.function, example, {}, None).graph("integer", UNROLL))
            except UnsupportedOpsError:
                return  # nothing of it is an NPU's
            self._plans[key] = found
        check_limit(found, limit)


@final
@dataclass(eq=False)
class OptimizedModel:
    """A model as it runs on an NPU: call it like the model.

    Attributes:
        function: what it computes, pure: integers inside if it is quantized.
        precision: the precision that was asked for.
        label: how far towards silicon its results go.
        report: where each op runs.
        graph: what it was lowered to.
        memory: the arena of its activations.
        artifact: what `nx.compile` made for the chip or the simulated target; None without one.
        snr: signal to noise in decibels against the float model on the first calibration batches; infinite for float.
        notes: what was chosen, and what to know about it.
        arena: what bounds each call's activations; None where nothing does.
    """

    function: Callable[..., Any]
    precision: str
    label: Label
    report: Report
    graph: NpuGraph
    memory: MemoryPlan
    artifact: Any = None
    snr: float = math.inf
    notes: list[str] = field(default_factory=list[str])
    arena: ActivationPlanner | None = None

    def __post_init__(self) -> None:
        self._compiled = jit(self.function)

    def __call__(self, *args: Any) -> Any:
        """The model's result for inputs of any batch; on a chip, of the batch it was compiled for.

        Raises:
            MemoryLimitError: this batch does not fit the backend's memory limit.
        """
        if self.arena is not None:
            self.arena.check(args)
        if self.label == "hardware":
            return self.artifact.run(*args)
        return self._compiled(*args)

    def save(self, path: Any) -> Any:
        """Write the artifact; give its path.

        Raises:
            ParameterError: there is none: no chip and no simulated target was named.
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


def best_batch(
    made: OptimizedModel, sample: Sequence[int], on: ChipLimits, limit: Callable[[], int | None], saving: bool
) -> tuple[int, str] | None:
    """How many samples at once a chip's cost model advises, and why; None where it cannot say.

    Twice as many are better while they take less than `WORTH` times as long. Where these do not fit the limit, it is as
    many as do.
    """
    arena = ActivationPlanner(made.function, saving, limit)
    best: tuple[int, float] | None = None

    def graph_of(batch: int) -> NpuGraph:
        graph = BoundFunction(made.function, (np.zeros((batch, *sample), np.float32),), {}, None).graph(
            "integer", UNROLL
        )
        arena.laid_out(graph)
        return graph

    def fits(batch: int) -> bool:
        try:
            graph_of(batch)
        except MemoryLimitError:
            return False
        return True

    for batch in BATCHES:
        try:
            seconds = estimate(graph_of(batch), on)["latency"].value
        except MemoryLimitError:
            if best is None:
                raise
            count = most(fits, batch, best[0])
            fitting = count, estimate(graph_of(count), on)["latency"].value
            best = min(fitting, best, key=lambda found: found[1] / found[0])
            return best[0], f"{best[0]} at once, {_each(best)} a sample: {count + 1} do not fit {limit():,} bytes"
        except NxError:
            return None
        if best is not None and seconds > WORTH * best[1]:
            return best[
                0
            ], f"{best[0]} at once, {_each(best)} a sample: {batch} take {seconds / best[1]:.2f} times as long"
        best = batch, seconds
    assert best is not None
    return best[0], f"{best[0]} at once, {_each(best)} a sample; more were not tried"


def most(fits: Callable[[int], bool], over: int, low: int = 1) -> int:
    """The most that fits, by halves: ``low`` does, ``over`` does not.

    >>> most(lambda n: n <= 10, 16)
    10
    """
    while over - low > 1:
        middle = (low + over) // 2
        low, over = (middle, over) if fits(middle) else (low, middle)
    return low


def _each(best: tuple[int, float]) -> str:
    return f"{1e6 * best[1] / best[0]:.3g} us"


@final
@dataclass(frozen=True)
class Wish:
    """What a caller of `optimize_model` asks for."""

    quantize: bool
    precision: str
    aim: str
    calibration: Iterable[Any] | None
    shape: Sequence[int] | None
    strict: bool


def optimize(
    model: Any, wish: Wish, target: str | None, chip: bool, limit: Callable[[], int | None], saving: bool
) -> OptimizedModel:
    """The model for a target (None: whole numbers of an NPU graph), within ``limit()`` bytes of activations."""
    if not callable(model):
        raise ParameterError(
            "optimize_model: needs a model", got=type(model).__name__, expected="a Module or a function"
        )
    if wish.aim not in AIMS:
        raise ParameterError("optimize_model: optimize_for", got=repr(wish.aim), expected=", ".join(AIMS))
    policy = policy_of("optimize_model", wish.precision)
    if not wish.quantize:
        policy = None
    elif policy is None:
        raise ParameterError(
            "optimize_model: quantize",
            got=f"precision={wish.precision!r}",
            expected="int8 or int16",
            fix="pass quantize=False for a float precision",
        )
    notes: list[str] = []
    data = _Data(_batches(model, wish, notes))
    example = data.head[0]
    folded = function = _as_function(model)
    save = saving or wish.aim == "memory"
    snr = math.inf
    if policy is not None:
        if limit() is not None:
            # Refused before a long calibration: shapes and dtypes do not depend on the ranges.
            early = quantized(folded, policy, calibrate=[example], params=(), progress=False)
            ActivationPlanner(early, save, limit).check(example)
        function, snr = _quantized(folded, policy, data, wish.aim, notes)
    artifact, report, graph = _placed(function, example, target, wish.strict)
    # Ranges of each call's own values are found in float: what an NPU takes of that is nothing that counts. Nor are the
    # integers here those of a chip whose vendor does not specify them.
    exact = target is None or registry.npu(target, "optimize_model").simulated
    whole = exact and policy not in (None, "dynamic-int8") and any(r.on_chip for r in report.rows)
    label: Label = "own-model" if whole else "host"
    if chip:
        label = artifact.label
    elif not exact:
        notes.append(f"{target}: nothing simulates it bit for bit; called here, the reference computes")
    arena = ActivationPlanner(function, save, limit)
    memory = arena.laid_out(graph)
    notes += report.notes
    precision = wish.precision if policy is not None else "float32"
    return OptimizedModel(function, precision, label, report, memory.graph, memory, artifact, snr, notes, arena)


def _as_function(model: Any) -> Callable[..., Any]:
    """The model as a function with a name, batch norms folded."""
    if not isinstance(model, Module):
        return model
    folded = fold_batch_norms(model)

    def network(*args: Any) -> Any:
        return folded(*args)

    network.__name__ = network.__qualname__ = type(model).__name__.lower()
    return network


def _placed(
    function: Callable[..., Any], example: tuple[Any, ...], target: str | None, strict: bool
) -> tuple[Any, Report, NpuGraph]:
    if target is not None:
        from nxjax.deploy.compile import compile

        artifact = compile(function, target=registry.npu(target, "optimize_model").name, strict=strict)(*example)
        assert artifact.graph is not None
        return artifact, artifact.report, artifact.graph
    graph = BoundFunction(function, example, {}, None).graph("integer", UNROLL)
    rows = place(graph, on_integers)
    return None, Report("npu simulator", "whole numbers of an NPU graph", "own-model", rows), graph


@final
class _Data:
    """Calibration batches: the first few are kept, the others read when they are needed, once."""

    def __init__(self, batches: Iterator[tuple[Any, ...]]) -> None:
        self.head = list(itertools.islice(batches, KEPT))
        self.rest = batches
        if not self.head:
            raise ParameterError("optimize_model: calibration_data", got="no batches", expected="at least one")

    def all(self, again: bool) -> Iterable[tuple[Any, ...]]:
        """Every batch; ``again`` says that they will be asked for more than once."""
        if again:
            self.head += self.rest
            return self.head
        return itertools.chain(self.head, self.rest)


def _quantized(
    model: Callable[..., Any], policy: str, data: _Data, aim: str, notes: list[str]
) -> tuple[Callable[..., Any], float]:
    """The quantized model and its signal to noise; for accuracy the best of several observers."""
    observers = OBSERVERS if aim == "accuracy" else ("minmax",)
    batches = data.all(again=len(observers) > 1)
    shown = data.head[:KEPT]
    float_model = jit(model)
    want = [float_model(*b) for b in shown]
    tried: list[tuple[float, str, Callable[..., Any]]] = []
    for observer in observers:
        made = quantized(model, policy, calibrate=batches, observer=observer, params=(), progress=False)
        fast = jit(made)
        tried.append((_snr(want, [fast(*b) for b in shown]), observer, made))
    snr, observer, made = max(tried, key=lambda row: row[0])
    if aim == "accuracy":
        rest = ", ".join(f"{name} {value:.1f} dB" for value, name, _ in tried)
        notes.append(f"ranges observed by {observer!r}, the best of {rest}")
    return made, snr


def _snr(want: list[Any], got: list[Any]) -> float:
    """10 log10 of the float results' power over that of the difference, over all results together."""
    signal = noise = 0.0
    for a, b in zip(tree.leaves(want), tree.leaves(got), strict=True):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        signal += float(np.sum(x * x))
        noise += float(np.sum((x - y) ** 2))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


# --- inputs ---


def _batches(model: Any, wish: Wish, notes: list[str]) -> Iterator[tuple[Any, ...]]:
    """Calibration batches as tuples of arguments; random ones, which a note says, where none are given."""
    if wish.calibration is not None:
        data = wish.calibration
        if isinstance(data, (np.ndarray, Array)):
            data = [data]
        return (b if isinstance(b, tuple) else (b,) for b in data)
    shape = tuple(wish.shape) if wish.shape is not None else input_shape(model)
    rng = np.random.default_rng(0)
    draws = [rng.normal(size=shape).astype(np.float32) for _ in range(DRAWS)]
    if _first(model, Embedding) is not None:
        size = _first(model, Embedding).num_embeddings
        draws = [rng.integers(0, size, shape).astype(np.int32) for _ in range(DRAWS)]
    if wish.quantize:
        notes.append(
            f"calibrated on random numbers of shape {list(shape)}: give calibration_data from the real task, or expect "
            "other accuracy than this"
        )
    return ((x,) for x in draws)


def _layers(model: Any) -> list[Module]:
    """Layers in the order in which they are run."""
    if isinstance(model, Sequential):
        return [inner for layer in model.layers for inner in _layers(layer)]
    if isinstance(model, Residual):
        return _layers(model.inner)
    return [model] if isinstance(model, Module) else []


def _first(model: Any, kind: type[Module]) -> Any:
    layers = _layers(model)
    return layers[0] if layers and isinstance(layers[0], kind) else None


def input_shape(model: Any) -> tuple[int, ...]:
    """The shape of one input, batch 1, that a model's layers leave no choice about.

    A model that begins with a `Linear` says it. One of convolutions that ends in a `Linear` takes the images for
    which the features fit: square ones are tried, common sizes first.

    Raises:
        ParameterError: the layers do not say, or several sizes fit.

    >>> from nxjax.nn import Conv2d, Linear, Sequential
    >>> input_shape(Sequential(Conv2d(1, 4, 3), Linear(4 * 26 * 26, 10)))
    (1, 1, 28, 28)
    """
    first = _first(model, Linear)
    if first is not None:
        return (1, first.in_features)
    image = _first(model, Conv2d) or _first(model, ConvTranspose2d)
    if image is None:
        raise _unknown("its first layer takes inputs of any shape")

    def fits(size: int) -> bool:
        try:
            eval_shape(model, ShapeDtypeStruct((1, image.in_channels, size, size), np.float32))
        except NxError:
            return False
        return True

    found = [n for n in COMMON if fits(n)] or [n for n in range(1, 257) if fits(n)][:1]
    if not found:
        raise _unknown("no square image up to 512 rows fits")
    if max(found) - min(found) > 16:
        raise _unknown(f"images of {min(found)} and of {max(found)} rows fit")
    return (1, image.in_channels, found[0], found[0])


def _unknown(why: str) -> ParameterError:
    return ParameterError(
        "optimize_model: the model does not say what inputs it takes",
        got=why,
        fix="pass input_shape=(1, channels, rows, columns), or calibration_data=[batch, ...]",
    )
