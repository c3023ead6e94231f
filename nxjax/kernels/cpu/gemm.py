"""Matrix products: ``out[m, n] = sum over k of left[m, k] * right[k, n]``, in batches, with an epilogue.

An item computes a block of the result, `Blocks.rows` by `Blocks.columns`. It runs along the depth in blocks that leave
a panel of the left operand in the first cache and a block of the right one in the second; per block, tiles of sums stay
in registers (`gemm_tile`). Blocks depend on sizes only and their order is fixed, so results are the same bits for any
number of threads.

    right   panels of ``tile.columns`` columns, as `pack.Right` leaves them; or as it lies if columns lie side by side;
            or as it lies, and each item makes panels of its own block in scratch
    left    read as it lies, or each panel of ``tile.rows`` rows copied to scratch first (converted, or where rows are
            so far apart that they would fight for the same cache lines)

For the matrix unit a block of depth is deeper: its rows stay in the second cache, and its sums in registers.

Rows that do not fill a tile: the last tile begins earlier and stores only the rows that are new. Sizes and strides are
integers of the call, so one piece of code serves all of them. Knows no op and no thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, matrix_unit
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.epilogue import Epilogue, finish_row
from nxjax.kernels.cpu.gemm_tile import GemmTile, Mode, accumulate, rows_of, turned, zipped
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

if TYPE_CHECKING:
    from nxjax.kernels.cpu.pack import Right

Layout = Literal["rows", "columns", "strided"]
# Where a panel of the right operand begins and its step along the depth; where the sums' starts are.
_Panel = tuple[tuple[Value, Value | int], Value | None]
# Bytes of depth between panels' rows in scratch beyond the depth itself: a cache line, so that rows take turns.
_GAP: Final = 64
# Panels of the left operand that are copied together where its rows lie side by side: lines of the caches as a whole.
_TOGETHER: Final = 8


@final
@dataclass(frozen=True, slots=True)
class BatchAxis:
    """A batch dimension: its size, and bytes from one matrix to the next: left, right, further operands, results."""

    size: int
    left: int
    right: int
    others: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Blocks:
    """How a product is cut: rows and columns of an item, units of depth of a turn."""

    rows: int
    columns: int
    depth: int


@final
@dataclass(frozen=True, slots=True)
class GemmProblem:
    """Sizes, and strides in bytes; the right operand's are not looked at where it is packed.

    ``others``: from row to row of the epilogue's operands, then of its results.
    """

    rows: int
    columns: int
    depth: int
    left_row: int
    left_depth: int
    right_depth: int
    others: tuple[int, ...]
    batch: tuple[BatchAxis, ...] = ()
    right_column: int = 0


def packed_dtype(tile: GemmTile, left: bool = False) -> DType:
    """What elements are in panels of the right operand, or the left one."""
    if tile.mode == "pairs":
        return dtypes.int16
    if tile.mode in ("bf16", "tile_bf16"):
        return dtypes.bfloat16
    if tile.group == 4:
        unsigned = ("tile_us", "tile_uu") if left else ("tile_su", "tile_uu")
        return dtypes.uint8 if tile.mode in unsigned else dtypes.int8
    return {"float": dtypes.float32, "double": dtypes.float64, "i32": dtypes.int32, "i64": dtypes.int64}[tile.scalar]


def sum_dtype(tile: GemmTile) -> DType:
    """What sums are."""
    return {"float": dtypes.float32, "double": dtypes.float64, "i32": dtypes.int32, "i64": dtypes.int64}[tile.scalar]


def least(f: Function, x: Value, y: Value) -> Value:
    """The smaller of two integers."""
    return f.select(x.lt(y), x, y)


def to_panel(
    f: Function, isa: Isa, tile: GemmTile, at: Value, dtype: DType, lanes: int, left: bool, mask: Value | None = None
) -> Value:
    """``lanes`` elements of an operand that lie at ``at``, as panels hold them; zeros where they are not in ``mask``.

    For ``quads`` the left one is moved up by 128, which flips the top bit of a byte.
    """
    inside = packed_dtype(tile, left)
    type = convert.memory_type(dtype, lanes)
    raw = f.load(type, at) if mask is None else f.load_masked(type, at, mask)
    if tile.mode != "quads" and dtype == inside:
        return raw
    x = convert.from_memory(f, isa, dtype, raw)
    if tile.mode == "quads":
        return x ^ -128 if left else x
    return convert.convert(f, isa, x, dtype, inside)


@final
@dataclass(frozen=True, eq=False)
class Gemm(Kernel):
    """A batch of matrix products. Operands: left, right (packed or not), those of the epilogue; then its results.

    Attributes:
        left, right: dtypes in memory; ``right`` is None for panels of `pack.Right`.
        layout: along which dimension ``left`` lies without gaps; ``strided``: along none.
        packed: panels of ``left`` are copied to scratch; always so where it is converted, strided or grouped.
        problem, blocks: this call's sizes; not part of the machine code.
        end: what happens to sums.
        most: the largest depth of a block in any call.
        own: how items make panels themselves, of a right operand as it lies; ``right`` is None then, too.
    """

    tile: GemmTile
    left: DType
    right: DType | None
    layout: Layout
    packed: bool
    problem: GemmProblem
    blocks: Blocks
    end: Epilogue
    most: int
    own: Right | None = None

    @property
    def key(self) -> str:
        right = self.own.key if self.own is not None else "panels" if self.right is None else self.right.name
        how = f"{self.layout}{' packed' if self.packed else ''} {len(self.problem.batch)} {self.most} {self.tail}"
        how += " cut" if self.is_cut else ""
        return f"gemm({self.tile.key} {self.left.name} {right} {how} {self.end.key})"

    # --- sizes ---

    @property
    def units(self) -> int:
        """Units of depth."""
        return self.tile.units(self.problem.depth)

    @property
    def turns(self) -> int:
        """Blocks along the depth; one, which stores zeros, where there is no depth."""
        return max(1, -(-self.units // self.blocks.depth))

    @property
    def is_cut(self) -> bool:
        return self.turns > 1

    @property
    def tail(self) -> tuple[int, bool]:
        """Vectors of the last tile where it is narrower, and whether its last vector is not full."""
        rest = self.problem.columns % self.tile.columns
        return -(-rest // self.tile.lanes), rest % self.tile.lanes != 0

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along rows and columns."""
        p, b = self.problem, self.blocks
        return -(-p.rows // b.rows), -(-p.columns // b.columns)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        count = self.grid[0] * self.grid[1]
        for axis in self.problem.batch:
            count *= axis.size
        return count

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        b = self.blocks
        work = 2 * min(b.rows, self.problem.rows) * min(b.columns, self.problem.columns) * max(self.problem.depth, 1)
        return max(1, 250_000 // work)

    @property
    def ends(self) -> bool:
        """Whether sums change before they are stored."""
        return self.end.changes(sum_dtype(self.tile))

    @property
    def _panel(self) -> int:
        """Bytes of panels of the left operand in scratch."""
        if not self.packed:
            return 0
        t = self.tile
        return self.most * self._lines * t.unit if self._by_columns else t.rows * self._row_gap

    @property
    def _by_columns(self) -> bool:
        """Whether a panel in scratch lies column by column."""
        return self.layout == "columns" and self.tile.group == 1

    @property
    def _row_gap(self) -> int:
        return self.most * self.tile.unit + _GAP

    @property
    def _lines(self) -> int:
        """Rows of panels in scratch that lie column by column."""
        return self.tile.rows * _TOGETHER

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        t, b = self.tile, self.blocks
        tiles = 1
        if self.is_cut and (self.ends or self.tail[1] or t.is_matrix):
            tiles = -(-b.rows // t.rows) * -(-b.columns // t.columns)
        mine = 0 if self.own is None else b.columns * (b.depth + t.starts) * t.unit
        return -(-self._panel // 64) * 64 + -(-mine // 64) * 64 + tiles * t.rows * t.columns * t.unit

    @property
    def integers(self) -> tuple[int, ...]:
        """The call's words after its operands."""
        p, b, (ni, nj) = self.problem, self.blocks, self.grid
        flat = [x for a in p.batch for x in (a.size, a.left, a.right, *a.others)]
        return (
            *(p.rows, p.columns, p.depth, b.rows, b.columns, b.depth, self.turns, ni, nj),
            *(p.left_row, p.left_depth, p.right_depth, p.right_column, *p.others, *flat),
        )

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        p = self.problem
        batch = tuple(a.size for a in p.batch)
        left = np.broadcast_to(xs[0], (*batch, p.rows, p.depth))
        right = xs[1] if self.right is not None or self.own is not None else self._unpacked(xs[1])
        work = {"f": np.float64, "c": np.complex128}.get(sum_dtype(self.tile).kind, np.int64)
        sums = np.matmul(left.astype(work), right.astype(work))
        return self.end.meaning(sums.astype(sum_dtype(self.tile)).astype(self.end.product), *xs[2:])

    def _unpacked(self, panels: NDArray) -> NDArray:
        """The right operand out of its panels."""
        p, t = self.problem, self.tile
        count = -(-p.columns // t.columns)
        batch = tuple(a.size if a.right else 1 for a in p.batch)
        flat = np.asarray(panels).reshape(-1).view(np.uint8)
        flat = flat.reshape(int(np.prod(batch)), (self.units + self.turns * t.starts) * count * t.columns * t.unit)
        parts: list[NDArray] = []
        for turn, start in enumerate(range(0, self.units, self.blocks.depth)):
            depth = min(self.blocks.depth, self.units - start)
            at, lines = (start + turn * t.starts) * count, depth + t.starts
            line = t.columns * t.unit
            part = flat[:, at * line : (at + lines * count) * line].reshape(len(flat), count, lines, line)[:, :, :depth]
            part = np.ascontiguousarray(part).view(packed_dtype(t)).reshape(-1, count, depth, t.columns, t.group)
            part = part.transpose(0, 2, 4, 1, 3)
            parts.append(part.reshape(len(flat), depth * t.group, count * t.columns))
        if not parts:
            return np.zeros((*batch, 0, p.columns), packed_dtype(t))
        return np.concatenate(parts, axis=1)[:, : p.depth, : p.columns].reshape(*batch, p.depth, p.columns)

    def touches(self) -> Touches:
        p, t, own = self.problem, self.tile, self.own
        batch = tuple(a.size for a in p.batch)
        left = Box(
            self.left.itemsize, (*batch, p.rows, p.depth), (*(a.left for a in p.batch), p.left_row, p.left_depth)
        )
        rights = tuple(a.right for a in p.batch)
        if self.right is None and own is None:
            panels = -(-p.columns // t.columns) * t.columns * t.unit
            right = Box((self.units + self.turns * t.starts) * panels if self.units else 0, batch, rights)
        else:
            size = (self.right or (own.dtype if own else self.left)).itemsize
            column = size if own is None else p.right_column
            right = Box(size, (*batch, p.depth, p.columns), (*rights, p.right_depth, column))
        moves = [tuple(a.others[i] for a in p.batch) for i in range(len(p.others))]
        rest = self.end.boxes(p.rows, p.columns, p.others, batch, moves)
        count = len(self.end.operands)
        return plain([left, right, *rest[:count]], rest[count:])

    def cost(self) -> KernelCost:
        p = self.problem
        size = lambda n, d: float(n * d.itemsize)
        count = self.items // (self.grid[0] * self.grid[1]) if self.items else 0
        lefts = rights = 1
        for a in p.batch:
            lefts, rights = lefts * (a.size if a.left else 1), rights * (a.size if a.right else 1)
        right = self.right or (packed_dtype(self.tile) if self.own is None else self.own.dtype)
        read = size(lefts * p.rows * p.depth, self.left) + size(rights * p.depth * p.columns, right)
        written = sum(size(count * p.rows * p.columns, d) for d in self.end.outs)
        return KernelCost(2.0 * count * p.rows * p.columns * p.depth, read, written)

    # --- machine code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        if self.tile.is_matrix:
            matrix_unit.begin(f, self.tile.rows)
        _Writer(self, f, isa, words, scratch).items(lo, hi)
        if self.tile.is_matrix:
            matrix_unit.end(f)
        f.ret()


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tile's sums belong: rows from ``i`` on but for the first ``skip``, columns from ``j`` on.

    ``mask``: which lanes of its last vector exist; ``first``, ``last``: block of depth; ``number``: tile of the item.
    """

    i: Value
    skip: Value
    j: Value
    mask: Value | None
    first: Value
    last: Value
    number: Value


@final
class _Writer:
    """Writes the loops of one `Gemm`."""

    def __init__(self, kernel: Gemm, f: Function, isa: Isa, words: Value, scratch: Value) -> None:
        self.k, self.f, self.isa = kernel, f, isa
        self.tile = kernel.tile
        self.lanes = kernel.tile.lanes
        self.operands = len(kernel.end.operands)
        n = self.operands + len(kernel.end.outs)
        self.places = [pointer(f, words, i) for i in range(2 + n)]
        place = itertools.count(2 + n)
        take = lambda count: [integer(f, words, next(place)) for _ in range(count)]
        self.rows, self.columns, self.depth = take(3)
        self.block_rows, self.block_columns, self.block_depth, self.turns, self.grid_rows, self.grid_columns = take(6)
        self.left_row, self.left_depth, self.right_depth, self.right_column = take(4)
        self.other_rows = take(n)
        self.batch = [take(3 + n) for _ in kernel.problem.batch]
        self.panel = scratch
        self.mine = f.at(scratch, -(-kernel._panel // 64) * 64)  # pyright: ignore[reportPrivateUsage]
        self.sums = self.mine
        self.units = self.tile.emit_units(self.depth)
        # A panel's bytes per unit of depth, and how many panels there are.
        self.line = self.tile.columns * self.tile.unit
        if kernel.own is not None:
            mine = self.block_columns * (self.block_depth + self.tile.starts) * self.tile.unit
            self.sums = f.at(self.mine, (mine + 63) & -64)
        self.panels = (self.columns + (self.tile.columns - 1)).sdiv(self.tile.columns)

    def items(self, lo: Value, hi: Value) -> None:
        f = self.f
        with f.loop(lo, hi) as item:
            at = item.index
            i0 = at.srem(self.grid_rows) * self.block_rows
            at = at.sdiv(self.grid_rows)
            j0 = at.srem(self.grid_columns) * self.block_columns
            at = at.sdiv(self.grid_columns)
            places = list(self.places)
            for size, *strides in reversed(self.batch):
                turn = at.srem(size)
                at = at.sdiv(size)
                places = [f.at(p, turn * s) for p, s in zip(places, strides, strict=True)]
            self.left, self.right, *self.others = places
            i1, j1 = least(f, i0 + self.block_rows, self.rows), least(f, j0 + self.block_columns, self.columns)
            with f.loop(0, self.turns) as turn:
                self.block(turn.index, i0, i1, j0, j1)
            item.next()

    def block(self, turn: Value, i0: Value, i1: Value, j0: Value, j1: Value) -> None:
        """All tiles of an item over one block of depth."""
        f, t = self.f, self.tile
        start = turn * self.block_depth
        count = least(f, self.block_depth, self.units - start)
        self.j0 = j0
        if self.k.own is not None:
            self.make_panels(self.k.own, start, count, j0, j1)
        if not (self.k.packed and self.k._by_columns):  # pyright: ignore[reportPrivateUsage]
            self.panels_of_rows(turn, i0, i0, i0, i1, j0, j1)
            return
        with f.loop(i0, i1, t.rows * _TOGETHER) as rows:
            end = least(f, rows.index + t.rows * _TOGETHER, i1)
            # The last tile begins earlier, and maybe before the rows that are left.
            begin = least(f, rows.index, self.rows - t.rows)
            self.copy_columns(begin, end, start, count)
            self.panels_of_rows(turn, i0, begin, rows.index, end, j0, j1)

    def panels_of_rows(
        self, turn: Value, i0: Value, copied: Value, begin: Value, end: Value, j0: Value, j1: Value
    ) -> None:
        """The tiles of rows ``begin`` to ``end`` of an item that begins at row ``i0``; rows from ``copied`` on are in
        scratch."""
        f, t = self.f, self.tile
        start = turn * self.block_depth
        count = least(f, self.block_depth, self.units - start)
        first, last = turn.eq(0), turn.eq(self.turns - 1)
        whole = least(f, j1, self.columns.sdiv(t.columns) * t.columns)
        width = (j1 - j0 + (t.columns - 1)).sdiv(t.columns)
        with f.loop(begin, end, t.rows) as rows:
            # The last tile begins where it ends with the last row; `skip` of its rows are there already.
            i = least(f, rows.index, self.rows - t.rows)
            skip = rows.index - i
            compute = self.sums_of(i, i - copied, start, count)
            number = (rows.index - i0).sdiv(t.rows) * width
            with f.loop(j0, whole, t.columns) as columns:
                j = columns.index
                place = _Place(i, skip, j, None, first, last, number + (j - j0).sdiv(t.columns))
                compute(self.right_panel(j, turn, count), t.vectors, None, place)
            vectors, ragged = self.k.tail
            if vectors:
                with f.if_(whole.lt(j1)):
                    rest = self.columns - whole - (vectors - 1) * self.lanes
                    mask = f.lanes_below(rest, self.lanes) if ragged else None
                    reading = mask if self.k.right is not None else None
                    place = _Place(i, skip, whole, mask, first, last, number + width - 1)
                    compute(self.right_panel(whole, turn, count), vectors, reading, place)

    def sums_of(
        self, i: Value, place: Value, start: Value, count: Value
    ) -> Callable[[_Panel, int, Value | None, _Place], None]:
        """What computes and stores a tile of rows ``i`` on, for a panel of the right operand and so many vectors."""
        f, t = self.f, self.tile
        if t.is_matrix:
            rows = self.left_rows(i, start, count)
            return lambda right, vectors, _, place: self.in_registers(rows, right, count, vectors, place)
        left = self.left_panel(i, place, start, count)

        def compute(right: _Panel, vectors: int, reading: Value | None, place: _Place) -> None:
            self.prefetch(place, vectors)
            sums = accumulate(f, self.isa, t, count, *left, *right[0], vectors, reading, right[1])
            self.store(sums, place)

        return compute

    def left_rows(self, i: Value, start: Value, count: Value) -> tuple[Value, Value]:
        """Where a panel of the left operand begins for the matrix unit, and bytes from row to row."""
        f, k = self.f, self.k
        depth = start * self.tile.group
        base = f.at(f.at(self.left, i * self.left_row), depth * self.left_depth)
        if not k.packed:
            return base, self.left_row
        self.copy_rows(base, least(f, self.depth - depth, count * self.tile.group))
        return self.panel, f.constant("i64", k._row_gap)  # pyright: ignore[reportPrivateUsage]

    def in_registers(self, left: tuple[Value, Value], right: _Panel, count: Value, vectors: int, p: _Place) -> None:
        """A tile by the matrix unit: its sums to where they belong, or by way of scratch."""
        f, k, t = self.f, self.k, self.tile
        base, line = right[0]
        assert isinstance(line, int)
        sums = f.at(self.sums, p.number, t.rows * self.line) if k.is_cut else self.sums
        where, gap, later = sums, f.constant("i64", self.line), None
        if not k.ends and p.mask is None:
            later = p.skip.gt(0)
            corner = f.at(f.at(self.others[0], p.i * self.other_rows[0]), p.j, t.unit)
            where, gap = f.select(later, sums, corner), f.select(later, gap, self.other_rows[0])
        first = p.first if k.is_cut else None
        matrix_unit.accumulate(f, t.mode, t.rows, count, left, (base, line), vectors, (where, gap), first)
        with nullcontext() if later is None else f.if_(later), f.if_(p.last) if k.is_cut else nullcontext():
            self.finish(sums, p)

    # --- operands ---

    def make_panels(self, own: Right, start: Value, count: Value, j0: Value, j1: Value) -> None:
        """The panels of columns ``j0`` to ``j1`` over ``count`` units of depth, in scratch."""
        f, t = self.f, self.tile
        depth = start * t.group
        base = f.at(self.right, depth * self.right_depth)
        elements = least(f, count * t.group, self.depth - depth)
        with f.loop(j0, j1, t.columns) as columns:
            j = columns.index
            source, target = f.at(base, j * self.right_column), self.own_panel(j, count)
            width = least(f, self.columns - j, f.value(t.columns, "i64"))
            own.panel(f, self.isa, source, target, (self.right_depth, self.right_column), count, elements, width)

    def own_panel(self, j: Value, count: Value) -> Value:
        """Where the panel of columns from ``j`` on is in scratch."""
        return self.f.at(self.mine, (j - self.j0).sdiv(self.tile.columns) * (count + self.tile.starts), self.line)

    def left_panel(
        self, i: Value, place: Value, start: Value, count: Value
    ) -> tuple[list[Value], Callable[[Sequence[Value], int], Value], Value | int]:
        """Pointers to a panel of the left operand, how rows are found from them, and the step along the depth."""
        f, k, t = self.f, self.k, self.tile
        depth = start if t.group == 1 else start * t.group
        base = f.at(f.at(self.left, i * self.left_row), depth * self.left_depth)
        if not k.packed:
            if k.layout == "columns":
                return [base], lambda p, i: f.at(p[0], i * t.unit), self.left_depth
            return *rows_of(f, base, self.left_row, t.rows), t.unit
        elements = least(f, self.depth - depth, count if t.group == 1 else count * t.group)
        if k._by_columns:  # pyright: ignore[reportPrivateUsage]
            gap = k._lines * t.unit  # pyright: ignore[reportPrivateUsage]
            return [f.at(self.panel, place, t.unit)], lambda p, i: f.at(p[0], i * t.unit), gap
        self.copy_rows(base, elements)
        gap = k._row_gap  # pyright: ignore[reportPrivateUsage]
        return [self.panel], lambda p, i: f.at(p[0], i * gap), t.unit

    def copy_rows(self, base: Value, count: Value) -> None:
        """A panel into scratch, row by row; rows end with zeros up to a whole unit."""
        f, k, t = self.f, self.k, self.tile
        size = packed_dtype(t).itemsize
        wide = self.isa.lanes(size)
        gap = k._row_gap  # pyright: ignore[reportPrivateUsage]
        turns = t.is_matrix and k.layout == "columns"
        whole = count & -wide if k.layout == "rows" else count & (-4 * t.group) if turns else f.value(0, "i64")
        if turns:
            self.copy_turned(base, whole)
        with f.loop(0, t.rows) as row:
            source, target = f.at(base, row.index * self.left_row), f.at(self.panel, row.index * gap)
            if k.layout == "rows":
                with f.loop(0, whole, wide) as loop:
                    x = to_panel(f, self.isa, t, f.at(source, loop.index, k.left.itemsize), k.left, wide, True)
                    f.store(x, f.at(target, loop.index, size), size)
            with f.loop(whole, count) as loop:
                x = to_panel(f, self.isa, t, f.at(source, loop.index * self.left_depth), k.left, 0, True)
                f.store(x, f.at(target, loop.index, size), size)
            if t.multiple > 1:
                end = (count + (t.multiple - 1)) & -t.multiple
                with f.loop(count, end) as loop:
                    f.store(f.constant(f"i{8 * size}", 0), f.at(target, loop.index, size), size)

    def copy_turned(self, base: Value, count: Value) -> None:
        """``count`` elements of depth, each of which lies side by side for all rows, to rows in scratch."""
        f, k, t = self.f, self.k, self.tile
        gap, lanes = k._row_gap, t.lanes  # pyright: ignore[reportPrivateUsage]
        with f.loop(0, count, 4 * t.group) as loop:
            for start in sorted({0, t.rows - lanes}):
                units: list[Value] = []
                for u in range(0, 4 * t.group, t.group):
                    lines = [f.at(base, (loop.index + (u + g)) * self.left_depth) for g in range(t.group)]
                    at = [f.at(x, start * k.left.itemsize) for x in lines]
                    parts = [to_panel(f, self.isa, t, x, k.left, lanes, True) for x in at]
                    units.append(zipped(f, parts).bitcast(vector("i32", lanes)))
                target = f.at(self.panel, loop.index, t.unit // t.group)
                for r, x in enumerate(turned(f, units, 4)):
                    for row in range(r, lanes, 4):
                        four = f.shuffle(x, None, range(row - r, row - r + 4))
                        f.store(four, f.at(target, (start + row) * gap), t.unit)

    def copy_columns(self, begin: Value, end: Value, start: Value, count: Value) -> None:
        """Rows ``begin`` to ``end`` into scratch, column by column."""
        f, k, t = self.f, self.k, self.tile
        source = f.at(f.at(self.left, start * self.left_depth), begin, k.left.itemsize)
        width = end - begin
        whole = width & -self.lanes
        with f.loop(0, count) as loop:
            column = f.at(source, loop.index * self.left_depth)
            target = f.at(self.panel, loop.index, k._lines * t.unit)  # pyright: ignore[reportPrivateUsage]
            for first, last, lanes in ((0, whole, self.lanes), (whole, width, 0)):
                with f.loop(first, last, max(lanes, 1)) as rows:
                    x = to_panel(f, self.isa, t, f.at(column, rows.index, k.left.itemsize), k.left, lanes, True)
                    f.store(x, f.at(target, rows.index, t.unit), t.unit)

    def right_panel(self, j: Value, turn: Value, count: Value) -> _Panel:
        """Where the panel of columns from ``j`` on begins, its step along the depth, and where the sums' starts are."""
        f, t = self.f, self.tile
        start = turn * self.block_depth
        if self.k.own is not None:
            base = self.own_panel(j, count)
            return (base, self.line), f.at(base, count, self.line) if t.starts else None
        if self.k.right is None:
            lines = count + t.starts if t.starts else count
            base = f.at(self.right, (start + turn if t.starts else start) * self.panels, self.line)
            base = f.at(base, j.sdiv(t.columns) * lines, self.line)
            return (base, self.line), f.at(base, count, self.line) if t.starts else None
        return (f.at(f.at(self.right, start * self.right_depth), j, t.unit), self.right_depth), None

    # --- results ---

    def store(self, sums: list[list[Value]], p: _Place) -> None:
        """A tile's sums to memory, added to those of the blocks of depth before."""
        f, k, t = self.f, self.k, self.tile
        cut, ends = k.is_cut, k.ends
        if not ends and (p.mask is None or self.isa.bits == 512):
            corner = f.at(f.at(self.others[0], p.i * self.other_rows[0]), p.j, t.unit)
            rows = [f.at(corner, self.other_rows[0] * r) for r in range(t.rows)]
            if not cut:
                self.put(sums, rows, False, p)
                return
            with f.if_(p.first):
                self.put(sums, rows, False, p)
            with f.if_(~p.first):
                self.put(sums, rows, True, p)
            return
        where = f.at(self.sums, p.number, t.rows * self.line) if cut else self.sums
        rows = [f.at(where, r * self.line) for r in range(t.rows)]
        if not cut:
            self.put(sums, rows, False)
            self.finish(where, p)
            return
        with f.if_(p.first):
            self.put(sums, rows, False)
        with f.if_(~p.first):
            self.put(sums, rows, True)
        with f.if_(p.last):
            self.finish(where, p)

    def prefetch(self, p: _Place, vectors: int) -> None:
        """Ask for the lines that a tile's results go to: they come while it is computed."""
        f, at, size = self.f, self.operands, self.k.end.outs[0].itemsize
        corner = f.at(f.at(self.others[at], p.i * self.other_rows[at]), p.j, size)
        for r in range(self.tile.rows):
            row = f.at(corner, self.other_rows[at] * r)
            for v in range(0, vectors * self.lanes * size, 64):
                f.prefetch(f.at(row, v), write=True)

    def put(self, sums: list[list[Value]], rows: list[Value], add: bool, place: _Place | None = None) -> None:
        """Sums to rows that begin at ``rows``: all of them, or those that are new and in the mask."""
        f, unit = self.f, self.tile.unit
        for r, (at, row) in enumerate(zip(rows, sums, strict=True)):
            with nullcontext() if place is None else f.if_(place.skip.le(r)):
                for v, x in enumerate(row):
                    to = f.at(at, v * self.lanes * unit)
                    mask = place.mask if place is not None and v == len(row) - 1 else None
                    if mask is None:
                        f.store(f.load(x.type, to, unit) + x if add else x, to, unit)
                    else:
                        f.store_masked(f.load_masked(x.type, to, mask) + x if add else x, to, mask)

    def finish(self, sums: Value, p: _Place) -> None:
        """The new rows and the columns that exist of a tile in scratch, through the epilogue to the results."""
        f, t, end = self.f, self.tile, self.k.end
        count = least(f, self.columns - p.j, f.value(t.columns, "i64"))
        wide = [*((o.dtype, o.wide) for o in end.operands), *((d, True) for d in end.outs)]
        with f.loop(p.skip, t.rows) as loop:
            rows: list[Value] = []
            for (dtype, along), x, stride in zip(wide, self.others, self.other_rows, strict=True):
                row = f.at(x, (p.i + loop.index) * stride)
                rows.append(f.at(row, p.j, dtype.itemsize) if along else row)
            source = f.at(sums, loop.index, self.line)
            extra, outs = rows[: self.operands], rows[self.operands :]
            finish_row(f, self.isa, end, source, sum_dtype(t), self.lanes, extra, outs, count)


def mode_of(left: DType, right: DType, out: DType, depth: int, of_bytes: Mode) -> tuple[Mode, str]:
    """How products of these dtypes are summed, and the LLVM type of the sums, for a result of ``out``.

    ``of_bytes``: how the processor sums those of signed bytes.
    """
    if left in dtypes.FLOAT:
        return "fma", "double" if dtypes.float64 in (left, right, out) else "float"
    wide = max(dtypes.bit_width(left), dtypes.bit_width(right))
    top = sum(dtypes.bit_width(d) - (d in dtypes.SIGNED) for d in (left, right))
    exact = depth << top < 1 << 31
    if wide <= 8 and (exact or (out in dtypes.INTEGER and dtypes.bit_width(out) <= 32)):
        return of_bytes if depth and left == right == dtypes.int8 else "pairs", "i32"
    if out in dtypes.INTEGER:
        return "mul", "i32" if dtypes.bit_width(out) <= 32 else "i64"
    return "fma", "double"
