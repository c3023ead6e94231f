"""Convolutions of bytes: a tile of output pixels times a tile of output channels, by the matrix unit or in vectors.

Channels of the input lie side by side, and so do the pixels of a line, whose padding is there in memory. Then output
pixels that follow each other are rows at equal distances: the *positions* of an image, line after line, of which the
last ones of a line may be no pixels. What a tap of the window (or all taps of a line of it, where they are neighbours)
adds to all of them is one product of matrices; the rows of another tap only begin elsewhere::

    for run in runs of the window:                       # where it begins is a number among the words
        sums[positions, channels] += x[position * step + run, :] * weights[run, :, channels]

Products are exact. The matrix unit takes signed bytes of the input. Vectors, whose instruction sums four products in a
lane ("quads" of `gemm_tile`), take unsigned ones; their tile is pixels of a line, or some whole lines, so that none of
its rows is no pixel. Where a byte other than 0 stands for nothing, ``starts`` takes back what it adds to the sum of
each channel. An item is some tiles of one image, and some panels of its channels. Knows no program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, matrix_unit
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, dense, integer, plain, pointer
from nxjax.kernels.cpu.conv_problem import Extra
from nxjax.kernels.cpu.expression import Expression
from nxjax.kernels.cpu.gemm_tile import GemmTile, accumulate, rows_of
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.matrix_unit import LINE, SIDE
from nxjax.kernels.cpu.tile_weights import UNIT, registers_of, units_of

DType = np.dtype[Any]
_INT32: Final = np.dtype("int32")
_EPILOGUE: Final = 128  # units of depth that take as long as what a tile's sums go through
_GRAIN: Final = 512  # such units: about as long as a grain of other kernels
_SUMS: Final = 28  # vectors that stay in 32 registers beside one row and one line of weights
_LINES: Final = 4  # of a tile: each needs pointers of its own
_MANY: Final = 1 << 20  # bytes of weights that do not stay in a cache: each panel is read once


@final
@dataclass(frozen=True, slots=True)
class TileProblem:
    """Sizes, and strides in bytes.

    Attributes:
        batch, groups, outputs: images, groups of channels, output channels of a group.
        lines, line, width: of positions; of each line the first ``width`` are pixels.
        step: from position to position.
        runs: where each run of the window begins.
        depth: bytes of a run.
        x_n, x_group: from image to image and from group to group.
        places: of each operand of the epilogue, then of each result: per image, line, pixel and group.
        deep: units of a step of the products.
    """

    batch: int
    groups: int
    outputs: int
    lines: int
    line: int
    width: int
    step: int
    runs: tuple[int, ...]
    depth: int
    x_n: int
    x_group: int
    places: tuple[tuple[int, int, int, int], ...]
    deep: int = SIDE

    @property
    def units(self) -> int:
        """Of a run, of four bytes each."""
        return units_of(self.depth, self.deep)

    @property
    def positions(self) -> int:
        """Up to the last pixel of an image."""
        return (self.lines - 1) * self.line + self.width

    def reach(self, rows: int) -> int:
        """Bytes from the first of an image up to the last that tiles of so many positions read."""
        last = -(-self.positions // rows) * rows - 1
        return last * self.step + max(self.runs) + UNIT * self.units


@final
@dataclass(frozen=True, eq=False)
class TileConv(Kernel):
    """``y = epilogue(starts + sum of x * w, *extras)``; operands: x, w, starts, the extras, then the results.

    Attributes:
        problem: sizes and strides.
        mode: how bytes are multiplied, of `matrix_unit.STEPS`; or ``quads``, see `gemm_tile`.
        rows: of a tile.
        across: how many of them are in a line, if tiles are lines; 0: they are any positions.
        run, share: tiles and panels of an item.
        dtype: of the sum that the epilogue gets.
        epilogue, extras: from the sum and the extras to the results.
    """

    problem: TileProblem
    mode: str
    rows: int
    across: int
    run: int
    share: int
    dtype: DType
    epilogue: Expression
    extras: tuple[Extra, ...] = ()

    @property
    def is_matrix(self) -> bool:
        """Whether the matrix unit makes products."""
        return self.mode != "quads"

    @property
    def registers(self) -> int:
        return registers_of(self.problem.outputs)

    @property
    def columns(self) -> int:
        """Of a panel."""
        return self.registers * SIDE

    @property
    def tail(self) -> tuple[int, bool]:
        """Registers of the last panel where it is not whole, and whether the last of them is not full."""
        rest = self.problem.outputs % self.columns
        return -(-rest // SIDE), rest % SIDE != 0

    @property
    def grid(self) -> tuple[int, int, int]:
        """Panels, and items along panels and along tiles."""
        panels = -(-self.problem.outputs // self.columns)
        return panels, -(-panels // self.share), -(-tiles_of(self.problem, self.rows, self.across) // self.run)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        _, shares, chunks = self.grid
        return self.problem.batch * self.problem.groups * shares * chunks

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        work = self.run * self.share * (len(self.problem.runs) * self.problem.units + _EPILOGUE)
        return max(1, _GRAIN // work)

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rows * self.registers * LINE

    @property
    def key(self) -> str:
        extras = ",".join(e.text for e in self.extras)
        how = f"{self.mode} {self.rows}/{self.across}x{self.registers} {self.tail} {self.dtype.name}"
        return f"conv_tiles({how} {self.epilogue.key} [{extras}])"

    @property
    def title(self) -> str:
        return f"conv tiles+{self.epilogue}"[:40]

    @property
    def integers(self) -> tuple[int, ...]:
        p, (panels, shares, chunks) = self.problem, self.grid
        return (
            *(shares, chunks, p.groups, self.share, panels, self.run, tiles_of(p, self.rows, self.across)),
            *(p.positions, p.lines, p.line, p.width),
            *(len(p.runs), p.units, p.step, p.outputs, p.x_n, p.x_group),
            *itertools.chain.from_iterable(p.places), *p.runs,
        )  # fmt: skip

    def cost(self) -> KernelCost:
        p = self.problem
        pixels = p.batch * p.lines * p.width
        work = pixels * p.groups * p.outputs
        depth = len(p.runs) * p.depth
        w = p.groups * p.outputs * depth
        extra = sum(e.dtype.itemsize * (p.outputs if e.row else work) for e in self.extras)
        written = work * sum(d.itemsize for d in self.epilogue.out_dtypes)
        return KernelCost(2.0 * work * depth, p.batch * p.groups * p.reach(1) + w + extra, written)

    def touches(self) -> Touches:
        p = self.problem
        pixels, steps = (p.batch, p.groups, p.lines, p.width), (p.x_n, p.x_group, p.line * p.step, p.step)
        x = [Box(p.depth, pixels, steps, r) for r in p.runs]
        # Lines end with a pixel, and other tiles anywhere.
        x.append(Box(p.reach(1 if self.across else self.rows), pixels[:2], steps[:2], idle=True))
        columns = p.groups * self.grid[0] * self.columns
        w = dense(columns * len(p.runs) * p.units * UNIT, columns * 4)
        shape = (p.batch, p.lines, p.width, p.groups, p.outputs)
        kinds = [(e.dtype, e.channels) for e in self.extras] + [(d, True) for d in self.epilogue.out_dtypes]
        rest = [
            Box(d.itemsize, shape, (*place, d.itemsize if wide else 0))
            for (d, wide), place in zip(kinds, p.places, strict=True)
        ]
        n = len(self.extras)
        found = plain([*w, *rest[:n]], rest[n:])
        return Touches((tuple(x), *found.ins), found.outs)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The results [batch, lines, pixels, channels], if that is how they lie in memory."""
        p = self.problem
        signs: dict[str, Any] = {"s": np.int8, "u": np.uint8}
        first, second = "us" if self.mode == "quads" else self.mode[-2:]
        x, w, starts, *extras = (np.asarray(v).reshape(-1).view(np.uint8) for v in xs)
        n, r, c, g, k = np.ix_(*map(range, (p.batch, p.lines, p.width, p.groups, p.depth)))
        units, panels = p.units, self.grid[0]
        weights = w.view(signs[second]).reshape(p.groups, panels, len(p.runs), units, self.columns, UNIT)
        weights = weights.transpose(2, 0, 3, 5, 1, 4).reshape(len(p.runs), p.groups, UNIT * units, -1)
        weights = weights[:, :, : p.depth, : p.outputs].astype(np.int64)
        total = starts.view(np.int32).reshape(p.groups, -1)[:, : p.outputs].astype(np.int64)
        for begin, right in zip(p.runs, weights, strict=True):
            at = n * p.x_n + g * p.x_group + (r * p.line + c) * p.step + begin + k
            left = x[at].view(signs[first]).astype(np.int64)
            total = total + np.einsum("nrcgk,gko->nrcgo", left, right)
        y = total.astype(np.int32).astype(self.dtype)
        values: list[NDArray] = []
        o = np.arange(p.outputs)
        for e, v, place in zip(self.extras, extras, p.places, strict=False):
            steps = (*place, e.dtype.itemsize if e.channels else 0)
            at = sum(i * s for i, s in zip((n, r, c, g, o), steps, strict=True))
            element = v[np.asarray(at)[..., None] + np.arange(e.dtype.itemsize)].copy().view(e.dtype)[..., 0]
            values.append(np.broadcast_to(element, y.shape))
        whole = (p.batch, p.lines, p.width, p.groups * p.outputs)
        return [v.reshape(whole) for v in self.epilogue.meaning(y, *values)]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        if self.is_matrix:
            matrix_unit.begin(f, self.rows)
        _Writer(self, f, isa, words, scratch).items(lo, hi)
        if self.is_matrix:
            matrix_unit.end(f)
        f.ret()


