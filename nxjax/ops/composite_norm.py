"""Normalizations with scale and offset, each one equation: layer_norm, rms_norm, batch_norm_inference.

Means and variances of 16-bit input are taken in float32; results have the type of the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, mul, rsqrt, square, sub
from nxjax.ops.base import (
    CompositeOp,
    check_counted_axes,
    check_counted_axis,
    check_dtype,
    equal_dtypes,
    like,
    move_batch,
)
from nxjax.ops.convert import cast
from nxjax.ops.reduce import reduce_sum, widened
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents
from nxjax.trace.types import ArrayType

Axes = tuple[int, ...]


def _mean(x: Array, axis: Axes) -> Array:
    """Mean along ``axis``, repeated back into the shape of ``x``."""
    kept = tuple(i for i in range(x.ndim) if i not in axis)
    n = math.prod(x.shape[a] for a in axis)
    mean = mul(reduce_sum(x, axes=axis), 1 / n if n else math.nan)
    return broadcast_in_dim(mean, shape=x.shape, broadcast_dimensions=kept)


def _check_parameters(op: Op, x: ArrayType, axis: Axes, parameters: Sequence[ArrayType]) -> None:
    check_dtype(op, dtypes.FLOAT, x, *parameters)
    equal_dtypes(op, x, *parameters)
    check_counted_axes(op, axis, x.ndim)
    shape = tuple(x.shape[a] for a in axis)
    for p in parameters:
        if p.shape != shape:
            raise ShapeError(
                f"{op.name}: scale and bias have the shape of the normalized axes", got=f"{p} for {x}", expected=shape
            )


class OverAxes(CompositeOp):
    """Operand, then parameters that have the shape of its ``axis``; result of the operand's type."""

    def infer(self, x: ArrayType, /, *parameters: ArrayType, axis: Axes, epsilon: float) -> ArrayType:
        _check_parameters(self, x, axis, parameters)
        return x

    def normalized(self, x: Array, axis: Axes, epsilon: float) -> tuple[Array, Array]:
        """The operand normalized, and the factor that did it, both wide."""
        raise NotImplementedError

    def pushed(self, xhat: Array, factor: Array, t: Array, axis: Axes) -> Array:
        """The tangent of the normalized operand."""
        raise NotImplementedError

    def expand(self, x: Array, /, *parameters: Array, axis: Axes, epsilon: float) -> Array:
        y, _ = self.normalized(widened(x), axis, epsilon)
        return cast(self._scaled(y, parameters, axis), x.dtype)

    def _scaled(self, y: Array, parameters: Arrays, axis: Axes) -> Array:
        scale, *bias = (self._spread(p, y, axis) for p in parameters)
        return add(mul(y, scale), bias[0]) if bias else mul(y, scale)

    def _spread(self, p: Array, y: Array, axis: Axes) -> Array:
        return broadcast_in_dim(widened(p), shape=y.shape, broadcast_dimensions=axis)

    def jvp(self, primals: Arrays, tangents: Tangents, *, axis: Axes, epsilon: float) -> tuple[Any, Any]:
        y = self(*primals, axis=axis, epsilon=epsilon)
        x, scale = primals[0], primals[1]
        xhat, factor = self.normalized(widened(x), axis, epsilon)
        tx, tscale, *tbias = tangents
        parts: list[Array] = []
        if tx is not None:
            parts.append(mul(self.pushed(xhat, factor, widened(tx), axis), self._spread(scale, xhat, axis)))
        if tscale is not None:
            parts.append(mul(xhat, self._spread(tscale, xhat, axis)))
        parts += [self._spread(t, xhat, axis) for t in tbias if t is not None]
        total: Array | None = None
        for part in parts:
            total = part if total is None else add(total, part)
        return y, None if total is None else cast(total, x.dtype)

    def batch(self, size: int, args: Arrays, dims: Dims, *, axis: Axes, epsilon: float) -> tuple[Any, Any]:
        x = move_batch(args[0], dims[0], size)
        moved = tuple(a + 1 for a in axis)
        if all(d is None for d in dims[1:]):
            return self(x, *args[1:], axis=moved, epsilon=epsilon), 0
        # One scale per element of the batch: normalize all of them with scale 1, then scale.
        shape = tuple(x.shape[a] for a in moved)
        neutral = [like(ArrayType(shape, x.dtype), v) for v in (1, 0)[: len(args) - 1]]
        y = self(x, *neutral, axis=moved, epsilon=epsilon)
        rows = [move_batch(p, d, size) for p, d in zip(args[1:], dims[1:], strict=True)]
        spread = [broadcast_in_dim(p, shape=y.shape, broadcast_dimensions=(0, *moved)) for p in rows]
        y = mul(y, spread[0])
        return add(y, spread[1]) if len(spread) > 1 else y, 0


