"""A decoder-only transformer as pure functions of its parameters: the whole sequence at once, or more of it at a time.

By default RMS norms before each part, rotary positions, grouped-query attention, SwiGLU and no biases (as Touvron et
al., "LLaMA", 2023); the configuration's options are other families' ways. Weights are arrays, or `QArray`s as
`nx.quant` makes them. Knows no text, no sampling, no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from nxjax import nn, random
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.generation.cache import Cache
from nxjax.generation.config import DecoderConfig
from nxjax.generation.layers import (
    FEW_TOKENS,
    added,
    attended,
    attended_few,
    capped,
    linear,
    mlp,
    normalized,
    product,
    visible,
)
from nxjax.generation.rope import angles, rotated
from nxjax.quant.packed import PackedQArray
from nxjax.quant.qarray import QArray
from nxjax.trace.array import DeviceArray
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.trace.scope import named_scope

Params = dict[str, Any]
# Products whose sums over layers keep their size.
_LAST: Final = ("out", "down", "experts_down", "shared_down")


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
        is not tied. Options add parts to it; ``config.shapes`` has all names and shapes.

    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = init(nx.random.key(0), config)
    >>> sum(p.size for p in nx.tree.leaves(params)) == config.parameters
    True
    """
    shapes = config.shapes
    matrices = [
        n for layer in shapes["layers"] for part in layer.values() for n, shape in part.items() if _drawn(shape)
    ]
    keys = iter(random.split(key, len(matrices) + 2 + config.learned_positions))
    ends = 1 / math.sqrt(2 * config.layers)

    def normal(shape: tuple[int, ...], scale: float = 1.0) -> Array:
        return random.normal(next(keys), shape) * (scale / math.sqrt(shape[-2]))

    def made(name: str, shape: tuple[int, ...]) -> Array:
        if not _drawn(shape):
            return jnp.zeros(shape) if name.endswith("bias") else jnp.ones(shape)
        return normal(shape, ends if name in _LAST else 1.0)

    layers = [
        {part: {name: made(name, shape) for name, shape in leaves.items()} for part, leaves in layer.items()}
        for layer in shapes["layers"]
    ]
    # Rows whose products with a normalized vector, the logits, have a deviation of about 1.
    table = random.normal(next(keys), shapes["embedding"]) / math.sqrt(config.width)
    rest = {name: made(name, shapes[name]) for name in shapes if name not in ("embedding", "layers")}
    return {"embedding": table, "layers": layers, **rest}


def _drawn(shape: tuple[int, ...]) -> bool:
    """Whether a parameter starts with random numbers."""
    return len(shape) > 1


