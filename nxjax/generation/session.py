"""A sequence whose cache is kept between calls, and in a file.

A call reads only what the cache has not read: a conversation that grows is not read again from its start. What comes
out is what a generator gives for the whole prompt. Knows no step.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax import tree
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.generation.cache import Cache, placed
from nxjax.generation.draft import Drafting
from nxjax.generation.generator import GREEDY, Generator, KeptSequence
from nxjax.generation.result import Generated
from nxjax.generation.sampling import Sampler
from nxjax.quant import files
from nxjax.trace.boundary import entry

# Bytes of each parameter that tell decoders apart.
_TOLD: Final = 4096
_PARTS: Final = ("keys", "values", "key_scales", "value_scales")


@final
class Session:
    """A generator with the cache of one sequence.

    Args:
        generator: the decoder.

    Attributes:
        tokens: those that the cache has read.

    >>> from nxjax.generation import DecoderConfig, Generator, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=32)
    >>> generator = Generator(init(nx.random.key(0), config), config)
    >>> session = Session(generator)
    >>> first = session.generate([1, 2, 3], max_tokens=4).tokens[0]
    >>> longer = [1, 2, 3, *first, 5]
    >>> session.generate(longer, max_tokens=4).tokens == generator.generate(longer, max_tokens=4).tokens
    True
    >>> len(session.tokens)
    11
    """

    @entry
    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self._kept = KeptSequence()

    @property
    def tokens(self) -> list[int]:
        return self._kept.tokens if self._kept.cache is not None else []

    def generate(
        self,
        prompt: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
        draft: Drafting = None,
        on_device: bool = False,
    ) -> Generated:
        """As `Generator.generate`, for one whole prompt; what it shares with the tokens so far is not read again.

        Raises:
            ParameterError: several prompts, or as `Generator.generate`.
        """
        self._one(prompt)
        run = self.generator.start(prompt, max_tokens, sampler, key, stop, draft, self._kept)
        return run.finished(on_device)

    def stream(
        self,
        prompt: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        key: Any = None,
        stop: Sequence[str] = (),
        draft: Drafting = None,
    ) -> Iterator[str]:
        """As `Generator.stream`, for one whole prompt."""
        self._one(prompt)
        if self.generator.tokenizer is None:
            raise ParameterError("Session.stream: texts need a tokenizer", got=None, fix="Generator(..., tokenizer)")
        run = self.generator.start(prompt, max_tokens, sampler, key, stop, draft, self._kept)
        return (piece for _, piece in run.pieces() if piece)

    def _one(self, prompt: Any) -> None:
        rows, several = self.generator.prompts(prompt)
        if several:
            raise ParameterError("Session: one prompt", got=len(rows), fix="a Session for each, or Generator.generate")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokens and what the cache has of them as safetensors; the file is complete or not there.

        Raises:
            MissingExtraError: safetensors is not installed.

        >>> import os, tempfile
        >>> from nxjax.generation import DecoderConfig, Generator, init
        >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 4, "hidden": 8}
        >>> config = DecoderConfig(**sizes, context=32)
        >>> session = Session(Generator(init(nx.random.key(0), config), config))
        >>> made = session.generate([1, 2, 3], max_tokens=4)
        >>> path = os.path.join(tempfile.mkdtemp(), "talk.safetensors")
        >>> session.save(path)
        >>> Session.load(path, session.generator).tokens == session.tokens
        True
        """
        tokens, cache = self.tokens, self._kept.cache
        cut = lambda rows: [np.asarray(x[:, : len(tokens)]) for x in rows]
        held = {name: cut(getattr(cache, name)) for name in _PARTS} if tokens else {}
        about = np.frombuffer(json.dumps(_about(self.generator)).encode(), np.uint8)
        files.save(path, {"tokens": np.array(tokens, np.int32), "about": about, **held})

    @classmethod
    def load(cls, path: str | os.PathLike[str], generator: Generator) -> Session:
        """A session of `save`, to go on with the same decoder.

        Raises:
            InvalidFileError: another kind of file, a damaged one, one of another decoder, or one with more tokens than
                the generator has room for.

        >>> Session.load("talk.txt", None)
        Traceback (most recent call last):
            ...
        FileNotFoundError: ...
        """
        found, name = files.load(path), os.path.basename(os.fspath(path))
        if not isinstance(found, dict) or not {"tokens", "about"} <= found.keys():
            raise InvalidFileError(f"{name}: not a session", got=type(found).__name__, fix="Session.save")
        tokens = np.asarray(found.pop("tokens"))
        try:
            about = safe_io.parsed(np.asarray(found.pop("about")).tobytes())
        except ValueError as error:
            raise InvalidFileError(f"{name}: a damaged session", got=str(error)[:100]) from None
        own = _about(generator)
        if about != own:
            differ = [k for k in own if not isinstance(about, dict) or about.get(k) != own[k]]
            raise InvalidFileError(
                f"{name}: a session of another decoder, or with another cache", got=", ".join(differ) + " differ"
            )
        whole = tokens.ndim == 1 and tokens.dtype == np.int32
        if not whole or not len(tokens) <= generator.room or ((tokens < 0) | (tokens >= own["vocabulary"])).any():
            shown = f"{tokens.dtype} {tokens.shape}"
            raise InvalidFileError(f"{name}: tokens of a session", got=shown, expected=f"at most {generator.room}")
        session = cls(generator)
        if len(tokens):
            session._kept = KeptSequence(_cache(generator, found, len(tokens), name), tokens.tolist())
        return session

    def __repr__(self) -> str:
        return f"Session({len(self.tokens)} tokens, {self.generator!r})"


def _about(generator: Generator) -> dict[str, Any]:
    """What a session's cache depends on: the decoder's sizes, a sum of its parameters, the cache's dtype."""
    check = 0
    for x in tree.leaves(generator.params):
        check = zlib.crc32(np.asarray(x).reshape(-1)[:_TOLD].tobytes()[:_TOLD], check)
    sizes = json.loads(json.dumps(generator.config.to_dict()))
    return {**sizes, "parameters": check, "cache": str(jnp.dtype(generator.cache_dtype))}


def _cache(generator: Generator, found: dict[str, Any], length: int, name: str) -> Cache:
    """The arrays of a file as a cache of the generator's room."""
    want = generator.empty(1, length)
    given = {k: tuple(found.get(k, ())) for k in _PARTS}
    for k in _PARTS:
        own = [(x.shape, x.dtype) for x in getattr(want, k)]
        if (got := [(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in given[k]]) != own:
            raise InvalidFileError(f"{name}: {k} of a session", got=str(got)[:100], expected=str(own)[:100])
    part = Cache(length=jnp.asarray(np.array([length], np.int32)), **given)
    return generator.copies(placed)(generator.empty(1), part, np.zeros(1, np.int32))
