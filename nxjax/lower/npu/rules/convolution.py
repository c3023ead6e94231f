"""Rules of convolutions: any layout and rank, as channels-last nodes of two or three spatial dimensions.

Weights become [o, kh, kw, i / groups], depthwise ones [1, kh, kw, c * m]; a dilated input becomes a transposed
convolution. One spatial dimension is two of which the first has size 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.graph import TensorKind
from nxjax.lower.npu.rules.move import dilate
from nxjax.lower.npu.rules.products import check_product
from nxjax.ops.quant_grid import Grid
from nxjax.trace.types import ArrayType, Shape

Pairs = tuple[tuple[int, int], ...]
_MOVES: Final = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count")


@final
@dataclass(frozen=True)
class Convolution:
    """How a kernel moves over the spatial dimensions, named as the op's parameters, and what becomes of the sums."""

    window_strides: Shape
    padding: Pairs
    lhs_dilation: Shape
    rhs_dilation: Shape
    feature_group_count: int
    kind: TensorKind
    bias: LogicalTensor | None = None
    activation: str | None = None

    def spatially(self, change: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]) -> Convolution:
        """With other spatial dimensions: ``change`` is given what there is of each, and what does nothing."""
        return replace(
            self,
            window_strides=change(self.window_strides, 1),
            padding=change(self.padding, (0, 0)),
            lhs_dilation=change(self.lhs_dilation, 1),
            rhs_dilation=change(self.rhs_dilation, 1),
        )


def _conv(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    w: LogicalTensor,
    *,
    batch_group_count: int,
    dimension_numbers: Any,
    **params: Any,
) -> LogicalTensor:
    check_product(out.dtype)
    if batch_group_count != 1:
        raise Unsupported("groups of the batch have no NPU instruction", "use feature_group_count")
    x = b.real(x)
    if x.dtype != out.dtype:
        x, w = b.cast(x, out.dtype), b.cast(w, out.dtype)
    known = {key: params[key] for key in _MOVES}
    return convolved(b, x, w, Convolution(**known, kind=out.dtype), dimension_numbers)


def convolved(
    b: GraphBuilder, x: LogicalTensor, w: LogicalTensor, how: Convolution, dimension_numbers: Any
) -> LogicalTensor:
    """A convolution with constant weights in the layout that ``dimension_numbers`` say."""
    if not w.constant:
        raise Unsupported(
            "the weights are not constant",
            "pass the parameters as constants: nx.compile(f, constants=(0,), ...) or functools.partial(f, params)",
            mistake=True,
        )
    lhs, rhs, spec = dimension_numbers
    x = b.transpose(x, (lhs[0], *lhs[2:], lhs[1]))
    w = b.transpose(b.full(w), (rhs[0], *rhs[2:], rhs[1]))
    y = _any_rank(b, x, w, how)
    back = (spec[0], *spec[2:], spec[1])
    return b.transpose(y, [back.index(i) for i in range(y.ndim)])


def _any_rank(b: GraphBuilder, x: LogicalTensor, w: LogicalTensor, how: Convolution) -> LogicalTensor:
    spatial = x.ndim - 2
    if spatial == 2:
        return _flat(b, x, w, how)
    if spatial < 2:
        one = b.reshape(x, (x.shape[0], 1, *x.shape[1:]))
        kernel = b.reshape(w, (w.shape[0], 1, *w.shape[1:]))
        y = _any_rank(b, one, kernel, how.spatially(lambda v, nothing: (nothing, *v)))
        return b.reshape(y, (y.shape[0], *y.shape[2:]))
    at = _pointwise(w, how)
    if at is None and spatial == 3:
        return _flat(b, x, w, how)
    if at is None:
        raise Unsupported(
            f"a kernel over {spatial} dimensions has no NPU instruction", "split it into convolutions over slices"
        )
    # A dimension that the kernel does not mix is part of the batch.
    order = [0, at + 1, *(i for i in range(1, x.ndim) if i != at + 1)]
    moved = b.transpose(x, order)
    n, d = moved.shape[:2]
    drop = lambda v: (*v[:at], *v[at + 1 :])
    kernel = b.reshape(w, (w.shape[0], *drop(w.shape[1:])))
    inner = how.spatially(lambda v, _: drop(v))
    y = _any_rank(b, b.reshape(moved, (n * d, *moved.shape[2:])), kernel, inner)
    y = b.reshape(y, (n, d, *y.shape[1:]))
    return b.transpose(y, [order.index(i) for i in range(x.ndim)])


