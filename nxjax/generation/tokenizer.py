"""Tokens through the `tokenizers` library: train, keep, read, encode, decode; and the bytes of each token.

Every token is a string of bytes, so that text can be put together from tokens as they come: byte-level pairs, and
SentencePiece's pieces, whose spaces are a character of their own. Knows no model.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from nxjax.errors import InvalidFileError, MissingExtraError, NxError, ParameterError
from nxjax.files import safe_io
from nxjax.generation.chat import rendered
from nxjax.generation.vocabulary import backend_of
from nxjax.trace.boundary import entry

END: Final = "<|end|>"
FILE: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"
SPECIAL: Final = "special_tokens_map.json"
ENDS: Final = "generation_config.json"
# The least vocabulary: one token for every byte.
BYTES: Final = 256
# Steps on texts that may write more than they read; how many there may be, and the characters that one may write.
_GROWING: Final = ("ByteLevel", "Metaspace", "Prepend", "Replace")
_STEPS: Final = 4
_WRITTEN: Final = 4
_BYTE: Final = re.compile("<0x[0-9A-F]{2}>")


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
        numbers = dict(vocab) if isinstance(vocab, dict) else {row[0]: i for i, row in enumerate(vocab)}
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


def _byte_level(text: str, alphabet: Mapping[str, int]) -> bytes:
    known = all(c in alphabet for c in text)
    return bytes(alphabet[c] for c in text) if known else text.encode()


def _piece(text: str) -> bytes:
    """The bytes of one of SentencePiece's pieces; ``<0x0A>`` is a byte."""
    if _BYTE.fullmatch(text):
        return bytes([int(text[3:5], 16)])
    return text.replace("\u2581", " ").encode()


def _beside(file: Path, name: str) -> dict[str, Any]:
    """What a file of JSON next to a tokenizer says; nothing if it is not there."""
    beside = file.with_name(name)
    try:
        said = safe_io.described(beside) if beside.exists() else {}
    except ValueError as error:
        raise InvalidFileError(f"{name}: not a JSON object", got=str(error)) from None
    if not isinstance(said, dict):
        raise InvalidFileError(f"{name}: not a JSON object", got=type(said).__name__)
    return said


