"""The tape of a program in guard mode, and the memory of a run of it.

The machine and its threads are those of every run. What differs is what the tape says: constants lie in guarded
memory, temporaries are passed like arguments, kernels are called by one that gives each call scratch memory of its own
and leaves a note of what runs, and steps in between overwrite temporaries that nobody needs.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.cpu.engine import KernelCache
from nxjax.backends.cpu.guard import GuardedMemory, address_of, copied, fill, kernel, reported, runs
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.cpu.native.runtime import Runtime
from nxjax.backends.cpu.native.tape import Tape, TapeEncoder
from nxjax.config import config
from nxjax.lower.cpu.memory_offsets import depth
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import ALIGN, Buffer, CallStep, CopyStep, CpuProgram, Ref, TapeStep

NDArray = np.ndarray[Any, Any]
_LONGEST: Final = 2000  # characters of a step in a report


def _lists(steps: Sequence[TapeStep], path: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    """The identity of each list of steps by the path that its steps have before their number."""
    found = {path: id(steps)}
    for i, step in enumerate(steps):
        for number, body in enumerate(step.bodies()):
            found |= _lists(body, (*path, i, number))
    return found


class GuardedWriter(TapeEncoder):
    """Writes the tape of a program whose memory is guarded.

    Attributes:
        temporaries: bytes, name and alignment of each piece of memory that a run has besides arguments and results;
            their addresses come after those of the arguments.
    """

    inlines = False
    shares_arena = False  # whether temporaries lie where they were planned to

    def __init__(self, program: CpuProgram, engine: KernelCache, runtime: Runtime, constants: list[NDArray]) -> None:
        super().__init__(program, engine, runtime, constants)
        self._begins = int(config.guard == "begin")
        self._head: tuple[int, ...] = ()
        self.temporaries: list[tuple[int, str, int]] = []
        self._held: list[GuardedMemory] = [
            copied(c.ctypes.data, c.nbytes, f"constant {i}") for i, c in enumerate(constants)
        ]
        self._scratch = self._arena = 0  # of the machine's own memory
        self._slots: dict[Buffer, tuple[int, int]] = {}
        # What is first needed by a step, and last: by the list that the step is in and its number there.
        self._born: defaultdict[tuple[int, int], list[Buffer]] = defaultdict(list)
        self._dead: defaultdict[tuple[int, int], list[Buffer]] = defaultdict(list)
        lists = _lists(program.steps)
        first = len(program.inputs)
        if self.shares_arena:
            self.temporaries.append((program.arena, "the temporaries", ALIGN))
        for b, used in Uses(program.steps).of.items():
            if b.kind != "temp":
                continue
            n = depth(used)
            within = lists[used[0].path[:n]]
            self._born[within, used[0].path[n]].append(b)
            self._dead[within, used[-1].path[n]].append(b)
            if self.shares_arena:
                self._slots[b] = first, b.offset
            else:
                self._slots[b] = first + len(self.temporaries), 0
                self.temporaries.append((b.nbytes, f"temporary {b!r}", 1))

    def _place(self, b: Buffer) -> tuple[str, int, int]:
        match b.kind:
            case "const":
                return "const", self._held[b.index].address, 0
            case "temp":
                slot, offset = self._slots[b]
                return "input", 8 * slot, offset
            case _:
                return super()._place(b)

    def steps(self, steps: Sequence[TapeStep]) -> None:
        for i, step in enumerate(steps):
            self._poison(self._born[id(steps), i])
            self._step(step)
            self._poison(self._dead[id(steps), i])

    def _poison(self, buffers: Sequence[Buffer]) -> None:
        """Overwrite temporaries whose content nobody may need."""
        sizes = [b.nbytes for b in buffers]
        if not sizes:
            return

        def poison(words: int) -> None:
            for address, nbytes in zip((ctypes.c_uint64 * len(sizes)).from_address(words), sizes, strict=True):
                fill(address, nbytes)

        self._python(poison, [Ref(b) for b in buffers])

    def _step(self, step: TapeStep) -> None:
        if not isinstance(step, CallStep):  # kernels say it themselves, in the thread that runs them
            text = self._text(step)
            self._python(lambda _: runs(text))
        super()._step(step)

    def _text(self, step: TapeStep) -> int:
        source = "" if step.source is None else f"  # {step.source}"
        text = repr(step)[:_LONGEST].encode() + source.encode()
        self._kept.append(text)
        return address_of(text)

    def _refs(self, refs: Sequence[Ref], integers: Sequence[int] = ()) -> int:
        for number in self._head:
            self._word(number)
        self._head = ()
        return super()._refs(refs, integers)

    def _call(self, step: CallStep) -> None:
        self._head = self._begins, step.kernel.scratch, self._text(step), super()._machine_code(step)
        super()._call(step)

    def _copy(self, step: CopyStep) -> None:
        self._head = self._begins, 0, self._text(step), super()._machine_code(step)
        super()._copy(step)

    def _machine_code(self, step: CallStep | CopyStep) -> int:
        return kernel()


@final
class ArenaWriter(GuardedWriter):
    """The same, with temporaries where they were planned to lie: those that are alive together must not overlap."""

    shares_arena = True


def writer(mode: str) -> type[GuardedWriter]:
    """What writes tapes for a value of ``config.guard``."""
    return ArenaWriter if mode == "poison" else GuardedWriter


def run(
    tape: Tape, program: CpuProgram, runtime: Runtime, ins: Any, outs: Any, results: Sequence[PoolBlock | None]
) -> int:
    """Run a tape that such a writer wrote; the arguments are copied first. See `abi` for what is given back.

    Raises:
        ExecutionError: a kernel wrote beside memory, near enough for no fault.
    """
    assert isinstance(tape.writer, GuardedWriter)
    pieces: list[GuardedMemory] = []
    for i, (address, t) in enumerate(zip(ins, program.in_types, strict=True)):
        if i not in tape.overwritten:
            pieces.append(copied(address, t.size * t.dtype.itemsize, f"argument {i}, {t}"))
            ins[i] = pieces[-1].address
    for i, block in enumerate(results):
        if block and block.piece:
            block.piece.name(f"result {i}, {program.out_types[i]}")
            pieces.append(block.piece)
    own = [GuardedMemory(nbytes, name, align) for nbytes, name, align in tape.writer.temporaries]
    every = (ctypes.c_void_p * (len(ins) + len(own)))(*ins, *(p.address for p in own))
    with reported(None):
        status = runtime.run(tape.address, every, outs)
    for piece in (*pieces, *own):
        piece.check()
    return status
