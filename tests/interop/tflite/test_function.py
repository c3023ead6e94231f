"""`from_tflite`: parameters, variables, control flow, signatures, transforms, files that are damaged or hostile."""

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, InvalidFileError, LoweringError, ParameterError, ShapeError
from nxjax.transforms.inline import inlined
from tests.interop.tflite.tflite_files import G, Operator, T, agree, const, imported, one, written

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 4)).astype(np.float32)
BIAS = np.arange(3, dtype=np.float32)
X = RNG.normal(size=(5, 4)).astype(np.float32)


def linear(signature: Any = (-1, 4)) -> bytes:
    x, y = T((1, 4), name="x", signature=signature), T((1, 3), name="y")
    w, b = const(W), const(BIAS)
    w.name, b.name = "w", "b"
    options = {"fused_activation_function": 1}
    ports = {"inputs": [{"name": "in", "tensor_index": 0}], "outputs": [{"name": "out", "tensor_index": 1}]}
    signatures = [{**ports, "signature_key": "serve", "subgraph_index": 0}]
    return written(G([x], [y], [Operator("FULLY_CONNECTED", [x, w, b], [y], options)]), signatures=signatures)


EXPECTED = np.maximum(X @ W.T + BIAS, 0)


def test_a_function_of_parameters_and_arrays(tmp_path: Path):
    f = nx.interop.from_tflite(linear())
    assert repr(f) == "serve(params, in: float32[in.0,4]) -> out: float32[1,3]"
    assert sorted(f.params) == ["b", "w"] and f.state is None and "in: float32[in.0,4]" in str(f.__doc__)
    for y in (f(f.params, X), f(f.params, **{"in": X}), nx.jit(f)(f.params, X)):
        np.testing.assert_allclose(y, EXPECTED, rtol=1e-5)
    (tmp_path / "m.tflite").write_bytes(linear())
    closed = nx.interop.from_tflite(tmp_path / "m.tflite", closed=True, signature="serve")
    np.testing.assert_allclose(closed(X), EXPECTED, rtol=1e-5)
    fixed = nx.interop.from_tflite(linear((1, 4)), shapes={"in": (5, 4)})
    np.testing.assert_allclose(fixed(fixed.params, X), EXPECTED, rtol=1e-5)


