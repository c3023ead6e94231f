"""A plug-in in a process that is killed, stopped, lies, talks nonsense or does not start: the numbers are the same."""

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import CALLER, Graph, Job
from nxjax.backends.hybrid.plugin import Remote
from nxjax.backends.hybrid.run import GraphRun, streamed
from nxjax.errors import ExecutionError, ParameterError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a system without memfd")

VENDOR = str(Path(__file__).parents[1] / "children" / "fake_vendor.py")
X = np.arange(12, dtype=np.int32).reshape(3, 4)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def groups() -> set[int]:
    """The process groups that have a process."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.add(int(group))
    return found


def test_arrays_go_there_and_back():
    arrays = [
        X,
        np.arange(100_000, dtype=np.int64).reshape(10, -1)[:, ::2],
        np.float32(2.5) * np.ones((), np.float32),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.arange(4).astype(ml_dtypes.bfloat16),
        np.arange(4).astype(ml_dtypes.int4),
        np.full(50_000, 1 + 2j, np.complex64),
    ]
    with Remote(VENDOR, name="vendor") as remote:
        assert remote.describe()["device"] == "fake"
        step = remote.prepare(b"echo", "name")
        assert step.info == {"layers": 3} and step.artifact == b"compiled"
        for _ in range(2):
            for x, y in zip(arrays, step(arrays), strict=True):
                assert (x.dtype, x.shape) == (y.dtype, y.shape) and x.tobytes() == y.tobytes()
        # More, and less, shared memory than before.
        for n in (1_000_000, 10_000, 3_000_000):
            big = np.arange(n, dtype=np.int32)
            assert np.array_equal(remote.prepare(b"double", "name")([big])[0], big * 2)
        with pytest.raises(ExecutionError, match="ValueError: no form onnx"):
            remote.prepare(b"double", "onnx")
        remote.know(step, [X], [X])
        assert remote.probe() and remote.starts == 1
        remote.know(step, [X], [X + 1])
        assert not remote.probe()
        step.close()
        assert remote.prepare(b"sum", "name")([X, X])[0].tolist() == (X + X).tolist()
    with pytest.raises(ExecutionError, match="closed"):
        step([X])
    with pytest.raises(ParameterError):
        Remote([])


ENDS = {
    "raise": "RuntimeError: DMA timeout",
    "kill": "signal SIGKILL",
    "abort": "signal SIGABRT",
    "exit": "exit status 7",
    "stop": "did not answer in time",
    "sleep": "did not answer in time",
    "garbage": "nonsense",
    "truncated": "ended in run",
    "stall half": "did not answer in time",
    "stale": "an answer to question 0, not 3",
    "objects": "nonsense",
}


def test_whatever_a_process_does_it_is_an_error_and_the_next_one_works(tmp_path: Path):
    for n, (fault, text) in enumerate(ENDS.items()):
        options = {"fault": fault, "once": str(tmp_path / str(n))}
        with Remote(VENDOR, name="vendor", options=options, seconds=1.0 if "time" not in text else 0.3) as remote:
            remote.child()
            step = remote.prepare(b"double", "name")
            with pytest.raises(ExecutionError) as caught:
                step([X])
            assert text in str(caught.value) and "vendor" in str(caught.value), fault
            if fault not in ("raise", "kill", "stop", "garbage"):
                continue
            # Prepared again by itself, where the process is a new one.
            assert step([X])[0].tolist() == (2 * X).tolist()
            assert remote.starts == (1 if fault == "raise" else 2), fault


def test_the_program_is_to_blame_if_the_plug_in_says_so(tmp_path: Path):
    with Remote(VENDOR, name="npu", options={"fault": "program"}) as remote:
        step = remote.prepare(b"double", "name")
        graph = Graph([Job("double", "npu", {"npu": step, "cpu": lambda xs: [xs[0] * 2]}, ((CALLER, 0),))])
        with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}) as engine:
            run = engine.submit(graph, [X])
            with pytest.raises(ExecutionError, match="divides by zero"):
                run.result()
            assert engine.health()["npu"].state == "ok"


@pytest.mark.parametrize(("start", "text"), [("exit", "no device"), ("raise", "OSError: no device"), ("stall", "time")])
def test_a_process_that_does_not_start(start: str, text: str, tmp_path: Path):
    options = {"start": start, "once": str(tmp_path / "flag")}
    with Remote(VENDOR, name="vendor", options=options, start_seconds=5.0) as remote:
        with pytest.raises(ExecutionError, match="vendor") as caught:
            remote.probe()
        assert text in str(caught.value)
        if start != "raise":  # that process is there, without the plug-in
            assert remote.probe()
    with pytest.raises(ExecutionError, match="does not start"):
        Remote([str(tmp_path / "missing")], name="vendor").probe()
    with pytest.raises(ExecutionError, match="ended while it started"):
        Remote([sys.executable, "-c", "print('hello')"], name="vendor").probe()


def test_what_it_prints_is_no_answer_and_its_processes_end_with_it():
    remote = Remote(VENDOR, name="vendor", options={"fault": "print"})
    assert remote.prepare(b"double", "name")([X])[0].tolist() == (2 * X).tolist()
    child = remote.child()
    assert "junk on standard output" in child.log() and running(child.pid)
    pid = child.pid
    del remote, child
    gc.collect()
    assert not running(pid)
    with Remote(VENDOR, options={"fault": "sleep"}, seconds=0.5) as remote:
        step = remote.prepare(b"double", "name")
        pid = remote.child().pid
        with pytest.raises(ExecutionError):
            step([X])
        end = time.monotonic() + 10
        while pid in groups():  # of the plug-in, in which its own process was too
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("fault", ["kill", "stop", "lie", "garbage", "raise", "shape", "dtype", "print"])
def test_runs_over_a_faulty_process_have_the_bits_of_one_without_faults(fault: str, tmp_path: Path):
    options = {"fault": fault, "once": str(tmp_path / "flag"), "after": 2}
    with Remote(VENDOR, name="npu", options=options) as remote:
        step = remote.prepare(b"double", "name")
        remote.know(step, [X], [2 * X])
        host = lambda xs: [xs[0] * 2]
        types = (((3, 4), "int32"),)
        jobs = [
            Job(f"j{i}", "npu", {"npu": step, "gpu": host, "cpu": host}, ((i - 1, 0),), gives=types, exact=True)
            for i in range(3)
        ]
        policy = FaultPolicy(
            factor=1, slack=0.25, first=0.5, unknown=0.1, backoff=0.01, verify=1.0 if fault == "lie" else 0.0
        )
        npu = LaneOptions(probe=remote.probe, interrupt=remote.interrupt)
        with Engine({"npu": npu, "gpu": LaneOptions(), "cpu": LaneOptions()}, policy) as engine:
            graph = Graph(jobs)
            begin = lambda xs: engine.submit(graph, xs)
            found = streamed(begin, GraphRun.result, GraphRun.cancel, ([X + n] for n in range(6)), lambda: 3)
            for n, y in enumerate(found):
                assert y[0].dtype == np.int32 and y[0].tolist() == (8 * (X + n)).tolist()
            out = [e for e in engine.events if e.kind == "out"]
            assert len(out) == (0 if fault == "print" else 1), engine.events
            end = time.monotonic() + 10
            while engine.health()["npu"].state in ("out", "probing"):
                assert time.monotonic() < end, engine.health()
                time.sleep(0.01)
            run = engine.submit(graph, [X])
            assert run.result()[0].tolist() == (8 * X).tolist()
            assert {s.unit for s in run.spans if s.outcome == "done"} == {"npu"}


def test_killed_by_somebody_else_at_any_time(tmp_path: Path):
    with Remote(VENDOR, name="npu") as remote:
        step = remote.prepare(b"double", "name")
        graph = Graph([Job("j", "npu", {"npu": step, "cpu": lambda xs: [xs[0] * 2]}, ((CALLER, 0),), exact=True)])
        npu = LaneOptions(probe=remote.probe, interrupt=remote.interrupt)
        policy = FaultPolicy(slack=0.3, first=1, unknown=0.01, backoff=0.01)
        with Engine({"npu": npu, "cpu": LaneOptions()}, policy) as engine:
            for n in range(30):
                if n % 10 == 5:
                    os.kill(remote.child().pid, signal.SIGKILL)
                assert engine.submit(graph, [X + n]).result()[0].tolist() == (2 * (X + n)).tolist()


def test_a_child_ends_when_its_parent_dies():
    code = f"""
import os, sys
from nxjax.backends.hybrid.plugin import Remote
remote = Remote({VENDOR!r})
print(remote.child().pid, flush=True)
os.kill(os.getpid(), 9)
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    pid: Any = int(done.stdout)
    end = time.monotonic() + 10
    while running(pid):
        assert time.monotonic() < end
        time.sleep(0.01)
