"""Matrix products beside NumPy's BLAS, PyTorch, JAX, ONNX Runtime and OpenVINO; bytes beside our own float32.

Each line says how many operations per second that is, and what share of the measured multiply-add rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.convolutions import with_onnx
from benchmarks.peers import THREADS, Row, Work, all_measured, isas, ours, package, with_jax, with_torch, without_vnni
from benchmarks.runner import Figure
from nxjax.ops.dot import dot_general
from nxjax.profiling.peaks import peaks

Shape = tuple[int, ...]


def product(name: str, left: Shape, right: Shape, f: Callable[..., Any] | None = None, flops: float = 0.0) -> Row:
    """``f`` (the product, if it is not given) of two arrays that are both data."""
    g = f or (lambda a, b: a @ b)

    def works() -> tuple[Work, dict[str, Work]]:
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal(s, np.float32) for s in (left, right))
        given = np.empty(g(x, y).shape, np.float32)
        peers = {"numpy": lambda: g(x, y), **with_jax(lambda j: g, x, y)}
        peers |= with_torch(lambda t: g, x, y, compiled=False)
        if f is None:
            peers["numpy out="] = lambda: np.matmul(x, y, out=given)
            if len(right) == 2:
                peers |= with_onnx(lambda p, a: a @ p["w"], {"w": y}, x)
        return ours(g, x, y), peers

    flops = flops or 2.0 * np.prod(left) * (right[-1] if len(right) > 1 else 1)
    return Row(name, works, flops=flops)


def in_passes(size: int, precision: str, torchs: str) -> Row:
    """A square product of float32 in passes of bfloat16, beside PyTorch's fastest of float32 and our own float32."""

    def works() -> tuple[Work, dict[str, Work]]:
        x, y = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
        peers = {"our float32": ours(lambda a, b: a @ b, x, y)}
        torch = package("torch")
        if torch is not None:
            torch.set_num_threads(THREADS)
            given = [torch.from_numpy(v) for v in (x, y)]

            def product() -> Any:
                torch.set_float32_matmul_precision(torchs)
                z = given[0] @ given[1]
                torch.set_float32_matmul_precision("highest")
                return z

            peers[f"torch, {torchs}"] = product
        return ours(lambda a, b: nx.lax.dot(a, b, precision=precision), x, y), peers

    return Row(f"matmul {size} float32, {precision}", works, flops=2.0 * size**3)


def attention() -> Row:
    """Two sequences of 1,024, 8 heads of width 64."""

    def with_heads_first(torch: Any) -> Callable[..., Any]:
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda *xs: attend(*(x.transpose(1, 2) for x in xs)).transpose(1, 2)

    def works() -> tuple[Work, dict[str, Work]]:
        rng = np.random.default_rng(0)
        xs = [rng.standard_normal((2, 1024, 8, 64), np.float32) for _ in range(3)]
        peers = {**with_jax(lambda jax: jax.nn.dot_product_attention, *xs)}
        return ours(nx.nn.dot_product_attention, *xs), peers | with_torch(with_heads_first, *xs, compiled=False)

    return Row("attention 2x1024x8x64", works, flops=4.0 * 2 * 8 * 1024 * 1024 * 64)


def training_step() -> Row:
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

    def works() -> tuple[Work, dict[str, Work]]:
        peers = with_jax(lambda j: j.grad(loss(j.numpy), (0, 1, 2)), *ws, x)
        torch = package("torch")
        if torch is not None:
            torch.set_num_threads(THREADS)
            tws = [torch.from_numpy(w).requires_grad_() for w in ws]
            tx = torch.from_numpy(x)

            def step() -> object:
                h = torch.relu(tx @ tws[0])
                return torch.autograd.grad(((torch.relu(h @ tws[1]) @ tws[2]) ** 2).sum(), tws)

            peers["torch"] = step
        return ours(nx.grad(loss(jnp), (0, 1, 2)), *ws, x), peers

    flops = 2.0 * 128 * sum(3 * a * b for a, b in sizes) - 2.0 * 128 * 784 * 512
    return Row("MLP gradients b128", works, 1.2, flops=flops)


def _int32(a: Any, b: Any) -> Any:
    numbers = (((1,), (0,)), ((), ()))
    return dot_general(a, b, dimension_numbers=numbers, preferred_element_type=np.dtype("int32"))


