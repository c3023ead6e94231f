"""The contract of a backend. One folder per backend; each declares what it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import ParameterError, Shown
from nxjax.trace.array import DeviceArray, DeviceBuffer
from nxjax.trace.core import Op
from nxjax.trace.mesh import Mesh
from nxjax.trace.program import Program
from nxjax.trace.sharding import NamedSharding, Sharding
from nxjax.trace.types import ArrayType

if TYPE_CHECKING:
    from nxjax.backends.evidence import Label


@final
class DeviceMemory(NamedTuple):
    """A memory that a device reaches.

    Attributes:
        kind: "device".
        device: whose it is.
    """

    kind: str
    device: Device


@final
class Device:
    """Something that can execute now: a platform, an index on it, and the backend that drives it.

    Args:
        platform: ``cpu``, ``gpu``, ``tpu``, ...
        id: its number, different for all devices of the platform in all processes.
        backend: what drives it.
        process_index: the process that it belongs to.
        details: gives further answers (``device_kind``, ``coords``, ``memory_stats``, ...) when they are asked for.
    """

    __slots__ = ("_details", "_hash", "backend", "id", "name", "platform", "process_index")

    def __init__(
        self, platform: str, id: int, backend: Backend, process_index: int = 0, details: Callable[[], Any] | None = None
    ) -> None:
        self.platform = platform
        self.id = id
        self.backend = backend
        self.process_index = process_index
        self._details = details
        # What counts its devices apart from others of the platform: a GPU may have two drivers.
        self.name = getattr(backend, "device_name", "") or platform
        self._hash = hash((self.name, id))

    def _detail(self, name: str, default: Any = None) -> Any:
        return default if self._details is None else getattr(self._details(), name, default)

    @property
    def device_kind(self) -> str:
        """The chip's own name, such as ``TPU v4``."""
        return str(self._detail("device_kind", self.platform))

    @property
    def local_hardware_id(self) -> int:
        """Its number among the devices of its own process."""
        return int(self._detail("local_hardware_id", self.id))

    @property
    def coords(self) -> tuple[int, ...] | None:
        """Where it stands in the network of its kind, where it has one (TPU)."""
        found = self._detail("coords")
        return None if found is None else tuple(found)

    @property
    def core_on_chip(self) -> int | None:
        return self._detail("core_on_chip")

    @property
    def slice_index(self) -> int | None:
        return self._detail("slice_index")

    @property
    def client(self) -> Backend:
        """The backend, under the name that JAX programs know."""
        return self.backend

    def addressable_memories(self) -> list[DeviceMemory]:
        """The memories that it reaches: its own alone."""
        return [self.default_memory()]

    def default_memory(self) -> DeviceMemory:
        """Its own memory."""
        return DeviceMemory("device", self)

    def memory(self, kind: str) -> DeviceMemory:
        """The memory of a kind; there is "device" alone.

        Raises:
            ParameterError: another kind.
        """
        if kind != "device":
            raise ParameterError(f"{self}: memory", got=repr(kind), expected="'device'")
        return self.default_memory()

    def memory_stats(self) -> dict[str, Any] | None:
        """Bytes in use and their peak, as far as the runtime counts them; None where nothing does.

        ``accounting`` says who counted: ``runtime`` (the device's own allocator) or ``live buffers`` (nxjax has looked
        at the arrays that exist; the peak is the largest that it has seen).
        """
        return self.backend.memory_stats(self)

    def trim(self, nbytes: int = 0) -> None:
        """Give free memory that is kept for later calls back to the system, but for ``nbytes`` of it."""
        self.backend.trim(self, nbytes)

    def is_available(self) -> bool:
        return self.backend.available()[0]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Device) and (self.name, self.id) == (other.name, other.id))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.name}:{self.id}"


@final
class ProgramPlacement(Shown):
    """Where a program runs: its devices in order, and how each argument and result is laid out over them.

    Attributes:
        devices: in the order of their numbers, which is that of the program's partitions.
        ins, outs: a sharding per flat argument and result; None leaves the choice to the compiler.
        mesh: of the first named sharding, else the one given, else one axis over the devices; what the compiler chooses
            is said in it.
    """

    __slots__ = ("_hash", "devices", "ins", "mesh", "outs")

    def __init__(
        self,
        devices: Sequence[Device],
        ins: Sequence[Sharding | None],
        outs: Sequence[Sharding | None],
        mesh: Mesh | None = None,
    ) -> None:
        self.devices = tuple(sorted(devices, key=lambda d: d.id))
        self.ins = tuple(ins)
        self.outs = tuple(outs)
        self._hash = hash((self.devices, self.ins, self.outs))
        for s in (*self.ins, *self.outs):
            if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh):
                self.mesh = s.mesh
                return
        self.mesh = mesh or Mesh(list(self.devices), ("devices",))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramPlacement) and (self.devices, self.ins, self.outs) == (
            other.devices,
            other.ins,
            other.outs,
        )

    def __hash__(self) -> int:
        return self._hash


