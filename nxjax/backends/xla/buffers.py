"""Results left on devices: one buffer, or one per device of a sharding; read as NumPy when somebody looks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from nxjax.backends.xla.client import Client, client_of, physical, without_jax
from nxjax.backends.xla.layouts import in_order
from nxjax.errors import ExecutionError
from nxjax.trace import dtypes
from nxjax.trace.sharding import Sharding
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]

# How to wait for a result that other processes take part in; set by `distributed`.
waiting: Final[list[Callable[[Any], None]]] = []


def finish(raw: Any) -> None:
    """Wait until jaxlib's array is computed.

    Raises:
        ExecutionError: its computation failed, or its memory was given to another call.
    """
    if waiting:
        waiting[0](raw)
        return
    try:
        raw.block_until_ready()
    except Exception as error:
        raise ExecutionError("array: not available", got=str(error)[:1000]) from None


@final
class XlaBuffer:
    """A result left on its device."""

    __slots__ = ("raw", "type")

    def __init__(self, raw: Any, type: ArrayType) -> None:
        self.raw = raw
        self.type = type

    def wait(self) -> None:
        """Until it is computed."""
        finish(self.raw)

    def to_numpy(self) -> NDArray:
        """A read-only view of the buffer's memory, which it keeps alive; a copy where the memory is not the host's."""
        if waiting:
            waiting[0](self.raw)
        shape, dtype = physical(self.type)
        if self.raw.platform() != "cpu":
            data = self._copied(dtype)
        elif dtype.isbuiltin == 1:
            data = np.asarray(memoryview(self.raw))
        else:
            data = self._by_address(shape, dtype)
        if self.type.dtype == dtypes.key:
            return data.view(dtypes.key).reshape(self.type.shape)
        if self.type.dtype == dtypes.float0:
            return np.zeros(self.type.shape, dtypes.float0)
        return data

    def _copied(self, dtype: dtypes.DType) -> NDArray:
        with without_jax(client_of(self.raw)):
            data: NDArray = self.raw._single_device_array_to_np_array_did_copy()[0]
        return data if data.dtype == dtype else data.astype(dtype)

    def _by_address(self, shape: tuple[int, ...], dtype: dtypes.DType) -> NDArray:
        """For ml_dtypes' types, which the buffer protocol has no letter for."""
        self.raw.block_until_ready()
        count, bits = math.prod(shape), dtypes.bit_width(dtype)
        if not count:
            return np.zeros(shape, dtype)
        memory: Any = (ctypes.c_uint8 * (-(-count * bits // 8))).from_address(self.raw.unsafe_buffer_pointer())
        memory.owner = self  # the view's base, which keeps the buffer alive
        data: NDArray = np.frombuffer(memory, np.uint8)
        if bits == 4:
            # Two values a byte, the first in the low half.
            data = np.stack([data & 15, data >> 4], -1).ravel()[:count]
            data = data.astype(np.int8) if dtype == dtypes.uint4 else (data << 4).view(np.int8) >> 4
            return data.astype(dtype).reshape(shape)
        data = data.view(dtype).reshape(shape)
        data.flags.writeable = False
        return data


@final
class ShardedBuffer:
    """A result over several devices, of which this process may have some."""

    __slots__ = ("_shards", "client", "raw", "sharding", "type")

    def __init__(self, raw: Any, type: ArrayType, sharding: Sharding, client: Client) -> None:
        self.raw = raw
        self.type = type
        self.sharding = sharding
        self.client = client
        self._shards: list[XlaBuffer] | None = None

    def shards(self) -> list[XlaBuffer]:
        """One buffer per device of this process, in the order of the sharding's devices. Nothing is copied."""
        if self._shards is None:
            shape = self.sharding.shard_shape(self.type.shape)
            block = ArrayType(shape, self.type.dtype, self.type.weak)
            with without_jax(self.client):
                raws: list[Any] = self.raw._arrays
            here = [d for d in self.sharding.device_list if d in self.sharding.addressable_devices]
            known = dict(zip(in_order(here), raws, strict=True))
            self._shards = [XlaBuffer(known[d], block) for d in here]
        return self._shards

    def wait(self) -> None:
        """Until it is computed."""
        finish(self.raw)

    def to_numpy(self) -> NDArray:
        """The whole array, gathered on the host.

        Raises:
            ExecutionError: this process has not all of it.
        """
        self.wait()
        shards = self.shards()
        if self.sharding.is_fully_replicated:
            return shards[0].to_numpy()
        where = list(self.sharding.addressable_devices_indices_map(self.type.shape).values())
        missing = set(map(str, self.sharding.devices_indices_map(self.type.shape).values())) - set(map(str, where))
        if missing:
            raise ExecutionError(
                "array: its elements are spread over several processes, and this one has not all of them",
                got=f"{self.type}, {self.sharding}: {len(missing)} blocks are elsewhere",
                fix="nxjax.experimental.multihost_utils.process_allgather(x), or read x.addressable_shards",
            )
        whole = np.empty(self.type.shape, self.type.dtype)
        for index, shard in zip(where, shards, strict=True):
            whole[index] = shard.to_numpy()
        whole.flags.writeable = False
        return whole
