"""Devices of a TPU slice that is not here: what a `Mesh` is made of, so that a program can be sharded over it.

They can be compiled for and hold no data. Their order and coordinates are the compiler's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, final

from nxjax.backends.base import Backend, Executable, ProgramPlacement
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.chips import Topology, parsed
from nxjax.errors import ExecutionError, ParameterError, ShardingError
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.sharding import Partitioning
from nxjax.trace.program import Program


@final
class CompileOnlyDevice:
    """One device of a slice.

    Attributes:
        id: its number in the slice.
        device_kind: as the compiler calls its chip.
        coords: of its chip in the slice.
        core_on_chip: which of its chip's cores it is.
        process_index: the host that it would hang on.
        topology: the slice.
    """

    __slots__ = ("coords", "core_on_chip", "device_kind", "id", "process_index", "topology")
    platform = "tpu"

    def __init__(self, topology: Topology, said: dict[str, Any]) -> None:
        self.topology = topology
        self.id: int = said["id"]
        self.device_kind: str = said["kind"]
        self.coords: tuple[int, ...] = tuple(said["coords"])
        self.core_on_chip: int = said["core"]
        self.process_index: int = said["process"]

    @property
    def backend(self) -> SliceBackend:
        """What compiles for it."""
        return backend_of(self.topology)

    @property
    def local_hardware_id(self) -> int:
        return self.core_on_chip

    def memory_stats(self) -> None:
        """None: it has no memory here."""

    def is_available(self) -> bool:
        """Always False: it can be compiled for."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileOnlyDevice) and (self.id, self.topology) == (other.id, other.topology)

    def __hash__(self) -> int:
        return hash((self.id, self.topology))

    def __repr__(self) -> str:
        return f"{self.topology}[{self.id}]"


@final
class TopologyDescription:
    """A slice: its devices, in the compiler's order."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.devices = [CompileOnlyDevice(topology, said) for said in compiler.devices_of(topology)]

    def __repr__(self) -> str:
        return f"TopologyDescription({self.topology}, {len(self.devices)} devices)"


@final
class SliceBackend(Backend):
    """Compiles programs that `jit` places on devices of a slice; nothing of it runs here."""

    name = "tpu-slice"
    platform = "tpu"
    label = "vendor-compiled"
    places = True

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def available(self) -> tuple[bool, str]:
        return False, f"{self.topology} can be compiled for, and is not here"

    def devices(self) -> list[Any]:
        return []

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        from nxjax.backends.tpu.ahead import AheadExecutable

        return AheadExecutable(program, self.topology, (), (), donate)

    def compile_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> Executable:
        from nxjax.backends.tpu.ahead import AheadExecutable

        return AheadExecutable(program, self.topology, placement.ins, placement.outs, donate)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return lower(program, donate=donate)[0]

    def lower_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> str:
        return lower(program, donate=donate, in_shardings=placement.ins, out_shardings=placement.outs)[0]

    def put(self, x: Any, sharding: Any) -> Any:
        raise nothing_runs(self.topology, "device_put")


@lru_cache(64)
def backend_of(topology: Topology) -> SliceBackend:
    """The one backend of a slice."""
    return SliceBackend(topology)


def nothing_runs(topology: Topology, what: str) -> ExecutionError:
    """The error for using a slice that is not here."""
    return ExecutionError(
        f"{what}: {topology} is for compiling only, there is no such device here",
        got="a device of get_topology_desc",
        expected="a device of nx.devices()",
        fix="take what the compiler says (cost_analysis, memory_analysis, as_text), and run on a machine with TPUs",
    )


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """A slice of TPUs that need not be here, by the compiler's name of it, such as "v5e:2x2".

    Args:
        topology_name: generation and topology; a generation alone is its smallest.
        platform: "tpu" or None.

    Raises:
        ParameterError: no such topology, or another platform.
        MissingExtraError: libtpu is not installed.
    """
    if platform not in (None, "tpu"):
        raise ParameterError("get_topology_desc: platform", got=repr(platform), expected="'tpu'")
    if kwargs:
        raise ParameterError("get_topology_desc: unknown option", got=", ".join(kwargs), expected="none")
    return TopologyDescription(parsed(topology_name))


def device_ids(topology: Topology, spread: Partitioning) -> tuple[int, ...]:
    """The numbers of the devices that a partitioned program is for, in the order of its partitions.

    Raises:
        ShardingError: the mesh is of other devices than those of ``topology``, or larger.
    """
    if spread.size == 1 and not any(isinstance(d, CompileOnlyDevice) for d in spread.devices or ()):
        return ()
    if spread.devices is None:
        if spread.size > topology.devices:
            raise ShardingError(
                f"{topology}: the mesh has more devices than the slice",
                got=spread.size,
                expected=f"at most {topology.devices}",
                fix="compile for a larger topology",
            )
        return tuple(range(spread.size))
    foreign = [d for d in spread.devices if getattr(d, "topology", None) != topology]
    if foreign:
        raise ShardingError(
            f"{topology}: the mesh is made of other devices",
            got=foreign[:4],
            expected=f"devices of {topology}",
            fix=f'nx.experimental.topologies.get_topology_desc("{topology.generation.name}:{topology.form}").devices, '
            "or a nx.sharding.AbstractMesh, which is for any",
        )
    return tuple(d.id for d in spread.devices)
