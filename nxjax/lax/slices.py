"""`jax.lax`'s functions that read and write parts of arrays: slices, static and dynamic, gather and scatter."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.lax._operands import as_ints, axes_of, convert_weak, index
from nxjax.lax.shapes import aligned_dtypes, concatenate, expand_dims, squeeze
from nxjax.numpy.documented import example, named
from nxjax.numpy.promotion import convert
from nxjax.ops import indexing, slicing
from nxjax.ops import scatter as scatters
from nxjax.ops import shape as shapes
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import check_axis, constant
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode, ModeLike, ScatterDimensionNumbers
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Tracer
from nxjax.transforms.control.while_loop import fori_loop

slice_ = builtins.slice  # `slice` is lax's own below


@example("jnp.array([[1, 2, 3], [4, 5, 6]]), (0, 0), (2, 3), (1, 2)", "Array([[1, 3],\n       [4, 6]], dtype=int32)")
def slice(
    operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """``operand[start:limit:stride]`` in every dimension.

    Raises:
        ParameterError: there is not one index per dimension.
        ShapeError: an index is out of range, or a limit is before its start.
    """
    starts, limits = as_ints(start_indices, "slice"), as_ints(limit_indices, "slice")
    steps = None if strides is None else as_ints(strides, "slice")
    return slicing.slice(as_value(operand, "slice"), start_indices=starts, limit_indices=limits, strides=steps)


@example("jnp.array([1, 2, 3, 4]), -3, None, 2", "Array([2, 4], dtype=int32)")
def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """``operand[start:limit:stride]`` along one axis.

    Start and limit may be None or negative, as in Python.

    Raises:
        AxisError: no such axis.
        ParameterError: the stride is not positive.
    """
    x = as_value(operand, "slice_in_dim")
    axis = check_axis("slice_in_dim", axis, x.ndim)
    start, limit, _ = slice_(start_index, limit_index).indices(x.shape[axis])
    starts = tuple(start if d == axis else 0 for d in range(x.ndim))
    limits = tuple(max(start, limit) if d == axis else n for d, n in enumerate(x.shape))
    return slice(x, starts, limits, tuple(stride if d == axis else 1 for d in range(x.ndim)))


@example(
    "jnp.array([[1, 2], [3, 4]]), -1",
    "Array([[3, 4]], dtype=int32)",
    "jnp.array([[1, 2], [3, 4]]), 0, axis=1, keepdims=False",
    "Array([1, 3], dtype=int32)",
    raises="AxisError: no such axis, or no such index.",
)
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """One element along an axis. The axis keeps size 1, or is dropped.

    A negative index counts from the end.
    """
    x = as_value(operand, "index_in_dim")
    axis = check_axis("index_in_dim", axis, x.ndim)
    at = check_axis("index_in_dim", operator.index(index), x.shape[axis])
    y = slice_in_dim(x, at, at + 1, 1, axis)
    return y if keepdims else squeeze(y, (axis,))


def _starts(operand: Array, starts: Any, name: str, allow: bool | Sequence[bool]) -> list[Array]:
    """Scalar start indices of one dtype. ``allow`` says whether (and where) negative ones count from the end."""
    if isinstance(starts, Array) or hasattr(starts, "shape"):
        row = as_value(starts, name)
        starts = [squeeze(slice_in_dim(row, i, i + 1), (0,)) for i in range(row.shape[0])] if row.ndim else [row]
    given = [s if isinstance(s, (int, np.integer)) else as_value(s, name) for s in starts]
    arrays = [s for s in given if isinstance(s, Array)]
    strong = {s.dtype for s in arrays if not s.type.weak}
    word = next(iter(strong)) if len(strong) == 1 else dtypes.int32
    wide = dtypes.int64 if max(operand.shape, default=0) > 2**31 - 1 else word
    allowed = (allow,) * operand.ndim if isinstance(allow, bool) else tuple(allow)
    if len(given) != operand.ndim or len(allowed) != operand.ndim:
        raise ParameterError(f"{name}: one start index per dimension", got=len(given), expected=operand.ndim)
    values: list[Array] = []
    for s, n, wrapping in zip(given, operand.shape, allowed, strict=True):
        if not isinstance(s, Array):
            values.append(constant(s + n if s < 0 and wrapping else s, wide))
            continue
        value = convert_weak(s, wide)
        values.append(_from_the_end(value, n) if wrapping else value)
    return values


def _from_the_end(s: Array, n: int) -> Array:
    """A start index, with ``n`` added if it is negative."""
    if s.dtype not in dtypes.SIGNED or s.shape or (not isinstance(s, Tracer) and s.numpy() >= 0):
        return s
    return ops.select_n(ops.lt(s, constant(0, s.dtype)), s, ops.add(s, constant(n, s.dtype)))


def dynamic_slice(
    operand: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A block of static size at dynamic start indices, moved inside where it would stick out.

    Start indices may be traced; a negative one counts from the end if ``allow_negative_indices``.

    Raises:
        ParameterError: there is not one start index per dimension.
        ShapeError: a block is larger than the operand.

    >>> lax.dynamic_slice(jnp.arange(5), (4,), (3,))
    Array([2, 3, 4], dtype=int32)
    >>> lax.dynamic_slice(jnp.arange(5), (-2,), (2,))
    Array([3, 4], dtype=int32)
    """
    x = as_value(operand, "dynamic_slice")
    return slicing.dynamic_slice(
        x,
        *_starts(x, start_indices, "dynamic_slice", allow_negative_indices),
        slice_sizes=as_ints(slice_sizes, "dynamic_slice"),
    )


