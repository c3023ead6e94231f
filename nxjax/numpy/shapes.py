"""Shape and order of axes of the same elements: reshape, transpose, squeeze, broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import AxisError, ParameterError, ShapeError
from nxjax.numpy.documented import TWO_AXES, example, named, shown
from nxjax.numpy.promotion import (
    as_axes,
    as_axis,
    as_operand,
    as_shape,
    broadcast_shape,
    broadcast_to_shape,
    concrete_or_error,
    static_int,
)
from nxjax.ops import vocabulary as ops
from nxjax.trace.annotations import ArrayLike, ShardingLike
from nxjax.trace.array import copied
from nxjax.trace.core import Array, Tracer
from nxjax.trace.lazy import lazy
from nxjax.trace.types import Shape


@shown("jnp.shape(jnp.zeros((2, 0))), jnp.shape(5)", "((2, 0), ())")
def shape(a: ArrayLike | Sequence[Any]) -> Shape:
    """The sizes along all axes, as a tuple of ints; known while tracing too."""
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if a is None:  # as in NumPy: libraries ask for the rank of a bound that may be missing
        return ()
    if not isinstance(a, (list, tuple)):
        return as_operand(a, "shape").shape
    inner = {shape(x) for x in a}
    if len(inner) > 1:
        raise ShapeError("shape: the nested lists differ in length", got=str(a)[:80])
    return (len(a), *next(iter(inner), ()))


@shown("jnp.ndim(jnp.zeros((2, 0))), jnp.ndim(5)", "(2, 0)")
def ndim(a: ArrayLike | Sequence[Any]) -> int:
    """The number of axes."""
    return len(shape(a))


@shown("jnp.size(jnp.zeros((2, 3))), jnp.size(jnp.zeros((2, 3)), axis=1)", "(6, 3)")
def size(a: ArrayLike | Sequence[Any], axis: int | Sequence[int] | None = None) -> int:
    """The number of elements, or the size along ``axis`` or axes.

    Raises:
        AxisError: ``axis`` is none of ``a``'s, or is named twice.
    """
    sizes = shape(a)
    return math.prod(sizes[i] for i in as_axes("size", axis, len(sizes)))


@shown("jnp.iterable([1, 2]), jnp.iterable(jnp.arange(3)), jnp.iterable(2)", "(True, True, False)")
def iterable(y: object) -> bool:
    """Whether ``iter(y)`` works."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


@example(
    "jnp.arange(6), (3, -1)",
    "Array([[0, 1],\n       [2, 3],\n       [4, 5]], dtype=int32)",
    'jnp.arange(6), (3, 2), order="F"',
    "Array([[0, 3],\n       [1, 4],\n       [2, 5]], dtype=int32)",
)
def reshape(
    a: ArrayLike,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    copy: bool | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """The same elements in another shape; one size may be -1. ``order="F"`` counts columns first.

    Raises:
        ShapeError: the sizes do not multiply to the number of elements, or more than one is -1.
        ValueError: another ``order``.
        ConcretizationTypeError: a traced size.
    """
    x = as_operand(a, "reshape")
    if order not in ("C", "F"):
        raise ValueError(f"reshape: Unexpected value for 'order' argument: {order}.")
    sizes = _resolved(x, shape)
    if order == "C":
        return x if sizes == x.shape else ops.reshape(x, shape=sizes)
    return transpose(ops.reshape(transpose(x), shape=sizes[::-1]))


def _resolved(x: Array, shape: Any) -> Shape:
    if isinstance(shape, (tuple, list)):
        sizes = list(shape)
    elif isinstance(shape, (np.ndarray, Array)) and np.ndim(concrete_or_error("reshape", shape)):
        sizes = concrete_or_error("reshape", shape).tolist()
    else:
        sizes = [shape]
    if any(isinstance(n, Tracer) for n in sizes):
        as_shape("reshape", sizes)
    sizes = [static_int("reshape", n) for n in sizes]
    unknown = [i for i, n in enumerate(sizes) if n == -1]
    known = math.prod(n for n in sizes if n != -1)
    if len(unknown) > 1 or any(n < -1 for n in sizes):
        raise ShapeError("reshape: at most one size is -1, and no other is negative", got=tuple(sizes))
    if unknown:
        if known == 0 or x.size % known:
            raise ShapeError(f"reshape: cannot reshape array of shape {x.shape}", got=tuple(sizes))
        sizes[unknown[0]] = x.size // known
    if math.prod(sizes) != x.size:
        raise ShapeError(
            f"reshape: cannot reshape array of shape {x.shape} (size {x.size}) into shape {tuple(sizes)} "
            f"(size {math.prod(sizes)})"
        )
    return tuple(sizes)


@example('jnp.array([[1, 2], [3, 4]]), order="F"', "Array([1, 3, 2, 4], dtype=int32)")
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: ShardingLike = None) -> Array:
    """One-dimensional: rows one after the other, or columns with ``order="F"``.

    Raises:
        NotImplementedError: ``order="K"``, since arrays have no other order in memory.
    """
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return copy_if_same(a, reshape(a, -1 if size(a) else (0,), order))


