"""`quantize(f, "auto")`: what loses most leaves 8 bits, as far as the results need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = nx.random.normal(nx.random.key(0), (64, 16))
W = nx.random.normal(nx.random.key(1), (16, 16)) / 4


def hard(x: Any) -> Any:
    """A product that 8 bits bear, and then a difference that they do not."""
    y = x @ W
    return jnp.tanh(y) - jnp.tanh(y + 0.02)


def db(f: Any, q: Any, x: Any) -> float:
    a, b = np.asarray(f(x)), np.asarray(q(x))
    return 10 * float(np.log10((a**2).sum() / ((b - a) ** 2).sum()))


def test_what_8_bits_bear_stays_in_8_bits():
    f = lambda x: jnp.tanh(x @ W)
    q = nx.quantize(f, "auto", calibrate=[(X,)])
    assert not getattr(q.policy, "exceptions", {})
    assert (np.asarray(q(X)) == np.asarray(nx.quantize(f, "int8", calibrate=[(X,)])(X))).all()


def test_results_are_as_good_as_they_have_to_be():
    assert db(hard, nx.quantize(hard, calibrate=[(X,)]), X) < 10
    q = nx.quantize(hard, "auto", calibrate=[(X,)])
    assert db(hard, q, X) >= 20
    exceptions: Any = q.policy.exceptions  # type: ignore[attr-defined]
    # All multiply-accumulates are in this product, and 80 % of them stay in 8 bits.
    assert exceptions and "dot_general_0" not in exceptions


def test_a_metric_decides():
    asked: list[float] = []

    def metric(f: Any) -> float:
        asked.append(-float(abs(np.asarray(f(X)) - np.asarray(hard(X))).mean()))
        return asked[-1]

    q = nx.quantize(hard, "auto", calibrate=[(X,)], metric=metric, budget=0.004)
    assert asked[0] == 0.0 and metric(q) >= -0.004


def test_a_budget_that_cannot_be_kept_gives_the_best():
    q = nx.quantize(hard, "auto", calibrate=[(X,)], budget=1000.0)
    assert db(hard, q, X) > 20


def test_errors():
    with pytest.raises(nx.errors.ParameterError, match='"auto" needs data'):
        nx.quantize(hard, "auto")
    with pytest.raises(nx.errors.ParameterError, match="metric and budget"):
        nx.quantize(hard, "int8", calibrate=[(X,)], budget=3.0)
