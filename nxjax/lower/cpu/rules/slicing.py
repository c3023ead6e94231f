"""dynamic_slice and dynamic_update_slice: blocks at places that are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nxjax.kernels.cpu.move import Move
from nxjax.kernels.cpu.window import MoveAt, Start
from nxjax.lower.cpu.builder import Builder, NoKernel, View, dense_strides, rule
from nxjax.lower.cpu.tape import CopyStep
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType, Shape


def part(v: View, starts: Sequence[int], shape: Shape, steps: Sequence[int] | None = None) -> View:
    """The block of ``v`` that begins at ``starts``; every ``steps``-th element of it."""
    by = steps or (1,) * len(shape)
    offset = v.ref.offset + sum(i * s for i, s in zip(starts, v.strides, strict=True)) if 0 not in shape else 0
    strides = tuple(s * k for s, k in zip(v.strides, by, strict=True))
    return replace(v, ref=replace(v.ref, offset=offset), shape=shape, strides=strides)


def move(b: Builder, source: View, target: View) -> None:
    """Copy ``source`` into the memory that ``target`` names; they have one shape."""
    if target.size:
        kernel = Move(target.shape, source.strides, target.strides, target.dtype.itemsize)
        b.call(kernel, [source], [target])


def copied(b: Builder, x: Any) -> View:
    """Memory of our own with the value of ``x``: to be written into.

    A plain copy, so that the memory plan can give it the memory of ``x`` where nobody reads that later.
    """
    v = b.view(x)
    if not v.is_dense:
        return b.dense(v)
    out = b.new(ArrayType(v.shape, v.dtype))
    b.steps.append(CopyStep(v.ref, out.ref, v.size * v.dtype.itemsize, equation=b.equation))
    return out


def _starts(b: Builder, xs: Sequence[Any], x: View, sizes: Sequence[int]) -> tuple[list[Start], list[View], list[int]]:
    """Starts that are data, their memory, and those that are known (0 for the others)."""
    starts: list[Start] = []
    places: list[View] = []
    known: list[int] = []
    for index, n, k, stride in zip(xs, x.shape, sizes, x.strides, strict=True):
        fixed = 0
        if n == k:
            pass  # whatever the index is, it is moved to 0
        elif isinstance(index, np.ndarray | np.generic):
            fixed = min(max(int(index), 0), n - k)
        else:
            place = b.view(index)
            if dtypes.bit_width(place.dtype) < 8:
                raise NoKernel(f"{place.dtype.name} indices")
            starts.append(Start(place.dtype, n - k, stride))
            places.append(place)
        known.append(fixed)
    return starts, places, known


@rule("dynamic_slice")
def dynamic_slice(b: Builder, e: Equation, x: Any, *indices: Any) -> Sequence[Any]:
    sizes: Shape = e.params["slice_sizes"]
    v = b.view(x)
    starts, places, known = _starts(b, indices, v, sizes)
    block = part(v, known, sizes)
    if not starts:
        return (block,)
    out = b.new(e.outputs[0].type)
    if out.size:
        kernel = MoveAt(sizes, v.strides, out.strides, v.dtype.itemsize, starts, "source")
        b.call(kernel, [block, *places], [out])
    return (out,)


@rule("dynamic_update_slice")
def dynamic_update_slice(b: Builder, e: Equation, x: Any, update: Any, *indices: Any) -> Sequence[Any]:
    u = b.view(update)
    if u.shape == e.outputs[0].type.shape:
        return (u,)
    v = b.view(x)
    starts, places, known = _starts(b, indices, replace(v, strides=dense_strides(v.shape, v.dtype)), u.shape)
    out = copied(b, v)
    block = part(out, known, u.shape)
    if not starts:
        move(b, u, block)
    elif u.size:
        kernel = MoveAt(u.shape, u.strides, out.strides, out.dtype.itemsize, starts, "target")
        b.call(kernel, [u, *places], [block])
    return (out,)
