import jax
import jax.numpy as jnp
from jax import random


def coupling(p, x, flip):
    a, b = jnp.split(x, 2, axis=-1)
    if flip:
        a, b = b, a
    h = jnp.tanh(a @ p["w1"] + p["b1"])
    s, t = jnp.split(h @ p["w2"], 2, -1)
    s = jnp.tanh(s)
    b = b * jnp.exp(s) + t
    return jnp.concatenate([b, a] if flip else [a, b], -1), s.sum(-1)


def init(k):
    k1, k2 = random.split(k)
    return {"w1": random.normal(k1, (1, 8)) * 0.5, "b1": jnp.zeros(8), "w2": random.normal(k2, (8, 2)) * 0.1}


ps = [init(k) for k in random.split(random.key(0), 3)]


def logp(ps, x):
    ld = 0.0
    for i, p in enumerate(ps):
        x, l = coupling(p, x, i % 2 == 1)
        ld += l
    return jax.scipy.stats.norm.logpdf(x).sum(-1) + ld


th = random.uniform(random.key(1), (32,)) * jnp.pi
data = jnp.stack([jnp.cos(th), jnp.sin(th)], -1)


@jax.jit
def step(ps, i):
    l, g = jax.value_and_grad(lambda p: -logp(p, data).mean())(ps)
    return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, ps, g), l


for i in range(10):
    ps, l = step(ps, i)
print(l, ps[0]["w1"])
