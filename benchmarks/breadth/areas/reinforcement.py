"""Returns and advantages, tabular methods, policies, environments in loops."""

from benchmarks.breadth.program import program


@program("t b", rows=("t=500 b=32", "t=30 b=4 float64"))
def discounted_returns(lib, rewards):
    def step(total, r):
        total = r + 0.99 * total
        return total, total

    return lib.lax.scan(step, lib.numpy.zeros(rewards.shape[1], rewards.dtype), rewards, reverse=True)[1]


@program("t b", "t b", "t b: binary", rows=("t=256 b=64", "t=20 b=4 float64"))
def generalized_advantage(lib, rewards, values, done):
    def step(state, row):
        advantage, next_value = state
        r, v, d = row
        delta = r + 0.99 * next_value * (1 - d) - v
        advantage = delta + 0.9405 * (1 - d) * advantage
        return (advantage, v), advantage

    zero = lib.numpy.zeros_like(values[0])
    return lib.lax.scan(step, (zero, values[-1]), (rewards, values, done), reverse=True)[1]


@program("s a s: stochastic", "s a", rows=("s=64 a=4", "s=12 a=3 float64"))
def value_iteration(lib, p, r):
    step = lambda i, v: (r + 0.9 * (p @ v)).max(axis=1)
    return lib.lax.fori_loop(0, 50, step, lib.numpy.zeros(p.shape[0], p.dtype))


@program("s a s: stochastic", "s a", rows=("s=64 a=4", "s=12 a=3 float64"), tolerance=10)
def value_iteration_until_converged(lib, p, r):
    def step(state):
        v, _ = state
        new = (r + 0.9 * (p @ v)).max(axis=1)
        return new, lib.numpy.abs(new - v).max()

    start = (lib.numpy.zeros(p.shape[0], p.dtype), lib.numpy.asarray(1.0, p.dtype))
    return lib.lax.while_loop(lambda s: s[1] > 1e-3, step, start)[0]


@program("s s: stochastic", "s", rows=("s=128", "s=12 float64"), tolerance=10)
def policy_evaluation(lib, p, r):
    return lib.numpy.linalg.solve(lib.numpy.eye(p.shape[0], dtype=p.dtype) - 0.9 * p, r)


@program("t: below 48", "t: below 4", "t", "t: below 48", rows=("t=2000", "t=50 float64"))
def q_learning(lib, s, a, r, then):
    def step(q, row):
        s, a, r, then = row
        error = r + 0.9 * q[then].max() - q[s, a]
        return q.at[s, a].add(0.1 * error), error

    return lib.lax.scan(step, lib.numpy.zeros((48, 4), r.dtype), (s, a, r, then))


@program("b d", "d h: small", "h a: small", "b: below a", "b", rows=("b=256 d=16 h=64 a=4", "b=12 d=4 h=8 a=3 float64"))
def policy_gradient(lib, x, w, u, action, advantage):
    def loss(weights):
        w, u = weights
        logp = lib.nn.log_softmax(lib.numpy.tanh(x @ w) @ u)
        return -(lib.numpy.take_along_axis(logp, action[:, None], axis=1)[:, 0] * advantage).mean()

    return lib.grad(loss)((w, u))


@program("b", "b", "b", rows=("b=10000", "b=64 float64"))
def clipped_objective(lib, new, old, advantage):
    ratio = lib.numpy.exp(0.1 * (new - old))
    clipped = lib.numpy.clip(ratio, 0.8, 1.2)
    return -lib.numpy.minimum(ratio * advantage, clipped * advantage).mean()


def _cart_pole(lib, state, push):
    x, dx, a, da = state
    force = 10.0 * push
    s, c = lib.numpy.sin(a), lib.numpy.cos(a)
    temp = (force + 0.05 * da * da * s) / 1.1
    dda = (9.8 * s - c * temp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
    ddx = temp - 0.05 * dda * c / 1.1
    return x + 0.02 * dx, dx + 0.02 * ddx, a + 0.02 * da, da + 0.02 * dda


@program("b 4: small", "4: small", rows=("b=512", "b=16 float64"), tolerance=100)
def cart_pole_rollouts(lib, start, w):
    def run(state):
        def step(state, _):
            push = lib.numpy.tanh(sum(w[i] * state[i] for i in range(4)))
            state = _cart_pole(lib, state, push)
            return state, state[2]

        return lib.lax.scan(step, tuple(state[i] for i in range(4)), None, length=50)[1]

    return lib.vmap(run)(start)


@program("4: small", "4: small", rows=("n=1", "n=1 float64"), tolerance=100)
def cart_pole_policy_search(lib, start, w):
    def cost(w):
        def step(state, _):
            push = lib.numpy.tanh(sum(w[i] * state[i] for i in range(4)))
            state = _cart_pole(lib, state, push)
            return state, state[2] ** 2 + 0.1 * state[0] ** 2

        return lib.lax.scan(step, tuple(start[i] for i in range(4)), None, length=50)[1].sum()

    return lib.grad(cost)(w)


@program("k: unit", ": below 99", rows=("k=10", "k=10 float64"))
def bandit_upper_confidence(lib, means, seed):
    np = lib.numpy

    def step(state, key):
        counts, sums, t = state
        arm = np.argmax(sums / counts + np.sqrt(2 * np.log(t) / counts))
        reward = (lib.random.uniform(key) < means[arm]).astype(means.dtype)
        return (counts.at[arm].add(1), sums.at[arm].add(reward), t + 1), arm

    start = (np.ones_like(means), means, np.asarray(10.0, means.dtype))
    return lib.lax.scan(step, start, lib.random.split(lib.random.key(seed), 300))[1]


@program("b a", rows=("b=5000 a=16", "b=32 a=4 float64"))
def softmax_policy_entropy(lib, logits):
    logp = lib.nn.log_softmax(logits, -1)
    return -(lib.numpy.exp(logp) * logp).sum(axis=-1).mean()


@program("b a", ": below 99", rows=("b=5000 a=8", "b=32 a=4"))
def sample_actions(lib, logits, seed):
    return lib.random.categorical(lib.random.key(seed), logits)


@program("n d", "n: counts", "b: unit", rows=("n=10000 d=8 b=256", "n=64 d=4 b=12 float64"))
def prioritized_replay(lib, memory, priority, u):
    cdf = lib.numpy.cumsum(priority)
    index = lib.numpy.searchsorted(cdf, u * cdf[-1])
    index = lib.numpy.clip(index, 0, priority.shape[0] - 1)
    return memory[index], priority[index] / cdf[-1]


@program("h w: unit", rows=("h=24 w=24", "h=12 w=12 float64"))
def grid_world_shortest_path(lib, cost):
    np = lib.numpy
    start = np.full(cost.shape, 1e6, cost.dtype).at[0, 0].set(0.0)

    def step(i, d):
        padded = np.pad(d, 1, constant_values=1e6)
        best = np.minimum(
            np.minimum(padded[:-2, 1:-1], padded[2:, 1:-1]), np.minimum(padded[1:-1, :-2], padded[1:-1, 2:])
        )
        return np.minimum(d, best + cost)

    return lib.lax.fori_loop(0, 48, step, start)
