"""Linear algebra, against JAX."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

R = np.random.RandomState(0)


def rand(*shape):
    return jnp.array(R.randn(*shape).astype(np.float32))


A, T, M = rand(3, 3), rand(2, 4, 4), rand(4, 3)
S = A @ A.T + 3 * jnp.eye(3)
V = rand(3)
Z = (rand(3, 3) + 1j * rand(3, 3)).astype("complex64")

CASES = {
    "inv": (lambda m, x: m.linalg.inv(x), T),
    "det": (lambda m, x: [m.linalg.det(x), m.linalg.det(x[:, :3, :3]), m.linalg.det(x[:, :2, :2])], T),
    "slogdet": (lambda m, x: m.linalg.slogdet(x), T),
    "cholesky": (lambda m, x: [m.linalg.cholesky(x), m.linalg.cholesky(x, upper=True)], S),
    "solve": (lambda m, x: [m.linalg.solve(x, x[0, :, 0]), m.linalg.solve(x, x[:, :, :2])], T),
    "eigvalsh": (lambda m, x: m.linalg.eigvalsh(x), S),
    "svdvals": (lambda m, x: m.linalg.svdvals(x), M),
    "pinv": (lambda m, x: m.linalg.pinv(x), M),
    "lstsq": (lambda m, x: m.linalg.lstsq(x, x[:, 0])[:2], M),
    "matrix_power": (lambda m, x: [m.linalg.matrix_power(x, k) for k in (0, 1, 3, -2)], A),
    "multi_dot": (lambda m, x: m.linalg.multi_dot([x, x.T, x]), M),
    "norm": (
        lambda m, x: [m.linalg.norm(x), m.linalg.norm(x, axis=1), m.linalg.norm(x, axis=(1, 2), keepdims=True)],
        T,
    ),
    "norms": (lambda m, x: [m.linalg.norm(x, k) for k in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)], A),
    "vector norms": (lambda m, x: [m.linalg.norm(x, k) for k in (1, 2, 3, np.inf, -np.inf, 0.5)], V),
    "vector_norm": (lambda m, x: [m.linalg.vector_norm(x, ord=3), m.linalg.matrix_norm(x)], A),
    "cond": (lambda m, x: [m.linalg.cond(x), m.linalg.cond(x, 1), m.linalg.cond(x, -2)], A),
    "cross": (lambda m, x: m.linalg.cross(x, x[::-1]), A),
    "trace": (lambda m, x: [m.linalg.trace(x), m.linalg.diagonal(x, offset=1)], T),
    "tensorinv": (lambda m, x: m.linalg.tensorinv(x.reshape(4, 2, 2), 1), T[0]),
    "tensorsolve": (lambda m, x: m.linalg.tensorsolve(x.reshape(2, 2, 4), x[:2, :2]), T[0]),
    "polyfit": (lambda m, x: m.polyfit(m.arange(4.0), x[:, 0], 2), M),
}


@pytest.mark.parametrize("name", CASES)
def test_values(check, name):
    call, x = CASES[name]
    check.values(call, x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("lstsq", "polyfit", "cond")])
def test_gradient(check, name):
    call, x = CASES[name]
    check.grad(call, x, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["inv", "cholesky", "pinv", "norm", "matrix_power", "svdvals"])
def test_batched(check, name):
    call, x = CASES[name]
    check.vmap(call, jnp.stack([x, x * 2]), rtol=1e-3, atol=1e-4)


def test_decompositions_multiply_out():
    q, r = jnp.linalg.qr(M)
    np.testing.assert_allclose(q @ r, M, atol=1e-5)
    u, s, vh = jnp.linalg.svd(M, full_matrices=False)
    np.testing.assert_allclose((u * s) @ vh, M, atol=1e-5)
    assert jnp.linalg.svd(M)[0].shape == (4, 4)
    w, v = jnp.linalg.eigh(S)
    np.testing.assert_allclose((v * w) @ v.T, S, atol=1e-4)
    w, v = jnp.linalg.eig(A)
    np.testing.assert_allclose(A @ v, v * w, atol=1e-4)
    u, s, vh = jnp.linalg.svd(A + A.T, hermitian=True)
    np.testing.assert_allclose((u * s) @ vh, A + A.T, atol=1e-4)


def test_qr_modes(check):
    check.values(lambda m, x: m.abs(m.linalg.qr(x, mode="r")), M, rtol=1e-4)
    assert jnp.linalg.qr(M, mode="complete").Q.shape == (4, 4)


def test_complex(check):
    check.values(lambda m, x: [m.linalg.inv(x), m.linalg.det(x), m.linalg.norm(x), *m.linalg.slogdet(x)], Z, rtol=1e-3)


def test_rank(check):
    check.values(lambda m, x: [m.linalg.matrix_rank(x), m.linalg.matrix_rank(x[:, :1] * x[0])], M)


def test_roots(check):
    check.values(
        lambda m: m.sort_complex(m.roots(m.array([1.0, -6.0, 11.0, -6.0, 0.0]))), jit=False, rtol=1e-3, atol=1e-3
    )
    check.values(lambda m, x: m.poly(x), V)


def test_refusals(check):
    check.raises_alike(lambda m: m.linalg.inv(m.ones((2, 3))))
    check.raises_alike(lambda m: m.linalg.solve(m.ones((2, 2)), m.ones(3)))
    check.raises_alike(lambda m: m.linalg.norm(m.ones((2, 2)), "bad"))
    check.raises_alike(lambda m: m.linalg.det(m.ones(3)))


def test_results_keep_what_jaxs_keep():
    half = jnp.array([[2.0, 1.0], [1.0, 3.0]], "float16")
    assert jnp.linalg.det(half).dtype == jnp.linalg.slogdet(half).logabsdet.dtype == jnp.float16
    assert jnp.linalg.qr(jnp.eye(2), "raw").R.shape == (2,)
    x = jnp.array([[3.0, 1.0], [1.0, 2.0]])
    t = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    _, out = nx.jvp(lambda x: jnp.linalg.pinv(x, hermitian=True), (x,), (t,))
    np.testing.assert_allclose(out, -jnp.linalg.inv(x) @ (t + t.T) @ jnp.linalg.inv(x) / 2, rtol=1e-5)
    assert not nx.grad(lambda r: jnp.linalg.pinv(x, r).sum())(0.1).any()
    same = jnp.ones((3, 2))
    assert jnp.linalg.lstsq(same, jnp.ones(3), numpy_resid=True)[1].shape == (0,)
    counts = jnp.array([[-2, 1], [4, 0]], "int8")
    assert jnp.linalg.vector_norm(counts, ord=jnp.inf).dtype == jnp.int8
    assert jnp.linalg.vector_norm(counts, ord=1).dtype == jnp.int32
    assert jnp.linalg.norm(counts, jnp.inf).dtype == jnp.float32


def test_polynomials_of_other_ranks():
    rows = jnp.ones((2, 3))
    np.testing.assert_array_equal(jnp.polyadd(rows, jnp.array([2.0])), [[1, 1, 1], [3, 3, 3]])
    np.testing.assert_array_equal(jnp.polyval(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([10.0, 1.0])), [13, 6])
    assert jnp.poly(jnp.zeros(0)).shape == () and jnp.poly(2.0).tolist() == [1, -2]
    quotient, rest = jnp.polydiv(jnp.array([1.0, 2, 3]), jnp.array([3.0, 1.0]), trim_leading_zeros=True)
    assert quotient.shape == (2,) and rest.shape == (1,)
    assert jnp.interp(jnp.array([0.5]), jnp.array([0.0, 1.0]), jnp.array([0.0, 2j])).tolist() == [1j]
    assert jnp.gradient(jnp.array([1, 2, 5]), 0.5).weak_type


@pytest.mark.parametrize("jit", [False, True])
def test_matrices_that_are_not_finite_have_an_answer(jit):
    """LAPACK's iterations never end on some of them."""
    x = np.array([[0.0, 1e9, 1e9], [np.inf, -np.inf, -1e9], [127.0, 1e9, -128.0]], np.float32)
    for name in ("svd", "svdvals", "pinv", "cond", "eigh", "eigvalsh", "eig", "eigvals"):
        f = getattr(jnp.linalg, name)
        found = (nx.jit(f) if jit else f)(x)
        assert all(np.isnan(np.asarray(y)).all() for y in nx.tree_util.tree_leaves(found)), name
    # Others of a batch are not touched; nor does what is not read matter.
    s = np.asarray(jnp.linalg.svdvals(np.stack([np.eye(3, dtype=np.float32), x])))
    np.testing.assert_array_equal(s, [[1, 1, 1], [np.nan] * 3])
    low = np.array([[2.0, np.inf], [0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(jnp.linalg.eigvalsh(low, UPLO="L", symmetrize_input=False), [1, 2])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_norms_of_nothing(check, shape, dtype):
    x = np.ones(shape, dtype)
    for order in (None, 1, 2, np.inf, "nuc") if len(shape) == 2 else (None, 0, 1, 2, 3, np.inf):
        for keepdims in (False, True):
            check.values(lambda m, v, o=order, k=keepdims: m.linalg.norm(v, o, keepdims=k), x)


@pytest.mark.parametrize("name", ["eigvals", "eigvalsh", "inv", "det", "slogdet", "cholesky", "qr", "svdvals", "pinv"])
def test_derivatives_of_empty_matrices(name):
    def f(x):
        return [y for y in nx.tree.leaves(getattr(jnp.linalg, name)(x)) if jnp.issubdtype(y.dtype, jnp.inexact)]

    for x in (np.ones((0, 0), np.float32), np.ones((2, 0, 0), np.float32)):
        ys, ts = nx.jvp(f, (x,), (x,))
        assert [y.shape for y in ys] == [t.shape for t in ts] == [y.shape for y in nx.jit(f)(x)]
        ct = nx.jit(lambda x: nx.vjp(f, x)[1](f(x)))(x)
        assert ct[0].shape == x.shape


@pytest.mark.parametrize("dtype", ["f4", "c8", "f8"])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)])
def test_derivatives_of_pinv_do_not_depend_on_the_scale(dtype, shape):
    """Third powers of the inverse are within the range of floats if the derivative is."""
    x = np.arange(1, 7, dtype=dtype)[: shape[0] * shape[1]].reshape(shape) ** 2
    slope = nx.jit(nx.grad(lambda x: jnp.linalg.pinv(x).real.sum()))
    with nx.enable_x64(dtype == "f8"):
        wanted = np.asarray(slope(x))
        for exponent in (-55, 55) if dtype != "f8" else (-500, -200, 300, 500):
            scale = np.ldexp(np.ones((), x.real.dtype), exponent)
            found = np.asarray(slope(x * scale)) * scale * scale
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * abs(wanted).max())
        assert not np.asarray(jnp.linalg.pinv(x * 0)).any()


