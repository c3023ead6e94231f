"""Weights of convolutions of bytes: panels of channels, four bytes of depth in a unit.

Each run of the window ends with zeros up to a whole step of the products. Beside the panels there is a number for each
channel: where a byte other than 0 stands for nothing in the input, it takes back what that adds to a sum. Knows no
input and no window, only runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.ir import LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.matrix_unit import LINE, SIDE
from nxjax.kernels.cpu.ops_quant import emitted_weight, weight_of
from nxjax.trace import dtypes

DType = np.dtype[Any]
UNIT: Final = 4  # bytes


def units_of(depth: int, deep: int) -> int:
    """Units that a run of ``depth`` bytes takes, if a step takes ``deep`` units."""
    return -(-depth // (UNIT * deep)) * deep


def registers_of(outputs: int) -> int:
    """Registers along a panel of channels."""
    return min(2, -(-outputs // SIDE))


@final
@dataclass(frozen=True, eq=False)
class TileWeights(Kernel):
    """Weights as `TileConv` reads them, and what its sums start with; operands: weights, their scales if they are
    floats, then both results.

    Attributes:
        dtype: float32, which is divided by scales, or bytes.
        groups, outputs: output channels lie one after the other.
        runs: where each run of the window begins.
        depth, strides: inputs of a run; bytes per input and per group.
        deep: units of a step of the products.
        last: the largest integer of floats.
        zero: the byte that stands for nothing.
    """

    dtype: DType
    groups: int
    outputs: int
    runs: tuple[int, ...]
    depth: int
    strides: tuple[int, int]
    last: int
    zero: int
    deep: int

    @property
    def key(self) -> str:
        return f"tile_weights({self.dtype.name} {self.last} {registers_of(self.outputs)})"

    @property
    def panels(self) -> int:
        return -(-self.outputs // (SIDE * registers_of(self.outputs)))

    @property
    def units(self) -> int:
        """Of a run."""
        return units_of(self.depth, self.deep)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the results."""
        columns = self.panels * SIDE * registers_of(self.outputs)
        return self.groups * columns * len(self.runs) * self.units * UNIT, self.groups * columns * 4

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.groups * self.panels

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 2048 // max(1, len(self.runs) * self.depth))

    @property
    def integers(self) -> tuple[int, ...]:
        return (self.panels, len(self.runs), self.depth, self.units, self.outputs, *self.strides, self.zero,
                *self.runs)  # fmt: skip

    def touches(self) -> Touches:
        size, (k, group) = self.dtype.itemsize, self.strides
        shape, steps = (self.groups, self.depth, self.outputs), (group, k, size)
        w = tuple(Box(size, shape, steps, r) for r in self.runs)
        scales = ((Box(self.groups * self.outputs * 4),),) if self.dtype == dtypes.float32 else ()
        return Touches((w, *scales), plain([], [Box(n) for n in self.sizes]).outs)

    def cost(self) -> KernelCost:
        n = self.groups * self.outputs * len(self.runs) * self.depth
        return KernelCost(4.0 * n, n * self.dtype.itemsize, sum(self.sizes))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        size, (k, group) = self.dtype.itemsize, self.strides
        raw = np.asarray(xs[0]).reshape(-1).view(np.uint8)
        grid = np.ix_(range(self.groups), self.runs, range(self.depth), range(self.outputs), range(size))
        at: Any = grid[0] * group + grid[1] + grid[2] * k + grid[3] * size + grid[4]
        w = raw[at].copy().view(self.dtype)[..., 0]
        if self.dtype == dtypes.float32:
            w = weight_of(w, np.asarray(xs[1]).reshape(self.groups, 1, 1, self.outputs), self.last)
        columns = SIDE * registers_of(self.outputs)
        units = self.units
        room = np.zeros((self.groups, len(self.runs), UNIT * units, self.panels * columns), np.int64)
        room[:, :, : self.depth, : self.outputs] = w
        starts = (room.sum((1, 2)) * -self.zero).astype(np.int32)
        panels = room.reshape(self.groups, len(self.runs), units, UNIT, self.panels, columns)
        panels = panels.transpose(0, 4, 1, 2, 5, 3)
        return [np.ascontiguousarray(panels.astype(np.uint8)), starts]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        floats = self.dtype == dtypes.float32
        w = pointer(f, words, 0)
        scales = pointer(f, words, 1) if floats else None
        out, starts = (pointer(f, words, 1 + floats + i) for i in range(2))
        panels, runs, depth, units, outputs, step, group_step, zero = (
            integer(f, words, 3 + floats + i) for i in range(8)
        )
        run_places = f.at(words, 11 + floats, 8)
        registers = range(n := registers_of(self.outputs))
        ints, line = vector("i32", SIDE), n * LINE
        none = f.constant(ints, 0)
        with f.loop(lo, hi) as item:
            group, channel = item.index.udiv(panels), item.index.urem(panels) * (SIDE * n)
            base = f.at(f.at(w, group * group_step), channel, self.dtype.itemsize)
            # Of what is no channel nothing is read.
            left = [f.intrinsic("smax", "i64", outputs - channel - SIDE * v, f.constant("i64", 0)) for v in registers]
            masks = [f.lanes_below(x, SIDE) for x in left]
            by: list[Value] = []
            if scales is not None:
                row = f.at(scales, group * outputs + channel, 4)
                by = [f.load_masked(vector("float", SIDE), f.at(row, LINE * v), masks[v]) for v in registers]
            with f.loop(0, runs, carry=[none] * n) as run:
                source = f.at(base, f.load("i64", f.at(run_places, run.index, 8)))
                target = f.at(out, (item.index * runs + run.index) * units, line)
                with f.loop(0, units, carry=run.carried) as unit:
                    sums, cells = list(unit.carried), [none] * n
                    for j in range(UNIT):
                        k = unit.index * UNIT + j
                        there = f.splat(k.lt(depth), SIDE)
                        for v in registers:
                            at = f.at(f.at(source, k * step), v * SIDE * self.dtype.itemsize)
                            type = convert.memory_type(self.dtype, SIDE)
                            x = f.load_masked(type, at, masks[v] & there)
                            if by:
                                q = f.select(there, emitted_weight(f, x, by[v], self.last), none)
                            else:
                                q = x.convert(ints, signed=self.dtype in dtypes.SIGNED)
                            sums[v] = sums[v] + q
                            cells[v] = cells[v] | (q & 255) << 8 * j
                    for v in registers:
                        f.store(cells[v], f.at(f.at(target, unit.index, line), LINE * v))
                    unit.next(*sums)
                run.next(*unit.results)
            minus = f.splat((-zero).convert("i32"), SIDE)
            for v in registers:
                f.store(run.results[v] * minus, f.at(f.at(starts, item.index, line), LINE * v))
        f.ret()
