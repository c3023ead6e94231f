"""Pictures of the IPU model: what fills each tile, what is alive at each step, and the timeline of a run. SVG text.

Knows memory and cycles; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import numpy as np

from nxjax.backends.ipu.cycles import CycleCount
from nxjax.backends.ipu.memory import KINDS, MemoryUse
from nxjax.backends.ipu.perfetto import path, phases
from nxjax.lower.ipu.program import NDArray

WIDTH: Final = 760
COLOURS: Final = {
    "code": "#8c564b", "vertices": "#9467bd", "stacks": "#7f7f7f", "always": "#1f77b4", "temporary": "#2ca02c",
    "exchange": "#ff7f0e", "compute": "#d62728", "sync": "#bcbd22", "copying": "#17becf", "links": "#e377c2",
    "control": "#7f7f7f",
}  # fmt: skip
_TITLES: Final = {
    "vertices": "vertex state", "always": "always live", "temporary": "temporaries", "exchange": "exchange buffers"
}  # fmt: skip
# Columns of a stacked picture: more tiles than these are drawn by the fullest of each column.
_COLUMNS: Final = 184
_PALE: Final = (238, 243, 250)
_DARK: Final = (13, 58, 122)
# Squares of the heat map, at most, and in a row; of more tiles than these, the fullest of each few is drawn.
_SQUARES: Final = 2944
_ROW: Final = 64
# Phases of a timeline; in longer runs neighbours are joined.
_MOST_PHASES: Final = 1500


def _open(height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222" {extra}>{escape(text)}</text>'


def _bytes(n: float) -> str:
    return f"{n / 1024:.0f} KiB" if n >= 10240 else f"{n:.0f} B"


def _legend(x: float, y: float, names: Sequence[str], titles: Mapping[str, str] = _TITLES) -> str:
    parts: list[str] = []
    for name in names:
        title = titles.get(name, name)
        parts.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(_text(x + 14, y, title))
        x += 24 + 6.2 * len(title)
    return "".join(parts)


def _heat(size: int, peak: int, available: int) -> str:
    """Pale for empty, dark blue for the fullest tile, red for too much."""
    if size > available:
        return "#d00000"
    # In few steps, so that squares of one colour are drawn together.
    share = round(24 * size / max(peak, 1)) / 24
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(_PALE, _DARK, strict=True))


def tile_map(use: MemoryUse, height: int = 200) -> str:
    """Bytes on every tile, stacked by kind, and below it a square per tile: the fuller, the darker; red is too full."""
    tiles = len(use.per_tile)
    step = -(-tiles // _COLUMNS)
    columns = -(-tiles // step)
    # The fullest tile of each column stands for it.
    per = use.per_tile
    padded = np.pad(per, (0, columns * step - tiles), constant_values=-1).reshape(columns, step)
    chosen = np.minimum(np.arange(columns) * step + padded.argmax(1), tiles - 1)
    left, base = 70, 34 + height
    # A limit far above everything would press it flat: it is said in words then.
    near = use.available <= 2 * use.peak
    most = max(use.available if near else 0, round(1.08 * use.peak))
    each = -(-tiles // _SQUARES)
    drawn = np.maximum.reduceat(per, np.arange(0, tiles, each)).tolist()
    rows = -(-len(drawn) // _ROW)
    cell = min(11.0, (WIDTH - left - 10) / _ROW)
    bottom = base + 56 + rows * cell
    system = use.program.system
    name = use.program.name or "program"
    title = f"{name} on {system.title}: {use.peak:,} of {use.available:,} bytes on the fullest tile"
    parts = [_open(round(bottom + 8), title), _text(0, 12, title), _legend(left, 28, KINDS)]
    scale = height / most
    width = (WIDTH - left - 10) / columns
    at = np.zeros(columns)
    for kind in KINDS:
        values = use.kinds[kind][chosen]
        parts.append(_steps(left, base, width, scale, at, at + values, COLOURS[kind], _TITLES.get(kind, kind)))
        at = at + values
    limit = base - use.available * scale
    if not near:
        parts.append(_text(left - 6, base - height + 10, _bytes(most), "end"))
    else:
        parts.append(
            f'<line x1="{left}" x2="{WIDTH - 10}" y1="{limit:.1f}" y2="{limit:.1f}" stroke="#d00000" '
            'stroke-dasharray="4 3"/>'
        )
        parts.append(_text(left - 6, limit + 4, _bytes(use.available), "end"))
    parts.append(_text(left - 6, base, "0", "end"))
    parts.append(_text(left, base + 14, "tile 0"))
    parts.append(_text(WIDTH - 10, base + 14, f"tile {tiles - 1}", "end"))
    what = "one square per tile" if each == 1 else f"one square per {each} tiles"
    peak = use.peak
    parts.append(_text(left, base + 40, f"{what}, the darkest holds {peak:,} bytes; red would be more than there is"))
    size = f"{cell - 0.8:.1f}"
    squares: dict[str, list[str]] = {}
    for i, held in enumerate(drawn):
        place = f"M{left + i % _ROW * cell:.1f} {base + 48 + i // _ROW * cell:.1f}h{size}v{size}h-{size}z"
        squares.setdefault(_heat(held, peak, use.available), []).append(place)
    parts += [f'<path fill="{colour}" d="{"".join(places)}"/>' for colour, places in squares.items()]
    return "".join([*parts, "</svg>"])


def _steps(
    left: float, base: float, width: float, scale: float, low: NDArray, high: NDArray, colour: str, name: str
) -> str:
    """A filled band of columns, joined where equal."""
    points: list[str] = []
    back: list[str] = []
    edges = np.flatnonzero(np.r_[True, (np.diff(low) != 0) | (np.diff(high) != 0), True])
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        x0, x1 = left + a * width, left + b * width
        points += [f"{x0:.1f},{base - high[a] * scale:.1f}", f"{x1:.1f},{base - high[a] * scale:.1f}"]
        back += [f"{x0:.1f},{base - low[a] * scale:.1f}", f"{x1:.1f},{base - low[a] * scale:.1f}"]
    return f'<polygon points="{" ".join([*points, *reversed(back)])}" fill="{colour}"><title>{name}</title></polygon>'


def liveness(use: MemoryUse, height: int = 120) -> str:
    """Bytes alive over the steps of the program, over all tiles: throughout, for a while, and in exchange buffers."""
    moments = use.moments
    title = "alive at each step, over all tiles"
    left, top = 70, 34
    base = top + height
    parts = [_open(base + 22, title), _text(0, 12, title), _legend(left, 28, ("always", "temporary", "exchange"))]
    if moments:
        live = np.asarray([m.live for m in moments], np.float64)
        extra = np.asarray([m.buffers for m in moments], np.float64)
        low = np.full(len(moments), float(use.always))
        most = float((low + live + extra).max()) or 1.0
        width, scale = (WIDTH - left - 10) / len(moments), height / most
        bands = (("always", low * 0, low), ("temporary", low, low + live), ("exchange", low + live, low + live + extra))
        parts += [_steps(left, base, width, scale, a, b, COLOURS[k], _TITLES[k]) for k, a, b in bands]
        parts.append(_text(left - 6, top + 8, _bytes(most), "end"))
    parts.append(_text(left, base + 14, "first step"))
    parts.append(_text(WIDTH - 10, base + 14, f"step {len(moments)}", "end"))
    return "".join([*parts, "</svg>"])


def timeline(cycles: CycleCount, height: int = 90) -> str:
    """A run as bulk-synchronous phases: what all tiles do at a time, and within compute how busy the tiles are."""
    total = cycles.device
    title = f"one run: {total:,} cycles, {total / cycles.system.chip.clock * 1e6:,.1f} us (model)"
    left, top = 70, 40
    base = top + height
    names = ("compute", "exchange", "sync", "copying", "links", "control")
    parts = [_open(base + 40, title), _text(0, 12, title), _legend(left, 28, names, {})]
    bars: list[tuple[str, str, int, float, float]] = []  # phase, step, cycles, mean and least share of the slowest tile
    for s in path(cycles.program, cycles):
        for name, length in phases(s):
            mean, least = (s.mean / s.compute, s.least / s.compute) if name == "compute" else (1.0, 1.0)
            bars.append((name, s.name, length, mean, least))
    drawn = sum(b[2] for b in bars) or 1
    scale = (WIDTH - left - 10) / drawn
    every = -(-len(bars) // _MOST_PHASES)
    x = float(left)
    for i in range(0, len(bars), max(every, 1)):
        for name, step, length, mean, least in _joined(bars[i : i + max(every, 1)]):
            w = length * scale
            label = f"{step}: {name} {length:,} cycles"
            if name == "compute":
                label += f", mean tile {mean:.0%}, fastest busy tile {least:.0%}"
                y = base - height * mean
                parts.append(
                    f'<rect x="{x:.2f}" y="{top}" width="{w:.2f}" height="{height}" fill="{COLOURS[name]}" '
                    f'fill-opacity="0.25"/>'
                )
                parts.append(
                    f'<rect x="{x:.2f}" y="{y:.1f}" width="{w:.2f}" height="{base - y:.1f}" fill="{COLOURS[name]}">'
                    f"<title>{escape(label)}</title></rect>"
                )
                y = base - height * least
                parts.append(
                    f'<line x1="{x:.2f}" x2="{x + w:.2f}" y1="{y:.1f}" y2="{y:.1f}" stroke="black" stroke-width="0.8"/>'
                )
            else:
                parts.append(
                    f'<rect x="{x:.2f}" y="{top}" width="{w:.2f}" height="{height}" fill="{COLOURS[name]}">'
                    f"<title>{escape(label)}</title></rect>"
                )
            x += w
    parts.append(_text(left - 6, top + 8, "all tiles", "end"))
    parts.append(_text(left - 6, base, "none", "end"))
    parts.append(_text(left, base + 14, "0"))
    parts.append(_text(WIDTH - 10, base + 14, f"{drawn:,} cycles", "end"))
    parts.append(
        _text(
            left,
            base + 30,
            "compute: dark to the mean tile, pale to the slowest; the black line is the fastest of the busy tiles",
        )
    )
    return "".join([*parts, "</svg>"])


def _joined(bars: Sequence[tuple[str, str, int, float, float]]) -> list[tuple[str, str, int, float, float]]:
    """Phases of one kind in a stretch as one, where there are too many to draw."""
    if len(bars) == 1:
        return list(bars)
    found: list[tuple[str, str, int, float, float]] = []
    for name in dict.fromkeys(b[0] for b in bars):
        same = [b for b in bars if b[0] == name]
        length = sum(b[2] for b in same)
        mean = sum(b[2] * b[3] for b in same) / length
        found.append((name, f"{len(same)} steps", length, mean, min(b[4] for b in same)))
    return found


def stacked(pictures: Sequence[str]) -> str:
    """Several pictures as one, one below the other."""
    heights = [int(m.group(1)) for p in pictures if (m := re.search(r'height="(\d+)"', p))]
    total, y, parts = sum(heights) + 12 * (len(heights) - 1), 0, []
    for p, h in zip(pictures, heights, strict=True):
        parts.append(p.replace("<svg ", f'<svg y="{y}" ', 1))
        y += h + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" height="{total}">'
        f"{''.join(parts)}</svg>"
    )
