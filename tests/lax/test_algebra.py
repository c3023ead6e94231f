"""`lax`'s products and transforms against `jax.lax`."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import NxError, ParameterError, ShapeError


def test_dot_of_vectors_and_matrices():
    import jax

    rng = np.random.default_rng(0)
    for xs, ys in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4))):
        x, y = rng.standard_normal(xs).astype(np.float32), rng.standard_normal(ys).astype(np.float32)
        np.testing.assert_allclose(lax.dot(x, y).numpy(), np.asarray(jax.lax.dot(x, y)), rtol=1e-5)


def test_dot_general_promotes_and_takes_lists():
    x, y = np.ones((2, 3), np.float32), np.arange(12, dtype=np.int32).reshape(3, 4)
    z = lax.dot_general(x, y, dimension_numbers=[[[1], [0]], [[], []]], precision="highest")
    assert z.dtype == np.float32
    np.testing.assert_array_equal(z.numpy(), x @ y)


def test_batch_matmul():
    x, y = np.ones((5, 2, 3), np.float32), np.ones((5, 3, 4), np.float32)
    np.testing.assert_array_equal(lax.batch_matmul(x, y).numpy(), x @ y)
    with pytest.raises(ShapeError, match="batch_matmul"):
        lax.batch_matmul(x, y[0])


def test_bad_dimension_numbers_and_shapes():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ParameterError, match="dot_general: not dimension numbers"):
        lax.dot_general(x, x, ((1,), (1,)))
    with pytest.raises(ShapeError, match="dot: not a product"):
        lax.dot(x, x)


@pytest.mark.parametrize("precision", [None, "high", "float32", lax.Precision.HIGHEST, ("default", lax.Precision.HIGH)])
def test_precision_in_every_form(precision):
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(lax.dot(x, x, precision=precision).numpy(), x @ x)


@pytest.mark.parametrize("precision", ["lowest", 3, ("high",)])
def test_no_such_precision(precision):
    with pytest.raises(ParameterError, match="precision: not understood"):
        lax.dot(np.ones(2, np.float32), np.ones(2, np.float32), precision=precision)


@pytest.mark.parametrize("kind", ["FFT", "ifft", "RFFT", "irfft", lax.FftType.FFT])
def test_fft_takes_names_and_brings_to_a_complex_dtype(kind):
    import jax

    x = np.arange(12, dtype=np.int32).reshape(2, 6)
    lengths = (10,) if kind == "irfft" else (6,)
    peer = kind if isinstance(kind, str) else kind.name
    y, expected = lax.fft(x, kind, lengths), np.asarray(jax.lax.fft(x, peer, lengths))
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ParameterError, match="fft: no such transform"):
        lax.fft(x, "dct", (6,))
    assert lax.fft(x, kind, ()).shape == x.shape


def test_every_public_name_of_jax_is_here():
    import jax

    files = {"algebra", "convolution", "windows", "nxjax.ops.dimension_numbers", "nxjax.ops.dot", "nxjax.ops.fft"}
    missing = {name for name, file in lax._HOMES.items() if file in files and not hasattr(jax.lax, name)}
    assert missing == set()
    assert all(hasattr(lax, name) for name in lax._HOMES)
    assert nx.lax.linalg.cholesky is lax.linalg.cholesky


def test_ragged_dot():
    import jax

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 3)).astype(np.float32), rng.standard_normal((4, 3, 2)).astype(np.float32)
    sizes = np.array([2, 0, 3, 0], np.int32)
    expected, pull_jax = jax.vjp(lambda a, b: jax.lax.ragged_dot(a, b, sizes), x, y)
    found, pull = nx.vjp(lambda a, b: lax.ragged_dot(a, b, sizes), x, y)
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=1e-5, atol=1e-6)
    for a, b in zip(pull(found), pull_jax(expected), strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="ragged_dot"):
        lax.ragged_dot(x, y[0], sizes)


def _message(function):
    """The text of the error, without the line that says where the caller stands."""
    with pytest.raises(NxError) as caught:
        function()
    return [line.strip() for line in str(caught.value).splitlines() if not line.strip().startswith("at:")]


def test_messages_word_for_word():
    ones = lambda *shape: np.ones(shape, np.float32)
    assert _message(lambda: lax.dot_general(ones(3, 4), ones(5, 4), (((1,), (0,)), ((), ())))) == [
        "dot_general: contracting dimensions differ in size",
        "got:      f32[3,4] and f32[5,4]: (4,) in dimensions (1,) of the first, (5,) in (0,) of the second",
        "expected: equal sizes",
        "fix:      dimension 1 of the second operand has size 4: is it the one to contract?",
        "docs:     nxjax explain ShapeError",
    ]
    layouts = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    assert _message(
        lambda: lax.conv_general_dilated(ones(1, 8, 8, 3), ones(3, 3, 4, 16), (1, 1), "SAME", **layouts)
    ) == [
        "conv_general_dilated: input features do not fit the kernel",
        "got:      3 features of the input f32[1,8,8,3]; kernel f32[3,3,4,16] with 4 input features",
        "expected: 4 features of the input",
        "fix:      check dimension_numbers",
        "docs:     nxjax explain ShapeError",
    ]
    assert _message(lambda: lax.linalg.cholesky(ones(2, 3))) == [
        "cholesky: the matrix is not square",
        "got:      f32[2,3]",
        "expected: [..., n, n]",
        "docs:     nxjax explain ShapeError",
    ]


@pytest.mark.parametrize("wanted", ["int32", "float32", "bfloat16", "int8", "complex64", "bool"])
def test_products_of_truth_values_count_in_the_dtype_that_is_asked_for(wanted):
    import jax

    x, numbers = np.ones((5, 2), bool), (((0,), (0,)), ((), ()))
    ours = lax.dot_general(x, x, numbers, preferred_element_type=wanted)
    theirs = jax.lax.dot_general(x, x, numbers, preferred_element_type=wanted)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
