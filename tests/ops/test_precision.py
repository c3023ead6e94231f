"""Products in passes of bfloat16, against sums in float64."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.interop import from_jax, from_stablehlo
from nxjax.ops.precision import canonical_precision
from nxjax.vendors.stablehlo import host

# The largest error, relative to the sum of magnitudes, and the smallest that a run with fewer passes could have.
ERRORS = {1: (2**-8, 2**-12), 3: (2**-15, 2**-20), 6: (2**-21, 0.0), 9: (2**-21, 0.0)}
NAME = {1: "BF16_BF16_F32", 3: "BF16_BF16_F32_X3", 6: "BF16_BF16_F32_X6", 9: "BF16_BF16_F32_X9"}
NUMBERS = np.random.default_rng(0)
X, Y = (NUMBERS.normal(size=s).astype(np.float32) for s in ((24, 96), (96, 40)))


def error(got, x, y):
    """The largest, relative to the sum of magnitudes."""
    exact = x.astype(np.float64) @ y.astype(np.float64)
    scale = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    return (np.abs(np.asarray(got, np.float64) - exact) / scale).max()


@pytest.mark.parametrize("count", ERRORS)
@pytest.mark.parametrize("offset", [0, 1000])
def test_more_passes_are_more_exact(count, offset):
    x, most, least = X + np.float32(offset), *ERRORS[count]
    product = lambda a, b: lax.dot(a, b, precision=NAME[count])
    for f in (product, nx.jit(product)):
        assert least < error(f(nx.array(x), nx.array(Y)), x, Y) < most


def test_one_pass_rounds_both_operands():
    rounded = [v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (X, Y)]
    for f in (lambda f: f, nx.jit):
        got = f(lambda a, b: lax.dot(a, b, precision="bfloat16"))(nx.array(X), nx.array(Y))
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, rounded[0] @ rounded[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("bfloat16", NAME[1]), ("bfloat16_3x", NAME[3]), (NAME[6], NAME[6]),
        (lax.DotAlgorithmPreset.BF16_BF16_F32_X9, NAME[9]),
        (jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3, NAME[3]),
        (lax.DotAlgorithm("bfloat16", "bfloat16", "float32", num_primitive_operations=6), NAME[6]),
        (jax.lax.DotAlgorithm("bfloat16", "bfloat16", "float32"), NAME[1]),
    ],
)  # fmt: skip
def test_all_ways_to_ask(asked, wanted):
    assert canonical_precision(asked) is lax.DotAlgorithmPreset[wanted]


@pytest.mark.parametrize("exact", ["F32_F32_F32", "TF32_TF32_F32", "tensorfloat32", "high", "fastest", None, "DEFAULT"])
def test_everything_else_is_full_precision(exact):
    assert error(nx.jit(lambda a, b: lax.dot(a, b, precision=exact))(X, Y), X, Y) < 2**-21
    with pytest.raises(nx.errors.ParameterError, match="precision: not understood"):
        lax.dot(X, Y, precision="BF16_X3")


@pytest.mark.parametrize("f", [jnp.matmul, jnp.dot, lambda x, y: jnp.einsum("ij,jk", x, y), lambda x, y: x @ y])
def test_the_default_of_the_setting(f):
    g = nx.jit(lambda x, y: f(x, y))
    before = g(X, Y)
    with nx.default_matmul_precision("bfloat16"):
        assert error(g(X, Y), X, Y) > 2**-12
        assert error(f(nx.array(X), nx.array(Y)), X, Y) > 2**-12
    np.testing.assert_array_equal(g(X, Y), before)


def test_derivatives_and_batches_are_in_passes_too():
    f = lambda x, y: lax.dot(x, y, precision=NAME[3]).sum()
    text = str(nx.make_jaxpr(nx.grad(f, (0, 1)))(X, Y))
    assert text.count("BF16_BF16_F32_X3") == 2 + 1
    back = nx.grad(lambda x: (lax.dot(x, nx.array(Y), precision=NAME[3]) ** 2).sum())(nx.array(X))
    want = 2 * (X.astype(np.float64) @ Y) @ Y.T
    assert 1e-7 < np.abs(back - want).max() / np.abs(want).max() < 1e-4
    many = nx.vmap(lambda x: lax.dot(x, Y, precision=NAME[1]))(np.stack([X, -X]))
    np.testing.assert_allclose(many[0], -many[1])
    np.testing.assert_allclose(many[0], lax.dot(X, Y, precision=NAME[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", ERRORS)
def test_what_is_not_finite_stays(count):
    x = X.copy()
    x[0, 0], x[1, 1], x[2, 2] = np.inf, np.nan, np.finfo(np.float32).max
    got = nx.jit(lambda a, b: lax.dot(a, b, precision=NAME[count]))(x, Y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got[0], np.inf * np.sign(Y[0]))
    assert np.isnan(got[1]).all()
    assert not np.isnan(got[2:]).any()
    if count > 1:  # one pass rounds to infinity
        near = np.array([[np.finfo(np.float32).max, 1]], np.float32)
        small = np.array([[0.5, 0], [1, 1]], np.float32)
        got = nx.jit(lambda a, b: lax.dot(a, b, precision=NAME[count]))(near, small)
        np.testing.assert_allclose(got, near @ small, rtol=1e-4)


@pytest.mark.parametrize("count", ERRORS)
def test_convolutions(count):
    x = NUMBERS.normal(size=(2, 9, 10, 8)).astype(np.float32)
    w = NUMBERS.normal(size=(3, 3, 4, 6)).astype(np.float32)

    def conv(x, w, precision=None):
        numbers = ("NHWC", "HWIO", "NHWC")
        kinds = {"dimension_numbers": numbers, "feature_group_count": 2, "precision": precision}
        return lax.conv_general_dilated(x, w, (2, 1), "SAME", **kinds)

    exact = conv(nx.array(x, jnp.float64), nx.array(w, jnp.float64))
    scale = np.asarray(conv(nx.array(np.abs(x), jnp.float64), nx.array(np.abs(w), jnp.float64)))
    most, least = ERRORS[count]
    for f in (conv, nx.jit(conv, static_argnames="precision")):
        assert (
            least
            < (np.abs(np.asarray(f(nx.array(x), nx.array(w), precision=NAME[count])) - exact) / scale).max()
            < most
        )
    patches = lax.conv_general_dilated_patches(nx.array(x), (3, 3), (1, 1), "SAME", precision="bfloat16")
    assert set(np.unique(patches)) <= {*np.unique(x), 0}


def test_other_dtypes_keep_their_own():
    for dtype in (jnp.float64, jnp.float16, jnp.int32, jnp.complex64):
        x = nx.array(np.round(4 * X), dtype)
        f = lambda x, p: lax.dot(x, x.T, precision=p)
        np.testing.assert_array_equal(f(x, "bfloat16_3x"), f(x, None))
        np.testing.assert_array_equal(
            nx.jit(f, static_argnums=1)(x, "bfloat16_3x"), nx.jit(f, static_argnums=1)(x, None)
        )


@pytest.mark.parametrize("count", [1, 3, 6])
def test_stablehlo_says_it_and_reads_it(count):
    f = nx.jit(lambda x, y: lax.dot(x, y, precision=NAME[count]))
    text = f.lower(X, Y).as_text("stablehlo")
    assert f"num_primitive_operations = {count}" in text
    assert error(host(text, from_stablehlo(text, trusted=True).program)((X, Y))[0], X, Y) < 2**-7
    theirs = jax.jit(lambda x, y: jax.lax.dot(x, y, precision=NAME[count]))
    most, least = ERRORS[count]
    for back in (from_stablehlo(text, trusted=True), from_jax(theirs)):
        assert least < error(nx.tree.leaves(back(X, Y))[0], X, Y) < most
