"""ONNX emitters of data movement: shapes, slices, padding, gathering, resizing. See `onnx_ops`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.onnx_build import NCHW, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_parts import Emit, element, given, operand, pads
from nxjax.lower.npu.graph import Node
from nxjax.trace import dtypes


def reshape(b: OnnxBuilder, n: Node) -> None:
    """A layout that moves only dimensions of size 1 has the same memory order: no transpose needed there."""
    x = given(n, 0)
    layout = identity(len(x.shape))
    if not x.constant:
        ordered = [k for k in b.layouts(x) if (long := [a for a in k if x.shape[a] != 1]) == sorted(long)]
        layout = ordered[0] if ordered else layout
    b.result(n.output, b.op("Reshape", [b.real(x, layout), b.constant(n.output.shape)]))


def transpose(b: OnnxBuilder, n: Node) -> None:
    """Nothing is written: the result is held where the operand is, its dimensions under other names."""
    x, y = given(n, 0), n.output
    perm = [int(p) for p in n.attrs["permutation"]]
    if x.constant or b.grid(x) != b.grid(y):
        return b.result(y, b.op("Transpose", [b.real(x)], perm=perm))
    for layout in b.layouts(x):
        b.hold(y, b.stored(x, layout), tuple(perm.index(a) for a in layout))
    return None


def concatenation(b: OnnxBuilder, n: Node) -> None:
    rank = len(n.output.shape)
    layout = b.agree(n.operands, rank)
    axis = layout.index(int(n.attrs["axis"]) % rank)
    b.result(n.output, b.op("Concat", [b.real(t, layout) for t in n.operands], axis=axis), layout)


def split(b: OnnxBuilder, n: Node) -> None:
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    axis = layout.index(int(n.attrs["axis"]) % len(x.shape))
    sizes = [int(size) for size in n.attrs["sizes"]]
    if b.opset >= 13:
        values = b.ops("Split", [b.real(x, layout), b.constant(sizes)], len(n.outputs), axis=axis)
    else:
        values = b.ops("Split", [b.real(x, layout)], len(n.outputs), axis=axis, split=sizes)
    for t, value in zip(n.outputs, values, strict=True):
        b.result(t, value, layout)


def _slices(b: OnnxBuilder, n: Node, begin: Any, end: Any, steps: Any) -> None:
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    rows = [b.constant([int(part[a]) for a in layout]) for part in (begin, end, identity(len(layout)), steps)]
    rows[2] = b.constant(list(identity(len(layout))))
    b.result(n.output, b.op("Slice", [b.real(x, layout), *rows]), layout)


def slice_(b: OnnxBuilder, n: Node) -> None:
    begin = n.attrs["begin"]
    end = [p + s for p, s in zip(begin, n.attrs["size"], strict=True)]
    _slices(b, n, begin, end, [1] * len(end))


def strided_slice(b: OnnxBuilder, n: Node) -> None:
    _slices(b, n, n.attrs["begin"], n.attrs["end"], n.attrs["strides"])


def reverse(b: OnnxBuilder, n: Node) -> None:
    shape = given(n, 0).shape
    turned = {int(a) % len(shape) for a in n.attrs["axes"]}
    begin = [s - 1 if a in turned else 0 for a, s in enumerate(shape)]
    # Going down, the end lies before the first element; ONNX says so with a number below -size.
    end = [-s - 1 if a in turned else s for a, s in enumerate(shape)]
    _slices(b, n, begin, end, [-1 if a in turned else 1 for a in range(len(shape))])


def pad(b: OnnxBuilder, n: Node) -> None:
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    padding = [n.attrs["padding"][a] for a in layout]
    value = n.attrs.get("value") or 0
    dtype = dtypes.float32 if x.grid is not None else x.dtype
    if b.opset < 11:
        value = b.op("Pad", [b.real(x, layout)], pads=pads(padding), value=float(value))
        return b.result(n.output, value, layout)
    inputs = [b.real(x, layout), b.constant(pads(padding)), b.constant(value, dtype, "fill")]
    return b.result(n.output, b.op("Pad", inputs), layout)


def broadcast_to(b: OnnxBuilder, n: Node) -> None:
    x, shape = given(n, 0), n.output.shape
    layout = b.agree([x], len(shape))
    b.result(n.output, b.op("Expand", [operand(b, x, layout), b.constant([shape[a] for a in layout])]), layout)


def tile(b: OnnxBuilder, n: Node) -> None:
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    counts = b.constant([int(n.attrs["multiples"][a]) for a in layout])
    b.result(n.output, b.op("Tile", [b.real(x, layout), counts]), layout)


def gather(b: OnnxBuilder, n: Node) -> None:
    x, indices = given(n, 0), given(n, 1)
    b.result(n.output, b.op("Gather", [b.real(x), b.real(indices)], axis=int(n.attrs["axis"]) % len(x.shape)))


def one_hot(b: OnnxBuilder, n: Node) -> None:
    """A comparison with 0, 1, ...: indices outside give zeros, which OneHot would wrap around."""
    x, y = given(n, 0), n.output
    axis = int(n.attrs["axis"]) % len(y.shape)
    shape = [1 if i == axis else s for i, s in enumerate(y.shape)]
    places = [y.shape[axis] if i == axis else 1 for i in range(len(y.shape))]
    at = b.op("Reshape", [b.real(x), b.constant(shape)], "column")
    same = b.op("Equal", [at, b.constant(np.arange(y.shape[axis]).reshape(places), x.dtype, "places")], "equal")
    real = dtypes.float32 if y.grid is not None else y.dtype
    b.result(y, b.op("Cast", [same], to=element(b, real)))


def resize(mode: str) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x, y = given(n, 0), n.output
        align, half = bool(n.attrs.get("align_corners")), bool(n.attrs.get("half_pixel_centers"))
        if b.opset < 11:
            if align or half:
                raise b.refuse("resizing with aligned corners or half pixels before opset 11")
            scales = b.constant([y.shape[a] / x.shape[a] for a in NCHW], np.float32, "scales")
            return b.result(y, b.op("Resize", [b.real(x, NCHW), scales], mode=mode), NCHW)
        attrs: dict[str, Any] = {
            "mode": mode,
            "coordinate_transformation_mode": "align_corners" if align else "half_pixel" if half else "asymmetric",
        }
        if mode == "nearest":
            attrs["nearest_mode"] = "round_prefer_ceil" if align or half else "floor"
        sizes = b.constant([y.shape[a] for a in NCHW])
        return b.result(y, b.op("Resize", [b.real(x, NCHW), "", "", sizes], **attrs), NCHW)

    return emit


MOVES: Final[dict[str, Emit]] = {
    "reshape": reshape,
    "transpose": transpose,
    "concatenation": concatenation,
    "split": split,
    "slice": slice_,
    "strided_slice": strided_slice,
    "pad": pad,
    "broadcast_to": broadcast_to,
    "tile": tile,
    "reverse": reverse,
    "gather": gather,
    "one_hot": one_hot,
    "resize_bilinear": resize("linear"),
    "resize_nearest": resize("nearest"),
}
