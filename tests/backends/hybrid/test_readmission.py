"""Heat, probes that fail or hang, back-off, forks, and the end of the interpreter."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import HEAT, FaultPolicy, Health, HeatLimits, LaneOptions, Thermal
from nxjax.backends.hybrid.jobs import CALLER, Graph, Job
from nxjax.errors import ExecutionError, ParameterError


@dataclass
class Reading:
    celsius: float | None
    why: str = ""


def double(args: list[Any]) -> list[Any]:
    return [2 * args[0]]


def until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


GRAPH = Graph([Job("double", "npu", {"npu": double, "cpu": double}, ((CALLER, 0),))])


def test_a_hot_unit_is_out_and_comes_back_when_it_is_cool():
    now: list[Any] = [Reading(50)]
    options = {"npu": LaneOptions(sensor=lambda: now[0], heat=HEAT["npu"]), "cpu": LaneOptions()}
    with Engine(options, FaultPolicy(heat_period=0.002)) as engine:

        def unit() -> str:
            run = engine.submit(GRAPH, [4])
            assert run.result() == [8]
            return run.spans[0].unit

        def heat(reading: Any, state: str) -> None:
            now[0] = reading
            until(lambda: unit() and engine.health()["npu"].heat == state)

        assert unit() == "npu" and engine.health()["npu"].celsius == 50
        heat(Reading(82), "warm")
        assert unit() == "cpu" and engine.health()["npu"].state == "ok"
        heat(Reading(91), "hot")
        health = engine.health()["npu"]
        assert unit() == "cpu" and health.state == "out" and health.reason == "heat: above 85 degrees C"
        # Within the hysteresis, or unavailable: no change.
        now[0] = Reading(81)
        until(lambda: unit() and engine.health()["npu"].celsius == 81)
        now[0] = Reading(None, "no driver")
        until(lambda: unit() and engine.health()["npu"].heat_source == "no driver")
        assert engine.health()["npu"].heat == "hot" and engine.health()["npu"].celsius is None
        heat(Reading(60), "cool")
        assert unit() == "npu"
        assert [e.kind for e in engine.events] == ["warm", "out", "sensor", "back"]


def test_work_on_a_unit_that_gets_hot_is_redone():
    now, begun, release = [Reading(50)], threading.Event(), threading.Event()

    def slow(args: list[Any]) -> list[Any]:
        begun.set()
        release.wait()
        return [-1]

    graph = [Job("double", "npu", {"npu": slow, "cpu": double}, ((CALLER, 0),))]
    options = {"npu": LaneOptions(sensor=lambda: now[0]), "cpu": LaneOptions()}
    with Engine(options, FaultPolicy(heat_period=0.002)) as engine:
        run = engine.submit(graph, [3])
        begun.wait()
        now[0] = Reading(100)
        assert run.result(10) == [6]
        release.set()
        until(lambda: any(e.kind == "late" for e in engine.events))


def test_a_unit_that_is_hot_is_better_than_none():
    with Engine({"npu": LaneOptions(sensor=lambda: Reading(99))}) as engine:
        assert engine.submit(Graph([Job("double", "npu", {"npu": double}, ((CALLER, 0),))]), [3]).result() == [6]


@pytest.mark.parametrize("sensor", ["none", "raises", "nan", "nonsense", "hangs"])
def test_a_sensor_without_a_temperature_changes_nothing(sensor: str):
    release = threading.Event()

    def read() -> Any:
        if sensor == "raises":
            raise PermissionError("hwmon")
        if sensor == "hangs":
            release.wait()
        return {"none": None, "nan": Reading(float("nan")), "nonsense": 42}.get(sensor)

    with Engine({"npu": LaneOptions(sensor=read), "cpu": LaneOptions()}) as engine:
        run = engine.submit(GRAPH, [3])
        assert run.result() == [6] and run.spans[0].unit == "npu"
        health = engine.health()["npu"]
        assert (health.state, health.heat, health.celsius) == ("ok", "unknown", None)
        assert health.heat_source or sensor == "hangs"
        release.set()


@given(st.lists(st.one_of(st.none(), st.floats(0, 120)), max_size=30), st.floats(0, 10))
def test_heat_changes_only_as_the_limits_say(readings: list[float | None], hysteresis: float):
    limits = HeatLimits(80, 85, hysteresis)
    thermal = Thermal(limits)
    for celsius in readings:
        before = thermal.heat
        heat = thermal.read(0.0, celsius)
        if celsius is None:
            assert heat == before
        elif celsius > 85:
            assert heat == "hot"
        elif celsius > 80:
            assert heat in ("warm", "hot") and (heat == "warm" or (before == "hot" and celsius >= 85 - hysteresis))
        elif celsius < 75 - hysteresis:
            assert heat == "cool"


def test_policies_and_limits_say_what_is_wrong_with_them():
    for bad in (
        lambda: HeatLimits(90, 80),
        lambda: FaultPolicy(verify=2),
        lambda: FaultPolicy(backoff="x"),  # pyright: ignore[reportArgumentType]
        lambda: FaultPolicy(slack=-1),
        lambda: FaultPolicy(factor=0.5),
        lambda: FaultPolicy(lie_probes=-1),
        lambda: LaneOptions(lanes=0),
        lambda: Engine({}),
    ):
        with pytest.raises(ParameterError):
            bad()


def test_back_off_doubles_and_is_forgotten_after_good_work():
    health = Health(FaultPolicy(backoff=1, backoff_most=6, regain=3), 0.0)
    waits: list[float] = []
    for _ in range(4):
        health.take_out(10.0, "broken")
        waits.append(health.retry - 10.0)
        assert health.probe_passed(20.0) and health.state == "suspect"
        health.worked()
        assert health.state == "ok"
    assert waits == [1, 2, 4, 6]
    for _ in range(3):
        health.worked()
    health.take_out(10.0, "broken")
    assert health.retry == 11.0


def test_who_is_at_fault_shows_when_another_one_has_done_it():
    """What every unit raises is the program's, and leaves no trace; what only one raises is its own."""
    seen: list[str] = []

    def broken(name: str, words: str):
        def run(args: list[Any]) -> list[Any]:
            seen.append(name)
            raise OSError(words)

        return run

    options = {"npu": LaneOptions(probe=lambda: False), "cpu": LaneOptions()}
    with Engine(options, FaultPolicy(backoff=60)) as engine:
        for _ in range(3):
            runs = {"npu": broken("npu", "error 3"), "cpu": broken("cpu", "error 5")}
            with pytest.raises(OSError, match="error 3"):
                engine.submit([Job("wrong", "npu", runs, ((CALLER, 0),))], [1]).result()
        assert seen == ["npu", "cpu"] * 3 and not [e for e in engine.events if e.kind == "out"]
        assert [(h.state, h.failures) for h in engine.health().values()] == [("ok", 0)] * 2
        assert engine.submit(GRAPH, [3]).result() == [6]
        right = {"npu": broken("npu", "error 3"), "cpu": double}
        assert engine.submit([Job("right", "npu", right, ((CALLER, 0),))], [1]).result() == [2]
        health = engine.health()["npu"]
        assert (health.state, health.failures, health.reason) == ("out", 1, "right: OSError: error 3")
    # Nobody could do it, each for a reason of its own: all of them are out.
    with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}, FaultPolicy(backoff=60, tries=1)) as engine:
        runs = {"npu": broken("npu", "no driver"), "cpu": broken("cpu", "no memory")}
        with pytest.raises(ExecutionError, match="no unit is left"):
            engine.submit([Job("wrong", "npu", runs, ((CALLER, 0),))], [1]).result()
        assert {h.state for h in engine.health().values()} == {"out"}


