"""Householder reflectors of matrices one at a time; beside `linalg_qr`, which has matrices in lanes.

Rows stand in scratch memory, filled up to whole vectors with zeros. `Geqrf` goes by panels of as many columns as
`GROUP` has lanes: a panel is reduced by itself, and those behind it are turned by all its reflectors at once, as
1 - V T V^T (R. Schreiber and C. Van Loan, "A storage-efficient WY representation for products of Householder
transformations", 1989). T is not formed: its inverse is triangular, with 1 / tau on the diagonal and V^T V beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from nxjax.kernels.cpu import linalg_qr
from nxjax.kernels.cpu.base import Kernel, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, Alike, DType
from nxjax.kernels.cpu.math_base import copysign, fabs, layout, words

ROWS = 4  # that are worked on together


def folded(f: Function, x: Value, lanes: int, both: Callable[[Value, Value], Value]) -> Value:
    """All lanes of a vector as one number."""
    while lanes > 1:
        lanes //= 2
        x = both(f.shuffle(x, None, range(lanes)), f.shuffle(x, None, range(lanes, 2 * lanes)))
    return f.extract(x, 0)


def sums(f: Function, rows: Sequence[Value]) -> Value:
    """The sums of `ROWS` vectors, in order."""
    lanes = int(rows[0].type[1:].split(" ")[0])
    even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
    while len(rows) > 1:
        rows = [f.shuffle(a, b, even) + f.shuffle(a, b, odd) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    (x,) = rows
    while lanes > ROWS:
        lanes //= 2
        x = f.shuffle(x, None, range(0, 2 * lanes, 2)) + f.shuffle(x, None, range(1, 2 * lanes, 2))
    return x


class OneByOne(Kernel):
    """``count`` matrices, each an item."""

    grain = 1

    def __init__(self, dtype: DType, count: int) -> None:
        self.dtype, self.count, self.items = dtype, count, count
        self.lanes = GROUP // dtype.itemsize
        self.scalar = DTYPES[dtype]
        self.vector = vector(self.scalar, self.lanes)

    def whole(self, n: int) -> int:
        """``n`` filled up to whole vectors."""
        return -(-n // self.lanes) * self.lanes

    def begin(self, index: Value, lanes: int = 0) -> Value:
        """Where the vector begins that has the element ``index``."""
        return index & -(lanes or self.lanes)

    def line(self, f: Function, place: Value, index: Value | int = 0) -> Value:
        """The vector that begins at an element."""
        return f.load(self.vector, f.at(place, index, self.dtype.itemsize), GROUP)

    def number(self, f: Function, place: Value, index: Value | int = 0) -> Value:
        return f.load(self.scalar, f.at(place, index, self.dtype.itemsize))

    def behind(self, f: Function, start: Value, index: Value) -> Value:
        """The lanes of the vector at ``start`` that are behind element ``index``."""
        word = layout(f.constant(self.scalar, 0.0)).word
        return f.constants(word, range(self.lanes)).gt(f.splat((index - start).convert(word), self.lanes))

    def cleared(self, f: Function, place: Value, nbytes: int) -> None:
        f.call("memset", "ptr", place, f.constant("i32", 0), f.constant("i64", nbytes))

    def largest(self, f: Function, x: Value, start: Value | int, stop: int) -> Value:
        """The bits of the largest absolute value of whole vectors, which are larger for an infinity and for NaN."""
        zero = f.constant(self.vector, 0.0)
        with f.loop(start, stop, self.lanes, (words(zero),)) as k:
            bits = words(fabs(f, self.line(f, x, k.index)))
            k.next(f.intrinsic("smax", bits.type, k.carried[0], bits))
        word = layout(zero).word
        return folded(f, k.results[0], self.lanes, lambda a, b: f.intrinsic("smax", vector(word, _lanes(a)), a, b))

    def unit(self, f: Function, bits: Value) -> Value:
        """The power of two of a number of such bits; 1 for an infinity and for NaN, whose sums are to be the same."""
        form = layout(f.constant(self.scalar, 0.0))
        infinite = words(f.constant(self.scalar, float("inf")))
        power = f.intrinsic("smax", form.word, bits, f.constant(form.word, 1 << form.mantissa)) & infinite
        return f.select(power.eq(infinite), words(f.constant(self.scalar, 1.0)), power).bitcast(self.scalar)

    def scaled(self, f: Function, a: Value, whole: int) -> tuple[Value, Value]:
        """Divides numbers by a power of two, so that no square overflows; which one, and whether one isn't finite."""
        bits = self.largest(f, a, f.constant("i64", 0), whole)
        unit = self.unit(f, bits)
        inverse = f.splat(1.0 / unit, self.lanes)
        with f.loop(0, whole, self.lanes) as k:
            f.store(self.line(f, a, k.index) * inverse, f.at(a, k.index, self.dtype.itemsize), GROUP)
        return unit, bits.ge(words(f.constant(self.scalar, float("inf"))))

    def reflector(self, f: Function, x: Value, at: Value, stop: int) -> tuple[Value, Value]:
        """Of the ``stop`` elements of ``x``, zero before ``at``, the number that a reflector leaves there, and its tau.

        ``x`` becomes the reflector's vector, with 1 at ``at``: LAPACK's larfg.
        """
        place, start = f.at(x, at, self.dtype.itemsize), self.begin(at)
        alpha = f.load(self.scalar, place)
        f.store(f.constant(self.scalar, 0.0), place)
        rest = self.largest(f, x, start, stop)
        idle = rest.eq(0)
        unit = self.unit(f, f.intrinsic("smax", rest.type, rest, words(fabs(f, alpha))))
        inverse = 1.0 / unit
        spread = f.splat(inverse, self.lanes)
        with f.loop(start, stop, self.lanes, (f.constant(self.vector, 0.0),)) as k:
            part = self.line(f, x, k.index) * spread
            k.next(f.fma(part, part, k.carried[0]))
        scaled = alpha * inverse
        norm = folded(f, k.results[0], self.lanes, lambda a, b: a + b) + scaled * scaled
        beta = -copysign(f, f.intrinsic("sqrt", self.scalar, norm), scaled)
        factor = f.splat(1.0 / (scaled - beta), self.lanes)
        with f.if_(~idle), f.loop(start, stop, self.lanes) as k:
            f.store(self.line(f, x, k.index) * spread * factor, f.at(x, k.index, self.dtype.itemsize), GROUP)
        f.store(f.constant(self.scalar, 1.0), place)
        return f.select(idle, alpha, beta * unit), f.select(idle, 0.0, (beta - scaled) / beta)

    def inner(
        self, f: Function, v: Sequence[Value], step: int, a: Value, stride: int, rows: tuple[Value | int, int]
    ) -> list[Value]:
        """Vectors of v^T A: ``v`` and ``a`` are the places of row 0, ``step`` and ``stride`` elements to the next."""
        size = self.dtype.itemsize
        with f.loop(*rows, 1, [f.constant(self.vector, 0.0)] * len(v)) as i:
            mine = f.load(self.vector, f.at(a, i.index * stride, size), GROUP)
            factors = [f.splat(self.number(f, one, i.index * step), self.lanes) for one in v]
            i.next(*(f.fma(x, mine, total) for x, total in zip(factors, i.carried, strict=True)))
        return list(i.results)

    def inner_of_one(self, f: Function, v: Value, a: Value, stride: int, rows: tuple[Value, int]) -> Value:
        """v^T A for one dense vector, by several rows at a time from a multiple of `ROWS` on."""
        size = self.dtype.itemsize
        with f.loop(*rows, ROWS, [f.constant(self.vector, 0.0)] * ROWS) as i:
            found: list[Value] = []
            for r, total in enumerate(i.carried):
                mine = f.load(self.vector, f.at(a, (i.index + r) * stride, size), GROUP)
                found.append(f.fma(f.splat(self.number(f, v, i.index + r), self.lanes), mine, total))
            i.next(*found)
        a_, b_, c_, d_ = i.results
        return (a_ + b_) + (c_ + d_)


