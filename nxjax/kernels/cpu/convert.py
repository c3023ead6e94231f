"""How each dtype lives in memory and in registers, and conversions between dtypes.

In memory an element is a word as NumPy keeps it. In registers it is what arithmetic is done in:

========================  ==============  ==================================================================
dtype                     memory          register
========================  ==============  ==================================================================
bool                      i8, 0 or 1      i1
int4, uint4               i8, low 4 bits  i8 in range (sign- or zero-extended)
int8 ... uint64           iN              iN
bfloat16, float16, float8 i16, i8         float that holds a number of the format; ops round to it (`settle`)
float32, float64          float, double   the same
complex64, complex128     i64, i128       the same word; ops take the two parts out of it
key                       i64             the same word
========================  ==============  ==================================================================

So loads, stores, gathers and masks need no case by dtype: they move `memory_type`, and `from_memory` and `to_memory`
stand beside them. All functions work on scalars and on vectors of any length. Knows no op and no loop.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value, bits_of, element, lanes_of, number, vector, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes

DType = np.dtype[Any]


@final
@dataclass(frozen=True, slots=True)
class NarrowFloat:
    """A float format narrower than 32 bits.

    Attributes:
        bits: of the whole word.
        mantissa: stored bits of the fraction.
        bias: of the exponent.
        largest: the largest finite number; what rounds to more becomes infinite, or NaN where there is no infinity.
        infinite: the format has infinities.
        nan: the word of a positive NaN.
        unsigned_zero: the word of -0 is NaN, and zero has no sign.
    """

    bits: int
    mantissa: int
    bias: int
    largest: float
    infinite: bool
    nan: int
    unsigned_zero: bool = False

    @property
    def infinity(self) -> int:
        """The word of infinity, where there is one."""
        return ((1 << (self.bits - 1)) - 1) >> self.mantissa << self.mantissa

    @property
    def lowest_exponent(self) -> int:
        """Of normal numbers: 2 ** this is the smallest one."""
        return 1 - self.bias


NARROW: Final[dict[DType, NarrowFloat]] = {
    dtypes.bfloat16: NarrowFloat(16, 7, 127, 2.0**128 - 2.0**120, True, 0x7FC0),
    dtypes.float16: NarrowFloat(16, 10, 15, 65504.0, True, 0x7E00),
    dtypes.float8_e4m3fn: NarrowFloat(8, 3, 7, 448.0, False, 0x7F),
    dtypes.float8_e4m3fnuz: NarrowFloat(8, 3, 8, 240.0, False, 0x80, True),
    dtypes.float8_e4m3b11fnuz: NarrowFloat(8, 3, 11, 30.0, False, 0x80, True),
    dtypes.float8_e5m2: NarrowFloat(8, 2, 15, 57344.0, True, 0x7E),
    dtypes.float8_e5m2fnuz: NarrowFloat(8, 2, 16, 57344.0, False, 0x80, True),
}
UNSIGNED_ZERO: Final = frozenset(d for d, format in NARROW.items() if format.unsigned_zero)
_MEMORY: Final[dict[DType, str]] = {
    dtypes.bool_: "i8",
    **{d: f"i{8 * d.itemsize}" for d in dtypes.INTEGER},
    **{d: f"i{f.bits}" for d, f in NARROW.items()},
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.complex64: "i64",
    dtypes.complex128: "i128",
    dtypes.key: "i64",
}
_REGISTER: Final[dict[DType, str]] = {**_MEMORY, dtypes.bool_: "i1", **dict.fromkeys(NARROW, "float")}


def known(dtype: DType) -> bool:
    """Whether kernels hold elements of ``dtype``."""
    return dtype in _MEMORY


def memory_type(dtype: DType, lanes: int = 0) -> str:
    """The LLVM type of an element in memory, or of ``lanes`` of them."""
    return vector(_MEMORY[dtype], lanes)


def register_type(dtype: DType, lanes: int = 0) -> str:
    """The LLVM type of an element in registers, or of ``lanes`` of them."""
    return vector(_REGISTER[dtype], lanes)


def constant(f: Function, dtype: DType, value: Any, lanes: int = 0) -> Value:
    """``value``, a number or a NumPy scalar, rounded to ``dtype``, in every lane of a register."""
    scalar = np.asarray(value).astype(dtype)
    register = _REGISTER[dtype]
    if dtype in dtypes.COMPLEX or dtype == dtypes.key:
        text = str(int.from_bytes(scalar.tobytes(), "little"))
    elif dtype in NARROW:
        text = number(register, float(scalar.astype(np.float32)))
    elif dtype in dtypes.FLOAT:
        text = number(register, float(scalar))
    else:
        text = number(register, int(scalar.astype(np.int64 if dtype not in dtypes.UNSIGNED else np.uint64)))
    return f.splat(Value(f, register, text), lanes)


# --- memory ---


def from_memory(f: Function, isa: Isa, dtype: DType, raw: Value) -> Value:
    """An element as registers hold it, from its word in memory."""
    if dtype == dtypes.bool_:
        return raw.ne(0)
    if dtype == dtypes.int4:
        return (raw << 4) >> 4
    if dtype == dtypes.uint4:
        return raw & 15
    if dtype == dtypes.bfloat16:
        wide = raw.convert(with_element(raw.type, "i32"), signed=False)
        return (wide << 16).bitcast(with_element(raw.type, "float"))
    if dtype == dtypes.float16 and isa.f16c:
        return raw.bitcast(with_element(raw.type, "half")).convert(with_element(raw.type, "float"))
    if dtype in NARROW:
        return _widened(f, NARROW[dtype], raw)
    return raw


def to_memory(f: Function, isa: Isa, dtype: DType, x: Value) -> Value:
    """The word in memory of an element that registers hold."""
    if dtype == dtypes.bool_:
        return x.convert(with_element(x.type, "i8"), signed=False)
    if dtype == dtypes.int4:
        return x & 15
    if dtype == dtypes.bfloat16:
        word = x.bitcast(with_element(x.type, "i32")).lshr(16)
        return word.convert(with_element(x.type, "i16"))
    if dtype == dtypes.float16 and isa.f16c:
        return x.convert(with_element(x.type, "half")).bitcast(with_element(x.type, "i16"))
    if dtype in NARROW:
        return _narrowed(f, NARROW[dtype], x)
    return x


def load(f: Function, isa: Isa, dtype: DType, pointer: Value, lanes: int = 0) -> Value:
    """``lanes`` elements that lie one after the other, in a register."""
    return from_memory(f, isa, dtype, f.load(memory_type(dtype, lanes), pointer))


def store(f: Function, isa: Isa, dtype: DType, x: Value, pointer: Value) -> None:
    """A register's elements to memory, one after the other."""
    f.store(to_memory(f, isa, dtype, x), pointer)


