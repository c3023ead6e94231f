"""Ethos-U through the real Vela: its placement is our report, our table is its table, and nothing silent."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nxjax.backends.tools import ToolAnswer
from nxjax.errors import ExecutionError, MissingExtraError, NxError, ParameterError
from nxjax.lower.npu.formats import tflite
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.arm import ethosu
from nxjax.vendors.arm import ethosu_table as ethos_u
from nxjax.vendors.arm import vela as ethosu_vela
from nxjax.vendors.arm.vela import VelaOptions
from tests.vendors.nets import FLOAT, INT8, Net, cnn
from tests.vendors.single import OPS, single

PACKAGE = pytest.importorskip("ethosu")
TARGETS = {cls.name: cls for cls in ethosu.TARGETS}
SERIES = {"u55": 128, "u65": 256, "u85": 256}


def target(name="ethos-u55"):
    return TARGETS[name]()


def test_names():
    sizes = {"u55": (32, 64, 128, 256), "u65": (256, 512), "u85": (128, 256, 512, 1024, 2048)}
    want = {f"ethos-{s}-{n}" for s, ns in sizes.items() for n in ns} | {
        "ethos-u55",
        "ethos-u65",
        "ethos-u85",
        "ethos-n",
    }
    assert set(TARGETS) == want
    assert (TARGETS["ethos-u55"].size, TARGETS["ethos-u65"].size, TARGETS["ethos-u85"].size) == (128, 256, 256)
    assert "u85" in TARGETS["ethos-u85-2048"].title.lower() and TARGETS["ethos-u85-2048"].__doc__


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"ethos-n"}))
def test_a_network_that_fits_runs_whole_on_every_configuration(name):
    net = cnn()
    g = net.graph()
    build = target(name).build(g, {})
    assert build.label == "vendor-compiled" == target(name).available()[0]
    assert [(p.device, p.decided_by) for p in build.placements] == [("npu", "vendor")] * len(g.nodes)
    assert [p.op for p in build.placements] == [n.op for n in g.nodes]
    assert list(build.files) == ["cnn_vela.tflite", "cnn.tflite", "cnn_vela_layers.csv"]
    assert b"ethos-u" in build.files["cnn_vela.tflite"] and b"ethos-u" not in build.files["cnn.tflite"]
    assert {f.basis for f in build.cost.figures.values()} == {"vendor-estimate"}
    cost = build.cost
    clock = 500e6 if "u55" in name else 1e9
    assert cost["chip time"].value == pytest.approx(cost["cycles"].value / clock) and cost["cycles"].value > 0
    assert cost["npu cycles"].value <= cost["cycles"].value
    assert cost["macs"].value >= sum(p.macs for p in build.placements) > 0
    assert cost["weights"].value > 0
    peaks = {key for key in cost.figures if key.endswith(" peak")}
    assert peaks == ({"sram peak", "off chip flash peak"} if "u55" in name else {"sram peak", "dram peak"})
    assert any(f"{clock / 1e6:g} MHz" in note for note in build.notes)
    # What runs here says that it is the host, and is exact.
    assert "host reference of cnn.tflite" in build.runs_on and "LiteRT" in build.runs_on
    x = net.data()
    np.testing.assert_array_equal(build.run([x])[0], interpret(g, [x])[0])


def test_cycles_of_each_layer_come_with_the_users_lines():
    g = cnn().graph()
    build = target().build(g, {})
    rows = list(csv.DictReader(build.files["cnn_vela_layers.csv"].decode().splitlines()))
    assert [(r["node"], r["op"]) for r in rows] == [(n.name, n.op) for n in g.nodes]
    assert all("nets.py" in r["line"] for r in rows)
    assert [int(r["multiply-accumulates"]) for r in rows] == [p.macs for p in build.placements]
    cycles = [int(r["cycles"]) for r in rows]
    assert min(cycles) > 0 and 0.5 < sum(cycles) / build.cost["cycles"].value < 1.5


def test_larger_arrays_are_not_slower():
    g = Net(1, 32, 32, 16).conv(32).conv(32).graph()
    cycles = [target(f"ethos-u55-{n}").build(g, {}).cost["npu cycles"].value for n in (32, 64, 128, 256)]
    assert cycles == sorted(cycles, reverse=True) and cycles[0] > 2 * cycles[-1]


def test_a_float_graph_is_reported_as_nothing_on_the_npu():
    net = Net(1, 8, 8, 3, dtype=FLOAT).conv(4).unary("relu")
    build = target().build(net.graph(), {})
    assert build.label == "host"
    assert [p.device for p in build.placements] == ["host", "host"]
    assert all("Float32" in p.reason and p.decided_by == "vendor" for p in build.placements)
    assert all("quantize" in p.suggestion for p in build.placements)
    assert any("nothing on the NPU" in note for note in build.notes)
    assert "latency" not in build.cost


def test_nodes_that_vela_leaves_to_the_host_come_with_its_reason_and_our_suggestion():
    net = Net(1, 8, 8, 4).conv(8).unary("sqrt").conv(8).dequantize()
    g = net.graph()
    build = target().build(g, {})
    assert build.label == "vendor-compiled"
    assert [p.device for p in build.placements] == ["npu", "host", "npu", "host"]
    root, dequantize = build.placements[1], build.placements[3]
    assert root.reason == "SQRT: Unsupported opType" and "table" in root.suggestion
    assert "DEQUANTIZE" in dequantize.reason and "int8" in dequantize.suggestion
    assert root.source is g.nodes[1].source and "nets.py" in str(root.source)
    assert build.cost["chip time"].value > 0 and not {"latency", "npu latency"} & {*build.cost}


def test_a_node_of_several_operators_is_on_the_host_if_one_of_them_is():
    """A table that no TFLite operator computes becomes CAST, ADD, GATHER; U55 has no CAST and no GATHER."""
    values = np.arange(-128, 128).astype(np.int8)
    net = Net(1, 4, 4, 8).conv(8).unary("table", function="mish", values=values)
    rows = target().build(net.graph(), {}).placements
    assert [p.device for p in rows] == ["npu", "host"]
    assert rows[1].reason.startswith("mish is a look-up") and "activation" in rows[1].suggestion
    build = target("ethos-u85").build(net.graph(), {})
    assert [p.device for p in build.placements] == ["npu", "npu"]
    x = net.data()
    np.testing.assert_array_equal(build.run([x])[0], interpret(net.graph(), [x])[0])


def test_a_file_that_vela_refuses_is_all_on_the_host_and_says_so():
    """U55's Vela gives up on files with bool tensors; the report names the node that brings them."""
    net = Net(1, 4, 4, 8).conv(8)
    z = Tensor("z", net.x.shape, np.dtype(bool))
    g = NpuGraph("g", [net.input], [z], [*net.nodes, Node("less", (net.x, net.x), (z,))]).check()
    build = target().build(g, {})
    assert build.label == "emitted" and list(build.files) == ["g.tflite"]
    assert [p.device for p in build.placements] == ["host", "host"]
    assert "Vela refuses the whole file" in build.placements[0].reason and "no LESS" in build.placements[1].reason
    assert any("refuses" in note for note in build.notes)
    assert target("ethos-u85").build(g, {}).label == "vendor-compiled"


