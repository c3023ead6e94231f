"""Rules of reductions, running sums, places of extremes, and sums by segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.tflite.elementwise import output_dtype
from nxjax.interop.tflite.shapes import ints, number
from nxjax.interop.tflite.walk import rule

_REDUCED: Final[dict[str, Callable[..., Any]]] = {
    "SUM": jnp.sum, "REDUCE_PROD": jnp.prod, "REDUCE_ANY": jnp.any, "REDUCE_ALL": jnp.all,
}  # fmt: skip


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, axes: Any, *, keep_dims: bool) -> Any:
        y = function(x, axis=along(x, axes), keepdims=keep_dims)
        return y.astype(x.dtype)

    return run


def along(x: Any, axes: Any) -> tuple[int, ...]:
    """The axes that an operand names, each once."""
    return tuple(sorted({a % x.ndim if x.ndim else a for a in ints(axes)}))


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.mean(x, axis=axis, keepdims=keepdims)
    # Whole numbers are cut towards zero.
    total = jnp.sum(x.astype(jnp.int64), axis=axis, keepdims=keepdims)
    count = int(np.prod([x.shape[a] for a in axis]))
    return lax.div(total, jnp.full_like(total, count))


for _name, _function in _REDUCED.items():
    rule(_name, known=("axes",))(reduced(_function))
rule("MEAN", known=("axes",))(reduced(_mean))
rule("REDUCE_MAX", known=("axes",), on_grids="moved")(reduced(jnp.max))
rule("REDUCE_MIN", known=("axes",), on_grids="moved")(reduced(jnp.min))


@rule("CUMSUM", known=("axis",))
def _cumsum(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
    a = number(axis)
    x = jnp.flip(x, a) if reverse else x
    y = jnp.cumsum(x, a, dtype=x.dtype)
    y = y - x if exclusive and jnp.issubdtype(x.dtype, jnp.integer) else _before(y, a) if exclusive else y
    return jnp.flip(y, a) if reverse else y


def _before(y: Any, axis: int) -> Any:
    """Sums without the last element: a subtraction would round."""
    config = [(0, 0, 0)] * y.ndim
    config[axis % y.ndim] = (1, -1, 0)
    return lax.pad(y, jnp.zeros((), y.dtype), config)


@rule("ARG_MAX", known=("axis",), on_grids="stored")
def _arg_max(x: Any, axis: Any, *, output_type: int) -> Any:
    return jnp.argmax(x, number(axis)).astype(output_dtype(output_type))


@rule("ARG_MIN", known=("axis",), on_grids="stored")
def _arg_min(x: Any, axis: Any, *, output_type: int) -> Any:
    return jnp.argmin(x, number(axis)).astype(output_dtype(output_type))


@rule("SEGMENT_SUM", known=("segments",))
def _segment_sum(x: Any, segments: Any) -> Any:
    count = int(segments[-1]) + 1 if segments.size else 0
    return jnp.zeros((count, *x.shape[1:]), x.dtype).at[jnp.asarray(segments)].add(x)


def _by_segment(start: Any, method: str) -> Callable[..., Any]:
    def run(x: Any, segments: Any, count: Any) -> Any:
        first = start(x.dtype)
        rows = jnp.full((number(count), *x.shape[segments.ndim :]), first, x.dtype)
        # Rows of negative segments are left out.
        at = jnp.where(segments < 0, number(count), segments)
        return getattr(rows.at[at], method)(x, mode="drop")

    return run


def _least(dtype: Any) -> Any:
    return np.finfo(dtype).min if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def _greatest(dtype: Any) -> Any:
    return np.finfo(dtype).max if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


for _name, (_start, _method) in {
    "SUM": (lambda dtype: 0, "add"), "PROD": (lambda dtype: 1, "multiply"), "MAX": (_least, "max"),
    "MIN": (_greatest, "min"),
}.items():  # fmt: skip
    rule(f"UNSORTED_SEGMENT_{_name}", known=("count",))(_by_segment(_start, _method))
