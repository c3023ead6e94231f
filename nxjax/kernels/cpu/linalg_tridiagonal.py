"""Symmetric matrices, one at a time, made tridiagonal by reflectors; and vectors turned by these reflectors.

Reflector k is 1 - tau u u^T, whose u begins with a 1 behind element k (G. Golub, C. Van Loan, "Matrix Computations",
8.3). Their vectors stand in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.gemv import total
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import GROUP, DType, NDArray
from nxjax.kernels.cpu.linalg_reflect import ROWS, OneByOne, sums
from nxjax.kernels.cpu.linalg_tiles import tile
from nxjax.kernels.cpu.move import transposed

DEPTH = 64  # products that are summed one after the other
WIDTH = 3  # vectors of columns that are turned together


class SymmetricReduction(OneByOne):
    """``n`` rows of ``stride`` elements in scratch memory, of a matrix of which one triangle is read."""

    n: int
    stride: int
    lower: bool

    def read(self, f: Function, source: Value, a: Value) -> None:
        n, size = self.n, self.dtype.itemsize
        with f.loop(0, n) as row, f.loop(0, row.index + 1) as column:
            i, j = row.index, column.index
            value = self.number(f, source, i * n + j if self.lower else j * n + i)
            f.store(value, f.at(a, i * self.stride + j, size))
            f.store(value, f.at(a, j * self.stride + i, size))

    def tridiagonal(
        self, f: Function, isa: Isa, a: Value, vectors: Sequence[Value], diagonal: Callable[[Value, Value], None],
        beside: Callable[[Value, Value, Value, Value], None],
    ) -> None:  # fmt: skip
        """``diagonal(k, x)`` for each element; ``beside(k, x, tau, u)`` for those beside it, and their reflectors.

        Row k, less what the reflector before takes, gives the next; one pass takes that away and multiplies, of the
        triangle above the diagonal alone.
        """
        n, size = self.n, self.dtype.itemsize
        u, v, w, product = vectors
        near = max(ROWS, min(self.lanes, isa.lanes(size)))
        with f.loop(0, n) as step:
            k = step.index
            mine = f.at(a, k * self.stride, size)
            x, z = self.number(f, v, k), self.number(f, w, k)
            corner = self.number(f, mine, k) - (x * z + x * z)
            diagonal(k, corner)
            x, z = f.splat(-x, self.lanes), f.splat(-z, self.lanes)
            with f.loop(self.begin(k), self.stride, self.lanes) as c:
                row = f.fma(
                    x, self.line(f, w, c.index), f.fma(z, self.line(f, v, c.index), self.line(f, mine, c.index))
                )
                f.store(f.select(self.behind(f, c.index, k), row, 0.0), f.at(u, c.index, size), GROUP)
            with f.if_((k + 1).lt(n)):
                beta, tau = self.reflector(f, u, k + 1, self.stride)
                beside(k, beta, tau, u)
                with f.loop(self.begin(k + 1), self.stride, self.lanes) as c:
                    f.store(f.constant(self.vector, 0.0), f.at(product, c.index, size), GROUP)
                with f.loop(self.begin(k + 1, ROWS), n, ROWS) as row:
                    self._passed(f, a, vectors, row.index, near)
                self._followed(f, vectors, k, tau)

    def _passed(self, f: Function, a: Value, vectors: Sequence[Value], first: Value, near: int) -> None:
        """Rows from ``first`` on, less what the reflector before takes, and their part of the product with the next.

        The columns before the square on the diagonal are those of other rows.
        """
        u, v, w, product = vectors
        size, narrow = self.dtype.itemsize, vector(self.scalar, near)
        rows = [first + r for r in range(ROWS)]
        lines = [f.at(a, row * self.stride, size) for row in rows]
        spread = lambda place: [f.splat(self.number(f, place, row), near) for row in rows]
        xs, zs, us = [-x for x in spread(v)], [-x for x in spread(w)], spread(u)

        def less(c: Value, totals: Sequence[Value], behind: bool) -> list[Value]:
            left, right, next_ = (f.load(narrow, f.at(place, c, size), near * size) for place in (v, w, u))
            there = f.at(product, c, size)
            mirrored = f.load(narrow, there, near * size) if behind else None
            found: list[Value] = []
            for line, x, z, y, old in zip(lines, xs, zs, us, totals, strict=True):
                place = f.at(line, c, size)
                new = f.fma(x, right, f.fma(z, left, f.load(narrow, place, near * size)))
                f.store(new, place, near * size)
                found.append(f.fma(new, next_, old))
                mirrored = None if mirrored is None else f.fma(new, y, mirrored)
            if mirrored is not None:
                f.store(mirrored, there, near * size)
            return found

        square = self.begin(first, near)
        begin = less(square, [f.constant(narrow, 0.0)] * ROWS, False)
        with f.loop(square + near, -(-self.n // near) * near, near, begin) as c:
            c.next(*less(c.index, c.carried, True))
        mine, four = f.at(product, first, size), vector(self.scalar, ROWS)
        f.store(f.load(four, mine) + sums(f, c.results), mine)

    def _followed(self, f: Function, vectors: Sequence[Value], k: Value, tau: Value) -> None:
        """The vectors v and w for which A - v w^T - w v^T is what the reflector 1 - tau u u^T makes of A, from A u."""
        u, v, w, product = vectors
        size = self.dtype.itemsize
        start = self.begin(k + 1)
        with f.loop(start, self.stride, self.lanes, (f.constant(self.vector, 0.0),)) as c:
            c.next(f.fma(self.line(f, u, c.index), self.line(f, product, c.index), c.carried[0]))
        half = tau * tau * total(f, c.results[0]) * -0.5
        spread, half = f.splat(tau, self.lanes), f.splat(half, self.lanes)
        with f.loop(start, self.stride, self.lanes) as c:
            line = self.line(f, u, c.index)
            new = f.fma(half, line, self.line(f, product, c.index) * spread)
            f.store(f.select(self.behind(f, c.index, k), new, 0.0), f.at(w, c.index, size), GROUP)
            f.store(line, f.at(v, c.index, size), GROUP)


@final
class ToTridiagonal(SymmetricReduction):
    """[count, n, n] to its reflectors' u and tau, the diagonal and what is beside it, all in rows of ``stride``.

    A matrix that is not finite has a diagonal of NaN.
    """

    grain = 1

    def __init__(self, dtype: DType, count: int, n: int, lower: bool) -> None:
        super().__init__(dtype, count)
        self.n, self.lower, self.stride = n, lower, self.whole(n)
        whole = self.stride * self.stride * dtype.itemsize
        line = self.stride * dtype.itemsize
        self._offsets = tuple(int(x) for x in np.cumsum((0, whole, *(line,) * 4)))
        self.scratch = self._offsets[-1]

    @property
    def key(self) -> str:
        return f"tridiagonal({self.dtype.name},{self.count},{self.n},{self.lower:d})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """Reflector by reflector, in doubles."""
        n, shape = self.n, (self.count, self.n, self.stride)
        u, lines = np.zeros(shape, self.dtype), np.zeros((3, self.count, self.stride), self.dtype)
        for i, x in enumerate(xs[0].reshape(self.count, n, n).astype(np.float64)):
            a = np.tril(x) + np.tril(x, -1).T if self.lower else np.triu(x) + np.triu(x, 1).T
            for k in range(n - 1):
                v = np.where(np.arange(n) > k, a[k], 0)
                beta = -np.copysign(np.linalg.norm(v), v[k + 1])
                idle = not v[k + 2 :].any()
                tau = 0 if idle else (beta - v[k + 1]) / beta
                v = v / (1 if idle else v[k + 1] - beta)
                v[k + 1] = 1
                turn = np.eye(n) - tau * np.outer(v, v)
                a = turn @ a @ turn
                u[i, k, :n], lines[0, i, k] = v, tau
            lines[1, i, :n], lines[2, i, : n - 1] = np.diag(a), np.diag(a, 1)
        return [u, *lines]

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        return plain(dense(size * self.n**2), dense(size * self.n * self.stride, *(size * self.stride,) * 3))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        return KernelCost(4 / 3 * self.count * self.n**3, size * self.n**2, size * self.n**2)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        n, stride, size = self.n, self.stride, self.dtype.itemsize
        x = pointer(f, arguments, 0)
        a, *vectors, _ = (f.at(scratch, offset) for offset in self._offsets)
        with f.loop(lo, hi) as item:
            reflectors = f.at(pointer(f, arguments, 1), item.index, n * stride * size)
            taus, d, e = (f.at(pointer(f, arguments, i), item.index, stride * size) for i in (2, 3, 4))
            self.cleared(f, a, self.scratch)
            self.cleared(f, reflectors, n * stride * size)
            for place in (taus, d, e):
                self.cleared(f, place, stride * size)
            self.read(f, f.at(x, item.index, n * n * size), a)
            unit, lost = self.scaled(f, a, stride * stride)
            with f.if_(lost), f.loop(0, n) as k:
                f.store(f.constant(self.scalar, float("nan")), f.at(d, k.index, size))

            def beside(k: Value, beta: Value, tau: Value, u: Value) -> None:
                f.store(beta * unit, f.at(e, k, size))
                f.store(tau, f.at(taus, k, size))
                f.call("memcpy", "ptr", f.at(reflectors, k, stride * size), u, f.constant("i64", stride * size))

            with f.if_(~lost):
                self.tridiagonal(f, isa, a, vectors, lambda k, x: f.store(x * unit, f.at(d, k, size)), beside)
        f.ret()


@final
class Reflected(OneByOne):
    """Reflectors, their tau, and vectors, in rows of ``stride``, to the vectors as columns, turned by all reflectors.

    A panel is as many reflectors as `GROUP` has lanes, which turn at once, as 1 - V T V^T; see `linalg_reflect`. An
    item is a block of vectors, which stand in scratch memory as columns, before a panel, its V^T V and what it takes.
    """

    def __init__(self, dtype: DType, count: int, n: int) -> None:
        super().__init__(dtype, count)
        self.n, self.stride = n, self.whole(n)
        self.columns = WIDTH * self.lanes
        self.blocks = -(-n // self.columns)
        self.items = count * self.blocks
        size, lanes = dtype.itemsize, self.lanes
        sizes = (self.stride * self.columns, self.stride * lanes, lanes * lanes, lanes * self.columns)
        self._offsets = tuple(int(x) * size for x in np.cumsum((0, *sizes)))
        self.scratch = self._offsets[-1]

    @property
    def key(self) -> str:
        return f"reflected({self.dtype.name},{self.count},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        u, taus, rows = (x.reshape(self.count, -1, self.stride).astype(np.float64) for x in xs)
        y = rows[..., : self.n].swapaxes(1, 2)
        for k in reversed(range(self.n)):
            v = u[:, k, : self.n, None]
            y = y - taus[:, :, k, None] * v @ (v.swapaxes(1, 2) @ y)
        return [y.astype(self.dtype)]

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        rows = size * self.n * self.stride
        return plain(dense(rows, size * self.stride, rows), dense(size * self.n**2))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        return KernelCost(2.0 * self.count * self.n**3, 2 * size * self.n**2, size * self.n**2)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        n, size, lanes = self.n, self.dtype.itemsize, self.lanes
        u, taus, x, y = (pointer(f, arguments, i) for i in range(4))
        z, panel, gram, taken, _ = (f.at(scratch, offset) for offset in self._offsets)
        panels, whole = -(-n // lanes), n * self.stride * size
        with f.loop(lo, hi) as item:
            which, start = item.index.udiv(self.blocks), item.index.urem(self.blocks) * self.columns
            reflectors = f.at(u, which, whole)
            self._turned(f, isa, f.at(x, which, whole), start, self.columns, z, f.constant("i64", 0))
            with f.loop(0, panels) as step:
                first = (panels - 1 - step.index) * lanes
                self._turned(f, isa, reflectors, first, lanes, panel, first)
                self._products(f, isa, panel, panel, lanes, first, gram)
                self._products(f, isa, panel, z, self.columns, first, taken)
                self._ordered(f, f.at(f.at(taus, which, self.stride * size), first, size), gram, taken)
                self._less(f, isa, panel, taken, first, z)
            valid = f.intrinsic("smin", "i64", f.constant("i64", n) - start, f.constant("i64", self.columns))
            with f.loop(0, n) as row:
                target = f.at(f.at(y, which, n * n * size), row.index * n + start, size)
                f.call("memcpy", "ptr", target, f.at(z, row.index * self.columns, size), valid * size)
        f.ret()

    def _turned(
        self, f: Function, isa: Isa, rows: Value, number: Value, count: int, columns: Value, first: Value
    ) -> None:
        """``count`` rows from ``number`` on to columns, from element ``first`` on; the last one for those behind it."""
        size = self.dtype.itemsize
        side = min(isa.lanes(size), self.lanes)
        type, last = vector(self.scalar, side), f.constant("i64", self.n - 1)
        with f.loop(0, count, side) as group:
            numbers = [f.intrinsic("smin", "i64", number + (group.index + i), last) for i in range(side)]
            lines = [f.at(rows, i, self.stride * size) for i in numbers]
            with f.loop(first, self.stride, side) as k:
                square = transposed(f, [f.load(type, f.at(line, k.index, size)) for line in lines])
                for i, line in enumerate(square):
                    place = f.at(columns, (k.index + i) * count + group.index, size)
                    f.store(line, place, side * size)

    def _products(
        self, f: Function, isa: Isa, panel: Value, right: Value, columns: int, first: Value, out: Value
    ) -> None:
        """The negatives of the products of the panel's columns with those of ``right``."""
        size, lanes = self.dtype.itemsize, self.lanes
        of = tile(isa, self.scalar, size, columns // isa.lanes(size), lanes)
        none = [[f.constant(of.type, 0.0)] * of.vectors] * of.rows
        with f.loop(0, columns, of.columns) as column, f.loop(0, lanes, of.rows) as row:
            there, left = f.at(right, column.index, size), f.at(panel, row.index, size)
            # Sums of sums: rounded less.
            with f.loop(first, self.n, DEPTH, [x for line in none for x in line]) as part:
                end = f.intrinsic("smin", "i64", part.index + DEPTH, f.constant("i64", self.n))
                found = of.less(f, none, left, (1, lanes), there, columns, (part.index, end))
                part.next(*(a + b for a, b in zip(part.carried, [x for line in found for x in line], strict=True)))
            flat = part.results
            found = [list(flat[i : i + of.vectors]) for i in range(0, len(flat), of.vectors)]
            of.store(f, found, [f.at(out, (row.index + r) * columns + column.index, size) for r in range(of.rows)])

    def _ordered(self, f: Function, taus: Value, gram: Value, taken: Value) -> None:
        """What each reflector takes away, the last one first, and so less from those before it."""
        lanes = self.lanes
        places = lambda r: [f.at(taken, r * WIDTH + v, GROUP) for v in range(WIDTH)]
        with f.loop(0, lanes) as step:
            r = lanes - 1 - step.index
            tau = f.splat(self.number(f, taus, r), lanes)
            # Where tau is 0 nothing is touched, whatever the product is.
            idle = f.splat(self.number(f, taus, r).eq(0.0), lanes)
            mine = [f.select(idle, 0.0, tau * self.line(f, place)) for place in places(r)]
            with f.loop(0, r) as other:
                factor = f.splat(self.number(f, gram, other.index * lanes + r), lanes)
                for place, x in zip(places(other.index), mine, strict=True):
                    f.store(f.fma(factor, x, self.line(f, place)), place, GROUP)
            for place, x in zip(places(r), mine, strict=True):
                f.store(-x, place, GROUP)

    def _less(self, f: Function, isa: Isa, panel: Value, taken: Value, first: Value, z: Value) -> None:
        """The vectors less what the panel takes away."""
        size, lanes = self.dtype.itemsize, self.lanes
        of = tile(isa, self.scalar, size, self.columns // isa.lanes(size), lanes)
        with f.loop(0, self.columns, of.columns) as column, f.loop(first, self.stride, of.rows) as row:
            places = [f.at(z, (row.index + r) * self.columns + column.index, size) for r in range(of.rows)]
            left, right = f.at(panel, row.index * lanes, size), f.at(taken, column.index, size)
            # The product first: one rounding of the vectors for a panel, not one for each reflector.
            none = [[f.constant(of.type, 0.0)] * of.vectors] * of.rows
            found = of.less(f, none, left, (lanes, 1), right, self.columns, (0, lanes))
            pairs = zip(of.load(f, places), found, strict=True)
            of.store(f, [[a + b for a, b in zip(x, y, strict=True)] for x, y in pairs], places)