def copy_if_same(x: Any, found: Array) -> Array:
    """``found``, or a copy if it is ``x`` itself: deleting or donating one then leaves the other.

    As in JAX: some functions return their argument, these do not.
    """
    return copied(found) if found is x else found


@example("jnp.zeros((2, 3, 4))", "(4, 3, 2)", "jnp.zeros((2, 3, 4)), (0, -1, 1)", "(2, 4, 3)", then=".shape")
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Axes in the order ``axes``; reversed by default.

    Raises:
        AxisError: an axis that ``a`` does not have.
        ParameterError: not every axis once.
    """
    x = as_operand(a, "transpose")
    if axes is None:
        order = tuple(range(x.ndim - 1, -1, -1))
    else:
        order = tuple(as_axis("transpose", i, x.ndim) for i in axes)
        if sorted(order) != list(range(x.ndim)):
            raise ParameterError("transpose: needs every axis once", got=tuple(axes), expected=f"{x.ndim} axes")
    return x if order == tuple(range(x.ndim)) else ops.transpose(x, permutation=order)


@example("jnp.zeros((2, 3, 4)), (2, 0, 1)", "(4, 2, 3)", then=".shape")
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Axes in the order ``axes``; `transpose` of the Array API, which always names them."""
    return transpose(a, axes)


@example("jnp.zeros((5, 2, 3))", "(5, 3, 2)", then=".shape", raises=TWO_AXES)
def matrix_transpose(x: ArrayLike, /) -> Array:
    """The last two axes swapped."""
    v = as_operand(x, "matrix_transpose")
    if v.ndim < 2:
        raise ShapeError("matrix_transpose: x must be at least two-dimensional", got=v.type)
    return swapaxes(v, -1, -2)


@example("jnp.zeros((2, 3, 4)), 0, -1", "(4, 3, 2)", then=".shape")
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    Args:
        a: array.
        axis1, axis2: ints, from the end where negative.

    Raises:
        AxisError: an axis that ``a`` does not have.
    """
    x = as_operand(a, "swapaxes")
    i, j = as_axis("swapaxes", axis1, x.ndim), as_axis("swapaxes", axis2, x.ndim)
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return copy_if_same(x, transpose(x, order))


@example(
    "jnp.zeros((2, 3, 4)), 0, -1", "(3, 4, 2)", "jnp.zeros((2, 3, 4)), (0, 1), (-1, -2)", "(4, 3, 2)", then=".shape"
)
def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Axes ``source`` put at ``destination``; the others keep their order.

    Raises:
        AxisError: an axis that ``a`` does not have, or one named twice.
        ParameterError: ``source`` and ``destination`` differ in number.
    """
    x = as_operand(a, "moveaxis")
    src, dst = as_axes("moveaxis", source, x.ndim), as_axes("moveaxis", destination, x.ndim)
    if len(src) != len(dst):
        raise ParameterError("moveaxis: source and destination differ in number", got=f"{source}, {destination}")
    order = [i for i in range(x.ndim) if i not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return copy_if_same(x, transpose(x, order))


@example("jnp.zeros((2, 3, 4)), 2", "(4, 2, 3)", "jnp.zeros((2, 3, 4)), 0, 3", "(3, 4, 2)", then=".shape")
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Axis ``axis`` put before ``start``; `moveaxis` says the same more clearly.

    Raises:
        AxisError: an axis that ``a`` does not have, or ``start`` beyond its axes.
    """
    n = ndim(a)
    i = as_axis("rollaxis", axis, n)
    if not -n <= start <= n:
        raise AxisError("rollaxis: start is out of range", got=start, expected=f"{-n} <= start <= {n}")
    to = start + n if start < 0 else start
    return moveaxis(a, i, to - 1 if i < to else to)


@example("jnp.zeros((2, 3)), (0, -1)", "(1, 2, 3, 1)", then=".shape")
def expand_dims(a: ArrayLike, axis: int | Sequence[int] | None) -> Array:
    """New axes of size 1 at these positions of the result.

    Raises:
        AxisError: a position beyond the axes of the result, or one named twice.
    """
    x = as_operand(a, "expand_dims")
    axes = tuple(axis) if isinstance(axis, (tuple, list, range)) else (axis,)
    new = as_axes("expand_dims", axes, x.ndim + len(axes))
    rest = iter(x.shape)
    return ops.reshape(x, shape=tuple(1 if i in new else next(rest) for i in range(x.ndim + len(new))))


@example("jnp.zeros((1, 3, 1))", "(3,)", "jnp.zeros((1, 3, 1)), axis=0", "(3, 1)", then=".shape")
def squeeze(a: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Without axes of size 1: all of them, or those named.

    Raises:
        ShapeError: an axis that is named is not of size 1.
        AxisError: an axis that ``a`` does not have.
    """
    x = as_operand(a, "squeeze")
    axes = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else as_axes("squeeze", axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise ShapeError(
            "squeeze: cannot select an axis to squeeze out which has size not equal to one",
            got=f"axis {axis} of {x.type}",
        )
    return ops.reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in axes)) if axes else copied(x)


