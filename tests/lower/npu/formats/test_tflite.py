"""The TFLite writer and its table of kernels, against the vendor's own parser and runtime."""

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import DtypeError, LoweringError, user_source
from nxjax.lower.npu.formats import tflite, tflite_kernels, tflite_ops, tflite_read, tflite_schema, tflite_versions
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.fixed import functions
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.vendors.litert.target import LiteRTSession
from tests.lower.npu.formats.tflite_samples import is_quantized, sample

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

I4, I8, F32 = np.dtype(ml_dtypes.int4), np.dtype("int8"), np.dtype("float32")
KINDS = {
    op: [k for k in kinds.split() if k not in ("f16", "q4")]
    for op, kinds in tflite_kernels.KINDS.items()
    if op != "table"
}
# Steps by which LiteRT's kernel may miss the real result: products of many roundings, tables that interpolate.
STEPS = {
    ("reduce_prod", "q8"): 12,
    ("reduce_prod", "q16"): 12,
    ("softmax", "q16"): 3,
    ("tanh", "q16"): 3,
    **dict.fromkeys([(op, "q16") for op in ("gelu", "exp", "log", "rsqrt", "resize_bilinear")], 330),
}
# LiteRT's SUM of int16 has a kernel in float only; one entry of a 16-bit table lies on a half of a step; and 8-bit
# unsigned images are resized in float.
INEXACT = {("sum", "q16"), ("gelu", "q16"), ("resize_bilinear", "qu8")}


def parsed(data: bytes):
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def run(graph: NpuGraph, args, kernels="reference"):
    operations = tflite_ops.operations(graph)
    return LiteRTSession(tflite.encode(graph, operations), operations, kernels)(args)


# Choices and loops are written only, see `tests.lower.npu.rules.test_control`.
READ_BACK = sorted(set(KINDS) - {"if", "while", "gru"})


@pytest.mark.parametrize("op", READ_BACK)
@settings(max_examples=14, deadline=None)
@given(data=st.data())
def test_litert_computes_what_the_node_means_and_so_it_is_read_back(op, data):
    kind, seed = data.draw(st.sampled_from(KINDS[op])), data.draw(st.integers(0, 10**6))
    graph, args, expected = sample(op, kind, seed)
    assert tflite_kernels.supports(graph.nodes[0]).ok
    results = run(graph, args)
    for t, y, got in zip(graph.outputs, expected, results, strict=True):
        assert got.dtype == t.dtype and got.shape == t.shape
        if t.grid is not None:
            off = np.abs(got.astype(np.int64) - t.grid.quantize(y).astype(np.int64))
            assert off.max() <= STEPS.get((op, kind), 1)
        elif t.dtype == F32:
            np.testing.assert_allclose(got, y, rtol=2e-5, atol=2e-5)
        else:
            assert np.array_equal(got, y.astype(t.dtype))
    if is_quantized(kind) and (op, kind) not in INEXACT:
        meant = interpret(graph, args)
        assert all(np.array_equal(a, b) for a, b in zip(results, meant, strict=True) if a.dtype.kind != "f")
    again = run(tflite_read.read(tflite.write(graph)), args)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(results, again, strict=True))


@pytest.mark.parametrize("op", READ_BACK)
def test_the_generated_schema_reads_what_was_written(op):
    for kind in KINDS[op]:
        graph, _, _ = sample(op, kind, 3)
        operations, data = tflite_ops.operations(graph), tflite.write(graph)
        assert data == tflite.write(graph)
        model = parsed(data)
        assert model.version == 3 and data[4:8] == b"TFL3"
        rows = model.subgraphs[0].operators
        assert len(rows) == len(operations)
        for row, o in zip(rows, operations, strict=True):
            code = model.operatorCodes[row.opcodeIndex]
            assert code.builtinCode == getattr(schema.BuiltinOperator, o.name)
            assert code.deprecatedBuiltinCode == min(code.builtinCode, 127)
            table = tflite_schema.BUILTINS[o.name].options
            assert row.builtinOptionsType == (getattr(schema.BuiltinOptions, table) if table else 0)
            for field, value in o.options.items():
                camel = field.split("_")[0] + "".join(w.capitalize() for w in field.split("_")[1:])
                got = getattr(row.builtinOptions, camel)
                assert np.allclose(got, value), (o.name, field)
        tensors = model.subgraphs[0].tensors
        assert [tensors[i].name.decode() for i in model.subgraphs[0].inputs] == [t.name for t in graph.inputs]
        for t in tensors:
            stored = model.buffers[t.buffer].data
            assert (t.buffer == 0) == (stored is None)


