"""Sharded arrays: each part written once by the process that has it, restored onto any sharding and process count."""

import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import nxjax as nx
from nxjax import checkpoints
from nxjax.checkpoints import disk as disks
from nxjax.checkpoints import parts, processes
from nxjax.errors import ExecutionError, InvalidFileError

P = nx.sharding.PartitionSpec
R = np.random.default_rng(0)


class Device:
    """A device that exists in a sharding only."""

    def __init__(self, id, process):
        self.id, self.process_index, self.platform = id, process, "cpu"

    def __hash__(self):
        return self.id

    def __eq__(self, other):
        return self.id == other.id


class Shard:
    def __init__(self, device, index, data):
        self.device, self.index, self.data = device, index, data


class Spread:
    """A global array as one process has it: the interface of arrays over several devices, and nothing more."""

    def __init__(self, whole, sharding, process):
        self.shape, self.dtype, self.sharding = whole.shape, whole.dtype, sharding
        self.addressable_shards = [
            Shard(d, i, whole[i].copy())
            for d, i in sharding.devices_indices_map(whole.shape).items()
            if d.process_index == process
        ]


def mesh(count, rows=2, columns=4):
    """``rows`` x ``columns`` devices in ``count`` processes."""
    devices = [Device(i, i * count // (rows * columns)) for i in range(rows * columns)]
    return nx.sharding.Mesh(np.array(devices, object).reshape(rows, columns), ("x", "y"))


class Processes:
    """``count`` processes as threads of this one."""

    def __init__(self, count, monkeypatch):
        self.count = count
        self.local = threading.local()
        self.gate = threading.Barrier(count)
        self.places = []
        monkeypatch.setattr(processes, "count", lambda: count)
        monkeypatch.setattr(processes, "index", lambda: self.local.index)
        monkeypatch.setattr(processes, "barrier", self.barrier)

    def barrier(self, name, line):
        self.places.append((name, line))
        self.gate.wait(20)

    def run(self, action):
        """What ``action(process)`` gives or raises, per process."""
        found = [None] * self.count

        def work(i):
            self.local.index = i
            try:
                found[i] = action(i)
            except Exception as error:
                found[i] = error

        threads = [threading.Thread(target=work, args=(i,)) for i in range(self.count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return found


W = R.standard_normal((8, 12)).astype(np.float32)
V = R.standard_normal((16,)).astype(np.float16)
SPECS = [P("x", "y"), P(None, "y"), P(("x", "y")), P("y", "x"), P()]


def state(spec, process, over):
    s = nx.sharding.NamedSharding(over, spec)
    flat = nx.sharding.NamedSharding(over, P(("x", "y")) if spec != P() else P())
    return {"w": Spread(W, s, process), "opt": [Spread(V, flat, process), np.float32(3)], "step": 4}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_each_part_is_written_once_by_who_has_it(count, spec, tmp_path, monkeypatch):
    over = mesh(count)
    group = Processes(count, monkeypatch)
    found = group.run(lambda i: checkpoints.save(tmp_path, state(spec, i, over), step=1))
    assert found == [tmp_path / "1"] * count
    assert all(line == str(tmp_path) for _, line in group.places)
    files = sorted(p for p in (tmp_path / "1").iterdir() if p.suffix == ".safetensors")
    assert [p.name for p in files] == [f"shard-{i:05d}-of-{count:05d}.safetensors" for i in range(count)]
    assert sum(p.stat().st_size for p in files) < W.nbytes + V.nbytes + 4 + count * 4096
    monkeypatch.undo()
    back = checkpoints.restore(tmp_path)  # one process, no mesh
    np.testing.assert_array_equal(back["w"], W)
    np.testing.assert_array_equal(back["opt"][0], V)
    assert back["opt"][0].dtype == np.float16 and float(back["opt"][1]) == 3 and back["step"] == 4
    leaf = next(x for x in checkpoints.index.read(tmp_path / "1").leaves if x.name == "w")
    assert leaf.sharding["mesh"] == [["x", 2], ["y", 4]] and len(leaf.parts) == len(
        set(map(str, nx.sharding.NamedSharding(over, spec).devices_indices_map(W.shape).values()))
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("other", [*SPECS, P("y")], ids=str)
def test_every_block_of_every_other_sharding(spec, other, tmp_path, monkeypatch):
    group = Processes(2, monkeypatch)
    group.run(lambda i: checkpoints.save(tmp_path, state(spec, i, mesh(2))))
    monkeypatch.undo()
    folder = tmp_path / "0"
    reader = checkpoints.restoring._Reader(folder, checkpoints.index.read(folder), True)
    leaf = reader.index.by_path["w",]
    for index in nx.sharding.NamedSharding(mesh(1, 4, 2), other).devices_indices_map(W.shape).values():
        np.testing.assert_array_equal(reader.block(leaf, parts.box_of(index, W.shape)), W[index])


def test_a_process_reads_no_more_than_it_needs(tmp_path, monkeypatch):
    group = Processes(4, monkeypatch)
    group.run(lambda i: checkpoints.save(tmp_path, state(P(("x", "y")), i, mesh(4))))
    monkeypatch.undo()
    folder = tmp_path / "0"
    reader = checkpoints.restoring._Reader(folder, checkpoints.index.read(folder), True)
    reader.block(reader.index.by_path["w",], ((0, 2), (0, 12)))
    assert list(reader._files) == [0] and len(reader._read) == 2


def test_a_failure_of_one_process_is_one_of_all_and_what_was_there_stays(tmp_path, monkeypatch):
    over = mesh(2)
    group = Processes(2, monkeypatch)
    group.run(lambda i: checkpoints.save(tmp_path, state(P("x"), i, over), step=1))

    class Full(disks.Disk):
        def create(self, path):
            if path.name.startswith("shard-00001"):
                raise OSError(28, "No space left on device")
            return super().create(path)

    monkeypatch.setattr(disks.current, "disk", Full())
    found = group.run(lambda i: checkpoints.save(tmp_path, state(P("x"), i, over), step=2))
    assert isinstance(found[0], ExecutionError) and "process 1" in str(found[0]) and "No space" in str(found[0])
    assert isinstance(found[1], OSError)
    assert checkpoints.all_steps(tmp_path) == [1]
    monkeypatch.setattr(disks.current, "disk", disks.Disk())
    found = group.run(lambda i: checkpoints.save(tmp_path, state(P("x"), i, over), step=2))
    assert found == [tmp_path / "2"] * 2 and checkpoints.all_steps(tmp_path) == [1, 2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2"]


def test_what_several_left_over_goes_when_several_write_again(tmp_path, monkeypatch):
    left = tmp_path / "9.nxjax-tmp-all-0-0"
    left.mkdir()
    checkpoints.CheckpointManager(tmp_path)
    assert left.exists(), "one process alone cannot know that the others are gone"
    group = Processes(2, monkeypatch)
    group.run(lambda i: checkpoints.CheckpointManager(tmp_path))
    assert not left.exists()


def test_parts_that_leave_a_gap_or_overlap(tmp_path, monkeypatch):
    whole = np.arange(8.0)
    known = [(((0, 4),), lambda: whole[:4]), (((5, 8),), lambda: whole[5:])]
    np.testing.assert_array_equal(parts.gathered(((1, 3),), whole.dtype, known, "w"), whole[1:3])
    with pytest.raises(InvalidFileError, match="do not make it up"):
        parts.gathered(((0, 8),), whole.dtype, known, "w")


@pytest.mark.parametrize("place", [P("x"), P("x", "y"), P()], ids=str)
def test_64_bits_come_back_onto_devices(place, tmp_path):
    s = nx.sharding.NamedSharding(nx.make_mesh((2, 4), ("x", "y")), place)
    state = {"w": np.arange(32).reshape(4, 8) / 3, "n": np.arange(32).reshape(4, 8) + 2**40}
    placed = nx.device_put({k: nx.array(v, dtype=v.dtype) for k, v in state.items()}, s)
    checkpoints.save(tmp_path, placed)
    for found in (checkpoints.restore(tmp_path, like=placed), checkpoints.restore(tmp_path, shardings=s)):
        for k, v in state.items():
            assert found[k].dtype == v.dtype
            np.testing.assert_array_equal(found[k], v)


ONE = """
import numpy as np, sys
import nxjax as nx
P = nx.sharding.PartitionSpec
folder = sys.argv[1]
make = lambda a, b: nx.sharding.Mesh(np.array(nx.devices()[: a * b]).reshape(a, b), ("x", "y"))
place = lambda mesh, *spec: nx.sharding.NamedSharding(mesh, P(*spec))
w = np.arange(96, dtype=np.float32).reshape(8, 12)
eight = make(2, 4)
state = {"w": nx.device_put(w, place(eight, "x", "y")), "k": nx.random.split(nx.random.key(0), 8), "n": 3,
         "b": nx.device_put(nx.ones(16, dtype="bfloat16"), place(eight, ("y", "x"))),
         "r": nx.device_put(w, place(eight))}
nx.checkpoints.save(folder, state, step=1)
four = make(4, 1)
back = nx.checkpoints.restore(folder, like=state)
assert back["w"].sharding == state["w"].sharding and len(back["w"].addressable_shards) == 8
np.testing.assert_array_equal(back["w"], w)
wanted = {"w": place(four, "x"), "k": place(four, "x"), "n": None, "b": place(four), "r": None}
back = nx.checkpoints.restore(folder, shardings=wanted)
assert back["w"].sharding == place(four, "x") and back["b"].dtype == nx.bfloat16 and back["n"] == 3
assert {s.data.shape for s in back["w"].addressable_shards} == {(2, 12)}
np.testing.assert_array_equal(back["w"], w)
np.testing.assert_array_equal(nx.random.key_data(back["k"]), nx.random.key_data(state["k"]))
back = nx.checkpoints.restore(folder, shardings=nx.sharding.SingleDeviceSharding(nx.devices()[5]))
assert back["w"].devices() == {nx.devices()[5]}
step = nx.jit(lambda s: {**s, "w": s["w"] * 2}, donate_argnums=0)
with nx.checkpoints.CheckpointManager(folder + "/m", max_to_keep=2) as manager:
    live = {"w": state["w"]}
    for i in range(4):
        manager.save(i, live)
        live = step(live)  # donated while it is being written
for i in manager.all_steps():
    np.testing.assert_array_equal(manager.restore(i)["w"], w * 2.0**i)
assert manager.all_steps() == [2, 3]
"""


def script(code, *args, **env):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_devices_of_one_process(tmp_path):
    child = script(ONE, tmp_path, NXJAX_NUM_CPU_DEVICES="8")
    _, said = child.communicate(timeout=120)
    assert child.returncode == 0, said[-3000:]


MANY = """
import numpy as np, sys
import nxjax as nx
folder, port, count, process, saves = sys.argv[1], *map(int, sys.argv[2:])
nx.distributed.initialize(f"localhost:{port}", count, process)
P = nx.sharding.PartitionSpec
mesh = nx.sharding.Mesh(np.array(nx.devices()).reshape(count, 2), ("x", "y"))
w = np.arange(96, dtype=np.float32).reshape(8, 12)
spread = lambda *spec: nx.make_array_from_callback(w.shape, nx.sharding.NamedSharding(mesh, P(*spec)), lambda i: w[i])
like = {"w": spread("y", "x"), "n": 1}
with nx.checkpoints.CheckpointManager(folder, max_to_keep=2) as manager:
    if manager.latest_step() is not None:
        back = manager.restore(like=like)
        assert back["w"].sharding == like["w"].sharding and back["n"] == manager.latest_step()
        for s in back["w"].addressable_shards:
            np.testing.assert_array_equal(s.data, (w * back["n"])[s.index])
    first = (manager.latest_step() or 0) + 1
    for n in range(first, first + saves):
        scaled = nx.jit(lambda x: x * np.float32(n))(spread("x", "y"))
        assert manager.save(n, {"w": scaled, "n": n})
    manager.wait_until_finished()
    assert manager.all_steps()[-1] == first + saves - 1
nx.distributed.shutdown()
"""


def together(folder, count, saves):
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    children = [script(MANY, folder, port, count, i, saves, NXJAX_NUM_CPU_DEVICES="2") for i in range(count)]
    for child in children:
        _, said = child.communicate(timeout=120)
        assert child.returncode == 0, said[-3000:]


def test_processes_joined_on_this_machine_and_another_number_of_them_later(tmp_path):
    together(tmp_path, 2, 3)
    assert checkpoints.all_steps(tmp_path) == [2, 3]
    assert sorted(p.name for p in (tmp_path / "3").iterdir())[1:] == [
        "shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors",
    ]  # fmt: skip
    w = np.arange(96, dtype=np.float32).reshape(8, 12)
    np.testing.assert_array_equal(checkpoints.restore(tmp_path)["w"], w * 3)
    together(tmp_path, 1, 1)
    np.testing.assert_array_equal(checkpoints.restore(tmp_path)["w"], w * 4)
    together(tmp_path, 2, 1)
    assert checkpoints.all_steps(tmp_path) == [4, 5]


LOST = """
import os, signal, sys, time
import numpy as np
import nxjax as nx
folder, port, process = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
nx.distributed.initialize(f"localhost:{port}", 2, process, heartbeat_timeout_seconds=5)
mesh = nx.sharding.Mesh(np.array(nx.devices()), ("x",))
rows = nx.sharding.NamedSharding(mesh, nx.sharding.PartitionSpec("x"))
w = np.arange(8, dtype=np.float32)
manager = nx.checkpoints.CheckpointManager(folder, async_=False)
try:
    for n in range(1, 100):
        if process == 1 and n == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        manager.save(n, {"w": nx.make_array_from_callback(w.shape, rows, lambda i: w[i] * n), "n": n})
except nx.errors.ProcessLostError as error:
    print("lost:", error.what)
    os._exit(7)
"""


def test_a_killed_worker_is_an_error_of_the_others_and_the_run_goes_on_from_its_last_step(tmp_path):
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    children = [script(LOST, tmp_path, port, i, NXJAX_NUM_CPU_DEVICES="1") for i in range(2)]
    said, trouble = children[0].communicate(timeout=120)
    children[1].communicate(timeout=120)
    assert children[1].returncode == -9
    assert children[0].returncode == 7 and "lost:" in said, trouble[-3000:]
    assert checkpoints.all_steps(tmp_path) == [1, 2, 3]
    back = checkpoints.restore(tmp_path)
    np.testing.assert_array_equal(back["w"], np.arange(8, dtype=np.float32) * 3)
