"""A model's graph as SVG, coloured by where its ops run. Chains on one device are one box; long graphs are cut further.

Plain drawing: names and devices in, text out. Every word of a file is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, final

from nxjax.display.layers import place
from nxjax.display.page import escape

# More boxes than these are not read by anybody.
MOST: Final = 90
_HEIGHT: Final = 34.0
_CHARACTER: Final = 6.6
_WIDEST: Final = 34


@final
@dataclass(frozen=True)
class PictureNode:
    """One op: its name, what runs it ("chip", "host", "unknown"), its tip, a mark, its multiply-accumulates."""

    op: str
    device: str
    tip: str = ""
    marked: bool = False
    macs: int = 0


def svg(nodes: Sequence[PictureNode], edges: Sequence[tuple[int, int]]) -> str:
    """The graph, from the top; ``edges`` lead onwards. Empty where there are no nodes.

    >>> svg([PictureNode("<op>", "chip")], []).count("&lt;op&gt;") >= 1
    True
    """
    if not nodes:
        return ""
    groups = _groups(nodes, edges)
    of = {i: g for g, group in enumerate(groups) for i in group}
    between = sorted({(of[i], of[j]) for i, j in edges if of[i] != of[j]})
    texts = [_label(nodes, group) for group in groups]
    sizes = [(max(60.0, _CHARACTER * len(t) + 20), _HEIGHT) for t in texts]
    layout = place(sizes, [(i, j, 0) for i, j in between], between=22.0)
    parts: list[str] = []
    for (i, j), route in zip(between, layout.routes, strict=True):
        (x0, y0), (x1, y1) = layout.corners[i], layout.corners[j]
        points = [(x0 + sizes[i][0] / 2, y0 + _HEIGHT), *route, (x1 + sizes[j][0] / 2, y1)]
        path = "M" + " L".join(f"{x:.0f} {y:.0f}" for x, y in points)
        parts.append(f'<path class="edge" d="{path}"/>')
    for g, group in enumerate(groups):
        (x, y), (w, h) = layout.corners[g], sizes[g]
        devices = {nodes[i].device for i in group}
        kind = devices.pop() if len(devices) == 1 else "mixed"
        mark = " marked" if any(nodes[i].marked for i in group) else ""
        tip = "\n".join(nodes[i].tip or nodes[i].op for i in group[:40])
        more = f"\n... {len(group) - 40} more" if len(group) > 40 else ""
        parts.append(
            f'<g class="node {kind}{mark}"><title>{escape(tip + more)}</title>'
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="7"/>'
            f'<text x="{x + w / 2:.0f}" y="{y + h / 2 + 4:.0f}">{escape(texts[g])}</text></g>'
        )
    w, h = layout.width + 8, layout.height + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" width="{w:.0f}" height="{h:.0f}" '
        f'viewBox="-4 -4 {w:.0f} {h:.0f}">{"".join(parts)}</svg>'
    )


def strip(nodes: Sequence[PictureNode]) -> str:
    """All ops on one line in program order, coloured by device: the whole of a long program at a glance.

    >>> strip([PictureNode("a", "chip"), PictureNode("b", "chip"), PictureNode("c", "host")]).count("<rect")
    2
    """
    parts: list[str] = []
    at = 0
    for (device, marked), run in groupby(nodes, lambda n: (n.device, n.marked)):
        ops = list(run)
        what = ops[0].op if len(ops) == 1 else f"ops {at + 1} to {at + len(ops)}"
        parts.append(
            f'<rect class="{"marked" if marked else device}" x="{at}" y="0" width="{len(ops)}" height="1">'
            f"<title>{escape(f'{what}: {device}')}</title></rect>"
        )
        at += len(ops)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="strip" role="img" preserveAspectRatio="none" '
        f'viewBox="0 0 {max(at, 1)} 1">{"".join(parts)}</svg>'
    )


def _label(nodes: Sequence[PictureNode], group: Sequence[int]) -> str:
    """The ops of a box, those that multiply most first."""
    if len(group) == 1:
        return _cut(nodes[group[0]].op, _WIDEST)
    counts = Counter(nodes[i].op for i in group)
    macs = {op: sum(nodes[i].macs for i in group if nodes[i].op == op) for op in counts}
    order = sorted(counts.items(), key=lambda row: (-macs[row[0]], -row[1]))
    words = [f"{_cut(op, 18)}{f' x{n}' if n > 1 else ''}" for op, n in order]
    text = ""
    for i, word in enumerate(words):
        longer = f"{text}, {word}" if text else word
        if text and len(longer) > _WIDEST:
            return f"{text}, {sum(counts.values()) - sum(n for _, n in order[:i])} more"
        text = longer
    return text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _groups(nodes: Sequence[PictureNode], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The boxes, in an order in which edges lead onwards: each op of a small graph; chains; else parts in order."""
    if len(nodes) <= 24:
        return [[i] for i in range(len(nodes))]
    chains = _chains(nodes, edges)
    return chains if len(chains) <= MOST else _parts(nodes)


def _chains(nodes: Sequence[PictureNode], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Ops behind one another on one device, of which each reads the one before only, and nobody else does."""
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for i, j in edges:
        after.setdefault(i, []).append(j)
        before.setdefault(j, []).append(i)
    head = list(range(len(nodes)))
    for j in range(len(nodes)):
        (i, *more) = before.get(j, [-1])
        alone = i >= 0 and not more and after[i] == [j]
        if alone and nodes[i].device == nodes[j].device and not nodes[i].marked and not nodes[j].marked:
            head[j] = head[i]
    groups: dict[int, list[int]] = {}
    for i, h in enumerate(head):
        groups.setdefault(h, []).append(i)
    # An edge into a chain enters at its head, and leaves at its end: by heads, edges lead onwards.
    return [groups[h] for h in sorted(groups)]


def _parts(nodes: Sequence[PictureNode]) -> list[list[int]]:
    """Ops in program order, so many to a box that there are at most `MOST`: of one device, if that can be."""
    groups: list[list[int]] = []
    for mixed in (False, True):
        most = 2
        while most < 2 * len(nodes):
            groups = []
            for i, node in enumerate(nodes):
                last = nodes[groups[-1][-1]] if groups else None
                same = last is not None and (mixed or last.device == node.device) and not (last.marked or node.marked)
                if same and len(groups[-1]) < most:
                    groups[-1].append(i)
                else:
                    groups.append([i])
            if len(groups) <= MOST:
                return groups
            most *= 2
    return groups
