"""GGUF files, written with gguf-py from random weights of `transformers`: the same logits; blocks stay blocks."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import InvalidFileError
from nxjax.generation import extend, forward, from_pretrained, init_cache, save_pretrained
from nxjax.quant.qarray import QArray

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 16, "pad_token_id": 0, "rms_norm_eps": 1e-6,
}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 500.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0 + i / 9 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# Name -> model_type, GGUF's architecture, what differs from SIZES.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama", {}),
    "llama 3": ("llama", "llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", "llama", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("qwen2", "qwen2", {}),
    "qwen3": ("qwen3", "qwen3", {}),
    "gemma2": ("gemma2", "gemma2", {"query_pre_attn_scalar": 16, "sliding_window": 6}),
    "gemma3": ("gemma3_text", "gemma3", {"query_pre_attn_scalar": 16, "sliding_window": 6, "rope_parameters": None}),
    "phi3": ("phi3", "phi3", {"original_max_position_embeddings": 24, "rope_parameters": LONG}),
    "gpt2": ("gpt2", "gpt2", {}),
    "qwen2-moe": ("qwen2_moe", "qwen2moe", {"shared_expert_intermediate_size": 32, **EXPERTS}),
    "qwen3-moe": ("qwen3_moe", "qwen3moe", {"norm_topk_prob": True, **EXPERTS}),
}
GPT2 = {"vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
NAMED = {
    "num_hidden_layers": "block_count", "max_position_embeddings": "context_length", "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window", "num_experts_per_tok": "expert_used_count",
    "num_local_experts": "expert_count", "num_experts": "expert_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length", "n_embd": "embedding_length",
    "n_layer": "block_count", "n_head": "attention.head_count", "n_positions": "context_length",
}  # fmt: skip


def model_of(kind: str, more: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = GPT2 if kind == "gpt2" else {**SIZES, "rope_parameters": ROPE, **more}
    given = {k: v for k, v in given.items() if v is not None or k == "sliding_window"}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **given, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p) if p.ndim == 1 else 0.1 * torch.randn_like(p)
    return model


def write(model: Any, arch: str, file: Any, stored: str = "F32", **keys: Any) -> None:
    """The model as a GGUF file; its own weights become those that were stored."""
    import torch

    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    c = model.config
    out = gguf.GGUFWriter(file, arch)
    for key, name in NAMED.items():
        value = getattr(c, key, None)
        if key in c.to_dict() and isinstance(value, int) and not isinstance(value, bool):
            out.add_key_value(f"{arch}.{name}", value, gguf.GGUFValueType.UINT32)
    if arch == "gpt2":
        out.add_layer_norm_eps(c.layer_norm_epsilon)
        out.add_feed_forward_length(4 * c.n_embd)
    else:
        out.add_layer_norm_rms_eps(c.rms_norm_eps)
        rope = c.rope_parameters.get("full_attention", c.rope_parameters)
        out.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] == "llama3":
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

            rates = ROPE_INIT_FUNCTIONS["llama3"](c, "cpu")[0].numpy()
            plain = 500.0 ** -(np.arange(8) / 8)
            out.add_tensor("rope_freqs.weight", (plain / rates).astype(np.float32))
        if rope["rope_type"] == "longrope":
            out.add_rope_scaling_orig_ctx_len(c.original_max_position_embeddings)
            for which in ("short", "long"):
                out.add_tensor(f"rope_factors_{which}.weight", np.float32(rope[f"{which}_factor"]))
    for key, value in keys.items():
        (out.add_string if isinstance(value, str) else out.add_uint32)(key, value)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), 2)
    kind = getattr(gguf.GGMLQuantizationType, stored)
    for name, p in model.named_parameters():
        x = p.detach().numpy()
        parts = {name: x}
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(x, 2, 1)
            stem = name.removesuffix("gate_up_proj")
            parts = {f"{stem}gate_proj.weight": gate, f"{stem}up_proj.weight": up}
        elif name.endswith("experts.down_proj"):
            parts = {name + ".weight": x}
        saved = []
        for own, w in parts.items():
            is_turned = arch == "gpt2" and ".c_" in own and w.ndim == 2
            w = w.T if is_turned else w
            heads = {"q_proj": c.num_attention_heads, "k_proj": getattr(c, "num_key_value_heads", 0)}.get(
                own.split(".")[-2]
            )
            if arch == "llama" and heads:
                w = w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
            w = np.ascontiguousarray(w + (arch.startswith("gemma") and own.endswith("norm.weight")))
            title = names.get_name(own.replace("block_sparse_moe", "mlp"), try_suffixes=(".weight", ".bias"))
            assert title, own
            if w.ndim < 2 or stored == "F32":
                out.add_tensor(title, w.astype(np.float32))
                saved.append(x if len(parts) == 1 else w)
                continue
            data = gguf.quants.quantize(w, kind)
            out.add_tensor(title, data, raw_dtype=kind)
            w = gguf.quants.dequantize(data, kind).reshape(w.shape)
            if arch == "llama" and heads:
                w = w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
            saved.append(w.T if is_turned else w)
        with torch.no_grad():
            p.copy_(torch.from_numpy(np.ascontiguousarray(np.concatenate(saved, 1) if len(saved) > 1 else saved[0])))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def compare(model: Any, params: Any, config: Any) -> None:
    import torch

    tokens = np.random.default_rng(5).integers(0, 96, (2, 30)).astype(np.int32)
    with torch.no_grad():
        want = model(torch.from_numpy(tokens).long(), use_cache=False).logits.numpy()
    np.testing.assert_allclose(nx.jit(lambda t: forward(params, t, config))(tokens), want, atol=1e-4)
    _, cache = extend(params, init_cache(config, 2), tokens[:, :29], config)
    np.testing.assert_allclose(extend(params, cache, tokens[:, 29:], config)[0], want[:, -1], atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_logits_of_every_architecture(name, tmp_path):
    kind, arch, more = CASES[name]
    model = model_of(kind, more)
    write(model, arch, tmp_path / "m.gguf")
    params, config, _ = from_pretrained(tmp_path / "m.gguf")
    compare(model, params, config)


@pytest.mark.parametrize("stored", ["Q4_0", "Q8_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "F16"])
def test_blocks_of_few_bits(stored, tmp_path):
    model = model_of("llama", {"tie_word_embeddings": stored == "Q4_0"})
    write(model, "llama", tmp_path / "m.gguf", stored)
    params, config, _ = from_pretrained(tmp_path / "m.gguf")
    compare(model, params, config)
    weight = params["layers"][0]["attention"]["qkv"]
    if stored.startswith("Q"):
        assert isinstance(weight, QArray) and isinstance(params["embedding"], QArray)
        assert weight.dtype == ("int4" if stored == "Q4_0" else "int8") and weight.scale.shape == (2, 128)
        assert (weight.least is not None) == stored.endswith("_1")
    else:
        assert weight.dtype == "float32"


def test_keys_that_are_not_understood(tmp_path):
    write(model_of("llama", {}), "llama", tmp_path / "m.gguf", **{"llama.attention.kind": "other"})
    with pytest.raises(InvalidFileError, match=r"llama\.attention\.kind"):
        from_pretrained(tmp_path / "m.gguf")
    write(model_of("llama", {}), "qwen2", tmp_path / "n.gguf")
    with pytest.raises(InvalidFileError, match=r"attn_q\.bias"):
        from_pretrained(tmp_path / "n.gguf")


def test_a_part_of_several_files_is_named(tmp_path):
    write(model_of("llama", {}), "llama", tmp_path / "m.gguf", **{"split.count": 2})
    with pytest.raises(InvalidFileError, match="one part of a model") as caught:
        from_pretrained(tmp_path / "m.gguf")
    assert "split.count = 2" in str(caught.value)


def test_a_llama_has_no_window(tmp_path):
    """llama.cpp does not look at the key in files of this architecture, which are Mistral's, too."""
    write(model_of("llama", {}), "llama", tmp_path / "m.gguf", **{"llama.attention.sliding_window": 2})
    assert from_pretrained(tmp_path / "m.gguf")[1].windows == ()


