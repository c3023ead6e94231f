"""C++ functions that expressions call, each with those that it calls itself.

All are in single precision: tiles have no other. Meanings are those of `nxjax.ops`, some of which are given in double
precision there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from nxjax.ops.special import GILES_CENTRE, GILES_TAIL


def _polynomial(coefficients: Sequence[float], x: str) -> str:
    """By Horner's rule; highest power first."""
    first, *others = (f"{c!r}f" for c in coefficients)
    return reduce(lambda total, c: f"({total}) * {x} + {c}", others, first)


# Name -> text. A name in another's text makes it needed too.
HELPERS: Final[dict[str, str]] = {
    "bitsOf": """template <typename To, typename From>
inline To bitsOf(From x) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To y;
  __builtin_memcpy(&y, &x, sizeof(To));
  return y;
}""",
    "notANumber": 'inline float notANumber() { return __builtin_nanf(""); }',
    "infinity": "inline float infinity() { return __builtin_inff(); }",
    # NaN if either is.
    "larger": "template <typename T>\ninline T larger(T x, T y) { return x >= y || x != x ? x : y; }",
    "smaller": "template <typename T>\ninline T smaller(T x, T y) { return x <= y || x != x ? x : y; }",
    "signOf": "inline float signOf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }",
    # Saturates, and sends NaN to zero. The limits are exact as floats, or the next float above the largest integer.
    "toInteger": """template <typename T>
inline T toInteger(float x, float low, float high, T lowest, T highest) {
  return x != x ? T(0) : x <= low ? lowest : x >= high ? highest : T(x);
}""",
    "awayFromZero": """inline float awayFromZero(float x) {
  const float whole = std::trunc(x);
  return std::fabs(x - whole) >= 0.5f ? whole + signOf(x) : whole;
}""",
    # Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012).
    "errorInverse": f"""inline float errorInverse(float x) {{
  const float w = -std::log1p(-x * x);
  float p, y;
  if (w < 5) {{
    p = w - 2.5f;
    y = {_polynomial(GILES_CENTRE, "p")};
  }} else {{
    p = std::sqrt(w) - 3.0f;
    y = {_polynomial(GILES_TAIL, "p")};
  }}
  return std::fabs(x) == 1 ? x * infinity() : y * x;
}}""",
    "logGamma": """inline float logGamma(float x) {
  if (std::fabs(x) == infinity() || (x <= 0 && x == std::floor(x))) return infinity();
  return std::lgamma(x);
}""",
    # Reflection (DLMF 5.5.4), recurrence (5.5.2) to x >= 8, asymptotic series (5.11.2).
    "digamma": """inline float digamma(float x) {
  if (x <= 0 && x == std::floor(x)) return notANumber();
  float reflected = 0;
  if (x < 0.5f) {
    const float part = x - std::floor(x);
    reflected = 3.14159265f / std::tan(3.14159265f * part);
    x = 1 - x;
  }
  float shift = 0;
  for (; x < 8; x += 1) shift += 1 / x;
  const float r = 1 / (x * x);
  const float series = r * (1 / 12.0f - r * (1 / 120.0f - r * (1 / 252.0f - r * (1 / 240.0f))));
  return std::log(x) - 0.5f / x - series - shift - reflected;
}""",
    # For q > 0: Euler-Maclaurin (DLMF 25.11.5) after 12 terms.
    "hurwitzSum": """inline float hurwitzSum(float s, float q) {
  float total = 0;
  for (int k = 0; k < 12; ++k) total += std::pow(q + k, -s);
  const float a = q + 12;
  const float power = std::pow(a, -s);
  total += power * a / (s - 1) + 0.5f * power;
  // Bernoulli numbers over factorials.
  const float terms[6] = {8.33333333e-2f, -1.38888889e-3f, 3.30687831e-5f, -8.26719577e-7f, 2.08767570e-8f,
                          -5.28419014e-10f};
  float factor = s / a;
  for (int j = 0; j < 6; ++j) {
    total += terms[j] * factor * power;
    factor = factor * ((s + 2 * j + 1) / a) * ((s + 2 * j + 2) / a);
  }
  return total;
}""",
    # As the op: below 0 the terms of both signs are sums of their own.
    "hurwitzZeta": """inline float hurwitzZeta(float s, float q) {
  if (s != s || q != q) return notANumber();
  if (q <= 0 && s != std::floor(s)) return notANumber();
  if (q <= 0 && q == std::floor(q) && s > 1) return std::fmod(s, 2.0f) == 0 ? infinity() : notANumber();
  if (s == 1) return infinity();
  if (s < 1) return notANumber();
  if (q >= 0) return hurwitzSum(s, q);
  const float part = -q - std::floor(-q);
  const float side = std::fmod(s, 2.0f) == 0 ? 1.0f : -1.0f;
  return hurwitzSum(s, 1 - part) + side * hurwitzSum(s, part) - side * hurwitzSum(s, 1 - q);
}""",
    # (-1)^(m+1) m! zeta(m + 1, x) (DLMF 5.15.1)
    "polygamma": """inline float polygamma(float m, float x) {
  if (m < 0 || m != std::floor(m)) return notANumber();
  if (m == 0) return digamma(x);
  const float value = std::exp(logGamma(m + 1)) * hurwitzZeta(m + 1, x);
  return std::fmod(m, 2.0f) == 0 ? -value : value;
}""",
    # Nearest even at the last kept bit; what overflows is infinite, what is subnormal in the format is zero.
    "reducePrecision": """inline float reducePrecision(float x, int mantissaBits, float smallest, float largest) {
  if (!(std::fabs(x) < infinity())) return x;
  // Subnormal floats have fewer bits: they are rounded as normal ones.
  const bool tiny = std::fabs(x) < 0x1p-126f;
  float y = tiny ? x * 0x1p64f : x;
  if (mantissaBits < 23) {
    unsigned bits = bitsOf<unsigned>(y);
    const int drop = 23 - mantissaBits;
    const unsigned half = (1u << (drop - 1)) - 1 + ((bits >> drop) & 1u);
    bits = (bits + half) & ~((1u << drop) - 1);
    y = bitsOf<float>(bits);
  }
  if (tiny) y *= 0x1p-64f;
  if (std::fabs(y) > largest) return std::copysign(infinity(), x);
  return std::fabs(y) < smallest ? std::copysign(0.0f, x) : y;
}""",
    # Lentz's guard against division by zero.
    "away": "inline float away(float x) { return std::fabs(x) < 1e-34f ? 1e-34f : x; }",
    # S = sum of x^n / ((a + 1) ... (a + n)) and dS/da (DLMF 8.11.4).
    "gammaSeries": """inline float gammaSeries(float a, float x, float &slope) {
  float term = 1, logarithmic = 0, total = 1;
  slope = 0;
  for (int n = 1; n < 2000; ++n) {
    term *= x / (a + n);
    logarithmic -= 1 / (a + n);
    total += term;
    slope += term * logarithmic;
    if (!(term > total * 1e-7f) && !(std::fabs(term * logarithmic) > total * 1e-7f)) break;
  }
  return total;
}""",
    # The continued fraction of the upper function and its derivative in a (DLMF 8.9.2), by Lentz's method.
    "gammaFraction": """inline float gammaFraction(float a, float x, float &slope) {
  float b = x + 1 - a, c = 1e34f, d = 1 / away(b), f = d, dc = 0, dd = d * d;
  slope = dd;
  for (int n = 1; n < 2000; ++n) {
    const float an = (a - n) * n;
    b += 2;
    dd = -(d * n + an * dd - 1);
    d = 1 / away(an * d + b);
    dd = dd * d * d;
    dc = -1 + n / c - an / c * (dc / c);
    c = away(b + an / c);
    const float factor = c * d;
    slope = slope * factor + f * (dc * d + c * dd);
    f *= factor;
    if (!(std::fabs(factor - 1) > 1.2e-7f)) break;
  }
  return f;
}""",
    # Regularized incomplete gamma functions (DLMF 8.2.4).
    "incompleteGamma": """inline float incompleteGamma(float a, float x, bool upper) {
  if (!(x >= 0) || !(a >= 0) || (a == 0 && x == 0)) return notANumber();
  const bool far = x == infinity();
  if (a == infinity() && x >= 1 && !far) return notANumber();
  if (x == 0 || a == 0 || far || a == infinity()) return (a == 0 || far) != upper ? 1.0f : 0.0f;
  float slope;
  if (x < a + 1) {
    const float p = std::exp(a * std::log(x) - x - logGamma(a + 1)) * gammaSeries(a, x, slope);
    return upper ? 1 - p : p;
  }
  const float q = std::exp(a * std::log(x) - x - logGamma(a)) * gammaFraction(a, x, slope);
  return upper ? q : 1 - q;
}""",
    # The derivative of P(a, x) in a; or how a sample moves with a (Figurnov et al., 2018), where the density cancels.
    "gammaSlope": """inline float gammaSlope(float a, float x, bool sample) {
  if (x == 0 && a > 0) return 0;
  if (!(x > 0) || !(a > 0) || x == infinity() || a == infinity()) return notANumber();
  float slope;
  if (x < a + 1) {
    const float sum = gammaSeries(a, x, slope);
    const float part = sum * (std::log(x) - digamma(a + 1)) + slope;
    return sample ? -(x / a) * part : std::exp(a * std::log(x) - x - logGamma(a + 1)) * part;
  }
  const float fraction = gammaFraction(a, x, slope);
  const float part = fraction * (std::log(x) - digamma(a)) + slope;
  return sample ? x * part : -(std::exp(a * std::log(x) - x - logGamma(a)) * part);
}""",
    # I_x(a, b) (DLMF 8.17.2) by the fraction 8.17.22, of which two terms are a step.
    "incompleteBeta": """inline float incompleteBeta(float a, float b, float x) {
  if (!(a >= 0) || !(b >= 0) || !(x >= 0) || x > 1 || (a == 0 && b == 0)) return notANumber();
  if (a == infinity() && b == infinity()) return notANumber();
  if (x == 0) return 0;
  if (x == 1 || a == 0 || b == infinity()) return 1;
  if (b == 0 || a == infinity()) return 0;
  const bool straight = x < (a + 1) / (a + b + 2);
  const float p = straight ? a : b, q = straight ? b : a, y = straight ? x : 1 - x;
  float c = 1, d = 1 / away(1 - (p + q) * y / (p + 1)), f = d;
  for (int n = 1; n < 2000; ++n) {
    const float even = (q - n) * y * n / ((p + 2 * n - 1) * (p + 2 * n));
    d = 1 / away(even * d + 1);
    c = away(even / c + 1);
    f *= d * c;
    const float odd = -(p + n) * (p + q + n) * y / ((p + 2 * n) * (p + 2 * n + 1));
    d = 1 / away(odd * d + 1);
    c = away(odd / c + 1);
    f *= d * c;
    if (!(std::fabs(d * c - 1) > 1.2e-7f)) break;
  }
  const float front =
      std::exp(p * std::log(y) + q * std::log1p(-y) + logGamma(p + q) - logGamma(p) - logGamma(q));
  const float value = front * f / p;
  return straight ? value : 1 - value;
}""",
}

_WORD: Final = re.compile(r"\b[A-Za-z]\w*\b")


def closure(names: Iterable[str]) -> str:
    """The text of these functions and of those that they call, callees first."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in order:
            return
        for word in dict.fromkeys(_WORD.findall(HELPERS[name])):
            if word != name and word in HELPERS:
                visit(word)
        order[name] = None

    for name in names:
        visit(name)
    return "\n\n".join(HELPERS[name] for name in order)