@example("jnp.zeros(4), jnp.array([1.0, 2.0]), (3,)", "Array([0., 0., 1., 2.], dtype=float32)")
def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: ArrayLike | Sequence[ArrayLike],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with a block at dynamic start indices replaced.

    A block that would stick out is moved inside. ``update`` has the operand's dtype and number of dimensions.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the block is larger than the operand.
    """
    x = as_value(operand, "dynamic_update_slice")
    x = convert(x, x.dtype)  # never weak
    u = convert_weak(as_value(update, "dynamic_update_slice"), x.dtype)
    return slicing.dynamic_update_slice(
        x, u, *_starts(x, start_indices, "dynamic_update_slice", allow_negative_indices)
    )


@example("jnp.array([[1, 2, 3], [4, 5, 6]]), 2, 2, axis=1", "Array([[2, 3],\n       [5, 6]], dtype=int32)")
def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Array:
    """As `dynamic_slice` along one axis.

    The other axes stay whole.

    Raises:
        AxisError: no such axis.
        ShapeError: the block is larger than the operand.
    """
    x = as_value(operand, "dynamic_slice_in_dim")
    axis = check_axis("dynamic_slice_in_dim", axis, x.ndim)
    starts = [start_index if d == axis else 0 for d in range(x.ndim)]
    sizes = [index(slice_size, "dynamic_slice_in_dim") if d == axis else n for d, n in enumerate(x.shape)]
    return dynamic_slice(x, starts, sizes, allow_negative_indices=allow_negative_indices)


@example(
    "jnp.array([1, 2, 3]), 7",
    "Array([3], dtype=int32)",
    "jnp.array([1, 2, 3]), -1, keepdims=False",
    "Array(3, dtype=int32)",
    raises="AxisError: no such axis.",
)
def dynamic_index_in_dim(
    operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Array:
    """One element along an axis at a dynamic index.

    An index beyond the end gives the last element.
    """
    y = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return y if keepdims else squeeze(y, (axis,))


@example("jnp.zeros((2, 3)), jnp.ones((2, 1)), 1, axis=1", "Array([[0., 1., 0.],\n       [0., 1., 0.]], dtype=float32)")
def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """As `dynamic_update_slice` along one axis.

    Raises:
        AxisError: no such axis.
        DtypeError: the dtypes differ.
    """
    x = as_value(operand, "dynamic_update_slice_in_dim")
    axis = check_axis("dynamic_update_slice_in_dim", axis, x.ndim)
    starts = [start_index if d == axis else 0 for d in range(x.ndim)]
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


@example("jnp.zeros((2, 2)), jnp.array([1.0, 2.0]), -1, axis=0", "Array([[0., 0.],\n       [1., 2.]], dtype=float32)")
def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """One element along an axis replaced.

    ``update`` has the shape of the element, with or without the axis.

    Raises:
        AxisError: no such axis.
        DtypeError: the dtypes differ.
    """
    x, u = as_value(operand, "dynamic_update_index_in_dim"), as_value(update, "dynamic_update_index_in_dim")
    axis = check_axis("dynamic_update_index_in_dim", axis, x.ndim)
    if u.ndim != x.ndim:
        u = expand_dims(u, (axis,))
    return dynamic_update_slice_in_dim(x, u, index, axis, allow_negative_indices=allow_negative_indices)


@example("jnp.array([10, 20, 30]), [jnp.array([0, 2, 9])], (0,)", "Array([10, 30, 30], dtype=int32)")
def index_take(src: ArrayLike, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Elements at the indices along ``axes``; the index arrays' shape comes first in the result.

    There is one integer array per axis, all of one shape; an index beyond the end is the last.

    Raises:
        AxisError: no such axis.
    """
    x = as_value(src, "index_take")
    arrays = [as_value(i, "index_take") for i in idxs]
    dims = axes_of(axes, x.ndim, "index_take")
    stacked = concatenate([expand_dims(i, (i.ndim,)) for i in arrays], arrays[0].ndim)
    rank = arrays[0].ndim
    numbers = GatherDimensionNumbers(tuple(range(rank, rank + x.ndim - len(dims))), dims, dims)
    sizes = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return gather(x, stacked, numbers, sizes, mode="clip")


