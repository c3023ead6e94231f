"""How the cycle model's fitted constants were found, and how well it then answers what it was not fitted on.

Fitted: `AieArray.memory`, one number of each generation, on the two published throughputs of each (arXiv 2512.13282:
int8 6.76 and 38.05 TOPS, bfloat16 3.14 and 14.71 TOPS), in the mean of the logarithms. The published designs' tile
sizes are not known here; they are taken to be the best by this model among those that fit, with results of the
operands' width in one buffer. Designs made here keep exact sums of 32 bits instead and are slower for it. Held out: the
throughput of one core (University of Jena, "Hello XDNA", 2026: 398 GFLOPS of bfloat16, 86 % of the peak, on XDNA).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, final

from nxjax.kernels.aie.chip import ARRAYS, CORE_ROWS, LIMITS, STREAM, AieArray
from nxjax.kernels.aie.matmul import Matmul, best_blocks
from nxjax.kernels.aie.spec import DTYPES
from nxjax.lower.aie.cycles import bursts

# Operations a second, a multiply and an add counted apart.
PUBLISHED: Final = {
    ("npu1", "i8"): 6.76e12,
    ("npu1", "bf16"): 3.14e12,
    ("npu2", "i8"): 38.05e12,
    ("npu2", "bf16"): 14.71e12,
}
# Share of the peak of one core's product, published.
ONE_CORE: Final = {("npu1", "bf16"): 0.86}
Element = Literal["i8", "bf16"]
_STACK: Final = 1024


@final
@dataclass(frozen=True)
class Reference:
    """The model's answer for a published kind of design: tile sizes, operations a second, and what bounds it."""

    tile: tuple[int, int, int]
    throughput: float
    bound: str


@lru_cache(64)
def reference(array: AieArray, element: Element, memory: float | None = None) -> Reference:
    """The best design with results of the operands' width, for large products; ``memory`` is another bandwidth.

    >>> from nxjax.kernels.aie.chip import NPU1
    >>> reference(NPU1, "i8").bound
    "the host's memory"
    """
    memory = array.memory if memory is None else memory
    um, uk, un = best_blocks(array.intrinsics[element])
    best = Reference((0, 0, 0), 0.0, "")
    for m in range(um, 193, um):
        for n in range(un, 193, un):
            for k in range(uk, 257, uk):
                found = _design(array, element, (m, k, n), memory)
                if found is not None and found.throughput > best.throughput:
                    best = found
    return best


def _design(array: AieArray, element: Element, tile: tuple[int, int, int], memory: float) -> Reference | None:
    (m, k, n), width = tile, DTYPES[element].itemsize
    if (2 * (m * k + k * n) + m * n) * width + _STACK > LIMITS["core"].memory:
        return None
    macs = m * k * n
    cores = one_core(array, element, tile)
    bounds = {
        "the cores": macs / cores,
        "the streams": max(m, n) * k * width / STREAM,
        "the host's memory": (CORE_ROWS * m * bursts(k * width) + array.columns * k * bursts(n * width))
        / memory
        * array.clock,
    }
    bound = max(bounds, key=lambda name: bounds[name])
    return Reference(tile, 2 * macs / bounds[bound] * array.clock * array.columns * CORE_ROWS, bound)


def one_core(array: AieArray, element: Element, tile: tuple[int, int, int]) -> float:
    """Multiply-accumulates a cycle of one core whose operands are there, with results of the operands' width."""
    i = array.intrinsics[element]
    kernel = Matmul(element, *tile, i.m, i.k, i.n)
    cycles = kernel.cycles(array)
    if element == "i8":
        # The kernel here keeps sums of four bytes: blocks of results of one byte are loaded and stored faster.
        blocks = (tile[0] // (2 * i.m)) * (tile[2] // (2 * i.n))
        wide, narrow = (sum(-(-4 * i.m * i.n * w // port) for port in (array.load, array.store)) for w in (4, 1))
        cycles -= blocks * (wide - narrow)
    return tile[0] * tile[1] * tile[2] / cycles


def residuals() -> dict[tuple[str, str], float]:
    """The model's throughput over the published one, for each that was fitted on.

    >>> all(abs(r - 1) < 0.1 for r in residuals().values())
    True
    """
    elements: tuple[Element, ...] = ("i8", "bf16")
    return {(a.name, e): reference(a, e).throughput / PUBLISHED[a.name, e] for a in ARRAYS.values() for e in elements}


def held_out() -> dict[tuple[str, str], tuple[float, float]]:
    """Share of the peak of one core by the model, and published."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for (name, element), published in ONE_CORE.items():
        array = ARRAYS[name]
        um, uk, un = best_blocks(array.intrinsics[element])
        tiles = ((m, k, n) for m in range(um, 129, um) for n in range(un, 129, un) for k in range(uk, 257, uk))
        fits = [t for t in tiles if (2 * (t[0] + t[2]) * t[1] + t[0] * t[2]) * 2 + _STACK <= LIMITS["core"].memory]
        best = max(one_core(array, "bf16", t) for t in fits)
        found[name, element] = best / array.intrinsics[element].macs, published
    return found
