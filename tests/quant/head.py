"""The last layer of a network as a step of training: a frozen body, a head, momentum; and handwritten digits."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.demo import data

WIDTH, CLASSES, BATCH = 48, 10, 8
BODY = jnp.asarray(np.random.default_rng(0).normal(size=(64, WIDTH)) / 4, jnp.float32)


def body(x: Any) -> Any:
    with nx.named_scope("body"):
        return nx.nn.relu(x @ BODY)


def loss(head: Any, h: Any, y: Any) -> Any:
    with nx.named_scope("head"):
        return -(nx.nn.log_softmax(h @ head["w"] + head["b"]) * y).sum(-1).mean()


def train(state: Any, x: Any, y: Any) -> Any:
    head, moving = state
    value, g = nx.value_and_grad(loss)(head, body(x), y)
    with nx.named_scope("update"):
        moving = nx.tree.map(lambda m, d: 0.9 * m + d, moving, g)
        head = nx.tree.map(lambda p, m: p - 0.05 * m, head, moving)
    return (head, moving), value


def infer(state: Any, x: Any) -> Any:
    h = body(x)
    with nx.named_scope("head"):
        return nx.nn.softmax(h @ state[0]["w"] + state[0]["b"])


def first() -> Any:
    head = {"w": jnp.zeros((WIDTH, CLASSES)), "b": jnp.zeros(CLASSES)}
    return head, nx.tree.map(jnp.zeros_like, head)


def batches(n: int, seed: int = 0) -> Iterator[tuple[Any, Any]]:
    training, _ = data.load()
    rng = np.random.default_rng(seed)
    for _ in range(n):
        rows = rng.permutation(len(training.labels))[:BATCH]
        y = np.eye(CLASSES, dtype=np.float32)[training.labels[rows]]
        yield jnp.asarray(training.images[rows].reshape(BATCH, 64)), jnp.asarray(y)


def accuracy(state: Any) -> float:
    _, test = data.load()
    found = np.asarray(infer(state, jnp.asarray(test.images.reshape(-1, 64)))).argmax(-1)
    return float((found == test.labels).mean())


def body_in_8_bits(op: str, scope: str, types: Any) -> str | None:
    """The body in int8, the rest in float."""
    return "int8" if scope.startswith("body") else None


def all_in_integers(op: str, scope: str, types: Any) -> str:
    """The body in int8; head, gradients, momentum and weights in int16."""
    return "int8" if scope.startswith("body") else "int16x8"


def quantized(policy: Any, n: int = 120) -> Any:
    state = first()
    return nx.quantize(train, policy, calibrate=[(state, *b) for b in batches(n)], state=0, progress=False)
