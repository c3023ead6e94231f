"""Decoders as the files that others read: folders of Hugging Face, and GGUF files. The inverse of `pretrained`.

What only the original knows, the description and the tokenizer, is taken from it. Knows no step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_folder, safe_io
from nxjax.generation import gguf
from nxjax.generation.config import DecoderConfig
from nxjax.generation.families import Family, config_of, names_of
from nxjax.generation.model import Params, check
from nxjax.generation.pretrained import CONFIG, FLOATS, NORMS, TOKENS, chosen_names, each_name, is_apart, is_turned
from nxjax.generation.tokenizer import Tokenizer
from nxjax.interop.ggml import BLOCKS
from nxjax.interop.weights import gguf_keys, gguf_tensors
from nxjax.interop.writing import gguf_key, write_gguf, write_safetensors
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]
# The names whose tensors are joined to each parameter, by its path; of experts one for each.
Names = dict[tuple[Any, ...], list[list[str]]]
WEIGHTS: Final = "model.safetensors"
# Other files of a folder that are copied.
TOKENIZER: Final = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip
# Keys of config.json, and GGUF's.
_SPECIAL: Final = {"bos": "bos", "eos": "eos", "pad": "padding"}
# dtype -> the format of a GGUF file's matrices, and what the file says of it.
_FORMATS: Final = {"float32": (0, 0), "float16": (1, 1), "bfloat16": (30, 32), "q8_0": (8, 7)}
# Matrices that llama.cpp wants in float32.
_WIDE: Final = ("router", "shared_gate", "positions")
# Format -> the largest magnitude that it holds.
_LARGEST: Final = {0: 3.4028235e38, 1: 65504.0, 8: 127 * 65504.0, 30: 3.3895314e38}


@entry
def save_pretrained(
    path: str | os.PathLike[str],
    params: Params,
    config: DecoderConfig,
    like: str | os.PathLike[str],
    *,
    dtype: str = "float32",
) -> None:
    """Write parameters as a folder of Hugging Face or as a GGUF file, which `from_pretrained` and others read.

    The file or the folder is complete or not there. Parameters in few bits become floats, adapters are added.

    Args:
        path: of the file, if it ends with ``.gguf``; else of the folder: ``config.json``, ``model.safetensors`` and
            the tokenizer's files. A folder that has nothing else is replaced.
        params: of the decoder that `from_pretrained` gave for ``like``, trained or merged since.
        config: its sizes. Another context than the file's is not written.
        like: the folder or the GGUF file that the decoder comes from: its description and tokenizer are copied. A GGUF
            file can be written like another one only.
        dtype: of tensors: "float32", "float16", "bfloat16"; in a folder also "float64", in a GGUF file also "q8_0", 8
            bits with a scale for 32 numbers, where rows are blocks of 32 (others are float16). Vectors of a GGUF file,
            routers and positions are float32.

    Raises:
        ParameterError: parameters or sizes of another decoder, another dtype, numbers that are not finite or too large
            for it, a GGUF file like a folder, something else at ``path``.
        InvalidFileError: ``like`` is damaged, or no decoder.
        OSError: the disk is full, or the like.

    >>> import json, pathlib, tempfile
    >>> from nxjax.generation import from_pretrained, init
    >>> place = pathlib.Path(tempfile.mkdtemp())
    >>> said = {"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8}
    >>> said |= {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    >>> _ = (place / "config.json").write_text(json.dumps(said))
    >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 2, "head_size": 4, "hidden": 8}
    >>> config = DecoderConfig(**sizes, context=16, epsilon=1e-6, tied=False)
    >>> params = init(nx.random.key(0), config)
    >>> save_pretrained(place / "tuned", params, config, like=place)
    >>> again, same, _ = from_pretrained(place / "tuned")
    >>> same == config, nx.tree.all(nx.tree.map(lambda x, y: bool((x == y).all()), again, params))
    (True, True)
    """
    target, source = Path(path), Path(like)
    if not source.exists():
        raise InvalidFileError("save_pretrained: like: no such folder or file", got=str(source))
    is_file = target.suffix == ".gguf"
    known = tuple(_FORMATS) if is_file else FLOATS
    if dtype not in known:
        raise ParameterError("save_pretrained: dtype of tensors", got=dtype, expected=", ".join(known))
    if not is_file:
        return _write_folder(target, params, config, description(source), _tokenizer(source), dtype)
    if source.is_dir():
        raise ParameterError(
            "save_pretrained: like: a GGUF file is written like another one, which has its keys",
            got=f"the folder {source.name}",
            fix="write a folder, and let llama.cpp's convert_hf_to_gguf.py make the first file of it",
        )
    return _write_gguf(target, params, config, source, dtype)


def description(source: Path) -> dict[str, Any]:
    """What the ``config.json`` of a folder says, or would say of a GGUF file."""
    if source.is_dir():
        said = safe_io.described(source / CONFIG)
        if not isinstance(said, dict):
            raise InvalidFileError(f"{CONFIG}: not a JSON object", got=type(said).__name__)
        return said
    metadata, tensors = gguf_tensors(source)
    said = gguf.described(metadata, *gguf.shapes_and_factors(tensors), source.name)
    # Without them, readers take those of the family's first model.
    return said | {f"{n}_token_id": metadata.get(f"tokenizer.ggml.{key}_token_id") for n, key in _SPECIAL.items()}


def _tokenizer(source: Path) -> dict[str, bytes]:
    """The tokenizer's files by name."""
    if source.is_dir():
        return {n: safe_io.read(source / n, safe_io.TEXT) for n in TOKENIZER if (source / n).is_file()}
    metadata, _ = gguf_tensors(source)
    return Tokenizer.from_gguf(metadata, source.name).files() if TOKENS in metadata else {}


def _write_folder(
    target: Path, params: Params, config: DecoderConfig, said: dict[str, Any], beside: dict[str, bytes], dtype: str
) -> None:
    whole, family = config_of(said, CONFIG)
    _compare(params, config, whole)
    named: Names = {
        path: [[_full(n, family) for n in each_name(name, whole.experts)] for name in rows[0]]
        for path, rows in names_of(family, whole).items()
    }
    said = {k: v for k, v in said.items() if k != "torch_dtype"} | {"dtype": dtype}
    pieces = partial(_pieces, named=named, config=whole, family=family)
    rows = [(n, x.shape) for n, x in pieces(_shaped(whole, named))]
    own = lambda folder: {f.name for f in folder.iterdir()} <= {CONFIG, WEIGHTS, *TOKENIZER}
    with safe_folder.replacing_folder(
        target, "save_pretrained", own, "nothing, or a folder with no other files"
    ) as made:
        for name, data in beside.items():
            safe_io.write(made / name, data)
        with safe_io.replacing(made / WEIGHTS) as file:
            most = float(jnp.finfo(dtype).max)
            write_safetensors(file, rows, dtype, (_held(n, x, most) for n, x in pieces(_leaves(params, named))))
        safe_io.write(made / CONFIG, json.dumps(said, indent=2).encode())


def _full(name: str, family: Family) -> str:
    return name if name.startswith("lm_head.") else family.root + name


def _write_gguf(target: Path, params: Params, config: DecoderConfig, source: Path, dtype: str) -> None:
    metadata, tensors = gguf_tensors(source)
    whole, family = gguf.gguf_config(metadata, *gguf.shapes_and_factors(tensors), source.name)
    _compare(params, config, whole)
    kind, file_type = _FORMATS[dtype]
    copied = [n for n in tensors if n in gguf.FACTORS]
    named = chosen_names(whole, family, {*tensors} - {*copied}, source.name)
    heads = gguf.turned_heads(metadata, whole)

    def stored(x: NDArray, name: str) -> NDArray:
        turned = heads.get(name.split(".")[-2])
        x = x if turned is None else gguf.permuted(x, turned)
        return x.reshape(tensors[name].shape)

    def format_of(path: tuple[Any, ...], name: str) -> int:
        shape = tensors[name].shape
        if len(shape) < 2 or path[-1] in _WIDE:
            return 0
        return 1 if shape[-1] % BLOCKS[kind][0] else kind

    formats = {n: format_of(path, n) for path, rows in named.items() for row in rows for n in row}
    pieces = lambda leaves: ((n, stored(x, n)) for n, x in _pieces(leaves, named, whole, family))
    rows = [(n, tensors[n].shape, tensors[n].kind) for n in copied]
    rows += [(n, x.shape, formats[n]) for n, x in pieces(_shaped(whole, named))]
    keys = gguf_keys(source)
    keys |= {k: gguf_key(k, v) for k, v in (("general.file_type", file_type), ("general.quantization_version", 2))}

    def contents() -> Iterator[NDArray]:
        yield from (tensors[n].data for n in copied)
        yield from (_held(n, x, _LARGEST[formats[n]]) for n, x in pieces(_leaves(params, named)))

    with safe_io.replacing(target) as file:
        write_gguf(file, keys, rows, contents(), metadata.get("general.alignment", 32))


def compare(config: DecoderConfig, whole: DecoderConfig, what: str) -> None:
    """Raise an error that says ``what`` unless sizes are those of the described decoder; its context does not count."""
    given = replace(config, context=whole.context)
    if different := [f.name for f in fields(whole) if getattr(given, f.name) != getattr(whole, f.name)]:
        raise ParameterError(
            what,
            got=", ".join(f"{n} {getattr(config, n)}" for n in different),
            expected=", ".join(f"{n} {getattr(whole, n)}" for n in different),
        )


def _compare(params: Params, config: DecoderConfig, whole: DecoderConfig) -> None:
    compare(config, whole, "save_pretrained: like is another decoder")
    check(params, whole)


def _leaf(tree: Any, path: Sequence[Any]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _leaves(params: Params, named: Names) -> Iterator[tuple[tuple[Any, ...], NDArray]]:
    """Parameters by path, as floats."""
    return ((path, np.asarray(_leaf(params, path))) for path in named)


def _shaped(config: DecoderConfig, named: Names) -> Iterator[tuple[tuple[Any, ...], NDArray]]:
    """The same without numbers: arrays of the right shapes that take no memory."""
    return ((path, np.broadcast_to(np.float32(0), _leaf(config.shapes, path))) for path in named)


def _pieces(
    leaves: Iterator[tuple[tuple[Any, ...], NDArray]], named: Names, config: DecoderConfig, family: Family
) -> Iterator[tuple[str, NDArray]]:
    """Tensors as a folder has them, with their names: what is joined is parted, and matrices are turned back."""
    inner = config.heads * config.head_size
    for path, leaf in leaves:
        rows = named[path]
        ends = [inner, inner + config.kv_heads * config.head_size] if len(rows) == 3 else len(rows)
        if family.lifted and path[-1] in NORMS:
            leaf = leaf - np.float32(1)
        for names, part in zip(rows, np.split(leaf, ends, -1), strict=True):
            part = np.swapaxes(part, -1, -2) if part.ndim > 1 and is_turned(path, family) else part
            yield from zip(names, part if is_apart(names) else [part], strict=True)


def _held(name: str, x: NDArray, most: float) -> NDArray:
    """``x``, whose magnitudes are at most what the file holds."""
    largest = float(np.abs(x).max(initial=0))
    if not largest <= most:
        raise ParameterError(
            f"save_pretrained: tensor {name!r} has a number that the file does not hold",
            got=largest,
            expected=f"magnitudes up to {most:g}",
            fix="train with smaller steps, or write another dtype",
        )
    return x