# --- gather and scatter ---


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: ModeLike = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Slices of the operand at the index vectors in the last dimension of ``start_indices``.

    Args:
        operand: array of any dtype, which is the result's.
        start_indices: integers ``[..., k]``: index vectors, of one component per dimension in ``start_index_map``.
        dimension_numbers: the role of each dimension of the result.
        slice_sizes: size of a slice along each dimension of the operand.
        mode: for indices out of bounds, see `GatherScatterMode`; by default there is none, and the slice is
            moved inside.
        fill_value: by default NaN; for integers the lowest, for unsigned ones the highest.

    Raises:
        DtypeError: the indices are not integers.
        ParameterError: there is not one size per dimension.

    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> rows = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> lax.gather(rows, jnp.array([[1], [5]]), numbers, slice_sizes=(1, 2), mode="fill")
    Array([[ 3.,  4.],
           [nan, nan]], dtype=float32)
    """
    return indexing.gather(
        as_value(operand, "gather"),
        as_value(start_indices, "gather"),
        dimension_numbers=_same_class(dimension_numbers, GatherDimensionNumbers),
        slice_sizes=as_ints(slice_sizes, "gather"),
        mode=GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode),
        fill_value=None if fill_value is None else np.asarray(fill_value).item(),
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
    )


def _same_class(numbers: Any, cls: Any) -> Any:
    if isinstance(numbers, cls):
        return numbers
    fields = cls.__dataclass_fields__
    return cls(**{name: getattr(numbers, name) for name in fields})


# Of a function's example the arrays, and what the call prints.
_EXAMPLES: dict[str, tuple[tuple[str, str, str], str]] = {
    "scatter": (("[10, 10, 10]", "[[0], [7]]", "[1, 2]"), "Array([ 1, 10, 10], dtype=int32)"),
    "scatter_add": (("[3, 3, 3]", "[[0], [0], [7]]", "[1, 2, 5]"), "Array([6, 3, 3], dtype=int32)"),
    "scatter_sub": (("[3, 3, 3]", "[[0], [0], [7]]", "[1, 2, 5]"), "Array([0, 3, 3], dtype=int32)"),
    "scatter_mul": (("[3, 3, 3]", "[[0], [0], [7]]", "[2, 5, 7]"), "Array([30,  3,  3], dtype=int32)"),
    "scatter_min": (("[3, 3, 3]", "[[0], [0], [7]]", "[1, 2, 5]"), "Array([1, 3, 3], dtype=int32)"),
    "scatter_max": (("[3, 3, 3]", "[[0], [0], [7]]", "[4, 2, 5]"), "Array([4, 3, 3], dtype=int32)"),
}
_SCATTERED = """{line} Windows of the operand at ``scatter_indices`` take ``updates``.

