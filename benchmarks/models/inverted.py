"""The inverted residual block with linear bottleneck, which MobileNetV2 and EfficientNet-Lite share. Knows no model."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, depthwise


def block_init(rng: np.random.Generator, inputs: int, outputs: int, expansion: int, kernel: int) -> Params:
    """Weights: expand 1x1 (unless ``expansion`` is 1), depthwise ``kernel``, project 1x1."""
    wide = inputs * expansion
    p: Params = {"expand": conv_init(rng, 1, 1, inputs, wide)} if expansion > 1 else {}
    p["depthwise"] = conv_init(rng, kernel, kernel, wide, wide, groups=wide)
    p["project"] = conv_init(rng, 1, 1, wide, outputs, gain=1.0)
    return p


def block(p: Params, x: Any, stride: int) -> Any:
    """The block on an NHWC image; with a shortcut where the shape stays."""
    y = nx.nn.relu6(conv(p["expand"], x)) if "expand" in p else x
    y = nx.nn.relu6(depthwise(p["depthwise"], y, stride))
    y = conv(p["project"], y)
    return x + y if x.shape == y.shape else y


def stages_init(rng: np.random.Generator, inputs: int, stages: Any) -> list[Params]:
    """Weights of the blocks of ``stages``: rows of (expansion, channels, repeats, stride of the first, kernel)."""
    blocks: list[Params] = []
    for expansion, channels, repeats, _, kernel in stages:
        for _ in range(repeats):
            blocks.append(block_init(rng, inputs, channels, expansion, kernel))
            inputs = channels
    return blocks


def run_stages(blocks: list[Params], x: Any, stages: Any) -> Any:
    """The blocks in order."""
    strides = [stride if i == 0 else 1 for _, _, repeats, stride, _ in stages for i in range(repeats)]
    for p, stride in zip(blocks, strides, strict=True):
        x = block(p, x, stride)
    return x
