"""The debugger of a running program, and its log."""

import io
import logging

import nxjax as nx


def test_a_breakpoint_under_jit_shows_values():
    out = io.StringIO()

    @nx.jit
    def f(x, n=3):
        y = x + 1
        nx.debug.breakpoint(stdin=io.StringIO("p y\ny * 2 + 1\nw\nu\nd\na\nunknown\nc\n"), stdout=out)
        return y * n

    assert f(1.0) == 6
    text = out.getvalue()
    assert "Array(2." in text and "Array(5." in text and "NameError" in text and "test_prompt.py" in text


def test_log(caplog):
    with caplog.at_level(logging.INFO, "nxjax.debug"):
        nx.jit(lambda x: nx.debug.log("x = {}", x))(1.0)
    assert "x = 1.0" in caplog.text
