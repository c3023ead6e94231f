"""The measured programs in the order of their ratios, and how each ratio went from run to run. Measures nothing."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.runner import Figure

PREFIX = "breadth: "
# A record of a run for each release.
RELEASES = Path(__file__).parents[2] / "docs" / "breadth"
_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN = 12  # runs


def to_jax(figure: Figure) -> float | None:
    """JAX's time to ours."""
    return figure.peers["jax"] / figure.ours if "jax" in figure.peers else None


def to_best(figure: Figure) -> float | None:
    """The best peer's time to ours."""
    return None if figure.ratio is None else 1 / figure.ratio


def mean(ratios: Iterable[float | None]) -> float:
    """The geometric mean; NaN of none."""
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def history(folder: Path) -> dict[str, list[float]]:
    """JAX's time to ours of each program in the kept runs, oldest first."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for record in sorted((json.loads(path.read_text()) for path in folder.glob("*.json")), key=lambda r: r["when"]):
        for figure in record["figures"]:
            if figure["name"].startswith(PREFIX) and figure["ours"] and "jax" in figure.get("peers", {}):
                found[figure["name"]].append(figure["peers"]["jax"] / figure["ours"])
    return dict(found)


def sparkline(ratios: Sequence[float]) -> str:
    """A block for each run, from a quarter (lowest) through 1 (the third) to 32 times JAX's speed."""
    heights = (round(math.log2(ratio) + 2) for ratio in ratios[-_SHOWN:])
    return "".join(_BLOCKS[min(max(height, 0), len(_BLOCKS) - 1)] for height in heights)


def table(figures: Sequence[Figure], kept: Mapping[str, Sequence[float]]) -> str:
    """The rows, worst first, then what they come to."""
    shown = lambda ratio: "-" if ratio is None else f"{ratio:.2f}"
    cells = [("program", "nxjax", "JAX / ours", "best / ours", "best peer", "releases")]
    for f in sorted(figures, key=lambda f: (to_jax(f) or math.inf, f.name)):
        name = f.name.removeprefix(PREFIX)
        now = to_jax(f)
        runs = sparkline([*kept.get(f.name, ()), *([] if now is None else [now])])
        cells.append((name, f.shown(f.ours), shown(now), shown(to_best(f)), f.peer_name or "-", runs))
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    for who, ratio in (("JAX", to_jax), ("the best peer", to_best)):
        ratios = [r for r in map(ratio, figures) if r is not None]
        behind = sum(r < 1 for r in ratios)
        lines.append(f"to {who}: geometric mean {mean(ratios):.2f}, {behind} of {len(ratios)} under 1.0")
    return "\n".join(lines)
