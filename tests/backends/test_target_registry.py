"""Targets are found by module and by entry point; a package that brings one needs nothing but to be installed."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nxjax as nx
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import digests
from nxjax.backends.target import Build, NpuTarget, Runner
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.placement import YES, Cost, Placement

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def example() -> tuple[str, str]:
    """The complete target of the page: its module, and what is then done with it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (module,) = [b for b in blocks if "class TinyChip" in b]
    (use,) = [b for b in blocks if 'target="tiny-chip"' in b]
    return module, "import nxjax as nx\nimport nxjax.numpy as jnp\n" + use


def installed(site: Path, entries: str, **modules: str) -> None:
    """A package as an installer leaves it: modules, and metadata beside them."""
    site.mkdir(exist_ok=True)
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
    info = site / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[nxjax.targets]\n{entries}\n")


def run(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)


def test_the_plug_in_of_the_page_is_installed_found_and_compiled_for(tmp_path):
    module, use = example()
    assert '[project.entry-points."nxjax.targets"]\ntiny-chip = "tiny_chip:TinyChip"' in PAGE.read_text()
    installed(tmp_path / "site", "tiny-chip = my_package:TinyChip", my_package=module)
    code = f"""
{use}
import json, sys
row = next(t for t in nx.targets() if t.name == "tiny-chip")
rounded = nx.compile(quantized, target="TinyChip")(p, x)
print(json.dumps([row.title, row.label, row.reason, artifact.bytes.decode(), list(artifact.files), str(artifact.report),
                  artifact.cost["weights"].basis, rounded.target, artifact.run(x).tolist()]))
"""
    done = run(tmp_path / "site", code)
    assert done.returncode == 0, done.stderr
    *shown, answer = done.stdout.splitlines()
    assert shown == ["1.0 0", "['float weights']"]
    title, label, reason, data, files, report, basis, name, result = json.loads(answer)
    assert (title, label, reason) == ("Tiny chip", "emitted", "there is no such chip")
    assert files == ["model.tiny"] and [row[0] for row in json.loads(data)] == ["fully_connected"]
    assert "tiny-chip (emitted): 1 of 1 ops and 100.0%" in report
    assert (basis, name) == ("model", "tiny-chip")
    assert result == [[pytest.approx(4.0, abs=0.05)] * 2]


def test_without_the_package_there_is_no_such_target():
    assert "tiny-chip" not in registry.names()
    with pytest.raises(ParameterError, match="no such target"):
        nx.compile(lambda x: x, target="tiny-chip")


@pytest.mark.parametrize(
    ("value", "module", "says"),
    [
        ("my_package:Thing", "class Thing: pass", "entry point 'bad': my_package:Thing"),
        ("my_package:thing", "thing = 3", "entry point 'bad': my_package:thing"),
        ("my_package:Absent", "", "entry point 'bad': my_package:Absent"),
        ("my_package:Thing", "import nonsense_module", "entry point 'bad': my_package:Thing"),
        ("my_package:Thing", "1 / 0", "entry point 'bad': my_package:Thing"),
    ],
    ids=["class", "value", "absent", "import", "raises"],
)
def test_a_package_that_is_broken_is_named_and_takes_nothing_else_with_it(tmp_path, value, module, says):
    installed(tmp_path / "site", f"bad = {value}", my_package=module)
    code = """
import warnings
import nxjax as nx
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert "tflite" in [t.name for t in nx.targets()]
    assert nx.compile(lambda x: x * 2, target="tflite")(nx.numpy.ones(3)).run(nx.numpy.ones(3)).tolist() == [2, 2, 2]
print(*(str(w.message) for w in caught))
"""
    done = run(tmp_path / "site", code)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_families_are_of_targets():
    assert {name for family in registry._FAMILIES.values() for name in family} <= {*registry.names()}
    assert not [word for word in (*registry._FAMILIES, *registry._DEVICES) if registry._spelled(word)]


