"""Core ML packages mean what their graphs mean, hold what they should, and are the same bytes every time."""

import json

import numpy as np
import pytest

from nxjax.errors import LoweringError, ParameterError, ProgramError
from nxjax.lower.npu.formats.coreml_net import node_names
from nxjax.lower.npu.formats.coreml_ops import RULES
from nxjax.lower.npu.formats.coreml_writer import author, read, write
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.trace import dtypes
from tests.lower.npu.formats.mil_meaning import run
from tests.lower.npu.lowering import graph_of
from tests.lower.npu.test_blocks import LAYERS
from tests.lower.npu.test_blocks import quantized as in_blocks
from tests.vendors.single import OPS, single

F32, I8, I32 = np.dtype("float32"), np.dtype("int8"), np.dtype("int32")
# What integers wrap to, and what a function is outside of its domain, is nobody's business.
UNDEFINED = {"log", "sqrt", "rsqrt", "div", "pow", "reduce_prod", "cast"}
MODEL, WEIGHTS = "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_args(graph, rng):
    for t in graph.inputs:
        low, high = t.grid.limits if t.grid else (0, 2)
        whole = rng.integers(low, high + 1, t.shape)
        yield (whole if t.dtype != F32 else rng.standard_normal(t.shape)).astype(t.dtype)


def union(graphs):
    """One graph of many, apart from one another."""
    for i, g in enumerate(graphs):
        for t in g.tensors():
            t.name = f"g{i}_{t.name}"
    parts = ([t for g in graphs for t in getattr(g, k)] for k in ("inputs", "outputs", "nodes"))
    return NpuGraph("many", *parts).check()


def results(graph, args, real=F32):
    made = run(author(graph, real).files, {t.name: a for t, a in zip(graph.inputs, args, strict=True)})
    return [made[t.name] for t in graph.outputs]


def assert_same(graph, got, expected, steps=1, tolerance=1e-4):
    for g, e, t in zip(got, expected, graph.outputs, strict=True):
        assert g.shape == e.shape
        if e.dtype.kind == "f":
            np.testing.assert_allclose(g, e, atol=tolerance, rtol=tolerance)
        else:
            off = np.abs(g.astype(np.int64) - e.astype(np.int64)).max(initial=0)
            assert off <= (steps if t.grid else 0), (t.name, off)


@pytest.mark.parametrize("op", sorted(set(OPS) - UNDEFINED))
def test_the_same_as_the_meaning_of_graphs(op):
    # In float32, so that what differs by more than one step of an integer grid is a wrong program.
    rng, graphs, args, expected = np.random.default_rng(0), [], [], []
    for seed in range(5):
        graph = single(op, seed)
        given = list(random_args(graph, rng))
        sixteen = any(t.dtype == np.dtype("int16") for t in graph.tensors())
        if op in ("exp", "resize_bilinear") and sixteen:
            continue  # 16-bit grids are float32 numbers here
        try:
            with np.errstate(all="ignore"):
                expected += interpret(graph, given)
        except (ParameterError, ProgramError, IndexError):
            continue  # a random graph that is not one
        graphs.append(graph)
        args += given
    graph = union(graphs)
    with np.errstate(all="ignore"):
        assert_same(graph, results(graph, args), expected)


def test_every_op_of_the_vocabulary_has_a_rule():
    assert set(OPS) <= set(RULES)


