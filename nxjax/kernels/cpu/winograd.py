"""Convolutions with windows of 3x3 at step one by fewer products: four outputs for sixteen instead of thirty-six.

Two neighbouring outputs of three taps need four products instead of six (S. Winograd, "Arithmetic Complexity of
Computations", 1980; for networks A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). Inputs
d0..d3 and weights g0..g2 give ::

    y0 = d0 g0 + d1 g1 + d2 g2 = m0 + m1 + m2        m0 = (d0 - d2) g0
    y1 = d1 g0 + d2 g1 + d3 g2 = m1 - m2 - m3        m1 = (d1 + d2) (g0 + g1 + g2) / 2
                                                     m2 = (d2 - d1) (g0 - g1 + g2) / 2
                                                     m3 = (d1 - d3) g2

since ``m1 + m2 = d1 g1 + d2 (g0 + g2)`` and ``m1 - m2 = d1 (g0 + g2) + d2 g1``. Once along the rows and once along the
columns, a *tile* of 4x4 inputs and the 3x3 weights become 16 numbers each, whose products, summed over the input
features, become 2x2 outputs. The sums are 16 products of matrices, [tiles, inputs] by [inputs, outputs]; the rest are
additions, and the weights' part is done once per call (`Weights`).

An output is made of the inputs that its window sees and of no others (y0 has no d3, y1 no d0), so a large number, or
one that is none, spoils no neighbour. Terms are up to four times the size of a product, but a sum has a ninth as many
of them as the plain one: errors (root of the mean square, beside float64) are 0.4 to 1.1 times those of the plain
kernel for 16 to 512 features, and tests hold them below twice. Larger tiles save more products (4x4 outputs take 36
instead of 144), but their coefficients grow to 8 and outputs mix inputs that they do not see: they are not used.

Infinities are what differs: ``m1`` and ``m2`` of an infinite input cancel to NaN. Outputs that are not finite are
summed again, term by term.

Differences of bytes, in pairs of 16 bits as `Conv` has them, are done in the same way with integers: weights take
twice G, along both dimensions, so that nothing is halved, and an output is a quarter of what comes out, exactly. Inputs
become at most 4 * 255 and weights 9 * 255, which 16 bits hold. Sums are modulo 2^32, so that only four times an output
has to lie within 32 bits (`FEATURES`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, dense, integer, plain, pointer
from nxjax.kernels.cpu.conv import Conv
from nxjax.kernels.cpu.conv_blocks import SCALAR, WORK, Kind, RegisterBlock, multiply_add
from nxjax.kernels.cpu.conv_problem import ConvProblem, Extra, ends, inputs
from nxjax.kernels.cpu.expression import Expression, identity
from nxjax.kernels.cpu.ir import LlvmModule, Value, is_float, vector
from nxjax.kernels.cpu.isa import Isa

DType = np.dtype[Any]
_POINTS: Final = 16  # numbers that a tile becomes
_OUT: Final = 2  # outputs of a tile along a dimension
_UNROLL: Final = 4  # features in a turn of the innermost loop
FEATURES: Final = (2**31 - 1) // (4 * 9 * 255 * 255) // 2  # pairs of bytes that may be summed


def transformed_weights(g: Sequence[Value]) -> list[Value]:
    """G g of three weights along one dimension; of integers twice that."""
    if not is_float(g[0].type):
        both = g[0] + g[2]
        return [g[0] + g[0], both + g[1], both - g[1], g[2] + g[2]]
    half = (g[0] + g[2]) * 0.5
    middle = g[1] * 0.5
    return [g[0], half + middle, half - middle, g[2]]


def transformed_inputs(d: Sequence[Value]) -> list[Value]:
    """B d of four inputs along one dimension."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def outputs_of(m: Sequence[Value]) -> list[Value]:
    """A m: two outputs of four products along one dimension."""
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def twice(step: Any, grid: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """``step`` along the columns of ``grid`` and then along the rows."""
    columns = [step(c) for c in zip(*grid, strict=True)]
    return [step(r) for r in zip(*columns, strict=True)]


def _plane(nbytes: int) -> int:
    """Bytes from one of 16 matrices to the next: an odd number of lines, so that they share few places of caches."""
    return (-(-nbytes // 64) | 1) * 64


def cell_type(kind: Kind, lanes: int) -> str:
    """A vector of ``lanes`` numbers, or of pairs of them, that are transformed."""
    return vector("i16", 2 * lanes) if kind == "pairs" else vector("float", lanes)


@final
class Weights(Kernel):
    """Weights as `Winograd` reads them: [panels of columns, 16, inputs, columns]; operands: weights, result.

    Args:
        kind: "f32", or "pairs" of 16 bits.
        inputs, outputs: features, of pairs those; outputs lie one after the other and are whole vectors of ``lanes``.
        strides: bytes per input feature and per tap of the two dimensions.
        vectors, lanes: of a panel.
    """

    def __init__(
        self, kind: Kind, inputs: int, outputs: int, strides: tuple[int, int, int], vectors: int, lanes: int
    ) -> None:
        self.kind: Kind = kind
        self.inputs = inputs
        self.outputs = outputs
        self.strides = strides
        self.vectors = vectors
        self.lanes = lanes
        self.items = inputs * (outputs // (vectors * lanes))
        self.grain = max(1, 1024 // vectors)

    @property
    def key(self) -> str:
        return f"winograd_weights({self.kind} {self.vectors}x{self.lanes})"

    @property
    def nbytes(self) -> int:
        """Of the result."""
        return _POINTS * self.inputs * self.outputs * 4

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places."""
        return (self.inputs, *self.strides)

    def touches(self) -> Touches:
        c, y, x = self.strides
        return plain([Box(4, (3, 3, self.inputs, self.outputs), (y, x, c, 4))], dense(self.nbytes))

    def cost(self) -> KernelCost:
        n = self.inputs * self.outputs
        return KernelCost(28.0 * n, 36 * n, 64 * n)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        columns, dtype, two = self.vectors * self.lanes, np.dtype("float32"), 1
        g: Any = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
        if self.kind == "pairs":
            dtype, two, g = np.dtype("int16"), 2, (2 * g).astype(np.int16)
        grid = np.ix_(range(3), range(3), range(self.inputs), range(self.outputs), range(two))
        c, y, x = self.strides
        offset: Any = grid[0] * y + grid[1] * x + grid[2] * c + grid[3] * 4 + grid[4] * dtype.itemsize
        w = np.asarray(xs[0]).reshape(-1).view(dtype)[offset // dtype.itemsize]
        u = np.einsum("ya,xb,abcop->yxcop", g, g, w).reshape(_POINTS, self.inputs, -1, columns * two)
        return [np.ascontiguousarray(u.transpose(2, 0, 1, 3))]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        type, row = cell_type(self.kind, self.lanes), self.vectors * self.lanes * 4
        w, u = pointer(f, words, 0), pointer(f, words, 1)
        inputs, w_c, w_y, w_x = (integer(f, words, 2 + i) for i in range(4))
        taps = [w_y * a + w_x * b for a in range(3) for b in range(3)]
        point = inputs * row
        with f.loop(lo, hi) as item:
            panel, feature = item.index.udiv(inputs), item.index.urem(inputs)
            source = f.at(w, feature * w_c + panel * row)
            target = f.at(u, panel * point * _POINTS + feature * row)
            with f.loop(0, row, self.lanes * 4) as at:
                here, there = f.at(source, at.index), f.at(target, at.index)
                g = [f.load(type, f.at(here, tap), 2) for tap in taps]
                done = twice(transformed_weights, [g[:3], g[3:6], g[6:]])
                for i, value in enumerate(v for line in done for v in line):
                    f.store(value, f.at(there, point * i), 4)
        f.ret()


@final
class Winograd(Kernel):
    """``y = epilogue(sum of x * w, *extras)`` of 3x3 windows at step one; operands: x, w, transformed w, extras, y.

    Args:
        kind: "f32", or "pairs" that are differences of bytes.
        problem: as of `Conv`, of one group, with whole vectors of input features, one after the other, and whole
            panels of outputs; the first axis does nothing.
        rows, vectors, lanes: what a block of products holds in registers; a panel has ``vectors * lanes`` outputs.
        run, share: tiles and panels of an item.
        dtype, epilogue, extras, more: as of `Conv`.
    """

    def __init__(
        self,
        kind: Kind,
        problem: ConvProblem,
        block: RegisterBlock,
        run: int,
        share: int,
        dtype: DType,
        epilogue: Expression | None = None,
        extras: Sequence[Extra] = (),
        more: Sequence[Extra] = (),
    ) -> None:
        _, high, wide = problem.axes
        assert all(a.taps == 3 and a.step == a.dilation == 1 for a in (high, wide)), problem
        assert problem.groups == 1 and problem.x_c == 4 and not problem.inputs % block.lanes, problem
        assert not problem.outputs % block.channels, problem
        assert kind == "f32" or (kind == "pairs" and problem.inputs <= FEATURES), problem
        self.kind: Kind = kind
        self.problem = problem
        self.block = block
        self.share = share
        self.dtype = dtype
        self.epilogue = epilogue or identity(dtype)
        self.extras = tuple(extras)
        self.more = tuple(more)
        self.high, self.wide = -(-high.outputs // _OUT), -(-wide.outputs // _OUT)
        self.tiles = problem.batch * self.high * self.wide
        self.panels = problem.outputs // block.channels
        self.run = run
        self.items = -(-self.tiles // run) * -(-self.panels // share)
        self.grain = 1
        whole = -(-run // block.pixels) * block.pixels
        # Zeros instead of padding; where inputs lie; transformed inputs; sums of a panel.
        self._zeros = problem.inputs * 4
        self._places = whole * _POINTS * 8
        self._inputs, self._sums = (_plane(whole * n * 4) for n in (problem.inputs, block.channels))
        self.scratch = self._zeros + self._places + _POINTS * (self._inputs + self._sums)

    @property
    def key(self) -> str:
        extras = ",".join(e.text for e in self.extras)
        b = self.block
        return (
            f"winograd({self.kind} {b.pixels}x{b.vectors}x{b.lanes} {self.dtype.name} {self.epilogue.key} [{extras}])"
        )

    @property
    def title(self) -> str:
        return "conv 3x3" if self.epilogue.is_identity else f"conv 3x3+{self.epilogue}"[:40]

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places."""
        p = self.problem
        found = [self.tiles, self.run, self.high, self.wide, self.panels, self.share, p.inputs]
        found += [self._zeros, self._places, self._inputs, self._sums, p.x_n, p.y_n, p.w_c]
        for a in p.axes[1:]:
            found += [a.size, a.outputs, a.low, a.x, a.w, a.y]
        for e in (*self.extras, *self.more):
            found += [e.n, *e.axes[1:]]
        return tuple(found)

    def touches(self) -> Touches:
        p = self.problem
        high, wide = p.axes[1:]
        w = Box(4, (3, 3, p.inputs, p.outputs), (high.w, wide.w, p.w_c, 4))
        ins, outs = ends(p, self.extras, self.more, self.epilogue.out_dtypes, (1, p.outputs))
        found = plain([w, *dense(_POINTS * p.inputs * p.outputs * 4), *ins], outs)
        return Touches((inputs(p, 4), *found.ins), found.outs)

    def cost(self) -> KernelCost:
        """Products that are made, which are fewer than a convolution's."""
        p = self.problem
        each = 2 if self.kind == "pairs" else 1
        x = p.batch * p.inputs * math.prod(a.size for a in p.axes) * 4
        y = p.pixels * p.outputs
        extra = sum(e.dtype.itemsize * (p.outputs if e.row else y) for e in self.extras)
        made = 2.0 * each * self.tiles * _POINTS * p.inputs * p.outputs
        u = _POINTS * p.inputs * p.outputs * 4
        return KernelCost(made, x + u + extra, y * sum(d.itemsize for d in self.epilogue.out_dtypes))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The results [batch, spatial..., outputs], if that is how they lie in memory."""
        x, w, _, *rest = xs
        plain = Conv(self.problem, self.kind, self.block, self.dtype, self.epilogue, self.extras, self.more)
        return plain.meaning(x, w, *rest)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        _Writer(self, module, isa).write()


class _Writer:
    """Writes one function.

    In scratch each of the 16 products of matrices has its operand and its result in one piece: inputs are
    [16, tiles, features], sums [16, tiles, outputs of a panel].
    """

    def __init__(self, kernel: Winograd, module: LlvmModule, isa: Isa) -> None:
        self.k = kernel
        self.isa = isa
        self.f, self.words, self.lo, self.hi, self.scratch = kernel.function(module)
        self.type = cell_type(kernel.kind, kernel.block.lanes)
        self.sum = vector(SCALAR[kernel.kind], kernel.block.lanes)
        self.bytes = kernel.block.lanes * 4
        self.row = kernel.block.channels * 4

    def write(self) -> None:
        f, k, words = self.f, self.k, self.words
        count, outs = len(k.extras), len(k.epilogue.outputs)
        self.x, self.w, u = (pointer(f, words, i) for i in range(3))
        self.e = [pointer(f, words, 3 + i) for i in range(count)]
        self.y = [pointer(f, words, 3 + count + i) for i in range(outs)]
        numbers = iter(integer(f, words, 3 + count + outs + i) for i in range(len(k.integers)))
        take = lambda n: [next(numbers) for _ in range(n)]
        tiles, run, self.high, self.wide, panels, share, self.inputs = take(7)
        zeros, places, self.v_plane, self.m_plane, self.x_n, y_n, self.w_c = take(7)
        self.axes = [take(6) for _ in range(2)]
        strides = [take(3) for _ in k.extras]
        strides += [[y_n, *(a[5] for a in self.axes)], *(take(3) for _ in k.more)]
        self.places = f.at(self.scratch, zeros)
        self.v = f.at(self.places, places)
        self.m = f.at(self.v, self.v_plane * _POINTS)
        with f.loop(0, zeros, self.bytes) as z:
            f.store(f.constant(self.type, 0), f.at(self.scratch, z.index), 4)
        runs = (tiles + run - 1).udiv(run)
        columns = k.block.channels
        with f.loop(self.lo, self.hi) as item:
            first = item.index.urem(runs) * run
            count_ = f.intrinsic("smin", "i64", run, tiles - first)
            begin = item.index.udiv(runs) * share
            end = f.intrinsic("smin", "i64", begin + share, panels)
            with f.loop(0, count_) as tile:
                self._transform(first + tile.index, tile.index)
            # The last block of tiles may not be whole: no arithmetic on what lay there, which may be slow.
            idle = f.constant("i64", k.block.pixels - 1) - (count_ - 1).urem(k.block.pixels)
            with f.loop(0, _POINTS) as p:
                rest = f.at(f.at(self.v, p.index * self.v_plane), count_ * self.inputs, 4)
                f.call("memset", "ptr", rest, f.constant("i32", 0), idle * self.inputs * 4)
            with f.loop(begin, end) as panel:
                channel = panel.index * columns
                with f.loop(0, _POINTS) as p:
                    weights = f.at(u, (panel.index * _POINTS + p.index) * self.inputs, columns * 4)
                    with f.loop(0, count_, k.block.pixels) as tile:
                        self._products(p.index, tile.index, weights)
                with f.loop(0, count_) as tile:
                    self._finish(first + tile.index, tile.index, channel, strides)
        f.ret()

    def _place(self, tile: Value) -> tuple[Value, Value, Value]:
        """Number in the batch, first output row and column of a tile."""
        row, column = tile.udiv(self.wide), tile.urem(self.wide)
        return row.udiv(self.high), row.urem(self.high) * _OUT, column * _OUT

    def _transform(self, tile: Value, at: Value) -> None:
        """The inputs of a tile, transformed, to place ``at``, and the addresses that they were read from."""
        f = self.f
        n, *firsts = self._place(tile)
        inside: list[list[Value]] = []
        offset: list[list[Value]] = []
        for first, (size, _, low, step, _, _) in zip(firsts, self.axes, strict=True):
            indices = [first - low + i for i in range(4)]
            inside.append([i.ult(size) for i in indices])
            offset.append([i * step for i in indices])
        base, table = f.at(self.x, n * self.x_n), f.at(self.places, at, _POINTS * 8)
        rows: list[Value] = []
        for i in range(4):
            line = f.at(base, offset[0][i])
            for j in range(4):
                place = f.select(inside[0][i] & inside[1][j], f.at(line, offset[1][j]), self.scratch)
                f.store(place, f.at(table, 8 * len(rows)), 8)
                rows.append(place)
        start = f.at(self.v, at * self.inputs, 4)
        with f.loop(0, self.inputs * 4, self.bytes) as c:
            d = [f.load(self.type, f.at(row, c.index), 2) for row in rows]
            done = twice(transformed_inputs, [d[i : i + 4] for i in range(0, _POINTS, 4)])
            here = f.at(start, c.index)
            for value in (v for line in done for v in line):
                f.store(value, here, 4)
                here = f.at(here, self.v_plane)

    def _products(self, point: Value, tile: Value, weights: Value) -> None:
        """One of the 16 products of matrices, for a block of tiles and a panel of outputs."""
        f, b, kind = self.f, self.k.block, self.k.kind
        zero = f.constant(self.sum, 0)
        rows = [f.at(f.at(self.v, point * self.v_plane), tile * self.inputs, 4)]
        while len(rows) < b.pixels:
            rows.append(f.at(rows[-1], self.inputs, 4))
        with f.loop(0, self.inputs, _UNROLL, carry=[weights, *[zero] * (b.pixels * b.vectors)]) as c:
            w, *acc = c.carried
            for lane in range(_UNROLL):
                ws = [f.load(self.sum, f.at(w, v * self.bytes), 4) for v in range(b.vectors)]
                w = f.at(w, self.row)
                for i, row in enumerate(rows):
                    x = f.splat(f.load(SCALAR[kind], f.at(f.at(row, c.index, 4), lane * 4)), b.lanes)
                    for v in range(b.vectors):
                        at = i * b.vectors + v
                        acc[at] = multiply_add(f, self.isa, kind, x, ws[v], acc[at])
            c.next(w, *acc)
        target = f.at(f.at(self.m, point * self.m_plane), tile, self.row)
        for i, value in enumerate(c.results[1:]):
            f.store(value, f.at(target, i * self.bytes), 4)

    def _finish(self, tile: Value, at: Value, channel: Value, strides: Sequence[Sequence[Value]]) -> None:
        """The outputs of a tile and a panel, from the sums at place ``at``."""
        f, k = self.f, self.k
        n, *firsts = self._place(tile)
        there = [[None, (first + 1).lt(a[1])] for first, a in zip(firsts, self.axes, strict=True)]
        sizes = [e.dtype.itemsize if e.channels else 0 for e in k.extras]
        sizes += [d.itemsize for d in k.epilogue.out_dtypes]
        bases: list[list[Value]] = []
        for place, (s_n, *s), size in zip((*self.e, *self.y), strides, sizes, strict=True):
            corner = f.at(place, n * s_n + firsts[0] * s[0] + firsts[1] * s[1] + channel * size)
            below = f.at(corner, s[0])
            bases.append([corner, f.at(corner, s[1]), below, f.at(below, s[1])])
        start = f.at(self.m, at, self.row)
        with f.loop(0, k.block.vectors) as v:
            here = f.at(start, v.index, self.bytes)
            m: list[Value] = []
            while len(m) < _POINTS:
                m.append(f.load(self.sum, here, 4))
                here = f.at(here, self.m_plane)
            grid = twice(outputs_of, [m[i : i + 4] for i in range(0, _POINTS, 4)])
            ys, lane = [y for line in grid for y in line], v.index * k.block.lanes
            ys = self._checked(ys, at, channel + lane) if k.kind == "f32" else [y >> 2 for y in ys]
            for i, y in enumerate(ys):
                wanted = [t for t in (there[0][i // 2], there[1][i % 2]) if t is not None]
                places = [f.at(b[i], lane, size) for b, size in zip(bases, sizes, strict=True)]
                if not wanted:
                    self._store(y, places)
                    continue
                with f.if_(wanted[0] & wanted[1] if len(wanted) == 2 else wanted[0]):
                    self._store(y, places)

    def _checked(self, ys: Sequence[Value], at: Value, channel: Value) -> list[Value]:
        """Outputs, or their plain sums where one of them is not finite."""
        f = self.f
        total = (ys[0] + ys[1]) + (ys[2] + ys[3])
        bad = (total - total).is_nan().bitcast(f"i{self.k.block.lanes}").ne(0)
        before = f.block
        found: list[Value] = []
        with f.if_(bad):
            found = self._plain(f.at(self.places, at, _POINTS * 8), f.at(self.w, channel, 4))
            inside = f.block
        return [f.phi(self.sum, [(y, before), (z, inside)]) for y, z in zip(ys, found, strict=True)]

    def _plain(self, table: Value, weights: Value) -> list[Value]:
        """The outputs of a tile term by term, for one vector of channels."""
        f = self.f
        w_y, w_x = (a[4] for a in self.axes)
        zero = f.constant(self.sum, 0)
        with f.loop(0, 3, carry=[zero] * 4) as i:
            with f.loop(0, 3, carry=i.carried) as j:
                corner = f.at(table, i.index * 4 + j.index, 8)
                rows = [f.load("ptr", f.at(corner, 8 * place), 8) for place in (0, 1, 4, 5)]
                w = f.at(weights, i.index * w_y + j.index * w_x)
                with f.loop(0, self.inputs, carry=j.carried) as c:
                    factor = f.load(self.sum, f.at(w, c.index * self.w_c), 4)
                    xs = [f.splat(f.load("float", f.at(row, c.index, 4)), self.k.block.lanes) for row in rows]
                    c.next(*(f.fma(x, factor, total) for x, total in zip(xs, c.carried, strict=True)))
                j.next(*c.results)
            i.next(*j.results)
        return list(i.results)

    def _store(self, y: Value, places: Sequence[Value]) -> None:
        """One vector of one output; ``places`` are those of other operands and of results."""
        f, k, isa, lanes = self.f, self.k, self.isa, self.k.block.lanes
        values = [convert.convert(f, isa, y, WORK[k.kind], k.dtype)]
        for e, place in zip(k.extras, places, strict=False):
            raw = f.load(convert.memory_type(e.dtype, lanes if e.channels else 0), place)
            value = convert.from_memory(f, isa, e.dtype, raw)
            values.append(value if e.channels else f.splat(value, lanes))
        results = k.epilogue.emit(f, isa, values)
        for result, dtype, place in zip(results, k.epilogue.out_dtypes, places[len(k.extras) :], strict=True):
            f.store(convert.to_memory(f, isa, dtype, result), place)
