"""Reductions of matrices by Householder reflectors that LAPACK has beside QR: Hessenberg, tridiagonal, column pivots.

Their meaning is LAPACK's, reflector by reflector (E. Anderson et al., "LAPACK Users' Guide", 3rd edition, 1999), so the
packed results are the same. Knows nothing of eigenvalues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import LoweringError, ShapeError
from nxjax.ops.base import NDArray, Nondifferentiable
from nxjax.ops.linalg_base import EachMatrix
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


def moderate(x: NDArray) -> tuple[NDArray, Any]:
    """``x`` over a power of two, and that: where the square of its largest element would lose digits or be infinite."""
    size: Any = np.abs(x).max(initial=0)
    real, info = size.dtype, np.finfo(size.dtype)
    if not size or not np.isfinite(size) or np.sqrt(info.tiny) / info.eps < size < np.sqrt(info.max) * info.eps:
        return x, real.type(1)
    power = min(max(int(np.frexp(size)[1]), info.minexp + 1), info.maxexp - 1)
    return x * real.type(2.0**-power), real.type(2.0**power)


def reflector(alpha: Any, x: NDArray) -> tuple[Any, NDArray, Any]:
    """beta, v and tau with (1 - tau^* w w^H) (alpha, x) = (beta, 0) for w = (1, v); beta is real (LAPACK's larfg)."""
    if not x.any() and alpha.imag == 0:
        return alpha, x, alpha * 0
    whole, scale = moderate(np.append(alpha, x))
    alpha, x = whole[0], whole[1:]
    beta = -np.copysign(np.hypot(np.abs(alpha), np.linalg.norm(x)), alpha.real).astype(scale.dtype)
    tau = (beta - alpha) / beta
    return alpha.dtype.type(beta * scale), x / (alpha - beta), alpha.dtype.type(tau)


def with_one(v: NDArray) -> NDArray:
    """The whole vector of a reflector."""
    return np.concatenate([np.ones(1, v.dtype), v])


def reduce_hessenberg(a: NDArray, low: int, high: int) -> NDArray:
    """Make rows and columns low to high of ``a`` Hessenberg, in place (LAPACK's gehd2); the scalars."""
    taus = np.zeros(max(len(a) - 1, 0), a.dtype)
    for i in range(low, high - 1):
        beta, v, tau = reflector(a[i + 1, i], a[i + 2 : high, i].copy())
        w = with_one(v)
        a[:high, i + 1 : high] -= np.outer(a[:high, i + 1 : high] @ w, tau * w.conj())
        a[i + 1 : high, i + 1 :] -= np.outer(np.conj(tau) * w, w.conj() @ a[i + 1 : high, i + 1 :])
        a[i + 1, i], a[i + 2 : high, i], taus[i] = beta, v, tau
    return taus


class HostMatrixOp(EachMatrix):
    """Answered by the host, or by LAPACK's routine where XLA has it."""

    host_only = True

    def host(self, *xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        """The results as the host gives them to another executor."""
        return tuple(self.eval(*xs, **params))

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        raise LoweringError(
            f"{self.name}: has no lowering to StableHLO", got=xs[0].type, fix="run it on the CPU, where NumPy answers"
        )


@final
class Hessenberg(HostMatrixOp):
    """H in the upper triangle and the first subdiagonal, Householder vectors below it, and their scalars.

    x = Q H Q^H, where Q is the product of the reflectors. Has no derivative.
    """

    name = "hessenberg"
    multi = True

    def infer(self, x: ArrayType, /) -> tuple[ArrayType, ...]:
        batch, n, _ = self.matrix(x, square=True)
        if not n:
            raise ShapeError(f"{self}: the matrix is empty", got=x, expected="[..., n, n] with n > 0")
        return x.strong(), ArrayType((*batch, n - 1), x.dtype)

    def one(self, a: NDArray) -> Sequence[NDArray]:
        packed = np.array(a)
        taus = reduce_hessenberg(packed, 0, len(a))
        return packed, taus


@final
class Tridiagonal(HostMatrixOp):
    """A Hermitian matrix as Q T Q^H: packed T and reflectors, T's diagonal and off-diagonal, the reflectors' scalars.

    One triangle is read, the other is given as it was. Has no derivative.
    """

    name = "tridiagonal"
    multi = True

    def infer(self, x: ArrayType, /, *, lower: bool) -> tuple[ArrayType, ...]:
        batch, n, _ = self.matrix(x, square=True)
        if not n:
            raise ShapeError(f"{self}: the matrix is empty", got=x, expected="[..., n, n] with n > 0")
        real = dtypes.real_part(x.dtype)
        off = (*batch, n - 1)
        return x.strong(), ArrayType((*batch, n), real), ArrayType(off, real), ArrayType(off, x.dtype)

    def one(self, a: NDArray, *, lower: bool) -> Sequence[NDArray]:
        return _reduce_lower(np.array(a)) if lower else _reduce_upper(np.array(a))


def _hermitian_of(a: NDArray, lower: bool) -> NDArray:
    """The Hermitian matrix of one triangle."""
    n = len(a)
    whole = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, a.conj().T)
    whole[range(n), range(n)] = a.diagonal().real
    return whole


def _rank_two(block: NDArray, w: NDArray, tau: Any) -> None:
    """H block H^H for the reflector H = 1 - tau w w^H, in place."""
    p = tau * (block @ w)
    p = p - 0.5 * tau * np.vdot(p, w) * w
    block -= np.outer(w, p.conj()) + np.outer(p, w.conj())


def _reduce_lower(a: NDArray) -> Sequence[NDArray]:
    """LAPACK's sytd2 and hetd2 for the lower triangle."""
    n = len(a)
    whole, taus, e = _hermitian_of(a, True), np.zeros(n - 1, a.dtype), np.zeros(n - 1, a.real.dtype)
    for i in range(n - 1):
        beta, v, tau = reflector(whole[i + 1, i], whole[i + 2 :, i].copy())
        if tau:
            _rank_two(whole[i + 1 :, i + 1 :], with_one(v), tau)
        a[i + 2 :, i], a[i + 1, i], e[i], taus[i] = v, beta, beta.real, tau
    d = whole.diagonal().real.copy()
    a[range(n), range(n)] = d
    return a, d, e, taus


def _reduce_upper(a: NDArray) -> Sequence[NDArray]:
    """LAPACK's sytd2 and hetd2 for the upper triangle."""
    n = len(a)
    whole, taus, e = _hermitian_of(a, False), np.zeros(n - 1, a.dtype), np.zeros(n - 1, a.real.dtype)
    for i in reversed(range(n - 1)):
        beta, v, tau = reflector(whole[i, i + 1], whole[:i, i + 1].copy())
        if tau:
            _rank_two(whole[: i + 1, : i + 1], np.concatenate([v, np.ones(1, v.dtype)]), tau)
        a[:i, i + 1], a[i, i + 1], e[i], taus[i] = v, beta, beta.real, tau
    d = whole.diagonal().real.copy()
    a[range(n), range(n)] = d
    return a, d, e, taus


@final
class QrPivots(Nondifferentiable, HostMatrixOp):
    """The order of columns by which QR with column pivoting factorizes: the largest remaining column comes next."""

    name = "qr_pivots"
    multi = True

    def infer(self, x: ArrayType, /) -> tuple[ArrayType, ...]:
        batch, _, n = self.matrix(x)
        return (ArrayType((*batch, n), dtypes.int32),)

    def one(self, a: NDArray) -> Sequence[NDArray]:
        return [_pivots(np.array(a))]


def _pivots(a: NDArray) -> NDArray:
    """LAPACK's laqp2: norms of columns are downdated, and computed again where digits are lost."""
    m, n = a.shape
    order = np.arange(n, dtype=np.int32)
    if not m:
        return order * 0
    a, _ = moderate(a)
    norms = np.linalg.norm(a, axis=0)
    exact = norms.copy()
    lost = np.sqrt(np.finfo(norms.dtype).eps)
    for i in range(min(m, n)):
        p = i + int(np.argmax(norms[i:]))
        if p != i:
            a[:, [i, p]] = a[:, [p, i]]
            order[[i, p]] = order[[p, i]]
            norms[p], exact[p] = norms[i], exact[i]
        beta, v, tau = reflector(a[i, i], a[i + 1 :, i].copy())
        w = with_one(v)
        a[i:, i + 1 :] -= np.outer(np.conj(tau) * w, w.conj() @ a[i:, i + 1 :])
        a[i, i] = beta
        for j in range(i + 1, n):
            if norms[j]:
                left = max(1 - (np.abs(a[i, j]) / norms[j]) ** 2, 0)
                if left * (norms[j] / exact[j]) ** 2 <= lost:
                    norms[j] = exact[j] = np.linalg.norm(a[i + 1 :, j])
                else:
                    norms[j] *= np.sqrt(left)
    return order


hessenberg = Hessenberg()
tridiagonal = Tridiagonal()
qr_pivots = QrPivots()
