"""Windows that do not mix channels: depthwise convolutions and reductions of windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nxjax.kernels.cpu import convert, isa
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem
from nxjax.kernels.cpu.expression import Expression, identity
from nxjax.kernels.cpu.pool import Combine, Pool, accumulator
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.layout import copy, fill, ordered, shifted
from nxjax.lower.cpu.lazy import LazyLeaf
from nxjax.lower.cpu.rules.conv_shape import Setup, SpatialDim, phases
from nxjax.lower.cpu.rules.conv_tail import Tail
from nxjax.lower.cpu.rules.stored import beneath, values
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, highest, lowest
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape

_COMBINE: dict[str, Combine] = {
    "reduce_window_sum": "sum",
    "reduce_window_max": "max",
    "reduce_window_min": "min",
}
_CHANNELS = 16  # fewer leave most of a vector empty


def neutral(combine: Combine, dtype: DType) -> Any:
    """What changes no result of ``combine``."""
    return {"max": lowest, "min": highest}[combine](dtype) if combine in ("max", "min") else 0


@rule(*_COMBINE)
def reduce_window(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type = e.outputs[0].type
    dtype = type.dtype
    if dtype in dtypes.COMPLEX or dtype == dtypes.bool_ or dtypes.bit_width(dtype) < 8 or not convert.known(dtype):
        raise NoKernel(f"windows of {dtype.name}")
    combine = _COMBINE[e.op.name]
    if not type.size:
        return [b.new(type)]
    stored = beneath(x) if combine != "sum" and _inside(e.params) else None
    if stored is not None:
        # Of integers on a grid and of their values the same is the greatest.
        q, grid = stored
        ints = dtypes.int16
        y = pooled(b, b.view(q), type.shape, combine, neutral(combine, ints), ints, e.params)
        return [values(b, LazyLeaf(y), grid)]
    return [pooled(b, b.view(x), type.shape, combine, neutral(combine, dtype), dtype, e.params)]


def _inside(p: Mapping[str, Any]) -> bool:
    """Whether every window has an element that is no padding."""
    plain = all(n == 1 for n in (*p["base_dilation"], *p["window_dilation"]))
    pads = zip(p["window_dimensions"], p["padding"], strict=True)
    return plain and all(0 <= n < k for k, pad in pads for n in pad)


def pooled(
    b: Builder,
    v: View,
    shape: Shape,
    combine: Combine,
    pad: Any,
    out: DType,
    p: Any,
    expression: Expression | None = None,
    operands: tuple[View, ...] = (),
) -> View:
    """The windows of ``v`` that an op's params ``p`` describe, combined; ``expression`` gets them in ``out``.

    ``operands`` are of the result's ``shape`` and vary along dimensions with windows only.
    """
    expression = expression or identity(out)
    windows, steps, padding = p["window_dimensions"], p["window_strides"], p["padding"]
    holes, spread = p["base_dilation"], p["window_dilation"]
    ndim = len(windows)
    plain = [i for i in range(ndim) if windows[i] == steps[i] == holes[i] == 1 and padding[i] == (0, 0)]
    sliding = [i for i in range(ndim) if i not in plain]
    if len(sliding) > 3:
        raise NoKernel("windows over more than three dimensions")
    # Of the dimensions without windows the one with the least stride has the channels.
    inner = min((i for i in plain if v.shape[i] > 1), key=lambda i: (abs(v.strides[i]), -v.shape[i]), default=None)
    run = [] if inner is None else [inner]
    near = inner is not None and v.strides[inner] == v.dtype.itemsize
    if not operands and not (near and v.shape[run[0]] >= _CHANNELS):
        one = [i for i in range(ndim) if steps[i] == holes[i] == 1 and min(padding[i]) >= 0]
        longer = _run(v, plain, one)
        if math.prod(shape[i] for i in longer) > (v.shape[run[0]] if near else 1):
            run, near = longer, True
    line = next((i for i in run if i in sliding), None)
    rest = [i for i in plain if i not in run]
    order = [*rest, *(i for i in sliding if i != line), *run]
    if (run and not near) or not joins(v, rest) or (line is not None and padding[line] != (0, 0)):
        v = _copied(b, v, order, line, (0, 0) if line is None else padding[line], pad)
    y = ordered(shape, expression.out_dtypes[0], order, 64)
    # Dimensions without windows are one batch.
    last = next((i for i in reversed(rest) if v.shape[i] > 1), None)
    step = lambda u: 0 if last is None else u.strides[last]
    whole = Setup(
        math.prod(v.shape[i] for i in rest), math.prod(shape[i] for i in run), 1, 1, (), step(v),
        v.dtype.itemsize, v.dtype.itemsize, 0, 0, 0, step(y), y.dtype.itemsize,
        more_n=tuple(map(step, operands)), more_group=(0,) * len(operands),
    )  # fmt: skip

    def spatial(i: int) -> SpatialDim:
        if i == line:  # outputs are channels
            return SpatialDim(v.shape[i] - shape[i] + 1, 1, windows[i], 1, spread[i], 0, v.strides[i], 0, 0)
        more = tuple(u.strides[i] for u in operands)
        low, out_step = padding[i][0], y.strides[i]
        return SpatialDim(v.shape[i], shape[i], windows[i], steps[i], spread[i], low, v.strides[i], 0, out_step, more)

    dims = [list(phases(spatial(i), holes[i])) for i in sliding]
    t = Tail(expression, operands, (y,), ndim - 1 if inner is None else inner)
    for chosen in itertools.product(*dims):
        others = tuple(sum(c[3][i] for c in chosen) for i in range(len(operands)))
        s = replace(whole, dims=tuple(c[0] for c in chosen), y_offset=sum(c[2] for c in chosen), more_offset=others)
        channelwise(b, s, v, None, t, combine, pad, out)
    return y


def _run(v: View, plain: Sequence[int], one: Sequence[int]) -> list[int]:
    """The dimensions that vectors may run along, innermost last: those side by side in memory that have no windows.

    The outermost may have some, if it is one of ``one``: windows that move by one are as many channels, whose taps
    are channels, too.
    """
    found: list[int] = []
    count = 1
    for i in sorted((i for i, n in enumerate(v.shape) if n > 1), key=lambda i: v.strides[i]):
        if v.strides[i] != count * v.dtype.itemsize or not (i in plain or (count < _CHANNELS and i in one)):
            break
        found.insert(0, i)
        count *= v.shape[i]
        if i not in plain:
            break
    return found


def _copied(b: Builder, v: View, order: Sequence[int], line: int | None, padding: tuple[int, int], pad: Any) -> View:
    """``v`` with its dimensions in memory in ``order``, and ``padding`` before and after along ``line``."""
    sizes = tuple(n + sum(padding) * (i == line) for i, n in enumerate(v.shape))
    y = ordered(sizes, v.dtype, order, 64)
    begin = 0
    if line is not None:
        begin, after = padding[0] * y.strides[line], (padding[0] + v.shape[line]) * y.strides[line]
        for at, count in zip((0, after), padding, strict=True):
            shape = tuple(count if i == line else n for i, n in enumerate(v.shape))
            fill(b, shifted(y, at, shape, y.strides), pad)
    copy(b, v, shifted(y, begin, v.shape, y.strides))
    return y


def joins(v: View, dims: Sequence[int]) -> bool:
    """Whether ``dims`` are one run in row-major order, at equal steps."""
    step: int | None = None
    for i in reversed([i for i in dims if v.shape[i] > 1]):
        if step is not None and v.strides[i] != step:
            return False
        step = v.strides[i] * v.shape[i]
    return True


def channelwise(b: Builder, s: Setup, x: View, w: View | None, t: Tail, combine: Combine, pad: Any, out: DType) -> None:
    """One call: the groups of ``s`` are channels, adjacent in x, weights and y; its inputs, if many, are taps."""
    target = isa.current()
    dtype = x.dtype
    acc = accumulator(dtype, out)
    dims = [d for d in s.dims if not d.trivial]
    if s.inputs > 1:
        # Where sums have one order, features are innermost, as in all other convolutions.
        at = len(dims) if target.reproducible else 0
        dims.insert(at, SpatialDim(s.inputs, 1, s.inputs, 1, 1, 0, s.x_c, s.w_c, 0, (0,) * len(t.more)))
    if len(dims) > 3:
        raise NoKernel("too many dimensions of windows")
    s = replace(s, dims=tuple(dims))
    axes = [ConvAxis(d.size, d.outputs, d.taps, d.step, d.dilation, d.low, d.x, d.w, d.y) for d in dims]
    axes = [NONE] * (3 - len(axes)) + axes
    problem = ConvProblem(
        s.batch, s.groups, 1, 1, (axes[0], axes[1], axes[2]), s.x_n, dtype.itemsize, dtype.itemsize,
        s.w_c, 0, 0, s.y_n, 0,
    )  # fmt: skip
    lanes = target.lanes(max(acc.itemsize, out.itemsize))
    many = target.registers >= 32
    block = (6 if many else 4, 2) if s.groups >= 2 * lanes else (8 if many else 6, 1)
    pixels = s.batch * math.prod(d.outputs for d in dims)
    if combine != "dot" and pixels < block[0] // 2 and s.groups >= 4 * lanes:
        block = (pixels, 4)  # enough sums for all of an adder's stages
    extras, more, ins, outs = t.extras(s)
    kernel = Pool(problem, combine, dtype, pad, out, block, lanes, t.expression, extras, more)
    place = lambda v, offset: shifted(v, offset, v.shape, v.strides)
    first = [place(x, s.x_offset), *([] if w is None else [place(w, s.w_offset)])]
    b.call(kernel, [*first, *ins], outs)


def depthwise(b: Builder, s: Setup, x: View, w: View, t: Tail, out: DType) -> None:
    """A convolution with one output channel per group; operands are moved where their groups are not adjacent."""
    if s.x_group != x.dtype.itemsize:
        s, x = _groups_last(b, s, x, of_x=True)
    if s.w_group != w.dtype.itemsize:
        s, w = _groups_last(b, s, w, of_x=False)
    channelwise(b, s, x, w, t, "dot", 0, out)


def _groups_last(b: Builder, s: Setup, v: View, of_x: bool) -> tuple[Setup, View]:
    """A copy of x or of the weights with the groups innermost."""
    if of_x:
        shape = (s.batch, s.inputs, *(d.size for d in s.dims), s.groups)
        strides = (s.x_n, s.x_c, *(d.x for d in s.dims), s.x_group)
    else:
        shape = (1, s.inputs, *(d.taps for d in s.dims), s.groups)
        strides = (0, s.w_c, *(d.w for d in s.dims), s.w_group)
    out = ordered(shape, v.dtype, range(len(shape)), 64)
    copy(b, shifted(v, s.x_offset if of_x else s.w_offset, shape, strides), out)
    n, c, *steps, group = out.strides
    if of_x:
        dims = tuple(replace(d, x=step) for d, step in zip(s.dims, steps, strict=True))
        return replace(s, dims=dims, x_n=n, x_c=c, x_group=group, x_offset=0), out
    dims = tuple(replace(d, w=step) for d, step in zip(s.dims, steps, strict=True))
    return replace(s, dims=dims, w_c=c, w_group=group, w_offset=0), out
