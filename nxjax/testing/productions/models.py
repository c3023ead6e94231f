"""Rows that are pieces of whole models: layers, losses, steps of training, as users write them."""

from __future__ import annotations

import re
from typing import Final

from nxjax.testing.productions.templates import Table, rows

# ``X[[2, 3]]``: the operand's elements in that shape; ``W[[2, 3]]``: those of another one, as weights are.
_SHAPED: Final = re.compile(r"\b([XW])\[\[([\d, ]+)\]\]")


def _shaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        shape = f"({found[2]},)"
        return f"jnp.resize({{x}}, {shape})" if found[1] == "X" else f"(jnp.tanh(jnp.resize({{s}}, {shape})) * 0.5)"

    return f"{_SHAPED.sub(one, text)} if {{x}}.size else {{x}}"


_MODELS: Final = (
    # Attention: heads, masks, causal, grouped queries, positions turned.
    "(lambda q, k, v: jnp.einsum('bhqk,bkhd->bqhd', jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((5, 5), bool)), jnp.einsum('bqhd,bkhd->bhqk', q, k) / 2, -1e9), -1), v))(X[[2, 5, 2, 4]], W[[2, 5, 2, 4]], X[[2, 5, 2, 4]])",
    "(lambda q, k, v, m: jnp.einsum('qk,kd->qd', jax.nn.softmax(jnp.where(m, q @ k.T, jnp.finfo(q.dtype).min), -1), v))(X[[4, 3]], W[[6, 3]], W[[6, 2]], jnp.arange(6)[None] <= jnp.arange(4)[:, None] + 1)",
    "(lambda q, k, g: jax.nn.softmax(jnp.einsum('sgd,td->sgt', q.reshape(3, 2, 4), k) * 0.5 + g, -1))(X[[3, 8]], W[[5, 4]], jnp.linspace(0, -1, 5).astype({d}))",
    "(lambda q, t: jnp.concatenate([q[..., :2] * jnp.cos(t) - q[..., 2:] * jnp.sin(t), q[..., 2:] * jnp.cos(t) + q[..., :2] * jnp.sin(t)], -1))(X[[3, 4]], jnp.arange(3.0)[:, None] * jnp.array([1.0, 0.1]))",
    "jax.nn.dot_product_attention(X[[1, 4, 2, 4]].astype(jnp.float32), W[[1, 6, 2, 4]].astype(jnp.float32), X[[1, 6, 2, 4]].astype(jnp.float32), mask=jnp.arange(6)[None, None, None] < 4)",
    "jax.nn.dot_product_attention(X[[1, 4, 4, 2]].astype(jnp.float32), W[[1, 4, 2, 2]].astype(jnp.float32), X[[1, 4, 2, 2]].astype(jnp.float32), bias=jnp.ones((1, 1, 4, 4)), is_causal={k})",
    "jax.nn.dot_product_attention(X[[2, 3, 2, 4]].astype(jnp.float32), W[[2, 3, 2, 4]].astype(jnp.float32), X[[2, 3, 2, 4]].astype(jnp.float32), key_value_seq_lengths=jnp.array([2, 3]), local_window_size={k} + 1)",
    # Normalizations with weights and state.
    "(lambda h, g, b: (h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 1e-3) * (1 + g) + b)(X[[3, 6]], W[[6]], W[[6]])",
    "(lambda h, m: ((h - h.mean((0, 1, 2))) / jnp.sqrt(h.var((0, 1, 2)) + 1e-2), 0.9 * m + 0.1 * h.mean((0, 1, 2))))(X[[2, 3, 2, 4]], W[[4]])",
    "(lambda h: ((h.reshape(2, 3, 2, 2) - h.reshape(2, 3, 2, 2).mean((1, 3), keepdims=True)) * lax.rsqrt(h.reshape(2, 3, 2, 2).var((1, 3), keepdims=True) + 1e-2)).reshape(2, 3, 4))(X[[2, 3, 4]])",
    "(lambda h, w: h * lax.rsqrt(jnp.mean(jnp.square(h), -1, keepdims=True) + 1e-3) * (1 + w))(X[[2, 3, 4]].astype(jnp.float32), W[[4]].astype(jnp.float32)).astype({d})",
    "(lambda h: (h - h.mean((2, 3), keepdims=True)) / (h.std((2, 3), keepdims=True) + 0.1))(X[[1, 2, 3, 4]] + jnp.arange(4))",
    # Networks in time.
    "lax.scan(lambda h, t: (lambda z: (jnp.tanh(t @ W[[3, 4]] + h @ W[[4, 4]]), z))(h.sum()), W[[2, 4]], X[[5, 2, 3]])",
    "lax.scan(lambda h, t: (lambda r, z: ((1 - z) * h + z * jnp.tanh(t + r * h),) * 2)(jax.nn.sigmoid(t + h), jax.nn.sigmoid(t - h)), W[[3]], X[[6, 3]])",
    "(lambda w: lax.scan(lambda c, t: (lambda i, f, g, o: (lambda s: ((s, jax.nn.sigmoid(o) * jnp.tanh(s)), c[1]))(jax.nn.sigmoid(f + 1) * c[0] + jax.nn.sigmoid(i) * jnp.tanh(g)))(*jnp.split(jnp.concatenate([t, c[1]], -1) @ w, 4, -1)), (jnp.zeros((2, 3), {d}), W[[2, 3]]), X[[4, 2, 3]])[1])(W[[6, 12]])",
    "lax.scan(lambda h, t: (h * jax.nn.sigmoid(t) + t, h.sum()), W[[4]], X[[7, 4]], reverse={k}, unroll=2)",
    "lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (jax.nn.sigmoid(X[[6, 2]]), W[[6, 2]]))[1]",
    "lax.scan(lambda a, t: (jax.nn.logsumexp(a[:, None] + W[[3, 3]], 0) + t, a.max()), jnp.zeros(3, {d}), X[[5, 3]])",
    # Steps of training.
    "(lambda w, h, y: (lambda l, g: (l, jax.tree.map(lambda p, q: p - 0.1 * q, w, g)['b'][0]))(*jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(h @ p['w'] + p['b'][0]) - y) ** 2))(w)))({{'w': W[[3, 2]], 'b': (W[[2]],)}}, X[[4, 3]], X[[4, 2]])",
    "(lambda p, h: lax.fori_loop(0, 3, lambda i, s: (lambda g, m, v: (s[0] - 0.1 * (m / (1 - 0.9 ** (i + 1))) / (jnp.sqrt(v / (1 - 0.99 ** (i + 1))) + 1e-2), m, v))(*(lambda g: (g, 0.9 * s[1] + 0.1 * g, 0.99 * s[2] + 0.01 * g * g))(jax.grad(lambda w: jnp.mean(jnp.tanh(h @ w) ** 2))(s[0]))), (p, 0 * p, 0 * p)))(W[[3, 2]].astype(jnp.float32), X[[4, 3]].astype(jnp.float32))",
    "(lambda g: jax.tree.map(lambda a: a * jnp.minimum(1, 1 / (jnp.sqrt(sum(jnp.sum(b * b) for b in g)) + 1e-3)), g))([X[[2, 3]], W[[4]]])",
    "lax.scan(lambda w, b: (lambda l, g: (w - 0.05 * g, l))(*jax.value_and_grad(lambda p: jnp.mean(jax.nn.softplus(b @ p)))(w)), W[[3]], X[[4, 2, 3]])",
    "jax.jit(lambda p, m, g: (p - 0.1 * m, 0.9 * m + g), donate_argnums=(0, 1))(X[[3]] * 1, W[[3]] * 1, X[[3]])",
    "(lambda ema, w: (0.99 * ema + 0.01 * w, jnp.linalg.norm(w) * 0.1))(X[[5]], W[[5]] + 2)",
    "jax.vmap(jax.grad(lambda w, h: jnp.mean(jnp.tanh(h @ w))), in_axes=(None, 0))(W[[3]], X[[4, 2, 3]])",
    # Losses, lookups, choices.
    "-jnp.mean(jnp.sum(jax.nn.one_hot(jnp.arange(4) % 3, 3, dtype={d}) * jax.nn.log_softmax(X[[4, 3]], -1), -1))",
    "(lambda z: jnp.mean(jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, (jnp.arange(4) % 3)[:, None], -1)[:, 0]))(X[[4, 3]])",
    "(lambda e, t: jnp.mean(e[t], 0))(X[[5, 3]], jnp.array([[0, 4], [2, 2], [-1, 1]]))",
    "jax.grad(lambda e: jnp.sum(jnp.tanh(e[jnp.array([0, 2, 2, 4, -1])]) ** 2))(X[[5, 3]])",
    "(lambda a, b: jnp.sum(a * b, -1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1) + 1e-2))(X[[3, 4]] + 1, W[[3, 4]] + 1)",
    "(lambda h: (lambda v, i: jnp.einsum('tk,tke,ed->td', jax.nn.softmax(v), jax.nn.one_hot(i, 4, dtype=h.dtype), W[[4, 3]]))(*lax.top_k(h, 2)))(X[[3, 4]])",
    "jnp.where(jax.random.bernoulli(jax.random.key({n} + 3), 0.8, (3, 4)), X[[3, 4]] / 0.8, 0).astype({d})",
    "(lambda h: lax.reduce_window(jax.nn.relu(lax.conv_general_dilated(h, W[[3, 2, 3, 3]], (1, 1), 'SAME')), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID'))(X[[1, 2, 6, 6]])",
    "(lambda h: lax.conv_general_dilated(h, W[[4, 1, 3]], (1,), 'SAME', feature_group_count=4) + h)(X[[2, 4, 7]])",
    "(lambda h: (h + jnp.einsum('sd,df->sf', jax.nn.gelu(h @ W[[4, 6]]), W[[6, 4]])).astype({d}))(X[[3, 4]])",
    "(lambda h: jax.nn.silu(h @ W[[4, 5]]) * (h @ W[[4, 5]].astype({d}) * 0.3))(X[[3, 4]])",
    "jnp.mean(jnp.maximum(0, 1 - X[[6]] * jnp.where(jnp.arange(6) % 2, 1, -1)))",
    "(lambda z, m: jnp.sum(jnp.where(m, z, 0)) / jnp.maximum(m.sum(), 1))(X[[3, 4]], jnp.arange(4) < jnp.array([[1], [0], [4]]))",
)

