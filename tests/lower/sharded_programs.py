"""Random programs with random shardings, in JAX and in nxjax on eight CPU devices. Run as a script: prints JSON.

Both hand XLA the same meaning and the same shardings, so values agree, and so does the communication that XLA adds.
"""

import json
import os
import re
import sys

import numpy as np

MESHES = [((8,), ("x",)), ((2, 4), ("x", "y")), ((2, 2, 2), ("x", "y", "z"))]


def random_spec(rng, names, rank, open_dims=False):
    """Disjoint axes for the dimensions, perhaps several for one."""
    left = list(rng.permutation(names))
    entries = []
    for _ in range(rank):
        kind = rng.integers(0, 4)
        if kind == 0 or not left:
            entries.append("?" if open_dims and rng.integers(2) else None)
        elif kind == 3 and len(left) > 1:
            entries.append((left.pop(), left.pop()))
        else:
            entries.append(left.pop())
    return tuple(entries)


def random_program(seed):
    """A list of steps on matrices of size 16, and specs for arguments, constraints and the result."""
    rng = np.random.default_rng(seed)
    shape, names = MESHES[seed % len(MESHES)]
    steps = []
    for i in range(6):
        kind = rng.choice(["dot", "add", "tanh", "softmax", "transpose", "sum", "constrain", "call", "loop"])
        steps.append(
            (str(kind), int(rng.integers(0, i + 2)), int(rng.integers(0, i + 2)), random_spec(rng, names, 2, True))
        )
    return shape, names, steps, [random_spec(rng, names, 2) for _ in range(2)], random_spec(rng, names, 2)


def function(lib, mesh, steps):
    jnp = lib.numpy
    sharding = lib.sharding

    def spec(entries):
        P = sharding.PartitionSpec
        return P(*(P.UNCONSTRAINED if e == "?" else e for e in entries))

    def f(a, b):
        values = [a, b]
        for kind, i, j, entries in steps:
            x, y = values[i], values[j]
            if kind == "dot":
                z = x @ y / 4
            elif kind == "add":
                z = x * 0.5 + y
            elif kind == "tanh":
                z = jnp.tanh(x)
            elif kind == "softmax":
                z = jnp.exp(x - x.max(1, keepdims=True))
                z = z / z.sum(1, keepdims=True)
            elif kind == "transpose":
                z = x.T + y
            elif kind == "sum":
                z = x - x.mean(0)
            elif kind == "call":
                z = lib.jit(lambda u, v: jnp.sin(u) @ v / 4)(x, y)
            elif kind == "loop":
                z = lib.lax.scan(lambda c, _, w=y: (jnp.tanh(c @ w / 4), None), x, None, length=2)[0]
            else:
                z = lib.lax.with_sharding_constraint(x + y, sharding.NamedSharding(mesh, spec(entries)))
            values.append(z)
        return values[-1] + values[-2]

    return f, spec


def outcome(lib, seed):
    """Values of the function and of a gradient, kinds of collectives, and the result's block."""
    shape, names, steps, ins, out = random_program(seed)
    devices = np.array(lib.devices("cpu"))
    mesh = lib.sharding.Mesh(devices.reshape(shape), names)
    f, spec = function(lib, mesh, steps)
    rng = np.random.default_rng(seed)
    args = [rng.normal(size=(16, 16)).astype(np.float32) for _ in range(2)]
    placed = [lib.sharding.NamedSharding(mesh, spec(s)) for s in ins]
    target = lib.sharding.NamedSharding(mesh, spec(out))

    def both(a, b):
        value, gradient = lib.value_and_grad(lambda a: (f(a, b) ** 2).mean())(a)
        return f(a, b), value, gradient

    jitted = lib.jit(both, in_shardings=tuple(placed), out_shardings=(target, None, None))
    compiled = jitted.lower(*args).compile()
    text = compiled.as_text()
    kinds = re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text)
    results = jitted(*[lib.device_put(x, s) for x, s in zip(args, placed, strict=True)])
    return [np.asarray(r) for r in results], sorted(set(kinds)), results[0].sharding.shard_shape((16, 16))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["NXJAX_NUM_CPU_DEVICES"] = "8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy

    import nxjax
    import nxjax.numpy

    report = {}
    for seed in map(int, sys.argv[1:]):
        try:
            (xs, kinds, block), (ys, expected, target) = outcome(nxjax, seed), outcome(jax, seed)
            worst = max(float(np.abs(x - y).max() / max(1, np.abs(y).max())) for x, y in zip(xs, ys, strict=True))
            report[seed] = "" if worst < 1e-4 else f"off by {worst}"
            if kinds != expected:
                report[seed] += f" {kinds} for {expected}"
            if block != target:
                report[seed] += f" {block} for {target}"
        except Exception as error:
            report[seed] = f"{type(error).__name__}: {str(error)[:500]}"
    print(json.dumps(report))
