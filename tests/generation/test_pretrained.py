"""Checkpoints that `transformers` writes, with random weights of every family: its logits, its tokens."""

import copy
import re
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.generation import extend, forward, from_pretrained, init_cache, save_pretrained
from nxjax.generation.families import FAMILIES, config_of

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 12, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None,
}  # fmt: skip
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 24}
PAIRS = 6
SHORT, LONG = [1.0 + 0.1 * i for i in range(PAIRS)], [2.0 + i for i in range(PAIRS)]
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


# Name -> model_type, what differs from SIZES.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "smollm2": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, linear": ("llama", rope("linear", factor=3.0)),
    "llama, dynamic": ("llama", {**rope("dynamic", factor=4.0), "max_position_embeddings": 16}),
    "llama 3": ("llama", rope("llama3", factor=8.0, **LLAMA3)),
    "llama, yarn": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama, yarn as DeepSeek": (
        "llama",
        rope("yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.5, original_max_position_embeddings=16, truncate=False),
    ),
    "mistral": ("mistral", {"sliding_window": 7}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"head_dim": None}),
    "qwen2 with windows": (
        "qwen2",
        {"head_dim": None, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    ),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {"num_key_value_heads": 1}),
    "gemma2": ("gemma2", {"sliding_window": 6, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0}),
    "gemma3": ("gemma3_text", {"sliding_window": 6, "query_pre_attn_scalar": 20, "num_hidden_layers": 7}),
    "gemma3, linear": (
        "gemma3_text",
        {
            "sliding_window": 6,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": ("phi3", {"head_dim": None}),
    "phi3, longrope": (
        "phi3",
        {
            "head_dim": None,
            "original_max_position_embeddings": 24,
            "sliding_window": 9,
            **rope("longrope", short_factor=SHORT[:4], long_factor=LONG[:4]),
        },
    ),
    "phi4 mini": (
        "phi3",
        {"head_dim": None, "tie_word_embeddings": True, **rope("default", partial_rotary_factor=0.5)},
    ),
    "gpt2": ("gpt2", {}),
    "gpt2 with odd heads": ("gpt2", {"n_embd": 30, "n_head": 2}),
    "mixtral": ("mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 8}),
    "qwen2-moe": (
        "qwen2_moe",
        {"head_dim": None, "shared_expert_intermediate_size": 16, "decoder_sparse_step": 2, **EXPERTS},
    ),
    "qwen3-moe": ("qwen3_moe", {"norm_topk_prob": True, "mlp_only_layers": [1], **EXPERTS}),
}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "eos_token_id": None}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder and the model of a case, made once."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name not in made:
            kind, more = copy.deepcopy(CASES[name])
            given = (
                {**GPT2, **more}
                if kind == "gpt2"
                else {k: v for k, v in {**SIZES, **more}.items() if v is not None or k in more}
            )
            if given.get("head_dim", 0) is None:
                del given["head_dim"]
            torch.manual_seed(len(made))
            config = transformers.AutoConfig.for_model(kind, **given, attn_implementation="eager")
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            with torch.no_grad():
                for p in model.parameters():
                    # Norms and biases that do something, and logits that are far apart.
                    p += 0.3 * torch.randn_like(p) if p.ndim == 1 else 0.15 * torch.randn_like(p)
            folder = tmp_path_factory.mktemp("model")
            model.save_pretrained(folder)
            made[name] = folder, model
        return made[name]

    return make


def theirs(model: Any, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(tokens).long(), use_cache=False).logits.numpy()


def steps_of(model: Any, tokens: np.ndarray[Any, Any], first: int) -> list[np.ndarray[Any, Any]]:
    """Logits after the first tokens, and after each one more, with a cache of theirs."""
    import torch

    found, past, at = [], None, torch.from_numpy(tokens).long()
    with torch.no_grad():
        for i in range(first, tokens.shape[1] + 1):
            given = at[:, :first] if past is None else at[:, i - 1 : i]
            out = model(given, past_key_values=past, use_cache=True)
            past = out.past_key_values
            found.append(out.logits[:, -1].numpy())
    return found


def tokens_of(rows: int, count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, 96, (rows, count)).astype(np.int32)


@pytest.mark.filterwarnings("ignore:.past_key_values.")
@pytest.mark.parametrize("name", CASES)
def test_logits_and_tokens_are_those_of_transformers(written, name):
    folder, model = written(name)
    params, config, tokenizer = from_pretrained(folder)
    assert tokenizer is None
    # Greedy steps with a cache; first, since their dynamic rotations remember the longest sequence.
    prompt = tokens_of(2, 20)
    step = nx.jit(lambda cache, t: extend(params, cache, t, config, window=48))
    after, cache = step(init_cache(config, 2), prompt)
    made = []
    for _ in range(14):
        made.append((np.asarray(after), np.asarray(after).argmax(-1).astype(np.int32)[:, None]))
        after, cache = step(cache, made[-1][1])
    told = steps_of(model, np.concatenate([prompt, *(t for _, t in made)], 1), 20)
    for (logits, token), row in zip(made, told, strict=False):
        np.testing.assert_allclose(logits, row, atol=1e-4)
        assert (np.take_along_axis(row, token, 1)[:, 0] >= row.max(-1) - 1e-4).all()
    tokens = tokens_of(2, 40)
    want = theirs(model, tokens)
    assert np.abs(want).max() > 0.5
    np.testing.assert_allclose(nx.jit(lambda t: forward(params, t, config))(tokens), want, atol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_a_file_leaves_out_is_the_default_of_transformers(kind):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    said = transformers.AutoConfig.for_model(kind).to_dict()
    config, _ = config_of(said, "config.json")
    sizes = re.compile("model_type|n_|.*hidden|.*intermediate|.*layers|.*position|num_attention_heads|vocab")
    least = {k: v for k, v in said.items() if sizes.match(k) and not k.startswith("moe")}
    assert config_of(least, "config.json")[0] == config
    for key in said.keys() - least.keys():
        assert config_of({k: v for k, v in said.items() if k != key}, "config.json")[0] == config, key


def test_several_files_of_transformers(written, tmp_path):
    _, model = written("smollm2")
    model.to("cpu").save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    params, config, _ = from_pretrained(tmp_path)
    tokens = tokens_of(1, 9)
    np.testing.assert_allclose(forward(params, tokens, config), theirs(model, tokens), atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_written_back_it_is_the_same_model(written, name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder, _ = written(name)
    params, config, _ = from_pretrained(folder)
    save_pretrained(tmp_path / "m", params, config, folder)
    again, sizes, _ = from_pretrained(tmp_path / "m")
    assert sizes == config and nx.tree.structure(again) == nx.tree.structure(params)
    for x, y in zip(nx.tree.leaves(again), nx.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(x, y)
    # Both are loaded: dynamic rotations remember the longest sequence.
    load = lambda place: transformers.AutoModelForCausalLM.from_pretrained(place, attn_implementation="eager").eval()
    tokens = tokens_of(2, 30)
    np.testing.assert_allclose(theirs(load(tmp_path / "m"), tokens), theirs(load(folder), tokens), atol=1e-6)
