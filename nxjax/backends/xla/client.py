"""jaxlib's CPU client: whether it can be used, the one client of the process, and buffers in and out.

Importing this file imports nothing of jaxlib. The `jax` package is never imported either (it costs a second): in
jaxlib 0.10 buffers made by `batched_device_put`, results taken through `array_result_handler` and elements read through
the buffer protocol do not need it, while jaxlib's DLPack and NumPy conversions would import it.
"""

from __future__ import annotations

import ctypes
import math
import os
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, final

import numpy as np

from nxjax.errors import MissingExtraError
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]

# jaxlib's Python interface changes from one minor release to the next.
SUPPORTED: Final = ((0, 10), (0, 11))


@lru_cache(1)
def available() -> tuple[bool, str]:
    """Whether a supported jaxlib is installed, and which, or why not. Reads metadata only."""
    try:
        found = version("jaxlib")
    except PackageNotFoundError:
        return False, 'jaxlib is not installed; pip install "nxjax[xla]"'
    numbers = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in found.split(".")[:2])
    low, high = SUPPORTED
    if not low <= numbers < high:
        wanted = f">={low[0]}.{low[1]},<{high[0]}.{high[1]}"
        return False, f'jaxlib {found} is installed, {wanted} is needed; pip install "jaxlib{wanted}"'
    return True, f"jaxlib {found}"


def jaxlib_version() -> str:
    return version("jaxlib")


@final
class _Aval:
    """Shape and dtype as jaxlib asks for them."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = False


def physical(type: ArrayType) -> tuple[tuple[int, ...], dtypes.DType]:
    """Shape and NumPy dtype of the buffer that holds a value: keys are 64-bit words, float0 is nothing but False."""
    if type.dtype == dtypes.key:
        return type.shape, dtypes.uint64
    if type.dtype == dtypes.float0:
        return type.shape, dtypes.bool_
    return type.shape, type.dtype


@final
class Client:
    """The CPU client with what every call needs at hand."""

    def __init__(self) -> None:
        ok, reason = available()
        if not ok:
            raise MissingExtraError("xla: the executor is not available", got=reason, fix='pip install "nxjax[xla]"')
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        from jaxlib import _jax, xla_client  # type: ignore[import-not-found]

        self.jaxlib: Any = _jax
        self.xla_client: Any = xla_client
        self.raw: Any = xla_client.make_cpu_client()
        self.device: Any = self.raw.devices()[0]
        self.devices: Any = _jax.DeviceList((self.device,))
        replicated: Any = xla_client.HloSharding.replicate()

        class Sharding(_jax.SingleDeviceSharding):  # type: ignore[misc,name-defined]
            """One device, the whole array, its only memory: the answers that `batched_device_put` asks for."""

            memory_kind = None

            def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
                return replicated

        self.sharding: Any = Sharding(self.device)
        self._put: Any = _jax.batched_device_put
        self._semantics: Any = _jax.HostBufferSemantics.ZERO_COPY

    def put(self, data: NDArray, type: ArrayType) -> Any:
        """A buffer on ``data``'s own memory where alignment allows, else on a copy. ``data`` must not change."""
        shape, dtype = physical(type)
        if dtype != data.dtype:
            data = np.ascontiguousarray(data).view(dtype) if type.dtype == dtypes.key else np.zeros(shape, dtype)
            data = data.reshape(shape)
        return self._put(_Aval(shape, dtype), self.sharding, [data], [self.device], True, False, self._semantics, True)

    def handler(self, type: ArrayType) -> Any:
        """What turns one result of a call into a buffer object."""
        shape, dtype = physical(type)
        return self.jaxlib.array_result_handler(_Aval(shape, dtype), self.sharding, True, True)


@lru_cache(1)
def client() -> Client:
    """The one client of the process, made at first use."""
    return Client()


@final
class XlaBuffer:
    """A result left on the device."""

    __slots__ = ("raw", "type")

    def __init__(self, raw: Any, type: ArrayType) -> None:
        self.raw = raw
        self.type = type

    def to_numpy(self) -> NDArray:
        """A read-only view of the buffer's memory, which it keeps alive."""
        shape, dtype = physical(self.type)
        if dtype.isbuiltin == 1:
            data = np.asarray(memoryview(self.raw))
        else:
            data = self._by_address(shape, dtype)
        if self.type.dtype == dtypes.key:
            return data.view(dtypes.key).reshape(self.type.shape)
        if self.type.dtype == dtypes.float0:
            return np.zeros(self.type.shape, dtypes.float0)
        return data

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
