"""Families of decoders as others describe them: what the keys of a ``config.json`` mean, and what tensors are called.

A family is a row of a table; a key that no row takes is refused by name. Knows no array.

Keys and names: github.com/huggingface/transformers, src/transformers/models/<family>.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation.config import DecoderConfig, RopeScaling

ACTIVATIONS: Final = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu",
}  # fmt: skip
# Keys about training, files, or choosing tokens: they change no logit.
_IGNORED: Final = """
    _attn_implementation _attn_implementation_autoset _name_or_path _num_labels architectures attention_dropout
    attn_pdrop auto_map bad_words_ids begin_suppress_tokens bos_token_id cache_implementation
    chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping embd_pdrop encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id id2label initializer_range is_decoder is_llama_config
    label2id length_penalty max_length min_length model_type n_ctx n_special no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences output_attentions output_hidden_states output_past output_router_logits
    output_scores pad_token_id predict_special_tokens prefix problem_type pruned_heads remove_invalid_values
    reorder_and_upcast_attn repetition_penalty resid_pdrop return_dict return_dict_in_generate router_aux_loss_coef
    router_jitter_noise sep_token_id summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p
    torch_dtype torchscript transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version
    use_bfloat16 use_cache
"""
IGNORED: Final = frozenset(_IGNORED.split())
_WINDOWED: Final = "mistral mixtral phi3 qwen2 qwen3 qwen2_moe qwen3_moe gemma2 gemma3_text"
# Keys that are some families' only: whose, and the values that say nothing in the files of others.
_OWN: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "sliding_window": (_WINDOWED, (None, 0)),
    "use_sliding_window": ("llama gemma qwen2 qwen3 qwen2_moe qwen3_moe", (None, True)),
    "rope_local_base_freq": ("gemma3_text", (None,)),
    "qkv_bias": ("qwen2_moe", (None, False)),
    "attention_bias": ("llama qwen3 qwen3_moe gemma gemma2 gemma3_text", (None, False)),
    "mlp_bias": ("llama", (None, False)),
    "query_pre_attn_scalar": ("gemma2 gemma3_text", (None,)),
    "attn_logit_softcapping": ("gemma2", (None, 0)),
    "final_logit_softcapping": ("gemma2 gemma3_text", (None, 0)),
    "hidden_activation": ("gemma gemma2 gemma3_text", (None,)),
    "num_local_experts": ("mixtral qwen2_moe qwen3_moe", (None, 0)),
    "num_experts": ("mixtral qwen2_moe qwen3_moe", (None, 0)),
    "num_experts_per_tok": ("mixtral qwen2_moe qwen3_moe", (None, 0)),
    "moe_intermediate_size": ("qwen2_moe qwen3_moe", (None, 0)),
    "shared_expert_intermediate_size": ("qwen2_moe", (None, 0)),
    "norm_topk_prob": ("qwen2_moe qwen3_moe", (None, True)),
    "decoder_sparse_step": ("qwen2_moe qwen3_moe", (None, 1)),
    "mlp_only_layers": ("qwen2_moe qwen3_moe", (None, [])),
}
# More than any decoder has: a damaged description takes no time and no memory.
LAYERS: Final = 10_000
# Parts of the tree -> names in the file, joined by columns where there are several; of several rows the first that is
# there. ``{e}`` is each expert.
Names = Mapping[str, tuple[tuple[str, ...], ...]]


def _names(**rows: str) -> Names:
    """Rows of parts; alternatives are parted by ``|``, what is joined by spaces."""
    return {
        name.replace("__", "."): tuple(tuple(alternative.split()) for alternative in row.split("|"))
        for name, row in rows.items()
    }


_ROOT: Final = {"embedding": "embed_tokens.weight", "norm": "norm.weight", "head": "lm_head.weight"}
_LLAMA: Final = _names(
    **_ROOT,
    attention__norm="input_layernorm.weight",
    attention__qkv="self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight|self_attn.qkv_proj.weight",
    attention__qkv_bias="self_attn.q_proj.bias self_attn.k_proj.bias self_attn.v_proj.bias",
    attention__q_norm="self_attn.q_norm.weight",
    attention__k_norm="self_attn.k_norm.weight",
    attention__out="self_attn.o_proj.weight",
    attention__out_bias="self_attn.o_proj.bias",
    mlp__norm="post_attention_layernorm.weight",
    mlp__gate_up="mlp.gate_proj.weight mlp.up_proj.weight|mlp.gate_up_proj.weight",
    mlp__gate_up_bias="mlp.gate_proj.bias mlp.up_proj.bias",
    mlp__down="mlp.down_proj.weight",
    mlp__down_bias="mlp.down_proj.bias",
    mlp__router="mlp.gate.weight|block_sparse_moe.gate.weight",
    mlp__experts_up="mlp.experts.{e}.gate_proj.weight mlp.experts.{e}.up_proj.weight"
    "|block_sparse_moe.experts.{e}.w1.weight block_sparse_moe.experts.{e}.w3.weight"
    "|mlp.experts.gate_up_proj|block_sparse_moe.experts.gate_up_proj",
    mlp__experts_down="mlp.experts.{e}.down_proj.weight|block_sparse_moe.experts.{e}.w2.weight"
    "|mlp.experts.down_proj|block_sparse_moe.experts.down_proj",
    mlp__shared_gate="mlp.shared_expert_gate.weight",
    mlp__shared_up="mlp.shared_expert.gate_proj.weight mlp.shared_expert.up_proj.weight",
    mlp__shared_down="mlp.shared_expert.down_proj.weight",
)
_GEMMA: Final = {
    **_LLAMA,
    **_names(
        attention__post_norm="post_attention_layernorm.weight",
        mlp__norm="pre_feedforward_layernorm.weight",
        mlp__post_norm="post_feedforward_layernorm.weight",
    ),
}
# The same, what such files have first.
_PHI3: Final = {name: rows[::-1] for name, rows in _LLAMA.items()}
_MIXTRAL: Final = {n: tuple(sorted(rows, key=lambda row: "block_sparse" not in row[0])) for n, rows in _LLAMA.items()}
_GPT2: Final = _names(
    embedding="wte.weight",
    positions="wpe.weight",
    norm="ln_f.weight",
    norm_bias="ln_f.bias",
    head="lm_head.weight",
    attention__norm="ln_1.weight",
    attention__norm_bias="ln_1.bias",
    attention__qkv="attn.c_attn.weight",
    attention__qkv_bias="attn.c_attn.bias",
    attention__out="attn.c_proj.weight",
    attention__out_bias="attn.c_proj.bias",
    mlp__norm="ln_2.weight",
    mlp__norm_bias="ln_2.bias",
    mlp__up="mlp.c_fc.weight",
    mlp__up_bias="mlp.c_fc.bias",
    mlp__down="mlp.c_proj.weight",
    mlp__down_bias="mlp.c_proj.bias",
)


@final
class Keys:
    """The keys of a description, each to be taken once; `finish` refuses those that nobody took."""

    def __init__(self, said: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> None:
        self.left, self.defaults, self.where = dict(said), defaults, where

    def take(self, name: str, *default: Any) -> Any:
        """The value of a key; of a missing one the family's default, else, and of null, this one."""
        value = self.left.pop(name, None if default and name in self.left else self.defaults.get(name))
        if value is not None:
            return value
        if not default:
            raise InvalidFileError(f"{self.where}: a key is missing", got=f"no {name!r}", expected=name)
        return default[0]

    def count(self, name: str, *default: Any, most: int = 2**31 - 1) -> int:
        """A whole number."""
        n = self.take(name, *default)
        if type(n) is not int or not 0 <= n <= most:
            expected = f"a whole number, {most} at most"
            raise InvalidFileError(f"{self.where}: key {name!r}", got=repr(n)[:100], expected=expected)
        return n

    def number(self, name: str, *default: Any) -> float:
        """A number."""
        x = self.take(name, *default)
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            raise InvalidFileError(f"{self.where}: key {name!r}", got=repr(x)[:100], expected="a number")
        return float(x)

    def numbers(self, name: str, *default: Any) -> list[Any]:
        """A list of numbers."""
        xs = self.take(name, *default)
        if not isinstance(xs, list) or not all(type(x) in (int, float) for x in xs):
            raise InvalidFileError(f"{self.where}: key {name!r}", got=repr(xs)[:100], expected="a list of numbers")
        return xs

    def flag(self, name: str, *default: bool) -> bool:
        """Yes or no."""
        x = self.take(name, *default)
        if not isinstance(x, bool):
            raise InvalidFileError(f"{self.where}: key {name!r}", got=repr(x)[:100], expected="true or false")
        return x

    def only(self, name: str, *allowed: Any) -> None:
        """A key that is understood with one value only."""
        if (x := self.left.pop(name, allowed[0])) not in allowed:
            raise InvalidFileError(
                f"{self.where}: key {name!r} has a value that nxjax does not know",
                got=repr(x)[:100],
                expected=allowed[0],
            )

    def without(self, name: str, kind: str, *silent: Any) -> None:
        """A key that a family does not have; in its files it may have values that say nothing."""
        if name in self.left and (x := self.left.pop(name)) not in silent:
            raise InvalidFileError(
                f"{self.where}: key {name!r}, which {kind} does not have",
                got=repr(x)[:100],
                fix="leave the key out if it changes no logit; the file may be another family's",
            )

    def finish(self, ignored: frozenset[str] = IGNORED) -> None:
        """Raise for keys that are not understood."""
        if unknown := sorted(k for k in self.left if k not in ignored):
            raise InvalidFileError(
                f"{self.where}: keys that nxjax does not understand",
                got=", ".join(f"{k} = {self.left[k]!r}"[:80] for k in unknown[:5]),
                fix="leave a key out if it changes no logit",
            )


