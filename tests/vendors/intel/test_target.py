"""Intel's targets: the host stands in for absent devices and says so; int8 is proved to run in int8."""

import types
from pathlib import Path

import numpy as np
import openvino
import pytest

from nxjax.backends import tools
from nxjax.errors import ExecutionError, ParameterError, ShapeError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.trace import dtypes
from nxjax.vendors.apple import table as apple_table
from nxjax.vendors.intel import compiler as intel_compiler
from nxjax.vendors.intel import openvino_run
from nxjax.vendors.intel import table as intel_table
from nxjax.vendors.intel import target as intel
from nxjax.vendors.intel.table import rule
from nxjax.vendors.intel.target import TARGETS, IntelNpu, OpenVinoCpu, OpenVinoGpu

F32, I8, I32 = np.dtype("float32"), np.dtype("int8"), np.dtype("int32")
NPU = "NPU" in openvino.Core().available_devices or bool(intel_compiler.interpreter())
no_npu = pytest.mark.skipif(NPU, reason="this machine can compile for the NPU")
with_npu = pytest.mark.skipif(not NPU, reason="no Intel NPU and no NPU compiler")


def net(quantized=True, seed=0):
    """quantize -> conv -> depthwise -> fully connected -> dequantize, or the same in float."""
    rng = np.random.default_rng(seed)
    x = Tensor("x", (1, 12, 12, 3), F32)
    nodes, h = [], x

    def add(op, name, shape, operands, attrs, grid):
        nonlocal h
        h = Tensor(name, shape, I8 if quantized else F32, grid if quantized else None)
        nodes.append(Node(op, operands, (h,), attrs, name=name))

    def weights(name, shape, axis):
        stored = rng.integers(-63, 64, shape).astype(np.int8)
        scales = rng.uniform(0.5, 1.0, shape[axis]).astype(np.float32) / 200
        grid = Grid(I8, tuple(map(float, scales)), 0, axis)
        if quantized:
            b = rng.integers(-500, 500, shape[axis]).astype(np.int32)
            return Tensor(name + "/w", shape, I8, grid, stored), Tensor(name + "/b", b.shape, I32, None, b)
        b = rng.standard_normal(shape[axis]).astype(np.float32)
        return Tensor(name + "/w", shape, F32, None, grid.dequantize(stored)), Tensor(
            name + "/b", b.shape, F32, None, b
        )

    if quantized:
        add("quantize", "q", x.shape, (x,), {}, Grid(I8, 0.03, 2))
    same = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1)), "activation": "relu"}
    add("conv_2d", "conv", (1, 12, 12, 16), (h, *weights("conv", (16, 3, 3, 3), 0)), same | {"groups": 1},
        Grid(I8, 0.03, -128))  # fmt: skip
    add("depthwise_conv_2d", "dw", (1, 12, 12, 16), (h, *weights("dw", (1, 3, 3, 16), 3)), same, Grid(I8, 0.03, -128))
    add("reshape", "flat", (1, 2304), (h,), {"shape": (1, 2304)}, h.grid)
    add("fully_connected", "fc", (1, 10), (h, *weights("fc", (10, 2304), 0)), {"activation": None}, Grid(I8, 0.5, 3))
    if quantized:
        y = Tensor("y", (1, 10), F32)
        nodes.append(Node("dequantize", (h,), (y,), name="y"))
        h = y
    return NpuGraph("net", [x], [h], nodes).check()


IntelNpu3720 = next(t for t in TARGETS if t.name == "intel-npu-3720")
X = np.random.default_rng(9).standard_normal((1, 12, 12, 3)).astype(np.float32)


@pytest.mark.parametrize("target", [OpenVinoCpu, OpenVinoGpu, IntelNpu, IntelNpu3720])
def test_float_and_int8_run_and_mean_what_the_graph_means(target):
    for quantized, steps in ((False, 0), (True, 2)):
        graph = net(quantized)
        made = target().build(graph, {})
        (expected,) = interpret(graph, [X])
        (got,) = made.run([X])
        assert got.dtype == F32
        if quantized:
            # Three products, each one step off at most; the last one's step is 0.5.
            assert np.abs(got - expected).max() <= steps * 0.5 + 1e-6
        else:
            np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-4)
        assert len(made.placements) == len(graph.nodes)
        assert "CPU plugin on the host" in made.runs_on or made.label == "hardware"


