"""Sorting, searching, counting and sets, against JAX."""

import jax
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = jnp.array(np.random.RandomState(0).randn(3, 5).astype(np.float32)).at[1, 2].set(np.nan)
I = jnp.array(np.random.RandomState(1).randint(0, 6, (20,)).astype(np.int32))
J = jnp.array([5, 3, 9, 3, 1])
S = jnp.sort(jnp.array(np.random.RandomState(2).randn(7).astype(np.float32)))


@pytest.mark.parametrize("name", ["sort", "argsort"])
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": None}, {"descending": True}], ids=str)
def test_sort(check, name, options):
    check.values(lambda m, x: getattr(m, name)(x, **options), X)
    check.values(lambda m, x: getattr(m, name)(x.reshape(4, 5), **options), I)


def test_sort_transforms(check):
    check.grad(lambda m, x: m.sort(x), X[0:1])
    check.vmap(lambda m, x: m.sort(x), X)
    check.vmap(lambda m, x: m.argsort(x), X)
    check.values(lambda m, x: m.lexsort((x, x % 3)), I)
    check.values(lambda m, x: m.sort_complex(x), J)
    check.values(lambda m, x: m.partition(x, 2)[2], J)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(check, side):
    check.values(lambda m, s, x: m.searchsorted(s, x, side=side), S, X)
    check.values(lambda m, s: m.searchsorted(s, s[2], side=side), S)
    check.values(
        lambda m, x: m.searchsorted(x, np.array([-1, 3, 4, 99]), side=side, sorter=np.argsort(np.asarray(J))), J
    )
    check.values(lambda m, s: m.digitize(np.array([-9.0, 0.1, 9.0]), s, right=side == "left"), S)
    check.values(lambda m, s: m.digitize(np.array([-9.0, 0.1, 9.0]), s[::-1], right=side == "left"), S)


def test_counting(check):
    check.values(lambda m, x: m.bincount(x, length=8), I)
    check.values(lambda m, x: m.bincount(x, weights=m.ones(20), minlength=9), I, jit=False)
    check.values(lambda m, x: m.bincount(x), I, jit=False)
    check.values(lambda m, x: m.histogram(x, bins=5), S)
    check.values(lambda m, x: m.histogram(x, bins=5, range=(-1, 1), density=True), S)
    check.values(lambda m, x: m.histogram(x, bins=np.array([-1.0, 0.0, 0.5, 2.0]), weights=np.arange(7.0)), S)
    check.values(lambda m, x: m.histogram_bin_edges(x, 4), S)
    check.values(lambda m, x: m.histogram2d(x, x[::-1], bins=3), S)
    check.values(lambda m, x: m.histogramdd(m.stack([x, x[::-1], x * 2], 1), bins=2), S)
    with pytest.raises(nx.errors.ConcretizationTypeError, match="length"):
        nx.jit(jnp.bincount)(I)


def test_where_it_holds(check):
    check.values(lambda m, x: [m.nonzero(x > 2), m.flatnonzero(x), m.argwhere(x > 2), m.where(x > 2)], I, jit=False)
    check.values(lambda m, x: m.nonzero(x.reshape(4, 5) > 2, size=12, fill_value=-1), I)
    check.values(lambda m, x: m.nonzero(x > 2, size=4), I)
    check.values(lambda m, x: m.argwhere(x > 2, size=30, fill_value=99), I)
    check.values(lambda m, x: m.extract(x > 2, x), I, jit=False)
    check.values(lambda m, x: m.compress(np.array([True, False, True]), x, axis=0), X)
    check.values(lambda m, x: m.compress(x[0] > 0, x, axis=1, size=4, fill_value=7), X)
    check.values(lambda m, x: m.choose(x % 3, [x, x * 10, x * 100], mode="clip"), I)
    check.vmap(lambda m, x: m.nonzero(x > 0, size=4, fill_value=9), X)
    with pytest.raises(nx.errors.ConcretizationTypeError, match="size"):
        nx.jit(jnp.nonzero)(I)


FULL = {"return_index": True, "return_inverse": True, "return_counts": True}


@pytest.mark.parametrize("x", [I, J, X, I.reshape(10, 2)], ids=["repeated", "few", "nan", "matrix"])
def test_unique(check, x):
    check.values(lambda m, x: m.unique(x), x, jit=False)
    check.values(lambda m, x: m.unique(x, **FULL), x, jit=False)
    check.values(lambda m, x: m.unique(x, size=3, **FULL), x)
    check.values(lambda m, x: m.unique(x, size=25, fill_value=-7, **FULL), x)
    check.values(lambda m, x: m.unique(x, equal_nan=False), x, jit=False)


def test_unique_slices(check):
    check.values(lambda m, x: m.unique(x.reshape(10, 2) % 2, axis=0, **FULL), I, jit=False)
    check.values(lambda m, x: m.unique(x.reshape(2, 10) % 2, axis=1, size=6, **FULL), I)
    check.values(lambda m, x: m.unique_counts(x), I, jit=False)
    check.values(lambda m, x: m.unique_all(x), I, jit=False)


