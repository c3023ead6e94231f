"""A function on several IPUs: a share of the batch each, or in stages; and training in stages.

Everything here is `Pipeline` with preset choices. The result has the choices and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.backends.evidence import Label
from nxjax.backends.ipu.pipeline import Pipeline, Recompute
from nxjax.backends.ipu.poplar import PoplarProject
from nxjax.deploy.deviation import measured
from nxjax.deploy.trace import BoundFunction
from nxjax.display import page
from nxjax.errors import ExecutionError, ParameterError, Shown, TileMemoryError
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.npu.graph import Tensor
from nxjax.lower.pipeline.samples import is_sum, parts_of
from nxjax.lower.pipeline.schedule import Kind
from nxjax.ops.base import NDArray
from nxjax.trace import tree
from nxjax.trace.array import as_value, type_of, wrap
from nxjax.trace.core import Array
from nxjax.trace.evaluate import evaluate
from nxjax.trace.types import ArrayType, ShapeDtypeStruct

Execution = Literal["single", "replicated", "pipelined"]
EXECUTIONS: Final = ("auto", "single", "replicated", "pipelined")
# Shares of a tile's memory that `quickest` tries for the temporaries of one product.
PROPORTIONS: Final = (0.1, 0.2, 0.4, 0.6, 0.8)
# Micro-batches per stage with which a pipeline is busy most of the time.
DEPTH: Final = 4


@final
@dataclass(frozen=True)
class IpuSetting:
    """The settings of compilation.

    Attributes:
        system: IPUs, and how many.
        options: of the lowering.
        compile_only: run nothing.
        hardware: whether IPUs are listed here and the SDK's compiler works; programs that fit one are tried there.
    """

    system: IpuSystem
    options: IpuOptions
    compile_only: bool = False
    hardware: bool = False


@final
@dataclass(eq=False)
class CompiledModel:
    """A model compiled for IPUs: call it like the model.

    Attributes:
        function: the model.
        execution: "single", "replicated" (each IPU has its share of the batch) or "pipelined" (stages).
        bound: the model's program, and its call's trees and types.
        pipeline: the stages: one, but of "pipelined".
        notes: the choices.
        label: "emitted" until it has run; then "hardware" if IPUs ran it, "own-model" if a model of the chip did.
    """

    function: Callable[..., Any]
    execution: Execution
    setting: IpuSetting
    bound: BoundFunction
    pipeline: Pipeline
    notes: list[str] = field(default_factory=list[str])
    label: Label = "emitted"

    @property
    def cycles(self) -> float:
        """Of one call by the model, without the streams from the host."""
        return self.pipeline.cycles

    @property
    def seconds(self) -> float:
        return self.pipeline.seconds

    @property
    def memory(self) -> tuple[int, ...]:
        """Bytes of the fullest tile, on each IPU."""
        return tuple(m.peak for m in self.pipeline.memory) * self.pipeline.replicas

    @property
    def memory_available(self) -> int:
        """Bytes of one tile."""
        return self.setting.system.chip.memory

    @property
    def ipus(self) -> int:
        """The number of IPUs."""
        return len(self.memory)

    def __call__(self, *inputs: Any) -> Any:
        """The model's results for inputs of the shapes that it was compiled for."""
        if self.setting.compile_only:
            raise ExecutionError(
                "execute_model: this model was only compiled",
                got="compile_only=True",
                fix="make the manager with compile_only=False to run models",
            )
        leaves = self.bound.flat_inputs(inputs, "execute_model")
        plain = [Tensor("", v.type.shape, v.type.dtype) for v in self.bound.program.outputs]
        if self.setting.hardware and self.execution == "single":
            program = self.pipeline.placed[0].forward.model.program
            given = [x.astype(v.dtype, copy=False) for x, v in zip(leaves, program.inputs, strict=True)]
            found = PoplarProject(program).run(given, "ipu")
            self._compare(found, leaves, plain)
        else:
            # Several IPUs are the model's, whatever the machine has.
            found, self.label = _on_model(self.pipeline, leaves), "own-model"
        return self.bound.result(plain, found)

    def _compare(self, found: Sequence[NDArray], leaves: Sequence[NDArray], outputs: Sequence[Tensor]) -> None:
        """Compare the first results of an IPU with the reference: the label counts from there."""
        if self.label != "emitted":
            return
        apart = measured("the IPU", outputs, found, evaluate(self.bound.program, leaves))
        if apart.unrelated:
            raise ExecutionError("execute_model: the IPU gave results of another function", got=apart.short)
        self.label = "hardware"

    def __str__(self) -> str:
        over = f"{self.ipus} IPU{'s' * (self.ipus > 1)}"
        rows = [f"{self.setting.system.title}: {self.execution} on {over}, label {self.label}"]
        figures = f"{self.cycles:,.0f} cycles, {self.seconds * 1e3:.3f} ms a call (model)"
        rows.append(f"  {figures}; {max(self.memory):,} of {self.memory_available:,} bytes on the fullest tile")
        return "\n".join([*rows, *("  " + x for x in self.pipeline.lines()), *(f"  note: {n}" for n in self.notes)])

    def _repr_html_(self) -> str:
        return page.page(page.text(str(self)), page.scroll(self.pipeline.svg()))


