from functools import partial

import jax
import jax.numpy as jnp
from jax import lax, random


def logp(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2 / jnp.array([1.0, 0.25]))


@partial(jax.jit, static_argnums=(1, 2))
def hmc(key, n, L, x0, eps=0.2):
    def leap(x, v):
        g = jax.grad(logp)

        def st(_, s):
            x, v = s
            v = v + 0.5 * eps * g(x)
            x = x + eps * v
            return x, v + 0.5 * eps * g(x)

        return lax.fori_loop(0, L, st, (x, v))

    def step(x, key):
        k1, k2 = random.split(key)
        v = random.normal(k1, x.shape)
        xn, vn = leap(x, v)
        la = logp(xn) - 0.5 * vn @ vn - logp(x) + 0.5 * v @ v
        acc = jnp.log(random.uniform(k2)) < la
        x = jnp.where(acc, xn, x)
        return x, (x, acc)

    return lax.scan(step, x0, random.split(key, n))[1]


xs, acc = hmc(random.key(0), 100, 5, jnp.zeros(2))
print(xs.mean(0), xs.std(0, ddof=1), acc.mean(), acc.dtype)


def mh(key, x, n=50):
    def s(c, k):
        x, lp = c
        ka, kb = random.split(k)
        y = x + 0.5 * random.normal(ka, x.shape)
        ly = logp(y)
        a = random.bernoulli(kb, jnp.minimum(1, jnp.exp(ly - lp)))
        x, lp = jax.tree.map(lambda p, q: lax.select(a, p, q), (y, ly), (x, lp))
        return (x, lp), x

    return lax.scan(s, (x, logp(x)), random.split(key, n))[1]


ch = jax.vmap(mh, (0, 0))(random.split(random.key(1), 4), jnp.zeros((4, 2)))
print(ch.shape, ch.mean((0, 1)))


def langevin(x, k):
    return x + 0.01 * jax.grad(logp)(x) + jnp.sqrt(0.02) * random.normal(k, x.shape), None


print(lax.scan(langevin, jnp.zeros(2), random.split(random.key(2), 30))[0])


# particle filter
def pf(key, ys, N=64):
    def st(c, y):
        p, key = c
        key, k1, k2 = random.split(key, 3)
        p = p + random.normal(k1, p.shape)
        lw = jax.scipy.stats.norm.logpdf(y, p, 0.5)
        idx = random.choice(k2, N, (N,), p=jax.nn.softmax(lw))
        return (p[idx], key), (p[idx].mean(), jax.scipy.special.logsumexp(lw) - jnp.log(N))

    return lax.scan(st, (jnp.zeros(N), key), ys)[1]


m, l = pf(random.key(5), jnp.arange(6.0))
print(m, l.sum())
