"""Drawings of what the compiler did: arrays in tiles with what is filled up, and the roofline. Decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nxjax.backends.tpu.analysis import HloBuffer
    from nxjax.backends.tpu.roofline import Roofline

_FULL: Final = "#3b7dd8"
_PAD: Final = "#f0b37e"
# Beyond so many tiles along a side, lines of the tiles would be all that is seen.
_MOST_LINES: Final = 40


def _open(width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'font-family="sans-serif" font-size="11"><title>{escape(title)}</title>'
    )


def layouts(buffers: Sequence[HloBuffer], columns: int = 3, side: float = 180) -> str:
    """Each buffer's two fastest dimensions to scale: what it holds in blue, what its tiles fill up in orange."""
    rows = max(1, -(-len(buffers) // columns))
    cell_w, cell_h = side + 60, side + 64
    parts = [_open(columns * cell_w, rows * cell_h, "arrays in tiles")]
    for n, b in enumerate(buffers):
        x, y = (n % columns) * cell_w + 10, (n // columns) * cell_h + 34
        parts += _one(b, x, y, side)
    return "".join([*parts, "</svg>"])


def _one(b: HloBuffer, x: float, y: float, side: float) -> list[str]:
    s = b.shape
    real = (1, 1, *s.physical)[-2:]
    full = (1, 1, *s.filled)[-2:]
    largest = max(*full, 1)
    # Long and thin arrays would be lines: a side is drawn with at least a tenth of the other's length.
    h, w = (max(side * n / largest, side / 10) for n in full)
    title = f"{b.name}: {s}, {b.logical:,} bytes in {b.padded:,} ({b.waste:.1%} filled up)"
    found = [
        f"<g><title>{escape(title)}</title>"
        f'<text x="{x:.1f}" y="{y - 18:.1f}" font-weight="bold">{escape(b.name)}</text>'
        f'<text x="{x:.1f}" y="{y - 5:.1f}">{escape(str(s))}</text>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{_PAD}"/>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w * real[1] / max(full[1], 1):.1f}" '
        f'height="{h * real[0] / max(full[0], 1):.1f}" fill="{_FULL}"/>'
    ]
    tile = (1, *(s.tiles[0] if s.tiles else (1, 1)))[-2:]
    for along, (count, length) in enumerate(((full[0] // tile[0], h), (full[1] // tile[1], w))):
        for i in range(1, count if count <= _MOST_LINES else 1):
            at = length * i / count
            ends = (x, y + at, x + w, y + at) if along == 0 else (x + at, y, x + at, y + h)
            x1, y1, x2, y2 = ends
            found.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="white" stroke-width="0.6"/>')
    note = f"{b.padded:,} bytes, {b.waste:.1%} filled up"
    found.append(f'<text x="{x:.1f}" y="{y + h + 13:.1f}">{note}</text></g>')
    return found


def roofline(r: Roofline, width: float = 520, height: float = 300) -> str:
    """FLOP/s over FLOP per byte, both logarithmic: the roof, the program's place under it, the compiler's estimate."""
    left, bottom, top, right = 62.0, height - 38, 30.0, width - 14
    middle = math.log10(r.ridge)
    intensity = math.log10(r.intensity) if r.intensity > 0 else middle - 3
    lo, hi = math.floor(min(middle - 2, intensity - 0.5)), math.ceil(max(middle + 1.5, intensity + 0.5))
    peak = math.log10(r.peak)
    achieved = r.achieved
    low = peak - (middle - lo)
    if achieved:
        low = min(low, math.log10(achieved) - 0.3)
    low, high = math.floor(low), peak + 0.4
    at_x = lambda v: left + (v - lo) / (hi - lo) * (right - left)
    at_y = lambda v: bottom - (v - low) / (high - low) * (bottom - top)
    start = max(low, peak - (middle - lo))
    roof = (
        f"M{at_x(middle - (peak - start)):.1f} {at_y(start):.1f}L{at_x(middle):.1f} {at_y(peak):.1f}"
        f"L{right:.1f} {at_y(peak):.1f}"
    )
    kind = "int8" if r.integer and r.generation.int8 else "bfloat16"
    title = f"{r.generation.title}, one device: {r.peak / 1e12:,.0f} T/s {kind}, {r.bandwidth / 1e9:,.0f} GB/s"
    parts = [_open(width, height, title), f'<text x="{left:.0f}" y="16" font-weight="bold">{escape(title)}</text>']
    for v in range(lo, hi + 1):
        parts.append(
            f'<path d="M{at_x(v):.1f} {top:.1f}V{bottom:.1f}" stroke="#ddd"/>'
            f'<text x="{at_x(v):.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{_power(v)}</text>'
        )
    for v in range(low, math.floor(high) + 1):
        parts.append(
            f'<path d="M{left:.1f} {at_y(v):.1f}H{right:.1f}" stroke="#ddd"/>'
            f'<text x="{left - 5:.1f}" y="{at_y(v) + 4:.1f}" text-anchor="end">{_power(v)}</text>'
        )
    parts.append(f'<path d="{roof}" fill="none" stroke="#333" stroke-width="2"/>')
    if r.intensity > 0:
        limit = min(peak, intensity + math.log10(r.bandwidth))
        x, y = at_x(intensity), at_y(max(limit, low))
        parts.append(
            f'<path d="M{x:.1f} {y:.1f}V{bottom:.1f}" stroke="{_FULL}" stroke-dasharray="3 3"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_FULL}"><title>what the roof allows</title></circle>'
        )
        if achieved:
            ya = at_y(math.log10(achieved))
            parts.append(
                f'<circle cx="{x:.1f}" cy="{ya:.1f}" r="5" fill="{_PAD}" stroke="#333"><title>the compiler\'s static '
                f'estimate</title></circle><text x="{x + 9:.1f}" y="{ya + 4:.1f}">compiler\'s estimate</text>'
            )
    parts.append(
        f'<text x="{(left + right) / 2:.0f}" y="{height - 6:.0f}" text-anchor="middle">FLOP per byte accessed</text>'
        f'<text x="12" y="{(top + bottom) / 2:.0f}" text-anchor="middle" transform="rotate(-90 12 '
        f'{(top + bottom) / 2:.0f})">FLOP/s</text></svg>'
    )
    return "".join(parts)


def together(*drawings: str) -> str:
    """Several drawings below one another as one."""
    import re

    parts: list[str] = []
    width = height = 0.0
    for d in drawings:
        size = re.search(r'viewBox="0 0 (\d+) (\d+)"', d)
        assert size is not None
        w, h = float(size[1]), float(size[2])
        parts.append(d.replace("<svg ", f'<svg y="{height:.0f}" height="{h:.0f}" ', 1))
        width, height = max(width, w), height + h + 12
    return "".join([_open(width, height, "layout and roofline"), *parts, "</svg>"])


def _power(v: int) -> str:
    return str(10**v) if 0 <= v <= 3 else f"1e{v}"
