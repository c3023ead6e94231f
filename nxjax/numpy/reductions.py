"""Reductions and scans along axes: sums, extrema, tests, moments, places of extrema, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ShapeError
from nxjax.numpy.documented import example, named
from nxjax.numpy.eager import reduction
from nxjax.numpy.promotion import (
    along,
    as_axes,
    as_axis,
    as_operand,
    boolean,
    broadcast_to_shape,
    convert,
    full_like,
    index_dtype,
    promote_inexact,
    promote_to,
    reject_out,
)
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import copied, wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType, highest, lowest

Axes = tuple[int, ...]

# What stands between the parentheses of a function's example, and what the call prints.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "sum": (
        "jnp.array([100, 100], jnp.int8)",
        "Array(200, dtype=int32)",
        "jnp.array([[1, 2], [3, 4]]), axis=0, keepdims=True",
        "Array([[4, 6]], dtype=int32)",
    ),
    "prod": ("jnp.array([2, 3, 7]), where=jnp.array([True, True, False])", "Array(6, dtype=int32)"),
    "max": ("jnp.array([[1, 5], [7, 2]]), axis=1", "Array([5, 7], dtype=int32)"),
    "min": ("jnp.array([1.0, jnp.nan, 3.0])", "Array(nan, dtype=float32)"),
    "all": ("jnp.array([[1, 0], [2, 3]]), axis=1", "Array([False,  True], dtype=bool)"),
    "any": ("jnp.array([0.0, jnp.nan])", "Array(True, dtype=bool)"),
    "argmax": ("jnp.array([2, 9, 9])", "Array(1, dtype=int32)"),
    "argmin": ("jnp.array([[3, 1], [2, 4]]), axis=0, keepdims=True", "Array([[1, 0]], dtype=int32)"),
    "cumsum": ("jnp.array([1, 2, 3], jnp.int8)", "Array([1, 3, 6], dtype=int8)"),
    "cumprod": ("jnp.array([[1, 2], [3, 4]])", "Array([ 1,  2,  6, 24], dtype=int32)"),
    "cumulative_sum": ("jnp.array([1, 2, 3], jnp.int8), include_initial=True", "Array([0, 1, 3, 6], dtype=int32)"),
    "cumulative_prod": ("jnp.array([2, 3, 4])", "Array([ 2,  6, 24], dtype=int32)"),
}


def _keep(y: Array, shape: tuple[int, ...], axes: Axes) -> Array:
    """Axes of size 1 put back where they were reduced."""
    return ops.reshape(y, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _masked(x: Array, mask: Any, fill: Any) -> Array:
    m = boolean(mask, "where")
    if m.shape != x.shape:
        m = jnp.broadcast_to(m, x.shape)
    other = broadcast_to_shape(convert(fill, x.dtype), x.shape) if isinstance(fill, Array) else like(x, fill)
    return ops.select_n(m, other, x)


def _sum_dtype(dtype: DType, promote_integers: bool = True) -> DType:
    """Integers narrower than the default integer are summed in it."""
    if dtype == dtypes.bool_:
        return dtypes.as_dtype(int)
    if not promote_integers or dtype not in dtypes.INTEGER:
        return dtype
    default = dtypes.as_dtype(int) if dtype in dtypes.SIGNED else dtypes.canonical(dtypes.uint64)
    return default if dtypes.bit_width(dtype) < dtypes.bit_width(default) else dtype


# The op that combines two results of a reduction; and the ones of truths, whose sum is "or" and whose product is "and".
_COMBINED = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "max", "reduce_min": "min"}
_TRUTHS = {"reduce_sum": "or", "reduce_prod": "and", "reduce_max": "or", "reduce_min": "and"}


def _over(op: str, x: Array, axes: Axes) -> Array:
    op = f"reduce_{_TRUTHS[op]}" if x.dtype == dtypes.bool_ and op in _TRUTHS else op
    return getattr(ops, op)(x, axes=axes) if axes else copied(x)


def _from(name: str, op: str, initial: Any, y: Array) -> Array:
    """The result ``y`` and what it starts from."""
    if initial is None:
        return y
    (start,) = promote_to(name, (initial,), y.dtype)
    combine = f"{_TRUTHS[op]}_" if y.dtype == dtypes.bool_ else _COMBINED[op]
    return getattr(ops, combine)(broadcast_to_shape(start, y.shape), y)


def _total(name: str, op: str, identity: int, ufunc: Any, doc: str) -> Any:
    @named(name, doc, *_EXAMPLES[name])
    def function(
        a: ArrayLike,
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
        promote_integers: bool = True,
    ) -> Array:
        reject_out(name, out)
        if ufunc is not None and dtype is None and initial is None and where is None:
            quick = reduction(a, ufunc, axis, keepdims)
            if quick is not None:
                return quick
        x = as_operand(a, name)
        if x.dtype not in dtypes.NUMERIC:
            raise DtypeError(f"{name}: does not take this dtype", got=x.type)
        weak = x.type.weak and dtype is None and x.dtype in dtypes.INEXACT
        wanted = _sum_dtype(x.dtype, promote_integers) if dtype is None else dtypes.as_dtype(dtype)
        axes = as_axes(name, axis, x.ndim)
        # Half precision is summed in single; the op itself sees to it.
        x = convert(x, wanted)
        if where is not None:
            x = _masked(x, where, identity)
        y = _from(name, op, initial, _over(op, x, axes))
        if keepdims:
            y = _keep(y, x.shape, axes)
        return convert(y, wanted) if y.type.weak and not weak else y

    return function


_SUM = """Sum over ``axis``; integers narrower than 32 bits are summed in 32.

