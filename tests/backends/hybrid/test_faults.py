"""Units that raise, hang, die, give nonsense or come back: every run is right, once, and says what happened."""

import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import CALLER, Graph, Job
from nxjax.backends.hybrid.run import GraphRun, streamed
from nxjax.errors import ExecutionError, ParameterError, ShapeError

QUICK = FaultPolicy(factor=1, slack=0.05, first=0, unknown=0, last=4, backoff=0.01, probe=0.1)
PATIENT = FaultPolicy(backoff=0.01)


def double(args: list[Any]) -> list[Any]:
    return [2 * args[0]]


def job(unit: str, name: str = "double", inputs: tuple[tuple[int, int], ...] = ((CALLER, 0),), **runs: Any) -> Job:
    return Job(name, unit, runs, inputs)


def raises(error: BaseException):
    def run(args: list[Any]) -> list[Any]:
        raise error

    return run


def until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


def kinds(engine: Engine) -> list[tuple[str, str]]:
    return [(e.unit, e.kind) for e in engine.events]


def test_graphs_run_in_order_of_need_and_runs_side_by_side():
    add = lambda args: [args[0] + args[1], args[0]]
    graph = Graph(
        [
            job("a", a=double),
            job("b", "plus", ((0, 0), (CALLER, 1)), b=add),
            job("a", "again", ((1, 0), (1, 1)), a=add),
        ],
        outputs=[(2, 0), (CALLER, 1), (1, 1)],
    )
    with Engine({"a": LaneOptions(), "b": LaneOptions(lanes=2)}) as engine:
        runs = [engine.submit(graph, [n, 10]) for n in range(50)]
        assert [run.result() for run in runs] == [[4 * n + 10, 10, 2 * n] for n in range(50)]
        assert [(s.name, s.unit, s.outcome) for s in runs[7].spans] == [
            ("double", "a", "done"),
            ("plus", "b", "done"),
            ("again", "a", "done"),
        ]
        assert all(s.start <= s.moved <= s.finish for s in runs[7].spans)
        begin = lambda xs: engine.submit(graph, xs)
        found = streamed(begin, GraphRun.result, GraphRun.cancel, ([n, 1] for n in range(9)), lambda: 3)
        assert list(found) == [[4 * n + 1, 1, 2 * n] for n in range(9)]
        assert engine.submit([], []).result() == []
        assert not engine.events and {h.state for h in engine.health().values()} == {"ok"}


def test_a_graph_says_what_is_wrong_with_it():
    with pytest.raises(ParameterError, match="planned for a unit"):
        Graph([job("npu", cpu=double)])
    with pytest.raises(ParameterError, match="is not before"):
        Graph([job("cpu", inputs=((0, 0),), cpu=double)])
    with Engine({"cpu": LaneOptions()}) as engine:
        with pytest.raises(ParameterError, match="too few inputs"):
            engine.submit([job("cpu", cpu=double)])
        with pytest.raises(ExecutionError, match="no unit of this engine"):
            engine.submit([job("npu", npu=double)], [1])
    with pytest.raises(ExecutionError, match="closed"):
        engine.submit([job("cpu", cpu=double)], [1])


@pytest.mark.parametrize(
    "bad",
    [
        raises(OSError("device lost")),
        raises(SystemExit(3)),
        raises(MemoryError()),
        raises(GeneratorExit()),
        raises(ExecutionError("the driver is gone")),
        lambda args: None,
        lambda args: [],
        lambda args: [np.ones(3, np.int32)],
        lambda args: [np.ones(2, np.float32)],
        lambda args: args[0].__setitem__(0, 1),
    ],
    ids=["oserror", "exit", "memory", "generator", "execution", "none", "few", "shape", "dtype", "writes"],
)
def test_what_a_unit_does_wrong_is_redone_on_the_next(bad: Any, request: pytest.FixtureRequest):
    x = np.array([3, 4], np.int32)
    broken = Job(
        "double", "npu", {"npu": bad, "cpu": double}, ((CALLER, 0),), gives=(((2,), "int32"),), exact=True
    )  # fmt: skip
    after = job("npu", "after", ((0, 0),), npu=double, cpu=double)
    with Engine({"npu": LaneOptions(probe=lambda: False), "cpu": LaneOptions()}, PATIENT) as engine:
        run = engine.submit([broken, after], [x])
        assert run.result()[0].tolist() == [12, 16]
        assert [(s.name, s.unit, s.outcome) for s in run.spans][:2] == [
            ("double", "npu", "failed"),
            ("double", "cpu", "done"),
        ]
        assert ("npu", "redone") in kinds(engine)
        # A unit without the memory for one job is not broken.
        assert engine.health()["npu"].failures == (0 if "memory" in request.node.name else 1)
        assert x.tolist() == [3, 4]


