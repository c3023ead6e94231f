"""What the machine can do at most: a copy past the caches, and fused multiply-adds that wait for nothing.

The peaks against which profiles and benchmarks are drawn. Both are kernels like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import LlvmModule, vector
from nxjax.kernels.cpu.isa import Isa

_BLOCK: Final = 4096  # bytes: one item of the copy, a page
_TURNS: Final = 512  # fused multiply-adds of each chain in an item
_LLVM: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@final
class StreamCopy(Kernel):
    """Copies ``blocks`` pages. With ``stream`` its stores go past the caches, so that memory is read only once.

    Operands: bytes to bytes, both aligned to 64.
    """

    def __init__(self, blocks: int, stream: bool = True) -> None:
        self.items = blocks
        self.grain = 64
        self.stream = stream

    @property
    def key(self) -> str:
        return f"stream_copy(stream={self.stream})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return (xs[0].copy(),)

    def touches(self) -> Touches:
        n = self.items * _BLOCK
        return plain(dense(n), dense(n))

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        lanes = isa.lanes(1)
        with f.loop(lo * _BLOCK, hi * _BLOCK, 4 * lanes) as loop:
            loaded = [f.load(vector("i8", lanes), f.at(f.at(x, loop.index), i * lanes), lanes) for i in range(4)]
            for i, v in enumerate(loaded):
                f.store(v, f.at(f.at(y, loop.index), i * lanes), lanes, stream=self.stream)
            loop.next()
        if self.stream and isa.x86:
            f.intrinsic("x86.sse.sfence", "void")
        f.ret()

    def cost(self) -> KernelCost:
        return KernelCost(0.0, float(self.items * _BLOCK), float(self.items * _BLOCK))


@final
class PeakFma(Kernel):
    """``items`` times 512 turns of 12 independent chains of multiply-adds: the most the processor can do.

    Operands: a zero that the compiler does not know, to the sum of all chains' lanes, which is 0.
    """

    chains: Final = 12  # latency 4 to 5 cycles, two a cycle

    def __init__(self, items: int, dtype: np.dtype) -> None:
        self.items = items
        self.grain = 1
        self.dtype = dtype

    @property
    def key(self) -> str:
        return f"peak_fma({self.dtype.name})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return (np.zeros((), self.dtype) * xs[0],)

    def touches(self) -> Touches:
        one = Box(self.dtype.itemsize)
        return plain((one,), (one,))

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        scalar = _LLVM[self.dtype]
        kind = vector(scalar, isa.lanes(self.dtype.itemsize))
        zero = f.splat(f.load(scalar, pointer(f, words, 0)), isa.lanes(self.dtype.itemsize))
        chains = [zero] * self.chains
        with f.loop(lo * _TURNS, hi * _TURNS, carry=chains) as loop:
            loop.next(*(f.fma(c, zero, zero) for c in loop.carried))
        total = loop.results[0]
        for c in loop.results[1:]:
            total = total + c
        sum_ = f.intrinsic("vector.reduce.fadd", scalar, f.constant(scalar, 0), total, over=kind)
        f.store(sum_, pointer(f, words, 1))
        f.ret()

    def operations(self, isa: Isa) -> float:
        """Additions and multiplications of all items."""
        return 2.0 * self.items * _TURNS * self.chains * isa.lanes(self.dtype.itemsize)

    def cost(self) -> KernelCost:
        return KernelCost(0.0, 0.0, 0.0)
