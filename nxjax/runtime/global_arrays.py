"""Arrays over several devices, from their parts and into their parts. Public in `nxjax` itself; knows no executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.backends import placing
from nxjax.errors import ExecutionError, ShardingError
from nxjax.trace.annotations import DeviceLike, DTypeLike, PyTree, ShardingLike
from nxjax.trace.array import DeviceArray, as_numpy, as_value, from_numpy, readonly, wrap
from nxjax.trace.core import Array
from nxjax.trace.mesh import process_index
from nxjax.trace.sharding import NamedSharding, Sharding, SingleDeviceSharding, as_sharding
from nxjax.trace.types import ArrayType, Shape

Index = tuple[slice, ...]


@final
class Shard:
    """One device's part of an array.

    Attributes:
        device: where it is.
        index: its slices of the whole array.
        replica_id: 0 for the first device that has this part, 1 for the second, ...

    >>> nx.device_put(nx.arange(3.0), nx.devices("cpu")[0]).addressable_shards[0]
    Shard(device=cpu:0, index=(slice(None, None, None),), replica_id=0, shape=(3,))
    """

    __slots__ = ("_data", "device", "index", "replica_id")

    def __init__(self, device: DeviceLike, index: Index, replica_id: int, data: Array) -> None:
        self.device = device
        self.index = index
        self.replica_id = replica_id
        self._data = data

    @property
    def data(self) -> Any:
        """The part as an array on its device; None if another process has it."""
        return self._data

    def __repr__(self) -> str:
        shape = None if self._data is None else self._data.shape
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, shape={shape})"


def global_shards(x: DeviceArray) -> list[Shard]:
    """The parts of ``x`` on all devices, in the order of its sharding.

    >>> [shard.index for shard in global_shards(nx.numpy.ones((2, 3)))]
    [(slice(None, None, None), slice(None, None, None))]
    """
    sharding = placing.sharding_of(x)
    here = process_index()
    if x.place is not None and x.buffer is not None:
        parts = iter(placing.backend_of(sharding).blocks(x.buffer))
    else:
        parts = iter([x.buffer])
    count: dict[str, int] = {}
    found: list[Shard] = []
    for device, index in sharding.devices_indices_map(x.shape).items():
        replica = count[str(index)] = count.get(str(index), -1) + 1
        data = None
        if device.process_index == here:
            buffer = next(parts)
            shape = sharding.shard_shape(x.shape)
            host = x.numpy() if buffer is None else None
            data = DeviceArray(host, ArrayType(shape, x.dtype, x.weak_type), buffer, SingleDeviceSharding(device))
        found.append(Shard(device, index, replica, data))
    return found


def addressable_shards(x: DeviceArray) -> list[Shard]:
    """The parts of ``x`` on the devices of this process.

    >>> [shard.data.shape for shard in addressable_shards(nx.numpy.ones((2, 3)))]
    [(2, 3)]
    """
    here = process_index()
    return [s for s in global_shards(x) if s.device.process_index == here]


def make_array_from_callback(
    shape: Sequence[int],
    sharding: ShardingLike,
    data_callback: Callable[[Index], Any],
    dtype: DTypeLike | None = None,
    **_: object,
) -> Array:
    """An array made of parts from ``data_callback(index)``, one call per part of this process.

    Args:
        shape: of the whole array.
        sharding: its layout on devices.
        data_callback: slices of the whole array -> that part, as an array.
        dtype: of the result; by default that of the parts.

    Raises:
        ShardingError: ``shape`` cannot be split so, or a part has another shape or dtype.

    >>> one = nx.sharding.SingleDeviceSharding(nx.devices("cpu")[0])
    >>> make_array_from_callback((4,), one, lambda index: np.arange(4.0)[index]).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    layout = as_sharding(sharding, "make_array_from_callback")
    whole: Shape = tuple(int(n) for n in shape)
    made: dict[str, Any] = {}
    blocks: list[Any] = []
    for index in layout.addressable_devices_indices_map(whole).values():
        # Devices that have the same part share one call.
        key = str(index)
        if key not in made:
            part = data_callback(tuple(slice(*s.indices(n)) for s, n in zip(index, whole, strict=True)))
            made[key] = _part(part, dtype, "make_array_from_callback")
        blocks.append(made[key])
    return _assembled(blocks, whole, layout, dtype, "make_array_from_callback")


def _part(x: Any, dtype: Any, where: str) -> np.ndarray[Any, Any]:
    if isinstance(x, DeviceArray) or dtype is None:
        data: np.ndarray[Any, Any] = x.numpy() if isinstance(x, DeviceArray) else from_numpy(as_numpy(x, where)).numpy()
        return data if dtype is None or data.dtype == dtype else data.astype(dtype)
    # Not through the canonical dtype: 64-bit parts of a 64-bit array keep all of their bits.
    data = as_numpy(x, where)
    return readonly(data) if data.dtype == dtype else data.astype(dtype)


