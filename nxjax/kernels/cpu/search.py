"""Where numbers belong in sorted rows. Dense operands: rows [rows, size], numbers and result [rows, count].

Numbers come in vectors. First all of a vector are held against the place that the last one of the vector before had:
of numbers in order, or nearly so, most belong there too. Else each lane halves what is left, all of them at once and
as often as the size of a row says, without a branch. Knows no program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Kernel, KernelCost, NDArray, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

BLOCK: Final = 2048  # numbers of an item
LANES: Final = 8


@final
@dataclass(frozen=True)
class Search(Kernel):
    """``side``: numbers go before (left) or behind (right) elements that are equal to them."""

    dtype: DType
    rows: int
    size: int
    count: int
    side: Literal["left", "right"]

    @property
    def key(self) -> str:
        return f"search({self.dtype.name} {self.rows}x{self.size} {self.count} {self.side})"

    @property
    def blocks(self) -> int:
        return -(-self.count // BLOCK)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rows * self.blocks

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 2 * BLOCK // max(1, min(self.count, BLOCK)))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        x, q = (np.asarray(a).reshape(self.rows, -1) for a in xs)
        if self.dtype.isbuiltin != 1:
            x, q = x.astype(np.float64), q.astype(np.float64)
        return (np.stack([np.searchsorted(a, b, self.side) for a, b in zip(x, q, strict=True)]).astype(np.int32),)

    def touches(self) -> Touches:
        size = self.dtype.itemsize
        return plain(
            dense(self.rows * self.size * size, self.rows * self.count * size), dense(self.rows * self.count * 4)
        )

    def cost(self) -> KernelCost:
        numbers, size = self.rows * self.count, self.dtype.itemsize
        return KernelCost(numbers * self.size.bit_length(), (numbers + self.rows * self.size) * size, numbers * 4)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, q, y = (pointer(f, words, i) for i in range(3))
        size = self.dtype.itemsize
        found = f.alloca(vector("i32", LANES))
        with f.loop(lo, hi) as item:
            row = item.index.udiv(self.blocks)
            start = item.index.urem(self.blocks) * BLOCK
            end = f.intrinsic("smin", "i64", start + BLOCK, f.constant("i64", self.count))
            code = _Code(self, f, isa, f.at(x, row * self.size, size))
            first = row * self.count
            whole = start + ((end - start) & -LANES)
            with f.loop(start, whole, LANES, [f.constant("i32", 0)]) as loop:
                numbers = convert.load(f, isa, self.dtype, f.at(q, first + loop.index, size), LANES)
                here = code.holds(loop.carried[0], numbers)
                with f.if_(here):
                    f.store(f.splat(loop.carried[0], LANES), found)
                with f.if_(~here):
                    f.store(code.halved(numbers), found)
                places = f.load(vector("i32", LANES), found)
                f.store(places, f.at(y, first + loop.index, 4), 4)
                loop.next(f.extract(places, LANES - 1))
            with f.loop(whole, end) as loop:
                number = convert.load(f, isa, self.dtype, f.at(q, first + loop.index, size))
                f.store(code.halved(number), f.at(y, first + loop.index, 4), 4)
        f.ret()


@final
class _Code:
    """Writes the search of a row at ``x``."""

    def __init__(self, kernel: Search, f: Function, isa: Isa, x: Value) -> None:
        self.k, self.f, self.isa, self.x = kernel, f, isa, x

    def op(self, name: str, *xs: Value) -> Value:
        return ops.emit(self.f, self.isa, name, {}, [self.k.dtype] * 2, dtypes.bool_, xs)

    def precedes(self, x: Value, y: Value) -> Value:
        less = self.op("lt", x, y)
        return less if self.k.dtype in dtypes.BITS else less | (self.op("ne", y, y) & self.op("eq", x, x))

    def before(self, element: Value, number: Value) -> Value:
        """Whether ``number`` goes behind ``element``."""
        return self.precedes(element, number) if self.k.side == "left" else ~self.precedes(number, element)

    def holds(self, place: Value, numbers: Value) -> Value:
        """Whether all ``numbers`` go to one ``place``."""
        f, k = self.f, self.k
        if not k.size:
            return f.constant("i1", True)
        last = f.constant("i32", k.size - 1)

        def element(index: Value) -> Value:
            inside = f.intrinsic("smin", "i32", f.intrinsic("smax", "i32", index, f.constant("i32", 0)), last)
            x = convert.load(f, self.isa, k.dtype, f.at(self.x, inside.convert("i64"), k.dtype.itemsize))
            return f.splat(x, lanes_of(numbers.type))

        far = ~self.before(element(place - 1), numbers) & f.splat(place.ne(0), LANES)
        near = self.before(element(place), numbers) & f.splat(place.ne(k.size), LANES)
        return ~f.intrinsic("vector.reduce.or", "i1", far | near)

    def halved(self, numbers: Value) -> Value:
        f, k, lanes = self.f, self.k, lanes_of(numbers.type)
        low = f.constant(vector("i32", lanes) if lanes else "i32", 0)
        left = k.size + 1
        while left > 1:
            half = left // 2
            after = self.before(self.elements(low, half - 1, lanes), numbers)
            low = f.select(after, low + half, low)
            left -= half
        return low

    def elements(self, places: Value, further: int, lanes: int) -> Value:
        """The elements at ``places`` and so many ``further``."""
        f, k = self.f, self.k
        base = f.at(self.x, further * k.dtype.itemsize)
        if not lanes:
            return convert.load(f, self.isa, k.dtype, f.at(base, places.convert("i64"), k.dtype.itemsize))
        raw = convert.memory_type(k.dtype, lanes)
        scalar = convert.memory_type(k.dtype)
        pointers = f.emit(vector("ptr", lanes), f"getelementptr {scalar}, ptr {base.name}, {places.type} {places.name}")
        return convert.from_memory(f, self.isa, k.dtype, f.gather(raw, pointers, f.constant(vector("i1", lanes), True)))
