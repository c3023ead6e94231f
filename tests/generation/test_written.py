"""Decoders written as others read them, and read again: the same bits. What does not fit is said and leaves nothing."""

import json
import os
import struct
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation import DecoderConfig, from_pretrained, lora_apply, lora_init, lora_merge, save_pretrained
from nxjax.generation.families import FAMILIES, config_of
from nxjax.interop import load_gguf, load_safetensors
from nxjax.interop.writing import gguf_key, write_gguf

SAID: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 48, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "head_dim": 16,
}  # fmt: skip
EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "vocab_size": 40, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 48}
SIZES = {"block_count": 2, "context_length": 48, "embedding_length": 64, "feed_forward_length": 96,
         "attention.head_count": 4, "attention.head_count_kv": 2}  # fmt: skip


def said_of(kind: str) -> dict[str, Any]:
    return GPT2 if kind == "gpt2" else SAID | {"model_type": kind} | EXPERTS.get(kind, {})


def made(config: DecoderConfig) -> Any:
    """Parameters of which no two norms are the same."""
    draw = np.random.default_rng(0)
    params = generation.init(nx.random.key(0), config)
    return nx.tree.map(lambda x: x + np.float32(0.1) * draw.standard_normal(x.shape).astype(np.float32), params)


def same(one: Any, other: Any) -> bool:
    assert nx.tree.structure(one) == nx.tree.structure(other)
    pairs = zip(nx.tree.leaves(one), nx.tree.leaves(other), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@pytest.fixture
def folder(tmp_path):
    """A folder as others have it, but for the weights: those are not looked at."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps(SAID))
    (tmp_path / "base" / "generation_config.json").write_text('{"eos_token_id": 3}')
    (tmp_path / "base" / "README.md").write_text("not copied")
    return tmp_path / "base"


@pytest.fixture
def file(tmp_path):
    """A GGUF file of a Llama, as others write it, and its parameters."""
    config = DecoderConfig(40, 64, 2, 4, 2, 16, 96, context=48, tied=False)
    shapes = {"token_embd.weight": (40, 64), "output_norm.weight": (64,), "output.weight": (40, 64)}
    for i in range(2):
        rows = {"attn_norm": (64,), "ffn_norm": (64,), "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64)}
        rows |= {"attn_output": (64, 64), "ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
        shapes |= {f"blk.{i}.{n}.weight": s for n, s in rows.items()}
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    string = lambda k, v: text(k) + struct.pack("<I", 8) + text(v)
    keys = {"general.architecture": string("general.architecture", "llama")}
    keys |= {f"llama.{k}": gguf_key(f"llama.{k}", v) for k, v in SIZES.items()}
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    keys |= {epsilon: text(epsilon) + struct.pack("<If", 6, 1e-5), "note": string("note", "kept")}
    draw = np.random.default_rng(0)
    with open(tmp_path / "base.gguf", "wb") as out:
        tensors = (draw.standard_normal(s).astype(np.float32) for s in shapes.values())
        write_gguf(out, keys, [(n, s, 0) for n, s in shapes.items()], tensors)
    params, sizes, _ = from_pretrained(tmp_path / "base.gguf")
    assert sizes.shapes == config.shapes
    return tmp_path / "base.gguf", params, sizes


@pytest.mark.parametrize("kind", FAMILIES)
def test_folders_of_every_family(kind, folder):
    (folder / "config.json").write_text(json.dumps(said_of(kind)))
    config = config_of(said_of(kind), "config.json")[0]
    params = made(config)
    target = folder.parent / "tuned"
    save_pretrained(target, params, config, folder)
    again, sizes, _ = from_pretrained(target)
    assert sizes == config and same(again, params)
    assert {f.name for f in target.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    said = json.loads((target / "config.json").read_text())
    assert said["dtype"] == "float32" and "torch_dtype" not in said


def test_dtypes_of_a_folder(folder):
    config = config_of(SAID, "config.json")[0]
    params, target = made(config), folder.parent / "tuned"
    for dtype in ("float16", "bfloat16", "float64"):
        save_pretrained(target, params, config, folder, dtype=dtype)
        assert {str(x.dtype) for x in load_safetensors(target).values()} == {dtype}
        near = nx.tree.map(lambda x, d=dtype: x.astype(d).astype("float32"), params)
        assert same(from_pretrained(target)[0], near)


def test_gguf_files_keep_what_they_said(file, tmp_path):
    like, params, config = file
    save_pretrained(tmp_path / "n.gguf", params, config, like)
    again, sizes, _ = from_pretrained(tmp_path / "n.gguf")
    assert sizes == config and same(again, params)
    before, after = load_gguf(like), load_gguf(tmp_path / "n.gguf")
    assert after.metadata == before.metadata | {"general.file_type": 0, "general.quantization_version": 2}
    assert set(after) == set(before)
    assert all(np.array_equal(before[n], after[n]) for n in before)
    for dtype, number, most in (("float16", 1, 2e-3), ("bfloat16", 32, 2e-2), ("q8_0", 7, 3e-2)):
        save_pretrained(tmp_path / "n.gguf", params, config, like, dtype=dtype)
        near = load_gguf(tmp_path / "n.gguf")
        assert near.metadata["general.file_type"] == number
        np.testing.assert_array_equal(near["blk.0.attn_norm.weight"], before["blk.0.attn_norm.weight"])
        difference = max(float(abs(near[n].astype("float32") - before[n]).max()) for n in before)
        assert 0 < difference < most
    few = from_pretrained(tmp_path / "n.gguf")[0]
    assert generation.nbytes(few) < 0.4 * generation.nbytes(params)
    # Its own blocks once more are the same numbers.
    save_pretrained(tmp_path / "o.gguf", few, config, like, dtype="q8_0")
    assert same(from_pretrained(tmp_path / "o.gguf")[0], few)


def test_a_gguf_file_becomes_a_folder(file, tmp_path):
    like, params, config = file
    save_pretrained(tmp_path / "hf", params, config, like)
    again, sizes, tokenizer = from_pretrained(tmp_path / "hf")
    assert sizes == config and same(again, params) and tokenizer is None
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "llama"


def test_adapters_are_written_with_their_base(file, tmp_path):
    like, params, config = file
    save_pretrained(tmp_path / "few.gguf", params, config, like, dtype="q8_0")
    few = from_pretrained(tmp_path / "few.gguf")[0]
    adapters = nx.tree.map(lambda x: x + 0.01, lora_init(nx.random.key(0), few, 2))
    merged = lora_merge(few, adapters)
    for given in (merged, lora_apply(few, adapters)):
        save_pretrained(tmp_path / "n.gguf", given, config, tmp_path / "few.gguf")
        assert same(from_pretrained(tmp_path / "n.gguf")[0], merged)


def test_what_does_not_fit_leaves_what_was_there(folder, file, tmp_path):
    config = config_of(SAID, "config.json")[0]
    params = made(config)
    like, theirs, sizes = file
    target = tmp_path / "tuned"
    save_pretrained(target, params, config, folder)
    before = {f.name: f.read_bytes() for f in target.iterdir()}
    large = {**params, "norm": params["norm"] * np.float32(1e30)}
    lost = {k: v for k, v in params.items() if k != "head"}
    cases = [
        ((target, params, config, folder), {"dtype": "int8"}, "dtype"),
        ((target, params, config, folder), {"dtype": "q8_0"}, "q8_0"),
        ((target, large, config, folder), {"dtype": "float16"}, r"model\.norm\.weight"),
        ((target, {**params, "norm": params["norm"] * np.nan}, config, folder), {}, r"model\.norm\.weight"),
        ((target, lost, config, folder), {}, "head"),
        ((target, params, config, like), {}, "experts|epsilon|another decoder"),
        ((tmp_path / "n.gguf", params, config, folder), {}, "like another one"),
        ((tmp_path / "n.gguf", theirs, sizes, like), {"dtype": "float64"}, "float64"),
        ((tmp_path / "n.gguf", {**theirs, "norm": theirs["norm"] * np.inf}, sizes, like), {}, r"output_norm\.weight"),
        ((folder, params, config, folder), {}, "something else"),
    ]
    for args, options, match in cases:
        with pytest.raises(ParameterError, match=match):
            save_pretrained(*args, **options)
    with pytest.raises(InvalidFileError, match="no such"):
        save_pretrained(target, params, config, tmp_path / "nowhere")
    (folder / "config.json").write_text(json.dumps(SAID | {"model_type": "mamba"}))
    with pytest.raises(InvalidFileError, match="mamba"):
        save_pretrained(target, params, config, folder)
    assert {f.name: f.read_bytes() for f in target.iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["base", "base.gguf", "tuned"]