def test_the_host_says_that_int8_ran_in_int8():
    made = OpenVinoCpu().build(net(), {"measure": True})
    assert "OpenVINO's CPU plugin ran 3 of 3 int8 products in int8 kernels" in made.notes
    assert made.label == "host"
    assert all(p.device == "host" and "CPU" in p.reason and p.decided_by == "vendor" for p in made.placements)
    assert 0 < made.cost["latency"].value < 1 and made.cost["latency"].basis == "measured"
    assert not [n for n in OpenVinoCpu().build(net(False), {}).notes if "int8" in n]


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_dense_layers_without_bias_in_a_row(rows):
    # Compiled in one piece, the plugin gives any value for them.
    rng = np.random.default_rng(rows)
    grid, w_grid = Grid(I8, 0.02, 3), Grid(I8, 0.004)
    x = h = Tensor("x", (rows, 16), I8, grid)
    nodes = []
    for i, (k, n) in enumerate([(16, 24), (24, 8), (8, 4)]):
        w = Tensor(f"w{i}", (n, k), I8, w_grid, rng.integers(-63, 64, (n, k)).astype(np.int8))
        y = Tensor(f"y{i}", (rows, n), I8, grid)
        nodes.append(Node("fully_connected", (h, w, None), (y,), {"activation": None}, name=f"y{i}"))
        h = y
    graph = NpuGraph("net", [x], [h], nodes).check()
    stored = rng.integers(-128, 128, (rows, 16)).astype(np.int8)
    (got,) = OpenVinoCpu().build(graph, {}).run([stored])
    (expected,) = interpret(graph, [stored])
    assert np.abs(got.astype(int) - expected).max() <= 2


def test_a_product_that_does_not_run_in_int8_is_named():
    graph = net()
    notes = intel.host_notes(graph, {1: "u8", 2: "f32", 4: "u8"})
    assert "2 of 3" in notes[0]
    assert notes[1] == "on the host 1 ran in f32: depthwise_conv_2d dw"
    merged = intel.host_notes(graph, {1: "u8"})
    assert "2 were merged" in merged[1] and "fully_connected fc" in merged[1]


def test_a_cpu_without_vnni_is_named(monkeypatch):
    monkeypatch.setattr(intel, "has_vnni", lambda: False)
    assert any("saturate" in n for n in OpenVinoCpu().build(net(), {}).notes)
    assert not any("saturate" in n for n in OpenVinoCpu().build(net(False), {}).notes)


def test_vnni_is_read_from_the_system(tmp_path, monkeypatch):
    for flags, expected in (("flags : avx512f avx512_vnni", True), ("flags : avx2", False), ("Features : neon", None)):
        (tmp_path / "cpuinfo").write_text(flags + "\n")
        monkeypatch.setattr(openvino_run, "Path", lambda _: tmp_path / "cpuinfo")
        assert openvino_run.has_vnni() is expected


@no_npu
def test_without_an_npu_the_published_rules_place():
    made = IntelNpu().build(net(), {})
    assert made.label == "emitted"
    assert {(p.device, p.decided_by) for p in made.placements} == {("npu", "table")}
    assert any("no Intel NPU" in n for n in made.notes)
    assert list(made.files) == ["net.xml", "net.bin"]
    assert IntelNpu().available()[0] == "emitted"


@with_npu
def test_with_a_compiler_it_decides():
    for target in (IntelNpu, IntelNpu3720):
        made = target().build(net(), {})
        assert made.label in ("vendor-compiled", "hardware")
        assert next(iter(made.files)) == "net.blob"
        assert made.files["net.blob"][:4] == b"\x7fELF"
        assert {(p.device, p.decided_by) for p in made.placements} == {("npu", "vendor")}
        assert made.cost["chip time"].basis == "vendor-estimate"
    counts = IntelNpu().build(net(), {}).cost
    assert counts["integer operations"].value > 10 * counts["float operations"].value


@with_npu
def test_what_the_compiler_refuses_is_named():
    shape = (1, 2, 2, 2, 2, 2, 2)
    x, y, z = (Tensor(n, shape, F32) for n in "xyz")
    nodes = [Node("relu", (x,), (y,), name="fine"), Node("add", (y, x), (z,), {"activation": None}, name="wide")]
    made = IntelNpu().build(NpuGraph("g", [x], [z], nodes), {})
    assert made.label == "emitted" and made.evidence[-1].act == "loaded" and made.evidence[0].act == "refused"
    assert made.placements[1].device == "host" and "Intel's compiler" in made.placements[1].reason
    assert any("refuses the model" in n for n in made.notes)
    assert made.run is not None


def test_an_absent_gpu_is_said():
    if "GPU" in openvino.Core().available_devices:
        pytest.skip("this machine has a GPU")
    made = OpenVinoGpu().build(net(), {})
    assert made.label == "emitted" and any("no GPU" in n for n in made.notes)


