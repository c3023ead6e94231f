"""Programs as users write them, through the whole road to a graph; errors that say everything at once."""

import functools

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.models import MODELS
from nxjax import lax, nn
from nxjax.errors import ParameterError, UnsupportedOpsError
from nxjax.lower.npu.bind import bind
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower, lowerable, refusals
from nxjax.trace.evaluate import evaluate
from tests.lower.npu.lowering import count, graph_of, normal, ops, same


def conv(x, w, b=None, *, strides=(1, 1), padding="SAME", nchw=False, groups=1, dilation=(1, 1)):
    numbers = ("NCHW", "OIHW", "NCHW") if nchw else ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
        x, w, strides, padding, rhs_dilation=dilation, dimension_numbers=numbers, feature_group_count=groups
    )
    if b is None:
        return y
    return y + (b[None, :, None, None] if nchw else b)


# --- networks ---


def test_cnn_channels_last():
    w1, b1, w2, b2 = normal(3, 3, 3, 8), normal(8), normal(3, 3, 8, 16), normal(16)
    w3, b3 = normal(16 * 4 * 4, 10), normal(10)

    def f(x):
        x = nn.relu(conv(x, w1, b1))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = nn.relu6(conv(x, w2, b2))
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return nn.softmax(x.reshape(x.shape[0], -1) @ w3 + b3)

    g = same(f, normal(2, 16, 16, 3), atol=1e-4)
    assert ops(g) == [
        "conv_2d", "max_pool_2d", "conv_2d", "average_pool_2d", "reshape", "fully_connected", "softmax",
    ]  # fmt: skip
    assert [n.attrs["activation"] for n in g.nodes if n.op == "conv_2d"] == ["relu", "relu6"]
    assert all(n.inputs[2] is not None for n in g.nodes if n.op in ("conv_2d", "fully_connected"))


def test_cnn_channels_first_has_one_transpose_at_its_input():
    w1, b1, w2, b2 = normal(8, 3, 3, 3), normal(8), normal(16, 8, 3, 3), normal(16)
    w3, b3 = normal(10, 16 * 4 * 4), normal(10)

    def f(x):
        x = nn.relu(conv(x, w1, b1, nchw=True))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = nn.relu(conv(x, w2, b2, nchw=True))
        x = lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
        return x.reshape(x.shape[0], -1) @ w3.T + b3

    g = same(f, normal(2, 3, 16, 16), atol=1e-4)
    assert ops(g) == [
        "transpose", "conv_2d", "max_pool_2d", "conv_2d", "average_pool_2d", "reshape", "fully_connected",
    ]  # fmt: skip


def test_residual_network_channels_first():
    w, b, scale = normal(8, 8, 3, 3) * 0.1, normal(8), normal(8)

    def block(x):
        y = nn.relu(conv(x, w, b, nchw=True))
        y = conv(y, w, nchw=True) * scale[:, None, None] + b[:, None, None]
        return nn.relu(x + y)

    def f(x):
        x = conv(x, normal(8, 3, 3, 3), nchw=True, strides=(2, 2))
        x = block(block(x))
        return jnp.mean(x, (2, 3)) @ normal(8, 5)

    g = same(f, normal(1, 3, 16, 16), atol=1e-4)
    assert count(g) == {"transpose": 1, "conv_2d": 5, "add": 2, "mean": 1, "fully_connected": 1}


def test_squeeze_excite_channels_first():
    w, down, up = normal(8, 3, 3, 3), normal(8, 2), normal(2, 8)

    def f(x):
        x = nn.hard_swish(conv(x, w, nchw=True))
        s = jnp.mean(x, (2, 3))
        s = nn.sigmoid(nn.relu(s @ down) @ up)
        return jnp.mean(x * s[:, :, None, None], (2, 3))

    g = same(f, normal(2, 3, 8, 8))
    assert count(g)["transpose"] == 1
    assert g.nodes[0].op == "transpose"


def test_depthwise_separable_network():
    w1, w2, b = normal(3, 3, 1, 8), normal(1, 1, 8, 16), normal(16)

    def f(x):
        x = nn.relu6(conv(x, w1, groups=8, strides=(2, 2)))
        return nn.relu6(conv(x, w2, b))

    g = same(f, normal(1, 9, 9, 8))
    assert ops(g) == ["depthwise_conv_2d", "conv_2d"]
    assert g.nodes[0].inputs[1].shape == (1, 3, 3, 8)


def test_batch_norm_folds_into_the_convolution():
    w = normal(3, 3, 3, 8)

    def f(x):
        y = conv(x, w)
        y = nn.batch_norm_inference(y, normal(8), normal(8) + 1, normal(8), np.abs(normal(8)) + 0.5)
        return nn.relu(y)

    g = same(f, normal(1, 8, 8, 3), atol=1e-4)
    assert ops(g) == ["conv_2d"]
    assert g.nodes[0].attrs["activation"] == "relu"


