"""Nodes that together are one: what programs write in pieces and NPUs have as an instruction.

Means from sums, average pools with their divisors, relu6 from clamps, leaky relu, hard swish, nearest-neighbour
enlargement. Values off a grid only, unless stated: on one, every piece rounds.
"""

from __future__ import annotations

import math

import numpy as np

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.rewrite import Rewriter, constant, number, split_constant
from nxjax.lower.npu.rules.window import WindowGeometry, counts
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

CLOSE = 1e-6


def recognized(r: Rewriter, n: Node) -> Tensor | None:
    """What takes the place of ``n``'s result, or None."""
    if n.output.grid is not None:
        on_grid = {"maximum": _relu, "reshape": _kept_dimensions, "select": _bounded_where}.get(n.op)
        return on_grid(r, n) if on_grid is not None else None
    for rule in _RULES.get(n.op, ()):
        found = rule(r, n)
        if found is not None:
            return found
    return None


def _float(n: Node) -> bool:
    return n.output.dtype in dtypes.FLOAT and not n.attrs.get("activation")


def _is(t: Tensor | None, value: float) -> bool:
    x = number(t)
    return x is not None and math.isclose(x, value, rel_tol=CLOSE)


def _bounded(n: Node, value: float) -> Tensor | None:
    """The operand that is bounded by the constant ``value``."""
    pair = split_constant(n)
    return pair[0] if pair is not None and number(pair[1]) == value else None


def _relu(r: Rewriter, n: Node) -> Tensor | None:
    """maximum(x, 0); also on a grid, where it changes none."""
    x = _bounded(n, 0)
    out = n.output
    if x is None or x.grid != out.grid or (out.grid is None and out.dtype not in dtypes.FLOAT):
        return None
    inner = r.sole(x, "minimum")
    if inner is not None and out.grid is None:
        capped = _bounded(inner, 6)
        if capped is not None:
            return r.like(n, "relu6", [capped])
    return r.like(n, "relu", [x])


def _relu_bounded_above(r: Rewriter, n: Node) -> Tensor | None:
    """minimum(relu(x), 6), minimum(maximum(x, -1), 1)."""
    x = _bounded(n, 6)
    inner = r.sole(x, "relu")
    if inner is not None:
        return r.like(n, "relu6", inner.inputs)
    x = _bounded(n, 1)
    inner = r.sole(x, "maximum")
    if inner is not None:
        below = _bounded(inner, -1)
        if below is not None:
            return r.like(n, "relu_n1_to_1", [below])
    return None


def _relu_bounded_below(r: Rewriter, n: Node) -> Tensor | None:
    """maximum(minimum(x, 1), -1)."""
    x = _bounded(n, -1)
    inner = r.sole(x, "minimum")
    above = _bounded(inner, 1) if inner is not None else None
    return None if above is None else r.like(n, "relu_n1_to_1", [above])


def _leaky_maximum(r: Rewriter, n: Node) -> Tensor | None:
    """maximum(x, alpha x) with 0 < alpha < 1."""
    for x, y in (n.inputs, n.inputs[::-1]):
        product = r.sole(y, "mul")
        pair = split_constant(product) if product is not None and _float(product) else None
        if pair is not None and pair[0] is x:
            alpha = number(pair[1])
            if alpha is not None and 0 < alpha < 1:
                return r.like(n, "leaky_relu", [x], alpha=alpha)
    return None


def _leaky_select(r: Rewriter, n: Node) -> Tensor | None:
    """select(x > 0, x, alpha x): leaky relu, or prelu if alpha is a row of channels."""
    condition, x, y = n.inputs
    test = r.producer(condition, "greater", "greater_equal")
    product = r.sole(y, "mul")
    if (
        test is None
        or product is None
        or not _float(product)
        or test.inputs[0] is not x
        or not _is_zero(test.inputs[1])
    ):
        return None
    pair = split_constant(product)
    if pair is None or pair[0] is not x:
        return None
    alpha = number(pair[1])
    if alpha is not None:
        return r.like(n, "leaky_relu", [x], alpha=alpha)
    if math.prod(pair[1].shape[:-1]) != 1:
        return None
    data = pair[1].data
    assert data is not None
    row = constant(data.reshape((1,) * (len(n.output.shape) - 2) + (-1,)))
    return r.like(n, "prelu", [x, row])