@final
@dataclass(frozen=True)
class Family:
    """What a family's files say.

    Attributes:
        names: of tensors.
        defaults: of keys that files leave out.
        options: of `DecoderConfig`.
        sliding: whether a layer has a window, from its number and the keys; None: no layer has one.
        typed: whether ``layer_types`` says which layers have one instead.
        scaled: embeddings are multiplied by sqrt(width).
        lifted: norms multiply by 1 + weight.
        rows_first: matrices are stored as [inputs, outputs].
        layers: what names in layers begin with.
        root: what all names but the head's begin with, where the model has a head.
        read: sizes from keys.
    """

    names: Names
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sliding: Callable[[int, Keys], bool] | None = None
    typed: bool = False
    scaled: bool = False
    lifted: bool = False
    rows_first: bool = False
    layers: str = "layers.{i}."
    root: str = "model."
    read: Callable[[Keys, Family], dict[str, Any]] = lambda keys, family: _llama(keys, family)


def config_of(said: Mapping[str, Any], where: str) -> tuple[DecoderConfig, Family]:
    """Sizes and options that a ``config.json`` describes, and the family.

    Raises:
        InvalidFileError: an unknown family, a key that is missing or not understood, sizes that do not fit.
    """
    kind = said.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise InvalidFileError(
            f"{where}: a family of models that nxjax does not know",
            got=f"model_type {kind!r}",
            expected=", ".join(FAMILIES),
        )
    family = FAMILIES[kind]
    keys = Keys(said, family.defaults, where)
    for name, (families, silent) in _OWN.items():
        if kind not in families.split():
            keys.without(name, kind, *silent)
    made = family.read(keys, family)
    if made.get("rotary") and kind != "phi3":
        keys.left["partial_rotary_factor"] = made["rotary"] / made["head_size"]
        keys.without("partial_rotary_factor", kind)
    keys.finish()
    try:
        return DecoderConfig(**{**made, **family.options}), family
    except ParameterError as error:
        raise InvalidFileError(f"{where}: {error.what}", got=error.got, expected=error.expected) from None