def test_a_unit_that_hangs_is_left_and_its_late_answer_dropped():
    release = threading.Event()
    calls: list[str] = []

    def hangs(args: list[Any]) -> list[Any]:
        calls.append("npu")
        if len(calls) == 1:
            release.wait()
            return [-1]
        return double(args)

    with Engine({"npu": LaneOptions(probe=lambda: True), "cpu": LaneOptions()}, QUICK) as engine:
        graph = Graph([job("npu", npu=hangs, cpu=double)])
        runs = [engine.submit(graph, [n]) for n in range(4)]
        assert [run.result() for run in runs] == [[0], [2], [4], [6]]
        assert [s.unit for s in runs[0].spans] == ["cpu"]
        until(lambda: engine.health()["npu"].state != "out" and engine.health()["npu"].state != "probing")
        # Readmitted with a lane of its own, while the first still hangs.
        assert engine.health()["npu"].lost == 1
        again = engine.submit(graph, [21])
        assert again.result() == [42] and again.spans[0].unit == "npu"
        release.set()
        until(lambda: any(e.kind == "late" for e in engine.events))
        assert engine.health()["npu"].lost == 0
        assert [s.outcome for s in runs[0].spans] == ["done", "late"] and runs[0].result() == [0]


def test_a_slow_unit_that_is_alone_has_longer():
    def slow(args: list[Any]) -> list[Any]:
        time.sleep(0.1)
        return double(args)

    with Engine({"cpu": LaneOptions()}, QUICK) as engine:
        assert engine.submit([job("cpu", cpu=slow)], [4]).result() == [8]
        assert not engine.events


def test_every_unit_hangs():
    release = threading.Event()
    hangs = lambda args: [release.wait()]
    units = {"npu": LaneOptions(), "cpu": LaneOptions(probe=lambda: False)}
    with Engine(units, FaultPolicy(factor=1, slack=0.02, first=0, unknown=0, last=2, tries=1)) as engine:
        with pytest.raises(ExecutionError) as caught:
            engine.submit([job("npu", npu=hangs, cpu=hangs)], [1]).result(20)
        text = str(caught.value)
        assert "no unit is left that can run double" in text
        assert "npu:      deadline: double was not done" in text and "cpu:      deadline" in text
        assert "test_faults.py" in text
        release.set()


def test_the_programs_own_errors_reach_the_user_and_units_stay():
    def user(args: list[Any]) -> list[Any]:
        raise ValueError(f"bad value at {id(args):#x}")

    with Engine({"npu": LaneOptions(), "gpu": LaneOptions(), "cpu": LaneOptions()}, PATIENT) as engine:
        # The same on every unit; found by trying them all.
        with pytest.raises(ValueError, match="bad value") as caught:
            engine.submit([job("npu", npu=user, gpu=user, cpu=user)], [1]).result()
        assert "user" in [frame.name for frame in caught.traceback]
        assert {h.state for h in engine.health().values()} == {"ok"}
        assert [h.failures for h in engine.health().values()] == [0, 0, 0]
        # An error about the program, or one that is marked: not even tried elsewhere.
        marked = KeyError("callback")
        marked.__nxjax_program__ = True  # type: ignore[attr-defined]
        for error in (ShapeError("shapes do not fit"), marked):
            run = engine.submit([job("npu", npu=raises(error), cpu=double)], [1])
            assert run.exception() is error
            assert [s.unit for s in run.spans] == ["npu"]
        # Alone: tried again after a probe, then it is the program's.
        run = engine.submit([job("cpu", cpu=user)], [1])
        with pytest.raises(ValueError, match="bad value"):
            run.result()
        assert len(run.spans) == 2 and engine.health()["cpu"].state == "ok"


