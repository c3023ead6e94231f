"""`quantize(f, "auto")`: what loses most leaves 8 bits, as far as the results need it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.quant import Layered, automatic, calibration
from nxjax.quant.function import _chosen
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import as_policy

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
    assert db(hard, nx.quantize(hard, "int8", calibrate=[(X,)]), X) < 10
    q = nx.quantize(hard, "auto", calibrate=[(X,)])
    assert db(hard, q, X) >= 20
    exceptions: Any = q.policy.exceptions  # type: ignore[attr-defined]
    # All multiply-accumulates are in this product, and 80 % of them stay in 8 bits.
    assert exceptions and "dot_general_0" not in exceptions


def test_without_a_policy_int8_widens_what_loses_most():
    q = nx.quantize(hard, calibrate=[(X,)])
    assert db(hard, q, X) >= 20 and q.trials[0].found < 10
    assert q.trials[0].share == q.trials[-1].share == 1.0 and q.trials[-1].sixteen + q.trials[-1].floats > 0
    assert "beyond 8 bits" in repr(q) and "products in 8 bits" in repr(q.trials)


def test_without_a_policy_what_8_bits_bear_stays_in_8_bits():
    f = lambda x: jnp.tanh(x @ W)
    q = nx.quantize(f, calibrate=[(X,)])
    assert (
        isinstance(q.policy, nx.quant.Scheme)
        and (np.asarray(q(X)) == np.asarray(nx.quantize(f, "int8", calibrate=[(X,)])(X))).all()
    )


def test_arguments_that_8_bits_spoil_leave_them():
    """Large and small numbers in one argument, of which only the small ones matter: its first grid is the loss."""

    def f(x: Any) -> Any:
        return jnp.transpose(x)[:8] * 3.0

    x = X * jnp.where(jnp.arange(16) < 8, 1e-3, 1.0)
    assert db(f, nx.quantize(f, "int8", calibrate=[(x,)], observer="minmax"), x) < 10
    assert db(f, nx.quantize(f, calibrate=[(x,)], observer="minmax"), x) >= 20


def test_what_is_measured_is_never_worse_than_int8():
    """A metric that likes int8 best gets it back, whatever the decibels say."""
    likes = lambda q: -abs(float(abs(q(X)).mean()) - plain)
    plain = float(abs(nx.quantize(hard, "int8", calibrate=[(X,)])(X)).mean())
    with pytest.warns(UserWarning, match="keeps the metric, .* within a budget of -1;") as told:
        q = nx.quantize(hard, "auto", calibrate=[(X,)], metric=likes, budget=-1.0)
    assert len(told) == 1 and told[0].filename == __file__
    assert likes(q) == max(t.found for t in q.trials) and q.trials[0].unit == "metric"


def test_a_function_that_8_bits_ruin_all_over():
    f = lambda x: jnp.sin(x) - jnp.sin(x + 1e-6)
    for policy in (None, "auto", "int8"):
        with pytest.warns(UserWarning, match="signal-to-noise") as told:
            nx.quantize(f, policy, calibrate=[(X,)])
        assert {w.filename for w in told} == {__file__}


def test_a_metric_decides():
    asked: list[float] = []

    def metric(f: Any) -> float:
        asked.append(-float(abs(np.asarray(f(X)) - np.asarray(hard(X))).mean()))
        return asked[-1]

    q = nx.quantize(hard, "auto", calibrate=[(X,)], metric=metric, budget=0.004)
    assert asked[0] == 0.0 and metric(q) >= -0.004


def test_what_left_8_bits_can_be_asked_where_nothing_did():
    f = lambda x: jnp.tanh(x @ W)
    for policy in (None, "auto", "int8"):
        assert nx.quantize(f, policy, calibrate=[(X,)]).policy.exceptions == {}


def test_a_loop_that_cannot_leave_8_bits_is_named():
    """Steps of very different size, whose results share one grid: the loop holds all products."""
    f = lambda p, x: nx.lax.scan(lambda h, w: (nx.nn.relu(h @ w), None), x, p["w"])[0]
    w = nx.random.normal(nx.random.key(3), (3, 16, 16)) * jnp.array([0.1, 1.0, 4.0])[:, None, None]
    with pytest.warns(UserWarning, match=r"most is lost in scan_0 .*test_automatic.*one grid for all steps") as told:
        q = nx.quantize(f, calibrate=[({"w": w}, X)])
    assert len(told) == len(q.trials) == 1 and 10 < q.trials.best < 20


def test_no_choice_is_measured_twice():
    """Two products, of which none may leave 8 bits: more layers are the same choice as fewer."""
    f = lambda x: jnp.tanh(x @ W) @ W
    asked: list[Any] = []
    away = lambda q: asked.append(getattr(q, "policy", None)) or -float(abs(np.asarray(q(X)) - np.asarray(f(X))).mean())
    with pytest.warns(UserWarning, match="keeps the metric, 0 in float"):
        q = nx.quantize(f, "auto", calibrate=[(X,)], metric=away, budget=1e-9)
    answers = [policy.exceptions for policy in asked[2:]]
    assert len(q.trials) == len(answers) > 1 and all(a not in answers[:i] for i, a in enumerate(answers))


def test_a_metric_that_is_kept_by_chance_keeps_the_decibels():
    q = nx.quantize(hard, "auto", calibrate=[(X,)], metric=lambda f: 1.0)
    assert db(hard, q, X) >= 20 and q.trials[0].unit == "dB"
    assert (q.trials[-1].unit, q.trials[-1].found, q.trials.best) == ("metric", 1.0, 1.0)
    assert "dB or metric" in repr(q.trials) and "1 metric" in repr(q.trials)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"metric": lambda q: None}, "metric of a function.*\n.*NoneType"),
        ({"metric": lambda q: float("nan")}, "metric of a function.*\n.*NaN"),
        ({"metric": lambda q: "1.0"}, "metric of a function.*\n.*str"),
        ({"metric": 3}, "metric.*\n.*int"),
        ({"budget": "a"}, "budget"),
        ({"budget": "20"}, "budget"),
        ({"budget": True}, "budget"),
        ({"budget": float("nan")}, "budget"),
    ],
)
def test_what_is_no_number_is_refused_by_name(wrong: dict[str, Any], told: str):
    with pytest.raises(nx.errors.ParameterError, match=told):
        nx.quantize(hard, "auto", calibrate=[(X,)], **wrong)


def test_a_budget_that_cannot_be_kept_gives_the_best():
    with pytest.warns(UserWarning, match="nothing that was measured reaches 1000 dB; the best: "):
        q = nx.quantize(hard, "auto", calibrate=[(X,)], budget=1000.0)
    assert db(hard, q, X) > 20


def test_errors():
    with pytest.raises(nx.errors.ParameterError, match='"auto" needs data'):
        nx.quantize(hard, "auto")
    with pytest.raises(nx.errors.ParameterError, match="metric and budget"):
        nx.quantize(hard, "int8", calibrate=[(X,)], budget=3.0)
    with pytest.raises(nx.errors.ParameterError, match="metric"):
        nx.quantize(hard, "auto", calibrate=[(X,)], metric=lambda f: float("nan"))


class _Known:
    """Layers whose noise is known; counts what is measured."""

    def __init__(self, noise: list[float]) -> None:
        self.each, self.asked = noise, list[int]()

    def noise(self, floats: list[bool], batches: int | None = None) -> list[float]:
        self.asked.append(floats.count(False))
        return [sum(n for n, wide in zip(self.each, floats, strict=True) if not wide)]


def test_layers_are_ranked_by_what_each_alone_does():
    """Blocks of layers that hardly do anything are measured together; a block with a loud one down to that layer."""

    def many(x: Any) -> Any:
        for _ in range(32):
            x = jnp.tanh(x)
        return x

    plan = PlannedCall(many, (X,), {}, None).plan(as_policy("int8"), "quantize", True)
    noise = [1e-6] * 32
    noise[11], noise[30] = 2.0, 1.0
    known: Any = _Known(noise)
    ranked = automatic._ranked(plan, known, False)
    assert [(c.name, c.place) for c in ranked[:2]] == [("tanh_11", 11), ("tanh_30", 30)]
    assert [c.lost for c in ranked[:2]] == [2.0, 1.0]
    assert np.allclose([c.lost for c in ranked[2:]], 1e-6) and sorted(c.place for c in ranked) == list(range(32))
    # All; four blocks; of two of them the halves, down to one layer.
    assert known.asked[0] == 32 and len(known.asked) == 1 + 4 + 2 * (2 + 2 + 2)


@pytest.mark.parametrize("policy", [None, "auto"])
def test_what_calibration_tells_is_told_once(policy: str | None):
    """Also where ranges for 16 bits are looked for later."""
    f = lambda x: jnp.stack([jnp.tanh(x @ W) - jnp.tanh(x @ W + 0.02), jnp.sin(x) * 0.0])
    with pytest.warns(UserWarning, match="always 0") as told:
        q = nx.quantize(f, policy, calibrate=[(X,)])
    assert len(told) == 1 and len(q.trials) > 1


def test_a_power_that_goes_to_float_reads_its_exponent():
    two, w = np.array([2.0], np.float32), np.random.default_rng(2).normal(size=(8, 8)).astype(np.float32)
    data = [(w, np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32))]
    f = lambda w, x: ((x @ w) ** two) @ w
    found = calibration.run(f, as_policy("int8"), data, "minmax", None, False)
    choice = automatic.Chosen(Layered(as_policy("int8"), {"pow_0": None}), found.ranges, {})
    y = np.asarray(_chosen(f, choice, None, found)(*data[0]))
    np.testing.assert_allclose(y, f(*data[0]), atol=0.02 * np.abs(y).max())
