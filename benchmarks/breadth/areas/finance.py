"""Prices of options, portfolios, risk, time series of returns."""

from benchmarks.breadth.program import program


def _black_scholes(lib, s, k, t, v):
    np = lib.numpy
    d1 = (np.log(s / k) + (0.02 + v * v / 2) * t) / (v * np.sqrt(t))
    cdf = lib.scipy.special.ndtr
    return s * cdf(d1) - k * np.exp(-0.02 * t) * cdf(d1 - v * np.sqrt(t))


_OPTIONS = ("n: positive", "n: positive", "n: positive", "n: unit")


@program(*_OPTIONS, rows=("n=100000", "n=200 float64"), tolerance=10)
def black_scholes(lib, s, k, t, v):
    return _black_scholes(lib, s, k, t, 0.1 + v)


@program(*_OPTIONS, rows=("n=20000", "n=100 float64"), tolerance=10)
def greeks(lib, s, k, t, v):
    price = lambda s, v, t: _black_scholes(lib, s, k, t, 0.1 + v).sum()
    return lib.grad(price, (0, 1, 2))(s, v, t)


@program("n: positive", "n: positive", rows=("n=2000", "n=50 float64"), tolerance=50)
def implied_volatility(lib, s, k):
    t = 1.0
    price = _black_scholes(lib, s, k, t, 0.4)

    def solve(s, k, price):
        f = lambda v: _black_scholes(lib, s, k, t, v) - price
        step = lambda i, v: lib.numpy.clip(v - f(v) / (lib.grad(f)(v) + 1e-2), 0.05, 2.0)
        return lib.lax.fori_loop(0, 10, step, 0.3 + 0 * s)

    return lib.vmap(solve)(s, k, price)


@program("p t", rows=("p=2000 t=50", "p=100 t=12 float64"), tolerance=10)
def asian_option_paths(lib, z):
    np = lib.numpy
    paths = np.exp(np.cumsum(0.02 * z - 0.0002, axis=1))
    return np.maximum(paths.mean(axis=1) - 1.0, 0.0).mean()


@program("p: positive", ": below 99", rows=("p=5000", "p=100 float64"), tolerance=10)
def monte_carlo_in_a_scan(lib, start, seed):
    def step(s, key):
        z = lib.random.normal(key, s.shape, s.dtype)
        return s * lib.numpy.exp(0.02 * z - 0.0002), None

    s, _ = lib.lax.scan(step, start, lib.random.split(lib.random.key(seed), 30))
    return lib.numpy.maximum(s - 1.0, 0.0).mean()


@program("n: positive", rows=("n=200", "n=20 float64"), tolerance=10)
def binomial_tree(lib, strikes):
    np = lib.numpy
    steps = 64
    up = np.arange(steps + 1, dtype=strikes.dtype)

    def price(k):
        leaf = np.maximum(np.exp(0.05 * (2 * up - steps)) - k, 0.0)
        roll = lambda i, v: 0.999 * (0.49 * np.concatenate([v[1:], v[-1:]]) + 0.51 * v)
        return lib.lax.fori_loop(0, steps, roll, leaf)[0]

    return lib.vmap(price)(strikes)


@program("t n", rows=("t=1000 n=100", "t=60 n=8 float64"), tolerance=50)
def minimum_variance_portfolio(lib, returns):
    np = lib.numpy
    c = np.cov(returns, rowvar=False) + 0.1 * np.eye(returns.shape[1], dtype=returns.dtype)
    w = np.linalg.solve(c, np.ones(returns.shape[1], returns.dtype))
    return w / w.sum()


@program("t n", "n: stochastic", rows=("t=5000 n=50", "t=200 n=8 float64"))
def value_at_risk(lib, returns, w):
    losses = -(returns @ w)
    worst = lib.numpy.sort(losses)[-(losses.shape[0] // 20 + 1) :]
    return worst[0], worst.mean()


@program("t n: small", rows=("t=2000 n=32", "t=50 n=4 float64"))
def ewma_volatility(lib, r):
    def step(v, r):
        v = 0.94 * v + 0.06 * r * r
        return v, lib.numpy.sqrt(v)

    return lib.lax.scan(step, r[0] ** 2, r)[1]


@program("t: small", "3: unit", rows=("t=1000", "t=50 float64"), tolerance=50)
def garch_gradient(lib, r, w):
    def loss(w):
        def step(v, r):
            v = 0.01 + 0.1 * w[0] + 0.3 * w[1] * r * r + 0.5 * w[2] * v
            return v, lib.numpy.log(v) + r * r / v

        return lib.lax.scan(step, lib.numpy.var(r), r)[1].mean()

    return lib.grad(loss)(w)


@program("t: small", rows=("t=20000", "t=100 float64"))
def maximum_drawdown(lib, r):
    wealth = lib.numpy.cumsum(r)
    return (lib.lax.cummax(wealth) - wealth).max()


@program("n t: positive", "t: unit", rows=("n=5000 t=40", "n=50 t=10 float64"))
def present_value(lib, cash, rates):
    return cash @ lib.numpy.cumprod(1.0 / (1.0 + 0.05 * rates))


@program("n t: positive", rows=("n=500 t=24", "n=20 t=6 float64"), tolerance=10)
def internal_rate_of_return(lib, cash):
    t = lib.numpy.arange(1, cash.shape[1] + 1, dtype=cash.dtype)

    def rate(c):
        f = lambda r: (c * lib.numpy.exp(-r * t)).sum() - c.shape[0] / 2

        def step(state):
            low, high, i = state
            middle = (low + high) / 2
            return lib.numpy.where(f(middle) > 0, middle, low), lib.numpy.where(f(middle) > 0, high, middle), i + 1

        zero = 0 * c[0]
        return lib.lax.while_loop(lambda s: s[2] < 20, step, (zero, zero + 1, 0))[0]

    return lib.vmap(rate)(cash)


@program("t: positive", rows=("t=50000", "t=500 float64"))
def log_returns_and_sharpe(lib, price):
    r = lib.numpy.diff(lib.numpy.log(price))
    return (r.mean() - 0.02) / r.std() * 15.87


@program("p t", rows=("p=1000 t=20", "p=50 t=6 float64"), tolerance=100)
def american_put_regression(lib, z):
    np = lib.numpy
    s = np.exp(np.cumsum(0.05 * z, axis=1)).T
    pay = np.maximum(1.0 - s, 0.0)

    def back(value, row):
        s, pay = row
        basis = np.stack([np.ones_like(s), s, s * s], axis=1)
        gram = basis.T @ basis + 0.1 * np.eye(3, dtype=s.dtype)
        held = basis @ np.linalg.solve(gram, basis.T @ value)
        return np.where(pay > held, pay, 0.99 * value), None

    return lib.lax.scan(back, pay[-1], (s[:-1], pay[:-1]), reverse=True)[0].mean()


@program("n", "n: below 4", rows=("n=2000", "n=40 float64"))
def payoffs_by_switch(lib, s, kind):
    np = lib.numpy
    kinds = [
        lambda s: np.maximum(s - 1, 0),
        lambda s: np.maximum(1 - s, 0),
        lambda s: np.where(s > 1, np.ones_like(s), np.zeros_like(s)),
        lambda s: np.abs(s - 1),
    ]
    return lib.vmap(lambda k, s: lib.lax.switch(k, kinds, s))(kind, s)
