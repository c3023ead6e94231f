"""Elements in another order along axes, and repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.creation import full_scalar
from nxjax.numpy.documented import example
from nxjax.numpy.elementwise import trunc
from nxjax.numpy.promotion import (
    along,
    as_axes,
    as_axis,
    as_operand,
    as_shape,
    concrete_or_error,
    convert,
    static_int,
    widen_index,
)
from nxjax.numpy.shapes import broadcast_to, copy_if_same, ravel, reshape, slice_axis, swapaxes
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, ShardingLike
from nxjax.trace.array import as_numpy, wrap
from nxjax.trace.core import Array, Tracer

# --- order along axes ---


@example(
    "jnp.array([[1, 2], [3, 4]])",
    "Array([[4, 3],\n       [2, 1]], dtype=int32)",
    "jnp.array([[1, 2], [3, 4]]), axis=0",
    "Array([[3, 4],\n       [1, 2]], dtype=int32)",
    raises="AxisError: an axis that ``m`` does not have, or one named twice.",
)
def flip(m: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Reversed along ``axis``, axes, or all."""
    x = as_operand(m, "flip")
    axes = as_axes("flip", axis, x.ndim)
    return copy_if_same(x, ops.rev(x, dimensions=axes) if axes else x)


@example("jnp.array([[1, 2], [3, 4]])", "Array([[2, 1],\n       [4, 3]], dtype=int32)")
def fliplr(m: ArrayLike) -> Array:
    """Reversed along axis 1: columns from right to left.

    Raises:
        AxisError: fewer than two axes.
    """
    return flip(m, 1)


@example("jnp.array([[1, 2], [3, 4]])", "Array([[3, 4],\n       [1, 2]], dtype=int32)", raises="AxisError: no axis.")
def flipud(m: ArrayLike) -> Array:
    """Reversed along axis 0: rows from the last to the first."""
    return flip(m, 0)


