"""What memory is asked for, held, copied and shared; and sizes as people write them."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Final, final

from nxjax.errors import ParameterError

# By the letter: JEDEC's and the kernel's use, where a GB of memory is 2**30 bytes.
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(size: int | str, what: str = "size") -> int:
    """Bytes of a number, or of a text such as ``"512MB"``, ``"2 GiB"`` or ``"1.5G"``; units are powers of 1024.

    Raises:
        ParameterError: it is neither, or negative.

    >>> parse_size("2GB") == 2 * 2**30
    True
    >>> parse_size("1.5 KiB")
    1536
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", size.upper()) if isinstance(size, str) else None
    if found is None:
        raise ParameterError(f"memory: {what}", got=repr(size), expected='bytes, or a text such as "512MB" or "2GB"')
    return int(float(found[1]) * _UNITS[found[2]])


def shown(nbytes: int) -> str:
    """Bytes for people.

    >>> shown(3 * 2**20)
    '3.0 MiB'
    """
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"


@final
@dataclass(frozen=True)
class MemoryStatistics:
    """The figures of a pool, in bytes unless they are counts.

    Attributes:
        kind: of device.
        limit: None: there is none.
        in_use, peak: of what was reserved.
        buffers: how many there are now.
        hits, misses: buffers that got memory which the host's pool had kept, and those that needed fresh pages.
        copied: into and out of buffers.
        shared: given to an executor, or taken from one, where it lay.
    """

    kind: str
    limit: int | None = None
    in_use: int = 0
    peak: int = 0
    buffers: int = 0
    hits: int = 0
    misses: int = 0
    copied: int = 0
    shared: int = 0

    def __str__(self) -> str:
        most = "no limit" if self.limit is None else f"of {shown(self.limit)}"
        return (
            f"{self.kind}: {shown(self.in_use)} {most} in {self.buffers} buffers (peak {shown(self.peak)}); "
            f"{self.hits} hits, {self.misses} misses; {shown(self.copied)} copied, {shown(self.shared)} shared"
        )


@final
class Counters:
    """Figures that threads add to."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.in_use = self.peak = self.hits = self.misses = self.copied = self.shared = 0

    def add(self, copied: int = 0, shared: int = 0) -> None:
        with self.lock:
            self.copied += copied
            self.shared += shared
