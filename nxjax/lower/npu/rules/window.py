"""Rules of window reductions: pools over at most two dimensions at a time, in any layout.

An NPU averages, it does not sum: a sum is an average times the size of the window. `simplify` puts the factor and the
divisor that users write behind it together again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.graph import TensorKind
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType, Shape

Pairs = tuple[tuple[int, int], ...]


@final
@dataclass(frozen=True)
class WindowGeometry:
    """A window with its steps and padding, one entry per dimension."""

    sizes: Shape
    strides: Shape
    padding: Pairs

    @property
    def busy(self) -> list[int]:
        """The dimensions in which something happens."""
        rows = zip(self.sizes, self.strides, self.padding, strict=True)
        return [i for i, (k, s, p) in enumerate(rows) if k > 1 or s > 1 or p != (0, 0)]

    def only(self, dims: Sequence[int]) -> WindowGeometry:
        """The same in ``dims``, and a single point elsewhere."""
        keep = range(len(self.sizes))
        return WindowGeometry(
            tuple(self.sizes[i] if i in dims else 1 for i in keep),
            tuple(self.strides[i] if i in dims else 1 for i in keep),
            tuple(self.padding[i] if i in dims else (0, 0) for i in keep),
        )


def box_of(
    x: LogicalTensor,
    window_dimensions: Shape,
    window_strides: Shape,
    padding: Pairs,
    base_dilation: Shape | None = None,
    window_dilation: Shape | None = None,
) -> WindowGeometry:
    """The parameters of an op, or why there is no pool for them."""
    if any(d != 1 and n > 1 for d, n in zip(base_dilation or (), x.shape)):
        raise Unsupported("pools of a dilated input have no NPU instruction", "leave base_dilation at 1")
    if any(d != 1 and k > 1 for d, k in zip(window_dilation or (), window_dimensions)):
        raise Unsupported("pools with holes have no NPU instruction", "leave window_dilation at 1")
    return WindowGeometry(window_dimensions, window_strides, padding)


def pooled(b: GraphBuilder, node: str, x: LogicalTensor, box: WindowGeometry, kind: TensorKind) -> LogicalTensor:
    """``node`` over a box of any rank; padding is not counted."""
    x = b.pad(x, [(min(l, 0), min(h, 0)) for l, h in box.padding])
    box = WindowGeometry(box.sizes, box.strides, tuple((max(l, 0), max(h, 0)) for l, h in box.padding))
    dims = box.busy
    if len(dims) > 2:
        # A box is pooled by two dimensions at a time; averages stay exact only where nothing is left out of them.
        if node == "average_pool_2d" and any(box.padding[d] != (0, 0) for d in dims):
            raise Unsupported("an average over three padded dimensions has no NPU instruction", "pad explicitly")
        x = pooled(b, node, x, box.only(dims[:2]), kind)
        return pooled(b, node, x, box.only(dims[2:]), kind)
    if not dims:
        return x
    return _pool_2d(b, node, x, box, dims, kind)


def _pool_2d(
    b: GraphBuilder, node: str, x: LogicalTensor, box: WindowGeometry, dims: Sequence[int], kind: TensorKind
) -> LogicalTensor:
    if len(dims) == 2:
        window = tuple(dims)
    else:
        # One dimension is the second of two; if there is one beside it that nothing happens in, it is the first.
        (d,) = dims
        window = (d - 1, d) if d > 1 and x.ndim > 3 else (d,)
    others = [i for i in range(x.ndim) if i not in window]
    channel = others[-1] if others and x.ndim > len(window) + 1 else None
    outer = [i for i in others if i != channel]
    order = [*outer, *window, *([] if channel is None else [channel])]
    moved = b.transpose(x, order)
    space = tuple(x.shape[i] for i in window)
    batch = math.prod(x.shape[i] for i in outer)
    c = 1 if channel is None else x.shape[channel]
    sizes, strides = tuple(box.sizes[i] for i in window), tuple(box.strides[i] for i in window)
    padding = tuple(box.padding[i] for i in window)
    if len(window) == 1:
        space, sizes, strides, padding = (1, *space), (1, *sizes), (1, *strides), ((0, 0), *padding)
    result = tuple((n + l + h - k) // s + 1 for n, (l, h), k, s in zip(space, padding, sizes, strides, strict=True))
    flat = b.reshape(moved, (batch, *space, c))
    attrs: dict[str, Any] = {"window": sizes, "strides": strides, "padding": padding}
    y = b.emit(node, [flat], (batch, *result, c), kind, **attrs, activation=None)
    shape = [x.shape[i] for i in outer] + list(result[2 - len(window) :]) + ([] if channel is None else [c])
    return b.transpose(b.reshape(y, tuple(shape)), [order.index(i) for i in range(x.ndim)])


def counts(x: Shape, box: WindowGeometry) -> np.ndarray[Any, Any]:
    """How many elements of the operand lie in each window, as an array that broadcasts against the result."""
    total = np.ones((1,) * len(x), np.int64)
    for i in box.busy:
        low, high = box.padding[i]
        inside = np.pad(np.ones(x[i] + min(low, 0) + min(high, 0), np.int64), (max(low, 0), max(high, 0)))
        k, s = box.sizes[i], box.strides[i]
        n = (inside.size - k) // s + 1
        row = np.array([inside[j * s : j * s + k].sum() for j in range(n)])
        total = total * row.reshape([-1 if d == i else 1 for d in range(len(x))])
    return total


def _sum(b: GraphBuilder, out: ArrayType, x: LogicalTensor, **params: Any) -> LogicalTensor:
    if out.dtype not in dtypes.FLOAT:
        raise Unsupported("sums of integer windows have no NPU instruction", "cast to float32 first")
    x = b.real(x)
    box = box_of(x, **params)
    inside = counts(x.shape, box)
    if not inside.all():
        # A window of nothing but padding has no average.
        zeros = [(max(l, 0), max(h, 0)) for l, h in box.padding]
        x = b.pad(x, zeros)
        box = WindowGeometry(box.sizes, box.strides, tuple((min(l, 0), min(h, 0)) for l, h in box.padding))
        inside = counts(x.shape, box)
    y = pooled(b, "average_pool_2d", x, box, out.dtype)
    if (inside == inside.flat[0]).all():
        inside = inside.reshape(-1)[:1].reshape((1,) * x.ndim)
    factor = LogicalTensor(y.shape, data=inside.astype(out.dtype))
    return b.elementwise("mul", [y, factor], out.dtype, activation=None)


def _max(b: GraphBuilder, out: ArrayType, x: LogicalTensor, **params: Any) -> LogicalTensor:
    box = box_of(x, **params)
    if not counts(x.shape, box).all():
        raise Unsupported("a window consists of padding only", "pad by less than the size of the window")
    return pooled(b, "max_pool_2d", x, box, x.kind)


def _min(b: GraphBuilder, out: ArrayType, x: LogicalTensor, **params: Any) -> LogicalTensor:
    x = b.elementwise("neg", [b.real(x)], out.dtype)
    return b.elementwise("neg", [_max(b, out, x, **params)], out.dtype)


RULES: Final[dict[str, Rule]] = {"reduce_window_sum": _sum, "reduce_window_max": _max, "reduce_window_min": _min}