# --- narrow formats by integers ---
#
# A word of a narrow format, its magnitude shifted so that its mantissa stands where float32 has its own, is the float
# that is 2 ** (127 - bias) times too small; the product with that power is exact, also for subnormal words.


def _widened(f: Function, format: NarrowFloat, raw: Value) -> Value:
    float_, i32 = with_element(raw.type, "float"), with_element(raw.type, "i32")
    wide = raw.convert(i32, signed=False)
    magnitude = wide & ((1 << (format.bits - 1)) - 1)
    x = (magnitude << (23 - format.mantissa)).bitcast(float_) * 2.0 ** (127 - format.bias)
    sign = (wide & (1 << (format.bits - 1))) << (32 - format.bits)
    if format.unsigned_zero:
        x = f.select(wide.eq(format.nan), float("nan"), x)
    elif format.infinite:
        # Infinities and NaN, whose payload a bitcast may ask for.
        special = ((magnitude << (23 - format.mantissa)) | 0x7F800000).bitcast(float_)
        x = f.select(magnitude.uge(format.infinity), special, x)
    else:
        x = f.select(magnitude.eq(format.nan), float("nan"), x)
    return (x.bitcast(i32) | sign).bitcast(float_)


def _narrowed(f: Function, format: NarrowFloat, x: Value) -> Value:
    """The word of a number that the format holds."""
    i32 = with_element(x.type, "i32")
    bits = x.bitcast(i32)
    scaled = (bits & 0x7FFFFFFF).bitcast(x.type) * 2.0 ** (format.bias - 127)
    word = scaled.bitcast(i32).lshr(23 - format.mantissa)
    if format.infinite:
        special = bits.lshr(23 - format.mantissa) & ((1 << (format.bits - 1)) - 1)
        word = f.select((bits & 0x7FFFFFFF).uge(0x7F800000), special, word)
    else:
        word = f.select(x.is_nan(), format.nan, word)
    sign = bits.lshr(31) << (format.bits - 1)
    return (word | sign).convert(with_element(x.type, f"i{format.bits}"))


