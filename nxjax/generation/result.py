"""What a generation gave: tokens, texts, why each ended, how fast; and the book of one sequence while it grows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.generation.text import TextStream
from nxjax.trace.core import Array

Reason = Literal["end", "stop", "length"]


def listed(prompts: Any) -> tuple[list[str | list[int]], bool]:
    """Prompts as a list of texts and of lists of tokens, and whether there were several.

    Raises:
        ParameterError: neither texts nor whole numbers.

    >>> listed("text"), listed([1, 2]), listed([[1], "text"])
    ((['text'], False), ([[1, 2]], False), ([[1], 'text'], True))
    """
    if isinstance(prompts, (Array, np.ndarray)):
        prompts = np.asarray(prompts).tolist()
    whole = lambda x: isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    is_one = lambda p: isinstance(p, str) or (isinstance(p, (list, tuple, np.ndarray, Array)) and all(map(whole, p)))
    several = not is_one(prompts) and isinstance(prompts, (list, tuple))
    given = [np.asarray(p).tolist() if isinstance(p, Array) else p for p in (prompts if several else [prompts])]
    if not all(map(is_one, given)):
        kinds = "a text, a list of tokens, or a list of such"
        raise ParameterError("generate: prompts", got=repr(prompts)[:100], expected=kinds)
    return [p if isinstance(p, str) else [int(t) for t in p] for p in given], several


def listed_tokens(given: Any, vocabulary: int, what: str) -> tuple[int, ...]:
    """A token or several, of so many that there are.

    Raises:
        ParameterError: with ``what``, if one of them is no token.

    >>> listed_tokens(3, 9, "end"), listed_tokens([3, 5], 9, "end")
    ((3,), (3, 5))
    """
    tokens = np.asarray(given).reshape(-1).tolist()
    if not all(type(t) is int and 0 <= t < vocabulary for t in tokens):
        raise ParameterError(what, got=repr(given)[:100], expected=f"tokens, 0 to {vocabulary - 1}")
    return tuple(tokens)


@final
class GeneratedSequence:
    """One sequence: its prompt, what was added, and why it ended."""

    def __init__(
        self, prompt: Sequence[int], limit: int, ends: Sequence[int], tokenizer: Any, stop: Sequence[str]
    ) -> None:
        self.prompt, self.limit, self.ends = list(prompt), limit, frozenset(ends)
        self.tokens: list[int] = []
        self.log_probabilities: list[float] = []
        self.reason: Reason | None = None
        self.stream = None if tokenizer is None else TextStream(tokenizer.bytes_of, stop)

    def put(self, token: int, log_probability: float | None = None) -> str:
        """One more token; gives the text that became certain."""
        if token in self.ends:
            self.reason = "end"
            return self.stream.close() if self.stream else ""
        self.tokens.append(token)
        if log_probability is not None:
            self.log_probabilities.append(log_probability)
        piece = self.stream.put(token) if self.stream else ""
        if self.stream and self.stream.stopped:
            self.reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.reason = "length"
            piece += self.stream.close() if self.stream else ""
        return piece


@final
@dataclass(frozen=True)
class Generated:
    """The continuation of each prompt.

    Attributes:
        tokens: of each sequence, without the prompt and the token that ended it.
        texts: of each sequence, None without a tokenizer. Stop sequences, and text after them, are left out.
        reasons: why each ended: "end" (an end token), "stop" (a stop sequence), "length".
        prompt_tokens: tokens of each prompt.
        prompt_seconds: until the first token; includes compilation the first time.
        seconds: of the later steps, without first calls of a program, which compile it.
        steps: tokens generated in that time, over all sequences.
        log_probabilities: natural logarithms of the decoder's probability of each token, before the sampler's rules;
            None where the runtime does not give them.
        calls: how often the decoder was called after the prompt; None where the runtime does not say. With a draft,
            fewer than tokens.

    >>> Generated([[5, 2]], None, ["length"], [3], 0.01, 0.002, 1).tokens
    [[5, 2]]
    """

    tokens: list[list[int]]
    texts: list[str] | None
    reasons: list[Reason]
    prompt_tokens: list[int]
    prompt_seconds: float
    seconds: float
    steps: int
    log_probabilities: list[list[float]] | None = None
    calls: int | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[GeneratedSequence],
        prompt_seconds: float,
        seconds: float,
        steps: int,
        calls: int | None = None,
    ) -> Generated:
        """From finished rows."""
        known = all(len(row.log_probabilities) == len(row.tokens) for row in rows)
        streams = [row.stream for row in rows]
        texts = [s.text for s in streams if s is not None]
        return cls(
            [row.tokens for row in rows],
            texts if len(texts) == len(rows) else None,
            [row.reason or "length" for row in rows],
            [len(row.prompt) for row in rows],
            prompt_seconds,
            seconds,
            steps,
            [row.log_probabilities for row in rows] if known else None,
            calls,
        )

    @property
    def text(self) -> str | None:
        """The text of the first sequence, None without a tokenizer."""
        return None if self.texts is None else self.texts[0]

    @property
    def tokens_per_second(self) -> float | None:
        """Of the steps after the prompt; None without a measurement, for example if all steps compiled."""
        return self.steps / self.seconds if self.steps and self.seconds > 0 else None

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(t)} tokens ({r})" for t, r in zip(self.tokens, self.reasons, strict=True))
        rate = self.tokens_per_second
        return f"Generated({counts}{'' if rate is None else f', {rate:.0f} tokens/s'})"

    def _repr_html_(self) -> str:
        shown = self.texts or [" ".join(map(str, t)) for t in self.tokens]
        rows = "".join(
            f"<tr><td style='text-align:left;white-space:pre-wrap'>{html.escape(text)}</td><td>{len(tokens)}</td>"
            f"<td>{reason}</td></tr>"
            for text, tokens, reason in zip(shown, self.tokens, self.reasons, strict=True)
        )
        return f"<table><tr><th>text</th><th>tokens</th><th>ended by</th></tr>{rows}</table>"
