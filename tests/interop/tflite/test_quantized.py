"""Operators of values on grids, bit for bit LiteRT's reference kernels."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import NxError
from tests.interop.tflite.tflite_files import G, Operator, T, agree, const, one, written

pytest.importorskip("ai_edge_litert")

DTYPES = ("int8", "uint8", "int16")


class Drawn:
    """Random operands on random grids."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), dtype

    def grid(self, low: float = 0.02, high: float = 0.2) -> dict[str, Any]:
        scale = float(np.float32(self.rng.uniform(low, high)))
        info = np.iinfo(self.dtype)
        if self.dtype == "int16":
            return {"scale": float(np.float32(scale / 64)), "zero": 0}
        return {"scale": scale, "zero": int(self.rng.integers(info.min, info.max, endpoint=True))}

    def stored(self, shape: Any) -> np.ndarray:
        info = np.iinfo(self.dtype)
        return self.rng.integers(info.min, info.max, shape, endpoint=True).astype(self.dtype)

    def x(self, *shape: int, **grid: Any) -> Any:
        return T(shape, self.dtype, **(grid or self.grid())), self.stored(shape)

    def y(self, *shape: int, **grid: Any) -> T:
        return T(shape, self.dtype, **(grid or self.grid()))

    def weights(self, shape: Any, axis: int, channels: bool = True, dtype: str = "int8", last: int = 127) -> T:
        data = self.rng.integers(-last, last, shape, endpoint=True).astype(dtype)
        scale = self.rng.uniform(0.001, 0.02, shape[axis] if channels else 1).astype(np.float32)
        return const(data, scale=scale, axis=axis)

    def bias(self, n: int, x: Any, w: T, dtype: str = "") -> T:
        dtype = dtype or ("int64" if self.dtype == "int16" else "int32")
        scale = np.float32(x[0].scale) * np.asarray(w.scale, np.float32)
        return const(self.rng.integers(-5000, 5000, n).astype(dtype), scale=scale, axis=0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
def test_arithmetic(kind: str, dtype: str, seed: int):
    d = Drawn(seed, dtype)
    options = {"pot_scale_int16": False} if kind != "MUL" else {}
    for activation, shape in ((0, (2, 3, 8)), (1, (3, 1)), (3, (8,))):
        data, xs = one(kind, [d.x(2, 3, 8), d.x(*shape)], d.y(2, 3, 8), fused_activation_function=activation, **options)
        agree(data, xs)


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
@pytest.mark.parametrize("scales", [(2**-11, 2**-13, 2**-11), (2**-12, 2**-11, 2**-11), (2**-12, 2**-12, 2**-12)])
def test_sums_by_shifts(kind: str, scales: Any):
    d = Drawn(0, "int16")
    operands = [d.x(4, 60, scale=s, zero=0) for s in scales[:2]]
    data, xs = one(kind, operands, d.y(4, 60, scale=scales[2], zero=0))
    agree(data, xs)


@pytest.mark.parametrize("kind", ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_comparisons(kind: str, dtype: str):
    d = Drawn(0, dtype)
    data, xs = one(kind, [d.x(40, 5), d.x(40, 5)], T((40, 5), "bool"), version=2)
    agree(data, xs)


@pytest.mark.parametrize("shape", [(0,), (3, 1, 0)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_log_softmax_of_nothing(dtype: str, shape: Any):
    x, low = Drawn(0, dtype), int(np.iinfo(dtype).min)
    agree(*one("LOG_SOFTMAX", [x.x(*shape)], x.y(*shape, scale=16 / 256, zero=low + 255)))


@pytest.mark.parametrize("kind", ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"])
def test_comparisons_of_16_bits(kind: str):
    """LiteRT leaves their grids aside where it orders them."""
    d = Drawn(0, "int16")
    x, y = d.x(40, 5), d.x(40, 5)
    y[1][:10] = x[1][:10]
    data, xs = one(kind, [x, y], T((40, 5), "bool"), version=2)
    agree(data, xs)


@pytest.mark.parametrize("leads", [((), (3,)), ((1,), (3,)), ((4,), (1,)), ((4,), ()), ((2,), (2,))])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_products_of_floats_with_stored_batches(leads: Any, asymmetric: bool):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*leads[0], 4, 3)).astype(np.float32)
    w = const(rng.integers(-127, 128, (*leads[1], 3, 5)).astype(np.int8), scale=0.01)
    out = T((*np.broadcast_shapes(*leads), 4, 5))
    data, xs = one("BATCH_MATMUL", [(T(x.shape), x), w], out, version=4, asymmetric_quantize_inputs=asymmetric)
    agree(data, xs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "TANH", "LOGISTIC", "ABS", "PRELU"])
def test_functions(kind: str, dtype: str):
    if (kind, dtype) in (("ABS", "uint8"), ("PRELU", "int16"), ("RELU_N1_TO_1", "int16")):
        pytest.skip("LiteRT has no such kernel")
    for seed in range(3):
        d = Drawn(seed, dtype)
        low = int(np.iinfo(dtype).min)
        out = {
            "TANH": {"scale": 1 / 32768, "zero": 0} if dtype == "int16" else {"scale": 1 / 128, "zero": low + 128},
            "LOGISTIC": {"scale": 1 / 32768, "zero": 0} if dtype == "int16" else {"scale": 1 / 256, "zero": low},
        }.get(kind, {})
        x = d.x(4, 256)
        more = [d.x(256)] if kind == "PRELU" else []
        options = {"alpha": 0.17} if kind == "LEAKY_RELU" else {}
        version = 2 if kind in ("ABS", "LEAKY_RELU", "RELU") else 1
        data, xs = one(kind, [x, *more], d.y(4, 256, **out), version=version, **options)
        agree(data, xs)


@pytest.mark.parametrize("kind", ["HARD_SWISH", "EXP", "LOG", "RSQRT", "GELU", "ELU", "SQRT"])
def test_functions_of_bytes(kind: str):
    for seed in range(3):
        d = Drawn(seed, "int8")
        x = T((2, 256), "int8", scale=0.03, zero=-128), d.stored((2, 256))
        out = {"scale": 1 / 256, "zero": -128} if kind == "ELU" else {}
        data, xs = one(kind, [x], d.y(2, 256, **out), version=1 if kind in ("HARD_SWISH", "ELU") else 2)
        agree(data, xs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_between_grids(dtype: str):
    d = Drawn(0, dtype)
    x = T((2, 300)), np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
    agree(*_file(one("QUANTIZE", [x], d.y(2, 300))))
    agree(*_file(one("DEQUANTIZE", [d.x(2, 300)], T((2, 300)), version=3)))
    for to in DTYPES:
        if "int16" in (dtype, to) and "uint8" in (dtype, to):
            continue
        data, xs = one("QUANTIZE", [d.x(2, 300)], Drawn(1, to).y(2, 300))
        agree(data, xs)


def _file(made: Any) -> Any:
    return made


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(dtype: str):
    d = Drawn(0, dtype)
    low = int(np.iinfo(dtype).min)
    out = {"scale": 1 / 32768, "zero": 0} if dtype == "int16" else {"scale": 1 / 256, "zero": low}
    data, xs = one("SOFTMAX", [d.x(6, 11)], d.y(6, 11, **out), beta=1.0)
    agree(data, xs)


WINDOW = {"stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 2, "padding": 0}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_pools(kind: str, dtype: str, activation: int):
    d = Drawn(3, dtype)
    grid = d.grid()
    data, xs = one(
        kind, [d.x(2, 5, 7, 3, **grid)], d.y(2, 3, 4, 3, **grid), fused_activation_function=activation, **WINDOW
    )
    agree(data, xs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keep", [False, True])
def test_means(dtype: str, keep: bool):
    for seed in range(3):
        d = Drawn(seed, dtype)
        shape = (2, 1, 1, 3) if keep else (2, 3)
        data, xs = one("MEAN", [d.x(2, 5, 7, 3), const(np.int32([1, 2]))], d.y(*shape), keep_dims=keep)
        agree(data, xs)


MOVES: dict[str, Any] = {
    "RESHAPE": ([const(np.int32([4, 30]))], (4, 30), {}),
    "TRANSPOSE": ([const(np.int32([2, 0, 1]))], (5, 4, 6), {}),
    "PAD": ([const(np.int32([[1, 0], [0, 2], [1, 1]]))], (5, 8, 7), {}),
    "STRIDED_SLICE": ([const(np.int32(v)) for v in ([1, 0, 4], [4, 6, 0], [1, 2, -1])], (3, 3, 4), {}),
    "TILE": ([const(np.int32([1, 2, 1]))], (4, 12, 5), {}),
    "REDUCE_MAX": ([const(np.int32([1]))], (4, 5), {}),
    "REVERSE_V2": ([const(np.int32([1]))], (4, 6, 5), {}),
    "GATHER": ([const(np.int32([3, 0]))], (2, 6, 5), {}),
    "MIRROR_PAD": ([const(np.int32([[1, 0], [0, 2], [1, 1]]))], (5, 8, 7), {}),
    "EXPAND_DIMS": ([const(np.int32(0))], (1, 4, 6, 5), {}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MOVES)
def test_moves(kind: str, dtype: str):
    if kind == "MIRROR_PAD" and dtype == "int16":
        pytest.skip("LiteRT has no such kernel")
    operands, shape, options = MOVES[kind]
    d = Drawn(0, dtype)
    grid = d.grid()
    data, xs = one(kind, [d.x(4, 6, 5, **grid), *operands], d.y(*shape, **grid), **options)
    for io in ("file", "float"):
        if io == "file":
            agree(data, xs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_and_places(dtype: str):
    d = Drawn(0, dtype)
    grid = d.grid()
    for kind in ("MAXIMUM", "MINIMUM"):
        data, xs = one(kind, [d.x(4, 6, **grid), d.x(6, **grid)], d.y(4, 6, **grid))
        agree(data, xs)
    if dtype != "int16":
        data, xs = one("ARG_MAX", [d.x(4, 60), const(np.int32(1))], T((4,), "int32"), output_type=2)
        agree(data, xs)
    parts = [d.x(4, 6, **grid), d.x(4, 2, **grid)]
    data, xs = one("CONCATENATION", parts, d.y(4, 8, **grid), axis=1)
    agree(data, xs)
    if dtype == "uint8":
        data, xs = one("CONCATENATION", [d.x(4, 6), d.x(4, 2)], d.y(4, 8), axis=1)
        agree(data, xs)


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_resizing(dtype: str, flags: Any):
    d = Drawn(0, dtype)
    grid = d.grid()
    data, xs = one(
        "RESIZE_BILINEAR", [d.x(1, 5, 4, 3, **grid), const(np.int32([7, 9]))], d.y(1, 7, 9, 3, **grid), version=3,
        align_corners=flags[0], half_pixel_centers=flags[1],
    )  # fmt: skip
    agree(data, xs)


def test_squared_difference():
    d = Drawn(0, "int8")
    data, xs = one("SQUARED_DIFFERENCE", [d.x(4, 60), d.x(60)], d.y(4, 60), version=2)
    agree(data, xs)


CONV = {"stride_w": 1, "stride_h": 2, "padding": 0, "fused_activation_function": 1}


@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("last", [127, 128])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_convolutions(dtype: str, last: int, channels: bool):
    d = Drawn(5, dtype)
    x = d.x(2, 6, 5, 3)
    w = d.weights((4, 3, 2, 3), 0, channels, last=last)
    data, xs = one("CONV_2D", [x, w, d.bias(4, x, w)], d.y(2, 3, 5, 4), version=3, **CONV)
    agree(data, xs)
    w = d.weights((1, 3, 2, 6), 3, channels, last=last)
    data, xs = one("DEPTHWISE_CONV_2D", [x, w, d.bias(6, x, w)], d.y(2, 3, 5, 6), version=3, depth_multiplier=2, **CONV)
    agree(data, xs)
    w = d.weights((4, 3, 2, 3), 0, channels, last=last)
    out = d.y(2, 12, 5, 4)
    data, xs = one(
        "TRANSPOSE_CONV", [const(np.int32(out.shape)), w, x], out, version=2, stride_w=1, stride_h=2, padding=0
    )
    agree(data, xs)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("last", [127, 128])
def test_dense(dtype: str, channels: bool, last: int):
    d = Drawn(5, dtype)
    x = d.x(6, 37)
    w = d.weights((4, 37), 0, channels, last=last)
    data, xs = one(
        "FULLY_CONNECTED", [x, w, d.bias(4, x, w)], d.y(6, 4), version=7 if dtype == "int16" else 4,
        fused_activation_function=1,
    )  # fmt: skip
    agree(data, xs)


def test_weights_of_bytes_with_a_zero_point():
    d = Drawn(5, "uint8")
    x = d.x(2, 6, 5, 3)
    w = const(d.stored((4, 3, 2, 3)), scale=0.01, zero=113)
    data, xs = one("CONV_2D", [x, w, d.bias(4, x, w)], d.y(2, 3, 5, 4), **CONV)
    agree(data, xs)
    x = d.x(6, 37)
    w = const(d.stored((4, 37)), scale=0.01, zero=113)
    data, xs = one("FULLY_CONNECTED", [x, w, d.bias(4, x, w)], d.y(6, 4))
    agree(data, xs)


@pytest.mark.parametrize("last", [7, 8])
def test_weights_of_four_bits(last: int):
    d = Drawn(5, "int8")
    x = d.x(6, 36)
    w = d.weights((4, 36), 0, False, last=last)
    w = const(np.clip(w.data, -last, 7).astype("int4"), scale=w.scale)
    data, xs = one("FULLY_CONNECTED", [x, w, d.bias(4, x, w)], d.y(6, 4), version=10)
    agree(data, xs)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_of_two_values(dtype: str):
    d = Drawn(5, dtype)
    data, xs = one("BATCH_MATMUL", [d.x(2, 3, 5), d.x(2, 5, 4)], d.y(2, 3, 4), version=2 if dtype == "int8" else 3)
    agree(data, xs)


def test_large_biases_are_kept_as_integers():
    d = Drawn(5, "int8")
    x, w = d.x(6, 37), d.weights((4, 37), 0, False)
    b = const(np.int32([1 << 30, -(1 << 29) - 1, 12345677, 3]), scale=np.float32(x[0].scale) * w.scale)
    data, xs = one("FULLY_CONNECTED", [x, w, b], d.y(6, 4, scale=1e5, zero=3), version=4)
    agree(data, xs)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_floats_with_stored_weights(asymmetric: bool):
    d = Drawn(5, "int8")
    x = T((6, 37)), d.rng.normal(size=(6, 37)).astype(np.float32)
    w = d.weights((4, 37), 0, False)
    b = const(d.rng.normal(size=4).astype(np.float32))
    data, xs = one("FULLY_CONNECTED", [x, w, b], T((6, 4)), version=9 if asymmetric else 3,
                   asymmetric_quantize_inputs=asymmetric)  # fmt: skip
    agree(data, xs)
    x = T((2, 6, 5, 3)), d.rng.normal(size=(2, 6, 5, 3)).astype(np.float32)
    for channels in (True,):
        w = d.weights((4, 3, 2, 3), 0, channels)
        data, xs = one("CONV_2D", [x, w, b], T((2, 3, 5, 4)), version=5, **CONV)
        agree(data, xs)


@pytest.mark.parametrize("kind", ["conv", "dense"])
def test_sums_of_16_bit_values_with_a_bias_of_32(kind: str):
    d = Drawn(5, "int16")
    if kind == "conv":
        x, w, y = d.x(2, 6, 5, 3), d.weights((4, 3, 2, 3), 0), d.y(2, 3, 5, 4)
        operands = [x, w, d.bias(4, x, w, "int32")]
        data, xs = one("CONV_2D", operands, y, version=8, quantized_bias_type=2, **CONV)
    else:
        x, w = d.x(6, 37), d.weights((4, 37), 0, False)
        operands = [x, w, d.bias(4, x, w, "int32")]
        data, xs = one("FULLY_CONNECTED", operands, d.y(6, 4), version=11, quantized_bias_type=2)
    agree(data, xs)


@pytest.mark.parametrize("activation", [0, 1])
def test_quotients(activation: int):
    d = Drawn(1, "uint8")
    # Of smaller dividends the kernel's shifts leave 32 bits, and its results are no quotients.
    x = T((16, 256), "uint8", scale=0.1, zero=0), d.rng.integers(16, 255, (16, 256)).astype(np.uint8)
    y = T((256,), "uint8", scale=0.07, zero=101), np.delete(np.arange(257, dtype=np.int64), 101).astype(np.uint8)
    y[1][y[1] == 101] = 100
    data, xs = one("DIV", [x, y], d.y(16, 256), fused_activation_function=activation)
    agree(data, xs)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("keep", [False, True])
def test_products_along_axes(dtype: str, keep: bool):
    d = Drawn(1, dtype)
    operands = [d.x(5, 3, 2, scale=0.01, zero=0), const(np.int32([1, 2]))]
    data, xs = one("REDUCE_PROD", operands, d.y(*((5, 1, 1) if keep else (5,))), version=2, keep_dims=keep)
    agree(data, xs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_moves(dtype: str):
    d = Drawn(1, dtype)
    grid = d.grid()
    x = lambda *shape: d.x(*shape, **grid)
    y = lambda *shape: d.y(*shape, **grid)
    version = 2 if dtype != "int16" else 3
    crops = const(np.int32([[1, 0], [0, 1]]))
    truth = T((3, 1), "bool"), np.array([[True], [False], [True]])
    cases = [
        one("TOPK_V2", [x(3, 9), const(np.int32(4))], y(3, 4), T((3, 4), "int32"), version=version),
        one("PACK", [x(3, 9), x(3, 9)], y(2, 3, 9), axis=0, values_count=2, version=2),
        one("SPLIT", [const(np.int32(1)), x(3, 8)], y(3, 4), y(3, 4), num_splits=2, version=2),
        one("PADV2", [x(3, 5), crops, const(d.stored(()), **grid)], y(4, 6), version=2),
        one("SPACE_TO_BATCH_ND", [x(1, 3, 5, 2), const(np.int32([2, 3])), crops], y(6, 2, 2, 2), version=version),
        one("BATCH_TO_SPACE_ND", [x(6, 2, 2, 2), const(np.int32([2, 3])), crops], y(1, 3, 5, 2), version=2),
        one("SELECT_V2", [truth, x(3, 4), x(3, 4)], y(3, 4)),
        one("RESIZE_NEAREST_NEIGHBOR", [x(1, 3, 4, 2), const(np.int32([5, 7]))], y(1, 5, 7, 2), version=4),
    ]
    for data, xs in cases:
        agree(data, xs)


def test_more_floats_with_stored_weights():
    d = Drawn(5, "int8")
    x = T((2, 6, 5, 3)), d.rng.normal(size=(2, 6, 5, 3)).astype(np.float32)
    b = const(d.rng.normal(size=6).astype(np.float32))
    operands = [x, d.weights((1, 3, 2, 6), 3), b]
    data, xs = one("DEPTHWISE_CONV_2D", operands, T((2, 3, 5, 6)), version=6, depth_multiplier=2, **CONV)
    agree(data, xs)
    x = T((2, 3, 5)), d.rng.normal(size=(2, 3, 5)).astype(np.float32)
    for adjoint in (False, True):
        y = const(d.stored((2, 4, 5) if adjoint else (2, 5, 4)), scale=0.01)
        data, xs = one("BATCH_MATMUL", [x, y], T((2, 3, 4)), adj_y=adjoint)
        agree(data, xs)
    x = T((6, 36)), d.rng.normal(size=(6, 36)).astype(np.float32)
    w = const(d.rng.integers(-7, 8, (4, 36)).astype("int4"), scale=0.01)
    data, xs = one("FULLY_CONNECTED", [x, w, None], T((6, 4)), version=10)
    agree(data, xs)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_log_softmax(dtype: str):
    for seed, scale in enumerate((0.02, 0.1, 0.4)):
        d = Drawn(seed, dtype)
        x = d.x(20, 11, scale=scale, zero=3)
        data, xs = one("LOG_SOFTMAX", [x], d.y(20, 11, scale=1 / 16, zero=int(np.iinfo(dtype).max)))
        agree(data, xs)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_l2_normalization(dtype: str):
    low = int(np.iinfo(dtype).min)
    for seed, width in enumerate((1, 2, 3, 16, 300, 40000)):
        d = Drawn(seed, dtype)
        x = d.x(6, width, scale=0.02, zero=low + int(d.rng.integers(0, 256)))
        x[1][0], x[1][1, 1:] = x[0].zero, x[0].zero  # rows of zeros, and of one number
        data, xs = one("L2_NORMALIZATION", [x], d.y(6, width, scale=1 / 128, zero=low + 128), version=2)
        agree(data, xs)
    f = nx.interop.from_tflite(data, io="float", closed=True)
    x = d.rng.normal(size=(6, 40000)).astype(np.float32)
    assert float(np.abs(np.asarray(nx.grad(lambda x: f(x)[:, 0].sum())(x))).max()) > 0


def test_weights_with_scales_of_blocks_are_refused_by_name():
    w = const(np.ones((4, 64)), ml_dtypes.int4, name="w", details=("BlockwiseQuantization", {"block_size": 32}))
    x, y = T((1, 64)), T((1, 4))
    with pytest.raises(NxError, match="'w' is quantized in a way of its own") as error:
        nx.interop.from_tflite(written(G([x], [y], [Operator("FULLY_CONNECTED", [x, w, None], [y])])))
    assert error.value.got == "BlockwiseQuantization"
