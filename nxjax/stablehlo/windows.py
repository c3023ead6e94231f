"""Rules of reduce_window and select_and_scatter.

The usual bodies are nxjax's window reductions and running sums. For any other the windows are laid out side by side,
one slice of the padded operand per place in the window, and reduced by the body.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.ops import cumulative, slicing, window
from nxjax.ops.base import constant, like
from nxjax.ops.bitwise import and_, not_, or_
from nxjax.ops.compare import eq, ge
from nxjax.ops.select import select_n
from nxjax.stablehlo import regions
from nxjax.stablehlo.elementwise import binary
from nxjax.stablehlo.reductions import apply, is_identity, named
from nxjax.stablehlo.shapes import spread
from nxjax.stablehlo.walk import Block, Operation, Scope, result, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import Shape

_WINDOWS: Final[dict[str, Any]] = {
    "add": window.reduce_window_sum,
    "maximum": window.reduce_window_max,
    "minimum": window.reduce_window_min,
}
# Windows of at most so many elements are reduced in order by bodies that are no known operation.
IN_ORDER: Final = 64
_RUNNING: Final[dict[str, Any]] = {
    "add": cumulative.cumsum,
    "multiply": cumulative.cumprod,
    "maximum": cumulative.cummax,
    "minimum": cumulative.cummin,
}


def _parameters(op: Operation, ndim: int) -> dict[str, Any]:
    """Windows as nxjax's ops take them."""
    a, ones = op.attributes, (1,) * ndim
    padding = a.get("padding")
    pads = ((0, 0),) * ndim if padding is None else tuple((int(l), int(h)) for l, h in padding)
    return {
        "window_dimensions": tuple(a.get("window_dimensions") or ones),
        "window_strides": tuple(a.get("window_strides") or ones),
        "padding": pads,
        "base_dilation": tuple(a.get("base_dilations") or ones),
        "window_dilation": tuple(a.get("window_dilations") or ones),
    }


def _running(x: Array, name: str, params: dict[str, Any]) -> Array | None:
    """A running reduction, where every window begins or ends at an end of the operand."""
    sizes, pads = params["window_dimensions"], params["padding"]
    axes = [i for i, k in enumerate(sizes) if k > 1]
    plain = all(v == 1 for key in ("window_strides", "base_dilation", "window_dilation") for v in params[key])
    if len(axes) != 1 or not plain or name not in _RUNNING or x.dtype == dtypes.bool_:
        return None
    (axis,), n = axes, x.shape[axes[0]]
    if x.dtype in dtypes.COMPLEX and name in ("maximum", "minimum"):
        return None
    others = all(pads[i] == (0, 0) for i in range(x.ndim) if i != axis)
    if sizes[axis] != n or not others or pads[axis] not in ((n - 1, 0), (0, n - 1)):
        return None
    return _RUNNING[name](x, axis=axis, reverse=pads[axis] == (0, n - 1))


def _window(name: str, x: Array, start: Array, params: dict[str, Any]) -> Array | None:
    """A window reduction by one operation, or None where nxjax has none."""
    if not is_identity(named(name, x.dtype), start):
        return None
    running = _running(x, name, params)
    if running is not None:
        return running
    if name not in _WINDOWS or x.dtype == dtypes.bool_:
        return None
    if x.dtype in dtypes.COMPLEX and name != "add":
        return None
    return _WINDOWS[name](x, **params)


def taps(x: Array, value: Array, params: dict[str, Any], shape: Shape) -> list[Array]:
    """For each place in the window, the elements there of all windows."""
    config = tuple(
        (low, high, d - 1) for (low, high), d in zip(params["padding"], params["base_dilation"], strict=True)
    )
    padded = x if not any(map(any, config)) else slicing.pad(x, value, padding_config=config)
    found: list[Array] = []
    for start in places(params):
        limit = tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, shape, params["window_strides"], strict=True))
        found.append(slicing.slice(padded, start_indices=start, limit_indices=limit, strides=params["window_strides"]))
    return found


def places(params: dict[str, Any]) -> list[tuple[int, ...]]:
    """Where each place in the window lies from the window's corner."""
    return [
        tuple(j * d for j, d in zip(tap, params["window_dilation"], strict=True))
        for tap in itertools.product(*map(range, params["window_dimensions"]))
    ]