def test_vela_ends_its_own_process_not_ours():
    with pytest.raises(ExecutionError, match="Vela does not compile"):
        ethosu_vela.compile_model(b"xx" * 30, VelaOptions("u55", 128))
    with pytest.raises(ExecutionError, match="Vela does not compile"):
        ethosu_vela.by_command(b"xx" * 30, VelaOptions("u55", 128))


def test_a_file_that_ends_velas_process_is_no_answer():
    """int4 weights that a DEQUANTIZE widens: Vela dies of it; the record says how, and Vela placed nothing."""
    kind = np.dtype(ml_dtypes.int4)
    stored = np.arange(-7, 7).astype(kind).reshape(7, 2)
    w, f = Tensor("w", (7, 2), kind, Grid(kind, 0.1, 0), stored), Tensor("f", (7, 2), FLOAT)
    x, y = Tensor("x", (1, 2), FLOAT), Tensor("y", (1, 7), FLOAT)
    nodes = [Node("dequantize", (w,), (f,)), Node("fully_connected", (x, f, None), (y,), {"activation": None})]
    build = target().build(NpuGraph("g", [x], [y], nodes).check(), {})
    assert build.label == "emitted" and {p.decided_by for p in build.placements} == {"table"}
    assert "DEQUANTIZE" in build.placements[0].reason and "gave no answer" in "".join(build.notes)
    (record,) = build.evidence
    assert record.act == "failed" and record.status < 0 and "signal" in record.answer


