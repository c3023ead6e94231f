"""Shardings: which part of an array lies on which device. Data only: knows no array, op or backend.

Devices are opaque: anything hashable with ``id``, ``platform`` and ``process_index``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from nxjax.errors import ShardingError, Shown
from nxjax.trace.mesh import AbstractMesh, AxisType, BaseMesh, Mesh, current_mesh, process_index
from nxjax.trace.params import Printed, param_class
from nxjax.trace.partition import UNCONSTRAINED, P, PartitionSpec
from nxjax.trace.types import Shape

__all__ = [
    "UNCONSTRAINED", "AbstractMesh", "AxisType", "BaseMesh", "Mesh", "NamedSharding", "P", "PartitionSpec", "Sharding",
    "SingleDeviceSharding", "as_sharding", "current_mesh", "named_from_tiles",
]  # fmt: skip

Index = tuple[slice, ...]
NDArray = np.ndarray[Any, Any]


class Sharding(Shown, ABC):
    """The layout of an array on devices: split into equal blocks, each on one device or several. Immutable.

    >>> isinstance(nx.NamedSharding(nx.make_mesh((1,), ("x",)), nx.P("x")), Sharding)
    True
    """

    __slots__ = ("__weakref__",)
    memory_kind: str | None

    @property
    @abstractmethod
    def device_list(self) -> tuple[Any, ...]:
        """The devices in order, which is the order of partitions in compiled programs."""

    @abstractmethod
    def tiles(self, ndim: int) -> tuple[int, ...]:
        """The number of blocks in each of ``ndim`` dimensions."""

    @abstractmethod
    def blocks(self, ndim: int) -> NDArray:
        """The block of each device: integers of shape (devices, ndim), in the order of `device_list`."""

    @abstractmethod
    def check(self, shape: Shape, where: str = "sharding") -> None:
        """Raise `ShardingError`, naming ``where``, if an array of ``shape`` cannot be split so."""

    @abstractmethod
    def with_memory_kind(self, kind: str | None) -> Sharding:
        """The same layout in another memory of the devices."""

    @property
    def device_set(self) -> set[Any]:
        return set(self.device_list)

    @property
    def num_devices(self) -> int:
        return len(self.device_list)

    # JAX's private name, which orbax asks for.
    _addressable_device_assignment = property(lambda self: tuple(self.addressable_devices))

    @property
    def addressable_devices(self) -> set[Any]:
        """The devices of this process."""
        here = process_index()
        return {d for d in self.device_list if d.process_index == here}

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices belong to this process."""
        here = process_index()
        return all(d.process_index == here for d in self.device_list)

    @property
    @abstractmethod
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""

    def shard_shape(self, global_shape: Sequence[int]) -> Shape:
        """The shape of one device's block.

        Raises:
            ShardingError: a dimension is not divisible by the number of blocks.
        """
        shape = tuple(global_shape)
        self.check(shape, "shard_shape")
        return tuple(n // t for n, t in zip(shape, self.tiles(len(shape)), strict=True))

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """Device -> its slices of the array.

        Raises:
            ShardingError: as `shard_shape`.
        """
        return dict(zip(self.device_list, _indices(self, tuple(global_shape)), strict=True))

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """As `devices_indices_map`, for the devices of this process."""
        here = process_index()
        return {d: i for d, i in self.devices_indices_map(global_shape).items() if d.process_index == here}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same blocks of an array of rank ``ndim`` on the same devices, in the same order."""
        if self is other:
            return True
        return (
            self.memory_kind == other.memory_kind
            and self.device_list == other.device_list
            and self.tiles(ndim) == other.tiles(ndim)
            and bool(np.array_equal(self.blocks(ndim), other.blocks(ndim)))
        )


@lru_cache(4096)
def _indices(sharding: Sharding, shape: Shape) -> tuple[Index, ...]:
    shard = sharding.shard_shape(shape)
    tiles = sharding.tiles(len(shape))
    return tuple(
        tuple(
            slice(None) if t == 1 else slice(int(b) * n, (int(b) + 1) * n)
            for b, n, t in zip(row, shard, tiles, strict=True)
        )
        for row in sharding.blocks(len(shape))
    )


@final
@param_class
class NamedSharding(Printed, Sharding):
    """A mesh, and which of its axes split which dimension.

    Args:
        mesh: `Mesh`, or `AbstractMesh` where no device is needed.
        spec: `PartitionSpec`.

    Raises:
        ShardingError: the spec names an axis that the mesh does not have, or one axis twice.

    >>> from nxjax.sharding import NamedSharding, PartitionSpec as P
    >>> s = NamedSharding(nx.sharding.AbstractMesh((2, 4), ("x", "y")), P("x", None, "y"))
    >>> s.shard_shape((4, 3, 8))
    (2, 3, 2)
    """

    __slots__ = ("_hash", "memory_kind", "mesh", "spec")
    param_name: ClassVar[str] = "NamedSharding"

    def __init__(self, mesh: BaseMesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        if not isinstance(mesh, BaseMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardingError("NamedSharding: needs a mesh", got=type(mesh).__name__, expected="Mesh or AbstractMesh")
        if not isinstance(spec, PartitionSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardingError(
                "NamedSharding: needs a PartitionSpec", got=repr(spec), fix="write PartitionSpec('x', None)"
            )
        check_spec(mesh, spec, "NamedSharding")
        self.mesh = mesh
        self.spec = spec
        self.memory_kind = memory_kind
        self._hash = hash((mesh, spec, memory_kind))

    @property
    def device_list(self) -> tuple[Any, ...]:
        if not isinstance(self.mesh, Mesh):
            raise ShardingError(
                "NamedSharding: an AbstractMesh has no devices", got=self, fix="use a Mesh, such as nx.make_mesh gives"
            )
        return self.mesh.device_list

    def param_fields(self, canonical: bool) -> dict[str, Any]:
        return {"mesh": self.mesh, "spec": self.spec, "memory_kind": self.memory_kind}

    @property
    def is_fully_replicated(self) -> bool:
        return all(self.mesh.shape[name] == 1 for name in self.spec.names)

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The axes that split no dimension."""
        return frozenset(self.mesh.axis_names) - frozenset(self.spec.names)

    def tiles(self, ndim: int) -> tuple[int, ...]:
        return tuple(math.prod(self.mesh.shape[n] for n in self.spec.axes(dim)) for dim in range(ndim))

    def blocks(self, ndim: int) -> NDArray:
        return _named_blocks(self.mesh, self.spec, ndim)

    def check(self, shape: Shape, where: str = "sharding") -> None:
        check_shape(self.mesh, self.spec, shape, where)

    def update(self, **kwargs: Any) -> NamedSharding:
        """With another ``mesh``, ``spec`` or ``memory_kind``."""
        spec = kwargs.get("spec", self.spec)
        return NamedSharding(
            kwargs.get("mesh", self.mesh),
            spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec),
            memory_kind=kwargs.get("memory_kind", self.memory_kind),
        )

    def with_memory_kind(self, kind: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        if isinstance(other, NamedSharding) and (
            not isinstance(self.mesh, Mesh) or not isinstance(other.mesh, Mesh) or self.mesh == other.mesh
        ):
            # No device list is needed: equal meshes, or only their axes are known.
            return (
                self.memory_kind == other.memory_kind
                and self.mesh.size == other.mesh.size
                and self.tiles(ndim) == other.tiles(ndim)
                and bool(np.array_equal(self.blocks(ndim), other.blocks(ndim)))
            )
        return super().is_equivalent_to(other, ndim)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, NamedSharding)
            and self._hash == other._hash
            and self.spec == other.spec
            and self.memory_kind == other.memory_kind
            and self.mesh == other.mesh
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{memory})"