def _lanes(x: Value) -> int:
    return int(x.type[1:].split(" ")[0])


class Panels(OneByOne, Alike):
    """What `GeqrfPanels` and `HouseholderProductPanels` have in common: ``m`` rows, ``n`` columns, ``k`` reflectors.

    In scratch memory: the matrix, a second one, a panel, a column, a panel's taus, its V^T V, and what it takes away.
    """

    def __init__(self, dtype: DType, count: int, m: int, n: int, k: int, matrices: int) -> None:
        super().__init__(dtype, count)
        self.m, self.n, self.k = m, n, k
        self.stride = self.whole(n)
        matrix = m * self.stride * dtype.itemsize
        sizes = (*(matrix,) * matrices, self.whole(m) * GROUP, self.whole(m) * dtype.itemsize, GROUP)
        self._offsets = tuple(int(x) for x in np.cumsum((0, *sizes, self.lanes * GROUP)))
        self.scratch = self._offsets[-1] + self.lanes * GROUP

    def places(self, f: Function, scratch: Value) -> list[Value]:
        return [f.at(scratch, offset) for offset in self._offsets]

    def copied(self, f: Function, inside: Value, outside: Value, *, back: bool = False) -> None:
        """All rows of a matrix to scratch memory, or from there."""
        size = self.dtype.itemsize
        nbytes = f.constant("i64", self.n * size)
        with f.loop(0, self.m) as row:
            there, here = f.at(inside, row.index * self.stride, size), f.at(outside, row.index * self.n, size)
            f.call("memcpy", "ptr", *((here, there) if back else (there, here)), nbytes)
            if not back and self.stride > self.n:
                self.cleared(f, f.at(there, self.n, size), (self.stride - self.n) * size)

    def panel(self, f: Function, a: Value, panel: Value, first: Value, *, back: bool = False) -> None:
        """The columns from ``first`` on to the panel, or from there; rows keep their numbers."""
        with f.loop(first, self.m) as row:
            outside = f.at(a, row.index * self.stride + first, self.dtype.itemsize)
            inside = f.at(panel, row.index, GROUP)
            here, there = (inside, outside) if back else (outside, inside)
            f.store(f.load(self.vector, here, GROUP), there, GROUP)

    def vectors(self, f: Function, panel: Value, first: Value, width: Value) -> None:
        """Of a panel, the ``width`` vectors of its reflectors: 1 on the diagonal, zeros above it and behind them."""
        zero = f.constant(self.vector, 0.0)
        none = self.behind(f, first, first + width - 1)
        below = f.intrinsic("smin", "i64", first + self.lanes, f.constant("i64", self.m))
        with f.loop(first, below) as row:
            place = f.at(panel, row.index, GROUP)
            right = self.behind(f, first, row.index - 1)
            f.store(f.select(right | none, zero, f.load(self.vector, place, GROUP)), place, GROUP)
            with f.if_((row.index - first).lt(width)):
                f.store(f.constant(self.scalar, 1.0), f.at(place, row.index - first, self.dtype.itemsize))
        with f.if_(width.lt(self.lanes)), f.loop(below, self.m) as row:
            place = f.at(panel, row.index, GROUP)
            f.store(f.select(none, zero, f.load(self.vector, place, GROUP)), place, GROUP)

    def turned(
        self, f: Function, a: Value, panel: Value, rooms: Sequence[Value], first: Value, start: Value, adjoint: bool
    ) -> None:
        """The columns from ``start`` on times 1 - V T V^T, or its adjoint; V stands in the panel."""
        taus, gram, taken = rooms
        size = self.dtype.itemsize
        self._products(f, panel, panel, self.lanes, first, gram)
        with f.loop(start, self.n, self.lanes) as column:
            mine = f.at(a, column.index, size)
            self._products(f, panel, mine, self.stride, first, taken)
            with f.loop(0, self.lanes) as step:
                r = step.index if adjoint else self.lanes - 1 - step.index
                tau = self.number(f, taus, r)
                place = f.at(taken, r, GROUP)
                # Where tau is 0 nothing is touched, whatever the inner product is.
                y = f.select(f.splat(tau.eq(0.0), self.lanes), 0.0, self.line(f, place) * f.splat(tau, self.lanes))
                f.store(y, place, GROUP)
                begin, end = (r + 1, f.constant("i64", self.lanes)) if adjoint else (f.constant("i64", 0), r)
                with f.loop(begin, end) as other:
                    factor = self.number(f, f.at(gram, r, GROUP), other.index)
                    there = f.at(taken, other.index, GROUP)
                    f.store(f.fma(f.splat(-factor, self.lanes), y, self.line(f, there)), there, GROUP)
            rest = f.constant("i64", self.m) - first
            whole = first + (rest - rest.urem(ROWS))
            for begin, end, rows in ((first, whole, ROWS), (whole, f.constant("i64", self.m), 1)):
                with f.loop(begin, end, rows) as row:
                    lines = [f.at(mine, (row.index + r) * self.stride, size) for r in range(rows)]
                    factors = [f.at(panel, row.index + r, GROUP) for r in range(rows)]
                    with f.loop(0, self.lanes, 1, [f.load(self.vector, x, GROUP) for x in lines]) as k:
                        y = f.load(self.vector, f.at(taken, k.index, GROUP), GROUP)
                        xs = [f.splat(-self.number(f, x, k.index), self.lanes) for x in factors]
                        k.next(*(f.fma(x, y, old) for x, old in zip(xs, k.carried, strict=True)))
                    for place, value in zip(lines, k.results, strict=True):
                        f.store(value, place, GROUP)

    def _products(self, f: Function, panel: Value, a: Value, stride: int, first: Value, out: Value) -> None:
        """V^T A, a vector of columns of A."""
        with f.loop(0, self.lanes, ROWS) as k:
            v = [f.at(panel, k.index + r, self.dtype.itemsize) for r in range(ROWS)]
            for r, found in enumerate(self.inner(f, v, self.lanes, a, stride, (first, self.m))):
                f.store(found, f.at(out, k.index + r, GROUP), GROUP)


