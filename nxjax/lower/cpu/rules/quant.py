"""Quantized ops by exact integer kernels; see `rules.stored` for what lies between them.

What has no rule (the 16-bit grids, resizing) is run as the ops that it is made of, which give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nxjax.kernels.cpu import ops_quant as steps
from nxjax.kernels.cpu.conv_blocks import Kind
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.lower.cpu.builder import Builder, NoKernel, View, rule
from nxjax.lower.cpu.layout import copy, ordered, shifted
from nxjax.lower.cpu.lazy import Lazy, LazyLeaf
from nxjax.lower.cpu.rules import conv_tiles
from nxjax.lower.cpu.rules.conv import is_single, one, product, roomy
from nxjax.lower.cpu.rules.conv_shape import Setup, setup, simplified
from nxjax.lower.cpu.rules.conv_tail import tail, unit
from nxjax.lower.cpu.rules.pool import depthwise, pooled
from nxjax.lower.cpu.rules.stored import integers, need_bytes, step, values
from nxjax.lower.cpu.tape import Buffer, Ref
from nxjax.lower.cpu.view import dense_strides
from nxjax.ops.fake_quantize import symmetric_limit
from nxjax.ops.fixed.elementwise import requantize_factor
from nxjax.ops.window import reduce_window_sum
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape

# --- elementwise ---


@rule("quantize_dequantize")
def quantize_dequantize(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    grid = e.params["grid"]
    need_bytes(grid)
    return [values(b, integers(b, x, grid), grid)]


@rule("requantize")
def requantize(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    p = e.params
    x_grid, out = p["x_grid"], p["y_grid"]
    need_bytes(x_grid, out)
    factor = float(requantize_factor(x_grid, out, p["lo"], p["hi"]))
    q = integers(b, x, x_grid)
    given = {"factor": factor, "out": out, "lo": p["lo"], "hi": p["hi"], "rounding": p["rounding"]}
    return [values(b, step(b, steps.moved, [q], q.shape, dtypes.int16, **given), out)]


# The step on integers, and its parameters.
_BINARY: Final[dict[str, tuple[steps.StoredStep, dict[str, Any]]]] = {
    "qadd": (steps.summed, {"sign": 1}),
    "qsub": (steps.summed, {"sign": -1}),
    "qmul": (steps.multiplied, {}),
}


@rule(*_BINARY)
def binary(b: Builder, e: Equation, x: Any, y: Any) -> Sequence[Any]:
    p = dict(e.params)
    x_grid, y_grid, out = p["x_grid"], p["y_grid"], p.pop("out_grid")
    need_bytes(x_grid, y_grid, out)
    args = [integers(b, x, x_grid), integers(b, y, y_grid)]
    what, more = _BINARY[e.op.name]
    return [values(b, step(b, what, args, args[0].shape, dtypes.int16, out=out, **p, **more), out)]


# --- windows ---


@rule("qavgpool")
def qavgpool(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type, p = e.outputs[0].type, e.params
    grid = p["grid"]
    need_bytes(grid)
    if not type.size:
        return [b.new(type)]
    ones = (1,) * len(type.shape)
    windows = {k: p[k] for k in ("window_dimensions", "window_strides", "padding")}
    windows |= {"base_dilation": ones, "window_dilation": ones}
    flat = tuple(
        n if k != 1 or s != 1 or pad != (0, 0) else 1
        for n, k, s, pad in zip(e.inputs[0].type.shape, windows["window_dimensions"], windows["window_strides"],
                                windows["padding"], strict=True)
    )  # fmt: skip
    counts = b.const(reduce_window_sum.eval(np.ones(flat, np.int32), **windows))
    count = View(
        counts.ref, type.shape, tuple(0 if n == 1 else s for n, s in zip(counts.shape, counts.strides, strict=True)),
        counts.dtype,
    )  # fmt: skip
    node: Any = ExpressionNode(_op(steps.averaged), (("grid", grid),), (0, 1), dtypes.int16)
    expression = Expression((dtypes.int32, dtypes.int32), (node,), (2,))
    y = pooled(b, b.view(integers(b, x, grid)), type.shape, "sum", 0, dtypes.int32, windows, expression, (count,))
    return [values(b, LazyLeaf(y), grid)]


def _op(what: steps.StoredStep) -> Any:
    return what


# --- convolutions ---


@rule("qconv")
def qconv(b: Builder, e: Equation, x: Any, w: Any, w_scale: Any, bias: Any) -> Sequence[Any]:
    type, p = e.outputs[0].type, e.params
    x_grid, y_grid, numbers = p["x_grid"], p["y_grid"], p["dimension_numbers"]
    need_bytes(x_grid, y_grid)
    if p["w_dtype"] not in (dtypes.int8, dtypes.int4) or len(numbers.lhs_spec) > 5 or not type.size:
        raise NoKernel("a convolution of other weights than bytes, or of nothing")
    if 0 in e.inputs[0].type.shape or 0 in e.inputs[1].type.shape:
        raise NoKernel("a convolution of nothing")
    channel = numbers.out_spec[1]
    right, scale = b.view(w), b.view(w_scale)
    row = View(scale.ref, (type.shape[channel],), (_stride(scale, numbers.rhs_spec[0]),), scale.dtype)
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count")
    given = {k: p[k] for k in names}
    zero = conv_tiles.byte_for(x_grid.zero_point - (128 if x_grid.dtype == dtypes.uint8 else 0))
    q = integers(b, x, x_grid)
    # Only sizes are known before an operand is memory.
    outline = lambda shape: View(Ref(Buffer(0, "temp")), shape, dense_strides(shape, dtypes.int16), dtypes.int16)
    shapes = [simplified(s) for s in setup(outline(q.shape), right, outline(type.shape), tuple(numbers), **given)]
    if any(is_single(s) and s.inputs > 1 for s in shapes):
        raise NoKernel("several inputs of one output")
    if len(shapes) == 1 and _is_plain(p) and conv_tiles.pays(shapes[0]):
        with b.without(x):
            left = _padded_bytes(b, q, p, zero)
        given["padding"] = ((0, 0),) * len(p["padding"])
    else:
        left = unit(b, b.view(q), numbers.lhs_spec[1])
        by_pairs = any(not is_single(s) and not conv_tiles.pays(s) for s in shapes)
        if by_pairs and e.inputs[1].type.shape[numbers.rhs_spec[1]] % 2:
            left = roomy(b, left, numbers.lhs_spec[1])
    last = int(symmetric_limit(p["w_dtype"]))
    pack = _Pack(row, last)

    # What differs from layer to layer is read, so that all of them are one piece of machine code.
    limits = b.const(np.array([y_grid.zero_point, p["lo"], p["hi"]], np.int32))
    none = (0,) * len(type.shape)
    along = tuple(4 if i == channel else 0 for i in range(len(type.shape)))
    repeated = [shifted(r, 0, type.shape, along) for r in _rows(b, b.view(bias), row, p)]
    repeated += [shifted(limits, 4 * i, type.shape, none) for i in range(3)]

    def emit(expression: Expression, operands: Sequence[View], outputs: Sequence[View]) -> None:
        whole = _after_rescale(expression, len(repeated), p["rounding"])
        with tail(b, whole, [*operands, *repeated], outputs, channel) as t:
            for s in setup(left, right, t.outputs[0], tuple(numbers), **given, more=t.more):
                s = simplified(s)
                if is_single(s):
                    s, singles = pack.single(b, s, right)
                    depthwise(b, s, left, singles, t, dtypes.int32)
                elif left.dtype == dtypes.int8 or conv_tiles.pays(s):
                    image = conv_tiles.lying(s, left) if left.dtype == dtypes.int8 else _copied(b, s, left, zero)
                    weights = conv_tiles.StoredWeights(right, _dense_row(b, row), last)
                    conv_tiles.tiles(b, s, image, weights, t, dtypes.int32, zero)
                else:
                    one(b, s, left, right, t, "pairs", dtypes.int32, pack, narrow=True)

    return [values(b, product(b, type.shape, dtypes.int16, channel, emit), y_grid)]


def _after_rescale(expression: Expression, rows: int, rounding: str) -> Expression:
    """``expression`` of a rescaled sum: of the sum, its further inputs, and ``rows`` inputs of the step before it."""
    old, count = len(expression.inputs), len(expression.inputs) + rows
    place = lambda i: count if i == 0 else i if i < old else i + rows + 1
    args = (0, *range(old, count))
    nodes: list[Any] = [ExpressionNode(_op(steps.rescaled), (("rounding", rounding),), args, dtypes.int16)]
    for node in expression.nodes:
        moved = isinstance(node, ExpressionNode)
        nodes.append(replace(node, args=tuple(map(place, node.args))) if moved else node)
    inputs = (dtypes.int32, *expression.inputs[1:], *(dtypes.int32,) * rows)
    return Expression(inputs, tuple(nodes), tuple(map(place, expression.outputs)))


def _is_plain(p: Mapping[str, Any]) -> bool:
    """One group, no steps, nothing cut off."""
    steps = (*p["window_strides"], *p["lhs_dilation"], p["feature_group_count"])
    return all(n == 1 for n in steps) and all(n >= 0 for pad in p["padding"] for n in pad)


def _padded_bytes(b: Builder, q: Lazy, p: Mapping[str, Any], zero: int) -> View:
    """Integers as the matrix unit reads them, computed where they are wanted, with padding around them."""
    batch, feature, *spatial = p["dimension_numbers"].lhs_spec
    sizes = list(q.shape)
    for d, pad in zip(spatial, p["padding"], strict=True):
        sizes[d] += sum(pad)
    image = ordered(tuple(sizes), dtypes.int8, (batch, *spatial, feature), conv_tiles.slack(q.shape[feature]))
    if tuple(sizes) != q.shape:
        conv_tiles.blank(b, image, zero)
    begin = sum(pad[0] * image.strides[d] for d, pad in zip(spatial, p["padding"], strict=True))
    target = shifted(image, begin, q.shape, image.strides)
    b.write(step(b, steps.in_bytes, [q], q.shape, dtypes.int8, zero=zero), target, ready=True)
    return image


def _copied(b: Builder, s: Setup, x: View, zero: int) -> conv_tiles.Image:
    def to_bytes(b: Builder, source: View, target: View) -> None:
        bytes_ = step(b, steps.in_bytes, [LazyLeaf(source)], source.shape, dtypes.int8, zero=zero)
        b.write(bytes_, target, ready=True)

    return conv_tiles.copied(b, s, x, zero, to_bytes)


def _dense_row(b: Builder, row: View) -> View:
    if row.strides == (row.dtype.itemsize,):
        return row
    dense = ordered(row.shape, row.dtype, (0,))
    copy(b, row, dense)
    return dense


def _stride(v: View, dim: int) -> int:
    return v.strides[dim] if v.shape[dim] > 1 else 0


def _rows(b: Builder, bias: View, scale: View, p: Any) -> list[View]:
    """Per output channel: the stored bias, the multiplier, and its shift as `rescaled` takes it."""
    scales = b.const(np.array([p["x_grid"].scale, p["y_grid"].scale], np.float32))
    n = scale.shape[0]
    rounding = (("rounding", p["rounding"]),)
    nodes: list[Any] = [
        ExpressionNode(_op(steps.bias), (), (0, 1, 2), dtypes.int32),
        ExpressionNode(_op(steps.mantissa), rounding, (1, 2, 3), dtypes.int32),
        ExpressionNode(_op(steps.exponent), rounding, (1, 2, 3), dtypes.int32),
    ]
    found = (4, 5, 6)
    if p["rounding"] == "double":
        nodes += [
            ExpressionNode(_op(v), (), (i,), dtypes.int32)
            for v, i in ((steps.left, 6), (steps.right, 6), (steps.cut, 8))
        ]
        found = (4, 5, 7, 8, 9)
    outs = [ordered((n,), dtypes.int32, (0,), 64) for _ in found]
    one_ = Input(scales.dtype, (0,))
    inputs = (Input(bias.dtype, bias.strides), Input(scale.dtype, scale.strides), one_, one_)
    nest = Nest((n,), 1, False, inputs, tuple(nodes), tuple(Output(i, (4,)) for i in found))
    b.call(nest, [bias, scale, scales, shifted(scales, 4, (1,), (4,))], outs)
    return outs


class _Pack:
    """Lays float weights out as integers for the kernels; ``scale`` is a view of one number per output channel."""

    def __init__(self, scale: View, last: int) -> None:
        self.scale = scale
        self.last = (("last", last),)

    def __call__(self, b: Builder, s: Setup, w: View, kind: Kind, channels: int) -> tuple[Setup, View]:
        """[groups, taps..., pairs of inputs, outputs in whole blocks]: both numbers of a pair in one int32."""
        taps = [d.taps for d in s.dims]
        half = -(-s.inputs // 2)
        s, w = _outputs_last(b, s, w)
        out = ordered((s.groups, *taps, half, s.outputs), dtypes.int32, range(len(taps) + 3), pad=channels)
        strides = [s.w_group, *(d.w for d in s.dims), 2 * s.w_c, s.w_o]
        step = self.scale.strides[0]
        scales = (s.outputs * step, *(0 for _ in taps), 0, step)
        for first, count, both in ((0, s.inputs // 2, True), (s.inputs // 2, s.inputs % 2, False)):
            if not count:
                continue
            sizes = (s.groups, *taps, count, s.outputs)
            start = s.w_offset + first * 2 * s.w_c
            ins = [shifted(w, start, sizes, strides)]
            if both:
                ins.append(shifted(w, start + s.w_c, sizes, strides))
            target = shifted(out, first * out.strides[-2], sizes, out.strides)
            self._call(b, steps.pair if both else steps.single, sizes, ins, scales, target)
        dims = tuple(replace(d, w=k) for d, k in zip(s.dims, out.strides[1:-2], strict=True))
        s = replace(s, inputs=half, odd=s.inputs % 2 > 0, x_c=4, dims=dims)
        s = replace(s, w_group=out.strides[0], w_c=out.strides[-2], w_o=4, w_offset=0)
        return s, out

    def single(self, b: Builder, s: Setup, w: View) -> tuple[Setup, View]:
        """[pairs of taps, groups] for a depthwise convolution: both numbers of a pair in one int32."""
        shape = (*(d.taps for d in s.dims), s.groups)
        taps, size = math.prod(shape[:-1]), w.dtype.itemsize
        source = shifted(w, s.w_offset, shape, [*(d.w for d in s.dims), s.w_group])
        if source.strides != dense_strides(shape, w.dtype):
            dense = ordered(shape, w.dtype, range(len(shape)))
            copy(b, source, dense)
            source = dense
        step = s.groups * size
        out = ordered((-(-taps // 2), s.groups), dtypes.int32, range(2))
        for first, count, both in ((0, taps // 2, True), (taps // 2, taps % 2, False)):
            if not count:
                continue
            at = [2 * first * step, (2 * first + 1) * step]
            ins = [shifted(source, k, (count, s.groups), (2 * step, size)) for k in at[: 1 + both]]
            target = shifted(out, first * out.strides[0], (count, s.groups), out.strides)
            scales = (0, self.scale.strides[0])
            self._call(b, steps.pair if both else steps.single, target.shape, ins, scales, target)
        return replace(s, w_c=out.strides[0], w_group=4, w_offset=0), out

    def _call(
        self, b: Builder, what: steps.StoredStep, sizes: Shape, ins: Sequence[View], scales: Sequence[int], out: View
    ) -> None:
        inputs = [Input(v.dtype, v.strides) for v in ins] + [Input(self.scale.dtype, tuple(scales))]
        node: Any = ExpressionNode(_op(what), self.last, tuple(range(len(inputs))), dtypes.int32)
        nest = Nest(tuple(sizes), len(sizes), False, tuple(inputs), (node,), (Output(len(inputs), out.strides),))
        b.call(nest, [*ins, self.scale], [out])


def _outputs_last(b: Builder, s: Setup, w: View) -> tuple[Setup, View]:
    """Weights with output channels adjacent."""
    if s.w_o == w.dtype.itemsize:
        return s, w
    shape = (s.groups, *(d.taps for d in s.dims), s.inputs, s.outputs)
    out = ordered(shape, w.dtype, range(len(shape)))
    copy(b, shifted(w, s.w_offset, shape, [s.w_group, *(d.w for d in s.dims), s.w_c, s.w_o]), out)
    dims = tuple(replace(d, w=k) for d, k in zip(s.dims, out.strides[1:-2], strict=True))
    return replace(s, dims=dims, w_group=out.strides[0], w_c=out.strides[-2], w_o=4, w_offset=0), out
