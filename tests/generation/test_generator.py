"""Writing: against a loop without a cache, row by row, on the device; few programs; beams against all sequences."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.errors import ParameterError
from nxjax.generation import DecoderConfig, Generator, Sampler, beam_search, forward, pack_weights
from nxjax.generation.generator import GREEDY
from nxjax.generation.steps import step
from nxjax.generation.text import TextStream
from nxjax.quant import QArray

PROMPTS = [[5], [1, 2, 3], [299, 0, 7, 7, 7, 12]]


@pytest.fixture(scope="module")
def generator(params, config):
    return Generator(params, config)


def test_greedy_is_the_most_likely_token_each_time(generator, params, config):
    whole = nx.jit(lambda t: forward(params, t, config))
    made = generator.generate(PROMPTS, max_tokens=12)
    for prompt, tokens in zip(PROMPTS, made.tokens, strict=True):
        line = np.zeros(32, np.int32)
        line[: len(prompt)] = prompt
        for i, token in enumerate(tokens):
            # Padding to the right is not seen.
            assert int(whole(line)[len(prompt) + i - 1].argmax()) == token
            line[len(prompt) + i] = token
    assert made.reasons == ["length"] * 3 and made.prompt_tokens == [1, 3, 6]
    # The first two steps of a batch of three compile.
    assert made.steps == 27 and generator.generate(PROMPTS, max_tokens=12).steps == 33
    assert generator.generate(PROMPTS, max_tokens=12, on_device=True).tokens_per_second is None


@pytest.mark.parametrize(
    "sampler", [Sampler(), Sampler(0.9, top_k=20, top_p=0.95), Sampler(0.7, repetition_penalty=1.5)], ids=str
)
def test_batches_and_loops_on_the_device_give_the_same(generator, sampler):
    key = nx.random.key(3)
    made = generator.generate(PROMPTS, max_tokens=20, sampler=sampler, key=key)
    assert generator.generate(PROMPTS, max_tokens=20, sampler=sampler, key=key, on_device=True).tokens == made.tokens
    if sampler.greedy:
        assert [generator.generate(p, max_tokens=20).tokens[0] for p in PROMPTS] == made.tokens
    else:
        # The first row's draws do not depend on the others, and another key gives another text.
        alone = generator.generate(PROMPTS[0], max_tokens=20, sampler=sampler, key=key)
        other = generator.generate(PROMPTS[0], max_tokens=20, sampler=sampler, key=nx.random.key(4))
        assert alone.tokens[0] == made.tokens[0] != other.tokens[0]


def test_texts_end_at_end_tokens_and_at_the_last_place(params, config):
    free = Generator(params, config, room=16).generate(PROMPTS, max_tokens=99)
    assert [len(t) for t in free.tokens] == [15, 13, 10] and free.reasons == ["length"] * 3
    end = free.tokens[1][4]
    never = next(t for t in range(300) if not any(t in row for row in free.tokens))
    ending = Generator(params, config, end=[end, never], room=16)
    for on_device in (False, True):
        made = ending.generate(PROMPTS, max_tokens=99, on_device=on_device)
        for tokens, before, reason in zip(made.tokens, free.tokens, made.reasons, strict=True):
            cut = before.index(end) if end in before else len(before)
            assert tokens == before[:cut] and reason == ("end" if end in before else "length")


def test_few_programs_for_all_lengths(params, config):
    generator = Generator(params, config)
    for n in (1, 3, 9, 16, 17, 30):
        generator.generate([1] * n, max_tokens=3)
    generator.generate([1], max_tokens=100)
    programs = {(f.__name__, window): len(p._entries) for (f, _, window), p in generator._programs.items()}
    assert programs == {("read", 16): 1, ("read", 32): 1, ("step", generator.room): 1}


def test_streams_are_the_text_in_pieces(params, config, tokenizer):
    generator = Generator(params, config, tokenizer)
    sampler, key = Sampler(1.5), nx.random.key(1)
    whole = generator.generate(["Tyger", "In the"], max_tokens=40, sampler=sampler, key=key)
    assert whole.texts == [tokenizer.decode(t) for t in whole.tokens]
    pieces = list(generator.stream(["Tyger", "In the"], max_tokens=40, sampler=sampler, key=key))
    assert len(pieces) > 20
    assert ["".join(p for row, p in pieces if row == i) for i in range(2)] == whole.texts
    stop = whole.texts[0][10:13]
    cut = generator.generate("Tyger", max_tokens=40, sampler=sampler, key=key, stop=[stop])
    assert cut.text == whole.texts[0][: whole.texts[0].index(stop)] and cut.reasons == ["stop"]
    assert "".join(generator.stream("Tyger", max_tokens=40, sampler=sampler, key=key, stop=[stop])) == cut.text
    assert "<td>stop</td>" in cut._repr_html_()


@pytest.mark.parametrize("few", [False, True])
def test_no_step_waits_for_its_program(params, config, few):
    """The first step's program is there with the first token; who asks for one token needs none."""
    made = Generator(generation.quantize_weights(params, config) if few else params, config)
    want = made.generate([1, 2, 3], max_tokens=1).tokens[0]
    program = made.program(step, GREEDY, made.room)
    program = program.func if few else program
    assert program.trace_count == 0
    run = made.start([1, 2, 3], 5, GREEDY, None, (), None)
    pieces = run.pieces()
    next(pieces)
    assert run.rows[0].tokens == want and program.trace_count == 1
    assert len(list(pieces)) == 4 and program.trace_count == 1


