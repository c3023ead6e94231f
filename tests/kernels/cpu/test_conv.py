import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.conv import Conv
from nxjax.kernels.cpu.conv_blocks import WORK, block_for, vectors_for
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem, Extra
from nxjax.kernels.cpu.expression import Expression, ExpressionNode
from nxjax.ops.arithmetic import add, max
from tests.kernels.cpu.running import run

NAMES = (*isa.possible(), *(["avx512-base"] if "avx512" in isa.possible() else []))


def prepared(kind, name, shape, outputs, taps, step, low, **more):
    """A kernel for x [n, h, w, c] and weights in blocks, and operands of small numbers."""
    n, h, w, c = shape
    target, dtype = isa.named(name), WORK[kind]
    size, paired = dtype.itemsize, kind == "pairs"
    item, inputs = (2, -(-c // 2)) if paired else (size, c)
    oh, ow = (h + 2 * low - taps) // step + 1, (w + 2 * low - taps) // step + 1
    block = block_for(kind, target, outputs, n * oh * ow)
    row = block.channels * size
    out = outputs * size
    axes = (
        NONE,
        ConvAxis(h, oh, taps, step, 1, low, w * c * item, taps * inputs * row, ow * out),
        ConvAxis(w, ow, taps, step, 1, low, c * item, inputs * row, out),
    )
    problem = ConvProblem(
        n, 1, inputs, outputs, axes, h * w * c * item, size, 0, row, taps * taps * inputs * row, 0, oh * ow * out, 0
    )
    rng = np.random.default_rng(0)
    blocks = -(-outputs // block.channels)
    draw = lambda *s, dtype: rng.integers(-9, 10, s).astype(dtype)
    x = np.concatenate(
        [draw(n * h * w * c, dtype=np.int16 if paired else dtype), np.zeros(8, np.int16 if paired else dtype)]
    )
    weights = draw(
        blocks, taps, taps, inputs, block.channels, *([2] if paired else []), dtype=np.int16 if paired else dtype
    )
    return Conv(problem, kind, block, dtype, **more), x, weights, (n, oh, ow, outputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", list(WORK))
@pytest.mark.parametrize(
    "case", [((1, 7, 5, 3), 5, 3, 1, 1), ((2, 6, 6, 16), 40, 1, 1, 0), ((1, 9, 9, 7), 33, 3, 2, 1)]
)
def test_against_the_meaning(name, kind, case):
    """Small whole numbers, so that every sum is exact; cut into items in two ways."""
    kernel, x, w, shape = prepared(kind, name, *case)
    (wanted,) = kernel.meaning(x, w)
    assert wanted.shape == (shape[0], 1, *shape[1:])
    for cuts in (None, list(range(1, kernel.items))):
        (y,) = run(kernel, x, w, name=name, cuts=cuts)
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_epilogue_with_two_results(name):
    """(sum + bias, max(sum + bias + residual, 0)), bias per channel and residual per element."""
    f32 = np.dtype("float32")
    nodes = (
        ExpressionNode(add, (), (0, 1), f32),
        ExpressionNode(add, (), (3, 2), f32),
        ExpressionNode(max, (), (4, 1), f32),
    )
    outputs = 21
    kernel, x, w, shape = prepared("f32", name, (2, 5, 6, 4), outputs, 3, 1, 1)
    _, oh, ow, _ = shape
    dense = Extra(f32, oh * ow * outputs * 4, (0, ow * outputs * 4, outputs * 4), 0, True)
    row = Extra(f32, 0, (0, 0, 0), 0, True)
    kernel = Conv(
        kernel.problem, "f32", kernel.block, f32, Expression((f32,) * 3, nodes, (3, 5)), (row, dense), (dense,)
    )
    rng = np.random.default_rng(1)
    bias, residual = (rng.integers(-50, 50, s).astype(np.float32) for s in ((outputs,), shape))
    found = run(kernel, x, w, bias, residual, name=name)
    plain = Conv(kernel.problem, "f32", kernel.block, f32).meaning(x, w)[0].reshape(shape)
    np.testing.assert_array_equal(found[0].reshape(shape), plain + bias)
    np.testing.assert_array_equal(found[1].reshape(shape), np.maximum(plain + bias + residual, bias))


def test_sizes_are_no_part_of_the_code():
    a, b = (prepared("f32", isa.possible()[0], (1, n, n, c), 64, 3, 1, 1)[0] for n, c in ((28, 16), (56, 24)))
    assert a.symbol == b.symbol
    assert a.integers != b.integers


def test_blocks_fit_the_registers():
    for name in NAMES:
        target = isa.named(name)
        for outputs in range(1, 200):
            block = block_for("f32", target, outputs, 1000)
            assert block.pixels * block.vectors + block.vectors < target.registers
            assert block.vectors == vectors_for("f32", target, outputs)
