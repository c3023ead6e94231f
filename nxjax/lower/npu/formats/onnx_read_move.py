"""Rules of ONNX operators that move data, or say where it is: reshapes, slices, gathers, constants, resizing.

Semantics: the ONNX operator specification (onnx.ai/onnx/operators). What it allows and a graph cannot say is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax.lower.npu.formats.onnx_build import NCHW, identity
from nxjax.lower.npu.formats.onnx_reader import LayoutView, OnnxReader, invalid, name_at, numbers, own_layout, refuse
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.trace import dtypes


def reshape(r: OnnxReader, n: Any) -> None:
    out, view = n.output[0], r.view(n.input[0])
    shape = r.shape(out)
    layout = identity(len(r.shape(n.input[0])))
    if view is not None:
        # Moving dimensions of size 1 about moves no number.
        long = [a for a in view.layout if view.tensor.shape[a] != 1]
        layout = view.layout if long == sorted(long) else layout
    r.emit("reshape", [(n.input[0], layout)], [out], identity(len(shape)), {"shape": shape})


def transpose(r: OnnxReader, n: Any) -> None:
    view, rank = r.view(n.input[0]), len(r.shape(n.input[0]))
    perm = [int(p) for p in r.attributes(n).get("perm", range(rank)[::-1])]
    if sorted(perm) != list(range(rank)):
        raise invalid("a permutation that is none", n.name)
    if view is None or view.tensor.constant:
        r.emit("transpose", [(n.input[0], None)], [n.output[0]], identity(rank), {"permutation": tuple(perm)})
        return
    r.views[n.output[0]] = LayoutView(view.tensor, tuple(view.layout[p] for p in perm), view.stored)


def alias(r: OnnxReader, n: Any) -> None:
    name, out = n.input[0], n.output[0]
    if name in r.constants:
        r.constants[out] = r.constants[name]
        return
    view = r.view(name)
    if view is None:
        raise invalid("a value that nothing makes", name)
    r.views[out] = view


def constant(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    if "value" not in a:
        raise refuse(n, "other than of a tensor")
    r.constants[n.output[0]] = r.onnx.numpy_helper.to_array(a["value"])


def concatenation(r: OnnxReader, n: Any) -> None:
    rank = len(r.shape(n.output[0]))
    layout = r.layout(n.input, rank)
    axis = layout[int(r.attributes(n)["axis"]) % rank]
    r.emit("concatenation", [(name, layout) for name in n.input], [n.output[0]], layout, {"axis": axis})


def split(r: OnnxReader, n: Any) -> None:
    layout = own_layout(r, n.input[0])
    axis = int(r.attributes(n).get("axis", 0)) % len(layout)
    sizes = tuple(r.shape(o)[axis] for o in n.output)
    r.emit("split", [(n.input[0], layout)], list(n.output), layout, {"axis": layout[axis], "sizes": sizes})


def slices(r: OnnxReader, n: Any) -> None:
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


def pad(r: OnnxReader, n: Any) -> None:
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


def expand(r: OnnxReader, n: Any) -> None:
    shape = r.shape(n.output[0])
    full = len(r.shape(n.input[0])) == len(shape)
    layout = own_layout(r, n.input[0]) if full else identity(len(shape))
    attrs = {"shape": tuple(shape[layout.index(i)] for i in range(len(shape)))}
    r.emit("broadcast_to", [(n.input[0], layout if full else None)], [n.output[0]], layout, attrs)


def tile(r: OnnxReader, n: Any) -> None:
    layout, counts = own_layout(r, n.input[0]), numbers(r, n, 1) or []
    attrs = {"multiples": tuple(counts[layout.index(i)] for i in range(len(layout)))}
    r.emit("tile", [(n.input[0], layout)], [n.output[0]], layout, attrs)


def gather(r: OnnxReader, n: Any) -> None:
    data, indices = n.input
    out, axis = n.output[0], int(r.attributes(n).get("axis", 0))
    view, rank = r.view(indices), len(r.shape(data))
    if view is not None and view.stored:
        _table(r, n, view)
        return
    if indices in r.constants:
        r.constants[f"{n.name}/indices"] = r.constants[indices].astype(np.int32)
        indices = f"{n.name}/indices"
    attrs = {"axis": axis % rank}
    r.emit("gather", [(data, None), (indices, None)], [out], identity(len(r.shape(out))), attrs)


def _table(r: OnnxReader, n: Any, view: LayoutView) -> None:
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


def resize(r: OnnxReader, n: Any) -> None:
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
