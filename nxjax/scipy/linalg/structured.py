"""Matrices of a known structure: constant along diagonals, made of blocks, of polynomials, and famous ones."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy import host_functions
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import as_operand, check_choice, promote, promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array


def _vectors(name: str, *xs: Any) -> list[Array]:
    """Operands with at least one dimension."""
    return [jnp.atleast_1d(as_operand(x, f"scipy.linalg.{name}")) for x in xs]


def _at_least(name: str, x: Array, count: int) -> None:
    if x.shape[-1] < count:
        raise ShapeError(
            f"scipy.linalg.{name}: the vector is too short", got=x.type, expected=f"length {count} or more"
        )


@example("jnp.ones((1, 2)), 3.0", "[[1.0, 1.0, 0.0], [0.0, 0.0, 3.0]]", then=".tolist()")
def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix with the given ones along its diagonal, zeros elsewhere.

    Args:
        *arrs: of at most 2 dimensions; vectors are rows. They are promoted to one dtype.

    Raises:
        ShapeError: a block of more than 2 dimensions.
    """
    blocks = [jnp.atleast_2d(x) for x in promote("scipy.linalg.block_diag", *(arrs or (jnp.zeros((1, 0)),)))]
    for x in blocks:
        if x.ndim > 2:
            raise ShapeError("scipy.linalg.block_diag: blocks have at most 2 dimensions", got=x.type)
    width = sum(x.shape[1] for x in blocks)
    rows: list[Array] = []
    left = 0
    for x in blocks:
        rows.append(jnp.pad(x, ((0, 0), (left, width - left - x.shape[1]))))
        left += x.shape[1]
    return jnp.concatenate(rows)


def _pair(name: str, c: Array, r: Array) -> tuple[Array, Array]:
    """First column and last (or first) row with one batch and dtype."""
    c, r = promote(f"scipy.linalg.{name}", c, r)
    lead = jnp.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    return jnp.broadcast_to(c, (*lead, c.shape[-1])), jnp.broadcast_to(r, (*lead, r.shape[-1]))


@example("jnp.array([1, 2, 3]), jnp.array([0, 4])", "[[1, 4], [2, 1], [3, 2]]", then=".tolist()")
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Constant along diagonals, with first column ``c`` and first row ``r``.

    Args:
        c: ``[..., m]``.
        r: ``[..., n]``, whose first entry is not read; by default the conjugate of ``c``.
    """
    (column,) = _vectors("toeplitz", c)
    (row,) = (jnp.conj(column),) if r is None else _vectors("toeplitz", r)
    column, row = _pair("toeplitz", column, row)
    m, n = column.shape[-1], row.shape[-1]
    if not m or not n:
        return jnp.zeros((*column.shape[:-1], m, n), column.dtype)
    index = (m - 1) - np.arange(m)[:, None] + np.arange(n)[None, :]
    return jnp.concatenate([jnp.flip(column, -1), row[..., 1:]], -1)[..., index]


@example("jnp.array([1, 2]), jnp.array([0, 3, 4])", "[[1, 2, 3], [2, 3, 4]]", then=".tolist()")
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Constant along antidiagonals, with first column ``c`` and last row ``r``.

    Args:
        c: ``[..., m]``.
        r: ``[..., n]``, whose first entry is not read; zeros like ``c`` by default.

    Raises:
        ShapeError: a scalar.
    """
    column = as_operand(c, "scipy.linalg.hankel")
    row = jnp.zeros_like(column) if r is None else as_operand(r, "scipy.linalg.hankel")
    for x in (column, row):
        if not x.ndim:
            raise ShapeError("scipy.linalg.hankel: needs vectors", got=x.type, expected="at least 1 dimension")
    column, row = _pair("hankel", column, row)
    m, n = column.shape[-1], row.shape[-1]
    if not m or not n:
        return jnp.zeros((*column.shape[:-1], m, n), column.dtype)
    return jnp.concatenate([column, row[..., 1:]], -1)[..., np.arange(m)[:, None] + np.arange(n)[None, :]]


@example("jnp.array([1, 2, 3])", "[[1, 3, 2], [2, 1, 3], [3, 2, 1]]", then=".tolist()")
def circulant(c: ArrayLike) -> Array:
    """Every column is the one before, shifted down by one, round the end; the first one is ``c`` ``[..., n]``."""
    (x,) = _vectors("circulant", c)
    i = np.arange(x.shape[-1])
    return x[..., (i[:, None] - i[None, :]) % max(len(i), 1)]


