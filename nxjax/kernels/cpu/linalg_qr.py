"""Householder reflectors of many small matrices, one matrix per lane: `geqrf` and `householder_product`.

The conventions are LAPACK's: reflector k is 1 - tau v v^T, where v is 1 at row k and stands below the diagonal of
column k. Norms are taken of columns divided by their largest element, so that squares neither overflow nor vanish.
Sums along columns go in parts: one long sum loses digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import GROUP, Batched, DType, NDArray
from nxjax.kernels.cpu.math_base import copysign, fabs
from nxjax.ops.linalg_qr import geqrf, householder_product

_PART: Final = 512  # rows of a part of a sum


class Reflecting(Batched):
    """What the two have in common: matrices of ``m`` rows and ``n`` columns, ``k`` reflectors."""

    def __init__(self, dtype: DType, count: int, m: int, n: int, k: int) -> None:
        super().__init__(dtype, count)
        self.m, self.n, self.k = m, n, k

    def cost(self) -> KernelCost:
        nbytes = self.count * self.m * self.n * self.dtype.itemsize
        return KernelCost(4.0 * self.count * self.k * self.m * self.n / 2, nbytes, nbytes)

    def summed(
        self,
        f: Function,
        k: Value,
        begin: Sequence[Value],
        plus: Callable[[Value, Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """Sums over the rows after ``k`` that begin with ``begin``; ``plus`` adds a row's terms to such sums."""
        first, m = k + 1, f.constant("i64", self.m)
        with f.loop(first, m, _PART, begin) as part:
            is_first = part.index.eq(first)
            starts = [f.select(is_first, x, 0.0) for x in part.carried]
            with f.loop(part.index, f.intrinsic("smin", "i64", part.index + _PART, m), 1, starts) as row:
                row.next(*plus(row.index, row.carried))
            part.next(*(f.select(is_first, y, x + y) for x, y in zip(part.carried, row.results, strict=True)))
        return part.results

    def reflected(self, f: Function, vectors: Value, target: Value, k: Value, tau: Value, first: Value | int) -> None:
        """Reflector k (column k of ``vectors``) applied to columns ``first`` and on of ``target``, four at a time."""
        m, n = self.m, self.n
        start = f.value(first, "i64")
        whole = start + (f.constant("i64", n) - start).udiv(4) * 4
        idle = tau.eq(0.0)
        for lo, hi, width in ((start, whole, 4), (whole, n, 1)):
            with f.loop(lo, hi, width) as column:
                j = column.index
                tops = [self.slot(f, target, n, k, j + c) for c in range(width)]

                def plus(row: Value, totals: Sequence[Value], j: Value = j) -> Sequence[Value]:
                    v = self.load(f, self.slot(f, vectors, n, row, k))
                    found = [self.load(f, self.slot(f, target, n, row, j + c)) for c in range(len(totals))]
                    return [f.fma(v, x, total) for x, total in zip(found, totals, strict=True)]

                inners = self.summed(f, k, [self.load(f, top) for top in tops], plus)
                # Where tau is 0 nothing is touched, whatever the inner product is.
                factors = [f.select(idle, 0.0, inner * tau) for inner in inners]
                for top, factor in zip(tops, factors, strict=True):
                    f.store(self.load(f, top) - factor, top, GROUP)
                with f.loop(k + 1, m) as row:
                    v = self.load(f, self.slot(f, vectors, n, row.index, k))
                    for c, factor in enumerate(factors):
                        place = self.slot(f, target, n, row.index, j + c)
                        f.store(f.fma(-v, factor, self.load(f, place)), place, GROUP)


