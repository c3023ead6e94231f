"""A temporal convolutional network: Bai, Kolter and Koltun, "An empirical evaluation of generic convolutional and
recurrent networks for sequence modeling" (2018). Weight normalization is folded into the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init

DESCRIPTION = "TCN, 128 steps of 16 channels, dilations 1 to 16, 8 classes per step"
STEPS, CHANNELS, WIDTH, KERNEL, CLASSES = 128, 16, 48, 3, 8
DILATIONS = (1, 2, 4, 8, 16)


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    blocks: list[Params] = []
    for inputs in (CHANNELS, *[WIDTH] * (len(DILATIONS) - 1)):
        p = {
            "first": conv_init(rng, KERNEL, inputs, WIDTH),
            "second": conv_init(rng, KERNEL, WIDTH, WIDTH, gain=1.0),
        }
        if inputs != WIDTH:
            p["shortcut"] = conv_init(rng, 1, inputs, WIDTH, gain=1.0)
        blocks.append(p)
    return {"blocks": blocks, "classes": dense_init(rng, WIDTH, CLASSES)}


def apply(params: Params, x: Any) -> Any:
    """Logits [n, steps, 8] of sequences [n, steps, 16]; a step sees itself and those before it."""
    for p, dilation in zip(params["blocks"], DILATIONS, strict=True):
        causal = [((KERNEL - 1) * dilation, 0)]
        y = nx.nn.relu(conv(p["first"], x, padding=causal, dilation=dilation))
        y = nx.nn.relu(conv(p["second"], y, padding=causal, dilation=dilation))
        x = nx.nn.relu(y + (conv(p["shortcut"], x) if "shortcut" in p else x))
    return dense(params["classes"], x)


def example(seed: int) -> Any:
    """Sums of a few waves and noise, one sequence of shape [1, 128, 16]."""
    rng = np.random.default_rng(seed)
    time = np.arange(STEPS)[:, None]
    waves = np.sin(time * rng.uniform(0.05, 0.8, CHANNELS) + rng.uniform(0, 6, CHANNELS))
    return (waves + 0.2 * rng.normal(size=waves.shape)).astype(np.float32)[None]