@final
class GeqrfPanels(Panels):
    """As `linalg_qr.Geqrf`."""

    def __init__(self, dtype: DType, count: int, m: int, n: int) -> None:
        super().__init__(dtype, count, m, n, min(m, n), 1)

    @property
    def key(self) -> str:
        return f"geqrf_panels({self.dtype.name},{self.count},{self.m},{self.n})"

    def alike(self) -> linalg_qr.Geqrf:
        return linalg_qr.Geqrf(self.dtype, self.count, self.m, self.n)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        m, n, size = self.m, self.n, self.dtype.itemsize
        x, y, scalars = (pointer(f, arguments, i) for i in range(3))
        a, panel, column, taus, gram, taken = self.places(f, scratch)
        with f.loop(lo, hi) as item:
            self.copied(f, a, f.at(x, item.index, m * n * size))
            mine = f.at(scalars, item.index, self.k * size)
            with f.loop(0, self.k, self.lanes) as step:
                first = step.index
                width = f.intrinsic("smin", "i64", f.constant("i64", self.k) - first, f.constant("i64", self.lanes))
                self.panel(f, a, panel, first)
                self._reduced(f, panel, column, taus, first, width)
                f.call("memcpy", "ptr", f.at(mine, first, size), taus, width * size)
                self.panel(f, a, panel, first, back=True)
                with f.if_((first + self.lanes).lt(n)):
                    self.vectors(f, panel, first, width)
                    self.turned(f, a, panel, (taus, gram, taken), first, first + self.lanes, True)
            self.copied(f, a, f.at(y, item.index, m * n * size), back=True)
        f.ret()

    def _reduced(self, f: Function, panel: Value, column: Value, taus: Value, first: Value, width: Value) -> None:
        """The panel's own factorization; its taus, and zeros behind them."""
        m, size = self.m, self.dtype.itemsize
        last = self.lanes - 1
        self.cleared(f, taus, GROUP)
        self.cleared(f, column, self.whole(m) * size)
        # Rows that the matrix has not, and those before the panel, in groups of rows.
        zero = f.constant(self.vector, 0.0)
        with f.loop(m, self.whole(m)) as row:
            f.store(zero, f.at(panel, row.index, GROUP), GROUP)
        with f.loop(first, m) as row:
            f.store(self.number(f, f.at(panel, row.index, GROUP)), f.at(column, row.index, size))
        with f.loop(0, width) as step:
            k, r = step.index, first + step.index
            beta, tau = self.reflector(f, column, r, self.whole(m))
            f.store(tau, f.at(taus, k, size))
            # Rows before the panel are multiplied with zeros: `first` is a multiple of `ROWS`.
            found = self.inner_of_one(f, column, panel, self.lanes, (self.begin(r, ROWS), self.whole(m)))
            used = self.behind(f, first, r) & f.splat(tau.ne(0.0), self.lanes)
            taken = f.select(used, found * f.splat(-tau, self.lanes), 0.0)
            following = f.intrinsic("smin", "i64", k + 1, f.constant("i64", last))
            with f.loop(r, m) as row:
                place, mine = f.at(panel, row.index, GROUP), f.at(column, row.index, size)
                v = f.load(self.scalar, mine)
                f.store(f.fma(f.splat(v, self.lanes), taken, f.load(self.vector, place, GROUP)), place, GROUP)
                f.store(v, f.at(place, k, size))
                f.store(self.number(f, place, following), mine)
            f.store(beta, f.at(f.at(panel, r, GROUP), k, size))
            f.store(f.constant(self.scalar, 0.0), f.at(column, r, size))


