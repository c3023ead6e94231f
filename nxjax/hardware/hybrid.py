"""Managers of several chips under the names that guides to hybrid execution use.

Each is a `nx.Hybrid`, `nx.MemoryPools`, session or generator with preset choices. Where a guide uses thresholds of
"efficiency", measured times decide here, and are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from typing import Any, Final, final

import numpy as np

import nxjax
from nxjax.backends.hybrid.plan import Plan
from nxjax.backends.hybrid.spec import Hybrid
from nxjax.backends.hybrid.trying import History
from nxjax.backends.memory.pool import MemoryPools
from nxjax.backends.memory.unified import UnifiedBuffer
from nxjax.errors import ParameterError, Shown
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.jit import jit
from nxjax.vendors.amd.thermal import ThermalMonitor
from nxjax.vendors.amd.vitisai_session import hybrid_session

# What guides call units.
_UNITS: Final = {"npu": "npu", "igpu": "gpu", "gpu": "gpu", "vulkan": "vulkan", "cpu": "cpu"}
_PRIORITIES: Final = {"low": "energy", "normal": "latency", "high": "latency", "batch": "throughput"}


def _function(operation: str | Callable[..., Any]) -> Callable[..., Any]:
    """A function, or the one of that name in `nxjax`, `nxjax.nn` or `nxjax.lax`."""
    if callable(operation):
        return operation
    for place in (nxjax, nxjax.nn, nxjax.lax):
        found = getattr(place, operation, None)
        if callable(found):
            return found
    expected = "a function, or the name of one, such as 'matmul'"
    raise ParameterError("hybrid: no such operation", got=repr(operation), expected=expected)


@final
class NPUResourceManager(Shown):
    """Runs operations on the NPU, the GPU and the CPU, in that order of preference, and on another if one fails.

    ``device`` is its `nx.Hybrid`, with ``sessions`` operations on the NPU at a time, events and plans.

    >>> manager = NPUResourceManager()
    >>> manager.execute_operation("matmul", ([[1.0, 2.0]], [[3.0], [4.0]])).tolist()
    [[11.0]]
    """

    def __init__(self, units: Sequence[str] = ("npu", "igpu", "cpu"), sessions: int = 3) -> None:
        named = [_UNITS.get(u, u) for u in units]
        self.device = Hybrid(*named, sessions={u: sessions for u in named if u == "npu"})
        self._jitted = cache(lambda f: jit(f, device=self.device))

    @property
    def backends(self) -> dict[str, Any]:
        """The available units, by name."""
        return {u.name: u for u in self.device.units}

    @property
    def missing(self) -> dict[str, str]:
        """Why the others are not."""
        return dict(self.device.missing)

    def execute_operation(self, operation: str | Callable[..., Any], data: Any) -> Any:
        """The result of ``operation`` for ``data``: one array, or a tuple of arguments."""
        given = data if isinstance(data, tuple) else (data,)
        return self._jitted(_function(operation))(*map(np.asarray, given))


@final
class IntelligentHybridScheduler(Shown):
    """Places operations by measured times and heat; ``current_workload`` is the last plan.

    >>> scheduler = IntelligentHybridScheduler(units=("cpu",))
    >>> plan = scheduler.schedule_operation("matmul", [(4, 8), (8, 2)])
    >>> plan.assignment, scheduler.execute("matmul", np.ones((1, 2)), np.ones((2, 1))).tolist()
    (('cpu',), [[2.0]])
    """

    def __init__(self, units: Sequence[str] = ("npu", "igpu", "cpu"), watts: Mapping[str, float] | None = None) -> None:
        self.units = tuple(_UNITS.get(u, u) for u in units)
        self.watts = dict(watts or {})
        self.thermal_monitor = ThermalMonitor()
        self.current_workload: Plan | None = None
        self._devices: dict[str, Hybrid] = {}

    @property
    def performance_history(self) -> History:
        """The measured times that decide."""
        return self._device("normal").history

    def _device(self, priority: str) -> Hybrid:
        objective = _PRIORITIES.get(priority)
        if objective is None:
            raise ParameterError("hybrid: no such priority", got=repr(priority), expected=", ".join(_PRIORITIES))
        if objective == "energy" and not self.watts:
            objective = "latency"  # nobody said what the units take
        if objective not in self._devices:
            watts = self.watts if objective == "energy" else None
            self._devices[objective] = Hybrid(*self.units, objective=objective, watts=watts)  # pyright: ignore
        return self._devices[objective]

    def schedule_operation(
        self, operation: str | Callable[..., Any], data_shape: Any, priority: str = "normal", dtype: Any = "float32"
    ) -> Plan:
        """Where an operation on arrays of a shape, or a list of shapes, would run: a plan to print.

        Args:
            priority: "normal" and "high": lowest latency; "batch": most inputs per second; "low": least energy, if
                ``watts`` are known.
        """
        shapes = data_shape if isinstance(data_shape, list) else [data_shape]
        zeros = [np.zeros(s, ShapeDtypeStruct((), dtype).dtype) for s in shapes]
        self.current_workload = self._device(priority).plan(_function(operation))(*zeros)
        return self.current_workload

    def execute(self, operation: str | Callable[..., Any], *data: Any, priority: str = "normal") -> Any:
        """The operation's result, from where its plan says."""
        return jit(_function(operation), device=self._device(priority))(*data)


