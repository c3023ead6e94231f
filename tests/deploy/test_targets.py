"""`nx.targets()`: every target, how far each can be taken here and why no further; and nothing is imported for it."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import LABELS
from nxjax.deploy import Target, Targets
from tests.deploy.test_artifact import shown

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "tflite", "ethos-u55", "ethos-u65", "ethos-u85", "ethos-n", "edgetpu", "qualcomm-htp", "qualcomm-litert",
    "mediatek-apu", "samsung-exynos", "google-tensor", "intel-npu", "openvino-cpu", "openvino-gpu", "apple-ane",
    "amd-xdna", "rockchip", "onnx", "stablehlo", "habana-gaudi", "groq", "graphcore-popart",
    "tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x",
    "ipu-gc2", "ipu-gc200", "ipu-bow", "poplar",
}  # fmt: skip
VENDORS = [
    "jax", "jaxlib", "libtpu", "openvino", "onnx", "onnxruntime", "onnxruntime_qnn", "ai_edge_litert", "ethosu",
    "coremltools", "flatbuffers", "safetensors", "scipy", "google.protobuf", "matplotlib", "tqdm", "sklearn", "torch",
    "tensorflow",
]  # fmt: skip


def test_every_target_is_listed_once_with_what_it_is():
    found = nx.targets()
    assert isinstance(found, Targets) and all(isinstance(t, Target) for t in found)
    names = [t.name for t in found]
    assert names == registry.names() and len(set(names)) == len(names)
    assert set(names) >= EXPECTED
    for target in found:
        assert target.title and target.format and target.precision, target.name
        assert target.label in LABELS, target.name
        assert set(target.precision) <= {"int8", "int16x8", "float16", "float32", "float64", "bfloat16"}, target.name


def test_what_is_not_on_the_chip_says_why():
    for target in nx.targets():
        assert target.reason or target.label == "hardware", target.name
        assert not target.reason.endswith("."), target.name
    labels = {t.name: t.label for t in nx.targets()}
    if importlib.util.find_spec("ai_edge_litert"):
        assert labels["tflite"] == "host"
    if importlib.util.find_spec("ethosu"):
        assert labels["ethos-u55"] == "vendor-compiled"
    # There are no such chips in a machine of this kind, nor runtimes that could pretend to be.
    assert all(labels[n] == "emitted" for n in ("ethos-n", "groq", "habana-gaudi"))


def test_extras_that_targets_name_exist():
    text = (ROOT / "pyproject.toml").read_text()
    extras = set(re.findall(r"^(\w[\w-]*) = \[", text.split("[project.optional-dependencies]")[1], re.MULTILINE))
    for target in nx.targets():
        assert not target.extra or target.extra in extras, f"{target.name} names {target.extra}"


def test_documentation_lists_them_all():
    page = (ROOT / "docs" / "targets.md").read_text()
    for name in EXPECTED:
        assert f"`{name}" in page, f"{name} is not in docs/targets.md"


def test_text_and_html_are_tables_of_all():
    found = nx.targets()
    lines, page = repr(found).splitlines(), shown(found._repr_html_())
    assert len(lines) == len(found) + 1 and lines[0].split() == ["target", "chip", "format", "here", "because"]
    for target, line in zip(found, lines[1:], strict=True):
        assert line.startswith(target.name) and target.label in line and line.endswith(target.reason)
        assert target.title in page and target.reason in page
    hostile = Targets([Target("<b>", "<script>", "f", (), "emitted", "<i>", "")])
    assert "<script>" not in hostile._repr_html_() and "&lt;script&gt;" in hostile._repr_html_()


CHEAP = """
import json, sys, time
start = time.process_time()
import nxjax as nx
imported = time.process_time() - start
before = sorted(m for m in sys.modules if m.startswith("nxjax.deploy") or m.startswith("nxjax.vendors"))
start = time.process_time()
names = [t.name for t in nx.targets()]
listed = time.process_time() - start
nx.compile(lambda x: x, target="ethos-u55")
print(json.dumps([imported, listed, names, before, [m for m in VENDORS if m in sys.modules]]))
"""


def test_listing_imports_no_vendor_package_and_is_quick():
    code = f"VENDORS = {VENDORS!r}\n{CHEAP}"
    imported, listed, names, before, loaded = json.loads(
        subprocess.check_output([sys.executable, "-c", code], text=True)
    )
    assert loaded == [], "a vendor's package was imported for a list"
    assert before == [], "importing nxjax imports what deploys"
    assert set(names) >= EXPECTED
    # Of the processor, since the machine may be busy; what is meant is no import of hundreds of milliseconds.
    assert imported < 5 and listed < 5


MISSING = """
import json, sys
from importlib.machinery import PathFinder

present = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in {absent!r} else present(name, *rest)
import nxjax as nx
import nxjax.numpy as jnp
rows = {{t.name: (t.label, t.reason, t.extra) for t in nx.targets()}}
errors = {{}}
for name in rows:
    try:
        artifact = nx.compile(nx.nn.relu, target=name)(jnp.ones((1, 4)))
        errors[name] = ["", artifact.label, list(artifact.files)]
    except nx.errors.MissingExtraError as error:
        errors[name] = [error.fix, "", []]
written = nx.compile(nx.nn.relu, target="tflite")(jnp.ones((1, 4)))
loaded = [nx.deploy.load(written.bytes).run(jnp.full((1, 4), -2.0)).tolist()]
try:
    nx.deploy.load(b"\\x08\\x09\\x3a\\x00")
except nx.errors.MissingExtraError as error:
    loaded.append(error.fix)
print(json.dumps([rows, errors, loaded]))
"""


@pytest.fixture(scope="module")
def bare():
    """What a machine says on which only nxjax itself is installed."""
    absent = sorted({name.split(".")[0] for name in VENDORS})
    done = subprocess.run([sys.executable, "-c", MISSING.format(absent=absent)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def reachable(name: str) -> str:
    """The label without any vendor's package: our models of IPUs and of AMD's array need none."""
    return "own-model" if name.startswith(("ipu-", "aie-")) else "emitted"


def test_without_any_vendors_package_all_are_listed_and_say_what_to_install(bare):
    rows, *_ = bare
    assert set(rows) >= EXPECTED
    for name, (label, reason, _) in rows.items():
        assert label == reachable(name) and reason, name
    assert "nxjax[litert]" in rows["tflite"][1]


def test_without_any_vendors_package_files_are_written_or_the_extra_is_named(bare):
    rows, outcomes, _ = bare
    for name, (fix, label, files) in outcomes.items():
        if fix:
            assert re.search(r"pip install ['\"]nxjax\[[\w-]+\]['\"]", fix), f"{name}: {fix}"
            assert rows[name][2] in fix, f"{name} is brought by another extra than it names"
        else:
            assert label == reachable(name) and files, name
    # TFLite is written without any package.
    assert all(not outcomes[n][0] for n in ("tflite", "edgetpu", "ethos-n"))


def test_without_any_vendors_package_files_are_loaded_or_the_extra_is_named(bare):
    *_, (result, fix) = bare
    assert result == [[0, 0, 0, 0]]
    assert "nxjax[onnx]" in fix


ONE_OF_EACH = (
    "tflite", "ethos-u55", "edgetpu", "qualcomm-htp", "qualcomm-litert", "intel-npu", "amd-xdna", "apple-ane", "onnx",
    "stablehlo",
)  # fmt: skip


@pytest.mark.parametrize("target", ONE_OF_EACH)
def test_every_option_is_in_the_documentation(target: str):
    page = (ROOT / "docs/targets.md").read_text().split("## Options")[1].split("\n## ")[0]
    with pytest.raises(nx.errors.ParameterError, match="option") as caught:
        nx.compile(nx.nn.relu, target=target, no_such_option=1)(np.ones((1, 4), np.float32))
    known = re.findall(r"\w+", str(caught.value.expected).split(":")[0])
    assert known and all(f"`{name}`" in page for name in known), known
