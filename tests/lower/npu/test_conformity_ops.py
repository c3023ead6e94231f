"""Our meaning of elementwise ops, functions, reductions and movements is LiteRT's, bit for bit."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.fixed.functions import real_function
from nxjax.ops.fixed.softmax import log_softmax_grid, softmax_grid
from nxjax.ops.quant_grid import Grid
from tests.lower.npu.litert import F32, I8, I16, I32, Random, conforms, litert, randoms

pytest.importorskip("ai_edge_litert.interpreter")

ACTIVATIONS = (None, None, "relu", "relu6", "relu_n1_to_1")
both = pytest.mark.parametrize("dtype", [I8, I16], ids=["int8", "int16"])
ALL8 = np.arange(-128, 128).astype(I8)


def shapes(r: Random) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, and what they make."""
    whole = tuple(r.size(1, 4) for _ in range(r.size(1, 4)))
    drop = lambda: tuple(r.choice(n, n, n, 1) for n in whole)[r.choice(0, 0, len(whole) - 1) :]
    a, b = drop(), drop()
    return a, b, tuple(np.broadcast_shapes(a, b))


# --- elementwise ---


@both
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@given(r=randoms)
def test_arithmetic(r: Random, op: str, dtype: np.dtype):
    a, b, out = shapes(r)
    # LiteRT takes no sum whose result's scale is 2**19 (16 bits: 2**14) times finer than the operands'.
    x, y, z = (r.grid(dtype, 1e-2, 50.0) for _ in range(3))
    if op == "mul" and r.choice(True, True, False):
        z = Grid(dtype, float(np.float32(float(x.scale) * float(y.scale) * r.scale(1, 300))), z.zero_point)  # pyright: ignore[reportArgumentType]
    r.agree(op, [x, y], [a, b], r.tensor(out, z), activation=r.choice(*ACTIVATIONS))


@given(r=randoms)
def test_add_of_one_scale(r: Random):
    g = r.grid(r.choice(I8, I16), 1e-6, 1e3)
    r.agree("add", [g, g], [(64,), (64,)], r.tensor((64,), g), activation=None)


@given(r=randoms)
def test_squared_difference(r: Random):
    a, b, out = shapes(r)
    x, y = r.grid(low=0.01, high=1.0), r.grid(low=0.01, high=1.0)
    r.agree("squared_difference", [x, y], [a, b], r.tensor(out, r.grid(low=0.01, high=10.0)))


@both
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@given(r=randoms)
def test_extremes(r: Random, op: str, dtype: np.dtype):
    a, b, out = shapes(r)
    g = r.grid(dtype)
    r.agree(op, [g, g], [a, b], r.tensor(out, g))


@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
@given(r=randoms)
def test_comparisons(r: Random, op: str):
    a, b, out = shapes(r)
    x = r.grid(high=0.99)
    r.agree(op, [x, r.choice(x, r.grid(high=0.99))], [a, b], r.tensor(out, np.dtype(bool)))


# --- one operand ---


@both
@pytest.mark.parametrize("op", ["relu", "relu6", "relu_n1_to_1"])
@given(r=randoms)
def test_relu(r: Random, op: str, dtype: np.dtype):
    if (op, dtype) == ("relu_n1_to_1", I16):
        return  # LiteRT has no such kernel.
    r.agree(op, [r.grid(dtype)], [(3, 50)], r.tensor((3, 50), r.grid(dtype)))


def on_a_half(op: str, values: np.ndarray, x: Grid, y: Grid, **attrs: Any) -> np.ndarray:
    """Which results lie on a half of a step, as far as float32 sees.

    LiteRT asks the machine's C library, whose tanhf, expm1f and erfcf may err by some units in the last place, where
    ours are rounded correctly: one table entry in about a million differs by one step.
    """
    steps = real_function(op, **attrs)(x.dequantize(values)).astype(np.float64) / y.scale
    return np.abs(np.abs(steps - np.trunc(steps)) - 0.5) < 1e-4


