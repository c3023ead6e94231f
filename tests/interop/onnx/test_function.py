"""`from_onnx`: parameters, arguments, transforms, control flow, files that are damaged or hostile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, InvalidFileError, LoweringError, NxError, ParameterError, ProgramError, ShapeError
from nxjax.transforms.inline import inlined

onnx: Any = pytest.importorskip("onnx")

from tests.interop.onnx.onnx_models import one  # noqa: E402

helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def info(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Any, inputs: Any, outputs: Any, stored: Any = (), **more: Any) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(x), k) for k, x in dict(stored).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], **more)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


W = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
B = np.arange(3, dtype=np.float32)
LINEAR = model(
    [node("Gemm", "x w b", "h"), node("Relu", "h", "y")], [info("x", ["n", 4])], [info("y", ["n", 3])], {"w": W, "b": B}
)
X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def test_a_function_of_parameters_and_arrays():
    f = nx.interop.from_onnx(LINEAR.SerializeToString())
    assert repr(f) == "net(params, x: float32[n,4]) -> y: float32[n,3]"
    assert sorted(f.params) == ["b", "w"] and "x: float32[n,4]" in str(f.__doc__) and f.metadata == {}
    told = onnx.ModelProto.FromString(LINEAR.SerializeToString())
    helper.set_model_props(told, {"classes": "a\nb"})
    assert nx.interop.from_onnx(told.SerializeToString()).metadata == {"classes": "a\nb"}
    expected = np.maximum(X @ W + B, 0)
    for y in (f(f.params, X), f(f.params, x=X), nx.jit(f)(f.params, X)):
        np.testing.assert_allclose(y, expected, rtol=1e-5)
    closed = nx.interop.from_onnx(LINEAR.SerializeToString(), closed=True)
    np.testing.assert_allclose(closed(X), expected, rtol=1e-5)


def test_transforms_work_on_it():
    f = nx.interop.from_onnx(LINEAR.SerializeToString())
    loss = lambda p, x: (f(p, x) ** 2).sum()
    grads = nx.grad(loss)(f.params, X)
    h = 1e-2
    for k in ("w", "b"):
        moved = [{**f.params, k: f.params[k].at[(0,) * f.params[k].ndim].add(s)} for s in (h, -h)]
        slope = (float(loss(moved[0], X)) - float(loss(moved[1], X))) / (2 * h)
        np.testing.assert_allclose(grads[k][(0,) * grads[k].ndim], slope, rtol=1e-2)
    batched = nx.vmap(f, in_axes=(None, 0))(f.params, jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(batched[1], f(f.params, 2 * X), rtol=1e-5)
    closed = nx.interop.from_onnx(LINEAR.SerializeToString(), closed=True)
    q = nx.quantize(closed, "int8", calibrate=[(jnp.asarray(X),)])
    np.testing.assert_allclose(q(jnp.asarray(X)), closed(X), atol=0.15)


def test_what_is_wrong_with_arguments_is_said():
    f = nx.interop.from_onnx(LINEAR.SerializeToString())
    with pytest.raises(ParameterError, match="first argument holds the parameters"):
        f(X)
    with pytest.raises(ParameterError, match="arguments are missing"):
        f(f.params)
    with pytest.raises(ParameterError, match="does not take"):
        f(f.params, X, z=X)
    with pytest.raises(ShapeError, match="x has another shape"):
        f(f.params, X[:, :3])
    with pytest.raises(DtypeError, match="x has another dtype"):
        f(f.params, X.astype(np.float64))
    with pytest.raises(ParameterError, match="other parameters"):
        f({"w": W}, X)
    with pytest.raises(ShapeError, match="w has another shape"):
        f({"w": W.T, "b": B}, X)
    with pytest.raises(ParameterError, match="no input of this name"):
        nx.interop.from_onnx(LINEAR.SerializeToString(), constants={"q": 1})
    two = model([node("Add", "a b", "y")], [info("a", ["n"]), info("b", ["n"])], [info("y", ["n"])])
    g = nx.interop.from_onnx(two.SerializeToString())
    with pytest.raises(ShapeError, match="n"):
        g({}, X[0], X[0, :2])
    with pytest.raises(ShapeError, match="a has another shape"):
        nx.interop.from_onnx(two.SerializeToString(), shapes={"n": 3})({}, X[0], X[0])
    double = model([node("Abs", "x", "y")], [info("x", [2], TensorProto.DOUBLE)], [info("y", [2], TensorProto.DOUBLE)])
    h = nx.interop.from_onnx(double.SerializeToString(), closed=True)
    x = np.array([-1, 1e-300])
    with pytest.raises(DtypeError, match="enable_x64"):
        nx.jit(h)(x)
    with nx.enable_x64():
        assert nx.jit(h)(x).tolist() == h(x).tolist() == [1, 1e-300]
    with pytest.raises(ParameterError, match="SerializeToString"):
        nx.interop.from_onnx(two)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"shapes": {"m": 3}}, ParameterError, "no symbolic dimension of this name.*\n.*m\n.*n"),
        ({"shapes": {"q": (3,)}}, ParameterError, "no input of this name"),
        *(({"shapes": {"n": size}}, ParameterError, "shapes= of n") for size in (-1, 2.5, True, "3")),
        *(({"shapes": {"a": sizes}}, ParameterError, "shapes= of a") for sizes in ((-1,), (2.5,), "n")),
        ({"constants": {"a": [[1.0]]}}, ShapeError, "a has another shape"),
        ({"constants": {"a": np.zeros(3, int)}}, DtypeError, "a has another dtype"),
        ({"constants": {"a": np.zeros(3, np.float32)}, "shapes": {"n": 4}}, ShapeError, "a has another shape"),
    ],
)
def test_shapes_and_constants_are_those_of_the_model(given: Any, error: Any, words: str):
    two = model([node("Add", "a b", "y")], [info("a", ["n"]), info("b", ["n"])], [info("y", ["n"])])
    with pytest.raises(error, match=words):
        nx.interop.from_onnx(two.SerializeToString(), **given)
    held = nx.interop.from_onnx(two.SerializeToString(), constants={"a": np.ones(3, np.float32)})
    np.testing.assert_array_equal(held({}, np.zeros(3, np.float32)), np.ones(3))
    with pytest.raises(ShapeError, match="b has another shape"):
        held({}, np.zeros(1, np.float32))


def test_python_numbers_are_those_of_the_input_or_an_error():
    """None is cut off, wrapped around or loses its imaginary part, alone or in a list."""

    def shown(kind: int) -> Any:
        return nx.interop.from_onnx(
            model([node("Identity", "x", "y")], [info("x", None, kind)], [info("y", None, kind)]).SerializeToString()
        )

    good = {
        TensorProto.UINT8: (0, 255, True, 3.0),
        INT64: (2**40, -(2**63), 1.0),
        TensorProto.BOOL: (True, 0),
        FLOAT: (True, 3, 0.5, 2**70, float("inf")),
        TensorProto.COMPLEX64: (1j, 2, 0.5),
    }
    for kind, values in good.items():
        for v in values:
            expected = np.asarray(v).astype(helper.tensor_dtype_to_np_dtype(kind))
            for x, y in ((v, expected), ([v, v], np.stack([expected] * 2))):
                made = shown(kind)({}, x)
                assert made.dtype == y.dtype and np.array_equal(made, y)
    bad = {
        TensorProto.UINT8: (-1, 256, 1.5, float("nan"), 1j, 2**70),
        INT64: (0.5, 2**63, float("inf"), 1j),
        TensorProto.BOOL: (2, 0.5, 1j),
        FLOAT: (2j,),
    }
    for kind, values in bad.items():
        f = shown(kind)
        for v in values:
            for x in (v, [v, v]):
                with pytest.raises(DtypeError, match="x has another dtype"):
                    f({}, x)
    with pytest.raises(DtypeError, match="x has another dtype"):
        shown(INT64)({}, jnp.asarray(1.5))
    for x in (["1"], [None]):
        with pytest.raises(DtypeError, match="x has another dtype"):
            shown(FLOAT)({}, x)
    with pytest.raises(DtypeError, match="lists of different lengths"):
        shown(FLOAT)({}, [[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("closed", [False, True])
def test_changed_parameters_of_the_function_itself(closed: bool, tmp_path: Path):
    """They are checked as others are, and saved."""
    file = tmp_path / "m.onnx"

    def made() -> Any:
        return nx.interop.from_onnx(LINEAR.SerializeToString(), closed=closed)

    def called(f: Any) -> Any:
        return f(X) if closed else f(f.params, X)

    def in_place(f: Any, **new: Any) -> None:
        f.params.update(new)

    def replaced(f: Any, **new: Any) -> None:
        f.params = {**f.params, **new}

    expected = np.maximum(2 * X @ W + B, 0)
    for change in (in_place, replaced):
        for given in ((), ("params",)):
            f = made()
            called(f)
            change(f, w=f.params["w"] * 2)
            np.testing.assert_allclose(called(f), expected, rtol=1e-5)
            f.save(file, *(getattr(f, name) for name in given))
            again = nx.interop.from_onnx(file)
            assert np.array_equal(again.params["w"], 2 * W) and np.array_equal(again.params["b"], B)
        for early in (False, True):
            f = made()
            if early:
                called(f)
            change(f, w=jnp.ones((4, 5)))
            for run in (called, lambda f: f.save(file)):
                with pytest.raises(ShapeError, match="w has another shape"):
                    run(f)
            change(f, w=jnp.ones((4, 3)), more=jnp.ones(1))
            for run in (called, lambda f: f.save(file)):
                with pytest.raises(ParameterError, match="other parameters"):
                    run(f)


def test_a_sparse_tensor_is_saved_with_all_of_its_new_elements(tmp_path: Path):
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    places = numpy_helper.from_array(np.array([0, 4, 8]), "places")
    graph = helper.make_graph(
        [node("MatMul", "x w", "h"), node("Add", "h b", "y")],
        "net",
        [info("x", ["n", 4])],
        [info("y", ["n", 3])],
        [numpy_helper.from_array(B, "b")],
        sparse_initializer=[helper.make_sparse_tensor(values, places, [4, 3])],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    f, file = nx.interop.from_onnx(data), tmp_path / "m.onnx"
    for same in (None, {**f.params, "b": jnp.asarray(B + 0)}):
        f.save(file, same)
        assert len(onnx.load(file).graph.sparse_initializer) == 1
    params = {k: v + 1 for k, v in f.float_params().items()}
    f.save(file, params)
    onnx.checker.check_model(onnx.load(file))
    g = nx.interop.from_onnx(file)
    assert g.params.keys() == params.keys() and all(np.array_equal(g.params[k], params[k]) for k in params)
    assert np.array_equal(g(g.params, X), f(params, X))


def test_shapes_that_a_graph_computes_are_numbers():
    """Flatten by Shape, Gather, Concat and Reshape, as exporters write it, also while it is traced."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    stored = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    f = nx.interop.from_onnx(
        model(nodes, [info("x", ["n", 2, 3])], [info("y", None)], stored).SerializeToString(), closed=True
    )
    assert nx.jit(f)(jnp.ones((4, 2, 3))).shape == (4, 6)


