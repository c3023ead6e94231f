"""A small vision transformer: Dosovitskiy et al., "An image is worth 16x16 words" (2020), for 32x32 images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, conv, conv_init, dense, dense_init, image, layer_norm, norm_init

DESCRIPTION = "ViT, 32x32x3, patches 4, width 96, 4 layers, 3 heads, 10 classes"
PATCH, WIDTH, DEPTH, HEADS, HIDDEN, CLASSES = 4, 96, 4, 3, 384, 10
TOKENS = (32 // PATCH) ** 2 + 1


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    layer = lambda: {
        "norm1": norm_init(rng, WIDTH),
        "qkv": dense_init(rng, WIDTH, 3 * WIDTH),
        "out": dense_init(rng, WIDTH, WIDTH),
        "norm2": norm_init(rng, WIDTH),
        "up": dense_init(rng, WIDTH, HIDDEN),
        "down": dense_init(rng, HIDDEN, WIDTH),
    }
    return {
        "patches": conv_init(rng, PATCH, PATCH, 3, WIDTH, gain=1.0, folded=False),
        "class": rng.normal(0, 0.5, (1, 1, WIDTH)).astype(np.float32),
        "positions": rng.normal(0, 0.5, (1, TOKENS, WIDTH)).astype(np.float32),
        "layers": [layer() for _ in range(DEPTH)],
        "norm": norm_init(rng, WIDTH),
        "classes": dense_init(rng, WIDTH, CLASSES),
    }


def attention(p: Params, x: Any) -> Any:
    """Self-attention over [n, tokens, width], written out in products and a softmax."""
    n, tokens, width = x.shape
    qkv = dense(p["qkv"], x).reshape(n, tokens, 3, HEADS, width // HEADS)
    q, k, v = (nx.transpose(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
    scores = q @ nx.transpose(k, (0, 1, 3, 2)) * (1 / math.sqrt(width // HEADS))
    mixed = nx.nn.softmax(scores, axis=-1) @ v
    return dense(p["out"], nx.transpose(mixed, (0, 2, 1, 3)).reshape(n, tokens, width))


def apply(params: Params, x: Any) -> Any:
    """Logits [n, 10] of images [n, 32, 32, 3]."""
    n = x.shape[0]
    x = conv(params["patches"], x, PATCH, "VALID").reshape(n, TOKENS - 1, WIDTH)
    x = nx.concatenate([nx.broadcast_to(params["class"], (n, 1, WIDTH)), x], axis=1) + params["positions"]
    for p in params["layers"]:
        x = x + attention(p, layer_norm(p["norm1"], x))
        x = x + dense(p["down"], nx.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x))))
    return dense(params["classes"], layer_norm(params["norm"], x[:, 0]))


def example(seed: int) -> Any:
    return image(seed, 32, 32, 3)