def test_single_rounding_is_noted_since_the_host_rounds_twice():
    g = cnn().graph()
    g.rounding = "single"
    assert any("rounds twice" in note for note in target().build(g, {}).notes)
    assert not any("rounds twice" in note for note in target().build(cnn().graph(), {}).notes)


def test_options_reach_vela():
    g = Net(1, 32, 32, 16).conv(32).conv(32).graph()
    slow = target().build(g, {"system_config": "Ethos_U55_Deep_Embedded"})
    assert any("200 MHz" in note for note in slow.notes)
    assert slow.cost["chip time"].value > target().build(g, {}).cost["chip time"].value
    sram = target().build(g, {"memory_mode": "Sram_Only", "optimise": "Size", "arena_cache_size": 65536})
    assert "sram peak" in sram.cost and "off chip flash peak" not in sram.cost


def test_wrong_options_are_errors_that_list_the_right_ones(tmp_path):
    g = cnn().graph()
    with pytest.raises(ParameterError, match="system_config"):
        target().build(g, {"speed": "high"})
    with pytest.raises(ParameterError, match="Ethos_U55_Deep_Embedded"):
        target().build(g, {"system_config": "Fast"})
    with pytest.raises(ParameterError, match="Shared_Sram"):
        target().build(g, {"memory_mode": "Fast"})
    with pytest.raises(ParameterError, match="Performance"):
        target().build(g, {"optimise": "Speed"})
    with pytest.raises(ParameterError, match="arena_cache_size"):
        target().build(g, {"arena_cache_size": "64k"})
    with pytest.raises(ParameterError, match="cannot be read"):
        target().build(g, {"config": str(tmp_path / "none.ini")})
    with pytest.raises(ParameterError, match="no options"):
        target("ethos-n").build(g, {"speed": "high"})


def test_the_command_line_answers_the_same():
    data = tflite.write(Net(1, 16, 16, 4).conv(8).unary("sqrt").conv(8).graph())
    for series, size in SERIES.items():
        settings = VelaOptions(series, size)
        a, b = ethosu_vela.compile_model(data, settings), ethosu_vela.by_command(data, settings)
        assert (a.model, a.host, a.reasons, a.clock) == (b.model, b.host, b.reasons, b.clock)
        for key in ("cycles", "npu cycles", "macs", "weights", "chip time"):
            assert a.cost[key] == b.cost[key]
        for key in b.cost.figures:
            assert a.cost[key].value == pytest.approx(b.cost[key].value)


def test_another_interface_of_vela_is_noticed(tmp_path, monkeypatch):
    """Without ``compile`` in Vela's module the command line is used, with a note."""
    script = tmp_path / "child.py"
    script.write_text("raise AttributeError(\"module 'ethosu.regor' has no attribute 'compile'\")\n")
    monkeypatch.setattr(ethosu_vela.ethosu_child, "__file__", str(script))
    build = target().build(cnn().graph(), {})
    assert build.label == "vendor-compiled" and any("command line was used" in note for note in build.notes)


def test_without_vela_the_published_table_places_and_our_model_costs(monkeypatch):
    monkeypatch.setattr(ethosu, "installed", lambda name: name != "ethosu")
    net = Net(1, 8, 8, 4).conv(8).unary("sqrt")
    build = target().build(net.graph(), {})
    assert build.label == "emitted" == target().available()[0]
    assert [(p.device, p.decided_by) for p in build.placements] == [("npu", "table"), ("host", "table")]
    assert build.cost["chip time"].basis == "model"
    assert any("pip install 'nxjax[ethosu]'" in note for note in build.notes)


def test_vela_missing_is_an_error_that_names_the_extra(monkeypatch):
    from nxjax.backends import extras

    monkeypatch.setattr(extras, "installed", lambda name: False)
    with pytest.raises(MissingExtraError, match=r"nxjax\[ethosu\]"):
        ethosu_vela.compile_model(b"", VelaOptions("u55", 128))


