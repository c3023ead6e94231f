"""What a call of a jitted function costs besides the work: the first, and the thousandth; small arrays, and trees.

"First call" is trace, compile and run, of a function that this process has not seen; the on-disk caches are off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from benchmarks.runner import Figure, interleaved


def figures() -> list[Figure]:
    import jax
    import jax.numpy as jnp

    import nxjax as nx

    found: list[Figure] = []

    def compare(name: str, ours: Callable[[], Any], peer: Callable[[], Any], bar: float | None, calls: int) -> None:
        for _ in range(3):
            ours(), peer()
        found.append(Figure(name, *interleaved(ours, peer, calls=calls), "JAX", bar))

    a, b = nx.arange(4.0), jnp.arange(4.0)
    add, peer_add = nx.jit(lambda x, y: x + y), jax.jit(lambda x, y: x + y)
    compare("jit call, add of two 4-vectors", lambda: add(a, a), lambda: peer_add(b, b), 1 / 4, 2000)
    step, peer_step = nx.jit(lambda x, k: x * k + 1), jax.jit(lambda x, k: x * k + 1)
    compare("jit call, 4-vector and a number", lambda: step(a, 0.5), lambda: peer_step(b, 0.5), 1 / 4, 1000)
    compare("jit call, read one number back", lambda: float(add(a, a)[1]), lambda: float(peer_add(b, b)[1]), None, 100)

    tree_a, tree_b = {f"k{i}": a for i in range(40)}, {f"k{i}": b for i in range(40)}
    ours_tree = nx.jit(lambda t: nx.tree.map(lambda x: x + 1, t))
    peer_tree = jax.jit(lambda t: jax.tree.map(lambda x: x + 1, t))
    compare("jit call, dict of 40 leaves", lambda: ours_tree(tree_a), lambda: peer_tree(tree_b), 1 / 10, 200)
    nest_a = [(a, {"m": a, "v": [a, a]}) for _ in range(10)]
    nest_b = [(b, {"m": b, "v": [b, b]}) for _ in range(10)]
    compare("jit call, 40 leaves deep", lambda: ours_tree(nest_a), lambda: peer_tree(nest_b), 1 / 10, 200)

    n = itertools.count(1)
    for name, ours, peer in (
        ("first call, x + n", lambda k: lambda x: x + k, lambda k: lambda x: x + k),
        ("first call, sin(x * n)", lambda k: lambda x: nx.sin(x * k), lambda k: lambda x: jnp.sin(x * k)),
    ):
        with nx.config.using(cache_dir=""):
            compare(
                name,
                lambda ours=ours: nx.jit(ours(next(n) + 0.5))(a),
                lambda peer=peer: jax.jit(peer(next(n) + 0.5))(b),
                1 / 10,
                1,
            )
    return found
