"""Artifacts: their files, running them, and what they say about themselves."""

import html.parser
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import LABELS, digests
from nxjax.backends.target import Build, Runner
from nxjax.deploy.artifact import Artifact
from nxjax.errors import DtypeError, ExecutionError, ParameterError
from tests.deploy.nets import IMAGE, PARAMS, convnet, quantized, saturates

QNET = quantized()
TARGETS = ["tflite", "ethos-u55", "edgetpu", "ethos-n", "openvino-cpu", "onnx", "amd-xdna", "apple-ane"]


@pytest.fixture(scope="module")
def artifacts():
    return {t: nx.compile(QNET, target=t)(PARAMS, IMAGE) for t in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
def test_every_artifact_has_files_a_label_and_labelled_costs(artifacts, target):
    artifact = artifacts[target]
    assert artifact.target == target == artifact.report.target
    assert artifact.label in LABELS and artifact.label == artifact.report.label
    assert artifact.bytes == next(iter(artifact.files.values())) and len(artifact.bytes) > 100
    assert all(isinstance(data, bytes) for data in artifact.files.values())
    assert artifact.cost.figures
    for name, figure in artifact.cost.figures.items():
        assert figure.basis in ("measured", "vendor-estimate", "model"), name
        assert figure.unit and np.isfinite(figure.value) and figure.value >= 0, name
    if artifact.label != "hardware":
        # Nothing but a chip measures a chip: what is measured here is the host's.
        assert "latency" not in artifact.cost or artifact.cost["latency"].basis != "measured"


@pytest.mark.parametrize("target", TARGETS)
def test_reports_have_one_row_per_node_and_add_up(artifacts, target):
    artifact = artifacts[target]
    report = artifact.report
    assert [r.op for r in report.rows] == [n.op for n in artifact.graph.nodes]
    assert report.on_npu + len(report.host_rows) + report.unknown == len(report.rows)
    assert all(r.reason for r in report.host_rows), "what is left to the host has a reason"
    assert all(not r.reason for r in report.rows if r.device == "npu")
    assert sum(r.macs for r in report.rows) == 4 * 4 * 8 * 27 + 8 * 5


def test_what_runs_gives_the_bits_of_the_reference(artifacts):
    exact = {t: a for t, a in artifacts.items() if a.runs_on and t != "amd-xdna" and not saturates(a)}
    assert set(exact) >= {"tflite", "ethos-u55", "edgetpu", "onnx"}
    for target, artifact in exact.items():
        assert artifact.deviation.exact, target
        assert (artifact.run(IMAGE) == QNET(PARAMS, IMAGE)).all(), target
        assert (artifact(IMAGE) == artifact.run(PARAMS, IMAGE)).all()
        assert (nx.deploy.reference(artifact, IMAGE) == artifact.reference(IMAGE)).all()


def test_runs_on_other_inputs_than_the_example(artifacts):
    x = -2 * IMAGE[:, ::-1]
    assert (artifacts["tflite"].run(x) == QNET(PARAMS, x)).all()
    assert (artifacts["tflite"].run(np.asarray(x)) == QNET(PARAMS, x)).all()


def test_what_nothing_here_can_run_says_so(artifacts):
    artifact = artifacts["apple-ane"]
    assert artifact.deviation is None and not artifact.runs_on
    with pytest.raises(ExecutionError, match=r"apple-ane: nothing on this machine can run(.|\n)*label 'emitted'"):
        artifact.run(IMAGE)
    assert (artifact.reference(IMAGE) == QNET(PARAMS, IMAGE)).all()


# Arguments of a run.


def test_runs_take_the_inputs_or_all_arguments(artifacts):
    run = artifacts["tflite"].run
    with pytest.raises(ParameterError, match=r"wrong number(.|\n)*1 inputs, or all 2 arguments"):
        run()
    with pytest.raises(ParameterError, match="wrong number"):
        run(PARAMS, IMAGE, IMAGE)
    changed = {**PARAMS, "out": PARAMS["out"] * 2}
    with pytest.raises(ParameterError, match=r"argument 0 differs from the parameters(.|\n)*compile again"):
        run(changed, IMAGE)
    with pytest.raises(ParameterError, match="differs from the parameters"):
        run({"conv": PARAMS["conv"]}, IMAGE)


def test_runs_refuse_other_shapes_and_what_would_lose_by_conversion(artifacts):
    run = artifacts["tflite"].run
    for wrong in (IMAGE[0], jnp.ones((2, 8, 8, 3)), jnp.float32(1)):
        with pytest.raises(ParameterError, match=r"another shape(.|\n)*nx\.bucketed"):
            run(wrong)
    with pytest.raises(DtypeError, match=r"c64(.|\n)*f32"):
        run(IMAGE.astype("complex64"))
    with pytest.raises(DtypeError, match="not an array"):
        run("text")
    integers = nx.compile(lambda x: x * 2, target="tflite")(jnp.arange(3))
    with pytest.raises(DtypeError, match=r"f32(.|\n)*i32"):
        integers.run(jnp.float32([1.5, 2, 3]))
    with pytest.raises(ParameterError, match="outside of its range"):
        integers.run(jnp.array([1, 2, 2**40], dtype="int64"))
    with pytest.raises(ParameterError, match="outside of its range"):
        integers.run(np.array([1, 2, 2**40]))
    assert integers.run(np.array([True, False, True])).tolist() == [2, 0, 2]
    assert integers.run(np.int8([1, -2, 3])).tolist() == [2, -4, 6]


def test_halves_doubles_and_integers_are_floats_like_others(artifacts):
    run, wanted = artifacts["tflite"].run, QNET(PARAMS, jnp.ones_like(IMAGE))
    for dtype in ("float16", "bfloat16", "float64", "int32", "uint8", "bool"):
        assert (run(jnp.ones(IMAGE.shape, dtype)) == wanted).all(), dtype


@pytest.mark.parametrize("transform", [nx.jit, nx.vmap, lambda f: nx.grad(lambda x: f(x).sum())])
def test_running_inside_a_transformation_is_refused_and_a_callback_is_not(artifacts, transform):
    run = artifacts["tflite"].run
    with pytest.raises(ParameterError, match=r"being traced(.|\n)*nx\.pure_callback"):
        transform(run)(IMAGE)
    called = nx.jit(lambda x: nx.pure_callback(run, nx.ShapeDtypeStruct((1, 5), "float32"), x) * 2)
    assert (called(IMAGE) == 2 * run(IMAGE)).all()


def test_values_at_the_ends_of_floats_saturate(artifacts):
    run = artifacts["tflite"].run
    with np.errstate(over="raise", invalid="raise"):
        for value in (np.inf, -np.inf, 3e38, 1e-45):
            x = jnp.full(IMAGE.shape, value, "float32")
            assert (run(x) == QNET(PARAMS, x)).all()


# What is shown.


class Checker(html.parser.HTMLParser):
    """Tags that are closed in order, and the text between them."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def shown(markup: str) -> str:
    checker = Checker()
    checker.feed(markup)
    checker.close()
    assert not checker.open
    return " ".join(checker.text)


@pytest.mark.parametrize("target", TARGETS)
def test_text_and_html_say_the_same(artifacts, target):
    artifact = artifacts[target]
    text, page = repr(artifact), shown(artifact._repr_html_())
    assert artifact.report.summary() in text and artifact.report.summary() in page
    for name, data in artifact.files.items():
        assert f"{name} {len(data):,} bytes" in text
    for name, figure in artifact.cost.figures.items():
        assert f"{name}: " in text and f"({figure.basis})" in text and name in page and figure.basis in page
    for note in artifact.notes:
        assert f"note: {note}" in text and note in page
    if artifact.deviation is not None:
        assert "+0 LSB" in text and "+0 LSB" in page
    assert ("runs on:" in text) == bool(artifact.runs_on)


def test_names_cannot_write_into_a_page(artifacts):
    one = artifacts["tflite"]
    build = Build({"<b>.tflite": b"x"}, [], notes=["<script>alert(1)</script>"])
    report = type(one.report)("<i>", "<u>", "emitted", one.report.rows, build.cost, build.notes)
    page = Artifact("<i>", one._signature, one._subject, build, report)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "<u>" not in page and "<i></i>" not in page


# Files.


def test_saved_packages_are_what_their_tools_read(artifacts, tmp_path):
    import coremltools

    goal = artifacts["apple-ane"].save(tmp_path / "net.mlpackage")
    assert goal == tmp_path / "net.mlpackage" and (goal / "Manifest.json").is_file()
    spec = coremltools.models.MLModel(str(goal), skip_model_load=True).get_spec()
    assert spec.WhichOneof("Type") == "mlProgram"
    assert artifacts["apple-ane"].save(tmp_path).parent == tmp_path


def test_saved_pairs_find_each_other_under_a_new_name(artifacts, tmp_path):
    import openvino

    goal = artifacts["openvino-cpu"].save(tmp_path / "digits.xml")
    assert {p.name for p in tmp_path.iterdir()} == {"digits.xml", "digits.bin"}
    assert list(openvino.Core().read_model(goal).inputs[0].shape) == list(IMAGE.shape)


def test_compiled_files_are_saved_by_the_name_that_is_asked_for(artifacts, tmp_path):
    artifact = artifacts["ethos-u55"]
    goal = artifact.save(tmp_path / "kws.tflite")
    assert goal.read_bytes() == artifact.bytes and len(list(tmp_path.iterdir())) == len(artifact.files)
    folder = artifact.save(tmp_path / "all")
    assert folder.is_dir() and {p.name for p in folder.iterdir()} == set(artifact.files)
    assert isinstance(artifact.save(str(tmp_path / "again.tflite")), Path)


def test_artifacts_are_the_same_each_time():
    for target in ("tflite", "onnx", "ethos-u55"):
        one, two = (nx.compile(convnet, target=target)(PARAMS, IMAGE).files for _ in range(2))
        assert one == two, target


def test_a_run_that_was_compared_with_nothing_earns_nothing():
    artifact = nx.compile(quantized(), target="qualcomm-htp", verify=False)(PARAMS, IMAGE)
    if artifact.runs_on == "" or artifact.label != "vendor-compiled":
        pytest.skip("needs Qualcomm's simulator")
    garbage = lambda args: [np.full(t.shape, 77, t.dtype) for t in artifact.graph.outputs]
    artifact._build.runner = replace(artifact._build.runner, run=garbage)
    artifact.run(IMAGE)
    assert artifact.label == artifact.report.label == "vendor-compiled" and artifact.deviation is None
    artifact.verify([np.asarray(IMAGE)])
    assert artifact.label == "vendor-compiled" and artifact.deviation is None
    assert "another function" in artifact.notes[-1]
    fresh = nx.compile(quantized(), target="qualcomm-htp", verify=False)(PARAMS, IMAGE)
    fresh.run(IMAGE)
    assert fresh.label == "vendor-compiled"
    fresh.verify([np.asarray(IMAGE)])
    assert fresh.label in ("vendor-simulator", "hardware") and fresh.deviation is not None


def on_chip(f, *args):
    """A compiled function whose files a chip is said to run, rightly; nothing has been compared."""
    artifact = nx.compile(f, target="tflite", verify=False)(*args)
    made, right = artifact._build, artifact._subject.meaning
    made.host, made.runner = False, Runner(right, "a chip", "chip", digests(made.files))
    made.placements = [replace(r, device="npu") for r in made.placements]
    made.cost.add("latency", 1.0, "s", "measured")
    return artifact, right


WEIGHTS = {"w": np.linspace(-1, 1, 80, dtype=np.float32).reshape(8, 10)}
FLAT = [np.zeros((4, 8), np.float32)]


def layer(p, x):
    return nx.nn.relu(x @ p["w"])


@pytest.mark.parametrize("kind", ["int8", "float32", "labels", "infinite"])
def test_one_value_for_everything_is_no_answer_where_the_example_has_one(kind):
    example = [np.full((4, 8), np.inf, np.float32)] if kind == "infinite" else FLAT
    f = {"labels": lambda p, x: jnp.argmax(x @ p["w"]), "infinite": lambda p, x: jnp.abs(x) + p["w"][0, 0]}.get(
        kind, layer
    )
    if kind == "int8":
        f = nx.quantize(
            f, "int8", calibrate=[(WEIGHTS, np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32))]
        )
    artifact, right = on_chip(f, WEIGHTS, *example)
    (same,) = right([x if t.grid is None else t.grid.quantize(x) for t, x in zip(artifact.graph.inputs, example)])
    assert len(np.unique(same)) == 1
    asked = []
    artifact._build.runner = replace(artifact._build.runner, run=lambda xs: asked.append(xs) or [same])
    artifact.verify(example)
    assert artifact.label == "emitted" and artifact.deviation is None and "latency" not in artifact.cost
    assert "another function" in artifact.notes[-1] and len(asked) == 5
    # What computes it earns its label on the same example.
    artifact, _ = on_chip(f, WEIGHTS, *example)
    artifact.verify(example)
    assert artifact.label == "hardware" and artifact.deviation.exact and "latency" in artifact.cost


def test_other_inputs_are_drawn_only_where_all_results_are_one_value():
    artifact, right = on_chip(layer, WEIGHTS, *FLAT)
    asked = []
    artifact._build.runner = replace(artifact._build.runner, run=lambda xs: asked.append(xs) or right(xs))
    artifact.verify([np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)])
    assert artifact.label == "hardware" and len(asked) == 1
    artifact.verify(FLAT)
    assert artifact.label == "hardware" and len(asked) == 6


def test_a_network_whose_result_is_one_value_earns_its_label():
    artifact, _ = on_chip(lambda p, x: nx.nn.relu(x @ p["w"] * 0 - 1), WEIGHTS, *FLAT)
    artifact.verify(FLAT)
    assert artifact.label == "hardware" and artifact.deviation.exact


def test_no_label_where_the_results_are_one_value_and_nothing_else_can_be_drawn():
    artifact, _ = on_chip(lambda x: x * 2, np.zeros(4, np.int32))
    artifact.verify([np.zeros(4, np.int32)])
    assert artifact.label == "emitted" and artifact.deviation is None and "latency" not in artifact.cost
    assert "give an example whose results vary" in artifact.notes[-1]
    artifact.verify([np.arange(4, dtype=np.int32)])
    assert artifact.label == "hardware" and artifact.deviation.exact


@pytest.mark.parametrize("lie", ["writes to its inputs", "gives real numbers", "gives text"])
def test_a_runtime_is_not_its_own_judge(monkeypatch, lie):
    target = registry.get("tflite")
    build = type(target).build

    def bad(self, graph, options):
        made = build(self, graph, options)
        run = made.runner.run

        def other(args):
            if lie == "writes to its inputs":
                for x in args:
                    x[...] = 0
            ys = run(args)
            kind = {"gives real numbers": np.float32, "gives text": str}.get(lie)
            return ys if kind is None else [y.astype(kind) for y in ys]

        made.runner = replace(made.runner, run=other)
        return made

    monkeypatch.setattr(type(target), "build", bad)
    compile = nx.compile(quantized(), target="tflite")
    if lie == "writes to its inputs":
        found = compile(PARAMS, IMAGE).deviation
        assert found is None or not found.exact
        return
    artifact = compile(PARAMS, IMAGE)
    assert artifact.deviation is None and not [r for r in artifact.evidence if r.act == "ran"]
    assert "other dtypes" in " ".join(artifact.notes)
    with pytest.raises(ExecutionError, match="other dtypes"):
        artifact.run(IMAGE)


@pytest.mark.parametrize("lie", ["raises", "gives nothing", "gives real numbers", "leaves the process"])
def test_another_way_to_run_it_that_fails_is_a_note(monkeypatch, lie):
    target = registry.get("tflite")
    build = type(target).build

    def other(args):
        if lie == "gives nothing":
            return None
        if lie == "gives real numbers":
            return [np.zeros((1, 5), np.float32)]
        raise OSError("the phone is gone") if lie == "raises" else SystemExit(3)

    def bad(self, graph, options):
        made = build(self, graph, options)
        made.others[:] = [Runner(other, "a phone", "host")]
        return made

    monkeypatch.setattr(type(target), "build", bad)
    artifact = nx.compile(quantized(), target="tflite")(PARAMS, IMAGE)
    assert artifact.deviation.exact and not artifact.others
    assert "a phone did not run it" in artifact.notes[-1]
