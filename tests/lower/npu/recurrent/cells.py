"""Recurrent layers as people write them, each of them a function of ``x`` [7, 2, 3] with a state of 5. Not a test."""

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn

RNG = np.random.default_rng(0)
STEPS, BATCH, IN, N = 7, 2, 3, 5


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32) / 2


W, R, B, B2 = floats(IN, 4 * N), floats(N, 4 * N), floats(4 * N), floats(4 * N)
H0, C0 = floats(BATCH, N), floats(BATCH, N)
W4, R4 = floats(4, IN, N), floats(4, N, N)
OUT = floats(N, 2)
X = floats(STEPS, BATCH, IN)
by_exp = lambda x: 1 / (1 + jnp.exp(-x))
by_tanh = lambda x: 0.5 * jnp.tanh(0.5 * x) + 0.5


def cell(c, i, f, g, o, sigmoid=nn.sigmoid):
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def joined(x):
    """All gates in one product for the input and one for the state."""

    def step(s, row):
        h, c = cell(s[1], *jnp.split(row @ W + s[0] @ R + B, 4, -1))
        return (h, c), h

    return lax.scan(step, (H0, C0), x)


def hoisted(x):
    """The product with the input in front of the loop, the state in another order, gates too, from behind."""

    def step(s, row):
        o, g, f, i = jnp.split(row + jnp.dot(s[1], R), 4, -1)
        h, c = cell(s[0], i, f + 1.0, g, o, by_exp)
        return (c, h), h

    return lax.scan(step, (C0, H0), x @ W + B, reverse=True)


def one_product(x):
    """Input and state beside one another; one sigmoid of three gates; only the last state leaves."""
    both = jnp.concatenate([W, R])

    def step(s, row):
        h, c = s
        y = jnp.concatenate([row, h], -1) @ both + B
        f, i, o = jnp.split(nn.sigmoid(y[:, : 3 * N]), 3, -1)
        c = jnp.tanh(y[:, 3 * N :]) * i + c * f
        return (jnp.tanh(c) * o, c), None

    return lax.scan(step, (jnp.zeros((BATCH, N)),) * 2, x)[0][0]


def apart(x):
    """A matrix for each gate and each operand, two biases."""
    parts = [jnp.split(v, 4, -1) for v in (W, R, B, B2)]

    def step(s, row):
        h, c = s
        gates = [row @ w + b + (h @ r + b2) for w, r, b, b2 in zip(*parts, strict=True)]
        h, c = cell(c, *gates, by_tanh)
        return (h, c), (h, row)

    return lax.scan(step, (H0, C0), x)


def stacked_gates(x):
    """Gates along an axis of their own in front of the batch."""

    def step(s, row):
        y = jnp.einsum("bi,gin->gbn", row, W4) + jnp.einsum("bn,gnm->gbm", s[0], R4)
        h, c = cell(s[1], *y)
        return (h, c), h

    return lax.scan(step, (H0, C0), x)[1]


def one_sequence(x):
    """Columns: weights on the left, no batch; and a batch by `vmap`."""

    def step(s, row):
        h, c = cell(s[1], *jnp.split(W.T @ row + R.T @ s[0] + B, 4))
        return (h, c), h

    one = lambda x: lax.scan(step, (H0[0], C0[0]), x)[1]
    return one(x[:, 0]), nx.vmap(one, 1, 1)(x)


def two_layers(x):
    """Two cells and a head in one loop, with a function of what a step reads."""

    def step(s, row):
        (h, c), (h2, c2) = s
        h, c = cell(c, *jnp.split(row @ W + h @ R, 4, -1))
        h2, c2 = cell(c2, *jnp.split(h @ R + h2 @ R + B, 4, -1))
        return ((h, c), (h2, c2)), nn.softmax(h2 @ OUT) + row[:, :1]

    return lax.scan(step, ((H0, C0), (C0, H0)), x)


def reset_after(x):
    def step(h, row):
        xz, xr, xn = jnp.split(row @ W[:, : 3 * N] + B[: 3 * N], 3, -1)
        hz, hr, hn = jnp.split(h @ R[:, : 3 * N] + B2[: 3 * N], 3, -1)
        n = jnp.tanh(xn + nn.sigmoid(xr + hr) * hn)
        z = nn.sigmoid(xz + hz)
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(step, H0, x, reverse=True)


def reset_before(x):
    def step(h, row):
        xz, xr, xn = jnp.split(row, 3, -1)
        z, r = by_exp(xz + h @ R[:, :N]), by_tanh(xr + h @ R[:, N : 2 * N])
        n = jnp.tanh(xn + (h * r) @ R[:, 2 * N : 3 * N] + B2[:N])
        return h + z * (n - h), None

    return lax.scan(step, H0, jnp.matmul(x, W[:, : 3 * N]) + B[: 3 * N])[0]


def plain(x):
    def step(h, row):
        h = jnp.tanh(h @ R[:, :N] + row @ W[:, :N])
        return h, h

    return lax.scan(step, H0, x)


def rectified(x):
    def step(h, row):
        h = jnp.maximum(row @ W[:, :N] + h @ R[:, :N] * 0.5 + B[:N], 0)
        return h, h

    return lax.scan(step, H0, x)[1]


CELLS = {
    "lstm": [joined, hoisted, one_product, apart, stacked_gates, one_sequence, two_layers],
    "gru": [reset_after, reset_before],
    "rnn": [plain, rectified],
}
EVERY = [(op, f) for op, fs in CELLS.items() for f in fs]


# Those that are none.


def peephole(x):
    def step(s, row):
        h, c = s
        i, f, g, o = jnp.split(row @ W + h @ R, 4, -1)
        h, c = cell(c, i + c * B[:N], f, g, o)
        return (h, c), h

    return lax.scan(step, (H0, C0), x)[1]


def clipped(x):
    def step(s, row):
        h, c = cell(s[1], *jnp.split(row @ W + s[0] @ R, 4, -1))
        c = jnp.clip(c, -0.1, 0.1)
        return (h, c), h

    return lax.scan(step, (H0, C0), x)[1]


def another_function(x):
    def step(s, row):
        h, c = s
        i, f, g, o = jnp.split(row @ W + h @ R, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.sin(g)
        return (nn.sigmoid(o) * jnp.tanh(c), c), h

    return lax.scan(step, (H0, C0), x)[1]


def former_state(x):
    """The result of a step before it."""

    def step(h, row):
        return jnp.tanh(row @ W[:, :N] + h @ R[:, :N]), h

    return lax.scan(step, H0, x)[1]


def delayed(x):
    """The second layer reads what the first one had made in the step before."""

    def step(s, row):
        h, h2 = s
        new = jnp.tanh(row @ W[:, :N] + h @ R[:, :N])
        return (new, jnp.tanh(h @ R[:, :N] + h2 @ R[:, N : 2 * N])), h2

    return lax.scan(step, (H0, C0), x)[0]


def by_data(x):
    """Weights that are computed from the input."""
    r = jnp.tanh(x[0, 0, 0] * R[:, :N])

    def step(h, row):
        return jnp.tanh(row @ W[:, :N] + h @ r), None

    return lax.scan(step, H0, x)[0]


OTHERS = [peephole, clipped, another_function, former_state, delayed, by_data]
