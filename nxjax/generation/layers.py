"""Parts of a decoder's layers, as the options of its configuration say: norms, MLPs, experts, attention.

Weights are arrays, `QArray`s as `nx.quant` makes them, or either with an adapter. Knows no positions, no cache and no
file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.generation.config import DecoderConfig
from nxjax.generation.lora import AdaptedMatrix
from nxjax.ops.composite_attention import cached_attention
from nxjax.quant.packed import PackedQArray
from nxjax.quant.qarray import QArray, float_leaf
from nxjax.trace import dtypes
from nxjax.trace.core import Array

Params = dict[str, Any]
# Rows up to which a product takes the time of its weights' bytes.
FEW: Final = 4
# New tokens up to which attention reads the filled part of a cache; of more, products of matrices are faster.
FEW_TOKENS: Final = 8
_ACTIVATIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "silu": nn.silu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
}


def linear(x: Array, w: Any) -> Array:
    """``x @ w``; of a `QArray` the product with its integers, times the scales, group by group if there are several;
    of an adapted matrix what the adapter adds, too.

    Many rows times weights in groups are a product with the weights as floats, which are made of them once.
    """
    if isinstance(w, AdaptedMatrix):
        y = linear(x, w.base)
        return y + w.adapter.product(x).astype(y.dtype)
    if isinstance(w, PackedQArray):
        return w.product(x)
    if not isinstance(w, QArray):
        return x @ w
    depth, columns = w.shape
    groups = w.scale.shape[0]
    # A processor reads bytes, two weights in which it would take apart for every row.
    whole = w.values.astype("int8") if w.dtype == dtypes.int4 else w.values
    columned = w.scale.shape[1] not in (1, columns)  # one scale for several columns
    if groups == 1 and not columned and w.least is None:
        return (x @ whole.astype(x.dtype)) * w.scale[0]
    if math.prod(x.shape[:-1]) > FEW or columned:
        return x @ w.dequantize()
    parts = x.reshape(-1, groups, depth // groups)
    sums = jnp.einsum("bgk,gkn->gbn", parts, whole.reshape(groups, -1, columns).astype(x.dtype))
    y = (sums * w.scale[:, None, :]).sum(0)
    # What a stored 0 stands for is counted once for each input of a group.
    y = y if w.least is None else y + parts.sum(-1) @ w.least
    return y.reshape(*x.shape[:-1], columns)


def product(x: Array, p: Params, name: str) -> Array:
    """``x @ p[name]``, with its bias if it has one."""
    y = linear(x, p[name])
    return y + p[name + "_bias"] if name + "_bias" in p else y


def normalized(x: Array, p: Params, config: DecoderConfig, name: str = "norm") -> Array:
    """``x`` through the norm of a part."""
    if config.norm == "layer":
        return nn.layer_norm(x, p[name], p[name + "_bias"], epsilon=config.epsilon)
    return nn.rms_norm(x, p[name], epsilon=config.epsilon)


def added(x: Array, y: Array, p: Params, config: DecoderConfig) -> Array:
    """``x`` and what a part gave."""
    return x + (normalized(y, p, config, "post_norm") if config.post_norms else y)


def capped(x: Array, cap: float | None) -> Array:
    """``cap tanh(x / cap)``, or ``x``."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def attended(
    q: Array,
    k: Array,
    v: Array,
    config: DecoderConfig,
    window: int,
    mask: Array | None = None,
    scales: tuple[Array, ...] = (),
) -> Array:
    """What queries read from keys and values, [batch, t, heads * head_size].

    Args:
        q, k, v: [batch, t or s, heads, head_size].
        window: how many tokens are seen, 0 for all. Without a mask.
        mask: bool, broadcasts to [batch, heads, t, s]; by default a token sees those before it, and t is s.
        scales: of keys and values that are whole numbers, float32 [batch, s, kv_heads] each. Scores and weights are
            multiplied with them, so that the numbers are read as they lie.
    """
    if config.attention_cap is None and not scales:
        seen: dict[str, Any] = {"mask": mask}
        if mask is None:
            seen = {"is_causal": True, "local_window_size": (window - 1, 0) if window else None}
        read: Any = nn.dot_product_attention(q, k, v, scale=config.query_scale, **seen)
        return read.reshape(*q.shape[:2], -1)
    if mask is None:
        rows, columns = jnp.arange(q.shape[1])[:, None], jnp.arange(q.shape[1])[None, :]
        mask = visible(rows, columns, window)[None, None]
    scale = _scale(config)
    # Of each head one number per token, for all queries of its group.
    each = [x.transpose(0, 2, 1)[:, :, None, None, :] for x in scales]
    groups = q.reshape(*q.shape[:2], config.kv_heads, -1, config.head_size)
    wide = "float64" if q.dtype == dtypes.float64 else "float32"
    scores = jnp.einsum("btkgh,bskh->bkgts", groups, k, preferred_element_type=wide)
    scores = capped(scores * (each[0] * scale if each else scale), config.attention_cap)
    weights = nn.softmax(jnp.where(mask[:, :, None], scores, -1e30))
    weights = (weights * each[1] if each else weights).astype(v.dtype)
    return jnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(*q.shape[:2], -1)


