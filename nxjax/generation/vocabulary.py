"""The vocabulary of a GGUF file as a tokenizer of the `tokenizers` library. Knows no model.

Keys: github.com/ggml-org/ggml, docs/gguf.md; how texts are parted: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nxjax.errors import InvalidFileError

_KEY: Final = "tokenizer.ggml."
# Kinds of tokens: unknown, control, the user's own.
_UNKNOWN, _CONTROL, _OWN = 2, 3, 4
_NAMED: Final = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
# Control tokens that end a text, also where no key says so, as llama.cpp takes them: of turns, and of texts.
_ENDS: Final = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>", "<|endoftext|>")
_SPACE: Final = "\u2581"
_QWEN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3: Final = _QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
# How texts are parted before pairs are merged, by ``tokenizer.ggml.pre``: by patterns, one after another.
_PARTED: Final[dict[str, tuple[str, ...]]] = {
    "gpt-2": (_GPT2,), "smollm": (r"\p{N}", _GPT2), "qwen2": (_QWEN,), "llama-bpe": (_LLAMA3,), "llama3": (_LLAMA3,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
}  # fmt: skip
# Those where a token that is one text is not made of pairs, and a token begins a text.
_WHOLE: Final = ("llama-bpe", "llama3")


def backend_of(
    library: Any, metadata: Mapping[str, Any], where: str
) -> tuple[Any, list[int], list[int], str | None, dict[str, str]]:
    """The library's tokenizer, tokens that begin a text, tokens that end one, the template of conversations, and the
    texts of tokens by what they are for.

    Raises:
        InvalidFileError: a kind of vocabulary that nxjax does not know, or one whose lists do not fit.
    """
    own = {k[len(_KEY) :]: v for k, v in metadata.items() if k.startswith(_KEY)}
    tokens, kind = own.get("tokens"), own.get("model")
    if not isinstance(tokens, list) or len(set(map(str, tokens))) != len(tokens):
        raise InvalidFileError(f"{where}: {_KEY}tokens", got=type(tokens).__name__, expected="different texts")
    kinds, scores = own.get("token_type") or [1] * len(tokens), own.get("scores") or [0.0] * len(tokens)
    if not (isinstance(kinds, list) and isinstance(scores, list) and len(kinds) == len(scores) == len(tokens)):
        raise InvalidFileError(
            f"{where}: {_KEY}token_type, {_KEY}scores", expected=f"one for each of {len(tokens)} tokens"
        )
    numbers = {str(t): i for i, t in enumerate(tokens)}
    if kind == "gpt2":
        backend = _byte_level(library, numbers, own, where)
    elif kind in ("llama", "t5"):
        backend = _pieces(library, numbers, scores, own, kind, where)
    else:
        raise InvalidFileError(f"{where}: {_KEY}model", got=kind, expected="gpt2, llama, t5")
    for sort, is_special in ((_CONTROL, True), (_OWN, False)):
        added = [t for t, k in zip(tokens, kinds, strict=True) if k == sort]
        token = lambda t, s=is_special: library.AddedToken(t, normalized=False, special=s)
        (backend.add_special_tokens if is_special else backend.add_tokens)([token(t) for t in added])
    number = lambda name: [i] if isinstance(i := own.get(f"{name}_token_id"), int) and 0 <= i < len(tokens) else []
    has_begin = own.get("add_bos_token", kind == "llama" or (kind == "gpt2" and own.get("pre") in _WHOLE))
    named_ends = [numbers[t] for t in _ENDS if t in numbers and kinds[numbers[t]] == _CONTROL]
    ends = list(dict.fromkeys([*number("eos"), *number("eot"), *number("eom"), *named_ends]))
    template = metadata.get("tokenizer.chat_template")
    named = {f"{name}_token": str(tokens[i]) for name, key in _NAMED.items() for i in number(key)}
    return backend, number("bos") if has_begin else [], ends, template if isinstance(template, str) else None, named


def _byte_level(library: Any, numbers: dict[str, int], own: dict[str, Any], where: str) -> Any:
    how = own.get("pre", "default")
    if how not in _PARTED:
        raise InvalidFileError(f"{where}: {_KEY}pre", got=how, expected=", ".join(_PARTED))
    merges = [tuple(str(m).split(" ")) for m in own.get("merges") or ()]
    if any(len(m) != 2 or any(x not in numbers for x in (*m, "".join(m))) for m in merges):
        raise InvalidFileError(f"{where}: {_KEY}merges", got="a pair that makes no token", expected="pairs of tokens")
    backend = library.Tokenizer(library.models.BPE(numbers, merges, ignore_merges=how in _WHOLE))
    parts = library.pre_tokenizers
    split = [parts.Split(library.Regex(pattern), "isolated") for pattern in _PARTED[how]]
    backend.pre_tokenizer = parts.Sequence([*split, parts.ByteLevel(False, use_regex=False)])
    if how == "qwen2":
        backend.normalizer = library.normalizers.NFC()
    backend.decoder = library.decoders.ByteLevel()
    return backend


def _pieces(
    library: Any, numbers: dict[str, int], scores: list[float], own: dict[str, Any], kind: str, where: str
) -> Any:
    """SentencePiece's: pairs merged by the score of what they make ("llama"), or the likeliest pieces ("t5")."""
    unknown = own.get("unknown_token_id", 0)
    texts = list(numbers)
    if not isinstance(unknown, int) or not 0 <= unknown < len(texts):
        raise InvalidFileError(f"{where}: {_KEY}unknown_token_id", got=unknown, expected=f"0 to {len(texts) - 1}")
    if kind == "t5":
        pieces = list(zip(texts, map(float, scores), strict=True))
        backend = library.Tokenizer(library.models.Unigram(pieces, unknown, byte_fallback="<0x00>" in numbers))
    else:
        merges = _merges(numbers, scores)
        model = library.models.BPE(numbers, merges, unk_token=texts[unknown], fuse_unk=True, byte_fallback=True)
        backend = library.Tokenizer(model)
    steps, has_prefix = library.normalizers, own.get("add_space_prefix", True)
    if own.get("precompiled_charsmap"):
        raise InvalidFileError(
            f"{where}: {_KEY}precompiled_charsmap", got="a table", expected="none: texts stay as they are"
        )
    fewer = [(r"\A +| +\z", ""), (" {2,}", " ")] if own.get("remove_extra_whitespaces") else []
    before = [steps.Replace(library.Regex(old), new) for old, new in fewer]
    before += [steps.Prepend(_SPACE)] if has_prefix else []
    backend.normalizer = steps.Sequence([*before, steps.Replace(" ", _SPACE)])
    decoders = library.decoders
    after = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*after, *([decoders.Strip(" ", 1, 0)] if has_prefix else [])])
    return backend


def _merges(numbers: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, the likeliest first."""
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for text, i in numbers.items():
        for cut in range(1, len(text)):
            left, right = numbers.get(text[:cut]), numbers.get(text[cut:])
            if left is not None and right is not None:
                found.append((-scores[i], left, right, (text[:cut], text[cut:])))
    return [pair for *_, pair in sorted(found)]