def test_transforms_work_on_it():
    f = nx.interop.from_tflite(linear())
    loss = lambda p, x: (f(p, x) ** 2).sum()
    grads = nx.grad(loss)(f.params, X)
    for k in ("w", "b"):
        at = (0,) * f.params[k].ndim
        moved = [{**f.params, k: f.params[k].at[at].add(s)} for s in (1e-2, -1e-2)]
        slope = (float(loss(moved[0], X)) - float(loss(moved[1], X))) / 2e-2
        np.testing.assert_allclose(grads[k][at], slope, rtol=1e-2)
    batched = nx.vmap(f, in_axes=(None, 0))(f.params, jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(batched[1], f(f.params, 2 * X), rtol=1e-5)
    closed = nx.interop.from_tflite(linear(), closed=True)
    q = nx.quantize(closed, "int8", calibrate=[(jnp.asarray(X),)])
    np.testing.assert_allclose(q(jnp.asarray(X)), EXPECTED, atol=0.15)


def test_what_is_wrong_with_arguments_is_said():
    f = nx.interop.from_tflite(linear())
    with pytest.raises(ParameterError, match="first argument holds the parameters"):
        f(X)
    with pytest.raises(ShapeError, match="in has another shape"):
        f(f.params, X[:, :3])
    with pytest.raises(DtypeError, match="in has another dtype"):
        f(f.params, X.astype(np.int32))
    with pytest.raises(ParameterError, match="no input of this name"):
        nx.interop.from_tflite(linear(), shapes={"q": (1,)})
    with pytest.raises(ParameterError, match="no signature of this name"):
        nx.interop.from_tflite(linear(), signature="train")
    with pytest.raises(ParameterError, match="io"):
        nx.interop.from_tflite(linear(), io="int")  # pyright: ignore[reportArgumentType]


def counter() -> bytes:
    """A variable that adds up what comes, set to 10 once."""
    x, y, handle, before = T((2,), name="x"), T((2,), name="y"), T((), object), T((2,))
    again, first = T((), object), const(np.float32([10, 10]))
    once = Operator("CALL_ONCE", [], [], {"init_subgraph_index": 1})
    name = {"shared_name": "total"}
    main = [
        once,
        Operator("VAR_HANDLE", [], [handle], name),
        Operator("READ_VARIABLE", [handle], [before]),
        Operator("ADD", [before, x], [y]),
        Operator("ASSIGN_VARIABLE", [handle, y], []),
    ]
    start = [Operator("VAR_HANDLE", [], [again], name), Operator("ASSIGN_VARIABLE", [again, first], [])]
    return written(G([x], [y], main), G([], [], start))


def test_variables_are_an_explicit_state():
    data = counter()
    f = nx.interop.from_tflite(data)
    assert repr(f) == "main(params, state, x: float32[2]) -> state, y: float32[2]"
    assert f.state is not None and f.state["total"].tolist() == [10.0, 10.0]
    state, y = nx.jit(f)(f.params, f.state, jnp.ones(2))
    state, y = f(f.params, state, jnp.ones(2))
    assert y.tolist() == state["total"].tolist() == [12.0, 12.0]
    grad = nx.grad(lambda s, x: f(f.params, s, x)[1].sum())(f.state, jnp.ones(2))
    assert grad["total"].tolist() == [1.0, 1.0]
    # A whole sequence at once.
    last, ys = nx.lax.scan(lambda s, x: f(f.params, s, x), f.state, jnp.ones((4, 2)))
    assert ys[:, 0].tolist() == [11.0, 12.0, 13.0, 14.0] and last["total"].tolist() == [14.0, 14.0]
    pytest.importorskip("ai_edge_litert")
    agree(data, *[[RNG.normal(size=2).astype(np.float32)] for _ in range(3)])
    with pytest.raises(ParameterError, match="second argument holds the state"):
        f(f.params, jnp.ones(2))


def loop() -> bytes:
    """Doubles x until it is above 100, and counts."""
    x, y, n, count = T((), name="x"), T((), name="y"), T((), "int32"), T((), "int32")
    cond_in, cond_n, go = T(()), T((), "int32"), T((), "bool")
    body_in, body_n, out, out_n = T(()), T((), "int32"), T(()), T((), "int32")
    main = G([x], [y, count], [
        Operator("SUB", [one_ := const(np.int32(1)), one_], [n]),
        Operator("WHILE", [x, n], [y, count], {"cond_subgraph_index": 1, "body_subgraph_index": 2}),
    ])  # fmt: skip
    cond = G([cond_in, cond_n], [go], [Operator("LESS", [cond_in, const(np.float32(100))], [go])])
    body = G([body_in, body_n], [out, out_n], [
        Operator("MUL", [body_in, const(np.float32(2))], [out]), Operator("ADD", [body_n, const(np.int32(1))], [out_n]),
    ])  # fmt: skip
    return written(main, cond, body)


def branch() -> bytes:
    c, x, y = T((), "bool", name="c"), T((3,), name="x"), T((3,), name="y")
    a, b, d, e = T((3,)), T((3,)), T((3,)), T((3,))
    main = G([c, x], [y], [Operator("IF", [c, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})])
    return written(main, G([a], [b], [Operator("EXP", [a], [b])]), G([d], [e], [Operator("NEG", [d], [e])]))


def test_loops_and_branches():
    f = nx.interop.from_tflite(loop(), closed=True)
    y, n = f(jnp.asarray(3.0))
    assert (float(y), int(n)) == (192.0, 6)
    x = jnp.asarray([1.0, 2.0, 3.0])
    g = nx.interop.from_tflite(branch(), closed=True)
    assert g(jnp.asarray(False), x).tolist() == [-1.0, -2.0, -3.0]
    slope = nx.grad(lambda c, x: g(c, x).sum(), argnums=1)(jnp.asarray(True), x)
    np.testing.assert_allclose(slope, np.exp(x), rtol=1e-6)
    pytest.importorskip("ai_edge_litert")
    agree(loop(), [np.float32(3)], [np.float32(500)])
    agree(branch(), [np.bool_(True), np.asarray(x)], [np.bool_(False), np.asarray(x)])


def test_a_loop_carries_variables():
    x, n, y, count = T((), name="x"), const(np.int32(0)), T(()), T((), "int32")
    h, h2, read, added = T((), object), T((), object), T(()), T(())
    i, v, go = T((), "int32"), T(()), T((), "bool")
    j, u, j1, first = T((), "int32"), T(()), T((), "int32"), const(np.float32(0))
    handle = lambda t: Operator("VAR_HANDLE", [], [t], {"shared_name": "v"})
    start = T((), object)
    body = [
        handle(h2), Operator("READ_VARIABLE", [h2], [read]), Operator("ADD", [read, u], [added]),
        Operator("ASSIGN_VARIABLE", [h2, added], []), Operator("ADD", [j, const(np.int32(1))], [j1]),
    ]  # fmt: skip
    data = written(
        G([x], [y], [
            Operator("CALL_ONCE", [], [], {"init_subgraph_index": 3}),
            Operator("WHILE", [n, x], [count, T(())], {"cond_subgraph_index": 1, "body_subgraph_index": 2}),
            handle(h), Operator("READ_VARIABLE", [h], [y]),
        ]),
        G([i, v], [go], [Operator("LESS", [i, const(np.int32(4))], [go])]),
        G([j, u], [j1, u], body),
        G([], [], [handle(start), Operator("ASSIGN_VARIABLE", [start, first], [])]),
    )  # fmt: skip
    assert [float(r[0]) for r in imported(data, [np.float32(2)], [np.float32(1)])] == [8.0, 12.0]


def test_the_integers_of_a_file_have_gradients():
    x = T((2, 4), "int8", 0.05, 3, name="x")
    w = const(RNG.integers(-127, 127, (3, 4)).astype(np.int8), scale=[0.01, 0.02, 0.03], name="w")
    b = const(np.int32([100, -100, 5]), scale=np.float32(0.05) * np.float32([0.01, 0.02, 0.03]), name="b")
    h, y = T((2, 3), "int8", 0.05, 0), T((2, 3), "int8", 1 / 128, 0, name="y")
    data = written(G([x], [y], [
        Operator("FULLY_CONNECTED", [x, w, b], [h], version=4), Operator("TANH", [h], [y]),
    ]))  # fmt: skip
    f = nx.interop.from_tflite(data, io="float")
    assert str(f.inputs[0]) == "x: float32[2,4]" and sorted(f.params) == ["b", "w"]
    xs = jnp.asarray(RNG.uniform(-1, 1, (2, 4)).astype(np.float32))
    plain = lambda p, x: jnp.tanh(x @ p["w"].T + p["b"])
    np.testing.assert_allclose(f(f.params, xs), plain(f.params, xs), atol=0.06)
    ours, theirs = (nx.grad(lambda p, x, g=g: g(p, x).sum(), argnums=(0, 1))(f.params, xs) for g in (f, plain))
    for a, c in zip(nx.tree.leaves(ours), nx.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, c, atol=0.1)
    names = [e.op.name for e in nx.make_jaxpr(f)(f.params, xs).equations]
    assert names
    batched = nx.vmap(f, in_axes=(None, 0))(f.params, jnp.stack([xs, 2 * xs]))
    np.testing.assert_array_equal(batched[1], f(f.params, 2 * xs))
    pytest.importorskip("ai_edge_litert")
    agree(data, [RNG.integers(-128, 127, (2, 4)).astype(np.int8)])


def test_a_quantized_file_is_written_back_with_its_grids():
    pytest.importorskip("ai_edge_litert")
    x = T((1, 6, 6, 3), "int8", 0.05, 3, name="x")
    w = const(RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8), scale=[0.01, 0.02, 0.03, 0.01])
    b = const(np.int32([100, -100, 5, 0]), scale=np.float32(0.05) * np.float32([0.01, 0.02, 0.03, 0.01]))
    y = T((1, 6, 6, 4), "int8", 0.1, -7, name="y")
    options = {"stride_w": 1, "stride_h": 1, "padding": 0, "fused_activation_function": 1}
    data = written(G([x], [y], [Operator("CONV_2D", [x, w, b], [y], options, version=3)]))
    f = nx.interop.from_tflite(data, io="float", closed=True)
    artifact = nx.compile(f, target="tflite")(jnp.zeros((1, 6, 6, 3)))
    again = nx.interop.from_tflite(artifact.bytes)
    call = [RNG.integers(-128, 127, (1, 6, 6, 3)).astype(np.int8)]
    np.testing.assert_array_equal(imported(artifact.bytes, call)[0][0], imported(data, call)[0][0])
    assert [g.nodes[0].kind for g in again._model.graphs] == ["CONV_2D"]