def test_a_shape_that_is_an_argument():
    made = model([node("Reshape", "x shape", "y")], [info("x", [6]), info("shape", [2], INT64)], [info("y", None)])
    f = nx.interop.from_onnx(made.SerializeToString())
    x = jnp.arange(6.0)
    assert f({}, x, np.array([2, 3])).shape == (2, 3)
    with pytest.raises(LoweringError, match="constants="):
        nx.jit(f)({}, x, np.array([2, 3]))
    fixed = nx.interop.from_onnx(made.SerializeToString(), constants={"shape": np.array([3, 2])})
    assert nx.jit(fixed)({}, x).shape == (3, 2) and [p.name for p in fixed.inputs] == ["x"]


def branch(name: str, kind: str) -> Any:
    return helper.make_graph([node(kind, "x", f"{name}_y")], name, [], [info(f"{name}_y", ["n"])])


def test_branches_and_loops_have_gradients():
    choice = model(
        [node("If", "c", "y", then_branch=branch("a", "Exp"), else_branch=branch("b", "Neg"))],
        [info("c", [], TensorProto.BOOL), info("x", ["n"])],
        [info("y", ["n"])],
    )
    f = nx.interop.from_onnx(choice.SerializeToString(), closed=True)
    x = jnp.array([0.5, 1.0])
    for c, expected in ((True, np.exp([0.5, 1.0])), (False, [-0.5, -1.0])):
        np.testing.assert_allclose(nx.jit(f)(c, x), expected, rtol=1e-6)
    np.testing.assert_allclose(nx.grad(lambda x: f(True, x).sum())(x), np.exp([0.5, 1.0]), rtol=1e-6)
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Mul", "v k", "w"), node("Identity", "w", "row")],
        "body",
        [info("i", [], INT64), info("go", [], TensorProto.BOOL), info("v", ["n"])],
        [info("on", [], TensorProto.BOOL), info("w", ["n"]), info("row", ["n"])],
    )
    turns = helper.make_node("Loop", ["count", "", "x"], ["y", "rows"], body=body)
    stored = {"count": np.int64(3), "k": np.float32(2)}
    loop = model([turns], [info("x", ["n"])], [info("y", ["n"]), info("rows", None)], stored)
    g = nx.interop.from_onnx(loop.SerializeToString())
    y, rows = g(g.params, x)
    np.testing.assert_allclose(y, 8 * x)
    assert rows.shape == (3, 2)
    np.testing.assert_allclose(nx.grad(lambda p: g(p, x)[0].sum())(g.params)["k"], 3 * 4 * 1.5)
    # Billions of turns, as a hostile file may ask for.
    stored |= {"count": np.int64(1 << 35), "x0": np.ones(2, np.float32)}
    turns.input[2] = "x0"
    endless = model([turns, node("Add", "x y", "z")], [info("x", ["n"])], [info("z", ["n"])], stored)
    h = nx.interop.from_onnx(endless.SerializeToString(), trusted=False)
    with pytest.raises(nx.errors.InvalidFileError, match="a loop of more than 2147483647 turns"):
        h(h.params, x)


