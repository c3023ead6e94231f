"""Draws a graph of named boxes as SVG: boxes may hold graphs of their own, whose edges go on through the frame.

A box has a kind, which is its colour. Nothing here needs a script, a file or an id; a mouse over a box shows its tip.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Final, final

from nxjax.display.layers import GraphLayout, place

COLOURS: Final = {
    "value": "#3a7ca5",
    "compute": "#d1495b",
    "reduce": "#e08e2b",
    "elementwise": "#2a9d8f",
    "move": "#7d8597",
    "control": "#8a63c9",
    "group": "#7d8597",
    "fold": "#8a63c9",
}
_CHARACTER: Final = 6.9  # width of one at 12 px
_SMALL: Final = 5.7  # at 10 px
_PAD: Final = 14.0
_EDGE: Final = 3.0  # between a frame and the ports on it


@final
@dataclass(slots=True)
class GraphNode:
    """A node.

    Attributes:
        label, note: in large and in small letters.
        kind: a key of `COLOURS`, or ``port``: a point on the frame around.
        tip: what a mouse over it shows.
        inside: the graph it holds; its ports are those of the edges to this box, in their order.
    """

    label: str
    kind: str
    note: str = ""
    tip: str = ""
    inside: DrawnGraph | None = None


@final
@dataclass(slots=True)
class GraphEdge:
    """From the ``out``-th result of box ``start`` to the ``into``-th operand of box ``end``."""

    start: int
    out: int
    end: int
    into: int


@final
@dataclass(slots=True)
class DrawnGraph:
    """Boxes in an order in which edges lead onwards.

    Attributes:
        labels: per box, what its results are called; written where their edges begin.
        inputs, outputs: which boxes are ports on the upper and the lower frame, or values that come in and go out.
    """

    boxes: list[GraphNode] = field(default_factory=list["GraphNode"])
    edges: list[GraphEdge] = field(default_factory=list["GraphEdge"])
    labels: list[list[str]] = field(default_factory=list[list[str]])
    inputs: list[int] = field(default_factory=list[int])
    outputs: list[int] = field(default_factory=list[int])

    def add(self, box: GraphNode, labels: list[str]) -> int:
        self.boxes.append(box)
        self.labels.append(labels)
        return len(self.boxes) - 1


@final
class _Drawn:
    """A graph that was laid out: its size, and its boxes' corners, sizes and contents."""

    def __init__(self, graph: DrawnGraph) -> None:
        self.graph = graph
        self.inner = [None if b.inside is None else _Drawn(b.inside) for b in graph.boxes]
        self.sizes = [self._size(i) for i in range(len(graph.boxes))]
        pairs = list(dict.fromkeys((e.start, e.end, e.out) for e in graph.edges))
        ports = any(graph.boxes[i].kind == "port" for i in (*graph.inputs, *graph.outputs))
        first = graph.inputs if ports else ()
        self.layout: GraphLayout = place(self.sizes, pairs, first=first, last=graph.outputs)
        self.routes = dict(zip(pairs, self.layout.routes, strict=True))
        self.width, self.height = self.layout.width, max(0.0, self.layout.height)

    def _size(self, i: int) -> tuple[float, float]:
        box = self.graph.boxes[i]
        if box.kind == "port":
            return max(8.0, _SMALL * max(map(len, self.graph.labels[i]), default=0)), 2.0
        names = sum(_SMALL * len(n) + 10 for n in self.graph.labels[i])
        inner = self.inner[i]
        if inner is not None:
            width = max(inner.width, _SMALL * (len(box.label) + 2))
            return max(width + 2 * _PAD, names), inner.height + 2 * _EDGE
        width = max(_CHARACTER * len(box.label), _SMALL * len(box.note)) + 18
        if len(self.graph.labels[i]) == 1 and box.kind != "value":
            # A name begins at the middle, and ends within the frame around.
            names = 2 * (names - _PAD)
        return max(width, names), 38.0 if box.note else 25.0

    def ends(self, i: int, k: int, lower: bool) -> tuple[float, float]:
        """Where the k-th operand enters box i, or its k-th result leaves."""
        (x, y), (w, h) = self.layout.corners[i], self.sizes[i]
        inner, box = self.inner[i], self.graph.boxes[i]
        y = y + h if lower else y
        if inner is not None:
            ports = inner.graph.outputs if lower else inner.graph.inputs
            if k < len(ports):
                port = ports[k]
                left = inner.layout.corners[port][0] + inner.sizes[port][0] / 2
                return x + (w - inner.width) / 2 + left, y
        if box.kind == "port":
            return x + w / 2, y
        if lower and len(self.graph.labels[i]) > 1:
            # Each name has its share of the box's width, to the right of its edge.
            share = w / len(self.graph.labels[i])
            return x + share * k + min(12.0, share / 2), y
        if lower:
            count = 1
        else:
            count = max(1, 1 + max((e.into for e in self.graph.edges if e.end == i), default=0))
        return x + w * (k + 1) / (count + 1), y

    def svg(self, left: float, top: float, out: list[str]) -> None:
        """Write the picture, from its left upper corner on."""
        for e in self.graph.edges:
            points = [
                self.ends(e.start, e.out, True),
                *self.routes[e.start, e.end, e.out],
                self.ends(e.end, e.into, False),
            ]
            out.append(_path([(x + left, y + top) for x, y in points], self.graph.boxes[e.end].kind != "port"))
        used = {(e.start, e.out) for e in self.graph.edges}
        for i, box in enumerate(self.graph.boxes):
            (x, y), (w, h) = self.layout.corners[i], self.sizes[i]
            x, y = x + left, y + top
            inner = self.inner[i]
            if box.kind != "port":
                out.append(_box(box, x, y, w, h, inner is not None))
            if inner is not None:
                # The inner graph fills the frame, so that its ports lie on it.
                inner.stretch(h)
                inner.svg(x + (w - inner.width) / 2, y, out)
            if box.kind == "value":
                continue
            for k, name in enumerate(self.graph.labels[i]):
                if (i, k) in used and name:
                    at, below = self.ends(i, k, True)
                    out.append(
                        f'<text x="{at + left + 3:.1f}" y="{below + top + 10:.1f}" class="t">{html.escape(name)}</text>'
                    )

    def stretch(self, height: float) -> None:
        """Move what is inside down from the frame, and the ports to the frame."""
        down = _EDGE
        corners, inputs, outputs = self.layout.corners, set(self.graph.inputs), set(self.graph.outputs)
        for i, (x, y) in enumerate(corners):
            corners[i] = (x, 0.0 if i in inputs else height - 2.0 if i in outputs else y + down)
        for route in self.routes.values():
            route[:] = [(x, y + down) for x, y in route]


