"""ResNet-18: He et al., "Deep residual learning for image recognition" (2015), with projection shortcuts."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init, image, max_pool, mean_pool

DESCRIPTION = "ResNet-18, 224x224x3, 1000 classes"
# channels, blocks, stride of the first block
STAGES = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))
STRIDES = tuple(stride if i == 0 else 1 for _, count, stride in STAGES for i in range(count))


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    blocks: list[Params] = []
    inputs = 64
    for channels, count, stride in STAGES:
        for i in range(count):
            p = {
                "first": conv_init(rng, 3, 3, inputs, channels),
                # What is added to the shortcut is kept small, or activations would double in every block.
                "second": conv_init(rng, 3, 3, channels, channels, gain=0.7),
            }
            if i == 0 and (stride > 1 or inputs != channels):
                p["shortcut"] = conv_init(rng, 1, 1, inputs, channels, gain=1.0)
            blocks.append(p)
            inputs = channels
    return {"stem": conv_init(rng, 7, 7, 3, 64), "blocks": blocks, "classes": dense_init(rng, 512, 1000)}


def apply(params: Params, x: Any) -> Any:
    """Logits [n, 1000] of images [n, 224, 224, 3]."""
    x = max_pool(nx.nn.relu(conv(params["stem"], x, 2)), 3, 2)
    for p, stride in zip(params["blocks"], STRIDES, strict=True):
        y = conv(p["second"], nx.nn.relu(conv(p["first"], x, stride)))
        x = nx.nn.relu(y + (conv(p["shortcut"], x, stride) if "shortcut" in p else x))
    return dense(params["classes"], mean_pool(x))


def example(seed: int) -> Any:
    return image(seed, 224, 224, 3)
