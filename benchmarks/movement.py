"""Data movement and order on the CPU executor: transposes, gathers, scatters, running sums, sorting; every peer beside.

Peers use as many threads as this process may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.cpu import THREADS, ours, with_jax
from benchmarks.peers import Work, compared, package
from benchmarks.runner import Figure

COUNT = 1_000_000


def with_torch(f: Callable[[Any], Callable[..., Any]], *xs: Any) -> dict[str, Work]:
    """``f(torch)``, eager: no more than one kernel each."""
    torch = package("torch")
    if torch is None:
        return {}
    torch.set_num_threads(THREADS)
    values = [torch.from_numpy(np.array(x)) for x in xs]
    g = f(torch)

    def run() -> object:
        with torch.no_grad():
            return g(*values)

    return {"torch": run}


def moved(x: np.ndarray, images: np.ndarray) -> Iterator[Figure]:
    out = np.empty(x.T.shape, x.dtype)
    yield compared(
        f"transpose {x.shape[0]} x {x.shape[1]}",
        ours(lambda x: x.T, x),
        {
            "numpy": lambda: np.copyto(out, x.T),
            **with_jax(lambda jax: lambda x: x.T, x),
            **with_torch(lambda torch: lambda x: x.t().contiguous(), x),
        },
    )
    order = (0, 3, 1, 2)
    yield compared(
        f"{list(images.shape)} to channels first",
        ours(lambda x: x.transpose(order), images),
        {
            "numpy": lambda: np.ascontiguousarray(images.transpose(order)),
            **with_jax(lambda jax: lambda x: x.transpose(order), images),
            **with_torch(lambda torch: lambda x: x.permute(order).contiguous(), images),
        },
    )
    yield compared(
        f"concatenate two {x.shape[0]} x {x.shape[1]} along rows",
        ours(lambda x, y: jnp.concatenate([x, y], 1), x, x),
        {
            "numpy": lambda: np.concatenate([x, x], 1),
            **with_jax(lambda jax: lambda x, y: jax.numpy.concatenate([x, y], 1), x, x),
            **with_torch(lambda torch: lambda x, y: torch.cat([x, y], 1), x, x),
        },
    )


def running(x: np.ndarray) -> Iterator[Figure]:
    for axis in (1, 0):
        yield compared(
            f"cumsum {x.shape[0]} x {x.shape[1]} along {axis}",
            ours(lambda x, axis=axis: jnp.cumsum(x, axis), x),
            {
                "numpy": lambda axis=axis: np.cumsum(x, axis),
                **with_jax(lambda jax, axis=axis: lambda x: jax.numpy.cumsum(x, axis), x),
                **with_torch(lambda torch, axis=axis: lambda x: torch.cumsum(x, axis), x),
            },
        )


def elements(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> Iterator[Figure]:
    def at() -> object:
        y = x.copy()
        np.add.at(y, i, u)
        return y

    yield compared(
        f"gather 1 M of {x.size}",
        ours(lambda x, i: x[i], x, i),
        {
            "numpy": lambda: np.take(x, i),
            **with_jax(lambda jax: lambda x, i: x[i], x, i),
            **with_torch(lambda torch: lambda x, i: torch.index_select(x, 0, i), x, i),
        },
    )
    yield compared(
        f"scatter-add 1 M into {x.size}",
        ours(lambda x, i, u: x.at[i].add(u), x, i, u),
        {
            "numpy": at,
            "numpy bincount": lambda: x + np.bincount(i, u, len(x)).astype(np.float32),
            **with_jax(lambda jax: lambda x, i, u: x.at[i].add(u), x, i, u),
            **with_torch(lambda torch: lambda x, i, u: torch.scatter_add(x, 0, i.long(), u), x, i, u),
        },
    )


def indexed(rng: np.random.Generator) -> Iterator[Figure]:
    for size in (1000, COUNT):
        yield from elements(
            rng.normal(size=size).astype(np.float32),
            rng.integers(0, size, COUNT).astype(np.int32),
            rng.normal(size=COUNT).astype(np.float32),
        )
    table, rows = rng.normal(size=(50_000, 256)).astype(np.float32), rng.integers(0, 50_000, 8192).astype(np.int32)
    u = rng.normal(size=(8192, 256)).astype(np.float32)
    yield compared(
        "8,192 rows of 50,000 x 256",
        ours(lambda x, i: x[i], table, rows),
        {
            "numpy": lambda: np.take(table, rows, 0),
            **with_jax(lambda jax: lambda x, i: x[i], table, rows),
            **with_torch(lambda torch: lambda x, i: torch.index_select(x, 0, i), table, rows),
        },
    )
    yield compared(
        "gradient of 8,192 rows of 50,000 x 256",
        ours(lambda i, u: jnp.zeros((50_000, 256)).at[i].add(u), rows, u),
        {
            **with_jax(lambda jax: lambda i, u: jax.numpy.zeros((50_000, 256)).at[i].add(u), rows, u),
            **with_torch(lambda torch: lambda i, u: torch.zeros(50_000, 256).index_add_(0, i, u), rows, u),
        },
    )


def ordered(x: np.ndarray) -> Figure:
    return compared(
        f"sort {' x '.join(map(str, x.shape))}",
        ours(lambda x: jnp.sort(x), x),
        {
            "numpy": lambda: np.sort(x),
            **with_jax(lambda jax: lambda x: jax.numpy.sort(x), x),
            **with_torch(lambda torch: lambda x: torch.sort(x)[0], x),
        },
    )


def sorting(rng: np.random.Generator) -> Iterator[Figure]:
    for shape in ((COUNT,), (10_000, 64), (1000, 1000)):
        yield ordered(rng.normal(size=shape).astype(np.float32))
    x = rng.normal(size=COUNT).astype(np.float32)
    yield compared(
        "argsort 1 M",
        ours(lambda x: jnp.argsort(x), x),
        {
            "numpy": lambda: np.argsort(x, kind="stable"),
            **with_jax(lambda jax: lambda x: jax.numpy.argsort(x), x),
            **with_torch(lambda torch: lambda x: torch.argsort(x, stable=True), x),
        },
    )
    logits = rng.normal(size=(32, 50_000)).astype(np.float32)
    yield compared(
        "50 largest of 32 x 50,000",
        ours(lambda x: nx.lax.top_k(x, 50), logits),
        {
            **with_jax(lambda jax: lambda x: jax.lax.top_k(x, 50), logits),
            **with_torch(lambda torch: lambda x: torch.topk(x, 50), logits),
        },
    )


def figures() -> Iterator[Figure]:
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4096, 4096)).astype(np.float32)
    yield from moved(square, rng.normal(size=(32, 224, 224, 3)).astype(np.float32))
    yield from running(square)
    yield from indexed(rng)
    yield from sorting(rng)