def test_pieces_never_cut_a_character_or_a_stop_sequence():
    data = "äö→ <e>< 🙂<en<end>tail".encode()
    stream = TextStream(lambda i: data[i : i + 1], stop=("<end>", "zzz"))
    pieces = [stream.put(i) for i in range(len(data))]
    assert "".join(pieces) + stream.close() == "äö→ <e>< 🙂<en" and stream.stopped
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    open_ended = TextStream(lambda i: data[i : i + 1], stop=("<end>",))
    assert "".join(open_ended.put(i) for i in range(5)) == "äö" and open_ended.close() == "\N{REPLACEMENT CHARACTER}"


def test_beams_find_what_trying_everything_finds():
    """A vocabulary of five, four tokens: as many beams as there are beginnings see every sequence."""
    c = DecoderConfig(5, 16, 1, 2, 1, 8, 16, context=8)
    params = nx.tree.map(lambda x: x * 2 if x.ndim == 2 else x, generation.init(nx.random.key(5), c))
    end, prompt, most = 4, [1, 2], 4
    lines = np.array(list(itertools.product(range(5), repeat=most)), np.int32)
    inputs = np.concatenate([np.broadcast_to(np.array(prompt, np.int32), (len(lines), 2)), lines], 1)
    log_p = np.asarray(nx.nn.log_softmax(forward(params, inputs, c)[:, 1:-1]))
    each = np.take_along_axis(log_p, lines[..., None], -1)[..., 0]
    for penalty in (0.0, 1.0):
        scores = {}
        for line, p in zip(lines.tolist(), each, strict=True):
            n = line.index(end) + 1 if end in line else most
            scores[tuple(line[:n])] = p[:n].sum() / n**penalty
        best = sorted(scores, key=lambda k: -scores[k])[:3]
        found = beam_search(Generator(params, c, end=end), prompt, 125, max_tokens=most, length_penalty=penalty)
        assert [b.tokens for b in found[:3]] == best
        np.testing.assert_allclose([b.score for b in found[:3]], [scores[k] for k in best], atol=1e-5)
        assert [b.ended for b in found[:3]] == [b[-1] == end for b in best]
    one = beam_search(Generator(params, c), prompt, 1, max_tokens=most)
    assert list(one[0].tokens) == Generator(params, c).generate(prompt, max_tokens=most).tokens[0]


