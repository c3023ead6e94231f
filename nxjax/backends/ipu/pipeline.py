"""A loss, or a function, over several modelled IPUs in stages: placed by memory, scheduled, run with its gradients.

Every stage is a program of one IPU; micro-batches go through them as the schedule says, and the timeline takes each
stage's cycles and the links' bandwidth. What a run gives is what the whole function gives, up to the order of sums over
micro-batches. Knows programs; trees and names are for the faces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.backends.ipu.engine import IpuEngine
from nxjax.backends.ipu.executable import from_tiles, to_tiles
from nxjax.backends.ipu.model import CycleModel
from nxjax.config.forks import cached_property
from nxjax.display import page
from nxjax.errors import ExecutionError, ParameterError, TileMemoryError
from nxjax.kernels.ipu.chip import IpuChip, IpuSystem
from nxjax.kernels.ipu.host import runner
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.precision import in_half
from nxjax.lower.macs import macs
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.pipeline.schedule import Kind, Timeline, order, timed
from nxjax.lower.pipeline.stages import Stages, cut, nbytes
from nxjax.lower.pipeline.training import Half, Micro, halves
from nxjax.lower.trip_count import trip_counts_within
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import Elementwise, like
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined

Recompute = Literal["auto", True, False]
# Of a tile's memory, what parameters of a stage may take at most when places to cut are searched.
_PARAMETERS: Final = 0.5
# How often places to cut are searched, each time with the model's answer to the time before.
_TRIES: Final = 3
# For where to cut: cycles of a small vertex, multiply-accumulates of a tile and cycle, ops that are only a view.
_VERTEX: Final = 300
_RATE: Final = 8
_FREE: Final = frozenset(("reshape", "transpose", "broadcast_in_dim", "slice", "rev", "split", "copy", "stop_gradient"))


@final
class Direction:
    """One direction of a stage on one IPU: its program of tiles, what it costs, and what runs it."""

    def __init__(self, program: Program, system: IpuSystem, options: IpuOptions) -> None:
        self.program = in_half(program) if options.precision == "float16" else program
        self.model = CycleModel(lower(self.program, system, options, (), program.name))
        self._stochastic = options.stochastic_rounding

    @cached_property
    def engine(self) -> IpuEngine:
        made = self.model.program
        return IpuEngine(made, runner(made.codelets(), stochastic=self._stochastic))

    @property
    def cycles(self) -> int:
        # Streams from the host are not a stage's work: activations come over links, parameters stay.
        return self.model.cycles.total - self.model.cycles.host

    @property
    def code(self) -> int:
        """Bytes of code and vertices on the fullest tile."""
        kinds = self.model.memory.kinds
        return int((kinds["code"] + kinds["vertices"]).max())

    def __call__(self, xs: Sequence[Any]) -> list[Array]:
        inputs, types = self.model.program.inputs, self.program.out_types
        given = [to_tiles(_numpy(x), v.dtype) for x, v in zip(xs, inputs, strict=True)]
        return [wrap(from_tiles(y, t)) for y, t in zip(self.engine.run(given), types, strict=True)]


def _numpy(x: Any) -> np.ndarray[Any, Any]:
    return x.numpy() if isinstance(x, Array) else np.asarray(x)  # pyright: ignore[reportUnknownVariableType, reportAttributeAccessIssue]


@final
@dataclass(frozen=True)
class StageMemory:
    """Bytes of a stage's fullest tile.

    Attributes:
        program: the larger of both directions, as the model counts it: parameters, code and temporaries.
        other_code: the other direction's code, which is there as well.
        gradients: what gradients are added up in.
        in_flight: activations of the micro-batches that wait for their backward.
        available: of a tile.
    """

    program: int
    other_code: int
    gradients: int
    in_flight: int
    available: int

    @property
    def peak(self) -> int:
        return self.program + self.other_code + self.gradients + self.in_flight

    @property
    def fits(self) -> bool:
        return self.peak <= self.available


@final
class PlacedStage:
    """A stage on its IPU."""

    def __init__(
        self, half: Half, program: Program, kept: int, system: IpuSystem, options: IpuOptions, training: bool
    ) -> None:
        one = replace(system, ipus=1)
        self.half = half
        self.kept = kept
        self.forward = Direction(half.forward if training else program, one, options)
        self.backward = Direction(half.backward, one, options) if training else None

    @property
    def cycles(self) -> int:
        """Of one micro-batch, both directions."""
        return self.forward.cycles + (self.backward.cycles if self.backward else 0)

    def memory(self, tiles: int, available: int, gradients: int, in_flight: int) -> StageMemory:
        models = [self.forward] if self.backward is None else [self.forward, self.backward]
        peaks = [d.model.memory.peak for d in models]
        codes = [d.code for d in models]
        first = int(np.argmax(peaks))
        other = sum(codes) - codes[first]
        waiting = max(in_flight - 1, 0) * (self.half.stash + self.kept)
        return StageMemory(peaks[first], other, -(-gradients // tiles), -(-waiting // tiles), available)


def cycles(e: Equation, chip: IpuChip) -> float:
    """About what an equation takes on one IPU: phases with their syncs, bytes through the exchange, products.

    Coarse, and fast: it decides where to cut; what the stages then take is the model's to say.
    """
    inner = trip_counts_within(e, lambda i: cycles(i, chip))
    if inner is not None:
        return inner
    moved = sum(nbytes(a.type) for a in (*e.inputs, *e.outputs)) / chip.tiles
    work = macs(e)
    if work:
        # Operands, the product, and mostly a reduction of its parts.
        return 2 * (chip.sync_cycles + _VERTEX) + moved / chip.exchange_bytes + work / (chip.tiles * _RATE)
    if e.op.name in _FREE:
        return 0.0
    if isinstance(e.op, Elementwise):
        # Mostly part of a vertex with its neighbours, on elements that are there.
        return _VERTEX / 2 + moved
    return chip.sync_cycles + _VERTEX + moved / chip.exchange_bytes + moved


@final
class Pipeline:
    """A function in stages over the IPUs of a system.

    Args:
        program: of the whole; for training its first result is the loss of one micro-batch, a scalar.
        system: its ``ipus`` bound the number of stages times replicas.
        options: of the lowering.
        micro_batches: how many go through in one run.
        batched: which inputs come in micro-batches; the others are parameters, the same for all.
        trained: which inputs get a gradient; none for inference.
        schedule: "1f1b" or "gpipe".
        recompute: keep only a stage's inputs until its backward and run its forward again; "auto" does so if the
            stages fit no other way.
        stages: how many; by default the fewest that fit.
        replicas: copies of the pipeline, each with its share of the micro-batches.

    Raises:
        TileMemoryError: it fits in no number of stages; names the stage and its largest tensors.
        ParameterError: more stages times replicas than IPUs, or micro-batches that replicas do not divide.
    """

    def __init__(
        self,
        program: Program,
        system: IpuSystem,
        options: IpuOptions | None = None,
        *,
        micro_batches: int,
        batched: Sequence[bool],
        trained: Sequence[bool] = (),
        schedule: Kind = "1f1b",
        recompute: Recompute = "auto",
        stages: int | None = None,
        replicas: int = 1,
    ) -> None:
        if replicas < 1 or micro_batches % replicas:
            raise ParameterError("pipeline: micro-batches per replica", got=f"{micro_batches} over {replicas} replicas")
        most = system.ipus // replicas
        if not 1 <= (stages or 1) <= most:
            raise ParameterError(
                "pipeline: more stages than IPUs",
                got=f"{stages} stages, {replicas} replicas",
                expected=f"{system.ipus} IPUs",
            )
        self.system = system
        self.options = options or IpuOptions()
        self.program = dead_code_eliminated(inlined(program))
        self.micro_batches = micro_batches
        self.batched = tuple(batched)
        self.trained = tuple(trained) or (False,) * len(program.inputs)
        self.training = any(self.trained)
        self.schedule: Kind = schedule
        self.replicas = replicas
        self.recompute = False
        self.notes: list[str] = []
        self._place(most if stages is None else stages, stages is None, recompute)

    # --- placement ---

    def _place(self, most: int, search: bool, recompute: Recompute) -> None:
        tries = [False, True] if recompute == "auto" and self.training else [recompute is True]
        failure: TileMemoryError | None = None
        for again in tries:
            for count in range(1, most + 1) if search else [most]:
                try:
                    self._placed(count, again)
                except TileMemoryError as error:
                    failure = error
                    continue
                if again and recompute == "auto":
                    self.notes.append("activations are recomputed: they do not fit otherwise")
                return
        assert failure is not None
        raise failure

    def _placed(self, count: int, recompute: bool) -> None:
        """Cut into ``count`` stages; where the model finds them uneven, cut again by what it says of them."""
        self.recompute = recompute
        chip = self.system.chip
        weights = {e.outputs[0]: cycles(e, chip) for e in self.program.equations if e.outputs}
        best: tuple[float, Stages, list[PlacedStage], list[StageMemory]] | None = None
        failure: TileMemoryError | None = None
        for _ in range(_TRIES if count > 1 else 1):
            try:
                stages, placed, memory = self._cut(count, weights)
            except TileMemoryError as error:
                failure = error
                break
            took = [p.cycles for p in placed]
            if best is None or max(took) < best[0]:
                best = (max(took), stages, placed, memory)
            for stage, cost in zip(stages.stages, took, strict=True):
                own = [e.outputs[0] for e in stage.program.equations if e.outputs]
                factor = cost / max(sum(weights[v] for v in own), 1.0)
                weights.update((v, weights[v] * factor) for v in own)
        if best is None:
            assert failure is not None
            raise failure
        _, self.stages, self.placed, self.memory = best

    def _cut(self, count: int, weights: dict[Var, float]) -> tuple[Stages, list[PlacedStage], list[StageMemory]]:
        chip = self.system.chip
        limit = chip.memory * chip.tiles * _PARAMETERS
        cost = lambda e: weights[e.outputs[0]] if e.outputs else 0.0
        stages = cut(self.program, min(count, max(len(self.program.equations), 1)), cost, limit)
        if self.training:
            parts = halves(stages, self.trained, self.recompute)
        else:
            parts = [Half(s.program, s.program, len(s.program.outputs), (), (), (), 0) for s in stages.stages]
        n = len(parts)
        timeline = timed(self._order(n), [1.0] * n, [2.0] * n)
        placed: list[PlacedStage] = []
        memory: list[StageMemory] = []
        for k, (half, stage) in enumerate(zip(parts, stages.stages, strict=True)):
            kept = sum(
                nbytes(t)
                for s, t in zip(stage.sources, stage.program.in_types, strict=True)
                if s.kind == "stage" or self.batched[s.index]
            )
            made = PlacedStage(half, stage.program, kept, self.system, self.options, self.training)
            gradients = sum(nbytes(stage.program.in_types[i]) for i in half.wanted if stage.sources[i].kind == "input")
            found = made.memory(chip.tiles, chip.memory, gradients, timeline.in_flight(k))
            placed.append(made)
            memory.append(found)
            self._check(k, made, found)
        return stages, placed, memory

    def _check(self, k: int, made: PlacedStage, found: StageMemory) -> None:
        if found.fits:
            return
        for d in (made.forward, made.backward):
            if d is not None:
                d.model.memory.check()
        error = TileMemoryError(
            f"ipu: stage {k} of the pipeline needs more memory per tile than there is",
            got=f"{found.peak:,} bytes: {found.program:,} of its program, {found.other_code:,} of code, "
            f"{found.gradients:,} of gradients, {found.in_flight:,} of activations in flight",
            expected=f"at most {found.available:,}",
            fix='more IPUs, smaller micro-batches, recompute=True, schedule="1f1b", or precision="float16"',
        )
        error.needed, error.available = found.peak, found.available
        raise error

    def _order(self, stages: int) -> list[list[Any]]:
        return order(self.schedule, stages, self.micro_batches // self.replicas, self.training)

    # --- the model's time ---

    @cached_property
    def timeline(self) -> Timeline:
        """One replica's run, in cycles."""
        forward = [float(p.forward.cycles) for p in self.placed]
        backward = [float(p.backward.cycles) if p.backward else 0.0 for p in self.placed]
        return timed(self._order(len(self.placed)), forward, backward, self._transfers())

    def _transfers(self) -> list[float]:
        """Cycles of a micro-batch's activations over the link behind each stage."""
        chip = self.system.chip
        found: list[float] = []
        for k in range(len(self.placed) - 1):
            # What later stages read of this one or of earlier ones passes this link.
            read = {
                (s.stage, s.index)
                for later in self.stages.stages[k + 1 :]
                for s in later.sources
                if s.kind == "stage" and s.stage <= k
            }
            moved = sum(nbytes(self.stages.stages[s].program.outputs[i].type) for s, i in read)
            found.append(moved * chip.clock / chip.link_bandwidth)
        return found

    @property
    def reduction(self) -> float:
        """Cycles in which replicas add up their gradients: a ring, 2 (n - 1) / n of the bytes over a link.

        Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
        """
        n, chip = self.replicas, self.system.chip
        size = max(
            (
                sum(nbytes(s.program.in_types[i]) for i in p.half.wanted)
                for s, p in zip(self.stages.stages, self.placed, strict=True)
            ),
            default=0,
        )
        return 2 * (n - 1) / n * size * chip.clock / chip.link_bandwidth if self.training else 0.0

    @property
    def cycles(self) -> float:
        return self.timeline.span + self.reduction

    @property
    def seconds(self) -> float:
        return self.cycles / self.system.chip.clock

    @property
    def bubble(self) -> float:
        """The share of the IPUs' time in which they wait for each other."""
        return self.timeline.bubble

    # --- running ---

    def run(self, inputs: Sequence[Any]) -> tuple[list[list[Array]], dict[int, Array]]:
        """All micro-batches.

        Args:
            inputs: of the whole program; batched ones have the micro-batches in a leading dimension.

        Returns:
            Results of each micro-batch; input -> its gradient, the mean over micro-batches.
        """
        self._checked(inputs)
        micros = [
            Micro(
                self.stages,
                [p.half for p in self.placed],
                [x[m] if batched else x for x, batched in zip(inputs, self.batched, strict=True)],
            )
            for m in range(self.micro_batches)
        ]
        share = self.micro_batches // self.replicas
        for r in range(self.replicas):
            # In the order of the timeline, so that no stage runs before what it needs.
            slots = sorted((s for row in self.timeline.slots for s in row), key=lambda s: (s.begin, s.end))
            for slot in slots:
                task, micro = slot.task, micros[r * share + slot.task.micro]
                stage = self.placed[task.stage]
                if task.direction == "forward":
                    micro.forward(task.stage, lambda _, xs, d=stage.forward: d(xs))
                else:
                    backward = stage.backward
                    assert backward is not None
                    micro.backward(task.stage, lambda _, xs, d=backward: d(xs), self._seed())
        return [m.results() for m in micros], self._gradients(micros)

    def _checked(self, inputs: Sequence[Any]) -> None:
        types = self.program.in_types
        if len(inputs) != len(types):
            raise ExecutionError("pipeline: wrong number of inputs", got=len(inputs), expected=len(types))
        for i, (x, t, batched) in enumerate(zip(inputs, types, self.batched, strict=True)):
            wanted = (self.micro_batches, *t.shape) if batched else t.shape
            if tuple(x.shape) != wanted:
                raise ExecutionError(f"pipeline: input {i} has another shape", got=tuple(x.shape), expected=wanted)

    def _seed(self) -> Array:
        loss = self.stages.outputs[0]
        t = self.stages.stages[loss.stage].program.outputs[loss.index].type
        half = self.options.precision == "float16" and t.dtype == dtypes.float32
        return wrap(np.ones((), np.float16 if half else t.dtype))

    def _gradients(self, micros: Sequence[Micro]) -> dict[int, Array]:
        found: dict[int, Array] = {}
        for m in micros:
            for i, g in m.gradients.items():
                found[i] = add(found[i], g) if i in found else g
        return {i: mul(g, like(g, 1.0 / self.micro_batches)) for i, g in found.items()}

    # --- what it says ---

    def lines(self) -> list[str]:
        """Stages with their cycles and memory, then the whole."""
        title, kind = self.system.title, self.schedule if self.training else "inference"
        head = f"{len(self.placed)} stages x {self.replicas} replicas on {title} (model)"
        rows = [f"{head}, {self.micro_batches} micro-batches, {kind}"]
        for k, (p, m) in enumerate(zip(self.placed, self.memory, strict=True)):
            back = f", backward {p.backward.cycles:,}" if p.backward else ""
            flight = f", {self.timeline.in_flight(k)} micro-batches in flight" if self.training else ""
            bytes_ = f"{m.peak:,} of {m.available:,} bytes per tile"
            rows.append(f"  stage {k}: forward {p.forward.cycles:,} cycles{back}; {bytes_}{flight}")
        rows.append(f"  {self.cycles:,.0f} cycles, {self.seconds * 1e3:.3f} ms a run; bubble {self.bubble:.1%}")
        return [*rows, *(f"  {n}" for n in self.notes)]

    def svg(self) -> str:
        """The timeline drawn."""
        return self.timeline.svg()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return page.page(page.text(str(self)), page.scroll(self.svg()))
