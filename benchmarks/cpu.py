"""The CPU executor on work that memory bounds, on training steps and on loops, against every peer that is here.

Prints the machine's measured copy bandwidth and multiply-add rate first. Peers: NumPy, numexpr, JAX, PyTorch (eager,
and compiled where it works), each with as many threads as this process may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.peers import THREADS, Row, Work, all_measured, ours, package, with_jax, with_numexpr, with_torch
from benchmarks.runner import Figure
from nxjax.profiling.peaks import peaks


def elementwise(x: np.ndarray) -> Iterator[Row]:
    n = f"{x.size // 1_000_000} M"
    out = np.empty_like(x)
    yield Row(
        f"x + 1, {n}",
        lambda: (
            ours(lambda x: x + 1, x),
            {
                "numpy": lambda: x + np.float32(1),
                "numpy out=": lambda: np.add(x, np.float32(1), out=out),
                **with_jax(lambda jax: lambda x: x + 1, x),
                **with_torch(lambda torch: lambda x: x + 1, x),
                **with_numexpr("x + 1", x=x),
            },
        ),
        against={"jax": 2.5},
        nbytes=2 * x.nbytes,
        share=0.8,
    )
    yield Row(
        f"tanh(x)*x + exp(-x*x), {n}",
        lambda: (
            ours(lambda x: jnp.tanh(x) * x + jnp.exp(-x * x), x),
            {
                "numpy": lambda: np.tanh(x) * x + np.exp(-x * x),
                **with_jax(lambda jax: lambda x: jax.numpy.tanh(x) * x + jax.numpy.exp(-x * x), x),
                **with_torch(lambda torch: lambda x: torch.tanh(x) * x + torch.exp(-x * x), x),
                **with_numexpr("tanh(x)*x + exp(-x*x)", x=x),
            },
        ),
        against={"jax": 2.5},
        nbytes=2 * x.nbytes,
    )
    yield Row(
        f"gelu, {n}",
        lambda: (
            ours(lambda x: nx.nn.gelu(x, approximate=False), x),
            {
                **with_jax(lambda jax: lambda x: jax.nn.gelu(x, approximate=False), x),
                **with_torch(lambda torch: torch.nn.functional.gelu, x),
            },
        ),
        against={"jax": 2.5},
        nbytes=2 * x.nbytes,
    )


def reductions(x: np.ndarray) -> Iterator[Row]:
    def norm(np_: Any) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            m = x.mean(-1, keepdims=True)
            v = ((x - m) * (x - m)).mean(-1, keepdims=True)
            return (x - m) / np_.sqrt(v + 1e-5)

        return f

    shape = " x ".join(f"{n:,}" for n in x.shape)
    yield Row(
        f"softmax {shape}",
        lambda: (
            ours(lambda x: nx.nn.softmax(x), x),
            {
                **with_jax(lambda jax: jax.nn.softmax, x),
                **with_torch(lambda torch: lambda x: torch.softmax(x, -1), x),
            },
        ),
        nbytes=2 * x.nbytes,
    )
    yield Row(
        f"layer norm {shape}",
        lambda: (
            ours(norm(jnp), x),
            {
                **with_jax(lambda jax: norm(jax.numpy), x),
                **with_torch(lambda torch: lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), x),
            },
        ),
        nbytes=2 * x.nbytes,
    )
    for name, axis in (("column sum", 0), ("sum of all", None)):
        yield Row(
            f"{name} {shape}",
            lambda axis=axis: (
                ours(lambda x: x.sum(axis), x),
                {
                    "numpy": lambda: x.sum(axis),
                    **with_jax(lambda jax: lambda x: x.sum(axis), x),
                    **with_torch(lambda torch: lambda x: x.sum(axis), x),
                },
            ),
            nbytes=x.nbytes,
        )


def mlp(rng: np.random.Generator) -> Iterator[Row]:
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

    def works() -> tuple[Work, dict[str, Work]]:
        peers = with_jax(lambda jax: step(jax.grad, jax.nn, jax.numpy), w, x, y)
        torch = package("torch")
        if torch is not None:
            torch.set_num_threads(THREADS)
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
        return ours(step(nx.grad, nx.nn, jnp), w, x, y), peers

    yield Row("MLP train step, batch 128", works, bar=1.2)


def transformer(rng: np.random.Generator) -> Iterator[Row]:
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

    def forward(np_: Any, nn: Any) -> Callable[..., Any]:
        return block(np_, nn.softmax, nn.gelu)

    def backward(np_: Any, nn: Any, grad: Any) -> Callable[..., Any]:
        f = forward(np_, nn)
        return grad(lambda w, x: (f(w, x) ** 2).mean())

    def with_torch_block(gradient: bool) -> dict[str, Work]:
        torch = package("torch")
        if torch is None:
            return {}
        torch.set_num_threads(THREADS)
        functional = torch.nn.functional
        tw, tx = [torch.tensor(a, requires_grad=True) for a in w], torch.from_numpy(x)

        def h(w: Any, x: Any) -> Any:
            qkv = (functional.layer_norm(x, (d,)) @ w[0]).reshape(b, t, 3, heads, d // heads)
            q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
            a = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
            x = x + a @ w[1]
            return x + functional.gelu(functional.layer_norm(x, (d,)) @ w[2], approximate="tanh") @ w[3]

        def run() -> object:
            if gradient:
                return torch.autograd.grad((h(tw, tx) ** 2).mean(), tw)
            with torch.no_grad():
                return h(tw, tx)

        return {"torch": run}

    yield Row(
        "transformer block forward",
        lambda: (
            ours(forward(jnp, nx.nn), w, x),
            {**with_jax(lambda jax: forward(jax.numpy, jax.nn), w, x), **with_torch_block(False)},
        ),
        bar=1.2,
    )
    yield Row(
        "transformer block grad",
        lambda: (
            ours(backward(jnp, nx.nn, nx.grad), w, x),
            {**with_jax(lambda jax: backward(jax.numpy, jax.nn, jax.grad), w, x), **with_torch_block(True)},
        ),
        bar=1.2,
    )


def loops(rng: np.random.Generator) -> Iterator[Row]:
    """1,000 steps of a recurrent cell of width 64, batch 8."""
    w = (rng.normal(size=(64, 64)) / 8).astype(np.float32)
    u = (rng.normal(size=(32, 64)) / 6).astype(np.float32)
    xs = rng.normal(size=(1000, 8, 32)).astype(np.float32)
    h = np.zeros((8, 64), np.float32)

    def rnn(lax: Any, np_: Any) -> Callable[..., Any]:
        def f(w: Any, u: Any, xs: Any, h: Any) -> Any:
            return lax.scan(lambda h, x: ((y := np_.tanh(h @ w + x @ u)), y), h, xs)

        return f

    yield Row(
        "scan of 1,000 RNN steps",
        lambda: (
            ours(rnn(nx.lax, jnp), w, u, xs, h),
            with_jax(lambda jax: rnn(jax.lax, jax.numpy), w, u, xs, h),
        ),
        bar=2.0,
    )


def linear_algebra(rng: np.random.Generator) -> Iterator[Row]:
    """Small factorizations, many at once."""
    a = rng.normal(size=(1000, 16, 16)).astype(np.float32)
    a = a @ a.swapaxes(1, 2) + 16 * np.eye(16, dtype=np.float32)
    yield Row(
        "1,000 Cholesky 16 x 16",
        lambda: (
            ours(jnp.linalg.cholesky, a),
            {
                "numpy": lambda: np.linalg.cholesky(a),
                **with_jax(lambda jax: jax.numpy.linalg.cholesky, a),
                **with_torch(lambda torch: torch.linalg.cholesky, a, compiled=False),
            },
        ),
    )


def random_numbers() -> Iterator[Row]:
    """Threefry's bits beside JAX's same ones, and beside generators that give others."""
    count = 1_000_000

    def works() -> tuple[Work, dict[str, Work]]:
        generator = np.random.default_rng(0)
        peers: dict[str, Work] = {"numpy": lambda: generator.standard_normal(count, np.float32)}
        jax, torch = package("jax"), package("torch")
        if jax is not None:
            peers |= with_jax(lambda jax: lambda k: jax.random.normal(k, (count,)), jax.random.key(0))
        if torch is not None:
            torch.set_num_threads(THREADS)
            peers["torch"] = lambda: torch.randn(count)
        return ours(lambda k: nx.random.normal(k, (count,)), nx.random.key(0)), peers

    yield Row("random normal 1 M", works)


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=10_000_000).astype(np.float32)
    yield from elementwise(x)
    yield from reductions(x.reshape(10_000, 1000))
    yield from mlp(rng)
    yield from transformer(rng)
    yield from loops(rng)
    yield from random_numbers()
    yield from linear_algebra(rng)


def figures() -> Iterator[Figure]:
    print(f"peaks: {peaks(1)}; {peaks(THREADS)}", flush=True)
    yield from all_measured(rows())
