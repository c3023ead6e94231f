"""Rules of reductions, running sums and softmaxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.ops.arithmetic import add, sub
from nxjax.ops.elementary import exp, log
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape


def reduced(b: GraphBuilder, node: str, x: LogicalTensor, axes: Sequence[int], kind: Any) -> LogicalTensor:
    """``node`` over ``axes``, which disappear; axes of size 1 need no reduction."""
    axes = tuple(a for a in axes if x.shape[a] != 1)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if not axes:
        return x
    return b.emit(node, [x], shape, kind, axes=axes, keepdims=False)


def _reduction(node: str, keeps_grid: bool) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, axes: Shape) -> LogicalTensor:
        if any(x.shape[a] == 0 for a in axes):
            raise Unsupported("it reduces no elements", "reduce an axis that has elements")
        x = x if keeps_grid else b.real(x)
        if x.dtype == dtypes.bool_ and x.grid is None:
            raise Unsupported("bools are not ordered on an NPU", "use any or all")
        if node == "sum":
            # What only repeats is multiplied, not stored and added.
            repeats = [a for a in axes if x.small[a] == 1 and x.shape[a] > 1]
            if repeats:
                times = math.prod(x.shape[a] for a in repeats)
                left = LogicalTensor(tuple(1 if i in repeats else n for i, n in enumerate(x.shape)), x.tensor, x.data)
                y = b.reshape(reduced(b, node, left, axes, out.dtype), out.shape)
                return b.elementwise("mul", [y, b.fill(y.shape, times, out.dtype)], out.dtype, activation=None)
        return b.reshape(reduced(b, node, x, axes, x.kind if keeps_grid else out.dtype), out.shape)

    return rule


def _any(node: str) -> Rule:
    """any and all of bools, by the largest and the smallest of ones and zeros."""

    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, axes: Shape) -> LogicalTensor:
        if out.dtype != dtypes.bool_:
            raise Unsupported("bits of integers are not reachable on an NPU", "use bool operands")
        ones = b.elementwise("cast", [x], dtypes.float32)
        y = b.reshape(reduced(b, node, ones, axes, dtypes.float32), out.shape)
        return b.elementwise("not_equal", [y, b.fill(y.shape, 0, dtypes.float32)], dtypes.bool_)

    return rule


def _arg(node: str) -> Rule:
    def rule(b: GraphBuilder, out: ArrayType, x: LogicalTensor, axes: Shape, index_dtype: DType) -> LogicalTensor:
        (axis,) = axes
        if x.dtype == dtypes.bool_:
            x = b.elementwise("cast", [x], dtypes.float32)
        y = b.emit(node, [x], out.shape, dtypes.int32, axis=axis)
        # Positions fit in 32 bits whatever the program counts in.
        return y if index_dtype in (dtypes.int64, dtypes.uint32) else b.cast(y, index_dtype)

    return rule


def last_axis(b: GraphBuilder, node: str, x: LogicalTensor, axis: int, kind: Any, **attrs: Any) -> LogicalTensor:
    """A node that works along the last axis, along any."""
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    y = b.transpose(x, order)
    y = b.emit(node, [y], y.shape, kind, **attrs)
    return b.transpose(y, [order.index(i) for i in range(x.ndim)])


def _logsumexp(b: GraphBuilder, out: ArrayType, x: LogicalTensor, axes: Shape) -> LogicalTensor:
    """log(sum(exp(x - max))) + max; unlike the op, all elements -inf give NaN."""

    def pieces(v: Array) -> Array:
        kept = tuple(i for i in range(v.ndim) if i not in axes)
        top = reduce_max(v, axes=axes)
        spread = broadcast_in_dim(top, shape=v.shape, broadcast_dimensions=kept)
        return add(log(reduce_sum(exp(sub(v, spread)), axes=axes)), top)

    return b.inline(pieces, x)


RULES: Final[dict[str, Rule]] = {
    "reduce_sum": _reduction("sum", False),
    "reduce_max": _reduction("reduce_max", True),
    "reduce_min": _reduction("reduce_min", True),
    "reduce_prod": lambda b, out, x, axes: b.reshape(reduced(b, "reduce_prod", b.real(x), axes, out.dtype), out.shape),
    "reduce_or": _any("reduce_max"),
    "reduce_and": _any("reduce_min"),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "cumsum": lambda b, out, x, axis, reverse=False: b.emit(
        "cumsum", [b.real(x)], x.shape, out.dtype, axis=axis, exclusive=False, reverse=bool(reverse)
    ),
    "softmax": lambda b, out, x, axis: last_axis(b, "softmax", b.real(x), axis, out.dtype, beta=1.0),
    "log_softmax": lambda b, out, x, axis: last_axis(b, "log_softmax", b.real(x), axis, out.dtype),
    "logsumexp": _logsumexp,
}
