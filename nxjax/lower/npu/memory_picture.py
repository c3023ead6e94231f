"""A memory plan drawn: letters in a terminal, rectangles in a notebook. Knows plans; decides nothing."""

from __future__ import annotations

import string
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nxjax.lower.npu.memory import ArenaBlock, MemoryPlan

_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits


def _names(block: ArenaBlock) -> str:
    names = [t.name for t in block.tensors]
    return " = ".join(names if len(names) <= 3 else [*names[:2], "...", names[-1]])


def _head(plan: MemoryPlan) -> str:
    over = f", {plan.peak - plan.bound} over the lower bound" if plan.peak > plan.bound else ""
    return f"{plan.graph.name}: arena of {plan.peak} bytes{over}, {len(plan.blocks)} blocks"


def text(plan: MemoryPlan, width: int, height: int) -> str:
    """The plan in letters, ``width`` columns of steps by ``height`` rows of addresses."""
    if not plan.blocks or not plan.peak:
        return _head(plan)
    steps = len(plan.graph.nodes) + 1
    columns, rows = min(width, steps), max(height, 1)
    # The largest blocks get the letters, and of two blocks in one cell the larger one is drawn.
    ranked = sorted(plan.blocks, key=lambda b: -b.size)
    letters = {id(b): letter for b, letter in zip(ranked, _LETTERS)}
    cells = [["."] * columns for _ in range(rows)]
    for b in reversed(ranked):
        low, high = b.offset * rows // plan.peak, -(-b.end * rows // plan.peak)
        first, last = b.first * columns // steps, b.last * columns // steps
        for row in cells[low:high]:
            row[first : last + 1] = letters.get(id(b), "*") * (last + 1 - first)
    body = [f"{(row + 1) * plan.peak // rows:>10} |{''.join(cells[row])}" for row in reversed(range(rows))]
    legend = [f"  {letters[id(b)]} {b.size:>10} bytes, steps {b.first} to {b.last}: {_names(b)}" for b in ranked[:8]]
    return "\n".join([_head(plan), *body, f"{0:>10} +{'-' * columns} steps 0 to {steps - 1}", *legend])


def svg(plan: MemoryPlan, width: int = 720, height: int = 320) -> str:
    """The plan as an SVG drawing."""
    steps, top = len(plan.graph.nodes) + 1, max(plan.peak, 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 24}" width="{width}" '
        f'font-family="sans-serif" font-size="11"><title>{escape(_head(plan))}</title>'
        f'<text x="0" y="{height + 16}">{escape(_head(plan))}</text>'
    ]
    for i, b in enumerate(plan.blocks):
        x, w = b.first * width / steps, (b.last - b.first + 1) * width / steps
        y, h = (1 - b.end / top) * height, b.size / top * height
        # Neighbours in time get hues far apart: the golden angle.
        hue = i * 137.508 % 360
        name = f"{escape(_names(b))}: {b.size} bytes at {b.offset}, steps {b.first} to {b.last}"
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" fill="hsl({hue:.0f},55%,70%)" '
            f'stroke="white" stroke-width="0.5"><title>{name}</title></rect>'
        )
    return "".join([*parts, "</svg>"])