@example(
    "jnp.array([[1, 2], [3, 4]])",
    "Array([[2, 4],\n       [1, 3]], dtype=int32)",
    "jnp.array([[1, 2], [3, 4]]), k=-1",
    "Array([[3, 1],\n       [4, 2]], dtype=int32)",
    raises="AxisError: an axis that ``m`` does not have, or one axis twice.",
)
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Turned by 90 degrees ``k`` times in the plane of ``axes``, from the first toward the second."""
    x = as_operand(m, "rot90")
    i, j = as_axes("rot90", tuple(axes), x.ndim)
    turns = static_int("rot90", k) % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (i, j))
    return swapaxes(flip(x, j), i, j) if turns == 1 else flip(swapaxes(x, i, j), j)


def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: int | Sequence[int] | None = None) -> Array:
    """Elements moved along ``axis`` by ``shift``, around the end; without an axis, in row-major order.

    ``shift`` may be traced, and a tuple for several axes; a negative one moves to the front.

    Raises:
        AxisError: an axis that ``a`` does not have.
        ShapeError: ``shift`` and ``axis`` differ in number.

    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    >>> jnp.roll(jnp.array([[1, 2], [3, 4]]), -1, axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    x = as_operand(a, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [as_axis("roll", i, x.ndim) for i in (axis if isinstance(axis, (tuple, list, range)) else (axis,))]
    shifts = _shifts(shift, len(axes))
    axes = axes * len(shifts) if len(axes) == 1 else axes
    found = x
    for by, i in zip(shifts, axes, strict=True):
        found = _rolled(found, by, i)
    return copy_if_same(x, found)


def _shifts(shift: Any, n: int) -> list[Any]:
    if isinstance(shift, (tuple, list)):
        shifts = list(shift)
    elif isinstance(shift, Array) and shift.ndim:
        shifts = [shift[i] for i in range(shift.shape[0])]
    elif isinstance(shift, np.ndarray) and shift.ndim:
        shifts = shift.tolist()
    else:
        shifts = [shift]
    if len(shifts) != n and n != 1:
        if len(shifts) != 1:
            raise ShapeError("roll: shift and axis differ in number", got=f"{len(shifts)} and {n}")
        shifts = shifts * n
    return shifts


def _rolled(x: Array, by: Any, axis: int) -> Array:
    n = x.shape[axis]
    if n == 0:
        return x
    if not isinstance(by, Tracer):
        start = -int(by if not isinstance(by, Array) else by.numpy()) % n  # type: ignore[attr-defined]
        if start == 0:
            return x
        return ops.concatenate(slice_axis(x, axis, start, n), slice_axis(x, axis, 0, start), dimension=axis)
    by = trunc(by) if by.dtype in dtypes.FLOAT else by  # as int() does with what is known
    twice = ops.concatenate(x, x, dimension=axis)
    zero = wrap(np.asarray(0, np.int32))
    starts = [zero] * x.ndim
    # The shift is taken from the size: a dtype without a sign has no negative shift.
    starts[axis] = ops.sub(wrap(np.asarray(n, np.int32)), convert(jnp.remainder(widen_index(by), n), dtypes.int32))
    return ops.dynamic_slice(twice, *starts, slice_sizes=x.shape)


# --- repetition ---


@example(
    "jnp.array([1, 2]), 2",
    "Array([1, 2, 1, 2], dtype=int32)",
    "jnp.array([1, 2]), (2, 1)",
    "Array([[1, 2],\n       [1, 2]], dtype=int32)",
    raises="ShapeError: a negative count.",
)
def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """``A`` side by side, ``reps`` times along each axis."""
    x = as_operand(A, "tile")
    counts = as_shape("tile", reps)
    rank = max(len(counts), x.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - x.ndim) + x.shape
    pairs = [n for r, s in zip(counts, sizes, strict=True) for n in (r, s)]
    wide = ops.broadcast_in_dim(
        ops.reshape(x, shape=sizes), shape=tuple(pairs), broadcast_dimensions=tuple(range(1, 2 * rank, 2))
    )
    return ops.reshape(wide, shape=tuple(r * s for r, s in zip(counts, sizes, strict=True)))


def repeat(
    a: ArrayLike,
    repeats: ArrayLike | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Each element (along ``axis``) ``repeats`` times; traced counts need ``total_repeat_length``.

    An empty array stays empty, even with ``total_repeat_length``.

    Raises:
        ShapeError: neither one count nor one per element.
        ValueError: a negative count.
        ConcretizationTypeError: traced counts, without ``total_repeat_length``.

    >>> jnp.repeat(jnp.array([7, 8, 9]), jnp.array([2, 0, 1]))
    Array([7, 7, 9], dtype=int32)
    >>> jnp.repeat(jnp.array([[1, 2]]), 2, axis=0)
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = as_operand(a, "repeat")
    x, i = along("repeat", x if x.ndim else ops.reshape(x, shape=(1,)), axis)
    n = x.shape[i]
    if not isinstance(repeats, Tracer):
        counts = repeats.numpy() if isinstance(repeats, Array) else as_numpy(repeats, "repeat")  # type: ignore[attr-defined]
        if counts.ndim > 1:
            raise ShapeError("repeat: repeats is a number or a vector", got=counts.shape)
        if counts.size == 1 and total_repeat_length is None:
            return _repeated(x, int(counts.reshape(())[()]), i)
        if counts.size not in (1, n):
            raise ShapeError("repeat: one count per element", got=counts.size, expected=n)
        if not n:
            return x
        where = np.repeat(np.arange(n), np.broadcast_to(counts, (n,)))
        if total_repeat_length is not None:
            where = _cut(where, total_repeat_length, n)
        return jnp.take(x, where.astype(np.int32), axis=i)
    if total_repeat_length is None:
        concrete_or_error("repeat", repeats, "the counts decide the length of the result; or give total_repeat_length=")
    counts_v = widen_index(broadcast_to(repeats, (n,)))
    if not n:
        return x
    ends = jnp.cumsum(counts_v)
    positions = wrap(np.arange(total_repeat_length, dtype=np.int32))
    where_v = jnp.searchsorted(ends, positions, side="right")
    return jnp.take(x, where_v, axis=i, mode="clip")


def _cut(where: np.ndarray[Any, Any], length: int, n: int) -> np.ndarray[Any, Any]:
    if len(where) >= length:
        return where[:length]
    return np.concatenate([where, np.full(length - len(where), max(n - 1, 0))])


def _repeated(x: Array, count: int, axis: int) -> Array:
    if count < 0:
        raise ParameterError("repeat: counts are not negative", got=count)
    wide = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    kept = tuple(i for i in range(x.ndim + 1) if i != axis + 1)
    out = ops.broadcast_in_dim(x, shape=wide, broadcast_dimensions=kept)
    return ops.reshape(out, shape=(*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))


@example("jnp.array([1, 2, 3]), (2, 4)", "Array([[1, 2, 3, 1],\n       [2, 3, 1, 2]], dtype=int32)")
def resize(a: ArrayLike, new_shape: int | Sequence[int]) -> Array:
    """``new_shape`` filled with the elements of ``a`` in order, again and again; zeros where ``a`` has none.

    Raises:
        ShapeError: a negative size.
    """
    sizes = as_shape("resize", new_shape)
    x = ravel(a)
    total = math.prod(sizes)
    if x.size == 0:
        return full_scalar(sizes, 0, x.dtype)
    return reshape(slice_axis(tile(x, math.ceil(total / x.size)), 0, 0, total) if total else x[:0], sizes)
