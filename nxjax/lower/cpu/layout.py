"""Which order a value's dimensions have in memory: the channels of images last, whatever the program calls them.

A value of any logical shape may lie in any order, since a `View` has strides. Convolutions and pools write their
channels last and read them wherever they are, so that a chain of them never transposes. Knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.builder import Builder, View
from nxjax.lower.cpu.tape import Buffer, Ref
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape


def ordered(shape: Shape, dtype: DType, order: Sequence[int], slack: int = 0, pad: int = 1) -> View:
    """Fresh memory in which dimension ``order[-1]`` is innermost; ``slack`` bytes after it may be read.

    ``pad``: the innermost dimension takes room for a multiple of so many elements.
    """
    strides = [0] * len(shape)
    step = dtype.itemsize
    for i, d in enumerate(reversed(order)):
        strides[d] = step
        step *= -(-shape[d] // pad) * pad if i == 0 else shape[d]
    return View(Ref(Buffer(step * (0 not in shape) + slack, "temp")), shape, tuple(strides), dtype)


def channels_last(shape: Shape, dtype: DType, channel: int, slack: int = 0) -> View:
    """Fresh memory with dimension ``channel`` innermost, the others in their order."""
    return ordered(shape, dtype, [*(i for i in range(len(shape)) if i != channel), channel], slack)


def transposed(v: View, order: Sequence[int]) -> View:
    """The same memory with its dimensions in another order."""
    return View(v.ref, tuple(v.shape[i] for i in order), tuple(v.strides[i] for i in order), v.dtype)


def shifted(v: View, offset: int, shape: Shape, strides: Sequence[int]) -> View:
    """Other elements of the memory of ``v``, from ``offset`` bytes after its first on."""
    return View(Ref(v.ref.buffer, v.ref.offset + offset, v.ref.moves), shape, tuple(strides), v.dtype)


def copy(b: Builder, source: View, target: View) -> None:
    """Elements from one place to another of equal shape."""
    if math.prod(source.shape):
        b.call(Move(source.shape, source.strides, target.strides, source.dtype.itemsize), [source], [target])


def fill(b: Builder, target: View, number: float = 0) -> None:
    """One number everywhere."""
    if math.prod(target.shape):
        copy(b, shifted(b.const(np.full(1, number, target.dtype)), 0, target.shape, (0,) * len(target.shape)), target)