@final
class LayerNorm(OverAxes):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over ``axis``.

    Ba, Kiros and Hinton, "Layer normalization" (2016). The variance is the mean square distance from the mean.
    """

    name = "layer_norm"

    def infer(self, x: ArrayType, scale: ArrayType, bias: ArrayType, /, *, axis: Axes, epsilon: float) -> ArrayType:
        return super().infer(x, scale, bias, axis=axis, epsilon=epsilon)

    def normalized(self, x: Array, axis: Axes, epsilon: float) -> tuple[Array, Array]:
        centered = sub(x, _mean(x, axis))
        factor = rsqrt(add(_mean(square(centered), axis), epsilon))
        return mul(centered, factor), factor

    def pushed(self, xhat: Array, factor: Array, t: Array, axis: Axes) -> Array:
        return mul(factor, sub(sub(t, _mean(t, axis)), mul(xhat, _mean(mul(xhat, t), axis))))


@final
class RmsNorm(OverAxes):
    """x / sqrt(mean(x^2) + epsilon) * scale, over ``axis`` (Zhang and Sennrich, "RMS normalization", 2019)."""

    name = "rms_norm"

    def infer(self, x: ArrayType, scale: ArrayType, /, *, axis: Axes, epsilon: float) -> ArrayType:
        return super().infer(x, scale, axis=axis, epsilon=epsilon)

    def normalized(self, x: Array, axis: Axes, epsilon: float) -> tuple[Array, Array]:
        factor = rsqrt(add(_mean(square(x), axis), epsilon))
        return mul(x, factor), factor

    def pushed(self, xhat: Array, factor: Array, t: Array, axis: Axes) -> Array:
        return mul(factor, sub(t, mul(xhat, _mean(mul(xhat, t), axis))))


@final
class BatchNormInference(CompositeOp):
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, with one parameter per entry of ``axis``.

    Ioffe and Szegedy, "Batch normalization" (2015), with statistics given.
    """

    name = "batch_norm_inference"

    def infer(
        self,
        x: ArrayType,
        scale: ArrayType,
        offset: ArrayType,
        mean: ArrayType,
        variance: ArrayType,
        /,
        *,
        axis: int,
        epsilon: float,
    ) -> ArrayType:
        check_counted_axis(self, axis, x.ndim)
        _check_parameters(self, x, (axis,), (scale, offset, mean, variance))
        return x

    def expand(
        self, x: Array, scale: Array, offset: Array, mean: Array, variance: Array, /, *, axis: int, epsilon: float
    ) -> Array:
        # Scale and statistics join before they meet the large operand.
        factor = mul(widened(scale), rsqrt(add(widened(variance), epsilon)))
        shift = sub(widened(offset), mul(widened(mean), factor))
        factor, shift = (broadcast_in_dim(p, shape=x.shape, broadcast_dimensions=(axis,)) for p in (factor, shift))
        return cast(add(mul(widened(x), factor), shift), x.dtype)

    def batch(self, size: int, args: Arrays, dims: Dims, *, axis: int, epsilon: float) -> tuple[Any, Any]:
        d = dims[0]
        if d is not None and all(p is None for p in dims[1:]):
            return self(*args, axis=axis + (d <= axis), epsilon=epsilon), d
        # Batch and features become one axis of size * n features.
        x = move_batch(args[0], d, size, axis)
        n = x.shape[axis + 1]
        merged = reshape(x, shape=(*x.shape[:axis], size * n, *x.shape[axis + 2 :]))
        rows = [reshape(move_batch(p, pd, size), shape=(size * n,)) for p, pd in zip(args[1:], dims[1:], strict=True)]
        return reshape(self(merged, *rows, axis=axis, epsilon=epsilon), shape=x.shape), axis


layer_norm = LayerNorm()
rms_norm = RmsNorm()
batch_norm_inference = BatchNormInference()
