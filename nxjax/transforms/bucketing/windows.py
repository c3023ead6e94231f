"""Rules of ops with windows: convolution, window reductions and the derivative of a window maximum.

Zero padding (or whatever is neutral) behind the true end is what the op itself would have seen there. Only the padding
in *front* may depend on the length, as "SAME" with a stride does; the operand is then placed by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.ops.conv import dilated
from nxjax.trace.core import Array
from nxjax.trace.dtypes import highest, lowest
from nxjax.transforms.bucketing.interpret import bind_unmasked, expanded, rule, size_of
from nxjax.transforms.bucketing.rules import called
from nxjax.transforms.bucketing.sizes import Extent, Size, simplify
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray

Vals = PaddedArray | Sequence[PaddedArray]
Pairs = Sequence[tuple[int, int]]


def _same_padding(n: Extent, k: Extent, stride: int) -> list[Extent]:
    """What "SAME" and "SAME_LOWER" pad in front."""
    padding = ((Size.of(n) + (stride - 1)) // stride - 1) * stride + k - n
    return [simplify(padding // 2), simplify(padding - padding // 2)]


class _Axis:
    """One spatial axis: its padding in every member and what is known of it."""

    def __init__(
        self, c: Context, s: MemberStep, size: Extent, kernel: Extent, pads: Sequence[Pairs], i: int, stride: int,
        holes: int, kernel_holes: int, outs: Sequence[int],
    ) -> None:  # fmt: skip
        lows, highs = ([p[i][side] for p in pads] for side in range(2))
        full = simplify(Size.of(size) * holes - (holes - 1))
        window = simplify(Size.of(kernel) * kernel_holes - (kernel_holes - 1))
        low = c.solver.find(lows, _same_padding(full, window, stride))
        if low is None:
            raise s.refuse(
                f"the padding in front of spatial axis {i} depends on a bucketed length",
                "give explicit padding, or a length that is a multiple of the stride (multiple_of=)",
                got=lows,
            )
        high = c.solver.find(highs, _same_padding(full, window, stride))
        proposals: list[Extent] = [size, simplify((Size.of(size) + (stride - 1)) // stride)]
        if high is not None:
            proposals.append(simplify((Size.of(full) + low + high - window) // stride + 1))
        self.low = low
        self.size = size_of(c, outs, proposals, s)
        self.count = outs[0]


@rule("conv_general_dilated", "qconv", differing=("padding",))
def _conv(c: Context, s: MemberStep, x: PaddedArray, w: PaddedArray, *rest: PaddedArray) -> Vals:
    if rest and w.varying():
        return expanded(c, s, [x, w, *rest])
    p: dict[str, Any] = {"batch_group_count": 1, **s.params}
    lhs, rhs, out = p["dimension_numbers"]
    if (p["batch_group_count"] > 1 and x.varies(lhs[0])) or (p["feature_group_count"] > 1 and x.varies(lhs[1])):
        raise s.refuse("groups of an axis whose size depends on a bucketed length", "use groups of a fixed axis")
    if max(p["batch_group_count"], p["feature_group_count"]) > 1 and w.varies(rhs[0]):
        raise s.refuse("groups of an axis whose size depends on a bucketed length", "use groups of a fixed axis")
    kernel = c.mask(w, rhs[1:], 0)
    image = PaddedArray(c.mask(x, (lhs[1],), 0), x.sizes)
    shapes = s.shapes()
    sizes: list[Extent] = [0] * x.ndim
    sizes[out[0]] = x.sizes[lhs[0]] if p["batch_group_count"] == 1 else shapes[0][out[0]]
    sizes[out[1]] = w.sizes[rhs[0]]
    padding, dilation = list(p["padding"]), list(p["lhs_dilation"])
    for i, (a, k, o) in enumerate(zip(lhs[2:], rhs[2:], out[2:], strict=True)):
        stride, holes, spread = p["window_strides"][i], p["lhs_dilation"][i], p["rhs_dilation"][i]
        outs = [shape[o] for shape in shapes]
        axis = _Axis(c, s, x.sizes[a], w.sizes[k], s.each("padding"), i, stride, holes, spread, outs)
        sizes[o] = axis.size
        if isinstance(axis.low, int):
            image = PaddedArray(c.mask(image, (a,), 0), image.sizes)
            continue
        count = (axis.count - 1) * stride + dilated(w.shape[k], spread)
        placed = c.placed(image, a, axis.low, count, 0, holes - 1)
        image = PaddedArray(placed, (*image.sizes[:a], count, *image.sizes[a + 1 :]))
        padding[i], dilation[i] = (0, 0), 1
    y = called(s, [image.array, kernel, *(v.array for v in rest)], padding=tuple(padding), lhs_dilation=tuple(dilation))
    return PaddedArray(y, tuple(sizes))


def _window_axes(c: Context, s: MemberStep, x: PaddedArray, shapes: Sequence[Sequence[int]]) -> list[_Axis]:
    """Every axis of a window reduction of ``x`` whose results have these shapes."""
    p = s.params
    found: list[_Axis] = []
    for d in range(x.ndim):
        windows = [w[d] for w in s.each("window_dimensions")]
        strides = [w[d] for w in s.each("window_strides")]
        if (len(set(windows)) > 1 or len(set(strides)) > 1) and any(shape[d] != 1 for shape in shapes):
            raise s.refuse(
                "window or stride depends on a bucketed length",
                "use a window of fixed size, or a reduction of the axis",
            )
        window = size_of(c, windows, [x.sizes[d]], s)
        outs = [shape[d] for shape in shapes]
        pads = s.each("padding")
        found.append(
            _Axis(c, s, x.sizes[d], window, pads, d, strides[0], p["base_dilation"][d], p["window_dilation"][d], outs)
        )
    return found


def _placed(
    c: Context, s: MemberStep, x: PaddedArray, axes: Sequence[_Axis], fill: Any
) -> tuple[Array, dict[str, Any]]:
    """The operand with nothing but ``fill`` behind its end, and the parameters that then hold."""
    p = s.params
    padding, dilation = list(p["padding"]), list(p["base_dilation"])
    for d, axis in enumerate(axes):
        if isinstance(axis.low, int):
            x = PaddedArray(c.mask(x, (d,), fill), x.sizes)
            continue
        window = dilated(p["window_dimensions"][d], p["window_dilation"][d])
        count = (axis.count - 1) * p["window_strides"][d] + window
        placed = c.placed(x, d, axis.low, count, fill, dilation[d] - 1)
        x = PaddedArray(placed, (*x.sizes[:d], count, *x.sizes[d + 1 :]))
        padding[d], dilation[d] = (0, 0), 1
    return x.array, {"padding": tuple(padding), "base_dilation": tuple(dilation)}


_WINDOW_PARAMS = ("padding", "window_dimensions", "window_strides")


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", differing=_WINDOW_PARAMS)
def _reduce_window(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    axes = _window_axes(c, s, x, s.shapes())
    array, changed = _placed(c, s, x, axes, s.op.identity(x.array.dtype))  # type: ignore[attr-defined]
    return PaddedArray(called(s, [array], **changed), tuple(a.size for a in axes))


def _worst(s: MemberStep, x: PaddedArray) -> Any:
    return (lowest if s.params["select_prim"] == "ge" else highest)(x.array.dtype)


@rule("select_and_gather_add", differing=_WINDOW_PARAMS)
def _select_and_gather(c: Context, s: MemberStep, t: PaddedArray, x: PaddedArray) -> Vals:
    axes = _window_axes(c, s, x, s.shapes())
    array, changed = _placed(c, s, x, axes, _worst(s, x))
    tangent, _ = _placed(c, s, t, axes, 0)
    return PaddedArray(called(s, [tangent, array], **changed), tuple(a.size for a in axes))


@rule("select_and_scatter_add", differing=_WINDOW_PARAMS)
def _select_and_scatter(c: Context, s: MemberStep, source: PaddedArray, x: PaddedArray) -> Vals:
    if not x.varying():
        return bind_unmasked(s, [source, x], [x.sizes])
    axes = _window_axes(c, s, x, [e.inputs[0].type.shape for e in s.equations])
    array, changed = _placed(c, s, x, axes, _worst(s, x))
    y: Array = called(s, [c.mask(source, range(source.ndim), 0), array], **changed)
    for d, axis in enumerate(axes):
        if isinstance(axis.low, int):
            continue
        if s.params["base_dilation"][d] != 1:
            raise s.refuse("a dilated operand whose padding depends on a bucketed length", "give explicit padding")
        here = PaddedArray(y, tuple(y.shape))
        y = c.placed(here, d, simplify(-Size.of(axis.low)), x.shape[d], 0)
    return PaddedArray(y, x.sizes)
