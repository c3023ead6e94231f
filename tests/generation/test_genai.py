"""Model folders: ONNX Runtime's generator and plain ONNX Runtime write the tokens that nxjax writes."""

import json
import types

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.backends.evidence import digest
from nxjax.errors import ExecutionError, InvalidFileError, LoweringError, ParameterError
from nxjax.generation import DecoderConfig, Generator, Sampler, Tokenizer, forward
from nxjax.vendors.onnx.genai import GenaiSession

PROMPTS = [[5], [299, 0, 299], list(range(3, 40)), [7, 0, 0, 0]]
# Where the two most likely logits are nearer than this, float32 sums in another order may swap them.
NEAR = 1e-4


def decoder(tied, policy):
    config = DecoderConfig(300, 64, 2, 4, 2, 16, 96, context=160, tied=tied)
    params = generation.init(nx.random.key(int(tied)), config)
    return (params if policy is None else generation.quantize_weights(params, config, policy)), config


def decided(params, config, prompt, tokens):
    """How many of ``tokens`` are ahead of every other by more than `NEAR`, from the first on."""
    line = np.array(prompt + tokens, np.int32)
    logits = np.sort(np.asarray(forward(params, line, config)), -1)[len(prompt) - 1 : -1]
    close = np.flatnonzero(logits[:, -1] - logits[:, -2] <= NEAR)
    return int(close[0]) if close.size else len(tokens)


@pytest.mark.parametrize(("tied", "policy"), [(True, None), (True, "int8-weights"), (False, "int4-weights")])
def test_greedy_tokens_are_those_of_the_folder(tmp_path, tied, policy):
    params, config = decoder(tied, policy)
    sizes = generation.export_genai(params, config, None, tmp_path / "d")
    if policy:
        assert sizes["model.onnx.data"] < generation.nbytes(params) * 1.6 + 60000
    model, ours = generation.load_genai(tmp_path / "d"), Generator(params, config)
    assert (model.label, model.provider) == ("host", "cpu")
    compared = 0
    for prompt in PROMPTS:
        (want,) = ours.generate(prompt, max_tokens=120).tokens
        (got,) = model.generate(prompt, max_tokens=120).tokens
        n = decided(params, config, prompt, want)
        assert got[:n] == want[:n] and len(got) == len(want) == 120
        compared += n
    assert compared >= 300
    want = np.asarray(forward(params, np.array(PROMPTS[2]), config))[-1]
    np.testing.assert_allclose(model.logits(PROMPTS[2])[:300], want, atol=5e-5)


def test_batches_of_different_lengths_and_ends(tmp_path, params, config, tokenizer):
    generation.export_genai(params, config, tokenizer, tmp_path / "d")
    model, ours = generation.load_genai(tmp_path / "d"), Generator(params, config, tokenizer)
    texts = ["Tyger", "In the forests of the", "W"]
    want = ours.generate(texts, max_tokens=24)
    got = model.generate(texts, max_tokens=24)
    assert got.tokens == want.tokens and got.texts == want.texts and got.reasons == want.reasons
    assert "".join(model.stream("Tyger", max_tokens=24)) == want.texts[0]
    two = Tokenizer(tokenizer.backend, [tokenizer.end, want.tokens[0][5]], begin=[want.tokens[1][0]])
    generation.export_genai(params, config, two, tmp_path / "e")
    both, want_ = generation.load_genai(tmp_path / "e"), Generator(params, config, two).generate(texts, max_tokens=24)
    assert both.generate(texts, max_tokens=24).tokens == want_.tokens and both.ends == two.ends
    # The runtime stops at the folder's end token, and its own tokenizer reads the folder's files.
    end = want.tokens[0][5]
    configuration = json.loads((tmp_path / "d" / "genai_config.json").read_text())
    configuration["model"]["eos_token_id"] = end
    (tmp_path / "d" / "genai_config.json").write_text(json.dumps(configuration))
    ended = generation.load_genai(tmp_path / "d").generate("Tyger", max_tokens=24)
    cut = want.tokens[0].index(end)
    assert ended.tokens[0] == want.tokens[0][:cut] and ended.reasons == ["end"]
    import onnxruntime_genai as og

    words = og.Tokenizer(og.Model(str(tmp_path / "d")))
    assert words.encode(texts[1]).tolist() == tokenizer.encode(texts[1])
    assert words.decode(np.array(tokenizer.encode(texts[1]), np.int32)) == texts[1]


def test_plain_onnx_runtime_writes_the_same(tmp_path):
    """The graph without the generator: the past is handed from run to run, with and without a prompt in pieces."""
    import onnxruntime as ort

    params, config = decoder(True, "int4-weights")
    generation.export_genai(params, config, None, tmp_path / "d")
    session = ort.InferenceSession(str(tmp_path / "d" / "model.onnx"), providers=["CPUExecutionProvider"])
    names = [f"{i}.{part}" for i in range(config.layers) for part in ("key", "value")]
    past = {n: np.zeros((1, config.kv_heads, 0, config.head_size), np.float32) for n in names}
    prompt, made = [9, 8, 7, 300 - 1], []
    tokens, total = np.array([prompt], np.int64), len(prompt)
    for _ in range(40):
        feeds = {"input_ids": tokens, "attention_mask": np.ones((1, total), np.int64)}
        feeds |= {f"past_key_values.{n}": x for n, x in past.items()}
        logits, *present = session.run(["logits", *(f"present.{n}" for n in names)], feeds)
        assert logits.shape == (1, tokens.shape[1], 301) and logits[..., 300].max() < -1e38
        past = dict(zip(names, present, strict=True))
        made.append(int(logits[0, -1].argmax()))
        tokens, total = np.array([[made[-1]]], np.int64), total + 1
    assert made == Generator(params, config).generate(prompt, max_tokens=40).tokens[0]


