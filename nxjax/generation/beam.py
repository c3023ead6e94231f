"""Beam search: the most likely continuations as a whole, instead of the most likely next token each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.generation.cache import Cache, chosen
from nxjax.generation.generator import PROMPTS, SHORTEST, Generator, bucket
from nxjax.generation.model import extend
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array


@final
@dataclass(frozen=True)
class Beam:
    """A continuation.

    Attributes:
        tokens: without the prompt; includes the end token, if any, as the last.
        log_probability: the sum over its tokens.
        score: ``log_probability / len(tokens) ** length_penalty``, which ranks beams.
        ended: whether it ended with an end token.

    >>> Beam((3, 0), -1.5, -0.75, True).tokens
    (3, 0)
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: bool


@entry
def beam_search(
    generator: Generator, prompt: Any, beams: int = 4, *, max_tokens: int = 64, length_penalty: float = 1.0
) -> list[Beam]:
    """The continuations of a beam search with ``beams`` beams, best first; deterministic.

    Args:
        generator: the decoder; its end tokens end a continuation.
        prompt: a text or tokens.
        beams: how many continuations are followed and returned.
        max_tokens: the largest number of tokens of a continuation.
        length_penalty: exponent of the length in the score (Wu et al., 2016, simplified); 0 ranks by probability.

    Raises:
        ParameterError: a number out of range, or no room for so many tokens.

    >>> from nxjax.generation import DecoderConfig, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> found = beam_search(Generator(init(nx.random.key(0), config), config), [1, 2], 3, max_tokens=4)
    >>> len(found), found[0].score >= found[1].score
    (3, True)
    """
    rows, several = generator.prompts(prompt)
    if several:
        raise ParameterError("beam_search: one prompt", got=len(rows))
    (tokens,) = rows
    if type(beams) is not int or beams < 1:
        raise ParameterError("beam_search: beams", got=beams, expected="a whole number, 1 or more")
    if not 1 <= max_tokens <= generator.room - len(tokens):
        raise ParameterError(
            "beam_search: max_tokens", got=max_tokens, expected=f"1 to {generator.room - len(tokens)}, for this prompt"
        )
    if length_penalty < 0:
        raise ParameterError("beam_search: length_penalty", got=length_penalty, expected="0 or more")
    # Of the best 2 beams (ends beams) candidates, at least ``beams`` go on.
    wide = min(beams * (1 + max(1, len(generator.ends))), beams * generator.config.vocabulary)
    step = generator.program(_step, wide)
    t = bucket(len(tokens), SHORTEST, PROMPTS, generator.room)
    padded = np.zeros((1, t), np.int32)
    padded[0, : len(tokens)] = tokens
    found, cache = generator.program(_read, beams, wide, donate=False)(
        generator.empty(1), padded, np.array([len(tokens)], np.int32)
    )
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[Beam] = []
    score = lambda log_p, n: log_p / n**length_penalty
    for n in range(1, max_tokens + 1):
        totals, parents, nexts = (np.asarray(x).tolist() for x in found)
        going: list[tuple[int, tuple[int, ...], float]] = []
        for total, parent, token in zip(totals, parents, nexts, strict=True):
            if parent >= len(alive) or not np.isfinite(total):
                continue
            made = (*alive[parent][0], token)
            if token in generator.ends:
                ended.append(Beam(made, total, score(total, n), True))
            elif len(going) < beams:
                going.append((parent, made, total))
        ended = sorted(ended, key=lambda b: -b.score)[:beams]
        # What goes on only loses probability; its score is at best that at the greatest length.
        best = max((score(total, max_tokens) for _, _, total in going), default=-np.inf)
        if not going or (len(ended) == beams and ended[-1].score >= best):
            break
        alive = [(made, total) for _, made, total in going]
        if n == max_tokens:
            ended += [Beam(made, total, score(total, n), False) for made, total in alive]
            break
        fill = [going[0]] * (beams - len(going))
        rows_ = np.array([p for p, _, _ in going + fill], np.int32)
        last = np.array([[made[-1]] for _, made, _ in going + fill], np.int32)
        so_far = np.array([t for _, _, t in going] + [-np.inf] * len(fill), np.float32)
        found, cache = step(cache, rows_, last, so_far)
    return sorted(ended, key=lambda b: -b.score)[:beams]


Found = tuple[Array, Array, Array]


def _best(logits: Array, so_far: Array, count: int) -> Found:
    """The ``count`` most likely (total, beam, token) of all that follow."""
    totals = (so_far[:, None] + nn.log_softmax(logits, axis=-1)).reshape(-1)
    top, at = lax.top_k(totals, min(count, totals.shape[0]))
    return top, at // logits.shape[-1], at % logits.shape[-1]


def _read(
    params: Any, config: Any, beams: int, count: int, cache: Cache, tokens: Array, counts: Array
) -> tuple[Found, Cache]:
    """Read the prompt; the first candidates, and a cache for all beams."""
    logits, cache = extend(params, cache, tokens, config, counts=counts)
    return _best(logits, jnp.zeros(1), count), chosen(cache, jnp.zeros(beams, "int32"))


def _step(
    params: Any, config: Any, count: int, cache: Cache, rows: Array, tokens: Array, so_far: Array
) -> tuple[Found, Cache]:
    """Beams go on from ``rows``, each with a token [beams, 1]."""
    logits, cache = extend(params, chosen(cache, rows), tokens, config)
    return _best(logits, so_far, count), cache
