"""Arrays of numbers in arithmetic or geometric order, functions of them, and matrices of ones on diagonals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.creation import astype, full, full_scalar, put_on_device
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import (
    as_axis,
    as_operand,
    as_shape,
    broadcast,
    concrete_or_error,
    convert,
    promote_inexact,
    result_type_of,
    static_int,
)
from nxjax.numpy.scalar_types import result_type
from nxjax.numpy.shapes import expand_dims, moveaxis
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DeviceLike, DTypeLike, PyTree, ShardingLike
from nxjax.trace.array import wrap
from nxjax.trace.core import EVAL, Array, Tracer, current_trace
from nxjax.trace.dtypes import DType

# --- counted ---


def iota(n: int, dtype: DType) -> Array:
    """0, 1, ..., n - 1."""
    if current_trace() is EVAL:
        return wrap(dtypes.cast(np.arange(n), dtype))
    return ops.iota(dtype=dtype, shape=(n,), dimension=0)


def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """``start``, ``start + step``, ... below ``stop``; ``arange(n)`` counts from 0.

    Args:
        start, stop, step: numbers; one alone is ``stop``.
        dtype: of the result; by default what the numbers promote to, int32 or float32.

    Raises:
        ShapeError: a bound is not a scalar.
        ConcretizationTypeError: a traced bound: the size would depend on it.
        ZeroDivisionError: ``step`` is 0.

    >>> arange(3)
    Array([0, 1, 2], dtype=int32)
    """
    given = [x for x in (start, stop, step) if x is not None]
    for x in given:
        concrete_or_error("arange", x, "it decides the length")
        if np.ndim(x if not isinstance(x, Array) else x.numpy()):  # type: ignore[attr-defined]
            raise ShapeError("arange: bounds are scalars", got=np.shape(x))
    wanted = result_type(*given) if dtype is None else dtypes.as_dtype(dtype)
    first, last, by = ((x.numpy()[()] if isinstance(x, Array) else x) for x in (start, stop, step))  # type: ignore[attr-defined]
    if last is None:
        first, last = 0, first
    by = 1 if by is None else by
    if by == 0:
        raise ZeroDivisionError("arange: step must not be zero")
    if wanted == dtypes.bool_ and math.ceil((last - first) / by) > 2:
        raise DtypeError("arange: no more than two booleans", got=math.ceil((last - first) / by))
    if first == 0 and by == 1 and not isinstance(last, complex):
        return put_on_device(iota(max(0, math.ceil(last)), wanted), device)
    if all(isinstance(v, (int, np.integer)) for v in (first, last, by)):
        data = np.arange(int(first), int(last), int(by))
    else:
        data = np.arange(first, last, by, dtype=wanted if wanted in (dtypes.float32, dtypes.float64) else None)
    return put_on_device(wrap(dtypes.cast(data, wanted)), device)


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike = None,
) -> Array | tuple[Array, ...]:
    """``num`` values from ``start`` to ``stop``, evenly spaced along a new ``axis``; with ``retstep``, the step too.

    Raises:
        ParameterError: ``num`` is negative.
        ConcretizationTypeError: ``num`` is traced; ``start`` and ``stop`` may be.

    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    >>> jnp.linspace(0, 1, 4, endpoint=False, retstep=True)
    (Array([0.  , 0.25, 0.5 , 0.75], dtype=float32), Array(0.25, dtype=float32))
    """
    num = static_int("linspace", num)
    if num < 0:
        raise ParameterError("linspace: num must be non-negative", got=num)

    wanted = dtypes.as_dtype(result_type_of((start, stop), "linspace")[0] if dtype is None else dtype)
    wanted = dtypes.to_inexact(wanted) if dtype is None else wanted
    work = dtypes.to_inexact(wanted)
    # A Python number is read in the dtype that was asked for, not in the default one first.
    exact = (full((), v, work) if type(v) in (bool, int, float, complex) else v for v in (start, stop))
    a, b = broadcast("linspace", *(astype(as_operand(v, "linspace"), work) for v in exact))
    parts = num - 1 if endpoint else num
    column = (num,) + (1,) * a.ndim
    if num == 0:
        out = full_scalar((0, *a.shape), 0, work)
    elif num == 1:
        out = ops.reshape(a, shape=(1, *a.shape))
    else:
        real = dtypes.real_part(work)
        t = ops.reshape(ops.div(iota(num, real), full_scalar((num,), parts, real)), shape=column)
        t = convert(t, work)
        lo, hi, t = broadcast("linspace", ops.reshape(a, shape=(1, *a.shape)), ops.reshape(b, shape=(1, *b.shape)), t)
        out = ops.add(ops.mul(lo, ops.sub(full_scalar(t.shape, 1, work), t)), ops.mul(hi, t))
        if endpoint:
            # The last value is exactly `stop`, whatever the rounding of the others.
            body = ops.slice(out, start_indices=(0,) * out.ndim, limit_indices=(num - 1, *a.shape), strides=None)
            out = ops.concatenate(body, ops.reshape(b, shape=(1, *b.shape)), dimension=0)
    if wanted in dtypes.INTEGER:
        out = jnp.floor(out)
    out = put_on_device(moveaxis(convert(out, wanted), 0, as_axis("linspace", axis, out.ndim)), device)
    if not retstep:
        return out

    step = jnp.divide(jnp.subtract(b, a), parts) if parts else full_scalar(a.shape, math.nan, work)
    return out, step


@example("0, 3, 4", "Array([   1.,   10.,  100., 1000.], dtype=float32)", then=".round(2)")
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """``base ** linspace(start, stop)``: powers with evenly spaced exponents."""
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    work = None if wanted is None else dtypes.to_inexact(wanted)
    out = jnp.power(base, linspace(start, stop, num, endpoint, dtype=work, axis=axis))
    return out if wanted is None else astype(out, wanted)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """``num`` values from ``start``, exactly, to ``stop`` in equal ratios; of one sign (nan otherwise), or complex.

    >>> jnp.geomspace(1, 1000, 4).round(2)
    Array([   1.,   10.,  100., 1000.], dtype=float32)
    >>> jnp.geomspace(-16, -1, 3).round(2)
    Array([-16.,  -4.,  -1.], dtype=float32)
    """
    a, b = broadcast("geomspace", *promote_inexact("geomspace", start, stop))
    if dtype is not None:
        work = dtypes.to_inexact(dtypes.as_dtype(dtype))
        a, b = astype(a, work), astype(b, work)
    if a.dtype in dtypes.COMPLEX:
        ratio = jnp.log(jnp.divide(b, a))
        t = linspace(0, 1, num, endpoint, dtype=dtypes.real_part(a.dtype))
        t = ops.reshape(t, shape=(num,) + (1,) * a.ndim)
        out = jnp.multiply(a, jnp.exp(jnp.multiply(t, ratio)))
    else:
        # All of one sign: the sign is taken out, then the exponents are evenly spaced.
        s = jnp.sign(a)
        one = ops.mul(s, s)  # or 0, which makes nan of all
        a, b = ops.div(ops.mul(a, one), one), ops.div(ops.mul(b, one), one)
        out = jnp.multiply(
            s, jnp.power(10.0, linspace(jnp.log10(jnp.multiply(a, s)), jnp.log10(jnp.multiply(b, s)), num, endpoint))
        )
        if num > 0:
            first = expand_dims(a, 0)
            if num > 1 and endpoint:
                out = jnp.concatenate([first, out[1:-1], expand_dims(b, 0)])
            else:
                out = jnp.concatenate([first, out[1:]])
    out = moveaxis(out, 0, as_axis("geomspace", axis, out.ndim))
    return out if dtype is None else astype(out, dtype)


@example(
    "lambda row, column: 10 * row + column, (2, 3), dtype=int",
    "Array([[ 0,  1,  2],\n       [10, 11, 12]], dtype=int32)",
)
def fromfunction(
    function: Callable[..., Any], shape: Sequence[int], *, dtype: DTypeLike | None = float, **kwargs: object
) -> PyTree:
    """Call ``function`` with the coordinates of each element of an array of ``shape``, by `vmap`."""
    from nxjax.transforms.vmap import vmap

    sizes = as_shape("fromfunction", shape)
    function = functools.partial(function, **kwargs) if kwargs else function
    for axis in range(len(sizes) - 1, -1, -1):
        in_axes = tuple(0 if i == axis else None for i in range(len(sizes)))
        function = vmap(function, in_axes=in_axes)
    return function(*(arange(n, dtype=dtype) for n in sizes))


# --- matrices ---


def _rows_minus_columns(n: int, m: int) -> Array:
    rows = ops.broadcast_in_dim(iota(n, dtypes.int32), shape=(n, m), broadcast_dimensions=(0,))
    columns = ops.broadcast_in_dim(iota(m, dtypes.int32), shape=(n, m), broadcast_dimensions=(1,))
    return ops.sub(columns, rows)


@example(
    "2, 3, k=1", "Array([[0., 1., 0.],\n       [0., 0., 1.]], dtype=float32)", raises="ShapeError: a negative size."
)
def eye(
    N: ArrayLike, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None, *, device: DeviceLike = None
) -> Array:
    """Ones on the ``k``-th diagonal of an N by M matrix, zeros elsewhere."""
    n, m = as_shape("eye", (N, N if M is None else M))
    wanted = dtypes.as_dtype(float if dtype is None else dtype)
    if current_trace() is EVAL and not isinstance(k, Tracer):
        return put_on_device(wrap(np.eye(n, m, static_int("eye", k)).astype(wanted)), device)

    return put_on_device(convert(jnp.equal(_rows_minus_columns(n, m), k), wanted), device)


@example("2, dtype=int", "Array([[1, 0],\n       [0, 1]], dtype=int32)")
def identity(n: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """The n by n identity matrix."""
    return eye(n, dtype=dtype)


@example("2, 3", "Array([[1., 0., 0.],\n       [1., 1., 0.]], dtype=float32)")
def tri(N: ArrayLike, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Ones at and below the ``k``-th diagonal, zeros above."""
    n, m = as_shape("tri", (N, N if M is None else M))
    wanted = dtypes.float32 if dtype is None else dtypes.as_dtype(dtype)
    if current_trace() is EVAL:
        return wrap(np.tri(n, m, static_int("tri", k)).astype(wanted))

    return convert(jnp.less_equal(_rows_minus_columns(n, m), k), wanted)


@example(
    "jnp.array([2, 3]), 4",
    "Array([[ 8,  4,  2,  1],\n       [27,  9,  3,  1]], dtype=int32)",
    "jnp.array([2, 3]), increasing=True",
    "Array([[1, 2],\n       [1, 3]], dtype=int32)",
    raises="ShapeError: ``x`` is not one-dimensional.",
)
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Powers of the elements of ``x`` in columns, falling unless ``increasing``."""
    v = as_operand(x, "vander")
    if v.ndim != 1:
        raise ShapeError("vander: x is one-dimensional", got=v.type)
    n = v.shape[0] if N is None else static_int("vander", N)
    exponents = wrap((np.arange(n) if increasing else np.arange(n)[::-1].copy())[None])
    # Weak: `numpy_dtype_promotion` asks about what the caller gave.
    whole = convert(exponents, v.dtype if v.dtype in dtypes.INTEGER else dtypes.int32, True)
    return jnp.power(expand_dims(v, -1), whole)
