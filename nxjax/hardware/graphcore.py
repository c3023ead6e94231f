"""`nxjax.hardware.graphcore`: Graphcore IPUs as one manager object, over `nx.compile` and `nxjax.deploy.ipus`.

With IPUs and the Poplar SDK, models run on them; without, a model of the chip runs them and says so: cycles and memory
are estimates then, values are those that the codelets compute. Every result carries its label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Self, final

from nxjax.backends.evidence import Label
from nxjax.backends.ipu.detect import Hardware, hardware
from nxjax.backends.ipu.target import BuildOptions
from nxjax.deploy.ipus import BatchSearch, CompiledModel, IpuSetting, PipelinedTraining, best_batch, over_ipus, quickest
from nxjax.errors import ExecutionError, ParameterError
from nxjax.kernels.ipu.chip import system as system_of
from nxjax.trace.program import Program

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
        found = system_of(system)
        given = {
            "num_ipus": num_ipus, "precision": precision, "partials": "half" if enable_half_partials else "float",
            "available_memory_proportion": memory_proportion, "stochastic_rounding": stochastic_rounding,
            "compile_only": compile_only,
        }  # fmt: skip
        how = BuildOptions("GraphCoreManager", found, Program((), (), ()), given)
        if 1 < found.ipus < num_ipus:
            raise ParameterError(
                "GraphCoreManager: num_ipus", got=num_ipus, expected=f"1 to {found.ipus}, as {found.title} has"
            )
        self.num_ipus = num_ipus
        self.compile_only = how.compile_only
        self._system = replace(how.system, title=f"{num_ipus} x {found.chip.title}")
        self._options = how.options
        self._hardware: Hardware | None = None
        self._finalized = self._ran = False

    # --- life ---

    def initialize(self) -> bool:
        """Look for IPUs and get ready; True, on hardware or on the model of it. The first use does it too."""
        self._hardware, self._finalized = hardware(), False
        return True

    def finalize(self) -> None:
        """Let go of the devices; the manager can be initialized again."""
        self._hardware, self._finalized = None, True

    @property
    def is_initialized(self) -> bool:
        return self._hardware is not None

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *exc: object) -> None:
        self.finalize()

    def _ready(self, what: str) -> Hardware:
        if self._finalized:
            raise ExecutionError(f"{what}: the IPU manager was finalized", fix="call initialize() again")
        self._hardware = self._hardware or hardware()
        return self._hardware

    # --- devices ---

    @property
    def label(self) -> Label:
        """How far towards silicon results went: "hardware" once a model has run on IPUs, else "own-model"."""
        return "hardware" if self._ran else "own-model"

    def get_ipu_count(self) -> int:
        """How many IPUs models run on: those of this machine once one has run there, else those that are modelled."""
        found = self._ready("get_ipu_count")
        return found.ipus if self._ran else self.num_ipus

    def get_ipu_info(self) -> dict[str, Any]:
        """What models run on: the chip's figures, the label of results, and what of the hardware is here."""
        found, chip, o = self._ready("get_ipu_info"), self._system.chip, self._options
        return {
            "name": self._system.title, "label": self.label, "num_ipus": self.get_ipu_count(),
            "hardware_ipus": found.ipus, "hardware": found.reason, "sdk": found.sdk,
            "chip": chip.title, "architecture": chip.version, "tiles_per_ipu": chip.tiles,
            "memory_per_tile": chip.memory, "memory_per_ipu": chip.memory * chip.tiles,
            "workers_per_tile": chip.workers, "clock_hz": chip.clock, "precision": o.precision, "partials": o.partials,
            "memory_proportion": o.available_memory_proportion, "compile_only": self.compile_only,
        }  # fmt: skip

    # --- models ---

    def compile_model(
        self,
        model: Callable[..., Any],
        example_inputs: Any,
        execution: Literal["auto", "single", "replicated", "pipelined"] = "auto",
    ) -> CompiledModel:
        """The model compiled for the manager's IPUs, by `nxjax.deploy.ipus.over_ipus`, with its errors.

        Args:
            model: a `nxjax.nn.Module`, or a pure function of arrays.
            example_inputs: an array, or a tuple of the model's arguments; only their types matter.
            execution: how several IPUs share the work: shares of the batch ("replicated"), stages ("pipelined"), or
                one of them all ("single"). "auto" takes the first that is possible.
        """
        return over_ipus(model, _arguments(example_inputs), self._setting("compile_model"), execution)

    def optimize_model(self, model: Callable[..., Any], example_inputs: Any) -> CompiledModel:
        """As `compile_model`, with the share of tile memory for products that takes the fewest cycles."""
        return quickest(model, _arguments(example_inputs), self._setting("optimize_model"))

    def execute_model(self, compiled_model: CompiledModel, inputs: Any) -> Any:
        """Results of a compiled model for ``inputs``: an array, or a tuple of arguments."""
        self._ready("execute_model")
        if not isinstance(compiled_model, CompiledModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            got = type(compiled_model).__name__
            raise ParameterError(
                "execute_model: not a compiled model", got=got, expected="what compile_model or optimize_model gave"
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
        """The batch size with the most samples a second that fits; ``create_example_inputs`` makes its inputs.

        ``batch_sizes`` are tried in increasing order; a `TileMemoryError` says that not even the first one fits.
        """
        self._ready("find_batch_size")
        return best_batch(lambda n: self.compile_model(model, create_example_inputs(n)), batch_sizes)

    def pipeline(
        self, loss: Callable[..., Any], params: Any, *batch: Any, micro_batches: int, **how: Any
    ) -> PipelinedTraining:
        """``loss(params, *batch)`` with its gradient over the manager's IPUs, in stages: `PipelinedTraining`.

        It has ``value_and_grad(params, *batch)`` and prints stages, cycles, bubble and memory. ``how`` may be
        ``schedule``, ``recompute``, ``stages`` and ``replicas``.
        """
        return PipelinedTraining(loss, params, batch, self._setting("pipeline"), micro_batches, **how)

    def _setting(self, what: str) -> IpuSetting:
        found = self._ready(what)
        tries = found.usable and found.ipus >= self.num_ipus
        return IpuSetting(self._system, self._options, self.compile_only, tries)

    def __repr__(self) -> str:
        state = "initialized" if self.is_initialized else "not initialized"
        return f"GraphCoreManager({self.num_ipus} x {self._system.chip.title}, {self.label}, {state})"


def _arguments(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, tuple) else (inputs,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


_manager: GraphCoreManager | None = None


def get_graphcore_manager() -> GraphCoreManager:
    """The manager of this process, made and initialized at first use: one IPU, float32.

    >>> get_graphcore_manager() is get_graphcore_manager()
    True
    """
    global _manager
    _manager = _manager or GraphCoreManager()
    if not _manager.is_initialized:
        _manager.initialize()
    return _manager


__all__ = [
    "BatchSearch", "CompiledModel", "GraphCoreManager", "PipelinedTraining", "get_graphcore_manager",
    "ipu_unavailable_reason", "is_ipu_available",
]  # fmt: skip
