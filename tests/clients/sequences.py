import jax
import jax.numpy as jnp
from jax import lax, random

V, T, K = 6, 5, 3
W = random.normal(random.key(0), (V, V)) * 2


def beam(W):
    def st(c, t):
        seqs, sc = c
        lp = jax.nn.log_softmax(W[seqs[:, t]])
        tot = (sc[:, None] + lp).reshape(-1)
        sc, ix = lax.top_k(tot, K)
        b, tok = ix // V, ix % V
        seqs = seqs[b].at[:, t + 1].set(tok)
        return (seqs, sc), None

    return lax.scan(st, (jnp.zeros((K, T + 1), jnp.int32), jnp.array([0.0, -jnp.inf, -jnp.inf])), jnp.arange(T))[0]


s, sc = jax.jit(beam)(W)
print(s, sc)


def ctc(lp, lab, blank=0):
    ext = jnp.full(2 * len(lab) + 1, blank).at[1::2].set(lab)
    S = len(ext)
    skip = jnp.concatenate([jnp.zeros(2, bool), (ext[2:] != ext[:-2]) & (ext[2:] != blank)])
    a0 = jnp.full(S, -1e30).at[:2].set(lp[0, ext[:2]])

    def f(a, l):
        s1 = jnp.pad(a, (1, 0), constant_values=-1e30)[:-1]
        s2 = jnp.where(skip, jnp.pad(a, (2, 0), constant_values=-1e30)[:-2], -1e30)
        return jnp.logaddexp(jnp.logaddexp(a, s1), s2) + l[ext], None

    a = lax.scan(f, a0, lp[1:])[0]
    return -jnp.logaddexp(a[-1], a[-2])


lp = jax.nn.log_softmax(random.normal(random.key(1), (8, V)))
print(ctc(lp, jnp.array([1, 2, 2])))
print(jax.grad(ctc)(lp, jnp.array([1, 2, 2])))


def greedy(key, p=0.8, temp=0.7):
    def f(c, k):
        lg = W[c] / temp
        sl = jnp.sort(lg)[::-1]
        cp = jnp.cumsum(jax.nn.softmax(sl))
        cut = sl[jnp.sum(cp < p)]
        n = random.categorical(k, jnp.where(lg < cut, -jnp.inf, lg))
        return n, n

    return lax.scan(f, 0, random.split(key, 10))[1]


try:
    print(greedy(random.key(2)))
except TypeError:
    print("TypeError")
lens = jnp.array([3, 5, 1])
mask = jnp.arange(5) < lens[:, None]
x = random.normal(random.key(3), (3, 5, 2))
print(
    (x * mask[..., None]).sum(1) / lens[:, None],
    jnp.where(mask, x[..., 0], -jnp.inf).max(1),
    jax.nn.softmax(x[..., 0], where=mask),
    jnp.mean(x, where=mask[..., None], axis=1),
)
lev = lambda a, b: lax.scan(
    lambda row, ai: (
        (
            r := lax.scan(
                lambda p, z: ((v := jnp.minimum(jnp.minimum(z[0] + (ai != z[2]), z[1] + 1), p + 1)), v),
                row[0] + 1,
                (row[:-1], row[1:], b),
            )[1],
            jnp.concatenate([row[:1] + 1, r]),
        )[1],
        None,
    ),
    jnp.arange(len(b) + 1),
    a,
)[0][-1]
print(lev(jnp.array([1, 2, 3, 4]), jnp.array([2, 3, 4, 4])))
