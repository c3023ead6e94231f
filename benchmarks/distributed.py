"""Training steps over several CPU devices, and single collectives, beside JAX on as many of the same process.

The same programs through both libraries' `jit`, interleaved; state and batch lie on the devices. Where a step is much
larger than a call, both wait for the same compiler's code and the ratio is about one; small ones show a call's cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.runner import Figure, interleaved

DEVICES = 4
BATCH, WIDTH, HIDDEN = 256, 256, 1024


def step(library: Any, params: Any, x: Any) -> Any:
    """One step of gradient descent of an MLP."""
    np_ = library.numpy

    def loss(p: Any) -> Any:
        h = np_.tanh(x @ p["up"])
        return ((h @ p["down"] - x) ** 2).mean()

    value, grads = library.value_and_grad(loss)(params)
    return library.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


# Where the parameters and the batch lie: specs of both for each way.
WAYS = {
    "data": ({"up": (), "down": ()}, ("x",)),
    "tensor": ({"up": (None, "x"), "down": ("x",)}, ()),
    "zero3": ({"up": ("x",), "down": ("x",)}, ("x",)),
}
COLLECTIVES = ("psum", "all_gather", "psum_scatter", "ppermute", "all_to_all")


def training(library: Any, mesh: Any, way: str, host: dict[str, Any], x: Any) -> Callable[[], Any]:
    """A call of the step of one library, waiting for its result."""
    sharding, spec = library.sharding.NamedSharding, library.sharding.PartitionSpec
    weights = {k: sharding(mesh, spec(*s)) for k, s in WAYS[way][0].items()}
    rows = sharding(mesh, spec(*WAYS[way][1]))
    f = library.jit(
        lambda p, x: step(library, p, x), in_shardings=(weights, rows), out_shardings=(weights, sharding(mesh, spec()))
    )
    placed, batch = {k: library.device_put(v, weights[k]) for k, v in host.items()}, library.device_put(x, rows)
    return lambda: float(f(placed, batch)[1])


def collective(library: Any, mesh: Any, name: str, x: Any) -> Callable[[], Any]:
    lax, spec = library.lax, library.sharding.PartitionSpec
    calls = {
        "psum": lambda v: lax.psum(v, "x"),
        "all_gather": lambda v: lax.all_gather(v, "x", tiled=True),
        "psum_scatter": lambda v: lax.psum_scatter(v, "x", tiled=True),
        "ppermute": lambda v: lax.ppermute(v, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)]),
        "all_to_all": lambda v: lax.all_to_all(v, "x", 1, 0, tiled=True),
    }
    out = spec() if name == "psum" else spec("x")
    f = library.jit(library.shard_map(calls[name], mesh=mesh, in_specs=spec("x"), out_specs=out))
    placed = library.device_put(x, library.sharding.NamedSharding(mesh, spec("x")))
    return lambda: f(placed).block_until_ready()


def figures() -> list[Figure]:
    import nxjax as nx

    nx.config.update("num_cpu_devices", DEVICES)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    import jax

    random = np.random.default_rng(0)
    host = {
        "up": random.standard_normal((WIDTH, HIDDEN), np.float32) / 16,
        "down": random.standard_normal((HIDDEN, WIDTH), np.float32) / 32,
    }
    x = random.standard_normal((BATCH, WIDTH), np.float32)
    meshes = [(library, library.sharding.Mesh(np.array(library.devices("cpu")), ("x",))) for library in (nx, jax)]
    found: list[Figure] = []
    for way in WAYS:
        ours, peer = (training(library, mesh, way, host, x) for library, mesh in meshes)
        assert abs(ours() - peer()) < 1e-5
        times = interleaved(ours, peer, calls=3)
        found.append(Figure(f"{way} step, {DEVICES} CPU devices", *times, "jax", None))
    for size in (256, 1024):
        square = random.standard_normal((size, size), np.float32)
        for name in COLLECTIVES:
            ours, peer = (collective(library, mesh, name, square) for library, mesh in meshes)
            np.testing.assert_allclose(np.asarray(ours()), np.asarray(peer()), rtol=1e-5, atol=1e-5)
            times = interleaved(ours, peer, calls=5)
            found.append(Figure(f"{name}, {size} x {size} over {DEVICES}", *times, "jax", None))
    return found