def test_impure_jobs_are_begun_once():
    seen: list[int] = []

    def effect(args: list[Any]) -> list[Any]:
        seen.append(args[0])
        raise OSError("broken pipe")

    impure = Job("effect", "npu", {"npu": effect, "cpu": effect}, ((CALLER, 0),), pure=False)
    with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}) as engine, pytest.raises(OSError, match="broken pipe"):
        engine.submit([impure], [5]).result()
    assert seen == [5]


def test_two_units_fail_at_once_and_a_third_helps_or_a_probe():
    lost = {"npu": True, "gpu": True, "cpu": True}

    def on(unit: str):
        def run(args: list[Any]) -> list[Any]:
            if lost[unit]:
                raise OSError("device lost")  # the same from all of them, and yet no fault of the program
            return double(args)

        return run

    def probe(unit: str):
        def ask() -> bool:
            lost[unit] = False
            return True

        return ask

    runs = {unit: on(unit) for unit in lost}
    graph = Graph([Job("double", "npu", runs, ((CALLER, 0),))])
    lost["cpu"] = False
    with Engine({u: LaneOptions(probe=probe(u)) for u in lost}, FaultPolicy(backoff=30)) as engine:
        run = engine.submit(graph, [4])
        assert run.result() == [8] and [s.unit for s in run.spans] == ["npu", "gpu", "cpu"]
        # Now two are out for half a minute, and the third fails: those are asked at once.
        lost["cpu"] = True
        run = engine.submit(graph, [5])
        assert run.result(10) == [10]
        assert [s.outcome for s in run.spans] == ["failed", "done"]
        assert (run.spans[-1].unit, "back") in kinds(engine)  # whichever probe came back first


def test_transfers_and_what_goes_wrong_in_them():
    def receive(value: Any, unit: str) -> Any:
        if unit == "npu":
            raise OSError("DMA error")
        return value

    first = job("npu", npu=double, cpu=double)
    for pure in (True, False):  # it has not begun
        seen: list[Any] = []
        runs = {"gpu": lambda args, seen=seen: seen.append(args[0]) or double(args)}
        second = Job("second", "gpu", runs, ((0, 0),), pure=pure)
        options = LaneOptions(receive=receive)
        with Engine({"npu": LaneOptions(), "gpu": options, "cpu": options}, FaultPolicy(backoff=60)) as engine:
            run = engine.submit([first, second], [1])
            assert run.result() == [4] and seen == [2]
            # The result is lost with the unit that it lay on, and made again.
            assert [(s.name, s.unit, s.outcome) for s in run.spans] == [
                ("double", "npu", "done"),
                ("second", "gpu", "failed"),
                ("double", "cpu", "done"),
                ("second", "gpu", "done"),
            ]
            assert engine.health()["npu"].reason == "its results do not come to gpu for second: OSError: DMA error"
    # What lies in the host's memory is not lost: then it is whoever fetches it.
    first, second = job("cpu", cpu=double), job("gpu", "second", ((0, 0),), gpu=double, cpu=double)
    broken = LaneOptions(receive=lambda value, unit: 1 / 0)
    with Engine({"cpu": LaneOptions(trusted=True), "gpu": broken}, FaultPolicy(backoff=60)) as engine:
        assert engine.submit([first, second], [1]).result() == [4]
        assert engine.health()["gpu"].reason == "second: ZeroDivisionError: division by zero"


