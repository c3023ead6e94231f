"""LU by blocks: the factors of the matrix, with the largest pivots."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_lu import LuBlocks
from tests.kernels.cpu import running
from tests.kernels.cpu.running import ISAS, run

SHAPES = (
    (1, 1, 1),
    (3, 4, 4),
    (2, 21, 3),
    (2, 3, 37),
    (4, 20, 20),
    (1, 67, 65),
    (1, 40, 190),
    (1, 190, 40),
    (1, 160, 150),
)


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_are_of_the_matrix(shape, dtype, isa_name):
    count, m, n = shape
    k = min(m, n)
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    y, pivots, order = run(LuBlocks(np.dtype(dtype), *shape), x, name=isa_name, cuts=[count // 2])
    lower = np.tril(y[..., :k].astype("f8"), -1) + np.eye(m, k)
    assert abs(lower).max() <= 1
    wanted = np.take_along_axis(x, order[..., None], -2)
    np.testing.assert_allclose(lower @ np.triu(y[:, :k]), wanted, rtol=0, atol=20 * k * np.finfo(dtype).eps)
    for swaps, numbers in zip(pivots, order, strict=True):
        rows = list(range(m))
        for i, p in enumerate(swaps):
            rows[i], rows[p] = rows[p], rows[i]
        assert rows == list(numbers)


@pytest.mark.parametrize("isa_name", ISAS)
def test_pivots_are_those_of_eval(isa_name):
    """The first of equal ones; NaN is larger than all; a column of zeros stays."""
    kernel = LuBlocks(np.dtype("f4"), 4, 40, 37)
    x = np.random.default_rng(0).standard_normal((4, 40, 37)).astype("f4")
    x[0, :, 0] = 0
    x[1, :, 0] = np.round(x[1, :, 0])
    x[2, -1, 0] = np.nan
    x[3, 39, 0] = np.inf
    with np.errstate(all="ignore"):
        y, pivots, order = run(kernel, x, name=isa_name)
        wanted = kernel.meaning(x)
    np.testing.assert_array_equal(pivots[:2], wanted[1][:2])
    np.testing.assert_array_equal(pivots[2:, 0], wanted[1][2:, 0])
    np.testing.assert_array_equal(order[:2], wanted[2][:2])
    np.testing.assert_allclose(y[:2], wanted[0][:2], atol=1e-4)
    assert (y[0, :, 0] == 0).all()
    assert all(sorted(row) == list(range(40)) for row in order)


@pytest.mark.parametrize("isa_name", ISAS)
def test_nothing_is_computed_of_what_lay_in_scratch(isa_name, monkeypatch):
    """Numbers below the normal range take many times as long: whether a call was slow hung on what ran before it."""
    left, guarded = [], running.guarded

    def noted(nbytes, fill, name, *align):
        piece, raw = guarded(nbytes, fill, name, *align)
        left.extend([(piece, raw)] if name == "scratch memory" else [])
        return piece, raw

    monkeypatch.setattr(running, "guarded", noted)
    for m, n in ((37, 37), (20, 50), (50, 20)):
        left.clear()
        kernel = LuBlocks(np.dtype("f4"), 1, m, n)
        run(kernel, np.random.default_rng(1).standard_normal((1, m, n)).astype("f4"), name=isa_name)
        _, raw = left[0]  # filled with NaN before
        assert np.isfinite(raw[: kernel.high * kernel.stride * 4].view("f4")).all()
