"""OpenVINO models of one-node graphs mean what the nodes mean: float to float noise, integers to the last bit or so."""

import jax.nn
import numpy as np
import openvino
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nxjax as nx
from nxjax.errors import LoweringError, ParameterError, ProgramError
from nxjax.lower.npu.formats.openvino_net import node_names, owner
from nxjax.lower.npu.formats.openvino_writer import build, serialize
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from nxjax.trace import dtypes
from nxjax.vendors.intel.openvino_run import CPU, has_vnni
from tests.vendors.single import OPS, PRODUCTS, single

F32, I32, I8 = np.dtype("float32"), np.dtype("int32"), np.dtype("int8")
CORE = openvino.Core()
few = settings(max_examples=6, deadline=None)


def run(model, inputs):
    compiled = CORE.compile_model(model, "CPU", CPU)
    return [np.array(v) for v in compiled(list(inputs)).values()]


def graph_of(op, operands, results, attrs):
    """A graph of one node; its inputs are the operands that are not constant."""
    ins = [t for t in operands if t is not None and t.data is None]
    return NpuGraph("g", ins, results, [Node(op, tuple(operands), tuple(results), attrs, name="node")])


def listed(value):
    return [np.asarray(v) for v in (value if isinstance(value, (list, tuple)) else [value])]


def check(op, arrays, f, attrs=None, constant=(), atol=1e-4):
    """One node against NumPy: ``f`` of the operands. ``constant`` names the operands that are weights."""
    expected = listed(f(*arrays))
    operands = [
        None if a is None else Tensor(f"x{i}", a.shape, a.dtype, None, a if i in constant else None)
        for i, a in enumerate(arrays)
    ]
    results = [Tensor(f"y{i}", r.shape, r.dtype) for i, r in enumerate(expected)]
    fed = [a for i, a in enumerate(arrays) if a is not None and i not in constant]
    got = run(build(graph_of(op, operands, results, attrs or {})), fed)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape
        np.testing.assert_allclose(g, e, atol=atol, rtol=1e-4)


def on_grid(i, a, constant):
    """A float operand as a tensor on an int8 grid: weights of seven bits, so that no kernel can saturate."""
    if a is None or a.dtype != F32:
        return None if a is None else Tensor(f"x{i}", a.shape, a.dtype, None, a if i in constant else None), a
    low, high = float(a.min(initial=0)), float(a.max(initial=0))
    grid = symmetric(2 * max(-low, high), I8) if i in constant else asymmetric(low, high)
    stored = grid.quantize(a)
    return Tensor(f"x{i}", a.shape, I8, grid, stored if i in constant else None), grid.dequantize(stored)


def check_int8(op, arrays, f, attrs=None, constant=(), same=False, lsb=1):
    """The same node with int8 operands and results against NumPy on the operands' real values, then rounded.

    OpenVINO computes in float32 and rounds once, halves to even, so a result can be one step off where NumPy's lies
    near the middle of two; ``same``: an op that keeps its operand's grid.
    """
    pairs = [on_grid(i, a, constant) for i, a in enumerate(arrays)]
    operands = [t for t, _ in pairs]
    expected = listed(f(*[v for _, v in pairs]))
    results = []
    for i, e in enumerate(expected):
        grid = None
        if e.dtype == F32:
            grid = operands[0].grid if same else asymmetric(float(e.min(initial=0)), float(e.max(initial=0)))
        results.append(Tensor(f"y{i}", e.shape, I8 if grid else e.dtype, grid))
    fed = [t.grid.quantize(v) if t.grid else v for t, v in pairs if t is not None and t.data is None]
    got = run(build(graph_of(op, operands, results, attrs or {})), fed)
    for g, e, t in zip(got, expected, results, strict=True):
        assert g.dtype == t.dtype and g.shape == t.shape
        want = t.grid.quantize(e) if t.grid else e
        steps = np.abs(g.astype(np.int64) - want.astype(np.int64))
        assert steps.max(initial=0) <= lsb, (op, steps.max(), g.ravel()[:8], want.ravel()[:8])


