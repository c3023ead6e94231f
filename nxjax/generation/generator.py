"""Tokens one after another: prompts are read in one call, then a compiled step runs until a text ends.

Prompts are padded to a few lengths and caches looked at through a few windows, so that programs are compiled for those
and not for every length. Knows no file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax import tree
from nxjax.errors import ParameterError
from nxjax.generation.cache import Cache, chosen, init_cache, placed
from nxjax.generation.config import DecoderConfig
from nxjax.generation.draft import Drafting, common
from nxjax.generation.layers import FEW_TOKENS
from nxjax.generation.model import Params, check
from nxjax.generation.result import Generated, GeneratedSequence, listed, listed_tokens
from nxjax.generation.rope import are_fixed
from nxjax.generation.sampling import Earlier, Sampler
from nxjax.generation.steps import loop, read, step
from nxjax.generation.weights import pack_weights
from nxjax.quant.qarray import is_quantized
from nxjax.runtime import devices
from nxjax.trace.boundary import entry
from nxjax.transforms.jit import jit

# The shortest padded prompt and the shortest window; each next one is so many times longer.
SHORTEST: Final = 16
PROMPTS: Final = 2
# The most tokens of a prompt that one call reads: more gain nothing, and take memory.
CHUNK: Final = 128
WINDOW: Final = 64
WINDOWS: Final = 4
GREEDY: Final = Sampler()
# First calls of a program that are no measure of it: they compile it, then what its held weights leave of it.
WARM: Final = 2
# Steps that have to be left for sequences that ended to be taken out of a batch: another size is another program.
LEFT: Final = 32


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

    The compiled steps close over the weights and prepare them once. A prompt is read in chunks of 128 tokens. Programs:
    one per padded length of what they leave (16, 32, 64, 128), one for chunks per window of the cache (64, 256, 1024,
    ...) and one step, each per batch size and sampler.
    Prompts of a batch that are padded to different lengths are read apart, and sequences that ended leave a batch once
    half of it has.

    Args:
        params: as from `nxjax.generation.init`; with `QArray` leaves if quantized.
        config: sizes.
        tokenizer: for texts; without it, prompts are tokens and results have no texts.
        end: tokens that end a sequence; the tokenizer's by default.
        room: the largest number of tokens of a sequence, with the prompt; by default ``config.context``.
        cache_dtype: of cached keys and values, as in `init_cache`: a float dtype, or int8 with scales.
        activations: in what products with weights in few bits are computed, "float32" or "int8", see `pack_weights`;
            by default as the weights say.

    Attributes:
        params: weights in few bits as they are packed; others as given.

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
        activations: str | None = None,
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        if tokenizer is not None and len(tokenizer) > config.vocabulary:
            raise ParameterError(
                "Generator: the tokenizer has more tokens than the decoder",
                got=len(tokenizer),
                expected=f"{config.vocabulary} or fewer",
            )
        check(params, config)
        own: tuple[int, ...] = () if tokenizer is None else tokenizer.ends
        self.ends = own if end is None else listed_tokens(end, config.vocabulary, "Generator: end")
        self.room = config.context if room is None else room
        self.cache_dtype = cache_dtype
        # Not what was given: whoever lets go of it has one copy.
        self.params = pack_weights(params, activations)
        self._is_quantized = any(map(is_quantized, tree.leaves(params, is_leaf=is_quantized)))
        self.empty(1)
        self._programs: dict[Any, Any] = {}
        self._calls: Counter[Any] = Counter()

    def empty(self, batch: int, room: int | None = None) -> Cache:
        """A cache for this decoder."""
        return init_cache(self.config, batch, self.room if room is None else room, self.cache_dtype)

    def program(self, function: Any, *static: Any, donate: bool = True) -> Any:
        """``function`` compiled for this decoder and what is static: it takes a cache, which it may write if
        it is donated, and arrays.

        Bound, not static: calls with arrays alone are the quickest. Weights in few bits are arguments of all programs:
        a program that held them might hold them as floats, too.
        """
        key = (function, *static)
        if key not in self._programs:
            params, config = self.params, self.config
            if self._is_quantized:
                run = lambda params, cache, *arrays: function(params, config, *static, cache, *arrays)
                made: Any = partial(jit(run, donate_argnums=1 if donate else ()), params)
            else:
                made = jit(partial(function, params, config, *static), donate_argnums=0 if donate else ())
            self._programs[key] = made
        return self._programs[key]

    def make_ready(self, program: Any, *arrays: Any) -> None:
        """Have a program of `program` compiled for such arrays before its first call."""
        jitted: Any = program.func if isinstance(program, partial) else program
        jitted.ready(*(program.args if jitted is not program else ()), *arrays)

    def copies(self, function: Callable[..., Cache]) -> Any:
        """The same of a function of caches."""
        return self._programs.setdefault(function, jit(function, donate_argnums=0 if function is placed else ()))

    def has_run(self, *key: Any) -> bool:
        """Whether `is_warm` has counted a call of a program."""
        return key in self._calls

    def is_warm(self, *key: Any) -> bool:
        """Counts a call of a program, and says whether its time is one to be shown."""
        self._calls[key] += 1
        return self._calls[key] > WARM

    def window(self, length: int, t: int) -> int:
        """Places of a cache that a program which reads ``t`` tokens looks at, for so many tokens.

        Attention of few tokens looks at places that are filled, so one program does for all lengths.
        """
        return self.room if t <= FEW_TOKENS else bucket(length, WINDOW, WINDOWS, self.room)

    def padded(
        self, rows: Sequence[Sequence[int]], starts: Sequence[int], least: int = SHORTEST
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
        """What is to be read of sequences from ``starts`` on: tokens [batch, t], how many are real [batch], and how
        long sequences are then, with padding."""
        todo = [list(row[start:]) for row, start in zip(rows, starts, strict=True)]
        t = min(bucket(max(map(len, todo)), least, PROMPTS, self.room), self.room - max(starts))
        tokens = np.zeros((len(rows), t), np.int32)
        for line, row in zip(tokens, todo, strict=True):
            line[: len(row)] = row
        return tokens, np.array([len(row) for row in todo], np.int32), max(starts) + t

    @entry
    def generate(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
        draft: Drafting = None,
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
            draft: guesses next tokens that one call checks: `PromptLookup` finds them in the text, `Draft` asks a
                smaller decoder. The tokens are the same as without.
            on_device: run the whole loop as one program (`nx.while_loop`) instead of a call per token. Stop sequences
                are found afterwards.

        Raises:
            ParameterError: a prompt without tokens or with too many, a missing key, stop sequences without a tokenizer,
                a draft with another vocabulary or on the device.
        """
        return self.start(prompts, max_tokens, sampler, key, stop, draft).finished(on_device)

    @entry
    def stream(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
        draft: Drafting = None,
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
        run = self.start(prompts, max_tokens, sampler, key, stop, draft)
        return ((row, piece) if run.several else piece for row, piece in run.pieces() if piece)

    def start(
        self,
        prompts: Any,
        max_tokens: int,
        sampler: Sampler,
        key: Any,
        stop: Sequence[str],
        draft: Drafting,
        kept: KeptSequence | None = None,
    ) -> GenerationRun:
        """A call that has not read its prompts yet; ``kept`` is a cache to go on with, of one sequence."""
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
        rows, several = self.prompts(prompts)
        return GenerationRun(self, rows, several, max_tokens, sampler, key, stop, draft, kept)

    def prompts(self, prompts: Any) -> tuple[list[list[int]], bool]:
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


@final
class KeptSequence:
    """A cache of one sequence and the tokens that it has read, between calls."""

    def __init__(self, cache: Cache | None = None, tokens: Sequence[int] = ()) -> None:
        self.cache, self.tokens = cache, list(tokens)


@final
class GenerationRun:
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
        draft: Drafting,
        kept: KeptSequence | None,
    ) -> None:
        self.owner, self.sampler, self.key, self.several, self.kept = owner, sampler, key, several, kept
        self.rows = [
            GeneratedSequence(p, min(max_tokens, owner.room - len(p)), owner.ends, owner.tokenizer, stop)
            for p in prompts
        ]
        self.guesser = None if draft is None else draft.start(len(prompts), owner.config.vocabulary)
        # Which sequence each row of the cache is of, and how long they are there.
        self.active = list(range(len(self.rows)))
        self.lengths = np.array([len(p) for p in prompts])
        self.cache: Cache | None = None
        self.prompt_seconds = self.seconds = 0.0
        self.steps = self.calls = 0

    @property
    def _ids(self) -> Any:
        return np.array(self.active, np.int32)

    def _begin(self) -> tuple[list[int], Cache | None]:
        """How much of each prompt a cache has read, and that cache."""
        kept = self.kept
        if kept is None or kept.cache is None:
            return [0] * len(self.rows), None
        (row,) = self.rows
        if not are_fixed(self.owner.config, max(len(kept.tokens), len(row.prompt))):
            return [0], None
        starts = [common(kept.tokens, row.prompt[:-1])]
        cache, kept.cache = kept.cache, None  # until it is given back, nobody else's
        return starts, cache._replace(length=jnp.asarray(np.array(starts, np.int32)))

    def _taken(self) -> Any:
        """The cache, for a program that writes it: what such a program leaves when it is interrupted is no cache."""
        cache, self.cache = self.cache, None
        return cache

    def _prompt(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Read the prompts; gives the first tokens and the logarithms of their probabilities, [batch, 1]."""
        owner, begin = self.owner, time.perf_counter()
        prompts = [row.prompt for row in self.rows]
        starts, cache = self._begin()
        earlier = Earlier.none(self.sampler, len(prompts), owner.config.vocabulary, owner.room)
        if self.sampler.remembers:
            tokens, counts, _ = owner.padded(prompts, [0] * len(prompts))
            earlier = earlier.noted(jnp.where(jnp.arange(tokens.shape[1]) < counts[:, None], tokens, -1), False)
        # Prompts of one length, as padded, are read together: what whole chunks leave first, so that this alone is
        # padded, and programs for chunks are one for each window.
        groups: dict[tuple[int, int], list[int]] = {}
        for i, (row, start) in enumerate(zip(prompts, starts, strict=True)):
            chunks, rest = divmod(len(row) - start - 1, CHUNK)
            groups.setdefault((chunks, bucket(rest + 1, SHORTEST, PROMPTS, owner.room)), []).append(i)
        y, log_p = np.zeros((len(prompts), 1), np.int32), np.zeros((len(prompts), 1), np.float32)
        alone, fresh = len(groups) == 1, cache is None
        for (chunks, size), some in groups.items():
            room = None if alone else owner.window(max(len(prompts[i]) for i in some), CHUNK) if chunks else size
            part = cache if alone and cache is not None else owner.empty(len(some), room)
            at, lengths = np.array(some, np.int32), np.array([[len(prompts[i])] for i in some], np.int32)
            asked = earlier if alone else tree.map(lambda x, at=at: x[at], earlier)
            begins = [starts[i] for i in some]
            for left in range(chunks, -1, -1):
                near = [prompts[i][: len(prompts[i]) - left * CHUNK] for i in some]
                tokens, counts, longest = owner.padded(near, begins)
                window = longest if fresh and left == chunks else owner.window(longest, tokens.shape[1])
                first, its, part = owner.program(read, self.sampler, window)(
                    part, tokens, counts, lengths, self.key, asked, at
                )
                begins = list(map(len, near))
                if not left:
                    y[some], log_p[some] = np.asarray(first), np.asarray(its)
            cache = part if alone else owner.copies(placed)(cache or owner.empty(len(prompts)), part, at)
        assert cache is not None
        self.cache, self.earlier = cache, earlier
        self.prompt_seconds = time.perf_counter() - begin
        return y, log_p

    def _put(self, y: Any, log_p: Any, right: Sequence[int]) -> Iterator[tuple[int, str]]:
        for i, tokens, logs, count in zip(self.active, y.tolist(), log_p.tolist(), right, strict=True):
            row = self.rows[i]
            for token, its in zip(tokens[:count], logs, strict=False):
                if row.reason is None:
                    yield i, row.put(token, its)

    def pieces(self) -> Iterator[tuple[int, str]]:
        """(row, what became certain of its text), token by token."""
        try:
            yield from self._steps()
        finally:  # also where nobody asks for the rest
            self._end()
        devices()[0].trim()

    def _steps(self) -> Iterator[tuple[int, str]]:
        owner, sampler = self.owner, self.sampler
        y, log_p = self._prompt()
        last: Any = y
        index: Any = np.ones(len(y), np.int32)
        self._ready(last, index)
        yield from self._put(y, log_p, [1] * len(y))
        while any(self.rows[i].reason is None for i in self.active):
            last, index = self._compacted(last, index)
            begin = time.perf_counter()
            tokens = self._guessed(last)
            t = tokens.shape[1]
            going = [n for n, i in zip(self.lengths, self.active, strict=True) if self.rows[i].reason is None]
            window = owner.window(min(max(going) + t, owner.room), t)
            y, log_p, right, self.cache, self.earlier = owner.program(step, sampler, window)(
                self._taken(), tokens, index, self.key, self.earlier, self._ids
            )
            self.calls += 1
            count = np.asarray(right)
            self.lengths, index = self.lengths + count, index + count
            last = y if t == 1 else np.take_along_axis(np.asarray(y), count[:, None] - 1, 1)
            y, log_p = np.asarray(y), np.asarray(log_p)
            if owner.is_warm(step, sampler, window, y.shape):
                self.seconds += time.perf_counter() - begin
                self.steps += int(count.sum())
            yield from self._put(y, log_p, count.tolist())

    def _ready(self, last: Any, index: Any) -> None:
        """Have the program of the first step before the first token is given: no step is to wait for it."""
        owner, sampler, room = self.owner, self.sampler, self.owner.room
        known = owner.has_run(step, sampler, room, last.shape)
        if not known and self.guesser is None and max(row.limit for row in self.rows) > 1:
            program = owner.program(step, sampler, room)
            owner.make_ready(program, self.cache, last, index, self.key, self.earlier, self._ids)

    def _end(self) -> None:
        """Let go of the cache, and give it back if somebody goes on with it."""
        cache = self._taken()
        if self.kept is not None and cache is not None:
            (row,) = self.rows
            self.kept.cache, self.kept.tokens = cache, (row.prompt + row.tokens)[: int(self.lengths[0])]

    def _guessed(self, last: Any) -> Any:
        """The tokens to read: the last ones [batch, 1], and guesses after them."""
        if self.guesser is None:
            return last
        going = [self.rows[i] for i in self.active]
        # What has ended is not guessed: any tokens do.
        whole = [row.prompt + row.tokens if row.reason is None else row.prompt[:1] for row in going]
        guesses = self.guesser.guess(whole)
        if guesses is None or max(map(len, whole)) + guesses.shape[1] > self.owner.room:
            return last
        return np.concatenate([np.asarray(last), guesses], axis=1)

    def _compacted(self, last: Any, index: Any) -> tuple[Any, Any]:
        """Without sequences that ended, once they are half of a batch; a batch has 1, 2, 4, ... of them."""
        ended = [self.rows[i].reason is not None for i in self.active]
        going = [i for i, over in enumerate(ended) if not over]
        size = bucket(len(going), 1, 2, len(ended))
        left = max(self.rows[self.active[i]].limit - len(self.rows[self.active[i]].tokens) for i in going)
        if 2 * size > len(ended) or left < LEFT:
            return last, index
        kept = sorted(going + [i for i, over in enumerate(ended) if over][: size - len(going)])
        self.active = [self.active[i] for i in kept]
        at = np.array(kept, np.int32)
        self.cache = self.owner.copies(chosen)(self._taken(), at)
        self.earlier = tree.map(lambda x: x[at], self.earlier)
        if self.guesser is not None:
            self.guesser.keep(kept)
        self.lengths = self.lengths[at]
        return np.asarray(last)[at], index[at]

    def finished(self, on_device: bool) -> Generated:
        """All of it."""
        if on_device:
            try:
                self._whole()
            finally:
                self._end()
            devices()[0].trim()
        else:
            for _ in self.pieces():
                pass
        return Generated.of(self.rows, self.prompt_seconds, self.seconds, self.steps, self.calls)

    def _whole(self) -> None:
        owner = self.owner
        if self.guesser is not None:
            raise ParameterError("generate: a draft in a loop on the device", got="on_device=True", fix="one of them")
        y, log_p = self._prompt()
        limit = max(row.limit for row in self.rows)
        begin = time.perf_counter()
        size = bucket(limit, SHORTEST, PROMPTS, owner.room)
        program = owner.program(loop, self.sampler, owner.room, size, owner.ends)
        drawn, log_ps, count, self.cache = program(self._taken(), y, limit, self.key, self.earlier, self._ids)
        self.calls = n = int(count)
        y, log_p = (np.concatenate([a, np.asarray(b)[:, :n]], 1) for a, b in ((y, drawn), (log_p, log_ps)))
        if owner.is_warm(loop, self.sampler, size, len(self.rows)):
            self.seconds = time.perf_counter() - begin
            self.steps = len(self.rows) * n
        self.lengths = self.lengths + n
        for _ in self._put(y, log_p, [n + 1] * len(y)):
            pass
