"""Ragged and scaled products against JAX."""

import jax
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax

RAGGED = [
    ((((1,), (1,)), ((), ())), 0, [0], (5, 3), (2, 3, 4), ([2, 3], [1, 2])),
    ((((2,), (2,)), ((0,), (0,))), 1, [1], (2, 5, 3), (2, 3, 3, 4), ([1, 2, 1], [[1, 2, 2], [3, 0, 1]])),
    ((((0,), (0,)), ((), ())), 0, [], (5, 3), (5, 4), ([1, 1],)),
    ((((1,), (1,)), ((0,), (0,))), 1, [], (2, 5, 3), (2, 5, 4), ([[2, 3], [1, 1]],)),
    ((((2,), (1,)), ((0,), (0,))), 0, [], (4, 2, 3), (4, 3, 2), ([1, 1],)),
]


def test_ragged_products():
    rng = np.random.default_rng(0)
    for numbers, ragged, groups, first, second, sizes in RAGGED:
        x, y = (rng.normal(size=s).astype(np.float32) for s in (first, second))
        for size in sizes:
            size = np.array(size, np.int32)
            theirs = jax.lax.RaggedDotDimensionNumbers(numbers, [ragged], groups)
            ours = lax.RaggedDotDimensionNumbers(numbers, [ragged], groups)
            want = jax.lax.ragged_dot_general(x, y, size, theirs)
            got = lax.ragged_dot_general(x, y, size, ours)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=1e-5)
    with pytest.raises(TypeError):
        lax.ragged_dot_general(x, y, size, lax.RaggedDotDimensionNumbers(numbers, [ragged], [0]))


def test_scaled_products():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(ml_dtypes.float8_e4m3fn) for s in ((2, 4, 8), (2, 8, 3)))
    scales = [np.exp2(rng.integers(-2, 3, s)).astype(ml_dtypes.float8_e8m0fnu) for s in ((2, 4, 2), (2, 4, 3))]
    for kwargs in ({}, {"lhs_scale": scales[0]}, {"rhs_scale": scales[1], "preferred_element_type": "float32"}):
        theirs = {k: v if isinstance(v, str) else jax.numpy.asarray(v) for k, v in kwargs.items()}
        want = jax.lax.scaled_dot(jax.numpy.asarray(x), jax.numpy.asarray(y), **theirs)
        got = lax.scaled_dot(x, y, **kwargs)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))
    with pytest.raises(ValueError):
        lax.scaled_dot(x, y, lhs_scale=np.ones((2, 4, 3), np.float32))


def test_algorithms_are_wishes():
    for name, theirs in jax.lax.DotAlgorithmPreset.__members__.items():
        ours = lax.DotAlgorithmPreset[name]
        for a, b in (
            (theirs.supported_lhs_types, ours.supported_lhs_types),
            (
                theirs.accumulation_type and (theirs.accumulation_type,),
                ours.accumulation_type and (ours.accumulation_type,),
            ),
        ):
            assert (a and tuple(map(np.dtype, a))) == (b and tuple(map(np.dtype, b))), name
    x = nx.ones(2)
    for precision in (
        "F32_F32_F32",
        lax.DotAlgorithmPreset.TF32_TF32_F32,
        lax.DotAlgorithm("float32", "float32", "float32"),
    ):
        assert float(lax.dot(x, x, precision=precision)) == 2
    with pytest.raises(ValueError):
        lax.Tolerance()


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("out", ["int8", "int16", "int32", "float32", None])
def test_integers_times_floats(kind, out):
    """Summed as integers, the floats are cut to integers first, as in JAX."""
    x, y = np.array([[100, -3], [7, 5]], np.int8), np.array([[1.5, 2.25], [-3.75, 100.5]], kind)
    numbers = (((1,), (0,)), ((), ()))
    for a, b in ((x, y), (y, x)):
        want = jax.lax.dot_general(a, b, numbers, preferred_element_type=out)
        for wrap in (lambda f: f, nx.jit):
            got = wrap(lambda a, b: lax.dot_general(a, b, numbers, preferred_element_type=out))(a, b)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_long_dot_products_keep_their_digits():
    x = np.random.default_rng(0).random(1_000_003).astype(np.float32)
    exact = np.dot(x.astype(np.float64), x.astype(np.float64))
    for f in (nx.numpy.dot, nx.jit(nx.numpy.dot)):
        assert abs(float(f(nx.numpy.asarray(x), nx.numpy.asarray(x))) - exact) < 1e-6 * exact