def test_draws_follow_the_sampler(tmp_path, params, config):
    generation.export_genai(params, config, None, tmp_path / "d")
    model = generation.load_genai(tmp_path / "d")
    sampler = Sampler(1.0, top_k=5)
    one, same, other = (model.generate([5], max_tokens=20, sampler=sampler, seed=s).tokens for s in (1, 1, 2))
    assert one == same != other
    line = [5]
    for token in one[0]:
        assert token in np.argsort(-np.asarray(forward(params, np.array(line), config))[-1])[:5]
        line.append(token)
    with pytest.raises(ParameterError, match="min_p"):
        model.generate([5], sampler=Sampler(1.0, min_p=0.1))
    with pytest.raises(ParameterError, match="padding"):
        model.generate([[300], [1, 2]])


def test_a_provider_that_takes_a_folder_proves_no_chip(tmp_path, params, config, monkeypatch):
    """A runtime that accepts the provider says nothing of where operations run."""
    generation.export_genai(params, config, None, tmp_path / "d", provider="OpenVINO")
    runtime = types.SimpleNamespace(Config=lambda path: None, Model=lambda settings: None, __version__="0.18")
    monkeypatch.setattr("nxjax.vendors.onnx.genai.need", lambda *_: runtime)
    session = GenaiSession(tmp_path / "d")
    (record,) = session.evidence
    assert (session.label, session.provider, record.act) == ("emitted", "OpenVINO", "loaded")
    assert "OpenVINO took the graph" in record.answer and "0.18" in record.tool
    assert record.took == (digest((tmp_path / "d" / "model.onnx").read_bytes()),)


def test_folders_for_other_providers_are_emitted(tmp_path, params, config):
    generation.export_genai(params, config, None, tmp_path / "d", provider="RyzenAI", options={"some": "1"})
    made = json.loads((tmp_path / "d" / "genai_config.json").read_text())
    assert made["model"]["decoder"]["session_options"]["provider_options"] == [{"RyzenAI": {"some": "1"}}]
    with pytest.raises(ExecutionError, match=r"(?s)RyzenAI.*AMD's Ryzen AI Software"):
        generation.load_genai(tmp_path / "d")
    host = generation.load_genai(tmp_path / "d", provider="cpu")
    assert host.label == "host"
    assert host.generate([5], max_tokens=9).tokens == Generator(params, config).generate([5], max_tokens=9).tokens
    with pytest.raises(ParameterError, match="OpenVINO"):
        generation.export_genai(params, config, None, tmp_path / "d", provider="tpu")


def test_folders_are_replaced_whole_and_nothing_else_is(tmp_path, params, config, monkeypatch):
    place = tmp_path / "d"
    generation.export_genai(params, config, None, place)
    before = {f.name: f.read_bytes() for f in place.iterdir()}
    from nxjax.vendors.onnx import genai

    def full(fd):
        raise OSError("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(genai.os, "fsync", full)
        with pytest.raises(OSError, match="full"):
            generation.export_genai(generation.quantize_weights(params, config), config, None, place)
    assert {f.name: f.read_bytes() for f in place.iterdir()} == before
    assert [f.name for f in tmp_path.iterdir()] == ["d"]
    generation.export_genai(generation.quantize_weights(params, config), config, None, place)
    assert (place / "model.onnx.data").stat().st_size < len(before["model.onnx.data"]) / 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(ParameterError, match="something else"):
        generation.export_genai(params, config, None, tmp_path / "other")
    with pytest.raises(InvalidFileError, match="no folder of onnxruntime-genai"):
        generation.load_genai(tmp_path / "other")
    odd = DecoderConfig(9, 16, 1, 2, 1, 8, 8)
    with pytest.raises(LoweringError, match="multiple of 16"):
        generation.export_genai(generation.init(nx.random.key(0), odd), odd, None, tmp_path / "odd")


def test_folders_with_other_tokenizers_take_tokens(tmp_path, params, config, tokenizer):
    generation.export_genai(params, config, tokenizer, tmp_path / "d")
    other = json.loads((tmp_path / "d" / "tokenizer.json").read_text())
    other["decoder"] = {"type": "Fuse"}
    (tmp_path / "d" / "tokenizer.json").write_text(json.dumps(other))
    model = generation.load_genai(tmp_path / "d")
    made = model.generate([5, 6], max_tokens=6)
    assert made.texts is None and made.tokens == Generator(params, config).generate([5, 6], max_tokens=6).tokens
    with pytest.raises(ParameterError, match="tokenizer"):
        model.stream("x")