def make_array_from_process_local_data(
    sharding: ShardingLike, local_data: PyTree, global_shape: Sequence[int] | None = None
) -> Array:
    """An array for which each process provides the part of its own devices.

    Args:
        sharding: the layout of the whole array on devices.
        local_data: this process's part: the rows (and columns, ...) of its devices, in their order. It has all of a
            dimension that is not split over processes.
        global_shape: of the whole array; by default each dimension times the number of processes that share it.

    Raises:
        ShardingError: the part does not fit.

    >>> sharding = nx.NamedSharding(nx.make_mesh((1,), ("x",)), nx.P("x"))
    >>> make_array_from_process_local_data(sharding, np.arange(4.0)).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    layout = as_sharding(sharding, "make_array_from_process_local_data")
    data = _part(local_data, None, "make_array_from_process_local_data")
    ndim = data.ndim
    blocks = layout.blocks(ndim)
    here = process_index()
    mine = np.array([d.process_index == here for d in layout.device_list])
    # Which blocks of each dimension are here: local data is their concatenation.
    present = [sorted(set(blocks[mine, d].tolist())) for d in range(ndim)]
    tiles = layout.tiles(ndim)
    if global_shape is None:
        whole = tuple(n * t // len(p) for n, t, p in zip(data.shape, tiles, present, strict=True))
    else:
        whole = tuple(int(n) for n in global_shape)
    size = layout.shard_shape(whole)
    parts: list[Any] = []
    for row in blocks[mine]:
        index: list[slice] = []
        for d, block in enumerate(row.tolist()):
            # Where a dimension is given whole, the part is cut out of the whole.
            at = block if data.shape[d] == whole[d] else present[d].index(block)
            index.append(slice(at * size[d], (at + 1) * size[d]))
        parts.append(np.asarray(data[tuple(index)], order="C"))
    return _assembled(parts, whole, layout, None, "make_array_from_process_local_data")


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: ShardingLike, arrays: Sequence[Any], *, dtype: DTypeLike | None = None
) -> Array:
    """One array made of arrays on single devices, without moving data.

    Args:
        shape: of the whole array.
        sharding: how the parts make it up.
        arrays: one per device of this process, in any order, each on its device and of `sharding.shard_shape(shape)`.

    Raises:
        ShardingError: the devices or shapes do not fit.

    >>> device = nx.devices("cpu")[0]
    >>> sharding = nx.NamedSharding(nx.make_mesh((1,), ("x",), devices=[device]), nx.P("x"))
    >>> make_array_from_single_device_arrays((4,), sharding, [nx.device_put(nx.arange(4.0), device)]).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    where = "make_array_from_single_device_arrays"
    layout = as_sharding(sharding, where)
    whole: Shape = tuple(int(n) for n in shape)
    by_device: dict[Any, DeviceArray] = {}
    for x in arrays:
        value = as_value(x, where)
        assert isinstance(value, DeviceArray)
        place = placing.sharding_of(value)
        if place.num_devices != 1:
            raise ShardingError(f"{where}: a part lies on several devices", got=place)
        by_device[place.device_list[0]] = value
    here = process_index()
    local = [d for d in layout.device_list if d.process_index == here]
    if set(by_device) != set(local) or len(arrays) != len(local):
        raise ShardingError(
            f"{where}: the parts do not lie on the sharding's devices",
            got=", ".join(map(str, by_device)),
            expected=f"one part on each of {', '.join(map(str, local))}",
        )
    blocks: list[Any] = []
    for device in local:
        value = by_device[device]
        buffer = value.buffer or placing.backend_of(layout).put(value, SingleDeviceSharding(device))
        blocks.append(value.numpy() if buffer is None else buffer)
    shapes = {by_device[d].shape for d in local}
    return _assembled(blocks, whole, layout, by_device[local[0]].dtype, where, shapes)


def _assembled(
    blocks: list[Any], shape: Shape, layout: Sharding, dtype: Any, where: str, shapes: set[Shape] | None = None
) -> DeviceArray:
    wanted = layout.shard_shape(shape)
    shapes = {b.shape for b in blocks} if shapes is None else shapes
    if shapes - {wanted}:
        raise ShardingError(
            f"{where}: a part has another shape than the sharding gives it",
            got=", ".join(map(str, shapes)),
            expected=f"{wanted} of {shape} with {layout}",
        )
    dtypes = {b.dtype for b in blocks if isinstance(b, np.ndarray)}
    if len(dtypes) > 1:
        raise ShardingError(f"{where}: parts of several dtypes", got=", ".join(sorted(map(str, dtypes))))
    kind = dtype if dtype is not None else next(iter(dtypes), None)
    if kind is None:
        raise ShardingError(f"{where}: this process has no part, so the dtype is not known", fix="give dtype=...")
    type_ = ArrayType(shape, np.dtype(kind), False)
    if layout.num_devices == 1 and isinstance(blocks[0], np.ndarray):
        return placing.put(wrap(blocks[0]), layout)
    return DeviceArray(None, type_, placing.backend_of(layout).assemble(blocks, type_, layout), layout)


def replicated(x: Any) -> Any:
    """An array over several devices with the whole of it on each of them: moved by the devices, not by the host.

    Raises:
        ExecutionError: it is on no mesh.

    >>> sharding = nx.NamedSharding(nx.make_mesh((1,), ("x",)), nx.P("x"))
    >>> replicated(nx.device_put(nx.numpy.ones(2), sharding)).sharding.spec
    P()
    """
    sharding = placing.sharding_of(x)
    if not isinstance(sharding, NamedSharding):
        raise ExecutionError("replicated: needs an array on a mesh", got=sharding)
    return placing.put(x, sharding.update(spec=()))
