"""Nodes that together are one: what programs write in pieces and NPUs have as an instruction.

Means from sums, average pools with their divisors, relu6 from clamps, leaky relu, hard swish, nearest-neighbour
enlargement. Values off a grid only, unless stated: on one, every piece rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.rewrite import CLOSE, Pattern, Rewriter, constant, is_number, number, split_constant
from nxjax.lower.npu.rules.window import WindowGeometry, counts
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

Rule = Callable[[Rewriter, Node], Tensor | None]


def recognized(r: Rewriter, n: Node) -> Tensor | None:
    """What takes the place of ``n``'s result, or None."""
    if n.output.grid is not None:
        rules = (_ON_GRIDS[n.op],) if n.op in _ON_GRIDS else ()
    else:
        rules = _RULES.get(n.op, ())
    return next((found for rule in rules if (found := rule(r, n)) is not None), None)


def _float(n: Node) -> bool:
    return n.output.dtype in dtypes.FLOAT and not n.attrs.get("activation")


def _becomes(op: str, *patterns: tuple[Pattern, ...], real: bool = True) -> Rule:
    """``op`` of what one of the patterns calls x, of real values only if so asked."""

    def rule(r: Rewriter, n: Node) -> Tensor | None:
        found = next(filter(None, (r.match(n, p) for p in patterns)), None) if _float(n) or not real else None
        return None if found is None else r.like(n, op, [found["x"]])

    return rule


def _relu_on_grid(r: Rewriter, n: Node) -> Tensor | None:
    """maximum(x, 0), where it changes no grid."""
    found = r.match(n, ("x", 0))
    return r.like(n, "relu", [found["x"]]) if found is not None and found["x"].grid == n.output.grid else None


def _leaky_maximum(r: Rewriter, n: Node) -> Tensor | None:
    """maximum(x, alpha x) with 0 < alpha < 1."""
    found = r.match(n, ("x", ("mul", "x", "ALPHA")))
    alpha = number(found["ALPHA"]) if found is not None and _float(n) else None
    return r.like(n, "leaky_relu", [found["x"]], alpha=alpha) if found and alpha and 0 < alpha < 1 else None


def _leaky_select(r: Rewriter, n: Node) -> Tensor | None:
    """select(x > 0, x, alpha x): leaky relu, or prelu if alpha is a row of channels."""
    found = r.match(n, (("~greater greater_equal", "x", 0), "x", ("mul", "x", "ALPHA")))
    if found is None or not _float(n):
        return None
    x, slopes = found["x"], found["ALPHA"]
    alpha = number(slopes)
    if alpha is not None:
        return r.like(n, "leaky_relu", [x], alpha=alpha)
    if math.prod(slopes.shape[:-1]) != 1:
        return None
    assert slopes.data is not None
    return r.like(n, "prelu", [x, constant(slopes.data.reshape((1,) * (len(n.output.shape) - 2) + (-1,)))])


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
    x = total.operand()
    count = math.prod(x.shape[a] for a in total.attrs["axes"])
    if not is_number(pair[1], 1 / count):
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
    x = pool.operand()
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


def _kept_dimensions(r: Rewriter, n: Node) -> Tensor | None:
    """A reshape that puts reduced dimensions back."""
    (x,) = n.inputs
    inner = r.sole(x, "mean", "sum", "reduce_max", "reduce_min", "reduce_prod")
    if inner is None or inner.attrs["keepdims"]:
        return None
    source = inner.operand()
    shape = tuple(1 if i in inner.attrs["axes"] else m for i, m in enumerate(source.shape))
    if shape != n.output.shape:
        return None
    return r.emit(inner.op, [source], shape, inner.output.kind, axes=inner.attrs["axes"], keepdims=True)


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


_GATE: Final = ("~relu6", ("~add", "x", 3))
_hard_swish: Final = _becomes(
    "hard_swish", (("mul", "x", _GATE), 1 / 6), ("x", ("mul", _GATE, 1 / 6)), (_GATE, ("mul", "x", 1 / 6))
)
_ON_GRIDS: Final[dict[str, Rule]] = {"maximum": _relu_on_grid, "reshape": _kept_dimensions, "select": _bounded_where}
_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "maximum": (
        _becomes("relu6", (("minimum", "x", 6), 0)),
        _becomes("relu", ("x", 0)),
        _becomes("relu_n1_to_1", (("minimum", "x", 1), -1), real=False),
        _leaky_maximum,
    ),
    "minimum": (
        _becomes("relu6", (("relu", "x"), 6), real=False),
        _becomes("relu_n1_to_1", (("maximum", "x", -1), 1), real=False),
    ),
    "select": (_leaky_select,),
    "div": (_reciprocal,),
    "mul": (_becomes("square", ("x", "x")), _mean, _hard_swish, _average_with_padding, _product_of_products),
    "reshape": (_kept_dimensions,),
}
