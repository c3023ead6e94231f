"""Tokens one after another: prompts are read in one call, then a compiled step runs until a text ends.

Prompts are padded to a few lengths and caches looked at through a few windows, so that programs are compiled for those
and not for every length. Knows no file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax import random
from nxjax.errors import ParameterError
from nxjax.generation.cache import Cache, init_cache
from nxjax.generation.config import DecoderConfig
from nxjax.generation.model import Params, check, extend
from nxjax.generation.result import Generated, GeneratedSequence, listed
from nxjax.generation.sampling import Sampler, marked, sample
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.jit import jit
from nxjax.transforms.vmap import vmap

# The shortest padded prompt and the shortest window; each next one is so many times longer.
SHORTEST: Final = 16
PROMPTS: Final = 2
WINDOW: Final = 256
WINDOWS: Final = 4
GREEDY: Final = Sampler()
# First calls of a program that are no measure of it: they compile it, then what its held weights leave of it.
WARM: Final = 2


def bucket(n: int, least: int, times: int, most: int) -> int:
    """The first of ``least``, ``least * times``, ... that is at least ``n``; ``most`` instead of what is beyond it.

    >>> [bucket(n, 16, 2, 100) for n in (1, 16, 17, 64, 65, 100)]
    [16, 16, 32, 64, 100, 100]
    """
    size = least
    while size < n:
        size *= times
    return min(size, most)


@final
class Generator:
    """A decoder with its weights and optionally its tokenizer, ready to generate text.

    The compiled steps close over the weights and prepare them once. Programs: one per padded length of
    prompts (16, 32, 64, ...), one step per window of the cache (256, 1024, ...), each per batch size and sampler.

    Args:
        params: as from `nxjax.generation.init`; with `QArray` leaves if quantized.
        config: sizes.
        tokenizer: for texts; without it, prompts are tokens and results have no texts.
        end: tokens that end a sequence; the tokenizer's by default.
        room: the largest number of tokens of a sequence, with the prompt; by default ``config.context``.
        cache_dtype: of cached keys and values, as in `init_cache`: a float dtype, or int8 with scales.

    Raises:
        ParameterError: the parameters do not fit the decoder, or an argument is out of range.

    >>> from nxjax.generation import DecoderConfig, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> generator = Generator(init(nx.random.key(0), config), config)
    >>> one = generator.generate([1, 2, 3], max_tokens=4)
    >>> len(one.tokens[0]), one.reasons
    (4, ['length'])
    >>> both = generator.generate([[5], [1, 2, 3]], max_tokens=4)
    >>> both.tokens[1] == one.tokens[0]
    True
    """

    @entry
    def __init__(
        self,
        params: Params,
        config: DecoderConfig,
        tokenizer: Any = None,
        *,
        end: int | Sequence[int] | None = None,
        room: int | None = None,
        cache_dtype: Any = "float32",
    ) -> None:
        self.params, self.config, self.tokenizer = params, config, tokenizer
        if tokenizer is not None and len(tokenizer) > config.vocabulary:
            raise ParameterError(
                "Generator: the tokenizer has more tokens than the decoder",
                got=len(tokenizer),
                expected=f"{config.vocabulary} or fewer",
            )
        check(params, config)
        own = None if tokenizer is None else tokenizer.ends
        ends = own if end is None else end
        self.ends: tuple[int, ...] = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        self.room = config.context if room is None else room
        self._empty = lambda batch: init_cache(config, batch, self.room, cache_dtype)
        self._empty(1)
        self._programs: dict[Any, Any] = {}
        self._calls: Counter[Any] = Counter()

    def _program(self, function: Any, sampler: Sampler, window: int, *more: Any) -> Any:
        """``function`` compiled for a sampler and a window. Bound, not static: calls with arrays alone are the
        quickest."""
        key = (function, sampler, window, *more)
        if key not in self._programs:
            bound = partial(function, self.params, self.config, sampler, window, *more)
            self._programs[key] = jit(bound, donate_argnums=(0, 4))
        return self._programs[key]

    def _is_warm(self, *key: Any) -> bool:
        """Counts a call of a program, and says whether its time is one to be shown."""
        self._calls[key] += 1
        return self._calls[key] > WARM

    def generate(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
        on_device: bool = False,
    ) -> Generated:
        """Continue prompts.

        Args:
            prompts: a text or tokens, or a list of texts or of lists of tokens, as a batch.
            max_tokens: the largest number of tokens to add to each.
            sampler: chooses the next token; by default the most likely one.
            key: of `nx.random`, for a random sampler. A sequence's draws depend only on the key, its index in the batch
                and its tokens.
            stop: texts that end the result and are not part of it; needs a tokenizer.
            on_device: run the whole loop as one program (`nx.while_loop`) instead of a call per token. Stop sequences
                are found afterwards.

        Raises:
            ParameterError: a prompt without tokens or with too many, a missing key, stop sequences without a tokenizer.
        """
        return self._start(prompts, max_tokens, sampler, key, stop).finished(on_device)

    def stream(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
    ) -> Iterator[Any]:
        """The texts of `generate`, piece by piece: pieces of one prompt, or (row, piece) of several.

        A piece never ends within a character or a possible stop sequence. Arguments as `generate`.

        >>> from nxjax.generation import DecoderConfig, Tokenizer, init
        >>> tokenizer = Tokenizer.train(["to be or not to be"], 260)
        >>> config = DecoderConfig(len(tokenizer), width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8)
        >>> generator = Generator(init(nx.random.key(0), config), config, tokenizer)
        >>> "".join(generator.stream("to be", max_tokens=5)) == generator.generate("to be", max_tokens=5).text
        True
        """
        if self.tokenizer is None:
            raise ParameterError("Generator.stream: texts need a tokenizer", got=None, fix="Generator(..., tokenizer)")
        run = self._start(prompts, max_tokens, sampler, key, stop)
        return ((row, piece) if run.several else piece for row, piece in run.pieces() if piece)

    def _start(self, prompts: Any, max_tokens: int, sampler: Sampler, key: Any, stop: Sequence[str]) -> _Run:
        if type(max_tokens) is not int or max_tokens < 1:
            raise ParameterError("generate: max_tokens", got=max_tokens, expected="a whole number, 1 or more")
        if not sampler.greedy and key is None:
            raise ParameterError(
                "generate: a random sampler needs a key",
                got=sampler,
                fix="key=nx.random.key(0), a different one each time",
            )
        if stop and self.tokenizer is None:
            raise ParameterError("generate: stop sequences are texts", got=stop, fix="Generator(..., tokenizer)")
        rows, several = self._rows(prompts)
        return _Run(self, rows, several, max_tokens, sampler, key, stop)

    def _rows(self, prompts: Any) -> tuple[list[list[int]], bool]:
        """Prompts as lists of tokens, and whether there were several."""
        given, several = listed(prompts)
        if any(isinstance(p, str) for p in given) and self.tokenizer is None:
            raise ParameterError("generate: texts need a tokenizer", got="a text", fix="Generator(..., tokenizer)")
        rows = [self.tokenizer.prompt(p) if isinstance(p, str) else p for p in given]
        for row in rows:
            if not 1 <= len(row) < self.room:
                raise ParameterError(
                    "generate: tokens of a prompt", got=len(row), expected=f"1 to {self.room - 1}: one has to fit in"
                )
            if not all(0 <= t < self.config.vocabulary for t in row):
                raise ParameterError(
                    "generate: a token that the decoder does not have",
                    got=next(t for t in row if not 0 <= t < self.config.vocabulary),
                    expected=f"0 to {self.config.vocabulary - 1}",
                )
        return rows, several

    def __repr__(self) -> str:
        return f"Generator({self.config.parameters} parameters, room for {self.room} tokens)"


def _next(logits: Array, key: Any, index: Any, seen: Any, sampler: Sampler) -> Array:
    """The next tokens [batch]; number ``index`` of those that are drawn."""
    keys = None
    if not sampler.greedy:
        rows = jnp.arange(logits.shape[0])
        keys = vmap(lambda row: random.fold_in(random.fold_in(key, row), index))(rows)
    return sample(keys, logits, sampler, seen)


def _read(
    params: Params,
    config: DecoderConfig,
    sampler: Sampler,
    window: int,
    cache: Cache,
    tokens: Array,
    counts: Array,
    key: Any,
    seen: Any,
) -> tuple[Array, Cache, Any]:
    """Read prompts [batch, t], of which ``counts`` tokens are real, and choose the next ones [batch, 1]."""
    if sampler.remembers:
        seen = marked(seen, jnp.where(jnp.arange(tokens.shape[1]) < counts[:, None], tokens, -1))
    logits, cache = extend(params, cache, tokens, config, counts=counts, window=window)
    return _next(logits, key, 0, seen, sampler)[:, None], cache, seen


def _step(
    params: Params,
    config: DecoderConfig,
    sampler: Sampler,
    window: int,
    cache: Cache,
    tokens: Array,
    index: Any,
    key: Any,
    seen: Any,
) -> tuple[Array, Cache, Any]:
    """Read one token of each sequence, ``tokens`` [batch, 1], and choose number ``index`` of those that are added."""
    seen = marked(seen, tokens) if sampler.remembers else seen
    logits, cache = extend(params, cache, tokens, config, window=window)
    return _next(logits, key, index, seen, sampler)[:, None], cache, seen


def _loop(
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
    seen: Any,
) -> tuple[Array, Any, Cache, Any]:
    """As many steps as are needed, ``limit`` at most: the tokens [batch, size] from ``tokens`` [batch, 1] on."""
    over = lambda y: jnp.any(y == jnp.asarray(ends or (-1,)), axis=-1, keepdims=True)
    drawn = jnp.zeros((tokens.shape[0], size), tokens.dtype).at[:, :1].set(tokens)

    def more(carry: Any) -> Array:
        index, _, done, *_ = carry
        return (index < limit) & ~done.all()

    def body(carry: Any) -> Any:
        index, last, done, drawn, cache, seen = carry
        y, cache, seen = _step(params, config, sampler, window, cache, last, index, key, seen)
        return index + 1, y, done | over(y), drawn.at[:, index].set(y[:, 0]), cache, seen

    start = (jnp.asarray(1, "int32"), tokens, over(tokens), drawn, cache, seen)
    index, _, _, drawn, cache, seen = while_loop(more, body, start)
    return drawn, index, cache, seen


@final
class _Run:
    """One call of `generate` or `stream`."""

    def __init__(
        self,
        owner: Generator,
        prompts: list[list[int]],
        several: bool,
        max_tokens: int,
        sampler: Sampler,
        key: Any,
        stop: Sequence[str],
    ) -> None:
        self.owner, self.sampler, self.key, self.several = owner, sampler, key, several
        self.rows = [
            GeneratedSequence(p, min(max_tokens, owner.room - len(p)), owner.ends, owner.tokenizer, stop)
            for p in prompts
        ]
        self.longest = max(map(len, prompts))
        self.prompt_seconds = self.seconds = 0.0
        self.steps = 0

    def _window(self, length: int) -> int:
        return bucket(length, WINDOW, WINDOWS, self.owner.room)

    def _prompt(self) -> tuple[Array, Cache, Any]:
        """Read the prompts; gives the first tokens."""
        owner, begin = self.owner, time.perf_counter()
        t = bucket(self.longest, SHORTEST, PROMPTS, owner.room)
        padded = np.zeros((len(self.rows), t), np.int32)
        for line, row in zip(padded, self.rows, strict=True):
            line[: len(row.prompt)] = row.prompt
        counts = np.array([len(row.prompt) for row in self.rows], np.int32)
        seen = None
        if self.sampler.remembers:
            seen = jnp.zeros((len(self.rows), owner.config.vocabulary), bool)
        read = owner._program(_read, self.sampler, t)
        y, cache, seen = read(owner._empty(len(self.rows)), padded, counts, self.key, seen)
        np.asarray(y)
        self.prompt_seconds = time.perf_counter() - begin
        return y, cache, seen

    def pieces(self) -> Iterator[tuple[int, str]]:
        """(row, what became certain of its text), token by token."""
        owner, sampler = self.owner, self.sampler
        y, cache, seen = self._prompt()
        tokens, index, length = np.asarray(y)[:, 0].tolist(), 1, self.longest
        while True:
            for i, (row, token) in enumerate(zip(self.rows, tokens, strict=True)):
                if row.reason is None:
                    yield i, row.put(token)
            if all(row.reason is not None for row in self.rows):
                return
            length = min(length + 1, owner.room)
            window = self._window(length)
            begin = time.perf_counter()
            y, cache, seen = owner._program(_step, sampler, window)(cache, y, index, self.key, seen)
            tokens = np.asarray(y)[:, 0].tolist()
            if owner._is_warm(_step, sampler, window, len(tokens)):
                self.seconds += time.perf_counter() - begin
                self.steps += len(tokens)
            index += 1

    def finished(self, on_device: bool) -> Generated:
        """All of it."""
        if on_device:
            self._whole()
        else:
            for _ in self.pieces():
                pass
        return Generated.of(self.rows, self.prompt_seconds, self.seconds, self.steps)

    def _whole(self) -> None:
        owner = self.owner
        y, cache, seen = self._prompt()
        limit = max(row.limit for row in self.rows)
        begin = time.perf_counter()
        window = self._window(min(self.longest + limit, owner.room))
        size = bucket(limit, SHORTEST, PROMPTS, owner.room)
        loop = owner._program(_loop, self.sampler, window, size, owner.ends)
        drawn, count, *_ = loop(cache, y, limit, self.key, seen)
        tokens = np.asarray(drawn)[:, : int(count)]
        if owner._is_warm(_loop, self.sampler, window, size, len(self.rows)):
            self.seconds = time.perf_counter() - begin
            self.steps = len(self.rows) * (int(count) - 1)
        for row, line in zip(self.rows, tokens.tolist(), strict=True):
            for token in line:
                if row.reason is None:
                    row.put(token)
