"""QArray: what it stands for, as a tree node, under transforms, and what it refuses."""

import copy
import pickle
from pathlib import Path
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


def test_what_a_stored_0_stands_for(tmp_path: Path):
    """It is added, in programs, in NumPy and in functions; it goes through files, checkpoints and trees."""
    values, scale = R.integers(0, 16, (6, 4)).astype(np.int8), R.random((2, 4)).astype(np.float32)
    least = R.normal(size=(2, 4)).astype(np.float32)
    want = values * np.repeat(scale, 3, 0) + np.repeat(least, 3, 0)
    q = QArray(*(nx.array(x) for x in (values, scale, least)))
    x = R.normal(size=(5, 6)).astype(np.float32)
    nx.quant.save(tmp_path / "q.safetensors", {"w": q})
    nx.checkpoints.save(tmp_path / "steps", {"w": q}, step=0)
    copies = [q, nx.tree.map(lambda x: x, q), nx.quant.load(tmp_path / "q.safetensors")["w"]]
    copies.append(nx.checkpoints.restore(tmp_path / "steps")["w"])
    for some in copies:
        np.testing.assert_allclose(some.dequantize(), want, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(some), want, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(some.transposed()), want.T, rtol=1e-6)
        assert some.nbytes == 24 + 2 * 32 and "least" in repr(some)
        np.testing.assert_allclose(nx.jit(lambda w, x: x @ w.dequantize())(some, x), x @ want, rtol=1e-4, atol=1e-5)
    # A policy that keeps whole numbers times scales has its own for such weights.
    f = nx.quantize(lambda p, x: x @ p["w"], "int8-weights")
    np.testing.assert_allclose(f({"w": q}, x), f({"w": nx.array(want)}, x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="least"):
        QArray(nx.array(values), nx.array(scale), nx.array(least[:1])).checked()
