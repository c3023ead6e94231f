"""Products, factorizations, iterative methods, matrix functions."""

from benchmarks.breadth.program import program


@program("n n", "n n", rows=("n=256", "n=64 float64", "n=256 bfloat16"))
def product(lib, a, b):
    return a @ b


@program("b n n", "b n n", rows=("b=500 n=16", "b=64 n=4 float64"))
def batched_small_products(lib, a, b):
    return a @ b


@program("n n: spd", "n", rows=("n=200", "n=32 float64"), tolerance=10)
def cholesky_solve(lib, a, b):
    factor = lib.numpy.linalg.cholesky(a)
    y = lib.scipy.linalg.solve_triangular(factor, b, lower=True)
    return lib.scipy.linalg.solve_triangular(factor.T, y, lower=False)


@program("n n: spd", rows=("n=200", "n=32 float64"), tolerance=10)
def log_determinant(lib, a):
    return lib.numpy.linalg.slogdet(a)[1]


@program("b n n: spd", "b n 1", rows=("b=300 n=8", "b=50 n=3 float64"), tolerance=10)
def batched_solves(lib, a, b):
    return lib.numpy.linalg.solve(a, b)


@program("n n: spd", rows=("n=100", "n=24 float64"), tolerance=10)
def inverse(lib, a):
    return lib.numpy.linalg.inv(a)


@program("n n: spd", rows=("n=100", "n=24 float64"), tolerance=10)
def eigenvalues(lib, a):
    return lib.numpy.linalg.eigvalsh(a)


@program("n n: spd", rows=("n=40", "n=12 float64"), tolerance=20)
def matrix_square_root(lib, a):
    return lib.scipy.linalg.sqrtm(a).real


@program("n n: spd", "m m: spd", "n m", rows=("n=30 m=20", "n=8 m=6 float64"), tolerance=20)
def sylvester_equation(lib, a, b, c):
    return lib.scipy.linalg.solve_sylvester(a, b, c)


@program("n d", rows=("n=400 d=40", "n=50 d=10 float64"), tolerance=10)
def singular_values(lib, a):
    return lib.numpy.linalg.svd(a, compute_uv=False)


@program("n d", rows=("n=400 d=40", "n=50 d=10 float64"), tolerance=10)
def projection_by_qr(lib, a):
    q, _ = lib.numpy.linalg.qr(a)
    return q @ (q.T @ a)


@program("n n: spd", "n", rows=("n=300", "n=40 float64"), tolerance=10)
def conjugate_gradients(lib, a, b):
    def step(i, state):
        x, r, p, rs = state
        ap = a @ p
        alpha = rs / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        return x, r, r + new / (rs + 1e-30) * p, new

    start = (lib.numpy.zeros_like(b), b, b, b @ b)
    return lib.lax.fori_loop(0, 10, step, start)[0]


@program("n n: spd", "n", rows=("n=300", "n=40 float64"), tolerance=10)
def power_iteration(lib, a, v):
    def step(v, _):
        v = a @ v
        return v / lib.numpy.linalg.norm(v), None

    v, _ = lib.lax.scan(step, v, None, length=30)
    return v @ a @ v


@program("n n: spd", "n", rows=("n=200", "n=20 float64"), tolerance=10)
def jacobi_until_converged(lib, a, b):
    a = a + a.shape[0] * lib.numpy.eye(a.shape[0], dtype=a.dtype)
    d = lib.numpy.diagonal(a)
    going = lambda state: (lib.numpy.abs(b - a @ state[0]).max() > 1e-4) & (state[1] < 100)
    step = lambda state: (state[0] + (b - a @ state[0]) / d, state[1] + 1)
    return lib.lax.while_loop(going, step, (lib.numpy.zeros_like(b), 0))[0]


@program("n n: small", rows=("n=48", "n=8 float64"), tolerance=10)
def matrix_exponential(lib, a):
    return lib.scipy.linalg.expm(a)


@program("i j", "j k", "k l", "l", rows=("i=100 j=200 k=100 l=50", "i=8 j=9 k=10 l=11 float64"))
def einsum_chain(lib, a, b, c, d):
    return lib.numpy.einsum("ij,jk,kl,l->i", a, b, c, d)


@program("m m", "n n", "m n", rows=("m=64 n=48", "m=8 n=6 float64"))
def kronecker_apply(lib, a, b, x):
    return (a @ x @ b.T).ravel()


@program("n n: spd", rows=("n=64", "n=12 float64"), tolerance=20)
def gradient_of_log_determinant(lib, a):
    return lib.grad(lambda a: lib.numpy.linalg.slogdet(a)[1])(a)


@program("n n: spd", rows=("n=64", "n=12 float64"), tolerance=20)
def newton_schulz(lib, a):
    eye = lib.numpy.eye(a.shape[0], dtype=a.dtype)
    step = lambda i, x: x @ (2 * eye - a @ x)
    return lib.lax.fori_loop(0, 8, step, a / (a * a).sum())


@program("n: positive", "n", "n", rows=("n=2000", "n=50 float64"))
def thomas_tridiagonal(lib, d, u, b):
    d, u = d + 3, u / 4

    def down(state, row):
        up, rhs = state
        d, u, b = row
        w = d - u * up
        return (u / w, (b - u * rhs) / w), (u / w, (b - u * rhs) / w)

    zero = lib.numpy.zeros((), d.dtype)
    _, (up, rhs) = lib.lax.scan(down, (zero, zero), (d, u, b))
    back = lambda x, row: (row[1] - row[0] * x,) * 2
    return lib.lax.scan(back, zero, (up, rhs), reverse=True)[1]


@program("n k", rows=("n=300 k=40", "n=12 k=4 float64"), tolerance=50)
def pseudo_inverse(lib, a):
    return lib.numpy.linalg.pinv(a)


@program("b 3 3", rows=("b=2000", "b=12 float64"), tolerance=50)
def rotations_nearest(lib, a):
    u, _, vt = lib.numpy.linalg.svd(a)
    return u @ vt


@program("n k", rows=("n=2000 k=50", "n=12 k=3 float64"), tolerance=100)
def tall_least_squares(lib, a):
    q, r = lib.numpy.linalg.qr(a)
    return lib.numpy.abs(lib.numpy.diag(r)), (q @ (q.T @ a))
