"""Normalizing layers, and the folding of batch norms into the layers before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.nn import norms
from nxjax.nn.modules.base import Module, per_image, positive
from nxjax.nn.modules.containers import Identity, Residual, Sequential
from nxjax.nn.modules.convolution import Conv2d
from nxjax.nn.modules.dense import Linear
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


@final
class BatchNorm2d(Module):
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` per channel, with collected statistics.

    Ioffe and Szegedy, "Batch normalization" (2015), at inference. The statistics are leaves, but have no gradient;
    `updated` moves them towards those of a batch. `fold_batch_norms` merges the layer into the convolution before it.

    Attributes:
        weight, bias, mean, variance: ``[num_features]``; ones, zeros, zeros, ones at first.

    >>> BatchNorm2d(3)(jnp.ones((1, 3, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self, num_features: int, epsilon: float = 1e-5, momentum: float = 0.1, *, dtype: DTypeLike | None = None
    ) -> None:
        positive("BatchNorm2d", num_features=num_features)
        self.num_features = int(num_features)
        self.epsilon = float(epsilon)
        self.momentum = float(momentum)
        ones, zeros = jnp.ones(num_features, dtype or float), jnp.zeros(num_features, dtype or float)
        self.weight: Any = ones
        self.bias: Any = zeros
        self.mean: Any = zeros
        self.variance: Any = ones

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, self._normalized, self.num_features)

    def _normalized(self, x: Array) -> Array:
        mean, variance = lax.stop_gradient((self.mean, self.variance))
        return norms.batch_norm_inference(x, self.weight, self.bias, mean, variance, axis=1, epsilon=self.epsilon)

    def updated(self, x: Any) -> BatchNorm2d:
        """The layer with statistics moved by ``momentum`` towards those of a batch ``[n, c, h, w]``."""
        v = as_value(x, "BatchNorm2d")
        if v.ndim != 4 or v.shape[1] != self.num_features or v.size <= self.num_features:
            raise ShapeError(f"{self!r}: a batch to learn from", got=v.type, expected=f"[n, {self.num_features}, h, w]")
        count = v.size // self.num_features
        mean, variance = jnp.mean(v, axis=(0, 2, 3)), jnp.var(v, axis=(0, 2, 3)) * (count / (count - 1))
        m = self.momentum
        return self.replace(
            mean=lax.stop_gradient((1 - m) * self.mean + m * mean),
            variance=lax.stop_gradient((1 - m) * self.variance + m * variance),
        )

    def _settings(self) -> str:
        return f"{self.num_features}"


@final
class LayerNorm(Module):
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` over the last dimensions (Ba et al., 2016).

    Args:
        shape: of the normalized last dimensions, an int or several.
        epsilon: added to the variance.

    >>> LayerNorm(4)(jnp.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, shape: int | Sequence[int], epsilon: float = 1e-5, *, dtype: DTypeLike | None = None) -> None:
        sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        positive("LayerNorm", **{f"shape[{i}]": n for i, n in enumerate(sizes)})
        if not sizes:
            raise ParameterError("LayerNorm: shape", got=shape, expected="at least one dimension")
        self.shape = tuple(int(n) for n in sizes)
        self.epsilon = float(epsilon)
        self.weight: Any = jnp.ones(self.shape, dtype or float)
        self.bias: Any = jnp.zeros(self.shape, dtype or float)

    def __call__(self, x: ArrayLike) -> Array:
        v = as_value(x, "LayerNorm")
        n = len(self.shape)
        if v.shape[v.ndim - n :] != self.shape or v.ndim < n:
            raise ShapeError(f"{self!r}: last dimensions of the input", got=v.type, expected=self.shape)
        return norms.layer_norm(v, self.weight, self.bias, axis=tuple(range(-n, 0)), epsilon=self.epsilon)

    def _settings(self) -> str:
        return str(self.shape[0] if len(self.shape) == 1 else self.shape)


def fold_batch_norms(model: Module) -> Module:
    """The network without the batch norms directly after a convolution or a `Linear`.

    The preceding weights are multiplied by ``scale = weight / sqrt(variance + epsilon)``, and ``bias - mean * scale``
    is added to their bias (Jacob et al., "Quantization and training of neural networks", 2018, section 3.2). It works
    inside `Sequential` and `Residual`; other modules are unchanged.

    >>> from nxjax.nn import BatchNorm2d, Conv2d, Sequential
    >>> fold_batch_norms(Sequential(Conv2d(3, 8, 3, bias=False), BatchNorm2d(8)))
    Sequential(
      0: Conv2d(3, 8, kernel_size=3)
    )
    """
    if isinstance(model, Residual):
        return Residual(
            fold_batch_norms(model.inner),
            None if isinstance(model.shortcut, Identity) else fold_batch_norms(model.shortcut),
        )
    if not isinstance(model, Sequential):
        return model
    layers: list[Module] = []
    for layer in map(fold_batch_norms, model.layers):
        if isinstance(layer, BatchNorm2d) and layers and isinstance(layers[-1], (Conv2d, Linear)):
            layers[-1] = _folded(layers[-1], layer)
        else:
            layers.append(layer)
    return Sequential(*layers)


def _folded(layer: Conv2d | Linear, norm: BatchNorm2d) -> Module:
    channels = layer.weight.shape[0]
    if norm.num_features != channels:
        raise ShapeError(f"fold_batch_norms: {norm!r} after {layer!r}", got=norm.num_features, expected=channels)
    scale = norm.weight / jnp.sqrt(norm.variance + norm.epsilon)
    before = 0 if layer.bias is None else layer.bias
    weight = layer.weight * scale.reshape((-1, *(1,) * (layer.weight.ndim - 1)))
    return layer.replace(weight=weight, bias=(before - norm.mean) * scale + norm.bias)
