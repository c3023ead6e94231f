"""A decoder-only transformer as pure functions of its parameters: the whole sequence at once, or more of it at a time.

RMS norms before each part, rotary positions, grouped-query attention, SwiGLU (as Touvron et al., "LLaMA", 2023). Linear
layers have no biases. Weights are arrays, or `QArray`s as `nx.quant` makes them. Knows no text, no sampling, no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax import nn, random
from nxjax import numpy as jnp
from nxjax.config import config as settings
from nxjax.errors import ParameterError, ShapeError
from nxjax.generation.cache import Cache
from nxjax.generation.config import DecoderConfig
from nxjax.numpy import host_functions
from nxjax.quant.qarray import QArray
from nxjax.trace import dtypes
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.trace.scope import named_scope

Params = dict[str, Any]
# Rows up to which a product takes the time of its weights' bytes.
FEW: Final = 4


@entry
def init(key: Any, config: DecoderConfig) -> Params:
    """Random parameters in float32, normal with deviation 1/sqrt(inputs); the last two products of a layer are divided
    by sqrt(2 layers), so that the sum over layers keeps its size (Radford et al., GPT-2, 2019).

    Args:
        key: a key from `nx.random.key`.
        config: sizes.

    Returns:
        ``{"embedding" [vocabulary, width], "layers": [{"attention": {"norm" [width], "qkv" [width, qkv], "out"},
        "mlp": {"norm", "gate_up" [width, 2 hidden], "down"}}, ...], "norm"}``, and ``"head"`` [width, vocabulary] if it
        is not tied.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = init(nx.random.key(0), config)
    >>> sum(p.size for p in nx.tree.leaves(params)) == config.parameters
    True
    """
    keys = iter(random.split(key, 4 * config.layers + 2))
    inner, ends = config.heads * config.head_size, 1 / math.sqrt(2 * config.layers)

    def normal(rows: int, columns: int, scale: float = 1.0) -> Array:
        return random.normal(next(keys), (rows, columns)) * (scale / math.sqrt(rows))

    layers = [
        {
            "attention": {
                "norm": jnp.ones(config.width),
                "qkv": normal(config.width, config.qkv),
                "out": normal(inner, config.width, ends),
            },
            "mlp": {
                "norm": jnp.ones(config.width),
                "gate_up": normal(config.width, 2 * config.hidden),
                "down": normal(config.hidden, config.width, ends),
            },
        }
        for _ in range(config.layers)
    ]
    # Rows whose products with a normalized vector, the logits, have a deviation of about 1.
    table = random.normal(next(keys), (config.vocabulary, config.width)) / math.sqrt(config.width)
    params: Params = {"embedding": table, "layers": layers, "norm": jnp.ones(config.width)}
    if not config.tied:
        params["head"] = normal(config.width, config.vocabulary)
    return params


def check(params: Any, config: DecoderConfig) -> None:
    """Raise `ParameterError` if parameters are not exactly those of this decoder: a part that it does not know, such as
    a bias, would be left out of its sums.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8)
    >>> check({"embedding": np.zeros((9, 8)), "norm": np.zeros(8)}, config)
    Traceback (most recent call last):
        ...
    nxjax.errors.ParameterError: parameters: the tree is without layers...
    """
    _compare(params, _expected(config), "")


@lru_cache(maxsize=8)
def _expected(config: DecoderConfig) -> dict[str, Any]:
    """Names and shapes of all parameters."""
    width, inner = config.width, config.heads * config.head_size
    layer = {
        "attention": {"norm": (width,), "qkv": (width, config.qkv), "out": (inner, width)},
        "mlp": {"norm": (width,), "gate_up": (width, 2 * config.hidden), "down": (config.hidden, width)},
    }
    head = {} if config.tied else {"head": (width, config.vocabulary)}
    return {"embedding": (config.vocabulary, width), "layers": [layer] * config.layers, "norm": (width,), **head}


def _compare(have: Any, want: Any, path: str) -> None:
    place = path or "the tree"
    if isinstance(want, tuple):
        shape = getattr(have, "shape", None)
        if shape is None or tuple(shape) != want:
            found = type(have).__name__ if shape is None else tuple(shape)
            raise ParameterError(f"parameters: {place} is not of this decoder", got=found, expected=want)
        return
    if isinstance(want, dict):
        if not isinstance(have, Mapping):
            names = ", ".join(want)
            raise ParameterError(f"parameters: {place}", got=type(have).__name__, expected=f"a dict of {names}")
        if more := sorted(map(str, have.keys() - want.keys())):
            raise ParameterError(
                f"parameters: {place} has parts that this decoder does not use",
                got=", ".join(more),
                expected=", ".join(want),
                fix="linear layers have no biases here, and only an untied decoder has a head; leave the parts out if "
                "the decoder is to do without them",
            )
        if missing := ", ".join(k for k in want if k not in have):
            raise ParameterError(f"parameters: {place} is without {missing}", got=", ".join(have), expected=missing)
    elif not isinstance(have, (list, tuple)) or len(have) != len(want):
        found = f"{len(have)} of them" if isinstance(have, (list, tuple)) else type(have).__name__
        raise ParameterError(f"parameters: {place}", got=found, expected=f"a list of {len(want)}")
    for k in want if isinstance(want, dict) else range(len(want)):
        _compare(have[k], want[k], f"{path}.{k}" if path else str(k))


def rotations(config: DecoderConfig) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines [context, head_size / 2] of the angles of every position, float32; made in float64."""
    return _rotations(config, settings.reproducible)


