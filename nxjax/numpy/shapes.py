"""Shape, order of axes and repetition of the same elements: reshape, transpose, broadcast, flip, roll, tile, repeat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax.errors import AxisError, ParameterError, ShapeError
from nxjax.numpy.documented import example, named
from nxjax.numpy.elementwise import trunc
from nxjax.numpy.promotion import (
    as_axes,
    as_axis,
    as_shape,
    broadcast_shape,
    broadcast_to_shape,
    concrete,
    convert,
    static_int,
    value,
    widened,
)
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.array import another, as_numpy, wrap
from nxjax.trace.core import Array, Tracer
from nxjax.trace.types import Shape


def shape(a: Any) -> Shape:
    """The sizes along all axes, as a tuple of ints; known while tracing too.

    >>> import nxjax.numpy as jnp
    >>> jnp.shape(jnp.zeros((2, 0))), jnp.shape(5)
    ((2, 0), ())
    """
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if not isinstance(a, (list, tuple)):
        return value(a, "shape").shape
    inner = {shape(x) for x in a}
    if len(inner) > 1:
        raise ShapeError("shape: the nested lists differ in length", got=str(a)[:80])
    return (len(a), *next(iter(inner), ()))


def ndim(a: Any) -> int:
    """The number of axes.

    >>> import nxjax.numpy as jnp
    >>> jnp.ndim(jnp.zeros((2, 0))), jnp.ndim(5)
    (2, 0)
    """
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or the size along ``axis`` or axes.

    Raises:
        AxisError: ``axis`` is none of ``a``'s, or is named twice.

    >>> import nxjax.numpy as jnp
    >>> jnp.size(jnp.zeros((2, 3))), jnp.size(jnp.zeros((2, 3)), axis=1)
    (6, 3)
    """
    sizes = shape(a)
    return math.prod(sizes[i] for i in as_axes("size", axis, len(sizes)))


def iterable(y: Any) -> bool:
    """Whether ``iter(y)`` works.

    >>> import nxjax.numpy as jnp
    >>> jnp.iterable([1, 2]), jnp.iterable(jnp.arange(3)), jnp.iterable(2)
    (True, True, False)
    """
    try:
        iter(y)
    except TypeError:
        return False
    return True


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The same elements in another shape; one size may be -1. ``order="F"`` counts columns first.

    Raises:
        ShapeError: the sizes do not multiply to the number of elements, or more than one is -1.
        ValueError: another ``order``.
        ConcretizationTypeError: a traced size.

    >>> import nxjax.numpy as jnp
    >>> jnp.reshape(jnp.arange(6), (3, -1))
    Array([[0, 1],
           [2, 3],
           [4, 5]], dtype=int32)
    >>> jnp.reshape(jnp.arange(6), (3, 2), order="F")
    Array([[0, 3],
           [1, 4],
           [2, 5]], dtype=int32)
    """
    x = value(a, "reshape")
    if order not in ("C", "F"):
        raise ValueError(f"reshape: Unexpected value for 'order' argument: {order}.")
    sizes = _resolved(x, shape)
    if order == "C":
        return x if sizes == x.shape else ops.reshape(x, shape=sizes)
    return transpose(ops.reshape(transpose(x), shape=sizes[::-1]))


def _resolved(x: Array, shape: Any) -> Shape:
    if isinstance(shape, (tuple, list)):
        sizes = list(shape)
    elif isinstance(shape, (np.ndarray, Array)) and np.ndim(concrete("reshape", shape)):
        sizes = concrete("reshape", shape).tolist()
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
def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Array:
    """One-dimensional: rows one after the other, or columns with ``order="F"``.

    Raises:
        NotImplementedError: ``order="K"``, since arrays have no other order in memory.
    """
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return _own(a, reshape(a, -1 if size(a) else (0,), order))


def _own(x: Any, found: Array) -> Array:
    """``found``, an array of its own where it is ``x`` unchanged: who deletes one, or gives it away, keeps the other.

    As JAX has it: some functions return what they were given, these do not.
    """
    return another(found) if found is x else found


@example("jnp.zeros((2, 3, 4))", "(4, 3, 2)", "jnp.zeros((2, 3, 4)), (0, -1, 1)", "(2, 4, 3)", then=".shape")
def transpose(a: Any, axes: Any = None) -> Array:
    """Axes in the order ``axes``; reversed by default.

    Raises:
        AxisError: an axis that ``a`` does not have.
        ParameterError: not every axis once.
    """
    x = value(a, "transpose")
    if axes is None:
        order = tuple(range(x.ndim - 1, -1, -1))
    else:
        order = tuple(as_axis("transpose", i, x.ndim) for i in axes)
        if sorted(order) != list(range(x.ndim)):
            raise ParameterError("transpose: needs every axis once", got=tuple(axes), expected=f"{x.ndim} axes")
    return x if order == tuple(range(x.ndim)) else ops.transpose(x, permutation=order)


@example("jnp.zeros((2, 3, 4)), (2, 0, 1)", "(4, 2, 3)", then=".shape")
def permute_dims(a: Any, /, axes: Any) -> Array:
    """Axes in the order ``axes``; `transpose` of the Array API, which always names them."""
    return transpose(a, axes)


@example("jnp.zeros((5, 2, 3))", "(5, 3, 2)", then=".shape")
def matrix_transpose(x: Any, /) -> Array:
    """The last two axes swapped.

    Raises:
        ShapeError: fewer than two axes.
    """
    v = value(x, "matrix_transpose")
    if v.ndim < 2:
        raise ShapeError("matrix_transpose: x must be at least two-dimensional", got=v.type)
    return swapaxes(v, -1, -2)


@example("jnp.zeros((2, 3, 4)), 0, -1", "(4, 3, 2)", then=".shape")
def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    Args:
        a: array.
        axis1, axis2: ints, from the end where negative.

    Raises:
        AxisError: an axis that ``a`` does not have.
    """
    x = value(a, "swapaxes")
    i, j = as_axis("swapaxes", axis1, x.ndim), as_axis("swapaxes", axis2, x.ndim)
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return _own(x, transpose(x, order))


