"""Matrices, one at a time, made bidiagonal by reflectors from both sides.

Reflectors are 1 - tau u u^T: of step j, one of columns whose u begins with a 1 at element j, and one of rows whose u
begins behind it (G. Golub, C. Van Loan, "Matrix Computations", 5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import GROUP, DType, NDArray
from nxjax.kernels.cpu.linalg_reflect import ROWS, OneByOne, sums

Written = Callable[[Value, Value, Value, Value], None]


class TwoSidedReduction(OneByOne):
    """``rows`` of ``n`` numbers in scratch memory, ``high`` rows of ``stride`` with what they are filled up with."""

    n: int
    rows: int
    high: int
    stride: int

    def bidiagonal(self, f: Function, a: Value, vectors: Sequence[Value], diagonal: Written, beside: Written) -> None:
        """``diagonal(j, x, tau, u)`` and ``beside(j, x, tau, u)`` for each element and its reflector.

        Column by column and row by row; a row is turned, multiplied and turned again while it is near.
        """
        n, size = self.n, self.dtype.itemsize
        column, left, u = vectors
        with f.loop(0, self.rows) as row:
            f.store(self.number(f, a, row.index * self.stride), f.at(column, row.index, size))
        with f.loop(0, n) as step:
            j = step.index
            beta, tau = self.reflector(f, column, j, self.high)
            diagonal(j, beta, tau, column)
            with f.if_((j + 1).lt(n)):
                factor, mine = f.splat(tau, self.lanes), f.at(a, j * self.stride, size)
                rows = self.begin(j, ROWS), self.high
                # From the vector on that ends with column j: what it has of the row before is to be cleared.
                with f.loop(self.begin(j), self.stride, self.lanes) as c:
                    found = self.inner_of_one(f, column, f.at(a, c.index, size), self.stride, rows) * factor
                    f.store(found, f.at(left, c.index, size), GROUP)
                    row = f.select(self.behind(f, c.index, j), self.line(f, mine, c.index) - found, 0.0)
                    f.store(row, f.at(u, c.index, size), GROUP)
                beta, tau = self.reflector(f, u, j + 1, self.stride)
                beside(j, beta, tau, u)
                with f.loop(self.begin(j, ROWS), self.rows, ROWS) as row:
                    self._turned(f, a, vectors, row.index, j, tau)

    def _turned(self, f: Function, a: Value, vectors: Sequence[Value], first: Value, j: Value, tau: Value) -> None:
        """Rows from ``first`` on, times both reflectors of step ``j``; and their elements of the next column."""
        column, left, u = vectors
        size = self.dtype.itemsize
        start = self.begin(j + 1)
        lines = [f.at(a, (first + r) * self.stride, size) for r in range(ROWS)]
        factors = [f.splat(-self.number(f, column, first + r), self.lanes) for r in range(ROWS)]
        with f.loop(start, self.stride, self.lanes, (f.constant(self.vector, 0.0),) * ROWS) as c:
            taken, next_ = self.line(f, left, c.index), self.line(f, u, c.index)
            found: list[Value] = []
            for line, factor, sum_ in zip(lines, factors, c.carried, strict=True):
                new = f.fma(factor, taken, self.line(f, line, c.index))
                f.store(new, f.at(line, c.index, size), GROUP)
                found.append(f.fma(new, next_, sum_))
            c.next(*found)
        inner = sums(f, c.results) * f.splat(-tau, ROWS)
        factors = [f.splat(f.extract(inner, r), self.lanes) for r in range(ROWS)]
        with f.loop(start, self.stride, self.lanes) as c:
            next_ = self.line(f, u, c.index)
            for line, factor in zip(lines, factors, strict=True):
                place = f.at(line, c.index, size)
                f.store(f.fma(factor, next_, f.load(self.vector, place, GROUP)), place, GROUP)
        for r, line in enumerate(lines):
            value = f.select((first + r).gt(j), self.number(f, line, j + 1), 0.0)
            f.store(value, f.at(column, first + r, size))


@final
class ToBidiagonal(TwoSidedReduction):
    """[count, n, n] to the reflectors' u and tau of columns, those of rows, the diagonal and what is above it.

    All in rows of ``stride``. A matrix that is not finite has a diagonal of NaN.
    """

    def __init__(self, dtype: DType, count: int, n: int) -> None:
        super().__init__(dtype, count)
        self.n, self.rows = n, n
        self.stride = self.high = self.whole(n)
        line = self.stride * dtype.itemsize
        self._offsets = tuple(int(x) for x in np.cumsum((0, line * self.stride, *(line,) * 3)))
        self.scratch = self._offsets[-1]

    @property
    def key(self) -> str:
        return f"bidiagonal({self.dtype.name},{self.count},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """Reflector by reflector, in doubles."""
        n, rows, lines = self.n, (self.count, self.n, self.stride), (self.count, self.stride)
        outs = [np.zeros(shape, self.dtype) for shape in (rows, lines, rows, lines, lines, lines)]
        for i, x in enumerate(xs[0].reshape(self.count, n, n).astype(np.float64)):
            a = x.copy()
            for j in range(n):
                outs[0][i, j, :n], outs[1][i, j] = _reflector(a[:, j], j)
                u = outs[0][i, j, :n].astype(np.float64)
                a -= outs[1][i, j] * np.outer(u, u @ a)
                if j + 1 < n:
                    outs[2][i, j, :n], outs[3][i, j] = _reflector(a[j], j + 1)
                    u = outs[2][i, j, :n].astype(np.float64)
                    a -= outs[3][i, j] * np.outer(a @ u, u)
            outs[4][i, :n], outs[5][i, : n - 1] = np.diag(a), np.diag(a, 1)
        return outs

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        rows, line = size * self.n * self.stride, size * self.stride
        return plain(dense(size * self.n**2), dense(rows, line, rows, line, line, line))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        return KernelCost(8 / 3 * self.count * self.n**3, size * self.n**2, 2 * size * self.n**2)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        n, stride, size = self.n, self.stride, self.dtype.itemsize
        line = stride * size
        a, *vectors, _ = (f.at(scratch, offset) for offset in self._offsets)
        with f.loop(lo, hi) as item:
            lengths = (n * line, line, n * line, line, line, line)
            outs = [f.at(pointer(f, arguments, i), item.index, length) for i, length in enumerate(lengths, 1)]
            for place, length in zip((a, *outs), (self.scratch, *lengths), strict=True):
                self.cleared(f, place, length)
            source = f.at(pointer(f, arguments, 0), item.index, n * n * size)
            with f.loop(0, n) as row:
                there, here = f.at(a, row.index, line), f.at(source, row.index, n * size)
                f.call("memcpy", "ptr", there, here, f.constant("i64", n * size))
            unit, lost = self.scaled(f, a, stride * stride)
            with f.if_(lost), f.loop(0, n) as k:
                f.store(f.constant(self.scalar, float("nan")), f.at(outs[4], k.index, size))

            def written(reflectors: Value, taus: Value, numbers: Value) -> Written:
                def write(j: Value, x: Value, tau: Value, u: Value) -> None:
                    f.store(x * unit, f.at(numbers, j, size))
                    f.store(tau, f.at(taus, j, size))
                    f.call("memcpy", "ptr", f.at(reflectors, j, line), u, f.constant("i64", line))

                return write

            with f.if_(~lost):
                columns, rows = written(outs[0], outs[1], outs[4]), written(outs[2], outs[3], outs[5])
                self.bidiagonal(f, a, vectors, columns, rows)
        f.ret()


def _reflector(x: NDArray, k: int) -> tuple[NDArray, float]:
    """The u, which begins with a 1 at element ``k``, and tau that clear what is behind it."""
    u = np.where(np.arange(len(x)) >= k, x, 0)
    first = u[k]
    beta = -np.copysign(np.linalg.norm(u), first)
    if not u[k + 1 :].any():
        return np.eye(len(x))[k], 0.0
    u /= first - beta
    u[k] = 1
    return u, (beta - first) / beta
