"""Building blocks of networks as people write them: results stay, and few transposes are left."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from tests.lower.npu.lowering import count, normal, same


def conv(x, w, groups=1, strides=(1, 1), padding="SAME"):
    numbers = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, feature_group_count=groups)


def lstm(xs):
    wi, wh, b = normal(4, 32) * 0.3, normal(8, 32) * 0.3, normal(32)

    def step(carry, x):
        h, s = carry
        i, f, g, o = jnp.split(x @ wi + h @ wh + b, 4, -1)
        s = nn.sigmoid(f) * s + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(s)
        return (h, s), h

    return lax.scan(step, (jnp.zeros((2, 8)), jnp.zeros((2, 8))), xs)[1]


def group_norm(x):
    x = conv(x, normal(8, 3, 3, 3))
    n, c, h, w = x.shape
    g = x.reshape(n, 2, c // 2, h, w)
    mean, variance = g.mean((2, 3, 4), keepdims=True), g.var((2, 3, 4), keepdims=True)
    x = ((g - mean) / jnp.sqrt(variance + 1e-5)).reshape(n, c, h, w)
    return conv(x * normal(8)[:, None, None], normal(4, 8, 1, 1))


def instance_norm(x):
    x = conv(x, normal(8, 3, 3, 3))
    y = x - x.mean((2, 3), keepdims=True)
    return conv(y * lax.rsqrt((y**2).mean((2, 3), keepdims=True) + 1e-5), normal(4, 8, 1, 1))


def pixel_shuffle(x):
    x = conv(x, normal(16, 3, 3, 3))
    n, c, h, w = x.shape
    x = x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, h * 2, w * 2)
    return conv(x, normal(3, 4, 3, 3))


def convnext(x):
    x = conv(x, normal(8, 3, 4, 4), strides=(4, 4), padding="VALID")
    y = conv(x, normal(8, 1, 7, 7), groups=8).transpose(0, 2, 3, 1)
    y = nn.layer_norm(y, normal(8), normal(8))
    y = nn.gelu(y @ normal(8, 32) + normal(32)) @ normal(32, 8)
    return (x + (y * normal(8)).transpose(0, 3, 1, 2)).mean((2, 3))


def swin(x):
    b, h, w, c = x.shape
    windows = x.reshape(b, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    q, k, v = (windows @ normal(c, 3 * c)).reshape(-1, 16, 3, 2, c // 2).transpose(2, 0, 3, 1, 4)
    scores = nn.softmax(q @ k.swapaxes(-1, -2) * 0.3 + normal(2, 16, 16), -1)
    y = (scores @ v).transpose(0, 2, 1, 3).reshape(-1, 16, c)
    y = y.reshape(b, h // 4, w // 4, 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return jnp.roll(y, (-2, -2), (1, 2))


def rotary(x):
    b, t, d = x.shape
    q, k, v = ((x @ normal(d, d)).reshape(b, t, 2, d // 2) for _ in range(3))
    angles = jnp.arange(t)[:, None] * (100.0 ** (-jnp.arange(0, d // 4) / (d // 4)))[None]
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]

    def turned(u):
        a, c = jnp.split(u, 2, -1)
        return jnp.concatenate([a * cos - c * sin, a * sin + c * cos], -1)

    scores = jnp.einsum("bthd,bshd->bhts", turned(q), turned(k)) / jnp.sqrt(d // 2)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", nn.softmax(scores), v).reshape(b, t, d) @ normal(d, d)


def pixels_attend(x):
    x = conv(x, normal(8, 3, 3, 3))
    n, c, h, w = x.shape
    t = x.reshape(n, c, h * w).transpose(0, 2, 1)
    t = t + nn.softmax(t @ t.swapaxes(1, 2)) @ t
    return conv(t.transpose(0, 2, 1).reshape(n, c, h, w), normal(4, 8, 1, 1))


def focus(x):
    corners = [x[:, :, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return conv(jnp.concatenate(corners, 1), normal(4, 12, 3, 3))


def pyramid(x):
    x = conv(x, normal(8, 3, 3, 3))
    pools = [lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, k, k), (1, 1, 1, 1), "SAME") for k in (3, 5)]
    return conv(jnp.concatenate([x, *pools], 1), normal(4, 24, 1, 1))


def detector(x):
    x = conv(x, normal(14, 3, 1, 1))
    n, _, h, w = x.shape
    x = x.reshape(n, 2, 7, h, w).transpose(0, 1, 3, 4, 2)
    grid = jnp.stack(jnp.meshgrid(jnp.arange(h), jnp.arange(w), indexing="ij"), -1)
    places = (nn.sigmoid(x[..., :2]) * 2 - 0.5 + grid) * 8
    return jnp.concatenate([places, jnp.exp(x[..., 2:4]), nn.sigmoid(x[..., 4:])], -1).reshape(n, -1, 7)


def camera(x):
    return nn.relu(conv((x.astype(jnp.float32) / 255 - 0.5) / 0.2, normal(4, 3, 3, 3)))


def characters(x):
    y = lax.conv_general_dilated(x, normal(3, 4, 6), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    return jnp.argmax(nn.log_softmax(y), -1)


def half(x):
    return nn.relu(x @ normal(4, 8).astype(np.float16) + jnp.ones(8, jnp.float16)).mean(1)


PICTURE = normal(1, 3, 8, 8)


@pytest.mark.parametrize(
    ("function", "x", "transposes"),
    [
        (lstm, normal(6, 2, 4), 0),
        (group_norm, PICTURE, 2),
        (instance_norm, PICTURE, 2),
        (pixel_shuffle, PICTURE, 3),
        (convnext, normal(1, 3, 16, 16), 1),
        (swin, normal(1, 8, 8, 8), 6),
        (rotary, normal(2, 6, 8), 4),
        (pixels_attend, PICTURE, 2),
        (focus, PICTURE, 2),
        (pyramid, PICTURE, 2),
        (detector, PICTURE, 2),
        (camera, np.arange(192, dtype=np.uint8).reshape(1, 3, 8, 8), 2),
        (characters, normal(2, 8, 4), 0),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_blocks(function, x, transposes):
    g = same(function, x, rtol=1e-3, atol=1e-3)
    assert count(g).get("transpose", 0) <= transposes
    assert "broadcast_to" not in count(g)
    assert all(len(n.output.shape) <= 5 for n in g.nodes if n.op == "transpose")


def test_means_are_means_in_every_norm():
    assert count(same(group_norm, PICTURE, atol=1e-3))["mean"] == 2
    assert count(same(instance_norm, PICTURE, atol=1e-3))["mean"] == 2
    assert "sum" not in count(same(convnext, normal(1, 3, 16, 16), atol=1e-3))


def test_half_floats():
    g = same(half, normal(2, 3, 4).astype(np.float16), rtol=1e-2, atol=1e-2)
    assert g.inputs[0].dtype == np.float16


def test_transformed_functions_lower_too():
    w = normal(4, 5)
    f = lambda x: jnp.sum(jnp.tanh(x @ w))
    same(nx.grad(f), normal(3, 4))
    same(nx.vmap(nx.grad(lambda r: jnp.sum(jnp.tanh(r @ w)))), normal(3, 4))
    same(lambda x: nx.jvp(f, (x,), (x,)), normal(3, 4))
    same(nx.jit(nx.checkpoint(f)), normal(3, 4))
