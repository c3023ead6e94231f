"""`explain_retrace` says what differs from the nearest earlier call, with the line and the fix."""

import functools
import logging

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError, TransformDisabledError


@functools.partial(nx.jit, static_argnames=("n", "act"))
def step(params, x, n=1, act=None):
    return params["w"] * x * n


def loss(x):
    return x * 3


def test_every_kind_of_change_is_named():
    w = {"w": jnp.ones(3)}
    step(w, 1.0)
    step(w, jnp.float32(2))
    step(w, jnp.ones(3))
    step(w, jnp.ones(3, jnp.bfloat16))
    step(w, jnp.ones(3, jnp.bfloat16), n=2)
    step(w, jnp.ones(3, jnp.bfloat16), n=3)
    step({**w, "b": jnp.ones(1)}, 1.0)
    for _ in range(2):
        step(w, 1.0, act=lambda x: x)
    with nx.numpy_rank_promotion("warn"):
        step(w, 1.0)
    report = nx.explain_retrace(step)
    found = [reasons[0].what if reasons else "" for reasons in report.reasons]
    wanted = (
        "", "weak type", "x: shape () -> (3,)", "dtype float32 -> bfloat16", "'n' was not given", "'n': 2 -> 3",
        "another tree: now with params['b']", "'act' was not given", "a new function object", "numpy_rank_promotion",
    )  # fmt: skip
    assert len(found) == len(wanted) == report.count
    for text, part in zip(found, wanted, strict=True):
        assert part in text, (part, text)
    assert "test_retrace.py" in found[1] and all(r[0].fix for r in report.reasons[1:])
    assert "why:" in str(report) and "<table>" in report._repr_html_()
    assert all(0 < seconds < 1000 for seconds in report.seconds)


def test_functions_made_anew_and_settings(caplog):
    for _ in range(3):
        nx.jit(loss)(1.0)
    report = nx.explain_retrace(loss)
    assert report.count == 3 and "a new function object" in report.reasons[2][0].what
    f = nx.jit(lambda x: x + 1)
    with caplog.at_level(logging.WARNING, "nxjax"), nx.explain_cache_misses(True), nx.log_compiles(True):
        f(jnp.ones(2))
        f(jnp.ones(3))
    assert "shape (2,) -> (3,)" in caplog.text and "Compiled <lambda>" in caplog.text
    f.clear_cache()
    assert str(nx.explain_retrace(f)) == "<lambda>: was not traced yet"
    with pytest.raises(ParameterError, match="jitted function"):
        nx.explain_retrace(3)
    with pytest.raises(TransformDisabledError), nx.no_tracing(True):
        f(1.0)
