from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random


class S(NamedTuple):
    x: jax.Array
    v: jax.Array
    t: jax.Array


def reset(k):
    return S(random.uniform(k, (), minval=-0.5, maxval=0.5), jnp.zeros(()), jnp.zeros((), jnp.int32))


def step(s, a):
    v = 0.9 * s.v + 0.1 * (a - 1)
    x = s.x + v
    n = S(x, v, s.t + 1)
    return n, -(x**2), (jnp.abs(x) > 2) | (n.t >= 10)


def rollout(p, k):
    def f(c, k):
        s, _ = c
        k1, k2 = random.split(k)
        obs = jnp.stack([s.x, s.v])
        lg = jnp.tanh(obs @ p["w"]) @ p["u"]
        a = random.categorical(k1, lg)
        n, r, d = step(s, a)
        n = jax.tree.map(lambda a, b: jnp.where(d, a, b), reset(k2), n)
        return (n, d), (obs, a, r, d)

    return lax.scan(f, (reset(k), False), random.split(k, 15))[1]


k = random.key(0)
p = {"w": random.normal(k, (2, 8)), "u": random.normal(k, (8, 3)) * 0.1}
obs, a, r, d = jax.vmap(rollout, (None, 0))(p, random.split(k, 4))
print(obs.shape, a.dtype, r.sum(), d.sum(), a[0])


def gae(r, d, g=0.99):
    return lax.scan(lambda c, x: ((y := x[0] + g * c * (1 - x[1])), y), 0.0, (r, d), reverse=True)[1]


R = jax.vmap(gae)(r, d)
print(R[0])


def pg(p):
    lg = jnp.tanh(obs @ p["w"]) @ p["u"]
    lp = jnp.take_along_axis(jax.nn.log_softmax(lg), a[..., None], -1)[..., 0]
    return -(lp * (R - R.mean())).mean()


print(jax.tree.map(lambda g: jnp.linalg.norm(g), jax.grad(pg)(p)))


def es(key, th, n=16, s=0.1):
    f = lambda th: -jnp.sum((th - 3) ** 2)
    e = random.normal(key, (n, *th.shape))
    R = jax.vmap(f)(th + s * e)
    A = (R - R.mean()) / (R.std() + 1e-8)
    return th + 0.05 / (n * s) * e.T @ A


th = jnp.zeros(3)
for i in range(20):
    th = es(random.fold_in(k, i), th)
print(th)
Q = jnp.zeros((4, 2))


def ql(Q, k):
    s = random.randint(k, (), 0, 4)
    a = random.randint(random.fold_in(k, 1), (), 0, 2)
    s2 = jnp.clip(s + 2 * a - 1, 0, 3)
    return Q.at[s, a].add(0.5 * ((s2 == 3) + 0.9 * Q[s2].max() - Q[s, a])), None


print(lax.scan(ql, Q, random.split(k, 50))[0])
