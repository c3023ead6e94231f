"""Matrix factorizations against JAX and NumPy: values, derivatives, batches, both lowerings, failures, errors."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.errors import DtypeError, GradientError, LoweringError, ParameterError, ShapeError
from nxjax.lax import linalg
from nxjax.lower.stablehlo.builder import lower
from nxjax.ops.linalg_qr import geqrf, householder_product
from nxjax.testing import check_op, executors, sample

SHAPES = [(4, 4), (6, 3), (3, 6), (1, 1), (2, 3, 3), (2, 5, 2), (2, 1, 2, 4)]
SQUARE = [(1, 1), (4, 4), (7, 7), (2, 3, 3), (2, 1, 4, 4)]
DTYPES = [np.float32, np.float64, np.complex64]


def matrix(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def positive(shape, dtype, seed=0):
    x = matrix(shape, dtype, seed)
    return (x @ adjoint(x) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def tol(dtype):
    return {"rtol": 1e-9, "atol": 1e-9} if dtype == np.float64 else {"rtol": 2e-3, "atol": 2e-4}


def array(x):
    return nx.asarray(x, dtype=x.dtype)


def portable(f, *xs):
    """What the StableHLO text without LAPACK gives."""
    leaves = nx.jit(lambda *a: tuple(f(*a)) if isinstance(f(*a), (tuple, list)) else (f(*a),))
    program = leaves.trace(*xs).program
    assert not program.constvars
    text, callbacks = lower(program)
    assert "custom_call" not in text
    executable = XlaExecutable(compile_text(text, callbacks), text, program.out_types, callbacks)
    return [y.numpy() for y in executable(list(xs))]


def compiled_without_lapack(shape, dtype):
    """Every shape in one dtype, and every dtype in one shape."""
    return dtype == np.float32 or shape in ((4, 4), (2, 5, 2))


def check_jvp(f, x, t, dtype):
    """The derivative along t against central differences in double precision."""
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    x, t, eps = x.astype(wide), t.astype(wide), 1e-6
    leaves = lambda y: y if isinstance(y, (tuple, list)) else (y,)
    found = leaves(nx.jvp(f, (array(x),), (array(t),))[1])
    plus, minus = leaves(f(array(x + eps * t))), leaves(f(array(x - eps * t)))
    for d, a, b in zip(found, plus, minus, strict=True):
        if d.dtype.kind in "fc":
            np.testing.assert_allclose(d.numpy(), (a.numpy() - b.numpy()) / (2 * eps), rtol=1e-5, atol=1e-6)


def check_adjoint(f, x, dtype):
    """<ct, J t> = <J^T ct, t> in the pairing Re(sum(x y))."""
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    x = x.astype(wide)
    t = matrix(x.shape, wide, 9)
    y, pushed = nx.jvp(f, (array(x),), (array(t),))
    _, pull = nx.vjp(f, array(x))
    leaves = lambda v: list(v) if isinstance(v, (tuple, list)) else [v]
    float0 = np.dtype([("float0", np.void, 0)])
    cts, total = [], 0.0
    for i, (v, p) in enumerate(zip(leaves(y), leaves(pushed), strict=True)):
        if v.dtype.kind in "fc":
            ct = matrix(v.shape, v.dtype, 20 + i)
            total += np.sum(ct * p.numpy()).real
        else:
            ct = np.zeros(v.shape, float0)
        cts.append(ct if v.dtype.kind not in "fc" else array(ct))
    (back,) = pull(type(y)(cts) if isinstance(y, (tuple, list)) else cts[0])
    np.testing.assert_allclose(np.sum(back.numpy() * t).real, total, rtol=1e-7, atol=1e-7)


def check_vmap(f, x):
    """One more leading or inner batch dimension is a loop."""
    stacked = np.stack([x, x[..., ::-1, ::-1] + 1], axis=-1)
    leaves = lambda v: v if isinstance(v, (tuple, list)) else (v,)
    found = leaves(nx.vmap(f, in_axes=-1)(array(stacked)))
    for i in range(2):
        for a, b in zip(found, leaves(f(array(np.ascontiguousarray(stacked[..., i])))), strict=True):
            np.testing.assert_allclose(a.numpy()[i], b.numpy(), rtol=1e-4, atol=1e-5)


# --- triangular systems ---

FLAGS = [(l, r, t, c, u) for l in (0, 1) for r in (0, 1) for t in (0, 1) for c in (0, 1) for u in (0, 1)]


@pytest.mark.parametrize(("left", "low", "transpose", "conjugate", "unit"), FLAGS)
def test_triangular_solve(left, low, transpose, conjugate, unit):
    dtype = np.complex64 if conjugate else np.float32
    a = matrix((2, 4, 4), dtype) + 3 * np.eye(4, dtype=dtype)
    b = matrix((2, 4, 3) if left else (2, 3, 4), dtype, 1)
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    options = dict(zip(names, (left, low, transpose, conjugate, unit), strict=True))
    f = lambda m, r: linalg.triangular_solve(m, r, **options)
    import jax

    g = lambda m, r: jax.lax.linalg.triangular_solve(m, r, **{k: bool(v) for k, v in options.items()})
    expected, pull_jax = jax.vjp(g, a, b)
    found, pull = nx.vjp(f, a, b)
    close = lambda p, q: np.testing.assert_allclose(p.numpy(), np.asarray(q), rtol=1e-3, atol=1e-4)
    close(found, expected)
    close(nx.jit(f)(a, b), expected)
    for p, q in zip(pull(found), pull_jax(expected), strict=True):
        close(p, q)
    ta, tb = matrix(a.shape, dtype, 5), matrix(b.shape, dtype, 6)
    close(nx.jvp(f, (a, b), (ta, tb))[1], jax.jvp(g, (a, b), (ta, tb))[1])
    # One matrix for many right-hand sides, many matrices for one, and both.
    many_a, many_b = np.stack([a, 2 * a]), np.stack([b, b - 1, b + 1][:2], axis=2)
    for axes, xs in (((None, 2), (a, many_b)), ((0, None), (many_a, b)), ((0, 2), (many_a, many_b))):
        ys = nx.vmap(f, in_axes=axes)(*xs).numpy()
        for i in range(2):
            one = [x if ax is None else np.take(x, i, ax) for x, ax in zip(xs, axes, strict=True)]
            np.testing.assert_allclose(ys[i], f(*one).numpy(), rtol=1e-3, atol=1e-4)


def test_triangular_solve_of_a_vector_and_a_wide_right_side():
    a = matrix((3, 3), np.float32) + 3 * np.eye(3, dtype=np.float32)
    for left in (True, False):
        x = linalg.triangular_solve(a, np.ones(3, np.float32), left_side=left, lower=True).numpy()
        whole = np.tril(a) if left else np.tril(a).T
        np.testing.assert_allclose(x, np.linalg.solve(whole, np.ones(3)), rtol=1e-4)
        b = matrix((3, 9) if left else (9, 3), np.float32)
        check_adjoint(
            lambda m, b=b, left=left: linalg.triangular_solve(m, array(b.astype(np.float64)), left_side=left),
            a,
            np.float32,
        )


# --- Cholesky ---


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(shape, dtype):
    x = positive(shape, dtype)
    expected = np.linalg.cholesky(x)
    for y in (
        linalg.cholesky(array(x)).numpy(),
        nx.jit(linalg.cholesky)(array(x)).numpy(),
        *(portable(linalg.cholesky, array(x)) if compiled_without_lapack(shape, dtype) else ()),
    ):
        assert y.dtype == dtype
        np.testing.assert_allclose(y, expected, **tol(dtype))
    t = matrix(shape, dtype, 3)
    check_jvp(linalg.cholesky, x, t, dtype)
    check_adjoint(linalg.cholesky, x, dtype)


def test_cholesky_reads_the_lower_triangle_and_fails_with_nan():
    x = positive((3, 3), np.float32)
    upper = x + np.triu(np.full((3, 3), 7, np.float32), 1)
    f = lambda a: linalg.cholesky(a, symmetrize_input=False)
    for g in (f, nx.jit(f)):
        np.testing.assert_allclose(g(array(upper)).numpy(), np.linalg.cholesky(x), rtol=1e-4, atol=1e-5)
        y = g(array(np.stack([x, -x]))).numpy()
        assert np.isfinite(y[0]).all()
        np.testing.assert_array_equal(np.isnan(y[1]), np.tri(3, dtype=bool))


# --- LU ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(shape, dtype):
    import jax

    x = matrix(shape, dtype)
    with jax.enable_x64(True):
        expected = [np.asarray(v) for v in jax.lax.linalg.lu(x)]
    for found in (linalg.lu(array(x)), nx.jit(linalg.lu)(array(x))):
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b, **tol(dtype))
    if compiled_without_lapack(shape, dtype):
        for a, b in zip(portable(linalg.lu, array(x)), expected, strict=True):
            np.testing.assert_allclose(a, b, **tol(dtype))
    check_jvp(lambda a: linalg.lu(a)[0], x, matrix(shape, dtype, 3), dtype)
    check_adjoint(lambda a: linalg.lu(a)[0], x, dtype)
    check_vmap(linalg.lu, x)


def test_lu_of_singular_matrices_goes_on():
    x = np.array([[0, 1, 2], [0, 3, 4], [0, 5, 6]], np.float32)
    for f in (linalg.lu, nx.jit(linalg.lu)):
        factors, _, permutation = f(array(x))
        lower = np.tril(factors.numpy(), -1) + np.eye(3)
        np.testing.assert_allclose(lower @ np.triu(factors.numpy()), x[permutation.numpy()], atol=1e-6)
    np.testing.assert_allclose(portable(linalg.lu, array(x))[0], linalg.lu(array(x))[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_lu_pivots_to_permutation(batch):
    import jax

    rng = np.random.default_rng(0)
    pivots = np.stack([rng.integers(k, 6, batch) for k in range(4)], -1).astype(np.int32)
    f = lambda p: linalg.lu_pivots_to_permutation(p, 6)
    expected = np.asarray(jax.lax.linalg.lu_pivots_to_permutation(pivots, 6))
    np.testing.assert_array_equal(f(array(pivots)).numpy(), expected)
    np.testing.assert_array_equal(nx.jit(f)(array(pivots)).numpy(), expected)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_lu_solve(trans):
    a, b = matrix((2, 4, 4), np.complex64), matrix((2, 4, 3), np.complex64, 1)
    factors, _, permutation = linalg.lu(array(a))
    m = (a, a.swapaxes(-1, -2), adjoint(a))[trans]
    x = linalg.lu_solve(factors, permutation, b, trans).numpy()
    np.testing.assert_allclose(m @ x, b, rtol=1e-3, atol=1e-4)
    v = linalg.lu_solve(factors, permutation, b[..., 0], trans).numpy()
    np.testing.assert_allclose(v, x[..., 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4)])
def test_complex_matrices_are_solved_as_real_ones(shape):
    dtype = np.complex64
    a, b = matrix(shape, dtype), matrix(shape, dtype, 1)
    f = nx.numpy.linalg.solve
    expected = np.linalg.solve(a.astype(np.complex128), b)
    np.testing.assert_allclose(nx.jit(f)(a, b).numpy(), expected, **tol(dtype))
    factored = [e.inputs[0].type.dtype for e in nx.make_jaxpr(f)(a, b).equations if e.op.name == "lu"]
    assert factored == [np.dtype(np.float32)]
    check_jvp(lambda a: f(a, b), a, b, dtype)


# --- QR ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
def test_qr(shape, dtype, full):
    x = matrix(shape, dtype)
    f = lambda a: linalg.qr(a, full_matrices=full)
    expected = np.linalg.qr(x, mode="complete" if full else "reduced")
    for found in (f(array(x)), nx.jit(f)(array(x))):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, **tol(dtype))
    if compiled_without_lapack(shape, dtype):
        for a, b in zip(portable(f, array(x)), expected, strict=True):
            np.testing.assert_allclose(a, b, **tol(dtype))
    check_jvp(f, x, matrix(shape, dtype, 3), dtype)
    check_adjoint(f, x, dtype)
    check_vmap(f, x)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_geqrf_and_householder_product_are_jax(dtype):
    import jax

    x = matrix((2, 5, 3), dtype)
    packed, taus = linalg.geqrf(array(x))
    from jax._src.lax.linalg import geqrf

    for a, b in zip((packed, taus), geqrf(x), strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-3, atol=1e-4)
    q = linalg.householder_product(packed, taus)
    expected = np.asarray(jax.lax.linalg.householder_product(packed.numpy(), taus.numpy()))
    np.testing.assert_allclose(q.numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(portable(linalg.householder_product, packed, taus)[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("shape", "steps"), [((31, 31), 31), ((2, 70, 33), 33), ((100, 65), 64), ((64, 64), 40)])
def test_products_of_many_reflectors(shape, steps):
    """More than are applied at once."""
    rng = np.random.default_rng(steps)
    packed, taus = geqrf.eval(rng.normal(size=shape) + 1j * rng.normal(size=shape))
    product = np.eye(*shape[-2:]) + np.zeros(shape, complex)
    for k in reversed(range(steps)):
        v = packed[..., :, k] * (np.arange(shape[-2]) > k) + (np.arange(shape[-2]) == k)
        product = product - taus[..., k, None, None] * v[..., None] * (v.conj()[..., None, :] @ product)
    np.testing.assert_allclose(householder_product.eval(packed, taus[..., :steps]), product, atol=1e-13)


# --- eigenvalues ---


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(shape, dtype):
    x = matrix(shape, dtype)
    x = (x + adjoint(x)) / 2
    expected = np.linalg.eigvalsh(x)
    results = [[v.numpy() for v in f(array(x))] for f in (linalg.eigh, nx.jit(linalg.eigh))]
    if compiled_without_lapack(shape, dtype):
        results.append(portable(linalg.eigh, array(x)))
    for v, w in results:
        assert v.dtype == dtype
        np.testing.assert_allclose(w, expected, **tol(dtype))
        np.testing.assert_allclose(x @ v, v * w[..., None, :], **tol(dtype))
        np.testing.assert_allclose(adjoint(v) @ v, np.broadcast_to(np.eye(shape[-1]), shape), **tol(dtype))
    # Eigenvectors are free up to a phase, so the derivative is taken of projections.
    weights = np.arange(1, shape[-1] + 1, dtype=np.float64)

    def projected(a):
        v, w = linalg.eigh(a)
        p = nx.matmul(v * array(weights).astype(v.dtype), nx.conj(nx.swapaxes(v, -1, -2)))
        return p, w

    t = matrix(shape, dtype, 3)
    check_jvp(projected, x, t + adjoint(t), dtype)
    check_adjoint(projected, x, dtype)


def test_eigh_reads_one_triangle_and_gives_part():
    x = np.array([[2.0, 1.0], [9.0, 3.0]], np.float32)
    symmetric = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    f = lambda a: linalg.eigh(a, lower=False, symmetrize_input=False)[1]
    for w in (f(array(x)).numpy(), nx.jit(f)(array(x)).numpy(), portable(f, array(x))[0]):
        np.testing.assert_allclose(w, np.linalg.eigvalsh(symmetric), rtol=1e-5)
    v, w = linalg.eigh(array(symmetric), subset_by_index=(1, 2))
    assert (v.shape, w.shape) == ((2, 1), (1,))
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(symmetric)[1:], rtol=1e-5)
    with pytest.raises(ParameterError, match="subset_by_index"):
        linalg.eigh(array(symmetric), subset_by_index=(1, 3))


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(shape, dtype):
    x = matrix(shape, dtype)
    expected = np.sort_complex(np.linalg.eigvals(x))
    for found in (linalg.eig(array(x)), nx.jit(linalg.eig)(array(x))):
        w, left, right = (v.numpy() for v in found)
        assert w.dtype == left.dtype == right.dtype == np.result_type(dtype, np.complex64)
        np.testing.assert_allclose(np.sort_complex(w), expected, rtol=5e-3, atol=5e-4)
        np.testing.assert_allclose(x @ right, right * w[..., None, :], **tol(dtype))
        np.testing.assert_allclose(adjoint(left) @ x, w[..., None] * adjoint(left), **tol(dtype))
        for v in (left, right):
            np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=1e-4)
            largest = np.take_along_axis(v, np.argmax(np.abs(v), -2)[..., None, :], -2)
            np.testing.assert_allclose(largest.imag, 0, atol=1e-4)
    f = lambda a: signed(linalg.eig(a, enable_eigvec_derivs=True))
    check_jvp(f, x, matrix(shape, dtype, 3), dtype)
    check_adjoint(f, x, dtype)


def signed(found):
    """Eigenvectors with a positive largest component: LAPACK's own signs differ from one processor to another."""
    w, *vectors = found
    made = []
    for v in vectors:
        top = nx.numpy.take_along_axis(v, nx.numpy.argmax(abs(v), -2)[..., None, :], -2)
        made.append(v * nx.lax.stop_gradient(nx.numpy.sign(top.real)))
    return (w, *made)


