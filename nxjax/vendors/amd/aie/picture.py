"""A picture of a design on the array: tiles with what fills their memory, and the streams between them. SVG text."""

from __future__ import annotations

from html import escape
from typing import Final

from nxjax.kernels.aie.chip import FIRST_CORE_ROW, LIMITS, kind_of, of_device
from nxjax.lower.aie.design import Design, ObjectFifoOp, TileOp

_CELL: Final = 112
_HIGH: Final = 76
_GAP: Final = 34
_LEFT: Final = 70
_TOP: Final = 34
_FILL: Final = {"shim": "#e8eef7", "mem": "#fdf1dc", "core": "#e6f3e6"}
_USED: Final = {"mem": "#f0a830", "core": "#4c9f4c"}
_STREAMS: Final = {"a": "#1f77b4", "x": "#1f77b4", "b": "#d62728", "y": "#d62728", "c": "#6a3d9a", "z": "#6a3d9a"}


def svg(design: Design, title: str = "") -> str:
    """The array's columns that the design has, rows of cores on top.

    >>> from nxjax.kernels.aie.chip import NPU1
    >>> from nxjax.lower.aie.build import matmul_design
    >>> from nxjax.lower.aie.plan import MatmulProblem
    >>> from nxjax.lower.aie.planner import matmul_plan
    >>> svg(matmul_design(matmul_plan(MatmulProblem(64, 64, 64), NPU1)))[:4]
    '<svg'
    """
    array, _ = of_device(design.device)
    columns = 1 + max(t.column for t in design.tiles)
    rows = 1 + max(FIRST_CORE_ROW, *(t.row for t in design.tiles))
    width, height = _LEFT + columns * (_CELL + _GAP), _TOP + rows * (_HIGH + _GAP) + 26
    title = title or f"{design.device}: {array.title}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(8, 18, title, "13"),
    ]
    names = {"shim": "host", "mem": "memory", "core": "cores"}
    parts += [_text(8, _y(row, rows) + _HIGH / 2, names[kind_of(row)]) for row in range(min(rows, FIRST_CORE_ROW + 1))]
    parts += [_tile(t, design, rows) for t in design.tiles]
    tiles = {t.name: t for t in design.tiles}
    lanes: dict[str, int] = {}
    for f in design.fifos:
        lane = lanes.setdefault(f.name[0], len(lanes))
        parts += [_stream(f, tiles[f.producer], tiles[c], rows, lane) for c in f.consumers]
    words = {"a": "first operand", "b": "second operand", "c": "results", "x": "first operand", "y": "second operand",
             "z": "results"}  # fmt: skip
    x = _LEFT
    for letter in lanes:
        colour = _STREAMS.get(letter, "#555")
        parts.append(f'<rect x="{x}" y="{height - 18}" width="16" height="4" fill="{colour}"/>')
        parts.append(_text(x + 22, height - 12, words.get(letter, letter)))
        x += 130
    return "".join([*parts, "</svg>"])


def _y(row: int, rows: int) -> float:
    return _TOP + (rows - 1 - row) * (_HIGH + _GAP)


def _x(column: int) -> float:
    return _LEFT + column * (_CELL + _GAP)


def _text(x: float, y: float, text: str, size: str = "11") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="#222">{escape(text)}</text>'


def filled(design: Design, tile: TileOp) -> int:
    """Bytes of a tile's memory that the design takes: fifos' objects, buffers and the stack."""
    linked = {n for link in design.links for n in link.sources}
    begun = {n for link in design.links for n in link.targets}
    fifos = {f.name: f for f in design.fifos}
    total = 0
    for link in design.links:
        ends = [fifos[n] for n in (*link.sources, *link.targets)]
        if fifos[link.targets[0]].producer == tile.name:
            total += max(f.depth for f in ends) * max(f.type.nbytes for f in ends)
    for f in design.fifos:
        here = (f.producer == tile.name and f.name not in begun) + (tile.name in f.consumers and f.name not in linked)
        total += here * f.depth * f.type.nbytes
    total += sum(b.type.nbytes for b in design.buffers if b.tile == tile.name)
    return total + sum(c.stack for c in design.cores if c.tile == tile.name)


def _tile(t: TileOp, design: Design, rows: int) -> str:
    x, y = _x(t.column), _y(t.row, rows)
    parts = [f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_HIGH}" rx="5" fill="{_FILL[t.kind]}" stroke="#666"/>']
    parts.append(_text(x + 8, y + 16, f"({t.column}, {t.row})"))
    if t.kind != "shim":
        used, there = filled(design, t), LIMITS[t.kind].memory
        parts.append(f'<rect x="{x + 8}" y="{y + _HIGH - 16}" width="{_CELL - 16}" height="8" fill="white"/>')
        share = min(1.0, used / there) * (_CELL - 16)
        parts.append(f'<rect x="{x + 8}" y="{y + _HIGH - 16}" width="{share:.1f}" height="8" fill="{_USED[t.kind]}"/>')
        parts.append(_text(x + 8, y + _HIGH - 21, f"{used / 1024:.1f} of {there // 1024} KiB"))
    return "".join(parts)


def _stream(f: ObjectFifoOp, source: TileOp, target: TileOp, rows: int, lane: int) -> str:
    """From the middle of one side of a tile to another's, each kind of stream in a lane of its own."""
    colour, shift = _STREAMS.get(f.name[0], "#555"), 18 + 24 * lane
    up = target.row > source.row
    x1, x2 = _x(source.column) + shift, _x(target.column) + shift
    y1 = _y(source.row, rows) + (0 if up else _HIGH)
    y2 = _y(target.row, rows) + (_HIGH if up else 0)
    # In the gap below or above the target, so that broadcasts run along rows.
    bend = y2 + (6 + 7 * lane) * (1 if up else -1)
    points = f"{x1},{y1} {x1},{bend} {x2},{bend} {x2},{y2}"
    if abs(target.row - source.row) > 1:
        # Beside the tiles that lie between.
        side, turn = _x(source.column) + _CELL + 5 + 9 * lane, y1 + (6 + 7 * lane) * (-1 if up else 1)
        points = f"{x1},{y1} {x1},{turn} {side},{turn} {side},{bend} {x2},{bend} {x2},{y2}"
    name = escape(f"@{f.name}: {f.type}, depth {f.depth}")
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"><title>{name}</title></polyline>'
    )
