"""ONNX files read back: the same meaning as the graph that was written; damaged and hostile bytes are refused."""

import contextlib
import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nxjax.deploy import load
from nxjax.errors import InvalidFileError, LoweringError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_read import read
from nxjax.lower.npu.formats.onnx_writer import emit, write
from nxjax.lower.npu.interpret import interpret
from tests.lower.npu.formats.onnx_cases import I16, cases, float_graph, int8_graph, mixed
from tests.vendors.graphs import cnn, hybrid, images

CASES = cases()


def inputs_of(case):
    return [a for i, a in enumerate(case.arrays) if a is not None and i not in case.constant]


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_float_files_read_back(case, opset):
    graph = float_graph(case)
    other = read(write(graph, opset))
    (want,), (got,) = interpret(graph, inputs_of(case)), interpret(other, inputs_of(case))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


# Written as several operators, whose steps between are real: as close as a quantizer of the true result.
SPELLED = ("squared_difference", "gelu", "softmax")


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_quantized_files_read_back_bit_for_bit(case, unsigned):
    graph, feeds, _ = int8_graph(case)
    other = read(emit(graph, OnnxOptions(17, "qdq", unsigned)).data)
    assert [(t.shape, t.grid) for t in other.inputs] == [(t.shape, t.grid) for t in graph.inputs]
    (want,), (got,) = interpret(graph, feeds), interpret(other, feeds)
    assert got.dtype == want.dtype
    assert np.abs(got.astype(int) - want.astype(int)).max() <= (1 if case.op in SPELLED else 0)


@pytest.mark.parametrize("op", ["conv_2d", "add", "reshape", "tanh", "fully_connected"])
@pytest.mark.parametrize("unsigned", [False, True])
def test_int16_files_read_back(op, unsigned):
    graph, feeds, _ = int8_graph(next(c for c in CASES if c.op == op), I16)
    other = read(emit(graph, OnnxOptions(17, "qdq", unsigned)).data)
    (want,), (got,) = interpret(graph, feeds), interpret(other, feeds)
    assert got.dtype == want.dtype
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@pytest.mark.parametrize("quantized", [False, True])
def test_operators_with_other_operands_read_back(quantized):
    for graph, feeds, expected in mixed(quantized):
        other = read(emit(graph, OnnxOptions(17, "qdq", quantized)).data)
        for got, want in zip(interpret(other, feeds), expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=graph.nodes[0].op)


def test_a_network_reads_back_as_it_was_written():
    graph = cnn()
    other = read(write(graph))
    assert [n.op for n in other.nodes] == [n.op for n in graph.nodes]
    assert [n.name for n in other.nodes][:-1] == [n.name for n in graph.nodes][:-1]
    for mine, own in zip(other.nodes, graph.nodes, strict=True):
        assert [t.grid for t in mine.outputs] == [t.grid for t in own.outputs]
        assert mine.attrs.items() >= {k: v for k, v in own.attrs.items() if k != "activation"}.items()
    np.testing.assert_array_equal(interpret(other, [images()])[0], interpret(graph, [images()])[0])
    assert other.rounding == graph.rounding


def test_writing_what_was_read_is_reading_what_was_written():
    once = read(write(hybrid()))
    assert [str(n.op) for n in read(write(once)).nodes] == [str(n.op) for n in once.nodes]


DATA = write(cnn())


@given(st.integers(0, len(DATA) - 1))
def test_truncated_files_are_refused(size):
    with pytest.raises((InvalidFileError, LoweringError)):
        read(DATA[:size])


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_files_are_refused_or_read(places):
    data = bytearray(DATA)
    for at, value in places:
        data[at] = value
    with contextlib.suppress(InvalidFileError, LoweringError):
        read(bytes(data)).check()


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(InvalidFileError):
        read(data)


def model(nodes, inputs, outputs, initializers=(), opset=17):
    body = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def outside(location, **entries):
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        t.external_data.add(key=key, value=text)
    add = helper.make_node("Add", ["x", "w"], ["y"], "add")
    return model([add], [value("x", [4])], [value("y", [4])], [t]).SerializeToString()


def test_tensors_beside_the_file(tmp_path):
    np.arange(6, dtype=np.float32).tofile(tmp_path / "w.bin")
    data = outside("w.bin", offset="8", length="16")
    (got,) = interpret(read(data, tmp_path), [np.zeros(4, np.float32)])
    assert got.tolist() == [2, 3, 4, 5]
    with pytest.raises(InvalidFileError, match="lies outside the file"):
        read(data)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "link", "", "absent", "."])