def attended_few(
    q: Array, keys: Array, values: Array, scales: tuple[Array, ...], length: Array, config: DecoderConfig, window: int
) -> Array:
    """What few queries, of the tokens after the first ``length`` (int [batch]), read from a cache that has their own
    keys and values, [batch, t, heads * head_size]: takes the time of what each sequence has, not of the cache's room.
    """
    options: dict[str, Any] = {"scale": _scale(config), "window": window, "cap": config.attention_cap}
    read = cached_attention(q, keys, values, length.astype("int32"), *scales, **options)
    return read.reshape(*q.shape[:2], -1)


def _scale(config: DecoderConfig) -> float:
    return 1 / math.sqrt(config.head_size) if config.query_scale is None else config.query_scale


def visible(positions: Array, others: Array, window: int) -> Array:
    """Whether tokens at ``positions`` see those at ``others``."""
    seen = others <= positions
    return seen & (others > positions - window) if window else seen


def _activated(x: Array, config: DecoderConfig) -> Array:
    act = _ACTIVATIONS[config.activation]
    if not config.gated:
        return act(x)
    gate, up = jnp.split(x, 2, axis=-1)
    return act(gate) * up


def mlp(x: Array, p: Params, config: DecoderConfig) -> Array:
    """``x`` [batch, t, width] with what the MLP or the experts of a layer add."""
    given = normalized(x, p, config)
    if "router" in p:
        y = _mixed(given.reshape(-1, config.width), p, config).reshape(x.shape)
    else:
        y = product(_activated(product(given, p, "gate_up" if config.gated else "up"), config), p, "down")
    return added(x, y, p, config)


def _mixed(x: Array, p: Params, config: DecoderConfig) -> Array:
    """A mixture of experts for ``x`` [n, width] (Shazeer et al., 2017; Jiang et al., "Mixtral of experts", 2024)."""
    count = config.experts_per_token
    weights, chosen = lax.top_k(nn.softmax(linear(x, p["router"]).astype("float32")), count)
    if config.normalized_experts:
        weights = weights / weights.sum(-1, keepdims=True)
    weights = weights.astype(x.dtype)
    up, down = float_leaf(p["experts_up"]), float_leaf(p["experts_down"])
    if x.shape[0] * count < config.experts:
        # Of few tokens only the chosen experts' weights are read.
        inner = _activated(jnp.einsum("nd,nkdh->nkh", x, up[chosen]), config)
        y = jnp.einsum("nkh,nkhd,nk->nd", inner, down[chosen], weights)
    else:
        shares = (nn.one_hot(chosen, config.experts, dtype=x.dtype) * weights[..., None]).sum(1)
        inner = _activated(jnp.einsum("nd,edh->neh", x, up), config)
        y = jnp.einsum("neh,ehd->nd", inner * shares[..., None], down)
    if config.shared_hidden:
        shared = linear(_activated(linear(x, p["shared_up"]), config), p["shared_down"])
        y = y + nn.sigmoid(linear(x, p["shared_gate"])) * shared
    return y
