"""The manager: what is due, what is kept, and writing in the background that nothing disturbs."""

import errno
import threading

import numpy as np
import pytest

import nxjax as nx
from nxjax import checkpoints
from nxjax.checkpoints import disk as disks
from nxjax.checkpoints import steps
from nxjax.errors import ParameterError


def run(tmp_path, count, **options):
    with checkpoints.CheckpointManager(tmp_path, **options) as manager:
        saved = [step for step in range(count) if manager.save(step, {"s": np.full(3, step)})]
    return saved, manager.all_steps()


@pytest.mark.parametrize("async_", [False, True])
def test_what_is_kept(tmp_path, async_):
    assert run(tmp_path / "a", 6, async_=async_) == ([*range(6)], [*range(6)])
    assert run(tmp_path / "b", 6, max_to_keep=2, async_=async_) == ([*range(6)], [4, 5])
    assert run(tmp_path / "c", 10, max_to_keep=1, save_interval_steps=3, async_=async_) == ([0, 3, 6, 9], [9])
    assert run(tmp_path / "d", 9, max_to_keep=2, keep_period=3, async_=async_) == ([*range(9)], [0, 3, 6, 7, 8])


def test_steps_that_are_not_due(tmp_path):
    manager = checkpoints.CheckpointManager(tmp_path, save_interval_steps=10, async_=False)
    assert manager.save(10, {"s": 1}) and not manager.save(10, {"s": 2}) and not manager.save(7, {"s": 2})
    assert manager.save(7, {"s": 3}, force=True) and manager.save(10, {"s": 4}, force=True)
    assert manager.restore(10)["s"] == 4 and manager.restore(step=7, like={"s": 0}) == {"s": 3}
    assert manager.latest_step() == 10 and manager.should_save(20) and not manager.should_save(5)
    manager.delete(7)
    assert manager.all_steps() == [10]
    with pytest.raises(ParameterError, match="step 7"):
        manager.delete(7)


def test_a_new_manager_goes_on(tmp_path):
    run(tmp_path, 3, max_to_keep=2)
    with checkpoints.CheckpointManager(tmp_path, max_to_keep=2) as manager:
        assert manager.latest_step() == 2
        manager.save(3, {"s": np.full(3, 3)}, metadata={"loss": 0.5})
        assert manager.metadata() == {"loss": 0.5}
    assert manager.all_steps() == [2, 3]


class Slow(disks.Disk):
    """Writes nothing before it may."""

    def __init__(self):
        self.may = threading.Event()

    def create(self, path):
        assert self.may.wait(20)
        return super().create(path)


@pytest.fixture
def slow(monkeypatch):
    disk = Slow()
    monkeypatch.setattr(disks.current, "disk", disk)
    yield disk
    disk.may.set()


def test_what_happens_to_a_tree_later_is_not_written(tmp_path, slow):
    host = np.ones(1000)
    state = {"host": host, "own": nx.arange(1000) * 1.0, "donated": nx.ones(1000)}
    with checkpoints.CheckpointManager(tmp_path) as manager:
        assert manager.save(0, state)
        assert manager.all_steps() == []
        host[:] = 7
        nx.jit(lambda x: x * 5, donate_argnums=0)(state["donated"])
        state["own"].delete()
        slow.may.set()
    found = manager.restore()
    np.testing.assert_array_equal(found["host"], np.ones(1000))
    np.testing.assert_array_equal(found["donated"], np.ones(1000))
    np.testing.assert_array_equal(found["own"], np.arange(1000))


def test_a_failure_in_the_background_is_raised_where_one_waits(tmp_path, monkeypatch):
    class Full(disks.Disk):
        def create(self, path):
            raise OSError(errno.ENOSPC, "No space left on device")

    manager = checkpoints.CheckpointManager(tmp_path)
    manager.save(0, {"s": 0})
    manager.wait_until_finished()
    monkeypatch.setattr(disks.current, "disk", Full())
    manager.save(1, {"s": 1})
    with pytest.raises(OSError, match="No space left"):
        manager.wait_until_finished()
    manager.wait_until_finished()  # said once
    manager.save(1, {"s": 1})
    with pytest.raises(OSError, match="No space left"):
        manager.save(2, {"s": 2})
    monkeypatch.setattr(disks.current, "disk", disks.Disk())
    assert manager.all_steps() == [0] and [p.name for p in tmp_path.iterdir()] == ["0"]
    with pytest.raises(KeyError), manager:
        raise KeyError("the user's own error is the one that is seen")


def test_leftovers_go_and_those_of_the_living_stay(tmp_path):
    run(tmp_path, 1)
    dead = tmp_path / steps.other_name(5, "tmp").replace(f"-{__import__('os').getpid()}-", "-999999999-")
    alive = tmp_path / steps.other_name(6, "tmp")
    elsewhere = tmp_path / "7.nxjax-tmp-another.machine-1-1"
    theirs = tmp_path / "notes"
    for folder in (dead, alive, elsewhere, theirs):
        folder.mkdir()
    checkpoints.CheckpointManager(tmp_path)
    assert not dead.exists() and alive.exists() and elsewhere.exists() and theirs.exists()


def test_wrong_numbers(tmp_path):
    for name in ("max_to_keep", "save_interval_steps", "keep_period"):
        with pytest.raises(ParameterError, match=name):
            checkpoints.CheckpointManager(tmp_path, **{name: 0})
