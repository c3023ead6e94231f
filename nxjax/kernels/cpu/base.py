"""The contract of a CPU kernel: a meaning in NumPy, constraints, an emitter, a cost.

The machine code of every kernel has one signature::

    void name(ptr words, i64 lo, i64 hi, ptr scratch)

``words`` are 8 bytes each: the addresses of the operands (inputs, then outputs), then `Kernel.integers`. The kernel
works on its items ``lo`` to ``hi`` out of ``items``. Items are independent: any cut of them into calls, in any order,
by any number of threads, gives the same bits. ``scratch`` is memory of the thread that runs the call, 64-byte aligned,
``scratch`` bytes of it. Knows no program, buffer or thread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.config.digest import digest
from nxjax.config.forks import cached_property
from nxjax.config.named_tuple import NamedTuple
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa

NDArray = np.ndarray[Any, Any]
Span = tuple[int, int, tuple[tuple[int, int], ...], int, bool]
SIGNATURE = ("ptr", "i64", "i64", "ptr")


@final
@dataclass(frozen=True, slots=True)
class KernelCost:
    """What one whole run takes: floating-point (or integer) operations, bytes read and bytes written."""

    flops: float
    read: float
    written: float


class Box(NamedTuple):
    """Elements of ``size`` bytes at ``offset + sum(index * strides)`` from an operand's place, for each index of
    ``shape``.

    ``idle``: they may be loaded, and change nothing: lanes beyond the last element.
    """

    size: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    idle: bool = False

    @property
    def runs(self) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """The same bytes as ``(first, length, repeats)``: a run of ``length`` bytes from ``first`` on, and for each
        ``(count, stride)`` of ``repeats``, longest stride last, the same again ``stride`` bytes further.

        >>> Box(4, (3, 5), (20, 4)).runs
        (0, 60, ())
        >>> Box(4, (3, 5), (32, -4), 16).runs
        (0, 20, ((3, 32),))
        """
        first, behind, repeats, _, _ = _span(self)
        return first, behind - first, repeats

    @property
    def span(self) -> Span:
        """The first byte, the one behind the first run, how that is repeated, the one behind the last, and `idle`."""
        return _span(self)

    @property
    def end(self) -> int:
        """Behind its last byte."""
        return _span(self)[3]

    @property
    def nbytes(self) -> int:
        """How many bytes it has, if none of them twice."""
        return self.runs[1] * math.prod([n for n, _ in self.runs[2]])


@lru_cache(1 << 12)
def _span(box: Box) -> Span:
    """`Box.span`: programs have many operands of few shapes."""
    first, length = box.offset, box.size
    dims: list[tuple[int, int]] = []
    for n, s in zip(box.shape, box.strides, strict=True):
        if not n:
            return box.offset, box.offset, (), box.offset, box.idle
        if n > 1 and s:
            first += min(0, (n - 1) * s)
            dims.append((n, abs(s)))
    repeats: list[tuple[int, int]] = []
    for n, s in sorted(dims, key=lambda d: d[1]):
        if not repeats and s <= length:
            length += (n - 1) * s
        elif repeats and s == repeats[-1][0] * repeats[-1][1]:
            repeats[-1] = repeats[-1][0] * n, repeats[-1][1]
        else:
            repeats.append((n, s))
    end = first + length + sum([(n - 1) * s for n, s in repeats])
    return first, first + length, tuple(repeats), end, box.idle


@final
@dataclass(frozen=True)
class OutputEffect:
    """What a kernel does to the memory of one output.

    ``how``: "all" bytes of the boxes are written, whatever was there; or "some" of them, and old ones may be read; or
    they are the kernel's "own": what of them is written, only the kernels know that read them (padding is not).
    """

    boxes: tuple[Box, ...]
    how: Literal["all", "some", "own"] = "all"


@final
@dataclass(frozen=True)
class Touches:
    """The bytes that a kernel may read of each input, and may write of each output; it touches no others.

    Indices that are data count with all places that they may name.
    """

    ins: tuple[tuple[Box, ...], ...]
    outs: tuple[OutputEffect, ...]

    @cached_property
    def spans(self) -> tuple[tuple[tuple[Span, ...], ...], tuple[tuple[Span, ...], ...], tuple[int, ...]]:
        """`Box.span` of all boxes that have bytes, of each input and of each output; and which of these keep some."""
        return (
            _spans(self.ins),
            _spans([y.boxes for y in self.outs]),
            tuple([k for k, y in enumerate(self.outs) if y.how == "some"]),
        )


def _spans(operands: Sequence[tuple[Box, ...]]) -> tuple[tuple[Span, ...], ...]:
    return tuple([tuple([y for x in boxes if (y := _span(x))[0] < y[1]]) for boxes in operands])


def dense(*sizes: int) -> tuple[Box, ...]:
    """Operands of so many bytes each, without gaps."""
    return tuple([Box(n) for n in sizes])


def plain(ins: Sequence[Box], outs: Sequence[Box]) -> Touches:
    """One box for each operand; outputs are written whole."""
    return Touches(tuple([(x,) for x in ins]), tuple([OutputEffect((y,)) for y in outs]))


class Code(ABC):
    """A function in machine code, with the signature of kernels. Immutable.

    Attributes:
        scratch: bytes of memory that each running thread needs.
        inlines: whether it has functions whose code LLVM is to put where they are called.
    """

    scratch: int = 0
    inlines: bool = False

    @property
    @abstractmethod
    def key(self) -> str:
        """All that the machine code depends on but the instruction set; also what the kernel is called in texts."""

    @property
    def symbol(self) -> str:
        """Its name in machine code: equal for kernels that share it."""
        return "k" + digest(self.key.encode()).hexdigest()[:24]

    @abstractmethod
    def emit(self, module: LlvmModule, isa: Isa) -> None:
        """Add the function `symbol` (and what it calls) to ``module``."""

    def function(self, module: LlvmModule) -> tuple[Function, Value, Value, Value, Value]:
        """The function to write, added to ``module``, and its arguments: words, lo, hi, scratch."""
        f = Function(self.symbol, SIGNATURE)
        module.add(f)
        words, lo, hi, scratch = f.arguments
        return f, words, lo, hi, scratch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Kernel(Code):
    """Machine code for one loop nest. Immutable; everything that the code depends on is in `key`.

    Attributes:
        items: how many independent pieces of work there are.
        grain: how many of them a thread takes at least (a few microseconds' worth).
        scratch: bytes of memory that each running thread needs.
        inplace: pairs (output, input) that may be one place: the same number of bytes in the same order, of which each
            item reads all that lies where it writes before it writes there, and no other item reads any.
        added: pairs that are the same if a rule gives them one place; memory is not planned so.
    """

    items: int
    grain: int
    inplace: tuple[tuple[int, int], ...] = ()
    added: tuple[tuple[int, int], ...] = ()

    @property
    def title(self) -> str:
        """A short name for tables and traces."""
        return self.key.split("(")[0][:40]

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places: sizes and strides that are not part of the machine code."""
        return ()

    @abstractmethod
    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The outputs for inputs of the operands' shapes, by NumPy."""

    @abstractmethod
    def touches(self) -> Touches:
        """What it does to the memory of its operands, from their shapes and strides; see `lower.cpu.verify`."""

    @cached_property
    def touched(self) -> Touches:
        """`touches`, found once."""
        return self.touches()

    def flaw(self) -> str:
        """What is wrong with its plan of its own scratch memory, if anything is; see `lower.cpu.verify`."""
        return ""

    @abstractmethod
    def cost(self) -> KernelCost: ...


def pointer(f: Function, words: Value, index: int) -> Value:
    """Word ``index`` as an address."""
    return f.load("ptr", f.at(words, index, 8), 8)


def integer(f: Function, words: Value, index: int) -> Value:
    """Word ``index`` as an ``i64``."""
    return f.load("i64", f.at(words, index, 8), 8)
