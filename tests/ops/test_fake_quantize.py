"""Onto grids and between them, and weights on theirs: bit for bit in every way of running, straight-through."""

import numpy as np
import pytest
from hypothesis import given, settings

import nxjax as nx
from nxjax.errors import NxError
from nxjax.ops.fake_quantize import STORED, quantize_dequantize, quantize_rows, quantize_weight, requantize
from nxjax.ops.quant_grid import Grid
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes
from tests.ops.quant_cases import I8, I16, Draw, draws, loops, meanings, same, straight_through, unclamped

G = Grid(I8, 0.05, 3)


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=12)
@given(d=draws)
def test_snapping(dtype: np.dtype, d: Draw):
    g = d.grid(dtype)
    low, high = g.bounds
    x = (d.rng.uniform(1.3 * low - 0.1, 1.3 * high + 0.1, d.shape())).astype(np.float32)
    # Halves of steps, and their neighbours, are where divisions differ.
    halves = ((d.rng.integers(-128, 128, x.shape) + 0.5) * g.scale).astype(np.float32)
    x = np.where(d.rng.random(x.shape) < 0.5, x, halves).astype(np.float32)
    y = meanings(quantize_dequantize, [x], {"grid": g})
    same(y, g.dequantize(g.quantize(x)))
    same(quantize_dequantize.eval(y, grid=g), y, "idempotent")


def test_snapping_odd_values():
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3.4e38])
    y = meanings(quantize_dequantize, [x], {"grid": G})
    assert y[0] == 0.0 and y[1] == G.dequantize(np.int8([127]))[0] and y[3] == 0.0
    for scale in (2.0**-126, 1e38):
        meanings(quantize_dequantize, [np.float32([1.0, -1.0, 1e38, -3e38, 0.0])], {"grid": Grid(I8, scale, 5)})


@given(d=draws)
def test_tangents_pass_inside_the_ends(d: Draw):
    g = d.grid(d.choice(I8, I16))
    low, high = g.bounds
    x = d.rng.uniform(1.5 * low - 0.1, 1.5 * high + 0.1, (11,)).astype(np.float32)
    kept = (x >= np.float32(low)) & (x <= np.float32(high))
    straight_through(quantize_dequantize, [x], {"grid": g}, lambda v: v * 1.0, [x], kept)


@settings(max_examples=8)
@given(d=draws)
def test_snapping_is_batched(d: Draw):
    loops(quantize_dequantize, [[d.rng.standard_normal((2, 3)).astype(np.float32)] for _ in range(3)], {"grid": G})


def moved(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    x, y = d.grid(dtype), d.grid(dtype)
    return [d.on(x, d.shape())], {"x_grid": x, "y_grid": y, **d.limits(y), "rounding": d.rounding()}


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=12)
@given(d=draws)
def test_from_grid_to_grid(dtype: np.dtype, d: Draw):
    args, params = moved(d, dtype)
    y = meanings(requantize, args, params)
    q = params["y_grid"].quantize(y).astype(int)
    real = np.clip(args[0].astype(np.float64) / params["y_grid"].scale + params["y_grid"].zero_point,
                   params["lo"], params["hi"])  # fmt: skip
    assert np.abs(q - real).max(initial=0) <= 1.001


@given(d=draws)
def test_from_grid_to_grid_is_straight_through(d: Draw):
    args, params = moved(d, d.choice(I8, I16))
    kept = unclamped(requantize.eval(*args, **params), params["y_grid"], params["lo"], params["hi"])
    straight_through(requantize, args, params, lambda v: v * 1.0, args, kept)


@settings(max_examples=8)
@given(d=draws)
def test_from_grid_to_grid_is_batched(d: Draw):
    args, params = moved(d, d.choice(I8, I16))
    loops(requantize, [args] + [[d.on(params["x_grid"], args[0].shape)] for _ in range(2)], params)


