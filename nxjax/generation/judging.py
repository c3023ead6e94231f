"""How well a decoder knows a text: the perplexity of its tokens, read through the cache as in generation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.generation.cache import Cache
from nxjax.generation.config import DecoderConfig
from nxjax.generation.generator import CHUNK, Generator
from nxjax.generation.model import Params, extend
from nxjax.generation.result import listed
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array


class Perplexity(NamedTuple):
    """How well a text was known.

    Attributes:
        value: exp of the mean of ``-log p`` over the tokens; 1 if all were certain.
        tokens: how many were judged, all but the first.

    >>> Perplexity(12.5, 99).value
    12.5
    """

    value: float
    tokens: int


@entry
def perplexity(generator: Generator, text: Any, *, stride: int | None = None) -> Perplexity:
    """The perplexity of a text, with the generator's weights and its cache's dtype.

    A text longer than the generator's room is read in windows of that room. Each begins ``stride`` tokens after the one
    before, and judges the tokens that are new, so that they have at least ``room - stride`` tokens before them.

    Args:
        generator: the decoder; with a tokenizer for a text.
        text: a text or tokens, at least two.
        stride: 1 to ``room - 1``; half of the room by default.

    Raises:
        ParameterError: fewer than two tokens, several texts, a stride out of range.

    >>> from nxjax.generation import DecoderConfig, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = nx.tree.map(lambda x: x * 0, init(nx.random.key(0), config))
    >>> found = perplexity(Generator(params, config), [1, 2, 3, 4])
    >>> round(found.value, 4), found.tokens
    (9.0, 3)
    """
    (given, *more), _ = listed(text)
    if more or (isinstance(given, str) and generator.tokenizer is None):
        got = f"{len(more) + 1} texts" if more else "a text without a tokenizer"
        raise ParameterError("perplexity: one text, or its tokens", got=got)
    tokens = np.array(generator.tokenizer.prompt(given) if isinstance(given, str) else given, np.int32)
    room, least = generator.room, 2
    if len(tokens) < least or tokens.min() < 0 or tokens.max() >= generator.config.vocabulary:
        expected = f"{least} or more, 0 to {generator.config.vocabulary - 1} each"
        raise ParameterError("perplexity: tokens of the text", got=f"{len(tokens)} of them", expected=expected)
    stride = max(1, room // 2) if stride is None else stride
    if type(stride) is not int or not 1 <= stride < max(room, least):
        raise ParameterError("perplexity: stride", got=stride, expected=f"1 to {room - 1}")
    total, judged, begin = 0.0, 1, 0
    while judged < len(tokens):
        log_ps = _window(generator, tokens[begin : begin + room])
        total += math.fsum(log_ps[judged - begin - 1 :].tolist())
        judged = min(begin + room, len(tokens))
        begin += stride
    return Perplexity(math.exp(-total / (len(tokens) - 1)), len(tokens) - 1)


def _window(generator: Generator, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logarithms of the probabilities of all tokens but the first, float64."""
    cache, found = generator.empty(1), list[Any]()
    for at in range(0, len(tokens) - 1, CHUNK):
        rows, counts, longest = generator.padded([tokens[:-1][: at + CHUNK].tolist()], [at])
        n, nexts = int(counts[0]), np.zeros_like(rows)
        nexts[0, :n] = tokens[at + 1 : at + 1 + n]
        program = generator.program(judged, generator.window(longest, rows.shape[1]))
        log_p, cache = program(cache, rows, counts, np.array([[len(tokens) - 1]], np.int32), nexts)
        found.append(np.asarray(log_p, np.float64)[0, :n])
    return np.concatenate(found)


def judged(
    params: Params,
    config: DecoderConfig,
    window: int,
    cache: Cache,
    tokens: Array,
    counts: Array,
    lengths: Array,
    nexts: Array,
) -> tuple[Array, Cache]:
    """Read tokens [batch, t] of sequences of ``lengths`` [batch, 1]: logarithms of the probabilities of ``nexts``
    [batch, t] after them."""
    logits, cache = extend(params, cache, tokens, config, counts=counts, window=window, every=True, lengths=lengths)
    log_p = nn.log_softmax(logits.astype("float32"))
    return jnp.take_along_axis(log_p, nexts[..., None], axis=-1)[..., 0], cache
