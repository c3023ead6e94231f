"""A run whose process is killed, and that is then asked to end, has the bits of one that nothing happened to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla.stopping import Stop
from nxjax.errors import ParameterError
from tests.distributed.jobs import PATIENCE

# Executed here and in processes: a line fitted by int8 gradients, its state kept after every step.
TRAIN = """
import numpy as np, nxjax as nx
from nxjax.distributed import compress
from nxjax.sharding import NamedSharding, PartitionSpec as P

def train(steps, devices, folder, after=lambda n: False):
    compressor, mesh = compress.int8("x", block=4), nx.make_mesh((len(devices),), ("x",), devices=devices)
    def each(w, memory, x):
        grad = 2 * x.T @ (x @ w - x.sum(1)) / len(x)
        mean, memory = compressor(grad, memory)
        return w - 0.1 * mean, memory
    specs = (P(), compressor.specs)
    step = nx.jit(nx.shard_map(each, mesh=mesh, in_specs=(*specs, P("x")), out_specs=specs, check_vma=False))
    place = lambda specs, x: nx.device_put(x, nx.tree.map(lambda _: NamedSharding(mesh, specs), x))
    manager = nx.checkpoints.CheckpointManager(folder, async_=False)
    first = manager.latest_step() or 0
    state = np.zeros(10, np.float32), compressor.init(np.zeros(10, np.float32), len(devices))
    if first: state = manager.restore(first, like=state)
    state = place(P(), state[0]), compress.Memory(place(P("x"), state[1].own), ())
    for n in range(first, steps):
        x = np.random.default_rng(n).normal(size=(6, 10)).astype(np.float32)
        state = step(*state, place(P("x"), x))
        nx.block_until_ready(state)
        if after(n + 1):
            manager.save(n + 1, state, force=True)
            return n + 1
        manager.save(n + 1, state)
    return steps
"""
PROGRAM = (
    TRAIN
    + """
import os, signal, sys
nx.distributed.initialize(heartbeat_timeout_seconds=3, initialization_timeout=200)
attempt, me = int(os.environ["NXJAX_ATTEMPT"]), nx.process_index()
def after(n):
    if me == 1 and attempt == 1 and n == 4: os.kill(os.getpid(), signal.SIGKILL)
    if me == 1 and attempt == 2 and n == 6: os.kill(os.getpid(), signal.SIGTERM)
    return nx.distributed.preempted(n)
end = train(10**6, nx.devices(), sys.argv[1], after)
print("end", end, flush=True)
sys.exit(nx.distributed.PREEMPTED)
"""
)


def test_a_run_that_lost_a_process_and_was_asked_to_end_has_the_bits_of_a_whole_one(tmp_path: Path) -> None:
    program, folder, logs = tmp_path / "train.py", tmp_path / "run", tmp_path / "logs"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "nxjax.launch",
        "-n",
        "2",
        "--devices",
        "1",
        "--restarts",
        "1",
        "--logs",
        str(logs),
    ]
    done = subprocess.run(
        [*command, str(program), str(folder)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    said = {p.relative_to(logs).as_posix(): p.read_text() for p in sorted(logs.rglob("*.txt"))}
    assert done.returncode == nx.distributed.PREEMPTED, f"{done.stderr}\n{said}"
    assert "1 was ended by SIGKILL; attempt 2 of 2" in done.stderr
    assert "0 has saved and ended, 1 has saved and ended" in done.stderr
    assert "ProcessLostError" in said["attempt-1/process-0.txt"]
    ends = {said[f"attempt-2/process-{i}.txt"].split("end ")[1].strip() for i in range(2)}
    assert len(ends) == 1, "all stop at one step"
    (end,) = map(int, ends)
    assert end > 6
    scope: dict[str, Any] = {}
    exec(TRAIN, scope)
    scope["train"](end, nx.devices("cpu")[:2], tmp_path / "whole")
    found, whole = (nx.checkpoints.restore(f, step=end) for f in (folder, tmp_path / "whole"))
    for a, b in zip(nx.tree.leaves(found), nx.tree.leaves(whole), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert np.abs(np.asarray(nx.tree.leaves(found)[0]) - 1).max() < 1


class Board:
    """What the coordinator keeps."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def key_value_set(self, key: str, value: str, allow_overwrite: bool) -> None:
        assert allow_overwrite
        self.values[key] = value

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        return [(k, v) for k, v in self.values.items() if k.startswith(folder + "/")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_all_stop_behind_the_one_that_has_come_farthest(order: tuple[int, ...]) -> None:
    board: Any = Board()
    stops = [Stop(3, i) for i in range(3)]
    for stop, passed in zip(stops, (4, 6, 5), strict=True):
        assert all(stop.passes(n) for n in range(passed + 1))
        stop.look(board)
    stops[1].wanted = True
    stops[1].look(board)
    assert not stops[1].passes(7), "who has said where it is passes no further before all have"
    assert stops[0].passes(5), "who has not heard yet goes on"
    for i in (*order, *order):
        stops[i].look(board)
    assert [s.last for s in stops] == [7, 7, 7]


def test_sigterm_is_asked_for_once_and_in_the_main_thread() -> None:
    code = """
import os, signal, threading, nxjax as nx
def early():
    try: nx.distributed.preempted(0)
    except nx.errors.ExecutionError as error: print(error.what, flush=True)
thread = threading.Thread(target=early)
thread.start()
thread.join()
assert not nx.distributed.preempted(1)
os.kill(os.getpid(), signal.SIGTERM)
print(nx.distributed.preempted(2), nx.experimental.multihost_utils.reached_preemption_sync_point(3), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print('never')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "distributed.preempted: called first in a thread\nTrue True\n", done.stderr
    assert done.returncode == -signal.SIGTERM
    with pytest.raises(ParameterError, match="whole number"):
        nx.distributed.preempted(-1)