Args:
    a: array of any numeric dtype; half precision is summed in single.
    axis: static integer, tuple of them, or None for all.
    dtype: to sum in, and of the result.
    keepdims: leave axes of size 1.
    initial: the start of the sum.
    where: booleans that broadcast against ``a``; the others count as 0.
    promote_integers: whether narrow integers are widened.

Raises:
    AxisError: an axis that ``a`` does not have.
    NotImplementedError: ``out`` is given.
"""
_PROD = """Product over ``axis``; integers narrower than 32 bits are multiplied in 32. Parameters as in `sum`.

Raises:
    AxisError, NotImplementedError: as `sum`.
"""
sum = _total("sum", "reduce_sum", 0, np.add, _SUM)
prod = _total("prod", "reduce_prod", 1, None, _PROD)


_NO_IDENTITY = """

Args:
    a: array of numbers or booleans; complex numbers are ordered by their real parts, then by the others.
    axis: int, tuple of ints, or None for all.
    keepdims: reduced axes stay, with size 1.
    initial: a number that is included.
    where: booleans that broadcast: which elements count.

Raises:
    AxisError: an axis that ``a`` does not have.
    ValueError: no elements, or ``where`` is given, without ``initial``.
"""


def _extremum(name: str, ufunc: Any, identity: Callable[[DType], Any], doc: str) -> Any:
    op = f"reduce_{name}"

    @named(name, doc + _NO_IDENTITY, *_EXAMPLES[name])
    def function(
        a: ArrayLike,
        axis: int | Sequence[int] | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        reject_out(name, out)
        if initial is None and where is None:
            quick = reduction(a, ufunc, axis, keepdims)
            if quick is not None:
                return quick if not quick.type.weak else convert(quick, quick.dtype)  # as JAX's: strong
        x = as_operand(a, name)
        axes = as_axes(name, axis, x.ndim)
        if where is not None and initial is None:
            raise ValueError(
                f"reduction operation {name} does not have an identity, "
                "so to use a where mask one has to specify 'initial'"
            )
        empty = math.prod(x.shape[i] for i in axes) == 0
        if initial is None and empty:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        if empty:
            zero = wrap(np.asarray(identity(x.dtype), x.dtype))
            y = broadcast_to_shape(zero, tuple(n for i, n in enumerate(x.shape) if i not in axes))
        elif x.dtype in dtypes.COMPLEX:
            y = _complex_extremum(name, x if where is None else _masked(x, where, initial), axes)
        else:
            y = _over(op, x if where is None else _masked(x, where, identity(x.dtype)), axes)
        y = _from(name, op, initial, y)
        y = convert(y, y.dtype)
        return _keep(y, x.shape, axes) if keepdims else y

    return function


def _complex_extremum(name: str, x: Array, axes: Axes) -> Array:
    """By real part, then imaginary part."""
    rest = [i for i in range(x.ndim) if i not in axes]
    flat = ops.reshape(
        jnp.moveaxis(x, tuple(rest), tuple(range(len(rest)))),
        shape=(*(x.shape[i] for i in rest), math.prod(x.shape[i] for i in axes)),
    )
    ordered = jnp.sort(flat, axis=-1)
    last = ordered[..., -1]  # nan, if there is one
    return last if "max" in name else ops.select_n(ops.ne(last, last), ordered[..., 0], last)


max = _extremum("max", np.maximum, lowest, "The largest element over ``axis``; nan if there is one.")
min = _extremum("min", np.minimum, highest, "The smallest element over ``axis``; nan if there is one.")
amax, amin = max, min


_BOOLEAN = """ Numbers count as true unless zero.

