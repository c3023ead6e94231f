"""Small kernels for tests of what runs them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, dense, integer, plain, pointer
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.kernels.cpu.isa import Isa


class Affine(Kernel):
    """``y = a * x + b`` on ``n`` int64, one at a time; an item is an element. ``flops``: as the cost claims."""

    def __init__(self, n: int, a: int = 1, b: int = 0, flops: float = 0.0, grain: int = 4096) -> None:
        self.items, self.grain = n, grain
        self.a, self.b, self.flops = a, b, flops

    @property
    def key(self) -> str:
        return f"test.affine({self.a}, {self.b})"

    def meaning(self, *xs: Any) -> Sequence[Any]:
        return [xs[0] * self.a + self.b]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        with f.loop(lo, hi) as turn:
            f.store(f.load("i64", f.at(x, turn.index, 8)) * self.a + self.b, f.at(y, turn.index, 8))
        f.ret()

    def touches(self) -> Touches:
        return plain(dense(8 * self.items), dense(8 * self.items))

    def cost(self) -> KernelCost:
        return KernelCost(self.flops or 2 * self.items, 8 * self.items, 8 * self.items)


class Add(Kernel):
    """``z = x + y`` on ``n`` int64."""

    def __init__(self, n: int) -> None:
        self.items, self.grain = n, 64

    @property
    def key(self) -> str:
        return "test.add()"

    def meaning(self, *xs: Any) -> Sequence[Any]:
        return [xs[0] + xs[1]]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, y, z = (pointer(f, words, i) for i in range(3))
        with f.loop(lo, hi) as turn:
            i = turn.index
            f.store(f.load("i64", f.at(x, i, 8)) + f.load("i64", f.at(y, i, 8)), f.at(z, i, 8))
        f.ret()

    def touches(self) -> Touches:
        return plain(dense(8 * self.items, 8 * self.items), dense(8 * self.items))

    def cost(self) -> KernelCost:
        return KernelCost(self.items, 16 * self.items, 8 * self.items)


class Less(Kernel):
    """One bool: ``x[0] < limit``."""

    items, grain = 1, 1

    def __init__(self, limit: int) -> None:
        self.limit = limit

    @property
    def key(self) -> str:
        return f"test.less({self.limit})"

    def meaning(self, *xs: Any) -> Sequence[Any]:
        return [xs[0].ravel()[:1] < self.limit]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, _, _, _ = self.function(module)
        x = f.load("i64", pointer(f, words, 0)).lt(self.limit)
        f.store(x.convert("i8"), pointer(f, words, 1))
        f.ret()

    def touches(self) -> Touches:
        return plain(dense(8), dense(1))

    def cost(self) -> KernelCost:
        return KernelCost(1, 8, 1)


class Busy(Kernel):
    """Takes about ``turns`` dependent multiplications an item, and writes what comes out; uses scratch.

    words: y (int64 per item), number of turns.
    """

    def __init__(self, n: int, turns: int, grain: int = 1, scratch: int = 4096) -> None:
        self.items, self.grain, self.scratch, self.turns = n, grain, scratch, turns

    @property
    def key(self) -> str:
        return "test.busy()"

    @property
    def integers(self) -> tuple[int, ...]:
        return (self.turns,)

    def meaning(self, *xs: Any) -> Sequence[Any]:
        out = np.arange(self.items, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for _ in range(self.turns):
                out = out * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        return [out.view(np.int64)]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        y, turns = pointer(f, words, 0), integer(f, words, 1)
        with f.loop(lo, hi) as item:
            with f.loop(0, turns, carry=[item.index]) as turn:
                turn.next(turn.carried[0] * 6364136223846793005 + 1442695040888963407)
            f.store(turn.results[0], scratch)  # by way of scratch, which nobody else may write to meanwhile
            with f.loop(0, 8):
                f.call("sched_yield", "i32")
            f.store(f.load("i64", scratch), f.at(y, item.index, 8))
        f.ret()

    def touches(self) -> Touches:
        return plain((), dense(8 * self.items))

    def cost(self) -> KernelCost:
        return KernelCost(self.items * self.turns * 4.0, 0, 8 * self.items)
