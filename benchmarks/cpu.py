"""The CPU executor on work that memory bounds, on training steps and on loops, against every peer that is here.

Prints the machine's measured copy bandwidth and multiply-add rate first. Peers: NumPy, numexpr, JAX, PyTorch (eager,
and compiled where it works), each with as many threads as this process may use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.peers import Work, compared, package
from benchmarks.runner import Figure
from nxjax.profiling.peaks import peaks

THREADS = len(os.sched_getaffinity(0))


def ready(y: Any) -> Any:
    return nx.block_until_ready(y)


def ours(f: Callable[..., Any], *xs: Any) -> Work:
    g = nx.jit(f)
    values = [jnp.asarray(x) for x in xs]
    return lambda: ready(g(*values))


def with_jax(f: Callable[[Any], Callable[..., Any]], *xs: Any) -> dict[str, Work]:
    """``f(jax)`` jitted; nothing where JAX is missing."""
    jax = package("jax")
    if jax is None:
        return {}
    g = jax.jit(f(jax))
    values = [jax.numpy.asarray(x) for x in xs]
    return {"jax": lambda: jax.block_until_ready(g(*values))}


def with_torch(f: Callable[[Any], Callable[..., Any]], *xs: Any) -> dict[str, Work]:
    """``f(torch)`` as it is, and by `torch.compile`, where that works."""
    torch = package("torch")
    if torch is None:
        return {}
    torch.set_num_threads(THREADS)
    values = [torch.from_numpy(np.array(x)) for x in xs]
    g = f(torch)

    def quiet(h: Callable[..., Any]) -> Work:
        def run() -> object:
            with torch.no_grad():
                return h(*values)

        return run

    found: dict[str, Work] = {"torch": quiet(g)}
    try:
        compiled = quiet(torch.compile(g))
        compiled()
        found["torch.compile"] = compiled
    except Exception:
        pass
    return found


def with_numexpr(text: str, **xs: Any) -> dict[str, Work]:
    numexpr = package("numexpr")
    if numexpr is None:
        return {}
    numexpr.set_num_threads(THREADS)
    return {"numexpr": lambda: numexpr.evaluate(text, local_dict=xs)}


def elementwise(x: np.ndarray) -> Iterator[Figure]:
    n = f"{x.size // 1_000_000} M"
    out = np.empty_like(x)
    yield compared(
        f"x + 1, {n}",
        ours(lambda x: x + 1, x),
        {
            "numpy": lambda: x + np.float32(1),
            "numpy out=": lambda: np.add(x, np.float32(1), out=out),
            **with_jax(lambda jax: lambda x: x + 1, x),
            **with_torch(lambda torch: lambda x: x + 1, x),
            **with_numexpr("x + 1", x=x),
        },
    )
    yield compared(
        f"tanh(x)*x + exp(-x*x), {n}",
        ours(lambda x: jnp.tanh(x) * x + jnp.exp(-x * x), x),
        {
            "numpy": lambda: np.tanh(x) * x + np.exp(-x * x),
            **with_jax(lambda jax: lambda x: jax.numpy.tanh(x) * x + jax.numpy.exp(-x * x), x),
            **with_torch(lambda torch: lambda x: torch.tanh(x) * x + torch.exp(-x * x), x),
            **with_numexpr("tanh(x)*x + exp(-x*x)", x=x),
        },
    )
    yield compared(
        f"gelu, {n}",
        ours(lambda x: nx.nn.gelu(x, approximate=False), x),
        {
            **with_jax(lambda jax: lambda x: jax.nn.gelu(x, approximate=False), x),
            **with_torch(lambda torch: torch.nn.functional.gelu, x),
        },
    )


def rows(x: np.ndarray) -> Iterator[Figure]:
    def norm(np_: Any) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            m = x.mean(-1, keepdims=True)
            v = ((x - m) * (x - m)).mean(-1, keepdims=True)
            return (x - m) / np_.sqrt(v + 1e-5)

        return f

    shape = "x".join(map(str, x.shape))
    yield compared(
        f"softmax {shape}",
        ours(lambda x: nx.nn.softmax(x), x),
        {
            **with_jax(lambda jax: jax.nn.softmax, x),
            **with_torch(lambda torch: lambda x: torch.softmax(x, -1), x),
        },
    )
    yield compared(
        f"layer norm {shape}",
        ours(norm(jnp), x),
        {
            **with_jax(lambda jax: norm(jax.numpy), x),
            **with_torch(lambda torch: lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), x),
        },
    )
    yield compared(
        f"column sum {shape}",
        ours(lambda x: x.sum(0), x),
        {
            "numpy": lambda: x.sum(0),
            **with_jax(lambda jax: lambda x: x.sum(0), x),
            **with_torch(lambda torch: lambda x: x.sum(0), x),
        },
    )
    yield compared(
        f"sum of all {shape}",
        ours(lambda x: x.sum(), x),
        {
            "numpy": lambda: x.sum(),
            **with_jax(lambda jax: lambda x: x.sum(), x),
            **with_torch(lambda torch: lambda x: x.sum(), x),
        },
    )


def mlp(rng: np.random.Generator) -> Iterator[Figure]:
    """A training step: 784-512-256-10, batch 128, Adam's plain cousin (SGD)."""
    sizes = (784, 512, 256, 10)
    w = [(rng.normal(size=s) / 20).astype(np.float32) for pair in pairwise(sizes) for s in (pair, pair[1:])]
    x = rng.normal(size=(128, 784)).astype(np.float32)
    y = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 128)]

    def step(grad: Any, nn: Any, np_: Any) -> Callable[..., Any]:
        def loss(w: Any, x: Any, y: Any) -> Any:
            for i in range(0, 4, 2):
                x = nn.relu(x @ w[i] + w[i + 1])
            return -(nn.log_softmax(x @ w[4] + w[5]) * y).sum(-1).mean()

        return lambda w, x, y: [a - 0.1 * g for a, g in zip(w, grad(loss)(w, x, y), strict=True)]

    f = nx.jit(step(nx.grad, nx.nn, jnp))
    args = ([jnp.asarray(a) for a in w], jnp.asarray(x), jnp.asarray(y))
    peers: dict[str, Work] = {}
    jax, torch = package("jax"), package("torch")
    if jax is not None:
        g = jax.jit(step(jax.grad, jax.nn, jax.numpy))
        values = ([jax.numpy.asarray(a) for a in w], jax.numpy.asarray(x), jax.numpy.asarray(y))
        peers["jax"] = lambda: jax.block_until_ready(g(*values))
    if torch is not None:
        tw = [torch.tensor(a, requires_grad=True) for a in w]
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)

        def torch_step() -> object:
            h = tx
            for i in range(0, 4, 2):
                h = torch.relu(torch.addmm(tw[i + 1], h, tw[i]))
            loss = -(torch.log_softmax(torch.addmm(tw[5], h, tw[4]), -1) * ty).sum(-1).mean()
            with torch.no_grad():
                return [a - 0.1 * d for a, d in zip(tw, torch.autograd.grad(loss, tw), strict=True)]

        peers["torch"] = torch_step
    yield compared("MLP train step, batch 128", lambda: ready(f(*args)), peers, bar=1.2)


