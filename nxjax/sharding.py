"""`nx.sharding`: meshes of devices, and how arrays are split over them. Definitions are in `nxjax.trace`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShardingError
from nxjax.trace.annotations import PyTree
from nxjax.trace.boundary import entry
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)
from nxjax.trace.partition import P, PartitionSpec
from nxjax.trace.sharding import NamedSharding, Sharding, SingleDeviceSharding

__all__ = [
    "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "P", "PartitionSpec", "Sharding", "SingleDeviceSharding",
    "get_abstract_mesh", "get_mesh", "make_mesh", "make_single_device_sharding", "reshard", "set_mesh",
    "use_abstract_mesh", "use_mesh",
]  # fmt: skip
__getattr__ = _refusing(__name__)


@entry
def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: str | Sequence[str],
    axis_types: Sequence[Any] | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh of the first devices.

    If the mesh has one axis and the devices have coordinates (TPU: ``coords``), neighbours along the axis are
    neighbours in the chips' network: a snake through the grid of chips. Other meshes keep the order of devices.

    Args:
        axis_shapes: size of each axis; the product is the number of devices used.
        axis_names: name of each axis.
        axis_types: see `Mesh`.
        devices: by default all devices of the default platform.

    Raises:
        ShardingError: there are not enough devices.

    >>> make_mesh((1, 1), ("data", "model"))
    Mesh('data': 1, 'model': 1)
    """
    from nxjax import runtime

    shape = tuple(int(n) for n in axis_shapes)
    given = tuple(runtime.devices() if devices is None else devices)
    count = math.prod(shape)
    if count > len(given):
        platform = given[0].platform if given else "no"
        raise ShardingError(
            "make_mesh: not enough devices",
            got=f"{count} needed for a mesh of {shape}",
            expected=f"at most {len(given)} {platform} devices",
            fix="for several CPU devices in one process, set NXJAX_NUM_CPU_DEVICES before the first use"
            if platform == "cpu"
            else "choose smaller axes",
        )
    ordered = (_snake(given) if max(shape, default=1) == count == len(given) else given)[:count]
    grid = np.empty(count, object)
    grid[:] = ordered
    return Mesh(grid.reshape(shape), axis_names, axis_types)


def make_single_device_sharding(device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """The sharding of arrays that are whole on one device; there is one kind of memory.

    >>> make_single_device_sharding(nx.devices()[0]) == SingleDeviceSharding(nx.devices()[0])
    True
    """
    return SingleDeviceSharding(device)


def reshard(xs: PyTree, out_shardings: PyTree) -> PyTree:
    """Arrays with the layout ``out_shardings`` on devices: `nx.lax.with_sharding_constraint`.

    Args:
        xs: pytree of arrays.
        out_shardings: a sharding, a `PartitionSpec` of the current mesh, or a tree prefix of these.

    Raises:
        ShardingError: a spec does not fit the mesh or an array.

    >>> rows = NamedSharding(make_mesh((1,), ("x",)), P("x"))
    >>> reshard(nx.arange(2), rows).sharding == rows
    True
    """
    from nxjax.lax.sharding import with_sharding_constraint

    return with_sharding_constraint(xs, out_shardings)


def _snake(devices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Devices with coordinates in snake order: each one is next to the one before it."""
    places = [getattr(d, "coords", None) for d in devices]
    if any(p is None for p in places):
        return devices

    def key(device: Any) -> tuple[int, ...]:
        # Slowest coordinate first; a row is walked backwards after an odd number of rows.
        *slow, fast = reversed(device.coords)
        walked: list[int] = []
        for at in slow:
            walked.append(at if sum(walked) % 2 == 0 else -at)
        walked.append(fast if sum(slow) % 2 == 0 else -fast)
        return (*walked, getattr(device, "core_on_chip", 0))

    return tuple(sorted(devices, key=key))
