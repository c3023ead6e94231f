"""A model, its loss and its training loop, as a user writes them: must check without an error under strict settings."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import Array
from nxjax.typing import ArrayLike, DTypeLike, PyTree


class Layer(NamedTuple):
    w: Array
    b: Array


Params = list[Layer]


def init(key: Array, sizes: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Params:
    keys = nx.random.split(key, len(sizes) - 1)
    return [
        Layer(nx.random.normal(k, (m, n), dtype) / np.sqrt(m), jnp.zeros(n, dtype))
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(params: Params, x: Array) -> Array:
    for layer in params[:-1]:
        x = nx.nn.relu(x @ layer.w + layer.b)
    return nx.nn.log_softmax(x @ params[-1].w + params[-1].b, axis=-1)


@nx.jit
def loss(params: Params, x: Array, labels: Array) -> Array:
    """Cross entropy."""
    return -jnp.mean(jnp.sum(nx.nn.one_hot(labels, 10) * forward(params, x), axis=-1))


@functools.partial(nx.jit, static_argnames=("rate",))
def step(params: Params, x: Array, labels: Array, rate: float = 0.1) -> tuple[Params, Array]:
    value, grads = nx.value_and_grad(loss)(params, x, labels)

    def descended(p: Array, g: Array) -> Array:
        return p - rate * g

    return nx.tree.map(descended, params, grads), value


@nx.jit(donate_argnums=0)
def scaled(x: Array, by: ArrayLike = 2.0) -> Array:
    return x * by


@nx.checkpoint
def block(x: Array) -> Array:
    return jnp.tanh(x) + 1


class Counter:
    def __init__(self, start: float) -> None:
        self.start = start

    @nx.jit
    def plus(self, x: Array) -> Array:
        return x + self.start


def train(data: np.ndarray[tuple[int, ...], np.dtype[np.float32]], labels: Array, epochs: int) -> float:
    params = init(nx.random.key(0), (784, 32, 10))
    value = jnp.inf
    for _ in range(epochs):
        params, new = step(params, jnp.asarray(data), labels, rate=0.5)
        value = new.item()
    text: str = loss.lower(params, jnp.asarray(data), labels).as_text()
    name: str = loss.__name__
    loss.clear_cache()
    gradient: Params = nx.grad(loss)(params, jnp.asarray(data), labels=labels)
    grown: Array = scaled(gradient[0].w, by=3) + scaled(gradient[0].w)
    kept: Array = block(grown)
    same: Array = nx.vmap(forward, in_axes=(None, 0))(params, kept)
    leaves: list[PyTree] = nx.tree.leaves(params)
    both: Array = Counter(2.0).plus(same)
    return float(both.sum()) + value + len(leaves) + len(text) + len(name)
