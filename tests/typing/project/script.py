"""A script as people write one, with lambdas and without much annotation: no error in the usual mode of checkers."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import Array, lax, nn, random
from nxjax.typing import ArrayLike


class State(NamedTuple):
    params: dict[str, Array]
    step: Array


def init(key: Array, sizes: tuple[int, int, int]) -> dict[str, Array]:
    k1, k2 = random.split(key)
    return {
        "w1": random.normal(k1, (sizes[0], sizes[1])) / np.sqrt(sizes[0]),
        "b1": jnp.zeros(sizes[1]),
        "w2": random.normal(k2, (sizes[1], sizes[2])) * 0.1,
    }


def predict(params: dict[str, Array], x: Array) -> Array:
    hidden = nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"]


def loss(params: dict[str, Array], x: Array, y: Array) -> Array:
    scores = nn.log_softmax(predict(params, x))
    return -jnp.mean(jnp.sum(scores * nn.one_hot(y, 10), axis=-1))


@nx.jit
def step(params: dict[str, Array], x: Array, y: Array) -> tuple[dict[str, Array], Array]:
    value, grads = nx.value_and_grad(loss)(params, x, y)
    return nx.tree.map(lambda w, g: w - 0.1 * g, params, grads), value


@partial(nx.jit, static_argnames=("n",))
def power(x: Array, n: int) -> Array:
    return x**n


@nx.jit
def rolled(x: Array) -> Array:
    def body(carry: Array, t: Array) -> tuple[Array, Array]:
        carry = carry * 0.9 + t
        return carry, carry

    last, history = lax.scan(body, jnp.zeros(()), x)
    return last + history.sum()


class Net(nn.Module):
    def __init__(self, key: Array) -> None:
        self.first = nn.Linear(4, 8, key=key)
        self.second = nn.Linear(8, 2)

    def __call__(self, x: Array) -> Array:
        return self.second(nn.relu(self.first(x)))


def scaled(x: ArrayLike, by: float = 2.0) -> Array:
    return jnp.asarray(x) * by


def main() -> None:
    key = random.key(0)
    params = init(key, (8, 16, 10))
    x = random.normal(key, (32, 8))
    y = random.randint(key, (32,), 0, 10)
    for i in range(3):
        params, value = step(params, x, y)
        print(i, float(value), value.item())
    per_example = nx.vmap(nx.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])
    print(nx.tree.map(lambda g: g.shape, per_example))
    norms = nx.tree.map(jnp.linalg.norm, per_example)
    total = sum(float(n) for n in nx.tree.leaves(norms))
    print(total, power(x, 2).shape, power(x, n=3)[0, 0], rolled(jnp.arange(4.0)))
    net = Net(key)
    print(net(jnp.ones((3, 4))).shape, net.size)
    grads = nx.grad(lambda m, x: jnp.sum(m(x) ** 2))(net, jnp.ones((3, 4)))
    net = nx.tree.map(lambda w, g: w - 0.1 * g, net, grads)
    print(net.first.weight.shape)
    s = State(params, jnp.array(0))
    s = s._replace(step=s.step + 1)
    a: np.ndarray[Any, Any] = np.asarray(x)
    print(a.dtype, x.at[0].set(1.0)[0, 0], x.T.shape, (x > 0).any(), -x, 2 * x, 1 / (x + 5))
    print(x[1:, ::2].mean(axis=0, keepdims=True), jnp.where(x > 0, x, 0.0).sum())
    print(jnp.concatenate([x, x]).shape, jnp.einsum("ij,kj->ik", x, x)[0], jnp.stack([x, x], axis=1).ndim)
    print(lax.cond(x[0, 0] > 0, lambda v: v, lambda v: -v, x[0, 0]), lax.fori_loop(0, 3, lambda i, c: c + i, 0))
    print(lax.while_loop(lambda c: c < 3, lambda c: c + 1, jnp.array(0)))
    f = nx.jit(nx.vmap(scaled))
    print(f(x).shape, scaled(np.ones(2)), scaled(3))
    exact = nx.quantize(predict, "int8", calibrate=[(params, x)])
    artifact = nx.compile(exact, target="tflite")(params, x[:1])
    print(artifact.label, exact(params, x).shape)
    print(nx.devices()[0], nx.make_jaxpr(predict)(params, x), nx.jacfwd(predict)(params, x)["w1"].shape)
    hess = nx.hessian(lambda v: jnp.sum(v**3))(jnp.arange(3.0))
    out, pull = nx.vjp(lambda v: v * 2, jnp.ones(3))
    y2, t = nx.jvp(jnp.sin, (jnp.ones(3),), (jnp.ones(3),))
    print(hess.shape, out.shape, pull(out)[0], y2, t)
    with nx.debug_nans(True):
        nx.debug.print("{x}", x=x[0, 0])
    for i in nx.debug.progress_bar(range(3)):
        print(i + 1)
    shape = nx.eval_shape(predict, params, nx.ShapeDtypeStruct((4, 8), jnp.float32))
    print(shape.shape, nx.device_put(x, nx.devices()[0]).device, nx.block_until_ready(x).dtype)

    @nx.custom_vjp
    def clipped(x: Array) -> Array:
        return x

    def fwd(x: Array) -> tuple[Array, None]:
        return x, None

    def bwd(_: None, g: Array) -> tuple[Array]:
        return (jnp.clip(g, -1, 1),)

    clipped.defvjp(fwd, bwd)
    print(nx.grad(lambda x: clipped(x).sum())(x).max())


if __name__ == "__main__":
    main()
