"""Rules of normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes


def _channels(v: Any, rank: int) -> Any:
    return v.reshape((1, -1) + (1,) * (rank - 2))


@rule("BatchNormalization")
def _batch_norm(
    x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1, is_test: int = 0, outputs: int,
) -> Any:  # fmt: skip
    if not spatial:
        raise Refused("from_onnx: BatchNormalization with a mean for every element", got="spatial=0")
    if not training_mode:
        if outputs > 1:
            raise Refused("from_onnx: BatchNormalization before version 14 that trains", got=f"{outputs} results")
        s, b, m, v = (_channels(a, x.ndim) for a in (scale, bias, mean, var))
        return ((x - m) / jnp.sqrt(v + epsilon) * s + b).astype(x.dtype)
    axes = (0, *range(2, x.ndim))
    now, spread = x.mean(axes), x.var(axes)
    m, v = _channels(now, x.ndim), _channels(spread, x.ndim)
    y = (x - m) / jnp.sqrt(v + epsilon) * _channels(scale, x.ndim) + _channels(bias, x.ndim)
    return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


def normalized(x: Any, axes: tuple[int, ...], epsilon: float, stash: Any = None) -> tuple[Any, Any, Any]:
    """``(x - mean) / sqrt(var + epsilon)`` along ``axes``, the mean, and the reciprocal of the root."""
    wide = x.astype(stash or x.dtype)
    mean = wide.mean(axes, keepdims=True)
    centered = wide - mean
    inverse = 1 / jnp.sqrt((centered * centered).mean(axes, keepdims=True) + epsilon)
    return centered * inverse, mean, inverse


@rule("InstanceNormalization")
def _instance_norm(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    y, _, _ = normalized(x, tuple(range(2, x.ndim)), epsilon)
    return y * _channels(scale, x.ndim) + _channels(bias, x.ndim)


def _stash(x: Any, code: int) -> Any:
    return jnp.float32 if code == 1 and x.dtype in dtypes.NARROW else x.dtype


@rule("LayerNormalization")
def _layer_norm(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int
) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, inverse = normalized(x, axes, epsilon, _stash(x, stash_type))
    y = y.astype(x.dtype) * scale
    y = y if bias is None else y + bias
    return (y, mean, inverse)[:outputs]


def rms_normalized(x: Any, scale: Any, axis: int, epsilon: float, stash: Any) -> Any:
    """``x / sqrt(mean(x * x) + epsilon) * scale`` along the axes from ``axis`` on."""
    wide = x.astype(stash)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = wide / jnp.sqrt((wide * wide).mean(axes, keepdims=True) + epsilon)
    return (y.astype(scale.dtype) * scale).astype(scale.dtype)


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    return rms_normalized(x, scale, axis, epsilon, _stash(x, stash_type))


@rule("GroupNormalization")
def _group_norm(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1, opset: int
) -> Any:
    n, c = x.shape[:2]
    grouped = x.reshape((n, num_groups, -1))
    y = normalized(grouped, (2,), epsilon, _stash(x, stash_type))[0].astype(x.dtype)
    if opset < 21:
        return (y * scale[None, :, None] + bias[None, :, None]).reshape(x.shape)
    return y.reshape((n, c, -1)).reshape(x.shape) * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@rule("LpNormalization")
def _lp_norm(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    if p == 1:
        size = jnp.abs(x).sum(axis, keepdims=True)
    else:
        total = (x * x).sum(axis, keepdims=True)
        size = jnp.sqrt(total)
    return jnp.where(size == 0, 0, x / jnp.where(size == 0, 1, size)).astype(x.dtype)


@rule("MeanVarianceNormalization")
def _mean_variance(x: Any, *, axes: Any = None) -> Any:
    # ONNX's default is of images; an array of lower rank has fewer of these axes.
    along = tuple(a for a in (0, 2, 3) if a < x.ndim) if axes is None else tuple(axes)
    centered = x - x.mean(along, keepdims=True)
    return centered / (jnp.sqrt((centered * centered).mean(along, keepdims=True)) + 1e-9)


@rule("LRN")
def _lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    before = (size - 1) // 2
    window = (1, size, *(1,) * (x.ndim - 2))
    around = ((0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2))
    total = lax.reduce_window(x * x, jnp.asarray(0, x.dtype), lax.add, window, (1,) * x.ndim, around)
    return x / (bias + alpha / size * total) ** np.float32(beta).astype(x.dtype)