def _bounded_where(r: Rewriter, n: Node) -> Tensor | None:
    """select(mask, x, value) with a known mask and value, on a grid: bounds that leave x no other value there.

    Masks of attention are written so; every NPU has minimum and maximum, few have select.
    """
    mask, yes, no = n.inputs
    grid = n.output.grid
    if mask is None or mask.data is None or yes is None or no is None or yes.constant == no.constant or grid is None:
        return None
    x, value = (no, yes) if yes.constant else (yes, no)
    if value.data is None or value.data.size != 1 or not x.grid == value.grid == grid:
        return None
    there = mask.data if yes.constant else ~mask.data
    stored = int(value.data.reshape(()))
    low, high = grid.limits
    bound = lambda free: constant(np.where(there, stored, free).astype(grid.dtype), grid)
    y = x
    if stored != high:
        y = r.like(n, "minimum", [y, bound(high)])
    if stored != low:
        y = r.like(n, "maximum", [y, bound(low)])
    return y


def _is_zero(t: Tensor | None) -> bool:
    return number(t) == 0


def _reciprocal(r: Rewriter, n: Node) -> Tensor | None:
    """x / constant is a product, which every NPU has."""
    x, y = n.inputs
    if not _float(n) or y is None or y.data is None or y.grid is not None or not np.all(y.data):
        return None
    with np.errstate(all="ignore"):
        inverse = (1 / y.data.astype(np.float64)).astype(y.dtype)
    if not np.all(np.isfinite(inverse)) or not np.all(inverse):
        return None
    return r.like(n, "mul", [x, constant(inverse)], activation=None)


def _mean(r: Rewriter, n: Node) -> Tensor | None:
    """sum(x) * (1 / n), also of a sum that was given another shape."""
    pair = split_constant(n)
    if pair is None:
        return None
    shaped = r.sole(pair[0], "reshape")
    total = r.sole(pair[0] if shaped is None else shaped.inputs[0], "sum")
    if total is None or total.output.grid is not None or n.output.shape != pair[0].shape:
        return None
    x = total.inputs[0]
    assert x is not None
    count = math.prod(x.shape[a] for a in total.attrs["axes"])
    if not _is(pair[1], 1 / count):
        return None
    y = r.emit("mean", [x], total.output.shape, n.output.dtype, **total.attrs)
    return y if shaped is None else r.reshape(y, n.output.shape)


def _product_of_products(r: Rewriter, n: Node) -> Tensor | None:
    """(x * a) * b with constants a and b; x alone if they are the inverse of one another."""
    pair = split_constant(n)
    if pair is None or not _float(n):
        return None
    x, factor = pair[0], _data(pair[1])
    inner = r.sole(x, "mul")
    first = split_constant(inner) if inner is not None and _float(inner) and x.grid is None else None
    if first is not None:
        x, factor = first[0], _data(first[1]) * factor
    if x.shape != n.output.shape:
        return None
    if np.allclose(factor, 1, rtol=CLOSE, atol=0):
        return x
    if first is None or factor.size > max(pair[1].size, first[1].size):
        return None
    if (factor == factor.flat[0]).all():
        factor = factor.reshape(-1)[:1].reshape(())
    return r.like(n, "mul", [x, constant(factor.astype(n.output.dtype))], activation=None)


def _data(t: Tensor) -> NDArray:
    """A constant's real values in float64."""
    assert t.data is not None
    data = t.data if t.grid is None else t.grid.dequantize(t.data)
    return data.astype(np.float64)


def _average_with_padding(r: Rewriter, n: Node) -> Tensor | None:
    """An average of what lies inside, times the share that lies inside: padding counts as zeros."""
    pair = split_constant(n)
    pool = r.sole(pair[0], "average_pool_2d") if pair is not None else None
    if pair is None or pool is None or pool.output.grid is not None or not _float(pool) or not _float(n):
        return None
    x = pool.inputs[0]
    assert x is not None
    window, strides, padding = (pool.attrs[k] for k in ("window", "strides", "padding"))
    if not any(map(any, padding)):
        return None
    box = WindowGeometry((1, *window, 1), (1, *strides, 1), ((0, 0), *padding, (0, 0)))
    share = counts(x.shape, box) / math.prod(window)
    factor = _data(pair[1])
    if factor.ndim != 4 or factor.shape != share.shape or not np.allclose(factor, share, rtol=CLOSE, atol=0):
        return None
    widths = ((0, 0), *padding, (0, 0))
    shape = tuple(m + l + h for m, (l, h) in zip(x.shape, widths, strict=True))
    padded = r.emit("pad", [x], shape, x.dtype, padding=widths, value=None)
    return r.again(pool, [padded], padding=((0, 0), (0, 0)))


