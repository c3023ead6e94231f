"""A crash at any operation or byte leaves the steps that were there as they were; so does a kill at any moment."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from nxjax import checkpoints
from nxjax.checkpoints import disk as disks
from nxjax.checkpoints import steps


class Crash(BaseException):
    """The machine stopped."""


class Faulty(disks.Disk):
    """Stops at the k-th operation, a write half done; from then on nothing works. Or the disk is full from then on."""

    def __init__(self, k, error=None):
        self.left, self.error, self.count = k, error, 0

    def tick(self, half=lambda: None):
        self.count += 1
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            if self.left == -1:
                half()
            raise self.error or Crash

    def create(self, path):
        self.tick()
        return FaultyFile(path, self)

    def make_folder(self, path, parents=False):
        self.tick()
        super().make_folder(path, parents)

    def sync_folder(self, path):
        self.tick()
        super().sync_folder(path)

    def rename(self, old, new):
        self.tick()
        super().rename(old, new)

    def remove_folder(self, path):
        if self.error is not None:
            return super().remove_folder(path)  # a full disk can be made emptier
        for child in list(path.iterdir()):
            self.tick()
            child.unlink()
        self.tick()
        path.rmdir()


class FaultyFile(disks.File):
    def __init__(self, path, disk):
        super().__init__(path)
        self.disk = disk

    def write(self, data):
        view = memoryview(data).cast("B")
        self.disk.tick(lambda: disks.File.write(self, view[: len(view) // 2]))
        super().write(data)

    def write_at(self, position, data):
        self.disk.tick()
        super().write_at(position, data)

    def sync(self):
        self.disk.tick()
        super().sync()


def tree(n):
    return {"w": np.full((40,), n, np.float32), "s": [n, {"v": np.arange(n + 3)}]}


def holds(directory, step, n):
    found = checkpoints.restore(directory, step=step, like=tree(n))
    np.testing.assert_array_equal(found["w"], tree(n)["w"])
    assert found["s"][0] == n


@pytest.fixture(autouse=True)
def the_real_disk_afterwards():
    yield
    disks.current.disk = disks.Disk()


def operations(action, error=None):
    disks.current.disk = Faulty(None, error)
    action()
    return disks.current.disk.count


@pytest.mark.parametrize("error", [None, OSError(errno.ENOSPC, "No space left on device")], ids=["crash", "full"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new step", "same step"])
def test_stopped_at_every_operation(tmp_path, overwrite, error, monkeypatch):
    def prepared(folder):
        disks.current.disk = disks.Disk()
        checkpoints.save(folder, tree(1), step=1)
        checkpoints.save(folder, tree(2), step=2)

    step = 2 if overwrite else 3
    prepared(tmp_path / "all")
    total = operations(lambda: checkpoints.save(tmp_path / "all", tree(9), step=step, overwrite=True), error)
    assert total > 8
    outcomes = set()
    for k in range(total):
        folder = tmp_path / str(k)
        prepared(folder)
        disks.current.disk = Faulty(k, error)
        with pytest.raises(Crash if error is None else OSError):
            checkpoints.save(folder, tree(9), step=step, overwrite=True)
        disks.current.disk = disks.Disk()
        holds(folder, 1, 1)
        if overwrite:
            found = checkpoints.restore(folder, step=2)["s"][0]
            assert found in (2, 9)
            outcomes.add(found)
            holds(folder, 2, found)
        else:
            holds(folder, 2, 2)
            assert checkpoints.all_steps(folder) in ([1, 2], [1, 2, 3])
            outcomes.add(checkpoints.latest_step(folder))
            if checkpoints.latest_step(folder) == 3:
                holds(folder, 3, 9)
        if error is not None and not overwrite and checkpoints.latest_step(folder) == 2:
            assert not [p for p in folder.iterdir() if "nxjax-tmp" in p.name], "what was half written is in the way"
        # The next run finds, cleans and goes on.
        with monkeypatch.context() as patch:
            patch.setattr(steps, "_dead", lambda *_: True)
            manager = checkpoints.CheckpointManager(folder, async_=False)
            before = manager.all_steps()
            assert manager.save(10, tree(10)) and manager.all_steps() == [*before, 10]
        assert all(p.name.isdigit() for p in folder.iterdir())
    assert len(outcomes) == 2, "some crashes came before the last rename and some after it"


def test_stopped_at_every_operation_of_a_removal(tmp_path):
    def prepared(folder):
        disks.current.disk = disks.Disk()
        for n in (1, 2, 3):
            checkpoints.save(folder, tree(n), step=n)
        return checkpoints.CheckpointManager(folder, max_to_keep=2, async_=False)

    manager = prepared(tmp_path / "all")
    total = operations(lambda: manager.save(4, tree(4)))
    for k in range(total):
        folder = tmp_path / str(k)
        manager = prepared(folder)
        disks.current.disk = Faulty(k)
        with pytest.raises(Crash):
            manager.save(4, tree(4))
        disks.current.disk = disks.Disk()
        for step in checkpoints.all_steps(folder):
            holds(folder, step, step)
        assert {2, 3} <= set(checkpoints.all_steps(folder)) or {3, 4} <= set(checkpoints.all_steps(folder))


KILLED = """
import os, random, signal, sys, time
import numpy as np
from nxjax import checkpoints
folder, runs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
tree = lambda n: {"w": np.full((200_000,), n, np.float32), "n": n, "many": [np.full(3, n) for _ in range(20)]}
checkpoints.save(folder, tree(0), step=0)
completed = []
for run in range(runs):
    start = checkpoints.latest_step(folder)
    child = os.fork()
    if not child:
        with checkpoints.CheckpointManager(folder, max_to_keep=2, async_=bool(run % 2)) as manager:
            for n in range(start + 1, start + 1000):
                manager.save(n, tree(n))
        os._exit(0)
    # After none, one or two more checkpoints, and at any moment of the next.
    while checkpoints.latest_step(folder) < start + run % 3:
        time.sleep(0.001)
    time.sleep(chance.random() ** 2 * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = checkpoints.all_steps(folder)
    assert found and found[-1] >= start, (found, start)
    for step in found:
        got = checkpoints.restore(folder, step=step)
        assert got["n"] == step and (np.asarray(got["w"]) == step).all(), step
        assert all((np.asarray(x) == step).all() for x in got["many"])
    completed.append(found[-1] - start)
checkpoints.CheckpointManager(folder)
left = [n for n in os.listdir(folder) if not n.isdigit()]
assert not left, left
print(len(completed), sum(c > 0 for c in completed))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", KILLED, str(tmp_path), "60", "7"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    runs, advanced = map(int, done.stdout.split())
    assert runs == 60 and 40 <= advanced <= 60
