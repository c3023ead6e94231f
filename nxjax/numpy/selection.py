"""Choosing elements by a condition, and finding where a condition holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy import eager
from nxjax.numpy.creation import asarray, full, full_like, zeros
from nxjax.numpy.documented import example, shown
from nxjax.numpy.methods import concrete_value
from nxjax.numpy.promotion import (
    along,
    as_operand,
    broadcast,
    broadcast_to_shape,
    concrete_or_error,
    convert,
    index_dtype,
    promote,
    promote_to,
    static_int,
    widen_index,
)
from nxjax.numpy.promotion import result_type_of as _result_type_of
from nxjax.numpy.ranges import iota
from nxjax.numpy.reductions import cumsum
from nxjax.numpy.shapes import moveaxis, ravel
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Tracer


def _mask(x: Any, where: str) -> Array:
    v = as_operand(x, where)
    return v if v.dtype == dtypes.bool_ else ops.ne(v, 0)


@shown("where(jnp.array([True, False]), 1.0, 0.0)", "Array([1., 0.], dtype=float32, weak_type=True)")
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """``x`` where ``condition`` is true, else ``y``; with the condition alone, `nonzero`.

    Args:
        condition: array; numbers count as true unless zero.
        x, y: arrays; all three broadcast, and these two promote to the dtype of the result.
        size, fill_value: of `nonzero`, with the condition alone.

    Raises:
        ValueError: one of ``x`` and ``y`` without the other, or ``size`` with them.
        ShapeError: the shapes do not broadcast.
        ConcretizationTypeError: under a transform the condition alone, without ``size``.
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("Either both or neither of the x and y arguments should be provided to where.")
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where.")
    quick = eager.choice(condition, x, y)
    if quick is not None:
        return quick
    c = _mask(condition, "where")
    a, b = promote("where", x, y)
    c, a, b = broadcast("where", c, a, b)
    return ops.select_n(c, b, a)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: ArrayLike = 0) -> Array:
    """From each choice where its condition is the first to hold; ``default`` where none does.

    Args:
        condlist: boolean arrays.
        choicelist: as many arrays; all broadcast together and promote with ``default``.

    Raises:
        ValueError: the lists differ in length, or are empty.
        DtypeError: a condition is not boolean.

    >>> x = jnp.arange(5)
    >>> jnp.select([x < 2, x < 4], [x, 10 * x], default=-1)
    Array([ 0,  1, 20, 30, -1], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if not condlist:
        raise ValueError("condlist must be non-empty")
    dtype, weak = _result_type_of((default, *choicelist), "select")
    out: Any = promote_to("select", (default,), dtype, weak)[0]
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        v = as_operand(condition, "select")
        if v.dtype != dtypes.bool_:
            raise DtypeError("select: conditions are boolean", got=v.type)
        out = where(v, promote_to("select", (choice,), dtype, weak)[0], out)
    return out


@example(
    "jnp.array([-2.0, 0.0, 3.0]), [jnp.array([True, False, False])], [lambda x: -x, 7]",
    "Array([2., 7., 7.], dtype=float32)",
    raises="ValueError: the lists do not fit.",
)
def piecewise(
    x: ArrayLike, condlist: Sequence[ArrayLike] | Array, funclist: Sequence[Any], *args: object, **kw: object
) -> Array:
    """``funclist[i](x)`` where ``condlist[i]`` is the last to hold; one more function is the default (else 0).

    Every function gets all of ``x``; the result has its dtype. Numbers are constant functions.
    """
    v = as_operand(x, "piecewise")
    if isinstance(condlist, (Array, np.ndarray)):
        conditions = [condlist] if np.ndim(condlist) == 0 or np.ndim(condlist) == v.ndim else list(condlist)
    else:
        conditions = list(condlist) if np.ndim(condlist[0]) == v.ndim or v.ndim == 0 else [condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are "
            f"expected; got {len(funclist)}"
        )
    functions = list(funclist)
    out: Any = functions.pop() if len(functions) > len(conditions) else 0
    apply: Callable[[Any], Any] = lambda f: f(v, *args, **kw) if callable(f) else f
    y = _cast_like(apply(out), v)
    for condition, function in zip(conditions, functions, strict=True):
        y = where(condition, _cast_like(apply(function), v), y)
    return y


def _cast_like(y: Any, v: Array) -> Array:
    return broadcast_to_shape(convert(asarray(y), v.dtype), v.shape)


@example('jnp.array([0, 1, 5]), [jnp.array([1, 2, 3]), 10], mode="clip"', "Array([ 1, 10, 10], dtype=int32)")
def choose(a: ArrayLike, choices: Sequence[ArrayLike] | Array, out: None = None, mode: str = "raise") -> Array:
    """``choices[a[i]][i]`` for every i; all broadcast together.

    Args:
        a: integers, the number of the choice.
        choices: sequence of arrays.
        mode: for numbers out of range: ``"raise"`` (which needs concrete ``a``), ``"wrap"`` or ``"clip"``.

    Raises:
        DtypeError: ``a`` is not an integer array.
        ValueError: a number out of range under ``"raise"``, or another ``mode``.
        ConcretizationTypeError: ``a`` is traced under ``"raise"``.
    """
    index = as_operand(a, "choose")
    if index.dtype not in dtypes.INTEGER:
        raise DtypeError("`a` array must be integer typed", got=index.type)
    items = promote("choose", *choices)
    n = len(items)
    index, *items = broadcast("choose", index, *items)
    if mode == "raise":
        data = concrete_or_error("choose", index, 'mode="raise" looks at it; or give mode="clip" or "wrap"')
        if data.size and (data.min() < 0 or data.max() >= n):
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        index = jnp.remainder(widen_index(index), n)
    elif mode == "clip":
        index = jnp.clip(widen_index(index), 0, n - 1)
    else:
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    table = jnp.stack(items)
    return jnp.take_along_axis(table, ops.reshape(index, shape=(1, *index.shape)), 0)[0]


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """The elements of ``arr`` where ``condition`` holds, flattened; under `jit` their number must be given as ``size``.

    >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3]), size=4, fill_value=-1)
    Array([ 1,  3, -1, -1], dtype=int32)
    """
    return compress(
        as_operand(condition, "extract").ravel(), as_operand(arr, "extract").ravel(), size=size, fill_value=fill_value
    )  # type: ignore[attr-defined]


@example("jnp.array([False, True]), jnp.array([[1, 2], [3, 4]]), axis=0", "Array([[3, 4]], dtype=int32)")
def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """The slices of ``a`` along ``axis`` where ``condition`` is true; ``size`` fixes their number.

    Without an axis, of the flattened array. Missing slices are ``fill_value``.

    Raises:
        ShapeError: ``condition`` is not one-dimensional.
        ValueError: it is true past the end of the axis.
        ConcretizationTypeError: it is traced and ``size`` is not given.
    """
    c = _mask(condition, "compress")
    if c.ndim != 1:
        raise ShapeError("condition must be a 1D array", got=c.type)
    x = as_operand(a, "compress")
    x, i = along("compress", x, axis)
    n = min(c.shape[0], x.shape[i])
    if size is None:
        kept = np.flatnonzero(concrete_or_error("compress", c, "it decides the length of the result; or give size="))
        if kept.size and kept.max() >= x.shape[i]:
            raise ValueError("condition contains entries that are out of bounds")
        return jnp.take(x, kept.astype(np.int32), axis=i)
    (index,) = nonzero(c[:n], size=size, fill_value=n)
    rows = moveaxis(jnp.take(x, index, axis=i, mode="clip"), i, 0)
    valid = ops.reshape(ops.lt(index, n), shape=(size,) + (1,) * (rows.ndim - 1))
    return moveaxis(where(valid, rows, full_like(rows, fill_value)), 0, i)


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> tuple[Array, ...]:
    """Indices of the elements that are not zero, one array per axis.

    Under `jit` the number must be given as ``size``; what is missing is filled with ``fill_value`` (0).

    Raises:
        ValueError: ``a`` has no axis.
        ConcretizationTypeError: ``a`` is traced and ``size`` is not given.

    >>> jnp.nonzero(jnp.array([[0, 7], [8, 0]]))
    (Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
    >>> jnp.nonzero(jnp.array([0, 7]), size=3, fill_value=-1)
    (Array([ 1, -1, -1], dtype=int32),)
    """
    x = as_operand(a, "nonzero")
    x = concrete_value(x)
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d array has no indices; fix: nonzero(nx.numpy.atleast_1d(x))")
    if not isinstance(x, Tracer):
        found = [
            i.astype(index_dtype(n - 1))
            for i, n in zip(np.nonzero(concrete_or_error("nonzero", x)), x.shape, strict=True)
        ]
        if size is None:
            return tuple(wrap(i) for i in found)
        fills = _fills(fill_value, x.ndim)
        if all(not isinstance(f, Tracer) for f in fills):
            size = static_int("nonzero", size)
            return tuple(wrap(_sized(i, size, f)) for i, f in zip(found, fills, strict=True))
    if size is None:
        concrete_or_error("nonzero", x, "it decides the length of the result; or give size=")
    size = static_int("nonzero", size)

    fills = _fills(fill_value, x.ndim)
    if x.size == 0 or size == 0:
        return tuple(full((size,), f, index_dtype(n - 1)) for f, n in zip(fills, x.shape, strict=True))
    mask = ravel(_mask(x, "nonzero"))
    word = dtypes.int32 if x.size < 2**31 else dtypes.int64
    # Each true element knows its place among the true ones: counting those before place k finds element k.
    ends = cumsum(convert(mask, word))
    counts = full((size,), 0, word).at[ends].add(1, mode="drop")  # type: ignore[attr-defined]
    flat = cumsum(counts)
    total = ends[-1]
    out: list[Array] = []
    strides = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    valid = ops.lt(iota(size, word), promote_to("nonzero", (total,), word)[0] * np.ones(size, word))
    for n, stride, fill in zip(x.shape, strides, fills, strict=True):
        index = (flat // stride) % n  # type: ignore[operator]
        out.append(convert(where(valid, index, convert(as_operand(fill, "nonzero"), word)), index_dtype(n - 1)))
    return tuple(out)


def _fills(fill_value: Any, n: int) -> list[Any]:
    if fill_value is None:
        return [0] * n
    fills = list(fill_value) if isinstance(fill_value, (tuple, list)) else [fill_value] * n
    if len(fills) != n:
        raise ParameterError("nonzero: one fill_value per axis", got=len(fills), expected=n)
    if any(np.ndim(f) for f in fills if not isinstance(f, Tracer)):
        raise ParameterError("nonzero: fill_value is a scalar, or a tuple of one scalar per axis")
    return fills


def _sized(index: np.ndarray[Any, Any], size: int, fill: Any) -> np.ndarray[Any, Any]:
    out = np.full(size, np.asarray(fill), index.dtype)
    n = min(size, len(index))
    out[:n] = index[:n]
    return out


@example("jnp.array([[0, 7], [8, 0]])", "Array([1, 2], dtype=int32)")
def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Indices of nonzero elements in the flattened array; ``size`` and ``fill_value`` as in `nonzero`."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


@example("jnp.array([[0, 7], [8, 0]])", "Array([[0, 1],\n       [1, 0]], dtype=int32)")
def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Indices of nonzero elements, one row per element; ``size`` and ``fill_value`` as in `nonzero`."""
    x = as_operand(a, "argwhere")
    if x.ndim == 0:
        n = len(nonzero(ravel(x), size=size)[0]) if size is None else size
        return zeros((n, 0), int)
    return jnp.stack(nonzero(x, size=size, fill_value=fill_value), axis=-1)
