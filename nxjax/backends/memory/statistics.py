"""What memory is asked for, held, copied and shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from nxjax.config.forks import fork_lock
from nxjax.display.sizes import shown


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
    """Figures that threads add to. All have one lock, which children find free."""

    lock: ClassVar[Any] = fork_lock()

    def __init__(self) -> None:
        self.in_use = self.peak = self.hits = self.misses = self.copied = self.shared = 0

    def add(self, copied: int = 0, shared: int = 0) -> None:
        with self.lock:
            self.copied += copied
            self.shared += shared
