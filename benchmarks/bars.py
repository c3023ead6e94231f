"""The table of the CPU compiler: every work that has a bar, its best peer, and the machine that it was measured on.

``python -m benchmarks bars`` takes some minutes. The works are those of the other modules, which have more of them.

``ratio`` is the best peer's time to ours. ``bar`` is the least of it; then peers with a least ratio of their own, the
least share of a copy's bandwidth, or the largest count of wrong results. ``at`` is what share of a tuned copy's
bandwidth or of the measured multiply-add rate was reached, where that bounds the work; a convolution by Winograd's
method does fewer operations than are counted. A larger share than all says that the machine was busy with others when
its limits were measured. ``memory`` is our peak memory to JAX's, and may be no more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from benchmarks import calls, convolutions, cpu, cpu_memory, imports, movement, products, transformer
from benchmarks.peers import THREADS, ceilings, measured, missing, package
from benchmarks.runner import Figure, processor
from nxjax.profiling.peaks import Peaks

# The works with a bar, in the table's order.
NAMES = (
    "import nxjax",
    "add of two 4-vectors",
    "dict of 40 leaves",
    "first call: x + n",
    "first call: sin(x * n)",
    "first call: grad of a 12-layer transformer",
    "x + 1, 10 M",
    "tanh(x)*x + exp(-x*x), 10 M",
    "gelu, 10 M",
    "softmax 10,000 x 1,000",
    "layer norm 10,000 x 1,000",
    "column sum 10,000 x 1,000",
    "cumsum 4096 x 4096 along 1",
    "cumsum 4096 x 4096 along 0",
    "transpose 4096 x 4096",
    "matmul 64",
    "matmul 256",
    "matmul 1024",
    "matmul 2048",
    "matrix times vector 4096",
    "64 x matmul 128",
    "conv 3x3 64-64 56x56 b8",
    "depthwise 3x3 64 56x56 b8",
    "small ResNet b1",
    "mobilenet_v2 b1",
    "resnet18 b1",
    "MLP train step, batch 128",
    "transformer block forward",
    "transformer block grad",
    "scan of 1,000 RNN steps",
    "int8 matmul 1024, no VNNI",
    "int8 conv 3x3 64-64 56x56 b8, no VNNI",
    "int8 mobilenet_v2 b1, no VNNI",
    "int8 wrong of 10,000 saturating",
    "random normal 1 M",
    "sort 1 M",
    "gather 1 M",
    "scatter-add 1 M",
    "1,000 Cholesky 16 x 16",
)

_EQUAL = (
    "ours and the best peer's run at the processor's peak; which comes first by some per cent changes from run to run"
)
# Rows that are known to be below their bar in some runs or all, and why.
REASONS = {
    "x + 1, 10 M": "bound by memory, which others on the machine use, too: 65 to 110 % of a copy from run to run",
    "matmul 64": f"{_EQUAL}; a call takes 0.1 of its 5.5 microseconds",
    "matmul 1024": _EQUAL,
    "matmul 2048": _EQUAL,
    "matrix times vector 4096": "bound by memory, as NumPy's is: the same 2.0 ms with matrices that are in no cache",
    "depthwise 3x3 64 56x56 b8": (
        "each product reads its input anew (12 of 14 loads are for 12 multiply-adds), and three rows of the image, "
        "43 KB, are more than the first cache: 37 % of a core's peak, for one image as for many"
    ),
    "small ResNet b1": (
        "fourteen kernels of 10 to 60 microseconds: two threads have to meet after each, and 8x8 images of 64 channels "
        "leave cores with unequal work"
    ),
    "mobilenet_v2 b1": "equal to ONNX Runtime's to some per cent; its depthwise layers are as the depthwise row says",
    "transformer block forward": "95 % of it are products at the processor's peak, as PyTorch's are",
    "transformer block grad": "95 % of it are products at the processor's peak, as PyTorch's are",
    "scan of 1,000 RNN steps": (
        "0.85 of a step's 1.28 microseconds are its multiply-adds at one core's peak, and a step is too small for two; "
        "JAX's time is 2.1 to 2.9 microseconds"
    ),
    "int8 conv 3x3 64-64 56x56 b8, no VNNI": (
        "float32 takes Winograd's products, too, and is 1.2 times as fast as its plain ones; the image is widened to 16"
        " bits as a whole, which is the memory above JAX's"
    ),
    "int8 mobilenet_v2 b1, no VNNI": (
        "rounding exactly to the next layer's grid takes 25 vector instructions for 16 results, and depthwise layers "
        "have nine products for each result"
    ),
    "scatter-add 1 M": "bound by reading and writing at random; JAX's time is 1.6 to 2.2 ms",
}

ALONE = "no peer here"
_HEAD = ("work", "nxjax", "best peer", "ratio", "bar", "at", "memory", "")


@dataclass(frozen=True)
class Line:
    """A measured row, and the memory that it takes beside JAX where both are known."""

    figure: Figure
    most: Peaks
    memory: Figure | None = None

    @property
    def bars(self) -> str:
        f = self.figure
        parts = [] if f.bar is None else [f"{1 / f.bar:.3g}"]
        parts += [f"{who} {least:g}" for who, least in f.against.items()]
        parts += [] if f.share is None else [f"{f.share:.0%}"]
        parts += [] if f.most is None else [f"{f.most:g}"]
        return ", ".join(parts)

    @property
    def at(self) -> str:
        f = self.figure
        if f.nbytes:
            return f"{f.nbytes / f.ours / self.most.bandwidth:.0%} copy"
        return f"{f.flops / f.ours / self.most.flops:.0%} peak" if f.flops else ""

    @property
    def beside_jax(self) -> str:
        m = self.memory
        return "" if m is None or m.ratio is None else f"{m.ratio:.2f}"

    @property
    def failures(self) -> list[str]:
        """What is below its bar."""
        f, found = self.figure, []
        if f.bar is not None and f.ratio is not None and f.ratio > f.bar:
            found.append("time")
        found += [f"time of {w}" for w, n in f.against.items() if w in f.peers and f.peers[w] < n * f.ours]
        if f.share is not None and f.nbytes / f.ours < f.share * self.most.bandwidth:
            found.append("bandwidth")
        if f.most is not None and f.ours > f.most:
            found.append("wrong results")
        if self.memory is not None and self.memory.ratio is not None and self.memory.ratio > 1:
            found.append("memory")
        return found

    @property
    def verdict(self) -> str:
        if self.failures:
            return "BELOW: " + ", ".join(self.failures)
        return "met" if self.figure.ratio is not None or self.figure.most is not None else ALONE

    def cells(self) -> tuple[str, ...]:
        f = self.figure
        best = f"{f.peer_name} {f.shown(f.peer)}" if f.peer_name else "-"
        ratio = "-" if f.ratio is None else f"{1 / f.ratio:.2f}"
        return f.name, f.shown(f.ours), best, ratio, self.bars, self.at, self.beside_jax, self.verdict


def work() -> Iterator[tuple[str, Callable[[], Figure]]]:
    """The works with a bar, by name, in their modules' order."""
    yield "import nxjax", imports.beside_numpy
    yield transformer.FIRST, transformer.first_call
    yield "int8 wrong of 10,000 saturating", exactness
    for module in (calls, cpu, movement, products, convolutions):
        for row in module.rows():
            if row.name in NAMES:
                yield row.name, lambda row=row: measured(row)