def check_both(op, arrays, f, attrs=None, constant=(), same=False, lsb=1):
    check(op, arrays, f, attrs, constant)
    check_int8(op, arrays, f, attrs, constant, same, lsb)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(x, w, strides, dilations, padding, groups):
    return np.asarray(
        lax.conv_general_dilated(
            x, w, strides, padding, rhs_dilation=dilations, feature_group_count=groups,
            dimension_numbers=("NHWC", "OHWI", "NHWC"), precision="highest",
        )
    )  # fmt: skip


def plus(y, b):
    return y if b is None else y + b


pair = st.tuples(st.integers(1, 2), st.integers(1, 2))
padding = st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2)


@few
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), pair, pair, padding, st.booleans(), st.integers(0, 99))
def test_conv_2d(n, cg, groups, strides, dilations, padding, bias, seed):
    x, w = normal(seed, n, 7, 6, cg * groups), normal(seed + 1, 2 * groups, 3, 2, cg)
    b = normal(seed + 2, 2 * groups) if bias else None
    attrs = {"strides": strides, "dilations": dilations, "padding": padding, "groups": groups, "activation": "relu"}

    def f(x, w, b):
        return np.maximum(plus(conv(x, w, strides, dilations, padding, groups), b), 0)

    check_both("conv_2d", [x, w, b], f, attrs, {1, 2})


@few
@given(st.integers(1, 3), st.integers(1, 3), pair, pair, padding, st.integers(0, 99))
def test_depthwise_conv_2d(c, m, strides, dilations, padding, seed):
    x, w, b = normal(seed, 2, 6, 7, c), normal(seed + 1, 1, 2, 3, c * m), normal(seed + 2, c * m)
    attrs = {"strides": strides, "dilations": dilations, "padding": padding, "activation": "relu6"}

    def f(x, w, b):
        return np.clip(conv(x, w.transpose(3, 1, 2, 0), strides, dilations, padding, c) + b, 0, 6)

    check_both("depthwise_conv_2d", [x, w, b], f, attrs, {1, 2})


@few
@given(st.integers(1, 3), st.integers(1, 3), pair, st.tuples(*[st.tuples(st.integers(0, 1), st.integers(0, 1))] * 2))
def test_transpose_conv(i, o, strides, cut):
    (t, b), (l, r) = cut

    def f(x, w, _):
        full = scattered(x, w, strides)
        return full[:, t : full.shape[1] - b, l : full.shape[2] - r]

    attrs = {"strides": strides, "padding": cut, "activation": None}
    check_both("transpose_conv", [normal(1, 2, 4, 3, i), normal(2, o, 3, 2, i), None], f, attrs, {1})


def scattered(x, w, strides):
    o = len(w)
    full = np.zeros((2, 3 * strides[0] + 3, 2 * strides[1] + 2, o), np.float32)
    for r in range(4):
        for c in range(3):
            patch = np.einsum("ni,oyxi->nyxo", x[:, r, c], w)
            full[:, r * strides[0] :, c * strides[1] :][:, :3, :2] += patch
    return full


@few
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 99))
def test_fully_connected(lead, seed):
    x, w, b = normal(seed, *lead, 5), normal(seed + 1, 4, 5), normal(seed + 2, 4)
    check_both("fully_connected", [x, w, b], lambda x, w, b: x @ w.T + b, {"activation": None}, {1, 2})
    check("fully_connected", [x, w, None], lambda x, w, _: np.clip(x @ w.T, -1, 1), {"activation": "relu_n1_to_1"})


@few
@given(st.booleans(), st.booleans(), st.integers(1, 3))
def test_batch_matmul(adj_x, adj_y, n):
    x = normal(1, n, 3, 2) if adj_x else normal(1, n, 2, 3)
    y = normal(2, n, 4, 3) if adj_y else normal(2, n, 3, 4)

    def f(x, y):
        return (x.swapaxes(1, 2) if adj_x else x) @ (y.swapaxes(1, 2) if adj_y else y)

    check_both("batch_matmul", [x, y], f, {"adj_x": adj_x, "adj_y": adj_y})


def test_a_matrix_and_its_transpose_are_packed_apart():
    """The CPU plugin packs a shared constant of three dimensions once, and computed both products with one pack."""
    w, x = normal(1, 4, 5, 5), normal(2, 4, 3, 5)
    artifact = nx.compile(lambda x: nx.numpy.tanh(x @ w) @ w.swapaxes(1, 2), target="openvino-cpu")(x)
    assert artifact.deviation.max_error < 1e-5


BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "squared_difference": lambda x, y: (x - y) ** 2, "equal": np.equal,
    "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
def test_binary(op):
    for a, b in (((2, 3), (2, 3)), ((2, 1, 4), (3, 1)), ((1, 3, 2, 4), (4,)), ((), (2, 2))):
        x, y = np.round(normal(1, *a), 1), np.round(normal(2, *b), 1) + np.float32(0.03)
        check(op, [x, y], BINARY[op])
        if op != "div":
            check_int8(op, [x, y], BINARY[op])


def test_integer_division_goes_towards_zero():
    x, y = np.int32([7, -7, 7, -7, 6]), np.int32([2, 2, -2, -2, -3])
    check("div", [x, y], lambda x, y: np.trunc(x / y).astype(np.int32))


def test_pow_and_logic():
    x, y = np.abs(normal(1, 3, 4)), normal(2, 3, 4)
    check("pow", [x, y], np.power)
    p, q = x > 0.5, y > 0
    check("logical_and", [p, q], np.logical_and)
    check("logical_or", [p, q], np.logical_or)
    check("logical_not", [p], np.logical_not)
    check_both("select", [p, x, y], np.where)


UNARY = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6), "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "elu": jax.nn.elu, "exp": np.exp,
    "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": np.abs, "neg": np.negative, "square": np.square, "sin": np.sin, "cos": np.cos, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "sign": np.sign, "erf": lax.erf,
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    x = 3 * normal(3, 2, 3, 4, 5)
    x = np.abs(x) + np.float32(0.1) if op in ("log", "sqrt", "rsqrt") else x
    check(op, [x], UNARY[op])
    if op not in ("log", "rsqrt"):
        check_int8(op, [x], UNARY[op])


def test_units_with_parameters():
    x, alpha = normal(1, 2, 3, 4, 5), normal(2, 5)
    check_both("leaky_relu", [x], lambda x: np.where(x > 0, x, x * np.float32(0.2)), {"alpha": 0.2})
    check_both("prelu", [x, alpha], lambda x, a: np.where(x > 0, x, x * a), {}, {1})
    for approximate in (True, False):
        check_both("gelu", [x], lambda x: jax.nn.gelu(x, approximate=approximate), {"approximate": approximate})  # noqa: B023
    check_both("softmax", [x], lambda x: jax.nn.softmax(2 * x), {"beta": 2.0})
    check_both("log_softmax", [x], jax.nn.log_softmax)


@few
@given(pair, st.tuples(st.integers(2, 3), st.integers(2, 3)), st.integers(0, 1), st.integers(0, 1))
def test_pools_do_not_count_padding(strides, window, low, high):
    x, pad = normal(1, 2, 7, 6, 3), [(0, 0), (low, high), (high, low), (0, 0)]
    dims, steps = (1, *window, 1), (1, *strides, 1)
    attrs = {"window": window, "strides": strides, "padding": tuple(pad[1:3]), "activation": None}

    def average(x):
        total, count = (lax.reduce_window(v, 0.0, lax.add, dims, steps, pad) for v in (x, np.ones_like(x)))
        return np.asarray(total / count)

    check_both("max_pool_2d", [x], lambda x: lax.reduce_window(x, -np.inf, lax.max, dims, steps, pad), attrs, same=True)
    check_both("average_pool_2d", [x], average, attrs, same=True)


REDUCE = {"mean": np.mean, "sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod}


@few
@given(st.sets(st.integers(0, 3), min_size=1), st.booleans())
def test_reduce(axes, keepdims):
    x = normal(1, 2, 3, 2, 3)
    for op, f in REDUCE.items():
        attrs = {"axes": tuple(axes), "keepdims": keepdims}
        check_both(op, [x], lambda x: np.asarray(f(x, axis=tuple(axes), keepdims=keepdims)), attrs)  # noqa: B023


def test_reduce_and_index():
    x = np.float32([[3, 1, 3], [2, 5, 5]])
    check_both("argmax", [x], lambda x: np.argmax(x, 1).astype(np.int32), {"axis": 1})
    check_both("argmin", [x], lambda x: np.argmin(x, 0).astype(np.int32), {"axis": 0})
    check("reduce_max", [x > 2], lambda x: x.any(1), {"axes": (1,), "keepdims": False})
    check("reduce_min", [x > 2], lambda x: x.all(1), {"axes": (1,), "keepdims": False})
    check_both("cumsum", [x], lambda x: np.cumsum(x, 1) - x, {"axis": 1, "exclusive": True, "reverse": False})
    flipped = {"axis": 1, "exclusive": False, "reverse": True}
    check("cumsum", [x], lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1], flipped)


