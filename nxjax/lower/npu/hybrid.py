"""Values on grids of their own rows (`quantize_rows`): taken in by the product that reads them, or written out.

Formats whose runtimes bring floats to 8 bits row by row as they multiply have products that are said to be `dynamic`.
Everywhere else the grids are computed by ordinary nodes.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.permutation import inverse
from nxjax.lower.npu.rewrite import Rewriter, constant, fixpoint
from nxjax.ops.fake_quantize import LEAST_ROW_SCALE
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# File formats with dynamic products.
FORMATS: Final = frozenset(("tflite", "onnx"))


def rows_settled(graph: NpuGraph, format: str) -> NpuGraph:
    """The graph without `quantize_rows`: in dynamic products where ``format`` has them, as parts elsewhere."""
    if all(n.op != "quantize_rows" for n in graph.nodes):
        return graph
    if format in FORMATS:
        graph = fixpoint(fixpoint(graph, _moved_before), _dynamic)
    return fixpoint(graph, _written_out)


def padded_behind(r: Rewriter, n: Node) -> Tensor | None:
    """The rows of what was padded with zeros: padded behind their grids, which have a zero."""
    pad = r.sole(n.inputs[0], "pad")
    if pad is None or pad.attrs["value"]:
        return None
    busy = {i for i, width in enumerate(pad.attrs["padding"]) if any(width)}
    x = pad.operand()
    if not busy <= set(n.attrs["axes"]):
        return None
    return r.like(pad, "pad", [r.emit("quantize_rows", [x], x.shape, x.dtype, **n.attrs)], **pad.attrs)


def _moved_before(r: Rewriter, n: Node) -> Tensor | None:
    """Another order or shape of values on rows: the rows of that order or shape."""
    rows = r.producer(n.inputs[0], "quantize_rows") if n.op in ("transpose", "reshape") else None
    if rows is None:
        return None
    axes: Shape = rows.attrs["axes"]
    if n.op == "transpose":
        back = inverse(n.attrs["permutation"])
        found = tuple(sorted(back[a] for a in axes))
    else:
        found = _trailing(rows.output.shape, axes, n.output.shape)
        if found is None:
            return None
    x = r.like(n, n.op, rows.inputs, **n.attrs)
    return r.like(n, "quantize_rows", [x], axes=found)


def _trailing(old: Shape, axes: Shape, new: Shape) -> Shape | None:
    """The last axes of ``new`` that are the elements of the last axes of ``old``."""
    first = len(old) - len(axes)
    if axes != tuple(range(first, len(old))):
        return None
    size = math.prod(old[first:])
    starts = (k for k in reversed(range(len(new))) if math.prod(new[k:]) == size)
    return next((tuple(range(k, len(new))) for k in starts), None)


def _dynamic(r: Rewriter, n: Node) -> Tensor | None:
    """A product of values on rows with stored weights, where its rows are those that a runtime takes."""
    if n.op not in ("fully_connected", "conv_2d") or n.attrs["dynamic"]:
        return None
    rows, stored = r.producer(n.inputs[0], "quantize_rows"), r.producer(n.inputs[1], "dequantize")
    w = None if stored is None else stored.operand()
    if rows is None or w is None or w.data is None or w.grid is None or w.grid.zero_point:
        return None
    shape, axes = rows.output.shape, set(rows.attrs["axes"])
    wanted = {len(shape) - 1} if n.op == "fully_connected" else set(range(1, len(shape)))
    single = {i for i, m in enumerate(shape) if m == 1}
    if axes | single != wanted | single:
        return None
    return r.again(n, [rows.inputs[0], w, *n.inputs[2:]], dynamic=True)


def _written_out(r: Rewriter, n: Node) -> Tensor | None:
    """The grid of each row, and its values on it, as `quantize_rows` says."""
    if n.op != "quantize_rows":
        return None
    x, axes = n.operand(), n.attrs["axes"]
    small = tuple(1 if a in axes else m for a, m in enumerate(x.shape))
    number = lambda value: constant(np.asarray(value, np.float32))
    on_rows = lambda op, *xs: r.emit(op, xs, small, dtypes.float32)
    low, high = (r.emit(op, [x], small, x.dtype, axes=axes, keepdims=True) for op in ("reduce_min", "reduce_max"))
    low, high = on_rows("minimum", low, number(0)), on_rows("maximum", high, number(0))
    scale = on_rows("div", on_rows("sub", high, low), number(255))
    scale = on_rows("maximum", scale, number(LEAST_ROW_SCALE))
    zero = on_rows("round", on_rows("sub", number(-128), on_rows("div", low, scale)))
    zero = on_rows("maximum", on_rows("minimum", zero, number(127)), number(-128))
    q = r.like(n, "round", [r.like(n, "div", [x, scale])])
    q = r.like(n, "add", [q, zero])
    q = r.like(n, "maximum", [r.like(n, "minimum", [q, number(127)]), number(-128)])
    return r.like(n, "mul", [r.like(n, "sub", [q, zero]), scale])
