"""Labels, placements and deviations of every target against what ran: tools here, absent, failing, answering lies."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.backends import tools
from nxjax.backends.evidence import digest
from nxjax.backends.extras import installed
from nxjax.errors import ExecutionError, NxError, PlacementError
from nxjax.lower.npu.formats import tflite
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_writer import emit
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import TIMES
from nxjax.vendors.amd import vitisai
from nxjax.vendors.arm import vela as ethosu_vela
from nxjax.vendors.google import edgetpu
from nxjax.vendors.graphcore import popart
from nxjax.vendors.intel import compiler as intel_compiler
from nxjax.vendors.intel import target as intel
from nxjax.vendors.litert import aot as litert_aot
from nxjax.vendors.litert.compiled import recognized
from nxjax.vendors.onnx import placement as onnx_placement
from nxjax.vendors.qualcomm import target as qnn
from tests.deploy.nets import IMAGE, PARAMS, ROWS, convnet, quantized
from tests.vendors.nets import Net, dispatched

# Labels that only a run can earn.
RUNNING = ("hardware", "vendor-simulator", "own-model")
NAMES = [t.name for t in nx.targets()]
# One of each family: the sizes of a chip share everything that could claim something.
FAMILIES = sorted({"-".join(name.split("-")[:2]) for name in NAMES} & set(NAMES))
PROGRAMS = [name for name in FAMILIES if registry.get(name).format in ("tpu", "ipu", "poplar")]
GRAPHS = [name for name in FAMILIES if name not in PROGRAMS]


def labels(x):
    return jnp.argmax(x, -1)


MODELS = {
    "int8": (quantized(), (PARAMS, IMAGE)),
    "float": (convnet, (PARAMS, IMAGE)),
    "labels": (labels, (ROWS,)),
    "sort": (jnp.sort, (ROWS,)),
}


def compiled(target, model, **options):
    """The artifact, or None where the target says why there is none."""
    f, args = MODELS[model]
    try:
        return nx.compile(f, target=target, **options)(*args)
    except NxError:
        return None


def check(artifact, target):
    """What holds of every artifact, whatever its tools did."""
    report, deviation = artifact.report, artifact.deviation
    assert report.label == artifact.label
    counted = [r for r in report.rows if r.device not in ("host", "unknown")]
    assert report.on_npu == len(counted) and report.share == (len(counted) / len(report.rows) if report.rows else 0)
    total = sum(r.macs for r in report.rows)
    assert not total or report.mac_share == sum(r.macs for r in counted) / total
    for r in report.rows:
        assert (r.device == "unknown") == (r.decided_by == "nobody")
        assert r.decided_by != "table" or r.device == "host" or registry.get(target).rules
    if report.rows and report.unknown == len(report.rows):
        assert "%" not in report.summary()
    for name, figure in artifact.cost.figures.items():
        assert np.isfinite(figure.value) and figure.value >= 0, name
        # No chip does anything in no time.
        assert name not in TIMES or figure.value > 1e-9, (name, figure)
        # What launch and transfers take is known of what was measured, and of the chips that our model has them of.
        has = figure.basis == "measured" or "edgetpu" in target or "xdna" in target or "aie" in target
        assert "latency" not in name or has, (name, figure)
    assert artifact.evidence is report.evidence and all(r.tool and r.when for r in artifact.evidence)
    held = {digest(data) for data in artifact.files.values()}
    if artifact.label in RUNNING:
        assert deviation is not None, "a label of what ran, and nothing ran"
        assert any(r.act == "ran" and held.issuperset(r.took) for r in artifact.evidence)
    if artifact.label == "vendor-compiled":
        assert any(r.act == "compiled" and held.issuperset((*r.took, *r.gave)) for r in artifact.evidence)
    if any(r.decided_by == "vendor" for r in report.rows):
        assert any(r.answered for r in artifact.evidence)
    if deviation is None:
        return
    assert not deviation.file or deviation.file in artifact.files
    outputs = artifact._subject.outputs
    grids = [t for t in outputs if t.grid is not None]
    whole = [t for t in outputs if t.grid is None and t.dtype.kind in "biu"]
    assert (deviation.max_lsb is None) == (not grids)
    assert sum(deviation.integers.values()) == sum(t.size for t in whole)
    assert ("LSB" in str(deviation)) == bool(grids)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("target", GRAPHS)
def test_with_the_tools_that_are_here(target, model):
    artifact = compiled(target, model)
    if artifact is None:
        return
    check(artifact, target)
    if artifact.deviation is not None:
        args = MODELS[model][1]
        a, b = (np.asarray(nx.tree.leaves(f(*args))[0]) for f in (artifact.run, artifact.reference))
        assert artifact.deviation.exact == bool((a == b).all())
        # Our model of the array runs designs, and the host a file without what is for PopART alone.
        assert artifact.deviation.file or target in ("aie-npu1", "aie-npu2", "graphcore-popart")


@pytest.mark.parametrize("target", ["ipu-gc2", "tpu-v2"])
def test_targets_of_whole_programs(target):
    artifact = compiled(target, "labels")
    if artifact is not None:
        check(artifact, target)


@pytest.mark.parametrize("target", [*GRAPHS, "ipu-gc2"])
def test_nothing_is_said_to_have_run_before_it_has(target):
    f, args = MODELS["int8"]
    try:
        artifact = nx.compile(f, target=target, verify=False)(*args)
    except NxError:
        return
    assert artifact.label not in RUNNING and artifact.deviation is None
    assert artifact.report.label == artifact.label


@pytest.fixture
def no_tools(monkeypatch, tmp_path):
    """No vendor's package, compiler or device, whatever this machine has."""
    for name in [m for m in sys.modules if m.startswith("nxjax.vendors")]:
        if hasattr(sys.modules[name], "installed"):
            monkeypatch.setattr(sys.modules[name], "installed", lambda module: module in ("onnx", "coremltools"))
    monkeypatch.setattr(intel, "installed", installed)
    monkeypatch.setattr(intel_compiler, "libraries", list)
    monkeypatch.setattr(popart, "popart_python", lambda _: ("", "PopART is not here"))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("target", GRAPHS)
