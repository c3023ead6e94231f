"""`nx.quant.compare`: its numbers against NumPy's, on every layer and batch; its table and its picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import ParameterError
from nxjax.quant import PRESETS, compare
from nxjax.quant.comparison import LayerDifference

R = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


P = {"w": normal(8, 16, scale=0.3), "b": normal(16, scale=0.1), "v": normal(16, 4, scale=0.3)}
DATA = [(P, normal(5, 8)) for _ in range(3)]


def first(p: Any, x: Any) -> Any:
    return nn.relu(x @ p["w"] + p["b"])


def f(p: Any, x: Any) -> Any:
    return jnp.tanh(first(p, x)) @ p["v"]


def test_the_last_layer_is_the_result():
    q = nx.quantize(f, "int8", calibrate=DATA)
    report = compare(f, q, DATA)
    assert [layer.name for layer in report] == ["dot_general_0", "tanh_0", "dot_general_1"] and len(report) == 3
    y = np.concatenate([np.asarray(f(*b), np.float64) for b in DATA])
    z = np.concatenate([np.asarray(q(*b), np.float64) for b in DATA])
    last = report["dot_general_1"]
    assert np.isclose(last.sqnr, 10 * np.log10((y**2).sum() / ((z - y) ** 2).sum()), atol=0.01)
    assert np.isclose(last.max_error, np.abs(z - y).max(), rtol=1e-4)
    low, high = q.ranges["dot_general_1"]
    assert np.isclose(last.scale, (high - low) / 255, rtol=1e-3)
    steps = np.clip(np.rint((z - y) / last.scale), -8, 8).astype(int)
    values, counts = np.unique(steps, return_counts=True)
    assert sum(last.lsb.values()) == y.size
    # A difference of half a step may be rounded either way.
    assert sum(abs(last.lsb.get(int(k), 0) - n) for k, n in zip(values, counts, strict=True)) <= 4
    assert (last.op, last.macs) == ("dot_general", 5 * 16 * 4) and last.source.line > 0


def test_inner_layers_are_compared_too():
    q = nx.quantize(f, "int8", calibrate=DATA)
    report = compare(f, q, DATA)
    alone = nx.quantize(first, "int8", calibrate=DATA)
    wanted = compare(first, alone, DATA)["dot_general_0"]
    got = report["dot_general_0"]
    assert (got.noise, got.signal, got.lsb) == (wanted.noise, wanted.signal, wanted.lsb)
    assert report.worst is min(report, key=lambda layer: layer.sqnr)


def test_layers_of_no_error():
    layer = LayerDifference("a", "b", None, 0.5)
    layer.add(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert layer.sqnr == np.inf and layer.lsb == {0: 2} and layer.max_error == 0
    layer.add(np.zeros((0,)), np.zeros((0,)))
    layer.add(np.array([1.0, 0.0]), np.array([1.5, 100.0]))
    assert layer.lsb == {0: 2, 1: 1, 8: 1} and layer.max_error == 100


def test_what_no_reader_tells_apart_is_no_error():
    """The range of what a tanh reads ends where the tanh is flat: what lies beyond is cut, and nothing is lost."""
    x, w = normal(64, 8), normal(8, 8, scale=30.0)
    g = lambda x: jnp.tanh(x @ w)
    q = nx.quantize(g, "int8", calibrate=[(x,)])
    assert compare(g, q, [(x,)])["dot_general_0"].sqnr > 25


def test_what_went_wrong_is_found():
    """One layer's range is far too small: it is the worst, and those before it are good."""
    q = nx.quantize(f, "int8", calibrate=DATA)
    broken = nx.quantize(f, ranges={**q.ranges, "dot_general_1": (-0.01, 0.01)})
    report = compare(f, broken, DATA)
    assert report.worst.name == "dot_general_1" and report.worst.sqnr < 3 and report["dot_general_0"].sqnr > 30
    assert max(report.worst.lsb) == 8


