"""Triangular systems and the Cholesky factorization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import mul, neg, sub
from nxjax.ops.base import Differentiable, NDArray, Tangent, equal_dtypes, like, move_batch
from nxjax.ops.linalg_base import EachMatrix, MatrixOp, conj, eye, mm, t, tril, triu
from nxjax.ops.shape import reshape
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType

_FLAGS: Final = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")


@final
class TriangularSolve(Differentiable, MatrixOp):
    """X with op(A) X = B (``left_side``) or X op(A) = B, where A is triangular.

    op(A) is A, transposed if ``transpose_a``, conjugated if ``conjugate_a``. Only the triangle that ``lower`` names is
    read, and with ``unit_diagonal`` not its diagonal, which counts as ones.
    """

    name = "triangular_solve"

    def infer(
        self,
        a: ArrayType,
        b: ArrayType,
        /,
        *,
        left_side: bool,
        lower: bool,
        transpose_a: bool,
        conjugate_a: bool,
        unit_diagonal: bool,
    ) -> ArrayType:
        batch, n, _ = self.matrix(a, b, square=True)
        equal_dtypes(self, a, b)
        side = -2 if left_side else -1
        if b.ndim != a.ndim or b.shape[:-2] != batch or b.shape[side] != n:
            raise ShapeError(
                "triangular_solve: right-hand side does not fit the matrix",
                got=f"{b} for {a}",
                expected=f"[{', '.join(map(str, (*batch, n, 'k') if left_side else (*batch, 'k', n)))}]",
            )
        return b

    def eval(self, a: NDArray, b: NDArray, /, **params: bool) -> NDArray:
        left_side, lower, transpose_a, conjugate_a, unit_diagonal = (params[name] for name in _FLAGS)
        if conjugate_a:
            a = a.conj()
        if transpose_a != (not left_side):
            a, lower = a.swapaxes(-1, -2), not lower
        x = np.array(b if left_side else b.swapaxes(-1, -2))
        n = a.shape[-1]
        for i in range(n) if lower else range(n - 1, -1, -1):
            known = slice(0, i) if lower else slice(i + 1, n)
            rest = np.matmul(a[..., i : i + 1, known], x[..., known, :])
            x[..., i : i + 1, :] -= rest
            if not unit_diagonal:
                x[..., i, :] /= a[..., i, i, None]
        return x if left_side else x.swapaxes(-1, -2)

    def tangents(self, x: Array, a: Array, b: Array, /, **params: bool) -> Sequence[Tangent | None]:
        left_side, lower, transpose_a, conjugate_a, unit_diagonal = (params[name] for name in _FLAGS)

        def solve(rhs: Array) -> Array:
            return self(a, rhs, **params)

        def by_matrix(ta: Array) -> Array:
            # A X = B gives A dX = dB - dA X. Of the two orders of the products, the cheaper one.
            k = 1 if unit_diagonal else 0
            da = neg(tril(ta, -k) if lower else triu(ta, k))
            da = t(da) if transpose_a else da
            da = conj(da) if conjugate_a else da
            m, n = b.shape[-2:]
            if left_side:
                return solve(mm(da, x)) if m > n else mm(solve(da), x)
            return solve(mm(x, da)) if m < n else mm(x, solve(da))

        return by_matrix, solve

    def transpose(self, ct: Array, a: Array, b: UndefinedPrimal, /, *, transpose_a: bool, **params: bool) -> Tangents:
        return None, self(a, ct, transpose_a=not transpose_a, **params)

    def batch(self, size: int, args: Arrays, dims: Dims, **params: bool) -> tuple[Any, Any]:
        a, b = args
        if dims[0] is not None or size == 0:
            return super().batch(size, args, dims, **params)
        # One matrix for all: the batch is more columns (rows) of the right-hand side.
        n = b.ndim - 1
        if params["left_side"]:
            b = move_batch(b, dims[1], size, n)
            wide = reshape(b, shape=(*b.shape[:-2], b.shape[-2] * size))
            return reshape(self(a, wide, **params), shape=b.shape), n
        b = move_batch(b, dims[1], size, n - 1)
        tall = reshape(b, shape=(*b.shape[:-3], b.shape[-3] * size, b.shape[-1]))
        return reshape(self(a, tall, **params), shape=b.shape), n - 1

    def stablehlo(self, builder: Any, out: ArrayType, a: Any, b: Any, /, **params: bool) -> Any:
        _, _, transpose_a, conjugate_a, _ = (params[name] for name in _FLAGS)
        if 0 in out.shape:
            return builder.constant(0, out)
        if conjugate_a and not transpose_a and a.type.dtype in dtypes.COMPLEX:
            a = builder.inline(conj, (a,))
        word = "NO_TRANSPOSE" if not transpose_a else "ADJOINT" if conjugate_a else "TRANSPOSE"
        flags = ("left_side", "lower", "unit_diagonal")
        attrs = ", ".join(f"{k} = {'true' if params[k] else 'false'}" for k in flags)
        attrs += f", transpose_a = #stablehlo<transpose {word}>"
        return builder.op("stablehlo.triangular_solve", (a, b), out, attrs)


@final
class Cholesky(Differentiable, EachMatrix):
    """The lower triangular L with L L^H = x.

    Reads the lower triangle of x only, which is Hermitian; gives NaN where it is not positive definite.
    """

    name = "cholesky"

    def infer(self, x: ArrayType, /) -> ArrayType:
        self.matrix(x, square=True)
        return x

    def eval(self, x: NDArray, /) -> NDArray:
        return np.tril(super().eval(x))

    def one(self, a: NDArray) -> Sequence[NDArray]:
        return [np.linalg.cholesky(a)]

    def tangents(self, y: Array, x: Array, /) -> Sequence[Tangent | None]:
        # Murray (2016), "Differentiation of the Cholesky decomposition": dL = L phi(L^-1 dx L^-H), where phi takes the
        # lower triangle and half of the diagonal.
        def push(tx: Array) -> Array:
            solve = {"lower": True, "unit_diagonal": False}
            right = triangular_solve(y, tx, left_side=False, transpose_a=True, conjugate_a=True, **solve)
            both = triangular_solve(y, right, left_side=True, transpose_a=False, conjugate_a=False, **solve)
            half = mul(eye(both), like(both, 0.5))
            weights = sub(tril(like(both, 1)), half)
            return mm(y, mul(both, weights))

        return (push,)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        if 0 in out.shape:
            return b.constant(0, out)
        y = b.op("stablehlo.cholesky", (x,), out, "lower = true")
        return b.inline(tril, (y,))


triangular_solve = TriangularSolve()
cholesky = Cholesky()
