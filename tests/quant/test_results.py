"""What calibration tells of results: poor ones, and values that were nothing but zeros."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.quant import results
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import as_policy

X = nx.random.normal(nx.random.key(0), (64, 8))


def told(f: Any, *args: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        nx.quantize(f, "int8", calibrate=[args], **options)
    return [str(w.message) for w in found]


def test_a_poor_result_names_the_layers_that_lose():
    """A difference of two large values that are nearly the same is nothing but rounding."""
    f = lambda x: jnp.sin(x) - jnp.sin(x + 1e-3)
    (said,) = told(f, X)
    assert "the result has a signal-to-noise ratio of" in said and "sub_0" in said and "test_results.py:" in said
    assert '"auto"' in said and "nx.quant.compare" in said


def test_a_good_result_says_nothing():
    assert told(lambda x: jnp.tanh(x) * 2, X) == []


def test_one_poor_result_of_several_is_told():
    (said,) = told(lambda x: (x * 2, jnp.sin(x) - jnp.sin(x + 1e-3)), X)
    assert "result 1 has" in said


@pytest.mark.parametrize(("scale", "what"), [(0.0, "always 0"), (1e-30, "never larger than")])
def test_calibration_with_nothing_is_told(scale: float, what: str):
    said = told(lambda x: (x + 0.0) * 2, X * scale)
    assert any(what in s and "in_0 (" in s and "test_results.py:" in s and "real samples" in s for s in said)


def test_a_value_that_is_always_0_is_told():
    (said,) = [s for s in told(lambda x: nx.nn.relu(jnp.sin(x) - 9.0) + x, X) if "always 0" in s]
    assert "in_0" not in said


def test_a_constant_of_zeros_is_not_told():
    """The bias of a new layer norm, whether it is a parameter or closed over, is what it is meant to be."""
    for given in ({"g": jnp.ones(8), "b": jnp.zeros(8)}, None):
        p = given or {"g": jnp.ones(8), "b": jnp.zeros(8)}
        norm = lambda p, x: nx.nn.layer_norm(x, p["g"], p["b"])
        assert told(norm, p, X) == [] if given else told(lambda x, p=p, norm=norm: norm(p, x), X) == []


def test_decibels():
    assert results.sqnr(10.0, 1.0) == 10.0 and results.sqnr(1.0, 0.0) == np.inf


def test_half_of_what_is_compared_are_the_results():
    """However many layers there are: a few dB in all of them are not worth many in the result."""
    layers = [results.Layer(str(i), None, 20.0, 21.0, False) for i in range(50)]
    better = [layer._replace(after=22.0) for layer in layers]
    assert results.Quality([15.0], [], layers).mean > results.Quality([11.0], [], better).mean
    assert results.Quality([15.0], [], better).mean > results.Quality([15.0], [], layers).mean


@pytest.mark.parametrize("arranged", [lambda x: x, lambda x: x.T.reshape(2, -1)], ids=["as it is", "arranged anew"])
def test_a_small_part_of_a_result_is_a_result(arranged: Any):
    """Scores beside boxes: one grid of 8 bits for both leaves nothing of the scores, and hardly adds to the noise."""
    f = lambda x: arranged(jnp.concatenate([jnp.tanh(x) * 300, score(x)], 1))
    (said,) = told(f, X)
    # What arranges the scores loses as much as what joins them: rounding decides which of both is named third.
    assert "signal-to-noise" in said and ("concatenate_0" in said or "transpose_0" in said)
    qf = nx.quantize(f, calibrate=[(X,)])
    assert qf.trials[-1].found > 20.0
    off = np.abs(np.asarray(f(X) - qf(X)))
    assert off[np.asarray(f(X) == arranged(jnp.concatenate([jnp.tanh(X), score(X)], 1)))].max() < 0.05


def score(x: Any) -> Any:
    return jnp.sin(x) * 0.2


def test_parts_of_one_size_are_one_result():
    """Steps of a loop that stand side by side, of which one is quieter, are as good as all of them."""
    f = lambda x: jnp.concatenate([jnp.tanh(x), jnp.tanh(x) * 0.5], 1)
    call = PlannedCall(f, (X,), {}, None)
    plan = call.plan(as_policy("int8"), "quantize")
    owners, parts = results.parts(plan, StatisticsTrace(plan, Ranges()).run(call.values))
    assert owners == ["result 0", "result 0"] and [p.shape for p in parts] == [(64, 8), (64, 8)]
    rows = [[(1.0, 4.0, 1.0), (0.5, 2.0, 1.0)]]
    assert [each.tolist() for each in results.large_and_small(owners, rows)] == [[[4.5, 1.25]]]
    rows = [[(1.0, 4.0, 1.0), (0.125, 64.0, 64.0)]]
    assert [each.tolist() for each in results.large_and_small(owners, rows)] == [[[4.0, 1.0], [1.0, 1.0]]]
    assert results.quality(owners, rows, []).results == [0.0]
