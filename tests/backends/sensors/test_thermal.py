"""The thermal policy: what is decided, what is undone, and that nobody is left without a unit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.sensors import Reading
from nxjax.backends.sensors.thermal import DEFAULT, STRATEGIES, Thresholds, policy
from nxjax.errors import ParameterError


def at(**celsius):
    return {unit: Reading(celsius=c, source="test") for unit, c in celsius.items()}


def did(decision):
    return [(a.unit, a.strategy) for a in decision.actions]


def test_a_chip_warms_up_and_cools_down():
    state = None
    steps = [
        (79.0, [], "ok"),
        (81.0, [("npu", "lower-power"), ("npu", "prefer-others")], "warm"),
        (84.0, [], "warm"),
        (85.5, [("npu", "take-out")], "out"),
        (84.0, [], "out"),
        (80.0, [("npu", "readmit"), ("npu", "restore-power")], "ok"),
        (82.0, [("npu", "lower-power"), ("npu", "prefer-others")], "warm"),
        (76.0, [], "warm"),
        (74.0, [("npu", "restore-power")], "ok"),
    ]
    for celsius, actions, stands in steps:
        decision = policy(at(npu=celsius, cpu=50.0), DEFAULT, state)
        assert (did(decision), decision.states["npu"]) == (actions, stands), celsius
        state = decision.states
        assert decision.usable[0] == ("npu" if stands == "ok" else "cpu")


def test_limits_are_each_kinds_own():
    hot = policy(at(npu=86.0, cpu=86.0, gpu=99.0))
    assert hot.states == {"npu": "out", "cpu": "warm", "gpu": "warm"}
    assert policy(at(gpu=99.0, cpu=20.0), Thresholds(gpu_max=95.0)).states["gpu"] == "out"
    assert policy({"npu:1": Reading(celsius=86.0), "cpu": Reading(celsius=20.0)}).states["npu:1"] == "out"


def test_no_figure_is_no_reason():
    silent = {"npu": Reading(why="no NPU"), "cpu": Reading(celsius=95.0)}
    assert policy(silent).states == {"npu": "ok", "cpu": "out"}
    assert policy(silent, before={"npu": "out", "cpu": "ok"}).states == {"npu": "out", "cpu": "warm"}
    assert did(policy({"npu": Reading(why="no NPU"), "cpu": Reading(celsius=20.0)}, before={"npu": "out"})) == []


def test_the_last_unit_stays():
    decision = policy(at(npu=90.0, cpu=91.0))
    assert decision.states == {"npu": "out", "cpu": "warm"} and ("cpu", "lower-power") in did(decision)
    again = policy(at(npu=90.0, cpu=91.0), before={"npu": "out", "cpu": "out"})
    assert again.states == {"npu": "out", "cpu": "warm"} and did(again) == [("cpu", "readmit")]


@pytest.mark.parametrize("wrong", [{"back": -1.0}, {"npu_max": 70.0}, {"warning": float("nan")}])
def test_thresholds_have_an_order(wrong):
    with pytest.raises(ParameterError, match="thermal policy"):
        Thresholds(**wrong)


CELSIUS = st.one_of(st.none(), st.floats(0, 120))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CELSIUS, CELSIUS, CELSIUS), min_size=1, max_size=12))
def test_whatever_happens_somebody_computes_and_nothing_is_said_twice(steps):
    state = None
    for npu, gpu, cpu in steps:
        readings = {u: Reading(celsius=c) for u, c in (("npu", npu), ("gpu", gpu), ("cpu", cpu))}
        decision = policy(readings, Thresholds(gpu_max=95.0), state)
        assert decision.usable
        assert all(a.strategy in STRATEGIES and a.reason for a in decision.actions)
        assert len(set(did(decision))) == len(decision.actions)
        # The same temperatures again ask for nothing new.
        assert policy(readings, Thresholds(gpu_max=95.0), decision.states).actions == ()
        state = decision.states
