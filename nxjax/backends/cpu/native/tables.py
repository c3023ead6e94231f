"""The tables that the machine runs: how they are laid out, and how their parts become addresses.

What `tape` has written is a `TapeParts`: numbers that are good in any process, but for addresses, which it notes.
`linked` makes the tables of this process. Must not know how code is emitted or programs are lowered: a process that
runs what an earlier one compiled loads this file and not those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.config.named_tuple import NamedTuple

NDArray = np.ndarray[Any, Any]

OPCODES: Final = (
    "end", "call", "heavy", "parallel", "copy", "copy4", "copy8", "host", "repeat", "again", "test", "jump", "select",
)  # fmt: skip
# Of an instruction: what, three operands that all have, and the rest.
OP, CODE, WORDS, COUNT, TARGET, MOVES, EXTRA, WEIGHT = range(0, 64, 8)
INSTRUCTION: Final = 64
# Of a move: the word (bytes into the frame), bytes per turn, bytes of all turns.
MOVE: Final = 24
# Of a relocation: the word, which address (bytes into the array of addresses), bytes added to it.
RELOCATION: Final = 24

# Of a tape.
(
    T_CODE,  # instructions
    T_IMAGE,  # what a new frame's words are
    T_WORDS,  # bytes of words
    T_FRAME,  # bytes of a frame
    T_BLOCK,  # bytes of scratch and temporaries
    T_INSIDE,  # where they lie in the frame; 0: in a block of their own, taken for each run
    T_IN,  # relocations by arguments: table, how many
    T_INS,
    T_OUT,  # by results
    T_OUTS,
    T_TEMP,  # by the block
    T_TEMPS,
    T_KEPT,  # the frame that is kept, or null
    T_LONG,  # 1: give the interpreter's lock back while it runs
    T_STRICT,  # 1: floats are as IEEE has them by default while it runs
) = range(0, 15 * 8, 8)
TAPE: Final = 15 * 8

# Of a frame: the block that temporaries' words point to, nanoseconds until the clock is read, when to ask for signals,
# the thread state while the interpreter's lock is given back (else null), estimated nanoseconds of the parallel step.
F_BLOCK, F_LEFT, F_NEXT, F_THREAD, F_WEIGHT = 0, 8, 16, 24, 32
FRAME_HEADER: Final = 64

ALIGN: Final = 64  # of constants, scratch and temporaries
# Scratch and temporaries up to this size stay with the frame between runs.
_INSIDE: Final = 64 * 1024


class TapeParts(NamedTuple):
    """A tape before its addresses are known.

    Attributes:
        code: [n, 8] instructions.
        words: of the frame.
        ins, outs, temps: [n, 3] words that hold an address of an argument, a result or a temporary; see `RELOCATION`.
        jumps: [n, 3] fields that hold the place of an instruction: instruction, field, which.
        cases: per branch its instruction and the instructions that its cases begin with.
        moves: per loop its last instruction and [n] numbers; see `MOVE`.
        block: bytes of scratch and temporaries.
        long, strict: see `T_LONG` and `T_STRICT`.
    """

    code: NDArray
    words: NDArray
    ins: NDArray
    outs: NDArray
    temps: NDArray
    jumps: NDArray
    cases: Sequence[tuple[int, NDArray]]
    moves: Sequence[tuple[int, NDArray]]
    block: int
    long: bool
    strict: bool


def linked(parts: TapeParts) -> tuple[NDArray, Sequence[NDArray]]:
    """The tape, and the tables that it names. The instructions in ``parts`` are written to."""
    code, kept = parts.code, list[NDArray]()
    base = code.ctypes.data

    def table(numbers: NDArray) -> int:
        """The address of numbers; 0 for none."""
        if not numbers.size:
            return 0
        kept.append(np.ascontiguousarray(numbers, np.int64))
        return kept[-1].ctypes.data

    for instruction, field, to in parts.jumps.tolist():
        code[instruction, field] = base + to * INSTRUCTION
    for instruction, starts in parts.cases:
        code[instruction, CODE // 8] = table(base + starts * INSTRUCTION)
    for instruction, moves in parts.moves:
        code[instruction, CODE // 8] = table(moves)
    words = 8 * parts.words.size
    inside = -(-(FRAME_HEADER + words) // ALIGN) * ALIGN
    within = parts.block <= _INSIDE
    tape = np.zeros(TAPE // 8, np.int64)
    values = {
        T_CODE: base,
        T_IMAGE: table(parts.words if words else np.zeros(1, np.int64)),
        T_WORDS: words,
        T_FRAME: inside + (parts.block if within else 0),
        T_BLOCK: parts.block,
        T_INSIDE: inside if within else 0,
        T_LONG: int(parts.long),
        T_STRICT: int(parts.strict),
    }
    for entries, at, count in (
        (parts.ins, T_IN, T_INS),
        (parts.outs, T_OUT, T_OUTS),
        (parts.temps, T_TEMP, T_TEMPS),
    ):
        values[at], values[count] = table(entries), len(entries)
    for offset, value in values.items():
        tape[offset // 8] = value
    return tape, (code, *kept)


class ResultLocation(NamedTuple):
    """Where result i of a run is.

    ``kind``: ``new``: at ``outs[i]``, ``nbytes`` of it; ``input``: it is argument ``index``, as it was or, where the
    argument was donated, written over; ``const``: it is constant ``index``; ``result``: it is result ``index``.
    """

    kind: str
    index: int
    nbytes: int


class LinkedTape:
    """The tables of one program in this process, and what they keep alive.

    Attributes:
        address: of the tape, for ``run``.
        results: where each result is.
        overwritten: arguments whose memory the tape writes to (they were donated).
        passed: arguments that are results as they were.
        constants: the program's, 64-byte aligned.

    Args:
        release: takes the frame that is kept, in the end.
        keeps: the code that the tape runs.
    """

    def __init__(
        self,
        parts: TapeParts,
        results: Sequence[ResultLocation],
        overwritten: frozenset[int],
        constants: Sequence[NDArray],
        release: Callable[[int], object],
        keeps: Any = None,
    ) -> None:
        self.results = tuple(results)
        self.overwritten = overwritten
        self.passed = frozenset({r.index for r in results if r.kind == "input"}.difference(overwritten))
        self.constants = constants
        self._release = release
        self._keeps = keeps
        self._table, self._tables = linked(parts)
        self.address: int = self._table.ctypes.data

    def __del__(self, kept: int = T_KEPT // 8) -> None:
        # When the interpreter ends, this file's names are gone before the last tapes are.
        frame = int(self._table[kept]) if hasattr(self, "_table") else 0
        if frame:
            self._release(frame)


def aligned(array: NDArray) -> NDArray:
    """The array, dense and at a multiple of `ALIGN`."""
    array = np.ascontiguousarray(array)
    if not array.ctypes.data % ALIGN:
        return array
    raw = np.empty(array.nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
