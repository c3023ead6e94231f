"""Which operands of one call may overlap, and what is wrong with a kernel in itself: rules of `verify`."""

from __future__ import annotations

import math

from nxjax.kernels.cpu.base import Box, Kernel
from nxjax.lower.cpu.contents import MemoryContents, Repeats, boxed, cells


def flaw(kernel: Kernel) -> str:
    """What is wrong with ``kernel``, wherever it is called; "" for nothing."""
    found = kernel.flaw()
    if found:
        return found
    touched = kernel.touched
    for k, j in kernel.inplace:
        x, y = touched.outs[k], touched.ins[j]
        if x.how != "all" or len(x.boxes) != len(y) or not all(map(same, x.boxes, y)):
            return f"output {k} may be operand {j}, which has other bytes"
    return ""


def collide(kernel: Kernel, k: int, at: int, j: int, there: int) -> bool:
    """Whether output ``k`` at ``at`` has a byte of operand ``j`` at ``there``, and may not; outputs follow inputs."""
    touched, n = kernel.touched, len(kernel.touched.ins)
    outs, others = touched.outs[k].boxes, touched.ins[j] if j < n else touched.outs[j - n].boxes
    allowed = at == there and ((k, j) in kernel.inplace or (k, j) in kernel.added)
    if allowed and len(outs) == len(others) == 1 and (k, j) in kernel.inplace:
        return False  # `flaw` has found them the same
    for x in outs:
        for y in others:
            if not x.runs[1] or not y.runs[1] or at + x.runs[0] >= there + y.end or there + y.runs[0] >= at + x.end:
                continue
            if not (allowed and same(x, y)) and _cross(x, at, y, there):
                return True
    return False


def same(x: Box, y: Box) -> bool:
    """Whether two boxes have the same bytes in the same order."""

    def essential(b: Box) -> tuple[tuple[int, int], ...]:
        return tuple([(n, s) for n, s in zip(b.shape, b.strides, strict=True) if n != 1 and s])

    if x[:4] == y[:4]:
        return True
    return (x.size, x.offset, essential(x)) == (y.size, y.offset, essential(y))


def _cross(x: Box, at: int, y: Box, there: int) -> bool:
    """Whether two boxes whose extents overlap have a byte in common; yes, where that takes long to say."""
    (lo, length, repeats), (low, other, again) = x.runs, y.runs
    lo, low = lo + at, low + there
    if not repeats and not again:
        return True
    if interleaved(length, repeats, other, again, low - lo):
        return False
    first, last = min(lo, low), max(at + x.end, there + y.end)
    steps = [length, other, lo - first, low - first, *(s for _, s in (*repeats, *again))]
    made = cells(MemoryContents(), first, last, steps)
    if made is None:
        return True
    boxed(made, lo - first, length, repeats)[...] = 1
    return bool(boxed(made, low - first, other, again).any())


def interleaved(length: int, repeats: Repeats, other: int, again: Repeats, shift: int) -> bool:
    """Whether two boxes, the second ``shift`` bytes after the first, lie in separate parts of one period.

    A period divides all large strides of both; the small ones move within it.
    """
    strides = sorted({s for _, s in (*repeats, *again)})
    for i, least in enumerate(strides):
        period = math.gcd(*strides[i:])
        mine = length + sum((n - 1) * s for n, s in repeats if s < least)
        theirs = other + sum((n - 1) * s for n, s in again if s < least)
        if mine <= shift % period and shift % period + theirs <= period:
            return True
    return False