@lru_cache(maxsize=8)
def _rotations(config: DecoderConfig, _: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    half = config.head_size // 2
    rates = host_functions.power(np.full(half, float(config.rope_base)), -np.arange(half) / half)
    angles = np.arange(config.context)[:, None] * rates
    return host_functions.cos(angles).astype(np.float32), host_functions.sin(angles).astype(np.float32)


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """``x`` [batch, t, heads, head_size] with pair (i, i + half) turned; cosines and sines [batch, t, 1, half]."""
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def linear(x: Array, w: Any) -> Array:
    """``x @ w``; of a `QArray` the product with its integers, times the scales, group by group if there are several.

    Many rows times weights in groups are a product with the weights as floats, which are made of them once.
    """
    if not isinstance(w, QArray):
        return x @ w
    depth, columns = w.shape
    groups = w.scale.shape[0]
    # A processor reads bytes, two weights in which it would take apart for every row.
    whole = w.values.astype("int8") if w.dtype == dtypes.int4 else w.values
    columned = w.scale.shape[1] not in (1, columns)  # one scale for several columns
    if groups == 1 and not columned:
        return (x @ whole.astype(x.dtype)) * w.scale[0]
    if math.prod(x.shape[:-1]) > FEW or columned:
        return x @ w.dequantize()
    parts = x.reshape(-1, groups, depth // groups)
    sums = jnp.einsum("bgk,gkn->gbn", parts, whole.reshape(groups, -1, columns).astype(x.dtype))
    return (sums * w.scale[:, None, :]).sum(0).reshape(*x.shape[:-1], columns)


def embedded(table: Any, tokens: Array) -> Array:
    """Rows of the table of embeddings."""
    if not isinstance(table, QArray):
        return table[tokens]
    scale = table.scale[tokens // (table.shape[0] // table.scale.shape[0])]
    rows = table.values[tokens].astype(scale.dtype)
    return rows * jnp.repeat(scale, rows.shape[-1] // scale.shape[-1], axis=-1)


def logits(params: Params, x: Array) -> Array:
    """Of the next token, [..., vocabulary], from what the last layer gave."""
    if "head" in params:
        return linear(x, params["head"])
    table = params["embedding"]
    return linear(x, QArray(table.values.T, table.scale.T) if isinstance(table, QArray) else table.T)


def _heads(x: Array, p: Params, config: DecoderConfig, cos: Array, sin: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values [batch, t, heads, head_size], the first two rotated."""
    n, k, size = config.heads, config.kv_heads, config.head_size
    made = linear(nn.rms_norm(x, p["norm"], epsilon=config.epsilon), p["qkv"])
    made = made.reshape(*x.shape[:-1], n + 2 * k, size)
    turned = rotated(made[..., : n + k, :], cos, sin)
    return turned[..., :n, :], turned[..., n:, :], made[..., n + k :, :]


def _mlp(x: Array, p: Params, config: DecoderConfig) -> Array:
    with named_scope("mlp"):
        both = linear(nn.rms_norm(x, p["norm"], epsilon=config.epsilon), p["gate_up"])
        gate, up = jnp.split(both, 2, axis=-1)
        return x + linear(nn.silu(gate) * up, p["down"])


@entry
def forward(params: Params, tokens: Any, config: DecoderConfig) -> Array:
    """Logits of the next token at every position, from the tokens up to it.

    Args:
        params: from `init`.
        tokens: int [batch, t] or [t]; t at most ``config.context``.
        config: sizes.

    Returns:
        [batch, t, vocabulary] or [t, vocabulary], of the dtype of the parameters; float32 if they are quantized.

    Raises:
        ShapeError: more tokens than the decoder has positions for.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> forward(init(nx.random.key(0), config), nx.array([[1, 2, 3]]), config).shape
    (1, 3, 9)
    """
    check(params, config)
    tokens = jnp.asarray(tokens)
    if tokens.ndim == 1:
        return forward(params, tokens[None], config)[0]
    t = tokens.shape[1]
    if t > config.context:
        raise ShapeError("forward: more tokens than the decoder has positions for", got=t, expected=config.context)
    cos, sin = (jnp.asarray(a[:t])[None, :, None, :] for a in rotations(config))
    x = embedded(params["embedding"], tokens)
    for i, p in enumerate(params["layers"]):
        with named_scope(f"layer{i}"):
            with named_scope("attention"):
                q, k, v = _heads(x, p["attention"], config, cos, sin)
                read = nn.dot_product_attention(q, k, v, is_causal=True)
                x = x + linear(read.reshape(*x.shape[:-1], -1), p["attention"]["out"])
            x = _mlp(x, p["mlp"], config)
    return logits(params, nn.rms_norm(x, params["norm"], epsilon=config.epsilon))


def extend(
    params: Params,
    cache: Cache,
    tokens: Any,
    config: DecoderConfig,
    *,
    counts: Any = None,
    window: int | None = None,
) -> tuple[Array, Cache]:
    """Read more tokens: add their keys and values to the cache, and return the logits after the last one.

    Args:
        params: from `init`, or quantized.
        cache: the earlier tokens; donate it to update it in place.
        tokens: int [batch, t], the next tokens. A step of generation has t = 1.
        config: sizes.
        counts: int [batch], how many of the t tokens of each sequence are real; the rest, on the right, is padding. By
            default all.
        window: rows of the cache to use, at least those in use afterwards; by default all. Static.

    Returns:
        Logits [batch, vocabulary] after the last real token of each sequence, and the cache. The cache must have room
        for the t tokens, including padding.

    >>> from nxjax.generation import init_cache
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params, tokens = init(nx.random.key(0), config), nx.array([[1, 2, 3, 4]])
    >>> _, cache = extend(params, init_cache(config), tokens[:, :3], config)
    >>> after, cache = extend(params, cache, tokens[:, 3:], config)
    >>> bool(abs(after - forward(params, tokens, config)[:, -1]).max() < 1e-5), cache.length.tolist()
    (True, [4])
    """
    check(params, config)
    tokens = jnp.asarray(tokens)
    batch, t = tokens.shape
    window = cache.room if window is None else window
    if not t <= window <= cache.room:
        raise ParameterError("extend: window", got=window, expected=f"{t} new tokens to {cache.room}, the cache's room")
    start = cache.length
    positions = start[:, None] + jnp.arange(t, dtype=start.dtype)
    cos, sin = (jnp.asarray(a)[positions][:, :, None, :] for a in rotations(config))
    seen = jnp.arange(window, dtype=start.dtype)[None, None, None, :] <= positions[:, None, :, None]
    x = embedded(params["embedding"], tokens)
    for i, p in enumerate(params["layers"]):
        with named_scope(f"layer{i}"):
            with named_scope("attention"):
                q, k, v = _heads(x, p["attention"], config, cos, sin)
                cache = cache.written(i, k, v)
                read = nn.dot_product_attention(q, *cache.read(i, window, q.dtype), mask=seen)
                x = x + linear(read.reshape(*x.shape[:-1], -1), p["attention"]["out"])
            x = _mlp(x, p["mlp"], config)
    real = jnp.full((batch,), t, start.dtype) if counts is None else jnp.asarray(counts).astype(start.dtype)
    # Only the last position's logits are wanted: a product with one row per sequence.
    last = x[:, -1] if t == 1 else jnp.take_along_axis(x, (real - 1)[:, None, None], axis=1)[:, 0]
    y = logits(params, nn.rms_norm(last, params["norm"], epsilon=config.epsilon))
    return y, cache._replace(length=start + real)


@entry
def loss(params: Params, tokens: Any, config: DecoderConfig) -> Array:
    """Mean cross-entropy (nats) of each next token in ``tokens`` [batch, t + 1]; a scalar to differentiate.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> value = loss(init(nx.random.key(0), config), nx.array([[1, 2, 3]]), config)
    >>> bool(1 < value < 4)
    True
    """
    tokens = jnp.asarray(tokens)
    log_p = nn.log_softmax(forward(params, tokens[:, :-1], config))
    return -jnp.take_along_axis(log_p, tokens[:, 1:, None], axis=-1).mean()
