"""sort and top_k: the dimension is brought last, and rows are sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.sort import Sort
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.lazy import Count
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType


def _last(v: View, axis: int) -> View:
    """``v`` with ``axis`` behind the other dimensions."""
    order = [d for d in range(len(v.shape)) if d != axis] + [axis]
    return replace(v, shape=tuple(v.shape[d] for d in order), strides=tuple(v.strides[d] for d in order))


def _back(v: View, axis: int) -> View:
    """The inverse of `_last`."""
    n = len(v.shape)
    order = [*range(axis), n - 1, *range(axis, n - 1)]
    return replace(v, shape=tuple(v.shape[d] for d in order), strides=tuple(v.strides[d] for d in order))


def _sorted(b: Builder, xs: Sequence[Any], axis: int, kept: int, keys: int, **options: bool) -> list[View]:
    views = [b.dense(_last(b.view(x), axis)) for x in xs]
    if any(not convert.known(v.dtype) for v in views):
        raise NoKernel("elements that kernels do not hold")
    *outer, size = views[0].shape
    if size >= 1 << 31:
        raise NoKernel("more elements along the axis than 32 bits number")
    kernel = Sort([v.dtype for v in views], keys, math.prod(outer), size, kept, **options)
    kinds = [v.dtype for v in views] + ([dtypes.int32] if kernel.indexed else [])
    outs = [b.new(ArrayType((*outer, kept), dtype)) for dtype in kinds]
    work = [b.new(ArrayType((kernel.work,), dtypes.uint8))] if kernel.work else []
    if kernel.items:
        b.call(kernel, views, [*outs, *work])
    return [_back(v, axis) for v in outs]


@rule("sort")
def sort(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    axis: int = e.params["dimension"]
    if e.outputs[0].type.shape[axis] == 1:
        return xs
    size = e.outputs[0].type.shape[axis]
    keys: int = e.params.get("num_keys", 1)
    *others, last = xs
    if len(others) >= keys and isinstance(last, Count) and last.dimension == axis and last.dtype == dtypes.int32:
        # An argsort: the kernel knows the indices.
        return _sorted(b, others, axis, size, keys, indexed=True)
    return _sorted(b, xs, axis, size, keys)


@rule("top_k")
def top_k(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    return _sorted(b, [x], e.params["axis"], e.params["k"], 1, descending=True, indexed=True)