def every_value(r: Random, op: str, x: Grid, y: Grid, least: int = -128, reference: bool = True, **attrs: Any) -> None:
    """A function of every stored int8 value from ``least`` up, or of random int16 ones."""
    values = ALL8[max(least, -128) + 128 :] if x.dtype == I8 else r.stored((256,), I16)
    if x.dtype == I16 and least > -128:
        values = np.abs(np.maximum(values, -32767))
    if op in ("tanh", "gelu", "elu") and x.dtype == I8:
        values = values[~on_a_half(op, values, x, y, **attrs)]
    t = r.tensor(values.shape, x)
    conforms(r.node(op, [t], r.tensor(values.shape, y), **attrs), [values], reference)


@given(r=randoms)
def test_logistic(r: Random):
    every_value(r, "logistic", r.grid(), Grid(I8, 1 / 256, -128))
    x = Grid(I16, r.choice(2.0**-12, 2.0**-11, 2.0**-13, r.scale(1e-6, 1e-2)))
    every_value(r, "logistic", x, Grid(I16, 1 / 32768))


@given(r=randoms)
def test_tanh(r: Random):
    every_value(r, "tanh", r.grid(), r.choice(Grid(I8, 1 / 128, 0), r.grid(low=1e-3, high=0.1)))
    x = Grid(I16, r.choice(2.0**-12, 2.0**-11, 2.0**-13, r.scale(1e-6, 1e-2)))
    every_value(r, "tanh", x, Grid(I16, 1 / 32768))


@given(r=randoms, alpha=st.floats(-1, 2, width=32))
def test_leaky_relu(r: Random, alpha: float):
    dtype = r.choice(I8, I16)
    every_value(r, "leaky_relu", r.grid(dtype), r.grid(dtype), alpha=alpha)


@given(r=randoms)
def test_prelu(r: Random):
    shape = (2, 3, 3, 4)
    x, alpha = r.tensor(shape, r.grid()), r.grid(low=1e-3, high=0.1)
    slope = r.tensor((1, 1, 4), alpha, r.stored((1, 1, 4)))
    conforms(r.node("prelu", [x, slope], r.tensor(shape, r.grid())), [r.stored(shape)])


@given(r=randoms)
def test_hard_swish(r: Random):
    x = r.grid()
    # LiteRT refuses a result that is 128 times finer than the operand.
    y = r.grid(low=float(x.scale) / 100, high=float(x.scale) * 10)  # pyright: ignore[reportArgumentType]
    every_value(r, "hard_swish", x, y)


@given(r=randoms, approximate=st.booleans())
def test_gelu(r: Random, approximate: bool):
    every_value(r, "gelu", r.grid(high=1.0), r.grid(low=1e-2), approximate=approximate)


@pytest.mark.parametrize("op", ["exp", "log"])
@given(r=randoms)
def test_exp_and_log(r: Random, op: str):
    # 2**31 steps is where a conversion in C++ means nothing.
    every_value(r, op, r.grid(high=0.05), r.grid(low=1e-2))
    every_value(r, op, r.grid(I16, high=0.05), r.grid(I16, low=1e-2))


@given(r=randoms)
def test_elu(r: Random):
    # The reference kernels have no ELU.
    every_value(r, "elu", r.grid(high=1.0), r.grid(low=1e-2), reference=False)


@pytest.mark.parametrize("op", ["sqrt", "rsqrt"])
@given(r=randoms)
def test_roots(r: Random, op: str):
    x = r.grid()
    every_value(r, op, x, r.grid(), least=x.zero_point)
    every_value(r, op, r.grid(I16), r.grid(I16), least=0)


@both
@given(r=randoms)
def test_abs(r: Random, dtype: np.dtype):
    x, y = r.grid(dtype), r.grid(dtype)
    every_value(r, "abs", x, y)
    every_value(r, "abs", x, Grid(dtype, x.scale, y.zero_point))


def test_neg():
    g = Grid(I8, 0.5, 0)
    every_value(Random(0), "neg", g, g)


@given(r=randoms, beta=st.floats(0.125, 4, width=32))
def test_softmax(r: Random, beta: float):
    shape = (r.size(1, 3), r.size(1, 70))
    for dtype in (I8, I16):
        r.agree("softmax", [r.grid(dtype, 1e-4)], [shape], r.tensor(shape, softmax_grid(dtype)), beta=beta)


