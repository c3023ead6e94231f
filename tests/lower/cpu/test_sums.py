"""Long sums lose few digits: every kind of kernel that sums, in float32 against float64, on every instruction set.

One running sum of a million float32s is wrong in the fourth digit or so, and sticks where it is 2**24 times its next
term. Terms are equal where that is possible: their roundings do not cancel.
"""

from functools import cache, lru_cache

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.kernels.cpu import isa

LONG = 1_000_003


def equal(*shape):
    return np.full(shape, 0.1, np.float32)


def normal(*shape):
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def normed(x, axes):
    centred = x - x.mean(axes, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)


def gradient(f):
    return nx.grad(lambda x: (f(x) * jnp.sin(x)).sum())


def windows(x):
    return lax.reduce_window(x, x.dtype.type(0), lax.add, (50_021, 1), (1, 1), "VALID")


def apart(x):
    return lax.conv_general_dilated(
        x, x.transpose(1, 0, 2), (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=x.shape[2]
    )


def weights(x, groups=1):
    """The gradient of the weights of three taps: they are products with a window as long as ``x``."""
    w = jnp.ones((3, x.shape[2] // groups, x.shape[2]), x.dtype)
    layout = ("NWC", "WIO", "NWC")
    made = lambda w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=layout, feature_group_count=groups)
    return nx.grad(lambda w: (made(w) * x).sum())(w)


# What is computed, of what, and how wrong the worst element may be, in eps of the largest one.
CASES = {
    "columns": (lambda x: x.sum(0), lambda: equal(LONG, 3), 16),
    "columns of some vectors": (lambda x: x.sum(0), lambda: equal(50_021, 100), 16),
    "columns that are not cut": (lambda x: x.sum(0), lambda: equal(4_099, 7), 16),
    "columns of whole rows": (lambda x: x.sum(0), lambda: equal(8_009, 640), 16),
    "columns of repeated rows": (
        lambda x: jnp.broadcast_to(x, (LONG, 1, 8)).sum(0), lambda: equal(1, 8), 16),
    "columns over two axes": (lambda x: x.sum((0, 1)), lambda: equal(1000, 1000, 3), 16),
    "columns over two axes apart": (lambda x: x.sum((0, 2)), lambda: equal(1000, 3, 300, 2), 16),
    "columns, products": (lambda x: (1 + x * 1e-7).prod(0), lambda: equal(60_013, 5), 60_013 / 2),
    "columns, two sums": (lambda x: (x.sum(0), (x * x).sum(0)), lambda: equal(LONG, 3), 16),
    "columns, mean and variance": (lambda x: (x.mean(0), x.var(0)), lambda: normal(LONG, 3), 8),
    "columns in the middle": (lambda x: x.sum(1), lambda: equal(11, 99_991, 3), 16),
    "rows": (lambda x: x.sum(1), lambda: equal(3, LONG), 24),
    "one row": (lambda x: x.sum(), lambda: equal(LONG), 24),
    "rows that are not cut": (lambda x: x.sum(1), lambda: equal(40, 30_011), 24),
    "rows over two axes": (lambda x: x.sum((0, 2)), lambda: equal(20_011, 3, 53), 24),
    "rows over two axes in another order": (lambda x: x.sum((0, 2)), lambda: equal(53, 3, 20_011), 24),
    "rows, two passes": (lambda x: (x - x.mean(1, keepdims=True) + 1).sum(1), lambda: equal(30, 40_009), 24),
    "softmax of columns": (lambda x: nn.softmax(x, 0), lambda: normal(LONG, 3), 8),
    "softmax of equal columns": (lambda x: nn.softmax(x, 0), lambda: equal(LONG, 2), 16),
    "softmax of rows": (lambda x: nn.softmax(x, 1), lambda: normal(3, LONG), 8),
    "log of softmax": (lambda x: nn.log_softmax(x, 0), lambda: normal(LONG, 3), 8),
    "softmax's tangent": (
        lambda x: nx.jvp(lambda x: nn.softmax(x, 0), (x,), (jnp.cos(x),))[1], lambda: normal(LONG, 3), 8),
    "softmax's gradient": (gradient(lambda x: nn.softmax(x, 0)), lambda: normal(200_003, 3), 8),
    "gradient of the log of a sum of exponentials": (
        nx.grad(lambda x: nn.logsumexp(x, (0, 1)).sum()), lambda: normal(1000, 1000, 3), 8),
    "a norm": (lambda x: normed(x, (0, 1)), lambda: normal(1000, 1000, 3), 8),
    "a norm's gradient": (gradient(lambda x: normed(x, (0, 1))), lambda: normal(1000, 1000, 3), 12),
    "a norm's gradient over one axis": (gradient(lambda x: normed(x, 0)), lambda: normal(65_537, 10), 12),
    "a norm's gradient over three axes": (gradient(lambda x: normed(x, (0, 1, 2))), lambda: normal(32, 97, 97, 3), 12),
    "a layer's norm": (gradient(lambda x: normed(x, 1)), lambda: normal(3, 300_007), 12),
    "windows": (windows, lambda: equal(50_023, 2), 100),
    "a product with ones": (lambda x: jnp.ones(x.shape[0], x.dtype) @ x, lambda: normal(300_007, 3) ** 2, 80),
    "products of columns": (lambda x: jnp.einsum("ij,ij->j", x, x), lambda: normal(300_007, 3), 40),
    "products of long columns": (lambda x: jnp.einsum("ij,ij->j", x, x), lambda: equal(4_000_037, 2), 40),
    "a long product of a vector with itself": (lambda x: x @ x, lambda: equal(9_000_011), 40),
    "a long product with ones": (lambda x: jnp.ones(x.shape[0], x.dtype) @ x, lambda: equal(4_000_037, 2), 40),
    "a long product of matrices": (lambda x: x @ x.T, lambda: equal(6, LONG), 40),
    "a long product of complex vectors": (lambda x: jnp.vdot(z := x + 1j * x[::-1], z).real, lambda: equal(LONG), 40),
    "the factor of a tall matrix": (lambda x: abs(jnp.linalg.qr(x)[1]), lambda: normal(200_003, 3) ** 2, 16),
    "a convolution": (
        lambda x: lax.conv_general_dilated(x[None, None], jnp.ones((1, 1, 20_011), x.dtype), (20_011,), "VALID"),
        lambda: normal(100_055) ** 2, 80),
    "a convolution with a window as long as its input": (
        lambda x: lax.conv_general_dilated(x[None, None], x[None, None], (1,), "VALID"), lambda: equal(LONG), 48),
    "a convolution of many features": (
        lambda x: lax.conv_general_dilated(x[None], x[None], (1, 1), "VALID"), lambda: equal(10_007, 3, 3), 48),
    "a convolution of channels apart": (apart, lambda: equal(1, LONG, 3), 48),
    "a convolution of channels apart, few": (apart, lambda: equal(1, 4_999, 3), 48),
    "the gradient of weights": (weights, lambda: normal(2, 200_003, 3) ** 2, 8),
    "the gradient of weights of channels apart": (lambda x: weights(x, 8), lambda: normal(4, 50_021, 8) ** 2, 8),
    "long windows": (
        lambda x: lax.reduce_window(x, x.dtype.type(0), lax.add, x.shape, (1,), "VALID"), lambda: equal(3_999_971), 32),
}  # fmt: skip


@lru_cache(1)
def made(name):
    """The sets of instructions have the same numbers, one after another."""
    return CASES[name][1]()


@cache
def wanted(name):
    with nx.enable_x64():
        return [np.asarray(y) for y in nx.tree.leaves(nx.jit(CASES[name][0])(made(name).astype(np.float64)))]


@pytest.mark.parametrize("reproducible", [False, True], ids=["", "reproducible"])
@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("case", CASES)
def test_long_sums_lose_few_digits(case, name, reproducible):
    f, _, bound = CASES[case]
    with nx.config.using(executor="cpu", cpu_isa=name, reproducible=reproducible):
        got = [np.asarray(y) for y in nx.tree.leaves(nx.jit(f)(made(case)))]
    for y, exact in zip(got, wanted(case), strict=True):
        assert y.dtype == np.float32
        assert exact.dtype == np.float64
        wrong = np.abs(y - exact).max() / np.abs(exact).max() / np.finfo(np.float32).eps
        assert wrong <= bound, f"{wrong:.1f} eps"


@pytest.mark.parametrize("reproducible", [False, True], ids=["", "reproducible"])
def test_sums_do_not_stick(reproducible):
    """A running sum of ones is 2**24 for ever."""
    n = 20_000_000
    with nx.config.using(executor="cpu", reproducible=reproducible):
        total = nx.jit(lambda x: jnp.broadcast_to(x, (n, 1, 8)).sum(0))(np.ones((1, 8), np.float32))
        constant = nx.jit(lambda: jnp.ones((n, 2)).sum(0))()
        window = nx.jit(lambda x: lax.conv_general_dilated(x, x, (1,), "VALID"))(np.ones((1, 1, n), np.float32))
    np.testing.assert_array_equal(np.asarray(total), n)
    np.testing.assert_array_equal(np.asarray(constant), n)
    np.testing.assert_array_equal(np.asarray(window), n)
