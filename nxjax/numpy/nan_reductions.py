"""Reductions and scans that leave out nan, by those of `reductions` on what a mask keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from nxjax.numpy.documented import example, named
from nxjax.numpy.elementwise import logical_not
from nxjax.numpy.floats import isnan
from nxjax.numpy.promotion import as_operand, boolean, convert, reject_out
from nxjax.numpy.reductions import (
    all,
    argmax,
    argmin,
    cumprod,
    cumsum,
    float_for,
    max,
    mean,
    min,
    prod,
    squares,
    sum,
    var,
    wide,
)
from nxjax.numpy.selection import where as _where
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType, highest, lowest

# What stands between the parentheses of a function's example, and what the call prints.
_EXAMPLES: dict[str, tuple[str, str]] = {
    "nansum": ("jnp.array([1.0, jnp.nan, 3.0])", "Array(4., dtype=float32)"),
    "nanprod": ("jnp.array([2.0, jnp.nan, 3.0])", "Array(6., dtype=float32)"),
    "nanmax": ("jnp.array([1.0, jnp.nan, 3.0])", "Array(3., dtype=float32)"),
    "nanmin": ("jnp.array([jnp.nan, jnp.nan])", "Array(nan, dtype=float32)"),
    "nanargmax": ("jnp.array([1.0, jnp.nan, 3.0])", "Array(2, dtype=int32)"),
    "nanargmin": ("jnp.array([[jnp.nan, 2.0], [jnp.nan, jnp.nan]]), axis=1", "Array([ 1, -1], dtype=int32)"),
}


def _nan_mask(x: Array) -> Array:
    return logical_not(isnan(x))


def _both(mask: Array, where: Any) -> Array:
    return mask if where is None else mask & boolean(where, "where")


def _without_nan(name: str, a: Any, fill: float) -> Array:
    x = as_operand(a, name)
    return _where(_nan_mask(x), x, like(x, fill)) if x.dtype in dtypes.INEXACT else x


def _nan_total(name: str, plain: Any, fill: int, doc: str) -> Any:
    @named(name, doc, *_EXAMPLES[name])
    def function(
        a: ArrayLike,
        axis: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return plain(_without_nan(name, a, fill), axis, dtype, out, keepdims, initial, where)

    return function


nansum = _nan_total("nansum", sum, 0, "Sum over ``axis``, nan as 0.")
nanprod = _nan_total("nanprod", prod, 1, "Product over ``axis``, nan as 1.")


def _nan_extremum(name: str, what: str, plain: Any, identity: Callable[[DType], Any]) -> Any:
    @named(name, f"{what} ignoring NaN; NaN if all are NaN.", *_EXAMPLES[name])
    def function(
        a: ArrayLike,
        axis: int | Sequence[int] | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        x = as_operand(a, name)
        if x.dtype not in dtypes.INEXACT:
            return plain(x, axis, out, keepdims, initial, where)
        kept = _nan_mask(x)
        y = plain(_where(kept, x, like(x, identity(x.dtype))), axis, out, keepdims, initial, where)
        nothing = all(boolean(x != x, name), axis, keepdims=keepdims)
        return _where(nothing, like(y, math.nan), y) if initial is None else y

    return function


nanmax = _nan_extremum("nanmax", "Maximum", max, lowest)
nanmin = _nan_extremum("nanmin", "Minimum", min, highest)


@example("jnp.array([[1.0, jnp.nan], [jnp.nan, jnp.nan]]), axis=1", "Array([ 1., nan], dtype=float32)")
def nanmean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Mean over ``axis`` without nan; nan where nothing is left.

    Half precision is averaged in single; integers become float.
    """
    reject_out("nanmean", out)
    x = as_operand(a, "nanmean")
    if x.dtype not in dtypes.INEXACT:
        return mean(x, axis, dtype, out, keepdims, where=where)
    mask = _both(_nan_mask(x), where)
    return mean(_without_nan("nanmean", x, 0), axis, dtype, out, keepdims, where=mask)


@example("jnp.array([1.0, jnp.nan, 3.0])", "Array(1., dtype=float32)")
def nanvar(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Variance over ``axis`` without nan; nan where ``n - ddof`` is not positive. Parameters as in `var`."""
    reject_out("nanvar", out)
    x = as_operand(a, "nanvar")
    if x.dtype not in dtypes.INEXACT:
        return var(x, axis, dtype, out, ddof, keepdims, where=where, mean=mean)
    wanted = float_for(x, dtype)
    work = wide(wanted)
    x = convert(x, work)
    mask = _both(_nan_mask(x), where)
    center = nanmean(x, axis, keepdims=True, where=where) if mean is None else convert(as_operand(mean, "nanvar"), work)
    centered = _where(mask, x - center, like(x, 0))
    squared = squares(centered)
    n = sum(convert(mask, squared.dtype), axis, keepdims=keepdims) - ddof
    nothing = n <= 0
    y = _where(nothing, math.nan, sum(squared, axis, keepdims=keepdims)) / _where(nothing, 1, n)
    return convert(y, dtypes.real_part(wanted) if dtype is None else wanted)


@example("jnp.array([1.0, jnp.nan, 3.0])", "Array(1., dtype=float32)")
def nanstd(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """Standard deviation over ``axis`` without nan: the square root of `nanvar`."""
    return ops.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


def _nan_arg(name: str, plain: Any, fill: Callable[[DType], Any]) -> Any:
    @named(name, f"As `{name[3:]}`, nan left out; -1 where nothing is left.", *_EXAMPLES[name])
    def function(
        a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: bool | None = None
    ) -> Array:
        x = as_operand(a, name)
        if x.dtype not in dtypes.INEXACT:
            return plain(x, axis, out, keepdims)
        kept = _nan_mask(x)
        y = plain(_where(kept, x, like(x, fill(x.dtype))), axis, out, keepdims)
        nothing = all(boolean(x != x, name), axis, keepdims=bool(keepdims))
        return _where(nothing, like(y, -1), y)

    return function


nanargmax = _nan_arg("nanargmax", argmax, lowest)
nanargmin = _nan_arg("nanargmin", argmin, highest)


@example("jnp.array([1.0, jnp.nan, 3.0])", "Array([1., 1., 4.], dtype=float32)")
def nancumsum(
    a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running sum along ``axis``, nan as 0; without an axis, of the flattened array."""
    return cumsum(_without_nan("nancumsum", a, 0), axis, dtype, out)


@example("jnp.array([2.0, jnp.nan, 3.0])", "Array([2., 2., 6.], dtype=float32)")
def nancumprod(
    a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Running product along ``axis``, nan as 1; without an axis, of the flattened array."""
    return cumprod(_without_nan("nancumprod", a, 1), axis, dtype, out)
