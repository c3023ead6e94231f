"""What the models are built from: seeded weights, convolutions with folded batch norm, dense layers. Knows no model.

Images are NHWC, sequences NWC. Weights are plain float32 NumPy arrays in dicts and lists.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import nxjax as nx

Params = dict[str, Any]


def conv_init(
    rng: np.random.Generator, *kernel: int, groups: int = 1, gain: float = math.sqrt(2), folded: bool = True
) -> Params:
    """Weights and bias of a convolution with ``kernel`` (spatial..., input channels, output channels).

    He et al., "Delving deep into rectifiers" (2015): deviation gain / sqrt(fan in), with gain sqrt(2) where the input
    went through a relu. A folded batch norm leaves channels of different scale and a bias; both are imitated.
    """
    *spatial, inputs, outputs = kernel
    w = rng.normal(0, gain / math.sqrt(math.prod(spatial) * inputs // groups), (*spatial, inputs // groups, outputs))
    scale = rng.uniform(0.6, 1.4, outputs) if folded else np.ones(outputs)
    return {"w": (w * scale).astype(np.float32), "b": (0.1 * rng.normal(size=outputs)).astype(np.float32)}


def dense_init(rng: np.random.Generator, inputs: int, outputs: int, gain: float = 1.0) -> Params:
    """Weights [inputs, outputs] and bias of a dense layer."""
    return conv_init(rng, inputs, outputs, gain=gain, folded=False)


def norm_init(rng: np.random.Generator, width: int) -> Params:
    """Scale about 1 and offset about 0 of a layer normalization."""
    draw = lambda mean: (mean + 0.1 * rng.normal(size=width)).astype(np.float32)
    return {"scale": draw(1.0), "bias": draw(0.0)}


def conv(p: Params, x: Any, stride: int = 1, padding: Any = "SAME", dilation: int = 1, groups: int = 1) -> Any:
    """A convolution of [n, spatial..., channels] with bias."""
    spatial = "HW"[: x.ndim - 2]
    y = nx.lax.conv_general_dilated(
        x,
        p["w"],
        (stride,) * len(spatial),
        padding,
        rhs_dilation=(dilation,) * len(spatial),
        dimension_numbers=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
        feature_group_count=groups,
    )
    return y + p["b"]


def depthwise(p: Params, x: Any, stride: int = 1) -> Any:
    """A convolution that does not mix channels."""
    return conv(p, x, stride, groups=x.shape[-1])


def dense(p: Params, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def layer_norm(p: Params, x: Any) -> Any:
    return nx.nn.layer_norm(x, p["scale"], p["bias"])


def max_pool(x: Any, window: int, stride: int) -> Any:
    """Largest of each window of an NHWC image."""
    return nx.lax.reduce_window(x, -float("inf"), nx.lax.max, (1, window, window, 1), (1, stride, stride, 1), "SAME")


def mean_pool(x: Any) -> Any:
    """Mean over the pixels of an NHWC image: [n, channels]."""
    return nx.mean(x, axis=(1, 2))


def image(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """A batch of one image of ``shape`` with values in [-1, 1]: noise on a smooth ground, as pixels correlate."""
    rng = np.random.default_rng(seed)
    h, w, c = shape
    row, column = np.linspace(0, 1, h)[:, None, None], np.linspace(0, 1, w)[None, :, None]
    f, g, phase = rng.uniform(1, 6, (3, c))
    ground = np.sin(2 * np.pi * (f * row + g * column) + phase)
    return (0.6 * ground + 0.4 * rng.uniform(-1, 1, shape)).astype(np.float32)[None]