def bytes_() -> Iterator[Row]:
    """Exact products of bytes beside our own float32; the bar is for processors without VNNI."""
    for n in (256, 1024):

        def works(n: int = n) -> tuple[Work, dict[str, Work]]:
            rng = np.random.default_rng(0)
            x, y = (rng.integers(-128, 127, (n, n)).astype(np.int8) for _ in range(2))
            floats = ours(lambda a, b: a @ b, x.astype(np.float32), y.astype(np.float32))
            return ours(_int32, x, y), {"our float32": floats}

        yield Row(f"int8 matmul {n}", works, None, flops=2.0 * n**3)
        yield Row(f"int8 matmul {n}, no VNNI", works, 1.3, flops=2.0 * n**3, isa=without_vnni())


def narrow(sizes: Sequence[int] = ()) -> Iterator[Row]:
    """What matrix units are for, beside PyTorch and JAX: bfloat16, and exact sums of products of bytes.

    Without such a unit PyTorch takes minutes for the large ones.
    """
    sizes = sizes or (512, 1024, *((2048, 4096) if "avx512-amx" in isas() else ()))

    def brains(n: int) -> tuple[Work, dict[str, Work]]:
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal((n, n), np.float32).astype(jnp.bfloat16) for _ in range(2))
        torch = with_torch(
            lambda t: lambda a, b: a.view(t.bfloat16) @ b.view(t.bfloat16),
            *(v.view(np.int16) for v in (x, y)),
            compiled=False,
        )
        return ours(jnp.matmul, x, y), {**torch, **with_jax(lambda j: j.numpy.matmul, x, y)}

    def eights(n: int) -> tuple[Work, dict[str, Work]]:
        rng = np.random.default_rng(0)
        x, y = (rng.integers(-128, 127, (n, n)).astype(np.int8) for _ in range(2))
        numbers = (((1,), (0,)), ((), ()))
        jax = with_jax(
            lambda j: partial(j.lax.dot_general, dimension_numbers=numbers, preferred_element_type="int32"), x, y
        )
        return ours(_int32, x, y), {**with_torch(lambda t: t._int_mm, x, y, compiled=False), **jax}

    for n in sizes:
        for what, works in (("bfloat16", brains), ("int8 to int32", eights)):
            yield Row(f"{what} matmul {n}", partial(works, n), None, flops=2.0 * n**3)


def wrong_sums(count: int = 100, depth: int = 515) -> int:
    """How many of ``count``**2 sums of products of extreme bytes are not exact; two products exceed 16 bits."""
    rng = np.random.default_rng(0)
    x, y = (rng.choice(np.array([-128, -127, 127], np.int8), s) for s in ((count, depth), (depth, count)))
    x[: count // 2], y[:, : count // 2] = -128, -128  # every pair sums to 32,768
    got = np.asarray(nx.jit(_int32)(x, y))
    return int((got != x.astype(np.int64) @ y.astype(np.int64)).sum())


def exactness() -> Iterator[Figure]:
    """Sums that would saturate, on every path that runs here."""
    for isa in isas():
        with nx.config.using(cpu_isa=isa, compile_first=True):
            wrong = wrong_sums()
        yield Figure(f"int8 wrong of 10,000 saturating, {isa}", wrong, None, "", None, unit="wrong", most=0)


def rows() -> Iterator[Row]:
    for n in (64, 256, 1024, 2048):
        yield product(f"matmul {n}", (n, n), (n, n))
    yield in_passes(1024, "bfloat16", "medium")
    yield in_passes(1024, "bfloat16_3x", "high")
    yield product("matrix times vector 4096", (4096, 4096), (4096,))
    yield product("vector times matrix 4096", (4096,), (4096, 4096))
    yield product("64 x matmul 128", (64, 128, 128), (64, 128, 128))
    yield product("1024 x 512 times 512 x 2048", (1024, 512), (512, 2048))
    yield product("1024 x 2048 times 2048 x 512", (1024, 2048), (2048, 512))
    scores = lambda a, b: a @ b.swapaxes(-1, -2)
    yield product("attention scores 4x8x256x64", (4, 8, 256, 64), (4, 8, 256, 64), scores, 2.0 * 32 * 256 * 256 * 64)
    gradient = lambda a, b: a.T @ b
    yield product("weights' gradient 512 x 1024 x 2048", (1024, 512), (1024, 2048), gradient, 2.0 * 2**30)
    yield attention()
    yield training_step()
    yield from bytes_()
    yield from narrow()


def figures() -> Iterator[Figure]:
    print(peaks(THREADS))
    yield from all_measured(rows())
    yield from exactness()