@example("(5, 1), (3,), ()", "(5, 3)", raises="ShapeError: sizes on one axis differ, and none of them is 1.")
def broadcast_shapes(*shapes: int | Sequence[int]) -> Shape:
    """The shape of the result when arrays of these shapes are broadcast together."""
    return broadcast_shape("broadcast_shapes", *(as_shape("broadcast_shapes", s) for s in shapes))


@example("jnp.array([1, 2]), (2, 2)", "Array([[1, 2],\n       [1, 2]], dtype=int32)")
def broadcast_to(array: ArrayLike, shape: int | Sequence[int], *, out_sharding: ShardingLike = None) -> Array:
    """``array`` repeated into ``shape`` by the rules of broadcasting.

    Args:
        array: array of any shape and dtype.
        shape: int or sequence of ints, no fewer than the array has axes.

    Raises:
        ShapeError: ``array`` does not broadcast to ``shape``.
    """
    x = as_operand(array, "broadcast_to")
    sizes = as_shape("broadcast_to", shape)
    fits = len(sizes) >= x.ndim and all(n in (1, m) for n, m in zip(x.shape, sizes[len(sizes) - x.ndim :], strict=True))
    if not fits:
        raise ShapeError(
            f"broadcast_to: Incompatible shapes for broadcasting: {x.shape} and requested shape {sizes}",
            got=x.type,
            expected="trailing sizes that are equal to those asked for, or 1",
            fix="insert axes with x[:, None], or give a value of the shape that is written to",
        )
    return broadcast_to_shape(x, sizes)


def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """Operands repeated into their common shape; dtypes stay.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> rows, columns = jnp.broadcast_arrays(jnp.array([[1], [2]]), jnp.array([0.5, 1.5]))
    >>> rows
    Array([[1, 1],
           [2, 2]], dtype=int32)
    >>> columns.dtype, columns.shape
    (dtype('float32'), (2, 2))
    """
    xs = [as_operand(x, "broadcast_arrays") for x in args]
    sizes = broadcast_shape("broadcast_arrays", *(x.shape for x in xs))
    return [copied(x) if x.shape == sizes else broadcast_to_shape(x, sizes) for x in xs]


def _atleast(name: str, rank: int, args: str, shown: str) -> Any:
    @named(name, f"Arrays with at least {rank} dimensions; one array gives an array, several a list.", args, shown)
    def function(*arys: ArrayLike) -> Array | tuple[Array, ...]:
        out = [_padded(as_operand(a, name), rank) for a in arys]
        return out[0] if len(out) == 1 else out

    return function


def _padded(x: Array, rank: int) -> Array:
    if x.ndim >= rank:
        return copied(x)
    if rank == 3 and x.ndim:
        return ops.reshape(x, shape=(1, *x.shape, 1) if x.ndim == 1 else (*x.shape, 1))
    return ops.reshape(x, shape=(1,) * (rank - x.ndim) + x.shape)


atleast_1d = _atleast("atleast_1d", 1, "5.0", "Array([5.], dtype=float32, weak_type=True)")
atleast_2d = _atleast("atleast_2d", 2, "jnp.arange(3)", "Array([[0, 1, 2]], dtype=int32)")
atleast_3d = _atleast("atleast_3d", 3, "jnp.array([1, 2])", "Array([[[1],\n        [2]]], dtype=int32)")


def slice_axis(x: Array, axis: int, start: int, stop: int) -> Array:
    """``x[start:stop]`` along one axis."""
    return ops.slice(
        x,
        start_indices=tuple(start if i == axis else 0 for i in range(x.ndim)),
        limit_indices=tuple(stop if i == axis else n for i, n in enumerate(x.shape)),
        strides=None,
    )


@example("jnp.array([[1, 2], [3, 4]]), axis=1", "(Array([1, 3], dtype=int32), Array([2, 4], dtype=int32))")
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along ``axis``, as a tuple: the inverse of `stack`.

    Raises:
        ShapeError: no axis.
        AxisError: an axis that ``x`` does not have.
    """
    v = as_operand(x, "unstack")
    if v.ndim == 0:
        raise ShapeError("unstack: needs an axis to take apart", got=v.type)
    i = as_axis("unstack", axis, v.ndim)
    sizes = (*v.shape[:i], *v.shape[i + 1 :])
    return tuple(ops.reshape(slice_axis(v, i, k, k + 1), shape=sizes) for k in range(v.shape[i]))


# Older pickles look for them here.
__getattr__, _ = lazy(
    __name__,
    dict.fromkeys(["flip", "fliplr", "flipud", "repeat", "resize", "roll", "rot90", "tile"], "nxjax.numpy.rearranging"),
)
