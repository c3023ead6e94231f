"""Rules of losses and of optimizers' steps."""

from __future__ import annotations

from typing import Any

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.interop.onnx.walk import rule


def _likelihood(log_p: Any, target: Any, weight: Any, reduction: str, ignore_index: int | None) -> Any:
    """``-weight[target] * log_p[target]`` along axis 1."""
    inside = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    safe = jnp.where(inside, target, 0)
    loss = -jnp.take_along_axis(log_p, jnp.expand_dims(safe, 1), axis=1).squeeze(1)
    w = jnp.ones(target.shape, log_p.dtype) if weight is None else jnp.take(weight, safe)
    w = jnp.where(inside, w, 0).astype(log_p.dtype)
    loss = loss * w
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / (w.sum() if weight is not None or ignore_index is not None else target.size)


@rule("NegativeLogLikelihoodLoss")
def _nll(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", ignore_index: int | None = None) -> Any:
    return _likelihood(x, target, weight, reduction, ignore_index)


@rule("SoftmaxCrossEntropyLoss")
def _cross_entropy(
    x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", ignore_index: int | None = None
) -> Any:
    log_p = nn.log_softmax(x, 1)
    return _likelihood(log_p, target, weight, reduction, ignore_index), log_p


def _optimizer(name: str, states: int) -> Any:
    """Registers a step: ``function(x, g, *state, rate, t, **attributes)`` gives the new ``x`` and states."""

    def add(function: Any) -> Any:
        def run(rate: Any, t: Any, *xs: Any, **attributes: Any) -> Any:
            n = len(xs) // (2 + states)
            parts = [xs[i * n : (i + 1) * n] for i in range(2 + states)]
            made = [function(*row, rate, t, **attributes) for row in zip(*parts, strict=True)]
            return tuple(v for part in zip(*made, strict=True) for v in part)

        return rule(f"ai.onnx.preview.training::{name}")(run)

    return add


@_optimizer("Adagrad", 1)
def _adagrad(
    x: Any,
    g: Any,
    h: Any,
    rate: Any,
    t: Any,
    *,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    r = rate / (1 + t * decay_factor)
    g = norm_coefficient * x + g
    h = h + g * g
    return (x - r * g / (jnp.sqrt(h) + epsilon)).astype(x.dtype), h


@_optimizer("Momentum", 1)
def _momentum(
    x: Any, g: Any, v: Any, rate: Any, t: Any, *, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Any:
    g = norm_coefficient * x + g
    adjusted = jnp.where(t > 0, beta, 1.0).astype(x.dtype)
    v = alpha * v + adjusted * g
    step = g + alpha * v if mode == "nesterov" else v
    return (x - rate * step).astype(x.dtype), v


@_optimizer("Adam", 2)
def _adam(
    x: Any, g: Any, v: Any, h: Any, rate: Any, t: Any, *, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 0.0,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    g = norm_coefficient * x + g
    v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
    adjusted = jnp.where(t > 0, rate * jnp.sqrt(1 - beta**t) / (1 - alpha**t), rate)
    new = x - adjusted * v / (jnp.sqrt(h) + epsilon)
    return ((1 - norm_coefficient_post) * new).astype(x.dtype), v.astype(x.dtype), h.astype(x.dtype)
