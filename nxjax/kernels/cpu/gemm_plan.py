"""Which tile, which blocks, what is packed: a matrix product of given sizes and strides as kernels.

All choices are by sizes, strides and the instruction set, never by the number of threads. The figures were measured on
a processor with 32 KiB of first and 1 MiB of second cache per core, those for vectors of 512 bits on one with 48 KiB
and 2 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import knobs
from nxjax.kernels.cpu.epilogue import Epilogue
from nxjax.kernels.cpu.gemm import BatchAxis, Blocks, Gemm, GemmProblem, Layout, mode_of, packed_dtype
from nxjax.kernels.cpu.gemm_tile import GROUP, GemmTile, Mode, of_bytes
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.matrix_unit import SIDE, STEPS
from nxjax.kernels.cpu.pack import Right
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

NARROW_DEPTH: Final = 384  # units of a block of depth, at most, for vectors narrower than a cache line
OWN_ROWS: Final = 512  # rows of an item that makes panels itself, at most
_TALL_ROWS: Final = 2048  # the same for vectors as wide as cache lines, where columns alone are items enough
_OWN_LEAST_ROWS = 192  # the same where items make panels themselves: for fewer, that takes too long
# Of a right operand that is read as it lies by vectors as wide as cache lines, which are hardly ever aligned, so that
# each of them is in two: rows, beyond which it is copied, if it has more bytes than that.
_WIDE_ROWS = 32
_WIDE_ROOM = 1 << 14
_NARROW = 1.05  # what a product takes longer by narrower tiles
_FEW = 6  # items that are too few
_PIECES = 16  # of a depth, at most
_LEAST_ROWS = 16  # rows of an item, if there are as many
# Fewer rows or columns than that leave most of a matrix unit idle; fewer products are over before it has begun.
_UNIT_LEAST = 1 << 15
# Units of a block of depth. Sums that leave the unit's registers and come back cost more than rows that do not stay in
# the first cache; columns stay in the second one, of 2 MiB: so many bytes of them.
_UNIT_DEPTH = 1024
_UNIT_COLUMNS = 1 << 20
_UNIT_ROWS = 256


@final
@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: its dtype, bytes along the rows or columns of the result, and bytes along the depth."""

    dtype: DType
    free: int
    depth: int

    @property
    def layout(self) -> Layout:
        """As `Gemm.layout`, for a left operand: along the depth are its rows."""
        size = self.dtype.itemsize
        return "rows" if self.depth == size else "columns" if self.free == size else "strided"


@final
@dataclass(frozen=True, slots=True)
class GemmPlan:
    """``pack`` writes ``bytes`` that ``product`` reads in place of its right operand.

    None: it reads the operand, as it lies or into panels of its own.
    """

    pack: Right | None
    product: Gemm

    @property
    def bytes(self) -> int:
        return 0 if self.pack is None else self.pack.count * self.pack.nbytes

    @property
    def pieces(self) -> int:
        """How many pieces to cut the depth into, where results are too few to be many items."""
        return min(self.product.turns, _PIECES) if self.product.items < _FEW else 1


