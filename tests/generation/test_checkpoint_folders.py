"""Folders of checkpoints, written here: what is wrong with one is said, and what is right is an ordinary decoder."""

import json
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation import DecoderConfig, Generator, forward, from_pretrained
from nxjax.generation.config import RopeScaling
from nxjax.generation.families import FAMILIES, config_of, names_of

safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

SAID: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 48, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "rope_theta": 500.0, "torch_dtype": "float32", "eos_token_id": 2,
}  # fmt: skip
TOKENS = np.arange(12, dtype=np.int32)[None]


@pytest.fixture(scope="module")
def tensors(checkpoint):
    return checkpoint(parameters(), SAID)


def parameters() -> Any:
    return generation.init(nx.random.key(0), config_of(SAID, "config.json")[0])


@pytest.fixture
def written(tensors, tmp_path):
    """A function: writes the folder, with some of it changed."""

    def write(said: dict[str, Any] = SAID, **changes: Any) -> Any:
        (tmp_path / "config.json").write_text(json.dumps(said))
        kept = {k: v for k, v in {**tensors, **changes}.items() if v is not None}
        safetensors.save_file(kept, tmp_path / "model.safetensors")
        return tmp_path

    return write


def test_a_folder_is_an_ordinary_decoder(written, tmp_path):
    params, config, _ = from_pretrained(written())
    want = forward(parameters(), TOKENS, config)
    np.testing.assert_allclose(forward(params, TOKENS, config), want, atol=1e-6)
    value, slope = nx.value_and_grad(generation.loss)(params, TOKENS, config)
    assert float(value) > 0 and nx.tree.structure(slope) == nx.tree.structure(params)
    few = generation.quantize_weights(params, config, "int8-weights")
    assert abs(forward(few, TOKENS, config) - want).max() < 0.1 * abs(want).max()
    assert len(Generator(few, config).generate([1, 2], max_tokens=3).tokens[0]) == 3
    near = from_pretrained(tmp_path, dtype="bfloat16")[0]
    assert {str(x.dtype) for x in nx.tree.leaves(near)} == {"bfloat16"}
    assert from_pretrained(tmp_path, context=30)[1].context == 30