@example(
    "jnp.zeros((2, 3, 4)), 0, -1", "(3, 4, 2)", "jnp.zeros((2, 3, 4)), (0, 1), (-1, -2)", "(4, 3, 2)", then=".shape"
)
def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """Axes ``source`` put at ``destination``; the others keep their order.

    Raises:
        AxisError: an axis that ``a`` does not have, or one named twice.
        ParameterError: ``source`` and ``destination`` differ in number.
    """
    x = value(a, "moveaxis")
    src, dst = as_axes("moveaxis", source, x.ndim), as_axes("moveaxis", destination, x.ndim)
    if len(src) != len(dst):
        raise ParameterError("moveaxis: source and destination differ in number", got=f"{source}, {destination}")
    order = [i for i in range(x.ndim) if i not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return _own(x, transpose(x, order))


@example("jnp.zeros((2, 3, 4)), 2", "(4, 2, 3)", "jnp.zeros((2, 3, 4)), 0, 3", "(3, 4, 2)", then=".shape")
def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
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
def expand_dims(a: Any, axis: Any) -> Array:
    """New axes of size 1 at these positions of the result.

    Raises:
        AxisError: a position beyond the axes of the result, or one named twice.
    """
    x = value(a, "expand_dims")
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    new = as_axes("expand_dims", axes, x.ndim + len(axes))
    rest = iter(x.shape)
    return ops.reshape(x, shape=tuple(1 if i in new else next(rest) for i in range(x.ndim + len(new))))


@example("jnp.zeros((1, 3, 1))", "(3,)", "jnp.zeros((1, 3, 1)), axis=0", "(3, 1)", then=".shape")
def squeeze(a: Any, axis: Any = None) -> Array:
    """Without axes of size 1: all of them, or those named.

    Raises:
        ShapeError: an axis that is named is not of size 1.
        AxisError: an axis that ``a`` does not have.
    """
    x = value(a, "squeeze")
    axes = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else as_axes("squeeze", axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise ShapeError(
            "squeeze: cannot select an axis to squeeze out which has size not equal to one",
            got=f"axis {axis} of {x.type}",
        )
    return ops.reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in axes)) if axes else another(x)