def _hard_swish(r: Rewriter, n: Node) -> Tensor | None:
    """x * (relu6(x + 3) / 6), (x * relu6(x + 3)) / 6"""
    if not _float(n):
        return None
    pair = split_constant(n)
    if pair is not None and _is(pair[1], 1 / 6):
        inner = r.sole(pair[0], "mul")
        return None if inner is None or not _float(inner) else _swished(r, n, inner.inputs[0], inner.inputs[1])
    for x, gate in (n.inputs, n.inputs[::-1]):
        scaled = r.sole(gate, "mul")
        parts = split_constant(scaled) if scaled is not None and _float(scaled) else None
        if parts is not None and _is(parts[1], 1 / 6):
            found = _swished(r, n, x, parts[0])
            if found is not None:
                return found
    return None


def _swished(r: Rewriter, n: Node, x: Tensor | None, ramp: Tensor | None) -> Tensor | None:
    for value, gate in ((x, ramp), (ramp, x)):
        six = r.producer(gate, "relu6")
        shifted = r.producer(six.inputs[0], "add") if six is not None else None
        parts = split_constant(shifted) if shifted is not None and _float(shifted) else None
        if parts is not None and parts[0] is value and number(parts[1]) == 3:
            return r.like(n, "hard_swish", [value])
    return None


def _kept_dimensions(r: Rewriter, n: Node) -> Tensor | None:
    """A reshape that puts reduced dimensions back."""
    (x,) = n.inputs
    inner = r.sole(x, "mean", "sum", "reduce_max", "reduce_min", "reduce_prod")
    if inner is None or inner.attrs["keepdims"]:
        return None
    source = inner.inputs[0]
    assert source is not None
    shape = tuple(1 if i in inner.attrs["axes"] else m for i, m in enumerate(source.shape))
    if shape != n.output.shape:
        return None
    return r.emit(inner.op, [source], shape, inner.output.kind, axes=inner.attrs["axes"], keepdims=True)


def _square(r: Rewriter, n: Node) -> Tensor | None:
    x, y = n.inputs
    if x is not y or not _float(n):
        return None
    return r.like(n, "square", [x])


def enlarged(r: Rewriter, n: Node) -> Tensor | None:
    """Every element of a picture repeated along height and width: resize_nearest.

    Asked before layouts, so that channels may come first: then the repeated dimensions are the last two.
    """
    second = _repeated(r, n)
    first = _repeated(r, r.sole(second[0])) if second is not None else None
    if second is None or first is None:
        return None
    x, factors = first[0], {first[1]: first[2], second[1]: second[2]}
    if set(factors) not in ({1, 2}, {2, 3}):
        return None
    before = 3 in factors
    order = (0, 2, 3, 1) if before else (0, 1, 2, 3)
    stored = tuple(x.shape[i] for i in order)
    shape = tuple(x.shape[i] * factors.get(i, 1) for i in order)
    moved = r.emit("transpose", [x], stored, x.kind, permutation=order) if before else x
    attrs = {"size": shape[1:3], "align_corners": False, "half_pixel_centers": False}
    y = r.emit("resize_nearest", [moved], shape, x.kind, **attrs)
    return r.emit("transpose", [y], n.output.shape, x.kind, permutation=(0, 3, 1, 2)) if before else y


def _repeated(r: Rewriter, n: Node | None) -> tuple[Tensor, int, int] | None:
    """reshape(broadcast_to(reshape(x))) as x, the axis along which elements repeat, and how often."""
    if n is None or n.op != "reshape" or len(n.output.shape) != 4:
        return None
    wide = r.sole(n.inputs[0], "broadcast_to")
    thin = r.sole(wide.inputs[0], "reshape") if wide is not None else None
    x = thin.inputs[0] if thin is not None else None
    if wide is None or thin is None or x is None or len(x.shape) != 4 or len(wide.output.shape) != 5:
        return None
    for axis in (1, 2, 3):
        head, tail = x.shape[: axis + 1], x.shape[axis + 1 :]
        times = wide.output.shape[axis + 1]
        shapes = ((*head, 1, *tail), (*head, times, *tail), (*x.shape[:axis], x.shape[axis] * times, *tail))
        if (thin.output.shape, wide.output.shape, n.output.shape) == shapes:
            return x, axis, times
    return None


_RULES = {
    "maximum": (_relu, _relu_bounded_below, _leaky_maximum),
    "minimum": (_relu_bounded_above,),
    "select": (_leaky_select,),
    "div": (_reciprocal,),
    "mul": (_square, _mean, _hard_swish, _average_with_padding, _product_of_products),
    "reshape": (_kept_dimensions,),
}
