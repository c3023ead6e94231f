"""What a network takes, where its layers leave no choice about it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.errors import NxError, ParameterError
from nxjax.nn.modules.containers import Residual, Sequential
from nxjax.nn.modules.convolution import Conv2d, ConvTranspose2d
from nxjax.nn.modules.dense import Embedding, Linear
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.shapes import eval_shape

# Image sizes that are tried first where a model does not say which it takes.
COMMON: Final = (32, 224, 28, 64, 96, 128, 160, 192, 256, 299, 320, 384, 416, 512)


def _first(model: Any) -> Any:
    """The layer that is run first, within containers; None where there is none."""
    while isinstance(model, (Sequential, Residual)):
        model = model.inner if isinstance(model, Residual) else next(iter(model.layers), None)
    return model


def random_inputs(model: Any, shape: tuple[int, ...], count: int) -> list[np.ndarray[Any, Any]]:
    """So many arrays of random numbers that a model takes: indices for an `Embedding`, else normal ones."""
    draw, first = np.random.default_rng(0), _first(model)
    if isinstance(first, Embedding):
        return [draw.integers(0, first.num_embeddings, shape).astype(np.int32) for _ in range(count)]
    return [draw.normal(size=shape).astype(np.float32) for _ in range(count)]


def input_shape(model: Any) -> tuple[int, ...]:
    """The shape of one input, batch 1, that a model's layers leave no choice about.

    A model that begins with a `Linear` says it. One of convolutions that ends in a `Linear` takes the images for
    which the features fit: square ones are tried, common sizes first.

    Raises:
        ParameterError: the layers do not say, or several sizes fit.

    >>> from nxjax.nn import Conv2d, Linear, Sequential
    >>> input_shape(Sequential(Conv2d(1, 4, 3), Linear(4 * 26 * 26, 10)))
    (1, 1, 28, 28)
    """
    first = _first(model)
    if isinstance(first, Linear):
        return (1, first.in_features)
    if not isinstance(first, (Conv2d, ConvTranspose2d)):
        raise _unknown("its first layer takes inputs of any shape")
    channels = first.in_channels

    def fits(size: int) -> bool:
        try:
            eval_shape(model, ShapeDtypeStruct((1, channels, size, size), np.float32))
        except NxError:
            return False
        return True

    found = [n for n in COMMON if fits(n)] or [n for n in range(1, 257) if fits(n)][:1]
    if not found:
        raise _unknown("no square image up to 512 rows fits")
    if max(found) - min(found) > 16:
        raise _unknown(f"images of {min(found)} and of {max(found)} rows fit")
    return (1, channels, found[0], found[0])


def _unknown(why: str) -> ParameterError:
    return ParameterError(
        "optimize_model: the model does not say what inputs it takes",
        got=why,
        fix="pass input_shape=(1, channels, rows, columns), or calibration_data=[batch, ...]",
    )
