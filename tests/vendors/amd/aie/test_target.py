"""`nx.compile` for AMD's arrays: the integer graph's bits by the model of the array, and what is said about it."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.verify import verify

RNG = np.random.default_rng(0)
PARAMS = {
    "w1": (RNG.normal(size=(40, 70)) * 0.2).astype(np.float32),
    "b1": RNG.normal(size=70).astype(np.float32),
    "w2": (RNG.normal(size=(70, 10)) * 0.2).astype(np.float32),
}
X = RNG.normal(size=(24, 40)).astype(np.float32)


def mlp(params, x):
    h = nx.nn.relu(x @ params["w1"] + params["b1"])
    y = h @ params["w2"]
    return nx.nn.sigmoid(y) * jnp.tanh(y) + y


@pytest.fixture(scope="module")
def quantized():
    return nx.quantize(mlp, "int8", calibrate=[(PARAMS, X)])


@pytest.mark.parametrize(("target", "options"), [("aie-npu1", {}), ("xdna2", {"columns": 3}), ("aie-npu4", {})])
def test_a_quantized_network_has_the_bits_of_its_integer_graph(quantized, target, options):
    artifact = nx.compile(quantized, target=target, **options)(PARAMS, X)
    assert artifact.label == "own-model" and "array model" in artifact.runs_on
    assert artifact.deviation.exact
    assert all(r.device == "npu" for r in artifact.report.rows)
    other = RNG.normal(size=X.shape).astype(np.float32) * 3
    np.testing.assert_array_equal(artifact.run(other), artifact.reference(other))
    # Each launch is counted with what the chip's figures say that one takes.
    assert artifact.cost["latency"].basis == "model" and artifact.cost["launches"].value == 6
    assert artifact.cost["latency"].value == pytest.approx(artifact.cost["chip time"].value + 6 * 84.2e-6)


def test_the_files_are_designs_kernels_weights_and_what_a_runtime_needs(quantized):
    artifact = nx.compile(quantized, target="aie-npu1")(PARAMS, X)
    manifest = json.loads(artifact.files["mlp.json"])
    assert manifest["device"] == "npu1"
    steps = [s for s in manifest["steps"] if s["runs_on"] == "npu"]
    assert len(steps) == 6
    for step in steps:
        text = artifact.files[step["design"]].decode()
        design = verify(parse(text))
        assert [(n, t.nbytes) for n, t in design.sequence.arguments] == [
            (b["name"], b["bytes"]) for b in step["buffers"]
        ]
        source = artifact.files[step["kernels"]].decode()
        assert all(f.name in source for f in design.functions)
        for b in step["buffers"]:
            assert b["constant"] is None or len(artifact.files[b["constant"]]) == b["bytes"]
            assert (b["constant"] is None) == (b["operand"] is not None or b["result"])
        assert f"{step['design']}" in artifact.files["build.sh"].decode()
    old = nx.compile(quantized, target="aie-npu1", legacy=True)(PARAMS, X)
    assert b" aiex.runtime_sequence" in old.files["mlp_0.mlir"]
    assert b" aie.runtime_sequence" in artifact.files["mlp_0.mlir"]


def test_an_operation_with_one_known_number_is_a_table():
    f = lambda x: (x * 0.7 + 0.3) * nx.nn.gelu(x)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[(X,)]), target="aie-npu2")(X)
    assert artifact.deviation.exact
    assert all(r.device == "npu" for r in artifact.report.rows)
    assert sum(b"@nx_lookup" in text for name, text in artifact.files.items() if name.endswith(".mlir")) == 2


def test_equal_designs_are_written_once():
    def twice(params, x):
        y = nx.nn.relu(x @ params["a"])
        return nx.nn.relu(y @ params["b"])

    params = {k: RNG.normal(size=(32, 32)).astype(np.float32) for k in "ab"}
    x = RNG.normal(size=(8, 32)).astype(np.float32)
    artifact = nx.compile(nx.quantize(twice, "int8", calibrate=[(params, x)]), target="aie-npu1")(params, x)
    assert [n for n in artifact.files if n.endswith(".mlir")] == ["twice.mlir"]
    assert len([n for n in artifact.files if n.endswith(".bin")]) == 2
    assert artifact.deviation.exact


def test_floats_are_computed_in_bfloat16_with_the_bias():
    artifact = nx.compile(mlp, target="aie-npu2")(PARAMS, X)
    wanted = np.asarray(mlp(PARAMS, X))
    got = np.asarray(artifact.run(X))
    assert 0 < np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max() + 0.05
    assert any("bfloat16" in n for n in artifact.notes)
    why = {r.op: r.reason for r in artifact.report.rows if r.device == "host"}
    assert set(why) == {"logistic", "tanh"} and all(why.values())


def test_explain_says_why_ops_are_not_taken():
    def f(x, w):
        a = nx.nn.softmax(x, axis=-1)
        b = jnp.concatenate([a, x @ w], axis=0)
        return b + x[:1]

    x, w = RNG.normal(size=(4, 8)).astype(np.float32), RNG.normal(size=(8, 8)).astype(np.float32)
    report = nx.explain(f, target="aie-npu1")(x, w)
    rows = {r.op: r for r in report.rows}
    assert "no kernel" in rows["softmax"].reason and "different shapes" in rows["add"].reason
    assert rows["batch_matmul"].device == "npu" or rows["fully_connected"].device == "npu"
    assert rows["add"].suggestion


def test_a_product_of_activations_is_taken_in_floats_and_not_in_integers():
    f = lambda x, y: x @ y
    x, y = RNG.normal(size=(20, 30)).astype(np.float32), RNG.normal(size=(30, 10)).astype(np.float32)
    artifact = nx.compile(f, target="aie-npu1")(x, y)
    np.testing.assert_allclose(np.asarray(artifact.run(x, y)), x @ y, atol=0.1)
    q = nx.quantize(f, "int8", calibrate=[(x, y)])
    row = next(r for r in nx.explain(q, target="aie-npu1")(x, y).rows if "matmul" in r.op)
    assert row.device == "host" and "two activations" in row.reason


def test_views_are_no_work_and_strict_takes_them():
    params = {"w": RNG.normal(size=(40, 8)).astype(np.float32)}
    f = lambda params, x: nx.nn.relu((x.reshape(-1, 40) @ params["w"]).reshape(x.shape[0], -1))
    x = RNG.normal(size=(4, 2, 40)).astype(np.float32)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[(params, x)]), target="aie-npu1", strict=True)(params, x)
    assert artifact.deviation.exact and artifact.report.on_npu == len(artifact.report.rows)
    assert any("view" in r.reason for r in artifact.report.rows)


def test_a_graph_without_any_op_of_the_array_is_the_hosts():
    artifact = nx.compile(lambda x: nx.nn.softmax(x), target="aie-npu1")(X)
    assert artifact.label == "host" and "takes no op" in " ".join(artifact.notes)
    assert artifact.runs_on.endswith("on the host") and "model" not in str(artifact.deviation)
    assert "cycles" not in artifact.cost and not any("model" in n for n in artifact.notes)
    np.testing.assert_allclose(np.asarray(artifact.run(X)), np.asarray(nx.nn.softmax(X)), rtol=1e-5)


def test_half_a_program_has_no_latency():
    f = lambda params, x: nx.nn.softmax(x @ params["w2"])
    x = RNG.normal(size=(4, 70)).astype(np.float32)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[(PARAMS, x)]), target="aie-npu1")(PARAMS, x)
    assert 0 < artifact.report.share < 1 and "latency" not in artifact.cost
    assert artifact.cost["npu latency"].value > 84.2e-6


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("f", [lambda x: x * 2 + 1, lambda x: x * 2.5, lambda x: nx.nn.relu(x) - 1, lambda x: x + x])
def test_one_number_and_a_known_one_are_computed(f, shape):
    x = np.full(shape, 3.0, np.float32)
    artifact = nx.compile(f, target="aie-npu1")(x)
    np.testing.assert_array_equal(np.asarray(artifact.run(x)), np.asarray(f(x)))
    q = nx.compile(nx.quantize(f, "int8", calibrate=[(x,)]), target="aie-npu1")(x)
    assert q.deviation.exact and np.asarray(q.run(x)).shape == shape


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": 5}, "columns"),
        ({"columns": True}, "columns"),
        ({"tile": (1, 2)}, "tile"),
        ({"legacy": 1}, "legacy"),
        ({"colums": 2}, "option"),
    ],
)
def test_options_are_checked(quantized, options, words):
    with pytest.raises(ParameterError, match=words):
        nx.compile(quantized, target="aie-npu1", **options)(PARAMS, X)


def test_a_tile_size_that_does_not_fit_leaves_products_to_the_host_with_the_limit(quantized):
    artifact = nx.compile(quantized, target="aie-npu1", tile=(128, 256, 128), verify=False)(PARAMS, X)
    row = next(r for r in artifact.report.rows if r.op == "fully_connected")
    assert row.device == "host" and "data memory" in row.reason and "tile" in row.suggestion


def test_the_picture_shows_the_placed_design(quantized):
    artifact = nx.compile(quantized, target="aie-npu1", columns=2)(PARAMS, X)
    picture = artifact.report.svg()
    assert picture.startswith("<svg") and "(1, 5)" in picture and "of 64 KiB" in picture
    assert artifact.analysis._repr_html_() == picture
    assert "bound by" in str(artifact.report) and artifact.memory["core"] > 3328