Args:
    a: array; the result is boolean.
    axis: int, tuple of ints, or None for all.
    keepdims: reduced axes stay, with size 1.
    where: booleans that broadcast: which elements count.

Raises:
    AxisError: an axis that ``a`` does not have.
    NotImplementedError: ``out`` is given; arrays are immutable.
"""


def _truth(name: str, op: str, identity: bool, doc: str) -> Any:
    @named(name, doc + _BOOLEAN, *_EXAMPLES[name])
    def function(
        a: ArrayLike,
        axis: int | Sequence[int] | None = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> Array:
        reject_out(name, out)
        x = boolean(a, name)
        axes = as_axes(name, axis, x.ndim)
        if where is not None:
            x = _masked(x, where, identity)
        y = _over(op, x, axes)
        return _keep(y, x.shape, axes) if keepdims else y

    return function


all = _truth("all", "reduce_and", True, "Whether all elements over ``axis`` are true.")
any = _truth("any", "reduce_or", False, "Whether any element over ``axis`` is true.")


@example("jnp.array([[0, 7], [8, 9]]), axis=1", "Array([1, 2], dtype=int32)")
def count_nonzero(a: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """The number of elements over ``axis`` that are not zero, as the default integer."""
    x = boolean(a, "count_nonzero")
    counted = math.prod(x.shape[i] for i in as_axes("count_nonzero", axis, x.ndim))
    return sum(convert(x, index_dtype(counted)), axis, keepdims=keepdims)


@example("jnp.array([[1, 5], [2, 9]]), axis=1", "Array([4, 7], dtype=int32)", raises="ValueError: no elements.")
def ptp(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Largest minus smallest over ``axis``; nan where there is one."""
    reject_out("ptp", out)
    return jnp.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


# --- moments ---


def _count(x: Array, axes: Axes, mask: Any, keepdims: bool, dtype: DType) -> Any:
    """How many elements take part: a number, or an array under a mask."""
    if mask is None:
        return math.prod(x.shape[i] for i in axes)
    m = jnp.broadcast_to(boolean(mask, "where"), x.shape)
    return sum(convert(m, dtype), axes, keepdims=keepdims)


def float_for(x: Array, dtype: Any) -> DType:
    return dtypes.to_inexact(x.dtype) if dtype is None else dtypes.as_dtype(dtype)


