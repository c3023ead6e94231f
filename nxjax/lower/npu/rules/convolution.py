"""Rules of convolutions: any layout and rank up to two spatial dimensions, as channels-last nodes.

Weights become [o, kh, kw, i / groups], depthwise ones [1, kh, kw, c * m]; a dilated input becomes a transposed
convolution. One spatial dimension is two of which the first has size 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, final

from nxjax.lower.npu.builder import Builder, Rule, Unsupported, Value
from nxjax.lower.npu.rules.move import dilate
from nxjax.lower.npu.rules.products import check_product
from nxjax.ops.quant_grid import Grid
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

Pairs = tuple[tuple[int, int], ...]


@final
@dataclass(frozen=True)
class Window:
    """How a kernel moves over the spatial dimensions."""

    strides: Shape
    padding: Pairs
    lhs_dilation: Shape
    rhs_dilation: Shape
    groups: int

    def with_unit(self) -> Window:
        """The same with one more spatial dimension in front, of size 1."""
        return Window(
            (1, *self.strides), ((0, 0), *self.padding), (1, *self.lhs_dilation), (1, *self.rhs_dilation), self.groups
        )


def _conv(
    b: Builder,
    out: ArrayType,
    x: Value,
    w: Value,
    *,
    window_strides: Shape,
    padding: Pairs,
    lhs_dilation: Shape,
    rhs_dilation: Shape,
    feature_group_count: int,
    batch_group_count: int,
    dimension_numbers: Any,
    **_: Any,
) -> Value:
    check_product(out.dtype)
    if batch_group_count != 1:
        raise Unsupported("groups of the batch have no NPU instruction", "use feature_group_count")
    x = b.real(x)
    if x.dtype != out.dtype:
        x, w = b.cast(x, out.dtype), b.cast(w, out.dtype)
    window = Window(window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count)
    return convolved(b, x, w, None, window, dimension_numbers, out.dtype)


def convolved(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None,
    window: Window,
    dimension_numbers: Any,
    kind: DType | Grid,
    activation: str | None = None,
) -> Value:
    """A convolution with constant weights in the layout that ``dimension_numbers`` say."""
    if not w.constant:
        raise Unsupported(
            "the weights are not constant",
            "pass the parameters as constants: nx.compile(f, constants=(0,), ...) or functools.partial(f, params)",
        )
    lhs, rhs, spec = dimension_numbers
    x = b.transpose(x, (lhs[0], *lhs[2:], lhs[1]))
    w = b.transpose(b.full(w), (rhs[0], *rhs[2:], rhs[1]))
    y = _any_rank(b, x, w, bias, window, kind, activation)
    back = (spec[0], *spec[2:], spec[1])
    return b.transpose(y, [back.index(i) for i in range(y.ndim)])


def _any_rank(
    b: Builder, x: Value, w: Value, bias: Value | None, window: Window, kind: DType | Grid, activation: str | None
) -> Value:
    spatial = x.ndim - 2
    if spatial == 2:
        return _flat(b, x, w, bias, window, kind, activation)
    if spatial < 2:
        one = b.reshape(x, (x.shape[0], 1, *x.shape[1:]))
        kernel = b.reshape(w, (w.shape[0], 1, *w.shape[1:]))
        y = _any_rank(b, one, kernel, bias, window.with_unit(), kind, activation)
        return b.reshape(y, (y.shape[0], *y.shape[2:]))
    at = _pointwise(w, window)
    if at is None:
        raise Unsupported(
            "a kernel over three dimensions has no NPU instruction", "split it into 2-D convolutions over slices"
        )
    # A dimension that the kernel does not mix is part of the batch.
    order = [0, at + 1, *(i for i in range(1, x.ndim) if i != at + 1)]
    moved = b.transpose(x, order)
    n, d = moved.shape[:2]
    drop = lambda v: (*v[:at], *v[at + 1 :])
    kernel = b.reshape(w, (w.shape[0], *drop(w.shape[1:])))
    inner = replace(
        window,
        strides=drop(window.strides),
        padding=drop(window.padding),
        lhs_dilation=drop(window.lhs_dilation),
        rhs_dilation=drop(window.rhs_dilation),
    )
    y = _any_rank(b, b.reshape(moved, (n * d, *moved.shape[2:])), kernel, bias, inner, kind, activation)
    y = b.reshape(y, (n, d, *y.shape[1:]))
    return b.transpose(y, [order.index(i) for i in range(x.ndim)])


def _pointwise(w: Value, window: Window) -> int | None:
    """A spatial dimension in which the kernel is one point that visits every place."""
    for i in range(w.ndim - 2):
        if (w.shape[i + 1], window.strides[i], window.padding[i], window.lhs_dilation[i]) == (1, 1, (0, 0), 1):
            return i
    return None


def _flat(
    b: Builder, x: Value, w: Value, bias: Value | None, window: Window, kind: DType | Grid, activation: str | None
) -> Value:
    """x [n, h, w, c] with w [o, kh, kw, i]."""
    lhs_dilation = tuple(1 if n == 1 else d for d, n in zip(window.lhs_dilation, x.shape[1:3], strict=True))
    if any(d != 1 for d in lhs_dilation):
        y = _transposed(b, x, w, bias, window, lhs_dilation, kind, activation)
        if y is not None:
            return y
        for i, d in enumerate(lhs_dilation):
            if d != 1:
                x = dilate(b, x, i + 1, d)
    if any(p < 0 for pair in window.padding for p in pair):
        x = b.pad(x, [(0, 0), *((min(l, 0), min(h, 0)) for l, h in window.padding), (0, 0)])
    padding = tuple((max(l, 0), max(h, 0)) for l, h in window.padding)
    attrs: dict[str, Any] = {"strides": window.strides, "dilations": window.rhs_dilation, "padding": padding}
    space = [
        (n + l + h - (k - 1) * d - 1) // s + 1
        for n, (l, h), k, d, s in zip(
            x.shape[1:3], padding, w.shape[1:3], window.rhs_dilation, window.strides, strict=True
        )
    ]
    shape = (x.shape[0], *space, w.shape[0])
    if window.groups == x.shape[3] and window.groups > 1:
        weights = b.transpose(w, (3, 1, 2, 0))
        op = "depthwise_conv_2d"
    else:
        weights, op = w, "conv_2d"
        attrs["groups"] = window.groups
    if not isinstance(kind, Grid):
        weights = b.real(weights)
    return b.emit(op, [x, weights, bias], shape, kind, **attrs, activation=activation)


def _transposed(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None,
    window: Window,
    lhs_dilation: Shape,
    kind: DType | Grid,
    activation: str | None,
) -> Value | None:
    """The convolution of a dilated input as a transposed one: the kernel is turned round, padding cuts the rest.

    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), section 4. None if the result
    reaches beyond the full one, or is thinned out, or the features are in groups: then zeros are written between.
    """
    kernel = w.shape[1:3]
    cut = tuple((k - 1 - l, k - 1 - h) for k, (l, h) in zip(kernel, window.padding, strict=True))
    plain = window.groups == 1 and all(v == 1 for v in (*window.strides, *window.rhs_dilation))
    if not plain or any(c < 0 for pair in cut for c in pair):
        return None
    space = [(n - 1) * s + k - l - h for n, s, k, (l, h) in zip(x.shape[1:3], lhs_dilation, kernel, cut, strict=True)]
    turned = turn(b, w)
    if not isinstance(kind, Grid):
        turned = b.real(turned)
    shape = (x.shape[0], *space, w.shape[0])
    attrs: dict[str, Any] = {"strides": lhs_dilation, "padding": cut}
    return b.emit("transpose_conv", [x, turned, bias], shape, kind, **attrs, activation=activation)


def turn(b: Builder, w: Value) -> Value:
    """The constant kernel [o, kh, kw, i] reversed in both spatial dimensions."""
    assert w.data is not None
    return Value(w.shape, data=w.full()[:, ::-1, ::-1], grid=w.grid)


RULES: Final[dict[str, Rule]] = {"conv_general_dilated": _conv}
