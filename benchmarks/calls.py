"""Overhead of calling a jitted function: four floats, and a tree of forty leaves."""

from __future__ import annotations

from benchmarks.runner import Figure, interleaved


def figures() -> list[Figure]:
    import jax
    import jax.numpy as jnp

    import nxjax as nx

    a, b = nx.arange(4.0), jnp.arange(4.0)
    ours_add, peer_add = nx.jit(lambda x: x + 1), jax.jit(lambda x: x + 1)
    found = [
        Figure("jit call, 4 floats", *interleaved(lambda: ours_add(a), lambda: peer_add(b), calls=1000), "JAX", None)
    ]
    tree_a, tree_b = {f"k{i}": a for i in range(40)}, {f"k{i}": b for i in range(40)}
    ours_tree = nx.jit(lambda t: nx.tree.map(lambda x: x + 1, t))
    peer_tree = jax.jit(lambda t: jax.tree.map(lambda x: x + 1, t))
    times = interleaved(lambda: ours_tree(tree_a), lambda: peer_tree(tree_b), calls=200)
    found.append(Figure("jit call, tree of 40 leaves", *times, "JAX", None))
    return found
