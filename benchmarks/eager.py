"""Eager execution of small things, where overhead is all there is."""

from __future__ import annotations

from typing import Any

from benchmarks.runner import Figure, interleaved


def figures() -> list[Figure]:
    import jax
    import jax.numpy as jnp

    import nxjax as nx

    def loss(numpy: Any) -> Any:
        return lambda x: (numpy.sin(x) * (x * 2.0)).sum()

    a, b = nx.arange(4.0), jnp.arange(4.0)
    ours, peer = interleaved(lambda: a + a, lambda: b + b, calls=2000)
    found = [Figure("eager add, 4 floats", ours, peer, "JAX", 0.2)]
    grad, peer_grad = nx.grad(loss(nx)), jax.grad(loss(jnp))
    ours, peer = interleaved(lambda: grad(a), lambda: peer_grad(b), calls=50)
    found.append(Figure("eager grad of sum(sin(x) 2x)", ours, peer, "JAX", 0.2))
    return found