@example("(5, 1), (3,), ()", "(5, 3)")
def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that operands of these shapes are repeated into.

    Raises:
        ShapeError: sizes on one axis differ, and none of them is 1.
    """
    return broadcast_shape("broadcast_shapes", *(as_shape("broadcast_shapes", s) for s in shapes))


@example("jnp.array([1, 2]), (2, 2)", "Array([[1, 2],\n       [1, 2]], dtype=int32)")
def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Array:
    """``array`` repeated into ``shape`` by the rules of broadcasting.

    Args:
        array: any.
        shape: int or sequence of ints, at least as many as the array has axes.

    Raises:
        ShapeError: a size is neither 1 nor the one asked for.
    """
    x = value(array, "broadcast_to")
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


def broadcast_arrays(*args: Any) -> list[Array]:
    """Operands repeated into their common shape; dtypes stay.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> import nxjax.numpy as jnp
    >>> rows, columns = jnp.broadcast_arrays(jnp.array([[1], [2]]), jnp.array([0.5, 1.5]))
    >>> rows
    Array([[1, 1],
           [2, 2]], dtype=int32)
    >>> columns.dtype, columns.shape
    (dtype('float32'), (2, 2))
    """
    xs = [value(x, "broadcast_arrays") for x in args]
    sizes = broadcast_shape("broadcast_arrays", *(x.shape for x in xs))
    return [another(x) if x.shape == sizes else broadcast_to_shape(x, sizes) for x in xs]


def _atleast(name: str, rank: int, args: str, shown: str) -> Any:
    @named(name, f"Arrays with at least {rank} axes; one array gives an array, several a list.", args, shown)
    def function(*arys: Any) -> Any:
        out = [_padded(value(a, name), rank) for a in arys]
        return out[0] if len(out) == 1 else out

    return function


def _padded(x: Array, rank: int) -> Array:
    if x.ndim >= rank:
        return another(x)
    if rank == 3 and x.ndim:
        return ops.reshape(x, shape=(1, *x.shape, 1) if x.ndim == 1 else (*x.shape, 1))
    return ops.reshape(x, shape=(1,) * (rank - x.ndim) + x.shape)


atleast_1d = _atleast("atleast_1d", 1, "5.0", "Array([5.], dtype=float32, weak_type=True)")
atleast_2d = _atleast("atleast_2d", 2, "jnp.arange(3)", "Array([[0, 1, 2]], dtype=int32)")
atleast_3d = _atleast("atleast_3d", 3, "jnp.array([1, 2])", "Array([[[1],\n        [2]]], dtype=int32)")


# --- order along axes ---


def flip(m: Any, axis: Any = None) -> Array:
    """Reversed along ``axis``, axes, or all.

    Raises:
        AxisError: an axis that ``m`` does not have, or one named twice.

    >>> import nxjax.numpy as jnp
    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]))
    Array([[4, 3],
           [2, 1]], dtype=int32)
    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    x = value(m, "flip")
    axes = as_axes("flip", axis, x.ndim)
    return _own(x, ops.rev(x, dimensions=axes) if axes else x)


@example("jnp.array([[1, 2], [3, 4]])", "Array([[2, 1],\n       [4, 3]], dtype=int32)")
def fliplr(m: Any) -> Array:
    """Reversed along axis 1: columns from right to left.

    Raises:
        AxisError: fewer than two axes.
    """
    return flip(m, 1)


