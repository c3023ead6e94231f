"""Several processes on one machine: what they see, what they compute together, and what happens when one is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax import distributed
from nxjax.errors import ExecutionError, ParameterError
from nxjax.experimental import multihost_utils

HEAD = """
import os, sys, time
import numpy as np
import nxjax as nx
from nxjax import P, distributed
from nxjax.errors import ExecutionError, ProcessLostError
from nxjax.experimental import multihost_utils as hosts
nx.config.update("num_cpu_devices", 2)
distributed.initialize(heartbeat_timeout_seconds=3, shutdown_timeout_seconds={shutdown}, initialization_timeout=60)
me, count = nx.process_index(), nx.process_count()
mesh = nx.make_mesh((2 * count,), ("x",))
rows = nx.NamedSharding(mesh, P("x"))
x = nx.device_put(np.arange(4.0 * count, dtype=np.float32), rows)
total = nx.jit(lambda x: x.sum())
def say(*words):
    print("say", *words, flush=True)
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(count: int, body: str, shutdown: int = 10) -> list[subprocess.Popen[str]]:
    env = {
        **os.environ,
        "NXJAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "NXJAX_NUM_PROCESSES": str(count),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "http_proxy": "http://127.0.0.1:9",  # that of the network is not for these processes
    }
    code = HEAD.format(shutdown=shutdown) + textwrap.dedent(body)
    return [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**env, "NXJAX_PROCESS_ID": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]


def finish(processes: list[subprocess.Popen[str]], codes: tuple[int, ...] | None = None) -> list[list[str]]:
    """What each process said, once all have ended."""
    said = []
    for p in processes:
        try:
            out, err = p.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            raise
        said.append([line.removeprefix("say ") for line in out.splitlines() if line.startswith("say ")])
        wanted = 0 if codes is None else codes[len(said) - 1]
        assert p.returncode == wanted, f"{p.returncode}\n{out}\n{err}"
    return said


def test_two_processes_compute_together() -> None:
    said = finish(
        start(
            2,
            """
            say(me, count, len(nx.devices()), [d.id for d in nx.local_devices()])
            say(nx.device_count(), nx.local_device_count())
            say([d.process_index for d in nx.devices()])
            say(float(total(x)), (x + 1).sharding == rows, x.is_fully_addressable)
            say([s.data.tolist() for s in x.addressable_shards], [s.data is None for s in x.global_shards])
            say(hosts.process_allgather(x * 2).tolist())
            say(hosts.process_allgather(np.int32(me)).tolist())
            say(hosts.process_allgather(np.array([me, 7]), tiled=True).tolist())
            say(hosts.broadcast_one_to_all({"a": np.float32(me + 0.5)}, is_source=me == 1)["a"])
            try: x.numpy()
            except ExecutionError as error: say(error.what)
            w = nx.jit(lambda x: x / 2, out_shardings=nx.NamedSharding(mesh, P()))(x)
            say(w.tolist(), float(nx.jit(lambda x: x + 1)(1.0)), (nx.ones(2) * 3).tolist())
            mine = hosts.host_local_array_to_global_array(np.full((2, 1), me, np.float32), mesh, P("x"))
            say(mine.shape, hosts.global_array_to_host_local_array(mine, mesh, P("x")).tolist())
            local = nx.make_array_from_process_local_data(rows, np.full(2, me, np.float32))
            say(hosts.process_allgather(local).tolist())
            hosts.assert_equal({"step": 3})
            try: hosts.assert_equal(np.int32(me), "steps:")
            except AssertionError as error: say(error)
            hosts.sync_global_devices("end")
            say("jax" in sys.modules, distributed.is_initialized())
            distributed.shutdown()
            say(distributed.is_initialized())
            """,
        )
    )
    for me, lines in enumerate(said):
        assert lines == [
            f"{me} 2 4 {[2048 * me, 2048 * me + 1]}",
            "4 2",
            "[0, 0, 1, 1]",
            "28.0 True False",
            f"{[[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]][me]} {[me != p for p in (0, 0, 1, 1)]}",
            "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]",
            "[0, 1]",
            "[0, 7, 1, 7]",
            "1.5",
            "array: its elements are spread over several processes, and this one has not all of them",
            "[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5] 2.0 [3.0, 3.0]",
            f"(4, 1) {[[float(me)], [float(me)]]}",
            "[0.0, 0.0, 1.0, 1.0]",
            "steps: the processes have different values",
            "False True",
            "False",
        ]


TRAIN = """
say(float(total(x)))
if me == 1 and {how!r} == "raise": raise ValueError("bad batch")
if me == {who} and {how!r} == "wait": say("ready"); time.sleep(100)
try:
    for step in range(10**6): float(total(x))
except ProcessLostError as error:
    say(error.got)
    say(nx.jit(lambda x: x * 2)(2.0).tolist())
"""