def test_without_litert_nothing_runs_here_and_the_build_says_so(monkeypatch):
    from nxjax.vendors.litert import compiled as tflite_compiled

    monkeypatch.setattr(tflite_compiled, "installed", lambda name: False)
    build = target().build(cnn().graph(), {})
    assert build.run is None and build.runs_on == "" and any("LiteRT" in note for note in build.notes)


def test_importing_the_targets_imports_no_vendor_package():
    code = (
        "import sys; import nxjax.vendors.arm.ethosu, nxjax.vendors.google.edgetpu; "
        "print([m for m in ('ethosu', 'ai_edge_litert', 'flatbuffers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The table


@pytest.mark.parametrize("series", ["u55", "u65", "u85"])
def test_our_table_has_the_operators_that_vela_has(series):
    theirs = {"ARG_MAX" if name == "ARGMAX" else name for name in ethosu_vela.constraints(series)}
    assert set(ethos_u.table(series).limits) == theirs


# Vela's child again and again: a process that has loaded Vela is forked for each file, and the copy is all that ends.
FORKED = """
import os, sys, traceback
site, child = sys.argv[1:]
sys.path.insert(0, site)
from ethosu import regor
sys.path.insert(0, child)  # which has a file of that name, too
from vela_child import main
for line in sys.stdin:
    if not (process := os.fork()):
        status = 1
        try:
            os.chdir(line.rstrip("\\n"))
            for stream, name in ((1, "out.txt"), (2, "err.txt")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
            main(site, ".")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forked():
    """What asks Vela as `vela._asked` does, in a copy of one process."""
    if not hasattr(os, "fork"):
        yield ethosu_vela._asked
        return
    site, child = Path(next(iter(PACKAGE.__path__))).parent, Path(ethosu_vela.ethosu_child.__file__).parent
    command = [sys.executable, "-I", "-c", FORKED, str(site), str(child)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def asked(place, package, model, request):
            (place / "model.tflite").write_bytes(model)
            (place / "request.json").write_text(json.dumps(request))
            process.stdin.write(f"{place}\n")
            process.stdin.flush()
            status = int(process.stdout.readline())
            said = (place / "out.txt").read_text(), (place / "err.txt").read_text()
            return ToolAnswer("vela", status, *said, f"it ended with {status}" if status else "")

        yield asked
        process.stdin.close()


@pytest.mark.parametrize("series", ["u55", "u85"])
@pytest.mark.parametrize("part", range(4))
def test_our_table_decides_as_vela_does_on_random_nodes(series, part, forked, monkeypatch):
    """Every op of the vocabulary with random shapes, grids, dtypes: table and Vela agree, or Vela refuses the file."""
    monkeypatch.setattr(ethosu_vela, "_asked", forked)
    table, wrong, seen = ethos_u.table(series), [], set()
    for i, op in enumerate(OPS):
        for seed in (100 + 4 * i + part,):
            g = single(op, seed)
            try:
                data = tflite.write(g)
            except NxError:
                assert not table.verdict(g.nodes[0]).ok
                continue
            verdict = table.verdict(g.nodes[0])
            try:
                npu = not ethosu_vela.compile_model(data, VelaOptions(series, SERIES[series])).host
            except ExecutionError:
                npu = False
            seen.add(npu)
            if npu != verdict.ok:
                wrong.append(f"{op} {seed}: Vela {npu}, table {verdict.ok} {verdict.reason}\n{g}")
    assert not wrong, "\n".join(wrong)
    assert seen == {True, False}


def one(op, x, y, *more, dtype=INT8, **attrs):
    net = Net(*x)
    return net.add(op, y, *more, **attrs).graph()


def window(shape, size, stride=(1, 1)):
    out = tuple((n - k) // s + 1 for n, k, s in zip(shape[1:3], size, stride))
    attrs = {"window": size, "strides": stride, "padding": ((0, 0), (0, 0)), "activation": None}
    return one("max_pool_2d", shape, (1, *out, shape[3]), **attrs)


def scaled(op, scale):
    x, y = (Tensor(name, (1, 4, 4, 8), INT8, Grid(INT8, scale, 0)) for name in "xy")
    return NpuGraph("g", [x], [y], [Node(op, (x,), (y,))])


# Each pair lies just inside and just outside a published limit.
EDGES = {
    "scale": (scaled("relu", 2.0**31), scaled("relu", 2.0**32)),
    "pool height": (window((1, 256, 3, 1), (256, 2)), window((1, 257, 3, 1), (257, 2))),
    "argmax depth": tuple(
        NpuGraph("g", [x], [y], [Node("argmax", (x,), (y,), {"axis": 1})])
        for n in (127, 128)
        for x, y in [(Net(1, n).x, Tensor("y", (1,), np.dtype("int32")))]
    ),
    "softmax rows": tuple(one("softmax", (n, 2), (n, 2), beta=1.0) for n in (65536, 65537)),
    "mean axis": tuple(one("mean", (1, n, 1, 4), (1, 4), axes=(1, 2), keepdims=False) for n in (4096, 4097)),
    "mean batch": tuple(one("mean", (n, 4, 4, 4), (n, 4), axes=(1, 2), keepdims=False) for n in (1, 2)),
    "resize factor": tuple(
        one("resize_nearest", (1, 2, 2, 4), (1, n, n, 4), size=(n, n), align_corners=False, half_pixel_centers=False)
        for n in (16, 32)
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_the_edges_of_the_published_limits(edge):
    for g, inside in zip(EDGES[edge], (True, False), strict=True):
        assert ethos_u.U55.verdict(g.nodes[0]).ok is inside
        made = ethosu_vela.compile_model(tflite.write(g), VelaOptions("u55", 128))
        assert (not made.host) is inside


def test_a_rule_that_vela_prints_without_the_operators_name_is_not_put_to_another():
    """A scale over 2^32 leaves a node to the host; Vela prints the rule behind the reason of some other node."""
    net = Net(1, 4, 4, 8).unary("sqrt")
    huge = Tensor("huge", net.x.shape, INT8, Grid(INT8, 2.0**40, 0))
    net.add("relu", net.x.shape, result=huge)
    build = target().build(net.graph(), {})
    assert [p.device for p in build.placements] == ["host", "host"]
    assert build.placements[0].reason == "SQRT: Unsupported opType"
    assert "under 2^32" in build.placements[1].reason and "mask" in build.placements[1].suggestion


def test_weight_sums_are_limited():
    def fits(rows):
        net = Net(1, 1, 1, rows)
        w = Tensor("w", (1, 1, 1, rows), INT8, Net(1).x.grid, np.full((1, 1, 1, rows), 127, np.int8))
        attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0)), "groups": 1, "activation": None}
        return ethos_u.U55.verdict(net.add("conv_2d", (1, 1, 1, 1), w, None, **attrs).nodes[0])

    assert fits(65536).ok
    assert "65536" in fits(65537).reason


def test_every_refusal_says_what_to_write_instead():
    for name in ("u55", "u85"):
        table = ethos_u.table(name)
        for op in OPS:
            for seed in range(3):
                v = table.verdict(single(op, seed).nodes[0])
                assert v.ok or (v.reason and (v.suggestion or "permutation" not in v.reason))


# Ethos-N


def test_ethos_n_writes_the_file_and_places_by_the_published_table():
    net = Net(1, 14, 14, 3).conv(16).conv(16, stride=2).mean().dense(16)
    build = target("ethos-n").build(net.graph(), {})
    assert build.label == "emitted" and all(p.decided_by == "table" for p in build.placements)
    assert [p.device for p in build.placements] == ["npu"] * 4
    x = net.data()
    np.testing.assert_array_equal(build.run([x])[0], interpret(net.graph(), [x])[0])
    wide = Net(1, 14, 14, 3).conv(16, size=4).conv(16, stride=3).mean().unary("softmax", beta=1.0)
    rows = target("ethos-n").placed(wide.graph())
    assert [p.device for p in rows] == ["host"] * 4
    assert "1, 2, 3, 5, 7 or 9" in rows[0].reason and "strides are 1 or 2" in rows[1].reason
    assert "7x7 or 8x8" in rows[2].reason and "no SOFTMAX" in rows[3].reason
