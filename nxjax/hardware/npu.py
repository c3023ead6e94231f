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
from nxjax.deploy.compile import compile as compiled
from nxjax.deploy.optimized import BatchSize, OptimizedModel, optimized
from nxjax.deploy.simulate import ANY, Run, on_grids, simulated, simulated_run
from nxjax.errors import ExecutionError, ParameterError
from nxjax.hardware.backend import ChipBackend
from nxjax.lower.npu.chips import CHIPS, ChipLimits
from nxjax.lower.npu.memory import check_limit, plan
from nxjax.nn.modules.base import Module
from nxjax.nn.modules.inputs import input_shape as shape_of
from nxjax.nn.modules.inputs import random_inputs
from nxjax.nn.modules.normalization import fold_batch_norms
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.vendors import chips

# Users' words for precisions, and the policy of `nx.quantize` for each; None computes in float.
PRECISIONS: Final[dict[str, str | None]] = {
    "float32": None, "fp32": None,
    "int8": "int8", "int16": "int16x8", "int16x8": "int16x8", "dynamic-int8": "dynamic-int8",
}  # fmt: skip
# What a model may be optimized for, and the observers of ranges of which the best is kept.
AIMS: Final = dict.fromkeys(("performance", "balanced", "accuracy", "memory"), ("minmax",)) | {
    "accuracy": ("minmax", "percentile", "mse")
}
# Batches of random numbers that stand in for calibration data.
DRAWS: Final = 16
# What a device computes first.
_PROBE: Final = (np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16),) * 2
# How many samples at once, by where a target's chips serve, and what these are.
_ADVICE: Final[dict[Site, tuple[int, str]]] = {
    "": (1, "no chip in particular"), "edge": (1, "a mobile or edge chip"), "data center": (16, "a data-center chip"),
}  # fmt: skip


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
class NPUBackend(ChipBackend):
    """An NPU of this machine, or its simulator while `nx.simulate` is on.

    Args:
        device: which of the machine's NPUs, counted from 0.
        precision: what float operands of single operations are computed in: ``"float32"``, ``"int8"`` or ``"int16"``.
            In an integer precision, operands are put on grids that their own values span (dynamic quantization).

    Raises:
        ExecutionError: (a RuntimeError) there is no NPU and no simulator is on.

    >>> with nx.simulate("npu"):
    ...     npu = NPUBackend()
    >>> npu.initialize(), npu.label
    (True, 'own-model')
    >>> npu.add(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]])).tolist()
    [[6, 8], [10, 12]]
    >>> npu.last_run.label
    'own-model'
    """

    _title = "NPU"

    def __init__(self, device: int = 0, precision: str = "float32") -> None:
        self.policy = policy_of("NPUBackend", precision)
        self.precision = precision
        self._simulation = simulated("npu")
        self._limit: int | None = None
        self._saving = False
        if self._simulation is None and chips.why_none():
            raise ExecutionError(
                "NPUBackend: no NPU to run on",
                got=chips.why_none(),
                expected="an NPU with its driver and its package, or a simulator",
                fix='turn the simulator on with nx.simulate("npu"), or compile for a chip elsewhere with nx.compile',
            )
        self.device = self._numbered("NPUBackend: device", device)

    @property
    def label(self) -> Label:
        """How far towards silicon this backend's results go at best; "hardware" once a first operation has run."""
        if self._simulation is None:
            return "hardware" if self._ready else "host"
        return "own-model" if self._rules.simulated else "host"

    @property
    def target(self) -> str | None:
        """The target of `nx.compile` that the chip, or the chip that is simulated, belongs to."""
        return chips.find()[self.device].kind.target if self._simulation is None else self._simulation.target

    @property
    def _rules(self) -> Any:
        return registry.get(self.target) if self.target else ANY

    def _open(self) -> None:
        """Opening a device is running something on it; some runtimes turn to the host in silence."""
        if self._simulation is not None:
            return
        if not self.target:
            raise ExecutionError("NPUBackend: nxjax compiles for no such chip", got=chips.find()[self.device].title)
        _, run = self._on_chip("add", jnp.add, [as_value(v, "initialize") for v in _PROBE], "int8")
        if run.label != "hardware":
            got = f"label {run.label!r}{': ' + run.reason if run.reason else ''}"
            fix = "look at nx.compile(f, target=...)(x).notes for what the vendor's runtime says"
            what = f"NPUBackend: {self.target} did not run a first operation on its chip"
            raise ExecutionError(what, got=got, fix=fix)

    def _on_chip(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        made = compiled(on_grids(f, policy, args), target=self._rules.name, verify=False)(*args)
        if self._limit is not None and made.graph is not None:
            check_limit(plan(made.graph), self._limit)
        if made.runs_on:
            made.verify([x.numpy() for x in args])
        y = made.run(*args)
        return y, Run(name, made.label, "" if made.label == "hardware" else "; ".join(made.notes))

    # --- devices ---

    def get_device_count(self) -> int:
        """How many NPUs can be used; 1 for a simulator."""
        return 1 if self._simulation is not None else sum(c.usable for c in chips.find())

    def get_device_info(self, index: int = 0) -> dict[str, Any]:
        """What is known of a device: name, vendor, place, what it computes in, and the label of its results."""
        self._numbered("get_device_info: index", index)
        known = self._rules
        found = {"target": self.target or None, "precision": known.precision, "memory_limit": self._limit}
        if self._simulation is not None:
            name = known.title if known is ANY else f"simulator of {known.title}"
            return {"name": name, "vendor": "nxjax", "label": self.label, **found}
        chip = chips.find()[index]
        kind, label = chip.kind, self.label if index == self.device else "host"
        known = registry.get(kind.target).precision if kind.target else ()
        found |= {"target": kind.target or None, "precision": known, "place": chip.place, "driver": chip.driver}
        return {"name": chip.title, "vendor": kind.vendor, "label": label, **found}

    # --- memory ---

    def set_memory_limit(self, limit: int | None) -> None:
        """Refuse, before it runs, whatever needs more than ``limit`` bytes of activations at once; None lifts it.

        It bounds operations, models that are optimized from now on, and every call of an optimized model.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("set_memory_limit: bytes", got=repr(limit), expected="a positive int, or None")
        self._limit = limit

    def enable_memory_optimization(self, enabled: bool = True) -> None:
        """Lay models out in less memory: nodes in an order that keeps less alive, results over their operands."""
        self._saving = bool(enabled)

    # --- operations and models ---

    def _run(self, name: str, f: Callable[..., Any], *args: Any) -> Array:
        self._needed(name)
        values = [as_value(x, name) for x in args]
        traced = next((x for x in values if isinstance(x, Tracer)), None)
        if traced is not None:
            what = f"{name}: single operations of an NPU run at once, and this operand has no value yet"
            fix = "take npu.optimize_model of the whole function, or nx.quantize, which composes with jit and vmap"
            raise ExecutionError(what, got=traced.type, fix=fix)
        if self._simulation is None:
            y, self.last_run = self._on_chip(name, f, values, self.policy)
        else:
            y, self.last_run = simulated_run(name, f, values, self.policy, self._rules, self._limit)
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

        Raises:
            MemoryLimitError: its activations do not fit the memory limit; the message names the largest tensors.
            UnsupportedOpsError: ops that no NPU has; PlacementError: ``strict`` and some are left to the host.
        """
        self._needed("optimize_model")
        if not callable(model):
            got = type(model).__name__
            raise ParameterError("optimize_model: needs a model", got=got, expected="a Module or a function")
        if optimize_for not in AIMS:
            raise ParameterError("optimize_model: optimize_for", got=repr(optimize_for), expected=", ".join(AIMS))
        policy = policy_of("optimize_model", precision)
        if quantize and policy is None:
            got, fix = f"precision={precision!r}", "pass quantize=False for a float precision"
            raise ParameterError("optimize_model: quantize", got=got, expected="int8 or int16", fix=fix)
        name, notes, data = target or self.target, list[str](), calibration_data
        if data is None:
            shape = tuple(input_shape) if input_shape is not None else shape_of(model)
            data = random_inputs(model, shape, DRAWS)
            if quantize:
                fix = "give calibration_data from the real task, or expect other accuracy than this"
                notes.append(f"calibrated on random numbers of shape {list(shape)}: {fix}")
        given = [data] if isinstance(data, (np.ndarray, Array)) else data
        return optimized(
            fold_batch_norms(model) if isinstance(model, Module) else model,
            (b if isinstance(b, tuple) else (b,) for b in given),
            registry.npu(name, "optimize_model") if name else ANY,
            policy if quantize else None,
            precision=precision if quantize else "float32",
            observers=AIMS[optimize_for],
            notes=notes,
            strict=strict,
            chip=self._simulation is None and target is None,
            limit=lambda: self._limit,
            saving=self._saving or optimize_for == "memory",
        )

    def advise_batch_size(self, model: Any = None, input_shape: Sequence[int] | None = None) -> BatchSize:
        """How many samples to run at once, with the reason (``.reason``).

        With a model, and a chip whose launch has a published cost: the batch from which on twice as many take nearly
        twice as long. Else a rule of thumb: chips of the edge are busy with one sample; those of data centers take 16.
        With a memory limit, as many of these as fit; a `MemoryLimitError` where not even one does.
        """
        advised, why = _ADVICE[self._rules.site]
        thumb, on, limit = f"{why}: {advised} at once, a rule of thumb", self._chip(), self._limit
        if model is None:
            return BatchSize(advised, f"{thumb}; with a model its cost is asked" if on is not None else thumb)
        if on is None and limit is None:
            return BatchSize(advised, thumb)
        shape = tuple(input_shape) if input_shape is not None else shape_of(model)
        made = self.optimize_model(model, input_shape=(1, *shape[1:]))
        if on is not None and (found := made.batch_size(shape[1:], on)) is not None:
            return found
        n, peak = made.fitting(shape[1:], advised)
        return BatchSize(n, f"{why}; {peak:,} of {limit:,} bytes with {n} at once" if limit is not None else thumb)

    def _chip(self) -> ChipLimits | None:
        """The cost model's figures of the chip, where it has them."""
        return CHIPS.get(self._rules.name) or CHIPS.get(f"{self._rules.name}-{getattr(self._rules, 'size', '')}")

    def __repr__(self) -> str:
        state = "ready" if self._ready else "not initialized"
        return f"NPUBackend({self.get_device_info(self.device)['name']}, {self.label}, {state})"


def policy_of(where: str, precision: str) -> str | None:
    """The policy of `nx.quantize` for a precision by a user's word."""
    if precision not in PRECISIONS:
        raise ParameterError(f"{where}: precision", got=repr(precision), expected=", ".join(PRECISIONS))
    return PRECISIONS[precision]


__all__ = ["AIMS", "BatchSize", "NPUBackend", "OptimizedModel", "is_npu_available", "npu_unavailable_reason"]
