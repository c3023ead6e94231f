import jax
import jax.numpy as jnp
from jax import random

s = jnp.array([0, 1, 2, 3, 0, 2])
r = jnp.array([1, 2, 3, 0, 2, 0])
n = 4
k = random.split(random.key(0), 4)
x = random.normal(k[0], (n, 3))
W = random.normal(k[1], (3, 3))
a = random.normal(k[2], (6,))


def gcn(W, x):
    deg = jax.ops.segment_sum(jnp.ones_like(s, jnp.float32), r, num_segments=n)
    m = jax.ops.segment_sum((x @ W)[s], r, n) / jnp.maximum(deg, 1)[:, None]
    return jax.nn.relu(m)


print(gcn(W, x))
print(jax.grad(lambda W: gcn(W, x).sum())(W))


def gat(W, a, x):
    h = x @ W
    e = jax.nn.leaky_relu(jnp.concatenate([h[s], h[r]], -1) @ a)
    e = jnp.exp(e - jax.ops.segment_max(e, r, n)[r])
    al = e / jax.ops.segment_sum(e, r, n)[r]
    return jax.ops.segment_sum(al[:, None] * h[s], r, n)


print(jax.jit(gat)(W, a, x))
print(
    jax.ops.segment_min(jnp.array([3.0, 1, 2]), jnp.array([0, 0, 1]), 3),
    jax.ops.segment_prod(jnp.arange(1, 5), jnp.array([0, 0, 1, 1])),
)
print(
    jax.ops.segment_sum(jnp.arange(4), jnp.array([0, -1, 1, 5]), 2),
    jax.ops.segment_max(jnp.arange(3), jnp.array([0, 0, 2]), 3),
)
A = jnp.zeros((n, n)).at[s, r].set(1.0)
L = jnp.diag(A.sum(1)) - A
print(jnp.linalg.matrix_power(A, 3), jnp.linalg.eigvalsh(L + L.T))


def pr(A, d=0.85):
    M = (A / A.sum(1, keepdims=True)).T
    return jax.lax.fori_loop(0, 50, lambda _, p: (1 - d) / n + d * M @ p, jnp.ones(n) / n)


print(pr(A))