def test_shapes_that_a_graph_computes_are_numbers():
    x, s, n, shape, y = (
        T((2, 3, 4), name="x", signature=(-1, 3, 4)),
        T((3,), "int32"),
        T((1,), "int32"),
        T((2,), "int32"),
        T((2, 12)),
    )
    data = written(G([x], [y], [
        Operator("SHAPE", [x], [s], {"out_type": 2}),
        Operator("STRIDED_SLICE", [s, const(np.int32([0])), const(np.int32([1])), const(np.int32([1]))], [n]),
        Operator("CONCATENATION", [n, const(np.int32([-1]))], [shape], {"axis": 0}),
        Operator("RESHAPE", [x, shape], [y]),
    ]))  # fmt: skip
    f = nx.interop.from_tflite(data, closed=True)
    assert nx.jit(f)(jnp.ones((5, 3, 4))).shape == (5, 12)


def test_values_that_decide_shapes():
    c, y = T((4,), "bool", name="c"), T((2, 1), "int64")
    f = nx.interop.from_tflite(written(G([c], [y], [Operator("WHERE", [c], [y])])), closed=True)
    given = jnp.asarray([True, False, True, False])
    assert f(given).tolist() == [[0], [2]]
    with pytest.raises(LoweringError, match="constants="):
        nx.jit(f)(given)


