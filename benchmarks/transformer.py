"""The first call of the gradient of a 12-layer transformer, and its tracing and lowering alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.peers import package
from benchmarks.runner import Figure, interleaved

FIRST = "first call: grad of a 12-layer transformer"
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


def arguments() -> tuple[Any, Any]:
    """Parameters and tokens."""
    return parameters(), np.random.default_rng(0).integers(0, 50, (2, TOKENS)).astype(np.int32)


def first(name: str) -> float:
    """Seconds of the first call of the gradient's jitted function in this process; no cache on disk."""
    library = importlib.import_module(name)
    if name == "nxjax":
        library.config.update("cache_dir", "")
    library.block_until_ready(library.jit(lambda x: library.numpy.sin(x) @ x)(np.ones((8, 8), np.float32)))
    f, args = library.jit(library.grad(model(library.numpy, library.nn))), arguments()
    start = time.perf_counter()
    library.block_until_ready(f(*args))
    return time.perf_counter() - start


def first_call() -> Figure:
    """Trace, compile and run, each in processes of its own."""

    def child(name: str) -> float:
        run = [sys.executable, "-m", "benchmarks.transformer", name]
        return float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)

    names = ("nxjax",) if package("jax") is None else ("nxjax", "jax")
    times = {name: float("inf") for name in names}
    for _ in range(3):
        for name in names:
            times[name] = min(times[name], child(name))
    ours = times.pop("nxjax")
    note = f"{LAYERS} layers, gradient; trace, compile and run"
    return Figure(FIRST, ours, times.get("jax"), next(iter(times), ""), 1 / 5, note, peers=times)


def lowering() -> Figure | None:
    """Tracing and lowering alone, to nxjax's tape and to StableHLO."""
    jax = package("jax")
    if jax is None:
        return None
    args = arguments()
    ours_loss, peer_loss = model(nx.numpy, nx.nn), model(jax.numpy, jax.nn)

    def ours() -> None:
        nx.jit(nx.grad(lambda p, t: ours_loss(p, t))).lower(*args).as_text()

    def peer() -> None:
        jax.clear_caches()
        jax.jit(jax.grad(lambda p, t: peer_loss(p, t))).lower(*args)

    times = interleaved(ours, peer, rounds=7)
    count = len(nx.jit(nx.grad(ours_loss)).trace(*args).program.equations)
    return Figure("trace + lower, grad of transformer", *times, "jax", 0.5, f"{LAYERS} layers, {count} equations")


def figures() -> Iterator[Figure]:
    yield first_call()
    found = lowering()
    if found is not None:
        yield found


if __name__ == "__main__":
    print(first(sys.argv[1]))