@given(r=randoms)
def test_log_softmax(r: Random):
    x = r.choice(r.grid(low=1e-2, high=1.0), Grid(I8, 2.0 ** r.size(-12, 4), r.size(-128, 127)))
    shape = (r.size(1, 3), r.size(1, 40))
    r.agree("log_softmax", [x], [shape], r.tensor(shape, log_softmax_grid(I8)))


@given(r=randoms)
def test_quantize(r: Random):
    dtype = r.choice(I8, I16)
    g = r.grid(dtype, 1e-3, 10.0)
    low, high = g.bounds
    x = r.rng.uniform(3 * low, 3 * high, 64).astype(np.float32)
    # Halves, and their neighbours on both sides.
    halves = ((r.rng.integers(-200, 200, 32) + 0.5) * g.scale).astype(np.float32)
    values = np.concatenate([x, halves, np.nextafter(halves, np.float32(-9)), np.nextafter(halves, np.float32(9))])
    conforms(r.node("quantize", [r.tensor(values.shape, F32)], r.tensor(values.shape, g)), [values])


@given(r=randoms)
def test_requantize(r: Random):
    a, b = r.choice(I8, I16), r.choice(I8, I16)
    r.agree("quantize", [r.grid(a)], [(100,)], r.tensor((100,), r.grid(b)))


@both
@given(r=randoms)
def test_dequantize(r: Random, dtype: np.dtype):
    r.agree("dequantize", [r.grid(dtype, 1e-12, 1e12)], [(100,)], r.tensor((100,), F32))


# --- pooling and reductions ---


