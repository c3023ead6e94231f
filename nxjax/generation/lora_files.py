"""Adapters as the folders that PEFT and its readers know: ``adapter_config.json``, ``adapter_model.safetensors``.

A matrix that is one here and several in a file (queries, keys and values) has one adapter here. Its ``a`` is the
files' side by side, its ``b`` has theirs as blocks; files that share an ``a``, as those written here do, need it once.

Names and keys: github.com/huggingface/peft, src/peft/tuners/lora/config.py and src/peft/utils/save_and_load.py.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_folder, safe_io
from nxjax.generation.config import DecoderConfig
from nxjax.generation.families import Family, config_of, names_of
from nxjax.generation.lora import TARGETS, Adapter
from nxjax.generation.model import Params
from nxjax.generation.pretrained import CONFIG, FLOATS
from nxjax.generation.written import compare, description
from nxjax.interop.weights import load_safetensors
from nxjax.interop.writing import write_safetensors
from nxjax.trace.boundary import entry

NDArray = np.ndarray[Any, Any]
SETTINGS: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_ROOT: Final = "base_model.model."
# Keys that say nothing of what is computed.
_SILENT = """
    auto_mapping base_model_name_or_path ensure_weight_tying eva_config exclude_modules fan_in_fan_out inference_mode
    layers_pattern layers_to_transform lora_dropout megatron_core peft_version qalora_group_size r rank_pattern revision
    runtime_config target_modules task_type
