"""`compile` of a function of a state: a file with variables computes what the function does, call after call."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lower.npu.formats.tflite_file import parse_all
from tests.quant import head


def runner(data):
    """A call of any signature of a file, in LiteRT's reference kernels."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    kind = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=kind)
    return lambda key, **args: interpreter.get_signature_runner(key)(**args)


def stored(artifact, values, start):
    """Inputs as the file takes them, by name; the state's places are left out."""
    tensors = artifact.graph.inputs[start:]
    arrays = [np.asarray(x) for x in values]
    return {t.name: x if t.grid is None else t.grid.quantize(x) for t, x in zip(tensors, arrays, strict=True)}


def results(artifact, state):
    """The state as the file stores it."""
    tensors = artifact.graph.inputs[: len(nx.tree.leaves(state))]
    leaves = [np.asarray(x) for x in nx.tree.leaves(state)]
    return [x if t.grid is None else t.grid.quantize(x) for t, x in zip(tensors, leaves, strict=True)]


NAMES = ["state/0/b", "state/0/w", "state/1/b", "state/1/w"]


@pytest.mark.parametrize("policy", [None, head.body_in_8_bits, head.all_in_integers])
def test_many_steps_of_the_file_are_those_of_the_function(policy):
    pytest.importorskip("sklearn")
    f = head.train if policy is None else head.quantized(policy, 40)
    x, y = next(head.batches(1))
    artifact = nx.compile(f, target="tflite", state=0)(head.first(), x, y)
    assert list(artifact.files) == ["train_variables.tflite", "train.tflite"]
    call, step, state = runner(artifact.bytes), nx.jit(f), head.first()
    exact = policy is head.all_in_integers
    for x, y in head.batches(40, seed=3):
        state, value = step(state, x, y)
        (given,) = call("train", **stored(artifact, (x, y), 4)).values()
        (out,) = artifact.graph.outputs[4:]
        wanted = np.asarray(value) if out.grid is None else out.grid.quantize(np.asarray(value))
        assert np.allclose(given, wanted, rtol=1e-4, atol=0 if exact else 1e-5)
    saved = call("save")
    for name, wanted in zip(NAMES, results(artifact, state), strict=True):
        assert saved[name].dtype == wanted.dtype
        assert (saved[name] == wanted).all() if exact else np.allclose(saved[name], wanted, atol=2e-5)
    assert exact == (saved[NAMES[0]].dtype == np.int16)


def test_the_file_with_variables_is_what_runs_and_is_compared():
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("sklearn")
    x, y = next(head.batches(1))
    artifact = nx.compile(head.quantized(head.all_in_integers, 20), target="tflite")(head.first(), x, y)
    assert artifact.deviation.exact and artifact._build.ran_file == "train_variables.tflite"
    state, value = artifact.run(head.first(), x, y)
    wanted, loss = artifact.reference(head.first(), x, y)
    assert nx.tree.all(nx.tree.map(lambda a, b: bool((a == b).all()), state, wanted)) and float(value) == float(loss)
    # Each call has the state that it is given, whatever the one before left.
    assert float(artifact.run(head.first(), x, y)[1]) == float(value)


def test_signatures_share_the_variables():
    pytest.importorskip("sklearn")
    x, y = next(head.batches(1))
    trained = nx.tree.map(lambda a: a + 0.01, head.first())
    q = head.quantized(head.all_in_integers, 20)
    look = nx.quantize(head.infer, head.all_in_integers, calibrate=[(trained, x)], params=(), progress=False)
    artifact = nx.compile(q, target="tflite", signatures={"infer": (look, x)})(head.first(), x, y)
    one = artifact.signatures["infer"]
    assert one.deviation.exact
    call = runner(artifact.bytes)
    before = call("infer", **stored(one, (x,), 4))
    for xs, ys in head.batches(5):
        call("train", **stored(artifact, (xs, ys), 4))
    (after,) = call("infer", **stored(one, (x,), 4)).values()
    assert (next(iter(before.values())) != after).any()
    saved = call("save")
    state = [t.grid.dequantize(saved[n]) for t, n in zip(artifact.graph.inputs, NAMES, strict=False)]
    (head_, moving) = ({"b": state[0], "w": state[1]}, {"b": state[2], "w": state[3]})
    wanted = one.reference((head_, moving), x)
    assert (one.graph.outputs[0].grid.quantize(np.asarray(wanted)) == after).all()


def test_a_leaf_whose_ends_are_on_other_grids_is_stored_as_float():
    pytest.importorskip("ai_edge_litert")
    w = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), jnp.float32)
    policy = lambda op, scope, types: "int8" if op == "dot_general" else None
    step = lambda n, x: (jnp.tanh(n @ w) * 0.5 + x, x.mean())
    batch = jnp.ones((1, 4)), jnp.ones((1, 4))
    q = nx.quantize(step, policy, calibrate=[batch] * 4, state=0, params=(), progress=False)
    artifact = nx.compile(q, target="tflite")(*batch)
    assert artifact.graph.inputs[0].kind == artifact.graph.outputs[0].kind == np.float32
    assert artifact.graph.nodes[0].op == "quantize"
    n = batch[0] * 0.3
    for _ in range(3):
        m, _ = artifact.run(n, batch[1])
        n, _ = q(n, batch[1])
        assert np.allclose(m, n, atol=1e-5)