def conv_net(quantized=True, dtype=I8, groups=1):
    """conv -> add -> mean -> fully connected, on images that stay channels first."""
    rng = np.random.default_rng(0)
    grid = lambda s, z: Grid(I8, s, z) if quantized else None
    kind = I8 if quantized else F32
    x = Tensor("x", (2, 6, 5, 4), kind, grid(0.03, 1))
    last = 7 if dtype == dtypes.int4 else 63

    def weights(name, shape):
        stored = rng.integers(-last, last + 1, shape).astype(np.int8).astype(dtype)
        wgrid = Grid(dtype, tuple(float(s) for s in rng.uniform(0.01, 0.02, shape[0]).astype(np.float32)), 0, 0)
        if quantized or dtype != I8:
            return Tensor(name, shape, dtype, wgrid, stored)
        return Tensor(name, shape, F32, None, wgrid.dequantize(stored))

    def bias(name, n):
        return Tensor(
            name, (n,), I32 if quantized else F32, None, rng.integers(-9, 9, n).astype(I32 if quantized else F32)
        )

    same = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (0, 2)), "activation": "relu", "groups": groups}
    h = Tensor("h", (2, 6, 5, 4), kind, grid(0.08, -128))
    s = Tensor("s", (2, 6, 5, 4), kind, grid(0.1, -100))
    m = Tensor("m", (2, 4), kind, grid(0.05, -50))
    y = Tensor("y", (2, 3), kind, grid(0.2, 4))
    nodes = [
        Node("conv_2d", (x, weights("w1", (4, 3, 3, 4 // groups)), bias("b1", 4)), (h,), same, name="first"),
        Node("add", (h, x), (s,), {"activation": None}, name="skip"),
        Node("mean", (s,), (m,), {"axes": (1, 2), "keepdims": False}, name="pool"),
        Node("fully_connected", (m, weights("w2", (3, 4)), bias("b2", 3)), (y,), {"activation": None}, name="head"),
    ]  # fmt: skip
    return NpuGraph("small net", [x], [y], nodes).check()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_network_in_float_and_int8(groups):
    for quantized in (False, True):
        graph = conv_net(quantized, groups=groups)
        args = list(random_args(graph, np.random.default_rng(1)))
        expected = interpret(graph, args)
        assert_same(graph, results(graph, args), expected, steps=2)
        # float16 constants: eleven bits of each.
        assert_same(graph, results(graph, args, dtypes.float16), expected, steps=3, tolerance=2e-2)


def test_images_turn_only_at_the_edges():
    contents = read(author(conv_net(False)).files)
    kinds = [o.type for o in contents.operations if o.type != "const"]
    assert kinds.count("transpose") == 1  # in; the mean takes the image away
    assert kinds[-1] == "cast" and kinds[0] == "cast"


def test_structure_of_w8a8():
    graph = conv_net()
    package = author(graph)
    contents = read(package.files)
    assert contents.version == "CoreML7"
    assert contents.inputs == (("x", (2, 6, 5, 4), "INT32"),)
    assert contents.outputs == (("y", (2, 3), "INT32"),)
    kinds = [o.type for o in contents.operations if o.type != "const"]
    assert kinds.count("constexpr_affine_dequantize") == 2
    assert kinds.count("quantize") == kinds.count("dequantize") == 5
    # A product stands between a dequantize and a quantize, as int8 by int8 arithmetic wants it.
    at = kinds.index("conv")
    assert kinds[at : at + 4] == ["conv", "relu", "quantize", "dequantize"]
    by_name = {o.name: o for o in contents.operations}
    assert node_names(graph) == ["first", "skip", "pool", "head"]
    assert [by_name[n].type for n in node_names(graph)] == ["conv", "add", "reduce_mean", "linear"]
    assert by_name["first"].results[0][1:] == ((2, 4, 6, 5), "FLOAT16")
    stored = {k: v for k, v in contents.weights.items() if k.endswith("quantized_data")}
    assert sorted(stored.values()) == [3 * 4, 4 * 3 * 3 * 4]


def test_weight_only_forms():
    graph = conv_net(quantized=False, dtype=I8)
    assert not [o for o in read(author(graph).files).operations if o.type.startswith("constexpr")]
    four = conv_net(quantized=False, dtype=dtypes.int4)
    contents = read(author(four).files)
    assert contents.version == "CoreML8"
    assert [o.type for o in contents.operations].count("constexpr_blockwise_shift_scale") == 2
    assert contents.weights[next(k for k in contents.weights if k.endswith(".data"))] == 4 * 3 * 3 * 4 // 2
    args = list(random_args(four, np.random.default_rng(1)))
    x, w = Tensor("x", (2, 4), F32), four.nodes[3].inputs[1]
    y = Tensor("y", (2, 3), F32)
    only = NpuGraph("g", [x], [y], [Node("fully_connected", (x, w, None), (y,), {"activation": None})])
    args = [normal(0, 2, 4)]
    np.testing.assert_allclose(results(only, args)[0], args[0] @ w.grid.dequantize(w.data).T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bias", "odd groups", "convolution", "transposed convolution", "rows looked up"])
def test_weights_in_blocks_are_one_constant(name):
    f, x = in_blocks(name)
    graph = graph_of(f, x)
    package = author(graph)
    (kind,) = {o.type for o in read(package.files).operations if o.type.startswith("constexpr")}
    assert kind == "constexpr_blockwise_shift_scale" and read(package.files).version == "CoreML8"
    # Each constant is there once, in four bits and a scale of two bytes for a block.
    weights, w = read(package.files).weights, LAYERS[name][0]
    size = w[0].size if isinstance(w, tuple) else w.size
    assert sum(v for k, v in weights.items() if k.endswith(("data", "scale"))) <= 0.7 * size
    np.testing.assert_allclose(results(graph, [x])[0], f(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["conv_2d", "depthwise_conv_2d", "fully_connected"])
def test_weights_that_a_node_takes_off_their_grid_stay_stored(op):
    # As weight-only quantization makes them: a constant, dequantize, a float product.
    graph = single_product(op)
    package = author(graph)
    assert any(o.type.startswith("constexpr") for o in read(package.files).operations)
    args = [normal(1, *graph.inputs[0].shape)]
    assert_same(graph, results(graph, args), interpret(graph, args))


def single_product(op):
    image = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "activation": None}
    (shape, axis, x, y), attrs = {
        "conv_2d": (((5, 3, 3, 4), 0, (1, 6, 6, 4), (1, 6, 6, 5)), {**image, "groups": 1}),
        "depthwise_conv_2d": (((1, 3, 3, 4), 3, (1, 6, 6, 4), (1, 6, 6, 4)), image),
        "fully_connected": (((5, 4), 0, (2, 4), (2, 5)), {"activation": None}),
    }[op]
    rng = np.random.default_rng(0)
    grid = Grid(I8, tuple(map(float, rng.uniform(0.01, 0.1, shape[axis]).astype(np.float32))), 0, axis)
    w = Tensor("w", shape, I8, grid, rng.integers(-127, 128, shape).astype(np.int8))
    x, real, y = Tensor("x", x, F32), Tensor("real", shape, F32), Tensor("y", y, F32)
    nodes = [Node("dequantize", (w,), (real,), name="real"), Node(op, (x, real, None), (y,), attrs, name="y")]
    return NpuGraph("g", [x], [y], nodes)


def test_values_without_dimensions():
    x, s, flat = Tensor("x", (3,), F32), Tensor("s", (), F32), Tensor("flat", (1,), F32)
    y, z = Tensor("y", (), F32), Tensor("z", (), F32)
    nodes = [
        Node("sum", (x,), (flat,), {"axes": (0,), "keepdims": True}),
        Node("reshape", (flat,), (y,), {"shape": ()}),
        Node("mul", (y, s), (z,), {"activation": None}),
    ]
    graph = NpuGraph("g", [x, s], [z], nodes).check()
    contents = read(author(graph).files)
    assert [shape for _, shape, _ in contents.inputs] == [(3,), (1,)]
    args = [normal(0, 3), np.full((1,), 2.5, F32)]
    np.testing.assert_allclose(results(graph, args)[0], args[0].sum() * 2.5, rtol=1e-5)


def test_the_bytes_are_the_same_every_time():
    first, second = author(conv_net()).files, author(conv_net()).files
    assert first == second
    assert next(iter(first)) == "Manifest.json" and set(first) == {"Manifest.json", MODEL, WEIGHTS}
    table = json.loads(first["Manifest.json"])
    assert table["itemInfoEntries"][table["rootModelIdentifier"]]["path"] == "com.apple.CoreML/model.mlmodel"
    assert next(iter(write(conv_net()))) == "small_net.mlpackage/Manifest.json"


def test_sixteen_bits_and_tiny_scales_are_noted():
    wide = Grid(np.dtype("int16"), 1e-3)
    x, y = Tensor("x", (4,), np.dtype("int16"), wide), Tensor("y", (4,), np.dtype("int16"), wide)
    package = author(NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))]))
    assert any("i16 activations" in n for n in package.notes)
    tiny = Grid(I8, 1e-6, 3)
    x, y = Tensor("x", (4,), I8, tiny), Tensor("y", (4,), I8, tiny)
    graph = NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))])
    assert any("2**-14" in n for n in author(graph).notes)
    stored = np.int8([-128, 0, 3, 127])
    np.testing.assert_array_equal(results(graph, [stored], dtypes.float16)[0], np.maximum(stored, 3))
    w = Tensor("w", (2, 4), I8, Grid(I8, 1e-6), np.ones((2, 4), np.int8))
    x, y = Tensor("x", (1, 4), F32), Tensor("y", (1, 2), F32)
    node = Node("fully_connected", (x, w, None), (y,), {"activation": None})
    assert any("2**-14" in n for n in author(NpuGraph("g", [x], [y], [node])).notes)