def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Arithmetic mean over ``axis``. Half precision is averaged in single; integers become float; nan where nothing is.

    Args:
        a: array of numbers or booleans.
        axis: int, tuple of ints, or None for all.
        dtype: of the result and of the computation.
        keepdims: reduced axes stay, with size 1.
        where: booleans that broadcast: which elements count.

    Raises:
        AxisError: an axis that ``a`` does not have.
        NotImplementedError: ``out`` is given; arrays are immutable.

    >>> jnp.mean(jnp.array([[1, 2], [3, 5]]), axis=1)
    Array([1.5, 4. ], dtype=float32)
    >>> jnp.mean(jnp.array([1.0, 2.0, 9.0]), where=jnp.array([True, True, False]))
    Array(1.5, dtype=float32)
    """
    reject_out("mean", out)
    if dtype is None and where is None:
        total = reduction(a, np.add, axis, keepdims)
        if total is not None and total.size:
            return total / (a.size // total.size)
    x = as_operand(a, "mean")
    wanted = float_for(x, dtype)
    axes = as_axes("mean", axis, x.ndim)
    work = wide(wanted)
    x = convert(x, work)
    total = sum(x, axes, keepdims=keepdims, where=where)
    y = total / _count(x, axes, where, keepdims, dtypes.real_part(work))
    return convert(y, wanted)


# `var` and `std` have a parameter of that name.
_mean = mean


def squares(x: Array) -> Array:
    """|x|^2, real."""
    if x.dtype in dtypes.COMPLEX:
        return ops.add(ops.square(ops.real(x)), ops.square(ops.imag(x)))
    return ops.square(x)


def wide(dtype: DType) -> DType:
    return dtypes.float32 if dtype in dtypes.FLOAT and dtype.itemsize < 4 else dtype


def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Array | tuple[Array, ...]:
    """Mean over ``axis``, weighted by ``weights``; with ``returned``, also the sum of the weights.

    ``weights`` has the shape of ``a``, or of its axes ``axis``.

    Raises:
        ValueError: shapes differ and no ``axis`` is given.
        ShapeError: ``weights`` does not fit the axes.

    >>> jnp.average(jnp.array([[1.0, 2.0], [3.0, 6.0]]), axis=1, weights=jnp.array([3, 1]), returned=True)
    (Array([1.25, 3.75], dtype=float32), Array([4., 4.], dtype=float32))
    """
    if weights is None:
        y = mean(a, axis, keepdims=keepdims)
        if not returned:
            return y
        return y, jnp.full(y.shape, jnp.size(a, axis), y.dtype)
    x, w = promote_inexact("average", a, weights)
    if x.shape != w.shape:
        if axis is None:
            raise ValueError("Axis must be specified when shapes of a and weights differ.")
        axes = as_axes("average", axis, x.ndim)
        if w.shape != tuple(x.shape[i] for i in axes):
            raise ShapeError("average: Shape of weights must be consistent with shape of a along specified axis")
        order = sorted(range(len(axes)), key=axes.__getitem__)
        w = jnp.moveaxis(w, tuple(order), tuple(range(len(order)))) if len(order) > 1 else w
        w = ops.broadcast_in_dim(w, shape=x.shape, broadcast_dimensions=tuple(sorted(axes)))
    total = sum(w, axis, keepdims=keepdims)
    y = sum(x * w, axis, keepdims=keepdims) / total
    return (y, jnp.broadcast_to(total, y.shape)) if returned else y


def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: int | float | None = None,
) -> Array:
    """Variance over ``axis``: mean square distance from the mean, with ``n - ddof`` in the denominator.

    Real for complex input; integers become float. ``mean`` spares computing the mean again, ``correction`` is the
    standard's name of ``ddof``; nan where ``n - ddof`` is not positive.

    Raises:
        ValueError: both ``ddof`` and ``correction``.
        DtypeError: complex input and a real ``dtype``.

    >>> jnp.var(jnp.array([1, 2, 3, 4])), jnp.var(jnp.array([1, 2, 4]), ddof=3)
    (Array(1.25, dtype=float32), Array(nan, dtype=float32))
    """
    reject_out("var", out)
    if correction is not None:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    x = as_operand(a, "var")
    if dtype is not None and x.dtype in dtypes.COMPLEX and dtypes.as_dtype(dtype) not in dtypes.COMPLEX:
        raise DtypeError("var: a complex input needs a complex dtype", got=x.type)
    wanted = float_for(x, dtype)
    work = wide(wanted)
    x = convert(x, work)
    axes = as_axes("var", axis, x.ndim)
    centered = x - (
        _mean(x, axes, keepdims=True, where=where) if mean is None else convert(as_operand(mean, "var"), work)
    )
    squared = squares(centered)
    n = _count(x, axes, where, keepdims, dtypes.real_part(work))
    y = sum(squared, axes, keepdims=keepdims, where=where)
    if wanted in dtypes.INEXACT:
        y = convert(y / (n - ddof), dtypes.real_part(wanted) if dtype is None else wanted)
    else:  # computed in integers, but nan is none
        y = convert(y // (n - ddof), dtypes.as_dtype(float), weak=True)
    # Chosen, not computed, so that it has no derivative.
    if not isinstance(n, int):
        return ops.select_n(n - ddof > 0, full_like(y, math.nan), y)
    return y if n - ddof > 0 else full_like(y, math.nan)


@example("jnp.array([[1.0, 3.0], [2.0, 8.0]]), axis=1", "Array([1., 3.], dtype=float32)")
def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: int | float | None = None,
) -> Array:
    """Standard deviation over ``axis``: the square root of `var`, with the same parameters.

    Raises:
        AxisError, NotImplementedError: as `mean`.
    """
    reject_out("std", out)
    if dtype is not None and dtypes.as_dtype(dtype) not in dtypes.INEXACT:
        raise DtypeError("std: dtype must be inexact", got=dtypes.as_dtype(dtype), expected="float or complex")
    return ops.sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


# --- places of extrema ---


_FIRST = """ The first one where several are equal; of a nan, if there is one.

