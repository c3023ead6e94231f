"""One piece of the host's memory that executors see where it lies: arrays, NumPy, OpenVINO, ONNX Runtime, LiteRT.

It is written to between runs; an array of it is immutable, so nobody writes while one exists. Knows no
vendor: their tensors are made in `nxjax.backends.memory.shared_tensors`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np

from nxjax.backends.cpu.memory import CpuBuffer, Lease, PoolBlock
from nxjax.backends.memory import shared_tensors
from nxjax.backends.memory.pool import MemoryPool, MemoryPools, default_pools
from nxjax.config.weak_registry import WeakRegistry
from nxjax.display.sizes import shown
from nxjax.errors import ExecutionError, ImmutableArrayError, ParameterError, ShapeError
from nxjax.trace import dtypes
from nxjax.trace.annotations import DTypeLike
from nxjax.trace.array import DeviceArray
from nxjax.trace.boundary import entry
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
# What a buffer is for -> whose pool counts it, and whether it begins with a page, as drivers import the host's memory.
ACCESS: Final[dict[str, tuple[str, bool]]] = {
    "flexible": ("cpu", False),
    "read_write": ("cpu", False),
    "streaming": ("cpu", True),
    "npu_primary": ("npu", True),
    "gpu_primary": ("gpu", True),
}
RUNTIMES: Final = ("openvino", "onnxruntime", "litert")


@final
class UnifiedBuffer:
    """Shared memory with a shape and a dtype; made by `unified_buffer`.

    Attributes:
        shape, dtype: of its elements.
        access: what it is for.
        pool: where it counts.
        name: for reports.

    >>> buffer = unified_buffer((2, 2), "float32")
    >>> buffer.write(np.eye(2, dtype=np.float32))
    >>> buffer.array().sum().tolist(), isinstance(buffer, UnifiedBuffer)
    (2.0, True)
    """

    def __init__(self, type: ArrayType, access: str, pool: MemoryPool, page: bool, name: str) -> None:
        self.type = type
        self.access = access
        self.pool = pool
        self.name = name
        block, self._reservation = pool.block(self.nbytes, name or str(type), page)
        self._block: PoolBlock | None = block
        self._leases: WeakRegistry[Lease] = WeakRegistry()
        ctypes.memset(block.address, 0, self.nbytes)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> dtypes.DType:
        return self.type.dtype

    @property
    def nbytes(self) -> int:
        """Of the elements."""
        return self.type.size * self.type.dtype.itemsize

    @property
    def address(self) -> int:
        """The address of the elements, which all views share."""
        return self._open().address

    def _open(self) -> PoolBlock:
        if self._block is None:
            raise ExecutionError("unified buffer: it was closed", got=self.name or str(self.type))
        return self._block

    # --- reading ---

    def array(self) -> DeviceArray:
        """The elements as an `nx.Array`, without a copy. While it exists, the buffer cannot be written to.

        If a function donates it (``donate_argnums``), the result may reuse the buffer.
        """
        lease = Lease(self._open(), self.nbytes)
        self._leases.add(lease)
        self.pool.counters.add(shared=self.nbytes)
        return DeviceArray(None, self.type, CpuBuffer(lease, self.type))

    def numpy(self) -> NDArray:
        """A read-only NumPy view. It shows later writes."""
        view: NDArray = np.asarray(_Shown(self._open(), self.nbytes))
        return view.view(self.dtype).reshape(self.shape) if self.nbytes else np.zeros(self.shape, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        view = self.numpy()
        return view if dtype is None and not copy else np.array(view, dtype)

    # --- writing ---

    @contextmanager
    def writing(self) -> Generator[NDArray]:
        """``with buffer.writing() as view:`` a NumPy view to write to.

        Raises:
            ImmutableArrayError: arrays of the buffer exist.
        """
        self._check_free()
        view = _view(self._open(), self.type)
        try:
            yield view
        finally:
            view.flags.writeable = False

    def write(self, x: Any) -> None:
        """Copy the elements of ``x`` here. No copy if they are here already, as after donation.

        Raises:
            ImmutableArrayError: other arrays of the buffer exist.
            ShapeError: another shape or dtype.
        """
        value = x.numpy() if isinstance(x, DeviceArray) else np.asarray(x)
        if value.shape != self.shape or value.dtype != self.dtype:
            raise ShapeError(
                "unified buffer: cannot hold this",
                got=f"{dtypes.short_name(value.dtype)}{list(value.shape)}",
                expected=self.type,
            )
        if value.size and value.__array_interface__["data"][0] == self.address:
            self.pool.counters.add(shared=self.nbytes)
            return
        with self.writing() as view:
            np.copyto(view, value, casting="no")
        self.pool.counters.add(copied=self.nbytes)

    def _check_free(self) -> None:
        if self._leases:
            raise ImmutableArrayError(
                "unified buffer: arrays of it exist, and arrays do not change",
                got=f"{len(self._leases)} of {self.name or self.type}",
                fix="delete them (del x, x.delete()) before it is written to, or copy: nx.array(buffer.numpy())",
            )

    # --- others ---

    def tensor(self, runtime: str) -> Any:
        """The memory as a vendor's tensor, without a copy. Each side sees the other's writes.

        Args:
            runtime: ``openvino`` (`openvino.Tensor`), ``onnxruntime`` (`OrtValue`, for IO binding), ``litert``
                (`TensorBuffer` of a compiled model).

        Raises:
            ParameterError: an unknown runtime, or one that cannot use this dtype without a copy.
            MissingExtraError: the runtime is not installed.
        """
        if runtime not in RUNTIMES:
            raise ParameterError("unified buffer: no such runtime", got=runtime, expected=", ".join(RUNTIMES))
        made = shared_tensors.MAKERS[runtime](_view(self._open(), self.type))
        self.pool.counters.add(shared=self.nbytes)
        return made

    def close(self) -> None:
        """Free the memory if nothing else refers to it."""
        self._block = None
        self._reservation.release()

    def __repr__(self) -> str:
        place = "closed" if self._block is None else f"at {self.address:#x}"
        return f"UnifiedBuffer({self.type}, {self.access}, {shown(self.nbytes)} {place})"


@final
class _Shown:
    """Memory for NumPy to read, which no view of it can be made to write to."""

    def __init__(self, block: PoolBlock, nbytes: int) -> None:
        self._block = block
        self.__array_interface__ = {"data": (block.address, True), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def _view(block: PoolBlock, t: ArrayType) -> NDArray:
    """The memory of a block as NumPy, to write to; the view keeps the block."""
    nbytes = t.size * t.dtype.itemsize
    if not nbytes:
        return np.zeros(t.shape, t.dtype)
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(block.address)
    memory.owner = block
    return np.frombuffer(memory, np.uint8).view(t.dtype).reshape(t.shape)


@entry
def unified_buffer(
    shape: int | Sequence[int],
    dtype: DTypeLike | None = "float32",
    *,
    access: str = "flexible",
    pools: MemoryPools | None = None,
    name: str = "",
) -> UnifiedBuffer:
    """Zeroed memory that several executors share without copies.

    Args:
        shape: of the elements; an int is a length.
        dtype: of the elements.
        access: ``flexible`` or ``read_write`` (system memory), ``streaming`` (system memory, from the start of a page),
            ``npu_primary``, ``gpu_primary`` (the same, counted against the limit of that kind of device).
        pools: their limits apply; by default there are none.
        name: for reports and errors.

    Raises:
        MemoryLimitError: the pool's limit would be exceeded; the message lists its buffers.
        ParameterError: an unknown ``access``.

    >>> buffer = unified_buffer((2, 3), "float32", access="npu_primary", name="frame")
    >>> with buffer.writing() as view:
    ...     view[:] = 1
    >>> x = buffer.array()
    >>> x.numpy().ctypes.data == buffer.address, float((x + x).sum())
    (True, 12.0)
    """
    if access not in ACCESS:
        raise ParameterError("unified_buffer: access", got=access, expected=", ".join(ACCESS))
    kind, page = ACCESS[access]
    sizes: tuple[Any, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in sizes):
        raise ShapeError("unified_buffer: shape", got=sizes, expected="whole numbers, none of them negative")
    sizes = tuple(map(int, sizes))
    pool = (default_pools if pools is None else pools)[kind]
    return UnifiedBuffer(ArrayType(sizes, dtypes.as_dtype(dtype)), access, pool, page, name)