def masked(grid):
    """select(c, x, minus infinity) -> softmax: attention under a mask."""
    kind = I8 if grid else F32
    c, x = Tensor("c", (2, 4), np.dtype(bool)), Tensor("x", (2, 4), kind, grid)
    low = np.full((), -128 if grid else np.finfo(np.float32).min, kind)
    m, y = Tensor("m", (2, 4), kind, grid), Tensor("y", (2, 4), kind, grid and Grid(I8, 1 / 256, -128))
    nodes = [
        Node("select", (c, x, Tensor("low", (), kind, grid, low)), (m,)),
        Node("softmax", (m,), (y,), {"beta": 1.0}),
    ]
    return NpuGraph("g", [c, x], [y], nodes)


def test_masks_of_minus_infinity():
    c = np.array([[True, False, True, True], [True, True, False, True]])
    package = author(masked(None))
    assert any("65504" in n for n in package.notes)
    (got,) = results(masked(None), [c, normal(0, 2, 4)], dtypes.float16)
    np.testing.assert_allclose(got, interpret(masked(None), [c, normal(0, 2, 4)])[0], atol=2e-3)
    graph = masked(Grid(I8, 9e35, 127))
    stored = np.int8([[127, 127, 127, 126], [127, 126, 127, 126]])
    assert any("above 255" in n for n in author(graph).notes)
    for real in (dtypes.float16, F32):
        (got,) = results(graph, [c, stored], real)
        np.testing.assert_array_equal(got, [[0, -128, 0, -128], [127, -128, -128, -128]])


