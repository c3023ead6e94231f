"""Factorizations and triangular systems: small matrices by kernels, in lanes or one by one, large ones by LAPACK."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP
from nxjax.kernels.cpu.linalg_bidiagonal import ToBidiagonal
from nxjax.kernels.cpu.linalg_columns import WIDTH as COLUMNS
from nxjax.kernels.cpu.linalg_columns import kernel as solver
from nxjax.kernels.cpu.linalg_eigen import JacobiEigh
from nxjax.kernels.cpu.linalg_panels import kernel as factor
from nxjax.kernels.cpu.linalg_qr import Geqrf, HouseholderProduct
from nxjax.kernels.cpu.linalg_reflect import GeqrfPanels, HouseholderProductPanels
from nxjax.kernels.cpu.linalg_rows import kernel as factorizer
from nxjax.kernels.cpu.linalg_tridiagonal import Reflected, ToTridiagonal
from nxjax.kernels.cpu.linalg_values import SingularValues, SymmetricValues
from nxjax.lower.cpu.builder import Builder, NoKernel, View, dense_strides, rule
from nxjax.lower.cpu.lapack import bidiagonal_routine, tridiagonal_routine
from nxjax.lower.cpu.lower import inline_expansion
from nxjax.ops.linalg_svd import by_squares, by_triangle
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

SCRATCH = 1 << 19  # bytes that a group of matrices may take: about a core's second cache
ALL = 1 << 20  # bytes that one matrix may take, which a panel at a time is read of,
NARROW, LONG = 800, 1 << 13  # if it has more rows and columns than that, or sums of more, which would lose digits
MOST = 1 << 22  # bytes that a block of columns may take
TURNED, ALONE = 40, 12  # the largest matrices that are turned: many of them, and few
WORDS = {4: 1 << 22, 8: 1 << 19}  # elements, by their bytes, from which on LAPACK is quicker for eigenvalues alone
SQUARED = 36  # many matrices up to that have their singular vectors by their squares; of few, those below `ALONE`
VALUES = 16  # and many of them, if nobody reads the vectors
NEAR = 1 << 22  # bytes that a matrix may take which is made tridiagonal
DOUBLES = 128  # singular values from which on LAPACK is quicker, of doubles
LARGE = 1 << 22  # bytes of a matrix from which LAPACK's threads are quicker than an LU by one
PANELS = 512  # and than a Cholesky factorization by panels
PROMISED = 1 << 27  # the same, where LAPACK may not help out


def _most() -> int:
    return PROMISED if isa.current().reproducible else MOST


def _fill(count: int, size: int) -> bool:
    """Whether so many matrices, one in each lane, fill half of a vector."""
    return 2 * count * size >= GROUP


def _way(x: ArrayType, words: int, rooms: int = 1) -> tuple[int, bool]:
    """How many matrices ``x`` has, and whether they are quicker in lanes than one by one; else LAPACK is quicker.

    ``words``: elements of a matrix, which takes ``rooms`` times as many in lanes.
    """
    if x.dtype not in DTYPES:
        raise NoKernel("LAPACK's, for complex numbers")
    count = math.prod(x.shape[:-2])
    if not x.size or words == 0:
        raise NoKernel("nothing to compute")
    if isa.current().reproducible:  # one order of sums
        if words * rooms * GROUP > PROMISED:
            raise NoKernel("too large")
        return count, True
    if words * rooms * GROUP <= SCRATCH and _fill(count, x.dtype.itemsize):
        return count, True
    small, large = sorted(x.shape[-2:])
    if words * x.dtype.itemsize > ALL and (small > NARROW or large > LONG):
        raise NoKernel("LAPACK's, for large matrices")
    return count, False


def _transpose(v: View) -> View:
    """Matrices whose rows are the columns of those in ``v``, without a copy."""
    *batch, m, n = v.shape
    return View(v.ref, (*batch, n, m), (*v.strides[:-2], v.strides[-1], v.strides[-2]), v.dtype)


@rule("cholesky")
def cholesky(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type = e.inputs[0].type
    n = type.shape[-1]
    if type.dtype not in DTYPES or not type.size or (n >= PANELS and not isa.current().reproducible):
        raise NoKernel("LAPACK's, for large matrices and complex numbers, or nothing to compute")
    ins, y = b.dense(x), b.new(e.outputs[0].type)
    b.call(factor(type.dtype, math.prod(type.shape[:-2]), n), (ins,), (y,))
    return (y,)


@rule("triangular_solve")
def triangular_solve(b: Builder, e: Equation, a: Any, rhs: Any) -> Sequence[Any]:
    p, out = e.params, e.outputs[0].type
    left = p["left_side"]
    n = e.inputs[0].type.shape[-1]
    k = out.shape[-1 if left else -2]
    if out.dtype not in DTYPES or not out.size or n * COLUMNS * GROUP > _most():
        raise NoKernel("complex numbers, nothing to compute, or too large")
    # X op(A) = B is op(A)^T X^T = B^T.
    transposed = p["transpose_a"] != (not left)
    upper = p["lower"] == transposed
    flags = {"transposed": transposed, "upper": upper, "unit": p["unit_diagonal"], "turned": not left}
    matrix = b.view(a)
    if k == 1 and not matrix.is_dense and (columns := _transpose(matrix)).is_dense:
        flags["transposed"], matrix = not transposed, columns
    ins, y = (b.dense(matrix), b.dense(rhs)), b.new(out)
    exact = isa.current().reproducible
    b.call(solver(out.dtype, math.prod(out.shape[:-2]), n, k, exact=exact, **flags), ins, (y,))
    return (y,)


@rule("lu")
def lu(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type = e.inputs[0].type
    m, n = type.shape[-2:]
    exact = isa.current().reproducible
    most = PROMISED if exact else LARGE
    if type.dtype not in DTYPES or not type.size or m * n * type.dtype.itemsize > most:
        ys = b.host(e, [x], "LAPACK's, for large matrices and complex numbers")
        if b.routine(e) is None:
            return ys
        # LAPACK leaves the columns of its factors contiguous.
        shape = (*type.shape[:-2], n, m)
        columns = View(ys[0].ref, shape, dense_strides(shape, type.dtype), type.dtype)
        return [_transpose(columns), *ys[1:]]
    kernel = factorizer(type.dtype, math.prod(type.shape[:-2]), m, n, exact=exact)
    ins, outs = b.dense(x), [b.new(v.type) for v in e.outputs]
    b.call(kernel, (ins,), outs)
    return outs


@rule("eigh")
def eigh(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type = e.inputs[0].type
    n = type.shape[-1]
    count = math.prod(type.shape[:-2])
    if type.dtype not in DTYPES or not type.size:
        raise NoKernel("LAPACK's, for complex numbers, or nothing to compute")
    if isa.current().reproducible:
        raise NoKernel("LAPACK's")
    many = _fill(count, type.dtype.itemsize)
    outs = [b.new(v.type) for v in e.outputs]
    if not b.reads[e.outputs[0]] and not (many and n <= VALUES) and n * n <= WORDS[type.dtype.itemsize]:
        b.call(SymmetricValues(type.dtype, count, n, e.params["lower"]), (b.dense(x),), outs[1:])
        return outs
    # Rotations take more arithmetic than LAPACK, in lanes that are to be full.
    if n > (TURNED if many else ALONE):
        routine = tridiagonal_routine(type.dtype)
        if routine is None or n * n * type.dtype.itemsize > NEAR:
            raise NoKernel("LAPACK's, for large matrices")
        new = partial(_rows, b, type.dtype, count, n)
        reflectors, taus, diagonal, beside, vectors = map(new, (n, 1, 1, 1, n))
        kernel = ToTridiagonal(type.dtype, count, n, e.params["lower"])
        b.call(kernel, (b.dense(x),), (reflectors, taus, diagonal, beside))
        b.library(e, routine, (diagonal, beside), (outs[1], vectors), "LAPACK's, of a tridiagonal matrix")
        b.call(Reflected(type.dtype, count, n), (reflectors, taus, vectors), outs[:1])
        return outs
    b.call(JacobiEigh(type.dtype, count, n, e.params["lower"]), (b.dense(x),), outs)
    return outs


@rule("svd")
def svd(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type, vectors = e.inputs[0].type, e.outputs[1:]
    m, n = type.shape[-2:]
    k, count, size = min(m, n), math.prod(type.shape[:-2]), type.dtype.itemsize
    if type.dtype not in DTYPES or not type.size:
        raise NoKernel("LAPACK's, for complex numbers, or nothing to compute")
    if isa.current().reproducible:
        raise NoKernel("LAPACK's")
    if any(b.reads[v] for v in vectors):
        return _singular_vectors(b, e, x)
    packed = m + n >= 3 * k  # R has the same singular values
    if (size == 8 and k > DOUBLES) or (k if packed else m + n - k) * k * size > (MOST if size == 4 else ALL):
        raise NoKernel("LAPACK's, for large matrices")
    v = b.view(x)
    v = b.dense(v if m >= n else _transpose(v))
    if packed:
        v = _reflected(b, v)[0]
    outs = [b.new(v.type) for v in e.outputs]
    b.call(SingularValues(type.dtype, count, m + n - k, k, packed=packed), (v,), outs[:1])
    return outs


def _singular_vectors(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    """Of square matrices, of which LAPACK has only the bidiagonal ones, and by these of others."""
    type = e.inputs[0].type
    *batch, m, n = type.shape
    routine, count, least = bidiagonal_routine(type.dtype), math.prod(batch), min(m, n)
    if m != n and e.params["full_matrices"]:
        raise NoKernel("LAPACK's, for a square of vectors of a matrix that is none")
    if type.dtype == dtypes.float32 and least < (SQUARED if _fill(count, dtypes.float64.itemsize) else ALONE):
        return inline_expansion(b, e, [x], by_squares)
    if routine is None or least < ALONE or least * least * type.dtype.itemsize > NEAR:
        raise NoKernel("LAPACK's, for vectors of very small and large matrices")
    if m != n:
        return inline_expansion(b, e, [x], by_triangle)
    new = partial(_rows, b, type.dtype, count, n)
    left, left_taus, right, right_taus, diagonal, above, us, vs = map(new, (n, 1, n, 1, 1, 1, n, n))
    values, u, vh = (b.new(v.type) for v in e.outputs)
    b.call(ToBidiagonal(type.dtype, count, n), (b.dense(x),), (left, left_taus, right, right_taus, diagonal, above))
    b.library(e, routine, (diagonal, above), (values, us, vs), "LAPACK's, of a bidiagonal matrix")
    turn = Reflected(type.dtype, count, n)
    b.call(turn, (left, left_taus, us), (u,))
    b.call(turn, (right, right_taus, vs), (vh,))
    return values, u, _transpose(vh)


def _rows(b: Builder, dtype: Any, count: int, n: int, rows: int) -> View:
    """Memory for rows of ``n`` elements, filled up to whole groups."""
    whole = -(-n * dtype.itemsize // GROUP) * GROUP // dtype.itemsize
    return b.new(ArrayType((count, rows, whole), dtype))


def _reflected(b: Builder, x: Any) -> list[View]:
    """The results of `geqrf`."""
    *batch, m, n = x.shape
    count, lanes = _way(ArrayType(x.shape, x.dtype), m * n)
    outs = [b.new(ArrayType(shape, x.dtype)) for shape in (x.shape, (*batch, min(m, n)))]
    b.call((Geqrf if lanes else GeqrfPanels)(x.dtype, count, m, n), (b.dense(x),), outs)
    return outs


@rule("geqrf")
def geqrf(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    return _reflected(b, x)


@rule("householder_product")
def householder_product(b: Builder, e: Equation, a: Any, taus: Any) -> Sequence[Any]:
    type, k = e.inputs[0].type, e.inputs[1].type.shape[-1]
    m, n = type.shape[-2:]
    count, lanes = _way(type, m * n * min(k, 1), 2)
    kernel = (HouseholderProduct if lanes else HouseholderProductPanels)(type.dtype, count, m, n, k)
    ins, y = (b.dense(a), b.dense(taus)), b.new(e.outputs[0].type)
    b.call(kernel, ins, (y,))
    return (y,)
