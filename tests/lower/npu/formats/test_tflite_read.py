"""Loading ``.tflite`` files: the graph comes back, and no bytes at all do more than raise one error."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import InvalidFileError
from nxjax.lower.npu.formats import flatbuffer, tflite, tflite_read
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid, asymmetric
from tests.lower.npu.formats.tflite_samples import sample

F32, I8 = np.dtype("float32"), np.dtype("int8")
OPS = ["conv_2d", "depthwise_conv_2d", "transpose_conv", "fully_connected", "concatenation", "strided_slice", "pad"]
OPS += ["mean", "split", "gather", "reshape", "one_hot", "max_pool_2d", "softmax", "resize_bilinear", "reverse"]
FILES = [tflite.write(sample(op, "q8", seed)[0]) for seed, op in enumerate(OPS)]


def net() -> NpuGraph:
    rng = np.random.default_rng(0)
    x = Tensor("image", (1, 9, 9, 4), I8, asymmetric(-1, 3))
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.01, 0.02, 8))
    w = Tensor("w", (8, 3, 3, 4), I8, Grid(I8, scales, 0, 0), rng.integers(-127, 128, (8, 3, 3, 4)).astype("int8"))
    bias = Grid(np.dtype("int32"), tuple(float(np.float32(x.grid.scale * s)) for s in scales), 0, 0)
    b = Tensor("b", (8,), "int32", bias, rng.integers(-99, 99, 8).astype("int32"))
    y, z = (Tensor(n, (1, 5, 5, 8), I8, asymmetric(-2, 5)) for n in ("y", "z"))
    conv = {"activation": "relu6", "strides": (2, 2), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "groups": 1}
    return NpuGraph("net", [x], [z], [Node("conv_2d", (x, w, b), (y,), conv), Node("relu", (y,), (z,))]).check()


def test_a_graph_comes_back_with_its_names_grids_attributes_and_constants():
    graph = net()
    data = tflite.write(graph)
    back = tflite_read.read(data)
    assert str(back) == str(graph).replace("graph net", f"graph {graph.name}")
    assert [n.attrs for n in back.nodes] == [n.attrs for n in graph.nodes]
    for a, b in zip(back.constants(), graph.constants(), strict=True):
        assert np.array_equal(a.data, b.data) and a.grid == b.grid
    assert tflite.write(back) == data
    # Constants are views of the file, not copies.
    assert not back.constants()[0].data.flags.owndata and not back.constants()[0].data.flags.writeable


def loads_or_refuses(data: bytes) -> bool:
    """Whether the bytes load; anything but `InvalidFileError` escapes."""
    try:
        graph = tflite_read.read(data)
    except InvalidFileError:
        return False
    graph.check()
    tflite.write(graph)
    return True


@settings(max_examples=400, deadline=2000)
@given(st.sampled_from(FILES), st.data())
def test_damaged_bytes_load_or_are_refused(data, draw):
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(data) - 1))
        width = draw.draw(st.sampled_from([1, 1, 2, 4]))
        value = draw.draw(st.sampled_from([0, 1, 0x7F, 0xFF, 0x80000000, 0xFFFFFFFF, None]))
        value = draw.draw(st.integers(0, 2**32 - 1)) if value is None else value
        damaged[at : at + width] = (value & (256**width - 1)).to_bytes(width, "little")
    loads_or_refuses(bytes(damaged))


def test_every_truncation_is_refused():
    data = tflite.write(net())
    start = time.process_time()
    # The last bytes are the version's padding; without any of them the last buffer ends outside.
    assert not any(loads_or_refuses(data[:n]) for n in range(len(data)))
    assert time.process_time() - start < 20


@settings(max_examples=100, deadline=2000)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_refused(data, head):
    assert not loads_or_refuses(data[:4] + IDENTIFIER + data[4:] if head else data)


def every_byte(data: bytes, values) -> int:
    loaded = 0
    for at in range(8, len(data)):
        for value in values:
            damaged = bytearray(data)
            damaged[at] = value
            loaded += loads_or_refuses(bytes(damaged))
    return loaded


def test_every_single_byte_may_be_wrong():
    data = tflite.write(sample("fully_connected", "q8", 3)[0])
    assert every_byte(data, (0, 0xFF)) > 0


def model(**changes):
    """The parsed tables of a file, for tests to spoil."""
    root = flatbuffer.read(SCHEMA, "Model", tflite.write(net()), IDENTIFIER)
    root.update(changes)
    return root


def written(root) -> bytes:
    def pruned(value):
        if isinstance(value, dict):
            return {k: pruned(v) for k, v in value.items() if v is not None}
        if isinstance(value, tuple):
            return (value[0], pruned(value[1]))
        return [pruned(v) for v in value] if isinstance(value, list) else value

    return flatbuffer.write(SCHEMA, "Model", pruned(root), IDENTIFIER)


def test_the_unspoiled_tables_load():
    assert tflite_read.read(written(model())).nodes[0].op == "conv_2d"


def spoil_tensor(**changes):
    def change(root):
        root["subgraphs"][0]["tensors"][1].update(changes)

    return change


def spoil_operator(**changes):
    def change(root):
        root["subgraphs"][0]["operators"][0].update(changes)

    return change


def spoil_scale(**changes):
    def change(root):
        root["subgraphs"][0]["tensors"][1]["quantization"].update(changes)

    return change


SPOILS = {
    "version": (lambda r: r.update(version=2), "version of the format"),
    "no graph": (lambda r: r.update(subgraphs=[]), "no graph"),
    "type": (spoil_tensor(type=5), "type that nxjax does not read"),
    "shape": (spoil_tensor(shape=[8, 3, -3, 4]), "impossible shape"),
    "huge": (spoil_tensor(shape=[2**30, 2**30]), "impossible shape"),
    "huge but empty": (spoil_tensor(shape=[0, 2**31 - 1, 2**31 - 1]), "impossible shape"),
    "empty": (spoil_tensor(shape=[8, 3, 3, 0], buffer=0, quantization=None), "without elements"),
    "size": (spoil_tensor(shape=[8, 3, 3, 5]), "elements of 8 bits"),
    "buffer": (spoil_tensor(buffer=99), "buffer is out of range"),
    "variable": (spoil_tensor(is_variable=True), "variable"),
    "made twice": (lambda r: r["subgraphs"][0]["operators"][1].update(outputs=[3]), "shape|twice|before"),
    "weights of another type": (spoil_tensor(type=3, quantization=None), "do not go together"),
    "bias of another type": (lambda r: r["subgraphs"][0]["tensors"][2].update(type=0), "do not go together"),
    "result of another type": (
        lambda r: r["subgraphs"][0]["tensors"][4].update(type=3),
        "do not go together|zero point",
    ),
    "scales": (spoil_scale(scale=[1.0, 2.0]), "scales do not fit"),
    "negative scale": (spoil_scale(scale=[-1.0]), "not positive"),
    "nan scale": (spoil_scale(scale=[float("nan")]), "not positive"),
    "zero point": (spoil_scale(scale=[1.0], zero_point=[300]), "zero point"),
    "operator": (lambda r: r["operator_codes"][0].update(builtin_code=16, deprecated_builtin_code=16), "LSTM"),
    "custom": (
        lambda r: r["operator_codes"][0].update(builtin_code=32, deprecated_builtin_code=32, custom_code="ethos-u"),
        "custom operator 'ethos-u'",
    ),
    "code": (spoil_operator(opcode_index=7), "code that is out of range"),
    "operand": (spoil_operator(inputs=[0, 77, 2]), "number that is out of range"),
    "absent operand": (spoil_operator(inputs=[0, -1, 2]), "without operand 1"),
    "no result": (spoil_operator(outputs=[]), "without a result"),
    "options": (spoil_operator(builtin_options=("AddOptions", {})), "options AddOptions"),
    "strides": (spoil_operator(builtin_options=("Conv2DOptions", {"stride_h": 0, "stride_w": 1})), "strides"),
    "activation": (
        spoil_operator(
            builtin_options=("Conv2DOptions", {"stride_h": 2, "stride_w": 2, "fused_activation_function": 5})
        ),
        "activation",
    ),
    "other result": (
        spoil_operator(builtin_options=("Conv2DOptions", {"stride_h": 1, "stride_w": 1})),
        "does not follow",
    ),
}


@pytest.mark.parametrize("name", SPOILS)
def test_each_thing_that_does_not_hold_together_is_named(name):
    spoil, why = SPOILS[name]
    root = model()
    spoil(root)
    with pytest.raises(InvalidFileError, match=why):
        tflite_read.read(written(root))


def test_the_masks_of_strided_slice_are_read():
    rng = np.random.default_rng(0)
    x, y = Tensor("x", (4, 5, 6), F32), Tensor("y", (3, 6), F32)
    ends = [
        Tensor(n, (3,), "int32", None, np.int32(v))
        for n, v in zip("bes", ([1, 2, 9], [0, 3, -9], [1, 1, 1]), strict=True)
    ]
    masks = {"begin_mask": 4, "end_mask": 5, "shrink_axis_mask": 2}
    data = tflite.encode(NpuGraph("s", [x], [y], []), [TFLiteOperator("STRIDED_SLICE", [x, *ends], [y], masks)])
    graph = tflite_read.read(data)
    assert [n.op for n in graph.nodes] == ["strided_slice", "reshape"]
    assert graph.nodes[0].attrs["begin"] == (1, 2, 0) and graph.nodes[0].attrs["end"] == (4, 3, 6)
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    runner = interpreter.Interpreter(model_content=data)
    runner.allocate_tensors()
    value = rng.normal(size=(4, 5, 6)).astype(np.float32)
    runner.set_tensor(runner.get_input_details()[0]["index"], value)
    runner.invoke()
    assert np.array_equal(runner.get_tensor(runner.get_output_details()[0]["index"]), value[1:4, 2, 0:6])


def test_squeeze_is_a_reshape():
    x, y = Tensor("x", (1, 4, 1), F32), Tensor("y", (4,), F32)
    data = tflite.encode(NpuGraph("s", [x], [y], []), [TFLiteOperator("SQUEEZE", [x], [y], {"squeeze_dims": [0, 2]})])
    assert tflite_read.read(data).nodes[0].attrs == {"shape": (4,)}


def test_constants_behind_the_tables_are_read():
    root = model()
    tensors = root["subgraphs"][0]["tensors"]
    buffer = root["buffers"][tensors[1]["buffer"]]
    stored = bytes(buffer["data"])
    # The size of the tables does not depend on the offset's value.
    buffer.update(data=None, offset=1000000, size=len(stored))
    offset = len(written(root))
    buffer["offset"] = offset
    graph = tflite_read.read(written(root) + stored)
    assert np.array_equal(graph.nodes[0].inputs[1].data, net().nodes[0].inputs[1].data)
    with pytest.raises(InvalidFileError, match="end outside"):
        tflite_read.read(written(root) + stored[:-1])


def looked_up() -> tuple[NpuGraph, np.ndarray]:
    x, y = Tensor("x", (1, 300), I8, asymmetric(-1, 3)), Tensor("y", (1, 300), I8, asymmetric(-2, 2))
    values = np.random.default_rng(0).permutation(256).astype(np.uint8).view(np.int8)
    return NpuGraph("t", [x], [y], [Node("table", (x,), (y,), {"function": "mine", "values": values})]), values


def test_a_look_up_is_a_table_again():
    graph, values = looked_up()
    data = tflite.write(graph)
    back = tflite_read.read(data)
    assert [n.op for n in back.nodes] == ["table"] and (back.nodes[0].attrs["values"] == values).all()
    assert tflite.write(back) == data
    stored = np.resize(np.arange(-128, 128), (1, 300)).astype(I8)
    assert (interpret(back, [stored])[0] == interpret(graph, [stored])[0]).all()


@pytest.mark.parametrize("by", [127, 128])
def test_other_look_ups_stay_what_they_are(by):
    graph, values = looked_up()
    (x,), (y,) = graph.inputs, graph.outputs
    index, shifted = (Tensor(n, x.shape, "int32") for n in ("index", "shifted"))
    entries, first = (
        Tensor("entries", (256,), I8, y.grid, values),
        Tensor("first", (), "int32", None, np.array(by, "int32")),
    )
    nodes = [Node("cast", (x,), (index,)), Node("add", (index, first), (shifted,), {"activation": None})]
    nodes.append(Node("gather", (entries, shifted), (y,), {"axis": 0}))
    back = tflite_read.read(tflite.write(NpuGraph("t", [x], [y], nodes)))
    assert [n.op for n in back.nodes] == (["table"] if by == 128 else ["cast", "add", "gather"])