def test_a_probe_that_hangs_raises_or_is_wrong_keeps_a_unit_out():
    release, asked = threading.Event(), [0]

    def probe() -> bool:
        asked[0] += 1
        if asked[0] == 1:
            release.wait()
        if asked[0] == 2:
            raise OSError("still broken")
        return asked[0] > 3

    def broken(args: list[Any]) -> list[Any]:
        if asked[0] < 4:
            raise OSError("device lost")
        return double(args)

    graph = Graph([Job("double", "npu", {"npu": broken, "cpu": double}, ((CALLER, 0),))])
    policy = FaultPolicy(backoff=0.005, backoff_most=0.01, probe=0.5)
    with Engine({"npu": LaneOptions(probe=probe), "cpu": LaneOptions()}, policy) as engine:
        assert engine.submit(graph, [1]).result() == [2]
        until(lambda: engine.health()["npu"].state == "suspect")
        texts = [e.text for e in engine.events if e.kind == "probe"]
        assert [t.split(";")[0] for t in texts] == [
            "stays out: a probe did not come back within 0.5 s",
            "stays out: raised in a probe: OSError: still broken",
            "stays out: gave a wrong answer to a probe",
        ]
        run = engine.submit(graph, [1])
        assert run.result() == [2] and run.spans[0].unit == "npu" and engine.health()["npu"].state == "ok"
        release.set()


