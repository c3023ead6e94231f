"""Who computes what of a product: the partition of a convolution over tiles that the cost model finds fastest.

Every way to cut the dimensions is priced by the published formulas of the vertices and of the exchange, all of them at
once as arrays; the fastest one whose temporaries fit is taken. A product whose temporaries fit in no way is computed in
turns. Source of the model: poplibs' planner (``lib/poplin/ConvModel.cpp``). Knows sizes and a chip, no program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu.amp import Amp, Depthwise
from nxjax.kernels.ipu.chip import IpuChip

NDArray = np.ndarray[Any, Any]

# The dimensions that are cut, in the order of a box's place: groups, batch, three spatial ones, blocks of output
# channels and blocks of input channels.
DIMS: Final = ("groups", "batch", "depth", "height", "width", "out", "in")
# More ways to cut one dimension than this are thinned out.
MOST_WAYS: Final = 28


@final
@dataclass(frozen=True)
class ConvPartitionProblem:
    """A grouped convolution in blocks of channels; a matrix product has one kernel element and its rows as width.

    Attributes:
        sizes: of `DIMS`: groups, batch, output positions, blocks of output and of input channels.
        kernel, steps, holes: of the three spatial dimensions: elements, strides, dilations of the kernel.
        units, depth: channels of one block.
        dtype, partials: of the operands and of the sums.
        depthwise: every group has one input and one output channel; ``sizes[0]`` counts groups, blocks are 1.
    """

    sizes: tuple[int, int, int, int, int, int, int]
    kernel: tuple[int, int, int]
    steps: tuple[int, int, int]
    holes: tuple[int, int, int]
    units: int
    depth: int
    dtype: str
    partials: str
    depthwise: bool = False

    def box(self, counts: Any) -> tuple[Any, Any, Any]:
        """Input positions that so many output positions need, per spatial dimension."""
        d, h, w = (
            (np.asarray(n) - 1) * s + (k - 1) * g + 1
            for n, k, s, g in zip(counts, self.kernel, self.steps, self.holes, strict=True)
        )
        return d, h, w


@final
@dataclass(frozen=True)
class ConvPartition:
    """A partition and what the model thinks of it.

    Attributes:
        parts: into how many parts each of `DIMS` is cut.
        turns: into how many parts the output channels are cut that are computed one after the other.
        cycles: of all turns: compute, exchange and reduction.
        temporary: bytes of the fullest tile: operands, and sums where they are reduced afterwards.
    """

    parts: tuple[int, int, int, int, int, int, int]
    turns: int
    cycles: int
    temporary: int

    @property
    def tiles(self) -> int:
        return math.prod(self.parts)


def ways(size: int, most: int) -> list[int]:
    """Numbers of parts that differ in the largest part, the fewest of each.

    >>> ways(10, 6)
    [1, 2, 3, 4, 5]
    """
    found: list[int] = []
    last = 0
    for n in range(1, min(size, most) + 1):
        largest = -(-size // n)
        if largest != last:
            found.append(n)
            last = largest
    if len(found) > MOST_WAYS:
        kept = np.unique(np.geomspace(1, len(found), MOST_WAYS).round().astype(int)) - 1
        found = [found[i] for i in kept]
    return found


def _candidates(problem: ConvPartitionProblem, tiles: int) -> NDArray:
    """Every combination of ways that needs at most so many tiles: [n, 7]."""
    rows = np.ones((1, 0), np.int64)
    used = np.ones(1, np.int64)
    for d, size in enumerate(problem.sizes):
        if problem.depthwise and DIMS[d] in ("out", "in"):
            choice = np.ones(1, np.int64)
        else:
            choice = np.asarray(ways(size, tiles), np.int64)
        product = used[:, None] * choice
        at, which = np.nonzero(product <= tiles)
        rows = np.concatenate([rows[at], choice[which][:, None]], 1)
        used = product[at, which]
    return rows


def _priced(problem: ConvPartitionProblem, parts: NDArray, chip: IpuChip) -> tuple[NDArray, NDArray]:
    """Cycles and temporary bytes of the busiest tile for each candidate."""
    sizes = np.asarray(problem.sizes)
    g, b, od, oh, ow, o, i = np.moveaxis(-(-sizes // parts), -1, 0)
    out = (od, oh, ow)
    d, h, w = problem.box(out)
    taps = math.prod(problem.kernel)
    item, partial = np.dtype(problem.dtype).itemsize, np.dtype(problem.partials).itemsize
    cut = parts[:, 6]
    positions = b * od * oh * ow
    if problem.depthwise:
        compute = Depthwise(problem.dtype, problem.partials).estimate(b, out, g, problem.kernel, chip)
        x, weights, y = g * b * d * h * w * item, g * taps * item, g * positions * partial
    else:
        codelet = Amp(problem.dtype, problem.partials, problem.units, problem.depth)
        compute = codelet.estimate(g, i, o, b, out, problem.kernel, problem.steps, chip)
        x = g * i * b * d * h * w * problem.depth * item
        weights = g * o * i * taps * problem.units * problem.depth * item
        y = g * o * positions * problem.units * partial
    exchange = chip.sync_cycles + (x + weights) / chip.exchange_bytes
    # Tiles that share the sums of an output divide its elements: each takes its part of all the others, and adds them
    # (poplibs' general estimate of a reduction: six workers, two or four lanes).
    lanes = 4 if problem.partials == "float32" else 8
    loops = -(-(y // partial // cut) // (lanes * chip.workers))
    reduction = chip.sync_cycles + y * (cut - 1) / cut / chip.exchange_bytes
    reduction = reduction + chip.workers * (32 + 3 * cut + 9) * np.maximum(loops, 1)
    cycles = compute + exchange + np.where(cut > 1, reduction, 0)
    temporary = x + weights + np.where(cut > 1, y + y // cut, y)
    return cycles, temporary


@lru_cache(4096)
def planned(problem: ConvPartitionProblem, chip: IpuChip, tiles: int, proportion: float) -> ConvPartition:
    """The fastest partition of ``problem`` over at most ``tiles`` tiles.

    Args:
        problem: what is computed; no size is 0.
        chip: whose formulas hold.
        tiles: how many may be used.
        proportion: of a tile's memory, what the temporaries may take. Where no partition keeps to it, the one with the
            smallest temporaries is taken, and the check of tile memory has the last word.
    """
    limit = chip.memory * proportion
    least: ConvPartition | None = None
    turns = 1
    while True:
        blocks = -(-problem.sizes[5] // turns)
        part = replace(problem, sizes=(*problem.sizes[:5], blocks, problem.sizes[6]))
        parts = _candidates(part, tiles)
        cycles, temporary = _priced(part, parts, chip)
        fits = np.nonzero(temporary <= limit)[0]
        if len(fits):
            best = fits[np.lexsort((parts[fits].prod(1), temporary[fits], cycles[fits]))[0]]
            return _plan(parts[best], turns, cycles[best], temporary[best])
        best = np.lexsort((cycles, temporary))[0]
        if least is None or temporary[best] < least.temporary:
            least = _plan(parts[best], turns, cycles[best], temporary[best])
        if turns >= problem.sizes[5]:
            return least
        turns = min(turns * 2, problem.sizes[5])


def _plan(parts: NDArray, turns: int, cycles: Any, temporary: Any) -> ConvPartition:
    g, b, d, h, w, o, i = (int(n) for n in parts)
    return ConvPartition((g, b, d, h, w, o, i), turns, int(cycles) * turns, int(temporary))
