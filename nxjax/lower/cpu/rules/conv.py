"""Convolutions: which kernel, and what has to be moved or converted before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.conv import Conv
from nxjax.kernels.cpu.conv_blocks import WORK, Kind, block_for, lanes_for, vectors_for
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem
from nxjax.kernels.cpu.expression import Expression, ExpressionNode, identity
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.kernels.cpu.pool import TAPS
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.layout import channels_last, copy, fill, ordered, shifted, transposed
from nxjax.lower.cpu.lazy import Lazy, LazyLeaf, LazyProduct, LazyReduce, Map, indexed
from nxjax.lower.cpu.lower import inline_expansion
from nxjax.lower.cpu.rules.conv_shape import Setup, SpatialDim, setup, simplified
from nxjax.lower.cpu.rules.conv_tail import Tail, at, tail, unit
from nxjax.lower.cpu.rules.conv_winograd import pays, winograd
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.lower.cpu.rules.pool import depthwise
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.conv import CONV_PASSES
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dot import accumulation_dtype
from nxjax.ops.precision import in_passes
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType, Shape

# Sums of so many terms are cut: each part is summed for itself, in the cache, and then added.
_PART_BYTES: Final = 384 << 10
_GEOMETRY: Final = (
    "window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count",
)  # fmt: skip
LONG: Final = 512  # taps of a filter: more are summed in parts
LINE: Final = 16  # pixels: fewer fill no vectors
_SHORT: Final = 8  # fewer input features than this do not make a loop


Pack = Callable[[Builder, Setup, View, Kind, int], tuple[Setup, View]]


def kind_of(dtype: DType, out: DType, depth: int) -> Kind:
    """How products of ``dtype`` are summed for a result of ``out``."""
    if dtype in dtypes.COMPLEX or dtype == dtypes.bool_ or out in dtypes.COMPLEX:
        raise NoKernel("complex numbers and booleans are convolved by NumPy")
    if dtype in dtypes.INTEGER and out in dtypes.INTEGER:
        if dtypes.bit_width(out) > 32:
            return "i64"
        short = dtype == dtypes.int16 or dtypes.bit_width(dtype) <= 8
        return "pairs" if short else "i32"
    return "f64" if accumulation_dtype(dtype, out, depth) == dtypes.float64 else "f32"


@rule("conv_general_dilated")
def conv_general_dilated(b: Builder, e: Equation, lhs: Any, rhs: Any) -> Sequence[Any]:
    if in_passes(e.params.get("precision"), *(a.type for a in e.inputs)):
        return inline_expansion(b, e, (lhs, rhs), CONV_PASSES)
    type = e.outputs[0].type
    numbers = e.params["dimension_numbers"]
    window = e.inputs[1].type.shape
    kind = kind_of(e.inputs[0].type.dtype, type.dtype, math.prod(window[i] for i in numbers.rhs_spec[1:]))
    if len(numbers.lhs_spec) > 5:
        raise NoKernel("more than three spatial dimensions")
    if not type.size:
        return [b.new(type)]
    x, w = b.view(lhs), b.view(rhs)
    groups = e.params["feature_group_count"] * e.params["batch_group_count"]
    given = {k: e.params[k] for k in _GEOMETRY}
    channel = numbers.out_spec[1]
    y = channels_last(type.shape, WORK[kind], channel)
    phases = setup(x, w, y, tuple(numbers), **given)
    if len(phases) == 1 and _is_filter(phases[0], x.dtype, w.dtype, type.dtype):
        return [filtered(b, phases[0], x, w, type, tuple(numbers.out_spec))]
    whole = [simplified(s) for s in phases]
    narrow = dtypes.bit_width(e.inputs[0].type.dtype) <= 8
    is_long = any(_is_long(s) and not is_single(s) for s in whole)
    # Where nothing can be paired, or the features are not what the loop runs along.
    alone = is_long or 1 < groups == window[numbers.rhs_spec[0]]
    work: Kind = "i32" if kind == "pairs" and alone else kind

    def emit(expression: Expression, operands: Sequence[View], outputs: Sequence[View]) -> None:
        dtype = expression.inputs[0]
        stored = np.dtype("int16") if work == "pairs" else WORK[work]
        left, right = converted(b, x, stored, numbers.lhs_spec[1]), converted(b, w, stored, numbers.rhs_spec[1])
        if work == "pairs":
            left = unit(b, left, numbers.lhs_spec[1])
            if window[numbers.rhs_spec[1]] % 2:
                left = roomy(b, left, numbers.lhs_spec[1])
        with tail(b, expression, operands, outputs, channel) as t:
            for s in setup(left, right, t.outputs[0], tuple(numbers), **given, more=t.more):
                one(b, simplified(s), left, right, t, work, dtype, narrow=narrow)

    if is_long:
        # Parts of a long sum are added in the dtype that products are summed in.
        emit(identity(WORK[kind]), [], [y])
        return [converted(b, y, type.dtype, channel)]
    return [product(b, type.shape, type.dtype, channel, emit)]


def _is_filter(s: Setup, *types: DType) -> bool:
    """One feature in and out, and not many taps: the only loop that fills vectors runs along the pixels of a line."""
    if isa.current().reproducible or s.groups * s.inputs * s.outputs != 1 or len(set(types)) != 1 or not s.dims:
        return False
    taps, d = math.prod(d.taps for d in s.dims), s.dims[-1]
    enough = d.step == 1 and d.outputs >= LINE and s.pixels >= 2 * taps
    return types[0] in (dtypes.float32, dtypes.float64) and 1 <= taps <= LONG and enough


def filtered(b: Builder, s: Setup, x: View, w: View, type: ArrayType, places: Shape) -> Lazy:
    """The sum over taps of moved lines; ``places`` are the result's dimensions: batch, features, then the spatial ones.

    As an operation on elements it becomes part of what follows.
    """
    size = x.dtype.itemsize
    if s.padded or s.dims[-1].x != size:
        s, x = gathered(b, s, x, padded=True)
    shape = (s.batch, *(d.outputs for d in s.dims), *(d.taps for d in s.dims))
    start = s.x_offset - sum(d.low * d.x for d in s.dims)
    moved = (s.x_n, *(d.step * d.x for d in s.dims), *(d.dilation * d.x for d in s.dims))
    lines = shifted(x, start, shape, moved)
    taps = shifted(w, s.w_offset, shape, (0, *(0 for _ in s.dims), *(d.w for d in s.dims)))
    terms = Map(mul, (), (LazyLeaf(lines), LazyLeaf(taps)), shape, type.dtype)
    sums = LazyReduce("add", terms, tuple(range(1 + len(s.dims), len(shape))), bytes(size))
    whole = tuple((0, ((place, 1),)) for place in (places[0], *places[2:]))
    return indexed(lowered(b, sums), type.shape, whole)


def roomy(b: Builder, v: View, last: int) -> View:
    """``v``, or a copy, with memory behind it: an odd last feature is read with what follows it."""
    end = v.ref.offset + v.dtype.itemsize + sum((n - 1) * k for n, k in zip(v.shape, v.strides, strict=True) if k > 0)
    if not v.ref.moves and v.ref.buffer.kind == "temp" and v.ref.buffer.nbytes >= end + 2:
        return v
    out = channels_last(v.shape, v.dtype, last, 64)
    copy(b, v, out)
    return out


def product(b: Builder, shape: Shape, dtype: DType, channel: int, emit: Any) -> LazyProduct:
    """A value that a kernel with an epilogue computes, best with ``channel`` innermost in memory."""
    y = LazyProduct(shape, dtype, emit)
    y.equation = b.equation
    if channel != len(shape) - 1:
        y.order = (*(i for i in range(len(shape)) if i != channel), channel)
    return y


def converted(b: Builder, v: View, dtype: DType, last: int) -> View:
    """``v`` in ``dtype``; a copy has dimension ``last`` innermost."""
    if v.dtype == dtype:
        return v
    out = channels_last(v.shape, dtype, last)
    order = sorted(range(len(v.shape)), key=lambda i: -out.strides[i])
    at = transposed(v, order)
    node = ExpressionNode(convert_element_type, (("dtype", dtype),), (0,), dtype)
    strides = transposed(out, order).strides
    nest = Nest(at.shape, len(at.shape), False, (Input(v.dtype, at.strides),), (node,), (Output(1, strides),))
    b.call(nest, [v], [out])
    return out


# --- one convolution without holes ---


def one(
    b: Builder,
    s: Setup,
    x: View,
    w: View,
    t: Tail,
    kind: Kind,
    dtype: DType,
    pack: Pack | None = None,
    narrow: bool = False,
) -> None:
    """The convolution ``s`` of memory of ``x`` and ``w``; ``pack`` lays weights out, by default `weights`.

    ``narrow``: numbers of 16 bits are bytes, or differences of two.
    """
    size = x.dtype.itemsize
    # Its longer sums go in parts, those of one element alone do not: where bits are promised, all are of one chain.
    apart = isa.current().reproducible and math.prod(d.taps for d in s.dims) * s.inputs > TAPS
    if is_single(s) and not apart:
        depthwise(b, s, x, w, t, dtype)
        return
    if s.inputs == 1:
        s = replace(s, x_c=size)
    if s.outputs == 1:
        s = replace(s, w_o=size)
    if not math.prod(d.taps for d in s.dims):  # sums of nothing, for which nothing may be read
        run(b, replace(s, x_c=size), x, w, t, kind, dtype, pack or weights, narrow)
        return
    if _is_long(s) and kind != "pairs" and t.expression.is_identity and not t.more and dtype == WORK[kind]:
        long(b, s, x, w, t, kind, dtype)
        return
    if s.inputs < _SHORT and s.dims and s.dims[-1].taps > 1 and s.groups == 1 and s.dims[-1].dilation == 1:
        s, x = merged(b, s, x)
    if s.x_c != size and (s.padded or s.inputs >= _SHORT):
        s, x = gathered(b, s, x)
    run(b, s, x, w, t, kind, dtype, pack or weights, narrow)


def is_single(s: Setup) -> bool:
    """One output channel per group: vectors run along groups."""
    return s.outputs == 1 and s.groups > 1 and s.inputs > 0 and len(s.dims) + (s.inputs > 1) <= 3


def run(
    b: Builder, s: Setup, x: View, w: View, t: Tail, kind: Kind, dtype: DType, pack: Pack, narrow: bool = False
) -> None:
    """One call of the kernel; weights are packed first unless they lie as it reads them."""
    target = isa.current()
    s, w = pack(b, s, w, kind, vectors_for(kind, target, s.outputs) * lanes_for(kind, target))
    if (kind == "f32" or (kind == "pairs" and narrow)) and pays(b, s, w, kind):
        winograd(b, s, x, w, t, kind, dtype)
        return
    block = block_for(kind, target, s.outputs, s.pixels)
    w_block = block.channels * WORK[kind].itemsize
    if b.is_held(w):
        s, w, w_block = in_blocks(b, s, w, WORK[kind], block.channels)
    axes = [ConvAxis(d.size, d.outputs, d.taps, d.step, d.dilation, d.low, d.x, d.w, d.y) for d in s.dims]
    axes = [NONE] * (3 - len(axes)) + axes
    problem = ConvProblem(
        s.batch, s.groups, s.inputs, s.outputs, (axes[0], axes[1], axes[2]), s.x_n, s.x_c, s.x_group,
        s.w_c, w_block, s.w_group, s.y_n, s.y_group, s.odd,
    )  # fmt: skip
    extras, more, ins, outs = t.extras(s)
    kernel = Conv(problem, kind, block, dtype, t.expression, extras, more)
    b.call(kernel, [at(x, s.x_offset), at(w, s.w_offset), *ins], outs)


def weights(b: Builder, s: Setup, w: View, kind: Kind, channels: int) -> tuple[Setup, View]:
    """Weights with output channels innermost, in whole blocks.

    Lanes beyond the last channel are zero. Integers there may be anything; with what happens to lie there, products of
    floats would take many times as long where it is below the normal range.
    """
    size = w.dtype.itemsize
    if kind != "pairs" and s.w_o == size and s.outputs % channels == 0:
        return s, w
    taps = [d.taps for d in s.dims]
    strides = [s.w_group, *(d.w for d in s.dims), s.w_c, s.w_o]
    source = shifted(w, s.w_offset, (s.groups, *taps, s.inputs, s.outputs), strides)
    if kind != "pairs":
        out = ordered(source.shape, w.dtype, range(len(source.shape)), pad=channels)
        copy(b, source, out)
        missing = (*source.shape[:-1], -s.outputs % channels)
        fill(b, shifted(out, s.outputs * size, missing, out.strides))
    else:
        # [groups, taps, pairs, outputs, 2]: the missing half of an odd last pair is zero.
        half = -(-s.inputs // 2)
        room = ordered((s.groups, *taps, half, -(-s.outputs // channels) * channels * 2), w.dtype, range(len(taps) + 3))
        if s.inputs % 2:
            fill(b, room)
        pair = room.strides[-2]
        for parity in range(2):
            count = (s.inputs + 1 - parity) // 2
            shape = (s.groups, *taps, count, s.outputs)
            part = shifted(w, s.w_offset + parity * s.w_c, shape, [*strides[:-2], 2 * s.w_c, s.w_o])
            copy(b, part, shifted(room, parity * size, shape, [*room.strides[:-2], pair, 2 * size]))
        out = room
        s = replace(s, inputs=half, x_c=2 * size, odd=s.inputs % 2 > 0)
    dims = tuple(replace(d, w=step) for d, step in zip(s.dims, out.strides[1:-2], strict=True))
    return replace(s, dims=dims, w_group=out.strides[0], w_c=out.strides[-2], w_o=out.strides[-1], w_offset=0), out


def in_blocks(b: Builder, s: Setup, w: View, dtype: DType, channels: int) -> tuple[Setup, View, int]:
    """Packed weights with the rows of each block of output channels one after the other, and the bytes of a block.

    ``dtype`` is that of one unit of a row, a number or a pair.
    """
    row, blocks = channels * dtype.itemsize, -(-s.outputs // channels)
    taps = [d.taps for d in s.dims]
    inner = math.prod(taps) * s.inputs * row
    if s.w_c == row or not inner:
        return s, w, row
    out = ordered((s.groups, blocks, *taps, s.inputs, channels), dtype, range(len(taps) + 4))
    units = View(w.ref, w.shape, w.strides, dtype)
    steps = (s.w_group, row, *(d.w for d in s.dims), s.w_c, dtype.itemsize)
    whole, left = (blocks, 0) if dtype.kind == "f" else divmod(s.outputs, channels)
    for first, count, width in ((0, whole, channels), (whole, 1, left)):
        shape = (s.groups, count, *taps, s.inputs, width)
        begin = shifted(units, s.w_offset + first * row, shape, steps)
        copy(b, begin, shifted(out, first * inner, shape, out.strides))
    dims = tuple(replace(d, w=step) for d, step in zip(s.dims, out.strides[2:-2], strict=True))
    s = replace(s, dims=dims, w_group=out.strides[0], w_c=row, w_o=dtype.itemsize, w_offset=0)
    return s, out, inner


def gathered(b: Builder, s: Setup, x: View, padded: bool = False, keep: bool = False) -> tuple[Setup, View]:
    """A copy of the input with features innermost, or with ``keep`` in the order it has; ``padded`` with its zeros."""
    dims = list(s.dims)
    lows = [0] * len(dims)
    if padded:
        for i, d in enumerate(dims):
            lows[i] = d.low
            dims[i] = replace(d, low=0, size=(d.outputs - 1) * d.step + (d.taps - 1) * d.dilation + 1)
    shape = (s.batch, *(d.size for d in dims), s.groups, s.inputs)
    strides = (s.x_n, *(d.x for d in s.dims), s.x_group, s.x_c)
    order = sorted(range(len(shape)), key=lambda i: -abs(strides[i])) if keep else range(len(shape))
    out = ordered(shape, x.dtype, list(order), slack=64)
    # What there is of the input: in the copy from ``low`` on.
    first = [max(0, -low) for low in lows]
    count = [max(0, min(d.size, n.size - low) - a) for d, n, low, a in zip(s.dims, dims, lows, first, strict=True)]
    if any(n.size != c for n, c in zip(dims, count, strict=True)):
        fill(b, out)
    begin = s.x_offset + sum(a * d.x for a, d in zip(first, s.dims, strict=True))
    put = sum((a + low) * step for a, low, step in zip(first, lows, out.strides[1:-2], strict=True))
    inner = (s.batch, *count, s.groups, s.inputs)
    copy(b, shifted(x, begin, inner, strides), shifted(out, put, inner, out.strides))
    new = tuple(replace(d, x=step) for d, step in zip(dims, out.strides[1:-2], strict=True))
    return replace(s, dims=new, x_n=out.strides[0], x_group=out.strides[-2], x_c=out.strides[-1], x_offset=0), out


def merged(b: Builder, s: Setup, x: View) -> tuple[Setup, View]:
    """Few input features: those of all taps along the last dimension as one longer row of features."""
    size = x.dtype.itemsize
    d = s.dims[-1]
    if d.w != s.inputs * s.w_c and s.inputs > 1:
        return s, x
    if d.padded or s.x_c != size or d.x != s.inputs * size:
        s, x = gathered(b, s, x, padded=True)
        d = s.dims[-1]
    step = s.w_c if s.inputs > 1 else d.w
    row = replace(d, size=d.outputs * d.step, taps=1, low=0, w=0)
    start = s.x_offset - d.low * d.x
    return replace(s, dims=(*s.dims[:-1], row), inputs=d.taps * s.inputs, w_c=step, x_offset=start), x


def _is_long(s: Setup) -> bool:
    """Few input features and a window that is longer, as gradients of kernels have."""
    if isa.current().reproducible:
        return False  # parts of such sums are as long as their results are few
    return bool(s.dims) and s.inputs <= 2 * _SHORT and s.dims[-1].taps > max(s.inputs, _SHORT) and len(s.dims) < 3


def long(b: Builder, s: Setup, x: View, w: View, t: Tail, kind: Kind, dtype: DType) -> None:
    """A window longer than there are features: the loop runs along its last dimension, features are taps.

    The batch, which is a kernel's features where this is a gradient, is the innermost dimension of pixels. The sum is
    cut into parts that stay in the cache while all pixels pass by.
    """
    if s.padded:
        s, x = gathered(b, s, x, padded=True, keep=True)
    size = x.dtype.itemsize
    target = isa.current()
    if s.w_o != size or s.outputs % (vectors_for(kind, target, s.outputs) * lanes_for(kind, target)):
        s, w = weights(b, s, w, kind, vectors_for(kind, target, s.outputs) * lanes_for(kind, target))
    d = s.dims[-1]
    s = replace(s, x_offset=s.x_offset - d.low * d.x)
    row = SpatialDim(1 << 30, d.outputs, s.inputs, d.step * d.x, s.x_c, 0, 1, s.w_c, d.y)
    pixel = SpatialDim(s.batch * 2, s.batch, 1, 1, 1, 0, s.x_n, 0, s.y_n)
    s = replace(s, batch=1, dims=(*s.dims[:-1], row, pixel), inputs=d.taps, x_c=d.x * d.dilation, w_c=d.w, x_n=0, y_n=0)
    for i, part in enumerate(cut(s, size)):
        if not i:
            run(b, part, x, w, t, kind, dtype, weights)
            continue
        # What is there already is an operand of the next part.
        dims = tuple(replace(d, more=(d.y,)) for d in part.dims)
        part = replace(part, dims=dims, more_n=(part.y_n,), more_group=(part.y_group,), more_offset=(part.y_offset,))
        plus = Expression((dtype, dtype), (ExpressionNode(add, (), (0, 1), dtype),), (2,))
        run(b, part, x, w, replace(t, expression=plus, operands=t.outputs), kind, dtype, weights)


def cut(s: Setup, size: int) -> list[Setup]:
    """``s`` in parts of the sum along its taps, so that what a part reads of both operands stays in the cache."""
    reach = math.prod(d.outputs for d in s.dims if d.taps == 1) + s.outputs
    parts = [s]
    for i, d in enumerate(s.dims):
        inside = math.prod(e.taps for e in s.dims[i + 1 :]) * s.inputs * reach * size
        if d.taps == 1 or d.taps * inside <= _PART_BYTES:
            continue
        step = max(1, _PART_BYTES // inside)
        parts = [_taps(part, i, first, min(step, d.taps - first)) for part in parts for first in range(0, d.taps, step)]
        if inside <= _PART_BYTES:
            break
    return parts


def _taps(s: Setup, i: int, first: int, count: int) -> Setup:
    """Some of the taps along dimension ``i``."""
    d = s.dims[i]
    dims = (*s.dims[:i], replace(d, taps=count), *s.dims[i + 1 :])
    return replace(s, dims=dims, x_offset=s.x_offset + first * d.dilation * d.x, w_offset=s.w_offset + first * d.w)