@example("jnp.array([[1, 2], [3, 4]])", "Array([[3, 4],\n       [1, 2]], dtype=int32)")
def flipud(m: Any) -> Array:
    """Reversed along axis 0: rows from the last to the first.

    Raises:
        AxisError: no axis.
    """
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Array:
    """Turned by 90 degrees ``k`` times in the plane of ``axes``, from the first toward the second.

    Raises:
        AxisError: an axis that ``m`` does not have, or one axis twice.

    >>> import nxjax.numpy as jnp
    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]), k=-1)
    Array([[3, 1],
           [4, 2]], dtype=int32)
    """
    x = value(m, "rot90")
    i, j = as_axes("rot90", tuple(axes), x.ndim)
    turns = static_int("rot90", k) % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (i, j))
    return swapaxes(flip(x, j), i, j) if turns == 1 else flip(swapaxes(x, i, j), j)


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Elements moved along ``axis`` by ``shift``, around the end; without an axis, in row-major order.

    ``shift`` may be traced, and a tuple for several axes; a negative one moves to the front.

    Raises:
        AxisError: an axis that ``a`` does not have.
        ShapeError: ``shift`` and ``axis`` differ in number.

    >>> import nxjax.numpy as jnp
    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    >>> jnp.roll(jnp.array([[1, 2], [3, 4]]), -1, axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    x = value(a, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [as_axis("roll", i, x.ndim) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = _shifts(shift, len(axes))
    axes = axes * len(shifts) if len(axes) == 1 else axes
    found = x
    for by, i in zip(shifts, axes, strict=True):
        found = _rolled(found, by, i)
    return _own(x, found)


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
        return ops.concatenate(_part(x, axis, start, n), _part(x, axis, 0, start), dimension=axis)
    from nxjax.numpy.powers import remainder

    by = trunc(by) if by.dtype in dtypes.FLOAT else by  # as int() does with what is known
    twice = ops.concatenate(x, x, dimension=axis)
    zero = wrap(np.asarray(0, np.int32))
    starts = [zero] * x.ndim
    # The shift is taken from the size: a dtype without a sign has no negative shift.
    starts[axis] = ops.sub(wrap(np.asarray(n, np.int32)), convert(remainder(widened(by), n), dtypes.int32))
    return ops.dynamic_slice(twice, *starts, slice_sizes=x.shape)


def _part(x: Array, axis: int, start: int, stop: int) -> Array:
    """``x[start:stop]`` along one axis."""
    return ops.slice(
        x,
        start_indices=tuple(start if i == axis else 0 for i in range(x.ndim)),
        limit_indices=tuple(stop if i == axis else n for i, n in enumerate(x.shape)),
        strides=None,
    )


part = _part


# --- repetition ---


def tile(A: Any, reps: Any) -> Array:
    """``A`` side by side, ``reps`` times along each axis.

    Raises:
        ShapeError: a negative count.

    >>> import nxjax.numpy as jnp
    >>> jnp.tile(jnp.array([1, 2]), 2)
    Array([1, 2, 1, 2], dtype=int32)
    >>> jnp.tile(jnp.array([1, 2]), (2, 1))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = value(A, "tile")
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
    a: Any, repeats: Any, axis: Any = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Array:
    """Each element (along ``axis``) ``repeats`` times; traced counts need ``total_repeat_length``.

    Nothing stays nothing, whatever ``total_repeat_length`` is.

    Raises:
        ShapeError: neither one count nor one per element.
        ValueError: a negative count.
        ConcretizationTypeError: traced counts, without ``total_repeat_length``.

    >>> import nxjax.numpy as jnp
    >>> jnp.repeat(jnp.array([7, 8, 9]), jnp.array([2, 0, 1]))
    Array([7, 7, 9], dtype=int32)
    >>> jnp.repeat(jnp.array([[1, 2]]), 2, axis=0)
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = value(a, "repeat")
    if axis is None:
        x, axis = ravel(x), 0
    x = ops.reshape(x, shape=(1,)) if x.ndim == 0 else x
    i = as_axis("repeat", axis, x.ndim)
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
        from nxjax.numpy.indexing import take

        return take(x, where.astype(np.int32), axis=i)
    if total_repeat_length is None:
        concrete("repeat", repeats, "the counts decide the length of the result; or give total_repeat_length=")
    from nxjax.numpy.indexing import take
    from nxjax.numpy.reductions import cumsum
    from nxjax.numpy.sorting import searchsorted

    counts_v = widened(broadcast_to(repeats, (n,)))
    if not n:
        return x
    ends = cumsum(counts_v)
    positions = wrap(np.arange(total_repeat_length, dtype=np.int32))
    where_v = searchsorted(ends, positions, side="right")
    return take(x, where_v, axis=i, mode="clip")


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
def resize(a: Any, new_shape: Any) -> Array:
    """``new_shape`` filled with the elements of ``a`` in order, again and again; zeros where ``a`` has none.

    Raises:
        ShapeError: a negative size.
    """
    sizes = as_shape("resize", new_shape)
    x = ravel(a)
    total = math.prod(sizes)
    if x.size == 0:
        from nxjax.numpy.creation import filled

        return filled(sizes, 0, x.dtype)
    return reshape(_part(tile(x, math.ceil(total / x.size)), 0, 0, total) if total else x[:0], sizes)


@example("jnp.array([[1, 2], [3, 4]]), axis=1", "(Array([1, 3], dtype=int32), Array([2, 4], dtype=int32))")
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along ``axis``, as a tuple: the inverse of `stack`.

    Raises:
        ShapeError: no axis.
        AxisError: an axis that ``x`` does not have.
    """
    v = value(x, "unstack")
    if v.ndim == 0:
        raise ShapeError("unstack: needs an axis to take apart", got=v.type)
    i = as_axis("unstack", axis, v.ndim)
    sizes = (*v.shape[:i], *v.shape[i + 1 :])
    return tuple(ops.reshape(_part(v, i, k, k + 1), shape=sizes) for k in range(v.shape[i]))
