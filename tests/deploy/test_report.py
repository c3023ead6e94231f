"""Reports: the user's own lines, reasons, what to write instead; as text, as HTML and as plain data."""

import inspect
import json
import re

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.deploy import Report
from nxjax.errors import FigureError
from nxjax.lower.placement import Cost, Placement
from tests.deploy.nets import IMAGE, PARAMS

FILE = "test_report.py"


def net(params, x):
    with nx.named_scope("stem"):
        x = nx.lax.conv_general_dilated(x, params["conv"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x + 0.5
        x = nx.nn.relu(x)
    x = x.mean((1, 2))
    x = jnp.sin(x)
    return x @ params["out"]


def line_of(text: str) -> int:
    """The line of this file in which the network does something."""
    lines, first = inspect.getsourcelines(net)
    return first + next(i for i, line in enumerate(lines) if text in line)


LINES = {"conv_2d": "conv_general_dilated", "mean": ".mean(", "sin": "jnp.sin", "fully_connected": '@ params["out"]'}


@pytest.fixture(scope="module", params=["float", "int8"])
def fun(request):
    return net if request.param == "float" else nx.quantize(net, "int8", calibrate=[(PARAMS, IMAGE)])


@pytest.mark.parametrize("target", ["tflite", "ethos-u55", "edgetpu", "onnx"])
def test_every_row_names_the_users_own_line(fun, target):
    report = nx.explain(fun, target=target)(PARAMS, IMAGE)
    seen = {}
    for row in report.rows:
        if row.source is not None:
            seen.setdefault(row.op, []).append(row)
    # A sine that is looked up is a table.
    seen.setdefault("sin", seen.get("table"))
    for op, text in LINES.items():
        assert seen[op], f"no row of {op} has a line"
        for row in seen[op]:
            assert row.source.file == __file__ and row.source.function == "net"
            assert row.source.line == line_of(text), f"{op}: {row.source.text}"
            assert text in row.source.text
            assert f"{FILE}:{row.source.line} in net" in str(report)
    # What becomes part of a convolution has no row; the row is the convolution's.
    assert not {"relu", "add"} & set(seen)
    assert all("stem" in row.scope for row in seen["conv_2d"])


def test_lines_are_found_in_what_is_called_and_composed():
    def inner(x):
        return nx.lax.atan2(x, x + 1)

    @nx.jit
    def outer(x):
        return nx.vmap(inner)(x * 2)

    (row,) = (r for r in nx.explain(outer, target="edgetpu")(jnp.ones((2, 3))).rows if r.op == "atan2")
    assert row.source.text == "return nx.lax.atan2(x, x + 1)" and row.source.function.endswith("inner")


def test_reasons_are_the_constraint_and_what_to_write_instead():
    report = nx.explain(net, target="edgetpu")(PARAMS, IMAGE)
    assert report.share == 0 and report.mac_share == 0 and report.on_npu == 0
    text = str(report)
    for row in report.rows:
        assert row.device == "host" and row.decided_by == "table"
        assert row.reason and row.suggestion
        assert f"{row.reason} -> {row.suggestion}" in text
    assert "nx.quantize" in text


def test_shares_count_ops_and_products():
    qnet = nx.quantize(net, "int8", calibrate=[(PARAMS, IMAGE)])
    report = nx.explain(qnet, target="ethos-u55")(PARAMS, IMAGE)
    macs = {r.op: r.macs for r in report.rows}
    assert macs["conv_2d"] == 4 * 4 * 8 * 27 and macs["fully_connected"] == 8 * 5
    on = [r for r in report.rows if r.device == "npu"]
    assert report.on_npu == len(on) and report.share == len(on) / len(report.rows)
    assert report.mac_share == sum(r.macs for r in on) / sum(macs.values())
    assert f"{len(on)} of {len(report.rows)} ops and {report.mac_share:.1%}" in report.summary()


def test_who_decided_is_said():
    qnet = nx.quantize(net, "int8", calibrate=[(PARAMS, IMAGE)])
    assert {r.decided_by for r in nx.explain(qnet, target="ethos-u55")(PARAMS, IMAGE).rows} == {"vendor"}
    assert {r.decided_by for r in nx.explain(qnet, target="edgetpu")(PARAMS, IMAGE).rows} == {"table"}


def test_plain_data_is_json_and_has_everything():
    report = nx.explain(net, target="ethos-u55")(PARAMS, IMAGE)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["target"] == "ethos-u55" and len(data["rows"]) == len(report.rows)
    for row, plain in zip(report.rows, data["rows"], strict=True):
        assert plain["op"] == row.op and plain["reason"] == row.reason and plain["macs"] == row.macs
        assert plain["at"] == (str(row.source) if row.source else None)
    assert {k: v["basis"] for k, v in data["cost"].items()} == {k: v.basis for k, v in report.cost.figures.items()}
    assert data["notes"] == report.notes


def test_what_is_written_into_a_page_is_escaped():
    hostile = "<img src=x onerror=alert(1)> & \"quotes\" 'more'"
    cost = Cost()
    cost.add(hostile, 1.5, hostile, "model")
    row = Placement(hostile, hostile, "host", None, hostile, hostile, hostile)
    page = Report(hostile, hostile, "emitted", [row], cost, [hostile])._repr_html_()
    assert "<img" not in page and page.count("&lt;img") >= 6
    text = str(Report(hostile, "title", "emitted", [row], cost, [hostile]))
    assert hostile in text


def test_an_empty_report_is_one():
    empty = Report("t", "T", "emitted", [])
    assert empty.share == 0 and empty.mac_share == 0 and "0 of 0 ops" in str(empty)
    assert "<table>" in empty._repr_html_()


def test_columns_are_aligned_and_long_lines_are_whole():
    rows = [
        Placement("add", f"n{i}", "npu" if i % 2 else "host", reason="because " * 20 * (1 - i % 2)) for i in range(4)
    ]
    lines = str(Report("t", "T", "emitted", rows)).splitlines()
    head = next(line for line in lines if line.startswith("runs on"))
    body = lines[lines.index(head) + 1 :]
    assert all(line.index("add") == head.index("op") for line in body)
    assert all(("because " * 20).strip() in line for line in body[::2])


def test_scopes_are_a_column_where_there_are_any():
    def plain(x):
        return nx.nn.relu(x * 2)

    def scoped(x):
        with nx.named_scope("head/act"):
            return plain(x)

    x = jnp.ones((1, 4))
    with_scope, without = (nx.explain(f, target="onnx")(x) for f in (scoped, plain))
    assert "scope" in str(with_scope).splitlines()[2] and "head/act" in str(with_scope)
    assert ">scope<" in with_scope._repr_html_() and "head/act" in with_scope._repr_html_()
    assert "scope" not in str(without).splitlines()[2] and ">scope<" not in without._repr_html_()


def row(device: str) -> Placement:
    return Placement("add", "add", device)


@pytest.mark.parametrize(
    ("figure", "devices", "why"),
    [
        ("chip time", ["npu"], "how long launch and transfers take is not published; see 'chip time'"),
        ("npu latency", ["npu", "host"], "1 of 2 ops run on the host, whose time nobody knows"),
        ("npu latency", ["npu", "unknown"], "1 of 2 ops may not run on the chip"),
        ("file", ["host", "host"], "no op runs on the chip"),
        ("file", [], "no op runs on the chip"),
        ("file", ["unknown"], "where 1 of 1 ops run"),
        ("file", ["npu"], "nothing that was asked here says how long The chip takes"),
    ],
)
def test_why_there_is_no_latency(figure, devices, why):
    cost = Cost()
    cost.add(figure, 1.0, "s", "model")
    report = Report("t", "The chip", "emitted", [row(d) for d in devices], cost)
    with pytest.raises(FigureError, match=re.escape(why)):
        report.cost["latency"]


def test_targets_say_why_there_is_no_latency():
    """No reason denies what is there: a cost model, an option that measures, a compiler that answered."""
    x, w = jnp.ones((2, 8)), jnp.ones((8, 4))
    wide = nx.quantize(lambda x: x @ w, "int16x8", calibrate=[(x,)], params=())
    for f, target, why in (
        (lambda x: x @ w, "edgetpu", "no op runs on the chip"),
        (lambda x: x @ w, "tflite", "measure=True"),
        (lambda x: x @ w, "openvino-cpu", "measure=True"),
        (wide, "amd-xdna", "does not compute in int16"),
        (lambda x: nx.lax.atan2(x, x), "ethos-u55", "nothing was compiled"),
    ):
        with pytest.raises(FigureError, match=why):
            nx.explain(f, target=target)(x).cost["latency"]
    assert nx.compile(lambda x: x @ w, target="tflite", measure=True)(x).cost["latency"].basis == "measured"
