"""Workers that are killed or stand still, and a coordinator that goes: an error in the others, and the run goes on.

Numbers after a restart are those of a run that nothing happened to, to 1e-12 in float64.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.demo.parallel.model import ModelConfig
from nxjax.demo.parallel.train import ParallelResult, train
from tests.distributed.jobs import PATIENCE, QUICKLY, Job, losses

SMALL = ModelConfig(layers=4, width=16, hidden=32, words=32, length=6, batch=16)
STEPS = 10

TRAIN = f"""
import os, signal, sys, threading
import numpy as np, nxjax as nx
nx.distributed.initialize(heartbeat_timeout_seconds=4, initialization_timeout=200)
from nxjax.demo.parallel.train import train
from nxjax.demo.parallel.model import ModelConfig
folder, delay = sys.argv[1], float(sys.argv[2])
def say(n, loss):
    print(f"step {{n}} loss {{loss!r}}\\n", end="", flush=True)  # one write, since processes share a pipe
    if n == 2 and delay and nx.process_index() == 1 and not os.path.exists(folder + ".killed"):
        open(folder + ".killed", "w").close()
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
train("zero3", {STEPS}, ModelConfig{tuple(SMALL)!r}, dtype=np.float64, folder=folder, every=1, say=say)
"""

LOOP = """
import os, sys, time
import numpy as np, nxjax as nx
from nxjax.backends.xla import distributed
nx.distributed.initialize(heartbeat_timeout_seconds=4, collective_timeout_seconds=int(sys.argv[2]))
me = nx.process_index()
x = nx.device_put(np.ones(4, np.float32), nx.NamedSharding(nx.make_mesh((4,), ("x",)), nx.P("x")))
total = nx.jit(lambda x: x.sum())
assert float(total(x)) == 4
service = distributed.group().service
print("ready", me if service is None else service.pid, flush=True)
if sys.argv[1] == "barrier":
    if me: time.sleep(1000)
    nx.distributed.barrier("here")
if sys.argv[1] == "sleep" and me: time.sleep(1000)
try:
    for n in range(10**7): float(total(x))
except nx.errors.ProcessLostError as error:
    print("mine", float(nx.jit(lambda x: x * 2)(2.0)), flush=True)
    raise
"""


@pytest.fixture(scope="module")
def alone() -> ParallelResult:
    return train("data", STEPS, SMALL, devices=nx.devices("cpu")[:1], dtype=np.float64)


def same(found: dict[int, float], alone: ParallelResult) -> None:
    for n, loss in found.items():
        assert abs(loss - alone.losses[n]) < 1e-12, n


def check_end(folder: Path, alone: ParallelResult) -> None:
    last = nx.checkpoints.restore(folder, like=alone.state, step=STEPS)
    for a, b in zip(nx.tree.leaves(last), nx.tree.leaves(alone.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_a_run_whose_worker_was_killed_goes_on_with_another_number_of_processes(
    alone: ParallelResult, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    job = Job(tmp_path, 2, ["-c", TRAIN, str(folder), str(random.uniform(0.001, 0.2))])
    codes = job.codes()
    assert codes == [1, -signal.SIGKILL], job.said(0)
    assert "nxjax.errors.ProcessLostError" in job.said(0)
    assert "no sign of life from process 1" in job.said(0)
    same(losses(job.said(0)), alone)
    step = nx.checkpoints.latest_step(folder)
    assert step is not None and step >= 1
    rest = train("zero3", STEPS, SMALL, devices=nx.devices("cpu"), dtype=np.float64, folder=folder, every=1)
    assert sorted(rest.losses) == list(range(step, STEPS))
    same(rest.losses, alone)
    check_end(folder, alone)


def test_launch_starts_those_that_are_left_and_the_run_goes_on(alone: ParallelResult, tmp_path: Path) -> None:
    folder, program = tmp_path / "run", tmp_path / "train.py"
    program.write_text(TRAIN)
    command = [sys.executable, "-m", "nxjax.launch", "-n", "2", "--devices", "2", "--restarts", "2", "--at-least", "1"]
    done = subprocess.run(
        [*command, str(program), str(folder), str(random.uniform(0.001, 0.2))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **QUICKLY},
    )
    assert done.returncode == 0, done.stderr
    assert "process 0 ended with 1, 1 was ended by SIGKILL; attempt 2 of 3, with 1 instead of 2" in done.stderr
    same(losses(done.stdout), alone)
    check_end(folder, alone)


def ready(job: Job, i: int) -> int:
    """What process ``i`` says when it works."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for line in job.said(i).splitlines():
            if line.startswith("ready ") and job.said(i).endswith("\n"):
                return int(line.split()[1])
        assert job.processes[i].poll() is None, job.said(i)
        time.sleep(0.05)
    raise AssertionError(job.said(i))


@pytest.mark.parametrize("where", ["loop", "barrier"])
def test_a_coordinator_that_is_killed_is_an_error(where: str, tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ["-c", LOOP, where, "1800"])
    coordinator = ready(job, 0)
    ready(job, 1)
    os.kill(coordinator, signal.SIGKILL)
    waiting = [0] if where == "barrier" else [0, 1]
    for i in waiting:
        assert job.processes[i].wait(PATIENCE) == 1, job.said(i)
        assert "the coordinator, a process beside process 0, is gone" in job.said(i)
        assert "Check failure" not in job.said(i)
        assert ("mine 4.0" in job.said(i)) == (where == "loop")
    job.end()


def test_a_process_that_is_stopped_is_lost_and_learns_it_when_it_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ["-c", LOOP, "loop", "1800"])
    for i in range(2):
        ready(job, i)
    job.processes[1].send_signal(signal.SIGSTOP)
    assert job.processes[0].wait(PATIENCE) == 1
    assert "no sign of life from process 1" in job.said(0)
    job.processes[1].send_signal(signal.SIGCONT)
    assert job.codes() == [1, 1], job.said(1)
    assert "nxjax.errors.ProcessLostError" in job.said(1)


def test_a_process_that_does_something_else_for_ever_is_lost(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ["-c", LOOP, "sleep", "3"])
    assert job.processes[0].wait(PATIENCE) == 1
    assert "a process has not come to this computation within 3 seconds" in job.said(0)
    job.end()
