"""Adapters in the folders of PEFT: against matrices that are put together by hand, and written as they are read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import nxjax as nx
from nxjax import generation
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation import lora_apply, lora_from_pretrained, lora_init, lora_merge, lora_save_pretrained
from nxjax.generation.families import FAMILIES, config_of
from tests.generation.test_written import made, said_of, same

NUMBERS = np.random.default_rng(0)
DENSE = [kind for kind in FAMILIES if "moe" not in kind and kind != "mixtral"]


@pytest.fixture
def base(tmp_path):
    """A decoder's folder without weights, its sizes and its parameters."""

    def written(kind: str = "llama") -> Any:
        folder = tmp_path / kind
        folder.mkdir()
        said = {k: v for k, v in said_of(kind).items() if "expert" not in k and "moe" not in k}
        (folder / "config.json").write_text(json.dumps(said))
        config, _ = config_of(said, "config.json")
        return folder, config, made(config)

    return written


def given(folder, tensors, **said):
    """A folder of adapters as PEFT has it."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 6} | said))
    save_file({f"base_model.model.{n}": x for n, x in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def pair(module, rank, inputs, outputs):
    a, b = (NUMBERS.normal(size=s).astype(np.float32) for s in ((rank, inputs), (outputs, rank)))
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}, (b @ a).T


@pytest.mark.parametrize("rooted", [False, True])
def test_parts_of_a_matrix_are_put_together(base, tmp_path, rooted):
    folder, config, params = base()
    attention = "model.layers.1.self_attn."
    queries, q = pair(f"{attention}q_proj", 3, 64, 64)
    values, v = pair(f"{attention}v_proj", 2, 64, 32)
    downs, down = pair("model.layers.0.mlp.down_proj", 2, 96, 64)
    ups, up = pair("model.layers.0.mlp.up_proj", 1, 64, 96)
    adapters = given(
        tmp_path / "adapter",
        queries | values | downs | ups,
        alpha_pattern={"q_proj": 12, "self_attn.q_proj": 99},
        use_rslora=rooted,
    )
    scale = lambda alpha, rank: alpha / (rank**0.5 if rooted else rank)
    found = lora_merge(params, lora_from_pretrained(adapters, config, folder))
    first, second = found["layers"]
    had = params["layers"]
    change = np.zeros((64, 128), np.float32)
    change[:, :64], change[:, 96:] = scale(12, 3) * q, scale(6, 2) * v
    tight = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(second["attention"]["qkv"] - had[1]["attention"]["qkv"], change, **tight)
    np.testing.assert_allclose(first["mlp"]["down"] - had[0]["mlp"]["down"], scale(6, 2) * down, **tight)
    gates = np.concatenate([np.zeros_like(up), scale(6, 1) * up], 1)
    np.testing.assert_allclose(first["mlp"]["gate_up"] - had[0]["mlp"]["gate_up"], gates, **tight)
    np.testing.assert_array_equal(first["attention"]["qkv"], had[0]["attention"]["qkv"])


@pytest.mark.parametrize("kind", DENSE)
def test_what_is_written_is_read(base, tmp_path, kind):
    folder, config, params = base(kind)
    adapters = nx.tree.map(
        lambda x: x + NUMBERS.normal(size=x.shape).astype(np.float32), lora_init(nx.random.key(1), params, rank=3)
    )
    adapters["layers"][1]["attention"].pop("out")
    lora_save_pretrained(tmp_path / "adapter", adapters, config, folder)
    again = lora_from_pretrained(tmp_path / "adapter", config, folder)
    assert same(again, adapters)
    tokens = nx.array([[1, 2, 3, 4]])
    one, other = (generation.forward(lora_apply(params, a), tokens, config) for a in (adapters, again))
    assert abs(one - other).max() == 0
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert said["r"] == 3 and said["fan_in_fan_out"] == (kind == "gpt2")
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {n.split(".lora_")[0].removeprefix("base_model.model.") for n in stored} == set(said["target_modules"])


def test_ranks_and_alphas_that_differ(base, tmp_path):
    folder, config, params = base()
    adapters = lora_init(nx.random.key(1), params, rank=2, alpha=3)
    other = lora_init(nx.random.key(2), params, rank=4, alpha=5)
    adapters["layers"][0]["mlp"] = other["layers"][0]["mlp"]
    adapters = nx.tree.map(lambda x: x + 0.1, adapters)
    lora_save_pretrained(tmp_path / "adapter", adapters, config, folder)
    again = lora_from_pretrained(tmp_path / "adapter", config, folder)
    for x, y in zip(*(nx.tree.leaves(lora_merge(params, a)) for a in (adapters, again)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert set(said["rank_pattern"].values()) == {4} and set(said["alpha_pattern"].values()) == {5.0}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"), ({"peft_type": "IA3"}, "peft_type"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"), ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"lora_alpha": "much"}, "lora_alpha"), ({"lora_alpha": float("inf")}, "lora_alpha"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "alpha_pattern"), ({"something_new": 3}, "something_new"),
    ],
)  # fmt: skip
def test_keys_that_are_not_understood(base, tmp_path, said, word):
    folder, config, _ = base()
    tensors, _ = pair("model.layers.0.self_attn.q_proj", 2, 64, 64)
    with pytest.raises(InvalidFileError, match=word):
        lora_from_pretrained(given(tmp_path / "adapter", tensors, **said), config, folder)


def test_tensors_that_do_not_fit(base, tmp_path):
    folder, config, params = base()
    whole, _ = pair("model.layers.0.self_attn.q_proj", 2, 64, 64)
    for tensors, word in (
        (dict([next(iter(whole.items()))]), "half of an adapter"),
        (pair("model.layers.0.self_attn.q_proj", 2, 64, 60)[0], "another size"),
        (pair("model.layers.9.self_attn.q_proj", 2, 64, 64)[0], "layers.9"),
        (pair("model.embed_tokens", 2, 64, 40)[0], "embed_tokens"),
        ({n: x[None] for n, x in whole.items()}, "rank, inputs"),
    ):
        with pytest.raises(InvalidFileError, match=word):
            lora_from_pretrained(given(tmp_path / "adapter", tensors), config, folder)
    with pytest.raises(InvalidFileError, match="no folder of adapters"):
        lora_from_pretrained(folder, config, folder)
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(InvalidFileError):
        lora_from_pretrained(tmp_path / "adapter", config, folder)
    adapters = lora_init(nx.random.key(0), params)
    with pytest.raises(ParameterError, match="another decoder"):
        lora_save_pretrained(tmp_path / "new", {"layers": adapters["layers"][:1]}, config, folder)
    with pytest.raises(ParameterError, match="no adapters"):
        lora_save_pretrained(tmp_path / "new", {"layers": [{}, {}]}, config, folder)
    with pytest.raises(ParameterError, match="dtype"):
        lora_save_pretrained(tmp_path / "new", adapters, config, folder, dtype="int8")
    with pytest.raises(ParameterError, match="no other files"):
        lora_save_pretrained(folder, adapters, config, folder)
    assert not (tmp_path / "new").exists() and (folder / "config.json").exists()