def test_the_tables_of_the_schema_are_those_of_the_vendor():
    """Every field that we know has the number, and every scalar the default, that the generated code gives it."""
    names = {"Anything"}
    for name, fields in tflite_schema.SCHEMA.tables.items():
        if name in names:
            continue
        assert hasattr(schema, name), name
        fresh = getattr(schema, name + "T")()
        for f in fields:
            camel = f.name.split("_")[0] + "".join(w.capitalize() for w in f.name.split("_")[1:])
            if (name, f.name) in {("SignatureDef", "deprecated_tag"), ("ResizeBilinearOptions", "new_height")}:
                continue
            if name == "ResizeBilinearOptions" and f.name == "new_width":
                continue
            assert hasattr(fresh, camel), (name, f.name)
            if f.kind in ("bool", "i8", "u8", "i32", "u32", "f32"):
                assert getattr(fresh, camel) == f.default, (name, f.name)
    for name, builtin in tflite_schema.BUILTINS.items():
        assert builtin.code == getattr(schema.BuiltinOperator, name)
    for number, name in enumerate(tflite_schema.SCHEMA.unions["BuiltinOptions"], 1):
        assert number == getattr(schema.BuiltinOptions, name)


def test_a_quantized_convolution_field_by_field():
    rng = np.random.default_rng(0)
    x = Tensor("x", (1, 9, 9, 4), "int8", asymmetric(-1, 3))
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.01, 0.02, 8))
    w = Tensor("w", (8, 3, 3, 4), "int8", Grid(I8, scales, 0, 0), rng.integers(-127, 128, (8, 3, 3, 4)).astype("int8"))
    b = Tensor("b", (8,), "int32", None, rng.integers(-99, 99, 8).astype("int32"))
    out = asymmetric(-2, 5)
    y, z = Tensor("y", (1, 5, 5, 8), "int8", out), Tensor("z", (1, 5, 5, 8), "int8", out)
    conv = {"strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1, "activation": "relu"}
    pool = {"strides": (1, 1), "window": (2, 2), "padding": ((1, 0), (0, 1)), "activation": None}
    nodes = [Node("conv_2d", (x, w, b), (y,), conv), Node("max_pool_2d", (y,), (z,), pool)]
    data = tflite.write(NpuGraph("net", [x], [z], nodes).check())
    model = parsed(data)
    # The padding of the pooling is neither SAME nor VALID: a PADV2 with the least integer stands in front.
    assert [(c.builtinCode, c.version) for c in model.operatorCodes] == [(3, 3), (60, 2), (17, 2)]
    tensors = {t.name.decode(): t for t in model.subgraphs[0].tensors}
    assert list(tensors["w"].quantization.scale) == list(np.float32(scales))
    assert tensors["w"].quantization.quantizedDimension == 0
    expected = [np.float32(x.grid.scale * s) for s in scales]
    assert list(tensors["b"].quantization.scale) == expected and list(tensors["b"].quantization.zeroPoint) == [0] * 8
    options = model.subgraphs[0].operators[0].builtinOptions
    assert (options.padding, options.strideH, options.strideW, options.fusedActivationFunction) == (0, 2, 2, 1)
    border = model.subgraphs[0].operators[1].inputs[2]
    assert model.buffers[model.subgraphs[0].tensors[border].buffer].data.view(np.int8).tolist() == [-128]
    assert model.signatureDefs[0].signatureKey == b"serving_default"
    assert model.signatureDefs[0].inputs[0].name == b"x" and model.signatureDefs[0].outputs[0].name == b"z"
    runtime = model.buffers[model.metadata[0].buffer].data.tobytes()
    assert model.metadata[0].name == b"min_runtime_version" and runtime == b"1.14.0".ljust(16, b"\0")
    # Constants are aligned to 16 bytes, as delegates that map the file need.
    assert data.index(w.data.tobytes()) % 16 == 0 and data.index(b.data.tobytes()) % 16 == 0


@pytest.mark.parametrize("op", ["conv_2d", "depthwise_conv_2d", "fully_connected"])
@pytest.mark.parametrize("kind", ["f32", "q8", "q16"])
def test_int4_weights_compute_what_the_same_int8_weights_do(op, kind):
    graph, args, _ = sample(op, kind, 11)
    node, rng = graph.nodes[0], np.random.default_rng(4)
    x, w, _ = node.inputs
    axis = 3 if op == "depthwise_conv_2d" else 0
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.01, 0.1, w.shape[axis]))
    stored, results = rng.integers(-7, 8, w.shape), []
    for dtype in (I8, I4):
        weights = Tensor("w", w.shape, dtype, Grid(dtype, scales, 0, axis), stored.astype(dtype))
        # Odd sizes: the last byte holds one element.
        made = Node(op, (x, weights, None), node.outputs, node.attrs)
        verdict = tflite_kernels.supports(made)
        if not verdict.ok:
            assert (op, dtype) == ("depthwise_conv_2d", I4) and kind != "q8" and "int4" in verdict.reason
            continue
        small = NpuGraph("w", [x], graph.outputs, [made])
        results.append(run(small, args)[0])
        data = tflite.write(small)
        assert np.array_equal(tflite_read.read(data).nodes[-1].inputs[1].data, weights.data)
    if len(results) == 2:
        assert np.array_equal(*results)