@lru_cache(4096)
def _named_blocks(mesh: BaseMesh, spec: PartitionSpec, ndim: int) -> NDArray:
    place = dict(zip(mesh.axis_names, np.indices(mesh.axis_sizes).reshape(len(mesh.axis_sizes), -1), strict=True))
    found = np.zeros((math.prod(mesh.axis_sizes), ndim), np.int64)
    for dim in range(ndim):
        for name in spec.axes(dim):
            found[:, dim] = found[:, dim] * mesh.shape[name] + place[name]
    found.flags.writeable = False
    return found


@final
class SingleDeviceSharding(Sharding):
    """The whole array on one device.

    >>> nx.sharding.SingleDeviceSharding(nx.devices("cpu")[0]).shard_shape((4, 3))
    (4, 3)
    """

    __slots__ = ("device", "memory_kind")

    def __init__(self, device: Any, *, memory_kind: str | None = None) -> None:
        self.device = device
        self.memory_kind = memory_kind

    @property
    def device_list(self) -> tuple[Any, ...]:
        return (self.device,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def tiles(self, ndim: int) -> tuple[int, ...]:
        return (1,) * ndim

    def blocks(self, ndim: int) -> NDArray:
        return np.zeros((1, ndim), np.int64)

    def check(self, shape: Shape, where: str = "sharding") -> None:
        """Any shape fits."""

    def with_memory_kind(self, kind: str | None) -> SingleDeviceSharding:
        return SingleDeviceSharding(self.device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and (self.device, self.memory_kind) == (
            other.device,
            other.memory_kind,
        )

    def __hash__(self) -> int:
        return hash((self.device, self.memory_kind))

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"SingleDeviceSharding(device={self.device!r}{memory})"


# --- checks that teach ---


@lru_cache(4096)
def check_spec(mesh: BaseMesh, spec: PartitionSpec, where: str) -> None:
    """Raise `ShardingError` unless every name is an axis of the mesh and stands once."""
    names = spec.names
    for name in names:
        if name not in mesh.shape:
            raise ShardingError(
                f"{where}: the spec names axis {name!r}, which the mesh has not",
                got=spec,
                expected=f"axes of {mesh}: {', '.join(map(repr, mesh.axis_names)) or 'none'}",
                fix="correct the name, or make the mesh with this axis",
            )
    twice = sorted({repr(n) for n in names if names.count(n) > 1})
    if twice:
        raise ShardingError(
            f"{where}: a mesh axis can cut one dimension only, {', '.join(twice)} stands twice",
            got=spec,
            expected="each axis of the mesh at most once",
            fix="use None for one of the dimensions, or another axis",
        )


def check_shape(mesh: BaseMesh, spec: PartitionSpec, shape: Shape, where: str) -> None:
    """Raise `ShardingError` unless ``shape`` has the rank and divisible dimensions that the spec needs."""
    if len(spec) > len(shape):
        raise ShardingError(
            f"{where}: the spec has more entries than the array has dimensions",
            got=f"{spec} for shape {shape}",
            expected=f"rank at least {len(spec)}",
            fix="a scalar takes P()" if not shape else f"leave out the last {len(spec) - len(shape)} entries",
        )
    for dim, size in enumerate(shape):
        names = spec.axes(dim)
        count = math.prod(mesh.shape[n] for n in names)
        if size % count:
            axes = " x ".join(f"{n!r}={mesh.shape[n]}" for n in names)
            raise ShardingError(
                f"{where}: dimension {dim} of size {size} cannot be cut into {count} equal blocks ({axes})",
                got=f"shape {shape} with {spec}",
                expected=f"a size divisible by {count}",
                fix=f"pad to {-(-size // count) * count}, or use None for dimension {dim}",
            )


def as_sharding(x: Any, where: str) -> Sharding:
    """A sharding as it is; a bare spec on the current mesh; a device alone.

    Raises:
        ShardingError: a bare spec with no current mesh, or something else.
    """
    if isinstance(x, Sharding):
        return x
    if isinstance(x, PartitionSpec):
        mesh = current_mesh()
        if mesh is None:
            raise ShardingError(
                f"{where}: a bare PartitionSpec needs a current mesh",
                got=x,
                fix="with nx.sharding.set_mesh(mesh): ..., or give NamedSharding(mesh, spec)",
            )
        check_spec(mesh, x, where)
        return NamedSharding(mesh, x)
    if hasattr(x, "platform") and not isinstance(x, type):
        return SingleDeviceSharding(x)
    raise ShardingError(
        f"{where}: not a sharding", got=repr(x), expected="a Sharding, a PartitionSpec (under a mesh) or a device"
    )


def named_from_tiles(mesh: Mesh, order: NDArray, ndim: int) -> NamedSharding:
    """The sharding of a compiler's answer: ``order`` has one dimension per dimension of the array, holding at each
    block the positions (in ``mesh.device_list``) of the devices that have it, in any further dimensions.

    Where no spec of ``mesh`` says so (an axis was split), the sharding is on a mesh of its own over the same devices.

    >>> mesh = nx.make_mesh((1, 1), ("x", "y"))
    >>> named_from_tiles(mesh, np.zeros((1, 1), int), 2).spec
    P()
    """
    order = np.asarray(order)
    tiles = order.shape[:ndim]
    flat = order.reshape(*tiles, -1)
    # Block coordinates per device.
    want = np.zeros((mesh.size, ndim), np.int64)
    for at in np.ndindex(*tiles):
        want[flat[at]] = at
    place = np.indices(mesh.axis_sizes).reshape(len(mesh.axis_sizes), -1)
    entries: list[Any] = [None] * ndim
    for dim in range(ndim):
        if tiles[dim] == 1:
            continue
        # The stride of an axis: how far one step along it moves the block. The slowest axis has the greatest.
        steps: list[tuple[int, Any]] = []
        for a, name in enumerate(mesh.axis_names):
            one_step = (place[a] == 1) & (np.delete(place, a, 0) == 0).all(0)
            if one_step.any() and (step := int(want[one_step, dim][0] - want[0, dim])) > 0:
                steps.append((step, name))
        names = tuple(name for _, name in sorted(steps, key=lambda s: -s[0]))
        entries[dim] = names or None
    while entries and entries[-1] is None:
        entries.pop()
    used = [n for e in entries if e for n in e]
    if len(set(used)) == len(used):
        found = NamedSharding(mesh, PartitionSpec(*entries))
        if found.tiles(ndim) == tiles and np.array_equal(found.blocks(ndim), want):
            return found
    names = tuple(f"_{i}" for i in range(flat.ndim))
    devices = np.empty(mesh.size, object)
    devices[:] = mesh.device_list
    return NamedSharding(Mesh(devices[flat], names), PartitionSpec(*names[:ndim]))
