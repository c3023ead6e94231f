"""Byte-pair tokens through the `tokenizers` library: train, keep, read, encode, decode; and the bytes of each token.

Byte-level only: every token is a string of bytes, so any text is encoded without loss, and text can be put together
from tokens as they come. Knows no model.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

from nxjax.errors import InvalidFileError, MissingExtraError, NxError, ParameterError
from nxjax.files import safe_io
from nxjax.trace.boundary import entry

END: Final = "<|end|>"
FILE: Final = "tokenizer.json"
# The least vocabulary: one token for every byte.
BYTES: Final = 256
# Steps on texts that may write more than they read; how many there may be, and the characters that one may write.
_GROWING: Final = ("ByteLevel", "Metaspace", "Prepend", "Replace")
_STEPS: Final = 4
_WRITTEN: Final = 4


def _library() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise MissingExtraError(
            "byte-pair tokens need a package that is not installed", got=error, fix="pip install 'nxjax[genai]'"
        ) from None


@contextlib.contextmanager
def _calm(error: type[NxError], what: str) -> Generator[None]:
    """Errors of the library as ours: a fault in its own code is one that ``except Exception`` does not catch."""
    try:
        yield
    except BaseException as raised:
        if not isinstance(raised, Exception) and type(raised).__name__ != "PanicException":
            raise
        raise error(what, got=str(raised)[:300]) from None


def _are_numbers(numbers: Collection[Any]) -> bool:
    """Whether tokens have the numbers 0, 1, 2, ..., each one of its own."""
    return all(type(i) is int for i in numbers) and sorted(numbers) == list(range(len(numbers)))


def _check(said: Any, name: str) -> None:
    """Raise for a description that makes the library take much more memory than the file has, or a text has.

    It makes room up to the largest number; and steps that write more than they read multiply one another.
    """
    try:
        vocab = said["model"]["vocab"]
        numbers = dict(vocab) if isinstance(vocab, dict) else {i: i for i in range(len(vocab))}
        for added in said.get("added_tokens") or ():
            numbers.setdefault(added["content"], added["id"])
        if not _are_numbers(numbers.values()):
            raise ValueError(f"{len(numbers)} tokens, whose numbers are not 0 to {len(numbers) - 1}")
        growing = [step for part in ("normalizer", "pre_tokenizer") for step in _growing(said.get(part))]
        written = [step["content"] if "content" in step else step.get("prepend", "") for step in growing]
        if len(growing) > _STEPS or any(len(text) > _WRITTEN for text in written):
            raise ValueError("a normalizer or pre_tokenizer that makes texts many times longer")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidFileError(f"{name}: not a tokenizer", got=f"{type(error).__name__}: {error}"[:300]) from None


def _growing(x: Any) -> Iterator[dict[str, Any]]:
    """The steps that may write more than they read."""
    if isinstance(x, dict):
        if x.get("type") in _GROWING:
            yield x
        x = list(x.values())
    for item in x if isinstance(x, list) else ():
        yield from _growing(item)


def _alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in tokens (Radford et al., GPT-2's encoder, 2019)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


@final
class Tokenizer:
    """Text to tokens and back (Sennrich et al., "Neural machine translation of rare words with subword units", 2016).

    Attributes:
        backend: the library's tokenizer, without padding and truncation.
        end: the number of the token that ends a text, None if there is none.

    >>> tokenizer = Tokenizer.train(["the cat and the hat"] * 3, vocabulary=262)
    >>> tokens = tokenizer.encode("the hat")
    >>> len(tokens) < len("the hat"), tokenizer.decode(tokens)
    (True, 'the hat')
    """

    @entry
    def __init__(self, backend: Any, end: int | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.end = end
        kind = json.loads(backend.to_str()).get("decoder") or {}
        if kind.get("type") != "ByteLevel":
            raise ParameterError(
                "Tokenizer: tokens are strings of bytes here", got=kind.get("type"), expected="a ByteLevel decoder"
            )
        self._special = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
        alphabet = _alphabet()
        numbers = backend.get_vocab(with_added_tokens=True)
        if not _are_numbers(numbers.values()):
            raise ParameterError(
                "Tokenizer: the numbers of tokens have gaps",
                got=f"{len(numbers)} tokens, the last of number {max(numbers.values())}",
                expected=f"0 to {len(numbers) - 1}",
            )
        self._bytes: list[bytes] = [b""] * len(numbers)
        for text, i in numbers.items():
            if i not in self._special:
                known = all(c in alphabet for c in text)
                self._bytes[i] = bytes(alphabet[c] for c in text) if known else text.encode()

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocabulary: int,
        *,
        special: Sequence[str] = (END,),
        end: str | None = END,
        least: int = 2,
    ) -> Tokenizer:
        """Merge the most frequent pairs until there are ``vocabulary`` tokens, or no pair occurs ``least`` times.

        Args:
            texts: the training texts.
            vocabulary: number of tokens: all 256 bytes, the special ones, and merges.
            special: texts of special tokens, which merges never produce.
            end: which of them ends a text.
            least: how often a pair must occur.

        Raises:
            ParameterError: too few tokens for all bytes, or an end that is not special.
            MissingExtraError: tokenizers is not installed.
        """
        fewest = BYTES + len(special)
        if type(vocabulary) is not int or vocabulary < fewest:
            raise ParameterError("Tokenizer.train: vocabulary", got=vocabulary, expected=f"{fewest} or more")
        if end is not None and end not in special:
            raise ParameterError("Tokenizer.train: end", got=end, expected=f"one of {', '.join(special)}, or None")
        library = _library()
        backend = library.Tokenizer(library.models.BPE())
        level = library.pre_tokenizers.ByteLevel
        backend.pre_tokenizer = level(add_prefix_space=False)
        backend.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(special),
            initial_alphabet=level.alphabet(),
            min_frequency=least,
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend, None if end is None else backend.token_to_id(end))

    def __len__(self) -> int:
        """How many tokens there are."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def special(self) -> dict[str, int]:
        """Texts of special tokens, and their numbers."""
        return {self.backend.id_to_token(i): i for i in sorted(self._special)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. Texts of special tokens become special tokens."""
        with _calm(ParameterError, "Tokenizer.encode: the library fails at this text"):
            return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; invalid UTF-8 becomes U+FFFD.

        Args:
            tokens: their numbers.
            special: write special tokens as their texts, instead of leaving them out.

        Raises:
            ParameterError: an unknown token.
        """
        parts = []
        for i in tokens:
            i = int(i)
            parts.append(self.backend.id_to_token(i).encode() if special and i in self._special else self.bytes_of(i))
        return b"".join(parts).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; none for special ones.

        Raises:
            ParameterError: an unknown token.
        """
        if not 0 <= token < len(self._bytes):
            raise ParameterError("Tokenizer: no such token", got=token, expected=f"0 to {len(self._bytes) - 1}")
        return self._bytes[token]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``tokenizer.json``, in the format of Hugging Face, and ``tokenizer_config.json``."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            safe_io.write(place / name, data)

    def files(self) -> dict[str, bytes]:
        """The files of `save`, by name."""
        end = None if self.end is None else self.backend.id_to_token(self.end)
        # Runtimes that read no tokenizer.json alone look for the class here.
        config = {
            "tokenizer_class": "GPT2Tokenizer",
            "add_prefix_space": False,
            "add_bos_token": False,
            "bos_token": end,
            "eos_token": end,
            "unk_token": end,
            "pad_token": end,
            "clean_up_tokenization_spaces": False,
        }
        return {FILE: self.backend.to_str().encode(), "tokenizer_config.json": json.dumps(config, indent=2).encode()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a ``tokenizer.json``, or the one in a folder; the end token comes from ``tokenizer_config.json`` next to
        it.

        Raises:
            InvalidFileError: not a tokenizer in the library's format.
            ParameterError: the tokenizer is not byte-level.
        """
        file = Path(path)
        file = file / FILE if file.is_dir() else file
        said = safe_io.described(file)
        library = _library()
        _check(said, file.name)
        with _calm(InvalidFileError, f"{file.name}: not a tokenizer"):
            backend = library.Tokenizer.from_str(json.dumps(said))
        beside = file.with_name("tokenizer_config.json")
        try:
            named = safe_io.described(beside).get("eos_token") if beside.exists() else None
        except (ValueError, AttributeError) as error:
            raise InvalidFileError(f"{beside.name}: not a JSON object", got=str(error)) from None
        named = named.get("content") if isinstance(named, dict) else named
        return cls(backend, backend.token_to_id(named) if isinstance(named, str) else None)

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens, end {self.end})"
