"""Arrays in the pool's memory: a block of it, and a result in one; seen by NumPy without a copy.

A block goes back to the pool when nothing refers to it any more: no array, and no NumPy view. Knows no program.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.backends.cpu.native.runtime import out_of_memory, runtime
from nxjax.config import config
from nxjax.trace.array import UNCHANGING
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]


def _kept(address: int) -> None:
    """A guarded piece goes by itself."""


class PoolBlock:
    """Memory of the pool, 64-byte aligned; returned to it by its end. In guard mode, a guarded piece.

    Args:
        nbytes: how much; a block is never without an address.

    Attributes:
        piece: in guard mode, the `GuardedMemory` that it is.

    Raises:
        MemoryLimitError: the system gives no more.
    """

    __slots__ = ("_release", "address", "nbytes", "piece")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = 0
        self.piece: Any = None
        if config.guard:
            from nxjax.backends.cpu.guard import GuardedMemory

            self._release = _kept
            self.piece = GuardedMemory(nbytes, "an array")
            self.address = self.piece.address
            return
        r = runtime()
        self._release = r.release
        self.address = r.acquire(nbytes) or 0
        if not self.address:
            raise out_of_memory(nbytes)

    def __del__(self) -> None:
        try:
            release = self._release
        except AttributeError:  # a signal's handler raised before anything was taken
            return
        release(self.address)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # Read-only: arrays are immutable. A view has this object for its base, so it keeps the memory.
        return {"data": (self.address, True), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


@final
class Lease(PoolBlock):
    """Another block's memory, held for it: arrays of a lease can be counted, and the block outlives them."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: PoolBlock, nbytes: int) -> None:
        self._release = owner._release
        self.owner = owner
        self.piece = owner.piece
        self.nbytes = nbytes
        self.address = owner.address

    def __del__(self) -> None:
        """The memory goes with its owner."""


UNCHANGING.update((PoolBlock, Lease))


@final
class CpuBuffer:
    """An array in a block."""

    __slots__ = ("block", "type")

    def __init__(self, block: PoolBlock, type: ArrayType) -> None:
        self.block = block
        self.type = type

    def wait(self) -> None:
        """Until it is computed, which it is."""

    def to_numpy(self) -> NDArray:
        """A read-only view, which keeps the memory."""
        t = self.type
        if not self.block.nbytes or not t.size * t.dtype.itemsize:
            empty = np.zeros(t.shape, t.dtype)
            empty.flags.writeable = False
            return empty
        return np.asarray(self.block)[: t.size * t.dtype.itemsize].view(t.dtype).reshape(t.shape)


def constant(data: NDArray, type: ArrayType) -> NDArray:
    """A constant as a result: a read-only view."""
    view = data.view(type.dtype).reshape(type.shape)
    view.flags.writeable = False
    return view
