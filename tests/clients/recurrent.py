from typing import NamedTuple

import jax
import jax.numpy as jnp


class LSTMState(NamedTuple):
    h: jax.Array
    c: jax.Array


def lstm_cell(params, state, x):
    z = x @ params["wx"] + state.h @ params["wh"] + params["b"]
    i, f, g, o = jnp.split(z, 4, axis=-1)
    c = jax.nn.sigmoid(f + 1.0) * state.c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return LSTMState(h, c), h


D, H, T, B = 3, 8, 12, 4
k = jax.random.split(jax.random.PRNGKey(0), 4)
params = {
    "wx": jax.random.normal(k[0], (D, 4 * H)) * 0.1,
    "wh": jax.random.normal(k[1], (H, 4 * H)) * 0.1,
    "b": jnp.zeros(4 * H),
    "out": jax.random.normal(k[2], (H, D)) * 0.1,
}


def run(params, xs):
    s0 = LSTMState(jnp.zeros((B, H)), jnp.zeros((B, H)))
    s, hs = jax.lax.scan(lambda s, x: lstm_cell(params, s, x), s0, xs)
    return s, hs @ params["out"]


def loss(params, xs):
    _, ys = run(params, xs[:-1])
    return jnp.mean((ys - xs[1:]) ** 2)


xs = jnp.sin(jnp.arange(T)[:, None, None] * 0.3 + jnp.arange(B)[None, :, None] + jnp.arange(D))
opt = {"m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params), "t": 0}


@jax.jit
def adam(params, opt, xs):
    l, g = jax.value_and_grad(loss)(params, xs)
    t = opt["t"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt["m"], g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, opt["v"], g)
    params = jax.tree.map(
        lambda p, m, v: p - 0.02 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), params, m, v
    )
    return params, {"m": m, "v": v, "t": t}, l


for i in range(20):
    params, opt, l = adam(params, opt, xs)
    if i % 5 == 0:
        print(i, l)
print(opt["t"], repr(opt["t"]), opt["t"].weak_type)
s, _ = run(params, xs)
print(type(s).__name__, s.h.shape, s._fields)
print(jax.tree.leaves(s)[0].shape)