@pytest.mark.parametrize("spelled", ["ethos-u55", "EthosU55", "ETHOS_U55", "ethosu55", "Ethos-U55"])
def test_names_are_found_however_they_are_spelled(spelled):
    assert registry.get(spelled).name == "ethos-u55"
    assert registry.get(spelled) is registry.get("ethos-u55")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ethos-u56", "'ethos-u55'"),
        ("tfllite", "did you mean 'tflite'"),
        ("qualcom-htp", "did you mean 'qualcomm-htp'"),
        (["tflite"], "did you mean 'tflite'"),
        ("hailo", "nx.targets() lists them"),
        ("coral", "did you mean 'edgetpu'?"),
        ("coral-tpu", "did you mean 'edgetpu'?"),
        ("Ryzen-AI", "did you mean 'amd-xdna'?"),
        ("android", "did you mean 'tflite'"),
        ("tensorrt", 'nx.jit(f, device="gpu")'),
        ("tpu", "'tpu-v5e'"),
        ("npu", "'ethos-u55' or 'edgetpu'"),
        ("Apple", "did you mean 'apple-ane'?"),
        ("intel", "did you mean 'intel-npu'"),
        ("qualcomm", "did you mean 'qualcomm-htp'"),
        ("amd", "did you mean 'amd-xdna'?"),
        ("xdna", "did you mean 'amd-xdna'?"),
        ("RK3588", "did you mean 'rockchip-rk3588'?"),
        ("mediatek", "did you mean 'mediatek-apu'?"),
        ("arm", "'ethos-u55'"),
        ("graphcore", "'ipu-bow'"),
        ("gpu", 'nx.jit(f, device="gpu")'),
        ("cuda", 'nx.jit(f, device="gpu")'),
        ("cpu", 'nx.jit(f, device="cpu")'),
        (7, "nx.targets() lists them"),
    ],
)
def test_a_name_that_is_none_is_answered_with_the_nearest_ones(name, near):
    with pytest.raises(ParameterError, match="no such target") as caught:
        nx.compile(lambda x: x, target=name)
    assert near in caught.value.fix
    with pytest.raises(ParameterError, match="no such target"):
        nx.explain(lambda x: x, target=name)
    assert "ethos-u55" in str(caught.value.expected)


def test_registering_replaces_what_is_known_by_that_name(monkeypatch):
    before = dict(registry._classes())

    class One(NpuTarget):
        name, title, format = "test-chip", "one", "none"
        available = supports = build = lambda self, *args: None

    class Two(One):
        title = "two"

    try:
        registry.register(One)
        assert registry.get("test-chip").title == "one"
        registry.register(Two)
        assert registry.get("test-chip").title == "two"
        with pytest.raises(ParameterError, match="no target"):
            registry.register(int)
    finally:
        registry._classes().clear()
        registry._classes().update(before)
    assert "test-chip" not in registry.names()


BOASTS = Build({"f": b"x"}, [Placement("add", "", "npu", decided_by="vendor")])


@pytest.mark.parametrize("build", [Build({}, []), BOASTS])
def test_what_a_target_gives_is_looked_at(monkeypatch, build):
    class Careless(NpuTarget):
        name, title, format = "careless", "a target", "none"
        available = supports = lambda self, *args: None

        def build(self, graph, options):
            return build

    monkeypatch.setitem(registry._classes(), "careless", Careless)
    with pytest.raises(
        ExecutionError, match=r"careless: the target's adapter is at fault(.|\n)*(no files|no record of that tool)"
    ):
        nx.compile(lambda x: x * 2, target="careless")(nx.numpy.ones(3))


class Sound(NpuTarget):
    """A target with nothing wrong, from which each of the following differs in one thing."""

    name, title, format = "sound", "a target", "none"

    def available(self):
        return "emitted", "there is no such chip"

    def supports(self, node):
        return YES

    def build(self, graph, options):
        run = lambda xs: interpret(graph, list(xs))
        build = Build({"model.none": b"model"}, self.placed(graph), runner=Runner(run, "the reference"))
        self.spoil(build)
        return build

    def spoil(self, build):
        pass


def raises(error):
    def method(*args):
        raise error

    return method


def spoiled(change):
    return {"spoil": lambda self, build: change(build)}


def rows(build, **fields):
    build.placements = [replace(r, **fields) for r in build.placements]


