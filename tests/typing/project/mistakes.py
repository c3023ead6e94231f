"""What checkers must report: every line that ends in ``# error``; ``# pyright`` only that one."""

from __future__ import annotations

import functools

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import Array, lax

x = jnp.ones((2, 3))


@nx.jit
def scaled(y: Array, by: float = 2.0) -> Array:
    return y * by


@functools.partial(nx.jit, static_argnames="n")
def repeated(y: Array, n: int) -> Array:
    return y * n


scaled(x, bye=3.0)  # error
scaled("x")  # error
scaled()  # error
count: str = scaled(x)  # error
nx.grad(scaled)(x, bye=3.0)  # error
nx.value_and_grad(scaled)()  # error
nx.vmap(scaled)(x, 1.0, 2.0)  # error
nx.checkpoint(scaled)("x")  # error
repeated(x, n="two")  # pyright
x[0] = 1  # error
x.shape = (3, 2)  # error
_ = x.shapes  # error
x.sum(axes=0)  # error
x + "one"  # error
x.at[0].put(1)  # error
jnp.sine(x)  # error
jnp.sin(x, 2, 3)  # error
jnp.zeros("2")  # error
jnp.sum(x, axis="rows")  # error
jnp.sin([1, 2])  # error
lax.fori_loop(0, 3, lambda i: i, x)  # error
nx.scipy.stats.norm.logpdf(x, mean=1)  # error
nx.scipy.special.erf("x")  # error
nx.nn.initializers.normal(std=0.1)  # error
nx.random.normal(shape=(2,))  # error
nx.nn.softmax(x, axes=1)  # error
