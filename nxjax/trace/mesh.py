"""`Mesh`: devices in a grid whose dimensions have names; and which mesh is the current one.

Devices are opaque: anything hashable with ``id``, ``platform`` and ``process_index``. Knows no array, op or backend.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Self, final

import numpy as np

from nxjax.config.forks import cached_property
from nxjax.errors import ShardingError, Shown
from nxjax.trace.boundary import entry
from nxjax.trace.params import Printed, param_class


@final
@param_class
class AxisType(enum.Enum):
    """Who decides how values are split along a mesh axis: the compiler (`Auto`), or the function (`Manual`, inside
    `nx.shard_map`). `Explicit` is accepted and means `Auto`, because types in nxjax have no sharding.

    >>> list(AxisType)
    [Auto, Explicit, Manual]
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def _axis_types(names: tuple[Any, ...], types: Any, where: str) -> tuple[AxisType, ...]:
    if types is None:
        return (AxisType.Auto,) * len(names)
    found: tuple[Any, ...] = (types,) * len(names) if isinstance(types, AxisType) else tuple(types)
    if len(found) != len(names) or not all(isinstance(t, AxisType) for t in found):
        raise ShardingError(
            f"{where}: axis_types does not fit the axes", got=found, expected=f"{len(names)} values of AxisType"
        )
    return found


def _axis_names(names: Any, ndim: int, where: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = (names,) if isinstance(names, str) else tuple(names)
    if len(found) != ndim:
        raise ShardingError(
            f"{where}: needs one axis name per dimension of the devices",
            got=f"{len(found)} names {found} for {ndim} dimensions",
            fix="reshape the devices: numpy.array(devices).reshape(2, 4), or use nx.make_mesh((2, 4), names)",
        )
    for name in found:
        if name is None or not isinstance(name, Hashable):
            raise ShardingError(f"{where}: an axis name must be a hashable value other than None", got=found)
    if len(set(found)) != len(found):
        raise ShardingError(f"{where}: an axis name is used twice", got=found)
    return found


class BaseMesh(Printed, Shown, ABC):
    """What a mesh of devices and a mesh without devices have in common: named axes with sizes."""

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]

    # Program text has the axes; devices are of the process that made it.
    param_name: ClassVar[str] = "AbstractMesh"

    def param_fields(self, canonical: bool) -> dict[str, Any]:
        return {"axis_sizes": self.axis_sizes, "axis_names": self.axis_names, "axis_types": self.axis_types}

    @cached_property
    def shape(self) -> dict[Any, int]:
        """Axis name -> size."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @cached_property
    def size(self) -> int:
        """Number of devices; 0 for the empty mesh."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        return self.size == 0

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is kind)

    @property
    def are_all_axes_auto(self) -> bool:
        """There are axes, and every one is `Auto`."""
        return bool(self.axis_names) and len(self.auto_axes) == len(self.axis_names)

    @property
    def are_all_axes_explicit(self) -> bool:
        """There are axes, and every one is `Explicit`."""
        return bool(self.axis_names) and len(self.explicit_axes) == len(self.axis_names)

    @property
    def are_all_axes_manual(self) -> bool:
        """There are axes, and every one is `Manual`."""
        return bool(self.axis_names) and len(self.manual_axes) == len(self.axis_names)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Manual)

    @property
    @abstractmethod
    def abstract_mesh(self) -> AbstractMesh:
        """The axes without the devices."""

    def need(self, name: Any, where: str) -> int:
        """The size of axis ``name``.

        Raises:
            ShardingError: the mesh has no such axis.
        """
        size = self.shape.get(name)
        if size is None:
            raise ShardingError(
                f"{where}: the mesh has no axis {name!r}",
                got=repr(name),
                expected=f"one of {self.axis_names} of {self}",
            )
        return size


@final
class Mesh(BaseMesh):
    """Devices in a grid with a name for each dimension.

    Args:
        devices: array (or nested sequence) of devices, of any rank.
        axis_names: one name per dimension.
        axis_types: one `AxisType` per dimension; by default `Auto`.

    As a context manager it is the current mesh, which bare `PartitionSpec`s use.

    Raises:
        ShardingError: names and dimensions differ in number, or a name or a device occurs twice.

    >>> import numpy as np, nxjax as nx
    >>> mesh = nx.sharding.Mesh(np.array(nx.devices("cpu")[:1]).reshape(1, 1), ("data", "model"))
    >>> mesh, mesh.shape["data"]
    (Mesh('data': 1, 'model': 1), 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        grid = devices if isinstance(devices, np.ndarray) else _grid(devices)
        self.axis_names = _axis_names(axis_names, grid.ndim, "Mesh")
        grid = grid.copy()
        grid.flags.writeable = False
        self.devices: np.ndarray[Any, Any] = grid
        self.axis_sizes = grid.shape
        self.axis_types = _axis_types(self.axis_names, axis_types, "Mesh")
        self.device_list: tuple[Any, ...] = tuple(grid.flat) if self.axis_names else ()
        if len(set(self.device_list)) != len(self.device_list):
            raise ShardingError("Mesh: a device occurs twice", got=self.device_list)
        self._hash = hash((self.device_list, self.axis_sizes, self.axis_names, self.axis_types))
        self._entered: list[Token[BaseMesh | None]] = []

    def param_fields(self, canonical: bool) -> dict[str, Any]:
        fields = super().param_fields(canonical)
        return {**fields, "devices": tuple(map(repr, self.device_list))} if canonical else fields

    @property
    def device_ids(self) -> np.ndarray[Any, Any]:
        return np.array([d.id for d in self.device_list], int).reshape(self.axis_sizes)

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process."""
        here = process_index()
        return [d for d in self.device_list if d.process_index == here]

    @property
    def is_multi_process(self) -> bool:
        return len(self.local_devices) != len(self.device_list)

    @cached_property
    def abstract_mesh(self) -> AbstractMesh:
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Self:
        self._entered.append(_current.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._entered.pop())

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Mesh)
            and self._hash == other._hash
            and self.device_list == other.device_list
            and (self.axis_sizes, self.axis_names, self.axis_types)
            == (other.axis_sizes, other.axis_names, other.axis_types)
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"Mesh({_axes_text(self)})"

    __repr__ = __str__


