import jax
import jax.numpy as jnp
from jax import lax, random

F = jnp.array([[1.0, 1.0], [0.0, 1.0]])
Hm = jnp.array([[1.0, 0.0]])
Q = 0.01 * jnp.eye(2)
R = jnp.array([[0.5]])


def kf_step(carry, y):
    m, P = carry
    m, P = F @ m, F @ P @ F.T + Q
    S = Hm @ P @ Hm.T + R
    K = jnp.linalg.solve(S, Hm @ P).T
    v = y - Hm @ m
    m = m + K @ v
    P = P - K @ S @ K.T
    ll = jax.scipy.stats.multivariate_normal.logpdf(y, Hm @ m, S)
    return (m, P), (m, P, ll)


ys = jnp.cumsum(random.normal(random.PRNGKey(0), (20, 1)), axis=0)
(m, P), (ms, Ps, ll) = lax.scan(kf_step, (jnp.zeros(2), jnp.eye(2)), ys)
print(m, P, ll.sum())


def smooth(carry, inp):
    ms, Ps = carry
    m, P = inp
    Pp = F @ P @ F.T + Q
    G = jax.scipy.linalg.solve(Pp, F @ P, assume_a="pos").T
    ms = m + G @ (ms - F @ m)
    Ps = P + G @ (Ps - Pp) @ G.T
    return (ms, Ps), ms


_, sm = lax.scan(smooth, (m, P), (ms[:-1], Ps[:-1]), reverse=True)
print(sm[:3])


def neg(lr):
    Rr = jnp.exp(lr) * jnp.eye(1)

    def st(c, y):
        m, P = c
        m, P = F @ m, F @ P @ F.T + Q
        S = Hm @ P @ Hm.T + Rr
        c_ = jax.scipy.linalg.cho_factor(S)
        K = jax.scipy.linalg.cho_solve(c_, Hm @ P).T
        r = y - Hm @ m
        return (m + K @ r, (jnp.eye(2) - K @ Hm) @ P), 0.5 * (r @ jnp.linalg.inv(S) @ r + jnp.linalg.slogdet(S)[1])

    return lax.scan(st, (jnp.zeros(2), jnp.eye(2)), ys)[1].sum()


print(jax.value_and_grad(neg)(0.0))
