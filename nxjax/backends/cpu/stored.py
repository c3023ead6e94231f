"""Programs that an earlier process has compiled: their tapes, read from a record and run without the compiler.

A record is good for one program, by content, and names the files of the cache that have its kernels. Programs that hold
objects of a process (callbacks), ops that are not nxjax's own, or many constants have none. Must not import the
compiler: what it is needed for, better code or a text, compiles the program after all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.compiled_later import CompiledLater
from nxjax.backends.cpu.memory import PoolBlock
from nxjax.backends.cpu.native import tables as m
from nxjax.backends.cpu.native.runtime import runtime
from nxjax.backends.cpu.running import TapeExecutable
from nxjax.config import config, current_settings
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Program
from nxjax.trace.shortcuts import is_allowed
from nxjax.transforms.jit_stages import Repeated

NDArray = np.ndarray[Any, Any]
_KINDS: Final = ("new", "input", "const", "result")
# Bytes of constants that a record may hold.
_MOST: Final = 1 << 20
_WHOLE: Final = b"whole"
# Machine code answers calls from the third time on that a shortcut is offered: before, loading what installs it takes
# longer than it saves.
_OFTEN: Final = 3


def key(program: Program, donate: Sequence[int], choices: Mapping[str, int]) -> tuple[str, ...] | None:
    """What a record of the program is found by; None for a program that has none."""
    if config.compile_first or current_settings().mode is not None or not is_allowed("stored program"):
        return None
    if not program.is_process_independent or not _is_own(program):
        return None
    return ("program", program.fingerprint, repr(tuple(donate)), repr(sorted(choices.items())))


def keep_whole(what: Sequence[str], count: int) -> None:
    """Leave word that a program prepares nothing of its first ``count`` inputs, if they are held."""
    earlier.write(_WHOLE, *what, str(count))


def _is_own(program: Program) -> bool:
    """Whether all ops are nxjax's own, which its version and sources name."""
    return all(
        type(e.op).__module__.startswith("nxjax.") and all(map(_is_own, e.programs())) for e in program.equations
    )