@pytest.mark.parametrize("dtype", [I8, I4])
@pytest.mark.parametrize("axis", [0, None])
def test_weight_only_graphs_dequantize_and_compute_in_float(dtype, axis):
    rng = np.random.default_rng(0)
    grid = Grid(dtype, (0.1, 0.2, 0.3) if axis == 0 else 0.1, 0, axis)
    w = Tensor("w", (3, 5), dtype, grid, rng.integers(-7, 8, (3, 5)).astype(dtype))
    wf, x, y = Tensor("wf", (3, 5), F32), Tensor("x", (2, 5), F32), Tensor("y", (2, 3), F32)
    nodes = [Node("dequantize", (w,), (wf,)), Node("fully_connected", (x, wf, None), (y,), {"activation": None})]
    value = rng.normal(size=(2, 5)).astype(np.float32)
    got = run(NpuGraph("h", [x], [y], nodes), [value])[0]
    np.testing.assert_allclose(got, value @ grid.dequantize(w.data).T, rtol=1e-5, atol=1e-6)


def test_a_table_that_no_operator_computes_is_looked_up_exactly():
    rng = np.random.default_rng(0)
    x, y = Tensor("x", (3, 5), I8, asymmetric(-1, 1)), Tensor("y", (3, 5), I8, asymmetric(-3, 3))
    values = rng.integers(-128, 128, 256).astype(np.int8)
    graph = NpuGraph("t", [x], [y], [Node("table", (x,), (y,), {"function": "silu", "values": values})])
    assert [o.name for o in tflite_ops.operations(graph)] == ["CAST", "ADD", "GATHER"]
    stored = rng.integers(-128, 128, (3, 5)).astype(np.int8)
    assert np.array_equal(run(graph, [stored])[0], values[stored.astype(int) + 128])


