"""Which token comes next: logits changed by the usual rules, and a draw with an explicit key. Pure functions.

Knows no model: logits in, tokens out. In which order the rules apply is that of most libraries: the user's functions,
penalties, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from nxjax import lax, nn, random
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap


@final
@dataclass(frozen=True)
class Sampler:
    """The choice of the next token; hashable, so that a jitted step is compiled once per sampler.

    Attributes:
        temperature: divides the logits; 0 takes the most likely token.
        top_k: only this many of the most likely tokens, and ties with the last (Fan et al., 2018).
        top_p: only the most likely tokens that together have this probability (Holtzman et al., "The curious case of
            neural text degeneration", 2020); the one that reaches it is among them.
        min_p: only tokens with at least ``min_p`` times the probability of the most likely one (Nguyen et al., "Turning
            up the heat", 2024).
        repetition_penalty: divides positive logits of earlier tokens and multiplies negative ones (Keskar et al.,
            "CTRL", 2019); prompts count.
        presence_penalty: subtracted from logits of tokens that were added; prompts do not count.
        frequency_penalty: subtracted from these logits as often as the token was added.
        processors: functions of ``(logits, tokens, lengths)``, applied before all else. They get float [batch,
            vocabulary], int32 [batch, room] and int32 [batch]: of ``tokens[i]``, the first ``lengths[i]`` are the
            prompt and what was added. They return new logits, and are compiled with the step;
            `nx.pure_callback` calls Python.

    >>> Sampler(temperature=0.8, top_p=0.9).greedy, Sampler().greedy
    (False, True)
    >>> odd = lambda logits, tokens, lengths: jnp.where(jnp.arange(4) % 2 == 1, logits, -jnp.inf)
    >>> Sampler(processors=(odd,)).remembers
    True
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    processors: tuple[Callable[[Array, Array, Array], Any], ...] = ()

    def __post_init__(self) -> None:
        def check(name: str, fits: bool, expected: str) -> None:
            if not fits:
                raise ParameterError(f"Sampler: {name}", got=getattr(self, name), expected=expected)

        number = lambda x: isinstance(x, (int, float)) and math.isfinite(x)
        k, p, least = self.top_k, self.top_p, self.min_p
        check("temperature", number(self.temperature) and self.temperature >= 0, "a number, 0 or more")
        check("top_k", k is None or (type(k) is int and k >= 1), "a whole number, 1 or more, or None")
        check("top_p", p is None or (number(p) and 0 < p <= 1), "more than 0, at most 1, or None")
        check("min_p", least is None or (number(least) and 0 <= least <= 1), "0 to 1, or None")
        check("repetition_penalty", number(self.repetition_penalty) and self.repetition_penalty > 0, "a number above 0")
        check("presence_penalty", number(self.presence_penalty), "a number")
        check("frequency_penalty", number(self.frequency_penalty), "a number")
        given: Any = self.processors
        check("processors", isinstance(given, tuple) and all(map(callable, given)), "a tuple of functions")

    @property
    def greedy(self) -> bool:
        """Whether it takes the most likely token and needs no key."""
        return self.temperature == 0

    @property
    def remembers(self) -> bool:
        """Whether the choice depends on earlier tokens."""
        return self.repetition_penalty != 1 or self.counts or bool(self.processors)

    @property
    def counts(self) -> bool:
        """Whether the choice depends on how often tokens were added."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0


class Earlier(NamedTuple):
    """What a sampler asks about earlier tokens; a pytree. What it does not ask is None.

    Attributes:
        seen: bool [batch, vocabulary], tokens that were there, for a repetition penalty.
        counts: int32 [batch, vocabulary], how often each was added, for presence and frequency penalties.
        tokens: int32 [batch, room], for processors.
        lengths: int32 [batch], how many of ``tokens`` are there.

    >>> Earlier.none(Sampler(repetition_penalty=1.2), batch=1, vocabulary=3, room=8).seen.tolist()
    [[False, False, False]]
    """

    seen: Any = None
    counts: Any = None
    tokens: Any = None
    lengths: Any = None

    @classmethod
    def none(cls, sampler: Sampler, batch: int, vocabulary: int, room: int) -> Earlier:
        """No token yet."""
        wide = (batch, vocabulary)
        return cls(
            jnp.zeros(wide, bool) if sampler.repetition_penalty != 1 else None,
            jnp.zeros(wide, "int32") if sampler.counts else None,
            jnp.zeros((batch, room), "int32") if sampler.processors else None,
            jnp.zeros(batch, "int32") if sampler.processors else None,
        )

    def noted(self, tokens: Array, is_added: bool = True) -> Earlier:
        """With ``tokens`` int32 [batch, t] after what was there; negative ones are none.

        >>> Earlier(seen=jnp.zeros((1, 3), bool)).noted(jnp.array([[2, -1]])).seen.tolist()
        [[False, False, True]]
        """
        rows = jnp.arange(tokens.shape[0])[:, None]
        # Out of range is left out, where negative would count from the end.
        place = lambda x, at: jnp.where(tokens < 0, x.shape[1], at)
        seen, counts, history, lengths = self
        if seen is not None:
            seen = seen.at[rows, place(seen, tokens)].set(True, mode="drop")
        if counts is not None and is_added:
            counts = counts.at[rows, place(counts, tokens)].add(1, mode="drop")
        if history is not None:
            at = lengths[:, None] + jnp.arange(tokens.shape[1], dtype="int32")
            history = history.at[rows, place(history, at)].set(tokens, mode="drop")
            lengths = lengths + (tokens >= 0).sum(-1, dtype="int32")
        return Earlier(seen, counts, history, lengths)


def _processed(x: Array, sampler: Sampler, earlier: Earlier) -> Array:
    for f in sampler.processors:
        made = jnp.asarray(f(x, earlier.tokens, earlier.lengths))
        if made.shape != x.shape:
            name = getattr(f, "__name__", repr(f))
            raise ShapeError(f"Sampler: logits of the processor {name!r}", got=made.shape, expected=x.shape)
        x = made.astype(x.dtype)
    return x


def _penalized(x: Array, sampler: Sampler, earlier: Earlier) -> Array:
    penalty = sampler.repetition_penalty
    if penalty != 1:
        x = jnp.where(earlier.seen, jnp.where(x > 0, x / penalty, x * penalty), x)
    if sampler.counts:
        x = x - sampler.presence_penalty * (earlier.counts > 0) - sampler.frequency_penalty * earlier.counts
    return x


@entry
def adjusted(logits: Any, sampler: Sampler, seen: Any = None) -> Array:
    """Logits whose softmax is the distribution to draw from; excluded tokens have -inf.

    Args:
        logits: float [..., vocabulary]; [batch, vocabulary] where earlier tokens matter.
        sampler: its temperature is not 0.
        seen: earlier tokens, needed for penalties and processors: bool of the same shape for a repetition penalty, or
            all that the sampler asks.

    Raises:
        ParameterError: the sampler asks about earlier tokens, and there are none.
        ShapeError: a processor gave logits of another shape.

    >>> adjusted(nx.array([2.0, 1.0, 0.0, -1.0]), Sampler(temperature=2.0, top_k=2)).tolist()
    [1.0, 0.5, -inf, -inf]
    """
    x = jnp.asarray(logits)
    if sampler.remembers:
        if seen is None:
            raise ParameterError("adjusted: penalties and processors need the earlier tokens", got=None, fix="seen=")
        earlier = seen if isinstance(seen, Earlier) else Earlier(seen=jnp.asarray(seen))
        x = _penalized(_processed(x, sampler, earlier), sampler, earlier)
    if sampler.temperature not in (0, 1):
        x = x / sampler.temperature
    size, nothing = x.shape[-1], -jnp.inf
    if sampler.top_k is not None and sampler.top_k < size:
        least = lax.top_k(x, sampler.top_k)[0][..., -1:]
        x = jnp.where(x >= least, x, nothing)
    if sampler.top_p is not None and sampler.top_p < 1:
        # A token stays if those before it do not reach the probability yet.
        order = jnp.argsort(-x, axis=-1)
        p = jnp.take_along_axis(nn.softmax(x, axis=-1), order, axis=-1)
        kept = jnp.cumsum(p, axis=-1) - p < sampler.top_p
        x = jnp.where(jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), axis=-1), x, nothing)
    if sampler.min_p:
        top = x.max(axis=-1, keepdims=True)
        x = jnp.where(x >= top + math.log(sampler.min_p), x, nothing)
    return x


@entry
def sample(keys: Any, logits: Any, sampler: Sampler, seen: Any = None) -> Array:
    """The next token of each sequence, int32 [batch].

    Args:
        keys: a key of `nx.random` per sequence; ignored by a greedy sampler.
        logits: float [batch, vocabulary].
        sampler: the rules.
        seen: as in `adjusted`.

    >>> logits = nx.array([[0.0, 3.0, 1.0]])
    >>> sample(None, logits, Sampler()).tolist()
    [1]
    >>> sample(nx.random.split(nx.random.key(0), 1), logits, Sampler(temperature=1.0, top_k=1)).tolist()
    [1]
    """
    x = adjusted(logits, sampler, seen)
    if sampler.greedy:
        return jnp.argmax(x, axis=-1).astype("int32")

    return vmap(random.categorical)(keys, x).astype("int32")