def test_what_the_host_cannot_run_is_emitted(monkeypatch):
    def refuse(*_):
        raise ExecutionError("openvino: the CPU plugin refuses the model", got="no kernel")

    monkeypatch.setattr(intel, "open_session", refuse)
    if not NPU:
        made = IntelNpu().build(net(), {})
        assert made.label == "emitted" and made.run is None and any("no kernel" in n for n in made.notes)
    with pytest.raises(ExecutionError):
        OpenVinoCpu().build(net(), {})


def test_a_plugin_that_does_not_say_what_it_runs_runs(monkeypatch):
    def fails(self):
        raise RuntimeError("CPU plugin does not support i16 for use with oneDNN")

    monkeypatch.setattr(openvino.CompiledModel, "get_runtime_model", fails)
    made = OpenVinoCpu().build(net(), {})
    assert made.runner is not None
    assert any("unknown in which precision" in note and "does not support i16" in note for note in made.notes)


def test_options_are_checked():
    for bad in ({"speed": 1}, {"config": "fast"}, {"platform": "9999"}, {"power": "max"}, {"hint": "fast"}):
        with pytest.raises(ParameterError):
            IntelNpu().build(net(), bad)
    with pytest.raises(ParameterError, match="3720"):
        IntelNpu3720().build(net(), {"platform": "4000"})
    with pytest.raises(ExecutionError, match="refuses"):
        OpenVinoCpu().build(net(), {"config": {"NUM_STREAMS": "none"}})
    with pytest.raises(ParameterError, match="intel-npu"):
        OpenVinoCpu().build(net(), {"power": "turbo"})


def test_hints_reach_the_plugin():
    made = OpenVinoCpu().build(net(), {"hint": "throughput"})
    assert "THROUGHPUT" in str(made.run.compiled.get_property("PERFORMANCE_HINT"))


def test_power_is_for_the_chip():
    notes = IntelNpu().build(net(), {"power": "turbo", "hint": "latency"}).notes
    # Without the chip the mode is not applied, and nothing says that it was.
    assert any(n.startswith("power turbo: ") for n in notes)


def test_arguments_are_checked():
    made = OpenVinoCpu().build(net(), {})
    with pytest.raises(ShapeError):
        made.run([X[:, :5]])
    with pytest.raises(ShapeError):
        made.run([])
    with pytest.raises(TypeError):
        made.run([X.astype(np.float64)])


def test_results_are_the_callers_own():
    made = OpenVinoCpu().build(net(False), {})
    (first,) = made.run([X])
    kept = first.copy()
    made.run([X + 1])
    np.testing.assert_array_equal(first, kept)


def test_integer_ends():
    grid = asymmetric(-1, 1)
    x, y = Tensor("x", (4, 8), I8, grid), Tensor("y", (4, 8), I8, grid)
    made = OpenVinoCpu().build(NpuGraph("g", [x], [y], [Node("relu", (x,), (y,))]), {})
    stored = np.arange(-16, 16).astype(np.int8).reshape(4, 8)
    (got,) = made.run([stored])
    assert got.dtype == I8
    np.testing.assert_array_equal(got, np.maximum(stored, grid.zero_point))


def test_a_compiler_that_dies_is_an_answer(tmp_path, monkeypatch):
    # A child that ends by a signal halfway, as the compiler does on some models.
    child = tmp_path / "child.py"
    child.write_text(
        "import json, os, sys\nopen(sys.argv[1] + '/report.json', 'w').write(json.dumps({'supported': ['a']}))\n"
        "print('LLVM ERROR: Failed to infer result type', flush=True)\nos.abort()\n"
    )
    monkeypatch.setattr(intel_compiler.intel_child, "__file__", str(child))
    answer = intel_compiler.compile_model(b"", b"", {})
    assert answer.blob is None and answer.supported == frozenset("a")
    assert "SIGABRT" in answer.error and answer.status == -6 and "LLVM ERROR" in answer.error


OPENVINO = """
import io, os

PATH = []

class Model:
    def __init__(self, core, kind):
        self.kind = kind

    def export_model(self):
        if self.kind == "broken":
            raise TypeError("export_model() takes 2 arguments")
        data = b"ELF" if self.kind == "canned" else b"ELF" + str(os.path.getsize(PATH[0])).encode()
        return io.BytesIO(data) if self.kind == "stream" else data

class Core:
    available_devices = ["CPU", "NPU"]

    def read_model(self, path):
        PATH[:] = [path]
        if KIND == "unreadable" or open(path, "rb").read(1) == b"\\xff":
            raise RuntimeError("cannot read the model")

    def query_model(self, model, device, config):
        return {"a": "NPU"}

    def compile_model(self, model, device, config):
        if KIND == "refused":
            raise RuntimeError("no kernel for it")
        return Model(self, KIND)
"""


