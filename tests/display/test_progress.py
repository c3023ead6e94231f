"""Phases of a long call are shown where somebody watches; nothing is, where nobody does or a setting says so."""

import io
import sys
import time

import numpy as np
import pytest

import nxjax as nx
from nxjax.deploy.compile import PHASES
from nxjax.display import progress

X = np.ones((1, 4), np.float32)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compiled(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, **how: object) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite", **how)(X)
    assert artifact.bytes[4:8] == b"TFL3"
    return stream.getvalue()


def test_compile_names_its_phases(monkeypatch: pytest.MonkeyPatch):
    shown = compiled(io.StringIO(), monkeypatch, progress=True)
    assert "compiling for tflite" in shown and "4/4" in shown
    # The last one begins only where something here runs the file.
    places = [shown.find(phase) for phase in PHASES[:3]]
    assert -1 not in places and places == sorted(places)


def test_nobody_is_shown_what_is_quick_or_was_not_asked_for(monkeypatch: pytest.MonkeyPatch):
    assert compiled(io.StringIO(), monkeypatch) == ""
    assert compiled(Terminal(), monkeypatch, progress=False) == ""
    monkeypatch.setattr(progress, "DELAY", 60.0)
    assert compiled(Terminal(), monkeypatch) == ""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with nx.config.using(progress=False):
        assert compiled(Terminal(), monkeypatch) == ""
        assert "compiling for tflite" in compiled(Terminal(), monkeypatch, progress=True)


def test_a_long_phase_appears_by_itself_and_goes(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "DELAY", 0.01)
    with progress.Phases("making", ("first", "second"), None, "test") as phase:
        phase("second")
        for _ in range(500):
            if "second" in stream.getvalue():
                break
            time.sleep(0.01)
        else:
            pytest.fail("nothing was shown")
    # What was shown is cleared from the line.
    assert stream.getvalue().endswith("\r") and stream.getvalue().split("\r")[-2].strip() == ""


def test_an_error_ends_the_bar(monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(nx.errors.ParameterError):
        nx.compile(lambda x: (), target="tflite", progress=True)(X)
    assert "tracing" in stream.getvalue() and "4/4" not in stream.getvalue()
