"""The decoder: its formulas in NumPy, steps with a cache against the whole sequence, weights in few bits."""

from functools import partial
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_donated_cache_stays_where_it_is(params, config, dtype):
    step = nx.jit(lambda cache, t: extend(params, cache, t, config), donate_argnums=0)
    token = np.ones((1, 1), np.int32)
    cache = init_cache(config, dtype=dtype)
    for _ in range(4):
        _, cache = step(cache, token)
    place = lambda x: np.asarray(x).__array_interface__["data"][0]
    large = lambda c: [place(x) for x in (*c.keys, *c.values, *c.key_scales, *c.value_scales)]
    before = large(cache)
    _, cache = step(cache, token)
    assert large(cache) == before


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
    with pytest.raises(ParameterError, match=r"layers\.0\.mlp\.gate_up"):
        generation.save(tmp_path / "d", other, config)
    nx.quant.save(tmp_path / "d" / "weights.safetensors", other)
    with pytest.raises(InvalidFileError, match=r"layers\.0\.mlp\.gate_up"):
        generation.load(tmp_path / "d")
    (tmp_path / "d" / "decoder.json").write_text("[]")
    with pytest.raises(InvalidFileError, match="not a folder of a decoder"):
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
    _, cache = extend(params, init_cache(config, room=10), np.zeros((1, 8), np.int32), config)
    with pytest.raises(
        ParameterError, match=r"no room for these tokens(.|\n)*8 tokens in the cache and 3 more, 10 rows"
    ):
        extend(params, cache, np.zeros((1, 3), np.int32), config)
    with pytest.raises(ParameterError, match="activations stay float"):
        generation.quantize_weights(params, config, "int8")


def test_keys_and_values_in_int8_have_a_scale_for_each_token_and_head(params, config):
    """Against the same steps with float rows that lie on the int8 grid of each token and head; written in NumPy."""
    tokens = np.random.default_rng(2).integers(0, config.vocabulary, (3, 24)).astype(np.int32)
    counts = np.array([4, 1, 7], np.int32)
    # Keys a thousand times as large as values, and heads of different sizes: one scale would not do.
    sizes = np.repeat(np.array([1.0] * 4 + [30.0, 0.01, 1e-3, 5.0], np.float32), config.head_size)
    layer = lambda p: {**p, "attention": {**p["attention"], "qkv": p["attention"]["qkv"] * sizes}}
    wide = {**params, "layers": [layer(p) for p in params["layers"]]}

    def held(cache, layer):
        keys, values, scales = cache.read(layer, 160, "float32")
        return [np.asarray(x * s[..., None]) for x, s in zip((keys, values), scales, strict=True)]

    def snapped(rows, read):
        rows, read = np.array(rows), np.asarray(read)
        for i, n in enumerate(read):
            scale = np.abs(rows[i, :n]).max(-1, keepdims=True) / np.float32(127)
            rows[i, :n] = np.round(rows[i, :n] / scale) * scale
        return rows

    few, exact = init_cache(config, 3, dtype="int8"), init_cache(config, 3)
    assert few.keys[0].dtype == few.values[1].dtype == "int8" and few.key_scales[0].shape == (3, 160, 2)
    assert few.nbytes == exact.nbytes * (16 + 4) / 64
    _, few = extend(wide, few, tokens[:, :8], config, counts=counts)
    _, exact = extend(wide, exact, tokens[:, :8], config, counts=counts)
    for i in range(2):
        # The first layer's are the exact ones, rounded; the second layer has read the rounded ones.
        keys, values = held(few, i)
        for found, want in ((keys, exact.keys[i]), (values, exact.values[i])):
            want = np.asarray(want)[0, :4]
            apart = abs(np.asarray(found)[0, :4] - want).max(-1)
            assert (apart <= abs(want).max(-1) * (0.5 / 127 if i == 0 else 0.1) * 1.001).all()
    rounded = generation.Cache(*zip(held(few, 0), held(few, 1), strict=True), few.length)
    one = tokens[np.arange(3), counts][:, None]
    found, few = extend(wide, few, one, config)
    near, rounded = extend(wide, rounded, one, config)
    assert few.length.tolist() == rounded.length.tolist() == [5, 2, 8]
    # Of the newest token alone the rounding differs.
    assert abs(found - near).max() < 0.05 * abs(near).max()
    for a, b in zip(held(few, 0), (rounded.keys[0], rounded.values[0]), strict=True):
        np.testing.assert_allclose(a, snapped(b, rounded.length), rtol=1e-5, atol=1e-6)