@pytest.mark.parametrize("kind", ["bytes", "stream", "canned", "refused", "broken", "unreadable", "absent"])
def test_what_the_compiler_says_and_what_fails_on_the_way_are_two_things(kind, tmp_path, monkeypatch):
    if kind != "absent":
        (tmp_path / "openvino.py").write_text(f"KIND = {kind!r}\n" + OPENVINO)
    else:
        (tmp_path / "openvino.py").write_text("raise ImportError('a library is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # The same Python has another OpenVINO now.
    tools._answer.cache_clear()
    answer = intel_compiler.compile_model(b"<xml/>", b"", {})
    assert answer.blob == {"bytes": b"ELF6", "stream": b"ELF6", "canned": b"ELF"}.get(kind)
    assert answer.refused == (kind == "refused")
    if kind == "refused":
        assert answer.error == "no kernel for it" and answer.supported == frozenset("a")
    elif answer.blob is None:
        assert "ended with status 1" in answer.error
    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    made = IntelNpu3720().build(net(), {})
    said = {(p.device, p.decided_by) for p in made.placements}
    if kind == "canned":
        assert made.label == "emitted" and {by for _, by in said} == {"table"}
        assert "same file of another model" in " ".join(made.notes)
    elif answer.blob is not None:
        assert made.label == "vendor-compiled" and said == {("npu", "vendor")} and made.files["net.blob"][:3] == b"ELF"
        assert "another of another model" in str(made.evidence[0])
    elif kind == "refused":
        assert made.label == "emitted" and said == {("host", "vendor")} and "refuses" in " ".join(made.notes)
    else:
        assert made.label == "emitted" and {by for _, by in said} == {"table"}
        assert "gave no answer" in " ".join(made.notes) and "refuses" not in " ".join(made.notes)


def test_what_runs_on_the_host_is_the_saved_model(monkeypatch):
    files = {}
    monkeypatch.setattr(intel, "reread", lambda f: files.update(f) or openvino.Core().read_model(*f.values()))
    made = OpenVinoCpu().build(net(), {})
    assert files == made.files and made.ran_file == "net.xml"


def test_a_compiler_that_cannot_be_loaded_refuses_nothing():
    files = OpenVinoCpu().build(net(), {}).files
    if NPU:
        pytest.skip("this machine compiles it")
    answer = intel_compiler.compile_model(*files.values(), {"NPU_PLATFORM": "4000", "NPU_COMPILER_TYPE": "PLUGIN"})
    assert answer.blob is None
    assert "CPU" in answer.devices
    assert "ompiler" in answer.error
    # There is no compiler that could refuse it.
    assert not answer.refused


def test_a_refused_model_is_taken_apart(monkeypatch):
    # What the compiler answers is put in by hand here: how its answers become placements is what is tested.
    asked = []

    def answer(xml, weights, config, *_, **__):
        asked.append(config)
        bad = b"GroupConvolution" in xml
        said = "no kernel" if bad else ""
        return intel_compiler.CompilerReply(None if bad else b"blob", said, frozenset(("conv", "fc")), refused=bad)

    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    monkeypatch.setattr(intel_compiler, "compile_model", answer)
    made = IntelNpu3720().build(net(), {})
    if "NPU" not in openvino.Core().available_devices:
        assert asked[0] == {"NPU_COMPILER_TYPE": "PLUGIN", "NPU_PLATFORM": "3720"}
    assert made.label == "emitted" and "net.blob" not in made.files
    devices = {p.name: (p.device, p.decided_by) for p in made.placements}
    # Nothing is compiled, so nothing runs there, whatever compiles alone.
    assert set(devices.values()) == {("host", "vendor")}
    why = {p.name: p.reason for p in made.placements}
    assert "no kernel" in why["dw"] and "takes it alone" in why["conv"] and "does not take it" in why["q"]
    assert IntelNpu().available()[0] != "host"


def test_nodes_that_hang_alone_share_one_deadline_and_are_not_blamed(monkeypatch):
    clock, asked = [0.0], []

    def answer(xml, weights, config, another=None, seconds=None):
        if another is not None:
            return intel_compiler.CompilerReply(None, "no kernel", refused=True)
        asked.append(seconds)
        clock[0] += min(seconds, 1000.0)
        return intel_compiler.CompilerReply(None, "it took longer than 1000 s")

    monkeypatch.setattr(intel_compiler, "libraries", lambda: ["libopenvino_intel_npu_compiler.so"])
    monkeypatch.setattr(intel_compiler, "compile_model", answer)
    monkeypatch.setattr(intel, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    made = IntelNpu3720().build(net(), {})
    assert asked == [1800.0, 800.0]
    why = " ".join(p.reason for p in made.placements)
    assert "Intel's compiler:" not in why and "longer than 1000 s" in why and "was not asked" in why
    assert "each node compiles alone" not in " ".join(made.notes)


def test_the_compilers_words_and_figures():
    text = "x\n[INFO] 1 [a]   Estimated inference latency: 18.73 us in dpu frequency 1850.00 MHz\n"
    text += "[INFO] 2 [b]   Total number of FPOps: 7\n[INFO] 2 [b]   Total number of INTOps: 4284416\n"
    cost = intel_compiler.estimates(text)
    assert cost["chip time"].value == pytest.approx(18.73e-6)
    assert cost["integer operations"].value == 4284416 and cost["float operations"].value == 7
    assert "chip time" not in intel_compiler.estimates("")


def test_devices_are_looked_for_in_sysfs(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "vendor").write_text("0x1022\n")
    assert not intel_compiler.vendors(str(tmp_path / "*" / "vendor"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "vendor").write_text("0x8086\n")
    assert intel_compiler.vendors(str(tmp_path / "*" / "vendor"))


def test_the_table():
    def one(op, dtype, shape=(2, 3), result=None, grid=None, attrs=None):
        x, y = Tensor("x", shape, dtype, grid), Tensor("y", shape, result or dtype, grid)
        return Node(op, (x, x), (y,), attrs or {})

    ok = rule()
    assert ok(one("add", F32)).ok and ok(one("add", I8, grid=Grid(I8, 0.1))).ok and ok(one("add", I32)).ok
    assert "int32" in ok(one("add", I8)).suggestion
    assert not ok(one("cast", F32, result=np.dtype("int16"))).ok and ok(one("cast", F32, result=I32)).ok
    assert not ok(one("add", F32, (1,) * 6)).ok and ok(one("add", F32, (1,) * 5)).ok
    assert not ok(one("add", dtypes.bfloat16)).ok
    pad = one("pad", F32, (2, 3, 3, 3), attrs={"padding": ((0, 0), (1, 1), (1, 1), (1, 1))})
    assert not rule("3720")(pad).ok and rule("4000")(pad).ok
    assert not rule("3720")(one("cast", F32, result=np.dtype("float64"))).ok


def test_only_values_that_float16_would_hold_are_said_to_overflow_it():
    def product(bias, scale=0.02, out=0.5):
        wide = Grid(I32, 1e-4)
        x, w = Tensor("x", (1, 4), I8, Grid(I8, scale)), Tensor("w", (2, 4), I8, Grid(I8, 0.005), np.ones((2, 4), I8))
        b = Tensor("b", (2,), I32, wide, np.int32(bias))
        return Node("fully_connected", (x, w, b), (Tensor("y", (1, 2), I8, Grid(I8, out)),), {"activation": None})

    for remarks in (intel_table.remarks, apple_table.remarks):
        # The grid of a bias reaches 214,748, its values do not.
        assert "65504" not in remarks(product([3, -500]))
        assert "65504" in remarks(product([0, 0], out=600.0))
        x, y = Tensor("x", (2,), F32), Tensor("y", (2,), F32)
        for values, said in (([0, -1e9], True), ([0, -1e4], False), ([0, -np.inf], False)):
            mask = Tensor("m", (2,), F32, None, np.float32(values))
            assert ("65504" in remarks(Node("add", (x, mask), (y,), {"activation": None}))) == said, values
        i = Tensor("i", (2,), I32, None, np.int32([100_000, 0]))
        assert "65504" not in remarks(Node("gather", (x, i), (y,), {"axis": 0}))
        acc = Tensor("a", (2,), I32, Grid(I32, 1e-4))
        assert "65504" not in remarks(Node("reshape", (acc,), (acc,), {"shape": (2,)}))
    # The Neural Engine adds a bias in float16, Intel's NPU adds that of integers in 32 bits.
    far = [2**31 - 1, 0]
    assert "65504" in apple_table.remarks(product(far)) and "65504" not in intel_table.remarks(product(far))


def test_the_child_needs_nothing_of_nxjax():
    source = Path(intel_compiler.intel_child.__file__).read_text()
    assert "import nxjax" not in source and "from nxjax" not in source
