"""Derivatives of pools of maxima and minima: windows that choose an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.cpu import convert, isa
from nxjax.kernels.cpu.choose import Slide, WindowSelection
from nxjax.kernels.cpu.pool import accumulator
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.layout import copy, ordered
from nxjax.lower.cpu.rules.conv import converted
from nxjax.lower.cpu.rules.pool import joins
from nxjax.trace import dtypes
from nxjax.trace.program import Equation

# Whether chosen places are written, not read.
_SCATTERS: Final = {"select_and_gather_add": False, "select_and_scatter_add": True}


@rule(*_SCATTERS)
def choose(b: Builder, e: Equation, first: Any, x: Any) -> Sequence[Any]:
    type, p = e.outputs[0].type, e.params
    dtype, scatter = type.dtype, _SCATTERS[e.op.name]
    if dtypes.bit_width(dtype) < 8 or not convert.known(dtype):
        raise NoKernel(f"windows of {dtype.name}")
    if not type.size:
        return [b.new(type)]
    windows, steps, padding = p["window_dimensions"], p["window_strides"], p["padding"]
    spread, holes = p["window_dilation"], p["base_dilation"]
    v, u = b.view(x), b.view(first)
    ndim = len(windows)
    plain = [i for i in range(ndim) if windows[i] == steps[i] == holes[i] == 1 and padding[i] == (0, 0)]
    sliding = [i for i in range(ndim) if i not in plain]
    inner = min((i for i in plain if v.shape[i] > 1), key=lambda i: (abs(v.strides[i]), -v.shape[i]), default=None)
    rest = [i for i in plain if i != inner]
    order = [*rest, *sliding, *([] if inner is None else [inner])]
    v, u = (_near(b, w, rest, order, inner) for w in (v, u))
    acc = accumulator(dtype, dtype)
    y = ordered(type.shape, acc if scatter else dtype, order, 64)
    like_x, per_window = (y, u) if scatter else (u, y)
    last = next((i for i in reversed(rest) if v.shape[i] > 1), None)
    step = lambda w: 0 if last is None else w.strides[last]
    batch = 1
    for i in rest:
        batch *= v.shape[i]
    slides = [
        Slide(
            v.shape[i], per_window.shape[i], windows[i], steps[i], spread[i], padding[i][0], holes[i],
            v.strides[i], like_x.strides[i], per_window.strides[i],
        )
        for i in sliding
    ]  # fmt: skip
    kernel = WindowSelection(
        scatter, p["select_prim"], dtype, batch, 1 if inner is None else v.shape[inner], slides,
        (step(v), step(like_x), step(per_window)), isa.current().lanes(max(acc.itemsize, 4)),
    )  # fmt: skip
    b.call(kernel, [u, v], [y])
    return [converted(b, y, dtype, ndim - 1 if inner is None else inner)]


def _near(b: Builder, v: View, rest: Sequence[int], order: Sequence[int], inner: int | None) -> View:
    """``v``, or a copy of it, with dimension ``inner`` adjacent and those of the batch as one."""
    if (inner is None or v.strides[inner] == v.dtype.itemsize) and joins(v, rest):
        return v
    out = ordered(v.shape, v.dtype, order, 64)
    copy(b, v, out)
    return out
