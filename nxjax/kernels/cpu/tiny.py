"""Products of many matrices so small that a vector holds each: rotations, Jacobians, outer products.

A group is as many matrices as fit into a vector. Both operands are loaded whole; for each term of the sums a shuffle
of either puts into every lane what its result takes. Knows no program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

LANES: Final = 16
DTYPES: Final = (dtypes.float32, dtypes.float64)


@final
@dataclass(frozen=True)
class TinyProducts(Kernel):
    """``batch`` products of matrices of ``m`` x ``k`` and ``k`` x ``n``, dense in the result.

    ``left``, ``right``: elements from one to the next along the batch, rows and columns of each operand.
    """

    dtype: DType
    batch: int
    m: int
    k: int
    n: int
    left: tuple[int, int, int]
    right: tuple[int, int, int]

    @property
    def key(self) -> str:
        return f"tiny({self.dtype.name} {self.batch}x{self.m}x{self.k}x{self.n} {list(self.left)} {list(self.right)})"

    @property
    def group(self) -> int:
        """Matrices that vectors hold; 0 where they hold none."""
        found = 0
        while found < min(LANES, self.batch) and self._fits(found + 1):
            found += 1
        return found

    def _fits(self, count: int) -> bool:
        strides = (*self.left, *self.right)
        ends = [
            sum(s * (n - 1) for s, n in zip(by, (count, *sizes), strict=True))
            for by, sizes in ((self.left, (self.m, self.k)), (self.right, (self.k, self.n)))
        ]
        return min(strides) >= 0 and max(ends) < LANES and count * self.m * self.n <= LANES

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return -(-self.batch // self.group)

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2048 // self.k

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        sizes = (self.m, self.k), (self.k, self.n)
        x, w = (np.asarray(a).reshape(-1, *n) for a, n in zip(xs, sizes, strict=True))
        return (np.broadcast_to(np.matmul(x, w), (self.batch, self.m, self.n)),)

    def touches(self) -> Touches:
        sizes = (self.batch, self.m, self.k), (self.batch, self.k, self.n)
        size = self.dtype.itemsize
        ins = [
            Box(size, n, tuple([size * s for s in by])) for n, by in zip(sizes, (self.left, self.right), strict=True)
        ]
        return plain(ins, [Box(size * self.batch * self.m * self.n)])

    def cost(self) -> KernelCost:
        size, results = self.dtype.itemsize, self.batch * self.m * self.n
        sides = (self.m * self.k, self.left), (self.k * self.n, self.right)
        read = sum([n * (self.batch if by[0] else 1) for n, by in sides])
        return KernelCost(2 * results * self.k, size * read, size * results)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        places = [pointer(f, words, i) for i in range(3)]
        group = self.group
        steps = self.left[0] * group, self.right[0] * group, self.m * self.n * group
        whole, left = divmod(self.batch, group)
        at = lambda i: [f.at(p, i * s, self.dtype.itemsize) for p, s in zip(places, steps, strict=True)]
        with f.loop(lo, f.intrinsic("smin", "i64", hi, f.constant("i64", whole))) as turn:
            self._group(f, group, at(turn.index))
        if left:
            with f.if_(hi.gt(whole)):
                self._group(f, left, at(f.constant("i64", whole)))
        f.ret()

    def _group(self, f: Function, count: int, places: Sequence[Value]) -> None:
        """The products of ``count`` matrices."""
        results = [(i, r, c) for i in range(count) for r in range(self.m) for c in range(self.n)]
        terms = [
            (
                [i * self.left[0] + r * self.left[1] + d * self.left[2] for i, r, _ in results],
                [i * self.right[0] + d * self.right[1] + c * self.right[2] for i, _, c in results],
            )
            for d in range(self.k)
        ]
        x, w = (self._loaded(f, p, {at for term in terms for at in term[i]}) for i, p in enumerate(places[:2]))
        total: Value | None = None
        for a, b in terms:
            lanes = [f.shuffle(v, None, [*at, *[-1] * (LANES - len(at))]) for v, at in ((x, a), (w, b))]
            total = lanes[0] * lanes[1] if total is None else f.fma(lanes[0], lanes[1], total)
        assert total is not None
        if len(results) == LANES:
            f.store(total, places[2])
        else:
            f.store_masked(total, places[2], _mask(f, range(len(results))))

    def _loaded(self, f: Function, place: Value, wanted: set[int]) -> Value:
        type = convert.memory_type(self.dtype, LANES)
        return f.load(type, place) if len(wanted) == LANES else f.load_masked(type, place, _mask(f, wanted))


def _mask(f: Function, lanes: range | set[int]) -> Value:
    return f.constants("i1", [i in lanes for i in range(LANES)])