def test_the_laws_of_ops():
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    check_op(
        quantize_dequantize,
        [sample(x, differentiable=False, grid=G)],
        [
            bad(x.astype(np.int32), error=NxError, says="i32", grid=G),
            bad(x, error=NxError, says="a per-tensor Grid", grid=Grid(I8, (0.5, 0.5, 0.5), 0, 0)),
        ],
        rtol=0.0,
    )
    move = {"x_grid": G, "y_grid": Grid(I8, 0.1, -3), "lo": -100, "hi": 100, "rounding": "double"}
    check_op(
        requantize,
        [sample(Draw(1).on(G, (3, 4)), differentiable=False, **move)],
        [bad(x, error=NxError, says="double or single", **{**move, "rounding": "up"})],
        rtol=0.0,
    )
    check_op(
        quantize_rows,
        [sample(Draw(2).rng.standard_normal((3, 4)).astype(np.float32), differentiable=False, axes=(1,))],
        [
            bad(x, error=NxError, says="axes", axes=()),
            bad(x, error=NxError, says="axes", axes=(1, 0)),
            bad(x.astype(np.float64), error=NxError, says="f64", axes=(0,)),
        ],
        rtol=0.0,
    )
    w = np.float32([[1.0, -2.0], [0.25, 0.5]])
    check_op(
        quantize_weight,
        [sample(w, np.float32([[0.02, 0.01]]), differentiable=False, dtype=I8)],
        [
            bad(w, np.ones(2, np.float32), error=NxError, says="equal rank", dtype=I8),
            bad(w, np.ones((3, 1), np.float32), error=NxError, says="divisor", dtype=I8),
            bad(w, np.ones((1, 1), np.float32), error=NxError, says="storage dtype", dtype=np.dtype("int32")),
            bad(w.astype(np.float64), np.ones((1, 1), np.float32), error=NxError, says="f64", dtype=I8),
        ],
        rtol=0.0,
    )


@settings(max_examples=12)
@given(d=draws)
def test_rows_are_what_onnx_says_for_each(d: Draw):
    x = d.rng.standard_normal((d.size(1, 4), d.size(1, 3), d.size(1, 5))).astype(np.float32)
    x *= np.float32(10) ** d.rng.integers(-4, 4, (x.shape[0], 1, 1)).astype(np.float32)
    axes = d.choice((2,), (1, 2))
    y = meanings(quantize_rows, [x], {"axes": axes})
    rows = x.reshape(x.shape[0], -1) if axes == (1, 2) else x.reshape(-1, x.shape[2])
    for row, found in zip(rows, y.reshape(rows.shape), strict=True):
        low, high = min(row.min(), np.float32(0)), max(row.max(), np.float32(0))
        scale = (high - low) / np.float32(255)
        zero = np.rint(-low / scale)
        stored = np.clip(np.rint(row / scale) + zero, 0, 255)
        np.testing.assert_allclose(found, (stored - zero) * scale, rtol=1e-6)
    loops(quantize_rows, [[x], [-x], [x * 3]], {"axes": axes}, ("front", "back"))


def test_a_row_does_not_change_with_others_and_zeros_stay_zeros():
    x = np.float32([[1e-3, -2e-3, 0.0], [100.0, 3.0, -7.0], [0.0, 0.0, 0.0]])
    y = quantize_rows.eval(x, axes=(1,))
    assert [quantize_rows.eval(row[None], axes=(1,))[0].tolist() for row in x] == y.tolist()
    assert (y[2] == 0).all() and y[0, 2] == 0 and abs(y[0, :2] / x[0, :2] - 1).max() < 0.01
    np.testing.assert_array_equal(nx.grad(lambda x: (quantize_rows(x, axes=(1,)) * x).sum())(x), x + y)


@pytest.mark.parametrize("dtype", STORED, ids=dtypes.short_name)
@settings(max_examples=8)
@given(d=draws)
def test_weights(dtype: np.dtype, d: Draw):
    shape = (d.size(1, 3) * 2, d.size(1, 4) * 3)
    rows = (d.choice(1, 2, shape[0]), d.choice(1, 3, shape[1]))
    w = d.rng.standard_normal(shape).astype(np.float32)
    limit = float(dtypes.float_info(dtype).max) if dtype in dtypes.FLOAT else np.iinfo(np.int8).max
    if dtype == dtypes.int4:
        limit = 7.0
    scale = (np.exp(d.rng.uniform(-1, 1, rows)) / limit).astype(np.float32)
    y = meanings(quantize_weight, [w, scale], {"dtype": dtype})
    full = np.repeat(np.repeat(scale, shape[0] // rows[0], 0), shape[1] // rows[1], 1)
    stored = np.clip(w / full, -limit, limit)
    if dtype not in dtypes.FLOAT:
        same(y, np.rint(stored).astype(np.int8).astype(np.float32) * full)
    else:
        same(y, stored.astype(dtype).astype(np.float32) * full)
    loops(quantize_weight, [[w, scale], [-w, scale * 2], [w * 3, scale * 0.5]], {"dtype": dtype}, ("front", "back"))


def test_tangents_of_weights_stop_where_they_are_clipped():
    w, s = nx.array([[0.5, -3.0], [2.0, 0.1]]), nx.array([[1 / 127, 1 / 127]])
    g = nx.grad(lambda w: (quantize_weight(w, s, dtype=I8) * np.float32([[1, 2], [3, 4]])).sum())(w)
    assert g.tolist() == [[1, 0], [0, 4]]
    assert nx.grad(lambda s: quantize_weight(w, s, dtype=I8).sum())(s).tolist() == [[0, 0]]
