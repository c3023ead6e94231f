"""Rules of matrix products: fully connected layers where one side is constant, batched products elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.graph import TensorKind
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

Axes = tuple[int, ...]


def check_product(dtype: DType) -> None:
    """Products of plain integers are no NPU business: only those on grids are."""
    if dtype in dtypes.INTEGER:
        raise Unsupported(
            "products of plain integers have no NPU instruction", "use floats and quantize: nx.quantize(f, ...)"
        )


def _dot(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    y: LogicalTensor,
    dimension_numbers: Any,
    preferred_element_type: Any = None,
    **_: Any,
) -> LogicalTensor:
    check_product(out.dtype)
    (xc, yc), (xb, _) = dimension_numbers
    if x.grid is None and x.dtype != out.dtype:
        x, y = b.cast(x, out.dtype), b.cast(y, out.dtype)
    if not xb and y.constant:
        return connected(b, x, y, xc, yc, out.dtype)
    if not xb and x.constant:
        z = connected(b, y, x, yc, xc, out.dtype)
        n = y.ndim - len(yc)
        return b.transpose(z, (*range(n, z.ndim), *range(n)))
    return matmul(b, x, y, dimension_numbers, out.dtype)


def free(ndim: int, *used: Axes) -> Axes:
    taken = {a for axes in used for a in axes}
    return tuple(i for i in range(ndim) if i not in taken)


def sizes(x: LogicalTensor, axes: Sequence[int]) -> Shape:
    return tuple(x.shape[a] for a in axes)


def connected(
    b: GraphBuilder,
    x: LogicalTensor,
    w: LogicalTensor,
    xc: Axes,
    wc: Axes,
    kind: TensorKind,
    bias: LogicalTensor | None = None,
    activation: str | None = None,
) -> LogicalTensor:
    """x times constant weights as a fully connected node: x [..., i], w [o, i]."""
    xf, wf = free(x.ndim, xc), free(w.ndim, wc)
    depth, columns = math.prod(sizes(x, xc)), math.prod(sizes(w, wf))
    # Any order of the contracted dimensions will do: x keeps its own.
    order = sorted(range(len(xc)), key=xc.__getitem__)
    xc, wc = tuple(xc[i] for i in order), tuple(wc[i] for i in order)
    rows = b.transpose(x if isinstance(kind, Grid) else b.real(x), (*xf, *xc))
    rows = b.reshape(rows, (*sizes(x, xf), depth) if xf else (1, depth))
    weights = b.full(b.reshape(b.transpose(b.full(w), (*wf, *wc)), (columns, depth)))
    if not isinstance(kind, Grid):
        weights = b.real(weights)
    y = b.emit("fully_connected", [rows, weights, bias], (*rows.shape[:-1], columns), kind, activation=activation)
    return b.reshape(y, (*sizes(x, xf), *sizes(w, wf)))


def matmul(
    b: GraphBuilder, x: LogicalTensor, y: LogicalTensor, dimension_numbers: Any, kind: TensorKind
) -> LogicalTensor:
    """x [batch, m, k] times y [batch, k, n], with their dimensions brought into that order."""
    (xc, yc), (xb, yb) = dimension_numbers
    if not isinstance(kind, Grid):
        # Weights in blocks are moved while they are constants.
        x, y = (v if v.blocks is not None else b.real(v) for v in (x, y))
    xf, yf = free(x.ndim, xc, xb), free(y.ndim, yc, yb)
    m, n, k = math.prod(sizes(x, xf)), math.prod(sizes(y, yf)), math.prod(sizes(x, xc))
    batch = sizes(x, xb)
    left, adj_x = _arranged(b, x, xb, xf, xc)
    right, adj_y = _arranged(b, y, yb, yc, yf)
    left = b.reshape(left, (*batch, *((k, m) if adj_x else (m, k))))
    right = b.reshape(right, (*batch, *((n, k) if adj_y else (k, n))))
    if not isinstance(kind, Grid):
        left, right = b.real(left), b.real(right)
    z = b.emit("batch_matmul", [left, right], (*batch, m, n), kind, adj_x=adj_x, adj_y=adj_y)
    return b.reshape(z, (*batch, *sizes(x, xf), *sizes(y, yf)))


def _arranged(b: GraphBuilder, x: LogicalTensor, batch: Axes, rows: Axes, columns: Axes) -> tuple[LogicalTensor, bool]:
    """The operand as [batch, rows, columns], or [batch, columns, rows] (True) if that takes no transpose.

    Or if its blocks lie along its rows: they are stored last.
    """
    swapped = (*batch, *columns, *rows)
    if x.blocks is not None:
        turned = x.blocks.span(x.shape, rows)
        return b.transpose(x, swapped if turned else (*batch, *rows, *columns)), turned
    if swapped == tuple(range(x.ndim)) and rows and columns:
        return x, True
    return b.transpose(x, (*batch, *rows, *columns)), False


RULES: Final[dict[str, Rule]] = {"dot_general": _dot}