def test_functions_of_the_file_and_attributes_that_its_callers_give():
    body = [helper.make_node("LeakyRelu", ["x"], ["y"])]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    ours = helper.make_function("me", "Leak", ["x"], ["y"], body, [helper.make_opsetid("", 21)], ["slope"])
    call = helper.make_node("Leak", ["x"], ["y"], domain="me", slope=0.25)
    made = helper.make_model(
        helper.make_graph([call], "g", [info("x", ["n"])], [info("y", ["n"])]),
        functions=[ours],
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("me", 1)],
    )
    f = nx.interop.from_onnx(made.SerializeToString(), closed=True)
    np.testing.assert_allclose(f(np.array([-4, 2], np.float32)), [-1, 2])


def constant(attribute: str) -> Any:
    """A node whose value is an attribute of the function that it is in."""
    made = helper.make_node("Constant", [], ["k"])
    made.attribute.add(name="value_float", ref_attr_name=attribute, type=onnx.AttributeProto.FLOAT)
    return made


def of_functions(calls: Any, functions: Any) -> Any:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("me", 1)]
    graph = helper.make_graph(calls, "g", [info("x", ["n"])], [info("y", ["n"])])
    file = helper.make_model(graph, functions=functions, opset_imports=imports)
    return nx.interop.from_onnx(file.SerializeToString(), closed=True)


