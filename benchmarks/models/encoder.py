"""A transformer encoder of text: Vaswani et al., "Attention is all you need" (2017), normalized before each part.

Token 0 is padding: no token attends to it, and it is left out of the mean that is classified.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models.layers import Params, dense, dense_init, layer_norm, norm_init

DESCRIPTION = "Transformer encoder, 64 tokens of 1000, width 128, 4 layers, 4 heads, 4 classes"
TOKENS, WORDS, WIDTH, DEPTH, HEADS, HIDDEN, CLASSES = 64, 1000, 128, 4, 4, 512, 4


def init(seed: int) -> Params:
    rng = np.random.default_rng(seed)
    layer = lambda: {
        "norm1": norm_init(rng, WIDTH),
        "query": dense_init(rng, WIDTH, WIDTH),
        "key": dense_init(rng, WIDTH, WIDTH),
        "value": dense_init(rng, WIDTH, WIDTH),
        "out": dense_init(rng, WIDTH, WIDTH),
        "norm2": norm_init(rng, WIDTH),
        "up": dense_init(rng, WIDTH, HIDDEN),
        "down": dense_init(rng, HIDDEN, WIDTH),
    }
    return {
        "words": rng.normal(0, 1, (WORDS, WIDTH)).astype(np.float32),
        "positions": rng.normal(0, 0.5, (TOKENS, WIDTH)).astype(np.float32),
        "layers": [layer() for _ in range(DEPTH)],
        "norm": norm_init(rng, WIDTH),
        "classes": dense_init(rng, WIDTH, CLASSES),
    }


def attention(p: Params, x: Any, mask: Any) -> Any:
    """Self-attention over [n, tokens, width] as one equation; ``mask`` [n, 1, 1, tokens] is False at padding."""
    heads = lambda name: dense(p[name], x).reshape(*x.shape[:2], HEADS, WIDTH // HEADS)
    mixed = nx.nn.dot_product_attention(heads("query"), heads("key"), heads("value"), mask=mask)
    return dense(p["out"], mixed.reshape(x.shape))


def apply(params: Params, tokens: Any) -> Any:
    """Logits [n, 4] of int32 tokens [n, at most 64]."""
    words = tokens != 0
    mask = words[:, None, None, :]
    x = params["words"][tokens] + params["positions"][: tokens.shape[1]]
    for p in params["layers"]:
        x = x + attention(p, layer_norm(p["norm1"], x), mask)
        x = x + dense(p["down"], nx.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x))))
    weights = words.astype(x.dtype)
    pooled = (x * weights[..., None]).sum(1) / nx.maximum(weights.sum(1, keepdims=True), 1)
    return dense(params["classes"], layer_norm(params["norm"], pooled))


def example(seed: int) -> Any:
    """One sentence of 40 to 64 words, padded to 64."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, WORDS, (1, TOKENS)).astype(np.int32)
    tokens[:, rng.integers(40, TOKENS + 1) :] = 0
    return tokens