_ROUGH: Final = (
    "lax.while_loop(lambda c: (c[1] < 6) & (jnp.abs(c[0]).max() < 100), lambda c: (c[0] - (c[0] ** 2 - 2) / (2 * c[0]), c[1] + 1), (jnp.abs(X[[3]].astype(jnp.float32)) + 1, 0))",
    "lax.fori_loop(0, 3, lambda _, v: (lambda u: u / (jnp.linalg.norm(u) + 1e-3))(W[[3, 3]] @ v + v), X[[3]] + 2)",
    "(lambda h, c: (lambda k: jax.ops.segment_sum(h, k, 2) / jnp.maximum(jax.ops.segment_sum(jnp.ones(6, h.dtype), k, 2), 1)[:, None])(jnp.argmin(((h[:, None] - c) ** 2).sum(-1), -1)))(X[[6, 2]], W[[2, 2]])",
    "(lambda h, w: (lambda s: jnp.clip(jnp.round(h / s), -127, 127).astype(jnp.int8).astype(jnp.float32) * s)(jnp.max(jnp.abs(h)) / 127 + 1e-6))(X[[3, 4]].astype(jnp.float32), 0)",
    "lax.scan(lambda c, t: (jnp.argmax(t + jnp.eye(3, dtype=t.dtype)[c]), c), jnp.argmax(X[[3]]), X[[5, 3]])",
    "(lambda q, k: lax.dot_general(q, k, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32))(jnp.clip(X[[3, 4]] * 20, -100, 100).astype(jnp.int8), jnp.clip(W[[4, 2]] * 90, -100, 100).astype(jnp.int8))",
    "(lambda cache, i: (lax.dynamic_update_slice(cache, X[[1, 2]], (i, 0)), i + 1))(W[[4, 2]], jnp.int32({n}))",
    "lax.scan(lambda s, t: (s.at[t].add(1), s[t]), jnp.zeros(4, jnp.int32), jnp.clip(X[[6]], 0, 3).astype(jnp.int32))",
)

_TABLE: Final[Table] = (
    ("model", "s", 0.25, "f", 1, tuple(map(_shaped, _MODELS))),
    ("rough", "", 0.15, "f", 1, tuple(map(_shaped, _ROUGH))),
)

MODELS: Final = rows(_TABLE)
