"""Data movement and order on the CPU executor: transposes, gathers, scatters, running sums, sorting; every peer beside.

Peers use as many threads as this process may.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks import peers
from benchmarks.peers import Row, all_measured, ours, with_jax
from benchmarks.runner import Figure

COUNT = 1_000_000
with_torch = partial(peers.with_torch, compiled=False)  # eager: no more than one kernel each


def moved(x: np.ndarray, images: np.ndarray) -> Iterator[Row]:
    out = np.empty(x.T.shape, x.dtype)
    yield Row(
        f"transpose {x.shape[0]} x {x.shape[1]}",
        lambda: (
            ours(lambda x: x.T, x),
            {
                "numpy": lambda: np.copyto(out, x.T),
                **with_jax(lambda jax: lambda x: x.T, x),
                **with_torch(lambda torch: lambda x: x.t().contiguous(), x),
            },
        ),
        nbytes=2 * x.nbytes,
    )
    order = (0, 3, 1, 2)
    yield Row(
        f"{list(images.shape)} to channels first",
        lambda: (
            ours(lambda x: x.transpose(order), images),
            {
                "numpy": lambda: np.ascontiguousarray(images.transpose(order)),
                **with_jax(lambda jax: lambda x: x.transpose(order), images),
                **with_torch(lambda torch: lambda x: x.permute(order).contiguous(), images),
            },
        ),
    )
    yield Row(
        f"concatenate two {x.shape[0]} x {x.shape[1]} along rows",
        lambda: (
            ours(lambda x, y: jnp.concatenate([x, y], 1), x, x),
            {
                "numpy": lambda: np.concatenate([x, x], 1),
                **with_jax(lambda jax: lambda x, y: jax.numpy.concatenate([x, y], 1), x, x),
                **with_torch(lambda torch: lambda x, y: torch.cat([x, y], 1), x, x),
            },
        ),
    )


def running(x: np.ndarray) -> Iterator[Row]:
    for axis in (1, 0):
        yield Row(
            f"cumsum {x.shape[0]} x {x.shape[1]} along {axis}",
            lambda axis=axis: (
                ours(lambda x: jnp.cumsum(x, axis), x),
                {
                    "numpy": lambda: np.cumsum(x, axis),
                    **with_jax(lambda jax: lambda x: jax.numpy.cumsum(x, axis), x),
                    **with_torch(lambda torch: lambda x: torch.cumsum(x, axis), x),
                },
            ),
            nbytes=2 * x.nbytes,
        )


def elements(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> Iterator[Row]:
    size = "" if x.size == COUNT else f", table of {x.size:,}"

    def at() -> object:
        y = x.copy()
        np.add.at(y, i, u)
        return y

    yield Row(
        f"gather 1 M{size}",
        lambda: (
            ours(lambda x, i: x[i], x, i),
            {
                "numpy": lambda: np.take(x, i),
                **with_jax(lambda jax: lambda x, i: x[i], x, i),
                **with_torch(lambda torch: lambda x, i: torch.index_select(x, 0, i), x, i),
            },
        ),
    )
    yield Row(
        f"scatter-add 1 M{size}",
        lambda: (
            ours(lambda x, i, u: x.at[i].add(u), x, i, u),
            {
                "numpy": at,
                "numpy bincount": lambda: x + np.bincount(i, u, len(x)).astype(np.float32),
                **with_jax(lambda jax: lambda x, i, u: x.at[i].add(u), x, i, u),
                **with_torch(lambda torch: lambda x, i, u: torch.scatter_add(x, 0, i.long(), u), x, i, u),
            },
        ),
    )


def indexed(rng: np.random.Generator) -> Iterator[Row]:
    for size in (1000, COUNT):
        yield from elements(
            rng.normal(size=size).astype(np.float32),
            rng.integers(0, size, COUNT).astype(np.int32),
            rng.normal(size=COUNT).astype(np.float32),
        )
    table, rows = rng.normal(size=(50_000, 256)).astype(np.float32), rng.integers(0, 50_000, 8192).astype(np.int32)
    u = rng.normal(size=(8192, 256)).astype(np.float32)
    yield Row(
        "8,192 rows of 50,000 x 256",
        lambda: (
            ours(lambda x, i: x[i], table, rows),
            {
                "numpy": lambda: np.take(table, rows, 0),
                **with_jax(lambda jax: lambda x, i: x[i], table, rows),
                **with_torch(lambda torch: lambda x, i: torch.index_select(x, 0, i), table, rows),
            },
        ),
    )
    yield Row(
        "gradient of 8,192 rows of 50,000 x 256",
        lambda: (
            ours(lambda i, u: jnp.zeros((50_000, 256)).at[i].add(u), rows, u),
            {
                **with_jax(lambda jax: lambda i, u: jax.numpy.zeros((50_000, 256)).at[i].add(u), rows, u),
                **with_torch(lambda torch: lambda i, u: torch.zeros(50_000, 256).index_add_(0, i, u), rows, u),
            },
        ),
    )


def ordered(x: np.ndarray) -> Row:
    return Row(
        f"sort {'1 M' if x.size == COUNT and x.ndim == 1 else ' x '.join(f'{n:,}' for n in x.shape)}",
        lambda: (
            ours(lambda x: jnp.sort(x), x),
            {
                "numpy": lambda: np.sort(x),
                **with_jax(lambda jax: lambda x: jax.numpy.sort(x), x),
                **with_torch(lambda torch: lambda x: torch.sort(x)[0], x),
            },
        ),
    )


def sorting(rng: np.random.Generator) -> Iterator[Row]:
    for shape in ((COUNT,), (10_000, 64), (1000, 1000)):
        yield ordered(rng.normal(size=shape).astype(np.float32))
    x = rng.normal(size=COUNT).astype(np.float32)
    yield Row(
        "argsort 1 M",
        lambda: (
            ours(lambda x: jnp.argsort(x), x),
            {
                "numpy": lambda: np.argsort(x, kind="stable"),
                **with_jax(lambda jax: lambda x: jax.numpy.argsort(x), x),
                **with_torch(lambda torch: lambda x: torch.argsort(x, stable=True), x),
            },
        ),
    )
    logits = rng.normal(size=(32, 50_000)).astype(np.float32)
    yield Row(
        "50 largest of 32 x 50,000",
        lambda: (
            ours(lambda x: nx.lax.top_k(x, 50), logits),
            {
                **with_jax(lambda jax: lambda x: jax.lax.top_k(x, 50), logits),
                **with_torch(lambda torch: lambda x: torch.topk(x, 50), logits),
            },
        ),
    )


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4096, 4096)).astype(np.float32)
    yield from moved(square, rng.normal(size=(32, 224, 224, 3)).astype(np.float32))
    yield from running(square)
    yield from indexed(rng)
    yield from sorting(rng)


def figures() -> Iterator[Figure]:
    return all_measured(rows())
