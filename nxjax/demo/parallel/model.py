"""A small transformer and Adam, as pure functions of trees. Knows nothing of devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import nxjax as nx
import nxjax.numpy as jnp


class ModelConfig(NamedTuple):
    """Of a model, and of what it is trained on."""

    layers: int = 4
    width: int = 32
    heads: int = 4
    hidden: int = 64
    words: int = 64
    length: int = 8
    batch: int = 16


class TrainState(NamedTuple):
    """All that a training step changes: parameters, Adam's two moments, and the number of steps."""

    params: Any
    mean: Any
    square: Any
    step: Any


def init(size: ModelConfig, dtype: Any = jnp.float32, seed: int = 0) -> TrainState:
    """The state before the first step. The parameters of all layers lie in one array, the layer first."""
    n, d, h = size.layers, size.width, size.heads
    shapes = {
        "embed": (size.words, d),
        "blocks": {
            "qkv": (n, d, 3, h, d // h),
            "out": (n, h, d // h, d),
            "up": (n, d, size.hidden),
            "down": (n, size.hidden, d),
        },
        "head": (d, size.words),
    }
    leaves, treedef = nx.tree.flatten(shapes, is_leaf=lambda s: isinstance(s, tuple))
    keys = nx.random.split(nx.random.key(seed), len(leaves))
    params = nx.tree.unflatten(
        treedef, [nx.random.normal(k, s, dtype) * 0.1 for k, s in zip(keys, leaves, strict=True)]
    )
    zeros = nx.tree.map(jnp.zeros_like, params)
    return TrainState(params, zeros, zeros, jnp.zeros((), jnp.int32))


def batch(size: ModelConfig, step: int) -> Any:
    """The words of a step ``[batch, length + 1]``: each word gives the next. Every process makes the same."""
    first = nx.random.randint(nx.random.fold_in(nx.random.key(1), step), (size.batch, 1), 0, size.words)
    return (first + jnp.arange(size.length + 1) * 7) % size.words


def norm(x: Any) -> Any:
    return x * nx.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def block(p: dict[str, Any], x: Any) -> Any:
    """Attention and MLP of one layer; ``x`` is ``[batch, length, width]``."""
    q, k, v = jnp.moveaxis(jnp.einsum("bld,dchk->bclhk", norm(x), p["qkv"]), 1, 0)
    x = x + jnp.einsum("blhk,hkd->bld", nx.nn.dot_product_attention(q, k, v, is_causal=True), p["out"])
    return x + nx.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def blocks(p: dict[str, Any], x: Any) -> Any:
    """All layers of ``p``, one after the other."""
    return nx.lax.scan(lambda x, layer: (block(layer, x), None), x, p)[0]


def cross_entropy(head: Any, x: Any, words: Any) -> Any:
    """Mean over the words that shall come next."""
    scores = nx.nn.log_softmax(norm(x) @ head)
    return -jnp.take_along_axis(scores, words[..., None], -1).mean()


def loss(params: Any, words: Any) -> Any:
    x = blocks(params["blocks"], params["embed"][words[:, :-1]])
    return cross_entropy(params["head"], x, words[:, 1:])


def adam(
    state: TrainState, grads: Any, rate: float = 3e-3, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-6
) -> TrainState:
    """The next state (Kingma and Ba, 2015, algorithm 1)."""
    step = state.step + 1
    mean = nx.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
    square = nx.tree.map(lambda s, g: b2 * s + (1 - b2) * g * g, state.square, grads)

    def moved(p: Any, m: Any, s: Any) -> Any:
        count = step.astype(p.dtype)
        return p - rate * (m / (1 - b1**count)) / (jnp.sqrt(s / (1 - b2**count)) + eps)

    return TrainState(nx.tree.map(moved, state.params, mean, square), mean, square, step)
