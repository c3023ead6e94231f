"""Weights in few bits, and a decoder's folder: weights, sizes and tokenizer as files. Knows no step and no sampling."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax import quant, tree
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.generation.config import DecoderConfig
from nxjax.generation.model import Params, check, forward
from nxjax.generation.tokenizer import FILE, Tokenizer
from nxjax.ops.block_dot import ACTIVATIONS
from nxjax.quant.packed import PackedQArray, packed
from nxjax.quant.qarray import QArray, is_quantized
from nxjax.trace.boundary import entry
from nxjax.trace.tree_keys import DictKey, keystr

WEIGHTS: Final = "weights.safetensors"
CONFIG: Final = "decoder.json"
# Parameters that rows are taken of.
TABLES: Final = ("embedding", "positions")
# How weights are stored, by preset of `nx.quantize`; activations stay float.
POLICIES: Final = ("int8-weights", "int4-weights")


@entry
def quantize_weights(
    params: Params, config: DecoderConfig, policy: Any = "int8-weights", *, calibrate: Iterable[Any] | None = None
) -> Params:
    """Parameters with every product's weights, and the embeddings, as `QArray`s; norms stay float.

    Args:
        params: from `init`.
        config: sizes.
        policy: "int8-weights" (a scale per column), "int4-weights" (a scale per 32 weights of a column), or another
            policy of `nx.quantize` that keeps activations float.
        calibrate: batches of tokens, int [batch, t] or [t]: weights of 4 bits are rounded so that products on these
            texts are best, by error feedback (GPTQ).

    Raises:
        ParameterError: a policy that quantizes activations.

    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=64, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = init(nx.random.key(0), config)
    >>> small = quantize_weights(params, config, "int4-weights")
    >>> small["layers"][0]["attention"]["qkv"], nbytes(params), nbytes(small)
    (QArray(i4[64,16], 2x16 scales), 15360, 3432)
    """
    if (isinstance(policy, str) and policy not in POLICIES) or getattr(policy, "activations", None) is not None:
        raise ParameterError("quantize_weights: activations stay float", got=policy, expected=" or ".join(POLICIES))
    few = np.zeros((1, 2), np.int32)
    texts = None if calibrate is None else [(params, np.asarray(tokens, np.int32)) for tokens in calibrate]
    return quant.quantize(lambda p, t: forward(p, t, config), policy, calibrate=texts).quantize_params(params, few)


@entry
def pack_weights(params: Params, activations: str | None = None) -> Params:
    """Parameters whose weights in few bits are laid out for products, 4-bit numbers two to a byte.

    One copy serves prompts, steps and batches of all sizes. `from_pretrained` gives such parameters for GGUF files, and
    a `Generator` packs what is not. Everything that takes a `QArray` takes them.

    Args:
        params: from `quantize_weights`, `load` or `from_pretrained`; other leaves stay what they are.
        activations: how products with these weights are computed. "float32": of floats, exact up to rounding. "int8":
            each 32 (or 16) numbers of a row become whole numbers from -127 to 127 and a scale, and sums of products of
            whole numbers are exact. That is faster, and changes logits by about a hundredth. By default as they are;
            float32 at first. Weights in floats, and those whose groups are of other sizes, have products of floats.

    Raises:
        ParameterError: other activations, "int8" where no weights are in few bits, or a leaf that is a number or a
            text.

    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=64, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> small = quantize_weights(init(nx.random.key(0), config), config, "int4-weights")
    >>> pack_weights(small, "int8")["layers"][0]["attention"]["qkv"].layout.activations
    'int8'
    """

    if activations not in (None, *ACTIVATIONS):
        raise ParameterError("pack_weights: activations", got=activations, expected=" or ".join(ACTIVATIONS))
    if activations == "int8" and not any(map(is_quantized, tree.leaves(params, is_leaf=is_quantized))):
        raise ParameterError(
            "pack_weights: activations of int8 are multiplied with weights in few bits",
            got="weights in floats",
            fix="quantize_weights(params, config), or a file in few bits",
        )

    def each(path: Any, w: Any) -> Any:
        if isinstance(w, (bool, int, float, complex, str, bytes)):
            raise ParameterError(
                f"pack_weights: params{keystr(path)} is no array",
                got=repr(w),
                expected="a tree of arrays and QArrays",
                fix="params from quantize_weights, load or from_pretrained",
            )
        if not is_quantized(w):
            return w
        table = bool(path) and isinstance(path[-1], DictKey) and path[-1].key in TABLES
        own = w.layout.activations if isinstance(w, PackedQArray) else "float32"
        return packed(w, flipped=table, activations=own if activations is None else activations)

    return tree.map_with_path(each, params, is_leaf=is_quantized)


@entry
def nbytes(params: Any) -> int:
    """Bytes of weights as files hold them: int4 two to a byte, scales included.

    >>> import numpy as np
    >>> nbytes({"w": np.zeros((4, 8), np.float32)})
    128
    """
    leaves = tree.leaves(params, is_leaf=is_quantized)
    return sum(x.nbytes if isinstance(x, QArray) else x.size * x.dtype.itemsize for x in leaves)


@entry
def save(folder: str | os.PathLike[str], params: Params, config: DecoderConfig, tokenizer: Any = None) -> None:
    """Write a folder that `load` reads: ``weights.safetensors``, ``decoder.json``, and the tokenizer's files.

    Each file is complete or missing; ``decoder.json`` is written last.

    Raises:
        ParameterError: the parameters do not fit the decoder.
        MissingExtraError: safetensors is not installed.

    >>> import nxjax as nx, tempfile
    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> folder = tempfile.mkdtemp()
    >>> save(folder, init(nx.random.key(0), config), config)
    >>> load(folder)[1] == config
    True
    """
    check(params, config)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    quant.save(place / WEIGHTS, params)
    if tokenizer is not None:
        tokenizer.save(place)
    safe_io.write(place / CONFIG, json.dumps(config.to_dict(), indent=2).encode())


@entry
def load(folder: str | os.PathLike[str]) -> tuple[Params, DecoderConfig, Tokenizer | None]:
    """The content of `save`: parameters, sizes, and the tokenizer if there is one.

    Raises:
        InvalidFileError: files that are damaged or of another kind.

    >>> import tempfile
    >>> load(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    nxjax.errors.InvalidFileError: ...
    """
    place = Path(folder)
    try:
        config = DecoderConfig.from_dict(safe_io.described(place / CONFIG))
    except (ValueError, TypeError, OSError) as error:
        raise InvalidFileError(
            f"{place.name}: not a folder of a decoder", got=str(error), fix="generation.save"
        ) from None
    params = quant.load(place / WEIGHTS)
    try:
        check(params, config)
    except ParameterError as error:
        raise InvalidFileError(f"{WEIGHTS}: {error.what}", got=error.got, expected=error.expected) from None
    return params, config, Tokenizer.load(place) if (place / FILE).exists() else None