def test_eigenvectors_are_differentiated_only_on_demand():
    x = matrix((3, 3), np.float32)
    with pytest.raises(GradientError, match="enable_eigvec_derivs"):
        nx.jvp(linalg.eig, (x,), (x,))
    values = lambda a: linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
    check_jvp(values, x, matrix((3, 3), np.float32, 1), np.float32)
    with pytest.raises(LoweringError, match="eig: has no lowering"):
        lower(nx.jit(values).trace(x).program)


# --- singular values ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
def test_svd(shape, dtype, full):
    x = matrix(shape, dtype)
    f = lambda a: linalg.svd(a, full_matrices=full)
    expected = np.linalg.svd(x, compute_uv=False)
    results = [[v.numpy() for v in g(array(x))] for g in (f, nx.jit(f))]
    if compiled_without_lapack(shape, dtype):
        results.append(portable(f, array(x)))
    k = min(shape[-2:])
    for u, s, vh in results:
        assert (u.dtype, s.dtype) == (dtype, expected.dtype)
        assert u.shape[-1] == (shape[-2] if full else k)
        np.testing.assert_allclose(s, expected, **tol(dtype))
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, **tol(dtype))
        for q in (u, adjoint(vh)):
            gram = adjoint(q) @ q
            np.testing.assert_allclose(gram, np.broadcast_to(np.eye(q.shape[-1]), gram.shape), **tol(dtype))
    values = lambda a: linalg.svd(a, compute_uv=False)
    if dtype == np.float32:
        np.testing.assert_allclose(portable(values, array(x))[0], expected, **tol(dtype))
    check_jvp(values, x, matrix(shape, dtype, 3), dtype)
    check_adjoint(values, x, dtype)
    if not full:

        def projected(a):
            u, s, vh = f(a)
            adj = lambda m: nx.conj(nx.swapaxes(m, -1, -2))
            weights = array(np.arange(1, k + 1, dtype=np.float64)).astype(u.dtype)
            return nx.matmul(u * weights, adj(u)), s, nx.matmul(adj(vh) * weights, vh), nx.matmul(u * weights, vh)

        check_jvp(projected, x, matrix(shape, dtype, 3), dtype)
        check_adjoint(projected, x, dtype)


