"""The right operand of a matrix product as panels, in which the innermost loop reads one vector after the other.

    [batch][block of depth][panel of columns][unit of depth][column of the panel][element of the unit]

For tiles of ``quads`` the numbers with which sums start follow the last unit, one for each column. A panel that is not
full ends with columns that are never looked at; those of floats are zeros or columns of the matrix, since products of
what may lie in memory, if it is below the normal range, take many times as long. A unit that is not full ends with
zeros, and so does the last block of what the matrix unit takes 16 units at once of. Elements are converted to what the
tile multiplies. Knows no product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, OutputEffect, Touches, dense, integer, pointer
from nxjax.kernels.cpu.gemm import Layout, least, packed_dtype, to_panel
from nxjax.kernels.cpu.gemm_tile import GemmTile, step, turned, zipped
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace.dtypes import DType

# Units of depth and panels that an item packs for the matrix unit: long pieces of rows are read, as they lie.
_PIECE: Final = (16, 16)


@final
@dataclass(frozen=True, eq=False)
class Right(Kernel):
    """Packs a batch of matrices ``[depth, columns]``.

    Attributes:
        tile: of the product.
        dtype: of the operand.
        layout: ``rows`` if columns lie side by side, ``columns`` if elements along the depth do, or ``strided``.
        depth, columns: sizes. ``block``: units of depth of a block of the product.
        depth_step, column_step: bytes.
        batch: sizes and bytes from matrix to matrix.
    """

    tile: GemmTile
    dtype: DType
    layout: Layout
    depth: int
    columns: int
    block: int
    depth_step: int
    column_step: int
    batch: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> str:
        t = self.tile
        tile = f"{t.mode} {t.scalar} {t.vectors}*{t.lanes}"
        return f"pack({tile} {self.dtype.name} {self.layout} {len(self.batch)})"

    @property
    def units(self) -> int:
        return self.tile.units(self.depth)

    @property
    def turns(self) -> int:
        return -(-self.units // self.block)

    @property
    def panels(self) -> int:
        return -(-self.columns // self.tile.columns)

    @property
    def nbytes(self) -> int:
        """Of one packed matrix."""
        return (self.units + self.turns * self.tile.starts) * self.panels * self.tile.columns * self.tile.unit

    @property
    def count(self) -> int:
        """Matrices."""
        return math.prod([n for n, _ in self.batch])

    @property
    def _piece(self) -> tuple[int, int]:
        """Units of depth and panels of an item, at most."""
        return _PIECE if self.tile.is_matrix and self.layout == "rows" else (self.block, 1)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        units, panels = self._piece
        return self.count * self.turns * -(-self.block // units) * -(-self.panels // panels)

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        units, panels = self._piece
        return max(1, 16384 // max(1, min(units, self.units) * min(panels, self.panels) * self.tile.columns))

    @property
    def integers(self) -> tuple[int, ...]:
        flat = [x for pair in self.batch for x in pair]
        return (self.depth, self.columns, self.block, self.depth_step, self.column_step, *self._piece, *flat)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        t = self.tile
        x = np.broadcast_to(xs[0], (*(n for n, _ in self.batch), self.depth, self.columns))
        x = x.reshape(self.count, self.depth, self.columns).astype(packed_dtype(t))
        padding = (self.units * t.group - self.depth, self.panels * t.columns - self.columns)
        x = np.pad(x, ((0, 0), (0, padding[0]), (0, padding[1])))
        x = x.reshape(self.count, self.units, t.group, self.panels, t.columns).transpose(0, 1, 3, 4, 2)
        parts: list[NDArray] = []
        for at in range(0, self.units, self.block):
            part = x[:, at : at + self.block].transpose(0, 2, 1, 3, 4)
            if t.starts:
                starts = -128 * part.astype(np.int32).sum(axis=(2, 4), dtype=np.int32)
                lines = starts[:, :, None, :, None].view(np.int8).reshape(self.count, self.panels, 1, t.columns, 4)
                part = np.concatenate([part, lines], axis=2)
            parts.append(part.reshape(self.count, -1))
        flat = np.concatenate(parts, axis=1) if parts else np.zeros((self.count, 0), packed_dtype(t))
        return [np.ascontiguousarray(flat)]

    def touches(self) -> Touches:
        shape = (*(n for n, _ in self.batch), self.depth, self.columns)
        source = Box(self.dtype.itemsize, shape, (*(s for _, s in self.batch), self.depth_step, self.column_step))
        return Touches(((source,),), (OutputEffect(dense(self.count * self.nbytes), "own"),))

    def cost(self) -> KernelCost:
        n = float(self.count * self.depth * self.columns)
        return KernelCost(0.0, n * self.dtype.itemsize, float(self.count * self.nbytes))

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        source, target = pointer(f, words, 0), pointer(f, words, 1)
        depth, columns, block, depth_step, column_step, deep, wide, *batch = (
            integer(f, words, 2 + i) for i in range(7 + 2 * len(self.batch))
        )
        t, line = self.tile, self.tile.columns * self.tile.unit
        units = t.emit_units(depth)
        panels = (columns + (t.columns - 1)).sdiv(t.columns)
        turns = (units + block - 1).sdiv(block)
        across, along = (panels + wide - 1).sdiv(wide), (block + deep - 1).sdiv(deep)
        with f.loop(lo, hi) as item:
            # Panels of one block follow each other: neighbours read the same cache lines.
            group, rest = item.index.srem(across), item.index.sdiv(across)
            piece, rest = rest.srem(along), rest.sdiv(along)
            turn, matrix = rest.srem(turns), rest.sdiv(turns)
            rest, base = matrix, source
            for size, stride in reversed(list(zip(batch[::2], batch[1::2], strict=True))):
                base = f.at(base, rest.srem(size) * stride)
                rest = rest.sdiv(size)
            start, skip = turn * block, piece * deep
            count = least(f, block, units - start)
            some = least(f, deep, count - skip)
            elements = least(f, some * t.group, depth - (start + skip) * t.group)
            base = f.at(base, (start + skip) * t.group * depth_step)
            # The last block may end before its last piece begins.
            end = f.select(some.gt(0), least(f, (group + 1) * wide, panels), f.value(0, "i64"))
            with f.loop(group * wide, end) as loop:
                panel, j = loop.index, loop.index * t.columns
                if t.starts:
                    to = (matrix * (units + turns) + start + turn) * panels + panel * (count + 1)
                else:
                    to = (matrix * units + start) * panels + panel * count + skip
                to = f.at(target, to, line)
                width = least(f, columns - j, f.value(t.columns, "i64"))
                steps = depth_step, column_step
                self.panel(f, isa, f.at(base, j * column_step), to, steps, some, elements, width)
        f.ret()

    def panel(
        self,
        f: Function,
        isa: Isa,
        source: Value,
        target: Value,
        steps: tuple[Value, Value],
        count: Value,
        elements: Value,
        width: Value,
    ) -> None:
        """One panel of ``count`` units: ``elements`` of depth and ``width`` columns, ``steps`` bytes apart."""
        place = _Panel(self, f, isa, source, target, elements, width)
        place.depth_step, place.column_step = steps
        place.write()
        if self.tile.starts:
            place.starts(count)


@final
class _Panel:
    """Writes the loops over one panel: ``elements`` of depth, ``width`` columns."""

    depth_step: Value
    column_step: Value

    def __init__(
        self, kernel: Right, f: Function, isa: Isa, source: Value, target: Value, elements: Value, width: Value
    ) -> None:
        self.k, self.f, self.isa, self.tile = kernel, f, isa, kernel.tile
        self.source, self.target, self.elements, self.width = source, target, elements, width
        self.line = kernel.tile.columns * kernel.tile.unit
        self.lanes = kernel.tile.lanes
        self.vectors = range(0, kernel.tile.columns, self.lanes)  # first columns

    def write(self) -> None:
        f, t = self.f, self.tile
        whole = self.elements & -t.group
        if self.k.layout == "strided":
            self.one_by_one(f.value(0, "i64"), self.elements, f.value(0, "i64"), self.width)
        else:
            full = self.width.eq(t.columns)
            if self.k.layout == "rows":
                with f.if_(full):
                    self.interleaved(whole, None)
                with f.if_(~full):
                    if self.isa.bits == 512 and t.group == 1:
                        left = [f.intrinsic("smax", "i64", self.width - v, f.value(0, "i64")) for v in self.vectors]
                        self.interleaved(whole, [f.lanes_below(n, self.lanes) for n in left])
                    else:
                        self.one_by_one(f.value(0, "i64"), whole, f.value(0, "i64"), self.width)
            else:
                # Columns beyond the last one are copies of it.
                side = 16 // t.unit * t.group
                whole = self.elements & -side
                self.transposed(whole)
            self.one_by_one(whole, self.elements, f.value(0, "i64"), self.width)
        if t.multiple > 1:
            self.zeros()

    def starts(self, count: Value) -> None:
        """-128 times the sum of each column, as the line behind ``count`` units of the panel."""
        f, t = self.f, self.tile
        type = vector(t.scalar, t.lanes)
        # Left units of four times 128, unsigned.
        x = f.constant(type, -0x7F7F7F80)
        with f.loop(0, t.columns, t.lanes) as columns:
            base = f.at(self.target, columns.index, t.unit)
            with f.loop(0, count, carry=[f.constant(type, 0)]) as loop:
                y = f.load(type, f.at(base, loop.index, self.line), t.unit)
                loop.next(step(f, self.isa, t, loop.carried[0], x, y))
            f.store(-loop.results[0], f.at(base, count, self.line), t.unit)

    def loaded(self, at: Value, lanes: int, mask: Value | None = None) -> Value:
        return to_panel(self.f, self.isa, self.tile, at, self.k.dtype, lanes, False, mask)

    def one_by_one(self, k0: Value, k1: Value, j0: Value, j1: Value) -> None:
        """Elements from depth ``k0`` to ``k1`` and columns ``j0`` to ``j1``."""
        f, t = self.f, self.tile
        size = t.unit // t.group
        with f.loop(k0, k1) as depth:
            k = depth.index
            line = f.at(self.target, k if t.group == 1 else k.sdiv(t.group), self.line)
            line = line if t.group == 1 else f.at(line, k.srem(t.group), size)
            source = f.at(self.source, k * self.depth_step)
            if t.mode == "fma":
                for v in self.vectors:
                    f.store(f.constant(vector(t.scalar, self.lanes), 0), f.at(line, v * t.unit), t.unit)
            with f.loop(j0, j1) as column:
                x = self.loaded(f.at(source, column.index * self.column_step), 0)
                f.store(x, f.at(line, column.index, t.unit), size)

    def zeros(self) -> None:
        """What is missing of the last unit, or units."""
        f, t = self.f, self.tile
        size = t.unit // t.group
        with f.loop(self.elements, (self.elements + (t.multiple - 1)) & -t.multiple) as depth:
            line = f.at(f.at(self.target, depth.index.sdiv(t.group), self.line), depth.index.srem(t.group), size)
            with f.loop(0, t.columns) as column:
                f.store(f.constant(f"i{8 * size}", 0), f.at(line, column.index, t.unit), size)

    def interleaved(self, whole: Value, masks: list[Value] | None) -> None:
        """Columns side by side, but for ``masks``, where zeros are: rows of a unit, element by element in turns."""
        f, t = self.f, self.tile
        with f.loop(0, whole, t.group) as depth:
            target = f.at(self.target, depth.index if t.group == 1 else depth.index.sdiv(t.group), self.line)
            rows = [f.at(self.source, (depth.index + g) * self.depth_step) for g in range(t.group)]
            for i, v in enumerate(self.vectors):
                at = [f.at(r, v * self.k.dtype.itemsize) for r in rows]
                parts = [self.loaded(p, self.lanes, masks[i] if masks else None) for p in at]
                f.store(zipped(f, parts), f.at(target, v * t.unit), t.unit // t.group)

    def transposed(self, whole: Value) -> None:
        """Elements along the depth side by side: squares within 128 bits are turned, four or two units each way.

        Part p of a vector holds units of columns ``p * side`` on, so that after the turn lanes are columns in order.
        """
        f, t = self.f, self.tile
        side, parts = 16 // t.unit, self.lanes // (16 // t.unit)
        last = self.width - 1
        unit = vector({4: "i32", 8: "i64"}[t.unit], side)
        with f.loop(0, t.columns, self.lanes) as group:
            columns: list[Value] = []
            for c in range(self.lanes):
                j = least(f, group.index + c, last)
                columns.append(f.at(self.source, j * self.column_step))
            with f.loop(0, whole, side * t.group) as depth:
                offset = depth.index * self.k.dtype.itemsize
                rows: list[Value] = []
                for r in range(side):
                    pieces = [
                        self.loaded(f.at(columns[p * side + r], offset), side * t.group).bitcast(unit)
                        for p in range(parts)
                    ]
                    rows.append(_joined(f, pieces))
                at = f.at(self.target, depth.index if t.group == 1 else depth.index.sdiv(t.group), self.line)
                at = f.at(at, group.index, t.unit)
                for r, x in enumerate(turned(f, rows, side)):
                    f.store(x, f.at(at, r * self.line), t.unit)


def _joined(f: Function, pieces: list[Value]) -> Value:
    """Vectors one after the other."""
    while len(pieces) > 1:
        n = 2 * int(pieces[0].type[1:].split(" ")[0])
        pieces = [f.shuffle(a, b, range(n)) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def panels_of(x: NDArray, kernel: Right) -> NDArray:
    """The panels of a constant, as bytes."""
    return np.ascontiguousarray(kernel.meaning(x)[0]).reshape(-1).view(np.uint8)