Args:
    operand: array; result and updates have its dtype.
    scatter_indices: integers ``[..., k]``: index vectors, of one component per dimension in
        ``scatter_dims_to_operand_dims``.
    updates: the dimensions of the indices but the last, and those of a window.
    dimension_numbers: the role of each dimension of the updates.
    indices_are_sorted, unique_indices: promises, which may make it quicker.
    mode: for indices out of bounds, see `GatherScatterMode`; its window is dropped by default.

Raises:
    DtypeError: the dtypes differ, or the indices are not integers.
    ShapeError: the updates do not fit.
"""


def _scatter_face(op: scatters.Scatter) -> Callable[..., Array]:
    arrays, shown = _EXAMPLES[op.name]
    call = f"{', '.join(f'jnp.array({x})' for x in arrays)}, lax.ScatterDimensionNumbers((), (0,), (0,))"

    @named(op.name, _SCATTERED.format(line=type(op).__doc__), call, shown)
    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: ModeLike = None,
    ) -> Array:
        x, u = aligned_dtypes(op.name, operand, updates)
        return op(
            x,
            as_value(scatter_indices, op.name),
            u,
            dimension_numbers=_same_class(dimension_numbers, ScatterDimensionNumbers),
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=GatherScatterMode.from_any(mode),
        )

    return function


scatter = _scatter_face(scatters.scatter)
scatter_add = _scatter_face(scatters.scatter_add)
scatter_sub = _scatter_face(scatters.scatter_sub)
scatter_mul = _scatter_face(scatters.scatter_mul)
scatter_min = _scatter_face(scatters.scatter_min)
scatter_max = _scatter_face(scatters.scatter_max)


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Array], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: ModeLike = None,
) -> Array:
    """The operand with an elementwise function applied in the windows at ``scatter_indices``.

    The function applies once per window that contains an element. ``update_shape`` is the shape that updates
    would have in `scatter`.

    Raises:
        ShapeError: the function changes the shape.

    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x, places = jnp.array([1, 2, 3]), jnp.array([[0], [2], [2]])
    >>> lax.scatter_apply(x, places, lambda x: x * 10, numbers, update_shape=(3,))
    Array([ 10,   2, 300], dtype=int32)
    """
    x = as_value(operand, "scatter_apply")
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    ones = constant(1, dtypes.int32, as_ints(update_shape, "scatter_apply"))
    times = scatter_add(constant(0, dtypes.int32, x.shape), scatter_indices, ones, dimension_numbers, **options)

    def applied(y: Array) -> Array:
        z = as_value(func(y), "scatter_apply")
        if z.shape != x.shape:
            raise ShapeError("scatter_apply: the function changes the shape", got=z.type, expected=x.type)
        return z if z.dtype == x.dtype else ops.convert_element_type(z, dtype=x.dtype)

    if unique_indices:
        return ops.select_n(ops.gt(times, constant(0, times.dtype, x.shape)), x, applied(x))

    def step(i: Any, y: Array) -> Array:
        due = ops.gt(times, shapes.broadcast_in_dim(as_value(i), shape=x.shape, broadcast_dimensions=()))
        return ops.select_n(due, y, applied(y))

    return fori_loop(constant(0, times.dtype), ops.reduce_max(times, axes=tuple(range(x.ndim))), step, x)
