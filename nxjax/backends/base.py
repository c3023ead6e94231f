"""The contract of a backend. One folder per backend; each declares what it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, final

from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Op
from nxjax.trace.program import Program
from nxjax.trace.types import ArrayType

# How much a result says about the chip: ran on it; on the vendor's simulator; compiled by the vendor's compiler; only
# written out in its format; ran on the host instead.
Label = Literal["hardware", "simulator", "vendor-compiled", "emitted", "host"]
LABELS: Final[tuple[Label, ...]] = ("hardware", "simulator", "vendor-compiled", "emitted", "host")


@final
class Device:
    """Something that can execute now: a platform, an index on it, and the backend that drives it."""

    __slots__ = ("backend", "id", "platform")

    def __init__(self, platform: str, id: int, backend: Backend) -> None:
        self.platform = platform
        self.id = id
        self.backend = backend

    @property
    def device_kind(self) -> str:
        return self.platform

    @property
    def process_index(self) -> int:
        return 0

    def is_available(self) -> bool:
        return self.backend.available()[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.platform, self.id) == (other.platform, other.id)

    def __hash__(self) -> int:
        return hash((self.platform, self.id))

    def __repr__(self) -> str:
        return f"{self.platform}:{self.id}"


class Executable(ABC):
    """A compiled program: takes and gives arrays, flat."""

    @abstractmethod
    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """The executor's own text of what it runs."""

    def cost_analysis(self) -> dict[str, float]:
        """Estimates such as ``flops`` and ``bytes accessed``; empty where the executor gives none."""
        return {}

    def memory_analysis(self) -> Any:
        return None


class Backend(ABC):
    """A way to run programs.

    Attributes:
        name: as in ``NXJAX_EXECUTOR`` and `nx.jit(device=...)`.
        platform: ``cpu``, ``gpu``, ``tpu``, ``npu`` or ``ipu``.
        label: what its results say about the chip.
        priority: the highest available one is the default executor of its platform.
    """

    name: ClassVar[str]
    platform: ClassVar[str]
    label: ClassVar[Label]
    priority: ClassVar[int] = 0

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether it can run here, and why not (or which version it is). Imports nothing heavy."""

    @abstractmethod
    def devices(self) -> list[Device]: ...

    def supports(self, op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[bool, str]:
        """Whether one op can run here, and why not."""
        return True, ""

    @abstractmethod
    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        """An executable for a program without consts."""

    @abstractmethod
    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        """The text that `compile` starts from."""
