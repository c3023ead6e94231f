"""Products and einsum, against JAX."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

R = np.random.RandomState(0)


def rand(*shape):
    return jnp.array(R.randn(*shape).astype(np.float32))


A, B, V, W = rand(3, 4), rand(4, 5), rand(4), rand(3)
P, Q = rand(2, 3, 4), rand(2, 4, 5)

TWO = {
    "dot": (lambda m, x, y: m.dot(x, y), A, B),
    "dot vector": (lambda m, x, y: m.dot(x, y), A, V),
    "dot scalar": (lambda m, x, y: m.dot(x, y), A, jnp.float32(2)),
    "dot ranks": (lambda m, x, y: m.dot(x, y), P, Q),
    "matmul": (lambda m, x, y: x @ y, A, B),
    "matmul batch": (lambda m, x, y: m.matmul(x, y), P, Q),
    "matmul broadcast": (lambda m, x, y: m.matmul(x, y), P[:, None], Q),
    "matmul shared left": (lambda m, x, y: m.matmul(x, y), A, Q),
    "matmul shared right": (lambda m, x, y: m.matmul(x, y), P, B),
    "matmul vector right": (lambda m, x, y: m.matmul(x, y), P, V),
    "matmul vector left": (lambda m, x, y: m.matmul(x, y), V, Q),
    "matvec": (lambda m, x, y: m.matvec(x, y), P, V),
    "vecmat": (lambda m, x, y: m.vecmat(x, y), V, Q),
    "vdot": (lambda m, x, y: m.vdot(x, y), A, A + 1),
    "vecdot": (lambda m, x, y: m.vecdot(x, y), P, A),
    "inner": (lambda m, x, y: m.inner(x, y), P, A),
    "outer": (lambda m, x, y: m.outer(x, y), A, V),
    "kron": (lambda m, x, y: m.kron(x, y), A, V),
    "tensordot": (lambda m, x, y: m.tensordot(x, y, 1), P, B),
    "tensordot axes": (lambda m, x, y: m.tensordot(x, y, ([0, 2], [0, 1])), P, Q),
    "tensordot outer": (lambda m, x, y: m.tensordot(x, y, 0), V, W),
    "cross": (lambda m, x, y: m.cross(x, y), rand(5, 3), rand(5, 3)),
    "cross of two components": (lambda m, x, y: m.cross(x, y), rand(5, 2), rand(5, 3)),
    "convolve": (lambda m, x, y: [m.convolve(x, y, k) for k in ("full", "same", "valid")], rand(7), rand(4)),
    "convolve swapped": (lambda m, x, y: [m.convolve(x, y, k) for k in ("full", "same", "valid")], rand(3), rand(8)),
    "correlate": (lambda m, x, y: [m.correlate(x, y, k) for k in ("full", "same", "valid")], rand(7), rand(4)),
    "correlate swapped": (lambda m, x, y: [m.correlate(x, y, k) for k in ("full", "same", "valid")], rand(4), rand(7)),
    "interp": (lambda m, x, y: m.interp(x, np.array([-1.0, 0.0, 0.5, 2.0], np.float32), y), rand(3, 4), V),
    "polyval": (lambda m, x, y: m.polyval(x, y), V, A),
    "polyadd": (lambda m, x, y: [m.polyadd(x, y), m.polysub(x, y), m.polymul(x, y)], V, W),
    "polydiv": (lambda m, x, y: m.polydiv(x, y), V, W),
    "trapezoid": (lambda m, x, y: m.trapezoid(x, y), A, V),
}


@pytest.mark.parametrize("name", TWO)
def test_two_operands(check, name):
    call, x, y = TWO[name]
    check.values(call, x, y, rtol=1e-4)
    check.grad(call, x, y, argnums=(0, 1), rtol=1e-4, atol=1e-4)


SUMS = {
    "matrix product": ("ij,jk->ik", A, B),
    "implicit": ("ij,jk", A, B),
    "transposed": ("ij->ji", A),
    "sum": ("ij->", A),
    "row sums": ("ij->i", A),
    "diagonal": ("ii->i", A[:, :3]),
    "trace": ("ii", A[:, :3]),
    "batch": ("bij,bjk->bik", P, Q),
    "batch last": ("bij,bjk->ikb", P, Q),
    "outer": ("i,j->ij", V, W),
    "elementwise": ("ij,ij->ij", A, A),
    "ellipsis": ("...ij,...jk->...ik", P, Q),
    "ellipsis broadcast": ("...ij,jk->...ik", P, B),
    "three": ("ij,jk,k->i", A, B, rand(5)),
    "four": ("bij,bjk,k,i->b", P, Q, rand(5), W),
    "summed alone": ("ij,kl->i", A, B),
    "size one": ("ij,ij->i", A, A[:, :1]),
    "spaces": ("i j, j k -> i k", A, B),
    "digits": ("i1,1j->ij", A, B),
}


@pytest.mark.parametrize("name", SUMS)
def test_einsum(check, name):
    text, *xs = SUMS[name]
    check.values(lambda m, *xs: m.einsum(text, *xs), *xs, rtol=1e-4)
    check.grad(lambda m, *xs: m.einsum(text, *xs), *xs, rtol=1e-4, atol=1e-4)
    check.vmap(lambda m, *xs: m.einsum(text, *xs), *(jnp.stack([x, 2 * x]) for x in xs), rtol=1e-4, atol=1e-4)


def test_einsum_options(check):
    check.values(
        lambda m, x, y: m.einsum("ij,jk", x, y, preferred_element_type="float32"),
        A.astype("bfloat16"),
        B.astype("bfloat16"),
        rtol=1e-2,
    )
    check.values(lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2], [0, 2]), A, B)
    check.values(lambda m, x, y: m.einsum("ij,jk", x, y, precision="highest"), A, B)
    check.raises_alike(lambda m, x, y: m.einsum("ij,jk->ik", x, y), A, V)
    check.raises_alike(lambda m, x, y: m.einsum("ij,jk->iz", x, y), A, B)


def test_integers_and_complex(check):
    i = jnp.array([[1, 2], [3, 4]])
    check.values(lambda m, x: [x @ x, m.einsum("ij,jk", x, x), m.vdot(x, x)], i)
    check.values(lambda m, x: x @ x, i.astype("int8"))
    z = (i + 1j * i.T).astype("complex64")
    check.values(lambda m, x: [x @ x, m.vdot(x, x), m.vecdot(x, x), m.inner(x, x)], z)
    check.values(lambda m, x, y: m.matmul(x, y, preferred_element_type="int32"), i.astype("int8"), i.astype("int8"))


def test_refusals(check):
    check.raises_alike(lambda m: m.matmul(m.ones(3), m.ones(4)))
    check.raises_alike(lambda m: m.matmul(m.ones(3), 2.0))
    check.raises_alike(lambda m: m.dot(m.ones((2, 3)), m.ones((2, 3))))
    check.raises_alike(lambda m: m.tensordot(m.ones((2, 3)), m.ones(3), 2))


def test_polynomials(check):
    check.values(lambda m, p: [m.polyder(p), m.polyder(p, 2), m.polyint(p), m.polyint(p, 2, k=3.0)], V)
    check.values(lambda m, p: m.polyint(p, 3, k=np.array([1.0, 2.0, 3.0])), V)


def test_vectorize(check):
    check.values(lambda m, x, y: m.vectorize(lambda a, b: a * b + 1)(x, y), A, V)
    check.values(lambda m, x, y: m.vectorize(lambda a, b: a @ b, signature="(n,m),(m)->(n)")(x, y), P, V)
    check.values(lambda m, x: m.apply_along_axis(m.cumsum, 1, x), P)
    check.values(lambda m, x: m.apply_along_axis(m.sum, 0, x), P)
    check.values(lambda m, x: m.apply_over_axes(m.sum, x, [0, 2]), P)


def test_ufunc_methods(check):
    check.values(lambda m, x: [m.add.reduce(x), m.multiply.reduce(x, axis=1), m.maximum.reduce(x, axis=None)], A)
    check.values(lambda m, x: [m.add.accumulate(x, axis=1), m.subtract.accumulate(x), m.subtract.reduce(x)], A)
    check.values(lambda m, x: m.add.outer(x, x), V)
    check.values(lambda m, x: m.add.at(x, np.array([0, 0, 2]), 1.0, inplace=False), V)
    outside = np.array([4, 0, -5, -1, 1000])
    check.values(lambda m, x: m.add.at(x, outside, 1.0, inplace=False), V)
    check.values(lambda m, x: m.multiply.at(x, (outside, outside % 2), x[0, :1], inplace=False), A)
    check.values(lambda m, x: m.negative(x).at[outside].apply(m.negative), V)
    check.values(lambda m, x: m.add.reduceat(x, np.array([0, 2])), V)
    check.values(lambda m, x: m.frompyfunc(lambda a, b: a * 2 + b, 2, 1, identity=0).reduce(x), V)
    check.values(lambda m, x: [m.logaddexp.reduce(x, axis=1), m.logaddexp2.accumulate(x), m.logaddexp.reduce(x[:0])], A)
    numpy = pytest.importorskip("jax.numpy")
    theirs = {n: f for n in dir(numpy) if isinstance(f := getattr(numpy, n), numpy.ufunc) and f.nin == 2}
    assert len(theirs) > 10
    for name, ufunc in theirs.items():
        assert getattr(jnp, name).identity == ufunc.identity, name


def test_sums_of_another_kind():
    bits = jnp.array([True, True, False])
    assert jnp.dot(bits, bits, preferred_element_type="int32") == 2
    assert jnp.einsum("i->", bits, preferred_element_type="float32") == 2
    x = jnp.array([1.5, 0.75])
    assert jnp.vdot(x, x, preferred_element_type="int32") == 2
    assert jnp.einsum("i,i,i->", x, x, x, preferred_element_type="int32") == 3
    assert jnp.einsum("i,->i", jnp.array([1, 2]), 0.5).weak_type
    whole = jnp.convolve(jnp.array([1, 2], "int8"), jnp.array([3, 4], "int8"), preferred_element_type="int32")
    assert whole.tolist() == [3, 10, 8] and whole.dtype == jnp.int32


@pytest.mark.parametrize("size", [1, 2, 3, 2**17 - 1])
def test_combining_many_numbers_keeps_digits(size):
    x = np.random.default_rng(0).random(size, np.float32)
    exact = np.logaddexp.reduce(x.astype(np.float64))
    for f in (jnp.logaddexp.reduce, nx.jit(jnp.logaddexp.reduce)):
        np.testing.assert_allclose(f(x), exact, rtol=4e-7)
    some = x > 0.5
    kept = np.logaddexp.reduce(x.astype(np.float64), where=some, initial=1.0)
    np.testing.assert_allclose(jnp.logaddexp.reduce(x, where=some, initial=1.0), kept, rtol=4e-7)
    n = (x * 2**20).astype(np.int32)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        assert int(getattr(jnp, name).reduce(n)) == getattr(np, name).reduce(n)
