"""Integer tricks that rules share: the total order of floats as integers, the high half of a product."""

from __future__ import annotations

from nxjax.ops.arithmetic import add, mul, sub
from nxjax.ops.base import like
from nxjax.ops.bitwise import and_, not_, shift_right_arithmetic, shift_right_logical, xor
from nxjax.ops.compare import lt
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array

_SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}


def order_bits(x: Array) -> Array:
    """Signed integers in the order that IEEE 754's totalOrder gives floats."""
    dtype = _SIGNED[dtypes.bit_width(x.dtype)]
    bits = bitcast_convert_type(x, dtype=dtype)
    # Negative floats descend with their bits.
    flipped = xor(bits, like(bits, dtypes.integer_info(dtype).max))
    return select_n(lt(bits, like(bits, 0)), bits, flipped)


def descending(bits: Array) -> Array:
    """Integers in the opposite order."""
    return not_(bits)


def mulhi(x: Array, y: Array) -> Array:
    """The upper half of the product of two integers."""
    bits = dtypes.bit_width(x.dtype)
    if bits < 64:
        wide = dtypes.int64 if x.dtype in dtypes.SIGNED else dtypes.uint64
        shift = shift_right_arithmetic if x.dtype in dtypes.SIGNED else shift_right_logical
        product = mul(convert_element_type(x, dtype=wide), convert_element_type(y, dtype=wide))
        return convert_element_type(shift(product, like(product, bits)), dtype=x.dtype)
    a, b = (bitcast_convert_type(v, dtype=dtypes.uint64) for v in (x, y))
    low = like(a, 0xFFFFFFFF)
    half = like(a, 32)
    a0, a1 = and_(a, low), shift_right_logical(a, half)
    b0, b1 = and_(b, low), shift_right_logical(b, half)
    carry = shift_right_logical(mul(a0, b0), half)
    middle = add(mul(a1, b0), carry)
    other = add(mul(a0, b1), and_(middle, low))
    high = add(add(mul(a1, b1), shift_right_logical(middle, half)), shift_right_logical(other, half))
    if x.dtype not in dtypes.SIGNED:
        return high
    # A negative factor counts 2^64 too much.
    high = bitcast_convert_type(high, dtype=dtypes.int64)
    zero = like(x, 0)
    high = sub(high, select_n(lt(x, zero), zero, y))
    return sub(high, select_n(lt(y, zero), zero, x))
