"""Matrix products beside NumPy's BLAS, PyTorch, JAX, ONNX Runtime and OpenVINO; bytes beside our own float32.

Each line says how many operations per second that is, and what share of the measured multiply-add rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.convolutions import with_onnx
from benchmarks.cpu import THREADS, ours, with_jax, with_torch
from benchmarks.peers import Work, compared, package
from benchmarks.runner import Figure, interleaved
from nxjax.ops.dot import dot_general
from nxjax.profiling.peaks import peaks

Shape = tuple[int, ...]


def _named(figure: Figure, flops: float) -> Figure:
    rate = flops / figure.ours
    text = f"{rate / 1e9:.0f} GFLOP/s, {100 * rate / peaks(THREADS).flops:.0f} % of peak; {figure.note}"
    return replace(figure, note=text)


def product(name: str, left: Shape, right: Shape, f: Callable[..., Any] | None = None, flops: float = 0.0) -> Figure:
    """``f`` (the product, if it is not given) of two arrays that are both data."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s, np.float32) for s in (left, right))
    g = f or (lambda a, b: a @ b)
    out = g(x, y)
    flops = flops or 2.0 * out.size * left[-1]
    given = np.empty(out.shape, np.float32)
    peers: dict[str, Work] = {"numpy": lambda: g(x, y), **with_torch(lambda t: g, x, y), **with_jax(lambda j: g, x, y)}
    if f is None:
        peers["numpy out="] = lambda: np.matmul(x, y, out=given)
        if len(right) == 2:
            peers |= with_onnx(lambda p, a: a @ p["w"], {"w": y}, x)
    return _named(compared(name, ours(g, x, y), peers), flops)


def training_step() -> Figure:
    """784-512-512-10, batch 128: gradients of all weights."""
    rng = np.random.default_rng(0)
    sizes = ((784, 512), (512, 512), (512, 10))
    ws = [(rng.standard_normal(s) / 28).astype(np.float32) for s in sizes]
    x = rng.standard_normal((128, 784), np.float32)

    def loss(np_: Any) -> Callable[..., Any]:
        def f(a: Any, b: Any, c: Any, x: Any) -> Any:
            h = np_.maximum(x @ a, 0)
            return (((np_.maximum(h @ b, 0)) @ c) ** 2).sum()

        return f

    peers: dict[str, Work] = {}
    jax, torch = package("jax"), package("torch")
    if jax is not None:
        peers |= with_jax(lambda j: j.grad(loss(j.numpy), (0, 1, 2)), *ws, x)
    if torch is not None:
        torch.set_num_threads(THREADS)
        tws = [torch.from_numpy(w).requires_grad_() for w in ws]
        tx = torch.from_numpy(x)

        def step() -> object:
            h = torch.relu(tx @ tws[0])
            return torch.autograd.grad(((torch.relu(h @ tws[1]) @ tws[2]) ** 2).sum(), tws)

        peers["torch"] = step
    flops = 2.0 * 128 * sum(3 * a * b for a, b in sizes) - 2.0 * 128 * 784 * 512
    return _named(compared("MLP gradients b128", ours(nx.grad(loss(jnp), (0, 1, 2)), *ws, x), peers, 1.2), flops)


def _int32(a: Any, b: Any) -> Any:
    numbers = (((1,), (0,)), ((), ()))
    return dot_general(a, b, dimension_numbers=numbers, preferred_element_type=np.dtype("int32"))


def bytes_() -> Iterator[Figure]:
    """Exact products of bytes beside our own float32."""
    rng = np.random.default_rng(0)
    for n in (256, 1024):
        x, y = (rng.integers(-128, 127, (n, n)).astype(np.int8) for _ in range(2))
        exact = ours(_int32, x, y)
        floats = ours(lambda a, b: a @ b, x.astype(np.float32), y.astype(np.float32))
        first, second = interleaved(exact, floats, calls=max(1, 4096 // n))
        yield _named(Figure(f"int8 {n}", first, second, "our float32", 1 / 1.3), 2.0 * n**3)


def figures() -> Iterator[Figure]:
    print(peaks(THREADS))
    for n in (64, 256, 1024, 2048):
        yield product(f"matmul {n}", (n, n), (n, n))
    yield product("matrix times vector 4096", (4096, 4096), (4096,))
    yield product("vector times matrix 4096", (4096,), (4096, 4096), flops=2.0 * 4096**2)
    yield product("64 x matmul 128", (64, 128, 128), (64, 128, 128))
    yield product("1024x512 times 512x2048", (1024, 512), (512, 2048))
    yield product("1024x2048 times 2048x512", (1024, 2048), (2048, 512))
    scores = lambda a, b: a @ b.swapaxes(-1, -2)
    yield product("attention scores 4x8x256x64", (4, 8, 256, 64), (4, 8, 256, 64), scores, 2.0 * 32 * 256 * 256 * 64)
    yield product("weights' gradient 512x1024x2048", (1024, 512), (1024, 2048), lambda a, b: a.T @ b, 2.0 * 2**30)
    yield training_step()
    yield from bytes_()