@pytest.mark.parametrize("last", [True, False])
def test_u_net_with_transposed_convolutions(last):
    layout = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")
    axis = 3 if last else 1

    def weights(k, i, o):
        return normal(k, k, i, o) if last else normal(o, i, k, k)

    def f(x):
        down = functools.partial(conv, nchw=not last)
        a = nn.relu(down(x, weights(3, 3, 4)))
        c = nn.relu(down(a, weights(3, 4, 8), strides=(2, 2)))
        up = lax.conv_transpose(c, weights(2, 8, 4), (2, 2), "SAME", dimension_numbers=layout)
        y = jnp.concatenate([up, a], axis)
        return down(y, weights(1, 8, 2))

    x = normal(1, 8, 8, 3) if last else normal(1, 3, 8, 8)
    g = same(f, x, atol=1e-4)
    expected = {"conv_2d": 3, "transpose_conv": 1, "concatenation": 1}
    assert count(g) == expected if last else {**expected, "transpose": 2}


def test_causal_convolutions_over_time():
    w1, w2 = normal(3, 4, 8), normal(3, 8, 8)

    def f(x):
        for w, d in ((w1, 1), (w2, 2)):
            x = jnp.pad(x, ((0, 0), (2 * d, 0), (0, 0)))
            x = nn.relu(
                lax.conv_general_dilated(
                    x, w, (1,), "VALID", rhs_dilation=(d,), dimension_numbers=("NWC", "WIO", "NWC")
                )
            )
        return x[:, -1]

    g = same(f, normal(2, 16, 4), atol=1e-4)
    assert count(g)["conv_2d"] == 2
    assert "pad" not in count(g)
    assert [n.attrs["padding"] for n in g.nodes if n.op == "conv_2d"] == [((0, 0), (2, 0)), ((0, 0), (4, 0))]


def test_convolutions_over_time_channels_first():
    w1, w2, b = normal(8, 4, 3), normal(8, 8, 3), normal(8)

    def f(x):
        for w in (w1, w2):
            x = lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"))
            x = nn.relu(x + b[:, None])
        return x.mean(2)

    g = same(f, normal(2, 4, 16), atol=1e-4)
    assert count(g) == {"transpose": 1, "reshape": 1, "conv_2d": 2, "mean": 1}