def check(params: Any, config: DecoderConfig) -> None:
    """Raise `ParameterError` if parameters are not exactly those of this decoder: a part that it does not know, such as
    a bias, would be left out of its sums.

    >>> import numpy as np
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
    return config.shapes


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


def embedded(table: Any, tokens: Array) -> Array:
    """Rows of the table of embeddings."""
    if isinstance(table, PackedQArray):
        return table.taken(tokens)
    if not isinstance(table, QArray):
        return table[tokens]
    at = tokens // (table.shape[0] // table.scale.shape[0])
    rows = table.values[tokens].astype(table.scale.dtype)
    each = lambda x: jnp.repeat(x[at], rows.shape[-1] // x.shape[-1], axis=-1)
    rows = rows * each(table.scale)
    return rows if table.least is None else rows + each(table.least)


def logits(params: Params, x: Array, config: DecoderConfig) -> Array:
    """Of the next token, [..., vocabulary], from what the last layer gave."""
    x = normalized(x, params, config)
    if "head" in params:
        y = linear(x, params["head"])
    else:
        table = params["embedding"]
        y = linear(x, table.transposed() if isinstance(table, QArray) else table.T)
    return capped(y, config.logit_cap)


def _start(params: Params, tokens: Array, config: DecoderConfig, positions: Any) -> Array:
    """What the first layer gets, [batch, t, width]."""
    x = embedded(params["embedding"], tokens)
    if config.embedding_scale != 1:
        x = x * config.embedding_scale
    if config.learned_positions:
        x = x + embedded(params["positions"], jnp.arange(positions) if isinstance(positions, int) else positions)
    return x


def _turns(config: DecoderConfig, positions: Any, length: Any) -> tuple[Any, Any]:
    """Cosines and sines of layers without and with a window; None where nothing is rotated."""
    if config.learned_positions:
        return None, None
    whole = angles(config, positions, length)
    has_own = config.local_rope_base is not None and any(config.windows)
    return whole, angles(config, positions, length, local=True) if has_own else whole


def _heads(x: Array, p: Params, config: DecoderConfig, turn: Any) -> tuple[Array, Array, Array]:
    """Queries, keys and values [batch, t, heads, head_size], the first two rotated."""
    n, k, size = config.heads, config.kv_heads, config.head_size
    made = product(normalized(x, p, config), p, "qkv")
    made = made.reshape(*x.shape[:-1], n + 2 * k, size)
    both = made[..., : n + k, :]
    if config.qk_norm:
        parts = ((both[..., :n, :], p["q_norm"]), (both[..., n:, :], p["k_norm"]))
        both = jnp.concatenate([nn.rms_norm(y, gain, epsilon=config.epsilon) for y, gain in parts], axis=-2)
    turned = both if turn is None else rotated(both, *turn)
    return turned[..., :n, :], turned[..., n:, :], made[..., n + k :, :]


def _layer(x: Array, p: Params, config: DecoderConfig, turn: Any, attend: Callable[..., Array]) -> Array:
    """A layer; ``attend`` reads with queries, keys and values."""
    with named_scope("attention"):
        attention = p["attention"]
        read = attend(*_heads(x, attention, config, turn))
        x = added(x, product(read, attention, "out"), attention, config)
    with named_scope("mlp"):
        return mlp(x, p["mlp"], config)


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
    turns = _turns(config, t, t)
    x = _start(params, tokens, config, t)
    for i, p in enumerate(params["layers"]):
        window = config.window(i)
        with named_scope(f"layer{i}"):
            x = _layer(
                x, p, config, turns[window > 0], lambda q, k, v, window=window: attended(q, k, v, config, window)
            )
    return logits(params, x, config)


def extend(
    params: Params,
    cache: Cache,
    tokens: Any,
    config: DecoderConfig,
    *,
    counts: Any = None,
    window: int | None = None,
    every: bool = False,
    lengths: Any = None,
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
        every: logits after every token, instead of the last real one. Static.
        lengths: int [batch, 1], or [batch, t] for each token: of the sequences that the tokens are a part of, for
            rotations that depend on it; by default those with the real tokens.

    Returns:
        Logits [batch, vocabulary] after the last real token of each sequence, or [batch, t, vocabulary], and the cache.
        The cache must have room for the t tokens, including padding: without, tokens take the places of others. Under
        `jit` nothing checks it.

    Raises:
        ParameterError: a window out of bounds, or outside `jit` no room for the tokens.

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
    if isinstance(start, DeviceArray) and int(start.max()) + t > window:
        raise ParameterError(
            "extend: the cache has no room for these tokens",
            got=f"{int(start.max())} tokens in the cache and {t} more, {window} rows to use",
            fix="init_cache(config, room=...) with more room, or a larger window",
        )
    positions = start[:, None] + jnp.arange(t, dtype=start.dtype)
    real = jnp.full((batch,), t, start.dtype) if counts is None else jnp.asarray(counts).astype(start.dtype)
    turns = _turns(config, positions, (start + real)[:, None] if lengths is None else lengths)
    few = t <= FEW_TOKENS
    rows, columns = positions[:, None, :, None], jnp.arange(window, dtype=start.dtype)[None, None, None, :]
    windows = set() if few else {config.window(i) for i in range(config.layers)}
    masks = {near: visible(rows, columns, near) for near in windows}
    x = _start(params, tokens, config, positions)
    for i, p in enumerate(params["layers"]):
        near = config.window(i)

        def attend(q: Array, k: Array, v: Array, i: int = i, near: int = near) -> Array:
            nonlocal cache
            cache = cache.written(i, k, v)
            if few:
                return attended_few(q, *cache.places(i, window), start, config, near)
            k, v, scales = cache.read(i, window, q.dtype)
            return attended(q, k, v, config, near, masks[near], scales)

        with named_scope(f"layer{i}"):
            x = _layer(x, p, config, turns[near > 0], attend)
    if not every:
        # Only the last position's logits are wanted: a product with one row per sequence.
        x = x[:, -1] if t == 1 else jnp.take_along_axis(x, (real - 1)[:, None, None], axis=1)[:, 0]
    return logits(params, x, config), cache._replace(length=start + real)


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