class Executable(Shown, ABC):
    """A compiled program: takes and gives arrays, flat. `transforms.jit_stages.ExecutableProtocol` is its contract."""

    @abstractmethod
    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """The executor's own text of what it runs."""

    @property
    def is_native(self) -> bool:
        """Whether it is machine code, and no op of it runs by its NumPy meaning."""
        return False

    def cost_analysis(self) -> dict[str, float]:
        """Estimates such as ``flops`` and ``bytes accessed``; empty where the executor gives none."""
        return {}

    def memory_analysis(self) -> Any:
        return None

    def prepare(self) -> None:
        """Do now what may be left for the first runs: somebody compiles ahead of time."""
        return

    def ready(self) -> None:
        """Make the code of the next call now; a compiler may have left it for that."""
        return

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        """An executable for calls whose first arguments are always ``held``, and what it takes in their place.

        None: knowing them makes no difference.
        """
        return None

    def shortcut(self, jitted: Any, call: Any) -> None:
        """Told, now and then, that this runs again; see `transforms.jit_stages.ExecutableProtocol`."""
        return

    # Where arguments and results are, flat; empty where the executor knows one place only.
    input_shardings: tuple[Sharding, ...] = ()
    output_shardings: tuple[Sharding, ...] = ()


class Backend(Shown, ABC):
    """A way to run programs.

    Attributes:
        name: as in ``NXJAX_EXECUTOR`` and `nx.jit(device=...)`.
        platform: ``cpu``, ``gpu``, ``tpu``, ``npu`` or ``ipu``.
        label: what its results prove about the chip.
        priority: the highest available one is the default executor of its platform.
        reproducible: it keeps the promise of `config.reproducible`.
    """

    name: str
    platform: ClassVar[str]
    label: ClassVar[Label]
    priority: ClassVar[int] = 0
    reproducible: ClassVar[bool] = False
    # What its devices are called, where that is not the platform.
    device_name: ClassVar[str] = ""
    # JAX's name of what a client runs programs by; libraries treat some apart.
    runtime_type: ClassVar[str] = "nxjax"

    @property
    def listed(self) -> bool:
        """Whether its devices are listed unasked; a model of a chip is not, unless the user's settings name it."""
        return True

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

    def text(self, program: Program, donate: tuple[int, ...], dialect: str) -> str:
        """The text of one stage on the way to machine code: ``program``, ``stablehlo``, or one of the backend's own.

        Raises:
            ParameterError: no such stage.
        """
        if dialect == "program":
            return str(program)
        if dialect in ("stablehlo", "mhlo", "hlo"):
            from nxjax.backends import registry

            return registry.get("xla").lower(program, donate)
        raise ParameterError(
            f"{self.name}: a program has no text in this dialect",
            got=dialect,
            expected=", ".join(("program", "stablehlo", *self.dialects)),
        )

    # Stages of its own that `text` knows.
    dialects: ClassVar[tuple[str, ...]] = ()

    # --- several devices: only for backends that have them ---

    # Whether `compile_placed` and `put` know one device of it from another.
    places: ClassVar[bool] = False

    def compile_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> Executable:
        """An executable for given devices; its arguments and results lie as its shardings say.

        Raises:
            ParameterError: this backend runs programs on one device.
        """
        if len(placement.devices) > 1:
            raise ParameterError(
                f"{self.name}: runs a program on one device",
                got=f"{len(placement.devices)} devices: {', '.join(map(str, placement.devices))}",
                fix="install the executor that does: pip install 'nxjax[xla]', and leave NXJAX_EXECUTOR empty",
            )
        return self.compile(program, donate)

    def lower_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> str:
        """The text that `compile_placed` starts from."""
        return self.lower(program, donate)

    def put(self, x: DeviceArray, sharding: Sharding) -> DeviceBuffer | None:
        """The elements of ``x`` laid out by ``sharding`` over this backend's devices; None: host memory will do."""
        return None

    def assemble(self, blocks: Sequence[Any], type: ArrayType, sharding: Sharding) -> DeviceBuffer:
        """One array of blocks (NumPy, or buffers), one for each device of this process."""
        raise ParameterError(f"{self.name}: has no arrays over several devices")

    def blocks(self, buffer: DeviceBuffer) -> list[DeviceBuffer]:
        """The parts of a buffer over several devices, one for each device of this process."""
        return [buffer]

    def memory_stats(self, device: Device) -> dict[str, Any] | None:
        """See `Device.memory_stats`."""
        return None

    def trim(self, device: Device, nbytes: int) -> None:
        """See `Device.trim`."""

    def clear(self) -> None:
        """Give back memory that is kept for later calls, as far as nothing holds it."""