"""
# The values that others may have, beside null, false, and what is empty.
_ONLY: Final[dict[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",), "bias": ("none",),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}  # fmt: skip
_KNOWN: Final = frozenset((*_SILENT.split(), "lora_alpha", "alpha_pattern", "use_rslora"))


@entry
def lora_from_pretrained(path: str | os.PathLike[str], config: DecoderConfig, like: str | os.PathLike[str]) -> Params:
    """Adapters of a folder that PEFT wrote, as `lora_init` gives them.

    Args:
        path: the folder: ``adapter_config.json`` and ``adapter_model.safetensors``.
        config: sizes of the decoder that `from_pretrained` gave for ``like``.
        like: the folder or the GGUF file of that decoder, which says how its matrices are called.

    Returns:
        ``{"layers": [{"attention": {"qkv": Adapter, ...}, "mlp": {...}}, ...]}``, in float32, for `lora_apply` and
        `lora_merge`.

    Raises:
        InvalidFileError: a folder of another kind, a damaged one, a key that nxjax does not understand, a tensor that
            is missing, of another shape, or of a matrix that has no adapter here.
        ParameterError: ``like`` is another decoder than ``config``.

    >>> import tempfile
    >>> from nxjax.generation import DecoderConfig
    >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 4, "hidden": 8}
    >>> lora_from_pretrained(tempfile.mkdtemp(), DecoderConfig(**sizes), "base")
    Traceback (most recent call last):
        ...
    nxjax.errors.InvalidFileError: ...
    """
    place = Path(path)
    if not (place / SETTINGS).is_file() or not (place / WEIGHTS).is_file():
        have = ", ".join(sorted(f.name for f in place.iterdir())[:8]) if place.is_dir() else "no folder"
        raise InvalidFileError(
            f"{place.name}: no folder of adapters",
            got=have or "an empty folder",
            expected=f"{SETTINGS} and {WEIGHTS}",
            fix="PEFT's save_pretrained writes them; a .bin file is a pickle and is not read",
        )
    said = safe_io.described(place / SETTINGS)
    if not isinstance(said, dict):
        raise InvalidFileError(f"{SETTINGS}: not a JSON object", got=type(said).__name__)
    _check(said)
    whole, family = _decoder(config, like)
    weights = load_safetensors(place / WEIGHTS)
    left = set(weights)

    def factors(module: str) -> tuple[NDArray, NDArray] | None:
        names = [f"{_ROOT}{module}.lora_{part}.weight" for part in "AB"]
        have = [n for n in names if n in left]
        if len(have) == 1:
            raise InvalidFileError(f"{WEIGHTS}: half of an adapter", got=have[0], expected=" and ".join(names))
        left.difference_update(names)
        if not have:
            return None
        a, b = (np.asarray(weights[n], np.float32) for n in names)
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
            raise InvalidFileError(
                f"{WEIGHTS}: the adapter of {module!r}",
                got=f"{a.shape} and {b.shape}",
                expected="[rank, inputs] and [outputs, rank]",
            )
        return a, b * np.float32(_scale(said, module, a.shape[0]))

    rows: list[Params] = [{} for _ in range(whole.layers)]
    for layer, part, leaf, shape, alternatives in _places(whole, family):
        modules = max(alternatives, key=lambda row: sum(f"{_ROOT}{m}.lora_A.weight" in left for m in row))
        found = [factors(m) for m in modules]
        if any(f is not None for f in found):
            rows[layer].setdefault(part, {})[leaf] = _joined(found, _widths(shape[1], modules, whole), shape, modules)
    if left:
        raise InvalidFileError(
            f"{WEIGHTS}: {len(left)} tensors of matrices that have no adapter here",
            got=", ".join(sorted(left)[:6]),
            expected=f"matrices of layers ({', '.join(TARGETS)}) of the decoder {Path(like).name}",
        )
    return {"layers": rows}


@entry
def lora_save_pretrained(
    path: str | os.PathLike[str],
    adapters: Params,
    config: DecoderConfig,
    like: str | os.PathLike[str],
    *,
    dtype: str = "float32",
) -> None:
    """Write adapters as a folder that PEFT reads, for the decoder in ``like``.

    The folder is complete or not there; one that has nothing else is replaced.

    Args:
        path: of the folder.
        adapters: of `lora_init`, trained.
        config: sizes of the decoder.
        like: the folder or the GGUF file of the decoder that the adapters are for.
        dtype: of tensors: "float32", "float16", "bfloat16", "float64".

    Raises:
        ParameterError: adapters or sizes of another decoder, another dtype, something else at ``path``.
        InvalidFileError: ``like`` is damaged, or no decoder.

    >>> import json, pathlib, tempfile
    >>> from nxjax.generation import DecoderConfig, init, lora_init
    >>> place = pathlib.Path(tempfile.mkdtemp())
    >>> said = {"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8}
    >>> said |= {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    >>> _ = (place / "config.json").write_text(json.dumps(said))
    >>> sizes = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "kv_heads": 2, "head_size": 4, "hidden": 8}
    >>> config = DecoderConfig(**sizes, context=16, epsilon=1e-6, tied=False)
    >>> adapters = lora_init(nx.random.key(1), init(nx.random.key(0), config), rank=2)
    >>> lora_save_pretrained(place / "adapter", adapters, config, like=place)
    >>> again = lora_from_pretrained(place / "adapter", config, like=place)
    >>> nx.tree.structure(again) == nx.tree.structure(adapters)
    True
    """
    if dtype not in FLOATS:
        raise ParameterError("lora_save_pretrained: dtype of tensors", got=dtype, expected=", ".join(FLOATS))
    whole, family = _decoder(config, like)
    layers = adapters["layers"]
    if len(layers) != whole.layers:
        raise ParameterError(
            "lora_save_pretrained: adapters of another decoder", got=f"{len(layers)} layers", expected=whole.layers
        )
    made: dict[str, tuple[NDArray, NDArray, float]] = {}
    for layer, part, leaf, shape, alternatives in _places(whole, family):
        adapter = layers[layer].get(part, {}).get(leaf)
        if adapter is None:
            continue
        if tuple(adapter.shape) != tuple(shape):
            raise ParameterError(
                f"lora_save_pretrained: adapters of another decoder: layers.{layer}.{part}.{leaf}",
                got=tuple(adapter.shape),
                expected=tuple(shape),
            )
        modules = alternatives[0]
        a, b = np.asarray(adapter.a).T, np.asarray(adapter.b).T
        ends = np.cumsum(_widths(shape[1], modules, whole))[:-1]
        made |= {m: (a, rows, adapter.alpha) for m, rows in zip(modules, np.split(b, ends), strict=True)}
    if not made:
        raise ParameterError("lora_save_pretrained: no adapters", got="layers without any", fix="lora_init makes them")
    rank, alpha = (_commonest(v) for v in ([a.shape[0] for a, _, _ in made.values()], [x for *_, x in made.values()]))
    said = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": os.fspath(like), "r": rank,
        "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none", "inference_mode": True,
        "fan_in_fan_out": family.rows_first, "target_modules": sorted(made),
        "rank_pattern": {m: a.shape[0] for m, (a, _, _) in made.items() if a.shape[0] != rank},
        "alpha_pattern": {m: x for m, (*_, x) in made.items() if x != alpha},
    }  # fmt: skip
    tensors: dict[str, NDArray] = {}
    for module, (a, b, _) in made.items():
        tensors |= {f"{_ROOT}{module}.lora_A.weight": a, f"{_ROOT}{module}.lora_B.weight": b}
    own = lambda folder: {f.name for f in folder.iterdir()} <= {SETTINGS, WEIGHTS, "README.md"}
    with safe_folder.replacing_folder(
        path, "lora_save_pretrained", own, "nothing, or a folder with no other files"
    ) as folder:
        with safe_io.replacing(folder / WEIGHTS) as file:
            write_safetensors(file, [(n, x.shape) for n, x in tensors.items()], dtype, tensors.values())
        safe_io.write(folder / SETTINGS, json.dumps(said, indent=2).encode())


def _commonest(values: Sequence[Any]) -> Any:
    return max(values, key=values.count)


def _decoder(config: DecoderConfig, like: str | os.PathLike[str]) -> tuple[DecoderConfig, Family]:
    source = Path(like)
    if not source.exists():
        raise InvalidFileError("adapters: like: no such folder or file", got=str(source))
    whole, family = config_of(description(source), CONFIG)
    compare(config, whole, "adapters: like is another decoder")
    return whole, family


def _check(said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        allowed = _ONLY.get(key)
        if value not in allowed if allowed else (value and key not in _KNOWN):
            raise InvalidFileError(
                f"{SETTINGS}: a key that nxjax does not understand",
                got=f"{key} = {value!r}"[:120],
                expected=" or ".join(map(str, allowed)) if allowed else "null, false, or nothing",
            )


def _scale(said: Mapping[str, Any], module: str, rank: int) -> float:
    """By which the product of both matrices is multiplied."""
    pattern = said.get("alpha_pattern") or {}
    alpha = said.get("lora_alpha", 8)
    for key, value in pattern.items() if isinstance(pattern, dict) else ():
        if re.search(r"[^\w.]", key):
            raise InvalidFileError(f"{SETTINGS}: alpha_pattern", got=key[:80], expected="names of modules")
        if module == key or module.endswith(f".{key}"):
            alpha = value
            break
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise InvalidFileError(f"{SETTINGS}: lora_alpha", got=repr(alpha)[:80], expected="a number")
    return alpha / (math.sqrt(rank) if said.get("use_rslora") else rank)


def _places(config: DecoderConfig, family: Family) -> Iterator[tuple[int, str, str, tuple[int, int], list[list[str]]]]:
    """Matrices that may have an adapter: layer, part and name in the tree, shape, and of each way to call them in a
    file the modules that it is made of."""
    for path, rows in names_of(family, config).items():
        if path[0] != "layers" or path[3] not in TARGETS:
            continue
        _, layer, part, leaf = path
        modules = [[family.root + name.removesuffix(".weight") for name in row] for row in rows]
        yield layer, part, leaf, config.shapes["layers"][layer][part][leaf], modules


def _widths(outputs: int, modules: Sequence[str], config: DecoderConfig) -> list[int]:
    """Outputs of each of the modules that a matrix is made of."""
    if len(modules) == 3:
        inner, least = config.heads * config.head_size, config.kv_heads * config.head_size
        return [inner, least, least]
    return [outputs // len(modules)] * len(modules)


def _joined(
    found: Sequence[tuple[NDArray, NDArray] | None],
    widths: Sequence[int],
    shape: tuple[int, int],
    modules: Sequence[str],
) -> Adapter:
    """One adapter of those of its parts, [rank, inputs] and [outputs, rank], which may be missing."""
    for factors, width, module in zip(found, widths, modules, strict=True):
        if factors is not None and (factors[0].shape[1], factors[1].shape[0]) != (shape[0], width):
            raise InvalidFileError(
                f"{WEIGHTS}: the adapter of {module!r} is of another size",
                got=(factors[0].shape[1], factors[1].shape[0]),
                expected=(shape[0], width),
            )
    have = [f for f in found if f is not None]
    shared = len(have) == len(found) and all(np.array_equal(a, have[0][0]) for a, _ in have)
    firsts = [have[0][0]] if shared else [a for a, _ in have]
    rank = sum(len(a) for a in firsts)
    b = np.zeros((rank, shape[1]), np.float32)
    row = column = 0
    for factors, width in zip(found, widths, strict=True):
        if factors is not None:
            count = len(factors[0])
            b[row : row + count, column : column + width] = factors[1].T
            row += 0 if shared else count
        column += width
    return Adapter(jnp.asarray(np.concatenate(firsts).T.copy()), jnp.asarray(b), float(rank))
