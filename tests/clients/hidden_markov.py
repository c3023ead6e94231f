import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

A = jnp.array([[0.9, 0.1], [0.2, 0.8]])
Bm = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
pi = jnp.array([0.5, 0.5])
obs = jnp.array([0, 1, 2, 2, 0, 1, 2])


def fwd(la, o):
    la = logsumexp(la[:, None] + jnp.log(A), axis=0) + jnp.log(Bm[:, o])
    return la, la


la0 = jnp.log(pi) + jnp.log(Bm[:, obs[0]])
laT, las = lax.scan(fwd, la0, obs[1:])
print("ll", logsumexp(laT))


def bwd(lb, o):
    lb = logsumexp(jnp.log(A) + jnp.log(Bm[:, o]) + lb, axis=1)
    return lb, lb


_, lbs = lax.scan(bwd, jnp.zeros(2), obs[1:], reverse=True)
la = jnp.concatenate([la0[None], las])
lb = jnp.vstack([lbs, jnp.zeros((1, 2))])
print(jax.nn.softmax(la + lb, axis=1))


def vit(c, o):
    s = c[:, None] + jnp.log(A)
    return s.max(0) + jnp.log(Bm[:, o]), s.argmax(0)


sT, ptr = lax.scan(vit, la0, obs[1:])
last = jnp.argmax(sT)
_, path = lax.scan(lambda s, p: (p[s], p[s]), last, ptr, reverse=True)
print(jnp.append(path, last), path.dtype)
print(
    jax.grad(
        lambda lA: logsumexp(
            lax.scan(lambda l, o: (logsumexp(l[:, None] + lA, axis=0) + jnp.log(Bm[:, o]), None), la0, obs[1:])[0]
        )
    )(jnp.log(A))
)
print(jax.random.categorical(jax.random.key(0), jnp.log(A), shape=(4, 2)))