@pytest.mark.parametrize(("kind", "told"), [("MyOp", "CUSTOM MyOp"), ("LSH_PROJECTION", "LSH_PROJECTION")])
def test_an_operator_without_a_rule_is_named(kind: str, told: str):
    data, xs = one(kind, [(T((2,)), np.zeros(2, np.float32))], T((2,)))
    f = nx.interop.from_tflite(data)
    with pytest.raises(LoweringError, match=told):
        f(f.params, *xs)


@pytest.mark.parametrize("shape", [(0, 1 << 30, 1 << 30, 1 << 30), (3, 1 << 30)])
def test_sizes_that_no_memory_has(shape: Any):
    """An empty array, too, has only so many elements in its other axes; a variable is made before the first call."""
    x, held, y = T((1,)), T(shape, variable=True), T((1,))
    data = written(G([x], [y], [Operator("ADD", [x, x], [y]), Operator("SHAPE", [held], [T((len(shape),), "int32")])]))
    with pytest.raises(InvalidFileError):
        nx.interop.from_tflite(data)


def test_damaged_files_are_one_error():
    data = bytearray(linear())
    with pytest.raises(InvalidFileError):
        nx.interop.from_tflite(b"TFL3")
    with pytest.raises(ParameterError, match="not a model"):
        nx.interop.from_tflite(3)  # pyright: ignore[reportArgumentType]
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(int(RNG.integers(1, 4))):
            broken[int(RNG.integers(len(broken)))] = int(RNG.integers(256))
        try:
            f = nx.interop.from_tflite(bytes(broken))
            f(f.params, X)
        except nx.errors.NxError:
            pass


def test_graphs_that_call_themselves_end():
    x, y = T((2,), name="x"), T((2,))
    f = nx.interop.from_tflite(written(G([x], [y], [Operator("CALL", [x], [y], {"subgraph": 0})])), closed=True)
    with pytest.raises(InvalidFileError, match="deep"):
        f(jnp.ones(2))


