"""Densities, samplers, filters, Gaussian processes, variational inference."""

from benchmarks.breadth.program import program


@program("n", "n: positive", rows=("n=50000", "n=300 float64"))
def normal_log_density(lib, x, scale):
    return lib.scipy.stats.norm.logpdf(x, 0.5, scale).sum()


@program("b d", "d", "d d: spd", rows=("b=1000 d=16", "b=20 d=4 float64"), tolerance=10)
def multivariate_normal_log_density(lib, x, mean, cov):
    return lib.scipy.stats.multivariate_normal.logpdf(x, mean, cov)


@program("n d", "k d", "k: stochastic", rows=("n=2000 d=8 k=16", "n=50 d=3 k=4 float64"))
def mixture_responsibilities(lib, x, centres, weights):
    d = ((x[:, None, :] - centres[None]) ** 2).sum(-1)
    logits = lib.numpy.log(weights) - d / 2
    return lib.numpy.exp(logits - lib.scipy.special.logsumexp(logits, axis=1, keepdims=True))


@program("n d", "k d", rows=("n=1000 d=8 k=8", "n=40 d=3 k=3 float64"), tolerance=10)
def k_means(lib, x, centres):
    np = lib.numpy

    def step(i, centres):
        d = ((x[:, None, :] - centres[None]) ** 2).sum(-1)
        member = (np.argmin(d, axis=1)[:, None] == np.arange(centres.shape[0])).astype(x.dtype)
        return (member.T @ x + 1e-3 * centres) / (member.sum(axis=0) + 1e-3)[:, None]

    return lib.lax.fori_loop(0, 10, step, centres)


def _posterior(lib, x, y):
    return lambda w: -(lib.nn.softplus(x @ w) - y * (x @ w)).sum() - (w * w).sum() / 2


@program("n d", "n: binary", "d: small", ": below 99", rows=("n=200 d=8", "n=30 d=3 float64"), tolerance=100)
def hamiltonian_monte_carlo(lib, x, y, w, seed):
    logp = _posterior(lib, x, y)
    force = lib.grad(logp)

    def sample(w, key):
        draw, accept = lib.random.split(key)
        p0 = lib.random.normal(draw, w.shape, w.dtype)

        def leap(i, state):
            q, p = state
            p = p + 0.01 * force(q)
            q = q + 0.02 * p
            return q, p + 0.01 * force(q)

        q, p = lib.lax.fori_loop(0, 5, leap, (w, p0))
        gain = logp(q) - (p * p).sum() / 2 - logp(w) + (p0 * p0).sum() / 2
        w = lib.numpy.where(lib.numpy.log(lib.random.uniform(accept)) < gain, q, w)
        return w, w

    return lib.lax.scan(sample, w, lib.random.split(lib.random.key(seed), 10))[1]


@program("c d: small", ": below 99", rows=("c=256 d=4", "c=8 d=2 float64"), tolerance=100)
def metropolis_chains(lib, start, seed):
    logp = lambda w: -((1 - w[0]) ** 2 + 2 * (w[1] - w[0] ** 2) ** 2 + (w**2).sum())

    def chain(w, key):
        def step(w, key):
            a, b = lib.random.split(key)
            new = w + 0.1 * lib.random.normal(a, w.shape, w.dtype)
            go = lib.numpy.log(lib.random.uniform(b)) < logp(new) - logp(w)
            return lib.numpy.where(go, new, w), None

        return lib.lax.scan(step, w, lib.random.split(key, 30))[0]

    return lib.vmap(chain)(start, lib.random.split(lib.random.key(seed), start.shape[0]))


@program("t 2", rows=("t=500", "t=30 float64"), tolerance=50)
def kalman_filter(lib, ys):
    np = lib.numpy
    f = np.asarray([[1.0, 0.0, 0.1, 0.0], [0.0, 1.0, 0.0, 0.1], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]], ys.dtype)
    h, eye = f[:2] * 0 + np.eye(2, 4, dtype=ys.dtype), np.eye(4, dtype=ys.dtype)

    def step(state, y):
        m, p = f @ state[0], f @ state[1] @ f.T + 0.01 * eye
        s = h @ p @ h.T + 0.1 * np.eye(2, dtype=ys.dtype)
        gain = np.linalg.solve(s, h @ p).T
        m = m + gain @ (y - h @ m)
        return (m, p - gain @ h @ p), m

    return lib.lax.scan(step, (np.zeros(4, ys.dtype), eye), ys)[1]


