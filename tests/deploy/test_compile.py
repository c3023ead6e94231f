"""`nx.compile` and `nx.explain`: what they take, what they give back, and what they say about what cannot be."""

import errno
import functools
import tempfile

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.errors import (
    ConcretizationTypeError,
    DtypeError,
    ExecutionError,
    LoweringError,
    NonConcreteBooleanIndexError,
    ParameterError,
    PlacementError,
    ShapeError,
    TracerBoolConversionError,
    UnsupportedOpsError,
)
from tests.deploy.nets import IMAGE, PARAMS, ROWS, convnet, quantized

X = jnp.arange(12, dtype="float32").reshape(3, 4) / 10
W = {"w": jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32))}


def dense(params, x):
    return nx.nn.relu(x @ params["w"])


def compiled(fun, *args, target="tflite", **options):
    return nx.compile(fun, target=target, **options)(*args)


def same(got, want):
    """Equal trees, shapes, dtypes, and values to the last bits of float32."""
    assert nx.tree.structure(got) == nx.tree.structure(want)
    for a, b in zip(nx.tree.leaves(got), nx.tree.leaves(want), strict=True):
        assert isinstance(a, nx.Array)
        b = nx.numpy.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


SHAPES = {
    "pytree result": (lambda x: {"a": x * 2, "b": (x.sum(1), [x[0]])}, (X,)),
    "several inputs and results": (lambda x, y: (x + y, x * y), (X, X + 1)),
    "scalar input": (lambda x, s: x * s, (X, jnp.float32(2.5))),
    "scalars only": (lambda s: jnp.exp(s) * 2, (jnp.float32(0.5),)),
    "a Python number": (lambda x, s: x * s, (X, 2.5)),
    "scalar result": (lambda x: (x * x).sum(), (X,)),
    "no inputs": (lambda: jnp.ones((2, 3)) * 2, ()),
    "constants only": (lambda x: jnp.arange(6.0).reshape(2, 3), (X,)),
    "one result twice": (lambda x: (lambda y: (y, y))(x * 2), (X,)),
    "an input untouched": (lambda x: (x, x * 2), (X,)),
    "nothing but an input": (lambda x: x, (X,)),
    "an input twice": (lambda x: (x, x), (X,)),
    "an unused input": (lambda x, y: x + 1, (X, X)),
    "a parameter as a result": (lambda p, x: (p["w"], x + 1), (W, X)),
    "None in the result": (lambda x: {"a": None, "b": x + 1}, (X,)),
    "integers": (lambda x: x * 2 + 1, (jnp.arange(4),)),
    "booleans": (lambda x: ~x, (jnp.array([True, False]),)),
    "an int8 cast": (lambda x: x.astype("int8"), (X,)),
    "None as an argument": (lambda p, x: x * 2, (None, X)),
    "NumPy arrays": (lambda x: x * 2, (np.ones((2, 3), np.float32),)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_results_have_the_structure_shapes_and_dtypes_of_the_function(name):
    fun, args = SHAPES[name]
    artifact = compiled(fun, *args)
    same(artifact.run(*args), fun(*args))
    same(nx.deploy.reference(artifact, *args), fun(*args))
    assert artifact.deviation.max_error == 0
    assert len(artifact.report.rows) == len(artifact.graph.nodes)


def test_quantized_functions_give_the_same_bits():
    qnet = quantized()
    artifact = compiled(qnet, PARAMS, IMAGE)
    assert artifact.deviation.exact and artifact.deviation.histogram == {0: 5}
    assert (artifact.run(IMAGE) == qnet(PARAMS, IMAGE)).all()
    floats = compiled(qnet, PARAMS, IMAGE, io="float")
    assert floats.graph.inputs[0].dtype == np.float32 and artifact.graph.inputs[0].dtype == np.int8
    assert (floats.run(IMAGE) == qnet(PARAMS, IMAGE)).all()


def test_verification_may_be_left_out():
    assert compiled(dense, W, X, verify=False).deviation is None


# Which arguments become constants.


def test_trees_are_constants_and_arrays_are_inputs():
    artifact = compiled(dense, W, X)
    assert [t.shape for t in artifact.graph.inputs] == [(3, 4)]
    same(artifact.run(X), dense(W, X))
    same(artifact.run(W, X), dense(W, X))


@pytest.mark.parametrize("constants", [(1,), [1], 1, -1, (-1,), {1}, np.array([1])])
def test_any_argument_may_be_a_constant(constants):
    artifact = compiled(lambda x, w: x @ w, X, W["w"], constants=constants)
    assert [t.shape for t in artifact.graph.inputs] == [(3, 4)]
    same(artifact.run(X), X @ W["w"])


def test_all_or_no_arguments_may_be_constants():
    everything = compiled(dense, W, X, constants=(0, 1))
    assert everything.graph.inputs == []
    same(everything.run(), dense(W, X))
    nothing = compiled(dense, W, X, constants=())
    assert len(nothing.graph.inputs) == 2
    same(nothing.run(W, X), dense(W, X))


def test_bound_arguments_are_constants_too():
    same(compiled(functools.partial(dense, W), X).run(X), dense(W, X))


@pytest.mark.parametrize(
    ("constants", "says"),
    [((2,), "name no argument"), (-3, "name no argument"), ((0.5,), "positions of arguments"), ("params", "positions")],
)
def test_constants_that_name_no_argument_are_refused(constants, says):
    with pytest.raises(ParameterError, match=says):
        compiled(dense, W, X, constants=constants)


# What cannot be compiled.


def test_keyword_arguments_are_refused():
    with pytest.raises(ParameterError, match=r"keyword arguments(.|\n)*scale(.|\n)*functools\.partial"):
        nx.compile(lambda x, scale: x * scale, target="tflite")(X, scale=2.0)


def test_what_is_no_function_is_refused():
    with pytest.raises(ParameterError, match="needs a function"):
        compiled(3, X)


@pytest.mark.parametrize("result", [(), None, {}])
def test_functions_without_a_result_are_refused(result):
    with pytest.raises(ParameterError, match="returns no arrays"):
        compiled(lambda x: result, X)


@pytest.mark.parametrize("transform", [nx.jit, nx.vmap, lambda f: nx.grad(lambda x: f(x).sum())])
def test_compiling_inside_a_transformation_is_refused(transform):
    with pytest.raises(ParameterError, match="outside of jit, grad and vmap"):
        transform(lambda x: compiled(lambda y: y * 2, x).run(x))(X)


UNSUPPORTED = {
    "complex64": (X.astype("complex64"), "real and imaginary parts"),
    "float64": (X.astype("float64"), r"x\.astype\(nx\.float32\)"),
    "bfloat16": (X.astype("bfloat16"), r"x\.astype\(nx\.float32\)"),
    "int64": (jnp.arange(4, dtype="int64"), r"x\.astype\(nx\.int32\)"),
    "float8": (X.astype("float8_e4m3fn"), r"x\.astype\(nx\.float32\)"),
}


@pytest.mark.parametrize("dtype", UNSUPPORTED)
@pytest.mark.parametrize("target", ["tflite", "ethos-u55", "onnx"])
def test_dtypes_that_npus_lack_are_refused_with_what_to_write(dtype, target):
    x, instead = UNSUPPORTED[dtype]
    with pytest.raises(UnsupportedOpsError, match=rf"does not exist on an NPU(.|\n)*instead: .*{instead}"):
        compiled(lambda x: x.reshape(-1), x, target=target)


@pytest.mark.parametrize("x", ["text", b"bytes", np.array(["a", "b"]), np.array([object()]), object()])
def test_what_is_no_array_is_refused(x):
    with pytest.raises(DtypeError, match=r"^compile: "):
        compiled(lambda x: x, x)
    with pytest.raises(DtypeError, match=r"^compile: "):
        compiled(lambda p, x: x, {"p": x}, X)


def test_several_things_that_npus_lack_are_listed_at_once():
    def wrong(x):
        y = nx.lax.atan2(x, x * 2)
        return jnp.linalg.cholesky(y.T @ y)

    with pytest.raises(UnsupportedOpsError) as caught:
        compiled(wrong, X, target="ethos-u55")
    text = str(caught.value)
    assert "2 equations cannot run" in text
    for line in ("y = nx.lax.atan2(x, x * 2)", "return jnp.linalg.cholesky(y.T @ y)"):
        assert f"test_compile.py:{_line(line)} in " in text
    assert "compute it outside of the compiled function" in text
    report = nx.explain(wrong, target="ethos-u55")(X)
    assert {row.op for row in report.rows} == {"atan2", "cholesky"} and report.share == 0


def _line(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.strip().startswith(text))


def test_shapes_that_depend_on_values_are_refused_with_what_to_write():
    with pytest.raises(NonConcreteBooleanIndexError, match=r"nx\.where"):
        compiled(lambda x: x[x > 0], X)
    with pytest.raises(ConcretizationTypeError, match="size="):
        compiled(lambda x: jnp.nonzero(x), X)
    with pytest.raises(TracerBoolConversionError, match=r"nx\.where"):
        compiled(lambda x: x if x.sum() > 0 else -x, X)


def test_example_arguments_are_values_or_types_of_known_shapes():
    with pytest.raises(ShapeError, match=r"no number(.|\n)*nx\.bucketed"):
        compiled(lambda x: x, nx.ShapeDtypeStruct((2, None), "float32"))
    of_type = compiled(lambda x: x * 2, nx.ShapeDtypeStruct((3, 4), "float32"))
    assert of_type.deviation is None and same(of_type.run(X), X * 2) is None
    with pytest.raises(ParameterError, match=r"argument 0 becomes part(.|\n)*constants=\(\)"):
        compiled(lambda p, x: p["w"] * x, {"w": nx.ShapeDtypeStruct((3, 4), "float32")}, X)
    artifact = compiled(lambda x: x * 2, X)
    with pytest.raises(ParameterError, match=r"\(5, 4\)(.|\n)*f32\[3,4\](.|\n)*nx\.bucketed"):
        artifact.run(jnp.ones((5, 4)))


def test_types_that_onnx_lacks_are_refused_with_the_users_line():
    with pytest.raises(LoweringError, match=r"cumsum is not one that ONNX can say(.|\n)*test_compile\.py"):
        compiled(lambda x: jnp.cumsum(x, dtype="int8"), jnp.arange(4, dtype="int8"), target="onnx")


def test_tensors_without_elements_are_refused():
    with pytest.raises(UnsupportedOpsError, match="without elements"):
        compiled(lambda x: x * 2, jnp.ones((0, 4)))


@pytest.mark.parametrize("target", ["tflite", "ethos-u55", "edgetpu", "onnx", "apple-ane"])
def test_quantized_weights_that_are_inputs_are_refused_with_what_to_write(target):
    with pytest.raises(UnsupportedOpsError, match=r"weights are not constant(.|\n)*constants=\(0,\)"):
        compiled(quantized(), PARAMS, IMAGE, target=target, constants=())


def test_options_are_the_targets_own():
    with pytest.raises(ParameterError, match=r"nonsense(.|\n)*kernels"):
        compiled(dense, W, X, nonsense=1)
    with pytest.raises(ParameterError, match="io"):
        compiled(dense, W, X, io="both")


# strict.


@pytest.mark.parametrize("target", ["ethos-u55", "edgetpu", "ethos-n"])
def test_float_functions_are_not_for_integer_chips(target):
    artifact = compiled(convnet, PARAMS, IMAGE, target=target)
    assert artifact.report.share == 0 and all(row.reason for row in artifact.report.host_rows)
    with pytest.raises(PlacementError, match=rf"(\d) of \1 ops would not run on {target}") as caught:
        compiled(convnet, PARAMS, IMAGE, target=target, strict=True)
    assert [r.op for r in caught.value.rows] == [r.op for r in artifact.report.rows]
    assert str(caught.value).count("instead: ") >= len(caught.value.rows)
    assert "nets.py:" in str(caught.value) and "conv_general_dilated" in str(caught.value)


@pytest.mark.parametrize("target", ["ethos-u55", "edgetpu"])
def test_strict_takes_what_runs_entirely_and_names_all_of_what_does_not(target):
    assert compiled(quantized(), PARAMS, IMAGE, target=target, strict=True).report.share == 1

    def mixed(params, x):
        return jnp.sin(jnp.exp(convnet(params, x)) + 1)

    partly = nx.quantize(mixed, lambda op, scope, types: None if op in ("exp", "sin") else nx.quant.PRESETS["int8"],
                         calibrate=[(PARAMS, IMAGE)])  # fmt: skip
    with pytest.raises(PlacementError) as caught:
        compiled(partly, PARAMS, IMAGE, target=target, strict=True)
    report = nx.explain(partly, target=target)(PARAMS, IMAGE)
    assert {r.name for r in caught.value.rows} == {r.name for r in report.host_rows}
    assert 0 < report.share < 1
    assert {"exp", "sin"} <= {r.op for r in caught.value.rows}


@pytest.mark.parametrize("target", ["tflite", "openvino-cpu"])
def test_nothing_can_fall_back_where_the_host_is_the_device(target):
    assert compiled(dense, W, X, target=target, strict=True).label == "host"


def test_explain_is_the_report_of_compile():
    artifact, report = (f(quantized(), target="ethos-u55")(PARAMS, IMAGE) for f in (nx.compile, nx.explain))
    said, wanted = report.to_dict(), artifact.report.to_dict()
    acts = [[r["act"] for r in d.pop("evidence")] for d in (said, wanted)]
    assert said == wanted and acts == [["compiled"], ["compiled", "ran"]]


def test_explain_says_where_ops_would_run_when_the_file_cannot_be_written():
    f = lambda x: x.astype("float16") * 2
    with pytest.raises(LoweringError, match="float16"):
        compiled(f, X)
    report = nx.explain(f, target="tflite")(X)
    assert any("cannot be written" in note for note in report.notes) and len(report.rows) >= 1


@pytest.mark.parametrize("call", [nx.compile, nx.explain])
@pytest.mark.parametrize("target", ["openvino-cpu", "intel-npu", "ethos-u55", "qualcomm-htp", "apple-ane", "tpu-v5e"])
def test_a_full_disk_is_one_clear_error(monkeypatch, target, call):
    def build(self, subject, options):
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/model.xml")

    monkeypatch.setattr(type(registry.get(target)), "build", build)
    f = (lambda x: x * 2) if target == "tpu-v5e" else quantized()
    args = (ROWS,) if target == "tpu-v5e" else (PARAMS, IMAGE)
    with pytest.raises(ExecutionError, match=rf"{target}(.|\n)*/tmp/model.xml: No space left(.|\n)*TMPDIR") as caught:
        call(f, target=target)(*args)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_temporary_folder_that_is_full_is_named(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    pytest.importorskip("openvino")
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(ExecutionError, match=r"openvino-cpu(.|\n)*Read-only file system(.|\n)*TMPDIR"):
        compiled(quantized(), PARAMS, IMAGE, target="openvino-cpu")


def test_compiled_functions_keep_their_name():
    assert nx.compile(dense, target="tflite").__name__ == "dense"
    assert list(compiled(dense, W, X).files) == ["dense.tflite"]
    assert list(compiled(lambda x: x + ROWS, ROWS).files) == ["lambda.tflite"]


def test_weights_that_quantize_was_told_of_become_constants():
    w, x = np.ones((4, 2), np.float32), np.ones((1, 4), np.float32)
    qf = nx.quantize(lambda w, x: x @ w, calibrate=[(w, x)], params=0)
    artifact = nx.compile(qf, target="tflite", strict=True)(w, x)
    assert len(artifact.graph.inputs) == 1
    np.testing.assert_array_equal(artifact.run(x), qf(w, x))


@pytest.mark.parametrize(
    ("name", "stem"), [("../up", "up"), ("a/b", "a_b"), ("", "function"), ("net\0", "net"), ("größe", "größe")]
)
def test_names_of_functions_become_names_of_files(name, stem):
    def f(x):
        return x * 2

    f.__name__ = name
    assert list(compiled(f, X).files) == [f"{stem}.tflite"]
    assert list(compiled(f, X, target="openvino-cpu").files) == [f"{stem}.xml", f"{stem}.bin"]
