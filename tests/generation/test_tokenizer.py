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


def written(tokenizer, folder, **changes):
    said = json.loads(tokenizer.backend.to_str())
    for path, value in changes.items():
        *outer, last = path.split("__")
        place = said
        for key in outer:
            place = place[key]
        place[last] = value
    (folder / "tokenizer.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize("number", [5, 301, 10**8, 2**31, 2**32 - 1, 2**64, -1, 1.5, True])
def test_the_largest_number_asks_for_no_memory(tokenizer, tmp_path, number):
    with pytest.raises(InvalidFileError, match="not a tokenizer"):
        Tokenizer.load(written(tokenizer, tmp_path, model__vocab__new=number))


@pytest.mark.parametrize("width", [8, 10**7, 10**12, 2**63 - 1])
@pytest.mark.parametrize("multiple", [None, 0, 2**40])
def test_texts_are_not_padded(tokenizer, tmp_path, width, multiple):
    padding = {
        "strategy": {"Fixed": width}, "direction": "Right", "pad_to_multiple_of": multiple,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "x",
    }  # fmt: skip
    found = Tokenizer.load(written(tokenizer, tmp_path, padding=padding))
    assert found.encode("burning bright") == tokenizer.encode("burning bright")


def test_texts_are_not_cut_off(tokenizer, tmp_path):
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 10}
    text = "burning bright, in the forests of the night"
    assert Tokenizer.load(written(tokenizer, tmp_path, truncation=cut)).encode(text) == tokenizer.encode(text)


def test_steps_that_multiply_a_text(tokenizer, tmp_path):
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    level = json.loads(tokenizer.backend.to_str())["pre_tokenizer"]
    for changes in (
        {"normalizer": {"type": "Sequence", "normalizers": [step] * 40}},
        {"normalizer": step | {"content": "a" * 1000}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [level] * 30}},
    ):
        with pytest.raises(InvalidFileError, match="many times longer"):
            Tokenizer.load(written(tokenizer, tmp_path, **changes))
    assert Tokenizer.load(written(tokenizer, tmp_path, normalizer=step)).encode("a") == tokenizer.encode("aa")


def test_a_panic_of_the_library_is_an_error(tokenizer, tmp_path, capfd):
    """One that ``except Exception`` does not catch."""
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    level = json.loads(tokenizer.backend.to_str())["pre_tokenizer"]
    steps = {"type": "Sequence", "pretokenizers": [slow, level]}
    found = Tokenizer.load(written(tokenizer, tmp_path, pre_tokenizer=steps))
    with pytest.raises(ParameterError, match="the library fails at this text"):
        found.encode("a" * 5000 + "b")


def test_numbers_with_gaps(tokenizer):
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str().replace('"<|end|>":0', '"<|end|>":999'))
    with pytest.raises(ParameterError, match="gaps"):
        Tokenizer(backend)