def test_portable_svd_of_a_matrix_without_full_rank():
    x = np.outer(np.arange(1.0, 5.0), np.ones(3)).astype(np.float32)
    u, s, vh = portable(lambda a: linalg.svd(a, full_matrices=False), array(x))
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), atol=1e-4)
    np.testing.assert_allclose(u.T @ u, np.eye(3), atol=1e-4)
    np.testing.assert_allclose((u * s) @ vh, x, atol=1e-4)


def test_svd_refuses_derivatives_of_completing_columns_and_gives_part():
    x = matrix((4, 2), np.float32)
    with pytest.raises(GradientError, match="full_matrices=False"):
        nx.jvp(lambda a: linalg.svd(a), (x,), (x,))
    u, s, vh = linalg.svd(x, full_matrices=False, subset_by_index=(0, 1))
    assert (u.shape, s.shape, vh.shape) == ((4, 1), (1,), (1, 2))


# --- common ---

SINGLE = {
    "cholesky": linalg.cholesky,
    "lu": linalg.lu,
    "qr": linalg.qr,
    "eigh": linalg.eigh,
    "svd": linalg.svd,
    "geqrf": linalg.geqrf,
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)])
def test_empty_matrices(name, shape):
    x = array(np.zeros(shape, np.float32))
    leaves = lambda v: v if isinstance(v, (tuple, list)) else (v,)
    eager, compiled = leaves(SINGLE[name](x)), leaves(nx.jit(SINGLE[name])(x))
    assert [v.type.shape for v in eager] == [v.type.shape for v in compiled] == [v.numpy().shape for v in compiled]


