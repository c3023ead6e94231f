"""Recurrent networks, attention, embeddings, decoding, losses of sequences."""

from benchmarks.breadth.program import program


def _lstm(lib, xs, w, u):
    def step(state, x):
        h, c = state
        i, f, g, o = lib.numpy.split(x @ w + h @ u, 4, axis=-1)
        c = lib.nn.sigmoid(f) * c + lib.nn.sigmoid(i) * lib.numpy.tanh(g)
        h = lib.nn.sigmoid(o) * lib.numpy.tanh(c)
        return (h, c), h

    zero = lib.numpy.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    return lib.lax.scan(step, (zero, zero), xs)[1]


@program("t b d", "d h: small", "h h: small", rows=("t=100 b=16 d=32 h=64", "t=12 b=2 d=4 h=8 float64"))
def vanilla_rnn(lib, xs, w, u):
    def step(h, x):
        h = lib.numpy.tanh(x @ w + h @ u)
        return h, h

    return lib.lax.scan(step, lib.numpy.zeros((xs.shape[1], w.shape[1]), xs.dtype), xs)[1]


@program("t b d", "d 256: small", "64 256: small", rows=("t=64 b=16 d=32", "t=12 b=1 d=8 float64"))
def lstm_forward(lib, xs, w, u):
    return _lstm(lib, xs, w, u)


@program("t b d", "d 128: small", "32 128: small", rows=("t=32 b=16 d=16", "t=12 b=2 d=8 float64"), tolerance=10)
def lstm_gradient(lib, xs, w, u):
    return lib.grad(lambda p: (_lstm(lib, xs, *p) ** 2).mean())((w, u))


@program("t b d", "d 192: small", "64 192: small", rows=("t=64 b=16 d=32", "t=12 b=1 d=8 float64"))
def gru_forward(lib, xs, w, u):
    def step(h, x):
        a, b = x @ w, h @ u
        (ar, az, an), (br, bz, bn) = lib.numpy.split(a, 3, axis=-1), lib.numpy.split(b, 3, axis=-1)
        r, z = lib.nn.sigmoid(ar + br), lib.nn.sigmoid(az + bz)
        h = (1 - z) * lib.numpy.tanh(an + r * bn) + z * h
        return h, h

    return lib.lax.scan(step, lib.numpy.zeros((xs.shape[1], 64), xs.dtype), xs)[1]


def _attention(lib, q, k, v):
    scores = lib.numpy.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    n = q.shape[2]
    mask = lib.numpy.tril(lib.numpy.ones((n, n), bool))
    return lib.numpy.einsum("bhqk,bhkd->bhqd", lib.nn.softmax(lib.numpy.where(mask, scores, -1e9)), v)


@program("b h t d", "b h t d", "b h t d", rows=("b=2 h=4 t=128 d=32", "b=1 h=2 t=12 d=8", "b=2 h=4 t=64 d=32 bfloat16"))
def causal_attention(lib, q, k, v):
    return _attention(lib, q, k, v)


@program("b h t d", "b h t d", "b h t d", rows=("b=1 h=4 t=64 d=32", "b=1 h=2 t=12 d=8 float64"), tolerance=10)
def attention_gradient(lib, q, k, v):
    return lib.grad(lambda q: (_attention(lib, q, k, v) ** 2).sum())(q)


@program("v d", "b t: below v", rows=("v=10000 d=64 b=16 t=64", "v=50 d=8 b=2 t=12 float64"))
def embedding_lookup(lib, table, ids):
    return table[ids].mean(axis=1)


@program("v d", "b t: below v", rows=("v=5000 d=64 b=16 t=64", "v=50 d=8 b=2 t=12 float64"))
def embedding_gradient(lib, table, ids):
    return lib.grad(lambda table: (table[ids] ** 2).sum())(table)


@program("b t v", "b t: below v", rows=("b=8 t=64 v=500", "b=2 t=12 v=20 float64"))
def cross_entropy(lib, logits, labels):
    logp = lib.nn.log_softmax(logits, -1)
    return -lib.numpy.take_along_axis(logp, labels[..., None], axis=-1).mean()


@program("b t d", "d: positive", rows=("b=8 t=128 d=256", "b=2 t=12 d=8 float64", "b=4 t=64 d=256 bfloat16"))
def rms_norm(lib, x, w):
    return x / lib.numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * w


@program("t d", "d", rows=("t=512 d=64", "t=12 d=4 float64"))
def rotary_positions(lib, x, w):
    np = lib.numpy
    half = x.shape[1] // 2
    angle = np.arange(x.shape[0])[:, None] * np.exp(-np.arange(half) / half * 9.21)[None, :]
    c, s = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * c - b * s, a * s + b * c], axis=1) * w


@program("t d: unit", "t d", rows=("t=512 d=64", "t=12 d=4 float64"))
def linear_recurrence(lib, a, x):
    combine = lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1])
    return lib.lax.associative_scan(combine, (a, x))[1]


@program("t d n: unit", "t d n: small", "t n", rows=("t=128 d=32 n=16", "t=12 d=4 n=2 float64"))
def state_space_scan(lib, decay, drive, c):
    def step(h, row):
        decay, drive, c = row
        h = decay * h + drive
        return h, h @ c

    return lib.lax.scan(step, lib.numpy.zeros_like(decay[0]), (decay, drive, c))[1]


@program("b d", "v d: small", rows=("b=4 d=64 v=2000", "b=2 d=8 v=30"))
def greedy_decode(lib, h, table):
    def step(h, _):
        token = lib.numpy.argmax(h @ table.T, axis=-1)
        return lib.numpy.tanh(0.5 * h + table[token]), token

    return lib.lax.scan(step, h, None, length=12)[1]


@program("b v", rows=("b=16 v=5000", "b=2 v=40 float64"))
def top_k_filter(lib, logits):
    value, _ = lib.lax.top_k(logits, 10)
    return lib.nn.softmax(lib.numpy.where(logits < value[:, -1:], -1e9, logits))


@program("b: below 8", "b d", "8 d d: small", rows=("b=64 d=64", "b=12 d=8 float64"))
def experts_by_switch(lib, choice, x, w):
    experts = [lambda x, w, i=i: lib.nn.relu(x @ w[i]) for i in range(8)]
    return lib.vmap(lambda c, x: lib.lax.switch(c, experts, x, w))(choice, x)


@program("m: below 4", "n: below 4", rows=("m=100 n=100", "m=12 n=12"))
def edit_distance(lib, a, b):
    np = lib.numpy
    n = b.shape[0]

    def row(before, letter):
        cost = (b != letter).astype(np.int32)
        left = np.minimum(before[1:] + 1, before[:-1] + cost)
        first = before[0] + 1
        steps = np.arange(n + 1)
        now = lib.lax.cummin(np.concatenate([first[None], left]) - steps) + steps
        return now, None

    return lib.lax.scan(row, np.arange(n + 1), a)[0][-1]


@program("t c: stochastic", "l: below c", rows=("t=100 c=20 l=20", "t=12 c=6 l=4 float64"), tolerance=10)
def alignment_likelihood(lib, p, labels):
    np = lib.numpy
    logp = np.log(p)[:, labels]

    def step(alpha, row):
        moved = np.concatenate([np.full((1,), -1e9, p.dtype), alpha[:-1]])
        return np.logaddexp(alpha, moved) + row, None

    start = np.where(np.arange(labels.shape[0]) == 0, logp[0], -1e9)
    return lib.lax.scan(step, start, logp[1:])[0][-1]