@final
@dataclass(frozen=True, slots=True)
class _Tile:
    """Where a tile begins, and its lines up to ``last``; of each its pixels, and its sums' rows less their numbers."""

    position: Value
    first: Value
    last: Value
    pixels: Callable[[Value], tuple[Value, Value, Value]]


@final
class _Writer:
    """Writes the loops of one `TileConv`."""

    def __init__(self, kernel: TileConv, f: Function, isa: Isa, words: Value, sums: Value) -> None:
        self.k, self.f, self.isa, self.sums = kernel, f, isa, sums
        n = len(kernel.problem.places)
        self.x, self.w, self.starts, *self.given = (pointer(f, words, i) for i in range(3 + n))
        numbers = itertools.count(3 + n)
        take = lambda count: [integer(f, words, next(numbers)) for _ in range(count)]
        self.shares, self.chunks, self.groups, self.share, self.panels = take(5)
        self.run, self.count, self.positions, self.lines, self.line, self.width, runs = take(7)
        self.units, self.step, self.outputs, self.x_n, self.x_group = take(5)
        self.steps = [take(4) for _ in range(n)]
        self.runs = runs, f.at(words, next(numbers), 8)
        self.panel = self.units * runs * (kernel.registers * LINE)

    def least(self, x: Value, y: Value) -> Value:
        return self.f.intrinsic("smin", "i64", x, y)

    def items(self, lo: Value, hi: Value) -> None:
        f, k = self.f, self.k
        whole = self.outputs.udiv(k.columns)
        with f.loop(lo, hi) as item:
            share, at = item.index.urem(self.shares), item.index.udiv(self.shares)
            chunk, at = at.urem(self.chunks), at.udiv(self.chunks)
            self.group, n = at.urem(self.groups), at.udiv(self.groups)
            self.image = f.at(f.at(self.x, n * self.x_n), self.group * self.x_group)
            self.places = [
                f.at(f.at(p, n * s[0]), self.group * s[3]) for p, s in zip(self.given, self.steps, strict=True)
            ]
            self.first = chunk * self.run
            self.last = self.least(self.first + self.run, self.count)
            start = share * self.share
            stop = self.least(start + self.share, self.panels)
            with f.loop(start, self.least(stop, whole)) as panel:
                self.tiles(panel.index, k.registers, ragged=False)
            registers, ragged = k.tail
            if registers:
                with f.if_(stop.gt(whole)):
                    self.tiles(whole, registers, ragged=ragged)

    def tiles(self, panel: Value, registers: int, *, ragged: bool) -> None:
        """All tiles of an item for one panel of channels."""
        f, k = self.f, self.k
        number = self.group * self.panels + panel
        right, channel = f.at(self.w, number * self.panel), panel * k.columns
        starts = f.at(self.starts, number, k.columns * 4)
        # Whole registers go through the epilogue together.
        parts = [(v, 1) for v in range(registers)] if ragged else [(0, registers)]
        with f.loop(self.first, self.last) as tile:
            place = self.in_lines(tile.index) if k.across else self.at_positions(tile.index)
            panel_line = right, k.registers * LINE
            if k.is_matrix:
                sums = self.sums, f.constant("i64", registers * LINE)
                left = f.at(self.image, place.position * self.step), self.step
                matrix_unit.accumulate(f, k.mode, k.rows, self.units, left, panel_line, registers, sums, runs=self.runs)
            else:
                self.in_vectors(place.position, panel_line, registers, starts)
            for first, count in parts:
                mask = None
                if ragged and first == registers - 1:
                    mask = f.lanes_below(self.outputs - channel - first * SIDE, SIDE)
                self.finish(place, starts, channel, (first, count, registers * LINE), mask)

    def at_positions(self, number: Value) -> _Tile:
        """The tile of positions that follow each other."""
        f, k = self.f, self.k
        begin = number * k.rows
        end = self.least(begin + k.rows, self.positions)

        def pixels(line: Value) -> tuple[Value, Value, Value]:
            before = line * self.line
            first = f.intrinsic("smax", "i64", begin - before, f.constant("i64", 0))
            return first, self.least(end - before, self.width), before - begin

        return _Tile(begin, begin.udiv(self.line), (end - 1).udiv(self.line) + 1, pixels)

    def in_lines(self, number: Value) -> _Tile:
        """The tile of pixels of some lines. The last ones begin earlier; what they have again is not stored again."""
        f, k = self.f, self.k
        high = k.rows // k.across
        across = (self.width + (k.across - 1)).udiv(k.across)
        line, pixel = number.udiv(across) * high, number.urem(across) * k.across
        low, left = self.least(line, self.lines - high), self.least(pixel, self.width - k.across)
        pixels = lambda at: (pixel, left + k.across, (at - low) * k.across - left)
        return _Tile(low * self.line + left, line, low + f.constant("i64", high), pixels)

    def in_vectors(self, position: Value, right: tuple[Value, int], registers: int, starts: Value) -> None:
        """The sums of a tile, which stay in registers while the runs of the window pass by."""
        f, k = self.f, self.k
        tile = GemmTile("quads", "i32", k.rows, registers, SIDE)
        corner = f.at(self.image, position * self.step)
        first = [f.load(vector("i32", SIDE), f.at(starts, v * LINE), 4) for v in range(registers)]
        with f.loop(0, self.runs[0], carry=first * k.rows) as run:
            x = f.at(corner, f.load("i64", f.at(self.runs[1], run.index, 8)))
            y = f.at(right[0], run.index * self.units, right[1])
            lines = [f.at(x, self.line * self.step * n) for n in range(k.rows // k.across)]
            found = [rows_of(f, line, self.step, k.across) for line in lines]
            each = len(found[0][0])

            def at(p: Sequence[Value], i: int) -> Value:
                n = i // k.across
                return found[n][1](p[n * each : (n + 1) * each], i % k.across)

            pointers = [p for line, _ in found for p in line]
            panel = self.units, pointers, at, UNIT, y, right[1], registers
            sums = accumulate(f, self.isa, tile, *panel, sums=run.carried)
            run.next(*itertools.chain.from_iterable(sums))
        for i, x in enumerate(run.results):
            f.store(x, f.at(self.sums, i * LINE))

    def finish(
        self, tile: _Tile, starts: Value, channel: Value, part: tuple[int, int, int], mask: Value | None
    ) -> None:
        """Epilogue and store of ``part``: first register, how many, and bytes from row to row of sums."""
        f, k = self.f, self.k
        first, count, gap = part
        lanes = count * SIDE
        start = f.load(vector("i32", lanes), f.at(starts, first * LINE), 4) if k.is_matrix else None
        wide = [e.channels for e in k.extras] + [True] * len(k.epilogue.outputs)
        kinds = [e.dtype for e in k.extras] + list(k.epilogue.out_dtypes)
        places = [
            f.at(f.at(p, channel, d.itemsize), first * SIDE * d.itemsize) if w else p
            for p, d, w in zip(self.places, kinds, wide, strict=True)
        ]
        same = [self.extra(e, p, lanes, mask) if e.row else None for e, p in zip(k.extras, places, strict=False)]
        with f.loop(tile.first, tile.last) as row:
            begin, end, before = tile.pixels(row.index)
            lines = [f.at(p, row.index * s[1]) for p, s in zip(places, self.steps, strict=True)]
            sums = f.at(f.at(self.sums, before, gap), first * LINE)
            with f.loop(begin, end) as pixel:
                if k.is_matrix and len(k.epilogue.nodes) > 1:
                    matrix_unit.wake(f, k.mode)
                at = [f.at(p, pixel.index * s[2]) for p, s in zip(lines, self.steps, strict=True)]
                total = f.load(vector("i32", lanes), f.at(sums, pixel.index, gap), 4)
                total = total if start is None else total + start
                values = [convert.convert(f, self.isa, total, _INT32, k.dtype)]
                for e, known, place in zip(k.extras, same, at, strict=False):
                    values.append(known if known is not None else self.extra(e, place, lanes, mask))
                results = k.epilogue.emit(f, self.isa, values)
                outs = zip(results, k.epilogue.out_dtypes, at[len(k.extras) :], strict=True)
                for result, dtype, place in outs:
                    raw = convert.to_memory(f, self.isa, dtype, result)
                    if mask is None:
                        f.store(raw, place)
                    else:
                        f.store_masked(raw, place, mask)

    def extra(self, e: Extra, at: Value, lanes: int, mask: Value | None) -> Value:
        f = self.f
        if not e.channels:
            return f.splat(convert.load(f, self.isa, e.dtype, at), lanes)
        type = convert.memory_type(e.dtype, lanes)
        raw = f.load(type, at) if mask is None else f.load_masked(type, at, mask)
        return convert.from_memory(f, self.isa, e.dtype, raw)


def tiles_of(p: TileProblem, rows: int, across: int) -> int:
    """How many tiles an image takes."""
    return -(-p.positions // rows) if not across else -(-p.lines * across // rows) * -(-p.width // across)


def height_for(positions: int) -> int:
    """Rows of tiles for so many positions: the fewest that do nothing, then the fewest tiles."""
    if positions <= SIDE:
        return positions
    return min(range(SIDE, 2 * SIDE + 1, 4), key=lambda h: (-(-positions // h) * (h + 4), -h))


def lines_for(p: TileProblem) -> tuple[int, int]:
    """Rows of tiles of lines, and how many of them are in a line: the least work, then the fewest tiles."""
    most = _SUMS // registers_of(p.outputs)
    shapes = [(w, w) for w in range(1, min(most, p.width) + 1)]
    shapes += [(n * p.width, p.width) for n in range(2, min(most // p.width, p.lines, _LINES) + 1)]
    return min(shapes, key=lambda s: (tiles_of(p, *s) * (s[0] + 1), -s[0]))


def shares_for(problem: TileProblem, rows: int, wanted: int, across: int = 0) -> tuple[int, int]:
    """Tiles and panels of an item: about ``wanted`` items, none tiny, whose input stays in the first cache.

    Where weights would not stay in the second one, each panel of them is read once, for all tiles.
    """
    panels = -(-problem.outputs // (SIDE * registers_of(problem.outputs)))
    tiles = tiles_of(problem, rows, across)
    others = problem.batch * problem.groups
    weights = panels * registers_of(problem.outputs) * LINE * len(problem.runs) * problem.units
    run = max(1, min(tiles, (24 << 10) // max(1, rows * problem.step)))
    run = min(run, max(1, -(-tiles * others // wanted), 2))
    run = tiles if weights > _MANY else run
    chunks = -(-tiles // run)
    run = -(-tiles // (chunks + chunks % 2 if chunks > 1 else 1))  # two threads have as many
    chunks = -(-tiles // run)
    share = max(1, panels // max(1, -(-wanted // (chunks * others))))
    return run, share
