"""ResNet-50: He et al., "Deep residual learning for image recognition" (2015); the stride is in the 3x3 convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init, image, max_pool, mean_pool

DESCRIPTION = "ResNet-50 (v1.5), 224x224x3, 1000 classes"
# channels inside the bottleneck, blocks, stride of the first block; four times as many channels go out
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
STRIDES = tuple(stride if i == 0 else 1 for _, count, stride in STAGES for i in range(count))


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    blocks: list[Params] = []
    inputs = 64
    for channels, count, _ in STAGES:
        for i in range(count):
            p = {
                "reduce": conv_init(rng, 1, 1, inputs, channels),
                "mix": conv_init(rng, 3, 3, channels, channels),
                # What is added to the shortcut is kept small, or activations would double in every block.
                "widen": conv_init(rng, 1, 1, channels, 4 * channels, gain=0.7),
            }
            if i == 0:
                p["shortcut"] = conv_init(rng, 1, 1, inputs, 4 * channels, gain=1.0)
            blocks.append(p)
            inputs = 4 * channels
    return {"stem": conv_init(rng, 7, 7, 3, 64), "blocks": blocks, "classes": dense_init(rng, 2048, 1000)}


def apply(params: Params, x: Any) -> Any:
    """Logits [n, 1000] of images [n, 224, 224, 3]."""
    x = max_pool(nx.nn.relu(conv(params["stem"], x, 2)), 3, 2)
    for p, stride in zip(params["blocks"], STRIDES, strict=True):
        y = nx.nn.relu(conv(p["mix"], nx.nn.relu(conv(p["reduce"], x)), stride))
        x = nx.nn.relu(conv(p["widen"], y) + (conv(p["shortcut"], x, stride) if "shortcut" in p else x))
    return dense(params["classes"], mean_pool(x))


def example(seed: int) -> Any:
    return image(seed, 224, 224, 3)
