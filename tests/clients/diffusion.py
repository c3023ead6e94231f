import jax
import jax.numpy as jnp
from jax import lax, random

T = 20
betas = jnp.linspace(1e-4, 0.2, T)
alphas = 1 - betas
abar = jnp.cumprod(alphas)


def mlp(p, x, t):
    te = jnp.concatenate([jnp.sin(t / T * jnp.arange(1, 5)), jnp.cos(t / T * jnp.arange(1, 5))])
    h = jax.nn.silu(jnp.concatenate([x, te]) @ p[0][0] + p[0][1])
    return h @ p[1][0] + p[1][1]


k = random.split(random.PRNGKey(0), 6)
p = [(random.normal(k[0], (10, 32)) * 0.3, jnp.zeros(32)), (random.normal(k[1], (32, 2)) * 0.1, jnp.zeros(2))]
data = random.normal(k[2], (64, 2)) * 0.1 + jnp.array([1.0, -1.0])


def loss(p, key, x0):
    kt, ke = random.split(key)
    t = random.randint(kt, (x0.shape[0],), 0, T)
    e = random.normal(ke, x0.shape)
    xt = jnp.sqrt(abar[t])[:, None] * x0 + jnp.sqrt(1 - abar[t])[:, None] * e
    return jnp.mean((jax.vmap(mlp, (None, 0, 0))(p, xt, t) - e) ** 2)


@jax.jit
def train(p, key):
    def st(p, k):
        l, g = jax.value_and_grad(loss)(p, k, data)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), l

    return lax.scan(st, p, random.split(key, 50))


p, ls = train(p, k[3])
print(ls[::10])


@jax.jit
def sample(p, key):
    kx, key = random.split(key)
    x = random.normal(kx, (5, 2))

    def body(i, c):
        x, key = c
        t = T - 1 - i
        key, sub = random.split(key)
        e = jax.vmap(mlp, (None, 0, None))(p, x, t)
        mu = (x - betas[t] / jnp.sqrt(1 - abar[t]) * e) / jnp.sqrt(alphas[t])
        return mu + jnp.where(t > 0, jnp.sqrt(betas[t]), 0.0) * random.normal(sub, x.shape), key

    return lax.fori_loop(0, T, body, (x, key))[0]


print(sample(p, k[4]))
