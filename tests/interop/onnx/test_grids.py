"""Quantized ONNX files: quantized ops with the file's grids, parameters in whole numbers, and the way back."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.interop.graphs.mapped import MappedFile
from nxjax.interop.onnx.wire import without_elements
from nxjax.quant import QArray

onnx: Any = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(0)
X_SCALE, Y_SCALE = np.float32(0.03), np.float32(0.1)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def model(nodes: Any, x: Any, y: Any, stored: Any) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()]
    ports = [helper.make_tensor_value_info(k, kind, shape) for k, kind, shape in (x, y)]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def grids(dtype: Any, per_channel: bool) -> dict[str, Any]:
    """A convolution's weights, bias and grids."""
    zero = 128 if dtype == np.uint8 else 0
    scales = RNG.uniform(0.005, 0.02, 8 if per_channel else ()).astype(np.float32)
    return {
        "xs": X_SCALE, "xz": np.array(zero + 5, dtype), "ys": Y_SCALE, "yz": np.array(zero - 100, dtype),
        "w": RNG.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8), "ws": scales, "wz": np.zeros_like(scales, np.int8),
        "b": RNG.integers(-500, 500, 8).astype(np.int32), "bs": (X_SCALE * scales).astype(np.float32),
    }  # fmt: skip


def qdq(dtype: Any, per_channel: bool) -> Any:
    along = {"axis": 0} if per_channel else {}
    nodes = [
        node("QuantizeLinear", "x xs xz", "xq"),
        node("DequantizeLinear", "xq xs xz", "xd"),
        node("DequantizeLinear", "w ws wz", "wd", **along),
        node("DequantizeLinear", "b bs", "bd", **along),
        node("Conv", "xd wd bd", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys yz", "yq"),
        node("MaxPool", "yq", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("DequantizeLinear", "p ys yz", "y"),
    ]
    return model(nodes, ("x", 1, ["n", 3, 8, 8]), ("y", 1, ["n", 8, 4, 4]), grids(dtype, per_channel))


X = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_file_of_grids_becomes_quantized_ops_on_them(dtype, per_channel):
    file = qdq(dtype, per_channel).SerializeToString()
    f = nx.interop.from_onnx(file)
    program = str(nx.make_jaxpr(f)(f.params, X))
    assert "qconv[" in program and "conv_general_dilated[" not in program and program.count("quantize_dequantize") == 1
    assert isinstance(f.params["w"], QArray) and f.params["b"].dtype == np.float32
    y = np.asarray(f(f.params, X))
    steps = np.rint(y / Y_SCALE)
    np.testing.assert_allclose(y, steps * Y_SCALE, rtol=1e-6)
    # In float: the reals that the file means, and their rounding to its grid.
    stored = {k.name: numpy_helper.to_array(k) for k in onnx.load_from_string(file).graph.initializer}
    scales = np.broadcast_to(stored["ws"], 8).reshape(-1, 1, 1, 1)
    snapped = np.clip(np.rint(X / X_SCALE) + stored["xz"], *_ends(dtype)) - stored["xz"].astype(np.float32)
    real = nx.lax.conv(
        jnp.asarray(snapped.astype(np.float32) * X_SCALE), jnp.asarray(stored["w"] * scales), (1, 1), [(1, 1), (1, 1)]
    )
    real = np.maximum(np.asarray(real) + (stored["b"] * stored["bs"]).reshape(-1, 1, 1), 0)
    pooled = real.reshape(2, 8, 4, 2, 4, 2).max((3, 5))
    wanted = np.clip(np.rint(pooled / Y_SCALE) + stored["yz"], *_ends(dtype)) - stored["yz"].astype(np.float32)
    assert np.abs(steps - wanted).max() <= 1


def _ends(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def test_it_is_close_to_onnx_runtime():
    runtime = pytest.importorskip("onnxruntime")
    for dtype, per_channel in ((np.uint8, True), (np.int8, False)):
        file = qdq(dtype, per_channel).SerializeToString()
        f = nx.interop.from_onnx(file)
        (wanted,) = runtime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": X})
        assert np.abs(np.asarray(f(f.params, X)) - wanted).max() <= 1.01 * Y_SCALE


def test_a_compiled_file_has_the_integers_of_the_function():
    pytest.importorskip("ai_edge_litert")
    f = nx.interop.from_onnx(qdq(np.int8, True).SerializeToString())
    made = nx.compile(f, target="tflite")(f.params, X)
    assert made.deviation.exact and made.deviation.histogram
    np.testing.assert_array_equal(made(X), f(f.params, X))


def test_stored_operators_become_quantized_ops():
    stored = grids(np.uint8, True)
    nodes = [
        node("QuantizeLinear", "x xs xz", "xq"),
        node("QLinearConv", "xq xs xz w ws wz ys yz b", "yq", pads=[1, 1, 1, 1]),
        node("DequantizeLinear", "yq ys yz", "y"),
    ]
    f = nx.interop.from_onnx(
        model(nodes, ("x", 1, ["n", 3, 8, 8]), ("y", 1, ["n", 8, 8, 8]), stored).SerializeToString()
    )
    program = str(nx.make_jaxpr(f)(f.params, X))
    assert "qconv[" in program and "conv_general_dilated[" not in program


@pytest.mark.parametrize("kind", ["QLinearConv", "QLinearMatMul", "com.microsoft::QGemm"])
def test_weights_of_stored_operators_are_trained_and_saved(kind: str, tmp_path: Path):
    stored = grids(np.uint8, True)
    del stored["bs"]
    domain, _, name = kind.rpartition("::")
    more: dict[str, Any] = {"domain": domain} if domain else {}
    if kind == "QLinearConv":
        inputs, more, x, shape = "xq xs xz w ws wz ys yz b", {"pads": [1, 1, 1, 1]}, X, ["n", 8, 8, 8]
    else:
        w = stored["w"].reshape(8, 27)
        stored |= {"w": w} if domain else {"w": np.ascontiguousarray(w.T)}
        inputs = "xq xs xz w ws wz b ys yz" if domain else "xq xs xz w ws wz ys yz"
        more |= {"transB": 1} if domain else {}
        x, shape = X.reshape(-1)[: 4 * 27].reshape(4, 27), ["n", 8]
    nodes = [node("QuantizeLinear", "x xs xz", "xq"), node(name, inputs, "yq", **more)]
    nodes.append(node("DequantizeLinear", "yq ys yz", "y"))
    file = model(nodes, ("x", 1, ["n", *x.shape[1:]]), ("y", 1, shape), stored)
    file.opset_import.add(domain="com.microsoft", version=1)
    f = nx.interop.from_onnx(file.SerializeToString())
    assert list(f.params) == ["w"]
    masters = f.float_params()
    np.testing.assert_array_equal(f(masters, x), f(f.params, x))
    grads = nx.grad(lambda p: (f(p, x) ** 2).sum())(masters)
    assert float(jnp.abs(grads["w"]).max()) > 0
    tuned = {"w": masters["w"] - 0.02 * grads["w"] / jnp.abs(grads["w"]).max()}
    f.save(tmp_path / "tuned.onnx", tuned)
    g = nx.interop.from_onnx(tmp_path / "tuned.onnx")
    np.testing.assert_array_equal(g(g.params, x), f(tuned, x))
    assert not np.array_equal(np.asarray(g(g.params, x)), np.asarray(f(masters, x)))
    f.save(tmp_path / "same.onnx")
    assert onnx.load(tmp_path / "same.onnx") == file


@pytest.mark.parametrize(("change", "reason"), [("xz", "16 bits with a zero point"), ("wz", "weights with one")])
def test_what_no_quantized_op_has_stays_float(change, reason):
    stored = grids(np.uint8, False)
    if change == "wz":
        stored |= {"w": RNG.integers(0, 256, (8, 3, 3, 3)).astype(np.uint8), "wz": np.array(100, np.uint8)}
    else:
        stored |= {"xz": np.array(7, np.uint16)}
    file = qdq(np.uint8, False)
    for t in file.graph.initializer:
        t.CopyFrom(numpy_helper.from_array(np.asarray(stored[t.name]), t.name))
    for o in file.opset_import:
        o.version = 21
    f = nx.interop.from_onnx(file.SerializeToString())
    assert "conv_general_dilated[" in str(nx.make_jaxpr(f)(f.params, X)), reason
    y = np.asarray(f(f.params, X))
    np.testing.assert_allclose(y, np.rint(y / Y_SCALE) * Y_SCALE, rtol=1e-6)


def test_a_stored_argument_and_a_stored_result():
    stored = {"s": np.float32(0.5), "z": np.array(3, np.uint8), "t": np.float32(0.25), "u": np.array(10, np.uint8)}
    nodes = [
        node("DequantizeLinear", "x s z", "a"),
        node("Relu", "a", "b"),
        node("QuantizeLinear", "b t u", "y"),
    ]
    f = nx.interop.from_onnx(model(nodes, ("x", 2, [5]), ("y", 2, [5]), stored).SerializeToString())
    x = np.array([0, 3, 4, 200, 255], np.uint8)
    assert f(f.params, x).dtype == np.uint8
    np.testing.assert_array_equal(f(f.params, x), [10, 10, 12, 255, 255])
    assert "requantize[" in str(nx.make_jaxpr(f)(f.params, x))


def test_parameters_may_come_as_floats_and_have_derivatives():
    f = nx.interop.from_onnx(qdq(np.int8, True).SerializeToString())
    floats = {k: v.dequantize() if isinstance(v, QArray) else v for k, v in f.params.items()}
    np.testing.assert_array_equal(f(floats, X), f(f.params, X))
    grads = nx.grad(lambda p: (f(p, X) ** 2).sum())(floats)
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in grads.values())


@pytest.mark.parametrize(
    "zero", [np.uint16(32768), np.uint16(30000), np.int16(0), np.int16(3), np.uint8(7), np.int8(5)], ids=repr
)
def test_rounding_to_a_grid_has_a_derivative(zero: Any):
    """Of any grid of a whole tensor: ONNX Runtime's tools choose zero points for 16 bits, too."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("Reshape", "q to", "t"),
        node("DequantizeLinear", "t s z", "d"),
        node("QuantizeLinear", "d s z", "y"),
        node("DequantizeLinear", "y s z", "r"),
    ]
    held = {"s": np.float32(2.0**-7), "z": zero, "to": np.array([-1])}
    info = np.iinfo(zero.dtype)
    low, high = ((int(v) - int(zero)) * 2.0**-7 for v in (info.min, info.max))
    x = np.array([[low - 1, low, 0.30, -0.013, high, high + 1]], np.float32)
    f = nx.interop.from_onnx(model(nodes, ("x", 1, [1, 6]), ("r", 1, [6]), held).SerializeToString(), closed=True)
    np.testing.assert_array_equal(f(x), np.clip(np.rint(x[0] * 128) / 128, low, high))
    np.testing.assert_array_equal(nx.grad(lambda x: (2 * f(x)).sum())(x)[0, [0, 2, 3, 5]], [0, 2, 2, 0])
    g = nx.interop.from_onnx(
        model(nodes[:4], ("x", 1, [1, 6]), ("y", int(helper.np_dtype_to_tensor_dtype(zero.dtype)), [6]), held)
        .SerializeToString(), closed=True,
    )  # fmt: skip
    np.testing.assert_array_equal(g(x), np.clip(np.rint(x[0] * 128) + int(zero), info.min, info.max))
    assert g(x).dtype == zero.dtype


@pytest.mark.parametrize("largest", [100, 1 << 22, (1 << 23) + 1, (1 << 31) - 1])
def test_biases_are_the_numbers_of_the_file_however_large(largest: int, tmp_path: Path):
    """Beside activations of 16 bits a bias is on a fine grid, so its whole numbers are large."""
    scale = np.float32(2.0**-22)
    whole = np.array([largest, -largest, 3], np.int32)
    nodes = [node("DequantizeLinear", "b s", "r"), node("Add", "x r", "y")]
    file = model(nodes, ("x", 1, [3]), ("y", 1, [3]), {"b": whole, "s": scale})
    f = nx.interop.from_onnx(file.SerializeToString())
    np.testing.assert_allclose(f(f.params, np.zeros(3, np.float32)), whole * scale, rtol=1e-7)
    if "b" in f.params:
        f.save(tmp_path / "again.onnx", {"b": f.params["b"] + 0})
        (again, _) = onnx.load(tmp_path / "again.onnx").graph.initializer
        np.testing.assert_array_equal(numpy_helper.to_array(again), whole)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_written_file_computes_what_was_trained(per_channel: bool, tmp_path: Path):
    """Float masters between the integers, on halves between two, and beyond the ends of the grids."""
    f = nx.interop.from_onnx(qdq(np.int8, per_channel).SerializeToString())
    floats = f.float_params()
    step = nx.jit(nx.value_and_grad(lambda p: ((f(p, X) - 1) ** 2).mean()))
    for _ in range(3):
        _, grads = step(floats)
        floats = {k: v - 0.01 * grads[k] for k, v in floats.items()}
    scale = np.asarray(numpy_helper.to_array(f._proto.graph.initializer[5])).reshape(-1, 1, 1, 1)  # pyright: ignore
    halves = np.asarray(floats["w"]).copy()
    halves[:, 0] = (RNG.integers(-140, 140, halves[:, 0].shape) + np.float32(0.5)) * scale[..., 0]
    floats = {**floats, "w": jnp.asarray(halves)}
    f.save(tmp_path / "tuned.onnx", floats)
    g = nx.interop.from_onnx(tmp_path / "tuned.onnx")
    assert g.params.keys() == f.params.keys() and isinstance(g.params["w"], QArray)
    np.testing.assert_array_equal(g(g.params, X), f(floats, X))
    np.testing.assert_array_equal(g(g.float_params(), X), f(floats, X))
    with pytest.raises(ParameterError, match="w cannot be stored as int8"):
        f.save(tmp_path / "tuned.onnx", {**floats, "w": floats["w"] * jnp.nan})


def test_a_tensor_keeps_all_that_a_file_says_of_it(tmp_path: Path):
    w = RNG.normal(size=(64, 32)).astype(np.float32)  # large enough to be left where it lies
    file = model([node("MatMul", "x w", "y")], ("x", 1, ["n", 64]), ("y", 1, ["n", 32]), {"w": w})
    (t,) = file.graph.initializer
    t.doc_string, t.data_location = "weights", onnx.TensorProto.DEFAULT
    t.metadata_props.add(key="from", value="here")
    f = nx.interop.from_onnx(file.SerializeToString())
    f.save(tmp_path / "same.onnx")
    assert onnx.load(tmp_path / "same.onnx") == file
    f.save(tmp_path / "same.onnx", {"w": f.params["w"] * 2})
    t.raw_data = (w * 2).tobytes()
    assert onnx.load(tmp_path / "same.onnx") == file


def test_files_come_back_as_they_were(tmp_path: Path):
    file = qdq(np.uint8, True)
    f = nx.interop.from_onnx(file.SerializeToString())
    f.save(tmp_path / "same.onnx")
    assert onnx.load(tmp_path / "same.onnx") == file
    floats = {k: v.dequantize() if isinstance(v, QArray) else v + 0 for k, v in f.params.items()}
    f.save(tmp_path / "again.onnx", floats)
    again = onnx.load(tmp_path / "again.onnx")
    for a, b in zip(again.graph.initializer, file.graph.initializer, strict=True):
        assert a.name == b.name and a.data_type == b.data_type
        np.testing.assert_array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b))
    f.save(tmp_path / "tuned.onnx", {**floats, "b": floats["b"] + 1})
    g = nx.interop.from_onnx(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(g.params["b"], floats["b"] + 1, atol=float(X_SCALE) * 0.02)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.onnx", "same.onnx", "tuned.onnx"]


def test_tensors_outside_the_model_are_written_beside_it(tmp_path: Path):
    w = RNG.normal(size=(64, 32)).astype(np.float32)
    file = model([node("MatMul", "x w", "y")], ("x", 1, ["n", 64]), ("y", 1, ["n", 32]), {"w": w})
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    onnx.save(file, tmp_path / "a" / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=100)
    f = nx.interop.from_onnx(tmp_path / "a" / "net.onnx")
    f.save(tmp_path / "b" / "net.onnx", {"w": f.params["w"] * 2})
    assert len(list((tmp_path / "b").iterdir())) == 2
    np.testing.assert_array_equal(nx.interop.from_onnx(tmp_path / "b" / "net.onnx").params["w"], w * 2)
    np.testing.assert_array_equal(
        numpy_helper.to_array(onnx.load(tmp_path / "b" / "net.onnx").graph.initializer[0]), w * 2
    )


def outside(name: str, at: int) -> Any:
    """A tensor of 512 numbers, number ``at`` of a file."""
    t = onnx.TensorProto(name=name, data_type=1, dims=[512], data_location=onnx.TensorProto.EXTERNAL)
    for key, v in (("location", "net.bin"), ("offset", at * 2048)):
        t.external_data.add(key=key, value=str(v))
    return t


@pytest.mark.parametrize("place", ["constant", "branch", "function"])
def test_a_written_model_does_not_need_the_folder_that_it_came_from(place: str, tmp_path: Path):
    rows = RNG.normal(size=(2, 512)).astype(np.float32)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    (tmp_path / "a" / "net.bin").write_bytes(rows.tobytes())
    held = node("Constant", "", "k", value=outside("", 0))
    added = [held, node("Add", "x k", "h"), node("Add", "h w", "y")]
    x, y = (helper.make_tensor_value_info(k, 1, [512]) for k in "xy")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("me", 1)]
    functions: Any = []
    if place == "branch":
        inner = helper.make_graph(added, "inner", [], [y])
        added = [node("If", "yes", "y", then_branch=inner, else_branch=inner)]
    if place == "function":
        functions = [helper.make_function("me", "F", ["x", "w"], ["y"], added, imports)]
        added = [helper.make_node("F", ["x", "w"], ["y"], domain="me")]
    yes = numpy_helper.from_array(np.array(True), "yes")
    graph = helper.make_graph(added, "net", [x], [y], [yes, outside("w", 1)])
    file = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    (tmp_path / "a" / "net.onnx").write_bytes(file.SerializeToString())
    f = nx.interop.from_onnx(tmp_path / "a" / "net.onnx")
    f.save(tmp_path / "b" / "net.onnx")
    assert len(list((tmp_path / "b").iterdir())) == 2
    g = nx.interop.from_onnx(tmp_path / "b" / "net.onnx")
    x = np.zeros(512, np.float32)
    for h in (f, g):
        np.testing.assert_array_equal(h(h.params, x), rows[0] + rows[1])


def mapped(x: Any) -> bool:
    base: Any = np.asarray(x)
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, MappedFile)


def test_large_tensors_are_views_of_their_files(tmp_path: Path):
    w, v = RNG.normal(size=(2, 64, 64)).astype(np.float32)
    stored = {"small": np.float32([2.0]), "w": w, "v": v}
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("Mul", "b small", "y")]
    file = model(nodes, ("x", 1, ["n", 64]), ("y", 1, ["n", 64]), stored)
    (tmp_path / "near.onnx").write_bytes(file.SerializeToString())
    other = onnx.ModelProto.FromString(file.SerializeToString())
    onnx.save(other, tmp_path / "far.onnx", save_as_external_data=True, location="far.bin", size_threshold=4096)
    x = RNG.normal(size=(3, 64)).astype(np.float32)
    far, near = (nx.interop.from_onnx(tmp_path / f"{name}.onnx") for name in ("far", "near"))
    assert mapped(far.params["w"]) and mapped(far.params["v"]) and not mapped(far.params["small"])
    for f in (far, near, nx.interop.from_onnx(file.SerializeToString())):
        assert list(f.params) == ["small", "w", "v"]
        np.testing.assert_array_equal(f.params["v"], v)
        np.testing.assert_allclose(f(f.params, x), x @ w @ v * 2, rtol=1e-4, atol=1e-3)
    near.save(tmp_path / "near.onnx")
    assert onnx.load(tmp_path / "near.onnx") == file
    np.testing.assert_array_equal(near.params["w"], w)


def test_elements_that_are_not_aligned_are_copied_once(tmp_path: Path):
    """A protocol buffer puts them anywhere."""
    w = RNG.normal(size=(512, 512)).astype(np.float32)
    for i in range(4):
        name = "w" * (i + 1)
        file = model([node("MatMul", f"x {name}", "y")], ("x", 1, ["n", 512]), ("y", 1, ["n", 512]), {name: w})
        (tmp_path / "net.onnx").write_bytes(file.SerializeToString())
        tracemalloc.start()
        f = nx.interop.from_onnx(tmp_path / "net.onnx")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1.5 * w.nbytes
        np.testing.assert_array_equal(f.params[name], w)


@pytest.mark.parametrize("name", ["w", "ww", "www", "wwww"])
def test_a_tensor_is_read_when_it_is_used_wherever_it_lies_in_the_file(name: str, tmp_path: Path):
    """The bytes of a tensor begin at any place of a protocol buffer, here at one behind its name."""
    w = RNG.normal(size=(64, 32)).astype(np.float32)
    file = model([node("MatMul", f"x {name}", "y")], ("x", 1, ["n", 64]), ("y", 1, ["n", 32]), {name: w})
    (tmp_path / "net.onnx").write_bytes(file.SerializeToString())
    f = nx.interop.from_onnx(tmp_path / "net.onnx")
    raw = f._model.graph.initializers[name]  # pyright: ignore[reportPrivateUsage]
    held: Any = f.params[name]
    assert mapped(raw) and (mapped(held) if raw.flags.aligned else held._data is None)
    x = RNG.normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_allclose(nx.jit(f)(f.params, x), x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(held, w)
    assert np.asarray(held).flags.aligned and not np.asarray(held).flags.writeable


def test_what_is_no_protocol_buffer_is_left_to_its_reader():
    file = model([node("Abs", "x", "y")], ("x", 1, [2]), ("y", 1, [2]), {"w": np.zeros((64, 64), np.float32)})
    data = file.SerializeToString()
    for cut in (1, 5, len(data) // 2, len(data) - 1):
        kept, held = without_elements(np.frombuffer(data[:cut], np.uint8))
        assert kept == data[:cut] and not held
    kept, held = without_elements(np.frombuffer(data, np.uint8))
    assert len(kept) < 300 and [x.size for x in held.values()] == [4 * 64 * 64]


def test_other_parameters_are_refused(tmp_path: Path):
    f = nx.interop.from_onnx(qdq(np.int8, False).SerializeToString())
    with pytest.raises(ParameterError, match="other parameters"):
        f.save(tmp_path / "x.onnx", {"w": f.params["w"]})
    with pytest.raises(ShapeError, match="another shape"):
        f.save(tmp_path / "x.onnx", {**f.params, "b": jnp.zeros(3)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("zero", [np.uint8(100), np.int8(-9), np.int16(0), np.uint16(9)], ids=repr)
@pytest.mark.parametrize("readers", [1, 2])
def test_weights_on_any_grid_are_trained_and_saved(zero: Any, readers: int, tmp_path: Path):
    """Also such that no quantized op has, and such that two operators read."""
    info = np.iinfo(zero.dtype)
    held = {"ws": np.array([0.25, 0.5], np.float32), "wz": np.full(2, zero)}
    held["w"] = RNG.integers(info.min, info.max, (3, 2), endpoint=True).astype(zero.dtype)
    nodes = [node("DequantizeLinear", "w ws wz", f"d{i}") for i in range(readers)]
    nodes += [node("MatMul", "x d0", "h"), node("Add", f"h d{readers - 1}", "y")]
    file = model(nodes, ("x", 1, [3, 3]), ("y", 1, [3, 2]), held)
    f = nx.interop.from_onnx(file.SerializeToString())
    masters, x = f.float_params(), np.eye(3, dtype=np.float32)
    real = (held["w"].astype(np.float32) - np.float32(zero)) * held["ws"]
    np.testing.assert_array_equal(masters["w"], real)
    np.testing.assert_array_equal(f(masters, x), 2 * real)
    tuned = {"w": masters["w"] + 0.7}
    grads = nx.grad(lambda p: f(p, x).sum())(tuned)["w"]
    inside = np.asarray(tuned["w"]) < (info.max - int(zero)) * held["ws"]
    np.testing.assert_array_equal(grads, 2.0 * inside)
    f.save(tmp_path / "tuned.onnx", tuned)
    g = nx.interop.from_onnx(tmp_path / "tuned.onnx")
    np.testing.assert_array_equal(g(g.params, x), f(tuned, x))
    steps = np.clip(np.rint((real + np.float32(0.7)) / held["ws"]) + int(zero), info.min, info.max)
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(tmp_path / "tuned.onnx").graph.initializer[2]), steps)


@pytest.mark.parametrize("zero", [np.array([0, 0], np.int8), np.array([7, 200], np.uint8)], ids=repr)
def test_float_weights_that_a_file_rounds_by_channel_have_a_derivative(zero: Any):
    """As quantization-aware training exports them."""
    held = {"w": np.array([[0.3, 60.0], [-80.0, 0.1]], np.float32), "ws": np.array([0.25, 0.5], np.float32), "wz": zero}
    nodes = [node("QuantizeLinear", "w ws wz", "q", axis=0), node("DequantizeLinear", "q ws wz", "d", axis=0)]
    nodes.append(node("Add", "x d", "y"))
    f = nx.interop.from_onnx(model(nodes, ("x", 1, [2, 2]), ("y", 1, [2, 2]), held).SerializeToString())
    x, info = np.zeros((2, 2), np.float32), np.iinfo(zero.dtype)
    s, z = held["ws"][:, None], zero[:, None].astype(np.float32)
    real = (np.clip(np.rint(held["w"] / s) + z, info.min, info.max) - z) * s
    np.testing.assert_array_equal(f(f.params, x), real)
    grads = nx.grad(lambda p: f(p, x).sum())(f.params)["w"]
    np.testing.assert_array_equal(grads, np.abs(real - held["w"]) <= s)


def test_elements_that_move_between_rounding_by_channel_and_back_stay_right():
    held = {"s": np.array([0.25, 0.5], np.float32), "z": np.zeros(2, np.int8)}
    nodes = [node("QuantizeLinear", "x s z", "q", axis=0), node("Transpose", "q", "t")]
    nodes.append(node("DequantizeLinear", "t s z", "y", axis=1))
    f = nx.interop.from_onnx(model(nodes, ("x", 1, [2, 2]), ("y", 1, [2, 2]), held).SerializeToString(), closed=True)
    x = np.array([[0.3, 1], [2.3, 3.1]], np.float32)
    np.testing.assert_array_equal(f(x), (np.rint(x / held["s"][:, None]) * held["s"][:, None]).T)
