"""Rows of words as lines of text in columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (), indent: str = "") -> list[str]:
    """A line for each row, its cells as wide as the longest in their column; those of ``right`` end flush.

    >>> columns([("name", "count", "why"), ("conv", "12", "too large")], right=(1,), indent="  ")
    ['  name  count  why', '  conv     12  too large']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
