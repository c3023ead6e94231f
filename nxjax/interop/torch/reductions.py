"""Rules of operators that reduce or order axes: sums, extrema, softmax, sorting, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.torch.elementwise import cast
from nxjax.interop.torch.promotion import category, floated, widened
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes


def axes_of(x: Any, dim: Any) -> tuple[int, ...]:
    """The axes that ``dim`` names; none named are all."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.ndim))
    return tuple(d % max(x.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim))


def _along(x: Any, dim: int) -> tuple[Any, int]:
    """An array with at least one axis, and the place of one of them."""
    return (x, dim % x.ndim) if x.ndim else (x.reshape(1), 0)


def _summed(x: Any, dtype: Any) -> Any:
    if dtype is not None:
        return cast(x, dtype)
    return x if category(x.dtype) > 1 else x.astype(dtypes.int64)


def _reduced(function: Any, x: Any, axes: tuple[int, ...], keepdim: bool) -> Any:
    """A reduction in float32 of what is narrower."""
    if not x.ndim:
        axes = ()
    return widened(lambda v: function(v, axis=axes, keepdims=keepdim).astype(v.dtype))(x)


@rule("sum", "sum.dim_IntList")
def _sum(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(jnp.sum, _summed(self, dtype), axes_of(self, dim), keepdim)


@rule("nansum")
def _nansum(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(jnp.nansum, _summed(self, dtype), axes_of(self, dim), keepdim)


@rule("mean", "mean.dim")
def _mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(jnp.mean, cast(self, dtype), axes_of(self, dim), keepdim)


@rule("prod", "prod.dim_int")
def _prod(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(jnp.prod, _summed(self, dtype), axes_of(self, dim), keepdim)


@rule("any", "any.dim", "any.dims")
def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    y = jnp.any(self != 0, axis=axes_of(self, dim) if self.ndim else (), keepdims=keepdim)
    return y.astype(jnp.uint8) if self.dtype == dtypes.uint8 else y


@rule("all", "all.dim", "all.dims")
def _all(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    y = jnp.all(self != 0, axis=axes_of(self, dim) if self.ndim else (), keepdims=keepdim)
    return y.astype(jnp.uint8) if self.dtype == dtypes.uint8 else y


@rule("count_nonzero", "count_nonzero.dim_IntList")
def _count_nonzero(self: Any, dim: Any = None) -> Any:
    return jnp.sum(self != 0, axis=axes_of(self, dim) if self.ndim else (), dtype=dtypes.int64)


def _extreme(function: Any) -> Any:
    def run(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
        return function(self, axis=axes_of(self, dim) if self.ndim else (), keepdims=keepdim)

    return run


rule("amax")(_extreme(jnp.max))
rule("amin")(_extreme(jnp.min))


@rule("max")
def _max(self: Any) -> Any:
    return jnp.max(self)


@rule("min")
def _min(self: Any) -> Any:
    return jnp.min(self)


def _arg(function: Any) -> Any:
    def run(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            flat = function(self.reshape(-1))
            return (flat.reshape((1,) * self.ndim) if keepdim else flat).astype(dtypes.int64)
        x, axis = _along(self, dim)
        y = function(x, axis=axis, keepdims=keepdim and self.ndim > 0)
        return y.reshape(() if not self.ndim else y.shape).astype(dtypes.int64)

    return run


rule("argmax")(_arg(jnp.argmax))
rule("argmin")(_arg(jnp.argmin))


def _with_place(find: Any) -> Any:
    """Extrema of one axis, and where each is: its derivative is that of reading there."""

    def run(self: Any, dim: int, keepdim: bool = False) -> Any:
        x, axis = _along(self, dim)
        places = jnp.expand_dims(find(x, axis=axis).astype(dtypes.int64), axis)
        y = jnp.take_along_axis(x, places, axis=axis)
        if not self.ndim:
            return y.reshape(()), places.reshape(())
        return (y, places) if keepdim else (y.squeeze(axis), places.squeeze(axis))

    return run


rule("max.dim")(_with_place(jnp.argmax))
rule("min.dim")(_with_place(jnp.argmin))


@rule("aminmax")
def _aminmax(self: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    axes = None if dim is None or not self.ndim else dim
    return jnp.min(self, axis=axes, keepdims=keepdim), jnp.max(self, axis=axes, keepdims=keepdim)


def _moments(x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    axes = axes_of(x, dim) if x.ndim else ()
    count = math.prod(x.shape[a] for a in axes)
    mean = x.mean(axes, keepdims=True)
    centered = x - mean
    less = max(count - (1 if correction is None else correction), 0)
    total = (jnp.conj(centered) * centered if category(x.dtype) == 3 else centered * centered).real.sum(
        axes, keepdims=keepdim
    )
    return total / jnp.asarray(less, total.dtype), mean if keepdim else mean.squeeze(axes)


def _spread(root: bool, both: bool) -> Any:
    def run(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        narrow = self.dtype in dtypes.NARROW
        variance, mean = _moments(self.astype(dtypes.float32) if narrow else self, dim, correction, keepdim)
        y = (jnp.sqrt(variance) if root else variance).astype(
            self.dtype if category(self.dtype) < 3 else variance.dtype
        )
        return (y, mean.astype(self.dtype)) if both else y

    return run


rule("var.correction")(_spread(False, False))
rule("std.correction")(_spread(True, False))
rule("var_mean.correction")(_spread(False, True))
rule("std_mean.correction")(_spread(True, True))


@rule("var.dim", "var")
def _var_dim(self: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _spread(False, False)(self, dim, correction=int(unbiased), keepdim=keepdim)


@rule("logsumexp")
def _logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    x = floated(self)
    return widened(lambda v: nn.logsumexp(v, axis=axes_of(x, dim) if x.ndim else (), keepdims=keepdim))(x)


@rule("linalg_vector_norm")
def _vector_norm(self: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    kept = self.dtype if category(self.dtype) != 3 else jnp.abs(self).dtype
    x = jnp.abs(cast(self, dtype)) if dtype is not None or ord % 2 or ord == 0 or category(self.dtype) == 3 else self
    axes = axes_of(self, dim) if self.ndim else ()

    def run(v: Any) -> Any:
        if ord == math.inf:
            return jnp.max(v, axis=axes, keepdims=keepdim)
        if ord == -math.inf:
            return jnp.min(v, axis=axes, keepdims=keepdim)
        if ord == 0:
            return jnp.sum(v != 0, axis=axes, keepdims=keepdim).astype(v.dtype)
        if ord == 1:
            return jnp.sum(v, axis=axes, keepdims=keepdim)
        if ord == 2:
            total = jnp.sum(v * v, axis=axes, keepdims=keepdim)
            # torch gives the zero vector the derivative zero.
            zero = total == 0
            return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, total)))
        return jnp.sum(jnp.abs(v) ** ord, axis=axes, keepdims=keepdim) ** (1 / ord)

    return widened(run)(x).astype(dtype or kept)


rule("norm.ScalarOpt_dim")(lambda self, p, dim, keepdim=False: _vector_norm(self, 2 if p is None else p, dim, keepdim))
rule("norm.Scalar")(lambda self, p=2: _vector_norm(self, p))


@rule("_cdist_forward", "cdist")
def _cdist(x1: Any, x2: Any, p: float = 2, compute_mode: int | None = None) -> Any:
    return _vector_norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1)


@rule("pdist", "_pdist_forward")
def _pdist(self: Any, p: float = 2) -> Any:
    rows, cols = np.triu_indices(self.shape[0], 1)
    return _vector_norm(self[jnp.asarray(rows)] - self[jnp.asarray(cols)], p, -1)


def _soft(function: Any) -> Any:
    def run(self: Any, dim: int, half_to_float: bool = False) -> Any:
        x = self.astype(dtypes.float32) if half_to_float else self
        return widened(lambda v: function(v.reshape(v.shape or 1), axis=dim if v.ndim else 0).reshape(v.shape))(x)

    return run


rule("_softmax")(_soft(nn.softmax))
rule("_log_softmax")(_soft(nn.log_softmax))


def _soft_of(function: Any) -> Any:
    def run(self: Any, dim: int, dtype: Any = None) -> Any:
        return _soft(function)(cast(self, dtype), dim)

    return run


rule("softmax.int")(_soft_of(nn.softmax))
rule("log_softmax.int")(_soft_of(nn.log_softmax))


# --- along an axis ---


def _cumulative(function: Any) -> Any:
    def run(self: Any, dim: int, *, dtype: Any = None) -> Any:
        x, axis = _along(_summed(self, dtype), dim)
        return widened(lambda v: function(v, axis=axis))(x).reshape(self.shape)

    return run


rule("cumsum")(_cumulative(lax.cumsum))
rule("cumprod")(_cumulative(lax.cumprod))


@rule("logcumsumexp")
def _logcumsumexp(self: Any, dim: int) -> Any:
    x, axis = _along(self, dim)
    return widened(lambda v: lax.cumlogsumexp(v, axis=axis))(x).reshape(self.shape)


def _running(name: str, better: Any) -> None:
    def run(self: Any, dim: int) -> Any:
        x, axis = _along(self, dim)
        if not x.size:
            return self, jnp.zeros(self.shape, dtypes.int64)
        at = lax.broadcasted_iota(dtypes.int64, x.shape, axis)

        def later(a: Any, b: Any) -> Any:
            (x, i), (y, j) = a, b
            take = better(y, x) | jnp.isnan(y) if category(x.dtype) > 1 else better(y, x)
            return jnp.where(take, y, x), jnp.where(take, j, i)

        _, places = lax.associative_scan(later, (lax.stop_gradient(x), at), axis=axis)
        return jnp.take_along_axis(x, places, axis=axis).reshape(self.shape), places.reshape(self.shape)

    rule(name)(run)


_running("cummax", jnp.greater_equal)
_running("cummin", jnp.less_equal)


def _ordered(x: Any, axis: int, descending: bool) -> Any:
    """Places in order, equal elements in the order in which they stood."""
    if not descending:
        return jnp.argsort(x, axis=axis, stable=True).astype(dtypes.int64)
    turned = jnp.flip(jnp.argsort(jnp.flip(x, axis), axis=axis, stable=True), axis)
    return (x.shape[axis] - 1 - turned).astype(dtypes.int64)


@rule("sort")
def _sort(self: Any, dim: int = -1, descending: bool = False) -> Any:
    x, axis = _along(self, dim)
    places = _ordered(x, axis, descending)
    y = jnp.take_along_axis(x, places, axis=axis)
    return y.reshape(self.shape), places.reshape(self.shape)


@rule("sort.stable")
def _sort_stable(self: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(self, dim, descending)


@rule("argsort", "argsort.stable")
def _argsort(self: Any, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Any:
    return _sort(self, dim, descending)[1]


@rule("topk")
def _topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    x, axis = _along(self, dim)
    if largest and category(x.dtype) == 2:
        places = lax.top_k(jnp.moveaxis(x, axis, -1), k)[1]
        places = jnp.moveaxis(places, -1, axis).astype(dtypes.int64)
    else:
        places = lax.slice_in_dim(_ordered(x, axis, largest), 0, k, axis=axis)
    y = jnp.take_along_axis(x, places, axis=axis)
    return (y, places) if self.ndim else (y.reshape(()), places.reshape(()))


@rule("kthvalue")
def _kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    x, axis = _along(self, dim)
    places = lax.slice_in_dim(_ordered(x, axis, False), k - 1, k, axis=axis)
    return _read_out(self, x, places, axis, keepdim)


def _read_out(given: Any, x: Any, places: Any, axis: int, keepdim: bool) -> Any:
    y = jnp.take_along_axis(x, places, axis=axis)
    if not given.ndim:
        return y.reshape(()), places.reshape(())
    return (y, places) if keepdim else (y.squeeze(axis), places.squeeze(axis))


@rule("median.dim")
def _median_dim(self: Any, dim: int, keepdim: bool = False) -> Any:
    x, axis = _along(self, dim)
    middle = (x.shape[axis] - 1) // 2
    places = lax.slice_in_dim(_ordered(x, axis, False), middle, middle + 1, axis=axis)
    if category(x.dtype) == 2:
        broken = jnp.isnan(x)
        first = jnp.expand_dims(jnp.argmax(broken, axis).astype(dtypes.int64), axis)
        places = jnp.where(jnp.any(broken, axis, keepdims=True), first, places)
    return _read_out(self, x, places, axis, keepdim)


@rule("median")
def _median(self: Any) -> Any:
    return _median_dim(self.reshape(-1), 0)[0]


@rule("nanmedian.dim")
def _nanmedian_dim(self: Any, dim: int, keepdim: bool = False) -> Any:
    x, axis = _along(self, dim)
    # NaNs stand behind all others.
    whole = jnp.sum(~jnp.isnan(x), axis, keepdims=True) if category(x.dtype) == 2 else x.shape[axis]
    middle = jnp.maximum((whole - 1) // 2, 0)
    places = _ordered(x, axis, False)
    middle = jnp.broadcast_to(middle, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
    return _read_out(self, x, jnp.take_along_axis(places, middle, axis=axis), axis, keepdim)


@rule("nanmedian")
def _nanmedian(self: Any) -> Any:
    return _nanmedian_dim(self.reshape(-1), 0)[0]


@rule("mode")
def _mode(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent elements, and where it stands last."""
    x, axis = _along(self, dim)
    rows = jnp.moveaxis(x, axis, -1)
    order = _ordered(rows, rows.ndim - 1, False)
    ranked = jnp.take_along_axis(rows, order, axis=-1)
    counts = jnp.sum(ranked[..., :, None] == ranked[..., None, :], -1)
    best = jnp.take_along_axis(ranked, jnp.argmax(counts, -1)[..., None], axis=-1)
    last = rows.shape[-1] - 1 - jnp.argmax(jnp.flip(rows == best, -1), -1)
    places = jnp.moveaxis(last[..., None].astype(dtypes.int64), -1, axis)
    return _read_out(self, x, places, axis, keepdim)


@rule("histc")
def _histc(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    x = lax.stop_gradient(self.reshape(-1))
    low, high = (jnp.min(x), jnp.max(x)) if min == max else (jnp.asarray(v, x.dtype) for v in (min, max))
    low, high = (jnp.where(low == high, v, w) for v, w in ((low - 1, low), (high + 1, high)))
    at = ((x - low) / (high - low) * bins).astype(dtypes.int32)
    inside = (x >= low) & (x <= high)
    return jnp.zeros(bins, x.dtype).at[jnp.clip(at, 0, bins - 1)].add(inside.astype(x.dtype))


@rule("multilabel_margin_loss")
def _multilabel_margin(self: Any, target: Any, reduction: int = 1) -> Any:
    """Labels stand before the first -1. Torch's decomposition is another function than its kernel."""
    n = self.shape[-1]
    named = jnp.cumsum(target < 0, -1) == 0
    at = jnp.where(named, target, 0)
    wanted = jnp.any(named[..., None] & (at[..., None] == jnp.arange(n)), -2)
    gaps = 1 - jnp.take_along_axis(self, at, axis=-1)[..., None] + self[..., None, :]
    counted = named[..., None] & ~wanted[..., None, :]
    rows = jnp.sum(jnp.where(counted, jnp.maximum(gaps, 0), 0), (-2, -1)) / n
    return (rows if reduction == 0 else jnp.mean(rows) if reduction == 1 else jnp.sum(rows)).astype(self.dtype)


@rule("equal")
def _equal(self: Any, other: Any) -> Any:
    return self.shape == other.shape and jnp.all(self == other)


@rule("dist")
def _dist(self: Any, other: Any, p: float = 2) -> Any:
    return _vector_norm(self - other, p)
