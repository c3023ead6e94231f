"""The decoder: its formulas in NumPy, steps with a cache against the whole sequence, weights in few bits."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.errors import InvalidFileError, ParameterError, ShapeError
from nxjax.generation import DecoderConfig, Generator, extend, forward, init_cache


def written_out(params, tokens, c):
    """The decoder in NumPy, float64, one loop per head and position."""
    p = nx.tree.map(lambda x: np.asarray(x, np.float64), params)
    norm = lambda x, gain: x / np.sqrt((x * x).mean(-1, keepdims=True) + c.epsilon) * gain

    def turned(x):
        half = c.head_size // 2
        y = np.empty_like(x)
        for m in range(len(x)):
            for i in range(half):
                angle = m * c.rope_base ** (-2 * i / c.head_size)
                pair = x[m, :, i] + 1j * x[m, :, i + half]
                pair = pair * np.exp(1j * angle)
                y[m, :, i], y[m, :, i + half] = pair.real, pair.imag
        return y

    x = p["embedding"][tokens]
    for layer in p["layers"]:
        a, f = layer["attention"], layer["mlp"]
        heads = (norm(x, a["norm"]) @ a["qkv"]).reshape(len(tokens), -1, c.head_size)
        q, k = turned(heads[:, : c.heads]), turned(heads[:, c.heads : c.heads + c.kv_heads])
        v = heads[:, c.heads + c.kv_heads :]
        read = np.zeros_like(q)
        for h in range(c.heads):
            g = h * c.kv_heads // c.heads
            for m in range(len(tokens)):
                scores = np.exp(k[: m + 1, g] @ q[m, h] / np.sqrt(c.head_size))
                read[m, h] = scores / scores.sum() @ v[: m + 1, g]
        x = x + read.reshape(len(tokens), -1) @ a["out"]
        gate, up = np.split(norm(x, f["norm"]) @ f["gate_up"], 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ f["down"]
    return norm(x, p["norm"]) @ (p["head"] if "head" in p else p["embedding"].T)


@pytest.mark.parametrize("tied", [True, False])
def test_the_decoder_computes_its_formulas(tied):
    c = DecoderConfig(20, 24, 2, 6, 2, 8, 40, context=32, rope_base=100.0, epsilon=1e-3, tied=tied)
    params = generation.init(nx.random.key(1), c)
    params = nx.tree.map(lambda x: x * 1.5 if x.ndim == 1 else x, params)
    tokens = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    np.testing.assert_allclose(forward(params, tokens, c), written_out(params, tokens, c), atol=2e-5)
    assert sum(p.size for p in nx.tree.leaves(params)) == c.parameters


def test_steps_with_a_cache_are_the_whole_sequence(params, config):
    """Prompts of different lengths, padded; then a step at a time, in a window and in all of the cache."""
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, (3, 24)).astype(np.int32)
    whole = np.asarray(nx.jit(lambda t: forward(params, t, config))(tokens))
    counts = np.array([4, 1, 7], np.int32)
    padded = np.where(np.arange(8) < counts[:, None], tokens[:, :8], 99)
    step = nx.jit(
        lambda cache, t, counts, window: extend(params, cache, t, config, counts=counts, window=window),
        static_argnums=3,
        donate_argnums=0,
    )
    logits, cache = step(init_cache(config, 3), padded, counts, 8)
    for i in range(16):
        np.testing.assert_allclose(logits, whole[np.arange(3), counts + i - 1], atol=1e-4)
        logits, cache = step(cache, tokens[np.arange(3), counts + i][:, None], None, 32 if i % 2 else None)
    assert cache.length.tolist() == (counts + 16).tolist()


def test_a_donated_cache_stays_where_it_is(params, config):
    step = nx.jit(lambda cache, t: extend(params, cache, t, config), donate_argnums=0)
    token = np.ones((1, 1), np.int32)
    cache = init_cache(config)
    for _ in range(4):
        _, cache = step(cache, token)
    place = lambda x: np.asarray(x).__array_interface__["data"][0]
    before = [place(x) for x in (*cache.keys, *cache.values)]
    _, cache = step(cache, token)
    assert [place(x) for x in (*cache.keys, *cache.values)] == before


@pytest.mark.parametrize("policy", ["int8-weights", "int4-weights"])
def test_weights_in_few_bits_are_the_quantized_function(params, config, policy):
    tokens = np.random.default_rng(1).integers(0, config.vocabulary, (2, 12)).astype(np.int32)
    few = generation.quantize_weights(params, config, policy)
    meaning = nx.quantize(lambda p, t: forward(p, t, config), policy)(params, tokens)
    np.testing.assert_allclose(forward(few, tokens, config), meaning, atol=2e-5)
    assert abs(np.asarray(meaning - forward(params, tokens, config))).max() > 1e-3
    _, cache = extend(few, init_cache(config, 2), tokens[:, :11], config)
    np.testing.assert_allclose(extend(few, cache, tokens[:, 11:], config)[0], meaning[:, -1], atol=2e-5)
    bits = 8 if policy == "int8-weights" else 4
    assert generation.nbytes(few) < generation.nbytes(params) * bits / 32 * 1.35
    # Written by steps as by the function without a cache.
    prompt = tokens[0].tolist()
    made = Generator(few, config).generate(prompt, max_tokens=8).tokens[0]
    for i, token in enumerate(made):
        after = np.asarray(forward(few, np.array(prompt + made[:i], np.int32), config))[-1]
        assert after[token] >= after.max() - 1e-5


def test_a_decoder_learns():
    c = DecoderConfig(8, 16, 1, 2, 1, 8, 32, context=16)
    params, tokens = generation.init(nx.random.key(0), c), np.arange(13)[None] % 8

    @nx.jit
    def descend(p):
        value, slope = nx.value_and_grad(generation.loss)(p, tokens, c)
        return value, nx.tree.map(lambda w, g: w - 0.3 * g, p, slope)

    values = []
    for _ in range(60):
        value, params = descend(params)
        values.append(float(value))
    assert values[0] > 1.5 and values[-1] < 0.2


def test_folders_hold_decoders(params, config, tokenizer, tmp_path):
    few = generation.quantize_weights(params, config, "int4-weights")
    generation.save(tmp_path / "d", few, config, tokenizer)
    back, sizes, words = generation.load(tmp_path / "d")
    assert sizes == config and words.encode("night") == tokenizer.encode("night") and words.end == tokenizer.end
    for a, b in zip(nx.tree.leaves(few), nx.tree.leaves(back), strict=True):
        assert a.dtype == b.dtype and bool((a == b).all())
    other = generation.init(nx.random.key(0), DecoderConfig(300, 64, 2, 4, 2, 16, 80, context=160))
    generation.save(tmp_path / "d", other, config)
    with pytest.raises(InvalidFileError, match=r"layers\.0\.mlp\.gate_up"):
        generation.load(tmp_path / "d")
    (tmp_path / "d" / "decoder.json").write_text("[]")
    with pytest.raises(InvalidFileError, match="no folder of a decoder"):
        generation.load(tmp_path / "d")


@pytest.mark.parametrize(
    "changed", [{"kv_heads": 3}, {"head_size": 7}, {"width": 0}, {"layers": 1.0}, {"epsilon": float("nan")}]
)
def test_sizes_are_checked(config, changed):
    with pytest.raises(ParameterError, match=next(iter(changed)).split("_")[0]):
        DecoderConfig(**{**config.to_dict(), **changed})


def test_too_much_is_refused(params, config):
    with pytest.raises(ShapeError, match="more tokens"):
        forward(params, np.zeros((1, 161), np.int32), config)
    with pytest.raises(ParameterError, match="window"):
        extend(params, init_cache(config), np.zeros((1, 8), np.int32), config, window=4)
    with pytest.raises(ParameterError, match="room"):
        init_cache(config, room=161)
    with pytest.raises(ParameterError, match="activations stay float"):
        generation.quantize_weights(params, config, "int8")