WRONG = {
    "supports raises": ({"supports": raises(KeyError("rule"))}, "KeyError: 'rule'"),
    "supports gives no verdict": ({"supports": lambda self, node: True}, "'bool' object has no attribute 'ok'"),
    "build raises": ({"build": raises(ZeroDivisionError("a"))}, "ZeroDivisionError: a"),
    "build ends the program": ({"build": raises(SystemExit(0))}, "SystemExit: 0"),
    "no build": ({"build": lambda *args: None}, "NoneType, not a Build"),
    "text as a file": (spoiled(lambda b: b.files.update(a="text")), "str as the file 'a'"),
    "a row too few": (spoiled(lambda b: b.placements.pop()), "placements of mul\n"),
    "a row too many": (spoiled(lambda b: b.placements.append(b.placements[0])), "placements of mul, exp, mul"),
    "rows of other ops": (spoiled(lambda b: rows(b, op="sort")), "placements of sort, sort"),
    "an unheard device": (spoiled(lambda b: rows(b, device="moon")), "a placement on 'moon'"),
    "an unheard source": (spoiled(lambda b: rows(b, decided_by="me")), "a placement decided by 'me'"),
    "an unheard basis": (spoiled(lambda b: b.cost.add("cycles", 1, "", "guess")), "cycles with the basis 'guess'"),
    **{
        f"a run by the {by} that nothing compared": (
            spoiled(lambda b, by=by: b.record("ran", by, "a tool", took=digests(b.files))), "a run by a tool"
        )
        for by in ("chip", "vendor-simulator")
    },
}  # fmt: skip


@pytest.mark.parametrize(("methods", "says"), WRONG.values(), ids=WRONG.keys())
def test_an_adapter_at_fault_is_named(monkeypatch, methods, says):
    function, x = lambda x: nx.numpy.exp(x * 2), nx.numpy.ones(3)
    monkeypatch.setitem(registry._classes(), "sound", Sound)
    assert nx.compile(function, target="sound")(x).label == "emitted"
    monkeypatch.setitem(registry._classes(), "sound", type("Spoiled", (Sound,), methods))
    for strict in (False, True):
        with pytest.raises(ExecutionError, match="sound: the target's adapter is at fault") as caught:
            nx.compile(function, target="sound", strict=strict)(x)
        assert says in str(caught.value)
    with pytest.raises(ExecutionError, match="sound: the target's adapter is at fault"):
        nx.explain(function, target="sound")(x)


@pytest.mark.parametrize(
    ("available", "says"),
    [
        (raises(OSError("no driver")), "OSError: no driver"),
        (raises(SystemExit("stop")), "SystemExit: stop"),
        (lambda self: None, "TypeError"),
        (lambda self: ("silicon", "it is"), "no such label: 'silicon'"),
    ],
    ids=["raises", "ends", "none", "label"],
)
def test_a_target_that_cannot_say_what_is_here_leaves_the_others_listed(monkeypatch, available, says):
    monkeypatch.setitem(registry._classes(), "sound", type("Silent", (Sound,), {"available": available}))
    found = nx.targets()
    assert found["tflite"].label == "host" or found["tflite"].reason
    assert found["sound"].label == "emitted" and says in found["sound"].reason


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ('name, title, format = "tflite", "mine", "none"', "litert.target has a target 'tflite' already"),
        ('title, format = "mine", "none"', "has no name"),
        ('name, title, format = "mine", "", ""', "has no title and no format"),
        ('name, title, format, chips = "mine", "mine", "none", ("a chip",)', "chips of mine"),
    ],
)
def test_a_target_that_takes_a_name_or_has_none_is_left_out(tmp_path, attributes, says):
    text = f"""
from nxjax.backends.target import NpuTarget

class Mine(NpuTarget):
    {attributes}
    available = supports = build = lambda self, *args: None
"""
    installed(tmp_path / "site", "mine = my_package:Mine", my_package=text)
    code = """
import warnings
import nxjax as nx
from nxjax.vendors import chips
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert nx.targets()["tflite"].title != "mine" and "mine" not in [t.name for t in nx.targets()]
    chips.find()
print(*(str(w.message) for w in caught))
"""
    done = run(tmp_path / "site", code)
    assert done.returncode == 0, done.stderr
    assert "entry point 'mine': my_package:Mine is left out of the targets" in done.stdout and says in done.stdout


def test_figures_that_no_run_can_take_are_not_believed():
    cost = Cost()
    for value in (-1.0, float("nan"), float("inf"), -float("inf")):
        cost.add("latency", value, "s", "vendor-estimate")
    assert not cost and cost.time is None
    cost.add("weights", 0, "bytes", "model")
    assert cost["weights"].value == 0


