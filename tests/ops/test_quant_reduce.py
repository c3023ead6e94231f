"""Quantized means, sums and average pools: bit for bit in every way of running, straight-through, batched."""

import numpy as np
import pytest
from hypothesis import given, settings

from nxjax.errors import NxError
from nxjax.ops.fixed import reduce as fixed
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_reduce import qavgpool, qmean, qsum
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.window import reduce_window_sum
from nxjax.testing import bad, check_op, sample
from nxjax.trace.types import ArrayType
from tests.ops.quant_cases import I8, I16, Draw, draws, loops, meanings, same, straight_through, unclamped

G = Grid(I8, 0.05, 3)
TOTALS = {"qmean": qmean, "qsum": qsum}


def total(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    x, y = d.grid(dtype), d.grid(dtype)
    shape = d.shape(d.size(1, 4))
    axes = tuple(sorted(d.rng.choice(len(shape), d.size(0, len(shape)), replace=False).tolist()))
    return [d.on(x, shape)], {"axes": axes, "x_grid": x, "y_grid": y, "rounding": d.rounding()}


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("name", sorted(TOTALS))
@settings(max_examples=10)
@given(d=draws)
def test_totals(name: str, dtype: np.dtype, d: Draw):
    args, params = total(d, dtype)
    y = meanings(TOTALS[name], args, params)
    kernel = {"qmean": fixed.mean, "qsum": fixed.sum}[name]
    stored = kernel(params["x_grid"].quantize(args[0]), params["x_grid"], params["y_grid"], params["axes"],
                    params["rounding"])  # fmt: skip
    same(params["y_grid"].quantize(y), np.asarray(stored))


@pytest.mark.parametrize("name", sorted(TOTALS))
@given(d=draws)
def test_totals_are_straight_through(name: str, d: Draw):
    op = TOTALS[name]
    args, params = total(d, d.choice(I8, I16))
    axes = params["axes"]
    count = np.prod([args[0].shape[a] for a in axes]) if name == "qmean" else 1
    kept = unclamped(op.eval(*args, **params), params["y_grid"], *params["y_grid"].limits)
    straight_through(op, args, params, lambda v: reduce_sum(v, axes=axes) / np.float32(count), args, kept)


@pytest.mark.parametrize("name", sorted(TOTALS))
@settings(max_examples=10)
@given(d=draws)
def test_totals_are_batched(name: str, d: Draw):
    args, params = total(d, d.choice(I8, I16))
    loops(TOTALS[name], [args] + [[d.on(params["x_grid"], args[0].shape)] for _ in range(2)], params)


def pool(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    g = d.grid(dtype)
    rank = d.size(1, 4)
    window = tuple(d.size(1, 3) for _ in range(rank))
    shape = tuple(w + d.size(0, 4) for w in window)
    padding = tuple((d.size(0, w - 1), d.size(0, w - 1)) for w in window)
    strides = tuple(d.size(1, 3) for _ in range(rank))
    return [d.on(g, shape)], {
        "grid": g, "window_dimensions": window, "window_strides": strides, "padding": padding,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=12)
@given(d=draws)
def test_pools(dtype: np.dtype, d: Draw):
    args, params = pool(d, dtype)
    y = meanings(qavgpool, args, params)
    g = params["grid"]
    # Within half a step of the mean of what lies in the window, in steps of the grid.
    ones = (1,) * len(params["window_dimensions"])
    windows = {**{k: v for k, v in params.items() if k != "grid"}, "base_dilation": ones, "window_dilation": ones}
    q = g.quantize(args[0]).astype(np.float64)
    mean = reduce_window_sum.eval(q, **windows) / reduce_window_sum.eval(np.ones_like(q), **windows)
    assert np.abs(g.quantize(y).astype(int) - mean).max() <= 0.5


@given(d=draws)
def test_pools_are_straight_through(d: Draw):
    args, params = pool(d, d.choice(I8, I16))
    ones = (1,) * len(params["window_dimensions"])
    windows = {**{k: v for k, v in params.items() if k != "grid"}, "base_dilation": ones, "window_dilation": ones}
    counts = reduce_window_sum.eval(np.ones(args[0].shape, np.float32), **windows)
    kept = unclamped(qavgpool.eval(*args, **params), params["grid"], *params["grid"].limits)
    straight_through(qavgpool, args, params, lambda v: reduce_window_sum(v, **windows) / counts, args, kept)


@settings(max_examples=10)
@given(d=draws)
def test_pools_are_batched(d: Draw):
    args, params = pool(d, I8)
    loops(qavgpool, [args] + [[d.on(params["grid"], args[0].shape)] for _ in range(2)], params)


def test_the_laws_of_ops():
    x = Draw(3).on(G, (4, 6))
    params = {"axes": (1,), "x_grid": G, "y_grid": G, "rounding": "double"}
    for op in (qmean, qsum):
        check_op(
            op,
            [sample(x, differentiable=False, **params)],
            [
                bad(x, error=NxError, says="axis", **{**params, "axes": (2,)}),
                bad(x, error=NxError, says="axis", **{**params, "axes": (0, 0)}),
                bad(x, error=NxError, says="a per-tensor Grid", **{**params, "y_grid": None}),
            ],
            rtol=0.0,
        )
    windows = {"grid": G, "window_dimensions": (2, 2), "window_strides": (1, 2), "padding": ((0, 1), (0, 0))}
    check_op(
        qavgpool,
        [sample(x, differentiable=False, **windows)],
        [bad(x, error=NxError, says="window", **{**windows, "window_dimensions": (2, 2, 2)})],
        rtol=0.0,
    )


def test_large_means_do_not_overflow():
    g = Grid(I8, 1.0, 0)
    x = np.full((4096, 128), 127, np.float32)
    y = meanings(qmean, [x], {"axes": (0, 1), "x_grid": g, "y_grid": g, "rounding": "double"})
    assert y == 127


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
def test_nothing_to_reduce(dtype: np.dtype):
    """Sums of nothing are zero, means of nothing are refused, and empty batches stay empty."""
    g = Grid(dtype, 0.5)
    params = {"x_grid": g, "y_grid": g, "rounding": "double"}
    none = np.zeros((0, 3), np.float32)
    same(meanings(qsum, [none], {**params, "axes": (0,)}), np.zeros(3, np.float32))
    assert meanings(qmean, [none], {**params, "axes": (1,)}).shape == (0,)
    with pytest.raises(NxError, match="a mean of no elements"):
        qmean.infer(ArrayType((0, 3), np.dtype("float32")), **params, axes=(0,))
