from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class TrainState(NamedTuple):
    step: Any
    params: Any
    opt: Any = None
    ema: dict | None = None


def init(key):
    p = {"w": jax.random.normal(key, (3,)), "b": jnp.zeros(())}
    return TrainState(0, p, jax.tree.map(jnp.zeros_like, p), p)


@partial(jax.jit, donate_argnums=0)
def upd(s, x, y):
    def loss(p):
        return jnp.mean((x @ p["w"] + p["b"] - y) ** 2)

    g = jax.grad(loss)(s.params)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, s.opt, g)
    p = jax.tree.map(lambda p, m: p - 0.05 * m, s.params, m)
    return s._replace(step=s.step + 1, params=p, opt=m, ema=jax.tree.map(lambda e, p: 0.95 * e + 0.05 * p, s.ema, p))


x = jax.random.normal(jax.random.key(1), (16, 3))
y = x @ jnp.array([1.0, 2.0, 3.0])
s = init(jax.random.key(0))
s = s._replace(ema=jax.tree.map(jnp.copy, s.params))
for _ in range(10):
    s = upd(s, x, y)
print(s)
print(s.step.dtype, s.step.weak_type, type(s.step).__name__ == "ArrayImpl" or True)


def many(s, xs):
    return jax.lax.scan(lambda s, xy: (upd(s, *xy), s.params["b"]), s, xs)


s2, bs = many(s._replace(step=jnp.asarray(s.step)), (jnp.stack([x] * 3), jnp.stack([y] * 3)))
print(s2.step, bs)
# list accumulators, python control flow, bool conversions, formatting
accs = []
for _ in range(2):
    accs.append(float(jnp.mean(jnp.array([1.0, 2.0]) > 1)))
print(
    accs,
    f"{jnp.mean(x):.3f} {s.step} {s.step:03d}",
    round(float(s.params["b"]), 3),
    f"{s.params['b']:.2f}",
    str(jnp.float32(1.5)),
    repr(jnp.arange(2)),
    jnp.arange(3).tolist(),
    format(jnp.float32(3.14159), ".2f"),
)
print(
    jnp.arange(24).reshape(2, 3, 4),
    jnp.ones((2, 2), bool),
    jnp.array(["a"] and [1 + 2j]),
    jnp.array([]),
    jnp.zeros((0, 3)),
    jnp.linspace(0, 1, 1001),
    sep="\n",
)
jnp.set_printoptions(precision=2)
print(jnp.array([1.23456]))
jnp.set_printoptions(precision=8)
print(
    round(jnp.float32(2.567), 1),
    abs(jnp.int32(-3)),
    -jnp.arange(2),
    ~jnp.array(True),
    jnp.arange(3) ** 2,
    2 ** jnp.arange(3),
    divmod(jnp.int32(7), 2),
    jnp.arange(3) @ jnp.arange(3),
    jnp.array(3) == 3,
    jnp.array([1, 2]) != jnp.array([1, 3]),
    complex(jnp.array(1 + 2j)),
    jnp.array(5) << 1,
    jnp.array(True) & False,
    not jnp.array(0.0),
    jnp.array([1, 2]) is None,
    jnp.float32(1) / 3,
    1 // jnp.array([2.0]),
    7 % jnp.array(4),
)
print(
    (jnp.ones(3) == "a") if False else "",
    jnp.int32(5).__index__(),
    [10, 20, 30][jnp.array(1)],
    range(jnp.int32(3)),
    jnp.arange(4)[jnp.array(1) : 3] if False else "",
    jnp.arange(5)[slice(1, None, 2)],
    jnp.ones((2, 3)).at[:].set(0).sum(),
    x.mean(axis=(0, 1)),
    jnp.max(x, axis=1, keepdims=True).shape,
    jnp.argmin(x),
    jnp.any(x > 3),
    x.std().round(3),
    x.clip(-1, 1).min(),
    x.T.shape,
    x.astype("int32").dtype,
    x.view(jnp.int32).dtype,
    x.take(0),
    x.dot(x.T).shape,
    x.cumsum(0).shape,
    x.argsort()[0],
    x.swapaxes(0, 1).shape,
    x.squeeze().ndim,
    x.repeat(2).shape,
    x.conj().dtype,
    x.real.dtype,
    x.sort()[0],
    x.trace(),
    x.ptp() if hasattr(x, "ptp") else "",
    x.var(ddof=1),
    x.prod(),
    x.nonzero()[0].shape,
    x.compress(jnp.array([True, False]), axis=0).shape,
    x.diagonal(),
    x.searchsorted if False else "",
)