Without an axis, of the flattened array.

Raises:
    ValueError: no elements.
"""


def _arg(name: str, op: str, doc: str) -> Any:
    @named(name, doc + _FIRST, *_EXAMPLES[name])
    def function(
        a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool | None = None
    ) -> Array:
        reject_out(name, out)
        x = as_operand(a, name)
        shape = x.shape
        x, i = along(name, x, axis)
        if x.shape[i] == 0:
            raise ValueError(f"attempt to get {name} of an empty sequence")
        if x.dtype in dtypes.COMPLEX:
            y = jnp.argsort(x, axis=i)[(*(slice(None),) * i, -1 if name == "argmax" else 0)]
        else:
            if x.dtype == dtypes.bool_:
                x = convert(x, dtypes.int8)
            y = getattr(ops, op)(x, axes=(i,), index_dtype=index_dtype(x.shape[i] - 1))
        if not keepdims:
            return y
        return _keep(y, shape, tuple(range(len(shape))) if axis is None else (i,))

    return function


argmax = _arg("argmax", "argmax", "Index of the largest element along ``axis``.")
argmin = _arg("argmin", "argmin", "Index of the smallest element along ``axis``.")


# --- running ---


_FLAT = """ Without an axis, of the flattened array. Keeps the dtype; booleans become integers.

Args:
    a: array of numbers or booleans; the result has its shape.
    axis: int; None flattens.
    dtype: of the result and of the computation.

Raises:
    AxisError: an axis that ``a`` does not have.
    NotImplementedError: ``out`` is given; arrays are immutable.
"""


def _running(name: str, op: str, doc: str) -> Any:
    @named(name, doc + _FLAT, *_EXAMPLES[name])
    def function(
        a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        reject_out(name, out)
        x, i = along(name, as_operand(a, name), axis)
        own = dtypes.as_dtype(int) if x.dtype == dtypes.bool_ else x.dtype
        wanted = own if dtype is None else dtypes.as_dtype(dtype)
        x = boolean(x, name) if wanted == dtypes.bool_ else convert(x, wanted)
        if wanted == dtypes.bool_:
            return convert(getattr(ops, op)(convert(x, dtypes.int32), axis=i, reverse=False), dtypes.bool_)
        return getattr(ops, op)(x, axis=i, reverse=False)

    return function


cumsum = _running("cumsum", "cumsum", "Running sum along ``axis``.")
cumprod = _running("cumprod", "cumprod", "Running product along ``axis``.")


_ONE_AXIS = """ Integers are widened as in `sum`.

Raises:
    ShapeError: a 0-d array.
    ValueError: more than one axis, and ``axis`` is not given.
"""


def _cumulative(name: str, plain: Any, start: int, doc: str) -> Any:
    @named(name, doc + _ONE_AXIS, *_EXAMPLES[name])
    def function(
        x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
    ) -> Array:
        v = as_operand(x, name)
        if v.ndim == 0:
            raise ShapeError("The input must be non-scalar to take a cumulative sum or product", got=v.type)
        if axis is None:
            if v.ndim > 1:
                raise ValueError(f"{name}: axis is needed for an array of more than one axis")
            axis = 0
        i = as_axis(name, axis, v.ndim)
        y = plain(v, i, _sum_dtype(v.dtype) if dtype is None else dtype)
        if not include_initial:
            return y
        head = wrap(np.full([1 if k == i else n for k, n in enumerate(y.shape)], start, y.dtype))
        return ops.concatenate(head, y, dimension=i)

    return function


cumulative_sum = _cumulative("cumulative_sum", cumsum, 0, "Running sum; ``include_initial`` puts a 0 before it.")
cumulative_prod = _cumulative("cumulative_prod", cumprod, 1, "Running product; ``include_initial`` puts a 1 before it.")