def test_a_table_is_an_operator_only_if_that_computes_it():
    x, y = Tensor("x", (3, 5), I8, asymmetric(-1, 1)), Tensor("y", (3, 5), I8, asymmetric(-3, 3))
    every = np.arange(-128, 128).astype(np.int8)
    values = functions.unary("gelu", every, x.grid, y.grid, approximate=True)
    node = Node("table", (x,), (y,), {"function": "gelu_tanh", "values": tuple(values.tolist())})
    (operation,) = tflite_ops.operations(NpuGraph("t", [x], [y], [node]))
    assert operation.name == "GELU" and operation.options == {"approximate": True}
    node.attrs["values"] = (int(values[0]) ^ 1, *values.tolist()[1:])  # somebody's own function of that name
    assert [o.name for o in tflite_ops.operations(NpuGraph("t", [x], [y], [node]))] == ["CAST", "ADD", "GATHER"]


def test_graphs_without_nodes_scalars_and_repeated_results():
    x, y, c = Tensor("x", (), F32), Tensor("x", (), F32), Tensor("c", (2,), F32, None, np.float32([1, 2]))
    graph = NpuGraph("", [x], [y, c, x, y], [Node("tanh", (x,), (y,))]).check()
    got = run(graph, [np.float32(0.5)])
    assert [g.tolist() for g in got] == [pytest.approx(np.tanh(0.5)), [1, 2], 0.5, pytest.approx(np.tanh(0.5))]
    names = [t.name for t in tflite_read.read(tflite.write(graph)).outputs]
    assert names == ["x_1", "c", "x", "x_1"]
    assert run(NpuGraph("same", [x], [x], []), [np.float32(3)])[0] == 3
    to, back = Tensor("to", (1, 1), F32), Tensor("back", (), F32)
    nodes = [Node("reshape", (x,), (to,), {"shape": (1, 1)}), Node("reshape", (to,), (back,), {"shape": ()})]
    assert run(NpuGraph("r", [x], [back], nodes), [np.float32(3)])[0].shape == ()


def test_what_tflite_cannot_say_names_the_line():
    x, y = Tensor("x", (1, 5, 5, 1), F32), Tensor("y", (1, 5, 5, 1), F32)
    pool, wide = {"window": (2, 2), "strides": (1, 1), "padding": ((2, 0), (0, 0)), "activation": None}, (1, 6, 4, 1)
    for node, why in (
        (Node("erf", (x,), (y,), {}, user_source()), "no operator"),
        (Node("average_pool_2d", (x,), (Tensor("wide", wide, F32),), pool), "not counted"),
    ):
        with pytest.raises(LoweringError, match=why):
            tflite.write(NpuGraph("g", [x], list(node.outputs), [node]))
    with pytest.raises(LoweringError, match=r"test_tflite\.py"):
        tflite.write(NpuGraph("g", [x], [y], [Node("erf", (x,), (y,), {}, user_source())]))
    complex_ = [Tensor(n, (1,), np.complex64) for n in "xy"]
    with pytest.raises(DtypeError, match=r"complex64|c64"):
        tflite.write(NpuGraph("g", complex_[:1], complex_[1:], [Node("abs", (complex_[0],), (complex_[1],))]))


@pytest.mark.parametrize(
    ("op", "scales", "why"),
    [
        ("add", (1e4, 1e4, 1e-4), "cannot go from a scale"),
        ("squared_difference", (1e4, 1.0, 1e-4), "cannot go from a scale"),
        ("less", (1e-3, 1e-3, None), "steps of 1/256"),
    ],
)
def test_scales_that_break_litert_are_refused(op, scales, why):
    """The first two would end the process, the third compare unequal values as equal."""
    x, y = (Tensor(n, (4,), I8, Grid(I8, s)) for n, s in zip("xy", scales, strict=False))
    out = Tensor("z", (4,), np.bool_) if scales[2] is None else Tensor("z", (4,), I8, Grid(I8, scales[2]))
    verdict = tflite_kernels.supports(Node(op, (x, y), (out,), {}))
    assert not verdict.ok and why in verdict.reason and verdict.suggestion