def test_transformer_block():
    d, h = 16, 4
    wqkv, wo, w1, w2 = normal(d, 3, h, d // h), normal(h, d // h, d), normal(d, 32), normal(32, d)
    g1, b1, b2 = normal(d), normal(d), normal(32)

    def f(x):
        y = nn.layer_norm(x, g1, b1)
        q, k, v = (jnp.einsum("btd,dhk->bthk", y, wqkv[:, i]) for i in range(3))
        y = nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("bthk,hkd->btd", y, wo)
        y = nn.rms_norm(x, g1)
        return x + nn.gelu(y @ w1 + b2) @ w2

    g = same(f, normal(2, 6, d), atol=1e-4)
    found = count(g)
    assert found["fully_connected"] == 6
    assert found["batch_matmul"] == 2
    assert found["softmax"] == found["gelu"] == 1
    assert found["mean"] == 3
    assert "broadcast_to" not in found


def test_language_model_head_with_embedding():
    words, positions, w = normal(50, 8), normal(6, 8), normal(8, 50)

    def f(ids):
        x = jnp.asarray(words)[ids] + positions
        return nn.log_softmax(x @ w, -1)

    g = same(f, np.array([[1, 2, 49, 0, 3, 7]], np.int32), atol=1e-4)
    assert count(g)["gather"] == 1


def test_recurrent_network_is_unrolled():
    wx, wh, b = normal(4, 8) * 0.3, normal(8, 8) * 0.3, normal(8)

    def f(xs):
        def step(h, x):
            h = jnp.tanh(x @ wx + h @ wh + b)
            return h, h

        return lax.scan(step, jnp.zeros((2, 8)), xs)

    g = same(f, normal(5, 2, 4))
    assert count(g)["tanh"] == 5
    assert ops(same(f, normal(5, 2, 4), unroll=4)) == ["while"]


@pytest.mark.parametrize("name", ["ds_cnn", "vit", "tcn", "encoder"])
def test_models(name):
    m = MODELS[name]
    params, x = nx.tree.map(jnp.asarray, m.init(0)), m.example(0)
    g = same(lambda x: m.apply(params, x), x, atol=1e-4)
    assert "broadcast_to" not in count(g)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18", "efficientnet_lite0"])
def test_models_of_images_are_convolutions_only(name):
    m = MODELS[name]
    params = m.init(0)
    g = graph_of(lambda x: m.apply(params, x), m.example(0))
    assert set(ops(g)) <= {"conv_2d", "depthwise_conv_2d", "add", "mean", "fully_connected", "max_pool_2d"}


# --- the contract ---


def test_parameters_are_bound():
    w, x = normal(3, 3, 3, 4), normal(1, 8, 8, 3)
    program = nx.make_jaxpr(conv)(x, w)
    with pytest.raises(UnsupportedOpsError, match=r"weights are not constant(.|\n)*pass the parameters as constants"):
        lower(program)
    g = lower(bind(program, {1: w}))
    assert ops(g) == ["conv_2d"]
    np.testing.assert_allclose(interpret(g, [x])[0], evaluate(program, [x, w])[0], rtol=1e-5, atol=1e-5)


def test_every_node_knows_its_line_scope_and_name():
    def f(x):
        with nx.named_scope("stem"):
            y = conv(x, normal(3, 3, 3, 4), normal(4))
        return nn.softmax(jnp.mean(y, (1, 2)))

    g = graph_of(f, normal(1, 8, 8, 3))
    assert [n.name for n in g.nodes] == ["conv_2d_0", "mean_0", "softmax_0"]
    assert g.nodes[0].scope == "stem"
    assert all(n.source is not None for n in g.nodes)
    assert "softmax" in g.nodes[-1].source.text
    assert [t.name for t in g.constants()] == ["conv_2d_0/weights", "conv_2d_0/bias"]
    assert [t.name for t in (*g.inputs, *g.outputs)] == ["input_0", "softmax_0"]
    names = [t.name for t in g.tensors()]
    assert len(set(names)) == len(names)


def test_all_that_is_unsupported_is_said_at_once():
    def f(x):
        y = lax.sort((x, x), num_keys=2)[0]
        z = lax.lgamma(y) + jnp.tanh(x)
        return z, lax.atan2(x, y)

    x = normal(4, 8)
    with pytest.raises(UnsupportedOpsError) as caught:
        graph_of(f, x)
    rows = caught.value.rows
    assert [r.op for r in rows] == ["sort", "lgamma", "atan2"]
    text = str(caught.value)
    for part in (
        "3 equations",
        "no NPU sorts",
        "y = lax.sort((x, x), num_keys=2)[0]",
        "f32[4,8]",
        "instead:",
        "test_lower.py",
    ):
        assert part in text
    assert [r.op for r in refusals(nx.make_jaxpr(f)(x))] == ["sort", "lgamma", "atan2"]


def test_loops_and_choices_by_data_are_nodes_of_graphs():
    def f(x):
        y = lax.while_loop(lambda v: v.sum() < 10, lambda v: v * 2, x)
        return lax.cond(y.sum() > 3, lambda v: v, lambda v: -v, y)

    g = same(f, np.ones((2, 2), np.float32))
    assert [n.op for n in g.nodes if n.op in ("while", "if")] == ["while", "if"]


@pytest.mark.parametrize(
    ("dtype", "word"),
    [(np.float64, "cast to float32"), (np.complex64, "real and imaginary"), ("bfloat16", "cast to float32")],
)
def test_dtypes_that_no_npu_has(dtype, word):
    x = nx.numpy.ones((2, 3), dtype)
    with pytest.raises(UnsupportedOpsError, match=word):
        graph_of(lambda x: x + x, x)


def test_wide_indices_become_int32():
    words = normal(50, 8)
    with pytest.raises(UnsupportedOpsError, match="int32"):
        graph_of(lambda i: jnp.asarray(words)[i], jnp.asarray([1, 2], dtype="int64"))
    g = same(lambda x: x[:, jnp.asarray([4, 2], dtype="int64")], normal(3, 8))
    assert g.constants()[0].dtype == np.int32


def test_parts_of_an_op_that_fails_are_named():
    with pytest.raises(UnsupportedOpsError, match=r"bits .*\(a part of nextafter\)"):
        graph_of(lambda x: lax.nextafter(x, x + 1), normal(4))


def test_lowerable():
    p = nx.make_jaxpr(lambda x, w: (conv(x, w), lax.lgamma(x), nn.gelu(x)))(normal(1, 8, 8, 3), normal(3, 3, 3, 4))
    by = {e.op.name: e for e in p.equations}
    assert not lowerable(by["conv_general_dilated"]).ok
    assert lowerable(by["conv_general_dilated"], [p.inputs[1]]).ok
    assert lowerable(by["gelu"]).ok
    verdict = lowerable(by["lgamma"])
    assert not verdict.ok
    assert "no NPU instruction" in verdict.reason
    assert verdict.suggestion


def test_results_may_be_inputs_and_constants():
    g = same(lambda x: (x, jnp.arange(3.0), x + 1), normal(3))
    assert ops(g) == ["add"]
    assert g.outputs[1].constant


def test_options_are_checked():
    p = nx.make_jaxpr(lambda x: x + 1)(normal(3))
    for options in ({"rounding": "up"}, {"io": "bits"}):
        with pytest.raises(ParameterError, match="lower"):
            lower(p, **options)
