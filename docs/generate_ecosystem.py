"""Writes the table of docs/ecosystem.md: each library, used for a moment on nxjax under the name jax.

python docs/generate_ecosystem.py          # in an environment with the libraries; those that are missing are said
"""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).parent / "ecosystem.md"
BEGIN, END = "<!-- begin -->\n", "<!-- end -->\n"

# package -> what is run
USES = {
    "optax": """
import optax
for tx in (optax.adamw(0.1), optax.lion(0.1), optax.contrib.muon(0.1), optax.lbfgs()):
    p = {"w": jnp.ones((3, 2))}
    f = lambda p: (p["w"] ** 2).sum()
    g = jax.grad(f)(p)
    u, _ = optax.with_extra_args_support(tx).update(g, tx.init(p), p, value=f(p), grad=g, value_fn=f)
    optax.apply_updates(p, u)
""",
    "chex": """
import chex
chex.assert_trees_all_close(jnp.ones(3), jnp.ones(3))
chex.chexify(jax.jit(lambda x: (chex.assert_tree_all_finite(x), x)[1]), async_check=False)(jnp.ones(3))
""",
    "einops": """
import einops
jax.jit(lambda x: einops.rearrange(x, "a b -> b a"))(jnp.ones((2, 3)))
""",
    "jaxtyping": """
from jaxtyping import Array, Float
assert isinstance(jnp.ones((2, 3)), Float[Array, "2 3"]) and not isinstance(jnp.ones(3), Float[Array, "2 3"])
""",
    "jaxopt": """
import jaxopt
jaxopt.LBFGS(lambda w: ((w - 1) ** 2).sum()).run(jnp.zeros(2))
jaxopt.LevenbergMarquardt(lambda w: w - 1).run(jnp.zeros(2))
""",
    "blackjax": """
import blackjax
nuts = blackjax.nuts(lambda v: -0.5 * (v**2).sum(), 0.1, jnp.ones(2))
nuts.step(jax.random.key(0), nuts.init(jnp.zeros(2)))
""",
    "dm-haiku": """
import haiku as hk
net = hk.transform(lambda x: hk.nets.MLP([8, 2])(x))
net.apply(net.init(jax.random.key(0), jnp.ones((2, 4))), None, jnp.ones((2, 4)))
""",
    "flax": """
import flax.linen as nn
from flax import nnx
net = nn.Sequential([nn.Conv(4, (3, 3)), nn.relu, nn.LayerNorm(), nn.Dense(2)])
x = jnp.ones((2, 8, 8, 3))
params = net.init(jax.random.key(0), x)
jax.jit(jax.grad(lambda p: net.apply(p, x).sum()))(params)
layer = nn.RNN(nn.LSTMCell(4))
layer.apply(layer.init(jax.random.key(0), jnp.ones((2, 5, 3))), jnp.ones((2, 5, 3)))
model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
nnx.jit(nnx.value_and_grad(lambda m: (m(jnp.ones((4, 3))) ** 2).mean()))(model)
""",
    "equinox": """
import equinox as eqx
net = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.PRNGKey(0))
eqx.filter_jit(eqx.filter_grad(lambda m: (jax.vmap(m)(jnp.ones((5, 3))) ** 2).mean()))(net)
loop = lambda x: eqx.internal.while_loop(
    lambda c: c[1] < 4, lambda c: (c[0] * x, c[1] + 1), (jnp.array(1.0), 0), max_steps=8, kind="checkpointed"
)[0]
assert jax.grad(loop)(2.0) == 32
eqx.filter_jit(lambda x: eqx.error_if(x, x < 0, "negative"))(jnp.ones(2))
""",
    "lineax": """
import lineax as lx
A, b = jnp.array([[4.0, 1.0], [1.0, 3.0]]), jnp.array([1.0, 2.0])
for solver in (lx.CG(1e-6, 1e-6), lx.LU(), lx.QR(), lx.SVD(), lx.GMRES(1e-6, 1e-6)):
    operator = lx.MatrixLinearOperator(A, lx.positive_semidefinite_tag)
    assert jnp.allclose(A @ lx.linear_solve(operator, b, solver).value, b, atol=1e-4)
jax.grad(lambda A: lx.linear_solve(lx.MatrixLinearOperator(A), b, lx.LU()).value.sum())(A)
""",
    "optimistix": """
import optimistix as optx
root = lambda a: optx.root_find(lambda y, a: y**2 - a, optx.Newton(1e-6, 1e-6), jnp.array(1.0), a).value
assert abs(jax.grad(root)(2.0) - 0.3535534) < 1e-5
optx.minimise(lambda y, a: ((y - a) ** 2).sum(), optx.BFGS(1e-6, 1e-6), jnp.zeros(2), jnp.ones(2))
""",
    "diffrax": """
import diffrax
term = diffrax.ODETerm(lambda t, y, a: -a * y)
steps = diffrax.PIDController(1e-5, 1e-5)
run = lambda a: diffrax.diffeqsolve(
    term, diffrax.Tsit5(), 0, 1, 0.1, jnp.array(1.0), args=a, stepsize_controller=steps
).ys[-1]
assert abs(jax.grad(run)(1.0) + 0.36788) < 1e-4
""",
    "distrax": """
import distrax
normal = distrax.Normal(0.0, 1.0)
normal.sample(seed=jax.random.PRNGKey(0), sample_shape=(2,))
jax.grad(distrax.Transformed(normal, distrax.Lambda(jnp.exp)).log_prob)(1.5)
""",
    "numpyro": """
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
def model(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1)), 1.0), obs=y)
MCMC(NUTS(model), num_warmup=10, num_samples=10, progress_bar=False).run(jax.random.PRNGKey(0), jnp.ones(4))
""",
    "brax": """
from brax import envs
env = envs.get_environment("inverted_pendulum", backend="positional")
jax.jit(env.step)(jax.jit(env.reset)(jax.random.PRNGKey(0)), jnp.zeros(env.action_size))
""",
    "gymnax": """
import gymnax
env, params = gymnax.make("CartPole-v1")
key = jax.random.PRNGKey(0)
env.step(key, env.reset(key, params)[1], 0, params)
""",
    "evosax": """
from evosax.algorithms import CMA_ES
es = CMA_ES(population_size=8, solution=jnp.zeros(3))
key, params = jax.random.PRNGKey(0), es.default_params
state = es.init(key, jnp.zeros(3), params)
population, state = es.ask(key, state, params)
es.tell(key, population, (population**2).sum(-1), state, params)
""",
    "penzai": "import penzai",
    "mctx": "import mctx",
    "rlax": "import rlax",
    "orbax-checkpoint": """
import os, tempfile
import orbax.checkpoint as ocp
with tempfile.TemporaryDirectory() as folder:
    saver = ocp.StandardCheckpointer()
    saver.save(os.path.join(folder, "a"), {"w": jnp.arange(4.0)})
    saver.wait_until_finished()
    saver.restore(os.path.join(folder, "a"))
""",
}
HEAD = "import nxjax as nx\nnx.interop.as_jax()\nimport jax, jax.numpy as jnp\n"
TAIL = "\nimport sys\nassert not [m for m in sys.modules if m.startswith('jaxlib')]\n"


def row(package: str, program: str) -> str:
    try:
        installed = version(package)
    except PackageNotFoundError:
        return f"| {package} | - | not installed where this table was made |"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", HEAD + program + TAIL], capture_output=True, text=True)
    if done.returncode == 0:
        return f"| {package} | {installed} | runs |"
    said = next(line for line in reversed(done.stderr.splitlines()) if re.match(r"\w[\w.]*(Error|Exception)", line))
    reason = re.sub(r" \(/.*\)|: nxjax, which stands in (its|JAX.s) place.*", "", said.partition(": ")[2])
    return f"| {package} | {installed} | no: {reason} |"


def main() -> None:
    rows = [row(package, program) for package, program in USES.items()]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    table = "| library | version | on nxjax |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    PAGE.write_text(before + BEGIN + table + END + after)


if __name__ == "__main__":
    main()
