"""Rules of reduce: the usual bodies are nxjax's reductions, any other is nxjax's general one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.ops import argreduce, reduce
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import reshape, transpose
from nxjax.ops.slicing import concatenate
from nxjax.ops.slicing import slice as slice_op
from nxjax.stablehlo import regions
from nxjax.stablehlo.elementwise import binary
from nxjax.stablehlo.shapes import is_iota, spread
from nxjax.stablehlo.walk import Operation, Scope, result, rule
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.trace.dtypes import highest, lowest
from nxjax.transforms.control.reduce import reduce as general
from nxjax.transforms.vmap import vmap

_OPS: Final[dict[str, Any]] = {
    "add": reduce.reduce_sum,
    "multiply": reduce.reduce_prod,
    "maximum": reduce.reduce_max,
    "minimum": reduce.reduce_min,
    "and": reduce.reduce_and,
    "or": reduce.reduce_or,
    "xor": reduce.reduce_xor,
}
_TRUTH: Final = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}


def named(name: str, dtype: dtypes.DType) -> str:
    """The reduction that a body is for a dtype: sums of truth values are disjunctions."""
    return _TRUTH.get(name, name) if dtype == dtypes.bool_ else name


def is_identity(name: str, start: Array) -> bool:
    """Whether a reduction that begins with ``start`` begins with nothing."""
    if not isinstance(start, DeviceArray) or start.shape:
        return False
    value, dtype = start.numpy()[()], start.dtype
    if name in ("maximum", "minimum"):
        if dtype in dtypes.COMPLEX:
            return False
        end = lowest(dtype) if name == "maximum" else highest(dtype)
        return bool(value == np.asarray(end).astype(dtype))
    identity = _OPS[name].identity(dtype)
    return bool(value == np.asarray(identity).astype(dtype))


def reduced(name: str, x: Array, start: Array, axes: tuple[int, ...]) -> Array | None:
    """A reduction by one operation, or None where nxjax has none for the dtype."""
    name = named(name, x.dtype)
    if name not in _OPS or (name in ("maximum", "minimum") and x.dtype in dtypes.COMPLEX):
        return None
    y = _OPS[name](x, axes=axes) if axes else x
    if is_identity(name, start):
        return y
    return binary(name, spread(start, y.shape, ()), y)


@rule("stablehlo.reduce")
def _reduce(scope: Scope, op: Operation, *operands: Array) -> Any:
    n = len(operands) // 2
    xs, starts = operands[:n], operands[n:]
    axes = tuple(op.attributes["dimensions"])
    body = op.regions[0]
    names = regions.monoids(body)
    if names is not None and all(x.dtype == result(op, i).dtype for i, x in enumerate(xs)):
        found = [reduced(name, x, s, axes) for name, x, s in zip(names, xs, starts, strict=True)]
        if all(y is not None for y in found):
            return tuple(found)
    if n == 2 and len(axes) == 1 and xs[0].shape[axes[0]]:
        for order in ((0, 1), (1, 0)):
            if is_iota(scope, op, order[1], axes[0]):
                kind = regions.extremum(scope, body, order)
                if kind is not None:
                    return _extremum(scope, op, kind, order, xs, starts, axes)
    # Operands may be narrower than what they are accumulated in.

    wide = [
        x if x.dtype == s.dtype else convert_element_type(x, dtype=s.dtype) for x, s in zip(xs, starts, strict=True)
    ]
    program = scope.staged(body, "reduce")
    if program.constvars:
        return _by_halves(scope, op, wide, starts, axes)
    return general(*wide, *starts, computation=program, dimensions=axes)


def _by_halves(scope: Scope, op: Operation, xs: Sequence[Array], starts: Sequence[Array], axes: tuple[int, ...]) -> Any:
    """A body that reads values from outside: its consts are scalars or arrays that every step sees."""
    kept = tuple(i for i in range(xs[0].ndim) if i not in axes)
    inner = tuple(xs[0].shape[i] for i in kept)
    count = int(np.prod([xs[0].shape[a] for a in axes], dtype=np.int64))
    rows = [reshape(transpose(x, permutation=(*axes, *kept)), shape=(count, *inner)) for x in xs]

    def cut(x: Array, start: int, stop: int, step: int) -> Array:
        rest = x.shape[1:]
        none = (0,) * len(rest)
        return slice_op(
            x, start_indices=(start, *none), limit_indices=(max(start, stop), *rest), strides=(step, *(1,) * len(rest))
        )

    while count > 1:
        even = count - count % 2
        joined = apply(scope, op, [cut(x, 0, even, 2) for x in rows], [cut(x, 1, even, 2) for x in rows])
        if count % 2:
            joined = [concatenate(y, cut(x, even, count, 1), dimension=0) for y, x in zip(joined, rows, strict=True)]
        rows, count = joined, count // 2 + count % 2
    totals = [spread(s, (1, *inner), ()) for s in starts]
    if count:
        totals = apply(scope, op, totals, rows)
    return tuple(reshape(y, shape=inner) for y in totals)


def apply(scope: Scope, op: Operation, left: Sequence[Array], right: Sequence[Array], region: int = 0) -> list[Array]:
    """The body on arrays of one shape, element by element."""
    function: Any = lambda *scalars: tuple(scope.function(op.regions[region])(*scalars))
    if 0 in left[0].shape:
        return list(left)
    for _ in left[0].shape:
        function = vmap(function)
    return list(function(*left, *right))


def _extremum(
    scope: Scope,
    op: Operation,
    kind: str,
    order: tuple[int, int],
    xs: Sequence[Array],
    starts: Sequence[Array],
    axes: tuple[int, ...],
) -> Any:
    """argmax or argmin with the extremum itself."""
    x, index = xs[order[0]], xs[order[1]]
    arg = argreduce.argmax if kind == "argmax" else argreduce.argmin
    take = reduce.reduce_max if kind == "argmax" else reduce.reduce_min
    pair = [take(x, axes=axes), arg(x, axes=axes, index_dtype=index.dtype)]
    found = [pair[i] for i in order]
    start, first = starts[order[0]], starts[order[1]]
    nothing = is_identity("maximum" if kind == "argmax" else "minimum", start)
    if nothing and isinstance(first, DeviceArray) and not first.numpy().any():
        return tuple(found)
    return tuple(apply(scope, op, [spread(s, found[0].shape, ()) for s in starts], found))
