"""Edge TPU: the published table row by row, the rule of one cut, and the compiler's log and file where it is found.

Google's compiler is not a package: `fake_compiler` here stands in for it. It prints logs in the real compiler's format
and cuts the file as it does; it proves that our code calls, parses and believes the compiler, nothing about the chip.
"""

import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.google import edgetpu
from nxjax.vendors.google.edgetpu import EdgeTpu, parse
from nxjax.vendors.google.table import TABLE
from tests.vendors.nets import FLOAT, INT8, INT32, Net, cnn
from tests.vendors.single import INT16, OPS, single

GRID = Grid(INT8, 0.05, 3)


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(edgetpu.shutil, "which", lambda name: None)


def t(name, *shape, data=None, dtype=INT8):
    return Tensor(name, shape, dtype, GRID if dtype == INT8 else None, data)


def node(op, inputs, out, **attrs):
    return Node(op, tuple(inputs), (out,), attrs)


def pool(activation=None, op="max_pool_2d"):
    attrs = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "activation": activation}
    return node(op, [t("x", 1, 8, 8, 4)], t("y", 1, 4, 4, 4), **attrs)


def concat(*constants, axis=3):
    parts = [t("x", 1, 4, 4, 4), *(t("c", 1, 4, 4, 4, data=np.full((1, 4, 4, 4), v, np.int8)) for v in constants)]
    return node("concatenation", parts, t("y", 1, 4, 4, 4 * len(parts)), axis=axis)


def conv(dilations=(1, 1), op="conv_2d"):
    w = t("w", 1 if op != "conv_2d" else 4, 3, 3, 4, data=np.ones((1 if op != "conv_2d" else 4, 3, 3, 4), np.int8))
    w.grid = Grid(INT8, 0.01, 0)
    attrs = {"strides": (1, 1), "dilations": dilations, "padding": ((0, 0), (0, 0)), "activation": None}
    shape = tuple(9 - 2 * d for d in dilations)
    return node(op, [t("x", 1, 9, 9, 4), w, None], t("y", 1, *shape, 4), **attrs)


def mean(x, axes, op="mean"):
    out = tuple(n for i, n in enumerate(x) if i not in axes)
    return node(op, [t("x", *x)], t("y", *out), axes=axes, keepdims=False)


def pad(*pads):
    x = (1, 4, 4, 4)
    return node("pad", [t("x", *x)], t("y", *(n + a + b for n, (a, b) in zip(x, pads))), padding=pads, value=None)


def prelu(*shape):
    return node("prelu", [t("x", 1, 4, 4, 8), t("a", *shape, data=np.ones(shape, np.int8))], t("y", 1, 4, 4, 8))


def split(axis):
    x = [1, 4, 4, 4] if axis else [4, 1, 1, 1]
    out = tuple(2 if i == axis else n for i, n in enumerate(x))
    return Node("split", (t("x", *x),), (t("y", *out), t("z", *out)), {"axis": axis, "sizes": (2, 2)})


def dense(rows):
    w = t("w", 5, 6, data=np.ones((5, 6), np.int8))
    w.grid = Grid(INT8, 0.01, 0)
    return node("fully_connected", [t("x", rows, 6), w, None], t("y", rows, 5), activation=None)


