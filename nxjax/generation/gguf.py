"""GGUF files of decoders: what their keys mean, what tensors are called, and blocks of few bits as `QArray`s.

Knows no tokenizer and no tree.

Keys and names: github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py and convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import InvalidFileError
from nxjax.generation.config import DecoderConfig
from nxjax.generation.families import Family, config_of
from nxjax.interop.ggml import INTEGERS, dequantized, integers
from nxjax.interop.weights import GgufTensor
from nxjax.quant.qarray import QArray

NDArray = np.ndarray[Any, Any]
# Architecture -> model_type of `families`; "llama" is also Mistral's and Mixtral's.
_KINDS: Final = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text",
    "phi3": "phi3", "gpt2": "gpt2", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
}  # fmt: skip
# Keys after the architecture's name -> keys of config.json.
_KEYS: Final = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim", "attention.sliding_window": "sliding_window", "vocab_size": "vocab_size",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}  # fmt: skip
_GPT2_KEYS: Final = {
    "block_count": "n_layer", "context_length": "n_positions", "embedding_length": "n_embd",
    "feed_forward_length": "n_inner", "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon", "vocab_size": "vocab_size",
}  # fmt: skip
# Keys that say again what others say.
_AGAIN: Final = frozenset(
    {"attention.value_length", "rope.dimension_count", "attention.head_count_kv", "rope.scaling.finetuned"}
)
_NAMES: Final = {
    "embedding": "token_embd.weight", "positions": "position_embd.weight", "norm": "output_norm.weight",
    "norm_bias": "output_norm.bias", "head": "output.weight",
    "attention.norm": "attn_norm.weight", "attention.norm_bias": "attn_norm.bias",
    "attention.qkv": "attn_q.weight attn_k.weight attn_v.weight|attn_qkv.weight",
    "attention.qkv_bias": "attn_q.bias attn_k.bias attn_v.bias|attn_qkv.bias",
    "attention.q_norm": "attn_q_norm.weight", "attention.k_norm": "attn_k_norm.weight",
    "attention.out": "attn_output.weight", "attention.out_bias": "attn_output.bias",
    "attention.post_norm": "post_attention_norm.weight",
    "mlp.norm": "ffn_norm.weight", "mlp.norm_bias": "ffn_norm.bias", "mlp.post_norm": "post_ffw_norm.weight",
    "mlp.gate_up": "ffn_gate.weight ffn_up.weight|ffn_up.weight", "mlp.gate_up_bias": "ffn_gate.bias ffn_up.bias",
    "mlp.up": "ffn_up.weight", "mlp.up_bias": "ffn_up.bias", "mlp.down": "ffn_down.weight",
    "mlp.down_bias": "ffn_down.bias",
    "mlp.router": "ffn_gate_inp.weight", "mlp.experts_up": "ffn_gate_exps.weight ffn_up_exps.weight",
    "mlp.experts_down": "ffn_down_exps.weight", "mlp.shared_gate": "ffn_gate_inp_shexp.weight",
    "mlp.shared_up": "ffn_gate_shexp.weight ffn_up_shexp.weight", "mlp.shared_down": "ffn_down_shexp.weight",
}  # fmt: skip
FACTORS: Final = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


def gguf_config(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], factors: Mapping[str, NDArray], where: str
) -> tuple[DecoderConfig, Family]:
    """Sizes and options that a GGUF file describes, and its family, with GGUF's names; arguments and errors as
    `described`."""
    config, family = config_of(described(metadata, tensors, factors, where), where)
    return config, replace(family, names=_named(), lifted=False, rows_first=False, layers="blk.{i}.")


def described(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], factors: Mapping[str, NDArray], where: str
) -> dict[str, Any]:
    """What a ``config.json`` would say of a GGUF file.

    Args:
        metadata: the file's keys.
        tensors: shapes by name.
        factors: those of `FACTORS` that are there.

    Raises:
        InvalidFileError: an unknown architecture or key, or sizes that do not fit.
    """
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidFileError(
            f"{where}: an architecture that nxjax does not know", got=kind, expected=", ".join(_KINDS)
        )
    if (parts := metadata.get("split.count", 1)) not in (0, 1):
        raise InvalidFileError(
            f"{where}: one part of a model in several files",
            got=f"split.count = {parts!r}"[:100],
            fix="llama.cpp's llama-gguf-split --merge makes one of them",
        )
    own = {k[len(kind) + 1 :]: v for k, v in metadata.items() if k.startswith(f"{kind}.")}
    if kind == "gpt2":
        said = {new: own.pop(old) for old, new in _GPT2_KEYS.items() if old in own}
    else:
        said = {new: own.pop(old) for old, new in _KEYS.items() if old in own}
        said |= _rope(own, kind, said, factors, where)
    said["model_type"] = _KINDS[kind]
    if kind == "llama":
        said["sliding_window"] = None  # llama.cpp does not look at it here
    if kind == "llama" and said.get("num_experts"):
        said |= {"model_type": "mixtral", "num_local_experts": said.pop("num_experts")}
        said["intermediate_size"] = said.pop("moe_intermediate_size", said.get("intermediate_size"))
    for name in _AGAIN & own.keys():
        del own[name]
    if own:
        raise InvalidFileError(
            f"{where}: keys that nxjax does not understand",
            got=", ".join(f"{kind}.{k} = {v!r}"[:80] for k, v in own.items()),
        )
    said |= _shaped(said, tensors, kind)
    return said


def _named() -> dict[str, tuple[tuple[str, ...], ...]]:
    return {k: tuple(tuple(row.split()) for row in rows.split("|")) for k, rows in _NAMES.items()}


def _shaped(said: dict[str, Any], tensors: Mapping[str, tuple[int, ...]], kind: str) -> dict[str, Any]:
    """What the file says by its tensors only."""
    made: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in tensors}
    if table := tensors.get("token_embd.weight"):
        made["vocab_size"] = table[0]
    if kind == "gpt2":
        return made
    if kind in ("llama", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3"):
        made["attention_bias"] = "blk.0.attn_output.bias" in tensors
    if kind == "qwen2moe":
        made["norm_topk_prob"] = False
    if kind == "qwen3moe":
        made["norm_topk_prob"] = True
    if kind.startswith("qwen"):
        made["use_sliding_window"] = bool(said.get("sliding_window"))
        made["max_window_layers"] = 0
    if kind in ("gemma2", "gemma3"):
        # llama.cpp scales queries so, but for Gemma's 27 billion parameters.
        layers = said.get("num_hidden_layers")
        big = layers == {"gemma2": 46, "gemma3": 62}[kind]
        heads = said.get("num_attention_heads") or 1
        made["query_pre_attn_scalar"] = said.get("hidden_size", 0) // heads if big else said.get("head_dim", 256)
    if kind == "gemma2":
        made |= {k: said.get(k, v) for k, v in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))}
    return made


def _rope(
    own: dict[str, Any], kind: str, said: dict[str, Any], factors: Mapping[str, NDArray], where: str
) -> dict[str, Any]:
    base = own.pop("rope.freq_base", None)
    scaling, factor = own.pop("rope.scaling.type", None), own.pop("rope.scaling.factor", None)
    factor = own.pop("rope.scale_linear", factor)
    original = own.pop("rope.scaling.original_context_length", None)
    attention = own.pop("rope.scaling.attn_factor", None)
    rotary, size = own.pop("rope.dimension_count", None), said.get("head_dim")
    local = own.pop("rope.freq_base_swa", None)
    width, heads = said.get("hidden_size", 0), said.get("num_attention_heads") or 1
    rope: dict[str, Any] = {"rope_theta": {"gemma3": 1e6}.get(kind, 10000.0) if base is None else float(base)}
    if rotary is not None and rotary != (size or width // heads):
        rope["partial_rotary_factor"] = rotary / (size or width // heads)
    tables = {name: [float(x) for x in table] for name, table in factors.items()}
    if "rope_freqs.weight" in tables:
        both = tables["rope_freqs.weight"]
        rope |= {"rope_type": "longrope", "short_factor": both, "long_factor": both, "attention_factor": 1.0}
    elif len(tables) == 2:
        short, long = tables["rope_factors_short.weight"], tables["rope_factors_long.weight"]
        rope |= {"rope_type": "longrope", "short_factor": short, "long_factor": long}
        if attention is not None:
            rope["attention_factor"] = float(attention)
    elif scaling in ("linear", "yarn") and factor:
        rope |= {"rope_type": scaling, "factor": float(factor)}
        if scaling == "yarn":
            for old, new in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
                if (x := own.pop(f"rope.scaling.{old}", None)) is not None:
                    rope[new] = float(x)
    elif scaling not in (None, "none", "longrope"):
        raise InvalidFileError(
            f"{where}: {kind}.rope.scaling.type", got=scaling, expected="none, linear, yarn, longrope"
        )
    if original is not None and rope.get("rope_type") in ("yarn", "longrope"):
        rope["original_max_position_embeddings"] = int(original)
    made: dict[str, Any] = {"rope_parameters": rope}
    if kind == "phi3" and "original_max_position_embeddings" in rope:
        made["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    if local is not None:
        made["rope_local_base_freq"] = float(local)
    return made


def shapes_and_factors(
    tensors: Mapping[str, GgufTensor],
) -> tuple[dict[str, tuple[int, ...]], dict[str, NDArray]]:
    """What `described` looks at of tensors."""
    factors = {n: np.asarray(tensor(tensors[n])) for n in FACTORS if n in tensors}
    return {n: t.shape for n, t in tensors.items()}, factors


class IntegerMatrix(NamedTuple):
    """A matrix [..., outputs, inputs] of whole numbers, int8, and a float32 scale for each group of inputs; maybe what
    a number 0 stands for in each group."""

    values: NDArray
    scale: NDArray
    bits: int
    least: NDArray | None = None


def tensor(x: GgufTensor) -> NDArray | IntegerMatrix:
    """A tensor with its whole numbers and scales, if its format has these; else in floats."""
    if x.kind not in INTEGERS or len(x.shape) < 2:
        return dequantized(x.data, x.kind, np.float32).reshape(x.shape)
    values, scale, least = integers(x.data, x.kind)
    grouped = lambda y: y.reshape(*x.shape[:-1], -1)
    return IntegerMatrix(
        values.reshape(x.shape), grouped(scale), INTEGERS[x.kind], None if least is None else grouped(least)
    )


def joined(parts: Sequence[NDArray | IntegerMatrix], turned: bool, dtype: Any) -> Any:
    """Matrices side by side, [..., inputs, outputs], as an array or a `QArray`; as they are if they are not turned."""
    turn = lambda x: np.swapaxes(x, -1, -2) if turned and x.ndim > 1 else x
    blocks = [p for p in parts if isinstance(p, IntegerMatrix)]
    if len(blocks) < len(parts):
        floats = [turn(_floats(p) if isinstance(p, IntegerMatrix) else p) for p in parts]
        return jnp.asarray(np.ascontiguousarray(np.concatenate(floats, -1).astype(dtype, copy=False)))
    groups = max(b.scale.shape[-1] for b in blocks)
    # A table of embeddings is one part, and large.
    values = turn(blocks[0].values) if len(blocks) == 1 else np.concatenate([turn(b.values) for b in blocks], -1)
    side_by_side = lambda rows: np.concatenate([turn(np.repeat(x, groups // x.shape[-1], -1)) for x in rows], -1)
    made = [side_by_side([b.scale for b in blocks])]
    if any(b.least is not None for b in blocks):
        made.append(side_by_side([np.zeros_like(b.scale) if b.least is None else b.least for b in blocks]))
    stored = "int4" if max(b.bits for b in blocks) == 4 else "int8"
    whole = values.astype(jnp.dtype(stored), copy=False)
    return QArray(*(jnp.asarray(np.ascontiguousarray(x)) for x in (whole, *made)))


def _floats(b: IntegerMatrix) -> NDArray:
    each = lambda x: np.repeat(x, b.values.shape[-1] // x.shape[-1], -1)
    return b.values * each(b.scale) + (0 if b.least is None else each(b.least))


def reordered(x: NDArray | IntegerMatrix, heads: int) -> NDArray | IntegerMatrix:
    """Queries' or keys' rows of a Llama, in the order of `rotated`."""
    if isinstance(x, IntegerMatrix):
        least = None if x.least is None else unpermuted(x.least, heads)
        return IntegerMatrix(unpermuted(x.values, heads), unpermuted(x.scale, heads), x.bits, least)
    return unpermuted(x, heads)


def unpermuted(x: NDArray, heads: int) -> NDArray:
    """Rows of queries or keys with pairs (i, i + half), from GGUF's order for Llama, (2 i, 2 i + 1)."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def permuted(x: NDArray, heads: int) -> NDArray:
    """The inverse of `unpermuted`."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def turned_heads(metadata: Mapping[str, Any], config: DecoderConfig) -> dict[str, int]:
    """Matrices whose rows are in GGUF's order, and how many heads they have."""
    is_llama = metadata["general.architecture"] == "llama"
    return {"attn_q": config.heads, "attn_k": config.kv_heads} if is_llama else {}
