"""Quantized ops: the graph computes the bits of the program, on the grids that the ops name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import ProgramError, UnsupportedOpsError
from nxjax.lower.npu.formats import tflite_kernels
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.rules.elementwise import keeps_order
from nxjax.lower.npu.rules.quantized import activation_of
from nxjax.ops.dimension_numbers import conv_dimension_numbers
from nxjax.ops.fake_quantize import quantize_dequantize, quantize_weight, requantize
from nxjax.ops.quant_elementwise import qadd, qmul, qsub, qunary
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from nxjax.ops.quant_products import qconv, qdot, qmatmul
from nxjax.ops.quant_reduce import qavgpool, qmean, qsum
from nxjax.ops.quant_softmax import qsoftmax
from nxjax.trace import dtypes
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

G, H, OUT = asymmetric(-3.0, 3.5), asymmetric(-2.0, 1.0), asymmetric(-8.0, 9.0)
X = normal(2, 6, 5, 4)
INT16 = np.dtype("int16")


def exact(f, *xs, **options):
    return same(f, *xs, exact=True, **options)


def scales(w, axes):
    """One scale per slice of ``axes``."""
    others = tuple(i for i in range(w.ndim) if i not in axes)
    return np.abs(w).max(others, keepdims=True) / np.float32(127)


def conv_of(
    x, w, b, *, layout=("NHWC", "HWIO", "NHWC"), x_grid=G, y_grid=OUT, rounding="double", dtype="int8", **options
):
    numbers = conv_dimension_numbers(x.shape, w.shape, layout)
    spatial = x.ndim - 2
    lo, hi = options.pop("clamp", y_grid.limits)
    w_scale = options.pop("w_scale", scales(w, (numbers.rhs_spec[0],)))
    return qconv(
        x, jnp.asarray(w), jnp.asarray(w_scale), jnp.asarray(b), x_grid=x_grid, y_grid=y_grid, lo=lo, hi=hi,
        w_dtype=dtypes.as_dtype(dtype), rounding=rounding, dimension_numbers=numbers,
        **{
            "window_strides": (1,) * spatial, "padding": ((1, 1),) * spatial, "lhs_dilation": (1,) * spatial,
            "rhs_dilation": (1,) * spatial, "feature_group_count": 1, **options,
        },
    )  # fmt: skip


def dot_of(x, w, b, numbers, *, x_grid=G, y_grid=OUT, clamp=None, rounding="double", w_scale=None):
    (_, wc), _ = numbers
    lo, hi = clamp or y_grid.limits
    w_scale = scales(w, tuple(i for i in range(w.ndim) if i not in wc)) if w_scale is None else w_scale
    return qdot(
        x, jnp.asarray(w), jnp.asarray(w_scale), jnp.asarray(b), x_grid=x_grid, y_grid=y_grid, lo=lo, hi=hi,
        w_dtype=dtypes.int8, rounding=rounding, dimension_numbers=numbers,
    )  # fmt: skip


# --- products ---


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (("NHWC", "HWIO", "NHWC"), (3, 3, 4, 5)),
        (("NHWC", "OIHW", "NHWC"), (5, 4, 3, 3)),
        (("NHWC", "OHWI", "NCHW"), (5, 3, 3, 4)),
    ],
)
def test_convolution(layout, shape, rounding):
    w, b = normal(*shape), normal(5)
    g = exact(lambda x: conv_of(x, w, b, layout=layout, rounding=rounding), X)
    found = [n for n in g.nodes if n.op == "conv_2d"]
    assert len(found) == 1
    assert ops(g)[0] == "quantize"
    assert ops(g)[-1] == "dequantize"
    assert g.rounding == rounding
    x, weights, bias = found[0].inputs
    assert (x.grid, found[0].output.grid) == (G, OUT)
    assert weights.dtype == np.int8
    assert weights.shape == (5, 3, 3, 4)
    assert weights.grid.axis == 0
    assert len(weights.grid.scale) == 5
    assert bias.dtype == np.int32
    np.testing.assert_allclose(bias.grid.scale, np.float32(G.scale) * np.float32(weights.grid.scale))


@pytest.mark.parametrize(
    "options",
    [
        {"window_strides": (2, 1), "padding": ((0, 1), (2, 0))},
        {"rhs_dilation": (2, 1), "padding": ((2, 2), (-1, 0))},
        {"lhs_dilation": (2, 2), "padding": ((1, 2), (2, 2))},
        {"lhs_dilation": (2, 3), "padding": ((3, 3), (2, 2))},
        {"dtype": "int4"},
        {"w_scale": np.full((1, 1, 1, 1), 0.02, np.float32)},
        {"x_grid": symmetric(3.0), "y_grid": symmetric(9.0)},
        {"clamp": (OUT.zero_point, 127)},
        {"clamp": (-100, 40)},
    ],
)
def test_options_of_convolutions(options):
    w, b = normal(3, 3, 4, 6), normal(6)
    exact(lambda x: conv_of(x, w, b, **options), X)


def test_groups():
    depthwise, half = normal(3, 3, 1, 8), normal(3, 3, 2, 6)
    g = exact(lambda x: conv_of(x, depthwise, normal(8), feature_group_count=4), X)
    (n,) = (n for n in g.nodes if n.op == "depthwise_conv_2d")
    assert n.inputs[1].shape == (1, 3, 3, 8)
    assert n.inputs[1].grid.axis == 3
    g = exact(lambda x: conv_of(x, half, normal(6), feature_group_count=2), X)
    assert count(g)["conv_2d"] == 1


def test_one_dimension_and_channels_first():
    w = normal(5, 4, 3)
    g = exact(lambda x: conv_of(x, w, normal(5), layout=("NCW", "OIW", "NCW"), padding=((2, 0),)), normal(2, 4, 9))
    assert count(g)["conv_2d"] == 1


def test_no_bias_is_no_operand():
    w = normal(3, 3, 4, 5)
    g = exact(lambda x: conv_of(x, w, np.zeros(5, np.float32)), X)
    assert next(n for n in g.nodes if n.op == "conv_2d").inputs[2] is None


def test_16_bit_activations_have_wide_biases():
    w, b = normal(3, 3, 4, 5), normal(5)
    g = exact(lambda x: conv_of(x, w, b, x_grid=symmetric(3.0), y_grid=symmetric(40.0)), X)
    assert next(n for n in g.nodes if n.op == "conv_2d").inputs[2].dtype == np.int64


@pytest.mark.parametrize(
    ("numbers", "x", "w"),
    [
        ((((1,), (0,)), ((), ())), (3, 4), (4, 5)),
        ((((1,), (1,)), ((), ())), (3, 4), (5, 4)),
        ((((2,), (0,)), ((), ())), (2, 3, 4), (4, 2, 3)),
        ((((2, 1), (2, 0)), ((), ())), (2, 3, 4), (3, 5, 4)),
        ((((0,), (0,)), ((), ())), (4, 3), (4, 5)),
        ((((0,), (0,)), ((), ())), (4,), (4, 5)),
    ],
)
def test_dense_layers(numbers, x, w):
    weights = normal(*w)
    (_, wc), _ = numbers
    bias = normal(*(n for i, n in enumerate(w) if i not in wc))
    g = exact(lambda v: dot_of(v, weights, bias, numbers), normal(*x))
    assert count(g)["fully_connected"] == 1
    exact(lambda v: dot_of(v, weights, bias, numbers, w_scale=np.full((1,) * len(w), 0.03, np.float32)), normal(*x))


@pytest.mark.parametrize(
    ("x", "w", "numbers"),
    [
        ((3, 4), (3, 4, 5), (((1,), (1,)), ((0,), (0,)))),
        ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
        ((6, 2, 3, 4), (4, 3, 5, 2), (((3,), (0,)), ((2, 1), (1, 3)))),
    ],
)
@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_of_every_element_are_layers_of_their_own(x, w, numbers, per_channel):
    (_, wc), (_, wb) = numbers
    weights = normal(*w)
    bias = normal(*(w[i] for i in (*wb, *(i for i in range(len(w)) if i not in (*wc, *wb)))))
    scale = scales(weights, tuple(i for i in range(len(w)) if i not in wc)) if per_channel else None
    scale = np.full((1,) * len(w), 0.03, np.float32) if scale is None else scale
    g = exact(lambda v: dot_of(v, weights, bias, numbers, w_scale=scale, clamp=(-20, 90)), normal(*x))
    assert count(g)["fully_connected"] == int(np.prod([w[i] for i in wb]))


def test_too_many_layers_are_refused():
    w, numbers = normal(65, 4, 5), (((2,), (1,)), ((0,), (0,)))
    with pytest.raises(UnsupportedOpsError, match="each of 65 elements of the batch has weights of its own"):
        graph_of(lambda x: dot_of(x, w, normal(65, 5), numbers), normal(65, 3, 4))


def test_weights_must_be_constant():
    scale = np.full((1, 1), 0.1, np.float32)
    numbers = (((1,), (0,)), ((), ()))
    with pytest.raises(UnsupportedOpsError, match="pass the parameters as constants"):
        graph_of(
            lambda x, w: qdot(
                x, w, jnp.asarray(scale), jnp.zeros(5), x_grid=G, y_grid=OUT, lo=-128, hi=127, w_dtype=dtypes.int8,
                rounding="double", dimension_numbers=numbers,
            ),
            normal(3, 4), normal(4, 5),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "x", "y"),
    [
        ((((1,), (0,)), ((), ())), (3, 4), (4, 5)),
        ((((2,), (2,)), ((0,), (0,))), (2, 3, 4), (2, 5, 4)),
        ((((3,), (3,)), ((0, 2), (0, 2))), (2, 6, 3, 4), (2, 5, 3, 4)),
    ],
)
def test_products_of_activations(numbers, x, y):
    def f(a, b):
        return qmatmul(
            a, b, x_grid=G, y_grid=H, out_grid=OUT, lo=-128, hi=127, rounding="double", dimension_numbers=numbers
        )

    g = exact(f, normal(*x), normal(*y))
    assert count(g)["batch_matmul"] == 1
    assert count(g)["quantize"] == 2


# --- arithmetic ---


@settings(deadline=None, max_examples=30)
@given(st.floats(0.5, 8), st.floats(0.5, 8), st.floats(0.5, 16), st.sampled_from([qadd, qsub, qmul]), st.booleans())
def test_arithmetic(a, b, c, op, clamp):
    x_grid, y_grid, out = asymmetric(-a, b), asymmetric(-b, a), asymmetric(-c, c / 2)
    lo, hi = (-50, 60) if clamp else out.limits
    options = {"x_grid": x_grid, "y_grid": y_grid, "out_grid": out, "lo": lo, "hi": hi, "rounding": "double"}
    node = {"qadd": "add", "qsub": "sub", "qmul": "mul"}[op.name]
    g = exact(lambda x, y: op(x, y, **options), normal(3, 4) * 3, normal(4, 3).T.copy())
    assert count(g)[node] == 1
    # A constant operand is stored, a broadcast one is left to the node.
    row = jnp.asarray(normal(4))
    g = exact(lambda x: op(x, jnp.broadcast_to(row, (3, 4)), **options), normal(3, 4))
    assert g.constants()[0].shape == (1, 4)
    assert g.constants()[0].dtype == np.int8


def test_activations():
    assert activation_of(OUT, -128, 127) is None
    assert activation_of(OUT, OUT.zero_point, 127) == "relu"
    six = int(OUT.quantize(np.asarray(6, np.float32)))
    assert activation_of(OUT, OUT.zero_point, six) == "relu6"
    ones = [int(OUT.quantize(np.asarray(v, np.float32))) for v in (-1, 1)]
    assert activation_of(OUT, *ones) == "relu_n1_to_1"
    assert activation_of(OUT, -3, 5) == ""
    options = {"x_grid": G, "y_grid": H, "out_grid": OUT, "rounding": "double"}
    for lo, hi, nodes in (
        (-128, 127, ["add"]),
        (OUT.zero_point, six, ["add"]),
        (-3, 127, ["add", "maximum"]),
        (-3, 5, ["add", "maximum", "minimum"]),
    ):
        g = exact(lambda x, y, lo=lo, hi=hi: qadd(x, y, lo=lo, hi=hi, **options), X, X)
        assert ops(g)[2:-1] == nodes


def test_changes_of_grid():
    full = {"lo": -128, "hi": 127, "rounding": "double"}
    assert ops(exact(lambda x: requantize(x, x_grid=G, y_grid=OUT, **full), X)) == [
        "quantize",
        "quantize",
        "dequantize",
    ]
    assert ops(exact(lambda x: requantize(x, x_grid=G, y_grid=G, **full), X)) == ["quantize", "dequantize"]
    relu = {**full, "lo": OUT.zero_point}
    assert ops(exact(lambda x: requantize(x, x_grid=G, y_grid=OUT, **relu), X)) == ["quantize", "relu", "dequantize"]
    odd = {**full, "lo": -30, "hi": 30}
    g = exact(lambda x: requantize(x, x_grid=G, y_grid=OUT, **odd), X)
    assert ops(g) == ["quantize", "quantize", "maximum", "minimum", "dequantize"]


def test_bounds_of_16_bits_without_a_kernel_of_their_own():
    """LiteRT has relu_n1_to_1 of int8 only: in 16 bits it is a maximum and a minimum, unless another node has it."""
    for dtype, nodes in ((np.dtype("int8"), ["relu_n1_to_1"]), (INT16, ["maximum", "minimum"])):
        grid = symmetric(3.0, dtype)
        lo, hi = (int(grid.quantize(np.float32(v))) for v in (-1, 1))
        clamp = {"y_grid": grid, "lo": lo, "hi": hi, "rounding": "double"}
        g = exact(lambda x, clamp=clamp, grid=grid: requantize(x, x_grid=grid, **clamp), X)
        assert ops(g) == ["quantize", *nodes, "dequantize"]
        assert all(tflite_kernels.supports(n).ok for n in g.nodes)


def test_snapping_twice_is_snapping_once():
    f = lambda x: quantize_dequantize(quantize_dequantize(x, grid=G).transpose(0, 3, 1, 2), grid=G)
    assert ops(exact(f, X)) == ["quantize", "transpose", "dequantize"]
    # Between grids without `requantize`, values are rounded as reals.
    f = lambda x: quantize_dequantize(quantize_dequantize(x, grid=G), grid=H)
    assert ops(exact(f, X)) == ["quantize", "dequantize", "quantize", "dequantize"]


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        ("logistic", ()), ("tanh", ()), ("hard_swish", ()), ("leaky_relu", (("alpha", 0.1),)), ("elu", ()),
        ("gelu", (("approximate", True),)), ("exp", ()), ("abs", ()), ("silu", ()), ("softplus", ()), ("neg", ()),
    ],
)  # fmt: skip
def test_functions(function, parameters):
    y_grid = asymmetric(0, 1) if function == "logistic" else asymmetric(-1, 1) if function == "tanh" else OUT
    g = exact(
        lambda x: qunary(x, function=function, x_grid=G, y_grid=y_grid, rounding="double", parameters=parameters), X
    )
    node = g.nodes[1]
    assert node.op == (function if function not in ("silu", "softplus") else "table")
    if node.op == "table":
        assert node.attrs["function"] == function
        assert len(node.attrs["values"]) == 256


def test_softmax_and_reductions():
    y = Grid(np.dtype("int8"), 1 / 256, -128)
    assert ops(exact(lambda x: qsoftmax(x, axis=3, x_grid=G, y_grid=y, rounding="double"), X)) == [
        "quantize",
        "softmax",
        "dequantize",
    ]
    exact(lambda x: qsoftmax(x, axis=1, x_grid=G, y_grid=y, rounding="double"), X)
    for op, node in ((qmean, "mean"), (qsum, "sum")):
        for axes in ((1, 2), (3,), (0, 1, 2, 3)):
            g = exact(lambda x, op=op, axes=axes: op(x, axes=axes, x_grid=G, y_grid=OUT, rounding="double"), X)
            assert count(g)[node] == 1
    one = X[:, :1, :1]
    exact(lambda x: qmean(x, axes=(1, 2), x_grid=G, y_grid=OUT, rounding="double"), one)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1)])
def test_average_pools(last, padding):
    spread = lambda v, rest: (rest, *v, rest) if last else (rest, rest, *v)
    options = {
        "window_dimensions": spread((3, 2), 1),
        "window_strides": spread((1, 2), 1),
        "padding": spread((padding, (0, 1)), (0, 0)),
    }
    g = exact(lambda x: qavgpool(x, grid=G, **options), X)
    assert count(g)["average_pool_2d"] == 1
    box = {"window_dimensions": (1, 2, 2, 2), "window_strides": (1, 1, 1, 1), "padding": ((0, 0),) * 4}
    with pytest.raises(UnsupportedOpsError, match="two steps"):
        graph_of(lambda x: qavgpool(x, grid=G, **box), X)


# --- between quantized ops ---


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(2, 30, 4), lambda x: x.transpose(0, 3, 1, 2), lambda x: x[:, 1:, ::2], lambda x: x[:, ::-1],
        lambda x: jnp.concatenate([x, x], 3),
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0))),
        lambda x: x.max((1, 2)),
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        lambda x: x[:, 0][..., None],
        lambda x: jnp.broadcast_to(x[:, :1], (2, 3, 5, 4)), lambda x: jnp.repeat(x, 2, 1), nn.relu,
        lambda x: jnp.where(x > x[:, :, :1], x, x[:, :, ::-1]),
        lambda x: jnp.maximum(x, x[:, :, ::-1]),
        lambda x: jnp.maximum(x, 0),
        lambda x: jnp.stack(lax.split(x, (2, 2), 3)),
        lambda x: x[:, jnp.array([1, 1, 0])],
        lambda x: lax.dynamic_slice(x, (0, 1, 0, 0), (2, 2, 5, 4)),
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=float(G.dequantize(np.int8([5]))[0])),
    ],
)  # fmt: skip
def test_movement_stays_on_the_grid(function):
    g = exact(lambda x: function(quantize_dequantize(x, grid=G)), X)
    assert ops(g)[0] == "quantize"
    assert ops(g)[-1] == "dequantize"
    assert count(g)["quantize"] == count(g)["dequantize"] == 1
    assert all(t.grid == G or t.dtype in (np.bool_, np.int32) for n in g.nodes[:-1] for t in n.outputs)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.tanh(x) + 1,
        lambda x: x * x,
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=0.0123),
        lambda x: jnp.maximum(x, 0.0123),
        lambda x: jnp.clip(x, 0.0123, 0.4321),
        lambda x: x.sum(1),
        lambda x: nn.softmax(x),
        lambda x: jnp.concatenate([x, x * 2], 1),
        lambda x: x @ normal(4, 3),
        lambda x: jnp.cumsum(x, 1),
        lambda x: x == 0.0123,
    ],
)  # fmt: skip
def test_floats_come_off_the_grid_once(function):
    g = same(lambda x: function(quantize_dequantize(x, grid=G)), X)
    assert ops(g)[:2] == ["quantize", "dequantize"]
    assert count(g)["dequantize"] == 1


@pytest.mark.parametrize("scale", [1e-4, 3e-3, 0.02, 0.5, 40.0])
def test_comparisons_tell_neighbours_apart(scale):
    grid = Grid(np.dtype("int8"), scale, 3)
    x = grid.dequantize(np.arange(-128, 128, dtype=np.int8))

    def f(x):
        q = quantize_dequantize(x, grid=grid)
        return q[1:] > q[:-1], q[1:] == q[:-1]

    g = exact(f, x)
    assert (next(n for n in g.nodes if n.op == "greater").inputs[0].grid is not None) == keeps_order(grid)
    assert not keeps_order(Grid(np.dtype("int8"), 1e-4))
    assert keeps_order(Grid(np.dtype("int8"), 0.5))
    # LiteRT's factor to its fixed point has to be below 1.
    assert not keeps_order(Grid(np.dtype("int8"), 1.0))


def test_positions_need_no_floats():
    assert ops(exact(lambda x: jnp.argmax(quantize_dequantize(x, grid=G), 3), X)) == ["quantize", "argmax"]


def test_a_network_is_integers_from_end_to_end():
    w, b, dense, numbers = normal(4, 4, 3, 3), normal(4), normal(4 * 30, 3), (((1,), (0,)), ((), ()))

    def f(x):
        x = quantize_dequantize(x, grid=G)
        y = conv_of(x, w, b, layout=("NCHW", "OIHW", "NCHW"), y_grid=G, clamp=(G.zero_point, 127))
        y = qadd(y, x, x_grid=G, y_grid=G, out_grid=H, lo=-128, hi=127, rounding="double")
        return dot_of(y.reshape(2, -1), dense, normal(3), numbers, x_grid=H)

    x = normal(2, 4, 6, 5)
    g = exact(f, x)
    assert ops(g) == ["quantize", "transpose", "conv_2d", "add", "reshape", "fully_connected", "dequantize"]
    g = graph_of(f, x, io="integer")
    assert ops(g) == ["transpose", "conv_2d", "add", "reshape", "fully_connected"]
    assert [t.grid for t in (*g.inputs, *g.outputs)] == [G, OUT]
    stored = interpret(g, [G.quantize(x)])[0]
    np.testing.assert_array_equal(OUT.dequantize(stored), interpret(graph_of(f, x), [x])[0])


def test_inputs_used_in_two_ways_stay_floats():
    f = lambda x: (quantize_dequantize(x, grid=G), x + 1, quantize_dequantize(x, grid=H))
    g = graph_of(f, X, io="integer")
    assert g.inputs[0].grid is None
    assert [t.grid for t in g.outputs] == [G, None, H]
    exact(f, X)


def test_one_rounding_for_all():
    options = {"x_grid": G, "y_grid": H, "lo": -128, "hi": 127}
    f = lambda x: requantize(requantize(x, rounding="single", **options), **{**options, "x_grid": H}, rounding="double")
    with pytest.raises(ProgramError, match="round in different ways"):
        graph_of(f, X)
    assert graph_of(lambda x: requantize(x, rounding="single", **options), X).rounding == "single"
    assert graph_of(lambda x: x + 1, X, rounding="single").rounding == "single"


# --- weights alone ---


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_weights_alone(dtype):
    w, dense = normal(3, 3, 4, 5), normal(5, 3)

    def f(x):
        stored = quantize_weight(jnp.asarray(w), jnp.asarray(scales(w, (3,))), dtype=dtypes.as_dtype(dtype))
        y = lax.conv_general_dilated(x, stored, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        one = quantize_weight(jnp.asarray(dense), jnp.full((1, 1), 0.02), dtype=dtypes.int8)
        return y.mean((1, 2)) @ one

    g = same(f, X)
    assert ops(g) == ["dequantize", "conv_2d", "mean", "dequantize", "fully_connected"]
    stored = g.nodes[0].inputs[0]
    assert stored.dtype == dtypes.as_dtype(dtype)
    assert (stored.shape, stored.grid.axis) == ((5, 3, 3, 4), 0)


def test_scales_in_blocks_are_those_of_rows():
    w = normal(8, 5)
    f = lambda x: x @ quantize_weight(jnp.asarray(w), jnp.full((2, 1), 0.02), dtype=dtypes.int8)
    assert ops(same(f, normal(3, 8))) == ["dequantize", "reshape", "fully_connected"]


def test_computed_weights_are_rounded_in_floats():
    def f(x):
        scale = jnp.max(jnp.abs(x), keepdims=True) / 127
        return quantize_weight(x, scale, dtype=dtypes.int8)

    assert {"div", "round", "mul"} <= set(ops(same(f, normal(3, 4))))


def test_eight_bit_floats_are_not_made_while_a_graph_runs():
    f = nx.quantize(lambda p, x: x @ p, "fp8")
    with pytest.raises(UnsupportedOpsError, match="f8_e4m3fn while an NPU graph runs"):
        graph_of(lambda x: f(jnp.asarray(normal(4, 5)), x), normal(3, 4))