@final
class UnifiedMemoryManager(Shown):
    """Pools of memory with limits per kind of unit, and buffers that several units share without a copy.

    >>> manager = UnifiedMemoryManager()
    >>> buffer = manager.allocate_unified_buffer(4096, "streaming")
    >>> buffer.nbytes, buffer.address % 4096, manager.memory_pools["npu"].limit == 2**30
    (4096, 0, True)
    """

    def __init__(self, **sizes: int | str | None) -> None:
        self.memory_pools = MemoryPools(**(sizes or {"npu": "1GB", "vulkan": "2GB", "system": "4GB"}))

    def allocate_unified_buffer(
        self, size: int | tuple[int, ...], access_pattern: str = "read_write", dtype: Any = "uint8"
    ) -> UnifiedBuffer:
        """A buffer of ``size`` bytes, or of a shape and dtype; see `nx.unified_buffer`.

        Args:
            access_pattern: "npu_primary", "gpu_primary", "streaming" (whole pages, which drivers import), "read_write"
                or "flexible".
        """
        shape = (size,) if isinstance(size, int) else tuple(size)
        return self.memory_pools.unified_buffer(shape, dtype, access=access_pattern)


@final
class VulkanNPUBridge(Shown):
    """Matrix products on the fastest of the NPU, a Vulkan device and the CPU.

    >>> bridge = VulkanNPUBridge()
    >>> bridge.hybrid_matrix_multiply([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """

    def __init__(self) -> None:
        self.device = Hybrid("npu", "vulkan", "cpu")
        self._multiply = jit(nxjax.matmul, device=self.device)

    def initialize_vulkan(self) -> bool:
        """Whether a Vulkan device is among the units; `why_no_vulkan` says why not."""
        return any(u.name.startswith("vulkan") for u in self.device.units)

    @property
    def why_no_vulkan(self) -> str:
        """Why there is none; empty if there is one."""
        return dict(self.device.missing).get("vulkan", "")

    def hybrid_matrix_multiply(self, a: Any, b: Any) -> Any:
        """``a @ b``."""
        return self._multiply(np.asarray(a), np.asarray(b))


@final
class RyzenAIHybridEngine(Shown):
    """ONNX models on AMD's NPU and the CPU through ONNX Runtime, with providers in order of priority.

    Options that the Vitis AI provider never had (``npu_config``, ...) are errors that name the replacement.
    """

    def __init__(self, execution_providers: Sequence[Any] | None = None) -> None:
        self.execution_providers = list(execution_providers or ("VitisAIExecutionProvider", "CPUExecutionProvider"))

    def create_hybrid_session(self, model: str | PathLike[str] | bytes) -> Any:
        """A session that reports where each node runs; see `nxjax.hardware.amd.hybrid_session`."""
        return hybrid_session(model, self.execution_providers)


@final
class OGANPUIntegration(Shown):
    """Text from a model folder of ONNX Runtime's generator; the provider "RyzenAI" needs AMD's own build."""

    def __init__(self, provider: str | None = None) -> None:
        self.provider = provider
        self.oga_session: Any = None

    def create_oga_session(self, model_path: str | PathLike[str]) -> Any:
        """Load the folder and return an object that runs it."""
        self.oga_session = nxjax.generation.load_genai(model_path, self.provider)
        return self.oga_session

    def generate_with_npu(self, prompt: str, max_tokens: int = 100) -> str:
        """The text that follows ``prompt``, greedily, of at most this many tokens."""
        return "".join(self.stream(prompt, max_tokens))

    def stream(self, prompt: str, max_tokens: int = 100) -> Iterator[str]:
        """The same, piece by piece."""
        if self.oga_session is None:
            raise ParameterError("oga: there is no session", fix="create_oga_session(folder) first")
        yield from self.oga_session.stream(prompt, max_tokens=max_tokens)