def test_sets(check):
    check.values(
        lambda m, x, y: [m.union1d(x, y), m.intersect1d(x, y), m.setdiff1d(x, y), m.setxor1d(x, y)], I, J, jit=False
    )
    check.values(lambda m, x, y: [m.union1d(x, y, size=9), m.setdiff1d(x, y, size=6, fill_value=-1)], I, J)
    check.values(lambda m, x, y: m.intersect1d(x, y, return_indices=True), I, J, jit=False)
    check.values(lambda m, x, y: m.isin(x, y), I, J)
    check.values(lambda m, x, y: m.isin(x.reshape(4, 5), y, invert=True), I, J)


def test_partitions_are_in_jaxs_order():
    x = jnp.array([5.0, 1.0, jnp.nan, 2.0, 4.0])
    np.testing.assert_array_equal(jnp.partition(x, 1), [1, 2, np.nan, 5, 4])
    np.testing.assert_array_equal(jnp.argpartition(x, 1), [1, 3, 0, 2, 4])
    table = jnp.array([[3, 0], [1, 2], [2, 1]], "uint8")
    np.testing.assert_array_equal(jnp.partition(table, -2, 0), [[1, 0], [2, 1], [3, 2]])
    assert jnp.partition(jnp.array([True, False]), 0).tolist() == [False, True]


def test_intersections_of_fixed_size():
    x, y = jnp.array([3, 1, 2, 2]), jnp.array([2, 3, 7])
    assert jnp.intersect1d(x, y, size=4).tolist() == [2, 3, 2, 2]
    assert jnp.intersect1d(x, y, size=4, fill_value=0.5).tolist() == [2, 3, 0.5, 0.5]
    assert jnp.intersect1d(x, jnp.zeros(0), size=2, fill_value=-1).tolist() == [-1, -1]
    assert jnp.setdiff1d(jnp.zeros(0), x, size=2).tolist() == [0, 0]
    assert jnp.setxor1d(x, y).tolist() == [1, 7]
    np.testing.assert_array_equal(jnp.setxor1d(jnp.array([jnp.nan, 1]), jnp.array([jnp.nan])), [1, np.nan, np.nan])


def test_bins_of_each_axis_may_differ_in_number():
    x, y, edges = np.array([0.5, 1.5, 1.5]), np.array([0.1, 0.2, 2.5]), np.array([0.0, 1.0, 3.0])
    for bins in ([edges, edges[1:]], [2, edges], edges):
        counts, ex, ey = jnp.histogram2d(x, y, bins)
        wanted = np.histogram2d(x, y, bins)
        for ours, theirs in zip((counts, ex, ey), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        if bins is not edges:
            np.testing.assert_array_equal(jnp.histogramdd(np.stack([x, y], 1), bins)[0], counts)
    assert jnp.bincount(jnp.array([-1, -2])).tolist() == [2]


@pytest.mark.parametrize("size", [2**31, 2**31 + 1])
def test_indices_into_very_many_elements(size):
    x = nx.ShapeDtypeStruct((size,), "int8")
    wanted = "int32" if size <= 2**31 else "int64"
    functions = (jnp.argmax, jnp.argmin, jnp.argsort, lambda v: jnp.lexsort((v,)), lambda v: jnp.nonzero(v, size=2)[0])
    assert {nx.eval_shape(f, x).dtype.name for f in functions} == {wanted}
    assert nx.eval_shape(jnp.count_nonzero, x).dtype == "int64"
    assert nx.eval_shape(lambda v: jnp.searchsorted(v, 1), x).dtype == "int64"
    if size > 2**31:
        for f in (lambda v: nx.lax.argmax(v, 0, np.int32), lambda v: nx.lax.top_k(v, 2)):
            with pytest.raises(nx.errors.ParameterError, match="hold the last"):
                nx.eval_shape(f, x)
    with pytest.raises(nx.errors.ParameterError, match="wider"):
        nx.lax.argmin(jnp.zeros(300), 0, np.int8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_top_k_has_the_total_order(dtype):
    x = np.array([0.0, -0.0, 0.0, np.nan, -np.nan, 1.0, -1.0, -np.inf, -0.0], np.float32)
    x = jnp.asarray(x).astype(dtype)
    for k in (2, 5, 9):
        want = jax.lax.top_k(jax.numpy.asarray(np.asarray(x)), k)
        for f in (lambda v, k=k: nx.lax.top_k(v, k), nx.jit(lambda v, k=k: nx.lax.top_k(v, k))):
            values, places = f(x)
            assert np.asarray(values).tobytes() == np.asarray(want[0]).tobytes()
            assert places.tolist() == want[1].tolist()


def test_histogram_of_half_precision_counts_in_single():
    for dtype in "float16", "bfloat16":
        x = jnp.asarray(np.random.RandomState(0).randn(30000), dtype)
        y, edges = jnp.histogram(x, bins=4)
        assert y.dtype == edges.dtype == x.dtype
        right, _ = np.histogram(np.asarray(x, float), np.asarray(edges, float))
        np.testing.assert_allclose(np.asarray(y, float), right, rtol=5e-3)
        shares = np.asarray(jnp.histogram(x, bins=4, density=True)[0], float)
        np.testing.assert_allclose(shares @ np.diff(np.asarray(edges, float)), 1, rtol=1e-2)
