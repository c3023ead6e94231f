"""Eigenvalues and eigenvectors: of Hermitian matrices (`eigh`) and of any (`eig`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import GradientError, LoweringError
from nxjax.ops.argreduce import argmax
from nxjax.ops.arithmetic import abs as abs_
from nxjax.ops.arithmetic import add, div, mul, neg, rem, sqrt, sub
from nxjax.ops.base import NDArray, like, zeros
from nxjax.ops.compare import eq, ge, lt
from nxjax.ops.complex import complex as complex_
from nxjax.ops.complex import imag
from nxjax.ops.convert import cast
from nxjax.ops.linalg_base import (
    EachMatrix,
    along_columns,
    along_rows,
    column,
    conj,
    diagonal,
    eye,
    finite,
    h,
    index,
    loop,
    mm,
    real,
    symmetrized,
    tril,
    triu,
    where,
    with_column,
)
from nxjax.ops.linalg_lu import solve
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import dynamic_slice
from nxjax.ops.sort import sort
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType

# Jacobi's method converges quadratically; ten sweeps are enough for double precision at any size in use.
SWEEPS = 10


def _gaps(w: Array) -> Array:
    """1 / (w_j - w_i), zero on the diagonal."""
    shape = (*w.shape, w.shape[-1])
    difference = sub(along_rows(w, shape), along_columns(w, shape))
    one = eye(difference)
    return sub(div(like(difference, 1), add(difference, one)), one)


@final
class Eigh(EachMatrix):
    """Eigenvectors (columns) and ascending eigenvalues of Hermitian matrices, of which one triangle is read."""

    name = "eigh"
    multi = True

    def infer(self, x: ArrayType, /, *, lower: bool) -> tuple[ArrayType, ...]:
        batch, n, _ = self.matrix(x, square=True)
        return x.strong(), ArrayType((*batch, n), dtypes.real_part(x.dtype))

    def one(self, a: NDArray, *, lower: bool) -> Sequence[NDArray]:
        finite((np.tril if lower else np.triu)(a))
        w, v = np.linalg.eigh(a, "L" if lower else "U")
        return v, w

    def jvp(self, primals: Arrays, tangents: Tangents, *, lower: bool) -> tuple[Any, Any]:
        (x,), (tx,) = primals, tangents
        if tx is None:
            return self(x, lower=lower), (None, None)
        # Giles (2008), "An extended collection of matrix derivative results", 3.1, for distinct eigenvalues: with
        # C = V^H dx V, dw is the diagonal of C and dV = V (F * C) with F_ij = 1 / (w_j - w_i).
        v, w = self(symmetrized(x), lower=lower)
        c = mm(mm(h(v), tx), v)
        return (v, w), (mm(v, mul(_gaps(cast(w, x.dtype)), c)), real(diagonal(c)))

    def stablehlo(self, b: Any, out: Any, x: Any, /, *, lower: bool) -> Any:
        """Cyclic Jacobi rotations; see Golub and Van Loan, "Matrix Computations", 8.5."""
        n = x.type.shape[-1]
        if 0 in x.type.shape:
            return x, b.constant(0, out[1])
        start = b.inline(lambda a: [_hermitian_of(a, lower), eye(a)], (x,))
        a, v, *_ = loop(b, SWEEPS * n * n, _rotate, *start)
        return b.inline(_sorted, (a, v))


def _hermitian_of(a: Array, lower: bool) -> Array:
    """The Hermitian matrix of one triangle, with a real diagonal."""
    kept = tril(a, -1) if lower else triu(a, 1)
    return add(add(kept, h(kept)), mul(eye(a), along_rows(cast(real(diagonal(a)), a.dtype), a.shape)))


def rotation(app: Array, aqq: Array, apq: Array) -> tuple[Array, Array]:
    """Cosine (real) and sine of the rotation that makes [[app, apq], [conj(apq), aqq]] diagonal.

    ``app`` and ``aqq`` are real vectors; where apq is zero, it is the identity. The rotation's columns are
    (c, -conj(s)) and (s, c).
    """
    size = sqrt(real(mul(apq, conj(apq)))) if apq.dtype in dtypes.COMPLEX else abs_(apq)
    none = eq(size, 0)
    safe = where(none, like(size, 1), size)
    tau = div(sub(aqq, app), mul(safe, like(safe, 2)))
    root = sqrt(add(like(tau, 1), mul(tau, tau)))
    sign = where(ge(tau, like(tau, 0)), like(tau, 1), like(tau, -1))
    tangent = where(none, zeros(size.type), div(sign, add(abs_(tau), root)))
    c = div(like(tangent, 1), sqrt(add(like(tangent, 1), mul(tangent, tangent))))
    phase = div(apq, cast(safe, apq.dtype))
    return c, mul(cast(mul(tangent, c), apq.dtype), phase)


def _rotate(i: Array, a: Array, v: Array) -> Arrays:
    """Rotation i of the sweeps over all pairs of columns; i runs over all pairs (p, q), those with p < q rotate."""
    n = a.shape[-1]
    place = rem(i, like(i, n * n))
    p, q = div(place, like(i, n)), rem(place, like(i, n))
    cp, cq = column(a, p), column(a, q)
    app, aqq, apq = real(element(cp, p)), real(element(cq, q)), element(cq, p)
    idle = along_columns(lt(p, q), apq.shape)
    c, s = rotation(app, aqq, where(idle, apq, zeros(apq.type)))
    c, s = (along_columns(cast(v, a.dtype), cp.shape) for v in (c, s))

    def turned(x: Array, y: Array) -> tuple[Array, Array]:
        """Two columns times the rotation."""
        return sub(mul(x, c), mul(y, conj(s))), add(mul(x, s), mul(y, c))

    def columns(m: Array) -> Array:
        x, y = turned(column(m, p), column(m, q))
        # p = q only where nothing rotates.
        return with_column(with_column(m, p, x), q, y)

    a = columns(a)
    return h(columns(h(a))), columns(v)


def element(x: Array, i: Array) -> Array:
    """Element ``i`` (a scalar) of vectors."""
    zero = like(i, 0)
    found = dynamic_slice(x, *(zero,) * (x.ndim - 1), i, slice_sizes=(*x.shape[:-1], 1))
    return reshape(found, shape=x.shape[:-1])


def _sorted(a: Array, v: Array) -> Arrays:
    w = real(diagonal(a))
    order = ascending(w)
    row = reshape(w, shape=(*w.shape[:-1], 1, w.shape[-1]))
    return [ordered(v, order), reduce_sum(ordered(row, order), axes=(w.ndim - 1,))]


def ascending(w: Array) -> Array:
    """Positions of the elements of vectors in ascending order."""
    return sort(w, index(w.shape, -1), dimension=w.ndim - 1, is_stable=True, num_keys=1)[1]


def ordered(v: Array, order: Array) -> Array:
    """The columns of matrices in the order of ``order``."""
    shape = (*v.shape[:-2], v.shape[-1], order.shape[-1])
    choice = eq(index(shape, -2), along_rows(order, shape))
    return mm(v, cast(choice, v.dtype))


@final
class Eig(EachMatrix):
    """Eigenvalues, then left and right eigenvectors (columns) as asked for, of any square matrices; all complex.

    Eigenvectors have norm 1 and a real largest component. ``derivative`` allows to differentiate them, which is right
    only where eigenvalues are distinct.
    """

    name = "eig"
    multi = True

    def infer(self, x: ArrayType, /, *, left: bool, right: bool, derivative: bool) -> tuple[ArrayType, ...]:
        self.matrix(x, square=True)
        dtype = dtypes.complex_of(x.dtype)
        vectors = ArrayType(x.shape, dtype)
        return (ArrayType(x.shape[:-1], dtype), *(vectors,) * (left + right))

    def one(self, a: NDArray, *, left: bool, right: bool, derivative: bool) -> Sequence[NDArray]:
        w, v = np.linalg.eig(finite(a))
        found = [w]
        if left:
            # u^H a = w u^H: the rows of V^-1, if there is one.
            u = np.linalg.inv(v).conj().swapaxes(-1, -2)
            u = u / np.linalg.norm(u, axis=0)
            if np.iscomplexobj(u) and u.size:
                top = np.take_along_axis(u, np.argmax(np.abs(u), axis=0)[None], 0)
                u = u * (top.conj() / np.abs(top))
            found.append(u)
        return [*found, v] if right else found

    def jvp(self, primals: Arrays, tangents: Tangents, *, left: bool, right: bool, derivative: bool) -> tuple[Any, Any]:
        (x,), (tx,) = primals, tangents
        count = 1 + left + right
        if tx is None:
            return self(x, left=left, right=right, derivative=derivative), (None,) * count
        if (left or right) and not derivative:
            raise GradientError(
                "eig: eigenvectors have no derivative unless asked for",
                got="eigenvectors of a matrix that is being differentiated",
                fix="use eigvals, or lax.linalg.eig(..., enable_eigvec_derivs=True) where eigenvalues are distinct",
            )
        found = self(x, left=left, right=True, derivative=derivative)
        w, v = found[0], found[-1]
        ta = cast(tx, v.dtype)
        dw, dv = _vector_tangents(w, v, ta)
        ys, ts = [w], [dw]
        if left:
            ys.append(found[1])
            ts.append(_vector_tangents(conj(w), found[1], h(ta))[1])
        if right:
            ys.append(v)
            ts.append(dv)
        return tuple(ys), tuple(ts)

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        raise LoweringError(
            "eig: has no lowering to StableHLO",
            got=xs[0].type,
            fix="run it on the CPU, where LAPACK answers, or use eigh if the matrix is Hermitian",
        )


def _vector_tangents(w: Array, v: Array, ta: Array) -> tuple[Array, Array]:
    """Tangents of eigenvalues and right eigenvectors.

    Giles (2008), 3.1: with C = V^-1 dA V, dw is the diagonal of C and dV = V (F * C), up to a multiple of each vector,
    which its norm and the real largest component fix.
    """
    if 0 in v.shape:  # which has no largest component
        return w, v
    c = mm(solve(v, ta), v)
    u = mm(v, mul(_gaps(w), c))
    rows = v.ndim - 2
    largest = argmax(abs_(v), axes=(rows,), index_dtype=dtypes.int32)
    mask = cast(eq(index(v.shape, -2), along_rows(largest, v.shape)), v.dtype)
    total = lambda x: reduce_sum(x, axes=(rows,))
    along = real(total(mul(conj(v), u)))
    turn = div(imag(total(mul(mask, u))), real(total(mul(mask, v))))
    fixed = complex_(neg(along), neg(turn))
    return diagonal(c), add(u, mul(v, along_rows(fixed, v.shape)))


eigh = Eigh()
eig = Eig()
