"""gather: one kernel for any dimension numbers; a single window at a known place is only looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import numpy as np

from nxjax.kernels.cpu.gather import Gather
from nxjax.kernels.cpu.grid import Side
from nxjax.kernels.cpu.indices import Component, Vectors
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.lazy import Lazy, LazyIndex, Map, Scalar, Shaped, converted_from, indexed, shaped
from nxjax.lower.cpu.rules.slicing import part
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import default_fill
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape

_SHORT: Final = (dtypes.uint8, dtypes.uint16)


def along_batch(numbers: GatherDimensionNumbers, x: View, indices: View) -> list[int]:
    """Per batch dimension of the indices, the stride of the array along the dimension that the two share, else 0."""
    shared = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    return [x.strides[shared[k]] if k in shared else 0 for k in range(len(indices.shape) - 1)]


def plain(b: Builder, indices: Any) -> tuple[View, int]:
    """Indices in memory, and what the kernel adds to negative ones.

    NumPy's meaning of negative indices is written as ``where(i < 0, i + n, i)``, which is not worth a kernel. Nor are
    bytes that become words first.
    """
    way: list[LazyIndex | Shaped] = []
    x = indices
    while isinstance(x, LazyIndex | Shaped) and x.view is None:
        way.append(x)
        x = x.args[0]
    if not (isinstance(x, Map) and x.view is None):
        return b.view(indices), 0
    again = lambda i: b.view(reduce(_applied, reversed(way), i))
    short = converted_from(x)
    if short is not None and short.view is not None and short.dtype in _SHORT:
        return again(short), 0
    if x.op.name != "select_n":
        return b.view(indices), 0
    negative, i, raised = x.args
    if not (_is(negative, "lt", i) and _is(raised, "add", i) and i.view is not None):
        return b.view(indices), 0
    zero, size = (_number(y.args[1]) for y in (negative, raised))
    if zero != 0 or not size or size < 0 or i.dtype not in (dtypes.int32, dtypes.int64):
        return b.view(indices), 0
    return again(i), size


def _applied(x: Lazy, step: LazyIndex | Shaped) -> Lazy:
    return shaped(x, step.shape) if isinstance(step, Shaped) else indexed(x, step.shape, step.places)


def _is(x: Lazy, op: str, first: Lazy) -> bool:
    """Whether ``x`` is ``op`` of ``first`` and something else, not computed yet."""
    if not (isinstance(x, Map) and x.view is None and x.op.name == op):
        return False
    return x.args[0] is first or (x.args[0].view is not None and x.args[0].view == first.view)


def _number(x: Lazy) -> int | None:
    return int(np.frombuffer(x.data, x.dtype)[0]) if isinstance(x, Scalar) else None


def vectors_of(
    numbers: GatherDimensionNumbers, x: View, indices: View, sizes: Sequence[int], clip: bool, wrap: int
) -> Vectors:
    """How index vectors are read, and what they mean for ``x``."""
    if dtypes.bit_width(indices.dtype) < 8:
        raise NoKernel(f"{indices.dtype.name} indices")
    components = tuple(
        Component(k * indices.strides[-1], x.shape[d] - sizes[d], x.strides[d])
        for k, d in enumerate(numbers.start_index_map)
        if not (clip and x.shape[d] == sizes[d])
    )
    return Vectors(indices.dtype, components, clip, wrap)


def _known(n: GatherDimensionNumbers, v: View, vector: np.ndarray[Any, Any], sizes: Shape, y: View) -> View | None:
    """The window of ``v`` at ``vector`` in the shape and order of ``y``; None if it is not all inside."""
    starts = [0] * len(v.shape)
    for index, d in zip(vector, n.start_index_map, strict=True):
        starts[d] = min(max(int(index), 0), v.shape[d] - sizes[d])
        if starts[d] != int(index):
            return None
    hidden = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    strides = [0] * len(y.shape)
    for d, to in zip([d for d in range(len(v.shape)) if d not in hidden], n.offset_dims, strict=True):
        strides[to] = v.strides[d]
    return replace(part(v, starts, sizes), shape=y.shape, strides=tuple(strides))


@rule("gather")
def gather(b: Builder, e: Equation, x: Any, indices: Any) -> Sequence[Any]:
    n: GatherDimensionNumbers = e.params["dimension_numbers"]
    sizes: Shape = e.params["slice_sizes"]
    clip = e.params["mode"] is not GatherScatterMode.FILL_OR_DROP
    v = b.view(x)
    type = e.outputs[0].type
    if isinstance(indices, np.ndarray) and indices.size == len(n.start_index_map) and type.size:
        found = _known(n, v, indices.reshape(-1), sizes, b.new(type))
        if found is not None:
            return (found,)
    at, wrap = plain(b, indices)
    vectors = vectors_of(n, v, at, sizes, clip, wrap)
    out = b.new(type)
    if not out.size:
        return (out,)
    hidden = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    window = [d for d in range(len(v.shape)) if d not in hidden]
    outer = [d for d in range(len(out.shape)) if d not in n.offset_dims]
    batch = [
        Side(size, (index, out.strides[d], array))
        for size, index, d, array in zip(at.shape[:-1], at.strides[:-1], outer, along_batch(n, v, at), strict=True)
    ]
    # What lies around the points in the result is a loop around them, so that lines are written from end to end.
    reach = max([s.strides[1] for s in batch if s.size > 1], default=0)
    around = [k for k, d in enumerate(n.offset_dims) if 0 < reach < out.strides[d]]
    batch += [Side(sizes[window[k]], (0, out.strides[n.offset_dims[k]], v.strides[window[k]])) for k in around]
    inside = [k for k in range(len(window)) if k not in around]
    move = Move(
        [sizes[window[k]] for k in inside],
        [v.strides[window[k]] for k in inside],
        [out.strides[n.offset_dims[k]] for k in inside],
        v.dtype.itemsize,
    )
    fill: bytes | None = None
    if not clip:
        value = e.params.get("fill_value")
        fill = np.asarray(default_fill(v.dtype) if value is None else value).astype(v.dtype).tobytes()
    b.call(Gather(batch, move, vectors, fill), [v, at], [out])
    return (out,)
