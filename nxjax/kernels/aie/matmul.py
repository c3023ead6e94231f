"""Products of matrix tiles on a core: int8 into int32, int32 back to int8 per column, bfloat16 into bfloat16.

A tile lies in memory block by block, [rows/r][columns/c][r][c], each block an operand of the matrix instruction; the
memory tiles' DMAs bring it into this order and back. Products take blocks two by two, so that each operand that is
loaded is used twice. Knows no design.

int8 sums go back to eight bits by ``round((x * high + floor(x * low / 2**15)) / 2**shift)``, all whole numbers, with
``high * 2**15 + low`` a factor of up to 46 bits for every column: enough to have the bits of a product in float64,
which cores do not have; that it has them is proved for each column before a design is made
(`nxjax.lower.aie.requantize`).

bfloat16 products are summed in float32 within one call and rounded to bfloat16, to nearest and even, when the call
stores its tile, as in mlir-aie's kernels: the more of K in a tile, the fewer roundings. Within an instruction the model
adds its terms without rounding and rounds the float32 sum once; hardware may differ in a last bit of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import ml_dtypes
import numpy as np

from nxjax.kernels.aie.chip import AieArray, Intrinsic
from nxjax.kernels.aie.spec import CALL, CTYPES, CoreKernel, MemRef, NDArray, words_of

# Numbers before the columns' own in a block of requantization: zero point, low, high, shift, rounding, and three unused
# ones, so that what follows lies at multiples of 32 bytes.
HEADER: Final = 8
# Low bits of a column's factor.
LOW: Final = 15
# How the last shift rounds halves: away from zero, or up.
AWAY, UP = 0, 1


def parameters(n: int) -> int:
    """Bytes of the requantization of ``n`` columns: the header; bias, high and low of each column.

    >>> parameters(64)
    800
    """
    return 4 * (HEADER + 3 * n)


def tiled(x: NDArray, rows: int, columns: int) -> NDArray:
    """A matrix as blocks of [rows, columns], flat.

    >>> tiled(np.arange(8).reshape(2, 4), 2, 2).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    m, n = x.shape
    return x.reshape(m // rows, rows, n // columns, columns).swapaxes(1, 2).reshape(-1)


def untiled(x: NDArray, m: int, n: int, rows: int, columns: int) -> NDArray:
    """The [m, n] matrix of blocks of [rows, columns].

    >>> untiled(np.array([0, 1, 4, 5, 2, 3, 6, 7]), 2, 4, 2, 2).tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    return x.reshape(m // rows, n // columns, rows, columns).swapaxes(1, 2).reshape(m, n)


@final
@dataclass(frozen=True, eq=False, repr=False)
class ZeroFill(CoreKernel):
    """Zeros into a buffer."""

    element: str
    size: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (0,)

    @property
    def name(self) -> str:
        return f"nx_zero_{self.element}_{self.size}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        return (MemRef((self.size,), self.element),)

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        arrays[0][...] = 0

    @property
    def source(self) -> str:
        c = CTYPES[self.element]
        lanes = 32 // MemRef((1,), self.element).nbytes
        return f"""{self.signature(["c"])} {{
  for (unsigned i = 0; i < {self.size}; i += {lanes})
    aie::store_v(c + i, aie::zeros<{c}, {lanes}>());
}}
"""

    def cycles(self, array: AieArray) -> int:
        return CALL + -(-self.arguments[0].nbytes // array.store)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Matmul(CoreKernel):
    """``c += a @ b`` of tiles: a [m, k] in r x s blocks, b [k, n] in s x t blocks, c [m, n] in r x t blocks.

    ``tail`` bytes follow the elements of b: the columns' requantization, which this kernel does not read.
    """

    element: Literal["i8", "bf16"]
    m: int
    k: int
    n: int
    r: int
    s: int
    t: int
    tail: int = 0

    @property
    def writes(self) -> tuple[int, ...]:
        return (2,)

    @property
    def name(self) -> str:
        shape, blocks = f"{self.m}x{self.k}x{self.n}", f"{self.r}x{self.s}x{self.t}"
        return f"nx_matmul_{self.element}_{shape}_{blocks}_{self.tail}"

    @property
    def result(self) -> str:
        """The element type of c."""
        return "i32" if self.element == "i8" else "bf16"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        return (
            MemRef((self.m * self.k,), self.element),
            MemRef((self.k * self.n + self.tail,), self.element),
            MemRef((self.m * self.n,), self.result),
        )

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        m, k, n, r, s, t = self.m, self.k, self.n, self.r, self.s, self.t
        a, b = untiled(arrays[0], m, k, r, s), untiled(arrays[1][: k * n], k, n, s, t)
        c = untiled(arrays[2], m, n, r, t)
        if self.element == "i8":
            # Sums of k products of at most 2**14 are whole numbers that float64 holds, and NumPy multiplies fast.
            whole = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
            arrays[2][...] = tiled((c.astype(np.int64) + whole).astype(np.int32), r, t)
            return
        total = c.astype(np.float32)
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            for i in range(0, k, s):
                total = (total + wide_a[:, i : i + s] @ wide_b[i : i + s]).astype(np.float32)
            arrays[2][...] = tiled(total.astype(ml_dtypes.bfloat16), r, t)

    @property
    def source(self) -> str:
        e, c = CTYPES[self.element], CTYPES[self.result]
        rounding = "" if self.element == "i8" else "  aie::set_rounding(aie::rounding_mode::conv_even);\n"
        return f"""{self.signature(["a", "b", "c"])} {{
  using Product = aie::mmul<{self.r}, {self.s}, {self.t}, {e}, {e}, accauto>;
  constexpr unsigned rows = {self.m // self.r}, steps = {self.k // self.s}, columns = {self.n // self.t};
  constexpr unsigned A = Product::size_A, B = Product::size_B, C = Product::size_C;
{rounding}  for (unsigned i = 0; i < rows; i += 2)
    for (unsigned j = 0; j < columns; j += 2) {{
      {c} *__restrict upper = c + (i * columns + j) * C;
      {c} *__restrict lower = upper + columns * C;
      Product p00(aie::load_v<C>(upper)), p01(aie::load_v<C>(upper + C));
      Product p10(aie::load_v<C>(lower)), p11(aie::load_v<C>(lower + C));
      const {e} *__restrict first = a + i * steps * A;
      const {e} *__restrict second = first + steps * A;
      const {e} *__restrict left = b + j * B;
      for (unsigned l = 0; l < steps; ++l) {{
        auto a0 = aie::load_v<A>(first + l * A);
        auto a1 = aie::load_v<A>(second + l * A);
        auto b0 = aie::load_v<B>(left + l * columns * B);
        auto b1 = aie::load_v<B>(left + l * columns * B + B);
        p00.mac(a0, b0);
        p01.mac(a0, b1);
        p10.mac(a1, b0);
        p11.mac(a1, b1);
      }}
      aie::store_v(upper, p00.template to_vector<{c}>());
      aie::store_v(upper + C, p01.template to_vector<{c}>());
      aie::store_v(lower, p10.template to_vector<{c}>());
      aie::store_v(lower + C, p11.template to_vector<{c}>());
    }}
}}
"""

    def cycles(self, array: AieArray) -> int:
        """Instructions of the inner loop, and for each two by two blocks the loads and stores of its sums."""
        each = -(-self.r * self.s * self.t // array.intrinsics[self.element].macs)
        blocks = (self.m // (2 * self.r)) * (self.n // (2 * self.t))
        loads = 2 * (self.r + self.t) * self.s * self.arguments[0].dtype.itemsize / array.load
        inner = self.k // self.s * max(4 * each, -(-loads // 1))
        sums = 4 * self.r * self.t * self.arguments[2].dtype.itemsize
        return CALL + int(blocks * (inner + -(-sums // array.load) + -(-sums // array.store)))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Requantize(CoreKernel):
    """``c = clamp(round((x + bias) * factor) + zero point)``: int32 sums to int8, every column by its own factor.

    ``before`` elements of a tile of weights stand before the columns' numbers in the second argument.
    """

    m: int
    n: int
    r: int
    t: int
    before: int

    @property
    def writes(self) -> tuple[int, ...]:
        return (2,)

    @property
    def name(self) -> str:
        return f"nx_requantize_{self.m}x{self.n}_{self.r}x{self.t}_{self.before}"

    @property
    def arguments(self) -> tuple[MemRef, ...]:
        size = self.m * self.n
        return MemRef((size,), "i32"), MemRef((self.before + parameters(self.n),), "i8"), MemRef((size,), "i8")

    def meaning(self, arrays: Sequence[NDArray]) -> None:
        words = np.frombuffer(arrays[1][self.before :].tobytes(), np.int32)
        zero, low, high, shift, rounding = (int(v) for v in words[:5])
        bias, factor, rest = words[HEADER:].reshape(3, self.n)
        x = untiled(arrays[0], self.m, self.n, self.r, self.t)
        y = rescaled(x.astype(np.int64) + bias, factor, rest, shift, rounding)
        arrays[2][...] = tiled(np.clip(y + zero, low, high).astype(np.int8), self.r, self.t)

    @property
    def source(self) -> str:
        return f"""{self.signature(["x", "b", "c"])} {{
  const int32 *__restrict head = (const int32 *)(b + {self.before});
  const int32 *__restrict bias = head + {HEADER};
  const int32 *__restrict factor = bias + {self.n};
  const int32 *__restrict rest = factor + {self.n};
  const auto low = aie::broadcast<int32, 16>(head[1]), high = aie::broadcast<int32, 16>(head[2]);
  aie::set_saturation(aie::saturation_mode::saturate);
  for (unsigned j = 0; j < {self.n}; j += 8) {{
    // Two rows of a block, eight columns each.
    const auto added = aie::concat(aie::load_v<8>(bias + j), aie::load_v<8>(bias + j));
    const auto much = aie::concat(aie::load_v<8>(factor + j), aie::load_v<8>(factor + j));
    const auto little = aie::concat(aie::load_v<8>(rest + j), aie::load_v<8>(rest + j));
    for (unsigned i = 0; i < {self.m // self.r}; ++i)
      for (unsigned l = 0; l < {self.r * self.t}; l += 16) {{
        const unsigned at = (i * {self.n // self.t} + j / 8) * {self.r * self.t} + l;
        const auto v = aie::add(aie::load_v<16>(x + at), added);
        aie::set_rounding(aie::rounding_mode::floor);
        const auto below = aie::mul(v, little).template to_vector<int32>({LOW});
        aie::set_rounding(head[4] == {AWAY} ? aie::rounding_mode::symmetric_inf : aie::rounding_mode::positive_inf);
        const auto y = aie::add(aie::mul(v, much), below).template to_vector<int32>(head[3]);
        const auto kept = aie::min(aie::max(aie::add(y, head[0]), low), high);
        aie::accum<acc32, 16> narrow;
        narrow.from_vector(kept);
        aie::store_v(c + at, narrow.template to_vector<int8>());
      }}
  }}
}}
"""

    def cycles(self, array: AieArray) -> int:
        # Two products of 32-bit numbers, four passes of the 16-bit multipliers each, and some ten other instructions.
        return CALL + -(-self.m * self.n // 16) * 18


def rescaled(x: NDArray, factor: NDArray, rest: NDArray, shift: int, rounding: int) -> NDArray:
    """What `Requantize` makes of sums with their bias: saturated to int32, in int64.

    >>> rescaled(np.array([5, -5]), np.array([1]), np.array([0]), 1, AWAY).tolist()
    [3, -3]
    """
    x = np.asarray(x, np.int64)
    total = x * factor.astype(np.int64) + ((x * rest.astype(np.int64)) >> LOW)
    half = np.int64(1) << max(shift - 1, 0) if shift else np.int64(0)
    up = (total + half) >> shift
    y = up if rounding == UP else np.where(total < 0, -((half - total) >> shift), up)
    return np.clip(y, -(2**31), 2**31 - 1)


def best_blocks(intrinsic: Intrinsic) -> tuple[int, int, int]:
    """The m, k and n that tiles of this instruction are multiples of: blocks are taken two by two.

    >>> best_blocks(Intrinsic(4, 8, 8, 256))
    (8, 8, 16)
    """
    return 2 * intrinsic.m, intrinsic.k, 2 * intrinsic.n


def _zero(name: str) -> CoreKernel | None:
    for element in ("i32", "bf16", "i8"):
        found = words_of(name, rf"nx_zero_{element}_(\d+)")
        if found:
            return ZeroFill(element, *found)
    return None


def _matmul(name: str) -> CoreKernel | None:
    elements: tuple[Literal["i8", "bf16"], ...] = ("i8", "bf16")
    for element in elements:
        found = words_of(name, rf"nx_matmul_{element}_(\d+)x(\d+)x(\d+)_(\d+)x(\d+)x(\d+)_(\d+)")
        if found:
            return Matmul(element, *found)
    return None


def _requantize(name: str) -> CoreKernel | None:
    found = words_of(name, r"nx_requantize_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)")
    return Requantize(*found) if found else None


READERS: Final[tuple[Callable[[str], CoreKernel | None], ...]] = (_zero, _matmul, _requantize)