def _activation(keys: Keys, *names: str) -> str:
    said = [x for name in names if (x := keys.left.pop(name, None)) is not None]
    given = said[0] if said else keys.defaults.get("act", "silu")
    if given not in ACTIVATIONS:
        raise InvalidFileError(f"{keys.where}: key {names[0]!r}", got=given, expected=", ".join(ACTIVATIONS))
    return ACTIVATIONS[given]


def _llama(keys: Keys, family: Family) -> dict[str, Any]:
    """Sizes of the families that descend from Llama."""
    width, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    layers = keys.count("num_hidden_layers", most=LAYERS)
    if not heads or (width % heads and not keys.left.get("head_dim")):
        raise InvalidFileError(f"{keys.where}: key 'num_attention_heads'", got=heads, expected=f"a divisor of {width}")
    size = keys.count("head_dim", width // heads)
    context = keys.count("max_position_embeddings")
    made: dict[str, Any] = {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "layers": layers,
        "heads": heads,
        "kv_heads": keys.count("num_key_value_heads", heads),
        "head_size": size,
        "hidden": keys.count("intermediate_size"),
        "epsilon": keys.number("rms_norm_eps", 1e-6),
        "tied": keys.flag("tie_word_embeddings", False),
        "activation": _activation(keys, "hidden_activation", "hidden_act"),
        "embedding_scale": math.sqrt(width) if family.scaled else 1.0,
        "windows": _windows(keys, family, layers),
        **_rope(keys, size, context),
    }
    for name in ("pretraining_tp", "full_attn_mod", "interpolate_factor"):
        keys.only(name, 1)
    for name in ("lm_head_bias", "use_mrope"):
        keys.only(name, False)
    keys.only("use_bidirectional_attention", False, None)
    biases = []
    if keys.flag("qkv_bias", False) or keys.left.get("attention_bias"):
        biases.append("qkv")
    if keys.flag("attention_bias", False):
        biases.append("out")
    if keys.flag("mlp_bias", False):
        biases += ["up", "down"]
    if biases:
        made["biases"] = tuple(biases)
    if "query_pre_attn_scalar" in keys.left or "query_pre_attn_scalar" in keys.defaults:
        made["query_scale"] = keys.number("query_pre_attn_scalar") ** -0.5
    for key, name in (("attn_logit_softcapping", "attention_cap"), ("final_logit_softcapping", "logit_cap")):
        made[name] = keys.number(key, 0.0) or None
    return made | _experts(keys, layers)


def _windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    is_used = keys.flag("use_sliding_window", True)
    window = keys.take("sliding_window", None)
    types = keys.take("layer_types", None)
    has = [family.sliding is not None and family.sliding(i, keys) for i in range(layers)]
    if types is not None:
        known = {"full_attention": False, "sliding_attention": True}
        if not isinstance(types, list) or len(types) != layers or not all(t in known for t in types):
            raise InvalidFileError(
                f"{keys.where}: key 'layer_types'", got=repr(types)[:100], expected=f"{layers} of {', '.join(known)}"
            )
        own, has = has, [known[t] for t in types]
        if window and has != own and not family.typed:
            alike = f"{'sliding' if own[0] else 'full'}_attention in all layers"
            raise InvalidFileError(f"{keys.where}: key 'layer_types'", got=repr(types)[:100], expected=alike)
    for name in ("max_window_layers", "sliding_window_pattern", "_sliding_window_pattern"):
        keys.left.pop(name, None)
    if not (window and is_used and any(has)):
        return ()
    if type(window) is not int or window < 1:
        raise InvalidFileError(f"{keys.where}: key 'sliding_window'", got=window, expected="a whole number")
    return tuple(window if x else 0 for x in has)


def _experts(keys: Keys, layers: int) -> dict[str, Any]:
    local, every = keys.count("num_local_experts", 0), keys.count("num_experts", 0)
    count = local or every
    step, without = keys.count("decoder_sparse_step", 1), keys.numbers("mlp_only_layers", [])
    shared = keys.count("shared_expert_intermediate_size", 0)
    hidden = keys.count("moe_intermediate_size", 0)
    is_normalized = keys.flag("norm_topk_prob", True)
    chosen = keys.count("num_experts_per_tok", 0)
    those = tuple(i for i in range(layers) if i not in without and step and (i + 1) % step == 0)
    if not count or not those:
        return {}
    return {
        "experts": count,
        "expert_layers": () if len(those) == layers else those,
        "experts_per_token": chosen,
        "expert_hidden": hidden,
        "shared_hidden": shared,
        "normalized_experts": is_normalized,
    }


def _gemma(keys: Keys, family: Family) -> dict[str, Any]:
    # The first files call the approximation "gelu".
    if keys.left.get("hidden_act") == "gelu":
        keys.left["hidden_act"] = "gelu_pytorch_tanh"
    if (newer := keys.left.get("hidden_activation")) is not None:
        keys.only("hidden_act", newer, None)
    return _llama(keys, family)


def _mixtral(keys: Keys, family: Family) -> dict[str, Any]:
    made = _llama(keys, family)
    return made | {"expert_hidden": made["hidden"]}


def _gpt2(keys: Keys, family: Family) -> dict[str, Any]:
    width, heads = keys.count("n_embd"), keys.count("n_head")
    keys.only("scale_attn_weights", True)
    keys.only("scale_attn_by_inverse_layer_idx", False)
    keys.only("is_encoder_decoder", False)
    keys.only("add_cross_attention", False)
    if not heads or width % heads:
        raise InvalidFileError(f"{keys.where}: key 'n_head'", got=heads, expected=f"a divisor of {width}")
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "layers": keys.count("n_layer", most=LAYERS),
        "heads": heads,
        "kv_heads": heads,
        "head_size": width // heads,
        "hidden": keys.count("n_inner", 4 * width),
        "context": keys.count("n_positions"),
        "epsilon": keys.number("layer_norm_epsilon", 1e-5),
        "tied": keys.flag("tie_word_embeddings", True),
        "activation": _activation(keys, "activation_function"),
    }


