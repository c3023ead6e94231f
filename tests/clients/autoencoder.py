from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import random


@dataclass
class Module:
    def init(self, key): ...


@dataclass
class Dense(Module):
    nin: int
    nout: int

    def init(self, key):
        return {
            "kernel": jax.nn.initializers.lecun_normal()(key, (self.nin, self.nout)),
            "bias": jnp.zeros((self.nout,)),
        }

    def __call__(self, p, x):
        return x @ p["kernel"] + p["bias"]


@dataclass
class Seq(Module):
    layers: Sequence[Any]

    def init(self, key):
        return [
            l.init(k) if isinstance(l, Module) else () for l, k in zip(self.layers, random.split(key, len(self.layers)))
        ]

    def __call__(self, ps, x):
        for l, p in zip(self.layers, ps):
            x = l(p, x) if isinstance(l, Module) else l(x)
        return x


enc, dec = Seq([Dense(6, 16), jax.nn.relu, Dense(16, 4)]), Seq([Dense(2, 16), jnp.tanh, Dense(16, 6)])
k = random.split(random.key(0), 4)
params = {"enc": enc.init(k[0]), "dec": dec.init(k[1])}
x = random.bernoulli(k[2], 0.3, (32, 6)).astype(jnp.float32)


def elbo(p, key, x):
    mu, lv = jnp.split(enc(p["enc"], x), 2, -1)
    z = mu + jnp.exp(0.5 * lv) * random.normal(key, mu.shape)
    lg = dec(p["dec"], z)
    bce = jnp.sum(jnp.maximum(lg, 0) - lg * x + jnp.log1p(jnp.exp(-jnp.abs(lg))), -1)
    kl = -0.5 * jnp.sum(1 + lv - mu**2 - jnp.exp(lv), -1)
    return (bce + kl).mean()


@jax.jit
def step(p, key):
    l, g = jax.value_and_grad(elbo)(p, key, x)
    return jax.tree.map(lambda a, b: a - 0.05 * b, p, g), l


key = k[3]
hist = []
for _ in range(12):
    key, s = random.split(key)
    params, l = step(params, s)
    hist.append(l.item())
print(hist[::4], jax.tree.map(lambda a: a.shape, params))
gn = lambda t: jnp.sqrt(sum(jnp.sum(a**2) for a in jax.tree.leaves(t)))
print(gn(params))
per = jax.vmap(jax.grad(elbo), (None, 0, 0))(params, random.split(key, 4), x[:4])
nrm = jax.vmap(gn)(per)
cl = jax.tree.map(lambda g: jnp.mean(g * jnp.minimum(1, 1.0 / nrm).reshape(-1, *[1] * (g.ndim - 1)), 0), per)
print(nrm, gn(cl))
print(
    sum(x.size for x in jax.tree.leaves(params)),
    jax.tree.reduce(lambda a, x: a + x.nbytes, params, 0),
    str(jax.eval_shape(enc, params["enc"], x)),
)
