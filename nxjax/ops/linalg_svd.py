"""Singular value decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import GradientError
from nxjax.ops.arithmetic import add, div, mul, neg, rem, sqrt, sub
from nxjax.ops.arithmetic import max as max_
from nxjax.ops.base import NDArray, like, zeros
from nxjax.ops.compare import eq, le, lt
from nxjax.ops.convert import cast
from nxjax.ops.linalg_base import (
    EachMatrix,
    along_columns,
    along_rows,
    column,
    conj,
    diagonal,
    eye,
    eye_of,
    finite,
    h,
    loop,
    mm,
    real,
    sub_columns,
    where,
    with_column,
)
from nxjax.ops.linalg_eigen import SWEEPS, ascending, eigh, ordered, rotation
from nxjax.ops.linalg_qr import qr
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.shape import reshape, rev
from nxjax.ops.slicing import concatenate
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType


@final
class Svd(EachMatrix):
    """x = U diag(s) V^H: descending s, then U and V^H if ``compute_uv``; square ones if ``full_matrices``."""

    name = "svd"
    multi = True

    def infer(self, x: ArrayType, /, *, full_matrices: bool, compute_uv: bool) -> tuple[ArrayType, ...]:
        batch, m, n = self.matrix(x)
        k = min(m, n)
        s = ArrayType((*batch, k), dtypes.real_part(x.dtype))
        if not compute_uv:
            return (s,)
        return (
            s,
            ArrayType((*batch, m, m if full_matrices else k), x.dtype),
            ArrayType((*batch, n if full_matrices else k, n), x.dtype),
        )

    def one(self, a: NDArray, *, full_matrices: bool, compute_uv: bool) -> Sequence[NDArray]:
        if not compute_uv:
            return [np.linalg.svd(finite(a), compute_uv=False)]
        u, s, vh = np.linalg.svd(finite(a), full_matrices=full_matrices)
        return s, u, vh

    def jvp(self, primals: Arrays, tangents: Tangents, *, full_matrices: bool, compute_uv: bool) -> tuple[Any, Any]:
        (x,), (tx,) = primals, tangents
        m, n = x.shape[-2:]
        if tx is None:
            y = self(x, full_matrices=full_matrices, compute_uv=compute_uv)
            return y, (None,) * len(y)
        if compute_uv and full_matrices and m != n:
            raise GradientError(
                "svd: the columns that complete U or V have no derivative",
                got=f"full_matrices=True for {x.type}",
                fix="use full_matrices=False",
            )
        # Giles (2008), 3.2, with the phases of Wan and Zhang (2019), "Automatic differentiation for complex valued
        # SVD", for distinct singular values: C = U^H dx V, F_ij = 1 / (s_j^2 - s_i^2).
        s, u, vh = self(x, full_matrices=False, compute_uv=True)
        v = h(vh)
        c = mm(mm(h(u), tx), v)
        ds = real(diagonal(c))
        if not compute_uv:
            return (s,), (ds,)
        shape = c.shape
        rows, columns = along_rows(s, shape), along_columns(s, shape)
        one = eye(rows)
        f = sub(div(like(one, 1), add(mul(add(rows, columns), sub(rows, columns)), one)), one)
        f, right, left = (cast(z, x.dtype) for z in (f, rows, columns))

        zero = eq(s, like(s, 0))
        inverse = where(zero, like(s, 0), div(like(s, 1), where(zero, like(s, 1), s)))
        scale = along_rows(cast(inverse, x.dtype), shape)
        cs, sc = mul(c, right), mul(c, left)
        phase = mul(mul(sub(c, h(c)), mul(scale, eye(c))), like(c, 0.5))
        du = mm(u, add(mul(f, add(cs, h(cs))), phase))
        dv = mm(v, mul(f, add(sc, h(sc))))
        if m > n:
            ax = mm(tx, v)
            du = add(du, mul(sub(ax, mm(u, mm(h(u), ax))), along_rows(cast(inverse, x.dtype), ax.shape)))
        if n > m:
            ax = mm(h(tx), u)
            dv = add(dv, mul(sub(ax, mm(v, mm(h(v), ax))), along_rows(cast(inverse, x.dtype), ax.shape)))
        return (s, u, vh), (ds, du, h(dv))

    def stablehlo(self, b: Any, out: Any, x: Any, /, *, full_matrices: bool, compute_uv: bool) -> Any:
        """One-sided Jacobi rotations of the columns; see Golub and Van Loan, "Matrix Computations", 8.6."""
        m, n = x.type.shape[-2:]
        if 0 in x.type.shape:
            types = out
            if len(types) == 1:
                return (b.constant(0, types[0]),)
            identity = lambda: [eye_of(types[1]), eye_of(types[2])]
            return b.constant(0, types[0]), *b.inline(identity, ())
        tall = m >= n
        a = x if tall else b.inline(h, (x,))
        small, large = (n, m) if tall else (m, n)
        start = b.inline(lambda w: [w, eye(w)], (a,))
        a, v = loop(b, SWEEPS * small * small, _rotate_columns, *start)

        def finish(w: Array, z: Array) -> Arrays:
            s, u, vv = _singular(w, z)
            if not compute_uv:
                return [s]
            if full_matrices and large > small:
                # Q of U is U times signs, and completes it.
                q, _ = qr(u, full_matrices=True)
                u = concatenate(u, sub_columns(q, small), dimension=u.ndim - 1)
            return [s, u, h(vv)] if tall else [s, vv, h(u)]

        return tuple(b.inline(finish, (a, v)))


def _rotate_columns(i: Array, a: Array, v: Array) -> Arrays:
    """Make columns p and q of a orthogonal."""
    n = a.shape[-1]
    place = rem(i, like(i, n * n))
    p, q = div(place, like(i, n)), rem(place, like(i, n))
    x, y = column(a, p), column(a, q)
    dot = lambda z, w: reduce_sum(mul(conj(z), w), axes=(z.ndim - 1,))
    apq = dot(x, y)
    active = along_columns(lt(p, q), apq.shape)
    c, s = rotation(real(dot(x, x)), real(dot(y, y)), where(active, apq, zeros(apq.type)))

    def columns(m: Array) -> Array:
        first, second = column(m, p), column(m, q)
        cosine, sine = (along_columns(cast(v, m.dtype), first.shape) for v in (c, s))
        turned = sub(mul(first, cosine), mul(second, conj(sine)))
        return with_column(with_column(m, p, turned), q, add(mul(first, sine), mul(second, cosine)))

    return columns(a), columns(v)


def _singular(a: Array, v: Array) -> tuple[Array, Array, Array]:
    """Singular values, U and V from orthogonal columns a = U diag(s) and the rotations v."""
    s = sqrt(real(reduce_sum(mul(conj(a), a), axes=(a.ndim - 2,))))
    order = ascending(neg(s))
    a, v = ordered(a, order), ordered(v, order)
    s = reshape(ordered(reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])), order), shape=s.shape)
    # What is zero but for rounding leaves its column of U open: take those of Q, which are orthogonal to the others.
    rounding = float(dtypes.float_info(s.dtype).eps) * a.shape[-2]
    top = along_columns(reduce_max(s, axes=(s.ndim - 1,)), s.shape)
    zero = le(s, mul(top, like(top, rounding)))
    u = where(
        along_rows(zero, a.shape), zeros(a.type), div(a, along_rows(cast(where(zero, like(s, 1), s), a.dtype), a.shape))
    )
    q, r = qr(u, full_matrices=False)
    d = real(diagonal(r))
    sign = cast(where(lt(d, like(d, 0)), like(d, -1), like(d, 1)), a.dtype)
    return s, mul(q, along_rows(sign, q.shape)), v


svd = Svd()


def by_triangle(x: Array, /, *, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    """`svd` of a matrix that is not square, with vectors, by that of its triangular factor."""
    tall = x.shape[-2] >= x.shape[-1]
    q, r = qr.expand(x if tall else h(x), full_matrices=False)
    s, u, vh = svd(r, full_matrices=full_matrices, compute_uv=compute_uv)
    u = mm(q, u)
    return (s, u, vh) if tall else (s, h(vh), h(u))


def by_squares(x: Array, /, *, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    """`svd` of a small matrix of float32, with vectors, by its square in float64, which keeps all of its digits.

    Of x = U S V^H the square x^H x is V S^2 V^H, and x V is U S. Of the latter's columns some may be zero, so U is its
    Householder factor, which is orthogonal in any case and whose triangle has no more than signs of its own.
    """
    tall = x.shape[-2] >= x.shape[-1]
    a = cast(x if tall else h(x), dtypes.float64)
    v, w = eigh(mm(h(a), a), lower=True)
    v, w = rev(v, dimensions=(v.ndim - 1,)), rev(w, dimensions=(w.ndim - 1,))
    q, r = qr.expand(mm(a, v), full_matrices=False)
    d = diagonal(r)
    u = mul(q, along_rows(where(lt(d, like(d, 0)), like(d, -1), like(d, 1)), q.shape))
    s, u, vh = (cast(y, x.dtype) for y in (sqrt(max_(w, like(w, 0))), u, h(v)))
    return (s, u, vh) if tall else (s, h(vh), h(u))
