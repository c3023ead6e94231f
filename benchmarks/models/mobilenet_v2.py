"""MobileNetV2 1.0 at 224 pixels: Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks" (2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.inverted import run_stages, stages_init
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init, image, mean_pool

DESCRIPTION = "MobileNetV2 1.0, 224x224x3, 1000 classes"
# expansion, channels, repeats, stride, kernel: table 2 of the paper
STAGES = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    return {
        "stem": conv_init(rng, 3, 3, 3, 32),
        "blocks": stages_init(rng, 32, STAGES),
        "head": conv_init(rng, 1, 1, 320, 1280),
        "classes": dense_init(rng, 1280, 1000),
    }


def apply(params: Params, x: Any) -> Any:
    """Logits [n, 1000] of images [n, 224, 224, 3]."""
    x = nx.nn.relu6(conv(params["stem"], x, 2))
    x = run_stages(params["blocks"], x, STAGES)
    x = nx.nn.relu6(conv(params["head"], x))
    return dense(params["classes"], mean_pool(x))


def example(seed: int) -> Any:
    return image(seed, 224, 224, 3)
