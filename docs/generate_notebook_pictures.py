"""Draw the pictures of docs/notebooks_and_types.md. ``python docs/generate_notebook_pictures.py``."""

from pathlib import Path

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.display import charts

IMAGES = Path(__file__).parent / "images"


def predict(params, x):
    for i, (w, b) in enumerate(params):
        with nx.named_scope(f"dense_{i}"):
            x = x @ w + b
            with nx.named_scope("act"):
                x = x * nx.nn.sigmoid(x) if i == 0 else nx.nn.softmax(x)
    return x


def recur(w, h, xs):
    def body(h, x):
        with nx.named_scope("cell"):
            h = jnp.tanh(h @ w + x)
        return h, h.sum()

    return nx.lax.scan(body, h, xs)


def main() -> None:
    params = [(jnp.ones((4, 8)), jnp.zeros(8)), (jnp.ones((8, 3)), jnp.zeros(3))]
    nx.make_jaxpr(predict)(params, jnp.ones((2, 4))).save(IMAGES / "program.svg")
    whole = nx.make_jaxpr(recur)(jnp.ones((4, 4)), jnp.ones(4), jnp.ones((9, 4)))
    body = next(p for e in whole.equations for p in e.programs())
    body.save(IMAGES / "program_body.svg")
    waves = jnp.sin(jnp.arange(64.0)[:, None] / 9) * jnp.cos(jnp.arange(64.0) / 5)
    (IMAGES / "array_heat.svg").write_text(charts.heat(waves.numpy(), "64 x 64") + "\n")


if __name__ == "__main__":
    main()