def test_an_int8_cache_writes_what_the_float_cache_does_nearly(params, config):
    """Windows, batches, loops on the device and beams take such a cache; zeros, infinities and NaN stay."""
    tokens = np.random.default_rng(3).integers(0, config.vocabulary, (2, 60)).astype(np.int32)
    whole = np.asarray(forward(params, tokens, config))[:, -1]
    step = nx.jit(lambda c, t, w: extend(params, c, t, config, window=w), static_argnums=2, donate_argnums=0)
    _, cache = step(init_cache(config, 2, dtype="int8"), tokens[:, :50], 64)
    for i in range(50, 60):
        y, cache = step(cache, tokens[:, i : i + 1], 64 if i % 2 else None)
    assert abs(y - whole).max() < 0.02 * abs(whole).max()
    few = Generator(params, config, cache_dtype="int8")
    prompts = [[5], [1, 2, 3]]
    made = few.generate(prompts, max_tokens=12).tokens
    assert few.generate(prompts, max_tokens=12, on_device=True).tokens == made
    assert [few.generate(p, max_tokens=12).tokens[0] for p in prompts] == made
    assert len(generation.beam_search(few, [1, 2], 3, max_tokens=4)) == 3
    from nxjax.generation.cache import quantized

    rows = np.array([[0, 0], [np.inf, 1], [np.nan, 1], [3e38, -3e38], [1e-42, 0], [1e-20, -5e-21]], np.float32)
    values, scale = quantized(nx.array(rows))
    with np.errstate(invalid="ignore"):
        back = np.asarray(values, np.float32) * np.asarray(scale)[:, None]
    assert not np.isfinite(back[1:3]).any()
    np.testing.assert_allclose(back[[0, 3, 4, 5]], rows[[0, 3, 4, 5]], rtol=0.01, atol=1e-32)


@pytest.mark.parametrize("dtype", ["int4", "int16", "uint8", "bool", "float8_e4m3fn", "complex64", "nonsense", None])
def test_other_dtypes_of_a_cache_are_refused(params, config, dtype):
    for make in (lambda: init_cache(config, dtype=dtype), lambda: Generator(params, config, cache_dtype=dtype)):
        with pytest.raises(ParameterError, match="dtype of keys and values"):
            make()


@pytest.mark.parametrize(
    ("place", "leaf"),
    [("layers.0.attention", "qkv_bias"), ("layers.1.mlp", "down_bias"), ("", "head"), ("", "position_embedding")],
)
def test_a_leaf_that_the_decoder_does_not_use_is_refused(params, config, tokenizer, tmp_path, place, leaf):
    """Everywhere that parameters are taken: left out, a bias changes every logit without a word."""

    def added(tree, path):
        if not path:
            return {**tree, leaf: np.ones(4, np.float32)}
        key = int(path[0]) if isinstance(tree, list) else path[0]
        copy = list(tree) if isinstance(tree, list) else dict(tree)
        copy[key] = added(tree[key], path[1:])
        return copy

    more, tokens = added(params, place.split(".") if place else []), np.ones((1, 3), np.int32)
    for use in (
        lambda: forward(more, tokens, config),
        lambda: nx.jit(forward, static_argnums=2)(more, tokens, config),
        lambda: extend(more, init_cache(config), tokens, config),
        lambda: generation.loss(more, tokens, config),
        lambda: Generator(more, config),
        lambda: generation.quantize_weights(more, config),
        lambda: generation.save(tmp_path / "d", more, config, tokenizer),
        lambda: generation.export_genai(more, config, tokenizer, tmp_path / "g"),
    ):
        with pytest.raises(ParameterError, match="does not use") as caught:
            use()
        assert leaf in str(caught.value)
    assert not any(tmp_path.iterdir())
    short = {k: v for k, v in params.items() if k != "norm"}
    with pytest.raises(ParameterError, match="without norm"):
        forward(short, tokens, config)