def test_an_interrupt_while_waiting_cancels(monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()
    begun = threading.Event()
    later: list[int] = []

    def slow(args: list[Any]) -> list[Any]:
        begun.set()
        release.wait()
        return [1]

    with Engine({"cpu": LaneOptions()}) as engine:
        graph = [job("cpu", cpu=slow), job("cpu", "later", ((0, 0),), cpu=lambda args: later.append(1) or [1])]
        run = engine.submit(graph, [1])
        begun.wait()

        class Gate:
            def acquire(self, timeout: float) -> bool:
                raise KeyboardInterrupt

            def release(self) -> None: ...

        monkeypatch.setattr(run, "_gate", Gate())
        with pytest.raises(KeyboardInterrupt):
            run.result()
        assert run.done() and not run.cancel()
        with pytest.raises(CancelledError):
            run.result()
        with pytest.raises(TimeoutError):
            engine.submit(graph, [1]).result(0.01)
        release.set()
        assert engine.submit([job("cpu", cpu=double)], [3]).result() == [6]
    until(lambda: run.spans and run.spans[0].outcome == "cancelled")
    assert len(later) == 1  # of the second run, not of the cancelled one


def test_a_job_may_wait_for_another_run_of_its_engine():
    with Engine({"nest": LaneOptions()}) as engine:
        inner = Graph([job("nest", nest=double)])

        def outer(args: list[Any]) -> list[Any]:
            runs = [engine.submit(inner, [args[0] + n]) for n in range(2)]
            return [sum(run.result(10)[0] for run in runs)]

        graph = Graph([job("nest", "outer", nest=outer)])
        runs = [engine.submit(graph, [n]) for n in range(5)]
        assert [run.result(10) for run in runs] == [[4 * n + 2] for n in range(5)]
        assert not engine.events
        until(lambda: len([t for t in threading.enumerate() if t.name.startswith("nxjax-nest")]) <= 1)


def test_idle_host_lanes_take_work_from_busy_ones():
    both = threading.Barrier(2)

    def meet(args: list[Any]) -> list[Any]:
        both.wait(10)
        return [threading.current_thread().name]

    units = {"host0": LaneOptions(group="host"), "host1": LaneOptions(group="host"), "npu": LaneOptions()}
    with Engine(units) as engine:
        jobs = [Job(f"meet{i}", "host0", {"host0": meet, "host1": meet, "npu": meet}) for i in range(2)]
        run = engine.submit(Graph(jobs, [(0, 0), (1, 0)]))
        assert sorted(run.result(20)) == ["nxjax-host0-0", "nxjax-host1-0"]
        assert sorted(s.unit for s in run.spans) == ["host0", "host1"]


def test_a_unit_runs_no_more_at_once_than_it_has_lanes():
    now, most = [0], [0]
    lock = threading.Lock()

    def count(args: list[Any]) -> list[Any]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with lock:
            now[0] -= 1
        return [0]

    with Engine({"npu": LaneOptions(lanes=2)}) as engine:
        graph = Graph([Job("count", "npu", {"npu": count})])
        for run in [engine.submit(graph) for _ in range(12)]:
            run.result()
    assert most == [2]


def test_listeners_hear_and_their_errors_stay_with_them(capsys: pytest.CaptureFixture[str]):
    heard: list[str] = []

    def listener(event: Any) -> None:
        heard.append(event.kind)
        raise RuntimeError("the listener's own")

    with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}, FaultPolicy(backoff=60)) as engine:
        stop = engine.listen(listener)
        engine.take_out("npu", "maintenance")
        stop()
        run = engine.submit([job("npu", npu=double, cpu=double)], [1])
        assert run.result() == [2] and run.spans[0].unit == "cpu"
        health = engine.health()["npu"]
        assert (health.state, health.reason, health.retry_in) == ("out", "maintenance", None)
        engine.readmit("npu")
        assert engine.submit([job("npu", npu=double)], [1]).result() == [2]
    assert heard == ["out"]
    assert "the listener's own" in capsys.readouterr().err