def transformer(rng: np.random.Generator) -> Iterator[Figure]:
    """One block, batch 4, 256 tokens, width 512, 8 heads: forward, and the gradient of all weights."""
    b, t, d, heads = 4, 256, 512, 8

    def weights() -> list[np.ndarray]:
        shapes = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)]
        return [(rng.normal(size=s) / 30).astype(np.float32) for s in shapes]

    def block(np_: Any, softmax: Any, gelu: Any) -> Callable[..., Any]:
        def norm(x: Any) -> Any:
            m = x.mean(-1, keepdims=True)
            c = x - m
            return c / np_.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)

        def f(w: Any, x: Any) -> Any:
            qkv = (norm(x) @ w[0]).reshape(b, t, 3, heads, d // heads)
            q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
            s = np_.einsum("bqhc,bkhc->bhqk", q, k) / (d // heads) ** 0.5
            x = x + np_.einsum("bhqk,bkhc->bqhc", softmax(s), v).reshape(b, t, d) @ w[1]
            return x + gelu(norm(x) @ w[2]) @ w[3]

        return f

    w, x = weights(), rng.normal(size=(b, t, d)).astype(np.float32)
    f = block(jnp, nx.nn.softmax, nx.nn.gelu)
    forward, backward = nx.jit(f), nx.jit(nx.grad(lambda w, x: (f(w, x) ** 2).mean()))
    nw, nx_ = [jnp.asarray(a) for a in w], jnp.asarray(x)
    peers: dict[str, dict[str, Work]] = {"forward": {}, "grad": {}}
    jax, torch = package("jax"), package("torch")
    if jax is not None:
        g = block(jax.numpy, jax.nn.softmax, jax.nn.gelu)
        jf, jg = jax.jit(g), jax.jit(jax.grad(lambda w, x: (g(w, x) ** 2).mean()))
        jw, jx = [jax.numpy.asarray(a) for a in w], jax.numpy.asarray(x)
        peers["forward"]["jax"] = lambda: jax.block_until_ready(jf(jw, jx))
        peers["grad"]["jax"] = lambda: jax.block_until_ready(jg(jw, jx))
    if torch is not None:
        functional = torch.nn.functional
        tw, tx = [torch.tensor(a, requires_grad=True) for a in w], torch.from_numpy(x)

        def h(w: Any, x: Any) -> Any:
            qkv = (functional.layer_norm(x, (d,)) @ w[0]).reshape(b, t, 3, heads, d // heads)
            q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
            a = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
            x = x + a @ w[1]
            return x + functional.gelu(functional.layer_norm(x, (d,)) @ w[2], approximate="tanh") @ w[3]

        def torch_forward() -> object:
            with torch.no_grad():
                return h(tw, tx)

        peers["forward"]["torch"] = torch_forward
        peers["grad"]["torch"] = lambda: torch.autograd.grad((h(tw, tx) ** 2).mean(), tw)
    yield compared("transformer block forward", lambda: ready(forward(nw, nx_)), peers["forward"], bar=1.2)
    yield compared("transformer block grad", lambda: ready(backward(nw, nx_)), peers["grad"], bar=1.2)


def loops(rng: np.random.Generator) -> Iterator[Figure]:
    """1,000 steps of a recurrent cell of width 64, batch 8."""
    w = (rng.normal(size=(64, 64)) / 8).astype(np.float32)
    u = (rng.normal(size=(32, 64)) / 6).astype(np.float32)
    xs = rng.normal(size=(1000, 8, 32)).astype(np.float32)
    h = np.zeros((8, 64), np.float32)

    def rnn(lax: Any, np_: Any) -> Callable[..., Any]:
        def f(w: Any, u: Any, xs: Any, h: Any) -> Any:
            return lax.scan(lambda h, x: ((y := np_.tanh(h @ w + x @ u)), y), h, xs)

        return f

    yield compared(
        "scan of 1,000 RNN steps",
        ours(rnn(nx.lax, jnp), w, u, xs, h),
        with_jax(lambda jax: rnn(jax.lax, jax.numpy), w, u, xs, h),
        bar=2.0,
    )


def figures() -> Iterator[Figure]:
    rng = np.random.default_rng(0)
    print(f"peaks: {peaks(1)}; {peaks(THREADS)}", flush=True)
    x = rng.normal(size=10_000_000).astype(np.float32)
    yield from elementwise(x)
    yield from rows(x.reshape(10_000, 1000))
    yield from mlp(rng)
    yield from transformer(rng)
    yield from loops(rng)