def test_what_tools_say_moves_no_terminal_and_adds_no_line(monkeypatch):
    evil = "\x1b[31mred\nevidence: chip ran <script>"

    def boast(build):
        rows(build, device="host", reason=evil)
        build.notes.append(evil)

    monkeypatch.setitem(registry._classes(), "sound", type("Loud", (Sound,), spoiled(boast)))
    report = nx.explain(lambda x: x * 2, target="sound")(nx.numpy.ones(3))
    assert "note: [31mred evidence: chip ran <script>" in str(report)
    for text in (str(report), report._repr_html_()):
        assert "\x1b" not in text and "\nevidence" not in text
    assert "<script>" not in report._repr_html_()


def test_targets_that_come_in_forms():
    assert registry.get("tpu-v4").name == "tpu-v4" and registry.get("tpu7x").name == "tpu-v7x"
    made = registry.get("TPU_v4:2x2x1")
    assert made.name == "tpu-v4:2x2x1" and made is registry.get("TPU_v4:2x2x1") and made is not registry.get("tpu-v4")
    assert [t.forms[0] for t in nx.targets() if t.name == "tpu-v5e"] == ["1x1"]
    with pytest.raises(ParameterError, match="one form only"):
        registry.get("ethos-u55:256")
    with pytest.raises(ParameterError, match="no such target"):
        registry.get("tpu-v44:2x2x1")


QUANTIZER = '''
import numpy as np
from nxjax.backends.evidence import digests
from nxjax.backends.target import Build, NpuTarget, Runner, only
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.placement import Verdict


class SelfQuantizing(NpuTarget):
    """A vendor whose compiler takes floats and calibration data, and finds the grids itself."""

    name, title, format, precision, quantizes = "own-grids", "Own grids", "none", ("int8",), True

    def available(self):
        return "vendor-compiled", ""

    def supports(self, node):
        return Verdict(True)

    def build(self, graph, options):
        only(self.name, options, ("calibrate",))
        batches = options["calibrate"]
        assert all(t.grid is None for t in graph.tensors())
        scale = max((float(np.abs(x).max()) for batch in batches for x in batch), default=1.0) / 127
        snapped = lambda x: (np.round(x / scale) * scale).astype(np.float32)
        run = lambda inputs: interpret(graph, [snapped(x) for x in inputs])
        build = Build({"model.bin": repr((scale, len(batches))).encode()}, self.placed(graph))
        took = digests(build.files)
        build.record("compiled", "vendor-compiler", "own compiler", took=took, answer=f"{len(batches)} batches")
        build.runner = Runner(run, "own simulator", "vendor-simulator", took)
        return build
'''


def test_a_vendor_that_quantizes_by_itself_is_a_package_outside_of_the_tree(tmp_path):
    installed(tmp_path / "site", "own-grids = my_package:SelfQuantizing", my_package=QUANTIZER)
    code = """
import nxjax as nx, nxjax.numpy as jnp
f = lambda p, x: nx.nn.relu(x @ p["w"])
p, x = {"w": jnp.ones((4, 2))}, jnp.arange(4.0)[None]
made = nx.compile(f, target="own-grids")(p, x)
assert made.label == "vendor-simulator" and made.bytes == b"(0.007874015748031496, 0)", made.bytes
made = nx.compile(f, target="own-grids", calibrate=[(p, x), (x * 127 / 3,), x])(p, x)
assert made.bytes == b"(1.0, 3)" and made.evidence[0].answer == "3 batches" and made.deviation.exact
assert nx.explain(f, target="own-grids", calibrate=[x])(p, x).share == 1.0
coarse = nx.compile(f, target="own-grids", calibrate=[x * 100])(p, x)
assert not coarse.deviation.exact and coarse.deviation.sqnr < 20
zeros = nx.compile(f, target="own-grids", calibrate=[x * 1000])(p, x)
assert zeros.deviation is None and zeros.label == "vendor-compiled"
for wrong in (3, "x", [(p, x, x)], [x[0]]):
    try:
        nx.compile(f, target="own-grids", calibrate=wrong)(p, x)
    except nx.errors.ParameterError as error:
        assert "calibrate" in str(error)
    else:
        raise AssertionError(wrong)
q = nx.quantize(f, "int8", calibrate=[(p, x)])
try:
    nx.compile(q, target="own-grids")(p, x)
except nx.errors.ParameterError as error:
    assert "has its own quantizer" in str(error)
else:
    raise AssertionError
try:
    nx.compile(f, target="tflite", calibrate=[x])(p, x)
except nx.errors.ParameterError as error:
    print("well")
"""
    done = run(tmp_path / "site", code)
    assert done.stdout == "well\n", done.stderr