def test_versions_follow_types_and_options():
    def of(name, *dtypes, grid=True, **options):
        grids = {"int8": asymmetric(-1, 1), "int16": Grid(np.dtype("int16"), 0.1)}
        tensors = [Tensor(d, (1, 2, 2, 4), d, grids.get(d) if grid else None) for d in dtypes]
        return tflite_versions.version(name, tensors, tensors[:1], options)

    plain = {"fused_activation_function": 0, "dilation_w_factor": 1, "dilation_h_factor": 1, "keep_num_dims": False}
    assert of("CONV_2D", "float32", "float32", **plain) == 1
    assert of("CONV_2D", "int8", "int8", **plain) == 3
    assert of("CONV_2D", "int16", "int8", **plain) == 4
    assert of("DEPTHWISE_CONV_2D", "float32", "float32", **{**plain, "dilation_w_factor": 2}) == 2
    assert of("FULLY_CONNECTED", "int8", "int8", "int32", **plain) == 4
    assert of("FULLY_CONNECTED", "int8", "int8", **plain) == 6
    assert of("ADD", "int16", "int16") == 3 and of("ADD", "int16", "int16", grid=False) == 5
    assert of("SPLIT", "int32", "int8") == 2 and of("SPLIT", "int32", "int32") == 3
    assert tflite_versions.runtime("CONV_2D", 4) == "2.3.0" and tflite_versions.runtime("BROADCAST_TO", 2) == "2.5.0"
    for name, builtin in tflite_schema.BUILTINS.items():
        assert all(r == "-" or r[0].isdigit() for r in builtin.runtimes), name


def test_fully_connected_of_many_dimensions_is_read_with_its_reshape():
    rng = np.random.default_rng(0)
    x, y = Tensor("x", (2, 3, 4), F32), Tensor("y", (6, 5), F32)
    w = Tensor("w", (5, 4), F32, None, rng.normal(size=(5, 4)).astype(np.float32))
    options = {"fused_activation_function": 0, "keep_num_dims": False}
    data = tflite.encode(NpuGraph("f", [x], [y], []), [TFLiteOperator("FULLY_CONNECTED", [x, w, None], [y], options)])
    graph = tflite_read.read(data)
    assert [n.op for n in graph.nodes] == ["reshape", "fully_connected"]
    value = rng.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(graph, [value])[0], value.reshape(6, 4) @ w.data.T, rtol=1e-5)


def big() -> NpuGraph:
    """A chain of 65 convolutions with the 3.5 million weights of MobileNetV2."""
    rng = np.random.default_rng(0)
    grid = asymmetric(-1, 1)
    x = t = Tensor("x", (1, 14, 14, 232), I8, grid)
    nodes = []
    for i in range(65):
        scales = tuple(float(s) for s in np.full(232, np.float32(0.01)))
        w = Tensor(
            f"w{i}", (232, 1, 1, 232), I8, Grid(I8, scales, 0, 0), rng.integers(-9, 9, (232, 1, 1, 232), np.int8)
        )
        b = Tensor(f"b{i}", (232,), np.int32, None, np.zeros(232, np.int32))
        y = Tensor(f"y{i}", t.shape, I8, grid)
        attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1, "activation": None}
        nodes.append(Node("conv_2d", (t, w, b), (y,), attrs))
        t = y
    return NpuGraph("big", [x], [t], nodes)


def test_writing_a_network_does_not_walk_its_weights():
    graph = big()
    calls = 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        data = tflite.write(graph)
    finally:
        sys.setprofile(None)
    assert 3.5e6 < len(data) < 4e6
    assert calls < len(data) / 20
