"""Guesses, rules, logarithms, batches and kept caches: always the tokens of the plain loop, and formulas in NumPy."""

import json

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.errors import InvalidFileError, KeyTypeError, ParameterError, ShapeError
from nxjax.generation import DecoderConfig, Draft, Generator, PromptLookup, Sampler, Session, forward
from nxjax.generation.config import RopeScaling

PROMPTS = [[5], [1, 2, 3, 1, 2, 3, 1], [39, 0, 7, 7, 7, 12]]


SIZES = {
    "width": 32,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "head_size": 16,
    "hidden": 32,
    "context": 96,
    "tied": False,
}


@pytest.fixture(scope="module")
def config():
    return DecoderConfig(40, **SIZES)


@pytest.fixture(scope="module")
def params(config):
    return generation.init(nx.random.key(0), config)


@pytest.fixture(scope="module")
def generator(params, config):
    return Generator(params, config)


@pytest.fixture(scope="module")
def small():
    smaller = DecoderConfig(40, **{**SIZES, "width": 16})
    return Generator(generation.init(nx.random.key(7), smaller), smaller)


@pytest.mark.parametrize(
    "sampler", [Sampler(), Sampler(0.8, repetition_penalty=1.3, frequency_penalty=0.2)], ids=["greedy", "drawn"]
)
def test_guesses_change_no_token(generator, small, sampler):
    """Of a smaller decoder, of the decoder itself (all right when it is greedy), and of the text."""
    key = nx.random.key(3)
    plain = generator.generate(PROMPTS, max_tokens=24, sampler=sampler, key=key)
    assert plain.calls == 23
    for draft in (Draft(small, 3), Draft(generator, 3), PromptLookup(3)) if sampler.greedy else (PromptLookup(2, 1),):
        made = generator.generate(PROMPTS, max_tokens=24, sampler=sampler, key=key, draft=draft)
        assert made.tokens == plain.tokens and made.calls <= plain.calls
        np.testing.assert_allclose(
            np.concatenate(made.log_probabilities), np.concatenate(plain.log_probabilities), atol=1e-4
        )
        if sampler.greedy and isinstance(draft, Draft) and draft.generator is generator:
            assert made.calls == 6  # three guesses and a token each time


def test_guesses_up_to_the_last_place(params, config, small):
    tight = Generator(params, config, room=24, cache_dtype="int8")
    plain = tight.generate(PROMPTS, max_tokens=99)
    assert tight.generate(PROMPTS, max_tokens=99, draft=Draft(small, 5)).tokens == plain.tokens
    assert tight.generate(PROMPTS, max_tokens=99, draft=PromptLookup(5, 1)).tokens == plain.tokens


