"""Eigenvalues of symmetric matrices and singular values, without vectors, of matrices one at a time.

Reflectors make a symmetric matrix tridiagonal, and another one bidiagonal (G. Golub, C. Van Loan, "Matrix
Computations", 8.3 and 5.4). Eigenvalues of a tridiagonal matrix are found without square roots, from the squares of
what is beside its diagonal (B. Parlett, "The Symmetric Eigenvalue Problem", 8.15: the method of Pal, Walker and Kahan),
in doubles.

The squares of the singular values of a bidiagonal matrix B are the eigenvalues of B^T B, which has too few digits for
the small ones unless B is of floats. They are, with both signs, also those of a tridiagonal matrix that has B's numbers
in turn beside a diagonal of zeros (Golub and Van Loan, 8.6), which is twice as large.

A matrix is divided by a power of two before, so that no square overflows. What is not finite has no values: NaN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import Box, KernelCost, OutputEffect, Touches, dense, plain, pointer
from nxjax.kernels.cpu.gemv import total
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import GROUP, DType, NDArray
from nxjax.kernels.cpu.linalg_bidiagonal import TwoSidedReduction
from nxjax.kernels.cpu.linalg_reflect import OneByOne
from nxjax.kernels.cpu.linalg_tridiagonal import SymmetricReduction
from nxjax.kernels.cpu.math_base import copysign, fabs
from nxjax.ops.linalg_eigen import eigh
from nxjax.ops.linalg_svd import svd

SWEEPS: Final = 30  # for one value; then what is small beside the whole matrix counts as zero
MOST: Final = 60
TINY: Final = 1e-140  # the square of what counts as zero beside a matrix whose largest number is 1 or so
_WIDE: Final = 8  # doubles that are compared together


class SpectralValues(OneByOne):
    """As many values as the matrix has columns, out of the eigenvalues of a tridiagonal one of ``size`` rows.

    In scratch memory: the matrix, vectors of its height or width, the diagonal, squares beside it, ascending values.
    """

    def __init__(self, dtype: DType, count: int, rows: int, columns: int, size: int, vectors: int) -> None:
        super().__init__(dtype, count)
        self.rows, self.k, self.size = rows, columns, size
        self.stride = self.whole(columns)
        self.read_bytes = rows * columns * dtype.itemsize
        self.high = self.whole(rows)
        self.eps = float(np.finfo(dtype).eps)
        line = max(self.stride, self.high) * dtype.itemsize
        doubles = -(-size // _WIDE) * _WIDE * 8
        sizes = (self.high * self.stride * dtype.itemsize, *(line,) * vectors, doubles, doubles)
        self._offsets = tuple(int(x) for x in np.cumsum((0, *sizes)))
        self.scratch = self._offsets[-1] + doubles

    @abstractmethod
    def read(self, f: Function, source: Value, a: Value) -> None:
        """An item's matrix to scratch memory, which is zero."""

    @abstractmethod
    def reduced(self, f: Function, isa: Isa, a: Value, vectors: Sequence[Value], d: Value, e: Value) -> None:
        """The diagonal and the squares beside it of the tridiagonal matrix, of the scaled one in scratch memory."""

    @abstractmethod
    def chosen(self, f: Function, values: Value, index: Value) -> Value:
        """Result ``index`` out of the ascending values, a double."""

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, arguments, lo, hi, scratch = self.function(module)
        size = self.dtype.itemsize
        x, y = pointer(f, arguments, 0), pointer(f, arguments, 1)
        a, *vectors, d, e, values = (f.at(scratch, offset) for offset in self._offsets)
        with f.loop(lo, hi) as item:
            self.cleared(f, a, self._offsets[-3])
            self.read(f, f.at(x, item.index, self.read_bytes), a)
            unit, lost = self.scaled(f, a, self.high * self.stride)
            out = f.at(y, item.index, self.k * size)
            with f.if_(lost), f.loop(0, self.k) as k:
                f.store(f.constant(self.scalar, float("nan")), f.at(out, k.index, size))
            with f.if_(~lost):
                self.cleared(f, d, self._offsets[-1] - self._offsets[-3])
                self.reduced(f, isa, a, vectors, d, e)
                self._solved(f, d, e)
                self._ordered(f, d, values)
                with f.loop(0, self.k) as k:
                    value = self.chosen(f, values, k.index).convert(self.scalar)
                    f.store(value * unit, f.at(out, k.index, size))
        f.ret()

    def _solved(self, f: Function, d: Value, e: Value) -> None:
        """The diagonal becomes the eigenvalues: one after the other from the front, by sweeps from its block's end."""
        last = f.constant("i64", self.size - 1)
        end, block, sweeps = (f.alloca("i64") for _ in range(3))
        f.store(last, end)
        with f.loop(0, self.size) as l:
            first, name = l.index, f.fresh("q")[1:]
            # A block ends where the one before it did, or further on where that is done.
            known = f.load("i64", end)
            limit = f.select(known.lt(first), last, known)
            with f.loop(0, limit - first, 1, (limit,)) as k:
                i = limit - 1 - k.index
                beside, around = self._double(f, e, i), (self._double(f, d, i), self._double(f, d, i + 1))
                k.next(f.select(self._small(f, beside, *around, f.constant("double", TINY)), i, k.carried[0]))
            f.store(limit, end)
            f.store(k.results[0], block)
            f.store(f.constant("i64", 0), sweeps)
            f.label(f"{name}.again")
            m, count = f.load("i64", block), f.load("i64", sweeps)
            f.branch_if(m.eq(first) | count.ge(MOST), f"{name}.done", f"{name}.sweep")
            f.label(f"{name}.sweep")
            f.store(m, end)
            small = f.select(count.ge(SWEEPS), f.constant("double", self.eps**2), TINY)
            f.store(self._swept(f, d, e, first, m, small), block)
            f.store(count + 1, sweeps)
            f.branch(f"{name}.again")
            f.label(f"{name}.done")

    def _double(self, f: Function, place: Value, index: Value) -> Value:
        return f.load("double", f.at(place, index, 8))

    def _small(self, f: Function, beside: Value, x: Value, y: Value, least: Value) -> Value:
        """Whether the square beside two numbers of the diagonal makes no difference to them."""
        return beside.le(fabs(f, x * y) * self.eps**2) | beside.le(least)

    def _swept(self, f: Function, d: Value, e: Value, first: Value, m: Value, least: Value) -> Value:
        """A step of the block from ``first`` to ``m``, shifted by an eigenvalue of its first two rows; its end then."""
        front, beside = self._double(f, d, first), self._double(f, e, first)
        root = f.intrinsic("sqrt", "double", beside)
        half = (self._double(f, d, first + 1) - front) / (root + root)
        length = f.intrinsic("sqrt", "double", f.fma(half, half, 1.0))
        shift = front - root / (half + copysign(f, length, half))
        gamma = self._double(f, d, m) - shift
        one, zero = f.constant("double", 1.0), f.constant("double", 0.0)
        with f.loop(0, m - first, 1, (one, zero, gamma, gamma * gamma, zero, m)) as k:
            i = m - 1 - k.index
            cosine, sine, gamma, p, after, end = k.carried
            beside, alpha = self._double(f, e, i), self._double(f, d, i)
            # The next cosine is p / r, the next sine beside / r. One division is waited for.
            r = p + beside
            inner = f.fma(p, alpha - shift, -(beside * gamma))
            following = inner / r
            corner, square = gamma + (alpha - following), sine * r
            f.store(corner, f.at(d, i + 1, 8))
            f.store(square, f.at(e, i + 1, 8))
            end = f.select(self._small(f, square, corner, after, least), i + 1, end)
            both = r * p
            p_next = f.select(both.gt(TINY**2), inner * inner / both, cosine * beside)
            k.next(p / r, beside / r, following, p_next, corner, end)
        _, sine, gamma, p, after, end = k.results
        square, corner = sine * p, shift + gamma
        f.store(square, f.at(e, first, 8))
        f.store(corner, f.at(d, first, 8))
        return f.select(self._small(f, square, corner, after, least), first, end)

    def _ordered(self, f: Function, d: Value, values: Value) -> None:
        """Each value to the place that has as many before it as are smaller, or equal and earlier."""
        whole = -(-self.size // _WIDE) * _WIDE
        with f.loop(self.size, whole) as k:
            f.store(f.constant("double", float("inf")), f.at(d, k.index, 8))
        type = vector("double", _WIDE)
        numbers, none = f.constants("i64", range(_WIDE)), f.constant(vector("i64", _WIDE), 0)
        with f.loop(0, self.size) as i:
            mine = self._double(f, d, i.index)
            spread, own = f.splat(mine, _WIDE), f.splat(i.index, _WIDE)
            with f.loop(0, whole, _WIDE, (none,)) as j:
                others = f.load(type, f.at(d, j.index, 8), GROUP)
                earlier = (numbers + f.splat(j.index, _WIDE)).lt(own)
                before = others.lt(spread) | (others.eq(spread) & earlier)
                j.next(j.carried[0] + before.convert(none.type))
            f.store(mine, f.at(values, total(f, j.results[0]), 8))


@final
class SymmetricValues(SymmetricReduction, SpectralValues):
    """[count, n, n], one triangle of which is read, to the ascending eigenvalues [count, n]."""

    def __init__(self, dtype: DType, count: int, n: int, lower: bool) -> None:
        super().__init__(dtype, count, n, n, n, 4)
        self.n, self.lower = n, lower

    @property
    def key(self) -> str:
        return f"eigenvalues({self.dtype.name},{self.count},{self.n},{self.lower:d})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return eigh.eval(xs[0].reshape(self.count, self.n, self.n), lower=self.lower)[1:]

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        return plain(dense(size * self.n**2), dense(size * self.n))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        return KernelCost(2.0 * self.count * self.n**3, size * self.n**2, size * self.n)

    def chosen(self, f: Function, values: Value, index: Value) -> Value:
        return self._double(f, values, index)

    def reduced(self, f: Function, isa: Isa, a: Value, vectors: Sequence[Value], d: Value, e: Value) -> None:
        def beside(k: Value, beta: Value, tau: Value, u: Value) -> None:
            wide = beta.convert("double")
            f.store(wide * wide, f.at(e, k, 8))

        self.tridiagonal(f, isa, a, vectors, lambda k, x: f.store(x.convert("double"), f.at(d, k, 8)), beside)


@final
class SingularValues(TwoSidedReduction, SpectralValues):
    """[count, m, n], m >= n, to the descending singular values [count, n].

    ``packed``: of R alone, which stands in the first n rows with something else below its diagonal.
    """

    def __init__(self, dtype: DType, count: int, m: int, n: int, *, packed: bool = False) -> None:
        self.product = dtype.itemsize == 4  # B^T B in doubles
        super().__init__(dtype, count, n if packed else m, n, n if self.product else 2 * n, 3)
        self.m, self.n, self.packed = m, n, packed
        self.read_bytes = m * n * dtype.itemsize

    @property
    def key(self) -> str:
        return f"singular_values({self.dtype.name},{self.count},{self.m},{self.n},{self.packed:d})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        x = xs[0].reshape(self.count, self.m, self.n)
        return svd.eval(np.triu(x[:, : self.n]) if self.packed else x, full_matrices=False, compute_uv=False)

    def touches(self) -> Touches:
        m, n, size = self.m, self.n, self.dtype.itemsize
        rows = tuple(Box((n - i) * size, (self.count,), (m * n * size,), i * (n + 1) * size) for i in range(n))
        ins = rows if self.packed else dense(self.count * m * n * size)
        return Touches((ins,), (OutputEffect(dense(self.count * n * size)),))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        flops = self.count * (4.0 * self.rows * self.n**2 + 60.0 * self.n**2)
        return KernelCost(flops, size * self.rows * self.n, size * self.n)

    def read(self, f: Function, source: Value, a: Value) -> None:
        n, size = self.n, self.dtype.itemsize
        with f.loop(0, self.rows) as row:
            skipped = row.index if self.packed else f.constant("i64", 0)
            there = f.at(a, row.index * self.stride + skipped, size)
            here = f.at(source, row.index * n + skipped, size)
            f.call("memcpy", "ptr", there, here, (f.constant("i64", n) - skipped) * size)

    def chosen(self, f: Function, values: Value, index: Value) -> Value:
        value = self._double(f, values, f.constant("i64", self.size - 1) - index)
        value = f.select(value.gt(0.0), value, 0.0)
        return f.intrinsic("sqrt", "double", value) if self.product else value

    def reduced(self, f: Function, isa: Isa, a: Value, vectors: Sequence[Value], d: Value, e: Value) -> None:
        last: list[Value] = []

        def diagonal(j: Value, beta: Value, tau: Value, column: Value) -> None:
            square = self._squared(f, beta)
            last[:] = [square]
            if self.product:
                f.store(self._double(f, d, j) + square, f.at(d, j, 8))
            else:
                f.store(square, f.at(e, j * 2, 8))

        def beside(j: Value, beta: Value, tau: Value, row: Value) -> None:
            square = self._squared(f, beta)
            if self.product:
                f.store(square, f.at(d, j + 1, 8))
                f.store(last[0] * square, f.at(e, j, 8))
            else:
                f.store(square, f.at(e, j * 2 + 1, 8))

        self.bidiagonal(f, a, vectors, diagonal, beside)

    def _squared(self, f: Function, x: Value) -> Value:
        wide = x.convert("double")
        return wide * wide
