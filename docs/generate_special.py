"""Write the Chebyshev tables of `nxjax.scipy.special`: `python docs/generate_special.py`.

Every table is a truncated Chebyshev series of a smooth function on [-1, 1], from its values at Chebyshev points in
40 digits (Trefethen, "Approximation Theory and Approximation Practice", chapter 3). Needs mpmath.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import mpmath as mp

TO = Path(__file__).parents[1] / "nxjax/scipy/special/tables.py"
KEEP = 1e-17  # coefficients below it, relative to the greatest, are dropped
mp.mp.dps = 40


def series(f, samples=96):
    """Chebyshev coefficients of ``f``, a function of t in (-1, 1)."""
    values = [f(mp.cos(mp.pi * (2 * j + 1) / (2 * samples))) for j in range(samples)]
    found = []
    for k in range(samples):
        c = 2 * mp.fsum(v * mp.cos(mp.pi * k * (2 * j + 1) / (2 * samples)) for j, v in enumerate(values)) / samples
        found.append(c / 2 if k == 0 else c)
    top = max(abs(c) for c in found)
    last = max(k for k, c in enumerate(found) if abs(c) > KEEP * top)
    assert last < samples - 8, f"{last} terms are not all"
    return [float(c) for c in found[: last + 1]]


def moebius(f, k):
    """``f`` of x >= 0 as a function of t = (x - k) / (x + k)."""
    return lambda t: f(k * (1 + t) / (1 - t))


def inverse(f, low, high=mp.inf):
    """``f`` of x in [low, high] as a function of t, linear in 1 / x."""
    a, b = 1 / mp.mpf(low), (mp.mpf(0) if high == mp.inf else 1 / mp.mpf(high))
    return lambda t: f(1 / (b + (a - b) * (1 + t) / 2))


def linear(f, low, high):
    """``f`` of x in [low, high]."""
    return lambda t: f(low + (mp.mpf(high) - low) * (1 + t) / 2)


def erfcx(x):
    if x > 1000:
        u = 1 / (2 * x * x)
        return sum((-u) ** k * mp.fac2(2 * k - 1) for k in range(8)) / (x * mp.sqrt(mp.pi))
    return mp.exp(x * x) * mp.erfc(x)


def dawsn(x):
    if x > 1000:
        u = 1 / (2 * x * x)
        return sum(u**k * mp.fac2(2 * k - 1) for k in range(8)) / (2 * x)
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def auxiliary_sici(x):
    """f and g of DLMF 6.2.17 and 6.2.18, through E_1(ix)."""
    e = mp.e1(mp.mpc(0, x)) * mp.exp(mp.mpc(0, x)) if x < 500 else _asymptotic_e1(mp.mpc(0, x))
    # e^(ix) E_1(ix) = g - i f
    return -e.imag, e.real


def _asymptotic_e1(z):
    return mp.fsum((-1) ** k * mp.factorial(k) / z**k for k in range(40)) / z


def auxiliary_fresnel(x):
    """f and g of DLMF 7.2.10 and 7.2.11, through 7.5.13's erfc of a complex number."""
    z = mp.sqrt(mp.pi) / 2 * (1 - mp.mpc(0, 1)) * x
    if x < 25:
        w = mp.exp(z * z) * mp.erfc(z)
    else:
        u = 1 / (2 * z * z)
        w = mp.fsum((-u) ** k * mp.fac2(2 * k - 1) for k in range(40)) / (z * mp.sqrt(mp.pi))
    # g + i f = (1 + i) / 2 e^(z^2) erfc(z)
    y = (1 + mp.mpc(0, 1)) / 2 * w
    return y.imag, y.real


EI_ROOT = mp.findroot(mp.ei, mp.mpf("0.3725"))


def ei_near(x):
    d = x - EI_ROOT
    return (mp.ei(x) - mp.log(x / EI_ROOT)) / d


def ei_scaled(x):
    if x > 800:
        return mp.fsum(mp.factorial(k) / x**k for k in range(60))
    return x * mp.exp(-x) * mp.ei(x)


def e1_scaled(x):
    return x * mp.exp(x) * mp.e1(x) if x < 800 else mp.fsum((-1) ** k * mp.factorial(k) / x**k for k in range(60))


def ein(x):
    """The entire part of E_1: -log x - gamma + x ein(x)."""
    if abs(x) < 1e-6:
        return 1 - x / 4 + x * x / 18
    return (mp.e1(x) + mp.log(x) + mp.euler).real / x


def spence(x):
    d = x - 1
    if abs(d) < 1e-12:
        return -1 + d / 4
    return (mp.polylog(2, -d).real) / d


def near_si(x):
    return mp.si(x) / x


def near_cin(x):
    return (mp.euler + mp.log(x) - mp.ci(x)) / (x * x)