def _on_model(pipeline: Pipeline, leaves: Sequence[NDArray]) -> list[NDArray]:
    n = pipeline.micro_batches
    results, _ = pipeline.run([x[None] if n == 1 else _cut(x, n) for x in leaves])
    return [y[0].numpy() if n == 1 else np.concatenate([x.numpy() for x in y]) for y in zip(*results, strict=True)]


def _cut(x: NDArray, parts: int) -> NDArray:
    return x.reshape(parts, x.shape[0] // parts, *x.shape[1:])


def over_ipus(
    function: Callable[..., Any], inputs: Sequence[Any], setting: IpuSetting, execution: str = "auto"
) -> CompiledModel:
    """``function`` compiled for the IPUs of ``setting``.

    Args:
        execution: "auto", or one of `Execution`. "auto" on several IPUs: shares of the batch if the model fits one IPU
            and treats samples separately, one IPU if it fits but mixes samples, else stages.

    Raises:
        TileMemoryError: it does not fit; the error names the largest tensors and their lines.
        ParameterError: an execution that the model's shapes do not allow.
    """
    if execution not in EXECUTIONS:
        raise ParameterError("compile_model: execution", got=repr(execution), expected=", ".join(EXECUTIONS))
    bound, ipus = BoundFunction(function, inputs, {}, ()), setting.system.ipus

    def parts(candidates: Sequence[int]) -> int:
        return parts_of(_flat(function, inputs), bound.program.in_types, candidates)

    def made(how: Execution, micros: int = 1, stages: int | None = 1, replicas: int = 1) -> CompiledModel:
        one = BoundFunction(function, [_sample(x, micros) for x in inputs], {}, ()) if micros > 1 else bound
        batched = [True] * len(bound.program.inputs)
        return CompiledModel(
            function, how, setting, bound, _pipeline(one, setting, micros, batched, stages=stages, replicas=replicas)
        )

    if execution == "single" or (execution == "auto" and ipus == 1):
        return made("single")
    if execution != "pipelined":
        shares = parts([ipus] if execution == "replicated" else range(ipus, 1, -1))
        if not shares and execution == "replicated":
            raise ParameterError(
                "compile_model: the batch cannot be split",
                got=f"inputs {', '.join(map(str, bound.program.in_types))} over {ipus} IPUs",
                expected="a leading dimension of samples, the same in inputs and results, that the IPUs divide; "
                "a result that depends on its own sample only",
                fix='execution="single" or "pipelined"',
            )
        try:
            if shares:
                return made("replicated", shares, 1, shares)
            found = made("single")
            found.notes.append(f"one of {ipus} IPUs is used: the batch cannot be shared out")
            return found
        except TileMemoryError:
            if execution == "replicated":
                raise
    micros = parts(range(DEPTH * ipus, 0, -1))
    # Without a dimension of samples there is one micro-batch: the whole call, in as few stages as fit.
    return made("pipelined", micros or 1, None if execution == "auto" or not micros else ipus)


def quickest(function: Callable[..., Any], inputs: Sequence[Any], setting: IpuSetting) -> CompiledModel:
    """As `over_ipus`, with the share of tile memory for products that needs the fewest cycles.

    Raises:
        TileMemoryError: it fits with none.
    """
    made: list[CompiledModel] = []
    rows: list[str] = []
    failure: TileMemoryError | None = None
    for share in dict.fromkeys((setting.options.available_memory_proportion, *PROPORTIONS)):
        options = replace(setting.options, available_memory_proportion=share)
        try:
            made.append(over_ipus(function, inputs, replace(setting, options=options)))
            rows.append(f"{share:g}: {made[-1].cycles:,.0f} cycles")
        except TileMemoryError as error:
            failure = error
            rows.append(f"{share:g}: does not fit")
    if failure is not None and not made:
        raise failure
    found = min(made, key=lambda m: (m.cycles, max(m.memory)))
    chosen = found.setting.options.available_memory_proportion
    found.notes.append(f"memory_proportion {chosen:g} was chosen of {'; '.join(rows)}")
    return found


@final
@dataclass(frozen=True)
class BatchSearch:
    """Batch sizes that were tried.

    Attributes:
        best: the fitting one with the most samples per second.
        tried: per batch size its cycles and peak bytes per tile; None if it does not fit.
        compiled: the model compiled for the best one.
    """

    best: int
    tried: dict[int, tuple[float, int] | None]
    compiled: CompiledModel

    def __str__(self) -> str:
        said = lambda t: "does not fit" if t is None else f"{t[0]:,.0f} cycles, {t[1]:,} bytes per tile"
        return "\n".join([f"best batch size {self.best}", *(f"  {n:>6}: {said(t)}" for n, t in self.tried.items())])


def best_batch(compiled_for: Callable[[int], CompiledModel], sizes: Sequence[int]) -> BatchSearch:
    """Of ``sizes``, in increasing order, the one with the most samples per second. It stops at the first that does not
    fit.

    Raises:
        TileMemoryError: not even the first one fits.
    """
    tried: dict[int, tuple[float, int] | None] = {}
    best: BatchSearch | None = None
    for n in sizes:
        try:
            made = compiled_for(n)
        except TileMemoryError:
            if best is None:
                raise
            tried[n] = None
            break
        tried[n] = (made.cycles, max(made.memory))
        if best is None or n / made.cycles > best.best / best.compiled.cycles:
            best = BatchSearch(n, tried, made)
    if best is None:
        raise ParameterError("find_batch_size: no batch sizes to try", got=sizes)
    return best


def _sample(x: Any, parts: int) -> Any:
    """Types of a tree's arrays with so much of their leading dimension."""

    def part(t: ArrayType) -> ShapeDtypeStruct:
        return ShapeDtypeStruct((t.shape[0] // parts, *t.shape[1:]), t.dtype)

    return tree.map(lambda leaf: part(type_of(leaf, "compile_model")), x)


def _flat(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[Sequence[NDArray]], list[NDArray]]:
    """The function on the leaves of its arguments, as NumPy has them."""
    treedef = tree.flatten(tuple(inputs))[1]

    def flat(xs: Sequence[NDArray]) -> list[NDArray]:
        ys = function(*tree.unflatten(treedef, [wrap(x) for x in xs]))
        return [np.asarray(as_value(y, "compile_model").numpy()) for y in tree.leaves(ys)]

    return flat


def _pipeline(one: BoundFunction, setting: IpuSetting, micros: int, batched: Sequence[bool], **how: Any) -> Pipeline:
    return Pipeline(one.program, setting.system, setting.options, micro_batches=micros, batched=batched, **how)


@final
class PipelinedTraining(Shown):
    """Losses and gradients of a function on several IPUs, in stages.

    Args:
        loss: ``loss(params, *batch)`` returns a scalar, a mean over the samples of the batch.
        params: a tree of arrays.
        batch: examples of the other arguments, with samples in the leading dimension.
        setting: IPUs and options.
        micro_batches: the number of parts of a batch; gradients are added up over them.
        schedule: "1f1b" or "gpipe".
        recompute: keep only the inputs of stages and recompute activations; "auto": if nothing else fits.
        stages: their number; by default the smallest that fits.
        replicas: copies of the pipeline that share the micro-batches.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        batch: Sequence[Any],
        setting: IpuSetting,
        micro_batches: int,
        schedule: Kind = "1f1b",
        recompute: Recompute = "auto",
        stages: int | None = None,
        replicas: int = 1,
    ) -> None:
        if isinstance(micro_batches, bool) or not isinstance(micro_batches, int) or micro_batches < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("pipeline: micro_batches", got=repr(micro_batches), expected="an int, at least 1")
        if recompute not in ("auto", True, False):
            raise ParameterError("pipeline: recompute", got=repr(recompute), expected="'auto', True, False")
        for t in (type_of(x, "pipeline") for x in tree.leaves(tuple(batch))):
            if not t.shape or t.shape[0] % micro_batches:
                raise ParameterError(
                    "pipeline: the batch does not divide into micro-batches", got=f"{t} in {micro_batches} parts"
                )
        inputs = (params, *(_sample(x, micro_batches) for x in batch))
        one, count = BoundFunction(loss, inputs, {}, ()), len(tree.leaves(params))
        if micro_batches > 1 and is_sum(_flat(loss, inputs), one.program.in_types, count):
            raise ParameterError(
                "pipeline: the loss is a sum over samples, micro-batches are averaged",
                got="twice the loss for twice the samples",
                expected="a mean over the samples of a batch",
                fix="take the mean, and multiply the result by the batch size if the sum is wanted",
            )
        self.setting = setting
        self.label: Label = "emitted"
        self._trees = [structure for _, structure in one.in_trees]
        trained = [i < count for i in range(len(one.program.inputs))]
        how = {"schedule": schedule, "recompute": recompute, "stages": stages, "replicas": replicas}
        self.pipeline = _pipeline(one, setting, micro_batches, [not t for t in trained], trained=trained, **how)

    def value_and_grad(self, params: Any, *batch: Any) -> tuple[Array, Any]:
        """The mean loss over the batch, and its gradient in the structure of ``params``."""
        if self.setting.compile_only:
            raise ExecutionError("pipeline: only compiled", got="compile_only=True", fix="compile_only=False runs it")
        n = self.pipeline.micro_batches
        leaves, *data = (
            [as_value(x, "pipeline").numpy() for x in tree.flatten_up_to(t, a, "pipeline")]
            for t, a in zip(self._trees, (params, *batch), strict=True)
        )
        results, gradients = self.pipeline.run([*leaves, *(_cut(x, n) for xs in data for x in xs)])
        # "own-model" once the model of the chip has run it, before that "emitted".
        self.label = "own-model"
        losses = np.stack([r[0].numpy() for r in results])
        loss = np.asarray(losses.mean(dtype=np.promote_types(losses.dtype, np.float32)))
        back = [
            gradients[i].numpy().astype(x.dtype) if i in gradients else np.zeros_like(x) for i, x in enumerate(leaves)
        ]
        return wrap(loss), tree.unflatten(self._trees[0], [wrap(g) for g in back])

    def __str__(self) -> str:
        return str(self.pipeline)

    def _repr_html_(self) -> str:
        return self.pipeline._repr_html_()
