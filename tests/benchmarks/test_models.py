"""The models that are quantized and placed: their sizes are the published ones, their numbers are sane."""

import math

import numpy as np
import pytest

import nxjax as nx
from benchmarks.models import MODELS
from nxjax import tree
from nxjax.trace.program import run

SMALL = ("ds_cnn", "vit", "tcn", "encoder")
LOGITS = {"ds_cnn": (1, 12), "vit": (1, 10), "tcn": (1, 128, 8), "encoder": (1, 4)}
# Published number of parameters, which counts scale and offset of every batch norm, where folding keeps a bias only;
# so the number here is less by one per normalized channel. ResNets: torchvision; DS-CNN: MLPerf Tiny's Keras model,
# whose convolutions have a bias beside the batch norm's 4 per channel.
PUBLISHED = {
    "mobilenet_v2": (3_504_872, 1),
    "resnet18": (11_689_512, 1),
    "resnet50": (25_557_032, 1),
    "efficientnet_lite0": (4_652_008, 1),
    "ds_cnn": (24_908, 4),
}
# Multiply-accumulates in the papers and model cards, in millions; they differ in what they count beside products, which
# for EfficientNet-Lite0 makes 5 %.
MACS = {"mobilenet_v2": 300, "resnet18": 1814, "resnet50": 4089, "efficientnet_lite0": 407, "ds_cnn": 2.66}


def multiplies(program):
    """Multiply-accumulates of the products in ``program``."""
    total = 0
    for e in program.equations:
        out = e.outputs[0].type
        if e.op.name == "conv_general_dilated":
            channel = e.params["dimension_numbers"].rhs_spec[0]
            total += out.size * e.inputs[1].type.size // e.inputs[1].type.shape[channel]
        elif e.op.name == "dot_general":
            (contracted, _), _ = e.params["dimension_numbers"]
            total += out.size * math.prod(e.inputs[0].type.shape[a] for a in contracted)
        elif e.op.name == "dot_product_attention":
            total += 2 * out.size * e.inputs[1].type.shape[1]
    return total


def traced(name):
    model = MODELS[name]
    params, x = model.init(0), model.example(0)
    return nx.make_jaxpr(model.apply)(params, x), params, x


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones_up_to_folding(name):
    params = MODELS[name].init(0)
    count = sum(leaf.size for leaf in tree.leaves(params))
    published, per_channel = PUBLISHED[name]
    # Every bias but that of the classifier is a folded batch norm.
    channels = sum(leaf.size for leaf in tree.leaves(params) if leaf.ndim == 1) - params["classes"]["b"].size
    assert count + per_channel * channels == published


def test_parameters_of_the_transformers():
    count = lambda name: sum(leaf.size for leaf in tree.leaves(MODELS[name].init(0)))
    # width 96: q, k, v, out and their biases; up and down; two norms
    layer = 4 * 96 * 96 + 4 * 96 + 2 * 96 * 384 + 384 + 96 + 4 * 96
    assert count("vit") == 4 * 4 * 3 * 96 + 96 + 96 + 65 * 96 + 4 * layer + 2 * 96 + 96 * 10 + 10
    layer = 4 * 128 * 128 + 4 * 128 + 2 * 128 * 512 + 512 + 128 + 4 * 128
    assert count("encoder") == 1000 * 128 + 64 * 128 + 4 * layer + 2 * 128 + 128 * 4 + 4
    # five blocks of two convolutions of 3 taps, one shortcut
    assert count("tcn") == 3 * 16 * 48 + 9 * 3 * 48 * 48 + 10 * 48 + 16 * 48 + 48 + 48 * 8 + 8


@pytest.mark.parametrize("name", MODELS)
def test_traces_to_logits(name):
    program, _, _ = traced(name)
    assert [t.shape for t in program.out_types] == [LOGITS.get(name, (1, 1000))]
    assert program.out_types[0].dtype == np.float32
    if name in MACS:
        assert multiplies(program) == pytest.approx(MACS[name] * 1e6, rel=0.06)


@pytest.mark.parametrize("name", MODELS)
def test_is_deterministic(name):
    model = MODELS[name]
    a, b = tree.leaves(model.init(3)), tree.leaves(model.init(3))
    assert all(type(x) is np.ndarray and x.dtype == np.float32 for x in a)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], tree.leaves(model.init(4))[0])
    assert np.array_equal(model.example(3), model.example(3))
    assert not np.array_equal(model.example(3), model.example(4))


@pytest.mark.parametrize("name", ["mobilenet_v2", *SMALL])
def test_activations_stay_in_a_sane_range(name):
    program, params, x = traced(name)
    # Sums over all pixels, and what they are divided by, are large.
    kept = [e for e in program.equations if e.op.name not in ("reduce_sum", "broadcast_in_dim")]
    deep = [v for e in kept for v in e.outputs if v.type.dtype == np.float32]
    values = type(program)(program.inputs, program.equations, deep, program.constvars, program.values)
    out = nx.jit(lambda *xs: run(values, xs))(*map(nx.asarray, [*tree.leaves(params), x]))
    for v in out:
        v = np.asarray(v)
        assert np.isfinite(v).all()
        assert np.abs(v).max() < 100


@pytest.mark.parametrize("name", SMALL)
def test_jit_is_eager(name):
    model = MODELS[name]
    params = model.init(1)
    x = np.concatenate([model.example(1), model.example(2)])
    eager, jitted = model.apply(params, x), nx.jit(model.apply)(params, x)
    np.testing.assert_allclose(jitted, eager, rtol=1e-4, atol=1e-4)
    # Elements of a batch do not meet.
    np.testing.assert_allclose(model.apply(params, x[1:]), eager[1:], rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(eager[0] - eager[1])).max() > 0.01


@pytest.mark.parametrize("name", SMALL)
def test_gradient_reaches_every_weight(name):
    model = MODELS[name]
    params, x = model.init(1), model.example(1)
    loss = lambda p: (model.apply(p, x) ** 2).mean()
    value, grads = nx.jit(nx.value_and_grad(loss))(params)
    assert np.isfinite(np.asarray(value))
    for g in tree.leaves(grads):
        assert np.isfinite(np.asarray(g)).all()
        assert np.abs(np.asarray(g)).max() > 0
    step = tree.map(lambda p, g: p - 1e-4 * g, params, grads)
    assert loss(step) < value


def test_encoder_does_not_see_padding():
    model = MODELS["encoder"]
    params, tokens = model.init(0), model.example(0)
    length = int((tokens != 0).sum())
    assert length < tokens.shape[1]
    short = model.apply(params, tokens[:, :length])
    np.testing.assert_allclose(model.apply(params, tokens), short, rtol=1e-4, atol=1e-5)


def test_tcn_does_not_see_the_future():
    model = MODELS["tcn"]
    params, x = model.init(0), model.example(0)
    changed = x.copy()
    changed[:, 100:] = 0
    a, b = np.asarray(model.apply(params, x)), np.asarray(model.apply(params, changed))
    np.testing.assert_allclose(a[:, :100], b[:, :100], rtol=1e-5, atol=1e-5)
    assert np.abs(a[:, 100:] - b[:, 100:]).max() > 0.1
