"""What a convolution holds in registers: kinds of products, and how many pixels and channels make a block of them.

Knows neither problem nor loops: those of `conv`, `winograd` and their like are over these blocks.
"""

from __future__ import annotations

from typing import Any, Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.intrinsics import needed
from nxjax.kernels.cpu.ir import Function, Value, vector
from nxjax.kernels.cpu.isa import Isa

DType = np.dtype[Any]
# What products are made of: floats, integers that wrap, or pairs of int16 summed in int32.
Kind = Literal["f32", "f64", "i32", "i64", "pairs"]
SCALAR: Final[dict[Kind, str]] = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64", "pairs": "i32"}
WORK: Final[dict[Kind, DType]] = {
    "f32": np.dtype("float32"),
    "f64": np.dtype("float64"),
    "i32": np.dtype("int32"),
    "i64": np.dtype("int64"),
    "pairs": np.dtype("int32"),
}


@final
@dataclass(frozen=True, slots=True)
class RegisterBlock:
    """What is held in registers: ``pixels`` times ``vectors`` of ``lanes`` channels."""

    pixels: int
    vectors: int
    lanes: int

    @property
    def channels(self) -> int:
        return self.vectors * self.lanes


def lanes_for(kind: Kind, isa: Isa) -> int:
    """Output channels in a vector."""
    return isa.lanes(WORK[kind].itemsize)


def vectors_for(kind: Kind, isa: Isa, outputs: int) -> int:
    """How many vectors of channels a block has: as few lanes as possible stay empty, then as many vectors."""
    lanes = lanes_for(kind, isa)
    most = 3 if isa.registers >= 32 else 2
    # Three vectors leave fewer pixels for each weight that is read; two are taken where both fit.
    order = [v for v in (2, 3, 1) if v <= most]
    return min(order, key=lambda v: -(-outputs // (v * lanes)) * v)


def block_for(kind: Kind, isa: Isa, outputs: int, pixels: int) -> RegisterBlock:
    """The block for so many output channels per group and pixels."""
    vectors = vectors_for(kind, isa, outputs)
    # Registers: the block, the weights of one feature, one repeated element (and a product, without fma).
    spare = vectors + (2 if kind in ("pairs", "i32", "i64") or not isa.fma else 1)
    most = min((isa.registers - spare) // vectors, 14)
    if pixels <= most:
        return RegisterBlock(max(pixels, 1), vectors, lanes_for(kind, isa))
    # Of the larger sizes, the one that leaves the fewest places of the last block empty.
    choices = range(most, max(most * 2 // 3, 1) - 1, -2 if most > 6 else -1)
    best = min(choices, key=lambda p: (-(-pixels // p) * (p + 0.35), -p))
    return RegisterBlock(best, vectors, lanes_for(kind, isa))


def multiply_add(f: Function, isa: Isa, kind: Kind, x: Value, w: Value, acc: Value) -> Value:
    """``acc + x * w``; of "pairs", both products of 16-bit halves are added. Integers wrap."""
    if kind in ("f32", "f64"):
        return f.fma(x, w, acc)
    if kind != "pairs":
        return acc + x * w
    lanes = int(acc.type[1:].split(" ")[0])
    if isa.vnni and lanes == isa.lanes(4):
        return f.intrinsic(f"x86.avx512.vpdpwssd.{isa.bits}", acc.type, acc, x, w)
    halves = vector("i16", 2 * lanes)
    name = {512: "x86.avx512.pmaddw.d.512", 256: "x86.avx2.pmadd.wd", 128: "x86.sse2.pmadd.wd"}[isa.bits]
    # What all processors share is described with vectors that are wider than those of some.
    if isa.x86 and (not needed(name) or isa.has(needed(name))):
        return acc + f.intrinsic(name, acc.type, x.bitcast(halves), w.bitcast(halves))
    low = (x << 16 >> 16) * (w << 16 >> 16)
    return acc + low + (x >> 16) * (w >> 16)