def tile_for(isa: Isa, mode: Mode, scalar: str, rows: int, columns: int) -> GemmTile:
    """The tile for so many rows and columns.

    Wide tiles need few loads per product; they are as high as registers allow, but no higher than the ways of the first
    cache, so that rows may be any distance apart. Of the heights that do, the one that wastes the fewest rows; and a
    narrower tile where it wastes fewer columns.
    """
    if mode in STEPS:
        least = lambda h: (-(-rows // h) * (h + 4), -h)
        height = rows if rows <= SIDE else min(range(SIDE, 2 * SIDE + 1, 4), key=least)
        return GemmTile(mode, scalar, min(height, rows), min(2, -(-columns // SIDE)), SIDE)
    lanes = isa.lanes(8 if scalar in ("double", "i64") else 4)
    fused = (mode == "fma" and isa.fma) or GROUP[mode] == 4 or (mode == "pairs" and isa.vnni) or mode == "bf16"
    # The repeated unit of a row needs a register where it is used more than once, and a product that is not summed.
    free = isa.registers - 1 - (not fused)
    widest = 4 if isa.registers >= 32 else 3 if isa.bits == 256 else 2
    widest = min(knobs.GEMM_VECTORS() or widest, widest, -(-columns // lanes))
    narrowest = widest - (isa.bits == 256 and widest == 3 and not knobs.GEMM_VECTORS())

    def waste(size: tuple[int, int]) -> tuple[float, int, int]:
        height, vectors = size
        work = -(-rows // height) * -(-columns // (vectors * lanes)) * (height * vectors + 0.5)
        return work * (1 if vectors == widest else _NARROW), -vectors, -height

    def heights(vectors: int) -> range:
        # Numbers of an epilogue stay in registers while products are summed: LLVM spills sums of six by two for them.
        room = free - 2 * (vectors == 2 and isa.registers == 16)
        most = min((room - vectors) // vectors, max(8, 14 // vectors))
        return range(max(1, most // 2), most + 1)

    sizes = [(h, v) for v in range(narrowest, widest + 1) for h in heights(v)]
    height, vectors = min(sizes, key=waste)
    return GemmTile(mode, scalar, min(height, rows), vectors, lanes)


def blocks_for(tile: GemmTile, rows: int, columns: int, units: int, count: int, own: bool = False) -> Blocks:
    """Blocks of about equal size for ``count`` products: enough of them for many threads, none of them tiny.

    ``own``: items make panels themselves. They are high, since each column is packed once for all of an item's rows,
    and narrow, so that threads need little memory.
    """
    turns = max(1, -(-units // deepest(tile)))
    depth = max(1, -(-units // (turns * tile.deep))) * tile.deep
    tall, panels = -(-rows // tile.rows), -(-columns // tile.columns)
    wide_own = own and _is_wide(tile)
    room = knobs.GEMM_OWN() * (3 if wide_own else 1) if own else knobs.GEMM_SECOND()
    room = _UNIT_COLUMNS if tile.is_matrix else room
    wide = min(panels, max(1, room // (depth * tile.unit * tile.columns)))
    most = _UNIT_ROWS if tile.is_matrix else knobs.GEMM_ROWS()
    if own:
        most = _TALL_ROWS if wide_own and panels >= 2 * knobs.GEMM_ITEMS() else OWN_ROWS
    high = min(tall, max(1, most // tile.rows))
    wanted = max(1, min(knobs.GEMM_ITEMS(), rows * columns * units * count // knobs.GEMM_WORK()) // max(count, 1))
    if own:
        wide = min(wide, max(1, panels * -(-tall // high) // wanted))
    # Panels come from the second cache for each item: for few rows that takes as long as the products.
    if not (own and tile.is_matrix):
        least = _OWN_LEAST_ROWS if wide_own else _LEAST_ROWS
        high = min(high, max(1, least // tile.rows, tall * -(-panels // wide) // wanted))
    wide = min(wide, max(1, panels * -(-tall // high) // wanted))
    high, wide = -(-tall // -(-tall // high)), -(-panels // -(-panels // wide))
    return Blocks(high * tile.rows, wide * tile.columns, depth)


def deepest(tile: GemmTile) -> int:
    """Units of a block of depth, at most."""
    if tile.is_matrix:
        return _UNIT_DEPTH
    return knobs.GEMM_DEPTH() or (512 if _is_wide(tile) else NARROW_DEPTH)


def _is_wide(tile: GemmTile) -> bool:
    """Whether its vectors are as wide as cache lines; processors that have such ones have large caches."""
    return tile.group == 1 and tile.lanes * tile.unit == 64


def _by_instruction(isa: Isa, mode: Mode, left: Matrix, right: DType, work: Sequence[int]) -> Mode:
    """The mode of an instruction that makes products which would be made in ``mode``, if there is one and it pays.

    ``work``: rows, columns, depth, and how many products.
    """
    brains = left.dtype == right == dtypes.bfloat16
    if not isa.tiles or min(work[:2]) < SIDE or math.prod(work) < _UNIT_LEAST:
        # Pairs of what does not lie side by side would be put together one by one.
        return "bf16" if brains and isa.bf16 and isa.bits == 512 and left.layout == "rows" else mode
    if mode in ("pairs", "quads") and max(map(dtypes.bit_width, (left.dtype, right))) <= 8:
        signs = tuple(d in dtypes.SIGNED for d in (left.dtype, right))
        modes: dict[tuple[bool, ...], Mode] = {
            (True, True): "tile_ss", (True, False): "tile_su", (False, True): "tile_us", (False, False): "tile_uu"
        }  # fmt: skip
        return modes[signs]
    return "tile_bf16" if brains else mode


def plan(
    isa: Isa,
    rows: int,
    columns: int,
    depth: int,
    left: Matrix,
    right: Matrix,
    end: Epilogue,
    others: Sequence[int],
    batch: Sequence[BatchAxis] = (),
    constant: bool = False,
    narrow: bool = False,
    again: bool = False,
) -> GemmPlan:
    """Kernels for a product with at least one row and one column.

    ``others`` are as in `GemmProblem`. A right operand that is ``constant`` is packed wherever that makes products
    faster; one that may be wanted ``again`` is packed as a whole. Integers of 16 bits that are ``narrow`` are
    differences of bytes.
    """
    mode, scalar = mode_of(left.dtype, right.dtype, end.product, depth, of_bytes(isa))
    if scalar in ("i32", "float"):
        work = (rows, columns, depth, math.prod(a.size for a in batch))
        mode = _by_instruction(isa, mode, left, right.dtype, work)
    if narrow and left.dtype == right.dtype == dtypes.int16:
        mode, scalar = "pairs", "i32"
    tile = tile_for(isa, mode, scalar, rows, columns)
    units = tile.units(depth)
    blocks = blocks_for(tile, rows, columns, units, math.prod(a.size for a in batch))
    inside = packed_dtype(tile)
    as_is = mode in ("fma", "mul")
    wide = _is_wide(tile)
    most, room = (_WIDE_ROWS, _WIDE_ROOM) if wide else (64, 1 << 20)
    direct = (
        as_is
        and knobs.GEMM_DIRECT() == 1
        and right.dtype == inside
        and right.free == inside.itemsize
        and (isa.bits == 512 or columns % tile.lanes == 0 or (isa.bits == 256 and columns >= tile.columns))
        and not (constant and rows > 16 and depth * columns > 1 << 12)
        and (rows <= most or depth * columns * inside.itemsize <= room)
    )
    # Depths that are powers of two apart share few places of the caches: what lies so is copied before it is used for
    # the third panel.
    close = left.layout == "columns" and left.depth % 1024 == 0 and columns > 2 * tile.columns
    if tile.is_matrix:
        lies = left.layout == "rows" and left.dtype == packed_dtype(tile, True) and depth % tile.multiple == 0
    else:
        lies = as_is and left.dtype == inside and left.layout != "strided"
    packed = close or not lies
    pack: Right | None = None
    axes = tuple(batch)
    if not direct:
        moving = tuple((a.size, a.right) for a in axes if a.right)
        layout: Layout = "columns" if right.layout == "rows" else "rows" if right.layout == "columns" else "strided"
        pack = Right(tile, right.dtype, layout, depth, columns, blocks.depth, right.depth, right.free, moving)
    own: Right | None = None
    if pack is not None:
        # Where depths of the left operand lie apart, narrow blocks cost more than they save: it is copied for each.
        moves = all(a.right for a in axes)
        mine = blocks_for(tile, rows, columns, units, math.prod(a.size for a in axes), True)
        # The matrix unit is so fast that to make a panel twice takes longer than to store it.
        often = constant or again or (left.layout == "columns" and not wide) or (tile.is_matrix and mine.rows < rows)
        if not often and moves and pack.nbytes > knobs.GEMM_WHOLE() >> (4 if wide else 0):
            own, pack, blocks = pack, None, mine
        else:
            axes = _packed_axes(axes, pack.nbytes)
    steps = (0, 0) if pack is not None else (right.depth, right.free)
    problem = GemmProblem(rows, columns, depth, left.free, left.depth, steps[0], tuple(others), axes, steps[1])
    inner = right.dtype if direct else None
    gemm = Gemm(tile, left.dtype, inner, left.layout, packed, problem, blocks, end, deepest(tile), own)
    return GemmPlan(pack, gemm)


def packed_before(product: Gemm) -> GemmPlan:
    """The same with panels that are made before, where items make them."""
    own, p = product.own, product.problem
    if own is None:
        return GemmPlan(None, product)
    problem = replace(p, right_depth=0, right_column=0, batch=_packed_axes(p.batch, own.nbytes))
    return GemmPlan(own, replace(product, own=None, problem=problem))


def _packed_axes(axes: tuple[BatchAxis, ...], nbytes: int) -> tuple[BatchAxis, ...]:
    """Batch dimensions whose right operands are panels, matrix after matrix."""
    found: list[BatchAxis] = []
    for a in reversed(axes):
        found.append(BatchAxis(a.size, a.left, nbytes if a.right else 0, a.others))
        nbytes *= a.size if a.right else 1
    return tuple(reversed(found))


def sums_of(left: DType, right: DType, product: DType, depth: int) -> DType:
    """The dtype in which products of these dtypes are summed one by one."""
    _, scalar = mode_of(left, right, product, depth, "pairs")
    return {"float": dtypes.float32, "double": dtypes.float64, "i32": dtypes.int32, "i64": dtypes.int64}[scalar]
