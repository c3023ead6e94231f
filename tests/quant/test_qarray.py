"""QArray: what it stands for, as a tree node, under transforms, and what it refuses."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import QArray
from nxjax.errors import DtypeError, ShapeError

R = np.random.default_rng(0)


def example(dtype: str = "int8", shape: tuple[int, ...] = (4, 6), scales: tuple[int, ...] = (2, 6)) -> QArray:
    values = nx.asarray(R.integers(-7, 8, shape).astype(np.int8)).astype(dtype)
    return QArray(values, nx.asarray(R.uniform(0.1, 2, scales).astype(np.float32)))


def blocks(q: QArray) -> np.ndarray:
    """Every entry times the scale of its block, one by one."""
    v, s = np.asarray(q.values).astype(np.float32), np.asarray(q.scale)
    y = np.empty(v.shape, np.float32)
    for i in np.ndindex(v.shape):
        y[i] = v[i] * s[tuple(a * k // n for a, n, k in zip(i, v.shape, s.shape, strict=True))]
    return y


@st.composite
def qarrays(draw: Any) -> QArray:
    pairs = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=3))
    dtype = draw(st.sampled_from(["int8", "int4", "float8_e4m3fn", "float8_e5m2"]))
    return example(dtype, tuple(k * n for k, n in pairs), tuple(k for k, _ in pairs))


@given(qarrays())
def test_what_it_stands_for(q: QArray):
    wanted = blocks(q)
    for found in (q.dequantize(), np.asarray(q), nx.asarray(q), nx.jit(lambda q: q.dequantize())(q)):
        found = np.asarray(found)
        assert found.dtype == np.float32 and np.array_equal(found, wanted)
    assert np.asarray(q, np.float64).dtype == np.float64
    assert (q.shape, q.ndim, q.dtype) == (wanted.shape, wanted.ndim, np.asarray(q.values).dtype)


@pytest.mark.parametrize(
    ("dtype", "shape", "scales", "size"),
    [("int8", (64, 32), (1, 32), 64 * 32 + 128), ("int4", (64, 32), (2, 32), 64 * 16 + 256), ("int4", (3,), (1,), 6)],
)
def test_its_size(dtype: str, shape: tuple[int, ...], scales: tuple[int, ...], size: int):
    assert example(dtype, shape, scales).nbytes == size


def test_it_is_a_node():
    q = example()
    tree = {"w": q, "b": 1.0}
    assert len(nx.tree.leaves(tree)) == 3
    shapes = nx.tree.map(lambda v: jnp.shape(v), tree)
    assert isinstance(shapes["w"], QArray) and "QArray(values=(4, 6), scale=(2, 6))" in repr(shapes)
    same = nx.tree.unflatten(nx.tree.structure(tree), nx.tree.leaves(tree))
    assert same["w"].values is q.values
    assert repr(q) == "QArray(i8[4,6], 2x6 scales)" and repr(example("int4", (), ())) == "QArray(i4[], 1 scales)"
    for c in (copy.deepcopy(q), pickle.loads(pickle.dumps(q)), nx.device_put(q)):
        assert np.array_equal(np.asarray(c), np.asarray(q))


def test_under_transforms():
    q, x = example(), nx.asarray(R.standard_normal((3, 4)).astype(np.float32))
    f = lambda q, x: x @ q.dequantize()
    wanted = np.asarray(x) @ np.asarray(q)
    np.testing.assert_allclose(nx.jit(f)(q, x), wanted, 1e-5, 1e-6)
    many = nx.tree.map(lambda v: jnp.stack([v, v]), q)
    np.testing.assert_allclose(nx.vmap(f, (0, None))(many, x)[1], wanted, 1e-5, 1e-6)
    _, ys = nx.lax.scan(lambda c, q: (c, f(q, x)), 0, many)
    np.testing.assert_allclose(ys[0], wanted, 1e-5, 1e-6)
    np.testing.assert_allclose(nx.grad(lambda x: f(q, x).sum())(x)[0], np.asarray(q).sum(1), 1e-5, 1e-5)
    g = nx.grad(lambda s: f(QArray(q.values, s), x).sum())(q.scale)
    assert g.shape == (2, 6)
    with pytest.raises(nx.errors.GradientError, match="not float"):
        nx.grad(lambda q: f(q, x).sum())(q)


def test_where_an_array_is_wanted():
    q, x = example(), nx.asarray(R.standard_normal((3, 4)).astype(np.float32))
    np.testing.assert_array_equal(x @ q, x @ nx.asarray(np.asarray(q)))
    np.testing.assert_array_equal(jnp.exp(q), jnp.exp(np.asarray(q)))
    assert jnp.asarray(q).dtype == np.float32


@pytest.mark.parametrize(
    ("values", "scale", "error"),
    [
        (np.ones((4, 6), np.int16), np.ones((1, 1), np.float32), DtypeError),
        (np.ones((4, 6), np.float32), np.ones((1, 1), np.float32), DtypeError),
        (np.ones((4, 6), np.int8), np.ones((1, 1), np.float16), DtypeError),
        (np.ones((4, 6), np.int8), np.ones((3, 1), np.float32), ShapeError),
        (np.ones((4, 6), np.int8), np.ones((8, 1), np.float32), ShapeError),
        (np.ones((4, 6), np.int8), np.ones((6,), np.float32), ShapeError),
        (np.ones((4, 6), np.int8), np.ones((0, 1), np.float32), ShapeError),
    ],
)
def test_what_does_not_fit(values: Any, scale: Any, error: type[Exception]):
    with pytest.raises(error, match="QArray"):
        QArray(values, scale).checked()
    with pytest.raises(error, match="QArray"):
        QArray(values, scale).dequantize()