def test_wrong_calls_are_named(generator, params, config, tokenizer):
    for prompts, words in [
        ([], "tokens of a prompt"),
        ([300], "does not have"),
        ("text", "tokenizer"),
        ([1] * 160, "1 to 159"),
    ]:
        with pytest.raises(ParameterError, match=words):
            generator.generate(prompts)
    with pytest.raises(ParameterError, match="needs a key"):
        generator.generate([1], sampler=Sampler(1.0))
    with pytest.raises(ParameterError, match="stop sequences"):
        generator.generate([1], stop=["x"])
    with pytest.raises(ParameterError, match="max_tokens"):
        generator.generate([1], max_tokens=0)
    for call in (generator.generate, generator.stream):
        with pytest.raises(ParameterError, match="did you mean max_tokens="):
            call([1], max_new_tokens=3)
    for leaf in (3, "x", True):
        with pytest.raises(ParameterError, match=r"params\['w'\] is no array"):
            pack_weights({"w": leaf})
    assert isinstance(pack_weights([QArray(np.ones((64, 8), np.int8), np.ones((1, 8), np.float32))])[0], QArray)
    with pytest.raises(ParameterError, match="stream"):
        generator.stream("x")
    with pytest.raises(ParameterError, match="more tokens than the decoder"):
        Generator(params, DecoderConfig(**{**config.to_dict(), "vocabulary": 260}), tokenizer)
    with pytest.raises(ParameterError, match="beams"):
        beam_search(generator, [1], 0)
    for end in (300, -1, [3, 999], True, "a", 2.5):
        with pytest.raises(ParameterError, match="Generator: end"):
            Generator(params, config, end=end)
    assert Generator(params, config, end=np.array([3, 7])).ends == (3, 7)
    for call in (Generator, lambda p, _, **how: pack_weights(p, **how)):
        with pytest.raises(ParameterError, match="in few bits"):
            call(params, config, activations="int8")
        with pytest.raises(ParameterError, match="activations"):
            call(params, config, activations="int3")
    for room in (2.5, True, 161):
        with pytest.raises(ParameterError, match="room"):
            Generator(params, config, room=room)


def test_prompts_longer_than_a_chunk(generator, params, config):
    prompts = [[i * 7 % 300 for i in range(n)] for n in (150, 3, 129, 128)]
    both = generator.generate(prompts, max_tokens=4)
    for prompt, tokens, log_ps in zip(prompts, both.tokens, both.log_probabilities, strict=True):
        rows = np.asarray(nx.nn.log_softmax(forward(params, np.array(prompt + tokens[:-1]), config)))
        want = [float(rows[len(prompt) - 1 + i, t]) for i, t in enumerate(tokens)]
        np.testing.assert_allclose(log_ps, want, atol=1e-4)
        assert tokens == rows[len(prompt) - 1 :].argmax(-1).tolist()


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="who counts a process' bytes is Linux")
def test_weights_in_few_bits_are_in_memory_once():
    code = """
import numpy as np, re, nxjax as nx
from nxjax.generation import DecoderConfig, Generator, nbytes
from nxjax.quant.qarray import QArray

def used():
    return int(re.search(r"Anonymous: +(\\d+)", open("/proc/self/smaps_rollup").read())[1]) << 10

def few(shape):
    if len(shape) < 2:
        return np.ones(shape, "f4")
    return QArray(np.ones(shape, "i1"), np.full((1, shape[1]), 1e-3, "f4"))

def made(hidden):
    config = DecoderConfig(512, 512, 1, 4, 2, 128, hidden, context=256)
    shapes = config.shapes
    one = {k: {n: few(s) for n, s in part.items()} for k, part in shapes.pop("layers")[0].items()}
    return Generator({**{n: few(s) for n, s in shapes.items()}, "layers": [one]}, config)

def run(generator):
    for n in (3, 20):
        generator.generate([1] * n, max_tokens=2)

run(made(512))
before = used()
large = made(32768)
run(large)
print(used() - before, nbytes(large.params))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, weights = map(int, run.stdout.split())
    assert weights > 48 << 20
    # With what programs take; a second copy would be twice as much.
    assert grown < 1.6 * weights
