"""Tracing and lowering the gradient of a 12-layer transformer: the first-call cost of a deep model."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.runner import Figure, interleaved

LAYERS, WIDTH, HEADS, TOKENS = 12, 32, 4, 16


def parameters() -> Any:
    """Random weights as NumPy arrays."""
    rng = np.random.default_rng(0)
    weight = lambda *shape: (rng.normal(size=shape) * 0.1).astype(np.float32)
    d = WIDTH
    layer = lambda: {
        "q": weight(d, d), "k": weight(d, d), "v": weight(d, d), "o": weight(d, d), "up": weight(d, 4 * d),
        "down": weight(4 * d, d), "up_bias": weight(4 * d), "down_bias": weight(d), "gain1": weight(d),
        "bias1": weight(d), "gain2": weight(d), "bias2": weight(d),
    }  # fmt: skip
    return {"embedding": weight(50, d), "layers": [layer() for _ in range(LAYERS)]}


def model(numpy: Any, nn: Any) -> Any:
    """The loss as a function of (parameters, tokens), on `jax.numpy` or `nxjax.numpy`."""

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias

    def layer(p: Any, x: Any) -> Any:
        batch, length, _ = x.shape
        h = norm(x, p["gain1"], p["bias1"])
        q, k, v = ((h @ p[n]).reshape(batch, length, HEADS, -1) for n in "qkv")
        scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
        scores = numpy.where(numpy.tril(numpy.ones((length, length), bool)), scores, -1e9)
        mixed = numpy.einsum("bhqk,bkhd->bqhd", nn.softmax(scores, -1), v).reshape(x.shape)
        x = x + mixed @ p["o"]
        h = norm(x, p["gain2"], p["bias2"])
        return x + nn.gelu(h @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embedding"][tokens]
        for p in params["layers"]:
            x = layer(p, x)
        log_p = nn.log_softmax(x @ params["embedding"].T, -1)
        return -numpy.mean(numpy.take_along_axis(log_p, tokens[..., None], -1))

    return loss


def figures() -> list[Figure]:
    import jax
    import jax.numpy as jnp

    import nxjax as nx

    params = parameters()
    tokens = np.random.default_rng(0).integers(0, 50, (2, TOKENS)).astype(np.int32)
    ours_loss, peer_loss = model(nx, nx.nn), model(jnp, jax.nn)

    def ours() -> None:
        nx.jit(nx.grad(lambda p, t: ours_loss(p, t))).lower(params, tokens).as_text()

    def peer() -> None:
        jax.clear_caches()
        jax.jit(jax.grad(lambda p, t: peer_loss(p, t))).lower(params, tokens)

    times = interleaved(ours, peer, rounds=7)
    count = len(nx.jit(nx.grad(ours_loss)).trace(params, tokens).program.equations)
    return [Figure("trace + lower, grad of transformer", *times, "JAX", 0.5, f"{LAYERS} layers, {count} equations")]