def test_channels_of_zeros_keep_the_others_in_eight_bits():
    stored = np.int8([[1, 2, 3], [0, 0, 0]])
    w = Tensor("w", (2, 3), I8, Grid(I8, (0.01, 1e-30), 0, 0), stored)
    x, y = Tensor("x", (1, 3), F32), Tensor("y", (1, 2), F32)
    graph = NpuGraph("g", [x], [y], [Node("fully_connected", (x, w, None), (y,), {"activation": None})])
    package = author(graph)
    assert "constexpr_affine_dequantize" in {o.type for o in read(package.files).operations} and not package.notes
    np.testing.assert_allclose(results(graph, [np.float32([[1, 1, 1]])], dtypes.float16)[0], [[0.06, 0]], atol=1e-4)


def test_names_that_programs_cannot_have():
    x, y, z = Tensor("1 in", (2,), F32), Tensor("a/b", (2,), F32), Tensor("out put", (2,), F32)
    nodes = [Node("relu", (x,), (y,), name="out put"), Node("exp", (y,), (z,), name="out put")]
    graph = NpuGraph("g", [x], [z], nodes)
    assert node_names(graph) == ["out_put_1", "out_put_2"]
    contents = read(author(graph).files)
    assert contents.inputs[0][0] == "_1_in" and contents.outputs[0][0] == "out_put"
    assert {"out_put_1", "out_put_2"} <= {o.name for o in contents.operations}


