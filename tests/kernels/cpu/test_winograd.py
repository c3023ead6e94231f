import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.conv import Conv
from nxjax.kernels.cpu.conv_blocks import WORK, RegisterBlock, block_for
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem, Extra
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.kernels.cpu.winograd import FEATURES, Weights, Winograd
from nxjax.ops.arithmetic import add, max
from tests.kernels.cpu.running import run

F32 = np.dtype("float32")


def problem(shape, outputs, low, high, channels):
    """x [n, h, w, c] padded by ``low`` before and ``high`` after, and weights [3, 3, c, outputs]."""
    n, h, w, c = shape
    oh, ow = h + low + high - 2, w + low + high - 2
    row, out = outputs * 4, outputs * 4
    axes = (
        NONE,
        ConvAxis(h, oh, 3, 1, 1, low, w * c * 4, 3 * c * row, ow * out),
        ConvAxis(w, ow, 3, 1, 1, low, c * 4, c * row, out),
    )
    found = ConvProblem(n, 1, c, outputs, axes, h * w * c * 4, 4, 0, row, channels * 4, 0, oh * ow * out, 0)
    return found, (n, oh, ow, outputs)


def made(name, shape, outputs, low=1, high=1, rows=3, vectors=1, run_=5, share=1, kind="f32", **more):
    """``shape`` and ``outputs`` in units of four bytes: numbers or pairs."""
    lanes, dtype = isa.named(name).lanes(4), WORK[kind]
    p, out = problem(shape, outputs, low, high, vectors * lanes)
    first = Weights(kind, p.inputs, outputs, (p.w_c, p.axes[1].w, p.axes[2].w), vectors, lanes)
    return first, Winograd(kind, p, RegisterBlock(rows, vectors, lanes), run_, share, dtype, **more), out


def computed(first, kernel, x, w, *extras, name, cuts=None):
    (u,) = run(first, w, name=name)
    return run(kernel, x, w, u, *extras, name=name, cuts=cuts)


