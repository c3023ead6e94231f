"""Quantized products: bit for bit in every way of running, over layouts, groups, strides, dilations and batches."""

import numpy as np
import pytest
from hypothesis import given, settings

import nxjax as nx
from nxjax.errors import NxError
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.dot import dot_general
from nxjax.ops.fake_quantize import quantize_weight, weight_integers
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_products import bias_limit, qconv, qdot, qmatmul, stored_bias
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes
from tests.ops.quant_cases import I8, I16, Draw, draws, loops, meanings, same, straight_through, unclamped

G = Grid(I8, 0.05, 3)
# x, w, ((contracting), (batch))
DOTS = [
    ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    ((2, 3, 4), (5, 4), (((2,), (1,)), ((), ()))),
    ((4,), (4, 2), (((0,), (0,)), ((), ()))),
    ((3, 4), (4,), (((1,), (0,)), ((), ()))),
    ((2, 3, 4), (4, 3, 5), (((2, 1), (0, 1)), ((), ()))),
    ((2, 6, 3), (6, 4, 2), (((1,), (0,)), ((0,), (2,)))),
    ((3, 2), (2, 2, 3), (((1,), (0,)), ((), ()))),
]


def shared(d: Draw, dtype: np.dtype) -> dict:
    x = d.grid(dtype, 1e-2, 1.0)
    y = d.grid(dtype, 1e-2, 1.0)
    w = d.choice(dtypes.int8, dtypes.int8, dtypes.int4)
    return {"x_grid": x, "y_grid": y, **d.limits(y), "w_dtype": w, "rounding": d.rounding()}


def dot_operands(d: Draw, case: tuple, params: dict) -> list[np.ndarray]:
    xs, ws, ((_, wc), (_, wb)) = case
    w, scale = d.weights(ws, wc)
    if params["w_dtype"] == dtypes.int4:
        scale = scale * np.float32(16)
    channels = [ws[i] for i in (*wb, *(i for i in range(len(ws)) if i not in (*wb, *wc)))]
    b = d.rng.standard_normal(channels).astype(np.float32)
    return [d.on(params["x_grid"], xs), w, scale, b]


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("case", DOTS, ids=lambda c: f"{c[0]}x{c[1]}")
@settings(max_examples=4)
@given(d=draws)
def test_dot(case: tuple, dtype: np.dtype, d: Draw):
    params = {**shared(d, dtype), "dimension_numbers": case[2]}
    args = dot_operands(d, case, params)
    y = meanings(qdot, args, params)
    x, w, scale, b = args
    # Against real numbers: within a step and a half.
    snapped = quantize_weight.eval(w, scale, dtype=params["w_dtype"])
    real = dot_general.eval(x.astype(np.float64), snapped.astype(np.float64), dimension_numbers=case[2])
    lead = len(case[2][1][1])
    real = real + b.reshape((*b.shape[:lead], *(1,) * (real.ndim - b.ndim), *b.shape[lead:]))
    g = params["y_grid"]
    want = np.clip(real / g.scale + g.zero_point, params["lo"], params["hi"])
    coarse = np.float64(params["x_grid"].scale) * scale.max() / g.scale
    # Weights of 16-bit activations have multipliers of 16 bits: one part in 2**15.
    slack = 0.501 + coarse / 2 + (np.abs(want).max() * 2**-14 if dtype == I16 else 0)
    assert np.abs(g.quantize(y).astype(float) - want).max() <= slack


@given(d=draws)
def test_dots_are_straight_through(d: Draw):
    case = DOTS[d.size(0, len(DOTS) - 1)]
    params = {**shared(d, d.choice(I8, I16)), "dimension_numbers": case[2]}
    x, w, scale, _ = args = dot_operands(d, case, params)
    snapped = quantize_weight.eval(w, scale, dtype=params["w_dtype"])
    limit = 7.5 if params["w_dtype"] == dtypes.int4 else 127.5
    held = (np.abs(w) <= limit * np.broadcast_to(scale, w.shape)).astype(np.float32)
    kept = unclamped(qdot.eval(*args, **params), params["y_grid"], params["lo"], params["hi"])
    # The snapped weights, with the tangent of those that are not clipped.
    plain = lambda x, v: dot_general(x, v * held + snapped * (1 - held), dimension_numbers=case[2])
    straight_through(qdot, args, params, plain, [x, np.where(held > 0, snapped, 0)], kept, 1e-4)