def exactness() -> Figure:
    """The wrong sums on all instruction sets of this machine together."""
    found = list(products.exactness())
    paths = ", ".join(f.name.rpartition(" ")[2] for f in found)
    return replace(
        found[0], name="int8 wrong of 10,000 saturating", ours=sum(f.ours for f in found), note=f"on each of {paths}"
    )


def memories(broken: dict[str, str]) -> dict[str, Figure]:
    """Peak memory beside JAX's, some processes at a time; nothing where JAX is missing."""
    if package("jax") is None:
        return {}

    def one(name: str) -> Figure | None:
        try:
            return cpu_memory.figure(name.removesuffix(", no VNNI"))
        except subprocess.CalledProcessError as error:
            broken[f"peak memory: {name}"] = str(error.stderr).strip().rpartition("\n")[2]
            return None

    names = [name for name in NAMES if name.removesuffix(", no VNNI") in cpu_memory.ROWS]
    with ThreadPoolExecutor(THREADS) as pool:
        return {name: figure for name, figure in zip(names, pool.map(one, names), strict=True) if figure is not None}


def figures() -> Iterator[Figure]:
    """Measure all rows and print the table at the end."""
    found: dict[str, Figure] = {}
    broken: dict[str, str] = {}
    for name, measure in work():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found[name] = measure()
        except Exception as error:  # the other rows are worth having
            broken[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    print("peak memory ...", file=sys.stderr, flush=True)
    memory, most = memories(broken), ceilings()
    print(table([Line(found[name], most, memory.get(name)) for name in NAMES if name in found], most))
    for name, why in broken.items():
        print(f"NOT MEASURED: {name}: {why}")
    yield from found.values()
    yield from (replace(figure, name=f"peak memory: {name}") for name, figure in memory.items())


def machine(most: Peaks) -> str:
    """The processor's name, its cores, what kernels are made for, and what it does at most."""
    return (
        f"{processor()}, {THREADS} of {os.cpu_count()} processors, {most.isa}\n"
        f"copy {most.bandwidth / 1e9:.1f} GB/s; float32 multiply-add {most.flops / 1e9:.0f} GFLOP/s"
    )


def table(lines: list[Line], most: Peaks) -> str:
    """The machine, the rows, and why those below their bar are."""
    cells = [_HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    text.insert(1, "  ".join("-" * width for width in widths))
    below = [line for line in lines if line.failures]
    alone = sum(line.verdict == ALONE for line in lines)
    held = len(lines) - alone
    parts = [machine(most), "", *text, "", f"{held - len(below)} of {held} at or above their bars"]
    parts += [f"{alone} more have no peer here"] if alone else []
    parts += [f"  {line.figure.name}: {REASONS.get(line.figure.name, 'no reason is known yet')}" for line in below]
    if missing():
        parts.append(f"not compared with, since not installed: {', '.join(missing())}")
    return "\n".join(parts)
