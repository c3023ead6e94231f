"""Order statistics and correlations: median, quantiles, covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShapeError
from nxjax.numpy.calculus import diff
from nxjax.numpy.contractions import dot
from nxjax.numpy.documented import COMPLEX, example, named
from nxjax.numpy.floats import clip, conjugate, imag, real
from nxjax.numpy.grids import diagonal
from nxjax.numpy.indexing import take_along_axis
from nxjax.numpy.joining import concatenate
from nxjax.numpy.powers import floor_divide, remainder
from nxjax.numpy.promotion import (
    as_axes,
    as_axis,
    as_operand,
    broadcast_to_shape,
    convert,
    full_like,
    promote,
    promote_inexact,
    promote_to,
    refuse_complex,
    reject_out,
)
from nxjax.numpy.reductions import average, cumsum
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import atleast_2d, moveaxis
from nxjax.numpy.sorting import sort
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.core import Array, Tracer

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The value below which a fraction ``q`` of the elements lies; ``method`` chooses between two neighbors.

    ``weights``, for every element or for the axes of ``axis``, need ``method="inverted_cdf"``.

    Args:
        a: array; integers become float. A nan makes the result nan.
        q: share from 0 to 1, or a vector of them, which becomes the first axis of the result.
        axis: static integer, tuple of them, or None for all.
        method: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"``, ``"nearest"`` or ``"inverted_cdf"``.

    Raises:
        ValueError: another ``method``, complex input, or ``overwrite_input``.
        ShapeError: ``q`` has more than one axis.

    >>> x, w = jnp.arange(4.0), jnp.array([1.0, 1.0, 1.0, 9.0])
    >>> print(jnp.quantile(x, 0.5), jnp.quantile(x, 0.5, weights=w, method="inverted_cdf"))
    1.5 3.0
    """
    return _quantile("quantile", a, q, axis, out, overwrite_input, method, keepdims, False, weights)


@example('jnp.array([1, 2, 3, 4]), 50, method="higher"', "Array(3., dtype=float32)")
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """As `quantile`, with ``q`` in percent."""
    (share,) = promote_inexact("percentile", q)
    return _quantile("percentile", a, share / 100, axis, out, overwrite_input, method, keepdims, False, weights)


def _nan_quantile(name: str, of: str, whole: int, args: str, shown: str) -> Any:
    @named(name, f"As `{of}`, nan left out; nan where nothing is left.", args, shown)
    def function(
        a: ArrayLike,
        q: ArrayLike,
        axis: int | Sequence[int] | None = None,
        out: None = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: ArrayLike | None = None,
    ) -> Array:
        share = q if whole == 1 else promote_inexact(name, q)[0] / whole
        return _quantile(name, a, share, axis, out, overwrite_input, method, keepdims, True, weights)

    return function


_NAN = "jnp.array([1.0, jnp.nan, 3.0])"
nanquantile = _nan_quantile(
    "nanquantile", "quantile", 1, f"{_NAN}, jnp.array([0.0, 0.5])", "Array([1., 2.], dtype=float32)"
)
nanpercentile = _nan_quantile("nanpercentile", "percentile", 100, f"{_NAN}, 50", "Array(2., dtype=float32)")