def test_attributes_of_a_function_have_defaults():
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("me", 1)]
    body = [constant("by"), node("Mul", "x k", "y")]
    scale = helper.make_function("me", "Scale", ["x"], ["y"], body, imports, [], [helper.make_attribute("by", 3.0)])
    bare = helper.make_function("me", "Bare", ["x"], ["y"], body, imports, ["by"])
    twice = [helper.make_node("Scale", ["x"], ["h"], domain="me"), helper.make_node("Scale", ["h"], ["y"], domain="me")]
    inner = helper.make_function("me", "Twice", ["x"], ["y"], twice, imports)
    x = np.array([-4, 2], np.float32)
    for kind, given, expected in (("Scale", {}, 3), ("Scale", {"by": 0.5}, 0.5), ("Twice", {}, 9)):
        f = of_functions([helper.make_node(kind, ["x"], ["y"], domain="me", **given)], [scale, inner])
        np.testing.assert_allclose(f(x), x * expected)
    with pytest.raises(ProgramError, match="Constant is not well formed"):
        of_functions([helper.make_node("Bare", ["x"], ["y"], domain="me")], [bare])(x)


def test_functions_of_one_name_have_overloads():
    made = [
        helper.make_function("me", "Do", ["x"], ["y"], [node(kind, "x", "y")], [helper.make_opsetid("", 21)])
        for kind in ("Abs", "Neg")
    ]
    calls = [helper.make_node("Do", ["x"], ["h"], domain="me"), helper.make_node("Do", ["h"], ["y"], domain="me")]
    for some in (made, calls):
        some[1].overload = "second"
    np.testing.assert_allclose(of_functions(calls, made)(np.array([-4, 2], np.float32)), [-4, -2])


def test_a_loop_whose_values_grow():
    """Its turns are known, so each has shapes of its own, in `jit` and in `grad`, too."""
    body = helper.make_graph(
        [node("Concat", "v x", "w", axis=0), node("Identity", "go", "on")],
        "body",
        [info("i", [], INT64), info("go", [], TensorProto.BOOL), info("v", ["a", 2])],
        [info("on", [], TensorProto.BOOL), info("w", ["b", 2])],
    )
    file = model(
        [node("Loop", "n yes x", "y", body=body)],
        [info("x", ["m", 2])],
        [info("y", ["k", 2])],
        {"n": np.int64(3), "yes": np.array(True)},
    )
    f = nx.interop.from_onnx(file.SerializeToString(), closed=True)
    x = np.arange(2, dtype=np.float32).reshape(1, 2)
    for run in (f, nx.jit(f)):
        np.testing.assert_array_equal(run(x), np.tile(x, (4, 1)))
    np.testing.assert_array_equal(nx.grad(lambda x: f(x).sum())(x), np.full((1, 2), 4.0))


