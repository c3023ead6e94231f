"""Descriptive statistics, densities, regression, resampling."""

from benchmarks.breadth.program import program


@program("n d", rows=("n=20000 d=32", "n=500 d=8 float64", "n=4000 d=64 bfloat16"))
def zscore(lib, x):
    return (x - x.mean(axis=0)) / lib.numpy.sqrt(((x - x.mean(axis=0)) ** 2).mean(axis=0) + 1e-6)


@program("n d", rows=("n=5000 d=64", "n=300 d=12 float64"))
def covariance(lib, x):
    c = x - x.mean(axis=0)
    return c.T @ c / (x.shape[0] - 1)


@program("n d", rows=("n=2000 d=40", "n=200 d=8 float64"))
def correlation_matrix(lib, x):
    return lib.numpy.corrcoef(x, rowvar=False)


@program("n d", rows=("n=20001 d=8", "n=301 d=3 float64"))
def median_absolute_deviation(lib, x):
    middle = lib.numpy.median(x, axis=0)
    return lib.numpy.median(lib.numpy.abs(x - middle), axis=0)


@program("n", rows=("n=100000", "n=1000 float64"))
def quantiles(lib, x):
    return lib.numpy.quantile(x, lib.numpy.asarray([0.05, 0.25, 0.5, 0.75, 0.95], dtype=x.dtype))


@program("n d", "n: normal", rows=("n=4000 d=16", "n=200 d=4 float64"), tolerance=10)
def least_squares(lib, x, y):
    return lib.numpy.linalg.solve(x.T @ x + 1e-3 * lib.numpy.eye(x.shape[1], dtype=x.dtype), x.T @ y)


@program("n d", "n: binary", "d", rows=("n=4000 d=32", "n=128 d=8 float64"))
def logistic_regression_gradient(lib, x, y, w):
    loss = lambda w: (lib.nn.softplus(x @ w) - y * (x @ w)).mean()
    return lib.grad(loss)(w)


@program("n d", "n: counts", "d: small", rows=("n=1000 d=16", "n=100 d=4 float64"), tolerance=10)
def poisson_regression_newton(lib, x, y, w):
    loss = lambda w: (lib.numpy.exp(x @ w) - y * (x @ w)).mean() + 0.1 * (w**2).sum()
    step = lambda i, w: w - lib.numpy.linalg.solve(lib.hessian(loss)(w), lib.grad(loss)(w))
    return lib.lax.fori_loop(0, 5, step, w)


@program("n", "b n: below n", rows=("n=1000 b=200", "n=64 b=32 float64"))
def bootstrap_mean(lib, x, index):
    means = x[index].mean(axis=1)
    return means.mean(), means.std()


@program("n", "n", rows=("n=50000", "n=300 float64"))
def rank_correlation(lib, x, y):
    np = lib.numpy
    rank = lambda v: np.argsort(np.argsort(v)) / v.shape[0]
    a, b = rank(x), rank(y)
    return ((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std())


@program("m", "n", rows=("m=200 n=2000", "m=32 n=100 float64"))
def kernel_density(lib, points, x):
    z = (points[:, None] - x[None, :]) / 0.3
    return lib.numpy.exp(-0.5 * z * z).mean(axis=1) / 0.3


@program("n: positive", "n: positive", rows=("n=100000", "n=256 float64"))
def gamma_log_likelihood(lib, x, a):
    special = lib.scipy.special
    return ((a - 1) * lib.numpy.log(x) - x - special.gammaln(a)).sum()


@program("n: positive", "n: unit", rows=("n=50000", "n=500 float64"), tolerance=10)
def gammaln_digamma(lib, x, u):
    special = lib.scipy.special
    return special.gammaln(x) + special.digamma(x) * u


@program("n: positive", "n: unit", rows=("n=100000", "n=500 float64"), tolerance=10)
def bessel_and_erfinv(lib, x, u):
    special = lib.scipy.special
    return special.i0e(x) + special.erfinv(2 * u - 1)


@program("n", rows=("n=50000", "n=400 float64"))
def histogram_entropy(lib, x):
    np = lib.numpy
    counts = np.histogram(x, bins=64, range=(-4.0, 4.0))[0]
    p = counts / counts.sum()
    return -(p * np.log(p + 1e-12)).sum()


@program("n", "n: below 100", rows=("n=100000", "n=1000 float64"))
def group_means(lib, x, group):
    sums = lib.numpy.zeros(100, x.dtype).at[group].add(x)
    counts = lib.numpy.zeros(100, x.dtype).at[group].add(1)
    return sums / lib.numpy.maximum(counts, 1)


@program("n d", rows=("n=10000 d=32", "n=100 d=8 float64"))
def running_moments(lib, x):
    def step(state, row):
        count, mean, m2 = state
        delta = row - mean
        mean = mean + delta / (count + 1)
        return (count + 1, mean, m2 + delta * (row - mean)), None

    zero = lib.numpy.zeros(x.shape[1], x.dtype)
    (count, mean, m2), _ = lib.lax.scan(step, (lib.numpy.zeros((), x.dtype), zero, zero), x)
    return mean, m2 / count


@program("n", "m", rows=("n=2000 m=1000", "n=50 m=40 float64"))
def energy_distance(lib, x, y):
    np = lib.numpy
    gap = lambda a, b: np.abs(a[:, None] - b[None, :]).mean()
    return 2 * gap(x, y) - gap(x, x) - gap(y, y)


@program("n: positive", "n: unit", rows=("n=2000", "n=12 float64"), tolerance=100)
def incomplete_functions(lib, a, x):
    special = lib.scipy.special
    return special.betainc(a, 2 * a, x), special.gammainc(a, 8 * x), special.gammaincc(a, 8 * x)


@program("n: normal", "m: below n", "m: below n", "m: binary", rows=("n=100 m=2000", "n=12 m=12 float64"), tolerance=10)
def ratings_of_games(lib, start, first, second, won):
    def game(ratings, row):
        i, j, result = row
        change = 0.1 * (result - 1 / (1 + 10 ** (ratings[j] - ratings[i])))
        return ratings.at[i].add(change).at[j].add(-change), None

    return lib.lax.scan(game, start, (first, second, won))[0]


@program("m: normal", "n: normal", rows=("m=200 n=1000", "m=12 n=60 float64"))
def narrow_kernel_density(lib, x, points):
    np = lib.numpy
    far = (x[:, None] * 3 - points) / 0.2
    return np.exp(-0.5 * far * far).mean(axis=1) / (0.2 * 2.5066)


@program("d k: small", "n d", "n: below k", rows=("n=500 d=10 k=4", "n=40 d=3 k=3 float64"), tolerance=20)
def softmax_regression_newton(lib, w, x, y):
    np = lib.numpy

    def loss(flat):
        logp = lib.nn.log_softmax(x @ flat.reshape(w.shape))
        return 0.01 * (flat * flat).sum() - np.take_along_axis(logp, y[:, None], 1).mean()

    flat = w.reshape(-1)
    return flat - np.linalg.solve(lib.hessian(loss)(flat), lib.grad(loss)(flat))