@example(
    "jnp.array([[7, 1, 2], [4, 3, 9]]), axis=1",
    "Array([2., 4.], dtype=float32)",
    "jnp.array([1, 2, 3, 10])",
    "Array(2.5, dtype=float32)",
    raises="ValueError: complex input, or ``overwrite_input``.",
)
def median(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The middle element, or the mean of the middle two; nan where there is one. Integers become float."""
    return _quantile("median", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, False)


@example("jnp.array([1.0, jnp.nan, 3.0])", "Array(2., dtype=float32)")
def nanmedian(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """As `median`, nan left out; nan where nothing is left."""
    return _quantile("nanmedian", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, True)


def _quantile(
    name: str,
    a: Any,
    q: Any,
    axis: Any,
    out: Any,
    overwrite: bool,
    method: str,
    keepdims: bool,
    skip_nan: bool,
    weights: Any = None,
) -> Array:
    reject_out(name, out)
    if overwrite:
        raise ValueError(f"{name}: arrays are immutable, so overwrite_input=True is not possible")
    x, share, w = _quantile_operands(name, a, q, method, weights)
    shape, axes = x.shape, as_axes(name, axis, x.ndim)
    if w is not None and w.shape != shape:
        w = _along_axes(w, shape, axis, axes)
    x, last = _rows(x, axes), x.ndim - len(axes)
    if w is None:
        ordered = sort(x, -1)
    else:
        # Every nan as the one that sorts last.
        nan_last = ops.select_n(ops.ne(x, x), x, full_like(x, math.nan))
        ordered, w = ops.sort(nan_last, _rows(w, axes), dimension=last, is_stable=True, num_keys=1)
    work = dtypes.float64 if dtypes.float64 in (x.dtype, share.dtype) else dtypes.float32
    many = (*x.shape[:-1], share.size)
    points = broadcast_to_shape(ops.reshape(convert(share, work), shape=(1,) * last + (share.size,)), many)

    def for_each_point(v: Array) -> Array:
        return broadcast_to_shape(ops.reshape(v, shape=(*v.shape, 1)), many)

    if skip_nan:
        count = for_each_point(ops.reduce_sum(convert(ops.eq(x, x), work), axes=(last,)))
        bad = ops.eq(count, full_like(count, 0))
    else:
        count = full_like(points, x.shape[-1])
        bad = for_each_point(ops.reduce_or(ops.ne(x, x), axes=(last,)))
    if method == "inverted_cdf":
        y = _inverted_cdf(ordered, w, points, count, work)
    else:
        y = _between(method, ordered, points, count)
    y = moveaxis(convert(ops.select_n(bad, y, full_like(y, math.nan)), x.dtype), -1, 0)
    if keepdims:
        y = ops.reshape(y, shape=(share.size, *(1 if i in axes else n for i, n in enumerate(shape))))
    return ops.reshape(y, shape=y.shape[1:]) if share.ndim == 0 else y


def _quantile_operands(name: str, a: Any, q: Any, method: str, weights: Any) -> tuple[Array, Array, Array | None]:
    """Elements, shares and weights, checked."""
    if method not in _METHODS:
        raise ValueError(f"method can only be {', '.join(map(repr, _METHODS))}")
    (x,), (share,) = promote_inexact(name, a), promote_inexact(name, q)
    w = None if weights is None else as_operand(weights, name)
    if w is not None:
        if w.dtype in dtypes.COMPLEX:
            raise ValueError("Weights cannot be complex types.")
        if method != "inverted_cdf":
            raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights.")
        x, w = promote_inexact(name, x, w)
    if x.dtype in dtypes.COMPLEX:
        raise ValueError(f"{name} does not support complex input, as the operation is poorly defined.")
    if share.ndim > 1:
        raise ShapeError(f"{name}: q must be have rank <= 1", got=share.type)
    return x, share, w


def _rows(v: Array, axes: tuple[int, ...]) -> Array:
    """``v`` with ``axes`` as one last axis."""
    rest = [i for i in range(v.ndim) if i not in axes]
    shape = (*(v.shape[i] for i in rest), math.prod(v.shape[i] for i in axes))
    return ops.reshape(moveaxis(v, tuple(rest), tuple(range(len(rest)))), shape=shape)


def _between(method: str, ordered: Array, points: Array, count: Array) -> Array:
    """What ``method`` makes of the two sorted elements around the share ``points`` of ``count`` elements."""
    before_last = ops.sub(count, full_like(count, 1))
    at = ops.mul(points, before_last)
    floor, zero, half = ops.floor(at), full_like(at, 0), full_like(at, 0.5)
    weight = ops.sub(at, floor)
    top = ops.max(before_last, zero)

    def element(place: Array) -> Array:
        index = convert(ops.max(zero, ops.min(place, top)), dtypes.as_dtype(int))
        return convert(take_along_axis(ordered, index, -1, mode="clip"), points.dtype)

    low, high = element(floor), element(ops.ceil(at))
    match method:
        case "lower":
            return low
        case "higher":
            return high
        case "nearest":
            return ops.select_n(ops.le(weight, half), high, low)
        case "midpoint":
            return ops.mul(ops.add(low, high), half)
        case _:
            return ops.add(ops.mul(low, ops.sub(full_like(weight, 1), weight)), ops.mul(high, weight))


def _along_axes(w: Array, shape: tuple[int, ...], axis: Any, axes: tuple[int, ...]) -> Array:
    """Weights of the reduced axes, for the whole shape."""
    if axis is None:
        raise ValueError("Weights shape must match 'a' shape when axis is None.")
    if w.shape != tuple(shape[i] for i in axes):
        raise ValueError(f"Weights shape {w.shape} must match reduction axes {tuple(shape[i] for i in axes)}")
    return ops.broadcast_in_dim(w, shape=shape, broadcast_dimensions=axes)


def _inverted_cdf(ordered: Array, w: Array | None, points: Array, count: Array, work: dtypes.DType) -> Array:
    """The first sorted element where the running weight reaches the share ``points``; nan for a bad weight."""
    last = ordered.ndim - 1
    w = full_like(convert(ordered, work), 1) if w is None else convert(w, work)
    zero = full_like(w, 0)
    bad = ops.or_(ops.lt(w, zero), ops.ne(w, w))
    running = cumsum(ops.select_n(ops.or_(bad, ops.ne(ordered, ordered)), w, zero), -1)
    target = ops.mul(points, broadcast_to_shape(running[..., -1:], points.shape))
    index = dtypes.as_dtype(int)
    at = convert(running[..., None, :] < target[..., None], index).sum(-1)
    top = convert(count, index) - 1
    at = ops.max(full_like(at, 0), ops.min(at, top))
    y = convert(take_along_axis(ordered, at, -1, mode="clip"), work)
    spoilt = ops.reshape(ops.reduce_or(bad, axes=(last,)), shape=(*ordered.shape[:-1], 1))
    return ops.select_n(broadcast_to_shape(spoilt, y.shape), y, full_like(y, math.nan))


@example("jnp.array([[1, 2, 3], [6, 4, 2]])", "Array([[ 1., -2.],\n       [-2.,  4.]], dtype=float32)")
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """The covariance matrix of variables in rows (columns, if not ``rowvar``).

    Args:
        m: vector or matrix of samples; integers become float.
        y: more variables, in the same form.
        bias: divide by n instead of n - 1.
        ddof: divide by n - ddof; overrides ``bias``.
        fweights: integer vector, how often each sample counts.
        aweights: vector of weights of the samples.
        dtype: of the result.

    Raises:
        ShapeError: more than two axes.
        TypeError: ``fweights`` is not of integers.
        RuntimeError: weights do not fit the samples.
    """
    return _covariance("cov", m, y, rowvar, int(not bias) if ddof is None else ddof, fweights, aweights, dtype)


def _covariance(name: str, m: Any, y: Any, rowvar: bool, ddof: Any, fweights: Any, aweights: Any, dtype: Any) -> Array:
    xs = promote_inexact(name, m) if y is None else promote_inexact(name, m, y)
    if dtype is not None:
        xs = promote_to(name, xs, dtypes.as_dtype(dtype))
    x = xs[0]
    if any(v.ndim > 2 for v in xs):
        raise ShapeError(f"{name}: operands have at most two dimensions", got=", ".join(str(v.type) for v in xs))
    if isinstance(ddof, Tracer) or not float(ddof).is_integer():
        raise ValueError("ddof must be integer")
    x = atleast_2d(x)
    if not rowvar and np.ndim(m) != 1:
        x = ops.transpose(x, permutation=(1, 0))
    if x.shape[0] == 0:
        return ops.reshape(x[:0, :0], shape=(0, 0))
    if y is not None:
        other = atleast_2d(xs[1])
        if not rowvar and other.shape[0] != 1:
            other = ops.transpose(other, permutation=(1, 0))
        x = concatenate([x, other], 0)
    ddof = int(ddof)
    weights: Any = None
    if fweights is not None:
        f = as_operand(fweights, "cov")
        if f.dtype not in dtypes.INTEGER:
            raise TypeError("fweights must be integer.")
        weights = _checked_weights("fweights", f, x.shape[1])
    if aweights is not None:
        w = _checked_weights("aweights", as_operand(aweights, "cov"), x.shape[1])
        weights = w if weights is None else weights * w
    mean, total = average(x, 1, weights, returned=True)
    total = total[0]
    if weights is None:
        factor = x.shape[1] - ddof
    elif ddof == 0:
        factor = total
    elif aweights is None:
        factor = total - ddof
    else:
        factor = total - ddof * sum_(weights * as_operand(aweights, "cov")) / total
    centered = x - mean[:, None]
    right = ops.transpose(centered if weights is None else centered * weights, permutation=(1, 0))
    out = dot(centered, conjugate(right)) / factor
    out = out if x.shape[1] else full_like(out, math.nan)
    return ops.reshape(out, shape=tuple(n for n in out.shape if n != 1))


def _checked_weights(name: str, w: Array, n: int) -> Array:
    if w.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if w.shape[0] != n:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    return ops.abs(w)


@example("jnp.array([1.0, 2.0]), jnp.array([5.0, 3.0])", "Array([[ 1., -1.],\n       [-1.,  1.]], dtype=float32)")
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None) -> Array:
    """Correlation coefficients: the covariance matrix scaled to ones on the diagonal.

    Args:
        x: vector or matrix of samples; integers become float.
        y: more variables, in the same form.
        rowvar: whether variables are rows, not columns.
        dtype: of the result.

    Raises:
        ShapeError: more than two axes.
    """
    c = _covariance("corrcoef", x, y, rowvar, 1, None, None, dtype)
    if c.ndim == 0:
        return c / c
    d = ops.sqrt(real(diagonal(c)))
    c = c / d[:, None] / d[None, :]
    if c.dtype in dtypes.COMPLEX:
        return ops.complex(clip(real(c), -1, 1), clip(imag(c), -1, 1))
    return clip(c, -1, 1)


@example("jnp.array([0, 3, 2, 5]), period=4", "Array([ 0, -1, -2, -3], dtype=int32)", raises=COMPLEX)
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * math.pi) -> Array:
    """Angles without jumps: multiples of ``period`` are added where neighbours differ by more than half of it.

    ``discont`` is the smallest difference that counts as a jump; integers with an integer ``period`` stay integers.
    """
    x = promote("unwrap", p, period)[0]
    refuse_complex("unwrap", x)
    whole = x.dtype in dtypes.INTEGER
    if x.ndim == 0:
        return x
    i = as_axis("unwrap", axis, x.ndim)
    if x.shape[i] == 0:
        return x
    x = convert(x, x.dtype)
    d = diff(x, axis=i)
    half = floor_divide(period, 2) if whole else period / 2
    shifted = remainder(d + half, period) - half
    even = not whole or period % 2 == 0
    if even:
        shifted = where((shifted == -half) & (d > 0), half, shifted)
    correction = shifted - d
    if discont is not None:
        correction = where(abs(d) < discont, 0, correction)
    elif even:
        correction = where(abs(d) < half, 0, correction)
    first = x[(*(slice(None),) * i, slice(0, 1))]
    rest = x[(*(slice(None),) * i, slice(1, None))] + cumsum(correction, i)
    return concatenate([first, rest], i)