def test_nodes_may_stand_in_any_order():
    """ONNX wants an order in which they can run; ONNX Runtime takes any, so some tools write any."""
    branch = lambda kind: helper.make_graph([node(kind, "b", "r")], kind, [], [info("r", ["n"])])
    nodes = [
        node("If", "c", "y", then_branch=branch("Neg"), else_branch=branch("Abs")),
        node("Add", "a a", "b"),
        node("Abs", "x", "a"),
    ]
    ports = [info("x", ["n"]), info("c", [], TensorProto.BOOL)]
    f = nx.interop.from_onnx(model(nodes, ports, [info("y", ["n"])]).SerializeToString())
    np.testing.assert_array_equal(f({}, np.array([-1, 2], np.float32), True), [-2, -4])
    ring = [node("Add", "x z", "y"), node("Neg", "y", "z")]
    f = nx.interop.from_onnx(model(ring, [info("x", ["n"])], [info("y", ["n"])]).SerializeToString())
    with pytest.raises(InvalidFileError, match="used before it is made"):
        f({}, np.zeros(2, np.float32))


def test_tensors_in_another_file_are_mapped(tmp_path: Path):
    made = model([node("MatMul", "x w", "y")], [info("x", ["n", 4])], [info("y", ["n", 3])], {"w": W})
    path = tmp_path / "net.onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    f = nx.interop.from_onnx(path)
    np.testing.assert_allclose(f(f.params, X), X @ W, rtol=1e-5)
    with pytest.raises(InvalidFileError, match="outside the file"):
        nx.interop.from_onnx(path.read_bytes())
    for location, error in (("../w.bin", "outside the folder"), ("none.bin", "is not there")):
        moved = onnx.load(path, load_external_data=False)
        moved.graph.initializer[0].external_data[0].value = location
        path.write_bytes(moved.SerializeToString())
        with pytest.raises(InvalidFileError, match=error):
            nx.interop.from_onnx(path)


