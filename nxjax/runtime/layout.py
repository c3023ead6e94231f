"""A sharding with a layout in memory. Executors choose layouts themselves, so only the sharding counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

__all__ = ["Format", "Layout"]


@final
@dataclass(frozen=True)
class Layout:
    """The order of an array's dimensions in memory, from the slowest to the fastest, and how it is tiled.

    >>> Layout((1, 0)).major_to_minor
    (1, 0)
    """

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0


@final
@dataclass(frozen=True)
class Format:
    """A layout, or None for the executor's choice, and a sharding."""

    layout: Layout | None = None
    sharding: Any = None