@pytest.mark.parametrize("name", SINGLE)
def test_bad_operands(name):
    f = SINGLE[name]
    with pytest.raises(DtypeError, match=name):
        f(np.ones((2, 2), np.int32))
    with pytest.raises(ShapeError, match=f"{name}: not a matrix"):
        f(np.ones(2, np.float32))
    if name in ("cholesky", "eigh"):
        with pytest.raises(ShapeError, match=f"{name}: the matrix is not square"):
            f(np.ones((2, 3), np.float32))


def test_bad_right_hand_sides():
    a = np.eye(3, dtype=np.float32)
    with pytest.raises(ShapeError, match="right-hand side does not fit"):
        linalg.triangular_solve(a, np.ones((2, 3), np.float32), left_side=True)
    with pytest.raises(ShapeError, match="reflectors and scalars"):
        linalg.householder_product(a, np.ones((2, 3), np.float32))
    with pytest.raises(ParameterError, match="fewer rows than swaps"):
        linalg.lu_pivots_to_permutation(np.zeros(3, np.int32), 2)


def test_symmetric_product():
    a, c = matrix((3, 2), np.float32), matrix((3, 3), np.float32)
    y = linalg.symmetric_product(a, c, alpha=2.0, beta=0.5)
    np.testing.assert_allclose(y.numpy(), 2 * a @ a.T + 0.5 * c, rtol=1e-5)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_tridiagonal_solve(batch):
    n, rng = 5, np.random.default_rng(0)
    dl, du = rng.standard_normal((2, *batch, n))
    d, b = 4 + rng.random((*batch, n)), rng.standard_normal((*batch, n, 2))
    place = np.arange(n)
    whole = np.zeros((*batch, n, n))
    whole[..., place, place] = d
    whole[..., place[1:], place[:-1]] = dl[..., 1:]
    whole[..., place[:-1], place[1:]] = du[..., :-1]
    operands = [array(v) for v in (dl, d, du, b)]
    for f in (linalg.tridiagonal_solve, nx.jit(linalg.tridiagonal_solve)):
        np.testing.assert_allclose(f(*operands).numpy(), np.linalg.solve(whole, b), rtol=1e-9)
    check_jvp(lambda m: linalg.tridiagonal_solve(operands[0], m, operands[2], operands[3]), d, d[..., ::-1], np.float64)
    check_adjoint(lambda m: linalg.tridiagonal_solve(m, *operands[1:]), dl, np.float64)
    with pytest.raises(ShapeError, match="tridiagonal_solve"):
        linalg.tridiagonal_solve(*operands[:3], operands[3][..., 0])


