"""What `nx.tune` finds on this machine, beside the usual way: ``python -m benchmarks tuning`` (about two minutes).

Each program is tuned once with bits kept and once with floats summed in any order, then measured anew against plain
`jit`, interleaved: a ratio above one would be a choice that lost. Where nothing was found, both are the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.runner import Figure, interleaved

SECONDS = 8.0


def conv(x: Any, w: Any) -> Any:
    return nx.nn.relu(nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


def mlp(x: Any, a: Any, b: Any) -> Any:
    return nx.nn.gelu(x @ a) @ b


def normed(x: Any) -> Any:
    return nx.nn.softmax((x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5))


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    rng = np.random.default_rng(0)
    drawn = lambda *shape: jnp.asarray(rng.standard_normal(shape).astype(np.float32))
    return {
        "tall product": (lambda x, w: x @ w, (drawn(3000, 96), drawn(96, 40))),
        "deep product": (lambda x, w: x @ w, (drawn(48, 6000), drawn(6000, 48))),
        "mlp": (mlp, (drawn(32, 512), drawn(512, 2048), drawn(2048, 512))),
        "conv 3x3": (conv, (drawn(1, 28, 28, 48), drawn(3, 3, 48, 48))),
        "conv 5x5": (conv, (drawn(1, 40, 40, 16), drawn(5, 5, 16, 24))),
        "norm and softmax": (normed, (drawn(600, 1200),)),
        "turned sum": (lambda x: (x.T * 2 + jnp.sin(x.T)).sum(0), (drawn(900, 1100),)),
    }


def waited(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: nx.block_until_ready(function(*args))


def figures() -> list[Figure]:
    y: list[Figure] = []
    for name, (fun, args) in programs().items():
        for exact in (True, False):
            found = nx.tune(fun, seconds=SECONDS, exact=exact, devices=(), again=True, progress=False)(*args)
            ours, peer = interleaved(waited(found.function, args), waited(nx.jit(fun), args), rounds=30)
            what = ", ".join(f"{k}={v}" for k, v in found.choices.items()) or "the usual way"
            kind = "same bits" if exact else "any order"
            y.append(Figure(f"tune {name}, {kind}", ours, peer, "plain jit", 1.05, what))
    return y