def test_without_tools_no_tool_is_quoted(target):
    for model in ("int8", "float"):
        artifact = compiled(target, model)
        if artifact is None:
            continue
        check(artifact, target)
        assert artifact.label in ("emitted", "host", "own-model"), artifact
        assert not [r for r in artifact.report.rows if r.decided_by == "vendor" and r.on_chip]
        if artifact.report.on_npu:
            assert "no tool was asked" in artifact.report.summary()


def test_targets_that_know_nothing_of_their_chip_cannot_be_strict():
    for target in ("onnx", "groq", "habana-gaudi"):
        with pytest.raises(PlacementError, match="not known to run"):
            nx.compile(convnet, target=target, strict=True)(PARAMS, IMAGE)


def fails(path: Path, code: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    return path


# What a tool does instead of its work: with status 1 and without a word, by a signal, well and without a file.
FAILING = {"status 1": "raise SystemExit(1)\n", "signal": "import os\nos.abort()\n", "nothing": "pass\n"}
# Or it leaves words against the file, and ends badly; or they are of the machine.
WORDS = """
import json, os, sys
words, place = {words!r}, sys.argv[-1]
print("Partitioned subgraph<0>, selected 0 ops, from a total of 999 ops. resulted in 0")
print("ERROR: disk full while the plugin was loaded", flush=True)
if os.path.isdir(place):
    open(place + "/refused.txt", "w").write(words)
    json.dump(dict(devices=[], supported=[], refused=words, compiled=False), open(place + "/report.json", "w"))
{end}
"""
FAILING |= {
    "words, signal": WORDS.format(words="no kernel for it", end="os.abort()"),
    "words, status 3": WORDS.format(words="no kernel for it", end="os._exit(3)"),
    "no memory": WORDS.format(words="std::bad_alloc", end=""),
}


@pytest.fixture(params=FAILING)
def failing(request, monkeypatch, tmp_path):
    """Every tool that is started as a process fails."""
    code = FAILING[request.param]
    for name in ("edgetpu_compiler", "aiecc.py", "aiecc", "popc", "apply_plugin_main"):
        fails(tmp_path / name, code)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ethosu_vela.ethosu_child, "__file__", str(fails(tmp_path / "vela.py", code)))
    monkeypatch.setattr(intel_compiler.intel_child, "__file__", str(fails(tmp_path / "intel.py", code)))
    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    monkeypatch.setattr(litert_aot, "_COMPILER", tmp_path / "apply_plugin_main")
    return request.param


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("target", ["edgetpu", "ethos-u55", "intel-npu", "qualcomm-litert", "mediatek-apu"])
def test_a_tool_that_fails_has_said_nothing(target):
    artifact = compiled(target, "int8")
    assert artifact is not None
    check(artifact, target)
    assert artifact.label in ("emitted", "host") and {r.decided_by for r in artifact.report.rows} == {"table"}
    said = " ".join(artifact.notes)
    assert "refuses" not in said and ("no answer" in said or "made no file" in said or "not compiled" in said), said


