"""Tokenizers as other projects write them: pieces, unigrams, a beginning, several ends; and those of GGUF files."""

import json
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.generation import TextStream, Tokenizer
from nxjax.generation.chat import rendered

TEXTS = ["In the forests of the night, what immortal hand or eye", "In what distant deeps or skies burnt the fire"] * 3
SAMPLES = ["In the night of the skies", " two  spaces and\nlines", "größe 火 🔥", "what hand", ""]
SPACE = "\u2581"


def pieces(prefix: bool) -> Any:
    """BPE of SentencePiece's kind, as Llama 2 (with a space before) and Gemma have it."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    before = [normalizers.Prepend(SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", SPACE)])
    after = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*after, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False, min_frequency=2
    )
    backend.train_from_iterator(TEXTS, trainer)
    said = json.loads(backend.to_str())
    # Bytes are plain tokens, which the trainer takes as special ones only.
    said["added_tokens"] = said["added_tokens"][:3]
    backend = tokenizers.Tokenizer.from_str(json.dumps(said))
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return backend


def unigram() -> Any:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    return backend


def byte_level(tokens: Tokenizer) -> Any:
    backend = tokenizers.Tokenizer.from_str(tokens.backend.to_str())
    backend.add_special_tokens([AddedToken("<|begin|>", special=True)])
    begin = backend.token_to_id("<|begin|>")
    backend.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    return backend


@pytest.mark.parametrize("kind", ["byte level", "pieces", "pieces without a space", "unigram"])
def test_tokens_and_texts_are_the_library_s(kind, tokenizer, tmp_path):
    makers = {
        "byte level": lambda: byte_level(tokenizer),
        "pieces": lambda: pieces(True),
        "pieces without a space": lambda: pieces(False),
        "unigram": unigram,
    }
    backend = makers[kind]()
    backend.save(str(tmp_path / "tokenizer.json"))
    found = Tokenizer.load(tmp_path)
    for text in SAMPLES:
        bare = backend.encode(text, add_special_tokens=False).ids
        assert found.encode(text) == bare
        assert found.prompt(text) == backend.encode(text).ids
        if "<unk>" not in backend.encode(text, add_special_tokens=False).tokens:
            assert found.decode(bare) == backend.decode(bare)
    assert len(found.begin) == (kind != "unigram")
    # Token by token, a text goes on after another.
    tokens = found.encode("In the night of the skies")
    stream = TextStream(found.bytes_of)
    rest = "".join(map(stream.put, tokens[1:])) + stream.close()
    assert found.decode(tokens[:1]) + rest == "In the night of the skies"


def test_a_folder_has_several_ends_and_a_template(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    template = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}\n{% endfor %}"
    template += "{% if add_generation_prompt %}[me]{% endif %}"
    named = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | {"chat_template": template}))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 0, 9999]}')
    found = Tokenizer.load(tmp_path)
    assert found.ends == (tokenizer.end, 7) and found.end == tokenizer.end
    said = [{"role": "you", "content": " What hand? "}]
    assert found.decode(found.chat(said)) == "[you] What hand?\n[me]"
    assert found.decode(found.chat(said, reply=False)) == "[you] What hand?\n"
    found.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").chat(said) == found.chat(said)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidFileError, match="roles must alternate"):
        Tokenizer.load(tmp_path).chat(said)
    with pytest.raises(ParameterError, match="no template"):
        tokenizer.chat(said)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(InvalidFileError, match=r"generation_config\.json"):
        Tokenizer.load(tmp_path)


TEMPLATES = {
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}{{ pad_token }}": "!a#\u00e9#$",
    "{% if tools is not none or documents is not none %}T{% endif %}{{ messages | length }}": "2",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% continue %}-{% endfor %}": "a\u00e9",
    "{{ messages[:1] | tojson(separators=(',', ':'), sort_keys=true) }}": '[{"content":"a","role":"you"}]',
    "{{ messages[1].content | tojson }}{{ messages[1].content | tojson(ensure_ascii=true) }}": '"\u00e9""\\u00e9"',
    "{% if strftime_now is defined %}{{ strftime_now('%%') }}{% endif %}": "%",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_see_what_transformers_shows_them(template, tokenizer, tmp_path):
    """Named tokens also where no text begins with them, and no tools."""
    tokenizer.save(tmp_path)
    said = {"bos_token": {"content": "!", "__type": "AddedToken"}, "eos_token": "#", "chat_template": template}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "$", **said}))
    found = Tokenizer.load(tmp_path)
    assert found.begin == ()
    messages = [{"role": "you", "content": "a"}, {"role": "me", "content": "\u00e9"}]
    assert found.chat(messages) == tokenizer.encode(TEMPLATES[template])
    found.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").chat(messages) == found.chat(messages)
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    given = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert found.chat(messages) == given


@pytest.mark.parametrize(
    "template", ["{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{% for %}", "{{ 1 / 0 }}"]
)
def test_templates_are_in_a_sandbox(template):
    with pytest.raises(InvalidFileError, match="template"):
        rendered(template, [{"role": "a", "content": "b"}])


def keys(backend: Any, model: str, **more: Any) -> dict[str, Any]:
    said = json.loads(backend.to_str())
    numbers = backend.get_vocab(with_added_tokens=True)
    texts = sorted(numbers, key=numbers.__getitem__)
    special = {t["content"] for t in said["added_tokens"] if t["special"]}
    merges = [" ".join(m) for m in said["model"].get("merges", ())]
    found = {"model": model, "tokens": texts, "token_type": [3 if t in special else 1 for t in texts], **more}
    return {f"tokenizer.ggml.{k}": v for k, v in (found if model == "llama" else {"merges": merges, **found}).items()}


def test_vocabularies_of_gguf(tokenizer):
    plain = tokenizer.backend
    found = Tokenizer.from_gguf(keys(plain, "gpt2", pre="gpt-2", eos_token_id=tokenizer.end))
    assert found.end == tokenizer.end and found.begin == ()
    assert all(found.encode(t) == tokenizer.encode(t) for t in SAMPLES)
    for prefix in (True, False):
        backend = pieces(prefix)
        more = {"bos_token_id": 1, "eos_token_id": 2, "eot_token_id": 3, "unknown_token_id": 0}
        # What the first merges make is likeliest.
        scores = [-float(i) for i in range(backend.get_vocab_size())]
        found = Tokenizer.from_gguf(keys(backend, "llama", scores=scores, add_space_prefix=prefix, **more))
        assert found.begin == (1,) and found.ends == (2, 3)
        assert found.named == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        for text in SAMPLES:
            assert found.prompt(text) == backend.encode(text).ids
            assert found.decode(found.encode(text)) == text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["it", "'s", " 1234", " $*", " --"]),
        ("smollm", ["it", "'s", " ", "1", "2", "3", "4", " $*", " --"]),
        ("qwen2", ["it", "'s", " ", "1", "2", "3", "4", " $*", " --"]),
        ("llama-bpe", ["it", "'s", " ", "123", "4", " $*", " --"]),
        ("default", ["it", "'", "s", " ", "123", "4", " ", "$*", " ", "--"]),
        (None, ["it", "'", "s", " ", "123", "4", " ", "$*", " ", "--"]),
    ],
)
def test_texts_are_parted_as_llama_cpp_does(tokenizer, pre, pieces):
    """Where nothing is said of it, too; and what begins a text, which some kinds of files leave out."""
    said = keys(tokenizer.backend, "gpt2", bos_token_id=1, **({} if pre is None else {"pre": pre}))
    found = Tokenizer.from_gguf(said)
    parted = [text for text, _ in found.backend.pre_tokenizer.pre_tokenize_str("it's 1234 $* --")]
    assert [p.replace("\u0120", " ") for p in parted] == pieces
    assert found.begin == ((1,) if pre == "llama-bpe" else ())


def test_control_tokens_of_turns_end_texts(tokenizer):
    """Those that no key names, too, as in llama.cpp; a plain token of such a text does not."""
    said = keys(tokenizer.backend, "gpt2", eos_token_id=5, eom_token_id=9)
    said["tokenizer.ggml.tokens"] = [*said["tokenizer.ggml.tokens"], "<|im_end|>", "<|endoftext|>"]
    said["tokenizer.ggml.token_type"] = [*said["tokenizer.ggml.token_type"], 3, 1]
    assert Tokenizer.from_gguf(said).ends == (5, 9, 300, tokenizer.end)


def test_spaces_of_unigrams(tokenizer):
    backend = unigram()
    said = keys(backend, "llama", scores=[-float(i) for i in range(backend.get_vocab_size())])
    said["tokenizer.ggml.model"] = "t5"
    plain = Tokenizer.from_gguf(said)
    fewer = Tokenizer.from_gguf({**said, "tokenizer.ggml.remove_extra_whitespaces": True})
    assert fewer.encode("  the   night ") == plain.encode("the night") != plain.encode("  the   night ")
    with pytest.raises(InvalidFileError, match="precompiled_charsmap"):
        Tokenizer.from_gguf({**said, "tokenizer.ggml.precompiled_charsmap": [1, 2]})


@pytest.mark.parametrize("kind", ["byte level", "pieces", "pieces without a space", "unigram"])
def test_files_of_a_gguf_vocabulary_say_all_that_it_does(kind, tokenizer, tmp_path):
    """What begins a text, all that end one, and the kind of vocabulary, to readers of the files of a saved one."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    ends = {"add_bos_token": True, "bos_token_id": 1, "eos_token_id": 2, "eot_token_id": 3, "unknown_token_id": 0}
    if kind == "byte level":
        said = keys(tokenizer.backend, "gpt2", pre="gpt-2", **ends)
    else:
        backend = unigram() if kind == "unigram" else pieces(kind == "pieces")
        scores = [-float(i) for i in range(backend.get_vocab_size())]
        said = keys(backend, "llama", scores=scores, add_space_prefix=kind != "pieces without a space", **ends)
        said["tokenizer.ggml.model"] = "t5" if kind == "unigram" else "llama"
    found = Tokenizer.from_gguf(said)
    found.save(tmp_path)
    again, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    named = (2, 3, tokenizer.end) if kind == "byte level" else (2, 3)
    assert again.begin == found.begin == (1,) and again.ends == found.ends == named
    for text in SAMPLES:
        tokens = found.prompt(text)
        assert again.prompt(text) == tokens and theirs(text).input_ids == tokens
        if "<unk>" not in theirs.convert_ids_to_tokens(tokens):
            assert again.decode(tokens[1:]) == found.decode(tokens[1:]) == theirs.decode(tokens[1:])
    assert (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)


def test_tokens_that_begin_and_end_are_of_the_vocabulary(tokenizer):
    for wrong in ({"end": 300}, {"end": (0, -1)}, {"begin": [300]}):
        with pytest.raises(ParameterError, match="no such token"):
            Tokenizer(tokenizers.Tokenizer.from_str(tokenizer.backend.to_str()), **wrong)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"model": "rwkv"}, "rwkv"),
        ({"pre": "other-tokens"}, "other-tokens"),
        ({"merges": ["a b c"]}, "merges"),
        ({"token_type": [1]}, "token_type"),
        ({"tokens": ["a", "a"]}, "tokens"),
        ({"tokens": 3}, "tokens"),
    ],
)
def test_other_vocabularies_are_refused(tokenizer, changed, match):
    said = keys(tokenizer.backend, "gpt2") | {f"tokenizer.ggml.{k}": v for k, v in changed.items()}
    with pytest.raises(InvalidFileError, match=match):
        Tokenizer.from_gguf(said)
