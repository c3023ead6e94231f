"""What object files ask a loader to write into them, by processor: what LLVM's large code model asks for, by the ABIs'
numbers. Knows no object file.
"""

from __future__ import annotations

from typing import Final

from nxjax.config.named_tuple import NamedTuple


class RelocationKind(NamedTuple):
    """How an address is written.

    Attributes:
        size: bytes of the word that changes.
        parts: which bits of the number go where, as (first bit in the number, how many, first bit in the word).
        origin: what the number is counted from: "" (nothing), "place" (the word), "page" (pages of both).
        reach: bits that a number with a sign may have; 0: any.
        slot: the symbol is reached through memory near by that this much is kept for: "" (it is not), "address"
            (its address), "call" (an instruction that goes there; only where the symbol is in no file).
    """

    size: int
    parts: tuple[tuple[int, int, int], ...]
    origin: str = ""
    reach: int = 0
    slot: str = ""

    def number(self, symbol: int, place: int) -> int | None:
        """What is written at ``place`` for a symbol's address; None where it is too far away."""
        page = -_PAGE
        number = symbol - place if self.origin == "place" else symbol
        if self.origin == "page":
            number = (symbol & page) - (place & page)
        return None if self.reach and not -(1 << self.reach - 1) <= number < 1 << self.reach - 1 else number

    def written(self, word: int, number: int) -> int:
        """``word`` with a number in its place."""
        for first, bits, at in self.parts:
            mask = (1 << bits) - 1
            word = word & ~(mask << at) | ((number >> first) & mask) << at
        return word


class Processor(NamedTuple):
    """One processor's objects.

    Attributes:
        number: ELF's of it.
        kinds: by their numbers.
        absolute: the number of that which writes a whole address.
        jump: instructions that go to the address in the eight bytes after them.
        synchronized: what was written can run; otherwise the processor's caches have to be told.
    """

    number: int
    kinds: dict[int, RelocationKind]
    absolute: int
    jump: bytes = b""
    synchronized: bool = True


_PAGE: Final = 4096  # of instructions that know pages, whatever the system's are
_WORD, _HALF = ((0, 64, 0),), ((0, 32, 0),)
_PAGES: Final = ((12, 2, 29), (14, 19, 5))
_CALL: Final = RelocationKind(4, ((2, 26, 0),), "place", 28, "call")

PROCESSORS: Final = {
    "x86_64": Processor(
        62,
        {
            1: RelocationKind(8, _WORD),
            **dict.fromkeys((2, 4), RelocationKind(4, _HALF, "place", 32)),
            24: RelocationKind(8, _WORD, "place", 64),
        },
        1,
    ),
    "aarch64": Processor(
        183,
        {
            257: RelocationKind(8, _WORD),
            260: RelocationKind(8, _WORD, "place", 64),
            261: RelocationKind(4, _HALF, "place", 32),
            # Sixteen bits of an address in each of four instructions.
            **{kind: RelocationKind(4, ((16 * i, 16, 5),)) for i, kind in enumerate((264, 266, 268, 269))},
            282: _CALL,
            283: _CALL,
            # Code that is made in a hurry reads constants of 2, 8 and 16 bytes by their page and their place in it.
            275: RelocationKind(4, _PAGES, "page", 33),
            **{kind: RelocationKind(4, ((i, 12 - i, 10),)) for i, kind in ((1, 284), (3, 286), (4, 299))},
            311: RelocationKind(4, _PAGES, "page", 33, "address"),
            312: RelocationKind(4, ((3, 9, 10),), slot="address"),
        },
        257,
        bytes.fromhex("50000058 00021fd6"),  # ldr x16, [pc + 8]; br x16
        synchronized=False,
    ),
}