@example("jnp.array([0.0, 2.0]), jnp.array([0.5])", "[[0.0, 2.0], [0.5, 0.0]]", then=".tolist()")
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """The matrix of a population by age: first row ``f`` (fecundity), below the diagonal ``s`` (survival).

    Args:
        f: ``[..., n]``, n > 1.
        s: ``[..., n - 1]``.

    Raises:
        ShapeError: ``s`` is not one shorter than ``f``.
    """
    first, below = _vectors("leslie", f, s)
    _at_least("leslie", first, 2)
    if below.shape[-1] != first.shape[-1] - 1:
        raise ShapeError("scipy.linalg.leslie: s is one shorter than f", got=f"{first.type}, {below.type}")
    first, below = _pair("leslie", first, below)
    return _first_row(first, below)


def _first_row(first: Array, below: Array) -> Array:
    """Matrices with a first row and a first subdiagonal."""
    n = first.shape[-1]
    rest = jnp.eye(n - 1, n, dtype=first.dtype) * below[..., None]
    return jnp.concatenate([first[..., None, :], rest], -2)


@example("jnp.array([1.0, -3.0, 2.0])", "[[3.0, -2.0], [1.0, 0.0]]", then=".tolist()")
def companion(a: ArrayLike) -> Array:
    """The matrix with the characteristic polynomial ``a[0] x^(n-1) + ... + a[n-1]``.

    Args:
        a: coefficients ``[..., n]``, n > 1, of which the first is not 0; integers become float.
    """
    (x,) = _vectors("companion", *promote_inexact("scipy.linalg.companion", a))
    _at_least("companion", x, 2)
    first = -x[..., 1:] / x[..., :1]
    return _first_row(first, jnp.ones((*first.shape[:-1], first.shape[-1] - 1), first.dtype))


@example("jnp.array([1, 4])", "[[0, 3], [3, 0]]", then=".tolist()")
def fiedler(a: ArrayLike) -> Array:
    """The symmetric matrix ``|a_i - a_j|`` of ``a`` ``[..., n]``."""
    (x,) = _vectors("fiedler", a)
    return jnp.abs(x[..., :, None] - x[..., None, :])


@example("jnp.array([1.0, -3.0, 2.0])", "[[3.0, -2.0], [1.0, 0.0]]", then=".tolist()")
def fiedler_companion(a: ArrayLike) -> Array:
    """A matrix of five diagonals with the characteristic polynomial ``a[0] x^(n-1) + ... + a[n-1]``.

    M. Fiedler, "A note on companion matrices", Linear Algebra and its Applications 372, 2003.

    Args:
        a: coefficients ``[..., n]``, n > 0, of which the first is not 0; integers become float.
    """
    (x,) = _vectors("fiedler_companion", *promote_inexact("scipy.linalg.fiedler_companion", a))
    _at_least("fiedler_companion", x, 1)
    n = x.shape[-1] - 1
    # Entry i, j is 0, 1, or minus a coefficient: their numbers, where 0 and n + 1 stand for the constants.
    source = np.full((n, n), n + 1)
    for i in range(n):
        if i % 2 == 0:
            if i + 1 < n:
                source[i, i + 1] = i + 2
            if i + 2 < n:
                source[i, i + 2] = 0
            if i >= 2:
                source[i, i - 1] = i + 1
        elif i >= 2:
            source[i, i - 2] = 0
    if n:
        source[0, 0] = 1
    if n > 1:
        source[1, 0] = 0
    one = jnp.ones((*x.shape[:-1], 1), x.dtype)
    return jnp.concatenate([one, -x[..., 1:] / x[..., :1], 0 * one], -1)[..., source]


