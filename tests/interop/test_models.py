"""Models in the form that flax and equinox give them: imported, quantized, deployed, differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.interop import from_jax

RNG = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def dense_parameters(n, m):
    return {"kernel": normal(n, m, scale=n**-0.5), "bias": normal(m, scale=0.1)}


def norm_parameters(n):
    return {"scale": abs(normal(n)) + 0.5, "bias": normal(n, scale=0.1)}


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def mlp(p, x):
    x = jax.nn.relu(dense(p["d1"], x))
    return jax.nn.softmax(dense(p["d3"], jax.nn.gelu(dense(p["d2"], x))))


def batch_norm(p, x):
    return (x - p["mean"]) * (jax.lax.rsqrt(p["var"] + 1e-5) * p["scale"]) + p["bias"]


def conv(p, x, stride=1):
    return jax.lax.conv_general_dilated(
        x, p["kernel"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cnn(p, x):
    x = jax.nn.relu(batch_norm(p["n1"], conv(p["c1"], x)))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(batch_norm(p["n2"], conv(p["c2"], x, 2)))
    x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4.0
    return dense(p["d"], x.mean((1, 2)))


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum(0.0, (x * x).mean(-1, keepdims=True) - mean * mean)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-6) * p["scale"]) + p["bias"]


def block(p, x):
    """A transformer block of two heads."""
    y = layer_norm(p["n1"], x)
    batch, length, width = y.shape
    q, k, v = (dense(p[name], y).reshape(batch, length, 2, width // 2) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q * (width // 2) ** -0.5, k))
    x = x + dense(p["o"], jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width))
    return x + dense(p["m2"], jax.nn.gelu(dense(p["m1"], layer_norm(p["n2"], x))))


def statistics(n):
    return {**norm_parameters(n), "mean": normal(n, scale=0.1), "var": abs(normal(n)) + 0.5}


MODELS = {
    "mlp": (
        mlp,
        {"d1": dense_parameters(8, 16), "d2": dense_parameters(16, 16), "d3": dense_parameters(16, 4)},
        normal(32, 8),
        ["fully_connected", "fully_connected", "gelu", "fully_connected", "softmax"],
    ),
    "cnn": (
        cnn,
        {"c1": {"kernel": normal(3, 3, 3, 8, scale=0.2)}, "n1": statistics(8),
         "c2": {"kernel": normal(3, 3, 8, 16, scale=0.12)}, "n2": statistics(16), "d": dense_parameters(16, 5)},
        normal(8, 16, 16, 3),
        ["conv_2d", "max_pool_2d", "conv_2d", "average_pool_2d", "mean", "fully_connected"],
    ),
    "block": (
        block,
        {"n1": norm_parameters(16), "n2": norm_parameters(16), **{n: dense_parameters(16, 16) for n in "qkvo"},
         "m1": dense_parameters(16, 32), "m2": dense_parameters(32, 16)},
        normal(4, 6, 16),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_float(name: str):
    f, p, x, _ = MODELS[name]
    g = from_jax(f)
    np.testing.assert_allclose(g(p, x), f(p, x), 1e-4, 1e-5)
    ours = nx.jit(nx.grad(lambda p: (g(p, nx.array(x)) ** 2).mean()))(nx.tree.map(nx.array, p))
    theirs = jax.jit(jax.grad(lambda p: (f(p, x) ** 2).mean()))(p)
    for y, z in zip(nx.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(y, z, 1e-3, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_int8_in_a_tflite_file(name: str):
    f, p, x, expected = MODELS[name]
    given = nx.tree.map(nx.array, p), nx.array(x)
    q = nx.quantize(from_jax(f), "int8", calibrate=[given])
    y, z = q(*given).numpy(), np.asarray(f(p, x))
    assert np.abs(y - z).max() < 0.06 * np.abs(z).max()
    artifact = nx.compile(q, target="tflite")(*given)
    assert len(artifact.report.rows) > 0
    np.testing.assert_allclose(artifact(*given), y, atol=0.02 * float(np.abs(z).max()))
    if expected is not None:
        ops = [row.op for row in artifact.report.rows if row.op not in ("reshape", "quantize", "dequantize")]
        assert len(ops) <= len(expected) + 1, ops
