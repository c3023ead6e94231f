"""Rules of batch normalization."""

from __future__ import annotations

import math
from typing import Any

from nxjax.ops.arithmetic import add, div, mul, rsqrt, sub
from nxjax.ops.base import constant, like
from nxjax.ops.composite_norm import batch_norm_inference
from nxjax.ops.reduce import reduce_sum
from nxjax.stablehlo.shapes import spread
from nxjax.stablehlo.walk import Operation, Scope, rule
from nxjax.trace.core import Array


@rule("stablehlo.batch_norm_inference")
def _inference(_: Scope, op: Operation, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    a = op.attributes
    return batch_norm_inference(x, scale, offset, mean, variance, axis=a["feature_index"], epsilon=a["epsilon"])


def _others(x: Array, axis: int) -> tuple[tuple[int, ...], int]:
    axes = tuple(i for i in range(x.ndim) if i != axis)
    return axes, math.prod(x.shape[i] for i in axes)


def _mean(x: Array, axis: int) -> Array:
    axes, n = _others(x, axis)
    total = reduce_sum(x, axes=axes)
    return div(total, like(total, n))


@rule("stablehlo.batch_norm_training")
def _training(_: Scope, op: Operation, x: Array, scale: Array, offset: Array) -> Any:
    axis, epsilon = op.attributes["feature_index"], op.attributes["epsilon"]
    wide = lambda v: spread(v, x.shape, (axis,))
    mean = _mean(x, axis)
    centered = sub(x, wide(mean))
    variance = _mean(mul(centered, centered), axis)
    factor = rsqrt(add(variance, constant(epsilon, x.dtype, variance.shape)))
    y = add(mul(mul(centered, wide(factor)), wide(scale)), wide(offset))
    return y, mean, variance


@rule("stablehlo.batch_norm_grad")
def _gradient(_: Scope, op: Operation, x: Array, scale: Array, mean: Array, variance: Array, ct: Array) -> Any:
    # Ioffe and Szegedy (2015), section 3.
    axis, epsilon = op.attributes["feature_index"], op.attributes["epsilon"]
    wide = lambda v: spread(v, x.shape, (axis,))
    axes, n = _others(x, axis)
    factor = rsqrt(add(variance, constant(epsilon, x.dtype, variance.shape)))
    centered = sub(x, wide(mean))
    ct_offset = reduce_sum(ct, axes=axes)
    ct_scale = mul(reduce_sum(mul(ct, centered), axes=axes), factor)
    normed = mul(centered, wide(factor))
    count = like(ct, n)
    inner = sub(sub(mul(count, ct), wide(ct_offset)), mul(normed, wide(ct_scale)))
    ct_x = mul(wide(div(mul(scale, factor), like(scale, n))), inner)
    return ct_x, ct_scale, ct_offset
