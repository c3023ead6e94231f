"""Eigenvalues and eigenvectors of many small symmetric matrices, one matrix per lane, by Jacobi's rotations.

Sweep after sweep each pair of rows and columns is rotated so that the element between them is zero (G. Golub, C. Van
Loan, "Matrix Computations", 8.5), until no element is larger than a part of a rounding error. A lane that has come so
far is turned by nothing, whatever the others need: a matrix's result does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import GROUP, Batched, DType, NDArray
from nxjax.kernels.cpu.math_base import copysign, fabs, words
from nxjax.ops.linalg_eigen import eigh

SWEEPS: Final = 16  # at most; convergence is quadratic, and seven are what most matrices take


@final
class JacobiEigh(Batched):
    """[count, n, n], one triangle of which is read, to the vectors as columns and the ascending values [count, n]."""

    def __init__(self, dtype: DType, count: int, n: int, lower: bool) -> None:
        super().__init__(dtype, count)
        self.n, self.lower = n, lower
        # The matrix, the vectors as rows, the values, and which lanes were turned.
        self.scratch = (2 * n * n + n + 1) * GROUP

    @property
    def key(self) -> str:
        return f"eigh({self.dtype.name},{self.count},{self.n},{self.lower:d})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return eigh.eval(xs[0].reshape(self.count, self.n, self.n), lower=self.lower)

    def touches(self) -> Touches:
        size = self.count * self.dtype.itemsize
        return plain(dense(size * self.n**2), dense(size * self.n**2, size * self.n))

    def cost(self) -> KernelCost:
        nbytes = self.count * self.n**2 * self.dtype.itemsize
        return KernelCost(40.0 * self.count * self.n**3, nbytes, nbytes)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        n, size = self.n, self.dtype.itemsize
        x, y, w = (pointer(f, words, i) for i in range(3))
        vectors = f.at(scratch, n * n, GROUP)
        values, turned = f.at(vectors, n * n, GROUP), f.at(vectors, n * n + n, GROUP)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            # The lower triangle is worked on; the upper one is its transpose.
            steps = (n * n, n, 1) if self.lower else (n * n, 1, n)
            self.spread(f, scratch, valid, f.at(x, first, n * n * size), (n, n), steps)
            largest, lost = self._scaled(f, scratch, vectors)
            f.store(f.constant(self.vector, 1.0), turned, GROUP)
            with f.loop(0, SWEEPS):
                any_ = f.intrinsic("vector.reduce.or", "i1", self.load(f, turned).ne(0.0))
                with f.if_(any_):
                    f.store(f.constant(self.vector, 0.0), turned, GROUP)
                    with f.loop(0, n - 1) as p, f.loop(p.index + 1, n) as q:
                        self._rotated(f, scratch, vectors, turned, p.index, q.index)
            with f.loop(0, n) as i:
                value = self.load(f, self.slot(f, scratch, n, i.index, i.index)) * largest
                f.store(f.select(lost, float("nan"), value), f.at(values, i.index, GROUP), GROUP)
            with f.loop(0, n - 1) as i, f.loop(i.index + 1, n) as j:
                self._ordered(f, vectors, values, i.index, j.index)
            with f.loop(0, n * n) as i:
                place = f.at(vectors, i.index, GROUP)
                f.store(f.select(lost, float("nan"), self.load(f, place)), place, GROUP)
            self.gathered(f, vectors, valid, f.at(y, first, n * n * size), (n, n), (n * n, 1, n))
            self.gathered(f, values, valid, f.at(w, first, n * size), (1, n), (n, n, 1))
        f.ret()

    def _scaled(self, f: Function, scratch: Value, vectors: Value) -> tuple[Value, Value]:
        """The matrix divided by its largest element, the identity; that element, and the lanes without an answer."""
        n = self.n
        zero = f.constant(self.vector, 0.0)
        with f.loop(0, n, 1, (zero, zero)) as row:
            with f.loop(0, row.index + 1, 1, row.carried) as column:
                v = self.load(f, self.slot(f, scratch, n, row.index, column.index))
                largest, sick = column.carried
                size = fabs(f, v)
                column.next(f.select(size.gt(largest), size, largest), sick + v * 0.0)
            row.next(*column.results)
        largest, sick = row.results
        lost = sick.is_nan()
        largest = f.select(largest.eq(0.0) | lost, 1.0, largest)
        with f.loop(0, n) as row, f.loop(0, n) as column:
            place = self.slot(f, scratch, n, row.index, column.index)
            v = self.load(f, place) / largest
            f.store(f.select(lost, 0.0, v), place, GROUP)
            one = f.select(row.index.eq(column.index), f.constant(self.scalar, 1.0), 0.0)
            f.store(f.splat(one, self.lanes), self.slot(f, vectors, n, row.index, column.index), GROUP)
        return largest, lost

    def _rotated(self, f: Function, scratch: Value, vectors: Value, turned: Value, p: Value, q: Value) -> None:
        """Rows and columns p < q, in the lanes whose element between them is not small."""
        n = self.n
        at = lambda i, j: self.slot(f, scratch, n, i, j)
        between = self.load(f, at(q, p))
        large = fabs(f, between).gt(float(np.finfo(self.dtype).eps) / 16)
        with f.if_(f.intrinsic("vector.reduce.or", "i1", large)):
            # No choice of what stands there already: LLVM would make masked stores of it, which AMD's processors take
            # long for.
            f.store(self.load(f, turned) + f.select(large, f.constant(self.vector, 1.0), 0.0), turned, GROUP)
            first, last = self.load(f, at(p, p)), self.load(f, at(q, q))
            ratio = (last - first) / (between + between)
            root = f.intrinsic("sqrt", self.vector, f.fma(ratio, ratio, 1.0))
            tangent = copysign(f, 1.0 / (fabs(f, ratio) + root), ratio)
            tangent = f.select(large, tangent, 0.0)
            cosine = 1.0 / f.intrinsic("sqrt", self.vector, f.fma(tangent, tangent, 1.0))
            sine = tangent * cosine
            f.store(f.fma(-tangent, between, first), at(p, p), GROUP)
            f.store(f.fma(tangent, between, last), at(q, q), GROUP)
            f.store(between * f.select(large, f.constant(self.vector, 0.0), 1.0), at(q, p), GROUP)

            def turn(a: Value, b: Value) -> None:
                x, y = self.load(f, a), self.load(f, b)
                f.store(x * cosine - y * sine, a, GROUP)
                f.store(f.fma(x, sine, y * cosine), b, GROUP)

            with f.loop(0, p) as k:
                turn(at(p, k.index), at(q, k.index))
            with f.loop(p + 1, q) as k:
                turn(at(k.index, p), at(q, k.index))
            with f.loop(q + 1, n) as k:
                turn(at(k.index, p), at(k.index, q))
            with f.loop(0, n) as k:
                turn(self.slot(f, vectors, n, p, k.index), self.slot(f, vectors, n, q, k.index))

    def _ordered(self, f: Function, vectors: Value, values: Value, i: Value, j: Value) -> None:
        """Values i and j and their vectors, exchanged in the lanes where the second one is smaller."""
        n = self.n
        places = f.at(values, i, GROUP), f.at(values, j, GROUP)
        a, b = (self.load(f, p) for p in places)
        swap = b.lt(a)
        with f.if_(f.intrinsic("vector.reduce.or", "i1", swap)):
            self._exchanged(f, swap, *places)
            with f.loop(0, n) as k:
                self._exchanged(f, swap, *(self.slot(f, vectors, n, row, k.index) for row in (i, j)))

    def _exchanged(self, f: Function, swap: Value, here: Value, there: Value) -> None:
        x, y = (words(self.load(f, place)) for place in (here, there))
        difference = f.select(swap, x ^ y, 0)
        f.store(x ^ difference, here, GROUP)
        f.store(y ^ difference, there, GROUP)
