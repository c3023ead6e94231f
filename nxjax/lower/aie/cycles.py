"""Cycles of a plan, in closed form: what the cores, the streams and the host's memory each need; the most counts.

The model of the array (`vendors.amd.aie.model`) counts the same by running a design event by event; this is what the
planner can ask thousands of times. Rates are published (`chip`); the bytes a second that the array draws from the
host's memory are fitted (`calibrate`). Not modelled: the time of a launch, and other users of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from nxjax.kernels.aie.chip import STREAM, AieArray
from nxjax.kernels.aie.elementwise import Bfloat
from nxjax.kernels.aie.matmul import Matmul, Requantize, ZeroFill
from nxjax.kernels.aie.spec import CoreKernel
from nxjax.lower.aie.plan import ElementwisePlan, MatmulPlan

# Cycles from a lock's release to the first word that a DMA sends: an estimate, as for every hop.
HOP: Final = 32
# The shortest burst of a shim's DMA, bytes (mlir-aie's target model has 64, 128 and 256).
BURST: Final = 64


def bursts(nbytes: int) -> int:
    """Bytes that the host's memory moves for so many in one piece: whole bursts.

    >>> bursts(24), bursts(65)
    (64, 128)
    """
    return -(-nbytes // BURST) * BURST


@final
@dataclass(frozen=True)
class Cycles:
    """What each part of the array needs if nothing else bounded it, and the time before and after all run together."""

    cores: float
    streams: float
    memory: float
    fill: float
    clock: float

    @property
    def total(self) -> float:
        # The host's memory is busy from the first word on: filling the array is part of what it moves.
        return max(max(self.cores, self.streams) + self.fill, self.memory)

    @property
    def seconds(self) -> float:
        return self.total / self.clock

    @property
    def bound(self) -> str:
        """What takes longest."""
        found = {self.cores: "the cores", self.streams: "the streams", self.memory: "the host's memory"}
        return found[max(found)]

    def parts(self) -> dict[str, float]:
        return {"cores": self.cores, "streams": self.streams, "the host's memory": self.memory, "fill": self.fill}


@lru_cache(4096)
def _matmul_kernels(element: str, result: str, relu: bool, m: int, k: int, n: int, array: AieArray) -> tuple[int, int]:
    """Cycles of a step, and of what stands around the steps of a tile of the result."""
    kernels = matmul_kernels(element, result, relu, m, k, n, array)
    each = [kernel.cycles(array) for kernel in kernels]
    return each[1], each[0] + sum(each[2:])


def matmul_kernels(
    element: str, result: str, relu: bool, m: int, k: int, n: int, array: AieArray
) -> tuple[CoreKernel, ...]:
    """Zeros, the product, and where there is one the kernel that makes the result of the sums."""
    i = array.intrinsics[element]
    tail = 0
    finish: tuple[CoreKernel, ...] = ()
    if result == "i8":
        r = Requantize(m, n, i.m, i.n, k * n)
        tail, finish = r.arguments[1].size - k * n, (r,)
    elif relu:
        finish = (Bfloat("relu", m * n),)
    product = Matmul("i8" if element == "i8" else "bf16", m, k, n, i.m, i.k, i.n, tail)
    return (ZeroFill(product.result, m * n), product, *finish)


def matmul_cycles(plan: MatmulPlan) -> Cycles:
    """Of a whole product, from the first word sent to the last word back."""
    p, array = plan.problem, plan.array
    step, around = _matmul_kernels(p.element, p.result, p.relu, plan.m, plan.k, plan.n, array)
    tiles, steps = plan.row_blocks * plan.column_blocks, plan.steps
    through_shim = max(map(len, plan.a_columns)) * plan.a_bytes
    streams = max(steps * max(through_shim, plan.b_bytes), plan.rows * plan.c_bytes) / STREAM
    a = plan.rows * plan.m * bursts(plan.k * p.width) * steps
    b = plan.columns * (plan.b_bytes if p.packed else plan.k * bursts(plan.n * p.width)) * steps
    c = plan.rows * plan.columns * plan.m * bursts(plan.n * p.result_width)
    memory = (a + b + c) / array.memory * array.clock
    first = (max(through_shim, plan.b_bytes) + max(plan.a_bytes, plan.b_bytes)) / STREAM
    last = (plan.c_bytes + plan.rows * plan.c_bytes) / STREAM
    return Cycles(tiles * (steps * step + around), tiles * streams, tiles * memory, first + last + 4 * HOP, array.clock)


def elementwise_cycles(plan: ElementwisePlan, call: int) -> Cycles:
    """Of a whole function, whose kernel takes ``call`` cycles for a piece."""
    piece = plan.size * plan.width
    column = plan.rows * piece
    moved = plan.padded * plan.width * (plan.operands + 1)
    return Cycles(
        plan.rounds * call,
        plan.rounds * (column / STREAM + HOP),
        moved / plan.array.memory * plan.array.clock,
        2 * (column + piece) / STREAM + 4 * HOP,
        plan.array.clock,
    )