def assert_same(one: Any, other: Any) -> None:
    assert nx.tree.structure(one) == nx.tree.structure(other)
    for x, y in zip(nx.tree.leaves(one), nx.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", CASES)
def test_written_back_it_is_the_same_model(name, tmp_path):
    """As GGUF, and as a folder of Hugging Face that `transformers` reads."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind, arch, more = CASES[name]
    model = model_of(kind, more)
    write(model, arch, tmp_path / "m.gguf")
    params, config, _ = from_pretrained(tmp_path / "m.gguf")
    save_pretrained(tmp_path / "n.gguf", params, config, tmp_path / "m.gguf")
    again, sizes, _ = from_pretrained(tmp_path / "n.gguf")
    assert sizes == config
    assert_same(again, params)
    reader = pytest.importorskip("gguf", reason="gguf is not installed").GGUFReader(tmp_path / "n.gguf")
    assert reader.get_field("general.file_type").contents() == 0
    before = pytest.importorskip("gguf").GGUFReader(tmp_path / "m.gguf")
    assert {t.name: t.shape.tolist() for t in reader.tensors} == {t.name: t.shape.tolist() for t in before.tensors}
    assert {k: f.types for k, f in before.fields.items()}.items() <= {
        k: f.types for k, f in reader.fields.items()
    }.items()
    save_pretrained(tmp_path / "hf", params, config, tmp_path / "m.gguf")
    again, sizes, _ = from_pretrained(tmp_path / "hf")
    assert sizes == config
    assert_same(again, params)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    compare(loaded, params, config)


def test_blocks_are_those_of_their_library(tmp_path):
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    write(model_of("llama", {}), "llama", tmp_path / "m.gguf")
    params, config, _ = from_pretrained(tmp_path / "m.gguf")
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    for dtype, kind in (("q8_0", "Q8_0"), ("bfloat16", "BF16"), ("float16", "F16")):
        save_pretrained(tmp_path / "n.gguf", params, config, tmp_path / "m.gguf", dtype=dtype)
        for t in gguf.GGUFReader(tmp_path / "n.gguf").tensors:
            own = getattr(gguf.GGMLQuantizationType, kind if len(t.shape) > 1 else "F32")
            assert t.tensor_type == own
            want = gguf.quants.quantize(np.asarray(tensors[t.name].data), own)
            np.testing.assert_array_equal(t.data.view(np.uint8).ravel(), want.view(np.uint8).ravel(), t.name)