def test_a_result_twice_an_input_as_result_a_constant_as_result():
    x, y = Tensor("x", (2, 3), F32), Tensor("y", (2, 3), F32)
    graph = NpuGraph("g", [x], [y, y], [Node("relu", (x,), (y,))])
    assert [name for name, *_ in read(author(graph).files).outputs] == ["y", "y_1"]
    same = author(NpuGraph("g", [x], [x], []))
    assert read(same.files).outputs == (("x_1", (2, 3), "FLOAT32"),)
    np.testing.assert_array_equal(run(same.files, {"x": np.ones((2, 3), np.float32)})["x_1"], np.ones((2, 3)))
    constant = Tensor("c", (3,), F32, None, np.float32([1, 2, 3]))
    graph = NpuGraph("g", [x], [y, constant], [Node("relu", (x,), (y,))])
    got = results(graph, [normal(0, 2, 3)])
    np.testing.assert_array_equal(got[1], [1, 2, 3])


def test_what_cannot_be_said_is_refused():
    deep = (1,) * 6
    x, y = Tensor("x", deep, F32), Tensor("y", deep, F32)
    with pytest.raises(LoweringError, match="dimensions"):
        author(NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))]))
    y = Tensor("y", (2,), F32)
    long = Tensor("x", (2,), np.dtype("int64"))
    with pytest.raises(LoweringError, match="i64"):
        author(NpuGraph("g", [long], [y], [Node("cast", (long,), (y,))]))
    w, z = Tensor("w", (4, 1, 1, 3), F32), Tensor("z", (1, 1, 1, 4), F32)
    image = Tensor("i", (1, 1, 1, 3), F32)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1}
    with pytest.raises(LoweringError, match="not constant"):
        author(NpuGraph("g", [image, w], [z], [Node("conv_2d", (image, w, None), (z,), attrs)]))
    big = Tensor("c", (2,), np.dtype("int64"), None, np.int64([1, 1 << 40]))
    whole, sum_ = Tensor("x", (2,), I32), Tensor("y", (2,), I32)
    with pytest.raises(LoweringError, match="int32"):
        author(NpuGraph("g", [whole], [sum_], [Node("add", (whole, big), (sum_,), {"activation": None})]))
    # A shape that MIL's own type check refuses: the error is ours and names the op.
    x, y = Tensor("x", (2, 3), F32), Tensor("y", (5,), F32)
    with pytest.raises(LoweringError, match="reshape"):
        author(NpuGraph("g", [x], [y], [Node("reshape", (x,), (y,), {"shape": (5,)})]))


def test_damaged_packages_are_refused():
    files = author(conv_net()).files
    for damaged in (
        {},
        files | {"Manifest.json": b"{"},
        files | {MODEL: files[MODEL][:50]},
        {k: v for k, v in files.items() if k != WEIGHTS},
        files | {WEIGHTS: files[WEIGHTS][:-64]},
        files | {WEIGHTS: files[WEIGHTS].replace(b"\xef\xbe\xad\xde", b"\0\0\0\0")},
    ):
        with pytest.raises(LoweringError, match="coreml"):
            read(damaged)


def test_coremltools_stays_quiet(capfd):
    author(conv_net())
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


def test_integers_end_on_their_grid():
    grid = asymmetric(-1, 1)
    x, y = Tensor("x", (256,), I8, grid), Tensor("y", (256,), I8, grid)
    graph = NpuGraph("g", [x], [y], [Node("relu_n1_to_1", (x,), (y,))])
    stored = np.arange(-128, 128).astype(np.int8)
    for real in (dtypes.float16, F32):
        (got,) = results(graph, [stored], real)
        assert np.abs(got - interpret(graph, [stored])[0].astype(int)).max() <= 1
