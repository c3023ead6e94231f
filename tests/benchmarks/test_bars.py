"""The table of the CPU compiler: it has the rows that it promises, and says what is below its bar."""

from dataclasses import replace

import numpy as np

from benchmarks import bars, peers
from benchmarks.products import wrong_sums
from benchmarks.runner import Figure
from nxjax.profiling.peaks import Peaks

MOST = Peaks(100.0, 1000.0, 2, "avx2")
FIGURE = Figure("sort", 1.0, 2.0, "numpy", 1 / 1.5, peers={"numpy": 2.0, "jax": 3.0})


def test_every_row_is_measured_by_some_module():
    assert sorted(name for name, _ in bars.work()) == sorted(bars.NAMES)


def test_a_row_is_held_against_all_its_bars():
    failures = lambda **new: bars.Line(replace(FIGURE, **new), MOST).failures
    assert failures() == []
    assert failures(ours=1.9) == ["time"]
    assert failures(against={"jax": 2.5}) == []
    assert failures(against={"jax": 3.5}) == ["time of jax"]
    assert failures(nbytes=90.0, share=0.8) == []
    assert failures(nbytes=70.0, share=0.8) == ["bandwidth"]
    assert failures(most=0.0) == ["wrong results"]
    memory = Figure("sort", 3.0, 2.0, "jax", 1.0, unit="B")
    assert bars.Line(FIGURE, MOST, memory).failures == ["memory"]


def test_the_table_says_the_reason(monkeypatch):
    monkeypatch.setitem(bars.REASONS, "sort", "it is too slow")
    lines = [bars.Line(replace(FIGURE, ours=1.9), MOST), bars.Line(replace(FIGURE, name="gather", flops=500.0), MOST)]
    text = bars.table(lines, MOST)
    assert "BELOW: time" in text
    assert "sort: it is too slow" in text
    assert "50% peak" in text
    assert "1 of 2" in text


def test_a_row_without_peers_is_said():
    line = bars.Line(replace(FIGURE, peer=None, peer_name="", peers={}), MOST)
    assert line.verdict == bars.ALONE
    text = bars.table([line, bars.Line(FIGURE, MOST)], MOST)
    assert "1 of 1 at or above" in text
    assert "1 more have no peer here" in text


def test_a_row_is_measured_beside_its_peers():
    x = np.arange(5.0, dtype=np.float32)
    row = peers.Row("add", lambda: (peers.ours(lambda x: x + 1, x), {"numpy": lambda: x + 1}), rounds=1, nbytes=40.0)
    figure = peers.measured(row)
    assert figure.peer_name == "numpy"
    assert figure.ours > 0
    assert "of a copy" in figure.note


def test_wrong_sums_are_counted(monkeypatch):
    assert wrong_sums() == 0
    saturating = lambda a, b: np.clip(a.astype(np.int32) @ b.astype(np.int32), -(2**15), 2**15 - 1)
    monkeypatch.setattr("benchmarks.products.nx.jit", lambda f: saturating)
    assert wrong_sums() > 5000
