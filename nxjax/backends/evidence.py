"""Evidence: records of what tools did with the bytes of an artifact, and the label that follows from them.

A record is written after the act, by the adapter that called the tool. Labels are computed from records and from the
files alone: what a tool did with other bytes says nothing of the artifact. Knows no vendor and no format.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

# How much a result says about the chip: it ran on the chip; on the vendor's simulator of it; the vendor's compiler took
# the files; our own model of the chip ran it; the files were only written; all of it runs on the host.
Label = Literal["hardware", "vendor-simulator", "vendor-compiled", "own-model", "emitted", "host"]
LABELS: Final[tuple[Label, ...]] = ("hardware", "vendor-simulator", "vendor-compiled", "own-model", "emitted", "host")

Act = Literal["compiled", "refused", "failed", "loaded", "ran"]
By = Literal["chip", "vendor-simulator", "vendor-compiler", "own-model", "host"]
_EARNED: Final[Mapping[By, Label]] = {
    "chip": "hardware", "vendor-simulator": "vendor-simulator", "own-model": "own-model",
}  # fmt: skip
_WORDS: Final = 300


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal.

    >>> digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def plain(words: str, most: int = 600) -> str:
    """What a tool said as one line of at most ``most`` characters, none of which moves a terminal.

    >>> plain("an\\x1b[31m error\\n", 300), plain("aaaa", 3)
    ('an [31m error', 'aaa...')
    """
    said = " ".join("".join(c if c.isprintable() else " " for c in words[: 8 * most]).split())
    return said if len(said) <= most else said[:most] + "..."


@final
@dataclass(frozen=True)
class Record:
    """One act of one tool.

    Attributes:
        act: "compiled" (it took the files and ended well), "refused" (its own word against them), "failed" (it gave no
            usable answer), "loaded" (a runtime took the files), "ran".
        by: what kind of tool it is.
        tool: its name and version.
        command: how it was called.
        status: its exit status; None where it is no process of its own, or did not end.
        took: SHA-256 of each file that it was given.
        gave: SHA-256 of each file, or of each result of a run.
        answer: what it said, cut to a few words.
        checked: what of its files was held against the model; what is not there was not checked.
        when: UTC, ISO 8601.

    >>> record = Record("compiled", "vendor-compiler", "Vela 5.2.0", took=(digest(b"model"),), gave=(digest(b"made"),))
    >>> label([record], {"model.tflite": b"model", "model_vela.tflite": b"made"}, on_chip=True)
    'vendor-compiled'
    >>> label([record], {"model.tflite": b"another", "model_vela.tflite": b"made"}, on_chip=True)
    'emitted'
    """

    act: Act
    by: By
    tool: str
    command: str = ""
    status: int | None = None
    took: tuple[str, ...] = ()
    gave: tuple[str, ...] = ()
    answer: str = ""
    checked: str = ""
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def __post_init__(self) -> None:
        for name in ("tool", "command", "answer", "checked"):
            object.__setattr__(self, name, plain(getattr(self, name), _WORDS))

    @property
    def answered(self) -> bool:
        """Whether the tool itself said something about the files: what ends with an error has compiled nothing."""
        return self.act != "failed" and not (self.act == "compiled" and self.status)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        parts = [f"{self.tool} {self.act}"]
        parts += [f"sha256 {', '.join(d[:12] for d in self.took)}"] if self.took else []
        parts += [f"status {self.status}"] if self.status is not None else []
        parts += [self.when, *([self.answer] if self.answer else [])]
        parts += [f"checked: {self.checked}"] if self.checked else []
        return "; ".join(parts)


def label(records: Iterable[Record], files: Mapping[str, bytes], on_chip: bool | None, host: bool = False) -> Label:
    """The label that records earn.

    Args:
        records: what happened so far.
        files: those of the artifact. A record counts only if its tool was given these bytes, and gave these bytes.
        on_chip: whether any op is placed on the chip; None where nobody says.
        host: whether the target's device is this machine's processor.
    """
    return earned(records, {digest(data) for data in files.values()}, on_chip, host)


def earned(records: Iterable[Record], held: set[str], on_chip: bool | None, host: bool = False) -> Label:
    """`label`, of files that are known by their digests."""
    # What runs here may run the program that the files were written from: it claims nothing of a vendor's tool.
    counted = [r for r in records if held.issuperset(r.took) and (r.took or r.by in ("own-model", "host"))]
    # A compiler whose every file is one that it was given has made nothing.
    counted = [r for r in counted if r.act != "compiled" or not r.gave or set(r.gave) - set(r.took)]
    # Where nothing is known to be on the chip, nothing ran there.
    counted = [r for r in counted if on_chip or r.act != "ran" or r.by not in ("chip", "vendor-simulator")]
    # What a compiler gave is part of what runs: where it is another file by now, a run says nothing of it.
    whole = all(held.issuperset(r.gave) for r in counted if r.act == "compiled")
    ran: set[Label] = {_EARNED[r.by] for r in counted if whole and r.act == "ran" and r.by in _EARNED}
    compiled = any(
        r.act == "compiled" and r.by in ("vendor-compiler", "chip") and held.issuperset(r.gave) for r in counted
    ) and not any(r.act == "compiled" and r.status for r in counted)
    # What the vendor's own simulator does not run is not compiled, whatever the compiler said of it.
    made = {d for r in counted if r.act == "compiled" for d in r.gave}
    tried = [r for r in counted if r.by == "vendor-simulator" and r.act in ("failed", "refused") and not r.gave]
    compiled = compiled and not any(made.intersection(r.took) for r in tried)
    if compiled and on_chip:
        ran.add("vendor-compiled")
    if ran:
        return min(ran, key=LABELS.index)
    loaded = host and any(r.by == "host" and r.act in ("loaded", "ran") for r in counted)
    return "host" if loaded or (compiled and on_chip is False) else "emitted"


def digests(files: Mapping[str, bytes], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Digests of some files, or of all."""
    return tuple(digest(files[name]) for name in (names or files))
