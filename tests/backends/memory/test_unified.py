"""One memory for all: the pointers say so."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.memory.pool import PAGE, MemoryPools
from nxjax.backends.memory.unified import ACCESS
from nxjax.config import config
from nxjax.errors import ExecutionError, ImmutableArrayError, ParameterError, ShapeError


def filled(shape=(4, 8), dtype="float32", **options):
    buffer = nx.unified_buffer(shape, dtype, pools=MemoryPools(), **options)
    with buffer.writing() as view:
        view[...] = np.arange(view.size).reshape(shape)
    return buffer


def at(x):
    return x.__array_interface__["data"][0]


@pytest.mark.parametrize("access", ACCESS)
def test_arrays_and_numpy_have_the_buffers_pointer(access):
    buffer = filled(access=access)
    kind, page = ACCESS[access]
    assert buffer.pool.kind == kind
    assert buffer.address % (PAGE if page else 64) == 0
    x = buffer.array()
    assert at(x.numpy()) == at(buffer.numpy()) == buffer.address
    assert float(nx.jit(lambda x: x.sum())(x)) == 496.0
    assert not buffer.numpy().flags.writeable
    assert buffer.pool.statistics.copied == 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        buffer.numpy().setflags(write=True)
    copied = nx.asarray(buffer.numpy())
    del x
    buffer.write(np.zeros_like(buffer.numpy()))
    assert float(copied.sum()) == 496.0 and float(buffer.numpy().sum()) == 0
    buffer.write(copied)


def test_the_compiled_code_reads_it_where_it_lies():
    """By the native way of a repeated call, too: what is written later is what it computes with."""
    buffer = filled()
    run = nx.jit(lambda x: x * 2 + 1)
    for step in range(5):
        with buffer.writing() as view:
            view[...] = step
        x = buffer.array()
        assert run(x).numpy().ravel()[0] == 2 * step + 1
        del x


def test_xla_reads_it_where_it_lies():
    pytest.importorskip("jaxlib")
    buffer = filled((64, 64))
    with config.using(executor="xla"):
        x = buffer.array()
        assert float(nx.jit(lambda x: x.sum())(x)) == float(np.arange(4096).sum())
        assert x.buffer.raw.unsafe_buffer_pointer() == buffer.address


def test_nobody_writes_under_an_array():
    buffer = filled(name="frame")
    x = buffer.array()
    with pytest.raises(ImmutableArrayError, match="1 of frame"), buffer.writing():
        pass
    with pytest.raises(ImmutableArrayError):
        buffer.write(np.ones((4, 8), np.float32))
    view = x.numpy()
    del x
    with pytest.raises(ImmutableArrayError):  # the view is the array's memory
        buffer.write(np.ones((4, 8), np.float32))
    del view
    buffer.write(np.ones((4, 8), np.float32))
    assert buffer.numpy().sum() == 32
    assert buffer.pool.statistics.copied == buffer.nbytes
    with buffer.writing() as writable:
        pass
    with pytest.raises(ValueError, match="read-only"):
        writable[0] = 1


def test_a_donated_array_gives_its_memory_to_the_result():
    buffer = filled((64, 64))
    executable = nx.jit(lambda x: x * 2, donate_argnums=0)
    x = buffer.array()
    y = executable(x)
    assert x.is_deleted()
    assert at(y.numpy()) == buffer.address
    buffer.write(y)  # it lies here already
    assert buffer.pool.statistics.copied == 0
    np.testing.assert_array_equal(buffer.numpy(), np.arange(4096).reshape(64, 64) * 2)


def test_an_array_outlives_its_buffer():
    buffer = filled()
    x = buffer.array()
    buffer.close()
    with pytest.raises(ExecutionError, match="closed"):
        buffer.numpy()
    del buffer
    assert float(x.sum()) == 496.0


def test_what_does_not_fit_is_refused():
    buffer = filled()
    with pytest.raises(ShapeError, match=r"f32\[4,8\]"):
        buffer.write(np.ones((8, 4), np.float32))
    with pytest.raises(ShapeError):
        buffer.write(np.ones((4, 8)))
    for wrong in ((-1,), (2.5,)):
        with pytest.raises(ShapeError, match="unified_buffer: shape"):
            nx.unified_buffer(wrong)
    with pytest.raises(ParameterError, match="npu_primary"):
        nx.unified_buffer(3, access="npu")
    with pytest.raises(ParameterError, match="openvino, onnxruntime, litert"):
        buffer.tensor("tensorrt")
    assert nx.unified_buffer((0, 3)).numpy().shape == (0, 3)
    half = filled((3,), "bfloat16")
    assert at(half.array().numpy()) == half.address


# --- vendors ---


def test_openvino_computes_in_it():
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    x = op.parameter([4, 8], np.float32)
    model = ov.Model([op.multiply(x, op.constant(np.float32(3)))], [x])
    request = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    given, taken = filled(), filled(access="npu_primary")
    request.set_input_tensor(given.tensor("openvino"))
    request.set_output_tensor(taken.tensor("openvino"))
    assert request.get_input_tensor().data.ctypes.data == given.address
    assert request.get_output_tensor().data.ctypes.data == taken.address
    for start in (0, 5):
        with given.writing() as view:
            view[...] = np.arange(32).reshape(4, 8) + start
        request.infer()
        np.testing.assert_array_equal(taken.array(), given.numpy() * 3)
    assert given.pool.statistics.copied == taken.pool.statistics.copied == 0


def test_onnx_runtime_computes_in_it():
    ort = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    three = h.make_tensor("three", kind, [], [3.0])
    graph = h.make_graph(
        [h.make_node("Mul", ["x", "three"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", kind, [4, 8])],
        [h.make_tensor_value_info("y", kind, [4, 8])],
        [three],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given, taken = filled(), filled()
    binding = session.io_binding()
    x, y = given.tensor("onnxruntime"), taken.tensor("onnxruntime")
    assert (x.data_ptr(), y.data_ptr()) == (given.address, taken.address)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].data_ptr() == taken.address
    np.testing.assert_array_equal(taken.array(), given.numpy() * 3)


def test_litert_computes_in_it(tmp_path):
    compiled_model = pytest.importorskip("ai_edge_litert.compiled_model")
    artifact = nx.compile(lambda x: x * 3, target="tflite")(nx.numpy.ones(32))
    artifact.save(tmp_path)
    (path,) = tmp_path.rglob("*.tflite")
    model = compiled_model.CompiledModel.from_file(str(path))
    given, taken = filled((32,)), filled((32,))
    x, y = given.tensor("litert"), taken.tensor("litert")
    model.run_by_index(0, [x], [y])
    np.testing.assert_array_equal(taken.array(), given.numpy() * 3)
    np.testing.assert_array_equal(y.read(32, np.float32), taken.numpy())
    with pytest.raises(ParameterError, match="litert"):
        filled((4,), "uint16").tensor("litert")