def test_a_trusted_model_may_have_tensors_anywhere(tmp_path: Path):
    """As a cache of downloads has them: links to files that are named by what is in them."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    made = model([node("MatMul", "x w", "y")], [info("x", ["n", 4])], [info("y", ["n", 3])], {"w": W})
    onnx.save(made, tmp_path / "blobs" / "a", save_as_external_data=True, location="w.bin", size_threshold=0)
    for name, file in (("net.onnx", "a"), ("w.bin", "w.bin")):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / file)
    path = tmp_path / "snapshot" / "net.onnx"
    with pytest.raises(InvalidFileError, match="trusted=True"):
        nx.interop.from_onnx(path)
    f = nx.interop.from_onnx(path, trusted=True)
    np.testing.assert_allclose(f(f.params, X), X @ W, rtol=1e-5)
    f.save(tmp_path / "tuned.onnx")
    tuned = nx.interop.from_onnx(tmp_path / "tuned.onnx")
    np.testing.assert_array_equal(tuned.params["w"], W)


def test_texts_of_numbers_and_numbers_of_texts():
    text = model([node("Cast", "x", "y", to=TensorProto.STRING)], [info("x", ["n"], INT64)], [info("y", ["n"], 8)])
    f = nx.interop.from_onnx(text.SerializeToString(), closed=True)
    large = np.array([2**53 + 1, -3])
    assert f(large).tolist() == [str(2**53 + 1), "-3"]
    with pytest.raises(LoweringError, match="texts of traced numbers"), nx.enable_x64():
        nx.jit(f)(large)
    back = model([node("Cast", "x", "y", to=INT64)], [info("x", ["n"], 8)], [info("y", ["n"], INT64)])
    g = nx.interop.from_onnx(back.SerializeToString(), closed=True)
    assert g(np.array([str(2**53 + 1), "-3", "1e3", "2.0"], object)).tolist() == [2**53 + 1, -3, 1000, 2]


def test_tensors_in_places_that_are_none(tmp_path: Path):
    (tmp_path / "ring").symlink_to("ring")
    t = TensorProto(name="w", data_type=FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    file = onnx.ModelProto.FromString(LINEAR.SerializeToString())
    file.graph.initializer[0].CopyFrom(t)
    entry = file.graph.initializer[0].external_data.add(key="location")
    for location in ("ring", "w" * 5000, "a\0b", "..", "", "nothing"):
        entry.value = location
        (tmp_path / "net.onnx").write_bytes(file.SerializeToString())
        with pytest.raises(InvalidFileError):
            nx.interop.from_onnx(tmp_path / "net.onnx")


def test_damaged_and_hostile_files_are_one_clear_error():
    for data in (b"", b"\x00" * 40, b"not a model"):
        with pytest.raises(InvalidFileError):
            nx.interop.from_onnx(data)
    wrong = model([node("Relu", "x", "y")], [info("x", ["n"])], [info("y", ["n"])], {"w": W})
    wrong.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(InvalidFileError, match="do not fit its shape"):
        nx.interop.from_onnx(wrong.SerializeToString())
    huge = model([node("ConstantOfShape", "s", "y")], [], [info("y", None)], {"s": np.array([1 << 40, 1 << 20])})
    with pytest.raises(InvalidFileError, match="no array can have"):
        nx.interop.from_onnx(huge.SerializeToString())({})
    unknown = model([node("Frobnicate", "x", "y")], [info("x", ["n"])], [info("y", ["n"])])
    f = nx.interop.from_onnx(unknown.SerializeToString())
    with pytest.raises(LoweringError, match="no rule for operator Frobnicate") as refused:
        f({}, X[0])
    assert "make_function" in str(refused.value.fix)
    blocked = model(
        [node("Conv", "x w", "y", domain="com.microsoft.nchwc")], [info("x", None), info("w", None)], [info("y", None)]
    )
    with pytest.raises(LoweringError, match=r"nchwc::Conv") as refused:
        nx.interop.from_onnx(blocked.SerializeToString())({}, X[0], X[0])
    assert "ORT_ENABLE_EXTENDED" in str(refused.value.fix)
    more = model([node("Relu", "x", "y", wildness=3)], [info("x", ["n"])], [info("y", ["n"])])
    with pytest.raises(LoweringError, match="wildness"):
        nx.interop.from_onnx(more.SerializeToString())({}, X[0])
    loose = model([node("Add", "x z", "y")], [info("x", ["n"])], [info("y", ["n"])])
    with pytest.raises(InvalidFileError, match="used before it is made"):
        nx.interop.from_onnx(loose.SerializeToString())({}, X[0])
    with pytest.raises(ParameterError, match="not a model"):
        nx.interop.from_onnx(3)  # pyright: ignore[reportArgumentType]


def test_nearest_resizing_is_the_op_that_chips_know_where_it_takes_the_same_elements():
    scales = np.array([1, 1, 2, 2], np.float32)
    x = nx.array(np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32))
    for rounding, op in (("floor", "resize"), ("ceil", "gather")):
        how = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": rounding}
        ports = [info("x", [1, 3, 4, 5])], [info("y", [1, 3, 8, 10])]
        resizing = model([node("Resize", "x  scales", "y", **how)], *ports, {"scales": scales})
        resizing.graph.node[0].input[:] = ["x", "", "scales"]
        f = nx.interop.from_onnx(resizing.SerializeToString(), closed=True)
        ops = {e.op.name for e in inlined(nx.make_jaxpr(f)(x)).equations}
        assert op in ops and len(ops & {"resize", "gather"}) == 1
        at = [np.clip(getattr(np, rounding)(np.arange(2 * n) / 2).astype(int), 0, n - 1) for n in (4, 5)]
        assert (np.asarray(f(x)) == np.asarray(x)[:, :, at[0][:, None], at[1]]).all()


def resized(x: Any, **how: Any) -> Any:
    scales = how.pop("scales")
    file = model([node("Resize", "x", "y", **how)], [info("x", x.shape)], [info("y", None)], {"scales": scales})
    file.graph.node[0].input[:] = ["x", "", "scales"]
    return np.asarray(nx.interop.from_onnx(file.SerializeToString(), closed=True)(x))


def test_resizing_by_a_scale_that_leaves_a_part_of_an_element():
    """PyTorch writes such scales; its results, and ONNX Runtime's, are of the size that is there in the end."""
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    scales = np.array([1, 1, 1.5], np.float32)
    ends = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    np.testing.assert_allclose(resized(x, scales=scales, **ends)[0, 0], np.linspace(0, 4, 7), rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "how", "expected"),
    [
        (0.6, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, [0, 1, 3, 5, 6, 8]),
        (0.7, {"nearest_mode": "round_prefer_floor"}, [0, 2, 3, 4, 6, 7, 9]),
        (0.3, {"nearest_mode": "round_prefer_ceil"}, [1, 5, 8]),
    ],
)
def test_the_nearest_of_two_elements_is_decided_in_float32(scale: float, how: Any, expected: Any):
    """Places that are halves or whole numbers but for the rounding of a scale: as in ONNX Runtime."""
    x = np.arange(11, dtype=np.float32).reshape(1, 1, 11)
    scales = np.array([1, 1, scale], np.float32)
    np.testing.assert_array_equal(resized(x, scales=scales, mode="nearest", **how)[0, 0], expected)