@both
@pytest.mark.parametrize("op", ["max_pool_2d", "average_pool_2d"])
@given(r=randoms)
def test_pool(r: Random, op: str, dtype: np.dtype):
    from nxjax.lower.npu.formats.tflite_build import same_padding

    g, channels = r.grid(dtype), r.size(1, 4)
    rows = [(r.size(1, 8), r.size(1, 4), r.size(1, 3)) for _ in range(2)]
    kind = r.choice("same", "valid", "free") if op == "max_pool_2d" else r.choice("same", "valid")
    pads = ((0, 0), (0, 0))
    if kind == "same":
        pads = tuple(same_padding(*row) for row in rows)
    if kind == "free":
        pads = tuple((r.size(0, k - 1), r.size(0, k - 1)) for _, k, _ in rows)
    out = tuple((n + sum(p) - k) // s + 1 for (n, k, s), p in zip(rows, pads, strict=True))
    assume(min(out) > 0)
    sizes, window, strides = zip(*rows, strict=True)
    x = (r.size(1, 2), *sizes, channels)
    attrs = {"window": window, "strides": strides, "padding": pads, "activation": r.choice(*ACTIVATIONS)}
    r.agree(op, [g], [x], r.tensor((x[0], *out, channels), g), **attrs)


def reduced(r: Random) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    shape = tuple(r.size(1, 9) for _ in range(r.size(1, 4)))
    chosen = [i for i in range(len(shape)) if r.choice(True, False)] or [len(shape) - 1]
    keep = r.choice(True, False)
    out = tuple(1 if i in chosen else n for i, n in enumerate(shape) if keep or i not in chosen)
    return shape, tuple(chosen), out, keep


@both
@given(r=randoms)
def test_mean(r: Random, dtype: np.dtype):
    shape, axes, out, keep = reduced(r)
    r.agree("mean", [r.grid(dtype)], [shape], r.tensor(out, r.grid(dtype)), axes=axes, keepdims=keep)


@both
@given(r=randoms)
def test_product(r: Random, dtype: np.dtype):
    shape, axes, out, keep = reduced(r)
    x = r.grid(dtype, 1e-3, 1.0)
    r.agree("reduce_prod", [x], [shape], r.tensor(out, r.grid(dtype, 0.1, 1.0)), axes=axes, keepdims=keep)


@given(r=randoms)
def test_sum(r: Random):
    """LiteRT's reference SUM reads every 8-bit tensor as unsigned: it is the meaning of uint8, and wrong for int8."""
    shape, axes, out, keep = reduced(r)
    grids = [Grid(np.dtype("uint8"), r.scale(1e-3), r.size(0, 255)) for _ in range(2)]
    operand, result = r.tensor(shape, grids[0]), r.tensor(out, grids[1])
    conforms(r.node("sum", [operand], result, axes=axes, keepdims=keep), [r.stored(shape, np.dtype("uint8"))])


def test_sum_of_int8_is_ours_shifted_to_uint8():
    """On int8 we compute what LiteRT does on uint8 with everything 128 higher."""
    r = Random(1)
    x = r.stored((5, 40))
    signed = [r.tensor((5, 40), Grid(I8, 0.1, 3)), r.tensor((5,), Grid(I8, 0.9, -7))]
    u8 = np.dtype("uint8")
    unsigned = [r.tensor((5, 40), Grid(u8, 0.1, 131)), r.tensor((5,), Grid(u8, 0.9, 121))]
    ours = interpret(r.node("sum", [signed[0]], signed[1], axes=(1,), keepdims=False), [x])[0]
    shifted = (x.astype(np.int16) + 128).astype(u8)
    theirs = litert(r.node("sum", [unsigned[0]], unsigned[1], axes=(1,), keepdims=False), [shifted])[0]
    assert np.array_equal(ours.astype(np.int16) + 128, theirs)


@both
@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
@given(r=randoms)
def test_reduce_extremes(r: Random, op: str, dtype: np.dtype):
    shape, axes, out, keep = reduced(r)
    g = r.grid(dtype)
    r.agree(op, [g], [shape], r.tensor(out, g), axes=axes, keepdims=keep)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@given(r=randoms)
def test_arg(r: Random, op: str):
    shape = tuple(r.size(1, 6) for _ in range(r.size(1, 4)))
    axis = r.size(0, len(shape) - 1)
    out = tuple(n for i, n in enumerate(shape) if i != axis)
    r.agree(op, [r.grid()], [shape], r.tensor(out, I32), axis=axis)


# --- movement ---


def moved(r: Random) -> list[tuple[str, tuple[int, ...], dict[str, Any]]]:
    """An op that moves, its result's shape and its attributes, for an operand of shape [2, 3, 4, 5]."""
    shape = (2, 3, 4, 5)
    begin = tuple(r.size(0, n - 1) for n in shape)
    size = tuple(r.size(1, n - b) for n, b in zip(shape, begin, strict=True))
    strides = tuple(r.size(1, 3) for _ in shape)
    end = tuple(b + n for b, n in zip(begin, size, strict=True))
    strided = tuple(-(-n // s) for n, s in zip(size, strides, strict=True))
    permutation = tuple(int(i) for i in r.rng.permutation(4))
    pads = tuple((r.size(0, 2), r.size(0, 2)) for _ in shape)
    padded = tuple(n + sum(p) for n, p in zip(shape, pads, strict=True))
    multiples = tuple(r.size(1, 2) for _ in shape)
    axis = r.size(0, 3)
    return [
        ("reshape", (6, 20), {"shape": (6, 20)}),
        ("transpose", tuple(shape[i] for i in permutation), {"permutation": permutation}),
        ("slice", size, {"begin": begin, "size": size}),
        ("strided_slice", strided, {"begin": begin, "end": end, "strides": strides}),
        ("pad", padded, {"padding": pads, "value": r.choice(None, 0.5, -3.0, 1e9)}),
        ("tile", tuple(n * m for n, m in zip(shape, multiples, strict=True)), {"multiples": multiples}),
        ("broadcast_to", (3, *shape), {"shape": (3, *shape)}),
        ("reverse", shape, {"axes": tuple(sorted({axis, r.size(0, 3)}))}),
    ]


@both
@given(r=randoms)
def test_movement(r: Random, dtype: np.dtype):
    for op, out, attrs in moved(r):
        g = r.grid(dtype, 0.01)
        x = r.tensor((2, 3, 4, 5), g)
        # The reference kernels have no TILE of this version.
        conforms(r.node(op, [x], r.tensor(out, g), **attrs), [r.stored(x.shape, dtype)], reference=op != "tile")


@both
@given(r=randoms)
def test_concatenation(r: Random, dtype: np.dtype):
    g, axis, shape = r.grid(dtype), r.size(0, 2), [r.size(1, 4) for _ in range(3)]
    parts = [r.size(1, 4) for _ in range(r.size(1, 3))]
    operands = [(*shape[:axis], n, *shape[axis + 1 :]) for n in parts]
    out = r.tensor((*shape[:axis], sum(parts), *shape[axis + 1 :]), g)
    r.agree("concatenation", [g] * len(parts), operands, out, axis=axis)


@both
@given(r=randoms)
def test_split(r: Random, dtype: np.dtype):
    g, sizes = r.grid(dtype), tuple(r.size(1, 3) for _ in range(r.size(1, 3)))
    x = r.tensor((2, sum(sizes), 3), g)
    outs = [r.tensor((2, n, 3), g) for n in sizes]
    conforms(r.node("split", [x], *outs, axis=1, sizes=sizes), [r.stored(x.shape, dtype)])


@both
@given(r=randoms)
def test_gather(r: Random, dtype: np.dtype):
    g, axis = r.grid(dtype), r.size(0, 2)
    shape, indices = (4, 5, 6), r.rng.integers(0, 4, (2, 3)).astype(I32)
    x = r.tensor(shape, g)
    out = r.tensor((*shape[:axis], 2, 3, *shape[axis + 1 :]), g)
    conforms(r.node("gather", [x, r.tensor((2, 3), I32, indices)], out, axis=axis), [r.stored(shape, dtype)])


@given(r=randoms)
def test_select(r: Random):
    g, condition = r.grid(), r.tensor((2, 1, 4), np.dtype(bool))
    x, y = r.tensor((2, 3, 4), g), r.tensor((3, 4), g)
    graph = r.node("select", [condition, x, y], r.tensor((2, 3, 4), g))
    conforms(graph, [r.rng.random((2, 1, 4)) < 0.5, r.stored(x.shape), r.stored(y.shape)])


@both
@pytest.mark.parametrize("op", ["resize_bilinear", "resize_nearest"])
@given(r=randoms, corners=st.sampled_from([(False, False), (True, False), (False, True)]))
def test_resize(r: Random, op: str, dtype: np.dtype, corners: tuple[bool, bool]):
    x, size, g = (r.size(1, 2), r.size(1, 9), r.size(1, 9), 3), (r.size(1, 14), r.size(1, 14)), r.grid(dtype)
    attrs = {"size": size, "align_corners": corners[0], "half_pixel_centers": corners[1]}
    r.agree(op, [g], [x], r.tensor((x[0], *size, 3), g), **attrs)


def test_a_table_that_no_operator_computes():
    r = Random(2)
    values = r.stored((256,))
    x, y = r.tensor((256,), r.grid()), r.tensor((256,), r.grid())
    conforms(r.node("table", [x], y, function="mine", values=values), [ALL8])


def test_a_chain_of_nodes():
    """Several nodes, one of them with two uses: every tensor in between is ours too, through its later nodes."""
    r = Random(3)
    grids = [r.grid(low=0.02, high=0.2) for _ in range(4)]
    x, a, b, c = (r.tensor((4, 6), g) for g in grids)
    steps = [("relu6", [x], a), ("abs", [x], b), ("add", [a, b], c)]
    nodes = [r.node(op, list(xs), y).nodes[0] for op, xs, y in steps]
    conforms(NpuGraph("chain", [x], [c, a, b], nodes), [r.stored((4, 6))])


def test_every_rounding_of_zero_points():
    """The ends of zero points and clamps together: the relu family between all of them."""
    for zero, op in itertools.product((-128, -1, 0, 127), ("relu", "relu6", "relu_n1_to_1")):
        every_value(Random(zero & 0xFF), op, Grid(I8, 0.07, zero), Grid(I8, 0.0313, -zero if zero > -128 else 127))