def test_several_files_with_an_index(tensors, tmp_path):
    names = sorted(tensors)
    rows = {}
    for i, part in enumerate((names[::2], names[1::2])):
        title = f"model-{i + 1:05d}-of-00002.safetensors"
        safetensors.save_file({k: tensors[k] for k in part}, tmp_path / title)
        rows |= dict.fromkeys(part, title)
    (tmp_path / "config.json").write_text(json.dumps(SAID))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": rows}))
    params, config, _ = from_pretrained(tmp_path)
    want = forward(parameters(), TOKENS, config)
    np.testing.assert_allclose(forward(params, TOKENS, config), want, atol=1e-6)
    second = tmp_path / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    second.write_bytes(whole[:-40])
    with pytest.raises(InvalidFileError, match="model-00002-of-00002"):
        from_pretrained(tmp_path)
    second.unlink()
    with pytest.raises(InvalidFileError, match="not in its folder") as caught:
        from_pretrained(tmp_path)
    assert "model-00002-of-00002" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gemma", {"hidden_act": "gelu"}),
        ("gemma2", {"cache_implementation": "hybrid", "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}),
        ("gemma3_text", {"cache_implementation": "hybrid", "sliding_window_pattern": 6}),
        ("phi3", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False}),
        ("qwen2", {"use_mrope": False}),
        ("llama", {"_num_labels": 1, "n_special": 0, "output_past": True, "predict_special_tokens": True}),
    ],
)
def test_keys_of_published_files_that_change_nothing(kind, more):
    plain = {**SAID, "model_type": kind}
    assert config_of({**plain, **more}, "config.json") == config_of(plain, "config.json")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_hidden_layers": 10**9}, "10000 at most"),
        ({"model_type": "gemma2", "attn_logit_softcapping": "x"}, "attn_logit_softcapping"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 3}, "mlp_only_layers"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": "x"}}, "original_max"),
        ({"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 1}}, "original_max"),
        ({"rope_scaling": {"type": "longrope", "short_factor": "ab", "long_factor": "ab"}}, "short_factor"),
        ({"lm_head_bias": True}, "lm_head_bias"),
        ({"full_attn_mod": 2}, "full_attn_mod"),
        ({"attention_dilation": 2}, "attention_dilation"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"model_type": "mamba"}, "mamba"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_act": "mish"}, "mish"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "spiral|factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "twist": 1}}, "twist"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1.0}}, "factor"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"layer_types": ["chunked_attention"] * 2}, "layer_types"),
        ({"vocab_size": 41}, "embed_tokens"),
        ({"num_hidden_layers": 3}, "model.layers.2|layers.2"),
        ({"num_hidden_layers": 1}, "layers.1"),
        ({"attention_bias": True}, "q_proj.bias"),
    ],
)
def test_descriptions_that_do_not_fit(written, changes, match):
    with pytest.raises(InvalidFileError, match=match.replace(".", r"\.")):
        from_pretrained(written({**SAID, **changes}))


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {"sliding_window": 5}),
        ("llama", {"attn_logit_softcapping": 50.0}),
        ("llama", {"query_pre_attn_scalar": 256}),
        ("llama", {"num_experts": 4}),
        ("llama", {"hidden_activation": "relu"}),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("qwen2", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
        ("qwen2", {"attention_bias": True}),
        ("mistral", {"use_sliding_window": False}),
        ("mistral", {"layer_types": ["sliding_attention", "full_attention"]}),
        ("mistral", {"rope_local_base_freq": 10.0}),
        ("gemma", {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"}),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}),
        ("mixtral", {"norm_topk_prob": False}),
        ("mixtral", {"decoder_sparse_step": 2}),
        ("gpt2", {"sliding_window": 5}),
    ],
)
def test_keys_of_other_families_are_refused(kind, more):
    """They change nothing in the model that such a file describes, and would here."""
    sizes = {"vocab_size": 9, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 8} if kind == "gpt2" else SAID
    plain = {**sizes, "model_type": kind}
    config_of(plain, "config.json")
    name = "partial_rotary_factor" if "rope_parameters" in more else next(iter(more))
    with pytest.raises(InvalidFileError, match=name):
        config_of({**plain, **more}, "config.json")
    # Without a value that says something they are understood.
    nothing = {k: None for k in more if k != "hidden_act"}
    assert config_of({**plain, **nothing}, "config.json") == config_of(plain, "config.json")


def test_a_head_beside_tied_embeddings_is_the_same_or_refused(written, tensors):
    said = {**SAID, "tie_word_embeddings": True}
    table = tensors["model.embed_tokens.weight"]
    assert from_pretrained(written(said, **{"lm_head.weight": table}))[1].tied
    assert from_pretrained(written(said, **{"lm_head.weight": None}))[1].tied
    with pytest.raises(InvalidFileError, match=r"lm_head\.weight.*embed_tokens.*tie_word_embeddings"):
        from_pretrained(written(said))


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_a_mixture_of_one_expert(kind, tmp_path):
    """Its matrices are a tensor each, in files where each expert's are."""
    more = {"num_experts": 1, "num_experts_per_tok": 1}
    said = {**SAID, "model_type": kind, **more, **({} if kind == "mixtral" else {"moe_intermediate_size": 12})}
    (tmp_path / "config.json").write_text(json.dumps(said))
    config = config_of(said, "config.json")[0]
    params = generation.init(nx.random.key(0), config)
    generation.save_pretrained(tmp_path / "m", params, config, tmp_path)
    held = safetensors.load_file(tmp_path / "m" / "model.safetensors")
    assert {x.ndim for n, x in held.items() if ".experts.0." in n} == {2}
    again = from_pretrained(tmp_path / "m")[0]
    assert nx.tree.all(nx.tree.map(lambda x, y: bool((x == y).all()), again, params))


def test_tensors_that_do_not_fit(written):
    gone = {"model.layers.1.mlp.up_proj.weight": None}
    with pytest.raises(InvalidFileError, match=r"layers\.1\.mlp\.up_proj\.weight"):
        from_pretrained(written(**gone))
    more = {"model.layers.0.self_attn.q_proj.bias": np.ones(16, np.float32)}
    with pytest.raises(InvalidFileError, match=r"does not use") as caught:
        from_pretrained(written(**more))
    assert "layers.0.self_attn.q_proj.bias" in str(caught.value)
    wide = {"model.layers.0.self_attn.q_proj.weight": np.ones((16, 17), np.float32)}
    with pytest.raises(InvalidFileError, match=r"layers\.0\.self_attn\.q_proj"):
        from_pretrained(written(**wide))
    # Buffers of older files are no parameters.
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    assert from_pretrained(written(**old))[1].layers == 2


def test_folders_of_another_kind(written, tmp_path):
    with pytest.raises(InvalidFileError, match=r"config\.json"):
        from_pretrained(tmp_path)
    with pytest.raises(InvalidFileError, match="no such folder"):
        from_pretrained(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text(json.dumps(SAID))
    with pytest.raises(InvalidFileError, match="no weights"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InvalidFileError, match="not a JSON object"):
        from_pretrained(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(InvalidFileError, match=r"model\.gguf"):
        from_pretrained(tmp_path / "model.gguf")
    written()
    for wrong in ({"dtype": "int8"}, {"dtype": None}, {"context": 0}, {"context": 2.5}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            from_pretrained(tmp_path, **wrong)
    params, config, _ = from_pretrained(tmp_path)
    with pytest.raises(ParameterError, match="does not have"):
        Generator(params, config).generate([40])


LONG = RopeScaling("longrope", original_context=10, short=(1.0, 2.0), long=(3.0, 4.0))
OPTIONS = {
    "gemma": {"post_norms": True, "qk_norm": True, "attention_cap": 5.0, "logit_cap": 3.0, "windows": (3, 0),
              "local_rope_base": 100.0, "query_scale": 0.2, "embedding_scale": 4.0, "activation": "gelu_tanh"},
    "gpt2": {"learned_positions": True, "norm": "layer", "biases": ("qkv", "out", "up", "down"), "gated": False,
             "activation": "gelu"},
    "experts": {"experts": 4, "experts_per_token": 2, "expert_hidden": 6, "shared_hidden": 5, "expert_layers": (1,)},
    "longrope": {"rotary": 4, "rope_scaling": LONG},
    "dynamic": {"rope_scaling": RopeScaling("dynamic", factor=4.0, original_context=10)},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_decoder(name, tmp_path):
    """The whole sequence and steps agree, files keep the options, and the runtime's export names what it lacks."""
    config = DecoderConfig(30, 16, 2, 4, 2, 8, 24, context=32, **OPTIONS[name])
    params = generation.init(nx.random.key(0), config)
    assert sum(p.size for p in nx.tree.leaves(params)) == config.parameters
    assert set(config.options) == set(OPTIONS[name])
    tokens = np.random.default_rng(0).integers(0, 30, (2, 9)).astype(np.int32)
    whole = forward(params, tokens, config)
    _, cache = generation.extend(params, generation.init_cache(config, 2), tokens[:, :6], config, window=16)
    for i in range(6, 9):
        y, cache = generation.extend(params, cache, tokens[:, i : i + 1], config)
        np.testing.assert_allclose(y, whole[:, i], atol=2e-5)
    slope = nx.grad(generation.loss)(params, tokens, config)
    assert all(bool(abs(x).max() > 0) for x in nx.tree.leaves(slope["layers"]))
    generation.save(tmp_path / "d", params, config)
    again, sizes, _ = generation.load(tmp_path / "d")
    assert sizes == config
    assert bool((forward(again, tokens, config) == whole).all())
    with pytest.raises(ParameterError, match=config.options[0]):
        generation.export_genai(params, config, None, tmp_path / "g")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"norm": "batch"}, "norm"),
        ({"biases": ("middle",)}, "biases"),
        ({"windows": (1,)}, "windows"),
        ({"rotary": 3}, "rotary"),
        ({"experts": 4}, "experts"),
        ({"attention_cap": -1.0}, "attention_cap"),
    ],
)
def test_options_are_checked(changes, match):
    with pytest.raises(ParameterError, match=match):
        DecoderConfig(30, 16, 2, 4, 2, 8, 24, **changes)
    with pytest.raises(ParameterError, match="kind"):
        RopeScaling("spiral")


def test_every_family_names_all_its_parameters():
    for kind, family in FAMILIES.items():
        said = SAID | {"model_type": kind, "head_dim": 4}
        if kind == "gpt2":
            said = {"model_type": kind, "vocab_size": 9, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 8}
        config, found = config_of(said, "config.json")
        assert found is family and len(names_of(family, config)) > config.layers
