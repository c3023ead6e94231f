import itertools

import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem
from nxjax.kernels.cpu.pool import TAPS, Pool
from tests.kernels.cpu.running import ISAS, run


def prepared(combine, dtype, channels, taps, lanes, block, out=None):
    n, h, w = 2, 7, 9
    item, out = np.dtype(dtype).itemsize, np.dtype(out or dtype)
    low = taps // 2
    axes = (
        NONE,
        ConvAxis(
            h, h, taps, 1, 1, low, w * channels * item, taps * channels * out.itemsize, w * channels * out.itemsize
        ),
        ConvAxis(w, w, taps, 1, 1, low, channels * item, channels * out.itemsize, channels * out.itemsize),
    )
    problem = ConvProblem(
        n, channels, 1, 1, axes, h * w * channels * item, 0, 0, channels * 4, 0, 0, h * w * channels * out.itemsize, 0
    )
    pad = {"max": -50, "min": 50}.get(combine, 0)
    return Pool(problem, combine, np.dtype(dtype), pad, out, block, lanes), (n, h, w, channels)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    ("channels", "taps"), [*itertools.product((1, 3, 8, 21, 40), (1, 3, 9)), (21, 8), (21, 16), (40, 16)]
)
def test_against_the_meaning(name, channels, taps):
    """Whole numbers; nine by nine taps are more than the table holds, eight by eight fill it, sixteen four of it."""
    assert TAPS == 8 * 8
    rng = np.random.default_rng(0)
    for combine, dtype, out in (
        ("max", "float32", None), ("min", "int8", None), ("sum", "float32", None), ("sum", "int16", "int32"),
        ("dot", "float32", None), ("dot", "int16", "int32"), ("dot", "int32", None),
    ):  # fmt: skip
        lanes = isa.named(name).lanes(4)
        block = (4, 2) if channels >= 2 * lanes else (6, 1)
        kernel, shape = prepared(combine, dtype, channels, taps, lanes, block, out)
        x = rng.integers(-40, 40, shape).astype(dtype)
        operands = [x]
        if combine == "dot":
            w = rng.integers(-9, 9, (taps, taps, channels))
            if dtype == "int16":  # two taps are one number
                rows = np.concatenate([w.reshape(-1, channels), np.zeros((taps % 2, channels), int)])
                low, high = rows[::2], rows[1::2]
                w = (low & 0xFFFF) | (high << 16)
            operands.append(w.astype(out or dtype))
        (wanted,) = kernel.meaning(*operands)
        for cuts in (None, [1, 5]):
            (y,) = run(kernel, *operands, name=name, cuts=cuts)
            np.testing.assert_array_equal(y, wanted, err_msg=kernel.key)
