"""What vector functions are built of: polynomials, error terms, powers of two, branches for rare lanes.

Written for ``float`` and ``double``, scalars and vectors alike. Knows no op. Where the processor has no fused
multiply-add, products that must be exact are split (Dekker, "A floating-point technique for extending the available
precision", 1971).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value, element, lanes_of, with_element
from nxjax.kernels.cpu.isa import Isa

# What a function gives outside of its domain: the processor's own NaN, which is negative on x86. XLA gives that too.
# Orders of floats tell the two apart.
INVALID: Final = -float("nan") if platform.machine().lower() in ("x86_64", "amd64") else float("nan")


@final
@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The bits of ``float`` or ``double``."""

    word: str
    mantissa: int
    bias: int
    magic: float  # 1.5 * 2^mantissa: what is added to it is rounded to an integer, found in its low bits
    splitter: float  # 2^ceil(p/2) + 1, which cuts a number into two halves


_LAYOUTS: Final = {
    "float": FloatFormat("i32", 23, 127, 1.5 * 2.0**23, 2.0**12 + 1),
    "double": FloatFormat("i64", 52, 1023, 1.5 * 2.0**52, 2.0**27 + 1),
}


def layout(x: Value) -> FloatFormat:
    return _LAYOUTS[element(x.type)]


def is_single(x: Value) -> bool:
    return element(x.type) == "float"


def words(x: Value) -> Value:
    """The bits of a float as an integer."""
    return x.bitcast(with_element(x.type, layout(x).word))


def fabs(f: Function, x: Value) -> Value:
    return f.intrinsic("fabs", x.type, x)


def copysign(f: Function, x: Value, sign: Value) -> Value:
    return f.intrinsic("copysign", x.type, x, sign)


def polynomial(f: Function, coefficients: Sequence[float], x: Value) -> Value:
    """``coefficients[0] + coefficients[1] x + ...``; long ones as two interleaved chains in x^2, for parallelism."""
    if len(coefficients) <= 5:
        return horner(f, coefficients, x)
    square = x * x
    return f.fma(horner(f, coefficients[1::2], square), x, horner(f, coefficients[::2], square))


def horner(f: Function, coefficients: Sequence[float], x: Value) -> Value:
    """As `polynomial` in one chain: rounds less where the terms have different signs."""
    total = f.constant(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = f.fma(total, x, c)
    return total


def product_error(f: Function, isa: Isa, x: Value, y: Value, product: Value) -> Value:
    """``x * y - product`` without rounding, for ``product`` the rounded one."""
    if isa.fma:
        return f.fma(x, y, -product)
    a, b = _halves(x)
    c, d = _halves(y)
    return ((a * c - product) + a * d + b * c) + b * d


def _halves(x: Value) -> tuple[Value, Value]:
    t = x * layout(x).splitter
    high = t - (t - x)
    return high, x - high


def two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """A rounded sum and what rounding lost (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def fast_two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """As `two_sum`, for ``|x| >= |y|`` (Dekker)."""
    total = x + y
    return total, y - (total - x)


def nearest(f: Function, isa: Isa, x: Value) -> Value:
    """The nearest integer, as a float, for ``|x|`` below half of 2^mantissa."""
    if isa.name != "portable":
        return f.intrinsic("roundeven", x.type, x)
    magic = layout(x).magic
    return (x + magic) - magic


def to_integer_word(f: Function, n: Value) -> Value:
    """An integer held as a float (below 2^22 in size), as a word of the same width."""
    if is_single(n):
        return n.convert(with_element(n.type, "i32"))
    magic = f.constant(n.type, layout(n).magic)
    return words(n + magic) - words(magic)


def as_float(f: Function, n: Value) -> Value:
    """The inverse of `to_integer_word`: an integer word (below 2^22 in size) as a float of its width."""
    if element(n.type) == "i32":
        return n.convert(with_element(n.type, "float"))
    magic = f.constant(with_element(n.type, "double"), _LAYOUTS["double"].magic)
    return (n + words(magic)).bitcast(magic.type) - magic


def power_of_two(f: Function, n: Value) -> Value:
    """2^n of an integer word, for exponents of normal numbers."""
    type = "float" if element(n.type) == "i32" else "double"
    known = _LAYOUTS[type]
    return ((n + known.bias) << known.mantissa).bitcast(with_element(n.type, type))


def scaled(f: Function, isa: Isa, y: Value, n: Value) -> Value:
    """``y * 2^n`` for ``n`` an integer held as a float, anywhere in the range of exponents; rounded once."""
    lanes, single = lanes_of(y.type), is_single(y)
    step = 16 if single else 8
    if isa.bits == 512 and isa.has("avx512f") and lanes and lanes % step == 0:
        parts: list[Value] = []
        for start in range(0, lanes, step):
            a, b = (v if lanes == step else f.shuffle(v, None, range(start, start + step)) for v in (y, n))
            mask = f.constant("i16" if single else "i8", -1)
            name = f"x86.avx512.mask.scalef.{'ps' if single else 'pd'}.512"
            parts.append(f.intrinsic(name, a.type, a, b, a, mask, f.constant("i32", 4)))
        while len(parts) > 1:
            size = lanes_of(parts[0].type)
            parts = [f.shuffle(p, q, range(2 * size)) for p, q in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]
    n = to_integer_word(f, n)
    half = n >> 1
    return y * power_of_two(f, half) * power_of_two(f, n - half)


def scaled_low(f: Function, y: Value, n: Value) -> Value:
    """As `scaled`, for a normal ``y > 0`` and results that are below the normal numbers or next to them: by integers.

    The significand, twice for a bit to shift out in any case, is shifted right and rounded to even.
    """
    known, n = layout(y), to_integer_word(f, n)
    bits = words(y)
    one = f.constant(bits.type, 1)
    exponent = (bits >> known.mantissa) + n
    twice = ((bits & ((1 << known.mantissa) - 1)) | (1 << known.mantissa)) << 1
    above = f.select(exponent.gt(1), exponent - 1, 0)
    shift = f.select(exponent.lt(1), one - exponent, 0)
    half = (one << shift) - 1
    odd = (twice >> (shift + 1)) & 1
    return (((twice + half + odd) >> (shift + 1)) + (above << known.mantissa)).bitcast(y.type)


def where_rare(f: Function, rare: Value, common: Value, instead: Callable[[], Value]) -> Value:
    """``common``, and where ``rare`` holds ``instead()``, which is computed only if it does in some lane."""
    if lanes_of(rare.type):
        bits = rare.bitcast(f"i{lanes_of(rare.type)}")
        some = bits.ne(0)
    else:
        some = rare
    before = f.block
    with f.if_(some, rarely=True):
        other = f.select(rare, instead(), common)
        inside = f.block
    return f.phi(common.type, [(common, before), (other, inside)])