def test_movement():
    x, y = normal(1, 2, 3, 4, 5), normal(2, 2, 3, 4, 2)
    keeps = {"same": True, "lsb": 0}
    check_both("reshape", [x], lambda x: x.reshape(6, 20), {"shape": (6, 20)}, **keeps)
    check_both("transpose", [x], lambda x: x.transpose(3, 1, 0, 2), {"permutation": (3, 1, 0, 2)}, **keeps)
    check_both("concatenation", [x, y], lambda x, y: np.concatenate([x, y], 3), {"axis": 3})
    check_both("split", [x], lambda x: [x[..., :2], x[..., 2:]], {"axis": 3, "sizes": (2, 3)}, **keeps)
    check_both("slice", [x], lambda x: x[1:, :2, 1:3], {"begin": (1, 0, 1, 0), "size": (1, 2, 2, 5)}, **keeps)
    attrs = {"begin": (0, 0, 1, 0), "end": (2, 3, 4, 5), "strides": (1, 2, 2, 3)}
    check_both("strided_slice", [x], lambda x: x[:, ::2, 1:4:2, ::3], attrs, **keeps)
    pads = ((0, 0), (1, 2), (0, 1), (0, 3))
    check("pad", [x], lambda x: np.pad(x, pads, constant_values=2.5), {"padding": pads, "value": 2.5})
    check_both("pad", [x], lambda x: np.pad(x, pads), {"padding": pads, "value": None}, **keeps)
    check_both("broadcast_to", [x[:, :1]], lambda v: np.broadcast_to(v, x.shape).copy(), {"shape": x.shape}, **keeps)
    check_both("tile", [x], lambda x: np.tile(x, (1, 2, 1, 3)), {"multiples": (1, 2, 1, 3)}, **keeps)
    check_both("reverse", [x], lambda x: x[:, ::-1, :, ::-1].copy(), {"axes": (1, 3)}, **keeps)
    i = np.int32([[2, 0], [1, 1]])
    check_both("gather", [x, i], lambda x, i: np.take(x, i, 1), {"axis": 1}, **keeps)
    check_both("one_hot", [i], lambda i: np.eye(3, dtype=np.float32)[i], {"depth": 3, "axis": -1})
    check("one_hot", [i], lambda i: np.eye(3, dtype=bool)[i], {"depth": 3, "axis": -1})
    check("cast", [np.float32([-2.7, 0, 3.9])], lambda x: x.astype(np.int32))
    check("cast", [np.int32([0, 3])], lambda x: x.astype(bool))


