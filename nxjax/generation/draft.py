"""Guesses of the next tokens, which a decoder checks several at a time: it reads them in one call instead of one call
each, and keeps those that it would have chosen (Leviathan et al., "Fast inference from transformers via speculative
decoding", 2023). The tokens are those without guesses, whatever is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.generation.cache import chosen
from nxjax.generation.steps import guessed

NDArray = np.ndarray[Any, Any]


class Guesser(Protocol):
    """Guesses for the sequences of one call."""

    def guess(self, sequences: Sequence[Sequence[int]]) -> NDArray | None:
        """Tokens [batch, ahead] after those of each sequence; None if there is nothing to guess."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these sequences only."""
        ...


def _checked(name: str, x: Any) -> None:
    if type(x) is not int or x < 1:
        raise ParameterError(f"draft: {name}", got=x, expected="a whole number, 1 or more")


@final
@dataclass(frozen=True)
class PromptLookup:
    """Guesses from the sequence itself: what came after the last tokens where they were there before (Saxena, "Prompt
    lookup decoding", 2023). It costs nothing, and helps where texts repeat their prompt: summaries, corrections, code.

    Attributes:
        ahead: guesses for each call.
        longest: the most last tokens that are looked for; fewer if these are not found.

    >>> PromptLookup(ahead=2).after([1, 2, 3, 9, 1, 2])
    [3, 9]
    """

    ahead: int = 6
    longest: int = 3

    def __post_init__(self) -> None:
        _checked("ahead", self.ahead)
        _checked("longest", self.longest)

    def after(self, tokens: Sequence[int]) -> list[int]:
        """The guesses for one sequence, at most ``ahead``."""
        for n in range(min(self.longest, len(tokens) - 1), 0, -1):
            tail = list(tokens[-n:])
            for at in range(len(tokens) - n - 1, -1, -1):
                if tokens[at + n - 1] == tail[-1] and list(tokens[at : at + n]) == tail:
                    return list(tokens[at + n : at + n + self.ahead])
        return []

    def start(self, batch: int, vocabulary: int) -> Guesser:
        """For the sequences of a call."""
        return _Found(self)


@final
class _Found:
    def __init__(self, rule: PromptLookup) -> None:
        self.rule = rule

    def guess(self, sequences: Sequence[Sequence[int]]) -> NDArray | None:
        found = [self.rule.after(tokens) for tokens in sequences]
        if not any(found):
            return None
        # A token that stands for no guess is kept where it is right, too.
        return np.array([row + [0] * (self.rule.ahead - len(row)) for row in found], np.int32)

    def keep(self, rows: Sequence[int]) -> None:
        pass


@final
@dataclass(frozen=True)
class Draft:
    """Guesses of a smaller decoder with the same tokens.

    Attributes:
        generator: the smaller one, a `Generator`.
        ahead: guesses for each call.

    Raises:
        ParameterError: a number out of range.

    >>> from nxjax.generation import DecoderConfig, Generator, init
    >>> sizes = {"vocabulary": 9, "width": 8, "heads": 2, "kv_heads": 1, "head_size": 4, "hidden": 8, "context": 32}
    >>> one, two = (DecoderConfig(layers=n, **sizes) for n in (1, 2))
    >>> large, small = (Generator(init(nx.random.key(0), c), c) for c in (two, one))
    >>> made = large.generate([1, 2], max_tokens=8, draft=Draft(small, ahead=3))
    >>> made.tokens == large.generate([1, 2], max_tokens=8).tokens
    True
    """

    generator: Any
    ahead: int = 4

    def __post_init__(self) -> None:
        _checked("ahead", self.ahead)

    def start(self, batch: int, vocabulary: int) -> Guesser:
        """For the sequences of a call."""
        if self.generator.config.vocabulary != vocabulary:
            raise ParameterError(
                "draft: another vocabulary", got=self.generator.config.vocabulary, expected=f"{vocabulary} tokens"
            )
        return _Model(self.generator, self.ahead, batch)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens two sequences share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@final
class _Model:
    """A decoder's guesses, its cache, and the tokens that the cache has read."""

    def __init__(self, owner: Any, ahead: int, batch: int) -> None:
        self.owner, self.ahead = owner, ahead
        self.cache = owner.empty(batch)
        self.read: list[list[int]] = [[] for _ in range(batch)]

    def guess(self, sequences: Sequence[Sequence[int]]) -> NDArray | None:
        owner, ahead = self.owner, self.ahead
        if max(map(len, sequences)) > owner.room:
            return None
        starts = [common(had, tokens[:-1]) for had, tokens in zip(self.read, sequences, strict=True)]
        padded, counts, longest = owner.padded(sequences, starts, ahead + 1)
        if longest + ahead > owner.room:
            return None
        program = owner.program(guessed, ahead, owner.window(longest + ahead, padded.shape[1]))
        cache = self.cache._replace(length=jnp.asarray(np.array(starts, np.int32)))
        drawn, self.cache = program(cache, padded, counts)
        drawn = np.asarray(drawn)
        self.read = [[*tokens, *row[:-1]] for tokens, row in zip(sequences, drawn.tolist(), strict=True)]
        return drawn

    def keep(self, rows: Sequence[int]) -> None:
        self.read = [self.read[i] for i in rows]
        self.cache = self.owner.copies(chosen)(self.cache, np.array(rows, np.int32))


Drafting = Draft | PromptLookup | None
