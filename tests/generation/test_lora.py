"""Adapters: nothing at first, trained beside weights of any kind, merged to the same function."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.checkpoints import restore, save
from nxjax.errors import ParameterError
from nxjax.generation import DecoderConfig, Generator, forward, lora_apply, lora_init, lora_merge, loss

CONFIG = DecoderConfig(64, 32, 2, heads=2, kv_heads=1, head_size=16, hidden=32, context=32)
TOKENS = np.random.default_rng(1).integers(0, 64, (2, 8)).astype(np.int32)
KINDS = ("float32", "int8-weights", "int4-weights", "packed")


@pytest.fixture(scope="module")
def params():
    return generation.init(nx.random.key(0), CONFIG)


@pytest.fixture(scope="module")
def bases(params):
    few = {p: generation.quantize_weights(params, CONFIG, p) for p in ("int8-weights", "int4-weights")}
    return {"float32": params, **few, "packed": generation.pack_weights(few["int4-weights"])}


def moved(adapters):
    """Adapters that do something."""
    draw = np.random.default_rng(2)
    return nx.tree.map(lambda x: x + np.float32(0.02) * draw.standard_normal(x.shape).astype(np.float32), adapters)


@pytest.mark.parametrize("kind", KINDS)
def test_what_adapters_add(bases, kind):
    base = bases[kind]
    adapters = lora_init(nx.random.key(0), base, 4, alpha=6.0)
    plain = forward(base, TOKENS, CONFIG)
    np.testing.assert_array_equal(forward(lora_apply(base, adapters), TOKENS, CONFIG), plain)
    adapters = moved(adapters)
    adapted = lora_apply(base, adapters)
    got = forward(adapted, TOKENS, CONFIG)
    assert abs(got - plain).max() > 1e-2
    merged = lora_merge(base, adapters)
    assert {str(x.dtype) for x in nx.tree.leaves(merged)} == {"float32"}
    np.testing.assert_allclose(forward(merged, TOKENS, CONFIG), got, atol=2e-4)
    one = adapters["layers"][1]["mlp"]["down"]
    added = np.asarray(one.a) @ np.asarray(one.b) * 1.5
    np.testing.assert_allclose(
        merged["layers"][1]["mlp"]["down"], np.asarray(base["layers"][1]["mlp"]["down"]) + added, atol=1e-6
    )
    # A step with a cache, and a generator, which packs what is in few bits.
    _, cache = generation.extend(adapted, generation.init_cache(CONFIG, 2), TOKENS[:, :7], CONFIG)
    after, _ = generation.extend(adapted, cache, TOKENS[:, 7:], CONFIG)
    np.testing.assert_allclose(after, got[:, -1], atol=2e-4)
    writer = Generator(adapted, CONFIG)
    assert (
        writer.generate([5, 6, 7], max_tokens=3).tokens
        == Generator(merged, CONFIG).generate([5, 6, 7], max_tokens=3).tokens
    )
    sizes = [x.size for x in nx.tree.leaves(adapters)]
    assert generation.nbytes(adapted) == generation.nbytes(base) + 4 * sum(sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_the_merged_matrices(bases, kind):
    base, adapters = bases[kind], moved(lora_init(nx.random.key(0), bases[kind], 4, targets=["qkv", "down"]))
    of = lambda join: nx.jit(nx.grad(lambda a, p: loss(join(p, a), TOKENS, CONFIG)))(adapters, base)
    got, want = of(lora_apply), of(lora_merge)
    assert nx.tree.structure(got) == nx.tree.structure(adapters)
    for x, y in zip(nx.tree.leaves(got), nx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5 + 1e-3 * float(abs(y).max()))


def test_what_a_backward_pass_keeps_is_no_copy_of_a_base_in_few_bits(bases):
    base = bases["packed"]
    adapters = lora_init(nx.random.key(1), base, 2)
    _, pull = nx.vjp(lambda a: forward(lora_apply(base, a), TOKENS[:1, :2], CONFIG), adapters)
    largest = max(x.nbytes for x in nx.tree.leaves(pull))
    assert 0 < largest < 4 * 32 * 64 / 2


def test_training_moves_adapters_alone(bases):
    base = bases["packed"]
    adapters = lora_init(nx.random.key(0), base, 4)

    @nx.jit
    def step(adapters, base):
        value, slope = nx.value_and_grad(lambda a: loss(lora_apply(base, a), TOKENS, CONFIG))(adapters)
        return value, nx.tree.map(lambda x, g: x - 0.5 * g, adapters, slope)

    values = []
    for _ in range(12):
        value, adapters = step(adapters, base)
        values.append(float(value))
    assert values[-1] < 0.8 * values[0]


def test_adapters_are_kept_in_checkpoints(params, tmp_path):
    adapters = moved(lora_init(nx.random.key(0), params, 2, alpha=3.0))
    save(tmp_path, adapters, step=1)
    again = restore(tmp_path, like=lora_init(nx.random.key(1), params, 2, alpha=3.0))
    assert nx.tree.structure(again) == nx.tree.structure(adapters)
    assert nx.tree.all(nx.tree.map(lambda x, y: bool((x == y).all()), again, adapters))


def test_other_decoders_and_arguments(params):
    for wrong, match in (
        ({"rank": 0}, "rank"),
        ({"rank": 2.0}, "rank"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"targets": ["qkv", "router"]}, "router"),
        ({"targets": "up"}, "up"),
    ):
        with pytest.raises(ParameterError, match=match):
            lora_init(nx.random.key(0), params, **wrong)
    adapters = lora_init(nx.random.key(0), params, targets="out")
    fewer = {**params, "layers": params["layers"][:1]}
    with pytest.raises(ParameterError, match="another decoder"):
        lora_apply(fewer, adapters)
    other = DecoderConfig(64, 32, 2, 2, 1, 8, 32)
    with pytest.raises(ParameterError, match=r"layers\.0\.attention\.out"):
        lora_merge(generation.init(nx.random.key(0), other), adapters)
    with pytest.raises(ParameterError, match="dtype"):
        lora_merge(params, adapters, "int8")


def test_families_have_adapters_where_their_layers_have_matrices():
    options = {"norm": "layer", "biases": ("qkv", "up"), "gated": False}
    plain = generation.init(nx.random.key(0), DecoderConfig(30, 16, 1, 2, 2, 8, 24, context=8, **options))
    assert set(lora_init(nx.random.key(0), plain, 2)["layers"][0]["mlp"]) == {"up", "down"}
    experts = {"experts": 4, "experts_per_token": 2, "expert_hidden": 6, "shared_hidden": 5, "expert_layers": (1,)}
    config = DecoderConfig(64, 16, 2, 2, 2, 8, 24, context=32, **experts)
    params = generation.init(nx.random.key(0), config)
    adapters = moved(lora_init(nx.random.key(0), params, 2))
    assert [set(layer["mlp"]) for layer in adapters["layers"]] == [{"gate_up", "down"}, {"shared_up", "shared_down"}]
    got = forward(lora_apply(params, adapters), TOKENS, config)
    np.testing.assert_allclose(got, forward(lora_merge(params, adapters), TOKENS, config), atol=1e-4)
