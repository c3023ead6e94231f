"""The Schur factorization, by the shifted QR algorithm on Hessenberg matrices.

The steps, their shifts and what counts as zero are those of LAPACK's gees for matrices of up to 75 rows (lahqr), so
that eigenvalues come in its order: Golub and Van Loan, "Matrix Computations", 7.5; M. Ahues and F. Tisseur, "A new
deflation criterion for the QR algorithm" (LAPACK Working Note 122, 1997).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.linalg_base import finite
from nxjax.ops.linalg_hessenberg import HostMatrixOp, moderate, reduce_hessenberg, reflector, with_one
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


@final
class Schur(HostMatrixOp):
    """x = Q T Q^H with unitary Q: T, then Q if ``vectors``.

    T of a complex matrix is upper triangular; that of a real one has a 2 by 2 block [[a, b], [c, a]] with b c < 0 per
    pair of conjugate eigenvalues on its diagonal. Has no derivative.
    """

    name = "schur"
    multi = True

    def infer(self, x: ArrayType, /, *, vectors: bool) -> tuple[ArrayType, ...]:
        self.matrix(x, square=True)
        return (x.strong(),) * (2 if vectors else 1)

    def one(self, a: NDArray, *, vectors: bool) -> Sequence[NDArray]:
        return factorize(a)[: 2 if vectors else 1]


def factorize(x: NDArray) -> tuple[NDArray, NDArray]:
    """T and Q of one matrix; `LinAlgError` where the iteration does not end."""
    t, scale = moderate(np.array(finite(x)))
    n = len(x)
    swaps, low, high = _isolate(t)
    taus = reduce_hessenberg(t, low, high)
    q = np.eye(n, dtype=x.dtype)
    for i in reversed(range(low, high - 1)):
        w = with_one(t[i + 2 : high, i])
        q[i + 1 : high, i + 1 :] -= np.outer(taus[i] * w, w.conj() @ q[i + 1 : high, i + 1 :])
    t = np.triu(t, -1)
    if high - low > 1:
        (_complex_steps if x.dtype in dtypes.COMPLEX else _real_steps)(t, q, low, high)
    for i, j in swaps:
        q[[i, j]] = q[[j, i]]
    return t * scale, q


def _isolate(a: NDArray) -> tuple[list[tuple[int, int]], int, int]:
    """Exchange rows and columns so that eigenvalues that can be read off stand outside low to high (gebal, 'P').

    Gives the exchanges in the order in which they are undone.
    """
    n = len(a)
    low, high = 0, n
    first: list[tuple[int, int]] = []
    last: list[tuple[int, int]] = []

    def exchange(i: int, j: int) -> None:
        a[:high, [i, j]] = a[:high, [j, i]]
        a[[i, j], low:] = a[[j, i], low:]

    again = True
    while again:
        again = False
        for i in reversed(range(high)):
            row = np.delete(a[i, :high], i)
            if not row.any():
                last.append((high - 1, i))
                exchange(i, high - 1)
                again = True
                if high == 1:
                    return last[::-1], 0, 1
                high -= 1
    again = True
    while again:
        again = False
        for j in range(low, high):
            if j < low:
                continue
            column = np.delete(a[low:high, j], j - low)
            if not column.any():
                first.append((low, j))
                exchange(j, low)
                again = True
                low += 1
    return first[::-1] + last[::-1], low, high


def _size(x: Any) -> Any:
    """|re| + |im|"""
    return abs(x.real) + abs(x.imag)


def _small(h: NDArray, low: int, high: int, last: int, start: int, tiny: Any, ulp: Any) -> int:
    """The row of the last subdiagonal element above ``last`` that counts as zero, or ``start``."""
    for k in range(last, start, -1):
        below = _size(h[k, k - 1])
        if below <= tiny:
            return k
        scale = _size(h[k - 1, k - 1]) + _size(h[k, k])
        if scale == 0:
            if k - 2 >= low:
                scale += abs(h[k - 1, k - 2].real)
            if k + 1 < high:
                scale += abs(h[k + 1, k].real)
        if abs(h[k, k - 1].real) <= ulp * scale:
            above, here, step = _size(h[k - 1, k]), _size(h[k, k]), _size(h[k - 1, k - 1] - h[k, k])
            ab, ba, aa, bb = max(below, above), min(below, above), max(here, step), min(here, step)
            s = aa + ab
            if ba * (ab / s) <= max(tiny, ulp * (bb * (aa / s))):
                return k
    return start


def _limits(h: NDArray, size: int) -> tuple[Any, Any]:
    info = np.finfo(h.dtype)
    return info.tiny * (size / info.eps), info.eps


def _blocks(h: NDArray, low: int, high: int, size: int) -> Iterator[tuple[int, int, int]]:
    """First row, last row and number of the step of the block to work on next, until it has ``size`` rows at most.

    The step of a block that is done is 0.
    """
    tiny, ulp = _limits(h, high - low)
    last, budget = high - 1, 30 * max(10, high - low) * (high - low)
    while last >= low:
        start, step = low, 0
        while True:
            start = _small(h, low, high, last, start, tiny, ulp)
            if start > low:
                h[start, start - 1] = 0
            if start > last - size:
                break
            budget, step = budget - 1, step + 1
            if not budget:
                raise np.linalg.LinAlgError("the QR algorithm does not converge")
            yield start, last, step
        yield start, last, 0
        last = start - 1


def _real_steps(h: NDArray, z: NDArray, low: int, high: int) -> None:
    """Francis' double shifts, in place (LAPACK's dlahqr)."""
    ulp = np.finfo(h.dtype).eps
    for start, last, step in _blocks(h, low, high, 2):
        if step:
            _double_shift(h, z, start, last, _shifts(h, start, last, step), ulp)
        elif start < last:
            _standardize(h, z, last)


def _shifts(h: NDArray, start: int, last: int, stalled: int) -> tuple[Any, Any, Any, Any]:
    """Real and imaginary parts of two shifts: the eigenvalues of the last block, or others where that does not help."""
    if stalled % 10 == 0:
        at = last if stalled % 20 == 0 else start
        s = abs(h[last, last - 1]) + abs(h[last - 1, last - 2]) if at == last else 0
        s = s if at == last else abs(h[start + 1, start]) + abs(h[start + 2, start + 1])
        h11 = h22 = s * 0.75 + h[at, at]
        h12, h21 = s * -0.4375, s
    else:
        h11, h21, h12, h22 = h[last - 1, last - 1], h[last, last - 1], h[last - 1, last], h[last, last]
    s = abs(h11) + abs(h12) + abs(h21) + abs(h22)
    if s == 0:
        return s, s, s, s
    h11, h21, h12, h22 = h11 / s, h21 / s, h12 / s, h22 / s
    mean = (h11 + h22) / 2
    determinant = (h11 - mean) * (h22 - mean) - h12 * h21
    root = np.sqrt(abs(determinant))
    if determinant >= 0:
        return mean * s, root * s, mean * s, -root * s
    one, two = mean + root, mean - root
    real = (one if abs(one - h22) <= abs(two - h22) else two) * s
    return real, real * 0, real, real * 0


def _double_shift(h: NDArray, z: NDArray, start: int, last: int, shifts: tuple[Any, Any, Any, Any], ulp: Any) -> None:
    r1, i1, r2, i2 = shifts
    v = np.zeros(3, h.dtype)
    m = start
    for m in range(last - 2, start - 1, -1):
        s = abs(h[m, m] - r2) + abs(i2) + abs(h[m + 1, m])
        ratio = h[m + 1, m] / s
        v[0] = ratio * h[m, m + 1] + (h[m, m] - r1) * ((h[m, m] - r2) / s) - i1 * (i2 / s)
        v[1] = ratio * (h[m, m] + h[m + 1, m + 1] - r1 - r2)
        v[2] = ratio * h[m + 2, m + 1]
        v /= abs(v[0]) + abs(v[1]) + abs(v[2])
        if m == start:
            break
        around = abs(h[m - 1, m - 1]) + abs(h[m, m]) + abs(h[m + 1, m + 1])
        if abs(h[m, m - 1]) * (abs(v[1]) + abs(v[2])) <= ulp * abs(v[0]) * around:
            break
    for k in range(m, last):
        size = min(3, last - k + 1)
        head = v[:size] if k == m else h[k : k + size, k - 1].copy()
        beta, tail, tau = reflector(head[0], head[1:])
        if k > m:
            h[k, k - 1], h[k + 1 : k + size, k - 1] = beta, 0
        elif m > start:
            h[k, k - 1] *= 1 - tau
        w = with_one(tail)
        _reflect(h, z, k, size, min(k + 3, last) + 1, w, tau * w)


def _reflect(h: NDArray, z: NDArray, k: int, size: int, rows: int, w: NDArray, scaled: NDArray) -> None:
    """A real reflector from both sides of h, and from the right of z."""
    block = h[k : k + size, k:]
    block -= np.outer(scaled, w @ block)
    for x in (h[:rows, k : k + size], z[:, k : k + size]):
        x -= np.outer(x @ w, scaled)


def _standardize(h: NDArray, z: NDArray, i: int) -> None:
    """Rotate the block of rows i-1 and i: triangular if its eigenvalues are real, else with equal diagonal entries."""
    entries = h[i - 1 : i + 1, i - 1 : i + 1]
    (a, b), (c, d) = ((float(x) for x in row) for row in entries)
    a, b, c, d, cos, sin = _block(a, b, c, d, float(np.finfo(h.dtype).eps))
    turn = np.array([[cos, sin], [-sin, cos]], h.dtype)
    h[i - 1 : i + 1, i + 1 :] = turn @ h[i - 1 : i + 1, i + 1 :]
    h[: i - 1, i - 1 : i + 1] = h[: i - 1, i - 1 : i + 1] @ turn.T
    z[:, i - 1 : i + 1] = z[:, i - 1 : i + 1] @ turn.T
    h[i - 1 : i + 1, i - 1 : i + 1] = [[a, b], [c, d]]


def _block(a: float, b: float, c: float, d: float, eps: float) -> tuple[float, float, float, float, float, float]:
    """The standard form of [[a, b], [c, d]], and cosine and sine of the rotation that makes it (LAPACK's lanv2)."""
    sign = math.copysign
    if c == 0:
        return a, b, c, d, 1.0, 0.0
    if b == 0:
        return d, -c, 0.0, a, 0.0, 1.0
    if a == d and sign(1, b) != sign(1, c):
        return a, b, c, d, 1.0, 0.0
    difference = a - d
    p = 0.5 * difference
    largest, smallest = max(abs(b), abs(c)), min(abs(b), abs(c)) * sign(1, b) * sign(1, c)
    scale = max(abs(p), largest)
    z = p / scale * p + largest / scale * smallest
    if z >= 4 * eps:
        z = p + sign(math.sqrt(scale) * math.sqrt(z), p)
        tau = math.hypot(c, z)
        return d + z, b - c, 0.0, d - largest / z * smallest, z / tau, c / tau
    # Conjugate, or real and almost equal: equal diagonal entries.
    sigma = b + c
    tau = math.hypot(sigma, difference)
    cos = math.sqrt(0.5 * (1 + abs(sigma) / tau))
    sin = -(p / (tau * cos)) * sign(1, sigma)
    aa, bb, cc, dd = a * cos + b * sin, -a * sin + b * cos, c * cos + d * sin, -c * sin + d * cos
    a, b, c, d = aa * cos + cc * sin, bb * cos + dd * sin, -aa * sin + cc * cos, -bb * sin + dd * cos
    middle = 0.5 * (a + d)
    if c == 0:
        return middle, b, c, middle, cos, sin
    if b == 0:
        return middle, -c, 0.0, middle, -sin, cos
    if sign(1, b) != sign(1, c):
        return middle, b, c, middle, cos, sin
    root_b, root_c = math.sqrt(abs(b)), math.sqrt(abs(c))
    p, scale = sign(root_b * root_c, c), 1 / math.sqrt(abs(b + c))
    cos1, sin1 = root_b * scale, root_c * scale
    return middle + p, b - c, 0.0, middle - p, cos * cos1 - sin * sin1, cos * sin1 + sin * cos1


def _complex_steps(h: NDArray, z: NDArray, low: int, high: int) -> None:
    """Single shifts, in place, with real subdiagonals throughout (LAPACK's zlahqr)."""
    for i in range(low + 1, high):
        below = h[i, i - 1]
        if below.imag:
            _scale(h, z, i, np.conj(_phase(below)), min(high, i + 2))
            h[i, i - 1] = abs(below)
    ulp = np.finfo(h.dtype).eps
    for start, last, step in _blocks(h, low, high, 1):
        if step:
            _single_shift(h, z, start, last, h.dtype.type(_shift(h, start, last, step)), ulp)


def _phase(x: Any) -> Any:
    """x / |x|. The parts are scaled first, since the reciprocal of a subnormal number is infinite."""
    power = -max(math.frexp(x.real)[1], math.frexp(x.imag)[1])
    scaled = complex(math.ldexp(x.real, power), math.ldexp(x.imag, power))
    return x.dtype.type(scaled / abs(scaled))


def _scale(h: NDArray, z: NDArray, i: int, phase: Any, rows: int) -> None:
    """Row i from the diagonal on times ``phase``, column i up to ``rows`` and that of z times its conjugate."""
    h[i, i:] *= phase
    h[:rows, i] *= np.conj(phase)
    z[:, i] *= np.conj(phase)


def _shift(h: NDArray, start: int, last: int, stalled: int) -> complex:
    """Wilkinson's shift, or another one where that does not help."""
    if stalled % 20 == 0:
        return complex(0.75 * abs(h[last, last - 1].real) + h[last, last])
    if stalled % 10 == 0:
        return complex(0.75 * abs(h[start + 1, start].real) + h[start, start])
    t = complex(h[last, last])
    u = cmath.sqrt(complex(h[last - 1, last])) * cmath.sqrt(complex(h[last, last - 1]))
    s = _size(u)
    if s == 0:
        return t
    x = 0.5 * (complex(h[last - 1, last - 1]) - t)
    size = _size(x)
    s = max(s, size)
    y = s * cmath.sqrt((x / s) ** 2 + (u / s) ** 2)
    if size > 0 and (x / size).real * y.real + (x / size).imag * y.imag < 0:
        y = -y
    return t - u * (u / (x + y))


def _single_shift(h: NDArray, z: NDArray, start: int, last: int, shift: Any, ulp: Any) -> None:
    v = np.zeros(2, h.dtype)
    m = start
    for m in range(last - 1, start - 1, -1):
        v[0], v[1] = h[m, m] - shift, h[m + 1, m].real
        around = _size(v[0]) * (_size(h[m, m]) + _size(h[m + 1, m + 1]))
        s = _size(v[0]) + abs(v[1])
        v /= s
        if m == start or abs(h[m, m - 1].real) * abs(v[1]) <= ulp * around / s:
            break
    for k in range(m, last):
        head = v if k == m else h[k : k + 2, k - 1].copy()
        beta, tail, tau = reflector(head[0], head[1:])
        if k > m:
            h[k, k - 1], h[k + 1, k - 1] = beta, 0
        w = with_one(tail)
        block = h[k : k + 2, k:]
        block -= np.outer(np.conj(tau) * w, w.conj() @ block)
        rows = min(k + 2, last) + 1
        for x in (h[:rows, k : k + 2], z[:, k : k + 2]):
            x -= np.outer(x @ w, tau * w.conj())
        if k == m and m > start:
            _restore(h, z, m, last, 1 - tau)
    below = h[last, last - 1]
    if below.imag:
        phase = _phase(below)
        h[last, last - 1] = abs(below)
        h[last, last + 1 :] *= np.conj(phase)
        h[:last, last] *= phase
        z[:, last] *= phase


def _restore(h: NDArray, z: NDArray, m: int, last: int, phase: Any) -> None:
    """Make the subdiagonal real again where a step began in the middle."""
    phase = phase / abs(phase)
    h[m + 1, m] *= np.conj(phase)
    if m + 2 <= last:
        h[m + 2, m + 1] *= phase
    for j in range(m, last + 1):
        if j != m + 1:
            h[j, j + 1 :] *= phase
            h[:j, j] *= np.conj(phase)
            z[:, j] *= np.conj(phase)


schur = Schur()