def _pointwise(w: LogicalTensor, how: Convolution) -> int | None:
    """A spatial dimension in which the kernel is one point that visits every place."""
    rows = zip(w.shape[1:-1], how.window_strides, how.padding, how.lhs_dilation, strict=True)
    return next((i for i, row in enumerate(rows) if row == (1, 1, (0, 0), 1)), None)


def _flat(b: GraphBuilder, x: LogicalTensor, w: LogicalTensor, how: Convolution) -> LogicalTensor:
    """x [n, h, w, c] with w [o, kh, kw, i], or with a depth before the height."""
    lhs_dilation = tuple(1 if n == 1 else d for d, n in zip(how.lhs_dilation, x.shape[1:-1], strict=True))
    if any(d != 1 for d in lhs_dilation):
        y = _transposed(b, x, w, how, lhs_dilation)
        if y is not None:
            return y
        for i, d in enumerate(lhs_dilation):
            if d != 1:
                x = dilate(b, x, i + 1, d)
    if any(p < 0 for pair in how.padding for p in pair):
        x = b.pad(x, [(0, 0), *((min(l, 0), min(h, 0)) for l, h in how.padding), (0, 0)])
    padding = tuple((max(l, 0), max(h, 0)) for l, h in how.padding)
    steps, spread, groups = how.window_strides, how.rhs_dilation, how.feature_group_count
    attrs: dict[str, Any] = {"strides": steps, "dilations": spread, "padding": padding}
    rows = zip(x.shape[1:-1], padding, w.shape[1:-1], spread, steps, strict=True)
    space = [(n + l + h - (k - 1) * d - 1) // s + 1 for n, (l, h), k, d, s in rows]
    if groups == x.shape[3] and groups > 1 and x.ndim == 4:
        weights = b.transpose(w, (3, 1, 2, 0))
        op = "depthwise_conv_2d"
    else:
        weights, op = w, "conv_2d" if x.ndim == 4 else "conv_3d"
        attrs["groups"] = groups
    return _emit(b, op, x, weights, how, (x.shape[0], *space, w.shape[0]), attrs)


def _emit(
    b: GraphBuilder, op: str, x: LogicalTensor, w: LogicalTensor, how: Convolution, shape: Shape, attrs: dict[str, Any]
) -> LogicalTensor:
    weights = w if isinstance(how.kind, Grid) else b.real(w)
    return b.emit(op, [x, weights, how.bias], shape, how.kind, **attrs, activation=how.activation)


def _transposed(
    b: GraphBuilder, x: LogicalTensor, w: LogicalTensor, how: Convolution, lhs_dilation: Shape
) -> LogicalTensor | None:
    """The convolution of a dilated input as a transposed one: the kernel is turned round, padding cuts the rest.

    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), section 4. None if the result
    reaches beyond the full one, or is thinned out, or the features are in groups: then zeros are written between.
    """
    kernel = w.shape[1:-1]
    cut = tuple((k - 1 - l, k - 1 - h) for k, (l, h) in zip(kernel, how.padding, strict=True))
    plain = how.feature_group_count == 1 and all(v == 1 for v in (*how.window_strides, *how.rhs_dilation))
    if not plain or any(c < 0 for pair in cut for c in pair):
        return None
    space = [(n - 1) * s + k - l - h for n, s, k, (l, h) in zip(x.shape[1:-1], lhs_dilation, kernel, cut, strict=True)]
    turned_axes = tuple(range(1, w.ndim - 1))
    blocks = None if w.blocks is None else w.blocks.flipped(turned_axes)
    turned = LogicalTensor(w.shape, data=np.flip(w.full(), turned_axes), grid=w.grid, blocks=blocks)
    attrs: dict[str, Any] = {"strides": lhs_dilation, "padding": cut}
    op = "transpose_conv" if x.ndim == 4 else "transpose_conv_3d"
    return _emit(b, op, x, turned, how, (x.shape[0], *space, w.shape[0]), attrs)


RULES: Final[dict[str, Rule]] = {"conv_general_dilated": _conv}
