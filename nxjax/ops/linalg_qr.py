"""QR factorization by Householder reflectors."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, div, mul, neg, sqrt, sub
from nxjax.ops.base import NDArray, equal_dtypes, like, zeros
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import eq, ge, gt
from nxjax.ops.complex import imag
from nxjax.ops.convert import cast
from nxjax.ops.linalg_base import (
    MatrixOp,
    along_columns,
    along_rows,
    column,
    conj,
    diagonal,
    eye,
    eye_of,
    h,
    index,
    loop,
    mm,
    position_mask,
    real,
    resized,
    sub_columns,
    t,
    tril,
    triu,
    where,
    with_column,
)
from nxjax.ops.linalg_lu import solve
from nxjax.ops.linalg_triangular import triangular_solve
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.slicing import concatenate
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType


@final
class Geqrf(MatrixOp):
    """R in the upper triangle, Householder vectors below it (their leading ones left out), and their scalars tau.

    Q is the product of the reflectors ``1 - tau v v^H``, as in LAPACK. Has no derivative: differentiate `qr`.
    """

    name = "geqrf"
    multi = True

    def infer(self, x: ArrayType, /) -> tuple[ArrayType, ...]:
        batch, m, n = self.matrix(x)
        return x.strong(), ArrayType((*batch, min(m, n)), x.dtype)

    def eval(self, x: NDArray, /) -> tuple[NDArray, ...]:
        packed, taus = np.linalg.qr(x, mode="raw")
        return np.ascontiguousarray(packed.swapaxes(-1, -2)).astype(x.dtype, copy=False), taus.astype(x.dtype)

    def stablehlo(self, b: Any, out: Any, x: Any, /) -> Any:
        if 0 in x.type.shape:
            return x, b.constant(0, out[1])
        return loop(b, min(x.type.shape[-2:]), _reflect, x, b.constant(0, out[1]))


def _reflect(k: Array, a: Array, taus: Array) -> Arrays:
    """Make column k zero below the diagonal (LAPACK's larfg and larf)."""
    last = (a.ndim - 2,)

    c = column(a, k)
    rows = index(c.shape, -1)
    here, below = position_mask(k, c.shape, -1), gt(rows, along_columns(k, c.shape))
    zero = zeros(c.type)
    tail = where(below, c, zero)
    alpha = reduce_sum(where(here, c, zero), axes=last)
    rest = real(reduce_sum(mul(tail, conj(tail)), axes=last))
    norm = sqrt(add(real(mul(alpha, conj(alpha))), rest))
    a_real = real(alpha)
    beta = where(ge(a_real, like(a_real, 0)), neg(norm), norm)
    # Nothing to do where the rest is zero already (and alpha real): tau = 0 and R keeps alpha.
    idle = eq(rest, like(rest, 0))
    if a.dtype in dtypes.COMPLEX:
        idle = and_(idle, eq(imag(alpha), like(rest, 0)))
    one = like(alpha, 1)
    wide = where(idle, one, cast(beta, a.dtype))
    tau = where(idle, zeros(alpha.type), div(sub(wide, alpha), wide))
    scale = where(idle, one, sub(alpha, wide))
    v = add(div(tail, along_columns(scale, tail.shape)), where(here, like(c, 1), zero))
    # a - tau^* v (v^H a), for the columns after k.
    inner = reduce_sum(mul(along_columns(conj(v), a.shape), a), axes=(a.ndim - 2,))
    factor = mul(along_columns(conj(tau), v.shape), v)
    later = gt(index(inner.shape, -1), along_columns(k, inner.shape))
    update = mul(along_columns(factor, a.shape), along_rows(where(later, inner, zeros(inner.type)), a.shape))
    a = sub(a, update)
    corner = along_columns(where(idle, alpha, cast(beta, a.dtype)), c.shape)
    packed = where(below, v, where(here, corner, column(a, k)))
    return with_column(a, k, packed), where(position_mask(k, taus.shape, -1), along_columns(tau, taus.shape), taus)


# Reflectors that the meaning applies at once, as products of matrices.
_BLOCK: Final = 32


@final
class HouseholderProduct(MatrixOp):
    """The first columns of the product of the reflectors that `geqrf` packs: a matrix with orthonormal columns.

    Has no derivative: differentiate `qr`.
    """

    name = "householder_product"

    def infer(self, a: ArrayType, taus: ArrayType, /) -> ArrayType:
        batch, m, n = self.matrix(a)
        equal_dtypes(self, a, taus)
        if m < n or taus.shape[:-1] != batch or taus.ndim != a.ndim - 1 or taus.shape[-1] > n:
            raise ShapeError(
                f"{self}: reflectors and scalars do not fit",
                got=f"{a} and {taus}",
                expected="[..., m, n] with m >= n, and [..., k] with k <= n",
            )
        return a.strong()

    def eval(self, a: NDArray, taus: NDArray, /) -> NDArray:
        m, n = a.shape[-2:]
        q = np.array(np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape))
        count = taus.shape[-1]
        for start in reversed(range(0, count, _BLOCK)):
            tau = taus[..., start : min(start + _BLOCK, count)]
            size = tau.shape[-1]
            v = np.tril(a[..., start:, start : start + size], -1)
            v[..., range(size), range(size)] = 1
            # H_0 ... H_j = I - V T V^H, where T's column j is tau_j on the diagonal and -tau_j T (V^H v_j) above it
            # (R. Schreiber, C. Van Loan, "A storage-efficient WY representation", SIAM J. Sci. Stat. Comput. 10, 1989).
            adjoint = np.ascontiguousarray(v.conj().swapaxes(-1, -2))
            inner, factor = np.matmul(adjoint, v), np.zeros((*tau.shape, size), a.dtype)
            for j in range(size):
                above = np.matmul(factor[..., :j, :j], inner[..., :j, j, None])[..., 0]
                factor[..., :j, j], factor[..., j, j] = -tau[..., j, None] * above, tau[..., j]
            q[..., start:, :] -= np.matmul(v, np.matmul(factor, np.matmul(adjoint, q[..., start:, :])))
        return q

    def stablehlo(self, b: Any, out: ArrayType, a: Any, taus: Any, /) -> Any:
        steps = taus.type.shape[-1]
        start = b.inline(lambda a: eye_of(a.type), (a,))
        if not steps or 0 in a.type.shape:
            return start

        def step(i: Array, q: Array, packed: Array, scalars: Array) -> Arrays:
            return _apply(sub(like(i, steps - 1), i), q, packed, scalars), packed, scalars

        return loop(b, steps, step, start, a, taus)[0]


