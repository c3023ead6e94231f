"""The innermost loop of matrix products: a tile of sums that stays in registers while it runs along the depth.

A tile is ``rows`` by ``columns``. Its sums lie in vectors along the columns. One step multiplies one *unit* of each row
of the left operand, repeated in all lanes, by a unit of each column of the right one:

=======  ==================  ==================  ==========================================================
mode     a unit is           sums are            a step is
=======  ==================  ==================  ==========================================================
fma      a float or double   of that type        one fused multiply-add (rounded twice where there is none)
mul      an i32 or i64       of that type        a product and a sum, both wrapping
pairs    two i16             i32                 two products, exact, and their sum
quads    four i8             i32                 four products, exact, and their sum
dots     four i8             i32                 the same
bf16     two bfloat16        float               two, added one after the other; what is below 2^-126 counts as zero
tile_..  four i8             i32                 16 of those, by the matrix unit (`matrix_unit`); signed, unsigned
         two bfloat16        float               16 of those, by the matrix unit
=======  ==================  ==================  ==========================================================

No sum saturates. ``pairs`` are bytes that were widened to 16 bits. ``quads`` need the processor's dot product of bytes
(VNNI), which widens before it adds, but multiplies unsigned by signed bytes: units of the left operand are moved up by
128, and sums start with ``-128`` times the sum of each column of the right one (modulo 2^32, as all sums of integers).
``dots`` need one of signed bytes (ARM's), and units stay as they are. Knows no matrix, only pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.intrinsics import needed
from nxjax.kernels.cpu.ir import Function, Value, bits_of, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.matrix_unit import SIDE

Mode = Literal[
    "fma", "mul", "pairs", "quads", "dots", "bf16", "tile_ss", "tile_su", "tile_us", "tile_uu", "tile_bf16"
]  # fmt: skip
GROUP: Final[dict[Mode, int]] = {
    "fma": 1, "mul": 1, "pairs": 2, "quads": 4, "dots": 4, "bf16": 2,
    "tile_ss": 4, "tile_su": 4, "tile_us": 4, "tile_uu": 4, "tile_bf16": 2,
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class GemmTile:
    """The shape and the arithmetic of a tile.

    Attributes:
        mode: how products are made, see above.
        scalar: LLVM type of a sum: ``float``, ``double``, ``i32`` or ``i64``.
        rows, vectors: its size; ``lanes`` sums make a vector, as the instruction set has them.
    """

    mode: Mode
    scalar: str
    rows: int
    vectors: int
    lanes: int

    @property
    def key(self) -> str:
        return f"{self.mode} {self.scalar} {self.rows}x{self.vectors}*{self.lanes}"

    @property
    def group(self) -> int:
        """Elements along the depth in a unit."""
        return GROUP[self.mode]

    @property
    def unit(self) -> int:
        """Bytes of a unit, and of a sum."""
        return bits_of(self.scalar) // 8

    @property
    def is_matrix(self) -> bool:
        """Whether the matrix unit has its sums."""
        return self.mode.startswith("tile_")

    @property
    def deep(self) -> int:
        """Units along the depth that a step takes at once: of so many, panels are made, ending with zeros."""
        return SIDE if self.is_matrix else 1

    @property
    def multiple(self) -> int:
        """Elements along the depth that a step takes at once."""
        return self.group * self.deep

    def units(self, depth: int) -> int:
        """Units of panels of this depth."""
        return -(-depth // self.multiple) * self.deep

    def emit_units(self, depth: Value) -> Value:
        """`units` of a number that is known when the code runs."""
        if self.multiple == 1:
            return depth
        blocks = (depth + (self.multiple - 1)).sdiv(self.multiple)
        return blocks if self.deep == 1 else blocks * self.deep

    @property
    def starts(self) -> int:
        """Lines of numbers with which sums start, at the end of each panel of the right operand."""
        return int(self.mode == "quads")

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def of_bytes(isa: Isa) -> Mode:
    """How products of signed bytes are summed."""
    return "dots" if isa.dots else "quads" if isa.vnni else "pairs"


def step(f: Function, isa: Isa, tile: GemmTile, total: Value, x: Value, y: Value) -> Value:
    """``total`` and the products of the units ``x`` and ``y``, vectors of ``tile.scalar``."""
    if tile.mode == "fma":
        return f.fma(x, y, total)
    if tile.mode == "mul":
        return total + x * y
    lanes = tile.lanes
    whole = lanes == isa.lanes(4)
    if tile.group == 4:
        if not (whole and tile.mode == of_bytes(isa)):
            raise AssertionError("no sums of four products of bytes here")
        if tile.mode == "dots":
            x, y = x.bitcast(vector("i8", 4 * lanes)), y.bitcast(vector("i8", 4 * lanes))
            return f.intrinsic("aarch64.neon.sdot.v4i32.v16i8", total.type, total, x, y)
        return f.intrinsic(f"x86.avx512.vpdpbusd.{isa.bits}", total.type, total, x, y)
    if tile.mode == "bf16":
        words = vector("i32", lanes)
        return f.intrinsic("x86.avx512bf16.dpbf16ps.512", total.type, total, x.bitcast(words), y.bitcast(words))
    if whole and isa.vnni:
        return f.intrinsic(f"x86.avx512.vpdpwssd.{isa.bits}", total.type, total, x, y)
    pairs = vector("i16", 2 * lanes)
    name = {16: "x86.avx512.pmaddw.d.512", 8: "x86.avx2.pmadd.wd"}.get(lanes, "")
    # What all processors share is described with vectors that are wider than those of some.
    if whole and name and isa.has(needed(name)):
        return total + f.intrinsic(name, total.type, x.bitcast(pairs), y.bitcast(pairs))
    # -2^15 * -2^15 twice is the one sum that 32 bits do not hold; operands are bytes, so it does not occur.
    low = ((x << 16) >> 16) * ((y << 16) >> 16)
    return total + low + (x >> 16) * (y >> 16)


def accumulate(
    f: Function,
    isa: Isa,
    tile: GemmTile,
    count: Value,
    left: Sequence[Value],
    left_at: Callable[[Sequence[Value], int], Value],
    left_step: Value | int,
    right: Value,
    right_step: Value | int,
    vectors: int,
    mask: Value | None = None,
    starts: Value | None = None,
    sums: Sequence[Value] = (),
) -> list[list[Value]]:
    """The sums of a tile over ``count`` units (an ``i64``) of depth, row by row.

    One step per turn of the loop: a tile has so many products that its few other instructions cost nothing.

    Args:
        left: pointers that move by ``left_step`` bytes per unit of depth.
        left_at: where the unit of row ``i`` is, given the pointers: ``left_at(left, i)``.
        right: the units of all columns, one after the other; ``right_step`` bytes to the next depth.
        vectors: how many vectors of columns there are.
        mask: which columns the last vector has; None for all.
        starts: where the numbers lie with which the sums of all rows start; None for zeros.
        sums: what they start with, if that is known, row by row.
    """
    lanes = tile.lanes
    type = vector(tile.scalar, lanes)
    cut = tile.rows * vectors
    first = [f.constant(type, 0)] * vectors
    if starts is not None:
        first = [f.load(type, f.at(starts, v * tile.unit * lanes), tile.unit) for v in range(vectors)]
    with f.loop(0, count, carry=[*(sums or first * tile.rows), *left, right]) as loop:
        sums, pointers, line = list(loop.carried[:cut]), loop.carried[cut:-1], loop.carried[-1]
        ys: list[Value] = []
        for v in range(vectors):
            place = f.at(line, v * tile.unit * lanes)
            ys.append(
                f.load(type, place, tile.unit) if mask is None or v < vectors - 1 else f.load_masked(type, place, mask)
            )
        for i in range(tile.rows):
            x = f.splat(f.load(tile.scalar, left_at(pointers, i), 1), lanes)
            for v in range(vectors):
                sums[i * vectors + v] = step(f, isa, tile, sums[i * vectors + v], x, ys[v])
        loop.next(*sums, *(f.at(p, left_step) for p in pointers), f.at(line, right_step))
    return [list(loop.results[i * vectors : (i + 1) * vectors]) for i in range(tile.rows)]


Rows = tuple[list[Value], Callable[[Sequence[Value], int], Value]]


def rows_of(f: Function, base: Value, step: Value, rows: int) -> Rows:
    """Pointers to rows ``step`` bytes apart, and how each is found from them, as `accumulate` takes them.

    Three rows per pointer: x86 adds one register, scaled, to another.
    """
    pointers = [f.at(base, step * n) for n in range(0, rows, 3)]
    steps = (None, step, step * 2)

    def at(p: Sequence[Value], i: int) -> Value:
        further = steps[i % 3]
        return p[i // 3] if further is None else f.at(p[i // 3], further)

    return pointers, at


def zipped(f: Function, parts: list[Value]) -> Value:
    """Lanes of 2^n vectors in turns."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [_in_turns(f, x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _in_turns(f: Function, x: Value, y: Value) -> Value:
    n = 2 * lanes_of(x.type)
    return f.shuffle(x, y, [i // 2 + (i % 2) * (n // 2) for i in range(n)])


def turned(f: Function, rows: list[Value], side: int) -> list[Value]:
    """``side`` vectors, the squares of ``side`` lanes in them transposed (``side`` is 2 or 4)."""
    lanes = lanes_of(rows[0].type)
    if side == 1:
        return rows

    def pick(x: Value, y: Value, order: Sequence[int]) -> Value:
        # `order` counts lanes of one square of x, then of y.
        mask = [p + (o if o < side else lanes + o - side) for p in range(0, lanes, side) for o in order]
        return f.shuffle(x, y, mask)

    if side == 2:
        return [pick(rows[0], rows[1], (0, 2)), pick(rows[0], rows[1], (1, 3))]
    low = [pick(rows[i], rows[i + 1], (0, 4, 1, 5)) for i in (0, 2)]
    high = [pick(rows[i], rows[i + 1], (2, 6, 3, 7)) for i in (0, 2)]
    return [pick(x, y, order) for x, y in (low, high) for order in ((0, 1, 4, 5), (2, 3, 6, 7))]