@program("t", "p", ": below 99", rows=("t=50 p=1000", "t=10 p=50 float64"), tolerance=100)
def particle_filter(lib, ys, particles, seed):
    np = lib.numpy

    def step(x, row):
        y, key = row
        a, b = lib.random.split(key)
        # Sorted: where a sum in another order moves an index by one, the particle there is a near one.
        x = np.sort(0.9 * x + 0.3 * lib.random.normal(a, x.shape, x.dtype))
        w = lib.nn.softmax(-0.5 * (y - x) ** 2)
        at = (np.arange(x.shape[0]) + lib.random.uniform(b, (), x.dtype)) / x.shape[0]
        index = np.clip(np.searchsorted(np.cumsum(w), at), 0, x.shape[0] - 1)
        return x[index], (w * x).sum()

    return lib.lax.scan(step, particles, (ys, lib.random.split(lib.random.key(seed), ys.shape[0])))[1].mean()


def _rbf(lib, a, b):
    d = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * (a @ b.T)
    return lib.numpy.exp(-0.5 * d)


@program("n d", "n", "m d", rows=("n=128 d=4 m=64", "n=20 d=2 m=5 float64"), tolerance=100)
def gaussian_process_mean(lib, x, y, new):
    k = _rbf(lib, x, x) + 0.5 * lib.numpy.eye(x.shape[0], dtype=x.dtype)
    return _rbf(lib, new, x) @ lib.numpy.linalg.solve(k, y)


@program("n d", "n", ": positive", rows=("n=96 d=4", "n=16 d=2 float64"), tolerance=100)
def gaussian_process_evidence_gradient(lib, x, y, length):
    np = lib.numpy

    def evidence(length):
        k = _rbf(lib, x / length, x / length) + 0.5 * np.eye(x.shape[0], dtype=x.dtype)
        factor = np.linalg.cholesky(k)
        a = lib.scipy.linalg.solve_triangular(factor, y, lower=True)
        return -(a @ a) / 2 - np.log(np.diagonal(factor)).sum()

    return lib.value_and_grad(evidence)(length)


@program("n d", "n: binary", "d: small", ": below 99", rows=("n=500 d=16", "n=30 d=3 float64"), tolerance=10)
def variational_gradient(lib, x, y, mean, seed):
    logp = _posterior(lib, x, y)
    noise = lib.random.normal(lib.random.key(seed), (16, mean.shape[0]), mean.dtype)

    def bound(params):
        mean, log_scale = params
        draws = mean + lib.numpy.exp(log_scale) * noise
        return lib.vmap(logp)(draws).mean() + log_scale.sum()

    return lib.grad(bound)((mean, lib.numpy.zeros_like(mean)))


@program("n d", "n: binary", "d: small", rows=("n=200 d=12", "n=30 d=3 float64"), tolerance=50)
def laplace_approximation(lib, x, y, w):
    return lib.numpy.linalg.inv(-lib.hessian(_posterior(lib, x, y))(w))


@program("s s: stochastic", "s o: stochastic", "t: below o", rows=("s=16 o=8 t=300", "s=4 o=3 t=12 float64"))
def hidden_markov_forward(lib, transition, emission, seen):
    np = lib.numpy
    log_t, log_e = np.log(transition), np.log(emission)

    def step(alpha, o):
        alpha = lib.scipy.special.logsumexp(alpha[:, None] + log_t, axis=0) + log_e[:, o]
        return alpha, None

    start = log_e[:, seen[0]] - np.log(1.0 * transition.shape[0])
    return lib.scipy.special.logsumexp(lib.lax.scan(step, start, seen[1:])[0])


@program("s s: stochastic", "s o: stochastic", "t: below o", rows=("s=16 o=8 t=300", "s=4 o=3 t=12 float64"))
def viterbi(lib, transition, emission, seen):
    log_t, log_e = lib.numpy.log(transition), lib.numpy.log(emission)

    def step(best, o):
        scores = best[:, None] + log_t
        return scores.max(axis=0) + log_e[:, o], lib.numpy.argmax(scores, axis=0)

    return lib.lax.scan(step, log_e[:, seen[0]], seen[1:])


@program("n k: positive", rows=("n=5000 k=8", "n=50 k=3 float64"), tolerance=10)
def dirichlet_log_normalizer(lib, alpha):
    gammaln = lib.scipy.special.gammaln
    return gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))


@program("n: positive", "n: positive", rows=("n=20000", "n=100 float64"), tolerance=10)
def beta_moments_gradient(lib, a, b):
    return lib.grad(lambda a: lib.scipy.special.betaln(a, b).sum())(a)


@program("n: positive", ": below 99", rows=("n=2000", "n=50"), tolerance=10)
def posterior_predictive_draws(lib, rate, seed):
    key = lib.random.key(seed)
    return lib.random.exponential(key, (20, rate.shape[0])) / rate
