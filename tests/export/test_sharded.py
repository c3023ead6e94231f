"""Functions over several devices: exported with their shardings, and computed by JAX and by nxjax on as many."""

import os
import subprocess
import sys

SCRIPT = """
import numpy as np
import jax, jax.export
import nxjax as nx
from nxjax import export

P = nx.sharding.PartitionSpec
mesh = nx.sharding.Mesh(np.array(nx.devices()).reshape(2, 2), ("x", "y"))
place = lambda *spec: nx.sharding.NamedSharding(mesh, P(*spec))
f = nx.jit(
    lambda w, x: (nx.tanh(x @ w), (x**2).sum()),
    in_shardings=(place("x", "y"), place(None, "x")),
    out_shardings=(place("x", "y"), place()),
)
w = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
x = np.ones((4, 8), np.float32)
wanted = np.tanh(x @ w)
exported = export.export(f, platforms=("cpu", "tpu"))(w, x)
assert exported.nr_devices == 4 and exported.in_shardings[0].spec == P("x", "y")
assert "sdy.sharding" in exported.mlir_module() and "num_partitions = 4" in exported.mlir_module()

# JAX, on four devices of its own.
theirs = jax.export.deserialize(exported.serialize(vjp_order=1))
their_mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
args = [jax.device_put(a, s) for a, s in zip((w, x), theirs.in_shardings_jax(their_mesh))]
y, total = jax.jit(theirs.call)(*args)
assert y.sharding.spec == jax.P("x", "y")
np.testing.assert_allclose(y, wanted, 1e-5, 1e-5)
assert float(total) == 32
gradient = jax.jit(jax.grad(lambda w: theirs.call(w, args[1])[0].sum()))(args[0])
np.testing.assert_allclose(gradient, x.T @ (1 - wanted**2), 1e-4, 1e-4)

# nxjax, from the file: on one device, and on four.
loaded = export.deserialize(exported.serialize(vjp_order=1))
np.testing.assert_allclose(loaded.call(w, x)[0], wanted, 1e-5, 1e-5)
placed = [nx.device_put(a, s) for a, s in zip((w, x), loaded.in_shardings_jax(mesh))]
np.testing.assert_allclose(loaded.call(*placed)[0], wanted, 1e-5, 1e-5)
gradient = nx.grad(lambda w: loaded.call(w, placed[1])[0].sum())(placed[0])
np.testing.assert_allclose(gradient, x.T @ (1 - wanted**2), 1e-4, 1e-4)

# What each device computes on its own: on one device, on four, and with the derivative that is in the file.
axis = their_mesh.axis_names[0]
body = jax.shard_map(
    lambda x: jax.lax.psum((x * x).sum(0), axis), mesh=their_mesh, in_specs=jax.P(axis), out_specs=jax.P()
)
manual = export.deserialize(jax.export.export(jax.jit(body))(args[1]).serialize(vjp_order=1))
for given in (x, placed[1]):
    np.testing.assert_allclose(manual.call(given), (x * x).sum(0), 1e-5, 1e-5)
    np.testing.assert_allclose(nx.grad(lambda x: manual.call(x).sum())(given), 2 * x, 1e-5, 1e-5)
"""


def test_four_devices():
    env = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "NXJAX_NUM_CPU_DEVICES": "4",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
