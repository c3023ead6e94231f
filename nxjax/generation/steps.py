"""The programs of a generator: a prompt is read, tokens are read and the next ones chosen, a loop of this.

Pure functions; what they are compiled for comes first, then the cache and the other arrays. Knows no text.
"""

from __future__ import annotations

from typing import Any

from nxjax import nn, random
from nxjax import numpy as jnp
from nxjax.generation.cache import Cache
from nxjax.generation.config import DecoderConfig
from nxjax.generation.model import Params, extend
from nxjax.generation.sampling import Earlier, Sampler, sample
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.vmap import vmap


def _next(
    logits: Array, key: Any, rows: Array, index: Array, earlier: Earlier, sampler: Sampler
) -> tuple[Array, Array]:
    """The next tokens [batch], number ``index`` of those that are drawn in each of ``rows``, and their probabilities'
    logarithms."""
    keys = None
    if not sampler.greedy:
        keys = vmap(lambda row, i: random.fold_in(random.fold_in(key, row), i))(rows, index)
    y = sample(keys, logits, sampler, earlier)
    return y, jnp.take_along_axis(nn.log_softmax(logits.astype("float32")), y[:, None], axis=-1)[:, 0]


def read(
    params: Params,
    config: DecoderConfig,
    sampler: Sampler,
    window: int,
    cache: Cache,
    tokens: Array,
    counts: Array,
    lengths: Array,
    key: Any,
    earlier: Earlier,
    rows: Array,
) -> tuple[Array, Array, Cache]:
    """Read a part [batch, t] of prompts of ``lengths`` [batch, 1], of which ``counts`` tokens are real, and choose the
    next ones [batch, 1]."""
    logits, cache = extend(params, cache, tokens, config, counts=counts, window=window, lengths=lengths)
    y, log_p = _next(logits, key, rows, jnp.zeros_like(rows), earlier, sampler)
    return y[:, None], log_p[:, None], cache


def step(
    params: Params,
    config: DecoderConfig,
    sampler: Sampler,
    window: int,
    cache: Cache,
    tokens: Array,
    index: Any,
    key: Any,
    earlier: Earlier,
    rows: Array,
) -> tuple[Array, Array, Array, Cache, Earlier]:
    """Read tokens [batch, t], and choose the next ones, from number ``index`` of those that are added on.

    The first token is certain, the others are guesses. Returns the chosen tokens [batch, t], the logarithms of their
    probabilities, how many are right [batch] (a guess that was not chosen makes wrong what follows it), and the cache
    without wrong guesses.
    """
    batch, t = tokens.shape
    start = cache.length
    # A guess counts as what a call of its own would read.
    lengths = start[:, None] + jnp.arange(1, t + 1, dtype=start.dtype)
    logits, cache = extend(params, cache, tokens, config, window=window, every=True, lengths=lengths)
    alive, right = jnp.ones(batch, bool), jnp.zeros(batch, start.dtype)
    made: list[tuple[Array, Array]] = []
    for i in range(t):
        if i:
            alive = alive & (tokens[:, i] == made[-1][0])
        right = right + alive
        if sampler.remembers:
            earlier = earlier.noted(jnp.where(alive, tokens[:, i], -1)[:, None])
        at = jnp.broadcast_to(jnp.asarray(index, "int32"), (batch,)) + i
        made.append(_next(logits[:, i], key, rows, at, earlier, sampler))
    y, log_p = (jnp.stack(x, axis=1) for x in zip(*made, strict=True))
    return y, log_p, right, cache._replace(length=start + right), earlier


def loop(
    params: Params,
    config: DecoderConfig,
    sampler: Sampler,
    window: int,
    size: int,
    ends: tuple[int, ...],
    cache: Cache,
    tokens: Array,
    limit: Any,
    key: Any,
    earlier: Earlier,
    rows: Array,
) -> tuple[Array, Array, Array, Cache]:
    """As many steps as are needed, ``limit`` at most: the tokens [batch, size] from those after ``tokens`` [batch, 1]
    on, the logarithms of their probabilities, and how many there are."""
    over = lambda y: jnp.any(y == jnp.asarray(ends or (-1,)), axis=-1, keepdims=True)
    drawn = jnp.zeros((tokens.shape[0], size), tokens.dtype)

    def more(carry: Any) -> Array:
        index, _, done, *_ = carry
        return (index < limit) & ~done.all()

    def body(carry: Any) -> Any:
        index, last, done, drawn, log_ps, cache, earlier = carry
        y, log_p, _, cache, earlier = step(params, config, sampler, window, cache, last, index, key, earlier, rows)
        at = index - 1
        drawn, log_ps = drawn.at[:, at].set(y[:, 0]), log_ps.at[:, at].set(log_p[:, 0])
        return index + 1, y, done | over(y), drawn, log_ps, cache, earlier

    log_ps = jnp.zeros(drawn.shape, "float32")
    start = (jnp.asarray(1, "int32"), tokens, over(tokens), drawn, log_ps, cache, earlier)
    index, _, _, drawn, log_ps, cache, _ = while_loop(more, body, start)
    return drawn, log_ps, index - 1, cache


def guessed(
    params: Params, config: DecoderConfig, count: int, window: int, cache: Cache, tokens: Array, counts: Array
) -> tuple[Array, Cache]:
    """Read tokens [batch, t], of which ``counts`` are real: the ``count`` most likely next tokens, one after another,
    and a cache that has read all but the last of them."""
    logits, cache = extend(params, cache, tokens, config, counts=counts, window=window)
    first = jnp.argmax(logits, axis=-1).astype("int32")[:, None]
    drawn = jnp.zeros((first.shape[0], count), "int32").at[:, :1].set(first)

    def body(carry: Any) -> Any:
        index, last, drawn, cache = carry
        logits, cache = extend(params, cache, last, config, window=window)
        y = jnp.argmax(logits, axis=-1).astype("int32")
        return index + 1, y[:, None], drawn.at[:, index].set(y), cache

    start = (jnp.asarray(1, "int32"), first, drawn, cache)
    _, _, drawn, cache = while_loop(lambda carry: carry[0] < count, body, start)
    return drawn, cache
