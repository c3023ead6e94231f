"""Weights of convolutions in panels: what the machine code writes is what is meant, and what NumPy makes of floats."""

import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.matrix_unit import SIDE
from nxjax.kernels.cpu.tile_weights import TileWeights
from tests.kernels.cpu.running import run


def packed(w, zero=0, scales=None, last=127, name=None, deep=SIDE):
    """``w`` [groups, runs, depth, outputs]; its panels and starts."""
    groups, count, depth, outputs = w.shape
    n = w.itemsize * outputs
    kernel = TileWeights(
        w.dtype, groups, outputs, tuple(r * depth * n for r in range(count)), depth, (n, count * depth * n),
        last if scales is not None else 0, zero, deep,
    )  # fmt: skip
    xs = [w] if scales is None else [w, scales]
    found = run(kernel, *xs, name=name, cuts=[1] if kernel.items > 1 else None)
    for y, wanted in zip(found, kernel.meaning(*xs), strict=True):
        np.testing.assert_array_equal(y, wanted)
    assert tuple(y.nbytes for y in found) == kernel.sizes
    return found


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("zero", [0, 5, -128])
def test_weights_of_floats(zero, name):
    """Rounded to the nearest integer, halves to even ones, what is no number to 0; as NumPy does."""
    rng = np.random.default_rng(2)
    for groups, outputs, depth, last in ((1, 33, 5, 127), (2, 16, 64, 7), (1, 3, 1, 127)):
        w = (rng.standard_normal((groups, 2, depth, outputs)) * 90).astype(np.float32)
        w.reshape(-1)[:4] = np.nan, np.inf, 2.5, -1e9
        scales = rng.choice([0.5, 1.0, 3.0], (groups, outputs)).astype(np.float32)
        deep = (1, SIDE)[groups - 1]
        panels, starts = packed(w, zero, scales, last, name, deep)
        q = np.clip(np.nan_to_num(np.rint(w / scales[:, None, None])), -last, last).astype(np.int64)
        assert starts.reshape(groups, -1)[:, :outputs].tolist() == (q.sum((1, 2)) * -zero).tolist()
        assert panels.astype(np.int8).astype(np.int64).sum() == q.sum()
