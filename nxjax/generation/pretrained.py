"""Decoders from the files that others write: folders of Hugging Face, and GGUF files.

What a description means is in `families`, what GGUF calls it in `gguf`; here tensors become a tree of parameters, all
of them or none. Knows no step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.generation import gguf
from nxjax.generation.config import DecoderConfig
from nxjax.generation.families import Family, config_of, names_of
from nxjax.generation.model import Params
from nxjax.generation.tokenizer import FILE, Tokenizer
from nxjax.interop.graphs.mapped import let_go
from nxjax.interop.weights import gguf_tensors, load_safetensors
from nxjax.quant.packed import packed
from nxjax.quant.qarray import QArray
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]
CONFIG: Final = "config.json"
HEAD: Final = "lm_head.weight"
# Parts of names that a base model leaves out, and buffers that older files hold.
_PREFIXES: Final = ("model.", "transformer.")
_BUFFERS: Final = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
# Parameters that are no matrices of products.
_TABLES: Final = ("embedding", "positions")
_SHOWN: Final = 5
TOKENS: Final = "tokenizer.ggml.tokens"
FLOATS: Final = ("float32", "bfloat16", "float16", "float64")


@entry
def from_pretrained(
    path: str | os.PathLike[str], *, context: int | None = None, dtype: Any = "float32"
) -> tuple[Params, DecoderConfig, Tokenizer | None]:
    """Parameters, sizes and tokenizer of a decoder, from a folder of Hugging Face or a GGUF file.

    The folder has ``config.json`` and ``model.safetensors``, or several with an index, and may have
    ``tokenizer.json``. Families: Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3, Phi-3, GPT-2, Mixtral, Qwen-MoE. The model
    is `forward`, `extend` and what builds on them; parameters are float arrays of one dtype. Of a GGUF file, Q4_0,
    Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K stay whole numbers with a scale for each group (`QArray`), other formats
    become floats.

    Args:
        path: the folder, or the file.
        context: the most tokens of a sequence, for which positions and caches have room; by default the file's.
        dtype: of parameters that are floats.

    Returns:
        ``(params, config, tokenizer)``, as `load`; the tokenizer is None if there is none.

    Raises:
        InvalidFileError: a folder or file of another kind, a damaged one, a missing or an unknown tensor, a tensor of
            another shape, a key of the description that nxjax does not understand.
        ParameterError: a dtype that is no float, a context out of range.
        OSError: no such file.

    >>> import tempfile
    >>> from_pretrained(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    nxjax.errors.InvalidFileError: ...
    """
    place, kept = Path(path), _dtype(dtype)
    if not place.exists():
        raise InvalidFileError("from_pretrained: no such folder or file", got=str(place))
    if not place.is_dir():
        return _gguf(place, context, kept)
    if not (place / CONFIG).is_file():
        beside = ", ".join(sorted(f.name for f in place.iterdir())[:_SHOWN]) or "an empty folder"
        raise InvalidFileError(f"{place.name}: no folder of a decoder", got=beside, expected=f"{CONFIG}, and weights")
    said = safe_io.described(place / CONFIG)
    if not isinstance(said, dict):
        raise InvalidFileError(f"{CONFIG}: not a JSON object", got=type(said).__name__)
    whole, family = config_of(said, CONFIG)
    config = _within(whole, context)
    tokenizer = Tokenizer.load(place) if (place / FILE).exists() else None
    try:
        weights = load_safetensors(place)
    except ParameterError as error:
        raise InvalidFileError(f"{place.name}: no weights", got=error.got, expected="model.safetensors") from None
    stored = {_short(name): name for name in weights if not name.endswith(_BUFFERS)}
    read = lambda name: np.asarray(weights[stored[name]])
    return _assembled(whole, config, family, stored, read, kept, place.name), config, tokenizer


def _gguf(file: Path, context: int | None, dtype: Any) -> tuple[Params, DecoderConfig, Tokenizer | None]:
    """The same of a GGUF file."""
    metadata, tensors = gguf_tensors(file)
    tokenizer = Tokenizer.from_gguf(metadata, file.name) if TOKENS in metadata else None
    whole, family = gguf.gguf_config(metadata, *gguf.shapes_and_factors(tensors), file.name)
    config = _within(whole, context)
    turned = gguf.turned_heads(metadata, config)

    def read(name: str) -> Any:
        # What was read before is in arrays of its own.
        let_go(tensors[name].data)
        x, kind = gguf.tensor(tensors[name]), name.split(".")[-2]
        return gguf.reordered(x, turned[kind]) if kind in turned else x

    stored = [n for n in tensors if n not in gguf.FACTORS]
    return _assembled(whole, config, family, stored, read, dtype, file.name), config, tokenizer


def _dtype(given: Any) -> Any:
    try:
        found = jnp.dtype("int8" if given is None else given)
    except TypeError:
        found = None
    if str(found) not in FLOATS:
        raise ParameterError("from_pretrained: dtype of parameters", got=given, expected=", ".join(FLOATS))
    return found


def _within(config: DecoderConfig, context: int | None) -> DecoderConfig:
    """The description with another context."""
    if context is None:
        return config
    most = config.context if config.learned_positions else None
    if type(context) is not int or context < 1 or (most is not None and context > most):
        expected = "a whole number, 1 or more" if most is None else f"1 to {most}, the table of positions"
        raise ParameterError("from_pretrained: context", got=context, expected=expected)
    return replace(config, context=context)


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _assembled(
    whole: DecoderConfig,
    config: DecoderConfig,
    family: Family,
    stored: Iterable[str],
    read: Callable[[str], NDArray | gguf.IntegerMatrix],
    dtype: Any,
    where: str,
) -> Params:
    """The tree of parameters, once all tensors are there and none is left over; ``whole`` has the file's context."""
    names = set(stored)
    chosen = chosen_names(whole, family, names, where)
    table = chosen["embedding",][0][0]
    if whole.tied and HEAD in names and not np.array_equal(np.asarray(read(HEAD)), np.asarray(read(table))):
        raise InvalidFileError(
            f"{where}: tensors {HEAD!r} and {table!r} differ, and 'tie_word_embeddings' says they are one",
            fix=f"write tie_word_embeddings: false in {CONFIG}, or leave out {HEAD}",
        )
    leaves: dict[tuple[Any, ...], Any] = {}
    for path, rows in chosen.items():
        want = _at(whole.shapes if len(path) == 1 else whole.shapes["layers"][path[1]], path)
        parts = [np.stack([np.asarray(read(n)) for n in row]) if is_apart(row) else read(row[0]) for row in rows]
        if family.lifted and path[-1] in NORMS:
            parts = [1 + np.asarray(p, np.float32) for p in parts]
        try:
            leaf = _laid(gguf.joined(parts, is_turned(path, family), dtype), path)
        except ValueError as error:
            raise InvalidFileError(
                f"{where}: tensor {rows[0][0]!r} and those beside it", got=str(error)[:200]
            ) from None
        if want == (whole.width, 1) and leaf.shape == want[:1]:
            leaf = leaf[:, None]
        if leaf.shape != want:
            raise InvalidFileError(
                f"{where}: tensor {rows[0][0]!r} is not of the described size", got=leaf.shape, expected=want
            )
        leaves[path] = leaf[: config.context] if path == ("positions",) else leaf
    return _tree(leaves, whole)


def is_turned(path: tuple[Any, ...], family: Family) -> bool:
    """Whether files have a parameter's matrix as [outputs, inputs]."""
    return path[-1] not in _TABLES and not (family.rows_first and path[-1] != "head")


def _laid(leaf: Any, path: tuple[Any, ...]) -> Any:
    """Weights in few bits as products read them; of positions a part may be cut off."""
    if not isinstance(leaf, QArray) or path == ("positions",):
        return leaf
    return packed(leaf, flipped=path[-1] in _TABLES)


NORMS: Final = ("norm", "post_norm", "q_norm", "k_norm")


def _at(shapes: Any, path: tuple[Any, ...]) -> tuple[int, ...]:
    return shapes[path[0]] if len(path) == 1 else shapes[path[2]][path[3]]


def _tree(leaves: Mapping[tuple[Any, ...], Any], config: DecoderConfig) -> Params:
    params: Params = {}
    layers: list[Params] = [{} for _ in range(config.layers)]
    for path, leaf in leaves.items():
        if len(path) == 1:
            params[path[0]] = leaf
        else:
            layers[path[1]].setdefault(path[2], {})[path[3]] = leaf
    return {**params, "layers": layers}


def chosen_names(
    config: DecoderConfig, family: Family, stored: set[str], where: str
) -> dict[tuple[Any, ...], list[list[str]]]:
    """For each parameter the names whose tensors are joined; each is a list, of the experts' if there are several."""
    found: dict[tuple[Any, ...], list[list[str]]] = {}
    missing: list[str] = []
    left = set(stored)
    for path, alternatives in names_of(family, config).items():
        options = [[each_name(name, config.experts) for name in row] for row in alternatives]
        have = [o for o in options if all(n in stored for names in o for n in names)]
        if not have:
            # The names that are partly there are what the file means.
            nearest = max(options, key=lambda o: sum(n in stored for names in o for n in names))
            missing += [n for names in nearest for n in names if n not in stored]
            continue
        found[path] = have[0]
        left -= {n for names in have[0] for n in names}
    if missing:
        raise InvalidFileError(
            f"{where}: {len(missing)} tensors are missing",
            got=f"{len(stored)} tensors",
            expected=", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else ""),
        )
    if config.tied:
        left.discard(HEAD)  # which older files repeat
    if left:
        raise InvalidFileError(
            f"{where}: {len(left)} tensors that this decoder does not use",
            got=", ".join(sorted(left)[:_SHOWN]) + (", ..." if len(left) > _SHOWN else ""),
            fix="leaving them out would change logits; config.json may be another model's",
        )
    return found


def each_name(name: str, experts: int) -> list[str]:
    return [name.replace("{e}", str(e)) for e in range(experts)] if "{e}" in name else [name]


def is_apart(names: Sequence[str]) -> bool:
    """Whether each of these names is one expert's matrix, and they are a tensor together; there may be one expert."""
    return ".experts.0." in names[0]