def round_float(f: Function, isa: Isa, dtype: DType, x: Value) -> Value:
    """A float rounded to the nearest number of a narrow format, halves to even, kept as a float."""
    i32 = with_element(x.type, "i32")
    if dtype == dtypes.float16 and isa.f16c:
        return x.convert(with_element(x.type, "half")).convert(x.type)
    if dtype == dtypes.bfloat16:
        bits = x.bitcast(i32)
        rounded = (bits + 0x7FFF + (bits.lshr(16) & 1)) & -0x10000
        return f.select(x.is_nan(), (bits & -0x80000000) | 0x7FC00000, rounded).bitcast(x.type)
    format = NARROW[dtype]
    cut = 23 - format.mantissa
    sign = x.bitcast(i32) & -0x80000000
    magnitude = x.bitcast(i32) & 0x7FFFFFFF
    size = magnitude.bitcast(x.type)
    normal = (magnitude + ((1 << (cut - 1)) - 1) + (magnitude.lshr(cut) & 1)) & -(1 << cut)
    # Below the normal numbers the spacing is fixed: adding 1.5 * 2^23 spacings leaves no finer bits.
    magic = 1.5 * 2.0 ** (format.lowest_exponent - format.mantissa + 23)
    subnormal = (size + magic) - magic
    y = f.select(size.lt(2.0**format.lowest_exponent), subnormal, normal.bitcast(x.type))
    y = f.select(y.gt(format.largest), float("inf") if format.infinite else float("nan"), y)
    y = f.select(x.is_nan(), float("nan"), y)
    if format.unsigned_zero:
        sign = f.select(y.eq(0.0), 0, sign)
    return (y.bitcast(i32) | sign).bitcast(x.type)


def settle(f: Function, isa: Isa, dtype: DType, x: Value) -> Value:
    """The result of an op in the wider register type, brought into ``dtype``: floats rounded, 4-bit ints wrapped."""
    if dtype in NARROW:
        return round_float(f, isa, dtype, x)
    if dtype == dtypes.int4:
        return (x << 4) >> 4
    if dtype == dtypes.uint4:
        return x & 15
    return x


# --- conversion by value ---


def convert(f: Function, isa: Isa, x: Value, old: DType, new: DType) -> Value:
    """``x`` by value in another real dtype, as the op `convert_element_type` has it.

    Floats round to nearest even; floats to integers are cut off and saturate, NaN becomes 0; integers wrap.
    """
    if old == new:
        return x
    lanes = lanes_of(x.type)
    type = register_type(new, lanes)
    if new == dtypes.bool_:
        return x.ne(0)
    if new in dtypes.INTEGER:
        if old in dtypes.FLOAT:
            return _saturated(f, x, new)
        y = x.convert(type, signed=old in dtypes.SIGNED)
        return settle(f, isa, new, y) if dtypes.bit_width(new) == 4 else y
    if old not in dtypes.FLOAT:
        # To a narrow float by way of float32, rounding twice, as XLA does.
        y = x.convert(type, signed=old in dtypes.SIGNED)
        return round_float(f, isa, new, y) if new in NARROW else y
    if new not in NARROW:
        return x.convert(type)
    return round_float(f, isa, new, _to_odd(f, x) if old == dtypes.float64 else x)


def _to_odd(f: Function, x: Value) -> Value:
    """A double as that of its two neighbours among floats whose last bit is set, unless it is a float itself: rounds
    but once afterwards."""
    near = x.convert(with_element(x.type, "float"))
    back = near.convert(x.type)
    size, whole = (f.intrinsic("fabs", x.type, v) for v in (x, back))
    bits = near.bitcast(with_element(near.type, "i32"))
    even = (bits & 1).eq(0)
    step = f.select(whole.lt(size) & even, 1, f.select(whole.gt(size) & even, f.constant(bits.type, -1), 0))
    return (bits + step).bitcast(near.type)


def _saturated(f: Function, x: Value, new: DType) -> Value:
    """A float as an integer: toward zero, at the ends of the range the end, NaN as 0."""
    info = dtypes.integer_info(new)
    low, above = float(info.min), float(int(info.max) + 1)
    signed = new in dtypes.SIGNED
    if info.bits <= 16:
        # float32 holds these ranges whole; 32-bit integers are what processors convert to.
        clipped = f.select(x.gt(low), x, low)
        clipped = f.select(clipped.lt(above - 1), clipped, above - 1)
        clipped = f.select(x.is_nan(), 0.0, clipped)
        return clipped.convert(with_element(x.type, "i32")).convert(register_type(new, lanes_of(x.type)))
    inside = f.select(x.ge(low), x, 0.0 if not signed else low)
    inside = f.select(x.lt(above), inside, 0.0)  # NaN, too, which is below nothing
    y = inside.convert(register_type(new, lanes_of(x.type)), signed=signed)
    return f.select(x.ge(above), int(info.max), y)


def word_of(dtype: DType) -> str:
    """The integer type of an element's bits."""
    return f"i{bits_of(element(_MEMORY[dtype]))}"
