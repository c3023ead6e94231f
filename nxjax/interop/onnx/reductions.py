"""Rules of operators that reduce or order axes: sums, softmax, maxima, sorting, cumulative sums."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes


def _log_sum_exp(x: Any, axis: Any, keepdims: bool) -> Any:
    wide = x.astype(jnp.float64) if x.dtype not in dtypes.FLOAT else x
    return nn.logsumexp(wide, axis=axis, keepdims=keepdims)


def _extreme(function: Any, least: bool) -> Any:
    def run(x: Any, axis: Any, keepdims: bool) -> Any:
        if x.dtype == dtypes.bool_:
            return function(x.astype(jnp.uint8), axis=axis, keepdims=keepdims, initial=0 if least else 1) != 0
        bound = dtypes.lowest(x.dtype) if least else dtypes.highest(x.dtype)
        return function(x, axis=axis, keepdims=keepdims, initial=bound)

    return run


_REDUCTIONS: Final[dict[str, Any]] = {
    "ReduceSum": jnp.sum,
    "ReduceMean": jnp.mean,
    "ReduceProd": jnp.prod,
    "ReduceMax": _extreme(jnp.max, True),
    "ReduceMin": _extreme(jnp.min, False),
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims)),
    "ReduceLogSum": lambda x, axis, keepdims: jnp.log(jnp.sum(x, axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axis, keepdims: jnp.sum(x * x, axis=axis, keepdims=keepdims),
}
# What each gives for no axis at all, where the result is not the operand itself.
_POINTWISE: Final[dict[str, Any]] = {
    "ReduceL1": jnp.abs,
    "ReduceL2": jnp.abs,
    "ReduceLogSum": jnp.log,
    "ReduceSumSquare": lambda x: x * x,
}


def _reduction(name: str, function: Any) -> Any:
    def run(x: Any, given: Any = None, *, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        along = given if given is not None else axes
        if along is None or not len(along):
            if noop_with_empty_axes:
                return _POINTWISE.get(name, lambda x: x)(x)
            along = range(x.ndim)
        return function(x, axis=tuple(int(a) for a in along), keepdims=bool(keepdims)).astype(x.dtype)

    return rule(name, known=("given",))(run)


for _name, _function in _REDUCTIONS.items():
    _reduction(_name, _function)


def from_axis(x: Any, axis: int | None, opset: int, function: Any) -> Any:
    """``function(x, axis)``; versions before 13 work on all axes from ``axis`` on at once."""
    if opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = (1 if axis is None else axis) % max(x.ndim, 1)
    rows = math.prod(x.shape[:axis])
    return function(x.reshape((rows, -1) if rows else (0, math.prod(x.shape[axis:]))), 1).reshape(x.shape)


def _hardmax(x: Any, axis: int) -> Any:
    places = jnp.expand_dims(jnp.argmax(x, axis), axis)
    along = lax.broadcasted_iota(places.dtype, x.shape, axis % x.ndim)
    return (along == places).astype(x.dtype)


def _soft(name: str, function: Any) -> None:
    def run(x: Any, *, axis: int | None = None, opset: int) -> Any:
        return from_axis(x, axis, opset, function)

    rule(name)(run)


_soft("Softmax", nn.softmax)
_soft("LogSoftmax", nn.log_softmax)
_soft("Hardmax", _hardmax)


def _arg(name: str, function: Any) -> None:
    def run(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if select_last_index:
            found = x.shape[axis] - 1 - function(jnp.flip(x, axis), axis=axis, keepdims=bool(keepdims))
        else:
            found = function(x, axis=axis, keepdims=bool(keepdims))
        return found.astype(jnp.int64)

    rule(name)(run)


_arg("ArgMax", jnp.argmax)
_arg("ArgMin", jnp.argmin)


@rule("TopK", known=("count",))
def _top_k(x: Any, count: Any = None, *, k: int = 0, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    n = int(np.asarray(count).reshape(())) if count is not None else k
    if largest:
        y, places = lax.top_k(jnp.moveaxis(x, axis, -1), n)
        y, places = jnp.moveaxis(y, -1, axis), jnp.moveaxis(places, -1, axis)
    else:
        places = lax.slice_in_dim(jnp.argsort(x, axis=axis, stable=True), 0, n, axis=axis)
        y = jnp.take_along_axis(x, places, axis=axis)
    return y, places.astype(jnp.int64)


def _cumulative(name: str, function: Any, neutral: int) -> None:
    def run(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        along = int(np.asarray(axis).reshape(())) % x.ndim
        if reverse:
            x = jnp.flip(x, along)
        y = function(x, axis=along).astype(x.dtype)
        if exclusive and x.shape[along]:
            first = jnp.full_like(lax.slice_in_dim(y, 0, 1, axis=along), neutral)
            y = jnp.concatenate([first, lax.slice_in_dim(y, 0, x.shape[along] - 1, axis=along)], along)
        return jnp.flip(y, along) if reverse else y

    rule(name, known=("axis",))(run)


_cumulative("CumSum", jnp.cumsum, 0)
_cumulative("CumProd", jnp.cumprod, 1)
