"""Byte-pair tokens: any text comes back, what is read is what was saved, special tokens."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation import Tokenizer


@settings(max_examples=20, deadline=None)
@given(text=st.text())
def test_any_text_comes_back(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert b"".join(map(tokenizer.bytes_of, tokens)) == text.encode()


def test_merges_are_those_of_the_text(tokenizer):
    assert len(tokenizer) == 300
    assert len(tokenizer.encode("Tyger Tyger")) <= 4 < len(tokenizer.encode("zebra zebra"))
    assert tokenizer.backend.decode(tokenizer.encode("burning bright")) == "burning bright"


def test_special_tokens_stand_for_no_text(tokenizer):
    end = tokenizer.end
    assert tokenizer.special == {"<|end|>": end}
    tokens = tokenizer.encode("night<|end|>eye")
    assert tokens.count(end) == 1
    assert tokenizer.decode(tokens) == "nighteye"
    assert tokenizer.decode(tokens, special=True) == "night<|end|>eye"


def test_files_are_read_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    back = Tokenizer.load(tmp_path)
    assert back.encode("In the forests, größe") == tokenizer.encode("In the forests, größe")
    assert back.end == tokenizer.end and repr(back) == repr(tokenizer)
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "tokenizer.json").end is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidFileError, match="not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_other_kinds_are_refused(tokenizer, tmp_path):
    other = json.loads(tokenizer.backend.to_str())
    other["decoder"] = {"type": "Fuse"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    with pytest.raises(ParameterError, match="ByteLevel"):
        Tokenizer.load(tmp_path)
    with pytest.raises(ParameterError, match="257 or more"):
        Tokenizer.train(["a"], 256)
    with pytest.raises(ParameterError, match="end"):
        Tokenizer.train(["a"], 300, end="<stop>")
    with pytest.raises(ParameterError, match="no such token"):
        tokenizer.decode([300])