def _path(points: list[tuple[float, float]], arrow: bool) -> str:
    (x, y), rest = points[0], points[1:]
    parts = [f"M{x:.1f} {y:.1f}"]
    for nx, ny in rest:
        bend = (ny - y) / 2
        straight = abs(nx - x) < 0.5
        parts.append(
            f"L{nx:.1f} {ny:.1f}" if straight else f"C{x:.1f} {y + bend:.1f} {nx:.1f} {ny - bend:.1f} {nx:.1f} {ny:.1f}"
        )
        x, y = nx, ny
    head = f'<path class="h" d="M{x - 3:.1f} {y - 6:.1f}L{x:.1f} {y:.1f}L{x + 3:.1f} {y - 6:.1f}z"/>' if arrow else ""
    return f'<path class="e" d="{"".join(parts)}"/>{head}'


def _box(box: GraphNode, x: float, y: float, w: float, h: float, frame: bool) -> str:
    colour = COLOURS[box.kind]
    tip = f"<title>{html.escape(box.tip)}</title>" if box.tip else ""
    label = html.escape(box.label)
    if frame:
        return (
            f'<g>{tip}<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="8" fill="{colour}" '
            f'fill-opacity=".09" stroke="{colour}" stroke-opacity=".55" stroke-dasharray="4 3"/>'
            f'<text x="{x + 9:.1f}" y="{y + 15:.1f}" class="g">{label}</text></g>'
        )
    middle, dash = x + w / 2, ' stroke-dasharray="4 2"' if box.kind == "fold" else ""
    line = y + (16 if box.note else h / 2 + 4)
    note = f'<text x="{middle:.1f}" y="{y + 30:.1f}" class="n">{html.escape(box.note)}</text>' if box.note else ""
    round = 12 if box.kind == "value" else 5
    return (
        f'<g>{tip}<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{round}" '
        f'fill="{colour}" fill-opacity=".24" stroke="{colour}"{dash}/>'
        f'<text x="{middle:.1f}" y="{line:.1f}" class="l">{label}</text>{note}</g>'
    )


_STYLE: Final = (
    "<style>.nxg text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:currentColor}"
    ".nxg .l{font-size:12px;font-weight:600;text-anchor:middle}.nxg .n{font-size:10px;text-anchor:middle;opacity:.8}"
    ".nxg .t{font-size:10px;opacity:.72}.nxg .g{font-size:11px;font-style:italic;opacity:.85}"
    ".nxg .e{fill:none;stroke:currentColor;stroke-opacity:.42;stroke-width:1.1}"
    ".nxg .h{fill:currentColor;fill-opacity:.5}</style>"
)
# A file of its own has no page to take its colours from.
_ALONE: Final = "<style>.nxg{color:#1f2328}@media (prefers-color-scheme:dark){.nxg{color:#e6edf3}}</style>"


def draw(graph: DrawnGraph, *, alone: bool = False) -> str:
    """The graph as one ``<svg>``; with ``alone``, as the text of a file."""
    drawn = _Drawn(graph)
    out: list[str] = []
    drawn.svg(10, 10, out)
    # The last labels stand beside the last boxes.
    w, h = drawn.width + 40, drawn.height + 20
    space = ' xmlns="http://www.w3.org/2000/svg"'
    return (
        f'<svg{space} class="nxg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}" role="img">'
        f"{_ALONE if alone else ''}{_STYLE}{''.join(out)}</svg>"
    )
