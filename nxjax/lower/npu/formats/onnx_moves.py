"""ONNX operators of data movement: shapes, slices, padding, gathering, resizing. See `onnx_ops`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.onnx_build import NCHW, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_parts import Emit, OnnxRow, element, operand, pads
from nxjax.lower.npu.formats.onnx_reader import LayoutView, OnnxReader, invalid, name_at, numbers, own_layout, refuse
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.trace import dtypes


def reshape(b: OnnxBuilder, n: Node) -> None:
    """A layout that moves only dimensions of size 1 has the same memory order: no transpose needed there."""
    if n.output in b.blocks:
        return
    x = n.operand()
    layout = identity(len(x.shape))
    if not x.constant:
        ordered = [k for k in b.layouts(x) if (long := [a for a in k if x.shape[a] != 1]) == sorted(long)]
        layout = ordered[0] if ordered else layout
    b.result(n.output, b.op("Reshape", [b.real(x, layout), b.constant(n.output.shape)]))


def read_reshape(r: OnnxReader, n: Any) -> None:
    out, view = n.output[0], r.view(n.input[0])
    shape = r.shape(out)
    layout = identity(len(r.shape(n.input[0])))
    if view is not None and view.tensor.data is not None and view.tensor.grid is not None:
        return r.known(view.tensor, shape, out, identity(len(shape)))
    if view is not None:
        # Moving dimensions of size 1 about moves no number.
        long = [a for a in view.layout if view.tensor.shape[a] != 1]
        layout = view.layout if long == sorted(long) else layout
    r.emit("reshape", [(n.input[0], layout)], [out], identity(len(shape)), {"shape": shape})


def transpose(b: OnnxBuilder, n: Node) -> None:
    """Nothing is written: the result is held where the operand is, its dimensions under other names."""
    x, y = n.operand(), n.output
    perm = n.attrs["permutation"]
    if x.constant or b.grid(x) != b.grid(y):
        return b.result(y, b.op("Transpose", [b.real(x)], perm=perm))
    for layout in b.layouts(x):
        b.hold(y, b.stored(x, layout), tuple(perm.index(a) for a in layout))
    return None


def read_transpose(r: OnnxReader, n: Any) -> None:
    view, rank = r.view(n.input[0]), len(r.shape(n.input[0]))
    perm = [int(p) for p in r.attributes(n).get("perm", range(rank)[::-1])]
    if sorted(perm) != list(range(rank)):
        raise invalid("a permutation that is none", n.name)
    if view is None or view.tensor.constant:
        r.emit("transpose", [(n.input[0], None)], [n.output[0]], identity(rank), {"permutation": tuple(perm)})
        return
    r.views[n.output[0]] = LayoutView(view.tensor, tuple(view.layout[p] for p in perm), view.stored)


def concatenation(b: OnnxBuilder, n: Node) -> None:
    rank = len(n.output.shape)
    layout = b.agree(n.operands, rank)
    axis = layout.index(n.attrs["axis"])
    b.result(n.output, b.op("Concat", [b.real(t, layout) for t in n.operands], axis=axis), layout)


def read_concatenation(r: OnnxReader, n: Any) -> None:
    rank = len(r.shape(n.output[0]))
    layout = r.layout(n.input, rank)
    axis = layout[int(r.attributes(n)["axis"]) % rank]
    r.emit("concatenation", [(name, layout) for name in n.input], [n.output[0]], layout, {"axis": axis})


def split(b: OnnxBuilder, n: Node) -> None:
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    axis = layout.index(n.attrs["axis"])
    sizes = list(n.attrs["sizes"])
    if b.opset >= 13:
        values = b.ops("Split", [b.real(x, layout), b.constant(sizes)], len(n.outputs), axis=axis)
    else:
        values = b.ops("Split", [b.real(x, layout)], len(n.outputs), axis=axis, split=sizes)
    for t, value in zip(n.outputs, values, strict=True):
        b.result(t, value, layout)


def read_split(r: OnnxReader, n: Any) -> None:
    layout = own_layout(r, n.input[0])
    axis = int(r.attributes(n).get("axis", 0)) % len(layout)
    sizes = tuple(r.shape(o)[axis] for o in n.output)
    r.emit("split", [(n.input[0], layout)], list(n.output), layout, {"axis": layout[axis], "sizes": sizes})


def _slices(b: OnnxBuilder, n: Node, begin: Any, end: Any, steps: Any) -> None:
    x = n.operand()
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
    shape = n.operand().shape
    turned = set(n.attrs["axes"])
    begin = [s - 1 if a in turned else 0 for a, s in enumerate(shape)]
    # Going down, the end lies before the first element; ONNX says so with a number below -size.
    end = [-s - 1 if a in turned else s for a, s in enumerate(shape)]
    _slices(b, n, begin, end, [-1 if a in turned else 1 for a in range(len(shape))])


def read_slices(r: OnnxReader, n: Any) -> None:
    shape, layout = r.shape(n.input[0]), own_layout(r, n.input[0])
    begin, end = numbers(r, n, 1, "starts"), numbers(r, n, 2, "ends")
    if begin is None or end is None:
        raise invalid("a slice without a start or an end", n.name)
    axes = numbers(r, n, 3, "axes") or list(range(len(begin)))
    steps = numbers(r, n, 4) or [1] * len(begin)
    rows = [[0, size, 1] for size in shape]
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        size = shape[axis]
        if step == 0:
            raise invalid("a slice with step 0", n.name)
        rows[axis % len(shape)] = list(slice(first, last, step).indices(size))
    turned = tuple(sorted(layout[j] for j, (_, _, step) in enumerate(rows) if step < 0))
    if turned:
        plain = all(row in ([0, s, 1], [s - 1, -1, -1]) for row, s in zip(rows, shape, strict=True))
        if not plain:
            raise refuse(n, "that reverses and cuts at once")
        r.emit("reverse", [(n.input[0], layout)], [n.output[0]], layout, {"axes": turned})
        return
    ordered = [rows[layout.index(i)] for i in range(len(shape))]
    first, last, step = (tuple(row[k] for row in ordered) for k in range(3))
    if set(step) <= {1}:
        size = tuple(max(0, b - a) for a, b in zip(first, last, strict=True))
        r.emit("slice", [(n.input[0], layout)], [n.output[0]], layout, {"begin": first, "size": size})
        return
    attrs = {"begin": first, "end": last, "strides": step}
    r.emit("strided_slice", [(n.input[0], layout)], [n.output[0]], layout, attrs)


def pad(b: OnnxBuilder, n: Node) -> None:
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    padding = [n.attrs["padding"][a] for a in layout]
    value = n.attrs["value"] or 0
    dtype = dtypes.float32 if x.grid is not None else x.dtype
    if b.opset < 11:
        value = b.op("Pad", [b.real(x, layout)], pads=pads(padding), value=float(value))
        return b.result(n.output, value, layout)
    inputs = [b.real(x, layout), b.constant(pads(padding)), b.constant(value, dtype, "fill")]
    return b.result(n.output, b.op("Pad", inputs), layout)


def read_pad(r: OnnxReader, n: Any) -> None:
    rank, fill = len(r.shape(n.input[0])), name_at(n, 2)
    pads = numbers(r, n, 1, "pads")
    if r.attributes(n).get("mode", b"constant") != b"constant" or name_at(n, 3) or pads is None:
        raise refuse(n, "that repeats, or names axes")
    if len(pads) != 2 * rank:
        raise invalid("pads of another number than two per dimension", n.name)
    layout = own_layout(r, n.input[0])
    places = [layout.index(i) for i in range(rank)]
    # Before opset 11 an attribute.
    value = float(r.constant(fill).reshape(-1)[0]) if fill else float(r.attributes(n).get("value", 0.0))
    attrs = {"padding": tuple((pads[j], pads[rank + j]) for j in places), "value": value}
    r.emit("pad", [(n.input[0], layout)], [n.output[0]], layout, attrs)


def broadcast_to(b: OnnxBuilder, n: Node) -> None:
    x, shape = n.operand(), n.output.shape
    layout = b.agree([x], len(shape))
    b.result(n.output, b.op("Expand", [operand(b, x, layout), b.constant([shape[a] for a in layout])]), layout)


def read_expand(r: OnnxReader, n: Any) -> None:
    shape = r.shape(n.output[0])
    full = len(r.shape(n.input[0])) == len(shape)
    layout = own_layout(r, n.input[0]) if full else identity(len(shape))
    attrs = {"shape": tuple(shape[layout.index(i)] for i in range(len(shape)))}
    r.emit("broadcast_to", [(n.input[0], layout if full else None)], [n.output[0]], layout, attrs)


def tile(b: OnnxBuilder, n: Node) -> None:
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    counts = b.constant([n.attrs["multiples"][a] for a in layout])
    b.result(n.output, b.op("Tile", [b.real(x, layout), counts]), layout)


def read_tile(r: OnnxReader, n: Any) -> None:
    layout, counts = own_layout(r, n.input[0]), numbers(r, n, 1) or []
    attrs = {"multiples": tuple(counts[layout.index(i)] for i in range(len(layout)))}
    r.emit("tile", [(n.input[0], layout)], [n.output[0]], layout, attrs)


def gather(b: OnnxBuilder, n: Node) -> None:
    x, indices = n.operand(), n.operand(1)
    b.result(n.output, b.op("Gather", [b.real(x), b.real(indices)], axis=n.attrs["axis"]))


def read_gather(r: OnnxReader, n: Any) -> None:
    data, indices = n.input
    out, axis = n.output[0], int(r.attributes(n).get("axis", 0))
    view, rank = r.view(indices), len(r.shape(data))
    if view is not None and view.stored:
        read_table(r, n, view)
        return
    if indices in r.constants:
        r.constants[f"{n.name}/indices"] = r.constants[indices].astype(np.int32)
        indices = f"{n.name}/indices"
    attrs = {"axis": axis % rank}
    r.emit("gather", [(data, None), (indices, None)], [out], identity(len(r.shape(out))), attrs)


def read_table(r: OnnxReader, n: Any, view: LayoutView) -> None:
    """A gather by the stored integers of a tensor, from 256 stored values."""
    out = n.output[0]
    grid, q = r.next_grid(out)
    source = r.view(n.input[0])
    values = None if source is None else source.tensor.data
    if (
        view.offset != 128
        or grid is None
        or values is None
        or values.shape != (256,)
        or view.tensor.dtype != dtypes.int8
    ):
        raise refuse(n, "by stored integers that is not a table of 256")
    if source is None or source.tensor.grid != grid:
        raise refuse(n, "of a table on another grid than its result")
    t = Tensor(out, view.tensor.shape, grid.dtype, grid)
    attrs: dict[str, Any] = {"function": "table", "values": values}
    r.nodes.append(Node("table", (view.tensor,), (t,), attrs, name=n.name))
    r.views[q.output[0]] = LayoutView(t, view.layout, stored=True)
    r.done.add(id(q))


def one_hot(b: OnnxBuilder, n: Node) -> None:
    """A comparison with 0, 1, ...: indices outside give zeros, which OneHot would wrap around."""
    x, y = n.operand(), n.output
    axis = n.attrs["axis"]
    shape = [1 if i == axis else s for i, s in enumerate(y.shape)]
    places = [y.shape[axis] if i == axis else 1 for i in range(len(y.shape))]
    at = b.op("Reshape", [b.real(x), b.constant(shape)], "column")
    same = b.op("Equal", [at, b.constant(np.arange(y.shape[axis]).reshape(places), x.dtype, "places")], "equal")
    real = dtypes.float32 if y.grid is not None else y.dtype
    b.result(y, b.op("Cast", [same], to=element(b, real)))


def resize(mode: str) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x, y = n.operand(), n.output
        align, half = n.attrs["align_corners"], n.attrs["half_pixel_centers"]
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


def read_resize(r: OnnxReader, n: Any) -> None:
    a, shape = r.attributes(n), r.shape(n.output[0])
    where = a.get("coordinate_transformation_mode", b"half_pixel").decode(errors="replace")
    mode = a.get("mode", b"nearest").decode(errors="replace")
    near = a.get("nearest_mode", b"round_prefer_floor").decode(errors="replace")
    wanted = "floor" if where == "asymmetric" else "round_prefer_ceil"
    known = where in ("half_pixel", "align_corners", "asymmetric") and mode in ("linear", "nearest")
    same = len(shape) == 4 and shape[:2] == r.shape(n.input[0])[:2]
    if not known or not same or (mode == "nearest" and near != wanted) or a.get("antialias", 0) or "axes" in a:
        raise refuse(n, f"with mode {mode}, {where}, {near}")
    attrs = {
        "size": tuple(shape[2:]),
        "align_corners": where == "align_corners",
        "half_pixel_centers": where == "half_pixel",
    }
    op = "resize_bilinear" if mode == "linear" else "resize_nearest"
    r.emit(op, [(n.input[0], NCHW)], [n.output[0]], NCHW, attrs)


def read_alias(r: OnnxReader, n: Any) -> None:
    name, out = n.input[0], n.output[0]
    if name in r.constants:
        r.constants[out] = r.constants[name]
        return
    view = r.view(name)
    if view is None:
        raise invalid("a value that nothing makes", name)
    r.views[out] = view


def read_constant(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    if "value" not in a:
        raise refuse(n, "other than of a tensor")
    r.constants[n.output[0]] = r.onnx.numpy_helper.to_array(a["value"])


MOVES: Final = [
    OnnxRow("reshape", reshape, "Reshape Flatten Squeeze Unsqueeze", read_reshape),
    OnnxRow("transpose", transpose, "Transpose", read_transpose),
    OnnxRow("concatenation", concatenation, "Concat", read_concatenation),
    OnnxRow("split", split, "Split", read_split),
    OnnxRow("slice", slice_, "Slice", read_slices),
    OnnxRow("strided_slice", strided_slice),
    OnnxRow("reverse", reverse),
    OnnxRow("pad", pad, "Pad", read_pad),
    OnnxRow("broadcast_to", broadcast_to, "Expand", read_expand),
    OnnxRow("tile", tile, "Tile", read_tile),
    OnnxRow("gather", gather, "Gather", read_gather),
    OnnxRow("one_hot", one_hot),
    OnnxRow("resize_bilinear", resize("linear"), "Resize", read_resize),
    OnnxRow("resize_nearest", resize("nearest")),
]
