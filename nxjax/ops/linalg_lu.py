"""LU factorization with partial pivoting."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.argreduce import argmax
from nxjax.ops.arithmetic import abs as abs_
from nxjax.ops.arithmetic import add, div, mul, neg, sub
from nxjax.ops.base import NDArray, Nondifferentiable, constant, like, require, zeros
from nxjax.ops.compare import eq, gt, lt
from nxjax.ops.complex import complex, imag
from nxjax.ops.complex import real as real_part
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import gather
from nxjax.ops.linalg_base import (
    MatrixOp,
    along_columns,
    along_rows,
    column,
    eye,
    index,
    loop,
    mm,
    position_mask,
    resized,
    row,
    tril,
    triu,
    where,
)
from nxjax.ops.linalg_triangular import triangular_solve
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.select import clamp
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.ops.sort import sort
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType


@final
class Lu(MatrixOp):
    """P x = L U: the packed factors (L's unit diagonal left out), the row swaps and the permutation that they make.

    Swap ``pivots[k]`` exchanges rows k and ``pivots[k]`` in step k; row i of P x is row ``permutation[i]`` of x.
    """

    name = "lu"
    multi = True

    def infer(self, x: ArrayType, /) -> tuple[ArrayType, ...]:
        batch, m, n = self.matrix(x)
        return (
            x.strong(),
            ArrayType((*batch, min(m, n)), dtypes.int32),
            ArrayType((*batch, m), dtypes.int32),
        )

    def eval(self, x: NDArray, /) -> tuple[NDArray, ...]:
        *batch, m, n = x.shape
        a = np.array(x).reshape(math.prod(batch), m, n)
        every = np.arange(len(a))
        pivots = np.zeros((len(a), min(m, n)), np.int32)
        permutation = np.tile(np.arange(m, dtype=np.int32), (len(a), 1))
        for k in range(min(m, n)):
            p = k + np.argmax(_magnitude(a[:, k:, k]), axis=1)
            pivots[:, k] = p
            a[every, k], a[every, p] = a[every, p], a[every, k]
            permutation[every, k], permutation[every, p] = permutation[every, p], permutation[every, k]
            pivot = a[:, k, k]
            # A column of zeros stays one, and the factorization goes on, as in LAPACK.
            a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)[:, None]
            a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
        return a.reshape(x.shape), pivots.reshape(*batch, min(m, n)), permutation.reshape(*batch, m)

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Any, Any]:
        y, pivots, permutation = self(*primals)
        if tangents[0] is None:
            return (y, pivots, permutation), (None, None, None)
        # De Hoog, Anderssen, Lukas (2011), "Differentiation of matrix functionals using triangular factorization":
        # with F = L^-1 P dx U^-1, dL = L tril(F, -1) and dU = triu(F) U. L and U are made square with identities.
        m, n = y.shape[-2:]
        k = min(m, n)
        lower = add(tril(resized(y, m, m), -1), eye(y, m))
        beyond = sub(eye(y, n), _leading_eye(y, n, k))
        upper = add(triu(resized(y, n, n)), beyond)
        options = {"transpose_a": False, "conjugate_a": False}
        moved = permuted(tangents[0], permutation)
        left = triangular_solve(lower, moved, left_side=True, lower=True, unit_diagonal=True, **options)
        f = triangular_solve(upper, left, left_side=False, lower=False, unit_diagonal=False, **options)
        tangent = add(mm(lower, tril(f, -1)), mm(triu(f), upper))
        return (y, pivots, permutation), (tangent, None, None)

    def stablehlo(self, b: Any, out: Any, x: Any, /) -> Any:
        """The loop of `eval`, a rank-one update per step, with masks instead of shrinking blocks."""
        if 0 in x.type.shape:
            return x, b.constant(0, out[1]), b.inline(lambda: _positions(out[2]), ())
        start = b.inline(lambda: _positions(out[2]), ())
        return loop(b, min(x.type.shape[-2:]), _lu_step, x, b.constant(0, out[1]), start)


def _positions(type: ArrayType) -> Array:
    return index(type.shape, -1)


def _magnitude(x: NDArray) -> NDArray:
    """LAPACK's measure of a pivot."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype in dtypes.COMPLEX else np.abs(x)


def _lu_step(k: Array, a: Array, pivots: Array, permutation: Array) -> Arrays:
    c = column(a, k)
    size = add(abs_(real_part(c)), abs_(imag(c))) if a.dtype in dtypes.COMPLEX else abs_(c)
    rows = index(c.shape, -1)
    done = lt(rows, along_columns(k, c.shape))
    p = argmax(where(done, like(size, -1), size), axes=(size.ndim - 1,), index_dtype=dtypes.int32)
    here, there = position_mask(k, a.shape, -2), eq(index(a.shape, -2), along_columns(p, a.shape))
    first = row(a, k)
    other = reduce_sum(where(there, a, zeros(a.type)), axes=(a.ndim - 2,))
    # Row k last, since p may be k.
    a = where(here, along_rows(other, a.shape), where(there, along_rows(first, a.shape), a))
    at_k, at_p = (
        position_mask(k, permutation.shape, -1),
        eq(index(permutation.shape, -1), along_columns(p, permutation.shape)),
    )
    total = lambda mask: reduce_sum(where(mask, permutation, zeros(permutation.type)), axes=(permutation.ndim - 1,))
    one, two = along_columns(total(at_k), permutation.shape), along_columns(total(at_p), permutation.shape)
    permutation = where(at_k, two, where(at_p, one, permutation))
    pivots = where(position_mask(k, pivots.shape, -1), along_columns(p, pivots.shape), pivots)
    c = column(a, k)
    below = gt(rows, along_columns(k, c.shape))
    pivot = along_columns(
        reduce_sum(where(position_mask(k, c.shape, -1), c, zeros(c.type)), axes=(c.ndim - 1,)), c.shape
    )
    safe = where(eq(pivot, 0), like(pivot, 1), pivot)
    factors = where(below, div(c, safe), zeros(c.type))
    after = gt(index(other.shape, -1), along_columns(k, other.shape))
    update = mul(along_columns(factors, a.shape), along_rows(where(after, other, zeros(other.type)), a.shape))
    packed = along_columns(where(below, factors, c), a.shape)
    return where(position_mask(k, a.shape, -1), packed, sub(a, update)), pivots, permutation


def _leading_eye(x: Array, n: int, k: int) -> Array:
    """The identity with zeros after the first k places of the diagonal."""
    one = eye(x, n)
    return where(lt(index(one.shape, -1), k), one, zeros(one.type))


def permuted(x: Array, permutation: Array) -> Array:
    """The rows of matrices in the order of ``permutation``."""
    n = x.ndim - 2
    numbers = GatherDimensionNumbers(
        offset_dims=(n + 1,),
        collapsed_slice_dims=(n,),
        start_index_map=(n,),
        operand_batching_dims=tuple(range(n)),
        start_indices_batching_dims=tuple(range(n)),
    )
    indices = reshape(permutation, shape=(*permutation.shape, 1))
    sizes = (*(1,) * (n + 1), x.shape[-1])
    return gather(x, indices, dimension_numbers=numbers, slice_sizes=sizes, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def solve(a: Array, b: Array) -> Array:
    """The x with a x = b, for square matrices and right-hand sides that are matrices.

    Complex ones are real ones of twice the size, for which there is fast code::

        [Re a  -Im a] [Re x]   [Re b]
        [Im a   Re a] [Im x] = [Im b]
    """
    if a.dtype in dtypes.COMPLEX:
        n, column, row = a.shape[-1], a.ndim - 2, a.ndim - 1
        left = concatenate(real_part(a), imag(a), dimension=column)
        right = concatenate(neg(imag(a)), real_part(a), dimension=column)
        y = solve(concatenate(left, right, dimension=row), concatenate(real_part(b), imag(b), dimension=column))
        return complex(slice_axis(y, column, 0, n), slice_axis(y, column, n, 2 * n))
    factors, _, permutation = lu(a)
    return solve_factored(factors, permutation, b)


def solve_factored(factors: Array, permutation: Array, b: Array, trans: int = 0) -> Array:
    """The same from a's factorization; with ``trans`` 1 or 2, for a transposed or adjoint."""
    options = {"left_side": True, "transpose_a": trans > 0, "conjugate_a": trans == 2 and b.dtype in dtypes.COMPLEX}
    lower = {"lower": True, "unit_diagonal": True, **options}
    upper = {"lower": False, "unit_diagonal": False, **options}
    if not trans:
        return triangular_solve(factors, triangular_solve(factors, permuted(b, permutation), **lower), **upper)
    y = triangular_solve(factors, triangular_solve(factors, b, **upper), **lower)
    places = index(permutation.shape, -1)
    inverse = sort(permutation, places, dimension=permutation.ndim - 1, is_stable=True, num_keys=1)[1]
    return permuted(y, inverse)


@final
class LuPivotsToPermutation(Nondifferentiable, MatrixOp):
    """The permutation that a sequence of row swaps makes."""

    name = "lu_pivots_to_permutation"

    def core_ndim(self, **params: Any) -> int:
        return 1

    def infer(self, pivots: ArrayType, /, *, permutation_size: int) -> ArrayType:
        if pivots.dtype != dtypes.int32:
            raise DtypeError(f"{self}: pivots are int32", got=pivots)
        if pivots.ndim < 1:
            raise ShapeError(f"{self}: pivots are vectors", got=pivots, expected="at least 1 dimension")
        fits = permutation_size >= pivots.shape[-1]
        require(self, fits, "fewer rows than swaps", permutation_size, f"at least {pivots.shape[-1]}")
        return pivots.with_shape((*pivots.shape[:-1], permutation_size)).strong()

    def eval(self, pivots: NDArray, /, *, permutation_size: int) -> NDArray:
        flat = np.clip(pivots, 0, permutation_size - 1).reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
        if len(flat) < 16:  # a list's elements are exchanged in a hundredth of the time that an array's take
            rows = [list(range(permutation_size)) for _ in flat]
            for row, swaps in zip(rows, flat.tolist(), strict=True):
                for k, p in enumerate(swaps):
                    row[k], row[p] = row[p], row[k]
            y = np.array(rows, np.int32)
        else:
            y = np.tile(np.arange(permutation_size, dtype=np.int32), (len(flat), 1))
            every = np.arange(len(flat))
            for k, p in enumerate(flat.T):
                y[every, k], y[every, p] = y[every, p], y[every, k]
        return y.reshape(*pivots.shape[:-1], permutation_size)

    def stablehlo(self, b: Any, out: ArrayType, pivots: Any, /, *, permutation_size: int) -> Any:
        start = b.inline(lambda: _positions(out), ())
        steps = pivots.type.shape[-1]
        if not steps or 0 in out.shape:
            return start
        return loop(b, steps, _swap, start, pivots)[0]


def _swap(k: Array, y: Array, pivots: Array) -> Arrays:
    last = (y.ndim - 1,)
    p = reduce_sum(where(position_mask(k, pivots.shape, -1), pivots, zeros(pivots.type)), axes=last)
    p = clamp(constant(0, p.dtype), p, constant(y.shape[-1] - 1, p.dtype))
    at_k, at_p = position_mask(k, y.shape, -1), eq(index(y.shape, -1), along_columns(p, y.shape))
    one, two = (along_columns(reduce_sum(where(m, y, zeros(y.type)), axes=last), y.shape) for m in (at_k, at_p))
    return where(at_k, two, where(at_p, one, y)), pivots


lu = Lu()
lu_pivots_to_permutation = LuPivotsToPermutation()