def operands(shape, outputs, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, shape).astype(np.float32)
    return x, rng.integers(-9, 10, (3, 3, shape[-1], outputs)).astype(np.float32)


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize(
    "case",
    [
        ((1, 6, 6, 16), 32, {"vectors": 2}),
        ((2, 5, 7, 32), 48, {"run_": 3, "share": 2}),
        ((1, 1, 9, 16), 64, {"vectors": 2, "rows": 5, "run_": 10, "low": 2, "high": 0}),
        ((3, 4, 3, 16), 16, {"low": 0, "high": 3, "rows": 2, "run_": 4}),
        ((1, 8, 8, 16), 16, {"low": -1, "high": -1}),
    ],
)
def test_against_the_meaning(name, case):
    """Whole numbers, so that every sum is exact; cut into items in two ways."""
    shape, outputs, more = case
    first, kernel, out = made(name, shape, outputs, **more)
    x, w = operands(shape, outputs)
    (u,) = run(first, w, name=name, cuts=[1])
    np.testing.assert_array_equal(u, first.meaning(w)[0])
    wanted = kernel.meaning(x, w, u)[0]
    assert wanted.size == np.prod(out)
    for cuts in (None, list(range(1, kernel.items))):
        (y,) = computed(first, kernel, x, w, name=name, cuts=cuts)
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", [*isa.possible(), *(["avx512-base"] if "avx512" in isa.possible() else [])])
def test_differences_of_bytes_are_exact(name):
    """The largest and the smallest, and any others; as many of them as may be summed."""
    rng = np.random.default_rng(0)
    shape, outputs, features = (1, 5, 6, FEATURES // 16 * 16), 32, FEATURES // 16 * 32
    first, kernel, _ = made(name, shape, outputs, kind="pairs", vectors=2)
    ends = np.array([-255, 255])
    for x, w in (
        (rng.integers(-255, 256, (*shape[:3], features)), rng.integers(-128, 256, (3, 3, features // 2, outputs, 2))),
        (rng.choice(ends, (*shape[:3], features)), rng.choice(ends, (3, 3, features // 2, outputs, 2))),
        (np.full((*shape[:3], features), 255), np.full((3, 3, features // 2, outputs, 2), 255)),
        (np.full((*shape[:3], features), -255), np.full((3, 3, features // 2, outputs, 2), 255)),
    ):
        x, w = x.astype(np.int16), w.astype(np.int16)
        (u,) = run(first, w, name=name)
        np.testing.assert_array_equal(u, first.meaning(w)[0])
        (y,) = run(kernel, x, w, u, name=name)
        np.testing.assert_array_equal(y, kernel.meaning(x, w, u)[0])
        assert y.dtype == np.int32


@pytest.mark.parametrize("name", isa.possible())
def test_epilogue_with_two_results(name):
    """(sum + bias, max(sum + bias + residual, bias)), bias per channel, residual per element, one number for all."""
    nodes = (
        ExpressionNode(add, (), (0, 1), F32), ExpressionNode(add, (), (4, 2), F32),
        ExpressionNode(max, (), (5, 1), F32), ExpressionNode(add, (), (6, 3), F32),
    )  # fmt: skip
    _, oh, ow, outputs = out = (2, 5, 7, 32)
    dense = Extra(F32, oh * ow * outputs * 4, (0, ow * outputs * 4, outputs * 4), 0, True)
    row, one = (Extra(F32, 0, (0, 0, 0), 0, channels) for channels in (True, False))
    more = {"epilogue": Expression((F32,) * 4, nodes, (4, 7)), "extras": (row, dense, one), "more": (dense,)}
    first, kernel, shape = made(name, (2, 5, 7, 16), outputs, **more)
    assert shape == out
    x, w = operands((2, 5, 7, 16), outputs)
    rng = np.random.default_rng(1)
    bias, residual, number = (rng.integers(-50, 50, s).astype(np.float32) for s in ((outputs,), out, (1,)))
    found = computed(first, kernel, x, w, bias, residual, number, name=name)
    for y, z in zip(found, kernel.meaning(x, w, None, bias, residual, number), strict=True):
        np.testing.assert_array_equal(y, z)
    np.testing.assert_array_equal(found[1].reshape(out), np.maximum(found[0].reshape(out) + residual, bias) + number)


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("draw", ["normal", "positive", "scales"])
def test_error_is_near_the_plain_kernels(name, draw):
    """Against float64, largest and mean, for 16 and 256 input features."""
    rng = np.random.default_rng(0)
    for features in (16, 256):
        shape, outputs = (1, 12, 12, features), 32
        x, w = rng.normal(size=shape), rng.normal(size=(3, 3, features, outputs))
        if draw == "positive":
            x, w = rng.uniform(10, 11, x.shape), np.abs(w)
        if draw == "scales":
            x *= np.exp(3 * rng.normal(size=x.shape))
        x, w = x.astype(np.float32), w.astype(np.float32)
        first, kernel, out = made(name, shape, outputs, vectors=2, run_=9)
        block = block_for("f32", isa.named(name), outputs, 144)
        p, _ = problem(shape, outputs, 1, 1, block.channels)
        plain = Conv(p, "f32", block, F32)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        exact = np.einsum("nyxcab,abco->nyxo", windows, w.astype(np.float64), optimize=True)
        found = computed(first, kernel, x, w, name=name), run(plain, x, w, name=name)
        errors = [np.abs(y.reshape(out) - exact) for (y,) in found]
        assert errors[0].max() <= 2 * errors[1].max()
        assert np.square(errors[0]).mean() <= 2 * np.square(errors[1]).mean()


@pytest.mark.parametrize("name", isa.possible())
def test_what_is_not_finite_reaches_no_other_output(name):
    """An infinite input is infinite or NaN where a plain sum is, and a large or missing number spoils no neighbour."""
    shape, outputs = (1, 9, 8, 16), 16
    first, kernel, out = made(name, shape, outputs)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 16, outputs)).astype(np.float32)
    for value in (np.inf, -np.inf, np.nan, np.float32(2e38)):
        x = rng.normal(size=shape).astype(np.float32)
        x[0, 4, 3, 7] = value
        with np.errstate(all="ignore"):
            wanted = kernel.meaning(x, w, None)[0].reshape(out)
        y = computed(first, kernel, x, w, name=name)[0].reshape(out)
        assert (~np.isfinite(wanted)).sum() <= 9 * outputs
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)


def test_sizes_are_no_part_of_the_code():
    a, b = (made(isa.possible()[0], (1, n, n, c), 64, run_=n)[1] for n, c in ((28, 16), (56, 32)))
    assert a.symbol == b.symbol
    assert a.integers != b.integers