@final
@param_class
class AbstractMesh(BaseMesh):
    """Axis names and sizes with no devices: enough to trace and to compile with.

    Args:
        axis_sizes: one size per axis.
        axis_names: one name per axis.
        axis_types: one `AxisType` per axis; by default `Auto`.

    >>> AbstractMesh((2, 4), ("x", "y")).size
    8
    """

    @entry
    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Any, axis_types: Any = None, *, abstract_device: Any = None
    ) -> None:
        sizes = tuple(axis_sizes)
        if not all(int(n) == n > 0 for n in sizes):
            raise ShardingError("AbstractMesh: axis_sizes must be positive integers", got=sizes)
        self.axis_sizes = tuple(int(n) for n in sizes)
        self.axis_names = _axis_names(axis_names, len(sizes), "AbstractMesh")
        self.axis_types = _axis_types(self.axis_names, axis_types, "AbstractMesh")
        self.abstract_device = abstract_device
        self._hash = hash((self.axis_sizes, self.axis_names, self.axis_types, abstract_device))

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None, **kw: Any) -> AbstractMesh:
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=kw.get("abstract_device", self.abstract_device),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, AbstractMesh)
            and (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device)
            == (other.axis_sizes, other.axis_names, other.axis_types, other.abstract_device)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"AbstractMesh({_axes_text(self)})"


def _grid(devices: Any) -> np.ndarray[Any, Any]:
    """Nested sequences of devices as an object array: NumPy must not look into a device."""
    shape: list[int] = []
    level: Any = devices
    while isinstance(level, (list, tuple, np.ndarray)):
        shape.append(len(level))  # pyright: ignore[reportUnknownArgumentType]
        if not len(level):  # pyright: ignore[reportUnknownArgumentType]
            break
        level = level[0]  # pyright: ignore[reportUnknownVariableType]

    def flat(part: Any, depth: int) -> Iterable[Any]:
        if depth == len(shape):
            yield part
            return
        if len(part) != shape[depth]:
            raise ShardingError("Mesh: the rows of devices differ in length", got=devices)
        for one in part:
            yield from flat(one, depth + 1)

    grid = np.empty(math.prod(shape), object)
    for i, device in enumerate(flat(devices, 0)):
        grid[i] = device
    return grid.reshape(shape)


def _axes_text(mesh: BaseMesh) -> str:
    text = ", ".join(f"{n!r}: {size}" for n, size in mesh.shape_tuple)
    special = any(t is not AxisType.Auto for t in mesh.axis_types)
    return f"{text}, axis_types={mesh.axis_types}" if special else text


# --- the current mesh ---

_current: ContextVar[BaseMesh | None] = ContextVar("nxjax_mesh", default=None)

# The mesh that bare specs refer to, or None. What is traced depends on it, so caches of traces have it in their key.
current_mesh = _current.get


@final
class set_mesh(Shown):
    """Make ``mesh`` the current one: from now on, or for a ``with`` block.

    Bare `PartitionSpec`s in `nx.jit`, `nx.device_put` and `nx.lax.with_sharding_constraint` refer to it, and
    `nx.shard_map` uses it.

    >>> with nx.sharding.set_mesh(nx.make_mesh((1,), ("x",))):
    ...     nx.sharding.get_mesh()
    Mesh('x': 1)
    """

    __slots__ = ("_token", "mesh")

    def __init__(self, mesh: BaseMesh | None) -> None:
        if mesh is not None and not isinstance(mesh, BaseMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardingError("set_mesh: needs a mesh", got=type(mesh).__name__, expected="a Mesh, or None")
        self.mesh = mesh
        self._token = _current.set(mesh)

    def __enter__(self) -> BaseMesh | None:
        return self.mesh

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


use_mesh = set_mesh
use_abstract_mesh = set_mesh


def get_mesh() -> Mesh:
    """The current mesh; an empty one if none is set or it has no devices.

    >>> with nx.set_mesh(nx.make_mesh((1,), ("x",))):
    ...     get_mesh().axis_names
    ('x',)
    >>> get_mesh().empty
    True
    """
    mesh = _current.get()
    return mesh if isinstance(mesh, Mesh) else EMPTY_MESH


def get_abstract_mesh() -> AbstractMesh:
    """The axes of the current mesh; an empty mesh if none is set.

    >>> with nx.set_mesh(nx.make_mesh((1,), ("x",))):
    ...     get_abstract_mesh().axis_sizes
    (1,)
    >>> get_abstract_mesh().axis_names
    ()
    """
    mesh = _current.get()
    return EMPTY_ABSTRACT_MESH if mesh is None else mesh.abstract_mesh


EMPTY_MESH = Mesh(np.empty((), object), ())
EMPTY_ABSTRACT_MESH = AbstractMesh((), ())

# --- which process this is ---

_process_index: Callable[[], int] = lambda: 0


def install_process_index(find: Callable[[], int]) -> None:
    """Say which process this is; called by what joins processes."""
    global _process_index
    _process_index = find


def process_index() -> int:
    """The number of this process; devices of others cannot be read from."""
    return _process_index()