def test_tensors_outside_the_folder_are_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidFileError, match="outside the folder"):
        read(outside(location), folder)


def test_tensors_beyond_their_file_are_refused(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    for entries in ({"offset": "8", "length": "16"}, {"offset": "-4"}, {"offset": "many"}, {"length": str(1 << 62)}):
        with pytest.raises(InvalidFileError):
            read(outside("w.bin", **entries), tmp_path)


def test_many_tensors_of_the_same_bytes_beside_the_file(tmp_path):
    """A short file would take any amount of memory; a few may share their bytes."""
    np.arange(4, dtype=np.float32).tofile(tmp_path / "w.bin")

    def sharing(count):
        weights = []
        for i in range(count):
            t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
            t.external_data.add(key="location", value="w.bin")
            weights.append(t)
        names = ["x", *(f"y{i}" for i in range(count))]
        nodes = [helper.make_node("Add", [names[i], f"w{i}"], [names[i + 1]], f"a{i}") for i in range(count)]
        return model(nodes, [value("x", [4])], [value(names[-1], [4])], weights).SerializeToString()

    (got,) = interpret(read(sharing(2), tmp_path), [np.zeros(4, np.float32)])
    assert got.tolist() == [0, 2, 4, 6]
    with pytest.raises(InvalidFileError, match="more than their file has"):
        read(sharing(100), tmp_path)


def refused(nodes, x=(1, 3, 4, 4), y=None, initializers=(), error=LoweringError, match="onnx"):
    y = [f"d{i}" for i in range(len(x))] if y is None else y
    m = model(nodes, [value("x", x)], [value("y", y)], initializers)
    with pytest.raises(error, match=match):
        read(m.SerializeToString())


def test_what_graphs_cannot_say_is_refused_by_name():
    node = helper.make_node
    w = onnx.numpy_helper.from_array(np.ones((2, 3, 3, 3), np.float32), "w")
    refused([node("Det", ["x"], ["y"])], match="Det")
    refused([node("Relu", ["x"], ["y"], domain="my.own")], match="my.own::Relu")
    refused([node("Relu", ["x"], ["y"], "r")], x=(1, "n", 2), match="dynamic shape")
    refused([node("Conv", ["x", "w"], ["y"], "c", auto_pad="SAME_UPPER")], initializers=[w], match="SAME_UPPER")
    refused([node("MaxPool", ["x"], ["y"], "p", kernel_shape=[2, 2], ceil_mode=1)], match="MaxPool")
    refused([node("Elu", ["x"], ["y"], "e", alpha=2.0)], match="alpha")
    refused([node("Clip", ["x", "", "x"], ["y"], "c")], x=(), y=(), match="computed limits")
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [value("t", None)])
    refused([node("Relu", ["x"], ["y"], "r", body=then)], match="holds no graph")


def looped(turns, going, body, carried=1):
    """A loop that begins with ``x``."""
    made = [value(name, (2, 3)) for name in ("y", "other")[:carried]]
    inputs = [value("x", (2, 3)), value("n", (), TensorProto.INT64), value("c", (), TensorProto.BOOL)]
    loop = helper.make_node("Loop", [turns, going, *["x"] * carried], [v.name for v in made], "l", body=body)
    return model([loop], inputs, made).SerializeToString()


@pytest.mark.parametrize(("turns", "going"), [("n", ""), ("n", "c"), ("", "c")])
def test_loops_are_read(turns, going):
    ort = pytest.importorskip("onnxruntime")
    node = helper.make_node
    ends = [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL), value("h", None)]
    nodes = [
        node("Add", ["h", "x"], ["sum"]), node("Cast", ["i"], ["step"], to=1), node("Add", ["sum", "step"], ["next"]),
        node("ReduceSum", ["next"], ["total"], keepdims=0), node("Less", ["total", "limit"], ["again"]),
    ]  # fmt: skip
    limit = onnx.numpy_helper.from_array(np.float32(40), "limit")
    outs = [value("again", (), TensorProto.BOOL), value("next", (2, 3))]
    data = looped(turns, going, helper.make_graph(nodes, "body", ends, outs, [limit]))
    graph, session = read(data), ort.InferenceSession(data)
    assert [n.op for n in graph.nodes if n.op != "cast"] == ["while"]
    for n, c in itertools.product((0, 3, 9), (True, False)):
        args = np.full((2, 3), 0.5, np.float32), np.asarray(n), np.asarray(c)
        named = {v.name: x for v, x in zip(session.get_inputs(), args, strict=True)}
        np.testing.assert_allclose(interpret(graph, args)[0], session.run(None, named)[0], rtol=1e-6)