@rule("stablehlo.reduce_window")
def _reduce_window(scope: Scope, op: Operation, *operands: Array) -> Any:
    n = len(operands) // 2
    xs, starts = operands[:n], operands[n:]
    params = _parameters(op, xs[0].ndim)
    names = regions.monoids(op.regions[0])
    if names is not None:
        found = [_window(name, x, s, params) for name, x, s in zip(names, xs, starts, strict=True)]
        if all(y is not None for y in found):
            return tuple(found)
    shape = result(op).shape
    totals = [spread(s, shape, ()) for s in starts]
    if 0 in shape or not math.prod(params["window_dimensions"]):
        return tuple(totals)
    rows = zip(*(taps(x, constant(0, x.dtype), params, shape) for x in xs), strict=True)
    # XLA leaves out what is padding, whatever the initial value.
    padded = any(map(any, params["padding"])) or any(d > 1 for d in params["base_dilation"])
    inside: list[Any] = [None] * math.prod(params["window_dimensions"])
    if padded:
        mask = constant(True, dtypes.bool_, xs[0].shape)
        inside = taps(mask, constant(False, dtypes.bool_), params, shape)
    combined: list[_Part] = [(list(row), here) for row, here in zip(rows, inside, strict=True)]
    if names is None and len(combined) <= IN_ORDER:
        # A body may not be associative: as XLA does it, one element after the other.
        total: _Part = totals, None
        for part in combined:
            total = _present(scope, op, names, total, part)
        return tuple(total[0])
    # Neighbours are combined first, so that the depth is the logarithm of the window's size.
    while len(combined) > 1:
        pairs = range(0, len(combined) - 1, 2)
        joined = [_present(scope, op, names, combined[i], combined[i + 1]) for i in pairs]
        combined = [*joined, *([combined[-1]] if len(combined) % 2 else [])]
    return tuple(_present(scope, op, names, (totals, None), combined[0])[0])


# Elements of one place in all windows, and which of them lie in the operand (None: all).
_Part = tuple[list[Array], Array | None]


def _present(scope: Scope, op: Operation, names: list[str] | None, left: _Part, right: _Part) -> _Part:
    """Two parts combined where both are there, else the one that is."""
    (xs, here), (ys, there) = left, right
    both = _joined(scope, op, names, xs, ys)
    if there is not None:
        both = [select_n(there, x, z) for x, z in zip(xs, both, strict=True)]
    if here is not None:
        both = [select_n(here, y, z) for y, z in zip(ys, both, strict=True)]
    if here is None or there is None:
        return both, None
    return both, or_(here, there)


def _joined(
    scope: Scope, op: Operation, names: list[str] | None, left: Sequence[Array], right: Sequence[Array]
) -> list[Array]:
    if names is None:
        return apply(scope, op, left, right)
    return [binary(name, x, y) for name, x, y in zip(names, left, right, strict=True)]


def _direction(block: Block) -> str | None:
    """``ge`` or ``le`` for a body that compares its two arguments so."""
    if len(block.operations) != 1 or block.operations[0].name != "stablehlo.compare":
        return None
    (op,) = block.operations
    if op.results != block.results or op.operands != block.arguments:
        return None
    return {"GE": "ge", "LE": "le"}.get(op.attributes["comparison_direction"])


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(scope: Scope, op: Operation, x: Array, source: Array, start: Array) -> Array:
    params = _parameters(op, x.ndim)
    select, body = op.regions
    direction, name = _direction(select), regions.monoid(body)
    real = x.dtype in dtypes.FLOAT or x.dtype in dtypes.INTEGER
    if direction is not None and name == "add" and real and is_identity("add", start):
        return window.select_and_scatter_add(source, x, select_prim=direction, **params)
    shape = source.shape
    if 0 in shape:
        return spread(start, x.shape, ())
    inside = taps(like_mask(x, True), constant(False, dtypes.bool_), params, shape)
    values = taps(x, like_scalar(x), params, shape)
    winner = constant(-1, dtypes.int32, shape)
    best = values[0]
    for i, (value, here) in enumerate(zip(values, inside, strict=True)):
        (kept,) = apply(scope, op, [best], [value], region=0)
        keep = and_(ge(winner, like(winner, 0)), kept)
        taken = and_(here, not_(keep))
        best = select_n(taken, best, value)
        winner = select_n(taken, winner, like(winner, i))
    config = tuple((low, high, 0) for low, high in params["padding"])
    total = slicing.pad(spread(start, x.shape, ()), start, padding_config=config)
    for i, corner in enumerate(places(params)):
        edges = tuple(
            (a, m - a - ((n - 1) * s + 1), s - 1)
            for a, m, n, s in zip(corner, total.shape, shape, params["window_strides"], strict=True)
        )
        mine = eq(winner, like(winner, i))
        there = slicing.pad(mine, constant(False, dtypes.bool_), padding_config=edges)
        added = slicing.pad(source, constant(0, source.dtype), padding_config=edges)
        (combined,) = apply(scope, op, [total], [added], region=1)
        total = select_n(there, total, combined)
    return slicing.pad(total, start, padding_config=tuple((-low, -high, 0) for low, high in params["padding"]))


def like_mask(x: Array, value: bool) -> Array:
    """Truth values of the shape of ``x``."""
    return constant(value, dtypes.bool_, x.shape)


def like_scalar(x: Array) -> Array:
    """A zero of the dtype of ``x``."""
    return constant(0, x.dtype)