def _apply(k: Array, q: Array, packed: Array, taus: Array) -> Array:
    """Reflector k applied to q."""
    c = column(packed, k)
    below = gt(index(c.shape, -1), along_columns(k, c.shape))
    v = where(position_mask(k, c.shape, -1), like(c, 1), where(below, c, zeros(c.type)))
    inner = reduce_sum(mul(along_columns(conj(v), q.shape), q), axes=(q.ndim - 2,))
    tau = reduce_sum(where(position_mask(k, taus.shape, -1), taus, zeros(taus.type)), axes=(taus.ndim - 1,))
    return sub(q, mul(along_columns(mul(along_columns(tau, v.shape), v), q.shape), along_rows(inner, q.shape)))


@final
class Qr(MatrixOp):
    """x = Q R with orthonormal columns of Q and upper triangular R; all m columns of Q if ``full_matrices``."""

    name = "qr"
    multi = True

    def infer(self, x: ArrayType, /, *, full_matrices: bool) -> tuple[ArrayType, ...]:
        batch, m, n = self.matrix(x)
        k = m if full_matrices else min(m, n)
        return ArrayType((*batch, m, k), x.dtype), ArrayType((*batch, k, n), x.dtype)

    def eval(self, x: NDArray, /, *, full_matrices: bool) -> tuple[NDArray, ...]:
        q, r = np.linalg.qr(x, mode="complete" if full_matrices else "reduced")
        return q.astype(x.dtype, copy=False), r.astype(x.dtype, copy=False)

    def expand(self, x: Array, /, *, full_matrices: bool) -> tuple[Array, ...]:
        m, n = x.shape[-2:]
        k = m if full_matrices else min(m, n)
        packed, taus = geqrf(x)
        return householder_product(resized(packed, m, k), taus), triu(resized(packed, k, n))

    def jvp(self, primals: Arrays, tangents: Tangents, *, full_matrices: bool) -> tuple[Any, Any]:
        q, r = self(*primals, full_matrices=full_matrices)
        (x,), (tx,) = primals, tangents
        if tx is None:
            return (q, r), (None, None)
        m, n = x.shape[-2:]
        last = x.ndim - 1
        if m < n:
            # x = Q [R1 R2]: the square part gives Q, and then R2 = Q^H X2.
            dq, dr1 = _thin_tangent(q, resized(r, m, m), resized(tx, m, m))
            x2, dx2 = sub_columns(x, m), sub_columns(tx, m)
            return (q, r), (dq, concatenate(dr1, add(mm(h(dq), x2), mm(h(q), dx2)), dimension=last))
        if m == n or not full_matrices:
            return (q, r), _thin_tangent(q, r, tx)
        # The columns that complete Q are what the reflectors make of the others (Lezcano-Casado, arXiv:2409.13374,
        # equations 32 and 33).
        q1, q2 = resized(q, m, n), sub_columns(q, n)
        dq1, dr1 = _thin_tangent(q1, resized(r, n, n), tx)
        top, dtop = resized(q1, n, n), resized(dq1, n, n)
        bottom, dbottom = (t(sub_columns(t(v), n)) for v in (q1, dq1))
        z = h(solve(h(sub(top, eye(top))), h(bottom)))
        dq2 = sub(mm(dq1, h(z)), mm(add(q1, mm(q2, z)), h(sub(dbottom, mm(z, dtop)))))
        return (q, r), (concatenate(dq1, dq2, dimension=last), resized(dr1, m, n))


def _thin_tangent(q: Array, r: Array, tx: Array) -> tuple[Array, Array]:
    """Tangents of Q and R where R is square.

    Townsend (2018), "Differentiating the QR decomposition": with C = Q^H dx R^-1, the antihermitian part of Q^H dQ is
    what C has below the diagonal.
    """
    whole = triangular_solve(
        r, tx, left_side=False, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=False
    )
    c = mm(h(q), whole)
    below = tril(c, -1)
    rotation = sub(below, h(below))
    if c.dtype in dtypes.COMPLEX:
        # R has a real diagonal, so the phase of C's diagonal goes to Q.
        d = diagonal(c)
        rotation = add(rotation, mul(eye(c), along_rows(sub(d, cast(real(d), c.dtype)), c.shape)))
    return add(mm(q, sub(rotation, c)), whole), mm(sub(c, rotation), r)


geqrf = Geqrf()
householder_product = HouseholderProduct()
qr = Qr()
