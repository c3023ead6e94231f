"""Fourier transforms of a few values in registers, and the roots of unity that larger ones are made with.

A complex value is a pair of vectors: real parts and imaginary parts of as many lines as there are lanes. Everything
transforms forwards, by ``exp(-2 pi i j k / n)``: who swaps the parts before and after transforms backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax.kernels.cpu.ir import Function, Value

NDArray = np.ndarray[Any, Any]
Pair = tuple[Value, Value]
PRIMES: Final = (2, 3, 5, 7, 11, 13)  # of which butterflies are written


def roots(n: int, exponents: NDArray) -> NDArray:
    """``exp(-2 pi i e / n)`` in double precision, exact to the last bit or so: angles are brought below 45 degrees."""
    e = np.asarray(exponents, np.int64) % n
    octant, rest = np.divmod(8 * e, n)  # e / n = (octant + rest / n) / 8
    odd = octant % 2 == 1
    angle = np.where(odd, n - rest, rest) * (np.pi / 4 / n)
    c, s = np.cos(angle), np.sin(angle)
    quarter = (octant + 1) // 2 % 4
    # An odd octant runs backwards from the next multiple of 90 degrees.
    s = np.where(odd, -s, s)
    real = np.choose(quarter, [c, -s, -c, s])
    imag = np.choose(quarter, [s, c, -s, -c])
    return real - 1j * imag


@lru_cache(None)
def factors(n: int) -> tuple[int, ...]:
    """The primes of ``n``, least first."""
    found: list[int] = []
    p = 2
    while n > 1:
        if p * p > n:
            p = n
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return tuple(found)


def is_smooth(n: int) -> bool:
    """Whether passes of butterflies alone transform ``n`` elements."""
    return all(p in PRIMES for p in factors(n))


@lru_cache(None)
def radices(n: int, eights: bool) -> tuple[int, ...]:
    """The sizes of the butterflies of each pass: few passes, and no butterfly that registers do not hold.

    ``eights``: there are registers for 8 complex values and more.
    """
    primes = factors(n)
    odd = [p for p in primes if p > 2]
    twos = len(primes) - len(odd)
    found: list[int] = []
    while eights and (twos > 4 or twos == 3):
        found.append(8)
        twos -= 3
    found += [4] * (twos // 2)
    if twos % 2:
        found.append(2 * odd.pop(0) if odd and odd[0] < 7 else 2)
    return tuple(sorted((*found, *odd), reverse=True))


def times(f: Function, x: Pair, w: Pair) -> Pair:
    """The product of complex values."""
    return f.fma(x[0], w[0], -(x[1] * w[1])), f.fma(x[0], w[1], x[1] * w[0])


def _turned(f: Function, x: Pair, e: int, n: int) -> Pair:
    """``x`` times ``exp(-2 pi i e / n)``, a constant."""
    e %= n
    if 4 * e % n == 0:
        re, im = x
        return [(re, im), (im, -re), (-re, -im), (-im, re)][4 * e // n]
    w = complex(roots(n, np.array([e]))[0])
    if 8 * e % n == 0:
        half = f.constant(x[0].type, abs(w.real))
        a, b = (x[0] + x[1]) * half, (x[1] - x[0]) * half
        return [(a, b), (b, -a), (-a, -b), (-b, a)][(8 * e // n - 1) // 2]
    return times(f, x, (f.constant(x[0].type, w.real), f.constant(x[0].type, w.imag)))


def butterfly(f: Function, xs: Sequence[Pair]) -> list[Pair]:
    """The transform of ``xs``."""
    n = len(xs)
    primes = factors(n)
    if n == 1:
        return list(xs)
    if n == 2:
        (a, b), (c, d) = xs
        return [(a + c, b + d), (a - c, b - d)]
    if len(primes) == 1:
        return _prime(f, xs)
    # Cooley and Tukey: x[b j + i] by transforms over j, then over i. The larger first: at n / 2
    # nothing is turned.
    a = 4 if n == 16 else primes[-1]
    b = n // a
    inner = [butterfly(f, xs[i::b]) for i in range(b)]
    ys: list[Pair] = [xs[0]] * n
    for k in range(a):
        ys[k::a] = butterfly(f, [_turned(f, inner[i][k], i * k, n) for i in range(b)])
    return ys


def _prime(f: Function, xs: Sequence[Pair]) -> list[Pair]:
    """An odd prime: real and imaginary parts of the roots apart, each for two elements and two results at once."""
    n = len(xs)
    half = range(1, n // 2 + 1)
    sums = [(xs[j][0] + xs[-j][0], xs[j][1] + xs[-j][1]) for j in half]
    differences = [(xs[j][0] - xs[-j][0], xs[j][1] - xs[-j][1]) for j in half]
    ys: list[Pair] = [xs[0]] * n
    re, im = xs[0]
    for a, b in sums:
        re, im = re + a, im + b
    ys[0] = re, im
    for k in half:
        w = roots(n, np.array([j * k for j in half]))
        (re, im), other = xs[0], None
        for (a, b), (c, d), z in zip(sums, differences, w, strict=True):
            re, im = f.fma(a, float(z.real), re), f.fma(b, float(z.real), im)
            s = float(-z.imag)
            other = (c * s, d * s) if other is None else (f.fma(c, s, other[0]), f.fma(d, s, other[1]))
        assert other is not None
        ys[k] = re + other[1], im - other[0]
        ys[n - k] = re - other[1], im + other[0]
    return ys