def test_weights_with_a_scale_for_several_rows_or_columns(params, config):
    """`QArray`s as a user may make them: each entry of a scale stands for a block of rows and columns."""

    def blocked(w, rows, columns):
        values = nx.random.randint(nx.random.key(1), w.shape, -127, 128, "int8")
        scale = 1e-3 * (1 + nx.random.uniform(nx.random.key(2), (w.shape[0] // rows, w.shape[1] // columns)))
        return nx.quant.QArray(values, scale)

    tokens = np.random.default_rng(4).integers(0, config.vocabulary, (2, 12)).astype(np.int32)
    for rows, columns in ((1, 64), (4, 16), (300, 1), (50, 64)):
        few = {**params, "embedding": blocked(params["embedding"], rows, columns)}
        plain = {**few, "embedding": few["embedding"].dequantize()}
        np.testing.assert_allclose(forward(few, tokens, config), forward(plain, tokens, config), rtol=2e-4, atol=2e-4)
    for rows, columns in ((64, 1), (16, 2), (64, 32), (64, 128), (2, 128)):
        attention = {
            **params["layers"][0]["attention"],
            "qkv": blocked(params["layers"][0]["attention"]["qkv"], rows, columns),
        }
        few = {**params, "layers": [{**params["layers"][0], "attention": attention}, params["layers"][1]]}
        plain = nx.tree.map(lambda w: w.dequantize() if isinstance(w, nx.quant.QArray) else w, few,
                            is_leaf=lambda w: isinstance(w, nx.quant.QArray))  # fmt: skip
        for t in (tokens, tokens[:1, :1]):
            np.testing.assert_allclose(forward(few, t, config), forward(plain, t, config), rtol=2e-4, atol=2e-4)


def test_weights_with_a_least_number(params, config):
    """As GGUF's Q4_1 has them: one row, many rows, the table of embeddings; and a generator holds them once."""

    def least(w):
        values = nx.random.randint(nx.random.key(1), w.shape, 0, 16, "int8")
        shape = (w.shape[0] // 4, w.shape[1]) if w.shape[0] % 32 == 0 else (w.shape[0], w.shape[1] // 16)
        scale = 0.02 * (1 + nx.random.uniform(nx.random.key(2), shape))
        return nx.quant.QArray(values, scale, -8.1 * scale)

    few = nx.tree.map(lambda w: least(w) if w.ndim == 2 else w, params)
    plain = nx.tree.map(nx.quant.qarray.float_leaf, few, is_leaf=nx.quant.qarray.is_quantized)
    tokens = np.random.default_rng(4).integers(0, config.vocabulary, (2, 12)).astype(np.int32)
    for t in (tokens, tokens[:1, :1]):
        np.testing.assert_allclose(forward(few, t, config), forward(plain, t, config), rtol=2e-4, atol=2e-4)
    made = Generator(few, config).generate([1, 2, 3], max_tokens=8)
    want = Generator(plain, config).generate([1, 2, 3], max_tokens=8)
    np.testing.assert_allclose(made.log_probabilities[0], want.log_probabilities[0], atol=1e-3)
    assert made.tokens == want.tokens


def test_a_generator_holds_weights_in_few_bits_once(params, config):
    """No program closes over them, so none holds a copy, whatever the lengths and batches; 4 bits stay half a byte."""
    few = generation.quantize_weights(params, config, "int4-weights")
    generator = Generator(few, config)
    for prompt in ([1], [1] * 17, [[1], [2]], [[1] * 40, [3]]):
        generator.generate(prompt, max_tokens=2)
    for program in generator._programs.values():
        if not isinstance(program, partial):
            continue  # of caches
        (given,) = program.args
        assert given is generator.params
        # Tables of rotations are all that is left.
        assert all(c.size <= 160 * 8 for entry in program.func._entries.values() for c in entry.consts)
    packed = [w for w in nx.tree.leaves(generator.params, is_leaf=nx.quant.qarray.is_quantized) if w.ndim == 2]
    assert {str(w.data.dtype) for w in packed} == {"uint8"}
    # A group of columns may be filled up.
    assert all(w.data.size <= w.shape[0] * (w.shape[1] + 7) // 2 for w in packed)
    # Whole-number activations are near, and a sequence does not hang on those beside it.
    whole = Generator(few, config, activations="int8")
    alone, beside = whole.generate([1] * 17, max_tokens=9), whole.generate([[1] * 17, [2], [3] * 5], max_tokens=9)
    assert alone.tokens[0] == beside.tokens[0]
    exact, near = (np.asarray(generation.forward(p, [[1, 2, 3]], config)) for p in (few, whole.params))
    assert 0 < abs(exact - near).max() < 0.05 * abs(exact).max()


def test_weights_of_4_bits_are_better_with_texts():
    """A small decoder with trained weights: text that calibration has not seen."""
    data = Path(__file__).parents[2] / "docs" / "notebooks" / "data"
    stored, config, words = generation.load(data / "sonnets_decoder")
    params = nx.tree.map(lambda x: x.astype("float32"), stored)
    tokens = np.asarray(words.encode((data / "sonnets.txt").read_text()[:12000]))
    rows = tokens[: len(tokens) // 64 * 64].reshape(-1, 64)
    texts, unseen = [rows[i : i + 8] for i in range(0, 40, 8)], rows[40:56]
    run = nx.jit(lambda p: generation.forward(p, unseen, config))
    exact = np.asarray(run(params), np.float64)

    def noise(**how: Any) -> float:
        few = generation.quantize_weights(params, config, "int4-weights", **how)
        return float(((np.asarray(run(few), np.float64) - exact) ** 2).sum())

    assert noise(calibrate=texts) < 0.9 * noise()