@pytest.mark.parametrize("target", ["edgetpu", "ethos-u55", "intel-npu", "qualcomm-litert", "aie-npu1"])
def test_a_tool_that_hangs_has_said_nothing(target, monkeypatch, tmp_path):
    code = "import time\ntime.sleep(600)\n"
    for name in ("edgetpu_compiler", "aiecc", "clang++", "apply_plugin_main"):
        fails(tmp_path / name, code)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ethosu_vela.ethosu_child, "__file__", str(fails(tmp_path / "vela.py", code)))
    monkeypatch.setattr(intel_compiler.intel_child, "__file__", str(fails(tmp_path / "intel.py", code)))
    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    monkeypatch.setattr(litert_aot, "_COMPILER", tmp_path / "apply_plugin_main")
    monkeypatch.setattr(tools, "TIMEOUT", 1.0)
    artifact = compiled(target, "int8")
    check(artifact, target)
    assert artifact.label in ("emitted", "own-model") and {r.decided_by for r in artifact.report.rows} == {"table"}
    failed = [r for r in artifact.evidence if r.act == "failed"]
    assert len(failed) == 1 and failed[0].status is None and "longer than 1 s" in failed[0].answer


def other() -> bytes:
    """A file of another model, sound and with the vendors' operators nowhere in it."""
    return tflite.write(Net(1, 4, 4, 2).conv(2).graph())


@pytest.mark.skipif(not installed("ethosu"), reason="needs Vela")
@pytest.mark.parametrize("lie", ["another model", "no file", "no model", "no numbers"])
def test_vela_that_answers_for_another_file(lie, monkeypatch, tmp_path):
    place = tmp_path / "other.tflite"
    place.write_bytes(b"xx" if lie == "no model" else other())
    figures = {"layers": {}, "cycles": 5, "npu_cycles": 5, "macs": 1, "weights": 1, "npu": 3, "host": 0, "memories": {}}
    report = {} if lie == "no numbers" else figures
    code = "import sys, shutil\n" + (
        "" if lie == "no file" else f"shutil.copy({str(place)!r}, sys.argv[2] + '/model_vela.tflite')\n"
    )
    code += f"open(sys.argv[2] + '/report.json', 'w').write({json.dumps(report)!r})\n"
    monkeypatch.setattr(ethosu_vela.ethosu_child, "__file__", str(fails(tmp_path / "vela.py", code)))
    artifact = compiled("ethos-u55", "int8")
    check(artifact, "ethos-u55")
    assert artifact.label == "emitted" and {r.decided_by for r in artifact.report.rows} == {"table"}
    assert "gave no answer" in " ".join(artifact.notes) and list(artifact.files) == ["convnet.tflite"]


