"""Layers that run entirely on NPUs, and a space of small classifiers made of them.

Each is a pair ``(init, apply)`` on arrays [batch, height, width, channels]; activations are relu, sizes are static, and
everything has an int8 form on TFLite's grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.example_libraries import stax
from nxjax.example_libraries.stax import Layer
from nxjax.nas.space import Choose, Space

_NHWC: Final = ("NHWC", "HWIO", "NHWC")


def conv(width: int, size: int = 3, stride: int = 1, relu: bool = True) -> Layer:
    """A convolution with bias and optional relu; zero padding to ``ceil(n / stride)``.

    >>> init, apply = conv(8, stride=2)
    >>> init(nx.random.key(0), (-1, 9, 9, 3))[0]
    (-1, 5, 5, 8)
    """
    made = stax.GeneralConv(_NHWC, width, (size, size), (stride, stride), "SAME", W_init=_he(), b_init=_zeros)
    return stax.serial(made, stax.Relu) if relu else made


def depthwise(size: int = 3, stride: int = 1, relu: bool = True) -> Layer:
    """A separate convolution of each channel, with bias."""

    def product(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=_NHWC, feature_group_count=x.shape[-1]
        )

    def init(rng: Any, input_shape: Any) -> Any:
        b, h, w, c = input_shape
        kernel = nn.initializers.he_normal(in_axis=(0, 1), out_axis=-1)(rng, (size, size, 1, c), jnp.float32)
        return (b, -(-h // stride), -(-w // stride), c), (kernel, jnp.zeros(c))

    def apply(params: Any, x: Any, **_: Any) -> Any:
        y = product(x, params[0]) + params[1]
        return nn.relu(y) if relu else y

    return init, apply


def separable(width: int, size: int = 3, stride: int = 1) -> Layer:
    """A depthwise convolution, then one of 1x1 (MobileNet, Howard et al. 2017)."""
    return stax.serial(depthwise(size, stride), conv(width, 1))


def inverted_residual(width: int, size: int = 3, stride: int = 1, expansion: int = 3) -> Layer:
    """Widen, depthwise, narrow; with a shortcut if the shapes agree (MobileNetV2, Sandler et al. 2018)."""
    return residual(
        lambda channels: stax.serial(conv(expansion * channels, 1), depthwise(size, stride), conv(width, 1, relu=False))
    )


def residual(make: Callable[[int], Layer]) -> Layer:
    """``x + f(x)`` if the shapes agree, else ``f(x)``; ``make`` returns ``f`` for a number of channels."""

    def init(rng: Any, input_shape: Any) -> Any:
        return make(input_shape[-1])[0](rng, input_shape)

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        y = make(x.shape[-1])[1](params, x, **kwargs)
        return x + y if y.shape == x.shape else y

    return init, apply


def pooled() -> Layer:
    """The mean over height and width."""
    return (lambda _, shape: ((shape[0], shape[-1]), ())), (lambda _, x, **__: jnp.mean(x, (1, 2)))


def classifier(
    classes: int,
    *,
    depth: Sequence[int] = (1, 2, 3, 4),
    widths: Sequence[int] = (4, 8, 12, 16, 24, 32),
    sizes: Sequence[int] = (3, 5),
    strides: Sequence[int] = (1, 2),
    name: str = "classifier",
) -> Space[Layer]:
    """Small convolutional classifiers: a stem, blocks of three kinds, pooled or flattened, one dense layer.

    Decisions: ``stem.width, stem.size, stem.stride``; ``depth``; for each block ``kind`` (conv, separable, inverted),
    ``width``, ``size``, ``stride``; ``head``.

    >>> import numpy as np
    >>> init, apply = classifier(10).sample(np.random.default_rng(0)).model
    >>> init(nx.random.key(0), (-1, 8, 8, 1))[0]
    (-1, 10)
    """
    if classes < 2:
        raise ParameterError("nas.blocks.classifier: classes", got=classes, expected="at least 2")
    kinds = {"conv": conv, "separable": separable, "inverted": inverted_residual}

    def space(choose: Choose) -> Layer:
        with choose.scope("stem"):
            layers = [conv(choose("width", widths), choose("size", sizes), choose("stride", strides))]
        for i in range(choose("depth", depth)):
            with choose.scope(f"block{i}"):
                kind = kinds[choose("kind", tuple(kinds))]
                layers.append(kind(choose("width", widths), choose("size", sizes), choose("stride", strides)))
        layers.append(_head(choose))
        return stax.serial(*layers, stax.Dense(classes, _glorot(), _zeros))

    space.__name__ = name
    return Space(space)


def _head(choose: Choose) -> Layer:
    return {"pooled": pooled(), "flat": stax.Flatten}[choose("head", ("pooled", "flat"))]


def _he() -> Any:
    return nn.initializers.he_normal(in_axis=-2, out_axis=-1)


def _glorot() -> Any:
    return nn.initializers.glorot_normal()


def _zeros(_: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
    return jnp.zeros(shape, dtype)