@pytest.mark.parametrize(
    "scaling",
    [
        RopeScaling("longrope", original_context=140, short=(1.0,) * 8, long=tuple(2.0 + i for i in range(8))),
        RopeScaling("dynamic", factor=8.0, original_context=40),
    ],
    ids=["longrope", "dynamic"],
)
def test_rotations_that_depend_on_the_length(scaling, small):
    """Whole chunks of a prompt, guesses and sessions see the rates of the sequence that they are a part of."""
    long = DecoderConfig(40, **{**SIZES, "context": 224}, rope_scaling=scaling)
    weights = generation.init(nx.random.key(0), long)
    writer = Generator(weights, long)
    for count in (37, 136, 190):
        prompt = np.random.default_rng(count).integers(0, 40, count).tolist()
        plain = writer.generate(prompt, max_tokens=12)
        want = nx.nn.log_softmax(forward(weights, np.array([prompt], np.int32), long)[0, -1])[plain.tokens[0][0]]
        np.testing.assert_allclose(plain.log_probabilities[0][0], want, rtol=1e-4)
        for draft in (Draft(small, 3), Draft(writer, 3)):
            assert writer.generate(prompt, max_tokens=12, draft=draft).tokens == plain.tokens
        session = Session(writer)
        session.generate(prompt[: count // 2], max_tokens=3)
        assert session.generate(prompt, max_tokens=12).tokens == plain.tokens
        for more in ([*prompt, *plain.tokens[0], 7], prompt[:20]):
            assert session.generate(more, max_tokens=8).tokens == writer.generate(more, max_tokens=8).tokens
    text = [*prompt, *plain.tokens[0]]
    log_p = nx.nn.log_softmax(forward(weights, np.array([text[:-1]], np.int32), long)[0])
    nll = -np.take_along_axis(np.asarray(log_p), np.array(text[1:])[:, None], 1).mean()
    np.testing.assert_allclose(generation.perplexity(writer, text).value, np.exp(nll), rtol=1e-4)


def test_a_decoder_without_room_guesses_nothing(params, config, small):
    writer, little = Generator(params, config), Generator(small.params, small.config, room=20)
    plain = writer.generate([[5], [1, 2, 3] * 9], max_tokens=6)
    assert writer.generate([[5], [1, 2, 3] * 9], max_tokens=6, draft=Draft(little, 3)).tokens == plain.tokens


def test_what_is_looked_up():
    assert PromptLookup(3, 2).after([1, 2, 9, 8, 2, 7, 1, 2]) == [9, 8, 2]
    assert PromptLookup(2, 2).after([4, 1, 4]) == [1, 4] and PromptLookup(2).after([1, 2, 3]) == [] == PromptLookup(
        2
    ).after([5])


def test_logarithms_are_those_of_the_decoder(generator, params, config):
    """Of the decoder's own distribution, whatever the sampler makes of it; also on the device."""
    for on_device in (False, True):
        made = generator.generate(
            PROMPTS, max_tokens=6, sampler=Sampler(1.3, top_k=9), key=nx.random.key(1), on_device=on_device
        )
        for prompt, tokens, logs in zip(PROMPTS, made.tokens, made.log_probabilities, strict=True):
            line = np.array([*prompt, *tokens], np.int32)
            whole = np.asarray(nx.nn.log_softmax(forward(params, line[:-1], config)))[len(prompt) - 1 :]
            np.testing.assert_allclose(logs, whole[np.arange(6), tokens], atol=1e-4)


def test_penalties_and_processors_are_their_formulas(generator, params, config):
    whole = nx.jit(lambda t: forward(params, t, config))

    def odd(logits, tokens, lengths):
        """Odd tokens only, and not the last one again."""
        rows = nx.numpy.arange(logits.shape[0])
        numbers = nx.numpy.arange(logits.shape[1])[None]
        return nx.numpy.where(
            (numbers % 2 == 1) & (numbers != tokens[rows, lengths - 1][:, None]), logits, -nx.numpy.inf
        )

    for sampler in (
        Sampler(presence_penalty=0.6, frequency_penalty=0.4),
        Sampler(frequency_penalty=-0.3, processors=(odd,)),
    ):
        made = generator.generate(PROMPTS, max_tokens=16, sampler=sampler)
        assert made.tokens == generator.generate(PROMPTS, max_tokens=16, sampler=sampler, on_device=True).tokens
        for prompt, tokens in zip(PROMPTS, made.tokens, strict=True):
            line, counts = np.zeros(32, np.int32), np.zeros(40)
            line[: len(prompt)] = prompt
            for i, token in enumerate(tokens):
                at = len(prompt) + i
                x = np.array(whole(line)[at - 1], np.float64)
                if sampler.processors:
                    x[::2] = x[line[at - 1]] = -np.inf
                x -= sampler.presence_penalty * (counts > 0) + sampler.frequency_penalty * counts
                assert x[token] >= x.max() - 1e-5
                line[at], counts[token] = token, counts[token] + 1

    def cut(logits, tokens, lengths):
        return logits[:, :5]

    with pytest.raises(ShapeError, match="cut"):
        generator.generate([1], sampler=Sampler(processors=(cut,)))
    with pytest.raises(ParameterError, match="processors"):
        Sampler(processors=[odd])


def test_a_batch_reads_and_steps_no_more_than_it_needs(params, config, monkeypatch):
    """Short prompts beside a long one are read at their own length, and sequences that ended are left out."""
    lines = [[5], [1] * 40, [1, 2, 3], [9, 8]]
    free = Generator(params, config)
    alone = [free.generate(p, max_tokens=60).tokens[0] for p in lines]
    # Ends that the first and third text have, and the long one has not.
    early = {x for text in alone for x in text[:3]} | set(alone[1])
    ends = [next(x for x in alone[i] if x not in early) for i in (0, 2)]
    want = [t[: min((t.index(e) for e in ends if e in t), default=60)] for t in alone]
    generator = Generator(params, config, end=ends)
    read: list[tuple[str, tuple[int, ...]]] = []
    program = generator.program

    def seen(function, *static):
        run = program(function, *static)

        def noted(cache, tokens, *rest):
            read.append((function.__name__, tokens.shape))
            return run(cache, tokens, *rest)

        return noted

    monkeypatch.setattr(generator, "program", seen)
    monkeypatch.setattr(generator, "make_ready", lambda run, *arrays: None)
    made = generator.generate(lines, max_tokens=60)
    assert made.tokens == want
    assert [s for name, s in read if name == "read"] == [(3, 16), (1, 64)]
    sizes = [s[0] for name, s in read if name == "step"]
    assert made.reasons.count("end") >= 2 and sizes[0] == 4 and sizes[-1] <= 2 and len(sizes) == made.calls
    key, sampler = nx.random.key(2), Sampler(1.0, repetition_penalty=1.2)
    drawn = free.generate(lines, max_tokens=20, sampler=sampler, key=key)
    assert free.generate(lines, max_tokens=20, sampler=sampler, key=key, on_device=True).tokens == drawn.tokens
    assert generator.generate(lines, max_tokens=60, draft=PromptLookup(2)).tokens == want


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_sessions_read_what_is_new_and_are_files(params, config, tmp_path, dtype):
    generator = Generator(params, config, cache_dtype=dtype)
    session = Session(generator)
    talk = [1, 2, 3, 4, 5]
    for more in ([7, 8], [9] * 20, [3]):
        made = session.generate(talk, max_tokens=6)
        fresh = generator.generate(talk, max_tokens=6)
        # A cache in few bits was written from other reads of itself; its tokens may part where two are as likely.
        assert made.tokens == fresh.tokens or dtype != "float32"
        assert session.tokens == (talk + made.tokens[0])[:-1]
        talk = talk + made.tokens[0] + more
    path = tmp_path / "talk.safetensors"
    session.save(path)
    other = Session.load(path, Generator(params, config, room=90, cache_dtype=dtype))
    assert other.tokens == session.tokens and "tokens" in repr(other)
    assert other.generate(talk, max_tokens=6).tokens == session.generate(talk, max_tokens=6).tokens
    # Another beginning is read from where it differs; drawn tokens, guesses and loops go on, too.
    other_talk = [*talk[:4], 30, *talk[5:20]]
    key = nx.random.key(0)
    for how in (
        {"draft": PromptLookup()},
        {"on_device": True},
        {"sampler": Sampler(0.9, repetition_penalty=1.2), "key": key},
    ):
        made = session.generate(other_talk, max_tokens=6, **how)
        assert made.tokens == generator.generate(other_talk, max_tokens=6, **how).tokens or dtype != "float32"


def test_files_of_sessions_that_do_not_fit_are_refused(generator, params, config, tmp_path):
    session, path = Session(generator), tmp_path / "talk.safetensors"
    session.save(path)
    assert Session.load(path, generator).tokens == []
    session.generate([1, 2, 3], max_tokens=9)
    session.save(path)
    others = {
        "cache": Generator(params, config, cache_dtype="int8"),
        "parameters": Generator(generation.init(nx.random.key(9), config), config),
        "at most 4": Generator(params, config, room=4),
    }
    for words, other in others.items():
        with pytest.raises(InvalidFileError, match=words):
            Session.load(path, other)
    held = nx.quant.load(path)
    for key, value in (
        ("keys", [held["keys"][0][:, :2]]),
        ("tokens", held["tokens"] + 40),
        ("about", held["about"][:-1]),
    ):
        nx.quant.save(tmp_path / "bad.safetensors", {**held, key: value})
        with pytest.raises(InvalidFileError):
            Session.load(tmp_path / "bad.safetensors", generator)
    (tmp_path / "x.safetensors").write_bytes(json.dumps({}).encode())
    with pytest.raises(InvalidFileError):
        Session.load(tmp_path / "x.safetensors", generator)
    with pytest.raises(ParameterError, match="one prompt"):
        session.generate([[1], [2]])
    fewer = DecoderConfig(20, **SIZES)
    fewer = Generator(generation.init(nx.random.key(0), fewer), fewer)
    with pytest.raises(ParameterError, match="another vocabulary"):
        generator.generate([1], draft=Draft(fewer))
    with pytest.raises(ParameterError, match="on the device"):
        generator.generate([1], draft=PromptLookup(), on_device=True)
    with pytest.raises(ParameterError, match="ahead"):
        PromptLookup(0)


def test_perplexity_is_its_formula(generator, params, config):
    """In one window, in several, and in chunks of one; of a cache in few bits nearly."""
    tokens = np.random.default_rng(0).integers(0, 40, 230)

    def log_ps(some):
        whole = np.asarray(nx.nn.log_softmax(forward(params, some[:-1].astype(np.int32), config)), np.float64)
        return whole[np.arange(len(some) - 1), some[1:]]

    assert np.log(generation.perplexity(generator, tokens[:50]).value) == pytest.approx(
        -log_ps(tokens[:50]).mean(), abs=1e-5
    )
    for stride in (40, None):
        step, found, at = stride or 48, [log_ps(tokens[:96])], 0
        while sum(map(len, found)) < 229:
            at += step
            some = tokens[at : at + 96]
            found.append(log_ps(some)[sum(map(len, found)) - at :])
        got = generation.perplexity(generator, tokens, stride=stride)
        assert got.tokens == 229 and np.log(got.value) == pytest.approx(-np.concatenate(found).mean(), abs=1e-5)
    few = generation.perplexity(Generator(params, config, cache_dtype="int8"), tokens[:50])
    assert few.value == pytest.approx(generation.perplexity(generator, tokens[:50]).value, rel=0.02)
    for wrong in ([1], [1, 40], [[1, 2], [3, 4]], "text"):
        with pytest.raises(ParameterError, match="perplexity"):
            generation.perplexity(generator, wrong)
    with pytest.raises(ParameterError, match="stride"):
        generation.perplexity(generator, [1, 2], stride=96)


def test_sessions_stream(params, config, tokenizer):
    tokens = DecoderConfig(300, **SIZES)
    session = Session(Generator(generation.init(nx.random.key(0), tokens), tokens, tokenizer))
    text = "".join(session.stream("Tyger", max_tokens=9))
    assert text == session.generator.generate("Tyger", max_tokens=9).text


@pytest.mark.parametrize("draft", [None, PromptLookup(3, 1)])
def test_a_session_goes_on_after_a_stream_that_was_left(params, config, tokenizer, draft):
    """What was read until then is kept; a call beside a stream that goes on takes nothing from it."""
    tokens = DecoderConfig(300, **SIZES)
    writer = Generator(generation.init(nx.random.key(0), tokens), tokens, tokenizer)
    session, longer = Session(writer), "Tyger Tyger, burning bright"
    want = writer.generate(longer, max_tokens=9).tokens
    for _, _ in zip(range(3), session.stream("Tyger Tyger", max_tokens=20, draft=draft), strict=False):
        pass
    assert len(session.tokens) > len(tokenizer.encode("Tyger Tyger"))
    assert session.generate(longer, max_tokens=9).tokens == want
    stream = session.stream(longer, max_tokens=9, draft=draft)
    begin = next(stream)
    assert (
        session.generate("In the forests", max_tokens=9).tokens
        == writer.generate("In the forests", max_tokens=9).tokens
    )
    assert begin + "".join(stream) == writer.generate(longer, max_tokens=9).text
    assert session.generate(longer, max_tokens=9).tokens == want
    with pytest.raises(KeyTypeError):
        session.generate(longer, max_tokens=9, sampler=Sampler(0.5), key=3)
    assert session.generate(longer, max_tokens=9).tokens == want