@pytest.mark.parametrize("lie", ["another model", "no model"])
def test_compilers_of_tflite_that_answer_for_another_file(lie, monkeypatch, tmp_path):
    model = tmp_path / "other.tflite"
    model.write_bytes(other() if lie == "another model" else b"xx")
    folder = "sys.argv[sys.argv.index('-o') + 1]"
    code = f"import sys, shutil\nshutil.copy({str(model)!r}, {folder} + '/model_edgetpu.tflite')\n"
    fails(tmp_path / "edgetpu_compiler", code + "print('Number of operations that will run on Edge TPU: 3')\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    said = litert_aot.AotResult(model.read_bytes() if lie == "another model" else None, "", 3, 3, 1)
    monkeypatch.setattr(litert_aot, "run_compiler", lambda *_: said)
    for target in ("edgetpu", "qualcomm-litert"):
        artifact = compiled(target, "int8")
        check(artifact, target)
        assert artifact.label == "emitted" and {r.decided_by for r in artifact.report.rows} == {"table"}, target
        assert len(artifact.files) == 1, target


CANNED = """
import os, shutil, sys
place = sys.argv[sys.argv.index("-o") + 1] if "-o" in sys.argv else sys.argv[-1]
given = open(place + "/model.tflite", "rb").read()
if given[4:8] != b"TFL3":
    raise SystemExit(1)
print("Number of operations that will run on Edge TPU: {npu}")
for name in ("model_edgetpu.tflite", "model_vela.tflite"):
    shutil.copy({canned!r}, place + "/" + name)
    if {npu} == 99:
        open(place + "/" + name, "ab").write(os.urandom(16))
open(place + "/report.json", "w").write({figures!r})
"""


@pytest.mark.parametrize(("target", "npu"), [("edgetpu", 1), ("edgetpu", 99), ("ethos-u55", 1)])
def test_a_compiler_that_answers_every_model_with_one_file(target, npu, monkeypatch, tmp_path):
    """The file has this network's inputs and results, and is of other weights."""
    figures = {"layers": {}, "cycles": 5, "npu_cycles": 5, "macs": 1, "weights": 1, "npu": 1, "host": 0, "memories": {}}
    written = nx.compile(quantized(), target="tflite", verify=False)(PARAMS, IMAGE).bytes
    canned = tmp_path / "canned.tflite"
    canned.write_bytes(dispatched(written, {"edgetpu": "edgetpu-custom-op", "ethos-u55": "ethos-u"}[target]))
    code = CANNED.format(npu=npu, canned=str(canned), figures=json.dumps(figures))
    fails(tmp_path / "edgetpu_compiler", code)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ethosu_vela.ethosu_child, "__file__", str(fails(tmp_path / "vela.py", code)))
    artifact = compiled(target, "int8")
    check(artifact, target)
    assert artifact.label == "emitted" and {r.decided_by for r in artifact.report.rows} == {"table"}
    why = "99 operations" if npu == 99 else "same file of another model"
    assert why in artifact.evidence[0].answer and artifact.evidence[0].act == "failed"


def test_an_intel_compiler_that_says_it_compiled_and_leaves_nothing(monkeypatch, tmp_path):
    code = "import sys\nopen(sys.argv[1] + '/report.json', 'w').write('{\"compiled\": true, \"supported\": []}')\n"
    monkeypatch.setattr(intel_compiler.intel_child, "__file__", str(fails(tmp_path / "intel.py", code)))
    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    artifact = compiled("intel-npu", "int8")
    check(artifact, "intel-npu")
    assert artifact.label == "emitted" and {r.decided_by for r in artifact.report.rows} == {"table"}


def test_a_provider_that_names_other_operations():
    graph = Net(1, 8, 8, 4).conv(8).unary("relu").conv(8).graph()
    written = emit(graph, OnnxOptions(17))
    table = place(graph, lambda n: registry.get("onnx").supports(n))
    said = lambda where: {
        (p.device, p.decided_by) for p in onnx_placement.placements(graph, written, where, {}, "NPU", table)
    }
    assert said({}) == said({"another": ("NPU", "Conv")}) == {("unknown", "nobody")}
    first = next(name for name, owner in written.owners.items() if owner is graph.nodes[0])
    # What one operation is said to do, says nothing of the products that are not named.
    rows = onnx_placement.placements(graph, written, {first: ("NPU", "Conv")}, {}, "NPU", table)
    assert [p.device for p in rows] == ["npu", "npu", "unknown"]


