"""Where an array is: the methods and properties of arrays that ask about devices. Knows no backend."""

from __future__ import annotations

from typing import Any

from nxjax.errors import TracerPlaceError
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Tracer


def _concrete(x: Any, what: str) -> DeviceArray:
    if isinstance(x, Tracer):
        raise TracerPlaceError(
            f"{what} of a traced value", got=f"{x.type} {x.origin()}", fix="ask outside the function"
        )
    return x


def _held(x: Any, what: str) -> DeviceArray:
    """Of an array that is not deleted; how it lay on devices is known of others, too."""
    if _concrete(x, what).is_deleted():
        x.numpy()  # says so
    return x


def _sharding(self: Any) -> Any:
    """The layout of the array on devices: `nx.sharding.Sharding`."""
    from nxjax.runtime import sharding_of

    return sharding_of(_concrete(self, "the sharding"))


def _device(self: Any) -> Any:
    """The device of the array, or its sharding if it is on several."""
    sharding = _sharding(_held(self, "the device"))
    return sharding.device_list[0] if sharding.num_devices == 1 else sharding


def _devices(self: Any) -> set[Any]:
    """The devices of the array."""
    return _sharding(_held(self, "the devices")).device_set


def _addressable_shards(self: Any) -> list[Any]:
    """One `Shard` per device of this process: ``data``, ``index``, ``device``, ``replica_id``."""
    from nxjax.runtime.global_arrays import addressable_shards

    return addressable_shards(_concrete(self, "the shards"))


def _global_shards(self: Any) -> list[Any]:
    """One `Shard` per device; ``data`` is None if another process has it."""
    from nxjax.runtime.global_arrays import global_shards

    return global_shards(_concrete(self, "the shards"))


def _addressable_data(self: Any, index: int) -> Any:
    """The part of the array on the ``index``-th device of this process."""
    return _addressable_shards(self)[index].data


def _is_fully_addressable(self: Any) -> bool:
    """Whether all of its devices belong to this process."""
    return _sharding(self).is_fully_addressable


def _is_fully_replicated(self: Any) -> bool:
    """Whether each device has the whole array."""
    return _sharding(self).is_fully_replicated


def _committed(self: Any) -> bool:
    """Whether the array was put on its device, so that computations with it run there."""
    return _concrete(self, "whether committed").place is not None


def _on_device_size_in_bytes(self: Any) -> int:
    """Bytes on all devices together."""
    sharding = _sharding(self)
    shard = 1
    for n in sharding.shard_shape(self.shape):
        shard *= n
    return shard * self.dtype.itemsize * sharding.num_devices


def _unsafe_buffer_pointer(self: Any) -> int:
    """The address of the first element. The memory may be reused when the array is gone."""
    held = _held(self, "the address")
    raw = getattr(held.buffer, "raw", None)
    return held.numpy().ctypes.data if raw is None else int(raw.unsafe_buffer_pointer())


def _block_until_ready(self: Any) -> Any:
    """Wait for the computation and return the array."""
    if isinstance(self, DeviceArray):
        from nxjax.runtime import wait_for

        wait_for(self)
    return self


def _is_ready(self: Any) -> bool:
    """Whether the computation is done."""
    raw = getattr(_held(self, "whether ready").buffer, "raw", None)
    return True if raw is None else bool(raw.is_ready())


def _copy_to_host_async(self: Any) -> None:
    """Elements are fetched on first use. Those of the CPU are on the host already."""


def members() -> dict[str, Any]:
    """What `methods.attach` gives arrays, under the functions' names."""
    properties = (
        *(_sharding, _device, _addressable_shards, _global_shards, _is_fully_addressable, _is_fully_replicated),
        _committed,
    )
    methods = (
        *(_devices, _addressable_data, _on_device_size_in_bytes, _block_until_ready, _is_ready, _unsafe_buffer_pointer),
        _copy_to_host_async,
    )
    return {f.__name__[1:]: property(f) for f in properties} | {f.__name__[1:]: f for f in methods}
