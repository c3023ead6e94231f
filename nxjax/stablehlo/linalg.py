"""Rules of matrix operations: those of StableHLO itself and the LAPACK routines that JAX calls on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax.lax.linalg import tridiagonal_solve
from nxjax.ops import linalg_eigen, linalg_lu, linalg_qr, linalg_svd, linalg_triangular
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import constant, like
from nxjax.ops.compare import eq, ge, ne
from nxjax.ops.complex import conj, imag, real
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dot import dot_general
from nxjax.ops.fft import FftType, fft
from nxjax.ops.precision import Precision
from nxjax.ops.reduce import reduce_min, reduce_or
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, transpose
from nxjax.ops.slicing import pad
from nxjax.stablehlo.walk import Operation, Scope, refused, result, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def turned(x: Array, conjugate: bool = False) -> Array:
    """Matrices transposed, and conjugated if asked."""
    n = x.ndim
    y = transpose(x, permutation=(*range(n - 2), n - 1, n - 2))
    return conj(y) if conjugate and y.dtype in dtypes.COMPLEX else y


def triangle(x: Array, lower: bool, other: Array) -> Array:
    """``x`` in one triangle, the diagonal included, and ``other`` outside of it."""
    rows, columns = (iota(dtype=dtypes.int32, shape=x.shape, dimension=x.ndim - d) for d in (2, 1))
    return select_n(ge(rows, columns) if lower else ge(columns, rows), other, x)


@rule("stablehlo.fft")
def _fft(_: Scope, op: Operation, x: Array) -> Array:
    lengths = tuple(int(n) for n in op.attributes["fft_length"])
    return fft(x, fft_type=FftType[op.attributes["fft_type"]], fft_lengths=lengths)


@rule("stablehlo.cholesky")
def _cholesky(_: Scope, op: Operation, x: Array) -> Array:
    if op.attributes.get("lower", False):
        return linalg_triangular.cholesky(x)
    return turned(linalg_triangular.cholesky(turned(x, True)), True)


@rule("stablehlo.triangular_solve")
def _triangular_solve(_: Scope, op: Operation, a: Array, b: Array) -> Array:
    word = op.attributes["transpose_a"]
    return linalg_triangular.triangular_solve(
        a,
        b,
        left_side=op.attributes["left_side"],
        lower=op.attributes["lower"],
        transpose_a=word in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=word == "ADJOINT",
        unit_diagonal=op.attributes["unit_diagonal"],
    )


# --- LAPACK ---


def config(op: Operation) -> dict[str, Any]:
    """What a custom call is told beside its operands."""
    for name in ("mhlo.backend_config", "backend_config"):
        found = op.attributes.get(name)
        if isinstance(found, dict):
            return found
    return {}


def _letter(op: Operation, name: str, default: str) -> str:
    value = config(op).get(name, default)
    return chr(value) if isinstance(value, int) else value


def _no_failure(op: Operation, i: int) -> Array:
    """The info code of a routine that cannot fail."""
    return constant(0, dtypes.int32, result(op, i).shape)


def _failed(op: Operation, i: int, y: Array) -> Array:
    """Info codes: 1 for the matrices that hold a NaN."""
    y = real(y) if y.dtype in dtypes.COMPLEX else y
    bad = ne(y, y)
    axes = tuple(range(len(result(op, i).shape), y.ndim))
    return convert_element_type(reduce_or(bad, axes=axes) if axes else bad, dtype=dtypes.int32)


def _padded(op: Operation, ys: list[Array]) -> tuple[Array, ...]:
    """Results with info codes of 0 where the call gives one more."""
    return tuple(ys) if len(op.results) == len(ys) else (*ys, _no_failure(op, len(ys)))


def _potrf(op: Operation, x: Array) -> Any:
    lower = _letter(op, "uplo", "L") == "L"
    y = linalg_triangular.cholesky(x) if lower else turned(linalg_triangular.cholesky(turned(x, True)), True)
    # The other triangle is left as it was.
    return triangle(y, lower, x), _failed(op, 1, y)


def _getrf(op: Operation, x: Array) -> Any:
    packed, pivots, _ = linalg_lu.lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    # LAPACK says which pivot is the first to be zero.
    rows, columns = (iota(dtype=dtypes.int32, shape=packed.shape, dimension=x.ndim - d) for d in (2, 1))
    singular = select_n(eq(rows, columns), like(rows, k + 1), add(rows, like(rows, 1)))
    singular = select_n(eq(packed, like(packed, 0)), like(rows, k + 1), singular)
    first = reduce_min(singular, axes=(x.ndim - 2, x.ndim - 1)) if k else _no_failure(op, 2)
    info = select_n(ge(first, like(first, k + 1)), first, like(first, 0))
    return packed, add(pivots, like(pivots, 1)), info


def _geqrf(op: Operation, x: Array) -> Any:
    return _padded(op, list(linalg_qr.geqrf(x)))


def _orgqr(op: Operation, x: Array, taus: Array) -> Any:
    return _padded(op, [linalg_qr.householder_product(x, taus)])


def _ormqr(op: Operation, x: Array, taus: Array, c: Array) -> Any:
    left, turn = bool(config(op).get("left", True)), bool(config(op).get("transpose", False))
    m, k = x.shape[-2:]
    if m > k:
        edges = (*((0, 0, 0),) * (x.ndim - 1), (0, m - k, 0))
        x = pad(x, constant(0, x.dtype), padding_config=edges)
    q = linalg_qr.householder_product(x, taus)
    q = turned(q, True) if turn else q
    a, b = (q, c) if left else (c, q)

    batch = tuple(range(a.ndim - 2))
    numbers = (((a.ndim - 1,), (a.ndim - 2,)), (batch, batch))
    y = dot_general(a, b, dimension_numbers=numbers, precision=(Precision.HIGHEST, Precision.HIGHEST))
    return _padded(op, [y])


def _syevd(op: Operation, x: Array) -> Any:
    v, w = linalg_eigen.eigh(x, lower=_letter(op, "uplo", "L") == "L")
    return v, w, _failed(op, 2, w)


def _gesdd(op: Operation, x: Array) -> Any:
    mode = _letter(op, "mode", "S")
    if mode == "N":
        (s,) = linalg_svd.svd(x, full_matrices=False, compute_uv=False)
        u, vt = (constant(0, x.dtype, result(op, i).shape) for i in (2, 3))
    else:
        s, u, vt = linalg_svd.svd(x, full_matrices=mode == "A", compute_uv=True)
    return x, s, u, vt, _failed(op, 4, s)


def _geev(op: Operation, x: Array) -> Any:
    left, right = (_letter(op, f"compute_{side}", "N") == "V" for side in ("left", "right"))
    w, *vectors = linalg_eigen.eig(x, left=left, right=right, derivative=True)
    found = iter(vectors)
    first = 1 if x.dtype in dtypes.COMPLEX else 2
    unread = constant(0, w.dtype, x.shape)
    vl, vr = (next(found) if asked else unread for asked in (left, right))
    values = [w] if first == 1 else [real(w), imag(w)]
    return *values, vl, vr, _failed(op, first + 2, w)


def _trsm(op: Operation, a: Array, b: Array, *scale: Array) -> Any:
    how = _letter(op, "trans_x", "N")
    if scale:
        b = mul(b, broadcast_in_dim(scale[0], shape=b.shape, broadcast_dimensions=tuple(range(scale[0].ndim))))
    return linalg_triangular.triangular_solve(
        a,
        b,
        left_side=_letter(op, "side", "L") == "L",
        lower=_letter(op, "uplo", "L") == "L",
        transpose_a=how in "TC",
        conjugate_a=how == "C",
        unit_diagonal=_letter(op, "diag", "N") == "U",
    )


def _gtsv(op: Operation, dl: Array, d: Array, du: Array, b: Array) -> Any:
    return dl, d, du, tridiagonal_solve(dl, d, du, b), _no_failure(op, 4)


def _perturbed(op: Operation, dl: Array, d: Array, du: Array, b: Array) -> Any:
    # Where the system is singular XLA gives some large solution, and this gives none.
    return tridiagonal_solve(dl, d, du, b)


_ROUTINES: Final[dict[str, Callable[..., Any]]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "ormqr": _ormqr,
    "unmqr": _ormqr,
    "syevd": _syevd,
    "heevd": _syevd,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "geev": _geev,
    "trsm": _trsm,
    "gtsv": _gtsv,
}
_UNKNOWN: Final = {
    "gees": "Schur forms",
    "gehrd": "Hessenberg forms",
    "sytrd": "tridiagonal forms",
    "hetrd": "tridiagonal forms",
    "geqp3": "QR with column pivoting",
}


def lapack(op: Operation, target: str, xs: tuple[Array, ...]) -> Any:
    """``lapack_sgetrf_ffi`` and its like: a letter for the dtype, then the routine."""
    routine = target.removeprefix("lapack_").removesuffix("_ffi")[1:]
    found = _ROUTINES.get(routine)
    if found is None:
        what = _UNKNOWN.get(routine, f"LAPACK's {routine}")
        raise refused(op, f"{target}: nxjax has no {what}")
    return found(op, *xs)


# What compilers for other devices are asked for.
NAMED: Final[dict[str, Callable[..., Any]]] = {
    "Qr": _geqrf,
    "ProductOfElementaryHouseholderReflectors": _orgqr,
    "LuDecomposition": lambda op, x: linalg_lu.lu(x),
    "Eigh": lambda op, x: linalg_eigen.eigh(x, lower=str(op.attributes.get("backend_config", "1")).startswith("1")),
    "tridiagonal_solve_perturbed_ffi": _perturbed,
    "cu_lu_pivots_to_permutation": lambda op, p: linalg_lu.lu_pivots_to_permutation(
        p, permutation_size=result(op).shape[-1]
    ),
}