@pytest.mark.parametrize("policy", PRESETS)
def test_every_preset(policy: str, tmp_path: Path):
    q = nx.quantize(f, policy, calibrate=DATA)
    report = compare(f, q, iter(DATA))
    assert {"dot_general_0", "dot_general_1"} <= {layer.name for layer in report}
    assert all(12 < layer.sqnr < 110 for layer in report)
    assert all((layer.scale is not None) == (policy in ("int8", "int16x8")) for layer in report)
    report.plot(tmp_path / "layers.png")
    assert (tmp_path / "layers.png").read_bytes()[:4] == b"\x89PNG"


def test_control_flow_is_compared_by_its_results():
    def g(p: Any, x: Any) -> Any:
        c, ys = lax.scan(lambda c, _: (first(p, c)[:, :8], c.sum()), x, None, length=3)
        c = nx.checkpoint(lambda p, c: c @ p["w"])(p, c)
        return lax.cond(True, lambda c: c, lambda c: -c, c) @ p["v"], ys

    report = compare(g, nx.quantize(g, "int8", calibrate=DATA), DATA)
    names = [layer.name for layer in report]
    assert names[:3] == ["scan_0.0", "scan_0.1", "dot_general_0"] and names[-1] == "dot_general_1"
    assert all(layer.sqnr > 20 for layer in report)


def test_what_a_mask_takes_out_does_not_differ():
    seen = np.tril(np.ones((5, 5), bool))

    def g(p: Any, x: Any) -> Any:
        return nn.softmax(jnp.where(seen, first(p, x) @ first(p, x).T, -1e9)) @ x

    assert compare(g, nx.quantize(g, "int8", calibrate=DATA), DATA)["select_n_0"].sqnr > 25


def test_other_batches_than_calibrated():
    q = nx.quantize(f, "int8", calibrate=DATA)
    rows = np.concatenate([x for _, x in DATA])  # of other sizes, not of other ranges
    assert [layer.sqnr > 25 for layer in compare(f, q, [(P, rows[:1]), (P, rows[1:8])])] == [True] * 3


def test_tables():
    report = compare(f, nx.quantize(f, "int8", calibrate=DATA), DATA)
    lines = repr(report).splitlines()
    assert lines[0].startswith("layer") and "SQNR dB" in lines[0] and "your line" in lines[0] and len(lines) == 4
    assert "test_comparison.py" in lines[1] and f"{report.worst.sqnr:.1f}" in repr(report)
    page = report._repr_html_()
    assert "<table>" in page and page.count("<tr>") == 4 and "&lt;" not in page.split("</tr>")[0]


def test_the_picture_shows_every_layer():
    figure = compare(f, nx.quantize(f, "int8", calibrate=DATA), DATA).plot()
    top, bottom = figure.axes[:2]
    assert len(top.patches) == 3 and bottom.get_xticklabels()[0].get_text() == "dot_general_0"
    shares = bottom.images[0].get_array()
    assert shares.shape == (17, 3) and np.allclose(shares.sum(0), 1)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch):
    import sys

    report = compare(f, nx.quantize(f, "int8", calibrate=DATA), DATA)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(nx.errors.MissingExtraError, match="pip install"):
        report.plot()


def test_values_that_are_not_finite_have_no_decibels_and_are_the_worst():
    p, x = DATA[0]
    report = compare(f, nx.quantize(f, "int8", calibrate=DATA), [(p, x), (p, np.full_like(x, np.nan))])
    assert np.isnan(report.worst.sqnr)
    assert sum(report.worst.lsb.values()) == 2 * sum(compare_one(report.worst.name, p, x).lsb.values())


def compare_one(name: str, p: Any, x: Any) -> Any:
    return compare(f, nx.quantize(f, "int8", calibrate=DATA), [(p, x)])[name]


def test_errors():
    q = nx.quantize(f, "int8", calibrate=DATA)
    with pytest.raises(ParameterError, match="needs a quantized function"):
        compare(f, f, DATA)
    with pytest.raises(ParameterError, match="no data"):
        compare(f, q, [])
    with pytest.raises(ParameterError, match="another program than it was in calibration"):
        compare(lambda p, x: x @ p["w"] @ p["w"].T, q, DATA)
    with pytest.raises(KeyError, match="dot_general_0, tanh_0"):
        compare(f, q, DATA)["dense"]
