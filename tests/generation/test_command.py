"""``nxjax generate``: the text of a folder of either kind, and errors as one message."""

import io

from nxjax import generation
from nxjax.__main__ import main
from nxjax.generation import Generator


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


def test_errors_are_messages(tmp_path, params, config, capsys):
    generation.save(tmp_path, params, config)
    assert main(["generate", str(tmp_path), "x"]) == 1
    assert "tokenizer" in capsys.readouterr().err
    assert main(["generate", str(tmp_path), "x", "--provider", "cpu"]) == 1
    assert "onnxruntime-genai" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none"), "x"]) == 1
    assert "not a folder of a decoder" in capsys.readouterr().err