def _rope(keys: Keys, size: int, context: int) -> dict[str, Any]:
    """Rotations, from ``rope_parameters`` or the older ``rope_theta`` and ``rope_scaling``."""
    keys.only("is_encoder_decoder", False)
    keys.only("add_cross_attention", False)
    keys.only("rope_interleaved", False)
    older = keys.take("rope_scaling", None)
    said = keys.take("rope_parameters", older or {})
    local: Any = {}
    base, local_base = keys.take("rope_theta", None), keys.take("rope_local_base_freq", None)
    for name in ("rope_theta", "rope_local_base_freq"):
        keys.left.pop(name, None)
    if isinstance(said, dict) and "full_attention" in said:
        inner = Keys(said, {}, f"{keys.where}: rope_parameters")
        said, local = inner.take("full_attention", {}), inner.take("sliding_attention", {})
        inner.finish(frozenset())
    if not isinstance(said, dict) or not isinstance(local, dict):
        raise InvalidFileError(f"{keys.where}: rotations", got=repr(said)[:100], expected="an object")
    near = Keys(local, {}, f"{keys.where}: rope_parameters.sliding_attention")
    near.only("rope_type", "default")
    local_base = near.take("rope_theta", local_base)
    near.finish(frozenset())
    rope = Keys(said, {}, f"{keys.where}: rope_parameters")
    fraction = rope.number("partial_rotary_factor", keys.take("partial_rotary_factor", 1.0))
    keys.left.pop("partial_rotary_factor", None)
    made: dict[str, Any] = {"rope_base": rope.number("rope_theta", 10000.0 if base is None else base)}
    if int(size * fraction) != size:
        made["rotary"] = int(size * fraction)
    scaling = _scaling(rope, context, keys.count("original_max_position_embeddings", 0))
    rope.finish(frozenset())
    if (local_base is not None and local_base != made["rope_base"]) or (local_base and scaling):
        made["local_rope_base"] = float(local_base)
    # What is beyond the original context is the point of a base that grows.
    longest = int(context * scaling.factor) if scaling is not None and scaling.kind == "dynamic" else context
    return made | {"rope_scaling": scaling, "context": longest}