@final
class HouseholderProductPanels(Panels):
    """As `linalg_qr.HouseholderProduct`."""

    def __init__(self, dtype: DType, count: int, m: int, n: int, k: int) -> None:
        super().__init__(dtype, count, m, n, k, 2)

    @property
    def key(self) -> str:
        return f"householder_product_panels({self.dtype.name},{self.count},{self.m},{self.n},{self.k})"

    def alike(self) -> linalg_qr.HouseholderProduct:
        return linalg_qr.HouseholderProduct(self.dtype, self.count, self.m, self.n, self.k)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        m, n, k, size = self.m, self.n, self.k, self.dtype.itemsize
        x, scalars, y = (pointer(f, arguments, i) for i in range(3))
        a, q, panel, _, taus, gram, taken = self.places(f, scratch)
        with f.loop(lo, hi) as item:
            self.copied(f, a, f.at(x, item.index, m * n * size))
            self.cleared(f, q, m * self.stride * size)
            with f.loop(0, n) as row:
                f.store(f.constant(self.scalar, 1.0), f.at(q, row.index * (self.stride + 1), size))
            panels = -(-k // self.lanes)
            with f.loop(0, panels) as step:
                first = (panels - 1 - step.index) * self.lanes
                width = f.intrinsic("smin", "i64", f.constant("i64", k) - first, f.constant("i64", self.lanes))
                self.cleared(f, taus, GROUP)
                f.call("memcpy", "ptr", taus, f.at(scalars, item.index * k + first, size), width * size)
                self.panel(f, a, panel, first)
                self.vectors(f, panel, first, width)
                self.turned(f, q, panel, (taus, gram, taken), first, first, False)
            self.copied(f, q, f.at(y, item.index, m * n * size), back=True)
        f.ret()
