"""Sorting along any dimension: a network of comparisons over all tiles at once (Batcher, "Sorting networks and their
applications", 1968). Its stages are elementwise: each element looks at its partner through a reversed view.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import View
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.bitwise import and_, or_
from nxjax.ops.compare import eq, lt
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape, rev, transpose
from nxjax.ops.slicing import pad
from nxjax.ops.slicing import slice as slice_op
from nxjax.ops.sort import ordered_bits, take_along
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Equation


def sort(b: Builder, e: Equation, *xs: View) -> tuple[View, ...]:
    axis: int = e.params["dimension"]
    keys: int = e.params.get("num_keys", 1)
    shape = xs[0].shape
    n = shape[axis]
    if n < 2 or not xs[0].size:
        return xs
    order = b.inline(lambda *v: _order(v, axis), xs[:keys])
    return tuple(b.inline(lambda x, i: take_along(x, i, axis), [x, order]) for x in xs)


def _order(keys: tuple[Array, ...], axis: int) -> Array:
    """The stable sorting permutation, of the keys' shape."""
    shape, n = keys[0].shape, keys[0].shape[axis]
    last = len(shape) - 1
    moved = tuple(d for d in range(len(shape)) if d != axis)
    whole = 1 << (n - 1).bit_length()
    rows = keys[0].size // n
    index = iota(dtype=dtypes.int32, shape=(rows, whole), dimension=1)
    columns = [_filled(transpose(_integers(k), permutation=(*moved, axis)), rows, n, whole) for k in keys]
    # What fills up comes last: it has the greatest keys, and greater indices than any element.
    values = [*columns, index]
    size = 2
    while size <= whole:
        step = size // 2
        while step:
            values = _stage(values, rows, whole, size, step)
            step //= 2
        size *= 2
    found = slice_op(values[-1], start_indices=(0, 0), limit_indices=(rows, n))
    found = reshape(found, shape=(*(shape[d] for d in moved), n))
    back = [moved.index(d) if d != axis else last for d in range(len(shape))]
    return transpose(found, permutation=tuple(back))


def _integers(x: Array) -> Array:
    if x.dtype in dtypes.FLOAT:
        return ordered_bits(x)
    return convert_element_type(x, dtype=dtypes.uint8) if x.dtype == dtypes.bool_ else x


def _filled(x: Array, rows: int, n: int, whole: int) -> Array:
    x = reshape(x, shape=(rows, n))
    top = wrap(np.asarray(dtypes.integer_info(x.dtype).max, x.dtype))
    return pad(x, top, padding_config=((0, 0, 0), (0, whole - n, 0))) if whole > n else x


def _stage(values: list[Array], rows: int, whole: int, size: int, step: int) -> list[Array]:
    """Each element takes the lesser or the greater of itself and its partner ``step`` away, in runs of ``size``."""
    shape = (rows, whole // (2 * step), 2, step)
    xs = [reshape(v, shape=shape) for v in values]
    partners = [rev(x, dimensions=(2,)) for x in xs]
    less: Any = None
    for x, p in reversed(list(zip(xs, partners, strict=True))):
        here = lt(x, p)
        less = here if less is None else or_(here, and_(eq(x, p), less))
    # The first of a pair keeps the lesser in runs that ascend.
    place = np.arange(whole).reshape(shape[1:])
    ascending = (place & size) == 0
    first = (place & step) == 0
    wanted = np.broadcast_to((ascending == first)[None], shape)
    keep = eq(less, wrap(np.ascontiguousarray(wanted)))
    return [reshape(select_n(keep, p, x), shape=(rows, whole)) for x, p in zip(xs, partners, strict=True)]


RULES: Final = {"sort": Rule(sort)}
