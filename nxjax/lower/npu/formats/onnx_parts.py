"""What ONNX rows have in common, writing and reading: operands, padding, activations, products in another shape.

Knows no op but the activations that are fused into others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATIONS
from nxjax.lower.npu.formats.onnx_build import Layout, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_reader import OnnxReader, Rule, name_at
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

Emit = Callable[[OnnxBuilder, Node], None]


@final
@dataclass(frozen=True)
class OnnxRow:
    """An op of the vocabulary, how it is written, the operators that are read as it, and how; "" if none says it."""

    op: str
    write: Emit
    operators: str = ""
    read: Rule | None = None


def operand(b: OnnxBuilder, t: Tensor, layout: Layout) -> str:
    """An operand that broadcasts: constants follow the layout, others are held in it or in their own order."""
    if t.constant or len(t.shape) == len(layout):
        return b.real(t, layout)
    return b.real(t)


def pads(padding: Any) -> list[int]:
    """((low, high), ...) as ONNX has it: all lows, then all highs."""
    return [int(low) for low, _ in padding] + [int(high) for _, high in padding]


def element(b: OnnxBuilder, dtype: Any) -> int:
    return int(b.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# Activations.


def clip(b: OnnxBuilder, value: str, bounds: tuple[float, float], t: Tensor, suffix: str = "") -> str:
    """Values kept between two bounds; an infinite one is no bound."""
    low, high = bounds
    if bounds == ACTIVATIONS["relu"]:
        return b.op("Relu", [value], suffix)
    dtype = dtypes.float32 if t.grid is not None else t.dtype
    if b.opset < 11:
        finite: dict[str, Any] = {k: v for k, v in (("min", low), ("max", high)) if math.isfinite(v)}
        return b.op("Clip", [value], suffix, **finite)
    limits = [b.constant(low, dtype, "low") if math.isfinite(low) else ""]
    limits += [b.constant(high, dtype, "high")] if math.isfinite(high) else []
    return b.op("Clip", [value, *limits], suffix)


def beyond(grid: Grid, kind: str) -> tuple[float, float]:
    """The activation's bounds that saturation to the grid does not already keep."""
    assert not isinstance(grid.scale, tuple)
    low, high = grid.limits
    bottom, top = ACTIVATIONS[kind]
    if grid.zero_point + round(bottom / grid.scale) <= low:
        bottom = -math.inf
    if math.isfinite(top) and grid.zero_point + round(top / grid.scale) >= high:
        top = math.inf
    return bottom, top


def finish(b: OnnxBuilder, n: Node, value: str, layout: Layout | None = None) -> None:
    """The fused activation as its own node, then the result.

    With a grid the sum is brought onto the output grid first: it saturates there, and clamping that to the
    activation's range is what clamping the sum would have given.
    """
    t, kind = n.output, n.attrs.get("activation")
    layout = identity(len(t.shape)) if layout is None else layout
    grid = b.grid(t)
    if kind is None:
        return b.result(t, value, layout)
    bounds = ACTIVATIONS[kind] if grid is None else beyond(grid, kind)
    if bounds == (-math.inf, math.inf):
        return b.result(t, value, layout)
    if grid is not None:
        value = on_grid(b, value, grid, layout, "wide")
    return b.result(t, clip(b, value, bounds, t, kind), layout)


def on_grid(b: OnnxBuilder, value: str, grid: Grid, layout: Layout, suffix: str) -> str:
    """Real values that went through a grid: the pair that ends one QDQ unit and starts the next."""
    stored, _ = b.stored_grid(grid)
    return b.dequantize(b.quantize(value, stored, layout, suffix + "_q"), stored, layout, suffix + "_dq")


def bounds(r: OnnxReader, n: Any) -> tuple[float, float] | None:
    """The limits of a Relu or Clip; None if they are computed."""
    if n.op_type == "Relu":
        return ACTIVATIONS["relu"]
    limits: list[float] = []
    for i, (attr, missing) in enumerate((("min", -math.inf), ("max", math.inf)), 1):
        name = name_at(n, i)
        if name is not None and name not in r.constants:
            return None
        limits.append(float(r.constants[name].reshape(-1)[0]) if name else float(r.attributes(n).get(attr, missing)))
    return limits[0], limits[1]


def kept_by(grid: Grid | None, wanted: tuple[float, float], have: tuple[float, float]) -> bool:
    """Whether clamping to ``have`` and saturating to ``grid`` is clamping to ``wanted``."""
    if grid is None or isinstance(grid.scale, tuple):
        return have == wanted
    low, high = grid.limits
    ends = [grid.zero_point + round(b / grid.scale) if math.isfinite(b) else b for b in wanted]
    bottom = have[0] == wanted[0] or (have[0] == -math.inf and ends[0] <= low)
    return bottom and (have[1] == wanted[1] or (have[1] == math.inf and ends[1] >= high))


def fused(r: OnnxReader, name: str) -> tuple[str | None, str]:
    """The activation that follows a value and nothing else does, and the value after it."""
    after, grid, q = name, *r.next_grid(name)
    taken: list[Any] = []
    if q is not None:
        d = r.sole_reader(q.output[0], "DequantizeLinear")
        if d is None or r.grid(d) != grid:
            return None, name
        taken, after = [q, d], d.output[0]
    act = r.sole_reader(after, "Relu", "Clip")
    have = None if act is None else bounds(r, act)
    if act is None or have is None or (q is not None and r.next_grid(act.output[0])[0] != grid):
        return None, name
    for kind, wanted in ACTIVATIONS.items():
        if kept_by(grid, wanted, have):
            r.done.update(map(id, [*taken, act]))
            return kind, act.output[0]
    return None, name


def number(b: OnnxBuilder, n: Node, value: float) -> str:
    return b.constant(value, dtypes.float32 if n.output.grid is not None else n.output.dtype, "number")
