"""Units that lie: found by a second, settled by a third, and what stands on their answers is redone."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import CALLER, Graph, Job, agree, has_nan
from nxjax.backends.hybrid.trying import History
from nxjax.errors import ExecutionError, ParameterError
from nxjax.trace.array import wrap
from tests.backends.hybrid.fakes import Fake, FakeStep


def double(args: list[Any]) -> list[Any]:
    return [args[0] * 2]


def lies(args: list[Any]) -> list[Any]:
    return [args[0] * 2 + 1]


def chain(n: int, exact: bool = True, **runs: Any) -> Graph:
    first = next(iter(runs))
    return Graph([Job(f"j{i}", first, runs, ((i - 1, 0),), exact=exact) for i in range(n)])


def units(*names: str, trusted: str = "", **options: Any) -> dict[str, LaneOptions]:
    return {name: LaneOptions(trusted=name == trusted, **options) for name in names}


X = np.arange(4, dtype=np.int32)
ALL = FaultPolicy(verify=1.0, backoff=0.01, lie_probes=0)


def test_a_liar_is_found_and_its_earlier_answers_are_redone():
    graph = chain(5, npu=lies, gpu=double, cpu=double)
    with Engine(units("npu", "gpu", "cpu"), ALL) as engine:
        runs = [engine.submit(graph, [X + n]) for n in range(6)]
        for n, run in enumerate(runs):
            assert run.result()[0].tolist() == (32 * (X + n)).tolist()
        health = engine.health()
        assert health["npu"].state == "out" and health["npu"].retry_in is None
        assert "wrong results" in health["npu"].reason
        assert {health["gpu"].state, health["cpu"].state} == {"ok"}
        assert sum(e.kind == "lie" for e in engine.events) == 1
        assert not [s for s in engine.submit(graph, [X]).spans if s.unit == "npu"]


def test_a_liar_among_those_who_check_is_found_too():
    graph = chain(3, cpu=double, npu=lies, gpu=double)
    with Engine(units("cpu", "npu", "gpu"), ALL) as engine:
        for _ in range(6):
            assert engine.submit(graph, [X]).result()[0].tolist() == (8 * X).tolist()
        assert engine.health()["npu"].state == "out" and engine.health()["cpu"].failures == 0


def test_between_two_the_trusted_one_is_right_and_without_one_it_is_an_error():
    graph = chain(2, npu=lies, cpu=double)
    with Engine(units("npu", "cpu", trusted="cpu"), ALL) as engine:
        assert engine.submit(graph, [X]).result()[0].tolist() == (4 * X).tolist()
    with (
        Engine(units("npu", "cpu"), ALL) as engine,
        pytest.raises(ExecutionError, match="npu and cpu disagree about j0"),
    ):
        engine.submit(graph, [X]).result()


def test_the_trusted_one_is_not_outvoted():
    graph = chain(3, npu=lies, gpu=lies, cpu=double)
    with Engine(units("npu", "gpu", "cpu", trusted="cpu"), ALL) as engine:
        for n in range(5):
            assert engine.submit(graph, [X + n]).result()[0].tolist() == (8 * (X + n)).tolist()
        health = engine.health()
        assert health["cpu"].state == "ok" and health["npu"].state == "out"
    with Engine(units("cpu", "npu", "gpu", trusted="cpu"), ALL) as engine:
        run = engine.submit(chain(3, cpu=double, npu=lies, gpu=lies), [X])
        assert run.result()[0].tolist() == (8 * X).tolist() and {s.unit for s in run.spans} == {"cpu"}


def test_nothing_is_checked_where_nobody_asked_for_it_or_nobody_can():
    graph = chain(2, npu=lies, cpu=double)
    with Engine(units("npu", "cpu", trusted="cpu"), FaultPolicy(verify=0)) as engine:
        run = engine.submit(graph, [X])
        run.result()
        assert [s.outcome for s in run.spans] == ["done", "done"]
    with Engine(units("npu", "cpu"), ALL) as engine:  # floats, and no tolerance is given
        run = engine.submit(chain(1, exact=False, npu=double, cpu=lies), [X * 1.0])
        run.result()
        assert len(run.spans) == 1
        engine.take_out("cpu")
        engine.submit(graph, [X]).result()
        assert [e.kind for e in engine.events][-1] == "unchecked"


def test_a_check_is_done_by_the_unit_that_was_asked_though_another_of_its_group_is_idle():
    options = {"npu": LaneOptions(), "host0": LaneOptions(group="host"), "host1": LaneOptions(group="host")}
    with Engine(options, ALL) as engine:
        engine.submit([Job("first", "host1", {"host1": double}, ((CALLER, 0),))], [X]).result(20)
        run = engine.submit(chain(1, npu=double, host0=double, host1=double), [X])
        assert run.result(20)[0].tolist() == (2 * X).tolist()
        assert [(s.unit, s.outcome) for s in run.spans] == [("npu", "done"), ("host0", "checked")]


def checks(engine: Engine, graph: Graph, calls: int) -> list[int]:
    """The calls of which an answer was asked of a second unit."""
    runs = [engine.submit(graph, [X]) for _ in range(calls)]
    for run in runs:
        run.result()
    return [n for n, run in enumerate(runs) if any(s.outcome == "checked" for s in run.spans)]


def test_first_answers_and_a_fraction_of_the_others_are_checked_unless_told():
    assert 0 < FaultPolicy().verify < 1
    graph = chain(1, npu=double, cpu=double)
    with Engine(units("npu", "cpu", trusted="cpu"), FaultPolicy(verify=1e-9)) as engine:
        assert checks(engine, graph, 50) == [0]
        # Whoever comes back begins anew.
        engine.take_out("npu")
        engine.readmit("npu")
        assert checks(engine, graph, 50) == [0]
        # The host's own answers are the meaning.
        assert checks(engine, chain(1, cpu=double, npu=double), 5) == []
    with Engine(units("npu", "cpu", trusted="cpu")) as engine:
        found = checks(engine, graph, 1000)
        assert found[0] == 0 and 2 <= len(found) <= 40
    wrong = iter([False] * 60)
    later = lambda args: lies(args) if next(wrong, True) else double(args)
    with Engine(units("npu", "cpu", trusted="cpu")) as engine:
        graph = chain(1, npu=later, cpu=double)
        for _ in range(1000):
            engine.submit(graph, [X]).result()
        assert engine.health()["npu"].state != "ok" or engine.health()["npu"].failures


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_the_probability_of_finding_a_fault_is_what_happens(share):
    """One answer in five is wrong at random: units are found as often, within so many answers, as is said."""
    graph, rate, calls, units_tried = chain(1, npu=double, cpu=double), 0.2, 20, 60
    policy = FaultPolicy(verify=share, lie_probes=0)
    found = 0
    rng = np.random.default_rng(0)
    for seed in range(units_tried):
        wrong = iter(rng.random(calls) < rate)
        runs = {"npu": lambda args, wrong=wrong: lies(args) if next(wrong) else double(args), "cpu": double}
        graph = Graph([Job("j", "npu", runs, ((CALLER, 0),), exact=True)])
        with Engine(units("npu", "cpu", trusted="cpu"), replace(policy, seed=seed)) as engine:
            for _ in range(calls):
                engine.submit(graph, [X]).result()
            health = engine.health()["npu"]
            found += health.state == "out"
            assert health.checked <= health.answers
    expected = units_tried * policy.detection(calls, rate)
    assert abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected / units_tried)) + 1e-6


def test_the_probability_of_finding_a_fault_has_its_limits():
    policy = FaultPolicy()
    assert policy.detection(0, 1) == 0 and policy.detection(1, 1) == 1 and policy.detection(9, 0) == 0
    assert FaultPolicy(verify=1.0).detection(3, 0.5) == 1 - 0.5**3
    for wrong in ((-1, 0.5), (1, 2.0), (1, float("nan"))):
        with pytest.raises(ParameterError, match="detection"):
            policy.detection(*wrong)
    with Engine(units("npu", "cpu", trusted="cpu"), FaultPolicy(verify=1.0)) as engine:
        for _ in range(5):
            engine.submit(chain(1, npu=double, cpu=double), [X]).result()
        assert engine.health()["npu"].checked == 5 and engine.health()["cpu"].checked == 0


def test_floats_are_compared_with_a_tolerance():
    nearly = lambda args: [args[0] * 2 * np.float32(1 + 1e-5)]
    x = X.astype(np.float32)
    for relative, found in ((1e-3, False), (1e-7, True)):
        policy = FaultPolicy(verify=1.0, tolerance=relative)
        with Engine(units("npu", "cpu", trusted="cpu"), policy) as engine:
            engine.submit(chain(1, exact=False, npu=nearly, cpu=double), [x]).result()
            assert (engine.health()["npu"].state == "out") == found
    # A job may say so itself, and a policy otherwise.
    runs = {"npu": nearly, "cpu": double}
    for job, policy, found in ((1e-3, None, False), (1e-7, None, True), (1e-7, 1e-3, False)):
        with Engine(units("npu", "cpu", trusted="cpu"), FaultPolicy(tolerance=policy)) as engine:
            engine.submit([Job("j", "npu", runs, ((CALLER, 0),), tolerance=job)], [x]).result()
            assert (engine.health()["npu"].state == "out") == found


def test_integers_that_floats_decide_are_compared_among_exact_units():
    best = lambda args: [args[0] * 2, np.argmax(args[0], keepdims=True)]
    wrong = lambda args: [args[0] * 2, np.argmax(args[0], keepdims=True) - 1]
    graph = [Job("j", "npu", {"npu": wrong, "cpu": best}, ((CALLER, 0),), tolerance=0.1)]
    with Engine(units("npu", "cpu", trusted="cpu"), FaultPolicy(verify=1.0, tolerance=1e-6)) as engine:
        x = X.astype(np.float32)
        assert engine.submit(graph, [x]).result()[1] == 3
        assert engine.health()["npu"].state == "out"


def test_a_nan_is_asked_about():
    nan = lambda args: [args[0] * np.float32("nan")]
    x = X.astype(np.float32)
    with Engine(units("npu", "gpu", "cpu"), FaultPolicy(nan=True)) as engine:
        y = engine.submit(chain(2, exact=False, npu=nan, gpu=double, cpu=double), [x]).result()[0]
        assert y.tolist() == (4 * x).tolist() and engine.health()["npu"].state == "out"
        # One that everybody finds is the program's.
        y = engine.submit(chain(1, exact=False, gpu=nan, cpu=nan), [x]).result()[0]
        assert np.isnan(y).all() and engine.health()["gpu"].state == "ok"


def test_a_liar_comes_back_after_several_right_answers_in_a_row():
    answers = iter([True, False, True, True, True])
    asked: list[bool] = []

    def probe() -> bool:
        asked.append(next(answers))
        return asked[-1]

    policy = FaultPolicy(verify=1.0, backoff=0.001, backoff_most=0.002, lie_probes=3)
    options = {"npu": LaneOptions(probe=probe), "gpu": LaneOptions(), "cpu": LaneOptions()}
    with Engine(options, policy) as engine:
        engine.submit(chain(1, npu=lies, gpu=double, cpu=double), [X]).result()
        end = time.monotonic() + 10
        while engine.health()["npu"].state in ("out", "probing"):
            assert time.monotonic() < end
            time.sleep(0.001)
        assert asked == [True, False, True, True, True]


def test_a_callback_that_has_seen_wrong_results_ends_the_run():
    slowly = lambda args: time.sleep(0.05) or double(args)
    jobs = [
        Job("wrong", "npu", {"npu": lies, "gpu": slowly, "cpu": slowly}, ((CALLER, 0),), exact=True),
        Job("effect", "cpu", {"cpu": double}, ((0, 0),), pure=False),
    ]
    with (
        Engine(units("npu", "gpu", "cpu"), ALL) as engine,
        pytest.raises(ExecutionError, match="effect, which cannot be run again, has seen them"),
    ):
        engine.submit(jobs, [X]).result()


def test_what_counts_as_the_same():
    zero, half = np.float32([0.0, np.nan]), np.float16([0.5])
    assert agree([zero], [zero.copy()], exact=True, tolerance=None)
    assert not agree([zero], [-zero], exact=True, tolerance=None)
    assert agree([zero], [np.float32([5, np.nan])], exact=False, tolerance=None)
    assert not agree([zero], [np.float32([0, 0])], exact=False, tolerance=None)
    assert not agree([half], [half.astype(np.float32)], exact=False, tolerance=1.0)
    assert not agree([X], [X, X], exact=True, tolerance=None)
    # What floats hang on a rounding may be another integer; what is small beside the largest may be another small one.
    assert agree([X], [X + 1], exact=False, tolerance=0.1) and not agree([X], [X + 1], exact=True, tolerance=None)
    assert not agree([X], [X + (X == 3)], exact=False, tolerance=0.1, integers=True)
    many = np.arange(5000)
    assert agree([many], [many + (many == 3)], exact=False, tolerance=0.1, integers=True)
    wide, inf = np.float32([1000, 0, np.inf]), np.float32([np.inf])
    assert agree([wide], [wide + 50], exact=False, tolerance=0.1)
    assert not agree([wide], [wide + 150], exact=False, tolerance=0.1)
    assert not agree([inf], [-inf], exact=False, tolerance=0.1) and agree([inf], [inf], exact=False, tolerance=0.0)
    assert not agree([X], [X[:2]], exact=True, tolerance=None)
    assert has_nan([X, zero]) and not has_nan([X, half])


@pytest.mark.parametrize("wrong", ["zeros", "another sign", "labels"])
def test_units_that_are_not_exact_are_checked_by_default(wrong):
    """A chip that rounds by itself, and gives what rounding does not explain: no wrong result is delivered."""
    weights = np.random.default_rng(0).normal(size=(16, 10)).astype(np.float32)
    f = lambda x: jnp.argmax(x @ weights, -1) if wrong == "labels" else jnp.tanh(x @ weights)
    distort = {"zeros": lambda y: y * 0, "another sign": lambda y: -y, "labels": lambda y: (y + 1) % 10}[wrong]

    class Chip(Fake):
        def prepare(self, program):
            step = super().prepare(program)

            class Bad(FakeStep):
                def __call__(self, args):
                    return [wrap(distort(np.array(y.numpy()))) for y in step(args)]

            return Bad(self, program)

    x = np.random.default_rng(1).normal(size=(64, 16)).astype(np.float32)
    device = nx.Hybrid(Chip(exact=False, seconds=1e-9), "cpu", measure=False, history=History(kept=False))
    np.testing.assert_allclose(np.asarray(nx.jit(f, device=device)(x)), np.asarray(f(x)), atol=1e-5)
    assert device.health()["chip"].state == "out"


def test_rounding_of_a_unit_that_is_not_exact_is_no_fault():
    class Chip(Fake):
        def prepare(self, program):
            step = super().prepare(program)

            class Half(FakeStep):
                def __call__(self, args):
                    return [wrap(np.array(y.numpy()).astype(np.float16).astype(np.float32)) for y in step(args)]

            return Half(self, program)

    x = np.random.default_rng(1).normal(size=(64, 16)).astype(np.float32)
    device = nx.Hybrid(Chip(exact=False, seconds=1e-9), "cpu", measure=False, history=History(kept=False))
    nx.jit(lambda x: jnp.tanh(x) * 3, device=device)(x)
    assert device.health()["chip"].state == "ok"