def test_choices_are_read_within_choices():
    node = helper.make_node
    branch = lambda op, name: helper.make_graph([node(op, ["x"], [name])], name, [], [value(name, (2,))])
    inner = node("If", ["d"], ["z"], "i", then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b"))
    outer = helper.make_graph([inner], "outer", [], [value("z", (2,))])
    choice = node("If", ["c"], ["y"], "o", then_branch=outer, else_branch=branch("Exp", "e"))
    inputs = [value("x", (2,)), *(value(name, (), TensorProto.BOOL) for name in "cd")]
    graph = read(model([choice], inputs, [value("y", (2,))]).SerializeToString())
    x = np.float32([-1, 2])
    for c, d, want in ((0, 0, np.exp(x)), (1, 0, np.abs(x)), (1, 1, -x)):
        np.testing.assert_allclose(interpret(graph, [x, np.bool_(c), np.bool_(d)])[0], want, rtol=1e-6)


def test_loops_that_collect_are_refused():
    node = helper.make_node
    ends = [value("i", (), TensorProto.INT64), value("on", (), TensorProto.BOOL), value("h", (2, 3))]
    body = helper.make_graph(
        [node("Identity", ["on"], ["again"]), node("Neg", ["h"], ["next"]), node("Abs", ["h"], ["row"])], "body", ends,
        [value("again", (), TensorProto.BOOL), value("next", (2, 3)), value("row", (2, 3))],
    )  # fmt: skip
    loop = node("Loop", ["n", "", "x"], ["y", "rows"], "l", body=body)
    inputs = [value("x", (2, 3)), value("n", (), TensorProto.INT64)]
    data = model([loop], inputs, [value("y", (2, 3)), value("rows", ("r", 2, 3))]).SerializeToString()
    with pytest.raises(LoweringError, match="collects a result of every step"):
        read(data)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("target", [None, "openvino-cpu"])
def test_layers_of_two_directions_are_read(kind, target):
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    shapes = {"w": (2, gates * 4, 3), "r": (2, gates * 4, 4), "b": (2, 2 * gates * 4)}
    stored = [onnx.numpy_helper.from_array(draw(*shape), name) for name, shape in shapes.items()]
    states, ends = (["h", "c"], ["yh", "yc"]) if kind == "LSTM" else (["h"], ["yh"])
    node = helper.make_node(
        kind, ["x", "w", "r", "b", "", *states], ["y", *ends], "n", hidden_size=4, direction="bidirectional"
    )
    inputs = [value("x", (5, 2, 3)), *(value(name, (2, 2, 4)) for name in states)]
    outputs = [value("y", (5, 2, 2, 4)), *(value(name, (2, 2, 4)) for name in ends)]
    data = model([node], inputs, outputs, stored).SerializeToString()
    args = [draw(5, 2, 3), *(draw(2, 2, 4) for _ in states)]
    wanted = ort.InferenceSession(data).run(None, dict(zip(["x", *states], args, strict=True)))
    for got, want in zip(load(data, target=target).run(*args), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_constants_smaller_than_they_say_are_refused():
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40], raw_data=b"\0" * 16)
    refused([helper.make_node("Add", ["x", "w"], ["y"], "a")], initializers=[t], error=InvalidFileError, match="size")
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-4], raw_data=b"\0" * 16)
    refused([helper.make_node("Add", ["x", "w"], ["y"], "a")], initializers=[t], error=InvalidFileError)
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40], float_data=[1.0])
    refused([helper.make_node("Add", ["x", "w"], ["y"], "a")], initializers=[t], error=InvalidFileError)


def test_results_of_other_shapes_than_stated_are_refused():
    shape = onnx.numpy_helper.from_array(np.array([2, 9]), "s")
    data = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"], "r")], [value("x", [2, 3])], [value("y", [2, 9])], [shape]
    )
    with pytest.raises(InvalidFileError, match="onnx"):
        read(data.SerializeToString())
    huge = [helper.make_node("Relu", ["x"], ["y"], "r")]
    refused(huge, x=(1 << 30, 1 << 30), y=(1 << 30, 1 << 30), error=InvalidFileError, match="impossible shape")


def test_unsigned_inputs_that_nothing_dequantizes_keep_their_values():
    m = model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [value("x", [2], TensorProto.UINT8)],
        [value("y", [2], TensorProto.UINT8)],
    )
    graph = read(m.SerializeToString())
    assert graph.inputs[0].grid.dequantize(graph.inputs[0].grid.quantize(np.float32([0, 200]))).tolist() == [0, 200]