def _scaling(rope: Keys, context: int, original: int) -> RopeScaling | None:
    """A scaling of rates, with what files leave to be computed; the original context is 0 where it is said inside."""
    old, kind = rope.left.pop("type", None), rope.left.pop("rope_type", None)
    kind = kind or old or "default"
    if kind in ("su", "yarn") and "short_factor" in rope.left:
        kind = "longrope"  # as Phi-3's first files name it
    inside = rope.count("original_max_position_embeddings", context)
    if kind == "default":
        return None
    before = original or inside
    if before < 2:
        name = "original_max_position_embeddings"
        raise InvalidFileError(f"{rope.where}: key {name!r}", got=before, expected="2 or more")
    made: dict[str, Any] = {"kind": kind, "original_context": before}
    if kind == "dynamic":
        made["original_context"] = context
    if kind in ("linear", "dynamic", "llama3"):
        made["factor"] = rope.number("factor")
    if kind == "llama3":
        made["low_frequency_factor"] = rope.number("low_freq_factor")
        made["high_frequency_factor"] = rope.number("high_freq_factor")
    if kind in ("yarn", "longrope"):
        made["factor"] = rope.number("factor", context / before)
        given = rope.take("attention_factor", None)
        made["attention_factor"] = _attention_factor(rope, kind, made["factor"], before) if given is None else given
        for key in ("mscale", "mscale_all_dim"):
            rope.left.pop(key, None)
    if kind == "yarn":
        made["beta_fast"], made["beta_slow"] = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
        made["truncate"] = rope.flag("truncate", True)
    if kind == "longrope":
        made["short"], made["long"] = (tuple(map(float, rope.numbers(k))) for k in ("short_factor", "long_factor"))
    try:
        return RopeScaling(**made)
    except ParameterError as error:
        raise InvalidFileError(f"{rope.where}: {error.what}", got=error.got, expected=error.expected) from None