def test_resize():
    x = normal(1, 1, 3, 4, 2)
    half = {"size": (6, 8), "align_corners": False, "half_pixel_centers": True}
    check_both("resize_bilinear", [x], lambda x: np.asarray(jax.image.resize(x, (1, 6, 8, 2), "bilinear")), half)

    def nearest(x, h, w):
        return x[:, np.arange(h) * 3 // h][:, :, np.arange(w) * 4 // w]

    for size in ((6, 8), (5, 9)):
        old = {"size": size, "align_corners": False, "half_pixel_centers": False}
        check_both("resize_nearest", [x], lambda x: nearest(x, *size), old, same=True, lsb=0)  # noqa: B023
    check("resize_nearest", [x], lambda x: nearest(x, 6, 8), half)
    corners = {"size": (5, 7), "align_corners": True, "half_pixel_centers": False}

    def between(x):
        y = np.apply_along_axis(lambda v: np.interp(np.linspace(0, 2, 5), np.arange(3), v), 1, x)
        return np.apply_along_axis(lambda v: np.interp(np.linspace(0, 3, 7), np.arange(4), v), 2, y).astype(np.float32)

    check_both("resize_bilinear", [x], between, corners)


@few
@given(st.floats(0.01, 2), st.integers(-128, 127), st.integers(0, 99))
def test_table_is_exact(scale, zero, seed):
    values = np.random.default_rng(seed).integers(-128, 128, 256).astype(np.int8)
    grid, out = Grid(I8, float(np.float32(scale)), zero), Grid(I8, 0.37, 5)
    x, y = Tensor("x", (16, 16), I8, grid), Tensor("y", (16, 16), I8, out)
    graph = NpuGraph("g", [x], [y], [Node("table", (x,), (y,), {"function": "any", "values": values})])
    stored = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
    (got,) = run(build(graph), [stored])
    np.testing.assert_array_equal(got.ravel(), values)


@few
@given(st.floats(0.01, 2), st.integers(-128, 127), st.integers(0, 99))
def test_quantize_and_dequantize(scale, zero, seed):
    grid = Grid(I8, float(np.float32(scale)), zero)
    x, q, y = Tensor("x", (50,), F32), Tensor("q", (50,), I8, grid), Tensor("y", (50,), F32)
    nodes = [Node("quantize", (x,), (q,), name="q"), Node("dequantize", (q,), (y,), name="d")]
    values = 60 * scale * normal(seed, 50)
    got, back = run(build(NpuGraph("g", [x], [q, y], nodes)), [values])
    assert np.abs(got.astype(int) - grid.quantize(values)).max() <= 1
    np.testing.assert_array_equal(back, grid.dequantize(got))


def test_per_channel_and_four_bit_weights_and_stored_biases():
    x, w = normal(1, 3, 8), normal(2, 5, 8)
    for dtype in (np.dtype("int8"), dtypes.int4):
        last = 7 if dtype == dtypes.int4 else 63
        scales = np.abs(w).max(1) / np.float32(last)
        grid = Grid(dtype, tuple(map(float, scales)), 0, 0)
        stored = np.rint(w / scales[:, None]).astype(np.int8).astype(dtype)
        x_grid = asymmetric(float(x.min()), float(x.max()))
        bias = np.arange(-200, 300, 100).astype(np.int32)
        real = grid.dequantize(stored)
        for q in (None, x_grid):
            values = x if q is None else q.dequantize(q.quantize(x))
            tensor = Tensor("x", x.shape, F32 if q is None else I8, q)
            weights = Tensor("w", w.shape, dtype, grid, stored)
            b = None if q is None else Tensor("b", (5,), I32, None, bias)
            expected = values @ real.T + (0 if q is None else bias * (np.float64(x_grid.scale) * scales))
            out = asymmetric(float(expected.min()), float(expected.max())) if q else None
            y = Tensor("y", expected.shape, I8 if q else F32, out)
            node = Node("fully_connected", (tensor, weights, b), (y,), {"activation": None}, name="node")
            (got,) = run(build(NpuGraph("g", [tensor], [y], [node])), [q.quantize(x) if q else x])
            if q:
                assert np.abs(got.astype(int) - out.quantize(expected)).max() <= 1
            else:
                np.testing.assert_allclose(got, expected, atol=1e-4)


def image_chain(middle, shape, rank4=True):
    """conv -> an op -> 1x1 conv (or flattened): the op works on an image that lies channels first."""
    x, h = Tensor("x", (2, 5, 6, 3), F32), Tensor("h", (2, 5, 6, 4), F32)
    w = Tensor("w", (4, 1, 1, 3), F32, None, normal(5, 4, 1, 1, 3))
    conv_attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1, "activation": None}
    y = Tensor("y", shape, F32)
    op, extra, attrs, position = middle
    operands = [Tensor(f"c{i}", e.shape, e.dtype, None, e) for i, e in enumerate(extra)]
    operands.insert(position, h)
    nodes = [Node("conv_2d", (x, w, None), (h,), conv_attrs, name="conv"), Node(op, tuple(operands), (y,), attrs)]
    values = normal(6, 2, 5, 6, 3)
    return NpuGraph("g", [x], [y], nodes), values, np.einsum("nhwi,oi->nhwo", values, w.data[:, 0, 0])