def packed(parts: m.TapeParts, tape: m.LinkedTape, links: Links, quick: bool, arena: int) -> bytes | None:
    """A record; None where the constants are too large."""
    if sum(c.nbytes for c in tape.constants) > _MOST:
        return None
    for instruction, _ in links.codes:
        parts.code[instruction, m.CODE // 8] = 0
    for word, _, _ in links.places:
        parts.words[word] = 0
    symbols = list(dict.fromkeys(s for _, s in links.codes))
    flat = lambda rows: np.array([n for i, row in rows for n in (i, len(row), *row.tolist())], np.int64)
    numbers: list[NDArray] = [
        np.array([arena, parts.block, parts.long, parts.strict, quick], np.int64),
        parts.code, parts.words, parts.ins, parts.outs, parts.temps, parts.jumps, flat(parts.cases), flat(parts.moves),
        np.array([(_KINDS.index(r.kind), r.index, r.nbytes) for r in tape.results], np.int64),
        np.array(sorted(tape.overwritten), np.int64),
        np.array([(i, symbols.index(s)) for i, s in links.codes], np.int64),
        np.array(links.places, np.int64),
    ]  # fmt: skip
    names = "\n".join(f"{s} {links.files.get(s, '')}" for s in symbols).encode()
    data = [np.ascontiguousarray(x).tobytes() for x in numbers] + [names, *(c.tobytes() for c in tape.constants)]
    return b"".join(struct.pack("<q", len(x)) + x for x in data)


class Links:
    """What a tape has of its process.

    Attributes:
        codes: instructions that run code, and its symbol; "" for the runtime's copy.
        places: words that hold the address of a constant: which word, which constant, how many bytes into it.
        files: the file of the cache that has a symbol.
    """

    def __init__(
        self, codes: Sequence[tuple[int, str]], places: Sequence[tuple[int, int, int]], files: Mapping[str, str]
    ) -> None:
        self.codes = codes
        self.places = places
        self.files = files


def load(
    program: Program, donate: Sequence[int], choices: Mapping[str, int], make: Callable[[], Any]
) -> StoredExecutable | None:
    """The program as an earlier process has compiled it; ``make`` compiles it, if more is asked than to run it."""
    what = key(program, donate, choices)
    record = None if what is None else earlier.read(*what)
    try:
        return None if what is None or record is None else _unpacked(record, program, what, make)
    except (ValueError, IndexError, KeyError, struct.error):  # of another layout
        return None


def _chunks(record: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(record):
        (size,) = struct.unpack_from("<q", record, at)
        yield record[at + 8 : at + 8 + size]
        at += 8 + size


def _unpacked(record: bytes, program: Program, what: Sequence[str], make: Callable[[], Any]) -> StoredExecutable | None:
    chunks = list(_chunks(record))
    numbers = [np.frombuffer(x, np.int64) for x in chunks[:13]]
    head, code, words, ins, outs, temps, jumps, cases, moves, results, overwritten, codes, places = numbers
    arena, block, long, strict, quick = head.tolist()
    constants = [m.aligned(np.frombuffer(x, np.uint8)) for x in chunks[14:]]
    addresses: list[int] = []
    keeps: list[Any] = []
    files: dict[str, list[str]] = {}
    named = [line.split(" ") for line in chunks[13].decode().splitlines()]
    for symbol, file in named:
        if symbol:
            files.setdefault(file, []).append(symbol)
    found: dict[str, int] = {"": runtime().addresses.copy}
    for file, symbols in files.items():
        made = earlier.code(file, symbols)
        if made is None:
            return None
        keeps.append(made)
        found.update((s, made.addresses[s]) for s in symbols)
    addresses = [found[symbol] for symbol, _ in named]
    # Of this process from here on.
    code, words = code.reshape(-1, m.INSTRUCTION // 8).copy(), words.copy()
    for instruction, which in codes.reshape(-1, 2).tolist():
        code[instruction, m.CODE // 8] = addresses[which]
    for word, which, offset in places.reshape(-1, 3).tolist():
        words[word] = constants[which].ctypes.data + offset
    rows = lambda x: x.reshape(-1, 3)
    parts = m.TapeParts(
        code, words, rows(ins), rows(outs), rows(temps), rows(jumps), list(_ragged(cases)), list(_ragged(moves)),
        block, bool(long), bool(strict),
    )  # fmt: skip
    located = [m.ResultLocation(_KINDS[kind], i, nbytes) for kind, i, nbytes in rows(results).tolist()]
    tape = m.LinkedTape(parts, located, frozenset(overwritten.tolist()), constants, runtime().release, keeps)
    return StoredExecutable(program, what, tape, arena, bool(quick), make)


def _ragged(numbers: NDArray) -> Iterator[tuple[int, NDArray]]:
    at = 0
    while at < numbers.size:
        n = int(numbers[at + 1])
        yield int(numbers[at]), numbers[at + 2 : at + 2 + n]
        at += 2 + n


@final
class StoredExecutable(CompiledLater, TapeExecutable):
    """A program that an earlier process has compiled.

    Args:
        what: what its record was found by.
        quick: its code was made quickly; the second call makes better code.
        make: compiles the program.
    """

    def __init__(
        self,
        program: Program,
        what: Sequence[str],
        tape: m.LinkedTape,
        arena: int,
        quick: bool,
        make: Callable[[], Any],
    ) -> None:
        CompiledLater.__init__(self, make)
        self._what = what
        TapeExecutable.__init__(self, len(program.inputs), program.out_types, arena)
        self.tape = tape
        self._quick = quick
        self._has_run = False
        self._offered = 0

    def __call__(self, args: Sequence[DeviceArray], into: Sequence[PoolBlock | None] = ()) -> list[DeviceArray]:
        if self._made is not None or (self._quick and self._has_run) or current_settings().guard:
            return self.compiled(args, into)
        self._has_run = True
        return self._run(self.tape, args, into)

    def prepare(self) -> None:
        if self._quick:
            self.compiled.prepare()

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        if self._made is None and not self._quick and earlier.read(*self._what, str(len(held))) == _WHOLE:
            return None
        return super().bind_leading(held)

    def shortcut(self, jitted: Any, call: Repeated) -> None:
        if self._made is not None or self._quick or current_settings().guard:
            self.compiled.shortcut(jitted, call)
            return
        self._offered += 1
        if self._offered >= _OFTEN:
            from nxjax.backends.cpu.call import shortcut

            shortcut(self, self.tape, jitted, call)

    @property
    def is_native(self) -> bool:
        return True
