"""LAPACK's own routines for large matrices, out of the library that NumPy's linear algebra is linked with.

NumPy computes float32 in double precision, and copies; these take half the time. A routine reads its operands' memory
and writes the results'. Matrices stand row by row here, which LAPACK, whose columns are contiguous, reads as their
transposes: a lower triangle is an upper one, and the singular vectors of a transpose are those of the matrix in another
order. Only QR, LU and eigenvectors are turned.

Symbols that end in ``64_`` take integers of 64 bits. A NumPy with another library has none of them, and the op's NumPy
meaning is called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.linalg import _umath_linalg

from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation

NDArray = np.ndarray[Any, Any]
Routine = Callable[[Sequence[NDArray], Sequence[NDArray]], None]
_LETTERS: Final = {dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c", dtypes.complex128: "z"}
_SPELLED: Final = ("scipy_{}_64_", "{}_64_")
_STRIP: Final = 16  # rows
_BLOCK: Final = 64  # rows whose upper triangle is cleared together
_TURNED: Final = 1 << 16  # elements of matrices that are turned after a row of calls


@lru_cache(None)
def _symbol(name: str) -> Any:
    """The address of the routine ``name``; None where NumPy's library has none that takes integers of 64 bits."""
    try:
        # Symbols of what it depends on are found, too.
        library = ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None
    found = next((f for s in _SPELLED if (f := getattr(library, s.format(name), None)) is not None), None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value


@lru_cache(None)
def _function(name: str, count: int) -> Callable[..., None]:
    """The routine called ``name``, of so many arguments, each of them an address or a length."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(_symbol(name))


def _call(name: str, *args: int | bytes | NDArray) -> int:
    """Call a routine; its info code. Letters are followed, behind all other arguments, by their lengths."""
    return _call_each(name, 1, *args)[0]


def _call_each(name: str, count: int, *args: int | bytes | NDArray | tuple[NDArray, int]) -> list[int]:
    """`_call` so many times; of a pair, an array and bytes, the place moves by so many from one call to the next."""
    numbers = (ctypes.c_int64 * (len(args) + 1))()  # the last one is the info code
    here = ctypes.addressof(numbers)
    passed: list[Any] = []
    moving: list[tuple[int, int]] = []
    letters = 0
    for i, x in enumerate(args):
        if isinstance(x, int):
            numbers[i] = x
            passed.append(here + 8 * i)
        elif isinstance(x, bytes):
            letters += 1
            passed.append(x)
        elif isinstance(x, tuple):
            moving.append((i, x[1]))
            passed.append(x[0].ctypes.data)
        else:
            passed.append(x.ctypes.data)
    passed += [here + 8 * len(args), *[1] * letters]
    routine, found = _function(name, len(passed)), list[int]()
    for _ in range(count):
        routine(*passed)
        found.append(numbers[len(args)])
        for i, step in moving:
            passed[i] += step
    return found


def _room(name: str, before: Sequence[Any], dtype: DType, after: Sequence[Any] = ()) -> tuple[NDArray, int]:
    """The work space that a routine asks for, and its length."""
    known = lambda xs: tuple([x if isinstance(x, (int, bytes)) else None for x in xs])
    size = _length(name, known(before), dtype, known(after))
    return np.empty(size, dtype), size


@lru_cache(1024)
def _length(name: str, before: Sequence[Any], dtype: DType, after: Sequence[Any]) -> int:
    """The question for that; the answer does not depend on what is in the arrays, which are None here."""
    answer, unread = np.zeros(1, dtype), np.zeros(2, np.complex128)
    given = lambda xs: [unread if x is None else x for x in xs]
    _call(name, *given(before), answer, -1, *given(after))
    # A single-precision number may have been rounded down.
    return max(1, int(np.nextafter(answer[0].real, np.inf)))


def _name(dtype: DType, real: str, unitary: str = "") -> str:
    return _LETTERS[dtype] + (unitary if unitary and dtype in dtypes.COMPLEX else real)


def _matrices(x: NDArray, ndim: int = 2) -> NDArray:
    """All of a batch, one after the other; a view."""
    return x.reshape(-1, *x.shape[x.ndim - ndim :])


def _turn(x: NDArray, y: NDArray) -> None:
    """The transpose of ``x`` to ``y``, in strips whose cache lines stay."""
    for i in range(0, len(x), _STRIP):
        y[:, i : i + _STRIP] = x[i : i + _STRIP].T


# --- routines ---


def _cholesky(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (x,), (y,) = ins, outs
    y[...] = x
    n = x.shape[-1]
    above = np.triu(np.ones((_BLOCK, _BLOCK), bool), 1)
    for a in _matrices(y):
        if _call(_name(x.dtype, "potrf"), b"U", n, a, n):
            a[...] = np.nan
        for i in range(0, n, _BLOCK):
            corner = a[i : i + _BLOCK, i : i + _BLOCK]
            np.copyto(corner, 0, where=above[: len(corner), : len(corner)])
            a[i : i + _BLOCK, i + _BLOCK :] = 0


def _eigh(ins: Sequence[NDArray], outs: Sequence[NDArray], *, lower: bool, compute_uv: bool = True) -> None:
    (x,), (v, w) = ins, outs
    n, d = x.shape[-1], x.dtype
    name, uplo, real = _name(d, "syevd", "heevd"), b"U" if lower else b"L", dtypes.real_part(d)
    a, values = np.empty((n, n), d), np.empty(n, real)
    integers = np.empty(5 * n + 3, np.int64)
    extra = (np.empty(1 + 5 * n + 2 * n * n, real), 1 + 5 * n + 2 * n * n) if d in dtypes.COMPLEX else ()
    after = (*extra, integers, integers.size)
    before = (b"V" if compute_uv else b"N", uplo, n, a, n, values)
    work = _room(name, before, d, after)
    triangle = np.tril if lower else np.triu
    for one, vectors, numbers in zip(_matrices(x), _matrices(v), _matrices(w, 1), strict=True):
        a[...] = one
        if not np.isfinite(triangle(one)).all() or _call(name, *before, *work, *after):
            vectors[...] = numbers[...] = np.nan
        else:
            numbers[...] = values
            if compute_uv:
                _turn(a.conj() if d in dtypes.COMPLEX else a, vectors)


def _svd(ins: Sequence[NDArray], outs: Sequence[NDArray], *, full_matrices: bool, compute_uv: bool) -> None:
    (x,) = ins
    m, n = x.shape[-2:]
    d, k, most = x.dtype, min(m, n), max(m, n)
    name, a = _name(d, "gesdd"), np.empty((m, n), x.dtype)
    job = b"N" if not compute_uv else b"A" if full_matrices else b"S"
    real = max(7 * k, 5 * k * k + 5 * k, 2 * most * k + 2 * k * k + k)
    extra = (np.empty(real, dtypes.real_part(d)),) if d in dtypes.COMPLEX else ()
    after = (*extra, np.empty(8 * k, np.int64))
    none = np.empty(1, d)
    rows = m if full_matrices else k
    many = [_matrices(y, 1 if i == 0 else 2) for i, y in enumerate(outs)]
    work: Any = None
    for i, one in enumerate(_matrices(x)):
        s, u, vh = (many[0][i], many[1][i], many[2][i]) if compute_uv else (many[0][i], none, none)
        # Of the transpose: what is left there is right here.
        before = (job, n, m, a, n, s, vh, n, u, rows)
        work = work or _room(name, before, d, after)
        a[...] = one
        if not np.isfinite(a).all() or _call(name, *before, *work, *after):
            for y in many:
                y[i] = np.nan


def _geqrf(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (x,), (y, taus) = ins, outs
    m, n = x.shape[-2:]
    a, name, work = np.empty((n, m), x.dtype), _name(x.dtype, "geqrf"), None
    for one, packed, tau in zip(_matrices(x), _matrices(y), _matrices(taus, 1), strict=True):
        before = (m, n, a, m, tau)
        work = work or _room(name, before, x.dtype)
        _turn(one, a)
        _call(name, *before, *work)
        _turn(a, packed)


def _householder_product(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (x, taus), (y,) = ins, outs
    m, n = x.shape[-2:]
    a, name, work = np.empty((n, m), x.dtype), _name(x.dtype, "orgqr", "ungqr"), None
    for one, q, tau in zip(_matrices(x), _matrices(y), _matrices(taus, 1), strict=True):
        before = (m, n, tau.size, a, m, tau)
        work = work or _room(name, before, x.dtype)
        _turn(one, a)
        _call(name, *before, *work)
        _turn(a, q)


def _triangular_solve(
    ins: Sequence[NDArray],
    outs: Sequence[NDArray],
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> None:
    """op(A) X = B is X^T op(A)^T = B^T for who reads transposes: A's triangle and the side are the other ones."""
    (a, b), (x,) = ins, outs
    x[...] = b
    n, (rows, columns) = a.shape[-1], x.shape[-2:]
    if conjugate_a and not transpose_a:
        a = a.conj()
    letters = (
        b"R" if left_side else b"L",
        b"U" if lower else b"L",
        b"N" if not transpose_a else b"C" if conjugate_a else b"T",
        b"U" if unit_diagonal else b"N",
    )
    for matrix, each in zip(_matrices(a), _matrices(x), strict=True):
        # A routine of BLAS: it has no info code, and does not look for it.
        _call(_name(x.dtype, "trsm"), *letters, columns, rows, np.ones(1, x.dtype), matrix, n, each, columns)


def _lu(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    """Leaves the columns of the factors contiguous: ``[..., n, m]`` in the memory of ``[..., m, n]``."""
    (x,), (y, pivots, permutation) = ins, outs
    m, n = x.shape[-2:]
    swaps = np.empty(min(m, n), np.int64)
    each = (_matrices(x), y.reshape(-1, n, m), _matrices(pivots, 1), _matrices(permutation, 1))
    for one, a, chosen, order in zip(*each, strict=True):
        _turn(one, a)
        _call(_name(x.dtype, "getrf"), m, n, a, m, swaps)
        chosen[...] = swaps - 1
        rows = list(range(m))
        for i, p in enumerate(chosen.tolist()):
            rows[i], rows[p] = rows[p], rows[i]
        order[...] = rows


def tridiagonal_routine(dtype: DType) -> Routine | None:
    """Diagonals and what is beside them, in rows that may be longer, to ascending eigenvalues and vectors in such rows.

    None where there is no such routine.
    """
    return _tridiagonal if dtype in dtypes.FLOAT and _symbol(_name(dtype, "stedc")) is not None else None


def _tridiagonal(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (diagonals, beside), (values, vectors) = ins, outs
    n, d = values.shape[-1], diagonals.dtype
    values, vectors = _matrices(values, 1), _matrices(vectors)
    others = _matrices(beside, 1).copy()
    values[...] = _matrices(diagonals, 1)[:, :n]
    known = _finite_or_zero(values, others)
    work, integers = np.empty(1 + 4 * n + n * n, d), np.empty(5 * n + 3, np.int64)
    info = _call_each(
        _name(d, "stedc"), len(values), b"I", n, _each(values), _each(others), _each(vectors), vectors.shape[-1],
        work, work.size, integers, integers.size,
    )  # fmt: skip
    failed = ~known | (np.array(info) != 0)
    vectors[failed] = values[failed] = np.nan


def _each(x: NDArray) -> tuple[NDArray, int]:
    """One after the other along the first dimension, for `_call_each`."""
    return x, x.strides[0]


def _finite_or_zero(x: NDArray, y: NDArray) -> NDArray:
    """Which matrices are finite; the others become zeros, since a routine may search for their values for ever."""
    known = np.asarray(np.isfinite(x).all(-1) & np.isfinite(y).all(-1))
    if not known.all():
        x[~known] = y[~known] = 0
    return known


def bidiagonal_routine(dtype: DType) -> Routine | None:
    """As `tridiagonal_routine`, of singular values and vectors: those of the columns, and those of the rows."""
    return _bidiagonal if dtype in dtypes.FLOAT and _symbol(_name(dtype, "bdsdc")) is not None else None


def _bidiagonal(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (diagonals, above), (values, left, right) = ins, outs
    n, d = values.shape[-1], diagonals.dtype
    values, left, right = _matrices(values, 1), _matrices(left), _matrices(right)
    x, y = _matrices(diagonals, 1)[:, :n], _matrices(above, 1)[:, : n - 1]
    # The routine takes numbers near the smallest ones for zeros; powers of two change no other.
    power = np.frexp(np.maximum(abs(x).max(-1), abs(y).max(-1, initial=0)))[1][:, None]
    values[...] = np.ldexp(x, -power)
    beside = np.ldexp(y, -power)
    known = _finite_or_zero(values, beside)
    # Work space, and two arrays that are not used here.
    none, rooms = (np.empty(1, d), np.empty(1, np.int64)), (np.empty(3 * n * n + 4 * n, d), np.empty(8 * n, np.int64))
    v = np.empty((max(1, _TURNED // (n * n)), n, n), d)
    info: list[int] = []
    for i in range(0, len(values), len(v)):
        some = [m[i : i + len(v)] for m in (values, beside, left, right)]
        info += _call_each(
            _name(d, "bdsdc"), len(some[0]), b"U", b"I", n, _each(some[0]), _each(some[1]), _each(some[2]),
            left.shape[-1], _each(v), n, *none, *rooms,
        )  # fmt: skip
        for turned, lines in zip(v, some[3], strict=False):
            _turn(turned, lines[:, :n])
    values[...] = np.ldexp(values, power)
    failed = ~known | (np.array(info) != 0)
    left[failed] = right[failed] = values[failed] = np.nan


def _schur(ins: Sequence[NDArray], outs: Sequence[NDArray], *, vectors: bool) -> None:
    (x,), d = ins, ins[0].dtype
    n, none = x.shape[-1], np.empty(1, d)
    a, q = np.empty((n, n), d), np.empty((n, n), d) if vectors else none
    # Eigenvalues; those of a real matrix in two parts.
    values = (np.empty(n, d),) if d in dtypes.COMPLEX else (np.empty(n, d), np.empty(n, d))
    after = (*((np.empty(n, dtypes.real_part(d)),) if d in dtypes.COMPLEX else ()), none)
    # No order is asked for: neither what would choose it nor the count of what it chose is used.
    before = (b"V" if vectors else b"N", b"N", none, n, a, n, np.empty(1, np.int64), *values, q, n)
    work = _room(_name(d, "gees"), before, d, after)
    many = [_matrices(y) for y in outs]
    for i, one in enumerate(_matrices(x)):
        _turn(one, a)
        if not np.isfinite(one).all() or _call(_name(d, "gees"), *before, *work, *after):
            for y in many:
                y[i] = np.nan
        else:
            for found, y in zip((a, q), many, strict=False):
                _turn(found, y[i])


def _hessenberg(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (x,), (y, taus) = ins, outs
    n = x.shape[-1]
    a, name, work = np.empty((n, n), x.dtype), _name(x.dtype, "gehrd"), None
    for one, packed, tau in zip(_matrices(x), _matrices(y), _matrices(taus, 1), strict=True):
        before = (n, 1, n, a, n, tau)
        work = work or _room(name, before, x.dtype)
        _turn(one, a)
        _call(name, *before, *work)
        _turn(a, packed)


def _tridiagonal_form(ins: Sequence[NDArray], outs: Sequence[NDArray], *, lower: bool) -> None:
    (x,), n = ins, ins[0].shape[-1]
    a, name, work = np.empty((n, n), x.dtype), _name(x.dtype, "sytrd", "hetrd"), None
    each = (_matrices(x), _matrices(outs[0]), *(_matrices(y, 1) for y in outs[1:]))
    for one, packed, diagonal, beside, tau in zip(*each, strict=True):
        before = (b"L" if lower else b"U", n, a, n, diagonal, beside, tau)
        work = work or _room(name, before, x.dtype)
        _turn(one, a)
        _call(name, *before, *work)
        _turn(a, packed)


def _qr_pivots(ins: Sequence[NDArray], outs: Sequence[NDArray]) -> None:
    (x,), (y,) = ins, outs
    m, n = x.shape[-2:]
    a, order, tau = np.empty((n, m), x.dtype), np.empty(n, np.int64), np.empty(min(m, n), x.dtype)
    name, before = _name(x.dtype, "geqp3"), (m, n, a, m, order, tau)
    after = (np.empty(2 * n, dtypes.real_part(x.dtype)),) if x.dtype in dtypes.COMPLEX else ()
    work = _room(name, before, x.dtype, after)
    for one, columns in zip(_matrices(x), _matrices(y, 1), strict=True):
        _turn(one, a)
        order[...] = 0  # no column has its place
        _call(name, *before, *work, *after)
        columns[...] = order - 1


# What stands for an op, and the symbols that it calls: of real, and of complex numbers.
_ROUTINES: Final[dict[str, tuple[Callable[..., None], str, str]]] = {
    "cholesky": (_cholesky, "potrf", "potrf"),
    "eigh": (_eigh, "syevd", "heevd"),
    "svd": (_svd, "gesdd", "gesdd"),
    "geqrf": (_geqrf, "geqrf", "geqrf"),
    "householder_product": (_householder_product, "orgqr", "ungqr"),
    "lu": (_lu, "getrf", "getrf"),
    "triangular_solve": (_triangular_solve, "trsm", "trsm"),
    "schur": (_schur, "gees", "gees"),
    "hessenberg": (_hessenberg, "gehrd", "gehrd"),
    "tridiagonal": (_tridiagonal_form, "sytrd", "hetrd"),
    "qr_pivots": (_qr_pivots, "geqp3", "geqp3"),
}

# Results that are vectors, which take longer than the values do.
_VECTORS: Final = {"eigh": (0,), "svd": (1, 2)}


def routine(e: Equation, read: Sequence[bool]) -> Routine | None:
    """What computes ``e`` in the memory of its results; None where there is no such routine.

    ``read``: which results anybody reads. Vectors are computed for somebody.
    """
    function, *symbols = _ROUTINES[e.op.name]
    type = e.inputs[0].type
    if not all(v.type.size for v in (*e.inputs, *e.outputs)) or type.dtype not in _LETTERS:
        return None
    if _symbol(_name(type.dtype, *symbols)) is None:
        return None
    params = dict(e.params)
    if e.op.name in _VECTORS and not any(read[i] for i in _VECTORS[e.op.name] if i < len(read)):
        params["compute_uv"] = False
    return partial(function, **params)
