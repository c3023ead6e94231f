"""`nxjax.hardware.graphcore`: Graphcore IPUs as one manager object.

With IPUs and the Poplar SDK, models run on them; without, a model of the chip runs them and says so: cycles and memory
are estimates then, values are those that the codelets compute. Every result carries its label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, final

from nxjax.backends.evidence import Label
from nxjax.backends.ipu.detect import Hardware, hardware
from nxjax.errors import ExecutionError, ParameterError, TileMemoryError
from nxjax.hardware.graphcore_model import CompiledModel, ManagerSetting, PipelinedTraining, make
from nxjax.kernels.ipu.chip import IpuSystem, system
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.pipeline.schedule import Kind

PRECISIONS: Final = ("float32", "float16", "mixed")
# Shares of a tile's memory that `optimize_model` tries for the temporaries of one product.
PROPORTIONS: Final = (0.1, 0.2, 0.4, 0.6, 0.8)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def is_ipu_available() -> bool:
    """Whether this machine has an IPU and the Poplar SDK to drive it. `ipu_unavailable_reason` says why not.

    >>> is_ipu_available() == (ipu_unavailable_reason() == "")
    True
    """
    return hardware().usable


def ipu_unavailable_reason() -> str:
    """Why `is_ipu_available` is False; empty where it is True."""
    found = hardware()
    return "" if found.usable else found.reason


@final
@dataclass(frozen=True)
class BatchSearch:
    """What `find_batch_size` tried.

    Attributes:
        best: the batch size with the most samples a second, of those that fit.
        tried: per batch size its cycles and peak bytes per tile; None where it does not fit.
        compiled: the model compiled for the best one.
    """

    best: int
    tried: dict[int, tuple[float, int] | None]
    compiled: CompiledModel

    def __str__(self) -> str:
        rows = [
            f"  {n:>6}: {'does not fit' if found is None else f'{found[0]:,.0f} cycles, {found[1]:,} bytes per tile'}"
            for n, found in self.tried.items()
        ]
        return "\n".join([f"best batch size {self.best}", *rows])


@final
class GraphCoreManager:
    """Compiles models for IPUs and runs them.

    Args:
        num_ipus: how many IPUs models may use.
        precision: ``"float32"``; ``"float16"``: everything; ``"mixed"``: operands of products in half, all else float.
        memory_proportion: how much of a tile's memory one product may take for its temporaries, 0 to 1.
        enable_half_partials: sums of products of halves are held in half between blocks of 16.
        compile_only: compile and report, run nothing.
        system: which IPUs: ``"bow"``, ``"gc200"``, ``"gc2"`` or a system such as ``"pod16"``, whose IPUs bound
            ``num_ipus``.
        stochastic_rounding: floats become halves up or down at random, right on average.

    Raises:
        ParameterError: a value out of its range; says which are allowed.

    >>> import nxjax as nx
    >>> model = nx.nn.Sequential(nx.nn.Linear(8, 4), nx.nn.ReLU())
    >>> with GraphCoreManager(num_ipus=1) as ipu:
    ...     compiled = ipu.compile_model(model, nx.ones((2, 8)))
    ...     y = ipu.execute_model(compiled, nx.ones((2, 8)))
    >>> y.shape, compiled.execution
    ((2, 4), 'single')
    """

    def __init__(
        self,
        num_ipus: int = 1,
        precision: Literal["float32", "float16", "mixed"] = "float32",
        memory_proportion: float = 0.6,
        enable_half_partials: bool = False,
        compile_only: bool = False,
        system: str = "bow",
        stochastic_rounding: bool = False,
    ) -> None:
        if not isinstance(num_ipus, int) or isinstance(num_ipus, bool) or num_ipus < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("GraphCoreManager: num_ipus", got=repr(num_ipus), expected="an int, at least 1")
        if precision not in PRECISIONS:
            raise ParameterError("GraphCoreManager: precision", got=repr(precision), expected=", ".join(PRECISIONS))
        number = isinstance(memory_proportion, (int, float)) and not isinstance(memory_proportion, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not number or not 0 < memory_proportion <= 1:
            raise ParameterError(
                "GraphCoreManager: memory_proportion", got=repr(memory_proportion), expected="in (0, 1]"
            )
        self._system = _system(system, num_ipus)
        self._options = IpuOptions(
            precision,
            "float16" if enable_half_partials else "float32",
            float(memory_proportion),
            bool(stochastic_rounding),
        )
        self.num_ipus = num_ipus
        self.compile_only = bool(compile_only)
        self._hardware: Hardware | None = None
        self._finalized = False
        self._ran = False

    # --- life ---

    def initialize(self) -> bool:
        """Look for IPUs and get ready; True, on hardware or on the model of it. The first use does it too."""
        self._hardware = hardware()
        self._finalized = False
        return True

    def finalize(self) -> None:
        """Let go of the devices; the manager can be initialized again."""
        self._hardware = None
        self._finalized = True

    @property
    def is_initialized(self) -> bool:
        return self._hardware is not None

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *exc: object) -> None:
        self.finalize()

    def _ready(self, what: str) -> Hardware:
        if self._hardware is None:
            if self._finalized:
                raise ExecutionError(f"{what}: the IPU manager was finalized", fix="call initialize() again")
            self.initialize()
            assert self._hardware is not None
        return self._hardware

    # --- devices ---

    @property
    def label(self) -> Label:
        """How far towards silicon results went: "hardware" once a model has run on IPUs, else "own-model"."""
        return "hardware" if self._ran else "own-model"

    @property
    def _tries_hardware(self) -> bool:
        found = self._hardware or hardware()
        return found.usable and found.ipus >= self.num_ipus

    def get_ipu_count(self) -> int:
        """How many IPUs models run on: those of this machine once one has run there, else those that are modelled."""
        found = self._ready("get_ipu_count")
        return found.ipus if self.label == "hardware" else self.num_ipus

    def get_ipu_info(self) -> dict[str, Any]:
        """What models run on: the chip's figures, the label of results, and what of the hardware is here."""
        found = self._ready("get_ipu_info")
        chip = self._system.chip
        return {
            "name": self._system.title,
            "label": self.label,
            "num_ipus": self.get_ipu_count(),
            "hardware_ipus": found.ipus,
            "hardware": found.reason,
            "sdk": found.sdk,
            "chip": chip.title,
            "architecture": chip.version,
            "tiles_per_ipu": chip.tiles,
            "memory_per_tile": chip.memory,
            "memory_per_ipu": chip.memory * chip.tiles,
            "workers_per_tile": chip.workers,
            "clock_hz": chip.clock,
            "precision": self._options.precision,
            "partials": self._options.partials,
            "memory_proportion": self._options.available_memory_proportion,
            "compile_only": self.compile_only,
        }

    # --- models ---

    def compile_model(
        self,
        model: Callable[..., Any],
        example_inputs: Any,
        execution: Literal["auto", "single", "replicated", "pipelined"] = "auto",
    ) -> CompiledModel:
        """The model compiled for the manager's IPUs.

        Args:
            model: a `nxjax.nn.Module`, or a pure function of arrays.
            example_inputs: an array, or a tuple of the model's arguments; only their types matter.
            execution: how several IPUs share the work. "auto": one IPU of one; of several, each takes a share of the
                batch if the model fits one IPU and treats samples apart; one IPU if it fits but does not; else
                consecutive stages, as few as fit.

        Raises:
            TileMemoryError: it does not fit; names tile, tensors and the lines they come from.
            UnsupportedOpsError: operations that tiles cannot run, all of them.
        """
        self._ready("compile_model")
        return make(model, _arguments(example_inputs), self._setting(), execution)

    def optimize_model(self, model: Callable[..., Any], example_inputs: Any) -> CompiledModel:
        """As `compile_model`, with the share of tile memory for products that takes the fewest cycles."""
        self._ready("optimize_model")
        found: CompiledModel | None = None
        failure: TileMemoryError | None = None
        rows: list[str] = []
        for share in dict.fromkeys((self._options.available_memory_proportion, *PROPORTIONS)):
            setting = replace(self._setting(), options=replace(self._options, available_memory_proportion=share))
            try:
                made = make(model, _arguments(example_inputs), setting, "auto")
            except TileMemoryError as error:
                failure = error
                rows.append(f"{share:g}: does not fit")
                continue
            rows.append(f"{share:g}: {made.cycles:,.0f} cycles")
            if found is None or (made.cycles, max(made.memory)) < (found.cycles, max(found.memory)):
                found = made
        if found is None:
            assert failure is not None
            raise failure
        chosen = found.setting.options.available_memory_proportion
        found.notes.append(f"memory_proportion {chosen:g} was chosen of {'; '.join(rows)}")
        return found

    def execute_model(self, compiled_model: CompiledModel, inputs: Any) -> Any:
        """Results of a compiled model for ``inputs``: an array, or a tuple of arguments."""
        self._ready("execute_model")
        if not isinstance(compiled_model, CompiledModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError(
                "execute_model: not a compiled model",
                got=type(compiled_model).__name__,
                expected="what compile_model or optimize_model gave",
            )
        found = compiled_model(*_arguments(inputs))
        self._ran |= compiled_model.label == "hardware"
        return found

    def find_batch_size(
        self,
        model: Callable[..., Any],
        create_example_inputs: Callable[[int], Any],
        batch_sizes: Sequence[int] = BATCH_SIZES,
    ) -> BatchSearch:
        """The batch size with the most samples a second that fits.

        Args:
            model: as for `compile_model`.
            create_example_inputs: makes the inputs of a batch size.
            batch_sizes: which to try, in increasing order; the search ends with the first that does not fit.

        Raises:
            TileMemoryError: not even the first one fits.
        """
        self._ready("find_batch_size")
        tried: dict[int, tuple[float, int] | None] = {}
        best: tuple[float, int, CompiledModel] | None = None
        for n in batch_sizes:
            try:
                made = self.compile_model(model, create_example_inputs(n))
            except TileMemoryError:
                tried[n] = None
                if best is None:
                    raise
                break
            tried[n] = (made.cycles, max(made.memory))
            rate = n / made.cycles
            if best is None or rate > best[0]:
                best = (rate, n, made)
        if best is None:
            raise ParameterError("find_batch_size: no batch sizes to try", got=batch_sizes)
        return BatchSearch(best[1], tried, best[2])

    def pipeline(
        self,
        loss: Callable[..., Any],
        params: Any,
        *batch: Any,
        micro_batches: int,
        schedule: Kind = "1f1b",
        recompute: Literal["auto", True, False] = "auto",
        stages: int | None = None,
        replicas: int = 1,
    ) -> PipelinedTraining:
        """``loss(params, *batch)`` with its gradient over the manager's IPUs, in stages.

        Args:
            loss: gives a scalar, the mean over the batch's samples.
            params: a tree of arrays, which get gradients.
            *batch: examples of the other arguments.
            micro_batches: into how many parts a batch is cut; gradients are accumulated over them.
            schedule: "1f1b" or "gpipe".
            recompute: keep stages' inputs only and compute activations again; "auto" if nothing else fits.
            stages: how many; by default the fewest that fit.
            replicas: copies of the pipeline that share the micro-batches.

        Returns:
            An object with ``value_and_grad(params, *batch)`` that prints stages, cycles, bubble and memory.
        """
        self._ready("pipeline")
        return PipelinedTraining(
            loss, params, batch, self._setting(), micro_batches, schedule, recompute, stages, replicas
        )

    def _setting(self) -> ManagerSetting:
        return ManagerSetting(self._system, self._options, self.compile_only, self._tries_hardware)

    def __repr__(self) -> str:
        state = "initialized" if self.is_initialized else "not initialized"
        return f"GraphCoreManager({self.num_ipus} x {self._system.chip.title}, {self.label}, {state})"


def _system(name: str, ipus: int) -> IpuSystem:
    found = system(name)
    if found.ipus > 1 and ipus > found.ipus:
        raise ParameterError(
            "GraphCoreManager: num_ipus", got=ipus, expected=f"1 to {found.ipus}, as {found.title} has"
        )
    return replace(found, ipus=ipus, title=f"{ipus} x {found.chip.title}")


def _arguments(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, tuple) else (inputs,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


_manager: GraphCoreManager | None = None


def get_graphcore_manager() -> GraphCoreManager:
    """The manager of this process, made and initialized at first use: one IPU, float32.

    >>> get_graphcore_manager() is get_graphcore_manager()
    True
    """
    global _manager
    if _manager is None:
        _manager = GraphCoreManager()
    if not _manager.is_initialized:
        _manager.initialize()
    return _manager


__all__ = [
    "BatchSearch",
    "CompiledModel",
    "GraphCoreManager",
    "PipelinedTraining",
    "get_graphcore_manager",
    "ipu_unavailable_reason",
    "is_ipu_available",
]
