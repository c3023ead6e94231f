"""Adjacency matrices, lists of edges, shortest paths, message passing."""

from benchmarks.breadth.program import program

_EDGES = ("e: below n", "e: below n")


@program("n n: stochastic", rows=("n=400", "n=30 float64"))
def page_rank(lib, p):
    n = p.shape[0]
    step = lambda i, r: 0.85 * (r @ p) + 0.15 / n
    return lib.lax.fori_loop(0, 30, step, lib.numpy.full(n, 1.0 / n, p.dtype))


@program(*_EDGES, rows=("e=100000 n=5000", "e=200 n=30"))
def degrees(lib, source, target):
    return lib.numpy.bincount(target, length=5000)


@program("n d", *_EDGES, rows=("n=2000 d=32 e=10000", "n=30 d=8 e=100 float64"))
def message_passing(lib, x, source, target):
    return lib.numpy.zeros_like(x).at[target].add(x[source])


@program("n d", "d d: small", *_EDGES, rows=("n=1000 d=64 e=5000", "n=20 d=8 e=60 float64"))
def graph_convolution(lib, x, w, source, target):
    np = lib.numpy
    degree = np.ones(x.shape[0], x.dtype).at[target].add(1.0)
    h = x @ w
    return lib.nn.relu((h + np.zeros_like(h).at[target].add(h[source])) / degree[:, None])


@program("n d", "d: small", *_EDGES, rows=("n=1000 d=32 e=5000", "n=20 d=8 e=60 float64"))
def graph_attention(lib, x, a, source, target):
    np = lib.numpy
    score = lib.nn.leaky_relu((x @ a)[source] + (x @ a)[target])
    most = np.full(x.shape[0], -np.inf, x.dtype).at[target].max(score)
    weight = np.exp(score - most[target])
    total = np.zeros(x.shape[0], x.dtype).at[target].add(weight)
    return np.zeros_like(x).at[target].add((weight / total[target])[:, None] * x[source])


@program("n d", "d d: small", *_EDGES, rows=("n=500 d=32 e=2500", "n=20 d=8 e=60 float64"))
def graph_convolution_gradient(lib, x, w, source, target):
    def loss(w):
        h = lib.nn.relu(x @ w)
        return (lib.numpy.zeros_like(h).at[target].add(h[source]) ** 2).mean()

    return lib.grad(loss)(w)


@program("n n: positive", rows=("n=64", "n=12 float64"))
def floyd_warshall(lib, d):
    step = lambda k, d: lib.numpy.minimum(d, d[:, k, None] + d[None, k, :])
    return lib.lax.fori_loop(0, d.shape[0], step, d)


@program("n n: positive", rows=("n=200", "n=16 float64"))
def bellman_ford(lib, w):
    n = w.shape[0]
    start = lib.numpy.where(lib.numpy.arange(n) == 0, 0.0, 1e9).astype(w.dtype)

    def step(state):
        d, _, i = state
        new = lib.numpy.minimum(d, (d[:, None] + w).min(axis=0))
        return new, (new != d).any(), i + 1

    return lib.lax.while_loop(lambda s: s[1] & (s[2] < n), step, (start, True, 0))[0]


@program(*_EDGES, rows=("e=5000 n=1000", "e=40 n=20"))
def connected_components(lib, source, target):
    labels = lib.numpy.arange(1000)

    def step(state):
        labels, _ = state
        new = labels.at[target].min(labels[source])
        new = new.at[source].min(new[target])
        return new, (new != labels).any()

    return lib.lax.while_loop(lambda s: s[1], step, (labels, True))[0]


@program("n n: unit", rows=("n=300", "n=20 float64"))
def triangles(lib, u):
    a = (u > 0.9).astype(u.dtype)
    a = lib.numpy.maximum(a, a.T)
    return ((a @ a) * a).sum() / 6


@program("n n: unit", rows=("n=128", "n=16 float64"), tolerance=10)
def laplacian_spectrum(lib, u):
    a = (u + u.T) / 2
    laplacian = lib.numpy.diag(a.sum(axis=1)) - a
    return lib.numpy.linalg.eigvalsh(laplacian)


@program("n n: unit", rows=("n=256", "n=16 float64"))
def normalized_adjacency(lib, u):
    a = (u > 0.5).astype(u.dtype) + lib.numpy.eye(u.shape[0], dtype=u.dtype)
    scale = 1.0 / lib.numpy.sqrt(a.sum(axis=1))
    return a * scale[:, None] * scale[None, :]


@program("n n: stochastic", "w: below n", ": below 99", rows=("n=200 w=500", "n=12 w=20"))
def random_walks(lib, p, start, seed):
    logits = lib.numpy.log(p)

    def step(at, key):
        at = lib.random.categorical(key, logits[at], axis=-1)
        return at, at

    return lib.lax.scan(step, start, lib.random.split(lib.random.key(seed), 10))[1]


@program("n n: unit", rows=("n=200", "n=20"))
def breadth_first_levels(lib, u):
    np = lib.numpy
    a = u > 0.98
    n = u.shape[0]

    def step(state):
        level, front, i = state
        new = (a & front[:, None]).any(axis=0) & (level < 0)
        return np.where(new, i + 1, level), new, i + 1

    first = np.arange(n) == 0
    return lib.lax.while_loop(lambda s: s[1].any(), step, (np.where(first, 0, -1), first, 0))[0]


@program("n d", rows=("n=400 d=16", "n=20 d=4 float64"))
def nearest_neighbours(lib, x):
    d = (x * x).sum(1)[:, None] - 2 * (x @ x.T) + (x * x).sum(1)[None, :]
    return lib.lax.top_k(-d, 5)[0]