def steps(*strides):
    x = (1, 4, 4, 4)
    out = tuple(-(-n // s) for n, s in zip(x, strides))
    return node("strided_slice", [t("x", *x)], t("y", *out), begin=(0,) * 4, end=x, strides=strides)


def softmax(*shape):
    return node("softmax", [t("x", *shape)], t("y", *shape), beta=1.0)


def unary(op, *shape, dtype=INT8, **attrs):
    return node(op, [t("x", *shape, dtype=dtype)], t("y", *shape, dtype=dtype), **attrs)


# The row of the published table, what it takes, what it does not, and a word of the reason.
ROWS = {
    "8 bits": (unary("tanh", 1, 8), unary("tanh", 1, 8, dtype=FLOAT), "8 bits"),
    "no int16": (unary("relu", 1, 8), unary("relu", 1, 8, dtype=INT16), "8 bits"),
    "three dimensions": (unary("tanh", 1, 4, 4, 8), unary("tanh", 2, 4, 4, 8), "three innermost"),
    "average pool": (pool(op="average_pool_2d"), pool("relu", "average_pool_2d"), "fused"),
    "max pool": (pool(), pool("relu6"), "fused"),
    "concatenation": (concat(3), concat(4), "zeros"),
    "concatenation of three": (
        node("concatenation", concat().inputs * 2, t("y", 1, 4, 4, 8), axis=3), concat(3, 3), "zeros"
    ),
    "conv": (conv((2, 2)), conv((2, 1)), "dilation"),
    "depthwise": (conv((2, 2), "depthwise_conv_2d"), conv((1, 2), "depthwise_conv_2d"), "dilation"),
    "dense": (dense(1), dense(3), "one dimension"),
    "mean of the batch": (mean((4, 4, 8), (0, 1)), mean((1, 4, 4, 8), (0, 1, 2)), "batch"),
    "mean of channels": (mean((1, 4, 4, 8), (3,)), mean((1, 4, 4, 6), (3,)), "multiple of 4"),
    "sum": (mean((1, 4, 4, 6), (1, 2), "sum"), mean((1, 4, 4, 6), (0,), "sum"), "batch"),
    "reduce_max": (mean((1, 4, 4, 6), (3,), "reduce_max"), mean((1, 4, 4, 6), (0, 3), "reduce_max"), "batch"),
    "pad": (pad((0, 0), (1, 1), (0, 2), (3, 0)), pad((1, 0), (0, 0), (0, 0), (0, 0)), "innermost"),
    "prelu": (prelu(1, 1, 8), prelu(4, 4, 8), "one per channel"),
    "split": (split(3), split(0), "three innermost"),
    "strided slice": (steps(1, 1, 1, 1), steps(1, 2, 2, 1), "strides"),
    "softmax": (softmax(1, 16000), softmax(1, 16001), "16000"),
    "softmax of rows": (softmax(1, 10), softmax(2, 10), "one row"),
    "an operator it has not": (unary("logistic", 1, 8), unary("hard_swish", 1, 8), "no HARD_SWISH"),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_published_table_row_by_row(row):
    taken, refused, word = ROWS[row]
    assert TABLE.verdict(taken) == TABLE.verdict(taken) and TABLE.verdict(taken).ok, TABLE.verdict(taken).reason
    verdict = TABLE.verdict(refused)
    assert not verdict.ok and word in verdict.reason
    assert verdict.suggestion


def test_weights_must_be_constants():
    x, w, y = t("x", 1, 6), t("w", 5, 6), t("y", 1, 5)
    verdict = TABLE.verdict(node("fully_connected", [x, w, None], y, activation=None))
    assert not verdict.ok and "constants" in verdict.reason and "close over" in verdict.suggestion


def test_every_node_gets_a_verdict():
    for op in OPS:
        for seed in range(4):
            verdict = TABLE.verdict(single(op, seed).nodes[0])
            assert verdict.ok or verdict.reason


# Other forms


def test_dense_layers_of_rows_become_1x1_convolutions_where_asked(no_compiler):
    worst = 0
    for bias in (True, False):
        net = Net(1, 40, 16)
        net.add("fully_connected", (1, 40, 8), net.weights(8, 16), net.bias(8) if bias else None, activation="relu")
        g, x = net.graph(), net.data()
        plain, build = EdgeTpu().build(g, {}), EdgeTpu().build(g, {"rows_as_pixels": True})
        assert [p.device for p in plain.placements] == ["host"] and "rows_as_pixels" in plain.placements[0].suggestion
        assert [p.device for p in build.placements] == ["npu"] and b"pixels" in build.files["net.tflite"]
        want = interpret(g, [x])[0]
        np.testing.assert_array_equal(plain.run([x])[0], want)
        difference = np.abs(build.run([x])[0].astype(int) - want)
        worst = max(worst, int(difference.max()))
        assert (difference > 0).mean() < 0.02
    assert worst <= 1
    one = EdgeTpu().build(Net(1, 6).dense(5).graph(), {"rows_as_pixels": True})
    assert b"pixels" not in one.files["net.tflite"]


def test_dilation_along_one_axis_is_said_for_both(no_compiler):
    net = Net(1, 1, 20, 4)
    attrs = {"strides": (1, 1), "padding": ((0, 0), (4, 4)), "activation": None}
    net.add("conv_2d", (1, 1, 20, 8), net.weights(8, 1, 3, 4), net.bias(8), dilations=(1, 4), **attrs)
    assert not TABLE.verdict(net.nodes[0]).ok
    build = EdgeTpu().build(net.graph(), {})
    assert [p.device for p in build.placements] == ["npu"]
    x = net.data()
    np.testing.assert_array_equal(build.run([x])[0], interpret(net.graph(), [x])[0])


def compiled_as_said(f, x):
    """A quantized function for the Edge TPU: all of it on the chip, the bits of the reference. Gives the file."""
    q = nx.quantize(f, "int8", calibrate=[(x,)])
    artifact = nx.compile(q, target="edgetpu")(x)
    assert artifact.deviation.exact and artifact.report.share == 1, artifact.report
    return artifact.bytes


def test_forms_that_the_chip_lacks_are_said_in_others():
    x = np.random.default_rng(0).normal(size=(1, 13, 16, 8)).astype(np.float32)
    for alpha in (0.01, 0.1, 0.2, 0.3, 1.5):
        compiled_as_said(lambda x, a=alpha: nx.nn.leaky_relu(3 * x, a), x)
    compiled_as_said(lambda x: nx.nn.relu(x)[:, ::2, ::3], x)
    # The least value of what a relu gives is zero, with which it pads.
    windows = ((1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    pooled = lambda x: nx.lax.reduce_window(x, -np.inf, nx.lax.max, *windows)
    compiled_as_said(lambda x: pooled(nx.nn.relu(x)), x)
    compiled_as_said(lambda x: nx.numpy.pad(x, ((0, 0), (2, 2), (1, 1), (0, 0)), mode="reflect"), x)


def test_what_has_no_other_form_stays():
    x = np.random.default_rng(0).normal(size=(1, 13, 16, 8)).astype(np.float32)
    for f, op in (
        (lambda x: x[:, 1::2] * 2.0, "strided_slice"),
        (lambda x: x[:, :, :, ::2] * 2.0, "strided_slice"),
        (lambda x: nx.numpy.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=1.0), "pad"),
    ):
        report = nx.explain(nx.quantize(f, "int8", calibrate=[(x,)]), target="edgetpu")(x)
        assert op in [r.op for r in report.host_rows]


# One cut


def test_what_needs_a_result_of_the_host_runs_on_the_host():
    net = Net(1, 8, 8, 4).conv(8).conv(8).unary("hard_swish").conv(8)
    rows = EdgeTpu().placed(net.graph())
    assert [p.device for p in rows] == ["npu", "npu", "host", "host"]
    assert "no HARD_SWISH" in rows[2].reason and "relu6" in rows[2].suggestion
    assert "hard_swish at nets.py" in rows[3].reason and "relu6" in rows[3].suggestion
    assert all(p.decided_by == "table" and p.source for p in rows)


def test_a_branch_that_does_not_need_it_stays():
    net = Net(1, 8, 8, 4).conv(8)
    trunk = net.x
    net.unary("hard_swish")
    swished = net.x
    net.x = trunk
    net.conv(8)
    straight = net.x
    net.nodes.append(Node("add", (swished, straight), (t("sum", *straight.shape),), {"activation": None}))
    g = NpuGraph("g", [net.input], [net.nodes[-1].output], net.nodes).check()
    assert [p.device for p in EdgeTpu().placed(g)] == ["npu", "host", "npu", "host"]


def test_conversions_at_the_ends_stay_on_the_host_and_cut_nothing():
    x = Tensor("image", (1, 8, 8, 4), FLOAT)
    net = Net(1, 8, 8, 4).conv(8).mean().dense(4).dequantize()
    g = NpuGraph("g", [x], [net.x], [Node("quantize", (x,), (net.input,)), *net.nodes]).check()
    rows = EdgeTpu().placed(g)
    assert [p.device for p in rows] == ["host", "npu", "npu", "npu", "host"]
    assert "8 bits" in rows[0].reason and "DEQUANTIZE" in rows[4].reason


# Without the compiler


def test_without_the_compiler_the_file_is_emitted_and_says_so(no_compiler):
    net = cnn()
    build = EdgeTpu().build(net.graph(), {})
    assert build.label == "emitted" == EdgeTpu().available()[0]
    assert list(build.files) == ["cnn.tflite"] and build.files["cnn.tflite"][4:8] == b"TFL3"
    assert {p.device for p in build.placements} == {"npu"} and {p.decided_by for p in build.placements} == {"table"}
    assert {f.basis for f in build.cost.figures.values()} == {"model"}
    assert build.cost["parameter cache"].value == sum(c.nbytes for c in net.graph().constants())
    assert any("not verified" in note for note in build.notes)
    assert "host reference of " in build.runs_on
    x = net.data()
    np.testing.assert_array_equal(build.run([x])[0], interpret(net.graph(), [x])[0])


def test_options(no_compiler):
    with pytest.raises(ParameterError, match="min_runtime_version"):
        EdgeTpu().build(cnn().graph(), {"speed": 1})
    with pytest.raises(ParameterError, match="10 to 16"):
        EdgeTpu().build(cnn().graph(), {"min_runtime_version": 3})


# The compiler

UNSPECIFIED = "Operation is otherwise supported, but not mapped due to some unspecified limitation"
REAL_LOG = f"""\
Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.

Model compiled successfully in 1354 ms.

Input model: yolox.tflite
Input size: 5.10MiB
Output model: yolox_edgetpu.tflite
Output size: 6.28MiB
On-chip memory used for caching model parameters: 6.03MiB
On-chip memory remaining for caching model parameters: 1.21MiB
Off-chip memory used for streaming uncached model parameters: 7.75KiB
Number of Edge TPU subgraphs: 1
Total number of operations: 143
Operation log: yolox_edgetpu.log

Model successfully compiled but not all operations are supported by the Edge TPU. A percentage of the model will instead
run on the CPU, which is slower. If possible, consider updating your model to use only operations supported by the Edge
Number of operations that will run on Edge TPU: 139
Number of operations that will run on CPU: 4

Operator                       Count      Status

TRANSPOSE                      1          {UNSPECIFIED}
CONV_2D                        83         Mapped to Edge TPU
CONV_2D                        2          More than one subgraph is not supported
DEQUANTIZE                     1          Operation is working on an unsupported data type
Compilation child process completed within timeout period.
Compilation succeeded!
"""


def test_the_log_in_the_compilers_own_format():
    log = parse(REAL_LOG)
    assert log.version == "16.0.384591198" and (log.npu, log.host) == (139, 4)
    assert len(log.statuses) == 4 and log.statuses[1] == ("CONV_2D", 83, "Mapped to Edge TPU")
    assert log.reasons("CONV_2D") == "More than one subgraph is not supported"
    assert "unspecified limitation" in log.reasons("TRANSPOSE") and log.reasons("ADD") == ""
    assert log.sizes == {
        "On-chip memory used for caching model parameters": 6.03 * (1 << 20),
        "On-chip memory remaining for caching model parameters": 1.21 * (1 << 20),
        "Off-chip memory used for streaming uncached model parameters": 7.75 * 1024,
    }
    assert parse("") == edgetpu.CompilerLog()


# A stand-in: replaces the operators before the first SQRT by one custom operator, and logs as the real compiler does.
FAKE = """
import collections, sys
sys.path.insert(0, {root!r})
from nxjax.lower.npu.formats import flatbuffer
from nxjax.lower.npu.formats.tflite_schema import BUILTIN_NAMES, IDENTIFIER, SCHEMA
args = sys.argv[1:]
open({seen!r}, "a").write(" ".join(args[:-1]) + " ")
mode, out, source = {mode!r}, args[args.index("-o") + 1], args[-1]
if mode == "fail":
    print("Edge TPU Compiler version 16.0.384591198"); print("Internal compiler error. Aborting!"); sys.exit(1)
model = flatbuffer.read(SCHEMA, "Model", open(source, "rb").read(), IDENTIFIER)
graph, codes = model["subgraphs"][0], model["operator_codes"]
names = [BUILTIN_NAMES[codes[o["opcode_index"]]["builtin_code"]] for o in graph["operators"]]
cut = names.index("SQRT") if "SQRT" in names else len(names)
cut = 0 if mode == "nothing" else cut
print("Edge TPU Compiler version 16.0.384591198\\n\\nModel compiled successfully in 7 ms.\\n")
print("On-chip memory used for caching model parameters: 6.00KiB")
print("Off-chip memory used for streaming uncached model parameters: 0.00B")
print("Number of operations that will run on Edge TPU:", cut)
print("Number of operations that will run on CPU:", len(names) - cut + (mode == "miscount"))
print("\\nOperator                       Count      Status\\n")
rows = [(n, "Mapped to Edge TPU" if i < cut else "Operation not supported" if n == "SQRT" else
         "More than one subgraph is not supported") for i, n in enumerate(names)]
for (name, status), count in collections.Counter(rows).items():
    print(name.ljust(30), str(count).ljust(10), status)
codes.append(dict(codes[0], builtin_code=32, deprecated_builtin_code=32, custom_code="edgetpu-custom-op", version=1))
taken = graph["operators"][:cut]
if taken:
    one = {{"opcode_index": len(codes) - 1, "inputs": graph["inputs"], "outputs": taken[-1]["outputs"]}}
    graph["operators"] = [one, *graph["operators"][cut:]]
open(out + "/model_edgetpu.tflite", "wb").write(flatbuffer.write(SCHEMA, "Model", model, IDENTIFIER))
"""


@pytest.fixture
def fake_compiler(tmp_path, monkeypatch):
    def make(mode="cut"):
        root = str(Path(__file__).parents[3])
        body = FAKE.format(root=root, mode=mode, seen=str(tmp_path / "args"))
        script = tmp_path / "edgetpu_compiler"
        script.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "args"

    return make


def test_the_compilers_file_and_log_decide(fake_compiler):
    args = fake_compiler()
    net = Net(1, 8, 8, 4, name="net").conv(8).unary("hard_swish").unary("sqrt").conv(8)
    build = EdgeTpu().build(net.graph(), {"min_runtime_version": 14, "search_delegate": True})
    assert build.label == "vendor-compiled" == EdgeTpu().available()[0]
    assert list(build.files) == ["net_edgetpu.tflite", "net.tflite"]
    assert b"edgetpu-custom-op" in build.files["net_edgetpu.tflite"]
    # The table says host for hard_swish; the compiler took it, so that it is on the chip.
    assert [p.device for p in build.placements] == ["npu", "npu", "host", "host"]
    assert {p.decided_by for p in build.placements} == {"vendor"}
    assert build.placements[2].reason == "SQRT: Operation not supported"
    assert build.placements[3].reason == "CONV_2D: More than one subgraph is not supported"
    assert build.placements[3].suggestion and not build.placements[1].reason
    cached = build.cost["on-chip memory used for caching model parameters"]
    assert (cached.value, cached.basis) == (6144, "vendor-estimate")
    assert build.cost["npu latency"].basis == "model"
    assert any("16.0.384591198" in note for note in build.notes)
    assert "-s" in args.read_text() and "-m 14" in args.read_text() and "-d" in args.read_text().split()
    assert build.run is not None and "host" in build.runs_on


def test_nothing_pretends_to_run_what_litert_cannot():
    net = Net(1, 4, 4, 8)
    # TFLite's softmax has one output grid.
    net.add("softmax", net.x.shape, result=Tensor("odd", net.x.shape, INT8, Grid(INT8, 0.5, 0)), beta=1.0)
    build = EdgeTpu().build(net.graph(), {})
    assert build.run is None and any("LiteRT on the host cannot run" in note for note in build.notes)


def test_a_compiler_that_maps_nothing_is_reported_as_host(fake_compiler):
    fake_compiler("nothing")
    build = EdgeTpu().build(cnn().graph(), {})
    assert build.label == "host" and {p.device for p in build.placements} == {"host"}


def test_a_log_that_contradicts_the_file_is_noted(fake_compiler):
    fake_compiler("miscount")
    build = EdgeTpu().build(cnn().graph(), {})
    assert any("counts 1 host operations, its file holds 0" in note for note in build.notes)


def test_a_failing_compiler_leaves_the_emitted_file(fake_compiler):
    fake_compiler("fail")
    build = EdgeTpu().build(cnn().graph(), {})
    assert build.label == "emitted" and {p.decided_by for p in build.placements} == {"table"}
    assert any("Internal compiler error" in note for note in build.notes)


def test_a_compiler_that_writes_no_text_is_no_error_of_ours(tmp_path, monkeypatch):
    script = tmp_path / "edgetpu_compiler"
    script.write_text("#!/bin/sh\nprintf '\\377\\376'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    build = EdgeTpu().build(cnn().graph(), {})
    assert build.label == "emitted" and any("made no file" in note for note in build.notes)


def test_without_a_device_the_run_is_the_hosts(fake_compiler, monkeypatch):
    """The runtime's library is found, but loading it fails as it does where no stick is plugged in."""
    fake_compiler()
    monkeypatch.setattr(edgetpu.ctypes.util, "find_library", lambda name: "libedgetpu.so.1")
    build = EdgeTpu().build(cnn().graph(), {})
    assert build.label == "vendor-compiled" and "host reference" in build.runs_on
    assert any("no Edge TPU answers" in note for note in build.notes)


def test_bias_grids_do_not_confuse_the_table():
    """int32 biases are parameters, not feature maps."""
    net = Net(1, 8, 8, 4).conv(8)
    assert net.nodes[0].inputs[2].dtype == INT32 and TABLE.verdict(net.nodes[0]).ok
