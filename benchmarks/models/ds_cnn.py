"""DS-CNN keyword spotter as in MLPerf Tiny: Zhang et al., "Hello edge: keyword spotting on microcontrollers" (2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init, depthwise, mean_pool

DESCRIPTION = "DS-CNN keyword spotter, 49x10x1 MFCC, 12 classes"
WIDTH, BLOCKS = 64, 4


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    block = lambda: {
        "depthwise": conv_init(rng, 3, 3, WIDTH, WIDTH, groups=WIDTH),
        "pointwise": conv_init(rng, 1, 1, WIDTH, WIDTH),
    }
    return {
        "stem": conv_init(rng, 10, 4, 1, WIDTH),
        "blocks": [block() for _ in range(BLOCKS)],
        "classes": dense_init(rng, WIDTH, 12),
    }


def apply(params: Params, x: Any) -> Any:
    """Logits [n, 12] of cepstra [n, 49, 10, 1]."""
    x = nx.nn.relu(conv(params["stem"], x, 2))
    for p in params["blocks"]:
        x = nx.nn.relu(depthwise(p["depthwise"], x))
        x = nx.nn.relu(conv(p["pointwise"], x))
    return dense(params["classes"], mean_pool(x))


def example(seed: int) -> Any:
    """Cepstra of one second of sound: coefficients that fall off with their order and drift over time."""
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0, 0.3, (1, 49, 10, 1)), axis=1)
    return ((drift + rng.normal(0, 0.5, drift.shape)) / np.sqrt(1 + np.arange(10))[:, None]).astype(np.float32)
