"""Functions through `nx.quantize` and the whole road: graphs give the quantized function's results, bit for bit."""

import functools

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.models import MODELS
from nxjax import lax, nn
from nxjax.lower.npu.bind import bind
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.trace.evaluate import evaluate
from tests.lower.npu.lowering import count, normal, ops

EDGES = {"quantize", "dequantize"}


def conv(x, w, *, strides=(1, 1), first=True):
    numbers = ("NCHW", "OIHW", "NCHW") if first else ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers)


def picture(x):
    x = nn.relu(conv(x, normal(8, 3, 3, 3)) + normal(8)[:, None, None])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = nn.relu6(conv(x, normal(16, 8, 3, 3)))
    x = lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    return nn.softmax(x.reshape(x.shape[0], -1) @ normal(16 * 16, 10) + normal(10))


def squeezed(x):
    x = nn.hard_swish(conv(x, normal(8, 3, 3, 3)))
    s = nn.sigmoid(nn.relu(jnp.mean(x, (2, 3)) @ normal(8, 2)) @ normal(2, 8))
    return jnp.mean(x * s[:, :, None, None], (2, 3))


def u_net(x):
    a = nn.relu(conv(x, normal(4, 3, 3, 3)))
    c = nn.relu(conv(a, normal(8, 4, 3, 3), strides=(2, 2)))
    up = lax.conv_transpose(c, normal(4, 8, 2, 2), (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return conv(jnp.concatenate([up, a], 1), normal(2, 8, 1, 1))


def mixture(x):
    x = conv(x, normal(3, 3, 3, 8), first=False)
    x = nn.silu(x) + nn.leaky_relu(x, 0.1) - nn.elu(x)
    x = jnp.pad(jnp.concatenate([x, jnp.tanh(x)], 3), ((0, 0), (1, 1), (1, 1), (0, 0)))[:, ::2, 1:]
    x = jnp.repeat(jnp.repeat(jnp.where(x > 0, x, x * 0.5), 2, 1), 2, 2)
    return x.max((1, 2)), x.mean((1, 2)), jnp.argmax(x, 3)


def block(x):
    d, h = 16, 4
    weights = normal(d, 3, h, d // h)
    y = nn.layer_norm(x, normal(d), normal(d))
    q, k, v = (jnp.einsum("btd,dhk->bthk", y, weights[:, i]) for i in range(3))
    x = x + jnp.einsum("bthk,hkd->btd", nn.dot_product_attention(q, k, v), normal(h, d // h, d))
    return x + nn.gelu(nn.rms_norm(x, normal(d)) @ normal(d, 32) + normal(32)) @ normal(32, d)


@functools.cache
def modules():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Residual(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU())), nn.AvgPool2d(3, 2, 1),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.ReLU6(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def network(x):
    return modules()(x)


def rounded(x):
    y = x @ normal(16, 8)
    return jnp.round(y), lax.round(y, lax.RoundingMethod.AWAY_FROM_ZERO), jnp.floor(y)


CASES = {
    "picture": (picture, (2, 3, 16, 16)),
    "squeezed": (squeezed, (2, 3, 8, 8)),
    "u_net": (u_net, (1, 3, 8, 8)),
    "mixture": (mixture, (1, 8, 8, 3)),
    "block": (block, (2, 6, 16)),
    "network": (network, (2, 3, 16, 16)),
    "rounded": (rounded, (2, 16)),
}


@functools.cache
def program_of(name, policy):
    f, shape = CASES[name]
    x = normal(*shape)
    modules()  # made outside of any trace
    return nx.make_jaxpr(nx.quantize(f, policy, calibrate=[(x,), (x * 0.9,)], progress=False))(x), x


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("name", CASES)
def test_integers_give_the_program_bit_for_bit(name, policy):
    program, x = program_of(name, policy)
    graph = lower(program, name)
    for got, want in zip(interpret(graph, [x]), evaluate(program, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("policy", ["int8-weights", "int4-weights", "dynamic-int8"])
@pytest.mark.parametrize("name", ["picture", "u_net", "block", "network"])
def test_weights_on_grids(name, policy):
    program, x = program_of(name, policy)
    graph = lower(program, name)
    for got, want in zip(interpret(graph, [x]), evaluate(program, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    stored = [n.inputs[0] for n in graph.nodes if n.op == "dequantize"]
    assert stored
    assert all(t.constant for t in stored)


@pytest.mark.parametrize("name", ["picture", "squeezed", "u_net", "network"])
def test_nothing_but_integers_inside(name):
    program, _ = program_of(name, "int8")
    graph = lower(program, name, io="integer")
    assert "dequantize" not in ops(graph)
    assert all(n.inputs[0].grid is not None for n in graph.nodes if n.op == "quantize"), "only between grids"
    assert all(t.dtype == np.int8 for n in graph.nodes for t in n.outputs)
    transposes = [n for n in graph.nodes if n.op == "transpose"]
    assert len(transposes) == (2 if name == "u_net" else 1), "at the input, and at a result that is a picture"


@pytest.mark.parametrize("name", ["ds_cnn", "tcn", "vit", "encoder"])
def test_models(name):
    m = MODELS[name]
    params, x = nx.tree.map(jnp.asarray, m.init(0)), m.example(0)
    quantized = nx.quantize(m.apply, "int8", calibrate=[(params, m.example(i)) for i in range(2)], progress=False)
    leaves = nx.tree.leaves(params)
    program = bind(nx.make_jaxpr(quantized)(params, x), dict(enumerate(leaves)))
    graph = lower(program, name)
    x = np.asarray(x)
    np.testing.assert_array_equal(interpret(graph, [x])[0], evaluate(program, [x])[0])
    if name in ("ds_cnn", "tcn"):
        inner = [op for op in ops(graph) if op not in EDGES]
        assert len(graph.nodes) - len(inner) == 2
        assert set(count(graph)) <= {
            *EDGES,
            "conv_2d",
            "depthwise_conv_2d",
            "mean",
            "fully_connected",
            "add",
            "reshape",
        }
