"""What XLA's CPU compiler does one element at a time, or wrongly, in other ops.

Each function is a row (see `rows`): it gives None where the portable rule is the better one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.lower.stablehlo.builder import CALLED
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import constant
from nxjax.ops.conv import dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.scatter import SCATTERS, Scatter, scatter
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import dynamic_update_slice, pad, zero
from nxjax.ops.slicing import slice as slice_
from nxjax.ops.window import select_and_scatter_add
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType, Shape

# Each tap of a window is written out; beyond this many the program would grow more than the loop costs.
MAX_TAPS: Final = 64


def select_and_scatter(b: Any, out: ArrayType, source: Any, x: Any, /, **params: Any) -> Any:
    """The derivative of max pooling: one comparison and one addition per tap, ten to fifty times faster."""
    if math.prod(params["window_dimensions"]) > MAX_TAPS:
        return None
    return b.inline(select_and_scatter_add.expand, (source, x), params)


def convolution(b: Any, out: ArrayType, lhs: Any, rhs: Any, /, **params: Any) -> Any:
    """Depthwise convolutions: one multiplication and one addition per tap, some forty times faster."""
    numbers: ConvDimensionNumbers = params["dimension_numbers"]
    outputs, depth, *window = (rhs.type.shape[i] for i in numbers.rhs_spec)
    groups: int = params["feature_group_count"]
    depthwise = groups == outputs > 1 == depth
    if not depthwise or math.prod(window) > MAX_TAPS or 0 in (*out.shape, *lhs.type.shape, *rhs.type.shape):
        return None
    if out.dtype not in (dtypes.float32, dtypes.float64) or lhs.type.dtype != out.dtype:
        return None
    return b.inline(_depthwise, (lhs, rhs), {"out": out.shape, "window": tuple(window), **params})


def update_slice(b: Any, out: ArrayType, x: Any, update: Any, /, *starts: Any) -> Any:
    """An update that is read from what it is written into: by a selection, as no loop can do in place.

    XLA's CPU compiler puts the reading and the writing into one loop, which may read what it has overwritten
    (https://github.com/openxla/xla/issues/49176). It was not seen to do that with arguments and what loops carry, so
    that small updates of these stay as they are: a selection would take the time of the whole array in every turn.
    """
    if not _overlap(out, x, update):
        return None
    return b.inline(lambda x, u, *at: _selected(dynamic_update_slice, x, u, at, None), (x, update, *starts), {})


def scattered(op: Scatter) -> Any:
    """The row of a scatter that has one index, which XLA makes an `update_slice` of."""

    def row(b: Any, out: ArrayType, x: Any, indices: Any, updates: Any, /, **params: Any) -> Any:
        if math.prod(indices.type.shape[:-1]) != 1 or not _overlap(out, x, updates):
            return None
        written = lambda x, u, i: scatter(x, i, u, **params)
        return b.inline(lambda x, u, i: _selected(written, x, u, (i,), op.combiner), (x, updates, indices), {})

    return row


def _selected(written: Any, x: Array, update: Array, at: Any, combined: Any) -> Array:
    nowhere, everywhere = constant(False, dtypes.bool_, x.shape), constant(True, dtypes.bool_, update.shape)
    # Beside twos, since XLA makes an update in place again of a sum with what is 0 elsewhere.
    new = written(constant(2, x.dtype, x.shape), update, *at)
    return select_n(written(nowhere, everywhere, *at), x, combined(x, new) if combined else new)


_SCATTERS: Final = tuple(op.name for op in SCATTERS)


def _overlap(out: ArrayType, x: Any, update: Any) -> bool:
    size = math.prod(update.type.shape)
    large = 4 * size >= math.prod(out.shape)
    return size > 1 and out.dtype != dtypes.key and (large or bool(_origin(x)[-1].op)) and _reads(update, x)


def _origin(x: Any, through: Sequence[str] = ("reshape", "transpose", "dynamic_update_slice", *_SCATTERS)) -> list[Any]:
    """``x``, what that was made of, and so on, as far as it has the same memory."""
    found = [x]
    while found[-1].op in through:
        found.append(found[-1].sources[0])
    return found


def _reads(update: Any, x: Any) -> bool:
    """Whether ``update`` is made of ``x``, or of what has the elements of ``x`` in another shape."""
    same = _origin(x, ("reshape", "transpose"))
    # Of a called function's arguments each may have been made of the others.
    called = _origin(x)[-1].op == CALLED
    seen: set[Any] = set()
    left = [update]
    while left:
        ref = left.pop()
        if ref in same or (called and ref.op == CALLED):
            return True
        if ref not in seen:
            seen.add(ref)
            left += ref.sources
    return False


def _depthwise(
    lhs: Array,
    rhs: Array,
    *,
    out: Shape,
    window: Shape,
    window_strides: Shape,
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: Shape,
    rhs_dilation: Shape,
    dimension_numbers: ConvDimensionNumbers,
    **_: Any,
) -> Array:
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    spatial = lhs_spec[2:]
    config = [(0, 0, 0)] * lhs.ndim
    for d, (low, high), hole in zip(spatial, padding, lhs_dilation, strict=True):
        config[d] = (low, high, hole - 1)
    x = pad(lhs, zero(lhs), padding_config=tuple(config))
    total: Array | None = None
    for tap in itertools.product(*map(range, window)):
        start, limit, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
        for d, o, j, s, hole in zip(spatial, out_spec[2:], tap, window_strides, rhs_dilation, strict=True):
            start[d], steps[d] = j * hole, s
            limit[d] = j * hole + dilated(out[o], s)
        part = slice_(x, start_indices=tuple(start), limit_indices=tuple(limit), strides=tuple(steps))
        first, last = [0] * rhs.ndim, list(rhs.shape)
        for d, j in zip(rhs_spec[2:], tap, strict=True):
            first[d], last[d] = j, j + 1
        weight = slice_(rhs, start_indices=tuple(first), limit_indices=tuple(last))
        weight = reshape(weight, shape=(rhs.shape[rhs_spec[0]],))
        term = mul(part, broadcast_in_dim(weight, shape=part.shape, broadcast_dimensions=(lhs_spec[1],)))
        total = term if total is None else add(total, term)
    assert total is not None
    # Dimension d of the result is where the input has the dimension of the same meaning.
    meaning = {d: i for i, d in enumerate(out_spec)}
    order = tuple(lhs_spec[meaning[d]] for d in range(x.ndim))
    return transpose(total, permutation=order)