@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize(
    "numbers",
    [
        [50.0] * 40 + [0.02] * 40, [1e30, 1e30, 1e-30, 1e-30], [1e-30, 1e-30, 1e30, 1e30], [1e30, 1e-30, 1e30, 1e-30],
        [1e30, 1e30, 0, 1], [1e30] * 4 + [0], [3.0] * 200, [1e-3] * 300, [0.9] * 700,
    ],
    ids=lambda x: f"{x[:3]}x{len(x)}",
)  # fmt: skip
def test_a_determinant_overflows_only_where_its_value_does(numbers, dtype):
    a = np.diag(np.array(numbers, dtype))
    with np.errstate(over="ignore"):
        wanted = np.prod(np.array(numbers, np.longdouble)).astype("f4")
    for det in (jnp.linalg.det, nx.jit(jnp.linalg.det)):
        np.testing.assert_allclose(np.real(det(a)), wanted, rtol=1e-4, atol=1e-38)
        assert not np.imag(det(a))


@pytest.mark.parametrize("size", [4, 64, 65, 130])
def test_determinants_of_any_size(size):
    a = np.random.default_rng(size).standard_normal((2, size, size))
    with nx.config.using(enable_x64=True):
        np.testing.assert_allclose(nx.jit(jnp.linalg.det)(a), np.linalg.det(a), rtol=1e-9)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_permutations_of_pivots(count):
    pivots = np.random.default_rng(0).integers(0, 9, (count, 7)).astype(np.int32)
    wanted = np.tile(np.arange(9), (count, 1))
    for row, swaps in zip(wanted, pivots, strict=True):
        for k, p in enumerate(swaps):
            row[[k, p]] = row[[p, k]]
    np.testing.assert_array_equal(nx.lax.linalg.lu_pivots_to_permutation(pivots, 9), wanted)
