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
nn.Dense(2).init(jax.random.key(0), jnp.ones((2, 4)))
""",
    "equinox": "import equinox",
    "lineax": "import lineax",
    "optimistix": "import optimistix",
    "diffrax": "import diffrax",
    "distrax": "import distrax",
    "numpyro": "import numpyro",
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
