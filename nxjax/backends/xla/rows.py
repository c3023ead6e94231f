"""What only XLA's CPU client can answer, or answers better than by the portable rule. Op name -> row."""

from __future__ import annotations

from typing import Any, Final

from nxjax.backends.xla import lapack, rewrites
from nxjax.backends.xla.callbacks import emit_callback
from nxjax.lower.stablehlo.builder import Row
from nxjax.ops.linalg_base import tril
from nxjax.ops.linalg_lu import lu_pivots_to_permutation
from nxjax.ops.scatter import SCATTERS
from nxjax.trace.core import get_op


def callback(name: str) -> Row:
    """A row for an op with a method ``host(*arrays, **params)`` that gives its results as NumPy arrays."""

    def row(b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        op: Any = get_op(name)
        return emit_callback(b, lambda *arrays: op.host(*arrays, **params), xs, tuple(out))

    return row


def _lapack(emit: Row) -> Row:
    """A row that leaves empty matrices, and dtypes that LAPACK has no routine for, to the op's own rule."""

    def row(b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        if any(0 in x.type.shape for x in xs) or not lapack.supports(xs[0].type.dtype):
            return None
        return emit(b, *xs, **params)

    return row


def _cholesky(b: Any, x: Any) -> Any:
    return b.inline(tril, (lapack.potrf(b, x),))


def _lu(b: Any, x: Any) -> Any:
    factors, pivots = lapack.getrf(b, x)
    rows = x.type.shape[-2]
    permutation = b.inline(lambda p: lu_pivots_to_permutation(p, permutation_size=rows), (pivots,))
    return factors, pivots, permutation


def _svd(b: Any, x: Any, *, full_matrices: bool, compute_uv: bool) -> Any:
    found = lapack.gesdd(b, x, full_matrices, compute_uv)
    return found if compute_uv else found[:1]


def _eig(b: Any, x: Any, *, left: bool, right: bool, derivative: bool) -> Any:
    w, vl, vr = lapack.geev(b, x, left, right)
    return (w, *((vl,) if left else ()), *((vr,) if right else ()))


ROWS: Final[dict[str, Row]] = {
    **{name: callback(name) for name in ("pure_callback", "io_callback", "debug_callback", "check")},
    **{name: callback(name) for name in ("hessenberg", "schur", "tridiagonal", "qr_pivots")},
    "cholesky": _lapack(_cholesky),
    "lu": _lapack(_lu),
    "geqrf": _lapack(lapack.geqrf),
    "householder_product": _lapack(lapack.orgqr),
    "eigh": _lapack(lapack.syevd),
    "svd": _lapack(_svd),
    "eig": _lapack(_eig),
    "select_and_scatter_add": rewrites.select_and_scatter,
    "conv_general_dilated": rewrites.convolution,
    "dynamic_update_slice": rewrites.update_slice,
    **{op.name: rewrites.scattered(op) for op in SCATTERS},
}
