"""Rules of sort and top_k. A comparator that is no order by keys runs in a sorting network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.ops import sort as sorts
from nxjax.ops.arithmetic import neg
from nxjax.ops.base import constant, like
from nxjax.ops.bitwise import and_, not_, or_, shift_right_logical, xor
from nxjax.ops.compare import eq, lt
from nxjax.ops.create import iota
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import concatenate, pad
from nxjax.ops.slicing import slice as slice_op
from nxjax.stablehlo import regions
from nxjax.stablehlo.walk import Operation, Scope, refused, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap


@rule("stablehlo.sort")
def _sort(scope: Scope, op: Operation, *xs: Array) -> Any:
    axis = op.attributes.get("dimension", -1) % max(xs[0].ndim, 1)
    stable = bool(op.attributes.get("is_stable", False))
    if not xs[0].ndim or xs[0].shape[axis] < 2 or 0 in xs[0].shape:
        return tuple(xs)
    keys = regions.sort_keys(scope, op.regions[0])
    if keys is None:
        return _network(scope, op, xs, axis, stable)
    # Operands that are keys as they are need no copy of themselves.
    operands: list[Array] = []
    place: dict[int, int] = {}
    for key in keys:
        for column in key.columns(xs[key.operand]):
            if column is xs[key.operand]:
                place[key.operand] = len(operands)
            operands.append(column)
    count = len(operands)
    for i, x in enumerate(xs):
        if i not in place:
            place[i] = len(operands)
            operands.append(x)
    if len(place) == 1 and count == 1 and len(operands) == 1:
        return sorts.sort(xs[0], dimension=axis, is_stable=stable, num_keys=1)
    ys = sorts.sort(*operands, dimension=axis, is_stable=stable, num_keys=count)
    return tuple(ys[place[i]] for i in range(len(xs)))


def _network(scope: Scope, op: Operation, xs: Sequence[Array], axis: int, stable: bool) -> tuple[Array, ...]:
    """Batcher's bitonic network (1968) on rows of a power of two; what fills them up comes last.

    Equal elements stay in order by an index that is compared last.
    """
    n = xs[0].shape[axis]
    size = 1 << (n - 1).bit_length()
    order = (*(i for i in range(xs[0].ndim) if i != axis), axis)
    moved = [transpose(x, permutation=order) for x in xs]
    front = moved[0].shape[:-1]
    rows = 1
    for m in front:
        rows *= m
    flat = [reshape(x, shape=(rows, n)) for x in moved]
    if size > n:
        flat = [pad(x, constant(0, x.dtype), padding_config=((0, 0, 0), (0, size - n, 0))) for x in flat]
    index = iota(dtype=dtypes.int32, shape=(rows, size), dimension=1)
    flat.append(index)

    def less(left: Sequence[Array], right: Sequence[Array]) -> Array:
        function: Any = lambda *scalars: scope.function(op.regions[0])(*scalars)[0]
        pairs = [v for pair in zip(left[:-1], right[:-1], strict=True) for v in pair]
        back = [v for pair in zip(right[:-1], left[:-1], strict=True) for v in pair]
        mapped: Any = vmap(vmap(vmap(function)))
        before, after = mapped(*pairs), mapped(*back)
        i, j = left[-1], right[-1]
        tie = and_(not_(or_(before, after)), lt(i, j))
        real_i, real_j = (lt(v, constant(n, dtypes.int32, v.shape)) for v in (i, j))
        inner = and_(and_(real_i, real_j), or_(and_(before, not_(after)), tie))
        return or_(inner, or_(and_(real_i, not_(real_j)), and_(and_(not_(real_i), not_(real_j)), lt(i, j))))

    width = 2
    while width <= size:
        step = width // 2
        while step:
            flat = _exchanged(flat, less, rows, size, width, step)
            step //= 2
        width *= 2
    ys = [slice_op(x, start_indices=(0, 0), limit_indices=(rows, n), strides=None) for x in flat[:-1]]
    inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
    return tuple(transpose(reshape(y, shape=(*front, n)), permutation=inverse) for y in ys)


def _exchanged(flat: Sequence[Array], less: Any, rows: int, size: int, width: int, step: int) -> list[Array]:
    """One step: elements ``step`` apart are put in order, up or down by their block of ``width``."""
    shape = (rows, size // (2 * step), 2, step)
    halves = [reshape(x, shape=shape) for x in flat]

    def half(x: Array, side: int) -> Array:
        taken = slice_op(x, start_indices=(0, 0, side, 0), limit_indices=(rows, shape[1], side + 1, step), strides=None)
        return reshape(taken, shape=(rows, shape[1], step))

    left, right = ([half(x, side) for x in halves] for side in (0, 1))
    block = iota(dtype=dtypes.int32, shape=left[0].shape, dimension=1)

    shift = (width // (2 * step)).bit_length() - 1
    down = eq(and_(shift_right_logical(block, like(block, shift)), like(block, 1)), like(block, 1))
    swap = xor(less(right, left), down)
    joined: list[Array] = []
    for a, b in zip(left, right, strict=True):
        first, second = select_n(swap, a, b), select_n(swap, b, a)
        parts = [
            broadcast_in_dim(v, shape=(rows, shape[1], 1, step), broadcast_dimensions=(0, 1, 3))
            for v in (first, second)
        ]
        joined.append(reshape(concatenate(*parts, dimension=2), shape=(rows, size)))
    return joined


@rule("chlo.top_k")
def _top_k(_: Scope, op: Operation, x: Array) -> Any:
    return top_k(op, x, op.attributes["k"], True)


def top_k(op: Operation, x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """The largest (smallest) elements of the last dimension and their indices."""
    if x.dtype in dtypes.COMPLEX:
        raise refused(op, "complex numbers have no order")
    if largest:
        values, index = sorts.top_k(x, k=k, axis=x.ndim - 1)
        return values, index
    flipped = neg(x) if x.dtype in dtypes.FLOAT else not_(x)
    values, index = sorts.top_k(flipped, k=k, axis=x.ndim - 1)
    return (neg(values) if x.dtype in dtypes.FLOAT else not_(values)), index
