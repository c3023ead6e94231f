"""Threads and processes that save, restore and remove the same step at once find whole ones, and no errors."""

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from nxjax import checkpoints
from nxjax.errors import ParameterError

ROOT = Path(__file__).parents[2]


def tree(n):
    return {"w": np.full(300, n), "n": n, "many": [np.full(3, n) for _ in range(3)]}


def check(found):
    n = found["n"]
    assert (np.asarray(found["w"]) == n).all() and all((np.asarray(x) == n).all() for x in found["many"])
    return n


def together(*jobs):
    """Run them all at once; what they raise."""
    start, raised = threading.Barrier(len(jobs)), []

    def run(job):
        start.wait()
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return raised


@pytest.mark.parametrize("verify", [True, False])
def test_threads_replace_a_step_that_others_read(tmp_path, verify):
    checkpoints.save(tmp_path, tree(0), step=1)
    over = threading.Event()
    seen = set()

    def write(i):
        for k in range(8):
            checkpoints.save(tmp_path, tree(10 * k + i), step=1, overwrite=True)

    def read(step):
        while not over.is_set():
            seen.add(check(checkpoints.restore(tmp_path, step=step, verify=verify)))
            assert checkpoints.metadata(tmp_path) is None

    readers = []
    other = threading.Thread(
        target=lambda: readers.extend(together(lambda: read(1), lambda: read(None))),
    )
    other.start()
    raised = together(*[lambda i=i: write(i) for i in range(6)])
    over.set()
    other.join()
    assert not raised and not readers and seen
    assert os.listdir(tmp_path) == ["1"]
    check(checkpoints.restore(tmp_path))


def test_one_of_several_that_save_a_new_step_does(tmp_path):
    for step in range(10):
        save = functools.partial(checkpoints.save, tmp_path, step=step)
        raised = together(*[functools.partial(save, tree(i)) for i in range(4)])
        assert len(raised) == 3 and all(isinstance(e, ParameterError) and "there already" in str(e) for e in raised)
    assert sorted(os.listdir(tmp_path), key=int) == [str(n) for n in range(10)]


def test_managers_of_one_folder_save_and_remove(tmp_path):
    def run(first):
        with checkpoints.CheckpointManager(tmp_path, max_to_keep=2) as manager:
            for n in range(first, 30, 3):
                manager.save(n, tree(n), force=True)
                check(manager.restore())

    assert not together(*[lambda i=i: run(i) for i in range(3)])
    assert 29 in checkpoints.all_steps(tmp_path) and all(n.isdigit() for n in os.listdir(tmp_path))


WRITE = """
import sys
sys.path.insert(0, sys.argv[3])
from tests.checkpoints.test_concurrent import check, checkpoints, tree
me = int(sys.argv[2])
for k in range(10):
    checkpoints.save(sys.argv[1], tree(100 * me + k), step=5, overwrite=True)
    check(checkpoints.restore(sys.argv[1], like=tree(0)))
"""


def test_processes_replace_a_step(tmp_path):
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    running = [subprocess.Popen([*command, str(i), str(ROOT)], stderr=subprocess.PIPE, text=True) for i in range(3)]
    for p in running:
        _, said = p.communicate(timeout=300)
        assert not p.returncode, said[-2000:]
    assert os.listdir(tmp_path) == ["5"]
    check(checkpoints.restore(tmp_path))