def test_laws():
    from nxjax.ops import linalg_eigen, linalg_lu, linalg_qr, linalg_svd, linalg_triangular

    x, z = matrix((3, 3), np.float32), matrix((3, 3), np.complex64)
    tall = matrix((5, 3), np.float32)
    spd = positive((3, 3), np.float32)
    options = {"left_side": True, "lower": True, "transpose_a": True, "conjugate_a": False, "unit_diagonal": False}
    strong = x + 4 * np.eye(3, dtype=np.float32)
    check_op(linalg_triangular.triangular_solve, [sample(strong, x, **options)], rtol=1e-4)
    # These two read one triangle, and their derivative is that in Hermitian directions.
    check_op(linalg_triangular.cholesky, [sample(spd, differentiable=False)], rtol=1e-4)
    check_op(linalg_eigen.eigh, [sample(spd, lower=True, differentiable=False)], rtol=1e-3)
    check_op(linalg_lu.lu, [sample(x), sample(z), sample(tall)], rtol=1e-3)
    check_op(linalg_qr.qr, [sample(tall, full_matrices=f) for f in (False, True)], rtol=1e-3)
    check_op(linalg_svd.svd, [sample(tall, full_matrices=False, compute_uv=False)], rtol=1e-3)
    pivots = np.array([2, 2, 2], np.int32)
    check_op(linalg_lu.lu_pivots_to_permutation, [sample(pivots, permutation_size=4)])


def test_pivots_out_of_range_are_moved_into_it():
    pivots = nx.array(np.int32([[2, -7, 10**6], [1, 1, 2]]))
    for name in executors():
        permutation = nx.jit(lambda p: linalg.lu_pivots_to_permutation(p, 4), device=name)(pivots)
        assert np.asarray(permutation).tolist() == [[1, 2, 3, 0], [1, 0, 2, 3]], name