def test_vela_takes_the_file_with_variables():
    pytest.importorskip("ethosu.vela")
    pytest.importorskip("sklearn")
    x, y = next(head.batches(1))
    q = head.quantized(head.all_in_integers, 20)
    artifact = nx.compile(q, target="ethos-u85", signatures={"infer": (head.infer, x)})(head.first(), x, y)
    assert list(artifact.files)[:2] == ["train_variables_vela.tflite", "train_variables.tflite"]
    assert artifact.label == "vendor-compiled" and artifact.report.mac_share == 1
    # Only the loss is float, for which there is no kernel of 16 bits.
    left = {r.op for r in artifact.report.rows if not r.on_chip}
    assert "log_softmax" in left and not left & {"batch_matmul", "fully_connected", "sub", "add", "softmax"}
    for graph in parse_all(artifact.bytes)[:-1]:
        assert graph.operators[0].name == "CALL_ONCE"
    assert sum("of all signatures" in r.answer for r in artifact.evidence) == 1


def test_a_variable_that_vela_crashes_on_is_a_note():
    pytest.importorskip("ethosu.vela")

    def step(n, x):
        return {"n": n["n"] + 1}, x.sum()

    for shape, main in (((1,), "step_variables_vela.tflite"), ((), "step_variables.tflite")):
        artifact = nx.compile(step, target="ethos-u85", state=0)({"n": jnp.zeros(shape, "int32")}, jnp.ones((1, 4)))
        assert next(iter(artifact.files)) == main
        assert any("give state/n a dimension" in n for n in artifact.notes) == (shape == ())
        assert artifact.deviation.exact


def test_the_htp_takes_the_whole_step():
    pytest.importorskip("onnxruntime_qnn")
    pytest.importorskip("sklearn")
    x, y = next(head.batches(1))
    artifact = nx.compile(head.quantized(head.all_in_integers, 20), target="qualcomm-htp")(head.first(), x, y)
    assert artifact.label == "vendor-simulator" and artifact.report.mac_share == 1
    assert any("no variables" in note for note in artifact.notes)
    state, step, wanted = head.first(), nx.jit(head.train), head.first()
    for x, y in head.batches(10, seed=2):
        state, _ = artifact.run(state, x, y)
        wanted, _ = step(wanted, x, y)
    off, far = (np.abs(np.asarray(a)).max() for a in (state[0]["w"] - wanted[0]["w"], wanted[0]["w"]))
    assert off < 0.1 * far


def test_formats_without_variables_say_so():
    step = lambda n, x: (n + x, n)
    artifact = nx.compile(step, target="onnx", state=0)(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    assert any("no variables" in note for note in artifact.notes)
    assert len(artifact.graph.inputs) == len(artifact.graph.outputs) == 2


def test_the_report_of_a_step_needs_no_file():
    x, y = jnp.ones((2, 64)), jnp.ones((2, 10))
    report = nx.explain(head.train, target="ethos-u85", state=0)(head.first(), x, y)
    assert not any(r.on_chip for r in report.rows) and report.rows


def two(n, x):
    return {"n": n["n"] + x}, x


N = {"n": jnp.zeros((2,))}
X = jnp.ones((2,))


@pytest.mark.parametrize(
    ("f", "options", "args", "error", "says"),
    [
        (lambda n, x: (x, n), {"state": 0}, (N, X), ParameterError, "does not return the state that it takes"),
        (lambda n, x: x, {"state": 0}, (N, X), ParameterError, "return the new state first"),
        (lambda n, x: ({"n": n["n"][:1]}, x), {"state": 0}, (N, X), ShapeError, r"state\['n'\] in another shape"),
        (lambda n, x: ({"n": n["n"] > 0}, x), {"state": 0}, (N, X), DtypeError, r"\.astype\('float32'\)"),
        (two, {"state": 2}, (N, X), ParameterError, "names no argument"),
        (two, {"state": "n"}, (N, X), ParameterError, "position of an argument"),
        (two, {"state": 0, "constants": 0}, (N, X), ParameterError, "cannot be a constant"),
        (two, {"state": 0}, ({}, X), ParameterError, "no arrays"),
        (two, {"state": 0}, ({"n": nx.ShapeDtypeStruct((2,), "float32")}, X), ParameterError, "no values"),
        (two, {"signatures": {"infer": (two, X)}}, (X, X), ParameterError, "share a state"),
        (two, {"state": 0, "signatures": {"save": (two, X)}}, (N, X), ParameterError, "there already"),
        (two, {"state": 0, "signatures": {"two": (two, X)}}, (N, X), ParameterError, "there already"),
        (two, {"state": 0, "signatures": {"infer": X}}, (N, X), ParameterError, "a function and its arguments"),
    ],
)
def test_what_is_no_state_is_refused(f, options, args, error, says):
    with pytest.raises(error, match=says):
        nx.compile(f, target="tflite", **options)(*args)
