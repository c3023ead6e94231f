"""A compiled program of this backend: machine code, its tape, and where arguments and results lie."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.cpu import guarded_tape
from nxjax.backends.cpu.call import shortcut
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.memory import CpuBuffer, PoolBlock, constant
from nxjax.backends.cpu.native.abi import NO_MEMORY
from nxjax.backends.cpu.native.runtime import out_of_memory, runtime
from nxjax.backends.cpu.native.tape import Tape, time_of
from nxjax.config import current_settings
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.isa import Isa
from nxjax.lower.cpu.analysis import MemoryAnalysis, cost_of, memory_of
from nxjax.lower.cpu.held import Parts
from nxjax.lower.cpu.tape import CallStep, CpuProgram, HostStep, walk
from nxjax.trace.array import DeviceArray
from nxjax.transforms.jit_stages import Repeated

NDArray = np.ndarray[Any, Any]
# Kernels of a program, and nanoseconds for each, that are made quickly at first.
_FEW: Final = 4
_SHORT: Final = 100_000


@final
class CpuExecutable(Executable):
    """A program compiled by nxjax for the host CPU. May be called by several threads at once.

    Args:
        program: what runs.
        part: the program in two parts, for so many held arguments; see `bind_leading`.
        shown: what `text` gives, if that is more than the program.
        hurry: the first code of a short program is made quickly.
        target: what code is made for; None: as the settings say.
    """

    def __init__(
        self,
        program: CpuProgram,
        part: Callable[[int], Parts | None] | None = None,
        shown: Parts | None = None,
        *,
        hurry: bool = True,
        target: Isa | None = None,
    ) -> None:
        self.program = program
        # Code that is made later is for what the program was lowered for, whatever is set by then.
        self._isa = target or isa.current()
        self._part = part
        self._shown = shown or program
        # For numbers of held arguments: what prepares them, what runs then, and which of them that still takes.
        self._parted: dict[int, tuple[CpuExecutable, CpuExecutable, tuple[int, ...]] | None] = {}
        self._runtime = runtime()
        self._quick = hurry and _is_short(program) and not engine(self._isa).has(c.kernel for c in program.calls())
        self.tape = Tape(program, engine(self._isa, 0 if self._quick else 2), self._runtime)
        self._guards: dict[tuple[str, bool], Tape] = {}
        self._has_run = False
        self._ins = ctypes.c_void_p * len(program.inputs)
        self._outs = ctypes.c_void_p * len(program.outputs)

    def __call__(self, args: Sequence[DeviceArray], into: Sequence[PoolBlock | None] = ()) -> list[DeviceArray]:
        """``into``: for each result the memory that it shall be written to, where that is not new.

        Nothing that is read may lie there. A result that is an argument, a constant or another result stays what it is.
        """
        if self._quick and self._has_run:
            self.prepare()
        self._has_run = True
        guard = current_settings().guard
        tape = self._guarded(guard) if guard else self.tape
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
        asked = (not guard and into) or (None,) * len(tape.results)
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
        if guard:
            status = guarded_tape.run(tape, self.program, self._runtime, ins, outs, blocks)
            for i, b in enumerate(into):
                if b is not None and (block := blocks[i]) is not None:
                    ctypes.memmove(b.address, block.address, tape.results[i].nbytes)
                    blocks[i] = b
        else:
            status = self._runtime.run(tape.address, ins, outs)
        if status == NO_MEMORY:
            raise out_of_memory(self.program.arena)
        results: list[DeviceArray] = []
        for r, block, type in zip(tape.results, blocks, self.program.out_types, strict=True):
            if r.kind == "result":
                results.append(results[r.index].with_type(type))
            elif r.kind == "const":
                results.append(DeviceArray(constant(tape.constants[r.index], type), type))
            elif block is None and r.index not in owned:
                results.append(read[r.index].with_type(type))
            else:
                results.append(DeviceArray(None, type, CpuBuffer(block or owned[r.index], type)))
        return results

    def _guarded(self, mode: str) -> Tape:
        """The tape for a value of ``config.guard``."""
        key = mode, self._quick
        with COMPILING:
            if key not in self._guards:
                level = 0 if self._quick else 2
                writer = guarded_tape.writer(mode)
                self._guards[key] = Tape(self.program, engine(self._isa, level), self._runtime, writer)
        return self._guards[key]

    def prepare(self) -> None:
        """Have the best code, where the first was made quickly."""
        if self._quick:
            self.tape = Tape(self.program, engine(self._isa), self._runtime)
            self._quick = False

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        if self._part is None:
            return None
        count = len(held)
        with COMPILING:
            if count not in self._parted:
                parts = self._part(count)
                self._parted[count] = parts and (
                    CpuExecutable(parts.preparation, target=self._isa),
                    CpuExecutable(parts.main, shown=parts, target=self._isa),
                    parts.kept,
                )
        found = self._parted[count]
        if found is None:
            return None
        preparation, main, kept = found
        return main, [*(held[i] for i in kept), *preparation(held)]

    @property
    def is_native(self) -> bool:
        """Whether no op of it runs by its NumPy meaning."""
        return not any(isinstance(s, HostStep) for s in walk(self.program.steps))

    def shortcut(self, jitted: Any, call: Repeated) -> None:
        """Machine code answers the next call that is like this one; better code, where the first was made quickly."""
        self.prepare()
        if current_settings().guard:
            return  # what machine code runs alone has no notes of what runs
        shortcut(self.program, self.tape, jitted, call)

    @property
    def text(self) -> str:
        return str(self._shown)

    def cost_analysis(self) -> dict[str, float]:
        return cost_of(self.program)

    def memory_analysis(self) -> MemoryAnalysis:
        return memory_of(self.program)


def _is_short(program: CpuProgram) -> bool:
    """Whether a first run takes less time than better code for it takes to make.

    Many functions are called once. LLVM's quick code (level 0) is made in a millisecond less a kernel, and takes some
    five times as long to run.
    """
    kernels = [s.kernel for s in program.steps if isinstance(s, CallStep)]
    nested = any(s.bodies() for s in program.steps)
    return not nested and 0 < len(kernels) <= _FEW and sum(map(time_of, kernels)) <= _SHORT * len(kernels)


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
