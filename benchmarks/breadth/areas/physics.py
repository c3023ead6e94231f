"""Particles, fields, ordinary and partial differential equations."""

from benchmarks.breadth.program import program


def _lorenz(lib, s):
    x, y, z = s[0], s[1], s[2]
    return lib.numpy.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


def _rk4(f, s, h):
    a = f(s)
    b = f(s + h / 2 * a)
    c = f(s + h / 2 * b)
    return s + h / 6 * (a + 2 * b + 2 * c + f(s + h * c))


@program("n: positive", "n: small", rows=("n=20000", "n=300 float64"), tolerance=20)
def fresnel_reflection(lib, angle, absorption):
    np = lib.numpy
    index = 1.5 + 1j * abs(absorption)
    across, along = np.cos(angle * 0.7), np.sin(angle * 0.7)
    inside = np.sqrt(1 - (along / index) ** 2)
    s = (across - index * inside) / (across + index * inside)
    p = (index * across - inside) / (index * across + inside)
    return abs(s) ** 2, abs(p) ** 2


@program("3", rows=("n=1", "n=1 float64"), tolerance=100)
def lorenz_scan(lib, s):
    def step(s, _):
        s = _rk4(lambda s: _lorenz(lib, s), s, 0.005)
        return s, s

    return lib.lax.scan(step, s, None, length=400)[1]


@program("b 3", rows=("b=256", "b=16 float64"), tolerance=100)
def lorenz_ensemble(lib, starts):
    def run(s):
        step = lambda s, _: (_rk4(lambda s: _lorenz(lib, s), s, 0.005), None)
        return lib.lax.scan(step, s, None, length=200)[0]

    return lib.vmap(run)(starts)


def _accelerations(lib, x, m):
    d = x[None, :, :] - x[:, None, :]
    r2 = (d * d).sum(-1) + 0.1
    return (m[None, :, None] * d / (r2 * lib.numpy.sqrt(r2))[:, :, None]).sum(axis=1)


@program("n 3", "n: positive", rows=("n=256", "n=32 float64"))
def n_body_accelerations(lib, x, m):
    return _accelerations(lib, x, m)


@program("n 3", "n 3: small", "n: positive", rows=("n=64", "n=12 float64"))
def n_body_leapfrog(lib, x, v, m):
    def step(i, state):
        x, v = state
        v = v + 0.005 * _accelerations(lib, x, m)
        x = x + 0.01 * v
        return x, v + 0.005 * _accelerations(lib, x, m)

    return lib.lax.fori_loop(0, 10, step, (x, v))


@program("n 3", "n: positive", rows=("n=128", "n=20 float64"))
def n_body_energy_gradient(lib, x, m):
    def energy(x):
        d = x[None, :, :] - x[:, None, :]
        return -(m[:, None] * m[None, :] / lib.numpy.sqrt((d * d).sum(-1) + 0.1)).sum() / 2

    return lib.grad(energy)(x)


@program("n 3", rows=("n=200", "n=20 float64"))
def lennard_jones(lib, x):
    d = x[:, None] - x[None]
    r2 = (d * d).sum(-1) + 1.0
    inverse = 1.0 / r2**3
    return (4 * (inverse * inverse - inverse)).sum() / 2


@program("h w", rows=("h=128 w=128", "h=24 w=24 float64"))
def heat_equation(lib, u):
    np = lib.numpy

    def step(i, u):
        return u + 0.2 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)

    return lib.lax.fori_loop(0, 50, step, u)


@program("h w", rows=("h=256 w=256", "h=32 w=32 float64"))
def laplacian(lib, u):
    return u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[1:-1, 1:-1]


@program("n", "n: small", rows=("n=1000", "n=100 float64"))
def wave_equation(lib, u, v):
    def step(state, _):
        u, v = state
        a = lib.numpy.concatenate([u[1:], u[:1]]) + lib.numpy.concatenate([u[-1:], u[:-1]]) - 2 * u
        v = v + 0.1 * a
        return (u + 0.1 * v, v), (u * u).sum()

    return lib.lax.scan(step, (u, v), None, length=100)


@program("h w", rows=("h=128 w=128", "h=16 w=16 float64"))
def poisson_by_fft(lib, f):
    np = lib.numpy
    kx, ky = np.fft.fftfreq(f.shape[0]), np.fft.fftfreq(f.shape[1])
    k2 = (kx[:, None] ** 2 + ky[None, :] ** 2).astype(f.dtype)
    hat = np.fft.fft2(f) / np.where(k2 == 0, 1.0, -39.478 * k2)
    return np.real(np.fft.ifft2(hat))


