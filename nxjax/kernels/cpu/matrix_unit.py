"""The matrix unit of x86 (AMX): sums of a tile of a product in its registers. The only file that names them.

A register is a tile of 16 rows of 64 bytes. One instruction adds to 16 by 16 sums of 32 bits the products of 16 rows of
16 units by 16 units of 16 columns; a unit is four bytes, or two bfloat16. Integers wrap and nothing saturates. Products
of bfloat16 are summed in float32, in two chains of 16, which are added to each other and then to the sum. Numbers below
the normal ones (2^-126) count as zero, and become zero.

Up to 32 by 32 sums are four registers; two more hold 32 rows, and two hold 32 columns. The unit has no shapes of its
own: they are set when a kernel begins, and given up when it ends, so that a thread that has left a kernel has no state
of the unit that the system would have to save. Knows no matrix, only pointers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value

SIDE: Final = 16  # rows of a register, units along a row, columns
LINE: Final = 64  # bytes of a row
# What a step of a mode is. The left operand's rows are the first source, the right one's columns the second.
STEPS: Final = {
    "tile_ss": "x86.tdpbssd", "tile_su": "x86.tdpbsud", "tile_us": "x86.tdpbusd", "tile_uu": "x86.tdpbuud",
    "tile_bf16": "x86.tdpbf16ps",
}  # fmt: skip
# Registers: sums of rows r and columns c, rows of the left operand, columns of the right one.
_LEFT, _RIGHT = 4, 6


def heights(rows: int) -> list[int]:
    """The rows of each register that ``rows`` rows take."""
    return [min(SIDE, rows - r) for r in range(0, rows, SIDE)]


def begin(f: Function, rows: int, units: int = SIDE) -> None:
    """Shapes for tiles of ``rows`` rows and steps of ``units``; this thread has the unit from here to `end`."""
    high = heights(rows)
    tall = [0] * 8
    for r, h in enumerate(high):
        tall[2 * r] = tall[2 * r + 1] = tall[_LEFT + r] = h
    tall[_RIGHT] = tall[_RIGHT + 1] = units
    wide = [LINE if h else 0 for h in tall]
    wide[_LEFT:_RIGHT] = [w * units // SIDE for w in wide[_LEFT:_RIGHT]]
    # Which layout of registers this is, 15 bytes, widths of 16 bits, heights of 8 bits.
    words = [1, *[0] * 15, *(b for w in wide for b in (w, 0)), *[0] * 16, *tall, *[0] * 8]
    name = f"tiles{rows}x{units}"
    f.globals[name] = f"@{name} = internal constant [64 x i8] [{', '.join(f'i8 {w}' for w in words)}], align 64"
    f.intrinsic("x86.ldtilecfg", "void", Value(f, "ptr", f"@{name}"))


def end(f: Function) -> None:
    """This thread has no state of the unit any more."""
    f.intrinsic("x86.tilerelease", "void")


def wake(f: Function, mode: str) -> None:
    """Keeps the unit awake between tiles: it sleeps after some thousand cycles, and to wake it takes several hundred.

    Sums that the registers had are lost.
    """
    f.intrinsic(STEPS[mode], "void", *(f.constant("i8", n) for n in (0, _LEFT, _RIGHT)))


def accumulate(
    f: Function,
    mode: str,
    rows: int,
    count: Value,
    left: tuple[Value, Value],
    right: tuple[Value, int],
    columns: int,
    sums: tuple[Value, Value],
    first: Value | None = None,
    runs: tuple[Value, Value] | None = None,
) -> None:
    """Sums of ``rows`` rows and ``columns`` registers of columns over ``count`` units (an ``i64``, times 16) of depth.

    Args:
        left, right: where they begin, and bytes from row to row, and from unit to unit of depth.
        sums: where they lie, and bytes from row to row.
        first: whether sums begin with zero, not with what lies there; None: they do.
        runs: of so many units each: how many, and where the bytes (an ``i64`` each) from ``left`` to the beginning of
            each are; those of ``right`` lie one after the other. None: one.

    Columns are read past the first cache, which is left to the rows: callers take panels of columns in turn.
    """
    number = lambda n: f.constant("i8", n)

    def each(act: Callable[[Value, Value], object]) -> None:
        """For each register of sums, its number and its place."""
        for r in range(len(heights(rows))):
            for c in range(columns):
                act(number(2 * r + c), f.at(f.at(sums[0], sums[1] * (SIDE * r)), LINE * c))

    with nullcontext() if first is None else f.if_(first):
        each(lambda n, _: f.intrinsic("x86.tilezero", "void", n))
    if first is not None:
        with f.if_(~first):
            each(lambda n, at: f.intrinsic("x86.tileloadd64", "void", n, at, sums[1]))
    if runs is None:
        _along(f, mode, rows, count, left, right, columns)
    else:
        with f.loop(0, runs[0]) as run:
            x = f.at(left[0], f.load("i64", f.at(runs[1], run.index, 8)))
            y = f.at(right[0], run.index * count, right[1])
            _along(f, mode, rows, count, (x, left[1]), (y, right[1]), columns)
    each(lambda n, at: f.intrinsic("x86.tilestored64", "void", n, at, sums[1]))


def _along(
    f: Function,
    mode: str,
    rows: int,
    count: Value,
    left: tuple[Value, Value],
    right: tuple[Value, int],
    columns: int,
) -> None:
    """Products of ``count`` units, added to the sums in the registers."""
    number = lambda n: f.constant("i8", n)
    below = left[1] * SIDE
    line = f.constant("i64", right[1])
    with f.loop(0, count, SIDE) as depth:
        x = f.at(left[0], depth.index, 4)
        y = f.at(right[0], depth.index, right[1])
        for r in range(len(heights(rows))):
            f.intrinsic("x86.tileloadd64", "void", number(_LEFT + r), x if not r else f.at(x, below), left[1])
            for c in range(columns):
                if not r:
                    f.intrinsic("x86.tileloaddt164", "void", number(_RIGHT + c), f.at(y, LINE * c), line)
                f.intrinsic(STEPS[mode], "void", number(2 * r + c), number(_LEFT + r), number(_RIGHT + c))


def products(f: Function, mode: str, tile: int, left: tuple[Value, Value], right: Value, sums: Value) -> None:
    """Products with 16 columns: as many rows as tile ``tile`` of `heights` has, as many units as `begin` was told.

    Args:
        left: where it begins, and bytes from row to row.
        right, sums: where units and rows of sums lie line after line.
    """
    total, rows, columns = (f.constant("i8", n) for n in (2 * tile, _LEFT + tile, _RIGHT))
    line = f.constant("i64", LINE)
    f.intrinsic("x86.tilezero", "void", total)
    f.intrinsic("x86.tileloadd64", "void", rows, *left)
    f.intrinsic("x86.tileloadd64", "void", columns, right, line)
    f.intrinsic(STEPS[mode], "void", total, rows, columns)
    f.intrinsic("x86.tilestored64", "void", total, sums, line)