def test_weights_that_nodes_hold_are_parameters(tmp_path: Path):
    """As PaddlePaddle and some inliners write them; single numbers are none."""
    w = np.arange(2048, dtype=np.float32).reshape(2, 1024)
    shape = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.array([-1, 1024])))
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
        helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5))),
        shape,
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Mul", ["h", "half"], ["g"]),
        helper.make_node("Reshape", ["g", "s"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy"]
    f = nx.interop.from_onnx(
        helper.make_model(helper.make_graph(nodes, "held", ports[:1], ports[1:])).SerializeToString()
    )
    assert list(f.params) == ["w"]
    x = nx.array([[1.0, 2.0]])
    gradient = nx.grad(lambda p: f(p, x).sum())(f.params)["w"]
    assert gradient[:, 0].tolist() == [0.5, 1.0]
    for changed in ({}, {"w": f.params["w"] * 2}):
        f.save(tmp_path / "held.onnx", changed or None)
        again = nx.interop.from_onnx(tmp_path / "held.onnx")
        assert (again.params["w"] == (2 if changed else 1) * w).all() and list(again.params) == ["w"]
        assert (again(again.params, x) == f(changed or f.params, x)).all()


def test_equations_are_in_the_scopes_of_their_nodes():
    nodes = [node("Gemm", "x w b", "h", name="/body/dense"), node("Relu", "h", "y")]
    f = nx.interop.from_onnx(
        model(nodes, [info("x", [2, 4])], [info("y", [2, 3])], {"w": W, "b": B}).SerializeToString()
    )
    found = inlined(nx.make_jaxpr(lambda x: f(f.params, x))(X[:2])).equations
    # A node without a name goes by its result's.
    assert {e.scope for e in found} == {"body/dense", "y"}
    assert found[-1].op.name == "relu" and found[-1].scope == "y"


def test_operators_that_divide_by_zero_are_errors():
    image = np.ones((1, 4, 4, 4), np.float32)
    for wrong in (
        node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[0, 0]),
        node("Conv", "x x", "y", strides=[0, 0], auto_pad="SAME_UPPER"),
        node("DepthToSpace", "x", "y", blocksize=0),
    ):
        f = nx.interop.from_onnx(model([wrong], [info("x", None)], [info("y", None)]).SerializeToString())
        with pytest.raises(NxError, match=wrong.op_type):
            f(f.params, image)


def test_an_empty_batch_is_resized():
    f = nx.interop.from_onnx(
        model(
            [helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear")],
            [info("x", ["n", 2, 3, 3])],
            [info("y", None)],
            {"s": np.array([0, 2, 5, 5])},
        ).SerializeToString()
    )
    assert f({}, np.zeros((0, 2, 3, 3), np.float32)).shape == (0, 2, 5, 5)


def test_functions_that_multiply_are_an_error():
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    calls = lambda i: [node(f"F{i}", a, b, domain="mine") for a, b in (("a", "t"), ("t", "b"))]
    functions = [helper.make_function("mine", f"F{i}", ["a"], ["b"], calls(i + 1), sets) for i in range(25)]
    functions.append(helper.make_function("mine", "F25", ["a"], ["b"], [node("Relu", "a", "b")], sets))
    many = model([node("F0", "x", "y", domain="mine")], [info("x", [2])], [info("y", [2])], functions=functions)
    f = nx.interop.from_onnx(many.SerializeToString(), constants={"x": np.ones(2, np.float32)})
    with pytest.raises(InvalidFileError, match="come to more than"):
        f({})


def test_a_value_has_one_maker():
    x, y = [info("x", [2])], [info("y", [2])]
    split = node("Split", "x", "y y", num_outputs=2)
    graphs = [
        ([node("Neg", "x", "y"), node("Abs", "x", "y")], x, {}),
        ([split], x, {}),
        ([node("Neg", "x", "y")], x * 2, {}),
    ]
    graphs += [([node("Neg", "x", "x"), node("Neg", "x", "y")], x, {}), ([node("Neg", "x", "y")], x, {"y": X[0, :2]})]
    held = node("Constant", "", "y", value=numpy_helper.from_array(X[0, :2]))
    for nodes, inputs, stored in [*graphs, ([held, node("Neg", "x", "y")], x, {})]:
        with pytest.raises(InvalidFileError, match="makes a value twice"):
            nx.interop.from_onnx(model(nodes, inputs, y, stored).SerializeToString())
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    body = helper.make_function("mine", "F", ["a", "a"], ["b"], [node("Relu", "a", "b")], sets)
    many = model([node("F", "x x", "y", domain="mine")], x, y, functions=[body])
    with pytest.raises(InvalidFileError, match="makes a value twice"):
        nx.interop.from_onnx(many.SerializeToString())


@pytest.mark.parametrize(
    ("elements", "places", "shape"),
    [
        ([1.0], [-1], [2]), ([1.0], [2], [2]), ([1.0], [[0, 0]], [2]), ([1.0], [0], [-2]), ([1.0], [0, 1], [2]),
        ([1.0, 2.0], [0], [2]), ([1.0, 2.0], [0, 0], [2]), ([1.0, 2.0], [1, 0], [2]), ([[1.0]], [[0]], [2]),
        ([1.0], [[[1]]], [2]), ([1.0], [0], [1] * 70), ([], [], [1 << 28]), ([1.0], [0], [0, 1 << 62, 1 << 62]),
    ],
)  # fmt: skip
def test_sparse_tensors_hold_together(elements: Any, places: Any, shape: list[int]):
    damaged = model([node("Add", "x w", "y")], [info("x", [2])], [info("y", [2])])
    tensor = damaged.graph.sparse_initializer.add(dims=shape)
    tensor.values.CopyFrom(numpy_helper.from_array(np.float32(elements), "w"))
    tensor.indices.CopyFrom(numpy_helper.from_array(np.int64(places)))
    with pytest.raises(InvalidFileError, match="sparse tensor"):
        nx.interop.from_onnx(damaged.SerializeToString())


def test_what_numbers_that_a_rule_takes_are_computed_from_is_no_parameter():
    """PyTorch's exporter writes the scales of Resize as two constants and their Concat."""
    ports = [info("x", ["n", 1, 2, 2])], [info("y", None)]
    stored = {
        "one": np.ones(2, np.float32),
        "two": np.full(2, 2, np.float32),
        "w": np.full((1, 1, 1, 1), 3, np.float32),
    }
    nodes = [
        node("Concat", "one two", "s", axis=0),
        node("Mul", "x w", "h"),
        helper.make_node("Resize", ["h", "", "s"], ["y"]),
    ]
    twice = helper.make_function(
        "mine",
        "Up",
        ["a", "b"],
        ["c"],
        [node("Add", "b b", "s"), helper.make_node("Resize", ["a", "", "s"], ["c"])],
        [helper.make_opsetid("", 21)],
    )
    half = {"half": np.array([0.5, 0.5, 1, 1], np.float32), "w": stored["w"]}
    x = np.ones((1, 1, 2, 2), np.float32)
    for file in (
        model(nodes, *ports, stored),
        model([node("Mul", "x w", "h"), node("Up", "h half", "y", domain="mine")], *ports, half, functions=[twice]),
    ):
        f = nx.interop.from_onnx(file.SerializeToString())
        assert list(f.params) == ["w"]
        np.testing.assert_array_equal(nx.jit(f)(f.params, x), np.full((1, 1, 4, 4), 3))


@pytest.mark.parametrize(
    ("kind", "attributes", "more", "at", "slopes"),
    [
        ("Relu", {}, [], [-1, -0.0, 0, 2], [0, 0, 0, 1]),
        ("Clip", {}, [0, 6], [-1, 0, 2, 6, 7], [0, 0, 1, 0, 0]),
        ("HardSigmoid", {"alpha": 0.5}, [], [-2, -1, 0, 1, 2], [0, 0, 0.5, 0, 0]),
        ("HardSwish", {}, [], [-4, -3, 0, 3, 4], [0, 0, 0.5, 1, 1]),
        ("Elu", {"alpha": 1.0}, [], [0, 2], [1, 1]),
        ("Elu", {"alpha": 0.5}, [], [0, 2], [0.5, 1]),
        ("Celu", {}, [], [0, 2], [1, 1]),
        ("Selu", {"alpha": 2.0, "gamma": 3.0}, [], [0, 2], [6, 3]),
    ],
)
def test_derivatives_where_a_function_has_a_corner(kind: str, attributes: Any, more: Any, at: Any, slopes: Any):
    # As in PyTorch: zeros, which such functions themselves give, are common.
    given = {"x": np.array(at, np.float32)} | {f"b{i}": np.float32(v) for i, v in enumerate(more)}
    f = nx.interop.from_onnx(one(kind, given, opset=22, **attributes), closed=True)
    found = nx.grad(lambda x: f(**{**given, "x": x}).sum())(jnp.asarray(given["x"]))
    np.testing.assert_allclose(found, slopes, rtol=1e-6)
