"""softmax, log_softmax, logsumexp, layer_norm and rms_norm as one vertex per tile, where rows are many and fit a tile;
else as their expansion, which uses all tiles on each row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.ipu.rows import Norm, NormKind, Softmax, SoftmaxKind
from nxjax.kernels.ipu.spec import Codelet
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import VariableView
from nxjax.lower.ipu.rules.rows import by_rows, cycles, fits
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.composite_softmax import AlongAxis
from nxjax.trace.program import Equation

# What the compute sets of an expansion cost at least: exchange and sync of each.
EXPANDED: Final = 5000
SOFTMAX: Final[dict[str, SoftmaxKind]] = {
    "softmax": "softmax",
    "log_softmax": "log_softmax",
    "logsumexp": "logsumexp",
}
NORMS: Final[dict[str, NormKind]] = {"layer_norm": "layer_norm", "rms_norm": "rms_norm"}


def supports(e: Equation) -> bool:
    return all(a.type.dtype.name in ("float32", "float16") for a in e.inputs)


def _expanded(b: Builder, e: Equation, xs: Sequence[VariableView]) -> Any:
    return b.inline(e.op.expand, xs, **e.params)


def _axes_last(x: VariableView, axes: Sequence[int]) -> tuple[VariableView, list[int]]:
    order = [*(d for d in range(len(x.shape)) if d not in axes), *axes]
    moved = VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))
    return moved, order


def _worth(b: Builder, codelet: Codelet, rows: int, n: int, bytes_each: int, attributes: dict[str, Any]) -> bool:
    """Whether one tile holds a row, and is done with its rows before an expansion is."""
    if not fits(b, bytes_each):
        return False
    tails = {f.name: (n,) for f in codelet.fields}
    alone = cycles(b, codelet, rows, tails, attributes)
    return alone <= EXPANDED + alone * min(rows, b.tiles) // b.tiles


def softmax(b: Builder, e: Equation, x: VariableView) -> VariableView:
    along = isinstance(e.op, AlongAxis)
    axes: tuple[int, ...] = (e.params["axis"],) if along else e.params["axes"]
    out = e.outputs[0].type
    n = math.prod(x.shape[d] for d in axes)
    if not x.size or not axes:
        return _expanded(b, e, (x,))
    codelet = Softmax(SOFTMAX[e.op.name], x.dtype.name)
    rows = x.size // n
    if not _worth(b, codelet, rows, n, 2 * n * x.dtype.itemsize, {"n": n}):
        return _expanded(b, e, (x,))
    moved, order = _axes_last(x, axes)
    tail = (n,) if along else ()
    y = by_rows(b, codelet, {"x": b.reshaped(moved, (rows, n))}, {"y": (tail, x.dtype)}, {"n": n})["y"]
    if not tail:
        return b.reshaped(y, out.shape)
    y = b.reshaped(y, moved.shape)
    back = [order.index(d) for d in range(len(order))]
    return VariableView(y.variable, y.offset, out.shape, tuple(y.strides[d] for d in back))


def norm(b: Builder, e: Equation, x: VariableView, *parameters: VariableView) -> VariableView:
    axes: tuple[int, ...] = e.params["axis"]
    n = math.prod(x.shape[d] for d in axes)
    if not x.size or len({p.dtype for p in parameters}) != 1:
        return _expanded(b, e, (x, *parameters))
    width = parameters[0].dtype
    codelet = Norm(NORMS[e.op.name], x.dtype.name, width.name)
    rows = x.size // n
    attributes = {"n": n, "epsilon": float(e.params["epsilon"])}
    if not _worth(b, codelet, rows, n, n * (2 * x.dtype.itemsize + 2 * width.itemsize), attributes):
        return _expanded(b, e, (x, *parameters))
    moved, order = _axes_last(x, axes)
    ins = {"x": b.reshaped(moved, (rows, n))}
    for name, p in zip(("scale", "bias"), parameters, strict=False):
        line = b.reshaped(p, (n,))
        ins[name] = VariableView(line.variable, line.offset, (rows, n), (0, line.strides[0]))
    y = by_rows(b, codelet, ins, {"y": ((n,), x.dtype)}, attributes, once=("scale", "bias"))["y"]
    y = b.reshaped(y, moved.shape)
    back = [order.index(d) for d in range(len(order))]
    return VariableView(y.variable, y.offset, x.shape, tuple(y.strides[d] for d in back))


RULES: Final = {
    **dict.fromkeys(SOFTMAX, Rule(softmax, supports)),
    **dict.fromkeys(NORMS, Rule(norm, supports)),
}
