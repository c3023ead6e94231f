"""Operators of floats, one by one, against LiteRT's reference kernels."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from tests.interop.tflite.tflite_files import T, agree, const, one

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(0)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """A float operand with its elements."""
    return T(shape), RNG.uniform(low, high, shape).astype(np.float32)


def whole(*shape: int, dtype: str = "int32", low: int = -9, high: int = 9) -> Any:
    return T(shape, dtype), RNG.integers(low, high, shape, endpoint=True).astype(dtype)


def truth(*shape: int) -> Any:
    return T(shape, "bool"), RNG.integers(0, 2, shape).astype(bool)


def i32(*values: Any) -> T:
    return const(np.asarray(values, np.int32))


UNARY = {
    "ABS": -2, "NEG": -2, "EXP": -2, "LOG": 0.1, "SQRT": 0, "RSQRT": 0.1, "SQUARE": -2, "SIN": -2, "COS": -2,
    "FLOOR": -2, "CEIL": -2, "ROUND": -2, "SIGN": -2, "LOGISTIC": -9, "TANH": -9, "RELU": -2, "RELU6": -9,
    "RELU_N1_TO_1": -2, "RELU_0_TO_1": -2, "ELU": -4, "HARD_SWISH": -5,
}  # fmt: skip


@pytest.mark.parametrize("kind", UNARY)
def test_functions_of_one_operand(kind: str):
    data, xs = one(kind, [f32(2, 3, 5, low=UNARY[kind], high=8)], T((2, 3, 5)))
    agree(data, xs)


@pytest.mark.parametrize(
    "kind",
    [
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MAXIMUM",
        "MINIMUM",
        "SQUARED_DIFFERENCE",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "ATAN2",
        "POW",
        "PRELU",
    ],
)
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (1,))])
def test_functions_of_two_operands(kind: str, shapes: Any):
    if kind == "ATAN2" and shapes[1] != shapes[0]:
        pytest.skip("LiteRT broadcasts no ATAN2")
    low = 0.5 if kind in ("POW", "DIV", "FLOOR_DIV", "FLOOR_MOD") else -2
    data, xs = one(kind, [f32(*shapes[0], low=low), f32(*shapes[1], low=low)], T((2, 3, 4)))
    agree(data, xs)


@pytest.mark.parametrize("activation", range(4))
@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV"])
def test_fused_activations(kind: str, activation: int):
    data, xs = one(kind, [f32(3, 4, high=9), f32(3, 4, low=0.5)], T((3, 4)), fused_activation_function=activation)
    agree(data, xs)


@pytest.mark.parametrize(
    "kind", ["ADD", "SUB", "MUL", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "POW", "EQUAL", "LESS", "GREATER_EQUAL"]
)
def test_whole_numbers(kind: str):
    low = 1 if kind == "POW" else -9
    b = whole(3, 4, low=1, high=3) if kind in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW") else whole(3, 4)
    data, xs = one(
        kind, [whole(3, 4, low=low), b], T((3, 4), "bool" if kind in ("EQUAL", "LESS", "GREATER_EQUAL") else "int32")
    )
    agree(data, xs)


def conv(**more: Any) -> dict[str, Any]:
    return {"stride_w": 1, "stride_h": 1, "padding": 1, **more}


CASES: dict[str, Any] = {
    "conv": (
        "CONV_2D",
        [f32(2, 7, 6, 3), const(f32(4, 3, 2, 3)[1]), const(f32(4)[1])],
        T((2, 3, 5, 4)),
        conv(stride_h=2, fused_activation_function=1),
    ),
    "conv same": (
        "CONV_2D",
        [f32(1, 7, 6, 3), const(f32(4, 3, 3, 3)[1]), const(f32(4)[1])],
        T((1, 4, 3, 4)),
        conv(stride_h=2, stride_w=2, padding=0),
    ),
    "conv dilated": (
        "CONV_2D",
        [f32(1, 9, 8, 3), const(f32(4, 3, 2, 3)[1]), const(f32(4)[1])],
        T((1, 5, 5, 4)),
        conv(dilation_h_factor=2, dilation_w_factor=3),
    ),
    "conv groups": ("CONV_2D", [f32(1, 5, 5, 6), const(f32(4, 3, 3, 3)[1]), const(f32(4)[1])], T((1, 3, 3, 4)), conv()),
    "depthwise": (
        "DEPTHWISE_CONV_2D",
        [f32(1, 6, 6, 3), const(f32(1, 3, 3, 6)[1]), const(f32(6)[1])],
        T((1, 3, 3, 6)),
        conv(depth_multiplier=2, stride_h=2, stride_w=2, padding=0),
    ),
    "transpose conv": (
        "TRANSPOSE_CONV",
        [i32(1, 7, 9, 2), const(f32(2, 3, 3, 4)[1]), f32(1, 3, 4, 4)],
        T((1, 7, 9, 2)),
        conv(stride_h=2, stride_w=2),
    ),
    "transpose conv same": (
        "TRANSPOSE_CONV",
        [i32(1, 6, 8, 2), const(f32(2, 3, 3, 4)[1]), f32(1, 3, 4, 4)],
        T((1, 6, 8, 2)),
        conv(stride_h=2, stride_w=2, padding=0),
    ),
    "conv 3d": (
        "CONV_3D",
        [f32(1, 5, 6, 7, 2), const(f32(2, 3, 2, 2, 3)[1]), const(f32(3)[1])],
        T((1, 4, 2, 6, 3)),
        {"padding": 1, "stride_d": 1, "stride_h": 2, "stride_w": 1},
    ),
    "conv 3d transpose": (
        "CONV_3D_TRANSPOSE",
        [i32(1, 6, 6, 8, 2), const(f32(2, 3, 3, 2, 3)[1]), f32(1, 3, 3, 4, 3)],
        T((1, 6, 6, 8, 2)),
        {"padding": 0, "stride_d": 2, "stride_h": 2, "stride_w": 2},
    ),
    "dense": (
        "FULLY_CONNECTED",
        [f32(2, 3, 4), const(f32(5, 4)[1]), const(f32(5)[1])],
        T((6, 5)),
        {"fused_activation_function": 1},
    ),
    "dense kept": ("FULLY_CONNECTED", [f32(2, 3, 4), const(f32(5, 4)[1]), None], T((2, 3, 5)), {"keep_num_dims": True}),
    "batch matmul": ("BATCH_MATMUL", [f32(2, 3, 4), f32(2, 5, 4)], T((2, 3, 5)), {"adj_y": True}),
    "max pool": (
        "MAX_POOL_2D",
        [f32(1, 5, 6, 2)],
        T((1, 3, 3, 2)),
        conv(stride_h=2, stride_w=2, filter_width=3, filter_height=3, padding=0),
    ),
    "average pool": (
        "AVERAGE_POOL_2D",
        [f32(1, 5, 6, 2)],
        T((1, 3, 3, 2)),
        conv(stride_h=2, stride_w=2, filter_width=3, filter_height=3, padding=0, fused_activation_function=1),
    ),
    "l2 pool": (
        "L2_POOL_2D",
        [f32(1, 5, 6, 2)],
        T((1, 2, 2, 2)),
        conv(stride_h=2, stride_w=2, filter_width=3, filter_height=3),
    ),
    "bilinear": ("RESIZE_BILINEAR", [f32(1, 3, 4, 2), i32(5, 7)], T((1, 5, 7, 2)), {"half_pixel_centers": True}),
    "bilinear corners": ("RESIZE_BILINEAR", [f32(1, 3, 4, 2), i32(5, 7)], T((1, 5, 7, 2)), {"align_corners": True}),
    "nearest": ("RESIZE_NEAREST_NEIGHBOR", [f32(1, 3, 4, 2), i32(5, 7)], T((1, 5, 7, 2)), {}),
    "softmax": ("SOFTMAX", [f32(3, 7)], T((3, 7)), {"beta": 0.5}),
    "log softmax": ("LOG_SOFTMAX", [f32(3, 7)], T((3, 7)), {}),
    "l2 norm": ("L2_NORMALIZATION", [f32(3, 7)], T((3, 7)), {}),
    "lrn": (
        "LOCAL_RESPONSE_NORMALIZATION",
        [f32(1, 2, 2, 7)],
        T((1, 2, 2, 7)),
        {"radius": 2, "bias": 1.0, "alpha": 0.3, "beta": 0.5},
    ),
    "leaky relu": ("LEAKY_RELU", [f32(3, 7)], T((3, 7)), {"alpha": 0.2}),
    "gelu": ("GELU", [f32(3, 7)], T((3, 7)), {}),
    "gelu tanh": ("GELU", [f32(3, 7)], T((3, 7)), {"approximate": True}),
    "fake quant": ("FAKE_QUANT", [f32(3, 7)], T((3, 7)), {"min": -1.0, "max": 1.3, "num_bits": 8}),
    "mean": ("MEAN", [f32(2, 3, 4), i32(1, -1)], T((2,)), {}),
    "mean kept": ("MEAN", [f32(2, 3, 4), i32(1)], T((2, 1, 4)), {"keep_dims": True}),
    "mean of ints": ("MEAN", [whole(2, 3, 4), i32(1)], T((2, 4), "int32"), {}),
    "sum": ("SUM", [f32(2, 3, 4), i32(0, 2)], T((3,)), {}),
    "prod": ("REDUCE_PROD", [f32(2, 3, 4), i32(2)], T((2, 3)), {}),
    "max": ("REDUCE_MAX", [f32(2, 3, 4), i32(2)], T((2, 3)), {}),
    "min": ("REDUCE_MIN", [f32(2, 3, 4), i32(2)], T((2, 3)), {}),
    "any": ("REDUCE_ANY", [truth(2, 3), i32(1)], T((2,), "bool"), {}),
    "all": ("REDUCE_ALL", [truth(2, 3), i32(1)], T((2,), "bool"), {}),
    "cumsum": ("CUMSUM", [f32(2, 5), const(np.int32(1))], T((2, 5)), {"exclusive": True, "reverse": True}),
    "argmax": ("ARG_MAX", [f32(3, 5), const(np.int32(-1))], T((3,), "int64"), {"output_type": 4}),
    "argmin": ("ARG_MIN", [f32(3, 5), const(np.int32(0))], T((5,), "int32"), {"output_type": 2}),
    "topk": ("TOPK_V2", [f32(3, 8), const(np.int32(3))], (T((3, 3)), T((3, 3), "int32")), {}),
    "one hot": (
        "ONE_HOT",
        [whole(2, 3, low=0, high=3), const(np.int32(4)), const(np.float32(2)), const(np.float32(-1))],
        T((2, 3, 4)),
        {"axis": -1},
    ),
    "transpose": ("TRANSPOSE", [f32(2, 3, 4), i32(2, 0, 1)], T((4, 2, 3)), {}),
    "concatenation": ("CONCATENATION", [f32(2, 3), f32(2, 4)], T((2, 7)), {"axis": -1}),
    "pack": ("PACK", [f32(2, 3), f32(2, 3)], T((2, 2, 3)), {"values_count": 2, "axis": 1}),
    "unpack": ("UNPACK", [f32(2, 3)], (T((2,)), T((2,)), T((2,))), {"num": 3, "axis": 1}),
    "split": ("SPLIT", [const(np.int32(1)), f32(2, 6)], (T((2, 3)), T((2, 3))), {"num_splits": 2}),
    "split v": (
        "SPLIT_V",
        [f32(2, 6), i32(1, -1, 2), const(np.int32(1))],
        (T((2, 1)), T((2, 3)), T((2, 2))),
        {"num_splits": 3},
    ),
    "slice": ("SLICE", [f32(4, 6), i32(1, 2), i32(2, -1)], T((2, 4)), {}),
    "strided slice": (
        "STRIDED_SLICE",
        [f32(4, 6, 3), i32(0, 5, 1), i32(0, -7, 2), i32(1, -2, 1)],
        T((4, 3)),
        {"begin_mask": 1, "end_mask": 3, "shrink_axis_mask": 4},
    ),
    "new axis": (
        "STRIDED_SLICE",
        [f32(4, 6), i32(0, 0, 2), i32(0, 0, 5), i32(1, 1, 2)],
        T((1, 4, 2)),
        {"new_axis_mask": 1, "ellipsis_mask": 2},
    ),
    "pad": ("PAD", [f32(2, 3), const(np.int32([[1, 2], [0, 1]]))], T((5, 4)), {}),
    "padv2": ("PADV2", [f32(2, 3), const(np.int32([[1, 2], [0, 1]])), const(np.float32(7))], T((5, 4)), {}),
    "mirror": ("MIRROR_PAD", [f32(3, 4), const(np.int32([[1, 2], [2, 1]]))], T((6, 7)), {"mode": 0}),
    "mirror symmetric": ("MIRROR_PAD", [f32(3, 4), const(np.int32([[1, 3], [2, 1]]))], T((7, 7)), {"mode": 1}),
    "tile": ("TILE", [f32(2, 3), i32(2, 3)], T((4, 9)), {}),
    "broadcast to": ("BROADCAST_TO", [f32(2, 1), i32(3, 2, 4)], T((3, 2, 4)), {"version": 2}),
    "reverse": ("REVERSE_V2", [f32(2, 3, 4), i32(1)], T((2, 3, 4)), {}),
    "reverse sequence": (
        "REVERSE_SEQUENCE",
        [f32(3, 5, 2), const(np.int32([2, 5, 1]))],
        T((3, 5, 2)),
        {"seq_dim": 1, "batch_dim": 0},
    ),
    "gather": ("GATHER", [f32(4, 5), whole(2, 3, low=0, high=4)], T((4, 2, 3)), {"axis": 1}),
    "gather batch": ("GATHER", [f32(2, 5, 3), whole(2, 4, low=0, high=4)], T((2, 4, 3)), {"axis": 1, "batch_dims": 1}),
    "gather nd": ("GATHER_ND", [f32(3, 4, 2), whole(5, 2, low=0, high=2)], T((5, 2)), {}),
    "scatter nd": ("SCATTER_ND", [whole(5, 1, low=0, high=2), f32(5, 2), i32(3, 2)], T((3, 2)), {}),
    "embedding": ("EMBEDDING_LOOKUP", [whole(3, low=0, high=4), const(f32(5, 2)[1])], T((3, 2)), {}),
    "to depth": ("SPACE_TO_DEPTH", [f32(1, 4, 6, 2)], T((1, 2, 3, 8)), {"block_size": 2}),
    "to space": ("DEPTH_TO_SPACE", [f32(1, 2, 3, 8)], T((1, 4, 6, 2)), {"block_size": 2}),
    "to batch": (
        "SPACE_TO_BATCH_ND",
        [f32(1, 3, 5, 2), i32(2, 3), const(np.int32([[1, 0], [0, 1]]))],
        T((6, 2, 2, 2)),
        {},
    ),
    "from batch": (
        "BATCH_TO_SPACE_ND",
        [f32(6, 2, 2, 2), i32(2, 3), const(np.int32([[1, 0], [0, 1]]))],
        T((1, 3, 5, 2)),
        {},
    ),
    "fill": ("FILL", [i32(2, 3), f32()], T((2, 3)), {}),
    "range": ("RANGE", [const(np.float32(1)), const(np.float32(3)), const(np.float32(0.5))], T((4,)), {}),
    "update slice": ("DYNAMIC_UPDATE_SLICE", [f32(4, 5), f32(2, 2), const(np.int32([3, 1]))], T((4, 5)), {}),
    "space to batch of none": (
        "SPACE_TO_BATCH_ND",
        [f32(1, 2, 4, 0), const(np.int32([3, 3])), const(np.int32([[1, 0], [2, 0]]))],
        T((9, 1, 2, 0)),
        {},
    ),
    "update slice before": ("DYNAMIC_UPDATE_SLICE", [f32(4, 5), f32(2, 2), const(np.int32([-3, -1]))], T((4, 5)), {}),
    "diag": ("MATRIX_DIAG", [f32(2, 3)], T((2, 3, 3)), {}),
    "set diag": ("MATRIX_SET_DIAG", [f32(2, 3, 4), f32(2, 3)], T((2, 3, 4)), {}),
    "sparse to dense": (
        "SPARSE_TO_DENSE",
        [const(np.int32([[0, 1], [2, 2]])), i32(3, 3), f32(2), const(np.float32(-1))],
        T((3, 3)),
        {},
    ),
    "select": ("SELECT", [truth(3), f32(3, 4), f32(3, 4)], T((3, 4)), {}),
    "select v2": ("SELECT_V2", [truth(3, 1), f32(3, 4), f32(1, 4)], T((3, 4)), {}),
    "add n": ("ADD_N", [f32(3, 4), f32(3, 4), f32(3, 4)], T((3, 4)), {}),
    "cast": ("CAST", [f32(3, 4, low=-9, high=9)], T((3, 4), "int32"), {"in_data_type": 0, "out_data_type": 2}),
    "cast bool": ("CAST", [whole(3, 4, low=-1, high=1)], T((3, 4), "bool"), {"in_data_type": 2, "out_data_type": 6}),
    "xor": ("BITWISE_XOR", [whole(3, 4), whole(3, 4)], T((3, 4), "int32"), {}),
    "shift": ("RIGHT_SHIFT", [whole(3, 4), whole(3, 4, low=0, high=3)], T((3, 4), "int32"), {}),
    "segment sum": ("SEGMENT_SUM", [f32(4, 3), const(np.int32([0, 0, 1, 2]))], T((3, 3)), {}),
    "unsorted sum": (
        "UNSORTED_SEGMENT_SUM",
        [f32(4, 3), const(np.int32([2, 0, -1, 0])), const(np.int32(3))],
        T((3, 3)),
        {},
    ),
    "unsorted max": (
        "UNSORTED_SEGMENT_MAX",
        [f32(4, 3), const(np.int32([2, 0, 2, 0])), const(np.int32(4))],
        T((4, 3)),
        {},
    ),
    "unsorted prod": (
        "UNSORTED_SEGMENT_PROD",
        [f32(4, 3), const(np.int32([2, 0, 2, 0])), const(np.int32(4))],
        T((4, 3)),
        {},
    ),
    "bucketize": ("BUCKETIZE", [f32(3, 4)], T((3, 4), "int32"), {"boundaries": [-1.0, 0.0, 0.5]}),
    "rfft": ("RFFT2D", [f32(2, 4, 8), i32(4, 8)], T((2, 4, 5), np.complex64), {}),
    "shape": ("SHAPE", [f32(3, 4)], T((2,), "int32"), {"out_type": 2}),
    "rank": ("RANK", [f32(3, 4)], T((), "int32"), {}),
    "zeros": ("ZEROS_LIKE", [f32(3, 4)], T((3, 4)), {}),
    "squeeze": ("SQUEEZE", [f32(1, 3, 1, 4)], T((1, 3, 4)), {"squeeze_dims": [2]}),
    "expand": ("EXPAND_DIMS", [f32(3, 4), const(np.int32(-1))], T((3, 4, 1)), {}),
    "reshape": ("RESHAPE", [f32(3, 4), i32(2, -1)], T((2, 6)), {"new_shape": [2, 6]}),
    "logical": ("LOGICAL_AND", [truth(3, 4), truth(3, 4)], T((3, 4), "bool"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str):
    kind, operands, outs, options = CASES[name]
    data, xs = one(kind, operands, *(outs if isinstance(outs, tuple) else (outs,)), **options)
    # Its reference kernel leaves out the last channel of a window, against TensorFlow and its own optimized kernel.
    agree(data, xs, reference=name != "lrn", tolerance=3e-6 if name in ("lrn", "rfft") else 1e-6)


@pytest.mark.parametrize(("kind", "ends"), {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}.items())
def test_the_derivative_on_a_bound_is_0(kind: str, ends: Any):
    data, xs = one(kind, [(T((3,)), np.array([*ends, 0.5], np.float32))], T((3,)))
    f = nx.interop.from_tflite(data, closed=True)
    assert nx.grad(lambda x: f(x).sum())(nx.array(xs[0])).tolist() == [0, 0, 1]