def test_the_bias_is_differentiated_per_channel():
    d = Draw(4)
    args = dot_operands(d, DOTS[0], {"x_grid": G, "w_dtype": I8})
    params = {
        "x_grid": G, "y_grid": Grid(I8, 1.0, 0), "lo": -128, "hi": 127, "w_dtype": I8, "rounding": "double",
        "dimension_numbers": DOTS[0][2],
    }  # fmt: skip
    g = nx.grad(lambda b: qdot(*map(nx.asarray, args[:3]), b, **params).sum())(nx.asarray(args[3]))
    assert g.tolist() == [3.0] * 5


@pytest.mark.parametrize("case", DOTS, ids=lambda c: f"{c[0]}x{c[1]}")
@settings(max_examples=2)
@given(d=draws)
def test_dots_are_batched(case: tuple, d: Draw):
    params = {**shared(d, d.choice(I8, I16)), "dimension_numbers": case[2]}
    loops(qdot, [dot_operands(d, case, params) for _ in range(2)], params)


def conv(d: Draw, dtype: np.dtype, small: bool = False) -> tuple[list[np.ndarray], dict]:
    """A random convolution: rank, layout, groups, strides, padding and dilations."""
    params = shared(d, dtype)
    rank = d.choice(1, 2, 2, 3) if not small else d.choice(1, 2)
    groups = d.choice(1, 1, 2, 3)
    features, outs = groups * d.size(1, 3), groups * d.size(1, 2)
    window = tuple(d.size(1, 3) for _ in range(rank))
    rhs = tuple(d.size(1, 2) for _ in range(rank))
    lhs = tuple(d.choice(1, 1, 2) for _ in range(rank))
    sizes = tuple((w - 1) * r + 1 + d.size(0, 3) for w, r in zip(window, rhs, strict=True))
    places = tuple(range(2, rank + 2))
    last = tuple(range(1, rank + 1))
    lhs_spec = d.choice((0, 1, *places), (0, rank + 1, *last))
    rhs_spec = d.choice((0, 1, *places), (rank + 1, rank, *range(rank)))
    out_spec = d.choice((0, 1, *places), (0, rank + 1, *last))

    def laid(spec: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(shape[spec.index(i)] for i in range(rank + 2))

    xs = laid(lhs_spec, (d.size(1, 2), features, *sizes))
    ws = laid(rhs_spec, (outs, features // groups, *window))
    w, scale = d.weights(ws, tuple(i for i in range(rank + 2) if i != rhs_spec[0]))
    if params["w_dtype"] == dtypes.int4:
        scale = scale * np.float32(16)
    b = d.rng.standard_normal(outs).astype(np.float32)
    params |= {
        "window_strides": tuple(d.size(1, 2) for _ in range(rank)),
        "padding": tuple((d.size(0, 2), d.size(0, 2)) for _ in range(rank)),
        "lhs_dilation": lhs, "rhs_dilation": rhs, "feature_group_count": groups,
        "dimension_numbers": ConvDimensionNumbers(lhs_spec, rhs_spec, out_spec),
    }  # fmt: skip
    return [d.on(params["x_grid"], xs), w, scale, b], params


QUANT = ("x_grid", "y_grid", "lo", "hi", "w_dtype", "rounding")


def plain_conv(params: dict):
    left = {k: v for k, v in params.items() if k not in QUANT}
    return lambda x, w: conv_general_dilated(x, w, batch_group_count=1, **left)


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=15)
@given(d=draws)
def test_conv(dtype: np.dtype, d: Draw):
    args, params = conv(d, dtype)
    y = meanings(qconv, args, params)
    x, w, scale, b = args
    snapped = quantize_weight.eval(w, scale, dtype=params["w_dtype"])
    real = plain_conv(params)(nx.asarray(x.astype(np.float64)), nx.asarray(snapped.astype(np.float64))).numpy()
    channel = params["dimension_numbers"].out_spec[1]
    real = real + b.reshape([-1 if i == channel else 1 for i in range(real.ndim)])
    g = params["y_grid"]
    want = np.clip(real / g.scale + g.zero_point, params["lo"], params["hi"])
    coarse = np.float64(params["x_grid"].scale) * scale.max() / g.scale
    slack = 1.001 + coarse / 2 + (np.abs(want).max() * 2**-14 if dtype == I16 else 0)
    assert np.abs(g.quantize(y).astype(float) - want).max(initial=0) <= slack


@settings(max_examples=15)
@given(d=draws)
def test_convs_are_straight_through(d: Draw):
    args, params = conv(d, d.choice(I8, I16), small=True)
    x, w, scale, _ = args
    snapped = quantize_weight.eval(w, scale, dtype=params["w_dtype"])
    limit = 7.5 if params["w_dtype"] == dtypes.int4 else 127.5
    held = (np.abs(w) <= limit * np.broadcast_to(scale, w.shape)).astype(np.float32)
    kept = unclamped(qconv.eval(*args, **params), params["y_grid"], params["lo"], params["hi"])
    float_conv = plain_conv(params)
    plain = lambda x, v: float_conv(x, v * held + snapped * (1 - held))
    straight_through(qconv, args, params, plain, [x, np.where(held > 0, snapped, 0)], kept, 1e-4)


@settings(max_examples=6)
@given(d=draws)
def test_convs_are_batched(d: Draw):
    args, params = conv(d, d.choice(I8, I16), small=True)
    other = [d.on(params["x_grid"], args[0].shape), args[1][::-1].copy(), args[2] * 2, args[3] + 1]
    loops(qconv, [args, other], params)


def test_sums_too_long_for_float32_are_cut():
    """A window whose sums pass 2**24, in both activations' dtypes."""
    for dtype, features in ((I8, 700), (I16, 3)):
        d = Draw(features)
        g = Grid(dtype, 1.0, 0 if dtype == I16 else -128)
        x = g.dequantize(np.full((1, 6, 6, features), 127 if dtype == I8 else 32767).astype(dtype))
        w = np.full((3, 3, features, 2), 127, np.float32)
        w[..., 1] = d.rng.integers(-127, 128, w.shape[:-1])
        params = {
            "x_grid": g, "y_grid": Grid(dtype, 1e7 if dtype == I8 else 1e4, 0), "lo": -100, "hi": 100,
            "w_dtype": I8, "rounding": "double", "window_strides": (1, 1), "padding": ((0, 0), (0, 0)),
            "lhs_dilation": (1, 1), "rhs_dilation": (1, 1), "feature_group_count": 1,
            "dimension_numbers": ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
        }  # fmt: skip
        params |= {"lo": params["y_grid"].limits[0], "hi": params["y_grid"].limits[1]}
        meanings(qconv, [x, w, np.ones((1, 1, 1, 2), np.float32), np.float32([1e6, -3.0])], params)


def matmul(d: Draw, dtype: np.dtype) -> tuple[list[np.ndarray], dict]:
    xs, ys, numbers = DOTS[d.size(0, len(DOTS) - 1)]
    x, y, out = (d.grid(dtype, 1e-2, 1.0) for _ in range(3))
    params = {
        "x_grid": x, "y_grid": y, "out_grid": out, **d.limits(out), "rounding": d.rounding(),
        "dimension_numbers": numbers,
    }  # fmt: skip
    return [d.on(x, xs), d.on(y, ys)], params


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@settings(max_examples=12)
@given(d=draws)
def test_matmul(dtype: np.dtype, d: Draw):
    args, params = matmul(d, dtype)
    y = meanings(qmatmul, args, params)
    real = dot_general.eval(*(a.astype(np.float64) for a in args), dimension_numbers=params["dimension_numbers"])
    g = params["out_grid"]
    want = np.clip(real / g.scale + g.zero_point, params["lo"], params["hi"])
    assert np.abs(g.quantize(y).astype(float) - want).max() <= 1.001 + (
        np.abs(want).max() * 2**-14 if dtype == I16 else 0
    )


@given(d=draws)
def test_matmuls_are_straight_through(d: Draw):
    args, params = matmul(d, d.choice(I8, I16))
    kept = unclamped(qmatmul.eval(*args, **params), params["out_grid"], params["lo"], params["hi"])
    plain = lambda x, y: dot_general(x, y, dimension_numbers=params["dimension_numbers"])
    straight_through(qmatmul, args, params, plain, args, kept, 1e-4)


@settings(max_examples=8)
@given(d=draws)
def test_matmuls_are_batched(d: Draw):
    args, params = matmul(d, d.choice(I8, I16))
    other = [d.on(params["x_grid"], args[0].shape), d.on(params["y_grid"], args[1].shape)]
    loops(qmatmul, [args, other], params)


def test_the_laws_of_ops():
    d = Draw(9)
    params = {
        "x_grid": G, "y_grid": G, "lo": -128, "hi": 127, "w_dtype": I8, "rounding": "double",
        "dimension_numbers": DOTS[0][2],
    }  # fmt: skip
    x, w, s, b = dot_operands(d, DOTS[0], params)
    check_op(
        qdot,
        [sample(x, w, s, b, differentiable=False, **params)],
        [
            bad(x, w, s, b[:2], error=NxError, says="one bias per output channel", **params),
            bad(x, w, np.ones((4, 1), np.float32), b, error=NxError, says="summed over", **params),
            bad(x, w, np.ones((1, 2), np.float32), b, error=NxError, says="divide", **params),
            bad(x, w, s, b, error=NxError, says="a per-tensor Grid", **{**params, "y_grid": None}),
        ],
        rtol=0.0,
    )
    args, params = conv(Draw(3), I8)
    check_op(
        qconv,
        [sample(*args, differentiable=False, **params)],
        [bad(*args[:3], args[3][:0], error=NxError, says="one bias per output channel", **params)],
        rtol=0.0,
    )
    args, params = matmul(Draw(3), I8)
    check_op(qmatmul, [sample(*args, differentiable=False, **params)], rtol=0.0)


def test_stored_weights_and_biases():
    w, s = np.float32([[1.0, -3.0, 0.249]]), np.float32([[0.01, 0.02, 0.5]])
    assert weight_integers(w, s, I8).tolist() == [[100, -127, 0]]
    assert weight_integers(w, s * 100, dtypes.int4).astype(int).tolist() == [[1, -2, 0]]
    assert stored_bias(np.float32([1.0, -1e30]), Grid(I8, 0.5, 3), np.float32([0.25, 0.25])).tolist() == [
        8, -(2**31 - 1),
    ]  # fmt: skip
    assert bias_limit(Grid(I16, 1.0)) == 2**53
    same(np.asarray(stored_bias(np.float32(1.25), Grid(I8, 0.5), np.float32(1.0))), np.asarray(2, np.int64))


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("zero", [-128, 0, 127])
@pytest.mark.parametrize("factor", [3.0, 1e6, 1e12, 1e-12])
def test_sums_that_leave_32_bits_are_the_same_compiled(factor: float, zero: int, rounding: str):
    """Results beyond the grid by so much that adding its zero point would wrap; and factors that vanish."""
    x = G.dequantize(np.int8([[127, -128, 0], [1, -1, 2]]))
    w, scale = np.float32([[1, -1], [1, -1], [1, -1]]) * 127, np.ones((1, 2), np.float32)
    y_grid = Grid(I8, float(np.float32(G.scale / factor)), zero)
    b = np.float32([1e9, -1e9]) * G.scale
    params = {"x_grid": G, "y_grid": y_grid, "lo": -128, "hi": 127, "w_dtype": dtypes.int8, "rounding": rounding}
    y = meanings(qdot, [x, w, scale, b], {**params, "dimension_numbers": (((1,), (0,)), ((), ()))})
    if rounding == "double" and factor > 1:
        same(y_grid.quantize(y), np.int8([[127, -128], [127, -128]]), "saturated")
    image, kernel = x.reshape(2, 1, 1, 3), w.reshape(1, 1, 3, 2)
    window = {"window_strides": (1, 1), "padding": ((0, 0), (0, 0)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1)}
    numbers = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    conv = {**window, "feature_group_count": 1, "dimension_numbers": numbers}
    meanings(qconv, [image, kernel, scale.reshape(1, 1, 1, 2), b], {**params, **conv})


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
@pytest.mark.parametrize("factor", [1e-12, 3.0, 1e6, 1e12])
def test_matmuls_by_factors_beyond_every_shift_are_the_same_compiled(factor: float, dtype: np.dtype, rounding: str):
    g = Grid(dtype, 0.5)
    low, high = g.limits
    x = g.dequantize(np.array([[low, high, 1], [-1, 0, 2], [high, high, high]], dtype))
    out = Grid(dtype, float(np.float32(0.25 / factor)))
    params = {"x_grid": g, "y_grid": g, "out_grid": out, "lo": low, "hi": high, "rounding": rounding}
    meanings(qmatmul, [x, x.T.copy()], {**params, "dimension_numbers": (((1,), (0,)), ((), ()))})