def near_s(x):
    return mp.fresnels(x) / x**3


def near_c(x):
    return mp.fresnelc(x) / x


TABLES = {
    "ERFCX": (
        "(1 + 2 x) erfcx(x), x >= 0, t = (x - 3.75) / (x + 3.75)",
        [moebius(lambda x: (1 + 2 * x) * erfcx(x), mp.mpf(3.75))],
    ),
    "DAWSN_NEAR": (
        "(1 + 2 x^2) dawsn(x) / x, t = x^2 / 8 - 1",
        [linear(lambda y: (1 + 2 * y) * dawsn(mp.sqrt(y)) / mp.sqrt(y), 0, 16)],
    ),
    "DAWSN_FAR": ("x dawsn(x), x >= 4, t = 32 / x^2 - 1", [inverse(lambda y: dawsn(mp.sqrt(y)) * mp.sqrt(y), 16)]),
    "SI_NEAR": ("Si(x) / x, t = x^2 / 8 - 1", [linear(lambda y: near_si(mp.sqrt(y)), 0, 16)]),
    "CIN_NEAR": ("(gamma + log x - Ci(x)) / x^2, t = x^2 / 8 - 1", [linear(lambda y: near_cin(mp.sqrt(y)), 0, 16)]),
    "SICI_F": ("x f(x), x >= 4, t = 32 / x^2 - 1", [inverse(lambda y: auxiliary_sici(mp.sqrt(y))[0] * mp.sqrt(y), 16)]),
    "SICI_G": ("x^2 g(x), x >= 4, t = 32 / x^2 - 1", [inverse(lambda y: auxiliary_sici(mp.sqrt(y))[1] * y, 16)]),
    "FRESNEL_S": (
        "S(x) / x^3, t = x^4 / 3.28 - 1, x^2 <= 2.5612",
        [linear(lambda q: near_s(mp.root(q, 4)), 0, mp.mpf(6.56))],
    ),
    "FRESNEL_C": ("C(x) / x, t as there", [linear(lambda q: near_c(mp.root(q, 4)), 0, mp.mpf(6.56))]),
    "FRESNEL_F": (
        "pi x f(x), t = 13.12 / x^4 - 1",
        [inverse(lambda q: mp.pi * mp.root(q, 4) * auxiliary_fresnel(mp.root(q, 4))[0], mp.mpf(6.56))],
    ),
    "FRESNEL_G": (
        "pi^2 x^3 g(x), t as there",
        [inverse(lambda q: mp.pi**2 * mp.root(q, 4) ** 3 * auxiliary_fresnel(mp.root(q, 4))[1], mp.mpf(6.56))],
    ),
    "EI_NEAR": ("(Ei(x) - log(x / r)) / (x - r), 0 < x <= 2, t = x - 1", [linear(ei_near, 0, 2)]),
    "EI_FAR": (
        "x exp(-x) Ei(x), t linear in 1 / x, a row for each octave from 2 on, the last from 64",
        [inverse(ei_scaled, 2**k, 2 ** (k + 1)) for k in range(1, 6)] + [inverse(ei_scaled, 64)],
    ),
    "EIN": ("(E1(x) + log x + gamma) / x, 0 < x <= 1, t = 2 x - 1", [linear(ein, 0, 1)]),
    "E1_FAR": ("x exp(x) E1(x), x >= 1, t = 2 / x - 1", [inverse(e1_scaled, 1)]),
    "SPENCE": ("spence(x) / (x - 1), 1/2 <= x <= 3/2, t = 2 (x - 1)", [linear(spence, mp.mpf(0.5), mp.mpf(1.5))]),
}


HEAD = '''"""Chebyshev tables of special functions, lowest order first, written by `docs/generate_special.py`.

Numbers only; what each is a series of stands above it. DLMF chapters 6, 7 and 25 define the functions.
"""

from __future__ import annotations

# fmt: off
'''


def packed(row, indent):
    """The numbers of a row, as many to a line as fit."""
    return textwrap.fill(", ".join(map(repr, row)) + ",", 119, initial_indent=indent, subsequent_indent=indent)


def table(name, what, rows):
    """The text of one table; rows of several are filled up with zeros."""
    longest = max(map(len, rows))
    if len(rows) == 1:
        body = packed(rows[0], " " * 4)
    else:
        body = "\n".join(f"    (\n{packed([*r, *[0.0] * (longest - len(r))], ' ' * 8)}\n    )," for r in rows)
    return f"# {what}\n{name} = (\n{body}\n)\n"


def main() -> None:
    tables = (table(name, what, [series(f) for f in functions]) for name, (what, functions) in TABLES.items())
    TO.write_text(HEAD + "".join(tables))


if __name__ == "__main__":
    main()
