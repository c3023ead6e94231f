"""Elementwise kernels of a core: int8 look-ups, int8 sums and products with exact rescaling, bfloat16 add, mul, relu.

A function of one int8 number is a table of 256 bytes in the core's memory, whatever the function: its meaning is in the
table. A sum of two int8 numbers on different grids is two tables of 256 rescaled int32 numbers and one rescaling of
their sum. Rescaling is that of `nxjax.ops.fixed.point`, both of its roundings. Knows no design.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import ml_dtypes
import numpy as np

from nxjax.kernels.aie.chip import AieArray
from nxjax.kernels.aie.spec import CALL, CoreKernel, MemRef, NDArray, words_of
from nxjax.ops.fixed.point import rescale, wrap32

# Entries of a table over int8.
ENTRIES: Final = 256
# int32 numbers before the tables: zero point of the result, low, high, multiplier, shift, 1 for single rounding, and
# for products the zero points of both operands.
PARAMETERS: Final = 8

_RESCALE: Final = """\
static inline int32_t nx_rescale(int32_t x, int32_t multiplier, int32_t shift, int32_t single) {
  if (single) {
    const int32_t total = 31 - shift;
    return (int32_t)(((int64_t)x * multiplier + ((int64_t)1 << (total - 1))) >> total);
  }
  const int32_t left = shift > 0 ? shift & 31 : 0, right = shift < 0 ? -shift : 0;
  const int64_t product = (int64_t)(int32_t)((uint32_t)x << left) * multiplier;
  const int64_t nudged = product + (product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30));
  const int64_t whole = nudged / ((int64_t)1 << 31);
  const int32_t high = whole > 2147483647 ? 2147483647 : (int32_t)whole;
  const int32_t mask = (int32_t)(((int64_t)1 << right) - 1);
  return (int32_t)(((int64_t)high >> right) + ((high & mask) > (mask >> 1) + (high < 0)));
}
"""
_ONCE: Final = f"#ifndef NX_RESCALE\n#define NX_RESCALE\n{_RESCALE}#endif\n"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Lookup(CoreKernel):
    """``y = table[x + 128]``."""

    size: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (2,)

    @property
    def name(self) -> str:
        return f"nx_lookup_i8_{self.size}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        return MemRef((self.size,), "i8"), MemRef((ENTRIES,), "i8"), MemRef((self.size,), "i8")

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        x, table, y = arrays
        y[...] = table[x.astype(np.int32) + 128]

    @property
    def source(self) -> str:
        return f"""{self.signature(["x", "table", "y"])} {{
  for (unsigned i = 0; i < {self.size}; ++i)
    y[i] = table[x[i] + 128];
}}
"""

    def cycles(self, array: AieArray) -> int:
        # Scalar: a load, an address, a load and a store, in a loop that the compiler overlaps.
        return CALL + 4 * self.size


@final
@dataclass(frozen=True, eq=False, repr=False)
class ElementwiseAdd(CoreKernel):
    """``z = clamp(rescale(left[x] + right[y]) + zero point)``; constants are `PARAMETERS` numbers and two tables."""

    size: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (3,)

    @property
    def name(self) -> str:
        return f"nx_sum_i8_{self.size}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        x = MemRef((self.size,), "i8")
        return x, x, MemRef((PARAMETERS + 2 * ENTRIES,), "i32"), x

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        x, y, constants, z = arrays
        zero, low, high, multiplier, shift, single = (int(v) for v in constants[:6])
        left, right = constants[PARAMETERS:].reshape(2, ENTRIES).astype(np.int64)
        total = wrap32(left[x.astype(np.int32) + 128] + right[y.astype(np.int32) + 128])
        z[...] = _placed(rescale(total, multiplier, shift, "single" if single else "double"), zero, low, high)

    @property
    def source(self) -> str:
        return f"""{_ONCE}{self.signature(["x", "y", "p", "z"])} {{
  for (unsigned i = 0; i < {self.size}; ++i) {{
    const int32_t sum = p[{PARAMETERS} + x[i] + 128] + p[{PARAMETERS + ENTRIES} + y[i] + 128];
    const int32_t v = nx_rescale(sum, p[3], p[4], p[5]) + p[0];
    z[i] = (int8)(v < p[1] ? p[1] : v > p[2] ? p[2] : v);
  }}
}}
"""

    def cycles(self, array: AieArray) -> int:
        return CALL + 20 * self.size


@final
@dataclass(frozen=True, eq=False, repr=False)
class ElementwiseMul(CoreKernel):
    """``z = clamp(rescale((x - zero of x) * (y - zero of y)) + zero point)``."""

    size: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (3,)

    @property
    def name(self) -> str:
        return f"nx_product_i8_{self.size}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        x = MemRef((self.size,), "i8")
        return x, x, MemRef((PARAMETERS,), "i32"), x

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        x, y, constants, z = arrays
        zero, low, high, multiplier, shift, single, of_x, of_y = (int(v) for v in constants)
        products = (x.astype(np.int64) - of_x) * (y.astype(np.int64) - of_y)
        z[...] = _placed(rescale(products, multiplier, shift, "single" if single else "double"), zero, low, high)

    @property
    def source(self) -> str:
        return f"""{_ONCE}{self.signature(["x", "y", "p", "z"])} {{
  for (unsigned i = 0; i < {self.size}; ++i) {{
    const int32_t v = nx_rescale((x[i] - p[6]) * (y[i] - p[7]), p[3], p[4], p[5]) + p[0];
    z[i] = (int8)(v < p[1] ? p[1] : v > p[2] ? p[2] : v);
  }}
}}
"""

    def cycles(self, array: AieArray) -> int:
        return CALL + 18 * self.size


def _placed(x: NDArray, zero: int, low: int, high: int) -> NDArray:
    return np.clip(wrap32(x + zero), low, high).astype(np.int8)


Function = Literal["add", "mul", "relu"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Bfloat(CoreKernel):
    """``add``, ``mul`` of two, or ``relu`` of one buffer of bfloat16: float32 results rounded to nearest and even."""

    function: Function
    size: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (len(self.arguments) - 1,)

    @property
    def name(self) -> str:
        return f"nx_{self.function}_bf16_{self.size}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        return (MemRef((self.size,), "bf16"),) * (2 if self.function == "relu" else 3)

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        x = [a.astype(np.float32) for a in arrays[:-1]]
        with np.errstate(all="ignore"):
            if self.function == "relu":
                y = np.where(x[0] > 0, x[0], np.float32(0))
            else:
                y = x[0] + x[1] if self.function == "add" else x[0] * x[1]
            arrays[-1][...] = y.astype(ml_dtypes.bfloat16)

    @property
    def source(self) -> str:
        lanes = 16
        load = f"aie::load_v<{lanes}>"
        if self.function == "relu":
            head, value = self.signature(["x", "z"]), f"aie::max({load}(x + i), zero)"
            zero = f"  const auto zero = aie::zeros<bfloat16, {lanes}>();\n"
        elif self.function == "add":
            head, zero = self.signature(["x", "y", "z"]), ""
            value = f"aie::add(aie::accum<accfloat, {lanes}>({load}(x + i)), {load}(y + i)).to_vector<bfloat16>()"
        else:
            head, zero = self.signature(["x", "y", "z"]), ""
            value = f"aie::mul({load}(x + i), {load}(y + i)).to_vector<bfloat16>()"
        return f"""{head} {{
  aie::set_rounding(aie::rounding_mode::conv_even);
{zero}  for (unsigned i = 0; i < {self.size}; i += {lanes})
    aie::store_v(z + i, {value});
}}
"""

    def cycles(self, array: AieArray) -> int:
        return CALL + 3 * -(-self.size // 16)


def _sized(prefix: str, kernel: Callable[[int], CoreKernel]) -> Callable[[str], CoreKernel | None]:
    def read(name: str) -> CoreKernel | None:
        found = words_of(name, prefix + r"_(\d+)")
        return kernel(*found) if found else None

    return read


READERS: Final[tuple[Callable[[str], CoreKernel | None], ...]] = (
    _sized("nx_lookup_i8", Lookup),
    _sized("nx_sum_i8", ElementwiseAdd),
    _sized("nx_product_i8", ElementwiseMul),
    _sized("nx_add_bf16", lambda size: Bfloat("add", size)),
    _sized("nx_mul_bf16", lambda size: Bfloat("mul", size)),
    _sized("nx_relu_bf16", lambda size: Bfloat("relu", size)),
)
