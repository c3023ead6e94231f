"""The page of benchmarks from one run: ``python docs/generate_benchmarks.py benchmarks/results/<time>.json``.

Writes docs/benchmarks.json (a copy of the record), docs/benchmarks.md and docs/images/benchmarks.svg. Without a file it
writes the page and the plot again from the copy; with ``--check`` it says only whether the page is the record's.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "benchmarks.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "images" / "benchmarks.svg"

HEAD = """# Benchmarks

One run of `python -m benchmarks bars` compares nxjax with the peers that are installed. Each row alternates between
nxjax and its peers in one process, and takes the smallest time of many. Absolute times depend on the machine. The ratio
depends on it less.

{machine}

![Ratio of the best peer's time to the time of nxjax, one bar for each row](images/benchmarks.svg)

Above 1, nxjax is faster. Of {count} rows, nxjax is faster than the best peer in {faster}. The geometric mean of the
ratios is {mean:.2f}.

"""

TAIL = """
Repeat the run on your machine: `make bars`, or `python -m benchmarks bars` in an environment that also has the peers.
`python -m benchmarks` has more rows: imports, calls, memory, quantization, generation, hybrid execution.
`python -m benchmarks breadth` runs many small programs of ten areas, from statistics to sequence models, and sorts
them by JAX's time. `python -m benchmarks networks` has whole networks in int8 and float32 beside other runtimes.
"""


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures that have the time of another project, in the order of the run."""
    timed = [f for f in record["figures"] if f["ratio"] and f["unit"] == "s"]
    return [f for f in timed if not f["peer_name"].startswith("our ")]


def advantage(figure: dict[str, Any]) -> float:
    """The best peer's time to ours."""
    return 1 / figure["ratio"]


def shown(seconds: float) -> str:
    """A time in the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def page(record: dict[str, Any]) -> str:
    """The page's text."""
    figures = rows(record)
    peers = sorted({name for f in figures for name in f["peers"]} | {f["peer_name"] for f in figures})
    day = f"{record['when'][:4]}-{record['when'][4:6]}-{record['when'][6:8]}"
    machine = (
        f"Measured on {day}: {record['processor']}, {record['machine']}.\n"
        f"Peers: {', '.join(p for p in peers if not p.startswith('our '))}."
    )
    ratios = [advantage(f) for f in figures]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    head = HEAD.format(machine=machine, count=len(figures), faster=sum(r > 1 for r in ratios), mean=mean)
    table = ["| work | nxjax | best peer | ratio |", "|---|---|---|---|"]
    table += [
        f"| {f['name']} | {shown(f['ours'])} | {shown(f['peer'])} ({f['peer_name']}) | {advantage(f):.2f} |"
        for f in figures
    ]
    return head + "\n".join(table) + "\n" + TAIL


def plot(record: dict[str, Any]) -> None:
    """Bars of the ratios, on a scale of doublings."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "nxjax"
    figures = sorted(rows(record), key=advantage)
    doublings = [math.log2(advantage(f)) for f in figures]
    drawn, axes = pyplot.subplots(figsize=(7.2, 0.24 * len(figures) + 0.8))
    axes.barh(range(len(figures)), doublings, color=["#2f7f5f" if d > 0 else "#b5533c" for d in doublings], height=0.7)
    axes.set_yticks(range(len(figures)), [f["name"] for f in figures], fontsize=7)
    ticks = range(math.floor(min(doublings)), math.ceil(max(doublings)) + 1)
    axes.set_xticks(ticks, [f"{2.0**t:g}" for t in ticks], fontsize=7)
    axes.set_xlabel("best peer's time / time of nxjax", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", linewidth=0.3)
    axes.margins(y=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.tight_layout()
    drawn.savefig(PLOT, format="svg", metadata={"Date": None})
    pyplot.close(drawn)


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] != "--check":
        RECORD.write_text(json.dumps(json.loads(Path(arguments[0]).read_text()), indent=1) + "\n")
    record = json.loads(RECORD.read_text())
    if arguments == ["--check"]:
        if PAGE.read_text() == page(record) and PLOT.exists():
            return 0
        print("docs/benchmarks.md is not its record's: run python docs/generate_benchmarks.py")
        return 1
    PAGE.write_text(page(record))
    plot(record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
