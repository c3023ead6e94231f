"""`nxjax.hardware.npu`: NPUs as one backend object, whichever vendor made them.

With a chip, operations and models run on it through its vendor's runtime. Without one, making a backend is an error
that says why, unless `nx.simulate` puts a simulator in its place. Every result says where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Label
from nxjax.backends.target import Site
from nxjax.errors import (
    ExecutionError,
    NxError,
    ParameterError,
    TracerArrayConversionError,
    UnexpectedTracerError,
)
from nxjax.hardware.npu_ops import Chip, OpsEngine, Run, Simulator, TensorOperations, policy_of
from nxjax.hardware.optimize import AIMS, OptimizedModel, Wish, best_batch, input_shape, most, optimize
from nxjax.hardware.simulate import simulated
from nxjax.lower.npu.chips import CHIPS
from nxjax.lower.npu.chips import ChipLimits as Figures
from nxjax.lower.npu.memory import MemoryLimitError
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.vendors import chips

# What a device computes first.
_PROBE: Final = (np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16),) * 2
# How many samples at once, by where a target's chips serve, and what these are.
_ADVICE: Final[dict[Site, tuple[int, str]]] = {
    "": (1, "no chip in particular"),
    "edge": (1, "a mobile or edge chip"),
    "data center": (16, "a data-center chip"),
}


def is_npu_available() -> bool:
    """Whether this machine has an NPU that nxjax can run on. `npu_unavailable_reason` says why not.

    >>> is_npu_available() == (npu_unavailable_reason() == "")
    True
    """
    return not chips.why_none()


def npu_unavailable_reason() -> str:
    """Why `is_npu_available` is False; empty where it is True."""
    return chips.why_none()


@final
class BatchSize(int):
    """A number of samples to run at once, with the reason for it."""

    reason: str

    def __new__(cls, value: int, reason: str) -> BatchSize:
        made = super().__new__(cls, value)
        made.reason = reason
        return made


@final
class NPUBackend(TensorOperations):
    """An NPU of this machine, or its simulator while `nx.simulate` is on.

    Args:
        device: which of the machine's NPUs, counted from 0.
        precision: what float operands of single operations are computed in: ``"float32"``, ``"int8"`` or ``"int16"``.
            In an integer precision, operands are put on grids that their own values span (dynamic quantization).

    Raises:
        ExecutionError: (a RuntimeError) there is no NPU and no simulator is on.

    >>> import nxjax as nx
    >>> with nx.simulate("npu"):
    ...     npu = NPUBackend()
    >>> npu.initialize(), npu.label
    (True, 'own-model')
    >>> npu.add(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]])).tolist()
    [[6, 8], [10, 12]]
    >>> npu.last_run.label
    'own-model'
    """

    def __init__(self, device: int = 0, precision: str = "float32") -> None:
        self.policy = policy_of("NPUBackend", precision)
        self.precision = precision
        self.device = device
        self.error = ""
        self.last_run: Run | None = None
        self._simulation = simulated("npu")
        self._engine: OpsEngine | None = None
        self._limit: int | None = None
        self._saving = False
        if self._simulation is None and chips.why_none():
            raise ExecutionError(
                "NPUBackend: no NPU to run on",
                got=chips.why_none(),
                expected="an NPU with its driver and its package, or a simulator",
                fix='turn the simulator on with nx.simulate("npu"), or compile for a chip elsewhere with nx.compile',
            )
        self._numbered("NPUBackend: device", device)

    @property
    def label(self) -> Label:
        """How far towards silicon this backend's results go at best; "hardware" once a first operation has run."""
        if self._simulation is None:
            return "host" if self._engine is None else "hardware"
        name = self._simulation.target
        return "own-model" if name is None or registry.get(name).simulated else "host"

    @property
    def target(self) -> str | None:
        """The target of `nx.compile` that the chip, or the chip that is simulated, belongs to."""
        return chips.find()[self.device].kind.target if self._simulation is None else self._simulation.target

    def initialize(self) -> bool:
        """Make the device ready; False if that fails, with the reason in ``error``."""
        if self._engine is not None:
            return True
        try:
            self._engine = self._opened()
        except NxError as failure:
            self.error = str(failure)
            return False
        return True

    def _opened(self) -> OpsEngine:
        name = self.target
        if self._simulation is not None:
            return Simulator(None if name is None else registry.npu(name, "NPUBackend"), lambda: self._limit)
        if not name:
            raise ExecutionError("NPUBackend: nxjax compiles for no such chip", got=chips.find()[self.device].title)
        engine = Chip(name, lambda: self._limit)
        # Opening a device is running something on it; some runtimes turn to the host in silence.
        _, run = engine.run("add", jnp.add, [as_value(v, "initialize") for v in _PROBE], policy_of("", "int8"))
        if run.label != "hardware":
            raise ExecutionError(
                f"NPUBackend: {name} did not run a first operation on its chip",
                got=f"label {run.label!r}{': ' + run.reason if run.reason else ''}",
                fix="look at nx.compile(f, target=...)(x).notes for what the vendor's runtime says",
            )
        return engine

    def _ready(self, what: str) -> OpsEngine:
        if self._engine is None:
            raise ExecutionError(
                f"{what}: the NPU backend is not initialized",
                got=self.error or "initialize() has not been called",
                fix="call npu.initialize() first; it gives False where the device does not start",
            )
        return self._engine

    # --- devices ---

    def get_device_count(self) -> int:
        """How many NPUs can be used; 1 for a simulator."""
        return 1 if self._simulation is not None else sum(c.usable for c in chips.find())

    def _numbered(self, what: str, index: Any) -> None:
        count = self.get_device_count()
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise ParameterError(what, got=repr(index), expected=f"an int, from 0 to {count - 1}")

    def get_device_info(self, index: int = 0) -> dict[str, Any]:
        """What is known of a device: name, vendor, place, what it computes in, and the label of its results.

        Raises:
            ParameterError: no such device.
        """
        self._numbered("get_device_info: index", index)
        if self._simulation is not None:
            name = self._simulation.target
            known = registry.get(name) if name else None
            return {
                "name": f"simulator of {known.title}" if known else "NPU simulator",
                "vendor": "nxjax",
                "label": self.label,
                "target": name,
                "precision": known.precision if known else ("int8", "int16x8"),
                "memory_limit": self._limit,
            }
        chip = chips.find()[index]
        known = registry.get(chip.kind.target) if chip.kind.target else None
        return {
            "name": chip.title,
            "vendor": chip.kind.vendor,
            "label": self.label if index == self.device else "host",
            "target": chip.kind.target or None,
            "place": chip.place,
            "driver": chip.driver,
            "precision": known.precision if known else (),
            "memory_limit": self._limit,
        }

    # --- memory ---

    def set_memory_limit(self, limit: int | None) -> None:
        """Refuse, before it runs, whatever needs more than ``limit`` bytes of activations at once; None lifts it.

        It bounds operations, models that are optimized from now on, and every call of an optimized model.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0):
            raise ParameterError("set_memory_limit: bytes", got=repr(limit), expected="a positive int, or None")
        self._limit = limit

    def enable_memory_optimization(self, enabled: bool = True) -> None:
        """Lay models out in less memory: nodes in an order that keeps less alive, results over their operands."""
        self._saving = bool(enabled)

    # --- operations and models ---

    def _run(self, name: str, f: Callable[..., Any], *args: Any) -> Array:
        engine = self._ready(name)
        values = [as_value(x, name) for x in args]
        try:
            y, self.last_run = engine.run(name, f, values, self.policy)
        except (TracerArrayConversionError, UnexpectedTracerError) as error:
            traced = next((x for x in values if isinstance(x, Tracer)), None)
            if traced is None:
                raise
            raise ExecutionError(
                f"{name}: single operations of an NPU run at once, and this operand has no value yet",
                got=traced.type,
                fix="take npu.optimize_model of the whole function, or nx.quantize, which composes with jit and vmap",
            ) from error
        return y

    def optimize_model(
        self,
        model: Any,
        quantize: bool = True,
        precision: str = "int8",
        optimize_for: str = "performance",
        calibration_data: Iterable[Any] | None = None,
        input_shape: Sequence[int] | None = None,
        target: str | None = None,
        strict: bool = False,
    ) -> OptimizedModel:
        """The model as it runs on this NPU: batch norms folded, quantized, lowered, laid out in memory, placed.

        Args:
            model: a `nxjax.nn.Module`, or a pure function of arrays.
            quantize: compute in ``precision``; False keeps float32.
            precision: ``"int8"``; ``"int16"`` (16-bit activations, 8-bit weights) for accuracy; or ``"dynamic-int8"``,
                whose ranges are those of each call's own values: it needs no calibration, and no NPU computes it whole.
            optimize_for: ``"performance"`` (or ``"balanced"``); ``"accuracy"``, which tries several ways to find ranges
                and keeps the best; ``"memory"``, which keeps fewer activations alive.
            calibration_data: batches (arrays or tuples of arguments) from the real task. Without them random numbers
                stand in, and a note says so.
            input_shape: of one input, with its batch, where neither data nor layers say it.
            target: compile for this target of `nx.compile` instead of the backend's own.
            strict: raise if any op would not run on the target.

        Returns:
            An `OptimizedModel`: call it like the model; it prints where each op runs and what memory it takes.

        Raises:
            MemoryLimitError: its activations do not fit the memory limit; the message names the largest tensors.
            UnsupportedOpsError: ops that no NPU has; PlacementError: ``strict`` and some are left to the host.
        """
        self._ready("optimize_model")
        wish = Wish(quantize, precision, optimize_for, calibration_data, input_shape, strict)
        chip = self._simulation is None and target is None
        return optimize(model, wish, target or self.target, chip, lambda: self._limit, self._saving)

    def advise_batch_size(self, model: Any = None, input_shape: Sequence[int] | None = None) -> BatchSize:
        """How many samples to run at once, with the reason (``.reason``).

        With a model, and a chip that nxjax has a cost model of: the batch from which on twice as many take nearly twice
        as long. Else a rule of thumb: chips of phones and of the edge answer one sample at a time best, as their
        arithmetic is busy with one; chips of data centers take 16 (`Target.site` says which a target's are). With a
        memory limit, as many of these as fit.

        Raises:
            MemoryLimitError: not even one sample fits.
        """
        advised, why = _ADVICE[registry.get(self.target).site if self.target else ""]
        thumb, on = f"{why}: {advised} at once, a rule of thumb", self._chip()
        if model is None:
            return BatchSize(advised, f"{thumb}; with a model its cost is asked" if on is not None else thumb)
        shape = tuple(input_shape) if input_shape is not None else _shape_of(model)
        if on is not None:
            made = self.optimize_model(model, input_shape=(1, *shape[1:]))
            found = best_batch(made, shape[1:], on, lambda: self._limit, self._saving)
            if found is not None:
                return BatchSize(found[0], f"{on.title}: {found[1]}")
        if self._limit is None:
            return BatchSize(advised, thumb)
        peaks: dict[int, int] = {}

        def fits(batch: int) -> bool:
            try:
                peaks[batch] = self.optimize_model(model, input_shape=(batch, *shape[1:])).memory.peak
            except MemoryLimitError:
                if batch == 1:
                    raise
                return False
            return True

        # Not even one is an error.
        found = advised if fits(advised) or not fits(1) else most(fits, advised)
        return BatchSize(found, f"{why}; {peaks[found]:,} of {self._limit:,} bytes with {found} at once")

    def _chip(self) -> Figures | None:
        """The cost model's figures of the chip, where it has them."""
        if not self.target:
            return None
        size = getattr(registry.get(self.target), "size", "")
        return CHIPS.get(self.target) or CHIPS.get(f"{self.target}-{size}")

    def __repr__(self) -> str:
        state = "ready" if self._engine is not None else "not initialized"
        return f"NPUBackend({self.get_device_info(self.device)['name']}, {self.label}, {state})"


_shape_of = input_shape  # a method has a parameter of that name

__all__ = ["AIMS", "BatchSize", "NPUBackend", "OptimizedModel", "is_npu_available", "npu_unavailable_reason"]