@pytest.mark.parametrize("who", [1, 0])
def test_a_killed_process_is_an_error_in_the_others(who: int) -> None:
    processes = start(4, TRAIN.format(how="wait", who=who))
    victim = processes[who].stdout
    assert victim is not None
    while victim.readline().strip() != "say ready":
        pass
    processes[who].send_signal(signal.SIGKILL)
    codes = tuple(-signal.SIGKILL if i == who else 0 for i in range(4))
    said = finish(processes, codes)
    for i in set(range(4)) - {who}:
        assert said[i] == ["120.0", f"no sign of life from process {who}", "4.0"]


def test_an_error_in_one_process_is_told_to_the_others() -> None:
    said = finish(start(2, TRAIN.format(how="raise", who=9)), codes=(0, 1))
    assert said[0] == ["28.0", "process 1 ended with ValueError: bad batch", "4.0"]


def test_different_programs_are_an_error() -> None:
    """Their collectives would find each other: a sum here and a maximum there."""
    body = """
        def largest(x): return x.max()
        try:
            nx.jit(largest)(x) if me else total(x)
            nx.block_until_ready(total(x))
        except (ExecutionError, ProcessLostError) as error:
            say(type(error).__name__, error.what, error.got)
        """
    out = finish(start(2, body, shutdown=2))  # they wait for each other in vain
    text = " ".join(" ".join(lines) for lines in out)
    assert "do not run the same program" in text and "'largest'" in text


def test_barriers() -> None:
    said = finish(
        start(
            2,
            """
            distributed.barrier("one")
            try: distributed.barrier("left" if me else "right")
            except ExecutionError as error: say(error.got)
            if me == 0:
                try: distributed.barrier("late", timeout_seconds=0.5)
                except ExecutionError as error: say(error.what)
                distributed.barrier("late again")
            else:
                time.sleep(1.5); distributed.barrier("late"); distributed.barrier("late again")
            """,
        )
    )
    assert said == [
        ["others are at 'left'", "barrier 'late': not all processes came within 0.5 seconds"],
        ["others are at 'right'"],
    ]


def test_wrong_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("NXJAX_", "JAX_")):
            monkeypatch.delenv(name)
    with pytest.raises(ParameterError, match="coordinator_address and num_processes and process_id not given"):
        distributed.initialize()
    with pytest.raises(ParameterError, match="host:port"):
        distributed.initialize("localhost", 2, 0)
    with pytest.raises(ParameterError, match="0 to 1"):
        distributed.initialize("localhost:1", 2, 2)
    with pytest.raises(ParameterError, match="num_processes"):
        distributed.initialize("localhost:1", 0, 0)
    nx.device_put(1.0, nx.devices("cpu")[-1])
    with pytest.raises(ExecutionError, match="devices were used before"):
        distributed.initialize("localhost:1", 2, 0)


def test_who_does_not_find_the_others_says_so() -> None:
    address = f"127.0.0.1:{free_port()}"
    code = (
        "import nxjax as nx\n"
        f"try: nx.distributed.initialize('{address}', 2, 0, initialization_timeout=2)\n"
        "except RuntimeError as error:\n"
        "    print(error.what.split(': ')[1], error.got, error.expected.split(' at ')[1], sep=' | ')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout
    assert out.strip() == f"process 0 of 2 could not join | no process 1 | {address} within 2 seconds"


def test_numbers_that_do_not_fit_are_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    code = (
        "import sys, nxjax as nx\n"
        f"try: nx.distributed.initialize('{address}', int(sys.argv[1]), int(sys.argv[2]), initialization_timeout=4)\n"
        "except RuntimeError as error: print(error.got)"
    )
    first = subprocess.Popen([sys.executable, "-c", code, "2", "0"], stdout=subprocess.PIPE, text=True)
    other = subprocess.run([sys.executable, "-c", code, "3", "1"], capture_output=True, text=True, timeout=60).stdout
    assert other.strip() == "another number of processes: 2 at the coordinator"
    assert first.communicate(timeout=60)[0].strip() == "no process 1"


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        address = f"127.0.0.1:{s.getsockname()[1]}"
        code = (
            "import nxjax as nx\n"
            f"try: nx.distributed.initialize('{address}', 1, 0, coordinator_bind_address='{address}')\n"
            "except RuntimeError as error: print(error)"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout
    assert "the coordinator does not start" in out
    assert address.partition(":")[2] in out


def test_one_process_alone_needs_no_joining() -> None:
    distributed.barrier("here")
    distributed.check_peers()
    distributed.shutdown()
    assert multihost_utils.process_allgather({"a": np.arange(2)})["a"].shape == (1, 2)
    assert (Path(nx.__file__).parent / "backends/xla/coordinator.py").exists()
