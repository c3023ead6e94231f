"""How a tape runs: where arguments and results lie, and whose memory is written over. Must not know what wrote it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.cpu.memory import CpuBuffer, PoolBlock, constant
from nxjax.backends.cpu.native.abi import NO_MEMORY
from nxjax.backends.cpu.native.runtime import out_of_memory, runtime
from nxjax.backends.cpu.native.tables import LinkedTape
from nxjax.config import current_settings
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
# Runs a tape otherwise: with addresses of arguments and results, and the blocks of these; gives the status.
GuardedRun = Callable[[Any, Any, Sequence[PoolBlock | None]], int]


class TapeExecutable(Executable):
    """What has a tape. May be called by several threads at once.

    Args:
        inputs: how many arguments it takes.
        out_types: of its results.
        arena: bytes of temporaries.
    """

    def __init__(self, inputs: int, out_types: Sequence[ArrayType], arena: int) -> None:
        self._runtime = runtime()
        self.out_types = tuple(out_types)
        self.arena = arena
        self._ins = ctypes.c_void_p * inputs
        self._outs = ctypes.c_void_p * len(self.out_types)

    def _run(
        self,
        tape: LinkedTape,
        args: Sequence[DeviceArray],
        into: Sequence[PoolBlock | None] = (),
        guarded: GuardedRun | None = None,
    ) -> list[DeviceArray]:
        held: list[Any] = []
        ins, outs = self._ins(), self._outs()
        owned: dict[int, PoolBlock] = {}
        # What is read is held first, as it is now: another thread may delete it meanwhile, and an array that is also
        # given away is seen to have another user.
        read = args
        if tape.passed:
            read = [x.with_type(x.type) if i in tape.passed else x for i, x in enumerate(args)]
        for i, x in enumerate(read):
            if i not in tape.overwritten:
                ins[i] = _address(x, held)
        asked = (guarded is None and into) or (None,) * len(tape.results)
        blocks = [
            (b or PoolBlock(r.nbytes)) if r.kind == "new" else None for r, b in zip(tape.results, asked, strict=True)
        ]
        for i, block in enumerate(blocks):
            outs[i] = block and block.address
        if tape.overwritten:
            last = {id(args[i]): i for i in tape.overwritten}
            for i in tape.overwritten:
                x = args[i]
                owned[i] = block = _own(x) if last[id(x)] == i else _copied(x.numpy())
                ins[i] = block.address
        if guarded is not None:
            status = guarded(ins, outs, blocks)
            for i, b in enumerate(into):
                if b is not None and (block := blocks[i]) is not None:
                    ctypes.memmove(b.address, block.address, tape.results[i].nbytes)
                    blocks[i] = b
        else:
            status = self._runtime.run(tape.address, ins, outs)
        if status == NO_MEMORY:
            raise out_of_memory(self.arena)
        results: list[DeviceArray] = []
        for r, block, type in zip(tape.results, blocks, self.out_types, strict=True):
            if r.kind == "result":
                results.append(results[r.index].with_type(type))
            elif r.kind == "const":
                results.append(DeviceArray(constant(tape.constants[r.index], type), type))
            elif block is None and r.index not in owned:
                results.append(read[r.index].with_type(type))
            else:
                results.append(DeviceArray(None, type, CpuBuffer(block or owned[r.index], type)))
        return results


def _address(x: DeviceArray, held: list[Any]) -> int:
    """Where the elements of an argument are; ``held`` gets what keeps them there."""
    buffer = x.buffer
    if type(buffer) is CpuBuffer:
        held.append(buffer.block)
        return buffer.block.address
    data = x.numpy()
    if not (data.flags.c_contiguous and data.flags.aligned):
        data = np.array(data, order="C")
        if not x.is_deleted():
            x._data = data  # for the next time, too
    held.append(data)
    return data.__array_interface__["data"][0]


def _alone() -> tuple[int, int]:
    """What this Python counts, in the very words of `_own`, where nobody else has a buffer and its memory.

    With `getrefcount`'s own it is two of each, but since 3.14 a name lends its reference to a call.
    """
    anything: Any = object
    buffer = CpuBuffer(anything(), anything())
    return sys.getrefcount(buffer), sys.getrefcount(buffer.block)


_ALONE: Final = _alone()


def _own(x: DeviceArray) -> PoolBlock:
    """Memory with the elements of a donated argument that may be written over: its own if nobody else sees it.

    The array has let go of it before that is asked: another thread could look at it meanwhile. An array whose memory
    is not written over has it back, until the call has succeeded.
    """
    buffer = x.buffer
    if type(buffer) is not CpuBuffer:
        return _copied(x.numpy())
    x.delete()
    # No more than of what one name holds, and one attribute: no other array has it, no view of NumPy's, and no call
    # that is under way.
    is_ours = (sys.getrefcount(buffer), sys.getrefcount(buffer.block)) == _ALONE
    if is_ours and (not current_settings().guard or buffer.block.piece is not None):
        return buffer.block
    x.buffer = buffer
    return _copied(buffer.to_numpy())


def _copied(data: NDArray) -> PoolBlock:
    """New memory with these elements."""
    block = PoolBlock(data.nbytes)
    if data.nbytes:
        dense = np.ascontiguousarray(data)  # has a name: its memory lives until it was copied
        ctypes.memmove(block.address, dense.ctypes.data, data.nbytes)
    return block
