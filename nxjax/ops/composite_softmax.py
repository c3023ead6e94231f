"""softmax, log_softmax and logsumexp, each one equation: stable, with their short derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import add, div, mul, sub
from nxjax.ops.base import (
    CompositeOp,
    Differentiable,
    KeepsAxis,
    NDArray,
    RemovesAxes,
    Tangent,
    check_counted_axes,
    check_counted_axis,
    check_dtype,
    eval_by_expand,
    like,
)
from nxjax.ops.elementary import exp, log
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.rounding import is_finite
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType


def along(reduction: Any, x: Array, axis: int) -> Array:
    """A reduction along ``axis``, repeated back into the shape of ``x``."""
    kept = tuple(i for i in range(x.ndim) if i != axis)
    return broadcast_in_dim(reduction(x, axes=(axis,)), shape=x.shape, broadcast_dimensions=kept)


class AlongAxis(Differentiable, KeepsAxis, CompositeOp):
    """One float operand and one ``axis``, which is counted from the front; result of the operand's type."""

    def infer(self, x: ArrayType, /, *, axis: int) -> ArrayType:
        check_dtype(self, dtypes.FLOAT, x)
        check_counted_axis(self, axis, x.ndim)
        return x


@final
class Softmax(AlongAxis):
    """exp(x) / sum(exp(x)) along ``axis``, with the maximum subtracted first."""

    name = "softmax"

    def eval(self, x: NDArray, /, *, axis: int) -> NDArray:
        if x.dtype.itemsize < 4 or not x.size:
            return eval_by_expand(self, (x,), {"axis": axis})
        y = np.exp(x - x.max(axis, keepdims=True))
        y /= y.sum(axis, keepdims=True)
        return y

    def expand(self, x: Array, /, *, axis: int) -> Array:
        y = exp(sub(x, along(reduce_max, x, axis)))
        return div(y, along(reduce_sum, y, axis))

    def tangents(self, y: Array, x: Array, *, axis: int) -> Sequence[Tangent | None]:
        return (lambda t: mul(y, sub(t, along(reduce_sum, mul(y, t), axis))),)


@final
class LogSoftmax(AlongAxis):
    """x - log(sum(exp(x))) along ``axis``, with the maximum subtracted first."""

    name = "log_softmax"

    def eval(self, x: NDArray, /, *, axis: int) -> NDArray:
        if x.dtype.itemsize < 4 or not x.size:
            return eval_by_expand(self, (x,), {"axis": axis})
        shifted = x - x.max(axis, keepdims=True)
        shifted -= np.log(np.exp(shifted).sum(axis, keepdims=True))
        return shifted

    def expand(self, x: Array, /, *, axis: int) -> Array:
        shifted = sub(x, along(reduce_max, x, axis))
        kept = tuple(i for i in range(x.ndim) if i != axis)
        total = log(reduce_sum(exp(shifted), axes=(axis,)))
        return sub(shifted, broadcast_in_dim(total, shape=x.shape, broadcast_dimensions=kept))

    def tangents(self, y: Array, x: Array, *, axis: int) -> Sequence[Tangent | None]:
        # The probabilities are taken from x again: y is rounded, and exp(y) is off by the rounding of a large y.
        p = softmax(x, axis=axis)
        return (lambda t: sub(t, along(reduce_sum, mul(p, t), axis)),)


@final
class LogSumExp(Differentiable, RemovesAxes, CompositeOp):
    """log(sum(exp(x))) over ``axes``, with the largest element taken out first; -inf for no elements."""

    name = "logsumexp"

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...]) -> ArrayType:
        check_dtype(self, dtypes.FLOAT, x)
        check_counted_axes(self, axes, x.ndim)
        return x.with_shape(tuple(n for i, n in enumerate(x.shape) if i not in axes))

    def _back(self, y: Array, x: Array, axes: tuple[int, ...]) -> Array:
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        return broadcast_in_dim(y, shape=x.shape, broadcast_dimensions=kept)

    def _terms(self, x: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """The largest element, the exponentials of the differences from it, and their sum."""
        top = reduce_max(x, axes=axes)
        # An infinite largest element would make inf - inf of the differences.
        top = select_n(is_finite(top), like(top, 0), top)
        terms = exp(sub(x, self._back(top, x, axes)))
        return top, terms, reduce_sum(terms, axes=axes)

    def expand(self, x: Array, /, *, axes: tuple[int, ...]) -> Array:
        top, _, total = self._terms(x, axes)
        return add(log(total), top)

    def tangents(self, y: Array, x: Array, *, axes: tuple[int, ...]) -> Sequence[Tangent | None]:
        # Never from y: beside a large y its rounding is a factor of the exponentials. An infinite sum, or one of 0,
        # has no derivative: 0 / 0 gives NaN.
        _, terms, total = self._terms(x, axes)
        return (lambda t: div(reduce_sum(mul(t, terms), axes=axes), total),)


softmax = Softmax()
log_softmax = LogSoftmax()
logsumexp = LogSumExp()