def _named(said: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens, by the keys that end with ``_token``; some files say more of each."""
    texts = {k: v.get("content") if isinstance(v, dict) else v for k, v in said.items() if k.endswith("_token")}
    return {k: v for k, v in texts.items() if isinstance(v, str)}


def _template(file: Path, said: Any) -> str | None:
    """The template of conversations, the one named "default" of several."""
    beside = file.with_name("chat_template.jinja")
    if beside.exists():
        return beside.read_text("utf-8")
    if isinstance(said, list):
        rows = {row.get("name"): row.get("template") for row in said if isinstance(row, dict)}
        said = rows.get("default")
    return said if isinstance(said, str) else None


@final
class Tokenizer:
    """Text to tokens and back (Sennrich et al., "Neural machine translation of rare words with subword units", 2016).

    Attributes:
        backend: the library's tokenizer, without padding and truncation.
        end: the number of the token that ends a text, None if there is none.
        ends: all that do.
        begin: tokens that the first text of a sequence starts with, as `prompt` puts them.
        template: of conversations, in Jinja; None if there is none.
        named: texts of tokens by what they are for, "bos_token", "eos_token" and others, as templates call them.

    >>> tokenizer = Tokenizer.train(["the cat and the hat"] * 3, vocabulary=262)
    >>> tokens = tokenizer.encode("the hat")
    >>> len(tokens) < len("the hat"), tokenizer.decode(tokens)
    (True, 'the hat')
    """

    @entry
    def __init__(
        self,
        backend: Any,
        end: int | Sequence[int] | None = None,
        *,
        begin: Sequence[int] | None = None,
        template: str | None = None,
        named: Mapping[str, str] | None = None,
    ) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.ends: tuple[int, ...] = () if end is None else (end,) if isinstance(end, int) else tuple(end)
        self.end = self.ends[0] if self.ends else None
        self.template = template
        kind = json.loads(backend.to_str()).get("decoder") or {}
        steps = {step.get("type"): step for step in (kind.get("decoders") or [kind])}
        is_pieces = "Metaspace" in steps or steps.get("Replace", {}).get("content") == " "
        if "ByteLevel" not in steps and not is_pieces:
            raise ParameterError(
                "Tokenizer: tokens are strings of bytes here",
                got=kind.get("type"),
                expected="a ByteLevel decoder, or one of SentencePiece's pieces",
            )
        # Of pieces, the space before the first word is not of the text.
        prepends = steps.get("Metaspace", {}).get("prepend_scheme", "never") != "never"
        self._leads = is_pieces and (prepends or steps.get("Strip", {}).get("start", 0) > 0)
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
                self._bytes[i] = _piece(text) if is_pieces else _byte_level(text, alphabet)
        self.begin: tuple[int, ...] = self._template_begin() if begin is None else tuple(begin)
        if unknown := [i for i in (*self.ends, *self.begin) if i not in range(len(numbers))]:
            raise ParameterError("Tokenizer: no such token", got=unknown[0], expected=f"0 to {len(numbers) - 1}")
        own = {"bos_token": self._text_of(self.begin[:1]), "eos_token": self._text_of(self.ends[:1])}
        self.named: dict[str, str] = {**{k: v for k, v in own.items() if v}, **(named or {})}

    def _template_begin(self) -> tuple[int, ...]:
        """What the library puts before a text."""
        with _calm(ParameterError, "Tokenizer: the library fails at a text"):
            bare = self.backend.encode("a", add_special_tokens=False).ids
            whole = self.backend.encode("a").ids
        found = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), 0)
        return tuple(whole[:found])

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

    def prompt(self, text: str) -> list[int]:
        """The tokens of a text that starts a sequence: those of `encode`, after ``begin``."""
        return [*self.begin, *self.encode(text)]

    def chat(self, messages: Sequence[Mapping[str, Any]], *, reply: bool = True, **variables: Any) -> list[int]:
        """The tokens of a conversation, by the tokenizer's template.

        Args:
            messages: each with "role" and "content".
            reply: whether the beginning of an answer follows.
            variables: other names that the template uses.

        Raises:
            ParameterError: the tokenizer has no template.
            InvalidFileError: the template refuses the messages.
            MissingExtraError: jinja2 is not installed.
        """
        if self.template is None:
            raise ParameterError("Tokenizer.chat: there is no template of conversations", got=None, fix="use texts")
        text = rendered(self.template, messages, **{"add_generation_prompt": reply, **self.named, **variables})
        return self.encode(text)

    def _text_of(self, tokens: Sequence[int]) -> str:
        return "".join(self.backend.id_to_token(i) for i in tokens)

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
        text = b"".join(parts).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._leads else text

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; none for special ones.

        Raises:
            ParameterError: an unknown token.
        """
        if not 0 <= token < len(self._bytes):
            raise ParameterError("Tokenizer: no such token", got=token, expected=f"0 to {len(self._bytes) - 1}")
        return self._bytes[token]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``tokenizer.json``, in the format of Hugging Face, ``tokenizer_config.json``, and of several end tokens
        ``generation_config.json``."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            safe_io.write(place / name, data)

    def files(self) -> dict[str, bytes]:
        """The files of `save`, by name."""
        # Runtimes that read no tokenizer.json alone look here. This class is what tokenizer.json says, whatever it is.
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "add_bos_token": bool(self.begin),
            **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token")),
            **self.named,
            "clean_up_tokenization_spaces": False,
        }
        if self.template is not None:
            config["chat_template"] = self.template
        made: dict[str, Any] = {SETTINGS: config}
        if len(self.ends) > 1:
            made[ENDS] = {"eos_token_id": list(self.ends)}
        return {FILE: self._text().encode(), **{n: json.dumps(x, indent=2).encode() for n, x in made.items()}}

    def _text(self) -> str:
        """The library's description, which puts ``begin`` before texts."""
        text = self.backend.to_str()
        if self.begin == self._template_begin():
            return text
        library, first = _library(), [self.backend.id_to_token(i) for i in self.begin]
        copy, named = library.Tokenizer.from_str(text), list(zip(first, self.begin, strict=True))
        copy.post_processor = library.processors.TemplateProcessing(single=[*first, "$A"], special_tokens=named)
        return copy.to_str()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a ``tokenizer.json``, or the one in a folder.

        End tokens, named ones and the template of conversations come from ``tokenizer_config.json``,
        ``special_tokens_map.json``, ``generation_config.json`` and ``chat_template.jinja`` next to it.

        Raises:
            InvalidFileError: not a tokenizer in the library's format.
            ParameterError: tokens are no strings of bytes.
        """
        file = Path(path)
        file = file / FILE if file.is_dir() else file
        said = safe_io.described(file)
        library = _library()
        _check(said, file.name)
        with _calm(InvalidFileError, f"{file.name}: not a tokenizer"):
            backend = library.Tokenizer.from_str(json.dumps(said))
        said = _beside(file, SETTINGS)
        named = _named({**_beside(file, SPECIAL), **said})
        first = backend.token_to_id(named["eos_token"]) if "eos_token" in named else None
        given = _beside(file, ENDS).get("eos_token_id")
        listed = given if isinstance(given, list) else [given]
        size = backend.get_vocab_size(with_added_tokens=True)
        more: list[int] = [i for i in listed if type(i) is int and 0 <= i < size]
        ends = [*([] if first is None else [first]), *(i for i in more if i != first)]
        return cls(backend, ends, template=_template(file, said.get("chat_template")), named=named)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], name: str = "metadata") -> Tokenizer:
        """The tokenizer that the keys of a GGUF file describe.

        Args:
            metadata: of `nx.interop.load_gguf`.
            name: of the file, for errors.

        Raises:
            InvalidFileError: a vocabulary of another kind, or a damaged one.
            MissingExtraError: tokenizers is not installed.
        """
        with _calm(InvalidFileError, f"{name}: not a tokenizer"):
            backend, begin, ends, template, named = backend_of(_library(), metadata, name)
        return cls(backend, ends, begin=begin, template=template, named=named)

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens, end {self.end})"