@final
class Geqrf(Reflecting):
    """[count, m, n] to the packed R and reflectors, and [count, min(m, n)] scalars tau."""

    def __init__(self, dtype: DType, count: int, m: int, n: int) -> None:
        super().__init__(dtype, count, m, n, min(m, n))
        self.scratch = (m * n + self.k) * GROUP

    @property
    def key(self) -> str:
        return f"geqrf({self.dtype.name},{self.count},{self.m},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return geqrf.eval(xs[0].reshape(self.count, self.m, self.n))

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        return plain(dense(size * self.m * self.n), dense(size * self.m * self.n, size * self.k))

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        m, n, k, size = self.m, self.n, self.k, self.dtype.itemsize
        x, y, scalars = (pointer(f, words, i) for i in range(3))
        taus = f.at(scratch, m * n, GROUP)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            self.spread(f, scratch, valid, f.at(x, first, m * n * size), (m, n), (m * n, n, 1))
            with f.loop(0, k) as step:
                tau = self._vector(f, scratch, step.index)
                f.store(tau, f.at(taus, step.index, GROUP), GROUP)
                self.reflected(f, scratch, scratch, step.index, tau, step.index + 1)
            self.gathered(f, scratch, valid, f.at(y, first, m * n * size), (m, n), (m * n, n, 1))
            self.gathered(f, taus, valid, f.at(scalars, first, k * size), (1, k), (k, k, 1))
        f.ret()

    def _vector(self, f: Function, scratch: Value, k: Value) -> Value:
        """Column k made into R's element and a reflector (LAPACK's larfg); its tau."""
        m, n = self.m, self.n
        corner = self.slot(f, scratch, n, k, k)
        alpha = self.load(f, corner)
        with f.loop(k + 1, m, 1, (f.constant(self.vector, 0.0),)) as row:
            (largest,) = row.carried
            other = fabs(f, self.load(f, self.slot(f, scratch, n, row.index, k)))
            row.next(f.select(other.gt(largest) | other.is_nan(), other, largest))
        (rest,) = row.results
        idle = rest.eq(0.0)
        unit = f.select(rest.lt(fabs(f, alpha)), fabs(f, alpha), rest)
        unit = f.select(idle | unit.eq(math.inf), 1.0, unit)  # as in LAPACK, an infinite column has an infinite norm
        scaled = alpha / unit

        def square(row: Value, totals: Sequence[Value]) -> Sequence[Value]:
            part = self.load(f, self.slot(f, scratch, n, row, k)) / unit
            return [f.fma(part, part, totals[0])]

        (norm,) = self.summed(f, k, [scaled * scaled], square)
        length = -copysign(f, f.intrinsic("sqrt", self.vector, norm), alpha)
        beta = length * unit
        # What is next to the smallest numbers has few digits, but not in parts of the unit.
        limits = np.finfo(self.dtype)
        tiny = unit.lt(float(limits.tiny) / float(limits.eps))
        divisor = f.select(idle, 1.0, f.select(tiny, scaled - length, alpha - beta))
        with f.loop(k + 1, m) as row:
            place = self.slot(f, scratch, n, row.index, k)
            x = self.load(f, place)
            f.store(f.select(tiny, x / unit, x) / divisor, place, GROUP)
        f.store(f.select(idle, alpha, beta), corner, GROUP)
        return f.select(idle, 0.0, f.select(tiny, (length - scaled) / length, (beta - alpha) / beta))


@final
class HouseholderProduct(Reflecting):
    """[count, m, n] packed reflectors and [count, k] scalars to the first n columns of their product."""

    def __init__(self, dtype: DType, count: int, m: int, n: int, k: int) -> None:
        super().__init__(dtype, count, m, n, k)
        self.scratch = (2 * m * n + k) * GROUP

    @property
    def key(self) -> str:
        return f"householder_product({self.dtype.name},{self.count},{self.m},{self.n},{self.k})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        a = xs[0].reshape(self.count, self.m, self.n)
        return [householder_product.eval(a, xs[1].reshape(self.count, self.k))]

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        return plain(dense(size * self.m * self.n, size * self.k), dense(size * self.m * self.n))

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        m, n, k, size = self.m, self.n, self.k, self.dtype.itemsize
        x, scalars, y = (pointer(f, words, i) for i in range(3))
        q, taus = f.at(scratch, m * n, GROUP), f.at(scratch, 2 * m * n, GROUP)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            self.spread(f, scratch, valid, f.at(x, first, m * n * size), (m, n), (m * n, n, 1))
            self.spread(f, taus, valid, f.at(scalars, first, k * size), (1, k), (k, k, 1))
            with f.loop(0, m) as row, f.loop(0, n) as column:
                one = f.select(row.index.eq(column.index), f.constant(self.scalar, 1.0), 0.0)
                f.store(f.splat(one, self.lanes), self.slot(f, q, n, row.index, column.index), GROUP)
            with f.loop(0, k) as step:
                number = f.constant("i64", k - 1) - step.index
                self.reflected(f, scratch, q, number, self.load(f, f.at(taus, number, GROUP)), 0)
            self.gathered(f, q, valid, f.at(y, first, m * n * size), (m, n), (m * n, n, 1))
        f.ret()
