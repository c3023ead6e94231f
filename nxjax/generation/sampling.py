"""Which token comes next: logits changed by the usual rules, and a draw with an explicit key. Pure functions.

Knows no model: logits in, tokens out. In which order the rules apply is that of most libraries: penalty, temperature,
top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from nxjax import lax, nn, random
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
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

    >>> Sampler(temperature=0.8, top_p=0.9).greedy, Sampler().greedy
    (False, True)
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

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

    @property
    def greedy(self) -> bool:
        """Whether it takes the most likely token and needs no key."""
        return self.temperature == 0

    @property
    def remembers(self) -> bool:
        """Whether the choice depends on earlier tokens."""
        return self.repetition_penalty != 1


def penalized(logits: Array, seen: Array, penalty: float) -> Array:
    """Logits with those of tokens in ``seen`` (bool, of their shape) made less likely by ``penalty``."""
    return jnp.where(seen, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)


@entry
def adjusted(logits: Any, sampler: Sampler, seen: Any = None) -> Array:
    """Logits whose softmax is the distribution to draw from; excluded tokens have -inf.

    Args:
        logits: float [..., vocabulary].
        sampler: its temperature is not 0.
        seen: bool of the same shape, earlier tokens; needed for a penalty.

    >>> adjusted(nx.array([2.0, 1.0, 0.0, -1.0]), Sampler(temperature=2.0, top_k=2)).tolist()
    [1.0, 0.5, -inf, -inf]
    """
    x = jnp.asarray(logits)
    if sampler.remembers:
        if seen is None:
            raise ParameterError("adjusted: a repetition penalty needs the earlier tokens", got=None, fix="seen=")
        x = penalized(x, jnp.asarray(seen), sampler.repetition_penalty)
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
        seen: bool [batch, vocabulary], earlier tokens; needed for a penalty.

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


def marked(seen: Array, tokens: Array) -> Array:
    """``seen`` [batch, vocabulary] with ``tokens`` [batch, t] among what was there; negative tokens are none."""
    rows = jnp.arange(seen.shape[0])[:, None]
    # Out of range is left out, where negative would count from the end.
    return seen.at[rows, jnp.where(tokens < 0, seen.shape[1], tokens)].set(True, mode="drop")