ON_IMAGES = {
    "add a vector": (("add", [normal(1, 4)], {}, 0), lambda h: h + normal(1, 4)),
    "add a row": (("sub", [normal(1, 6, 1)], {}, 1), lambda h: normal(1, 6, 1) - h),
    "add an image": (("mul", [normal(1, 2, 5, 6, 4)], {}, 0), lambda h: h * normal(1, 2, 5, 6, 4)),
    "widen": (("add", [normal(1, 2, 2, 5, 6, 4)], {}, 0), lambda h: h + normal(1, 2, 2, 5, 6, 4)),
    "prelu": (("prelu", [normal(1, 4)], {}, 0), lambda h: np.where(h > 0, h, h * normal(1, 4))),
    "softmax": (("softmax", [], {"beta": 1.0}, 0), jax.nn.softmax),
    "cumsum": (("cumsum", [], {"axis": 2, "exclusive": False, "reverse": False}, 0), lambda h: np.cumsum(h, 2)),
    "mean over pixels": (("mean", [], {"axes": (1, 2), "keepdims": False}, 0), lambda h: h.mean((1, 2))),
    "mean over rows": (("mean", [], {"axes": (1,), "keepdims": False}, 0), lambda h: h.mean(1)),
    "mean over channels": (("mean", [], {"axes": (-1,), "keepdims": False}, 0), lambda h: h.mean(3)),
    "mean kept": (("mean", [], {"axes": (1, 3), "keepdims": True}, 0), lambda h: h.mean((1, 3), keepdims=True)),
    "argmax of channels": (("argmax", [], {"axis": 3}, 0), lambda h: h.argmax(3)),
    "argmax of rows": (("argmax", [], {"axis": 1}, 0), lambda h: h.argmax(1)),
    "concatenate": (("concatenation", [normal(1, 2, 5, 6, 3)], {"axis": 3}, 0),
                    lambda h: np.concatenate([h, normal(1, 2, 5, 6, 3)], 3)),
    "slice": (("strided_slice", [], {"begin": (0, 1, 0, 1), "end": (2, 5, 6, 4), "strides": (1, 2, 1, 2)}, 0),
              lambda h: h[:, 1::2, :, 1::2]),
    "pad": (("pad", [], {"padding": ((0, 0), (1, 0), (0, 2), (0, 1)), "value": None}, 0),
            lambda h: np.pad(h, ((0, 0), (1, 0), (0, 2), (0, 1)))),
    "reverse": (("reverse", [], {"axes": (3, 1)}, 0), lambda h: h[:, ::-1, :, ::-1]),
    "reshape": (("reshape", [], {"shape": (2, 120)}, 0), lambda h: h.reshape(2, 120)),
    "transpose": (("transpose", [], {"permutation": (0, 2, 3, 1)}, 0), lambda h: h.transpose(0, 2, 3, 1)),
    "gather": (("gather", [np.int32([3, 0])], {"axis": 3}, 0), lambda h: h[..., [3, 0]]),
    "tile": (("tile", [], {"multiples": (1, 1, 2, 1)}, 0), lambda h: np.tile(h, (1, 1, 2, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_IMAGES)
def test_ops_on_images_that_lie_channels_first(name):
    middle, f = ON_IMAGES[name]
    graph, values, h = image_chain(middle, f(np.zeros((2, 5, 6, 4), np.float32)).shape)
    graph.outputs[0].dtype = np.dtype(np.int32) if "argmax" in name else F32
    (got,) = run(build(graph), [values])
    np.testing.assert_allclose(got, f(h), atol=1e-4)


def test_transposes_stand_only_at_the_edges():
    x = Tensor("x", (1, 8, 8, 3), F32)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    nodes, h = [], x
    for i in range(4):
        w = Tensor(f"w{i}", (3, 3, 3, 3), F32, None, normal(i, 3, 3, 3, 3))
        y, z = Tensor(f"y{i}", h.shape, F32), Tensor(f"z{i}", h.shape, F32)
        nodes += [Node("conv_2d", (h, w, None), (y,), attrs), Node("add", (y, h), (z,), {"activation": None})]
        h = z
    model = build(NpuGraph("g", [x], [h], nodes))
    kinds = [op.get_type_name() for op in model.get_ordered_ops()]
    assert kinds.count("Convolution") == 4
    assert kinds.count("Transpose") == 2


def test_int8_products_run_in_integer_kernels():
    # The proof that the form is the one that OpenVINO's low-precision passes know.
    x = Tensor("x", (1, 8, 8, 16), I8, Grid(I8, 0.05, 3))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    stored = np.random.default_rng(0).integers(-63, 64, (16, 3, 3, 16)).astype(np.int8)
    w = Tensor("w", stored.shape, I8, Grid(I8, tuple(0.001 * (i + 1) for i in range(16)), 0, 0), stored)
    b = Tensor("b", (16,), I32, None, np.arange(16, dtype=np.int32))
    y = Tensor("y", (1, 8, 8, 16), I8, Grid(I8, 0.02, -128))
    model = build(NpuGraph("g", [x], [y], [Node("conv_2d", (x, w, b), (y,), attrs, name="conv")]))
    compiled = CORE.compile_model(model, "CPU", CPU)
    (info,) = [
        op.get_rt_info() for op in compiled.get_runtime_model().get_ordered_ops() if op.get_friendly_name() == "conv"
    ]
    assert info["runtimePrecision"].astype(str) in ("u8", "i8")


def test_names_and_files():
    x, y, z = (Tensor(n, (2, 3), F32) for n in "xyz")
    nodes = [Node("relu", (x,), (y,), name="a b"), Node("rsqrt", (y,), (z,), name="a b")]
    graph = NpuGraph("net", [x], [z], nodes)
    assert node_names(graph) == ["a_b", "a_b.1"]
    model = build(graph)
    names = {n: i for i, n in enumerate(node_names(graph))}
    owners = {op.get_type_name(): owner(op.get_friendly_name(), names) for op in model.get_ops()}
    assert (owners["Relu"], owners["Sqrt"], owners["Divide"], owners["Parameter"]) == (0, 1, 1, None)
    assert owner("a_b.1/Subtract", names) == 1
    files = serialize(model, "net")
    assert list(files) == ["net.xml", "net.bin"]
    assert files == serialize(build(graph), "net")
    back = CORE.read_model(files["net.xml"], files["net.bin"])
    values = normal(1, 2, 3)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(run(back, [values])[0], 1 / np.sqrt(np.maximum(values, 0)), rtol=1e-5)


def test_what_cannot_be_said_is_refused():
    x, y = Tensor("x", (2, 3), F32), Tensor("y", (2, 3), F32)
    half = Tensor("h", (2, 3), dtypes.bfloat16)
    with pytest.raises(LoweringError, match="bf16"):
        build(NpuGraph("g", [half], [y], [Node("cast", (half,), (y,))]))
    w, z = Tensor("w", (4, 1, 1, 3), F32), Tensor("z", (1, 1, 1, 4), F32)
    image = Tensor("i", (1, 1, 1, 3), F32)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1}
    with pytest.raises(LoweringError, match="not constant"):
        build(NpuGraph("g", [image, w], [z], [Node("conv_2d", (image, w, None), (z,), attrs)]))
    wide = Tensor("q", (2, 3), I32, Grid(I32, 0.1))
    with pytest.raises(LoweringError, match="grid"):
        build(NpuGraph("g", [x], [wide], [Node("quantize", (x,), (wide,))]))


def test_masks_of_minus_infinity():
    # A grid that reaches to minus infinity overflows inside FakeQuantize.
    grid = Grid(I8, 9e35, 127)
    x, y = Tensor("x", (2, 4), I8, grid), Tensor("y", (2, 4), I8, grid)
    stored = np.int8([[127, 126, 0, -128], [127, 127, -127, 5]])
    (got,) = run(build(NpuGraph("g", [x], [y], [Node("relu_n1_to_1", (x,), (y,))])), [stored])
    np.testing.assert_array_equal(got, np.full((2, 4), 127))
    (got,) = run(build(NpuGraph("g", [x], [y], [Node("quantize", (x,), (y,))])), [stored])
    np.testing.assert_array_equal(got, stored)


# What integers wrap to, and what a function is outside of its domain, is nobody's business.
UNDEFINED = {"log", "sqrt", "rsqrt", "div", "pow", "reduce_prod", "cast"}
# TFLite resizes with a fixed-point ratio; OpenVINO clamps integers at a step of the operand's grid.
LOOSE = {"resize_bilinear": 2, "relu6": 3, "relu_n1_to_1": 3}


@pytest.mark.parametrize("op", sorted(set(OPS) - UNDEFINED))
def test_the_same_as_the_meaning_of_graphs(op):
    rng = np.random.default_rng(0)
    compared = 0
    for seed in range(5):
        graph = single(op, seed)
        if op in PRODUCTS[:5] and not has_vnni() and any(t.dtype == I8 for t in graph.inputs):
            continue
        args = []
        for t in graph.inputs:
            low, high = t.grid.limits if t.grid else (0, 2)
            whole = rng.integers(low, high + 1, t.shape)
            args.append((whole if t.dtype != F32 else rng.standard_normal(t.shape)).astype(t.dtype))
        try:
            with np.errstate(all="ignore"):
                expected = interpret(graph, args)
        except (ParameterError, ProgramError, IndexError):
            continue  # a random graph that is not one
        for got, want, t in zip(run(build(graph), args), expected, graph.outputs, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            if want.dtype == F32:
                np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-4)
            elif t.dtype != np.dtype("int16") or op not in ("resize_bilinear", "exp"):
                steps = np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0)
                assert steps <= (LOOSE.get(op, 1) if t.grid else 0), (seed, str(graph))
            compared += 1
    assert compared


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_constants_of_each_sample_stay_out_of_quantizations(op, shape):
    rng = np.random.default_rng(3)
    x, c = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    check_int8(op, [x, c], np.add if op == "add" else np.subtract, {"activation": None}, constant=(1,))


@pytest.mark.parametrize("shape", [(), (7,), (1, 2, 1, 2, 1, 3)])
def test_grids_of_ranks_that_have_no_kernel(shape):
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    check_int8("tanh", [x], np.tanh)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(
    ("op", "shape", "axis", "x", "groups"),
    [
        ("conv_2d", (6, 3, 3, 4), 0, (1, 6, 6, 4), 1),
        ("conv_2d", (6, 3, 3, 2), 0, (1, 6, 6, 4), 2),
        ("depthwise_conv_2d", (1, 3, 3, 8), 3, (1, 6, 6, 4), None),
        ("fully_connected", (6, 4), 0, (2, 4), None),
    ],
)
def test_weights_that_a_node_takes_off_their_grid_stay_stored(op, shape, axis, x, groups, per_channel):
    # As weight-only quantization makes them: a constant, dequantize, a float product.
    rng = np.random.default_rng(5)
    scales = tuple(map(float, rng.uniform(0.01, 0.1, shape[axis]).astype(np.float32)))
    grid = Grid(I8, scales, 0, axis) if per_channel else Grid(I8, scales[0])
    w = Tensor("w", shape, I8, grid, rng.integers(-127, 128, shape).astype(np.int8))
    attrs = {"activation": None}
    if op != "fully_connected":
        attrs |= {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
    attrs |= {} if groups is None else {"groups": groups}
    inner, real = Tensor("x", x, F32), Tensor("real", shape, F32)
    y = Tensor("y", (*x[:-1], shape[axis]), F32)
    nodes = [Node("dequantize", (w,), (real,), name="real"), Node(op, (inner, real, None), (y,), attrs, name="y")]
    graph = NpuGraph("g", [inner], [y], nodes).check()
    model = build(graph)
    kept = [o for o in model.get_ops() if o.get_type_name() == "Constant" and o.get_element_type() == openvino.Type.i8]
    assert [int(np.prod(o.shape)) for o in kept] == [w.size]
    data = rng.standard_normal(x).astype(np.float32)
    np.testing.assert_allclose(run(model, [data])[0], interpret(graph, [data])[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("padding", ["VALID", [(1, 2), (0, 3)]])
def test_strides_of_16_bit_convolutions_of_one_pixel_stay(padding):
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(1, 1, 3, 8)).astype(np.float32), rng.normal(size=(1, 9, 12, 3)).astype(np.float32)
    layout = ("NHWC", "HWIO", "NHWC")
    f = lambda x: nx.nn.relu(nx.lax.conv_general_dilated(x, w, (2, 3), padding, dimension_numbers=layout))
    q = nx.quantize(f, "int16x8", calibrate=[(x,)])
    artifact = nx.compile(q, target="openvino-cpu")(x)
    assert artifact.run(x).shape == f(x).shape and artifact.deviation.max_lsb <= 2