@program("h w", rows=("h=64 w=64", "h=16 w=16 float64"), tolerance=100)
def mandelbrot_while(lib, noise):
    np = lib.numpy
    h, w = noise.shape
    c_re = np.linspace(-2.0, 0.6, w, dtype=noise.dtype)[None, :] + 0 * noise
    c_im = np.linspace(-1.2, 1.2, h, dtype=noise.dtype)[:, None] + 0 * noise

    def escape(a, b):
        going = lambda s: (s[0] * s[0] + s[1] * s[1] < 4.0) & (s[2] < 100)
        step = lambda s: (s[0] * s[0] - s[1] * s[1] + a, 2 * s[0] * s[1] + b, s[2] + 1)
        return lib.lax.while_loop(going, step, (0 * a, 0 * a, 0))[2]

    counts = lib.vmap(lib.vmap(escape))(c_re, c_im)
    return counts.sum(axis=1) / 100  # single points near the edge depend on the last bit


@program("h w: binary", rows=("h=128 w=128", "h=16 w=16"))
def game_of_life(lib, x):
    np = lib.numpy

    def step(i, x):
        n = sum(np.roll(np.roll(x, a, 0), b, 1) for a in (-1, 0, 1) for b in (-1, 0, 1)) - x
        return np.where((n == 3) | ((n == 2) & (x == 1)), 1.0, 0.0).astype(x.dtype)

    return lib.lax.fori_loop(0, 20, step, x)


@program("b", "b: small", rows=("b=1000", "b=32 float64"), tolerance=10)
def pendulum_period(lib, angle, speed):
    def run(q, p):
        step = lambda i, s: (s[0] + 0.01 * s[1], s[1] - 0.01 * lib.numpy.sin(s[0] + 0.01 * s[1]))
        return lib.lax.fori_loop(0, 100, step, (q, p))

    return lib.vmap(run)(angle, speed)


@program("n", "n: small", rows=("n=64", "n=8 float64"))
def hamiltonian_flow(lib, q, p):
    energy = lambda q, p: (p * p).sum() / 2 + (1 - lib.numpy.cos(q[1:] - q[:-1])).sum()

    def step(state, _):
        q, p = state
        p = p - 0.05 * lib.grad(energy, 0)(q, p)
        return (q + 0.05 * lib.grad(energy, 1)(q, p), p), None

    return lib.lax.scan(step, (q, p), None, length=50)[0]


@program("n 3", "n 3", rows=("n=50000", "n=300 float64"))
def rotate_and_cross(lib, x, axis):
    axis = axis / lib.numpy.linalg.norm(axis, axis=-1, keepdims=True)
    c, s = 0.8, 0.6
    return c * x + s * lib.numpy.cross(axis, x) + (1 - c) * axis * (axis * x).sum(-1, keepdims=True)


@program("h w: binary", "h w: unit", rows=("h=64 w=64", "h=12 w=12 float64"))
def ising_checkerboard(lib, bits, u):
    np = lib.numpy
    black = (np.arange(bits.shape[0])[:, None] + np.arange(bits.shape[1])[None, :]) % 2

    def sweep(s, colour):
        field = np.roll(s, 1, 0) + np.roll(s, -1, 0) + np.roll(s, 1, 1) + np.roll(s, -1, 1)
        flip = (u < np.exp(-0.8 * s * field)) & (black == colour)
        return np.where(flip, -s, s), s.mean()

    return lib.lax.scan(sweep, 2 * bits - 1, np.arange(40) % 2)


@program("h w", "h w", rows=("h=128 w=128", "h=12 w=12 float64"), tolerance=20)
def electromagnetic_waves(lib, e, h):
    roll = lib.numpy.roll

    def step(_, state):
        e, hx, hy = state
        hx, hy = hx - 0.5 * (roll(e, -1, 1) - e), hy + 0.5 * (roll(e, -1, 0) - e)
        return e + 0.5 * (hy - roll(hy, 1, 0) - hx + roll(hx, 1, 1)), hx, hy

    return lib.lax.fori_loop(0, 50, step, (e, h, h))[0]


@program("4: small", rows=("", "float64"), tolerance=100)
def double_pendulum(lib, start):
    np = lib.numpy

    def slopes(s):
        a, b, p, q = s
        c = np.cos(a - b)
        over = 16 - 9 * c * c
        da, db = 6 * (2 * p - 3 * c * q) / over, 6 * (8 * q - 3 * c * p) / over
        turn = da * db * np.sin(a - b)
        return np.stack([da, db, -0.5 * (turn + 29.4 * np.sin(a)), -0.5 * (9.8 * np.sin(b) - turn)])

    step = lambda _, s: s + 0.001 * slopes(s + 0.0005 * slopes(s))
    return lib.lax.fori_loop(0, 1000, step, start)


@program("b n 3", "b n 3: small", rows=("b=16 n=10", "b=3 n=4 float64"), tolerance=10)
def planets_of_many_stars(lib, x, v):
    def pull(x):
        d = x[None] - x[:, None]
        return (d / ((d * d).sum(-1) + 0.1)[..., None] ** 1.5).sum(1)

    def run(x, v):
        def step(_, state):
            x, v = state
            v = v + 0.01 * pull(x)
            return x + 0.01 * v, v

        return lib.lax.fori_loop(0, 50, step, (x, v))

    return lib.vmap(run)(x, v)
