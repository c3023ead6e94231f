"""LAPACK through the custom calls that jaxlib carries for its CPU client.

Each function emits one factorization for a batch of matrices ``[..., m, n]`` of float32, float64, complex64 or
complex128 and gives its results as SSA values; where LAPACK's info code says that it failed, the results are NaN. Knows
no op: `rows` says which op is answered by which routine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from nxjax.backends.xla.client import client
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

_LETTER: Final[dict[DType, str]] = {
    dtypes.float32: "s",
    dtypes.float64: "d",
    dtypes.complex64: "c",
    dtypes.complex128: "z",
}


@lru_cache(1)
def targets() -> frozenset[str]:
    """Tell XLA where the routines are, once per process; the names that it then knows."""
    from jaxlib.cpu import _lapack  # type: ignore[import-not-found]

    lapack: Any = _lapack
    lapack.initialize()
    names: list[str] = []
    for name, target in lapack.registrations().items():
        if name.endswith("_ffi"):
            client().xla_client.register_custom_call_target(name, target, platform="cpu", api_version=1)
            names.append(name)
    return frozenset(names)


def supports(dtype: DType) -> bool:
    """Whether LAPACK has routines for this dtype."""
    return dtype in _LETTER


def _layout(ndim: int, matrix: int) -> str:
    """Minor-to-major order: matrices column by column, as LAPACK reads them; everything else row-major."""
    order = list(range(ndim - 1, -1, -1))
    if ndim == matrix:
        order[0], order[1] = order[1], order[0]
    return f"dense<[{', '.join(map(str, order))}]> : tensor<{ndim}xindex>" if ndim else "dense<> : tensor<0xindex>"


def _call(
    b: Any, routine: str, dtype: DType, xs: Sequence[Any], outs: tuple[ArrayType, ...], **options: str
) -> tuple[Any, ...]:
    targets()
    matrix = max(x.type.ndim for x in xs)
    config = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in options.items())
    attrs = ", ".join(
        (
            f'call_target_name = "lapack_{_LETTER[dtype]}{routine}_ffi"',
            "api_version = 4 : i32",
            f"backend_config = {{{config}}}",
            f"operand_layouts = [{', '.join(_layout(x.type.ndim, matrix) for x in xs)}]",
            f"result_layouts = [{', '.join(_layout(t.ndim, matrix) for t in outs)}]",
        )
    )
    return b.op("stablehlo.custom_call", xs, outs, attrs)


def _checked(b: Any, info: Any, *ys: Any, direction: str = "EQ") -> tuple[Any, ...]:
    """``ys`` with NaN for the matrices whose info code does not compare as wanted with zero."""
    ok = b.compare(direction, info, b.constant(0, info.type), ArrayType(info.type.shape, dtypes.bool_))
    return tuple(_or_nan(b, ok, y) for y in ys)


def _or_nan(b: Any, ok: Any, y: Any) -> Any:
    batch: Shape = ok.type.shape
    spread = b.broadcast(ok, y.type.shape, range(len(batch)))
    nan = complex("nan+nanj") if y.type.dtype in dtypes.COMPLEX else float("nan")
    return b.op("stablehlo.select", (spread, y, b.constant(nan, y.type)), y.type)


def _info(batch: Shape) -> ArrayType:
    return ArrayType(batch, dtypes.int32)


def potrf(b: Any, x: Any, lower: bool = True) -> Any:
    """Cholesky factor; the other triangle holds what the input held."""
    t: ArrayType = x.type
    y, info = _call(b, "potrf", t.dtype, (x,), (t, _info(t.shape[:-2])), uplo="L" if lower else "U")
    return _checked(b, info, y)[0]


def getrf(b: Any, x: Any) -> tuple[Any, Any]:
    """LU with partial pivoting: packed factors and 0-based row swaps. A singular matrix is no failure."""
    t: ArrayType = x.type
    swaps = ArrayType((*t.shape[:-2], min(t.shape[-2:])), dtypes.int32)
    lu, pivots, info = _call(b, "getrf", t.dtype, (x,), (t, swaps, _info(t.shape[:-2])))
    pivots = b.simple("subtract", (pivots, b.constant(1, swaps)), swaps)
    return _checked(b, info, lu, direction="GE")[0], pivots


def geqrf(b: Any, x: Any) -> tuple[Any, Any]:
    """Householder QR: R and the reflectors packed, and their scalars."""
    t: ArrayType = x.type
    taus = ArrayType((*t.shape[:-2], min(t.shape[-2:])), t.dtype)
    return _call(b, "geqrf", t.dtype, (x,), (t, taus))  # type: ignore[return-value]


def orgqr(b: Any, x: Any, taus: Any) -> Any:
    """The orthogonal (unitary) factor from reflectors."""
    dtype = x.type.dtype
    return _call(b, "ungqr" if dtype in dtypes.COMPLEX else "orgqr", dtype, (x, taus), (x.type,))[0]


def syevd(b: Any, x: Any, lower: bool = True) -> tuple[Any, Any]:
    """Eigenvectors (columns) and ascending eigenvalues of a symmetric (Hermitian) matrix."""
    t: ArrayType = x.type
    values = ArrayType(t.shape[:-1], dtypes.real_part(t.dtype))
    routine = "heevd" if t.dtype in dtypes.COMPLEX else "syevd"
    outs = (t, values, _info(t.shape[:-2]))
    v, w, info = _call(b, routine, t.dtype, (x,), outs, mode="V", uplo="L" if lower else "U")
    v, w = _checked(b, info, v, w)
    return v, w


def gesdd(b: Any, x: Any, full_matrices: bool, compute_uv: bool = True) -> tuple[Any, Any, Any]:
    """Singular values, U and V^H. Without ``compute_uv`` the last two are not to be read."""
    t: ArrayType = x.type
    (*batch, m, n), k = t.shape, min(t.shape[-2:])
    s = ArrayType((*batch, k), dtypes.real_part(t.dtype))
    u = ArrayType((*batch, m, m if full_matrices else k), t.dtype)
    vt = ArrayType((*batch, n if full_matrices else k, n), t.dtype)
    mode = "N" if not compute_uv else "A" if full_matrices else "S"
    _, s, u, vt, info = _call(b, "gesdd", t.dtype, (x,), (t, s, u, vt, _info(tuple(batch))), mode=mode)
    s, u, vt = _checked(b, info, s, u, vt)
    return s, u, vt


def geev(b: Any, x: Any, left: bool, right: bool) -> tuple[Any, Any, Any]:
    """Eigenvalues, left and right eigenvectors (columns), all complex. Those not asked for are not to be read."""
    t: ArrayType = x.type
    values = ArrayType(t.shape[:-1], t.dtype)
    vectors = ArrayType(t.shape, dtypes.complex_of(t.dtype))
    real = t.dtype in dtypes.FLOAT
    outs = ((values,) if real else ()) + (values, vectors, vectors, _info(t.shape[:-2]))
    ask = {"compute_left": "V" if left else "N", "compute_right": "V" if right else "N"}
    *w, vl, vr, info = _call(b, "geev", t.dtype, (x,), outs, **ask)
    joined = b.op("stablehlo.complex", w, ArrayType(values.shape, vectors.dtype)) if real else w[0]
    joined, vl, vr = _checked(b, info, joined, vl, vr)
    return joined, vl, vr
