"""What functions of all imported models have in common: parameters of other dtypes, copies, pickles."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError

W = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(1, 4)).astype(np.float32)
PROGRAM = Path(__file__).parents[1] / "torch" / "files" / "eval.pt2"


def onnx_model() -> bytes:
    onnx: Any = pytest.importorskip("onnx")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [info("x", 1, [1, 4])], [info("y", 1, [1, 3])],
        [onnx.numpy_helper.from_array(W, "w")],
    )  # fmt: skip
    return onnx.helper.make_model(graph).SerializeToString()


def onnx_file(folder: Path) -> Any:
    (folder / "net.onnx").write_bytes(onnx_model())
    return nx.interop.from_onnx(folder / "net.onnx")


def tflite_file(folder: Path) -> Any:
    nx.compile(lambda x: x @ W, target="tflite")(X).save(folder / "net.tflite")
    return nx.interop.from_tflite(folder / "net.tflite")


def quantized_file(folder: Path) -> Any:
    q = nx.quantize(lambda x: x @ W, "int8", calibrate=[(X,)], progress=False)
    nx.compile(q, target="tflite")(X).save(folder / "net.tflite")
    return nx.interop.from_tflite(folder / "net.tflite", io="float")


def torch_file(folder: Path) -> Any:
    return nx.interop.from_torch(PROGRAM)


def arguments(f: Any) -> list[Any]:
    sizes = [tuple(n if isinstance(n, int) else 2 for n in p.dims) for p in f.inputs]
    return [np.random.default_rng(2).normal(size=n).astype(p.dtype) for n, p in zip(sizes, f.inputs, strict=True)]


def leaves(y: Any) -> list[Any]:
    return [np.asarray(v) for v in nx.tree.leaves(y)]


def floats(y: Any) -> Any:
    return next(v for v in nx.tree.leaves(y) if getattr(v, "dtype", None) == np.float32)


@pytest.mark.parametrize("made", [onnx_file, tflite_file, quantized_file, torch_file])
def test_copies_and_pickles_compute_and_save_the_same(made: Any, tmp_path: Path):
    f = made(tmp_path)
    xs = arguments(f)
    expected = leaves(f(f.params, *xs))  # compiled from here on
    kind = {"OnnxFunction": "onnx", "TFLiteFunction": "tflite", "TorchFunction": "pt2"}[type(f).__name__]
    f.save(tmp_path / f"0.{kind}")
    for i, g in enumerate([copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))], 1):
        assert repr(g) == repr(f)
        for y, x in zip(leaves(g(g.params, *xs)), expected, strict=True):
            np.testing.assert_array_equal(y, x)
        g.save(tmp_path / f"{i}.{kind}")
        assert (tmp_path / f"{i}.{kind}").read_bytes() == (tmp_path / f"0.{kind}").read_bytes()
    g = copy.deepcopy(f)
    name = next(iter(f.params))
    g.params[name] = g.params[name] * 2
    assert not np.array_equal(np.asarray(g.params[name]), np.asarray(f.params[name]))


@pytest.mark.parametrize("made", [onnx_file, tflite_file, quantized_file, torch_file])
def test_floats_of_another_width_become_those_of_the_file(made: Any, tmp_path: Path):
    f = made(tmp_path)
    xs, name = arguments(f), next(iter(f.params))
    for dtype in (jnp.bfloat16, jnp.float16, np.float64):
        with nx.enable_x64():
            params = {k: jnp.asarray(v).astype(dtype) for k, v in f.params.items()}
            wide = {k: np.asarray(v).astype(np.float32) for k, v in params.items()}
            for g in (f, nx.jit(f)):
                for y, x in zip(leaves(g(params, *xs)), leaves(f(wide, *xs)), strict=True):
                    assert y.dtype == x.dtype
                    # Two programs, which processors may sum in two orders.
                    np.testing.assert_allclose(y, x, rtol=1e-6)
            grads = nx.grad(lambda p: floats(f(p, *xs)).sum())(params)
            assert grads[name].dtype == dtype


@pytest.mark.parametrize("made", [onnx_file, tflite_file, quantized_file, torch_file])
def test_what_cannot_be_a_parameter_is_one_clear_error(made: Any, tmp_path: Path):
    f = made(tmp_path)
    xs, name = arguments(f), next(iter(f.params))
    shape = f.params[name].shape
    wrong: list[tuple[Any, Any, str]] = [
        (np.ones(shape, np.int32), DtypeError, "whole numbers"),
        (np.ones(shape, bool), DtypeError, "bool"),
        (np.ones(shape, np.complex64), DtypeError, "complex numbers"),
        (np.ones((*shape, 2), np.float32), ShapeError, "another shape"),
        (np.ones(shape, np.float32).tolist(), ParameterError, "is no array"),
        (None, ParameterError, "is no array"),
        ("text", ParameterError, "is no array"),
    ]
    for x, error, said in wrong:
        with pytest.raises(error, match=said):
            f({**f.params, name: x}, *xs)
        with pytest.raises(error, match=said):
            f.save(tmp_path / "x.pt2", {**f.params, name: x})


def test_numbers_are_parameters_without_axes():
    onnx: Any = pytest.importorskip("onnx")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["x", "w"], ["y"])], "net", [info("x", 1, [2])], [info("y", 1, [2])],
        [onnx.numpy_helper.from_array(np.float32(3), "w")],
    )  # fmt: skip
    f = nx.interop.from_onnx(onnx.helper.make_model(graph).SerializeToString())
    for w in (2, 2.0, np.float64(2), jnp.float32(2)):
        y = nx.jit(f)({"w": w}, np.ones(2, np.float32))
        assert y.dtype == np.float32 and y.tolist() == f({"w": w}, np.ones(2, np.float32)).tolist() == [2, 2]
    with pytest.raises(DtypeError, match="another kind of numbers"):
        f({"w": np.int32(2)}, np.ones(2, np.float32))


def test_whole_numbers_of_a_state_are_not_cut():
    f = nx.interop.from_torch(PROGRAM.with_name("train.pt2"))
    xs, name = arguments(f), next(k for k, v in f.state.items() if v.dtype == np.int64)
    after, _ = f(f.params, {**f.state, name: np.int32(4)}, *xs)
    assert after[name].dtype == np.int64 and int(after[name]) == 5
    with pytest.raises(DtypeError, match="another kind of numbers"):
        f(f.params, {**f.state, name: np.uint64(4)}, *xs)
