"""A profile's tables: shares, rates and limits of rows with known numbers; its Perfetto trace and its plot."""

import json

import pytest

from nxjax.errors import ParameterError
from nxjax.profiling.peaks import Peaks
from nxjax.profiling.perfetto import events, save
from nxjax.profiling.rows import Profile, ProfileRow, StepSpan

PEAKS = Peaks(1e9, 1e10, 2, "avx2")


def profile(measured=True):
    rows = [
        ProfileRow(
            "product", "product(3)", "net.py:4", "layer", calls=2, seconds=0.3, flops=1e9, read=1e6, written=1e6
        ),
        ProfileRow("copy", "copy(<b>)", "", "", calls=1, seconds=0.1, read=4e7, written=4e7),
    ]
    spans = [StepSpan(0, 0.0, 0.1), StepSpan(1, 0.1, 0.1), StepSpan(0, 0.2, 0.2)] if measured else []
    return Profile("f", rows, spans, 0.4, 100, 20, 3, PEAKS, measured)


def test_sums_and_limits():
    p = profile()
    assert (p.flops, p.bytes_accessed, p.peak_bytes) == (1e9, 8.2e7, 123)
    product, copy = p.rows
    assert product.intensity == 500
    assert product.roofline(PEAKS) == pytest.approx(1 / 3)
    assert copy.roofline(PEAKS) == pytest.approx(0.8)
    assert PEAKS.seconds(1e10, 5e8) == 1.0


def test_the_table_has_the_dearest_first():
    text = profile().table(1)
    assert "product" in text
    assert "75.0 %" in text
    assert "net.py:4" in text
    assert "and 1 more" in text
    assert "copy" not in text.split("and 1 more")[0]
    assert "&lt;b&gt;" not in profile()._repr_html_()
    assert "1.0 GB/s" in profile()._repr_html_()


def test_an_estimate_says_so():
    assert "at least" in profile(measured=False).summary()
    assert "cost of f" in repr(profile(measured=False))


def test_a_trace_has_a_span_for_each_run(tmp_path):
    p = profile()
    spans = [e for e in events(p) if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("product", 0.0, pytest.approx(1e5)),
        ("copy", pytest.approx(1e5), pytest.approx(1e5)),
        ("product", pytest.approx(2e5), pytest.approx(2e5)),
    ]
    assert spans[0]["args"]["flops"] == 5e8
    assert json.loads(save(p, tmp_path / "a.json").read_text())["otherData"]["peaks"] == str(PEAKS)
    with pytest.raises(ParameterError, match="no timeline"):
        save(profile(measured=False), tmp_path / "b.json")


def test_the_plot_has_a_dot_for_each_kernel_that_computes():
    pytest.importorskip("matplotlib")
    ax = profile().roofline()
    assert len(ax.collections) == 1
    assert ax.get_xscale() == ax.get_yscale() == "log"