def test_what_hangs_is_interrupted_before_it_is_asked_again():
    release = threading.Event()
    order: list[str] = []

    def hangs(args: list[Any]) -> list[Any]:
        release.wait()
        raise OSError("killed")

    def interrupt() -> None:
        time.sleep(0.02)
        order.append("interrupt")
        release.set()

    probe = lambda: not order.append("probe")
    graph = [Job("double", "npu", {"npu": hangs, "cpu": double}, ((CALLER, 0),))]
    policy = FaultPolicy(factor=1, slack=0.03, first=0, unknown=0, backoff=0.001)
    with Engine({"npu": LaneOptions(probe=probe, interrupt=interrupt), "cpu": LaneOptions()}, policy) as engine:
        assert engine.submit(graph, [1]).result() == [2]
        until(lambda: engine.health()["npu"].state == "suspect" and not engine.health()["npu"].lost)
        assert order == ["interrupt", "probe"]


def test_an_engine_that_is_dropped_ends_its_threads():
    engine = Engine({"cpu": LaneOptions(sensor=lambda: Reading(40))})
    graph = Graph([Job("double", "cpu", {"cpu": double}, ((CALLER, 0),))])
    run = engine.submit(graph, [3])
    assert run.result() == [6]
    names = lambda: [t.name for t in threading.enumerate() if t.name.startswith("nxjax-cpu")]
    assert names()
    core = weakref.ref(engine._core)
    del engine, run
    gc.collect()
    until(lambda: not names())
    # A thread that has just ended may hold it for a moment.
    until(lambda: gc.collect() >= 0 and core() is None, 60.0)  # a collection takes a while in a large process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_and_says_what_it_has_lost():
    # In a process without libraries that warn of forks.
    code = """
import os, threading, time
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.jobs import Graph, Job
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.errors import ExecutionError
double = lambda args: [args[0] * 2]
graph = Graph([Job("j", "npu", {"npu": double, "cpu": double}, ((-1, 0),))])
release = threading.Event()
parent = os.getpid()
asked = threading.Event()
def probe():
    asked.set()
    # In the parent it does not come back, and nobody waits for it in the child.
    return os.getpid() != parent or release.wait()
def lost_device(args):
    raise OSError("device lost")
units = {"npu": LaneOptions(), "cpu": LaneOptions(), "gpu": LaneOptions(probe=probe)}
with Engine(units, FaultPolicy(backoff=0.001, probe=60)) as engine:
    assert engine.submit(Graph([Job("g", "gpu", {"gpu": lost_device, "cpu": double}, ((-1, 0),))]), [1]).result() == [2]
    asked.wait()
    under_way = engine.submit(Graph([Job("slow", "cpu", {"cpu": lambda args: [release.wait()]})]))
    assert engine.submit(graph, [1]).result() == [2]
    child = os.fork()
    if not child:
        code = 1
        try:
            right = engine.submit(graph, [5]).result(5) == [10]
            lost = isinstance(under_way.exception(5), ExecutionError)
            end = time.monotonic() + 5
            while (state := engine.health()["gpu"].state) in ("out", "probing") and time.monotonic() < end:
                time.sleep(0.005)
            code = 0 if right and lost and state == "suspect" else 2
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    release.set()
    print(under_way.result(5))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n[True]\n", "")


def test_the_interpreter_ends_while_lanes_hang():
    code = """
import threading
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.jobs import Job
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
hang = lambda args: threading.Event().wait()
engine = Engine({"npu": LaneOptions(probe=hang), "cpu": LaneOptions()}, FaultPolicy(0 + 1, 0.02, 0, unknown=0))
print(engine.submit([Job("j", "npu", {"npu": hang, "cpu": lambda args: [7]})]).result())
engine.submit([Job("k", "cpu", {"cpu": hang})])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[7]\n", "")