def _attention_factor(rope: Keys, kind: str, factor: float, original: int) -> float:
    if factor <= 1:
        return 1.0
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(original))
    scale = lambda m: 0.1 * m * math.log(factor) + 1
    first, second = rope.take("mscale", 0), rope.take("mscale_all_dim", 0)
    return scale(first) / scale(second) if first and second else scale(1)


def _always(i: int, keys: Keys) -> bool:
    return True


def _late(i: int, keys: Keys) -> bool:
    """Layers from ``max_window_layers`` on."""
    return i >= keys.left.get("max_window_layers", 28)


def _pattern(i: int, keys: Keys) -> bool:
    """All but each sixth layer."""
    return (i + 1) % keys.left.get("sliding_window_pattern", keys.left.get("_sliding_window_pattern", 6)) != 0


_QWEN: Final = {"use_sliding_window": False, "sliding_window": 4096}
_GEMMAS: Final = {
    "tie_word_embeddings": True, "act": "gelu_pytorch_tanh", "head_dim": 256,
}  # fmt: skip
_GEMMA2: Final = {**_GEMMAS, "query_pre_attn_scalar": 256, "sliding_window": 4096, "num_key_value_heads": 4}
_CAPS: Final = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
_QWEN2_MOE: Final = {
    "qkv_bias": True, "norm_topk_prob": False, "num_experts": 60, "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
}  # fmt: skip
_QWEN3_MOE: Final = {
    "num_key_value_heads": 4, "norm_topk_prob": False, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}  # fmt: skip
_POST: Final = {"post_norms": True}
FAMILIES: Final[dict[str, Family]] = {
    "llama": Family(_LLAMA),
    "mistral": Family(_LLAMA, {"num_key_value_heads": 8, "sliding_window": 4096}, sliding=_always),
    "qwen2": Family(_LLAMA, {**_QWEN, "qkv_bias": True}, sliding=_late, typed=True),
    "qwen3": Family(_LLAMA, {**_QWEN, "head_dim": 128}, {"qk_norm": True}, sliding=_late, typed=True),
    "gemma": Family(_LLAMA, _GEMMAS, scaled=True, lifted=True, read=_gemma),
    "gemma2": Family(
        _GEMMA,
        {**_GEMMA2, **_CAPS},
        _POST,
        sliding=lambda i, keys: i % 2 == 0,
        typed=True,
        scaled=True,
        lifted=True,
    ),
    "gemma3_text": Family(
        _GEMMA,
        {**_GEMMA2, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
        {**_POST, "qk_norm": True},
        sliding=_pattern,
        typed=True,
        scaled=True,
        lifted=True,
    ),
    "phi3": Family(_PHI3, {"rms_norm_eps": 1e-5}, sliding=_always),
    "gpt2": Family(
        _GPT2,
        {"act": "gelu_new"},
        {"learned_positions": True, "norm": "layer", "biases": ("qkv", "out", "up", "down"), "gated": False},
        rows_first=True,
        layers="h.{i}.",
        root="transformer.",
        read=_gpt2,
    ),
    "mixtral": Family(
        _MIXTRAL,
        {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2},
        sliding=_always,
        read=_mixtral,
    ),
    "qwen2_moe": Family(
        _LLAMA,
        {**_QWEN, **_QWEN2_MOE},
        sliding=lambda i, keys: i % 2 == 0 and i < keys.left.get("max_window_layers", 28),
        typed=True,
    ),
    "qwen3_moe": Family(_LLAMA, {**_QWEN, **_QWEN3_MOE}, {"qk_norm": True}, sliding=_always),
}


def names_of(family: Family, config: DecoderConfig) -> dict[tuple[Any, ...], tuple[tuple[str, ...], ...]]:
    """For each parameter, by its path in the tree, the names it may have in a file."""
    found: dict[tuple[Any, ...], tuple[tuple[str, ...], ...]] = {}
    for root, shape in config.shapes.items():
        if root != "layers":
            found[root,] = family.names[root]
            continue
        for i, parts in enumerate(shape):
            prefix = family.layers.replace("{i}", str(i))
            for part, leaves in parts.items():
                for leaf in leaves:
                    rows = family.names[f"{part}.{leaf}"]
                    found["layers", i, part, leaf] = tuple(tuple(prefix + n for n in row) for row in rows)
    return found