@pytest.mark.parametrize("kind", ["fails", "silent", "broken", "another"])
def test_amds_provider_that_fails_or_says_nothing_of_use(kind, monkeypatch, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    real = ort.InferenceSession

    class Session:
        def __init__(self, data, so, providers, provider_options=()):
            if providers != [vitisai.PROVIDER]:
                self.inner = real(data, so, providers=providers)
                return
            if kind == "fails":
                raise RuntimeError("the driver is too old")
            self.inner = real(data, so, providers=["CPUExecutionProvider"])
            folder = Path(provider_options[0]["cache_dir"], provider_options[0]["cache_key"])
            folder.mkdir(parents=True)
            text = {
                "silent": None,
                "broken": "{",
                "another": '{"nodeStat": [{"device": "NPU", "output": ["elsewhere"]}]}',
            }
            if text[kind] is not None:
                (folder / vitisai.REPORT).write_text(text[kind])

        def run(self, names, feeds):
            return self.inner.run(names, feeds)

        def get_providers(self):
            return [vitisai.PROVIDER, "CPUExecutionProvider"]

    monkeypatch.setattr(ort, "get_available_providers", lambda: [vitisai.PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", Session)
    artifact = compiled("amd-xdna", "int8", cache_dir=str(tmp_path))
    check(artifact, "amd-xdna")
    assert artifact.label == "emitted"
    assert not [r for r in artifact.report.rows if r.decided_by == "vendor"]
    if kind != "fails":
        assert artifact.report.unknown == len(artifact.report.rows)


def test_a_simulator_that_answers_for_another_model(monkeypatch):
    """Qualcomm's, which names operations that were never asked about, and gives results of another shape."""

    class Session:
        context = b""

        def __init__(self, *_):
            self.answer = {"where": {"elsewhere": ["QNNExecutionProvider", "Conv"]}, "reasons": {}, "targets": []}
            self.answer |= {"hardware": True, "runtime": "1.0"}

        def __call__(self, arrays):
            return [np.zeros((1, 7), np.float32)]

    monkeypatch.setattr(qnn, "QnnSession", Session)
    monkeypatch.setattr(qnn.QualcommHtp, "available", lambda self: ("vendor-simulator", ""))
    artifact = compiled("qualcomm-htp", "int8")
    assert artifact.deviation is None and "other shapes" in " ".join(artifact.notes)
    artifact = compiled("qualcomm-htp", "int8", verify=False)
    check(artifact, "qualcomm-htp")
    assert artifact.label == "emitted" and artifact.report.on_npu == 0
    with pytest.raises(ExecutionError):
        artifact.run(IMAGE)
    assert artifact.label == artifact.report.label == "emitted"


def test_what_an_adapter_does_wrong_is_not_its_tools_word(monkeypatch):
    """A mistake of ours in the middle of an adapter is an error or a note, and no vendor refuses anything."""

    def broken(*_, **__):
        raise TypeError("our own mistake")

    monkeypatch.setattr(ethosu_vela, "_reported", broken)
    monkeypatch.setattr(edgetpu, "left_for_host", broken)
    monkeypatch.setattr(intel_compiler, "words", broken)
    for target in ("ethos-u55", "edgetpu", "intel-npu"):
        artifact = compiled(target, "int8")
        assert "refuses" not in " ".join(artifact.notes)
        assert not [r for r in artifact.report.rows if r.decided_by == "vendor" and r.device == "host"]


def test_a_file_that_vela_moves_operators_in_is_read_right():
    written = [("SELECT_V2", ["select_1"]), ("CONV_2D", ["block/conv"])]
    assert recognized(["select_1/Transpose/Transpose", "block/conv"], written) == ({"select_1", "block/conv"}, [])
    assert recognized(["block", "other"], written) == (set(), ["block", "other"])