@example("jnp.array([1, 2]), 2", "[[1, 0], [2, 1], [0, 2]]", then=".tolist()")
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix whose product with a vector of length ``n`` is its convolution with ``a``.

    Args:
        a: ``[..., m]``, m > 0.
        n: at least 1.
        mode: as of `numpy.convolve`: ``"full"``, ``"same"`` or ``"valid"``.

    Raises:
        ParameterError: ``n`` is not positive, or another ``mode``.
        ShapeError: ``a`` is empty or a scalar.
    """
    count = operator.index(n)
    if count <= 0:
        raise ParameterError("scipy.linalg.convolution_matrix: n", got=n, expected="a positive integer")
    x = as_operand(a, "scipy.linalg.convolution_matrix")
    if not x.ndim or not x.shape[-1]:
        raise ShapeError("scipy.linalg.convolution_matrix: a is empty or a scalar", got=x.type, expected="[..., m]")
    check_choice("scipy.linalg.convolution_matrix: mode", mode, "full", "same", "valid")
    m = x.shape[-1]
    short = min(count, m) - 1
    before, after = {"full": (0, 0), "same": (short // 2, short - short // 2), "valid": (short, short)}[mode]
    index = np.arange(before, m + count - 1 - after)[:, None] - np.arange(count)[None, :]
    padded = jnp.concatenate([x, jnp.zeros_like(x[..., :1])], -1)
    return padded[..., np.where((index >= 0) & (index < m), index, m)]


@example("2", "[[1.0, 0.5], [0.5, 0.3333333432674408]]", then=".tolist()")
def hilbert(n: int) -> Array:
    """The matrix 1 / (i + j + 1) of ``n`` rows, float."""
    i = np.arange(n)
    return jnp.asarray(1 / (i[:, None] + i[None, :] + 1), float)


@example("2", "[[4.0, -6.0], [-6.0, 12.0]]", then=".tolist()")
def invhilbert(n: int) -> Array:
    """The inverse of `hilbert`, whose entries are whole numbers, rounded to float."""
    c = math.comb
    entries = [
        [(-1) ** (i + j) * (i + j + 1) * c(n + i, n - j - 1) * c(n + j, n - i - 1) * c(i + j, i) ** 2 for j in range(n)]
        for i in range(n)
    ]
    return jnp.asarray(np.array(entries, float).reshape(n, n), float)


def _binomials(n: int, name: str, kind: str | None, sign: int) -> tuple[np.ndarray[Any, Any], str]:
    chosen = "symmetric" if kind is None else kind
    check_choice(f"scipy.linalg.{name}: kind", chosen, "symmetric", "lower", "upper")
    rows = [[sign ** (i - j) * math.comb(i, j) if i >= j else 0 for j in range(n)] for i in range(n)]
    return np.array(rows, object).reshape(n, n), chosen


@example("3", "[[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]", then=".tolist()")
def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's matrix, float32: binomials (i + j over i), or its triangular factors, (i over j) and its transpose.

    Args:
        n: number of rows.
        kind: ``"symmetric"`` (the default), ``"lower"`` or ``"upper"``.
    """
    low, kind = _binomials(n, "pascal", kind, 1)
    found = {"symmetric": low @ low.T, "lower": low, "upper": low.T}[kind]
    return jnp.asarray(found.astype(np.float64), np.float32)


@example("2", "[[2.0, -1.0], [-1.0, 1.0]]", then=".tolist()")
def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal`, float."""
    low, kind = _binomials(n, "invpascal", kind, -1)
    found = {"symmetric": low.T @ low, "lower": low, "upper": low.T}[kind]
    return jnp.asarray(found.astype(np.float64), float)


@example("2", "[[0.7071067690849304, -0.7071067690849304]]", then=".tolist()")
def helmert(n: int, full: bool = False) -> Array:
    """Orthonormal rows of which row i compares entry i + 1 with the mean of those before it, float.

    Args:
        n: number of columns, at least 1.
        full: with the row of ``1 / sqrt(n)`` on top, which makes it square and orthogonal.

    Raises:
        ParameterError: ``n`` is not positive.
    """
    if n < 1:
        raise ParameterError("scipy.linalg.helmert: n", got=n, expected="a positive integer")
    k = np.arange(1, n)[:, None]
    j = np.arange(n)[None, :]
    rows = np.where(j < k, 1.0, np.where(j == k, -k, 0.0)) / np.sqrt(k * (k + 1.0))
    whole = np.concatenate([np.full((1, n), 1 / np.sqrt(n)), rows]) if full else rows
    return jnp.asarray(whole, float)


@example("2", "[[1, 1], [1, -1]]", then=".tolist()", raises="ParameterError: ``n`` is not a power of 2.")
def hadamard(n: int, dtype: DTypeLike | None = int) -> Array:
    """Sylvester's matrix of ones and minus ones with orthogonal rows; ``n`` is a power of 2."""
    if n < 1 or n & (n - 1):
        raise ParameterError("scipy.linalg.hadamard: n", got=n, expected="a power of 2")
    i = np.arange(n)
    parity = np.array([x.bit_count() for x in range(n)])[i[:, None] & i[None, :]] % 2
    return jnp.asarray(1 - 2 * parity, dtype)


@shown("jnp.round(dft(2)).real.tolist()", "[[1.0, 1.0], [1.0, -1.0]]")
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix of the discrete Fourier transform, ``exp(-2 pi i j k / n)``.

    Args:
        n: number of rows.
        scale: ``"sqrtn"`` divides by the root of n, which makes it unitary, ``"n"`` by n.
        dtype: complex; complex64 by default.

    Raises:
        ParameterError: another ``scale``, or a dtype that is not complex.
    """
    check_choice("scipy.linalg.dft: scale", scale, None, "sqrtn", "n")
    wanted = jnp.zeros((), complex).dtype if dtype is None else dtypes.as_dtype(dtype)
    if wanted not in dtypes.COMPLEX:
        raise ParameterError("scipy.linalg.dft: dtype", got=str(wanted), expected="a complex dtype")
    i = np.arange(n)
    angles = -2 * np.pi * ((i[:, None] * i[None, :]) % max(n, 1)) / max(n, 1)
    whole = host_functions.cos(angles) + 1j * host_functions.sin(angles)
    return jnp.asarray(whole / {None: 1, "sqrtn": np.sqrt(n), "n": n}[scale], wanted)
