"""Factorizations, linear systems and Fourier transforms on the CPU executor, against every peer that has them.

Peers use as many threads as this process may. SciPy's transforms are asked for that many, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks import peers
from benchmarks.peers import THREADS, Row, Work, all_measured, ours, package, with_jax
from benchmarks.runner import Figure

with_torch = partial(peers.with_torch, compiled=False)


def with_scipy(f: Callable[[Any], Work]) -> dict[str, Work]:
    """``f(scipy)``; nothing where SciPy is missing."""
    scipy = package("scipy")
    if scipy is None:
        return {}
    for name in ("fft", "linalg", "signal"):
        package(f"scipy.{name}")
    return {"scipy": f(scipy)}


def _row(name: str, f: Callable[[Any], Callable[..., Any]], scipy: Callable[[Any], Work] | None, *xs: Any) -> Row:
    """``f`` of a NumPy (NumPy, JAX's, PyTorch, ours) on the same arrays."""
    return Row(
        name,
        lambda: (
            ours(f(jnp), *xs),
            {
                "numpy": lambda: f(np)(*xs),
                **with_jax(lambda jax: f(jax.numpy), *xs),
                **with_torch(f, *xs),
                **(with_scipy(scipy) if scipy is not None else {}),
            },
        ),
    )


def factorizations() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    drawn = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    a, b, v = drawn(256, 256), drawn(512, 512), drawn(512)
    many = drawn(200, 16, 16)
    many = many + many.swapaxes(1, 2)
    c = drawn(1024, 1024)
    c = c @ c.T + 1024 * np.eye(1024, dtype=np.float32)
    yield _row("svd 256", lambda m: lambda x: m.linalg.svd(x, full_matrices=False),
               lambda scipy: lambda: scipy.linalg.svd(a, False), a)  # fmt: skip
    s = a + a.T
    yield _row("eigh 256", lambda m: m.linalg.eigh, lambda scipy: lambda: scipy.linalg.eigh(s, driver="evd"), s)
    yield _row("200 eigh of 16 x 16", lambda m: m.linalg.eigh, None, many)
    yield _row("qr 512", lambda m: m.linalg.qr, lambda scipy: lambda: scipy.linalg.qr(b, mode="economic"), b)
    yield _row("solve 512", lambda m: m.linalg.solve, lambda scipy: lambda: scipy.linalg.solve(b, v), b, v)
    yield _row(
        "cholesky 1024", lambda m: m.linalg.cholesky, lambda scipy: lambda: scipy.linalg.cholesky(c, lower=True), c
    )


def transforms() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    z = (rng.standard_normal(1 << 20) + 1j * rng.standard_normal(1 << 20)).astype(np.complex64)
    image = rng.standard_normal((1024, 1024)).astype(np.float32)
    spectrum = np.fft.rfft2(image)
    lines = z[:1_000_000].reshape(1000, 1000)
    x, y = image.ravel()[:100_000], image.ravel()[-10_000:]
    yield _row("fft, 1 M complex", lambda m: m.fft.fft, lambda scipy: lambda: scipy.fft.fft(z, workers=THREADS), z)
    yield _row(
        "1000 fft of 1000", lambda m: m.fft.fft, lambda scipy: lambda: scipy.fft.fft(lines, workers=THREADS), lines
    )
    yield _row(
        "rfft2 1024", lambda m: m.fft.rfft2, lambda scipy: lambda: scipy.fft.rfft2(image, workers=THREADS), image
    )
    yield _row("irfft2 1024", lambda m: m.fft.irfft2,
               lambda scipy: lambda: scipy.fft.irfft2(spectrum, workers=THREADS), spectrum)  # fmt: skip
    yield Row(
        "fftconvolve 100,000 with 10,000",
        lambda: (
            ours(nx.scipy.signal.fftconvolve, x, y),
            {
                **with_jax(lambda jax: package("jax.scipy.signal").fftconvolve, x, y),
                **with_scipy(lambda scipy: lambda: scipy.signal.fftconvolve(x, y)),
            },
        ),
    )


def figures() -> Iterator[Figure]:
    yield from all_measured(factorizations())
    yield from all_measured(transforms())
