"""Normalization of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import as_axes, as_axis, as_operand, check_choice, convert, promote_inexact
from nxjax.ops import composite_norm as ops
from nxjax.ops.arithmetic import rsqrt
from nxjax.ops.base import like
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType


@shown("print(standardize(jnp.array([1.0, 2.0, 3.0])).round(3))", "[-1.225  0.     1.225]")
def standardize(
    x: ArrayLike,
    axis: int | Sequence[int] | None = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) along ``axis``.

    Args:
        x: array.
        axis: an axis or a tuple of them.
        mean, variance: given statistics; taken from ``x`` by default.
        epsilon: added to the variance.
        where: boolean mask of the elements for the statistics.
        algorithm: ``"fast"`` computes the variance as mean(x^2) - mean(x)^2, ``"stable"`` as mean((x - mean)^2).

    Raises:
        ParameterError: another algorithm.
    """
    check_choice("standardize: algorithm", algorithm, "fast", "stable")
    (v,) = promote_inexact("standardize", x)
    if mean is None:
        mean = jnp.mean(v, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            variance = jnp.mean(jnp.square(v - mean), axis, keepdims=True, where=where)
        else:
            variance = jnp.mean(jnp.square(v), axis, keepdims=True, where=where) - jnp.square(mean)
            # Cancellation may leave it below 0, which has no square root.
            variance = jnp.maximum(variance, 0)
    return (v - mean) * rsqrt(as_operand(variance + epsilon, "standardize"))


def _parameters(name: str, x: Any, axes: tuple[int, ...], given: list[tuple[Any, float]]) -> list[Array]:
    """Parameters in the dtype of ``x`` and the shape of its ``axes``; None is the neutral value."""
    shape = tuple(x.shape[a] for a in axes)
    neutral = ArrayType(shape, x.dtype)
    return [
        like(neutral, default) if p is None else jnp.broadcast_to(convert(as_operand(p, name), x.dtype), shape)
        for p, default in given
    ]


def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over ``axis`` (Ba et al., 2016).

    Args:
        x: float array; 16-bit floats are normalized in float32.
        scale, bias: of the shape of the normalized axes, or None for 1 and 0.
        axis: an axis or a tuple of them.
        epsilon: added to the variance.

    Raises:
        ShapeError: ``scale`` or ``bias`` does not broadcast to the normalized axes.

    >>> x = jnp.array([[1.0, 3.0], [10.0, 30.0]])
    >>> print(layer_norm(x, bias=jnp.array([0.0, 5.0])).round(3))
    [[-1.  6.]
     [-1.  6.]]
    """
    (v,) = promote_inexact("layer_norm", x)
    axes = as_axes("layer_norm", axis, v.ndim)
    parameters = _parameters("layer_norm", v, axes, [(scale, 1), (bias, 0)])
    return ops.layer_norm(v, *parameters, axis=axes, epsilon=float(epsilon))


@shown("print(rms_norm(jnp.array([3.0, 4.0, 0.0, 0.0])).round(3))", "[1.2 1.6 0.  0. ]")
def rms_norm(
    x: ArrayLike, scale: ArrayLike | None = None, axis: int | Sequence[int] | None = -1, epsilon: float = 1e-6
) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * scale over ``axis`` (Zhang and Sennrich, 2019); arguments as `layer_norm`."""
    (v,) = promote_inexact("rms_norm", x)
    axes = as_axes("rms_norm", axis, v.ndim)
    return ops.rms_norm(v, *_parameters("rms_norm", v, axes, [(scale, 1)]), axis=axes, epsilon=float(epsilon))


def batch_norm_inference(
    x: ArrayLike,
    scale: ArrayLike,
    offset: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, with one value of each per feature along ``axis``.

    Args:
        x: float array.
        scale, offset: vectors, or None for 1 and 0.
        mean, variance: vectors of statistics collected in training.
        axis: the feature axis.
        epsilon: added to the variance.

    Raises:
        ShapeError: a vector does not have the size of the feature axis.

    >>> x = jnp.array([[1.0, 10.0], [3.0, 30.0]])
    >>> y = batch_norm_inference(x, None, None, jnp.array([2.0, 20.0]), jnp.array([1.0, 100.0]))
    >>> print(y.round(3))
    [[-1. -1.]
     [ 1.  1.]]
    """
    (v,) = promote_inexact("batch_norm_inference", x)
    a = as_axis("batch_norm_inference", axis, v.ndim)
    given = [(scale, 1.0), (offset, 0.0), (mean, 0.0), (variance, 1.0)]
    parameters = _parameters("batch_norm_inference", v, (a,), given)
    return ops.batch_norm_inference(v, *parameters, axis=a, epsilon=float(epsilon))
