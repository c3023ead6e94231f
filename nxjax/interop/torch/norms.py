"""Rules of normalizations."""

from __future__ import annotations

import math
from typing import Any

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes


def _wide(x: Any) -> Any:
    return x.astype(dtypes.float32) if x.dtype in dtypes.NARROW else x


def _channels(v: Any, rank: int) -> Any:
    return v.reshape((1, -1) + (1,) * (rank - 2))


def _scaled(y: Any, weight: Any, bias: Any, rank: int) -> Any:
    y = y if weight is None else y * _channels(_wide(weight), rank)
    return y if bias is None else y + _channels(_wide(bias), rank)


def _centered(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """``(x - mean) / sqrt(var + eps)``, the mean, and the reciprocal of the root."""
    mean = x.mean(axes, keepdims=True)
    middle = x - mean
    inverse = lax.rsqrt((middle * middle).mean(axes, keepdims=True) + eps)
    return middle * inverse, mean, inverse


@rule("_native_batch_norm_legit_no_training")
def _without_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    x, mean, var = (_wide(v) for v in (input, running_mean, running_var))
    rank = input.ndim
    y = _scaled((x - _channels(mean, rank)) * _channels(lax.rsqrt(var + eps), rank), weight, bias, rank)
    none = jnp.zeros((0,), mean.dtype)
    return y.astype(input.dtype), none, none


def _trained(input: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """The result of a batch's own moments, its means and reciprocals of roots, and its variances without bias."""
    x = _wide(input)
    axes = (0, *range(2, x.ndim))
    y, mean, inverse = _centered(x, axes, eps)
    n = math.prod(x.shape[a] for a in axes)
    spread = ((x - mean) ** 2).sum(axes) / max(n - 1, 1)
    y = _scaled(y, weight, bias, x.ndim).astype(input.dtype)
    return y, mean.reshape(-1), inverse.reshape(-1), spread


@rule("_native_batch_norm_legit_functional")
def _functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        y, *none = _without_training(input, weight, bias, running_mean, running_var, momentum, eps)
        return y, *none, running_mean, running_var
    y, mean, inverse, spread = _trained(input, weight, bias, eps)
    mixed = lambda old, new: (old * (1 - momentum) + lax.stop_gradient(new) * momentum).astype(old.dtype)
    return y, mean, inverse, mixed(running_mean, mean), mixed(running_var, spread)


@rule("_native_batch_norm_legit.no_stats")
def _no_stats(input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return _trained(input, weight, bias, eps)[:3]


@rule("batch_norm", kept=False)
def _batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if not training:
        return _without_training(input, weight, bias, running_mean, running_var, momentum, eps)[0]
    if running_mean is None:
        return _no_stats(input, weight, bias, training, momentum, eps)[0]
    raise Refused(
        "from_torch: a file with batch_norm that trains",
        got="training=True",
        fix="torch.export.save(exported.run_decompositions(), path), or export the module after .eval()",
    )


@rule("instance_norm", kept=False)
def _instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if not use_input_stats:
        return _without_training(input, weight, bias, running_mean, running_var, momentum, eps)[0]
    y = _centered(_wide(input), tuple(range(2, input.ndim)), eps)[0]
    return _scaled(y, weight, bias, input.ndim).astype(input.dtype)


@rule("native_layer_norm")
def _native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = _wide(input)
    y, mean, inverse = _centered(x, tuple(range(x.ndim - len(normalized_shape), x.ndim)), eps)
    y = y if weight is None else y * _wide(weight)
    y = y if bias is None else y + _wide(bias)
    return y.astype(input.dtype), mean, inverse


@rule("layer_norm")
def _layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    if len(normalized_shape) != 1 or input.dtype in dtypes.NARROW:
        return _native_layer_norm(input, normalized_shape, weight, bias, eps)[0]
    return nn.layer_norm(input, weight, bias, epsilon=eps)


@rule("rms_norm", "_fused_rms_norm")
def _rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    x = _wide(input)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    least = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    y = x * lax.rsqrt((x * x).mean(axes, keepdims=True) + least)
    return (y if weight is None else y * _wide(weight)).astype(input.dtype)


@rule("native_group_norm")
def _native_group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    x = _wide(input).reshape((N, group, C // group * HxW))
    y, mean, inverse = _centered(x, (2,), eps)
    y = _scaled(y.reshape(input.shape), weight, bias, input.ndim)
    return y.astype(input.dtype), mean.reshape((N, group)), inverse.reshape((N, group))


@rule("group_norm")
def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05, cudnn_enabled: bool = True
) -> Any:
    n, c = input.shape[:2]
    return _native_group_norm(input, weight, bias, n, c, math.prod(input.shape[2:]), num_groups, eps)[0]


@rule("_weight_norm_interface")
def _weight_norm_interface(v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(a for a in range(v.ndim) if a != dim)
    size = jnp.sqrt((v * v).sum(axes, keepdims=True))
    return v * (g / size), size
