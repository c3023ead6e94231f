"""The page of benchmarks from two runs: ``python docs/generate_benchmarks.py benchmarks/results/<time>.json ...``.

Writes docs/benchmarks.json (a copy of a record of ``bars``), docs/scale.json (one of ``scale``),
docs/breadth/<version>.json (one of ``breadth``), docs/benchmarks.md and the plots in docs/images. Without a file it
writes the page and the plots again from the copies; with ``--check`` it says only whether the page is the records'.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.breadth.table import PREFIX, RELEASES, history, mean, sparkline  # noqa: E402
from nxjax.version import OWN  # noqa: E402

RECORD = ROOT / "docs" / "benchmarks.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "images" / "benchmarks.svg"
SCALE = ROOT / "docs" / "scale.json"
CURVES = ROOT / "docs" / "images" / "scale.svg"

HEAD = """# Benchmarks

One run of `python -m benchmarks bars` compares nxjax with the peers that are installed. Each row alternates between
nxjax and its peers in one process, and takes the smallest time of many. Absolute times depend on the machine. The ratio
depends on it less.

{machine}

![Ratio of the best peer's time to the time of nxjax, one bar for each row](images/benchmarks.svg)

Above 1, nxjax is faster. Of {count} rows, nxjax is faster than the best peer in {faster}. The geometric mean of the
ratios is {mean:.2f}.

"""

WIDE = """
## Programs of many areas

One run of `python -m benchmarks breadth`: {count} programs in the words of JAX's users, each with its first inputs.
{machine}
Ratios are a peer's time to that of nxjax. The geometric mean to JAX is {jax:.2f}, and {behind_jax} programs are behind.
To the best of JAX, NumPy and PyTorch it is {best:.2f}, and {behind} are behind.

| area | programs | mean to JAX | least to JAX | mean to the best peer |
|---|---|---|---|---|
{areas}

The programs that are behind a peer, and the ten with the least ratio to JAX. Blocks are JAX's ratio in each release,
from a quarter through 1 (the third) to 32.

| program | nxjax | to JAX | to the best peer | releases |
|---|---|---|---|---|
{programs}
"""

GROWTH = """
## Time against size

One run of `python -m benchmarks scale`. {machine}

![Time against elements, threads, equations and processes, for nxjax and its peers](images/scale.svg)

The grey line is a roofline: the least time that the bandwidth of a copy in memory, or the peak of multiply-adds, allows
on this machine. What fits into caches can be faster. Below some thousand elements a curve shows the cost of a call. The
panel of threads has 10 million elements and nxjax alone.
"""

TAIL = """
Repeat the run on your machine: `make bars`, or `python -m benchmarks bars` in an environment that also has the peers.
`python -m benchmarks` has more rows: imports, calls, memory, quantization, generation, hybrid execution.
`python -m benchmarks breadth` sorts all programs by JAX's time. `python -m benchmarks networks` has whole networks in
int8 and float32 beside other runtimes.
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


def said(record: dict[str, Any]) -> str:
    """When and where a record was measured."""
    day = f"{record['when'][:4]}-{record['when'][4:6]}-{record['when'][6:8]}"
    return f"Measured on {day}: {record['processor']}, {record['machine']}."


def wide(record: dict[str, Any]) -> str:
    """The section of a record of ``breadth``."""
    figures = [f for f in record["figures"] if f["unit"] == "s"]
    jax = lambda f: f["peers"]["jax"] / f["ours"] if "jax" in f["peers"] else None
    best = lambda f: advantage(f) if f["ratio"] else None
    known = lambda ratio, some: [r for r in map(ratio, some) if r is not None]
    named: dict[str, list[dict[str, Any]]] = {}
    for f in figures:
        named.setdefault(f["name"].removeprefix(PREFIX).partition(".")[0], []).append(f)
    areas = [
        f"| {area.replace('_', ' ')} | {len(some)} | {mean(known(jax, some)):.2f} | {min(known(jax, some)):.2f} "
        f"| {mean(known(best, some)):.2f} |"
        for area, some in sorted(named.items())
    ]
    kept, last = history(RELEASES), sorted(figures, key=lambda f: jax(f) or math.inf)[:10]
    listed = [f for f in sorted(figures, key=lambda f: best(f) or math.inf) if (best(f) or 1) < 1]
    programs = [
        f"| {f['name'].removeprefix(PREFIX)} | {shown(f['ours'])} | {f'{jax(f):.2f}' if jax(f) else '-'} "
        f"| {best(f):.2f} ({f['peer_name']}) | {sparkline(kept.get(f['name'], ()))} |"
        for f in [*listed, *(f for f in last if f not in listed)]
    ]
    behind = lambda ratio: sum(r < 1 for r in known(ratio, figures)) or "no"
    means = {"jax": mean(map(jax, figures)), "best": mean(map(best, figures))}
    counts = {"count": len(figures), "behind_jax": behind(jax), "behind": behind(best)}
    tables = {"areas": "\n".join(areas), "programs": "\n".join(programs)}
    return WIDE.format(machine=said(record), **means, **counts, **tables)


def page(record: dict[str, Any], scale: dict[str, Any], breadth: dict[str, Any]) -> str:
    """The page's text."""
    figures = rows(record)
    peers = sorted({name for f in figures for name in f["peers"]} | {f["peer_name"] for f in figures})
    machine = f"{said(record)}\nPeers: {', '.join(p for p in peers if not p.startswith('our '))}."
    ratios = [advantage(f) for f in figures]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    head = HEAD.format(machine=machine, count=len(figures), faster=sum(r > 1 for r in ratios), mean=mean)
    table = ["| work | nxjax | best peer | ratio |", "|---|---|---|---|"]
    table += [
        f"| {f['name']} | {shown(f['ours'])} | {shown(f['peer'])} ({f['peer_name']}) | {advantage(f):.2f} |"
        for f in figures
    ]
    return head + "\n".join(table) + "\n" + wide(breadth) + GROWTH.format(machine=said(scale)) + TAIL


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


def curves(record: dict[str, Any]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Of each panel, by library, the points: size and seconds. "roofline" is what the machine allows at least."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for f in record["figures"]:
        work, _, point = f["name"].rpartition(", ")
        kind, _, n = point.partition(" ")
        panel, own = (work, "nxjax") if kind != "threads" else ("threads", work)
        lines = found.setdefault(panel, {})
        roof = {"roofline": float(f["note"].split()[2])} if f["note"] and kind == "elements" else {}
        for who, seconds in {own: f["ours"], **f["peers"], **roof}.items():
            lines.setdefault(who, []).append((float(n), seconds))
    return found


COLOURS = {"nxjax": "#2f7f5f", "jax": "#b5533c", "numpy": "#4c72b0", "torch": "#c9a227", "roofline": "#999999"}


def plot_curves(record: dict[str, Any]) -> None:
    """A panel for each program, one for threads, one for equations and one for processes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "nxjax"
    panels = curves(record)
    drawn, grid = pyplot.subplots(-(-len(panels) // 2), 2, figsize=(7.2, 2.3 * -(-len(panels) // 2)))
    for axes, (name, lines) in zip(grid.flat, panels.items()):
        for who, points in lines.items():
            thin = who == "roofline"
            axes.plot(
                *zip(*points),
                label=who,
                color=COLOURS.get(who),
                linewidth=0.9 if thin else 1.4,
                marker="" if thin else ".",
            )
        axes.set_title(name, fontsize=8)
        axes.set_xscale("log", base=10 if name not in ("threads", "start") else 2)
        axes.set_yscale("log")
        axes.tick_params(which="both", labelsize=6)
        axes.grid(linewidth=0.3)
        axes.legend(fontsize=5, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    drawn.supylabel("seconds", fontsize=8)
    drawn.tight_layout()
    drawn.savefig(CURVES, format="svg", metadata={"Date": None})
    pyplot.close(drawn)


def main(arguments: list[str]) -> int:
    for name in arguments if arguments != ["--check"] else ():
        given = json.loads(Path(name).read_text())
        names = [f["name"] for f in given["figures"]]
        grows, varied = any(", elements " in n for n in names), all(n.startswith(PREFIX) for n in names)
        kept = SCALE if grows else RELEASES / f"{OWN}.json" if varied else RECORD
        kept.write_text(json.dumps(given, indent=1) + "\n")
    newest = max(RELEASES.glob("*.json"), key=lambda path: json.loads(path.read_text())["when"])
    record, scale, breadth = (json.loads(path.read_text()) for path in (RECORD, SCALE, newest))
    if arguments == ["--check"]:
        if PAGE.read_text() == page(record, scale, breadth) and PLOT.exists() and CURVES.exists():
            return 0
        print("docs/benchmarks.md is not its records': run python docs/generate_benchmarks.py")
        return 1
    PAGE.write_text(page(record, scale, breadth))
    plot(record)
    plot_curves(scale)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