@pytest.mark.parametrize(("depth", "times"), [(30, 2), (4, 80)])
def test_graphs_that_multiply_are_an_error(depth: int, times: int):
    """Each calls the next one more than once: few bytes, and operators without end."""
    graphs: list[G] = []
    for i in range(depth):
        held = [T((2,)) for _ in range(times + 1)]
        calls = [Operator("CALL", [a], [b], {"subgraph": i + 1}) for a, b in itertools.pairwise(held)]
        graphs.append(G([held[0]], [held[-1]], calls))
    x, y = T((2,)), T((2,))
    f = nx.interop.from_tflite(written(*graphs, G([x], [y], [Operator("NEG", [x], [y])])), closed=True)
    with pytest.raises(InvalidFileError, match="come to more than"):
        f(jnp.ones(2))


@pytest.mark.parametrize(
    ("condition", "words"), [(True, "never ends"), (1.0, "no truth value"), ([True] * 2, "no truth")]
)
def test_loops_that_cannot_end_are_an_error(condition: Any, words: str):
    (x, y), (a, b), c = (T((2,)), T((2,))), (T((2,)), T((2,))), T((2,))
    loop = Operator("WHILE", [x], [y], {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    data = written(G([x], [y], [loop]), G([c], [const(condition)], []), G([a], [b], [Operator("NEG", [a], [b])]))
    with pytest.raises(InvalidFileError, match=words):
        nx.interop.from_tflite(data, closed=True)(jnp.ones(2))


def test_a_value_has_one_maker():
    x, y, w = T((2,)), T((2,)), const(np.ones(2, np.float32))
    neg = lambda a, b: Operator("NEG", [a], [b])
    for steps in ([neg(x, y), neg(x, y)], [neg(x, x), neg(x, y)], [neg(x, w), Operator("ADD", [x, w], [y])]):
        with pytest.raises(InvalidFileError, match="there already"):
            nx.interop.from_tflite(written(G([x], [y], steps)))


def test_equal_names_in_many_graphs_stay_short():
    graphs: list[G] = []
    for _ in range(300):
        x, y, w = T((2,)), T((2,)), const(np.ones(2, np.float32))
        w.name = "w"
        graphs.append(G([x], [y], [Operator("ADD", [x, w], [y])]))
    names = list(nx.interop.from_tflite(written(*graphs)).params)
    assert len(names) == 300 and max(map(len, names)) < 12


def _package_file(package: str, *parts: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(found.origin).parent.joinpath(*parts)


@pytest.mark.parametrize("name", ["alexa", "hey_jarvis", "hey_mycroft", "okay_nabu"])
def test_streaming_models_of_a_package(name: str):
    """Wake words: int8 with variables; a state that is carried gives LiteRT's scores, step by step."""
    pytest.importorskip("ai_edge_litert")
    data = _package_file("pymicro_wakeword", "models", f"{name}.tflite").read_bytes()
    agree(data, *[[RNG.integers(-128, 127, (1, 3, 40)).astype(np.int8)] for _ in range(25)])
    f = nx.interop.from_tflite(data, io="float")
    grads = nx.grad(lambda p: f(p, f.state, jnp.ones((1, 3, 40)))[1].sum())(f.params)
    assert all(np.isfinite(g).all() for g in nx.tree.leaves(grads))


def test_a_float_model_of_a_package():
    pytest.importorskip("ai_edge_litert")
    path = _package_file("basic_pitch", "saved_models", "icassp_2022", "nmp.tflite")
    f = nx.interop.from_tflite(path)
    x = RNG.normal(size=(1, 43844, 1)).astype(np.float32)
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    runtime: Any = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    wanted = runtime.get_signature_runner("serving_default")(input_2=x)
    for port, y in zip(f.outputs, f(f.params, x), strict=True):
        np.testing.assert_allclose(y, wanted[port.name], atol=2e-5)


def test_equations_are_in_the_scopes_of_the_results_of_their_operators():
    f = nx.interop.from_tflite(linear())
    found = inlined(nx.make_jaxpr(lambda x: f(f.params, x))(np.ones((2, 4), np.float32))).equations
    assert {e.scope for e in found} == {"y"}
