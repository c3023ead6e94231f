"""A model as it runs on IPUs: one of them, several with a share of the batch each, or several in stages.

What `GraphCoreManager.compile_model` gives. Everything here is `nx.compile` and `Pipeline` with choices made; what was
chosen, and what the result costs, stands in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np

from nxjax.backends.evidence import Label
from nxjax.backends.ipu.pipeline import Pipeline
from nxjax.backends.ipu.poplar import PoplarProject
from nxjax.deploy.artifact import Artifact
from nxjax.deploy.compile import compile as compiled
from nxjax.display import page
from nxjax.errors import ExecutionError, ParameterError, Shown, TileMemoryError
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.pipeline.schedule import Kind
from nxjax.numpy.creation import asarray
from nxjax.trace import tree
from nxjax.trace.array import type_of
from nxjax.trace.core import Array
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

Execution = Literal["single", "replicated", "pipelined"]
# Micro-batches per stage with which a pipeline is busy most of the time.
DEPTH = 4


@final
@dataclass(frozen=True)
class ManagerSetting:
    """What a manager was made with.

    Attributes:
        system: IPUs, and how many.
        options: of the lowering.
        compile_only: nothing is run.
        hardware: IPUs are listed here, and the SDK's compiler answers: what fits one of them is tried there.
    """

    system: IpuSystem
    options: IpuOptions
    compile_only: bool
    hardware: bool


@final
@dataclass(eq=False)
class CompiledModel:
    """A model compiled for IPUs: call it like the model.

    Attributes:
        function: the model.
        execution: "single", "replicated" (each IPU takes its share of the batch) or "pipelined" (stages).
        label: "emitted" until it has run; then "hardware" where IPUs ran it, "own-model" where a model of the chip did.
        cycles, seconds: of one call, as the model has them.
        memory: bytes of the fullest tile, on each IPU that is used.
        memory_available: bytes of one tile.
        artifact: what `nx.compile` made, for one IPU.
        pipeline: the stages, of several.
        notes: what was chosen.
    """

    function: Callable[..., Any]
    execution: Execution
    setting: ManagerSetting
    signature: ModelSignature
    cycles: float
    seconds: float
    memory: tuple[int, ...]
    memory_available: int
    artifact: Artifact | None = None
    pipeline: Pipeline | None = None
    notes: list[str] = field(default_factory=list[str])
    label: Label = "emitted"

    @property
    def ipus(self) -> int:
        """How many IPUs it uses."""
        return len(self.memory)

    def __call__(self, *inputs: Any) -> Any:
        """The model's results for inputs of the shapes that it was compiled for."""
        if self.setting.compile_only:
            raise ExecutionError(
                "execute_model: this model was only compiled",
                got="compile_only=True",
                fix="make the manager with compile_only=False to run models",
            )
        leaves = self.signature.leaves(inputs)
        if self.pipeline is None:
            assert self.artifact is not None
            if self.setting.hardware:
                found = self.signature.result(self._on_hardware(leaves))
                self.label = "hardware"
                return found
            found = self.artifact.run(*inputs)
            self.label = "own-model"
            return found
        found = self._in_stages(leaves, self.pipeline)
        # Stages run on the model, whatever the machine has.
        self.label = "own-model"
        return found

    def _in_stages(self, leaves: Sequence[Array], pipeline: Pipeline) -> Any:
        n = pipeline.micro_batches
        if n == 1:
            (whole,), _ = pipeline.run([x[None] for x in leaves])
            return self.signature.result(whole)
        results, _ = pipeline.run([x.reshape(n, x.shape[0] // n, *x.shape[1:]) for x in leaves])
        joined = [np.concatenate([r[i].numpy() for r in results]) for i in range(len(results[0]))]
        return self.signature.result(joined)

    def _on_hardware(self, leaves: Sequence[Array]) -> list[np.ndarray[Any, Any]]:
        assert self.artifact is not None
        program = self.artifact.analysis.program
        given = [x.numpy().astype(v.dtype, copy=False) for x, v in zip(leaves, program.inputs, strict=True)]
        return PoplarProject(program).run(given, "ipu")

    def project(self) -> PoplarProject:
        """The Poplar C++ project of a model on one IPU.

        Raises:
            ParameterError: it is spread over several IPUs.
        """
        if self.artifact is None:
            raise ParameterError("project: the model is spread over several IPUs", got=self.execution)
        return PoplarProject(self.artifact.analysis.program)

    def lines(self) -> list[str]:
        """What was made of the model, in words."""
        over = f"{self.ipus} IPU{'s' * (self.ipus > 1)}"
        head = f"{self.setting.system.title}: {self.execution} on {over}, label {self.label}"
        peak = max(self.memory)
        figures = f"{self.cycles:,.0f} cycles, {self.seconds * 1e3:.3f} ms a call (model)"
        rows = [head, f"  {figures}; {peak:,} of {self.memory_available:,} bytes on the fullest tile"]
        if self.pipeline is not None:
            rows += ["  " + line for line in self.pipeline.lines()]
        return [*rows, *(f"  note: {n}" for n in self.notes)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        made = self.pipeline if self.pipeline is not None else self.artifact.analysis if self.artifact else None
        return page.page(page.text(str(self)), page.scroll(made.svg()) if made is not None else "")


@final
class ModelSignature(Shown):
    """Trees and types of a model's inputs and results.

    Args:
        function: of arrays or trees of them.
        inputs: examples, or `ShapeDtypeStruct`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.function = function
        found, self._tree = tree.flatten(tuple(inputs))
        self.types = [type_of(x, "compile_model") for x in found]
        self._out: list[tree.TreeDef] = []
        self._parts: dict[int, bool] = {}

    def program(self, batch: int | None = None) -> Program:
        """The function's program; with ``batch``, for so many samples in the leading dimension of every input."""

        def flat(*xs: Array) -> Sequence[Any]:
            ys, out = tree.flatten(self.function(*tree.unflatten(self._tree, xs)))
            self._out[:] = [out]
            return [asarray(y) for y in ys]

        types = [t if batch is None else ArrayType((batch, *t.shape[1:]), t.dtype) for t in self.types]
        return stage(flat, types, getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def batch(self) -> int:
        """Samples of a call: the leading dimension that all inputs have; 0 if they differ."""
        sizes = {t.shape[0] if t.shape else 0 for t in self.types}
        return sizes.pop() if len(sizes) == 1 else 0

    def by_samples(self, parts: int) -> bool:
        """Whether the samples in the leading dimension of inputs and results may go through in so many parts.

        Shapes alone do not say it: a mean over the batch, a sort or a reversal keeps them. So the function is run on
        random samples, at once and in parts.
        """
        if parts not in self._parts:
            self._parts[parts] = bool(self.batch) and not self.batch % parts and self._apart(parts)
        return self._parts[parts]

    def _apart(self, parts: int) -> bool:
        n = self.batch // parts
        whole = self.program().out_types
        try:
            part = self.program(n).out_types
        except Exception:
            # It takes no other number of samples, for whatever reason: a product of two inputs, for one.
            return False
        if len(whole) != len(part) or any(
            t.shape[:1] != (self.batch,) or p != ArrayType((n, *t.shape[1:]), t.dtype, t.weak)
            for t, p in zip(whole, part, strict=True)
        ):
            return False
        draw = np.random.default_rng(0)
        # Large values too, for what depends on a threshold.
        return parts == 1 or all(self._same(parts, [_random(draw, t, size) for t in self.types]) for size in (1, 30))

    def _same(self, parts: int, xs: Sequence[np.ndarray[Any, Any]]) -> bool:
        """Whether the function gives for ``xs`` what it gives for their parts."""

        def results(values: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
            ys = tree.flatten(self.function(*tree.unflatten(self._tree, [asarray(v) for v in values])))[0]
            return [np.asarray(asarray(y).numpy()) for y in ys]

        with np.errstate(all="ignore"):
            whole = results(xs)
            cut = [results(p) for p in zip(*(np.split(x, parts) for x in xs), strict=True)]
            return all(_close(y, np.concatenate(ps)) for y, ps in zip(whole, zip(*cut, strict=True), strict=True))

    def leaves(self, inputs: Sequence[Any]) -> list[Array]:
        found, structure = tree.flatten(tuple(inputs))
        if structure != self._tree:
            raise ParameterError("execute_model: another structure of inputs", got=structure, expected=self._tree)
        values = [asarray(x) for x in found]
        for i, (x, t) in enumerate(zip(values, self.types, strict=True)):
            if x.shape != t.shape:
                raise ParameterError(f"execute_model: input {i}", got=x.shape, expected=t.shape)
        return values

    def result(self, ys: Sequence[Any]) -> Any:
        if not self._out:
            self.program()
        return tree.unflatten(self._out[0], [asarray(y) for y in ys])


def _random(draw: np.random.Generator, t: ArrayType, size: int) -> np.ndarray[Any, Any]:
    if t.dtype.kind in "biu":
        # Indices that any table of two rows has.
        return draw.integers(0, 2, t.shape).astype(t.dtype)
    return (draw.standard_normal(t.shape) * size).astype(t.dtype)


def _close(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Equal but for the order of sums."""
    if x.dtype.kind in "biu":
        return np.array_equal(x, y)
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    x, y = x.astype(wide), y.astype(wide)
    known = np.abs(x[np.isfinite(x)])
    tolerance = 1e-4 if known.size == 0 else 1e-4 * max(float(known.max()), 1e-30)
    return np.allclose(x, y, rtol=1e-3, atol=tolerance, equal_nan=True)


def _check_mean(loss: Callable[..., Sequence[Any]], types: Sequence[ArrayType], params: int) -> None:
    """Refuse a loss that every sample given twice doubles: parts of a batch cannot be averaged then."""
    draw = np.random.default_rng(0)
    given = [_random(draw, t, 1) for t in types]
    twice = [x if i < params else np.concatenate([x, x]) for i, x in enumerate(given)]
    with np.errstate(all="ignore"):
        try:
            one, two = (float(loss(*map(asarray, xs))[0]) for xs in (given, twice))
        except Exception:
            # It takes no other number of samples, so that it cannot be told.
            return
    if np.isfinite(one) and np.isfinite(two) and abs(one) > 1e-6 and abs(two - 2 * one) < 1e-3 * abs(one):
        raise ParameterError(
            "pipeline: the loss is a sum over samples, micro-batches are averaged",
            got="twice the loss for twice the samples",
            expected="a mean over the samples of a batch",
            fix="take the mean, and multiply the result by the batch size if the sum is wanted",
        )


def make(function: Callable[..., Any], inputs: Sequence[Any], setting: ManagerSetting, execution: str) -> CompiledModel:
    """``function`` compiled for the IPUs of ``setting``.

    Args:
        execution: "auto", or one of `Execution`. "auto" uses one IPU of one; of several, shares of the batch where the
            model fits one IPU and treats samples apart, one IPU if it fits but does not, else stages.

    Raises:
        TileMemoryError: it fits in no way; names the largest tensors and their lines.
        ParameterError: an execution that the model's shapes do not allow.
    """
    known = ("auto", "single", "replicated", "pipelined")
    if execution not in known:
        raise ParameterError("compile_model: execution", got=repr(execution), expected=", ".join(known))
    if not callable(function):
        raise ParameterError("compile_model: model", got=type(function).__name__, expected="a function or a Module")
    signature = ModelSignature(function, inputs)
    ipus = setting.system.ipus
    if execution == "single" or (execution == "auto" and ipus == 1):
        return _single(signature, inputs, setting)
    if execution == "replicated" and not signature.by_samples(ipus):
        raise ParameterError(
            "compile_model: the batch cannot be shared out",
            got=f"inputs {', '.join(map(str, signature.types))} over {ipus} IPUs",
            expected="a leading dimension of samples, the same in inputs and results, that the IPUs divide; "
            "a result that depends on its own sample only",
            fix='execution="single" or "pipelined"',
        )
    if execution != "pipelined":
        try:
            replicas = next((n for n in range(ipus, 1, -1) if signature.by_samples(n)), 1)
            if replicas == 1:
                made = _single(signature, inputs, setting)
                made.notes.append(f"one of {ipus} IPUs is used: the batch cannot be shared out")
                return made
            return _staged(signature, setting, "replicated", 1, replicas, replicas)
        except TileMemoryError:
            if execution == "replicated":
                raise
    micros = next((n for n in range(DEPTH * ipus, 0, -1) if n == 1 or signature.by_samples(n)), 1)
    if micros == 1 and not signature.by_samples(1):
        # Without a dimension of samples there is one micro-batch: the whole call.
        return _whole(signature, setting)
    stages = None if execution == "auto" else ipus
    return _staged(signature, setting, "pipelined", stages, 1, micros)


def _single(signature: ModelSignature, inputs: Sequence[Any], setting: ManagerSetting) -> CompiledModel:
    o = setting.options
    made = compiled(
        signature.function,
        target=f"ipu-{setting.system.name}",
        verify=False,
        num_ipus=1,
        precision=o.precision,
        partials=o.partials,
        available_memory_proportion=o.available_memory_proportion,
        stochastic_rounding=o.stochastic_rounding,
        compile_only=setting.compile_only,
    )(*inputs)
    analysis = made.analysis
    return CompiledModel(
        signature.function,
        "single",
        setting,
        signature,
        analysis.cycles.total,
        analysis.cycles.seconds,
        (analysis.memory.peak,),
        analysis.memory.available,
        artifact=made,
        notes=list(made.notes),
    )


def _staged(
    signature: ModelSignature,
    setting: ManagerSetting,
    execution: Execution,
    stages: int | None,
    replicas: int,
    micros: int,
) -> CompiledModel:
    program = signature.program(signature.batch // micros)
    pipeline = Pipeline(
        program,
        setting.system,
        setting.options,
        micro_batches=micros,
        batched=[True] * len(program.inputs),
        stages=stages,
        replicas=replicas,
    )
    return _of_pipeline(signature, setting, execution, pipeline)


def _whole(signature: ModelSignature, setting: ManagerSetting) -> CompiledModel:
    program = signature.program()
    pipeline = Pipeline(program, setting.system, setting.options, micro_batches=1, batched=[True] * len(program.inputs))
    return _of_pipeline(signature, setting, "pipelined", pipeline)


def _of_pipeline(
    signature: ModelSignature, setting: ManagerSetting, execution: Execution, pipeline: Pipeline
) -> CompiledModel:
    memory = tuple(m.peak for m in pipeline.memory) * pipeline.replicas
    return CompiledModel(
        signature.function,
        execution,
        setting,
        signature,
        pipeline.cycles,
        pipeline.seconds,
        memory,
        setting.system.chip.memory,
        pipeline=pipeline,
        notes=list(pipeline.notes),
    )


@final
class PipelinedTraining(Shown):
    """Losses and gradients of a function over several IPUs in stages.

    Args:
        loss: ``loss(params, *batch)`` gives a scalar, a mean over the samples of the batch.
        params: a tree of arrays.
        batch: examples of the other arguments, with samples in the leading dimension.
        setting: IPUs and options.
        micro_batches: into how many parts a batch is cut; gradients are added up over them.
        schedule, recompute, stages, replicas: see `Pipeline`.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        batch: Sequence[Any],
        setting: ManagerSetting,
        micro_batches: int,
        schedule: Kind = "1f1b",
        recompute: Literal["auto", True, False] = "auto",
        stages: int | None = None,
        replicas: int = 1,
    ) -> None:
        if isinstance(micro_batches, bool) or not isinstance(micro_batches, int) or micro_batches < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("pipeline: micro_batches", got=repr(micro_batches), expected="an int, at least 1")
        if recompute not in ("auto", True, False):
            raise ParameterError("pipeline: recompute", got=repr(recompute), expected="'auto', True, False")
        leaves, self._params = tree.flatten(params)
        data, self._batch = tree.flatten(tuple(batch))
        self._count = len(leaves)
        self._micros = micro_batches
        types = [type_of(x, "pipeline") for x in leaves]
        parts: list[ArrayType] = []
        for t in (type_of(x, "pipeline") for x in data):
            if not t.shape or t.shape[0] % micro_batches:
                raise ParameterError(
                    "pipeline: the batch does not divide into micro-batches", got=f"{t} in {micro_batches} parts"
                )
            parts.append(ArrayType((t.shape[0] // micro_batches, *t.shape[1:]), t.dtype))

        def flat(*xs: Array) -> Sequence[Any]:
            p, b = tree.unflatten(self._params, xs[: self._count]), tree.unflatten(self._batch, xs[self._count :])
            return [asarray(loss(p, *b))]

        program = stage(flat, [*types, *parts], getattr(loss, "__name__", "loss"))
        if micro_batches > 1:
            _check_mean(flat, [*types, *parts], self._count)
        self.setting = setting
        self._ran = False
        self.pipeline = Pipeline(
            program,
            setting.system,
            setting.options,
            micro_batches=micro_batches,
            batched=[False] * self._count + [True] * len(parts),
            trained=[True] * self._count + [False] * len(parts),
            schedule=schedule,
            recompute=recompute,
            stages=stages,
            replicas=replicas,
        )

    @property
    def label(self) -> Label:
        """ "own-model" once the model of the chip has run it, before that "emitted"."""
        return "own-model" if self._ran else "emitted"

    def value_and_grad(self, params: Any, *batch: Any) -> tuple[Array, Any]:
        """The mean loss over the batch, and its gradient in the structure of ``params``."""
        if self.setting.compile_only:
            raise ExecutionError("pipeline: only compiled", got="compile_only=True", fix="compile_only=False runs it")
        leaves = [asarray(x) for x in tree.flatten_up_to(self._params, params, "pipeline: params")]
        data = [asarray(x) for x in tree.flatten_up_to(self._batch, tuple(batch), "pipeline: batch")]
        n = self._micros
        cut = [x.reshape(n, x.shape[0] // n, *x.shape[1:]) for x in data]
        results, gradients = self.pipeline.run([*leaves, *cut])
        self._ran = True
        loss = sum((r[0] for r in results), asarray(0.0)) / n
        found = [gradients[i] if i in gradients else asarray(np.zeros(x.shape, x.dtype)) for i, x in enumerate(leaves)]
        back = [g.astype(x.dtype) for g, x in zip(found, leaves, strict=True)]
        return loss, tree.unflatten(self._params, back)

    def __str__(self) -> str:
        return str(self.pipeline)

    def _repr_html_(self) -> str:
        return self.pipeline._repr_html_()
